/* Ranks as threads of one process, for every test that is no MPI program.
 *
 * A team is the communicators of all ranks; team_run calls one function on every rank in a thread
 * of its own and keeps each rank's result and sentence, so that the test's own thread does the
 * asserting.  A trial is one collective call with its buffers: filled from a pattern, in place or
 * not, misaligned or not, with guard bytes around what may be written. */
#ifndef QCCL_TESTS_HARNESS_H
#define QCCL_TESTS_HARNESS_H

#include <stdbool.h>

#include "tests/inputs.h"

enum { RANKS_MAX = 16, SENTENCE_BYTES = 1200 };

struct team {
    int nranks;
    qcclComm_t comm[RANKS_MAX];
    qcclResult_t result[RANKS_MAX];
    char sentence[RANKS_MAX][SENTENCE_BYTES]; /* "" after success */
};

typedef qcclResult_t rank_fn(struct team *team, int rank, void *arg);

/* Makes the communicators of a team; keeps result and sentence in place 0. */
bool team_open(struct team *team, int nranks, const char *policy);
bool team_open_config(struct team *team, int nranks, const qcclConfig_t *config);
void team_close(struct team *team);

/* Calls fn on every rank at once; true when all succeeded. */
bool team_run(struct team *team, rank_fn *fn, void *arg);
/* Whether every rank has this result. */
bool team_all(const struct team *team, qcclResult_t result);
/* Whether every rank's sentence contains text. */
bool team_all_say(const struct team *team, const char *text);
/* The results and sentences of all ranks, for the message of a failed assertion; overwritten by the
 * next call. */
const char *team_report(const struct team *team);

struct call {
    qcclColl_t collective;
    size_t count; /* as in the collective */
    qcclDataType_t type;
    qcclRedOp_t op;
    enum pattern pattern;
    uint64_t input_seed;
    bool in_place;
    size_t misaligned; /* bytes by which the buffers miss their alignment */
};

struct trial {
    struct call call;
    int nranks;
    unsigned char *memory[RANKS_MAX][2];
    void *send[RANKS_MAX], *recv[RANKS_MAX];
    size_t send_elems, recv_elems, send_bytes, recv_bytes;
};

/* Buffers of a call, inputs filled in.  A delta's send is the fp32 master, its recv the replica,
 * filled on every rank alike. */
bool trial_open(struct trial *trial, int nranks, const struct call *call);
void trial_close(struct trial *trial);
/* Runs it on the team; true when all ranks succeeded. */
bool trial_run(struct trial *trial, struct team *team);
/* One rank's call. */
qcclResult_t trial_call(struct trial *trial, struct team *team, int rank);
/* Whether the bytes around the buffers, and those of a separate sendbuff, are as trial_open left
 * them. */
bool trial_guards_hold(const struct trial *trial);
/* Whether recvbuff of a rank is as trial_open left it. */
bool trial_recv_untouched(const struct trial *trial, int rank);
/* The first rank whose result has other bits than rank 0's; 0 when there is none.  Always 0 for a
 * reduce-scatter, whose results differ. */
int trial_differs(const struct trial *trial);
/* The whole result: rank 0's, or all shards of a reduce-scatter one after another.  The caller
 * frees it. */
void *trial_result(const struct trial *trial, size_t *bytes);

/* Sets the sequence number and runs a call on a team; returns the result, NULL when anything
 * failed: why is in message. The ranks' bits, the guards and the inputs are checked.  The caller
 * frees the result. */
void *team_call(struct team *team, const struct call *call, uint32_t sequence, size_t *bytes,
                char *message, size_t message_bytes);

/* The same with a team of its own. */
struct setup {
    int nranks;
    const char *policy;
    const int *nodes;
    uint64_t seed;
    uint32_t sequence;
};
void *run_once(const struct setup *setup, const struct call *call, size_t *bytes, char *message,
               size_t message_bytes);

#endif
