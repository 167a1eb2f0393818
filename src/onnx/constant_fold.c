/* onnx/constant_fold.c - constant folding of shape arithmetic: operators whose operands are known
 * while the graph is built.
 *
 * In: small arrays of numbers and symbolic sizes. Out: the same. Integers are computed by
 * tc_dim_add and similar calls, floats in double, rounded to float for f32. A float derived from a
 * symbolic size is represented as (size / integer), so that Floor(Cast(size) / 2) stays exact.
 * Values without such a form are computed by the program. */
#include "import.h"
#include "user_call_site.h"

#include <math.h>
#include <string.h>

/* ---- elements ---- */

typedef enum tci_ox_scalar {
    TCI_OX_ADD,
    TCI_OX_SUB,
    TCI_OX_MUL,
    TCI_OX_DIV,
    TCI_OX_MOD,
    TCI_OX_MIN,
    TCI_OX_MAX,
    TCI_OX_EQ,
    TCI_OX_LT,
    TCI_OX_LE,
    TCI_OX_GT,
    TCI_OX_GE,
    TCI_OX_AND,
    TCI_OX_OR,
    TCI_OX_NOT,
    TCI_OX_NEG,
    TCI_OX_ABS,
    TCI_OX_FLOOR,
    TCI_OX_CEIL,
    TCI_OX_SQRT,
    TCI_OX_CAST,
    TCI_OX_SAME
} tci_ox_scalar;

/* Of two sizes, if it is the same for all values of the symbols. */
static bool tci_ox_compare(tci_ox_scalar op, int64_t a, int64_t b, int64_t *r)
{
    int64_t d = tc_dim_sub(a, b);
    int64_t least = tci_dim_least(d), most = tci_dim_most(d);
    bool decided = least == most || least > 0 || most < 0;
    switch (op) {
    case TCI_OX_EQ: *r = least == 0 && most == 0; break;
    case TCI_OX_LT:
        *r = most < 0;
        decided = most < 0 || least >= 0;
        break;
    case TCI_OX_LE:
        *r = most <= 0;
        decided = most <= 0 || least > 0;
        break;
    case TCI_OX_GT:
        *r = least > 0;
        decided = least > 0 || most <= 0;
        break;
    default:
        *r = least >= 0;
        decided = least >= 0 || most < 0;
        break;
    }
    return decided;
}

static bool tci_ox_fold_symbols(tci_ox_scalar op, tci_ox_cell a, tci_ox_cell b, tci_ox_cell *r)
{
    bool divides = tci_dim_is_known(b.i) && b.i > 0;
    switch (op) {
    case TCI_OX_ADD: r->i = tc_dim_add(a.i, b.i); return true;
    case TCI_OX_SUB: r->i = tc_dim_sub(a.i, b.i); return true;
    case TCI_OX_MUL: r->i = tc_dim_mul(a.i, b.i); return true;
    case TCI_OX_DIV: /* truncates: as floor of what is not negative */
        r->i = divides ? tc_dim_div(a.i, b.i) : 0;
        return divides && tci_dim_least(a.i) >= 0;
    case TCI_OX_MOD:
        r->i = divides ? tc_dim_sub(a.i, tc_dim_mul(tc_dim_div(a.i, b.i), b.i)) : 0;
        return divides;
    case TCI_OX_MIN: r->i = tc_dim_min(a.i, b.i); return true;
    case TCI_OX_MAX: r->i = tc_dim_max(a.i, b.i); return true;
    case TCI_OX_NEG: r->i = tc_dim_sub(0, a.i); return true;
    case TCI_OX_SAME: r->i = a.i; return true;
    case TCI_OX_EQ:
    case TCI_OX_LT:
    case TCI_OX_LE:
    case TCI_OX_GT:
    case TCI_OX_GE: return tci_ox_compare(op, a.i, b.i, &r->i);
    default: return false;
    }
}

