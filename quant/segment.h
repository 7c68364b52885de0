/* From user values to messages and back, block by block, so that everything between the two memory
 * passes stays in the first-level cache: conversion, subtraction, Hadamard transform, kernel.
 *
 * "Domain" values are fp32 after the codec's Hadamard transform (the values themselves without
 * one). */
#ifndef QCCL_QUANT_SEGMENT_H
#define QCCL_QUANT_SEGMENT_H

#include <stdbool.h>

#include "quant/wire.h"

/* Typed values at any address; minus, where not NULL, is subtracted in fp32 first (weight
 * differences). */
struct source {
    const void *values;
    qcclDataType_t type;
    const void *minus;
    qcclDataType_t minus_type;
};

/* How and where a message is written. */
struct encoding {
    qcclCodec_t codec;
    qcclPosition_t position;
    float *residual;  /* NULL, or error feedback in the codec's domain, count floats */
    uint16_t replica; /* struct message */
    bool checked;     /* seal with a checksum over scales and codes */
    void *message;    /* qccl_wire_bytes(codec, count) bytes at a multiple of 8 */
};

/* One term of a sum.  Exactly one of message, values.values and domain is set. */
struct part {
    const struct message *message;
    struct source values;
    const float *domain;
};

/* weight * (part 0 + part 1 + ...) into exactly one of: an encoding, typed values, domain values.
 */
struct reduction {
    const struct part *parts;
    int nparts;
    qcclCodec_t codec; /* of the messages; its Hadamard order is the domain of the sum */
    size_t count;
    float weight;
    const struct encoding *encoding;
    void *values;
    qcclDataType_t type;
    float *domain;
};

/* All return qcclOutOfMemory only: when a unit of the groups in play is too large for the stack
 * (over 2048 values), or there are very many parts, and there is no memory.  Nothing was written
 * then. */
qcclResult_t qccl_encode_segment(const struct source *source, size_t count,
                                 const struct encoding *encoding);
qcclResult_t qccl_decode_segment(const struct message *message, void *values, qcclDataType_t type,
                                 bool add);
qcclResult_t qccl_reduce_segment(const struct reduction *reduction);

/* count values of a source converted to type, each rounded once. */
void qccl_convert(const struct source *source, void *values, qcclDataType_t type, size_t count);

/* Adds to *energy the sum of squares of the first block of a source, and to *error that of what its
 * message changed. */
qcclResult_t qccl_sample_error(const struct source *source, const struct message *message,
                               double *energy, double *error);

#endif
