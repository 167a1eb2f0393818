/* kernel/match_attention.c - matches fused attention kernels for GPUs, forward and gradients:
 * contractions with row operations between them.
 *
 * In: a kernel, the machine. Out: the descriptor of kernel/match_attention.h, if the kernel is, in
 * stages of any order,
 *
 *     s = DOT of rows and steps over d, keeping the steps
 *     m = MAX over the steps of x, a value made of s; l = SUM over the steps of exp(x - m)
 *     w = exp(x - m) / l, or exp(x - m) * (1 / l), kept; rounded or not
 *     g = DOT of other rows and steps over dv, keeping the steps
 *     c = a value made of w, g and values of a query alone, kept
 *     o = DOT over the steps of c, rounded to the steps' dtype, and the steps of s
 *     p = DOT over the steps of w, rounded likewise, and the steps of g or, without g, other ones
 *     stores of values made of o or p, or of m and l
 *
 * where either m and l are reductions of this kernel and there are neither g, c nor o (forward; if
 * there are no w and p either, the kernel stores values of rows for kernels that compute the
 * weights from these, see value_columns of kernel/ir.h), or m and l are values of a query alone
 * (gradients; c and o need g, and p may be absent then). If the steps are keys the gradient is the
 * one to queries, else the one to keys and values, or, in wide heads, to one of these.
 *
 * A matrix unit takes 16-bit operands in the layouts of kernel/match_matrix_unit.h; SIMT threads
 * take f32, f16 and bf16 in any layout (f32 is not rounded). The answer is a function of shape,
 * layout, dtype and the kind of machine, and loop/ can schedule every kernel that matches. */
#include "match_attention.h"

#include <string.h>

enum { TCI_ATTENTION_CUT = 1 << 29 }; /* of a cut's distance, at most */

/* State of the match: reductions by number, -1: none. */
typedef struct tci_attention_search {
    const tci_kernel *k;
    int in[2], out[2]; /* out[0] takes c, out[1] takes w; or, n_in == 1, out[0] takes w */
    int n_in, n_out;
    int most, sum;    /* of a row, where the chain is online */
    uint64_t weights; /* kept values that are the weight, rounded or not, */
    int change;       /* and the gradient of a score */
    int steps;        /* their axis */
    int8_t dtype;
} tci_attention_search;

static bool tci_attention_is_online(const tci_attention_search *f)
{
    return f->sum >= 0;
}

static uint64_t tci_attention_bit(int red)
{
    return red >= 0 ? (uint64_t)1 << TCI_MIN(red, 63) : 0;
}

/* ---- the stages ---- */

static bool tci_attention_has_sizes(const tci_kernel *k)
{
    bool fits = k->n_axes <= TCI_MATRIX_AXES && k->n_outer >= 1 &&
                k->n_outer <= 1 + TCI_MATRIX_PLAIN_BATCH && !k->faults;
    for (int a = 0; a < k->n_axes; a++) {
        fits = fits && tci_dim_is_known(k->axes[a].size) && tci_dim_known(k->axes[a].size) > 0 &&
               tci_dim_known(k->axes[a].size) <= INT32_MAX;
    }
    return fits;
}

/* Columns of the values that weights are multiplied with in another kernel; 0: not known. */
static int64_t tci_attention_elsewhere(const tci_attention_search *f)
{
    const tci_kred *sum = &f->k->reds[f->sum];
    return sum->order == TCI_ORDER_STEPS ? sum->order_n : f->k->value_columns;
}

static bool tci_attention_is_load(const tci_kernel *k, int inst)
{
    return k->insts[inst].op == TCI_K_LOAD;
}

/* True if reduction r keeps one value for each step. */
static bool tci_attention_is_kept(const tci_kernel *k, int r)
{
    return k->reds[r].op == TCI_RED_MAX && k->stages[k->reds[r].stage].n_kept == 1;
}

