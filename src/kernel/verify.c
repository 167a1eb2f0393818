/* kernel/verify.c - checks the invariants written in kernel/ir.h; a violation aborts the compile
 * with TC_ERR_INTERNAL. Conditions on symbolic sizes that cannot be decided for all of them are not
 * checked. */
#include "ir.h"

static bool tci_kernel_is_empty(const tci_kernel *k)
{
    bool empty = false;
    for (int a = 0; a < k->n_axes; a++) {
        empty |= k->axes[a].size == 0;
    }
    return empty;
}

static bool tci_kernel_is_index(tci_dim d, int n)
{
    return tci_dim_is_known(d) && tci_dim_le(0, d) && tci_dim_lt(d, n);
}

/* ---- index expressions ---- */

static void tci_kernel_verify_kx(tci_scratch *s, const tci_kernel *k, int at)
{
    const tci_kx *x = &k->kx[at];
    bool unary = x->op == TCI_KX_MUL || x->op == TCI_KX_DIV || x->op == TCI_KX_MOD;
    if (unary || x->op == TCI_KX_ADD) {
        TCI_ASSERT(s, x->a >= 0 && x->a < at);
    }
    TCI_ASSERT(s, x->op != TCI_KX_ADD || (x->b >= 0 && x->b < at));
    TCI_ASSERT(s, x->op != TCI_KX_AXIS || tci_kernel_is_index(x->c, k->n_axes));
    TCI_ASSERT(s, x->op != TCI_KX_VALUE || tci_kernel_is_index(x->c, k->n_insts));
    if (x->op == TCI_KX_DIV || x->op == TCI_KX_MOD) {
        TCI_ASSERT(s, !tci_dim_is_known(x->c) || tci_dim_known(x->c) > 0);
    }
}

/* True if x is inside the operand for the whole domain, by its range. */
static void tci_kernel_verify_inside(tci_scratch *s, const tci_kernel *k, int x, int operand)
{
    tci_dim lo = k->kx[x].lo, hi = k->kx[x].hi, n = k->operands[operand].n;
    bool known = tci_dim_is_known(lo) && tci_dim_is_known(hi) && tci_dim_is_known(n);
    if (known && !tci_kernel_is_empty(k)) {
        TCI_ASSERT(s, tci_dim_le(0, lo) && tci_dim_lt(hi, n));
    }
}

/* ---- instructions ---- */

static void tci_kernel_verify_load(tci_scratch *s, const tci_kernel *k, const tci_kinst *i)
{
    TCI_ASSERT(s, tci_kernel_is_index(i->imm, k->n_operands));
    TCI_ASSERT(s, !k->operands[tci_kinst_number(i)].is_output);
    TCI_ASSERT(s, i->x >= 0 && i->x < k->n_kx);
    if (i->n_guards == 0) {
        tci_kernel_verify_inside(s, k, i->x, tci_kinst_number(i));
    }
}

static void tci_kernel_verify_insts(tci_scratch *s, const tci_kernel *k)
{
    for (int n = 0; n < k->n_insts; n++) {
        const tci_kinst *i = &k->insts[n];
        TCI_ASSERT(s, tci_dtype_is_valid(i->dtype) && !tci_dtype_is_half((tc_dtype)i->dtype));
        for (int a = 0; a < i->n_args; a++) {
            TCI_ASSERT(s, i->args[a] >= 0 && i->args[a] < n);
        }
        TCI_ASSERT(s, i->n_guards == 0 || (i->guard >= 0 && i->guard + i->n_guards <= k->n_guards));
        if (i->op == TCI_K_LOAD) {
            tci_kernel_verify_load(s, k, i);
        }
        if (i->op == TCI_K_LIT) {
            TCI_ASSERT(s, tci_kernel_is_index(i->imm, k->n_literals));
        }
        if (i->op == TCI_K_RED) {
            TCI_ASSERT(s, tci_kernel_is_index(i->imm, k->n_reds));
        }
    }
}

TCI_FN void tci_kernel_need_dims(tci_scratch *s, const tci_kernel *k)
{
    for (int a = 0; a < k->n_axes; a++) {
        tci_dim_need(s, k->axes[a].size, "an axis of a kernel");
    }
    for (int x = 0; x < k->n_kx; x++) {
        tci_dim_need(s, k->kx[x].c, "an index of a kernel");
        tci_dim_need(s, k->kx[x].lo, "the least of an index of a kernel");
        tci_dim_need(s, k->kx[x].hi, "the most of an index of a kernel");
    }
    for (int g = 0; g < k->n_guards; g++) {
        tci_dim_need(s, k->guards[g].lo, "a bound in a kernel");
        tci_dim_need(s, k->guards[g].hi, "a bound in a kernel");
    }
    for (int p = 0; p < k->n_operands; p++) {
        tci_dim_need(s, k->operands[p].n, "the number of elements of an operand of a kernel");
    }
}

