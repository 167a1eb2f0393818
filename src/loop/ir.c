/* loop/ir.c - constructs the loop IR: blocks, statements, hash-consed index expressions.
 *
 * In: nothing but the kernel's operands. Out: an empty function body (block 0), and functions that
 * add blocks, names and statements. Index expressions are hash-consed and folded here, so equal
 * address arithmetic is one node and can share one index let (lx_index remembers the latest).
 * Invariant: a block's parent has a smaller number; a statement that owns a block is appended to
 * the parent after the block is filled, so that statements hoisted out of an open loop come before
 * it. */
#include "ir.h"

TCI_FN tci_loop *tci_loop_make(tci_scratch *s, const tci_kernel *k)
{
    tci_loop *l = TCI_NEW(s, tci_loop);
    l->s = s;
    l->lanes = l->threads = l->rows = 1;
    l->note = "";
    l->n_operands = k->n_operands;
    l->operands = tci_scratch_copy(s, k->operands, sizeof(*k->operands) * (size_t)k->n_operands);
    l->faults = k->faults;
    tci_loop_block(l, -1);
    return l;
}

TCI_FN int tci_loop_block(tci_loop *l, int parent)
{
    tci_lblock b = {0};
    b.parent = parent;
    b.depth = parent < 0 ? 0 : l->blocks[parent].depth + 1;
    TCI_PUSH(l->s, l->blocks, l->n_blocks, l->cap_blocks, b);
    return l->n_blocks - 1;
}

TCI_FN bool tci_loop_encloses(const tci_loop *l, int outer, int inner)
{
    while (inner >= 0 && l->blocks[inner].depth > l->blocks[outer].depth) {
        inner = l->blocks[inner].parent;
    }
    return inner == outer;
}

TCI_FN int tci_loop_value(tci_loop *l, tc_dtype t, int lanes, int block)
{
    tci_lvalue v = {(int8_t)t, false, lanes, block, -1, -1};
    TCI_PUSH(l->s, l->values, l->n_values, l->cap_values, v);
    return l->n_values - 1;
}

TCI_FN int tci_loop_index(tci_loop *l, int block, bool is_loop)
{
    tci_lindex x = {block, is_loop, 1};
    TCI_PUSH(l->s, l->indices, l->n_indices, l->cap_indices, x);
    return l->n_indices - 1;
}

TCI_FN int tci_loop_local(tci_loop *l, tc_dtype storage, tci_dim n)
{
    tci_llocal m = {(uint8_t)storage, n, false, -1, false};
    TCI_PUSH(l->s, l->locals, l->n_locals, l->cap_locals, m);
    return l->n_locals - 1;
}

TCI_FN tci_lstmt tci_loop_stmt(tci_lop op)
{
    tci_lstmt st = {0};
    st.op = (uint8_t)op;
    st.dst = st.x = st.n = st.body = -1;
    st.args[0] = st.args[1] = st.args[2] = -1;
    return st;
}

TCI_FN void tci_loop_append(tci_loop *l, int block, tci_lstmt st)
{
    tci_lblock *b = &l->blocks[block];
    TCI_PUSH(l->s, b->stmts, b->n, b->cap, st);
}

/* ---- index expressions ---- */

static uint64_t tci_lx_hash_of(tci_lx e)
{
    uint64_t h = e.op * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ (uint64_t)(uint32_t)e.a) * UINT64_C(0xBF58476D1CE4E5B9);
    h = (h ^ (uint64_t)(uint32_t)e.b ^ (h >> 29)) * UINT64_C(0x94D049BB133111EB);
    h = (h ^ (uint64_t)e.c ^ (h >> 31)) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ (h >> 32);
}

static void tci_lx_insert(tci_loop *l, int id)
{
    uint64_t at = tci_lx_hash_of(l->lx[id]) & (uint64_t)(l->n_lx_hash - 1);
    while (l->lx_hash[at] >= 0) {
        at = (at + 1) & (uint64_t)(l->n_lx_hash - 1);
    }
    l->lx_hash[at] = id;
}

static void tci_lx_rehash(tci_loop *l)
{
    l->n_lx_hash = l->n_lx_hash ? l->n_lx_hash * 2 : 256;
    l->lx_hash = TCI_NEW_ARRAY(l->s, int32_t, l->n_lx_hash);
    for (int i = 0; i < l->n_lx_hash; i++) {
        l->lx_hash[i] = -1;
    }
    for (int i = 0; i < l->n_lx; i++) {
        tci_lx_insert(l, i);
    }
}

