/* Memory of the library: aligned to 64 bytes, zeroed, and able to fail on purpose.
 *
 * Every allocation of the library goes through here, so that a test can make the n-th one fail
 * (qccl_memory_fail_after) and see that each failure is reported and nothing leaks
 * (qccl_memory_live). */
#ifndef QCCL_BASE_MEMORY_H
#define QCCL_BASE_MEMORY_H

#include <stddef.h>

/* count * size zeroed bytes at a multiple of 64; NULL when there are none, on overflow, or when
 * told to fail. */
void *qccl_alloc(size_t count, size_t size);
void qccl_free(void *memory);

/* The n-th allocation from now fails, once (1: the next one); 0: none does.  For tests. */
void qccl_memory_fail_after(long n);
/* Allocations not yet freed. */
long qccl_memory_live(void);

#endif
