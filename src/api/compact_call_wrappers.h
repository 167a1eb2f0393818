/* api/compact_call_wrappers.h - macros that redirect the library's own calls of public elementwise
 * ops to out-of-line wrappers, which take tensors and numbers in registers (smaller code).
 *
 * In: tc_add(x, 2) in a file that has set TC_HERE to a variable. Out: the call with tc_args.
 *
 * A tc_arg has 40 bytes and is passed on the stack. Calls within the library therefore go through a
 * function for each list of operand types (tensor, number, tc_arg), which makes the tc_args in one
 * place: a call takes 30 bytes of code instead of 110. api/compact_call_wrappers_end.h restores
 * the users' macros. */
#ifndef TCI_API_COMPACT_CALL_WRAPPERS_H
#define TCI_API_COMPACT_CALL_WRAPPERS_H

#include "../base/platform.h"
#include "ops.h"

typedef tc_tensor tci_with_1(tc_arg a, tc_site here);
typedef tc_tensor tci_with_2(tc_arg a, tc_arg b, tc_site here);
typedef tc_tensor tci_with_3(tc_arg a, tc_arg b, tc_arg c, tc_site here);

/* Letters of types: t tensor, i integer, d floating, g tc_arg. */
#define TCI_WITH_TYPE_t tc_tensor
#define TCI_WITH_TYPE_i int64_t
#define TCI_WITH_TYPE_d double
#define TCI_WITH_TYPE_g tc_arg
#define TCI_WITH_ROWS_1(X) X(t)
#define TCI_WITH_ROWS_2(X)                                                                         \
    X(t, t) X(t, i) X(t, d) X(t, g) X(i, t) X(d, t) X(g, t) X(g, i) X(g, d) X(g, g)
#define TCI_WITH_ROWS_3(X)                                                                         \
    X(t, t, t) X(t, t, i) X(t, t, d) X(t, i, t) X(t, d, t) X(t, i, i) X(t, d, d) X(t, i, d)        \
    X(t, d, i) X(t, t, g)

#define TCI_ROW(a)                                                                                 \
    TCI_FN tc_tensor tci_with_##a(tci_with_1 *f, TCI_WITH_TYPE_##a x, const tc_site *here);
TCI_WITH_ROWS_1(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(a, b)                                                                              \
    TCI_FN tc_tensor tci_with_##a##b(tci_with_2 *f, TCI_WITH_TYPE_##a x, TCI_WITH_TYPE_##b y,      \
                                     const tc_site *here);
TCI_WITH_ROWS_2(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(a, b, c)                                                                           \
    TCI_FN tc_tensor tci_with_##a##b##c(tci_with_3 *f, TCI_WITH_TYPE_##a x, TCI_WITH_TYPE_##b y,   \
                                        TCI_WITH_TYPE_##c z, const tc_site *here);
TCI_WITH_ROWS_3(TCI_ROW)
#undef TCI_ROW

#pragma push_macro("TCI_WITH_1")
#pragma push_macro("TCI_WITH_2")
#pragma push_macro("TCI_WITH_3")

#if (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)
#undef TCI_WITH_1
#undef TCI_WITH_2
#undef TCI_WITH_3

/* A type without an entry, and a list of types without a row, does not compile. */
#define TCI_WITH_PICK(v, t, i, d, g)                                                               \
    _Generic((v), tc_tensor: t, int: i, unsigned: i, long: i, long long: i, float: d, double: d,   \
        tc_arg: g)
#define TCI_WITH_FN_1(a) TCI_WITH_PICK(a, tci_with_t, 0, 0, 0)
#define TCI_WITH_FN_2(a, b)                                                                        \
    TCI_WITH_PICK(a, TCI_WITH_PICK(b, tci_with_tt, tci_with_ti, tci_with_td, tci_with_tg),         \
                  TCI_WITH_PICK(b, tci_with_it, 0, 0, 0), TCI_WITH_PICK(b, tci_with_dt, 0, 0, 0),  \
                  TCI_WITH_PICK(b, tci_with_gt, tci_with_gi, tci_with_gd, tci_with_gg))
#define TCI_WITH_FN_3(b, c)                                                                        \
    TCI_WITH_PICK(b, TCI_WITH_PICK(c, tci_with_ttt, tci_with_tti, tci_with_ttd, tci_with_ttg),     \
                  TCI_WITH_PICK(c, tci_with_tit, tci_with_tii, tci_with_tid, 0),                   \
                  TCI_WITH_PICK(c, tci_with_tdt, tci_with_tdi, tci_with_tdd, 0), 0)

/* Operands are named once, as calls are nested (TC_ARG), in variables of their own. */
#define TCI_WITH_1(f, a) TCI_WITH_1_N(f, a, __COUNTER__)
#define TCI_WITH_2(f, a, b) TCI_WITH_2_N(f, a, b, __COUNTER__)
#define TCI_WITH_3(f, a, b, c) TCI_WITH_3_N(f, a, b, c, __COUNTER__)
#define TCI_WITH_1_N(f, a, n) TCI_WITH_1_OF(f, a, n)
#define TCI_WITH_2_N(f, a, b, n) TCI_WITH_2_OF(f, a, b, n)
#define TCI_WITH_3_N(f, a, b, c, n) TCI_WITH_3_OF(f, a, b, c, n)
#define TCI_WITH_1_OF(f, a, n)                                                                     \
    __extension__({                                                                                \
        __auto_type tci_a##n = (a);                                                                \
        TCI_WITH_FN_1(tci_a##n)(f, tci_a##n, &(TC_HERE));                                          \
    })
#define TCI_WITH_2_OF(f, a, b, n)                                                                  \
    __extension__({                                                                                \
        __auto_type tci_a##n = (a);                                                                \
        __auto_type tci_b##n = (b);                                                                \
        TCI_WITH_FN_2(tci_a##n, tci_b##n)(f, tci_a##n, tci_b##n, &(TC_HERE));                      \
    })
#define TCI_WITH_3_OF(f, a, b, c, n)                                                               \
    __extension__({                                                                                \
        __auto_type tci_a##n = (a);                                                                \
        __auto_type tci_b##n = (b);                                                                \
        __auto_type tci_c##n = (c);                                                                \
        TCI_WITH_FN_3(tci_b##n, tci_c##n)(f, tci_a##n, tci_b##n, tci_c##n, &(TC_HERE));            \
    })
#endif

#endif
