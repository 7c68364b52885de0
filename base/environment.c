/* Strict readers: a setting that does not parse is said, never half used. */
#include "base/environment.h"

#include <ctype.h>
#include <errno.h>
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
    unsigned long long value = strtoull(text, &end, 0);
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
    double value = strtod(text, &end);
    CHECK_ARG(end != text && !*end && isfinite(value), "%s=%s is no number of seconds", name, text);
    *seconds = value;
    return qcclSuccess;
}
