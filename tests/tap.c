/* See tap.h. */
#include "tests/tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static int count, failed;

bool tap_ok(bool condition, const char *sentence, ...)
{
    va_list args;
    count++;
    failed += !condition;
    printf("%s %d - ", condition ? "ok" : "not ok", count);
    va_start(args, sentence);
    vprintf(sentence, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    return condition;
}

void tap_note(const char *format, ...)
{
    va_list args;
    printf("# ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

int tap_end(void)
{
    printf("1..%d\n", count);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
