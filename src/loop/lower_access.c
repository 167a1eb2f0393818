/* loop/lower_access.c - lowers the loads, stores, indices and guards of a kernel to memory
 * accesses.
 *
 * In: an instruction and the bindings of its axes. Out: statements with the cheapest correct
 * access: contiguous, masked, strided, one element, or, if the offset is not linear in the vector
 * axis, a gather or scatter by a vector of offsets, or a loop over the lanes through a local
 * array. A guard is first compared with the ranges of the bindings: if they decide it, nothing is
 * emitted. Otherwise it is a scalar condition or, along the vector axis, an interval of lanes. */
#include <string.h>

#include "lower_expr.h"

typedef struct tci_access_guard {
    tci_truth truth;
    int condition; /* scalar bool, -1 none */
    int mask;      /* vector bool, -1 none */
    bool by_lane;  /* neither fits: look at each lane alone */
} tci_access_guard;

TCI_FN bool tci_build_guard_holds(const tci_build *b, int g)
{
    const tci_kguard *guard = &b->k->guards[g];
    tci_dim lo, hi;
    tci_build_range(b, guard->x, &lo, &hi);
    return (b->holds && b->holds[g]) || (tci_dim_le(guard->lo, lo) && tci_dim_le(hi, guard->hi));
}

TCI_FN tci_truth tci_build_guard_truth(const tci_build *b, const tci_kinst *inst)
{
    tci_truth truth = TCI_ALWAYS;
    if (b->guard >= 0 && inst == &b->k->insts[b->guard]) {
        return (tci_truth)b->guard_truth;
    }
    for (int i = 0; i < inst->n_guards; i++) {
        const tci_kguard *g = &b->k->guards[inst->guard + i];
        tci_dim lo, hi;
        tci_build_range(b, g->x, &lo, &hi);
        if (tci_dim_lt(hi, g->lo) || tci_dim_lt(g->hi, lo)) {
            return TCI_NEVER;
        }
        if (!tci_build_guard_holds(b, inst->guard + i)) {
            truth = TCI_SOMETIMES;
        }
    }
    return truth;
}

static int tci_access_and(tci_build *b, int x, int y)
{
    int args[2] = {x, y};
    return x < 0 ? y : tci_build_prim(b, TCI_P_AND, TC_BOOL, 2, args, 0);
}

static int tci_access_in_range(tci_build *b, int kx, tci_dim lo, tci_dim hi)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_IN_RANGE);
    st.x = tci_build_lx(b, tci_build_kx(b, kx));
    st.lo = lo;
    st.imm = hi;
    int block = tci_lx_block(b->l, st.x);
    st.dst = tci_loop_value(b->l, TC_BOOL, 1, block);
    tci_loop_append(b->l, block, st);
    return st.dst;
}

/* min(max(x, 0), upper) as an index expression; upper may be an expression too. */
static int tci_access_clamp(tci_build *b, tci_lin x, int upper)
{
    int lx = tci_lx_make(b->l, TCI_LX_MAX, tci_build_lx(b, x), tci_lx_const(b->l, 0), 0);
    return tci_lx_make(b->l, TCI_LX_MIN, lx, upper, 0);
}

/* floor(x / c) of a linear form known to be >= lo; where c divides all but the constant, that is
 * one again. */
static tci_lin tci_access_div(tci_build *b, tci_lin x, int64_t c, tci_dim lo)
{
    tci_dim *coef = TCI_NEW_ARRAY(b->s, tci_dim, x.n + 1);
    bool all = true;
    for (int i = 0; i < x.n; i++) {
        all = all && tci_dim_divides(c, x.coef[i]);
        coef[i] = all ? tci_dim_div(x.coef[i], c) : 0;
    }
    if (all) {
        tci_lin r = {tci_dim_div(x.c, c), x.n, x.var, coef};
        return r;
    }
    tci_dim shift = tci_build_shift(lo, c);
    int lx = tci_build_lx(b, tci_lin_plus(x, tci_dim_mul(shift, c)));
    return tci_lin_plus(tci_build_let(b, tci_lx_make(b->l, TCI_LX_DIV, lx, -1, c)),
                        tci_dim_neg(shift));
}

static int tci_access_first_n(tci_build *b, int n)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_FIRST_N;
    st.n = n;
    return tci_build_mem(b, st, TC_BOOL, b->l->lanes, -1);
}

