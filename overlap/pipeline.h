/* The pipelined executor, and how a slow call lets fast ones go first. */
#ifndef QCCL_OVERLAP_PIPELINE_H
#define QCCL_OVERLAP_PIPELINE_H

#include "collectives/call.h"

/* Runs a plan with several rounds in flight; needs a mover with wait_for and test, and is the
 * serial executor without them. */
execute_fn qccl_run_pipelined;

#endif
