/* qccl: collectives that send 4-bit or 1-bit values instead of 32-bit ones.
 *
 * The calls and their vocabulary are NCCL's, so that replacing a call means replacing
 * its prefix.  A communicator carries a policy that says which calls are compressed and
 * how; every other call goes to the library below unchanged.  All ranks end with the
 * same bits.  What a codec computes is specified in docs/numerics.md, the bytes of a message in
 * docs/wire-format.md, the policy language in docs/policy.md.
 *
 * Every function that returns qcclResult_t leaves a sentence with the numbers for
 * qcclGetLastError() when the result is not qcclSuccess.  The library never prints (the
 * log that QCCL_DEBUG asks for aside), never exits and never aborts.
 *
 * Optimizers, DUO and sharded training are in qccl_training.h, which this header includes.  It
 * compiles as C99 and as C++17 and includes neither mpi.h nor a CUDA header. */
#ifndef QCCL_QCCL_H
#define QCCL_QCCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QCCL_MAJOR 0
#define QCCL_MINOR 1
#define QCCL_PATCH 0
#define QCCL_VERSION (QCCL_MAJOR * 10000 + QCCL_MINOR * 100 + QCCL_PATCH)

#if defined(__GNUC__)
#define QCCL_API __attribute__((visibility("default")))
#else
#define QCCL_API
#endif

/* ------------------------------------------------------------------ results and types */

/* Result codes.  Those below 8 have NCCL's names and values. */
#define QCCL_RESULTS(X)                                                                  \
    X(qcclSuccess, 0, "no error")                                                        \
    X(qcclUnhandledCudaError, 1, "a CUDA call failed")                                   \
    X(qcclSystemError, 2, "a call to the system or to MPI failed")                       \
    X(qcclInternalError, 3, "internal error, please report it")                          \
    X(qcclInvalidArgument, 4, "an argument has an invalid value")                        \
    X(qcclInvalidUsage, 5, "the call is not allowed here")                               \
    X(qcclRemoteError, 6, "another rank failed, left or did not answer in time")         \
    X(qcclInProgress, 7, "the operation is still in progress")                           \
    X(qcclOutOfMemory, 32, "out of memory")                                              \
    X(qcclMismatch, 33, "ranks disagree about a call or a configuration")                \
    X(qcclCorruptMessage, 34, "the bytes of a message are damaged or of another format") \
    X(qcclAborted, 35, "the communicator was aborted")

#define QCCL_RESULT_ENUM(name, value, sentence) name = value,
typedef enum { QCCL_RESULTS(QCCL_RESULT_ENUM) qcclNumResults } qcclResult_t;
#undef QCCL_RESULT_ENUM

/* Element types, with NCCL's values. */
typedef enum {
    qcclInt8 = 0,
    qcclChar = 0,
    qcclUint8 = 1,
    qcclInt32 = 2,
    qcclInt = 2,
    qcclUint32 = 3,
    qcclInt64 = 4,
    qcclUint64 = 5,
    qcclFloat16 = 6,
    qcclHalf = 6,
    qcclFloat32 = 7,
    qcclFloat = 7,
    qcclFloat64 = 8,
    qcclDouble = 8,
    qcclBfloat16 = 9,
    qcclNumTypes = 10
} qcclDataType_t;

/* Reductions, with NCCL's values.  Sum and average of fp32, bf16 and fp16 can be compressed. */
typedef enum {
    qcclSum = 0,
    qcclProd = 1,
    qcclMax = 2,
    qcclMin = 3,
    qcclAvg = 4,
    qcclNumOps = 5
} qcclRedOp_t;

typedef enum {
    qcclCollAllReduce = 0,
    qcclCollReduceScatter = 1,
    qcclCollAllGather = 2,
    qcclCollAllGatherDelta = 3,
    qcclNumColls = 4
} qcclColl_t;

/* QCCL_VERSION of the library that was loaded. */
QCCL_API qcclResult_t qcclGetVersion(int *version);