/* A reduction along the steps: a kept value, or the only MAX or SUM of a row. */
static bool tci_attention_sort_row(tci_attention_search *f, int r)
{
    const tci_kred *red = &f->k->reds[r];
    bool is_max = red->op == TCI_RED_MAX;
    if (f->k->stages[red->stage].n_kept > 0) {
        return tci_attention_is_kept(f->k, r);
    }
    int *own = is_max ? &f->most : &f->sum;
    bool fits = (is_max || red->op == TCI_RED_SUM) && *own < 0;
    *own = r;
    return fits;
}

/* A DOT of two loads, a DOT of one, or a reduction along the steps. */
static bool tci_attention_sort(tci_attention_search *f, int r)
{
    const tci_kred *red = &f->k->reds[r];
    const tci_kstage *st = &f->k->stages[red->stage];
    if (red->dtype != TC_F32 || st->kind != TCI_STAGE_REDUCE) {
        return false;
    }
    if (red->op != TCI_RED_DOT) {
        return st->n_axes == 1 && tci_attention_sort_row(f, r);
    }
    int loads = tci_attention_is_load(f->k, red->in[0]) + tci_attention_is_load(f->k, red->in[1]);
    int *n = loads == 2 ? &f->n_in : &f->n_out;
    if (st->n_axes != 2 || st->n_kept != 1 || loads == 0 || *n == 2) {
        return false;
    }
    (loads == 2 ? f->in : f->out)[(*n)++] = r;
    return true;
}

/* An online chain has both statistics, one product of loads, and, without weights, the number of
 * columns that these are multiplied with. */
static bool tci_attention_has_counts(const tci_attention_search *f)
{
    if (f->n_in == 0 || (f->most < 0) != (f->sum < 0)) {
        return false;
    }
    return !tci_attention_is_online(f)
               ? f->n_out > 0
               : f->n_in == 1 && f->n_out <= 1 && (f->n_out == 1 || tci_attention_elsewhere(f) > 0);
}

static bool tci_attention_has_form(tci_attention_search *f)
{
    const tci_kernel *k = f->k;
    bool fits = k->vector == TCI_VEC_INNER && tci_attention_has_sizes(k);
    for (int r = 0; r < k->n_reds && fits; r++) {
        fits = tci_attention_sort(f, r);
    }
    if (!fits || !tci_attention_has_counts(f)) {
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
        bool is_row = st->n_axes == 0 && tci_attention_is_online(f);
        bool is_map = st->kind == TCI_STAGE_MAP &&
                      (is_row || (st->n_axes == 1 && st->axes[0] != f->steps));
        fits = fits && (st->kind == TCI_STAGE_REDUCE || is_map);
    }
    for (int i = 0; i < k->n_kx; i++) {
        fits = fits && (k->kx[i].op != TCI_KX_VALUE || k->kx[i].stage < 0);
    }
    return fits;
}

/* ---- the values ---- */

/* Instruction `inst` where it is such a PRIM, else NULL. */
static const tci_kinst *tci_attention_prim(const tci_kernel *k, int inst, tci_prim prim)
{
    const tci_kinst *in = inst >= 0 ? &k->insts[inst] : NULL;
    return in && in->op == TCI_K_PRIM && in->prim == prim ? in : NULL;
}

/* The x - m of a power exp(x - m), else NULL. */
static const tci_kinst *tci_attention_exponent(const tci_kernel *k, int inst)
{
    const tci_kinst *exp = tci_attention_prim(k, inst, TCI_P_EXP);
    exp = exp ? exp : tci_attention_prim(k, inst, TCI_P_EXPN);
    return exp ? tci_attention_prim(k, exp->args[0], TCI_P_SUB) : NULL;
}

/* The l of 1 / l; -1: it is something else. */
static int tci_attention_inverse(const tci_kernel *k, int inst)
{
    const tci_kinst *in = tci_attention_prim(k, inst, TCI_P_DIV);
    bool is_one = in && k->insts[in->args[0]].op == TCI_K_CONST &&
                  k->insts[in->args[0]].value.f == 1;
    return is_one ? in->args[1] : -1;
}

