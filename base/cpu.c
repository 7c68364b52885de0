/* Detection through the compiler's own cpuid helpers, which also ask whether the system saves the
 * registers.  clang 14's do not know F16C by name: that bit is read here. */
#include "base/cpu.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/log.h"
#include "base/status.h"

static const char *const names[QCCL_CPU_LEVELS] = {"c", "avx2", "avx512"};
static atomic_int cap = -1; /* -1: QCCL_CPU not read yet */

#if defined(__x86_64__)
static bool has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#endif

enum qccl_cpu qccl_cpu_detected(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !has_f16c())
        return QCCL_CPU_C;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return QCCL_CPU_AVX512;
    return QCCL_CPU_AVX2;
#else
    return QCCL_CPU_C;
#endif
}

const char *qccl_cpu_name(enum qccl_cpu level)
{
    return names[level];
}

static int level_of(const char *name)
{
    for (int i = 0; i < QCCL_CPU_LEVELS; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

static int read_environment(void)
{
    const char *text = getenv("QCCL_CPU");
    if (!text || !*text)
        return QCCL_CPU_LEVELS - 1;
    int level = level_of(text);
    if (level < 0)
        qccl_log(QCCL_LOG_WARN, -1, "QCCL_CPU=%s is none of c, avx2, avx512: ignored", text);
    return level < 0 ? QCCL_CPU_LEVELS - 1 : level;
}

enum qccl_cpu qccl_cpu_level(void)
{
    static atomic_int detected = -1;
    int have = atomic_load_explicit(&detected, memory_order_relaxed);
    if (have < 0) {
        have = (int)qccl_cpu_detected();
        atomic_store(&detected, have);
    }
    int limit = atomic_load_explicit(&cap, memory_order_relaxed);
    if (limit < 0) {
        limit = read_environment();
        atomic_store(&cap, limit);
    }
    return (enum qccl_cpu)(have < limit ? have : limit);
}

qcclResult_t qccl_cpu_cap(const char *name)
{
    int level = name ? level_of(name) : QCCL_CPU_LEVELS - 1;
    CHECK_ARG(level >= 0, "qcclSetCpu: \"%s\" is none of c, avx2, avx512", name);
    atomic_store(&cap, level);
    return qcclSuccess;
}
