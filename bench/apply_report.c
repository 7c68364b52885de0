/* What qccl-apply says about a run; see apply.h. */
#include <stdio.h>
#include <string.h>

#include "bench/apply.h"
#include "bench/json.h"
#include "bench/options.h"
#include "bench/report.h"

struct summary {
    const struct apply *apply;
    struct bench_findings found;
    struct apply_losses losses;
    bool same_bits;
    char codec[QCCL_POLICY_MAX];
    int worst_owner;
    size_t worst_group; /* in the owner's segment */
    size_t worst_elems; /* of that group */
};

static double ratio_of(const struct apply *a)
{
    return a->wire_bytes ? (double)a->raw_bytes / (double)a->wire_bytes : 1.0;
}

static bool results_agree(const struct apply *a)
{
    size_t bytes = a->result_count * qcclTypeBytes(a->type);
    for (int r = 1; r < a->nranks && a->options->coll != qcclCollReduceScatter; r++)
        if (memcmp(a->results[0], a->results[r], bytes) != 0)
            return false;
    return true;
}

/* Finds the owner and the group that a value of the whole belongs to. */
static void locate_worst(struct summary *s)
{
    const struct apply *a = s->apply;
    for (int owner = 0; owner < a->nranks; owner++) {
        size_t first, elems, at = s->found.worst_first, group = a->scheme.main.group;
        bench_scheme_segment(&a->scheme, a->whole, owner, &first, &elems);
        if (at < first || at >= first + elems)
            continue;
        s->worst_owner = owner;
        s->worst_group = (at - first) / group;
        s->worst_elems = first + elems - at < group ? first + elems - at : group;
    }
}

static int look(struct summary *s)
{
    const struct apply *a = s->apply;
    for (int owner = 0; owner < a->nranks; owner++) {
        struct bench_subject subject = {.scheme = &a->scheme,
                                        .reader = apply_read,
                                        .context = a,
                                        .count = a->whole,
                                        .result = a->results[0]};
        if (a->options->coll == qcclCollReduceScatter) {
            subject.result = a->results[owner];
            subject.begin = (size_t)owner * a->result_count;
        }
        if (bench_verify(&subject, owner, &s->found))
            return bench_error("no memory to check the results");
    }
    s->same_bits = results_agree(a);
    bench_scheme_print(&a->scheme, s->codec);
    locate_worst(s);
    return apply_find_losses(a, &s->losses);
}

static void print_worst(const struct summary *s)
{
    const struct bench_findings *f = &s->found;
    if (f->worst_error == 0) {
        bool exact = f->wrong == 0 && f->nan_values == 0;
        printf("worst group     none: %s\n",
               exact ? "every value is exact" : "every value is exact or not finite");
        return;
    }
    printf("worst group     %zu of rank %d's segment, values %llu to %llu: error %.3g beside a "
           "largest "
           "value of %.3g",
           s->worst_group, s->worst_owner, (unsigned long long)f->worst_first,
           (unsigned long long)f->worst_first + s->worst_elems - 1, f->worst_error, f->worst_value);
    if (f->worst_value > 0)
        printf(" (%.3g %%)", 100 * f->worst_error / f->worst_value);
    printf("\n");
}

static void print_summary(const struct summary *s)
{
    const struct apply *a = s->apply;
    const struct bench_findings *f = &s->found;
    bool reduces = a->options->coll != qcclCollAllGather;
    printf("%s of %zu %s values on each of %d ranks%s%s\n", bench_coll_name(a->options->coll),
           a->count, bench_type_name(a->type), a->nranks, reduces ? ", " : "",
           reduces ? bench_op_name(a->options->op) : "");
    printf("codec           %s\n", s->codec);
    if (!a->compressed)
        printf("                the policy passes this call through: nothing was compressed\n");
    else
        printf("raw bytes       %llu\nwire bytes      %llu\nratio           %.3f\n",
               (unsigned long long)a->raw_bytes, (unsigned long long)a->wire_bytes, ratio_of(a));
    printf("relative error  %.4g\n", bench_relative_error(f));
    print_worst(s);
    printf("out of bounds   %llu values; the closest error took %.3g of its bound\n",
           (unsigned long long)f->wrong, f->closest);
    printf("clipped         %llu values\n", (unsigned long long)s->losses.clipped);
    printf("NaN groups      %llu that travelled; %llu values of the result are NaN\n",
           (unsigned long long)s->losses.nan_groups, (unsigned long long)f->nan_values);
    if (a->options->coll != qcclCollReduceScatter)
        printf("ranks           %s\n",
               s->same_bits ? "all have the same bits" : "have different bits");
    printf("results         %s/rank0.f32", a->options->out);
    if (a->nranks > 1)
        printf(" to rank%d.f32", a->nranks - 1);
    printf(", %zu fp32 values each\n", a->result_count);
}

static int write_json(const struct summary *s, const char *path)
{
    const struct apply *a = s->apply;
    const struct bench_findings *f = &s->found;
    struct json json;
    if (!bench_json_open(&json, path))
        return bench_error("%s: cannot be written", path);
    bench_json_object(&json);
    bench_json_string(&json, "collective", bench_coll_name(a->options->coll));
    bench_json_integer(&json, "count", a->count);
    bench_json_string(&json, "type", bench_type_name(a->type));
    bench_json_string(&json, "op",
                      a->options->coll == qcclCollAllGather ? "none"
                                                            : bench_op_name(a->options->op));
    bench_json_integer(&json, "ranks", (uint64_t)a->nranks);
    bench_json_string(&json, "policy", a->options->policy ? a->options->policy : s->codec);
    bench_json_string(&json, "codec", s->codec);
    bench_json_bool(&json, "compressed", a->compressed);
    bench_json_integer(&json, "seed", a->options->seed);
    bench_json_integer(&json, "sequence", a->options->sequence);
    bench_json_integer(&json, "raw_bytes", a->raw_bytes);
    bench_json_integer(&json, "wire_bytes", a->wire_bytes);
    bench_json_number(&json, "ratio", ratio_of(a));
    bench_json_number(&json, "rel_error", bench_relative_error(f));
    bench_json_integer(&json, "worst_owner", (uint64_t)s->worst_owner);
    bench_json_integer(&json, "worst_group", s->worst_group);
    bench_json_integer(&json, "worst_first", f->worst_first);
    bench_json_number(&json, "worst_error", f->worst_error);
    bench_json_number(&json, "worst_value", f->worst_value);
    bench_json_integer(&json, "wrong", f->wrong);
    bench_json_number(&json, "closest_to_bound", f->closest);
    bench_json_integer(&json, "clipped", s->losses.clipped);
    bench_json_integer(&json, "nan_groups", s->losses.nan_groups);
    bench_json_integer(&json, "nan_values", f->nan_values);
    bench_json_bool(&json, "same_bits", s->same_bits);
    bench_json_object_end(&json);
    return bench_json_close(&json) ? 0 : bench_error("%s: cannot be written", path);
}

int apply_report(const struct apply *a)
{
    struct summary s = {.apply = a};
    const char *json = a->options->json;
    int status = look(&s);
    if (status)
        return status;
    if (!json || strcmp(json, "-") != 0)
        print_summary(&s);
    if (json)
        status = write_json(&s, json);
    if (s.found.wrong)
        status =
            bench_error("%llu values are outside their bound", (unsigned long long)s.found.wrong);
    if (s.losses.clipped)
        status = bench_error("%llu values were clipped", (unsigned long long)s.losses.clipped);
    if (!s.same_bits)
        status = bench_error("ranks have different bits");
    return status;
}
