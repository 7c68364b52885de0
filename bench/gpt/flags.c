/* The command line of qccl-gpt as one table: parsing, ranges, defaults and help all walk it.
 *
 * A value is the next argument or stands behind an equals sign. */
#include "bench/gpt/flags.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/gpt/text.h"
#include "bench/options.h"
#include "bench/report.h"

enum kind { KIND_INT, KIND_SEED, KIND_REAL, KIND_TEXT, KIND_SWITCH };

struct flag {
    const char *name;
    enum kind kind;
    size_t field;        /* offset in struct gpt_options */
    int least, most;     /* of integers; a real number is at least 0 */
    const char *initial; /* the default, as one would type it; NULL: none */
    const char *help;
};

#define FIELD(name) offsetof(struct gpt_options, name)

static const struct flag flags[] = {
    {.name = "ranks",
     .kind = KIND_INT,
     .field = FIELD(ranks),
     .least = 1,
     .most = 1024,
     .help = "threads that are ranks (default 4); under mpirun its processes are"},
    {.name = "policy",
     .kind = KIND_TEXT,
     .field = FIELD(policy),
     .help = "what is compressed: none, int4, \"int4 gather=int8; min=0\", ... (default:\n"
             "QCCL_POLICY, else the library's)"},
    {.name = "sharded",
     .kind = KIND_SWITCH,
     .field = FIELD(sharded),
     .help = "ZeRO-style: gradients are reduce-scattered, each rank's optimizer has a shard,\n"
             "weights are gathered; clauses reducescatter:, delta: and allgather: of the policy"},
    {.name = "weights",
     .kind = KIND_TEXT,
     .field = FIELD(weights),
     .help = "with --sharded, what is gathered: delta, differences by the policy's delta: (the\n"
             "default); plain, weights by its allgather:; fp32, weights, uncompressed"},
    {.name = "duo",
     .kind = KIND_TEXT,
     .field = FIELD(duo),
     .help = "sharded, and gradients are reduced twice (DUO): the fast reduction at 4 (int4), 1\n"
             "(sign1) or 0 bits (the owner's local gradient), or with a codec; the slow one\n"
             "runs under the next step"},
    {.name = "slow",
     .kind = KIND_TEXT,
     .field = FIELD(slow),
     .help = "with --duo, what its slow reduction sends: fp32 (the default), bf16,\n"
             "\"residual int8\" or \"residual int4\""},
    {.name = "optimizer",
     .kind = KIND_TEXT,
     .field = FIELD(optimizer),
     .help = "adamw (the default), or with --sharded sgd (momentum 0.9)"},
    {.name = "overlap",
     .kind = KIND_TEXT,
     .field = FIELD(overlap),
     .help = "on: gradients are reduced in buckets on a stream beside the backward pass (the\n"
             "default with --sharded); off: after it, without --sharded by one call"},
    {.name = "bucket",
     .kind = KIND_INT,
     .field = FIELD(bucket_kib),
     .least = 1,
     .most = 1 << 20,
     .help = "with --sharded or --overlap on, KiB of gradients that are reduced together (default "
             "512)"},
    {.name = "steps",
     .kind = KIND_INT,
     .field = FIELD(steps),
     .least = 1,
     .most = 100000000,
     .initial = "1400",
     .help = "optimizer steps"},
    {.name = "batch",
     .kind = KIND_INT,
     .field = FIELD(batch),
     .least = 1,
     .most = 4096,
     .initial = "4",
     .help = "sequences a rank learns from in a step"},
    {.name = "layers",
     .kind = KIND_INT,
     .field = FIELD(layers),
     .least = 1,
     .most = GPT_MAX_LAYERS,
     .initial = "3",
     .help = "transformer blocks"},
    {.name = "width",
     .kind = KIND_INT,
     .field = FIELD(width),
     .least = 1,
     .most = 4096,
     .initial = "128",
     .help = "values of a token between blocks, a multiple of --heads"},
    {.name = "heads",
     .kind = KIND_INT,
     .field = FIELD(heads),
     .least = 1,
     .most = 256,
     .initial = "4",
     .help = "attention heads"},
    {.name = "context",
     .kind = KIND_INT,
     .field = FIELD(context),
     .least = 1,
     .most = 4096,
     .initial = "64",
     .help = "bytes of a sequence"},
    {.name = "lr",
     .kind = KIND_REAL,
     .field = FIELD(rate),
     .initial = "3e-3",
     .help = "peak learning rate; a cosine takes it to a tenth of that"},
    {.name = "warmup",
     .kind = KIND_INT,
     .field = FIELD(warmup),
     .least = 0,
     .most = 100000000,
     .initial = "100",
     .help = "steps in which the learning rate rises to its peak"},
    {.name = "decay",
     .kind = KIND_REAL,
     .field = FIELD(decay),
     .initial = "0.1",
     .help = "weight decay of matrices"},
    {.name = "clip",
     .kind = KIND_REAL,
     .field = FIELD(clip),
     .initial = "1",
     .help = "largest norm of the averaged gradient; 0: any"},
    {.name = "seed",
     .kind = KIND_SEED,
     .field = FIELD(seed),
     .initial = "1",
     .help = "of weights, batches and rounding; a run repeats bit for bit"},
    {.name = "text",
     .kind = KIND_TEXT,
     .field = FIELD(text),
     .initial = GPT_DEFAULT_TEXT,
     .help = "file to learn, plain or gzip; its last twentieth is for validation"},
    {.name = "eval",
     .kind = KIND_INT,
     .field = FIELD(eval),
     .least = 1,
     .most = 100000000,
     .initial = "100",
     .help = "steps between validations, each with a progress line and a check that\n"
             "all ranks have the same parameters"},
    {.name = "windows",
     .kind = KIND_INT,
     .field = FIELD(windows),
     .least = 1,
     .most = 1000000,
     .initial = "256",
     .help = "sequences of a validation, spread evenly, always the same ones"},
    {.name = "log",
     .kind = KIND_TEXT,
     .field = FIELD(log),
     .help = "file for tab-separated rows, one a progress line"},
    {.name = "json",
     .kind = KIND_TEXT,
     .field = FIELD(json),
     .help = "file for a summary at the end; \"-\": standard output, without progress lines"},
    {.name = "dump-grads",
     .kind = KIND_TEXT,
     .field = FIELD(dump_dir),
     .help = "folder for grad.rank0.f32 and so on: each rank's own gradient before the\n"
             "all-reduce, raw little-endian fp32"},
    {.name = "dump-step",
     .kind = KIND_INT,
     .field = FIELD(dump_step),
     .least = 1,
     .most = 100000000,
     .initial = "100",
     .help = "the step whose gradients are dumped"},
};

