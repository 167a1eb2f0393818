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

#include <stdarg.h>
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

/* Number of axis `axis` of input `input`, counted over all inputs in order. */
static int tci_general_index(const tci_variant_kind *k, int input, int axis)
{
    for (int i = 0; i < input; i++) {
        axis += k->ranks[i];
    }
    return axis;
}

/* The axis whose symbol serves axis a: a itself if it is no copy. */
static int tci_general_symbol(const tci_variant_kind *k, const tci_variant_guard *guards, int a)
{
    const tci_variant_guard *g = &guards[a];
    return g->same_input >= 0 ? tci_general_index(k, g->same_input, g->same_axis) : a;
}

TCI_FN bool tci_general_covers(const tci_variant_kind *k, const tci_variant_guard *guards,
                               const tci_variant *x)
{
    for (int a = 0; a < k->n_axes; a++) {
        const tci_variant_guard *of = &x->guards[a];
        int like = tci_general_symbol(k, guards, a);
        const tci_variant_guard *first = &x->guards[like];
        bool equal = like == a ||
                     tci_general_symbol(k, x->guards, a) ==
                         tci_general_symbol(k, x->guards, like) ||
                     (of->least == of->most && first->least == first->most &&
                      of->least == first->least);
        if (of->least < guards[a].least || of->most > guards[a].most || !equal) {
            return false;
        }
    }
    return true;
}

/* ---- advice ---- */

typedef struct tci_general_text {
    char *text;
    size_t room, n;
} tci_general_text;

static void tci_general_write(tci_general_text *t, const char *format, ...) TCI_PRINTF(2, 3);
static void tci_general_write(tci_general_text *t, const char *format, ...)
{
    va_list args;
    if (t->n + 3 < t->room) {
        t->n += (size_t)snprintf(t->text + t->n, t->room - t->n, "%s", t->n ? "; " : "");
        va_start(args, format);
        t->n += (size_t)vsnprintf(t->text + t->n, t->room - t->n, format, args);
        va_end(args);
    }
}

static bool tci_general_is_symbol(const tci_variant_list *l, int a)
{
    for (int i = 0; i < l->n; i++) {
        if (l->items[i]->guards[a].least < l->items[i]->guards[a].most) {
            return true;
        }
    }
    return false;
}

static void tci_general_advise_sizes(const tci_general *g, const tci_variant_list *l,
                                     tci_general_text *t)
{
    const tci_variant_kind *k = l->kind;
    for (int a = 0; a < k->n_axes; a++) {
        tc_jit_axis at = tci_general_place(k, a);
        long long least = k->least[a], most = k->most[a];
        if (least == most || tci_general_is_symbol(l, a)) {
            continue;
        }
        if (tci_general_is_fixed(g, at.input, at.axis, k->ranks[at.input])) {
            tci_general_write(t,
                              "axis %d of input %d, which options.fixed_axes names, had %lld to "
                              "%lld: take it out of there if build hands its size to calls only",
                              at.axis, at.input, least, most);
        } else if (k->like[a] == a) {
            tci_general_write(t,
                              "axis %d of input %d had %lld to %lld: write "
                              "TC_DIM(\"in%d_%d\", %lld, %lld)",
                              at.axis, at.input, least, most, at.input, at.axis, least, most);
        }
    }
}

static void tci_general_advise_kinds(const tci_variants *v, const tci_variant_kind *k,
                                     tci_general_text *t)
{
    bool others = false;
    uint32_t slot = 0;
    for (const tci_variant_list *l; (l = tci_variants_next(v->table, &slot));) {
        others |= l->kind->n_inputs != k->n_inputs ||
                  memcmp(l->kind->dtypes, k->dtypes, (size_t)k->n_inputs) != 0 ||
                  memcmp(l->kind->ranks, k->ranks, sizeof(*k->ranks) * (size_t)k->n_inputs) != 0;
    }
    for (int i = 0; i < k->n_statics; i++) {
        int64_t least = k->statics[i], most = least;
        slot = 0;
        for (const tci_variant_list *l; (l = tci_variants_next(v->table, &slot));) {
            int64_t has = i < l->kind->n_statics ? l->kind->statics[i] : least;
            least = TCI_MIN(least, has);
            most = TCI_MAX(most, has);
        }
        if (least < most) {
            tci_general_write(t,
                              "static integer %d had %lld to %lld: give it as an input if build "
                              "computes with it only",
                              i, (long long)least, (long long)most);
        }
    }
    if (others) {
        tci_general_write(t, "dtypes or ranks of inputs differed: convert them before the call");
    }
}

TCI_FN void tci_general_advice(const tci_general *g, const tci_variants *v,
                               const tci_variant_list *l, char *text, size_t room)
{
    tci_general_text t = {text, room, 0};
    text[0] = 0;
    tci_general_advise_sizes(g, l, &t);
    tci_general_advise_kinds(v, l->kind, &t);
    tci_general_write(&t, "or raise options.max_variants");
}
