/* What this processor can run, and the cap that QCCL_CPU or qcclSetCpu puts on it. */
#ifndef QCCL_BASE_CPU_H
#define QCCL_BASE_CPU_H

#include "qccl/qccl.h"

/* In rising order: a row runs where its level is at most qccl_cpu_level(). */
enum qccl_cpu { QCCL_CPU_C, QCCL_CPU_AVX2, QCCL_CPU_AVX512, QCCL_CPU_LEVELS };

/* The level in force: what the processor has, capped. AVX2 stands for AVX2 and F16C; AVX-512 for F,
 * BW, DQ and VL. */
enum qccl_cpu qccl_cpu_level(void);

/* The level the processor has. */
enum qccl_cpu qccl_cpu_detected(void);

const char *qccl_cpu_name(enum qccl_cpu level);

/* Caps the level by name ("c", "avx2", "avx512"); NULL: no cap. */
qcclResult_t qccl_cpu_cap(const char *name);

#endif
