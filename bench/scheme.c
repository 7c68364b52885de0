/* Policies read back; see scheme.h. */
#include "bench/scheme.h"

#include <stdio.h>
#include <string.h>

#include "bench/options.h"

/* Copies the clause "name: ..." of a canonical policy, without the name. */
static bool copy_clause(const char *policy, const char *name, char *clause, size_t capacity)
{
    size_t length = strlen(name);
    for (const char *at = policy; *at;) {
        at += strspn(at, "; ");
        size_t whole = strcspn(at, ";");
        if (strncmp(at, name, length) == 0 && at[length] == ':') {
            int written =
                snprintf(clause, capacity, "%.*s", (int)(whole - length - 1), at + length + 1);
            return written >= 0 && (size_t)written < capacity;
        }
        at += whole;
    }
    return false;
}

/* One word of a clause: the main codec, gather=codec or intra=codec. */
static qcclResult_t read_word(struct bench_scheme *scheme, const char *word)
{
    if (strncmp(word, "gather=", 7) == 0)
        return qcclCodecParse(word + 7, &scheme->gather);
    if (strncmp(word, "intra=", 6) == 0) {
        scheme->two_level = true;
        return qcclCodecParse(word + 6, &scheme->intra);
    }
    qcclResult_t status = qcclCodecParse(word, &scheme->main);
    scheme->gather = scheme->main;
    return status;
}

qcclResult_t bench_scheme_read(struct bench_scheme *scheme, qcclComm_t comm)
{
    char policy[QCCL_POLICY_MAX], clause[QCCL_POLICY_MAX], *rest = clause;
    qcclResult_t status = qcclCommGetPolicy(comm, policy, sizeof policy);
    if (status)
        return status;
    if (!copy_clause(policy, bench_coll_name(scheme->coll), clause, sizeof clause))
        return qcclInternalError;
    scheme->two_level = false;
    for (char *word = strtok_r(rest, " ", &rest); word && !status;
         word = strtok_r(NULL, " ", &rest))
        status = read_word(scheme, word);
    scheme->intra.hadamard =
        scheme->main.hadamard; /* the first hop shares the main codec's domain */
    return status;
}

void bench_scheme_plain(struct bench_scheme *scheme)
{
    static const qcclCodec_t exact = {.format = qcclFormatNone, .group = 128};
    scheme->main = scheme->gather = scheme->intra = exact;
    scheme->two_level = false;
    scheme->plain = true;
}

void bench_scheme_print(const struct bench_scheme *scheme, char *text)
{
    char codec[QCCL_CODEC_MAX];
    qcclCodec_t intra = scheme->intra;
    intra.hadamard = 0; /* the policy language does not repeat it */
    qcclCodecPrint(&scheme->main, text, QCCL_CODEC_MAX);
    if (memcmp(&scheme->main, &scheme->gather, sizeof scheme->main) != 0) {
        qcclCodecPrint(&scheme->gather, codec, sizeof codec);
        strcat(strcat(text, " gather="), codec);
    }
    if (scheme->two_level) {
        qcclCodecPrint(&intra, codec, sizeof codec);
        strcat(strcat(text, " intra="), codec);
    }
}

int bench_scheme_node(const struct bench_scheme *scheme, int rank)
{
    return scheme->nodes ? scheme->nodes[rank] : 0;
}

int bench_scheme_head(const struct bench_scheme *scheme, int node, int owner)
{
    int local = 0, size = 0, seen = 0, owners_node = bench_scheme_node(scheme, owner);
    for (int r = 0; r < scheme->nranks; r++) {
        local += r < owner && bench_scheme_node(scheme, r) == owners_node;
        size += bench_scheme_node(scheme, r) == node;
    }
    for (int r = 0; r < scheme->nranks; r++)
        if (bench_scheme_node(scheme, r) == node && seen++ == local % size)
            return r;
    return -1;
}

static size_t common_multiple(size_t a, size_t b)
{
    size_t x = a, y = b;
    while (y) {
        size_t remainder = x % y;
        x = y;
        y = remainder;
    }
    return a / x * b;
}

size_t bench_scheme_unit(const struct bench_scheme *scheme)
{
    size_t unit = common_multiple(scheme->main.group, scheme->gather.group);
    return scheme->two_level ? common_multiple(unit, scheme->intra.group) : unit;
}

void bench_scheme_segment(const struct bench_scheme *scheme, size_t count, int owner, size_t *first,
                          size_t *elems)
{
    size_t ranks = (size_t)scheme->nranks, size = count / ranks;
    if (scheme->coll == qcclCollAllReduce) {
        size_t unit = bench_scheme_unit(scheme), units = (count + unit - 1) / unit;
        size = (units + ranks - 1) / ranks * unit;
    }
    *first = (size_t)owner * size < count ? (size_t)owner * size : count;
    *elems = count - *first < size ? count - *first : size;
}
