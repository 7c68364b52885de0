/* Fortran's MPI functions, where those do not call the ones of C: Open MPI's call PMPI_ functions.
 *
 * The names are those of mpif.h and `use mpi` with one underscore behind, as gfortran and most
 * compilers write them, and those of `use mpi_f08`, which take the same arguments but that ierror
 * may be absent.  Handles are integers; MPI_IN_PLACE and MPI_BOTTOM are the addresses of two common
 * blocks. */
#include "collectives/dropin/mpi_job.h"

extern int mpi_fortran_in_place_, mpi_fortran_bottom_;
#pragma weak mpi_fortran_in_place_
#pragma weak mpi_fortran_bottom_

typedef void init_fn(int *ierror);
typedef void free_fn(int *comm, int *ierror);
typedef void init_thread_fn(const int *required, int *provided, int *ierror);
typedef void allreduce_fn(void *, void *, const int *, const int *, const int *, const int *,
                          int *ierror);
typedef void allgather_fn(void *, const int *, const int *, void *, const int *, const int *,
                          const int *, int *ierror);
typedef void allgatherv_fn(void *, const int *, const int *, void *, const int *, const int *,
                           const int *, const int *, int *ierror);
typedef void iallreduce_fn(void *, void *, const int *, const int *, const int *, const int *,
                           int *request, int *ierror);
typedef void iallgather_fn(void *, const int *, const int *, void *, const int *, const int *,
                           const int *, int *request, int *ierror);
typedef void iallgatherv_fn(void *, const int *, const int *, void *, const int *, const int *,
                            const int *, const int *, int *request, int *ierror);

QCCL_API init_fn mpi_init_, mpi_finalize_;
QCCL_API init_thread_fn mpi_init_thread_;
QCCL_API free_fn mpi_comm_free_, mpi_comm_disconnect_;
QCCL_API allreduce_fn mpi_allreduce_, mpi_reduce_scatter_, mpi_reduce_scatter_block_;
QCCL_API allgather_fn mpi_allgather_;
QCCL_API allgatherv_fn mpi_allgatherv_;
QCCL_API iallreduce_fn mpi_iallreduce_, mpi_ireduce_scatter_, mpi_ireduce_scatter_block_;
QCCL_API iallgather_fn mpi_iallgather_;
QCCL_API iallgatherv_fn mpi_iallgatherv_;

#define SAME_AS(name) __attribute__((alias(name)))
QCCL_API init_fn mpi_init_f08_ SAME_AS("mpi_init_");
QCCL_API init_fn mpi_finalize_f08_ SAME_AS("mpi_finalize_");
QCCL_API init_thread_fn mpi_init_thread_f08_ SAME_AS("mpi_init_thread_");
QCCL_API free_fn mpi_comm_free_f08_ SAME_AS("mpi_comm_free_");
QCCL_API free_fn mpi_comm_disconnect_f08_ SAME_AS("mpi_comm_disconnect_");
QCCL_API allreduce_fn mpi_allreduce_f08_ SAME_AS("mpi_allreduce_");
QCCL_API allreduce_fn mpi_reduce_scatter_f08_ SAME_AS("mpi_reduce_scatter_");
QCCL_API allreduce_fn mpi_reduce_scatter_block_f08_ SAME_AS("mpi_reduce_scatter_block_");
QCCL_API allgather_fn mpi_allgather_f08_ SAME_AS("mpi_allgather_");
QCCL_API allgatherv_fn mpi_allgatherv_f08_ SAME_AS("mpi_allgatherv_");
QCCL_API iallreduce_fn mpi_iallreduce_f08_ SAME_AS("mpi_iallreduce_");
QCCL_API iallreduce_fn mpi_ireduce_scatter_f08_ SAME_AS("mpi_ireduce_scatter_");
QCCL_API iallreduce_fn mpi_ireduce_scatter_block_f08_ SAME_AS("mpi_ireduce_scatter_block_");
QCCL_API iallgather_fn mpi_iallgather_f08_ SAME_AS("mpi_iallgather_");
QCCL_API iallgatherv_fn mpi_iallgatherv_f08_ SAME_AS("mpi_iallgatherv_");

/* ------------------------------------------------------------------ begin and end */

static void set(int *ierror, int error)
{
    if (ierror)
        *ierror = error;
}

void mpi_init_(int *ierror)
{
    static struct next next = {.name = "mpi_init_"};
    int error = MPI_ERR_OTHER;
    init_fn *go_on = (init_fn *)qccl_dropin_next(&next);
    if (go_on)
        go_on(&error);
    set(ierror, error ? error : qccl_dropin_start());
}

void mpi_init_thread_(const int *required, int *provided, int *ierror)
{
    static struct next next = {.name = "mpi_init_thread_"};
    int error = MPI_ERR_OTHER;
    init_thread_fn *go_on = (init_thread_fn *)qccl_dropin_next(&next);
    if (go_on)
        go_on(required, provided, &error);
    set(ierror, error ? error : qccl_dropin_start());
}

