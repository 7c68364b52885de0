#!/usr/bin/env python3
"""qccl-run and the preloaded libraries from the outside: what a user sees.  Prints TAP.

    qccl_run.py FOLDER TESTS MPI...     the build folders of the drop-in and of its tests, and the MPIs there are

Programs without MPI are left alone, the wrong library says so, settings that are wrong or differ between ranks end the
job with a sentence, other tools stay in the chain, programs that open MPI themselves can be reached.
"""
import os
import shutil
import subprocess
import sys
import tempfile

DROPIN, TESTS, MPIS = sys.argv[1], sys.argv[2], sys.argv[3:]
RUN = os.path.join(DROPIN, "qccl-run")
LAUNCH = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"],
          "mpich": ["mpirun.mpich"]}
POLICY = "int4; min=1KiB"
count = failed = 0


def check(condition, sentence, seen=None):
    global count, failed
    count += 1
    failed += not condition
    print(f"{'ok' if condition else 'not ok'} {count} - {sentence}", flush=True)
    if not condition and seen is not None:
        for line in f"status {seen.returncode}\n{seen.stdout}\n{seen.stderr}".split("\n"):
            print("# " + line)


def run(*command, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("QCCL_") and k != "LD_PRELOAD"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**clean, **env})


def ranks(mpi, *command, n=2, **env):
    return run(*LAUNCH[mpi], "-n", str(n), *command, **env)


def library(mpi):
    return os.path.join(DROPIN, f"libqccl-mpi-{mpi}.so")


def program(name, mpi):
    return os.path.join(TESTS, f"{name}_{mpi}")


def without_mpi():
    bare = run("ls", "-l", TESTS)
    for mpi in MPIS:
        for bind in ("", "1"):
            seen = run("ls", "-l", TESTS, LD_PRELOAD=library(mpi), LD_BIND_NOW=bind, QCCL_POLICY="int4")
            check((seen.stdout, seen.stderr) == (bare.stdout, ""),
                  f"ls with the library for {mpi} prints what it prints{', bound at once' if bind else ''}", seen)
        seen = run("bash", "-c", "echo $((1 + 1))", LD_PRELOAD=library(mpi))
        check((seen.stdout, seen.stderr) == ("2\n", ""), f"bash with the library for {mpi} works", seen)
    seen = run(RUN, "ls", "/no/such/file")
    check(seen.returncode == run("ls", "/no/such/file").returncode and "not linked with an MPI" in seen.stderr,
          "qccl-run of a program without MPI says so and keeps its exit status", seen)
    with tempfile.TemporaryDirectory() as folder:
        source, built = os.path.join(folder, "p.c"), os.path.join(folder, "p")
        with open(source, "w", encoding="ascii") as f:
            f.write('#include <stdio.h>\nint main(void) { return puts("static") < 0; }\n')
        subprocess.run(["cc", "-static", source, "-o", built], check=True)
        seen = run(RUN, built)
        check(seen.stdout == "static\n" and "linked statically" in seen.stderr,
              "qccl-run of a static program says so and runs it", seen)


def without_the_library_for_nccl():
    """Names of libraries are what qccl-run looks at, so empty ones will do."""
    with tempfile.TemporaryDirectory() as folder:
        source, built = os.path.join(folder, "p.c"), os.path.join(folder, "p")
        with open(source, "w", encoding="ascii") as f:
            f.write('#include <stdio.h>\nint main(void) { return puts("both") < 0; }\n')
        empty = [os.path.join(folder, name) for name in ("libmpi.so.40", "libnccl.so.2")]
        for path in empty:
            subprocess.run(["cc", "-shared", "-x", "c", os.devnull, "-o", path,
                            "-Wl,-soname," + os.path.basename(path)], check=True)
        subprocess.run(["cc", source, "-o", built, "-Wl,--no-as-needed", *empty, "-Wl,-rpath," + folder], check=True)
        alone = shutil.copy(RUN, folder)
        shutil.copy(library("openmpi"), folder)
        seen = run(alone, "--policy", "int4", built)
        check(seen.stdout == "both\n" and "libqccl-nccl.so is not installed" in seen.stderr and
              seen.returncode == 0, "a program of MPI and NCCL runs where the library for NCCL was not built", seen)


def options():
    seen = run(RUN, "--help")
    check(seen.returncode == 0 and "--explain" in seen.stdout, "--help explains the options", seen)
    for wrong in (["--nonsense", "ls"], ["--policy"], [], ["--mpi", "lam", "ls"], ["no-such-program"]):
        seen = run(RUN, *wrong)
        check(seen.returncode == 2 and seen.stderr, f"qccl-run {' '.join(wrong)} is refused", seen)


