/* loop/lower_expr.c - lowers kernel expressions to loop IR: blocks, index arithmetic, bindings,
 * and the evaluation of a kernel's scalar DAG into loop statements (loop/lower_expr.h).
 *
 * In: a kernel, a loop function with an open chain of blocks, bindings of the axes. Out: numbers
 * of loop values. Dependency chains of a kernel may be tens of thousands of instructions long, so
 * the traversal keeps its own stack (todo). A memo entry is usable only if its value's block
 * encloses the current one. */
#include <string.h>

#include "lower_expr.h"

enum { TCI_BUILD_LINE = 64 /* bytes: arrays in work memory begin with lines of a cache */ };

/* Index expressions share parts, so a traversal looks at each part once: what it found there counts
 * while the same outermost call is under way and no binding has changed. */
typedef struct tci_lkx_found {
    int32_t at_pass, range_pass; /* when they were found; 0: never */
    tci_lin at;
    tci_dim lo, hi;
} tci_lkx_found;
struct tci_lkx {
    int32_t pass, depth;
    tci_lkx_found *found;
};

TCI_FN tci_build *tci_build_make(tci_scratch *s, const tci_kernel *k, tci_loop *l)
{
    tci_build *b = TCI_NEW(s, tci_build);
    b->s = s;
    b->k = k;
    b->l = l;
    b->vec_axis = b->guard = -1;
    b->bind = TCI_NEW_ARRAY(s, const tci_bind *, k->n_axes + 1);
    b->kx = TCI_NEW(s, struct tci_lkx);
    b->kx->found = TCI_NEW_ARRAY(s, tci_lkx_found, k->n_kx + 1);
    b->memo_first = TCI_NEW_ARRAY(s, int32_t, k->n_insts + 1);
    for (int i = 0; i < k->n_insts; i++) {
        b->memo_first[i] = -1;
    }
    return b;
}

/* ---- blocks ---- */

TCI_FN int tci_build_for(tci_build *b, int begin, int end, int64_t step, tci_lopen *open)
{
    open->st = tci_loop_stmt(TCI_L_FOR);
    open->parent = b->cur;
    open->floor = b->floor;
    open->st.x = begin;
    open->st.n = end;
    open->st.imm = step;
    b->cur = open->st.body = tci_loop_block(b->l, b->cur);
    open->st.dst = tci_loop_index(b->l, b->cur, true);
    b->l->indices[open->st.dst].multiple = tci_lx_gcd(tci_lx_multiple(b->l, begin), step);
    return open->st.dst;
}

TCI_FN void tci_build_if(tci_build *b, int condition, tci_lopen *open)
{
    open->st = tci_loop_stmt(TCI_L_IF);
    open->parent = b->cur;
    open->floor = b->floor;
    open->st.args[0] = condition;
    b->floor = b->cur = open->st.body = tci_loop_block(b->l, b->cur);
}

TCI_FN int tci_build_in_range(tci_build *b, int x, tci_dim lo, tci_dim hi)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_IN_RANGE);
    st.x = x;
    st.lo = lo;
    st.imm = hi;
    st.dst = tci_loop_value(b->l, TC_BOOL, 1, b->cur);
    tci_loop_append(b->l, b->cur, st);
    return st.dst;
}

TCI_FN int tci_build_elsewhere(tci_build *b, int a, int other)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_ELSEWHERE);
    st.base = a;
    st.imm = other;
    st.dst = tci_loop_value(b->l, TC_BOOL, 1, b->cur);
    tci_loop_append(b->l, b->cur, st);
    return st.dst;
}

TCI_FN int tci_build_inside(tci_build *b, tci_lin at, tci_dim size)
{
    return tci_build_in_range(b, tci_build_lx(b, at), 0, tci_dim_add(size, -1));
}

TCI_FN void tci_build_close(tci_build *b, const tci_lopen *open)
{
    tci_loop_append(b->l, open->parent, open->st);
    b->cur = open->parent;
    b->floor = open->floor;
}

TCI_FN void tci_build_note(tci_build *b, const char *text)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_NOTE);
    st.text = text;
    tci_loop_append(b->l, b->cur, st);
}

TCI_FN int tci_build_deeper(const tci_build *b, int x, int y)
{
    return b->l->blocks[x].depth >= b->l->blocks[y].depth ? x : y;
}

/* ---- linear forms ---- */

TCI_FN tci_lin tci_lin_const(tci_dim c)
{
    tci_lin x = {c, 0, NULL, NULL};
    return x;
}

TCI_FN tci_lin tci_lin_var(tci_build *b, int index)
{
    int32_t var = index;
    tci_dim one = 1;
    tci_lin x = {0, 1, NULL, NULL};
    x.var = tci_scratch_copy(b->s, &var, sizeof(var));
    x.coef = tci_scratch_copy(b->s, &one, sizeof(one));
    return x;
}

TCI_FN tci_lin tci_lin_plus(tci_lin x, tci_dim c)
{
    x.c = tci_dim_add(x.c, c);
    return x;
}

/* Terms are ordered by (depth of the block, index), so that equal sums are equal expressions. */
static bool tci_lin_before(const tci_build *b, int32_t x, int32_t y)
{
    int dx = b->l->blocks[b->l->indices[x].block].depth;
    int dy = b->l->blocks[b->l->indices[y].block].depth;
    return dx != dy ? dx < dy : x < y;
}

