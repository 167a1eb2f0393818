/* onnx/import_recurrent.c - imports the ONNX operators RNN, GRU and LSTM as a tc_scan for each
 * direction.
 *
 * Input projections of all steps are computed up front; each step adds the recurrent projection.
 * Sequences of a batch may end early: past its end the state is carried unchanged and outputs are
 * 0. */
#include "operator_table.h"
#include "user_call_site.h"

#include <math.h>
#include <string.h>

typedef struct tci_ox_rnn {
    const tci_ox_op *o;
    int gates; /* 1: RNN, 3: GRU, 4: LSTM */
    int64_t width;
    tc_tensor r;       /* weights of the state, transposed: [width, gates * width] */
    tc_tensor rb;      /* their bias [gates * width], or TC_NONE */
    tc_tensor peep[3]; /* of input, output and forget gate, or TC_NONE */
    tc_tensor lengths; /* [batch, 1], or TC_NONE */
    const char *act[3];
    double alpha[3], beta[3], clip;
    bool couples, linear; /* input_forget, linear_before_reset */
} tci_ox_rnn;

/* X(name, alpha, beta, value of x) */
#define TCI_OX_ACTIVATIONS(X)                                                                      \
    X(Sigmoid, 0, 0, tc_sigmoid(x))                                                                \
    X(Tanh, 0, 0, tc_tanh(x))                                                                      \
    X(Relu, 0, 0, tc_relu(x))                                                                      \
    X(Affine, 1, 0, tc_add(tc_mul(x, a), b))                                                       \
    X(LeakyRelu, 0.01, 0, tc_leaky_relu(x, a))                                                     \
    X(ThresholdedRelu, 1, 0, tc_where(tc_gt(x, a), x, 0))                                          \
    X(ScaledTanh, 1, 1, tc_mul(tc_tanh(tc_mul(x, b)), a))                                          \
    X(HardSigmoid, 0.2, 0.5, tc_clamp(tc_add(tc_mul(x, a), b), 0, 1))                              \
    X(Elu, 1, 0, tc_elu(x, a))                                                                     \
    X(Softsign, 0, 0, tc_div(x, tc_add(tc_abs(x), 1)))                                             \
    X(Softplus, 0, 0, tc_log1pexp(x))

