/* The bytes of a message: a header of 64 bytes, the scales, the codes.  docs/wire-format.md is the
 * specification.
 *
 *   0        64                64 + S                    64 + S + C
 *   +--------+-----------------+-------------------------+
 *   | header | scales, bf16    | codes, tile after tile  |     S padded to a multiple of 64
 *   +--------+-----------------+-------------------------+ */
#ifndef QCCL_QUANT_WIRE_H
#define QCCL_QUANT_WIRE_H

#include <stdbool.h>

#include "qccl/qccl.h"
#include "quant/philox.h"

enum { WIRE_HEADER_BYTES = 64, WIRE_VERSION = 1, WIRE_STAGE_MAX = 127 };

/* A message that was checked, open for reading. */
struct message {
    qcclCodec_t codec;
    qcclPosition_t position;
    size_t count;
    uint16_t replica; /* version of the replica that differences are for; 0 in other messages */
    const uint16_t *scales;
    const uint8_t *codes;
};

/* Bytes of a message, and of its parts. */
size_t qccl_wire_bytes(const qcclCodec_t *codec, size_t count);
size_t qccl_wire_scale_bytes(const qcclCodec_t *codec, size_t count);
/* Bytes of the codes of 128 elements. */
size_t qccl_tile_bytes(qcclFormat_t format);

/* Writes the header of a message whose scales and codes are there; checked adds a checksum over
 * them. */
void qccl_wire_seal(void *message, const qcclCodec_t *codec, const qcclPosition_t *position,
                    uint16_t replica, size_t count, bool checked);

/* Checks every field and sum of a message of `bytes` bytes; qcclCorruptMessage with a sentence
 * otherwise. */
qcclResult_t qccl_wire_open(const void *bytes_of_message, size_t bytes, struct message *message);

/* What the random numbers of a message at a position have in common. */
struct draw qccl_draw_at(const qcclPosition_t *position, bool nearest);

#endif
