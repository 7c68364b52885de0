/* Counts beyond 2^31, for real: about 9 GB of memory and a minute a test, so only with
 * QCCL_TEST_HUGE=1; plans.c tests the arithmetic always.
 *
 * Values are whole numbers from -7 to 7 with a 7 in every group, which int4 keeps exactly, so that
 * every element can be checked. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "tests/harness.h"

enum { RANKS = 2 };
static const size_t TOTAL = ((size_t)1 << 31) + 2 * 77;

struct huge {
    uint16_t *memory[RANKS];
    qcclColl_t collective;
};

/* Element i of a rank. */
static int level(int rank, size_t i)
{
    return i % 32 ? (int)((i * 2654435761u >> 7 ^ (size_t)rank * 5) % 15) - 7 : 7;
}

static uint16_t level_bits(int x)
{
    return (uint16_t)(qccl_float_bits((float)x) >> 16);
}

static bool wanted(void)
{
    const char *text = getenv("QCCL_TEST_HUGE");
    return text && strcmp(text, "1") == 0;
}

static qcclResult_t run_rank(struct team *team, int rank, void *arg)
{
    struct huge *h = arg;
    uint16_t *memory = h->memory[rank];
    size_t shard = TOTAL / RANKS, own = (size_t)rank * shard;
    qcclComm_t comm = team->comm[rank];
    for (size_t i = 0; i < TOTAL; i++)
        memory[i] = level_bits(level(rank, i));
    if (h->collective == qcclCollAllReduce)
        return qcclAllReduce(memory, memory, TOTAL, qcclBfloat16, qcclSum, comm, NULL);
    if (h->collective == qcclCollReduceScatter)
        return qcclReduceScatter(memory, memory + own, shard, qcclBfloat16, qcclSum, comm, NULL);
    for (size_t i = 0; i < TOTAL; i++)
        memory[i] = i / shard == (size_t)rank ? level_bits(level(rank, i - own)) : 0;
    return qcclAllGather(memory + own, memory, shard, qcclBfloat16, comm, NULL);
}

static int expected(qcclColl_t collective, size_t i)
{
    size_t shard = TOTAL / RANKS;
    if (collective == qcclCollAllGather)
        return level((int)(i / shard), i % shard);
    return level(0, i) + level(1, i);
}

static void check_huge(qcclColl_t collective, const char *policy)
{
    struct huge h = {.collective = collective};
    struct team team;
    if (!wanted())
        cr_skip_test("needs 9 GB; QCCL_TEST_HUGE=1 runs it");
    for (int r = 0; r < RANKS; r++) {
        h.memory[r] = malloc(TOTAL * sizeof *h.memory[r]);
        cr_assert(h.memory[r], "no memory");
    }
    cr_assert(team_open(&team, RANKS, policy), "%s", team.sentence[0]);
    cr_assert(team_run(&team, run_rank, &h), "%s", team_report(&team));
    for (int r = 0; r < RANKS; r++) {
        size_t begin = collective == qcclCollReduceScatter ? (size_t)r * (TOTAL / RANKS) : 0;
        size_t end = collective == qcclCollReduceScatter ? begin + TOTAL / RANKS : TOTAL;
        for (size_t i = begin; i < end; i++)
            cr_assert_eq(h.memory[r][i], level_bits(expected(collective, i)),
                         "rank %d, element %zu", r, i);
    }
    team_close(&team);
    for (int r = 0; r < RANKS; r++)
        free(h.memory[r]);
}

Test(huge, an_allgather_to_more_than_2_to_the_31_elements_is_right_in_every_one)
{
    check_huge(qcclCollAllGather, "int4:group=32; min=0");
}

Test(huge, an_allreduce_of_more_than_2_to_the_31_elements_is_right_in_every_one)
{
    check_huge(qcclCollAllReduce, "allreduce: int4:group=32 gather=none; min=0");
}

Test(huge, a_reduce_scatter_of_more_than_2_to_the_31_elements_is_right_in_every_one)
{
    check_huge(qcclCollReduceScatter, "int4:group=32; min=0");
}

Test(huge, an_uncompressed_allreduce_of_more_than_2_to_the_31_elements_is_right_in_every_one)
{
    check_huge(qcclCollAllReduce, "none");
}