/* e and l of a weight e / l or e * (1 / l); false: it is none. */
static bool tci_attention_weight(const tci_kernel *k, int inst, int *e, int *l)
{
    const tci_kinst *times = tci_attention_prim(k, inst, TCI_P_MUL);
    const tci_kinst *by = tci_attention_prim(k, inst, TCI_P_DIV);
    *e = *l = -1;
    if (by) {
        *e = by->args[0];
        *l = by->args[1];
    }
    for (int i = 0; times && *l < 0 && i < 2; i++) {
        *e = times->args[1 - i];
        *l = tci_attention_inverse(k, times->args[i]);
    }
    return *l >= 0;
}

/* The operand of a rounding to dtype t, if `inst` is one. */
static int tci_attention_rounded(const tci_kernel *k, int inst, int8_t t)
{
    tci_prim round = t == TC_F16 ? TCI_P_ROUND16 : TCI_P_ROUNDB16;
    const tci_kinst *in = t == TC_F32 ? NULL : tci_attention_prim(k, inst, round);
    return in ? in->args[0] : inst;
}

/* The value of an element of kept reduction r, without a rounding to the dtype of operands, which
 * *rounds reports, and without the reductions that keep it before. */
static int tci_attention_kept(const tci_attention_search *f, int r, bool *rounds)
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
        if (!tci_attention_is_kept(k, before)) {
            return of;
        }
        r = before;
    }
}

/* True if value i depends on a query alone, along its axis `query`. */
static bool tci_attention_is_own(const tci_kernel *k, int i, const tci_attention *x, int query)
{
    uint64_t own = (uint64_t)1 << query;
    for (int b = 0; b < x->in[0].n_batch; b++) {
        own |= (uint64_t)1 << x->in[0].batch_axis[b];
    }
    return k->insts[i].stage < 0 && (k->insts[i].axes & ~own) == 0 &&
           (k->insts[i].axes >> query & 1);
}

/* Takes e / l as the weight where e is exp(score - most); of an online chain with its own
 * statistics. */
static bool tci_attention_take_weight(const tci_attention_search *f, tci_attention *x, int e, int l)
{
    const tci_kernel *k = f->k;
    const tci_kinst *off = tci_attention_exponent(k, e);
    if (!off) {
        return false;
    }
    x->score = off->args[0];
    x->values[0] = off->args[1];
    x->values[1] = l;
    x->n_values = 2;
    const tci_kred *most = &k->reds[TCI_MAX(f->most, 0)], *sum = &k->reds[TCI_MAX(f->sum, 0)];
    return !tci_attention_is_online(f) || (e == sum->in[0] && l == sum->inst &&
                                           x->values[0] == most->inst && x->score == most->in[0]);
}

/* The value that is a weight, and where it is kept, if it is. */
static bool tci_attention_has_weight(tci_attention_search *f, tci_attention *x)
{
    const tci_kernel *k = f->k;
    x->weight = -1;
    for (int i = 0; i < k->n_insts && x->weight < 0; i++) {
        int e, l;
        bool is_weight = tci_attention_weight(k, i, &e, &l);
        x->weight = is_weight && tci_attention_take_weight(f, x, e, l) ? i : -1;
    }
    for (int r = 0; r < k->n_reds; r++) {
        bool rounds, kept = tci_attention_is_kept(k, r);
        kept = kept && tci_attention_kept(f, r, &rounds) == x->weight;
        f->weights |= kept ? tci_attention_bit(r) : 0;
    }
    if (f->n_out == 0) { /* another kernel makes the weights */
        const tci_kred *sum = &k->reds[f->sum];
        return tci_attention_take_weight(f, x, sum->in[0], sum->inst);
    }
    return x->weight >= 0;
}

