/* api/parameters.h - declares parameters: leaves with memory of their own that programs may change
 * (tc_param, tc_named, tc_param_write, tc_assign). Conventions: api/ops_elementwise.h. */
#ifndef TC_API_PARAMETERS_H
#define TC_API_PARAMETERS_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- state and training: forward, backward and update are one graph and one program ---- */
/* tc_param(ctx, data, TC_F32, 784, 512): a leaf with memory of its own, copied from data (NULL:
 * zeros), that programs may change. tc_read returns its current value. */
TC_API tc_tensor tc_param_at(tc_ctx *ctx, const void *data, int n, const int64_t *dtype_and_sizes,
                             tc_site here);
/* tc_param of memory whose type is known, as tc_copy_in_as_at. */
TC_API tc_tensor tc_param_as_at(tc_ctx *ctx, tc_buf data, int n, const int64_t *dtype_and_sizes,
                                tc_site here);
#define tc_param(ctx, data, ...)                                                                   \
    tc_param_as_at((ctx), TC_BUF((data), 0), TCI_SIZES_N(__VA_ARGS__), TCI_SIZES(__VA_ARGS__),     \
                   TC_HERE)
/* The same with the value, shape and dtype of any tensor, which is evaluated (with the errors of
 * tc_eval): tc_param_from(tc_randn(ctx, key, TC_F32, 784, 512)). */
TC_API tc_tensor tc_param_from_at(tc_tensor value, tc_site here);
#define tc_param_from(value) tc_param_from_at((value), TC_HERE)
/* Names a parameter and returns it; tc_save and tc_load use the name, which is copied.
 * TC_ERR_ARGUMENT: not a parameter, or the name is NULL. */
TC_API tc_tensor tc_named_at(tc_tensor param, const char *name, tc_site here);
#define tc_named(param, name) tc_named_at((param), (name), TC_HERE)
/* Sets a parameter now: tc_param_write(param, pointer, n) copies n elements, row-major. Runs in
 * progress continue with the value that they started with. TC_ERR_BUFFER: as tc_read;
 * TC_ERR_ARGUMENT: not a parameter; TC_ERR_BUSY: a run changes it; TC_ERR_MEMORY. tc_error(param)
 * has the message. */
TC_API tc_status tc_param_write_as_at(tc_tensor param, tc_buf from, tc_site here);
#define tc_param_write(param, pointer, n)                                                          \
    tc_param_write_as_at((param), TC_BUF((pointer), (n)), TC_HERE)
/* An effect: as an output of tc_compile_fn (or given to tc_eval) it makes the program set param to
 * value at the end of each run; until then all reads see the old value. It takes no output buffer
 * and is not an operand; unless it is in the list of outputs, it has no effect. value has the
 * parameter's dtype and broadcasts to its shape. If value is a write into param at indices that are
 * inputs of the run (tc_index_put, tc_scatter, tc_index_add ...: a ring buffer, a key-value cache),
 * only those elements are written. */
TC_API tc_tensor tc_assign_at(tc_tensor param, tc_tensor value, tc_site here);
#define tc_assign(param, value) tc_assign_at((param), (value), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
