/* run/infer_sizes.c - infers the values of symbolic sizes from the buffers of a run
 * (run/infer_sizes.h).
 *
 * In: buffers with a number of elements each (memory without a type: of bytes), or with the size of
 * every axis. Out: a value for each symbol, the only one that fits all buffers.
 *
 * Design: every given number is an equation, expression = number, and every symbol has a range. An
 * equation with one open symbol narrows its range. Numbers of elements are mostly monotonic in a
 * size, so the solutions are adjacent and found by bisection; for other expressions, such as 3 *
 * ceil(n / 3) - n, the first and the last solution are found from the bounds of the expression over
 * halves of the range. This repeats until nothing narrows, which usually determines all symbols.
 * Symbols that stay open (batch and height in batch * 3 * height * 64) are enumerated: the divisors
 * of the number, or a short range, each narrowing the rest; a second solution ends the search.
 *
 * If no output has elements, any sizes that fit are accepted, since nothing is written. */
#include "infer_sizes.h"

#ifdef TC_DYNAMIC_SHAPES

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    TCI_SOLVE_SHORT = 4096,       /* ranges up to this are tried value by value */
    TCI_SOLVE_BUDGET = 100000,    /* values tried in one search */
    TCI_SOLVE_LOOKS = 4096,       /* ranges looked at for one end of one equation */
    TCI_SOLVE_ALL_LOOKS = 1 << 18 /* in one search; from there on such equations narrow nothing */
};

/* shape[axis] of a port, or its number of elements where axis is -1. */
typedef struct tci_solve_equation {
    tci_dim d;
    int32_t port, axis;
    int32_t n;         /* symbols */
    int32_t *symbols;  /* their numbers */
    bool *divides;     /* d is a multiple of that symbol */
    int8_t *direction; /* of d as that symbol grows (base/dim.h) */
} tci_solve_equation;

struct tci_solver {
    const tci_code *code;
    int n_inputs, n_outputs;
    const tci_dim *user;
    int n; /* symbols */
    tci_solve_equation *equations;
    int n_equations;
};

/* One search. Level l of it has ranges of its own. */
typedef struct tci_solve {
    const tci_solver *v;
    const tc_bufs *inputs, *outputs;
    int64_t *point; /* where expressions are evaluated */
    int64_t *far;   /* with it: ranges in which they are */
    int64_t *found;
    int64_t *ranges; /* per level: least, then most of each symbol */
    int32_t level;
    int n_found, budget, looks; /* n_found 2: or it cannot be told */
    bool has_found;             /* `found` holds values that fit */
    int failed;                 /* the equation that nothing fits at level 0, or -1 */
    int64_t *origin;            /* at level 0: the equation that closed each symbol, or -1 */
} tci_solve;

/* ---- the equations of a program ---- */

static const tci_code_port *tci_solve_port(const tci_solver *v, int port)
{
    return port < v->n_inputs ? &v->code->inputs[port] : &v->code->outputs[port - v->n_inputs];
}

static void *tci_solve_carve(char *block, size_t *at, size_t n, size_t item_bytes)
{
    void *p = block ? block + *at : NULL;
    *at += (n * item_bytes + 15) & ~(size_t)15;
    return p;
}

/* Adds an equation, or with block NULL only counts what it takes. */
static bool tci_solve_add(tci_solver *v, char *block, size_t *at, tci_dim *list, tci_dim d,
                          int port, int axis)
{
    int n = 0;
    if (tci_dim_is_known(d)) {
        return true;
    }
    if (!tci_dim_symbols(d, list, &n, v->n)) {
        return false; /* of another program: a defect */
    }
    int32_t *symbols = tci_solve_carve(block, at, (size_t)n, sizeof(*symbols));
    bool *divides = tci_solve_carve(block, at, (size_t)n, sizeof(*divides));
    int8_t *direction = tci_solve_carve(block, at, (size_t)n, sizeof(*direction));
    for (int i = 0; i < n && block; i++) {
        symbols[i] = tci_dim_ordinal(list[i]);
        divides[i] = tci_dim_divides(list[i], d);
        direction[i] = (int8_t)tci_dim_direction(d, symbols[i]);
        if (symbols[i] < 0 || symbols[i] >= v->n) {
            return false;
        }
    }
    if (block) {
        v->equations[v->n_equations] = (tci_solve_equation){d,       port,    axis,     n,
                                                            symbols, divides, direction};
    }
    v->n_equations++;
    return true;
}

