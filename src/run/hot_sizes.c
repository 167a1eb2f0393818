/* run/hot_sizes.c - heavy-hitter sketch (Misra-Gries) of the sizes of sampled calls, to find sizes
 * worth a specialization.
 *
 * In: signatures of sampled calls. Out: a lower bound on the frequency of each. A frequent size has
 * a slot; a sample without a slot takes a free one, or decrements all counts. A count is never
 * above the true count, hence many different sizes never look hot, and sizes with more than 1/9 of
 * the samples get a slot. */
#include "hot_sizes.h"

#include "../base/alloc.h"

TCI_FN tci_hot_sizes *tci_hot_sizes_of(tci_variant_kind *kind)
{
    size_t n = (size_t)TCI_HOT_SLOTS * (size_t)kind->n_axes;
    if (!kind->hot) {
        kind->hot = tci_heap_get(sizeof(*kind->hot) + n * sizeof(kind->hot->sizes[0]));
        if (kind->hot) {
            kind->hot->n_axes = kind->n_axes;
        }
    }
    return kind->hot;
}

/* Compares the sizes of a slot with those of the signature; sets: writes them there instead. */
static bool tci_hot_sizes_match(int64_t *slot, const tci_signature *sig, bool sets)
{
    bool same = true;
    for (int i = 0; i < sig->inputs->n; i++) {
        const int64_t *sizes = tci_variants_sizes(&sig->inputs->items[i]);
        for (int a = 0; a < tci_variants_rank(&sig->inputs->items[i]); a++, slot++) {
            same = same && *slot == sizes[a];
            *slot = sets ? sizes[a] : *slot;
        }
    }
    return same;
}

/* The slot that counts the sizes of the signature, or -1; *empty: one that counts none, or -1. */
static int tci_hot_sizes_find(tci_hot_sizes *h, const tci_signature *sig, int *empty)
{
    *empty = -1;
    for (int s = 0; s < TCI_HOT_SLOTS; s++) {
        if (!h->counts[s]) {
            *empty = s;
        } else if (tci_hot_sizes_match(h->sizes + s * h->n_axes, sig, false)) {
            return s;
        }
    }
    return -1;
}

TCI_FN int tci_hot_sizes_note(tci_hot_sizes *h, const tci_signature *sig)
{
    int empty, s = tci_hot_sizes_find(h, sig, &empty);
    h->n_samples++;
    if (s >= 0) {
        return ++h->counts[s];
    }
    if (empty >= 0) {
        tci_hot_sizes_match(h->sizes + empty * h->n_axes, sig, true);
        return h->counts[empty] = 1;
    }
    for (s = 0; s < TCI_HOT_SLOTS; s++) {
        h->counts[s]--;
    }
    return 0;
}

TCI_FN void tci_hot_sizes_forget(tci_hot_sizes *h, const tci_signature *sig)
{
    int empty, s = tci_hot_sizes_find(h, sig, &empty);
    if (s >= 0) {
        h->counts[s] = 0;
    }
}
