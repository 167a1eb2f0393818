/* api/custom_op.h - declares user-defined ops: C functions, or CUDA source, that programs call. */
#ifndef TC_API_CUSTOM_OP_H
#define TC_API_CUSTOM_OP_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TC_CUSTOM_MOST = 16 }; /* inputs of a custom op, and axes of its result */

/* An operand of a custom op: n elements, dense, in row-major order. */
typedef struct tc_custom_array {
    void *data; /* NULL in a shape rule */
    tc_dtype dtype;
    int rank;
    int64_t *sizes; /* `rank` of them */
    int64_t n;
} tc_custom_array;

/* Name and version say what an op is, also to programs on disk: another op of both is refused. An
 * op computes its result of its inputs alone, the same of the same ones: equal calls are one, and
 * what does not change between runs may be computed once. */
typedef struct tc_custom_op {
    const char *name; /* copied */
    int version;
    void *user; /* for the functions, which stay as long as programs do; not freed */
    /* dtype, rank and sizes (there is room for TC_CUSTOM_MOST) of the result, which has those of
     * the first input so far. false: the inputs do not fit. NULL: they are those of the first.
     * Symbolic sizes, and n, are as tc_size gives them: to be compared by == and computed with by
     * tc_dim_add and the others; the functions that compute are given those of the run. */
    bool (*shape)(void *user, const tc_custom_array *inputs, int n, tc_custom_array *result);
    /* Computes the result. On any thread, also in several runs at once; makes no call of tc. */
    void (*run)(void *user, const tc_custom_array *inputs, int n, tc_custom_array *result);
    /* The gradient of input `which`, of its shape and dtype, given that of the result; made of tc's
     * calls, of other custom ops too. TC_NONE: there is none. NULL: to ask for one fails. */
    tc_tensor (*vjp)(void *user, tc_tensors inputs, tc_tensor result, tc_tensor grad, int which);
    /* The results of many examples, along a first axis, which each input has too (what is the same
     * for all is repeated); made of tc's calls. NULL: tc_vmap repeats `run` for each of them. */
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
 * the run, or on the GPU whose program it is. The shape rule is asked once. tc_jvp differentiates
 * what vjp makes by `grad`. TC_ERR_ARGUMENT: no name or run, no or too many inputs, cuda_threads or
 * cuda_elements out of range, another op of that name and version, and where a program is compiled
 * for a GPU: its compiler refuses the text (tc_error has its words, with lines of the text);
 * TC_ERR_SHAPE: the shape rule says no, or gives a bad shape; TC_ERR_DTYPE; TC_ERR_MEMORY. */
TC_API tc_tensor tc_custom_at(const tc_custom_op *op, tc_tensors inputs, tc_site here);
#define tc_custom(op, ...) tc_custom_at((op), __VA_ARGS__, TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