static bool tci_solve_add_all(tci_solver *v, char *block, size_t *at, tci_dim *list)
{
    bool good = true;
    v->n_equations = 0;
    for (int p = 0; p < v->n_inputs + v->n_outputs && good; p++) {
        const tci_code_port *port = tci_solve_port(v, p);
        good = tci_solve_add(v, block, at, list, port->n, p, -1);
        for (int a = 0; a < port->rank && good; a++) {
            good = tci_solve_add(v, block, at, list, port->shape[a], p, a);
        }
    }
    return good;
}

TCI_FN tci_solver *tci_solver_make(const tci_code *code, int n_inputs, int n_outputs,
                                   const tci_dim *user)
{
    tci_solver count = {code, n_inputs, n_outputs, user, code->n_symbols, NULL, 0};
    size_t at = 0;
    tci_dim *list = tci_heap_get(sizeof(*list) * (size_t)TCI_MAX(code->n_symbols, 1));
    tci_solver *v = NULL;
    if (list && tci_solve_add_all(&count, NULL, &at, list)) {
        size_t head = 0;
        tci_solve_carve(NULL, &head, 1, sizeof(*v));
        tci_solve_carve(NULL, &head, (size_t)count.n_equations, sizeof(tci_solve_equation));
        v = tci_heap_get(head + at);
        if (v) {
            *v = count;
            at = 0;
            tci_solve_carve((char *)v, &at, 1, sizeof(*v));
            v->equations = tci_solve_carve((char *)v, &at, (size_t)count.n_equations,
                                           sizeof(tci_solve_equation));
            if (!tci_solve_add_all(v, (char *)v, &at, list)) {
                tci_heap_free(v);
                v = NULL;
            }
        }
    }
    tci_heap_free(list);
    return v;
}

TCI_FN void tci_solver_free(tci_solver *v)
{
    tci_heap_free(v);
}

TCI_FN int tci_solver_untold(const tci_solver *v)
{
    for (int symbol = 0; symbol < v->n; symbol++) {
        bool told = false;
        for (int i = 0; i < v->n_equations; i++) {
            for (int j = 0; j < v->equations[i].n; j++) {
                told = told || v->equations[i].symbols[j] == symbol;
            }
        }
        if (!told) {
            return symbol;
        }
    }
    return -1;
}

/* Every level but the first and the last closes a symbol. */
TCI_FN size_t tci_solver_room(const tci_solver *v)
{
    size_t levels = (size_t)v->n + 2;
    return (size_t)v->n * (4 + 2 * levels);
}

/* ---- one equation ---- */

static const tc_buf *tci_solve_buffer(const tci_solve *s, int port)
{
    int n_inputs = s->v->n_inputs;
    return port < n_inputs ? &s->inputs->items[port]
           : s->outputs    ? &s->outputs->items[port - n_inputs]
                           : NULL;
}

/* Number that the expression must equal; -1: none, since the bytes are not whole elements. False:
 * the buffer does not say. Untyped memory is counted in bytes. */
static bool tci_solve_target(const tci_solve *s, const tci_solve_equation *e, int64_t *target)
{
    const tc_buf *b = tci_solve_buffer(s, e->port);
    if (!b || (b->sizes != NULL) != (e->axis >= 0)) {
        return false;
    }
    int64_t bytes = tci_dtype_get((tc_dtype)tci_solve_port(s->v, e->port)->dtype)->bytes;
    if (e->axis >= 0) {
        *target = b->sizes[e->axis];
    } else if (b->dtype == -1) {
        *target = b->n % bytes ? -1 : b->n / bytes;
    } else {
        *target = b->n;
    }
    return true;
}

static int tci_solve_direction(const tci_solve_equation *e, int symbol)
{
    for (int i = 0; i < e->n; i++) {
        if (e->symbols[i] == symbol) {
            return e->direction[i];
        }
    }
    return 0;
}

static int64_t tci_solve_at(const tci_solve *s, tci_dim d, int symbol, int64_t x)
{
    s->point[symbol] = x;
    return tci_dim_value(d, s->point);
}

/* The first x in [lo, hi] where d is at least (falling: at most) target, or beyond it; hi + 1:
 * there is none. */
