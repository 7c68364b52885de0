/* The text that is learnt: one file, plain or gzip (dictzip too), split by position into training
 * and validation.
 *
 * Tokens are bytes.  A window is context + 1 bytes: the tokens and, one further, their targets. */
#ifndef BENCH_GPT_TEXT_H
#define BENCH_GPT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPT_DEFAULT_TEXT "/usr/share/dictd/gcide.dict.dz"

struct gpt_text {
    uint8_t *bytes;
    size_t count;
    size_t training; /* the first so many bytes; the rest is validation */
};

/* Reads a file that must have a window on both sides of the split.  False, with nothing to free
 * and a sentence in problem, when it cannot be read or is too short. */
bool gpt_text_load(struct gpt_text *text, const char *path, int context, char *problem,
                   size_t capacity);
void gpt_text_free(struct gpt_text *text);

/* Fills tokens and targets, batch * context values each, with random training windows: those of
 * one rank's one step under a seed. */
void gpt_text_sample(const struct gpt_text *text, uint64_t seed, int step, int rank, int batch,
                     int context, uint8_t *tokens, uint8_t *targets);

/* Validation window index of windows, which are spread evenly. */
void gpt_text_validation(const struct gpt_text *text, int index, int windows, int context,
                         uint8_t *tokens, uint8_t *targets);

#endif
