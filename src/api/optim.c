/* api/optim.c - optimizers of training (SGD, Adam, AdamW, Lion, Muon), gradient clipping, and
 * dynamic loss scaling.
 *
 * In: parameters and their gradients. Out: effects (assignments), and parameters for the
 * optimizer's state.
 *
 * An optimizer is a rule for one parameter, written in public calls. The common part (arithmetic in
 * f32, f32 copies of narrower parameters, names, lists) is implemented once around it. */
#include "optim.h"

#include <math.h>
#include <string.h>

#include "../base/alloc.h"
#include "internal.h"

#define TCI_T(x) tci_arg_tensor(x)
#define TCI_N(x) tci_arg_float(x)

typedef struct tci_optim {
    tc_site here;
    tc_arg rate;
    double momentum, beta1, beta2, eps, decay;
    bool nesterov, decoupled;
    bool of_matrices;         /* parameters of other ranks are refused */
    tc_tensor power1, power2; /* beta1 and beta2 to the number of this step; tc_adam */
    tc_tensor *effects;
    int n;
} tci_optim;

/* The new value of w, given its gradient, both in the dtype of the arithmetic. */
typedef tc_tensor (*tci_optim_rule)(tci_optim *o, tc_tensor param, tc_tensor w, tc_tensor g);

static tc_tensor tci_optim_add(const tci_optim *o, tc_tensor a, tc_tensor b)
{
    return tc_add_at(TCI_T(a), TCI_T(b), o->here);
}

static tc_tensor tci_optim_scale(const tci_optim *o, tc_tensor a, double b)
{
    return tc_mul_at(TCI_T(a), TCI_N(b), o->here);
}

/* a * x + (1 - a) * y */
static tc_tensor tci_optim_mean(const tci_optim *o, double a, tc_tensor x, tc_tensor y)
{
    return tci_optim_add(o, tci_optim_scale(o, x, a), tci_optim_scale(o, y, 1 - a));
}

/* w - rate * step, in the dtype of the step whatever the rate's is */
static tc_tensor tci_optim_move(const tci_optim *o, tc_tensor w, tc_tensor step)
{
    tc_arg rate = o->rate;
    if (!rate.kind) {
        rate.tensor = tc_cast_at(rate.tensor, tc_dtype_of(step), o->here);
    }
    return tc_sub_at(TCI_T(w), TCI_T(tc_mul_at(TCI_T(step), rate, o->here)), o->here);
}

static void tci_optim_set(tci_optim *o, tc_tensor param, tc_tensor value)
{
    o->effects[o->n++] = tc_assign_at(param, value, o->here);
}

/* Optimizer state is named after its parameter, with a suffix. */
static tc_tensor tci_optim_named(const tci_optim *o, tc_tensor state, tc_tensor param,
                                 const char *end)
{
    const char *of = tc_name_of(param);
    tci_str name = {0};
    if (!*of || tc_status_of(state)) {
        return state;
    }
    tci_str_printf(&name, "%s.%s", of, end);
    if (name.failed) {
        tci_frame f = tci_frame_begin("tc_named", o->here);
        tci_frame_use(&f, state);
        tci_frame_fail(&f, TC_ERR_MEMORY, "out of memory for the name of an optimizer's state");
        state = tci_frame_end(&f, NULL);
    } else {
        state = tc_named_at(state, name.text, o->here);
    }
    tci_str_free(&name);
    return state;
}

static tc_tensor tci_optim_zeros(const tci_optim *o, tc_tensor like, tc_tensor param,
                                 const char *end)
{
    tc_tensor zeros = tci_state_zeros(like, "an optimizer", o->here);
    return tci_optim_named(o, zeros, param, end);
}

/* ---- the rules ---- */

static tc_tensor tci_optim_sgd(tci_optim *o, tc_tensor param, tc_tensor w, tc_tensor g)
{
    if (o->momentum == 0) {
        return tci_optim_move(o, w, g);
    }
    tc_tensor m = tci_optim_zeros(o, w, param, "momentum");
    tc_tensor next = tci_optim_add(o, tci_optim_scale(o, m, o->momentum), g);
    tci_optim_set(o, m, next);
    tc_tensor ahead = tci_optim_add(o, g, tci_optim_scale(o, next, o->momentum));
    return tci_optim_move(o, w, o->nesterov ? ahead : next);
}

