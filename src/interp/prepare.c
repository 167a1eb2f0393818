/* interp/prepare.c - makes a kernel ready for interpretation.
 *
 * In: kernel IR. Out: struct tci_interp (interp/steps.h): sections of steps and the workspace
 * layout. Three walks: (1) instructions become nodes: MATH prims are replaced by their recipe,
 * storage conversions, bool masks and sign tricks are spelled out, equal nodes are one; (2) from
 * what each node depends on follows the section (or sections) that evaluates it; (3) each section's
 * nodes become steps, and values get memory by liveness. */
#include <string.h>

#include "../base/hash.h"
#include "steps.h"

/* ---- nodes ---- */

typedef enum tci_prep_kind {
    TCI_PREP_CONST,
    TCI_PREP_LIT,
    TCI_PREP_LOAD,
    TCI_PREP_INDEX,
    TCI_PREP_GUARD,
    TCI_PREP_OP,
    TCI_PREP_LANE,
    TCI_PREP_RED,
    TCI_PREP_FAULT
} tci_prep_kind;

/* Zeroed before it is filled, so that equal nodes have equal bytes. */
typedef struct tci_prep_node {
    uint8_t kind, prim;
    int8_t dtype, to; /* OP: dtype of operands and result */
    uint8_t bytes, n_args, unused[2];
    int32_t args[3];
    int32_t ref;                   /* operand, literal slot, helper, reduction */
    int32_t x, guard, n_guards;
    int32_t chain;                 /* next node of the hash bucket, + 1 */
    int64_t c;
    uint64_t bits;
} tci_prep_node;

typedef struct tci_prep_store {
    int32_t node, stage, operand, x;
} tci_prep_store;

enum { TCI_PREP_BUCKETS = 1024 };

typedef struct tci_prep {
    tci_scratch *s;
    const tci_kernel *k;
    tci_interp *p;
    tci_prep_node *nodes; int n_nodes, cap_nodes;
    int32_t buckets[TCI_PREP_BUCKETS];
    int32_t *inst_node;        /* node of each instruction */
    int32_t *index_node;       /* instruction used by a KX_VALUE: its value as i64, else -1 */
    int32_t *red_a, *red_b;    /* nodes folded by each reduction */
    tci_prep_store *stores;
    /* Dependence: row of n_axes + n_stages flags a node or kx: axes, then stages whose results it
     * uses. */
    int width;
    uint8_t *deps, *kx_deps, *kx_done;
    int32_t *kx_seen, stamp;   /* marks of one walk over index expressions */
    uint8_t *need_outer, *need_stage; /* by node; by stage * n_nodes + node */
    /* value of each node: at the outer level; in the stage at hand */
    int32_t *outer_value, *stage_value;
    tci_interp_value *values; int n_values, cap_values;
    int n_sections;
    /* the section being filled */
    tci_interp_section *section;
    int section_id, stage;     /* stage: -1 at the outer level */
    tci_interp_addr **addr;    /* by kx, in this section */
    int32_t *block;            /* by kx: value with x per lane, -1 none yet */
} tci_prep;

static uint64_t tci_prep_hash(const tci_prep_node *n)
{
    uint64_t words[sizeof(*n) / sizeof(uint64_t)];
    memcpy(words, n, sizeof words);
    uint64_t h = 0;
    for (int i = 0; i < TCI_COUNT(words); i++) {
        h = tci_hash_mix(h, words[i]);
    }
    return h;
}

static int tci_prep_add(tci_prep *b, tci_prep_node n)
{
    n.chain = 0;
    int32_t *head = &b->buckets[tci_prep_hash(&n) % TCI_PREP_BUCKETS];
    for (int32_t i = *head; i > 0; i = b->nodes[i - 1].chain) {
        tci_prep_node have = b->nodes[i - 1];
        have.chain = 0;
        if (memcmp(&have, &n, sizeof n) == 0) {
            return i - 1;
        }
    }
    n.chain = *head;
    TCI_PUSH(b->s, b->nodes, b->n_nodes, b->cap_nodes, n);
    *head = b->n_nodes;
    return b->n_nodes - 1;
}

static tci_prep_node tci_prep_blank(tci_prep_kind kind, int bytes)
{
    tci_prep_node n;
    memset(&n, 0, sizeof n);
    n.kind = (uint8_t)kind;
    n.bytes = (uint8_t)bytes;
    n.args[0] = n.args[1] = n.args[2] = n.x = n.guard = -1;
    return n;
}

static int tci_prep_bytes(tc_dtype t)
{
    return tci_dtype_get(t)->bytes;
}

static tc_dtype tci_prep_uint(int bytes)
{
    return bytes == 1 ? TC_U8 : bytes == 2 ? TC_U16 : bytes == 4 ? TC_U32 : TC_U64;
}

static tc_dtype tci_prep_sint(int bytes)
{
    return bytes == 1 ? TC_I8 : bytes == 2 ? TC_I16 : bytes == 4 ? TC_I32 : TC_I64;
}

static int tci_prep_const(tci_prep *b, uint64_t bits, int bytes)
{
    tci_prep_node n = tci_prep_blank(TCI_PREP_CONST, bytes);
    n.bits = bytes == 8 ? bits : bits & (((uint64_t)1 << (8 * bytes)) - 1);
    return tci_prep_add(b, n);
}

/* A number as its storage bits; bool as a mask. */
static uint64_t tci_prep_bits(tc_dtype t, tci_value v)
{
    if (t == TC_BOOL) {
        return v.i != 0 ? 0xff : 0;
    }
    uint64_t bits = 0;
    tci_value_store(t, &bits, v);
    return bits;
}

static int tci_prep_op(tci_prep *b, int prim, tc_dtype dtype, tc_dtype to, int bytes, int a0,
                       int a1, int a2)
{
    tci_prep_node n = tci_prep_blank(TCI_PREP_OP, bytes);
    n.prim = (uint8_t)prim;
    n.dtype = (int8_t)dtype;
    n.to = (int8_t)to;
    n.args[0] = a0;
    n.args[1] = a1;
    n.args[2] = a2;
    n.n_args = (uint8_t)(1 + (a1 >= 0) + (a2 >= 0));
    return tci_prep_add(b, n);
}

/* Integer width change: extension by the signedness of `from`, or cutting. */
static int tci_prep_resize(tci_prep *b, int a, tc_dtype from, int bytes)
{
    int have = tci_prep_bytes(from);
    if (have == bytes) {
        return a;
    }
    bool zero_extends = have < bytes && !tci_dtype_is_signed(from);
    tc_dtype t = zero_extends ? from : tci_prep_sint(have);
    return tci_prep_op(b, TCI_P_CAST, t, zero_extends ? tci_prep_uint(bytes) : tci_prep_sint(bytes),
                       bytes, a, -1, -1);
}

static int tci_prep_mask(tci_prep *b, int a, int bytes)
{
    return tci_prep_resize(b, a, tci_prep_sint(b->nodes[a].bytes), bytes);
}

static int tci_prep_bitwise(tci_prep *b, int prim, int a0, int a1)
{
    int bytes = b->nodes[a0].bytes;
    return tci_prep_op(b, prim, tci_prep_uint(bytes), tci_prep_uint(bytes), bytes, a0, a1, -1);
}