static bool tci_ox_fold_ints(tci_ox_scalar op, int64_t a, int64_t b, int64_t *r)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    if ((op == TCI_OX_DIV || op == TCI_OX_MOD) && (b == 0 || b == -1)) {
        *r = op == TCI_OX_MOD ? 0 : (int64_t)(0 - x);
        return b == -1;
    }
    switch (op) {
    case TCI_OX_ADD: *r = (int64_t)(x + y); return true;
    case TCI_OX_SUB: *r = (int64_t)(x - y); return true;
    case TCI_OX_MUL: *r = (int64_t)(x * y); return true;
    case TCI_OX_DIV: *r = a / b; return true;
    case TCI_OX_MOD: *r = a % b + (a % b && (a % b < 0) != (b < 0) ? b : 0); return true;
    case TCI_OX_MIN: *r = TCI_MIN(a, b); return true;
    case TCI_OX_MAX: *r = TCI_MAX(a, b); return true;
    case TCI_OX_EQ: *r = a == b; return true;
    case TCI_OX_LT: *r = a < b; return true;
    case TCI_OX_LE: *r = a <= b; return true;
    case TCI_OX_GT: *r = a > b; return true;
    case TCI_OX_GE: *r = a >= b; return true;
    case TCI_OX_AND: *r = a && b; return true;
    case TCI_OX_OR: *r = a || b; return true;
    case TCI_OX_NOT: *r = !a; return true;
    case TCI_OX_NEG: *r = (int64_t)(0 - x); return true;
    case TCI_OX_ABS: *r = a < 0 ? (int64_t)(0 - x) : a; return true;
    case TCI_OX_SAME: *r = a; return true;
    default: return false;
    }
}

/* c as a whole number, or false. */
static bool tci_ox_whole(double c, int64_t *n)
{
    *n = c > -1e15 && c < 1e15 ? (int64_t)c : 0;
    return (double)*n == c;
}

/* Quotients of symbolic sizes by whole numbers. */
static bool tci_ox_fold_quotients(tci_ox_scalar op, tci_ox_cell a, tci_ox_cell b, tci_ox_cell *r)
{
    int64_t n;
    bool a_is = a.den > 0;
    switch (op) {
    case TCI_OX_FLOOR: *r = (tci_ox_cell){tc_dim_div(a.i, a.den), 1, 0.0}; return true;
    case TCI_OX_CEIL:
        *r = (tci_ox_cell){tc_dim_div(tc_dim_add(a.i, a.den - 1), a.den), 1, 0.0};
        return true;
    case TCI_OX_SAME: *r = a; return true;
    case TCI_OX_MUL:
        if (a.den > 0 && b.den > 0) {
            *r = (tci_ox_cell){tc_dim_mul(a.i, b.i), a.den * b.den, 0.0};
            return a.den < 1 << 20 && b.den < 1 << 20;
        }
        if (tci_ox_whole(a_is ? b.f : a.f, &n)) {
            *r = a_is ? a : b;
            r->i = tc_dim_mul(r->i, n);
            return true;
        }
        if (tci_ox_whole(1 / (a_is ? b.f : a.f), &n) && n > 0 && n < 1 << 20) {
            *r = a_is ? a : b;
            r->den *= n;
            return r->den < 1 << 20;
        }
        return false;
    case TCI_OX_DIV:
        if (a_is && b.den > 0 && a.i == b.i) {
            *r = (tci_ox_cell){0, 0, (double)b.den / (double)a.den};
            return true;
        }
        if (a_is && b.den == 0 && tci_ox_whole(b.f, &n) && n > 0 && n < 1 << 20) {
            *r = (tci_ox_cell){a.i, a.den * n, 0.0};
            return r->den < 1 << 20;
        }
        return a_is && b.den == 0 && tci_ox_whole(1 / b.f, &n) && n > 0 &&
               (*r = (tci_ox_cell){tc_dim_mul(a.i, n), a.den, 0.0}, true);
    case TCI_OX_ADD:
    case TCI_OX_SUB: {
        int64_t by = a_is ? a.den : b.den;
        tci_ox_cell whole = a_is ? b : a;
        if (whole.den > 0 ? whole.den != by : !tci_ox_whole(whole.f * (double)by, &n)) {
            return false;
        }
        int64_t other = whole.den > 0 ? whole.i : n;
        int64_t x = a_is ? a.i : other, y = a_is ? other : b.i;
        *r = (tci_ox_cell){op == TCI_OX_ADD ? tc_dim_add(x, y) : tc_dim_sub(x, y), by, 0.0};
        return true;
    }
    default: return false;
    }
}

