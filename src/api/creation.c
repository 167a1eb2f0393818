/* api/creation.c - creation ops: constants, ranges, triangle indices, and random numbers from a
 * key.
 *
 * In: a context or a key, numbers, dtypes and sizes, the user's call site. Out: a handle to the
 * node, or a poisoned one. */
#include "operand.h"
#include "ops.h"

#include <math.h>

/* ---- numbers and ramps ---- */

static tc_tensor tci_ops_triangle(const char *name, tc_ctx *ctx, int64_t rows, int64_t columns,
                                  int64_t offset, bool lower, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, name, here);
    return tci_frame_end(&f, f.failed ? NULL
                                      : tci_build_triangle_indices(&f.ctx->graph, rows, columns,
                                                                   offset, lower));
}

TC_API tc_tensor tc_tril_indices_at(tc_ctx *ctx, int64_t rows, int64_t columns, int64_t offset,
                                    tc_site here)
{
    return tci_ops_triangle("tc_tril_indices", ctx, rows, columns, offset, true, here);
}

TC_API tc_tensor tc_triu_indices_at(tc_ctx *ctx, int64_t rows, int64_t columns, int64_t offset,
                                    tc_site here)
{
    return tci_ops_triangle("tc_triu_indices", ctx, rows, columns, offset, false, here);
}

/* base 0: evenly spaced numbers themselves. */
static tc_tensor tci_ops_spaced(const char *name, tc_ctx *ctx, const tc_arg *ends, int64_t steps,
                                double base, tc_dtype dtype, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, name, here);
    if (!f.failed && (!tci_dtype_is_valid(dtype) || dtype == TC_BOOL)) {
        tci_frame_fail(&f, TC_ERR_DTYPE, "expected an integer or float dtype");
    }
    tci_node *nodes[2];
    for (int i = 0; i < 2; i++) {
        nodes[i] = tci_ops_either(&f, &ends[i], TC_F64, i ? "the last" : "the first");
    }
    return tci_frame_end(&f, f.failed ? NULL
                                      : tci_build_linspace(&f.ctx->graph, nodes[0], nodes[1], steps,
                                                           base, dtype));
}

TC_API tc_tensor tc_linspace_at(tc_ctx *ctx, tc_arg start, tc_arg stop, int64_t steps,
                                tc_dtype dtype, tc_site here)
{
    const tc_arg ends[2] = {start, stop};
    return tci_ops_spaced("tc_linspace", ctx, ends, steps, 0, dtype, here);
}

TC_API tc_tensor tc_logspace_at(tc_ctx *ctx, tc_arg start, tc_arg stop, int64_t steps, double base,
                                tc_dtype dtype, tc_site here)
{
    const tc_arg ends[2] = {start, stop};
    return tci_ops_spaced("tc_logspace", ctx, ends, steps, base, dtype, here);
}

/* after: what the dtype stands behind, for messages. */
static tc_tensor tci_ops_full(const char *name, const char *after, tc_ctx *ctx, tc_arg value, int n,
                              const int64_t *dtype_and_sizes, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, name, here);
    if (!tci_frame_dtype(&f, after, dtype_and_sizes, n)) {
        return tci_frame_end(&f, NULL);
    }
    tc_dtype dtype = (tc_dtype)dtype_and_sizes[0];
    tci_node *fill = tci_ops_either(&f, &value, dtype, "the value");
    if (fill && fill->rank) {
        tci_frame_fail(&f, TC_ERR_SHAPE, "the value has rank %d: expected a number or a 0-d tensor",
                       fill->rank);
    }
    tci_graph *g = &f.ctx->graph;
    const tci_dim *sizes = tci_dim_list(dtype_and_sizes + 1);
    bool ok = fill && !f.failed && tci_build_check_shape(g, n - 1, sizes, dtype);
    tci_node *r = ok ? tci_build_cast(g, fill, dtype) : NULL;
    return tci_frame_end(&f, r ? tci_build_broadcast(g, r, n - 1, sizes) : NULL);
}

TC_API tc_tensor tc_full_at(tc_ctx *ctx, tc_arg value, int n, const int64_t *dtype_and_sizes,
                            tc_site here)
{
    return tci_ops_full("tc_full", "the value", ctx, value, n, dtype_and_sizes, here);
}

TC_API tc_tensor tc_zeros_at(tc_ctx *ctx, int n, const int64_t *dtype_and_sizes, tc_site here)
{
    return tci_ops_full("tc_zeros", "the context", ctx, tci_arg_int(0), n, dtype_and_sizes, here);
}

