/* api/recurrent.c - recurrent layers: tc_lstm, tc_gru.
 *
 * In: a sequence, the initial states, the weights in PyTorch's order. Out: the state after each
 * step of the last layer, and the last state of every layer.
 *
 * The products of inputs and gate weights depend on no state, so they are one GEMM for all steps,
 * outside of the loop; the loop (tc_scan) has the products with the state. The reverse direction of
 * a bidirectional layer is the same loop over the reversed sequence. */
#include "control_flow.h"
#include "composite_helpers.h"

#include "../base/alloc.h"

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

enum { TCI_RECURRENT_STATES = 2 }; /* of one cell, at most */

/* A kind of cell: how many gates and states it has, and one step of it. */
typedef struct tci_cell {
    const char *name;
    int gates, states;
    tc_scan_body step;
} tci_cell;

/* A call under way. */
typedef struct tci_recurrent {
    tci_made m;
    const tci_cell *cell;
    tc_tensors weights;
    int sides, tensors, layers;            /* 2: both ways; how many tensors a side has */
    int64_t width;                         /* of a state */
    tc_tensor given[TCI_RECURRENT_STATES]; /* [layers * sides, batch, width], or TC_NONE */
    tc_tensor *last[TCI_RECURRENT_STATES]; /* one for each layer and side */
} tci_recurrent;

/* One side of one layer: what its steps use. */
typedef struct tci_recurrent_side {
    const tci_recurrent *r;
    tc_tensor hidden, bias; /* [width, gates * width], and [gates * width] or TC_NONE */
} tci_recurrent_side;

/* Number i of the gates of one step, [batch, width]. */
static tc_tensor tci_recurrent_gate(const tci_recurrent *r, tc_tensor all, int i)
{
    tc_site here = r->m.here;
    return tc_slice(all, 1, tc_dim_mul(i, r->width), tc_dim_mul(i + 1, r->width), 1);
}

/* Contribution of the state to the gates. */
static tc_tensor tci_recurrent_of_state(const tci_recurrent_side *s, tc_tensor h)
{
    tc_site here = s->r->m.here;
    tc_tensor y = tc_matmul(h, s->hidden);
    return tci_is_none(s->bias) ? y : tc_add(y, s->bias);
}

static tc_status tci_lstm_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                               tc_tensor *next, tc_tensor *y)
{
    const tci_recurrent_side *s = (const tci_recurrent_side *)user;
    tc_site here = s->r->m.here;
    tc_tensor all = tc_add(x[0], tci_recurrent_of_state(s, carry[0]));
    tc_tensor in = tc_sigmoid(tci_recurrent_gate(s->r, all, 0));
    tc_tensor keep = tc_sigmoid(tci_recurrent_gate(s->r, all, 1));
    tc_tensor fresh = tc_tanh(tci_recurrent_gate(s->r, all, 2));
    tc_tensor out = tc_sigmoid(tci_recurrent_gate(s->r, all, 3));
    next[1] = tc_add(tc_mul(keep, carry[1]), tc_mul(in, fresh));
    next[0] = y[0] = tc_mul(out, tc_tanh(next[1]));
    return TC_OK;
}

static tc_status tci_gru_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                              tc_tensor *next, tc_tensor *y)
{
    const tci_recurrent_side *s = (const tci_recurrent_side *)user;
    tc_site here = s->r->m.here;
    tc_tensor kept = tci_recurrent_of_state(s, carry[0]), gate[2];
    for (int i = 0; i < 2; i++) {
        gate[i] = tc_sigmoid(
            tc_add(tci_recurrent_gate(s->r, x[0], i), tci_recurrent_gate(s->r, kept, i)));
    }
    tc_tensor fresh = tc_tanh(tc_add(tci_recurrent_gate(s->r, x[0], 2),
                                     tc_mul(gate[0], tci_recurrent_gate(s->r, kept, 2))));
    next[0] = y[0] = tc_add(fresh, tc_mul(gate[1], tc_sub(carry[0], fresh)));
    return TC_OK;
}

static const tci_cell tci_cell_lstm = {"tc_lstm", 4, 2, tci_lstm_step};
static const tci_cell tci_cell_gru = {"tc_gru", 3, 1, tci_gru_step};

/* ---- checks ---- */

static bool tci_recurrent_has_shape(tc_tensor t, int rank, const int64_t *sizes)
{
    bool same = tc_rank(t) == rank;
    for (int i = 0; same && i < rank; i++) {
        same = tc_size(t, i) == sizes[i];
    }
    return same;
}

/* The tensors of a side, where layers read `in` numbers. False: *bad is the one that does not
 * fit. */
