/* onnx/export_direct_ops.c - exports NAMED nodes: high-level ops that map one-to-one to an ONNX
 * operator.
 *
 * In: a NAMED node (onnx/export_direct_ops.h). Out: the operator that the table gives for the
 * call, over the operands that are tensors; numbers become attributes. Only f32, which all engines
 * have. */
#include "export_direct_ops.h"

#include <string.h>

/* ---- operands ---- */

static const tci_node *tci_ox_named_operand(const tci_node *n, int i)
{
    return n->in[1 + i];
}

static bool tci_ox_is_number(const tci_node *x)
{
    return x->op == TCI_OP_CONST || x->op == TCI_OP_LITERAL;
}

/* The last operand of a call of api/: eps, or a scale. */
static double tci_ox_last_number(const tci_node *n)
{
    return n->in[n->n_in - 1]->value.f;
}

static bool tci_ox_is_shape_of(const tci_node *a, const tci_node *b)
{
    return tci_build_same_shape(a->rank, a->shape, b->rank, b->shape);
}

/* True if p is one element for each channel of x, as many as are known. */
static bool tci_ox_is_of_channels(const tci_node *p, const tci_node *x)
{
    return p->rank == 1 && p->shape[0] == x->shape[1] && tci_dim_is_known(p->shape[0]);
}

/* ---- calls that fit ---- */

static bool tci_ox_fits_activation(const tci_node *n)
{
    bool fits = tci_ox_is_shape_of(n, tci_ox_named_operand(n, 0));
    for (int i = 2; i < n->n_in; i++) {
        fits = fits && tci_ox_is_number(n->in[i]);
    }
    return fits;
}

static bool tci_ox_fits_softplus(const tci_node *n)
{
    return tci_ox_fits_activation(n) && tci_ox_named_operand(n, 1)->value.f == 1 &&
           tci_ox_named_operand(n, 2)->value.f >= 17; /* beyond, log(1 + exp(x)) is x */
}

/* Bounds in order: Clip leaves the others open. */
static bool tci_ox_fits_clip(const tci_node *n)
{
    return tci_ox_fits_activation(n) &&
           tci_ox_named_operand(n, 1)->value.f <= tci_ox_named_operand(n, 2)->value.f;
}

static bool tci_ox_fits_conv(const tci_node *n)
{
    return tci_build_is_known(n->rank - 2, tci_ox_named_operand(n, 1)->shape + 2);
}

static bool tci_ox_fits_norm(const tci_node *n)
{
    const tci_node *x = tci_ox_named_operand(n, 0);
    bool fits = x->rank >= 2 && tci_ox_is_shape_of(n, x) && tci_dim_is_known(x->shape[1]);
    for (int i = 1; i < n->n_in - 2 && fits; i++) {
        fits = tci_ox_is_of_channels(tci_ox_named_operand(n, i), x);
    }
    return fits;
}

static bool tci_ox_fits_rms_norm(const tci_node *n)
{
    const tci_node *x = tci_ox_named_operand(n, 0), *w = tci_ox_named_operand(n, 1);
    int axes = (int)n->attr[1];
    return tci_ox_is_shape_of(n, x) &&
           tci_build_same_shape(w->rank, w->shape, axes, x->shape + (x->rank - axes));
}

/* True if the mask has all rows and columns of the scores. */
static bool tci_ox_is_whole_mask(const tci_node *n)
{
    const tci_node *q = tci_ox_named_operand(n, 0), *k = tci_ox_named_operand(n, 1);
    const tci_node *m = tci_ox_named_operand(n, 3);
    return m->rank >= 2 && m->shape[m->rank - 2] == q->shape[q->rank - 2] &&
           m->shape[m->rank - 1] == k->shape[k->rank - 2];
}

/* Four axes, [batch, heads, rows, width], or five, whose key and value have one head for the group
 * of heads that the third axis has. */
static bool tci_ox_fits_attention(const tci_node *n)
{
    const tci_node *q = tci_ox_named_operand(n, 0), *k = tci_ox_named_operand(n, 1);
    const tci_node *v = tci_ox_named_operand(n, 2);
    bool grouped = q->rank == 5, fits = q->rank == 4 || (grouped && !n->attr[2] && tci_is_known(q));
    fits = fits && k->rank == q->rank && v->rank == q->rank &&
           tci_dim_is_known(q->shape[q->rank - 1]);
    for (int i = 0; i < q->rank - 2 && fits; i++) {
        bool one = grouped && i == 2;
        fits = (one ? k->shape[i] == 1 : k->shape[i] == q->shape[i]) && v->shape[i] == k->shape[i];
    }
    bool known = tci_dim_is_known(q->shape[q->rank - 2]) && tci_dim_is_known(k->shape[k->rank - 2]);
    return fits && (!grouped || (tci_is_known(k) && tci_is_known(v))) &&
           (!n->attr[2] || known || tci_ox_is_whole_mask(n));
}

/* ---- operators ---- */

