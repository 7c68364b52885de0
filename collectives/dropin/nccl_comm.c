/* The communicators of a program that uses NCCL: their names, their pre-multiplied sums, and how
 * they end.
 *
 * Handles are written by NCCL, inside a group only when it ends; a communicator whose birth was not
 * seen is met at its first collective.  Its size is asked of NCCL there too. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "collectives/dropin/nccl_call.h"

static struct nccl_comm *first, **last = &first;
static int numbers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ------------------------------------------------------------------ the list */

/* These three are for who has the lock. */
static struct nccl_comm *find(ncclComm_t handle)
{
    struct nccl_comm *comm = first;
    while (comm && comm->handle != handle)
        comm = comm->next;
    return handle ? comm : NULL;
}

static void drop(ncclComm_t handle)
{
    struct nccl_comm *comm = find(handle);
    if (!comm)
        return;
    comm->handle = NULL;
    while (comm->ops) {
        struct nccl_op *op = comm->ops;
        comm->ops = op->next;
        qccl_free(op);
    }
}

/* NULL: no memory, and the communicator goes uncounted. */
static struct nccl_comm *add(ncclComm_t handle, const char *name)
{
    struct nccl_comm *comm = qccl_alloc(1, sizeof *comm);
    if (!comm)
        return NULL;
    comm->handle = handle;
    comm->number = ++numbers;
    snprintf(comm->name, sizeof comm->name, "%s", name);
    *last = comm;
    last = &comm->next;
    return comm;
}

static bool ask(ncclComm_t handle, int *nranks, int *rank)
{
    typedef ncclResult_t ask_fn(const ncclComm_t, int *);
    static struct nccl_next count = {.name = "ncclCommCount"}, user = {.name = "ncclCommUserRank"};
    ncclResult_t missing;
    ask_fn *ask_count = (ask_fn *)qccl_nccl_next(&count, &missing);
    ask_fn *ask_rank = (ask_fn *)qccl_nccl_next(&user, &missing);
    return ask_count && ask_rank && ask_count(handle, nranks) == ncclSuccess &&
           ask_rank(handle, rank) == ncclSuccess;
}

struct nccl_comm *qccl_nccl_comm(ncclComm_t handle)
{
    int nranks = 0, rank = 0;
    pthread_mutex_lock(&lock);
    struct nccl_comm *comm = find(handle);
    bool known = comm && comm->nranks;
    pthread_mutex_unlock(&lock);
    if (known || !handle)
        return comm;
    if (!ask(handle, &nranks, &rank))
        return NULL;
    pthread_mutex_lock(&lock);
    comm = find(handle);
    if (!comm)
        comm = add(handle, "");
    if (comm) {
        comm->nranks = nranks;
        comm->rank = rank;
    }
    pthread_mutex_unlock(&lock);
    return comm;
}

/* ------------------------------------------------------------------ birth */

/* A handle that NCCL will have written when the group ends. */
struct expected {
    struct expected *next;
    ncclComm_t *slot;
    char name[NCCL_NAME_MAX];
};

static _Thread_local int depth; /* of groups */
static _Thread_local struct expected *expected;

/* The beginning of ncclConfig_t, up to the name.  Programs built with an older header have a
 * shorter struct, whose size says so. */
struct config_head {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
};

static void read_name(const ncclConfig_t *config, ncclComm_t parent, char *name)
{
    struct config_head head = {0};
    if (config)
        memcpy(&head.size, config, sizeof head.size);
    if (head.size >= sizeof head)
        memcpy(&head, config, sizeof head);
    pthread_mutex_lock(&lock);
    const struct nccl_comm *from = config ? NULL : find(parent); /* which the settings come from */
    const char *known = from ? from->name : "";
    snprintf(name, NCCL_NAME_MAX, "%s",
             head.size >= sizeof head && head.comm_name ? head.comm_name : known);
    pthread_mutex_unlock(&lock);
}

static void born(ncclComm_t handle, const char *name)
{
    pthread_mutex_lock(&lock);
    drop(handle); /* the address of one that NCCL itself gave up */
    if (handle)
        add(handle, name);
    pthread_mutex_unlock(&lock);
}

static bool good(ncclResult_t result)
{
    return result == ncclSuccess || result == ncclInProgress;
}

/* All that are expected have been written, if NCCL says so. */
static void settle(ncclResult_t result)
{
    while (expected) {
        struct expected *e = expected;
        expected = e->next;
        if (good(result))
            born(__atomic_load_n(e->slot, __ATOMIC_ACQUIRE), e->name);
        qccl_free(e);
    }
}

void qccl_nccl_created(ncclComm_t *slots, int n, ncclComm_t parent, const ncclConfig_t *config,
                       ncclResult_t result)
{
    struct expected **end = &expected;
    while (*end)
        end = &(*end)->next;
    for (int i = 0; good(result) && i < n; i++) {
        *end = qccl_alloc(1, sizeof **end);
        if (!*end)
            break;
        (*end)->slot = &slots[i];
        read_name(config, parent, (*end)->name);
        end = &(*end)->next;
    }
    if (depth == 0)
        settle(result);
}

void qccl_nccl_group_opened(void)
{
    depth++;
}

void qccl_nccl_group_closed(ncclResult_t result)
{
    if (depth > 0 && --depth == 0)
        settle(result);
}

/* ------------------------------------------------------------------ life and end */

void qccl_nccl_gone(ncclComm_t handle)
{
    pthread_mutex_lock(&lock);
    drop(handle);
    pthread_mutex_unlock(&lock);
}

void qccl_nccl_closing(ncclComm_t handle)
{
    struct nccl_comm *comm = qccl_nccl_comm(handle);
    if (comm)
        comm->closing = true;
}

void qccl_nccl_failed(ncclComm_t handle)
{
    struct nccl_comm *comm = qccl_nccl_comm(handle);
    if (comm)
        comm->failed = true;
}

void qccl_nccl_op_created(ncclRedOp_t op, ncclDataType_t type, ncclComm_t handle)
{
    struct nccl_comm *comm = qccl_nccl_comm(handle);
    struct nccl_op *made = comm ? qccl_alloc(1, sizeof *made) : NULL;
    if (!made)
        return;
    made->op = op;
    made->type = type;
    pthread_mutex_lock(&lock);
    made->next = comm->ops;
    comm->ops = made;
    pthread_mutex_unlock(&lock);
}

void qccl_nccl_op_gone(ncclRedOp_t op, ncclComm_t handle)
{
    pthread_mutex_lock(&lock);
    struct nccl_comm *comm = find(handle);
    struct nccl_op **at = comm ? &comm->ops : NULL;
    while (at && *at && (*at)->op != op)
        at = &(*at)->next;
    if (at && *at) {
        struct nccl_op *old = *at;
        *at = old->next;
        qccl_free(old);
    }
    pthread_mutex_unlock(&lock);
}

bool qccl_nccl_op_known(const struct nccl_comm *comm, ncclRedOp_t op, ncclDataType_t type)
{
    pthread_mutex_lock(&lock);
    const struct nccl_op *known = comm->ops;
    while (known && (known->op != op || known->type != type))
        known = known->next;
    pthread_mutex_unlock(&lock);
    return known != NULL;
}

/* The end of the process, or of this library's time in it. */
__attribute__((destructor)) static void end(void)
{
    qccl_nccl_report(qccl_nccl_settings(), first);
    while (first) {
        struct nccl_comm *comm = first;
        drop(comm->handle);
        qccl_nccl_forget_kinds(comm);
        first = comm->next;
        qccl_free(comm);
    }
    last = &first;
}