TCI_FN tci_lin tci_lin_add(tci_build *b, tci_lin x, tci_lin y)
{
    if (x.n == 0 || y.n == 0) {
        tci_lin r = x.n == 0 ? y : x;
        r.c = tci_dim_add(x.c, y.c);
        return r;
    }
    int32_t *var = TCI_NEW_ARRAY(b->s, int32_t, x.n + y.n);
    tci_dim *coef = TCI_NEW_ARRAY(b->s, tci_dim, x.n + y.n);
    tci_lin r = {tci_dim_add(x.c, y.c), 0, var, coef};
    int i = 0, j = 0;
    while (i < x.n || j < y.n) {
        bool same = i < x.n && j < y.n && x.var[i] == y.var[j];
        bool first = j >= y.n || (i < x.n && tci_lin_before(b, x.var[i], y.var[j]));
        var[r.n] = same || first ? x.var[i] : y.var[j];
        coef[r.n] = tci_dim_add(same || first ? x.coef[i] : 0, same || !first ? y.coef[j] : 0);
        i += same || first;
        j += same || !first;
        r.n += coef[r.n] != 0;
    }
    return r;
}

TCI_FN tci_lin tci_lin_mul(tci_build *b, tci_lin x, tci_dim c)
{
    if (c == 0 || x.n == 0) {
        return tci_lin_const(tci_dim_mul(x.c, c));
    }
    tci_dim *coef = TCI_NEW_ARRAY(b->s, tci_dim, x.n);
    for (int i = 0; i < x.n; i++) {
        coef[i] = tci_dim_mul(x.coef[i], c);
    }
    tci_lin r = {tci_dim_mul(x.c, c), x.n, x.var, coef};
    return r;
}

TCI_FN tci_lin tci_build_let(tci_build *b, int lx)
{
    tci_loop *l = b->l;
    if (l->lx[lx].op == TCI_LX_CONST) {
        return tci_lin_const(l->lx[lx].c);
    }
    if (l->lx[lx].op == TCI_LX_VAR) {
        return tci_lin_var(b, l->lx[lx].a);
    }
    int known = l->lx_index[lx];
    if (known >= 0 && tci_loop_encloses(l, l->indices[known].block, b->cur)) {
        return tci_lin_var(b, known);
    }
    tci_lstmt st = tci_loop_stmt(TCI_L_INDEX);
    int block = tci_lx_block(l, lx);
    st.dst = tci_loop_index(l, block, false);
    st.x = lx;
    l->indices[st.dst].multiple = tci_lx_multiple(l, lx);
    tci_loop_append(l, block, st);
    l->lx_index[lx] = st.dst;
    return tci_lin_var(b, st.dst);
}

/* Each group of terms of one block becomes one index let there, on top of the shallower ones; the
 * constant stays at the position of use. */
TCI_FN int tci_build_lx(tci_build *b, tci_lin x)
{
    tci_loop *l = b->l;
    int sum = -1;
    for (int i = 0; i < x.n;) {
        int block = l->indices[x.var[i]].block;
        for (; i < x.n && l->indices[x.var[i]].block == block; i++) {
            int term = tci_lx_make(l, TCI_LX_MUL, tci_lx_var(l, x.var[i]), -1, x.coef[i]);
            sum = sum < 0 ? term : tci_lx_make(l, TCI_LX_ADD, sum, term, 0);
        }
        tci_lin let = tci_build_let(b, sum);
        sum = tci_lx_var(l, let.var[0]);
    }
    int c = tci_lx_const(l, x.c);
    return sum < 0 ? c : tci_lx_make(l, TCI_LX_ADD, sum, c, 0);
}

TCI_FN int tci_build_value_index(tci_build *b, int value)
{
    tci_loop *l = b->l;
    int known = l->values[value].index;
    if (known < 0) {
        tci_lstmt st = tci_loop_stmt(TCI_L_FROM_VALUE);
        known = st.dst = tci_loop_index(l, l->values[value].block, false);
        st.args[0] = value;
        tci_loop_append(l, l->values[value].block, st);
        l->values[value].index = known;
    }
    return known;
}

/* DIV and MOD print as C's operators, so a dividend that may be negative is shifted by a multiple
 * of c: this one, where it is at least lo. */
TCI_FN tci_dim tci_build_shift(tci_dim lo, tci_dim c)
{
    return tci_dim_le(0, lo) ? 0 : tci_dim_neg(tci_dim_div(lo, c));
}

static tci_lin tci_build_kx_divide(tci_build *b, tci_kx e)
{
    tci_dim lo, hi;
    tci_build_range(b, e.a, &lo, &hi);
    tci_dim shift = tci_build_shift(lo, e.c);
    tci_lin a = tci_lin_plus(tci_build_kx(b, e.a), tci_dim_mul(shift, e.c));
    tci_lx_op op = e.op == TCI_KX_DIV ? TCI_LX_DIV : TCI_LX_MOD;
    tci_lin r = tci_build_let(b, tci_lx_make(b->l, op, tci_build_lx(b, a), -1, e.c));
    return op == TCI_LX_DIV ? tci_lin_plus(r, tci_dim_neg(shift)) : r;
}