void mpi_comm_free_(int *comm, int *ierror)
{
    static struct next next = {.name = "mpi_comm_free_"};
    free_fn *go_on = (free_fn *)qccl_dropin_next(&next);
    if (qccl_dropin_settings())
        qccl_dropin_settle(PMPI_Comm_f2c(*comm));
    if (go_on)
        go_on(comm, ierror);
}

void mpi_comm_disconnect_(int *comm, int *ierror)
{
    static struct next next = {.name = "mpi_comm_disconnect_"};
    free_fn *go_on = (free_fn *)qccl_dropin_next(&next);
    if (qccl_dropin_settings())
        qccl_dropin_settle(PMPI_Comm_f2c(*comm));
    if (go_on)
        go_on(comm, ierror);
}

void mpi_finalize_(int *ierror)
{
    static struct next next = {.name = "mpi_finalize_"};
    init_fn *go_on = (init_fn *)qccl_dropin_next(&next);
    qccl_dropin_end();
    if (go_on)
        go_on(ierror);
}

/* ------------------------------------------------------------------ offering */

/* Offers a call whose handles are Fortran's; whether it was done.  Blocking forms and non-blocking
 * ones stand in the same order, reductions first. */
static bool offer(struct mpi_call call, int *ierror)
{
    int error, *request = call.request;
    MPI_Request made;
    if (!qccl_dropin_settings() || call.sendbuf == &mpi_fortran_bottom_ ||
        call.recvbuf == &mpi_fortran_bottom_)
        return false;
    if (call.sendbuf == &mpi_fortran_in_place_)
        call.sendbuf = MPI_IN_PLACE;
    call.comm = (word)PMPI_Comm_f2c((int)call.comm);
    call.recvtype = (word)PMPI_Type_f2c((int)call.recvtype);
    call.request = request ? &made : NULL;
    if (qccl_dropin_blocking(call.form) >= FORM_ALLGATHER)
        call.sendtype = (word)PMPI_Type_f2c((int)call.sendtype);
    else
        call.op = (word)PMPI_Op_f2c((int)call.op);
    if (!qccl_dropin_take(&call, &error))
        return false;
    if (request && error == MPI_SUCCESS)
        *request = (int)PMPI_Request_c2f(made);
    set(ierror, error);
    return true;
}

/* ------------------------------------------------------------------ blocking */

void mpi_allreduce_(void *sendbuf, void *recvbuf, const int *count, const int *type, const int *op,
                    const int *comm, int *ierror)
{
    static struct next next = {.name = "mpi_allreduce_"};
    const struct mpi_call call = {.form = FORM_ALLREDUCE,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcount = *count,
                                  .recvtype = (word)*type,
                                  .op = (word)*op,
                                  .comm = (word)*comm};
    allreduce_fn *go_on = (allreduce_fn *)qccl_dropin_next(&next);
    if (go_on && !offer(call, ierror))
        go_on(sendbuf, recvbuf, count, type, op, comm, ierror);
}

void mpi_reduce_scatter_block_(void *sendbuf, void *recvbuf, const int *count, const int *type,
                               const int *op, const int *comm, int *ierror)
{
    static struct next next = {.name = "mpi_reduce_scatter_block_"};
    const struct mpi_call call = {.form = FORM_REDUCE_SCATTER_BLOCK,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcount = *count,
                                  .recvtype = (word)*type,
                                  .op = (word)*op,
                                  .comm = (word)*comm};
    allreduce_fn *go_on = (allreduce_fn *)qccl_dropin_next(&next);
    if (go_on && !offer(call, ierror))
        go_on(sendbuf, recvbuf, count, type, op, comm, ierror);
}

void mpi_reduce_scatter_(void *sendbuf, void *recvbuf, const int *counts, const int *type,
                         const int *op, const int *comm, int *ierror)
{
    static struct next next = {.name = "mpi_reduce_scatter_"};
    const struct mpi_call call = {.form = FORM_REDUCE_SCATTER,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcounts = counts,
                                  .recvtype = (word)*type,
                                  .op = (word)*op,
                                  .comm = (word)*comm};
    allreduce_fn *go_on = (allreduce_fn *)qccl_dropin_next(&next);
    if (go_on && !offer(call, ierror))
        go_on(sendbuf, recvbuf, counts, type, op, comm, ierror);
}

void mpi_allgather_(void *sendbuf, const int *sendcount, const int *sendtype, void *recvbuf,
                    const int *recvcount, const int *recvtype, const int *comm, int *ierror)
{
    static struct next next = {.name = "mpi_allgather_"};
    const struct mpi_call call = {.form = FORM_ALLGATHER,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .sendcount = *sendcount,
                                  .sendtype = (word)*sendtype,
                                  .recvcount = *recvcount,
                                  .recvtype = (word)*recvtype,
                                  .comm = (word)*comm};
    allgather_fn *go_on = (allgather_fn *)qccl_dropin_next(&next);
    if (go_on && !offer(call, ierror))
        go_on(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, ierror);
}

