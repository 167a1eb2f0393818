/* api/ops_elementwise.h - declares elementwise operations, choice and conversion. Conventions of
 * the operations of all headers: every call makes a node of the graph and returns its handle at
 * once.
 *
 * Nothing is computed here: shapes and dtypes are checked, a mistake makes a poisoned handle whose
 * tc_error() says what was given, what was expected and where. Operands come first, attributes
 * after; negative axes count from the end. Where a call takes an operand, a C scalar is accepted
 * too; it is weakly typed (it takes the tensors' dtype where its kind allows). Each macro
 * tc_xxx(...) is the function tc_xxx_at(..., tc_site here) with the caller's file and line.
 *
 * Any call can fail with TC_ERR_HANDLE (an operand is dead, null or of another context) and
 * TC_ERR_MEMORY; a poisoned operand is returned as it is. TC_ERR_SHAPE, TC_ERR_DTYPE and
 * TC_ERR_AXIS report operands and axes that do not match the other operands; TC_ERR_ARGUMENT
 * reports attributes that are never valid (a step of 0, groups that do not divide the channels, a
 * spec that does not parse); TC_ERR_LIMIT reports a result with more elements than memory can
 * address.
 *
 * Unless a comment says otherwise, the result has the shape and dtype of the first operand; dtypes
 * are promoted as in PyTorch (u16, u32 and u64 with other integers as in NumPy), or all as in NumPy
 * (options.promotion); shapes broadcast as in NumPy; axes and sizes that the call does not name are
 * unchanged. */
#ifndef TC_API_OPS_ELEMENTWISE_H
#define TC_API_OPS_ELEMENTWISE_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reduction of a loss over its elements. */
typedef enum tc_reduction { TC_REDUCE_MEAN, TC_REDUCE_SUM, TC_REDUCE_NONE } tc_reduction;

#include "ops.gen.h"

/* ---- choice and conversion ---- */
/* c ? a : b, element by element; c, of any dtype, counts as true where it is not 0. The three
 * broadcast; the result has the promoted dtype of a and b. */
TC_API tc_tensor tc_where_at(tc_arg c, tc_arg a, tc_arg b, tc_site here);
#define tc_where(c, a, b) TCI_WITH_3(tc_where_at, c, a, b)
/* From any dtype to any: float -> int truncates, saturates, NaN gives 0; int -> int wraps; to bool:
 * not 0; else to nearest even. */
TC_API tc_tensor tc_cast_at(tc_tensor x, tc_dtype dtype, tc_site here);
#define tc_cast(x, dtype) tc_cast_at((x), (dtype), TC_HERE)
/* The same bits as another dtype of the same size (else TC_ERR_DTYPE; bool has none): those of an
 * f32 as i32 or u32, and back. Which NaN a NaN is differs between machines. No gradient. */
TC_API tc_tensor tc_bitcast_at(tc_tensor x, tc_dtype dtype, tc_site here);
#define tc_bitcast(x, dtype) tc_bitcast_at((x), (dtype), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
