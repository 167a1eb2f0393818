/* api/custom_op.h - declares user-defined ops: C functions, or CUDA source, that programs call. */
#ifndef TC_API_CUSTOM_OP_H
#define TC_API_CUSTOM_OP_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TC_CUSTOM_MOST = 16 }; /* inputs of a custom op, and axes of its result */

/* ---- user-defined ops ---- */

/* An operand of a custom op: n elements, dense, in row-major order. */
typedef struct tc_custom_array {
    void *data; /* NULL in a shape rule */
    tc_dtype dtype;
    int rank;
    int64_t *sizes; /* `rank` of them */
    int64_t n;
} tc_custom_array;

/* Name and version identify an op, also in programs on disk: a different op with the same pair is
 * rejected. An op must be a pure function of its inputs: equal calls are merged, and calls with
 * constant inputs may be computed once. */
typedef struct tc_custom_op {
    const char *name; /* copied */
    int version;
    void *user; /* for the functions; both must stay valid as long as programs; not freed */
    /* Sets dtype, rank and sizes (there is room for TC_CUSTOM_MOST) of the result, initially those
     * of the first input. false: invalid inputs. NULL: the result has the shape of the first input.
     * Symbolic sizes, and n, are as returned by tc_size: compare them by == and compute with
     * tc_dim_add and similar calls; the functions that compute get the sizes of the run. */
    bool (*shape)(void *user, const tc_custom_array *inputs, int n, tc_custom_array *result);
    /* Computes the result. Called on any thread, also concurrently; must not call tc. */
    void (*run)(void *user, const tc_custom_array *inputs, int n, tc_custom_array *result);
    /* The gradient of input `which`, of its shape and dtype, from the gradient of the result; built
     * by calls of tc, also of custom ops. TC_NONE: no gradient. NULL: requesting a gradient
     * fails. */
    tc_tensor (*vjp)(void *user, tc_tensors inputs, tc_tensor result, tc_tensor grad, int which);
    /* The result for a batch of examples along a leading axis, which each input has too (unbatched
     * inputs are broadcast); built by calls of tc. NULL: tc_vmap calls `run` for each example. */
    tc_tensor (*vmap)(void *user, tc_tensors inputs);
    /* CUDA C++ source (copied) that GPU programs use instead of `run`. It defines a function
     *     __device__ void run(const tc_custom_array *in, int n, tc_custom_array *out)
     * that all threads of a launch call. It is a separate source file, in which sizes have type
     * long long. A launch has blocks of cuda_threads (0: 256), one for each cuda_elements
     * (0: cuda_threads) elements of the result. NULL: the host calls `run` between launches, with
     * copies of the operands. */
    const char *cuda;
    int cuda_threads; /* at most 1024 */
    int64_t cuda_elements;
} tc_custom_op;

/* tc_custom(&op, TC_TENSORS(x, y)): the result of a call in each run, on the host in the thread of
 * the run, or on the GPU of the program. The shape rule is called once. tc_jvp differentiates the
 * result of vjp with respect to `grad`. TC_ERR_ARGUMENT: no name or run, no or too many inputs,
 * cuda_threads or cuda_elements out of range, another op with that name and version, and when a
 * program is compiled for a GPU: NVRTC rejects the source (tc_error has its messages, with lines of
 * the source); TC_ERR_SHAPE: the shape rule returns false, or an invalid shape; TC_ERR_DTYPE;
 * TC_ERR_MEMORY. */
TC_API tc_tensor tc_custom_at(const tc_custom_op *op, tc_tensors inputs, tc_site here);
#define tc_custom(op, ...) tc_custom_at((op), __VA_ARGS__, TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
