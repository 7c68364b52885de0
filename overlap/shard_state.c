/* Sharded data parallelism: full-precision resync, and the state of a training run.
 *
 * A saved state is a head with a checksum, then for each bucket master, m, v and this rank's part
 * of the weights as all ranks have them, which with weight differences are not the rounded masters.
 */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/status.h"
#include "overlap/shard.h"
#include "overlap/submit.h"

struct head {
    char magic[8];
    uint64_t bytes, checksum; /* of the whole, and of what follows the head */
    uint64_t elems, bucket_elems, step;
    uint32_t rank, nranks, type, version, sequence, reserved;
};

static const char magic[8] = "QCCLSD1";

static bool between_steps(const struct qcclShard *s)
{
    bool any = s->owned || s->pending;
    for (int t = 0; t < s->ntensors; t++)
        any = any || s->finished[t];
    return !any;
}

static qcclResult_t agree(struct qcclShard *s, const char *what, qcclResult_t own)
{
    struct record record = {""};
    char sentence[600];
    snprintf(sentence, sizeof sentence, "%s", qccl_last_error());
    if (own == qcclSuccess)
        snprintf(record.text, sizeof record.text, "%s", what);
    else
        snprintf(record.text, sizeof record.text, "state=wrong on this rank: %s", sentence);
    qccl_comm_enter(s->comm);
    qcclResult_t result = qccl_agree(s->comm, "states", &record);
    qccl_comm_end_turn(s->comm);
    return own == qcclSuccess ? result : qccl_fail(own, "%s", sentence);
}

qcclResult_t qcclShardResync(qcclShard_t shard)
{
    CHECK_ARG(shard, "qcclShardResync: the shard is NULL");
    RETURN_IF_FAILED(qccl_comm_usable(shard->comm, "qcclShardResync"));
    uint64_t version = shard->version;
    const struct plan_key key = {
        .collective = qcclCollAllReduce, .count = 1, .type = qcclUint64, .op = qcclMax};
    RETURN_IF_FAILED(qccl_enter("qcclShardResync", &key, &version, &version, shard->comm, NULL));
    RETURN_IF_FAILED(qccl_shard_gather_masters(shard));
    shard->version = (uint16_t)version;
    return qcclSuccess;
}

/* Bytes of a bucket in a saved state. */
static size_t bucket_bytes(const struct qcclShard *s, const struct shard_bucket *b)
{
    return b->elems * (3 * sizeof(float) + qcclTypeBytes(s->type));
}

static size_t state_bytes(const struct qcclShard *s)
{
    size_t bytes = sizeof(struct head);
    for (int b = 0; b < s->nbuckets; b++)
        bytes += bucket_bytes(s, &s->buckets[b]);
    return bytes;
}

qcclResult_t qcclShardStateBytes(qcclShard_t shard, size_t *bytes)
{
    CHECK_ARG(shard && bytes, "qcclShardStateBytes: %s is NULL", shard ? "bytes" : "shard");
    *bytes = state_bytes(shard);
    return qcclSuccess;
}

qcclResult_t qcclShardSave(qcclShard_t shard, void *state, size_t capacity)
{
    CHECK_ARG(shard && state, "qcclShardSave: %s is NULL", shard ? "state" : "shard");
    size_t bytes = state_bytes(shard);
    CHECK_ARG(capacity >= bytes, "qcclShardSave: the state takes %zu bytes, capacity is %zu", bytes,
              capacity);
    if (!between_steps(shard))
        return qccl_fail(qcclInvalidUsage, "qcclShardSave: within a step, or before a flush");
    qccl_shard_settle(shard);
    RETURN_IF_FAILED(qccl_comm_usable(shard->comm, "qcclShardSave"));
    struct head head = {.bytes = bytes,
                        .elems = shard->elems,
                        .bucket_elems = shard->bucket_elems,
                        .step = shard->step,
                        .rank = (uint32_t)qccl_rank(shard->comm),
                        .nranks = (uint32_t)qccl_nranks(shard->comm),
                        .type = (uint32_t)shard->type,
                        .version = shard->version,
                        .sequence = qccl_shard_sequence(shard, NULL)};
    memcpy(head.magic, magic, sizeof magic);
    char *body = (char *)state + sizeof head, *out = body;
    for (int i = 0; i < shard->nbuckets; i++) {
        const struct shard_bucket *b = &shard->buckets[i];
        const void *parts[] = {b->master, b->m, b->v, qccl_shard_own_weights(shard, b)};
        for (int p = 0; p < 4; p++) {
            size_t n = b->elems * (p < 3 ? sizeof(float) : qcclTypeBytes(shard->type));
            memcpy(out, parts[p], n);
            out += n;
        }
    }
    head.checksum = XXH3_64bits(body, bytes - sizeof head);
    memcpy(state, &head, sizeof head);
    return qcclSuccess;
}

static qcclResult_t read_head(const struct qcclShard *s, const char *state, size_t bytes,
                              struct head *head)
{
    if (bytes < sizeof *head)
        return qccl_fail(qcclCorruptMessage,
                         "a saved state of %zu bytes is shorter than its head of %zu", bytes,
                         sizeof *head);
    memcpy(head, state, sizeof *head);
    if (memcmp(head->magic, magic, sizeof magic) != 0 || head->bytes != bytes ||
        head->checksum != XXH3_64bits(state + sizeof *head, bytes - sizeof *head))
        return qccl_fail(qcclCorruptMessage, "a saved state of %zu bytes is damaged", bytes);
    if ((int)head->rank != qccl_rank(s->comm) || (int)head->nranks != qccl_nranks(s->comm) ||
        head->elems != s->elems || head->bucket_elems != s->bucket_elems ||
        head->type != (uint32_t)s->type || bytes != state_bytes(s))
        return qccl_fail(qcclCorruptMessage,
                         "the saved state is of rank %u of %u, %llu weights of type %u; this is "
                         "rank %d of %d, %zu of type %d",
                         head->rank, head->nranks, (unsigned long long)head->elems, head->type,
                         qccl_rank(s->comm), qccl_nranks(s->comm), s->elems, (int)s->type);
    return qcclSuccess;
}

qcclResult_t qcclShardLoad(qcclShard_t shard, const void *state, size_t bytes)
{
    CHECK_ARG(shard && state, "qcclShardLoad: %s is NULL", shard ? "state" : "shard");
    RETURN_IF_FAILED(qccl_comm_usable(shard->comm, "qcclShardLoad"));
    struct head head = {.step = 0};
    qcclResult_t own = between_steps(shard)
                           ? read_head(shard, state, bytes, &head)
                           : qccl_fail(qcclInvalidUsage, "qcclShardLoad: within a step");
    char what[80];
    snprintf(what, sizeof what, "step=%llu\nversion=%u\nsequence=%u", (unsigned long long)head.step,
             head.version, head.sequence);
    RETURN_IF_FAILED(agree(shard, what, own));
    const char *in = (const char *)state + sizeof head;
    for (int i = 0; i < shard->nbuckets; i++) {
        struct shard_bucket *b = &shard->buckets[i];
        void *parts[] = {b->master, b->m, b->v, qccl_shard_own_weights(shard, b)};
        for (int p = 0; p < 4; p++) {
            size_t n = b->elems * (p < 3 ? sizeof(float) : qcclTypeBytes(shard->type));
            memcpy(parts[p], in, n);
            in += n;
        }
    }
    shard->step = head.step;
    shard->version = (uint16_t)head.version;
    shard->started = true;
    qccl_shard_sequence(shard, &head.sequence);
    return qccl_shard_gather_exact(shard);
}
