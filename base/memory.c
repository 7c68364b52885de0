/* Zeroed, aligned memory with a counter, and a planned failure for tests. */
#include "base/memory.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };
static atomic_long live, until_failure;

void *qccl_alloc(size_t count, size_t size)
{
    if (size && count > (SIZE_MAX - ALIGNMENT) / size)
        return NULL;
    if (atomic_load(&until_failure) > 0 && atomic_fetch_sub(&until_failure, 1) == 1)
        return NULL;
    size_t bytes = (count * size + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    void *memory = aligned_alloc(ALIGNMENT, bytes);
    if (!memory)
        return NULL;
    atomic_fetch_add(&live, 1);
    return memset(memory, 0, bytes);
}

void qccl_free(void *memory)
{
    if (!memory)
        return;
    atomic_fetch_sub(&live, 1);
    free(memory);
}

void qccl_memory_fail_after(long n)
{
    atomic_store(&until_failure, n);
}

long qccl_memory_live(void)
{
    return atomic_load(&live);
}
