/* The MPI functions of C that the drop-in takes the place of.
 *
 * mpi.h is not included: handles are words here, see dropin/mpi_call.h. */
#include "collectives/dropin/mpi_call.h"
#include "qccl/qccl.h"

typedef int allreduce_fn(const void *, void *, int, word, word, word);
typedef int reduce_scatter_fn(const void *, void *, const int *, word, word, word);
typedef int allgather_fn(const void *, int, word, void *, int, word, word);
typedef int allgatherv_fn(const void *, int, word, void *, const int *, const int *, word, word);
typedef int iallreduce_fn(const void *, void *, int, word, word, word, void *);
typedef int ireduce_scatter_fn(const void *, void *, const int *, word, word, word, void *);
typedef int iallgather_fn(const void *, int, word, void *, int, word, word, void *);
typedef int iallgatherv_fn(const void *, int, word, void *, const int *, const int *, word, word,
                           void *);
typedef int init_fn(int *, char ***);
typedef int init_thread_fn(int *, char ***, int, int *);
typedef int free_fn(void *);
typedef int finalize_fn(void);

QCCL_API allreduce_fn MPI_Allreduce, MPI_Reduce_scatter_block;
QCCL_API reduce_scatter_fn MPI_Reduce_scatter;
QCCL_API allgather_fn MPI_Allgather;
QCCL_API allgatherv_fn MPI_Allgatherv;
QCCL_API iallreduce_fn MPI_Iallreduce, MPI_Ireduce_scatter_block;
QCCL_API ireduce_scatter_fn MPI_Ireduce_scatter;
QCCL_API iallgather_fn MPI_Iallgather;
QCCL_API iallgatherv_fn MPI_Iallgatherv;
QCCL_API init_fn MPI_Init;
QCCL_API init_thread_fn MPI_Init_thread;
QCCL_API free_fn MPI_Comm_free, MPI_Comm_disconnect;
QCCL_API finalize_fn MPI_Finalize;

/* What is returned where there is no MPI to go on to; any number but 0 is an error. */
enum { NO_MPI = 1 };

/* ------------------------------------------------------------------ begin and end */

int MPI_Init(int *argc, char ***argv)
{
    static struct next next = {.name = "MPI_Init"};
    init_fn *go_on = (init_fn *)qccl_dropin_next(&next);
    int error = go_on ? go_on(argc, argv) : NO_MPI;
    return error ? error : qccl_dropin_start();
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    static struct next next = {.name = "MPI_Init_thread"};
    init_thread_fn *go_on = (init_thread_fn *)qccl_dropin_next(&next);
    int error = go_on ? go_on(argc, argv, required, provided) : NO_MPI;
    return error ? error : qccl_dropin_start();
}

int MPI_Comm_free(void *comm)
{
    static struct next next = {.name = "MPI_Comm_free"};
    free_fn *go_on = (free_fn *)qccl_dropin_next(&next);
    qccl_dropin_leave(comm);
    return go_on ? go_on(comm) : NO_MPI;
}

int MPI_Comm_disconnect(void *comm)
{
    static struct next next = {.name = "MPI_Comm_disconnect"};
    free_fn *go_on = (free_fn *)qccl_dropin_next(&next);
    qccl_dropin_leave(comm);
    return go_on ? go_on(comm) : NO_MPI;
}

int MPI_Finalize(void)
{
    static struct next next = {.name = "MPI_Finalize"};
    finalize_fn *go_on = (finalize_fn *)qccl_dropin_next(&next);
    qccl_dropin_end();
    return go_on ? go_on() : NO_MPI;
}

/* ------------------------------------------------------------------ blocking */

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, word type, word op, word comm)
{
    static struct next next = {.name = "MPI_Allreduce"};
    const struct mpi_call call = {.form = FORM_ALLREDUCE,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcount = count,
                                  .recvtype = type,
                                  .op = op,
                                  .comm = comm};
    int error;
    if (qccl_dropin_take(&call, &error))
        return error;
    allreduce_fn *go_on = (allreduce_fn *)qccl_dropin_next(&next);
    return go_on ? go_on(sendbuf, recvbuf, count, type, op, comm) : NO_MPI;
}

int MPI_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int count, word type, word op,
                             word comm)
{
    static struct next next = {.name = "MPI_Reduce_scatter_block"};
    const struct mpi_call call = {.form = FORM_REDUCE_SCATTER_BLOCK,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcount = count,
                                  .recvtype = type,
                                  .op = op,
                                  .comm = comm};
    int error;
    if (qccl_dropin_take(&call, &error))
        return error;
    allreduce_fn *go_on = (allreduce_fn *)qccl_dropin_next(&next);
    return go_on ? go_on(sendbuf, recvbuf, count, type, op, comm) : NO_MPI;
}

int MPI_Reduce_scatter(const void *sendbuf, void *recvbuf, const int *counts, word type, word op,
                       word comm)
{
    static struct next next = {.name = "MPI_Reduce_scatter"};
    const struct mpi_call call = {.form = FORM_REDUCE_SCATTER,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcounts = counts,
                                  .recvtype = type,
                                  .op = op,
                                  .comm = comm};
    int error;
    if (qccl_dropin_take(&call, &error))
        return error;
    reduce_scatter_fn *go_on = (reduce_scatter_fn *)qccl_dropin_next(&next);
    return go_on ? go_on(sendbuf, recvbuf, counts, type, op, comm) : NO_MPI;
}

