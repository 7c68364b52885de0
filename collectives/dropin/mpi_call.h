/* The MPI drop-in: between a program and its MPI.
 *
 *     program -> mpi_entry.c, mpi_fortran.c -> mpi_decide.c -> mpi_run.c -> the library -> PMPI_
 *                          \__ when not taken: the next MPI_ function behind this library
 *
 * An entry describes the call and offers it; what is not taken goes on unchanged.  Handles are
 * pointers in one MPI and ints in the other, and both travel in one register: the entries take them
 * as words and hand them on as such, so even a program of the other MPI passes unharmed. */
#ifndef QCCL_DROPIN_MPI_CALL_H
#define QCCL_DROPIN_MPI_CALL_H

#include <stdbool.h>
#include <stdint.h>

typedef uintptr_t word;

enum form {
    FORM_ALLREDUCE, /* blocking ones first, then the others in the same order */
    FORM_REDUCE_SCATTER,
    FORM_REDUCE_SCATTER_BLOCK,
    FORM_ALLGATHER,
    FORM_ALLGATHERV,
    FORM_IALLREDUCE,
    FORM_IREDUCE_SCATTER,
    FORM_IREDUCE_SCATTER_BLOCK,
    FORM_IALLGATHER,
    FORM_IALLGATHERV,
    FORM_ALLREDUCE_INIT,
    FORM_REDUCE_SCATTER_INIT,
    FORM_REDUCE_SCATTER_BLOCK_INIT,
    FORM_ALLGATHER_INIT,
    FORM_ALLGATHERV_INIT,
    FORMS
};

/* One call of the program.  Reductions use the fields of the receiving side. */
struct mpi_call {
    enum form form;
    const void *site; /* where the program called */
    const void *sendbuf;
    void *recvbuf;
    int sendcount, recvcount;
    const int *recvcounts, *displs; /* NULL: recvcount for each rank, one behind the other */
    word sendtype, recvtype, op, comm;
    void *request; /* of a non-blocking call, where its MPI_Request goes */
};

/* The blocking form of the same collective. */
static inline enum form qccl_dropin_blocking(enum form form)
{
    return (enum form)(form % FORM_IALLREDUCE);
}

/* mpi_decide.c: does the call, or starts it, if it is to be compressed; *error is then what MPI
 * returns. */
bool qccl_dropin_take(const struct mpi_call *call, int *error);
/* Around MPI_Init: the settings are read and compared between ranks.  Returns an MPI error code. */
int qccl_dropin_start(void);
/* Before MPI_Comm_free and MPI_Comm_disconnect; comm: where the handle is. */
void qccl_dropin_leave(const void *comm);
/* Before MPI_Finalize. */
void qccl_dropin_end(void);

/* mpi_next.c: the function behind this library: another tool's, or MPI's.  The first call looks it
 * up.  NULL: there is none, and the reason is on stderr. */
struct next {
    const char *name;
    _Atomic(void *) function;
};
typedef void any_function(void);
any_function *qccl_dropin_next(struct next *next);

enum presence {
    MPI_ABSENT,
    MPI_OTHER, /* another MPI than this library was built for */
    MPI_HERE,
};
/* Which MPI the process has. */
enum presence qccl_dropin_presence(void);
/* The address of a symbol of the process or of its MPI; NULL: there is none. */
void *qccl_dropin_symbol(const char *name);

/* A sentence of this library to the user, on stderr. */
void qccl_dropin_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
