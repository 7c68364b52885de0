#!/usr/bin/env python3
"""Tests bindings/python/qccl.py: results to the bit, what is refused, what is kept alive, MPI, torch, DDP, FSDP2.

    python_bindings.py QCCL-LIBRARY [MPIRUN]
    python_bindings.py QCCL-LIBRARY --rank NAME ...      what the tests start as ranks of their own

Expected results are those of tests/golden, which an independent oracle computed, or of ranks that are threads, which
these tests compare with them.  Without numpy, torch, mpi4py or the data set the tests that need them are skipped, with
QCCL_TEST_REQUIRED=1 they fail.  Prints TAP.
"""
import gc
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import types
import weakref
from unittest import mock

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
    return [sys.executable, os.path.abspath(__file__), LIBRARY, "--rank", *words]


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


# ---------------------------------------------------------------- results
FROM_TEXT = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def array_of(values, kind, library):
    raw = bytearray(inputs.packed(values, kind)) or bytearray(4)
    made = numpy.frombuffer(raw, "uint16" if kind != "fp32" else "float32")[:len(values)]
    if library is numpy:
        return made if kind == "fp32" else made.view("float16")
    if kind == "fp32":
        return torch.from_numpy(made)
    return torch.from_numpy(made.view("int16")).view(getattr(torch, FROM_TEXT[kind]))


def bytes_of(array):
    if numpy and isinstance(array, numpy.ndarray):
        return array.tobytes()
    return array.view(torch.uint8).numpy().tobytes() if array.numel() else b""


def blank(like, count):
    return numpy.zeros(count, like.dtype) if isinstance(like, numpy.ndarray) else torch.zeros(count, dtype=like.dtype)


def golden_case(line, library):
    collective, ranks, nodes, op, kind, count, seed, sequence, pattern, given, codecs, expected = line.split("|")
    ranks, count, given = int(ranks), int(count), int(given)
    made = count * ranks if collective == "reducescatter" else count

    def run(comm):
        comm.sequence = int(sequence)
        if collective == "delta":
            replica = array_of(inputs.values(pattern, given, 0, count * ranks, kind), kind, library)
            master = array_of(inputs.values(pattern, given, comm.rank + 1, count, "fp32"), "fp32", library)
            return comm.all_gather_delta(master, replica)
        mine = array_of(inputs.values(pattern, given, comm.rank, made, kind), kind, library)
        if collective == "allreduce":
            return comm.all_reduce(mine, op=op)
        if collective == "reducescatter":
            return comm.reduce_scatter(mine, blank(mine, count), op=op)
        return comm.all_gather(mine, blank(mine, count * ranks))
    got = on_ranks(ranks, run, policy=f"{collective}: {codecs}; min=0", seed=int(seed),
                   nodes=None if nodes == "-" else [int(v) for v in nodes.split(",")])
    data = [bytes_of(a) for a in got]
    if collective == "reducescatter":
        data = [b"".join(data)]
    for each in data:
        text = "hex:" + each.hex() if len(each) <= 32 else f"fnv:{inputs.fnv(each):016x}"
        assert text == expected, f"{line}: {text} with {library.__name__}"


def golden_lines(name):
    with open(os.path.join(ROOT, "tests", "golden", name), encoding="ascii") as f:
        return [line.rstrip("\n") for line in f if not line.startswith("#")]


def golden_collectives(library, kinds):
    lines = [line for line in golden_lines("collectives.txt") if line.split("|")[4] in kinds and "|1|-|" not in line]
    assert {line.split("|")[0] for line in lines[::9]} == {"allreduce", "reducescatter", "allgather", "delta"}
    for line in lines[::9]:
        golden_case(line, library)


def collectives_on_numpy_arrays_give_the_golden_values():
    golden_collectives(numpy, ("fp32", "fp16"))


def collectives_on_torch_tensors_give_the_golden_values():
    golden_collectives(torch, ("fp32", "fp16", "bf16"))