/* x / (1 - power) */
static tc_tensor tci_optim_correct(const tci_optim *o, tc_tensor x, tc_tensor power)
{
    tc_tensor rest = tc_sub_at(TCI_N(1), TCI_T(power), o->here);
    return tc_div_at(TCI_T(x), TCI_T(tc_cast_at(rest, tc_dtype_of(x), o->here)), o->here);
}

static tc_tensor tci_optim_adam(tci_optim *o, tc_tensor param, tc_tensor w, tc_tensor g)
{
    tc_tensor m = tci_optim_zeros(o, w, param, "mean"), v = tci_optim_zeros(o, w, param, "square");
    tc_tensor mean = tci_optim_mean(o, o->beta1, m, g);
    tc_tensor square = tci_optim_mean(o, o->beta2, v, tc_square_at(TCI_T(g), o->here));
    tci_optim_set(o, m, mean);
    tci_optim_set(o, v, square);
    tc_tensor first = tci_optim_correct(o, mean, o->power1);
    tc_tensor second = tci_optim_correct(o, square, o->power2);
    tc_tensor root = tc_add_at(TCI_T(tc_sqrt_at(TCI_T(second), o->here)), TCI_N(o->eps), o->here);
    tc_tensor step = tc_div_at(TCI_T(first), TCI_T(root), o->here);
    return tci_optim_move(o, w, step);
}

static tc_tensor tci_optim_lion(tci_optim *o, tc_tensor param, tc_tensor w, tc_tensor g)
{
    tc_tensor m = tci_optim_zeros(o, w, param, "mean");
    tc_tensor step = tc_sign_at(TCI_T(tci_optim_mean(o, o->beta1, m, g)), o->here);
    tci_optim_set(o, m, tci_optim_mean(o, o->beta2, m, g));
    return tci_optim_move(o, w, step);
}

/* A step of Newton and Schulz on x, rows <= columns: (a + b x x' + c (x x')^2) x, whose odd
 * polynomial takes the singular values towards 1. */
static tc_tensor tci_optim_schulz(const tci_optim *o, tc_tensor x)
{
    tc_tensor gram = tc_matmul_at(x, tc_transpose_at(x, 0, 1, o->here), o->here);
    tc_tensor second = tci_optim_scale(o, tc_matmul_at(gram, gram, o->here), 2.0315);
    tc_tensor factor = tci_optim_add(o, tci_optim_scale(o, gram, -4.7750), second);
    return tci_optim_add(o, tci_optim_scale(o, x, 3.4445), tc_matmul_at(factor, x, o->here));
}

static tc_tensor tci_optim_orthogonal(const tci_optim *o, tc_tensor u, bool is_tall)
{
    tc_tensor x = is_tall ? tc_transpose_at(u, 0, 1, o->here) : u;
    tc_tensor norm = tc_norm_at(x, 2, TC_ALL, false, o->here);
    tc_tensor least = tc_maximum_at(TCI_T(norm), TCI_N(1e-7), o->here);
    x = tc_div_at(TCI_T(x), TCI_T(least), o->here);
    for (int i = 0; i < 5; i++) {
        x = tci_optim_schulz(o, x);
    }
    return is_tall ? tc_transpose_at(x, 0, 1, o->here) : x;
}

static tc_tensor tci_optim_muon(tci_optim *o, tc_tensor param, tc_tensor w, tc_tensor g)
{
    double tall = (double)tc_size(w, 0) / (double)tc_size(w, 1); /* of memory: sizes are known */
    tc_tensor m = tci_optim_zeros(o, w, param, "momentum");
    tc_tensor next = tci_optim_mean(o, o->momentum, m, g);
    tci_optim_set(o, m, next);
    tc_tensor u = o->nesterov ? tci_optim_mean(o, o->momentum, next, g) : next;
    tc_tensor step = tci_optim_orthogonal(o, u, tall > 1);
    return tci_optim_move(o, w, tall > 1 ? tci_optim_scale(o, step, sqrt(tall)) : step);
}

/* ---- what all have in common ---- */

static bool tci_optim_is_narrow(int dtype)
{
    return dtype == TC_F16 || dtype == TC_BF16;
}

/* The effects on one parameter: arithmetic in f32 of what is narrower, in a copy that is
 * remembered. */
