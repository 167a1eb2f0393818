/* interp/hoist.c - chooses the section in which each node of an interpreted kernel is evaluated
 * (loop-invariant code motion).
 *
 * In: nodes. Out: for each node the axes along which it varies and the stages whose results it
 * uses (deps), and whether the outer level, a stage, or both need it. */
#include "lower_to_linear.h"

static void tci_prep_merge(tci_prep *b, uint8_t *row, const uint8_t *from)
{
    for (int i = 0; i < b->width; i++) {
        row[i] |= from[i];
    }
}

TCI_FN uint8_t *tci_prep_row(const tci_prep *b, int node)
{
    return b->deps + (size_t)node * (size_t)b->width;
}

TCI_FN const uint8_t *tci_prep_kx_row(tci_prep *b, int x)
{
    uint8_t *row = b->kx_deps + (size_t)x * (size_t)b->width;
    const tci_kx *e = &b->k->kx[x];
    if (b->kx_done[x]) {
        return row;
    }
    b->kx_done[x] = 1;
    if (e->op == TCI_KX_AXIS) {
        row[tci_kx_number(e)] = 1;
    } else if (e->op == TCI_KX_VALUE) {
        tci_prep_merge(b, row, tci_prep_row(b, b->index_node[tci_kx_number(e)]));
    } else if (e->op != TCI_KX_CONST) {
        tci_prep_merge(b, row, tci_prep_kx_row(b, e->a));
        if (e->op == TCI_KX_ADD) {
            tci_prep_merge(b, row, tci_prep_kx_row(b, e->b));
        }
    }
    return row;
}

/* A value that a SCATTER reads where it stores may differ at every point. */
static void tci_prep_derive_stored(tci_prep *b, uint8_t *row, int operand)
{
    for (int w = 0; w < b->k->n_stores; w++) {
        const tci_kstage *stage = &b->k->stages[b->k->stores[w].stage];
        if (b->k->stores[w].operand == operand && stage->kind == TCI_STAGE_SCATTER) {
            row[b->k->n_axes + b->k->stores[w].stage] = 1;
        }
    }
}

TCI_FN bool tci_prep_is_ordered(const tci_kstage *stage)
{
    return stage->kind == TCI_STAGE_SCAN || stage->kind == TCI_STAGE_SCATTER;
}

TCI_FN void tci_prep_derive(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->width = k->n_axes + k->n_stages;
    b->deps = TCI_NEW_ARRAY(b->s, uint8_t, (size_t)b->n_nodes *(size_t)b->width + 1);
    b->kx_deps = TCI_NEW_ARRAY(b->s, uint8_t, (size_t)k->n_kx *(size_t)b->width + 1);
    b->kx_done = TCI_NEW_ARRAY(b->s, uint8_t, k->n_kx + 1);
    b->kx_seen = TCI_NEW_ARRAY(b->s, int32_t, k->n_kx + 1);
    for (int i = 0; i < b->n_nodes; i++) {
        const tci_prep_node *n = &b->nodes[i];
        uint8_t *row = tci_prep_row(b, i);
        for (int j = 0; j < n->n_args; j++) {
            tci_prep_merge(b, row, tci_prep_row(b, n->args[j]));
        }
        if (n->x >= 0) {
            tci_prep_merge(b, row, tci_prep_kx_row(b, n->x));
        }
        for (int g = 0; g < n->n_guards; g++) {
            tci_prep_merge(b, row, tci_prep_kx_row(b, k->guards[n->guard + g].x));
        }
        if (n->kind == TCI_PREP_RED) {
            tci_prep_derive_red(b, row, n->ref);
        }
        if (n->kind == TCI_PREP_LOAD && k->operands[n->ref].is_output) {
            tci_prep_derive_stored(b, row, n->ref);
        }
    }
}

/* True if stage s evaluates the node itself (or takes it from the outer level). */
TCI_FN bool tci_prep_in_stage(const tci_prep *b, int node, int s)
{
    const uint8_t *row = tci_prep_row(b, node);
    if (s < 0) {
        return false;
    }
    for (int axis = b->k->n_outer; axis < b->k->n_axes; axis++) {
        if (row[axis]) {
            return true;
        }
    }
    return tci_prep_is_ordered(&b->k->stages[s]) && row[b->k->n_axes + s];
}

TCI_FN void tci_prep_need(tci_prep *b, int node, int s)
{
    if (node < 0) {
        return;
    }
    if (tci_prep_in_stage(b, node, s)) {
        b->need_stage[(size_t)s * (size_t)b->n_nodes + (size_t)node] = 1;
    } else {
        b->need_outer[node] = 1;
    }
}

/* Needs every loaded index inside x. */
static void tci_prep_need_kx(tci_prep *b, int x, int s)
{
    const tci_kx *e = &b->k->kx[x];
    if (b->kx_seen[x] == b->stamp) {
        return;
    }
    b->kx_seen[x] = b->stamp;
    if (e->op == TCI_KX_VALUE) {
        tci_prep_need(b, b->index_node[tci_kx_number(e)], s);
    } else if (e->op != TCI_KX_CONST && e->op != TCI_KX_AXIS) {
        tci_prep_need_kx(b, e->a, s);
        if (e->op == TCI_KX_ADD) {
            tci_prep_need_kx(b, e->b, s);
        }
    }
}

static void tci_prep_need_inputs(tci_prep *b, int node, int s)
{
    const tci_prep_node *n = &b->nodes[node];
    for (int j = 0; j < n->n_args; j++) {
        tci_prep_need(b, n->args[j], s);
    }
    b->stamp++;
    if (n->x >= 0) {
        tci_prep_need_kx(b, n->x, s);
    }
    for (int g = 0; g < n->n_guards; g++) {
        tci_prep_need_kx(b, b->k->guards[n->guard + g].x, s);
    }
}

TCI_FN void tci_prep_needs(tci_prep *b)
{
    const tci_kernel *k = b->k;
    b->need_outer = TCI_NEW_ARRAY(b->s, uint8_t, b->n_nodes + 1);
    b->need_stage = TCI_NEW_ARRAY(b->s, uint8_t, (size_t)b->n_nodes *(size_t)k->n_stages + 1);
    for (int r = 0; r < k->n_reds; r++) {
        tci_prep_need_red(b, r);
        if (k->stages[k->reds[r].stage].kind == TCI_STAGE_SCAN) { /* stored at each step */
            tci_prep_need(b, b->inst_node[k->reds[r].inst], k->reds[r].stage);
        }
    }
    for (int s = 0; s < k->n_stages; s++) {
        b->stamp++;
        if (k->stages[s].from >= 0) {
            tci_prep_need_kx(b, k->stages[s].from, -1);
            tci_prep_need_kx(b, k->stages[s].to, -1);
        }
    }
    for (int i = 0; i < k->n_stores; i++) {
        b->stamp++;
        tci_prep_need(b, b->stores[i].node, b->stores[i].stage);
        tci_prep_need_kx(b, b->stores[i].x, b->stores[i].stage);
    }
    for (int node = b->n_nodes - 1; node >= 0; node--) {
        for (int s = 0; s < k->n_stages; s++) {
            if (b->need_stage[(size_t)s * (size_t)b->n_nodes + (size_t)node]) {
                tci_prep_need_inputs(b, node, s);
            }
        }
        if (b->need_outer[node]) {
            tci_prep_need_inputs(b, node, -1);
        }
    }
}
