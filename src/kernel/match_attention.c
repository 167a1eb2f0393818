/* kernel/match_attention.c - matches fused attention kernels for GPUs: two contractions with row
 * operations between them.
 *
 * In: a kernel, the machine. Out: whether it is
 *
 *     stage 0  s = DOT of queries and keys over d, keeping the keys
 *     stage 1  m = MAX over the keys of x, a value made of s
 *     stage 2  l = SUM over the keys of e = exp(x - m)
 *     stage 3  w = e * (1 / l) or e / l, kept
 *     stage 4  o = DOT of w, rounded to the values' dtype, and values over the keys
 *     stage 5  stores of values made of o, and of values made of m and l
 *
 * and its two products as a matrix unit takes them; or stages 0 to 2 and stores of values made of m
 * and l alone, for kernels that compute the weights from these (value_columns of kernel/ir.h). A
 * matrix unit takes 16-bit operands in the layouts of kernel/match_matrix_unit.h; SIMT threads take
 * f32, f16 and bf16 in any layout. The answer is a function of shape, layout, dtype and the kind of
 * machine, and loop/ can schedule every kernel that matches. */
#include "match_attention.h"

#include <string.h>

/* Its stages, and its reductions: one each. */
enum {
    TCI_ATTENTION_SCORES,
    TCI_ATTENTION_MOST,
    TCI_ATTENTION_SUM,
    TCI_ATTENTION_WEIGHTS,
    TCI_ATTENTION_RESULT,
    TCI_ATTENTION_REDS,
    TCI_ATTENTION_ROW_REDS = TCI_ATTENTION_WEIGHTS /* without a result */
};
enum { TCI_ATTENTION_CUT = 1 << 29 }; /* of a cut's distance, at most */

/* ---- the stages ---- */

static bool tci_attention_walks(const tci_kstage *st, int kind, int n_axes, int n_kept)
{
    return st->kind == kind && st->n_axes == n_axes && st->n_kept == n_kept;
}

TCI_FN bool tci_attention_has_sizes(const tci_kernel *k)
{
    bool fits = k->n_axes <= TCI_MATRIX_AXES && k->n_outer >= 1 &&
                k->n_outer <= 1 + TCI_MATRIX_PLAIN_BATCH && !k->faults;
    for (int a = 0; a < k->n_axes; a++) {
        fits = fits && tci_dim_is_known(k->axes[a].size) && tci_dim_known(k->axes[a].size) > 0 &&
               tci_dim_known(k->axes[a].size) <= INT32_MAX;
    }
    return fits;
}

/* True if the kernel is to store values of rows alone. */
static bool tci_attention_is_rows(const tci_kernel *k)
{
    return k->n_reds == TCI_ATTENTION_ROW_REDS;
}

/* Columns of the values that weights are multiplied with in another kernel; 0: not known. */
static int64_t tci_attention_elsewhere(const tci_kernel *k)
{
    const tci_kred *sum = &k->reds[TCI_ATTENTION_SUM];
    return sum->order == TCI_ORDER_STEPS ? sum->order_n : k->value_columns;
}