static void tci_optim_one(tci_optim *o, tci_optim_rule rule, tc_tensor param, tc_tensor grad)
{
    tc_dtype dtype = tc_dtype_of(param);
    bool narrow = tci_optim_is_narrow(dtype);
    tc_dtype math = narrow ? TC_F32 : dtype;
    tc_tensor w = param, g = tc_cast_at(grad, math, o->here);
    if (narrow) {
        tc_tensor copy = tc_param_from_at(tc_cast_at(param, math, o->here), o->here);
        w = tci_optim_named(o, copy, param, "f32");
    }
    if (o->decay != 0 && !o->decoupled) {
        g = tci_optim_add(o, g, tci_optim_scale(o, w, o->decay));
    }
    tc_tensor from = w;
    if (o->decay != 0 && o->decoupled) {
        from = tci_optim_move(o, w, tci_optim_scale(o, w, o->decay));
    }
    tc_tensor next = rule(o, param, from, g);
    if (narrow) {
        tci_optim_set(o, w, next);
    }
    tci_optim_set(o, param, tc_cast_at(next, dtype, o->here));
}

static bool tci_optim_check(const tci_optim *o, tci_frame *f, const tc_tensor *params,
                            const tc_tensor *grads, int n)
{
    for (int i = 0; i < n && !f->failed; i++) {
        tci_frame_use(f, params[i]);
        const tci_node *p = tci_frame_node(f, params[i], "a parameter");
        const tci_node *g = tci_frame_node(f, grads[i], "a gradient");
        if (!p || !g) {
            return false;
        }
        if (p->op != TCI_OP_DATA || !p->storage->param) {
            tci_frame_fail(f, TC_ERR_ARGUMENT, "number %d is no parameter (tc_param)", i);
        } else if (!tci_dtype_is_float((tc_dtype)p->dtype) ||
                   (g->dtype != p->dtype &&
                    !(tci_optim_is_narrow(p->dtype) && g->dtype == TC_F32))) {
            tci_frame_fail(f, TC_ERR_DTYPE,
                           "parameter %d is %s and its gradient %s: expected one "
                           "float dtype",
                           i, tc_dtype_name((tc_dtype)p->dtype), tc_dtype_name((tc_dtype)g->dtype));
        } else if (!tci_build_same_shape(p->rank, p->shape, g->rank, g->shape)) {
            tci_frame_fail(f, TC_ERR_SHAPE, "parameter %d is %s and its gradient %s", i,
                           TCI_SHAPE_TEXT(p), TCI_SHAPE_TEXT(g));
        } else if (o->of_matrices && p->rank != 2) {
            tci_frame_fail(f, TC_ERR_SHAPE, "parameter %d is %s: expected a matrix", i,
                           TCI_SHAPE_TEXT(p));
        }
    }
    return !f->failed;
}

/* beta to the number of this step: a 0-d parameter that counts on itself, in f64, as 1 - beta has
 * few digits left. */
static tc_tensor tci_optim_power(tci_optim *o, tc_tensor param, double beta, const char *end)
{
    tc_tensor one = tc_copy_in_at(param.ctx, &(double){1}, TC_F64, 0, NULL, NULL, o->here);
    tc_tensor power = tci_optim_named(o, tc_param_from_at(one, o->here), param, end);
    tc_tensor next = tci_optim_scale(o, power, beta);
    tci_optim_set(o, power, next);
    return next;
}

/* All effects of one call, or none and its status. */
static tc_status tci_optim_all(tci_optim *o, const char *op, tci_optim_rule rule,
                               const tc_tensor *params, const tc_tensor *grads, int n,
                               int *n_effects)
{
    tci_frame f = tci_frame_begin(op, o->here);
    if (n_effects) {
        *n_effects = 0;
    }
    if (n < 0 || !o->effects || !n_effects || (n && (!params || !grads))) {
        tci_frame_leave(&f);
        return TC_ERR_ARGUMENT;
    }
    tc_status status = tci_optim_check(o, &f, params, grads, n) ? TC_OK : tc_status_of(f.bad);
    if (!status && n && rule == tci_optim_adam) {
        o->power1 = tci_optim_power(o, params[0], o->beta1, "beta1");
        o->power2 = tci_optim_power(o, params[0], o->beta2, "beta2");
    }
    for (int i = 0; i < n && !status; i++) {
        tci_optim_one(o, rule, params[i], grads[i]);
    }
    for (int i = 0; i < o->n && !status; i++) {
        status = tc_status_of(o->effects[i]);
    }
    *n_effects = status ? 0 : o->n;
    (void)tci_frame_status(&f);
    return status;
}

static double tci_optim_or(double given, double otherwise)
{
    return given != 0 ? given : otherwise;
}

