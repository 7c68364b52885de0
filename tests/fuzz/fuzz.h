/* What the fuzz targets share.  Each target is one function that libFuzzer (-Dfuzz=true) or
 * fuzz_driver.c calls with an input. */
#ifndef QCCL_TESTS_FUZZ_H
#define QCCL_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "qccl/qccl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process, which is how a fuzzer learns of a failure. */
#define fuzz_require(condition) fuzz_check((condition) != 0, #condition, __FILE__, __LINE__)
static inline void fuzz_check(int holds, const char *condition, const char *file, int line)
{
    if (holds)
        return;
    fprintf(stderr, "%s:%d: not so: %s (last error: %s)\n", file, line, condition,
            qcclGetLastError());
    abort();
}

#endif
