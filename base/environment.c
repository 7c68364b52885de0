/* Strict readers: a setting that does not parse is said, never half used. */
#include "base/environment.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"

const char *qccl_env_text(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

bool qccl_env_flag(const char *name)
{
    const char *text = qccl_env_text(name);
    if (!text || strcmp(text, "0") == 0)
        return false;
    if (strcmp(text, "1") == 0)
        return true;
    qccl_log(QCCL_LOG_WARN, -1, "%s=%s is neither 0 nor 1: taken as 0", name, text);
    return false;
}

qcclResult_t qccl_env_u64(const char *name, uint64_t *number)
{
    const char *text = qccl_env_text(name);
    if (!text)
        return qcclSuccess;
    char *end;
    errno = 0;
    bool hex = text[0] == '0' && (text[1] | 0x20) == 'x';
    unsigned long long value = strtoull(text, &end, hex ? 16 : 10);
    CHECK_ARG(isdigit((unsigned char)*text) && !*end && !errno, "%s=%s is no whole number", name,
              text);
    *number = value;
    return qcclSuccess;
}

qcclResult_t qccl_env_seconds(const char *name, double *seconds)
{
    const char *text = qccl_env_text(name);
    if (!text)
        return qcclSuccess;
    char *end;
    locale_t plain =
        newlocale(LC_NUMERIC_MASK, "C", NULL); /* a point, whatever the program's locale */
    double value = plain ? strtod_l(text, &end, plain) : strtod(text, &end);
    if (plain)
        freelocale(plain);
    CHECK_ARG(end != text && !*end && isfinite(value) && value != 0,
              "%s=%s is no number of seconds (negative: for ever)", name, text);
    *seconds = value;
    return qcclSuccess;
}