static int tci_prep_not(tci_prep *b, int a)
{
    return tci_prep_bitwise(b, TCI_P_XOR, a, tci_prep_const(b, ~(uint64_t)0, b->nodes[a].bytes));
}

static int tci_prep_bool(tci_prep *b, int prim, int a0, int a1)
{
    a1 = a1 < 0 ? -1 : tci_prep_mask(b, a1, b->nodes[a0].bytes);
    switch (prim) {
    case TCI_P_NOT: return tci_prep_not(b, a0);
    case TCI_P_OR:
    case TCI_P_ADD:
    case TCI_P_PMAX: return tci_prep_bitwise(b, TCI_P_OR, a0, a1);
    case TCI_P_XOR:
    case TCI_P_SUB: return tci_prep_bitwise(b, TCI_P_XOR, a0, a1);
    case TCI_P_EQ: return tci_prep_not(b, tci_prep_bitwise(b, TCI_P_XOR, a0, a1));
    case TCI_P_LT: return tci_prep_bitwise(b, TCI_P_AND, tci_prep_not(b, a0), a1);
    case TCI_P_LE: return tci_prep_bitwise(b, TCI_P_OR, tci_prep_not(b, a0), a1);
    case TCI_P_AND:
    case TCI_P_MUL:
    case TCI_P_PMIN: return tci_prep_bitwise(b, TCI_P_AND, a0, a1);
    default: return a0; /* NEG, ABS and rounding leave a bool alone */
    }
}

static int tci_prep_cast(tci_prep *b, int a, tc_dtype from, tc_dtype to)
{
    int bytes = tci_prep_bytes(to);
    if (from == to) {
        return a;
    }
    if (to == TC_BOOL) {
        int zero = tci_prep_const(b, 0, tci_prep_bytes(from));
        return tci_prep_not(b, tci_prep_op(b, TCI_P_EQ, from, TC_BOOL, tci_prep_bytes(from), a,
                                           zero, -1));
    }
    if (from == TC_BOOL) {
        tci_value one = {.i = 1};
        if (tci_dtype_is_float(to)) {
            one.f = 1.0;
        }
        return tci_prep_bitwise(b, TCI_P_AND, tci_prep_mask(b, a, bytes),
                                tci_prep_const(b, tci_prep_bits(to, one), bytes));
    }
    if (tci_dtype_is_int(from) && tci_dtype_is_int(to)) {
        return tci_prep_resize(b, a, from, bytes);
    }
    return tci_prep_op(b, TCI_P_CAST, from, to, bytes, a, -1, -1);
}

static int tci_prep_select(tci_prep *b, tc_dtype t, int mask, int a0, int a1)
{
    int bytes = b->nodes[a0].bytes;
    a1 = t == TC_BOOL ? tci_prep_mask(b, a1, bytes) : a1;
    tc_dtype u = tci_prep_uint(bytes);
    return tci_prep_op(b, TCI_P_SELECT, u, u, bytes, tci_prep_mask(b, mask, bytes), a0, a1);
}

/* NEG, ABS and NOT are other operations with a constant. */
static int tci_prep_sign(tci_prep *b, int prim, tc_dtype t, int a)
{
    int bytes = tci_prep_bytes(t);
    uint64_t top = (uint64_t)1 << (8 * bytes - 1);
    if (prim == TCI_P_NOT) {
        return tci_prep_not(b, a);
    }
    if (tci_dtype_is_float(t)) {
        return prim == TCI_P_NEG
                   ? tci_prep_bitwise(b, TCI_P_XOR, a, tci_prep_const(b, top, bytes))
                   : tci_prep_bitwise(b, TCI_P_AND, a, tci_prep_const(b, top - 1, bytes));
    }
    if (prim == TCI_P_ABS && !tci_dtype_is_signed(t)) {
        return a;
    }
    int minus = tci_prep_op(b, TCI_P_SUB, t, t, bytes, tci_prep_const(b, 0, bytes), a, -1);
    return prim == TCI_P_NEG ? minus : tci_prep_op(b, TCI_P_PMAX, t, t, bytes, a, minus, -1);
}

static int tci_prep_lane(tci_prep *b, int helper, const int *a, int n)
{
    tc_dtype t = (tc_dtype)tci_helper_get(helper)->dtype;
    tci_prep_node node = tci_prep_blank(TCI_PREP_LANE, tci_prep_bytes(t));
    node.ref = helper;
    node.dtype = (int8_t)t;
    node.n_args = (uint8_t)n;
    for (int i = 0; i < n - 1; i++) {
        node.args[i] = a[i];
    }
    node.args[n - 1] = tci_prep_mask(b, a[n - 1], node.bytes);
    return tci_prep_add(b, node);
}

/* A BASE prim over operands of dtype t with result dtype `to`. */
static int tci_prep_base(tci_prep *b, int prim, tc_dtype t, tc_dtype to, int imm, const int *a,
                         int n)
{
    int bytes = tci_prep_bytes(t);
    switch (prim) {
    case TCI_P_LANE1: return tci_prep_lane(b, imm, a, n);
    case TCI_P_SELECT: return tci_prep_select(b, t, a[0], a[1], a[2]);
    case TCI_P_CAST: return tci_prep_cast(b, a[0], t, to);
    case TCI_P_BITS: return a[0];
    case TCI_P_TOINT: return tci_prep_op(b, prim, t, to, bytes, a[0], -1, -1);
    default: break;
    }
    if (t == TC_BOOL) {
        return tci_prep_bool(b, prim, a[0], n > 1 ? a[1] : -1);
    }
    switch (prim) {
    case TCI_P_NEG:
    case TCI_P_ABS:
    case TCI_P_NOT: return tci_prep_sign(b, prim, t, a[0]);
    case TCI_P_AND:
    case TCI_P_OR:
    case TCI_P_XOR: return tci_prep_bitwise(b, prim, a[0], a[1]);
    case TCI_P_FLOOR:
    case TCI_P_CEIL:
    case TCI_P_TRUNC:
    case TCI_P_RINT:
        if (tci_dtype_is_int(t)) {
            return a[0];
        }
        break;
    case TCI_P_FMA: prim = tci_dtype_is_int(t) ? TCI_IP_MULADD : prim; break;
    default: break;
    }
    return tci_prep_op(b, prim, t, to, bytes, a[0], n > 1 ? a[1] : -1, n > 2 ? a[2] : -1);
}

static int tci_prep_recipe(tci_prep *b, int prim, tc_dtype t, const int *a)
{
    const tci_recipe *r = tci_math_recipe((tci_prim)prim, t);
    TCI_ASSERT(b->s, r && r->n > 0);
    int *node = TCI_NEW_ARRAY(b->s, int, r->n);
    for (int i = 0; i < r->n; i++) {
        const tci_step_inst *e = &r->insts[i];
        if (e->kind == TCI_RECIPE_ARG) {
            node[i] = a[e->imm];
        } else if (e->kind == TCI_RECIPE_CONST) {
            tc_dtype ct = (tc_dtype)e->dtype;
            node[i] = tci_prep_const(b, tci_prep_bits(ct, e->value), tci_prep_bytes(ct));
        } else {
            int args[3] = {-1, -1, -1};
            for (int j = 0; j < e->n_args; j++) {
                args[j] = node[e->args[j]];
            }
            tc_dtype operands = (tc_dtype)r->insts[e->args[e->prim == TCI_P_SELECT ? 1 : 0]].dtype;
            node[i] =
                tci_prep_base(b, e->prim, operands, (tc_dtype)e->dtype, e->imm, args, e->n_args);
        }
    }
    return node[r->n - 1];
}

