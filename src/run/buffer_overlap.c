/* run/buffer_overlap.c - tests whether strided buffers share memory: a bounded linear Diophantine
 * problem.
 *
 * In: buffers with sizes and strides. Out: whether two elements of one buffer, or of two, have a
 * byte in common.
 *
 * Design: two addresses are equal if sum(by[i] * x[i]) = distance has a solution with lo[i] <= x[i]
 * <= hi[i]. The terms are sorted by stride, longest first, and x[0], x[1], ... are chosen in turn;
 * the rest must be within reach of the shorter strides and divisible by their greatest common
 * divisor. If each stride is longer than the reach of all shorter ones (every layout made by
 * slicing, permuting and flipping a dense array), one candidate is left at each step; with two
 * terms the answer is exact without a search. A layout that needs more than TCI_OVERLAP_STEPS
 * choices counts as free of overlap: nothing legal is rejected, and only layouts of three or more
 * axes with interleaved strides can be missed. */
#include <stdlib.h>

#include "runtime_structs.h"

enum {
    TCI_OVERLAP_TERMS = 128, /* each buffer has at most 62 axes of 2 or more, and its width */
    TCI_OVERLAP_STEPS = 1 << 14
};

typedef struct tci_overlap_term {
    int64_t by, lo, hi;
} tci_overlap_term;

typedef struct tci_overlap {
    tci_overlap_term terms[TCI_OVERLAP_TERMS]; /* by > 0, the largest first */
    int n, steps;
    /* of the terms from i on: the least and the greatest sum, and what divides all sums */
    int64_t least[TCI_OVERLAP_TERMS + 1], most[TCI_OVERLAP_TERMS + 1];
    int64_t divisor[TCI_OVERLAP_TERMS + 1];
} tci_overlap;

static void tci_overlap_add(tci_overlap *o, int64_t by, int64_t lo, int64_t hi)
{
    tci_overlap_term t = {by, lo, hi};
    int i = o->n;
    if (by < 0) {
        t = (tci_overlap_term){-by, -hi, -lo};
    }
    if (lo == hi || !by) { /* it adds nothing */
        return;
    }
    for (; i > 0 && o->terms[i - 1].by < t.by; i--) {
        o->terms[i] = o->terms[i - 1];
    }
    o->terms[i] = t;
    o->n++;
}

/* ---- numbers ---- */

static int64_t tci_overlap_mod(int64_t a, int64_t m)
{
    int64_t r = a % m;
    return r < 0 ? r + m : r;
}

/* a * b mod m, of 0 <= a < m < 2^62: no product is formed. */
static int64_t tci_overlap_mul(int64_t a, int64_t b, int64_t m)
{
    int64_t r = 0;
    for (; b; b >>= 1) {
        r = b & 1 ? (r + a) % m : r;
        a = (a + a) % m;
    }
    return r;
}

/* The greatest common divisor of a and b > 0; a * *inverse = it (mod b). */
static int64_t tci_overlap_divide(int64_t a, int64_t b, int64_t *inverse)
{
    int64_t x = 1, next_x = 0, r = a, next_r = b;
    while (next_r) {
        int64_t q = r / next_r, kept = next_r;
        next_r = r - q * next_r;
        r = kept;
        kept = next_x;
        next_x = x - q * next_x;
        x = kept;
    }
    *inverse = tci_overlap_mod(x, b);
    return r;
}

/* ---- search ---- */

/* Values of a term that are left: the next one, the last one, and the step between. */
typedef struct tci_overlap_choice {
    int64_t next, last, step, left;
} tci_overlap_choice;