static tci_lin tci_build_kx_find(tci_build *b, int kx)
{
    tci_kx e = b->k->kx[kx];
    tci_lin left;
    switch (e.op) {
    case TCI_KX_CONST: return tci_lin_const(e.c);
    case TCI_KX_AXIS: return b->bind[tci_kx_number(&e)]->at;
    case TCI_KX_ADD:
        left = tci_build_kx(b, e.a); /* the order of arguments is each compiler's own */
        return tci_lin_add(b, left, tci_build_kx(b, e.b));
    case TCI_KX_MUL: return tci_lin_mul(b, tci_build_kx(b, e.a), e.c);
    case TCI_KX_VALUE:
        return tci_lin_var(b, tci_build_value_index(b, tci_build_value(b, tci_kx_number(&e))));
    default: return tci_build_kx_divide(b, e);
    }
}

TCI_FN tci_lin tci_build_kx(tci_build *b, int kx)
{
    struct tci_lkx *walk = b->kx;
    tci_lkx_found *found = &walk->found[kx];
    walk->pass += walk->depth == 0;
    if (found->at_pass != walk->pass) {
        walk->depth++;
        found->at = tci_build_kx_find(b, kx);
        walk->depth--;
        found->at_pass = walk->pass;
    }
    return found->at;
}

static void tci_build_range_find(const tci_build *b, int kx, tci_dim *lo, tci_dim *hi)
{
    tci_kx e = b->k->kx[kx];
    tci_dim lo_a = 0, hi_a = 0, lo_b, hi_b, quotient;
    *lo = e.lo;
    *hi = e.hi;
    if (e.a >= 0) {
        tci_build_range(b, e.a, &lo_a, &hi_a);
    }
    switch (e.op) {
    case TCI_KX_AXIS:
        if (b->bind[tci_kx_number(&e)]) {
            *lo = b->bind[tci_kx_number(&e)]->lo;
            *hi = b->bind[tci_kx_number(&e)]->hi;
        }
        break;
    case TCI_KX_ADD:
        tci_build_range(b, e.b, &lo_b, &hi_b);
        *lo = tci_dim_add(lo_a, lo_b);
        *hi = tci_dim_add(hi_a, hi_b);
        break;
    case TCI_KX_MUL:
        lo_a = tci_dim_mul(lo_a, e.c);
        hi_a = tci_dim_mul(hi_a, e.c);
        *lo = tci_dim_min(lo_a, hi_a);
        *hi = tci_dim_max(lo_a, hi_a);
        break;
    case TCI_KX_DIV:
        *lo = tci_dim_div(lo_a, e.c);
        *hi = tci_dim_div(hi_a, e.c);
        break;
    case TCI_KX_MOD:
        quotient = tci_dim_div(lo_a, e.c);
        if (quotient == tci_dim_div(hi_a, e.c)) {
            *lo = tci_dim_sub(lo_a, tci_dim_mul(e.c, quotient));
            *hi = tci_dim_add(*lo, tci_dim_sub(hi_a, lo_a));
        }
        break;
    default: break;
    }
}

TCI_FN void tci_build_range(const tci_build *b, int kx, tci_dim *lo, tci_dim *hi)
{
    struct tci_lkx *walk = b->kx;
    tci_lkx_found *found = &walk->found[kx];
    walk->pass += walk->depth == 0;
    if (found->range_pass != walk->pass) {
        walk->depth++;
        tci_build_range_find(b, kx, &found->lo, &found->hi);
        walk->depth--;
        found->range_pass = walk->pass;
    }
    *lo = found->lo;
    *hi = found->hi;
}

TCI_FN bool tci_build_depends(uint64_t axes, int axis)
{
    return axis >= 0 && (axes >> TCI_MIN(axis, 63) & 1);
}

TCI_FN bool tci_build_coef(const tci_kernel *k, int kx, int axis, tci_dim *coef)
{
    tci_kx e = k->kx[kx];
    tci_dim other;
    *coef = 0;
    if (!tci_build_depends(e.axes, axis)) {
        return true;
    }
    switch (e.op) {
    case TCI_KX_CONST: return true;
    case TCI_KX_AXIS: *coef = e.c == axis; return true;
    case TCI_KX_ADD:
        if (!tci_build_coef(k, e.a, axis, coef) || !tci_build_coef(k, e.b, axis, &other)) {
            return false;
        }
        *coef = tci_dim_add(*coef, other);
        return true;
    case TCI_KX_MUL:
        if (!tci_build_coef(k, e.a, axis, coef)) {
            return false;
        }
        *coef = tci_dim_mul(*coef, e.c);
        return true;
    case TCI_KX_VALUE: return false;
    default: /* many axes share the last bit: it may be another one of them */
        return axis >= 63 && tci_build_coef(k, e.a, axis, &other) && other == 0;
    }
}

TCI_FN int tci_build_panel(const tci_kernel *k, const tci_kinst *load, int axis, int wide,
                           tci_dim *step)
{
    int32_t panel = k->operands[tci_kinst_number(load)].panel;
    int quotient = -1, rest = -1;
    tci_dim coef = 0;
    for (int x = load->x, next; x >= 0 && panel > 0; x = next) {
        tci_kx e = k->kx[x];
        next = e.op == TCI_KX_ADD ? e.a : -1;
        e = e.op == TCI_KX_ADD ? k->kx[e.b] : e;
        if (!tci_build_depends(e.axes, axis)) {
            continue;
        }
        tci_dim times = e.op == TCI_KX_MUL ? e.c : 1;
        e = e.op == TCI_KX_MUL ? k->kx[e.a] : e;
        if (e.op == TCI_KX_DIV && e.c == panel && quotient < 0) {
            quotient = e.a;
            *step = times;
        } else if (e.op == TCI_KX_MOD && e.c == panel && times == wide && rest < 0) {
            rest = e.a;
        } else {
            return -1;
        }
    }
    bool whole = quotient >= 0 && quotient == rest;
    return whole && tci_build_coef(k, rest, axis, &coef) && coef == 1 ? rest : -1;
}

