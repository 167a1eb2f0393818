/* plan/lower_group.c - lowers one fusion group to kernel IR: axes, stages, vector axis.
 *
 * Slots: one for each outer axis of the group, and a set of inner axes (a family) for each distinct
 * list of inner sizes; where contractions keep rows, one slot for each inner axis, and sets of
 * those slots. A slot starts as one kernel axis and is split into factors if that makes the index
 * map of a reshape affine (kernel/canonicalize.c finds the split; lowering then restarts). Stages
 * are made in root order: a reduction joins the earliest stage that iterates over the same family
 * and comes after everything the reduction depends on; stores of values come last. Then the vector
 * axis is chosen and the kernel is canonicalized. */
#include "../kernel/canonicalize.h"
#include "../graph/build.h"
#include "fusion_groups.h"

#include <string.h>

enum { TCI_PK_SPLITS = 64 };

typedef struct tci_pk_slot {
    tci_dim size;
    tci_dim *factors; /* product = size, slowest first */
    int32_t n_factors;
    int32_t first_axis; /* of this attempt's kernel; sizes of 1 have no axis */
    int32_t kx;
    int32_t attempt; /* for which it has axes */
    int32_t lanes;   /* which a class counts along it, 0: none does: */
    bool is_scanned; /* it stays one axis; else parts of it are a multiple of the lanes */
} tci_pk_slot;

typedef struct tci_pk_family {
    int32_t n, n_kept_slots;
    tci_pk_slot **slots;
    int32_t n_axes, *axes; /* kernel axes in loop order */
    int32_t n_kept;        /* of them: the last ones */
} tci_pk_family;

/* A root of the group: the family that its stage traverses, that of its result, and the slot of
 * each axis of its domain (NULL: outer, or of size 1). */
typedef struct tci_pk_member {
    int32_t family, of_result;
    tci_pk_slot **slot_of;
    tci_dim *within; /* per axis of the domain: elements of its slot for each of its own; 0: it
                        * has the slot alone */
    bool is_kept;    /* a VALUE that the group reads again: a row of it is kept */
} tci_pk_member;

typedef struct tci_pk {
    tci_scratch *s;
    const tci_fusion *f;
    const tci_group *g;
    tci_plan *plan;
    tci_kernel *k;
    tci_lower l;
    int (*access)(tci_lower *l, tci_node *n, const int *idx, int guard);
    int (*literal)(tci_lower *l, tci_node *n);
    tci_machine machine;
    int32_t attempt;
    tci_pk_family outer;
    tci_pk_family *families;
    int32_t n_families, cap_families;
    tci_pk_slot **inner;    /* per inner axis of a group that keeps rows */
    tci_pk_member *members; /* per member root */
    int32_t *red_of;        /* per root of the fusion: its reduction's RED instruction, -1 */
    int32_t *operand_buffers;
    int32_t n_operand_buffers, cap_operand_buffers;
    tci_node **literals;
    int32_t n_literals, cap_literals;
} tci_pk;

/* ---- slots and families ---- */

static tci_pk_slot *tci_pk_make_slot(tci_scratch *s, tci_dim size)
{
    tci_pk_slot *slot = TCI_NEW(s, tci_pk_slot);
    slot->size = size;
    slot->n_factors = 1;
    slot->factors = TCI_NEW_ARRAY(s, tci_dim, 1);
    slot->factors[0] = size;
    slot->attempt = -1;
    return slot;
}

static tci_pk_family tci_pk_make_family(tci_scratch *s, int n, const tci_dim *sizes)
{
    tci_pk_family f = {n, 0, TCI_NEW_ARRAY(s, tci_pk_slot *, n + 1), 0, NULL, 0};
    for (int i = 0; i < n; i++) {
        f.slots[i] = tci_pk_make_slot(s, sizes[i]);
    }
    return f;
}

/* The family of these sizes, as every stage may traverse the same axes. */
static int tci_pk_family_of_sizes(tci_pk *p, int n, const tci_dim *sizes)
{
    for (int f = 0; f < p->n_families; f++) {
        bool same = p->families[f].n == n;
        for (int i = 0; same && i < n; i++) {
            same = p->families[f].slots[i]->size == sizes[i];
        }
        if (same) {
            return f;
        }
    }
    tci_pk_family family = tci_pk_make_family(p->s, n, sizes);
    TCI_PUSH(p->s, p->families, p->n_families, p->cap_families, family);
    return p->n_families - 1;
}

/* The family of these slots; the last n_kept are kept. */
static int tci_pk_family_of_slots(tci_pk *p, int n, tci_pk_slot *const *slots, int n_kept)
{
    for (int f = 0; f < p->n_families; f++) {
        bool same = p->families[f].n == n && p->families[f].n_kept_slots == n_kept;
        for (int i = 0; same && i < n; i++) {
            same = p->families[f].slots[i] == slots[i];
        }
        if (same) {
            return f;
        }
    }
    tci_pk_family family = {n, n_kept, NULL, 0, NULL, 0};
    family.slots = tci_scratch_copy(p->s, slots, sizeof(*slots) * (size_t)n);
    TCI_PUSH(p->s, p->families, p->n_families, p->cap_families, family);
    return p->n_families - 1;
}

/* Appends the slots of the inner axes [first, end) of a domain. */
static int tci_pk_collect(const tci_pk_member *m, int first, int end, tci_pk_slot **slots, int n)
{
    for (int i = first; i < end; i++) {
        if (m->slot_of[i]) {
            slots[n++] = m->slot_of[i];
        }
    }
    return n;
}

/* Number of last axes of r's domain that form one axis of lanes. */
static int tci_pk_run(const tci_pk *p, const tci_root *r)
{
    bool folds = r->kind == TCI_ROOT_REDUCE || r->kind == TCI_ROOT_SCAN;
    return folds ? tci_class_run(p->f, r->node) : 0;
}

/* Of a group that keeps rows: an inner axis of the group is one slot, whoever traverses it. A
 * contraction traverses what it sums first. */
static void tci_pk_find_rows(tci_pk *p, const tci_root *r, tci_pk_member *m)
{
    tci_pk_slot **slots = TCI_NEW_ARRAY(p->s, tci_pk_slot *, r->n_domain + 1);
    for (int i = 0; i < r->n_domain; i++) {
        bool walks = r->outer_of[i] < 0 && r->domain[i] != 1;
        m->slot_of[i] = walks ? p->inner[r->inner_of[i]] : NULL;
    }
    int n_out = tci_pk_collect(m, 0, r->n_out, slots, 0);
    m->of_result = tci_pk_family_of_slots(p, n_out, slots, 0);
    m->is_kept = m->is_kept && n_out > 0;
    if (m->is_kept) {
        m->family = tci_pk_family_of_slots(p, n_out, slots, n_out);
        return;
    }
    int n = tci_pk_collect(m, r->n_out, r->n_domain, slots, 0);
    n = tci_pk_collect(m, 0, r->n_out, slots, n);
    m->family = tci_pk_family_of_slots(p, n, slots, r->kind == TCI_ROOT_CONTRACT ? n_out : 0);
}

