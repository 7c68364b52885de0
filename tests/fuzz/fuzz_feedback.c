/* Arbitrary bytes as saved error feedback: refused without a change, or restored so that saving
 * gives as many bytes again.
 *
 * The first byte of an input is the number of residuals that the head claims; the rest follows a
 * head whose checksum, size, rank and policy are right.  The input is also tried as it is. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/fuzz/fuzz.h"

enum { HEAD_BYTES = 48, AT_BYTES = 8, AT_CHECKSUM = 16, AT_RESIDUALS = 32 };

static qcclComm_t comms[2];

static void open_comms(void)
{
    qcclConfig_t config = QCCL_CONFIG_INITIALIZER;
    config.policy = "int4:feedback=on gather=int8:feedback=on; min=0";
    fuzz_require(qcclCommInitThreads(comms, 2, &config) == qcclSuccess);
}

static void try_restore(const uint8_t *state, size_t bytes)
{
    size_t before, after;
    fuzz_require(qcclFeedbackBytes(comms[1], &before) == qcclSuccess);
    qcclResult_t result = qcclFeedbackRestore(comms[1], state, bytes);
    fuzz_require(result == qcclSuccess || result == qcclCorruptMessage);
    fuzz_require(qcclFeedbackBytes(comms[1], &after) == qcclSuccess);
    fuzz_require(result == qcclSuccess ? after <= bytes : after == before);
    uint8_t *saved = malloc(after);
    if (saved)
        fuzz_require(qcclFeedbackSave(comms[1], saved, after) == qcclSuccess);
    free(saved);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!comms[0])
        open_comms();
    uint8_t *state = malloc(HEAD_BYTES + size);
    if (!state || !size) {
        free(state);
        return 0;
    }
    memcpy(state, data, size);
    try_restore(state, size);
    fuzz_require(qcclFeedbackReset(comms[1]) == qcclSuccess);
    fuzz_require(qcclFeedbackSave(comms[1], state, HEAD_BYTES) == qcclSuccess);
    size_t bytes = HEAD_BYTES + size - 1;
    uint64_t numbers[2] = {bytes, 0}, residuals = data[0];
    memcpy(state + HEAD_BYTES, data + 1, size - 1);
    numbers[1] = XXH3_64bits(state + HEAD_BYTES, size - 1);
    memcpy(state + AT_BYTES, numbers, sizeof numbers);
    memcpy(state + AT_RESIDUALS, &residuals, sizeof residuals);
    try_restore(state, bytes);
    free(state);
    return 0;
}