/* The stages and reductions, and the axes of d, keys and values: d again where there are none. */
static bool tci_attention_has_form(const tci_kernel *k, int axes[3])
{
    const bool rows = tci_attention_is_rows(k);
    const int n_reds = rows ? TCI_ATTENTION_ROW_REDS : TCI_ATTENTION_REDS;
    static const uint8_t ops[TCI_ATTENTION_REDS] = {TCI_RED_DOT, TCI_RED_MAX, TCI_RED_SUM,
                                                    TCI_RED_MAX, TCI_RED_DOT};
    static const uint8_t n_axes[TCI_ATTENTION_REDS] = {2, 1, 1, 1, 2};
    static const uint8_t kept[TCI_ATTENTION_REDS] = {1, 0, 0, 1, 1};
    if (k->vector != TCI_VEC_INNER || k->n_reds != n_reds || k->n_stages <= n_reds ||
        !tci_attention_has_sizes(k) || (rows && tci_attention_elsewhere(k) == 0)) {
        return false;
    }
    for (int r = 0; r < n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        if (red->op != ops[r] || red->dtype != TC_F32 || red->stage != r ||
            !tci_attention_walks(&k->stages[r], TCI_STAGE_REDUCE, n_axes[r], kept[r])) {
            return false;
        }
    }
    axes[0] = k->stages[TCI_ATTENTION_SCORES].axes[0];
    axes[1] = k->stages[TCI_ATTENTION_SCORES].axes[1];
    axes[2] = rows ? axes[0] : k->stages[TCI_ATTENTION_RESULT].axes[1];
    bool fits = k->n_axes == k->n_outer + (rows ? 2 : 3);
    for (int r = TCI_ATTENTION_MOST; r < n_reds; r++) {
        fits = fits && k->stages[r].axes[0] == axes[1];
    }
    for (int t = n_reds; t < k->n_stages; t++) {
        bool row = tci_attention_walks(&k->stages[t], TCI_STAGE_MAP, 0, 0);
        bool column = tci_attention_walks(&k->stages[t], TCI_STAGE_MAP, 1, 0);
        fits = fits && (row || (column && !rows && k->stages[t].axes[0] == axes[2]));
    }
    for (int i = 0; i < k->n_stores; i++) {
        fits = fits && k->stores[i].stage >= n_reds;
    }
    return fits;
}

/* ---- the values ---- */

TCI_FN const tci_kinst *tci_attention_prim(const tci_kernel *k, int inst, tci_prim prim)
{
    const tci_kinst *in = inst >= 0 ? &k->insts[inst] : NULL;
    return in && in->op == TCI_K_PRIM && in->prim == prim ? in : NULL;
}

TCI_FN const tci_kinst *tci_attention_exponent(const tci_kernel *k, int inst)
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

TCI_FN bool tci_attention_weight(const tci_kernel *k, int inst, int *e, int *l)
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

TCI_FN int tci_attention_rounded(const tci_kernel *k, int inst, int8_t t)
{
    tci_prim round = t == TC_F16 ? TCI_P_ROUND16 : TCI_P_ROUNDB16;
    const tci_kinst *in = t == TC_F32 ? NULL : tci_attention_prim(k, inst, round);
    return in ? in->args[0] : inst;
}

/* True if the value depends on no other reductions than those of the set. */
static bool tci_attention_is_end(const tci_kernel *k, int inst, unsigned reds, bool *seen)
{
    const tci_kinst *in = &k->insts[inst];
    bool fits = in->op != TCI_K_RED || reds >> tci_kinst_number(in) & 1;
    for (int a = 0; a < in->n_args && fits && !seen[inst]; a++) {
        fits = tci_attention_is_end(k, in->args[a], reds, seen);
    }
    seen[inst] = true;
    return fits;
}

/* Stores are of a row's columns, or of its largest score and sum. */
static bool tci_attention_has_stores(const tci_kernel *k, tci_attention *x)
{
    bool fits = true;
    for (int i = 0; i < k->n_stores && fits; i++) {
        bool row = k->stages[k->stores[i].stage].n_axes == 0;
        unsigned reds = row ? 1u << TCI_ATTENTION_MOST | 1u << TCI_ATTENTION_SUM
                            : 1u << TCI_ATTENTION_RESULT;
        bool *seen = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
        fits = tci_attention_is_end(k, k->stores[i].value, reds, seen);
        x->tells |= row;
    }
    x->most = k->reds[TCI_ATTENTION_MOST].inst;
    x->sum = k->reds[TCI_ATTENTION_SUM].inst;
    return fits;
}

/* Scores, exponentials and stores as above; sets x->score and *power. */
static bool tci_attention_has_values(const tci_kernel *k, tci_attention *x, int *power)
{
    x->score = k->reds[TCI_ATTENTION_MOST].in[0];
    *power = k->reds[TCI_ATTENTION_SUM].in[0];
    const tci_kinst *off = tci_attention_exponent(k, *power);
    bool fits = off && off->args[0] == x->score &&
                off->args[1] == k->reds[TCI_ATTENTION_MOST].inst &&
                k->insts[x->score].stage == TCI_ATTENTION_SCORES;
    for (int i = 0; i < k->n_kx; i++) {
        fits = fits && (k->kx[i].op != TCI_KX_VALUE || k->kx[i].stage < 0);
    }
    return fits && tci_attention_has_stores(k, x);
}

