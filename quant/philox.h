/* Philox4x32 with 7 rounds (Salmon et al., SC 2011; Random123), and how elements draw from it.
 *
 * A tile is 128 consecutive elements of a segment, eight rows of sixteen lanes.  Each (tile, lane)
 * draws one block of four words; row r of the lane takes half r mod 2 (low first) of word r / 2.
 * Nothing is stored: any element's bits follow from its position alone, so chunks and threads do
 * not change them. */
#ifndef QCCL_QUANT_PHILOX_H
#define QCCL_QUANT_PHILOX_H

#include <stdbool.h>
#include <stdint.h>

enum { TILE_ELEMS = 128, TILE_LANES = 16, TILE_ROWS = 8, PHILOX_ROUNDS = 7 };

#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

/* What all random numbers of a message have in common. */
struct draw {
    uint32_t key[2];     /* the seed, low word first */
    uint32_t counter[3]; /* segment, sequence, rank << 8 | stage: words 1 to 3 of the counter */
    uint32_t first_tile; /* tile of the segment in which the message begins */
    bool nearest;        /* every random number is 32768 instead */
};

static inline void philox4x32_7(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)c0 * PHILOX_M0, p1 = (uint64_t)c2 * PHILOX_M1;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

#endif
