/* api/print.c - tc_print: prints a tensor as NumPy 2 does.
 *
 * In: a tensor. Out: text like that of Python's print(numpy_array), with the default print options:
 * precision 8, threshold 1000, three edge items, lines of 75 characters.
 *
 * Design: the shown elements are visited twice. The first pass collects properties of all elements
 * (range, signs, widths) in a tci_print_format, the second writes. Both see the same elements;
 * above 1000 elements these are the corners.
 *
 * A float is written with the fewest digits that identify it among the values of its dtype, at most
 * 8 after the point. Digits come from the C library's exact conversion and are laid out here, so
 * the host's locale has no effect. bf16 is printed as the f32 of the same value. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define TCI_PRINT_EDGE 3
#define TCI_PRINT_THRESHOLD 1000
#define TCI_PRINT_WIDTH 75
#define TCI_PRINT_PRECISION 8
#define TCI_PRINT_PART                                                                             \
    32 /* room for a part of an element: without exponent, values are in [1e-4, 1e16) */
#define TCI_PRINT_WORD 128 /* room for an element */

/* ---- decimal digits of one float ---- */

/* |x| = 0.d1 d2 d3 ... * 10^point; no digits: zero. */
typedef struct tci_print_decimal {
    char digits[32];
    int n, point;
} tci_print_decimal;

/* The first n digits of x > 0, correctly rounded (a tie to even). Returns the value of that
 * text. */
static double tci_print_digits(tci_print_decimal *d, double x, int n)
{
    char text[64];
    snprintf(text, sizeof(text), "%.*e", n - 1, x);
    const char *c = text;
    d->n = 0;
    for (; *c != 'e'; c++) {
        if (*c >= '0' && *c <= '9') { /* whatever else stands there is the locale's decimal point */
            d->digits[d->n++] = *c;
        }
    }
    d->point = (int)strtol(c + 1, NULL, 10) + 1;
    return strtod(text, NULL);
}

static void tci_print_trim(tci_print_decimal *d)
{
    while (d->n > 0 && d->digits[d->n - 1] == '0') {
        d->n--;
    }
}

/* The interval of reals that round to x > 0 in f16 or f32, and whether its ends belong to it. */
typedef struct tci_print_interval {
    double low, high;
    bool closed;
} tci_print_interval;

static tci_print_interval tci_print_rounds_to(double x, tc_dtype t)
{
    int mantissa_bits = t == TC_F16 ? 11 : 24;
    int min_exponent = t == TC_F16 ? -14 : -126;
    int exponent;
    frexp(x, &exponent);
    exponent--;
    double ulp = ldexp(1.0, TCI_MAX(exponent, min_exponent) - (mantissa_bits - 1));
    bool is_power = exponent > min_exponent && x == ldexp(1.0, exponent);
    tci_print_interval r = {x - (is_power ? ulp / 4 : ulp / 2), x + ulp / 2,
                            fmod(x / ulp, 2.0) == 0.0};
    return r;
}

static bool tci_print_reads_back(double text_value, double x, tc_dtype t,
                                 const tci_print_interval *in)
{
    if (t == TC_F64) {
        return text_value == x;
    }
    bool on_edge = text_value == in->low || text_value == in->high;
    return (text_value > in->low && text_value < in->high) || (in->closed && on_edge);
}

/* Adds one to the last digit and returns the value of the digits. */
static double tci_print_next_up(tci_print_decimal *d)
{
    int i = d->n - 1;
    while (i >= 0 && d->digits[i] == '9') {
        d->digits[i--] = '0';
    }
    if (i < 0) {
        d->digits[0] = '1';
        d->point++;
    } else {
        d->digits[i]++;
    }
    char text[64]; /* an integer with an exponent: no decimal point, hence no locale */
    snprintf(text, sizeof(text), "%.*se%d", d->n, d->digits, d->point - d->n);
    return strtod(text, NULL);
}

/* The fewest digits that read back as x > 0. A power of two has twice the room above that it has
 * below, so there the nearest decimal may miss where the one above it does not. */
