/* onnx/export_conv.c - exports convolutions and pooling as ONNX Conv, ConvTranspose, MaxPool and
 * AveragePool.
 *
 * In: a CONTRACT or a reduction of a WINDOW (onnx/find_conv.h). Out: the operator, over x as
 * [batch, groups * channels, spatial positions] and filters as [groups * filters, channels, window
 * elements], with a Transpose and a Reshape around it where the graph has other axes. */
#include "export_state.h"

/* Padding of ONNX is not negative, and no symbol. */
static bool tci_ox_windows_fit(const tci_ox_sliding *w)
{
    bool fit = true;
    for (int i = 0; i < w->n && fit; i++) {
        /* of a symbolic size what is left over follows the last window, or nothing does */
        bool open = !tci_dim_is_known(w->after[i]);
        fit = tci_dim_is_known(w->kernel[i]) && tci_dim_is_known(w->stride[i]) &&
              tci_dim_is_known(w->dilation[i]) && tci_dim_is_known(w->before[i]) &&
              tci_dim_le(0, w->before[i]) && !open;
    }
    return fit;
}

/* Elements after the last window, which Conv and pools ignore, may be cut. */
static int64_t tci_ox_after(const tci_ox_sliding *w, int i)
{
    return tci_dim_known(w->after[i]) < 0 ? 0 : tci_dim_known(w->after[i]);
}

/* True if the operator's own rule gives as many positions as there are. */
static bool tci_ox_places_follow(const tci_ox_sliding *w)
{
    bool follow = true;
    for (int i = 0; i < w->n && follow; i++) {
        follow = tci_dim_known(w->after[i]) > -tci_dim_known(w->stride[i]);
    }
    return follow;
}

TCI_FN bool tci_ox_conv_fits(const tci_ox_conv *c)
{
    bool half = tci_dtype_is_half((tc_dtype)c->f->dtype);
    bool known = tci_is_known(c->w.x) && tci_is_known(c->f);
    bool plain = c->n_batch == 1 && c->n_groups == 0 && c->n_channels == 1 && c->n_filters == 1;
    return !half && tci_ox_windows_fit(&c->w) && tci_ox_places_follow(&c->w) && (known || plain);
}

/* Axes put in order and merged into few; sizes are known, or no axis is merged. */
typedef struct tci_ox_order {
    int64_t *axes;
    tci_dim *sizes;
    int n, n_merged;
} tci_ox_order;

static tci_ox_order tci_ox_no_order(tci_ox_out_graph *g, int rank)
{
    return (tci_ox_order){TCI_NEW_ARRAY(g->walk->s, int64_t, rank + 1),
                          TCI_NEW_ARRAY(g->walk->s, tci_dim, rank + TCI_OX_SPATIAL + 3), 0, 0};
}

static void tci_ox_merge(tci_ox_order *o, int which, int n, const tci_contract_axis_of *const *list,
                         bool goes_on)
{
    tci_dim size = 1;
    for (int i = 0; i < n; i++) {
        o->axes[o->n++] = list[i]->at[which];
        size = tci_dim_mul(size, list[i]->size);
    }
    if (goes_on) {
        o->sizes[o->n_merged - 1] = tci_dim_mul(o->sizes[o->n_merged - 1], size);
    } else {
        o->sizes[o->n_merged++] = size;
    }
}

static void tci_ox_spatial(tci_ox_order *o, int n, const int *axes, const tci_dim *sizes)
{
    for (int i = 0; i < n; i++) {
        o->axes[o->n++] = axes[i];
        o->sizes[o->n_merged++] = sizes[axes[i]];
    }
}

TCI_FN const char *tci_ox_transposed(tci_ox_out_graph *g, int rank, const int64_t *axes,
                                     const char *x)
{
    bool in_order = true;
    for (int i = 0; i < rank; i++) {
        in_order = in_order && axes[i] == i;
    }
    const tci_ow_attr perm = TCI_OW_INTS("perm", rank, axes);
    return in_order ? x : tci_ow_op(&g->w, "Transpose", 1, &x, 1, &perm);
}