/* Lanes i with g->lo <= x0 + coef * i <= g->hi: first_n(end) and not first_n(begin). */
static int tci_access_interval(tci_build *b, const tci_kguard *g, int64_t coef)
{
    const tci_bind *vec = b->bind[b->vec_axis];
    int64_t step = coef < 0 ? -coef : coef;
    tci_dim lo, hi;
    tci_lin x0 = tci_build_kx(b, g->x);
    tci_build_range(b, g->x, &lo, &hi);
    /* distance from lane 0 to the first and past the last lane inside, in units of x */
    tci_lin to_lo = coef > 0 ? tci_lin_plus(tci_lin_mul(b, x0, -1), g->lo)
                             : tci_lin_plus(x0, tci_dim_neg(g->hi));
    tci_lin to_hi = coef > 0 ? tci_lin_plus(tci_lin_mul(b, x0, -1), g->hi)
                             : tci_lin_plus(x0, tci_dim_neg(g->lo));
    tci_dim least_lo = coef > 0 ? tci_dim_sub(g->lo, hi) : tci_dim_sub(lo, g->hi);
    tci_dim least_hi = coef > 0 ? tci_dim_sub(g->hi, hi) : tci_dim_sub(lo, g->lo);
    tci_lin begin = tci_access_div(b, tci_lin_plus(to_lo, step - 1), step, least_lo);
    tci_lin end = tci_lin_plus(tci_access_div(b, to_hi, step, least_hi), 1);
    int upper = vec->n >= 0 ? vec->n : tci_lx_const(b->l, b->l->lanes);
    int mask = tci_access_first_n(b, tci_access_clamp(b, end, upper));
    if (coef > 0 ? !tci_dim_le(g->lo, lo) : !tci_dim_le(hi, g->hi)) {
        int before = tci_access_first_n(b, tci_access_clamp(b, begin,
                                                            tci_lx_const(b->l, b->l->lanes)));
        int outside = tci_build_prim(b, TCI_P_NOT, TC_BOOL, 1, &before, 0);
        mask = tci_access_and(b, mask, outside);
    }
    return mask;
}

static tci_access_guard tci_access_guards(tci_build *b, const tci_kinst *inst)
{
    tci_access_guard r = {tci_build_guard_truth(b, inst), -1, -1, false};
    if (r.truth != TCI_SOMETIMES) {
        return r;
    }
    for (int i = 0; i < inst->n_guards; i++) {
        const tci_kguard *g = &b->k->guards[inst->guard + i];
        tci_dim coef = 0;
        if (tci_build_guard_holds(b, inst->guard + i)) {
            continue;
        }
        bool vector = tci_build_is_vector(b, tci_kx_axes(b->k, g->x));
        bool linear = !vector || tci_build_coef(b->k, g->x, b->vec_axis, &coef);
        if (!linear || !tci_dim_is_known(coef)) {
            r.by_lane = true;
            return r;
        }
        if (vector && coef != 0) {
            r.mask = tci_access_and(b, r.mask, tci_access_interval(b, g, tci_dim_known(coef)));
        } else {
            r.condition = tci_access_and(b, r.condition,
                                         tci_access_in_range(b, g->x, g->lo, g->hi));
        }
    }
    return r;
}

/* ---- one lane at a time ---- */

/* An array with an element for each lane. */
static int tci_access_lane_local(tci_build *b, tc_dtype t, int block)
{
    int local = tci_build_local(b, t, b->l->lanes, block);
    b->l->locals[local].is_lane = true;
    return local;
}

static void tci_access_open_lanes(tci_build *b, const tci_bind *vec, tci_lopen *open)
{
    int end = vec->n >= 0 ? vec->n : tci_lx_const(b->l, b->l->lanes);
    int begin = tci_lx_const(b->l, 0);
    if (b->l->threads > 1) { /* each thread traverses the lanes it holds */
        int held = b->l->lanes / b->l->threads;
        begin = tci_lx_make(b->l, TCI_LX_MUL, tci_lx_make(b->l, TCI_LX_THREAD, -1, -1, 0), -1,
                            held);
        int next = tci_lx_make(b->l, TCI_LX_ADD, begin, tci_lx_const(b->l, held), 0);
        end = tci_lx_make(b->l, TCI_LX_MIN, end, next, 0);
    }
    int lane = tci_build_for(b, begin, end, 1, open);
    tci_lin at = tci_lin_add(b, vec->at, tci_lin_var(b, lane));
    b->lane_axis = b->vec_axis;
    b->lane_bind = vec;
    b->lane_index = lane;
    b->lane_parent = open->parent;
    b->lane_floor = open->floor;
    tci_build_set(b, b->vec_axis, tci_build_bind(b, at, vec->lo, vec->hi, false, -1));
}

static void tci_access_close_lanes(tci_build *b, const tci_lopen *open)
{
    tci_build_close(b, open);
    tci_build_set(b, b->lane_axis, b->lane_bind);
    b->lane_bind = NULL;
}

/* Evaluates `inst` lane by lane as a scalar, through a local array. */
static int tci_access_by_lane(tci_build *b, int inst)
{
    const tci_bind *vec = b->bind[b->vec_axis];
    tc_dtype t = (tc_dtype)b->k->insts[inst].dtype;
    int local = tci_access_lane_local(b, t, b->cur);
    tci_lopen open;
    tci_access_open_lanes(b, vec, &open);
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_STORE_LANE;
    st.base = ~local;
    st.x = tci_lx_var(b->l, open.st.dst);
    st.args[0] = tci_build_value(b, inst);
    tci_build_mem(b, st, t, 1, b->cur);
    tci_access_close_lanes(b, &open);
    tci_lstmt ld = tci_loop_stmt(TCI_L_MEM);
    ld.mem = vec->n >= 0 ? TCI_MEM_LOAD_N : TCI_MEM_LOAD;
    ld.base = ~local;
    ld.x = tci_lx_const(b->l, 0);
    ld.n = vec->n;
    return tci_build_mem(b, ld, t, b->l->lanes, b->cur);
}