/* Finds the operand of each last product; out[0] is the product with the gradients of scores, if
 * there are any. */
static bool tci_attention_has_takers(tci_attention_search *f, tci_attention *x)
{
    const tci_kernel *k = f->k;
    int found[2] = {-1, -1};
    for (int i = 0; i < f->n_out; i++) {
        const tci_kred *red = &k->reds[f->out[i]];
        int taken = red->in[tci_attention_is_load(k, red->in[0])];
        int of = tci_attention_rounded(k, taken, f->dtype);
        const tci_kinst *in = &k->insts[of];
        int r = in->op == TCI_K_RED ? tci_kinst_number(in) : -1;
        bool rounds = false, kept = r >= 0 && tci_attention_is_kept(k, r);
        int which = kept && (f->weights & tci_attention_bit(r)) != 0;
        if (kept) {
            tci_attention_kept(f, r, &rounds);
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
typedef struct tci_attention_walk {
    const tci_attention_search *f;
    tci_attention *x;
    int query; /* its axis; -1: values of a query are nothing special */
    bool *seen;
    int stop;       /* an instruction that is not gone through, -1: none, */
    uint64_t stops; /* nor are these reductions */
    uint64_t reds;  /* that were met, */
    bool stopped;   /* and whether `stop` was */
    bool fits;
} tci_attention_walk;

static void tci_attention_go(tci_attention_walk *w, int i)
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
        bool through = tci_attention_is_kept(k, r) && !(w->stops & tci_attention_bit(r));
        w->reds |= through ? 0 : tci_attention_bit(r);
        if (through) {
            tci_attention_go(w, k->reds[r].in[0]);
        }
        return;
    }
    if (w->query >= 0 && tci_attention_is_own(k, i, w->x, w->query)) {
        w->fits = w->fits && w->x->n_values < TCI_ATTENTION_VALUES;
        w->x->values[w->fits ? w->x->n_values++ : 0] = i;
        return;
    }
    for (int a = 0; a < in->n_args; a++) {
        tci_attention_go(w, in->args[a]);
    }
}

static tci_attention_walk tci_attention_walk_of(const tci_attention_search *f, tci_attention *x,
                                                int query, int stop, uint64_t stops)
{
    bool *seen = TCI_NEW_ARRAY(f->k->s, bool, f->k->n_insts + 1);
    tci_attention_walk w = {f, x, query, seen, stop, stops, 0, false, true};
    return w;
}

/* The reductions that value i is made of, other than kept ones. */
static uint64_t tci_attention_made_of(const tci_attention_search *f, tci_attention *x, int i)
{
    tci_attention_walk w = tci_attention_walk_of(f, x, -1, -1, 0);
    tci_attention_go(&w, i);
    return w.reds;
}

/* Orders the first products so that the one that computes the scores comes first. */
static bool tci_attention_orders_in(tci_attention_search *f, tci_attention *x)
{
    uint64_t of = tci_attention_made_of(f, x, x->score);
    for (int i = 0; i < f->n_in; i++) {
        if (of == tci_attention_bit(f->in[i])) {
            int other = f->in[1 - i];
            f->in[0] = f->in[i];
            f->in[1] = other;
            x->products[0] = f->k->reds[f->in[0]].inst;
            x->products[1] = f->n_in > 1 ? f->k->reds[other].inst : -1;
            return true;
        }
    }
    return false;
}

/* The gradient of a score is made of the weight, as it is or as it is kept, of the other product
 * and values of a query. */
static bool tci_attention_has_change(tci_attention_search *f, tci_attention *x, int query)
{
    tci_attention_walk w = tci_attention_walk_of(f, x, query, x->weight, f->weights);
    tci_attention_go(&w, x->change);
    uint64_t other = tci_attention_bit(f->in[1]), met = w.reds & f->weights;
    bool takes_kept = !w.stopped && met && (met & (met - 1)) == 0 && w.reds == (met | other);
    for (int r = 0; r < f->k->n_reds && takes_kept; r++) {
        if (met & tci_attention_bit(r)) {
            tci_attention_kept(f, r, &x->rounds);
            x->weight = f->k->reds[r].inst;
        }
    }
    return w.fits && (takes_kept || (w.stopped && w.reds == other));
}

/* Stores are of a result's columns, made of it, or of a row, made of its statistics. */
static bool tci_attention_has_stores(const tci_attention_search *f, tci_attention *x)
{
    const tci_kernel *k = f->k;
    bool fits = true;
    for (int i = 0; i < k->n_stores && fits; i++) {
        const tci_kstage *st = &k->stages[k->stores[i].stage];
        bool row = st->n_axes == 0;
        int which = f->n_out == 2 && !row && st->axes[0] == x->out[1].n_axis;
        uint64_t of = row ? tci_attention_bit(f->most) | tci_attention_bit(f->sum)
                          : tci_attention_bit(f->out[which]);
        fits = st->kind == TCI_STAGE_MAP &&
               (row || (f->n_out > 0 && st->axes[0] == x->out[which].n_axis)) &&
               (tci_attention_made_of(f, x, k->stores[i].value) & ~of) == 0;
        x->tells |= row;
    }
    return fits;
}

static bool tci_attention_has_values(tci_attention_search *f, tci_attention *x)
{
    const tci_kernel *k = f->k;
    int query = x->by_step ? f->steps : x->in[0].m_axis;
    bool fits = x->is_online || (tci_attention_is_own(k, x->values[0], x, query) &&
                                 tci_attention_is_own(k, x->values[1], x, query));
    return fits && (x->n_in == 1 || tci_attention_has_change(f, x, query)) &&
           tci_attention_has_stores(f, x);
}

/* ---- the products ---- */

/* The rows of x: the longest outer axis of the set `own`; the rest is the batch. False: there are
 * none. */
static bool tci_attention_rows(const tci_kernel *k, uint64_t own, tci_matrix *x)
{
    x->m_axis = x->y_axis = -1;
    for (int a = 0; a < k->n_outer; a++) {
        bool longer = x->m_axis < 0 || tci_dim_lt(k->axes[x->m_axis].size, k->axes[a].size);
        x->m_axis = own >> a & 1 && longer ? a : x->m_axis;
    }
    for (int a = 0; a < k->n_outer && x->m_axis >= 0; a++) {
        if (a != x->m_axis) {
            x->batch_axis[x->n_batch] = a;
            x->batch[x->n_batch++] = tci_dim_known(k->axes[a].size);
        }
    }
    x->m = x->m_axis >= 0 ? tci_dim_known(k->axes[x->m_axis].size) : 0;
    return x->m_axis >= 0;
}

/* True if last product i takes loaded steps, in their layout for the first one. */
static bool tci_attention_same_steps(const tci_attention *x, int i)
{
    const tci_matrix *in = &x->in[tci_attention_taken(x, i)];
    const tci_matrix_side *a = &in->side[1], *b = &x->out[i].side[1];
    bool same = a->operand == b->operand && a->offset == b->offset && a->own == b->summed &&
                a->summed == b->own && in->k == x->out[i].n;
    for (int n = 0; n < x->in[0].n_batch; n++) {
        same = same && a->batch_pitch[n] == b->batch_pitch[n];
    }
    return same;
}

/* Operand of first product i: its rows (n = 0), which do not depend on the steps, or its steps; -1:
 * it has no rows. The steps of an absent product are those that the weights are multiplied with,
 * of row statistics the keys. */
static int tci_attention_factor(const tci_attention_search *f, int i, int n)
{
    const tci_kernel *k = f->k;
    if (i >= f->n_in && n == 0) {
        return -1;
    }
    if (i >= f->n_in && f->n_out > 0) {
        const tci_kred *red = &k->reds[f->out[0]];
        return red->in[!tci_attention_is_load(k, red->in[0])];
    }
    const tci_kred *red = &k->reds[f->in[i < f->n_in ? i : 0]];
    return red->in[(k->insts[red->in[1]].axes >> f->steps & 1) == (n == 1)];
}

/* The axis of the elements of first product i's rows and steps. */
static int tci_attention_depth(const tci_attention_search *f, int i)
{
    const tci_kernel *k = f->k;
    bool is_out = i >= f->n_in && f->n_out > 0;
    int red = is_out ? f->out[0] : f->in[i < f->n_in ? i : 0];
    return k->stages[k->reds[red].stage].axes[is_out];
}

/* The loads of the first products, with strides coef[rows or steps][product], and the axes of rows
 * and batch, in *base. */
static bool tci_attention_has_loads(const tci_attention_search *f, tci_attention *x,
                                    tci_matrix *base, int64_t *coef[2][2])
{
    const tci_kernel *k = f->k;
    uint64_t own = ((uint64_t)1 << k->n_outer) - 1; /* axes that all rows have and no steps */
    bool fits = true;
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < 2; n++) {
            int load = tci_attention_factor(f, i, n);
            coef[n][i] = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes);
            fits = fits && (load < 0 || (tci_matrix_load(k, load, coef[n][i], &x->in[i].side[n]) &&
                                         k->operands[x->in[i].side[n].operand].dtype == f->dtype));
            for (int a = 0; a < k->n_outer && load >= 0 && fits; a++) {
                own &= ~((uint64_t)((coef[n][i][a] != 0) == (n == 1)) << a);
            }
        }
    }
    return fits && tci_attention_rows(k, own, base);
}