/* True if stage t iterates over all axes that `inst` depends on. A bit may represent several axes.
 */
static bool tci_kernel_walks(const tci_kernel *k, int t, int inst)
{
    uint64_t walked = 0, inner = 0;
    for (int a = 0; a < k->stages[t].n_axes; a++) {
        walked |= (uint64_t)1 << TCI_MIN(k->stages[t].axes[a], 63);
    }
    for (int a = k->n_outer; a < k->n_axes; a++) {
        inner |= (uint64_t)1 << TCI_MIN(a, 63);
    }
    return (k->insts[inst].axes & inner & ~walked) == 0;
}

/* ---- stores ---- */

static bool tci_kernel_store_covers(const tci_kernel *k, const tci_kstore *store, int axis)
{
    const tci_kstage *stage = &k->stages[store->stage];
    bool covers = axis < k->n_outer;
    for (int a = 0; a < stage->n_axes; a++) {
        covers |= stage->axes[a] == axis;
    }
    return covers;
}

/* Different points have different offsets: by size, each coefficient is larger than all that those
 * before it can add. */
static bool tci_kernel_is_injective(const tci_kernel *k, int64_t *coef)
{
    int64_t reach = 0;
    for (int round = 0; round < k->n_axes; round++) {
        int least = -1;
        for (int a = 0; a < k->n_axes; a++) {
            coef[a] = coef[a] < 0 ? -coef[a] : coef[a];
            bool counts = coef[a] < INT64_MAX && (least < 0 || coef[a] < coef[least]);
            least = counts ? a : least;
        }
        if (least < 0) {
            break;
        }
        if (coef[least] <= reach) {
            return false;
        }
        reach += coef[least] * (tci_dim_known(k->axes[least].size) - 1);
        coef[least] = INT64_MAX;
    }
    return true;
}

/* The coefficients of the axes in x, and of the one loaded index that x may have, whose range is
 * then `index`; false: x is no such sum. */
static bool tci_kernel_takes_apart(const tci_kernel *k, int x, tci_dim *coef, tci_dim *index_coef,
                                   const tci_kx **index)
{
    *index = NULL;
    for (int a = 0; a < k->n_axes; a++) {
        coef[a] = 0;
    }
    for (bool more = true; more;) {
        const tci_kx *e = &k->kx[x];
        more = e->op == TCI_KX_ADD;
        x = e->a;
        e = more ? &k->kx[e->b] : e;
        tci_dim c = e->op == TCI_KX_MUL ? e->c : 1;
        e = e->op == TCI_KX_MUL ? &k->kx[e->a] : e;
        if (e->op == TCI_KX_AXIS) {
            int axis = tci_kx_number(e);
            coef[axis] = tci_dim_add(coef[axis], c);
        } else if (e->op == TCI_KX_VALUE && !*index) {
            *index = e;
            *index_coef = c;
        } else if (e->op != TCI_KX_CONST) {
            return false;
        }
    }
    return true;
}

/* A SCATTER's: whatever the loaded index, which is as good as an axis, different outer points have
 * different offsets. */
static void tci_kernel_verify_owned(tci_scratch *s, const tci_kernel *k, const tci_kstore *store)
{
    tci_dim *coef = TCI_NEW_ARRAY(s, tci_dim, k->n_axes + 1), index_coef = 0;
    int64_t *numbers = TCI_NEW_ARRAY(s, int64_t, k->n_axes + 1);
    const tci_kx *index;
    bool known = tci_kernel_takes_apart(k, store->x, coef, &index_coef, &index);
    int n = k->n_axes;
    tci_kernel as = *k;
    as.axes = TCI_NEW_ARRAY(s, tci_kaxis, n + 1);
    for (int a = 0; a < n && known; a++) {
        as.axes[a] = k->axes[a];
        known = tci_dim_is_known(k->axes[a].size) && tci_dim_is_known(coef[a]);
        bool counts = a < k->n_outer && k->axes[a].size != 1;
        TCI_ASSERT(s, !known || a < k->n_outer || coef[a] == 0);
        numbers[a] = counts ? tci_dim_known(coef[a]) : INT64_MAX;
    }
    if (index && known) {
        known = tci_dim_is_known(index_coef) && tci_dim_is_known(index->hi);
        as.axes[n].size = known ? tci_dim_add(tci_dim_sub(index->hi, index->lo), 1) : 1;
        numbers[n] = as.axes[n].size == 1 ? INT64_MAX : tci_dim_known(index_coef);
        as.n_axes++;
    }
    TCI_ASSERT(s, !known || tci_kernel_is_empty(k) || tci_kernel_is_injective(&as, numbers));
}

