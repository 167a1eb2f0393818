/* interp/legalize.c - legalizes scalar operations for the interpreter: math functions, conversions
 * and bool masks become BASE operations on storage bits.
 *
 * In: an operation over nodes, with its dtypes. Out: the node of its value; equal values share
 * one. Nodes use storage bits and the loops of interp/vector_ops.c: MATH prims are replaced by
 * their expansion; storage conversions, bool masks and sign operations are written out. */
#include <string.h>

#include "../base/hash.h"
#include "lower_to_linear.h"

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

TCI_FN int tci_prep_add(tci_prep *b, tci_prep_node n)
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

TCI_FN tci_prep_node tci_prep_blank(tci_prep_kind kind, int bytes)
{
    tci_prep_node n;
    memset(&n, 0, sizeof n);
    n.kind = (uint8_t)kind;
    n.bytes = (uint8_t)bytes;
    n.args[0] = n.args[1] = n.args[2] = n.x = n.guard = -1;
    return n;
}

TCI_FN int tci_prep_bytes(tc_dtype t)
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

TCI_FN int tci_prep_const(tci_prep *b, uint64_t bits, int bytes)
{
    tci_prep_node n = tci_prep_blank(TCI_PREP_CONST, bytes);
    n.bits = bytes == 8 ? bits : bits & (((uint64_t)1 << (8 * bytes)) - 1);
    return tci_prep_add(b, n);
}

/* A number as its storage bits; bool as a mask. */
TCI_FN uint64_t tci_prep_bits(tc_dtype t, tci_value v)
{
    if (t == TC_BOOL) {
        return v.i != 0 ? 0xff : 0;
    }
    uint64_t bits = 0;
    tci_value_store(t, &bits, v);
    return bits;
}

TCI_FN int tci_prep_op(tci_prep *b, int prim, tc_dtype dtype, tc_dtype to, int bytes, int a0,
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
TCI_FN int tci_prep_resize(tci_prep *b, int a, tc_dtype from, int bytes)
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

TCI_FN int tci_prep_mask(tci_prep *b, int a, int bytes)
{
    return tci_prep_resize(b, a, tci_prep_sint(b->nodes[a].bytes), bytes);
}

TCI_FN int tci_prep_bitwise(tci_prep *b, int prim, int a0, int a1)
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
    case TCI_P_GCD:
    case TCI_P_PMAX: return tci_prep_bitwise(b, TCI_P_OR, a0, a1);
    case TCI_P_XOR:
    case TCI_P_SUB: return tci_prep_bitwise(b, TCI_P_XOR, a0, a1);
    case TCI_P_EQ: return tci_prep_not(b, tci_prep_bitwise(b, TCI_P_XOR, a0, a1));
    case TCI_P_LT: return tci_prep_bitwise(b, TCI_P_AND, tci_prep_not(b, a0), a1);
    case TCI_P_LE: return tci_prep_bitwise(b, TCI_P_OR, tci_prep_not(b, a0), a1);
    case TCI_P_AND:
    case TCI_P_MUL:
    case TCI_P_PMIN: return tci_prep_bitwise(b, TCI_P_AND, a0, a1);
    case TCI_P_POWI: return tci_prep_bitwise(b, TCI_P_OR, a0, tci_prep_not(b, a1));
    case TCI_P_MULHI: return tci_prep_const(b, 0, b->nodes[a0].bytes);
    default: return a0; /* NEG, ABS and rounding leave a bool alone */
    }
}

TCI_FN int tci_prep_cast(tci_prep *b, int a, tc_dtype from, tc_dtype to)
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

static int tci_prep_lane(tci_prep *b, int helper, int a, int mask)
{
    tc_dtype t = (tc_dtype)tci_helper_get(helper)->dtype;
    tci_prep_node node = tci_prep_blank(TCI_PREP_LANE, tci_prep_bytes(t));
    node.ref = helper;
    node.dtype = (int8_t)t;
    node.n_args = 2;
    node.args[0] = a;
    node.args[1] = tci_prep_mask(b, mask, node.bytes);
    return tci_prep_add(b, node);
}

/* A BASE prim over operands of dtype t with result dtype `to`. */
TCI_FN int tci_prep_base(tci_prep *b, int prim, tc_dtype t, tc_dtype to, int imm, const int *a,
                         int n)
{
    int bytes = tci_prep_bytes(t);
    switch (prim) {
    case TCI_P_LANE1: return tci_prep_lane(b, imm, a[0], a[1]);
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

TCI_FN int tci_prep_recipe(tci_prep *b, int prim, tc_dtype t, const int *a)
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
            node[i] = tci_prep_base(b, e->prim, operands, (tc_dtype)e->dtype, e->imm, args,
                                    e->n_args);
        }
    }
    return node[r->n - 1];
}