/* The general sentence of a result code; never NULL. */
QCCL_API const char *qcclGetErrorString(qcclResult_t result);

/* The sentence, with its numbers, of the last call of this thread that failed; "" when none did.
 * Valid until this thread's next failing call. */
QCCL_API const char *qcclGetLastError(void);

/* Bytes of one element; 0 for an unknown type. */
QCCL_API size_t qcclTypeBytes(qcclDataType_t datatype);

/* ------------------------------------------------------------------ communicators */

typedef struct qcclComm *qcclComm_t;

/* Zero is the default of every field but size, which says how much of the struct the caller knows.
 *
 * policy   NULL: QCCL_POLICY of the environment, and without it QCCL_DEFAULT_POLICY
 * seed     of all random numbers; 0: QCCL_SEED of the environment, and without it 0
 * nodes    the node of each rank, nranks numbers >= 0, the same on every rank; NULL: QCCL_NODES of
 *          the environment ("0,0,1,1"), and without it MPI's shared-memory split, or one node
 * timeout  seconds a rank waits for a peer before it returns qcclRemoteError; 0: QCCL_TIMEOUT of
 *          the environment, and without it 600; negative: for ever */
typedef struct {
    size_t size; /* sizeof(qcclConfig_t) */
    const char *policy;
    uint64_t seed;
    const int *nodes;
    double timeout;
} qcclConfig_t;

#define QCCL_CONFIG_INITIALIZER                  \
    {                                            \
        sizeof(qcclConfig_t), NULL, 0, NULL, 0.0 \
    }

#define QCCL_DEFAULT_POLICY "allreduce: int4; reducescatter: int4; allgather: none; delta: int4"

/* Makes one communicator for each of nranks ranks that are threads of this process; comms[r] is
 * rank r's and is used by one thread at a time.  Called once, by one thread; does not communicate.
 * config may be NULL.  On an error no communicator exists and comms is left alone.
 * Returns qcclInvalidArgument (NULL comms, nranks not in 1..4096, a policy that does not parse, a
 * bad node list or config size), qcclOutOfMemory. */
QCCL_API qcclResult_t qcclCommInitThreads(qcclComm_t *comms, int nranks,
                                          const qcclConfig_t *config);

/* The user's own byte mover.  All functions but abort, which any thread may call at any time, are
 * called by one thread of the rank at a time.  Messages between two ranks arrive in the order in
 * which they were sent. */
typedef struct {
    size_t size; /* sizeof(qcclTransport_t) */
    void *context;
    int rank, nranks;
    /* Starts moving bytes to or from peer; the buffer stays untouched until wait returns, wait_for
     * of this operation returns, or test says that it has completed.  Never blocks. */
    qcclResult_t (*isend)(void *context, const void *buffer, size_t bytes, int peer);
    qcclResult_t (*irecv)(void *context, void *buffer, size_t bytes, int peer);
    /* Returns when everything started has arrived, or an error: a message of another size than
     * expected (qcclMismatch), a peer that is gone or did not answer within timeout seconds
     * (qcclRemoteError; a negative timeout is for ever).  After an error no buffer is in use. */
    qcclResult_t (*wait)(void *context, double timeout);
    /* Makes the other ranks' waits end with qcclRemoteError; may be NULL. */
    void (*abort)(void *context);
    /* Frees the context; may be NULL. */
    void (*close)(void *context);
    /* Both or neither (one alone is qcclInvalidArgument); without them calls run one chunk after
     * another, and nothing overlaps.  Operations are numbered from 0, in the order in which isend
     * and irecv started them since wait last returned.  Returns as wait does once operation
     * `number` has completed, whatever the others do. */
    qcclResult_t (*wait_for)(void *context, uint64_t number, double timeout);
    /* Never blocks: *done = whether operation `number` has completed; moves all of them along. */
    qcclResult_t (*test)(void *context, uint64_t number, int *done);
} qcclTransport_t;