TC_API tc_tensor tc_ones_at(tc_ctx *ctx, int n, const int64_t *dtype_and_sizes, tc_site here)
{
    return tci_ops_full("tc_ones", "the context", ctx, tci_arg_int(1), n, dtype_and_sizes, here);
}

/* Number of elements start, start + step, ... before stop; -1: too many, or not finite. */
static tci_dim tci_ops_arange_count(const tc_arg *start, const tc_arg *stop, const tc_arg *step)
{
    bool whole = start->kind == TCI_OPS_INT && stop->kind == TCI_OPS_INT &&
                 step->kind == TCI_OPS_INT;
    if (tci_ops_is_symbol(start) || tci_ops_is_symbol(stop)) {
        tci_dim way = tci_dim_sub(stop->i, start->i);
        way = step->i > 0 ? way : tci_dim_neg(way);
        tci_dim steps = tci_dim_div(tci_dim_sub(way, 1), step->i > 0 ? step->i : -step->i);
        return tci_dim_max(tci_dim_add(steps, 1), 0);
    }
    if (whole) {
        bool up = step->i > 0 || tci_ops_is_huge(step);
        const tc_arg *low = up ? start : stop, *high = up ? stop : start;
        if (!tci_ops_is_less(low, high)) {
            return 0;
        }
        uint64_t way = (uint64_t)high->i - (uint64_t)low->i;
        uint64_t stride = up ? (uint64_t)step->i : 0 - (uint64_t)step->i;
        uint64_t n = (way - 1) / stride + 1;
        bool wrapped = tci_ops_is_huge(high) && low->f < 0 && way <= (uint64_t)high->i;
        return wrapped || n > INT64_MAX ? -1 : (int64_t)n;
    }
    double n = ceil((stop->f - start->f) / step->f);
    if (!(n < 4.0e18) || !isfinite(start->f) || !isfinite(step->f)) {
        return -1;
    }
    return n > 0 ? (int64_t)n : 0;
}

/* A ramp between symbolic sizes has whole steps of a known size. */
static bool tci_ops_arange_can(const tc_arg *start, const tc_arg *stop, const tc_arg *step)
{
    const int64_t limit = INT64_MAX / 8;
    bool whole = start->kind == TCI_OPS_INT && stop->kind == TCI_OPS_INT &&
                 step->kind == TCI_OPS_INT;
    if (!tci_ops_is_symbol(start) && !tci_ops_is_symbol(stop) && !tci_ops_is_symbol(step)) {
        return true;
    }
    return whole && step->i <= limit && step->i >= -limit;
}

/* In integers a ramp is one of whole numbers: start and step without their fractions, as in torch.
 * How many there are, those say that were given. */
static void tci_ops_arange_whole(tc_arg *a)
{
    if (a->kind == TCI_OPS_FLOAT && isfinite(a->f) && fabs(a->f) < 9.0e18) {
        *a = tci_arg_int((long long)a->f);
    }
}

/* A bool counts as the integer it is. */
static tc_arg tci_ops_arange_number(tc_arg a)
{
    return a.kind == TCI_OPS_BOOL ? tci_arg_int(a.i) : a;
}

static bool tci_ops_arange_check(tci_frame *f, const tc_arg *args)
{
    static const char *const names[] = {"start", "stop", "step"};
    for (int i = 0; i < 3; i++) {
        if (tci_ops_check_kind(f, &args[i], names[i]) && !args[i].kind) {
            tci_frame_fail(f, TC_ERR_ARGUMENT, "%s: given a tensor, expected a number", names[i]);
        }
    }
    return !f->failed;
}