static void tci_print_shortest(tci_print_decimal *d, double x, tc_dtype t)
{
    tci_print_interval in = {0, 0, false};
    if (t != TC_F64) {
        in = tci_print_rounds_to(x, t);
    }
    int exponent;
    bool is_power = frexp(x, &exponent) == 0.5;
    for (int n = 1; n <= DBL_DECIMAL_DIG; n++) {
        double nearest = tci_print_digits(d, x, n);
        if (tci_print_reads_back(nearest, x, t, &in)) {
            break;
        }
        if (is_power && nearest < x && tci_print_reads_back(tci_print_next_up(d), x, t, &in)) {
            break;
        }
    }
    tci_print_trim(d);
}

/* The digits of x: the shortest that name it, but at most `precision` after the point (-1: no
 * limit); exactly this many when `fixed`. */
static void tci_print_decimal_of(tci_print_decimal *d, double x, tc_dtype t, bool exponential,
                                 int precision, bool fixed)
{
    d->n = 0;
    d->point = 1;
    x = fabs(x);
    if (x == 0) {
        return;
    }
    tci_print_shortest(d, x, t);
    if (fixed) {
        if (d->n != precision + 1) {
            tci_print_digits(d, x, precision + 1);
        }
        return;
    }
    if (precision < 0) {
        return;
    }
    int most = exponential ? precision + 1 : d->point + precision;
    if (d->n > most && most > 0) {
        tci_print_digits(d, x, most);
        tci_print_trim(d);
    }
}

/* ---- the common format of all elements ---- */

typedef struct tci_print_format {
    tc_dtype dtype; /* in which floats are shortened: bf16 counts as f32 */
    bool exponential;
    int precision; /* digits after the point at most; -1: no limit */
    /* exactly `precision` digits: exponential, once widths are known */
    bool fixed;
    int pad_left, pad_right; /* width before and after the point */
    int exponent_digits;
    /* nonzero finite magnitudes; smallest is infinite while there are none */
    double smallest, largest;
    bool any_finite, any_special, any_negative_inf;
    int width; /* integers */
} tci_print_format;

/* one float in pieces: sign and integer part, fraction, exponent */
typedef struct tci_print_parts {
    char whole[TCI_PRINT_PART];
    char fraction[TCI_PRINT_PART];
    char exponent[16];
} tci_print_parts;

static int tci_print_digit_run(char *to, const tci_print_decimal *d, int from, int until)
{
    int n = 0;
    for (int i = from; i < until && n < TCI_PRINT_PART - 2; i++) {
        to[n++] = i >= 0 && i < d->n ? d->digits[i] : '0';
    }
    to[n] = 0;
    return n;
}

static void tci_print_split(tci_print_parts *p, const tci_print_format *f, double x)
{
    tci_print_decimal d;
    tci_print_decimal_of(&d, x, f->dtype, f->exponential, f->precision, f->fixed);
    char *whole = p->whole;
    if (signbit(x)) {
        *whole++ = '-';
    }
    int point = f->exponential ? 1 : d.point; /* digits before the point */
    if (d.n == 0 || point <= 0) {
        strcpy(whole, "0");
    } else {
        tci_print_digit_run(whole, &d, 0, point);
    }
    tci_print_digit_run(p->fraction, &d, d.n ? point : 0, d.n);
    p->exponent[0] = 0;
    if (f->exponential) {
        int exponent = d.n ? d.point - 1 : 0;
        const char *format = f->exponent_digits > 2 ? "e%c%03d" : "e%c%02d";
        snprintf(p->exponent, sizeof(p->exponent), format, exponent < 0 ? '-' : '+', abs(exponent));
    }
}

/* ---- traversal ---- */

typedef struct tci_print_view { /* a value in memory */
    const char *data;           /* element 0...0 */
    tc_dtype dtype;
    int rank;
    const int64_t *shape;
    int64_t *strides; /* in elements; heap */
    int64_t *index;   /* of the element that is seen, also heap; all 0 between traversals */
    bool summary;     /* only corners are shown */
} tci_print_view;

/* strides NULL: dense. False: out of memory. */
static bool tci_print_open(tci_print_view *v, const int64_t *strides)
{
    int64_t *words = tci_heap_get(sizeof(*words) * (2 * (size_t)v->rank + 1)), stride = 1;
    if (!words) {
        return false;
    }
    for (int i = v->rank - 1; i >= 0; i--) {
        words[i] = strides ? strides[i] : stride;
        stride *= TCI_MAX(v->shape[i], 1);
    }
    v->strides = words;
    v->index = words + v->rank;
    return true;
}

