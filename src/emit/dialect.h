/* emit/dialect.h - declares what differs between target languages: names of types, prims and
 * memory accesses. The printer (emit/c_like.c) asks for names; the dialect records the requests
 * and prints their definitions as the file's prelude, dependencies first.
 *
 * Naming: a value type is tc_<dtype> (lanes 1) or tc_<dtype>x<lanes>, e.g. tc_f32, tc_f32x16; a
 * mask (bool) with lanes > 1 is an integer vector of 0 / -1 whose lane width is the target's
 * vector width divided by the lanes (tc_boolx16 is 16 x i32 on a 64-byte target); with lanes 1 it
 * is tc_bool (int 0/1). A function is tc_<name>_<type>[_<type2>]. Everything is `static inline` or
 * a macro. */
#ifndef TCI_EMIT_DIALECT_H
#define TCI_EMIT_DIALECT_H

#include "../api/backend.h"
#include "../base/str.h"
#include "../loop/schedule.h"
#include "../loop/intrinsics.h"
#include "../ops/math.h"

typedef struct tci_dialect tci_dialect;
struct tci_dialect {
    const tc_dialect *words; /* of head only where the hook is the C dialect's */
    const char *local_word;  /* before the declaration of an array: "", "__shared__ " */
    const char *table_word;  /* before that of a table of constants: "static const " */
    int vector_bytes;
    tci_scratch *s;
    void *state; /* the requests made so far */
    /* Name of a prim (BASE or MATH) on dtype `t` giving `to` (= t unless CAST, BITS, TOINT; masks
     * of compares follow the lanes); requests it and what it needs. imm: helper id for LANE1. */
    const char *(*prim)(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes, int imm);
    const char *(*mem)(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage, int lanes);
    const char *(*type)(tci_dialect *d, tc_dtype t, int lanes);
    /* A constant as source text of the scalar compute type: exact bits (hex floats or bit
     * casts). */
    const char *(*constant)(tci_dialect *d, tc_dtype t, tci_value v);
    /* The function's signature (with l->is_member of one that only others call) and its opening
     * brace; `bufs`, `lits`, `fault`, `task_begin` and `task_end` are in scope after it. n_words:
     * the number in `lits`. For a template (l->matrix): its main loop up to the epilogue slot,
     * where the operands' pointers, at_0, at_1, ... of its axes and `given` are in scope too. */
    void (*head)(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l, int n_words);
    /* For a template with blocks for scores: the text before block i and after it, all before the
     * function's own statements. */
    void (*score_head)(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l, int i);
    void (*score_tail)(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l, int i);
    /* Of scores: what makes a prim of two values that bf16 holds and rounds it to bf16, NULL where
     * nothing does. May be NULL. */
    const char *(*rounded)(tci_dialect *d, tci_prim p);
    /* The whole source of a kernel that calls the user's function, which has a source in this
     * language; `lits` are the launch's dims. NULL: there can be none. */
    void (*call)(tci_dialect *d, tci_str *out, const tci_kernel *k, const tci_launch *l,
                 const char *symbol);
    /* Text that closes the function after its statements. */
    void (*tail)(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l);
    /* Everything requested, in an order that compiles. No #include. */
    void (*prelude)(tci_dialect *d, tci_str *out);
};

/* Prints the function `symbol` (signature tci_kernel_fn) for one kernel; names come from d. */
TCI_FN void tci_emit_kernel(tci_str *out, tci_dialect *d, const tci_kernel *k, const tci_loop *l,
                            const char *symbol);
/* emit/grouped_launch.c: that of a merged kernel, with those of its members. */
TCI_FN void tci_emit_grouped_launch(tci_str *out, tci_dialect *d, const tci_kernel *k,
                                    const tci_loop *l, const char *symbol);
/* emit/grouped_launch.c: that of an in-kernel loop, with those of its members. */
TCI_FN void tci_emit_kloop(tci_str *out, tci_dialect *d, const tci_kernel *k, const tci_loop *l,
                           const char *symbol);
TCI_FN tci_dialect *tci_dialect_c(tci_scratch *s, int vector_bytes); /* emit/c_dialect.c */
/* A language like C, in scalar code; or what it makes itself. */
TCI_FN tci_dialect *tci_dialect_make(tci_scratch *s, const tc_dialect *words, int vector_bytes);
/* Of C: functions are seen by their own file alone. */
TCI_FN void tci_dialect_hide(tci_dialect *d);
/* The whole source, when all of it is printed. */
TCI_FN void tci_dialect_finish(const tci_dialect *d, tci_str *source);
/* `text` with # replaced by a number. */
TCI_FN void tci_dialect_number(tci_str *out, const char *text, int number);

#endif
