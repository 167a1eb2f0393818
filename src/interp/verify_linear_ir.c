/* interp/verify_linear_ir.c - checks the invariants of interp/linear_ir.h; a violation aborts the
 * compile with TC_ERR_INTERNAL.
 *
 * One pass over the sections in the order in which they run. A value can be read after the step
 * that makes it, in its own section and those that run inside it: `state` is 0 before, 1 then, 2
 * after. */
#include "linear_ir.h"

typedef struct tci_iverify {
    tci_scratch *s;
    const tci_interp *p;
    uint8_t *state;
    int32_t *section, *first, *last; /* per value: where and when it lives there */
    int32_t n_sections, n_joins;     /* the sections that join tuples are 1 .. n_joins */
    bool empty;                      /* there is an axis without points: nothing runs */
} tci_iverify;

static const tci_interp_value *tci_iverify_value(const tci_iverify *v, int value)
{
    TCI_ASSERT(v->s, value >= 0 && value < v->p->n_values);
    return &v->p->values[value];
}

/* Step i of section `id` reads it. */
static void tci_iverify_read(tci_iverify *v, int value, int id, int i)
{
    const tci_interp_value *from = tci_iverify_value(v, value);
    TCI_ASSERT(v->s, v->state[value] == 1);
    TCI_ASSERT(v->s, v->section[value] == id || from->own || !from->varies);
    if (v->section[value] == id) {
        v->last[value] = i;
    }
}

static void tci_iverify_define(tci_iverify *v, int value, int id, int i)
{
    tci_iverify_value(v, value);
    TCI_ASSERT(v->s, v->state[value] == 0);
    v->state[value] = 1;
    v->section[value] = id;
    v->first[value] = v->last[value] = i;
}

/* ---- addresses ---- */

static void tci_iverify_addr(tci_iverify *v, const tci_interp_addr *x, int id, int i)
{
    for (int t = 0; t < x->n_terms; t++) {
        TCI_ASSERT(v->s, x->terms[t].axis >= 0 && x->terms[t].axis < v->p->n_axes);
    }
    for (int a = 0; a < x->n_atoms; a++) {
        if (x->atoms[a].op == TCI_KX_VALUE) {
            tci_iverify_read(v, x->atoms[a].value, id, i);
        } else {
            TCI_ASSERT(v->s, x->atoms[a].c > 0);
            tci_iverify_addr(v, x->atoms[a].arg, id, i);
        }
    }
}

/* All elements that a linear address without atoms reaches are the operand's. */
static void tci_iverify_inside(const tci_iverify *v, const tci_interp_addr *x, int operand)
{
    int64_t lo = x->base, hi = x->base;
    for (int t = 0; t < x->n_terms; t++) {
        int64_t reach = x->terms[t].coef * (v->p->sizes[x->terms[t].axis] - 1);
        *(reach < 0 ? &lo : &hi) += reach;
    }
    TCI_ASSERT(v->s, v->empty || x->n_atoms > 0 || (lo >= 0 && hi < v->p->operand_n[operand]));
}

static void tci_iverify_access(tci_iverify *v, const tci_interp_step *st, int offset)
{
    TCI_ASSERT(v->s, st->ref >= 0 && st->ref < v->p->n_operands);
    TCI_ASSERT(v->s, st->x || st->in[offset] >= 0);
    if (st->x && st->n_guards == 0) {
        tci_iverify_inside(v, st->x, st->ref);
    }
}

/* A panel has a place for each lane of a chunk at each point of its stage, and is after the
 * values. */
static void tci_iverify_panel(const tci_iverify *v, const tci_interp_step *st)
{
    const tci_interp *p = v->p;
    const tci_interp_panel *panel = st->panel;
    TCI_ASSERT(v->s, p->has_panels && st->varies && st->x && st->n_guards == 0);
    TCI_ASSERT(v->s, panel->stage >= 0 && panel->stage < p->n_stages && panel->at.n_atoms == 0);
    int64_t points = 1, reach = p->chunk;
    for (int i = 0; i < p->stages[panel->stage].n_axes; i++) {
        points *= p->sizes[p->stages[panel->stage].axes[i]];
    }
    for (int t = 0; t < panel->at.n_terms; t++) {
        reach += panel->at.terms[t].coef * (p->sizes[panel->at.terms[t].axis] - 1);
    }
    int64_t bytes = panel->points * p->chunk * st->bytes;
    TCI_ASSERT(v->s, panel->points == points && reach == panel->points * p->chunk);
    TCI_ASSERT(v->s, panel->offset % TCI_INTERP_GROUP == 0 &&
                         panel->offset + bytes + TCI_INTERP_GROUP <= p->workspace_bytes);
}

