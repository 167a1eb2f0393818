/* emit/c_templates.h - declares the state and the templates that the files of the C dialect share.
 *
 * Letters of a template (tci_c_dialect_define): $T the type, $E its element, $A the type
 * unaligned, $I $U the signed and unsigned integer vector of the same shape, $V the unsigned
 * integer of an element's size, $B the mask, $R the result type, $L lanes, $W bits of an element,
 * $f the suffix f of f32 names, $C F32 or F64, $n the name being defined, $1..$4 pieces, which are
 * templates too; @x the BASE prim x on the same type, @@x on its element; {v16si} a vector type as
 * x86 builtins declare it. */
#ifndef TCI_EMIT_C_TEMPLATES_H
#define TCI_EMIT_C_TEMPLATES_H

#include "dialect.h"

typedef struct tci_c_dialect tci_c_dialect;
struct tci_c_dialect {
    tci_dialect d;          /* what the caller holds; d.state is this struct */
    const char **names;     /* open-addressed set of defined names; NULL = free */
    int n_names, cap_names; /* cap a power of two, never more than half full */
    tci_str out;            /* complete definitions */
    /* A dialect that extends this one has vectors of its own: names of "any lane is true", and of
     * the helper on the lanes that a mask marks, 0 elsewhere. */
    const char *(*any)(tci_c_dialect *cd, int lanes);
    const char *(*lanes_of)(tci_c_dialect *cd, int helper, tc_dtype t, int lanes);
    const char *helper_word; /* before a helper's definition */
    void *more;              /* its state */
};

/* Values of the template letters. */
typedef struct tci_c_dialect_env {
    tci_c_dialect *cd;
    tc_dtype t, to;
    int lanes;
    const char *name;
    const char *piece[4];
} tci_c_dialect_env;

/* ---- emit/c_dialect.c ---- */
/* The stable copy of a name; *is_new: it was unknown, and the caller now defines it. */
TCI_FN const char *tci_c_dialect_intern(tci_c_dialect *cd, const char *name, bool *is_new);
TCI_FN void tci_c_dialect_define(const tci_c_dialect_env *e, const char *text);
/* "f, f, ..." n times, with # replaced by i * step % modulo. */
TCI_FN const char *tci_c_dialect_list(tci_c_dialect *cd, int n, const char *format, int step,
                                      int modulo);
TCI_FN tc_dtype tci_c_dialect_sint(int bytes);
TCI_FN tc_dtype tci_c_dialect_uint(int bytes);
TCI_FN tc_dtype tci_c_dialect_mask_dtype(const tci_c_dialect *cd, int lanes);
TCI_FN const char *tci_c_dialect_suffix(tci_c_dialect *cd, tc_dtype t, int lanes); /* "f32x16" */
TCI_FN const char *tci_c_dialect_unaligned(tci_c_dialect *cd, tc_dtype t, int lanes);
TCI_FN void tci_c_dialect_define_helper(tci_c_dialect *cd, int id);

/* ---- emit/c_prims.c ---- */
TCI_FN void tci_c_dialect_define_base(const tci_c_dialect_env *e, tci_prim p);
/* A vector wider than the machine's, in parts of this many lanes. */
TCI_FN void tci_c_dialect_define_parts(tci_c_dialect_env *e, tci_prim p, int native);
/* The vector `a` of `bytes` as an x86 register of at least 16 bytes; the rest of it is anything. */
TCI_FN const char *tci_c_dialect_to_register(int bytes);
/* The low `bytes` of a register expression, as the template's $R. */
TCI_FN const char *tci_c_dialect_from_register(tci_c_dialect *cd, int bytes,
                                               const char *expression);
/* Name of the vector conversion of numbers that `to` can hold (integers wrap). */
TCI_FN const char *tci_c_dialect_convert(tci_c_dialect *cd, tc_dtype from, tc_dtype to, int lanes);
/* Name of: integer vector of 0 / -1 in the shape of t -> mask, and back. */
TCI_FN const char *tci_c_dialect_to_mask(tci_c_dialect *cd, tc_dtype t, int lanes);
TCI_FN const char *tci_c_dialect_of_mask(tci_c_dialect *cd, tc_dtype t, int lanes);

/* Name of: (x, y, a, b) -> a where x compares to y, else b; t is x's dtype, to is a's. NULL where
 * compare and SELECT do as well. */
TCI_FN const char *tci_c_dialect_pick(tci_c_dialect *cd, tci_prim compare, tc_dtype t, tc_dtype to,
                                      int lanes);

/* ---- emit/c_memory.c ---- */
TCI_FN const char *tci_c_dialect_mem(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage,
                                     int lanes);
/* Names: storage bits (u16, u8) -> compute value; compute value -> storage bits, rounded; any lane
 * true. */
TCI_FN const char *tci_c_dialect_widen(tci_c_dialect *cd, tc_dtype compute, tc_dtype storage,
                                       int lanes);
TCI_FN const char *tci_c_dialect_narrow(tci_c_dialect *cd, tc_dtype compute, tc_dtype storage,
                                        int lanes);
TCI_FN const char *tci_c_dialect_any(tci_c_dialect *cd, int lanes);
/* Name of: a < b in any lane. */
TCI_FN const char *tci_c_dialect_any_less(tci_c_dialect *cd, tc_dtype t, int lanes);

/* ---- emit/c_fallbacks.c ---- */
/* Name of the fma of a 16-byte vector of f32 or f64 where __SSE4_1__ is defined and __FMA__ not. */
TCI_FN const char *tci_c_dialect_soft_fma(tci_c_dialect *cd, tc_dtype t);
TCI_FN void tci_c_dialect_soft(tci_c_dialect *cd,
                               const char *name); /* defines one of its texts and what it needs */
TCI_FN void tci_c_dialect_define_soft(const tci_c_dialect_env *e,
                                      tci_prim p); /* scalar primitives without an operator */

#endif
