/* Datatypes of floats, whatever their handles: MPI's own, Fortran's, and types derived from them.
 *
 * Ranks of one call may describe the same values differently, so only what a type consists of may
 * decide about compression, never how it lies in memory. */
#include "base/memory.h"
#include "collectives/dropin/mpi_job.h"

enum { DEPTH_MAX = 16 };

static bool is_float(const struct dropin_settings *settings, MPI_Datatype type)
{
    return type == MPI_FLOAT || type == MPI_REAL4 || (settings->real_is_float && type == MPI_REAL);
}

static bool is_double(MPI_Datatype type)
{
    return type == MPI_DOUBLE || type == MPI_REAL8 || type == MPI_DOUBLE_PRECISION;
}

/* What a walk through a derived type has met. */
struct walk {
    const struct dropin_settings *settings;
    bool floats, doubles, others;
    bool dense; /* nothing but runs of elements */
};

static void visit(struct walk *walk, MPI_Datatype type, int depth);

static void visit_parts(struct walk *walk, MPI_Datatype type, int depth, int ints, int addresses,
                        int types)
{
    int *i = qccl_alloc((size_t)ints + 1, sizeof *i);
    MPI_Aint *a = qccl_alloc((size_t)addresses + 1, sizeof *a);
    MPI_Datatype *parts = qccl_alloc((size_t)types + 1, sizeof(MPI_Datatype));
    if (i && a && parts &&
        PMPI_Type_get_contents(type, ints, addresses, types, i, a, parts) == MPI_SUCCESS) {
        for (int k = 0; k < types; k++) {
            int counts[3] = {0}, combiner = MPI_COMBINER_NAMED;
            visit(walk, parts[k], depth + 1);
            PMPI_Type_get_envelope(parts[k], &counts[0], &counts[1], &counts[2], &combiner);
            if (combiner != MPI_COMBINER_NAMED)
                PMPI_Type_free(&parts[k]);
        }
    } else {
        walk->others = true;
    }
    qccl_free(i);
    qccl_free(a);
    qccl_free(parts);
}

static void visit(struct walk *walk, MPI_Datatype type, int depth)
{
    int ints = 0, addresses = 0, types = 0, combiner = MPI_COMBINER_NAMED;
    if (is_float(walk->settings, type)) {
        walk->floats = true;
        return;
    }
    if (is_double(type)) {
        walk->doubles = true;
        return;
    }
    PMPI_Type_get_envelope(type, &ints, &addresses, &types, &combiner);
    walk->dense =
        walk->dense && (combiner == MPI_COMBINER_DUP || combiner == MPI_COMBINER_CONTIGUOUS);
    if (combiner == MPI_COMBINER_NAMED || depth == DEPTH_MAX || types == 0)
        walk->others = true;
    else
        visit_parts(walk, type, depth, ints, addresses, types);
}

bool qccl_dropin_element(const struct dropin_settings *settings, MPI_Datatype type,
                         struct element *element)
{
    struct walk walk = {.settings = settings, .dense = true};
    int bytes = 0;
    MPI_Aint low = 0;
    if (type == MPI_DATATYPE_NULL)
        return false;
    visit(&walk, type, 0);
    if (walk.others || walk.floats == walk.doubles)
        return false;
    PMPI_Type_size(type, &bytes);
    PMPI_Type_get_extent(type, &low, &element->extent);
    element->type = walk.floats ? qcclFloat32 : qcclFloat64;
    element->values = (size_t)bytes / qcclTypeBytes(element->type);
    element->dense = walk.dense;
    return true;
}