/* A place in the row that a reduction keeps, which is there. */
static void tci_iverify_row(tci_iverify *v, const tci_interp_step *st, int id, int i)
{
    const tci_interp_red *r = &v->p->reds[st->ref];
    int64_t reach = 0;
    TCI_ASSERT(v->s, r->row > 0 && st->x && st->x->base == 0 && st->x->n_atoms == 0);
    for (int t = 0; t < st->x->n_terms; t++) {
        reach += st->x->terms[t].coef * (v->p->sizes[st->x->terms[t].axis] - 1);
    }
    TCI_ASSERT(v->s, v->empty || reach < r->row);
    TCI_ASSERT(v->s, v->p->values[r->acc[0]].lanes >= r->row);
    tci_iverify_read(v, r->acc[0], id, i);
}

/* ---- steps ---- */

static void tci_iverify_step(tci_iverify *v, const tci_interp_step *st, int id, int i)
{
    bool effect = st->kind == TCI_STEP_STORE || st->kind == TCI_STEP_FOLD;
    for (int a = 0; a < TCI_PARTS; a++) {
        if (st->in[a] >= 0) {
            tci_iverify_read(v, st->in[a], id, i);
        }
    }
    if (st->x) {
        tci_iverify_addr(v, st->x, id, i);
    }
    for (int g = 0; g < st->n_guards; g++) {
        if (st->guards[g].block >= 0) {
            tci_iverify_read(v, st->guards[g].block, id, i);
        } else {
            tci_iverify_addr(v, st->guards[g].x, id, i);
        }
    }
    TCI_ASSERT(v->s, st->bytes == 1 || st->bytes == 2 || st->bytes == 4 || st->bytes == 8);
    bool of_red = st->kind == TCI_STEP_FOLD || st->kind == TCI_STEP_ROW;
    TCI_ASSERT(v->s, !of_red || (st->ref >= 0 && st->ref < v->p->n_reds));
    if (of_red && (st->x || v->p->reds[st->ref].row > 0)) {
        tci_iverify_row(v, st, id, i);
    }
    if (st->kind == TCI_STEP_LOAD || st->kind == TCI_STEP_STORE) {
        tci_iverify_access(v, st, st->kind == TCI_STEP_STORE ? 1 : 0);
    }
    if (st->panel) {
        tci_iverify_panel(v, st);
    }
    TCI_ASSERT(v->s, effect || st->out >= 0);
    if (st->out >= 0) {
        const tci_interp_value *out = tci_iverify_value(v, st->out);
        TCI_ASSERT(v->s, out->bytes == st->bytes && out->varies == st->varies);
        tci_iverify_define(v, st->out, id, i);
    }
}

static int tci_iverify_section(tci_iverify *v, const tci_interp_section *section)
{
    int id = v->n_sections++;
    TCI_ASSERT(v->s, section->vec >= -1 && section->vec < v->p->n_axes);
    for (int i = 0; i < section->n; i++) {
        tci_iverify_step(v, &section->steps[i], id, i);
    }
    return id;
}

/* The accumulator of a stage is available from its start, the result from its end (for a SCAN at
 * once). */
static void tci_iverify_red(tci_iverify *v, int red, bool at_end)
{
    const tci_interp_red *r = &v->p->reds[red];
    TCI_ASSERT(v->s, r->n_parts >= 1 && r->n_parts <= TCI_PARTS && r->part < r->n_parts);
    for (int i = 0; i < r->n_parts + at_end; i++) {
        int value = i < r->n_parts ? r->acc[i] : r->result;
        TCI_ASSERT(v->s, tci_iverify_value(v, value)->own);
        if (v->state[value] == 0) {
            tci_iverify_define(v, value, -1, 0);
        }
    }
}