/* The axes of r's domain in the order in which its stage traverses them. */
static int *tci_pk_walk(const tci_pk *p, const tci_root *r)
{
    int *walk = TCI_NEW_ARRAY(p->s, int, r->n_domain + 1), last = -1, before = -1;
    for (int i = 0; i < r->n_domain; i++) {
        walk[i] = i;
        before = i >= r->n_out && r->domain[i] != 1 ? last : before;
        last = i >= r->n_out && r->domain[i] != 1 ? i : last;
    }
    if (r->kind == TCI_ROOT_CONTRACT && before >= 0 && tci_class_turns(p->f, r)) {
        walk[before] = last;
        walk[last] = before;
    }
    return walk;
}

/* Of any other group: equal inner sizes are one family. The axes that lanes are counted along are
 * one slot. */
static void tci_pk_find_family(tci_pk *p, const tci_root *r, tci_pk_member *m)
{
    tci_dim *sizes = TCI_NEW_ARRAY(p->s, tci_dim, r->n_domain + 1), none = 0;
    int *at = TCI_NEW_ARRAY(p->s, int, r->n_domain + 1), *walk = tci_pk_walk(p, r), n = 0;
    int run = tci_pk_run(p, r), first = -1; /* slot of the first axis of the run */
    for (int w = 0; w < r->n_domain; w++) { /* without those of size 1 */
        int i = walk[w];
        at[i] = -1;
        if (r->outer_of[i] >= 0 || r->domain[i] == 1) {
            continue;
        }
        bool joins = first >= 0;
        n += !joins;
        sizes[n - 1] = joins ? tci_dim_mul(sizes[n - 1], r->domain[i]) : r->domain[i];
        at[i] = n - 1;
        first = i >= r->n_domain - run ? at[i] : -1;
    }
    m->family = tci_pk_family_of_sizes(p, n, sizes);
    tci_pk_slot **slots = p->families[m->family].slots;
    tci_dim within = 1;
    for (int i = r->n_domain - 1; i >= 0; i--) {
        m->slot_of[i] = at[i] >= 0 ? slots[at[i]] : NULL;
        bool whole = at[i] < 0 || r->domain[i] == slots[at[i]]->size;
        m->within[i] = whole ? 0 : within;
        within = whole ? within : tci_dim_mul(within, r->domain[i]);
    }
    m->of_result = r->kind == TCI_ROOT_VALUE ? m->family : tci_pk_family_of_sizes(p, 0, &none);
}

/* Notes along which slot a class counts lanes. */
static void tci_pk_mark_lanes(const tci_pk *p, const tci_root *r, const tci_pk_member *m)
{
    const tci_pk_family *f = &p->families[m->family];
    bool any_order = tci_op_is(r->node->op, TCI_IS_ARG) || /* the first one in every order */
                     !tci_dtype_is_float((tc_dtype)r->node->dtype);
    if (tci_pk_run(p, r) > 0 && f->n > 0 && (!any_order || r->kind == TCI_ROOT_SCAN)) {
        f->slots[f->n - 1]->lanes = tci_class_of(p->f, r->node).n;
        f->slots[f->n - 1]->is_scanned |= r->kind == TCI_ROOT_SCAN;
    }
}

static void tci_pk_mark_kept(tci_pk *p)
{
    for (int m = 0; m < p->g->n_roots && p->g->keeps; m++) {
        const tci_root *r = &p->f->roots[p->g->roots[m]];
        for (int i = 0; i < r->n_reads; i++) {
            for (int o = 0; o < m; o++) {
                bool reads = p->g->roots[o] == r->reads[i].root;
                bool value = p->f->roots[p->g->roots[o]].kind == TCI_ROOT_VALUE;
                p->members[o].is_kept |= reads && value;
            }
        }
    }
}

static void tci_pk_find_families(tci_pk *p)
{
    const tci_group *g = p->g;
    tci_dim none = 0;
    p->members = TCI_NEW_ARRAY(p->s, tci_pk_member, g->n_roots + 1);
    p->inner = TCI_NEW_ARRAY(p->s, tci_pk_slot *, g->n_inner + 1);
    for (int i = 0; i < g->n_inner; i++) {
        p->inner[i] = tci_pk_make_slot(p->s, g->inner[i]);
    }
    tci_pk_mark_kept(p);
    for (int m = 0; m < g->n_roots; m++) {
        const tci_root *r = &p->f->roots[g->roots[m]];
        p->members[m].slot_of = TCI_NEW_ARRAY(p->s, tci_pk_slot *, r->n_domain + 1);
        p->members[m].within = TCI_NEW_ARRAY(p->s, tci_dim, r->n_domain + 1);
        if (g->keeps) {
            tci_pk_find_rows(p, r, &p->members[m]);
        } else {
            tci_pk_find_family(p, r, &p->members[m]);
        }
        tci_pk_mark_lanes(p, r, &p->members[m]);
    }
    if (!g->keeps) {
        tci_pk_family_of_sizes(p, 0, &none);
    }
}

static void tci_pk_slot_axes(tci_pk *p, tci_pk_slot *slot, bool inner)
{
    if (slot->attempt == p->attempt) {
        return;
    }
    slot->attempt = p->attempt;
    slot->kx = tci_kx_const(p->k, 0);
    slot->first_axis = p->k->n_axes;
    for (int a = 0; a < slot->n_factors && slot->size != 1; a++) {
        int axis = tci_kernel_axis(p->k, slot->factors[a], inner);
        slot->kx = tci_kx_add(p->k, tci_kx_mul(p->k, slot->kx, slot->factors[a]),
                              tci_kx_axis(p->k, axis));
    }
}

static void tci_pk_make_axes(tci_pk *p, tci_pk_family *f, bool inner)
{
    int room = 0;
    for (int i = 0; i < f->n; i++) {
        room += f->slots[i]->n_factors;
    }
    f->n_axes = f->n_kept = 0;
    f->axes = TCI_NEW_ARRAY(p->s, int32_t, room + 1);
    for (int i = 0; i < f->n; i++) {
        tci_pk_slot *slot = f->slots[i];
        tci_pk_slot_axes(p, slot, inner);
        for (int a = 0; a < slot->n_factors && slot->size != 1; a++) {
            f->axes[f->n_axes++] = slot->first_axis + a;
            f->n_kept += i >= f->n - f->n_kept_slots;
        }
    }
}