static bool tci_ox_fold_floats(tci_ox_scalar op, double a, double b, double *r)
{
    switch (op) {
    case TCI_OX_ADD: *r = a + b; return true;
    case TCI_OX_SUB: *r = a - b; return true;
    case TCI_OX_MUL: *r = a * b; return true;
    case TCI_OX_DIV: *r = a / b; return true;
    case TCI_OX_MIN: *r = a < b || a != a ? a : b; return true;
    case TCI_OX_MAX: *r = a > b || a != a ? a : b; return true;
    case TCI_OX_NEG: *r = -a; return true;
    case TCI_OX_ABS: *r = fabs(a); return true;
    case TCI_OX_FLOOR: *r = floor(a); return true;
    case TCI_OX_CEIL: *r = ceil(a); return true;
    case TCI_OX_SQRT: *r = sqrt(a); return true;
    case TCI_OX_SAME: *r = a; return true;
    default: return false;
    }
}

static bool tci_ox_fold_tests(tci_ox_scalar op, double a, double b, int64_t *r)
{
    switch (op) {
    case TCI_OX_EQ: *r = a == b; return true;
    case TCI_OX_LT: *r = a < b; return true;
    case TCI_OX_LE: *r = a <= b; return true;
    case TCI_OX_GT: *r = a > b; return true;
    case TCI_OX_GE: *r = a >= b; return true;
    default: return false;
    }
}

static int64_t tci_ox_wrap(tc_dtype dtype, int64_t v)
{
    switch (dtype) {
    case TC_BOOL: return v != 0;
    case TC_U8: return (uint8_t)v;
    case TC_I8: return (int8_t)v;
    case TC_U16: return (uint16_t)v;
    case TC_I16: return (int16_t)v;
    case TC_U32: return (uint32_t)v;
    case TC_I32: return (int32_t)v;
    default: return v;
    }
}

static bool tci_ox_fold_cast(tc_dtype from, tc_dtype to, tci_ox_cell a, tci_ox_cell *r)
{
    bool number = tci_ox_cell_is_number(a) && !a.den;
    *r = (tci_ox_cell){0, 0, 0.0};
    if (tci_ox_is_float(to) && tci_ox_is_float(from)) {
        *r = a;
        r->f = to == TC_F32 ? (double)(float)a.f : a.f;
    } else if (tci_ox_is_float(to)) {
        r->i = number ? 0 : a.i;
        r->den = !number;
        r->f = !number ? 0 : to == TC_F32 ? (double)(float)a.i : (double)a.i;
    } else if (!number && tci_ox_is_float(from)) {
        r->i = tc_dim_div(a.i, a.den); /* truncates, and sizes are not negative */
        return to == TC_I64 || to == TC_I32;
    } else if (!number) {
        r->i = a.i;
        return to == TC_I64 || to == TC_I32;
    } else if (tci_ox_is_float(from)) {
        bool fits = a.f > -9e18 && a.f < 9e18;
        r->i = to == TC_BOOL ? a.f != 0 : fits ? (int64_t)a.f : 0;
        return to == TC_BOOL || (fits && tci_ox_wrap(to, r->i) == r->i);
    } else {
        r->i = tci_ox_wrap(to, a.i);
    }
    return true;
}

