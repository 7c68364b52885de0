/* Making, breaking and freeing communicators, and what they keep between calls. */
#include "collectives/comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/trace.h"

#define TIMEOUT_DEFAULT 600.0

qcclResult_t qccl_comm_usable(const struct qcclComm *comm, const char *call)
{
    CHECK_ARG(comm, "%s: the communicator is NULL", call);
    int broken = atomic_load(&comm->broken);
    if (!broken)
        return qcclSuccess;
    return qccl_fail((qcclResult_t)broken, "%s: the communicator is broken: %s", call,
                     comm->broken_sentence);
}

void qccl_comm_close(struct qcclComm *comm, qcclResult_t error, const char *sentence)
{
    pthread_mutex_lock(&comm->lock);
    bool first = atomic_load(&comm->broken) == qcclSuccess;
    if (first) { /* the sentence first: who sees the error reads it */
        snprintf(comm->broken_sentence, sizeof comm->broken_sentence, "%s", sentence);
        atomic_store(&comm->broken, (int)error);
    }
    pthread_mutex_unlock(&comm->lock);
    if (first)
        qccl_log(QCCL_LOG_WARN, qccl_rank(comm), "the communicator is broken: %s", sentence);
}

void qccl_comm_give_up(struct qcclComm *comm, qcclResult_t error, const char *sentence)
{
    const qcclTransport_t *mover = &comm->transport.mover;
    qccl_comm_close(comm, error, sentence);
    if (mover->abort)
        mover->abort(mover->context);
}

qcclResult_t qccl_comm_lose(struct qcclComm *comm, qcclResult_t error)
{
    qccl_comm_give_up(comm, error, qccl_last_error());
    return error;
}

qcclResult_t qccl_comm_break(struct qcclComm *comm, qcclResult_t error)
{
    const qcclTransport_t *mover = &comm->transport.mover;
    qccl_comm_lose(comm, error);
    mover->wait(mover->context, 0); /* so that no buffer is in use any more */
    return qccl_fail((qcclResult_t)atomic_load(&comm->broken), "%s", comm->broken_sentence);
}

/* ------------------------------------------------------------------ configuration */

static qcclResult_t read_config(const qcclConfig_t *given, qcclConfig_t *config)
{
    *config = (qcclConfig_t)QCCL_CONFIG_INITIALIZER;
    if (!given)
        return qcclSuccess;
    CHECK_ARG(given->size >= sizeof given->size && given->size <= 4096,
              "config.size is %zu; set it to sizeof(qcclConfig_t) = %zu", given->size,
              sizeof *given);
    memcpy(config, given, given->size < sizeof *given ? given->size : sizeof *given);
    return qcclSuccess;
}

/* "0,0,1,1": one number a rank. */
static qcclResult_t parse_nodes(const char *text, int *nodes, int nranks)
{
    const char *at = text;
    for (int r = 0; r < nranks; r++) {
        char *end;
        long node = strtol(at, &end, 10);
        bool last = r + 1 == nranks;
        CHECK_ARG(end != at && node >= 0 && node < 1 << 30 && *end == (last ? 0 : ','),
                  "QCCL_NODES=\"%.200s\" is no list of %d node numbers (see \"%.20s\")", text,
                  nranks, at);
        nodes[r] = (int)node;
        at = end + 1;
    }
    return qcclSuccess;
}

static qcclResult_t set_nodes(struct qcclComm *comm, const qcclConfig_t *config)
{
    const char *text = qccl_env_text("QCCL_NODES");
    const int *from = config->nodes ? config->nodes : comm->transport.nodes;
    int nranks = qccl_nranks(comm);
    if (!config->nodes && text)
        return parse_nodes(text, comm->nodes, nranks);
    for (int r = 0; from && r < nranks; r++) {
        CHECK_ARG(from[r] >= 0, "config.nodes[%d] is %d; node numbers begin at 0", r, from[r]);
        comm->nodes[r] = from[r];
    }
    return qcclSuccess;
}