static bool tci_attention_has_in(const tci_attention_search *f, tci_attention *x, tci_matrix *base)
{
    const tci_kernel *k = f->k;
    int64_t *coef[2][2];
    bool fits = tci_attention_has_loads(f, x, base, coef);
    for (int i = 0; i < 2 && fits; i++) {
        int d = tci_attention_depth(f, i);
        tci_matrix *in = &x->in[i];
        tci_matrix_side rows = in->side[0], steps = in->side[1];
        *in = *base;
        in->n_axis = f->steps;
        in->n = tci_dim_known(k->axes[f->steps].size);
        in->k = i == 1 && f->n_out == 0 ? tci_attention_elsewhere(f)
                                        : tci_dim_known(k->axes[d].size);
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

/* The last product i, of row statistics the one of another kernel. */
static bool tci_attention_has_out(const tci_attention_search *f, tci_attention *x, int i)
{
    const tci_kernel *k = f->k;
    int64_t *taken = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes);
    tci_matrix *out = &x->out[i];
    bool is_here = f->n_out > 0;
    const tci_kred *red = is_here ? &k->reds[f->out[i]] : NULL;
    int load = is_here ? red->in[!tci_attention_is_load(k, red->in[0])]
                       : tci_attention_factor(f, 1, 1);
    tci_matrix_side of = {0};
    out->n_axis = is_here ? k->stages[red->stage].axes[1] : tci_attention_depth(f, 1);
    out->n = is_here ? tci_dim_known(k->axes[out->n_axis].size) : x->in[1].k;
    out->k = x->in[0].n;
    if (!tci_matrix_load(k, load, taken, &of)) {
        return false;
    }
    x->on_unit &= tci_matrix_side_of(out, taken, out->n_axis, f->steps, &of) && !of.along_k;
    out->side[1] = of;
    if (is_here) {
        tci_matrix_value(k, f->out[i], out);
    } else {
        out->value = k->reds[f->sum].inst;
        out->staged = f->dtype;
    }
    return tci_attention_same_steps(x, i);
}

static bool tci_attention_has_sides(const tci_attention_search *f, tci_attention *x)
{
    tci_matrix base = {.dtype = f->dtype};
    x->on_unit = tci_dtype_is_half((tc_dtype)f->dtype);
    bool fits = tci_attention_has_in(f, x, &base);
    for (int i = 0; i < x->n_out && fits; i++) {
        x->out[i] = base;
        fits = tci_attention_has_out(f, x, i);
    }
    return fits;
}

/* ---- the cut ---- */

/* sign x, as a function of queries and keys: true where it falls by 1 from key to key, and rises by
 * rows, 0 or 1, from query to query, and depends on nothing else. */
static bool tci_attention_distance(const tci_kernel *k, int x, int sign, int queries, int keys,
                                   tci_attention_cut *cut)
{
    int64_t *coef = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes), at;
    if (!tci_kx_affine_known(k, x, coef, &at)) {
        return false;
    }
    bool fits = true;
    for (int i = 0; i < k->n_axes; i++) {
        fits = fits && (i == queries || i == keys || coef[i] == 0);
    }
    cut->base = sign * at;
    cut->rows = sign * coef[queries];
    return fits && sign * coef[keys] == -1 && cut->rows >= 0 && cut->rows <= 1 &&
           cut->base > -TCI_ATTENTION_CUT && cut->base < TCI_ATTENTION_CUT;
}

