/* Builds plans.  Two builders, reduce and gather, serve all collectives; a two-level sum is a
 * reduce with one hop more. */
#include "collectives/plan.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "quant/codec.h"
#include "quant/wire.h"

/* A plan in the making.  Memory failures are remembered, so that builders read straight through. */
struct builder {
    struct plan *plan;
    const struct plan_layout *layout;
    const struct collective_policy *policy;
    size_t *slot_bytes;
    int steps_room, parts_room, slots_room;
    bool failed;
};

/* ------------------------------------------------------------------ growing lists */

static void *grown(struct builder *b, void *list, int used, int *room, size_t size)
{
    if (b->failed || used < *room)
        return list;
    int more = *room ? 2 * *room : 32;
    void *larger = qccl_alloc((size_t)more, size);
    if (!larger) {
        b->failed = true;
        return list;
    }
    if (list)
        memcpy(larger, list, (size_t)used * size);
    qccl_free(list);
    *room = more;
    return larger;
}

static void add_step(struct builder *b, const struct plan_step *step)
{
    struct plan *p = b->plan;
    p->steps = grown(b, p->steps, p->nsteps, &b->steps_room, sizeof *p->steps);
    if (!b->failed)
        p->steps[p->nsteps++] = *step;
}

static void add_part(struct builder *b, struct plan_part part)
{
    struct plan *p = b->plan;
    p->parts = grown(b, p->parts, p->nparts, &b->parts_room, sizeof *p->parts);
    if (!b->failed)
        p->parts[p->nparts++] = part;
}

/* Values of the largest message: groups may force a chunk to a large unit, but not a call. */
static size_t message_elems(const struct plan *p)
{
    return p->chunk_elems < p->key.count ? p->chunk_elems : p->key.count;
}

/* Makes sure a slot exists and holds a chunk's message of the codec. */
static int use_slot(struct builder *b, int slot, const qcclCodec_t *codec)
{
    struct plan *p = b->plan;
    for (; p->nslots <= slot && !b->failed; p->nslots++) {
        b->slot_bytes = grown(b, b->slot_bytes, p->nslots, &b->slots_room, sizeof *b->slot_bytes);
        if (!b->failed)
            b->slot_bytes[p->nslots] = 0;
    }
    size_t bytes = (qccl_wire_bytes(codec, message_elems(p)) + 63) / 64 * 64;
    if (!b->failed && b->slot_bytes[slot] < bytes)
        b->slot_bytes[slot] = bytes;
    return slot;
}

/* ------------------------------------------------------------------ geometry */

static bool splits_count(const struct plan *p)
{
    return p->key.collective == qcclCollAllReduce;
}

static size_t segment_elems(const struct plan *p, int segment)
{
    size_t begin = (size_t)segment * p->shard_elems;
    if (!splits_count(p))
        return p->shard_elems;
    size_t rest = begin < p->key.count ? p->key.count - begin : 0;
    return rest < p->shard_elems ? rest : p->shard_elems;
}

size_t qccl_plan_chunk(const struct plan *p, int segment, size_t round, size_t *first)
{
    size_t elems = segment_elems(p, segment);
    *first = round * p->chunk_elems;
    if (*first >= elems)
        return 0;
    return elems - *first < p->chunk_elems ? elems - *first : p->chunk_elems;
}

size_t qccl_plan_input(const struct plan *p, int segment)
{
    bool own_only =
        p->key.collective == qcclCollAllGather || p->key.collective == qcclCollAllGatherDelta;
    return own_only ? 0 : (size_t)segment * p->shard_elems;
}

size_t qccl_plan_output(const struct plan *p, int segment)
{
    return p->key.collective == qcclCollReduceScatter ? 0 : (size_t)segment * p->shard_elems;
}

/* Shards of an allreduce are whole multiples of every group size in play; chunks also of the tile.
 */
static size_t shard_unit(const struct collective_policy *policy)
{
    size_t unit = qccl_lcm(policy->main.group, policy->gather.group);
    return policy->two_level ? qccl_lcm(unit, policy->intra.group) : unit;
}

