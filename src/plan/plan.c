/* plan/plan.c - runs the planning pass: algorithms, fusion, one kernel per group, buffers, memory.
 *
 * In: the rewritten graph with its inputs, literals and outputs in order. Out: a tci_plan. Kernels
 * with identical text are stored once and launched several times.
 *
 * A program may be planned several times: until no group materializes another value, with
 * attention scores recomputed by each kernel (plan/attention_recompute.c), with values stored that
 * the cost model asks for (plan/fission.c), with rematerialization (plan/remat.c). Each trial has
 * its own set of materialized values: a rejected trial does not bind the next one. */
#include <setjmp.h>

#include "../kernel/match_attention.h"
#include "fusion_groups.h"
#include "fusion_refusal.h"

enum {
    TCI_PLAN_LEANER = 64, /* part of a workspace that is worth computing values again */
    TCI_PLAN_ROUNDS = 4,  /* plans made until no more values get memory */
    TCI_PLAN_SPLITS = 8,  /* rounds until no more groups are split for their price, */
    TCI_PLAN_TRIALS = 12, /* and plans that are made for it */
    TCI_PLAN_VIEWS = 2    /* RESHAPEs that divide indices, in a kernel, up to which views stay */
};

/* ---- buffers ---- */

static int tci_plan_add_buffer(tci_scratch *s, tci_plan *p, uint8_t kind, const tci_node *n,
                               int index, tci_dim elems)
{
    tci_buffer b = {0};
    b.kind = kind;
    b.dtype = n->dtype;
    b.index = index;
    b.n = elems;
    b.bytes = tci_dim_mul(elems, tci_dtype_get((tc_dtype)n->dtype)->bytes);
    tci_dim_need(s, b.bytes, "the memory of a value");
    b.node = n;
    TCI_PUSH(s, p->buffers, p->n_buffers, p->cap_buffers, b);
    return p->n_buffers - 1;
}

static int tci_plan_leaf_buffer(const tci_plan *p, const tci_node *leaf)
{
    for (int b = 0; b < p->n_buffers; b++) {
        if (p->buffers[b].kind == TCI_BUF_INPUT && p->buffers[b].node == leaf) {
            return b;
        }
    }
    return -1;
}

/* Buffers of inputs and slots of literals; one that nothing reads has none. */
static void tci_plan_leaf_buffers(const tci_plan *p, const tci_fusion *f, tci_node *const *literals,
                                  int n_literals)
{
    for (int i = 0; i < f->nodes.n; i++) {
        tci_pnode_of(f, f->nodes.items[i])->buffer = -1;
    }
    for (int b = 0; b < p->n_buffers; b++) {
        tci_pnode *leaf = tci_table_find(&f->known, p->buffers[b].node);
        if (leaf) {
            leaf->buffer = b;
        }
    }
    for (int i = 0; i < n_literals; i++) {
        tci_pnode *literal = tci_table_find(&f->known, literals[i]);
        if (literal) {
            literal->buffer = i;
        }
    }
}

static void tci_plan_temporary(tci_scratch *s, tci_plan *p, tci_root *r)
{
    if (r->buffer < 0) {
        r->buffer = tci_plan_add_buffer(s, p, TCI_BUF_TEMP, r->node, -1, tci_node_count(r->node));
    }
}

/* Memory of roots: outputs get the program's buffers, others a temporary if any other group reads
 * them. So do results of a loop whose elements are all cut off, as its steps store them,
 * and those of collectives that others only wait for. */
static void tci_plan_root_buffers(tci_scratch *s, tci_plan *p, tci_fusion *f,
                                  tci_node *const *outputs, int n_outputs)
{
    for (int i = 0; i < n_outputs; i++) {
        tci_root *r = &f->roots[tci_pnode_of(f, outputs[i])->root];
        int b = tci_plan_add_buffer(s, p, TCI_BUF_OUTPUT, outputs[i], i,
                                    tci_node_count(outputs[i]));
        if (r->buffer < 0) {
            r->buffer = b;
        } else { /* the same value twice: stored twice */
            TCI_PUSH(s, r->outputs, r->n_outputs, r->cap_outputs, b);
        }
    }
    for (int i = 0; i < f->n_roots; i++) {
        for (int j = 0; j < f->roots[i].n_reads; j++) {
            tci_root *q = &f->roots[f->roots[i].reads[j].root];
            if (q->group != f->roots[i].group || q->kind == TCI_ROOT_SCAN) {
                tci_plan_temporary(s, p, q);
            }
        }
        if (f->roots[i].kind == TCI_ROOT_REPEAT || f->roots[i].node->op == TCI_OP_COLLECTIVE) {
            tci_plan_temporary(s, p, &f->roots[i]);
        }
    }
}

/* ---- kernels ---- */

typedef struct tci_plan_text {
    const char *text;
    tci_hash hash;
} tci_plan_text;
typedef struct tci_plan_texts {
    tci_plan_text *items;
    int n, cap;
} tci_plan_texts;