/* Its operand is read as it is written: an earlier stage has given it every element. */
static void tci_kernel_verify_scatter(tci_scratch *s, const tci_kernel *k, const tci_kstore *store)
{
    bool begun = false;
    if (store->apart) {
        TCI_ASSERT(s, store->mode == TCI_MODE_SET && store->guard < 0 &&
                          k->stages[store->stage].n_axes == 0);
        return;
    }
    tci_dim *coef = TCI_NEW_ARRAY(s, tci_dim, k->n_axes + 1), base;
    for (int w = 0; w < k->n_stores; w++) {
        const tci_kstore *other = &k->stores[w];
        tci_dim points = 1;
        bool sum = tci_kx_affine(k, other->x, coef, &base);
        for (int a = 0; sum && a < k->n_axes; a++) {
            bool covers = a < k->n_outer;
            for (int i = 0; i < k->stages[other->stage].n_axes; i++) {
                covers |= k->stages[other->stage].axes[i] == a;
            }
            points = covers ? tci_dim_mul(points, k->axes[a].size) : points;
        }
        begun |= other->operand == store->operand && other->stage < store->stage &&
                 k->stages[other->stage].kind == TCI_STAGE_MAP && sum &&
                 (points == k->operands[store->operand].n || !tci_dim_is_known(points) ||
                  !tci_dim_is_known(k->operands[store->operand].n));
    }
    TCI_ASSERT(s, begun && k->vector == TCI_VEC_OUTER);
    TCI_ASSERT(s, store->mode < TCI_MODE_COUNT);
    bool reads = store->mode != TCI_MODE_SET || store->guard >= 0 ||
                 k->stages[store->stage].from >= 0;
    TCI_ASSERT(s, !reads || k->operands[store->operand].is_updated);
    tci_kernel_verify_owned(s, k, store);
}

/* Where sizes and coefficients are numbers, and the offset is a sum of axes. */
static void tci_kernel_verify_store_injective(tci_scratch *s, const tci_kernel *k,
                                              const tci_kstore *store)
{
    tci_dim *coef = TCI_NEW_ARRAY(s, tci_dim, k->n_axes + 1), base;
    int64_t *numbers = TCI_NEW_ARRAY(s, int64_t, k->n_axes + 1);
    bool known = tci_kx_affine(k, store->x, coef, &base);
    for (int a = 0; a < k->n_axes && known; a++) {
        bool covers = tci_kernel_store_covers(k, store, a);
        known = tci_dim_is_known(k->axes[a].size) && tci_dim_is_known(coef[a]);
        TCI_ASSERT(s, !known || covers || coef[a] == 0);
        bool counts = covers && k->axes[a].size != 1;
        numbers[a] = counts ? tci_dim_known(coef[a]) : INT64_MAX;
    }
    TCI_ASSERT(s, !known || tci_kernel_is_empty(k) || tci_kernel_is_injective(k, numbers));
}

static void tci_kernel_verify_store(tci_scratch *s, const tci_kernel *k, const tci_kstore *store)
{
    TCI_ASSERT(s, store->stage >= 0 && store->stage < k->n_stages);
    TCI_ASSERT(s, store->operand >= 0 && store->operand < k->n_operands);
    TCI_ASSERT(s, k->operands[store->operand].is_output);
    TCI_ASSERT(s, store->x >= 0 && store->x < k->n_kx);
    TCI_ASSERT(s, store->value >= 0 && store->value < k->n_insts);
    const tci_kstage *stage = &k->stages[store->stage];
    TCI_ASSERT(s, stage->kind != TCI_STAGE_REDUCE);
    bool scan = stage->kind == TCI_STAGE_SCAN;
    TCI_ASSERT(s, k->insts[store->value].stage < store->stage + (scan ? 1 : 0));
    TCI_ASSERT(s, tci_kernel_walks(k, store->stage, store->value));
    TCI_ASSERT(s, store->guard < k->n_insts);
    TCI_ASSERT(s, store->guard < 0 || k->insts[store->guard].dtype == TC_BOOL);
    tci_kernel_verify_inside(s, k, store->x, store->operand);
    if (stage->kind == TCI_STAGE_SCATTER) {
        tci_kernel_verify_scatter(s, k, store);
        return;
    }
    TCI_ASSERT(s, store->mode == TCI_MODE_SET && store->guard < 0);
    tci_kernel_verify_store_injective(s, k, store);
}