def encoding_gives_the_golden_messages_and_decoding_the_golden_values():
    lines = [line.split("|") for line in golden_lines("messages.txt")]
    lines = [line for line in lines if line[8] == "0"]
    assert len(lines) > 15
    for codec, count, seed, segment, sequence, rank, stage, first, _, pattern, given, decoded, message in lines:
        codec, count = qccl.Codec(codec), int(count)
        values = array_of(inputs.values(pattern, int(given), 0, count, "fp32"), "fp32", numpy)
        made = codec.encode(values, numpy.zeros(codec.encoded_bytes(count), "uint8"), seed=int(seed),
                            segment=int(segment), sequence=int(sequence), rank=int(rank), stage=int(stage),
                            first=int(first))
        assert made.tobytes().hex() == message, str(codec)
        back = qccl.decode(made, numpy.zeros(count, "float32"))
        twice = qccl.decode(made, back.copy(), add=True)
        data = back.tobytes()
        text = "hex:" + data.hex() if len(data) <= 32 else f"fnv:{inputs.fnv(data):016x}"
        assert text == decoded, str(codec)
        assert numpy.array_equal(twice, back + back, equal_nan=True), str(codec)


def residuals_hold_what_encoding_lost():
    codec, values, lost = qccl.Codec("int4"), some(0, 300), numpy.zeros(300, "float32")
    message = codec.encode(values, numpy.zeros(1000, "uint8"), residual=lost)
    assert message.size == codec.encoded_bytes(300) < 1000
    decoded = qccl.decode(message, numpy.empty(300, "float32"))
    assert lost.any() and numpy.array_equal(lost, values - decoded)
    assert str(codec) == "int4:group=128"


def exact_sums_of_every_type_and_operation_are_exact():
    counted = {"sum": 3, "prod": 2, "max": 2, "min": 1}
    for kind in [k for k in qccl.TYPES if k != "bfloat16"]:
        for op, want in counted.items():
            got = on_ranks(2, lambda comm: comm.all_reduce(numpy.full(9, comm.rank + 1, kind), op=op), policy="min=1GiB")
            assert all(a.dtype.name == kind and (a == want).all() for a in got), f"{kind} {op}: {got}"


def arrays_are_used_where_they_are():
    whole = [numpy.full((4, 50), float(r + 1), "float32") for r in range(2)]
    got = on_ranks(2, lambda comm: comm.all_reduce(whole[comm.rank][1:3]), policy="min=1GiB")
    for mine, result in zip(whole, got):
        assert result.base is mine and (mine[1:3] == 3).all()
        assert (mine[[0, 3]] == mine[0, 0]).all() and mine[0, 0] != 3

    def in_place(comm):
        everything = numpy.zeros(20, "float32")
        part = everything[10 * comm.rank:10 * comm.rank + 10]
        part[:] = comm.rank + 1
        comm.all_gather(part, everything)
        return everything.tolist() + comm.reduce_scatter(everything, part).tolist()
    gathered = [1.0] * 10 + [2.0] * 10
    assert on_ranks(2, in_place, policy="min=1GiB") == [gathered + [2.0] * 10, gathered + [4.0] * 10]


def numpy_and_torch_get_the_same_bits():
    a = on_ranks(3, exercise, policy=INT4, seed=3)
    b = on_ranks(3, lambda comm: digest(comm.all_reduce(torch.from_numpy(some(comm.rank)), op="avg").numpy()),
                 policy=INT4, seed=3)
    assert all(mine.startswith(theirs) for mine, theirs in zip(a, b)) and len(set(b)) == 1


# ---------------------------------------------------------------- what is refused
def wrong_arrays():
    f = numpy.zeros(8, "float32")
    read_only = f.copy()
    read_only.flags.writeable = False
    yield TypeError, "neither a numpy array nor", lambda c: c.all_reduce([1.0, 2.0])
    yield ValueError, "not contiguous", lambda c: c.all_reduce(numpy.zeros(8, "float32")[::2])
    yield TypeError, "elements are complex64", lambda c: c.all_reduce(numpy.zeros(8, "complex64"))
    yield TypeError, "byte order", lambda c: c.all_reduce(numpy.zeros(8, ">f4"))
    yield ValueError, "read-only", lambda c: c.all_reduce(read_only)
    yield ValueError, "recv has 7 elements; 8 are needed", lambda c: c.all_reduce(f, numpy.zeros(7, "float32"))
    yield TypeError, "recv has float64, send float32", lambda c: c.all_reduce(f, numpy.zeros(8, "float64"))
    yield ValueError, "op 'mean' is none of sum, prod", lambda c: c.all_reduce(f, op="mean")
    yield ValueError, "send has 8 elements; 6 are", lambda c: c.reduce_scatter(f, numpy.zeros(3, "float32"))
    yield ValueError, "recv has 8 elements; 16 are", lambda c: c.all_gather(f, numpy.zeros(8, "float32"))
    yield TypeError, "allowed are float32", lambda c: c.all_gather_delta(numpy.zeros(4, "float16"), f)
    yield ValueError, "replica has 8 elements; 6 are", lambda c: c.all_gather_delta(f[:3], numpy.zeros(8, "float32"))
    yield qccl.QcclError, "overlap", lambda c: c.all_reduce(f[:6], f[2:])
    yield ValueError, "nodes has 3 numbers for 2", lambda c: qccl.init_threads(2, nodes=[0, 0, 1])