static int tci_plan_add_kernel(tci_scratch *s, tci_plan *p, tci_plan_texts *texts, tci_kernel *k,
                               const char *text, tci_hash hash)
{
    tci_plan_text item = {text, hash};
    TCI_PUSH(s, texts->items, texts->n, texts->cap, item);
    TCI_PUSH(s, p->kernels, p->n_kernels, p->cap_kernels, k);
    return p->n_kernels - 1;
}

/* The number of kernel k in p, which has that text. */
static int tci_plan_kernel_index(tci_scratch *s, tci_plan *p, tci_plan_texts *texts, tci_kernel *k,
                                 const tci_plan_made *made)
{
    for (int i = 0; i < p->n_kernels; i++) {
        const char *have = texts->items[i].text, *want = made->text;
        if (texts->items[i].hash.lo == made->hash.lo) {
            while (*have && *have == *want) {
                have++;
                want++;
            }
            if (*have == *want) {
                return i;
            }
        }
    }
    return tci_plan_add_kernel(s, p, texts, k, made->text, made->hash);
}

/* Memory of the user that is only looked at another way: a layout op alone copies nothing. */
static bool tci_plan_is_moved_leaf(const tci_node *n)
{
    while (tci_op_is(n->op, TCI_IS_VIEW) || n->op == TCI_OP_PAD) {
        n = n->in[0];
    }
    return tci_plan_is_leaf(n);
}

/* A division for every element costs more than a copy: what a RESHAPE reads gets memory where the
 * way below it leaves one, in the order in which the RESHAPE traverses it. True when there was
 * any. */
static bool tci_plan_store_divided(const tci_lowered *low, tci_table *forced, tci_str *why)
{
    bool any = false;
    for (int i = 0; i < low->n_dividing; i++) {
        tci_node *n = low->dividing[i]->in[0];
        bool view = low->n_dividing <= TCI_PLAN_VIEWS && tci_plan_is_moved_leaf(n);
        if (!view && !tci_plan_is_leaf(n) && tci_table_add(forced, n)) {
            any = true;
            tci_str_printf(why, "%s gets memory: %s", tci_op_name(n->op),
                           tci_why_text(TCI_WHY_DIVISION));
            tci_why_end(why, NULL, n);
        }
    }
    return any;
}

/* A group that is worth it only as attention, as a kernel for which there is no form: its first
 * contraction is forced into memory, so that it is apart. True when it is one. */
static bool tci_plan_part(const tci_fusion *f, const tci_group *g, const tci_kernel *k,
                          tci_table *forced)
{
    int first = 0;
    while (f->roots[g->roots[first]].kind != TCI_ROOT_CONTRACT && first < g->n_roots - 1) {
        first++;
    }
    return g->on_unit && k->reds[0].order != TCI_ORDER_MATRIX && !tci_attention_is_simt(k) &&
           tci_table_add(forced, f->roots[g->roots[first]].node);
}

/* Takes memory from the layout ops between an operand of a contraction and x, which another kernel
 * stored to divide less, or which are outputs: the order of a unit follows from x. True when there
 * was any. */
static bool tci_plan_read_through(const tci_fusion *f, tci_node *operand, const tci_node *x,
                                  const tci_table *forced)
{
    bool any = false;
    for (tci_node *n = operand; n != x; n = n->in[0]) {
        bool stored = tci_table_has(forced, n) || tci_pnode_of(f, n)->is_output;
        any |= stored && tci_table_add(&f->units->through, n);
    }
    return any;
}

/* A group whose contraction has an order of a unit that has no form for the kernel: operands are
 * forced into memory as the order takes them, or, where they are, the contraction is cut from its
 * readers and siblings, as it is the whole kernel then. True when it is one that may be changed. */
static bool tci_plan_part_unit(const tci_fusion *f, const tci_group *g, const tci_lowered *low,
                               tci_table *forced, tci_table *cuts)
{
    bool any = false;
    for (int i = 0; i < g->n_roots && low->lacks_unit; i++) {
        const tci_root *r = &f->roots[g->roots[i]];
        bool contract = r->kind == TCI_ROOT_CONTRACT;
        for (int n = 0; n < (contract ? r->node->n_in : 0); n++) {
            tci_node *x = tci_class_operand_of(f, r->node->in[n]);
            any |= !tci_op_is(x->op, TCI_IS_MEMORY | TCI_IS_NUMBER) && tci_table_add(forced, x);
            any |= tci_plan_read_through(f, r->node->in[n], x, forced);
        }
        any |= contract && !any && tci_table_add(cuts, r->node);
    }
    return any;
}

/* A linked SCAN of more loads than registers hold of a part: what it runs over is forced into
 * memory. True when it is one. */