/* Splits the factor behind a kernel axis in two; false when the axis is not in this family. */
static bool tci_pk_split(tci_pk *p, tci_pk_family *f, int axis, tci_dim factor)
{
    for (int i = 0; i < f->n; i++) {
        tci_pk_slot *slot = f->slots[i];
        int at = axis - slot->first_axis;
        bool lanes = slot->lanes > 0 && (slot->is_scanned || !tci_dim_divides(slot->lanes, factor));
        if (slot->size == 1 || lanes || at < 0 || at >= slot->n_factors) {
            continue;
        }
        tci_dim *factors = TCI_NEW_ARRAY(p->s, tci_dim, slot->n_factors + 1);
        for (int a = 0; a < slot->n_factors; a++) {
            factors[a + (a > at)] = slot->factors[a];
        }
        factors[at] = tci_dim_div(slot->factors[at], factor);
        factors[at + 1] = factor;
        slot->factors = factors;
        slot->n_factors++;
        return true;
    }
    return false;
}

/* ---- what nodes are to this kernel ---- */

/* plan NULL: a contraction alone, whose one output is no buffer. */
static int tci_pk_operand(tci_pk *p, int buffer, bool is_output)
{
    if (!p->plan) {
        const tci_node *n = p->f->roots[0].node;
        return tci_kernel_operand(p->k, (tc_dtype)n->dtype, is_output, tci_node_count(n));
    }
    for (int i = 0; i < p->n_operand_buffers; i++) {
        if (p->operand_buffers[i] == buffer && p->k->operands[i].is_output == is_output) {
            return i;
        }
    }
    const tci_buffer *b = &p->plan->buffers[buffer];
    TCI_PUSH(p->s, p->operand_buffers, p->n_operand_buffers, p->cap_operand_buffers, buffer);
    return tci_kernel_operand(p->k, (tc_dtype)b->dtype, is_output, b->n);
}

/* Result of a member's reduction. A row of results is read at the position of the stage. */
static int tci_pk_result(tci_pk *p, int root, const int *idx)
{
    const tci_root *r = &p->f->roots[root];
    for (int m = 0; m < p->g->n_roots && p->g->keeps; m++) {
        for (int a = 0; p->g->roots[m] == root && a < r->node->rank; a++) {
            const tci_pk_slot *slot = p->members[m].slot_of[r->out_axis[a]];
            TCI_ASSERT(p->s, !slot || slot->kx == idx[a]);
        }
    }
    return p->red_of[root];
}

