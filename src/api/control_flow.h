/* api/control_flow.h - declares loops, branches and checkpointed regions (tc_scan, tc_while,
 * tc_cond, tc_checkpoint): a body that is recorded once, compiled once and executed step by step.
 */
#ifndef TC_API_CONTROL_FLOW_H
#define TC_API_CONTROL_FLOW_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One step: makes, of the carries and of this step's element of each of xs, the next carries, of
 * the same shapes and dtypes, and what the step adds to each of ys. It is called once, while the
 * repetition is built; any other tensor may be used in it and has the same value in all steps. What
 * it makes leaves it through next and y alone. Anything but TC_OK gives up. */
typedef tc_status (*tc_scan_body)(void *user, const tc_tensor *carry, const tc_tensor *x,
                                  tc_tensor *next, tc_tensor *y);
/* Repeats a body: carry = init; for each step i, carry, y_i = body(carry, xs[i]).
 *
 *     tc_scan(init, xs, length, reverse, body, user, last, ys, n_ys)
 *
 * xs: tensors of one size along their first axis, of which step i gets element i, without that
 * axis; if reverse the last one first. length: how many steps; 0: as many as xs have, which must be
 * the same where both say it. last[j] is what carry j is after the last step, ys[k] [length, ...]
 * what the steps gave as y k, each where its x was; last may be NULL, ys where n_ys is 0. One
 * program does all steps: time and memory of a compile do not grow with their number, nor, but for
 * ys, does the memory of a run. Sizes may be symbolic, length too: one program then takes
 * sequences of any length (of no step, after which the carries are as they were). tc_grad goes back
 * through all steps, by a repetition of its own, for which the carries of all steps are stored;
 * tc_jvp makes one that carries the tangents too, tc_vmap one of all examples.
 *
 * Fails, with all results poisoned and the status returned: TC_ERR_ARGUMENT (neither init nor xs;
 * lengths; no body), TC_ERR_SHAPE and TC_ERR_DTYPE (a carry that a step changes in shape or dtype,
 * an x without an axis), TC_ERR_HANDLE (a result that the body did not set), TC_ERR_MEMORY, and
 * what the body gives up with. */
TC_API tc_status tc_scan_at(tc_tensors init, tc_tensors xs, int64_t length, bool reverse,
                            tc_scan_body body, void *user, tc_tensor *last, tc_tensor *ys, int n_ys,
                            tc_site here);
#define tc_scan(...) tc_scan_at(__VA_ARGS__, TC_HERE)

/* Repeats a body as long as a test says so, of which the steps are not known beforehand:
 *
 *     tc_while(init, most, test, body, user, last)
 *
 * carry = init; while test(carry), but no more than `most` times (0: any number), carry =
 * body(carry); last[j] is carry j in the end. Both functions are called while the loop is built,
 * the test twice; they make a bool of shape [], and the next carries, of the shapes and dtypes that
 * the carries have. A step that is not to be done is not. There is no gradient
 * (TC_ERR_UNSUPPORTED); tc_jvp goes through the steps that are done, and under tc_vmap the loop
 * goes on while any example does, and leaves the others as they are. A loop of little work is one
 * launch on a CPU, its scalars in registers. On a device the host looks at
 * the test after every step; in later runs with arrays at the same places a CUDA device does itself
 * (drivers from 12.4 on, of a loop that is in no other and has none). A run that does not end is
 * cancelled by tc_call_cancel or options.cancel. Errors as of tc_scan. */
typedef tc_status (*tc_while_test)(void *user, const tc_tensor *carry, tc_tensor *go);
typedef tc_status (*tc_while_body)(void *user, const tc_tensor *carry, tc_tensor *next);
TC_API tc_status tc_while_at(tc_tensors init, int64_t most, tc_while_test test, tc_while_body body,
                             void *user, tc_tensor *last, tc_site here);
#define tc_while(...) tc_while_at(__VA_ARGS__, TC_HERE)

/* One of two branches, by a bool of shape [] that a run computes:
 *
 *     tc_cond(condition, operands, then, otherwise, user, results, n)
 *
 * Both functions make the n results, alike in shapes and dtypes, of the operands. What a branch
 * computes of its operands is computed only where it is taken; what it computes of other tensors
 * alone is computed either way. tc_grad goes back through the branch that was taken. Under
 * tc_vmap, where examples differ in the condition, both branches are computed. Errors as of
 * tc_scan. */
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
