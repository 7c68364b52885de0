/* Parser and printer of codecs, and the table of what each format allows. */
#include "quant/codec.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

struct format_rules {
    const char *name;
    bool groups;   /* has scales, hence group= and hadamard= */
    bool rounds;   /* has round= */
    bool nearest;  /* default of round= */
    bool feedback; /* has feedback= */
};

static const struct format_rules formats[qcclNumFormats] = {
    [qcclFormatNone] = {.name = "none"},
    [qcclFormatBf16] = {.name = "bf16", .rounds = true, .nearest = true, .feedback = true},
    [qcclFormatInt8] = {.name = "int8", .groups = true, .rounds = true, .feedback = true},
    [qcclFormatInt4] = {.name = "int4", .groups = true, .rounds = true, .feedback = true},
    [qcclFormatInt2] = {.name = "int2", .groups = true, .rounds = true, .feedback = true},
    [qcclFormatSr1] = {.name = "sr1", .groups = true, .rounds = true, .feedback = true},
    [qcclFormatSign1] = {.name = "sign1", .groups = true, .feedback = true},
};

const char *qccl_format_name(qcclFormat_t format)
{
    return formats[format].name;
}

int qccl_format_has_groups(qcclFormat_t format)
{
    return formats[format].groups;
}

size_t qccl_gcd(size_t a, size_t b)
{
    while (b) {
        size_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

size_t qccl_lcm(size_t a, size_t b)
{
    return a / qccl_gcd(a, b) * b;
}

/* Length of the word at s: what an error quotes and what a name may consist of. */
static size_t word_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

qcclResult_t qccl_parse_error(const char *whole, const char *at, const char *format, ...)
{
    char expected[256];
    va_list args;
    va_start(args, format);
    vsnprintf(expected, sizeof expected, format, args);
    va_end(args);
    size_t word = word_length(at), shown = word ? word : *at != 0;
    if (shown > 40)
        shown = 40;
    size_t position = (size_t)(at - whole) + 1;
    if (!*at)
        return qccl_fail(qcclInvalidArgument,
                         "\"%.200s\", position %zu: the text ends; expected %s", whole, position,
                         expected);
    return qccl_fail(qcclInvalidArgument, "\"%.200s\", position %zu: \"%.*s\"; expected %s", whole,
                     position, (int)shown, at, expected);
}

static bool is_word(const char *s, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(s, name, n) == 0;
}

static qcclResult_t parse_number(const char *whole, const char **cursor, const char *what,
                                 unsigned *number)
{
    const char *at = *cursor;
    size_t n = 0;
    while (isdigit((unsigned char)at[n]))
        n++;
    if (n == 0 || n > 6 || word_length(at) != n)
        return qccl_parse_error(whole, at, "%s", what);
    *number = (unsigned)strtoul(at, NULL, 10);
    *cursor += n;
    return qcclSuccess;
}

/* Reads one of two words as a flag; first is 0 and second is 1. */
static qcclResult_t parse_choice(const char *whole, const char **cursor, const char *first,
                                 const char *second, uint8_t *flag)
{
    size_t n = word_length(*cursor);
    if (!is_word(*cursor, n, first) && !is_word(*cursor, n, second))
        return qccl_parse_error(whole, *cursor, "%s or %s", first, second);
    *flag = is_word(*cursor, n, second);
    *cursor += n;
    return qcclSuccess;
}

static qcclResult_t parse_group(const char *whole, const char **cursor, qcclCodec_t *codec)
{
    const char *at = *cursor;
    unsigned group;
    RETURN_IF_FAILED(
        parse_number(whole, cursor, "a group size, a multiple of 32 from 32 to 8192", &group));
    if (group % GROUP_MIN != 0 || group < GROUP_MIN || group > GROUP_MAX)
        return qccl_parse_error(
            whole, at, "a group size, a multiple of 32 from 32 to 8192: %s: group=%u is %s",
            formats[codec->format].name, group,
            group % GROUP_MIN ? "no multiple of 32" : "out of range");
    codec->group = (uint16_t)group;
    return qcclSuccess;
}

static qcclResult_t parse_hadamard(const char *whole, const char **cursor, qcclCodec_t *codec)
{
    const char *at = *cursor;
    unsigned order;
    RETURN_IF_FAILED(parse_number(whole, cursor, "32, 64 or 128", &order));
    if (order != 32 && order != 64 && order != 128)
        return qccl_parse_error(whole, at, "32, 64 or 128");
    codec->hadamard = (uint16_t)order;
    return qcclSuccess;
}

static qcclResult_t parse_option(const char *whole, const char **cursor, qcclCodec_t *codec,
                                 unsigned *seen)
{
    const struct format_rules *rules = &formats[codec->format];
    const char *at = *cursor;
    size_t n = word_length(at);
    static const char *const names[] = {"group", "hadamard", "round", "feedback"};
    const bool allowed[] = {rules->groups, rules->groups, rules->rounds, rules->feedback};
    unsigned option = 0;
    while (option < 4 && !is_word(at, n, names[option]))
        option++;
    if (option == 4 || !allowed[option])
        return qccl_parse_error(
            whole, at, "an option of %s:%s%s%s%s", rules->name,
            rules->groups ? " group=, hadamard=," : "", rules->rounds ? " round=," : "",
            rules->feedback ? " feedback=" : "", rules->feedback ? "" : " it has none");
    if (*seen & 1u << option)
        return qccl_parse_error(whole, at, "each option once");
    *seen |= 1u << option;
    *cursor += n;
    if (**cursor != '=')
        return qccl_parse_error(whole, *cursor, "= after %s", names[option]);
    ++*cursor;
    switch (option) {
    case 0:
        return parse_group(whole, cursor, codec);
    case 1:
        return parse_hadamard(whole, cursor, codec);
    case 2:
        return parse_choice(whole, cursor, "stochastic", "nearest", &codec->nearest);
    default:
        return parse_choice(whole, cursor, "off", "on", &codec->feedback);
    }
}

/* The format that the word at s names; qcclNumFormats when none. */
static int format_at(const char *s)
{
    int format = 0;
    while (format < qcclNumFormats && !is_word(s, word_length(s), formats[format].name))
        format++;
    return format;
}

bool qccl_is_codec_name(const char *s)
{
    return format_at(s) < qcclNumFormats;
}

qcclResult_t qccl_codec_parse_at(const char *whole, const char **cursor, unsigned default_group,
                                 qcclCodec_t *codec)
{
    const char *start = *cursor;
    int format = format_at(start);
    if (format == qcclNumFormats)
        return qccl_parse_error(whole, start, "a codec: %s", QCCL_FORMAT_NAMES);
    qcclCodec_t made = {.format = (uint8_t)format, .nearest = formats[format].nearest};
    made.group = formats[format].groups ? (uint16_t)default_group : GROUP_DEFAULT;
    *cursor += word_length(start);
    unsigned seen = 0;
    for (char separator = ':'; **cursor == separator; separator = ',') {
        ++*cursor;
        RETURN_IF_FAILED(parse_option(whole, cursor, &made, &seen));
    }
    if (made.hadamard && made.group % made.hadamard)
        return qccl_parse_error(whole, start, "a group that hadamard=%d divides: %s: group=%d",
                                made.hadamard, formats[format].name, made.group);
    *codec = made;
    return qcclSuccess;
}

qcclResult_t qccl_codec_check(const qcclCodec_t *codec)
{
    CHECK_ARG(codec->format < qcclNumFormats, "codec: format %d is unknown", codec->format);
    const struct format_rules *rules = &formats[codec->format];
    CHECK_ARG(codec->nearest <= rules->rounds && codec->feedback <= rules->feedback &&
                  !codec->reserved,
              "%s: nearest=%d, feedback=%d, reserved=%d is not allowed", rules->name,
              codec->nearest, codec->feedback, codec->reserved);
    CHECK_ARG(codec->group % GROUP_MIN == 0 && codec->group >= GROUP_MIN &&
                  codec->group <= GROUP_MAX,
              "%s: group=%d is no multiple of 32 from 32 to 8192", rules->name, codec->group);
    CHECK_ARG(rules->groups || codec->group == GROUP_DEFAULT, "%s: group=%d, but it has no groups",
              rules->name, codec->group);
    int order = codec->hadamard;
    CHECK_ARG(order == 0 || order == 32 || order == 64 || order == 128,
              "%s: hadamard=%d is none of 32, 64, 128", rules->name, order);
    CHECK_ARG(order == 0 || codec->group % order == 0, "%s: hadamard=%d does not divide group=%d",
              rules->name, order, codec->group);
    return qcclSuccess;
}

qcclResult_t qcclCodecParse(const char *text, qcclCodec_t *codec)
{
    CHECK_ARG(text && codec, "qcclCodecParse: %s is NULL", text ? "codec" : "text");
    const char *cursor = text;
    qcclCodec_t made;
    RETURN_IF_FAILED(qccl_codec_parse_at(text, &cursor, GROUP_DEFAULT, &made));
    if (*cursor)
        return qccl_parse_error(text, cursor, "the end");
    *codec = made;
    return qcclSuccess;
}

qcclResult_t qcclCodecPrint(const qcclCodec_t *codec, char *text, size_t capacity)
{
    CHECK_ARG(codec && text, "qcclCodecPrint: %s is NULL", codec ? "text" : "codec");
    RETURN_IF_FAILED(qccl_codec_check(codec));
    const struct format_rules *rules = &formats[codec->format];
    char options[QCCL_CODEC_MAX] = "", *end = options;
    if (rules->groups)
        end += sprintf(end, ",group=%d", codec->group);
    if (codec->hadamard)
        end += sprintf(end, ",hadamard=%d", codec->hadamard);
    if (codec->nearest != rules->nearest)
        end += sprintf(end, ",round=%s", codec->nearest ? "nearest" : "stochastic");
    if (codec->feedback)
        sprintf(end, ",feedback=on");
    if (*options)
        *options = ':';
    size_t needed = strlen(rules->name) + strlen(options) + 1;
    CHECK_ARG(needed <= capacity, "qcclCodecPrint: %zu bytes of text do not fit into %zu", needed,
              capacity);
    snprintf(text, capacity, "%s%s", rules->name, options);
    return qcclSuccess;
}
