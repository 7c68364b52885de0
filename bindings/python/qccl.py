"""qccl for Python: quantized collectives on numpy arrays and CPU torch tensors, without copies.

One file over ctypes; nothing is compiled.  numpy, torch and mpi4py are used where the caller has imported them, and
none is needed.  The calls are those of include/qccl/qccl.h, which says what each does, which ranks must call it and
when buffers may be used again; docs/python.md shows how they go together.

    import numpy, qccl
    with qccl.init_mpi(policy="allreduce: int4; min=0") as comm:    # or init_torch(), init_threads(4)
        gradient = numpy.ones(1 << 20, numpy.float32)
        comm.all_reduce(gradient, op="avg")
        print(comm.stats()["wire_bytes"])

The library is $QCCL_LIBRARY, else libqccl.so beside this file, else what the loader finds.  A call that fails raises
QcclError with the library's code and sentence; arrays that do not fit raise TypeError or ValueError before any rank
has sent anything.  Calls release the interpreter's lock while they run.
"""
import contextlib
import ctypes
import datetime
import os
import sys
import threading
import weakref
from collections import deque
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

SDP4BIT_POLICY = "reducescatter: int4:hadamard=32 intra=int8; delta: int4:group=2048; min=0"
RESULTS = {0: "qcclSuccess", 1: "qcclUnhandledCudaError", 2: "qcclSystemError", 3: "qcclInternalError",
           4: "qcclInvalidArgument", 5: "qcclInvalidUsage", 6: "qcclRemoteError", 7: "qcclInProgress",
           32: "qcclOutOfMemory", 33: "qcclMismatch", 34: "qcclCorruptMessage", 35: "qcclAborted"}
TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7,
         "float64": 8, "bfloat16": 9}
OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
_SYSTEM_ERROR, _REMOTE_ERROR, _IN_PROGRESS = 2, 6, 7
_FOREVER, _FIRST_TAG = 2 ** 31, 0x716300
_POLICY_MAX, _CODEC_MAX = 1024, 96


class QcclError(RuntimeError):
    """A call failed.  code: the library's number; name: what qccl.h calls it; sentence: what happened, with numbers."""

    def __init__(self, code, sentence):
        self.code, self.name, self.sentence = code, RESULTS.get(code, f"code {code}"), sentence
        super().__init__(f"{self.name}: {sentence}")


# ---------------------------------------------------------------- the library
_KINDS = {"p": c_void_p, "s": c_char_p, "i": c_int, "z": c_size_t, "u": c_uint32, "q": c_uint64, "d": c_double,
          "b": c_uint8, "h": c_uint16, "I": POINTER(c_int), "P": POINTER(c_void_p)}


def _fields(text):
    """[("seed", c_uint64), ...] of "q:seed ..."."""
    return [(name, _KINDS[kind]) for kind, name in (word.split(":") for word in text.split())]


class _Config(ctypes.Structure):
    _fields_ = _fields("z:size s:policy q:seed I:nodes d:timeout")


class _Stats(ctypes.Structure):
    _fields_ = _fields("z:size q:calls q:passed q:passed_type q:passed_op q:passed_small q:passed_policy "
                       "q:passed_single q:raw_bytes q:wire_bytes q:encode_ns q:wire_ns q:decode_ns q:workspace_bytes "
                       "q:feedback_bytes d:sampled_energy d:sampled_error q:slow_calls q:slow_ns q:slow_exposed_ns")


class _Codec(ctypes.Structure):
    _fields_ = _fields("b:format b:nearest b:feedback b:reserved h:hadamard h:group")


class _Position(ctypes.Structure):
    _fields_ = _fields("q:seed u:segment u:sequence u:rank u:stage q:first")


_MOVE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_int)
_WAIT = ctypes.CFUNCTYPE(c_int, c_void_p, c_double)
_RUN = ctypes.CFUNCTYPE(c_int, c_void_p)


