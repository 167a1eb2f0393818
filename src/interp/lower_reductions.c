/* interp/lower_reductions.c - lowers the reductions of a kernel to the interpreter's nodes and
 * steps: operand casts, the combine function (ops/combine.h), accumulators, and the step that folds
 * a block of values into them. */
#include "lower_to_linear.h"

/* ---- nodes ---- */

static int tci_prep_side(tci_prep *b, tci_prep_kind kind, int red, int part, tc_dtype t)
{
    tci_prep_node n = tci_prep_blank(kind, tci_prep_bytes(t));
    n.ref = red;
    n.c = part;
    return tci_prep_add(b, n);
}

static int tci_prep_join_inst(tci_prep *b, const tci_combine_inst *inst, const int *a)
{
    tc_dtype t = (tc_dtype)inst->from;
    int bytes = tci_prep_bytes((tc_dtype)inst->dtype);
    if (inst->op == TCI_W_K) {
        return tci_prep_const(b, tci_prep_bits(t, inst->value), bytes);
    }
    if (inst->op == TCI_W_MAX || inst->op == TCI_W_MIN) {
        int prim = inst->op == TCI_W_MAX ? TCI_IP_MAXIMUM : TCI_IP_MINIMUM;
        return tci_prep_op(b, prim, t, t, bytes, a[0], a[1], -1);
    }
    return tci_prim_is_math((tci_prim)inst->op)
               ? tci_prep_recipe(b, inst->op, t, a)
               : tci_prep_base(b, inst->op, t, (tc_dtype)inst->dtype, 0, a, inst->n_args);
}

TCI_FN void tci_prep_step_nodes(tci_prep *b, int op, tc_dtype t, const int *left, const int *right,
                                int32_t *parts)
{
    int values[2 * TCI_PARTS + TCI_COMBINE_MOST];
    tci_combine c;
    tci_combine_make(&c, op, t);
    for (int i = 0; i < TCI_PARTS; i++) {
        values[i] = i < c.n_parts ? left[i] : -1;
        values[TCI_PARTS + i] = i < tci_red_takes(op) ? right[i] : -1;
    }
    for (int i = 0; i < c.n; i++) {
        int args[3] = {-1, -1, -1};
        for (int a = 0; a < c.insts[i].n_args; a++) {
            args[a] = values[c.insts[i].args[a]];
        }
        values[2 * TCI_PARTS + i] = tci_prep_join_inst(b, &c.insts[i], args);
    }
    for (int i = 0; i < c.n_parts; i++) {
        int node = values[c.part[i]];
        int bytes = tci_prep_bytes(tci_red_dtype(op, i, t));
        parts[i] = b->nodes[node].bytes == bytes ? node : tci_prep_mask(b, node, bytes);
    }
}

/* The nodes that join two tuples. */
static void tci_prep_join_nodes(tci_prep *b, int red)
{
    const tci_kred *r = &b->k->reds[red];
    tc_dtype t = (tc_dtype)r->dtype;
    int left[TCI_PARTS], right[TCI_PARTS];
    for (int i = 0; i < tci_red_parts(r->op); i++) {
        left[i] = tci_prep_side(b, TCI_PREP_LEFT, red, i, tci_red_dtype(r->op, i, t));
    }
    for (int i = 0; i < tci_red_takes(r->op); i++) {
        right[i] = tci_prep_side(b, TCI_PREP_RIGHT, red, i, tci_red_taken(r->op, i, t));
    }
    tci_prep_step_nodes(b, r->op, t, left, right, b->reds[red].joined);
}