static int64_t tci_solve_first(const tci_solve *s, tci_dim d, int symbol, int64_t lo, int64_t hi,
                               int64_t target, bool falling, bool beyond)
{
    int64_t end = hi + 1;
    while (lo < end) {
        int64_t x = lo + (end - lo) / 2, v = tci_solve_at(s, d, symbol, x);
        bool there = falling ? v < target : v > target;
        if (there || (!beyond && v == target)) {
            end = x;
        } else {
            lo = x + 1;
        }
    }
    return lo;
}

/* Whether d can be target where the symbol is anything in [lo, hi]. */
static bool tci_solve_may_be(const tci_solve *s, tci_dim d, int symbol, int64_t lo, int64_t hi,
                             int64_t target)
{
    s->point[symbol] = lo;
    s->far[symbol] = hi;
    tci_dim_bounds b = tci_dim_value_in(d, s->point, s->far);
    return b.least <= target && target <= b.most;
}

/* The first x in [lo, hi] (`last`: the last) where d is target, however d goes; where that takes
 * too many looks, as far as they came. hi + 1 (lo - 1): there is none. Depth first, so the stack
 * holds one range for each halving. */
static int64_t tci_solve_nearest(tci_solve *s, tci_dim d, int symbol, int64_t lo, int64_t hi,
                                 int64_t target, bool last)
{
    int64_t ends[64][2] = {{lo, hi}};
    int n = 1;
    int looks = TCI_MIN(s->looks, TCI_SOLVE_LOOKS);
    while (n > 0) {
        int64_t from = ends[n - 1][0], to = ends[n - 1][1];
        if (looks-- == 0) {
            return last ? to : from;
        }
        s->looks--;
        n--;
        if (!tci_solve_may_be(s, d, symbol, from, to, target)) {
            continue;
        }
        if (from == to) {
            return from;
        }
        int64_t half = from + (to - from) / 2;
        int64_t lower[2] = {from, half}, upper[2] = {half + 1, to};
        memcpy(ends[n++], last ? lower : upper, sizeof(lower));
        memcpy(ends[n++], last ? upper : lower, sizeof(lower));
    }
    return last ? lo - 1 : hi + 1;
}

/* Narrows where d may go up and down; what is left in between need not fit. */
static bool tci_solve_narrow_any(tci_solve *s, tci_dim d, int symbol, int64_t target, int64_t *lo,
                                 int64_t *hi)
{
    for (int i = 0; i < s->v->n; i++) {
        s->far[i] = s->point[i];
    }
    int64_t first = tci_solve_nearest(s, d, symbol, *lo, *hi, target, false);
    if (first > *hi) {
        return false;
    }
    *hi = tci_solve_nearest(s, d, symbol, first, *hi, target, true);
    *lo = first;
    return *lo <= *hi;
}

/* Narrows [*lo, *hi] of the only open symbol of e to where it is target; false: it nowhere is. */
static bool tci_solve_narrow(tci_solve *s, const tci_solve_equation *e, int symbol, int64_t target,
                             int64_t *lo, int64_t *hi)
{
    tci_dim d = e->d;
    if (tci_solve_direction(e, symbol) == 2) {
        return tci_solve_narrow_any(s, d, symbol, target, lo, hi);
    }
    int64_t at_lo = tci_solve_at(s, d, symbol, *lo), at_hi = tci_solve_at(s, d, symbol, *hi);
    bool falling = at_hi < at_lo;
    if (target < TCI_MIN(at_lo, at_hi) || target > TCI_MAX(at_lo, at_hi)) {
        return false;
    }
    if (at_lo == at_hi) {
        return true;
    }
    /* a straight line, as it mostly is */
    double slope = ((double)at_hi - (double)at_lo) / ((double)*hi - (double)*lo);
    int64_t x = *lo + (int64_t)(((double)target - (double)at_lo) / slope + 0.5);
    if (x >= *lo && x <= *hi && tci_solve_at(s, d, symbol, x) == target &&
        (x == *lo || tci_solve_at(s, d, symbol, x - 1) != target) &&
        (x == *hi || tci_solve_at(s, d, symbol, x + 1) != target)) {
        *lo = *hi = x;
        return true;
    }
    int64_t first = tci_solve_first(s, d, symbol, *lo, *hi, target, falling, false);
    int64_t end = tci_solve_first(s, d, symbol, *lo, *hi, target, falling, true);
    if (first >= end) {
        return false;
    }
    *lo = first;
    *hi = end - 1;
    return true;
}

/* ---- narrowing ---- */