/* ---- at computed positions ---- */

/* Lanes after a row's end as the first one, which is there. */
static int tci_access_filled(tci_build *b, int value)
{
    const tci_bind *vec = b->bind[b->vec_axis];
    if (vec->n < 0 || b->l->values[value].lanes == 1) {
        return value;
    }
    tc_dtype t = (tc_dtype)b->l->values[value].dtype;
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_LANE;
    st.args[0] = value;
    st.imm = 0;
    int first = tci_build_mem(b, st, t, 1, -1);
    int args[3] = {tci_access_first_n(b, vec->n), value, first};
    return tci_build_prim(b, TCI_P_SELECT, t, 3, args, 0);
}

/* True if x is a sum of values and of terms that are linear in the vector axis. */
static bool tci_access_is_sum(const tci_build *b, int x)
{
    const tci_kx e = b->k->kx[x];
    tci_dim coef;
    if (tci_build_coef(b->k, x, b->vec_axis, &coef)) {
        return coef == 0 || tci_dim_is_known(coef);
    }
    switch (e.op) {
    case TCI_KX_ADD: return tci_access_is_sum(b, e.a) && tci_access_is_sum(b, e.b);
    case TCI_KX_MUL: return tci_dim_is_known(e.c) && tci_access_is_sum(b, e.a);
    default: return e.op == TCI_KX_VALUE;
    }
}

/* Offsets in lanes, which begin at `from` (a linear form of lane 0). */
typedef struct tci_access_sum {
    tci_lin from;
    int at; /* i64 in lanes; -1: none */
} tci_access_sum;

static void tci_access_add_lanes(tci_build *b, tci_access_sum *sum, int lanes, int64_t times)
{
    if (times != 1) {
        int args[2] = {lanes, tci_build_const(b, TC_I64, (tci_value){.i = times})};
        lanes = tci_build_prim(b, TCI_P_MUL, TC_I64, 2, args, 0);
    }
    int both[2] = {sum->at, lanes};
    sum->at = sum->at < 0 ? lanes : tci_build_prim(b, TCI_P_ADD, TC_I64, 2, both, 0);
}

/* Adds x, times a number. */
static void tci_access_add(tci_build *b, tci_access_sum *sum, int x, int64_t times)
{
    const tci_kx e = b->k->kx[x];
    tci_dim coef;
    if (tci_build_coef(b->k, x, b->vec_axis, &coef)) {
        sum->from = tci_lin_add(b, sum->from, tci_lin_mul(b, tci_build_kx(b, x), times));
        if (coef != 0) {
            tci_lstmt iota = tci_loop_stmt(TCI_L_MEM);
            iota.mem = TCI_MEM_IOTA;
            iota.x = tci_lx_const(b->l, 0);
            int lanes = tci_build_mem(b, iota, TC_I64, b->l->lanes, -1);
            tci_access_add_lanes(b, sum, tci_access_filled(b, lanes), times * tci_dim_known(coef));
        }
    } else if (e.op == TCI_KX_ADD) {
        tci_access_add(b, sum, e.a, times);
        tci_access_add(b, sum, e.b, times);
    } else if (e.op == TCI_KX_MUL) {
        tci_access_add(b, sum, e.a, times * tci_dim_known(e.c));
    } else {
        int value = tci_access_filled(b, tci_build_value(b, tci_kx_number(&e)));
        tc_dtype t = (tc_dtype)b->l->values[value].dtype;
        value = t == TC_I64 ? value : tci_build_prim(b, TCI_P_CAST, TC_I64, 1, &value, 0);
        tci_access_add_lanes(b, sum, tci_build_widen(b, value, b->l->lanes), times);
    }
}

/* All lanes of a load by their offsets. */
static tci_lstmt tci_access_load_at(tci_build *b, const tci_kinst *inst)
{
    tci_access_sum sum = {tci_lin_const(0), -1};
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    tci_access_add(b, &sum, inst->x, 1);
    st.mem = TCI_MEM_LOAD_AT;
    st.base = tci_kinst_number(inst);
    st.x = tci_build_lx(b, sum.from);
    st.args[0] = sum.at;
    return st;
}

/* ---- loads ---- */

static int tci_access_fill(tci_build *b, const tci_kinst *inst)
{
    return tci_build_const(b, (tc_dtype)inst->dtype, inst->value);
}

/* The load statement without its guard's condition. */
static tci_lstmt tci_access_load_stmt(tci_build *b, const tci_kinst *inst, tci_dim coef, int mask,
                                      bool vector)
{
    const tci_bind *vec = vector ? b->bind[b->vec_axis] : NULL;
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.base = tci_kinst_number(inst);
    st.x = tci_build_lx(b, tci_build_kx(b, inst->x));
    st.mem = TCI_MEM_LOAD_ONE;
    if (!vector) {
        return st;
    }
    st.n = vec->n;
    if (mask >= 0) {
        st.mem = TCI_MEM_LOAD_MASK;
        st.args[0] = mask;
        st.n = -1;
    } else if (coef == 1) {
        st.mem = vec->n >= 0 ? TCI_MEM_LOAD_N : TCI_MEM_LOAD;
    } else {
        st.mem = vec->n >= 0 ? TCI_MEM_LOAD_STRIDED_N : TCI_MEM_LOAD_STRIDED;
        st.imm = coef;
    }
    return st;
}