static bool tci_plan_part_scan(const tci_fusion *f, const tci_group *g, const tci_kernel *k,
                               tci_table *forced)
{
    const tci_kred *red = tci_kernel_earlier(k);
    int axis = red ? k->stages[red->stage].axes[0] : 0, loads = 0;
    for (int i = 0; red && i < k->n_insts; i++) {
        loads += k->insts[i].op == TCI_K_LOAD && (k->insts[i].axes >> TCI_MIN(axis, 63) & 1);
    }
    return red &&
           loads * tci_ceil_div(tci_kernel_known(k, axis), tci_kernel_lanes(k)) >
               TCI_CLASS_ROW_VECTORS &&
           tci_table_add(forced, tci_plan_source(f->roots[g->roots[0]].node->in[0]));
}

/* True if a kernel of scores can be scheduled. Each row that it keeps must be one line, since no
 * form packs axes with gaps; a GPU must have a form for it, and a CPU's matrix unit needs products
 * of bf16. */
static bool tci_plan_takes_pairs(const tci_kernel *k, tci_machine machine)
{
    bool half = false;
    for (int i = 0; i < k->n_operands; i++) {
        half |= tci_dtype_is_half((tc_dtype)k->operands[i].dtype);
    }
    bool lines = machine.block_threads > 0
                     ? tci_attention_fits(k, machine)
                     : !half || machine.matrix_units == 0 || tci_matrix_keeps(k, machine);
    for (int t = 0; t < k->n_stages; t++) {
        lines = lines && k->stages[t].n_kept <= 1;
    }
    return lines;
}

/* The text of a kernel that was lowered just now. */
static tci_plan_made tci_plan_printed(tci_scratch *s, const tci_kernel *k)
{
    tci_str text = {.s = s};
    tci_kernel_print(&text, k);
    return (tci_plan_made){k, tci_hash_bytes(text.text, text.n), text.text, NULL, NULL};
}

/* The step of group number `group` that a lowered kernel is. */
static void tci_plan_push_step(tci_scratch *s, tci_plan *p, tci_plan_texts *texts,
                               const tci_lowered *low, int group, const tci_plan_made *made)
{
    const tci_fusion *f = p->fusion;
    tci_kernel_need_dims(s, low->kernel); /* and not only where all is verified */
    tci_step step = {tci_plan_kernel_index(s, p, texts, low->kernel, made),
                     low->operand_buffers,
                     low->offsets,
                     TCI_NEW_ARRAY(s, int32_t, low->kernel->n_literals + 1),
                     group,
                     NULL,
                     NULL,
                     0};
    tci_plan_find_origins(s, f, &f->groups[group], &step);
    for (int j = 0; j < low->kernel->n_literals; j++) {
        step.literals[j] = tci_pnode_of(f, low->literals[j])->buffer;
    }
    TCI_PUSH(s, p->steps, p->n_steps, p->cap_steps, step);
    f->made[group] = *made;
}

/* Lowers group number `group` of p, or takes the kernel of an equal group of an earlier plan. */
static tci_lowered tci_plan_lower_group(tci_scratch *s, tci_plan *p, tci_plan_texts *texts,
                                        int group, tci_machine machine)
{
    tci_fusion *f = p->fusion;
    tci_lowered low;
    const tci_plan_made *found = tci_reuse_find(s, f, group, &low);
    if (found) {
        tci_plan_push_step(s, p, texts, &low, group, found);
        return low;
    }
    f->n_lowered++;
    low = tci_plan_lower(s, f, &f->groups[group], p, machine);
    tci_plan_made made = tci_plan_printed(s, low.kernel);
    if (!low.kernel->call) {
        tci_reuse_note(s, p, &low, &made);
    }
    tci_plan_push_step(s, p, texts, &low, group, &made);
    if (tci_plan_comm(p, p->n_steps - 1)) {
        low = tci_plan_lower_wait(s, f, &f->groups[group], p);
        made = tci_plan_printed(s, low.kernel);
        tci_plan_push_step(s, p, texts, &low, group, &made);
    }
    for (int r = 0; r < f->groups[group].n_roots; r++) {
        p->red_of[f->groups[group].roots[r]] = -1;
    }
    return low;
}

/* False: made in vain, some more values are forced into memory now, as `stored` says, or cut from
 * their readers; last: only those that an order of a unit asks for. */