class _Transport(ctypes.Structure):
    _fields_ = _fields("z:size p:context i:rank i:nranks") + [("isend", _MOVE), ("irecv", _MOVE), ("wait", _WAIT)] + \
        _fields("p:abort p:close p:wait_for p:test")


# A letter an argument, as in _KINDS; pointers to anything are p.
_FUNCTIONS = {
    "GetVersion": "I", "CommInitThreads": "Pip", "CommInitTransport": "Ppp", "CommDestroy": "p", "CommAbort": "p",
    "CommGetAsyncError": "pI", "CommCount": "pI", "CommUserRank": "pI", "CommSetPolicy": "ps", "CommGetPolicy": "psz",
    "CommSetSeed": "pq", "CommGetSeed": "pp", "CommSetSequence": "pu", "CommGetSequence": "pp", "CommGetStats": "pp",
    "CommSetTensor": "pq", "FeedbackReset": "p", "FeedbackBytes": "pp",
    "FeedbackSave": "ppz", "FeedbackRestore": "psz", "AllReduce": "ppziipp", "ReduceScatter": "ppziipp",
    "AllGather": "ppzipp", "AllGatherDelta": "ppzipp", "StreamCreate": "Pi", "StreamDestroy": "p",
    "StreamSynchronize": "p", "StreamQuery": "p", "StreamLaunch": "ppp", "StreamWaitEvent": "pp", "EventCreate": "P",
    "EventDestroy": "p", "EventRecord": "pp", "EventSynchronize": "p", "EventQuery": "p", "CodecParse": "sp",
    "CodecPrint": "psz", "EncodedBytes": "pzp", "GroupStart": "", "GroupEnd": "", "Encode": "pppizppz",
    "Decode": "pzpizi",
}


