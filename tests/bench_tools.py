"""Tests qccl-perf, qccl-apply, qccl-codec, qccl-hidden as a user runs them: what they print and write, how they fail.

    bench_tools.py FOLDER [MPIRUN]

FOLDER holds the programs.  With MPIRUN, qccl-perf runs under it too.  Results are compared with an independent
implementation of the numerics, oracle.py, where QCCL_ORACLE names it or it lies beside the repository.  Prints TAP.
"""
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build", "bench")
MPIRUN = sys.argv[2] if len(sys.argv) > 2 else ""
ORACLE = os.environ.get("QCCL_ORACLE") or os.path.join(ROOT, "..", "shared", "oracle", "oracle.py")
PERF_KEYS = {"collective": str, "bytes": int, "count": int, "type": str, "op": str, "ranks": int,
             "policy": str, "time_us": float, "busbw": float, "uncompressed_time_us": float,
             "wire_bytes": int, "ratio": float, "rel_error": float, "wrong": int}
CODEC_KEYS = {"codec": str, "kernel": str, "operation": str, "where": str, "values_per_s": float,
              "share_of_read": float, "share_of_copy": float}
SEED = int(os.environ.get("QCCL_TEST_SEED", "20240901"))

CLEAN = {k: v for k, v in os.environ.items()
         if not k.startswith(("QCCL_POLICY", "QCCL_NODES", "QCCL_SEED", "QCCL_CPU", "QCCL_DEBUG", "QCCL_STATS"))}
CLEAN.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


class Skip(Exception):
    pass


