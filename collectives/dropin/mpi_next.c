/* What lies behind the drop-in: which MPI the process has, and the next function of a name.
 *
 * Looked up by name, never linked, so that a process without MPI (a shell, ls) can load this
 * library and nothing happens.  RTLD_NEXT finds another tool's wrapper first, so that tools can
 * stand in a chain; a program that opened MPI with dlopen keeps it out of that search, so the
 * library that is loaded already is asked as well.  QCCL_DROPIN_MPI, from the build, is the MPI
 * that this library was compiled for. */
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "collectives/dropin/mpi_call.h"

void qccl_dropin_say(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "qccl: %s\n", text);
}

/* The handle of an MPI library that is loaded, global or not; NULL: none is. */
static void *loaded(void)
{
    static const char *const names[] = {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12"};
    void *handle = NULL;
    for (size_t i = 0; !handle && i < sizeof names / sizeof *names; i++)
        handle = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
    return handle;
}

void *qccl_dropin_symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name), *handle = found ? NULL : loaded();
    if (!handle)
        return found;
    found = dlsym(handle, name);
    dlclose(handle); /* gives back the reference, not the library */
    return found;
}

enum presence qccl_dropin_presence(void)
{
    if (!qccl_dropin_symbol("PMPI_Init"))
        return MPI_ABSENT;
    bool here = qccl_dropin_symbol("ompi_mpi_comm_world") != NULL;
    bool meant = strcmp(QCCL_DROPIN_MPI, "Open MPI") == 0;
    return here == meant ? MPI_HERE : MPI_OTHER;
}

/* From an object's address to a function's, which C has no conversion for. */
static any_function *as_function(void *address)
{
    union {
        void *address;
        any_function *function;
    } both = {.address = address};
    return both.function;
}

any_function *qccl_dropin_next(struct next *next)
{
    void *found = next->function;
    if (found)
        return as_function(found);
    found = dlsym(RTLD_NEXT, next->name);
    void *handle = found ? NULL : loaded();
    if (handle) {
        found = dlsym(handle, next->name);
        dlclose(handle);
    }
    if (!found)
        qccl_dropin_say("no MPI of this process has %s", next->name);
    next->function = found;
    return as_function(found);
}

__attribute__((constructor)) static void look_around(void)
{
    if (qccl_dropin_presence() == MPI_OTHER)
        qccl_dropin_say("this is the library for " QCCL_DROPIN_MPI ", and the program has another "
                        "MPI: nothing is compressed; preload the other libqccl-mpi");
}