static bool tci_plan_steps(const tci_repeat_maker *m, tci_plan *p, tci_fusion *f, bool last,
                           tci_table *forced, tci_table *cuts, tci_str *stored)
{
    tci_scratch *s = m->s;
    tci_machine machine = m->machine;
    tci_plan_texts texts = {0};
    bool any = false;
    f->made = TCI_NEW_ARRAY(s, tci_plan_made, f->n_groups + 1);
    p->red_of = TCI_NEW_ARRAY(s, int32_t, f->n_roots + 1);
    for (int i = 0; i < f->n_roots; i++) {
        p->red_of[i] = -1;
    }
    for (int i = 0; i < f->n_groups; i++) {
        const tci_group *g = &f->groups[f->order[i]];
        if (g->has_repeat) {
            tci_kernel *stands = tci_kernel_make(s);
            tci_step repeat = tci_repeat_step(m, p, f, g, stands);
            repeat.kernel = tci_plan_add_kernel(s, p, &texts, stands, "", (tci_hash){0, 0});
            repeat.group = f->order[i];
            TCI_PUSH(s, p->steps, p->n_steps, p->cap_steps, repeat);
            continue;
        }
        tci_lowered low = tci_plan_lower_group(s, p, &texts, f->order[i], machine);
        any |= !last && tci_plan_store_divided(&low, forced, stored);
        any |= !last && tci_plan_part(f, g, low.kernel, forced);
        any |= !last && tci_plan_part_scan(f, g, low.kernel, forced);
        any |= tci_plan_part_unit(f, g, &low, forced, cuts);
        if (g->kernel > 0 && !tci_plan_takes_pairs(low.kernel, machine)) {
            f->joined[g->kernel - 1] = false;
        }
    }
    return !any;
}

/* Inputs of a plan. */
typedef struct tci_plan_job {
    tci_repeat_maker maker;
    tci_node *const *inputs;
    int n_inputs;
    tci_node **outputs, **changed;
    int n_outputs;
    tci_table *forced;
    tci_table *cuts; /* set of values that no reader shares a kernel with (plan/fission.c) */
    tci_str *cut;    /* a line on each of them */
    tci_str *tried;  /* a line on each kernel that no cut makes cheaper */
    tci_prices *prices;
    const tci_fusion *like; /* of an earlier plan of the same graph; or NULL */
    const tci_table *late;  /* NULL: nothing is computed again */
    tci_scores_kernels *pairs;
    tci_unit_facts *units; /* as in tci_fusion */
    bool is_trial;         /* compared with another plan, then dropped: its reports are not read */
} tci_plan_job;

/* Outputs that a unit reads through are stored by another node, a RESHAPE to the same shape. */
static void tci_plan_show_outputs(const tci_plan_job *j)
{
    for (int i = 0; i < j->n_outputs && j->units; i++) {
        tci_node *n = j->outputs[i];
        if (tci_table_has(&j->units->through, n)) {
            j->outputs[i] = tci_graph_node(j->maker.g, TCI_OP_RESHAPE, (tc_dtype)n->dtype, n->rank,
                                           n->shape, 1, &n, 0, NULL);
            j->outputs[i]->site = n->site;
        }
    }
}

/* The groups and kernels of a plan that has its inputs and effects; *stored says which values got
 * memory. */
static void tci_plan_kernels(const tci_plan_job *j, tci_plan *p, tci_str *stored)
{
    const tci_repeat_maker *m = &j->maker;
    int n_buffers = p->n_buffers;
    size_t n_why = p->why.n;
    const tci_fusion *like = j->like;
    for (int round = 1;; round++) {
        tci_plan_show_outputs(j);
        tci_fusion *f = tci_plan_fuse(m->s, j->outputs, j->n_outputs, m->g->facts, like, j->forced,
                                      j->cuts, j->late, j->pairs, j->changed, p->n_assigns,
                                      m->machine, j->units, j->is_trial ? NULL : &p->why);
        p->fusion = f;
        like = f;
        tci_plan_leaf_buffers(p, f, m->literals, m->n_literals);
        tci_plan_root_buffers(m->s, p, f, j->outputs, j->n_outputs);
        if (tci_plan_steps(m, p, f, round >= TCI_PLAN_ROUNDS, j->forced, j->cuts, stored)) {
            break;
        }
        p->n_buffers = n_buffers;
        p->n_steps = p->n_kernels = 0;
        p->why.n = n_why;
    }
}

/* True if no matrix unit takes the contraction of step t, though one takes it by itself. */
static bool tci_plan_lacks_unit(const tci_plan *p, int t)
{
    const tci_step *step = &p->steps[t];
    const tci_kernel *k = p->kernels[step->kernel];
    return step->group >= 0 && k->n_reds > 0 &&
           !tci_plan_has_unit(p->fusion, &p->fusion->groups[step->group], k);
}

static int tci_plan_n_lack_unit(const tci_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n_steps; i++) {
        n += tci_plan_lacks_unit(p, i);
    }
    return n;
}

/* A line on each contraction that no matrix unit takes, though one does by itself. */
static void tci_plan_report_units(tci_plan *p)
{
    for (int i = 0; i < p->n_steps; i++) {
        if (tci_plan_lacks_unit(p, i)) {
            const tci_kernel *k = p->kernels[p->steps[i].kernel];
            tci_str_printf(&p->orders, "%s: ", k->name);
            tci_kernel_print_order(&p->orders, &k->reds[0]);
            tci_str_add(&p->orders, ", though a matrix unit takes its contraction by itself\n");
        }
    }
}

