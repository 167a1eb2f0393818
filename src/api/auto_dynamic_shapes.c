/* api/auto_dynamic_shapes.c - automatic dynamic shapes of tc_jit: a size that differs between calls
 * becomes a symbolic dimension of the next specialization.
 *
 * In: the signatures that a tc_jit was called with, for one combination of dtypes, ranks and static
 * integers. Out: the sizes that its next specialization serves.
 *
 * Design: a size that was seen with two values is likely to take a third. Axes whose sizes were
 * always equal share a symbol; the guard of the specialization checks that they still are, and
 * after a mismatch the next specialization has two symbols. Ranges are found by trial compiles: the
 * widest range first, then without 0, then without 1 (which broadcasts), then smaller ranges (whose
 * products fit in memory), and at last the fixed sizes. */
#include "auto_dynamic_shapes.h"

#include <stdio.h>
#include <string.h>

/* The size of axis a, counted over all inputs in order. */
static int64_t tci_general_size(const tci_variant_kind *k, const tci_signature *sig, int a)
{
    int i = 0;
    for (; a >= k->ranks[i]; i++) {
        a -= k->ranks[i];
    }
    return tci_variants_sizes(&sig->inputs->items[i])[a];
}

/* The input that axis a belongs to, and its position there. */
static tc_jit_axis tci_general_place(const tci_variant_kind *k, int a)
{
    tc_jit_axis at = {0, a};
    for (; at.axis >= k->ranks[at.input]; at.input++) {
        at.axis -= k->ranks[at.input];
    }
    return at;
}

TCI_FN void tci_general_learn(tci_variant_kind *k, const tci_signature *sig)
{
    for (int a = k->n_axes; a-- > 0;) { /* from the last: `like` of those before is still the old */
        int64_t size = tci_general_size(k, sig, a);
        int32_t like = 0;
        while (k->like[like] != k->like[a] || tci_general_size(k, sig, like) != size) {
            like++;
        }
        k->like[a] = like;
        k->least[a] = TCI_MIN(k->least[a], size);
        k->most[a] = TCI_MAX(k->most[a], size);
    }
}

TCI_FN void tci_general_fixed(const tci_signature *sig, tci_variant_guard *guards)
{
    for (int i = 0; i < sig->inputs->n; i++) {
        const int64_t *sizes = tci_variants_sizes(&sig->inputs->items[i]);
        for (int a = 0; a < tci_variants_rank(&sig->inputs->items[i]); a++) {
            *guards++ = (tci_variant_guard){sizes[a], sizes[a], -1, -1};
        }
    }
}

TCI_FN bool tci_general_is_fixed(const tci_general *g, int i, int a, int rank)
{
    for (int f = 0; f < g->n_fixed; f++) {
        int axis = g->fixed[f].axis;
        if (g->fixed[f].input == i && (axis == a || axis + rank == a)) {
            return true;
        }
    }
    return false;
}

#ifdef TC_DYNAMIC_SHAPES

enum { TCI_GENERAL_LEASTS = 3, TCI_GENERAL_MOSTS = 3 };

TCI_FN bool tci_general_guards(const tci_general *g, const tci_variant_kind *k,
                               const tci_signature *sig, int attempt, tci_variant_guard *guards)
{
    static const int64_t mosts[TCI_GENERAL_MOSTS] = {1 << 20, 1 << 15, 1 << 11};
    int64_t least = attempt % TCI_GENERAL_LEASTS, most;
    bool varies = false;
    if (g->pads || attempt >= TCI_GENERAL_LEASTS * TCI_GENERAL_MOSTS) {
        return false;
    }
    most = mosts[attempt / TCI_GENERAL_LEASTS];
    tci_general_fixed(sig, guards);
    for (int a = 0; a < k->n_axes; a++) {
        int64_t size = guards[a].least;
        tc_jit_axis at = tci_general_place(k, a);
        if (k->least[a] == k->most[a] || size < least || size > most ||
            tci_general_is_fixed(g, at.input, at.axis, k->ranks[at.input])) {
            continue;
        }
        int first = 0; /* the first open axis that was always of the same size */
        while (first < a &&
               (k->like[first] != k->like[a] || guards[first].least == guards[first].most)) {
            first++;
        }
        tc_jit_axis same = tci_general_place(k, first);
        guards[a] = (tci_variant_guard){least, most, first < a ? same.input : -1,
                                        first < a ? same.axis : -1};
        varies = true;
    }
    return varies;
}

TCI_FN void tci_general_dims(const tci_variant_kind *k, const tci_variant_guard *guards,
                             int64_t *dims)
{
    for (int a = 0; a < k->n_axes; a++) {
        const tci_variant_guard *g = &guards[a];
        tc_jit_axis at = tci_general_place(k, a);
        if (g->same_input >= 0) {
            at = (tc_jit_axis){g->same_input, g->same_axis};
        }
        char name[40];
        snprintf(name, sizeof(name), "in%d_%d", at.input, at.axis);
        dims[a] = g->least == g->most ? g->least : tc_dim_make(name, g->least, g->most);
    }
}

#else

TCI_FN bool tci_general_guards(const tci_general *g, const tci_variant_kind *k,
                               const tci_signature *sig, int attempt, tci_variant_guard *guards)
{
    (void)g, (void)k, (void)sig, (void)attempt, (void)guards;
    return false;
}

TCI_FN void tci_general_dims(const tci_variant_kind *k, const tci_variant_guard *guards,
                             int64_t *dims)
{
    for (int a = 0; a < k->n_axes; a++) {
        dims[a] = guards[a].least;
    }
}

#endif

TCI_FN void tci_general_advice(const tci_variant_kind *k, char *text, size_t room)
{
    size_t n = 0;
    text[0] = 0;
    for (int a = 0; a < k->n_axes && n + 1 < room; a++) {
        tc_jit_axis at = tci_general_place(k, a);
        if (k->least[a] < k->most[a] && k->like[a] == a) {
            long long least = k->least[a], most = k->most[a];
            n += (size_t)snprintf(text + n, room - n,
                                  "%saxis %d of input %d had %lld to %lld: write "
                                  "TC_DIM(\"in%d_%d\", %lld, %lld)",
                                  n ? "; " : "", at.axis, at.input, least, most, at.input, at.axis,
                                  least, most);
        }
    }
    if (!n) {
        snprintf(text, room, "no size varied");
    }
}
