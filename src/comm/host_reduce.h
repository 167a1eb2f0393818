/* comm/host_reduce.h - declares reductions over ranks whose operands are in host memory, for
 * communication engines. */
#ifndef TCI_COMM_HOST_REDUCE_H
#define TCI_COMM_HOST_REDUCE_H

#include "../ops/communicator.h"
#include "../ops/dtype.h"

/* n elements of each rank, in the order of ranks; those of a rank begin `stride` bytes after those
 * of the one before. f16 and bf16 in f32, rounded once. out may be one of the operands. */
TCI_FN void tci_comm_combine(tc_comm_how how, tc_dtype dtype, void *out, const void *in,
                             int64_t stride, int ranks, int64_t n);

#endif
