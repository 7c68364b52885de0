/* Random numbers that are a function of where they are used: hash(seed, stream, index).
 *
 * With no generator to carry along, the batch of step 500 on rank 3 is the same however many
 * ranks there are and wherever a run began.  The hash is the finalizer of SplitMix64 (Steele et
 * al. 2014). */
#ifndef BENCH_GPT_RANDOM_H
#define BENCH_GPT_RANDOM_H

#include <stdint.h>

static inline uint64_t gpt_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t gpt_random(uint64_t seed, uint64_t stream, uint64_t index)
{
    return gpt_mix(gpt_mix(gpt_mix(seed) ^ stream) ^ index);
}

/* Uniform on [-1, 1). */
static inline double gpt_random_signed(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(gpt_random(seed, stream, index) >> 11) * 0x1p-52 - 1.0;
}

#endif
