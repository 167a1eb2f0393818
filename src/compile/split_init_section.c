/* compile/split_init_section.c - splits the init section (launches that depend on constants alone
 * and run once, such as weight packing) into independent units, the connected components of
 * launches that share buffers, so that programs can share a unit's results.
 *
 * In: code with its launches and buffers. Out: its units (compile/compiled_code.h). A unit reads
 * captured leaves and literals only, so its results can serve every program that has the same unit
 * over the same memory (run/init_cache.c), such as two programs that pack the same weights.
 *
 * Invariants: each launch of the init section and each KEPT buffer is in one unit; launches of a
 * unit are ascending, so temporaries that share memory in the section may also share it in a unit
 * executed alone. */
#include <string.h>

#include "../base/alloc.h"
#include "compiled_code.h"

static int32_t tci_units_root(const int32_t *parent, int32_t i)
{
    while (parent[i] != i) {
        i = parent[i];
    }
    return i;
}

/* One item per launch of the init section, then one per buffer. Connected items get the
 * same root, the smallest. */
static void tci_units_join(const tci_code *c, int32_t *parent)
{
    for (int32_t i = 0; i < c->n_init + c->n_buffers; i++) {
        parent[i] = i;
    }
    for (int32_t t = 0; t < c->n_init; t++) {
        const tci_code_step *step = &c->steps[t];
        for (int32_t o = 0; o < c->kernels[step->kernel].n_operands; o++) {
            int32_t b = step->operands[o];
            if (c->buffers[b].kind == TCI_BUF_TEMP || c->buffers[b].kind == TCI_BUF_KEPT) {
                int32_t one = tci_units_root(parent, t);
                int32_t other = tci_units_root(parent, c->n_init + b);
                parent[TCI_MAX(one, other)] = TCI_MIN(one, other);
            }
        }
    }
}

static void tci_units_add_number(int32_t *list, int32_t *n, int32_t number)
{
    for (int32_t i = 0; i < *n; i++) {
        if (list[i] == number) {
            return;
        }
    }
    list[(*n)++] = number;
}

static int32_t tci_units_place(const int32_t *list, int32_t n, int32_t number)
{
    for (int32_t i = 0; i < n; i++) {
        if (list[i] == number) {
            return i;
        }
    }
    return -1;
}

/* Describes the operands of launch t relative to the unit: leaves and buffers by their order. */
static void tci_units_describe(const tci_code *c, const tci_code_unit *u, int32_t t, tci_str *out)
{
    const tci_code_step *step = &c->steps[t];
    const tci_code_kernel *k = &c->kernels[step->kernel];
    tci_str_add_n(out, k->identity, (size_t)k->n_identity);
    for (int32_t o = 0; o < k->n_operands; o++) {
        const tci_code_buffer *b = &c->buffers[step->operands[o]];
        int32_t leaf = b->index - c->n_user_inputs, place = step->operands[o];
        bool is_leaf = b->kind == TCI_BUF_INPUT;
        place = is_leaf ? tci_units_place(u->leaves, u->n_leaves, leaf)
                        : tci_units_place(u->buffers, u->n_buffers, place);
        tci_str_printf(out, "%c%d+%lld ",
                       is_leaf                   ? 'l'
                       : b->kind == TCI_BUF_KEPT ? 'k'
                                                 : 't',
                       (int)place, (long long)tci_dim_known(step->offsets[o]));
    }
    for (int32_t l = 0; l < k->n_literals; l++) {
        tci_str_printf(out, "n%d ",
                       (int)tci_units_place(u->literals, u->n_literals, step->literals[l]));
    }
}