def wrong_tensors():
    yield ValueError, "not contiguous", lambda c: c.all_reduce(torch.zeros(4, 4).t())
    yield TypeError, "elements are bool", lambda c: c.all_reduce(torch.zeros(4, dtype=torch.bool))
    yield TypeError, "tensor on meta", lambda c: c.all_reduce(torch.zeros(4, device="meta"))
    yield TypeError, "torch.sparse_coo", lambda c: c.all_reduce(torch.zeros(4).to_sparse())


def refuses_each(cases):
    with qccl.init_threads(2)[0] as comm:
        for kind, words, function in cases:
            error = raised(function, comm)
            assert type(error) is kind and words in str(error), f"{words}: {error!r}"
        assert comm.async_error() is None and comm.stats()["calls"] + comm.stats()["passed"] == 0


def arrays_that_do_not_fit_are_refused_before_anything_is_sent():
    refuses_each(wrong_arrays())


def tensors_that_do_not_fit_are_refused_before_anything_is_sent():
    refuses_each(wrong_tensors())


def errors_carry_the_code_and_the_sentence():
    error = raised(qccl.init_threads, 2, policy="allreduce: int5")
    assert (error.code, error.name) == (4, "qcclInvalidArgument") and "int5" in error.sentence, error
    assert str(error) == f"{error.name}: {error.sentence}"

    def disagree(comm):
        return raised(setattr, comm, "policy", f"min={comm.rank + 1}KiB")
    for error in on_ranks(2, disagree):
        assert error.name == "qcclMismatch" and "KiB" in error.sentence or "1024" in error.sentence, error
    damaged = qccl.Codec("int4").encode(some(0, 64), numpy.zeros(200, "uint8"))
    damaged[0] ^= 1
    assert raised(qccl.decode, damaged, numpy.zeros(64, "float32")).name == "qcclCorruptMessage"


def an_abort_ends_the_others_and_stays():
    def abort(comm):
        if comm.rank == 0:
            comm.abort()
        error = raised(comm.all_reduce, numpy.zeros(1000, "float32"))
        return error.name, comm.async_error()
    for names in on_ranks(2, abort):
        assert set(names) <= {"qcclAborted", "qcclRemoteError"}, names


# ---------------------------------------------------------------- state
def policy_seed_sequence_and_statistics_are_what_was_done():
    def run(comm):
        comm.policy, comm.seed, comm.sequence = "allreduce: int8; min=0", 2 ** 63, 2 ** 32 - 1
        comm.all_reduce(some(comm.rank))
        comm.all_gather(some(comm.rank), numpy.zeros(10000, "float32"))
        return comm.policy, comm.seed, comm.sequence, comm.stats(), (comm.rank, comm.nranks)
    for rank, (policy, seed, sequence, stats, place) in enumerate(on_ranks(2, run)):
        assert policy.startswith("allreduce: int8:group=128; ") and (seed, sequence) == (2 ** 63, 0), (policy, sequence)
        assert (stats["calls"], stats["passed"], stats["passed_policy"]) == (1, 1, 1) and place == (rank, 2), stats
        assert 0 < stats["wire_bytes"] * 3 < stats["raw_bytes"] and 0 < stats["sampled_error"] < stats["sampled_energy"]


