/* qcclCommInitMpi: a duplicate of the program's communicator, where its ranks run, and a
 * communicator on top.
 *
 * The duplicate takes none of the original's hints: they may allow MPI to deliver messages in
 * another order than they were sent.  What can fail on one rank alone, its memory, is agreed upon
 * before anybody waits for anybody. */
#include "qccl/qccl_mpi.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/trace.h"
#include "collectives/mpi_transport.h"

static qcclResult_t check_usage(MPI_Comm comm)
{
    int initialized = 0, finalized = 0, inter = 0;
    MPI_Initialized(&initialized);
    if (!initialized)
        return qccl_fail(qcclInvalidUsage, "qcclCommInitMpi before MPI_Init");
    MPI_Finalized(&finalized);
    if (finalized)
        return qccl_fail(qcclInvalidUsage, "qcclCommInitMpi after MPI_Finalize");
    CHECK_ARG(comm != MPI_COMM_NULL, "mpi_comm is MPI_COMM_NULL");
    RETURN_IF_FAILED(qccl_mpi_check(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter"));
    CHECK_ARG(!inter, "mpi_comm is an inter-communicator");
    return qcclSuccess;
}

/* Says once what the program may do with threads. */
static void log_thread_level(int rank)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    int level = MPI_THREAD_SINGLE;
    if (atomic_flag_test_and_set(&said))
        return;
    MPI_Query_thread(&level);
    if (level != MPI_THREAD_MULTIPLE)
        qccl_log(QCCL_LOG_INFO, rank,
                 "MPI was not initialised with MPI_THREAD_MULTIPLE: several threads must not use "
                 "communicators at once");
    else
        qccl_log(QCCL_LOG_INFO, rank, "MPI_THREAD_MULTIPLE: threads may use communicators at once");
}

/* lowest[r] = the lowest rank on the node of rank r. */
static qcclResult_t find_lowest(MPI_Comm comm, int rank, int *lowest)
{
    MPI_Comm node;
    int first = rank;
    RETURN_IF_FAILED(
        qccl_mpi_check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node),
                       "MPI_Comm_split_type"));
    qcclResult_t status = qccl_mpi_check(MPI_Bcast(&first, 1, MPI_INT, 0, node), "MPI_Bcast");
    MPI_Comm_free(&node);
    RETURN_IF_FAILED(status);
    return qccl_mpi_check(MPI_Allgather(&first, 1, MPI_INT, lowest, 1, MPI_INT, comm),
                          "MPI_Allgather");
}

/* nodes[r] = the node of rank r, numbered by first appearance. */
static qcclResult_t find_nodes(const struct mpi_mover *mover)
{
    int count = 0, *nodes = mover->nodes;
    RETURN_IF_FAILED(find_lowest(mover->comm, mover->rank, nodes));
    /* A node's lowest rank comes first, so its entry is final when the others of the node look
     * there. */
    for (int r = 0; r < mover->nranks; r++)
        nodes[r] = nodes[r] == r ? count++ : nodes[nodes[r]];
    return qcclSuccess;
}

/* The same answer on every rank: an error when any rank has one. */
static qcclResult_t agree(MPI_Comm comm, qcclResult_t mine)
{
    int failed = mine != qcclSuccess, any = 0;
    qcclResult_t status =
        qccl_mpi_check(MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, comm), "MPI_Allreduce");
    if (failed || status != qcclSuccess)
        return failed ? mine : status;
    return any ? qccl_fail(qcclRemoteError, "another rank had no memory for its communicator")
               : qcclSuccess;
}

qcclResult_t qcclCommInitMpi(qcclComm_t *comm, MPI_Comm mpi_comm, const qcclConfig_t *config)
{
    struct mpi_mover *mover = NULL;
    MPI_Comm duplicate = MPI_COMM_NULL;
    CHECK_ARG(comm, "comm is NULL");
    RETURN_IF_FAILED(check_usage(mpi_comm));
    qccl_mpi_reap();
    RETURN_IF_FAILED(qccl_mpi_check(MPI_Comm_dup_with_info(mpi_comm, MPI_INFO_NULL, &duplicate),
                                    "MPI_Comm_dup_with_info"));
    MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN);

    qcclResult_t status = agree(duplicate, qccl_mpi_mover_create(&mover, duplicate));
    if (status != qcclSuccess) {
        qccl_mpi_mover_free(mover);
        MPI_Comm_free(&duplicate);
        return status;
    }
    qccl_mpi_open(mover);
    log_thread_level(mover->rank);
    status = find_nodes(mover);
    if (status == qcclSuccess) {
        struct transport transport = qccl_mpi_transport(mover);
        status = qccl_comm_create(comm, &transport, config, true);
    }
    int world_rank;
    if (status != qcclSuccess)
        qccl_mpi_close(mover);
    else if (MPI_Comm_rank(MPI_COMM_WORLD, &world_rank) == MPI_SUCCESS)
        qccl_trace_rank_file(world_rank);
    return status;
}