/* Makes this rank's communicator over the caller's transport, which is copied.  Every rank calls
 * it; blocks until all have; compares versions and configurations.  Returns what
 * qcclCommInitThreads does, qcclMismatch on every rank (the sentence names both values) and what
 * the transport returns. On an error the transport is not closed and *comm is left alone. */
QCCL_API qcclResult_t qcclCommInitTransport(qcclComm_t *comm, const qcclTransport_t *transport,
                                            const qcclConfig_t *config);

/* Frees the communicator; NULL is allowed.  Waits for the calls that streams still have to do with
 * it, which ends soon after qcclCommAbort; does not communicate itself.  Peers that still wait for
 * this rank get qcclRemoteError.  Must not run while another thread uses the communicator. */
QCCL_API qcclResult_t qcclCommDestroy(qcclComm_t comm);

/* Makes every pending and later call of this communicator, on any rank, return qcclAborted or
 * qcclRemoteError.  May be called from any thread.  The communicator still has to be destroyed. */
QCCL_API qcclResult_t qcclCommAbort(qcclComm_t comm);

/* *error = the error that broke this communicator, qcclSuccess when none did.  Once broken (a lost
 * peer, a corrupt message), a communicator returns the same error from every call. */
QCCL_API qcclResult_t qcclCommGetAsyncError(qcclComm_t comm, qcclResult_t *error);

QCCL_API qcclResult_t qcclCommCount(qcclComm_t comm, int *nranks);
QCCL_API qcclResult_t qcclCommUserRank(qcclComm_t comm, int *rank);

/* Policy, seed and sequence number.  Together with the inputs they determine every bit of a result:
 * set the seed and the sequence number to what a run had, and it repeats.  The sequence number is
 * the count of compressed calls so far, modulo 2^32. The three setters are collective: every rank
 * calls them with equal values, at the same place between its calls; different values are
 * qcclMismatch on every rank, and nothing changes.  The getters are local.  qcclCommGetPolicy
 * writes the canonical text, closed by a zero, and needs QCCL_POLICY_MAX bytes at most; a smaller
 * buffer that does not suffice is qcclInvalidArgument. */
#define QCCL_POLICY_MAX 1024
QCCL_API qcclResult_t qcclCommSetPolicy(qcclComm_t comm, const char *policy);
QCCL_API qcclResult_t qcclCommGetPolicy(qcclComm_t comm, char *text, size_t capacity);
QCCL_API qcclResult_t qcclCommSetSeed(qcclComm_t comm, uint64_t seed);
QCCL_API qcclResult_t qcclCommGetSeed(qcclComm_t comm, uint64_t *seed);
QCCL_API qcclResult_t qcclCommSetSequence(qcclComm_t comm, uint32_t sequence);
QCCL_API qcclResult_t qcclCommGetSequence(qcclComm_t comm, uint32_t *sequence);

/* What this rank did so far.  The error is sampled in the first block of every message that is
 * encoded without error feedback, where it is finite: energies (sums of squares) of the values and
 * of what changed. */
typedef struct {
    size_t size;            /* sizeof(qcclStats_t), set by the caller */
    uint64_t calls;         /* collectives that were compressed */
    uint64_t passed;        /* collectives that went to the library below, for these reasons: */
    uint64_t passed_type;   /*   the element type */
    uint64_t passed_op;     /*   the reduction */
    uint64_t passed_small;  /*   below the policy's min= */
    uint64_t passed_policy; /*   the policy says none */
    uint64_t passed_single; /*   one rank */
    uint64_t raw_bytes;  /* what this rank would have sent uncompressed in the compressed calls */
    uint64_t wire_bytes; /* what it did send */
    uint64_t encode_ns;  /* time encoding, */
    uint64_t wire_ns;    /* waiting for messages */
    uint64_t decode_ns;  /* and decoding or summing */
    uint64_t workspace_bytes; /* memory the communicator holds for messages and temporary values */
    uint64_t feedback_bytes;  /* memory it holds for error feedback residuals */
    double sampled_energy;
    double sampled_error;
    uint64_t slow_calls;      /* slow reductions of a qcclDuo_t over this communicator, */
    uint64_t slow_ns;         /* how long they took, */
    uint64_t slow_exposed_ns; /* and how much of that was not hidden: the caller waited for it */
} qcclStats_t;