static const char *tci_ox_activation_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                        const char *const *in)
{
    const tci_ow_attr alpha = TCI_OW_FLOAT("alpha", n->n_in > 2 ? n->in[2]->value.f : 0);
    return tci_ow_op(&g->w, op, 1, in, n->n_in > 2, &alpha);
}

static const char *tci_ox_plain_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                   const char *const *in)
{
    (void)n;
    return tci_ow_op(&g->w, op, 1, in, 0, NULL);
}

static const char *tci_ox_hardsigmoid_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                         const char *const *in)
{
    const tci_ow_attr attrs[] = {TCI_OW_FLOAT("alpha", 1.0 / 6), TCI_OW_FLOAT("beta", 0.5)};
    (void)n;
    return tci_ow_op(&g->w, op, 1, in, 2, attrs);
}

static const char *tci_ox_gelu_tanh_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                       const char *const *in)
{
    const tci_ow_attr tanh = TCI_OW_TEXT("approximate", "tanh");
    (void)n;
    return tci_ow_op(&g->w, op, 1, in, 1, &tanh);
}

static const char *tci_ox_clip_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *const *in)
{
    bool six = n->attr[0] == TCI_NAMED_RELU6;
    return TCI_OW(&g->w, op, in[0], tci_ox_float(g, TC_F32, six ? 0 : n->in[2]->value.f),
                  tci_ox_float(g, TC_F32, six ? 6 : n->in[3]->value.f));
}

static const char *tci_ox_conv_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *const *in)
{
    static const char *const names[] = {"strides", "dilations", "pads", "kernel_shape"};
    const int axes = n->rank - 2;
    const int64_t *words = n->attr + 1;
    tci_ow_attr attrs[5] = {TCI_OW_INT("group", words[0])};
    for (int k = 0; k < 4; k++) {
        int64_t *list = TCI_NEW_ARRAY(g->walk->s, int64_t, 2 * axes);
        for (int i = 0; i < axes; i++) {
            list[i] = k < 3 ? words[1 + 4 * i + k]
                            : tci_dim_known(tci_ox_named_operand(n, 1)->shape[2 + i]);
            list[axes + i] = words[1 + 4 * i + 3];
        }
        attrs[1 + k] = (tci_ow_attr)TCI_OW_INTS(names[k], k == 2 ? 2 * axes : axes, list);
    }
    return tci_ow_op(&g->w, op, n->n_in - 1, in, 5, attrs);
}

/* The next of the operands, where the call has it, else as many elements of that value. */
static const char *tci_ox_channels_or(tci_ox_out_graph *g, const tci_node *n, bool has, float value,
                                      const char *const **in)
{
    const int64_t count = tci_dim_known(tci_ox_named_operand(n, 0)->shape[1]);
    if (has) {
        return *(*in)++;
    }
    float *all = TCI_NEW_ARRAY(g->walk->s, float, count + 1);
    for (int64_t i = 0; i < count; i++) {
        all[i] = value;
    }
    return tci_ow_tensor(&g->w, NULL, TC_F32, 1, &count, all);
}

/* Batch, group and instance norm. */
static const char *tci_ox_norm_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *const *in)
{
    const char *with[5] = {*in++};
    with[1] = tci_ox_channels_or(g, n, n->attr[1], 1, &in);
    with[2] = tci_ox_channels_or(g, n, n->attr[2], 0, &in);
    tci_ow_attr attrs[2] = {TCI_OW_FLOAT("epsilon", tci_ox_last_number(n))};
    int n_in = 3, n_attrs = 1;
    if (n->attr[0] == TCI_NAMED_BATCH_NORM) {
        with[n_in++] = in[0];
        with[n_in++] = in[1];
    } else if (n->attr[0] == TCI_NAMED_GROUP_NORM) {
        attrs[n_attrs++] = (tci_ow_attr)TCI_OW_INT("num_groups", n->attr[3]);
    }
    return tci_ow_op(&g->w, op, n_in, with, n_attrs, attrs);
}

static const char *tci_ox_rms_norm_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                      const char *const *in)
{
    const tci_ow_attr attrs[] = {TCI_OW_INT("axis", -n->attr[1]),
                                 TCI_OW_FLOAT("epsilon", tci_ox_last_number(n))};
    return tci_ow_op(&g->w, op, 2, in, 2, attrs);
}

/* Of five axes the second and third as one. */
static const char *tci_ox_four_axes(tci_ox_out_graph *g, const tci_node *x, const char *name)
{
    const int64_t *s = tci_dim_words(x->shape);
    if (x->rank == 4) {
        return name;
    }
    const int64_t four[] = {s[0], s[1] * s[2], s[3], s[4]};
    return TCI_OW(&g->w, "Reshape", name, tci_ow_ints(&g->w, 4, four));
}

/* onnxruntime asks for a mask with all rows and columns of the scores. */
static const char *tci_ox_whole_mask(tci_ox_out_graph *g, const tci_node *n, const char *mask)
{
    const tci_node *q = tci_ox_named_operand(n, 0), *k = tci_ox_named_operand(n, 1);
    if (tci_ox_is_whole_mask(n)) {
        return mask;
    }
    const int64_t sizes[] = {tci_dim_known(q->shape[q->rank - 2]),
                             tci_dim_known(k->shape[k->rank - 2])};
    return TCI_OW(&g->w, "Expand", mask, tci_ow_ints(&g->w, 2, sizes));
}