/* The same, with the order of its steps and their memory. */
static void tci_plan_fill(const tci_plan_job *j, tci_plan *p)
{
    const tci_repeat_maker *m = &j->maker;
    tci_str stored = {.s = m->s};
    tci_plan_kernels(j, p, &stored);
    for (int i = 0; i < p->n_steps && m->machine.reproducible; i++) {
        const tci_step *step = &p->steps[i];
        bool first = true; /* of this kernel */
        for (int j = 0; j < i && first; j++) {
            first = p->steps[j].kernel != step->kernel;
        }
        if (first) {
            tci_class_report(p->fusion, &p->fusion->groups[step->group], p->kernels[step->kernel],
                             m->machine, &p->orders);
        }
    }
    tci_plan_report_units(p);
    tci_str_add(&p->why, tci_str_text(&stored));
    tci_str_add(&p->why, tci_str_text(j->cut));
    tci_plan_init_section(m->s, p, j->inputs, j->n_inputs);
    tci_plan_memory(m->s, p, m->machine);
}

/* `to` is a plan from its beginning again, `start`. */
static void tci_plan_restart(tci_scratch *s, tci_plan *to, const tci_plan *start, const tci_plan *p)
{
    *to = *start;
    to->buffers = tci_scratch_copy(s, p->buffers, sizeof(*p->buffers) * (size_t)start->n_buffers);
    to->cap_buffers = start->n_buffers;
    to->why = to->orders = to->routes = to->again = (tci_str){.s = s};
    tci_str_printf(&to->why, "%.*s", (int)start->why.n, tci_str_text(&p->why));
    tci_str_printf(&to->orders, "%.*s", (int)start->orders.n, tci_str_text(&p->orders));
    tci_str_printf(&to->routes, "%.*s", (int)start->routes.n, tci_str_text(&p->routes));
}

static tci_table *tci_plan_copy_set(tci_scratch *s, const tci_table *set)
{
    tci_table *copy = TCI_NEW(s, tci_table);
    *copy = tci_table_copy_set(s, set);
    return copy;
}

/* Refuses kernel k, which was not joined, with other nodes in it, with several takers, and at last
 * its set: takers of copies have copies each then, and those without a form with these none. */
static void tci_plan_refuse_kernel(const tci_scores_kernel *k, bool blocks,
                                   tci_scores_refused *refused)
{
    if (blocks && !k->alone) {
        tci_table_add(&refused->alone, k->set);
    } else if (!k->copied) {
        tci_table_add(&refused->whole, k->set);
    } else if (!k->apart && k->n_takers > 1) {
        tci_table_add(&refused->joint, k->set);
    } else if (k->shares) {
        tci_table_add(&refused->shared, k->copied);
    }
    for (int t = 0; t < k->n_takers && k->alone && !k->shares; t++) {
        tci_table_add(&refused->takers, k->takers[t]);
    }
}

/* Refuses the sets of pairs one of whose kernels was not joined; false: all were. A set with a
 * kernel that sums several axes is tried by lines first. */
static bool tci_plan_refuse_pairs(const tci_plan_job *j, const tci_fusion *f,
                                  tci_scores_refused *refused)
{
    bool any = false;
    tci_table by_lines = tci_table_in(j->maker.s, sizeof(bool)); /* from this call on */
    for (int i = 0; i < j->pairs->n; i++) {
        const tci_scores_kernel *k = &j->pairs->items[i];
        bool several = (k->summed & (k->summed - 1)) != 0;
        if (several && !f->joined[i] && tci_table_add(&refused->lines, k->set)) {
            tci_table_add(&by_lines, k->set);
        }
    }
    for (int i = 0; i < j->pairs->n; i++) {
        const tci_scores_kernel *k = &j->pairs->items[i];
        any = any || !f->joined[i];
        if (!f->joined[i] && !tci_table_has(&by_lines, k->set)) {
            tci_plan_refuse_kernel(k, j->maker.machine.block_threads > 0, refused);
        }
    }
    return any;
}

/* A plan whose pairs are computed by each kernel that sums them, except pairs for which that
 * cannot be one kernel: found out by planning it. */
static void tci_plan_with_pairs(tci_plan_job *j, const tci_algo *a, const tci_plan *start,
                                tci_plan *p)
{
    tci_scratch *s = j->maker.s;
    tci_node **before = tci_scratch_copy(s, j->outputs, sizeof(tci_node *) * (size_t)j->n_outputs);
    tci_scores_refused refused = tci_scores_none(s);
    const tci_table *forced = j->forced;
    for (bool whole = false; !whole;) {
        tci_plan q;
        j->forced = tci_plan_copy_set(s, forced);
        tci_plan_restart(s, &q, start, p);
        for (int i = 0; i < j->n_outputs; i++) {
            j->outputs[i] = before[i];
        }
        *j->pairs = (tci_scores_kernels){.n = 0};
        tci_algo of = *a; /* what pairs force is this trial's too */
        of.forced = j->forced;
        tci_plan_pairs(&of, j->outputs, j->n_outputs, &refused, j->pairs);
        if (j->units) { /* with what was rebuilt over pairs */
            j->units->stored = tci_plan_copy_set(s, j->forced);
        }
        tci_plan_fill(j, &q);
        whole = !tci_plan_refuse_pairs(j, q.fusion, &refused);
        *p = q;
    }
}

