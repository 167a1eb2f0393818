/* base/dim.h - sizes: plain numbers or, under TC_DYNAMIC_SHAPES, expressions over symbolic
 * dimensions.
 *
 * Every size, stride, offset and bound that a stage computes with is a tci_dim and goes through the
 * functions below. Without TC_DYNAMIC_SHAPES they are the operators of C.
 *
 * A symbol stands for any number in [least, most]. An expression is a polynomial over symbols and
 * over quotients, minima and maxima of expressions. It has one canonical form and is interned, so
 * equal expressions are equal numbers, which == compares. The value of a symbolic tci_dim is in
 * [2^62, 3 * 2^61), which no size, stride or bound reaches: a tag, the index of the expression, and
 * a check. Plain C arithmetic on one by mistake is therefore detected (tci_dim_is_valid,
 * tci_dim_is_stray) and not taken for a size.
 *
 * Interned expressions belong to the process; tci_dim_free_all frees them at tc_shutdown, when no
 * context or program is left. All functions are thread-safe. If there is no result (out of memory,
 * expression too long, overflow), it is one of TCI_DIM_FAULTS, which is not a valid size;
 * arithmetic on a fault gives the fault. */
#ifndef TCI_BASE_DIM_H
#define TCI_BASE_DIM_H

#include "str.h"

/* `make dims`: computing with a size by C's operators does not compile, nor does taking a list of
 * sizes for one of numbers, or back, but by tci_dim_list and tci_dim_words. What it does not see is
 * one word of a node (tci_node.attr) that is a size and read as a number: tci_node_dims has them as
 * sizes. */
#ifdef TCI_DIM_OPAQUE
typedef void (*tci_dim)(struct tci_dim_opaque);
#else
typedef int64_t tci_dim;
#endif
typedef struct tci_dim_text {
    char text[96];
} tci_dim_text; /* for messages */

/* The number that a known size is. */
static inline int64_t tci_dim_known(tci_dim d)
{
    return (int64_t)d;
}

/* Lists that are both: numbers of the user and words of a node that are sizes, as sizes; sizes as
 * words. */
static inline const tci_dim *tci_dim_list(const int64_t *words)
{
    return (const tci_dim *)words;
}
static inline const int64_t *tci_dim_words(const tci_dim *list)
{
    return (const int64_t *)list;
}

#define TCI_DIM_TAG ((int64_t)0x5a7d000000000000) /* the first symbolic number; names none */

#define TCI_DIM_MOST (((int64_t)1 << 60) - 1) /* that a symbol may stand for */

/* Invalid sizes: the status of each, and its description. */
#define TCI_DIM_FAULTS(X)                                                                          \
    X(NONE, TC_ERR_ARGUMENT,                                                                       \
      "no valid TC_DIM: expected a name and 0 <= least <= most <= 2^40, or a size as tc_size "     \
      "returns it")                                                                                \
    X(STRAY, TC_ERR_ARGUMENT,                                                                      \
      "no valid symbolic size: what C arithmetic makes of one, or one that tc_shutdown ended "     \
      "(tc_dim_add, tc_dim_sub, tc_dim_mul, tc_dim_div, tc_dim_min and tc_dim_max compute with "   \
      "sizes)")                                                                                    \
    X(LARGE, TC_ERR_LIMIT,                                                                         \
      "too large an expression: expected at most 64 terms of 16 symbolic sizes each, 64 "          \
      "quotients, minima and maxima within each other, and numbers below 2^60 (one TC_DIM may "    \
      "stand for a sum of several)")                                                               \
    X(DIVISOR, TC_ERR_ARGUMENT, "a quotient by what is, or may be, 0 or negative")                 \
    X(MEMORY, TC_ERR_MEMORY, "out of memory for a symbolic size")
enum {
#define TCI_ROW(id, status, text) TCI_DIM_FAULT_##id,
    TCI_DIM_FAULTS(TCI_ROW) TCI_DIM_FAULT_COUNT
#undef TCI_ROW
};
/* Whether memory for a symbolic size ran out on this thread since this was last asked. A size that
 * was lost compares with none, so what was found wrong meanwhile need not be so. */
#ifdef TC_DYNAMIC_SHAPES
TCI_FN bool tci_dim_take_lost(void);
#else
static inline bool tci_dim_take_lost(void)
{
    return false;
}
#endif
#define TCI_DIM_OF_FAULT(id) ((tci_dim)(TCI_DIM_TAG + TCI_DIM_FAULT_##id))

#ifdef TC_DYNAMIC_SHAPES

static inline bool tci_dim_is_known(tci_dim d)
{
    return (uint64_t)d >> 61 != 2;
}

/* A symbol of the user (name not NULL), or number `ordinal` of a program being compiled. The same
 * arguments give the same symbol. */