static int64_t *tci_solve_least(const tci_solve *s)
{
    return s->ranges + 2 * (size_t)s->v->n * (size_t)s->level;
}

static int64_t *tci_solve_most(const tci_solve *s)
{
    return tci_solve_least(s) + s->v->n;
}

/* Number of open symbols of e; *symbol is the last of them. The values of the others go into the
 * point. */
static int tci_solve_open(const tci_solve *s, const tci_solve_equation *e, int *symbol)
{
    const int64_t *least = tci_solve_least(s), *most = tci_solve_most(s);
    int n = 0;
    for (int i = 0; i < e->n; i++) {
        int at = e->symbols[i];
        s->point[at] = least[at];
        if (least[at] < most[at]) {
            *symbol = at;
            n++;
        }
    }
    return n;
}

/* Narrows by one equation. False: nothing fits. *open: symbols that it leaves open. */
static bool tci_solve_use(tci_solve *s, int equation, int *open, bool *changed)
{
    const tci_solve_equation *e = &s->v->equations[equation];
    int64_t target;
    int symbol = 0;
    bool says = tci_solve_target(s, e, &target);
    *open = says ? tci_solve_open(s, e, &symbol) : 0;
    if (!says || *open > 1) {
        return true;
    }
    if (*open == 0) {
        return tci_dim_value(e->d, s->point) == target;
    }
    int64_t *least = &tci_solve_least(s)[symbol], *most = &tci_solve_most(s)[symbol];
    int64_t lo = *least, hi = *most;
    if (!tci_solve_narrow(s, e, symbol, target, &lo, &hi)) {
        return false;
    }
    *changed = *changed || lo != *least || hi != *most;
    *least = lo;
    *most = hi;
    *open = lo < hi;
    if (s->level == 0 && lo == hi) {
        s->origin[symbol] = equation;
    }
    return true;
}

/* Narrows until nothing does any more. */
static bool tci_solve_propagate(tci_solve *s)
{
    bool changed = true, left = true;
    while (changed && left) {
        changed = left = false;
        for (int i = 0; i < s->v->n_equations; i++) {
            int open;
            if (!tci_solve_use(s, i, &open, &changed)) {
                s->failed = s->level == 0 ? i : s->failed;
                return false;
            }
            left = left || open > 0;
        }
    }
    return true;
}

/* ---- searching ---- */

static void tci_solve_search(tci_solve *s);

static void tci_solve_push(tci_solve *s)
{
    const int64_t *from = tci_solve_least(s);
    s->level++;
    memcpy(tci_solve_least(s), from, 2 * sizeof(*from) * (size_t)s->v->n);
}

/* Searches for a symbol in [lo, hi]. */
static void tci_solve_try(tci_solve *s, int symbol, int64_t lo, int64_t hi)
{
    if (s->n_found > 1) {
        return;
    }
    if (--s->budget < 0) {
        s->n_found = 2;
        return;
    }
    tci_solve_push(s);
    tci_solve_least(s)[symbol] = lo;
    tci_solve_most(s)[symbol] = hi;
    tci_solve_search(s);
    s->level--;
}

/* All symbols are closed. */
static void tci_solve_take(tci_solve *s)
{
    const int64_t *values = tci_solve_least(s);
    size_t bytes = sizeof(*values) * (size_t)s->v->n;
    if (s->n_found == 0) {
        memcpy(s->found, values, bytes);
        s->n_found = 1;
        s->has_found = true;
    } else if (memcmp(s->found, values, bytes)) {
        s->n_found = 2;
    }
}

/* The largest number that an open symbol must divide, or 0. */
static int64_t tci_solve_multiple(const tci_solve *s, int symbol)
{
    int64_t least = 0;
    for (int i = 0; i < s->v->n_equations; i++) {
        const tci_solve_equation *e = &s->v->equations[i];
        int64_t target;
        bool divides = false;
        for (int j = 0; j < e->n; j++) {
            divides = divides || (e->symbols[j] == symbol && e->divides[j]);
        }
        if (divides && tci_solve_target(s, e, &target) && target > 0) {
            least = least ? TCI_MIN(least, target) : target;
        }
    }
    return least;
}

