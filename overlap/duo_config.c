/* The configuration of a duo: texts to policies. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/status.h"
#include "overlap/duo.h"

static const char residual_prefix[] = "residual ";

static qcclResult_t parse_codecs(const char *what, const char *codecs, struct policy *policy)
{
    char text[QCCL_POLICY_MAX];
    int n = snprintf(text, sizeof text, "reducescatter: %s; min=0", codecs);
    CHECK_ARG(n > 0 && (size_t)n < sizeof text && !strchr(codecs, ';'),
              "duo: %s=\"%.100s\" is no codec", what, codecs);
    qcclResult_t result = qccl_policy_parse(text, policy);
    if (result != qcclSuccess)
        return qccl_fail_prefix(result, "duo: %s", what);
    const struct collective_policy *c = &policy->of[qcclCollReduceScatter];
    CHECK_ARG(!c->main.feedback && !(c->two_level && c->intra.feedback),
              "duo: %s=\"%.100s\" has error feedback: the slow reduction brings back what is lost",
              what, codecs);
    return qcclSuccess;
}

static qcclResult_t read_fast(const char *text, struct duo_scheme *scheme)
{
    scheme->local = strcmp(text, "local") == 0;
    return scheme->local ? qcclSuccess : parse_codecs("fast", text, &scheme->fast);
}

static qcclResult_t read_slow(const char *text, struct duo_scheme *scheme)
{
    const struct collective_policy *fast = &scheme->fast.of[qcclCollReduceScatter];
    size_t prefix = sizeof residual_prefix - 1;
    scheme->residual = strncmp(text, residual_prefix, prefix) == 0;
    if (!scheme->residual) {
        CHECK_ARG(strcmp(text, "fp32") == 0 || strcmp(text, "bf16") == 0,
                  "duo: slow=\"%.100s\" is none of fp32, bf16, residual int8, residual int4", text);
        return parse_codecs("slow", *text == 'f' ? "none" : text, &scheme->slow);
    }
    CHECK_ARG(!scheme->local, "duo: slow=\"%.100s\" needs a fast reduction, fast is local", text);
    CHECK_ARG(!fast->main.hadamard && !fast->two_level,
              "duo: slow=\"%.100s\" needs a fast codec without hadamard= and intra=", text);
    return parse_codecs("slow", text + prefix, &scheme->slow);
}

qcclResult_t qccl_duo_read(const qcclDuoConfig_t *config, int nranks, struct duo_scheme *scheme)
{
    *scheme = (struct duo_scheme){0};
    CHECK_ARG(config->size == sizeof *config, "duo: config.size is %zu; set it to %zu",
              config->size, sizeof *config);
    CHECK_ARG(config->nbuckets >= 1 && config->counts, "duo: %d buckets, counts %p",
              config->nbuckets, (const void *)config->counts);
    for (int b = 0; b < config->nbuckets; b++)
        CHECK_ARG(config->counts[b] && config->counts[b] % (size_t)nranks == 0,
                  "duo: counts[%d] is %zu, no positive multiple of the %d ranks", b,
                  config->counts[b], nranks);
    CHECK_ARG(config->late == qcclDuoWait || config->late == qcclDuoDrop, "duo: late is %d",
              config->late);
    RETURN_IF_FAILED(read_fast(config->fast ? config->fast : "int4", scheme));
    RETURN_IF_FAILED(read_slow(config->slow ? config->slow : "fp32", scheme));
    scheme->drop = config->late == qcclDuoDrop;
    CHECK_ARG(!scheme->drop || !config->slow || strcmp(config->slow, "fp32") == 0,
              "duo: late is qcclDuoDrop, but slow=\"%.100s\" is not fp32", config->slow);
    return scheme->drop ? parse_codecs("slow", "bf16", &scheme->dropped) : qcclSuccess;
}

void qccl_duo_describe(const qcclDuoConfig_t *config, struct record *record)
{
    size_t bytes = (size_t)config->nbuckets * sizeof *config->counts;
    snprintf(record->text, sizeof record->text,
             "fast=%.100s\nslow=%.100s\nlate=%d\nbuckets=%d\ncounts=hash %016llx",
             config->fast ? config->fast : "int4", config->slow ? config->slow : "fp32",
             config->late, config->nbuckets,
             (unsigned long long)XXH3_64bits(config->counts, bytes));
}
