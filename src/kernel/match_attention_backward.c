/* kernel/match_attention_backward.c - matches the kernels of fused attention gradients, for GPUs.
 *
 * In: a kernel, the machine. Out: whether it is, in stages of any order,
 *
 *     s   = DOT of rows and steps over d, keeping the steps
 *     w   = exp(x - m) / l, x a value made of s, m and l per-query values; rounded or not,
 *           kept
 *     g   = DOT of other rows and steps over dv, keeping the steps
 *     c   = a value made of w, g and per-query values, kept
 *     o   = DOT over the steps of c, rounded to the steps' dtype, and the steps of s
 *     p   = DOT over the steps of w, rounded likewise, and the steps of g; or there is none
 *     stores of values made of o or p
 *
 * or without g, c and o; and its products as a matrix unit takes them (f32 is not rounded). If the
 * steps are keys this is the gradient to queries, else the one to keys and values, or, in wide
 * heads, to one of these. The answer is a function of shape, layout, dtype and the kind of
 * machine, and loop/ can schedule every kernel that matches. */
#include "match_attention_backward.h"

#include <string.h>

/* State of the match. Reductions by number, -1: none yet. */
typedef struct tci_attn_grad_search {
    const tci_kernel *k;
    int in[2], out[2]; /* out[0] takes c, out[1] takes w; or, n_in == 1, out[0] */
    int n_in, n_out;
    uint64_t weights; /* kept values that are the weight, rounded or not, */
    int change;       /* and the change of a score */
    int steps;        /* their axis */
    int8_t dtype;
} tci_attn_grad_search;

/* ---- the stages ---- */

static bool tci_attn_grad_is_load(const tci_kernel *k, int inst)
{
    return k->insts[inst].op == TCI_K_LOAD;
}

/* A DOT of two loads, a DOT of one, or one value kept as it is. */
static bool tci_attn_grad_sort(tci_attn_grad_search *f, int r)
{
    const tci_kred *red = &f->k->reds[r];
    const tci_kstage *st = &f->k->stages[red->stage];
    if (red->dtype != TC_F32 || st->kind != TCI_STAGE_REDUCE || st->n_kept != 1) {
        return false;
    }
    if (red->op == TCI_RED_MAX) {
        return st->n_axes == 1;
    }
    int loads = tci_attn_grad_is_load(f->k, red->in[0]) + tci_attn_grad_is_load(f->k, red->in[1]);
    if (red->op != TCI_RED_DOT || st->n_axes != 2 || loads == 0) {
        return false;
    }
    int *n = loads == 2 ? &f->n_in : &f->n_out;
    if (*n == 2) {
        return false;
    }
    (loads == 2 ? f->in : f->out)[(*n)++] = r;
    return true;
}

static bool tci_attn_grad_has_form(tci_attn_grad_search *f)
{
    const tci_kernel *k = f->k;
    bool fits = k->vector == TCI_VEC_INNER && tci_attention_has_sizes(k);
    for (int r = 0; r < k->n_reds && fits; r++) {
        fits = tci_attn_grad_sort(f, r);
    }
    if (!fits || f->n_in == 0 || f->n_out == 0) {
        return false;
    }
    f->steps = k->stages[k->reds[f->in[0]].stage].axes[1];
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kstage *st = &k->stages[k->reds[r].stage];
        bool is_in = r == f->in[0] || r == f->in[1];
        fits = fits && st->axes[is_in] == f->steps;
    }
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *st = &k->stages[t];
        bool is_map = st->kind == TCI_STAGE_MAP && st->n_axes == 1 && st->axes[0] != f->steps;
        fits = fits && (st->kind == TCI_STAGE_REDUCE || is_map);
    }
    for (int i = 0; i < k->n_kx; i++) {
        fits = fits && (k->kx[i].op != TCI_KX_VALUE || k->kx[i].stage < 0);
    }
    return fits;
}

/* ---- the values ---- */

/* The value of an element of kept reduction r, without a rounding to t, which *rounds reports, and
 * without the reductions that keep it before. */