static void tci_solve_try_divisors(tci_solve *s, int symbol, int64_t n)
{
    int64_t least = tci_solve_least(s)[symbol], most = tci_solve_most(s)[symbol];
    for (int64_t x = 1; x <= most && x <= n / x && s->n_found < 2; x++) {
        if (n % x == 0 && x >= least) {
            tci_solve_try(s, symbol, x, x);
        }
        if (n % x == 0 && n / x != x && n / x >= least && n / x <= most) {
            tci_solve_try(s, symbol, n / x, n / x);
        }
    }
}

/* The least of all ranges, for want of more to go by: whether that fits or not, others may. */
static void tci_solve_give_up(tci_solve *s)
{
    tci_solve_push(s);
    memcpy(tci_solve_most(s), tci_solve_least(s), sizeof(int64_t) * (size_t)s->v->n);
    if (tci_solve_propagate(s)) {
        tci_solve_take(s);
    }
    s->level--;
    s->n_found = 2;
}

static void tci_solve_search(tci_solve *s)
{
    if (!tci_solve_propagate(s)) {
        return;
    }
    const int64_t *least = tci_solve_least(s), *most = tci_solve_most(s);
    int shortest = -1, dividing = -1;
    int64_t multiple = 0;
    for (int i = 0; i < s->v->n; i++) {
        if (least[i] < most[i]) {
            bool shorter = shortest < 0 || most[i] - least[i] < most[shortest] - least[shortest];
            int64_t of = tci_solve_multiple(s, i);
            shortest = shorter ? i : shortest;
            if (of && (dividing < 0 || of < multiple)) {
                dividing = i;
                multiple = of;
            }
        }
    }
    if (shortest < 0) {
        tci_solve_take(s);
        return;
    }
    if (dividing >= 0) {
        tci_solve_try_divisors(s, dividing, multiple);
    } else if (most[shortest] - least[shortest] < TCI_SOLVE_SHORT) {
        int64_t from = least[shortest], to = most[shortest];
        for (int64_t x = from; x <= to && s->n_found < 2; x++) {
            tci_solve_try(s, shortest, x, x);
        }
    } else {
        tci_solve_give_up(s);
    }
}

/* ---- texts of refusals ---- */

typedef struct tci_solve_text {
    char *at;
    size_t room;
} tci_solve_text;

static void tci_solve_say(tci_solve_text *t, const char *format, ...) TCI_PRINTF(2, 3);
static void tci_solve_say(tci_solve_text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at, t->room, format, args);
    va_end(args);
    size_t wrote = n < 0 ? 0 : TCI_MIN((size_t)n, t->room ? t->room - 1 : 0);
    t->at += wrote;
    t->room -= wrote;
}

static const char *tci_solve_name(const tci_solver *v, int symbol)
{
    return tci_dim_name(v->user[symbol]);
}

/* "input 0" */
static void tci_solve_say_port(tci_solve_text *t, const tci_solver *v, int port)
{
    bool input = port < v->n_inputs;
    tci_solve_say(t, "%s %d", input ? "input" : "output", input ? port : port - v->n_inputs);
}

/* "f32 [batch, 4]" */
static void tci_solve_say_shape(tci_solve_text *t, const tci_solver *v, int port)
{
    const tci_code_port *p = tci_solve_port(v, port);
    tci_solve_say(t, "%s [", tci_dtype_get((tc_dtype)p->dtype)->name);
    for (int i = 0; i < p->rank; i++) {
        tci_dim d = tci_dim_replace(p->shape[i], v->n, v->code->symbols, v->user);
        tci_solve_say(t, "%s%s", i ? ", " : "", TCI_DIM_TEXT(d));
    }
    tci_solve_say(t, "]");
}