/* Fills *stats, up to stats->size bytes.  Local. */
QCCL_API qcclResult_t qcclCommGetStats(qcclComm_t comm, qcclStats_t *stats);

/* Writes what this rank would do for a call as text: shape, shards, rounds, and one line a step.
 * *needed (may be NULL) = bytes of the whole text with its closing zero; text (may be NULL when
 * capacity is 0) gets as much of it as fits.  Local.  count as in the collective. */
QCCL_API qcclResult_t qcclCommPrintPlan(qcclComm_t comm, qcclColl_t collective, size_t count,
                                        qcclDataType_t datatype, qcclRedOp_t op, char *text,
                                        size_t capacity, size_t *needed);

/* Error feedback (feedback=on in the policy; Seide et al. 2014, Karimireddy et al. 2019): what
 * encoding lost of a tensor is added to the same tensor before it is encoded next.  A rank keeps
 * one set of residuals for each (tensor, collective, count, type, operation); the tensor is the
 * number last set here, 0 at first.  A program that reduces several tensors of one size numbers
 * them.  Local. */
QCCL_API qcclResult_t qcclCommSetTensor(qcclComm_t comm, uint64_t tensor);
/* Forgets all residuals of this rank. */
QCCL_API qcclResult_t qcclFeedbackReset(qcclComm_t comm);
/* Bytes that qcclFeedbackSave needs now. */
QCCL_API qcclResult_t qcclFeedbackBytes(qcclComm_t comm, size_t *bytes);
/* Copies all residuals of this rank to state; capacity below qcclFeedbackBytes is
 * qcclInvalidArgument. */
QCCL_API qcclResult_t qcclFeedbackSave(qcclComm_t comm, void *state, size_t capacity);
/* Replaces all residuals by saved ones.  Damaged bytes, or those of another rank or number of
 * ranks, are qcclCorruptMessage and change nothing. */
QCCL_API qcclResult_t qcclFeedbackRestore(qcclComm_t comm, const void *state, size_t bytes);

/* ------------------------------------------------------------------ collectives
 *
 * Every rank of the communicator calls them in the same order with the same count, type, op and
 * policy; QCCL_CHECK=1 compares that before each call and returns qcclMismatch on every rank where
 * it does not hold.
 *
 * stream: NULL, and the call blocks until this rank's result is there; or a qcclStream_t, and the
 * call returns at once: its arguments were checked, the stream's worker does the rest in its order,
 * and what goes wrong then is told by qcclStreamSynchronize and qcclCommGetAsyncError.  Calls of
 * one communicator happen in the order in which they were made, on whatever streams.  Buffers need
 * no alignment and belong to the library until the call, or the stream, is done.  count may be 0.
 * A value that is NaN arrives as NaN on every rank: from compressed calls as the canonical quiet
 * NaN.  They return qcclInvalidArgument, qcclMismatch, qcclCorruptMessage, qcclRemoteError,
 * qcclAborted, qcclOutOfMemory, qcclSystemError.  A call that runs out of memory, or cannot be put
 * on its stream for that, breaks the communicator: the other ranks count on it.
 * After an error the parts of recvbuff that were not yet written are as before. */

/* recvbuff[i] = op over ranks of sendbuff[i], i < count, the same bits on every rank
 * (docs/numerics.md, Collectives). In place when sendbuff == recvbuff; other overlaps are
 * qcclInvalidArgument. */
QCCL_API qcclResult_t qcclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                    qcclDataType_t datatype, qcclRedOp_t op, qcclComm_t comm,
                                    void *stream);

/* recvbuff[i] = op over ranks of sendbuff[rank * recvcount + i], i < recvcount; sendbuff has
 * nranks * recvcount elements.  In place when recvbuff == sendbuff + rank * recvcount elements. */