static int tci_attn_grad_kept(const tci_attn_grad_search *f, int r, bool *rounds)
{
    const tci_kernel *k = f->k;
    *rounds = false;
    for (;;) {
        int of = tci_attention_rounded(k, k->reds[r].in[0], f->dtype);
        *rounds |= of != k->reds[r].in[0];
        if (k->insts[of].op != TCI_K_RED) {
            return of;
        }
        int before = tci_kinst_number(&k->insts[of]);
        if (k->reds[before].op != TCI_RED_MAX) {
            return of;
        }
        r = before;
    }
}

/* True if value i depends on a query alone, along its axis `query`. */
static bool tci_attn_grad_is_own(const tci_kernel *k, int i, const tci_attn_grad *x, int query)
{
    uint64_t own = (uint64_t)1 << query;
    for (int b = 0; b < x->in[0].n_batch; b++) {
        own |= (uint64_t)1 << x->in[0].batch_axis[b];
    }
    return k->insts[i].stage < 0 && (k->insts[i].axes & ~own) == 0 &&
           (k->insts[i].axes >> query & 1);
}

/* The value that is a weight, and where it is kept, if it is. */
static bool tci_attn_grad_has_weight(tci_attn_grad_search *f, tci_attn_grad *x)
{
    const tci_kernel *k = f->k;
    x->weight = -1;
    for (int i = 0; i < k->n_insts && x->weight < 0; i++) {
        int e, l;
        bool is_weight = tci_attention_weight(k, i, &e, &l);
        const tci_kinst *off = is_weight ? tci_attention_exponent(k, e) : NULL;
        if (off) {
            x->score = off->args[0];
            x->values[0] = off->args[1];
            x->values[1] = l;
            x->n_values = 2;
            x->weight = i;
        }
    }
    for (int r = 0; r < k->n_reds; r++) {
        bool rounds, kept = k->reds[r].op == TCI_RED_MAX;
        kept = kept && tci_attn_grad_kept(f, r, &rounds) == x->weight;
        f->weights |= kept ? (uint64_t)1 << TCI_MIN(r, 63) : 0;
    }
    return x->weight >= 0;
}

/* Finds the operand of each product; out[0] is the product with the gradients of scores, if there
 * are any. */
static bool tci_attn_grad_has_takers(tci_attn_grad_search *f, tci_attn_grad *x)
{
    const tci_kernel *k = f->k;
    int found[2] = {-1, -1};
    for (int i = 0; i < f->n_out; i++) {
        const tci_kred *red = &k->reds[f->out[i]];
        int taken = red->in[tci_attn_grad_is_load(k, red->in[0])];
        int of = tci_attention_rounded(k, taken, f->dtype);
        const tci_kinst *in = &k->insts[of];
        int r = in->op == TCI_K_RED ? tci_kinst_number(in) : -1;
        bool rounds = false, kept = r >= 0 && k->reds[r].op == TCI_RED_MAX;
        int which = kept && (f->weights >> TCI_MIN(r, 63) & 1);
        if (kept) {
            tci_attn_grad_kept(f, r, &rounds);
        }
        bool fits = rounds || of != taken || f->dtype == TC_F32;
        if (!kept || !fits || found[which] >= 0) {
            return false;
        }
        found[which] = f->out[i];
        f->change = which == 0 ? r : f->change;
    }
    bool changes = found[0] >= 0;
    f->out[0] = found[!changes];
    f->out[1] = changes ? found[1] : -1;
    if (changes) { /* it is rounded as a factor is */
        x->change = tci_attention_rounded(k, k->reds[f->change].in[0], f->dtype);
    }
    return f->n_in == 1 + changes;
}

/* Marks what value i is made of, down to reductions other than kept ones, to `stop` and to kept
 * values of it, `stops`, and to values of a query alone, which it adds. */
typedef struct tci_attn_grad_walk {
    const tci_attn_grad_search *f;
    tci_attn_grad *x;
    int query; /* its axis; -1: values of a query are nothing special */
    bool *seen;
    int stop;       /* an instruction that is not gone through, -1: none, */
    uint64_t stops; /* nor are these reductions */
    uint64_t reds;  /* that were met, */
    bool stopped;   /* and whether `stop` was */
    bool fits;
} tci_attn_grad_walk;