/* Of a kernel's reductions one at most, of a whole row. */
static void tci_kernel_verify_earlier(tci_scratch *s, const tci_kernel *k, const tci_kred *red)
{
    TCI_ASSERT(s, red == tci_kernel_earlier(k) && red->earlier <= k->n_outer);
    TCI_ASSERT(s, red->order == TCI_ORDER_LANES && tci_red_parts(red->op) == 1);
    TCI_ASSERT(s, k->stages[red->stage].n_axes == 1);
}

static void tci_kernel_verify_order(tci_scratch *s, const tci_kernel *k, const tci_kred *red)
{
    bool inner = k->vector == TCI_VEC_INNER;
    bool scan = k->stages[red->stage].kind == TCI_STAGE_SCAN;
    bool keeps = k->stages[red->stage].n_kept > 0;
    bool steps = red->order == TCI_ORDER_STEPS && red->op == TCI_RED_SUM;
    TCI_ASSERT(s, (inner && !keeps && !scan) == (red->order == TCI_ORDER_LANES || steps));
    TCI_ASSERT(s, (inner && scan) == (red->order == TCI_ORDER_BLOCK_SCAN));
    TCI_ASSERT(s, red->near == (red->order == TCI_ORDER_LANES ? tci_kernel_near(k) : 0));
    TCI_ASSERT(s, red->near <= TCI_VLANES && !(red->near & (red->near - 1)));
    TCI_ASSERT(s, !keeps || inner);
    TCI_ASSERT(s, !inner || keeps || red->op != TCI_RED_DOT);
    TCI_ASSERT(s, !scan || tci_red_parts(red->op) == 1);
    TCI_ASSERT(s, !scan || !inner || k->stages[red->stage].n_axes <= 1);
    if (red->earlier) {
        tci_kernel_verify_earlier(s, k, red);
    }
    bool exact = red->order == TCI_ORDER_CHAIN || red->order == TCI_ORDER_SPLIT;
    bool bytes = red->points == 4 && red->dtype == TC_I32;
    TCI_ASSERT(s, red->points == 0 ||
                      (red->op == TCI_RED_DOT &&
                       (exact || (bytes && red->order == TCI_ORDER_MATRIX)) &&
                       (red->points == 2 ? red->dtype == TC_F32 || red->dtype == TC_I32 : bytes)));
    switch ((tci_korder)red->order) {
    case TCI_ORDER_CHAIN: TCI_ASSERT(s, red->order_n == 0); return;
    case TCI_ORDER_LANES:
    case TCI_ORDER_BLOCK_SCAN:
        TCI_ASSERT(s, red->order_n == tci_kernel_lanes(k) && red->order_n >= TCI_VLANES);
        TCI_ASSERT(s, red->order_n <= TCI_VLANES_MAX && !(red->order_n & (red->order_n - 1)));
        return;
    case TCI_ORDER_SPLIT:
        TCI_ASSERT(s, red->order_n > 0 && red->op == TCI_RED_DOT && red->dtype == TC_F32);
        return;
    case TCI_ORDER_MATRIX:
    case TCI_ORDER_TF32:
        TCI_ASSERT(s, red->order_n == 0 && red->op == TCI_RED_DOT);
        TCI_ASSERT(s, red->dtype == TC_F32 || (red->order == TCI_ORDER_MATRIX &&
                                               (red->dtype == TC_F64 || red->dtype == TC_I32)));
        return;
    case TCI_ORDER_STEPS:
        TCI_ASSERT(s, red->dtype == TC_F32);
        TCI_ASSERT(s, red->order_n == 0 || (red->order_n > 0 && red->op == TCI_RED_SUM));
        TCI_ASSERT(s, red->op == TCI_RED_SUM || (red->op == TCI_RED_DOT && keeps));
        return;
    }
    TCI_ASSERT(s, false);
}

