/* api/ops.h - includes the header of each op category, and declares tc_op, which calls an op by its
 * name. api/ops_elementwise.h states what holds for all operations. */
#ifndef TC_API_OPS_H
#define TC_API_OPS_H

#include "ops_creation.h"
#include "ops_elementwise.h"
#include "ops_linalg.h"
#include "ops_nn.h"
#include "ops_reduce.h"
#include "ops_shape.h"
#include "ops_grad_vmap.h"
#include "parameters.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TC_NO_NAMES
/* ---- any op by its name: for model files and language bindings; TC_NO_NAMES leaves it out,
 * and with it the table that makes every op part of the program ---- */
/* tc_op(ctx, "softmax", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axis", -1))) is tc_softmax(x, -1). Inputs
 * are the op's operands in order (TC_NONE: left out); each other parameter is given by its name,
 * and so may an operand be: TC_ATTR("b", 2.5). The parameters of an options struct are its fields;
 * a parameter with a default may be left out. TC_ERR_ARGUMENT: there is no op or parameter of that
 * name, a required one is missing, or one has another kind; other errors are those of the call. */
TC_API tc_tensor tc_op_at(tc_ctx *ctx, const char *name, tc_tensors inputs, tc_attrs attrs,
                          tc_site here);
#define tc_op(ctx, name, inputs, attrs) tc_op_at((ctx), (name), (inputs), (attrs), TC_HERE)
/* The same for ops with several results, which go to results[0] to results[n - 1]: n is as many as
 * the op has (else TC_ERR_ARGUMENT). On failure all of them are poisoned. */
TC_API tc_status tc_op_results_at(tc_ctx *ctx, const char *name, tc_tensors inputs, tc_attrs attrs,
                                  tc_tensor *results, int n, tc_site here);
#define tc_op_results(ctx, name, inputs, attrs, results, n)                                        \
    tc_op_results_at((ctx), (name), (inputs), (attrs), (results), (n), TC_HERE)
/* Name and parameters of op i, counted from 0: "slice" and "x: tensor, axis: axis, start: integer =
 * 0, stop: integer = TC_END, step: integer = 1". NULL past the last one. */
TC_API const char *tc_op_name(int i);
TC_API const char *tc_op_params(int i);
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
