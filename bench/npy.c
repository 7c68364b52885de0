/* Files of numbers: raw, or with the header of NumPy's .npy format (versions 1 to 3); see
 * input.h. */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/input.h"
#include "bench/options.h"
#include "bench/report.h"

enum { MAGIC_BYTES = 8, HEADER_MAX = 1 << 16 };

static bool read_exactly(FILE *file, void *bytes, size_t count)
{
    return fread(bytes, 1, count, file) == count;
}

/* Reads magic, version and header text; returns the text, to be freed, or NULL. */
static char *read_header(FILE *file)
{
    unsigned char magic[MAGIC_BYTES], length[4] = {0, 0, 0, 0};
    if (!read_exactly(file, magic, sizeof magic) || memcmp(magic, "\x93NUMPY", 6) != 0)
        return NULL;
    if (!read_exactly(file, length, magic[6] == 1 ? 2 : 4))
        return NULL;
    size_t bytes =
        length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
    char *text = bytes < HEADER_MAX ? malloc(bytes + 1) : NULL;
    if (text && !read_exactly(file, text, bytes)) {
        free(text);
        return NULL;
    }
    if (text)
        text[bytes] = 0;
    return text;
}

/* The text behind 'key': in a header. */
static const char *header_value(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at)
        return "";
    at += strlen(key);
    return at + strspn(at, "': ");
}

/* Elements that a shape such as (3, 4) holds; SIZE_MAX when it is none, or absurdly large. */
static size_t shape_elements(const char *shape)
{
    const size_t most = (size_t)1 << 44;
    size_t count = 1;
    if (*shape != '(')
        return SIZE_MAX;
    for (shape++; *shape != ')';) {
        char *end;
        unsigned long long size = strtoull(shape, &end, 10);
        if (!isdigit((unsigned char)*shape) || size > most || (size && count > most / size))
            return SIZE_MAX;
        count *= (size_t)size;
        shape = end + strspn(end, ", L");
    }
    return count;
}

static int understand_header(const char *path, const char *header, struct bench_file *file)
{
    const char *type = header_value(header, "'descr'");
    if (strncmp(type, "<f4", 3) == 0)
        file->type = qcclFloat32;
    else if (strncmp(type, "<f2", 3) == 0)
        file->type = qcclFloat16;
    else
        return bench_error("%s: its numbers are %.*s, expected '<f4' (float32) or '<f2' (float16)",
                           path, (int)strcspn(type, ","), type);
    if (strncmp(header_value(header, "'fortran_order'"), "False", 5) != 0)
        return bench_error("%s: its order is Fortran's, expected C's", path);
    const char *shape = header_value(header, "'shape'");
    file->count = shape_elements(shape);
    if (file->count == SIZE_MAX)
        return bench_error("%s: its shape is %.*s, expected whole numbers in brackets", path,
                           (int)strcspn(shape, "}\n"), shape);
    return 0;
}

static int read_values(const char *path, FILE *stream, size_t bytes, struct bench_file *file)
{
    file->values = malloc(bytes ? bytes : 1);
    if (!file->values)
        return bench_error("%s: no memory for its %zu bytes", path, bytes);
    if (!read_exactly(stream, file->values, bytes)) {
        bench_file_free(file);
        return bench_error("%s: %s", path, ferror(stream) ? strerror(errno) : "it ends too early");
    }
    return 0;
}

static bool has_suffix(const char *text, const char *suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}

static int load_npy(const char *path, FILE *stream, struct bench_file *file)
{
    char *header = read_header(stream);
    if (!header)
        return bench_error("%s: no .npy file", path);
    int status = understand_header(path, header, file);
    free(header);
    return status ? status
                  : read_values(path, stream, file->count * qcclTypeBytes(file->type), file);
}

static int load_raw(const char *path, FILE *stream, qcclDataType_t type, struct bench_file *file)
{
    struct stat about;
    if (fstat(fileno(stream), &about))
        return bench_error("%s: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode))
        return bench_error("%s: is %s", path,
                           S_ISDIR(about.st_mode) ? "a directory" : "no regular file");
    size_t bytes = (size_t)about.st_size, size = qcclTypeBytes(type);
    if (bytes % size)
        return bench_error("%s: %zu bytes are no whole number of %s values of %zu bytes", path,
                           bytes, bench_type_name(type), size);
    file->type = type;
    file->count = bytes / size;
    return read_values(path, stream, bytes, file);
}

int bench_file_load(const char *path, qcclDataType_t raw_type, struct bench_file *file)
{
    *file = (struct bench_file){.values = NULL};
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return bench_error("%s: %s", path, strerror(errno));
    int status = has_suffix(path, ".npy") ? load_npy(path, stream, file)
                                          : load_raw(path, stream, raw_type, file);
    fclose(stream);
    return status;
}

void bench_file_free(struct bench_file *file)
{
    free(file->values);
    *file = (struct bench_file){.values = NULL};
}