/* Verifies that reduced values are available before the stage, in the dtypes of the combine row,
 * and that the result is one of its parts. */
static void tci_kernel_verify_red(tci_scratch *s, const tci_kernel *k, const tci_kred *red)
{
    int takes = tci_red_takes(red->op);
    TCI_ASSERT(s, red->part < tci_red_parts(red->op));
    for (int i = 0; i < TCI_PARTS; i++) {
        TCI_ASSERT(s, i < takes ? red->in[i] >= 0 && red->in[i] < k->n_insts : red->in[i] < 0);
        TCI_ASSERT(s, i >= takes || k->insts[red->in[i]].stage < red->stage);
        TCI_ASSERT(s, i >= takes || k->insts[red->in[i]].dtype ==
                                        tci_red_taken(red->op, i, (tc_dtype)red->dtype));
    }
    TCI_ASSERT(s, k->insts[red->inst].dtype ==
                      tci_red_dtype(red->op, red->part, (tc_dtype)red->dtype));
}

/* Its ends are in the axis, and are the outer point's. */
static void tci_kernel_verify_stretch(tci_scratch *s, const tci_kernel *k, int stage)
{
    const tci_kstage *st = &k->stages[stage];
    if (st->from < 0 && st->to < 0) {
        return;
    }
    TCI_ASSERT(s, st->kind == TCI_STAGE_SCATTER && st->n_axes == 1);
    const int32_t ends[2] = {st->from, st->to};
    for (int i = 0; i < 2; i++) {
        TCI_ASSERT(s, ends[i] >= 0 && ends[i] < k->n_kx);
        const tci_kx *x = &k->kx[ends[i]];
        tci_dim size = k->axes[st->axes[0]].size;
        bool known = tci_dim_is_known(x->lo) && tci_dim_is_known(x->hi) && tci_dim_is_known(size);
        TCI_ASSERT(s, !known || (tci_dim_le(0, x->lo) && tci_dim_le(x->hi, size)));
        for (int a = k->n_outer; a < k->n_axes && a < 63; a++) {
            TCI_ASSERT(s, !(x->axes >> a & 1));
        }
    }
}

/* ---- stages ---- */

static void tci_kernel_verify_stage(tci_scratch *s, const tci_kernel *k, int t)
{
    const tci_kstage *stage = &k->stages[t];
    for (int a = 0; a < stage->n_axes; a++) {
        TCI_ASSERT(s, stage->axes[a] >= k->n_outer && stage->axes[a] < k->n_axes);
    }
    TCI_ASSERT(s, stage->n_kept >= 0 && stage->n_kept <= stage->n_axes);
    TCI_ASSERT(s, stage->n_kept == 0 ||
                      (stage->kind == TCI_STAGE_REDUCE && k->vector == TCI_VEC_INNER));
    tci_kernel_verify_stretch(s, k, t);
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        if (red->stage == t) {
            TCI_ASSERT(s, stage->n_kept == 0 || tci_red_parts(red->op) == 1);
            for (int i = 0; i < tci_red_takes(red->op); i++) {
                TCI_ASSERT(s, tci_kernel_walks(k, t, red->in[i]));
            }
        }
    }
}

/* Operands and literals are the members', none of which is a merged kernel. */
static void tci_kernel_verify_grouped_launch(tci_scratch *s, const tci_kernel *k)
{
    int operand = 0, literals = 0;
    for (int i = 0; i < k->n_members; i++) {
        const tci_kernel *m = k->members[i];
        TCI_ASSERT(s, !m->n_members && !m->call && !m->is_repeat && (k->faults || !m->faults));
        TCI_ASSERT(s, operand + m->n_operands <= k->n_operands);
        for (int o = 0; o < m->n_operands; o++, operand++) {
            const tci_koperand *x = &k->operands[operand], *y = &m->operands[o];
            TCI_ASSERT(s, x->dtype == y->dtype && x->is_output == y->is_output && x->n == y->n);
        }
        literals += m->n_literals;
        if (tci_kernel_first_same(k, i) == i) {
            tci_kernel_verify(s, m);
        }
    }
    TCI_ASSERT(s, operand == k->n_operands && literals == k->n_literals && !k->n_stages);
}

static void tci_kernel_verify_loop_operand(tci_scratch *s, const tci_kernel *k, const tci_kplace *p)
{
    TCI_ASSERT(s, p->base < 0 ? ~p->base < k->loop->n_cells : p->base < k->n_operands);
    TCI_ASSERT(s, p->base >= 0 || (p->by == 0 && tci_dim_is_known(p->offset)));
    TCI_ASSERT(s, p->step <= TCI_STEP_ANEW);
}

