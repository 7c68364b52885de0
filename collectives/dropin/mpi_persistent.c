/* Persistent collectives, which MPI 4 has and Open MPI 4 offers as MPIX_: they go on to MPI, and
 * the log and --explain say so.  Compressing them would take MPI_Start and everything that takes
 * requests. */
#include "collectives/dropin/mpi_call.h"
#include "qccl/qccl.h"

/* What is returned where there is no MPI to go on to. */
enum { NO_MPI = 1 };

typedef int reduce_init_fn(const void *, void *, int, word, word, word, word, void *);
typedef int reduce_scatter_init_fn(const void *, void *, const int *, word, word, word, word,
                                   void *);
typedef int allgather_init_fn(const void *, int, word, void *, int, word, word, word, void *);
typedef int allgatherv_init_fn(const void *, int, word, void *, const int *, const int *, word,
                               word, word, void *);

QCCL_API reduce_init_fn MPI_Allreduce_init, MPIX_Allreduce_init;
QCCL_API reduce_init_fn MPI_Reduce_scatter_block_init, MPIX_Reduce_scatter_block_init;
QCCL_API reduce_scatter_init_fn MPI_Reduce_scatter_init, MPIX_Reduce_scatter_init;
QCCL_API allgather_init_fn MPI_Allgather_init, MPIX_Allgather_init;
QCCL_API allgatherv_init_fn MPI_Allgatherv_init, MPIX_Allgatherv_init;

static void note(const struct mpi_call *call)
{
    int error;
    qccl_dropin_take(call, &error); /* never taken */
}

/* The functions of one shape; next: of the name that the program called. */
static int reduce_init(struct next *next, enum form form, const void *sendbuf, void *recvbuf,
                       int count, word type, word op, word comm, word info, void *request)
{
    reduce_init_fn *go_on = (reduce_init_fn *)qccl_dropin_next(next);
    note(&(struct mpi_call){
        .form = form, .recvcount = count, .recvtype = type, .op = op, .comm = comm});
    return go_on ? go_on(sendbuf, recvbuf, count, type, op, comm, info, request) : NO_MPI;
}

static int reduce_scatter_init(struct next *next, const void *sendbuf, void *recvbuf,
                               const int *counts, word type, word op, word comm, word info,
                               void *request)
{
    reduce_scatter_init_fn *go_on = (reduce_scatter_init_fn *)qccl_dropin_next(next);
    note(&(struct mpi_call){.form = FORM_REDUCE_SCATTER_INIT,
                            .recvcounts = counts,
                            .recvtype = type,
                            .op = op,
                            .comm = comm});
    return go_on ? go_on(sendbuf, recvbuf, counts, type, op, comm, info, request) : NO_MPI;
}

static int allgather_init(struct next *next, const void *sendbuf, int sendcount, word sendtype,
                          void *recvbuf, int recvcount, word recvtype, word comm, word info,
                          void *request)
{
    allgather_init_fn *go_on = (allgather_init_fn *)qccl_dropin_next(next);
    note(&(struct mpi_call){
        .form = FORM_ALLGATHER_INIT, .recvcount = recvcount, .recvtype = recvtype, .comm = comm});
    return go_on ? go_on(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info,
                         request)
                 : NO_MPI;
}

static int allgatherv_init(struct next *next, const void *sendbuf, int sendcount, word sendtype,
                           void *recvbuf, const int *counts, const int *displs, word recvtype,
                           word comm, word info, void *request)
{
    allgatherv_init_fn *go_on = (allgatherv_init_fn *)qccl_dropin_next(next);
    note(&(struct mpi_call){
        .form = FORM_ALLGATHERV_INIT, .recvcounts = counts, .recvtype = recvtype, .comm = comm});
    return go_on ? go_on(sendbuf, sendcount, sendtype, recvbuf, counts, displs, recvtype, comm,
                         info, request)
                 : NO_MPI;
}

int MPI_Allreduce_init(const void *sendbuf, void *recvbuf, int count, word type, word op, word comm,
                       word info, void *request)
{
    static struct next next = {.name = "MPI_Allreduce_init"};
    return reduce_init(&next, FORM_ALLREDUCE_INIT, sendbuf, recvbuf, count, type, op, comm, info,
                       request);
}

int MPI_Reduce_scatter_block_init(const void *sendbuf, void *recvbuf, int count, word type, word op,
                                  word comm, word info, void *request)
{
    static struct next next = {.name = "MPI_Reduce_scatter_block_init"};
    return reduce_init(&next, FORM_REDUCE_SCATTER_BLOCK_INIT, sendbuf, recvbuf, count, type, op,
                       comm, info, request);
}

int MPI_Reduce_scatter_init(const void *sendbuf, void *recvbuf, const int *counts, word type,
                            word op, word comm, word info, void *request)
{
    static struct next next = {.name = "MPI_Reduce_scatter_init"};
    return reduce_scatter_init(&next, sendbuf, recvbuf, counts, type, op, comm, info, request);
}

int MPI_Allgather_init(const void *sendbuf, int sendcount, word sendtype, void *recvbuf,
                       int recvcount, word recvtype, word comm, word info, void *request)
{
    static struct next next = {.name = "MPI_Allgather_init"};
    return allgather_init(&next, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm,
                          info, request);
}

int MPI_Allgatherv_init(const void *sendbuf, int sendcount, word sendtype, void *recvbuf,
                        const int *counts, const int *displs, word recvtype, word comm, word info,
                        void *request)
{
    static struct next next = {.name = "MPI_Allgatherv_init"};
    return allgatherv_init(&next, sendbuf, sendcount, sendtype, recvbuf, counts, displs, recvtype,
                           comm, info, request);
}

int MPIX_Allreduce_init(const void *sendbuf, void *recvbuf, int count, word type, word op,
                        word comm, word info, void *request)
{
    static struct next next = {.name = "MPIX_Allreduce_init"};
    return reduce_init(&next, FORM_ALLREDUCE_INIT, sendbuf, recvbuf, count, type, op, comm, info,
                       request);
}

int MPIX_Reduce_scatter_block_init(const void *sendbuf, void *recvbuf, int count, word type,
                                   word op, word comm, word info, void *request)
{
    static struct next next = {.name = "MPIX_Reduce_scatter_block_init"};
    return reduce_init(&next, FORM_REDUCE_SCATTER_BLOCK_INIT, sendbuf, recvbuf, count, type, op,
                       comm, info, request);
}

int MPIX_Reduce_scatter_init(const void *sendbuf, void *recvbuf, const int *counts, word type,
                             word op, word comm, word info, void *request)
{
    static struct next next = {.name = "MPIX_Reduce_scatter_init"};
    return reduce_scatter_init(&next, sendbuf, recvbuf, counts, type, op, comm, info, request);
}

int MPIX_Allgather_init(const void *sendbuf, int sendcount, word sendtype, void *recvbuf,
                        int recvcount, word recvtype, word comm, word info, void *request)
{
    static struct next next = {.name = "MPIX_Allgather_init"};
    return allgather_init(&next, sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm,
                          info, request);
}

int MPIX_Allgatherv_init(const void *sendbuf, int sendcount, word sendtype, void *recvbuf,
                         const int *counts, const int *displs, word recvtype, word comm, word info,
                         void *request)
{
    static struct next next = {.name = "MPIX_Allgatherv_init"};
    return allgatherv_init(&next, sendbuf, sendcount, sendtype, recvbuf, counts, displs, recvtype,
                           comm, info, request);
}