TC_API tc_tensor tc_arange_at(tc_ctx *ctx, tc_arg start, tc_arg stop, tc_arg step, tc_dtype dtype,
                              tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_arange", here);
    start = tci_ops_arange_number(start);
    stop = tci_ops_arange_number(stop);
    step = tci_ops_arange_number(step);
    const tc_arg args[3] = {start, stop, step};
    if (!tci_ops_arange_check(&f, args)) {
        return tci_frame_end(&f, NULL);
    }
    if (!tci_dtype_is_valid(dtype) || dtype == TC_BOOL) {
        tci_frame_fail(&f, TC_ERR_DTYPE, "expected an integer or float dtype");
    } else if (step.f == 0.0) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the step is 0");
    } else if (!tci_ops_check_number(&f, &start) || !tci_ops_check_number(&f, &stop) ||
               !tci_ops_check_number(&f, &step)) {
        f.failed = true; /* and the reason is told */
    } else if (!tci_ops_arange_can(&start, &stop, &step)) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT,
                       "start or stop is a symbolic size: expected integers, and a step that is a "
                       "number");
    }
    tci_dim n = f.failed ? 0 : tci_ops_arange_count(&start, &stop, &step);
    if (n == -1) {
        tci_frame_fail(&f, TC_ERR_LIMIT, "from %g to %g by %g are too many elements", start.f,
                       stop.f, step.f);
    }
    if (f.failed) {
        return tci_frame_end(&f, NULL);
    }
    tci_graph *g = &f.ctx->graph;
    if (tci_dtype_is_int(dtype)) {
        tci_ops_arange_whole(&start);
        tci_ops_arange_whole(&step);
    }
    bool whole = start.kind == TCI_OPS_INT && step.kind == TCI_OPS_INT && tci_dtype_is_int(dtype);
    tc_dtype math = whole ? TC_I64 : TC_F64;
    if (whole) { /* sums wrap, so those of the same bits as signed numbers are the same */
        start = tci_arg_int(start.i);
        step = tci_arg_int(step.i);
    }
    tci_node *steps[2] = {tci_build_cast(g, tci_build_iota(g, n), math),
                          tci_ops_number(&f, &step, math, "step")};
    tci_node *sum[2] = {tci_build_ew(g, TCI_OP_MUL, steps),
                        tci_ops_number(&f, &start, math, "start")};
    return tci_frame_end(&f, tci_build_cast(g, tci_build_ew(g, TCI_OP_ADD, sum), dtype));
}

/* ---- random numbers ---- */

/* A draw of a dtype and sizes. */
typedef tci_node *tci_ops_draw(tci_graph *g, tci_node *key, tc_dtype dtype, int rank,
                               const tci_dim *shape);

static tc_tensor tci_ops_random(const char *name, tc_ctx *ctx, const tc_arg *key, int n,
                                const int64_t *list, tc_site here, tci_ops_draw *build)
{
    tci_frame f = tci_frame_on(ctx, name, here);
    bool ok = tci_frame_dtype(&f, "the key", list, n);
    tci_node *k = ok ? tci_ops_whole(&f, key, TC_U64, "the key") : NULL;
    const tci_dim *sizes = tci_dim_list(list + 1);
    return tci_frame_end(&f, k ? build(&f.ctx->graph, k, (tc_dtype)list[0], n - 1, sizes) : NULL);
}

TC_API tc_tensor tc_random_bits_at(tc_ctx *ctx, tc_arg key, int n, const int64_t *dtype_and_sizes,
                                   tc_site here)
{
    return tci_ops_random("tc_random_bits", ctx, &key, n, dtype_and_sizes, here,
                          tci_build_random_bits);
}

TC_API tc_tensor tc_rand_at(tc_ctx *ctx, tc_arg key, int n, const int64_t *dtype_and_sizes,
                            tc_site here)
{
    return tci_ops_random("tc_rand", ctx, &key, n, dtype_and_sizes, here, tci_build_rand);
}

TC_API tc_tensor tc_randn_at(tc_ctx *ctx, tc_arg key, int n, const int64_t *dtype_and_sizes,
                             tc_site here)
{
    return tci_ops_random("tc_randn", ctx, &key, n, dtype_and_sizes, here, tci_build_randn);
}