static int tci_pk_access(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    tci_pk *p = l->user;
    const tci_pnode *known = tci_pnode_of(p->f, n);
    int root = known->root;
    bool leaf = tci_plan_is_leaf(n);
    const tci_root *r = root >= 0 ? &p->f->roots[root] : NULL;
    if (!leaf && root >= 0 && p->red_of[root] >= 0) {
        return tci_pk_result(p, root, idx);
    }
    if (!leaf && (!r || (r->group == (int)(p->g - p->f->groups) && r->kind == TCI_ROOT_VALUE))) {
        return -1;
    }
    TCI_ASSERT(p->s, leaf || r->buffer >= 0);
    int buffer = leaf ? known->buffer : r->buffer;
    int x = tci_lower_offset(l, n->rank, n->shape, leaf ? n->strides : NULL, idx);
    int operand = tci_pk_operand(p, buffer, false);
    const int32_t *panel = tci_table_find(p->plan->panels, n);
    p->k->operands[operand].panel = panel ? *panel : 0;
    return tci_lower_load(l, operand, (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute, x,
                          guard);
}

static int tci_pk_literal(tci_lower *l, tci_node *n)
{
    tci_pk *p = l->user;
    for (int i = 0; i < p->n_literals; i++) {
        if (p->literals[i] == n) {
            return i;
        }
    }
    TCI_PUSH(p->s, p->literals, p->n_literals, p->cap_literals, n);
    return p->n_literals - 1;
}

/* ---- stages ---- */

static int tci_pk_stage(tci_pk *p, uint8_t kind, int family, int after)
{
    tci_pk_family *f = &p->families[family];
    for (int t = after + 1; t < p->k->n_stages; t++) {
        bool same = p->k->stages[t].kind == kind && p->k->stages[t].n_axes == f->n_axes &&
                    p->k->stages[t].n_kept == f->n_kept;
        for (int a = 0; same && a < f->n_axes; a++) {
            same = p->k->stages[t].axes[a] == f->axes[a];
        }
        if (same && kind != TCI_STAGE_SCAN) {
            return t;
        }
    }
    tci_kstage stage = {kind, f->n_axes, f->axes, f->n_kept, -1, -1};
    TCI_PUSH(p->s, p->k->stages, p->k->n_stages, p->k->cap_stages, stage);
    return p->k->n_stages - 1;
}

/* The index expression of each domain axis of a root. */
static int *tci_pk_domain(tci_pk *p, int member)
{
    const tci_root *r = &p->f->roots[p->g->roots[member]];
    int *domain = TCI_NEW_ARRAY(p->s, int, r->n_domain + 1);
    for (int i = 0; i < r->n_domain; i++) {
        if (r->domain[i] == 1) {
            domain[i] = tci_kx_const(p->k, 0);
        } else if (r->outer_of[i] >= 0) {
            domain[i] = p->outer.slots[r->outer_of[i]]->kx;
        } else {
            tci_dim within = p->members[member].within[i];
            int x = p->members[member].slot_of[i]->kx;
            x = within != 0 ? tci_kx_div(p->k, x, within) : x;
            domain[i] = within != 0 ? tci_kx_mod(p->k, x, r->domain[i]) : x;
        }
    }
    return domain;
}

/* store: all but its operand and offset, which are those of r's value at idx. */
static void tci_pk_store_at(tci_pk *p, const tci_root *r, const int *idx, tci_kstore store)
{
    store.x = tci_lower_offset(&p->l, r->node->rank, r->node->shape, NULL, idx);
    for (int o = -1; o < r->n_outputs; o++) {
        int buffer = o < 0 ? r->buffer : r->outputs[o];
        if (buffer >= 0) {
            store.operand = tci_pk_operand(p, buffer, true);
            tci_kernel_store(p->k, store);
        }
    }
}

static int *tci_pk_out_index(tci_pk *p, const tci_root *r, const int *domain)
{
    int *idx = TCI_NEW_ARRAY(p->s, int, r->node->rank + 1);
    for (int i = 0; i < r->node->rank; i++) {
        idx[i] = tci_root_index(p->k, r, domain, i);
    }
    return idx;
}

static void tci_pk_store(tci_pk *p, const tci_root *r, const int *domain, int value, int stage)
{
    tci_kstore store = {stage, -1, -1, value, TCI_MODE_SET, -1, false};
    tci_pk_store_at(p, r, tci_pk_out_index(p, r, domain), store);
}

/* A stage over one slot of a family alone. */
static int tci_pk_slot_stage(tci_pk *p, uint8_t kind, const tci_pk_slot *slot)
{
    tci_kstage stage = {kind, 0, TCI_NEW_ARRAY(p->s, int32_t, slot->n_factors + 1), 0, -1, -1};
    for (int a = 0; slot->size != 1 && a < slot->n_factors; a++) {
        stage.axes[stage.n_axes++] = slot->first_axis + a;
    }
    TCI_PUSH(p->s, p->k->stages, p->k->n_stages, p->k->cap_stages, stage);
    return p->k->n_stages - 1;
}

/* x goes to memory, along its axis where that is an inner one; then elements of src go there. */
static void tci_pk_scatter(tci_pk *p, int member)
{
    const tci_root *r = &p->f->roots[p->g->roots[member]];
    const tci_node *n = r->node;
    tci_put how = tci_root_puts(n);
    const tci_pk_slot none = {.size = 1};
    const tci_pk_slot *own = &none, *src = &none; /* NULL: of size 1 */
    if (how == TCI_PUT_LINES) {
        own = p->members[member].slot_of[r->n_domain - 2];
    }
    if (how != TCI_PUT_APART) {
        src = p->members[member].slot_of[r->n_domain - 1];
    }
    int *domain = tci_pk_domain(p, member), *idx = tci_pk_out_index(p, r, domain);
    if (how != TCI_PUT_APART) {
        int x = tci_lower_value(&p->l, n->in[0], tci_plan_input_index(&p->l, r, 0, domain), 0);
        tci_pk_store(p, r, domain, x, tci_pk_slot_stage(p, TCI_STAGE_MAP, own ? own : &none));
    }
    tci_lower_placed put = tci_plan_scatter_put(&p->l, r, domain);
    if (put.value < 0) {
        return;
    }
    tci_kstore store = {tci_pk_slot_stage(p, TCI_STAGE_SCATTER, src ? src : &none),
                        -1,
                        -1,
                        put.value,
                        (uint8_t)tci_dim_known(n->attr[1]),
                        put.guard,
                        how == TCI_PUT_APART};
    p->k->stages[store.stage].from = put.from;
    p->k->stages[store.stage].to = put.to;
    idx[tci_dim_known(n->attr[0])] = put.index;
    tci_pk_store_at(p, r, idx, store);
}

/* Reduction that combines the values, and the part that is its result. */
static tci_kred tci_pk_red(const tci_node *n, tc_dtype t)
{
    tci_kred red = {0};
    if (tci_op_is_reduce(n->op)) {
        red.op = tci_op_get(n->op)->red;
        red.part = tci_op_get(n->op)->part;
    } else {
        red.op = n->op == TCI_OP_SCAN ? (tci_red_op)tci_kstore_combine((int)n->attr[2])
                                      : TCI_RED_DOT;
    }
    red.dtype = (int8_t)t;
    red.order = TCI_ORDER_CHAIN;
    red.inst = -1;
    for (int i = 0; i < TCI_PARTS; i++) {
        red.in[i] = -1;
    }
    return red;
}

/* The values that element `element` of the root is, in the dtypes of its parts. */
static void tci_pk_element(tci_pk *p, const tci_root *r, const int *domain, int element,
                           tci_kred *red)
{
    for (int i = 0; i < TCI_PARTS && tci_formula_element(red->op, i); i++) {
        red->in[i] = tci_lower_element(p->k, tci_formula_element(red->op, i),
                                       tci_red_dtype(red->op, i, (tc_dtype)red->dtype), element,
                                       domain[r->n_domain - 1]);
    }
}

/* Elements that the root reduces. */
static void tci_pk_take(tci_pk *p, const tci_root *r, const int *domain, tci_kred *red)
{
    int n_in = r->kind == TCI_ROOT_SCAN ? 1 : r->node->n_in; /* starts are added to it */
    for (int i = 0; i < n_in; i++) {
        int value = tci_lower_value(&p->l, r->node->in[i],
                                    tci_plan_input_index(&p->l, r, i, domain), 0);
        red->in[i] = tci_lower_convert(p->k, value, (tc_dtype)red->dtype);
    }
    tci_pk_element(p, r, domain, red->in[0], red);
}

/* Adds a reduction; the value that it gives. */
static int tci_pk_add_red(tci_pk *p, tci_kred red)
{
    tci_kinst inst = {0};
    inst.op = TCI_K_RED;
    inst.dtype = (int8_t)tci_red_dtype(red.op, red.part, (tc_dtype)red.dtype);
    inst.imm = p->k->n_reds;
    inst.x = inst.guard = -1;
    TCI_PUSH(p->s, p->k->reds, p->k->n_reds, p->k->cap_reds, red);
    int value = tci_kernel_inst(p->k, inst);
    return p->k->reds[tci_dim_known(inst.imm)].inst = value;
}

/* Prefix total of the parts before this one of a SCAN with decoupled look-back, over the totals of
 * what `scan` reduces. */
static int tci_pk_earlier(tci_pk *p, const tci_root *r, int family, tci_kred scan)
{
    int axis = (int)tci_dim_known(r->node->attr[0]);
    scan.order = TCI_ORDER_LANES;
    scan.near = tci_class_of_group(p->f, p->g).near;
    scan.earlier = (uint8_t)p->outer.slots[r->outer_of[r->out_axis[axis]]]->n_factors;
    scan.stage = tci_pk_stage(p, TCI_STAGE_REDUCE, family, p->k->insts[scan.in[0]].stage);
    return tci_pk_add_red(p, scan);
}

/* The running value of a part after what it starts with; earlier: that, where parts are linked. */
static int tci_pk_started(tci_pk *p, const tci_root *r, const int *domain, int value, int earlier)
{
    tc_dtype t = (tc_dtype)p->k->insts[value].dtype;
    int start = earlier >= 0 ? earlier
                             : tci_lower_value(&p->l, r->node->in[1],
                                               tci_plan_input_index(&p->l, r, 1, domain), 0);
    return tci_lower_pair(p->k, tci_mode_pair((int)r->node->attr[2]),
                          tci_lower_convert(p->k, start, t), value);
}

/* The order that the node gives; where any gives the same, that of the group. */
static void tci_pk_order(const tci_pk *p, const tci_root *r, tci_kred *red)
{
    if (r->kind == TCI_ROOT_CONTRACT) {
        red->order_n = tci_class_part_of(r->node, p->machine);
        red->order = red->order_n > 0 ? TCI_ORDER_SPLIT : TCI_ORDER_CHAIN;
        return;
    }
    tci_association as = tci_class_of_group(p->f, p->g);
    if (as.lanes) {
        red->order = r->kind == TCI_ROOT_SCAN ? TCI_ORDER_BLOCK_SCAN : TCI_ORDER_LANES;
        red->order_n = as.n;
        red->near = red->order == TCI_ORDER_LANES ? as.near : 0;
    }
}

/* Adds the reduction of a REDUCE, CONTRACT or SCAN root; its RED value rounds to the node's
 * dtype. */
static void tci_pk_reduce(tci_pk *p, int member)
{
    int root = p->g->roots[member];
    const tci_root *r = &p->f->roots[root];
    const tci_node *n = r->node;
    int *domain = tci_pk_domain(p, member);
    bool arg = tci_op_is(n->op, TCI_IS_ARG);
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)(arg ? n->in[0]->dtype : n->dtype))->compute;
    tci_kred red = tci_pk_red(n, t);
    bool two_passes = p->f->reproducible || p->g->on_unit; /* or a class of its own */
    tci_node *online = two_passes ? NULL : tci_class_online_of(p->f, n);
    if (online) {
        red.op = TCI_RED_ONLINE;
        red.part = 1;
        const int *idx = tci_plan_input_index(&p->l, r, 0, domain);
        tci_pk_element(p, r, domain, tci_lower_value(&p->l, online, idx, 0), &red);
    } else {
        tci_pk_take(p, r, domain, &red);
    }
    tci_pk_order(p, r, &red);
    int after = -1;
    for (int i = 0; i < tci_red_takes(red.op); i++) {
        after = TCI_MAX(after, p->k->insts[red.in[i]].stage);
    }
    bool scan = r->kind == TCI_ROOT_SCAN;
    int family = p->members[member].family;
    int earlier = tci_root_is_linked(n) ? tci_pk_earlier(p, r, family, red) : -1;
    red.stage = tci_pk_stage(p, scan ? TCI_STAGE_SCAN : TCI_STAGE_REDUCE, family, after);
    int value = tci_pk_add_red(p, red);
    value = tci_root_parts(n) != 0 ? tci_pk_started(p, r, domain, value, earlier) : value;
    p->red_of[root] = tci_lower_round(p->k, value, (tc_dtype)n->dtype);
    if (scan) {
        tci_pk_store(p, r, domain, p->red_of[root], red.stage);
    }
}

