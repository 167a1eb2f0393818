/* api/expr.h - tensor expressions as text, in the notation of Python and NumPy: operators, indexing
 * and calls of every op by name. The grammar is in docs/expressions.md.
 *
 * A text is parsed into calls of the public ops, which make the same nodes as the calls written in
 * C. No compiler sees the text. TC_NO_NAMES leaves this out. */
#ifndef TC_API_EXPR_H
#define TC_API_EXPR_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- expressions as text: docs/expressions.md has the grammar ---- */

/* tc_expr(ctx, "softmax(x @ w, axis=-1)", TC_ATTRS(TC_ATTR("x", x), TC_ATTR("w", w))): the tensor
 * that the text describes. names: the identifiers of the text and their values: tensors of ctx,
 * numbers (TC_ATTR), lists of integers (TC_ATTR_LIST) or strings (TC_ATTR_TEXT). text and names are
 * read during the call only. The result is the same graph as by the corresponding C calls, so
 * gradients, programs and caches do not differ. On failure the result is poisoned, and the error
 * shows the text with a caret under the position: TC_ERR_ARGUMENT (a mistake in the text, an
 * unknown name, a result that is not a tensor),
 * TC_ERR_LIMIT (more than 65,536 bytes, or nested deeper than 100), TC_ERR_MEMORY, and the errors
 * of the ops called. An expression that cannot be parsed makes no tensors. */
TC_API tc_tensor tc_expr_at(tc_ctx *ctx, const char *text, tc_attrs names, tc_site here);
#define tc_expr(ctx, text, names) tc_expr_at((ctx), (text), (names), TC_HERE)

/* TC_EXPR(softmax(x @ w + b, axis=-1), x, w, b): the same with the text as a macro argument. The
 * operands after it are 1 to 16 plain identifiers: tensors or C numbers, at least one tensor. The
 * preprocessor reads the text first: a comma must be inside parentheses, so that a subscript with
 * a comma is written (x[:, 1:-1]); // starts a comment: write floor_divide(a, b). Macro names in
 * the text are not expanded where TC_EXPR itself is not an argument of another macro. */
TC_API tc_tensor tc_expr_named_at(const char *text, const char *names, const tc_arg *values, int n,
                                  tc_site here);
#define TC_EXPR(text, ...)                                                                         \
    TCI_EXPR_CALL(#text, #__VA_ARGS__, (TCI_EXPR_LIST(__VA_ARGS__)), TC_HERE)

/* TC_ARG of each of 1 to 16 operands. */
#define TCI_EXPR_LIST(...)                                                                         \
    TCI_EXPR_PICK(__VA_ARGS__, TCI_EXPR_16, TCI_EXPR_15, TCI_EXPR_14, TCI_EXPR_13, TCI_EXPR_12,    \
                  TCI_EXPR_11, TCI_EXPR_10, TCI_EXPR_9, TCI_EXPR_8, TCI_EXPR_7, TCI_EXPR_6,        \
                  TCI_EXPR_5, TCI_EXPR_4, TCI_EXPR_3, TCI_EXPR_2, TCI_EXPR_1, 0)(__VA_ARGS__)
#define TCI_EXPR_PICK(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, list, ...) list
#define TCI_EXPR_1(a) TCI_EXPR_ARG(a)
#define TCI_EXPR_2(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_1(__VA_ARGS__)
#define TCI_EXPR_3(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_2(__VA_ARGS__)
#define TCI_EXPR_4(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_3(__VA_ARGS__)
#define TCI_EXPR_5(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_4(__VA_ARGS__)
#define TCI_EXPR_6(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_5(__VA_ARGS__)
#define TCI_EXPR_7(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_6(__VA_ARGS__)
#define TCI_EXPR_8(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_7(__VA_ARGS__)
#define TCI_EXPR_9(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_8(__VA_ARGS__)
#define TCI_EXPR_10(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_9(__VA_ARGS__)
#define TCI_EXPR_11(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_10(__VA_ARGS__)
#define TCI_EXPR_12(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_11(__VA_ARGS__)
#define TCI_EXPR_13(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_12(__VA_ARGS__)
#define TCI_EXPR_14(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_13(__VA_ARGS__)
#define TCI_EXPR_15(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_14(__VA_ARGS__)
#define TCI_EXPR_16(a, ...) TCI_EXPR_ARG(a), TCI_EXPR_15(__VA_ARGS__)

#ifdef __cplusplus
} /* extern "C" */

#define TCI_EXPR_ARG(v) tci_arg(v)
#define TCI_EXPR_UNPACK(...) __VA_ARGS__
static inline tc_tensor tci_expr_listed(const char *text, const char *names,
                                        std::initializer_list<tc_arg> values, tc_site here)
{
    return tc_expr_named_at(text, names, values.begin(), static_cast<int>(values.size()), here);
}
#define TCI_EXPR_CALL(text, names, values, here)                                                   \
    tci_expr_listed((text), (names), {TCI_EXPR_UNPACK values}, (here))
#else
#define TCI_EXPR_ARG(v) TCI_ARG_FN(v)(v)
#define TCI_EXPR_UNPACK(...) __VA_ARGS__
#define TCI_EXPR_CALL(text, names, values, here)                                                   \
    tc_expr_named_at((text), (names), (const tc_arg[16]){TCI_EXPR_UNPACK values},                  \
                     tci_list_count(names), (here))
#endif

#endif