TCI_FN int tci_prep_make_red(tci_prep *b, int red)
{
    const tci_kred *r = &b->k->reds[red];
    tc_dtype t = (tc_dtype)r->dtype, result = tci_red_dtype(r->op, r->part, t);
    for (int i = 0; i < TCI_PARTS; i++) {
        b->reds[red].in[i] = b->reds[red].joined[i] = -1;
    }
    for (int i = 0; i < tci_red_takes(r->op); i++) {
        tc_dtype to = tci_red_taken(r->op, i, t);
        int value = tci_prep_cast(b, b->inst_node[r->in[i]], (tc_dtype)b->k->insts[r->in[i]].dtype,
                                  to);
        b->reds[red].in[i] = to == TC_BOOL ? tci_prep_mask(b, value, 1) : value;
    }
    tci_prep_join_nodes(b, red);
    tci_prep_node n = tci_prep_blank(TCI_PREP_RED, tci_prep_bytes(result));
    n.ref = red;
    n.dtype = (int8_t)t;
    return tci_prep_add(b, n);
}

/* ---- dependence and need ---- */

static bool tci_prep_keeps(const tci_prep *b, int red)
{
    return b->k->stages[b->k->reds[red].stage].n_kept > 0;
}

/* The position of the current point of this section in the row that a reduction keeps; *n gets the
 * elements of the row. */
static tci_interp_addr *tci_prep_row_addr(tci_prep *b, int red, int64_t *n)
{
    const tci_kstage *st = &b->k->stages[b->k->reds[red].stage];
    tci_interp_addr *a = TCI_NEW(b->s, tci_interp_addr);
    a->linear = true;
    a->terms = TCI_NEW_ARRAY(b->s, tci_interp_term, st->n_kept + 1);
    *n = 1;
    for (int i = st->n_axes - 1; i >= st->n_axes - st->n_kept; i--) {
        int64_t size = tci_dim_known(b->k->axes[st->axes[i]].size);
        tci_interp_term t = {st->axes[i], *n};
        a->terms[a->n_terms++] = t;
        a->stride += b->section && t.axis == b->section->vec ? t.coef : 0;
        *n *= i < st->n_axes - 1 ? size : (size + TCI_VLANES - 1) / TCI_VLANES * TCI_VLANES;
    }
    *n = TCI_MAX(*n, 1); /* 0: no row is kept */
    return a;
}

TCI_FN void tci_prep_derive_red(tci_prep *b, uint8_t *row, int red)
{
    const tci_kstage *st = &b->k->stages[b->k->reds[red].stage];
    const int32_t *from = b->reds[red].in;
    bool scan = b->k->reds[red].order == TCI_ORDER_BLOCK_SCAN && st->n_axes > 0;
    for (int i = st->n_axes - (scan ? 1 : st->n_kept); i < st->n_axes; i++) {
        row[st->axes[i]] = 1;
    }
    for (int j = 0; j < TCI_PARTS; j++) {
        for (int axis = 0; from[j] >= 0 && axis < b->k->n_outer; axis++) {
            row[axis] |= tci_prep_row(b, from[j])[axis];
        }
    }
    row[b->k->n_axes + b->k->reds[red].stage] = 1;
}

/* Nodes that the section which combines two tuples evaluates: those that `joined` needs; constants
 * are taken from the outer level. */
static bool *tci_prep_join_needs(tci_prep *b, int red)
{
    bool *needs = TCI_NEW_ARRAY(b->s, bool, b->n_nodes + 1);
    for (int i = 0; i < TCI_PARTS; i++) {
        if (b->reds[red].joined[i] >= 0) {
            needs[b->reds[red].joined[i]] = true;
        }
    }
    for (int node = b->n_nodes - 1; node >= 0; node--) {
        for (int a = 0; needs[node] && a < b->nodes[node].n_args; a++) {
            needs[b->nodes[node].args[a]] = true;
        }
    }
    return needs;
}

TCI_FN void tci_prep_need_red(tci_prep *b, int red)
{
    const bool *needs = tci_prep_join_needs(b, red);
    for (int i = 0; i < TCI_PARTS; i++) {
        tci_prep_need(b, b->reds[red].in[i], b->k->reds[red].stage);
    }
    for (int node = 0; node < b->n_nodes; node++) {
        if (needs[node] && b->nodes[node].kind == TCI_PREP_CONST) {
            tci_prep_need(b, node, -1);
        }
    }
}