/* ---- walk 1: instructions to nodes ---- */

static int tci_prep_load(tci_prep *b, const tci_kinst *i)
{
    tc_dtype t = (tc_dtype)b->k->operands[i->imm].dtype;
    tci_prep_node n = tci_prep_blank(TCI_PREP_LOAD, tci_prep_bytes(t));
    n.ref = (int32_t)i->imm;
    n.x = i->x;
    n.guard = i->n_guards > 0 ? i->guard : -1;
    n.n_guards = i->n_guards;
    if (t == TC_BOOL) {
        n.bits = i->value.i != 0;
    } else {
        tci_value_store(t, &n.bits, i->value);
    }
    int raw = tci_prep_add(b, n);
    tc_dtype have = (tc_dtype)tci_dtype_get(t)->compute;
    if (t == TC_BOOL) {
        raw = tci_prep_cast(b, raw, TC_U8, TC_BOOL);
    } else if (t == TC_F16) {
        raw = tci_prep_op(b, TCI_IP_FROM_F16, TC_U16, TC_F32, 4, raw, -1, -1);
    } else if (t == TC_BF16) {
        raw = tci_prep_op(b, TCI_P_SHL, TC_U32, TC_U32, 4, tci_prep_resize(b, raw, TC_U16, 4),
                          tci_prep_const(b, 16, 4), -1);
    }
    return tci_prep_cast(b, raw, have, (tc_dtype)i->dtype);
}

static int tci_prep_prim(tci_prep *b, const tci_kinst *i)
{
    const tci_kinst *insts = b->k->insts;
    tc_dtype t = (tc_dtype)insts[i->args[i->prim == TCI_P_SELECT ? 1 : 0]].dtype;
    int a[3] = {-1, -1, -1};
    for (int j = 0; j < i->n_args; j++) {
        a[j] = b->inst_node[i->args[j]];
    }
    if (tci_prim_is_math((tci_prim)i->prim)) {
        return tci_prep_recipe(b, i->prim, t, a);
    }
    return tci_prep_base(b, i->prim, t, (tc_dtype)i->dtype, (int)i->imm, a, i->n_args);
}

static bool tci_prep_is_arg(const tci_kred *r)
{
    return tci_kred_is_arg(r->op);
}

static int tci_prep_red(tci_prep *b, int red)
{
    const tci_kred *r = &b->k->reds[red];
    tc_dtype t = (tc_dtype)r->dtype;
    int a = tci_prep_cast(b, b->inst_node[r->a], (tc_dtype)b->k->insts[r->a].dtype, t);
    int other = r->b >= 0 ? b->inst_node[r->b] : -1;
    if (other >= 0) {
        other = tci_prep_cast(b, other, (tc_dtype)b->k->insts[r->b].dtype,
                              tci_prep_is_arg(r) ? TC_I64 : t);
    }
    if (t == TC_BOOL) {
        a = tci_prep_mask(b, a, 1);
        if (r->op == TCI_RED_DOT) { /* any(a and b) */
            a = tci_prep_bitwise(b, TCI_P_AND, a, tci_prep_mask(b, other, 1));
            other = -1;
        }
    }
    b->red_a[red] = a;
    b->red_b[red] = other;
    tci_prep_node n = tci_prep_blank(TCI_PREP_RED, tci_prep_is_arg(r) ? 8 : tci_prep_bytes(t));
    n.ref = red;
    n.dtype = (int8_t)t;
    return tci_prep_add(b, n);
}

static int tci_prep_inst(tci_prep *b, const tci_kinst *i)
{
    tc_dtype t = (tc_dtype)i->dtype;
    tci_prep_node n;
    switch (i->op) {
    case TCI_K_CONST: return tci_prep_const(b, tci_prep_bits(t, i->value), tci_prep_bytes(t));
    case TCI_K_LIT:
        n = tci_prep_blank(TCI_PREP_LIT, tci_prep_bytes(t));
        n.ref = (int32_t)i->imm;
        n.dtype = i->dtype;
        return tci_prep_add(b, n);
    case TCI_K_LOAD: return tci_prep_load(b, i);
    case TCI_K_INDEX:
        n = tci_prep_blank(TCI_PREP_INDEX, 8);
        n.x = i->x;
        return tci_prep_cast(b, tci_prep_add(b, n), TC_I64, t);
    case TCI_K_GUARD:
        n = tci_prep_blank(TCI_PREP_GUARD, 1);
        n.guard = i->guard;
        n.n_guards = i->n_guards;
        return tci_prep_add(b, n);
    case TCI_K_PRIM: return tci_prep_prim(b, i);
    case TCI_K_RED: return tci_prep_red(b, (int)i->imm);
    default:
        n = tci_prep_blank(TCI_PREP_FAULT, 8);
        n.n_args = 1;
        n.args[0] = tci_prep_cast(b, b->inst_node[i->args[0]],
                                  (tc_dtype)b->k->insts[i->args[0]].dtype, TC_I64);
        n.c = i->imm;
        return tci_prep_cast(b, tci_prep_add(b, n), TC_I64, t);
    }
}

/* The node whose elements are the storage bits of a stored value. */
static int tci_prep_narrow(tci_prep *b, const tci_kstore *st)
{
    tc_dtype t = (tc_dtype)b->k->operands[st->operand].dtype;
    const tci_kinst *i = &b->k->insts[st->value];
    int a = tci_prep_cast(b, b->inst_node[st->value], (tc_dtype)i->dtype,
                          (tc_dtype)tci_dtype_get(t)->compute);
    if (t == TC_BOOL) {
        return tci_prep_bitwise(b, TCI_P_AND, tci_prep_mask(b, a, 1), tci_prep_const(b, 1, 1));
    }
    if (t == TC_F16) {
        return tci_prep_op(b, TCI_IP_TO_F16, TC_F32, TC_U16, 2, a, -1, -1);
    }
    if (t == TC_BF16) {
        bool rounded = i->op == TCI_K_PRIM && i->prim == TCI_P_ROUNDB16;
        a = rounded ? a : tci_prep_op(b, TCI_P_ROUNDB16, TC_F32, TC_F32, 4, a, -1, -1);
        a = tci_prep_op(b, TCI_P_SHR, TC_U32, TC_U32, 4, a, tci_prep_const(b, 16, 4), -1);
        return tci_prep_resize(b, a, TC_U32, 2);
    }
    return a;
}

static void tci_prep_nodes(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->inst_node = TCI_NEW_ARRAY(b->s, int32_t, k->n_insts + 1);
    b->index_node = TCI_NEW_ARRAY(b->s, int32_t, k->n_insts + 1);
    b->red_a = TCI_NEW_ARRAY(b->s, int32_t, k->n_reds + 1);
    b->red_b = TCI_NEW_ARRAY(b->s, int32_t, k->n_reds + 1);
    b->stores = TCI_NEW_ARRAY(b->s, tci_prep_store, k->n_stores + 1);
    for (int i = 0; i < k->n_insts; i++) {
        b->index_node[i] = -1;
    }
    for (int x = 0; x < k->n_kx; x++) {
        if (k->kx[x].op == TCI_KX_VALUE) {
            b->index_node[k->kx[x].c] = 0;
        }
    }
    for (int i = 0; i < k->n_insts; i++) {
        b->inst_node[i] = tci_prep_inst(b, &k->insts[i]);
        if (b->index_node[i] == 0) {
            b->index_node[i] =
                tci_prep_cast(b, b->inst_node[i], (tc_dtype)k->insts[i].dtype, TC_I64);
        }
    }
    for (int i = 0; i < k->n_stores; i++) {
        const tci_kstore *st = &k->stores[i];
        tci_prep_store to = {tci_prep_narrow(b, st), st->stage, st->operand, st->x};
        b->stores[i] = to;
    }
}