static tc_tensor tci_ox_activate(const tci_ox_rnn *n, int i, tc_tensor x)
{
    const tci_ox_op *o = n->o;
    double a = n->alpha[i], b = n->beta[i];
    (void)a;
    (void)b;
    x = n->clip > 0 ? tc_clamp(x, -n->clip, n->clip) : x;
#define TCI_ROW(name, alpha, beta, value)                                                          \
    if (!strcmp(n->act[i], #name)) {                                                               \
        return value;                                                                              \
    }
    TCI_OX_ACTIVATIONS(TCI_ROW)
#undef TCI_ROW
    return x;
}

static tc_tensor tci_ox_gate(const tci_ox_rnn *n, tc_tensor all, int i)
{
    const tci_ox_op *o = n->o;
    return tc_slice(all, 1, tc_dim_mul(n->width, i), tc_dim_mul(n->width, i + 1), 1);
}

static tc_tensor tci_ox_peep(const tci_ox_rnn *n, tc_tensor x, int i, tc_tensor c)
{
    const tci_ox_op *o = n->o;
    return tci_ox_given(n->peep[i]) ? tc_add(x, tc_mul(n->peep[i], c)) : x;
}

/* Gates: input, output, forget, cell. */
static void tci_ox_lstm_step(const tci_ox_rnn *n, const tc_tensor *carry, tc_tensor x, tc_tensor *h,
                             tc_tensor *c)
{
    const tci_ox_op *o = n->o;
    x = tc_add(x, tc_matmul(carry[0], n->r));
    tc_tensor i = tci_ox_activate(n, 0, tci_ox_peep(n, tci_ox_gate(n, x, 0), 0, carry[1]));
    tc_tensor f = tci_ox_activate(n, 0, tci_ox_peep(n, tci_ox_gate(n, x, 2), 2, carry[1]));
    f = n->couples ? tc_sub(1, i) : f;
    tc_tensor g = tci_ox_activate(n, 1, tci_ox_gate(n, x, 3));
    *c = tc_add(tc_mul(f, carry[1]), tc_mul(i, g));
    tc_tensor q = tci_ox_activate(n, 0, tci_ox_peep(n, tci_ox_gate(n, x, 1), 1, *c));
    *h = tc_mul(q, tci_ox_activate(n, 2, *c));
}

/* Gates: update, reset, hidden. */
static void tci_ox_gru_step(const tci_ox_rnn *n, const tc_tensor *carry, tc_tensor x, tc_tensor *h)
{
    const tci_ox_op *o = n->o;
    tc_tensor was = carry[0], by = tc_matmul(was, n->r);
    by = tci_ox_given(n->rb) ? tc_add(by, n->rb) : by;
    tc_tensor z = tci_ox_activate(n, 0, tc_add(tci_ox_gate(n, x, 0), tci_ox_gate(n, by, 0)));
    tc_tensor r = tci_ox_activate(n, 0, tc_add(tci_ox_gate(n, x, 1), tci_ox_gate(n, by, 1)));
    tc_tensor hidden = tc_mul(r, tci_ox_gate(n, by, 2));
    if (!n->linear) {
        tc_tensor w = tc_slice(n->r, 1, tc_dim_mul(n->width, 2), tc_dim_mul(n->width, 3), 1);
        hidden = tc_matmul(tc_mul(r, was), w);
        hidden = tci_ox_given(n->rb) ? tc_add(hidden, tc_slice(n->rb, 0, tc_dim_mul(n->width, 2),
                                                               tc_dim_mul(n->width, 3), 1))
                                     : hidden;
    }
    hidden = tci_ox_activate(n, 1, tc_add(tci_ox_gate(n, x, 2), hidden));
    *h = tc_add(tc_mul(tc_sub(1, z), hidden), tc_mul(z, was));
}

static tc_status tci_ox_rnn_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                                 tc_tensor *next, tc_tensor *y)
{
    const tci_ox_rnn *n = user;
    const tci_ox_op *o = n->o;
    if (n->gates == 4) {
        tci_ox_lstm_step(n, carry, x[0], &next[0], &next[1]);
    } else if (n->gates == 3) {
        tci_ox_gru_step(n, carry, x[0], &next[0]);
    } else {
        next[0] = tci_ox_activate(n, 0, tc_add(x[0], tc_matmul(carry[0], n->r)));
    }
    y[0] = next[0];
    if (tci_ox_given(n->lengths)) {
        tc_tensor goes = tc_lt(x[1], n->lengths);
        y[0] = tc_where(goes, next[0], 0);
        for (int i = 0; i < (n->gates == 4 ? 2 : 1); i++) {
            next[i] = tc_where(goes, next[i], carry[i]);
        }
    }
    return TC_OK;
}

/* Activations of direction d, or the usual ones. */
static void tci_ox_rnn_activations(const tci_ox_op *o, tci_ox_rnn *n, int d)
{
    static const char *const usual[5][3] = {{NULL},
                                            {"Tanh"},
                                            {NULL},
                                            {"Sigmoid", "Tanh"},
                                            {"Sigmoid", "Tanh", "Tanh"}};
    const tci_onnx_attr *names = tci_ox_attr(o, "activations");
    const tci_onnx_attr *alphas = tci_ox_attr(o, "activation_alpha");
    const tci_onnx_attr *betas = tci_ox_attr(o, "activation_beta");
    int each = n->gates == 1 ? 1 : n->gates - 1;
    bool lists = (!names || names->kind == TCI_ONNX_STRINGS) &&
                 (!alphas || alphas->kind == TCI_ONNX_FLOATS) &&
                 (!betas || betas->kind == TCI_ONNX_FLOATS);
    if (!lists) {
        tci_ox_fail(o, TC_ERR_IO, "activations of another type than the op says");
    }
    for (int i = 0; i < each; i++) {
        int at = d * each + i;
        bool known = false;
        n->act[i] = names && at < names->n ? names->strings[at] : usual[n->gates][i];
#define TCI_ROW(name, a, b, value)                                                                 \
    if (!strcmp(n->act[i], #name)) {                                                               \
        known = true;                                                                              \
        n->alpha[i] = a;                                                                           \
        n->beta[i] = b;                                                                            \
    }
        TCI_OX_ACTIVATIONS(TCI_ROW)
#undef TCI_ROW
        if (!known) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "activation %.40s is not supported", n->act[i]);
        }
        n->alpha[i] = alphas && at < alphas->n ? alphas->floats[at] : n->alpha[i];
        n->beta[i] = betas && at < betas->n ? betas->floats[at] : n->beta[i];
    }
}

/* Element d of the first axis, or TC_NONE of none. */
static tc_tensor tci_ox_direction(const tci_ox_op *o, int i, int d)
{
    return tci_ox_has(o, i) ? tc_select(tci_ox_in(o, i), 0, d) : TC_NONE;
}

