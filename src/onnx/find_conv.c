/* onnx/find_conv.c - finds convolutions and pools in a graph that is exported (onnx/find_conv.h).
 *
 * In: a CONTRACT, or a reduction. Out: the operands of the equivalent convolution or pooling, with
 * kernel, stride, dilation and padding per spatial axis; false if there is none. */
#include "find_conv.h"

#include <math.h>

/* ---- windows ---- */

/* The padding of the windowed axes, taken off x, where x is a PAD by `fill` along no other axis. */
static void tci_ox_take_padding(tci_ox_sliding *w, bool (*fits)(const tci_node *fill))
{
    tci_node *pad = w->x;
    if (pad->op != TCI_OP_PAD || tci_node_is_value(pad) || !fits(pad->in[1])) {
        return;
    }
    for (int d = 0; d < pad->rank; d++) {
        bool windowed = false;
        for (int i = 0; i < w->n; i++) {
            windowed = windowed || w->axis[i] == d;
        }
        if (!windowed && (tci_node_dims(pad)[d] != 0 || pad->shape[d] != pad->in[0]->shape[d])) {
            return;
        }
    }
    w->x = pad->in[0];
    for (int i = 0; i < w->n; i++) {
        w->before[i] = tci_node_dims(pad)[w->axis[i]];
    }
}

static bool tci_ox_sliding_of(const tci_node *n, tci_ox_sliding *w,
                              bool (*fits)(const tci_node *fill))
{
    if (n->op != TCI_OP_WINDOW || n->n_attr / 4 > TCI_OX_SPATIAL) {
        return false;
    }
    *w = (tci_ox_sliding){.x = n->in[0], .n = n->n_attr / 4};
    for (int i = 0; i < w->n; i++) {
        w->axis[i] = (int)n->attr[4 * i];
        w->element[i] = n->in[0]->rank + i;
        w->kernel[i] = tci_node_dims(n)[4 * i + 1];
        w->stride[i] = tci_node_dims(n)[4 * i + 2];
        w->dilation[i] = tci_node_dims(n)[4 * i + 3];
        for (int j = 0; j < i; j++) {
            if (w->axis[i] == w->axis[j]) {
                return false;
            }
        }
    }
    tci_ox_take_padding(w, fits);
    return true;
}

/* Position after the last element of axis i, for `count` windows. */
static void tci_ox_end_windows(tci_ox_sliding *w, int i, tci_dim count)
{
    tci_dim reads = tci_dim_mul(tci_dim_add(count, -1), w->stride[i]);
    reads = tci_dim_add(reads, tci_dim_mul(tci_dim_add(w->kernel[i], -1), w->dilation[i]));
    reads = tci_dim_add(reads, 1);
    w->after[i] = tci_dim_sub(reads, tci_dim_add(w->x->shape[w->axis[i]], w->before[i]));
}

/* ---- convolutions ---- */

/* The axis of a contraction with that position in operand or result `which`. */
static const tci_contract_axis_of *tci_ox_axis_at(const tci_contraction *c, int which, int place)
{
    for (int i = 0; i < c->n_axes; i++) {
        if (c->axes[i].at[which] == place) {
            return &c->axes[i];
        }
    }
    return NULL;
}

/* Spatial axis i: of a forward pass, or of a weight gradient. */
static bool tci_ox_conv_axis(const tci_contraction *of, tci_ox_conv *c, int i)
{
    tci_ox_sliding *w = &c->w;
    const tci_contract_axis_of *place = tci_ox_axis_at(of, c->which, w->axis[i]);
    const tci_contract_axis_of *element = tci_ox_axis_at(of, c->which, w->element[i]);
    int f = !c->which;
    bool forward = place->at[f] < 0 && place->at[2] >= 0 && element->at[f] >= 0 &&
                   element->at[2] < 0;
    bool weights = place->at[f] >= 0 && place->at[2] < 0 && element->at[f] < 0 &&
                   element->at[2] >= 0;
    if (weights) {
        tci_dim stride = w->stride[i];
        w->stride[i] = w->dilation[i];
        w->dilation[i] = stride;
        w->kernel[i] = place->size;
    }
    c->f_axis[i] = forward ? element->at[f] : place->at[f];
    c->out_axis[i] = forward ? place->at[2] : element->at[2];
    tci_ox_end_windows(w, i, forward ? place->size : element->size);
    return forward || weights;
}