/* ---- walk 2: dependence and need ---- */

static void tci_prep_merge(tci_prep *b, uint8_t *row, const uint8_t *from)
{
    for (int i = 0; i < b->width; i++) {
        row[i] |= from[i];
    }
}

static uint8_t *tci_prep_row(const tci_prep *b, int node)
{
    return b->deps + (size_t)node * (size_t)b->width;
}

static const uint8_t *tci_prep_kx_row(tci_prep *b, int x)
{
    uint8_t *row = b->kx_deps + (size_t)x * (size_t)b->width;
    const tci_kx *e = &b->k->kx[x];
    if (b->kx_done[x]) {
        return row;
    }
    b->kx_done[x] = 1;
    if (e->op == TCI_KX_AXIS) {
        row[e->c] = 1;
    } else if (e->op == TCI_KX_VALUE) {
        tci_prep_merge(b, row, tci_prep_row(b, b->index_node[e->c]));
    } else if (e->op != TCI_KX_CONST) {
        tci_prep_merge(b, row, tci_prep_kx_row(b, e->a));
        if (e->op == TCI_KX_ADD) {
            tci_prep_merge(b, row, tci_prep_kx_row(b, e->b));
        }
    }
    return row;
}

static void tci_prep_derive_red(tci_prep *b, uint8_t *row, int red)
{
    const int32_t from[2] = {b->red_a[red], b->red_b[red]};
    for (int j = 0; j < 2; j++) {
        for (int axis = 0; from[j] >= 0 && axis < b->k->n_outer; axis++) {
            row[axis] |= tci_prep_row(b, from[j])[axis];
        }
    }
    row[b->k->n_axes + b->k->reds[red].stage] = 1;
}

static void tci_prep_derive(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->width = k->n_axes + k->n_stages;
    b->deps = TCI_NEW_ARRAY(b->s, uint8_t, (size_t)b->n_nodes * (size_t)b->width + 1);
    b->kx_deps = TCI_NEW_ARRAY(b->s, uint8_t, (size_t)k->n_kx * (size_t)b->width + 1);
    b->kx_done = TCI_NEW_ARRAY(b->s, uint8_t, k->n_kx + 1);
    b->kx_seen = TCI_NEW_ARRAY(b->s, int32_t, k->n_kx + 1);
    for (int i = 0; i < b->n_nodes; i++) {
        const tci_prep_node *n = &b->nodes[i];
        uint8_t *row = tci_prep_row(b, i);
        for (int j = 0; j < n->n_args; j++) {
            tci_prep_merge(b, row, tci_prep_row(b, n->args[j]));
        }
        if (n->x >= 0) {
            tci_prep_merge(b, row, tci_prep_kx_row(b, n->x));
        }
        for (int g = 0; g < n->n_guards; g++) {
            tci_prep_merge(b, row, tci_prep_kx_row(b, k->guards[n->guard + g].x));
        }
        if (n->kind == TCI_PREP_RED) {
            tci_prep_derive_red(b, row, n->ref);
        }
    }
}

/* Does stage s evaluate the node itself (or take it from the outer level)? */
static bool tci_prep_in_stage(const tci_prep *b, int node, int s)
{
    const uint8_t *row = tci_prep_row(b, node);
    if (s < 0) {
        return false;
    }
    for (int axis = b->k->n_outer; axis < b->k->n_axes; axis++) {
        if (row[axis]) {
            return true;
        }
    }
    return b->k->stages[s].kind == TCI_STAGE_SCAN && row[b->k->n_axes + s];
}

static void tci_prep_need(tci_prep *b, int node, int s)
{
    if (node < 0) {
        return;
    }
    if (tci_prep_in_stage(b, node, s)) {
        b->need_stage[(size_t)s * (size_t)b->n_nodes + (size_t)node] = 1;
    } else {
        b->need_outer[node] = 1;
    }
}

/* Needs every loaded index inside x. */
static void tci_prep_need_kx(tci_prep *b, int x, int s)
{
    const tci_kx *e = &b->k->kx[x];
    if (b->kx_seen[x] == b->stamp) {
        return;
    }
    b->kx_seen[x] = b->stamp;
    if (e->op == TCI_KX_VALUE) {
        tci_prep_need(b, b->index_node[e->c], s);
    } else if (e->op != TCI_KX_CONST && e->op != TCI_KX_AXIS) {
        tci_prep_need_kx(b, e->a, s);
        if (e->op == TCI_KX_ADD) {
            tci_prep_need_kx(b, e->b, s);
        }
    }
}

static void tci_prep_need_inputs(tci_prep *b, int node, int s)
{
    const tci_prep_node *n = &b->nodes[node];
    for (int j = 0; j < n->n_args; j++) {
        tci_prep_need(b, n->args[j], s);
    }
    b->stamp++;
    if (n->x >= 0) {
        tci_prep_need_kx(b, n->x, s);
    }
    for (int g = 0; g < n->n_guards; g++) {
        tci_prep_need_kx(b, b->k->guards[n->guard + g].x, s);
    }
}

static void tci_prep_needs(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->need_outer = TCI_NEW_ARRAY(b->s, uint8_t, b->n_nodes + 1);
    b->need_stage = TCI_NEW_ARRAY(b->s, uint8_t, (size_t)b->n_nodes * (size_t)k->n_stages + 1);
    for (int r = 0; r < k->n_reds; r++) {
        tci_prep_need(b, b->red_a[r], k->reds[r].stage);
        tci_prep_need(b, b->red_b[r], k->reds[r].stage);
        tci_prep_need(b, b->inst_node[k->reds[r].inst], k->reds[r].stage);
    }
    for (int i = 0; i < k->n_stores; i++) {
        b->stamp++;
        tci_prep_need(b, b->stores[i].node, b->stores[i].stage);
        tci_prep_need_kx(b, b->stores[i].x, b->stores[i].stage);
    }
    for (int node = b->n_nodes - 1; node >= 0; node--) {
        for (int s = 0; s < k->n_stages; s++) {
            if (b->need_stage[(size_t)s * (size_t)b->n_nodes + (size_t)node]) {
                tci_prep_need_inputs(b, node, s);
            }
        }
        if (b->need_outer[node]) {
            tci_prep_need_inputs(b, node, -1);
        }
    }
}

/* ---- walk 3: steps ---- */

static int tci_prep_value(tci_prep *b, int bytes, bool varies)
{
    tci_interp_value v = {(uint8_t)bytes,
                          varies,
                          false,
                          false,
                          b->section_id,
                          b->section ? b->section->n : 0,
                          0,
                          0,
                          0};
    v.last = v.first;
    TCI_PUSH(b->s, b->values, b->n_values, b->cap_values, v);
    return b->n_values - 1;
}