/* The same without a branch, so that many loads are on their way at once. */
static int tci_access_load_at_once(tci_build *b, const tci_kinst *inst, tci_lstmt st, int condition)
{
    st.mem = TCI_MEM_LOAD_IF;
    st.args[0] = condition;
    int value = tci_build_mem(b, st, (tc_dtype)inst->dtype, b->l->lanes,
                              tci_build_floor(b, inst->axes));
    if (inst->value.u == 0) {
        return value;
    }
    int args[3] = {condition, value, tci_access_fill(b, inst)};
    return tci_build_prim(b, TCI_P_SELECT, (tc_dtype)inst->dtype, 3, args, 0);
}

/* value = fill; if (condition) value = load: the whole in the block where the condition is
 * known. */
static int tci_access_load_if(tci_build *b, const tci_kinst *inst, tci_lstmt st, int condition,
                              int lanes)
{
    tci_loop *l = b->l;
    if (b->meets && st.mem == TCI_MEM_LOAD && tci_build_is_aligned(b, &st)) {
        return tci_access_load_at_once(b, inst, st, condition);
    }
    int at = tci_lx_block(l, st.x), saved = b->cur;
    int also[4] = {l->values[condition].block, st.n >= 0 ? tci_lx_block(l, st.n) : 0,
                   st.args[0] >= 0 ? l->values[st.args[0]].block : 0,
                   tci_build_floor(b, inst->axes)};
    for (int i = 0; i < 4; i++) {
        at = l->blocks[also[i]].depth > l->blocks[at].depth ? also[i] : at;
    }
    b->cur = at;
    int value = tci_build_mutable(b, tci_build_widen(b, tci_access_fill(b, inst), lanes));
    tci_lopen open;
    tci_build_if(b, condition, &open);
    tci_build_assign(b, value, tci_build_mem(b, st, (tc_dtype)inst->dtype, lanes, b->cur));
    tci_build_close(b, &open);
    value = tci_build_copy(b, value);
    b->cur = saved;
    return value;
}

TCI_FN int tci_build_swap(tci_build *b, tci_mem mem, int x, int y, int h)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = (uint8_t)mem;
    st.args[0] = x;
    st.args[1] = y;
    st.imm = h;
    return tci_build_mem(b, st, (tc_dtype)b->l->values[x].dtype, b->l->lanes, -1);
}

/* A square of the rows of the tile and the lanes, read along the rows: vector `lane` of values. */
static int tci_access_turn_load(tci_build *b, const tci_kinst *inst, tci_lin at, int64_t lane,
                                int64_t count)
{
    int lanes = b->l->lanes;
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    if (lane >= count) {
        tci_value zero = {.u = 0};
        return tci_build_splat(b, tci_build_const(b, (tc_dtype)inst->dtype, zero));
    }
    tci_dim coef = 0;
    tci_build_coef(b->k, inst->x, b->vec_axis, &coef);
    st.mem = b->n_turn == lanes ? TCI_MEM_LOAD : TCI_MEM_LOAD_N;
    st.n = b->n_turn == lanes ? -1 : tci_lx_const(b->l, b->n_turn);
    st.base = tci_kinst_number(inst);
    st.x = tci_build_lx(b, tci_lin_plus(at, tci_dim_mul(coef, lane)));
    return tci_build_mem(b, st, (tc_dtype)inst->dtype, lanes, tci_build_floor(b, inst->axes));
}

static bool tci_access_can_turn(const tci_build *b, const tci_kinst *inst, tci_dim coef)
{
    tci_dim row = 0, count = 0;
    int64_t step = tci_dim_hint(coef);
    const tci_bind *vec = b->bind[b->vec_axis];
    int bytes = tci_dtype_get((tc_dtype)b->k->operands[tci_kinst_number(inst)].dtype)->bytes;
    return b->turn_rows && inst->n_guards == 0 && inst->dtype != TC_BOOL &&
           (step < 0 ? -step : step) * bytes >= 64 &&
           tci_build_coef(b->k, inst->x, b->turn_axis, &row) && row == 1 &&
           (vec->n < 0 || (tci_lx_is_const(b->l, vec->n, &count) && tci_dim_is_known(count)));
}

/* Values of a load for all rows of the tile at once: whole vectors along the rows, transposed by
 * exchanging blocks of 1, 2, 4 .. lanes between pairs of them. */
