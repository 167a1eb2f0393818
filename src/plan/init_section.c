/* plan/init_section.c - hoists values that depend on constants alone into the init section, which
 * runs once per program.
 *
 * In: the nodes of a program, and later its steps. Out: materialized values that are constant
 * across runs; the steps that compute them, moved to the front; the buffers that hold them
 * (TCI_BUF_KEPT).
 *
 * Design: a value is computed once if it depends only on literals and on captured memory that the
 * program does not modify. Inputs and outputs of a run are neither. Groups of such values are
 * kept apart from those of each run (plan/fusion_groups.c), so that whole kernels are one or the
 * other.
 *
 * At the boundary of the init section, a value is materialized if that saves work: reading it takes
 * fewer bytes than reading its operands, or as many and it replaces an operation more expensive
 * than a multiplication. A single element is never worth a launch. A program without inputs and
 * effects has no init section: its results never change, so it is expected to run once. */
#include "../graph/build.h"
#include "fusion_groups.h"
#include "fusion_refusal.h"

enum {
    TCI_INIT_FLOPS = 4, /* of one element: above products and sums */
    TCI_INIT_WALK = 256 /* nodes looked at for one value */
};

/* ---- values ---- */

/* changed: leaves that the program's effects change. */
static void tci_init_find_values(tci_fusion *f, tci_node *const *outputs, int n_outputs,
                                 tci_node *const *changed, int n_changed)
{
    bool varies = n_changed > 0; /* from run to run */
    tci_table of_runs = tci_table_in(f->s, sizeof(bool));
    for (int i = 0; i < n_outputs + n_changed; i++) {
        tci_table_add(&of_runs, i < n_outputs ? outputs[i] : changed[i - n_outputs]);
    }
    for (int i = 0; i < f->nodes.n; i++) {
        varies |= f->nodes.items[i]->op == TCI_OP_INPUT;
    }
    for (int i = 0; i < f->nodes.n && varies; i++) {
        const tci_node *n = f->nodes.items[i];
        bool once = n->op != TCI_OP_INPUT && tci_build_is_known(n->rank, n->shape) &&
                    (n->n_in == 0 || !tci_op_is(n->op, TCI_IS_UNIQUE)) &&
                    !tci_table_has(&of_runs, n);
        for (int j = 0; j < n->n_in; j++) {
            once = once && tci_pnode_of(f, n->in[j])->once;
        }
        tci_pnode_of(f, n)->once = once;
    }
}

/* Cost of evaluating a value from values in memory. */
typedef struct tci_init_cost {
    double bytes, flops;
} tci_init_cost;

static tci_init_cost tci_init_evaluate(tci_fusion *f, const tci_node *top)
{
    tci_init_cost cost = {0, 0};
    tci_node **stack = NULL;
    int n_stack = 0, cap = 0, stamp = ++f->stamp;
    double elements = TCI_MAX(1.0, (double)tci_dim_hint(tci_node_count(top)));
    TCI_PUSH(f->s, stack, n_stack, cap, (tci_node *)(uintptr_t)top);
    for (int walked = 0; n_stack && walked < TCI_INIT_WALK; walked++) {
        tci_node *n = stack[--n_stack];
        tci_pnode *p = tci_pnode_of(f, n);
        if (p->met == stamp) {
            continue;
        }
        p->met = stamp;
        bool stored = p->forced || tci_root_kind_of(n) != TCI_ROOT_VALUE;
        if (tci_op_is(n->op, TCI_IS_MEMORY) || (stored && n != top)) {
            cost.bytes += tci_node_value_bytes(n);
            continue;
        }
        cost.flops += tci_op_get(n->op)->cost * (double)tci_dim_hint(tci_node_count(n)) / elements;
        for (int j = 0; j < n->n_in; j++) {
            TCI_PUSH(f->s, stack, n_stack, cap, n->in[j]);
        }
    }
    return cost;
}

/* Whether n, which runs read and which is computed once, should be in memory for them. */
static bool tci_init_pays(tci_fusion *f, const tci_node *n)
{
    bool moves = tci_op_is(n->op, TCI_IS_VIEW | TCI_IS_LEAF);
    if (moves || tci_pnode_of(f, n)->forced || tci_dim_hint(tci_node_count(n)) < 2) {
        return false;
    }
    double bytes = tci_node_value_bytes(n);
    tci_init_cost cost = tci_init_evaluate(f, n);
    return bytes < cost.bytes || (bytes == cost.bytes && cost.flops >= TCI_INIT_FLOPS);
}

/* Users come first: what is evaluated in each run asks for what it is computed from. */
TCI_FN void tci_init_find(tci_fusion *f, tci_node *const *outputs, int n_outputs,
                          tci_node *const *changed, int n_changed)
{
    tci_init_find_values(f, outputs, n_outputs, changed, n_changed);
    for (int i = f->nodes.n - 1; i >= 0; i--) {
        const tci_node *n = f->nodes.items[i];
        tci_pnode *p = tci_pnode_of(f, n);
        bool stored = p->once && (p->forced || tci_root_kind_of(n) != TCI_ROOT_VALUE);
        if (p->once && p->asked && !stored && tci_init_pays(f, n)) {
            p->forced = stored = true;
            p->why = TCI_WHY_ONCE;
        }
        for (int j = 0; j < n->n_in && !stored && (p->asked || !p->once); j++) {
            tci_pnode_of(f, n->in[j])->asked = true;
        }
    }
}

