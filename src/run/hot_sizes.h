/* run/hot_sizes.h - frequent sizes among the runs of a symbolic specialization: a heavy-hitter
 * sketch over sampled calls (Misra and Gries, 1982). */
#ifndef TCI_RUN_HOT_SIZES_H
#define TCI_RUN_HOT_SIZES_H

#include "specializations.h"

enum {
    TCI_HOT_SLOTS = 8,   /* sizes that are counted at once: any with more than 1/9 of the samples */
    TCI_HOT_COUNT = 8,   /* samples that make sizes hot */
    TCI_HOT_WINDOW = 64, /* samples after which hot specializations are looked at */
    TCI_HOT_LEAST = 64   /* runs in a window without which one of them is cold */
};

/* One heap block of a kind, which frees it (run/specializations.c); guarded by the owner's lock. */
typedef struct tci_hot_sizes {
    tci_variant *candidate; /* compiled, not served yet; or NULL */
    int n_axes, n_samples;  /* of this window */
    int n_refused;          /* fixed forms that were not worth their place */
    int counts[TCI_HOT_SLOTS];
    int64_t sizes[]; /* TCI_HOT_SLOTS * n_axes */
} tci_hot_sizes;

/* The sketch of the kind, made if there is none. NULL: no memory. */
TCI_FN tci_hot_sizes *tci_hot_sizes_of(tci_variant_kind *kind);
/* Counts one sample; returns how many of the same sizes there were, as far as they are known. */
TCI_FN int tci_hot_sizes_note(tci_hot_sizes *h, const tci_signature *sig);
/* Forgets the sizes of the signature: they begin at 0 again. */
TCI_FN void tci_hot_sizes_forget(tci_hot_sizes *h, const tci_signature *sig);

#endif