static void tci_attn_grad_go(tci_attn_grad_walk *w, int i)
{
    const tci_kernel *k = w->f->k;
    const tci_kinst *in = &k->insts[i];
    if (w->seen[i]) {
        return;
    }
    w->seen[i] = true;
    if (i == w->stop) {
        w->stopped = true;
        return;
    }
    if (in->op == TCI_K_RED) {
        int r = tci_kinst_number(in);
        bool through = k->reds[r].op == TCI_RED_MAX && !(w->stops >> TCI_MIN(r, 63) & 1);
        w->reds |= through ? 0 : (uint64_t)1 << TCI_MIN(r, 63);
        if (through) {
            tci_attn_grad_go(w, k->reds[r].in[0]);
        }
        return;
    }
    if (w->query >= 0 && tci_attn_grad_is_own(k, i, w->x, w->query)) {
        w->fits = w->fits && w->x->n_values < TCI_BACKWARD_VALUES;
        w->x->values[w->fits ? w->x->n_values++ : 0] = i;
        return;
    }
    for (int a = 0; a < in->n_args; a++) {
        tci_attn_grad_go(w, in->args[a]);
    }
}

static tci_attn_grad_walk tci_attn_grad_walk_of(const tci_attn_grad_search *f, tci_attn_grad *x,
                                                int query, int stop, uint64_t stops)
{
    bool *seen = TCI_NEW_ARRAY(f->k->s, bool, f->k->n_insts + 1);
    tci_attn_grad_walk w = {f, x, query, seen, stop, stops, 0, false, true};
    return w;
}

/* Orders the first products so that the one that computes the scores comes first. */
static bool tci_attn_grad_orders_in(tci_attn_grad_search *f, tci_attn_grad *x)
{
    tci_attn_grad_walk w = tci_attn_grad_walk_of(f, x, -1, -1, 0);
    tci_attn_grad_go(&w, x->score);
    for (int i = 0; i < f->n_in; i++) {
        if (w.reds == (uint64_t)1 << TCI_MIN(f->in[i], 63)) {
            int other = f->in[1 - i];
            f->in[0] = f->in[i];
            f->in[1] = other;
            x->scores = f->k->reds[f->in[0]].inst;
            x->changes = f->n_in > 1 ? f->k->reds[other].inst : -1;
            return true;
        }
    }
    return false;
}

/* The change of a score is made of the weight, as it is or as it is kept, of the other product and
 * values of a query. */
static bool tci_attn_grad_has_change(tci_attn_grad_search *f, tci_attn_grad *x, int query)
{
    tci_attn_grad_walk w = tci_attn_grad_walk_of(f, x, query, x->weight, f->weights);
    tci_attn_grad_go(&w, x->change);
    uint64_t other = (uint64_t)1 << TCI_MIN(f->in[1], 63), met = w.reds & f->weights;
    bool takes_kept = !w.stopped && met && (met & (met - 1)) == 0 && w.reds == (met | other);
    for (int r = 0; r < f->k->n_reds && takes_kept; r++) {
        if (met >> TCI_MIN(r, 63) & 1) {
            tci_attn_grad_kept(f, r, &x->rounds);
            x->weight = f->k->reds[r].inst;
        }
    }
    return w.fits && (takes_kept || (w.stopped && w.reds == other));
}

/* Stores are made of one of the last products, which they traverse. */
static bool tci_attn_grad_has_values(tci_attn_grad_search *f, tci_attn_grad *x)
{
    const tci_kernel *k = f->k;
    int query = x->by_step ? f->steps : x->in[0].m_axis;
    bool fits = tci_attn_grad_is_own(k, x->values[0], x, query) &&
                tci_attn_grad_is_own(k, x->values[1], x, query) &&
                (x->n_in == 1 || tci_attn_grad_has_change(f, x, query));
    for (int i = 0; i < k->n_stores && fits; i++) {
        const tci_kstage *st = &k->stages[k->stores[i].stage];
        int which = st->kind == TCI_STAGE_MAP && f->n_out == 2 && st->axes[0] == x->out[1].n_axis;
        tci_attn_grad_walk of = tci_attn_grad_walk_of(f, x, -1, -1, 0);
        tci_attn_grad_go(&of, k->stores[i].value);
        fits = st->kind == TCI_STAGE_MAP && st->axes[0] == x->out[which].n_axis &&
               of.reds == (uint64_t)1 << TCI_MIN(f->out[which], 63);
    }
    return fits;
}

/* ---- the products ---- */

/* The side of the last product i out of the loaded steps: these, in their layout for the first
 * one. */
