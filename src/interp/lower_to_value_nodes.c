/* interp/lower_to_value_nodes.c - first lowering pass of the interpreter: translates kernel IR
 * (instructions, indices, stores) to value nodes, the DAG from which linear IR is made.
 *
 * In: kernel IR. Out: the nodes (interp/lower_to_linear.h) of every instruction, of every loaded
 * index, and of the storage bits of every stored value. */
#include "lower_to_linear.h"

static int tci_prep_load(tci_prep *b, const tci_kinst *i)
{
    tc_dtype t = (tc_dtype)b->k->operands[tci_kinst_number(i)].dtype;
    tci_prep_node n = tci_prep_blank(TCI_PREP_LOAD, tci_prep_bytes(t));
    n.ref = tci_kinst_number(i);
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
    return tci_prep_base(b, i->prim, t, (tc_dtype)i->dtype, tci_kinst_number(i), a, i->n_args);
}

static int tci_prep_inst(tci_prep *b, const tci_kinst *i)
{
    tc_dtype t = (tc_dtype)i->dtype;
    tci_prep_node n;
    switch (i->op) {
    case TCI_K_CONST: return tci_prep_const(b, tci_prep_bits(t, i->value), tci_prep_bytes(t));
    case TCI_K_LIT:
        n = tci_prep_blank(TCI_PREP_LIT, tci_prep_bytes(t));
        n.ref = tci_kinst_number(i);
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
    case TCI_K_RED: return tci_prep_make_red(b, tci_kinst_number(i));
    default:
        n = tci_prep_blank(TCI_PREP_FAULT, 8);
        n.n_args = 1;
        n.args[0] = tci_prep_cast(b, b->inst_node[i->args[0]],
                                  (tc_dtype)b->k->insts[i->args[0]].dtype, TC_I64);
        n.c = tci_dim_known(i->imm);
        return tci_prep_cast(b, tci_prep_add(b, n), TC_I64, t);
    }
}

/* Combines `a` with the stored element of a SCATTER; both in compute dtype t. The stored element is
 * an ordinary load, which tci_prep_derive ties to its stage. */
static int tci_prep_merge_stored(tci_prep *b, const tci_kstore *st, int a, tc_dtype t)
{
    tci_kinst load = {0};
    load.op = TCI_K_LOAD;
    load.dtype = (int8_t)t;
    load.imm = st->operand;
    load.x = st->x;
    int old = tci_prep_load(b, &load), op = tci_kstore_combine(st->mode);
    int32_t made[TCI_PARTS] = {a};
    if (op >= 0) {
        int value = t == TC_BOOL ? tci_prep_mask(b, a, 1) : a;
        tci_prep_step_nodes(b, op, t, &old, &value, made);
    }
    const int args[3] = {st->guard >= 0 ? b->inst_node[st->guard] : -1, made[0], old};
    return st->guard >= 0 ? tci_prep_base(b, TCI_P_SELECT, t, t, 0, args, 3) : made[0];
}

/* The node whose elements are the storage bits of a stored value. */
static int tci_prep_narrow(tci_prep *b, const tci_kstore *st)
{
    tc_dtype t = (tc_dtype)b->k->operands[st->operand].dtype;
    const tci_kinst *i = &b->k->insts[st->value];
    tc_dtype compute = (tc_dtype)tci_dtype_get(t)->compute;
    int a = tci_prep_cast(b, b->inst_node[st->value], (tc_dtype)i->dtype, compute);
    bool merges = st->mode != TCI_MODE_SET || st->guard >= 0;
    if (merges) {
        a = tci_prep_merge_stored(b, st, a, compute);
    }
    if (t == TC_BOOL) {
        return tci_prep_bitwise(b, TCI_P_AND, tci_prep_mask(b, a, 1), tci_prep_const(b, 1, 1));
    }
    if (t == TC_F16) {
        return tci_prep_op(b, TCI_IP_TO_F16, TC_F32, TC_U16, 2, a, -1, -1);
    }
    if (t == TC_BF16) {
        bool rounded = i->op == TCI_K_PRIM && i->prim == TCI_P_ROUNDB16 && !merges;
        a = rounded ? a : tci_prep_op(b, TCI_P_ROUNDB16, TC_F32, TC_F32, 4, a, -1, -1);
        a = tci_prep_op(b, TCI_P_SHR, TC_U32, TC_U32, 4, a, tci_prep_const(b, 16, 4), -1);
        return tci_prep_resize(b, a, TC_U32, 2);
    }
    return a;
}

TCI_FN void tci_prep_nodes(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->inst_node = TCI_NEW_ARRAY(b->s, int32_t, k->n_insts + 1);
    b->index_node = TCI_NEW_ARRAY(b->s, int32_t, k->n_insts + 1);
    b->reds = TCI_NEW_ARRAY(b->s, tci_prep_red, k->n_reds + 1);
    b->stores = TCI_NEW_ARRAY(b->s, tci_prep_store, k->n_stores + 1);
    for (int i = 0; i < k->n_insts; i++) {
        b->index_node[i] = -1;
    }
    for (int x = 0; x < k->n_kx; x++) {
        if (k->kx[x].op == TCI_KX_VALUE) {
            b->index_node[tci_kx_number(&k->kx[x])] = 0;
        }
    }
    for (int i = 0; i < k->n_insts; i++) {
        b->inst_node[i] = tci_prep_inst(b, &k->insts[i]);
        if (b->index_node[i] == 0) {
            b->index_node[i] = tci_prep_cast(b, b->inst_node[i], (tc_dtype)k->insts[i].dtype,
                                             TC_I64);
        }
    }
    for (int i = 0; i < k->n_stores; i++) {
        const tci_kstore *st = &k->stores[i];
        tci_prep_store to = {tci_prep_narrow(b, st), st->stage, st->operand, st->x};
        b->stores[i] = to;
    }
}
