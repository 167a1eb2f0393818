/* plan/verify.c - checks the invariants of plan/fusion_groups.h and plan/plan.h; a violation aborts
 * the compile with TC_ERR_INTERNAL. Conditions on symbolic sizes are not checked. */
#include "fusion_cost.h"
#include "fusion_groups.h"
#include "fusion_refusal.h"

/* ---- roots ---- */

static bool tci_fusion_is_stored(const tci_root *r)
{
    return r->buffer >= 0 || r->n_outputs > 0;
}

/* Where read r is in the group of q, it keeps the index of the outer axes. */
static void tci_fusion_verify_inside(tci_scratch *s, const tci_root *r, const tci_read *read,
                                     const tci_root *q)
{
    TCI_ASSERT(s, read->pure && q->kind != TCI_ROOT_SCAN);
    for (int a = 0; a < q->node->rank; a++) {
        int outer = q->outer_of[q->out_axis[a]];
        TCI_ASSERT(s, outer < 0 || read->axes[a] < 0 || r->outer_of[read->axes[a]] == outer);
        bool keeps = r->inner_of && read->axes[a] >= 0;
        TCI_ASSERT(s, !keeps || q->inner_of[q->out_axis[a]] == r->inner_of[read->axes[a]]);
    }
}

static void tci_fusion_verify_reads(tci_scratch *s, const tci_fusion *f, int root)
{
    const tci_root *r = &f->roots[root];
    for (int i = 0; i < r->n_leaves; i++) {
        TCI_ASSERT(s, tci_plan_is_leaf(r->leaves[i]));
    }
    for (int i = 0; i < r->n_reads; i++) {
        const tci_read *read = &r->reads[i];
        TCI_ASSERT(s, read->root >= 0 && read->root < root);
        const tci_root *q = &f->roots[read->root];
        TCI_ASSERT(s, q->node == read->node);
        for (int a = 0; a < q->node->rank; a++) {
            TCI_ASSERT(s, read->axes[a] >= -1 && read->axes[a] < r->n_domain);
        }
        TCI_ASSERT(s, q->group == r->group || tci_fusion_is_stored(q));
        if (q->group == r->group) {
            tci_fusion_verify_inside(s, r, read, q);
        }
    }
    for (int i = 0; i < tci_root_n_before(r); i++) {
        int other = f->roots[tci_root_before(f, r, i)].group;
        bool depends = other == r->group;
        for (int d = 0; d < f->groups[r->group].n_deps; d++) {
            depends |= f->groups[r->group].deps[d] == other;
        }
        TCI_ASSERT(s, depends);
    }
}

/* Each outer axis is traversed once, unless its size is 1. In order, but by copies in another
 * layout of what a group that keeps rows makes. */
static void tci_fusion_verify_walk(tci_scratch *s, const tci_root *r, const tci_group *g)
{
    int last = -1;
    for (int d = 0; d < r->n_domain; d++) {
        int outer = r->outer_of[d];
        TCI_ASSERT(s, outer >= -1 && outer < g->n_outer);
        TCI_ASSERT(s, outer < 0 || (r->domain[d] == g->outer[outer] && (outer > last || g->keeps)));
        last = outer < 0 ? last : outer;
    }
    for (int o = 0; o < g->n_outer; o++) {
        int walks = 0;
        for (int d = 0; d < r->n_domain; d++) {
            walks += r->outer_of[d] == o;
        }
        TCI_ASSERT(s, walks == 1 || (walks == 0 && g->outer[o] == 1));
    }
}