/* Keeps a row of a VALUE: MAX of one element each. */
static void tci_pk_keep(tci_pk *p, int member)
{
    int root = p->g->roots[member];
    const tci_node *n = p->f->roots[root].node;
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    const int *domain = tci_pk_domain(p, member);
    int value = tci_lower_value(&p->l, p->f->roots[root].node, domain, 0);
    tci_kred red = {0};
    red.op = TCI_RED_MAX;
    red.dtype = (int8_t)t;
    red.order = TCI_ORDER_CHAIN;
    red.in[0] = value;
    red.in[1] = red.in[2] = red.in[3] = red.inst = -1;
    red.stage = tci_pk_stage(p, TCI_STAGE_REDUCE, p->members[member].family,
                             p->k->insts[value].stage);
    p->red_of[root] = tci_pk_add_red(p, red);
    tci_lower_replace(&p->l, p->f->roots[root].node, domain, p->red_of[root]);
}

static void tci_pk_store_member(tci_pk *p, int member)
{
    int root = p->g->roots[member];
    const tci_root *r = &p->f->roots[root];
    if (r->kind == TCI_ROOT_SCATTER) {
        tci_pk_scatter(p, member);
        return;
    }
    if (r->kind == TCI_ROOT_SCAN || (r->buffer < 0 && r->n_outputs == 0)) {
        return;
    }
    int *domain = tci_pk_domain(p, member);
    for (int i = 0; i < r->n_listed; i++) {
        tci_root_at_place(p->k, r, i, domain);
        int value = p->red_of[root];
        if (value < 0) {
            value = tci_lower_value(&p->l, r->node, domain, 0);
        }
        int stage = tci_pk_stage(p, TCI_STAGE_MAP, p->members[member].of_result,
                                 p->k->insts[value].stage);
        tci_pk_store(p, r, domain, value, stage);
    }
}

/* ---- cost and name ---- */

static double tci_pk_points(const tci_kernel *k, uint64_t axes)
{
    double points = 1;
    for (int a = 0; a < k->n_axes; a++) {
        if (axes >> TCI_MIN(a, 63) & 1) {
            points *= (double)tci_dim_hint(k->axes[a].size);
        }
    }
    return points;
}

static uint64_t tci_pk_red_axes(const tci_kernel *k, const tci_kred *red)
{
    uint64_t axes = 0;
    for (int i = 0; i < tci_red_takes(red->op); i++) {
        axes |= k->insts[red->in[i]].axes;
    }
    return axes;
}

static int64_t tci_pk_clamp(double x)
{
    return x < 9e18 ? (int64_t)x : INT64_MAX;
}

/* The axes that a store traverses. */
static uint64_t tci_pk_store_axes(const tci_kernel *k, const tci_kstore *store)
{
    uint64_t axes = 0;
    const tci_kstage *stage = &k->stages[store->stage];
    for (int a = 0; a < k->n_outer + stage->n_axes; a++) {
        int axis = a < k->n_outer ? a : stage->axes[a - k->n_outer];
        axes |= (uint64_t)1 << TCI_MIN(axis, 63);
    }
    /* ranges of the stage's axis are apart: all of them together are the axis */
    return stage->from >= 0 ? axes & ~(k->kx[stage->from].axes | k->kx[stage->to].axes) : axes;
}