/* An axis that no window is along goes into its list. */
static bool tci_ox_conv_list(tci_ox_conv *c, const tci_contract_axis_of *axis)
{
    bool x = axis->at[c->which] >= 0, f = axis->at[!c->which] >= 0, out = axis->at[2] >= 0;
    if (x && f && out) {
        c->groups[c->n_groups++] = axis;
    } else if (x && f) {
        c->channels[c->n_channels++] = axis;
    } else if (x && out) {
        c->batch[c->n_batch++] = axis;
    } else if (f && out) {
        c->filters[c->n_filters++] = axis;
    }
    return x + f + out > 1;
}

static bool tci_ox_is_zero(const tci_node *fill)
{
    return tci_is_zero(fill);
}

TCI_FN bool tci_ox_find_conv(tci_scratch *s, const tci_node *n, tci_ox_conv *c)
{
    *c = (tci_ox_conv){.which = 0};
    if (n->op != TCI_OP_CONTRACT || !tci_dtype_is_float((tc_dtype)n->dtype)) {
        return false;
    }
    while (c->which < 2 && !tci_ox_sliding_of(n->in[c->which], &c->w, tci_ox_is_zero)) {
        c->which++;
    }
    if (c->which == 2 || tci_node_is_value(n->in[c->which])) {
        return false;
    }
    const tci_contraction *of = tci_contraction_of(s, n);
    c->f = n->in[!c->which];
    c->batch = TCI_NEW_ARRAY(s, const tci_contract_axis_of *, of->n_axes);
    c->groups = TCI_NEW_ARRAY(s, const tci_contract_axis_of *, of->n_axes);
    c->channels = TCI_NEW_ARRAY(s, const tci_contract_axis_of *, of->n_axes);
    c->filters = TCI_NEW_ARRAY(s, const tci_contract_axis_of *, of->n_axes);
    for (int i = 0; i < c->w.n; i++) {
        if (!tci_ox_conv_axis(of, c, i)) {
            return false;
        }
    }
    for (int i = 0; i < of->n_axes; i++) {
        bool windowed = false;
        for (int k = 0; k < c->w.n; k++) {
            windowed = windowed || of->axes[i].at[c->which] == c->w.axis[k] ||
                       of->axes[i].at[c->which] == c->w.element[k];
        }
        if (!windowed && !tci_ox_conv_list(c, &of->axes[i])) {
            return false;
        }
    }
    return true;
}

/* ---- pools ---- */

static bool tci_ox_is_least(const tci_node *fill)
{
    return (fill->op == TCI_OP_CONST || fill->op == TCI_OP_LITERAL) &&
           tci_dtype_is_float((tc_dtype)fill->dtype) && isinf(fill->value.f) && fill->value.f < 0;
}

TCI_FN bool tci_ox_find_pool(const tci_node *n, tci_ox_sliding *w)
{
    bool sums = n->op == TCI_OP_SUM;
    if ((!sums && n->op != TCI_OP_MAX) || !tci_dtype_is_float((tc_dtype)n->dtype) ||
        tci_node_is_value(n->in[0]) ||
        !tci_ox_sliding_of(n->in[0], w, sums ? tci_ox_is_zero : tci_ox_is_least) ||
        n->n_attr != w->n) {
        return false;
    }
    for (int i = 0; i < w->n; i++) {
        if (n->attr[i] != w->element[i]) {
            return false;
        }
        tci_ox_end_windows(w, i, n->in[0]->shape[w->axis[i]]);
    }
    return true;
}
