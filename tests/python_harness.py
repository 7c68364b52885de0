"""What the tests of the Python bindings share: ranks that are threads or processes, inputs, and TAP.

The program that imports it was called with the library's path first; `--rank NAME ...` after it makes it the rank
program rank_of_NAME instead.  Without numpy, torch, mpi4py or mpirun the tests that need them are skipped; with
QCCL_TEST_REQUIRED=1 they fail.
"""
import hashlib
import importlib.util
import os
import subprocess
import sys
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = sys.argv[1]
os.environ.update({"QCCL_LIBRARY": LIBRARY, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
for name in [n for n in os.environ if n.startswith("QCCL_") and n not in ("QCCL_LIBRARY", "QCCL_TEST_REQUIRED")]:
    del os.environ[name]
BINDINGS = os.path.join(ROOT, "bindings", "python")
sys.path[:0] = [BINDINGS, os.path.join(ROOT, "tests")]
import inputs  # noqa: E402
import qccl  # noqa: E402

numpy, torch, mpi4py = (importlib.import_module(name) if importlib.util.find_spec(name) else None
                        for name in ("numpy", "torch", "mpi4py"))
MPIRUN = sys.argv[2] if len(sys.argv) > 2 and sys.argv[2] != "--rank" else ""
INT4 = "allreduce: int4; reducescatter: int4; allgather: int8; delta: int4; min=0"
SECONDS = 60


# ---------------------------------------------------------------- ranks
def on_ranks(nranks, function, **config):
    """[function(communicator)] of ranks that are threads; the first error of any is raised."""
    results, errors = [None] * nranks, []

    def run(comm):
        try:
            results[comm.rank] = function(comm)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)
            comm.abort()
    comms = qccl.init_threads(nranks, timeout=SECONDS, **config)
    threads = [threading.Thread(target=run, args=(comm,)) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for comm in comms:
        comm.close()
    if errors:
        raise errors[0]
    return results


def raised(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except Exception as error:  # pylint: disable=broad-except
        return error
    return None


def started(command, ranks=1, environment=None):
    """Runs a command as so many processes, each with its RANK, and returns what each printed."""
    found = [subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "RANK": str(rank), **(environment or {})}) for rank in range(ranks)]
    try:
        texts = [process.communicate(timeout=3 * SECONDS)[0] for process in found]
    finally:
        for process in found:
            process.kill()
    assert not any(process.returncode for process in found), "\n".join(texts)
    return texts


def same_program(*words):
    return [sys.executable, os.path.abspath(sys.argv[0]), LIBRARY, "--rank", *words]


def some(rank, count=5000):
    return numpy.array(inputs.values("normal", 7, rank, count, "fp32"), "float32")


def exercise(comm):
    """Every collective once, with what this rank has; digests of the results."""
    n, x = comm.nranks, some(comm.rank)
    replica = numpy.zeros(n * 1000, "float32")
    got = [comm.all_reduce(x, numpy.empty_like(x), op="avg"),
           comm.reduce_scatter(x[:n * 1001], numpy.empty(1001, "float32")),
           comm.all_gather(x[:777], numpy.empty(n * 777, "float32")), comm.all_gather_delta(x[:1000], replica)]
    return " ".join(map(digest, got))


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


def run(tests):
    failed = 0
    print(f"1..{len(tests)}")
    for number, (test, needed) in enumerate(tests, 1):
        name, missing = test.__name__.replace("_", " "), [what for what, found in needed.items() if not found]
        required = os.environ.get("QCCL_TEST_REQUIRED") == "1"
        try:
            assert not (missing and required), f"without {', '.join(missing)}"
            if not missing:
                test()
            print(f"ok {number} - {name}" + (f" # SKIP without {', '.join(missing)}" if missing else ""), flush=True)
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            why = f"{type(error).__name__}: {error}".replace("\n", "\n# ")
            print(f"not ok {number} - {name}\n# {why}", flush=True)
    return 1 if failed else 0
