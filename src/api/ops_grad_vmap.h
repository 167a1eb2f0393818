/* api/ops_grad_vmap.h - declares gradients in reverse and forward mode (tc_grad, tc_vjp, tc_jvp),
 * and vectorization over examples (tc_vmap). Conventions: api/ops_elementwise.h. */
#ifndef TC_API_OPS_GRAD_VMAP_H
#define TC_API_OPS_GRAD_VMAP_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- gradients and vmap: new nodes of the same graph, to which all of this applies again. On
 * failure all results are poisoned; TC_ERR_UNSUPPORTED: an op has no gradient, or no batching rule;
 * a dtype that is not a float is TC_ERR_DTYPE ---- */
/* grads[i] = d loss / d params[i], of its shape and dtype. loss: one element; params: any float
 * tensors of the graph, zeros for those it does not depend on. Ties and corners as in PyTorch 2.15:
 * equal elements of tc_max, tc_min, tc_maximum, tc_fmax and tc_clamp by tensors share; pools and
 * tc_embedding_bag choose the first; at a bound that is a number tc_clamp has 0; NaN in tc_max or
 * tc_min makes the gradient of the whole row NaN; tc_binary_cross_entropy has weight *
 * (input - target) / max(input * (1 - input), 1e-12) to its input, and the clamped logs to its
 * target; a var below eps in tc_gaussian_nll_loss has the gradient of eps. Higher derivatives are
 * right where the function is smooth, also at zeros of products. */
TC_API tc_status tc_grad_at(tc_tensor loss, const tc_tensor *params, int n, tc_tensor *grads,
                            tc_site here);
#define tc_grad(loss, params, n, grads) tc_grad_at((loss), (params), (n), (grads), TC_HERE)
/* Vector-Jacobian product of several results of any shape, given a cotangent for each, which
 * broadcasts to its shape and is cast to its dtype: grads[i] is the cotangents times the
 * Jacobian with respect to params[i]. */
TC_API tc_status tc_vjp_at(tc_tensors results, tc_tensors cotangents, const tc_tensor *params,
                           int n, tc_tensor *grads, tc_site here);
#define tc_vjp(results, ...) tc_vjp_at(results, __VA_ARGS__, TC_HERE)
/* Jacobian-vector product (forward mode): tc_jvp(results, inputs, tangents, out) stores in
 * out[i], of the shape and dtype of result i, its Jacobian times the inputs' tangents, which are
 * given as the cotangents above. One traversal for any number of inputs. */
TC_API tc_status tc_jvp_at(tc_tensors results, tc_tensors inputs, tc_tensors tangents,
                           tc_tensor *out, tc_site here);
#define tc_jvp(results, ...) tc_jvp_at(results, __VA_ARGS__, TC_HERE)
/* A function that builds y[0], y[1] ... from x[0], x[1] ... */
typedef void (*tc_function)(const tc_tensor *x, tc_tensor *y, void *user);
#define TC_UNMAPPED INT32_MIN
/* tc_vmap(f, user, inputs, in_axes, outputs, out_axes, n): vectorizes f over axis in_axes[i] of
 * each input i (TC_UNMAPPED: every example gets the whole input; NULL: axis 0 of all). The results
 * are stacked along out_axes[i] of output i (NULL: axis 0; TC_UNMAPPED: the output must not depend
 * on the example, and is not repeated). f is called once, on tensors of one example's shape, and
 * builds one graph for all examples, without a loop. Other tensors that f uses are shared by all
 * examples, as are random numbers, unless their key depends on the example. tc_grad, tc_jvp and
 * tc_vmap may be called inside f and around it; the values of an example cannot be read in f.
 * TC_ERR_SHAPE: the sizes of the axes differ; TC_ERR_AXIS; TC_ERR_ARGUMENT: every input is
 * TC_UNMAPPED, f is NULL, or a TC_UNMAPPED output depends on the example. */
TC_API tc_status tc_vmap_at(tc_function function, void *user, tc_tensors inputs, const int *in_axes,
                            tc_tensor *outputs, const int *out_axes, int n, tc_site here);
#define tc_vmap(f, user, inputs, ...) tc_vmap_at((f), (user), inputs, __VA_ARGS__, TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
