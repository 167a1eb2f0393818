/* api/expr_number.c - numbers in text expressions: literals, and arithmetic as in Python.
 *
 * In: the bytes of a literal; numbers and an operator. Out: a number (bool, integer or real), or an
 * error. Integers are exact or refused, never wrapped; / gives a real, // and % round down;
 * symbolic sizes use tc_dim_add and similar calls. */
#include "expr_bytecode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TCI_EXPR_OVERFLOW "the result is outside of 64 bits"
enum { TCI_EXPR_DIGITS = 64 }; /* characters of a literal */

/* ---- operators ---- */

static const tci_expr_op_row tci_expr_ops[] = {
#define TCI_ROW(id, spelling, precedence, name) {spelling, name, precedence},
    TCI_EXPR_BINARY(TCI_ROW) TCI_EXPR_UNARY(TCI_ROW)
#undef TCI_ROW
};

TCI_FN const tci_expr_op_row *tci_expr_op_get(int op)
{
    return &tci_expr_ops[op];
}

/* ---- literals ---- */

/* Value of a digit, 99 where it is none. */
static int tci_expr_digit(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : 99;
}

static const char *tci_expr_whole(const char *digits, int base, tc_arg *r)
{
    int64_t value = 0;
    for (; *digits; digits++) {
        int digit = tci_expr_digit(*digits);
        if (digit >= base) {
            return "is not a number";
        }
        if (__builtin_mul_overflow(value, (int64_t)base, &value) ||
            __builtin_add_overflow(value, (int64_t)digit, &value)) {
            return "is larger than 2^63 - 1";
        }
    }
    *r = tci_arg_int(value);
    return NULL;
}

/* strtod expects the point of the locale. */
static const char *tci_expr_real(const char *text, tc_arg *r)
{
    char point[16], local[TCI_EXPR_DIGITS + 16], *end;
    snprintf(point, sizeof(point), "%.1f", 0.5);
    point[strlen(point) - 1] = 0; /* what stands between 0 and 5 */
    const char *dot = strchr(text, '.');
    int before = dot ? (int)(dot - text) : (int)strlen(text);
    snprintf(local, sizeof(local), "%.*s%s%s", before, text, dot ? point + 1 : "",
             dot ? dot + 1 : "");
    *r = tci_arg_float(strtod(local, &end));
    return *end || end == local ? "is not a number" : NULL;
}

TCI_FN const char *tci_expr_number(const char *text, int n, tc_arg *r)
{
    char digits[TCI_EXPR_DIGITS + 1];
    int used = 0;
    for (int i = 0; i < n; i++) {
        if (used == TCI_EXPR_DIGITS) {
            return "is a number of more than 64 characters";
        }
        bool between = i && i + 1 < n && tci_expr_digit(text[i - 1]) < 16 &&
                       tci_expr_digit(text[i + 1]) < 16;
        if (text[i] != '_' || !between) {
            digits[used++] = text[i];
        }
    }
    digits[used] = 0;
    if (digits[0] == '0' && (digits[1] | 32) == 'x') {
        return digits[2] ? tci_expr_whole(digits + 2, 16, r) : "is not a number";
    }
    if (strpbrk(digits, ".eE")) {
        return tci_expr_real(digits, r);
    }
    if (digits[0] == '0' && digits[strspn(digits, "0")]) {
        return "has leading zeros";
    }
    return tci_expr_whole(digits, 10, r);
}

/* ---- arithmetic ---- */

static double tci_expr_as_real(tc_arg a)
{
    return a.kind == TCI_OPS_FLOAT ? a.f : (double)a.i;
}

static bool tci_expr_is_true(tc_arg a)
{
    return a.kind == TCI_OPS_FLOAT ? a.f != 0 : a.i != 0;
}

static bool tci_expr_holds(tci_expr_op op, int order)
{
    switch ((int)op) {
    case TCI_EXPR_LE: return order <= 0;
    case TCI_EXPR_GE: return order >= 0 && order < 2;
    case TCI_EXPR_EQ: return order == 0;
    case TCI_EXPR_NE: return order != 0;
    case TCI_EXPR_LT: return order < 0;
    default: return order == 1;
    }
}

