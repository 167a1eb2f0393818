/* interp/lower_access.c - lowers the addresses, guards and indices of a kernel's loads and stores
 * to the interpreter's linear forms.
 *
 * In: index expressions and guards of the kernel. Out: the linear forms that a step evaluates once
 * per block, or, if an expression is not linear along the vector axis, a value that holds it per
 * lane. */
#include "lower_to_linear.h"

/* a += coef * x */
static void tci_prep_addr_add(tci_prep *b, tci_interp_addr *a, int x, int64_t coef, int *cap_terms,
                              int *cap_atoms)
{
    const tci_kx *e = &b->k->kx[x];
    if (e->op == TCI_KX_CONST) {
        a->base += coef * tci_dim_known(e->c);
    } else if (e->op == TCI_KX_AXIS) {
        tci_interp_term t = {tci_kx_number(e), coef};
        TCI_PUSH(b->s, a->terms, a->n_terms, *cap_terms, t);
        a->stride += e->c == b->section->vec ? coef : 0;
    } else if (e->op == TCI_KX_ADD) {
        tci_prep_addr_add(b, a, e->a, coef, cap_terms, cap_atoms);
        tci_prep_addr_add(b, a, e->b, coef, cap_terms, cap_atoms);
    } else if (e->op == TCI_KX_MUL) {
        tci_prep_addr_add(b, a, e->a, coef * tci_dim_known(e->c), cap_terms, cap_atoms);
    } else {
        tci_interp_atom atom = {e->op, -1, coef, tci_dim_known(e->c), NULL};
        if (e->op == TCI_KX_VALUE) {
            atom.value = tci_prep_value_of(b, b->index_node[tci_kx_number(e)]);
        } else {
            atom.arg = tci_prep_addr(b, e->a);
        }
        a->linear &= !tci_prep_varies(b, tci_prep_kx_row(b, x));
        TCI_PUSH(b->s, a->atoms, a->n_atoms, *cap_atoms, atom);
    }
}

TCI_FN tci_interp_addr *tci_prep_addr(tci_prep *b, int x)
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
TCI_FN int tci_prep_block(tci_prep *b, int x)
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
        value = tci_prep_value_of(b, b->index_node[tci_kx_number(e)]);
    } else if (e->op == TCI_KX_ADD) {
        int left = tci_prep_block(b, e->a);
        value = tci_prep_step_op(b, TCI_P_ADD, TC_I64, left, tci_prep_block(b, e->b));
    } else if (e->op == TCI_KX_MUL) {
        tci_interp_step c = tci_prep_blank_step(TCI_STEP_CONST);
        c.bits = (uint64_t)e->c;
        int left = tci_prep_block(b, e->a);
        value = tci_prep_step_op(b, TCI_P_MUL, TC_I64, left, tci_prep_step_value(b, c, 8, false));
    } else {
        st.c = tci_dim_known(e->c);
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

TCI_FN void tci_prep_step_guards(tci_prep *b, tci_interp_step *st, int first, int n)
{
    tci_interp_guard *list = TCI_NEW_ARRAY(b->s, tci_interp_guard, n + 1);
    for (int g = 0; g < n; g++) {
        const tci_kguard *from = &b->k->guards[first + g];
        list[g].x = tci_prep_addr(b, from->x);
        list[g].lo = tci_dim_known(from->lo);
        list[g].hi = tci_dim_known(from->hi);
        list[g].block = list[g].x->linear ? -1 : tci_prep_block(b, from->x);
    }
    st->guards = list;
    st->n_guards = n;
}

/* x of a LOAD or STORE; a non-linear x becomes a block of offsets in in[slot]. */
TCI_FN void tci_prep_step_x(tci_prep *b, tci_interp_step *st, int x, int slot)
{
    st->x = tci_prep_addr(b, x);
    if (!st->x->linear) {
        st->x = NULL;
        st->in[slot] = tci_prep_block(b, x);
    }
}