static int tci_access_turn(tci_build *b, int i)
{
    const tci_kinst *inst = &b->k->insts[i];
    const tci_bind *here = b->bind[b->turn_axis], *vec = b->bind[b->vec_axis];
    int lanes = b->l->lanes;
    int *v = TCI_NEW_ARRAY(b->s, int, lanes);
    tci_dim count = lanes;
    if (vec->n >= 0) {
        tci_lx_is_const(b->l, vec->n, &count);
    }
    tci_build_set(b, b->turn_axis, b->turn_rows[0]);
    tci_lin at = tci_build_kx(b, inst->x);
    for (int j = 0; j < lanes; j++) {
        v[j] = tci_access_turn_load(b, inst, at, j, tci_dim_known(count));
    }
    for (int h = lanes / 2; h > 0; h /= 2) {
        for (int j = 0; j < lanes; j++) {
            if ((j & h) == 0) {
                int x = v[j], y = v[j + h];
                v[j] = tci_build_swap(b, TCI_MEM_SWAP_LOW, x, y, h);
                v[j + h] = tci_build_swap(b, TCI_MEM_SWAP_HIGH, x, y, h);
            }
        }
    }
    int mine = v[0];
    for (int r = 0; r < b->n_turn; r++) {
        tci_build_set(b, b->turn_axis, b->turn_rows[r]);
        if (b->turn_rows[r] == here) {
            mine = v[r];
        } else {
            tci_build_leave(b, i, v[r]);
        }
    }
    tci_build_set(b, b->turn_axis, here);
    return mine;
}

/* True if the lanes of a load are consecutive in one panel of its operand. */
static bool tci_access_in_panel(tci_build *b, const tci_kinst *inst)
{
    const tci_koperand *from = &b->k->operands[tci_kinst_number(inst)];
    tci_dim step;
    int along = tci_build_panel(b->k, inst, b->vec_axis, 1, &step);
    return along >= 0 && from->panel % b->l->lanes == 0 &&
           tci_lx_multiple(b->l, tci_build_lx(b, tci_build_kx(b, along))) % b->l->lanes == 0;
}

static int tci_access_load_new(tci_build *b, int i)
{
    const tci_kinst *inst = &b->k->insts[i];
    bool vector = tci_build_is_vector(b, inst->axes);
    tci_dim coef = 0;
    tci_access_guard g = tci_access_guards(b, inst);
    if (g.truth == TCI_NEVER || b->k->operands[tci_kinst_number(inst)].n == 0) {
        /* an index into an empty operand was recorded as a fault */
        return tci_access_fill(b, inst);
    }
    bool linear = !vector || tci_build_coef(b->k, inst->x, b->vec_axis, &coef);
    if (!linear && tci_access_in_panel(b, inst)) {
        linear = true;
        coef = 1;
    }
    bool at = !linear && !g.by_lane && g.mask < 0 && !b->waits && tci_access_is_sum(b, inst->x);
    if (!at && (!linear || g.by_lane || (g.mask >= 0 && coef != 1))) {
        return tci_access_by_lane(b, i);
    }
    vector = vector && (at || coef != 0);
    if (!at && vector && tci_access_can_turn(b, inst, coef)) {
        return tci_access_turn(b, i);
    }
    int lanes = vector ? b->l->lanes : 1;
    tci_lstmt st = at ? tci_access_load_at(b, inst)
                      : tci_access_load_stmt(b, inst, coef, g.mask, vector);
    int value = g.condition >= 0 ? tci_access_load_if(b, inst, st, g.condition, lanes)
                                 : tci_build_mem(b, st, (tc_dtype)inst->dtype, lanes,
                                                 tci_build_floor(b, inst->axes));
    if (g.mask >= 0 && inst->value.u != 0) {
        int args[3] = {g.mask, value, tci_access_fill(b, inst)};
        value = tci_build_prim(b, TCI_P_SELECT, (tc_dtype)inst->dtype, 3, args, 0);
    }
    return value;
}

/* Where load i is under the current bindings. */
static tci_lplace tci_access_load_address(tci_build *b, int i)
{
    const tci_kinst *inst = &b->k->insts[i];
    int32_t *at = TCI_NEW_ARRAY(b->s, int32_t, 1 + 2 * inst->n_guards);
    tci_lplace p = {i, -1, b->vec_axis >= 0 ? b->bind[b->vec_axis]->id : 0, 0, at};
    at[p.n_at++] = tci_build_lx(b, tci_build_kx(b, inst->x));
    for (int g = inst->guard; g < inst->guard + inst->n_guards; g++) {
        if (!tci_build_guard_holds(b, g)) {
            at[p.n_at++] = g;
            at[p.n_at++] = tci_build_lx(b, tci_build_kx(b, b->k->guards[g].x));
        }
    }
    return p;
}

/* Emits a load. Loads of neighbouring points whose windows overlap differ in their bindings only,
 * and share the common part. */
static int tci_access_load(tci_build *b, int i)
{
    if (!b->meets || tci_build_guard_truth(b, &b->k->insts[i]) == TCI_NEVER) {
        return tci_access_load_new(b, i);
    }
    tci_lplace here = tci_access_load_address(b, i);
    for (int p = b->n_places - 1; p >= 0; p--) {
        const tci_lplace *known = &b->places[p];
        if (known->inst == i && known->vec == here.vec && known->n_at == here.n_at &&
            memcmp(known->at, here.at, sizeof(*here.at) * (size_t)here.n_at) == 0 &&
            tci_loop_encloses(b->l, b->l->values[known->value].block, b->cur)) {
            return known->value;
        }
    }
    here.value = tci_access_load_new(b, i);
    TCI_PUSH(b->s, b->places, b->n_places, b->cap_places, here);
    return here.value;
}