/* Three-way comparison: -1, 0 or 1, and 2 where either is NaN: then only NE holds. */
static bool tci_expr_compare(tci_expr_op op, tc_arg a, tc_arg b)
{
    double x = tci_expr_as_real(a), y = tci_expr_as_real(b);
    bool whole = a.kind != TCI_OPS_FLOAT && b.kind != TCI_OPS_FLOAT;
    int order = whole                                    ? (a.i > b.i) - (a.i < b.i)
                : isnan(x + y) && (isnan(x) || isnan(y)) ? 2
                                                         : (x > y) - (x < y);
    return order == 2 ? op == TCI_EXPR_NE : tci_expr_holds(op, order);
}

static const char *tci_expr_power(int64_t a, int64_t n, tc_arg *r)
{
    int64_t value = 1;
    for (; n > 0; n >>= 1) {
        if ((n & 1) && __builtin_mul_overflow(value, a, &value)) {
            return TCI_EXPR_OVERFLOW;
        }
        if (n > 1 && __builtin_mul_overflow(a, a, &a)) {
            return TCI_EXPR_OVERFLOW;
        }
    }
    *r = tci_arg_int(value);
    return NULL;
}

/* Of bits and shifts; NULL and no change: of two bools the bits are bools. */
static const char *tci_expr_bits(tci_expr_op op, int64_t a, int64_t b, int64_t *r)
{
    bool shift = op == TCI_EXPR_SHL || op == TCI_EXPR_SHR;
    if (shift && (b < 0 || b > 63)) {
        return "a shift is by 0 to 63 bits";
    }
    switch ((int)op) {
    case TCI_EXPR_BITOR: *r = a | b; break;
    case TCI_EXPR_BITXOR: *r = a ^ b; break;
    case TCI_EXPR_BITAND: *r = a & b; break;
    case TCI_EXPR_SHR: *r = a < 0 ? ~(~a >> b) : a >> b; break;
    default:
        return b == 63 && a                                                 ? TCI_EXPR_OVERFLOW
               : __builtin_mul_overflow(a, (int64_t)1 << TCI_MIN(b, 62), r) ? TCI_EXPR_OVERFLOW
                                                                            : NULL;
    }
    return NULL;
}

static const char *tci_expr_fold_whole(tci_expr_op op, int64_t a, int64_t b, tc_arg *r)
{
    int64_t value = 0;
    bool lost = false;
    const char *why = NULL;
    if ((op == TCI_EXPR_FLOORDIV || op == TCI_EXPR_MOD) && (!b || b == -1)) {
        lost = b && op == TCI_EXPR_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &value);
        why = b ? NULL : "division by zero";
    } else if (op == TCI_EXPR_FLOORDIV) {
        value = a / b - (a % b && (a % b < 0) != (b < 0));
    } else if (op == TCI_EXPR_MOD) {
        value = a % b + (a % b && (a % b < 0) != (b < 0) ? b : 0);
    } else if (op == TCI_EXPR_ADD) {
        lost = __builtin_add_overflow(a, b, &value);
    } else if (op == TCI_EXPR_SUB) {
        lost = __builtin_sub_overflow(a, b, &value);
    } else if (op == TCI_EXPR_MUL) {
        lost = __builtin_mul_overflow(a, b, &value);
    } else if (op == TCI_EXPR_POW) {
        return tci_expr_power(a, b, r);
    } else {
        why = tci_expr_bits(op, a, b, &value);
    }
    *r = tci_arg_int(value);
    return lost ? TCI_EXPR_OVERFLOW : why;
}