static void tci_fusion_verify_root(tci_scratch *s, const tci_fusion *f, int root)
{
    const tci_root *r = &f->roots[root];
    TCI_ASSERT(s, r->group >= 0 && r->group < f->n_groups);
    TCI_ASSERT(s, r->n_out >= 0 && r->n_out <= r->n_domain);
    for (int a = 0; a < r->node->rank; a++) {
        TCI_ASSERT(s, r->out_axis[a] >= 0 && r->out_axis[a] < r->n_domain);
        bool parts = tci_root_parts(r->node) != 0 && a == r->node->attr[0];
        tci_dim size = parts ? r->domain[r->n_domain - 1] : 1;
        size = tci_dim_mul(size, r->listed[a]);
        TCI_ASSERT(s, tci_dim_mul(r->domain[r->out_axis[a]], size) == r->node->shape[a]);
    }
    TCI_ASSERT(s, r->kind != TCI_ROOT_VALUE || tci_pnode_of(f, r->node)->forced);
    TCI_ASSERT(s, (r->inner_of != NULL) == f->groups[r->group].keeps);
    for (int d = 0; d < r->n_domain && r->inner_of; d++) {
        const tci_group *g = &f->groups[r->group];
        int inner = r->inner_of[d];
        TCI_ASSERT(s, inner >= -1 && inner < g->n_inner);
        TCI_ASSERT(s, inner < 0 || (r->outer_of[d] < 0 && g->inner[inner] == r->domain[d]));
        TCI_ASSERT(s, inner >= 0 || r->outer_of[d] >= 0 || r->domain[d] == 1);
    }
    TCI_ASSERT(s, !r->is_output || tci_fusion_is_stored(r));
    TCI_ASSERT(s, tci_pnode_of(f, r->node)->why <= TCI_WHY_COUNT);
    tci_fusion_verify_walk(s, r, &f->groups[r->group]);
    tci_fusion_verify_reads(s, f, root);
}

/* ---- groups ---- */

static void tci_fusion_verify_group(tci_scratch *s, const tci_fusion *f, int group, int *times)
{
    const tci_group *g = &f->groups[group];
    int last = -1, weight = TCI_COST_KERNEL_OPS, operands = TCI_COST_KERNEL_OPERANDS;
    bool kinds[TCI_ROOT_KINDS] = {false};
    TCI_ASSERT(s, g->n_roots > 0 && (g->n_roots <= TCI_GROUP_MAX_ROOTS || g->has_repeat));
    for (int i = 0; i < g->n_roots; i++) {
        TCI_ASSERT(s, g->roots[i] > last && g->roots[i] < f->n_roots);
        last = g->roots[i];
        times[last]++;
        const tci_root *r = &f->roots[last];
        TCI_ASSERT(s, r->group == group);
        kinds[r->kind] = true;
        weight = TCI_MAX(weight, r->weight);
        operands = TCI_MAX(operands, r->n_operands);
    }
    TCI_ASSERT(s, g->has_reduce == kinds[TCI_ROOT_REDUCE]);
    TCI_ASSERT(s, g->has_contract == kinds[TCI_ROOT_CONTRACT]);
    TCI_ASSERT(s, g->has_scan == kinds[TCI_ROOT_SCAN]);
    TCI_ASSERT(s, g->has_scatter == kinds[TCI_ROOT_SCATTER]);
    TCI_ASSERT(s, g->has_repeat == kinds[TCI_ROOT_REPEAT]);
    for (int k = TCI_ROOT_VALUE; k < TCI_ROOT_REPEAT; k++) {
        TCI_ASSERT(s, !g->has_repeat || !kinds[k]);
    }
    TCI_ASSERT(s, g->has_reduce + g->has_contract + g->has_scatter <= 1 || g->keeps);
    TCI_ASSERT(s, !g->has_scan || !(g->has_contract || g->has_scatter));
    TCI_ASSERT(s, (!g->has_scatter && !kinds[TCI_ROOT_CUSTOM]) || g->n_roots == 1);
    TCI_ASSERT(s, !g->keeps || (g->has_contract && !g->has_scan && !g->has_scatter));
    TCI_ASSERT(s, g->has_repeat || (g->weight <= weight && g->n_operands <= operands));
}

