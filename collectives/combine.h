/* Uncompressed reductions of every element type, for transports that have none of their own. */
#ifndef QCCL_COLLECTIVES_COMBINE_H
#define QCCL_COLLECTIVES_COMBINE_H

#include "qccl/qccl.h"

/* out[i] = parts[0][i] op parts[1][i] op ..., in that order, i < count; out may be one of the
 * parts.  Averages divide by nparts: integers with truncation, floats by the reciprocal.  bf16 and
 * fp16 are combined in fp32 and rounded once.  Integers wrap; a NaN wins every minimum and maximum.
 */
void qccl_combine(void *out, const void *const *parts, int nparts, size_t count,
                  qcclDataType_t type, qcclRedOp_t op);

#endif
