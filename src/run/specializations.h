/* run/specializations.h - declares the table of a function's specializations, found by signature
 * without a lock.
 *
 * Readers (tci_variants_enter, _find, _leave) take no lock and no memory. Writers hold the lock of
 * the owner. A reader may use what it found until it leaves, even if a writer removes it meanwhile:
 * memory is freed after a grace period (run/specializations.c). */
#ifndef TCI_RUN_SPECIALIZATIONS_H
#define TCI_RUN_SPECIALIZATIONS_H

#include "runtime_structs.h"

enum {
    TCI_VARIANTS_LANES = 16, /* counters that threads share out among themselves */
    /* One call in this many of a lane samples its sizes: a prime, so that callers that take turns
     * are all sampled */
    TCI_VARIANTS_SAMPLE = 61
};

/* Signature of a call. */
typedef struct tci_signature {
    const tc_statics *statics; /* NULL: none */
    const tc_bufs *inputs;
} tci_signature;

/* Memory that readers may still see: the first member of whatever is removed. */
typedef struct tci_retired {
    struct tci_retired *next;
    void (*free)(struct tci_retired *r);
} tci_retired;

/* The part of a signature that is compared exactly. One heap block; lives as long as the table. */
typedef struct tci_variant_kind {
    uint64_t hash;
    int n_statics, n_inputs, n_axes;
    int64_t *statics;
    int8_t *dtypes;
    int32_t *ranks; /* per input */
    /* Observed sizes, for the writer: per axis of all inputs in order */
    int64_t *least, *most;     /* of the sizes asked for so far */
    int32_t *like;             /* the first axis that had the same size each time */
    int attempt;               /* the first that may succeed (api/auto_dynamic_shapes.h) */
    struct tci_hot_sizes *hot; /* which sizes keep coming (run/hot_sizes.h), or NULL */
} tci_variant_kind;

/* The sizes that a specialization serves: axis a in [least, most], and equal to the axis that
 * same_input, same_axis name; same_input -1: none. */
typedef struct tci_variant_guard {
    int64_t least, most;
    int32_t same_input, same_axis;
} tci_variant_guard;

typedef struct tci_variant {
    tci_retired retired;
    tci_variant_kind *kind;
    tci_variant_guard *guards; /* kind->n_axes, after the struct */
    tc_program *program;       /* counted */
    char *padded;              /* atomic: memory of padded buffers, idle; or NULL */
    int64_t id, compile_ns;
    bool symbolic, interpreted;
    bool interim;        /* interpreted as the stance was so, */
    bool beyond;         /* or as there were enough others */
    bool hot;            /* of sizes that kept coming; */
    int64_t hits_before; /* its hits when the window of samples began */
    struct {
        uint64_t hits, space[7];
    } lanes[TCI_VARIANTS_LANES]; /* atomic */
} tci_variant;

/* Specializations of one kind, in the order in which they are tried; replaced as a whole. */
typedef struct tci_variant_list {
    tci_retired retired;
    tci_variant_kind *kind;
    int n;
    tci_variant *items[];
} tci_variant_list;
typedef struct tci_variant_table {
    tci_retired retired;
    uint32_t mask; /* slots - 1 */
    tci_variant_list *slots[];
} tci_variant_table;

typedef struct tci_variants {
    tci_variant_table *table; /* atomic; NULL: empty */
    uint32_t side;            /* atomic: where readers count themselves */
    int32_t is_pending;       /* atomic: something waits for readers */
    bool flipped;             /* the writer waits for the side before */
    int n_kinds;
    tci_retired *waiting, *fresh; /* removed before and after the wait began */
    int64_t next_id;
    struct {
        uint64_t n[2], space[14];
    } lanes[TCI_VARIANTS_LANES]; /* atomic: readers by side */
} tci_variants;

/* ---- readers ---- */
/* Sizes of an input: a buffer without sizes has one axis. */
static inline int tci_variants_rank(const tc_buf *b)
{
    return b->sizes ? b->rank : 1;
}
static inline const int64_t *tci_variants_sizes(const tc_buf *b)
{
    return b->sizes ? b->sizes : &b->n;
}
/* Returns what tci_variants_leave takes. */
TCI_FN uint32_t tci_variants_enter(tci_variants *v);
TCI_FN void tci_variants_leave(tci_variants *v, uint32_t ticket);
/* The specialization that serves the signature, or NULL. Every input has a list of sizes if its
 * rank says so. */
TCI_FN tci_variant *tci_variants_find(tci_variants *v, const tci_signature *sig);
/* The list of the next kind, from slot *at of the table on; NULL: there is none left. */
TCI_FN tci_variant_list *tci_variants_next(const tci_variant_table *t, uint32_t *at);
/* All of them, oldest first, into list, which has room for `room`; returns how many there
 * are. */
TCI_FN int tci_variants_all(const tci_variants *v, tci_variant **list, int room);
/* Counts a run. True now and then, of a symbolic one: the owner looks at the sizes that came. */
TCI_FN bool tci_variants_hit(tci_variant *x);

/* ---- writers: under the owner's lock ---- */
/* The list of the signature's kind, made if there is none. NULL: no memory. */
TCI_FN tci_variant_list *tci_variants_kind(tci_variants *v, const tci_signature *sig);
/* A specialization without guards or program yet. NULL: no memory. */
TCI_FN tci_variant *tci_variants_make(tci_variant_kind *kind);
TCI_FN void tci_variants_free_one(tci_variant *x); /* one that was never added */
/* Adds it: those of known sizes precede symbolic ones. False: no memory. */
TCI_FN bool tci_variants_add(tci_variants *v, tci_variant *x);
/* Removes all that `drops` says. False: no memory; then none is removed. */
TCI_FN bool tci_variants_remove(tci_variants *v, const tci_variant *const *drops, int n);
/* Frees removed memory that no reader can see any more. */
TCI_FN void tci_variants_collect(tci_variants *v);
static inline bool tci_variants_pending(tci_variants *v)
{
    return __atomic_load_n(&v->is_pending, __ATOMIC_RELAXED) != 0;
}
/* Frees everything: there are no readers. */
TCI_FN void tci_variants_free(tci_variants *v);
TCI_FN int64_t tci_variants_hits(const tci_variant *x);

#endif