/* x [steps, batch, inputs] through direction d. */
static void tci_ox_rnn_run(tci_ox_op *o, tci_ox_rnn *n, tc_tensor x, int d, bool reverse,
                           tc_tensor init[2], tc_tensor *ys, tc_tensor last[2])
{
    tc_tensor w = tci_ox_direction(o, 1, d), bias = tci_ox_direction(o, 3, d), xs[2];
    int64_t gates = tc_dim_mul(n->width, n->gates);
    n->r = tc_transpose(tci_ox_direction(o, 2, d), 0, 1);
    n->rb = TC_NONE;
    xs[0] = tc_matmul(x, tc_transpose(w, 0, 1));
    if (tci_ox_given(bias)) {
        tc_tensor rb = tc_slice(bias, 0, gates, tc_dim_mul(gates, 2), 1);
        xs[0] = tc_add(xs[0], tc_slice(bias, 0, 0, gates, 1));
        n->rb = n->gates == 3 ? rb : TC_NONE;
        xs[0] = n->gates == 3 ? xs[0] : tc_add(xs[0], rb);
    }
    for (int i = 0; i < 3; i++) {
        tc_tensor p = n->gates == 4 ? tci_ox_direction(o, 7, d) : TC_NONE;
        n->peep[i] = tci_ox_given(p)
                         ? tc_slice(p, 0, tc_dim_mul(n->width, i), tc_dim_mul(n->width, i + 1), 1)
                         : TC_NONE;
    }
    xs[1] = tci_ox_places(o, tc_size(x, 0), 1, 0);
    tci_ox_rnn_activations(o, n, d);
    int states = n->gates == 4 ? 2 : 1, n_xs = tci_ox_given(n->lengths) ? 2 : 1;
    tci_ox_rethrow(o, tc_scan(TC_TENSORS_N(init, states), TC_TENSORS_N(xs, n_xs), 0, reverse,
                              tci_ox_rnn_step, n, last, ys, 1));
}

/* State i before the first step, of direction d; it has batch first if `layout`. */
static tc_tensor tci_ox_rnn_init(const tci_ox_op *o, const tci_ox_rnn *n, tc_tensor x, int i, int d,
                                 bool layout)
{
    if (!tci_ox_has(o, i)) {
        return tc_expand(tc_full(o->ctx, 0, tc_dtype_of(x)), tc_size(x, 1), n->width);
    }
    return tc_select(tci_ox_in(o, i), layout ? 1 : 0, d);
}

TCI_OX_MAKE(rnn)
{
    const char *way = tci_ox_text(o, "direction", "forward");
    tci_ox_rnn n = {.o = o, .gates = o->row->call[0] - '0', .lengths = TC_NONE};
    tc_tensor x = tci_ox_in(o, 0), ys[2], last[2][2];
    bool layout = tci_ox_int(o, "layout", 0) != 0;
    int ways = strcmp(way, "bidirectional") ? 1 : 2;
    n.width = tc_size(tci_ox_in(o, 2), 2);
    n.clip = tci_ox_real(o, "clip", 0);
    n.couples = tci_ox_int(o, "input_forget", 0) != 0;
    n.linear = tci_ox_int(o, "linear_before_reset", 0) != 0;
    x = layout ? tc_transpose(x, 0, 1) : x;
    if (tci_ox_has(o, 4)) {
        n.lengths = tc_unsqueeze(tc_cast(tci_ox_in(o, 4), TC_I64), 1);
    }
    for (int d = 0; d < ways; d++) {
        bool reverse = d == 1 || !strcmp(way, "reverse");
        tc_tensor init[2] = {tci_ox_rnn_init(o, &n, x, 5, d, layout), TC_NONE};
        if (n.gates == 4) {
            init[1] = tci_ox_rnn_init(o, &n, x, 6, d, layout);
        }
        tci_ox_rnn_run(o, &n, x, d, reverse, init, &ys[d], last[d]);
    }
    tc_tensor y = tc_stack(TC_TENSORS_N(ys, ways), 1);
    tci_ox_out(o, 0, layout ? tc_permute(y, 2, 0, 1, 3) : y);
    for (int i = 0; i < (n.gates == 4 ? 2 : 1); i++) {
        tc_tensor ends[2] = {last[0][i], ways == 2 ? last[1][i] : TC_NONE};
        tci_ox_out(o, i + 1, tc_stack(TC_TENSORS_N(ends, ways), layout ? 1 : 0));
    }
}
