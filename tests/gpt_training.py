"""Tests qccl-gpt, most of all its sharded training: runs repeat, and neither streams nor validations change them.

    gpt_training.py FOLDER

FOLDER holds the programs.  Every run is of a tiny model on a text made here.  Prints TAP.
"""
import json
import os
import random
import subprocess
import sys

import bench_tools as tools

SDP4BIT = "reducescatter: int4:hadamard=32 intra=int8; delta: int4:group=2048; min=0"
NODES = {"QCCL_NODES": "0,0,1,1"}
STEPS = 8
TINY = ("--ranks", 4, "--layers", 1, "--width", 32, "--context", 16, "--batch", 2, "--windows", 8, "--warmup", 2,
        "--steps", STEPS)


def write_text(folder):
    """Words from a small vocabulary: something that can be learnt."""
    source = random.Random(tools.SEED)
    words = ["".join(source.choices("abcdefgh", k=source.randint(2, 6))) for _ in range(50)]
    return folder.write("text", " ".join(source.choices(words, k=20000)).encode())


def train(folder, *arguments, environment=None):
    """The summary of a run."""
    text = os.path.join(folder.path, "text")
    if not os.path.exists(text):
        write_text(folder)
    several = ("--bucket", 32) if {"--sharded", "--duo"} & set(arguments) else ()  # buckets
    (run,) = tools.rows("qccl-gpt", *TINY, *several, "--text", text, *arguments, environment=environment)
    return run


def outcome(run):
    """What a run has learnt, to the bit, and what it has sent."""
    return {key: run[key] for key in ("params_hash", "train_loss", "val_loss", "wire_bytes", "slow_bytes")}


def of(run, *keys):
    return [run[key] for key in keys]


# ---------------------------------------------------------------- trajectories
def test_a_sharded_run_repeats_bit_for_bit_from_its_seed_and_another_seed_is_another_run():
    with tools.Folder() as folder:
        one, two, other = (outcome(train(folder, "--sharded", "--policy", SDP4BIT, "--seed", seed, environment=NODES))
                           for seed in (3, 3, 4))
        assert one == two, (one, two)
        assert one["params_hash"] != other["params_hash"], other


RUNS = (("--sharded", "--policy", SDP4BIT), ("--policy", "int4; min=0"),
        ("--duo", "4", "--slow", "residual int8", "--policy", "delta: int4; min=0"))


def test_pipelined_training_equals_serial_training():
    with tools.Folder() as folder:
        for flags in RUNS:
            serial, pipelined = (outcome(train(folder, *flags, environment={**NODES, "QCCL_EXECUTOR": way}))
                                 for way in ("serial", "pipelined"))
            assert serial == pipelined, (flags, serial, pipelined)


def test_overlap_does_not_change_a_run():
    with tools.Folder() as folder:
        for flags in (RUNS[0], RUNS[2]):
            on, off = (train(folder, *flags, "--overlap", way, environment=NODES) for way in ("on", "off"))
            assert outcome(on) == outcome(off), (flags, on, off)
            assert on["overlap"] == "on" and off["overlap"] == "off", (on, off)


def test_buckets_of_an_all_reduce_start_within_the_backward_pass():
    with tools.Folder() as folder:
        exact = [outcome(train(folder, "--policy", "none", "--overlap", way)) for way in ("off", "on")]
        assert exact[0] == exact[1], exact
        flags = ("--policy", "int4:feedback=on; min=0", "--overlap", "on", "--bucket", "16")
        first, again, whole = (train(folder, *more) for more in (flags, flags, flags[:4]))
        assert outcome(first) == outcome(again) != outcome(whole), (first, again, whole)
        assert first["overlap"] == "on" and first["ratio"] > 4, first


