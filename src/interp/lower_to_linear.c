/* interp/lower_to_linear.c - lowers a kernel from kernel IR to the interpreter's linear program:
 * steps grouped by loop level, and a workspace layout.
 *
 * In: kernel IR. Out: struct tci_interp (interp/linear_ir.h): sections of steps and the workspace
 * layout. Three passes: instructions become nodes (interp/lower_to_value_nodes.c,
 * interp/legalize.c); the dependencies of each node determine the section (or sections) that
 * evaluates it (interp/hoist.c); each section's nodes become steps (interp/linear_ir.c), and values
 * get memory by liveness (interp/value_memory.c); strided operands that many points share get
 * panels (interp/pack_operands.c), and contractions strips (interp/contraction_strip.c). */
#include "lower_to_linear.h"

/* Axes along which the ranges of stages differ: a block has one range. */
static uint64_t tci_prep_stretch_axes(const tci_prep *b)
{
    uint64_t axes = 0;
    for (int s = 0; s < b->k->n_stages; s++) {
        const tci_kstage *st = &b->k->stages[s];
        axes |= st->from >= 0 ? b->k->kx[st->from].axes | b->k->kx[st->to].axes : 0;
    }
    return axes;
}

static bool tci_prep_is_among(uint64_t axes, int axis)
{
    return axes >> TCI_MIN(axis, 63) & 1;
}

/* The outer axes in their order; but where blocks along the last one would be so short that
 * starting a step costs more than its lanes do, the longest axis comes last instead. */
static void tci_prep_walk(tci_prep *b)
{
    tci_interp *p = b->p;
    const int last = p->n_outer - 1;
    int longest = last;
    p->walk = TCI_NEW_ARRAY(b->s, int32_t, p->n_outer + 1);
    for (int i = last; i >= 0; i--) {
        longest = p->sizes[i] > p->sizes[longest] ? i : longest;
    }
    if (last < 0 || p->inner || p->sizes[last] >= 32 || p->sizes[longest] < 4 * p->sizes[last]) {
        longest = last;
    }
    uint64_t apart = tci_prep_stretch_axes(b);
    for (int i = last; i >= 0 && longest >= 0 && tci_prep_is_among(apart, longest); i--) {
        longest = tci_prep_is_among(apart, i) ? longest : i;
    }
    p->most = longest >= 0 && tci_prep_is_among(apart, longest) ? 1 : TCI_INTERP_BLOCK;
    int n = 0;
    for (int i = 0; i <= last; i++) {
        if (i != longest) {
            p->walk[n++] = i;
        }
    }
    if (last >= 0) {
        p->walk[n] = longest;
    }
}

static void tci_prep_shape(tci_prep *b)
{
    const tci_kernel *k = b->k;
    tci_interp *p = b->p;
    p->inner = k->vector == TCI_VEC_INNER;
    p->vlanes = tci_kernel_lanes(k);
    p->near = tci_kernel_near(k);
    p->n_axes = k->n_axes;
    p->n_outer = k->n_outer;
    p->n_stages = k->n_stages;
    p->n_reds = k->n_reds;
    p->n_operands = k->n_operands;
    p->sizes = TCI_NEW_ARRAY(b->s, int64_t, k->n_axes + 1);
    p->operand_n = TCI_NEW_ARRAY(b->s, int64_t, k->n_operands + 1);
    p->reds = TCI_NEW_ARRAY(b->s, tci_interp_red, k->n_reds + 1);
    p->stages = TCI_NEW_ARRAY(b->s, tci_interp_stage, k->n_stages + 1);
    p->before = TCI_NEW_ARRAY(b->s, tci_interp_section, k->n_stages + 1);
    p->points = 1;
    for (int i = 0; i < k->n_axes; i++) {
        p->sizes[i] = tci_dim_known(k->axes[i].size);
        p->points *= i < k->n_outer ? tci_dim_known(k->axes[i].size) : 1;
    }
    for (int i = 0; i < k->n_operands; i++) {
        p->operand_n[i] = tci_dim_known(k->operands[i].n);
    }
    for (int s = 0; s < k->n_stages; s++) {
        const tci_kstage *from = &k->stages[s];
        tci_interp_stage *st = &p->stages[s];
        st->kind = from->kind;
        st->n_axes = from->n_axes;
        st->n_kept = from->n_kept;
        if (!tci_kernel_copies(k, s, &st->from_operand, &st->to_operand)) {
            st->from_operand = st->to_operand = -1;
        }
        st->axes = tci_scratch_copy(b->s, from->axes, sizeof(int32_t) * (size_t)from->n_axes);
        st->sections = TCI_NEW_ARRAY(b->s, tci_interp_section, from->n_axes + 1);
    }
}

/* Points per task: some thousand elements, and whole blocks if that leaves enough tasks; a row, if
 * parts need the prefix totals of earlier ones. */
static void tci_prep_grain(tci_interp *p, const tci_kernel *k)
{
    int64_t work = 1;
    for (int s = 0; s < p->n_stages; s++) {
        int64_t size = 1;
        for (int i = 0; i < p->stages[s].n_axes && size < ((int64_t)1 << 40); i++) {
            size *= TCI_MAX(p->sizes[p->stages[s].axes[i]], 1);
        }
        work = TCI_MAX(work, size);
    }
    int64_t grain = TCI_MAX(4096 / work, 1);
    if (!p->inner && p->n_outer > 0) {
        int64_t last = p->sizes[p->walk[p->n_outer - 1]];
        int64_t whole = TCI_MIN(last, (int64_t)p->block);
        int64_t least = p->points / TCI_MAX(whole, 1) >= 16
                            ? whole
                            : TCI_MIN(whole, TCI_MAX(p->points / 16, 32));
        grain = TCI_MAX(grain, least);
    }
    grain = p->has_panels ? tci_prep_panel_grain(p) : TCI_MAX(grain, 1);
    p->grain = tci_kernel_earlier(k) ? tci_kernel_parts(k) : grain;
}

TCI_FN void tci_interp_prepare(tci_interp *p, const tci_kernel *k)
{
    tci_prep *b = TCI_NEW(&p->s, tci_prep);
    b->s = &p->s;
    b->k = k;
    b->p = p;
    tci_prep_shape(b);
    tci_prep_walk(b);
    tci_prep_nodes(b);
    tci_prep_derive(b);
    tci_prep_needs(b);
    b->outer_value = TCI_NEW_ARRAY(b->s, int32_t, b->n_nodes + 1);
    b->stage_value = TCI_NEW_ARRAY(b->s, int32_t, b->n_nodes + 1);
    b->addr = TCI_NEW_ARRAY(b->s, tci_interp_addr *, k->n_kx + 1);
    b->block = TCI_NEW_ARRAY(b->s, int32_t, k->n_kx + 1);
    for (int node = 0; node < b->n_nodes; node++) {
        b->outer_value[node] = -1;
    }
    tci_prep_reds(b);
    tci_prep_outer(b, &p->constants, -1);
    for (int r = 0; r < k->n_reds; r++) {
        tci_prep_join(b, r);
    }
    for (int s = 0; s < k->n_stages; s++) {
        tci_prep_outer(b, &p->before[s], s);
        tci_prep_stage(b, s);
    }
    tci_prep_mark_all(b);
    p->n_values = b->n_values;
    p->values = b->values;
    tci_prep_memory(b);
    p->values = b->values;
    tci_prep_panels(b);
    tci_prep_strips(b);
    tci_prep_grain(p, k);
}