/* ---- accumulators ---- */

static int tci_prep_own_value(tci_prep *b, int bytes, bool varies, int lanes)
{
    int value = tci_prep_value(b, bytes, varies);
    b->values[value].own = true;
    b->values[value].lanes = lanes;
    return value;
}

/* Where the result is one operation over the accumulator and what is taken in. */
static void tci_prep_single(tci_prep *b, tci_interp_red *r, int red)
{
    const tci_prep_node *n = &b->nodes[b->reds[red].joined[0]];
    r->single = r->n_parts == 1 && n->kind == TCI_PREP_OP;
    for (int a = 0; a < n->n_args && r->single; a++) {
        const tci_prep_node *from = &b->nodes[n->args[a]];
        r->single = from->kind == TCI_PREP_LEFT || from->kind == TCI_PREP_RIGHT;
        r->source[a] = (uint8_t)(from->kind == TCI_PREP_LEFT ? 0 : 1 + from->c);
    }
    if (r->single) {
        r->combine = tci_prep_make_op(n->prim, (tc_dtype)n->dtype, (tc_dtype)n->to, n->bytes,
                                      n->n_args);
    }
}

/* Products of a part in the classes of matrix units, which have no one order: 0, all, unless a test
 * sets it to distinguish these classes from others by their bits. */
#ifdef TCI_TEST_ALLOC
int32_t tci_interp_unit_part;
#else
enum { tci_interp_unit_part = 0 };
#endif

static int32_t tci_prep_part(const tci_kred *red)
{
    bool unit = red->order == TCI_ORDER_MATRIX || red->order == TCI_ORDER_TF32 ||
                (red->order == TCI_ORDER_STEPS && red->op == TCI_RED_DOT);
    bool parts = unit && tci_dtype_is_float((tc_dtype)red->dtype);
    return red->order == TCI_ORDER_SPLIT ? red->order_n : parts ? tci_interp_unit_part : 0;
}

static void tci_prep_fill_red(tci_prep *b, int red)
{
    const tci_kred *from = &b->k->reds[red];
    const tci_kstage *stage = &b->k->stages[from->stage];
    tci_interp_red *r = &b->p->reds[red];
    tc_dtype t = (tc_dtype)from->dtype;
    int node = b->inst_node[from->inst];
    int vec = tci_prep_outer_vec(b);
    bool varies = vec >= 0 && tci_prep_row(b, node)[vec];
    r->n_parts = (uint8_t)tci_red_parts(from->op);
    r->n_takes = (uint8_t)tci_red_takes(from->op);
    r->part = from->part;
    r->stage = from->stage;
    r->split = tci_prep_part(from);
    r->scan = from->order == TCI_ORDER_BLOCK_SCAN ? from->order_n : 0;
    r->inner = b->p->inner && r->scan == 0;
    r->axis = b->p->inner && stage->n_axes > 0 ? stage->axes[stage->n_axes - 1] : -1;
    int64_t lanes = r->inner ? tci_kernel_lanes(b->k) : 0;
    for (int h = TCI_VLANES; h <= r->scan; h *= 2) {
        lanes += TCI_INTERP_GROUP / tci_prep_bytes(t);
    }
    if (tci_prep_keeps(b, red)) {
        tci_prep_row_addr(b, red, &lanes);
        TCI_ASSERT(b->s, r->n_parts == 1 && lanes < INT32_MAX);
        r->row = (int32_t)lanes;
        r->inner = false;
        varies = true;
    }
    r->parts_axis = from->earlier ? b->k->n_outer - from->earlier : -1;
    if (from->earlier) {
        r->parts = tci_kernel_parts(b->k);
        r->group = tci_kernel_group(b->k);
        int64_t n = r->parts + r->parts / r->group + 1;
        TCI_ASSERT(b->s, n < INT32_MAX - 2 * TCI_VLANES);
        r->totals = tci_prep_own_value(b, tci_prep_bytes(t), false,
                                       (int)tci_ceil_div(n, TCI_VLANES) * TCI_VLANES + TCI_VLANES);
    }
    r->total = -1;
    if (r->split > 0) {
        r->total = tci_prep_own_value(b, tci_prep_bytes(t), varies, (int)lanes);
        r->add = tci_prep_make_op(TCI_P_ADD, t, t, tci_prep_bytes(t), 2);
    }
    for (int i = 0; i < r->n_parts; i++) {
        tc_dtype part = tci_red_dtype(from->op, i, t);
        r->bytes[i] = (uint8_t)tci_prep_bytes(part);
        r->identity[i] = tci_prep_bits(part, tci_red_identity(from->op, i, t));
        r->acc[i] = tci_prep_own_value(b, r->bytes[i], varies, (int)lanes);
    }
    bool lanes_vary = r->scan > 0 && r->axis >= 0;
    r->result = r->inner || r->scan > 0 ? tci_prep_own_value(b, r->bytes[r->part], lanes_vary, 0)
                                        : r->acc[r->part];
    b->outer_value[node] = r->result;
    tci_prep_single(b, r, red);
    TCI_ASSERT(b->s, (r->row == 0 && r->scan == 0) || r->single);
}