QCCL_API qcclResult_t qcclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                        qcclDataType_t datatype, qcclRedOp_t op, qcclComm_t comm,
                                        void *stream);

/* recvbuff[r * sendcount + i] = rank r's sendbuff[i], i < sendcount; recvbuff has nranks *
 * sendcount elements. Compressed, every rank gets the decoded values, the owner too.  In place when
 * sendbuff == recvbuff + rank * sendcount elements. */
QCCL_API qcclResult_t qcclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                    qcclDataType_t datatype, qcclComm_t comm, void *stream);

/* Weight differences (SDP4Bit, NeurIPS 2024, section 3.1).  master: this rank's shard, shardcount
 * fp32 values. replica: nranks * shardcount values of datatype (fp32, bf16 or fp16), the same bits
 * on every rank before and after. replica += decode(encode(master - replica)) for every shard, on
 * every rank.  What a call loses stays in master - replica and is sent by a later one.  Where the
 * policy passes the call through, replica becomes the masters converted to datatype, exactly
 * rounded.  master and replica must not overlap. */
QCCL_API qcclResult_t qcclAllGatherDelta(const float *master, void *replica, size_t shardcount,
                                         qcclDataType_t datatype, qcclComm_t comm, void *stream);

/* ------------------------------------------------------------------ streams and events
 *
 * A stream is an ordered queue with a worker thread of its own.  Streams run beside each other; an
 * event orders them.  Over MPI the program has to have asked for MPI_THREAD_MULTIPLE; with less,
 * calls on a stream are done in the caller's thread, behind the stream's work, before they return;
 * their errors are told by the stream all the same. */

typedef struct qcclStream *qcclStream_t;
typedef struct qcclEvent *qcclEvent_t;

/* priority 0 is the highest, QCCL_PRIORITY_LOWEST the lowest: between chunks, a collective on a
 * stream of lower priority lets those of higher priority go first, as long as they get on.
 * Returns qcclInvalidArgument, qcclOutOfMemory, qcclSystemError (no thread). */
#define QCCL_PRIORITY_LOWEST 7
QCCL_API qcclResult_t qcclStreamCreate(qcclStream_t *stream, int priority);
/* Waits for the work in the queue, then frees the stream; NULL is allowed.  Returns what
 * qcclStreamSynchronize does; where that is refused, in a function that the stream runs, nothing is
 * freed. */
QCCL_API qcclResult_t qcclStreamDestroy(qcclStream_t stream);
/* Returns when everything put on the stream so far is done.  The first error of the stream's work
 * stays: this and every later call returns it, with its sentence.  In a function that the stream
 * runs it would wait for itself: qcclInvalidUsage. */
QCCL_API qcclResult_t qcclStreamSynchronize(qcclStream_t stream);
/* qcclInProgress while there is work left, else as qcclStreamSynchronize. */
QCCL_API qcclResult_t qcclStreamQuery(qcclStream_t stream);
/* Runs function(argument) on the stream's worker, in its order.  It may block, but must not wait
 * for itself or for what comes after it on its stream.  What it returns is the work's result. */
QCCL_API qcclResult_t qcclStreamLaunch(qcclStream_t stream, qcclResult_t (*function)(void *),
                                       void *argument);

QCCL_API qcclResult_t qcclEventCreate(qcclEvent_t *event);
/* Waits for nothing: streams that wait for the event keep what they need of it; NULL is allowed. */
QCCL_API qcclResult_t qcclEventDestroy(qcclEvent_t event);
/* The event stands for the work put on the stream so far; an earlier record is replaced for those
 * who wait from now on.  An event that was never recorded is complete.  stream NULL: complete. */
QCCL_API qcclResult_t qcclEventRecord(qcclEvent_t event, qcclStream_t stream);
QCCL_API qcclResult_t qcclEventSynchronize(qcclEvent_t event);
/* qcclSuccess when complete, qcclInProgress when not. */
QCCL_API qcclResult_t qcclEventQuery(qcclEvent_t event);
/* What is put on the stream from now on waits for the event as it is recorded now. */
QCCL_API qcclResult_t qcclStreamWaitEvent(qcclStream_t stream, qcclEvent_t event);

