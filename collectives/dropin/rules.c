/* See dropin/rules.h.  Every error names the position and what was expected there. */
#include "collectives/dropin/rules.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "quant/codec.h"

struct parser {
    const char *whole, *at;
};

static const struct {
    const char *word;
    unsigned collectives, types;
} words[] = {
    {.word = "allreduce", .collectives = 1u << qcclCollAllReduce},
    {.word = "reducescatter", .collectives = 1u << qcclCollReduceScatter},
    {.word = "allgather", .collectives = 1u << qcclCollAllGather},
    {.word = "float", .types = 1u << qcclFloat32},
    {.word = "double", .types = 1u << qcclFloat64},
};

/* ------------------------------------------------------------------ parsing */

static void skip_space(struct parser *p)
{
    while (isspace((unsigned char)*p->at))
        p->at++;
}

static bool ends(const char *at)
{
    return !*at || *at == ';' || isspace((unsigned char)*at);
}

static bool take(struct parser *p, const char *text)
{
    size_t n = strlen(text);
    if (strncmp(p->at, text, n) != 0)
        return false;
    p->at += n;
    return true;
}

static qcclResult_t parse_number(struct parser *p, size_t *number)
{
    static const char units[] = "KMG";
    const char *at = p->at;
    char *end;
    unsigned long long value = strtoull(at, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10 * (unsigned)(unit - units + 1) : 0;
    if (!isdigit((unsigned char)*at) || strspn(at, "0123456789") > 18 || value > SIZE_MAX >> shift)
        return qccl_parse_error(p->whole, at, "a number such as 4096 or 4K");
    p->at = end + (unit != NULL);
    if (!ends(p->at))
        return qccl_parse_error(p->whole, p->at, "K, M, G, a space, ; or the end");
    *number = (size_t)value << shift;
    return qcclSuccess;
}

static qcclResult_t parse_range(struct parser *p, size_t *lowest, size_t *highest)
{
    if (take(p, ">="))
        return parse_number(p, lowest);
    if (take(p, "<="))
        return parse_number(p, highest);
    return qccl_parse_error(p->whole, p->at, ">= or <=");
}

static qcclResult_t parse_pattern(struct parser *p, char *pattern)
{
    size_t n = 0;
    while (!ends(p->at + n))
        n++;
    if (n == 0 || n >= PATTERN_MAX)
        return qccl_parse_error(p->whole, p->at, "a pattern of 1 to %d characters",
                                PATTERN_MAX - 1);
    memcpy(pattern, p->at, n);
    pattern[n] = 0;
    p->at += n;
    return qcclSuccess;
}

static qcclResult_t parse_test(struct parser *p, struct rule *rule)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(p->at, words[i].word, strlen(words[i].word)) == 0 &&
            ends(p->at + strlen(words[i].word))) {
            p->at += strlen(words[i].word);
            rule->collectives |= words[i].collectives;
            rule->types |= words[i].types;
            return qcclSuccess;
        }
    if (take(p, "count"))
        return parse_range(p, &rule->count_min, &rule->count_max);
    if (take(p, "ranks"))
        return parse_range(p, &rule->ranks_min, &rule->ranks_max);
    if (take(p, "name="))
        return parse_pattern(p, rule->name);
    if (take(p, "site="))
        return parse_pattern(p, rule->site);
    return qccl_parse_error(p->whole, p->at,
                            "allreduce, reducescatter, allgather, float, double, count>=, "
                            "count<=, ranks>=, ranks<=, name= or site=");
}

static qcclResult_t parse_clause(struct parser *p, struct rule *rule)
{
    *rule = (struct rule){.count_max = SIZE_MAX, .ranks_max = SIZE_MAX};
    rule->except = take(p, "except=");
    if (!rule->except && !take(p, "only="))
        return qccl_parse_error(p->whole, p->at, "only= or except=");
    do {
        skip_space(p);
        RETURN_IF_FAILED(parse_test(p, rule));
        skip_space(p);
    } while (*p->at && *p->at != ';');
    return qcclSuccess;
}

qcclResult_t qccl_rules_parse(const char *text, struct rules *rules)
{
    struct parser p = {.whole = text, .at = text};
    struct rules made = {0};
    for (skip_space(&p); *p.at; skip_space(&p)) {
        if (made.count == RULES_MAX)
            return qccl_parse_error(p.whole, p.at, "at most %d clauses", RULES_MAX);
        struct rule *rule = &made.of[made.count++];
        RETURN_IF_FAILED(parse_clause(&p, rule));
        made.ask_name = made.ask_name || *rule->name;
        made.ask_site = made.ask_site || *rule->site;
        if (*p.at == ';')
            p.at++;
    }
    *rules = made;
    return qcclSuccess;
}

/* ------------------------------------------------------------------ asking */

static bool has(unsigned set, unsigned bit)
{
    return !set || set & 1u << bit;
}

static bool between(size_t value, size_t lowest, size_t highest)
{
    return lowest <= value && value <= highest;
}

static bool matches(const struct rule *rule, const struct candidate *call)
{
    return has(rule->collectives, call->collective) && has(rule->types, call->type) &&
           between(call->count, rule->count_min, rule->count_max) &&
           between((size_t)call->nranks, rule->ranks_min, rule->ranks_max) &&
           (!*rule->name || fnmatch(rule->name, call->name, 0) == 0) &&
           (!*rule->site || fnmatch(rule->site, call->site[0], 0) == 0 ||
            fnmatch(rule->site, call->site[1], 0) == 0);
}

enum rules_answer qccl_rules_ask(const struct rules *rules, const struct candidate *call)
{
    bool any_only = false, only = false, named = call->type != qcclFloat64;
    for (int i = 0; i < rules->count; i++) {
        const struct rule *rule = &rules->of[i];
        bool match = matches(rule, call);
        if (match && rule->except)
            return RULES_EXCEPT;
        any_only = any_only || !rule->except;
        only = only || (match && !rule->except);
        named = named || (match && !rule->except && rule->types);
    }
    if (any_only && !only)
        return RULES_NOT_ONLY;
    return named ? RULES_TAKE : RULES_DOUBLE;
}