static void tci_kernel_verify_carry(tci_scratch *s, const tci_kernel *k, const tci_kcarry *c)
{
    TCI_ASSERT(s, c->from.base >= 0 && c->from.base == c->to.base);
    TCI_ASSERT(s, k->operands[c->from.base].is_output && c->from.step == c->to.step);
    TCI_ASSERT(s, (c->cell < 0) == (c->next < 0) && c->cell < k->loop->n_cells);
    tci_kernel_verify_loop_operand(s, k, &c->from);
    tci_kernel_verify_loop_operand(s, k, &c->to);
    if (c->cell >= 0) {
        const tci_kcell *x = &k->loop->cells[c->cell], *y = &k->loop->cells[c->next];
        TCI_ASSERT(s, c->cell != c->next && x->dtype == y->dtype && x->n == y->n);
        TCI_ASSERT(s, c->bytes == x->n * tci_dtype_get((tc_dtype)x->dtype)->bytes);
    }
}

/* Members are kernels or in-kernel loops; each of their operands has a buffer, which is an output
 * of the loop, or a cell, if the member writes it. */
static void tci_kernel_verify_loop(tci_scratch *s, const tci_kernel *k)
{
    const tci_kloop *loop = k->loop;
    int at = 0, literals = 0;
    for (int i = 0; i < k->n_members; i++) {
        const tci_kernel *m = k->members[i];
        TCI_ASSERT(s, (!m->n_members || m->loop) && !m->call && !m->is_repeat);
        TCI_ASSERT(s, k->faults || !m->faults);
        for (int o = 0; o < m->n_operands; o++, at++) {
            const tci_kplace *p = &loop->places[at];
            const tci_koperand *x = &m->operands[o];
            tci_kernel_verify_loop_operand(s, k, p);
            TCI_ASSERT(s, !x->is_output || p->base < 0 || k->operands[p->base].is_output);
            if (p->base < 0) {
                const tci_kcell *c = &loop->cells[~p->base];
                TCI_ASSERT(s, c->dtype == x->dtype && tci_dim_is_known(x->n));
                TCI_ASSERT(s,
                           tci_dim_known(p->offset) +
                                   tci_dim_known(x->n) * tci_dtype_get((tc_dtype)x->dtype)->bytes <=
                               c->n * tci_dtype_get((tc_dtype)x->dtype)->bytes);
            }
        }
        literals += m->n_literals;
        if (tci_kernel_first_same(k, i) == i) {
            tci_kernel_verify(s, m);
        }
    }
    for (int i = 0; i < loop->n_carries; i++) {
        tci_kernel_verify_carry(s, k, &loop->carries[i]);
    }
    TCI_ASSERT(s, at == loop->n_places && literals == k->n_literals && !k->n_stages);
    TCI_ASSERT(s, loop->stops < loop->n_carries && loop->n_enter <= k->n_members);
    TCI_ASSERT(s, loop->stops < 0 || loop->carries[loop->stops].cell >= 0);
}

TCI_FN void tci_kernel_verify(tci_scratch *s, const tci_kernel *k)
{
    if (k->loop) {
        tci_kernel_verify_loop(s, k);
        return;
    }
    if (k->n_members) {
        tci_kernel_verify_grouped_launch(s, k);
        return;
    }
    tci_kernel_need_dims(s, k);
    for (int x = 0; x < k->n_kx; x++) {
        tci_kernel_verify_kx(s, k, x);
    }
    for (int a = 0; a < k->n_axes; a++) {
        TCI_ASSERT(s, k->axes[a].inner == (a >= k->n_outer));
    }
    tci_kernel_verify_insts(s, k);
    for (int t = 0; t < k->n_stages; t++) {
        tci_kernel_verify_stage(s, k, t);
    }
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        TCI_ASSERT(s, red->stage >= 0 && red->stage < k->n_stages);
        tci_kstage_kind kind = (tci_kstage_kind)k->stages[red->stage].kind;
        TCI_ASSERT(s, kind == TCI_STAGE_REDUCE || kind == TCI_STAGE_SCAN);
        tci_kernel_verify_red(s, k, red);
        tci_kernel_verify_order(s, k, red);
    }
    for (int w = 0; w < k->n_stores; w++) {
        tci_kernel_verify_store(s, k, &k->stores[w]);
    }
}
