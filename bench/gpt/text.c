/* Reading through zlib, which passes plain files through and knows gzip's extra field, that
 * dictzip uses.
 *
 * Validation is the last twentieth: of a dictionary the last letters of the alphabet, so that no
 * entry is in both parts. */
#include "bench/gpt/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "bench/gpt/random.h"

static bool grow(struct gpt_text *text, size_t capacity)
{
    uint8_t *bytes = realloc(text->bytes, capacity);
    if (!bytes)
        return false;
    text->bytes = bytes;
    return true;
}

/* Returns NULL or what went wrong. */
static const char *read_all(struct gpt_text *text, gzFile file)
{
    const unsigned piece_bytes = 1 << 20;
    size_t capacity = 0;
    for (;;) {
        if (capacity - text->count < piece_bytes) {
            capacity = 2 * capacity + piece_bytes;
            if (!grow(text, capacity))
                return "out of memory";
        }
        int got = gzread(file, text->bytes + text->count, piece_bytes);
        if (got > 0) {
            text->count += (size_t)got;
            continue;
        }
        int code = Z_OK;
        const char *message = gzerror(file, &code);
        if (code == Z_OK || code == Z_STREAM_END)
            return NULL;
        return code == Z_ERRNO ? strerror(errno) : message;
    }
}

/* Says what stops the text from being used; false when nothing does. */
static bool find_problem(const struct gpt_text *text, const char *path, int context,
                         const char *read_error, char *problem, size_t capacity)
{
    size_t validation = text->count - text->training, window = (size_t)context + 1;
    if (read_error)
        snprintf(problem, capacity, "cannot read %s: %s", path, read_error);
    else if (validation < window)
        snprintf(problem, capacity,
                 "%s has %zu bytes, the last %zu for validation: less than one window of %zu", path,
                 text->count, validation, window);
    else
        return false;
    return true;
}

static const char *missing_hint(const char *path)
{
    if (strcmp(path, GPT_DEFAULT_TEXT) != 0)
        return "";
    return "; it is in Debian's package dict-gcide (apt-get install dict-gcide), and --text takes "
           "any other file";
}

bool gpt_text_load(struct gpt_text *text, const char *path, int context, char *problem,
                   size_t capacity)
{
    *text = (struct gpt_text){0};
    errno = 0;
    gzFile file = gzopen(path, "rb");
    if (!file) {
        snprintf(problem, capacity, "cannot open %s: %s%s", path, strerror(errno),
                 missing_hint(path));
        return false;
    }
    const char *read_error = read_all(text, file);
    text->training = text->count - text->count / 20;
    bool failed = find_problem(text, path, context, read_error, problem, capacity);
    gzclose(file);
    if (failed)
        gpt_text_free(text);
    return !failed;
}

void gpt_text_free(struct gpt_text *text)
{
    free(text->bytes);
    *text = (struct gpt_text){0};
}

static void copy_window(const uint8_t *window, int context, uint8_t *tokens, uint8_t *targets)
{
    memcpy(tokens, window, (size_t)context);
    memcpy(targets, window + 1, (size_t)context);
}

void gpt_text_sample(const struct gpt_text *text, uint64_t seed, int step, int rank, int batch,
                     int context, uint8_t *tokens, uint8_t *targets)
{
    uint64_t stream = (uint64_t)step << 32 | (uint32_t)rank;
    size_t places = text->training - (size_t)context;
    for (int i = 0; i < batch; i++) {
        size_t start = gpt_random(seed, stream, (uint64_t)i) % places,
               at = (size_t)i * (size_t)context;
        copy_window(text->bytes + start, context, tokens + at, targets + at);
    }
}

void gpt_text_validation(const struct gpt_text *text, int index, int windows, int context,
                         uint8_t *tokens, uint8_t *targets)
{
    size_t places = text->count - text->training - (size_t)context;
    size_t start = text->training + places * (size_t)index / (size_t)windows;
    copy_window(text->bytes + start, context, tokens, targets);
}