def _load():
    """$QCCL_LIBRARY, or the first of: beside this file, what the loader finds.  OSError says what was tried."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libqccl.so")
    named = os.environ.get("QCCL_LIBRARY")
    tried = [named] if named else [beside, "libqccl.so.0", "libqccl.so"]
    failures = []
    for path in tried:
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
            continue
        for name, arguments in _FUNCTIONS.items():
            getattr(library, "qccl" + name).argtypes = [_KINDS[kind] for kind in arguments]
        library.qcclGetLastError.restype = library.qcclGetErrorString.restype = c_char_p
        return library
    raise OSError("libqccl.so was not found; QCCL_LIBRARY names it, or LD_LIBRARY_PATH its folder: " +
                  "; ".join(failures))


_lib = _load()


def _check(code, raised=()):
    """Raises what a code means; raised: exceptions of Python functions that the library called, the cause."""
    if code:
        sentence = _lib.qcclGetLastError() or _lib.qcclGetErrorString(code)
        raise QcclError(code, sentence.decode(errors="replace")) from (raised[0] if raised else None)


def _call(name, *arguments):
    _check(getattr(_lib, "qccl" + name)(*arguments))


def _get(name, kind, *arguments):
    """What a call writes through its last argument."""
    value = kind()
    _call(name, *arguments, byref(value))
    return value.value


def version():
    """Of the library that was loaded: 10000 major + 100 minor + patch."""
    return _get("GetVersion", c_int)


# ---------------------------------------------------------------- arrays
class _Array:
    """Where the elements of a numpy array or a CPU torch tensor are, how many and of what type."""

    def __init__(self, array, what, writes=False, kind=None):
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if torch and isinstance(array, torch.Tensor):
            if array.device.type != "cpu" or array.layout != torch.strided:
                raise TypeError(f"{what}: a {array.layout} tensor on {array.device}; only dense CPU tensors are taken")
            self.count, name = array.numel(), str(array.dtype).rpartition(".")[2]
            contiguous, self.pointer = array.is_contiguous(), array.data_ptr()
        elif numpy and isinstance(array, numpy.ndarray):
            self.count, name = array.size, array.dtype.name
            contiguous, self.pointer = array.flags.c_contiguous, array.ctypes.data
            if not array.dtype.isnative:
                raise TypeError(f"{what}: the byte order of {array.dtype.str} is not this machine's")
            if writes and not array.flags.writeable:
                raise ValueError(f"{what}: the array is read-only")
        else:
            raise TypeError(f"{what}: {type(array).__name__} is neither a numpy array nor a torch tensor")
        if name not in TYPES or kind not in (None, name):
            raise TypeError(f"{what}: elements are {name}; allowed are {kind or ', '.join(TYPES)}")
        if not contiguous:
            raise ValueError(f"{what}: the elements of a shape of {tuple(array.shape)} are not contiguous")
        self.array, self.kind, self.type, self.what = array, name, TYPES[name], what

    def must_match(self, other, count):
        if self.kind != other.kind:
            raise TypeError(f"{self.what} has {self.kind}, {other.what} {other.kind}")
        self.must_have(count)

    def must_have(self, count):
        if self.count != count:
            raise ValueError(f"{self.what} has {self.count} elements; {count} are needed")


def _number(table, name, what):
    if name not in table:
        raise ValueError(f"{what} {name!r} is none of {', '.join(table)}")
    return table[name]


# ---------------------------------------------------------------- handles
class _Owned:
    """A handle of the library, destroyed by close(), at the end of a with block, or with the object."""

    def __init__(self, handle, destroy, *kept):
        self._value = handle
        self._kept = kept  # what the library uses as long as the handle lives
        self._destroy = weakref.finalize(self, _Owned._end, destroy, handle, kept)

    @staticmethod
    def _end(destroy, handle, kept):
        return getattr(_lib, "qccl" + destroy)(handle), kept

    @property
    def _handle(self):
        if not self._destroy.alive:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._value

    def close(self):
        """Destroys it; a second time is nothing."""
        code, _ = self._destroy() or (0, None)
        _check(code)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        with contextlib.suppress(QcclError) if kind else contextlib.nullcontext():
            self.close()


class Event(_Owned):
    """Stands for the work put on a stream so far; complete until it is first recorded."""

    def __init__(self):
        handle = c_void_p()
        _call("EventCreate", byref(handle))
        super().__init__(handle, "EventDestroy")

    def record(self, stream=None):
        _call("EventRecord", self._handle, stream._handle if stream else None)

    def synchronize(self):
        _call("EventSynchronize", self._handle)

    def query(self):
        """Whether it is complete."""
        return _lib.qcclEventQuery(self._handle) != _IN_PROGRESS


class Stream(_Owned):
    """An ordered queue with a worker thread.  It keeps arrays that calls on it use alive until they are done.

    priority 0 is the highest, 7 the lowest.  The first error of its work stays: synchronize() and close() raise it."""

    def __init__(self, priority=0):
        handle, self._pending, self._lock = c_void_p(), deque(), threading.Lock()
        self._raised = []  # by launched functions
        _call("StreamCreate", byref(handle), priority)
        super().__init__(handle, "StreamDestroy", self._pending)

    def _keep(self, *used):
        event = Event()
        event.record(self)
        with self._lock:
            self._pending.append((event, used))
        self._release()

    def _release(self):
        with self._lock:
            while self._pending and self._pending[0][0].query():
                self._pending.popleft()

    def synchronize(self):
        """Returns when everything put on it so far is done."""
        code = _lib.qcclStreamSynchronize(self._handle)
        self._release()
        _check(code, self._raised)

    def close(self):
        """Does what is left, then destroys it."""
        try:
            super().close()
        finally:
            self._pending.clear()

    def query(self):
        """Whether everything put on it is done."""
        code = _lib.qcclStreamQuery(self._handle)
        _check(0 if code == _IN_PROGRESS else code, self._raised)
        return code == 0

    def wait_event(self, event):
        """What is put on the stream from now on waits for the event as it is recorded now."""
        _call("StreamWaitEvent", self._handle, event._handle)

    def launch(self, function):
        """Calls function() on the worker, in the stream's order.  An exception counts as qcclSystemError."""
        run = _RUN(lambda _: _guarded(self._raised, function))
        _call("StreamLaunch", self._handle, ctypes.cast(run, c_void_p), None)
        self._keep(run)