/* A group depends on what its roots read from others or wait for, and on nothing else. */
static void tci_fusion_verify_deps(tci_scratch *s, const tci_fusion *f, int group)
{
    const tci_group *g = &f->groups[group];
    for (int d = 0; d < g->n_deps; d++) {
        bool reads = false;
        for (int e = 0; e < d; e++) {
            TCI_ASSERT(s, g->deps[e] != g->deps[d]);
        }
        for (int i = 0; i < g->n_roots; i++) {
            const tci_root *r = &f->roots[g->roots[i]];
            for (int j = 0; j < tci_root_n_before(r); j++) {
                reads |= f->roots[tci_root_before(f, r, j)].group == g->deps[d];
            }
        }
        TCI_ASSERT(s, reads && g->deps[d] != group);
    }
}

static void tci_fusion_verify_refusal(tci_scratch *s, const tci_fusion *f, const tci_refusal *r)
{
    int reader = tci_pnode_of(f, r->reader)->root, source = tci_pnode_of(f, r->source)->root;
    TCI_ASSERT(s, r->why < TCI_WHY_COUNT);
    TCI_ASSERT(s, reader >= 0 && reader < f->n_roots && source >= 0 && source < f->n_roots);
    TCI_ASSERT(s, f->roots[reader].group != f->roots[source].group);
}

TCI_FN void tci_fusion_verify(tci_scratch *s, const tci_fusion *f)
{
    int *times = TCI_NEW_ARRAY(s, int, f->n_roots + 1);
    bool *done = TCI_NEW_ARRAY(s, bool, f->n_groups + 1);
    for (int g = 0; g < f->n_groups; g++) {
        tci_fusion_verify_group(s, f, g, times);
    }
    for (int r = 0; r < f->n_roots; r++) {
        TCI_ASSERT(s, times[r] == 1);
        tci_fusion_verify_root(s, f, r);
    }
    for (int i = 0; i < f->n_groups; i++) {
        int g = f->order[i];
        TCI_ASSERT(s, g >= 0 && g < f->n_groups && !done[g]);
        for (int d = 0; d < f->groups[g].n_deps; d++) {
            TCI_ASSERT(s, done[f->groups[g].deps[d]]);
        }
        done[g] = true;
    }
    for (int g = 0; g < f->n_groups; g++) {
        tci_fusion_verify_deps(s, f, g);
    }
    for (int i = 0; i < f->n_refusals; i++) {
        tci_fusion_verify_refusal(s, f, &f->refusals[i]);
    }
}

/* ---- plans ---- */

static void tci_plan_verify_operand(tci_scratch *s, const tci_buffer *b, const tci_koperand *o,
                                    tci_dim offset)
{
    int bytes = tci_dtype_get((tc_dtype)b->dtype)->bytes;
    TCI_ASSERT(s, b->dtype == o->dtype);
    TCI_ASSERT(s, tci_dim_le(0, offset) && tci_dim_divides(TCI_ALIGNED_BYTES, offset));
    TCI_ASSERT(s, tci_dim_divides(bytes, offset));
    TCI_ASSERT(s, b->n == o->n || (!o->is_output && tci_dim_is_known(o->n)));
    TCI_ASSERT(s, b->n == o->n || tci_dim_le(tci_dim_add(o->n, tci_dim_div(offset, bytes)), b->n));
    TCI_ASSERT(s, b->n != o->n || offset == 0);
}

/* Range of the moves of operand o of step t, in bytes, in both directions; false: unknown. */
static bool tci_plan_verify_moves(tci_scratch *s, const tci_plan *p, int t, int o, int64_t *least,
                                  int64_t *most)
{
    bool known = true;
    for (int i = 0; i < p->n_spans; i++) {
        const tci_span *span = &p->spans[i];
        for (int m = span->first_move; m < span->first_move + span->n_moves; m++) {
            const tci_move *move = &p->moves[m];
            TCI_ASSERT(s, span->first <= move->step && move->step < span->last);
            if (move->step != t || move->operand != o) {
                continue;
            }
            known = known && tci_dim_is_known(move->by) && tci_dim_is_known(span->rounds);
            int64_t by = known ? tci_dim_known(move->by) : 0;
            int64_t way = known && !move->back ? by * (tci_dim_known(span->rounds) - 1) : by;
            *least += TCI_MIN(way, 0);
            *most += TCI_MAX(way, 0);
        }
    }
    return known;
}

