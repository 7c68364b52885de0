#!/usr/bin/env python3
"""Tests the timeline of a whole program, as QCCL_TRACE writes it and bench/trace_svg.py draws it.

    trace_file.py QCCL-GPT [MPIRUN]

Trains a few steps with DUO, as threads and with MPIRUN as processes.  Prints TAP.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM, MPIRUN = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
FOLDER = tempfile.TemporaryDirectory()
RANKS, STEPS = 2, 3
KINDS = {"compute", "encode", "wire", "decode", "fast", "slow", "commit"}
SVG = "{http://www.w3.org/2000/svg}"
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("QCCL_")}
CLEAN.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def path(name):
    return os.path.join(FOLDER.name, name)


def train(trace, *flags, under=(), more=None):
    words = path("text")
    with open(words, "w", encoding="utf-8") as f:
        f.write("the quick brown fox jumps over the lazy dog. " * 400)
    environment = {**CLEAN, **({"QCCL_TRACE": trace} if trace else {}), **(more or {})}
    command = [*under, PROGRAM, "--text", words, "--layers", "1", "--width", "16", "--heads", "2", "--context", "16",
               "--batch", "2", "--windows", "2", "--steps", STEPS, "--eval", STEPS, "--sharded", "--duo", "4", *flags]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def svg(*arguments):
    return subprocess.run([sys.executable, os.path.join(ROOT, "bench", "trace_svg.py"), *arguments],
                          capture_output=True, text=True, timeout=60)


def marks_of(name):
    with open(name, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    return [e for e in events if e["ph"] == "X"], [e for e in events if e["ph"] == "M"]


def thread_trace():
    name = path("threads.json")
    if not os.path.exists(name):
        train(name, "--ranks", RANKS)
    return name


def nanoseconds(e):
    begin = round(e["ts"] * 1000)
    return begin, begin + round(e["dur"] * 1000)


def every_rank_has_every_kind_of_mark_and_a_row_a_worker():
    marks, metadata = marks_of(thread_trace())
    for rank in range(RANKS):
        seen = {e["name"] for e in marks if e["pid"] == rank}
        assert KINDS <= seen, f"rank {rank} lacks {KINDS - seen}"
        rows = sorted(e["args"]["name"] for e in metadata if e["pid"] == rank and e["name"] == "thread_name")
        assert rows == ["caller", "stream (priority 0)", "stream (priority 4)"], rows
    assert {e["args"]["name"] for e in metadata if e["name"] == "process_name"} == {"rank 0", "rank 1"}


def marks_of_a_row_nest():
    rows = {}
    for e in marks_of(thread_trace())[0]:
        rows.setdefault((e["pid"], e["tid"]), []).append((*nanoseconds(e), e["name"]))
    for row, spans in rows.items():
        around = []
        for begin, end, kind in sorted(spans, key=lambda s: (s[0], -s[1])):
            while around and around[-1] <= begin:
                around.pop()
            assert not around or end <= around[-1], f"{row}: {kind} from {begin} to {end} sticks out"
            around.append(end)


def each_step_computes_once_and_slow_reductions_are_on_rows_of_their_own():
    marks, _ = marks_of(thread_trace())
    for rank in range(RANKS):
        compute = [e for e in marks if e["pid"] == rank and e["name"] == "compute"]
        assert len(compute) == STEPS, len(compute)
        slow = {e["tid"] for e in marks if e["pid"] == rank and e["name"] == "slow"}
        assert slow and slow.isdisjoint({e["tid"] for e in compute}), slow


def without_the_variable_there_is_no_file():
    before = set(os.listdir(FOLDER.name)) | {"text"}
    train(None, "--ranks", RANKS)
    assert set(os.listdir(FOLDER.name)) == before


def a_path_that_cannot_be_written_is_one_warning():
    done = train(path("missing/out.json"), "--ranks", RANKS, more={"QCCL_DEBUG": "WARN"})
    lines = [line for line in done.stderr.split("\n") if "QCCL_TRACE" in line]
    assert len(lines) == 1 and "missing/out.json" in lines[0], done.stderr


def ranks_that_are_processes_write_a_file_each():
    if not MPIRUN:
        return "no mpirun"
    train(path("mpi.json"), under=(MPIRUN, "-n", str(RANKS), "--oversubscribe"))
    files = sorted(glob.glob(path("mpi*.json")))
    assert files == [path(f"mpi.rank{rank}.json") for rank in range(RANKS)], files
    for rank, name in enumerate(files):
        assert {e["pid"] for e in marks_of(name)[0]} == {rank}
    done = svg("--summary", *files)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["rank", "0", "1"], done.stdout + done.stderr
    return None


def the_picture_is_xml_with_a_row_for_every_row_of_the_file():
    out = path("out.svg")
    done = svg(thread_trace(), "--out", out)
    assert done.returncode == 0, done.stderr
    root = ET.parse(out).getroot()
    marks, _ = marks_of(thread_trace())
    rows = {f"rank{e['pid']}-thread{e['tid']}" for e in marks}
    assert {g.get("id") for g in root.iter(SVG + "g")} == rows
    texts = {t.text for t in root.iter(SVG + "text")}
    assert KINDS <= texts and "rank 1, stream (priority 4)" in texts, texts


def a_piece_of_the_picture_has_that_piece_alone():
    name = path("made.json")
    event = '{"ph":"X","name":"%s","pid":%d,"tid":0,"ts":%d.0,"dur":%d.0}'
    events = [event % e for e in (("compute", 0, 1000, 4000), ("slow", 1, 9000, 1000))]
    with open(name, "w", encoding="utf-8") as f:
        f.write('{"otherData":{"dropped":0},"traceEvents":[%s]}' % ",".join(events))
    whole, piece, nothing = svg(name), svg(name, "--from", "5", "--to", "10"), svg(name, "--from", "20", "--to", "30")
    assert "rank0-thread0" in whole.stdout and "rank1-thread0" in whole.stdout
    assert "rank0-thread0" not in piece.stdout and "rank1-thread0" in piece.stdout
    assert nothing.returncode == 1 and "no marks between 20 and 30 ms" in nothing.stderr, nothing.stderr


def the_summary_counts_what_lies_under_compute():
    name = path("made2.json")
    event = '{"ph":"X","name":"%s","pid":0,"tid":%d,"ts":%d.0,"dur":%d.0}'
    made = (("compute", 0, 0, 4000), ("compute", 0, 6000, 2000), ("slow", 1, 3000, 4000), ("wire", 1, 3000, 1000),
            ("wire", 2, 3500, 1500))
    with open(name, "w", encoding="utf-8") as f:
        f.write('{"otherData":{"dropped":3},"traceEvents":[%s]}' % ",".join(event % e for e in made))
    done = svg("--summary", name)
    assert done.stdout.splitlines()[1].split("\t") == ["0", "6.000", "4.000", "0.500", "2.000", "0.500"], done.stdout
    assert "3 marks were dropped" in done.stderr


def a_file_that_is_no_timeline_is_one_sentence():
    done = svg(path("text"))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr


def main():
    tests = [every_rank_has_every_kind_of_mark_and_a_row_a_worker, marks_of_a_row_nest,
             each_step_computes_once_and_slow_reductions_are_on_rows_of_their_own,
             without_the_variable_there_is_no_file, a_path_that_cannot_be_written_is_one_warning,
             ranks_that_are_processes_write_a_file_each, the_picture_is_xml_with_a_row_for_every_row_of_the_file,
             a_piece_of_the_picture_has_that_piece_alone, the_summary_counts_what_lies_under_compute,
             a_file_that_is_no_timeline_is_one_sentence]
    failed = 0
    print(f"1..{len(tests)}")
    for number, test in enumerate(tests, 1):
        name = test.__name__.replace("_", " ")
        try:
            skipped = test()
            print(f"ok {number} - {name}" + (f" # SKIP {skipped}" if skipped else ""))
        except (AssertionError, KeyError, OSError, ValueError, ET.ParseError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"not ok {number} - {name}\n# " + f"{type(error).__name__}: {error}".replace("\n", "\n# "))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