static void tci_prep_use(tci_prep *b, int value, bool stored)
{
    tci_interp_value *v = &b->values[value];
    v->own |= v->section != b->section_id;
    v->last = b->section->n;
    v->stored |= stored;
}

static void tci_prep_use_addr(tci_prep *b, const tci_interp_addr *a, bool stored)
{
    for (int i = 0; i < a->n_atoms; i++) {
        if (a->atoms[i].op == TCI_KX_VALUE) {
            tci_prep_use(b, a->atoms[i].value, stored);
        } else {
            tci_prep_use_addr(b, a->atoms[i].arg, stored);
        }
    }
}

/* Appends a step; notes what it reads. */
static void tci_prep_step(tci_prep *b, tci_interp_step st)
{
    bool stored = st.kind == TCI_STEP_STORE;
    for (int i = 0; i < 3; i++) {
        if (st.in[i] >= 0) {
            st.vary[i] = b->values[st.in[i]].varies;
            tci_prep_use(b, st.in[i], stored);
        }
    }
    if (st.x) {
        tci_prep_use_addr(b, st.x, stored);
    }
    for (int g = 0; g < st.n_guards; g++) {
        if (st.guards[g].block >= 0) {
            tci_prep_use(b, st.guards[g].block, stored);
        } else {
            tci_prep_use_addr(b, st.guards[g].x, stored);
        }
    }
    TCI_PUSH(b->s, b->section->steps, b->section->n, b->section->cap, st);
}

static tci_interp_step tci_prep_blank_step(tci_interp_kind kind)
{
    tci_interp_step st;
    memset(&st, 0, sizeof st);
    st.kind = (uint8_t)kind;
    st.out = st.in[0] = st.in[1] = st.in[2] = -1;
    return st;
}

static int tci_prep_step_value(tci_prep *b, tci_interp_step st, int bytes, bool varies)
{
    st.bytes = (uint8_t)bytes;
    st.varies = varies;
    st.out = tci_prep_value(b, bytes, varies);
    tci_prep_step(b, st);
    return st.out;
}

static tci_interp_op tci_prep_make_op(int prim, tc_dtype dtype, tc_dtype to, int bytes, int n_in)
{
    tci_interp_op op;
    memset(&op, 0, sizeof op);
    const tci_interp_loop_row *row = tci_interp_loop_find(prim, dtype, to);
    if (row) {
        op.loop = tci_interp_has_avx2() ? row->best : row->base;
        op.group = row->group;
    }
    op.prim = (uint8_t)prim;
    op.dtype = (int8_t)dtype;
    op.to = (int8_t)to;
    op.bytes = (uint8_t)bytes;
    op.n_in = (uint8_t)n_in;
    for (int i = 0; i < 3; i++) {
        op.in_bytes[i] = (uint8_t)tci_prep_bytes(dtype);
    }
    op.mask = prim == TCI_P_EQ || prim == TCI_P_LT || prim == TCI_P_LE;
    return op;
}

static int tci_prep_value_of(const tci_prep *b, int node)
{
    int value = tci_prep_in_stage(b, node, b->stage) ? b->stage_value[node] : b->outer_value[node];
    TCI_ASSERT(b->s, value >= 0);
    return value;
}

static bool tci_prep_varies(const tci_prep *b, const uint8_t *row)
{
    return b->section->vec >= 0 && row[b->section->vec];
}

static tci_interp_addr *tci_prep_addr(tci_prep *b, int x);

/* a += coef * x */
static void tci_prep_addr_add(tci_prep *b, tci_interp_addr *a, int x, int64_t coef, int *cap_terms,
                              int *cap_atoms)
{
    const tci_kx *e = &b->k->kx[x];
    if (e->op == TCI_KX_CONST) {
        a->base += coef * e->c;
    } else if (e->op == TCI_KX_AXIS) {
        tci_interp_term t = {(int32_t)e->c, coef};
        TCI_PUSH(b->s, a->terms, a->n_terms, *cap_terms, t);
        a->stride += e->c == b->section->vec ? coef : 0;
    } else if (e->op == TCI_KX_ADD) {
        tci_prep_addr_add(b, a, e->a, coef, cap_terms, cap_atoms);
        tci_prep_addr_add(b, a, e->b, coef, cap_terms, cap_atoms);
    } else if (e->op == TCI_KX_MUL) {
        tci_prep_addr_add(b, a, e->a, coef * e->c, cap_terms, cap_atoms);
    } else {
        tci_interp_atom atom = {e->op, -1, coef, e->c, NULL};
        if (e->op == TCI_KX_VALUE) {
            atom.value = tci_prep_value_of(b, b->index_node[e->c]);
        } else {
            atom.arg = tci_prep_addr(b, e->a);
        }
        a->linear &= !tci_prep_varies(b, tci_prep_kx_row(b, x));
        TCI_PUSH(b->s, a->atoms, a->n_atoms, *cap_atoms, atom);
    }
}

static tci_interp_addr *tci_prep_addr(tci_prep *b, int x)
{
    if (!b->addr[x]) {
        tci_interp_addr *a = TCI_NEW(b->s, tci_interp_addr);
        int cap_terms = 0, cap_atoms = 0;
        a->linear = true;
        tci_prep_addr_add(b, a, x, 1, &cap_terms, &cap_atoms);
        b->addr[x] = a;
    }
    return b->addr[x];
}

static int tci_prep_step_op(tci_prep *b, int prim, tc_dtype t, int in0, int in1)
{
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_OP);
    st.op = tci_prep_make_op(prim, t, t, tci_prep_bytes(t), 2);
    st.in[0] = in0;
    st.in[1] = in1;
    return tci_prep_step_value(b, st, tci_prep_bytes(t),
                               b->values[in0].varies || b->values[in1].varies);
}

/* A value that holds x for each lane (i64). */
static int tci_prep_block(tci_prep *b, int x)
{
    const tci_kx *e = &b->k->kx[x];
    if (b->block[x] >= 0) {
        return b->block[x];
    }
    const tci_interp_addr *a = tci_prep_addr(b, x);
    bool varies = tci_prep_varies(b, tci_prep_kx_row(b, x));
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_INDEX);
    int value;
    if (a->linear) {
        st.x = a;
        value = tci_prep_step_value(b, st, 8, varies);
    } else if (e->op == TCI_KX_VALUE) {
        value = tci_prep_value_of(b, b->index_node[e->c]);
    } else if (e->op == TCI_KX_ADD) {
        int left = tci_prep_block(b, e->a);
        value = tci_prep_step_op(b, TCI_P_ADD, TC_I64, left, tci_prep_block(b, e->b));
    } else if (e->op == TCI_KX_MUL) {
        tci_interp_step c = tci_prep_blank_step(TCI_STEP_CONST);
        c.bits = (uint64_t)e->c;
        int left = tci_prep_block(b, e->a);
        value = tci_prep_step_op(b, TCI_P_MUL, TC_I64, left, tci_prep_step_value(b, c, 8, false));
    } else {
        st.c = e->c;
        st.flag = e->op == TCI_KX_MOD;
        if (tci_prep_addr(b, e->a)->linear) {
            st.kind = TCI_STEP_DIVIDE;
            st.x = tci_prep_addr(b, e->a);
        } else {
            st.kind = TCI_STEP_FLOOR;
            st.in[0] = tci_prep_block(b, e->a);
        }
        value = tci_prep_step_value(b, st, 8, varies);
    }
    b->block[x] = value;
    return value;
}

