/* Plans as data: for many collectives, ranks, node layouts, policies and counts the plans of all
 * ranks are built and run through a simulator that moves no bytes.  It checks that
 *
 *   sends and receives of every pair meet in order, with equal sizes and the same segment, stage
 * and round; a slot is read only when it holds something, and not written while it is being sent or
 * received; every sum has each rank exactly once, every output is written exactly once, and nobody
 * waits for ever; slots do not overlap and hold what goes into them. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "collectives/plan.h"
#include "quant/wire.h"
#include "tests/harness.h"

enum { RANKS = 12, SLOTS = 4 * RANKS, QUEUE = 64, SEGMENTS = RANKS };

struct parcel {
    size_t bytes, first;
    int segment, stage;
    size_t round;
    unsigned ranks; /* whose values are in it, a bit each */
};

struct queue {
    struct parcel parcel[QUEUE];
    int head, tail;
};

struct slot {
    bool full, sending, receiving;
    struct parcel holds;
    int expects_from; /* of a receive */
    size_t expects_bytes;
};

struct rank_state {
    struct plan *plan;
    size_t round;
    int step;
    struct slot slot[SLOTS];
    int receives[SLOTS], nreceives; /* slots, in order of the receives since the last wait */
    unsigned node_sum;
    int written[SEGMENTS]; /* outputs of this round */
};

struct simulation {
    struct rank_state rank[RANKS];
    struct queue queue[RANKS][RANKS];
    int nranks;
    char problem[400];
};

static bool fail(struct simulation *s, int rank, const char *what, long number)
{
    const struct rank_state *r = &s->rank[rank];
    if (!s->problem[0])
        snprintf(s->problem, sizeof s->problem, "rank %d, round %zu, step %d: %s (%ld)", rank,
                 r->round, r->step, what, number);
    return false;
}

/* ------------------------------------------------------------------ steps */

static bool writable(struct simulation *s, int rank, int slot, size_t bytes)
{
    const struct plan *p = s->rank[rank].plan;
    const struct slot *x = &s->rank[rank].slot[slot];
    if (slot < 0 || slot >= p->nslots)
        return fail(s, rank, "no such slot", slot);
    if (x->sending || x->receiving)
        return fail(s, rank, "a slot in flight is written", slot);
    if (bytes > p->slot_offset[slot + 1] - p->slot_offset[slot])
        return fail(s, rank, "a slot is too small", slot);
    return true;
}

static bool readable(struct simulation *s, int rank, int slot, int segment)
{
    const struct slot *x = &s->rank[rank].slot[slot];
    if (!x->full || x->receiving)
        return fail(s, rank, "a slot is read that holds nothing", slot);
    if (x->holds.segment != segment || x->holds.round != s->rank[rank].round)
        return fail(s, rank, "a slot holds another segment or round", slot);
    return true;
}

static bool write_slot(struct simulation *s, int rank, const struct plan_step *step, size_t elems,
                       size_t first, unsigned ranks)
{
    size_t bytes = qccl_wire_bytes(&step->codec, elems);
    if (!writable(s, rank, step->slot, bytes))
        return false;
    struct slot *x = &s->rank[rank].slot[step->slot];
    x->full = true;
    x->holds = (struct parcel){.bytes = bytes,
                               .first = first,
                               .segment = step->segment,
                               .stage = step->stage,
                               .round = s->rank[rank].round,
                               .ranks = ranks};
    return true;
}

static bool do_recv(struct simulation *s, int rank, const struct plan_step *step, size_t elems)
{
    struct rank_state *r = &s->rank[rank];
    size_t bytes = qccl_wire_bytes(&step->codec, elems);
    if (step->peer == rank || step->peer < 0 || step->peer >= s->nranks)
        return fail(s, rank, "receives from", step->peer);
    if (!writable(s, rank, step->slot, bytes))
        return false;
    struct slot *x = &r->slot[step->slot];
    *x = (struct slot){.receiving = true, .expects_from = step->peer, .expects_bytes = bytes};
    x->holds = (struct parcel){.segment = step->segment, .stage = step->stage, .round = r->round};
    r->receives[r->nreceives++] = step->slot;
    return true;
}

