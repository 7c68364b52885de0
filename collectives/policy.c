/* A recursive-descent parser; every error names the position and what was expected there. */
#include "collectives/policy.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "quant/codec.h"

static const char *const collective_names[qcclNumColls] = {
    [qcclCollAllReduce] = "allreduce",
    [qcclCollReduceScatter] = "reducescatter",
    [qcclCollAllGather] = "allgather",
    [qcclCollAllGatherDelta] = "delta",
};

#define MIN_BYTES_MAX (1ull << 60)

struct parser {
    const char *whole, *at;
    unsigned seen; /* collectives whose clause was read */
    bool min_seen;
    int clauses;
};

const char *qccl_collective_name(qcclColl_t collective)
{
    return collective_names[collective];
}

bool qccl_policy_compresses(const struct policy *policy, qcclColl_t collective)
{
    const struct collective_policy *p = &policy->of[collective];
    return p->main.format != qcclFormatNone || p->gather.format != qcclFormatNone ||
           (p->two_level && p->intra.format != qcclFormatNone);
}

static void skip_space(struct parser *p)
{
    while (isspace((unsigned char)*p->at))
        p->at++;
}

/* Takes a word if it stands here and is followed, spaces aside, by `after`; moves behind both. */
static bool take(struct parser *p, const char *word, char after)
{
    size_t n = strlen(word);
    if (strncmp(p->at, word, n) != 0 || isalnum((unsigned char)p->at[n]))
        return false;
    const char *next = p->at + n;
    while (isspace((unsigned char)*next))
        next++;
    if (*next != after)
        return false;
    p->at = next + 1;
    skip_space(p);
    return true;
}

static bool has_gather(unsigned collectives)
{
    return collectives & 1u << qcclCollAllReduce;
}

static bool has_intra(unsigned collectives)
{
    return collectives & (1u << qcclCollAllReduce | 1u << qcclCollReduceScatter);
}

/* The first hop shares the main codec's transform domain. */
static qcclResult_t adopt_domain(const struct parser *p, const char *at, qcclCodec_t *intra,
                                 const qcclCodec_t *main)
{
    if (intra->hadamard && intra->hadamard != main->hadamard)
        return qccl_parse_error(p->whole, at,
                                "no hadamard= of its own: intra= shares the main codec's");
    intra->hadamard = main->hadamard;
    if (intra->hadamard && intra->group % intra->hadamard)
        return qccl_parse_error(p->whole, at, "a group that the main codec's hadamard=%d divides",
                                main->hadamard);
    return qcclSuccess;
}

/* codec [gather=codec] [intra=codec], as allowed for a set of collectives (bits). */
static qcclResult_t parse_codecs(struct parser *p, unsigned collectives, unsigned group,
                                 struct collective_policy *made)
{
    RETURN_IF_FAILED(qccl_codec_parse_at(p->whole, &p->at, group, &made->main));
    made->gather = made->main;
    bool gather_seen = false;
    for (skip_space(p); *p->at && *p->at != ';'; skip_space(p)) {
        const char *at = p->at;
        if (!gather_seen && has_gather(collectives) && take(p, "gather", '=')) {
            RETURN_IF_FAILED(qccl_codec_parse_at(p->whole, &p->at, group, &made->gather));
            gather_seen = true;
        } else if (!made->two_level && has_intra(collectives) && take(p, "intra", '=')) {
            at = p->at;
            RETURN_IF_FAILED(qccl_codec_parse_at(p->whole, &p->at, group, &made->intra));
            RETURN_IF_FAILED(adopt_domain(p, at, &made->intra, &made->main));
            made->two_level = true;
        } else {
            return qccl_parse_error(p->whole, at, "%s%sthe end or ;",
                                    !gather_seen && has_gather(collectives) ? "gather=, " : "",
                                    !made->two_level && has_intra(collectives) ? "intra=, " : "");
        }
        if (*p->at && *p->at != ';' && !isspace((unsigned char)*p->at))
            return qccl_parse_error(p->whole, p->at, "a space, ; or the end");
    }
    return qcclSuccess;
}

static qcclResult_t parse_collective(struct parser *p, const char *at, qcclColl_t collective,
                                     struct policy *policy)
{
    unsigned group = collective == qcclCollAllGatherDelta ? GROUP_DELTA : GROUP_DEFAULT;
    struct collective_policy made = {0};
    if (p->seen & 1u << collective)
        return qccl_parse_error(p->whole, at, "each collective once, %s is there already",
                                collective_names[collective]);
    RETURN_IF_FAILED(parse_codecs(p, 1u << collective, group, &made));
    if (collective == qcclCollAllGatherDelta && made.main.feedback)
        return qccl_parse_error(p->whole, at,
                                "no feedback= for delta: what it loses stays in master - replica");
    p->seen |= 1u << collective;
    policy->of[collective] = made;
    return qcclSuccess;
}