static bool tci_recurrent_fits(tci_recurrent *r, int side, int64_t in, tc_tensor *bad)
{
    static const char *const roles[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    for (int i = 0; i < r->tensors; i++) {
        const int at = side * r->tensors + i, rank = i < 2 ? 2 : 1;
        const int64_t sizes[2] = {tc_dim_mul(r->cell->gates, r->width), i ? r->width : in};
        const tc_tensor w = r->weights.items[at];
        if (!tci_recurrent_has_shape(w, rank, sizes)) {
            *bad = tci_made_fail(&r->m, TC_ERR_SHAPE,
                                 "weight %d (%s of layer %d%s) has shape %s: "
                                 "expected %s (%d gates, states of %s)",
                                 at, roles[i], side / r->sides,
                                 side % r->sides ? ", backwards" : "", tci_made_shape(w).text,
                                 tci_shape_text_of(rank, tci_dim_list(sizes)).text, r->cell->gates,
                                 TCI_DIM_TEXT(r->width));
            return false;
        }
    }
    return true;
}

/* States before the first step, where they are given. */
static bool tci_recurrent_check_states(tci_recurrent *r, tc_tensor x, tc_tensor *bad)
{
    const int64_t sizes[3] = {r->layers * r->sides, tc_size(x, 1), r->width};
    for (int i = 0; i < r->cell->states; i++) {
        const tc_tensor h = r->given[i];
        if (tci_is_none(h) || tci_recurrent_has_shape(h, 3, sizes)) {
            continue;
        }
        *bad = tc_status_of(h) ? tc_neg_at(tci_arg_tensor(h), r->m.here)
                               : tci_made_fail(&r->m, TC_ERR_SHAPE,
                                               "state %d before the first "
                                               "step has shape %s: expected %s (layers, batch, "
                                               "width)",
                                               i + 1, tci_made_shape(h).text,
                                               tci_shape_text_of(3, tci_dim_list(sizes)).text);
        return false;
    }
    return true;
}

/* Finds out how many layers there are. x is [steps, batch, in]. */
static bool tci_recurrent_check(tci_recurrent *r, tc_tensor x, tc_tensor *bad)
{
    const tc_tensors w = r->weights;
    for (int i = 0; i < w.n; i++) {
        if (tc_status_of(w.items[i])) {
            *bad = tc_neg_at(tci_arg_tensor(w.items[i]), r->m.here);
            return false;
        }
    }
    r->tensors = w.n > 2 && tc_rank(w.items[2]) == 1 ? 4 : 2; /* with biases, or without */
    r->layers = w.n / (r->sides * r->tensors);
    if (!r->layers || r->layers * r->sides * r->tensors != w.n || tc_rank(w.items[1]) != 2) {
        *bad = tci_made_fail(&r->m, TC_ERR_ARGUMENT,
                             "given %d weights: expected weight_ih, "
                             "weight_hh and, if any, bias_ih, bias_hh of each layer%s",
                             w.n, r->sides > 1 ? ", of both ways" : "");
        return false;
    }
    r->width = tc_size(w.items[1], 1);
    int64_t in = tc_size(x, 2);
    for (int side = 0; side < r->layers * r->sides; side++) {
        in = side == r->sides ? tc_dim_mul(r->sides, r->width) : in;
        if (!tci_recurrent_fits(r, side, in, bad)) {
            return false;
        }
    }
    return tci_recurrent_check_states(r, x, bad);
}

/* ---- layers ---- */

/* [steps, batch, width] of one side, which reads x [steps, batch, in]. */
static tc_tensor tci_recurrent_side_of(tci_recurrent *r, tc_tensor x, int side)
{
    tc_site here = r->m.here;
    tc_tensor w[4], carry[TCI_RECURRENT_STATES], last[TCI_RECURRENT_STATES], y = TC_NONE;
    for (int i = 0; i < r->tensors; i++) {
        w[i] = tci_made_wide(&r->m, r->weights.items[side * r->tensors + i]);
    }
    for (int i = 0; i < r->cell->states; i++) {
        carry[i] = tci_is_none(r->given[i])
                       ? tc_full(r->m.ctx->handle, 0, tc_dtype_of(x), tc_size(x, 1), r->width)
                       : tc_select(tci_made_wide(&r->m, r->given[i]), 0, side);
    }
    tci_recurrent_side s = {r, tc_transpose(w[1], 0, 1), r->tensors > 2 ? w[3] : TC_NONE};
    tc_tensor gates = tc_linear(x, w[0], r->tensors > 2 ? w[2] : TC_NONE);
    tc_scan(TC_TENSORS_N(carry, r->cell->states), TC_TENSORS(gates), 0, side % r->sides == 1,
            r->cell->step, &s, last, &y, 1);
    for (int i = 0; i < r->cell->states; i++) {
        r->last[i][side] = last[i];
    }
    return y;
}

/* The output of the last layer, or a poisoned handle. */
static tc_tensor tci_recurrent_layers(tci_recurrent *r, tc_tensor x)
{
    tc_site here = r->m.here;
    for (int layer = 0; layer < r->layers && !tc_status_of(x); layer++) {
        tc_tensor sides[2];
        for (int i = 0; i < r->sides; i++) {
            sides[i] = tci_recurrent_side_of(r, x, layer * r->sides + i);
        }
        x = r->sides == 1 ? sides[0] : tc_cat(TC_TENSORS(sides[0], sides[1]), 2);
    }
    return x;
}

static void tci_recurrent_set(const tci_cell *cell, tc_tensor bad, tc_tensor *output,
                              tc_tensor *const *states)
{
    for (int i = 0; i < cell->states; i++) {
        if (states[i]) {
            *states[i] = bad;
        }
    }
    if (output) {
        *output = bad;
    }
}

/* x [steps, batch, in] from here on. */
static void tci_recurrent_run(tci_recurrent *r, tc_tensor x, bool batch_first, bool one,
                              tc_tensor *output, tc_tensor *const *states)
{
    tc_site here = r->m.here;
    tc_tensor bad;
    if (!tci_recurrent_check(r, x, &bad)) {
        tci_recurrent_set(r->cell, tci_made_end(&r->m, bad), output, states);
        return;
    }
    const int n = r->layers * r->sides;
    tc_tensor *last = (tc_tensor *)tci_heap_get(TCI_RECURRENT_STATES * (size_t)n * sizeof(*last));
    if (!last) {
        bad = tci_made_fail(&r->m, TC_ERR_MEMORY, "out of memory");
        tci_recurrent_set(r->cell, bad, output, states);
        return;
    }
    for (int i = 0; i < r->cell->states; i++) {
        r->last[i] = last + i * n;
    }
    tc_tensor y = tci_recurrent_layers(r, x);
    for (int i = 0; i < r->cell->states; i++) {
        if (states[i]) {
            tc_tensor all = tc_status_of(y) ? y : tc_stack(TC_TENSORS_N(r->last[i], n), 0);
            *states[i] = tc_cast(one ? tc_squeeze(all, 1) : all, r->m.dtype);
        }
    }
    y = one ? tc_squeeze(y, 1) : batch_first ? tc_transpose(y, 0, 1) : y;
    if (output) {
        *output = tc_cast(y, r->m.dtype);
    }
    tci_heap_free(last);
    tci_made_end(&r->m, y);
}

static void tci_recurrent_call(const tci_cell *cell, tc_tensor x, const tc_tensor *given,
                               tc_tensors weights, bool bidirectional, bool batch_first,
                               tc_tensor *output, tc_tensor *const *states, tc_site here)
{
    tci_recurrent r = {.cell = cell, .weights = weights, .sides = bidirectional ? 2 : 1};
    if (!tci_made_begin(&r.m, cell->name, x, here)) {
        tci_recurrent_set(cell, r.m.bad, output, states);
        return;
    }
    if (!tci_made_list(&r.m, weights.items, weights.n, "the weights")) {
        tci_recurrent_set(cell, r.m.bad, output, states);
        return;
    }
    const bool one = tc_rank(x) == 2;
    if (!one && tc_rank(x) != 3) {
        tc_tensor bad = tci_made_fail(&r.m, TC_ERR_SHAPE,
                                      "x has rank %d: expected [steps, batch, "
                                      "inputs] or [steps, inputs]",
                                      tc_rank(x));
        tci_recurrent_set(cell, bad, output, states);
        return;
    }
    for (int i = 0; i < cell->states; i++) {
        r.given[i] = tci_is_none(given[i]) || !one ? given[i] : tc_unsqueeze(given[i], 1);
    }
    x = tci_made_wide(&r.m, x);
    x = one ? tc_unsqueeze(x, 1) : batch_first ? tc_transpose(x, 0, 1) : x;
    tci_recurrent_run(&r, x, batch_first, one, output, states);
}

TC_API void tc_lstm_at(tc_tensor x, tc_tensor h0, tc_tensor c0, tc_tensors weights,
                       bool bidirectional, bool batch_first, tc_tensor *output, tc_tensor *h,
                       tc_tensor *c, tc_site here)
{
    tci_recurrent_call(&tci_cell_lstm, x, (tc_tensor[]){h0, c0}, weights, bidirectional,
                       batch_first, output, (tc_tensor *[]){h, c}, here);
}

TC_API void tc_gru_at(tc_tensor x, tc_tensor h0, tc_tensors weights, bool bidirectional,
                      bool batch_first, tc_tensor *output, tc_tensor *h, tc_site here)
{
    tci_recurrent_call(&tci_cell_gru, x, &h0, weights, bidirectional, batch_first, output, &h,
                       here);
}

#pragma pop_macro("TC_HERE")
