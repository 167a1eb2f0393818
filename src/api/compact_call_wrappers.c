/* api/compact_call_wrappers.c - out-of-line wrappers of elementwise ops for calls within the
 * library, one per combination of operand types: they box tensors and numbers into tc_arg.
 *
 * In: a call, operands, the user's call site. Out: the result of the call. */
#include "compact_call_wrappers.h"

#define TCI_WITH_ARG_t tci_arg_tensor
#define TCI_WITH_ARG_i tci_arg_int
#define TCI_WITH_ARG_d tci_arg_float
#define TCI_WITH_ARG_g

#define TCI_ROW(a)                                                                                 \
    TCI_FN tc_tensor tci_with_##a(tci_with_1 *f, TCI_WITH_TYPE_##a x, const tc_site *here)         \
    {                                                                                              \
        return f(TCI_WITH_ARG_##a(x), *here);                                                      \
    }
TCI_WITH_ROWS_1(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(a, b)                                                                              \
    TCI_FN tc_tensor tci_with_##a##b(tci_with_2 *f, TCI_WITH_TYPE_##a x, TCI_WITH_TYPE_##b y,      \
                                     const tc_site *here)                                          \
    {                                                                                              \
        return f(TCI_WITH_ARG_##a(x), TCI_WITH_ARG_##b(y), *here);                                 \
    }
TCI_WITH_ROWS_2(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(a, b, c)                                                                           \
    TCI_FN tc_tensor tci_with_##a##b##c(tci_with_3 *f, TCI_WITH_TYPE_##a x, TCI_WITH_TYPE_##b y,   \
                                        TCI_WITH_TYPE_##c z, const tc_site *here)                  \
    {                                                                                              \
        return f(TCI_WITH_ARG_##a(x), TCI_WITH_ARG_##b(y), TCI_WITH_ARG_##c(z), *here);            \
    }
TCI_WITH_ROWS_3(TCI_ROW)
#undef TCI_ROW

#undef TCI_WITH_ARG_t
#undef TCI_WITH_ARG_i
#undef TCI_WITH_ARG_d
#undef TCI_WITH_ARG_g