/* True if `inst`, an operand of the second product, is the weights made of the exponentials,
 * rounded to t there or where they are kept. */
static bool tci_attention_has_weights(const tci_kernel *k, int inst, int8_t t, int power)
{
    const tci_kred *kept = &k->reds[TCI_ATTENTION_WEIGHTS];
    int from = tci_attention_rounded(k, inst, t), of = tci_attention_rounded(k, kept->in[0], t);
    int e, l;
    bool rounds = from != inst || of != kept->in[0] || t == TC_F32;
    return rounds && from == kept->inst && tci_attention_weight(k, of, &e, &l) && e == power &&
           l == k->reds[TCI_ATTENTION_SUM].inst;
}

/* ---- the products ---- */

TCI_FN bool tci_attention_rows(const tci_kernel *k, uint64_t own, tci_matrix *x)
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

/* For a unit queries, keys and values are contiguous along d, d and their own axis. */
static bool tci_attention_sides(const tci_kernel *k, const int axes[3], const int32_t loads[3],
                                int8_t t, tci_attention *x)
{
    int64_t *coef[3];
    tci_matrix_side side[3] = {{0}};
    for (int i = 0; i < 3; i++) {
        coef[i] = TCI_NEW_ARRAY(k->s, int64_t, k->n_axes);
        if (!tci_matrix_load(k, loads[i], coef[i], &side[i]) ||
            k->operands[side[i].operand].dtype != t) {
            return false;
        }
    }
    tci_matrix *s = &x->scores, *r = &x->result;
    uint64_t own = 0; /* axes that the queries have and neither keys nor values */
    for (int a = 0; a < k->n_outer; a++) {
        own |= (uint64_t)(coef[0][a] != 0 && coef[1][a] == 0 && coef[2][a] == 0) << a;
    }
    if (!tci_attention_rows(k, own, s)) {
        return false;
    }
    s->dtype = t;
    *r = *s;
    s->n_axis = axes[1];
    r->n_axis = axes[2];
    s->k = tci_dim_known(k->axes[axes[0]].size);
    s->n = r->k = tci_dim_known(k->axes[axes[1]].size);
    r->n = tci_attention_is_rows(k) ? tci_attention_elsewhere(k)
                                    : tci_dim_known(k->axes[axes[2]].size);
    bool fits[3] = {tci_matrix_side_of(s, coef[0], s->m_axis, axes[0], &side[0]),
                    tci_matrix_side_of(s, coef[1], axes[1], axes[0], &side[1]),
                    tci_matrix_side_of(r, coef[2], axes[2], axes[1], &side[2])};
    s->side[0] = side[0];
    s->side[1] = side[1];
    r->side[1] = side[2];
    x->on_unit = tci_dtype_is_half((tc_dtype)t) && fits[0] && fits[1] && fits[2] &&
                 side[0].along_k && side[1].along_k && !side[2].along_k;
    return coef[0][axes[1]] == 0;
}

/* The loads of queries, keys and values, keys where there is no result, and the other factor of the
 * values; false: there are none. */