/* The launches, buffers, leaves and numbers of the unit of this root. */
static void tci_units_collect(const tci_code *c, const int32_t *parent, int32_t root,
                              tci_code_unit *u)
{
    u->is_shared = true;
    for (int32_t t = 0; t < c->n_init; t++) {
        const tci_code_step *step = &c->steps[t];
        const tci_code_kernel *k = &c->kernels[step->kernel];
        if (tci_units_root(parent, t) != root) {
            continue;
        }
        u->steps[u->n_steps++] = t;
        u->is_shared = u->is_shared && k->n_identity && !k->n_dims;
        for (int32_t o = 0; o < k->n_operands; o++) {
            const tci_code_buffer *b = &c->buffers[step->operands[o]];
            if (b->kind == TCI_BUF_INPUT) {
                tci_units_add_number(u->leaves, &u->n_leaves, b->index - c->n_user_inputs);
            } else {
                tci_units_add_number(u->buffers, &u->n_buffers, step->operands[o]);
            }
        }
        for (int32_t l = 0; l < k->n_literals; l++) {
            tci_units_add_number(u->literals, &u->n_literals, step->literals[l]);
        }
    }
}

/* Places its KEPT buffers one after the other. */
static void tci_units_lay_out(tci_code *c, tci_code_unit *u, int32_t number)
{
    for (int32_t i = 0; i < u->n_buffers; i++) {
        int32_t b = u->buffers[i];
        if (c->buffers[b].kind == TCI_BUF_KEPT) {
            c->kept_places[b] = (tci_init_cache_place){number, u->bytes};
            u->bytes += (tci_dim_known(c->buffers[b].bytes) + 63) & -64;
        }
    }
}

static void tci_units_identify(tci_code *c, tci_code_unit *u)
{
    tci_str text = {0};
    for (int32_t i = 0; i < u->n_steps && u->is_shared; i++) {
        tci_units_describe(c, u, u->steps[i], &text);
    }
    u->n_identity = u->is_shared && !text.failed ? (int32_t)text.n : 0;
    u->identity = u->n_identity ? tci_code_get(c, text.n) : NULL;
    u->is_shared = u->identity != NULL; /* without memory for it no other program has the unit */
    if (u->identity) {
        memcpy(u->identity, text.text, text.n);
    }
    tci_str_free(&text);
}

/* Room for the lists of all units: no item is in two of them, but for leaves and numbers. */
static bool tci_units_make(tci_code *c, const int32_t *parent)
{
    int32_t n_roots = 0;
    for (int32_t t = 0; t < c->n_init; t++) {
        n_roots += parent[t] == t;
    }
    c->units = tci_code_get(c, sizeof(*c->units) * (size_t)n_roots);
    c->kept_places = tci_code_get(c, sizeof(*c->kept_places) * (size_t)TCI_MAX(c->n_buffers, 1));
    for (int32_t t = 0; t < c->n_init && c->units && c->kept_places; t++) {
        if (parent[t] != t) {
            continue;
        }
        size_t n_operands = 0, n_literals = 0, n_steps = 0;
        for (int32_t i = t; i < c->n_init; i++) {
            bool mine = tci_units_root(parent, i) == t;
            n_operands += mine ? (size_t)c->kernels[c->steps[i].kernel].n_operands : 0;
            n_literals += mine ? (size_t)c->kernels[c->steps[i].kernel].n_literals : 0;
            n_steps += mine;
        }
        tci_code_unit *u = &c->units[c->n_units];
        u->steps = tci_code_get(c, sizeof(int32_t) * (n_steps + 2 * n_operands + n_literals));
        if (!u->steps) {
            return false;
        }
        u->buffers = u->steps + n_steps;
        u->leaves = u->buffers + n_operands;
        u->literals = u->leaves + n_operands;
        tci_units_collect(c, parent, t, u);
        tci_units_lay_out(c, u, c->n_units++);
        tci_units_identify(c, u);
    }
    return c->units && c->kept_places;
}

TCI_FN bool tci_code_split_init(tci_code *c)
{
    if (!c->n_init) {
        return true;
    }
    size_t n = (size_t)c->n_init + (size_t)c->n_buffers;
    int32_t *parent = tci_heap_get(sizeof(*parent) * n);
    bool made = parent != NULL;
    if (made) {
        tci_units_join(c, parent);
        made = tci_units_make(c, parent);
    }
    tci_heap_free(parent);
    return made;
}