static const char *tci_ox_attention_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                       const char *const *in)
{
    const double scale = tci_ox_last_number(n);
    const tci_ow_attr attrs[] = {TCI_OW_INT("is_causal", n->attr[1]), TCI_OW_FLOAT("scale", scale)};
    const char *with[4] = {NULL, NULL, NULL, n->attr[2] ? tci_ox_whole_mask(g, n, in[3]) : NULL};
    for (int i = 0; i < 3; i++) {
        with[i] = tci_ox_four_axes(g, tci_ox_named_operand(n, i), in[i]);
    }
    const char *y = tci_ow_op(&g->w, op, n->attr[2] ? 4 : 3, with, scale == 0 ? 1 : 2, attrs);
    return n->rank == 4
               ? y
               : TCI_OW(&g->w, "Reshape", y, tci_ow_ints(&g->w, n->rank, tci_dim_words(n->shape)));
}

/* ---- the table ---- */

/* X(call, operator, first opset, operands that are inputs of it (ALL: and the last one is, TENSORS:
 * all but the last, a number), test, writer) */
#define TCI_OX_NAMED_ROWS(X)                                                                       \
    X(LEAKY_RELU, "LeakyRelu", 16, 1, fits_activation, activation_as)                              \
    X(ELU, "Elu", 6, 1, fits_activation, activation_as)                                            \
    X(CELU, "Celu", 12, 1, fits_activation, activation_as)                                         \
    X(SELU, "Selu", 6, 1, fits_activation, plain_as)                                               \
    X(MISH, "Mish", 18, 1, fits_activation, plain_as)                                              \
    X(SOFTPLUS, "Softplus", 1, 1, fits_softplus, plain_as)                                         \
    X(HARDTANH, "Clip", 13, 1, fits_clip, clip_as)                                                 \
    X(RELU6, "Clip", 13, 1, fits_activation, clip_as)                                              \
    X(HARDSIGMOID, "HardSigmoid", 6, 1, fits_activation, hardsigmoid_as)                           \
    X(HARDSWISH, "HardSwish", 14, 1, fits_activation, plain_as)                                    \
    X(GELU_TANH, "Gelu", 20, 1, fits_activation, gelu_tanh_as)                                     \
    X(CONV, "Conv", 11, ALL, fits_conv, conv_as)                                                   \
    X(BATCH_NORM, "BatchNormalization", 15, TENSORS, fits_norm, norm_as)                           \
    X(GROUP_NORM, "GroupNormalization", 21, TENSORS, fits_norm, norm_as)                           \
    X(INSTANCE_NORM, "InstanceNormalization", 6, TENSORS, fits_norm, norm_as)                      \
    X(RMS_NORM, "RMSNormalization", 23, TENSORS, fits_rms_norm, rms_norm_as)                       \
    X(ATTENTION, "Attention", 23, TENSORS, fits_attention, attention_as)

typedef struct tci_ox_named_row {
    const char *op;
    int opset, operands;
    bool (*fits)(const tci_node *n);
    const char *(*out)(tci_ox_out_graph *g, const char *op, const tci_node *n,
                       const char *const *in);
} tci_ox_named_row;

enum { TCI_OX_NAMED_ALL = -1, TCI_OX_NAMED_TENSORS = -2 };

static const tci_ox_named_row *tci_ox_named_row_of(const tci_node *n)
{
    enum { ALL = TCI_OX_NAMED_ALL, TENSORS = TCI_OX_NAMED_TENSORS };
    static const tci_ox_named_row rows[TCI_NAMED_COUNT] = {
#define TCI_ROW(id, op, opset, operands, fits, out)                                                \
    [TCI_NAMED_##id] = {op, opset, operands, tci_ox_##fits, tci_ox_##out},
        TCI_OX_NAMED_ROWS(TCI_ROW)
#undef TCI_ROW
    };
    return &rows[n->attr[0]];
}

TCI_FN int tci_ox_named_operands(const tci_node *n, int opset)
{
    const tci_ox_named_row *row = tci_ox_named_row_of(n);
    int operands = row->operands < 0 ? n->n_in + row->operands : row->operands;
    bool fits = row->op && row->opset <= opset && n->dtype == TC_F32;
    for (int i = 0; i < operands && fits; i++) {
        tc_dtype t = (tc_dtype)tci_ox_named_operand(n, i)->dtype;
        fits = t == TC_F32 || (t == TC_BOOL && i == 3);
    }
    return fits && row->fits(n) ? operands : 0;
}

TCI_FN const char *tci_ox_named_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    const tci_ox_named_row *row = tci_ox_named_row_of(n);
    g->opset = TCI_MAX(g->opset, row->opset);
    return row->out(g, row->op, n, in);
}
