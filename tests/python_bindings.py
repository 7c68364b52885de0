#!/usr/bin/env python3
"""Tests bindings/python/qccl.py in one process: results to the bit, what is refused, what is kept alive, and FSDP2's
protocol.

    python_bindings.py QCCL-LIBRARY

Expected results are those of tests/golden, which an independent oracle computed.  Prints TAP.
"""
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import types
import weakref

from python_harness import BINDINGS, INT4, LIBRARY, ROOT, SECONDS, digest, exercise, inputs, numpy, on_ranks, qccl, \
    raised, run, some, torch

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
            got = on_ranks(2, lambda comm: comm.all_reduce(numpy.full(9, comm.rank + 1, kind), op=op),
                           policy="min=1GiB")
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
def calls_of_a_group_are_one_message():
    def together(comm):
        parts = [some(comm.rank, 3000)[at:at + 1000].copy() for at in (0, 1000, 2000)]
        alone = some(comm.rank, 3000)
        with qccl.Stream() as stream:
            with qccl.group():
                for part in parts:
                    comm.all_reduce(part, stream=stream)
                with qccl.group():
                    comm.all_reduce(alone[:10].copy(), op="max", stream=stream)
                gone = weakref.ref(part)
        messages = comm.stats()["calls"]
        comm.sequence = 0
        comm.all_reduce(alone)
        assert messages == 1 and numpy.array_equal(numpy.concatenate(parts), alone)
        del part, parts
        gc.collect()
        assert gone() is None
    on_ranks(3, together, policy=INT4, seed=3)
    comms, values = qccl.init_threads(3, policy=INT4), [some(rank) for rank in range(3)]
    with qccl.group():  # one thread, all ranks
        for comm, value in zip(comms, values):
            comm.all_reduce(value)
    assert numpy.array_equal(values[0], values[1]) and numpy.array_equal(values[0], values[2])
    assert isinstance(raised(ends_badly, comms[0]), KeyError) and comms[0].stats()["passed"] == 0
    for comm in comms:
        comm.close()


def ends_badly(comm):
    with qccl.group():
        raise KeyError(comm.rank)


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
                (folder, {}, f"{folder}/libqccl.so {version}"),
                (alone, {"QCCL_LIBRARY": LIBRARY}, f"{LIBRARY} {version}"),
                (alone, {"LD_LIBRARY_PATH": folder}, f"libqccl.so {version}"),
                (folder, {"QCCL_LIBRARY": "/nowhere.so"}, "/nowhere.so: cannot open"),
                (alone, {}, "QCCL_LIBRARY names it")):
            text = in_a_process(say.format(place), **{"LD_LIBRARY_PATH": "", **environment})
            installed = not environment and place == alone and text.startswith("libqccl.so.0 ")
            assert want in text or installed, f"{environment}: {text}"


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


# ---------------------------------------------------------------- FSDP2
class OldModule(torch.nn.Module if torch else object):
    """What FSDP2's modules look like from outside."""

    def set_custom_reduce_scatter(self, call):
        self.reduce_scatter = call

    def set_custom_all_gather(self, call):
        self.all_gather = call


def fsdps_collectives_follow_its_protocol():
    import torch.distributed as dist

    def run(comm):
        group = types.SimpleNamespace(size=lambda: comm.nranks, rank=lambda: comm.rank)
        model = torch.nn.Sequential(OldModule(), torch.nn.Linear(2, 2))
        qccl.compress_fsdp(model, comm)
        reduce_scatter, all_gather = model[0].reduce_scatter, model[0].all_gather
        whole = reduce_scatter.allocate((2000,), dtype=torch.bfloat16, device=torch.device("cpu"))
        whole[:], part = torch.randn(2000, generator=torch.Generator().manual_seed(comm.rank)), whole.new_zeros(1000)
        comm.sequence = 0
        assert reduce_scatter(output_tensor=part, input_tensor=whole, group=group, op=dist.ReduceOp.AVG) is None
        all_gather(output_tensor=whole, input_tensor=part, group=group, async_op=True)
        comm.sequence = 0
        given = torch.randn(2000, generator=torch.Generator().manual_seed(comm.rank)).bfloat16()
        assert torch.equal(comm.reduce_scatter(given, part.new_zeros(1000), op="avg"), part)
        assert torch.equal(comm.all_gather(part, torch.zeros_like(whole)), whole)
        other = types.SimpleNamespace(size=lambda: 3, rank=lambda: 0)
        for wrong in (raised(all_gather, whole, part, other),
                      raised(reduce_scatter, part, whole, other, dist.ReduceOp.SUM),
                      raised(reduce_scatter, part, whole, group, dist.ReduceOp.MAX)):
            assert isinstance(wrong, ValueError), wrong
        return comm.stats()["calls"]
    assert on_ranks(2, run, policy=INT4) == [4, 4]
    error = raised(qccl.compress_fsdp, torch.nn.Linear(2, 2), None)
    assert isinstance(error, RuntimeError) and torch.__version__ in str(error), error


def main():
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
        (calls_of_a_group_are_one_message, arrays),
        (arrays_live_until_the_stream_is_done_with_them_and_no_longer, arrays),
        (what_a_launched_function_raises_is_the_cause_of_the_streams_error, {}),
        (making_and_dropping_a_thousand_of_everything_takes_no_memory, arrays),
        (a_communicator_that_is_dropped_has_left, arrays),
        (the_library_is_the_named_one_or_the_one_beside_or_the_loaders, {}),
        (constants_and_structs_are_the_headers, {}),
        (fsdps_collectives_follow_its_protocol, tensors),
    ])


if __name__ == "__main__":
    sys.exit(main())