/* The cut of a score that is SELECT by a comparison of indices: of what depends on keys, or of one
 * value. */
static tci_attention_cut tci_attention_find_cut(const tci_kernel *k, int score, int queries,
                                                int keys)
{
    tci_attention_cut cut = {false, 0, 0, -1, -1};
    const tci_kinst *select = tci_attention_prim(k, score, TCI_P_SELECT);
    const tci_kinst *seen = select ? &k->insts[select->args[0]] : NULL;
    if (!seen || seen->op != TCI_K_GUARD || seen->n_guards != 1) {
        return cut;
    }
    tci_kguard guard = k->guards[seen->guard];
    bool masks_else = k->insts[select->args[2]].axes == 0 && k->insts[select->args[2]].stage < 0;
    bool masks_then = k->insts[select->args[1]].axes == 0 && k->insts[select->args[1]].stage < 0;
    if (!tci_dim_le(k->kx[guard.x].hi, guard.hi)) {
        return cut;
    }
    if (masks_else && tci_attention_distance(k, guard.x, 1, queries, keys, &cut)) {
        cut.is_cut = true;
        cut.seen = select->args[1];
        cut.off = select->args[2];
        cut.base -= tci_dim_known(guard.lo);
    } else if (masks_then && tci_attention_distance(k, guard.x, -1, queries, keys, &cut)) {
        cut.is_cut = true;
        cut.seen = select->args[2];
        cut.off = select->args[1];
        cut.base += tci_dim_known(guard.lo) - 1;
    }
    return cut;
}