/* ---- bindings ---- */

TCI_FN const tci_bind *tci_build_bind(tci_build *b, tci_lin at, tci_dim lo, tci_dim hi,
                                      bool is_vector, int n)
{
    tci_bind *bind = TCI_NEW(b->s, tci_bind);
    bind->id = ++b->n_bind_ids;
    bind->is_vector = is_vector;
    bind->at = at;
    bind->lo = lo;
    bind->hi = tci_dim_le(hi, lo) ? lo : hi;
    bind->n = n;
    bind->block = b->floor;
    return bind;
}

/* A digit is written as the difference of two quotients, so that an address in which the axes
 * follow each other becomes the number itself. */
TCI_FN void tci_build_split(tci_build *b, int n, const int64_t *sizes, tci_lin number,
                            tci_lin *digits)
{
    tci_lin quotient = number;
    int lx = n > 1 ? tci_build_lx(b, number) : 0;
    int64_t below = 1;
    for (int i = n - 1; i >= 0; i--) {
        digits[i] = quotient;
        below *= sizes[i];
        if (i > 0) {
            quotient = tci_build_let(b, tci_lx_make(b->l, TCI_LX_DIV, lx, -1, below));
            digits[i] = tci_lin_add(b, digits[i], tci_lin_mul(b, quotient, -sizes[i]));
        }
    }
}

TCI_FN void tci_build_digits(tci_build *b, int n, const int32_t *axes, tci_lin number,
                             const tci_bind **binds)
{
    int64_t *sizes = TCI_NEW_ARRAY(b->s, int64_t, n + 1);
    tci_lin *digits = TCI_NEW_ARRAY(b->s, tci_lin, n + 1);
    for (int i = 0; i < n; i++) {
        sizes[i] = tci_kernel_known(b->k, axes[i]);
    }
    tci_build_split(b, n, sizes, number, digits);
    for (int i = n - 1; i >= 0; i--) {
        binds[i] = tci_build_bind(b, digits[i], 0, sizes[i] - 1, false, -1);
    }
}

TCI_FN void tci_build_neighbours(tci_build *b, int axis, tci_lin first, int n,
                                 const tci_bind **binds)
{
    for (int i = 0; i < n; i++) {
        int64_t last = tci_kernel_known(b->k, axis) - n + i;
        binds[i] = tci_build_bind(b, tci_lin_plus(first, i), i, last, false, -1);
    }
}

TCI_FN int tci_build_floor(const tci_build *b, uint64_t axes)
{
    int block = 0;
    for (int a = 0; axes >> TCI_MIN(a, 63) && a < b->k->n_axes; a++) {
        if (b->bind[a] && tci_build_depends(axes, a)) {
            block = tci_build_deeper(b, block, b->bind[a]->block);
        }
    }
    return block;
}

TCI_FN void tci_build_set(tci_build *b, int axis, const tci_bind *bind)
{
    b->bind[axis] = bind;
    b->kx->pass++;
    if (bind && bind->is_vector) {
        b->vec_axis = axis;
    } else if (b->vec_axis == axis) {
        b->vec_axis = -1;
    }
}

TCI_FN bool tci_build_is_vector(const tci_build *b, uint64_t axes)
{
    return tci_build_depends(axes, b->vec_axis);
}

TCI_FN int tci_build_vector_lanes(const tci_build *b)
{
    return b->vec_axis >= 0 ? b->l->lanes : 1;
}

/* ---- statements ---- */

TCI_FN int tci_build_const(tci_build *b, tc_dtype t, tci_value v)
{
    const tci_lblock *root = &b->l->blocks[0];
    for (int i = 0; i < root->n; i++) {
        const tci_lstmt *st = &root->stmts[i];
        if (st->op == TCI_L_CONST && b->l->values[st->dst].dtype == t && st->value.u == v.u) {
            return st->dst;
        }
    }
    tci_lstmt st = tci_loop_stmt(TCI_L_CONST);
    st.dst = tci_loop_value(b->l, t, 1, 0);
    st.value = v;
    tci_loop_append(b->l, 0, st);
    return st.dst;
}

TCI_FN bool tci_build_is_aligned(const tci_build *b, const tci_lstmt *st)
{
    if (b->l->threads * b->l->rows == 1) {
        return false;
    }
    int held = b->l->lanes / b->l->threads;
    bool whole = st->mem == TCI_MEM_LOAD_N && tci_lx_multiple(b->l, st->n) % held == 0;
    if (st->mem != TCI_MEM_LOAD && st->mem != TCI_MEM_STORE && !whole) {
        return false;
    }
    int dtype = st->base < 0 ? b->l->locals[~st->base].dtype : b->l->operands[st->base].dtype;
    int at_once = TCI_MIN(held, TCI_ALIGNED_BYTES / tci_dtype_get((tc_dtype)dtype)->bytes);
    return held % at_once == 0 && tci_lx_multiple(b->l, st->x) % at_once == 0;
}