/* Codecs without a collective: they are everyone's, as far as a collective has the hop. */
static qcclResult_t parse_everyone(struct parser *p, struct policy *policy)
{
    const char *at = p->at;
    if (p->clauses || !qccl_is_codec_name(at))
        return qccl_parse_error(p->whole, at,
                                "allreduce:, reducescatter:, allgather:, delta:, min=%s",
                                p->clauses ? "" : " or a codec: " QCCL_FORMAT_NAMES);
    unsigned all = (1u << qcclNumColls) - 1;
    for (int c = 0; c < qcclNumColls; c++) {
        struct collective_policy made = {0};
        p->at = at;
        unsigned group = c == qcclCollAllGatherDelta ? GROUP_DELTA : GROUP_DEFAULT;
        RETURN_IF_FAILED(parse_codecs(p, all, group, &made));
        if (c == qcclCollAllGatherDelta)
            made.main.feedback = 0;
        if (!has_gather(1u << c))
            made.gather = made.main;
        if (!has_intra(1u << c))
            made.two_level = false;
        policy->of[c] = made;
    }
    return qcclSuccess;
}

static qcclResult_t parse_min(struct parser *p, const char *clause, struct policy *policy)
{
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{.name = "KiB", .shift = 10}, {.name = "MiB", .shift = 20},
                 {.name = "GiB", .shift = 30}, {.name = "K", .shift = 10},
                 {.name = "M", .shift = 20},   {.name = "G", .shift = 30},
                 {.name = "B", .shift = 0}};
    const char *at = p->at;
    char *end;
    unsigned shift = 0;
    if (p->min_seen)
        return qccl_parse_error(p->whole, clause, "min= once");
    if (!isdigit((unsigned char)*at))
        return qccl_parse_error(p->whole, at, "a size such as 64KiB");
    unsigned long long value = strtoull(at, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].name);
        if (strncmp(end, units[i].name, n) == 0) {
            shift = units[i].shift;
            end += n;
            break;
        }
    }
    if (strspn(at, "0123456789") > 18 || value > MIN_BYTES_MAX >> shift)
        return qccl_parse_error(p->whole, at, "a size of at most 2^60 bytes");
    p->at = end;
    skip_space(p);
    if (*p->at && *p->at != ';')
        return qccl_parse_error(p->whole, end, "KiB, MiB, GiB, ; or the end");
    p->min_seen = true;
    policy->min_bytes = (size_t)value << shift;
    return qcclSuccess;
}

static qcclResult_t parse_clause(struct parser *p, struct policy *policy)
{
    const char *at = p->at;
    if (take(p, "min", '='))
        return parse_min(p, at, policy);
    for (int c = 0; c < qcclNumColls; c++)
        if (take(p, collective_names[c], ':'))
            return parse_collective(p, at, (qcclColl_t)c, policy);
    for (int c = 0; c < qcclNumColls; c++)
        if (strncmp(p->at, collective_names[c], strlen(collective_names[c])) == 0)
            return qccl_parse_error(p->whole, p->at, "%s followed by a colon", collective_names[c]);
    return parse_everyone(p, policy);
}

qcclResult_t qccl_policy_parse(const char *text, struct policy *policy)
{
    struct parser p = {.whole = text, .at = text};
    struct policy made = {.min_bytes = MIN_BYTES_DEFAULT};
    for (int c = 0; c < qcclNumColls; c++) {
        made.of[c].main.group = GROUP_DEFAULT;
        made.of[c].gather.group = GROUP_DEFAULT;
    }
    CHECK_ARG(strlen(text) < QCCL_POLICY_MAX, "policy of %zu characters; %d are allowed",
              strlen(text), QCCL_POLICY_MAX - 1);
    do {
        skip_space(&p);
        RETURN_IF_FAILED(parse_clause(&p, &made));
        p.clauses++;
        skip_space(&p);
        if (*p.at == ';')
            p.at++;
        skip_space(&p);
    } while (*p.at);
    *policy = made;
    return qcclSuccess;
}

qcclResult_t qccl_policy_print(const struct policy *policy, char *text, size_t capacity)
{
    char made[QCCL_POLICY_MAX], codec[QCCL_CODEC_MAX], *end = made;
    for (int c = 0; c < qcclNumColls; c++) {
        const struct collective_policy *p = &policy->of[c];
        RETURN_IF_FAILED(qcclCodecPrint(&p->main, codec, sizeof codec));
        end += sprintf(end, "%s: %s", collective_names[c], codec);
        if (memcmp(&p->gather, &p->main, sizeof p->main) != 0) {
            RETURN_IF_FAILED(qcclCodecPrint(&p->gather, codec, sizeof codec));
            end += sprintf(end, " gather=%s", codec);
        }
        if (p->two_level) {
            qcclCodec_t intra = p->intra;
            intra.hadamard = 0; /* the main codec's, see adopt_domain */
            RETURN_IF_FAILED(qcclCodecPrint(&intra, codec, sizeof codec));
            end += sprintf(end, " intra=%s", codec);
        }
        end += sprintf(end, "; ");
    }
    sprintf(end, "min=%zu", policy->min_bytes);
    CHECK_ARG(strlen(made) < capacity, "policy text of %zu bytes does not fit into %zu",
              strlen(made) + 1, capacity);
    memcpy(text, made, strlen(made) + 1);
    return qcclSuccess;
}