int MPI_Allgather(const void *sendbuf, int sendcount, word sendtype, void *recvbuf, int recvcount,
                  word recvtype, word comm)
{
    static struct next next = {.name = "MPI_Allgather"};
    const struct mpi_call call = {.form = FORM_ALLGATHER,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .sendcount = sendcount,
                                  .sendtype = sendtype,
                                  .recvcount = recvcount,
                                  .recvtype = recvtype,
                                  .comm = comm};
    int error;
    if (qccl_dropin_take(&call, &error))
        return error;
    allgather_fn *go_on = (allgather_fn *)qccl_dropin_next(&next);
    return go_on ? go_on(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm) : NO_MPI;
}

int MPI_Allgatherv(const void *sendbuf, int sendcount, word sendtype, void *recvbuf,
                   const int *counts, const int *displs, word recvtype, word comm)
{
    static struct next next = {.name = "MPI_Allgatherv"};
    const struct mpi_call call = {.form = FORM_ALLGATHERV,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .sendcount = sendcount,
                                  .sendtype = sendtype,
                                  .recvcounts = counts,
                                  .displs = displs,
                                  .recvtype = recvtype,
                                  .comm = comm};
    int error;
    if (qccl_dropin_take(&call, &error))
        return error;
    allgatherv_fn *go_on = (allgatherv_fn *)qccl_dropin_next(&next);
    return go_on ? go_on(sendbuf, sendcount, sendtype, recvbuf, counts, displs, recvtype, comm)
                 : NO_MPI;
}

/* ------------------------------------------------------------------ non-blocking */

int MPI_Iallreduce(const void *sendbuf, void *recvbuf, int count, word type, word op, word comm,
                   void *request)
{
    static struct next next = {.name = "MPI_Iallreduce"};
    const struct mpi_call call = {.form = FORM_IALLREDUCE,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcount = count,
                                  .recvtype = type,
                                  .op = op,
                                  .comm = comm,
                                  .request = request};
    int error;
    if (qccl_dropin_take(&call, &error))
        return error;
    iallreduce_fn *go_on = (iallreduce_fn *)qccl_dropin_next(&next);
    return go_on ? go_on(sendbuf, recvbuf, count, type, op, comm, request) : NO_MPI;
}

int MPI_Ireduce_scatter_block(const void *sendbuf, void *recvbuf, int count, word type, word op,
                              word comm, void *request)
{
    static struct next next = {.name = "MPI_Ireduce_scatter_block"};
    const struct mpi_call call = {.form = FORM_IREDUCE_SCATTER_BLOCK,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcount = count,
                                  .recvtype = type,
                                  .op = op,
                                  .comm = comm,
                                  .request = request};
    int error;
    if (qccl_dropin_take(&call, &error))
        return error;
    iallreduce_fn *go_on = (iallreduce_fn *)qccl_dropin_next(&next);
    return go_on ? go_on(sendbuf, recvbuf, count, type, op, comm, request) : NO_MPI;
}

int MPI_Ireduce_scatter(const void *sendbuf, void *recvbuf, const int *counts, word type, word op,
                        word comm, void *request)
{
    static struct next next = {.name = "MPI_Ireduce_scatter"};
    const struct mpi_call call = {.form = FORM_IREDUCE_SCATTER,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcounts = counts,
                                  .recvtype = type,
                                  .op = op,
                                  .comm = comm,
                                  .request = request};
    int error;
    if (qccl_dropin_take(&call, &error))
        return error;
    ireduce_scatter_fn *go_on = (ireduce_scatter_fn *)qccl_dropin_next(&next);
    return go_on ? go_on(sendbuf, recvbuf, counts, type, op, comm, request) : NO_MPI;
}

int MPI_Iallgather(const void *sendbuf, int sendcount, word sendtype, void *recvbuf, int recvcount,
                   word recvtype, word comm, void *request)
{
    static struct next next = {.name = "MPI_Iallgather"};
    const struct mpi_call call = {.form = FORM_IALLGATHER,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .sendcount = sendcount,
                                  .sendtype = sendtype,
                                  .recvcount = recvcount,
                                  .recvtype = recvtype,
                                  .comm = comm,
                                  .request = request};
    int error;
    if (qccl_dropin_take(&call, &error))
        return error;
    iallgather_fn *go_on = (iallgather_fn *)qccl_dropin_next(&next);
    return go_on ? go_on(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request)
                 : NO_MPI;
}

int MPI_Iallgatherv(const void *sendbuf, int sendcount, word sendtype, void *recvbuf,
                    const int *counts, const int *displs, word recvtype, word comm, void *request)
{
    static struct next next = {.name = "MPI_Iallgatherv"};
    const struct mpi_call call = {.form = FORM_IALLGATHERV,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .sendcount = sendcount,
                                  .sendtype = sendtype,
                                  .recvcounts = counts,
                                  .displs = displs,
                                  .recvtype = recvtype,
                                  .comm = comm,
                                  .request = request};
    int error;
    if (qccl_dropin_take(&call, &error))
        return error;
    iallgatherv_fn *go_on = (iallgatherv_fn *)qccl_dropin_next(&next);
    return go_on ? go_on(sendbuf, sendcount, sendtype, recvbuf, counts, displs, recvtype, comm,
                         request)
                 : NO_MPI;
}