def run(program, *arguments, under=(), environment=None):
    command = [*under, os.path.join(PROGRAMS, program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240,
                          env={**CLEAN, **(environment or {})})
    done.shown = f"{' '.join(command)}\nexit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


def rows(program, *arguments, under=(), environment=None):
    """Runs a program with --json - and returns its array."""
    done = run(program, *arguments, "--json", "-", under=under, environment=environment)
    assert done.returncode == 0, done.shown
    return json.loads(done.stdout)


def check_keys(row, keys):
    for key, kind in keys.items():
        assert key in row, f"{key} is missing in {row}"
        good = isinstance(row[key], kind) or (kind is float and isinstance(row[key], int))
        assert good and not isinstance(row[key], bool), f"{key} is {row[key]!r}"


# ---------------------------------------------------------------- floats
def floats(words):
    return struct.unpack(f"<{len(words)}f", struct.pack(f"<{len(words)}I", *words))


def pack(values):
    return struct.pack(f"<{len(values)}f", *values)


def read_words(path):
    with open(path, "rb") as f:
        raw = f.read()
    return list(struct.unpack(f"<{len(raw) // 4}I", raw))


def to_bf16(word):
    if word & 0x7FFFFFFF > 0x7F800000:
        return 0x7FC0
    return (word + 0x7FFF + ((word >> 16) & 1)) >> 16


def to_half(word):
    (value,) = floats([word])
    if value != value:
        return 0x7E00
    try:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError:
        return 0xFC00 if value < 0 else 0x7C00


def half_word(half):
    (value,) = struct.unpack("<e", struct.pack("<H", half))
    return 0x7FC00000 if value != value else struct.unpack("<I", struct.pack("<f", value))[0]


def some_values(count, seed):
    """Values of all sizes, as gradients have them."""
    source = random.Random(seed)
    return [source.gauss(0, 1) * 10 ** source.uniform(-3, 0) for _ in range(count)]


class Folder:
    """Input files and results of one test."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="qccl-tools-")
        self.out = os.path.join(self.path, "out")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def write(self, name, raw):
        path = os.path.join(self.path, name)
        with open(path, "wb") as f:
            f.write(raw)
        return path

    def inputs(self, count, ranks, seed=SEED):
        return [self.write(f"in{r}.f32", pack(some_values(count, seed + r))) for r in range(ranks)]

    def results(self, ranks):
        return [read_words(os.path.join(self.out, f"rank{r}.f32")) for r in range(ranks)]


def npy(values, descr="<f4", order="False", letter="f", version=1):
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({len(values)},), }}"
    header += " " * (-(10 + len(header) + 1) % 64) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + \
        struct.pack(f"<{len(values)}{letter}", *values)


# ---------------------------------------------------------------- command lines
def test_help_and_version_of_every_program_suffice():
    for program, words in (("qccl-perf", ("--policy", "--minbytes", "busbw", "--json", "Exit status")),
                           ("qccl-apply", ("--policy", "--seq", "--out", "min=0", "Exit status")),
                           ("qccl-codec", ("--codec", "--where", "share", "Exit status")),
                           ("qccl-hidden", ("--compute", "--device", "ratio", "Exit status"))):
        done = run(program, "--help")
        assert done.returncode == 0 and done.stderr == "", done.shown
        for word in words:
            assert word in done.stdout, f"{program} --help does not speak of {word}"
        done = run(program, "--version")
        assert done.returncode == 0 and done.stdout.startswith(program + " "), done.shown


BAD_LINES = (
    ("qccl-perf", [], "allreduce"),
    ("qccl-perf", ["alltoall"], "alltoall"),
    ("qccl-perf", ["allreduce", "-b"], "-b"),
    ("qccl-perf", ["allreduce", "-b", "12Q"], "12Q"),
    ("qccl-perf", ["allreduce", "-b", "2M", "-e", "1M"], "-b"),
    ("qccl-perf", ["allreduce", "-n", "0"], "-n 0"),
    ("qccl-perf", ["allreduce", "-f", "x"], "-f x"),
    ("qccl-perf", ["allreduce", "-o", "median"], "median"),
    ("qccl-perf", ["allreduce", "-d", "quad"], "quad"),
    ("qccl-perf", ["allreduce", "-c", "2"], "-c 2"),
    ("qccl-perf", ["allreduce", "-r", "4", "--ranks", "4", "-b", "1K"], "-r 4"),
    ("qccl-perf", ["allreduce", "--ranks", "0"], "--ranks 0"),
    ("qccl-perf", ["allreduce", "--ranks", "3", "--nodes", "0,1", "-b", "1K"], "--nodes 0,1"),
    ("qccl-perf", ["allreduce", "--policy", "int5", "-b", "1K"], "int5"),
    ("qccl-perf", ["allreduce", "--sizes", "3"], "--sizes"),
    ("qccl-perf", ["allreduce", "stray"], "stray"),
    ("qccl-perf", ["delta", "-d", "int32", "-b", "1K"], "int32"),
    ("qccl-apply", [], "allreduce"),
    ("qccl-apply", ["delta", "--out", "x", "f"], "delta"),
    ("qccl-apply", ["allreduce", "--out", "x"], "files"),
    ("qccl-apply", ["allreduce", "f"], "--out"),
    ("qccl-apply", ["allreduce", "--op", "max", "--out", "x", "f"], "max"),
    ("qccl-apply", ["allreduce", "--type", "int8", "--out", "x", "f"], "int8"),
    ("qccl-apply", ["allreduce", "--seq", "4294967296", "--out", "x", "f"], "--seq"),
    ("qccl-apply", ["allreduce", "--seed", "-1", "--out", "x", "f"], "--seed"),
    ("qccl-codec", ["--codec", "int4:group=100"], "group=100"),
    ("qccl-codec", ["--cpu", "mmx"], "mmx"),
    ("qccl-codec", ["--operation", "fly"], "fly"),
    ("qccl-codec", ["--where", "disk"], "disk"),
    ("qccl-codec", ["--samples", "0"], "--samples 0"),
    ("qccl-codec", ["stray"], "stray"),
    ("qccl-hidden", ["--compute", "-1"], "--compute -1"),
    ("qccl-hidden", ["--ranks", "0"], "--ranks 0"),
    ("qccl-hidden", ["--bytes", "1K", "--bucket", "512"], "--bucket 512"),
    ("qccl-hidden", ["--bytes", "12Q"], "12Q"),
    ("qccl-hidden", ["--pairs", "0"], "--pairs 0"),
    ("qccl-hidden", ["stray"], "stray"),
)


def test_a_command_line_that_makes_no_sense_is_exit_2_and_a_sentence_that_names_the_word():
    for program, arguments, word in BAD_LINES:
        done = run(program, *arguments)
        assert done.returncode == 2, done.shown
        assert done.stdout == "", done.shown
        assert done.stderr.startswith(program + ": ") and word in done.stderr, done.shown


# ---------------------------------------------------------------- qccl-perf
def message_bytes(bits, group, count):
    """Header, scales and whole tiles of codes, as docs/wire-format.md has them."""
    scales = -(-count // group) * 2
    return 64 + -(-scales // 64) * 64 + -(-count // 128) * 16 * bits


def test_perf_writes_every_key_with_its_type():
    for row in rows("qccl-perf", "allreduce", "--policy", "int4", "-b", "64K", "-e", "1M", "-f", 4, "-n", 3, "-w", 1):
        check_keys(row, PERF_KEYS)
        assert row["collective"] == "allreduce" and row["policy"] == "int4" and row["ranks"] == 4, row
        assert row["type"] == "float" and row["op"] == "sum" and row["bytes"] == 4 * row["count"], row
        assert row["time_us"] > 0 and row["uncompressed_time_us"] > 0 and row["wrong"] == 0, row
        expected = row["bytes"] / row["time_us"] * 1e-3 * 1.5
        assert math.isclose(row["busbw"], expected, rel_tol=1e-6), row


def test_perf_counts_the_wire_bytes_of_int4_to_the_byte():
    count, ranks = 1 << 16, 4  # shards of one chunk
    (row,) = rows("qccl-perf", "allreduce", "--policy", "int4", "-b", 4 * count, "-n", 1, "-w", 0, "--ranks", ranks)
    shard = count // ranks
    assert row["wire_bytes"] == 2 * (ranks - 1) * message_bytes(4, 128, shard), row
    assert row["ratio"] == round(2 * (ranks - 1) * 4 * shard / row["wire_bytes"], 8), row
    # 4 bits and a 16-bit scale for 128 values are 4.125 of 32 bits; a header of 64 bytes is on top.
    assert 32 / 4.125 * (1 - 128 / message_bytes(4, 128, shard)) < row["ratio"] < 32 / 4.125, row


def test_perf_finds_no_wrong_value_with_any_codec_and_collective():
    policies = ("int8", "int4", "int4:round=nearest", "int2:group=64", "sr1", "sign1", "bf16",
                "int4:hadamard=32", "int4 gather=int8", "int4:hadamard=64 gather=int8:hadamard=32",
                "int4:group=96 intra=int8")
    for policy in policies:
        for coll in ("allreduce", "reducescatter") + (() if " " in policy else ("allgather", "delta")):
            for kind in ("float", "half", "bfloat16"):
                (row,) = rows("qccl-perf", coll, "--policy", policy + "; min=0", "-b", 100004, "-n", 1, "-w", 0,
                              "--ranks", 3, "--nodes", "0,1,0", "-d", kind, "-o", "avg")
                assert row["wrong"] == 0 and row["same_bits"] and row["compressed"], row
                # Only a copy of bf16 values in bf16 loses nothing.
                lossless = policy == "bf16" and kind == "bfloat16" and coll == "allgather"
                assert (row["rel_error"] == 0) == lossless and row["closest_to_bound"] <= 1, row


def test_perf_shows_calls_that_are_passed_through_as_such_and_exact():
    for arguments in (("-d", "int32"), ("-o", "max"), ("-o", "prod"), ("-d", "double"), ("-b", "60K")):
        (row,) = rows("qccl-perf", "allreduce", "--policy", "int4", "-b", "128K", "-n", 1, "-w", 0, *arguments)
        assert row["codec"] == "none" and not row["compressed"] and row["ratio"] == 1 and row["wrong"] == 0, row
        assert row["wire_bytes"] == row["bytes"] * 3 // 2, row
    all_rows = rows("qccl-perf", "allreduce", "--policy", "none", "-b", "4K", "-n", 1, "-w", 0,
                    "-d", "all", "-o", "all")
    assert len(all_rows) == 10 * 5 and all(r["wrong"] == 0 for r in all_rows), all_rows
    # So many ranks that sums of small integers wrap in 8 bits before they are averaged.
    for kind in ("int8", "uint8"):
        (row,) = rows("qccl-perf", "allreduce", "-b", "4K", "-n", 1, "-w", 0, "-d", kind, "-o", "avg", "--ranks", 24)
        assert row["wrong"] == 0, row


def test_perf_counts_sizes_and_bandwidth_as_nccl_tests_does():
    for coll in ("reducescatter", "allgather", "delta"):
        (row,) = rows("qccl-perf", coll, "--policy", "int4", "-b", "1M", "-n", 1, "-w", 0, "--ranks", 4)
        assert row["bytes"] == 1 << 20 and row["count"] == (1 << 18) // 4, row
        assert math.isclose(row["busbw"], row["bytes"] / row["time_us"] * 1e-3 * 0.75, rel_tol=1e-6), row


def test_perf_works_in_place_with_one_rank_and_with_more_ranks_than_values():
    for coll in ("allreduce", "reducescatter", "allgather", "delta"):
        for ranks, size in ((1, "64K"), (3, "100K"), (5, 16)):
            (row,) = rows("qccl-perf", coll, "--policy", "int4; min=0", "-b", size, "-n", 2, "-w", 1, "--in-place",
                          "--ranks", ranks, "-p", 0)
            assert row["wrong"] == 0 and row["in_place"], row


def test_perf_moves_messages_of_several_chunks_between_uneven_nodes():
    for coll in ("allreduce", "reducescatter"):
        for nodes in ("0,1,1", "0,0,0,0,1"):
            for row in rows("qccl-perf", coll, "--policy", "int4 intra=int8", "-b", "4M", "-e", "6M", "-i", "2M",
                            "-n", 1, "-w", 0, "--nodes", nodes, "--ranks", nodes.count(",") + 1):
                assert row["wrong"] == 0 and row["same_bits"], row


def test_perf_repeats_its_error_from_a_seed():
    errors = [rows("qccl-perf", "allreduce", "--policy", "int4", "-b", "256K", "-n", 1, "-w", 0, "--seed", seed)[0]
              ["rel_error"] for seed in (5, 5, 6)]
    assert errors[0] == errors[1] != errors[2], errors


def test_perf_takes_values_from_raw_and_npy_files():
    with Folder() as folder:
        ones = folder.write("ones.f32", pack([1.0] * 1000))
        twos = folder.write("twos.npy", npy([2.0] * 300))
        halves = folder.write("halves.npy", npy([0.5] * 64, "<f2", letter="e", version=2))
        # Groups of equal values that are 7 steps of a power of two are exact.
        (row,) = rows("qccl-perf", "allreduce", "--policy", "int8; min=0", "-b", "4K", "-n", 1, "-w", 0, "--ranks", 3,
                      "--input", ones, twos, halves)
        exact = 3.5
        assert row["wrong"] == 0 and row["rel_error"] <= 2 * exact / 127 / exact, row
        (row,) = rows("qccl-perf", "allreduce", "-n", 1, "-w", 0, "-d", "half", "--input", ones)
        assert row["count"] == 1000 and row["bytes"] == 2000, row
        done = run("qccl-perf", "allreduce", "-b", "4K", "--input", os.path.join(folder.path, "missing.f32"))
        assert done.returncode == 1 and "missing.f32: No such file" in done.stderr, done.shown
        odd = folder.write("odd.f32", b"12345")
        done = run("qccl-perf", "allreduce", "-b", "4K", "--input", odd)
        assert done.returncode == 1 and "5 bytes" in done.stderr, done.shown


def test_perf_prints_a_table_and_the_plan_for_people():
    done = run("qccl-perf", "allreduce", "--policy", "int4", "-b", "128K", "-n", 1, "-w", 0, "--print-plan")
    assert done.returncode == 0, done.shown
    for word in ("busbw", "#wrong", "speed-up", "rel_error", "redop", "encode", "int4:group=128"):
        assert word in done.stdout, f"{word} is missing in\n{done.shown}"
    with Folder() as folder:
        path = os.path.join(folder.path, "rows.json")
        done = run("qccl-perf", "allreduce", "-b", "128K", "-n", 1, "-w", 0, "--json", path)
        assert done.returncode == 0 and "busbw" in done.stdout, done.shown
        with open(path) as f:
            check_keys(json.load(f)[0], PERF_KEYS)
    (row,) = rows("qccl-perf", "allreduce", "-b", "128K", "-n", 1, "-w", 0, "-c", 0)
    assert row["wrong"] is None and row["rel_error"] is None, row


def test_perf_under_mpirun_uses_mpi_and_speaks_once():
    if not MPIRUN:
        raise Skip("no mpirun")
    under = [MPIRUN, "-n", "2", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    done = run("qccl-perf", "--help", under=under)
    if run("qccl-perf", "allreduce", "-b", "1K", under=under[:1] + ["-n", "1"]).returncode == 2:
        raise Skip("built without MPI")
    assert done.stdout.count("Usage:") == 1, done.shown
    for coll in ("allreduce", "reducescatter", "allgather", "delta"):
        (row,) = rows("qccl-perf", coll, "--policy", "int4; min=0", "-b", 100000, "-n", 3, "-w", 1, under=under)
        check_keys(row, PERF_KEYS)
        assert row["transport"] == "mpi" and row["ranks"] == 2 and row["wrong"] == 0 and row["same_bits"], row
        threads = rows("qccl-perf", coll, "--policy", "int4; min=0", "-b", 100000, "-n", 1, "-w", 0, "--ranks", 2)[0]
        assert threads["rel_error"] == row["rel_error"] and threads["wire_bytes"] == row["wire_bytes"], (row, threads)
    done = run("qccl-perf", "allreduce", "--ranks", 3, "-b", "1K", under=under)
    assert done.returncode == 2 and "--ranks 3" in done.stderr, done.shown


# ---------------------------------------------------------------- qccl-apply
def apply(folder, coll, files, policy, *arguments):
    done = run("qccl-apply", coll, "--policy", policy, "--out", folder.out, *arguments, "--json", "-", *files)
    assert done.returncode == 0, done.shown
    (row,) = json.loads(done.stdout)
    assert row["wrong"] == 0 and row["clipped"] == 0 and row["same_bits"], row
    return row


def oracle(coll, spec, files, *arguments):
    if not os.path.exists(ORACLE):
        raise Skip("no oracle.py beside the repository")
    done = subprocess.run([sys.executable, ORACLE, coll, spec, *files, *map(str, arguments)], capture_output=True,
                          text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [int(line, 16) for line in done.stdout.split()]


# collective, policy, the oracle's codec and options, options of both, count, ranks
ORACLE_CASES = (
    ("allreduce", "int4", ["int4"], [], 1000, 3),
    ("allreduce", "int8:group=64", ["int8:group=64"], ["--op", "avg"], 777, 4),
    ("allreduce", "int4 gather=int8", ["int4", "--gather", "int8"], [], 1100, 2),
    ("allreduce", "int4:hadamard=32 gather=int8:hadamard=64", ["int4:hadamard=32", "--gather", "int8:hadamard=64"],
     ["--op", "avg"], 900, 3),
    ("allreduce", "sr1", ["sr1"], ["--op", "avg"], 500, 5),
    ("allreduce", "sign1", ["sign1"], [], 500, 2),
    ("allreduce", "int4:round=nearest", ["int4:round=nearest"], [], 640, 8),
    ("allreduce", "int4 intra=int8", ["int4", "--intra", "int8"], ["--nodes", "0,0,1,1,1"], 1300, 5),
    ("allreduce", "int4:group=96 gather=int8:group=64 intra=int8", ["int4:group=96", "--gather", "int8:group=64",
                                                                    "--intra", "int8"],
     ["--nodes", "0,1,1", "--op", "avg"], 1500, 3),
    ("reducescatter", "int4", ["int4"], ["--op", "avg"], 999, 3),
    ("reducescatter", "int2:group=32,hadamard=32 intra=int4:group=64",
     ["int2:group=32,hadamard=32", "--intra", "int4:group=64"], ["--nodes", "0,1,0,1"], 1000, 4),
    ("allgather", "int4:group=64,hadamard=64", ["int4:group=64,hadamard=64"], [], 333, 3),
    ("allgather", "sr1", ["sr1"], [], 333, 2),
)


def gather_results(coll, results):
    """One list of words from those of all ranks, which agree where they should."""
    if coll == "reducescatter":
        return [word for result in results for word in result]
    assert all(result == results[0] for result in results), "ranks wrote different results"
    return results[0]


def without_rank_options(coll, options):
    return options if coll != "allgather" else []


def test_apply_writes_what_the_oracle_computes_to_the_bit():
    for coll, policy, spec, options, count, ranks in ORACLE_CASES:
        with Folder() as folder:
            files = folder.inputs(count, ranks)
            expected = oracle(coll, spec[0], files, *spec[1:], *options, "--seed", 77, "--seq", 5)
            apply(folder, coll, files, policy + "; min=0", *without_rank_options(coll, options),
                  "--seed", 77, "--seq", 5)
            got = gather_results(coll, folder.results(ranks))
            wrong = [i for i, (a, b) in enumerate(zip(got, expected)) if a != b]
            assert len(got) == len(expected) and not wrong, \
                f"{coll} {policy} {options} seed {SEED}: {len(wrong)} of {len(expected)} differ, first {wrong[:3]}"


def test_apply_converts_16_bit_inputs_exactly_and_results_to_nearest_even():
    for kind, narrow, widen in (("bf16", to_bf16, lambda h: h << 16), ("fp16", to_half, half_word)):
        for coll, policy, spec in (("allreduce", "int4", ["int4"]), ("reducescatter", "int8", ["int8"]),
                                   ("allgather", "int4", ["int4"])):
            with Folder() as folder:
                wide, files = [], []
                for r in range(3):
                    halves = [narrow(w) for w in struct.unpack("<600I", pack(some_values(600, SEED + 50 + r)))]
                    files.append(folder.write(f"in{r}.raw", struct.pack("<600H", *halves)))
                    wide.append(folder.write(f"wide{r}.f32", struct.pack("<600I", *map(widen, halves))))
                expected = [widen(narrow(w)) for w in oracle(coll, spec[0], wide, "--seed", 3)]
                row = apply(folder, coll, files, policy + "; min=0", "--type", kind, "--seed", 3)
                assert row["type"] == {"bf16": "bfloat16", "fp16": "half"}[kind], row
                assert gather_results(coll, folder.results(3)) == expected, f"{kind} {coll}, seed {SEED}"


def test_apply_is_exact_where_the_codec_is():
    with Folder() as folder:
        # Multiples of a power of two up to 7 of them, in every group.
        exact = [(i % 15 - 7) * 0.25 for i in range(640)]
        files = [folder.write("a.f32", pack(exact)), folder.write("b.f32", pack(exact[::-1]))]
        row = apply(folder, "allgather", files, "int4; min=0")
        assert row["rel_error"] == 0 and row["compressed"], row
        assert folder.results(2)[1] == [w for f in files for w in read_words(f)]
        row = apply(folder, "allgather", files, "none; min=0")
        assert row["rel_error"] == 0 and not row["compressed"] and row["codec"] == "none", row
        done = run("qccl-apply", "allgather", "--policy", "int4", "--out", folder.out, *files)
        assert done.returncode == 0 and "nothing was compressed" in done.stdout, done.shown


def test_apply_repeats_from_seed_and_sequence_number():
    with Folder() as folder:
        files, seen = folder.inputs(1000, 2), []
        for seed, sequence in ((1, 0), (1, 0), (2, 0), (1, 1)):
            apply(folder, "allreduce", files, "int4; min=0", "--seed", seed, "--seq", sequence)
            seen.append(folder.results(2)[0])
        assert seen[0] == seen[1] and seen[0] != seen[2] and seen[0] != seen[3] and seen[2] != seen[3]


def test_apply_tells_ratio_error_worst_group_and_poisoned_groups():
    with Folder() as folder:
        values = [0.01] * 1024
        values[300] = 1000.0  # a spike: its group of 128 loses its small values
        files = [folder.write(f"in{r}.f32", pack(values)) for r in range(2)]
        row = apply(folder, "allgather", files, "int4:round=nearest; min=0")
        assert row["worst_first"] != 256, row  # 0.01 beside 1000 is a small error
        values[300] = 0.012
        values[700] = float("nan")
        files = [folder.write(f"in{r}.f32", pack(values)) for r in range(2)]
        row = apply(folder, "allgather", files, "int4:round=nearest; min=0")
        assert row["nan_groups"] == 2 and row["nan_values"] == 256, row
        assert row["worst_owner"] == 0 and row["worst_group"] == 2 and row["worst_first"] == 256, row
        step = 0.012 / 7
        assert 0 < row["worst_error"] <= step / 2 * (1 + 2 ** -7) and abs(row["worst_value"] - 0.012) < 1e-8, row
        wire = 2 * message_bytes(4, 128, 1024)
        assert row["raw_bytes"] == 8192 and row["wire_bytes"] == wire, row
        result = floats(folder.results(2)[0])
        assert all((v != v) == (i % 1024 // 128 == 5) for i, v in enumerate(result))
        done = run("qccl-apply", "allreduce", "--policy", "int4; min=0", "--out", folder.out, *files)
        for word in ("ratio", "relative error", "worst group", "clipped         0", "NaN groups", "same bits"):
            assert word in done.stdout, f"{word} is missing in\n{done.shown}"


def test_apply_reads_npy_of_both_types():
    with Folder() as folder:
        values = [0.5 * (i % 15 - 7) for i in range(256)]
        for name, raw in (("f4", npy(values)), ("f2", npy(values, "<f2", letter="e")),
                          ("v2", npy(values, version=2))):
            files = [folder.write(f"{name}{r}.npy", raw) for r in range(2)]
            row = apply(folder, "allgather", files, "int4; min=0")
            assert row["count"] == 256 and floats(folder.results(2)[0]) == tuple(values * 2), row


def test_apply_says_which_file_is_unusable_and_why():
    with Folder() as folder:
        good, short = folder.write("good.f32", pack([1.0] * 10)), folder.write("short.f32", pack([1.0] * 9))
        fortran = folder.write("fortran.npy", npy([1.0] * 10, order="True"))
        double = folder.write("double.npy", npy([1.0] * 10, "<f8", letter="d"))
        cut = folder.write("cut.npy", npy([1.0] * 10)[:-1])
        junk = folder.write("junk.npy", b"not an array")
        half = folder.write("half.npy", npy([1.0] * 10, "<f2", letter="e"))
        for files, coll, words in (
                ([good, short], "allreduce", ("10 values", "9")),
                ([good, folder.path + "/none"], "allreduce", ("none",)),
                ([good, folder.path], "allreduce", ("directory",)), ([fortran], "allreduce", ("Fortran",)),
                ([double], "allreduce", ("<f8",)), ([cut], "allreduce", ("ends too early",)),
                ([junk], "allreduce", ("no .npy",)), ([good, half], "allreduce", ("half",)),
                ([good, good, good], "reducescatter", ("10 values", "3 ranks"))):
            done = run("qccl-apply", coll, "--policy", "int4; min=0", "--out", folder.out, *files)
            assert done.returncode == 1 and done.stderr.startswith("qccl-apply: "), done.shown
            assert all(word in done.stderr for word in words), done.shown
        done = run("qccl-apply", "allreduce", "--policy", "int4:gruop=3", "--out", folder.out, good)
        assert done.returncode == 2 and "gruop" in done.stderr, done.shown
        done = run("qccl-apply", "allreduce", "--out", os.path.join(good, "x"), good)
        assert done.returncode == 1 and "Not a directory" in done.stderr, done.shown


# ---------------------------------------------------------------- qccl-codec
def test_codec_measures_every_operation_of_every_row_in_both_places():
    quick = ("--bytes", "4M", "--samples", 1)
    found = rows("qccl-codec", *quick, "--codec", "int4", "--codec", "sign1:feedback=on")
    for row in found:
        check_keys(row, CODEC_KEYS)
        assert row["values_per_s"] > 0 and row["share_of_read"] > 0 and row["share_of_copy"] > 0, row
        assert row["values_per_cycle"] > 0 and row["kernel"].startswith(row["codec"].split(":")[0] + "_"), row
    kernels = {row["kernel"] for row in found if row["codec"] == "int4"}
    assert "int4_c" in kernels, kernels
    wanted = {("encode", 0), ("decode", 1), ("decode-add", 1), ("sum", 2), ("sum", 4), ("sum-encode", 4)}
    for kernel in kernels:
        for where in ("cache", "memory"):
            here = [(r["operation"], r["messages"]) for r in found if r["kernel"] == kernel and r["where"] == where]
            assert sorted(here) == sorted(wanted), (kernel, where, here)
    (one,) = rows("qccl-codec", *quick, "--codec", "int8", "--cpu", "c", "--operation", "encode", "--where", "memory")
    assert one["kernel"] == "int8_c" and one["count"] == (4 << 20) // 4, one


# ---------------------------------------------------------------- qccl-hidden
def test_hidden_compares_steps_with_and_without_slow_reductions():
    quick = ("--bytes", "256K", "--bucket", "64K", "--compute", "4", "--pairs", "3")
    keys = {"ranks": int, "bytes": int, "fast": str, "slow": str, "compute_ms": float, "off_ms": float,
            "on_ms": float, "ratio": float, "slow_ms": float, "exposed_ms": float, "cores_off": float,
            "cores_on": float}
    for more in ((), ("--device", "--ranks", "3", "--fast", "local", "--slow", "bf16"), ("--slow", "residual int8")):
        (row,) = rows("qccl-hidden", *quick, *more)
        check_keys(row, keys)
        assert row["bytes"] == 256 << 10 and row["compute_ms"] == 4, row
        if "--device" in more:  # a sleep is never shorter; arithmetic was calibrated
            assert row["ranks"] == 3 and row["fast"] == "local" and row["slow"] == "bf16", row
            assert row["off_ms"] >= 4 and row["on_ms"] >= 4, row
        assert row["slow_ms"] > 0 and row["exposed_ms"] >= 0, row
    done = run("qccl-hidden", *quick)
    head, values = done.stdout.splitlines()
    assert head.startswith("#ranks\t") and len(head.split("\t")) == len(values.split("\t")), done.shown


def test_hidden_says_what_is_wrong_with_a_codec():
    for arguments, word in (("--fast", "int5"), "int5"), (("--slow", "fp8"), "fp8"):
        done = run("qccl-hidden", "--bytes", "64K", "--bucket", "64K", "--pairs", "1", *arguments)
        assert done.returncode in (1, 2) and word in done.stderr, done.shown


# ---------------------------------------------------------------- examples
def test_every_example_on_threads_runs():
    for name, word in (("threads_allreduce", "relative error"), ("duo_momentum", ""), ("bucketed_gradients", "")):
        done = run(os.path.join("examples", name))
        assert done.returncode == 0 and done.stderr == "" and word in done.stdout, done.shown
    one_by_one, in_buckets = done.stdout.splitlines()
    assert "144 tensors in 144 calls" in one_by_one and "144 tensors in 5 calls" in in_buckets, done.shown


# ---------------------------------------------------------------- scripts
def test_gradient_noise_is_the_distance_of_a_rank_from_the_average():
    script = os.path.join(ROOT, "bench", "gradient_noise.py")
    with Folder() as folder:
        for r, values in enumerate(([3.0, 0.0, 4.0], [1.0, 2.0, 0.0])):  # average 2 1 2, both sqrt(6) away, of 3
            folder.write(f"grad.rank{r}.f32", pack(values))
        done = subprocess.run([sys.executable, script, folder.path], capture_output=True, text=True)
        assert done.stdout == f"{folder.path}\t{math.sqrt(6) / 3:.3f}\n", done
        folder.write("grad.rank2.f32", pack([1.0]))
        done = subprocess.run([sys.executable, script, folder.path], capture_output=True, text=True)
        assert done.returncode == 1 and "of one size" in done.stderr, done


# ---------------------------------------------------------------- harness
def main(names=None):
    """Runs the tests of a module's names, this one's by default."""
    tests = [(n[5:].replace("_", " "), f) for n, f in (names or globals()).items() if n.startswith("test_")]
    print(f"1..{len(tests)}")
    failed = 0
    for number, (name, test) in enumerate(tests, 1):
        try:
            test()
            print(f"ok {number} - {name}", flush=True)
        except Skip as reason:
            print(f"ok {number} - {name} # SKIP {reason}", flush=True)
        except Exception as error:  # a crash of a test is a failure like any other
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            print("\n".join("# " + line for line in f"{type(error).__name__}: {error}".splitlines()), flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