def residuals_of_tensors_are_saved_and_restored():
    def run(comm):
        states = [comm.feedback_save()]
        for tensor in (0, 1, 0):
            comm.set_tensor(tensor)
            comm.all_reduce(some(comm.rank))
            states.append(comm.feedback_save())
        sequence = comm.sequence
        first = comm.all_reduce(some(comm.rank)).tobytes()
        comm.feedback_reset()
        comm.sequence = sequence
        other = comm.all_reduce(some(comm.rank)).tobytes()
        comm.feedback_restore(states[-1])
        comm.sequence = sequence
        again = comm.all_reduce(some(comm.rank)).tobytes()
        return [len(s) for s in states], first == again, first == other
    for sizes, repeats, forgets in on_ranks(2, run, policy="allreduce: int4:feedback=on; min=0"):
        assert sizes[0] < sizes[1] < sizes[2] == sizes[3] and repeats and not forgets, (sizes, repeats, forgets)


# ---------------------------------------------------------------- streams, life and death
def streams_and_events_order_calls():
    def run(comm):
        with qccl.Stream() as stream, qccl.Stream(7) as other, qccl.Event() as event:
            seen = []
            x = numpy.ones(1000, "float32")
            for _ in range(5):
                comm.all_reduce(x, stream=stream)
            event.record(stream)
            other.wait_event(event)
            other.launch(lambda: seen.append(x[0]))
            other.synchronize()
            event.synchronize()
            return seen, event.query(), stream.query(), other.query()
    assert on_ranks(2, run, policy="min=1GiB") == [([32.0], True, True, True)] * 2
    assert raised(qccl.Stream, 8).name == "qcclInvalidArgument"


def arrays_live_until_the_stream_is_done_with_them_and_no_longer():
    def run(comm):
        gate = threading.Event()
        with qccl.Stream() as stream:
            stream.launch(gate.wait)
            x = numpy.ones(1000, "float32")
            watched = weakref.ref(x)
            comm.all_reduce(x, stream=stream)
            del x
            gc.collect()
            before = watched() is not None and not stream.query()
            gate.set()
            stream.synchronize()
            gc.collect()
            return before, watched() is None
    assert on_ranks(2, run) == [(True, True)] * 2