enum { FLAGS = sizeof flags / sizeof flags[0], BUCKET_KIB = 512 };

/* ------------------------------------------------------------------ help */

enum { HELP_COLUMN = 20 };

static void print_flag(const struct flag *flag)
{
    static const char *const values[] = {[KIND_INT] = "N",
                                         [KIND_SEED] = "N",
                                         [KIND_REAL] = "X",
                                         [KIND_TEXT] = "TEXT",
                                         [KIND_SWITCH] = ""};
    char left[40];
    snprintf(left, sizeof left, "--%s %s", flag->name, values[flag->kind]);
    printf("  %-*s ", HELP_COLUMN - 3, left);
    for (const char *c = flag->help; *c; c++) {
        putchar(*c);
        if (*c == '\n')
            printf("%*s", HELP_COLUMN, "");
    }
    if (flag->initial) {
        bool is_long = strlen(flag->initial) > 10;
        printf("%s%*s(default %s)", is_long ? "\n" : "", is_long ? HELP_COLUMN : 1, "",
               flag->initial);
    }
    putchar('\n');
}

static void print_help(void)
{
    puts("usage: qccl-gpt [flags]\n"
         "       mpirun -n 4 qccl-gpt [flags]\n"
         "\n"
         "Trains a small GPT on the bytes of a text, data-parallel: each rank works out the\n"
         "gradient of its own batch, one qcclAllReduce averages the gradients, and every rank\n"
         "takes the same AdamW step.  With --sharded gradients are reduce-scattered, each rank\n"
         "updates its shard of the weights, and those are gathered; what is validated are the\n"
         "fp32 master weights, and training does not depend on how often.\n");
    for (size_t i = 0; i < FLAGS; i++)
        print_flag(&flags[i]);
    puts("  --version         version of the program and the library\n"
         "  --help            this text\n"
         "\n"
         "A progress line has the mean training loss since the last line and the validation\n"
         "loss, in nats a byte; the tokens (bytes) all ranks learnt from in a second; comm, the\n"
         "share of time in the all-reduce of gradients, or sharded in all that follows the\n"
         "backward pass, which starts to count when the last rank is there; wire, the bytes\n"
         "all ranks have sent for gradients and weights; ratio, what fp32 would have sent to\n"
         "what was; error, the relative error of what was encoded, sampled (unknown with error\n"
         "feedback, where the library takes no samples).  Sharded, wire is also told apart for\n"
         "gradients and weights, and with --duo, what slow reductions sent besides, and\n"
         "exposed, the share of time in which a commit waited for one.\n"
         "Validations are not counted, neither as time nor as bytes.  A row of --log has step,\n"
         "train_loss, val_loss, seconds, tokens_per_s, comm_share, raw_bytes, wire_bytes,\n"
         "gradient_bytes, weight_bytes, slow_bytes and exposed_share.");
}