TCI_FN int tci_build_mem(tci_build *b, tci_lstmt st, tc_dtype t, int lanes, int block)
{
    int at = 0;
    if (st.x >= 0) {
        at = tci_build_deeper(b, at, tci_lx_block(b->l, st.x));
    }
    if (st.n >= 0) {
        at = tci_build_deeper(b, at, tci_lx_block(b->l, st.n));
    }
    if (st.args[0] >= 0) {
        at = b->l->values[st.args[0]].is_mutable
                 ? b->cur
                 : tci_build_deeper(b, at, b->l->values[st.args[0]].block);
    }
    for (int i = 1; i < 3; i++) {
        if (st.args[i] >= 0) {
            at = tci_build_deeper(b, at, b->l->values[st.args[i]].block);
        }
    }
    at = block >= 0 ? tci_build_deeper(b, at, block) : at;
    if (tci_build_is_aligned(b, &st)) {
        st.mem = st.mem == TCI_MEM_LOAD     ? TCI_MEM_LOAD_ALIGNED
                 : st.mem == TCI_MEM_LOAD_N ? TCI_MEM_LOAD_N_ALIGNED
                                            : TCI_MEM_STORE_ALIGNED;
    }
    if (tci_lmem_uses((tci_mem)st.mem) & TCI_LMEM_DST) {
        st.dst = tci_loop_value(b->l, t, lanes, at);
    }
    tci_loop_append(b->l, at, st);
    return st.dst;
}

TCI_FN int tci_build_splat(tci_build *b, int value)
{
    int known = b->l->values[value].splat;
    if (known >= 0) {
        return known;
    }
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_SPLAT;
    st.args[0] = value;
    int r = tci_build_mem(b, st, (tc_dtype)b->l->values[value].dtype, b->l->lanes, -1);
    b->l->values[value].splat = b->l->values[value].is_mutable ? -1 : r;
    return r;
}

TCI_FN int tci_build_widen(tci_build *b, int value, int lanes)
{
    return b->l->values[value].lanes < lanes ? tci_build_splat(b, value) : value;
}

TCI_FN int tci_build_prim(tci_build *b, tci_prim p, tc_dtype result, int n, const int *args,
                          int imm)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_PRIM);
    int lanes = 1, block = 0;
    for (int i = 0; i < n; i++) {
        lanes = TCI_MAX(lanes, b->l->values[args[i]].lanes);
    }
    for (int i = 0; i < n; i++) {
        st.args[i] = tci_build_widen(b, args[i], lanes);
        bool changes = b->l->values[st.args[i]].is_mutable;
        block = tci_build_deeper(b, block, changes ? b->cur : b->l->values[st.args[i]].block);
    }
    st.prim = (uint8_t)p;
    st.imm = imm;
    st.dst = tci_loop_value(b->l, result, lanes, block);
    tci_loop_append(b->l, block, st);
    return st.dst;
}

TCI_FN int tci_build_mutable(tci_build *b, int first)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_VAR);
    st.args[0] = first;
    st.dst = tci_loop_value(b->l, (tc_dtype)b->l->values[first].dtype, b->l->values[first].lanes,
                            b->cur);
    b->l->values[st.dst].is_mutable = true;
    tci_loop_append(b->l, b->cur, st);
    return st.dst;
}

TCI_FN void tci_build_assign(tci_build *b, int mutable_value, int value)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_SET);
    st.dst = mutable_value;
    st.args[0] = tci_build_widen(b, value, b->l->values[mutable_value].lanes);
    tci_loop_append(b->l, b->cur, st);
}

TCI_FN int tci_build_local(tci_build *b, tc_dtype t, int64_t n, int block)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_LOCAL);
    st.dst = tci_loop_local(b->l, t, n);
    tci_loop_append(b->l, block, st);
    return st.dst;
}

TCI_FN int tci_build_work(tci_build *b, tc_dtype t, tci_dim n)
{
    tci_loop *l = b->l;
    tci_lstmt st = tci_loop_stmt(TCI_L_LOCAL);
    tci_dim lines = tci_dim_ceil_div(tci_dim_mul(n, tci_dtype_get(t)->bytes), TCI_BUILD_LINE);
    st.dst = tci_loop_local(l, t, n);
    l->locals[st.dst].work = tci_lx_const(l, l->work_bytes);
    l->work_bytes = tci_dim_add(l->work_bytes, tci_dim_mul(lines, TCI_BUILD_LINE));
    tci_loop_append(l, 0, st);
    return st.dst;
}

TCI_FN int tci_build_copy(tci_build *b, int value)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_COPY);
    st.args[0] = value;
    st.dst = tci_loop_value(b->l, (tc_dtype)b->l->values[value].dtype, b->l->values[value].lanes,
                            b->cur);
    tci_loop_append(b->l, b->cur, st);
    return st.dst;
}

/* ---- the memo ---- */

/* Ids of the bindings that instruction i depends on. A reduction's result belongs to the outer
 * point, unless it is a row. */
