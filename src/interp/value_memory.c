/* interp/value_memory.c - assigns memory to the values of an interpreted kernel (liveness).
 *
 * In: values with the steps between which they live. Out: the length of a block, the layout of the
 * workspace, and which loads may use the memory of their operand. */
#include "lower_to_linear.h"

typedef struct tci_prep_pool {
    int64_t *items;
    int n, cap;
} tci_prep_pool;

static int64_t tci_prep_size(const tci_prep *b, const tci_interp_value *v)
{
    int64_t lanes = TCI_MAX(v->varies ? b->p->block : 0, v->lanes);
    int64_t size = lanes * v->bytes;
    /* A group more than needed: neighbours do not start at the same place of a cache way. */
    return size == 0 ? TCI_INTERP_GROUP : size + TCI_INTERP_GROUP;
}

static int64_t tci_prep_take(tci_prep *b, const tci_interp_value *v, tci_prep_pool *pool,
                             int64_t *end)
{
    if (pool && pool->n > 0) {
        return pool->items[--pool->n];
    }
    int64_t at = *end;
    *end += tci_prep_size(b, v);
    return at;
}

/* Gives memory to the varying values that live inside one section; the pools are shared by all. */
static void tci_prep_place(tci_prep *b, const tci_interp_section *section, int id,
                           tci_prep_pool pools[9], int64_t *end)
{
    int32_t *by_last = TCI_NEW_ARRAY(b->s, int32_t, section->n + 2);
    int32_t *next = TCI_NEW_ARRAY(b->s, int32_t, b->n_values + 1);
    for (int v = 0; v < b->n_values; v++) {
        const tci_interp_value *value = &b->values[v];
        if (value->section == id && !value->own && value->varies) {
            next[v] = by_last[value->last];
            by_last[value->last] = v + 1;
        }
    }
    for (int i = 0; i < section->n; i++) {
        const tci_interp_step *st = &section->steps[i];
        tci_interp_value *out = st->out >= 0 ? &b->values[st->out] : NULL;
        bool in_place = st->kind == TCI_STEP_OP;
        bool placed = !out || out->own || !out->varies;
        if (!in_place && !placed) {
            out->offset = tci_prep_take(b, out, &pools[out->bytes], end);
        }
        for (int32_t v = by_last[i]; v > 0; v = next[v - 1]) {
            tci_prep_pool *pool = &pools[b->values[v - 1].bytes];
            if (v - 1 != st->out) {
                TCI_PUSH(b->s, pool->items, pool->n, pool->cap, b->values[v - 1].offset);
            }
        }
        if (in_place && !placed) {
            out->offset = tci_prep_take(b, out, &pools[out->bytes], end);
        }
        if (!placed && out->last == i) { /* never read: a FAULT */
            tci_prep_pool *pool = &pools[out->bytes];
            TCI_PUSH(b->s, pool->items, pool->n, pool->cap, out->offset);
        }
    }
}

static int64_t tci_prep_layout(tci_prep *b)
{
    tci_interp *p = b->p;
    int64_t end = (int64_t)sizeof(char *) * b->n_values;
    end = (end + 63) / 64 * 64;
    p->axes_offset = end;
    end += ((int64_t)sizeof(int64_t) * p->n_axes + 63) / 64 * 64;
    p->flags_offset = end;
    end += p->block + 64;
    end = (end + 63) / 64 * 64;
    p->spare_offset = end;
    end += TCI_VLANES * 8;
    p->left_offset = end;
    end += ((int64_t)sizeof(int64_t) * p->n_reds + 63) / 64 * 64;
    for (int v = 0; v < b->n_values; v++) {
        if (b->values[v].own || !b->values[v].varies) {
            b->values[v].offset = tci_prep_take(b, &b->values[v], NULL, &end);
        }
    }
    tci_prep_pool pools[9] = {{0}}, joining[9] = {{0}};
    int id = 0;
    tci_prep_place(b, &p->constants, id++, pools, &end);
    for (int r = 0; r < p->n_reds; r++) { /* these run while a step of another section does */
        if (!p->reds[r].single) {
            tci_prep_place(b, &p->reds[r].join, id++, joining, &end);
        }
    }
    for (int s = 0; s < p->n_stages; s++) {
        tci_prep_place(b, &p->before[s], id++, pools, &end);
        for (int depth = 0; depth <= p->stages[s].n_axes; depth++) {
            tci_prep_place(b, &p->stages[s].sections[depth], id++, pools, &end);
        }
    }
    return end;
}

/* Block length: as long as the axis needs, and short enough that the block's values stay near. */
TCI_FN void tci_prep_memory(tci_prep *b)
{
    tci_interp *p = b->p;
    int64_t longest = 1;
    if (p->inner) {
        for (int s = 0; s < p->n_stages; s++) {
            const tci_interp_stage *st = &p->stages[s];
            longest = st->n_axes > 0 ? TCI_MAX(longest, p->sizes[st->axes[st->n_axes - 1]])
                                     : longest;
        }
    } else if (p->n_outer > 0) {
        longest = p->sizes[p->walk[p->n_outer - 1]];
    }
    longest = (TCI_MIN(longest, TCI_INTERP_BLOCK) + TCI_VLANES - 1) / TCI_VLANES * TCI_VLANES;
    p->block = (int)TCI_MAX(longest, TCI_VLANES);
    p->workspace_bytes = tci_prep_layout(b);
    while (p->workspace_bytes > 128 * 1024 && p->block >= 2 * 128) {
        p->block /= 2;
        p->block = p->block / TCI_VLANES * TCI_VLANES;
        p->workspace_bytes = tci_prep_layout(b);
    }
    p->most = TCI_MIN(p->most, p->block);
}

/* A load may use the operand's memory instead of a copy when nothing is written before all is
 * read. */
static void tci_prep_mark_direct(tci_prep *b, tci_interp_section *section)
{
    bool last_only = true;
    for (int i = 0; i < b->k->n_stores; i++) {
        last_only &= b->stores[i].stage == b->k->n_stages - 1;
    }
    for (int i = 0; i < section->n; i++) {
        tci_interp_step *st = &section->steps[i];
        if (st->kind == TCI_STEP_LOAD && st->x && st->x->stride == 1 && st->varies) {
            st->flag = last_only && (b->k->n_stores < 2 || !b->values[st->out].stored);
        }
    }
}

TCI_FN void tci_prep_mark_all(tci_prep *b)
{
    tci_interp *p = b->p;
    for (int s = 0; s < p->n_stages; s++) {
        tci_prep_mark_direct(b, &p->before[s]);
        for (int depth = 0; depth <= p->stages[s].n_axes; depth++) {
            tci_prep_mark_direct(b, &p->stages[s].sections[depth]);
        }
    }
}