static void tci_pk_measure(tci_kernel *k)
{
    double flops = 0, bytes = 0;
    for (int i = 0; i < k->n_insts; i++) {
        if (k->insts[i].op == TCI_K_PRIM) {
            flops += tci_prim_get((tci_prim)k->insts[i].prim)->cost *
                     tci_pk_points(k, k->insts[i].axes);
        }
    }
    for (int r = 0; r < k->n_reds; r++) {
        uint64_t axes = tci_pk_red_axes(k, &k->reds[r]);
        int cost = tci_red_cost(k->reds[r].op, (tc_dtype)k->reds[r].dtype);
        flops += cost * tci_pk_points(k, axes);
    }
    for (int p = 0; p < k->n_operands; p++) {
        double points = 0;
        for (int i = 0; i < k->n_insts; i++) {
            if (k->insts[i].op == TCI_K_LOAD && k->insts[i].imm == p) {
                points += tci_pk_points(k, tci_kx_axes(k, k->insts[i].x));
            }
        }
        double all = (double)tci_dim_hint(k->operands[p].n);
        points = k->operands[p].is_output ? all : TCI_MIN(points, all);
        bytes += points * tci_dtype_get((tc_dtype)k->operands[p].dtype)->bytes;
    }
    for (int w = 0; w < k->n_stores; w++) { /* elements that are read and written at indices */
        const tci_kstore *store = &k->stores[w];
        bool scatters = k->stages[store->stage].kind == TCI_STAGE_SCATTER;
        double points = scatters ? tci_pk_points(k, tci_pk_store_axes(k, store)) : 0;
        flops += points;
        bytes += 2 * points * tci_dtype_get((tc_dtype)k->operands[store->operand].dtype)->bytes;
    }
    k->all_flops = tci_pk_clamp(flops);
    k->flops = tci_dim_known(k->all_flops);
    k->all_bytes = tci_pk_clamp(bytes);
    k->bytes = tci_dim_known(k->all_bytes);
}

#ifdef TC_DYNAMIC_SHAPES
static tci_dim tci_pk_all_points(const tci_kernel *k, uint64_t axes)
{
    tci_dim points = 1;
    for (int a = 0; a < k->n_axes; a++) {
        if (axes >> TCI_MIN(a, 63) & 1) {
            points = tci_dim_mul(points, k->axes[a].size);
        }
    }
    return points;
}

/* The estimates of tci_pk_measure as symbolic expressions; where these overflow, the numbers stay.
 */
static void tci_pk_measure_all(tci_kernel *k)
{
    tci_dim flops = 0, bytes = 0;
    bool known = true;
    for (int a = 0; a < k->n_axes; a++) {
        known = known && tci_dim_is_known(k->axes[a].size);
    }
    if (known) {
        return;
    }
    for (int i = 0; i < k->n_insts; i++) {
        if (k->insts[i].op == TCI_K_PRIM) {
            tci_dim points = tci_pk_all_points(k, k->insts[i].axes);
            int cost = tci_prim_get((tci_prim)k->insts[i].prim)->cost;
            flops = tci_dim_add(flops, tci_dim_mul(points, cost));
        }
    }
    for (int r = 0; r < k->n_reds; r++) {
        uint64_t axes = tci_pk_red_axes(k, &k->reds[r]);
        tci_dim points = tci_pk_all_points(k, axes);
        int cost = tci_red_cost(k->reds[r].op, (tc_dtype)k->reds[r].dtype);
        flops = tci_dim_add(flops, tci_dim_mul(points, cost));
    }
    for (int p = 0; p < k->n_operands; p++) {
        tci_dim points = 0, all = k->operands[p].n;
        for (int i = 0; i < k->n_insts; i++) {
            if (k->insts[i].op == TCI_K_LOAD && k->insts[i].imm == p) {
                uint64_t axes = tci_kx_axes(k, k->insts[i].x);
                points = tci_dim_add(points, tci_pk_all_points(k, axes));
            }
        }
        points = k->operands[p].is_output ? all : tci_dim_min(points, all);
        int64_t size = tci_dtype_get((tc_dtype)k->operands[p].dtype)->bytes;
        bytes = tci_dim_add(bytes, tci_dim_mul(points, size));
    }
    for (int w = 0; w < k->n_stores; w++) {
        const tci_kstore *store = &k->stores[w];
        bool scatters = k->stages[store->stage].kind == TCI_STAGE_SCATTER;
        tci_dim points = scatters ? tci_pk_all_points(k, tci_pk_store_axes(k, store)) : 0;
        int64_t size = tci_dtype_get((tc_dtype)k->operands[store->operand].dtype)->bytes;
        flops = tci_dim_add(flops, points);
        bytes = tci_dim_add(bytes, tci_dim_mul(points, 2 * size));
    }
    k->all_flops = tci_dim_is_valid(flops) ? flops : k->all_flops;
    k->all_bytes = tci_dim_is_valid(bytes) ? bytes : k->all_bytes;
}
#endif

enum { TCI_PK_WORDS = 4, TCI_PK_WORDS_MOST = 32 };

typedef struct tci_pk_word {
    const char *name;
    double weight;
} tci_pk_word;