def test_training_does_not_depend_on_how_often_it_is_validated():
    with tools.Folder() as folder:
        for flags in RUNS:
            seldom, often = (train(folder, *flags, "--eval", steps, environment=NODES) for steps in (STEPS, 1))
            same = ("params_hash", "val_loss", "wire_bytes", "slow_bytes")
            assert of(seldom, *same) == of(often, *same), (flags, seldom, often)


def test_sharded_training_in_fp32_is_data_parallel_training_but_for_rounding():
    """The two differ in the order of fp32 operations, whose step is 2^16 times finer than that of 8 bits."""
    with tools.Folder() as folder:
        plain, sharded, coarse = (train(folder, *flags)["val_loss"] for flags in (
            ("--policy", "none"), ("--sharded", "--policy", "none"), ("--policy", "int8; min=0")))
        assert abs(sharded - plain) < abs(coarse - plain), (plain, sharded, coarse)


# ---------------------------------------------------------------- DUO and bytes
def test_duo_runs_at_every_width_and_tells_its_slow_reductions():
    with tools.Folder() as folder:
        fast = []
        for duo in ("4", "1", "0", "int4:hadamard=32"):
            run = train(folder, "--duo", duo, "--policy", "none")
            assert of(run, "sharded", "duo", "slow", "optimizer") == [1, duo, "fp32", "adamw"], run
            assert run["slow_bytes"] >= run["weight_bytes"] > 0, run  # whole buckets, to the last
            assert 0 <= run["exposed_share"] < 1, run
            fast.append(run["gradient_bytes"])
        assert fast[0] > fast[1] > fast[2] == 0, fast


def test_slow_reductions_as_residuals_and_in_bf16_send_less():
    with tools.Folder() as folder:
        sent = [train(folder, "--duo", "4", "--slow", slow)["slow_bytes"]
                for slow in ("fp32", "bf16", "residual int8", "residual int4")]
        assert sent == sorted(sent, reverse=True) and len(set(sent)) == 4, sent


def test_gradient_and_weight_bytes_are_told_apart():
    with tools.Folder() as folder:
        exact = train(folder, "--sharded", "--policy", "none")
        assert exact["gradient_bytes"] == exact["weight_bytes"] == exact["raw_bytes"] / 2, exact
        whole = train(folder, "--sharded", "--weights", "fp32", "--policy", "int4; allgather: int4; min=0")
        plain = train(folder, "--sharded", "--weights", "plain", "--policy", "allgather: int4; min=0")
        delta = train(folder, "--sharded", "--policy", "delta: int4; min=0")
        assert whole["weight_bytes"] == exact["weight_bytes"] and "allgather: none" in whole["policy"], whole
        for run in (plain, delta):
            assert run["gradient_bytes"] == exact["gradient_bytes"], run
            assert run["weight_bytes"] < exact["weight_bytes"] / 2, run
        assert plain["val_loss"] != delta["val_loss"], (plain, delta)
        for run in (exact, whole, plain, delta):
            assert run["gradient_bytes"] + run["weight_bytes"] == run["wire_bytes"], run


def test_sgd_is_another_optimizer():
    with tools.Folder() as folder:
        adamw, sgd = (train(folder, "--sharded", "--optimizer", kind) for kind in ("adamw", "sgd"))
        assert sgd["optimizer"] == "sgd" and sgd["params_hash"] != adamw["params_hash"], sgd


# ---------------------------------------------------------------- command lines
def test_help_and_version_suffice():
    done = tools.run("qccl-gpt", "--help")
    assert done.returncode == 0 and done.stderr == "", done.shown
    for flag in ("policy", "sharded", "weights", "duo", "slow", "optimizer", "overlap", "bucket", "eval", "json"):
        assert f"--{flag} " in done.stdout, f"--help does not speak of --{flag}"
    done = tools.run("qccl-gpt", "--version")
    assert done.returncode == 0 and done.stdout.startswith("qccl-gpt "), done.shown


