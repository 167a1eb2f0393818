/* api/optim.h - optimizers: the effects of a training step, made of ordinary ops. */
#ifndef TC_API_OPTIM_H
#define TC_API_OPTIM_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimizers ----
 * tc_adam(params, grads, n, rate, &options, effects, &n_effects) makes the nodes of a step of n
 * parameters of float dtypes, given their gradients (tensors of their shapes, as tc_grad makes
 * them), and parameters of its own for what it remembers. effects[0] to effects[*n_effects - 1]
 * are outputs for tc_compile_fn; there is room for TC_EFFECTS(n). rate is a number or a 0-d tensor:
 * as an input of the program it is whatever schedule the caller likes. f16 and bf16 parameters are
 * updated in f32, in a copy that is remembered, and rounded from there. What is remembered is named
 * after its parameter where that has a name ("fc1.weight.momentum"), so tc_save has it too; it is
 * made anew by each of these calls. options NULL or a field zero: its default.
 * TC_ERR_ARGUMENT: NULL, or one is no parameter; TC_ERR_DTYPE; TC_ERR_SHAPE; the error of a
 * gradient; *n_effects is then 0, and tc_error of the first parameter's context tells. */
#define TC_EFFECTS(n) (4 * (n) + 2)

/* w -= rate * step; step: g, or, with momentum, m = momentum * m + g, or, of Nesterov, g + momentum
 * * m; where weight_decay * w is added to g first. */
typedef struct tc_sgd_options {
    double momentum, weight_decay;
    bool nesterov;
} tc_sgd_options;
TC_API tc_status tc_sgd_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                           const tc_sgd_options *options, tc_tensor *effects, int *n_effects,
                           tc_site here);
#define tc_sgd(params, grads, n, rate, options, effects, n_effects)                                \
    tc_sgd_at((params), (grads), (n), TC_ARG(rate), (options), (effects), (n_effects), TC_HERE)

/* m and v, the running means of g and of its square, by beta1 and beta2 and corrected for their
 * beginning at 0: w -= rate * m / (sqrt(v) + eps). weight_decay * w is added to g first; tc_adamw
 * takes rate * weight_decay * w off w instead. tc_lion: w -= rate * (sign(beta1 * m + (1 - beta1) *
 * g) + weight_decay * w), then m = beta2 * m + (1 - beta2) * g. */
typedef struct tc_adam_options {
    double beta1, beta2, eps, weight_decay; /* 0.9, 0.999 (lion: 0.99), 1e-8, 0 */
} tc_adam_options;
TC_API tc_status tc_adam_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                            const tc_adam_options *options, tc_tensor *effects, int *n_effects,
                            tc_site here);
#define tc_adam(params, grads, n, rate, options, effects, n_effects)                               \
    tc_adam_at((params), (grads), (n), TC_ARG(rate), (options), (effects), (n_effects), TC_HERE)
TC_API tc_status tc_adamw_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                             const tc_adam_options *options, tc_tensor *effects, int *n_effects,
                             tc_site here);
#define tc_adamw(params, grads, n, rate, options, effects, n_effects)                              \
    tc_adamw_at((params), (grads), (n), TC_ARG(rate), (options), (effects), (n_effects), TC_HERE)
TC_API tc_status tc_lion_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                            const tc_adam_options *options, tc_tensor *effects, int *n_effects,
                            tc_site here);
#define tc_lion(params, grads, n, rate, options, effects, n_effects)                               \
    tc_lion_at((params), (grads), (n), TC_ARG(rate), (options), (effects), (n_effects), TC_HERE)

/* tc_clip_grads(grads, n, most, clipped): the gradients, all times most / norm where the norm of
 * all of them together is above `most`, a number or a 0-d tensor; clipped may be grads. Returns the
 * norm, f32. */
TC_API tc_tensor tc_clip_grads_at(const tc_tensor *grads, int n, tc_arg most, tc_tensor *clipped,
                                  tc_site here);
#define tc_clip_grads(grads, n, most, clipped)                                                     \
    tc_clip_grads_at((grads), (n), TC_ARG(most), (clipped), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
