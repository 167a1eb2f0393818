/* onnx/export_stablehlo_conv.c - exports convolutions and pools as StableHLO.
 *
 * In: a CONTRACT or a reduction of a WINDOW (onnx/find_conv.h). Out: convolution, with operands
 * arranged as [batch, groups * channels, spatial positions] and [groups * filters, channels, window
 * elements], or reduce_window. */
#include "export_stablehlo.h"

/* x and the filters, or x, as the list of what is needed. */
TCI_FN int tci_hlo_conv_needs(tci_hlo *h, tci_node *n, tci_node *const **list)
{
    tci_ox_conv c;
    tci_ox_sliding w;
    tci_node **two = TCI_NEW_ARRAY(h->walk->s, tci_node *, 2);
    *list = two;
    if (tci_op_is_reduce(n->op) && tci_ox_find_pool(n, &w)) {
        two[0] = w.x;
        return 1;
    } else if (tci_ox_find_conv(h->walk->s, n, &c)) {
        two[0] = c.w.x;
        two[1] = c.f;
        return 2;
    }
    return 0;
}

/* Axes being put in order, which are merged into few. */
typedef struct tci_hlo_order {
    int64_t *axes, *sizes;
    int n, n_merged;
} tci_hlo_order;

static tci_hlo_order tci_hlo_no_order(tci_hlo *h, int rank)
{
    return (tci_hlo_order){TCI_NEW_ARRAY(h->walk->s, int64_t, rank + 1),
                           TCI_NEW_ARRAY(h->walk->s, int64_t, rank + TCI_OX_SPATIAL + 3), 0, 0};
}

/* The axes of lists follow as one axis. */
static void tci_hlo_merge(tci_hlo *h, tci_hlo_order *o, int which, int n,
                          const tci_contract_axis_of *const *list, bool goes_on)
{
    int64_t size = 1;
    for (int i = 0; i < n; i++) {
        o->axes[o->n++] = list[i]->at[which];
        size *= tci_hlo_size(h, list[i]->size);
    }
    if (goes_on) {
        o->sizes[o->n_merged - 1] *= size;
    } else {
        o->sizes[o->n_merged++] = size;
    }
}

static void tci_hlo_spatial(tci_hlo_order *o, int n, const int *axes, const int64_t *sizes)
{
    for (int i = 0; i < n; i++) {
        o->axes[o->n++] = axes[i];
        o->sizes[o->n_merged++] = sizes[axes[i]];
    }
}

static const char *tci_hlo_ordered(tci_hlo *h, const tci_node *n, const tci_hlo_order *o,
                                   const char *x, tci_hlo_shape *shape)
{
    const tci_hlo_shape from = tci_hlo_shape_of(h, n->rank, n->shape);
    *shape = tci_hlo_shape_known(h, o->n_merged, o->sizes);
    return tci_hlo_arrange(h, (tc_dtype)n->dtype, &from, o->axes, shape, x);
}

/* The result, [batch, groups * filters, positions], as n has its axes. */
static const char *tci_hlo_as_result(tci_hlo *h, const tci_ox_conv *c, const tci_node *n,
                                     const tci_hlo_shape *from, const char *y)
{
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    tci_hlo_order o = tci_hlo_no_order(h, n->rank);
    tci_hlo_merge(h, &o, 2, c->n_batch, c->batch, false);
    tci_hlo_merge(h, &o, 2, c->n_groups, c->groups, false);
    tci_hlo_merge(h, &o, 2, c->n_filters, c->filters, false);
    tci_hlo_spatial(&o, c->w.n, c->out_axis, to.sizes);
    int64_t *split = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    int64_t *back = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        split[i] = to.sizes[o.axes[i]];
        back[o.axes[i]] = i;
    }
    const tci_hlo_shape parts = tci_hlo_shape_known(h, n->rank, split);
    bool same = from->rank == parts.rank;
    for (int i = 0; i < from->rank && same; i++) {
        same = from->sizes[i] == parts.sizes[i];
    }
    y = same ? y : tci_hlo_reshape(h, (tc_dtype)n->dtype, from, &parts, y);
    return tci_hlo_arrange(h, (tc_dtype)n->dtype, &parts, back, &to, y);
}

/* "[[1, 1], [0, 2]]" */
static const char *tci_hlo_pairs(tci_hlo *h, int n, const int64_t *a, const int64_t *b)
{
    tci_str text = {.s = h->walk->s};
    for (int i = 0; i < n; i++) {
        tci_str_printf(&text, "%s[%lld, %lld]", i ? ", " : "", (long long)a[i], (long long)b[i]);
    }
    return tci_scratch_printf(h->walk->s, "[%s]", tci_str_text(&text));
}