/* ---- steps ---- */

static bool tci_init_is_fixed(const tci_plan *p, tci_node *const *inputs, int buffer)
{
    const tci_buffer *b = &p->buffers[buffer];
    bool fixed = b->kind == TCI_BUF_INPUT && inputs[b->index]->op == TCI_OP_DATA;
    for (int i = 0; i < p->n_assigns; i++) {
        fixed = fixed && p->assigns[i].input != b->index;
    }
    return fixed;
}

static bool tci_init_kernel_is_known(const tci_kernel *k)
{
    bool known = tci_dim_is_known(k->all_flops) && tci_dim_is_known(k->all_bytes);
    for (int i = 0; i < k->n_axes; i++) {
        known = known && tci_dim_is_known(k->axes[i].size);
    }
    for (int i = 0; i < k->n_kx; i++) { /* a size may be a value */
        known = known && tci_dim_is_known(k->kx[i].c);
    }
    return known;
}

/* Steps that may leave the runs, given those that may not be read. What may fault stays in each
 * run, so that each says so; so do collectives, as what one rank has may be new on another. */
static bool tci_init_step(const tci_plan *p, tci_node *const *inputs, const bool *each_run, int t)
{
    const tci_step *step = &p->steps[t];
    const tci_kernel *k = p->kernels[step->kernel];
    bool once = !k->faults && !k->is_repeat && !tci_plan_comm(p, t) && tci_init_kernel_is_known(k);
    for (int o = 0; o < k->n_operands; o++) {
        int b = step->operands[o];
        bool is_temp = p->buffers[b].kind == TCI_BUF_TEMP;
        once = once && (is_temp ? !each_run[b] : tci_init_is_fixed(p, inputs, b));
    }
    return once;
}

/* Per step, whether it is computed once: the most that can be. */
static bool *tci_init_find_steps(tci_scratch *s, const tci_plan *p, tci_node *const *inputs)
{
    bool *once = TCI_NEW_ARRAY(s, bool, p->n_steps + 1);
    bool *each_run = TCI_NEW_ARRAY(s, bool, p->n_buffers + 1);
    bool changed = true;
    for (int t = 0; t < p->n_steps; t++) {
        once[t] = true;
    }
    while (changed) {
        changed = false;
        for (int t = 0; t < p->n_steps; t++) {
            if (!once[t] || tci_init_step(p, inputs, each_run, t)) {
                continue;
            }
            const tci_kernel *k = p->kernels[p->steps[t].kernel];
            changed = true;
            once[t] = false;
            for (int o = 0; o < k->n_operands; o++) {
                int b = p->steps[t].operands[o];
                each_run[b] |= k->operands[o].is_output;
            }
        }
    }
    return once;
}

/* Temporaries that a run reads and the init section wrote. */
static void tci_init_keep(tci_plan *p)
{
    for (int t = p->n_init; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        for (int o = 0; o < k->n_operands; o++) {
            tci_buffer *b = &p->buffers[p->steps[t].operands[o]];
            if (b->kind == TCI_BUF_TEMP && b->once) {
                b->kind = TCI_BUF_KEPT;
                b->offset = p->kept_bytes;
                p->kept_bytes += (tci_dim_known(b->bytes) + 63) / 64 * 64;
            }
        }
    }
}

TCI_FN void tci_plan_init_section(tci_scratch *s, tci_plan *p, tci_node *const *inputs,
                                  int n_inputs)
{
    bool varies = p->n_assigns > 0; /* from run to run */
    for (int b = 0; b < p->n_buffers; b++) {
        varies |= p->buffers[b].kind == TCI_BUF_INPUT &&
                  inputs[p->buffers[b].index]->op == TCI_OP_INPUT;
    }
    p->n_init = 0;
    p->kept_bytes = 0;
    if (!n_inputs || !varies) {
        return;
    }
    const bool *once = tci_init_find_steps(s, p, inputs);
    tci_step *steps = TCI_NEW_ARRAY(s, tci_step, p->n_steps + 1);
    int at = 0;
    for (int first = 1; first >= 0; first--) {
        for (int t = 0; t < p->n_steps; t++) {
            if (once[t] == (first != 0)) {
                steps[at++] = p->steps[t];
            }
        }
        p->n_init = first ? at : p->n_init;
    }
    p->steps = steps;
    p->cap_steps = p->n_steps + 1;
    for (int t = 0; t < p->n_init; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        for (int o = 0; o < k->n_operands; o++) {
            p->buffers[p->steps[t].operands[o]].once |= k->operands[o].is_output;
        }
    }
    tci_init_keep(p);
}
