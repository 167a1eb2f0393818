/* onnx/import_attention.c - imports ONNX operators of language models: Attention, RotaryEmbedding,
 * causal convolution with state, linear attention. */
#include "operator_table.h"
#include "user_call_site.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- Attention ---- */

/* [batch, rows, heads * width] as [batch, heads, rows, width]. */
static tc_tensor tci_ox_heads(const tci_ox_op *o, tc_tensor x, const char *heads)
{
    int64_t n = tci_ox_int(o, heads, 0);
    if (tc_rank(x) != 3) {
        return x;
    }
    if (n < 1) {
        tci_ox_fail(o, TC_ERR_ARGUMENT, "%s is missing", heads);
    }
    int64_t width = tc_dim_div(tc_size(x, 2), n);
    return tc_permute(tc_reshape(x, tc_size(x, 0), tc_size(x, 1), n, width), 0, 2, 1, 3);
}

typedef struct tci_ox_attention {
    tc_tensor q, k, v;
    tc_tensor seen; /* bool, [..., q, k], or TC_NONE: all */
    tc_tensor bias; /* added to scores, or TC_NONE */
} tci_ox_attention;

static void tci_ox_see(const tci_ox_op *o, tci_ox_attention *a, tc_tensor seen)
{
    a->seen = tci_ox_given(a->seen) ? tc_logical_and(a->seen, seen) : seen;
}

/* The mask of the node, of as many keys as there are. */
static void tci_ox_attention_mask(const tci_ox_op *o, tci_ox_attention *a, int64_t keys)
{
    tc_tensor mask = tci_ox_maybe(o, 3);
    if (!tci_ox_given(mask)) {
        return;
    }
    bool is_bool = tc_dtype_of(mask) == TC_BOOL;
    int64_t more = tc_dim_sub(keys, tc_size(mask, -1));
    if (more != 0 && tc_size(mask, -1) != 1) {
        mask = is_bool ? tc_pad(mask, -1, 0, more, 0) : tc_pad(mask, -1, 0, more, -HUGE_VAL);
    }
    if (is_bool) {
        tci_ox_see(o, a, mask);
    } else {
        a->bias = mask;
    }
}

/* Causal and window bounds, which count from the keys before the first query; and padding. */
static void tci_ox_attention_bounds(const tci_ox_op *o, tci_ox_attention *a, int64_t keys)
{
    int64_t left = tci_ox_int(o, "left_window_size", -1);
    int64_t right = tci_ox_int(o, "right_window_size", -1), rows = tc_size(a->q, 2);
    bool causal = tci_ox_int(o, "is_causal", 0) != 0, padded = tci_ox_has(o, 6);
    tc_tensor key = tci_ox_places(o, keys, 4, 3), row = tci_ox_places(o, rows, 4, 2);
    tc_tensor valid = TC_NONE;
    if (padded) {
        valid = tc_cast(tci_ox_in(o, 6), TC_I64);
        valid = tc_reshape(valid, tc_count(valid), 1, 1, 1);
        row = tc_add(row, tc_sub(valid, rows));
        tci_ox_see(o, a, tc_lt(key, valid));
    } else if (tci_ox_has(o, 4)) {
        row = tc_add(row, tc_size(tci_ox_in(o, 4), 2));
    }
    if (causal) {
        tci_ox_see(o, a, tc_le(key, row));
    }
    if (left >= 0) {
        tci_ox_see(o, a, tc_ge(key, tc_sub(row, left)));
    }
    if (right >= 0) {
        tci_ox_see(o, a, tc_le(key, tc_add(row, right)));
    }
}

static tc_tensor tci_ox_attention_out(const tci_ox_op *o, tc_tensor y)
{
    if (tc_rank(tci_ox_in(o, 0)) == 3) {
        int64_t width = tc_dim_mul(tc_size(y, 1), tc_size(y, 3));
        y = tc_reshape(tc_permute(y, 0, 2, 1, 3), tc_size(y, 0), tc_size(y, 2), width);
    }
    return y;
}

/* Step by step: scores can be capped, and looked at. */
static void tci_ox_attention_steps(const tci_ox_op *o, tci_ox_attention *a, double scale)
{
    tc_dtype d = tc_dtype_of(a->q);
    double cap = tci_ox_real(o, "softcap", 0);
    int64_t mode = tci_ox_int(o, "qk_matmul_output_mode", 0);
    int64_t heads = tc_size(a->q, 1), shared = tc_dim_div(heads, tc_size(a->k, 1));
    tc_dtype inner = tci_ox_attr(o, "softmax_precision")
                         ? tci_ox_dtype(o, tci_ox_int(o, "softmax_precision", 1))
                         : d;
    if (shared != 1) {
        a->k = tc_repeat_interleave(a->k, shared, 1, heads);
        a->v = tc_repeat_interleave(a->v, shared, 1, heads);
    }
    double root = sqrt(scale);
    tc_tensor qk = tc_matmul(tc_mul(a->q, root), tc_transpose(tc_mul(a->k, root), 2, 3));
    qk = cap > 0 ? tc_mul(tc_tanh(tc_div(qk, cap)), cap) : qk;
    tc_tensor shown = qk;
    qk = tci_ox_given(a->bias) ? tc_add(qk, a->bias) : qk;
    qk = tci_ox_given(a->seen) ? tc_where(a->seen, qk, -HUGE_VAL) : qk;
    shown = mode == 2 ? qk : shown;
    tc_tensor p = tc_softmax(tc_cast(qk, inner), 3);
    tc_tensor none = tc_eq(tc_max(qk, TC_AXES(3), true), -HUGE_VAL);
    p = tc_cast(tc_where(none, 0, p), d);
    tci_ox_out(o, 0, tci_ox_attention_out(o, tc_matmul(p, a->v)));
    tci_ox_out(o, 3, mode == 3 ? p : shown);
}

