/* See golden.h. */
#include "tests/golden.h"

#include <stdlib.h>
#include <string.h>

FILE *golden_open(const char *name)
{
    const char *folder = getenv("QCCL_GOLDEN");
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "tests/golden", name);
    return fopen(path, "r");
}

static void split(struct golden_line *line)
{
    line->columns = 0;
    for (char *at = line->text; at && line->columns < GOLDEN_COLUMNS;) {
        line->column[line->columns++] = at;
        at = strchr(at, '|');
        if (at)
            *at++ = 0;
    }
}

bool golden_next(FILE *file, struct golden_line *line)
{
    while (getline(&line->text, &line->room, file) >= 0) {
        line->number++;
        line->text[strcspn(line->text, "\n")] = 0;
        if (line->text[0] == '#')
            continue;
        split(line);
        return true;
    }
    free(line->text);
    line->text = NULL;
    return false;
}

uint64_t golden_number(const struct golden_line *line, int column)
{
    return strtoull(line->column[column], NULL, 10);
}

qcclDataType_t golden_type(const char *name)
{
    return strcmp(name, "bf16") == 0   ? qcclBfloat16
           : strcmp(name, "fp16") == 0 ? qcclFloat16
                                       : qcclFloat32;
}

const int *golden_nodes(const char *text, int *nodes, int nranks)
{
    if (text[0] == '-')
        return NULL;
    char *end;
    for (int r = 0; r < nranks; r++, text = end + 1)
        nodes[r] = (int)strtol(text, &end, 10);
    return nodes;
}

void golden_describe(const void *bytes, size_t count, char text[GOLDEN_RESULT_BYTES])
{
    const unsigned char *b = bytes;
    if (count > 32) {
        snprintf(text, GOLDEN_RESULT_BYTES, "fnv:%016llx",
                 (unsigned long long)input_fnv(bytes, count));
        return;
    }
    int used = snprintf(text, GOLDEN_RESULT_BYTES, "hex:");
    for (size_t i = 0; i < count; i++)
        used += snprintf(text + used, GOLDEN_RESULT_BYTES - (size_t)used, "%02x", b[i]);
}