/* ---- the whole ---- */

TCI_FN bool tci_attention_find(const tci_kernel *k, tci_attention *x)
{
    tci_attention_search f = {k, {-1, -1}, {-1, -1}, 0, 0, -1, -1, 0, -1, -1, 0};
    memset(x, 0, sizeof(*x));
    if (!tci_attention_has_form(&f)) {
        return false;
    }
    int load = k->reds[f.in[0]].in[0];
    f.dtype = k->operands[tci_kinst_number(&k->insts[load])].dtype;
    bool known = tci_dtype_is_half((tc_dtype)f.dtype) || f.dtype == TC_F32;
    if (!known || !tci_attention_has_weight(&f, x) || !tci_attention_has_takers(&f, x) ||
        !tci_attention_orders_in(&f, x)) {
        return false;
    }
    x->is_online = tci_attention_is_online(&f);
    x->only_rows = f.n_out == 0;
    x->n_in = f.n_in;
    x->n_out = TCI_MAX(f.n_out, 1);
    if (!tci_attention_has_sides(&f, x)) {
        return false;
    }
    x->by_step = k->insts[x->values[0]].axes >> f.steps & 1;
    if (!tci_attention_has_values(&f, x)) {
        return false;
    }
    int queries = x->by_step ? f.steps : x->in[0].m_axis;
    x->cut = tci_attention_find_cut(k, x->score, queries, x->by_step ? x->in[0].m_axis : f.steps);
    return true;
}