/* x, of sizes `from`, in other sizes; as it is where they are the same. */
static const char *tci_ox_resized(tci_ox_out_graph *g, int rank_from, const tci_dim *from, int rank,
                                  const tci_dim *to, const char *x)
{
    bool same = rank_from == rank;
    for (int i = 0; i < rank && same; i++) {
        same = from[i] == to[i];
    }
    return same ? x : TCI_OW(&g->w, "Reshape", x, tci_ow_ints(&g->w, rank, tci_dim_words(to)));
}

static const char *tci_ox_ordered(tci_ox_out_graph *g, const tci_node *n, const tci_ox_order *o,
                                  const char *x)
{
    tci_dim *moved = TCI_NEW_ARRAY(g->walk->s, tci_dim, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        moved[i] = n->shape[o->axes[i]];
    }
    x = tci_ox_transposed(g, n->rank, o->axes, x);
    return tci_ox_resized(g, n->rank, moved, o->n_merged, o->sizes, x);
}

/* The result, [batch, groups * filters, positions], as n has its axes. */
static const char *tci_ox_as_result(tci_ox_out_graph *g, const tci_ox_conv *c, const tci_node *n,
                                    const char *y)
{
    tci_ox_order o = tci_ox_no_order(g, n->rank);
    tci_ox_merge(&o, 2, c->n_batch, c->batch, false);
    tci_ox_merge(&o, 2, c->n_groups, c->groups, false);
    tci_ox_merge(&o, 2, c->n_filters, c->filters, true);
    tci_ox_spatial(&o, c->w.n, c->out_axis, n->shape);
    tci_dim *split = TCI_NEW_ARRAY(g->walk->s, tci_dim, n->rank + 1);
    int64_t *back = TCI_NEW_ARRAY(g->walk->s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        split[i] = n->shape[o.axes[i]];
        back[o.axes[i]] = i;
    }
    y = tci_ox_resized(g, o.n_merged, o.sizes, n->rank, split, y);
    return tci_ox_transposed(g, n->rank, back, y);
}

/* kernel_shape, strides, dilations, pads: four attributes. */
static void tci_ox_window_attrs(tci_ox_out_graph *g, const tci_ox_sliding *w, tci_ow_attr *to)
{
    static const char *const names[] = {"kernel_shape", "strides", "dilations", "pads"};
    for (int k = 0; k < 4; k++) {
        int64_t *list = TCI_NEW_ARRAY(g->walk->s, int64_t, 2 * w->n);
        for (int i = 0; i < w->n; i++) {
            list[i] = tci_dim_known(k == 0   ? w->kernel[i]
                                    : k == 1 ? w->stride[i]
                                    : k == 2 ? w->dilation[i]
                                             : w->before[i]);
            if (k == 3) {
                list[w->n + i] = tci_ox_after(w, i);
            }
        }
        to[k] = (tci_ow_attr)TCI_OW_INTS(names[k], k == 3 ? 2 * w->n : w->n, list);
    }
}

TCI_FN const char *tci_ox_conv_out(tci_ox_out_graph *g, const tci_ox_conv *c, const tci_node *n,
                                   const char *const *in)
{
    const tci_ox_sliding *w = &c->w;
    tci_ox_order ox = tci_ox_no_order(g, w->x->rank), of = tci_ox_no_order(g, c->f->rank);
    tci_ow_attr attrs[5];
    tci_ox_merge(&ox, c->which, c->n_batch, c->batch, false);
    tci_ox_merge(&ox, c->which, c->n_groups, c->groups, false);
    tci_ox_merge(&ox, c->which, c->n_channels, c->channels, true);
    tci_ox_spatial(&ox, w->n, w->axis, w->x->shape);
    tci_ox_merge(&of, !c->which, c->n_groups, c->groups, false);
    int64_t groups = tci_dim_known(of.sizes[0]);
    tci_ox_merge(&of, !c->which, c->n_filters, c->filters, true);
    tci_ox_merge(&of, !c->which, c->n_channels, c->channels, false);
    tci_ox_spatial(&of, w->n, c->f_axis, c->f->shape);
    const char *with[] = {tci_ox_ordered(g, w->x, &ox, in[0]), tci_ox_ordered(g, c->f, &of, in[1])};
    tci_ox_window_attrs(g, w, attrs);
    attrs[4] = (tci_ow_attr)TCI_OW_INT("group", groups);
    return tci_ox_as_result(g, c, n, tci_ow_op(&g->w, "Conv", 2, with, 5, attrs));
}

