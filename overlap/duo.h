/* DUO: what its two files share.  duo_config.c makes sense of the configuration, duo.c runs it. */
#ifndef QCCL_OVERLAP_DUO_H
#define QCCL_OVERLAP_DUO_H

#include "collectives/call.h"

/* How the two reductions travel. */
struct duo_scheme {
    bool local;    /* no fast reduction: the owner's own gradient */
    bool residual; /* the slow one moves what the fast one lost */
    bool drop;     /* qcclDuoDrop */
    struct policy fast, slow, dropped;
};

/* Reads a configuration.  qcclInvalidArgument with a sentence. */
qcclResult_t qccl_duo_read(const qcclDuoConfig_t *config, int nranks, struct duo_scheme *scheme);

/* What all ranks must say alike. */
void qccl_duo_describe(const qcclDuoConfig_t *config, struct record *record);

#endif