static bool tci_print_is_cut(const tci_print_view *v, int axis)
{
    return v->summary && v->shape[axis] > 2 * TCI_PRINT_EDGE;
}

/* Goes to the next index of an axis that is shown; *at follows. At the end of the axis it goes back
 * to 0: false. */
static bool tci_print_step(const tci_print_view *v, int axis, int64_t *at)
{
    int64_t next = v->index[axis] + 1;
    if (next == TCI_PRINT_EDGE && tci_print_is_cut(v, axis)) {
        next = v->shape[axis] - TCI_PRINT_EDGE;
    }
    next = next < v->shape[axis] ? next : 0;
    *at += (next - v->index[axis]) * v->strides[axis];
    v->index[axis] = next;
    return next != 0;
}

/* Calls `see` for each element that will be shown. */
static void tci_print_visit(const tci_print_view *v,
                            void (*see)(tci_print_format *f, const tci_print_view *v, int64_t at),
                            tci_print_format *f)
{
    int64_t at = 0;
    int axis;
    do {
        see(f, v, at);
        for (axis = v->rank - 1; axis >= 0 && !tci_print_step(v, axis, &at); axis--) {
        }
    } while (axis >= 0);
}

static tci_value tci_print_value(const tci_print_view *v, int64_t at)
{
    return tci_value_load(v->dtype, v->data + at * tci_dtype_get(v->dtype)->bytes);
}

static void tci_print_see_range(tci_print_format *f, const tci_print_view *v, int64_t at)
{
    double x = tci_print_value(v, at).f;
    if (!isfinite(x)) {
        f->any_special = true;
        f->any_negative_inf |= x < 0;
        return;
    }
    f->any_finite = true;
    if (x != 0) {
        f->smallest = fmin(f->smallest, fabs(x));
        f->largest = fmax(f->largest, fabs(x));
    }
}

static void tci_print_see_widths(tci_print_format *f, const tci_print_view *v, int64_t at)
{
    double x = tci_print_value(v, at).f;
    if (!isfinite(x)) {
        return;
    }
    tci_print_parts p;
    tci_print_split(&p, f, x);
    f->pad_left = TCI_MAX(f->pad_left, (int)strlen(p.whole));
    f->pad_right = TCI_MAX(f->pad_right, (int)strlen(p.fraction));
    f->exponent_digits = TCI_MAX(f->exponent_digits, (int)strlen(p.exponent) - 2);
}

static int tci_print_integer(char *text, size_t room, tc_dtype t, tci_value v)
{
    if (t == TC_U64) {
        return snprintf(text, room, "%llu", (unsigned long long)v.u);
    }
    return snprintf(text, room, "%lld", (long long)v.i);
}

static void tci_print_see_integer(tci_print_format *f, const tci_print_view *v, int64_t at)
{
    char text[32];
    f->width = TCI_MAX(f->width,
                       tci_print_integer(text, sizeof(text), v->dtype, tci_print_value(v, at)));
}

/* x as the dtype holds it: NumPy compares in the array's own type. */
static double tci_print_rounded(double x, tc_dtype t)
{
    return t == TC_F64 ? x : t == TC_F16 ? tci_round_f16((float)x) : (double)(float)x;
}

static void tci_print_plan_floats(tci_print_format *f, const tci_print_view *v)
{
    f->dtype = v->dtype == TC_BF16 ? TC_F32 : v->dtype;
    f->precision = TCI_PRINT_PRECISION;
    f->smallest = INFINITY;
    tci_print_visit(v, tci_print_see_range, f);
    double limit = f->dtype == TC_F64 ? 1e8 : f->dtype == TC_F32 ? 1e6 : 1e3;
    f->exponential = f->largest > 0 &&
                     (f->largest >= limit || f->smallest < tci_print_rounded(0.0001, f->dtype) ||
                      tci_print_rounded(f->largest / f->smallest, f->dtype) > 1000.0);
    tci_print_visit(v, tci_print_see_widths, f);
    int after_whole = f->pad_right;
    if (f->exponential) {
        f->precision = f->pad_right;
        f->fixed = true;
        after_whole += f->exponent_digits + 2;
    }
    if (f->any_special) {
        int longest = f->any_negative_inf ? 4 : 3;
        f->pad_left = TCI_MAX(f->pad_left, longest - (after_whole + 1));
    }
}