def _guarded(raised, function, *arguments):
    """Called by the library, which knows no exceptions: a result code, and the exception in the list."""
    try:
        function(*arguments)
        return 0
    except Exception as error:  # pylint: disable=broad-except
        raised.append(error)
        return error.code if isinstance(error, QcclError) else _SYSTEM_ERROR


# ---------------------------------------------------------------- groups
class _Group(threading.local):
    """What calls of this thread's open group use, after their streams."""

    def __init__(self):
        self.depth, self.used = 0, []


_open = _Group()


@contextlib.contextmanager
def group():
    """Collectives called in the with block start at its end, many small ones as one message (qcclGroupStart).

    Calls of several communicators run beside each other, so one thread may serve several ranks.  What a call without
    a stream returns is there after the block; the first error of the group is raised there."""
    _call("GroupStart")
    _open.depth += 1
    try:
        yield
    finally:
        code = _lib.qcclGroupEnd()
        _open.depth -= 1
        while _open.used and not _open.depth:
            stream, *used = _open.used.pop()
            if stream:
                stream._keep(*used)
    _check(code)


# ---------------------------------------------------------------- communicators
def _config(nranks, policy, seed, nodes, timeout):
    config = _Config(size=ctypes.sizeof(_Config), policy=policy.encode() if policy is not None else None, seed=seed,
                     timeout=timeout)
    if nodes is not None:
        if len(nodes) != nranks:
            raise ValueError(f"nodes has {len(nodes)} numbers for {nranks} ranks")
        config.nodes = (c_int * nranks)(*nodes)
    return byref(config)


def init_threads(nranks, policy=None, seed=0, nodes=None, timeout=0.0):
    """A list of communicators, one for each of nranks threads of this process."""
    handles = (c_void_p * max(nranks, 1))()
    _call("CommInitThreads", handles, nranks, _config(nranks, policy, seed, nodes, timeout))
    return [Communicator(c_void_p(handle)) for handle in handles]


def init_mpi(comm=None, policy=None, seed=0, nodes=None, timeout=0.0):
    """This rank's communicator over an mpi4py one, MPI.COMM_WORLD if None.  Collective; close it before MPI ends."""
    from mpi4py import MPI
    comm = MPI.COMM_WORLD if comm is None else comm
    if not hasattr(_lib, "qcclCommInitMpi"):
        raise RuntimeError("this libqccl.so was built without MPI")
    text = ctypes.create_string_buffer(8192)
    _lib.MPI_Get_library_version(text, byref(c_int()))
    mine, theirs = (version.strip("\0 \n").splitlines()[0]
                    for version in (text.value.decode(), MPI.Get_library_version()))
    if mine != theirs:  # handles of two MPIs are not even of one size
        raise RuntimeError(f"libqccl.so was built for {mine}, mpi4py for {theirs}")
    kind = {ctypes.sizeof(c_void_p): c_void_p, ctypes.sizeof(c_int): c_int}[MPI._sizeof(comm)]
    handle = c_void_p()
    _lib.qcclCommInitMpi.argtypes = [c_void_p, kind, c_void_p]
    _call("CommInitMpi", byref(handle), kind.from_address(MPI._addressof(comm)),
          _config(comm.Get_size(), policy, seed, nodes, timeout))
    return Communicator(handle)


def init_torch(group=None, policy=None, seed=0, nodes=None, timeout=0.0):
    """This rank's communicator over torch.distributed: its isend and irecv.

    Collective over the ranks of group, a Gloo one (None: all ranks); close it before the group is destroyed.  A rank
    that fails or leaves is noticed by the others when timeout seconds are over or its connection ends."""
    import torch.distributed as dist
    mover = _TorchMover(dist, group)
    handle, transport = c_void_p(), mover.transport()
    code = _lib.qcclCommInitTransport(byref(handle), byref(transport),
                                      _config(len(mover.ranks), policy, seed, nodes, timeout))
    _check(code, mover.raised)
    return Communicator(handle, transport, mover.raised)