TCI_OX_MAKE(attention)
{
    tci_ox_attention a = {.seen = TC_NONE, .bias = TC_NONE};
    a.q = tci_ox_heads(o, tci_ox_in(o, 0), "q_num_heads");
    a.k = tci_ox_heads(o, tci_ox_in(o, 1), "kv_num_heads");
    a.v = tci_ox_heads(o, tci_ox_in(o, 2), "kv_num_heads");
    a.k = tci_ox_has(o, 4) ? tc_cat(TC_TENSORS(tci_ox_in(o, 4), a.k), 2) : a.k;
    a.v = tci_ox_has(o, 5) ? tc_cat(TC_TENSORS(tci_ox_in(o, 5), a.v), 2) : a.v;
    tci_ox_out(o, 1, a.k);
    tci_ox_out(o, 2, a.v);
    int64_t keys = tc_size(a.k, 2), width = tc_size(a.q, 3);
    double scale = tci_ox_real(o, "scale", 1 / sqrt(tci_dim_is_known(width) ? (double)width : 1));
    tci_ox_attention_mask(o, &a, keys);
    tci_ox_attention_bounds(o, &a, keys);
    if (tci_ox_wants(o, 3) || tci_ox_real(o, "softcap", 0) > 0 || scale == 0) {
        tci_ox_attention_steps(o, &a, scale);
        return;
    }
    tc_tensor mask = a.seen;
    if (tci_ox_given(a.bias)) {
        mask = tci_ox_given(a.seen) ? tc_where(a.seen, a.bias, -HUGE_VAL) : a.bias;
    }
    tc_tensor y = tc_scaled_dot_product_attention(a.q, a.k, a.v, mask, false, scale);
    tci_ox_out(o, 0, tci_ox_attention_out(o, y));
}

/* ---- RotaryEmbedding ---- */

/* Rows of a cache at the positions, next to x [batch, rows, heads, width]. */
static tc_tensor tci_ox_rotation(const tci_ox_op *o, int i)
{
    tc_tensor cache = tci_ox_in(o, i);
    if (tci_ox_has(o, 3)) {
        cache = tc_embedding(tci_ox_in(o, 3), cache);
    }
    return tc_unsqueeze(cache, 2);
}

TCI_OX_MAKE(rotary)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), cosine = tci_ox_rotation(o, 1), sine = tci_ox_rotation(o, 2);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t heads = tci_ox_int(o, "num_heads", 0), part = tci_ox_int(o, "rotary_embedding_dim", 0);
    bool flat = rank == 3, pairs = tci_ox_int(o, "interleaved", 0) != 0;
    if (flat && heads < 1) {
        tci_ox_fail(o, TC_ERR_ARGUMENT, "num_heads is missing");
    }
    x = flat ? tc_reshape(x, sizes[0], sizes[1], heads, tc_dim_div(sizes[2], heads))
             : tc_transpose(x, 1, 2);
    int64_t width = tc_size(x, 3);
    part = part ? part : width;
    tc_tensor turned = tc_slice(x, 3, 0, part, 1), rest = tc_slice(x, 3, part, width, 1);
    int64_t half = tc_dim_div(part, 2);
    tc_tensor a = pairs ? tc_slice(turned, 3, 0, part, 2) : tc_slice(turned, 3, 0, half, 1);
    tc_tensor b = pairs ? tc_slice(turned, 3, 1, part, 2) : tc_slice(turned, 3, half, part, 1);
    tc_tensor real = tc_sub(tc_mul(cosine, a), tc_mul(sine, b));
    tc_tensor imag = tc_add(tc_mul(sine, a), tc_mul(cosine, b));
    if (pairs) {
        turned = tc_reshape(tc_stack(TC_TENSORS(real, imag), 4), tc_size(x, 0), tc_size(x, 1),
                            tc_size(x, 2), part);
    } else {
        turned = tc_cat(TC_TENSORS(real, imag), 3);
    }
    x = part == width ? turned : tc_cat(TC_TENSORS(turned, rest), 3);
    tci_ox_out(o, 0, flat ? tci_ox_shape_as(o, x, 3, sizes) : tc_transpose(x, 1, 2));
}

/* ---- states ---- */