TCI_FN const char *tci_hlo_conv_out(tci_hlo *h, const tci_ox_conv *c, const tci_node *n,
                                    const char *const *in)
{
    const tci_ox_sliding *w = &c->w;
    int xs = c->which, fs = !c->which, k = w->n;
    int64_t groups = 1, stride[TCI_OX_SPATIAL], dilation[TCI_OX_SPATIAL], before[TCI_OX_SPATIAL];
    int64_t after[TCI_OX_SPATIAL], *made = TCI_NEW_ARRAY(h->walk->s, int64_t, k + 2);
    tci_hlo_order ox = tci_hlo_no_order(h, w->x->rank), of = tci_hlo_no_order(h, c->f->rank);
    tci_hlo_shape x_shape, f_shape;
    tci_str places = {.s = h->walk->s};
    tci_hlo_merge(h, &ox, xs, c->n_batch, c->batch, false);
    tci_hlo_merge(h, &ox, xs, c->n_groups, c->groups, false);
    tci_hlo_merge(h, &ox, xs, c->n_channels, c->channels, true);
    tci_hlo_spatial(&ox, k, w->axis, tci_hlo_shape_of(h, w->x->rank, w->x->shape).sizes);
    tci_hlo_merge(h, &of, fs, c->n_groups, c->groups, false);
    groups = of.sizes[0];
    tci_hlo_merge(h, &of, fs, c->n_filters, c->filters, true);
    tci_hlo_merge(h, &of, fs, c->n_channels, c->channels, false);
    tci_hlo_spatial(&of, k, c->f_axis, tci_hlo_shape_of(h, c->f->rank, c->f->shape).sizes);
    const char *x = tci_hlo_ordered(h, w->x, &ox, in[0], &x_shape);
    const char *f = tci_hlo_ordered(h, c->f, &of, in[1], &f_shape);
    made[0] = x_shape.sizes[0];
    made[1] = f_shape.sizes[0];
    for (int i = 0; i < k; i++) {
        stride[i] = tci_hlo_size(h, w->stride[i]);
        dilation[i] = tci_hlo_size(h, w->dilation[i]);
        before[i] = tci_hlo_size(h, w->before[i]);
        after[i] = tci_hlo_size(h, w->after[i]);
        made[2 + i] = tci_hlo_size(h, n->shape[c->out_axis[i]]);
        tci_str_printf(&places, ", %d", i);
    }
    const tci_hlo_shape to = tci_hlo_shape_known(h, k + 2, made);
    const char *at = tci_str_text(&places), *exact = w->x->dtype == TC_F32 ? "HIGHEST" : "DEFAULT";
    const char *y = tci_hlo_let(
        h,
        "stablehlo.convolution(%s, %s) dim_numbers = [b, f%s]x[o, i%s]->[b, f%s], window = "
        "{stride = %s, pad = %s, rhs_dilate = %s} {batch_group_count = 1 : i64, "
        "feature_group_count = %lld : i64, precision_config = [#stablehlo<precision %s>, "
        "#stablehlo<precision %s>]} : (%s, %s) -> %s",
        x, f, at, at, at, tci_hlo_list(h, k, stride), tci_hlo_pairs(h, k, before, after),
        tci_hlo_list(h, k, dilation), (long long)groups, exact, exact,
        tci_hlo_type(h, (tc_dtype)w->x->dtype, &x_shape),
        tci_hlo_type(h, (tc_dtype)c->f->dtype, &f_shape), tci_hlo_type(h, (tc_dtype)n->dtype, &to));
    return tci_hlo_as_result(h, c, n, &to, y);
}

TCI_FN const char *tci_hlo_pool_out(tci_hlo *h, const tci_ox_sliding *w, const tci_node *n,
                                    const char *x)
{
    const tci_hlo_shape from = tci_hlo_shape_of(h, w->x->rank, w->x->shape), point = {0, NULL, ""};
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = n->op == TCI_OP_SUM && tci_dtype_is_half((tc_dtype)n->dtype) ? TC_F32
                                                                              : (tc_dtype)n->dtype;
    int64_t *lists[5]; /* kernel, stride, dilation, before, after */
    for (int i = 0; i < 5; i++) {
        lists[i] = TCI_NEW_ARRAY(h->walk->s, int64_t, from.rank + 1);
        for (int d = 0; d < from.rank; d++) {
            lists[i][d] = i < 3;
        }
    }
    for (int i = 0; i < w->n; i++) {
        lists[0][w->axis[i]] = tci_hlo_size(h, w->kernel[i]);
        lists[1][w->axis[i]] = tci_hlo_size(h, w->stride[i]);
        lists[2][w->axis[i]] = tci_hlo_size(h, w->dilation[i]);
        lists[3][w->axis[i]] = tci_hlo_size(h, w->before[i]);
        lists[4][w->axis[i]] = tci_hlo_size(h, w->after[i]);
    }
    x = tci_hlo_convert(h, &from, (tc_dtype)w->x->dtype, t, x);
    const char *none = tci_hlo_splat(h, &point, t, tci_hlo_identity(n->op, t));
    const char *r = tci_hlo_name(h), *a = tci_hlo_name(h), *b = tci_hlo_name(h);
    const char *dtype = tci_hlo_dtype(t);
    tci_str_printf(&h->out,
                   "  %s = \"stablehlo.reduce_window\"(%s, %s) <{window_dimensions = %s, "
                   "window_strides = %s, window_dilations = %s, padding = dense<%s> : "
                   "tensor<%dx2xi64>}> ({\n  ^bb0(%s: tensor<%s>, %s: tensor<%s>):\n",
                   r, x, none, tci_hlo_array(h, from.rank, lists[0]),
                   tci_hlo_array(h, from.rank, lists[1]), tci_hlo_array(h, from.rank, lists[2]),
                   tci_hlo_pairs(h, from.rank, lists[3], lists[4]), from.rank, a, dtype, b, dtype);
    const char *y = tci_hlo_binary(h, tci_hlo_joins(n->op, t), &point, t, a, b);
    tci_str_printf(&h->out, "  stablehlo.return %s : tensor<%s>\n  }) : (%s, tensor<%s>) -> %s\n",
                   y, dtype, tci_hlo_type(h, t, &from), dtype, tci_hlo_type(h, t, &to));
    return tci_hlo_convert(h, &to, t, (tc_dtype)n->dtype, r);
}