class _TorchMover:
    """qcclTransport_t over isend and irecv of torch.distributed on byte tensors that share the library's memory."""
    tags = {}

    def __init__(self, dist, group):
        import torch
        self.torch, self.dist, self.works, self.raised = torch, dist, [], []
        self.group = dist.group.WORLD if group is None else group
        self.rank, self.ranks = dist.get_rank(self.group), dist.get_process_group_ranks(self.group)
        ranks = tuple(self.ranks)  # every communicator of these ranks has a tag of its own
        self.tag = _TorchMover.tags[ranks] = _TorchMover.tags.get(ranks, _FIRST_TAG) + 1

    def _start(self, move, buffer, size, peer):
        where = (c_uint8 * size).from_address(buffer) if size else bytearray(1)
        tensor = self.torch.frombuffer(where, dtype=self.torch.uint8)[:size]
        self.works.append(move(tensor, self.ranks[peer], self.group, self.tag))

    def _wait(self, timeout):
        limit = datetime.timedelta(seconds=timeout if 0 <= timeout < _FOREVER else _FOREVER)
        try:
            for number in range(len(self.works)):
                self.works[number].wait(limit)
        except RuntimeError as error:
            raise QcclError(_REMOTE_ERROR, f"torch.distributed: {error}") from error
        finally:
            self.works.clear()  # nothing may hold on to the library's memory, a traceback neither

    def transport(self):
        """The functions that the library calls; each starts with a context that is not used."""
        moves = [_MOVE(lambda _, *place, move=move: _guarded(self.raised, self._start, move, *place))
                 for move in (self.dist.isend, self.dist.irecv)]
        wait = _WAIT(lambda _, timeout: _guarded(self.raised, self._wait, timeout))
        return _Transport(size=ctypes.sizeof(_Transport), rank=self.rank, nranks=len(self.ranks), isend=moves[0],
                          irecv=moves[1], wait=wait)