static void tci_prep_step_guards(tci_prep *b, tci_interp_step *st, int first, int n)
{
    tci_interp_guard *list = TCI_NEW_ARRAY(b->s, tci_interp_guard, n + 1);
    for (int g = 0; g < n; g++) {
        const tci_kguard *from = &b->k->guards[first + g];
        list[g].x = tci_prep_addr(b, from->x);
        list[g].lo = from->lo;
        list[g].hi = from->hi;
        list[g].block = list[g].x->linear ? -1 : tci_prep_block(b, from->x);
    }
    st->guards = list;
    st->n_guards = n;
}

/* x of a LOAD or STORE; a non-linear x becomes a block of offsets in in[slot]. */
static void tci_prep_step_x(tci_prep *b, tci_interp_step *st, int x, int slot)
{
    st->x = tci_prep_addr(b, x);
    if (!st->x->linear) {
        st->x = NULL;
        st->in[slot] = tci_prep_block(b, x);
    }
}

static void tci_prep_emit_fold(tci_prep *b, int red)
{
    const tci_interp_red *r = &b->p->reds[red];
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_FOLD);
    st.ref = red;
    st.out = -1;
    st.in[0] = tci_prep_value_of(b, b->red_a[red]);
    st.in[1] = b->red_b[red] >= 0 ? tci_prep_value_of(b, b->red_b[red]) : -1;
    st.bytes = r->bytes;
    st.varies = b->values[r->acc].varies;
    tci_prep_step(b, st);
}

/* The step of one node in the section at hand; gives its value. */
static int tci_prep_emit(tci_prep *b, int node)
{
    const tci_prep_node *n = &b->nodes[node];
    bool varies = tci_prep_varies(b, tci_prep_row(b, node));
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_CONST);
    st.bits = n->bits;
    st.ref = n->ref;
    st.c = n->c;
    for (int i = 0; i < n->n_args; i++) {
        st.in[i] = tci_prep_value_of(b, n->args[i]);
    }
    switch (n->kind) {
    case TCI_PREP_CONST: break;
    case TCI_PREP_LIT:
        st.kind = TCI_STEP_LIT;
        st.op.dtype = n->dtype;
        break;
    case TCI_PREP_LOAD:
        st.kind = TCI_STEP_LOAD;
        tci_prep_step_x(b, &st, n->x, 0);
        tci_prep_step_guards(b, &st, n->guard, n->n_guards);
        break;
    case TCI_PREP_INDEX: return tci_prep_block(b, n->x);
    case TCI_PREP_GUARD:
        st.kind = TCI_STEP_GUARD;
        tci_prep_step_guards(b, &st, n->guard, n->n_guards);
        break;
    case TCI_PREP_OP:
        st.kind = TCI_STEP_OP;
        st.op = tci_prep_make_op(n->prim, (tc_dtype)n->dtype, (tc_dtype)n->to, n->bytes, n->n_args);
        break;
    case TCI_PREP_LANE:
        st.kind = TCI_STEP_LANE;
        break;
    case TCI_PREP_FAULT:
        st.kind = TCI_STEP_FAULT;
        break;
    default: /* RED: folded here by a SCAN; its value is the accumulator */
        tci_prep_emit_fold(b, n->ref);
        return b->p->reds[n->ref].result;
    }
    return tci_prep_step_value(b, st, n->bytes, varies);
}

static void tci_prep_begin(tci_prep *b, tci_interp_section *section, int stage, int vec)
{
    section->vec = vec;
    b->section = section;
    b->section_id = b->n_sections++;
    b->stage = stage;
    for (int x = 0; x < b->k->n_kx; x++) {
        b->addr[x] = NULL;
        b->block[x] = -1;
    }
}

static int tci_prep_outer_vec(const tci_prep *b)
{
    return !b->p->inner && b->p->n_outer > 0 ? b->p->walk[b->p->n_outer - 1] : -1;
}

/* The outer-level section of a node: -1 constants, else before that stage. */
static int tci_prep_outer_section(const tci_prep *b, int node)
{
    const uint8_t *row = tci_prep_row(b, node);
    int at = -1;
    for (int i = 0; i < b->width; i++) {
        if (row[i]) {
            at = TCI_MAX(at, i < b->k->n_axes ? 0 : i - b->k->n_axes + 1);
        }
    }
    return at;
}

static void tci_prep_outer(tci_prep *b, tci_interp_section *section, int which)
{
    tci_prep_begin(b, section, -1, which < 0 ? -1 : tci_prep_outer_vec(b));
    for (int node = 0; node < b->n_nodes; node++) {
        bool here = b->need_outer[node] && b->nodes[node].kind != TCI_PREP_RED;
        if (here && tci_prep_outer_section(b, node) == which) {
            b->outer_value[node] = tci_prep_emit(b, node);
        }
    }
}

/* How deep in the stage's axis nest a node is evaluated: 0 outside, n_axes innermost. */
static int tci_prep_depth(const tci_prep *b, int node, int s)
{
    const tci_kstage *st = &b->k->stages[s];
    const uint8_t *row = tci_prep_row(b, node);
    if (st->kind == TCI_STAGE_SCAN && row[b->k->n_axes + s]) {
        return st->n_axes;
    }
    int depth = 0;
    for (int i = 0; i < st->n_axes; i++) {
        depth = row[st->axes[i]] ? i + 1 : depth;
    }
    return depth;
}

static void tci_prep_emit_stores(tci_prep *b, int s)
{
    for (int i = 0; i < b->k->n_stores; i++) {
        const tci_prep_store *to = &b->stores[i];
        if (to->stage != s) {
            continue;
        }
        tci_interp_step st = tci_prep_blank_step(TCI_STEP_STORE);
        st.ref = to->operand;
        st.in[0] = tci_prep_value_of(b, to->node);
        st.bytes = b->nodes[to->node].bytes;
        tci_prep_step_x(b, &st, to->x, 1);
        bool moves = tci_prep_varies(b, tci_prep_kx_row(b, to->x));
        st.varies = b->values[st.in[0]].varies || moves;
        tci_prep_step(b, st);
    }
}

static void tci_prep_stage(tci_prep *b, int s)
{
    const tci_kstage *st = &b->k->stages[s];
    tci_interp_stage *to = &b->p->stages[s];
    for (int node = 0; node < b->n_nodes; node++) {
        b->stage_value[node] = -1;
    }
    for (int depth = 0; depth <= st->n_axes; depth++) {
        bool last = depth == st->n_axes;
        int inner_vec = last && st->n_axes > 0 ? st->axes[st->n_axes - 1] : -1;
        tci_prep_begin(b, &to->sections[depth], s, b->p->inner ? inner_vec : tci_prep_outer_vec(b));
        for (int node = 0; node < b->n_nodes; node++) {
            bool here = b->need_stage[(size_t)s * (size_t)b->n_nodes + (size_t)node];
            if (here && tci_prep_depth(b, node, s) == depth) {
                b->stage_value[node] = tci_prep_emit(b, node);
            }
        }
    }
    for (int r = 0; r < to->n_reds && st->kind != TCI_STAGE_SCAN; r++) {
        tci_prep_emit_fold(b, to->reds[r]);
    }
    tci_prep_emit_stores(b, s);
}

/* ---- reductions ---- */