TC_API tc_status tc_sgd_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                           const tc_sgd_options *options, tc_tensor *effects, int *n_effects,
                           tc_site here)
{
    tc_sgd_options s = options ? *options : (tc_sgd_options){0};
    tci_optim o = {.here = here,
                   .rate = rate,
                   .momentum = s.momentum,
                   .decay = s.weight_decay,
                   .nesterov = s.nesterov,
                   .effects = effects};
    return tci_optim_all(&o, "tc_sgd", tci_optim_sgd, params, grads, n, n_effects);
}

static tci_optim tci_optim_of(const tc_adam_options *options, double beta2, tc_arg rate,
                              tc_tensor *effects, tc_site here)
{
    tc_adam_options s = options ? *options : (tc_adam_options){0};
    tci_optim o = {.here = here,
                   .rate = rate,
                   .beta1 = tci_optim_or(s.beta1, 0.9),
                   .beta2 = tci_optim_or(s.beta2, beta2),
                   .eps = tci_optim_or(s.eps, 1e-8),
                   .decay = s.weight_decay,
                   .effects = effects};
    return o;
}

TC_API tc_status tc_adam_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                            const tc_adam_options *options, tc_tensor *effects, int *n_effects,
                            tc_site here)
{
    tci_optim o = tci_optim_of(options, 0.999, rate, effects, here);
    return tci_optim_all(&o, "tc_adam", tci_optim_adam, params, grads, n, n_effects);
}

TC_API tc_status tc_adamw_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                             const tc_adam_options *options, tc_tensor *effects, int *n_effects,
                             tc_site here)
{
    tci_optim o = tci_optim_of(options, 0.999, rate, effects, here);
    o.decoupled = true;
    return tci_optim_all(&o, "tc_adamw", tci_optim_adam, params, grads, n, n_effects);
}

TC_API tc_status tc_lion_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                            const tc_adam_options *options, tc_tensor *effects, int *n_effects,
                            tc_site here)
{
    tci_optim o = tci_optim_of(options, 0.99, rate, effects, here);
    o.decoupled = true;
    return tci_optim_all(&o, "tc_lion", tci_optim_lion, params, grads, n, n_effects);
}

TC_API tc_status tc_muon_at(const tc_tensor *params, const tc_tensor *grads, int n, tc_arg rate,
                            const tc_muon_options *options, tc_tensor *effects, int *n_effects,
                            tc_site here)
{
    tc_muon_options s = options ? *options : (tc_muon_options){0};
    tci_optim o = {.here = here,
                   .rate = rate,
                   .momentum = tci_optim_or(s.momentum, 0.95),
                   .decay = s.weight_decay,
                   .nesterov = !s.heavy_ball,
                   .decoupled = true,
                   .of_matrices = true,
                   .effects = effects};
    return tci_optim_all(&o, "tc_muon", tci_optim_muon, params, grads, n, n_effects);
}

TC_API tc_tensor tc_clip_grads_at(const tc_tensor *grads, int n, tc_arg most, tc_tensor *clipped,
                                  tc_site here)
{
    tc_tensor sum = {NULL, TCI_NULL_EMPTY, 0};
    if (n < 1 || !grads || !clipped) {
        return sum;
    }
    int n_wide = 0; /* with one of f64 the norm is computed in f64 */
    for (int i = 0; i < n; i++) {
        n_wide += tc_dtype_of(grads[i]) == TC_F64;
    }
    tc_dtype norm_dtype = n_wide ? TC_F64 : TC_F32;
    for (int i = 0; i < n; i++) {
        tc_tensor wide = tc_cast_at(grads[i], norm_dtype, here);
        tc_tensor part = tc_sum_at(tc_square_at(TCI_T(wide), here), TC_ALL, false, here);
        sum = i ? tc_add_at(TCI_T(sum), TCI_T(part), here) : part;
    }
    tc_tensor norm = tc_sqrt_at(TCI_T(sum), here);
    tc_tensor within = tc_le_at(TCI_T(norm), most, here); /* no NaN is */
    tc_tensor ratio = tc_div_at(most, TCI_T(norm), here);
    tc_tensor factor = tc_where_at(TCI_T(within), TCI_N(1), TCI_T(ratio), here);
    for (int i = 0; i < n; i++) {
        tc_dtype dtype = tc_dtype_of(grads[i]);
        tc_dtype wide = dtype == TC_F64 ? TC_F64 : TC_F32;
        tc_tensor x = tc_cast_at(grads[i], wide, here);
        tc_tensor by = tc_cast_at(factor, wide, here);
        clipped[i] = tc_cast_at(tc_mul_at(TCI_T(x), TCI_T(by), here), dtype, here);
    }
    return n_wide == n ? norm : tc_cast_at(norm, TC_F32, here);
}