/* QCCL_EXECUTOR: serial or pipelined. */
static qcclResult_t set_executor(struct qcclComm *comm)
{
    const char *text = qccl_env_text("QCCL_EXECUTOR");
    comm->serial = text && strcmp(text, "serial") == 0;
    CHECK_ARG(!text || comm->serial || strcmp(text, "pipelined") == 0,
              "QCCL_EXECUTOR=\"%.100s\" is neither serial nor pipelined", text);
    return qcclSuccess;
}

static qcclResult_t configure(struct qcclComm *comm, const qcclConfig_t *given)
{
    qcclConfig_t config;
    RETURN_IF_FAILED(read_config(given, &config));
    const char *policy = config.policy ? config.policy : qccl_env_text("QCCL_POLICY");
    RETURN_IF_FAILED(qccl_policy_parse(policy ? policy : QCCL_DEFAULT_POLICY, &comm->policy));
    comm->seed = config.seed;
    if (!config.seed)
        RETURN_IF_FAILED(qccl_env_u64("QCCL_SEED", &comm->seed));
    CHECK_ARG(!isnan(config.timeout), "config.timeout is not a number");
    comm->timeout = config.timeout;
    if (config.timeout == 0) {
        comm->timeout = TIMEOUT_DEFAULT;
        RETURN_IF_FAILED(qccl_env_seconds("QCCL_TIMEOUT", &comm->timeout));
    }
    uint64_t chunk = 0;
    RETURN_IF_FAILED(qccl_env_u64("QCCL_CHUNK", &chunk));
    CHECK_ARG(chunk <= 1u << 30, "QCCL_CHUNK=%llu is not in 0..2^30", (unsigned long long)chunk);
    comm->chunk_elems = chunk;
    comm->check = qccl_env_flag("QCCL_CHECK");
    comm->stats_wanted = qccl_env_flag("QCCL_STATS");
    RETURN_IF_FAILED(set_executor(comm));
    return set_nodes(comm, &config);
}

/* ------------------------------------------------------------------ life */

void qccl_comm_forget_plans(struct qcclComm *comm)
{
    for (int i = 0; i < PLANS_CACHED; i++) {
        qccl_plan_free(comm->plans[i]);
        comm->plans[i] = NULL;
    }
}

static void free_comm(struct qcclComm *comm)
{
    qccl_trace_close();
    qccl_comm_forget_plans(comm);
    qccl_feedback_clear(&comm->feedback);
    for (int i = 0; i < POLICIES_MAX; i++)
        qccl_free(comm->registered[i]);
    pthread_cond_destroy(&comm->turned);
    pthread_mutex_destroy(&comm->lock);
    qccl_free(comm->parts);
    qccl_free(comm->messages);
    qccl_free(comm->workspace);
    qccl_free(comm->staging);
    qccl_free(comm->nodes);
    qccl_free(comm);
}

static struct qcclComm *new_comm(const struct transport *transport)
{
    struct qcclComm *comm = qccl_alloc(1, sizeof *comm);
    if (!comm)
        return NULL;
    comm->transport = *transport;
    comm->timeout = TIMEOUT_DEFAULT;
    comm->nodes = qccl_alloc((size_t)transport->mover.nranks, sizeof *comm->nodes);
    if (!comm->nodes) {
        qccl_free(comm);
        return NULL;
    }
    pthread_mutex_init(&comm->lock, NULL);
    pthread_cond_init(&comm->turned, NULL);
    qccl_trace_open();
    return comm;
}

void qccl_comm_log_config(const struct qcclComm *comm)
{
    char policy[QCCL_POLICY_MAX];
    if (!qccl_log_wants(QCCL_LOG_INFO) ||
        qccl_policy_print(&comm->policy, policy, sizeof policy) != qcclSuccess)
        return;
    qccl_log(QCCL_LOG_INFO, qccl_rank(comm),
             "rank %d of %d, node %d, kernels %s, seed %llu, policy \"%s\"", qccl_rank(comm),
             qccl_nranks(comm), comm->nodes[qccl_rank(comm)], qccl_cpu_name(qccl_cpu_level()),
             (unsigned long long)comm->seed, policy);
}