/* ------------------------------------------------------------------ groups and buckets */

/* Collectives that this thread calls between the two are checked and collected, and start at the
 * outermost qcclGroupEnd; groups nest.  Calls of one communicator that follow each other with the
 * same collective, type, reduction, tensor number and stream become one message, as if their
 * tensors lay behind one another: min= and groups of values that share a scale see the whole, and
 * error feedback belongs to the whole.  Calls of QCCL_GROUP_BYTES or more (all shards) stay alone,
 * no message is merged beyond that, and what the policy never compresses is not merged.  Calls of
 * several communicators run beside each other, so one thread may serve several ranks.
 * All ranks group alike (QCCL_CHECK=1 compares it; a difference breaks the communicator).  No call
 * may read or write what another one of its group writes.  Communicators and buffers belong to the
 * library until qcclGroupEnd returns, or the streams are done; everything that is no collective
 * happens at once, before the group.
 * qcclGroupEnd blocks for calls without a stream.  It returns the first error of the group, that of
 * a call that was refused included; the other calls run nevertheless.  qcclInvalidUsage: no start.
 * A call for which there is no memory aborts its communicator. */
#define QCCL_GROUP_BYTES (4u << 20)
QCCL_API qcclResult_t qcclGroupStart(void);
QCCL_API qcclResult_t qcclGroupEnd(void);

/* Collects all-reduces of tensors in the order in which a backward pass finishes them, and starts
 * them as one message, merged as in a group, whenever bytes or more have come together: on stream,
 * or with NULL in qcclBucketerAdd, which then blocks.  It merges whatever the policy, and takes no
 * part in groups.  Used by one thread at a time; every rank adds the same counts in the same
 * order. */
typedef struct qcclBucketer *qcclBucketer_t;
QCCL_API qcclResult_t qcclBucketerCreate(qcclBucketer_t *bucketer, qcclComm_t comm, size_t bytes,
                                         qcclDataType_t datatype, qcclRedOp_t op, void *stream);
/* sendbuff and recvbuff as in qcclAllReduce, apart from those of other tensors; they belong to the
 * library until the next qcclBucketerFlush has returned and the stream is done.  Error feedback
 * keeps the i-th message after a flush under tensor number t + i, t of qcclCommSetTensor. */
QCCL_API qcclResult_t qcclBucketerAdd(qcclBucketer_t bucketer, const void *sendbuff, void *recvbuff,
                                      size_t count);
/* Starts what is left. */
QCCL_API qcclResult_t qcclBucketerFlush(qcclBucketer_t bucketer);
/* Flushes, waits for the stream and frees the bucketer; NULL is allowed. */
QCCL_API qcclResult_t qcclBucketerDestroy(qcclBucketer_t bucketer);

/* The timeline of QCCL_TRACE=out.json (docs/timeline.md) shows what one thread does for a rank
 * between these two calls, which nest.  name is copied.  qcclInvalidArgument: NULL, or rank < 0. */
QCCL_API qcclResult_t qcclTraceBegin(int rank, const char *name);
QCCL_API qcclResult_t qcclTraceEnd(int rank);

/* ------------------------------------------------------------------ codecs on their own
 *
 * Pure functions, usable from any thread with at least 64 KiB of stack left.  QCCL_CHECK=1 adds a
 * checksum over scales and codes; decoding checks it where it is there.  values are of type fp32,
 * bf16 or fp16 at any address; a message starts at a multiple of 8 bytes (64 is faster) and has the
 * layout of docs/wire-format.md. */

typedef enum {
    qcclFormatNone = 0, /* fp32 as it is */
    qcclFormatBf16 = 1,
    qcclFormatInt8 = 2,
    qcclFormatInt4 = 3,
    qcclFormatInt2 = 4,
    qcclFormatSr1 = 5,   /* 1 bit, stochastic: unbiased */
    qcclFormatSign1 = 6, /* 1 bit, sign and mean magnitude: for error feedback */
    qcclNumFormats = 7
} qcclFormat_t;