void mpi_allgatherv_(void *sendbuf, const int *sendcount, const int *sendtype, void *recvbuf,
                     const int *counts, const int *displs, const int *recvtype, const int *comm,
                     int *ierror)
{
    static struct next next = {.name = "mpi_allgatherv_"};
    const struct mpi_call call = {.form = FORM_ALLGATHERV,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .sendcount = *sendcount,
                                  .sendtype = (word)*sendtype,
                                  .recvcounts = counts,
                                  .displs = displs,
                                  .recvtype = (word)*recvtype,
                                  .comm = (word)*comm};
    allgatherv_fn *go_on = (allgatherv_fn *)qccl_dropin_next(&next);
    if (go_on && !offer(call, ierror))
        go_on(sendbuf, sendcount, sendtype, recvbuf, counts, displs, recvtype, comm, ierror);
}

/* ------------------------------------------------------------------ non-blocking */

void mpi_iallreduce_(void *sendbuf, void *recvbuf, const int *count, const int *type, const int *op,
                     const int *comm, int *request, int *ierror)
{
    static struct next next = {.name = "mpi_iallreduce_"};
    const struct mpi_call call = {.form = FORM_IALLREDUCE,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcount = *count,
                                  .recvtype = (word)*type,
                                  .op = (word)*op,
                                  .comm = (word)*comm,
                                  .request = request};
    iallreduce_fn *go_on = (iallreduce_fn *)qccl_dropin_next(&next);
    if (go_on && !offer(call, ierror))
        go_on(sendbuf, recvbuf, count, type, op, comm, request, ierror);
}

void mpi_ireduce_scatter_block_(void *sendbuf, void *recvbuf, const int *count, const int *type,
                                const int *op, const int *comm, int *request, int *ierror)
{
    static struct next next = {.name = "mpi_ireduce_scatter_block_"};
    const struct mpi_call call = {.form = FORM_IREDUCE_SCATTER_BLOCK,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcount = *count,
                                  .recvtype = (word)*type,
                                  .op = (word)*op,
                                  .comm = (word)*comm,
                                  .request = request};
    iallreduce_fn *go_on = (iallreduce_fn *)qccl_dropin_next(&next);
    if (go_on && !offer(call, ierror))
        go_on(sendbuf, recvbuf, count, type, op, comm, request, ierror);
}

void mpi_ireduce_scatter_(void *sendbuf, void *recvbuf, const int *counts, const int *type,
                          const int *op, const int *comm, int *request, int *ierror)
{
    static struct next next = {.name = "mpi_ireduce_scatter_"};
    const struct mpi_call call = {.form = FORM_IREDUCE_SCATTER,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .recvcounts = counts,
                                  .recvtype = (word)*type,
                                  .op = (word)*op,
                                  .comm = (word)*comm,
                                  .request = request};
    iallreduce_fn *go_on = (iallreduce_fn *)qccl_dropin_next(&next);
    if (go_on && !offer(call, ierror))
        go_on(sendbuf, recvbuf, counts, type, op, comm, request, ierror);
}

void mpi_iallgather_(void *sendbuf, const int *sendcount, const int *sendtype, void *recvbuf,
                     const int *recvcount, const int *recvtype, const int *comm, int *request,
                     int *ierror)
{
    static struct next next = {.name = "mpi_iallgather_"};
    const struct mpi_call call = {.form = FORM_IALLGATHER,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .sendcount = *sendcount,
                                  .sendtype = (word)*sendtype,
                                  .recvcount = *recvcount,
                                  .recvtype = (word)*recvtype,
                                  .comm = (word)*comm,
                                  .request = request};
    iallgather_fn *go_on = (iallgather_fn *)qccl_dropin_next(&next);
    if (go_on && !offer(call, ierror))
        go_on(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request, ierror);
}

void mpi_iallgatherv_(void *sendbuf, const int *sendcount, const int *sendtype, void *recvbuf,
                      const int *counts, const int *displs, const int *recvtype, const int *comm,
                      int *request, int *ierror)
{
    static struct next next = {.name = "mpi_iallgatherv_"};
    const struct mpi_call call = {.form = FORM_IALLGATHERV,
                                  .site = __builtin_return_address(0),
                                  .sendbuf = sendbuf,
                                  .recvbuf = recvbuf,
                                  .sendcount = *sendcount,
                                  .sendtype = (word)*sendtype,
                                  .recvcounts = counts,
                                  .displs = displs,
                                  .recvtype = (word)*recvtype,
                                  .comm = (word)*comm,
                                  .request = request};
    iallgatherv_fn *go_on = (iallgatherv_fn *)qccl_dropin_next(&next);
    if (go_on && !offer(call, ierror))
        go_on(sendbuf, sendcount, sendtype, recvbuf, counts, displs, recvtype, comm, request,
              ierror);
}