TCI_OX_MAKE(causal_conv)
{
    tc_tensor x = tci_ox_in(o, 0), weight = tci_ox_in(o, 1), bias = tci_ox_maybe(o, 2);
    int64_t k = tc_size(weight, 2), before = tc_dim_sub(k, 1);
    const char *act = tci_ox_text(o, "activation", "none");
    tc_tensor all = tci_ox_has(o, 3) ? tc_cat(TC_TENSORS(tci_ox_in(o, 3), x), 2)
                                     : tc_pad(x, 2, before, 0, 0);
    tc_tensor y = tc_conv1d(all, weight, bias, &(tc_conv){.groups = tc_size(x, 1)});
    y = !strcmp(act, "none") ? y : tc_silu(y);
    tci_ox_out(o, 0, y);
    tci_ox_out(o, 1, tc_slice(all, 2, tc_dim_sub(tc_size(all, 2), before), tc_size(all, 2), 1));
}

/* One step of LinearAttention: carry[0] the state [batch, heads, keys, values]; x: query, key,
 * value, then decay and beta where there are such. */
typedef struct tci_ox_linear {
    tci_ox_op *o;
    bool gates, corrects;
    int64_t shared; /* heads of the query for each of the key */
    double scale;
} tci_ox_linear;

static tc_status tci_ox_linear_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                                    tc_tensor *next, tc_tensor *y)
{
    const tci_ox_linear *l = user;
    const tci_ox_op *o = l->o;
    tc_tensor state = carry[0], k = tc_unsqueeze(x[1], -1), v = tc_unsqueeze(x[2], -2);
    if (l->gates) {
        state = tc_mul(state, tc_unsqueeze(tc_exp(x[3]), -1));
    }
    if (l->corrects) {
        tc_tensor was = tc_sum(tc_mul(state, k), TC_AXES(2), true);
        v = tc_mul(tc_unsqueeze(x[l->gates ? 4 : 3], -1), tc_sub(v, was));
    }
    state = tc_add(state, tc_mul(k, v));
    next[0] = state;
    tc_tensor read = l->shared == 1 ? state
                                    : tc_repeat_interleave(state, l->shared, 1, tc_size(x[0], 1));
    y[0] = tc_mul(tc_sum(tc_mul(read, tc_unsqueeze(x[0], -1)), TC_AXES(2), false), l->scale);
    return TC_OK;
}

/* [batch, steps, heads * width] as [steps, batch, heads, width] in f32. */
static tc_tensor tci_ox_steps(const tci_ox_op *o, tc_tensor x, int64_t heads)
{
    int64_t width = tc_dim_div(tc_size(x, 2), heads);
    x = tc_cast(tc_reshape(x, tc_size(x, 0), tc_size(x, 1), heads, width), TC_F32);
    return tc_transpose(x, 0, 1);
}

TCI_OX_MAKE(linear_attention)
{
    const char *rule = tci_ox_text(o, "update_rule", "gated_delta");
    int64_t q_heads = tci_ox_int(o, "q_num_heads", 0), heads = tci_ox_int(o, "kv_num_heads", 0);
    tci_ox_linear l = {.o = o,
                       .gates = !strncmp(rule, "gated", 5),
                       .corrects = strstr(rule, "delta") != NULL};
    tc_tensor q = tci_ox_in(o, 0), xs[5], last, ys, past = tci_ox_maybe(o, 3);
    int n = 3;
    if (heads < 1 || q_heads < heads || q_heads % heads) {
        tci_ox_fail(o, TC_ERR_ARGUMENT, "%" PRId64 " heads of the query for %" PRId64 " of the key",
                    q_heads, heads);
    }
    l.shared = q_heads / heads;
    xs[0] = tci_ox_steps(o, q, q_heads);
    xs[1] = tci_ox_steps(o, tci_ox_in(o, 1), heads);
    xs[2] = tci_ox_steps(o, tci_ox_in(o, 2), heads);
    if (l.gates) {
        xs[n++] = tci_ox_steps(o, tci_ox_in(o, 4), heads);
    }
    if (l.corrects) {
        tc_tensor beta = tci_ox_in(o, 5);
        xs[n++] = tci_ox_steps(o, beta, tc_size(beta, 2));
    }
    int64_t keys = tc_size(xs[1], 3), values = tc_size(xs[2], 3), batch = tc_size(q, 0);
    l.scale = tci_ox_real(o, "scale", 0);
    l.scale = l.scale != 0 ? l.scale : 1 / sqrt(tci_dim_is_known(keys) ? (double)keys : 1);
    tc_dtype kept = tci_ox_given(past) ? tc_dtype_of(past) : tc_dtype_of(q);
    tc_tensor state = tci_ox_given(past)
                          ? tc_cast(past, TC_F32)
                          : tc_expand(tc_full(o->ctx, 0, TC_F32), batch, heads, keys, values);
    tci_ox_rethrow(o, tc_scan(TC_TENSORS(state), TC_TENSORS_N(xs, n), 0, false, tci_ox_linear_step,
                              &l, &last, &ys, 1));
    ys = tc_reshape(tc_transpose(ys, 0, 1), batch, tc_size(q, 1), tc_dim_mul(q_heads, values));
    tci_ox_out(o, 0, tc_cast(ys, tc_dtype_of(q)));
    tci_ox_out(o, 1, tc_cast(last, kept));
}