TCI_FN tci_dim tci_dim_symbol(const char *name, int ordinal, int64_t least, int64_t most);
TCI_FN bool tci_dim_is_valid(tci_dim d);
/* A number that C arithmetic made of symbolic sizes, as far as can be told: a sum, difference,
 * multiple, quotient or product. Never true in a process that has made none. */
TCI_FN bool tci_dim_is_stray(int64_t v);
TCI_FN bool tci_dim_is_stray_real(double v);
/* d itself; from now on it may be what C arithmetic was done on. */
TCI_FN tci_dim tci_dim_show(tci_dim d);
/* d with each symbol from[i] replaced by to[i]. */
TCI_FN tci_dim tci_dim_replace(tci_dim d, int n, const tci_dim *from, const tci_dim *to);
/* Appends the symbols of d that are not in list[0 .. *n) yet; false: more than `room`. */
TCI_FN bool tci_dim_symbols(tci_dim d, tci_dim *list, int *n, int room);
TCI_FN const char *tci_dim_name(tci_dim symbol); /* "" for one without */
TCI_FN int tci_dim_ordinal(tci_dim symbol);      /* -1 for one with a name */
/* The value where symbol number i has values[i]. Quotients by 0 are 0. */
TCI_FN int64_t tci_dim_value(tci_dim d, const int64_t *values);
/* Bounds of the value where symbol number i is anything in [least[i], most[i]]. */
typedef struct tci_dim_bounds {
    int64_t least, most;
} tci_dim_bounds;
TCI_FN tci_dim_bounds tci_dim_value_in(tci_dim d, const int64_t *least, const int64_t *most);
/* With a larger value of symbol number `ordinal` and no other change the value is: never less (1),
 * never more (-1), the same (0), or that is not known (2). */
TCI_FN int tci_dim_direction(tci_dim d, int ordinal);
/* As words, for the disk: returns how many (with words NULL only counts). Symbols by number. */
TCI_FN int tci_dim_write(tci_dim d, int64_t *words);
/* Reads one back, moving *words on; a fault where they make none. symbols[0 .. n). */
TCI_FN tci_dim tci_dim_read(const int64_t **words, const int64_t *end, const tci_dim *symbols,
                            int n);
TCI_FN void tci_dim_free_all(void);

TCI_FN tci_dim tci_dim_add_any(tci_dim a, tci_dim b);
TCI_FN tci_dim tci_dim_mul_any(tci_dim a, tci_dim b);
TCI_FN tci_dim tci_dim_div_any(tci_dim a, tci_dim b);
TCI_FN tci_dim tci_dim_extreme(tci_dim a, tci_dim b, bool max);
TCI_FN bool tci_dim_le_any(tci_dim a, tci_dim b);
TCI_FN bool tci_dim_divides_any(tci_dim c, tci_dim a);
TCI_FN int64_t tci_dim_least_any(tci_dim d);
TCI_FN int64_t tci_dim_most_any(tci_dim d);
TCI_FN int64_t tci_dim_hint_any(tci_dim d);
TCI_FN void tci_dim_print(tci_str *out, tci_dim d);
TCI_FN tci_dim_text tci_dim_text_of(tci_dim d);
/* An expression of C in long long, where symbol number i is a variable s<i>, and quotients (rounded
 * down), minima and maxima are calls of <prefix>_div, _min and _max. */
TCI_FN void tci_dim_print_c(tci_str *out, tci_dim d, const char *prefix);
/* Requires a valid size for generated code: a fault ends the compile with its status; `what` names
 * the size. */
TCI_FN void tci_dim_need(tci_scratch *s, tci_dim d, const char *what);
/* Known operands stay on the short way. */
#define TCI_DIM_ANY(a, b) TCI_UNLIKELY(!tci_dim_is_known(a) || !tci_dim_is_known(b))

#else

#define TCI_DIM_ANY(a, b) false
#define tci_dim_need(s, d, what) ((void)(s), (void)(d))
#define tci_dim_add_any(a, b) 0
#define tci_dim_mul_any(a, b) 0
#define tci_dim_div_any(a, b) 0
#define tci_dim_extreme(a, b, max) 0
#define tci_dim_le_any(a, b) false
#define tci_dim_divides_any(c, a) false
#define tci_dim_least_any(d) tci_dim_known(d)
#define tci_dim_most_any(d) tci_dim_known(d)
#define tci_dim_hint_any(d) tci_dim_known(d)
static inline bool tci_dim_is_known(tci_dim d)
{
    (void)d;
    return true;
}
static inline bool tci_dim_is_valid(tci_dim d)
{
    return (uint64_t)d - (uint64_t)TCI_DIM_TAG >= TCI_DIM_FAULT_COUNT;
}
static inline bool tci_dim_is_stray(int64_t v)
{
    return !tci_dim_is_valid(v);
}
static inline bool tci_dim_is_stray_real(double v)
{
    (void)v;
    return false;
}
static inline tci_dim tci_dim_show(tci_dim d)
{
    return d;
}
static inline void tci_dim_print(tci_str *out, tci_dim d)
{
    tci_str_printf(out, "%lld", (long long)d);
}
static inline void tci_dim_print_c(tci_str *out, tci_dim d, const char *prefix)
{
    (void)prefix;
    tci_dim_print(out, d);
}
static inline tci_dim_text tci_dim_text_of(tci_dim d)
{
    tci_dim_text t;
    snprintf(t.text, sizeof(t.text), "%lld", (long long)d);
    return t;
}