static bool do_send(struct simulation *s, int rank, const struct plan_step *step)
{
    struct slot *x = &s->rank[rank].slot[step->slot];
    if (step->peer == rank || step->peer < 0 || step->peer >= s->nranks)
        return fail(s, rank, "sends to", step->peer);
    if (!readable(s, rank, step->slot, step->segment))
        return false;
    struct queue *q = &s->queue[rank][step->peer];
    if (q->tail - q->head == QUEUE)
        return fail(s, rank, "a queue is full", step->peer);
    q->parcel[q->tail++ % QUEUE] = x->holds;
    x->sending = true;
    return true;
}

/* Whether everything that was started can end; then ends it. */
static bool do_wait(struct simulation *s, int rank, bool *blocked)
{
    struct rank_state *r = &s->rank[rank];
    int wanted[RANKS] = {0};
    for (int i = 0; i < r->nreceives; i++)
        wanted[r->slot[r->receives[i]].expects_from]++;
    for (int from = 0; from < s->nranks; from++)
        if (s->queue[from][rank].tail - s->queue[from][rank].head < wanted[from]) {
            *blocked = true;
            return true;
        }
    for (int i = 0; i < r->nreceives; i++) {
        struct slot *x = &r->slot[r->receives[i]];
        struct queue *q = &s->queue[x->expects_from][rank];
        const struct parcel *got = &q->parcel[q->head++ % QUEUE];
        if (got->bytes != x->expects_bytes || got->segment != x->holds.segment ||
            got->stage != x->holds.stage || got->round != r->round)
            return fail(s, rank, "another message arrives than is expected from rank",
                        x->expects_from);
        x->holds = *got;
        x->full = true;
        x->receiving = false;
    }
    for (int i = 0; i < r->plan->nslots; i++)
        r->slot[i].sending = false;
    r->nreceives = 0;
    return true;
}

static bool do_reduce(struct simulation *s, int rank, const struct plan_step *step, size_t elems,
                      size_t first)
{
    struct rank_state *r = &s->rank[rank];
    unsigned ranks = 0;
    for (int i = 0; i < step->nparts; i++) {
        const struct plan_part *part = &r->plan->parts[step->first_part + i];
        unsigned more = part->kind == PART_INPUT ? 1u << rank : r->node_sum;
        if (part->kind == PART_SLOT) {
            if (!readable(s, rank, part->slot, step->segment))
                return false;
            more = r->slot[part->slot].holds.ranks;
        }
        if (!more || ranks & more)
            return fail(s, rank, "a rank is missing or twice in a sum, ranks",
                        (long)(ranks & more));
        ranks |= more;
    }
    if (step->last && ranks != (1u << s->nranks) - 1)
        return fail(s, rank, "a complete sum has ranks", (long)ranks);
    if (step->target == TO_NODE_SUM)
        r->node_sum = ranks;
    if (step->target == TO_OUTPUT)
        r->written[step->segment]++;
    return step->target != TO_SLOT || write_slot(s, rank, step, elems, first, ranks);
}

static bool do_decode(struct simulation *s, int rank, const struct plan_step *step)
{
    struct rank_state *r = &s->rank[rank];
    if (!readable(s, rank, step->slot, step->segment))
        return false;
    unsigned all =
        r->plan->key.collective == qcclCollAllReduce ? (1u << s->nranks) - 1 : 1u << step->segment;
    if (r->slot[step->slot].holds.ranks != all)
        return fail(s, rank, "an output has ranks", (long)r->slot[step->slot].holds.ranks);
    r->written[step->segment]++;
    return true;
}

static bool do_step(struct simulation *s, int rank, bool *blocked)
{
    struct rank_state *r = &s->rank[rank];
    const struct plan_step *step = &r->plan->steps[r->step];
    size_t first, elems = qccl_plan_chunk(r->plan, step->segment, r->round, &first);
    if (step->kind == STEP_WAIT)
        return do_wait(s, rank, blocked);
    if (!elems)
        return true;
    switch (step->kind) {
    case STEP_RECV:
        return do_recv(s, rank, step, elems);
    case STEP_SEND:
        return do_send(s, rank, step);
    case STEP_ENCODE:
        return write_slot(s, rank, step, elems, first, 1u << rank);
    case STEP_REDUCE:
        return do_reduce(s, rank, step, elems, first);
    default:
        return do_decode(s, rank, step);
    }
}

/* ------------------------------------------------------------------ rounds */