static bool tci_pk_is_plain(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void tci_pk_add_word(tci_pk_word *words, int *n, const tci_node *node)
{
    const char *name = tci_op_is(node->op, TCI_IS_QUIET) ? NULL
                       : node->call                      ? node->call
                                                         : tci_op_name(node->op);
    double weight = tci_plan_op_weight(node->op);
    for (int i = 0; i < *n && name; i++) {
        if (!strcmp(words[i].name, name)) {
            words[i].weight = TCI_MAX(words[i].weight, weight);
            name = NULL;
        }
    }
    if (name && *n < TCI_PK_WORDS_MOST) {
        words[(*n)++] = (tci_pk_word){name, weight};
    }
}

/* tc_k_<ops>: of the distinct ops that the kernel evaluates the few that cost most. The expansion
 * of a composite or a custom op bears its name. */
static void tci_pk_name(const tci_pk *p, tci_kernel *k)
{
    tci_pk_word words[TCI_PK_WORDS_MOST];
    int n = 0;
    size_t at = 4;
    for (int i = 0; i < 4; i++) {
        k->name[i] = "tc_k"[i];
    }
    for (int m = p->g->n_roots - 1; m >= 0; m--) {
        const tci_root *r = &p->f->roots[p->g->roots[m]];
        tci_pk_add_word(words, &n, r->node);
        for (int v = r->n_inlined - 1; v >= 0; v--) {
            if (tci_plan_evaluates(p->f, r->inlined[v])) {
                tci_pk_add_word(words, &n, r->inlined[v]);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        int heavier = 0;
        for (int j = 0; j < n; j++) {
            heavier += words[j].weight > words[i].weight ||
                       (words[j].weight == words[i].weight && j < i);
        }
        for (const char *c = heavier < TCI_PK_WORDS ? words[i].name : ""; *c; c++) {
            k->name[at] = '_';
            at += c == words[i].name;
            bool fits = at + 2 < sizeof(k->name);
            k->name[at] = tci_pk_is_plain(*c) ? *c : '_';
            at += fits;
        }
    }
    k->name[at] = 0;
}

/* ---- one attempt ---- */

static void tci_pk_attempt(tci_pk *p)
{
    p->k = tci_kernel_make(p->s);
    p->n_operand_buffers = p->n_literals = 0;
    p->attempt++;
    tci_lower_init(&p->l, p->s, p->k);
    p->l.user = p;
    p->l.access = p->access;
    p->l.literal = p->literal;
    tci_pk_make_axes(p, &p->outer, false);
    for (int f = 0; f < p->n_families; f++) {
        tci_pk_make_axes(p, &p->families[f], true);
    }
    for (int m = 0; m < p->g->n_roots; m++) {
        p->red_of[p->g->roots[m]] = -1;
    }
    for (int m = 0; m < p->g->n_roots; m++) {
        int kind = p->f->roots[p->g->roots[m]].kind;
        if (kind != TCI_ROOT_VALUE && kind != TCI_ROOT_SCATTER) {
            tci_pk_reduce(p, m);
        } else if (p->members[m].is_kept) {
            tci_pk_keep(p, m);
        }
    }
    for (int m = 0; m < p->g->n_roots; m++) {
        tci_pk_store_member(p, m);
    }
    p->k->n_literals = p->n_literals;
}

/* True if the results of a contraction would get an axis of a few elements because of its
 * consumers, for example where every other position of an image is added. Vectors of a CPU would
 * run along it. The interleaved value is then materialized (plan/plan.c). */
static bool tci_pk_alternates(const tci_pk *p, int axis, tci_dim factor)
{
    return p->machine.block_threads == 0 && p->g->has_contract && !p->k->axes[axis].inner &&
           tci_dim_le(factor, TCI_KERNEL_SHORT) && !tci_kernel_dots_divide(p->k);
}

/* rows: lanes are counted along an inner axis as it stands in the graph. */
static bool tci_pk_split_any(tci_pk *p, bool rows)
{
    int axis;
    tci_dim factor;
    if (!tci_kernel_split_find(p->k, &axis, &factor) || tci_pk_alternates(p, axis, factor)) {
        return false;
    }
    bool done = tci_pk_split(p, &p->outer, axis, factor);
    for (int f = 0; f < p->n_families && !done && !rows; f++) {
        done = tci_pk_split(p, &p->families[f], axis, factor);
    }
    return done;
}

/* Lowers the group until no axis is to be split; rows: as in tci_pk_split_any. */
static void tci_pk_attempts(tci_pk *p, bool rows)
{
    for (int tries = 0; tries < TCI_PK_SPLITS; tries++) {
        tci_pk_attempt(p);
        if (!tci_pk_split_any(p, rows)) {
            break;
        }
    }
}

/* Of the RESHAPEs that leave divisions those that this kernel computes. */
static int tci_pk_dividing(tci_pk *p, tci_node ***nodes)
{
    int n = tci_lower_dividing(&p->l, nodes), kept = 0;
    for (int i = 0; i < n; i++) {
        int root = tci_pnode_of(p->f, (*nodes)[i])->root;
        if (root < 0 || p->f->roots[root].group == (int)(p->g - p->f->groups)) {
            (*nodes)[kept++] = (*nodes)[i];
        }
    }
    return kept;
}

/* ---- calls ---- */

static void tci_pk_show_array(tci_scratch *s, const tci_node *n, tc_custom_array *to)
{
    *to = (tc_custom_array){.dtype = (tc_dtype)n->dtype, .rank = n->rank};
    to->sizes = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    to->n = (int64_t)tci_node_count(n);
    for (int i = 0; i < n->rank; i++) {
        to->sizes[i] = (int64_t)n->shape[i];
    }
}

static void tci_pk_call_operand(tci_pk *p, int buffer, bool is_output)
{
    const tci_buffer *b = &p->plan->buffers[buffer];
    TCI_PUSH(p->s, p->operand_buffers, p->n_operand_buffers, p->cap_operand_buffers, buffer);
    tci_kernel_operand(p->k, (tc_dtype)b->dtype, is_output, b->n);
    p->k->all_bytes = tci_dim_add(p->k->all_bytes, b->bytes);
}

/* A kernel without stages: its operands are those of the user's function, in order. A collective is
 * two of these over the same memory; the one that waits also reads the result, so that it comes
 * after the one that starts. */
static tci_lowered tci_pk_call(tci_pk *p, tci_comm_phase phase)
{
    const tci_root *r = &p->f->roots[p->g->roots[0]];
    const tci_node *n = r->node;
    tci_custom_call *call = TCI_NEW(p->s, tci_custom_call);
    if (phase) {
        call->comm = tci_build_comm_step(n);
        call->comm.phase = (uint8_t)phase;
    } else if (n->attr[0] >= TCI_CUSTOM_SPLIT) {
        call->kind = TCI_CUSTOM_PART; /* compile/ knows which, and fills in the rest */
        call->split = (int)(n->attr[0] - TCI_CUSTOM_SPLIT);
    } else {
        call->op = tci_custom_get(n->attr[0]);
    }
    call->n_inputs = n->n_in;
    call->arrays = TCI_NEW_ARRAY(p->s, tc_custom_array, n->n_in + 1);
    p->k = tci_kernel_make(p->s);
    p->k->call = call;
    p->k->faults = call->op && call->op->asserts;
    for (int i = 0; i < n->n_in; i++) {
        tci_pk_show_array(p->s, n->in[i], &call->arrays[i]);
        tci_pk_call_operand(p, tci_root_buffer_of(p->f, n->in[i]), false);
    }
    tci_pk_show_array(p->s, n, &call->arrays[n->n_in]);
    if (phase == TCI_COMM_WAIT) {
        tci_pk_call_operand(p, r->buffer, false);
    }
    for (int o = -1; o < r->n_outputs; o++) {
        int buffer = o < 0 ? r->buffer : r->outputs[o];
        if (buffer >= 0) {
            tci_pk_call_operand(p, buffer, true);
        }
    }
    p->k->bytes = tci_dim_hint(p->k->all_bytes);
    if (phase) {
        tci_str name = {.s = p->s};
        tci_str_printf(&name, "%s_%s", phase == TCI_COMM_START ? "start" : "wait",
                       tci_comm_verb_name(call->comm.verb));
        for (size_t i = 0; i <= name.n && i < sizeof(p->k->name); i++) {
            p->k->name[i] = tci_str_text(&name)[i];
        }
    } else {
        tci_pk_name(p, p->k);
    }
    tci_lowered out = {p->k, p->operand_buffers, NULL, NULL, NULL, 0, false};
    out.offsets = TCI_NEW_ARRAY(p->s, tci_dim, p->k->n_operands + 1);
    return out;
}

/* ---- contractions alone ---- */

/* Memory is what tci_class_operand_of finds. */
static int tci_pk_access_alone(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    tci_pk *p = l->user;
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    if (n == p->f->roots[0].node || tci_op_is(n->op, TCI_IS_NUMBER) || tci_class_moves(p->f, n)) {
        return -1;
    }
    int operand = tci_pk_literal(l, n);
    if (operand == p->k->n_operands) {
        tci_kernel_operand(p->k, (tc_dtype)n->dtype, false, tci_plan_leaf_extent(n));
    }
    int x = tci_lower_offset(l, n->rank, n->shape, tci_plan_is_leaf(n) ? n->strides : NULL, idx);
    return tci_lower_load(l, operand, t, x, guard);
}

static int tci_pk_literal_alone(tci_lower *l, tci_node *n)
{
    (void)l;
    return (int)n->id;
}

static tci_kernel *tci_pk_lower_alone(const tci_fusion *f, const tci_root *r, tci_machine machine)
{
    tci_fusion alone = *f;
    tci_root root = *r;
    int32_t member = 0, red_of = -1;
    tci_group g = {.n_outer = r->n_out,
                   .outer = r->domain,
                   .roots = &member,
                   .n_roots = 1,
                   .has_contract = true};
    root.outer_of = TCI_NEW_ARRAY(f->s, int32_t, r->n_domain + 1);
    for (int i = 0; i < r->n_domain; i++) {
        root.outer_of[i] = i < r->n_out ? i : -1;
    }
    root.group = root.buffer = root.n_outputs = 0;
    alone.roots = &root;
    alone.groups = &g;
    alone.n_roots = alone.n_groups = 1;
    tci_pk p = {.s = f->s,
                .f = &alone,
                .g = &g,
                .machine = machine,
                .red_of = &red_of,
                .access = tci_pk_access_alone,
                .literal = tci_pk_literal_alone};
    p.outer = tci_pk_make_family(f->s, g.n_outer, g.outer);
    tci_pk_find_families(&p);
    tci_pk_attempts(&p, false);
    p.k->vector = TCI_VEC_OUTER;
    tci_kernel *k = tci_kernel_finish(p.k);
    return tci_kernel_crop(k, TCI_NEW_ARRAY(f->s, tci_dim, k->n_operands + 1));
}

TCI_FN int tci_plan_unit_of(const tci_fusion *f, const tci_root *r, tci_machine machine)
{
    if (!f->units || !tci_dtype_is_float((tc_dtype)r->node->dtype)) {
        return TCI_CLASS_ANY;
    }
    int32_t *order = tci_table_at(&f->units->of, r->node);
    if (*order == 0) {
        tci_kernel *k = tci_pk_lower_alone(f, r, machine);
        tci_class_choose(k, machine, TCI_CLASS_ANY);
        bool unit = k->reds[0].order == TCI_ORDER_MATRIX || k->reds[0].order == TCI_ORDER_TF32;
        *order = 1 + (unit ? k->reds[0].order : TCI_ORDER_CHAIN);
    }
    return *order - 1;
}

/* The same of the contraction of group g; of groups that have none or keep rows TCI_CLASS_ANY. */
static int tci_pk_unit_of_group(const tci_fusion *f, const tci_group *g, tci_machine machine)
{
    for (int i = 0; i < g->n_roots && g->has_contract && !g->keeps; i++) {
        const tci_root *r = &f->roots[g->roots[i]];
        if (r->kind == TCI_ROOT_CONTRACT) {
            return tci_plan_unit_of(f, r, machine);
        }
    }
    return TCI_CLASS_ANY;
}

TCI_FN bool tci_plan_has_unit(const tci_fusion *f, const tci_group *g, const tci_kernel *k)
{
    bool has = true;
    for (int i = 0; i < g->n_roots && f->units && g->has_contract && !g->keeps; i++) {
        const tci_root *r = &f->roots[g->roots[i]];
        const int32_t *order = tci_table_find(&f->units->of, r->node);
        bool unit = r->kind == TCI_ROOT_CONTRACT && order && *order - 1 > TCI_ORDER_CHAIN;
        has = has && (!unit || k->reds[0].order == *order - 1);
    }
    return has;
}

TCI_FN tci_lowered tci_plan_lower(tci_scratch *s, const tci_fusion *f, const tci_group *g,
                                  tci_plan *plan, tci_machine machine)
{
    tci_pk p = {.s = s,
                .f = f,
                .g = g,
                .plan = plan,
                .machine = machine,
                .access = tci_pk_access,
                .literal = tci_pk_literal};
    p.outer = tci_pk_make_family(s, g->n_outer, g->outer);
    p.red_of = plan->red_of;
    if (f->roots[g->roots[0]].kind == TCI_ROOT_CUSTOM) {
        bool joins = f->roots[g->roots[0]].node->op == TCI_OP_COLLECTIVE;
        return tci_pk_call(&p, joins ? TCI_COMM_START : TCI_COMM_NONE);
    }
    tci_pk_find_families(&p);
    bool linked = tci_root_is_linked(f->roots[g->roots[0]].node);
    const bool rows = tci_class_of_group(f, g).lanes;
    tci_pk_attempts(&p, (machine.reproducible && rows) || linked);
    p.k->vector = rows || g->keeps ? TCI_VEC_INNER : TCI_VEC_OUTER;
    tci_lowered out = {tci_kernel_finish(p.k), p.operand_buffers, NULL, p.literals, NULL, 0, false};
    out.offsets = TCI_NEW_ARRAY(s, tci_dim, out.kernel->n_operands + 1);
    out.kernel = tci_kernel_crop(out.kernel, out.offsets);
    out.kernel->value_columns = g->kernel > 0 ? f->pairs->items[g->kernel - 1].value_columns : 0;
    int unit = tci_pk_unit_of_group(f, g, machine);
    tci_class_choose(out.kernel, machine, unit);
    out.lacks_unit = unit > TCI_ORDER_CHAIN && out.kernel->reds[0].order != unit;
    out.n_dividing = tci_pk_dividing(&p, &out.dividing);
    tci_pk_measure(out.kernel);
#ifdef TC_DYNAMIC_SHAPES
    tci_pk_measure_all(out.kernel);
#endif
    tci_pk_name(&p, out.kernel);
    return out;
}

TCI_FN tci_lowered tci_plan_lower_wait(tci_scratch *s, const tci_fusion *f, const tci_group *g,
                                       tci_plan *plan)
{
    tci_pk p = {.s = s, .f = f, .g = g, .plan = plan};
    return tci_pk_call(&p, TCI_COMM_WAIT);
}