static int tci_build_signature(const tci_build *b, int i, int32_t *sig)
{
    const tci_kinst *inst = &b->k->insts[i];
    int n = 0;
    bool row = inst->op == TCI_K_RED && b->k->stages[inst->stage].n_kept > 0;
    int n_axes = inst->op == TCI_K_RED && !row ? b->k->n_outer : b->k->n_axes;
    for (int a = 0; inst->axes >> TCI_MIN(a, 63) && a < n_axes; a++) {
        if (tci_build_depends(inst->axes, a)) {
            sig[n++] = b->bind[a] ? b->bind[a]->id : 0;
        }
    }
    return n;
}

TCI_FN int tci_build_memo_lookup(tci_build *b, int i)
{
    if (b->memo_first[i] < 0) {
        return -1;
    }
    int32_t small[16];
    int32_t *sig = b->k->n_axes <= 16 ? small : TCI_NEW_ARRAY(b->s, int32_t, b->k->n_axes);
    int n = tci_build_signature(b, i, sig);
    for (int m = b->memo_first[i]; m >= 0; m = b->memo[m].next) {
        const tci_lmemo *e = &b->memo[m];
        if (e->n_sig == n && memcmp(e->sig, sig, sizeof(*sig) * (size_t)n) == 0 &&
            tci_loop_encloses(b->l, b->l->values[e->value].block, b->cur)) {
            return e->value;
        }
    }
    return -1;
}

TCI_FN void tci_build_remember(tci_build *b, int inst, int value)
{
    int32_t *sig = TCI_NEW_ARRAY(b->s, int32_t, b->k->n_axes + 1);
    tci_lmemo e = {value, b->memo_first[inst], 0, sig};
    e.n_sig = tci_build_signature(b, inst, sig);
    TCI_PUSH(b->s, b->memo, b->n_memo, b->cap_memo, e);
    b->memo_first[inst] = b->n_memo - 1;
}

/* ---- values ---- */

/* Literal words are doubles for floats, int64 otherwise. */
static int tci_build_literal(tci_build *b, const tci_kinst *inst)
{
    tci_lstmt st = tci_loop_stmt(TCI_L_LITERAL);
    st.imm = inst->imm;
    int word = st.dst = tci_loop_value(b->l, TC_I64, 1, 0);
    tci_loop_append(b->l, 0, st);
    tc_dtype t = (tc_dtype)inst->dtype;
    tc_dtype from = tci_dtype_is_float(t) ? TC_F64 : TC_I64;
    if (from == TC_F64) {
        word = tci_build_prim(b, TCI_P_BITS, TC_F64, 1, &word, 0);
    }
    return t == from ? word : tci_build_prim(b, TCI_P_CAST, t, 1, &word, 0);
}

/* The argument of a SELECT that a guard known at this position chooses, else -1. */
static int tci_build_chosen(const tci_build *b, const tci_kinst *inst)
{
    if (inst->op != TCI_K_PRIM || inst->prim != TCI_P_SELECT) {
        return -1;
    }
    const tci_kinst *guard = &b->k->insts[inst->args[0]];
    tci_truth truth = guard->op == TCI_K_GUARD ? tci_build_guard_truth(b, guard) : TCI_SOMETIMES;
    return truth == TCI_SOMETIMES ? -1 : inst->args[truth == TCI_ALWAYS ? 1 : 2];
}

TCI_FN tci_lkeep *tci_build_keep(tci_build *b, int inst, int local, int stage)
{
    tci_lkeep *keep = TCI_NEW(b->s, tci_lkeep);
    keep->inst = inst;
    keep->local = local;
    keep->stage = stage;
    keep->first = INT32_MIN;
    keep->last = INT32_MAX;
    keep->coef = TCI_NEW_ARRAY(b->s, tci_dim, b->k->n_axes + 1);
    keep->origin = TCI_NEW_ARRAY(b->s, tci_lin, b->k->n_axes + 1);
    TCI_PUSH(b->s, b->keeps, b->n_keeps, b->cap_keeps, keep);
    return keep;
}

static const tci_lkeep *tci_build_kept(const tci_build *b, int i, bool *fill)
{
    *fill = false;
    for (int j = 0; j < b->n_keeps; j++) {
        const tci_lkeep *keep = b->keeps[j];
        if (keep->inst == i && keep->first <= b->stage && b->stage <= keep->last) {
            *fill = keep->stage == b->stage;
            return keep;
        }
    }
    return NULL;
}

/* at + the sum of these coefs over the current point. */
static tci_lin tci_build_keep_sum(tci_build *b, const tci_lkeep *keep, tci_lin at,
                                  const tci_dim *coef)
{
    for (int a = 0; a < b->k->n_axes; a++) {
        if (coef[a] != 0) {
            tci_lin from = tci_lin_add(b, b->bind[a]->at, tci_lin_mul(b, keep->origin[a], -1));
            at = tci_lin_add(b, at, tci_lin_mul(b, from, coef[a]));
        }
    }
    return at;
}

/* Point number i of n, at its position among zeros. */
static int tci_build_word_part(tci_build *b, int value, int i, int n)
{
    bool is_float = b->l->values[value].dtype == TC_F32;
    tci_value low = {.u = (1U << (32 / n)) - 1}, skip = {.u = (uint64_t)(32 / n * i)};
    int bits = tci_build_prim(b, is_float ? TCI_P_BITS : TCI_P_CAST, TC_U32, 1, &value, 0);
    if (!is_float && i < n - 1) { /* the last one loses its upper bits by the shift */
        int masked[2] = {bits, tci_build_const(b, TC_U32, low)};
        bits = tci_build_prim(b, TCI_P_AND, TC_U32, 2, masked, 0);
    }
    if (i == 0) {
        return bits;
    }
    int shift[2] = {bits, tci_build_const(b, TC_U32, skip)};
    return tci_build_prim(b, is_float ? TCI_P_SHR : TCI_P_SHL, TC_U32, 2, shift, 0);
}

