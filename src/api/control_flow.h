/* api/control_flow.h - declares loops, branches and checkpointed regions (tc_scan, tc_while,
 * tc_cond, tc_checkpoint): a body that is recorded once, compiled once and executed step by step.
 */
#ifndef TC_API_CONTROL_FLOW_H
#define TC_API_CONTROL_FLOW_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- loops, branches, checkpoints ---- */

/* Loop body: from the carries and this iteration's element of each of xs it computes the next
 * carries, of the same shapes and dtypes, and this iteration's element of each of ys. It is called
 * once, while the loop is built; any other tensor may be used in it and is loop-invariant. Its
 * results leave it only through next and y. Any status other than TC_OK fails the call. */
typedef tc_status (*tc_scan_body)(void *user, const tc_tensor *carry, const tc_tensor *x,
                                  tc_tensor *next, tc_tensor *y);
/* Loop over the elements of tensors: carry = init; for each iteration i, carry, y_i = body(carry,
 * xs[i]).
 *
 *     tc_scan(init, xs, length, reverse, body, user, last, ys, n_ys)
 *
 * xs: tensors of equal size along their first axis; iteration i gets element i, without that axis;
 * if reverse, the last element first. length: the number of iterations; 0: the size of xs, which
 * must equal length if both are given. last[j] is carry j after the last iteration, ys[k] [length,
 * ...] the stacked elements y k, each at the position of its x; last may be NULL, and ys if n_ys is
 * 0. The body is compiled once: time and memory of a compile do not depend on the number of
 * iterations, nor does the memory of a run except for ys. Sizes may be symbolic, length too: one
 * program then runs for sequences of any length (with length 0 the carries are init). tc_grad is a
 * loop in reverse order, for which the carries of all iterations are stored; tc_jvp a loop with the
 * tangents as additional carries, tc_vmap a loop over all examples at once.
 *
 * Fails, with all results poisoned and the status returned: TC_ERR_ARGUMENT (neither init nor xs;
 * lengths; no body), TC_ERR_SHAPE and TC_ERR_DTYPE (a carry whose shape or dtype the body changes,
 * an x without an axis), TC_ERR_HANDLE (a result that the body did not set), TC_ERR_MEMORY, and the
 * status that the body returned. */
TC_API tc_status tc_scan_at(tc_tensors init, tc_tensors xs, int64_t length, bool reverse,
                            tc_scan_body body, void *user, tc_tensor *last, tc_tensor *ys, int n_ys,
                            tc_site here);
#define tc_scan(...) tc_scan_at(__VA_ARGS__, TC_HERE)

/* While loop: the number of iterations depends on data:
 *
 *     tc_while(init, most, test, body, user, last)
 *
 * carry = init; while test(carry), at most `most` times (0: no limit), carry = body(carry); last[j]
 * is the final carry j. Both functions are called while the loop is built, the test twice; they
 * return a bool of shape [], and the next carries, of the same shapes and dtypes as the carries.
 * There is no gradient (TC_ERR_UNSUPPORTED); tc_jvp follows the executed iterations, and under
 * tc_vmap the loop runs until all examples have stopped and keeps the values of those that have. A
 * loop with little work per iteration is one launch on a CPU, its scalars in registers. On a device
 * the host reads the test after every iteration; in later runs with buffers at the same addresses a
 * CUDA device tests it itself (driver 12.4 or newer, loops that are not nested). A run that does
 * not end can be cancelled by tc_call_cancel or options.cancel. Errors as for tc_scan. */
typedef tc_status (*tc_while_test)(void *user, const tc_tensor *carry, tc_tensor *go);
typedef tc_status (*tc_while_body)(void *user, const tc_tensor *carry, tc_tensor *next);
TC_API tc_status tc_while_at(tc_tensors init, int64_t most, tc_while_test test, tc_while_body body,
                             void *user, tc_tensor *last, tc_site here);
#define tc_while(...) tc_while_at(__VA_ARGS__, TC_HERE)

/* Executes one of two branches, selected by a bool of shape [] that a run computes:
 *
 *     tc_cond(condition, operands, then, otherwise, user, results, n)
 *
 * Both functions compute the n results, of equal shapes and dtypes, from the operands. Values that
 * depend on the operands are computed only in the taken branch; values that depend on other tensors
 * alone are computed in any case. tc_grad differentiates the taken branch. Under tc_vmap both
 * branches are computed if examples differ in the condition. Errors as for tc_scan. */
typedef tc_status (*tc_branch)(void *user, const tc_tensor *x, tc_tensor *y);
TC_API tc_status tc_cond_at(tc_tensor condition, tc_tensors operands, tc_branch then,
                            tc_branch otherwise, void *user, tc_tensor *results, int n,
                            tc_site here);
#define tc_cond(...) tc_cond_at(__VA_ARGS__, TC_HERE)

/* A region of the graph whose intermediate values gradients recompute instead of storing them:
 *
 *     tc_checkpoint(inputs, body, user, results, n)
 *
 * The body makes n results from the inputs and from any other tensors. Intermediate values are
 * freed after their last use in the forward pass. The backward pass recomputes them from the
 * operands of the region once the gradients of all results are available, by the same ops and with
 * the same values, random numbers included. Regions nest, and a second gradient recomputes like
 * the first. tc_explain reports the amount. Values leave the body through y alone. Sizes may be
 * symbolic. Errors as of tc_scan. */
TC_API tc_status tc_checkpoint_at(tc_tensors inputs, tc_branch body, void *user, tc_tensor *results,
                                  int n, tc_site here);
#define tc_checkpoint(...) tc_checkpoint_at(__VA_ARGS__, TC_HERE)

/* tc_barrier(TC_TENSORS(a, b), out): out[i] is tensor i of the list, stored (tc_materialize), and
 * what uses one of them waits for all; nothing is merged, moved or fused across. Gradients pass.
 * Fails, with all of out poisoned and the status returned: TC_ERR_HANDLE, TC_ERR_MEMORY. */
TC_API tc_status tc_barrier_at(tc_tensors list, tc_tensor *out, tc_site here);
#define tc_barrier(...) tc_barrier_at(__VA_ARGS__, TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
