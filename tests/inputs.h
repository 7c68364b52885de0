/* Test inputs that follow from integers alone, so that tests/golden/make.py makes the same ones.
 *
 * Value i of rank r under a seed comes from the 64 bits h = mix(mix(seed + r) + i); the patterns
 * are the cases that break compressed collectives: one spike, all negative, all equal, denormal,
 * huge, NaN and infinity, whole blocks of zeros. */
#ifndef QCCL_TESTS_INPUTS_H
#define QCCL_TESTS_INPUTS_H

#include <stddef.h>
#include <stdint.h>

#include "qccl/qccl.h"

enum pattern {
    INPUT_NORMAL,   /* bell-shaped, -4 to 4, multiples of 2^-15 */
    INPUT_WIDE,     /* any finite bits */
    INPUT_SPIKE,    /* one value in about 97 is 2^35 times the rest */
    INPUT_NEGATIVE, /* all below 0 */
    INPUT_EQUAL,    /* all of a rank the same */
    INPUT_DENORMAL, /* none above the largest denormal */
    INPUT_TINY,     /* around 2^-100, where a group becomes zero */
    INPUT_HUGE,     /* sums overflow */
    INPUT_SPECIAL,  /* NaN, infinities, -0, a denormal and the largest float among normal values */
    INPUT_BLOCKS,   /* every second block of 32 is zero */
    INPUT_LEVELS,   /* whole numbers from -7 to 7 */
    INPUT_PATTERNS
};

uint64_t input_mix(uint64_t z);
uint64_t input_hash(uint64_t seed, int rank, size_t i);
float input_value(enum pattern pattern, uint64_t seed, int rank, size_t i);

const char *input_name(enum pattern pattern);
/* The pattern of a name; INPUT_PATTERNS when there is none. */
enum pattern input_named(const char *name);

/* Writes element i at any address.  Integers are the low bits of the hash; floats are the pattern's
 * values, rounded to the type. */
void input_store(void *at, qcclDataType_t type, enum pattern pattern, uint64_t seed, int rank,
                 size_t i);
/* All elements of a buffer. */
void input_fill(void *buffer, size_t count, qcclDataType_t type, enum pattern pattern,
                uint64_t seed, int rank);

/* FNV-1a over bytes. */
uint64_t input_fnv(const void *bytes, size_t count);

#endif