class Communicator(_Owned):
    """One rank's membership in a group of ranks; made by init_threads, init_mpi or init_torch.

    Collectives take numpy arrays and CPU torch tensors of any shape, contiguous, and use their memory as it is.  Every
    rank makes the same calls in the same order.  With a stream, a call returns at once and the arrays belong to the
    library until the stream is done; without, it returns the result."""

    def __init__(self, handle, transport=None, raised=()):
        super().__init__(handle, "CommDestroy", transport)
        self._raised = raised
        self.rank = _get("CommUserRank", c_int, handle)
        self.nranks = _get("CommCount", c_int, handle)

    def _submit(self, name, stream, send, recv, *arguments):
        code = getattr(_lib, "qccl" + name)(send.pointer, recv.pointer, *arguments, self._handle,
                                            stream._handle if stream else None)
        _check(code, self._raised)
        if _open.depth:
            _open.used.append((stream, send, recv, self))
        elif stream:
            stream._keep(send, recv, self)
        return recv.array

    def all_reduce(self, send, recv=None, op="sum", stream=None):
        """recv = op over ranks of send, the same bits on every rank; in place without recv.  Returns recv."""
        sent, got = _Array(send, "send", recv is None), _Array(send if recv is None else recv, "recv", True)
        got.must_match(sent, sent.count)
        return self._submit("AllReduce", stream, sent, got, sent.count, sent.type, _number(OPS, op, "op"))

    def reduce_scatter(self, send, recv, op="sum", stream=None):
        """recv = op over ranks of this rank's part of send, which has nranks times as many elements.  Returns recv."""
        sent, got = _Array(send, "send"), _Array(recv, "recv", True)
        sent.must_match(got, self.nranks * got.count)
        return self._submit("ReduceScatter", stream, sent, got, got.count, got.type, _number(OPS, op, "op"))

    def all_gather(self, send, recv, stream=None):
        """recv = every rank's send, one after another in the order of ranks.  Returns recv."""
        sent, got = _Array(send, "send"), _Array(recv, "recv", True)
        got.must_match(sent, self.nranks * sent.count)
        return self._submit("AllGather", stream, sent, got, sent.count, sent.type)

    def all_gather_delta(self, master, replica, stream=None):
        """Moves replica, alike on all ranks, towards every rank's master, this rank's float32 shard.  Returns it."""
        shard, whole = _Array(master, "master", kind="float32"), _Array(replica, "replica", True)
        whole.must_have(self.nranks * shard.count)
        return self._submit("AllGatherDelta", stream, shard, whole, shard.count, whole.type)

    @property
    def policy(self):
        """What is compressed and how, as canonical text.  Setting it is collective."""
        text = ctypes.create_string_buffer(_POLICY_MAX)
        _call("CommGetPolicy", self._handle, text, _POLICY_MAX)
        return text.value.decode()

    @policy.setter
    def policy(self, text):
        _check(_lib.qcclCommSetPolicy(self._handle, text.encode()), self._raised)

    @property
    def seed(self):
        """Of all random numbers.  Setting it is collective."""
        return _get("CommGetSeed", c_uint64, self._handle)

    @seed.setter
    def seed(self, seed):
        _check(_lib.qcclCommSetSeed(self._handle, seed), self._raised)

    @property
    def sequence(self):
        """Compressed calls so far, modulo 2^32.  Setting it is collective."""
        return _get("CommGetSequence", c_uint32, self._handle)

    @sequence.setter
    def sequence(self, sequence):
        _check(_lib.qcclCommSetSequence(self._handle, sequence), self._raised)

    def stats(self):
        """What this rank did so far: a dict with the fields of qcclStats_t."""
        stats = _Stats(size=ctypes.sizeof(_Stats))
        _call("CommGetStats", self._handle, byref(stats))
        return {name: getattr(stats, name) for name, _ in _Stats._fields_[1:]}

    def abort(self):
        """Makes every pending and later call, on any rank, fail.  From any thread."""
        _call("CommAbort", self._handle)

    def async_error(self):
        """The name of the result that broke this communicator; None when none did."""
        code = _get("CommGetAsyncError", c_int, self._handle)
        return RESULTS[code] if code else None

    def set_tensor(self, number):
        """Error feedback keeps residuals for each tensor: the number last set here, 0 at first."""
        _call("CommSetTensor", self._handle, number)

    def feedback_reset(self):
        """Forgets all residuals of this rank."""
        _call("FeedbackReset", self._handle)

    def feedback_save(self):
        """All residuals of this rank, as bytes."""
        size = _get("FeedbackBytes", c_size_t, self._handle)
        state = (c_uint8 * size)()
        _call("FeedbackSave", self._handle, state, size)
        return bytes(state)

    def feedback_restore(self, state):
        """Replaces all residuals by saved ones."""
        _call("FeedbackRestore", self._handle, state, len(state))


# ---------------------------------------------------------------- codecs
class Codec:
    """A codec on its own, of a text such as "int4:group=64,hadamard=32"; str() is its canonical text.

    Values are float32, float16 or bfloat16; a message is a uint8 array at a multiple of 8 bytes."""

    def __init__(self, text):
        self._codec = _Codec()
        _call("CodecParse", text.encode(), byref(self._codec))

    def __str__(self):
        text = ctypes.create_string_buffer(_CODEC_MAX)
        _call("CodecPrint", byref(self._codec), text, _CODEC_MAX)
        return text.value.decode()

    def encoded_bytes(self, count):
        """Of a message of count values."""
        return _get("EncodedBytes", c_size_t, byref(self._codec), count)

    def encode(self, values, message, residual=None, seed=0, segment=0, sequence=0, rank=0, stage=0, first=0):
        """Writes the message of values, whose encoded_bytes the uint8 array message has at least.  Returns its part.

        residual: float32, error feedback of every value, added and replaced.  The rest is qcclPosition_t."""
        source, target = _Array(values, "values"), _Array(message, "message", True, "uint8")
        left = _Array(residual, "residual", True, "float32") if residual is not None else None
        if left:
            left.must_have(source.count)
        position = _Position(seed, segment, sequence, rank, stage, first)
        _call("Encode", byref(self._codec), byref(position), source.pointer, source.type, source.count,
              left.pointer if left else None, target.pointer, target.count)
        return message.reshape(-1)[:self.encoded_bytes(source.count)]


