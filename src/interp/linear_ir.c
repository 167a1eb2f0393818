/* interp/linear_ir.c - lowers the nodes of an interpreted kernel to linear IR: sections of steps.
 *
 * In: nodes, and the sections that evaluate them. Out: the steps of the sections in order, and the
 * values that they read and write, with the first and the last step of each. */
#include <string.h>

#include "lower_to_linear.h"

TCI_FN int tci_prep_value(tci_prep *b, int bytes, bool varies)
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
TCI_FN void tci_prep_step(tci_prep *b, tci_interp_step st)
{
    bool stored = st.kind == TCI_STEP_STORE;
    for (int i = 0; i < TCI_PARTS; i++) {
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

TCI_FN tci_interp_step tci_prep_blank_step(tci_interp_kind kind)
{
    tci_interp_step st;
    memset(&st, 0, sizeof st);
    st.kind = (uint8_t)kind;
    st.out = st.in[0] = st.in[1] = st.in[2] = st.in[3] = -1;
    return st;
}

TCI_FN int tci_prep_step_value(tci_prep *b, tci_interp_step st, int bytes, bool varies)
{
    st.bytes = (uint8_t)bytes;
    st.varies = varies;
    st.out = tci_prep_value(b, bytes, varies);
    tci_prep_step(b, st);
    return st.out;
}

TCI_FN tci_interp_op tci_prep_make_op(int prim, tc_dtype dtype, tc_dtype to, int bytes, int n_in)
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

TCI_FN int tci_prep_value_of(const tci_prep *b, int node)
{
    int value = tci_prep_in_stage(b, node, b->stage) ? b->stage_value[node] : b->outer_value[node];
    TCI_ASSERT(b->s, value >= 0);
    return value;
}

TCI_FN bool tci_prep_varies(const tci_prep *b, const uint8_t *row)
{
    return b->section->vec >= 0 && row[b->section->vec];
}

/* The step of an OP or LANE over the values of its operands' nodes; all of them have lanes. */
TCI_FN int tci_prep_emit_op(tci_prep *b, const tci_prep_node *n, const int32_t *value)
{
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_LANE);
    st.ref = n->ref;
    for (int i = 0; i < n->n_args; i++) {
        st.in[i] = value[n->args[i]];
    }
    if (n->kind == TCI_PREP_OP) {
        st.kind = TCI_STEP_OP;
        st.op = tci_prep_make_op(n->prim, (tc_dtype)n->dtype, (tc_dtype)n->to, n->bytes, n->n_args);
    }
    return tci_prep_step_value(b, st, n->bytes, true);
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
    case TCI_PREP_LANE: st.kind = TCI_STEP_LANE; break;
    case TCI_PREP_FAULT: st.kind = TCI_STEP_FAULT; break;
    default: /* RED: of a row, or folded here by a SCAN; then its value is the accumulator */
        if (b->p->reds[n->ref].row > 0) {
            return tci_prep_emit_row(b, n->ref);
        }
        tci_prep_emit_fold(b, n->ref);
        return b->p->reds[n->ref].result;
    }
    return tci_prep_step_value(b, st, n->bytes, varies);
}

TCI_FN void tci_prep_begin(tci_prep *b, tci_interp_section *section, int stage, int vec)
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

TCI_FN int tci_prep_outer_vec(const tci_prep *b)
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

TCI_FN void tci_prep_outer(tci_prep *b, tci_interp_section *section, int which)
{
    tci_prep_begin(b, section, -1, which < 0 ? -1 : tci_prep_outer_vec(b));
    for (int node = 0; node < b->n_nodes; node++) {
        bool here = b->need_outer[node] && b->nodes[node].kind != TCI_PREP_RED;
        if (here && tci_prep_outer_section(b, node) == which) {
            b->outer_value[node] = tci_prep_emit(b, node);
        }
    }
}

/* Depth in the stage's axis nest at which a node is evaluated: 0 outside, n_axes innermost. */
static int tci_prep_depth(const tci_prep *b, int node, int s)
{
    const tci_kstage *st = &b->k->stages[s];
    const uint8_t *row = tci_prep_row(b, node);
    if (tci_prep_is_ordered(st) && row[b->k->n_axes + s]) {
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

TCI_FN void tci_prep_stage(tci_prep *b, int s)
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
        if (depth == 0 && st->from >= 0) {
            tci_interp_addr *ends[2] = {tci_prep_addr(b, st->from), tci_prep_addr(b, st->to)};
            tci_prep_use_addr(b, ends[0], false);
            tci_prep_use_addr(b, ends[1], false);
            to->from = ends[0];
            to->to = ends[1];
        }
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