static int tci_lx_intern(tci_loop *l, tci_lx e)
{
    if (2 * l->n_lx >= l->n_lx_hash) {
        tci_lx_rehash(l);
    }
    uint64_t at = tci_lx_hash_of(e) & (uint64_t)(l->n_lx_hash - 1);
    for (; l->lx_hash[at] >= 0; at = (at + 1) & (uint64_t)(l->n_lx_hash - 1)) {
        const tci_lx *o = &l->lx[l->lx_hash[at]];
        if (o->op == e.op && o->a == e.a && o->b == e.b && o->c == e.c) {
            return l->lx_hash[at];
        }
    }
    int n_index = l->n_lx;
    TCI_PUSH(l->s, l->lx_index, n_index, l->cap_lx_index, -1);
    TCI_PUSH(l->s, l->lx, l->n_lx, l->cap_lx, e);
    l->lx_hash[at] = l->n_lx - 1;
    return l->n_lx - 1;
}

TCI_FN int tci_lx_const(tci_loop *l, tci_dim c)
{
    tci_lx e = {TCI_LX_CONST, -1, -1, c};
    return tci_lx_intern(l, e);
}

TCI_FN int tci_lx_var(tci_loop *l, int index)
{
    tci_lx e = {TCI_LX_VAR, index, -1, 0};
    return tci_lx_intern(l, e);
}

TCI_FN bool tci_lx_is_const(const tci_loop *l, int x, tci_dim *c)
{
    if (l->lx[x].op != TCI_LX_CONST) {
        return false;
    }
    *c = l->lx[x].c;
    return true;
}

static tci_dim tci_lx_fold(tci_lx_op op, tci_dim a, tci_dim b, tci_dim c)
{
    switch (op) {
    case TCI_LX_ADD: return tci_dim_add(a, b);
    case TCI_LX_MUL: return tci_dim_mul(a, c);
    case TCI_LX_DIV: return tci_dim_div(a, c);
    case TCI_LX_MOD: return tci_dim_mod(a, c);
    case TCI_LX_MIN: return tci_dim_min(a, b);
    default: return tci_dim_max(a, b);
    }
}

/* A symbolic divisor that may be 0 divides what is not used then, behind a guard or in a loop that
 * runs no times; but a divisor it may not be. */
TCI_FN int tci_lx_make(tci_loop *l, tci_lx_op op, int a, int b, tci_dim c)
{
    if (!tci_dim_is_known(c) && (op == TCI_LX_DIV || op == TCI_LX_MOD)) {
        c = tci_dim_max(c, 1);
    }
    tci_lx e = {(uint8_t)op, a, b, c};
    if (op > TCI_LX_MAX) {
        return tci_lx_intern(l, e);
    }
    tci_dim ca = 0, cb = 0;
    bool const_a = tci_lx_is_const(l, a, &ca);
    bool const_b = b >= 0 && tci_lx_is_const(l, b, &cb);
    if (const_a && (b < 0 || const_b)) {
        return tci_lx_const(l, tci_lx_fold(op, ca, cb, c));
    }
    if (op == TCI_LX_ADD && const_a) {
        e.a = b;
        e.b = a;
        const_b = true;
        cb = ca;
    }
    if (op == TCI_LX_ADD && const_b && l->lx[e.a].op == TCI_LX_ADD) {
        tci_lx in = l->lx[e.a];
        tci_dim cin = 0;
        if (tci_lx_is_const(l, in.b, &cin)) {
            return tci_lx_make(l, TCI_LX_ADD, in.a, tci_lx_const(l, tci_dim_add(cin, cb)), 0);
        }
    }
    if (op == TCI_LX_ADD && const_b && cb == 0) {
        return e.a;
    }
    if (op == TCI_LX_MUL && c == 0) {
        return tci_lx_const(l, 0);
    }
    if ((op == TCI_LX_MUL || op == TCI_LX_DIV) && c == 1) {
        return a;
    }
    if (op == TCI_LX_MOD && c == 1) {
        return tci_lx_const(l, 0);
    }
    if ((op == TCI_LX_MIN || op == TCI_LX_MAX) && a == b) {
        return a;
    }
    return tci_lx_intern(l, e);
}

TCI_FN int64_t tci_lx_gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a < 0 ? -a : a;
}

TCI_FN int64_t tci_lx_multiple(const tci_loop *l, int x)
{
    const tci_lx *e = &l->lx[x];
    int64_t c = tci_dim_is_known(e->c) ? tci_dim_known(e->c) : 1;
    switch (e->op) {
    case TCI_LX_CONST: return c == INT64_MIN ? 1 : c;
    case TCI_LX_VAR: return l->indices[e->a].multiple;
    case TCI_LX_ADD:
    case TCI_LX_MIN:
    case TCI_LX_MAX: return tci_lx_gcd(tci_lx_multiple(l, e->a), tci_lx_multiple(l, e->b));
    case TCI_LX_MOD: return tci_lx_gcd(tci_lx_multiple(l, e->a), c);
    case TCI_LX_MUL: {
        int64_t m = tci_lx_multiple(l, e->a);
        bool fits = c == 0 || (c != INT64_MIN && m <= INT64_MAX / (c < 0 ? -c : c));
        return fits ? m * (c < 0 ? -c : c) : 1;
    }
    default: return 1;
    }
}

