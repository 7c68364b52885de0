/* Looks up what lies behind the NCCL drop-in, in both of its builds.
 *
 * In NCCL each ncclX is a weak alias of a strong pncclX.  The latter is called: the former may be
 * bound to this library again. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "collectives/dropin/nccl_call.h"

void qccl_nccl_say(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "qccl: %s\n", text);
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

/* Marks a function that was looked for and is not there, so that this is said once. */
static char missing_mark;

static void *find(const char *name)
{
    char strong[64];
    snprintf(strong, sizeof strong, "p%s", name);
    void *found = qccl_nccl_symbol(strong);
    return found ? found : qccl_nccl_symbol(name);
}

static void say_missing(const char *name)
{
    const char *absent = qccl_nccl_absent();
    if (absent)
        qccl_nccl_say("%s cannot be called: %s", name, absent);
    else
        qccl_nccl_say("the NCCL of this process has no %s: it is older than the program", name);
}

any_function *qccl_nccl_next(struct nccl_next *next, ncclResult_t *missing)
{
    void *found = next->function;
    if (!found || found == &missing_mark) {
        void *now = find(next->name);
        if (!now && !found)
            say_missing(next->name);
        next->function = found = now ? now : &missing_mark;
    }
    if (found != &missing_mark)
        return as_function(found);
    *missing = qccl_nccl_absent() ? ncclSystemError : ncclInvalidUsage;
    return NULL;
}