/* A rank whose own configuration is wrong still takes part in the comparison, so that the others
 * learn of it. */
static qcclResult_t compare_configs(struct qcclComm *comm, qcclResult_t own)
{
    struct record record = {""};
    if (own == qcclSuccess)
        qccl_describe_config(comm, &record);
    else
        snprintf(record.text, sizeof record.text, "configuration=wrong on this rank: %.600s",
                 qccl_last_error());
    char sentence[640];
    snprintf(sentence, sizeof sentence, "%s", qccl_last_error());
    qcclResult_t agreed = qccl_agree(comm, "configurations", &record);
    return own == qcclSuccess ? agreed : qccl_fail(own, "%s", sentence);
}

qcclResult_t qccl_comm_create(qcclComm_t *comm, const struct transport *transport,
                              const qcclConfig_t *config, bool compare)
{
    const qcclTransport_t *mover = &transport->mover;
    struct qcclComm *made = new_comm(transport);
    if (!made) {
        if (compare && mover->abort)
            mover->abort(mover->context);
        return qccl_fail(qcclOutOfMemory, "no memory for a communicator");
    }
    qcclResult_t result = configure(made, config);
    if (compare && mover->nranks > 1)
        result = compare_configs(made, result);
    if (result != qcclSuccess) {
        free_comm(made);
        return result;
    }
    made->transport.nodes = NULL; /* copied */
    qccl_comm_log_config(made);
    *comm = made;
    return qcclSuccess;
}

static void close_transport(const struct transport *transport)
{
    if (transport->mover.close)
        transport->mover.close(transport->mover.context);
}

/* Every rank's communicator, or none. */
static qcclResult_t create_thread_comms(qcclComm_t *made, const struct transport *transports,
                                        int nranks, const qcclConfig_t *config)
{
    for (int r = 0; r < nranks; r++) {
        qcclResult_t result = qccl_comm_create(&made[r], &transports[r], config, false);
        if (result == qcclSuccess)
            continue;
        while (r--)
            free_comm(made[r]);
        return result;
    }
    return qcclSuccess;
}

qcclResult_t qcclCommInitThreads(qcclComm_t *comms, int nranks, const qcclConfig_t *config)
{
    CHECK_ARG(comms, "qcclCommInitThreads: comms is NULL");
    CHECK_ARG(nranks >= 1 && nranks <= 4096, "qcclCommInitThreads: nranks %d is not in 1..4096",
              nranks);
    size_t n = (size_t)nranks;
    struct transport *transports = qccl_alloc(n, sizeof *transports);
    qcclComm_t *made = qccl_alloc(n, sizeof *made);
    qcclResult_t result = qcclOutOfMemory;
    if (!transports || !made) {
        qccl_fail(result, "no memory for %d communicators", nranks);
        goto done;
    }
    result = qccl_thread_movers(transports, nranks);
    if (result != qcclSuccess)
        goto done;
    result = create_thread_comms(made, transports, nranks, config);
    if (result == qcclSuccess)
        memcpy(comms, made, n * sizeof *made);
    for (int r = 0; result != qcclSuccess && r < nranks; r++)
        close_transport(&transports[r]);
done:
    qccl_free(made);
    qccl_free(transports);
    return result;
}