/* Padding after the last element that is negative leaves as output_padding. */
TCI_FN const char *tci_ox_conv_transpose_out(tci_ox_out_graph *g, const tci_node *n,
                                             const char *const *in)
{
    static const char *const names[] = {"kernel_shape", "strides", "dilations", "output_padding",
                                        "pads"};
    const tci_node *x = n->in[0], *w = n->in[1];
    int axes = n->rank - 2;
    int64_t *lists[5];
    tci_ow_attr attrs[6];
    for (int k = 0; k < 5; k++) {
        lists[k] = TCI_NEW_ARRAY(g->walk->s, int64_t, 2 * axes);
        attrs[k] = (tci_ow_attr)TCI_OW_INTS(names[k], k == 4 ? 2 * axes : axes, lists[k]);
    }
    attrs[5] = (tci_ow_attr)TCI_OW_INT("group", n->attr[0]);
    for (int i = 0; i < axes; i++) {
        const tci_dim *words = tci_node_dims(n) + 1 + 3 * i; /* stride, dilation, before */
        tci_dim steps = tci_dim_mul(tci_dim_sub(x->shape[2 + i], 1), words[0]);
        tci_dim reach = tci_dim_mul(tci_dim_sub(w->shape[2 + i], 1), words[1]);
        tci_dim whole = tci_dim_add(tci_dim_add(steps, reach), 1);
        tci_dim after = tci_dim_sub(tci_dim_sub(whole, words[2]), n->shape[2 + i]);
        if (n->dtype != TC_F32 || !tci_dim_is_known(w->shape[2 + i]) || !tci_dim_is_known(after)) {
            return NULL;
        }
        lists[0][i] = tci_dim_known(w->shape[2 + i]);
        lists[1][i] = tci_dim_known(words[0]);
        lists[2][i] = tci_dim_known(words[1]);
        lists[3][i] = TCI_MAX(0, -tci_dim_known(after));
        lists[4][i] = tci_dim_known(words[2]);
        lists[4][axes + i] = TCI_MAX(0, tci_dim_known(after));
    }
    return tci_ow_op(&g->w, "ConvTranspose", 2, in, 6, attrs);
}

/* ---- pools ---- */

TCI_FN bool tci_ox_pool_fits(const tci_ox_sliding *w, const tci_node *n)
{
    bool fits = w->x->rank == w->n + 2 && tci_ox_windows_fit(w) && tci_ox_places_follow(w) &&
                n->dtype == TC_F32 && w->x->dtype == TC_F32;
    for (int i = 0; i < w->n && fits; i++) {
        tci_dim half = tci_dim_div(w->kernel[i], 2);
        fits = w->axis[i] == 2 + i && tci_dim_le(w->before[i], half) &&
               tci_ox_after(w, i) <= tci_dim_known(half) &&
               (n->op == TCI_OP_MAX || w->dilation[i] == 1);
    }
    return fits;
}

/* A sum is the mean times the number of elements. */
TCI_FN const char *tci_ox_pool_out(tci_ox_out_graph *g, const tci_ox_sliding *w, const tci_node *n,
                                   const char *x)
{
    tci_ow_attr attrs[5];
    float count = 1;
    tci_ox_window_attrs(g, w, attrs);
    if (n->op == TCI_OP_MAX) {
        return tci_ow_op(&g->w, "MaxPool", 1, &x, 4, attrs);
    }
    for (int i = 0; i < w->n; i++) {
        count *= (float)tci_dim_known(w->kernel[i]);
    }
    attrs[4] = (tci_ow_attr)TCI_OW_INT("count_include_pad", 1);
    x = tci_ow_op(&g->w, "AveragePool", 1, &x, 5, attrs);
    return TCI_OW(&g->w, "Mul", x, tci_ow_tensor(&g->w, NULL, TC_F32, 0, NULL, &count));
}