/* The job in scratch s with more cuts: number `edge` of each suspect's values; -1: its best one. */
static tci_plan_job tci_plan_cut(tci_scratch *s, const tci_plan_job *job, const tci_suspect *list,
                                 int n, int edge)
{
    tci_plan_job j = *job;
    j.maker.s = s;
    j.forced = tci_plan_copy_set(s, job->forced);
    j.cuts = tci_plan_copy_set(s, job->cuts);
    for (int i = 0; i < n; i++) {
        int at = edge < 0 ? list[i].best : edge;
        if (at >= 0 && at < list[i].n_edges) {
            tci_table_add(j.cuts, list[i].edges[at]);
        }
    }
    return j;
}

/* True if each set of scores is one kernel. */
static bool tci_plan_is_joined(const tci_plan_job *j, const tci_fusion *f)
{
    bool joined = true;
    for (int i = 0; i < j->pairs->n; i++) {
        joined = joined && f->joined[i];
    }
    return joined;
}

/* True if a suspect has edge number `edge`. */
static bool tci_plan_has_edge(const tci_suspect *list, int n, int edge)
{
    bool has = false;
    for (int i = 0; i < n; i++) {
        has = has || edge < list[i].n_edges;
    }
    return has;
}

/* A line on each cut that is kept. */
static void tci_plan_report_cuts(const tci_plan_job *j, const tci_suspect *list, int n)
{
    for (int i = 0; i < n; i++) {
        if (list[i].best >= 0) {
            tci_str_printf(j->cut,
                           "%s gets memory: one kernel would take %.1f us by the model, several "
                           "%.1f us",
                           tci_op_name(list[i].edges[list[i].best]->op), list[i].before * 1e-3,
                           list[i].after * 1e-3);
            tci_why_end(j->cut, NULL, list[i].edges[list[i].best]);
        }
    }
}

/* A line on each suspect of p that stays whole, though trials said what its parts would take. */
static void tci_plan_report_trials(const tci_plan_job *j, const tci_plan *p,
                                   const tci_suspect *list, int n)
{
    for (int i = 0; i < n; i++) {
        const tci_suspect *s = &list[i];
        const tci_kernel *k = p->fusion->made[s->group].kernel;
        if (s->best < 0 && s->nearest >= 0) {
            tci_str_printf(j->tried,
                           "%s: %.1f us by the model as it is, %.1f us with %s in memory; best of "
                           "%d values tried\n",
                           k->name, s->kept * 1e-3, s->refused * 1e-3,
                           tci_op_name(s->edges[s->nearest]->op), s->n_tried);
        }
    }
}

/* Plans anew with number `edge` of each suspect's values cut, and compares. The memory of that is
 * freed again, as a large program has many trials. */
static void tci_plan_try(const tci_plan_job *j, const tci_plan *start, const tci_plan *p,
                         tci_suspect *list, int n, int edge)
{
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        tci_scratch_free(&s);
        tci_scratch_fail(j->maker.s, s.why, "%s", s.message);
    }
    tci_plan_job trial = tci_plan_cut(&s, j, list, n, edge);
    trial.like = p->fusion;
    trial.is_trial = true;
    tci_plan q;
    tci_str stored = {.s = &s};
    tci_plan_restart(&s, &q, start, p);
    tci_plan_kernels(&trial, &q, &stored);
    for (int i = 0; i < n && tci_plan_is_joined(j, q.fusion); i++) {
        if (edge < list[i].n_edges) {
            tci_price_try(&s, j->prices, p, &q, edge, &list[i]);
        }
    }
    tci_scratch_free(&s);
}

/* p, or a plan from its beginning, `start`, whose groups that cost more than their parts are cut
 * where that pays most. What is kept of the cuts is the job's from then on. */
static tci_plan *tci_plan_cheaper(tci_plan_job *j, const tci_plan *start, tci_plan *p)
{
    tci_scratch *s = j->maker.s;
    int trials = 0;
    for (int round = 0; round < TCI_PLAN_SPLITS; round++) {
        tci_suspect *list;
        int n = tci_price_suspects(j->prices, p, &list), kept = 0;
        for (int edge = 0; tci_plan_has_edge(list, n, edge) && trials < TCI_PLAN_TRIALS; edge++) {
            tci_plan_try(j, start, p, list, n, edge);
            trials++;
        }
        for (int i = 0; i < n; i++) {
            tci_price_settle(j->prices, p, &list[i]);
            kept += list[i].best >= 0;
        }
        tci_plan_report_trials(j, p, list, n);
        if (!n || trials == TCI_PLAN_TRIALS) {
            break;
        }
        if (!kept) {
            continue;
        }
        tci_plan_job cut = tci_plan_cut(s, j, list, n, -1);
        const size_t n_cut = j->cut->n;
        cut.like = p->fusion;
        tci_plan_report_cuts(j, list, n);
        tci_plan *q = TCI_NEW(s, tci_plan);
        tci_plan_restart(s, q, start, p);
        tci_plan_fill(&cut, q);
        if (!tci_plan_is_joined(j, q->fusion) || /* by each cut, not by all */
            tci_plan_n_lack_unit(q) > tci_plan_n_lack_unit(p)) {
            j->cut->n = n_cut;
            break;
        }
        *j = cut;
        p = q;
    }
    return p;
}