/* One step: of bools on masks; of an ARG the comparison is the step's own. */
static int tci_prep_combine(int op, tc_dtype t)
{
    bool is_float = tci_dtype_is_float(t), is_mask = t == TC_BOOL;
    switch ((tci_kred_op)op) {
    case TCI_RED_SUM: return is_mask ? TCI_P_OR : TCI_P_ADD;
    case TCI_RED_PROD: return is_mask ? TCI_P_AND : TCI_P_MUL;
    case TCI_RED_MAX: return is_mask ? TCI_P_OR : is_float ? TCI_IP_MAXIMUM : TCI_P_PMAX;
    case TCI_RED_MIN: return is_mask ? TCI_P_AND : is_float ? TCI_IP_MINIMUM : TCI_P_PMIN;
    case TCI_RED_ANY: return TCI_P_OR;
    case TCI_RED_ALL: return TCI_P_AND;
    case TCI_RED_DOT: return is_mask ? TCI_P_OR : is_float ? TCI_P_FMA : TCI_IP_MULADD;
    case TCI_RED_ARGMAX:
    case TCI_RED_ARGMIN: break;
    }
    return is_mask ? TCI_P_OR : TCI_P_ADD;
}

static void tci_prep_make_red(tci_prep *b, int red)
{
    const tci_kred *from = &b->k->reds[red];
    tci_interp_red *r = &b->p->reds[red];
    tc_dtype t = (tc_dtype)from->dtype;
    int node = b->inst_node[from->inst];
    int vec = tci_prep_outer_vec(b);
    bool varies = vec >= 0 && tci_prep_row(b, node)[vec];
    r->op = from->op;
    r->dtype = from->dtype;
    r->bytes = (uint8_t)tci_prep_bytes(t);
    r->inner = b->p->inner;
    r->arg = tci_prep_is_arg(from);
    r->max = from->op == TCI_RED_ARGMAX;
    r->identity = tci_prep_bits(t, tci_kred_identity(from->op, t));
    r->combine = tci_prep_make_op(tci_prep_combine(from->op, t), t == TC_BOOL ? TC_U8 : t,
                                  t == TC_BOOL ? TC_U8 : t, r->bytes,
                                  b->red_b[red] >= 0 && !r->arg ? 3 : 2);
    r->acc = tci_prep_value(b, r->bytes, varies);
    r->at = r->arg ? tci_prep_value(b, 8, varies) : -1;
    r->result = r->inner ? tci_prep_value(b, r->arg ? 8 : r->bytes, false)
                : r->arg ? r->at
                         : r->acc;
    b->values[r->acc].own = true;
    b->values[r->result].own = true;
    if (r->arg) {
        b->values[r->at].own = true;
    }
    if (r->inner) {
        const tci_kstage *stage = &b->k->stages[from->stage];
        r->axis = stage->n_axes > 0 ? stage->axes[stage->n_axes - 1] : -1;
        b->values[r->acc].lanes = b->k->vlanes;
        if (r->arg) {
            b->values[r->at].lanes = b->k->vlanes;
        }
    }
    b->outer_value[node] = r->result;
}

static void tci_prep_reds(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->section_id = -1;
    for (int r = 0; r < k->n_reds; r++) {
        tci_prep_make_red(b, r);
    }
    for (int s = 0; s < k->n_stages; s++) {
        tci_interp_stage *st = &b->p->stages[s];
        st->reds = TCI_NEW_ARRAY(b->s, int32_t, k->n_reds + 1);
        for (int r = 0; r < k->n_reds; r++) {
            if (k->reds[r].stage == s) {
                st->reds[st->n_reds++] = r;
            }
        }
    }
}

/* ---- memory ---- */

typedef struct tci_prep_pool {
    int64_t *items;
    int n, cap;
} tci_prep_pool;

static int64_t tci_prep_size(const tci_prep *b, const tci_interp_value *v)
{
    int64_t lanes = TCI_MAX(v->varies ? b->p->block : 0, v->lanes);
    int64_t size = lanes * v->bytes;
    /* A group more than needed: neighbours do not start at the same place of a cache way. */
    return size == 0 ? TCI_INTERP_GROUP : size + TCI_INTERP_GROUP;
}

static int64_t tci_prep_take(tci_prep *b, const tci_interp_value *v, tci_prep_pool *pool,
                             int64_t *end)
{
    if (pool && pool->n > 0) {
        return pool->items[--pool->n];
    }
    int64_t at = *end;
    *end += tci_prep_size(b, v);
    return at;
}

/* Gives memory to the varying values that live inside one section; the pools are shared by all. */
static void tci_prep_place(tci_prep *b, const tci_interp_section *section, int id,
                           tci_prep_pool pools[9], int64_t *end)
{
    int32_t *by_last = TCI_NEW_ARRAY(b->s, int32_t, section->n + 2);
    int32_t *next = TCI_NEW_ARRAY(b->s, int32_t, b->n_values + 1);
    for (int v = 0; v < b->n_values; v++) {
        const tci_interp_value *value = &b->values[v];
        if (value->section == id && !value->own && value->varies) {
            next[v] = by_last[value->last];
            by_last[value->last] = v + 1;
        }
    }
    for (int i = 0; i < section->n; i++) {
        const tci_interp_step *st = &section->steps[i];
        tci_interp_value *out = st->out >= 0 ? &b->values[st->out] : NULL;
        bool in_place = st->kind == TCI_STEP_OP;
        bool placed = !out || out->own || !out->varies;
        if (!in_place && !placed) {
            out->offset = tci_prep_take(b, out, &pools[out->bytes], end);
        }
        for (int32_t v = by_last[i]; v > 0; v = next[v - 1]) {
            tci_prep_pool *pool = &pools[b->values[v - 1].bytes];
            if (v - 1 != st->out) {
                TCI_PUSH(b->s, pool->items, pool->n, pool->cap, b->values[v - 1].offset);
            }
        }
        if (in_place && !placed) {
            out->offset = tci_prep_take(b, out, &pools[out->bytes], end);
        }
        if (!placed && out->last == i) { /* never read: a FAULT */
            tci_prep_pool *pool = &pools[out->bytes];
            TCI_PUSH(b->s, pool->items, pool->n, pool->cap, out->offset);
        }
    }
}

static int64_t tci_prep_layout(tci_prep *b)
{
    tci_interp *p = b->p;
    int64_t end = (int64_t)sizeof(char *) * b->n_values;
    end = (end + 63) / 64 * 64;
    p->axes_offset = end;
    end += ((int64_t)sizeof(int64_t) * p->n_axes + 63) / 64 * 64;
    p->flags_offset = end;
    end += p->block + 64;
    end = (end + 63) / 64 * 64;
    p->spare_offset = end;
    end += TCI_VLANES * 8;
    for (int v = 0; v < b->n_values; v++) {
        if (b->values[v].own || !b->values[v].varies) {
            b->values[v].offset = tci_prep_take(b, &b->values[v], NULL, &end);
        }
    }
    tci_prep_pool pools[9] = {{0}};
    int id = 0;
    tci_prep_place(b, &p->constants, id++, pools, &end);
    for (int s = 0; s < p->n_stages; s++) {
        tci_prep_place(b, &p->before[s], id++, pools, &end);
        for (int depth = 0; depth <= p->stages[s].n_axes; depth++) {
            tci_prep_place(b, &p->stages[s].sections[depth], id++, pools, &end);
        }
    }
    return end;
}