static bool tci_attn_grad_same_steps(const tci_attn_grad *x, int i)
{
    const tci_matrix *in = &x->in[tci_attn_grad_taken(x, i)];
    const tci_matrix_side *a = &in->side[1], *b = &x->out[i].side[1];
    bool same = a->operand == b->operand && a->offset == b->offset && a->own == b->summed &&
                a->summed == b->own && in->k == x->out[i].n;
    for (int n = 0; n < x->in[0].n_batch; n++) {
        same = same && a->batch_pitch[n] == b->batch_pitch[n];
    }
    return same;
}

/* The load of last product r. */
static int tci_attn_grad_step_load(const tci_kernel *k, int r)
{
    return k->reds[r].in[!tci_attn_grad_is_load(k, k->reds[r].in[0])];
}

/* Operand of first product i: its rows (n = 0), which do not depend on the steps, or its steps. If
 * the product is absent, its steps are those of the product that reads the weights; -1: it has no
 * rows. */
static int tci_attn_grad_factor(const tci_attn_grad_search *f, int i, int n)
{
    const tci_kernel *k = f->k;
    if (i >= f->n_in) {
        return n == 1 ? tci_attn_grad_step_load(k, f->out[0]) : -1;
    }
    const tci_kred *red = &k->reds[f->in[i]];
    return red->in[(k->insts[red->in[1]].axes >> f->steps & 1) == (n == 1)];
}

/* The axis of its accumulators. */
static int tci_attn_grad_depth(const tci_attn_grad_search *f, int i)
{
    const tci_kernel *k = f->k;
    return i < f->n_in ? k->stages[k->reds[f->in[i]].stage].axes[0]
                       : k->stages[k->reds[f->out[0]].stage].axes[1];
}

/* The first products, whose loads have strides coef[rows or steps][product]. */
static bool tci_attn_grad_has_in(const tci_attn_grad_search *f, tci_attn_grad *x, tci_matrix *base)
{
    const tci_kernel *k = f->k;
    int64_t *coef[2][2];
    uint64_t own = ((uint64_t)1 << k->n_outer) - 1; /* axes that all rows have and no steps */
    bool fits = true;
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < 2; n++) {
            int load = tci_attn_grad_factor(f, i, n);
            coef[n][i] = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes);
            fits = fits && (load < 0 || (tci_matrix_load(k, load, coef[n][i], &x->in[i].side[n]) &&
                                         k->operands[x->in[i].side[n].operand].dtype == f->dtype));
            for (int a = 0; a < k->n_outer && load >= 0 && fits; a++) {
                own &= ~((uint64_t)((coef[n][i][a] != 0) == (n == 1)) << a);
            }
        }
    }
    fits = fits && tci_attention_rows(k, own, base);
    for (int i = 0; i < 2 && fits; i++) {
        int d = tci_attn_grad_depth(f, i);
        tci_matrix *in = &x->in[i];
        tci_matrix_side rows = in->side[0], steps = in->side[1];
        *in = *base;
        in->n_axis = f->steps;
        in->n = tci_dim_known(k->axes[f->steps].size);
        in->k = tci_dim_known(k->axes[d].size);
        fits = coef[0][i][f->steps] == 0;
        if (i < f->n_in) {
            x->on_unit &= tci_matrix_side_of(in, coef[0][i], in->m_axis, d, &rows) && rows.along_k;
        }
        x->on_unit &= tci_matrix_side_of(in, coef[1][i], f->steps, d, &steps) && steps.along_k;
        in->side[0] = rows;
        in->side[1] = steps;
    }
    return fits;
}

static bool tci_attn_grad_has_sides(const tci_attn_grad_search *f, tci_attn_grad *x)
{
    const tci_kernel *k = f->k;
    int64_t *taken = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes);
    tci_matrix base = {.dtype = f->dtype};
    x->on_unit = tci_dtype_is_half((tc_dtype)f->dtype);
    bool fits = tci_attn_grad_has_in(f, x, &base);
    for (int i = 0; i < f->n_out && fits; i++) {
        tci_matrix *out = &x->out[i];
        *out = base;
        out->n_axis = k->stages[k->reds[f->out[i]].stage].axes[1];
        out->n = tci_dim_known(k->axes[out->n_axis].size);
        out->k = x->in[0].n;
        tci_matrix_side of = {0};
        fits = tci_matrix_load(k, tci_attn_grad_step_load(k, f->out[i]), taken, &of);
        x->on_unit &= tci_matrix_side_of(out, taken, out->n_axis, f->steps, &of) && !of.along_k;
        out->side[1] = of;
        fits = fits && tci_attn_grad_same_steps(x, i);
        tci_matrix_value(k, f->out[i], out);
    }
    return fits;
}