def with_mpi(mpi):
    calls = program("dropin_calls", mpi)
    seen = ranks(mpi, RUN, "--explain", "--policy", POLICY, calls, "on")
    lines = seen.stderr.split("\n")
    rows = [line.split() for line in lines if line.startswith("  MPI_")]
    check(seen.stderr.count("the collectives of rank 0") == 1 and
          ["MPI_Allgatherv", "MPI_FLOAT", "3"] in [row[:3] for row in rows if row[-1] == "compressed"],
          f"{mpi}: --explain prints one table, which counts the calls", seen)
    check(any(row[:3] == ["MPI_Allreduce", "MPI_FLOAT", "max"] and "MPI_SUM" in row for row in rows),
          f"{mpi}: and says why a call was passed", seen)
    seen = ranks(mpi, RUN, "--explain", calls, "off")
    check("QCCL_POLICY is not set" in seen.stderr and "compressed" not in seen.stderr,
          f"{mpi}: without a policy nothing is compressed", seen)
    seen = ranks(mpi, RUN, "--stats", "--policy", POLICY, calls, "on")
    check(seen.stderr.count("compressed calls") == 2, f"{mpi}: --stats prints a table for each rank", seen)
    seen = ranks(mpi, RUN, "--policy", "int5", calls, "on")
    check(seen.returncode != 0 and "position 1" in seen.stderr, f"{mpi}: a policy that does not parse ends the job",
          seen)
    seen = ranks(mpi, RUN, "--policy", "int4", "--rules", "only=allreduce; never=this", calls, "on")
    check(seen.returncode != 0 and "only= or except=" in seen.stderr, f"{mpi}: and so do rules", seen)
    seen = ranks(mpi, RUN, "--policy", "int4:feedback=on", calls, "on")
    check(seen.returncode != 0 and "which tensor" in seen.stderr, f"{mpi}: error feedback is refused", seen)
    seen = run(*LAUNCH[mpi], "-n", "1", RUN, "--policy", "int4", calls, "on", ":", "-n", "1", RUN, calls, "on")
    check(seen.returncode != 0 and "differ between ranks" in seen.stderr,
          f"{mpi}: ranks with different settings are told so", seen)


def fortran(mpi):
    for interface in ("mpif_h", "use_mpi", "use_mpi_f08"):
        calls = program(f"dropin_fortran_{interface}", mpi)
        if not os.path.exists(calls):
            continue
        seen = ranks(mpi, RUN, "--explain", "--policy", POLICY, calls, "on")
        check(seen.returncode == 0 and seen.stderr.count("the collectives of rank 0") == 1,
              f"{mpi}: Fortran's end of {interface} prints one table", seen)
        seen = run(*LAUNCH[mpi], "-n", "1", RUN, "--policy", "int4", calls, "on", ":", "-n", "1", RUN, calls, "on")
        check(seen.returncode != 0 and "differ between ranks" in seen.stderr,
              f"{mpi}: and its beginning compares settings", seen)


def sites(mpi):
    calls = program("dropin_calls", mpi)
    for site, taken in ((os.path.basename(calls), True), ("no*where", False)):
        seen = ranks(mpi, RUN, "--explain", "--policy", POLICY, "--rules", "only=site=" + site, calls, "on")
        check((" compressed\n" in seen.stderr) == taken and ("no only= of QCCL_DROPIN matches" in seen.stderr) != taken,
              f"{mpi}: a rule {'takes' if taken else 'leaves'} calls by where they stand", seen)


def tools(mpi):
    tool = os.path.join(TESTS, f"libtool_{mpi}.so")
    bare = ranks(mpi, program("dropin_comms", mpi), "off", LD_PRELOAD=tool)
    alone = [line for line in bare.stderr.split("\n") if line.startswith("tool:")]
    seen = ranks(mpi, RUN, program("dropin_comms", mpi), "off", LD_PRELOAD=tool)
    check(alone and alone[0] in seen.stderr and alone[0] != "tool: 0 allreduces",
          f"{mpi}: a tool behind the library sees every call that is passed on", seen)


def opened_later(mpi):
    loader, plugin = os.path.join(TESTS, "loader"), os.path.join(TESTS, f"libplugin_{mpi}.so")
    seen = ranks(mpi, RUN, "--policy", POLICY, loader, plugin)
    check("bare" in seen.stdout and "--mpi openmpi" in seen.stderr,
          f"{mpi}: a program that opens MPI later is run as it is, with a hint", seen)
    seen = ranks(mpi, RUN, "--policy", POLICY, "--mpi", mpi, loader, plugin)
    check("compressed" in seen.stdout, f"{mpi}: --mpi reaches it", seen)
    seen = ranks(mpi, loader, plugin, LD_PRELOAD=library(mpi), QCCL_POLICY=POLICY)
    check("bare" in seen.stdout and ("dlopen" in seen.stderr or mpi == "mpich"),
          f"{mpi}: preloaded without MPI, the library passes its calls on", seen)


def wrong_library():
    for mpi, other in (("openmpi", "mpich"), ("mpich", "openmpi")):
        for name in ("dropin_calls", "dropin_fortran_mpif_h"):
            seen = ranks(mpi, program(name, mpi), "off", LD_PRELOAD=library(other), QCCL_POLICY=POLICY)
            check(seen.returncode == 0 and "not ok" not in seen.stdout and "has another MPI" in seen.stderr,
                  f"{mpi}: {name} with the library for {other} gets a sentence, and all that it had before", seen)


without_mpi()
options()
for each in MPIS:
    with_mpi(each)
    fortran(each)
    sites(each)
    tools(each)
    opened_later(each)
if "openmpi" in MPIS:
    without_the_library_for_nccl()
if len(MPIS) == 2:
    wrong_library()
print(f"1..{count}")
sys.exit(failed > 0)