/* Columns of sums that a thread would hold on a unit. */
static int64_t tci_attention_sums(const tci_attention *x)
{
    int64_t columns = 0;
    for (int i = 0; i < x->n_out; i++) {
        columns += tci_attention_columns_of(x->out[i].n);
    }
    return columns;
}

/* True if a matrix unit of the machine can run the matched kernel. */
static bool tci_attention_fits_unit(const tci_attention *x, tci_machine machine)
{
    return machine.matrix_units > 0 && machine.block_threads > 0 && x->on_unit &&
           x->in[0].k >= TCI_ATTENTION_LEAST && x->in[1].k >= TCI_ATTENTION_LEAST &&
           tci_attention_sums(x) <= TCI_ATTENTION_SUMS;
}

/* True if there is enough to multiply, and the tiles can be counted. */
static bool tci_attention_is_work(const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    double tiles = (double)tci_dim_known(tci_dim_ceil_div(s->m, TCI_ATTENTION_FEWEST));
    double flops = 2 * (double)s->m * (double)s->n * (double)(s->k + x->in[1].k);
    for (int i = 0; i < s->n_batch; i++) {
        tiles *= (double)s->batch[i];
        flops *= (double)s->batch[i];
    }
    return tiles <= INT32_MAX / 2 && flops >= TCI_MATRIX_FLOPS;
}

TCI_FN bool tci_attention_fits(const tci_kernel *k, tci_machine machine)
{
    tci_attention x;
    if (!tci_attention_has_threads(machine) || !tci_attention_find(k, &x)) {
        return false;
    }
    const tci_matrix *s = &x.in[0], *g = &x.in[1];
    int least = x.is_online ? TCI_MATRIX_ROWS : TCI_ATTENTION_LEAST;
    bool slow = tci_attention_sums(&x) > TCI_ATTENTION_SUMS && x.on_unit &&
                machine.matrix_units > 0; /* on SIMT threads, with products of pairs there */
    return s->m >= least && s->n >= TCI_ATTENTION_LEAST && !slow && s->k <= TCI_ATTENTION_SIZE &&
           g->k <= TCI_ATTENTION_SIZE && tci_attention_is_work(&x);
}

TCI_FN void tci_attention_set_orders(tci_kernel *k, tci_machine machine)
{
    tci_attention x;
    bool on_unit = tci_attention_find(k, &x) && tci_attention_fits_unit(&x, machine);
    for (int r = 0; r < k->n_reds; r++) {
        tci_kred *red = &k->reds[r];
        bool is_in = red->op == TCI_RED_DOT && tci_attention_is_load(k, red->in[0]) &&
                     tci_attention_is_load(k, red->in[1]);
        bool is_sum = red->op == TCI_RED_SUM;
        if (red->op == TCI_RED_DOT || is_sum) {
            red->order = !is_in ? TCI_ORDER_STEPS : on_unit ? TCI_ORDER_MATRIX : TCI_ORDER_CHAIN;
            red->order_n = is_sum && x.only_rows ? (int32_t)x.out[0].n : 0;
            red->near = 0;
        }
    }
}

TCI_FN double tci_attention_steps(const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    double steps = (double)tci_dim_known(tci_dim_ceil_div(s->n, s->columns));
    return x->cut.is_cut ? (steps + 1) / 2 : steps;
}

TCI_FN bool tci_attention_is_simt(const tci_kernel *k)
{
    bool steps = false, on_unit = false;
    for (int r = 0; r < k->n_reds; r++) {
        steps |= k->reds[r].order == TCI_ORDER_STEPS;
        on_unit |= k->reds[r].order == TCI_ORDER_MATRIX;
    }
    return steps && !on_unit;
}