static const char *tci_expr_fold_real(tci_expr_op op, double a, double b, tc_arg *r)
{
    double value = 0, rest;
    switch ((int)op) {
    case TCI_EXPR_ADD: value = a + b; break;
    case TCI_EXPR_SUB: value = a - b; break;
    case TCI_EXPR_MUL: value = a * b; break;
    case TCI_EXPR_POW:
        if ((a == 0 && b < 0) || (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))) {
            return a == 0 ? "division by zero" : "the power of a negative number is complex";
        }
        value = pow(a, b);
        break;
    case TCI_EXPR_DIV:
    case TCI_EXPR_MOD:
    case TCI_EXPR_FLOORDIV:
        if (b == 0) {
            return "division by zero";
        }
        rest = fmod(a, b);
        rest = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest == 0 ? copysign(0, b) : rest;
        value = op == TCI_EXPR_DIV ? a / b : op == TCI_EXPR_MOD ? rest : round((a - rest) / b);
        break;
    default: return "the operator takes integers or tensors";
    }
    *r = tci_arg_float(value);
    return NULL;
}

/* Sizes, one of them symbolic. */
static const char *tci_expr_fold_sizes(tci_expr_op op, int64_t a, int64_t b, tc_arg *r)
{
    switch ((int)op) {
    case TCI_EXPR_ADD: *r = tci_arg_int(tc_dim_add(a, b)); return NULL;
    case TCI_EXPR_SUB: *r = tci_arg_int(tc_dim_sub(a, b)); return NULL;
    case TCI_EXPR_MUL: *r = tci_arg_int(tc_dim_mul(a, b)); return NULL;
    case TCI_EXPR_FLOORDIV: *r = tci_arg_int(tc_dim_div(a, b)); return NULL;
    default: return "a symbolic size takes + - * and // with integers";
    }
}

static const char *tci_expr_fold_one(tci_expr_op op, tc_arg a, tc_arg *r)
{
    int64_t value = 0;
    if (op == TCI_EXPR_NOT) {
        *r = tci_arg_bool(!tci_expr_is_true(a));
    } else if (op == TCI_EXPR_INVERT) {
        *r = tci_arg_int(~a.i);
        return a.kind == TCI_OPS_FLOAT ? "~ takes an integer or a tensor" : NULL;
    } else if (a.kind == TCI_OPS_FLOAT) {
        *r = tci_arg_float(op == TCI_EXPR_NEG ? -a.f : a.f);
    } else {
        bool lost = op == TCI_EXPR_NEG && __builtin_sub_overflow((int64_t)0, a.i, &value);
        *r = tci_arg_int(op == TCI_EXPR_NEG ? value : a.i);
        return lost ? TCI_EXPR_OVERFLOW : NULL;
    }
    return NULL;
}

TCI_FN const char *tci_expr_fold(tci_expr_op op, tc_arg a, tc_arg b, tc_arg *r)
{
    bool symbols = tci_ops_is_symbol(&a), one = op >= TCI_EXPR_NOT;
    bool real = a.kind == TCI_OPS_FLOAT || (!one && b.kind == TCI_OPS_FLOAT);
    if (symbols || (!one && tci_ops_is_symbol(&b))) {
        return one || real ? "a symbolic size takes + - * and // with integers"
                           : tci_expr_fold_sizes(op, a.i, b.i, r);
    }
    if (one) {
        return tci_expr_fold_one(op, a, r);
    }
    if (op == TCI_EXPR_OR || op == TCI_EXPR_AND) {
        *r = tci_expr_is_true(a) == (op == TCI_EXPR_OR) ? a : b;
        return NULL;
    }
    if (tci_expr_op_get(op)->precedence == TCI_EXPR_AT_COMPARE) {
        *r = tci_arg_bool(tci_expr_compare(op, a, b));
        return NULL;
    }
    if (op == TCI_EXPR_MATMUL) {
        return "@ takes tensors";
    }
    real = real || op == TCI_EXPR_DIV || (op == TCI_EXPR_POW && b.i < 0);
    if (real) {
        return tci_expr_fold_real(op, tci_expr_as_real(a), tci_expr_as_real(b), r);
    }
    const char *why = tci_expr_fold_whole(op, a.i, b.i, r);
    bool bits = op == TCI_EXPR_BITOR || op == TCI_EXPR_BITXOR || op == TCI_EXPR_BITAND;
    if (bits && a.kind == TCI_OPS_BOOL && b.kind == TCI_OPS_BOOL) {
        *r = tci_arg_bool(r->i);
    }
    return why;
}