/* "'batch' would be 7, expected 0 to 4" and the like: what equation e says of its one symbol. */
static void tci_solve_say_why(tci_solve_text *t, tci_solve *s, const tci_solve_equation *e,
                              int symbol, int64_t target)
{
    const tci_solver *v = s->v;
    const char *name = tci_solve_name(v, symbol);
    int64_t least = tci_dim_least(v->user[symbol]), most = tci_dim_most(v->user[symbol]);
    int64_t lo = least, hi = most, far_lo = 0, far_hi = (int64_t)1 << 44;
    int origin = (int)s->origin[symbol];
    bool one_way = tci_solve_direction(e, symbol) != 2;
    if (tci_solve_narrow(s, e, symbol, target, &lo, &hi)) {
        tci_solve_say(t, "'%s' would be %lld", name, (long long)lo);
        if (lo < hi) {
            tci_solve_say(t, " to %lld", (long long)hi);
        }
        tci_solve_say(t, ", but ");
        if (origin >= 0) {
            tci_solve_say_port(t, v, v->equations[origin].port);
            tci_solve_say(t, " makes it %lld", (long long)tci_solve_least(s)[symbol]);
        } else {
            tci_solve_say(t, "other buffers leave %lld to %lld",
                          (long long)tci_solve_least(s)[symbol],
                          (long long)tci_solve_most(s)[symbol]);
        }
    } else if (one_way && tci_solve_narrow(s, e, symbol, target, &far_lo, &far_hi)) {
        tci_solve_say(t, "'%s' would be %lld, expected %lld to %lld", name, (long long)far_lo,
                      (long long)least, (long long)most);
    } else {
        int64_t above = tci_solve_first(s, e->d, symbol, least, most, target, false, true);
        tci_solve_say(t, "no '%s' in %lld to %lld gives that", name, (long long)least,
                      (long long)most);
        if (one_way && above > least && above <= most) {
            int64_t at_below = tci_solve_at(s, e->d, symbol, above - 1);
            int64_t at_above = tci_solve_at(s, e->d, symbol, above);
            tci_solve_say(t, ": %lld makes %lld, %lld makes %lld", (long long)above - 1,
                          (long long)at_below, (long long)above, (long long)at_above);
        }
    }
}

/* Equation `failed` fits nothing that those before it left. */
static void tci_solve_say_failed(tci_solve_text *t, tci_solve *s)
{
    const tci_solver *v = s->v;
    const tci_solve_equation *e = &v->equations[s->failed];
    const tc_buf *b = tci_solve_buffer(s, e->port);
    int64_t target = 0;
    int symbol = e->symbols[0];
    tci_solve_target(s, e, &target);
    tci_solve_say_port(t, v, e->port);
    if (e->axis >= 0) {
        tci_solve_say(t, ": given size %lld on axis %d of ", (long long)target, e->axis);
    } else {
        tci_solve_say(t, ": given %lld %s for ", (long long)b->n,
                      b->dtype == -1 ? "bytes of untyped memory" : "elements");
    }
    tci_solve_say_shape(t, v, e->port);
    tci_solve_say(t, ": ");
    int open = tci_solve_open(s, e, &symbol);
    if (e->n == 1 || open == 1) {
        tci_solve_say_why(t, s, e, symbol, target);
        return;
    }
    tci_solve_say(t, "expected %lld, as", (long long)tci_dim_value(e->d, s->point));
    for (int i = 0; i < e->n; i++) {
        int at = e->symbols[i];
        int origin = (int)s->origin[at];
        tci_solve_say(t, "%s '%s' is %lld", i ? "," : "", tci_solve_name(v, at),
                      (long long)s->point[at]);
        if (origin >= 0) {
            tci_solve_say(t, " by ");
            tci_solve_say_port(t, v, v->equations[origin].port);
        }
    }
}

/* A buffer, given without its sizes, with an axis that determines the symbol; -1: there is
 * none. */
static int tci_solve_teller(const tci_solve *s, int symbol)
{
    for (int i = 0; i < s->v->n_equations; i++) {
        const tci_solve_equation *e = &s->v->equations[i];
        const tc_buf *b = tci_solve_buffer(s, e->port);
        if (!b || b->sizes || e->axis < 0 || e->n != 1 || e->symbols[0] != symbol) {
            continue;
        }
        int way = e->direction[0]; /* it distinguishes all values: it changes with each by 1 or
                                    * more */
        tci_dim moved = tci_dim_mul(s->v->code->symbols[symbol], way == 1 ? -1 : 1);
        tci_dim rest = tci_dim_add(e->d, moved);
        int left = tci_dim_is_valid(rest) ? tci_dim_direction(rest, symbol) : 2;
        if ((way == 1 || way == -1) && (left == 0 || left == way)) {
            return e->port;
        }
    }
    return -1;
}

static void tci_solve_say_open(tci_solve_text *t, const tci_solve *s)
{
    const int64_t *least = tci_solve_least(s), *most = tci_solve_most(s);
    const char *between = "";
    for (int i = 0; i < s->v->n; i++) {
        if (least[i] < most[i]) {
            tci_solve_say(t, "%s'%s'", between, tci_solve_name(s->v, i));
            between = ", ";
        }
    }
}