/* ---- indices, guards, faults ---- */

TCI_FN int tci_build_number(tci_build *b, int x, tc_dtype t)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_TO_VALUE);
    int block = tci_lx_block(b->l, x);
    st.x = x;
    st.dst = tci_loop_value(b->l, TC_I64, 1, block);
    tci_loop_append(b->l, block, st);
    return t == TC_I64 ? st.dst : tci_build_prim(b, TCI_P_CAST, t, 1, &st.dst, 0);
}

static int tci_access_index(tci_build *b, int i)
{
    const tci_kinst *inst = &b->k->insts[i];
    const tc_dtype t = (tc_dtype)inst->dtype;
    tci_dim coef = 0;
    bool vector = tci_build_is_vector(b, inst->axes);
    if (vector && !tci_build_coef(b->k, inst->x, b->vec_axis, &coef)) {
        return tci_access_by_lane(b, i);
    }
    tci_lin at = tci_build_kx(b, inst->x);
    if (coef == 1) {
        tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
        st.mem = TCI_MEM_IOTA;
        st.x = tci_build_lx(b, at);
        return tci_build_mem(b, st, t, b->l->lanes, -1);
    }
    int first = tci_build_number(b, tci_build_lx(b, at), t);
    if (coef == 0) {
        return first;
    }
    tci_lstmt iota = tci_loop_stmt(TCI_L_MEM);
    iota.mem = TCI_MEM_IOTA;
    iota.x = tci_lx_const(b->l, 0);
    tci_value c = {.i = tci_dim_known(coef)};
    int step = tci_dim_is_known(coef) ? tci_build_const(b, t, tci_value_cast(c, TC_I64, t))
                                      : tci_build_number(b, tci_lx_const(b->l, coef), t);
    int lanes[2] = {tci_build_mem(b, iota, t, b->l->lanes, -1), step};
    int args[2] = {first, tci_build_prim(b, TCI_P_MUL, t, 2, lanes, 0)};
    return tci_build_prim(b, TCI_P_ADD, t, 2, args, 0);
}

static int tci_access_guard_value(tci_build *b, int i)
{
    tci_access_guard g = tci_access_guards(b, &b->k->insts[i]);
    if (g.truth != TCI_SOMETIMES) {
        tci_value v = {.i = g.truth == TCI_ALWAYS};
        return tci_build_const(b, TC_BOOL, v);
    }
    if (g.by_lane) {
        return tci_access_by_lane(b, i);
    }
    return g.mask >= 0 && g.condition >= 0 ? tci_access_and(b, g.mask, g.condition)
                                           : TCI_MAX(g.mask, g.condition);
}

/* Inside a lane loop: the one lane of a vector that is made before it, through a local array. */
static int tci_access_lane_of(tci_build *b, int vector)
{
    if (b->l->values[vector].lanes == 1) {
        return vector;
    }
    tc_dtype t = (tc_dtype)b->l->values[vector].dtype;
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_STORE;
    st.base = ~tci_access_lane_local(b, t, b->lane_parent);
    st.x = tci_lx_const(b->l, 0);
    st.args[0] = vector;
    tci_build_mem(b, st, t, 1, b->lane_parent);
    st.mem = TCI_MEM_LOAD_ONE;
    st.x = tci_lx_var(b->l, b->lane_index);
    st.args[0] = -1;
    return tci_build_mem(b, st, t, 1, b->cur);
}

/* A reduction's result inside a lane loop. */
static int tci_access_red_lane(tci_build *b, int inst)
{
    TCI_ASSERT(b->s, b->lane_bind != NULL);
    const tci_bind *one = b->bind[b->lane_axis];
    tci_build_set(b, b->lane_axis, b->lane_bind);
    int vector = tci_build_memo_lookup(b, inst);
    tci_build_set(b, b->lane_axis, one);
    TCI_ASSERT(b->s, vector >= 0);
    return tci_access_lane_of(b, vector);
}

/* True if a value inside a lane loop should be computed for all lanes at once: if it depends on
 * other loads at computed positions, as in a search, each step of which would recompute the earlier
 * ones; and on a CPU if it is arithmetic on indices alone, such as those of an interpolation. */
static bool tci_access_is_at_once(const tci_build *b, int value)
{
    const tci_kernel *k = b->k;
    bool *live = TCI_NEW_ARRAY(b->s, bool, value + 1);
    bool searches = false, loads = false;
    if (!b->lane_bind || k->insts[value].op != TCI_K_PRIM ||
        !tci_build_depends(k->insts[value].axes, b->lane_axis)) {
        return false;
    }
    live[value] = true;
    for (int i = value; i >= 0 && !searches; i--) {
        const tci_kinst *in = &k->insts[i];
        tci_dim coef;
        loads |= live[i] && in->op == TCI_K_LOAD;
        searches = live[i] && in->op == TCI_K_LOAD &&
                   !tci_build_coef(k, in->x, b->lane_axis, &coef);
        for (int arg = 0; live[i] && arg < in->n_args; arg++) {
            live[in->args[arg]] = true;
        }
    }
    return searches || (!loads && b->l->threads == 1);
}