static int tci_build_word_of(tci_build *b, int bits, bool is_float)
{
    return tci_build_prim(b, is_float ? TCI_P_BITS : TCI_P_CAST, is_float ? TC_F32 : TC_I32, 1,
                          &bits, 0);
}

TCI_FN int tci_build_word(tci_build *b, int n, int all, const int *points)
{
    bool is_float = b->l->values[points[0]].dtype == TC_F32;
    if (is_float && n == 1) {
        return points[0]; /* whose lower half is zero */
    }
    int both[2] = {tci_build_word_part(b, points[0], 0, all)};
    for (int i = 1; i < n; i++) {
        both[1] = tci_build_word_part(b, points[i], i, all);
        both[0] = tci_build_prim(b, TCI_P_OR, TC_U32, 2, both, 0);
    }
    return tci_build_word_of(b, both[0], is_float);
}

/* Merges point number i of an element with those before it. */
static void tci_build_keep_point(tci_build *b, const tci_lkeep *keep, tci_lstmt st, tci_mem load,
                                 int lanes, int i)
{
    tc_dtype t = (tc_dtype)b->l->values[st.args[0]].dtype;
    int both[2] = {-1, tci_build_word_part(b, st.args[0], i, keep->points)};
    if (i > 0) {
        tci_lstmt old = st;
        old.mem = (uint8_t)load;
        old.args[0] = -1;
        both[0] = tci_build_mem(b, old, t, lanes, b->cur);
        both[0] = tci_build_prim(b, t == TC_F32 ? TCI_P_BITS : TCI_P_CAST, TC_U32, 1, both, 0);
        both[1] = tci_build_prim(b, TCI_P_OR, TC_U32, 2, both, 0);
    }
    st.args[0] = tci_build_word_of(b, both[1], t == TC_F32);
    tci_build_mem(b, st, t, 1, b->cur);
}

/* Stores a part of an element: the first point alone, the others merged with those before. */
static void tci_build_keep_part(tci_build *b, const tci_lkeep *keep, tci_lstmt st, tci_mem load,
                                int lanes)
{
    tci_lopen open;
    tci_dim known;
    int at = tci_build_lx(b, tci_build_keep_sum(b, keep, tci_lin_const(0), keep->point));
    int part = tci_lx_make(b->l, TCI_LX_MOD, at, -1, keep->points);
    tci_lin word = tci_build_let(b, tci_lx_make(b->l, TCI_LX_DIV, at, -1, keep->points));
    tci_lin to = tci_build_keep_sum(b, keep, keep->base, keep->coef);
    st.x = tci_build_lx(b, tci_lin_add(b, to, tci_lin_mul(b, word, keep->word_step)));
    if (tci_lx_is_const(b->l, part, &known)) {
        tci_build_keep_point(b, keep, st, load, lanes, (int)tci_dim_known(known));
        return;
    }
    for (int i = 0; i < keep->points; i++) {
        tci_build_if(b, tci_build_in_range(b, part, i, i), &open);
        tci_build_keep_point(b, keep, st, load, lanes, i);
        tci_build_close(b, &open);
    }
}

static tci_mem tci_build_keep_mem(bool write, bool whole, bool strided)
{
    if (strided) {
        return write ? (whole ? TCI_MEM_STORE_STRIDED : TCI_MEM_STORE_STRIDED_N)
                     : (whole ? TCI_MEM_LOAD_STRIDED : TCI_MEM_LOAD_STRIDED_N);
    }
    return write ? (whole ? TCI_MEM_STORE : TCI_MEM_STORE_N)
                 : (whole ? TCI_MEM_LOAD : TCI_MEM_LOAD_N);
}

/* An integer as the elements of a local array, which may be of fewer bits. */
static int tci_build_narrowed(tci_build *b, int local, int value)
{
    tc_dtype t = local >= 0 ? (tc_dtype)b->l->locals[local].dtype : TC_BOOL;
    tc_dtype from = (tc_dtype)b->l->values[value].dtype;
    return tci_dtype_is_int(t) && tci_dtype_is_int(from) && t != from
               ? tci_build_prim(b, TCI_P_CAST, t, 1, &value, 0)
               : value;
}

/* The statement that stores `value` (loads, if it is -1), without the address: *lanes of them, and
 * how to load the same. */
static tci_lstmt tci_build_keep_stmt(tci_build *b, const tci_lkeep *keep, int value, int *lanes,
                                     tci_mem *load)
{
    const tci_bind *vec = b->vec_axis >= 0 ? b->bind[b->vec_axis] : NULL;
    bool write = value >= 0;
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    *load = TCI_MEM_LOAD_ONE;
    st.base = ~keep->local;
    st.mem = write ? TCI_MEM_STORE_ONE : TCI_MEM_LOAD_ONE;
    vec = vec && keep->coef[b->vec_axis] != 0 ? vec : NULL;
    *lanes = vec ? b->l->lanes : 1;
    if (vec) {
        st.imm = keep->coef[b->vec_axis];
        /* what a stage stores is padded along its rows, not across them */
        bool padded = keep->is_padded && (keep->stage < 0 || st.imm == 1);
        bool whole = vec->n < 0 || padded;
        st.n = whole ? -1 : vec->n;
        *load = tci_build_keep_mem(false, whole, st.imm != 1);
        st.mem = (uint8_t)(write ? tci_build_keep_mem(true, whole, st.imm != 1) : *load);
    }
    if (write) {
        value = tci_build_unrounded(b, b->l->locals[keep->local].dtype, value);
        st.args[0] = tci_build_narrowed(b, keep->local, tci_build_widen(b, value, *lanes));
    }
    return st;
}