/* Several values fit, or the search takes too long. */
static void tci_solve_say_uncertain(tci_solve_text *t, const tci_solve *s)
{
    const int64_t *least = tci_solve_least(s), *most = tci_solve_most(s);
    int port = -1, open = -1;
    for (int i = 0; i < s->v->n && port < 0; i++) {
        if (least[i] < most[i]) {
            open = i;
            port = tci_solve_teller(s, i);
        }
    }
    tci_solve_say_open(t, s);
    if (port >= 0) {
        tci_solve_say(t, ": not certain from the numbers of elements given; expected the sizes "
                         "of ");
        tci_solve_say_port(t, s->v, port);
        tci_solve_say(t, ", as TC_BUF_ND(pointer, sizes...)");
    } else {
        tci_solve_say(t,
                      ": not certain from the buffers given, and no size of one would tell; "
                      "expected a program with one more input that has an axis of size '%s'",
                      open < 0 ? "" : tci_solve_name(s->v, open));
    }
}

/* ---- solving ---- */

/* A number of elements, or a size of it, is symbolic, or made of such. */
static bool tci_solve_is_symbolic(const tc_buf *b)
{
    bool symbolic = !b->sizes && (!tci_dim_is_known(b->n) || tci_dim_is_stray(b->n));
    for (int a = 0; b->sizes && a < b->rank; a++) {
        symbolic = symbolic || !tci_dim_is_known(b->sizes[a]) || tci_dim_is_stray(b->sizes[a]);
    }
    return symbolic;
}

static tc_status tci_solve_check_buffers(const tci_solve *s, tci_solve_text *t)
{
    for (int p = 0; p < s->v->n_inputs + s->v->n_outputs; p++) {
        const tc_buf *b = tci_solve_buffer(s, p);
        if (b && tci_solve_is_symbolic(b)) {
            tci_solve_say_port(t, s->v, p);
            tci_solve_say(t, ": given a symbolic size, expected the number that it is in this run "
                             "for ");
            tci_solve_say_shape(t, s->v, p);
            return TC_ERR_BUFFER;
        }
        if (b && b->sizes && b->rank != tci_solve_port(s->v, p)->rank) {
            tci_solve_say_port(t, s->v, p);
            tci_solve_say(t, ": given %d sizes, expected ", b->rank);
            tci_solve_say_shape(t, s->v, p);
            return TC_ERR_BUFFER;
        }
    }
    return TC_OK;
}

/* Whatever the sizes are, a run writes nothing. */
static bool tci_solve_is_empty(const tci_solve *s)
{
    const tci_solver *v = s->v;
    bool empty = s->outputs && v->code->n_outputs == v->n_outputs;
    for (int i = 0; i < v->n_outputs && empty; i++) {
        empty = s->outputs->items[i].n == 0;
    }
    return empty;
}

TCI_FN tc_status tci_solver_solve(const tci_solver *v, int64_t *room, const tc_bufs *inputs,
                                  const tc_bufs *outputs, int64_t *values, char *text,
                                  size_t text_room)
{
    tci_solve s = {.v = v,
                   .inputs = inputs,
                   .outputs = outputs,
                   .failed = -1,
                   .budget = TCI_SOLVE_BUDGET,
                   .looks = TCI_SOLVE_ALL_LOOKS};
    tci_solve_text t = {text, text_room};
    s.point = room;
    s.found = room + v->n;
    s.origin = room + 2 * (size_t)v->n;
    s.far = room + 3 * (size_t)v->n;
    s.ranges = room + 4 * (size_t)v->n;
    for (int i = 0; i < v->n; i++) {
        tci_solve_least(&s)[i] = tci_dim_least(v->user[i]);
        tci_solve_most(&s)[i] = tci_dim_most(v->user[i]);
        s.origin[i] = -1;
    }
    tc_status status = tci_solve_check_buffers(&s, &t);
    if (status) {
        return status;
    }
    tci_solve_search(&s);
    if (s.n_found == 1 || (s.has_found && tci_solve_is_empty(&s))) {
        memcpy(values, s.found, sizeof(*values) * (size_t)v->n);
        return TC_OK;
    }
    if (s.n_found > 1) {
        tci_solve_say_uncertain(&t, &s);
    } else if (s.failed >= 0) {
        tci_solve_say_failed(&t, &s);
    } else {
        tci_solve_say(&t, "the numbers of elements given fit no ");
        tci_solve_say_open(&t, &s);
    }
    return TC_ERR_BUFFER;
}

#endif