/* Operand of an index expression inside a lane loop: the lane of a vector computed before that
 * loop, where that is cheaper. */
static int tci_access_computed(tci_build *b, int value)
{
    if (!tci_access_is_at_once(b, value)) {
        return tci_build_value(b, value);
    }
    const tci_bind *one = b->bind[b->lane_axis], *vector = b->lane_bind;
    int inside = b->cur, floor = b->floor, axis = b->lane_axis, index = b->lane_index;
    int parent = b->lane_parent, before = b->lane_floor;
    b->cur = parent;
    b->floor = before;
    b->lane_bind = NULL;
    tci_build_set(b, axis, vector);
    int all = tci_build_value(b, value);
    tci_build_set(b, axis, one);
    b->lane_bind = vector;
    b->lane_axis = axis;
    b->lane_index = index;
    b->lane_parent = parent;
    b->lane_floor = before;
    b->floor = floor;
    b->cur = inside;
    return tci_access_lane_of(b, all);
}

/* Checked where the point is that it is for: lanes after a row's end have no index. */
static int tci_access_fault(tci_build *b, int i)
{
    const tci_kinst *inst = &b->k->insts[i];
    bool vector = tci_build_is_vector(b, inst->axes);
    if (vector && b->waits) {
        return tci_access_by_lane(b, i);
    }
    tci_lstmt st = tci_loop_stmt(TCI_L_FAULT);
    st.args[0] = vector ? tci_access_filled(b, tci_build_value(b, inst->args[0]))
                        : tci_access_computed(b, inst->args[0]);
    st.imm = inst->imm;
    int block = tci_build_floor(b, inst->axes);
    block = tci_build_deeper(b, block, b->l->values[st.args[0]].block);
    st.dst = tci_loop_value(b->l, TC_I64, b->l->values[st.args[0]].lanes, block);
    tci_loop_append(b->l, block, st);
    return st.dst;
}

TCI_FN int tci_build_access(tci_build *b, int inst)
{
    switch (b->k->insts[inst].op) {
    case TCI_K_LOAD: return tci_access_load(b, inst);
    case TCI_K_INDEX: return tci_access_index(b, inst);
    case TCI_K_GUARD: return tci_access_guard_value(b, inst);
    case TCI_K_RED: return tci_access_red_lane(b, inst);
    default: return tci_access_fault(b, inst);
    }
}

/* ---- stores ---- */

/* The offset is no linear function of the vector axis: through a local array, lane by lane. */
static void tci_access_store_by_lane(tci_build *b, const tci_kstore *store, int value)
{
    const tci_bind *vec = b->bind[b->vec_axis];
    tc_dtype t = (tc_dtype)b->l->values[value].dtype;
    int local = tci_access_lane_local(b, t, b->cur);
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_STORE;
    st.base = ~local;
    st.x = tci_lx_const(b->l, 0);
    st.args[0] = value;
    tci_build_mem(b, st, t, b->l->lanes, b->cur);
    tci_lopen open;
    tci_access_open_lanes(b, vec, &open);
    tci_lstmt one = tci_loop_stmt(TCI_L_MEM);
    one.mem = TCI_MEM_LOAD_ONE;
    one.base = ~local;
    one.x = tci_lx_var(b->l, open.st.dst);
    st.mem = TCI_MEM_STORE_LANE;
    st.base = store->operand;
    st.x = tci_build_lx(b, tci_build_kx(b, store->x));
    st.args[0] = tci_build_mem(b, one, t, 1, b->cur);
    tci_build_mem(b, st, t, 1, b->cur);
    tci_access_close_lanes(b, &open);
}

/* True if the offset is linear in the vector axis, or independent of it. */
static bool tci_access_is_linear(const tci_build *b, int kx, tci_dim *coef)
{
    bool vector = tci_build_is_vector(b, tci_kx_axes(b->k, kx));
    *coef = 0;
    return !vector || tci_build_coef(b->k, kx, b->vec_axis, coef);
}

/* A store without its value. */
static tci_lstmt tci_access_store_stmt(tci_build *b, const tci_kstore *store, tci_dim coef,
                                       bool stream)
{
    const tci_bind *vec = b->vec_axis >= 0 ? b->bind[b->vec_axis] : NULL;
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.base = store->operand;
    st.x = tci_build_lx(b, tci_build_kx(b, store->x));
    st.mem = TCI_MEM_STORE_ONE;
    if (vec) {
        bool tail = vec->n >= 0;
        st.n = vec->n;
        st.imm = coef;
        st.mem = tail ? TCI_MEM_STORE_STRIDED_N : TCI_MEM_STORE_STRIDED;
        if (coef == 1) {
            st.mem = tail ? TCI_MEM_STORE_N : TCI_MEM_STORE;
            st.mem = stream && !tail ? TCI_MEM_STORE_STREAM : st.mem;
        }
    }
    return st;
}

