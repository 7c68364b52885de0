/* Ranks compare what they were told: each sends its record to all, as lines of "name=value", and
 * each looks for the first line that differs between rank 0 and another.  All see the same records,
 * so all return the same error. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/status.h"
#include "collectives/comm.h"

/* "name=value" of the line at s, cut to what an error can show. */
static void copy_line(const char *s, char *line, size_t capacity)
{
    size_t n = strcspn(s, "\n");
    n = n < capacity - 1 ? n : capacity - 1;
    memcpy(line, s, n);
    line[n] = 0;
}

/* Where the lines of two texts first differ. */
static void first_difference(const char **a, const char **b)
{
    while (**a && **b) {
        size_t n = strcspn(*a, "\n"), m = strcspn(*b, "\n");
        if (n != m || memcmp(*a, *b, n) != 0)
            return;
        *a += (*a)[n] ? n + 1 : n;
        *b += (*b)[m] ? m + 1 : m;
    }
}

static qcclResult_t compare(const char *what, const struct record *records, int nranks)
{
    for (int r = 1; r < nranks; r++) {
        const char *zero = records[0].text, *other = records[r].text;
        if (strcmp(zero, other) == 0)
            continue;
        first_difference(&zero, &other);
        char a[420], b[420];
        copy_line(zero, a, sizeof a);
        copy_line(other, b, sizeof b);
        return qccl_fail(qcclMismatch, "%s differ: rank 0 has %s, rank %d has %s", what, a, r, b);
    }
    return qcclSuccess;
}

qcclResult_t qccl_agree(struct qcclComm *comm, const char *what, const struct record *own)
{
    int nranks = qccl_nranks(comm);
    if (nranks == 1)
        return qcclSuccess;
    struct record *records = qccl_alloc((size_t)nranks, sizeof *records);
    if (!records) {
        qccl_fail(qcclOutOfMemory, "no memory to compare %s of %d ranks", what, nranks);
        return qccl_comm_break(comm, qcclOutOfMemory);
    }
    qcclResult_t result = qccl_plain_allgather(comm, own, records, sizeof *records, qcclUint8);
    if (result != qcclSuccess)
        result = qccl_comm_break(comm, result);
    for (int r = 0; r < nranks; r++)
        records[r].text[RECORD_BYTES - 1] = 0;
    if (result == qcclSuccess)
        result = compare(what, records, nranks);
    qccl_free(records);
    return result;
}

/* The node list where it is short, else its hash. */
static void describe_nodes(const struct qcclComm *comm, char *text, size_t capacity)
{
    size_t used = 0;
    text[0] = 0;
    for (int r = 0; r < qccl_nranks(comm) && used + 16 < capacity; r++)
        used +=
            (size_t)snprintf(text + used, capacity - used, "%s%d", r ? "," : "", comm->nodes[r]);
    if (used + 16 >= capacity)
        snprintf(
            text, capacity, "hash %016llx",
            (unsigned long long)XXH3_64bits(comm->nodes, (size_t)qccl_nranks(comm) * sizeof(int)));
}

void qccl_describe_config(const struct qcclComm *comm, struct record *record)
{
    char policy[QCCL_POLICY_MAX] = "?", nodes[200];
    qccl_policy_print(&comm->policy, policy, sizeof policy);
    describe_nodes(comm, nodes, sizeof nodes);
    snprintf(record->text, sizeof record->text,
             "version=%d\nwire=%d\npolicy=%s\nseed=%llu\nnodes=%s\nchunk=%zu\nQCCL_CHECK=%d",
             QCCL_VERSION, WIRE_VERSION, policy, (unsigned long long)comm->seed, nodes,
             comm->chunk_elems, comm->check);
}