static bool end_round(struct simulation *s, int rank)
{
    struct rank_state *r = &s->rank[rank];
    const struct plan *p = r->plan;
    for (int segment = 0; segment < s->nranks; segment++) {
        size_t first, elems = qccl_plan_chunk(p, segment, r->round, &first);
        bool mine = p->key.collective != qcclCollReduceScatter || segment == rank;
        if (r->written[segment] != (mine && elems))
            return fail(s, rank, "times that an output is written", r->written[segment]);
        r->written[segment] = 0;
    }
    for (int i = 0; i < p->nslots; i++) {
        if (r->slot[i].receiving)
            return fail(s, rank, "the round ends while a slot is received", i);
        r->slot[i].full = false;
    }
    r->node_sum = 0;
    r->step = 0;
    r->round++;
    return true;
}

/* Runs one rank until it waits or is done; says whether it moved. */
static bool run_rank(struct simulation *s, int rank, bool *moved)
{
    struct rank_state *r = &s->rank[rank];
    while (r->round < r->plan->rounds) {
        bool blocked = false;
        if (!do_step(s, rank, &blocked))
            return false;
        if (blocked)
            return true;
        *moved = true;
        if (++r->step == r->plan->nsteps && !end_round(s, rank))
            return false;
    }
    return true;
}

static bool done(const struct simulation *s)
{
    for (int r = 0; r < s->nranks; r++)
        if (s->rank[r].round < s->rank[r].plan->rounds)
            return false;
    return true;
}

static bool simulate(struct simulation *s)
{
    for (bool moved = true; moved && !done(s);) {
        moved = false;
        for (int r = s->nranks; r--;) /* downwards: the order of the ranks must not matter */
            if (!run_rank(s, r, &moved))
                return false;
    }
    if (!done(s))
        return fail(s, 0, "all ranks wait", 0);
    for (int a = 0; a < s->nranks; a++)
        for (int b = 0; b < s->nranks; b++)
            if (s->queue[a][b].head != s->queue[a][b].tail)
                return fail(s, a, "a message is never received by rank", b);
    return true;
}

/* ------------------------------------------------------------------ geometry */

static bool check_slots(struct simulation *s, int rank)
{
    const struct plan *p = s->rank[rank].plan;
    for (int i = 0; i < p->nslots; i++)
        if (p->slot_offset[i] % 64 || p->slot_offset[i + 1] < p->slot_offset[i])
            return fail(s, rank, "a slot begins at", (long)p->slot_offset[i]);
    if (p->slot_offset[p->nslots] > p->node_sum_offset || p->node_sum_offset > p->workspace_bytes)
        return fail(s, rank, "slots end behind the workspace of", (long)p->workspace_bytes);
    for (int segment = 0; segment < s->nranks && p->two_level; segment++) {
        size_t first, elems = qccl_plan_chunk(p, segment, 0, &first);
        if (p->workspace_bytes - p->node_sum_offset < elems * sizeof(float))
            return fail(s, rank, "no room for a node sum", (long)elems);
    }
    return p->nslots <= SLOTS || fail(s, rank, "more slots than the test knows", p->nslots);
}

/* Chunks of a segment follow one another and cover it; segments cover the message. */
static bool check_cover(struct simulation *s, int rank)
{
    const struct plan *p = s->rank[rank].plan;
    size_t total = 0;
    for (int segment = 0; segment < s->nranks; segment++) {
        size_t at = 0, first;
        for (size_t round = 0; round < p->rounds; round++) {
            size_t elems = qccl_plan_chunk(p, segment, round, &first);
            if (elems && (first != at || first % 128 || elems > p->chunk_elems))
                return fail(s, rank, "a chunk does not follow the one before", (long)first);
            at += elems;
        }
        if (p->key.collective != qcclCollAllReduce && at != p->key.count)
            return fail(s, rank, "a shard has elements", (long)at);
        if (p->key.collective == qcclCollAllReduce && at && qccl_plan_input(p, segment) != total)
            return fail(s, rank, "a shard begins at", (long)total);
        total += at;
    }
    if (p->key.collective == qcclCollAllReduce && total != p->key.count)
        return fail(s, rank, "the shards have elements", (long)total);
    return true;
}

/* ------------------------------------------------------------------ building and checking */

struct shape {
    qcclColl_t collective;
    size_t count, chunk;
    const char *policy;
    const int *nodes;
    int nranks;
};

