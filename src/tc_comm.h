/* src/tc_comm.h - amalgamation root of the optional header tc_comm.h: collectives over shared
 * memory, MPI and NCCL, and distributed training. Includes tc.h; the implementation is compiled
 * where TC_IMPLEMENTATION is defined. */
#ifndef TC_COMM_H
#define TC_COMM_H

#include "tc.h"

#include "comm/api.h"

#endif

#if defined(TC_IMPLEMENTATION) && !defined(TC_COMM_IMPLEMENTED)
#define TC_COMM_IMPLEMENTED

#include "base/impl_begin.h"

#include "comm/host_reduce.c"
#include "comm/shm.c"
#include "comm/launcher_env.c"
#include "comm/mpi.c"
#include "comm/nccl.c"
#include "comm/comm_from_env.c"
#include "comm/data_parallel.c"
#include "comm/partition.c"
#include "comm/partition_rules.c"
#include "comm/prefetch.c"
#include "comm/predict_scaling.c"

#include "base/impl_end.h"
#endif
