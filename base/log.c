/* One fwrite a message, so that lines of several ranks never mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

static const char *const level_names[] = {"NONE", "WARN", "INFO", "TRACE"};

static enum qccl_log_level wanted_level(void)
{
    static atomic_int cached; /* level + 1; 0: not read yet */
    int level = atomic_load(&cached);
    if (!level) {
        const char *text = getenv("QCCL_DEBUG");
        for (int i = QCCL_LOG_TRACE; text && i > 0 && !level; i--)
            if (strcasecmp(text, level_names[i]) == 0)
                level = i + 1;
        if (!level)
            level = QCCL_LOG_NONE + 1;
        atomic_store(&cached, level);
    }
    return (enum qccl_log_level)(level - 1);
}

int qccl_log_wants(enum qccl_log_level level)
{
    return level <= wanted_level();
}

void qccl_log(enum qccl_log_level level, int rank, const char *format, ...)
{
    if (!qccl_log_wants(level))
        return;
    char host[64] = "", line[1200];
    gethostname(host, sizeof host - 1);
    int head = snprintf(line, sizeof line, "%s:%ld [%d] QCCL %s ", host, (long)getpid(), rank,
                        level_names[level]);
    va_list args;
    va_start(args, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, args);
    va_end(args);
    size_t length = (size_t)head + (size_t)(body < 0 ? 0 : body);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length] = '\n';
    fwrite(line, 1, length + 1, stderr);
}
