/* QCCL_DROPIN: which calls its clauses take, and that every refusal names a position and what was
 * expected there. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "collectives/dropin/rules.h"

static const struct candidate usual = {.collective = qcclCollAllReduce,
                                       .type = qcclFloat32,
                                       .count = 4096,
                                       .nranks = 4,
                                       .name = "MPI_COMM_WORLD",
                                       .site = {"solver", "step"}};

static enum rules_answer ask(const char *text, const struct candidate *call)
{
    struct rules rules;
    cr_assert_eq(qccl_rules_parse(text, &rules), qcclSuccess, "%s: %s", text, qcclGetLastError());
    return qccl_rules_ask(&rules, call);
}

Test(rules_text, clauses_take_and_leave_a_call_by_each_of_their_tests)
{
    static const struct {
        const char *text;
        enum rules_answer answer;
    } cases[] = {
        {.text = "", .answer = RULES_TAKE},
        {.text = "only=allreduce", .answer = RULES_TAKE},
        {.text = "only=reducescatter allgather", .answer = RULES_NOT_ONLY},
        {.text = "only=reducescatter allreduce", .answer = RULES_TAKE},
        {.text = "only=reducescatter; only=allreduce;", .answer = RULES_TAKE},
        {.text = "except=allreduce", .answer = RULES_EXCEPT},
        {.text = "only=allreduce; except=float", .answer = RULES_EXCEPT},
        {.text = "except=double", .answer = RULES_TAKE},
        {.text = "only=double", .answer = RULES_NOT_ONLY},
        {.text = "only=count>=4096", .answer = RULES_TAKE},
        {.text = "only=count>=4K count<=4K", .answer = RULES_TAKE},
        {.text = "only=count>=4097", .answer = RULES_NOT_ONLY},
        {.text = "except=count<=4095", .answer = RULES_TAKE},
        {.text = "except=ranks<=4", .answer = RULES_EXCEPT},
        {.text = "except=ranks<=3", .answer = RULES_TAKE},
        {.text = "only=ranks>=5", .answer = RULES_NOT_ONLY},
        {.text = "only=name=MPI_COMM_WORLD", .answer = RULES_TAKE},
        {.text = "only=name=MPI*", .answer = RULES_TAKE},
        {.text = "only=name=mpi*", .answer = RULES_NOT_ONLY},
        {.text = "only=site=sol*", .answer = RULES_TAKE},
        {.text = "only=site=step", .answer = RULES_TAKE},
        {.text = "except=site=s?ep", .answer = RULES_EXCEPT},
        {.text = "only=site=else", .answer = RULES_NOT_ONLY},
        {.text = "except=allreduce count>=5K", .answer = RULES_TAKE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(ask(cases[i].text, &usual), cases[i].answer, "%s", cases[i].text);
}

Test(rules_text, doubles_are_taken_by_a_clause_that_says_double_alone)
{
    struct candidate call = usual;
    call.type = qcclFloat64;
    cr_expect_eq(ask("", &call), RULES_DOUBLE);
    cr_expect_eq(ask("only=allreduce", &call), RULES_DOUBLE);
    cr_expect_eq(ask("except=float", &call), RULES_DOUBLE);
    cr_expect_eq(ask("only=double allreduce", &call), RULES_TAKE);
    cr_expect_eq(ask("only=double float", &call), RULES_TAKE);
    cr_expect_eq(ask("only=allreduce; only=double", &call), RULES_TAKE);
    cr_expect_eq(ask("only=double count>=1M", &call), RULES_NOT_ONLY);
    cr_expect_eq(ask("only=double; except=double count<=4K", &call), RULES_EXCEPT);
}

Test(rules_text, a_refusal_names_the_position_and_what_was_expected)
{
    static const struct {
        const char *text;
        int position;
        const char *expected;
    } bad[] = {
        {.text = "allreduce", .position = 1, .expected = "only= or except="},
        {.text = ";", .position = 1, .expected = "only= or except="},
        {.text = "only=", .position = 6, .expected = "allreduce, reducescatter"},
        {.text = "only=allreduced", .position = 6, .expected = "allreduce, reducescatter"},
        {.text = "only=allreduce; never=float", .position = 17, .expected = "only= or except="},
        {.text = "only=count=5", .position = 11, .expected = ">= or <="},
        {.text = "only=count>=", .position = 13, .expected = "a number"},
        {.text = "only=count>=-5", .position = 13, .expected = "a number"},
        {.text = "only=count>=5Q", .position = 14, .expected = "K, M, G"},
        {.text = "only=count>=99999999999999999999", .position = 13, .expected = "a number"},
        {.text = "only=name=", .position = 11, .expected = "a pattern of 1 to 63"},
        {.text = "only=name=aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg",
         .position = 11,
         .expected = "a pattern of 1 to 63"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rules rules = {.count = 7};
        char position[32];
        cr_assert_eq(qccl_rules_parse(bad[i].text, &rules), qcclInvalidArgument, "%s", bad[i].text);
        snprintf(position, sizeof position, "position %d:", bad[i].position);
        cr_expect(strstr(qcclGetLastError(), position), "%s: %s", bad[i].text, qcclGetLastError());
        cr_expect(strstr(qcclGetLastError(), bad[i].expected), "%s: %s", bad[i].text,
                  qcclGetLastError());
        cr_expect_eq(rules.count, 7, "%s changed the rules", bad[i].text);
    }
}

Test(rules_text, sixteen_clauses_are_the_most)
{
    char text[512] = "";
    struct rules rules;
    for (int i = 0; i < RULES_MAX; i++)
        strcat(text, "except=double;");
    cr_expect_eq(qccl_rules_parse(text, &rules), qcclSuccess);
    strcat(text, "except=double");
    cr_expect_eq(qccl_rules_parse(text, &rules), qcclInvalidArgument);
    cr_expect(strstr(qcclGetLastError(), "at most 16 clauses"), "%s", qcclGetLastError());
}