/* p planned anew from its beginning, `start`, with what waits in it computed again. NULL: nothing
 * is. */
static tci_plan *tci_plan_leaner(const tci_plan_job *job, const tci_plan *p, const tci_plan *start,
                                 bool all)
{
    tci_scratch *s = job->maker.s;
    tci_plan_job j = *job;
    tci_table late = tci_table_in(s, sizeof(bool));
    j.outputs = tci_scratch_copy(s, job->outputs, sizeof(tci_node *) * (size_t)job->n_outputs);
    j.late = &late;
    j.forced = tci_plan_copy_set(s, job->forced);
    tci_remat_result r = tci_plan_remat(s, j.maker.g, p, all, j.outputs, j.n_outputs, j.forced,
                                        j.pairs, &late);
    if (!r.n) {
        return NULL;
    }
    tci_plan *q = TCI_NEW(s, tci_plan);
    tci_plan_restart(s, q, start, p);
    tci_plan_fill(&j, q);
    if (!tci_plan_is_joined(&j, q->fusion) || tci_plan_n_lack_unit(q) > tci_plan_n_lack_unit(p)) {
        return NULL;
    }
    tci_str_printf(&q->again, "%d values, %.1f MB: a workspace of %.1f MB instead of %.1f MB\n",
                   r.n, r.bytes / 1e6, (double)q->arena_bytes / 1e6, (double)p->arena_bytes / 1e6);
    return q;
}

/* The one with the smallest workspace. */
static tci_plan *tci_plan_leanest(const tci_plan_job *j, tci_plan *p, const tci_plan *start,
                                  tc_remat remat)
{
    tci_plan *best = p;
    for (int mode = TC_REMAT_MINCUT; mode <= (int)remat; mode++) {
        tci_plan *q = tci_plan_leaner(j, p, start, mode == TC_REMAT_ALL);
        bool pays = q && q->arena_bytes < best->arena_bytes - best->arena_bytes / TCI_PLAN_LEANER;
        best = pays ? q : best;
    }
    if (best == p) {
        tci_str_add(&p->again, "nothing: the workspace would be no smaller\n");
    }
    return best;
}

/* True if the plan is known to need at most `limit` bytes. 0: no limit. */
static bool tci_plan_keeps_to(const tci_plan *p, int64_t limit)
{
    bool known = true;
    for (int b = 0; b < p->n_buffers; b++) {
        const tci_buffer *buffer = &p->buffers[b];
        known = known && (buffer->kind != TCI_BUF_TEMP || tci_dim_is_known(buffer->bytes));
    }
    return limit <= 0 || (known && p->arena_bytes + p->kept_bytes <= limit);
}

/* The plan of a job's outputs. p has the buffers of inputs, and effects. */
static tci_plan *tci_plan_of(tci_plan_job job, tci_plan *p, tc_remat remat)
{
    const tci_repeat_maker *m = &job.maker;
    tci_scratch *s = m->s;
    tci_table forced = tci_table_in(s, sizeof(bool));
    job.outputs = tci_scratch_copy(s, job.outputs, sizeof(tci_node *) * (size_t)job.n_outputs);
    tci_repeat_find(s, p, m->g, job.outputs, job.n_outputs, job.inputs, job.n_inputs, &forced,
                    m->machine);
    tci_table takers = tci_table_in(s, sizeof(bool)), images = tci_table_in(s, sizeof(bool));
    bool varies = p->n_assigns > 0; /* from run to run: else nothing is worth keeping */
    for (int i = 0; i < job.n_inputs; i++) {
        varies = varies || job.inputs[i]->op == TCI_OP_INPUT;
    }
    tci_table *panels = TCI_NEW(s, tci_table);
    *panels = tci_table_in(s, sizeof(int32_t));
    p->panels = panels;
    tci_algo algorithm = {.s = s,
                          .g = m->g,
                          .machine = m->machine,
                          .orders = &p->orders,
                          .routes = &p->routes,
                          .contests = &p->contests,
                          .forced = &forced,
                          .associations = m->g->facts,
                          .changed = job.changed,
                          .n_changed = p->n_assigns,
                          .whole = &takers,
                          .images = &images,
                          .panels = varies && !m->machine.no_prepack ? panels : NULL};
    tci_plan_layout(&algorithm, job.outputs, job.n_outputs);
    tci_scores_keep_whole(&algorithm, job.outputs, job.n_outputs);
    tci_plan_algorithm(&algorithm, job.outputs, job.n_outputs);
    tci_scores_kernels pairs = {.n = 0};
    tci_unit_facts *units = TCI_NEW(s, tci_unit_facts); /* which the plan's groups keep */
    *units = (tci_unit_facts){NULL, tci_table_in(s, sizeof(int32_t)),
                              tci_table_in(s, sizeof(bool))};
    job.units = m->machine.block_threads > 0 && !m->machine.reproducible ? units : NULL;
    job.forced = &forced;
    job.pairs = &pairs;
    tci_table cuts = tci_table_in(s, sizeof(bool));
    tci_str cut = {.s = s}, tried = {.s = s};
    tci_prices prices = {s, m->machine, 0, NULL, 0, 0};
    job.cuts = &cuts;
    job.cut = &cut;
    job.tried = &tried;
    job.prices = &prices;
    const tci_plan start = *p;
    tci_plan_with_pairs(&job, &algorithm, &start, p);
    p = m->machine.no_fusion ? p : tci_plan_cheaper(&job, &start, p);
    p = remat != TC_REMAT_NONE ? tci_plan_leanest(&job, p, &start, remat) : p;
    p->tried = tried;
    tci_plan_report_regions(s, m->g, p);
    return p;
}

