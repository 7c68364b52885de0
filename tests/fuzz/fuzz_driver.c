/* Runs a fuzz target without libFuzzer: every file of a corpus folder, then random mutations of
 * them.
 *
 *     fuzz_decode CORPUS MUTATIONS [SEED]
 *
 * A failure aborts the process; the input's number and the seed stand on the line before, so that
 * it can be repeated. */
#include <dirent.h>
#include <string.h>
#include <time.h>

#include "tests/fuzz/fuzz.h"
#include "tests/inputs.h"
#include "tests/tap.h"

enum { FILES_MAX = 256, INPUT_MAX = 1 << 16 };

struct input {
    uint8_t *bytes;
    size_t size;
};

static struct input corpus[FILES_MAX];
static int files;
static uint64_t seed, draws;

static uint64_t draw(uint64_t below)
{
    return below ? input_hash(seed, 0, (size_t)draws++) % below : 0;
}

static bool read_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    struct input *in = &corpus[files];
    if (!file)
        return false;
    in->bytes = malloc(INPUT_MAX);
    if (in->bytes)
        in->size = fread(in->bytes, 1, INPUT_MAX, file);
    fclose(file);
    files += in->bytes != NULL;
    return in->bytes != NULL;
}

static bool read_corpus(const char *folder)
{
    DIR *dir = opendir(folder);
    bool good = dir != NULL;
    for (const struct dirent *e; good && (e = readdir(dir)) != NULL;)
        if (e->d_name[0] != '.' && files < FILES_MAX)
            good = read_file(folder, e->d_name);
    if (dir)
        closedir(dir);
    return good && files > 0;
}

/* One change of an input with room for INPUT_MAX bytes. */
static void mutate(struct input *in)
{
    static const uint8_t interesting[] = {0, 1, 2, 0x7f, 0x80, 0xff, ' ', ';', ':', '=', ','};
    size_t at = (size_t)draw(in->size + 1);
    switch (draw(6)) {
    case 0:
        if (in->size)
            in->bytes[at % in->size] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        if (in->size)
            in->bytes[at % in->size] = interesting[draw(sizeof interesting)];
        break;
    case 2: /* cut out */
        if (at < in->size) {
            size_t n = (size_t)draw(in->size - at) + 1;
            memmove(in->bytes + at, in->bytes + at + n, in->size - at - n);
            in->size -= n;
        }
        break;
    case 3: /* put in */
        if (in->size < INPUT_MAX) {
            memmove(in->bytes + at + 1, in->bytes + at, in->size - at);
            in->bytes[at] = (uint8_t)draw(256);
            in->size++;
        }
        break;
    case 4: { /* the tail of another input */
        const struct input *other = &corpus[draw((uint64_t)files)];
        size_t from = (size_t)draw(other->size + 1), n = other->size - from;
        if (at + n <= INPUT_MAX) {
            memcpy(in->bytes + at, other->bytes + from, n);
            in->size = at + n;
        }
        break;
    }
    default: /* eight random bytes */
        for (size_t i = at; i < at + 8 && i < in->size; i++)
            in->bytes[i] = (uint8_t)draw(256);
    }
}

/* Gives the target a copy of exactly the input's size. */
static void run_target(const struct input *in)
{
    uint8_t *copy = malloc(in->size ? in->size : 1);
    if (!copy)
        return;
    memcpy(copy, in->bytes, in->size);
    LLVMFuzzerTestOneInput(copy, in->size);
    free(copy);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return EXIT_FAILURE;
    long mutations = strtol(argv[2], NULL, 10);
    seed = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)time(NULL);
    if (!tap_ok(read_corpus(argv[1]), "the corpus %s can be read", argv[1]))
        return tap_end();
    for (int i = 0; i < files; i++)
        run_target(&corpus[i]);
    tap_ok(true, "%d inputs of the corpus pass", files);
    printf("# seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    struct input in = {.bytes = malloc(INPUT_MAX + 8)};
    for (long m = 0; in.bytes && m < mutations; m++) {
        const struct input *from = &corpus[draw((uint64_t)files)];
        in.size = from->size;
        memcpy(in.bytes, from->bytes, from->size);
        for (uint64_t changes = 1 + draw(4); changes--;)
            mutate(&in);
        run_target(&in);
    }
    tap_ok(in.bytes != NULL, "%ld mutations of them pass", mutations);
    free(in.bytes);
    for (int i = 0; i < files; i++)
        free(corpus[i].bytes);
    return tap_end();
}
