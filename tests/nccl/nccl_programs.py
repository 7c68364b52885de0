#!/usr/bin/env python3
"""NCCL programs with the drop-in preloaded, and in NCCL's place: what a user sees.  Prints TAP.

    nccl_programs.py DROPIN TESTS       the build folders of the drop-in and of its tests

The NCCL of tests/nccl/standin.h is behind them, so no GPU is needed; where the real one is installed, what can be asked
of it without a GPU is asked through the drop-in as well.
"""
import collections
import os
import re
import subprocess
import sys
import tempfile

DROPIN, TESTS = sys.argv[1], sys.argv[2]
RUN, PRELOAD = os.path.join(DROPIN, "qccl-run"), os.path.join(DROPIN, "libqccl-nccl.so")
PLACE = os.path.join(DROPIN, "qccl-nccl")
STANDIN, OLD = os.path.join(TESTS, "standin"), os.path.join(TESTS, "old")
CLIENT, PLUGIN = os.path.join(TESTS, "nccl_client"), os.path.join(TESTS, "libnccl_plugin.so")
LOADER = os.path.join(TESTS, "nccl_loader")
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
    ours = ("QCCL_", "LD_", "STANDIN_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**clean, **env})


def real(folder=STANDIN):
    return os.path.join(folder, "libnccl.so.2")


def preloaded(*command, **env):
    return run(*command, **{"LD_PRELOAD": PRELOAD, "LD_LIBRARY_PATH": STANDIN, **env})


def placed(*command, **env):
    return run(*command, **{"LD_LIBRARY_PATH": PLACE, "QCCL_NCCL_LIBRARY": real(), **env})


WAYS = {"preloaded": preloaded, "in NCCL's place": placed,
        "both at once": lambda *command, **env: placed(*command, **{"LD_PRELOAD": PRELOAD, **env})}


def tables(seen):
    """{communicator's name: [(call, type, op, calls, reason)]} of all tables."""
    found, name = collections.defaultdict(list), None
    for line in seen.stderr.split("\n"):
        head = re.match(r"qccl: communicator \d+ ?(\w*) of (\d+) ranks, rank \d+$", line)
        row = re.match(r"  (nccl\w+) +(\w+) +(?:([a-z]+) +)?(\d+) +(\d+) +(\d+) +(\d+)  passed: (.*)$", line)
        if head:
            name = f"{head.group(1)}/{head.group(2)}"
        elif row:
            found[name].append((row.group(1), row.group(2), row.group(3), int(row.group(4)), row.group(8)))
    return found


# ---------------------------------------------------------------- the same results
def results_are_the_same():
    plain = run(CLIENT, "all", LD_LIBRARY_PATH=STANDIN)
    values = re.findall(r"^sum: (\S+)", plain.stdout, re.M)
    check(plain.returncode == 0 and values == [f"{33 / 1001:.6g}"] * 3 and plain.stdout.count("polled") == 3,
          "the client alone gets right sums from the NCCL for tests, and polls what does not block", plain)
    for way, start in WAYS.items():
        for settings in ({}, {"QCCL_POLICY": POLICY, "QCCL_EXPLAIN": "1"}):
            seen = start(CLIENT, "all", **settings)
            check((seen.returncode, seen.stdout) == (0, plain.stdout),
                  f"{way}: the same results{', counted' if settings else ''}", seen)
            check(bool(settings) or not seen.stderr, f"{way}: nothing is said that was not asked for", seen)
    for way, start in WAYS.items():
        seen = start(LOADER, PLUGIN, QCCL_POLICY=POLICY, QCCL_STATS="1")
        check(seen.stdout == plain.stdout and "communicator" in seen.stderr,
              f"{way}: a plugin that needs NCCL is reached too", seen)


def errors_are_the_same():
    plans = [{}, *({"STANDIN_FAIL": f} for f in ("ncclAllReduce=3", "ncclCommInitRankConfig=2", "ncclGroupEnd=5",
                                                "ncclGroupStart=1")), {"STANDIN_ASYNC": "6"}]
    for plan in plans:
        plain = run(CLIENT, "results", LD_LIBRARY_PATH=STANDIN, **plan)
        for way, start in WAYS.items():
            seen = start(CLIENT, "results", QCCL_POLICY=POLICY, QCCL_STATS="1", **plan)
            check((seen.returncode, seen.stdout) == (plain.returncode, plain.stdout),
                  f"{way}: results are NCCL's, with {plan or 'no'} planted error", seen)
    seen = preloaded(CLIENT, "results", QCCL_POLICY=POLICY, QCCL_STATS="1", STANDIN_ASYNC="6")
    check(("ncclReduceScatter", "ncclFloat32", "sum", 1, "the communicator has failed") in tables(seen)["/1"],
          "a communicator that NCCL reports as failed is left alone", seen)


# ---------------------------------------------------------------- what is counted
def calls_are_counted():
    no_gpu = "could be compressed, but this library does not run on GPUs"
    for way, start in WAYS.items():
        seen = start(CLIENT, "all", QCCL_POLICY=POLICY, QCCL_STATS="1")
        found = tables(seen)
        rows = {op: [r for r in found["world/3"] if r[0] == "ncclAllReduce" and r[2] == op] for op in ("avg", "made")}
        check(rows["avg"] == [("ncclAllReduce", "ncclFloat32", "avg", 1, no_gpu)] * 3 and
              rows["made"] == [("ncclAllReduce", "ncclFloat32", "made", 1, why)
                               for why in (no_gpu, "the operation is no sum")] * 3,
              f"{way}: averages and pre-multiplied sums are counted, once a rank, and sums that are gone too", seen)
        check(("ncclReduceScatter", "ncclFloat32", "sum", 1, no_gpu) in found["world/3"] and
              ("ncclAllGather", "ncclFloat32", None, 1, no_gpu) in found["world/3"],
              f"{way}: so are the other two collectives", seen)
        check(found["pair/2"] == [("ncclAllReduce", "ncclFloat32", "sum", 1, no_gpu),
                                  ("ncclAllReduce", "ncclFloat32", "max", 1, "the operation is no sum")] * 4,
              f"{way}: several communicators of one thread, made in one group, used in one group, are told apart",
              seen)
        check(("ncclAllGather", "ncclFloat32", None, 1, "there is one rank") in found["/1"] and
              [r[3] for r in found["/1"] if r[0] == "ncclAllReduce"] == [2, 1],
              f"{way}: what NCCL calls of itself is not counted, one that is gone not mistaken for another", seen)
        closing = "the communicator is finalized or revoked"
        check([r for r in found["world/2"] if r[4] == closing] ==
              [("ncclAllReduce", "ncclFloat32", "sum", 1, closing)] * 2 and
              found["slow/3"] == [("ncclAllReduce", "ncclFloat32", "sum", 1, why) for why in (no_gpu, closing)] * 3,
              f"{way}: families inherit the name, and end", seen)
    seen = preloaded(CLIENT, "all", QCCL_EXPLAIN="1")
    check(set(re.findall(r"rank \d+$", seen.stderr, re.M)) == {"rank 0"} and
          {r[4] for rows in tables(seen).values() for r in rows} == {"QCCL_POLICY is not set"},
          "--explain is about rank 0, and says that there is no policy", seen)
    seen = preloaded(CLIENT, "all", QCCL_POLICY=POLICY, QCCL_DEBUG="INFO")
    check(seen.stderr.count("on communicator 5: passed: there is one rank (said once)") == 2,
          "the log says each kind of call once", seen)


def rules_choose():
    for rules, name, reason in (("only=name=slow", "world/3", "no only= of QCCL_DROPIN matches"),
                                ("except=name=world count>=1K", "world/3", "an except= of QCCL_DROPIN matches"),
                                ("except=ranks>=3", "pair/2",
                                 "could be compressed, but this library does not run on GPUs"),
                                ("except=site=collectives", "slow/3", "could be compressed"),
                                ("only=site=nccl_client*", "slow/3", "could be compressed")):
        seen = preloaded(CLIENT, "all", QCCL_POLICY=POLICY, QCCL_DROPIN=rules, QCCL_STATS="1")
        check(any(r[4].startswith(reason) for r in tables(seen)[name]), f"with {rules}, {name}: {reason}", seen)
    for name, value, sentence in (("QCCL_POLICY", "int5", "position 1"),
                                  ("QCCL_DROPIN", "never=this", "only= or except="),
                                  ("QCCL_POLICY", "int4:feedback=on", "which tensor")):
        seen = preloaded(CLIENT, "all", **{name: value})
        check(seen.returncode == 1 and sentence in seen.stderr and "in group: 4" in seen.stdout,
              f"{name}={value} is refused when a communicator is made", seen)


# ---------------------------------------------------------------- in NCCL's place
PYTHON_CLIENT = """
import ctypes, sys
nccl = ctypes.CDLL("libnccl.so.2")
comms, one = (ctypes.c_void_p * 2)(), [(ctypes.c_float * 3)(*v) for v in ((1, 2, 3), (10, 20, 30))]
codes = [nccl.ncclCommInitAll(comms, 2, None), nccl.ncclGroupStart()]
for i in range(2):
    codes.append(nccl.ncclAllReduce(one[i], one[i], ctypes.c_size_t(3), 7, 0, ctypes.c_void_p(comms[i]), None))
codes += [nccl.ncclGroupEnd(), *(nccl.ncclCommDestroy(ctypes.c_void_p(c)) for c in comms)]
print(codes, list(one[0]), list(one[1]))
"""
PYTHON_VERSION = """
import ctypes, sys
nccl, version = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
nccl.ncclGetErrorString.restype = ctypes.c_char_p
print(nccl.ncclGetVersion(ctypes.byref(version)), version.value, nccl.pncclGetVersion(ctypes.byref(version)),
      nccl.ncclGetErrorString(4).decode())
"""
PYTHON_NEWER = """
import ctypes, sys
nccl = ctypes.CDLL("libnccl.so.2")
print(nccl.ncclCommRevoke(None, 0), nccl.ncclCommShrink(None, None, 0, None, None, 0), nccl.ncclAlltoAll(None))
"""


def programs_that_open_it():
    plain = run(sys.executable, "-c", PYTHON_CLIENT, LD_LIBRARY_PATH=STANDIN)
    check("[11.0, 22.0, 33.0] [11.0, 22.0, 33.0]" in plain.stdout, "a program that opens NCCL works alone", plain)
    seen = placed(sys.executable, "-c", PYTHON_CLIENT, QCCL_EXPLAIN="1")
    check(seen.stdout == plain.stdout and len(tables(seen)["/2"]) == 1, "it is reached in NCCL's place", seen)
    seen = preloaded(sys.executable, "-c", PYTHON_CLIENT, QCCL_EXPLAIN="1")
    check(seen.stdout == plain.stdout and not seen.stderr, "preloading does not reach it, and does no harm", seen)
    seen = run(sys.executable, "-c", PYTHON_CLIENT, LD_LIBRARY_PATH=f"{PLACE}:{STANDIN}", QCCL_EXPLAIN="1")
    check(seen.stdout == plain.stdout and len(tables(seen)["/2"]) == 1,
          "the real one is found behind it on the loader's way", seen)


def what_is_missing():
    for named, sentence in ((os.path.join(PLACE, "libnccl.so.2"), "is this library itself"),
                            ("/no/such/libnccl.so", "cannot open"), (PRELOAD, "is not NCCL")):
        seen = placed(sys.executable, "-c", PYTHON_CLIENT, QCCL_NCCL_LIBRARY=named)
        check(seen.returncode == 0 and seen.stdout.startswith("[2, 2, 2, 2, 2, 2, 2]") and sentence in seen.stderr and
              seen.stderr.count("ncclGroupStart") == 1, f"named {os.path.basename(named)}, it says: {sentence}", seen)
    seen = placed(sys.executable, "-c", PYTHON_NEWER, QCCL_NCCL_LIBRARY=real(OLD))
    check(seen.stdout == "5 5 5\n" and "no ncclCommRevoke" in seen.stderr and "no ncclCommShrink" in seen.stderr,
          "what an older NCCL lacks is said, and is ncclInvalidUsage", seen)
    seen = placed(CLIENT, "results", QCCL_NCCL_LIBRARY=real(OLD))
    check("ncclGetVersion 0 21803" in seen.stdout and "ncclAllReduce 0" in seen.stdout and
          "ncclCommRevoke 5" in seen.stdout, "a newer program runs on an older NCCL up to what that lacks", seen)
    seen = preloaded("ls", "/", QCCL_EXPLAIN="1", QCCL_POLICY=POLICY, LD_BIND_NOW="1")
    check((seen.stdout, seen.stderr) == (run("ls", "/").stdout, ""), "ls with the library preloaded is ls", seen)


def symbols(path):
    seen = run("nm", "-D", "--defined-only", path)
    return {line.split()[2].partition("@")[0] for line in seen.stdout.split("\n") if line}


def header_path():
    compiled = run("sh", "-c", 'echo "#include <nccl.h>" | cc -E -x c -isystem /usr/local/cuda/include -')
    return re.search(r'^# \d+ "([^"]*/nccl\.h)"', compiled.stdout, re.M).group(1)


def exports():
    with open(header_path(), encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
    declared = set(re.findall(r"^[^#\n]*?\b(p?nccl[A-Z]\w*)\s*\(", text, re.M))
    ours, preload = symbols(os.path.join(PLACE, "libnccl.so.2")), symbols(PRELOAD)
    missing = sorted(declared - ours)
    check(len(declared) > 60 and not missing, f"in NCCL's place it has every function of nccl.h {missing or ''}")
    beside = {n for n in ours if not re.match(r"p?nccl", n)}
    check(beside == {"qccl_nccl_forwards"}, f"and nothing else but its mark: {beside}")
    check(all(n.startswith("nccl") for n in preload) and {"ncclCommSplit", "ncclGroupSimulateEnd"} <= preload,
          f"the one to preload has some of NCCL's functions and nothing else: {sorted(preload)}")
    soname = run("readelf", "-d", os.path.join(PLACE, "libnccl.so.2"))
    check("soname: [libnccl.so.2]" in soname.stdout and "libcuda" not in soname.stdout,
          "it is libnccl.so.2 and needs nothing of CUDA", soname)


def real_one():
    found = run("sh", "-c", "ldconfig -p | sed -n 's/.*libnccl\\.so\\.2 .*=> //p' | head -n 1").stdout.strip()
    if not found:
        check(True, "the real NCCL # SKIP it is not installed")
        return
    internal = {"ncclResetDebugInitInternal"}
    lacks = {n for n in symbols(found) if re.match(r"p?nccl[A-Z]", n)} - symbols(real(PLACE)) - internal
    check(not lacks, f"in NCCL's place it has all that the installed NCCL has {sorted(lacks) or ''}")
    bare = run(sys.executable, "-c", PYTHON_VERSION, found)
    check(re.match(r"0 2\d{4} 0 .", bare.stdout), "the installed NCCL tells its version", bare)
    for way, seen in {"named": placed(sys.executable, "-c", PYTHON_VERSION, "libnccl.so.2", QCCL_NCCL_LIBRARY=found),
                      "found": run(sys.executable, "-c", PYTHON_VERSION, "libnccl.so.2", LD_LIBRARY_PATH=PLACE),
                      "preloaded": run(sys.executable, "-c", PYTHON_VERSION, found, LD_PRELOAD=PRELOAD)}.items():
        check((seen.stdout, seen.stderr) == (bare.stdout, ""), f"and so it does when {way}", seen)


# ---------------------------------------------------------------- qccl-run
def through_qccl_run():
    plain = run(CLIENT, "all", LD_LIBRARY_PATH=STANDIN)
    seen = run(RUN, "--explain", "--policy", POLICY, CLIENT, "all", LD_LIBRARY_PATH=STANDIN)
    check(seen.stdout == plain.stdout and f'policy "{POLICY}"' in seen.stderr and "world/3" in tables(seen),
          "qccl-run preloads the library for NCCL into a program that is linked with it", seen)
    seen = run(RUN, "--explain", sys.executable, "-c", PYTHON_CLIENT, LD_LIBRARY_PATH=STANDIN)
    check("[11.0, 22.0, 33.0]" in seen.stdout and "--nccl" in seen.stderr and not tables(seen),
          "a program that opens NCCL is run as it is, with a hint", seen)
    seen = run(RUN, "--explain", "--nccl", sys.executable, "-c", PYTHON_CLIENT, LD_LIBRARY_PATH=STANDIN)
    check("[11.0, 22.0, 33.0]" in seen.stdout and len(tables(seen)["/2"]) == 1, "--nccl reaches it", seen)
    with tempfile.TemporaryDirectory() as folder:
        source, built = os.path.join(folder, "p.c"), os.path.join(folder, "p")
        with open(source, "w", encoding="ascii") as f:
            f.write('#include <stdio.h>\nint main(void) { return puts("static") < 0; }\n')
        subprocess.run(["cc", "-static", source, "-o", built], check=True)
        seen = run(RUN, built)
        check(seen.stdout == "static\n" and "linked statically" in seen.stderr,
              "a static program is run as it is, and that is said", seen)


results_are_the_same()
errors_are_the_same()
calls_are_counted()
rules_choose()
programs_that_open_it()
what_is_missing()
exports()
real_one()
through_qccl_run()
print(f"1..{count}")
sys.exit(failed > 0)