/* The plan of a graph whose facts are known. */
static tci_plan *tci_plan_make_known(tci_scratch *s, tci_graph *g, tci_node *const *inputs,
                                     int n_inputs, tci_node *const *literals, int n_literals,
                                     tci_node *const *roots, int n_roots, tci_machine machine)
{
    tci_plan *p = TCI_NEW(s, tci_plan), *again = TCI_NEW(s, tci_plan);
    p->why.s = s;
    p->orders.s = s;
    p->routes.s = s;
    p->again.s = s;
    tci_node **outputs = tci_scratch_copy(s, roots, sizeof(tci_node *) * (size_t)n_roots);
    tci_node **changed = TCI_NEW_ARRAY(s, tci_node *, n_roots + 1);
    for (int i = 0; i < n_inputs; i++) {
        tci_plan_add_buffer(s, p, TCI_BUF_INPUT, inputs[i], i, tci_plan_leaf_extent(inputs[i]));
    }
    for (int i = 0; i < n_roots; i++) {
        if (tci_op_is(outputs[i]->op, TCI_IS_EFFECT)) {
            tci_alias assign = {i, tci_plan_leaf_buffer(p, outputs[i]->in[0])};
            changed[p->n_assigns] = outputs[i]->in[0];
            TCI_PUSH(s, p->assigns, p->n_assigns, p->cap_assigns, assign);
            outputs[i] = outputs[i]->in[1];
        }
        outputs[i] = tci_plan_source(outputs[i]); /* it is in memory without a copy */
    }
    const tc_remat remat = machine.remat;
    const int64_t limit = machine.memory_limit;
    machine.remat = TC_REMAT_NONE; /* what a loop computes waits for nothing */
    machine.memory_limit = 0;      /* it is the whole plan's */
    const tci_plan_job job = {.maker = {s, g, literals, n_literals, machine},
                              .inputs = inputs,
                              .n_inputs = n_inputs,
                              .outputs = outputs,
                              .changed = changed,
                              .n_outputs = n_roots};
    const tci_algo bands = {.s = s, .g = g, .machine = machine};
    tci_plan_restart(s, again, p, p);
    p = tci_plan_of(job, p, remat);
    p = tci_plan_chunked_attention(&bands, p, outputs, n_roots) ? tci_plan_of(job, again, remat)
                                                                : p;
    if (p->panels->pages && !tci_plan_keeps_to(p, limit)) {
        machine.remat = remat;
        machine.no_prepack = true;
        return tci_plan_make_known(s, g, inputs, n_inputs, literals, n_literals, roots, n_roots,
                                   machine);
    }
    return p;
}

/* On a CPU the association classes are decided here, before anything else; on machines of
 * blocks where they are first asked for, of the graph that groups are made of, except how
 * transposes of contractions count. A body of a loop finds those of the plan around it. */
TCI_FN tci_plan *tci_plan_make(tci_scratch *s, tci_graph *g, tci_node *const *inputs, int n_inputs,
                               tci_node *const *literals, int n_literals, tci_node *const *roots,
                               int n_roots, tci_machine machine)
{
    tci_table found = tci_table_in(s, sizeof(tci_association)), *before = g->facts;
    if (!machine.reproducible) {
        g->facts = before ? before : &found;
    }
    if (!machine.reproducible) {
        tci_association_find(s, g->facts, roots, n_roots, machine.block_threads > 0);
    }
    tci_plan *p = tci_plan_make_known(s, g, inputs, n_inputs, literals, n_literals, roots, n_roots,
                                      machine);
    g->facts = before;
    return p;
}