/* ------------------------------------------------------------------ values */

static int store_int(const struct flag *flag, const char *text, void *field)
{
    int value;
    if (!bench_parse_int(text, flag->least, flag->most, &value))
        return bench_usage_error("--%s %s: expected a whole number from %d to %d", flag->name, text,
                                 flag->least, flag->most);
    memcpy(field, &value, sizeof value);
    return 0;
}

static int store_seed(const struct flag *flag, const char *text, void *field)
{
    uint64_t value;
    if (!bench_parse_integer(text, 0, UINT64_MAX, &value))
        return bench_usage_error("--%s %s: expected a whole number from 0 to 2^64 - 1", flag->name,
                                 text);
    memcpy(field, &value, sizeof value);
    return 0;
}

static int store_real(const struct flag *flag, const char *text, void *field)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0)
        return bench_usage_error("--%s %s: expected a number that is not negative", flag->name,
                                 text);
    memcpy(field, &value, sizeof value);
    return 0;
}

static int store(const struct flag *flag, const char *text, struct gpt_options *options)
{
    void *field = (char *)options + flag->field;
    switch (flag->kind) {
    case KIND_INT:
        return store_int(flag, text, field);
    case KIND_SEED:
        return store_seed(flag, text, field);
    case KIND_REAL:
        return store_real(flag, text, field);
    case KIND_TEXT:
    case KIND_SWITCH:
        break;
    }
    memcpy(field, &text, sizeof text);
    return 0;
}

/* ------------------------------------------------------------------ the command line */

static const struct flag *find_flag(const char *name, size_t length)
{
    for (size_t i = 0; i < FLAGS; i++) {
        if (strlen(flags[i].name) == length && memcmp(flags[i].name, name, length) == 0)
            return &flags[i];
    }
    return NULL;
}

/* Takes the flag at argv[*at] with its value and moves *at behind them. */
static int take_flag(struct gpt_options *options, int argc, char **argv, int *at)
{
    const char *text = argv[(*at)++];
    if (strncmp(text, "--", 2) != 0)
        return bench_usage_error("unexpected argument \"%s\"", text);
    const char *name = text + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct flag *flag = find_flag(name, length);
    if (!flag)
        return bench_usage_error("no such flag: --%.*s", (int)length, name);
    if (flag->kind == KIND_SWITCH) {
        const bool on = true;
        if (equals)
            return bench_usage_error("--%s takes no value", flag->name);
        memcpy((char *)options + flag->field, &on, sizeof on);
        return 0;
    }
    if (!equals && *at == argc)
        return bench_usage_error("--%s needs a value", flag->name);
    return store(flag, equals ? equals + 1 : argv[(*at)++], options);
}

