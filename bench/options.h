/* Words and numbers of a command line: names of types, reductions and collectives as nccl-tests
 * spells them, sizes with suffixes, lists.  Each parser takes the whole word or nothing. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "qccl/qccl.h"

/* 4096, 64K, 64KiB, 1.5M, 2G; K, M and G are powers of 1024 as in nccl-tests. */
bool bench_parse_bytes(const char *text, size_t *bytes);

/* A decimal or 0x number from low to high. */
bool bench_parse_integer(const char *text, uint64_t low, uint64_t high, uint64_t *value);

/* The same, into an int. */
bool bench_parse_int(const char *text, int low, int high, int *value);

/* "0,0,1,1": exactly count numbers >= 0.  Returns how many were read, -1 when it is no such
 * list. */
int bench_parse_nodes(const char *text, int *nodes, int capacity);

bool bench_parse_type(const char *text, qcclDataType_t *type);
bool bench_parse_op(const char *text, qcclRedOp_t *op);
bool bench_parse_coll(const char *text, qcclColl_t *coll);

const char *bench_type_name(qcclDataType_t type);
const char *bench_op_name(qcclRedOp_t op);
const char *bench_coll_name(qcclColl_t coll);

/* All names of the kind, for help and errors: "sum, prod, ...". */
const char *bench_type_names(void);
const char *bench_op_names(void);

/* Whether the type is one of fp32, bf16 and fp16, the only ones that are compressed. */
bool bench_type_compresses(qcclDataType_t type);

#endif
