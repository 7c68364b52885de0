/* Kernel rows: for each wire format a table of implementations that compute the same bits.
 *
 * A table lists its rows best first; the plain C row is last and defines the result.  Choosing,
 * testing and timing all walk the table.  Vector rows see only whole units: `begin` and `elems` are
 * multiples of the tile (128) and of the group. The C row takes any range that begins at a group;
 * short tails and odd groups go to it.
 *
 * Layout of codes, per tile of 128 elements (row r, lane j holds element 16 * r + j):
 *
 *   int8        128 bytes: byte r mod 4 of word j (rows 0-3) or of word 16 + j (rows 4-7)
 *   int4         64 bytes: word j, bits 4r..4r+3, two's complement
 *   int2         32 bytes: half-word j, bits 2r..2r+1, two's complement
 *   sr1, sign1   16 bytes: byte j, bit r; 1 is +
 *   bf16        256 bytes, none 512 bytes: element i at i, no tiles and no scales
 *
 * All words little-endian.  Codes of a zero or NaN group are 0.  Bits of absent elements in the
 * last tile are 0. Decoding: a scale that is NaN or infinite gives the NaN 0x7fc00000 for the whole
 * group, a scale of 0 (or -0) gives +0.0. */
#ifndef QCCL_QUANT_KERNELS_H
#define QCCL_QUANT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"
#include "quant/philox.h"

/* Values into scales and codes. */
struct encode_args {
    const float *x;  /* x[0] is element `begin` of the message */
    float *residual; /* NULL, or as x: y = x + residual is encoded, then residual = y - decoded, 0
                        where that is not finite */
    size_t begin, elems, group;
    uint16_t *scales; /* of the whole message */
    uint8_t *codes;
    const struct draw *draw;
};

/* Scales and codes into values: out = decoded, or out = canonical(out + decoded). */
struct decode_args {
    const uint16_t *scales; /* of the whole message */
    const uint8_t *codes;
    size_t begin, elems, group;
    float *out;  /* out[0] is element `begin` */
    bool stream; /* out will not be read again soon: store around the caches where alignment allows
                  */
};

/* One term of a sum: a message, or exact values. */
struct sum_part {
    const uint16_t *scales;
    const uint8_t *codes;
    const float *exact; /* not NULL: exact[0] is element `begin`; scales and codes are not used */
};

/* out = canonical(weight * (((part 0 + part 1) + part 2) + ...)), no fused multiply-add, the
 * product rounded. */
struct sum_args {
    const struct sum_part *parts;
    int nparts; /* at least 1 */
    size_t begin, elems, group;
    float weight;
    float *out;
    bool stream;
};

struct kernels {
    const char *name; /* "int4_avx512" */
    enum qccl_cpu cpu;
    void (*encode)(const struct encode_args *args);
    void (*decode)(const struct decode_args *args);
    void (*decode_add)(const struct decode_args *args);
    void (*sum)(const struct sum_args *args);
};

/* Element types and the Hadamard transform; the same idea of a table.  Pointers to 16-bit types
 * need no alignment. */
struct converters {
    const char *name;
    enum qccl_cpu cpu;
    void (*load_bf16)(float *out, const void *in, size_t elems); /* NaN becomes canonical */
    void (*load_fp16)(float *out, const void *in, size_t elems);
    void (*store_bf16)(void *out, const float *in,
                       size_t elems); /* nearest even, NaN canonical: base/half.h */
    void (*store_fp16)(void *out, const float *in, size_t elems);
    void (*subtract)(float *x, const float *y, size_t elems); /* x -= y */
    /* Each `order` (32, 64, 128) consecutive values transformed, unnormalised; elems is a multiple
     * of order. */
    void (*hadamard)(float *x, size_t elems, size_t order);
    void (*scale)(float *x, float weight, size_t elems); /* x = canonical(x * weight) */
};

/* The rows of a format or of the converters, best first, closed by one whose name is NULL. */
const struct kernels *qccl_kernel_rows(qcclFormat_t format);
const struct converters *qccl_converter_rows(void);

/* The best row that runs here under the cap. */
const struct kernels *qccl_kernels(qcclFormat_t format);
const struct converters *qccl_converters(void);
/* The C row, for tails. */
const struct kernels *qccl_kernels_c(qcclFormat_t format);

#endif
