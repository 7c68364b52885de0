/* Codecs as text and as numbers: names, options, defaults, and their rules.
 *
 * The grammar is  name [':' option (',' option)*]  with options group=, hadamard=, round=,
 * feedback=. */
#ifndef QCCL_QUANT_CODEC_H
#define QCCL_QUANT_CODEC_H

#include <stdbool.h>

#include "qccl/qccl.h"

enum { GROUP_MIN = 32, GROUP_MAX = 8192, GROUP_DEFAULT = 128, GROUP_DELTA = 2048 };

/* Parses the codec at *cursor, which points into `whole` (for positions in errors), and moves
 * *cursor behind it.  default_group is used where the text names none. */
qcclResult_t qccl_codec_parse_at(const char *whole, const char **cursor, unsigned default_group,
                                 qcclCodec_t *codec);

#define QCCL_FORMAT_NAMES "none, bf16, int8, int4, int2, sr1, sign1"
/* Whether the word at s names a format. */
bool qccl_is_codec_name(const char *s);

/* A parse error: position of `at` in `whole`, what stands there, what was expected. */
qcclResult_t qccl_parse_error(const char *whole, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether a codec made by hand keeps the rules that the parser enforces, but for one: bf16 and none
 * may have a Hadamard order, since the first hop of a two-level sum travels in the main codec's
 * domain. */
qcclResult_t qccl_codec_check(const qcclCodec_t *codec);

const char *qccl_format_name(qcclFormat_t format);

/* Whether the format has groups and scales. */
int qccl_format_has_groups(qcclFormat_t format);

size_t qccl_gcd(size_t a, size_t b);
size_t qccl_lcm(size_t a, size_t b);

#endif