/* A codec, as qcclCodecParse makes it. */
typedef struct {
    uint8_t format;    /* qcclFormat_t */
    uint8_t nearest;   /* 1: round to nearest; 0: stochastically */
    uint8_t feedback;  /* 1: error feedback in collectives */
    uint8_t reserved;  /* 0 */
    uint16_t hadamard; /* order of the Hadamard transform: 0, 32, 64 or 128 */
    uint16_t group;    /* elements that share a scale */
} qcclCodec_t;

/* Where in a computation values stand; it determines the random numbers (docs/numerics.md). */
typedef struct {
    uint64_t seed;
    uint32_t segment;  /* the owner's rank */
    uint32_t sequence; /* the communicator's count of compressed calls */
    uint32_t rank;     /* the rank that quantizes, below 2^24 */
    uint32_t stage;    /* 0 contribution to a sum, 1 result that is gathered, 2 first hop inside a
                          node; below 128 */
    uint64_t first; /* the segment's element that is this message's first; a multiple of 128 and of
                       the group */
} qcclPosition_t;

/* Parses "int4", "int8:group=64", "int4:group=128,hadamard=32", "sr1", "int4:round=nearest", ...
 * Returns qcclInvalidArgument; the sentence names the position and what was expected. */
QCCL_API qcclResult_t qcclCodecParse(const char *text, qcclCodec_t *codec);

/* Writes the canonical text of a codec, QCCL_CODEC_MAX bytes at most with its zero. */
#define QCCL_CODEC_MAX 96
QCCL_API qcclResult_t qcclCodecPrint(const qcclCodec_t *codec, char *text, size_t capacity);

/* *bytes = size of a message of count values: header, scales and codes. */
QCCL_API qcclResult_t qcclEncodedBytes(const qcclCodec_t *codec, size_t count, size_t *bytes);

/* Encodes count values into message.  residual: NULL, or count floats (aligned to 4 bytes) of error
 * feedback in the codec's domain (after the Hadamard transform), added to the values and replaced
 * by what was lost. */
QCCL_API qcclResult_t qcclEncode(const qcclCodec_t *codec, const qcclPosition_t *position,
                                 const void *values, qcclDataType_t datatype, size_t count,
                                 float *residual, void *message, size_t capacity);

/* Decodes a message of count values into values; add = 1 adds to the values that are there, in
 * fp32. qcclCorruptMessage when the bytes are no message, or of another count; values are then left
 * alone. */
QCCL_API qcclResult_t qcclDecode(const void *message, size_t bytes, void *values,
                                 qcclDataType_t datatype, size_t count, int add);

/* values = weight * (messages[0] + messages[1] + ...), added in fp32 in that order, then weighted.
 * All messages have equal counts and Hadamard orders; nmessages >= 1. */
QCCL_API qcclResult_t qcclDecodeSum(const void *const *messages, const size_t *bytes, int nmessages,
                                    float weight, void *values, qcclDataType_t datatype,
                                    size_t count);

/* The same sum, encoded again with codec at position, in one pass. */
QCCL_API qcclResult_t qcclDecodeSumEncode(const void *const *messages, const size_t *bytes,
                                          int nmessages, float weight, const qcclCodec_t *codec,
                                          const qcclPosition_t *position, size_t count,
                                          void *message, size_t capacity);

/* Kernel rows: "avx512", "avx2", "c".  qcclCpuName(i) is the i-th that this processor can run, best
 * first, NULL after the last.  qcclSetCpu caps the choice for the whole process, as QCCL_CPU in the
 * environment does; NULL takes the cap away.  Every row computes the same bits. */
QCCL_API const char *qcclCpuName(int index);
QCCL_API qcclResult_t qcclSetCpu(const char *name);

#ifdef __cplusplus
}
#endif

#include "qccl/qccl_training.h"
#endif
