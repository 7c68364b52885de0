#!/usr/bin/env python3
"""Programs of Debian's that know nothing of the library, plain, with the drop-in and no policy, and with one.

    debian_programs.py FOLDER           the build folder of the drop-in

ScaLAPACK's own tests of single-precision solvers (scalapack-mpi-test), which reduce by Fortran and C and check their
residuals, and a program on mpi4py.  Without a policy their output is the same; with one they run to the end, what is
not compressed is exact, and what is has an error inside its bound.  Open MPI.  Prints TAP.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

DROPIN = sys.argv[1]
RUN = os.path.join(DROPIN, "qccl-run")
LAUNCH = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1",
          "--mca", "op", "^avx", "-n"]  # Open MPI 4.1's sums of unsigned bytes are wrong with AVX-512
SCALAPACK = "/usr/lib/x86_64-linux-gnu/scalapack/openmpi-tests"
PYTHON = "/usr/bin/python3"
SMALL = {"xslu": "LU.dat", "xsqr": "QR.dat", "xsbrd": "BRD.dat"}
count = failed = 0


def check(condition, sentence, seen=""):
    global count, failed
    count += 1
    failed += not condition
    print(f"{'ok' if condition else 'not ok'} {count} - {sentence}", flush=True)
    if not condition:
        print("\n".join("# " + line for line in str(seen).splitlines()[-30:]))


def skip(sentence):
    if os.environ.get("QCCL_TEST_REQUIRED") == "1":
        check(False, sentence)
        return
    global count
    count += 1
    print(f"ok {count} - {sentence} # SKIP", flush=True)


def run(folder, ranks, command):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("QCCL_") and k != "LD_PRELOAD"}
    return subprocess.run([*LAUNCH, str(ranks), *command], capture_output=True, text=True, timeout=240, cwd=folder,
                          env={**clean, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})


# ---------------------------------------------------------------- ScaLAPACK
def results(text):
    """The report without times and rates."""
    lines = [line for line in text.splitlines() if not re.search(r"\d\d:\d\d:\d\d|elapsed|seconds", line, re.I)]
    return [re.sub(r"\s\d+\.\d\d\s+(\d+\.\d\d\s+)*(?=PASSED|FAILED|BYPASS|$)", " ", line) for line in lines]


def scalapack(name):
    program = os.path.join(SCALAPACK, name)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(os.path.join(SCALAPACK, SMALL[name]), folder)
        reports = []
        for options in ([], [RUN], [RUN, "--explain", "--policy", "allreduce: int8; min=0"]):
            for old in [n for n in os.listdir(folder) if n.endswith(".out")]:
                os.remove(os.path.join(folder, old))
            seen = run(folder, 4, [*options, program])
            report = seen.stdout
            for out in [n for n in os.listdir(folder) if n.endswith(".out")]:
                with open(os.path.join(folder, out), encoding="ascii") as f:
                    report += f.read()
            reports.append((seen, report))
    (plain, bare), (_, off), (on, lossy) = reports
    check(plain.returncode == 0 and "END OF TESTS" in bare.upper(), f"{name} runs", plain.stdout + plain.stderr)
    check(results(off) == results(bare), f"{name} with the drop-in and no policy reports the same", off)
    check(on.returncode == 0 and "END OF TESTS" in lossy.upper(), f"{name} with everything at 8 bits runs to the end",
          on.stdout + on.stderr)
    check(re.search(r"MPI_FLOAT\s+sum .*compressed", on.stderr), f"{name}'s sums of floats were compressed", on.stderr)
    check(re.search(r"MPI_INTEGER\s+sum .*no floats", on.stderr), f"{name}'s sums of integers were not", on.stderr)


# ---------------------------------------------------------------- mpi4py
PROGRAM = """
import numpy
from mpi4py import MPI
world = MPI.COMM_WORLD
n = 50000
x = numpy.sin(numpy.arange(n, dtype="f") * (world.rank + 1))
total, ints, part = numpy.empty(n, "f"), numpy.empty(n, "i"), numpy.empty(n // world.size, "f")
world.Allreduce(x, total)
world.Allreduce((x * 1000).astype("i"), ints)
world.Reduce_scatter_block(x[:len(part) * world.size], part)
request, later = world.Iallreduce(x, y := numpy.empty(n, "f")), 0
request.Wait()
exact = sum(numpy.sin(numpy.arange(n, dtype="f") * (r + 1)) for r in range(world.size))
def off(got, want):
    return float(numpy.linalg.norm(got - want) / numpy.linalg.norm(want))
if world.rank == 0:
    whole = sum((numpy.sin(numpy.arange(n, dtype="f") * (r + 1)) * 1000).astype("i") for r in range(world.size))
    print("ERRORS", off(total, exact), off(part, exact[:len(part)]), off(y, exact), (ints == whole).all())
"""


def on_mpi4py():
    def errors(*options):
        seen = run("/", 2, [*options, PYTHON, "-c", PROGRAM])
        found = re.search(r"ERRORS (\S+) (\S+) (\S+) True", seen.stdout)
        return [float(word) for word in found.groups()] if found else seen.stdout + seen.stderr
    plain, off = errors(), errors(RUN, "--mpi", "openmpi")
    on = errors(RUN, "--mpi", "openmpi", "--policy", "int4")
    check(isinstance(plain, list) and max(plain) < 1e-6, "a program on mpi4py runs", plain)
    check(off == plain, "with the drop-in and no policy its results are the same", off)
    check(isinstance(on, list) and all(1e-3 < e < 0.3 for e in on),
          "with a policy its sums of floats, non-blocking too, are compressed, and integers exact", on)


def main():
    for name in SMALL:
        if os.path.exists(os.path.join(SCALAPACK, name)):
            scalapack(name)
        else:
            skip(f"{name}: scalapack-mpi-test is not installed")
    if subprocess.run([PYTHON, "-c", "import numpy, mpi4py"], capture_output=True, check=False).returncode == 0:
        on_mpi4py()
    else:
        skip("mpi4py or numpy is not installed")
    print(f"1..{count}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