def what_a_launched_function_raises_is_the_cause_of_the_streams_error():
    stream = qccl.Stream()
    stream.launch(lambda: 1 // 0)
    for function in (stream.synchronize, stream.query):
        error = raised(function)
        assert error.name == "qcclSystemError" and isinstance(error.__cause__, ZeroDivisionError), error
    assert raised(stream.close).name == "qcclSystemError" and stream.close() is None
    assert "Stream is closed" in str(raised(stream.synchronize))


def resident():
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def making_and_dropping_a_thousand_of_everything_takes_no_memory():
    def once():
        def run(comm):
            stream, event = qccl.Stream(), qccl.Event()
            comm.all_reduce(numpy.ones(50000, "float32"), stream=stream)
            event.record(stream)
        comms = qccl.init_threads(2, policy=INT4)
        threads = [threading.Thread(target=run, args=(comm,)) for comm in comms]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for _ in range(100):
        once()
    before, threads = resident(), threading.active_count()
    for _ in range(400):
        once()
    grown = resident() - before
    # 400 communicators' workspaces, or arrays of 200 kB, would be over 100 MB.
    assert grown < 20 << 20 and threading.active_count() == threads, f"{grown} bytes"


def a_communicator_that_is_dropped_has_left():
    mine, other = qccl.init_threads(2, timeout=SECONDS)
    del other
    gc.collect()
    assert raised(mine.all_reduce, numpy.ones(100, "float32")).name == "qcclRemoteError"
    assert mine.async_error() == "qcclRemoteError"
    mine.close()
    assert "Communicator is closed" in str(raised(mine.all_reduce, numpy.ones(100, "float32")))


# ---------------------------------------------------------------- the library and its header
def in_a_process(code, **environment):
    clean = {k: v for k, v in os.environ.items() if k != "QCCL_LIBRARY"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS,
                          env={**clean, **environment})
    return done.stdout.strip() + done.stderr.strip()


def the_library_is_the_named_one_or_the_one_beside_or_the_loaders():
    with tempfile.TemporaryDirectory() as folder:
        alone = os.path.join(folder, "alone")
        os.mkdir(alone)
        for place in (folder, alone):
            shutil.copy(os.path.join(BINDINGS, "qccl.py"), place)
        os.symlink(os.path.abspath(LIBRARY), os.path.join(folder, "libqccl.so"))
        say = "import sys; sys.path.insert(0, {!r}); import qccl; print(qccl._lib._name, qccl.version())"
        version = str(qccl.version())
        for place, environment, want in (
                (folder, {}, f"{folder}/libqccl.so {version}"), (alone, {"QCCL_LIBRARY": LIBRARY}, f"{LIBRARY} {version}"),
                (alone, {"LD_LIBRARY_PATH": folder}, f"libqccl.so {version}"),
                (folder, {"QCCL_LIBRARY": "/nowhere.so"}, "/nowhere.so: cannot open"),
                (alone, {}, "QCCL_LIBRARY names it")):
            text = in_a_process(say.format(place), **environment)
            assert want in text, f"{environment}: {text}"


def constants_and_structs_are_the_headers():
    with open(os.path.join(ROOT, "include", "qccl", "qccl.h"), encoding="ascii") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    codes = {int(value): name for name, value in re.findall(r"X\((qccl\w+), (\d+), ", text)}
    assert codes == qccl.RESULTS
    for name, number in {**qccl.TYPES, **qccl.OPS}.items():
        assert re.search(rf"\bqccl{name.capitalize()} = {number},", text), name
    for struct, name in ((qccl._Stats, "qcclStats_t"), (qccl._Config, "qcclConfig_t"), (qccl._Codec, "qcclCodec_t"),
                         (qccl._Position, "qcclPosition_t"), (qccl._Transport, "qcclTransport_t")):
        body = re.search(r"typedef struct \{([^{}]*)\} %s;" % name, text).group(1)
        body = re.sub(r"\(\*(\w+)\)\([^)]*\)", r"\1", body)
        fields = [f.strip(" *") for line in body.split(";") if line.strip()
                  for f in re.sub(r"^\s*(const )?\w+ ", "", line).split(",")]
        assert fields == [field for field, _ in struct._fields_], f"{name}: {fields}"
    assert f'"{qccl.SDP4BIT_POLICY}"' in open(
        os.path.join(ROOT, "include", "qccl", "qccl_training.h"), encoding="ascii").read()


# ---------------------------------------------------------------- MPI
def rank_of_mpi():
    from mpi4py import MPI
    world, mine = MPI.COMM_WORLD, MPI.COMM_WORLD.Dup()
    with mock.patch.object(MPI, "Get_library_version", return_value="Another MPI 1.0\n"):
        refused = raised(qccl.init_mpi)
    with qccl.init_mpi(mine, policy=INT4, seed=3, nodes=[0] * world.size) as comm, qccl.init_mpi() as other:
        place = (comm.rank, comm.nranks) == (world.rank, world.size) == (other.rank, other.nranks)
        result = exercise(comm)
    wrong = raised(qccl.init_mpi, nodes=[0] * 9)
    bad = raised(qccl.init_mpi, policy=f"min={world.rank + 1}KiB")
    mine.Free()
    for rank, text in enumerate(world.gather((place, str(refused), str(wrong), str(bad), result)) or []):
        print("RANK", rank, *map(repr, text), sep="|")


def over_mpi_results_are_those_of_threads():
    text = started([MPIRUN, "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "3", *same_program("mpi")])[0]
    lines = [line.split("|") for line in text.splitlines() if line.startswith("RANK|")]
    wanted = on_ranks(3, exercise, policy=INT4, seed=3)
    assert len(lines) == 3, text
    for (_, _, place, refused, wrong, bad, result), want in zip(lines, wanted):
        assert place == "True" and "mpi4py for Another MPI 1.0" in refused, (place, refused)
        assert "nodes has 9 numbers for 3 ranks" in wrong and "qcclMismatch" in bad, (wrong, bad)
        assert result == repr(want)


# ---------------------------------------------------------------- torch.distributed
def joined(size):
    """Joins the processes that a test started, by a file that the test names."""
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method="file://" + sys.argv[-1], rank=int(os.environ["RANK"]), world_size=size)
    return dist


def over_gloo(name, size):
    with tempfile.TemporaryDirectory() as folder:
        return started(same_program(name, os.path.join(folder, "store")), size)


def rank_of_torch():
    dist = joined(3)
    with qccl.init_torch(policy=INT4, seed=3) as comm, qccl.init_torch(policy=INT4, seed=3) as other:
        first = exercise(comm)
        with qccl.Stream() as one, qccl.Stream() as two:
            x, y = some(comm.rank), some(comm.rank)
            comm.all_reduce(x, stream=one)
            other.all_reduce(y, stream=two)
        print("STREAMS", *map(digest, (x, y)))
        print("FIRST", first)
    groups = [dist.new_group([2, 0]), dist.new_group([1, 2])]
    if comm.rank != 1:
        with qccl.init_torch(groups[0], policy="min=1GiB") as part:
            print("PART", part.all_gather(numpy.array([comm.rank]), numpy.zeros(2, int)).tolist())
    print("REFUSED", raised(qccl.init_torch, policy=f"min={comm.rank + 1}KiB"))
    alone = qccl.init_torch(timeout=2)
    if comm.rank:
        print("LEFT", raised(alone.all_reduce, some(comm.rank)).name)


def over_torch_distributed_results_are_those_of_threads():
    wanted = on_ranks(3, exercise, policy=INT4, seed=3)

    def later(comm):
        comm.sequence = 4
        return digest(comm.all_reduce(some(comm.rank)))
    streamed = f"{on_ranks(3, later, policy=INT4, seed=3)[0]} {on_ranks(3, sums, policy=INT4, seed=3)[0]}"
    for rank, text in enumerate(over_gloo("torch", 3)):
        said = dict(line.partition(" ")[::2] for line in text.splitlines())
        assert said["FIRST"] == wanted[rank] and said["STREAMS"] == streamed, text
        assert said.get("PART") == ("[0, 2]" if rank != 1 else None), text
        assert "qcclMismatch" in said["REFUSED"] and said.get("LEFT") == ("qcclRemoteError" if rank else None), text


def sums(comm):
    return digest(comm.all_reduce(some(comm.rank)))


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
            print(f"not ok {number} - {name}\n# " + f"{type(error).__name__}: {error}".replace("\n", "\n# "), flush=True)
    return 1 if failed else 0


def main():
    if "--rank" in sys.argv:
        globals()["rank_of_" + sys.argv[sys.argv.index("--rank") + 1]]()
        return 0
    arrays, tensors = {"numpy": numpy}, {"numpy": numpy, "torch": torch}
    return run([
        (collectives_on_numpy_arrays_give_the_golden_values, arrays),
        (collectives_on_torch_tensors_give_the_golden_values, tensors),
        (encoding_gives_the_golden_messages_and_decoding_the_golden_values, arrays),
        (residuals_hold_what_encoding_lost, arrays),
        (exact_sums_of_every_type_and_operation_are_exact, arrays),
        (arrays_are_used_where_they_are, arrays),
        (numpy_and_torch_get_the_same_bits, tensors),
        (arrays_that_do_not_fit_are_refused_before_anything_is_sent, arrays),
        (tensors_that_do_not_fit_are_refused_before_anything_is_sent, tensors),
        (errors_carry_the_code_and_the_sentence, arrays),
        (an_abort_ends_the_others_and_stays, arrays),
        (policy_seed_sequence_and_statistics_are_what_was_done, arrays),
        (residuals_of_tensors_are_saved_and_restored, arrays),
        (streams_and_events_order_calls, arrays),
        (arrays_live_until_the_stream_is_done_with_them_and_no_longer, arrays),
        (what_a_launched_function_raises_is_the_cause_of_the_streams_error, {}),
        (making_and_dropping_a_thousand_of_everything_takes_no_memory, arrays),
        (a_communicator_that_is_dropped_has_left, arrays),
        (the_library_is_the_named_one_or_the_one_beside_or_the_loaders, {}),
        (constants_and_structs_are_the_headers, {}),
        (over_mpi_results_are_those_of_threads, {"mpi4py": mpi4py, "mpirun": MPIRUN, **arrays}),
        (over_torch_distributed_results_are_those_of_threads, tensors),
    ])


if __name__ == "__main__":
    sys.exit(main())
