/* Test Anything Protocol for plain programs, where Criterion cannot go: under the thread sanitizer,
 * under valgrind, in the fuzz drivers. */
#ifndef QCCL_TESTS_TAP_H
#define QCCL_TESTS_TAP_H

#include <stdbool.h>

/* One line of TAP; returns the condition. */
bool tap_ok(bool condition, const char *sentence, ...) __attribute__((format(printf, 2, 3)));
/* A comment below it. */
void tap_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints the plan; what main returns. */
int tap_end(void);

#endif