/* The section that joins two tuples reads them, constants and its own values, and makes the parts
 * of the tuple joined, in memory of their own. */
static void tci_iverify_join(tci_iverify *v, const tci_interp_red *r)
{
    if (r->single) {
        TCI_ASSERT(v->s, r->n_parts == 1 && r->combine.n_in <= TCI_PARTS);
        for (int a = 0; a < r->combine.n_in; a++) {
            TCI_ASSERT(v->s, r->source[a] <= r->n_takes);
        }
        return;
    }
    int begin = v->n_sections;
    for (int i = 0; i < r->n_parts + r->n_takes; i++) {
        int value = i < r->n_parts ? r->left[i] : r->right[i - r->n_parts];
        const tci_interp_value *x = tci_iverify_value(v, value);
        TCI_ASSERT(v->s, x->own && x->varies);
        TCI_ASSERT(v->s, i >= r->n_parts || x->bytes == r->bytes[i]);
        tci_iverify_define(v, value, begin, 0);
    }
    tci_iverify_section(v, &r->join);
    v->n_joins++;
    for (int i = 0; i < r->n_parts; i++) {
        const tci_interp_value *x = tci_iverify_value(v, r->joined[i]);
        TCI_ASSERT(v->s, x->own && x->varies && x->bytes == r->bytes[i]);
        TCI_ASSERT(v->s, v->state[r->joined[i]] == 1 && v->section[r->joined[i]] == begin);
    }
    for (int i = 0; i < v->p->n_values; i++) {
        v->state[i] = v->state[i] == 1 && v->section[i] >= begin ? 2 : v->state[i];
    }
}

/* All elements that a factor's addresses reach are those that its load reaches, and the sizes of
 * its axes those of the stage. */
static void tci_iverify_strip(const tci_iverify *v, const tci_interp_stage *stage)
{
    const tci_interp_strip *s = stage->strip;
    int64_t points = 1, of_stage = 1;
    for (int i = 0; i < s->n_axes; i++) {
        points *= s->sizes[i];
    }
    for (int i = 0; i < stage->n_axes; i++) {
        of_stage *= v->p->sizes[stage->axes[i]];
    }
    TCI_ASSERT(v->s, points == s->points && points == of_stage && s->n_axes <= TCI_STRIP_AXES);
    TCI_ASSERT(v->s, stage->n_reds == 1 && stage->reds[0] == s->red && v->p->reds[s->red].single);
    TCI_ASSERT(v->s, s->lane_step[0] || s->lane_step[1]);
    for (int k = 0; k < 2; k++) {
        const tci_interp_step *load = s->load[k];
        const tci_interp_addr *x = !load ? NULL : load->panel ? &load->panel->at : load->x;
        int64_t reach = 0, want = 0;
        for (int i = 0; i < s->n_axes; i++) {
            reach += s->step[k][i] * (s->sizes[i] - 1);
        }
        for (int t = 0; x && t < x->n_terms; t++) {
            bool is_outer = x->terms[t].axis < v->p->n_outer;
            want += is_outer ? 0
                             : x->terms[t].coef * s->bytes * (v->p->sizes[x->terms[t].axis] - 1);
        }
        TCI_ASSERT(v->s, v->empty || reach == want);
    }
}

static void tci_iverify_stage(tci_iverify *v, const tci_interp_stage *stage)
{
    for (int a = 0; a < stage->n_axes; a++) {
        TCI_ASSERT(v->s, stage->axes[a] >= v->p->n_outer && stage->axes[a] < v->p->n_axes);
    }
    for (int r = 0; r < stage->n_reds; r++) {
        TCI_ASSERT(v->s, stage->reds[r] >= 0 && stage->reds[r] < v->p->n_reds);
        tci_iverify_red(v, stage->reds[r], stage->kind == TCI_STAGE_SCAN);
    }
    int begin = v->n_sections;
    TCI_ASSERT(v->s, !stage->from == !stage->to && (!stage->from || stage->n_axes == 1));
    if (stage->from) {
        tci_iverify_addr(v, stage->from, -1, 0);
        tci_iverify_addr(v, stage->to, -1, 0);
    }
    for (int depth = 0; depth <= stage->n_axes; depth++) {
        tci_iverify_section(v, &stage->sections[depth]);
    }
    if (stage->strip) {
        tci_iverify_strip(v, stage);
    }
    for (int i = 0; i < v->p->n_values; i++) {
        v->state[i] = v->state[i] == 1 && v->section[i] >= begin ? 2 : v->state[i];
    }
    for (int r = 0; r < stage->n_reds; r++) {
        tci_iverify_red(v, stage->reds[r], true);
    }
}