TCI_FN int tci_lx_block(const tci_loop *l, int x)
{
    const tci_lx *e = &l->lx[x];
    if (e->op == TCI_LX_VAR) {
        return l->indices[e->a].block;
    }
    int best = 0;
    if (e->a >= 0) {
        best = tci_lx_block(l, e->a);
    }
    if (e->b >= 0 && e->op != TCI_LX_HEAD) {
        int other = tci_lx_block(l, e->b);
        if (l->blocks[other].depth > l->blocks[best].depth) {
            best = other;
        }
    }
    return best;
}

TCI_FN unsigned tci_lmem_uses(tci_mem m)
{
    switch (m) {
    case TCI_MEM_LOAD:
    case TCI_MEM_LOAD_PAIRS:
    case TCI_MEM_LOAD_ALIGNED:
    case TCI_MEM_LOAD_REPEAT:
    case TCI_MEM_WORDS:
    case TCI_MEM_TAG:
    case TCI_MEM_LOAD_ONE: return TCI_LMEM_DST | TCI_LMEM_ADDRESS;
    case TCI_MEM_TELL: return TCI_LMEM_WRITES | TCI_LMEM_ADDRESS | TCI_LMEM_VALUE | TCI_LMEM_SECOND;
    case TCI_MEM_AWAIT: return TCI_LMEM_DST | TCI_LMEM_ADDRESS | TCI_LMEM_VALUE | TCI_LMEM_COUNT;
    case TCI_MEM_UNIT_ROWS:
    case TCI_MEM_UNIT_ROWS_TURNED:
    case TCI_MEM_UNIT_COLUMNS:
    case TCI_MEM_UNIT_COLUMNS_TURNED: return TCI_LMEM_DST | TCI_LMEM_ADDRESS | TCI_LMEM_STRIDE;
    case TCI_MEM_UNIT_DOT:
        return TCI_LMEM_DST | TCI_LMEM_VALUE | TCI_LMEM_SECOND | TCI_LMEM_THIRD | TCI_LMEM_DTYPE;
    case TCI_MEM_WORDS_IF:
    case TCI_MEM_LOAD_IF:
    case TCI_MEM_LOAD_MASK: return TCI_LMEM_DST | TCI_LMEM_ADDRESS | TCI_LMEM_MASK;
    case TCI_MEM_LOAD_AT: return TCI_LMEM_DST | TCI_LMEM_ADDRESS | TCI_LMEM_VALUE;
    case TCI_MEM_LOAD_N_ALIGNED:
    case TCI_MEM_LOAD_N: return TCI_LMEM_DST | TCI_LMEM_ADDRESS | TCI_LMEM_COUNT;
    case TCI_MEM_LOAD_STRIDED: return TCI_LMEM_DST | TCI_LMEM_ADDRESS | TCI_LMEM_STRIDE;
    case TCI_MEM_LOAD_STRIDED_N:
        return TCI_LMEM_DST | TCI_LMEM_ADDRESS | TCI_LMEM_STRIDE | TCI_LMEM_COUNT;
    case TCI_MEM_STORE:
    case TCI_MEM_STORE_ALIGNED:
    case TCI_MEM_STORE_STREAM:
    case TCI_MEM_STORE_WORDS:
    case TCI_MEM_STORE_UNIT:
    case TCI_MEM_STORE_ONE:
    case TCI_MEM_STORE_LANE: return TCI_LMEM_WRITES | TCI_LMEM_ADDRESS | TCI_LMEM_VALUE;
    case TCI_MEM_STORE_N:
        return TCI_LMEM_WRITES | TCI_LMEM_ADDRESS | TCI_LMEM_VALUE | TCI_LMEM_COUNT;
    case TCI_MEM_STORE_STRIDED:
        return TCI_LMEM_WRITES | TCI_LMEM_ADDRESS | TCI_LMEM_VALUE | TCI_LMEM_STRIDE;
    case TCI_MEM_STORE_STRIDED_N:
        return TCI_LMEM_WRITES | TCI_LMEM_ADDRESS | TCI_LMEM_VALUE | TCI_LMEM_STRIDE |
               TCI_LMEM_COUNT;
    case TCI_MEM_UNIT_ZERO: return TCI_LMEM_DST;
    case TCI_MEM_SPLAT: return TCI_LMEM_DST | TCI_LMEM_VALUE;
    case TCI_MEM_IOTA: return TCI_LMEM_DST | TCI_LMEM_FIRST;
    case TCI_MEM_FIRST_N: return TCI_LMEM_DST | TCI_LMEM_COUNT;
    case TCI_MEM_LANE:
    case TCI_MEM_UNIT_SUM:
    case TCI_MEM_LANE_REPEAT:
    case TCI_MEM_NEAR_HALF:
    case TCI_MEM_HIGH_FIRST:
    case TCI_MEM_HIGH_HALF: return TCI_LMEM_DST | TCI_LMEM_VALUE | TCI_LMEM_LANE;
    case TCI_MEM_BELOW:
    case TCI_MEM_SWAP_LOW:
    case TCI_MEM_SWAP_HIGH: return TCI_LMEM_DST | TCI_LMEM_VALUE | TCI_LMEM_SECOND | TCI_LMEM_LANE;
    case TCI_MEM_WEAVE_LOW:
    case TCI_MEM_WEAVE_HIGH: return TCI_LMEM_DST | TCI_LMEM_VALUE | TCI_LMEM_SECOND;
    case TCI_MEM_PREFETCH: return TCI_LMEM_ADDRESS;
    case TCI_MEM_TILE_ZERO: return TCI_LMEM_COUNT;
    case TCI_MEM_TILE_LOAD:
    case TCI_MEM_TILE_STORE: return TCI_LMEM_ADDRESS | TCI_LMEM_STRIDE | TCI_LMEM_COUNT;
    case TCI_MEM_TILE_DOT:
    case TCI_MEM_TILE_FOURS: return TCI_LMEM_COUNT | TCI_LMEM_LANE;
    case TCI_MEM_STORE_PAIRS:
        return TCI_LMEM_WRITES | TCI_LMEM_ADDRESS | TCI_LMEM_VALUE | TCI_LMEM_SECOND;
    case TCI_MEM_DOT_PAIRS:
    case TCI_MEM_DOT_FOURS: return TCI_LMEM_DST | TCI_LMEM_VALUE | TCI_LMEM_SECOND | TCI_LMEM_THIRD;
    default: return 0;
    }
}