/* Values of term i for which `left` less its part can be the sum of the later terms. */
static tci_overlap_choice tci_overlap_choices(const tci_overlap *o, int i, int64_t left)
{
    const tci_overlap_term *t = &o->terms[i];
    tci_overlap_choice none = {1, 0, 1, left}, c = none;
    int64_t low = left - o->most[i + 1], high = left - o->least[i + 1], inverse;
    int64_t first = low > 0 ? (low - 1) / t->by + 1 : -(-low / t->by);
    c.last = TCI_MIN(high >= 0 ? high / t->by : -((-high - 1) / t->by + 1), t->hi);
    c.next = TCI_MAX(first, t->lo);
    int64_t m = o->divisor[i + 1];
    if (!m) { /* nothing is after it */
        return left % t->by ? none : c;
    }
    int64_t common = tci_overlap_divide(t->by, m, &inverse);
    if (left % common) {
        return none;
    }
    c.step = m / common;
    int64_t x = tci_overlap_mul(tci_overlap_mod(left / common, c.step), inverse % c.step, c.step);
    c.next += tci_overlap_mod(x - tci_overlap_mod(c.next, c.step), c.step);
    return c;
}

/* Whether the terms from `first` on can make the distance. */
static bool tci_overlap_search(tci_overlap *o, int first, int64_t distance)
{
    tci_overlap_choice at[TCI_OVERLAP_TERMS];
    int i = first;
    if (i == o->n) {
        return !distance;
    }
    at[i] = tci_overlap_choices(o, i, distance);
    while (i >= first) {
        if (at[i].next > at[i].last) {
            i--;
            continue;
        }
        int64_t left = at[i].left - o->terms[i].by * at[i].next;
        at[i].next += at[i].step;
        if (i + 1 == o->n) {
            return true;
        }
        if (o->steps++ == TCI_OVERLAP_STEPS) {
            return false;
        }
        i++;
        at[i] = tci_overlap_choices(o, i, left);
    }
    return false;
}

static void tci_overlap_sum(tci_overlap *o)
{
    int64_t inverse;
    o->least[o->n] = o->most[o->n] = o->divisor[o->n] = 0;
    for (int i = o->n - 1; i >= 0; i--) {
        const tci_overlap_term *t = &o->terms[i];
        int64_t d = o->divisor[i + 1];
        o->least[i] = o->least[i + 1] + t->by * t->lo;
        o->most[i] = o->most[i + 1] + t->by * t->hi;
        o->divisor[i] = d ? tci_overlap_divide(t->by, d, &inverse) : t->by;
    }
}

/* ---- buffers ---- */

TCI_FN bool tci_overlap_itself(const tc_buf *b)
{
    tci_overlap o;
    o.n = o.steps = 0;
    for (int i = 0; i < b->rank && b->n; i++) {
        if (b->sizes[i] > 1 && !b->strides[i]) {
            return true;
        }
        tci_overlap_add(&o, b->strides[i], 1 - b->sizes[i], b->sizes[i] - 1);
    }
    tci_overlap_sum(&o);
    /* of two different elements that meet: the first axis, in this order, on which they differ */
    for (int first = 0; first < o.n; first++) {
        int64_t lo = o.terms[first].lo;
        o.terms[first].lo = 1;
        bool meets = tci_overlap_search(&o, first, 0);
        o.terms[first].lo = lo;
        if (meets) {
            return true;
        }
    }
    return false;
}

/* Adds the bytes of b, times sign, to the terms. */
static void tci_overlap_bytes(tci_overlap *o, const tc_buf *b, int sign)
{
    int64_t width = tci_dtype_is_valid(b->dtype) ? tci_dtype_get((tc_dtype)b->dtype)->bytes : 1;
    tci_overlap_add(o, sign, 0, width - 1);
    if (!b->strides) {
        tci_overlap_add(o, sign * width, 0, b->n - 1);
    }
    for (int i = 0; b->strides && i < b->rank; i++) {
        tci_overlap_add(o, sign * width * b->strides[i], 0, b->sizes[i] - 1);
    }
}

TCI_FN bool tci_overlap_each_other(const tc_buf *a, const tc_buf *b)
{
    tci_overlap o;
    const int64_t many = INT64_MAX / 64; /* of a dense one, which is refused later */
    int64_t distance = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data);
    if (a->n <= 0 || b->n <= 0 || a->n > many || b->n > many) {
        return false;
    }
    o.n = o.steps = 0;
    tci_overlap_bytes(&o, a, 1);
    tci_overlap_bytes(&o, b, -1);
    tci_overlap_sum(&o);
    return distance >= o.least[0] && distance <= o.most[0] && tci_overlap_search(&o, 0, distance);
}
