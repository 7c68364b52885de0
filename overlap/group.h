/* Bundles: calls that are collected, merged and started together; and the group of each thread. */
#ifndef QCCL_OVERLAP_GROUP_H
#define QCCL_OVERLAP_GROUP_H

#include "collectives/call.h"

struct bundle;

/* Puts a checked call's tensor into *bundle, which is made when it is NULL.  Those of one bundle
 * are alike and have one stream. */
qcclResult_t qccl_bundle_add(struct bundle **bundle, const struct call *call, void *stream);

/* Starts it as one call, and frees it.  NULL is allowed. */
qcclResult_t qccl_bundle_start(struct bundle *bundle);

/* Bytes of the call that it is so far; 0 for NULL. */
size_t qccl_bundle_bytes(const struct bundle *bundle);

/* Whether this thread is between qcclGroupStart and qcclGroupEnd. */
bool qccl_group_is_open(void);

/* Collects a call for qcclGroupEnd, if the check of it was a success.  Returns that, or
 * qcclOutOfMemory; both are kept for qcclGroupEnd. */
qcclResult_t qccl_group_collect(const struct call *call, void *stream, qcclResult_t check);

#endif
