/* Where the ranks' values come from: files of numbers, or a pool of normal ones made from a seed.
 *
 * Both are pools of fp32 values that a rank reads from its own offset, around and around.  So every
 * rank can recompute what every other rank put in, which is how results are checked without sending
 * anything. */
#ifndef BENCH_INPUT_H
#define BENCH_INPUT_H

#include <stddef.h>
#include <stdint.h>

#include "qccl/qccl.h"

/* The numbers of one file. */
struct bench_file {
    void *values;
    size_t count;
    qcclDataType_t type; /* fp32, bf16 or fp16 */
};

/* Reads a .npy file of float32 or float16 in C order, or any other as raw little-endian numbers of
 * raw_type. Returns an exit status, after an error with its sentence printed. */
int bench_file_load(const char *path, qcclDataType_t raw_type, struct bench_file *file);
void bench_file_free(struct bench_file *file);

/* Typed values to fp32, exactly, and back, rounded to nearest even. */
void bench_to_float(const void *values, qcclDataType_t type, size_t first, size_t count,
                    float *out);
void bench_from_float(const float *values, qcclDataType_t type, size_t count, void *out);

struct bench_inputs {
    struct bench_file *pools; /* fp32 */
    int npools;
    int nranks;
    uint64_t seed;
};

/* Normal values from a seed; files NULL or nfiles of them otherwise: rank r reads file r mod
 * nfiles. */
int bench_inputs_open(struct bench_inputs *inputs, int nranks, uint64_t seed, char *const *files,
                      int nfiles);
void bench_inputs_free(struct bench_inputs *inputs);

/* Values first .. first + count - 1 of a rank, as fp32. */
void bench_inputs_read(const struct bench_inputs *inputs, int rank, size_t first, size_t count,
                       float *out);

/* The same as elements of any type.  Integers are small; for a product all are powers of two, exact
 * in every type. */
void bench_inputs_fill(const struct bench_inputs *inputs, int rank, size_t first, size_t count,
                       qcclDataType_t type, qcclRedOp_t op, void *out);

/* Element i of a rank where the type is an integer, or the reduction a product. */
int bench_inputs_small(const struct bench_inputs *inputs, int rank, size_t i, qcclRedOp_t op);

#endif