qcclResult_t qcclCommInitTransport(qcclComm_t *comm, const qcclTransport_t *transport,
                                   const qcclConfig_t *config)
{
    CHECK_ARG(comm && transport, "qcclCommInitTransport: %s is NULL", comm ? "transport" : "comm");
    CHECK_ARG(
        transport->size == sizeof *transport,
        "qcclCommInitTransport: transport.size is %zu; set it to sizeof(qcclTransport_t) = %zu",
        transport->size, sizeof *transport);
    CHECK_ARG(transport->isend && transport->irecv && transport->wait,
              "qcclCommInitTransport: isend, irecv and wait are needed");
    CHECK_ARG(!transport->wait_for == !transport->test,
              "qcclCommInitTransport: %s is NULL, the other of wait_for and test is not",
              transport->test ? "wait_for" : "test");
    CHECK_ARG(transport->nranks >= 1 && transport->rank >= 0 && transport->rank < transport->nranks,
              "qcclCommInitTransport: rank %d of %d", transport->rank, transport->nranks);
    struct transport made = {.mover = *transport};
    RETURN_IF_FAILED(qccl_comm_create(comm, &made, config, true));
    qccl_trace_rank_file(transport->rank);
    return qcclSuccess;
}

qcclResult_t qcclCommDestroy(qcclComm_t comm)
{
    if (!comm)
        return qcclSuccess;
    struct transport transport = comm->transport;
    qccl_comm_enter(comm); /* behind what streams still have to do */
    if (comm->stats_wanted)
        qccl_stats_print(comm);
    free_comm(comm);
    close_transport(&transport);
    return qcclSuccess;
}

qcclResult_t qcclCommAbort(qcclComm_t comm)
{
    CHECK_ARG(comm, "qcclCommAbort: the communicator is NULL");
    qccl_comm_give_up(comm, qcclAborted, "qcclCommAbort was called");
    return qcclSuccess;
}

/* ------------------------------------------------------------------ turns */

uint64_t qccl_comm_take_turn(struct qcclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    uint64_t turn = comm->turns_taken++;
    pthread_mutex_unlock(&comm->lock);
    return turn;
}