static bool tci_attention_loads(const tci_kernel *k, const int axes[3], int32_t loads[3],
                                int *weights)
{
    const tci_kred *s = &k->reds[TCI_ATTENTION_SCORES], *r = &k->reds[TCI_ATTENTION_RESULT];
    int keys = k->insts[s->in[1]].axes >> axes[1] & 1;
    loads[0] = s->in[1 - keys];
    loads[1] = loads[2] = s->in[keys];
    if (!tci_attention_is_rows(k)) {
        int values = k->insts[r->in[1]].op == TCI_K_LOAD;
        loads[2] = r->in[values];
        *weights = r->in[1 - values];
    }
    return k->insts[loads[2]].op == TCI_K_LOAD;
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

/* A score that is SELECT by a comparison of indices: of what depends on keys, or of one value. */
TCI_FN tci_attention_cut tci_attention_find_cut(const tci_kernel *k, int score, int queries,
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

TCI_FN bool tci_attention_find(const tci_kernel *k, tci_attention *x)
{
    int axes[3], weights = -1, power;
    int32_t loads[3];
    memset(x, 0, sizeof(*x));
    if (!tci_attention_has_form(k, axes) || !tci_attention_has_values(k, x, &power) ||
        !tci_attention_loads(k, axes, loads, &weights)) {
        return false;
    }
    int8_t t = k->operands[tci_kinst_number(&k->insts[loads[2]])].dtype;
    x->is_rows = tci_attention_is_rows(k);
    bool found = (tci_dtype_is_half((tc_dtype)t) || t == TC_F32) &&
                 (x->is_rows || tci_attention_has_weights(k, weights, t, power)) &&
                 tci_attention_sides(k, axes, loads, t, x);
    if (found) {
        if (x->is_rows) {
            x->result.value = x->sum;
            x->result.staged = t;
        } else {
            tci_matrix_value(k, TCI_ATTENTION_RESULT, &x->result);
        }
        x->cut = tci_attention_find_cut(k, x->score, x->scores.m_axis, x->scores.n_axis);
    }
    return found;
}

/* True if a matrix unit of the machine can run the matched kernel. */
static bool tci_attention_fits_unit(const tci_attention *x, tci_machine machine)
{
    return machine.matrix_units > 0 && machine.block_threads > 0 && x->on_unit &&
           x->scores.k >= TCI_ATTENTION_LEAST && x->result.n >= TCI_ATTENTION_LEAST;
}

TCI_FN bool tci_attention_is_work(const tci_matrix *scores, double products)
{
    double tiles = (double)tci_dim_known(tci_dim_ceil_div(scores->m, TCI_ATTENTION_FEWEST));
    double flops = 2 * (double)scores->m * (double)scores->n * products;
    for (int i = 0; i < scores->n_batch; i++) {
        tiles *= (double)scores->batch[i];
        flops *= (double)scores->batch[i];
    }
    return tiles <= INT32_MAX / 2 && flops >= TCI_MATRIX_FLOPS;
}

TCI_FN bool tci_attention_fits(const tci_kernel *k, tci_machine machine)
{
    tci_attention x;
    if (!tci_attention_has_threads(machine) || !tci_attention_find(k, &x)) {
        return false;
    }
    return x.scores.m >= TCI_MATRIX_ROWS && x.scores.n >= TCI_ATTENTION_LEAST &&
           x.scores.k <= TCI_ATTENTION_SIZE && x.result.n <= TCI_ATTENTION_SIZE &&
           tci_attention_is_work(&x.scores, (double)(x.scores.k + x.result.n));
}

TCI_FN void tci_attention_set_orders(tci_kernel *k, tci_machine machine)
{
    static const int reds[3] = {TCI_ATTENTION_SCORES, TCI_ATTENTION_SUM, TCI_ATTENTION_RESULT};
    tci_attention x;
    bool on_unit = tci_attention_find(k, &x) && tci_attention_fits_unit(&x, machine);
    for (int i = 0; i < 3 - x.is_rows; i++) {
        k->reds[reds[i]].order = i > 0     ? TCI_ORDER_STEPS
                                 : on_unit ? TCI_ORDER_MATRIX
                                           : TCI_ORDER_CHAIN;
        k->reds[reds[i]].order_n = 0;
        k->reds[reds[i]].near = 0;
    }
    if (x.is_rows) {
        k->reds[TCI_ATTENTION_SUM].order_n = (int32_t)x.result.n;
    }
}

TCI_FN double tci_attention_steps(const tci_attention_cut *cut, const tci_matrix *scores)
{
    double steps = (double)tci_dim_known(tci_dim_ceil_div(scores->n, scores->columns));
    return cut->is_cut ? (steps + 1) / 2 : steps;
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