/* to: dtype of the result. */
static bool tci_ox_fold_cell(tci_ox_scalar op, tc_dtype from, tc_dtype to, tci_ox_cell a,
                             tci_ox_cell b, tci_ox_cell *r)
{
    *r = (tci_ox_cell){0, 0, 0.0};
    if (op == TCI_OX_CAST) {
        return tci_ox_fold_cast(from, to, a, r);
    }
    if (tci_ox_is_float(from)) {
        if (a.den || b.den) {
            return tci_ox_fold_quotients(op, a, b, r);
        }
        if (!tci_ox_is_float(to)) {
            return tci_ox_fold_tests(op, a.f, b.f, &r->i);
        }
        bool done = tci_ox_fold_floats(op, a.f, b.f, &r->f);
        r->f = from == TC_F32 ? (double)(float)r->f : r->f;
        return done && (from == TC_F32 || from == TC_F64 || op == TCI_OX_SAME);
    }
    if (!tci_ox_cell_is_number(a) || !tci_ox_cell_is_number(b)) {
        return tci_ox_fold_symbols(op, a, b, r);
    }
    bool done = from != TC_U64 && tci_ox_fold_ints(op, a.i, b.i, &r->i);
    r->i = tci_ox_wrap(to, r->i);
    return done || (op == TCI_OX_SAME && (r->i = a.i, true));
}

/* ---- arrays ---- */

/* The sizes that two broadcast to; false: they do not, or are too many elements. */
static bool tci_ox_broadcast(const tci_ox_known *a, const tci_ox_known *b, int *rank,
                             int64_t sizes[TCI_OX_RANK])
{
    int64_t n = 1;
    *rank = TCI_MAX(a->rank, b->rank);
    for (int i = 0; i < *rank && i < TCI_OX_RANK; i++) {
        int at_a = i - (*rank - a->rank), at_b = i - (*rank - b->rank);
        int64_t x = at_a >= 0 ? a->sizes[at_a] : 1, y = at_b >= 0 ? b->sizes[at_b] : 1;
        if (x != y && x != 1 && y != 1) {
            return false;
        }
        sizes[i] = x == 1 ? y : x;
        n *= sizes[i];
    }
    return *rank <= TCI_OX_RANK && n <= TCI_OX_FOLD_MOST;
}

/* Element of k for element `at` of an array of these sizes. */
static tci_ox_cell tci_ox_at(const tci_ox_known *k, int rank, const int64_t *sizes, int64_t at)
{
    int64_t index = 0, stride = 1;
    for (int i = rank - 1, j = k->rank - 1; i >= 0; i--, j--) {
        int64_t place = at % sizes[i];
        at /= sizes[i];
        if (j >= 0) {
            index += k->sizes[j] == 1 ? 0 : place * stride;
            stride *= k->sizes[j];
        }
    }
    return k->cells[index];
}

typedef struct tci_ox_args { /* of one folding */
    tci_ox_op *o;
    const tci_ox_known *k[8];
    int n;
    tci_ox_scalar scalar;
    bool tests; /* gives bool */
} tci_ox_args;

static bool tci_ox_fold_elements(tci_ox_args *x)
{
    const tci_ox_known *a = x->k[0];
    tc_dtype to = x->tests ? TC_BOOL : a->dtype;
    if (x->scalar == TCI_OX_CAST) {
        to = tci_onnx_dtype(tci_ox_int(x->o, "to", 0));
    }
    if (x->scalar == TCI_OX_MOD && tci_ox_int(x->o, "fmod", 0)) { /* the sign of a, not of b */
        return false;
    }
    const tci_ox_known *sum = a;
    for (int i = x->n > 1 ? 1 : 0; i < x->n; i++) {
        const tci_ox_known *b = x->k[i];
        int64_t sizes[TCI_OX_RANK];
        int rank;
        if (b->dtype != sum->dtype || to == TC_DTYPE_COUNT ||
            !tci_ox_broadcast(sum, b, &rank, sizes)) {
            return false;
        }
        tci_ox_known *r = tci_ox_known_new(x->o->s, to, rank, sizes);
        for (int64_t j = 0; j < r->n; j++) {
            if (!tci_ox_fold_cell(x->scalar, sum->dtype, to, tci_ox_at(sum, rank, sizes, j),
                                  tci_ox_at(b, rank, sizes, j), &r->cells[j])) {
                return false;
            }
        }
        sum = r;
    }
    tci_ox_out_known(x->o, 0, sum);
    return true;
}

