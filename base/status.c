/* The thread's last sentence, kept in a fixed buffer so that failing never needs memory. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE_MAX = 1024 };
static _Thread_local char last_sentence[SENTENCE_MAX];

qcclResult_t qccl_fail(qcclResult_t code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_sentence, sizeof last_sentence, format, args);
    va_end(args);
    return code;
}

qcclResult_t qccl_fail_prefix(qcclResult_t code, const char *format, ...)
{
    char rest[SENTENCE_MAX];
    memcpy(rest, last_sentence, sizeof rest);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(last_sentence, sizeof last_sentence, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof last_sentence)
        snprintf(last_sentence + n, sizeof last_sentence - (size_t)n, ": %s", rest);
    return code;
}

const char *qccl_last_error(void)
{
    return last_sentence;
}