/* A store of a value that a row has once and its threads share: the thread of its first lane does
 * it, so that a load there still reads the old value (plan/memory.c). In a kernel template each
 * thread has its own. */
static bool tci_access_is_of_row(const tci_build *b)
{
    return b->vec_axis < 0 && b->k->vector == TCI_VEC_INNER && b->l->threads > 1 && !b->l->matrix;
}

TCI_FN int tci_build_unrounded(const tci_build *b, int t, int value)
{
    const tci_lvalue *v = &b->l->values[value];
    const tci_lblock *block = &b->l->blocks[v->block];
    bool rounds = !v->is_mutable && tci_dtype_is_half((tc_dtype)t);
    for (int i = block->n - 1; i >= 0 && rounds; i--) {
        const tci_lstmt *st = &block->stmts[i];
        if (st->dst == value && st->op == TCI_L_PRIM) {
            return st->prim == (t == TC_F16 ? TCI_P_ROUND16 : TCI_P_ROUNDB16) ? st->args[0] : value;
        }
    }
    return value;
}

TCI_FN void tci_build_store(tci_build *b, const tci_kstore *store, int value, bool stream)
{
    tci_dim coef;
    value = tci_build_unrounded(b, b->l->operands[store->operand].dtype, value);
    value = tci_build_widen(b, value, tci_build_vector_lanes(b));
    if (!tci_access_is_linear(b, store->x, &coef)) {
        tci_access_store_by_lane(b, store, value);
        return;
    }
    tci_lstmt st = tci_access_store_stmt(b, store, coef, stream);
    if (tci_access_is_of_row(b)) {
        st.mem = TCI_MEM_STORE_N;
        st.n = tci_lx_const(b->l, 1);
        value = tci_build_widen(b, value, b->l->lanes);
    }
    st.args[0] = value;
    tci_build_mem(b, st, TC_F32, 1, b->cur);
}

/* ---- what is read where it is stored ---- */

/* The elements that a store is about to overwrite: in the current block, as they change. */
static int tci_access_old(tci_build *b, tci_lstmt st, tc_dtype t, int lanes)
{
    switch (st.mem) {
    case TCI_MEM_STORE: st.mem = TCI_MEM_LOAD; break;
    case TCI_MEM_STORE_N: st.mem = TCI_MEM_LOAD_N; break;
    case TCI_MEM_STORE_STRIDED: st.mem = TCI_MEM_LOAD_STRIDED; break;
    case TCI_MEM_STORE_STRIDED_N: st.mem = TCI_MEM_LOAD_STRIDED_N; break;
    default: st.mem = TCI_MEM_LOAD_ONE; break;
    }
    st.mem = lanes == 1 ? TCI_MEM_LOAD_ONE : st.mem;
    return tci_build_mem(b, st, t, lanes, b->cur);
}

TCI_FN bool tci_build_is_row(const tci_build *b, int kx)
{
    tci_dim coef;
    return tci_access_is_linear(b, kx, &coef);
}

TCI_FN int tci_build_stored(tci_build *b, const tci_kstore *store)
{
    tci_dim coef;
    bool linear = tci_access_is_linear(b, store->x, &coef);
    TCI_ASSERT(b->s, linear);
    return tci_access_old(b, tci_access_store_stmt(b, store, coef, false),
                          (tc_dtype)b->k->insts[store->value].dtype, tci_build_vector_lanes(b));
}

/* st: the store, without its value; lanes of all values here. */
static void tci_access_update(tci_build *b, const tci_kstore *store, tci_lstmt st, int lanes,
                              tci_store_merge merge)
{
    tc_dtype t = (tc_dtype)b->k->insts[store->value].dtype;
    int value = tci_build_widen(b, tci_build_value(b, store->value), lanes);
    int guard = store->guard >= 0 ? tci_build_value(b, store->guard) : -1;
    bool branches = guard >= 0 && b->l->values[guard].lanes == 1;
    tci_lopen open;
    if (branches) {
        tci_build_if(b, guard, &open);
    }
    int old = tci_access_old(b, st, t, lanes);
    value = merge(b, store, old, value);
    if (guard >= 0 && !branches) {
        int args[3] = {guard, value, old};
        value = tci_build_prim(b, TCI_P_SELECT, t, 3, args, 0);
    }
    st.args[0] = value;
    tci_build_mem(b, st, TC_F32, 1, b->cur);
    if (branches) {
        tci_build_close(b, &open);
    }
}

TCI_FN void tci_build_update(tci_build *b, const tci_kstore *store, tci_store_merge merge)
{
    tci_dim coef;
    if (tci_access_is_linear(b, store->x, &coef)) {
        tci_access_update(b, store, tci_access_store_stmt(b, store, coef, false),
                          tci_build_vector_lanes(b), merge);
        return;
    }
    tci_lopen open; /* lane by lane, all of it */
    tci_access_open_lanes(b, b->bind[b->vec_axis], &open);
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_STORE_LANE;
    st.base = store->operand;
    st.x = tci_build_lx(b, tci_build_kx(b, store->x));
    tci_access_update(b, store, st, 1, merge);
    tci_access_close_lanes(b, &open);
}
