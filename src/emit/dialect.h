/* emit/dialect.h - what differs between target languages: how types, prims and memory accesses are
 * spelled. The printer (emit/c_like.c) asks for names; the dialect records which were asked for and
 * prints their definitions as the file's prelude, dependencies first.
 *
 * Naming: a value type is tc_<dtype> (lanes 1) or tc_<dtype>x<lanes>, e.g. tc_f32, tc_f32x16; a mask
 * (bool) with lanes > 1 is an integer vector of 0 / -1 whose lane width is the target's vector width
 * divided by the lanes (tc_boolx16 is 16 x i32 on a 64-byte target); with lanes 1 it is tc_bool (int 0/1).
 * A function is tc_<name>_<type>[_<type2>]. Everything is `static inline` or a macro. */
#ifndef TCI_EMIT_DIALECT_H
#define TCI_EMIT_DIALECT_H

#include "../base/str.h"
#include "../ops/math.h"

typedef enum tci_mem {
    TCI_MEM_LOAD,        /* T f(const S *p): lanes consecutive elements of storage dtype S as compute T */
    TCI_MEM_LOAD_MASK,   /* T f(const S *p, B m): lanes with m false are not touched and read as 0 */
    TCI_MEM_LOAD_N,      /* T f(const S *p, long n): first n lanes, 0 < n < lanes; the rest read as 0 */
    TCI_MEM_LOAD_STRIDED,/* T f(const S *p, long stride): element i at p[i * stride] */
    TCI_MEM_LOAD_STRIDED_N, /* T f(const S *p, long stride, long n) */
    TCI_MEM_LOAD_ONE,    /* T1 f(const S *p): one element, scalar */
    TCI_MEM_STORE,       /* void f(S *p, T v): narrows and stores */
    TCI_MEM_STORE_N,     /* void f(S *p, T v, long n) */
    TCI_MEM_STORE_STREAM,/* void f(S *p, T v): bypasses the caches; p is aligned to the vector */
    TCI_MEM_STORE_STRIDED,   /* void f(S *p, long stride, T v) */
    TCI_MEM_STORE_STRIDED_N, /* void f(S *p, long stride, T v, long n) */
    TCI_MEM_STORE_ONE,   /* void f(S *p, T1 v) */
    TCI_MEM_SPLAT,       /* T f(T1 v): every lane */
    TCI_MEM_IOTA,        /* T f(T1 first): first, first + 1, ... */
    TCI_MEM_FIRST_N,     /* B f(long n): lanes < n */
    TCI_MEM_LANE,        /* T1 f(T v, int i) */
    TCI_MEM_SET_LANE,    /* T f(T v, int i, T1 x) */
    TCI_MEM_HIGH_HALF,   /* T f(T v, int h): lane i takes lane i + h (i < h), the rest unspecified */
    TCI_MEM_PREFETCH,    /* void f(const void *p) */
    TCI_MEM_FENCE,       /* void f(void): after streaming stores */
    TCI_MEM_COUNT
} tci_mem;

typedef struct tci_dialect tci_dialect;
struct tci_dialect {
    const char *name;                 /* "c", "cuda" */
    const char *restrict_word;        /* "__restrict__" */
    int vector_bytes;
    tci_scratch *s;
    void *state;                      /* the requests made so far */
    /* Name of a prim (BASE or MATH) on dtype `t` giving `to` (= t unless CAST, BITS, TOINT; masks of
     * compares follow the lanes); requests it and what it needs. imm: helper id for LANE1. */
    const char *(*prim)(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes, int imm);
    const char *(*mem)(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage, int lanes);
    const char *(*type)(tci_dialect *d, tc_dtype t, int lanes);
    /* A constant as source text of the scalar compute type: exact bits (hex floats or bit casts). */
    const char *(*constant)(tci_dialect *d, tc_dtype t, tci_value v);
    /* Everything requested, in an order that compiles. No #include. */
    void (*prelude)(tci_dialect *d, tci_str *out);
};

#endif