/* Block length: as long as the axis needs, and short enough that the block's values stay near. */
static void tci_prep_memory(tci_prep *b)
{
    tci_interp *p = b->p;
    int64_t longest = 1;
    if (p->inner) {
        for (int s = 0; s < p->n_stages; s++) {
            const tci_interp_stage *st = &p->stages[s];
            longest = st->n_axes > 0 ? TCI_MAX(longest, p->sizes[st->axes[st->n_axes - 1]])
                                     : longest;
        }
    } else if (p->n_outer > 0) {
        longest = p->sizes[p->walk[p->n_outer - 1]];
    }
    longest = (TCI_MIN(longest, TCI_INTERP_BLOCK) + TCI_VLANES - 1) / TCI_VLANES * TCI_VLANES;
    p->block = (int)TCI_MAX(longest, TCI_VLANES);
    p->workspace_bytes = tci_prep_layout(b);
    while (p->workspace_bytes > 128 * 1024 && p->block >= 2 * 128) {
        p->block /= 2;
        p->block = p->block / TCI_VLANES * TCI_VLANES;
        p->workspace_bytes = tci_prep_layout(b);
    }
}

/* A load may use the operand's memory instead of a copy when nothing is written before all is
 * read. */
static void tci_prep_mark_direct(tci_prep *b, tci_interp_section *section)
{
    bool last_only = true;
    for (int i = 0; i < b->k->n_stores; i++) {
        last_only &= b->stores[i].stage == b->k->n_stages - 1;
    }
    for (int i = 0; i < section->n; i++) {
        tci_interp_step *st = &section->steps[i];
        if (st->kind == TCI_STEP_LOAD && st->x && st->x->stride == 1 && st->varies) {
            st->flag = last_only && (b->k->n_stores < 2 || !b->values[st->out].stored);
        }
    }
}

static void tci_prep_mark_all(tci_prep *b)
{
    tci_interp *p = b->p;
    for (int s = 0; s < p->n_stages; s++) {
        tci_prep_mark_direct(b, &p->before[s]);
        for (int depth = 0; depth <= p->stages[s].n_axes; depth++) {
            tci_prep_mark_direct(b, &p->stages[s].sections[depth]);
        }
    }
}

/* ---- the whole ---- */

/* The outer axes in their order; but where blocks along the last one would be so short that
 * starting a step costs more than its lanes do, the longest axis comes last instead. */
static void tci_prep_walk(tci_prep *b)
{
    tci_interp *p = b->p;
    const int last = p->n_outer - 1;
    int longest = last;
    p->walk = TCI_NEW_ARRAY(b->s, int32_t, p->n_outer + 1);
    for (int i = last; i >= 0; i--) {
        longest = p->sizes[i] > p->sizes[longest] ? i : longest;
    }
    if (last < 0 || p->inner || p->sizes[last] >= 32 || p->sizes[longest] < 4 * p->sizes[last]) {
        longest = last;
    }
    int n = 0;
    for (int i = 0; i <= last; i++) {
        if (i != longest) {
            p->walk[n++] = i;
        }
    }
    if (last >= 0) {
        p->walk[n] = longest;
    }
}

static void tci_prep_shape(tci_prep *b)
{
    const tci_kernel *k = b->k;
    tci_interp *p = b->p;
    p->inner = k->vector == TCI_VEC_INNER;
    p->vlanes = k->vlanes;
    p->n_axes = k->n_axes;
    p->n_outer = k->n_outer;
    p->n_stages = k->n_stages;
    p->n_reds = k->n_reds;
    p->n_operands = k->n_operands;
    p->sizes = TCI_NEW_ARRAY(b->s, int64_t, k->n_axes + 1);
    p->operand_n = TCI_NEW_ARRAY(b->s, int64_t, k->n_operands + 1);
    p->reds = TCI_NEW_ARRAY(b->s, tci_interp_red, k->n_reds + 1);
    p->stages = TCI_NEW_ARRAY(b->s, tci_interp_stage, k->n_stages + 1);
    p->before = TCI_NEW_ARRAY(b->s, tci_interp_section, k->n_stages + 1);
    p->points = 1;
    for (int i = 0; i < k->n_axes; i++) {
        p->sizes[i] = k->axes[i].size;
        p->points *= i < k->n_outer ? k->axes[i].size : 1;
    }
    for (int i = 0; i < k->n_operands; i++) {
        p->operand_n[i] = k->operands[i].n;
    }
    for (int s = 0; s < k->n_stages; s++) {
        const tci_kstage *from = &k->stages[s];
        tci_interp_stage *st = &p->stages[s];
        st->kind = from->kind;
        st->n_axes = from->n_axes;
        st->axes = tci_scratch_copy(b->s, from->axes, sizeof(int32_t) * (size_t)from->n_axes);
        st->sections = TCI_NEW_ARRAY(b->s, tci_interp_section, from->n_axes + 1);
    }
}

/* Points per task: some thousand elements, and whole blocks where that leaves enough tasks. */
static void tci_prep_grain(tci_interp *p)
{
    int64_t work = 1;
    for (int s = 0; s < p->n_stages; s++) {
        int64_t size = 1;
        for (int i = 0; i < p->stages[s].n_axes && size < ((int64_t)1 << 40); i++) {
            size *= TCI_MAX(p->sizes[p->stages[s].axes[i]], 1);
        }
        work = TCI_MAX(work, size);
    }
    int64_t grain = TCI_MAX(4096 / work, 1);
    if (!p->inner && p->n_outer > 0) {
        int64_t last = p->sizes[p->walk[p->n_outer - 1]];
        int64_t whole = TCI_MIN(last, (int64_t)p->block);
        int64_t least = p->points / TCI_MAX(whole, 1) >= 16
                            ? whole
                            : TCI_MIN(whole, TCI_MAX(p->points / 16, 32));
        grain = TCI_MAX(grain, least);
    }
    p->grain = TCI_MAX(grain, 1);
}

TCI_FN void tci_interp_prepare(tci_interp *p, const tci_kernel *k)
{
    tci_prep *b = TCI_NEW(&p->s, tci_prep);
    b->s = &p->s;
    b->k = k;
    b->p = p;
    tci_prep_shape(b);
    tci_prep_walk(b);
    tci_prep_nodes(b);
    tci_prep_derive(b);
    tci_prep_needs(b);
    b->outer_value = TCI_NEW_ARRAY(b->s, int32_t, b->n_nodes + 1);
    b->stage_value = TCI_NEW_ARRAY(b->s, int32_t, b->n_nodes + 1);
    b->addr = TCI_NEW_ARRAY(b->s, tci_interp_addr *, k->n_kx + 1);
    b->block = TCI_NEW_ARRAY(b->s, int32_t, k->n_kx + 1);
    for (int node = 0; node < b->n_nodes; node++) {
        b->outer_value[node] = -1;
    }
    tci_prep_reds(b);
    tci_prep_outer(b, &p->constants, -1);
    for (int s = 0; s < k->n_stages; s++) {
        tci_prep_outer(b, &p->before[s], s);
        tci_prep_stage(b, s);
    }
    tci_prep_mark_all(b);
    p->n_values = b->n_values;
    p->values = b->values;
    tci_prep_memory(b);
    p->values = b->values;
    tci_prep_grain(p);
}
