/* api/optim.h - declares optimizers of training: each call builds the updates of parameters and
 * optimizer state that one training step makes. */
#ifndef TC_API_OPTIM_H
#define TC_API_OPTIM_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimizers ----
 * tc_adam(params, grads, n, rate, &options, effects, &n_effects) builds one update step of n
 * parameters of float dtypes from their gradients (tensors of the same shapes, as from tc_grad),
 * and makes parameters for the optimizer state. effects[0] to effects[*n_effects - 1] are outputs
 * for tc_compile_fn; the array has room for TC_EFFECTS(n). rate is a number or a 0-d tensor: as an
 * input of the program it allows any learning-rate schedule. f16 and bf16 parameters are updated in
 * an f32 master copy, which is part of the state, and rounded from it; their gradients may be f32.
 * State is named after its parameter if that has a name ("fc1.weight.momentum"), so tc_save
 * includes it; each of these calls makes new state. options NULL or a field zero: the default.
 * TC_ERR_ARGUMENT: NULL, or one is no parameter; TC_ERR_DTYPE; TC_ERR_SHAPE; the error of a
 * gradient; *n_effects is then 0, and tc_error of the first parameter's context has the message. */
#define TC_EFFECTS(n) (4 * (n) + 4)

/* SGD: w -= rate * step; step: g, or, with momentum, m = momentum * m + g, or, with nesterov, g +
 * momentum * m; weight_decay * w is added to g first. */
typedef struct tc_sgd_options {
    double momentum, weight_decay;
    bool nesterov;
} tc_sgd_options;
TC_API tc_status tc_sgd_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                           const tc_sgd_options *options, tc_tensor *effects, int *n_effects,
                           tc_site here);
#define tc_sgd(params, grads, n, rate, options, effects, n_effects)                                \
    tc_sgd_at((params), (grads), (n), TC_ARG(rate), (options), (effects), (n_effects), TC_HERE)

/* Adam: m and v are the exponential moving averages of g and of its square, by beta1 and beta2,
 * with bias correction: w -= rate * m / (sqrt(v) + eps) (Kingma and Ba, arXiv 1412.6980).
 * weight_decay * w is added to g first; tc_adamw subtracts rate * weight_decay * w from w instead
 * (Loshchilov and Hutter, arXiv 1711.05101). tc_lion: w -= rate * (sign(beta1 * m + (1 - beta1) *
 * g) + weight_decay * w), then m = beta2 * m + (1 - beta2) * g (Chen et al., arXiv 2302.06675). */
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

/* Muon, for matrices [rows, columns]; other shapes are TC_ERR_SHAPE (use tc_adamw): w -= rate *
 * sqrt(max(1, rows / columns)) * step, where step is the Nesterov momentum, (1 - momentum) * g +
 * momentum * m with m = momentum * m + (1 - momentum) * g, or m itself (heavy_ball), with its
 * singular values brought near 1 by five Newton-Schulz iterations, in f32 (f64 for f64); rate *
 * weight_decay * w is subtracted from w first (Jordan et al., "Muon: an optimizer for hidden
 * layers", 2024). */
typedef struct tc_muon_options {
    double momentum, weight_decay; /* 0.95, 0 */
    bool heavy_ball;               /* m itself, without Nesterov's look-ahead */
} tc_muon_options;
TC_API tc_status tc_muon_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                            const tc_muon_options *options, tc_tensor *effects, int *n_effects,
                            tc_site here);
#define tc_muon(params, grads, n, rate, options, effects, n_effects)                               \
    tc_muon_at((params), (grads), (n), TC_ARG(rate), (options), (effects), (n_effects), TC_HERE)

/* tc_clip_grads(grads, n, most, clipped): scales all gradients by most / norm if their joint 2-norm
 * is above `most`, a number or a 0-d tensor; each keeps its dtype; clipped may be grads. Returns
 * the norm, 0-d and f32, or f64 if all gradients are; or a poisoned tensor, as are all of clipped
 * then. It is computed in f64 if one gradient is. If it is NaN, all of clipped are; in f32 it
 * overflows from elements of 1.8e19 on, and clipped is 0 then, as in PyTorch 2.15. */
TC_API tc_tensor tc_clip_grads_at(const tc_tensor *grads, int n, tc_arg most, tc_tensor *clipped,
                                  tc_site here);
#define tc_clip_grads(grads, n, most, clipped)                                                     \
    tc_clip_grads_at((grads), (n), TC_ARG(most), (clipped), TC_HERE)

/* ---- loss scaling: f16 gradients underflow below 2^-24 and overflow from 2^16 on ----
 *     tc_tensor scale = tc_param_from(tc_full(ctx, 65536, TC_F32));
 *     tc_grad(tc_mul(loss, scale), params, n, grads);
 *     tc_tensor finite = tc_unscale_grads(grads, n, scale, grads);
 *     tc_adamw(params, grads, n, rate, NULL, effects, &n_effects);
 *     tc_scale_effects(scale, finite, 2000, effects, &n_effects); */
/* Divides the gradients by scale, a 0-d tensor, those of f16 and bf16 in f32; unscaled may be
 * grads. Returns whether all their elements are finite: bool, 0-d. */
TC_API tc_tensor tc_unscale_grads_at(const tc_tensor *grads, int n, tc_tensor scale,
                                     tc_tensor *unscaled, tc_site here);
#define tc_unscale_grads(grads, n, scale, unscaled)                                                \
    tc_unscale_grads_at((grads), (n), (scale), (unscaled), TC_HERE)
/* Dynamic loss scaling: if finite is false, the effects assign nothing, and scale, a parameter, is
 * halved; after `interval` steps without overflow it is doubled. Appends two effects: TC_EFFECTS
 * has room for them. TC_ERR_ARGUMENT: NULL, interval < 1, or one is no effect; the errors of
 * tc_assign; the effects are then unchanged, and tc_error of scale's context has the message. */
TC_API tc_status tc_scale_effects_at(tc_tensor scale, tc_tensor finite, int64_t interval,
                                     tc_tensor *effects, int *n_effects, tc_site here);
#define tc_scale_effects(scale, finite, interval, effects, n_effects)                              \
    tc_scale_effects_at((scale), (finite), (interval), (effects), (n_effects), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