static bool tci_ox_fold_where(tci_ox_args *x)
{
    int rank, rank_all;
    int64_t sizes[TCI_OX_RANK], all[TCI_OX_RANK];
    tci_ox_known part = {.dtype = TC_BOOL};
    if (x->n != 3 || !tci_ox_broadcast(x->k[0], x->k[1], &rank, sizes)) {
        return false;
    }
    part.rank = rank;
    part.sizes = sizes;
    if (!tci_ox_broadcast(&part, x->k[2], &rank_all, all)) {
        return false;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, x->k[1]->dtype, rank_all, all);
    for (int64_t j = 0; j < r->n; j++) {
        r->cells[j] = tci_ox_at(x->k[tci_ox_at(x->k[0], rank_all, all, j).i ? 1 : 2], rank_all, all,
                                j);
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

/* The same cells with other sizes, which are numbers whose product is the same. */
static bool tci_ox_fold_view(const tci_ox_op *o, const tci_ox_known *a, int rank,
                             const int64_t *sizes)
{
    tci_ox_known *r = TCI_NEW(o->s, tci_ox_known);
    *r = *a;
    r->rank = rank;
    r->sizes = tci_scratch_copy(o->s, sizes, sizeof(*sizes) * (size_t)rank);
    tci_ox_out_known(o, 0, r);
    return true;
}

/* Numbers of an operand or, before it was one, of an attribute; NULL: none, or symbols. */
static const int64_t *tci_ox_fold_list(const tci_ox_args *x, int i, const char *name, int *n)
{
    if (i >= x->n || !x->k[i]) {
        return tci_ox_ints(x->o, name, n);
    }
    int64_t *list = TCI_NEW_ARRAY(x->o->s, int64_t, x->k[i]->n + 1);
    *n = (int)x->k[i]->n;
    for (int j = 0; j < *n; j++) {
        list[j] = x->k[i]->cells[j].i;
        if (!tci_ox_cell_is_number(x->k[i]->cells[j])) {
            return NULL;
        }
    }
    return list;
}

static bool tci_ox_fold_reshape(tci_ox_args *x)
{
    int n = 0;
    int64_t sizes[TCI_OX_RANK], known = 1;
    const int64_t *want = tci_ox_fold_list(x, 1, "shape", &n);
    int open = -1;
    if (!want || n > TCI_OX_RANK) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        sizes[i] = want[i] == 0 && i < x->k[0]->rank ? x->k[0]->sizes[i] : want[i];
        open = sizes[i] == -1 ? i : open;
        known *= sizes[i] == -1 ? 1 : sizes[i];
    }
    if (open >= 0 && known > 0) {
        sizes[open] = x->k[0]->n / known;
        known *= sizes[open];
    }
    return known == x->k[0]->n && tci_ox_fold_view(x->o, x->k[0], n, sizes);
}

static bool tci_ox_fold_unsqueeze(tci_ox_args *x)
{
    int n = 0, at = 0;
    int64_t sizes[TCI_OX_RANK];
    const int64_t *axes = tci_ox_fold_list(x, 1, "axes", &n);
    int rank = x->k[0]->rank + n;
    if (!axes || rank > TCI_OX_RANK) {
        return false;
    }
    for (int i = 0; i < rank; i++) {
        bool is_new = false;
        for (int j = 0; j < n; j++) {
            is_new = is_new || axes[j] == i || axes[j] + rank == i;
        }
        if (!is_new && at == x->k[0]->rank) {
            return false;
        }
        sizes[i] = is_new ? 1 : x->k[0]->sizes[at++];
    }
    return at == x->k[0]->rank && tci_ox_fold_view(x->o, x->k[0], rank, sizes);
}

static bool tci_ox_fold_squeeze(tci_ox_args *x)
{
    int n = 0, rank = 0;
    int64_t sizes[TCI_OX_RANK], count = 1;
    const int64_t *axes = tci_ox_fold_list(x, 1, "axes", &n);
    const tci_ox_known *a = x->k[0];
    for (int i = 0; i < a->rank; i++) {
        bool goes = !axes && a->sizes[i] == 1;
        for (int j = 0; j < n && axes; j++) {
            goes = goes || axes[j] == i || axes[j] + a->rank == i;
        }
        if (!goes) {
            sizes[rank++] = a->sizes[i];
            count *= a->sizes[i];
        }
    }
    return count == a->n && tci_ox_fold_view(x->o, a, rank, sizes);
}

/* Outer, along the axis, inner. */
static void tci_ox_split_axes(const tci_ox_known *k, int axis, int64_t part[3])
{
    part[0] = part[2] = 1;
    part[1] = k->sizes[axis];
    for (int i = 0; i < k->rank; i++) {
        part[i < axis ? 0 : 2] *= i == axis ? 1 : k->sizes[i];
    }
}

static bool tci_ox_fold_gather(tci_ox_args *x)
{
    const tci_ox_known *a = x->k[0], *index = x->k[1];
    if (x->n != 2 || a->rank < 1 || a->rank + index->rank - 1 > TCI_OX_RANK) {
        return false;
    }
    int axis = tci_ox_axis(x->o, tci_ox_int(x->o, "axis", 0), a->rank);
    int64_t part[3], sizes[TCI_OX_RANK];
    int rank = 0;
    tci_ox_split_axes(a, axis, part);
    for (int i = 0; i < a->rank; i++) {
        if (i != axis) {
            sizes[rank++] = a->sizes[i];
            continue;
        }
        for (int j = 0; j < index->rank; j++) {
            sizes[rank++] = index->sizes[j];
        }
    }
    if (part[0] * index->n * part[2] > TCI_OX_FOLD_MOST) {
        return false;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, a->dtype, rank, sizes);
    for (int64_t j = 0; j < r->n; j++) {
        int64_t outer = j / (index->n * part[2]), in = j % part[2];
        int64_t at = index->cells[j / part[2] % index->n].i;
        at = tci_dim_is_known(at) && at < 0 ? at + part[1] : at;
        if (!tci_dim_is_known(at) || at < 0 || at >= part[1]) {
            return false;
        }
        r->cells[j] = a->cells[(outer * part[1] + at) * part[2] + in];
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

static bool tci_ox_fold_concat(tci_ox_args *x)
{
    int64_t n = 0;
    if (x->k[0]->rank != 1) {
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        n += x->k[i]->n;
        if (x->k[i]->rank != 1 || x->k[i]->dtype != x->k[0]->dtype) {
            return false;
        }
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, x->k[0]->dtype, 1, &n);
    for (int64_t i = 0, at = 0; i < x->n; at += x->k[i++]->n) {
        memcpy(r->cells + at, x->k[i]->cells, sizeof(*r->cells) * (size_t)x->k[i]->n);
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

/* Of lists, by Python's rules. */
static bool tci_ox_fold_slice(tci_ox_args *x)
{
    int n = 0, m = 0;
    const int64_t *starts = tci_ox_fold_list(x, 1, "starts", &n);
    const int64_t *ends = tci_ox_fold_list(x, 2, "ends", &m);
    int64_t step = x->n > 4 && x->k[4] && x->k[4]->n == 1 ? x->k[4]->cells[0].i : 1;
    int64_t length = x->k[0]->n, count;
    if (x->k[0]->rank != 1 || !starts || !ends || n != 1 || m != 1 || step == 0 ||
        !tci_dim_is_known(step)) {
        return false;
    }
    int64_t first = step > 0 ? 0 : -1, past = step > 0 ? length : length - 1;
    int64_t a = starts[0] < 0 ? starts[0] + length : starts[0];
    int64_t b = ends[0] < 0 ? ends[0] + length : ends[0];
    a = a < first ? first : a > past ? past : a;
    b = b < first || ends[0] < -length ? first : b > past ? past : b;
    count = step > 0 ? (b - a + step - 1) / step : (a - b - step - 1) / -step;
    count = count < 0 ? 0 : count;
    tci_ox_known *r = tci_ox_known_new(x->o->s, x->k[0]->dtype, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        r->cells[i] = x->k[0]->cells[a + i * step];
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

/* The product, sum, least or largest of all elements of a list of integers. */
static bool tci_ox_fold_reduce(tci_ox_args *x)
{
    const tci_ox_known *a = x->k[0];
    bool keeps = tci_ox_int(x->o, "keepdims", 1) != 0;
    bool none = tci_ox_int(x->o, "noop_with_empty_axes", 0) != 0;
    int n = 0;
    tci_ox_fold_list(x, 1, "axes", &n);
    if (a->rank > 1 || a->n < 1 || tci_ox_is_float(a->dtype) || (n == 0 && (none || x->n > 1))) {
        return false;
    }
    tci_ox_cell sum = a->cells[0];
    for (int64_t i = 1; i < a->n; i++) {
        tci_ox_cell r;
        if (!tci_ox_fold_cell(x->scalar, a->dtype, a->dtype, sum, a->cells[i], &r)) {
            return false;
        }
        sum = r;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, a->dtype, keeps ? a->rank : 0, (int64_t[]){1});
    r->cells[0] = sum;
    tci_ox_out_known(x->o, 0, r);
    return true;
}

static bool tci_ox_fold_range(tci_ox_args *x)
{
    if (x->n != 3 || x->k[0]->n != 1 || x->k[1]->n != 1 || x->k[2]->n != 1) {
        return false;
    }
    tci_ox_cell a = x->k[0]->cells[0], z = x->k[1]->cells[0], d = x->k[2]->cells[0];
    bool floats = tci_ox_is_float(x->k[0]->dtype);
    if (a.den || z.den || d.den || !tci_ox_cell_is_number(a) || !tci_ox_cell_is_number(z) ||
        !tci_ox_cell_is_number(d) || (floats ? d.f == 0 : d.i == 0)) {
        return false;
    }
    double count = ceil(floats ? (z.f - a.f) / d.f : ((double)z.i - (double)a.i) / (double)d.i);
    int64_t n = count > 0 ? (int64_t)count : 0;
    if (!(count <= TCI_OX_FOLD_MOST)) {
        return false;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, x->k[0]->dtype, 1, &n);
    for (int64_t i = 0; i < n; i++) {
        r->cells[i].i = floats ? 0 : a.i + i * d.i;
        double f = a.f + (double)i * d.f;
        r->cells[i].f = !floats ? 0 : x->k[0]->dtype == TC_F32 ? (double)(float)f : f;
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

static bool tci_ox_fold_constant_of_shape(tci_ox_args *x)
{
    int n;
    const int64_t *sizes = tci_ox_fold_list(x, 0, "", &n);
    const tci_onnx_attr *value = tci_ox_attr(x->o, "value");
    int64_t count = 1;
    for (int i = 0; sizes && i < n; i++) {
        count *= sizes[i];
        if (sizes[i] < 0 || count > TCI_OX_FOLD_MOST) {
            return false;
        }
    }
    if (!sizes || n > TCI_OX_RANK) {
        return false;
    }
    tc_dtype dtype = value && value->t ? tci_onnx_dtype(value->t->type) : TC_F32;
    if (dtype == TC_DTYPE_COUNT || (value && value->t && value->t->count != 1)) {
        return false;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, dtype, n, sizes);
    for (int64_t i = 0; i < r->n && value && value->t; i++) {
        r->cells[i] = tci_ox_read_cell(dtype, value->t->data);
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

static bool tci_ox_fold_expand(tci_ox_args *x)
{
    int n, rank;
    int64_t sizes[TCI_OX_RANK];
    const int64_t *want = tci_ox_fold_list(x, 1, "", &n);
    if (!want) {
        return false;
    }
    tci_ox_known shape = {.rank = n, .sizes = want};
    if (!tci_ox_broadcast(x->k[0], &shape, &rank, sizes)) {
        return false;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, x->k[0]->dtype, rank, sizes);
    for (int64_t j = 0; j < r->n; j++) {
        r->cells[j] = tci_ox_at(x->k[0], rank, sizes, j);
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

/* X(ONNX's name, function, scalar, whether it gives bool) */
#define TCI_OX_FOLDS(X)                                                                            \
    X(Add, elements, ADD, false)                                                                   \
    X(Sub, elements, SUB, false)                                                                   \
    X(Mul, elements, MUL, false)                                                                   \
    X(Div, elements, DIV, false)                                                                   \
    X(Mod, elements, MOD, false)                                                                   \
    X(Min, elements, MIN, false)                                                                   \
    X(Max, elements, MAX, false)                                                                   \
    X(Equal, elements, EQ, true)                                                                   \
    X(Less, elements, LT, true)                                                                    \
    X(LessOrEqual, elements, LE, true)                                                             \
    X(Greater, elements, GT, true)                                                                 \
    X(GreaterOrEqual, elements, GE, true)                                                          \
    X(And, elements, AND, true)                                                                    \
    X(Or, elements, OR, true)                                                                      \
    X(Not, elements, NOT, true)                                                                    \
    X(Neg, elements, NEG, false)                                                                   \
    X(Abs, elements, ABS, false)                                                                   \
    X(Floor, elements, FLOOR, false)                                                               \
    X(Ceil, elements, CEIL, false)                                                                 \
    X(Sqrt, elements, SQRT, false)                                                                 \
    X(Cast, elements, CAST, false)                                                                 \
    X(Identity, elements, SAME, false)                                                             \
    X(Where, where, SAME, false)                                                                   \
    X(Reshape, reshape, SAME, false)                                                               \
    X(Unsqueeze, unsqueeze, SAME, false)                                                           \
    X(Squeeze, squeeze, SAME, false)                                                               \
    X(Gather, gather, SAME, false)                                                                 \
    X(Concat, concat, SAME, false)                                                                 \
    X(Slice, slice, SAME, false)                                                                   \
    X(ReduceProd, reduce, MUL, false)                                                              \
    X(ReduceSum, reduce, ADD, false)                                                               \
    X(ReduceMin, reduce, MIN, false)                                                               \
    X(ReduceMax, reduce, MAX, false)                                                               \
    X(Range, range, SAME, false)                                                                   \
    X(ConstantOfShape, constant_of_shape, SAME, false)                                             \
    X(Expand, expand, SAME, false)

TCI_FN bool tci_ox_fold(tci_ox_op *o)
{
    static const struct {
        const char *op;
        bool (*fold)(tci_ox_args *x);
        tci_ox_scalar scalar;
        bool tests;
    } rows[] = {
#define TCI_ROW(op, fold, scalar, tests) {#op, tci_ox_fold_##fold, TCI_OX_##scalar, tests},
        TCI_OX_FOLDS(TCI_ROW)
#undef TCI_ROW
    };
    int row = 0;
    while (row < TCI_COUNT(rows) && strcmp(rows[row].op, o->node->op)) {
        row++;
    }
    if (row == TCI_COUNT(rows) || o->n_in < 1 || o->n_in > 8 || !o->in[0]) {
        return false;
    }
    tci_ox_args x = {.o = o, .n = o->n_in, .scalar = rows[row].scalar, .tests = rows[row].tests};
    for (int i = 0; i < o->n_in; i++) {
        x.k[i] = o->in[i] ? tci_ox_known_of(o, o->in[i]) : NULL;
        bool left_out = !o->in[i] && rows[row].fold == tci_ox_fold_slice;
        if (!left_out && (!x.k[i] || x.k[i]->n > TCI_OX_FOLD_MOST)) {
            return false;
        }
    }
    return rows[row].fold(&x);
}
