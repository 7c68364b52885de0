/* Arbitrary text as a codec and as a policy: it is refused with a position, or it prints to a text
 * that parses to the same. */
#include <stdlib.h>
#include <string.h>

#include "collectives/policy.h"
#include "tests/fuzz/fuzz.h"

static void try_codec(const char *text)
{
    qcclCodec_t codec, again;
    char printed[QCCL_CODEC_MAX];
    if (qcclCodecParse(text, &codec) != qcclSuccess) {
        fuzz_require(strstr(qcclGetLastError(), "position") != NULL);
        return;
    }
    fuzz_require(qcclCodecPrint(&codec, printed, sizeof printed) == qcclSuccess);
    fuzz_require(qcclCodecParse(printed, &again) == qcclSuccess);
    fuzz_require(memcmp(&codec, &again, sizeof codec) == 0);
}

static void try_policy(const char *text)
{
    struct policy policy, again;
    char printed[QCCL_POLICY_MAX], twice[QCCL_POLICY_MAX];
    if (qccl_policy_parse(text, &policy) != qcclSuccess) {
        fuzz_require(strstr(qcclGetLastError(), "position") != NULL ||
                     strlen(text) >= QCCL_POLICY_MAX);
        return;
    }
    fuzz_require(qccl_policy_print(&policy, printed, sizeof printed) == qcclSuccess);
    fuzz_require(qccl_policy_parse(printed, &again) == qcclSuccess);
    fuzz_require(qccl_policy_print(&again, twice, sizeof twice) == qcclSuccess);
    fuzz_require(strcmp(printed, twice) == 0);
    fuzz_require(policy.min_bytes == again.min_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = 0;
    try_codec(text);
    try_policy(text);
    free(text);
    return 0;
}
