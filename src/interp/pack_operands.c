/* interp/pack_operands.c - packs strided operands of a reduction into contiguous panels that many
 * output elements share, as GEMM packs its B.
 *
 * In: a prepared kernel. Out: panels for loads of an innermost section whose lanes are in different
 * cache lines and which depend on the lanes and the stage's axes alone, such as the filters of a
 * convolution whose lanes are output channels. The thread that evaluates a chunk of lanes gathers
 * each panel when it enters the chunk (interp/execute.c), and all outer iterations of the chunk
 * then read it as contiguous memory. Values and their order stay as they are. */
#include "lower_to_linear.h"

enum {
    TCI_PANEL_BYTES = 1 << 22, /* of all panels of a kernel, at most */
    TCI_PANEL_USES = 4,        /* points of a chunk that read it, at least */
    TCI_PANEL_BLOCKS = 8,      /* blocks of a task, at least: the panel is gathered for each task */
    TCI_PANEL_TASKS = 8        /* and this many tasks where there are more blocks */
};

/* Points of a stage's axes. */
static int64_t tci_prep_panel_points(const tci_interp *p, const tci_interp_stage *stage)
{
    int64_t points = 1;
    for (int i = 0; i < stage->n_axes; i++) {
        points *= TCI_MIN(p->sizes[stage->axes[i]], (int64_t)TCI_PANEL_BYTES);
        points = TCI_MIN(points, (int64_t)TCI_PANEL_BYTES);
    }
    return points;
}

/* True if a load's address moves with the lanes and axes of the stage alone, and each lane is in a
 * cache line of its own. */
static bool tci_prep_panel_fits(const tci_interp *p, const tci_interp_stage *stage,
                                const tci_interp_step *st)
{
    const int64_t line = TCI_INTERP_GROUP / TCI_MAX((int)st->bytes, 1);
    const int lanes = p->walk[p->n_outer - 1];
    if (st->kind != TCI_STEP_LOAD || !st->varies || st->n_guards > 0 || !st->x ||
        st->x->n_atoms > 0 || (st->x->stride < line && st->x->stride > -line)) {
        return false;
    }
    bool fits = true;
    for (int i = 0; i < st->x->n_terms; i++) {
        bool of_stage = st->x->terms[i].axis == lanes;
        for (int a = 0; a < stage->n_axes; a++) {
            of_stage = of_stage || st->x->terms[i].axis == stage->axes[a];
        }
        fits = fits && of_stage;
    }
    return fits;
}

/* The section whose loads may have panels; NULL: the stage has none. */
static tci_interp_section *tci_prep_panel_section(const tci_interp *p,
                                                  const tci_interp_stage *stage)
{
    bool loops = stage->n_axes > 0 && !stage->from && tci_prep_panel_points(p, stage) > 0;
    return loops ? &stage->sections[stage->n_axes] : NULL;
}

/* Bytes of the panels of the kernel for one lane. */
static int64_t tci_prep_panel_lane_bytes(const tci_interp *p)
{
    int64_t bytes = 0;
    for (int s = 0; s < p->n_stages; s++) {
        const tci_interp_section *section = tci_prep_panel_section(p, &p->stages[s]);
        for (int i = 0; section && i < section->n; i++) {
            bool fits = tci_prep_panel_fits(p, &p->stages[s], &section->steps[i]);
            bytes += fits ? tci_prep_panel_points(p, &p->stages[s]) * section->steps[i].bytes : 0;
        }
    }
    return bytes;
}

/* The longest run of the stage's last axes along which the operand moves by a constant. */
static void tci_prep_panel_run(const tci_interp *p, const tci_interp_stage *stage,
                               const tci_interp_addr *x, tci_interp_panel *panel)
{
    panel->run = 1;
    for (int i = stage->n_axes - 1; i >= 0; i--) {
        int64_t coef = 0, size = p->sizes[stage->axes[i]];
        for (int t = 0; t < x->n_terms; t++) {
            coef += x->terms[t].axis == stage->axes[i] ? x->terms[t].coef : 0;
        }
        panel->step = panel->run == 1 ? coef : panel->step;
        if (size > 1 && coef != panel->step * panel->run) {
            return;
        }
        panel->run *= size;
    }
}

static const tci_interp_panel *tci_prep_panel_make(tci_prep *b, const tci_interp_step *st,
                                                   int stage)
{
    tci_interp *p = b->p;
    const tci_interp_stage *of = &p->stages[stage];
    tci_interp_panel *panel = TCI_NEW(b->s, tci_interp_panel);
    panel->stage = stage;
    panel->points = tci_prep_panel_points(p, of);
    panel->offset = p->workspace_bytes;
    tci_prep_panel_run(p, of, st->x, panel);
    panel->at.terms = TCI_NEW_ARRAY(b->s, tci_interp_term, of->n_axes);
    panel->at.n_terms = of->n_axes;
    int64_t coef = p->chunk;
    for (int i = of->n_axes - 1; i >= 0; i--) {
        panel->at.terms[i] = (tci_interp_term){of->axes[i], coef};
        coef *= p->sizes[of->axes[i]];
    }
    /* group loops read whole groups */
    p->workspace_bytes += panel->points * p->chunk * st->bytes + TCI_INTERP_GROUP;
    p->workspace_bytes = (p->workspace_bytes + 63) / 64 * 64;
    return panel;
}

TCI_FN void tci_prep_panels(tci_prep *b)
{
    tci_interp *p = b->p;
    const int axis = p->n_outer > 0 ? p->walk[p->n_outer - 1] : -1;
    const int64_t size = axis >= 0 ? p->sizes[axis] : 1;
    p->chunk = TCI_MAX(size, 1);
    bool reuses = axis >= 0 && !p->inner && p->most > 1 && size > 0 &&
                  p->points / size >= TCI_PANEL_USES;
    int64_t lane_bytes = reuses ? tci_prep_panel_lane_bytes(p) : 0;
    if (lane_bytes == 0 || lane_bytes * TCI_VLANES > TCI_PANEL_BYTES) {
        return;
    }
    p->chunk = p->most;
    while (p->chunk > TCI_VLANES && p->chunk * lane_bytes > TCI_PANEL_BYTES) {
        p->chunk = TCI_MAX(p->chunk / 2 / TCI_VLANES * TCI_VLANES, TCI_VLANES);
    }
    p->workspace_bytes = (p->workspace_bytes + 63) / 64 * 64;
    for (int s = 0; s < p->n_stages; s++) {
        const tci_interp_section *section = tci_prep_panel_section(p, &p->stages[s]);
        for (int i = 0; section && i < section->n; i++) {
            tci_interp_step *st = &section->steps[i];
            if (tci_prep_panel_fits(p, &p->stages[s], st)) {
                st->panel = tci_prep_panel_make(b, st, s);
                p->has_panels = true;
            }
        }
    }
}

TCI_FN int64_t tci_prep_panel_grain(const tci_interp *p)
{
    const int64_t size = p->sizes[p->walk[p->n_outer - 1]];
    const int64_t chunks = (size + p->chunk - 1) / p->chunk, uses = p->points / size;
    const int64_t blocks = TCI_MAX(chunks * uses / TCI_PANEL_TASKS, (int64_t)TCI_PANEL_BLOCKS);
    return TCI_MIN(blocks, uses) * TCI_MIN(p->chunk, size);
}