TCI_FN void tci_prep_reds(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->section_id = -1;
    for (int r = 0; r < k->n_reds; r++) {
        tci_prep_fill_red(b, r);
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

/* ---- steps ---- */

/* The section that joins two tuples: every value of it has as many lanes as a block. */
TCI_FN void tci_prep_join(tci_prep *b, int red)
{
    tci_interp_red *r = &b->p->reds[red];
    const bool *needs = tci_prep_join_needs(b, red);
    if (r->single) {
        return;
    }
    int32_t *value = TCI_NEW_ARRAY(b->s, int32_t, b->n_nodes + 1);
    tci_prep_begin(b, &r->join, -1, -1);
    for (int i = 0; i < r->n_parts; i++) {
        r->left[i] = tci_prep_own_value(b, r->bytes[i], true, 0);
    }
    for (int i = 0; i < r->n_takes; i++) {
        int bytes = b->nodes[b->reds[red].in[i]].bytes;
        r->right[i] = tci_prep_own_value(b, bytes, true, 0);
    }
    for (int node = 0; node < b->n_nodes; node++) {
        const tci_prep_node *n = &b->nodes[node];
        if (!needs[node]) {
            continue;
        }
        if (n->kind == TCI_PREP_LEFT || n->kind == TCI_PREP_RIGHT) {
            value[node] = n->kind == TCI_PREP_LEFT ? r->left[n->c] : r->right[n->c];
        } else if (n->kind == TCI_PREP_CONST) {
            value[node] = b->outer_value[node];
        } else {
            value[node] = tci_prep_emit_op(b, n, value);
        }
    }
    for (int i = 0; i < r->n_parts; i++) {
        r->joined[i] = value[b->reds[red].joined[i]];
        b->values[r->joined[i]].own = true;
    }
}

TCI_FN void tci_prep_emit_fold(tci_prep *b, int red)
{
    const tci_interp_red *r = &b->p->reds[red];
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_FOLD);
    st.ref = red;
    st.out = -1;
    for (int i = 0; i < r->n_takes; i++) {
        st.in[i] = tci_prep_value_of(b, b->reds[red].in[i]);
    }
    st.bytes = r->bytes[0];
    st.varies = b->values[r->acc[0]].varies;
    int64_t n = 0;
    st.x = r->row > 0 ? tci_prep_row_addr(b, red, &n) : NULL;
    tci_prep_step(b, st);
}

TCI_FN int tci_prep_emit_row(tci_prep *b, int red)
{
    const tci_interp_red *r = &b->p->reds[red];
    tci_interp_step st = tci_prep_blank_step(TCI_STEP_ROW);
    int64_t n = 0;
    st.ref = red;
    st.x = tci_prep_row_addr(b, red, &n);
    return tci_prep_step_value(b, st, r->bytes[0], st.x->stride != 0);
}
