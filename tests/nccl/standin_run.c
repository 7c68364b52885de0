/* The collectives of the NCCL for tests: see standin.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/nccl/standin.h"

static struct world *worlds;
static long split_worlds = 1L << 40; /* ids that no program was given */

struct world *standin_world(long id, int nranks)
{
    struct world *world = worlds;
    while (world && world->id != id)
        world = world->next;
    if (world)
        return world;
    world = calloc(1, sizeof *world);
    world->id = id;
    world->nranks = nranks;
    world->next = worlds;
    worlds = world;
    return world;
}

ncclComm_t standin_join(struct world *world, int rank, bool blocking)
{
    ncclComm_t comm = calloc(1, sizeof *comm);
    comm->world = world;
    comm->rank = rank;
    comm->blocking = blocking;
    comm->polls = blocking ? 0 : 3;
    world->comms[rank] = comm;
    world->joined++;
    return comm;
}

/* ------------------------------------------------------------------ values */

static size_t bytes(ncclDataType_t type)
{
    return type == ncclFloat64 ? 8 : type == ncclUint8 ? 1 : 4;
}

static double get(const void *at, size_t i, ncclDataType_t type)
{
    switch (type) {
    case ncclFloat64:
        return ((const double *)at)[i];
    case ncclInt32:
        return ((const int *)at)[i];
    case ncclUint8:
        return ((const unsigned char *)at)[i];
    default:
        return (double)((const float *)at)[i];
    }
}

static void put(void *at, size_t i, ncclDataType_t type, double value)
{
    switch (type) {
    case ncclFloat64:
        ((double *)at)[i] = value;
        break;
    case ncclInt32:
        ((int *)at)[i] = (int)value;
        break;
    case ncclUint8:
        ((unsigned char *)at)[i] = (unsigned char)value;
        break;
    default:
        ((float *)at)[i] = (float)value;
    }
}

static double combine(int op, double a, double b)
{
    switch (op) {
    case ncclProd:
        return a * b;
    case ncclMax:
        return a > b ? a : b;
    case ncclMin:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

static double reduced(struct part *const *parts, int n, size_t i)
{
    double sum = 0;
    for (int r = 0; r < n; r++) {
        double value = get(parts[r]->send, i, parts[r]->type);
        if (parts[r]->op >= ncclNumOps)
            value *= parts[r]->comm->scalars[parts[r]->op - ncclNumOps];
        sum = r == 0 ? value : combine(parts[r]->op, sum, value);
    }
    return parts[0]->op == ncclAvg ? sum / n : sum;
}

/* ------------------------------------------------------------------ running */

/* The whole result, before any rank's buffer is written: they may be the ones that are read. */
static void *result_of(struct part *const *parts, int n, size_t total)
{
    const struct part *p = parts[0];
    size_t size = bytes(p->type), block = p->count * size;
    char *all = calloc(total + 1, size);
    if (p->kind == ALL_GATHER)
        for (int r = 0; r < n; r++)
            memcpy(all + (size_t)r * block, parts[r]->send, block);
    else if (p->kind == BROADCAST)
        memcpy(all, parts[p->root]->send, block);
    else
        for (size_t i = 0; i < total; i++)
            put(all, i, p->type, reduced(parts, n, i));
    return all;
}

static void move(struct part *const *parts, int n)
{
    bool many = parts[0]->kind == REDUCE_SCATTER || parts[0]->kind == ALL_GATHER;
    size_t total = parts[0]->count * (many ? (size_t)n : 1), size = bytes(parts[0]->type);
    char *all = result_of(parts, n, total);
    for (int r = 0; r < n; r++) {
        bool part = parts[0]->kind == REDUCE_SCATTER;
        size_t block = parts[0]->count * size;
        memcpy(parts[r]->recv, all + (part ? (size_t)r * block : 0), part ? block : total * size);
    }
    free(all);
}

static bool before(const struct part *a, const struct part *b)
{
    return a->key < b->key || (a->key == b->key && a->comm->rank < b->comm->rank);
}

static void split(struct part *const *parts, int n)
{
    long base = split_worlds;
    split_worlds += 1000;
    for (int r = 0; r < n; r++) {
        int rank = 0, nranks = 0;
        for (int s = 0; s < n; s++) {
            bool same = parts[s]->color == parts[r]->color;
            nranks += same;
            rank += same && before(parts[s], parts[r]);
        }
        *parts[r]->slot = parts[r]->color == NCCL_SPLIT_NOCOLOR
                              ? NULL
                              : standin_join(standin_world(base + parts[r]->color, nranks), rank,
                                             parts[r]->comm->blocking);
    }
}

void standin_post(struct part *part)
{
    struct part *parts[STANDIN_RANKS] = {NULL}, **end = &part->comm->parts;
    const struct world *world = part->comm->world;
    while (*end)
        end = &(*end)->next;
    *end = part;
    if (world->joined < world->nranks)
        return;
    for (int r = 0; r < world->nranks; r++) {
        parts[r] = world->comms[r] ? world->comms[r]->parts : NULL;
        if (!parts[r])
            return;
    }
    if (parts[0]->kind == SPLIT)
        split(parts, world->nranks);
    else
        move(parts, world->nranks);
    for (int r = 0; r < world->nranks; r++) {
        world->comms[r]->parts = parts[r]->next;
        free(parts[r]);
    }
}
