/* Lines of the golden files (tests/golden/make.py describes the columns), and results in the form
 * in which they are written there. */
#ifndef QCCL_TESTS_GOLDEN_H
#define QCCL_TESTS_GOLDEN_H

#include <stdbool.h>
#include <stdio.h>

#include "tests/inputs.h"

enum { GOLDEN_COLUMNS = 13, GOLDEN_RESULT_BYTES = 96 };

struct golden_line {
    int number;
    char *text;
    size_t room;
    char *column[GOLDEN_COLUMNS];
    int columns;
};

/* Opens a file of the golden folder, $QCCL_GOLDEN; NULL when it is not there. */
FILE *golden_open(const char *name);
/* Reads the next case; false at the end, when the line's memory is freed. */
bool golden_next(FILE *file, struct golden_line *line);

uint64_t golden_number(const struct golden_line *line, int column);
qcclDataType_t golden_type(const char *name);
/* The nodes of "0,0,1"; NULL for "-". */
const int *golden_nodes(const char *text, int *nodes, int nranks);

/* "hex:BYTES" of at most 32 bytes, "fnv:HASH" of more. */
void golden_describe(const void *bytes, size_t count, char text[GOLDEN_RESULT_BYTES]);

#endif