/* ---- memory ---- */

static int64_t tci_iverify_bytes(const tci_iverify *v, int value)
{
    const tci_interp_value *x = &v->p->values[value];
    int64_t lanes = TCI_MAX(x->varies ? v->p->block : 0, x->lanes);
    return TCI_MAX(lanes * x->bytes, (int64_t)TCI_INTERP_GROUP);
}

/* Both share memory: inside sections, and there one after the other. A section that joins tuples
 * runs while a step of another section does. */
static bool tci_iverify_may_share(const tci_iverify *v, int a, int b)
{
    const tci_interp_value *x = &v->p->values[a], *y = &v->p->values[b];
    bool inside = !x->own && !y->own && x->varies && y->varies;
    bool apart = v->last[a] <= v->first[b] || v->last[b] <= v->first[a];
    bool joins = (v->section[a] > 0 && v->section[a] <= v->n_joins) ==
                 (v->section[b] > 0 && v->section[b] <= v->n_joins);
    return inside && (v->section[a] != v->section[b] ? joins : apart);
}

static void tci_iverify_memory(const tci_iverify *v)
{
    const tci_interp *p = v->p;
    int64_t begin = p->left_offset + (int64_t)sizeof(int64_t) * p->n_reds;
    for (int a = 0; a < p->n_values; a++) {
        int64_t at = p->values[a].offset;
        if (v->state[a] == 0) {
            continue;
        }
        TCI_ASSERT(v->s, at % TCI_INTERP_GROUP == 0 && at >= begin);
        TCI_ASSERT(v->s, at + tci_iverify_bytes(v, a) <= p->workspace_bytes);
        for (int b = 0; b < a; b++) {
            int64_t other = p->values[b].offset;
            bool meet = v->state[b] && at < other + tci_iverify_bytes(v, b) &&
                        other < at + tci_iverify_bytes(v, a);
            TCI_ASSERT(v->s, !meet || tci_iverify_may_share(v, a, b));
        }
    }
}

TCI_FN void tci_interp_verify(tci_scratch *s, const tci_interp *p)
{
    for (int i = 0; i < p->n_members; i++) {
        const tci_interp_member *m = &p->members[i];
        int64_t tasks = p->loop ? 0 : tci_interp_tasks(m->interp);
        TCI_ASSERT(s, m[1].first_task == m->first_task + tasks);
        TCI_ASSERT(s, m->interp->workspace_bytes <= p->workspace_bytes);
        TCI_ASSERT(s, !m->interp->n_members || (p->loop && m->interp->loop));
        if (m->first_same == i) {
            tci_interp_verify(s, m->interp);
        }
    }
    if (p->n_members) {
        return;
    }
    tci_iverify v = {.s = s, .p = p};
    v.state = TCI_NEW_ARRAY(s, uint8_t, p->n_values + 1);
    v.section = TCI_NEW_ARRAY(s, int32_t, p->n_values + 1);
    v.first = TCI_NEW_ARRAY(s, int32_t, p->n_values + 1);
    v.last = TCI_NEW_ARRAY(s, int32_t, p->n_values + 1);
    for (int a = 0; a < p->n_axes; a++) {
        v.empty = v.empty || p->sizes[a] == 0;
    }
    tci_iverify_section(&v, &p->constants);
    for (int r = 0; r < p->n_reds; r++) {
        tci_iverify_join(&v, &p->reds[r]);
    }
    for (int t = 0; t < p->n_stages; t++) {
        tci_iverify_section(&v, &p->before[t]);
        tci_iverify_stage(&v, &p->stages[t]);
    }
    tci_iverify_memory(&v);
}