/* Of a step of a loop, or one before it: in its buffer in all rounds. */
static void tci_plan_verify_moved(tci_scratch *s, const tci_plan *p, int t, int o)
{
    const tci_step *step = &p->steps[t];
    const tci_koperand *operand = &p->kernels[step->kernel]->operands[o];
    const tci_buffer *b = &p->buffers[step->operands[o]];
    int64_t least = 0, most = 0, unit = tci_dtype_get(operand->dtype)->bytes;
    tci_dim offset = step->offsets[o];
    if (tci_plan_verify_moves(s, p, t, o, &least, &most) && tci_dim_is_known(offset)) {
        tci_dim end = tci_dim_add(tci_dim_add(offset, most), tci_dim_mul(operand->n, unit));
        TCI_ASSERT(s, tci_dim_le(0, tci_dim_add(offset, least)));
        TCI_ASSERT(s, tci_dim_divides(unit, tci_dim_add(offset, least)));
        TCI_ASSERT(s, tci_dim_le(end, b->bytes));
    }
}

static bool tci_plan_is_repeated(const tci_plan *p, int t)
{
    bool repeated = false;
    for (int i = 0; i < p->n_spans; i++) {
        repeated = repeated || (p->spans[i].enter <= t && t < p->spans[i].last);
    }
    return repeated;
}

static void tci_plan_verify_spans(tci_scratch *s, const tci_plan *p)
{
    for (int i = 0; i < p->n_spans; i++) {
        const tci_span *x = &p->spans[i];
        TCI_ASSERT(s, p->n_init <= x->enter && x->enter <= x->first && x->first <= x->last);
        TCI_ASSERT(s, x->last <= p->n_steps && i + x->n_within < p->n_spans);
        TCI_ASSERT(s, tci_dim_le(0, x->rounds));
        TCI_ASSERT(s, x->first_move >= 0 && x->first_move + x->n_moves <= p->n_moves);
        TCI_ASSERT(s, x->first_turn >= 0 && x->first_turn + x->n_turns <= p->n_turns);
        TCI_ASSERT(s, x->stops < TCI_MAX(x->n_turns, 1));
        for (int k = x->first_turn; k < x->first_turn + x->n_turns; k++) {
            TCI_ASSERT(s, x->enter <= p->turns[k].step && p->turns[k].step < x->first);
        }
        for (int k = i + 1; k < p->n_spans; k++) {
            const tci_span *y = &p->spans[k];
            TCI_ASSERT(s, k <= i + x->n_within ? x->first <= y->enter && y->last <= x->last
                                               : x->last <= y->enter);
        }
    }
}

static void tci_plan_verify_step(tci_scratch *s, const tci_plan *p, int t, bool *written)
{
    const tci_step *step = &p->steps[t];
    bool repeated = tci_plan_is_repeated(p, t);
    TCI_ASSERT(s, step->kernel >= 0 && step->kernel < p->n_kernels);
    const tci_kernel *k = p->kernels[step->kernel];
    tci_kernel_verify(s, k);
    TCI_ASSERT(s, step->group < 0 || k->n_members > 0 ||
                      tci_plan_has_unit(p->fusion, &p->fusion->groups[step->group], k));
    for (int o = 0; o < k->n_operands; o++) {
        int b = step->operands[o];
        TCI_ASSERT(s, b >= 0 && b < p->n_buffers);
        if (repeated) {
            tci_plan_verify_moved(s, p, t, o);
        } else {
            tci_plan_verify_operand(s, &p->buffers[b], &k->operands[o], step->offsets[o]);
        }
        TCI_ASSERT(s,
                   k->operands[o].is_output || p->buffers[b].kind == TCI_BUF_INPUT || written[b]);
        TCI_ASSERT(s, !k->operands[o].is_output || p->buffers[b].kind != TCI_BUF_INPUT);
    }
    for (int o = 0; o < k->n_operands; o++) {
        written[step->operands[o]] |= k->operands[o].is_output;
    }
}

