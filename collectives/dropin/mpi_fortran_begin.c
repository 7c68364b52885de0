/* Fortran's functions that begin and end things, which call PMPI_ functions: all of them in Open
 * MPI, those of `use mpi_f08` in MPICH.  Where they call the functions of C, this library's part is
 * done there too, and finds that nothing is left to do.
 *
 * Names are written as in mpi_fortran.c; ierror may be absent in those of `use mpi_f08`. */
#include "collectives/dropin/mpi_job.h"

typedef void init_fn(int *ierror);
typedef void free_fn(int *comm, int *ierror);
typedef void init_thread_fn(const int *required, int *provided, int *ierror);

QCCL_API init_fn mpi_init_, mpi_init_f08_, mpi_finalize_, mpi_finalize_f08_;
QCCL_API init_thread_fn mpi_init_thread_, mpi_init_thread_f08_;
QCCL_API free_fn mpi_comm_free_, mpi_comm_free_f08_, mpi_comm_disconnect_, mpi_comm_disconnect_f08_;

static void set(int *ierror, int error)
{
    if (ierror)
        *ierror = error;
}

static void init(struct next *next, int *ierror)
{
    int error = MPI_ERR_OTHER;
    init_fn *go_on = (init_fn *)qccl_dropin_next(next);
    if (go_on)
        go_on(&error);
    set(ierror, error ? error : qccl_dropin_start());
}

static void init_thread(struct next *next, const int *required, int *provided, int *ierror)
{
    int error = MPI_ERR_OTHER;
    init_thread_fn *go_on = (init_thread_fn *)qccl_dropin_next(next);
    if (go_on)
        go_on(required, provided, &error);
    set(ierror, error ? error : qccl_dropin_start());
}

static void finalize(struct next *next, int *ierror)
{
    int error = MPI_ERR_OTHER;
    init_fn *go_on = (init_fn *)qccl_dropin_next(next);
    qccl_dropin_end();
    if (go_on)
        go_on(&error);
    set(ierror, error);
}

static void free_communicator(struct next *next, int *comm, int *ierror)
{
    int error = MPI_ERR_OTHER;
    free_fn *go_on = (free_fn *)qccl_dropin_next(next);
    if (qccl_dropin_settings())
        qccl_dropin_settle(PMPI_Comm_f2c(*comm));
    if (go_on)
        go_on(comm, &error);
    set(ierror, error);
}

void mpi_init_(int *ierror)
{
    static struct next next = {.name = "mpi_init_"};
    init(&next, ierror);
}

void mpi_init_f08_(int *ierror)
{
    static struct next next = {.name = "mpi_init_f08_"};
    init(&next, ierror);
}

void mpi_init_thread_(const int *required, int *provided, int *ierror)
{
    static struct next next = {.name = "mpi_init_thread_"};
    init_thread(&next, required, provided, ierror);
}

void mpi_init_thread_f08_(const int *required, int *provided, int *ierror)
{
    static struct next next = {.name = "mpi_init_thread_f08_"};
    init_thread(&next, required, provided, ierror);
}

void mpi_finalize_(int *ierror)
{
    static struct next next = {.name = "mpi_finalize_"};
    finalize(&next, ierror);
}

void mpi_finalize_f08_(int *ierror)
{
    static struct next next = {.name = "mpi_finalize_f08_"};
    finalize(&next, ierror);
}

void mpi_comm_free_(int *comm, int *ierror)
{
    static struct next next = {.name = "mpi_comm_free_"};
    free_communicator(&next, comm, ierror);
}

void mpi_comm_free_f08_(int *comm, int *ierror)
{
    static struct next next = {.name = "mpi_comm_free_f08_"};
    free_communicator(&next, comm, ierror);
}

void mpi_comm_disconnect_(int *comm, int *ierror)
{
    static struct next next = {.name = "mpi_comm_disconnect_"};
    free_communicator(&next, comm, ierror);
}

void mpi_comm_disconnect_f08_(int *comm, int *ierror)
{
    static struct next next = {.name = "mpi_comm_disconnect_f08_"};
    free_communicator(&next, comm, ierror);
}
