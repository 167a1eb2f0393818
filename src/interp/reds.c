/* interp/reds.c - the reductions of an interpreted kernel: what each takes in, its combine step,
 * its accumulators, and the step that folds a block into them. */
#include "prepare.h"

static bool tci_prep_is_arg(const tci_kred *r)
{
    return tci_kred_is_arg(r->op);
}

TCI_FN int tci_prep_red(tci_prep *b, int red)
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

TCI_FN void tci_prep_derive_red(tci_prep *b, uint8_t *row, int red)
{
    const int32_t from[2] = {b->red_a[red], b->red_b[red]};
    for (int j = 0; j < 2; j++) {
        for (int axis = 0; from[j] >= 0 && axis < b->k->n_outer; axis++) {
            row[axis] |= tci_prep_row(b, from[j])[axis];
        }
    }
    row[b->k->n_axes + b->k->reds[red].stage] = 1;
}

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
        b->values[r->acc].lanes = tci_kernel_lanes(b->k);
        if (r->arg) {
            b->values[r->at].lanes = tci_kernel_lanes(b->k);
        }
    }
    b->outer_value[node] = r->result;
}

TCI_FN void tci_prep_reds(tci_prep *b)
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

TCI_FN void tci_prep_emit_fold(tci_prep *b, int red)
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