TCI_FN void tci_build_keep_word(tci_build *b, const tci_lkeep *keep, tci_lin word, int value)
{
    int lanes;
    tci_mem load;
    tci_lstmt st = tci_build_keep_stmt(b, keep, value, &lanes, &load);
    tci_lin to = tci_build_keep_sum(b, keep, keep->base, keep->coef);
    st.x = tci_build_lx(b, tci_lin_add(b, to, tci_lin_mul(b, word, keep->word_step)));
    tci_build_mem(b, st, (tc_dtype)b->l->values[value].dtype, 1, b->cur);
}

/* Stores `value`, or loads where it is -1. */
static int tci_build_keep_access(tci_build *b, const tci_lkeep *keep, int value)
{
    int lanes;
    tci_mem load;
    tci_lstmt st = tci_build_keep_stmt(b, keep, value, &lanes, &load);
    if (keep->point) {
        TCI_ASSERT(b->s, value >= 0);
        tci_build_keep_part(b, keep, st, load, lanes);
        return value;
    }
    st.x = tci_build_lx(b, tci_build_keep_sum(b, keep, keep->base, keep->coef));
    return tci_build_mem(b, st, (tc_dtype)b->k->insts[keep->inst].dtype, lanes, b->cur);
}

/* Emits instruction i, whose arguments are known. */
static int tci_build_emit(tci_build *b, int i)
{
    const tci_kinst *inst = &b->k->insts[i];
    int args[3] = {-1, -1, -1};
    int chosen = tci_build_chosen(b, inst);
    if (chosen >= 0) {
        return tci_build_memo_lookup(b, chosen);
    }
    switch (inst->op) {
    case TCI_K_CONST: return tci_build_const(b, (tc_dtype)inst->dtype, inst->value);
    case TCI_K_LIT: return tci_build_literal(b, inst);
    case TCI_K_PRIM:
        for (int a = 0; a < inst->n_args; a++) {
            args[a] = tci_build_memo_lookup(b, inst->args[a]);
        }
        return tci_build_prim(b, (tci_prim)inst->prim, (tc_dtype)inst->dtype, inst->n_args, args,
                              tci_kinst_number(inst));
    default: return tci_build_access(b, i);
    }
}

/* True if the value is loaded from an array. If all of it is masked, a constant replaces the load.
 */
static bool tci_build_is_read(const tci_build *b, int i)
{
    bool fill, one = b->is_one && b->is_one[i] && b->k->insts[i].op == TCI_K_PRIM;
    return tci_build_kept(b, i, &fill) && !fill && !one;
}

/* Pushes what i still needs; true if nothing. */
static bool tci_build_is_ready(tci_build *b, int i)
{
    const tci_kinst *inst = &b->k->insts[i];
    bool ready = true;
    if (inst->op != TCI_K_PRIM || tci_build_is_read(b, i)) {
        return true;
    }
    int chosen = tci_build_chosen(b, inst);
    for (int a = inst->n_args - 1; a >= 0; a--) {
        bool needed = chosen < 0 || inst->args[a] == chosen;
        if (needed && tci_build_memo_lookup(b, inst->args[a]) < 0) {
            TCI_PUSH(b->s, b->todo, b->n_todo, b->cap_todo, inst->args[a]);
            ready = false;
        }
    }
    return ready;
}

static int tci_build_finish(tci_build *b, int i)
{
    bool fill;
    const tci_lkeep *keep = tci_build_kept(b, i, &fill);
    if (tci_build_is_read(b, i)) {
        return tci_build_keep_access(b, keep, -1);
    }
    int value = tci_build_emit(b, i);
    if (keep && fill) {
        tci_build_keep_access(b, keep, value);
    }
    return value;
}

TCI_FN void tci_build_leave(tci_build *b, int inst, int value)
{
    bool fill;
    const tci_lkeep *keep = tci_build_kept(b, inst, &fill);
    if (keep && fill) {
        tci_build_keep_access(b, keep, value);
    }
    tci_build_remember(b, inst, value);
}

TCI_FN int tci_build_value(tci_build *b, int inst)
{
    int value = tci_build_memo_lookup(b, inst);
    int base = b->n_todo;
    if (value >= 0) {
        return value;
    }
    TCI_PUSH(b->s, b->todo, b->n_todo, b->cap_todo, inst);
    while (b->n_todo > base) {
        int i = b->todo[b->n_todo - 1];
        if (tci_build_memo_lookup(b, i) >= 0) {
            b->n_todo--;
        } else if (tci_build_is_ready(b, i)) {
            value = tci_build_finish(b, i);
            tci_build_remember(b, i, value);
            b->n_todo--;
        }
    }
    return tci_build_memo_lookup(b, inst);
}