/* Bytes of a chunk's largest message. */
static size_t most_bytes(const struct plan *p, const struct collective_policy *policy, size_t elems)
{
    const qcclCodec_t *codecs[] = {&policy->main, &policy->gather, &policy->intra};
    size_t most = 0;
    for (int i = 0; i < (p->two_level ? 3 : 2); i++) {
        size_t bytes = qccl_wire_bytes(codecs[i], elems);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The workspace of the busiest rank, at most: for each round in flight two messages a peer, or
 * three where a rank may head the segments of smaller nodes too.  It must not depend on the rank,
 * since all ranks cut alike. */
static size_t most_workspace(const struct plan *p, const struct collective_policy *policy)
{
    size_t n = (size_t)p->nranks, elems = message_elems(p), most = most_bytes(p, policy, elems);
    return p->two_level ? ROUNDS_TWO_LEVEL * (3 * n * most + elems * sizeof(float))
                        : ROUNDS_FLAT * 2 * n * most;
}

/* The largest power of two of values, so that what all peers have on the way to a rank at once,
 * a message of each round in flight, is about ON_THE_WAY bytes.  Scales and headers may come on
 * top. */
static size_t default_chunk(const struct plan *p, const struct collective_policy *policy)
{
    size_t rounds = p->two_level ? ROUNDS_TWO_LEVEL : ROUNDS_FLAT;
    size_t peers = p->nranks > 1 ? (size_t)p->nranks - 1 : 1, chunk = CHUNK_SMALL;
    while (rounds * peers * most_bytes(p, policy, 2 * chunk) <= ON_THE_WAY + ON_THE_WAY / 4)
        chunk *= 2;
    return chunk;
}

static void set_chunk(struct plan *p, size_t chunk_unit, size_t limit)
{
    size_t whole = (p->shard_elems / chunk_unit + (p->shard_elems % chunk_unit != 0)) * chunk_unit;
    size_t chunk = limit < chunk_unit ? chunk_unit : limit / chunk_unit * chunk_unit;
    p->chunk_elems = whole < chunk ? whole : chunk;
}

/* Chunks are as large as the limit, or smaller, so that the workspace stays below half the message.
 */
static void set_geometry(struct plan *p, const struct collective_policy *policy, size_t limit)
{
    size_t unit = shard_unit(policy), n = (size_t)p->nranks, count = p->key.count;
    size_t chunk_unit = qccl_lcm(unit, TILE_ELEMS);
    p->shard_elems = count;
    if (splits_count(p))
        p->shard_elems = (count / (n * unit) + (count % (n * unit) != 0)) * unit;
    size_t message = count * qcclTypeBytes(p->key.type) * (splits_count(p) ? 1 : n);
    set_chunk(p, chunk_unit, limit ? limit : default_chunk(p, policy));
    while (most_workspace(p, policy) > message / 2 && p->chunk_elems > CHUNK_SMALL &&
           p->chunk_elems > chunk_unit)
        set_chunk(p, chunk_unit, p->chunk_elems / 2);
    p->rounds = p->chunk_elems ? (p->shard_elems + p->chunk_elems - 1) / p->chunk_elems : 0;
}

/* ------------------------------------------------------------------ steps */

static size_t take_residual(struct builder *b, const qcclCodec_t *codec, int segment)
{
    if (!codec->feedback)
        return NO_RESIDUAL;
    size_t at = b->plan->residual_elems;
    b->plan->residual_elems += segment_elems(b->plan, segment);
    return at;
}

static void add_recv(struct builder *b, int segment, int peer, int slot, int stage,
                     const qcclCodec_t *codec)
{
    struct plan_step step = {.kind = STEP_RECV,
                             .segment = segment,
                             .peer = peer,
                             .slot = use_slot(b, slot, codec),
                             .stage = stage,
                             .codec = *codec};
    add_step(b, &step);
}

static void add_send(struct builder *b, int segment, int peer, int slot)
{
    struct plan_step step = {.kind = STEP_SEND, .segment = segment, .peer = peer, .slot = slot};
    add_step(b, &step);
}

static void add_encode(struct builder *b, int segment, int slot, int stage,
                       const qcclCodec_t *codec)
{
    struct plan_step step = {.kind = STEP_ENCODE,
                             .segment = segment,
                             .slot = use_slot(b, slot, codec),
                             .stage = stage,
                             .codec = *codec,
                             .residual = take_residual(b, codec, segment)};
    add_step(b, &step);
}

static void add_wait(struct builder *b)
{
    add_step(b, &(struct plan_step){.kind = STEP_WAIT});
}

/* ------------------------------------------------------------------ nodes */

static int node_size(const struct plan_layout *l, int node)
{
    int size = 0;
    for (int r = 0; r < l->nranks; r++)
        size += l->nodes[r] == node;
    return size;
}

static int local_index(const struct plan_layout *l, int rank)
{
    int index = 0;
    for (int r = 0; r < rank; r++)
        index += l->nodes[r] == l->nodes[rank];
    return index;
}

/* The rank of a node that collects the node's parts of a segment: the one with the owner's local
 * index, modulo the size. */
static int head_of(const struct plan_layout *l, int node, int segment)
{
    int index = local_index(l, segment) % node_size(l, node);
    for (int r = 0;; r++)
        if (l->nodes[r] == node && index-- == 0)
            return r;
}

/* The smallest node number above `node`; -1 after the last. */
static int next_node(const struct plan_layout *l, int node)
{
    int next = -1;
    for (int r = 0; r < l->nranks; r++)
        if (l->nodes[r] > node && (next < 0 || l->nodes[r] < next))
            next = l->nodes[r];
    return next;
}

/* ------------------------------------------------------------------ sums */

/* The sum of parts first_part.. is finished here: to the output, or as a message that is gathered.
 */
static void add_final_reduce(struct builder *b, int first_part, const qcclCodec_t *parts_codec,
                             int result_slot)
{
    struct plan *p = b->plan;
    const qcclCodec_t *gather = &b->policy->gather;
    struct plan_step step = {.kind = STEP_REDUCE,
                             .segment = p->rank,
                             .target = TO_OUTPUT,
                             .parts_codec = *parts_codec,
                             .first_part = first_part,
                             .nparts = p->nparts - first_part,
                             .residual = NO_RESIDUAL,
                             .last = true};
    if (p->key.collective == qcclCollAllReduce) {
        step.target = TO_SLOT;
        step.slot = use_slot(b, result_slot, gather);
        step.stage = STAGE_GATHER;
        step.codec = *gather;
        step.residual = take_residual(b, gather, p->rank);
    }
    add_step(b, &step);
}

/* Slots 0..n-2 receive, n-1..2n-3 send, 2n-2 is the result. */
static int flat_result_slot(const struct plan *p)
{
    return 2 * p->nranks - 2;
}

/* Every rank sends each owner its part; the owner adds in rank order, its own part exact. */
static void build_flat_sum(struct builder *b)
{
    struct plan *p = b->plan;
    const qcclCodec_t *codec = &b->policy->main;
    int n = p->nranks, first_part = p->nparts;
    for (int k = 1; k < n; k++)
        add_recv(b, p->rank, (p->rank + n - k) % n, k - 1, STAGE_SCATTER, codec);
    for (int k = 1; k < n; k++) {
        int peer = (p->rank + k) % n;
        add_encode(b, peer, n - 2 + k, STAGE_SCATTER, codec);
        add_send(b, peer, peer, n - 2 + k);
    }
    add_wait(b);
    for (int r = 0; r < n; r++)
        if (r == p->rank)
            add_part(b, (struct plan_part){.kind = PART_INPUT});
        else
            add_part(b, (struct plan_part){.kind = PART_SLOT, .slot = (p->rank + n - r) % n - 1});
    add_final_reduce(b, first_part, codec, flat_result_slot(p));
}

/* First hop, step 1: this rank's parts go to the heads of its node.  Two ranks may exchange several
 * segments here, and messages between two ranks keep their order, so both sides go through the
 * segments in rising order. */
static int build_intra_exchange(struct builder *b)
{
    const struct plan_layout *l = b->layout;
    const qcclCodec_t *codec = &b->policy->intra;
    int me = l->rank, node = l->nodes[me], slot = 0;
    for (int segment = 0; segment < l->nranks; segment++) {
        int head = head_of(l, node, segment);
        for (int r = 0; head == me && r < l->nranks; r++)
            if (l->nodes[r] == node && r != me)
                add_recv(b, segment, r, slot++, STAGE_INTRA, codec);
    }
    for (int segment = 0; segment < l->nranks; segment++) {
        int head = head_of(l, node, segment);
        if (head == me)
            continue;
        add_encode(b, segment, slot, STAGE_INTRA, codec);
        add_send(b, segment, head, slot++);
    }
    return slot;
}

/* First hop, step 2: the parts of the node for one segment that this rank heads; slots as
 * build_intra_exchange gave them. */
static int add_node_parts(struct builder *b, int slot)
{
    const struct plan_layout *l = b->layout;
    for (int r = 0; r < l->nranks; r++) {
        if (l->nodes[r] != l->nodes[l->rank])
            continue;
        if (r == l->rank)
            add_part(b, (struct plan_part){.kind = PART_INPUT});
        else
            add_part(b, (struct plan_part){.kind = PART_SLOT, .slot = slot++});
    }
    return slot;
}

/* Second hop: node sums of the segments this rank heads go to their owners. */
static int build_node_sums(struct builder *b, int slot)
{
    const struct plan_layout *l = b->layout;
    int me = l->rank, node = l->nodes[me], received = 0;
    for (int segment = 0; segment < l->nranks; segment++) {
        if (head_of(l, node, segment) != me)
            continue;
        struct plan_step step = {.kind = STEP_REDUCE,
                                 .segment = segment,
                                 .target = TO_NODE_SUM,
                                 .parts_codec = b->policy->intra,
                                 .first_part = b->plan->nparts,
                                 .residual = NO_RESIDUAL};
        received = add_node_parts(b, received);
        step.nparts = b->plan->nparts - step.first_part;
        if (segment != me) {
            step.target = TO_SLOT;
            step.stage = STAGE_SCATTER;
            step.codec = b->policy->main;
            step.slot = use_slot(b, slot++, &step.codec);
            step.residual = take_residual(b, &step.codec, segment);
        }
        add_step(b, &step);
        if (segment != me)
            add_send(b, segment, segment, step.slot);
    }
    return slot;
}

/* The rank with the owner's local index collects its node's parts (stage 2); the node sums travel
 * to the owner (stage 0) and are added in node order, its own node's exact. */
static int build_two_level_sum(struct builder *b)
{
    struct plan *p = b->plan;
    const struct plan_layout *l = b->layout;
    int inner = build_intra_exchange(b), slot = inner, own_node = l->nodes[l->rank];
    add_wait(b);
    for (int node = next_node(l, -1); node >= 0; node = next_node(l, node))
        if (node != own_node)
            add_recv(b, p->rank, head_of(l, node, p->rank), slot++, STAGE_SCATTER,
                     &b->policy->main);
    int outer = build_node_sums(b, slot), first_part = p->nparts;
    add_wait(b);
    for (int node = next_node(l, -1), from = inner; node >= 0; node = next_node(l, node))
        if (node == own_node)
            add_part(b, (struct plan_part){.kind = PART_NODE_SUM});
        else
            add_part(b, (struct plan_part){.kind = PART_SLOT, .slot = from++});
    add_final_reduce(b, first_part, &b->policy->main, outer);
    return outer;
}

/* ------------------------------------------------------------------ gathers */

/* Everyone sends its message in result_slot to everyone and decodes all, its own too; other slots
 * are free by now. */
static void build_gather(struct builder *b, int result_slot, const qcclCodec_t *codec)
{
    struct plan *p = b->plan;
    int n = p->nranks;
    for (int k = 1, slot = 0; k < n; k++, slot++) {
        slot += slot == result_slot;
        add_recv(b, (p->rank + n - k) % n, (p->rank + n - k) % n, slot, STAGE_GATHER, codec);
    }
    for (int k = 1; k < n; k++)
        add_send(b, p->rank, (p->rank + k) % n, result_slot);
    struct plan_step decode = {
        .kind = STEP_DECODE, .segment = p->rank, .slot = result_slot, .codec = *codec};
    add_wait(
        b); /* before anything is written: a delta first wants to see every replica's version */
    add_step(b, &decode);
    for (int k = 1, slot = 0; k < n; k++, slot++) {
        slot += slot == result_slot;
        decode.segment = (p->rank + n - k) % n;
        decode.slot = slot;
        add_step(b, &decode);
    }
}

static void build_steps(struct builder *b)
{
    struct plan *p = b->plan;
    if (p->key.collective == qcclCollAllGather || p->key.collective == qcclCollAllGatherDelta) {
        static const qcclCodec_t exact = {.format = qcclFormatNone, .group = GROUP_DEFAULT};
        const qcclCodec_t *codec =
            p->nranks == 1 ? &exact : &b->policy->main; /* one rank: unchanged */
        int own = p->nranks - 1;
        add_encode(b, p->rank, own, STAGE_GATHER, codec);
        build_gather(b, own, codec);
        return;
    }
    int result = flat_result_slot(p);
    if (p->two_level)
        result = build_two_level_sum(b);
    else
        build_flat_sum(b);
    if (p->key.collective == qcclCollAllReduce)
        build_gather(b, result, &b->policy->gather);
}

/* Lays the slots out one after another, and the node sum behind them. */
static void place_slots(struct builder *b)
{
    struct plan *p = b->plan;
    p->slot_offset = qccl_alloc((size_t)p->nslots + 1, sizeof *p->slot_offset);
    if (!p->slot_offset || b->failed) {
        b->failed = true;
        return;
    }
    for (int i = 0; i < p->nslots; i++)
        p->slot_offset[i + 1] = p->slot_offset[i] + b->slot_bytes[i];
    p->node_sum_offset = p->slot_offset[p->nslots];
    p->workspace_bytes = p->node_sum_offset + (p->two_level ? message_elems(p) * sizeof(float) : 0);
}

/* ------------------------------------------------------------------ whole plans */

/* What a direct uncompressed exchange would send: every part, then every result. */
static size_t raw_bytes_of(const struct plan *p)
{
    size_t peers = (size_t)p->nranks - 1, own = segment_elems(p, p->rank), bytes = 0;
    size_t all = splits_count(p) ? p->key.count : p->key.count * (size_t)p->nranks;
    size_t type_bytes = qcclTypeBytes(p->key.type);
    if (p->key.collective == qcclCollAllReduce || p->key.collective == qcclCollReduceScatter)
        bytes += (all - own) * type_bytes;
    if (p->key.collective != qcclCollReduceScatter)
        bytes += own * peers * type_bytes;
    return bytes;
}

qcclResult_t qccl_plan_build(struct plan **plan, const struct plan_key *key,
                             const struct plan_layout *layout, const struct policy *policy)
{
    const struct collective_policy *codecs = &policy->of[key->collective];
    CHECK_ARG(key->count <= ((size_t)1 << 48) / (size_t)layout->nranks, "count %zu is too large",
              key->count);
    struct plan *p = qccl_alloc(1, sizeof *p);
    if (!p)
        return qccl_fail(qcclOutOfMemory, "no memory for a plan");
    p->key = *key;
    p->rank = layout->rank;
    p->nranks = layout->nranks;
    p->two_level = codecs->two_level && (key->collective == qcclCollAllReduce ||
                                         key->collective == qcclCollReduceScatter);
    p->weight = key->op == qcclAvg ? 1.0f / (float)p->nranks : 1.0f;
    set_geometry(p, codecs, layout->chunk_elems);
    struct builder b = {.plan = p, .layout = layout, .policy = codecs};
    build_steps(&b);
    place_slots(&b);
    p->raw_bytes = raw_bytes_of(p);
    qccl_free(b.slot_bytes);
    if (b.failed) {
        qccl_plan_free(p);
        return qccl_fail(qcclOutOfMemory, "no memory for the plan of %zu values over %d ranks",
                         key->count, layout->nranks);
    }
    *plan = p;
    return qcclSuccess;
}

void qccl_plan_free(struct plan *plan)
{
    if (!plan)
        return;
    qccl_free(plan->steps);
    qccl_free(plan->parts);
    qccl_free(plan->slot_offset);
    qccl_free(plan);
}