/* ---- the whole ---- */

TCI_FN bool tci_attn_grad_find(const tci_kernel *k, tci_attn_grad *x)
{
    tci_attn_grad_search f = {k, {-1, -1}, {-1, -1}, 0, 0, 0, -1, -1, 0};
    memset(x, 0, sizeof(*x));
    if (!tci_attn_grad_has_form(&f)) {
        return false;
    }
    int load = k->reds[f.in[0]].in[0];
    f.dtype = k->operands[tci_kinst_number(&k->insts[load])].dtype;
    bool known = tci_dtype_is_half((tc_dtype)f.dtype) || f.dtype == TC_F32;
    if (!known || !tci_attn_grad_has_weight(&f, x) || !tci_attn_grad_has_takers(&f, x) ||
        !tci_attn_grad_orders_in(&f, x)) {
        return false;
    }
    x->n_in = f.n_in;
    x->n_out = f.n_out;
    if (!tci_attn_grad_has_sides(&f, x)) {
        return false;
    }
    x->by_step = k->insts[x->values[0]].axes >> f.steps & 1;
    if (!tci_attn_grad_has_values(&f, x)) {
        return false;
    }
    int queries = x->by_step ? f.steps : x->in[0].m_axis;
    x->cut = tci_attention_find_cut(k, x->score, queries, x->by_step ? x->in[0].m_axis : f.steps);
    return true;
}

/* Columns of accumulators that a thread would hold on a unit. */
static int64_t tci_attn_grad_sums(const tci_attn_grad *x)
{
    int64_t columns = 0;
    for (int i = 0; i < x->n_out; i++) {
        columns += tci_attn_grad_columns_of(x->out[i].n);
    }
    return columns;
}

/* True if a matrix unit of the machine can run the matched kernel. */
static bool tci_attn_grad_fits_unit(const tci_attn_grad *x, tci_machine machine)
{
    const tci_matrix *s = &x->in[0], *g = &x->in[1];
    return machine.matrix_units > 0 && machine.block_threads > 0 && x->on_unit &&
           s->k >= TCI_ATTENTION_LEAST && g->k >= TCI_ATTENTION_LEAST &&
           tci_attn_grad_sums(x) <= TCI_BACKWARD_SUMS;
}

TCI_FN bool tci_attn_grad_fits(const tci_kernel *k, tci_machine machine)
{
    tci_attn_grad x;
    if (!tci_attention_has_threads(machine) || !tci_attn_grad_find(k, &x)) {
        return false;
    }
    const tci_matrix *s = &x.in[0], *g = &x.in[1];
    bool slow = tci_attn_grad_sums(&x) > TCI_BACKWARD_SUMS && x.on_unit &&
                machine.matrix_units > 0; /* on SIMT threads, with products of pairs there */
    return s->m >= TCI_ATTENTION_LEAST && s->n >= TCI_ATTENTION_LEAST && !slow &&
           s->k <= TCI_ATTENTION_SIZE && g->k <= TCI_ATTENTION_SIZE &&
           tci_attention_is_work(s, (double)(s->k + g->k));
}

TCI_FN void tci_attn_grad_set_orders(tci_kernel *k, tci_machine machine)
{
    tci_attn_grad x;
    bool on_unit = tci_attn_grad_find(k, &x) && tci_attn_grad_fits_unit(&x, machine);
    for (int r = 0; r < k->n_reds; r++) {
        tci_kred *red = &k->reds[r];
        bool is_in = tci_attn_grad_is_load(k, red->in[0]) && red->op == TCI_RED_DOT &&
                     tci_attn_grad_is_load(k, red->in[1]);
        if (red->op == TCI_RED_DOT) {
            red->order = !is_in ? TCI_ORDER_STEPS : on_unit ? TCI_ORDER_MATRIX : TCI_ORDER_CHAIN;
            red->order_n = 0;
        }
    }
}