/* Verifies values that no run gives or changes, and memory that only the init section writes. */
static void tci_plan_verify_once(tci_scratch *s, const tci_plan *p, int t)
{
    const tci_step *step = &p->steps[t];
    const tci_kernel *k = p->kernels[step->kernel];
    for (int o = 0; o < k->n_operands; o++) {
        const tci_buffer *b = &p->buffers[step->operands[o]];
        if (t >= p->n_init) {
            TCI_ASSERT(s, b->kind != TCI_BUF_KEPT || !k->operands[o].is_output);
            TCI_ASSERT(s, b->kind != TCI_BUF_TEMP || !b->once);
            continue;
        }
        TCI_ASSERT(s, b->kind != TCI_BUF_OUTPUT && !k->faults);
        TCI_ASSERT(s, b->kind != TCI_BUF_INPUT || b->node->op == TCI_OP_DATA);
        TCI_ASSERT(s, b->kind == TCI_BUF_INPUT || b->once);
        for (int i = 0; i < p->n_assigns; i++) {
            TCI_ASSERT(s, b->kind != TCI_BUF_INPUT || p->assigns[i].input != b->index);
        }
    }
}

static bool tci_plan_is_placed(const tci_plan *p)
{
    bool placed = true; /* where one size is symbolic, none is */
    for (int b = 0; b < p->n_buffers; b++) {
        bool is_temp = p->buffers[b].kind == TCI_BUF_TEMP;
        placed = placed && (!is_temp || tci_dim_is_known(p->buffers[b].bytes));
    }
    return placed;
}

/* In the arena, or in the program's memory; and values alive at once do not overlap. */
static void tci_plan_verify_place(tci_scratch *s, const tci_plan *p, int a)
{
    const tci_buffer *x = &p->buffers[a];
    bool is_kept = x->kind == TCI_BUF_KEPT;
    if ((x->kind != TCI_BUF_TEMP && !is_kept) || x->last < 0) {
        return;
    }
    TCI_ASSERT(s, x->offset >= 0 && x->offset % 64 == 0);
    const int64_t end = x->offset + tci_dim_known(x->bytes);
    TCI_ASSERT(s, end <= (is_kept ? p->kept_bytes : tci_dim_known(p->arena_bytes)));
    for (int b = 0; b < a; b++) {
        const tci_buffer *y = &p->buffers[b];
        bool together = y->kind == x->kind &&
                        (is_kept || (x->first <= y->last && y->first <= x->last));
        TCI_ASSERT(s, !together || end <= y->offset || x->bytes == 0 || y->bytes == 0 ||
                          y->offset + tci_dim_known(y->bytes) <= x->offset);
    }
}

TCI_FN void tci_plan_verify(tci_scratch *s, const tci_plan *p)
{
    bool *written = TCI_NEW_ARRAY(s, bool, p->n_buffers + 1);
    bool placed = tci_plan_is_placed(p);
    tci_fusion_verify(s, p->fusion);
    for (int t = 0; t < p->n_steps; t++) {
        tci_plan_verify_step(s, p, t, written);
        tci_plan_verify_once(s, p, t);
    }
    TCI_ASSERT(s, p->n_init >= 0 && p->n_init <= p->n_steps);
    tci_plan_verify_spans(s, p);
    for (int b = 0; b < p->n_buffers; b++) {
        TCI_ASSERT(s, p->buffers[b].kind != TCI_BUF_OUTPUT || written[b]);
        if (placed) {
            tci_plan_verify_place(s, p, b);
        }
    }
}
