/* See harness.h. */
#include "tests/harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64, GUARD = 0xa5, FRESH = 0x5a };

/* ------------------------------------------------------------------ teams */

bool team_open_config(struct team *team, int nranks, const qcclConfig_t *config)
{
    memset(team, 0, sizeof *team);
    team->nranks = nranks;
    team->result[0] = qcclCommInitThreads(team->comm, nranks, config);
    if (team->result[0] != qcclSuccess)
        snprintf(team->sentence[0], SENTENCE_BYTES, "%s", qcclGetLastError());
    return team->result[0] == qcclSuccess;
}

bool team_open(struct team *team, int nranks, const char *policy)
{
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = policy;
    config.timeout = 60;
    return team_open_config(team, nranks, &config);
}

void team_close(struct team *team)
{
    for (int r = 0; r < team->nranks; r++) {
        qcclCommDestroy(team->comm[r]);
        team->comm[r] = NULL;
    }
}

struct errand {
    struct team *team;
    int rank;
    rank_fn *fn;
    void *arg;
};

static void *run_errand(void *argument)
{
    struct errand *e = argument;
    struct team *team = e->team;
    qcclResult_t result = e->fn(team, e->rank, e->arg);
    team->result[e->rank] = result;
    snprintf(team->sentence[e->rank], SENTENCE_BYTES, "%s",
             result == qcclSuccess ? "" : qcclGetLastError());
    return NULL;
}

bool team_run(struct team *team, rank_fn *fn, void *arg)
{
    pthread_t threads[RANKS_MAX];
    struct errand errands[RANKS_MAX];
    for (int r = 0; r < team->nranks; r++) {
        errands[r] = (struct errand){.team = team, .rank = r, .fn = fn, .arg = arg};
        if (pthread_create(&threads[r], NULL, run_errand, &errands[r]) != 0)
            abort();
    }
    for (int r = 0; r < team->nranks; r++)
        pthread_join(threads[r], NULL);
    return team_all(team, qcclSuccess);
}

bool team_all(const struct team *team, qcclResult_t result)
{
    for (int r = 0; r < team->nranks; r++)
        if (team->result[r] != result)
            return false;
    return true;
}

bool team_all_say(const struct team *team, const char *text)
{
    for (int r = 0; r < team->nranks; r++)
        if (!strstr(team->sentence[r], text))
            return false;
    return true;
}

const char *team_report(const struct team *team)
{
    static char text[RANKS_MAX * SENTENCE_BYTES];
    size_t used = 0;
    text[0] = 0;
    for (int r = 0; r < team->nranks && used < sizeof text; r++)
        used += (size_t)snprintf(text + used, sizeof text - used, "\n  rank %d: %d %s", r,
                                 (int)team->result[r], team->sentence[r]);
    return text;
}

/* ------------------------------------------------------------------ trials */

static bool gathers(qcclColl_t collective)
{
    return collective == qcclCollAllGather || collective == qcclCollAllGatherDelta;
}

static bool is_delta(const struct trial *t)
{
    return t->call.collective == qcclCollAllGatherDelta;
}

/* A buffer between guards. */
static unsigned char *guarded(size_t bytes, size_t misaligned, void **inner)
{
    unsigned char *memory = aligned_alloc(64, (bytes + 3 * GUARD_BYTES) / 64 * 64);
    if (!memory)
        return NULL;
    memset(memory, GUARD, bytes + 2 * GUARD_BYTES);
    *inner = memory + GUARD_BYTES + misaligned;
    memset(*inner, FRESH, bytes);
    return memory;
}

/* What recv is before the call: fresh bytes, or a delta's replica. */
static void fill_recv(const struct trial *t, void *recv)
{
    memset(recv, FRESH, t->recv_bytes);
    if (is_delta(t))
        input_fill(recv, t->recv_elems, t->call.type, t->call.pattern, t->call.input_seed, 0);
}

/* A delta's master is not the replica of any rank. */
static void fill_send(const struct trial *t, int rank, void *send)
{
    const struct call *c = &t->call;
    input_fill(send, t->send_elems, is_delta(t) ? qcclFloat32 : c->type, c->pattern, c->input_seed,
               rank + is_delta(t));
}

static bool open_rank(struct trial *t, int rank)
{
    const struct call *c = &t->call;
    size_t larger = t->send_bytes > t->recv_bytes ? t->send_bytes : t->recv_bytes;
    size_t own = (size_t)rank * c->count * qcclTypeBytes(c->type);
    void *whole = NULL;
    if (c->in_place) {
        t->memory[rank][0] = guarded(larger, c->misaligned, &whole);
        t->send[rank] = gathers(c->collective) ? (char *)whole + own : whole;
        t->recv[rank] = c->collective == qcclCollReduceScatter ? (char *)whole + own : whole;
    } else {
        t->memory[rank][0] = guarded(t->send_bytes, c->misaligned, &t->send[rank]);
        t->memory[rank][1] = guarded(t->recv_bytes, c->misaligned, &t->recv[rank]);
        if (!t->memory[rank][1])
            return false;
    }
    if (!t->memory[rank][0])
        return false;
    if (!c->in_place)
        fill_recv(t, t->recv[rank]);
    fill_send(t, rank, t->send[rank]);
    return true;
}

bool trial_open(struct trial *t, int nranks, const struct call *call)
{
    size_t n = (size_t)nranks, type_bytes = qcclTypeBytes(call->type);
    memset(t, 0, sizeof *t);
    t->call = *call;
    t->nranks = nranks;
    t->send_elems = call->count * (call->collective == qcclCollReduceScatter ? n : 1);
    t->recv_elems = call->count * (gathers(call->collective) ? n : 1);
    t->send_bytes = t->send_elems * (is_delta(t) ? sizeof(float) : type_bytes);
    t->recv_bytes = t->recv_elems * type_bytes;
    bool opened = true;
    for (int r = 0; r < nranks && opened; r++)
        opened = open_rank(t, r);
    return opened;
}

