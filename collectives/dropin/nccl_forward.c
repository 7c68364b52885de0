/* Where the drop-in in NCCL's place finds the real NCCL: QCCL_NCCL_LIBRARY, or the first
 * libnccl.so.2 that is not this library where the loader would look for the program or for one of
 * its libraries, or what the loader knows as libnccl.so.
 *
 * Opened so that neither sees the other's functions: RTLD_LOCAL keeps the real ones from the
 * program, RTLD_DEEPBIND makes the real library call its own. */
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "base/environment.h"
#include "base/memory.h"
#include "collectives/dropin/nccl_call.h"

/* What this library is known by, to itself. */
QCCL_API extern const char qccl_nccl_forwards;
const char qccl_nccl_forwards = 1;

static void *real;
static char why[PATH_MAX + 128];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A library that is NCCL and not this one. */
static void *open_real(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!handle)
        snprintf(why, sizeof why, "%s", dlerror());
    else if (dlsym(handle, "qccl_nccl_forwards"))
        snprintf(why, sizeof why, "%s is this library itself", path);
    else if (!dlsym(handle, "ncclGetVersion"))
        snprintf(why, sizeof why, "%s is not NCCL", path);
    else
        return handle;
    if (handle)
        dlclose(handle);
    return NULL;
}

static void *open_in(const Dl_serinfo *folders)
{
    void *handle = NULL;
    for (unsigned i = 0; !handle && i < folders->dls_cnt; i++) {
        char path[PATH_MAX];
        int length =
            snprintf(path, sizeof path, "%s/libnccl.so.2", folders->dls_serpath[i].dls_name);
        if (length < (int)sizeof path && access(path, R_OK) == 0)
            handle = open_real(path);
    }
    return handle;
}

/* In the folders where the loader looks for what a loaded object needs; the name alone would find
 * this library again. */
static void *open_for(void *object)
{
    void *handle = NULL;
    Dl_serinfo size;
    if (dlinfo(object, RTLD_DI_SERINFOSIZE, &size) != 0)
        return NULL;
    Dl_serinfo *folders = qccl_alloc(1, size.dls_size);
    if (folders) {
        folders->dls_size = size.dls_size;
        folders->dls_cnt = size.dls_cnt;
        if (dlinfo(object, RTLD_DI_SERINFO, folders) == 0)
            handle = open_in(folders);
    }
    qccl_free(folders);
    return handle;
}

/* The program first, then its libraries in the order in which they were loaded. */
static void *open_on_the_way(void)
{
    void *program = dlopen(NULL, RTLD_LAZY), *handle = NULL;
    struct link_map *map = NULL;
    if (!program || dlinfo(program, RTLD_DI_LINKMAP, &map) != 0)
        return NULL;
    for (; map && !handle; map = map->l_next) {
        void *object = *map->l_name ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : program;
        if (object)
            handle = open_for(object);
        if (object && object != program)
            dlclose(object);
    }
    dlclose(program);
    return handle;
}

static void find_real(void)
{
    const char *named = qccl_env_text("QCCL_NCCL_LIBRARY");
    char reason[sizeof why];
    real = named ? open_real(named) : open_on_the_way();
    if (!real && !named)
        real = open_real("libnccl.so");
    snprintf(reason, sizeof reason, "%s", why);
    snprintf(why, sizeof why, "%s: %.*s",
             named ? "QCCL_NCCL_LIBRARY"
                   : "the real NCCL was not "
                     "found; name its file in QCCL_NCCL_LIBRARY",
             PATH_MAX, reason);
}

void *qccl_nccl_symbol(const char *name)
{
    pthread_once(&once, find_real);
    return real ? dlsym(real, name) : NULL;
}

const char *qccl_nccl_absent(void)
{
    pthread_once(&once, find_real);
    return real ? NULL : why;
}