def decode(message, values, add=False):
    """values = what the message holds, or with add values += that.  Returns values."""
    source, target = _Array(message, "message", kind="uint8"), _Array(values, "values", True)
    _call("Decode", source.pointer, source.count, target.pointer, target.type, target.count, add)
    return values


# ---------------------------------------------------------------- torch
def allreduce_hook(state, bucket):
    """A communication hook of DistributedDataParallel: averages every bucket of gradients with qccl.

    ddp.register_comm_hook(state, qccl.allreduce_hook); state is a Communicator over the model's ranks, or a pair
    (Communicator, Stream), and then reductions run beside the rest of the backward pass.  With feedback=on in the
    policy a bucket's residuals are its own."""
    import torch
    comm, stream = state if isinstance(state, tuple) else (state, None)
    gradients, future = bucket.buffer(), torch.futures.Future()

    def finish():
        error = comm.async_error()
        if error:
            future.set_exception(RuntimeError(f"qccl.allreduce_hook: {error}"))
        else:
            future.set_result(gradients)

    comm.set_tensor(bucket.index())
    comm.all_reduce(gradients, op="avg", stream=stream)
    if stream:
        stream.launch(finish)
    else:
        finish()
    return future


class _FsdpCollective:
    """What FSDP2 expects of a custom collective: allocate() of its buffers, and the call, which is done when it
    returns, async_op or not."""

    def __init__(self, comm):
        self.comm = comm

    def allocate(self, size, *, dtype, device):
        import torch
        return torch.empty(*size, dtype=dtype, device=device)

    def _check_group(self, group):
        if (group.size(), group.rank()) != (self.comm.nranks, self.comm.rank):
            raise ValueError(f"the group's rank is {group.rank()} of {group.size()}, the communicator's "
                             f"{self.comm.rank} of {self.comm.nranks}")


class FsdpReduceScatter(_FsdpCollective):
    """Reduce-scatter of gradients for FSDPModule.set_custom_reduce_scatter (compress_fsdp)."""

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        import torch.distributed as dist
        self._check_group(group)
        names = [name for name in ("sum", "avg") if op == getattr(dist.ReduceOp, name.upper())]
        if not names:
            raise ValueError(f"{op} is neither a sum nor an average; FSDPModule.set_force_sum_reduction_for_comms")
        self.comm.reduce_scatter(input_tensor, output_tensor, op=names[0])


class FsdpAllGather(_FsdpCollective):
    """All-gather of weights for FSDPModule.set_custom_all_gather (compress_fsdp)."""

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        self._check_group(group)
        self.comm.all_gather(input_tensor, output_tensor)


def compress_fsdp(module, comm):
    """Gives every FSDP2 module (torch.distributed.fsdp.fully_shard on CPU tensors) in module qccl's collectives.

    comm has the ranks over which the parameters are sharded.  Needs a torch whose FSDPModule has
    set_custom_reduce_scatter and set_custom_all_gather; another raises RuntimeError."""
    import torch
    modules = [m for m in module.modules() if hasattr(m, "set_custom_reduce_scatter")]
    if not modules:
        raise RuntimeError(f"torch {torch.__version__}: no module here has set_custom_reduce_scatter; either none is "
                           "an FSDPModule or this torch's FSDP2 takes no custom collectives")
    for each in modules:
        each.set_custom_reduce_scatter(FsdpReduceScatter(comm))
        each.set_custom_all_gather(FsdpAllGather(comm))