/* ---- writing ---- */

static void tci_print_spaces(tci_str *out, int n)
{
    for (int i = 0; i < n; i++) {
        tci_str_add_n(out, " ", 1);
    }
}

static void tci_print_float(char *text, const tci_print_format *f, double x)
{
    tci_print_parts p;
    if (!isfinite(x)) {
        int width = f->pad_left + f->pad_right + 1 + (f->exponential ? f->exponent_digits + 2 : 0);
        snprintf(text, TCI_PRINT_WORD, "%*s", width, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    tci_print_split(&p, f, x);
    int n = (int)strlen(p.fraction);
    for (; n < f->pad_right && n < TCI_PRINT_PART - 1; n++) {
        p.fraction[n] = f->exponential ? '0' : ' ';
    }
    p.fraction[n] = 0;
    snprintf(text, TCI_PRINT_WORD, "%*s.%s%s", f->pad_left, p.whole, p.fraction, p.exponent);
}

static void tci_print_word(char *text, const tci_print_format *f, const tci_print_view *v,
                           int64_t at)
{
    tci_value x = tci_print_value(v, at);
    if (tci_dtype_is_float(v->dtype)) {
        tci_print_float(text, f, x.f);
    } else if (v->dtype == TC_BOOL) {
        strcpy(text, x.i ? " True" : "False");
    } else {
        char digits[32];
        tci_print_integer(digits, sizeof(digits), v->dtype, x);
        snprintf(text, TCI_PRINT_WORD, "%*s", f->width, digits);
    }
}

/* Ends a line: blanks before the break go, and the next one is indented. */
static void tci_print_break(tci_str *out, int n_lines, int indent)
{
    while (out->n && out->text[out->n - 1] == ' ') {
        out->text[--out->n] = 0;
    }
    for (int i = 0; i < n_lines; i++) {
        tci_str_add_n(out, "\n", 1);
    }
    tci_print_spaces(out, indent);
}

/* The innermost axis: words with a blank between, wrapped where a line would pass its width. */
static void tci_print_row(tci_str *out, const tci_print_format *f, const tci_print_view *v,
                          int64_t at)
{
    int axis = v->rank - 1;
    int indent = axis + 1;
    int width = TCI_PRINT_WIDTH - axis - 1;
    int column = indent;
    int64_t stride = v->strides[axis];
    int64_t n = v->shape[axis];
    char word[TCI_PRINT_WORD];
    for (int64_t i = 0; i < n; i++) {
        bool gap = i == TCI_PRINT_EDGE && tci_print_is_cut(v, axis);
        if (gap) {
            strcpy(word, "...");
            i = n - TCI_PRINT_EDGE - 1;
        } else {
            tci_print_word(word, f, v, at + i * stride);
        }
        int length = (int)strlen(word);
        if (column + length > width && column > indent) {
            tci_print_break(out, 1, indent);
            column = indent;
        }
        tci_str_add(out, word);
        column += length;
        if (i + 1 < n) {
            tci_str_add_n(out, " ", 1);
            column++;
        }
    }
}

static void tci_print_brackets(tci_str *out, const char *bracket, int n)
{
    for (int i = 0; i < n; i++) {
        tci_str_add_n(out, bracket, 1);
    }
}

/* All rows, within the brackets of the axes that begin and end with them. */
static void tci_print_rows(tci_str *out, const tci_print_format *f, const tci_print_view *v)
{
    int64_t at = 0;
    int axis, last = v->rank - 1;
    tci_print_brackets(out, "[", v->rank);
    do {
        tci_print_row(out, f, v, at);
        for (axis = last - 1; axis >= 0; axis--) {
            int64_t before = v->index[axis];
            if (tci_print_step(v, axis, &at)) {
                tci_print_brackets(out, "]", last - axis);
                if (v->index[axis] > before + 1) {
                    tci_print_break(out, last - axis, axis + 1);
                    tci_str_add(out, "...");
                }
                tci_print_break(out, last - axis, axis + 1);
                tci_print_brackets(out, "[", last - axis);
                break;
            }
        }
    } while (axis >= 0);
    tci_print_brackets(out, "]", v->rank);
}

/* A 0-d value is printed as NumPy prints a scalar: all its digits, at least one after the point. */
static void tci_print_scalar(tci_str *out, const tci_print_view *v)
{
    tci_value x = tci_print_value(v, 0);
    if (v->dtype == TC_BOOL) {
        tci_str_add(out, x.i ? "True" : "False");
        return;
    }
    if (!tci_dtype_is_float(v->dtype)) {
        char text[32];
        tci_print_integer(text, sizeof(text), v->dtype, x);
        tci_str_add(out, text);
        return;
    }
    if (!isfinite(x.f)) {
        tci_str_add(out, isnan(x.f) ? "nan" : x.f < 0 ? "-inf" : "inf");
        return;
    }
    tci_print_format f = {.dtype = v->dtype == TC_BF16 ? TC_F32 : v->dtype, .precision = -1};
    double limit = f.dtype == TC_F64 ? 1e16 : f.dtype == TC_F32 ? 1e6 : 1e3;
    f.exponential = x.f != 0 && (fabs(x.f) >= limit || fabs(x.f) < 0.0001);
    tci_print_parts p;
    tci_print_split(&p, &f, x.f);
    const char *fraction = p.fraction[0] || f.exponential ? p.fraction : "0";
    tci_str_printf(out, "%s%s%s%s", p.whole, *fraction ? "." : "", fraction, p.exponent);
}

static void tci_print_text(tci_str *out, tci_print_view *v)
{
    double count = 1; /* a product of sizes that cannot overflow */
    for (int i = 0; i < v->rank; i++) {
        count *= (double)v->shape[i];
    }
    v->summary = count > TCI_PRINT_THRESHOLD;
    tci_print_format f = {.dtype = v->dtype};
    if (count == 0) {
        tci_str_add(out, "[]");
    } else if (v->rank == 0) {
        tci_print_scalar(out, v);
    } else {
        if (tci_dtype_is_float(v->dtype)) {
            tci_print_plan_floats(&f, v);
        } else if (v->dtype != TC_BOOL) {
            tci_print_visit(v, tci_print_see_integer, &f);
        }
        tci_print_rows(out, &f, v);
    }
    tci_str_add_n(out, "\n", 1);
}

/* m is let go of before the user's file is written to. */
static tc_status tci_print_memory(const tci_frame *f, FILE *out, tc_tensor t, tci_lazy_held *m)
{
    const tci_node *n = m->node;
    tci_print_view v = {.data = m->first,
                        .dtype = n->dtype,
                        .rank = n->rank,
                        .shape = tci_dim_words(n->shape)}; /* known: it has a value */
    tc_status status = TC_OK;
    tci_str text = {0};
    bool open = tci_print_open(&v, tci_dim_words(n->strides));
    if (open) {
        tci_print_text(&text, &v);
    }
    tci_heap_free(v.strides);
    tci_lazy_drop(m, 1);
    if (!open || text.failed) {
        status = tci_fail(t, f->op, f->here, TC_ERR_MEMORY, "out of memory for the text");
    } else if (!out) {
        status = tci_fail(t, f->op, f->here, TC_ERR_ARGUMENT,
                          "given a NULL file, expected one to write to");
    } else if (fwrite(text.text, 1, text.n, out) != text.n) {
        status = tci_fail(t, f->op, f->here, TC_ERR_IO, "the file cannot be written");
    }
    tci_str_free(&text);
    return status;
}

TC_API tc_status tc_print_at(FILE *out, tc_tensor t, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_print", here);
    tci_lazy_held m;
    tc_status status = tci_lazy_hold(&f, (tc_tensors){&t, 1}, &m);
    if (!status) {
        status = tci_print_memory(&f, out, t, &m);
    }
    tci_frame_leave(&f);
    return status;
}

#undef TCI_PRINT_EDGE
#undef TCI_PRINT_THRESHOLD
#undef TCI_PRINT_WIDTH
#undef TCI_PRINT_PRECISION
#undef TCI_PRINT_PART
#undef TCI_PRINT_WORD
