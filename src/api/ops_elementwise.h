/* api/ops_elementwise.h - declares elementwise operations, select (where), casts and bitcasts.
 * Conventions of the operations of all headers: every call makes a node of the graph and returns
 * its handle at once.
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

#include "operand_macros.h"

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

/* ---- elementwise calls that are made of others: floats are computed in f32 or f64 and rounded
 * once to the dtype of the first operand; integers and bool count as f32 unless a line says
 * otherwise ---- */
/* x clamped to [min, max]; each bound is a tensor, a number or TC_NONE, and at least one is
 * given (else TC_ERR_ARGUMENT). All broadcast to the common dtype. The gradient of x is 1
 * between the bounds and 0 at and beyond a bound that is a number; at a bound that is a tensor
 * both take half. */
TC_API tc_tensor tc_clamp_at(tc_tensor x, tc_arg min, tc_arg max, tc_site here);
#define tc_clamp(x, min, max) tc_clamp_at((x), TC_ARG(min), TC_ARG(max), TC_HERE)
/* value where mask is not 0, else x. All broadcast. Result: x's dtype. */
TC_API tc_tensor tc_masked_fill_at(tc_tensor x, tc_tensor mask, tc_arg value, tc_site here);
#define tc_masked_fill(x, mask, value) tc_masked_fill_at((x), (mask), TC_ARG(value), TC_HERE)
/* Replaces NaN, inf and -inf by numbers; TC_NONE: 0, the largest and the lowest number of the
 * dtype. Integers are returned as they are. */
TC_API tc_tensor tc_nan_to_num_at(tc_tensor x, tc_arg nan, tc_arg posinf, tc_arg neginf,
                                  tc_site here);
#define tc_nan_to_num(x, nan, posinf, neginf)                                                      \
    tc_nan_to_num_at((x), TC_ARG(nan), TC_ARG(posinf), TC_ARG(neginf), TC_HERE)
/* Number of set bits of each element. x: integer dtype. Result: x's dtype. */
TC_API tc_tensor tc_popcount_at(tc_tensor x, tc_site here);
#define tc_popcount(x) tc_popcount_at((x), TC_HERE)
/* The next representable float after x in the direction of `towards`, of one float dtype; x itself
 * where both are equal, NaN where one is. No gradient. */
TC_API tc_tensor tc_nextafter_at(tc_tensor x, tc_tensor towards, tc_site here);
#define tc_nextafter(x, towards) tc_nextafter_at((x), (towards), TC_HERE)
/* x = mantissa 2^exponent with |mantissa| in [0.5, 1), both exact: *mantissa of x's float dtype,
 * *exponent i32. 0, inf and NaN are their own mantissa with exponent 0. NULL: not wanted. */
TC_API void tc_frexp_at(tc_tensor x, tc_tensor *mantissa, tc_tensor *exponent, tc_site here);
#define tc_frexp(x, mantissa, exponent) tc_frexp_at((x), (mantissa), (exponent), TC_HERE)
/* The n-th derivative of digamma, n from 0 to 64 (else TC_ERR_ARGUMENT), by Hurwitz's zeta function
 * and, below 0.5, reflection; from n = 2 on computed in f64. */
TC_API tc_tensor tc_polygamma_at(int64_t n, tc_tensor x, tc_site here);
#define tc_polygamma(n, x) tc_polygamma_at((n), (x), TC_HERE)
/* Modified Bessel function of the first kind of order 0. */
TC_API tc_tensor tc_i0_at(tc_tensor x, tc_site here);
#define tc_i0(x) tc_i0_at((x), TC_HERE)
/* Regularized lower incomplete gamma function P(a, x), and the upper one Q = 1 - P, which is not
 * computed as that difference where it is small: a and x, 0 or more (else NaN), broadcast; computed
 * in f64, of x's dtype. The gradient by a is TC_ERR_UNSUPPORTED. */
TC_API tc_tensor tc_igamma_at(tc_tensor a, tc_tensor x, tc_site here);
#define tc_igamma(a, x) tc_igamma_at((a), (x), TC_HERE)
TC_API tc_tensor tc_igammac_at(tc_tensor a, tc_tensor x, tc_site here);
#define tc_igammac(a, x) tc_igammac_at((a), (x), TC_HERE)
/* |a - b| <= atol + rtol |b|, or a == b, element by element, bool; b: a tensor or a number. NaN is
 * close to NaN if equal_nan. Unless both are floats they are compared in f64. TC_ERR_ARGUMENT: a
 * negative tolerance. allclose: whether all are, bool, 0-d.
 *     tc_tensor ok = tc_allclose(y, want, 1e-5, 1e-8, false); */
TC_API tc_tensor tc_isclose_at(tc_tensor a, tc_arg b, double rtol, double atol, bool equal_nan,
                               tc_site here);
#define tc_isclose(a, b, rtol, atol, equal_nan)                                                    \
    tc_isclose_at((a), TC_ARG(b), (rtol), (atol), (equal_nan), TC_HERE)
TC_API tc_tensor tc_allclose_at(tc_tensor a, tc_arg b, double rtol, double atol, bool equal_nan,
                                tc_site here);
#define tc_allclose(a, b, rtol, atol, equal_nan)                                                   \
    tc_allclose_at((a), TC_ARG(b), (rtol), (atol), (equal_nan), TC_HERE)

/* ---- the same values: where gradients stop, and which values kernels store ---- */
/* x as a constant: gradients do not pass through it. */
TC_API tc_tensor tc_stop_gradient_at(tc_tensor x, tc_site here);
#define tc_stop_gradient(x) tc_stop_gradient_at((x), TC_HERE)
/* x, materialized: users of the result read it from memory, in other kernels than the one that
 * computes x. */
TC_API tc_tensor tc_materialize_at(tc_tensor x, tc_site here);
#define tc_materialize(x) tc_materialize_at((x), TC_HERE)
/* x computed by kernels of its own: the operands of its op (below movement) and its value are
 * materialized. */
TC_API tc_tensor tc_nofuse_at(tc_tensor x, tc_site here);
#define tc_nofuse(x) tc_nofuse_at((x), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