void qccl_comm_await_turn(struct qcclComm *comm, uint64_t turn)
{
    pthread_mutex_lock(&comm->lock);
    while (comm->turns_ended != turn)
        pthread_cond_wait(&comm->turned, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
}

/* What of the statistics the executors do not write. */
static void publish(struct qcclComm *comm)
{
    qcclStats_t *out = &comm->published, before = *out;
    *out = comm->stats;
    out->workspace_bytes = comm->workspace_bytes + comm->staging_bytes;
    out->feedback_bytes = qccl_feedback_memory(&comm->feedback);
    out->slow_calls = before.slow_calls;
    out->slow_ns = before.slow_ns;
    out->slow_exposed_ns = before.slow_exposed_ns;
}

void qccl_comm_end_turn(struct qcclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    publish(comm);
    comm->turns_ended++;
    pthread_cond_broadcast(&comm->turned);
    pthread_mutex_unlock(&comm->lock);
}

void qccl_comm_enter(struct qcclComm *comm)
{
    qccl_comm_await_turn(comm, qccl_comm_take_turn(comm));
}

void qccl_comm_add_slow(struct qcclComm *comm, uint64_t slow_ns, uint64_t exposed_ns)
{
    pthread_mutex_lock(&comm->lock);
    comm->published.slow_calls++;
    comm->published.slow_ns += slow_ns;
    comm->published.slow_exposed_ns += exposed_ns;
    pthread_mutex_unlock(&comm->lock);
}

/* ------------------------------------------------------------------ plans and memory */

static bool same_policy(const struct policy *a, const struct policy *b)
{
    char texts[2][QCCL_POLICY_MAX] = {"", ""};
    qccl_policy_print(a, texts[0], sizeof texts[0]);
    qccl_policy_print(b, texts[1], sizeof texts[1]);
    return strcmp(texts[0], texts[1]) == 0;
}

/* Registers a policy while it is this thread's turn. */
static qcclResult_t add_policy(struct qcclComm *comm, const struct policy *policy, int *id)
{
    int at = 0;
    while (at < POLICIES_MAX && comm->registered[at] && !same_policy(comm->registered[at], policy))
        at++;
    CHECK_ARG(at < POLICIES_MAX, "a communicator keeps %d policies at most", POLICIES_MAX);
    if (!comm->registered[at]) {
        struct policy *copy = qccl_alloc(1, sizeof *copy);
        if (!copy)
            return qccl_fail(qcclOutOfMemory, "no memory for a policy");
        *copy = *policy;
        comm->registered[at] = copy;
    }
    *id = at + 1;
    return qcclSuccess;
}

qcclResult_t qccl_comm_add_policy(struct qcclComm *comm, const struct policy *policy, int *id)
{
    qccl_comm_enter(comm);
    qcclResult_t result = add_policy(comm, policy, id);
    qccl_comm_end_turn(comm);
    return result;
}

static bool same_key(const struct plan_key *a, const struct plan_key *b)
{
    return a->collective == b->collective && a->count == b->count && a->type == b->type &&
           a->op == b->op && a->policy == b->policy;
}

qcclResult_t qccl_comm_plan(struct qcclComm *comm, const struct plan_key *key, struct plan **plan)
{
    int at = 0;
    while (at < PLANS_CACHED - 1 && comm->plans[at] && !same_key(&comm->plans[at]->key, key))
        at++;
    struct plan *found = comm->plans[at];
    if (!found || !same_key(&found->key, key)) {
        struct plan_layout layout = {.rank = qccl_rank(comm),
                                     .nranks = qccl_nranks(comm),
                                     .nodes = comm->nodes,
                                     .chunk_elems = comm->chunk_elems};
        const struct policy *policy =
            key->policy ? comm->registered[key->policy - 1] : &comm->policy;
        RETURN_IF_FAILED(qccl_plan_build(&found, key, &layout, policy));
        qccl_plan_free(comm->plans[at]);
    }
    memmove(&comm->plans[1], &comm->plans[0], (size_t)at * sizeof comm->plans[0]);
    comm->plans[0] = found;
    *plan = found;
    return qcclSuccess;
}

static qcclResult_t grow(uint8_t **memory, size_t *has_bytes, size_t bytes, const char *what)
{
    if (*has_bytes >= bytes)
        return qcclSuccess;
    uint8_t *larger = qccl_alloc(bytes, 1);
    if (!larger)
        return qccl_fail(qcclOutOfMemory, "no memory for %s of %zu bytes", what, bytes);
    qccl_free(*memory);
    *memory = larger;
    *has_bytes = bytes;
    return qcclSuccess;
}

qcclResult_t qccl_comm_workspace(struct qcclComm *comm, size_t bytes)
{
    return grow(&comm->workspace, &comm->workspace_bytes, bytes, "a workspace");
}

qcclResult_t qccl_comm_staging(struct qcclComm *comm, size_t bytes)
{
    return grow(&comm->staging, &comm->staging_bytes, bytes, "merged tensors");
}

qcclResult_t qccl_comm_reserve(struct qcclComm *comm, const struct plan *plan, int sets)
{
    int slots = sets * plan->nslots;
    RETURN_IF_FAILED(qccl_comm_workspace(comm, (size_t)sets * plan->workspace_bytes));
    if (comm->messages_room < slots) {
        struct message *more = qccl_alloc((size_t)slots, sizeof *more);
        if (!more)
            return qccl_fail(qcclOutOfMemory, "no memory to list %d messages", slots);
        qccl_free(comm->messages);
        comm->messages = more;
        comm->messages_room = slots;
    }
    if (comm->parts_room < plan->nparts) {
        struct part *more = qccl_alloc((size_t)plan->nparts, sizeof *more);
        if (!more)
            return qccl_fail(qcclOutOfMemory, "no memory to list %d parts of a sum", plan->nparts);
        qccl_free(comm->parts);
        comm->parts = more;
        comm->parts_room = plan->nparts;
    }
    return qcclSuccess;
}