#endif
#define TCI_DIM_TEXT(d) (tci_dim_text_of(d).text)

/* The fault of an invalid tci_dim, and its description. */
static inline int tci_dim_fault(tci_dim d)
{
    uint64_t row = (uint64_t)d - (uint64_t)TCI_DIM_TAG;
    return row < TCI_DIM_FAULT_COUNT ? (int)row : TCI_DIM_FAULT_STRAY;
}
TCI_FN tc_status tci_dim_fault_status(int fault);
TCI_FN const char *tci_dim_fault_text(int fault);

/* ---- arithmetic: known operands as C has it ---- */

static inline tci_dim tci_dim_add(tci_dim a, tci_dim b)
{
    if (TCI_DIM_ANY(a, b)) {
        return tci_dim_add_any(a, b);
    }
    return (tci_dim)(tci_dim_known(a) + tci_dim_known(b));
}

static inline tci_dim tci_dim_mul(tci_dim a, tci_dim b)
{
    if (TCI_DIM_ANY(a, b)) {
        return tci_dim_mul_any(a, b);
    }
    return (tci_dim)(tci_dim_known(a) * tci_dim_known(b));
}

static inline tci_dim tci_dim_neg(tci_dim a)
{
    return tci_dim_mul(a, -1);
}

static inline tci_dim tci_dim_sub(tci_dim a, tci_dim b)
{
    return tci_dim_add(a, tci_dim_neg(b));
}

/* floor(a / b), b > 0 */
static inline tci_dim tci_dim_div(tci_dim a, tci_dim b)
{
    if (TCI_DIM_ANY(a, b)) {
        return tci_dim_div_any(a, b);
    }
    int64_t x = tci_dim_known(a), y = tci_dim_known(b);
    return (tci_dim)(x / y - (x % y < 0));
}

static inline tci_dim tci_dim_ceil_div(tci_dim a, tci_dim b)
{
    return tci_dim_div(tci_dim_add(a, tci_dim_add(b, -1)), b);
}

/* a - b * floor(a / b), b > 0 */
static inline tci_dim tci_dim_mod(tci_dim a, tci_dim b)
{
    return tci_dim_sub(a, tci_dim_mul(b, tci_dim_div(a, b)));
}

static inline tci_dim tci_dim_min(tci_dim a, tci_dim b)
{
    if (TCI_DIM_ANY(a, b)) {
        return tci_dim_extreme(a, b, false);
    }
    return tci_dim_known(a) < tci_dim_known(b) ? a : b;
}

static inline tci_dim tci_dim_max(tci_dim a, tci_dim b)
{
    if (TCI_DIM_ANY(a, b)) {
        return tci_dim_extreme(a, b, true);
    }
    return tci_dim_known(a) > tci_dim_known(b) ? a : b;
}

/* ---- what is certain: true only where it holds for every value of the symbols ---- */

static inline bool tci_dim_le(tci_dim a, tci_dim b)
{
    return TCI_DIM_ANY(a, b) ? tci_dim_le_any(a, b) : tci_dim_known(a) <= tci_dim_known(b);
}

static inline bool tci_dim_lt(tci_dim a, tci_dim b)
{
    if (TCI_DIM_ANY(a, b)) {
        return tci_dim_le(tci_dim_add(a, 1), b);
    }
    return tci_dim_known(a) < tci_dim_known(b);
}

/* a is a multiple of c, c > 0 */
static inline bool tci_dim_divides(tci_dim c, tci_dim a)
{
    if (TCI_DIM_ANY(a, c)) {
        return tci_dim_divides_any(c, a);
    }
    return tci_dim_known(a) % tci_dim_known(c) == 0;
}

/* Bounds of the value, saturated. */
static inline int64_t tci_dim_least(tci_dim d)
{
    return tci_dim_is_known(d) ? tci_dim_known(d) : tci_dim_least_any(d);
}

static inline int64_t tci_dim_most(tci_dim d)
{
    return tci_dim_is_known(d) ? tci_dim_known(d) : tci_dim_most_any(d);
}

/* A typical value, for estimates of cost: never for what must be right. */
static inline int64_t tci_dim_hint(tci_dim d)
{
    return tci_dim_is_known(d) ? tci_dim_known(d) : tci_dim_hint_any(d);
}

#endif