def test_flags_that_would_do_nothing_or_make_no_sense_are_refused():
    for flags, word in ((("--weights", "plain"), "--sharded"), (("--overlap", "later"), "later"),
                        (("--bucket", "64"), "--overlap on"),
                        (("--overlap", "on", "--dump-grads", "x"), "--dump-grads"),
                        (("--optimizer", "sgd"), "--sharded"),
                        (("--sharded", "--slow", "bf16"), "--duo"), (("--sharded", "--weights", "5"), "5"),
                        (("--duo", "4", "--slow", "fp8"), "fp8"), (("--sharded", "--overlap", "maybe"), "maybe"),
                        (("--sharded=1",), "no value"), (("--sharded", "--optimizer", "lion"), "lion")):
        done = tools.run("qccl-gpt", *flags)
        assert done.returncode == 2 and done.stdout == "", done.shown
        assert done.stderr.startswith("qccl-gpt: ") and word in done.stderr, done.shown
    with tools.Folder() as folder:
        done = tools.run("qccl-gpt", *TINY, "--text", write_text(folder), "--duo", "int5")
        assert done.returncode == 1 and "int5" in done.stderr, done.shown


# ---------------------------------------------------------------- convergence.sh
def converge(folder, *arguments):
    script = os.path.join(tools.ROOT, "bench", "convergence.sh")
    return subprocess.run(["sh", script, "--gpt", os.path.abspath(os.path.join(tools.PROGRAMS, "qccl-gpt")), "--text",
                           write_text(folder), "--runs", os.path.join(folder.path, "runs"), "--out", folder.out,
                           "--steps", "2", "--layers", "1", "--width", "16", *arguments],
                          capture_output=True, text=True, timeout=240, env=tools.CLEAN, check=False)


def read_csv(folder):
    with open(os.path.join(folder.out, "convergence.csv"), encoding="utf-8") as file:
        return [line.split(",") for line in file.read().splitlines()]


def test_convergence_runs_every_scheme_and_goes_on_where_it_was_stopped():
    with tools.Folder() as folder:
        done = converge(folder, "--seeds", "1")
        assert done.returncode == 0, done.stdout + done.stderr
        head, *rows = read_csv(folder)
        assert head == ["scheme", "seed", "steps", "val_loss"], head
        assert [row[0] for row in rows] == "fp32 int4 w4plain sdp4bit sr1 sign1 sign1ef duo4 duo1 duo0".split(), rows
        runs = os.path.join(folder.path, "runs")
        os.remove(os.path.join(runs, "int4.1.json"))
        finished = os.stat(os.path.join(runs, "fp32.1.json")).st_mtime_ns
        done = converge(folder, "--seeds", "1")
        assert done.returncode == 0 and done.stdout.count("finished before") == 9, done.stdout + done.stderr
        assert os.stat(os.path.join(runs, "fp32.1.json")).st_mtime_ns == finished
        assert read_csv(folder)[1:] == rows, "int4 does not repeat"
        with open(os.path.join(folder.out, "convergence.md"), encoding="utf-8") as file:
            assert file.read().count("\n| duo0 | 1 |") == 1


def test_convergence_refuses_what_it_does_not_know():
    with tools.Folder() as folder:
        for arguments, word in ((("--schemes", "fp32 int3"), "int3"), (("--seeds", "one"), "one"),
                                (("--stray",), "--stray"), (("--setting", "tiny"), "tiny")):
            done = converge(folder, *arguments)
            assert done.returncode == 2 and word in done.stderr, done.stdout + done.stderr
        # A run of another length is not taken for a finished one.
        assert converge(folder, "--schemes", "fp32", "--seeds", "1").returncode == 0
        path = os.path.join(folder.path, "runs", "fp32.1.json")
        with open(path, encoding="utf-8") as file:
            (run,) = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            json.dump([{**run, "steps": 3}], file)
        done = converge(folder, "--schemes", "fp32", "--seeds", "1")
        assert done.returncode != 0 and "3 steps" in done.stderr, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(tools.main(globals()))