void trial_close(struct trial *t)
{
    for (int r = 0; r < t->nranks; r++) {
        free(t->memory[r][0]);
        free(t->memory[r][1]);
    }
}

qcclResult_t trial_call(struct trial *t, struct team *team, int rank)
{
    const struct call *c = &t->call;
    qcclComm_t comm = team->comm[rank];
    switch (c->collective) {
    case qcclCollAllReduce:
        return qcclAllReduce(t->send[rank], t->recv[rank], c->count, c->type, c->op, comm, NULL);
    case qcclCollReduceScatter:
        return qcclReduceScatter(t->send[rank], t->recv[rank], c->count, c->type, c->op, comm,
                                 NULL);
    case qcclCollAllGather:
        return qcclAllGather(t->send[rank], t->recv[rank], c->count, c->type, comm, NULL);
    default:
        return qcclAllGatherDelta(t->send[rank], t->recv[rank], c->count, c->type, comm, NULL);
    }
}

static qcclResult_t call_rank(struct team *team, int rank, void *trial)
{
    return trial_call(trial, team, rank);
}

bool trial_run(struct trial *t, struct team *team)
{
    return team_run(team, call_rank, t);
}

static bool is_guard(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != GUARD)
            return false;
    return true;
}

static bool guards_of(const unsigned char *memory, size_t bytes, size_t misaligned)
{
    size_t before = GUARD_BYTES + misaligned;
    return is_guard(memory, before) && is_guard(memory + before + bytes, GUARD_BYTES - misaligned);
}

static bool is_as_filled(const struct trial *t, int rank, bool send)
{
    size_t bytes = send ? t->send_bytes : t->recv_bytes;
    unsigned char *fresh = malloc(bytes + 1);
    if (!fresh)
        abort();
    if (send)
        fill_send(t, rank, fresh);
    else
        fill_recv(t, fresh);
    bool same = memcmp(fresh, send ? t->send[rank] : t->recv[rank], bytes) == 0;
    free(fresh);
    return same;
}

bool trial_recv_untouched(const struct trial *t, int rank)
{
    return is_as_filled(t, rank, t->call.in_place);
}

bool trial_guards_hold(const struct trial *t)
{
    size_t larger = t->send_bytes > t->recv_bytes ? t->send_bytes : t->recv_bytes;
    for (int r = 0; r < t->nranks; r++) {
        size_t off = t->call.misaligned;
        if (!guards_of(t->memory[r][0], t->call.in_place ? larger : t->send_bytes, off))
            return false;
        if (!t->call.in_place &&
            (!guards_of(t->memory[r][1], t->recv_bytes, off) || !is_as_filled(t, r, true)))
            return false;
    }
    return true;
}

int trial_differs(const struct trial *t)
{
    if (t->call.collective == qcclCollReduceScatter)
        return 0;
    for (int r = 1; r < t->nranks; r++)
        if (memcmp(t->recv[r], t->recv[0], t->recv_bytes) != 0)
            return r;
    return 0;
}

void *trial_result(const struct trial *t, size_t *bytes)
{
    int shards = t->call.collective == qcclCollReduceScatter ? t->nranks : 1;
    *bytes = t->recv_bytes * (size_t)shards;
    char *whole = malloc(*bytes + 1);
    for (int r = 0; whole && r < shards; r++)
        memcpy(whole + (size_t)r * t->recv_bytes, t->recv[r], t->recv_bytes);
    return whole;
}

/* ------------------------------------------------------------------ one call from setup to result
 */

static qcclResult_t set_sequence(struct team *team, int rank, void *sequence)
{
    return qcclCommSetSequence(team->comm[rank], *(uint32_t *)sequence);
}

static void *trial_outcome(struct team *team, struct trial *t, size_t *bytes, char *message,
                           size_t message_bytes)
{
    if (!trial_run(t, team)) {
        snprintf(message, message_bytes, "%s", team_report(team));
        return NULL;
    }
    if (trial_differs(t)) {
        snprintf(message, message_bytes, "rank %d has other bits than rank 0", trial_differs(t));
        return NULL;
    }
    if (!trial_guards_hold(t)) {
        snprintf(message, message_bytes, "bytes around the buffers, or the input, were written");
        return NULL;
    }
    return trial_result(t, bytes);
}

void *team_call(struct team *team, const struct call *call, uint32_t sequence, size_t *bytes,
                char *message, size_t message_bytes)
{
    struct trial trial = {.nranks = 0};
    void *result = NULL;
    message[0] = 0;
    if (!team_run(team, set_sequence, &sequence))
        snprintf(message, message_bytes, "%s", team_report(team));
    else if (!trial_open(&trial, team->nranks, call))
        snprintf(message, message_bytes, "no memory for the buffers");
    else
        result = trial_outcome(team, &trial, bytes, message, message_bytes);
    trial_close(&trial);
    return result;
}

void *run_once(const struct setup *setup, const struct call *call, size_t *bytes, char *message,
               size_t message_bytes)
{
    struct team team;
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = setup->policy;
    config.nodes = setup->nodes;
    config.seed = setup->seed;
    config.timeout = 60;
    if (!team_open_config(&team, setup->nranks, &config)) {
        snprintf(message, message_bytes, "%s", team.sentence[0]);
        return NULL;
    }
    void *result = team_call(&team, call, setup->sequence, bytes, message, message_bytes);
    team_close(&team);
    return result;
}