/* ---- loss scaling ---- */

TC_API tc_tensor tc_unscale_grads_at(const tc_tensor *grads, int n, tc_tensor scale,
                                     tc_tensor *unscaled, tc_site here)
{
    tc_tensor finite = {NULL, TCI_NULL_EMPTY, 0};
    if (n < 1 || !grads || !unscaled) {
        return finite;
    }
    for (int i = 0; i < n; i++) {
        tc_dtype dtype = tc_dtype_of(grads[i]);
        tc_tensor wide = tc_cast_at(grads[i], tci_optim_is_narrow(dtype) ? TC_F32 : dtype, here);
        unscaled[i] = tc_div_at(TCI_T(wide), TCI_T(scale), here);
        tc_tensor each = tc_isfinite_at(TCI_T(unscaled[i]), here);
        tc_tensor all = tc_all_at(each, TC_ALL, false, here);
        finite = i ? tc_logical_and_at(TCI_T(finite), TCI_T(all), here) : all;
    }
    return finite;
}

/* The same effect where `finite`, else none. */
static tc_tensor tci_optim_guard(tci_frame *f, tc_tensor effect, tc_tensor finite, tc_site here)
{
    const tci_node *n = tci_frame_node(f, effect, "an effect");
    if (!n || n->op != TCI_OP_ASSIGN) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "given a tensor, expected an effect (tc_assign)");
        return effect;
    }
    tc_tensor param = tci_handle_make(f->ctx, n->in[0], here);
    tc_tensor value = tci_handle_make(f->ctx, n->in[1], here);
    tc_tensor kept = tc_where_at(TCI_T(finite), TCI_T(value), TCI_T(param), here);
    return tc_assign_at(param, kept, here);
}

/* Updates the scale, and the number of steps since it changed. */
static void tci_optim_rescale(tc_tensor scale, tc_tensor finite, int64_t interval,
                              tc_tensor effects[2], tc_site here)
{
    tci_optim o = {.here = here, .effects = effects};
    tc_tensor none = tc_copy_in_at(scale.ctx, &(int64_t){0}, TC_I64, 0, NULL, NULL, here);
    tc_tensor count = tci_optim_named(&o, tc_param_from_at(none, here), scale, "count");
    tc_tensor next = tc_add_at(TCI_T(count), tci_arg_int(1), here);
    tc_tensor full = tc_ge_at(TCI_T(next), tci_arg_int(interval), here);
    tc_tensor grown = tc_where_at(TCI_T(full), TCI_T(tci_optim_scale(&o, scale, 2)), TCI_T(scale),
                                  here);
    tc_tensor half = tci_optim_scale(&o, scale, 0.5);
    tc_tensor goes_on = tc_gt_at(TCI_T(finite), TCI_T(full), here);
    tci_optim_set(&o, scale, tc_where_at(TCI_T(finite), TCI_T(grown), TCI_T(half), here));
    tci_optim_set(&o, count, tc_where_at(TCI_T(goes_on), TCI_T(next), tci_arg_int(0), here));
}

TC_API tc_status tc_scale_effects_at(tc_tensor scale, tc_tensor finite, int64_t interval,
                                     tc_tensor *effects, int *n_effects, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_scale_effects", here);
    tci_frame_use(&f, scale);
    if (!effects || !n_effects || *n_effects < 0 || interval < 1) {
        tci_frame_leave(&f);
        return TC_ERR_ARGUMENT;
    }
    tc_tensor last[2] = {scale, scale};
    tci_optim_rescale(scale, finite, interval, last, here);
    tc_status status = tc_status_of(last[0]) ? tc_status_of(last[0]) : tc_status_of(last[1]);
    int n = *n_effects;
    tc_tensor *guarded = status ? NULL : tci_heap_get(sizeof(*guarded) * ((size_t)n + 1));
    for (int i = 0; i < n && !status && guarded; i++) {
        guarded[i] = tci_optim_guard(&f, effects[i], finite, here);
        status = f.failed ? tc_status_of(f.bad) : tc_status_of(guarded[i]);
    }
    if (!status && !guarded) {
        status = TC_ERR_MEMORY;
    }
    if (!status) {
        memcpy(effects, guarded, sizeof(*guarded) * (size_t)n);
        memcpy(effects + n, last, sizeof(last));
        *n_effects = n + 2;
    }
    tci_heap_free(guarded);
    (void)tci_frame_status(&f);
    return status;
}

#undef TCI_T
#undef TCI_N
