/* api/cpp_operators.h - C++ operators on tensors, if TC_OPERATORS is defined before tc.h is
 * included: a * 2 + b is tc_add(tc_mul(a, 2), b), for tensors and C numbers, and a += b is a = a +
 * b. Comparisons are elementwise, as tc_eq, including ==.
 *
 * An operator cannot capture the user's file and line, but the conversion of its operand can: the
 * constructor takes them as default arguments. */
#ifndef TC_API_CPP_OPERATORS_H
#define TC_API_CPP_OPERATORS_H

#include "ops.h"

#if defined(__cplusplus) && defined(TC_OPERATORS)

#define TCI_TAKES(self, type)                                                                      \
    self(type v, const char *file = __builtin_FILE(), int line = __builtin_LINE())                 \
        : arg(tci_arg(v)), here(tci_here(file, line))                                              \
    {                                                                                              \
    }
#define TCI_TAKES_NUMBERS(self)                                                                    \
    TCI_TAKES(self, int) TCI_TAKES(self, unsigned) TCI_TAKES(self, long)                           \
    TCI_TAKES(self, unsigned long) TCI_TAKES(self, long long)                                      \
    TCI_TAKES(self, unsigned long long) TCI_TAKES(self, float) TCI_TAKES(self, double)
struct tci_number {
    tc_arg arg;
    tc_site here;
    TCI_TAKES_NUMBERS(tci_number)
};
struct tci_operand { /* a number or a tensor */
    tc_arg arg;
    tc_site here;
    TCI_TAKES_NUMBERS(tci_operand)
    TCI_TAKES(tci_operand, tc_tensor)
};
struct tci_operated { /* a tensor */
    tc_arg arg;
    tc_site here;
    TCI_TAKES(tci_operated, tc_tensor)
};
#undef TCI_TAKES
#undef TCI_TAKES_NUMBERS

#define TCI_OPERATOR(sign, name)                                                                   \
    inline tc_tensor operator sign(tc_tensor a, tci_operand b)                                     \
    {                                                                                              \
        return tc_##name##_at(tci_arg(a), b.arg, b.here);                                          \
    }                                                                                              \
    inline tc_tensor operator sign(tci_number a, tc_tensor b)                                      \
    {                                                                                              \
        return tc_##name##_at(a.arg, tci_arg(b), a.here);                                          \
    }
#define TCI_OPERATOR_AND_SET(sign, name)                                                           \
    TCI_OPERATOR(sign, name)                                                                       \
    inline tc_tensor &operator sign##=(tc_tensor &a, tci_operand b)                                \
    {                                                                                              \
        return a = tc_##name##_at(tci_arg(a), b.arg, b.here);                                      \
    }
#define TCI_OPERATOR_OF_ONE(sign, name)                                                            \
    inline tc_tensor operator sign(tci_operated a) { return tc_##name##_at(a.arg, a.here); }
TCI_OPERATOR_AND_SET(+, add)
TCI_OPERATOR_AND_SET(-, sub)
TCI_OPERATOR_AND_SET(*, mul)
TCI_OPERATOR_AND_SET(/, div)
TCI_OPERATOR_AND_SET(%, remainder)
TCI_OPERATOR_AND_SET(&, bitwise_and)
TCI_OPERATOR_AND_SET(|, bitwise_or)
TCI_OPERATOR_AND_SET(^, bitwise_xor)
TCI_OPERATOR_AND_SET(<<, bitwise_left_shift)
TCI_OPERATOR_AND_SET(>>, bitwise_right_shift)
TCI_OPERATOR(==, eq)
TCI_OPERATOR(!=, ne)
TCI_OPERATOR(<, lt)
TCI_OPERATOR(<=, le)
TCI_OPERATOR(>, gt)
TCI_OPERATOR(>=, ge)
TCI_OPERATOR_OF_ONE(-, neg)
TCI_OPERATOR_OF_ONE(~, bitwise_not)
TCI_OPERATOR_OF_ONE(!, logical_not)
#undef TCI_OPERATOR
#undef TCI_OPERATOR_AND_SET
#undef TCI_OPERATOR_OF_ONE

#endif
#endif