static bool build_all(struct simulation *s, const struct shape *shape)
{
    struct policy policy;
    memset(s, 0, sizeof *s);
    s->nranks = shape->nranks;
    cr_assert_eq(qccl_policy_parse(shape->policy, &policy), qcclSuccess, "%s", qcclGetLastError());
    for (int r = 0; r < shape->nranks; r++) {
        struct plan_key key = {
            .collective = shape->collective, .count = shape->count, .type = qcclFloat32};
        struct plan_layout layout = {
            .rank = r, .nranks = shape->nranks, .nodes = shape->nodes, .chunk_elems = shape->chunk};
        struct plan *plan;
        if (qccl_plan_build(&plan, &key, &layout, &policy) != qcclSuccess)
            return fail(s, r, qcclGetLastError(), 0);
        s->rank[r].plan = plan;
    }
    return true;
}

static void free_all(struct simulation *s)
{
    for (int r = 0; r < s->nranks; r++)
        qccl_plan_free(s->rank[r].plan);
}

static void check_shape(struct simulation *s, const struct shape *shape, bool run)
{
    bool good = build_all(s, shape);
    for (int r = 0; good && r < s->nranks; r++)
        good = check_slots(s, r) && check_cover(s, r);
    if (good && run)
        good = simulate(s);
    cr_expect(good, "collective %d of %zu, %d ranks, chunk %zu, %s: %s", (int)shape->collective,
              shape->count, shape->nranks, shape->chunk, shape->policy, s->problem);
    free_all(s);
}

static const char *const policies[] = {
    "int4",
    "int4:hadamard=32 gather=int8:group=96",
    "int4 intra=int8",
    "none gather=sr1:group=2048 intra=int2:group=32",
    "sign1:feedback=on gather=int4:feedback=on intra=int8:group=64,feedback=on",
};

Test(plans, of_all_ranks_fit_together_for_every_shape)
{
    struct simulation *s = calloc(1, sizeof *s);
    int shapes = 0;
    cr_assert(s);
    for (int nranks = 1; nranks <= RANKS; nranks++)
        for (uint64_t layout = 0; layout < 8; layout++) {
            int nodes[RANKS];
            for (int r = 0; r < nranks; r++)
                nodes[r] = layout == 0   ? 0
                           : layout == 1 ? r
                           : layout == 2 ? r / 2
                           : layout == 3 ? 9 - r / 3
                                         : (int)(input_hash(layout, r, 0) % layout);
            for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
                for (int c = 0; c < qcclNumColls; c++)
                    for (size_t count = 1; count < 20000; count = count * 5 + 1) {
                        struct shape shape = {.collective = (qcclColl_t)c,
                                              .count = count,
                                              .chunk = layout % 2 ? 1 : 1000,
                                              .policy = policies[p],
                                              .nodes = nodes,
                                              .nranks = nranks};
                        if (c >= 2 && p == 3)
                            continue; /* not compressed */
                        check_shape(s, &shape, true);
                        shapes++;
                    }
        }
    free(s);
    cr_expect_gt(shapes, 5000);
    cr_expect_eq(qccl_memory_live(), 0);
}

Test(plans, counts_beyond_2_to_the_31_are_cut_without_a_gap)
{
    static const int nodes[RANKS] = {0, 0, 1, 1, 1};
    static const size_t counts[] = {((size_t)1 << 31) - 1, (size_t)1 << 31, ((size_t)1 << 32) + 1,
                                    ((size_t)1 << 33) + 77, ((size_t)1 << 35) - 3};
    struct simulation *s = calloc(1, sizeof *s);
    cr_assert(s);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (size_t p = 0; p < 3; p++)
            for (int c = 0; c < 2; c++) {
                struct shape shape = {.collective = (qcclColl_t)c,
                                      .count = counts[i],
                                      .chunk = (size_t)1 << 22,
                                      .policy = policies[p],
                                      .nodes = nodes,
                                      .nranks = 5};
                check_shape(s, &shape, true);
            }
    free(s);
}

Test(plans, a_count_that_no_message_could_have_is_refused)
{
    struct plan *plan;
    struct policy policy;
    static const int nodes[2] = {0, 0};
    struct plan_layout layout = {.nranks = 2, .nodes = nodes, .chunk_elems = 1 << 16};
    struct plan_key key = {.count = ((size_t)1 << 47) + 1, .type = qcclFloat32};
    cr_assert_eq(qccl_policy_parse("int4", &policy), qcclSuccess);
    cr_expect_eq(qccl_plan_build(&plan, &key, &layout, &policy), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "too large"), "%s", qcclGetLastError());
    key.count--;
    cr_expect_eq(qccl_plan_build(&plan, &key, &layout, &policy), qcclSuccess, "%s",
                 qcclGetLastError());
    qccl_plan_free(plan);
}