#ifdef TC_DYNAMIC_SHAPES

/* ---- symbolic numbers ---- */

static void tci_loop_add_dim(tci_loop *l, tci_dim d)
{
    bool known = tci_dim_is_known(d);
    for (int i = 0; !known && i < l->n_dims; i++) {
        known = l->dims[i] == d;
    }
    if (!known) {
        TCI_ASSERT(l->s, tci_dim_is_valid(d));
        TCI_PUSH(l->s, l->dims, l->n_dims, l->cap_dims, d);
    }
}

static void tci_loop_add_dims_of_index(tci_loop *l, int x)
{
    tci_lx e = l->lx[x];
    bool number = e.op == TCI_LX_CONST || e.op == TCI_LX_MUL || e.op == TCI_LX_DIV ||
                  e.op == TCI_LX_MOD;
    if (number) {
        tci_loop_add_dim(l, e.c);
    }
    if (e.a >= 0 && e.op != TCI_LX_VAR) {
        tci_loop_add_dims_of_index(l, e.a);
    }
    if (e.b >= 0 && (e.op == TCI_LX_ADD || e.op == TCI_LX_MIN || e.op == TCI_LX_MAX)) {
        tci_loop_add_dims_of_index(l, e.b);
    }
}

TCI_FN void tci_loop_find_dims(tci_loop *l)
{
    for (int block = 0; block < l->n_blocks; block++) {
        for (int i = 0; i < l->blocks[block].n; i++) {
            const tci_lstmt *st = &l->blocks[block].stmts[i];
            bool bounds = st->op == TCI_L_IN_RANGE;
            bool stride = st->op == TCI_L_MEM &&
                          (tci_lmem_uses((tci_mem)st->mem) & TCI_LMEM_STRIDE);
            if (st->x >= 0) {
                tci_loop_add_dims_of_index(l, st->x);
            }
            if (st->n >= 0) {
                tci_loop_add_dims_of_index(l, st->n);
            }
            if (st->op == TCI_L_LOCAL && l->locals[st->dst].work >= 0) {
                tci_loop_add_dims_of_index(l, l->locals[st->dst].work);
            }
            if (bounds) {
                tci_loop_add_dim(l, st->lo);
            }
            if (bounds || stride || st->op == TCI_L_FAULT) {
                tci_loop_add_dim(l, st->imm);
            }
        }
    }
}

#endif
