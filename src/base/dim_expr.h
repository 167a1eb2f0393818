/* base/dim_expr.h - representation of a symbolic size, for the files base/dim*.c only.
 *
 *   atom   a symbol, or floor(a / b), min(a, b), max(a, b) of two expressions, one of them unknown
 *   term   coefficient * product of atoms (ascending, repeated for powers)
 *   expression  a sum of terms, highest first, the constant last; bounds of its value and a hint
 *
 * Canonical form: no two terms with the same atoms, no coefficient 0, and never a plain number or
 * an expression whose value is known. Atoms are ordered by their contents and not by address, so
 * the text of an expression is the same in every process. */
#ifndef TCI_BASE_DIM_EXPR_H
#define TCI_BASE_DIM_EXPR_H

#include "dim.h"

#ifdef TC_DYNAMIC_SHAPES

enum { TCI_DIM_TERMS = 64, TCI_DIM_ATOMS = 16, TCI_DIM_LEVELS = 64 };
enum { TCI_DIM_FEW = 10, TCI_DIM_NOTES = 16 }; /* terms and notes that are kept without the heap */
enum { TCI_DIM_CHUNKS = 22, TCI_DIM_FIRST = 256 };
enum { TCI_DIM_INDEX_BITS = 24, TCI_DIM_CHECK_BITS = 24 }; /* of a symbolic number, below its tag */

typedef enum tci_dim_kind { TCI_DIM_SYMBOL, TCI_DIM_DIV, TCI_DIM_MIN, TCI_DIM_MAX } tci_dim_kind;

typedef struct tci_dim_atom {
    uint8_t kind;
    int32_t ordinal; /* SYMBOL: its number, -1 for one with a name */
    char *name;      /* SYMBOL: "" without one */
    tci_dim a, b;    /* the others */
    int32_t levels;  /* one more than those of a and b; a SYMBOL: 0 */
    uint32_t hash;
    int64_t least, most, hint;
} tci_dim_atom;

typedef struct tci_dim_term {
    int64_t coef;
    int32_t n, atoms[TCI_DIM_ATOMS];
} tci_dim_term;

typedef struct tci_dim_expr {
    int32_t n, levels; /* quotients, minima and maxima within each other */
    tci_dim_term *terms;
    uint32_t hash;
    int64_t least, most, hint;
} tci_dim_expr;

/* An expression being made; `bad` once it does not fit, no_memory if that is the reason. Begin and
 * end each one: many terms are on the heap, so that a sum is small on the stack. Never copied by
 * assignment. */
typedef struct tci_dim_sum {
    int n, room;
    bool bad, no_memory;
    tci_dim_term *terms, few[TCI_DIM_FEW];
} tci_dim_sum;

/* Memo table of a traversal, by index of quotient, minimum or maximum, so that each is visited
 * once: expressions share operands, and the number of paths doubles with each level. Start with
 * n_slots 0, free each table. Without memory a result is not recorded. */
typedef struct tci_dim_note {
    int32_t atom;
    int64_t a, b;
} tci_dim_note; /* atom -1: free */
typedef struct tci_dim_memo {
    int n, n_slots;
    tci_dim_note *slots, few[TCI_DIM_NOTES];
} tci_dim_memo;

/* Entries and their hash table, open addressing; a slot holds an index + 1, or 0. */
typedef struct tci_dim_table {
    void *chunks[TCI_DIM_CHUNKS];
    int32_t *slots;
    int n, n_slots; /* n_slots: a power of two, above n */
} tci_dim_table;

typedef struct tci_dim_range {
    int64_t least, most, hint;
} tci_dim_range;

/* ---- dim_interning.c ---- */

TCI_FN void tci_dim_take_lock(void);
TCI_FN void tci_dim_give_lock(void);
TCI_FN int tci_dim_highest_index(void); /* of all expressions that ever were; 0: none */
TCI_FN const tci_dim_atom *tci_dim_atom_at(int index);
/* NULL for a number that stands for none. */
TCI_FN const tci_dim_expr *tci_dim_expr_of(tci_dim d);
/* The order of what they are: below, at or above 0. Of terms: more atoms first, so that the
 * constant comes last. */
TCI_FN int tci_dim_atom_compare(int32_t x, int32_t y);
TCI_FN int tci_dim_term_compare(const tci_dim_term *x, const tci_dim_term *y);
TCI_FN int tci_dim_compare(tci_dim a, tci_dim b);
/* With the lock held: the expression of these terms, found or made; or a fault. */
TCI_FN tci_dim tci_dim_lose(void); /* the fault MEMORY, which tci_dim_take_lost tells of */
TCI_FN tci_dim tci_dim_intern(const tci_dim_sum *s);
/* With the lock held: the index of an atom, found or made; -1: out of memory. Copies the name. */
TCI_FN int tci_dim_atom_intern(tci_dim_atom atom);

/* ---- dim_bounds.c: numbers saturated at +-2^61 ---- */

static const int64_t tci_dim_limit = (int64_t)1 << 61;

TCI_FN int64_t tci_dim_plus(int64_t a, int64_t b);
TCI_FN int64_t tci_dim_times(int64_t a, int64_t b);
TCI_FN int64_t tci_dim_quotient(int64_t a, int64_t b); /* rounded down; 0 where b is */
TCI_FN tci_dim_range tci_dim_range_of_terms(const tci_dim_term *terms, int n);

/* ---- dim_misuse.c ---- */

/* With the lock held: no user has any symbolic size from now on. */
TCI_FN void tci_dim_hide_all(void);

/* ---- dim.c ---- */

static const tci_dim_term tci_dim_one = {1, 0, {0}};

TCI_FN void tci_dim_sum_begin(tci_dim_sum *s);
TCI_FN void tci_dim_sum_end(tci_dim_sum *s);
/* `to` has been begun; its own terms go. */
TCI_FN void tci_dim_sum_copy(tci_dim_sum *to, const tci_dim_sum *from);
TCI_FN void tci_dim_sum_add(tci_dim_sum *s, const tci_dim_term *t);
/* s += scale * d */
TCI_FN void tci_dim_sum_take(tci_dim_sum *s, tci_dim d, const tci_dim_term *scale);
/* Terms of a number (kept in *known) or an expression; *n of them, -1 for one of no meaning. */
TCI_FN const tci_dim_term *tci_dim_terms(tci_dim d, tci_dim_term *known, int *n);
TCI_FN tci_dim_term tci_dim_term_product(const tci_dim_term *x, const tci_dim_term *y, bool *bad);
TCI_FN tci_dim tci_dim_of_atom(tci_dim_atom atom);

/* ---- dim_substitute.c ---- */

TCI_FN const tci_dim_note *tci_dim_memo_find(const tci_dim_memo *m, int32_t atom); /* or NULL */
TCI_FN void tci_dim_memo_put(tci_dim_memo *m, int32_t atom, int64_t a, int64_t b);
TCI_FN void tci_dim_memo_end(tci_dim_memo *m);
#ifdef TCI_TEST_ALLOC
/* Atoms that are no symbols and were looked into, compared or replaced by their bounds, since the
 * process began: what a test of complexity counts. */
TCI_FN void tci_dim_count(void);
TCI_FN int64_t tci_dim_counted(void);
#define TCI_DIM_COUNT() tci_dim_count()
#else
#define TCI_DIM_COUNT() ((void)0)
#endif

/* The quotient (0 where b is not above 0), minimum or maximum that an atom of this kind is. */
TCI_FN tci_dim tci_dim_join(int kind, tci_dim a, tci_dim b);

#endif
#endif