/* ------------------------------------------------------------------ the simulator itself */

/* Breaks one thing in one rank's plan; says whether there was such a thing. */
static bool sabotage(struct plan *plan, int kind)
{
    static const enum step_kind wanted[] = {STEP_WAIT,   STEP_RECV,   STEP_SEND, STEP_ENCODE,
                                            STEP_REDUCE, STEP_DECODE, STEP_SEND};
    for (int i = 0; i < plan->nsteps; i++) {
        struct plan_step *step = &plan->steps[i];
        if (step->kind != wanted[kind])
            continue;
        if (kind == 0)
            *step = (struct plan_step){.kind = STEP_DECODE, .segment = step->segment};
        else if (kind == 1 || kind == 5)
            step->slot = (step->slot + 1) % plan->nslots;
        else if (kind == 2)
            step->peer = (step->peer + 1) % plan->nranks;
        else if (kind == 3)
            step->segment = (step->segment + 1) % plan->nranks;
        else if (kind == 4)
            step->nparts--;
        else
            *step = (struct plan_step){.kind = STEP_WAIT};
        return true;
    }
    return false;
}

Test(plans, that_are_broken_in_one_step_are_found_by_the_simulator)
{
    static const int nodes[] = {0, 0, 1, 1};
    struct simulation *s = calloc(1, sizeof *s);
    cr_assert(s);
    for (size_t p = 0; p < 3; p++)
        for (int kind = 0; kind < 7; kind++)
            for (int rank = 0; rank < 4; rank++) {
                struct shape shape = {.count = 3000,
                                      .chunk = 128,
                                      .policy = policies[p],
                                      .nodes = nodes,
                                      .nranks = 4};
                cr_assert(build_all(s, &shape), "%s", s->problem);
                struct plan *plan = s->rank[rank].plan;
                cr_assert(sabotage(plan, kind));
                cr_expect_not(simulate(s), "%s: sabotage %d on rank %d was not found", policies[p],
                              kind, rank);
                free_all(s);
            }
    free(s);
}

/* ------------------------------------------------------------------ workspace */

static size_t largest_workspace(const struct shape *shape)
{
    struct simulation *s = calloc(1, sizeof *s);
    size_t largest = 0;
    cr_assert(s);
    cr_assert(build_all(s, shape), "%s", s->problem);
    for (int r = 0; r < s->nranks; r++)
        if (s->rank[r].plan->workspace_bytes > largest)
            largest = s->rank[r].plan->workspace_bytes;
    free_all(s);
    free(s);
    return largest;
}

Test(plans, the_workspace_is_at_most_half_of_a_message_of_a_mebibyte_or_more)
{
    static const char *const int4[] = {"int4", "int4:hadamard=32", "int4 gather=int8",
                                       "int4 intra=int8"};
    static const int flat[RANKS], nodes[RANKS] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    for (int nranks = 2; nranks <= 8; nranks++)
        for (size_t p = 0; p < 4; p++)
            for (int c = 0; c < 2; c++)
                for (size_t bytes = (size_t)1 << 20; bytes <= (size_t)1 << 32; bytes *= 4) {
                    struct shape shape = {.collective = (qcclColl_t)c,
                                          .count = bytes / 4 / (c ? (size_t)nranks : 1),
                                          .chunk = 1 << 16,
                                          .policy = int4[p],
                                          .nodes = p == 3 ? nodes : flat,
                                          .nranks = nranks};
                    size_t workspace = largest_workspace(&shape);
                    cr_expect_leq(workspace, bytes / 2,
                                  "%s over %d ranks, collective %d of %zu bytes: workspace %zu",
                                  int4[p], nranks, c, bytes, workspace);
                }
}

Test(plans, the_workspace_does_not_grow_with_the_message_beyond_a_chunk)
{
    static const int flat[RANKS];
    struct shape shape = {.chunk = 1 << 16, .policy = "int4", .nodes = flat, .nranks = 4};
    shape.count = (size_t)1 << 26;
    size_t before = largest_workspace(&shape);
    shape.count = (size_t)1 << 34;
    cr_expect_eq(largest_workspace(&shape), before);
}
