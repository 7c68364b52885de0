/* The table of QCCL_STATS=1: one write, so that ranks do not mix. */
#include <math.h>
#include <stdio.h>

#include "collectives/comm.h"

void qccl_stats_print(const struct qcclComm *comm)
{
    const qcclStats_t *s = &comm->stats;
    double ratio = s->wire_bytes ? (double)s->raw_bytes / (double)s->wire_bytes : 0.0;
    char text[1024], error[32] = "none sampled";
    if (s->sampled_energy > 0)
        snprintf(error, sizeof error, "%.3g", sqrt(s->sampled_error / s->sampled_energy));
    int n = snprintf(
        text, sizeof text,
        "qccl rank %d of %d\n"
        "  compressed calls  %12llu\n"
        "  passed through    %12llu  (type %llu, op %llu, small %llu, policy %llu, one rank %llu)\n"
        "  raw bytes         %12llu\n"
        "  wire bytes        %12llu  ratio %.2f\n"
        "  encode, wire, decode ms  %.3f  %.3f  %.3f\n"
        "  relative error of encoding, sampled  %s\n",
        qccl_rank(comm), qccl_nranks(comm), (unsigned long long)s->calls,
        (unsigned long long)s->passed, (unsigned long long)s->passed_type,
        (unsigned long long)s->passed_op, (unsigned long long)s->passed_small,
        (unsigned long long)s->passed_policy, (unsigned long long)s->passed_single,
        (unsigned long long)s->raw_bytes, (unsigned long long)s->wire_bytes, ratio,
        (double)s->encode_ns / 1e6, (double)s->wire_ns / 1e6, (double)s->decode_ns / 1e6, error);
    if (n > 0)
        fwrite(text, 1, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1, stderr);
}
