/* Inside the MPI drop-in: its settings, what it finds out about a call, and its parts. */
#ifndef QCCL_DROPIN_MPI_JOB_H
#define QCCL_DROPIN_MPI_JOB_H

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "collectives/dropin/mpi_call.h"
#include "collectives/dropin/rules.h"
#include "collectives/policy.h"
#include "qccl/qccl.h"

/* Why a call is not compressed; mpi_report.c has the sentences. */
enum reason {
    REASON_NONE, /* it is */
    REASON_NONBLOCKING,
    REASON_PERSISTENT,
    REASON_OFF,
    REASON_OP,
    REASON_TYPE,
    REASON_POLICY,
    REASON_ARGUMENTS,
    REASON_INTER,
    REASON_SINGLE,
    REASON_SMALL,
    REASON_UNEVEN,
    REASON_DOUBLE,
    REASON_NOT_ONLY,
    REASON_EXCEPT,
    REASON_LOCAL,
    REASON_DIFFERS, /* an error */
    REASONS
};

struct dropin_settings {
    bool compresses; /* QCCL_POLICY is set */
    bool notes;      /* calls are counted, for the log or for QCCL_EXPLAIN */
    bool explains;   /* QCCL_EXPLAIN=1 */
    struct policy policy;
    struct rules rules;
    const char *policy_text, *rules_text; /* of the environment; NULL: unset */
    bool threads;                         /* every rank may call MPI from any thread */
    bool real_is_float;                   /* Fortran's MPI_REAL, which a compiler may widen */
    int rank;                             /* in MPI_COMM_WORLD */
};

/* mpi_settings.c.  The settings, once the drop-in has started and has something to do; else
 * NULL. */
const struct dropin_settings *qccl_dropin_settings(void);
/* Reports the last error of the library through the communicator's error handler; what MPI is to
 * return if that comes back. */
int qccl_dropin_raise(MPI_Comm comm, qcclResult_t result);
/* The same without the handler. */
int qccl_dropin_error(qcclResult_t result);

/* A datatype as the drop-in sees it. */
struct element {
    qcclDataType_t type; /* fp32 or fp64 */
    size_t values;       /* in one element */
    bool dense;          /* elements are values one behind the other, without gaps */
    MPI_Aint extent;
};
/* mpi_type.c.  Whether an MPI datatype is made of floats alone, or of doubles alone. */
bool qccl_dropin_element(const struct dropin_settings *settings, MPI_Datatype type,
                         struct element *element);

/* A call that may be compressed. */
struct job {
    qcclColl_t collective;
    MPI_Comm comm;
    struct element element; /* of the receiving side */
    int rank, nranks;
    size_t total;   /* values of the whole message */
    size_t largest; /* values of the largest block; of an allreduce: total */
    bool even;      /* all blocks have that size and stand one behind the other */
};

/* Elements of the receiving type in the block of rank r. */
static inline int qccl_dropin_elements(const struct mpi_call *call, int r)
{
    return call->recvcounts ? call->recvcounts[r] : call->recvcount;
}

/* The library's side of a communicator of the program. */
struct attached {
    MPI_Comm comm;
    qcclComm_t qccl;          /* NULL: not connected yet */
    qcclStream_t order, work; /* of non-blocking calls: one after another; and their exchanges */
    bool failed;              /* to connect; it is not tried again */
    struct attached *next;
};
/* mpi_attach.c.  Makes the attribute that ties both, and takes it away from all that have it. */
qcclResult_t qccl_dropin_attach_begin(void);
void qccl_dropin_detach_all(void);
/* Waits for the non-blocking calls of a communicator that is about to be freed. */
void qccl_dropin_settle(MPI_Comm comm);
/* Finds or makes one, without other ranks. */
qcclResult_t qccl_dropin_attach(MPI_Comm comm, struct attached **attached);
/* Makes its communicator, with the other ranks; on_stream: beside what the program does. */
qcclResult_t qccl_dropin_connect(struct attached *attached, bool on_stream);
/* Makes its streams, without other ranks. */
qcclResult_t qccl_dropin_open_streams(struct attached *attached);
/* What communicators that are gone have sent, and what it would have been. */
void qccl_dropin_traffic(uint64_t *raw_bytes, uint64_t *wire_bytes);

/* mpi_run.c.  Does a blocking call that was decided to be compressed; every rank does. */
qcclResult_t qccl_dropin_run(const struct mpi_call *call, const struct job *job);
/* The same on the attached communicator as it is; stream: for the exchange, or NULL. */
qcclResult_t qccl_dropin_do(const struct mpi_call *call, const struct job *job,
                            struct attached *attached, qcclStream_t stream);

/* mpi_later.c.  Starts a non-blocking one; *call->request is what the program waits for. */
qcclResult_t qccl_dropin_start_later(const struct mpi_call *call, const struct job *job);

/* mpi_report.c */
void qccl_dropin_note(const struct dropin_settings *settings, const struct mpi_call *call,
                      enum reason reason);
/* The table of QCCL_EXPLAIN=1, on stderr. */
void qccl_dropin_explain(const struct dropin_settings *settings);

#endif
