/* Where the preloaded NCCL drop-in finds NCCL: behind itself, or loaded out of its sight, as the
 * dependency of an extension of Python is. */
#include <dlfcn.h>
#include <stddef.h>

#include "collectives/dropin/nccl_call.h"

static void *loaded(void)
{
    return dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
}

void *qccl_nccl_symbol(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name), *handle = found ? NULL : loaded();
    if (!handle)
        return found;
    found = dlsym(handle, name);
    dlclose(handle); /* gives back the reference, not the library */
    return found;
}

const char *qccl_nccl_absent(void)
{
    return qccl_nccl_symbol("ncclGetVersion") ? NULL : "the process has no NCCL";
}