/* What no flag alone can get wrong. */
static int check_together(const struct gpt_options *options)
{
    if (options->width % options->heads != 0)
        return bench_usage_error("--width %d is no multiple of --heads %d", options->width,
                                 options->heads);
    if (options->dump_dir && options->dump_step > options->steps)
        return bench_usage_error("--dump-step %d is after the last of --steps %d",
                                 options->dump_step, options->steps);
    return 0;
}

/* Gives *text its default, the first of `allowed`, which NULL closes, or checks that it is one of
 * them. */
static int settle(const char *flag, const char **text, const char *const *allowed)
{
    if (!*text)
        *text = allowed[0];
    char list[128] = "";
    for (size_t length = 0; *allowed; allowed++) {
        if (strcmp(*text, *allowed) == 0)
            return 0;
        length += (size_t)snprintf(list + length, sizeof list - length, "%s%s",
                                   length ? ", or " : "", *allowed);
    }
    return bench_usage_error("--%s %s: expected %s", flag, *text, list);
}

/* A flag that would do nothing is refused. */
static int check_needs(const struct gpt_options *o)
{
    bool has_sgd = o->optimizer && strcmp(o->optimizer, "adamw") != 0;
    bool overlaps = o->overlap && strcmp(o->overlap, "off") != 0;
    if (!o->sharded && (o->weights || has_sgd))
        return bench_usage_error("--%s needs --sharded", o->weights ? "weights" : "optimizer");
    if (!o->sharded && !overlaps && o->bucket_kib)
        return bench_usage_error("--bucket needs --sharded or --overlap on");
    if (!o->sharded && overlaps && o->dump_dir)
        return bench_usage_error("--dump-grads: with --overlap on gradients are averaged in place "
                                 "before all of them are there");
    if (!o->duo && o->slow)
        return bench_usage_error("--slow %s needs --duo", o->slow);
    return 0;
}

/* What goes with how gradients are reduced. */
static int settle_reduction(struct gpt_options *options)
{
    static const char *const weights[] = {"delta", "plain", "fp32", NULL};
    static const char *const slow[] = {"fp32", "bf16", "residual int8", "residual int4", NULL};
    static const char *const optimizers[] = {"adamw", "sgd", NULL};
    static const char *const on_or_off[] = {"on", "off", NULL}, *const off_or_on[] = {"off", "on",
                                                                                      NULL};
    options->sharded = options->sharded || options->duo;
    int status = check_needs(options);
    if (!status)
        status = settle("weights", &options->weights, weights);
    if (!status)
        status = settle("slow", &options->slow, slow);
    if (!status)
        status = settle("optimizer", &options->optimizer, optimizers);
    if (!status)
        status = settle("overlap", &options->overlap, options->sharded ? on_or_off : off_or_on);
    if (!options->bucket_kib)
        options->bucket_kib = BUCKET_KIB;
    return status;
}

static bool is_flag(const char *text, const char *name)
{
    return strcmp(text, name) == 0;
}

bool gpt_flags_parse(struct gpt_options *options, int argc, char **argv, int *status)
{
    *options = (struct gpt_options){0};
    *status = 0;
    for (size_t i = 0; i < FLAGS && *status == 0; i++) {
        if (flags[i].initial)
            *status = store(&flags[i], flags[i].initial, options);
    }
    for (int at = 1; at < argc && *status == 0;) {
        if (is_flag(argv[at], "--help") || is_flag(argv[at], "-h")) {
            print_help();
            return false;
        }
        if (is_flag(argv[at], "--version")) {
            bench_print_version();
            return false;
        }
        *status = take_flag(options, argc, argv, &at);
    }
    if (*status == 0)
        *status = check_together(options);
    if (*status == 0)
        *status = settle_reduction(options);
    return *status == 0;
}

struct gpt_shape gpt_flags_shape(const struct gpt_options *options)
{
    return (struct gpt_shape){
        .layers = options->layers,
        .width = options->width,
        .heads = options->heads,
        .context = options->context,
        .vocabulary = 256,
    };
}