/* Checks that the bounds are in order, and that the dtype can hold them. */
static bool tci_ops_check_ends(tci_frame *f, const tc_arg *low, const tc_arg *high, tc_dtype dtype)
{
    bool numbers = low->kind && high->kind;
    if (f->failed || !tci_dtype_is_int(dtype) || !numbers) {
        return !f->failed;
    }
    if (tci_ops_is_symbol(low) || tci_ops_is_symbol(high)) {
        tc_arg least = *low, most = *high;
        least.i = tci_dim_least(low->i);
        most.i = tci_dim_most(high->i) - 1;
        if (!tci_ops_fits(&least, dtype) || !tci_ops_fits(&most, dtype)) {
            tci_frame_fail(f, TC_ERR_ARGUMENT,
                           "low is %s and high %s: expected numbers that %s holds for every value "
                           "of the symbols",
                           TCI_DIM_TEXT(low->i), TCI_DIM_TEXT(high->i), tci_dtype_get(dtype)->name);
        } else if (!tci_dim_lt(low->i, high->i)) {
            tci_frame_fail(f, TC_ERR_ARGUMENT,
                           "low is %s and high %s: expected a low less than high%s",
                           TCI_DIM_TEXT(low->i), TCI_DIM_TEXT(high->i),
                           TCI_LEAST_NOTE(tci_dim_sub(high->i, low->i), 1));
        }
        return !f->failed;
    }
    tc_arg last = *high;
    last.i = (int64_t)((uint64_t)last.i - 1);
    if (!tci_ops_is_less(low, high)) {
        tci_frame_fail(f, TC_ERR_ARGUMENT,
                       "low is %.0f and high %.0f: expected a low less than high", low->f, high->f);
    } else if (!tci_ops_fits(low, dtype) || !tci_ops_fits(&last, dtype)) {
        tci_frame_fail(f, TC_ERR_ARGUMENT,
                       "low is %.0f and high %.0f: expected numbers that %s holds", low->f, high->f,
                       tci_dtype_get(dtype)->name);
    }
    return !f->failed;
}

TC_API tc_tensor tc_randint_at(tc_ctx *ctx, tc_arg key, tc_arg low, tc_arg high, int n,
                               const int64_t *dtype_and_sizes, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_randint", here);
    if (!tci_frame_dtype(&f, "high", dtype_and_sizes, n)) {
        return tci_frame_end(&f, NULL);
    }
    tc_dtype dtype = (tc_dtype)dtype_and_sizes[0], wide = dtype == TC_U64 ? TC_U64 : TC_I64;
    tci_node *k = tci_ops_whole(&f, &key, TC_U64, "the key");
    tci_node *ends[2] = {NULL, NULL};
    if (tci_ops_check_ends(&f, &low, &high, dtype)) {
        ends[0] = tci_ops_whole(&f, &low, wide, "low");
        ends[1] = tci_ops_whole(&f, &high, wide, "high");
    }
    tci_node *r = f.failed ? NULL
                           : tci_build_randint(&f.ctx->graph, k, ends[0], ends[1], dtype, n - 1,
                                               tci_dim_list(dtype_and_sizes + 1));
    return tci_frame_end(&f, r);
}

TC_API tc_tensor tc_fold_in_at(tc_arg key, tc_arg number, tc_site here)
{
    const tc_arg both[2] = {key, number};
    tci_frame f = tci_ops_begin("tc_fold_in", both, 2, here);
    tci_node *k = f.failed ? NULL : tci_ops_whole(&f, &key, TC_U64, "the key");
    tci_node *n = f.failed ? NULL : tci_ops_whole(&f, &number, TC_U64, "the number");
    return tci_frame_end(&f, f.failed ? NULL : tci_build_fold_in(&f.ctx->graph, k, n));
}

/* Draws in the shape and dtype of their parameter. */
#define TCI_SOURCE_DRAWS(name)                                                                     \
    TC_API tc_tensor tc_##name##_at(tc_tensor p, tc_arg key, tc_site here)                         \
    {                                                                                              \
        tci_frame f;                                                                               \
        tci_node *n = tci_ops_one(&f, "tc_" #name, p, here);                                       \
        tci_node *k = n ? tci_ops_whole(&f, &key, TC_U64, "the key") : NULL;                       \
        return tci_frame_end(&f, k ? tci_build_##name(&f.ctx->graph, n, k) : NULL);                \
    }
TCI_SOURCE_DRAWS(bernoulli)
TCI_SOURCE_DRAWS(exponential)
TCI_SOURCE_DRAWS(geometric)
#undef TCI_SOURCE_DRAWS

TC_API tc_tensor tc_dropout_at(tc_tensor x, tc_arg p, tc_arg key, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_dropout", x, here);
    tc_arg part = p.kind ? tci_arg_float(p.kind == TCI_OPS_FLOAT ? p.f : (double)p.i) : p;
    if (n && p.kind && !(part.f >= 0 && part.f <= 1)) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "p is %g: expected a number in [0, 1]", part.f);
    }
    bool wide = n && n->dtype == TC_F64;
    tci_node *q = n ? tci_ops_either(&f, &part, wide ? TC_F64 : TC_F32, "p") : NULL;
    tci_node *k = n ? tci_ops_whole(&f, &key, TC_U64, "the key") : NULL;
    return tci_frame_end(&f, f.failed ? NULL : tci_build_dropout(&f.ctx->graph, n, q, k));
}
