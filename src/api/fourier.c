/* api/fourier.c - discrete Fourier transforms (FFT) along one axis, of any length.
 *
 * In: rows of real numbers, or of pairs (real, imaginary) along a last axis of size 2. Out: the
 * transforms in the same layout.
 *
 * Design (Cooley and Tukey, in Stockham's order): for n = r t points, groups of r points t apart
 * are transformed by a small matrix and multiplied by twiddle factors; transforms of t points
 * remain. Finished indices are innermost, [rows, r, t, done] -> [rows, t, r, done], so the results
 * come out in order without a permutation; axes after the transformed one count as done from the
 * start. A length with a large prime factor is a convolution with a chirp (Bluestein), by
 * transforms of a power of two. Matrices and twiddle factors are stored arrays, since no kernel
 * could compute them as fast; real and imaginary parts are separate. */
#include "composite_helpers.h"

#include "../base/alloc.h"

#include <math.h>
#include <string.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

enum {
    TCI_FOURIER_RADIX = 16,  /* points that one matrix transforms, if they are a product */
    TCI_FOURIER_PRIME = 64,  /* and if they are one prime: a larger one takes a chirp */
    TCI_FOURIER_STAGES = 48, /* more than any length has */
    TCI_FOURIER_MOST = 1 << 30
};

typedef struct tci_complex {
    tc_tensor re, im;
} tci_complex;

static tci_complex tci_complex_mul(tci_complex a, tci_complex b, tc_site here)
{
    return (tci_complex){tc_sub(tc_mul(a.re, b.re), tc_mul(a.im, b.im)),
                         tc_add(tc_mul(a.re, b.im), tc_mul(a.im, b.re))};
}

/* ---- roots of one ---- */

/* The cosine and sine of 2 pi k / n, by an angle of at most pi / 4: exact where they are. */
static void tci_fourier_root(int64_t k, int64_t n, double root[2])
{
    k %= n;
    k += k < 0 ? n : 0;
    const int64_t quarter = 4 * k / n, eighth = 8 * k / n % 2; /* of the circle */
    const int64_t rest = 4 * k - (quarter + eighth) * n;       /* from the nearest axis */
    const double angle = 1.5707963267948966 * (double)rest / (double)n;
    const double c = cos(angle), s = sin(angle);
    const double turned[4][2] = {{c, s}, {-s, c}, {-c, -s}, {s, -c}};
    memcpy(root, turned[(quarter + eighth) % 4], sizeof(turned[0]));
}

/* exp(sign 2 pi i turn(j, k) / n) at [j, k], as memory. */
static tci_complex tci_fourier_roots(const tci_made *m, int64_t rows, int64_t columns,
                                     int64_t (*turn)(int64_t j, int64_t k), int64_t n, int64_t sign)
{
    const tc_dtype t = (tc_dtype)tci_dtype_get(m->dtype)->compute;
    const size_t count = (size_t)rows * (size_t)columns;
    const int64_t sizes[2] = {rows, columns};
    double *wide = (double *)tci_heap_get(2 * count * sizeof(*wide));
    float *narrow = (float *)wide; /* each where a wide one before it was */
    if (!wide) {
        tc_tensor bad = tci_made_fail(m, TC_ERR_MEMORY, "out of memory");
        return (tci_complex){bad, bad};
    }
    for (size_t i = 0; i < count; i++) {
        double root[2];
        tci_fourier_root(turn((int64_t)i / columns, (int64_t)i % columns), n, root);
        wide[i] = root[0];
        wide[count + i] = (double)sign * root[1];
    }
    for (size_t i = 0; t == TC_F32 && i < 2 * count; i++) {
        float v = (float)wide[i];
        memcpy(&narrow[i], &v, sizeof(v));
    }
    const char *sines = (const char *)wide + count * (size_t)tci_dtype_get(t)->bytes;
    tci_complex roots = {tc_copy_in_at(m->ctx->handle, wide, t, 2, sizes, NULL, m->here),
                         tc_copy_in_at(m->ctx->handle, sines, t, 2, sizes, NULL, m->here)};
    tci_heap_free(wide);
    return roots;
}

static int64_t tci_fourier_product(int64_t j, int64_t k)
{
    return j * k;
}
static int64_t tci_fourier_place(int64_t j, int64_t k)
{
    return j + k;
} /* k: 0 */
static int64_t tci_fourier_square(int64_t j, int64_t k)
{
    return j * j + k;
} /* k: 0 */

/* ---- stages ---- */

static tci_complex tci_fourier_shaped(tci_complex x, int n, const int64_t *sizes, tc_site here)
{
    return (tci_complex){tc_reshape_at(x.re, n, sizes, here), tc_reshape_at(x.im, n, sizes, here)};
}

/* The radices of n, as few and as alike as they may be; 0: it has a prime factor that is too large
 * for one. */
static int tci_fourier_radices(int64_t n, int64_t *radices)
{
    int64_t primes[TCI_FOURIER_STAGES];
    int n_primes = 0, n_radices = 0;
    for (int64_t p = 2; n > 1; p++) {
        if (p > TCI_FOURIER_PRIME) {
            return 0;
        }
        for (; n % p == 0; n /= p) {
            primes[n_primes++] = p;
        }
    }
    for (int i = n_primes - 1; i >= 0; i--) {
        int at = 0;
        while (at < n_radices && radices[at] * primes[i] > TCI_FOURIER_RADIX) {
            at++;
        }
        radices[at] = at < n_radices ? radices[at] * primes[i] : primes[i];
        n_radices += at == n_radices;
    }
    return n_radices;
}

/* x [rows, r, t, done] -> [rows, t, r, done]; sign: of the exponent. */
static tci_complex tci_fourier_stage(const tci_made *m, tci_complex x, int64_t r, int64_t t,
                                     int64_t sign)
{
    tc_site here = m->here;
    tci_complex d = tci_fourier_roots(m, r, r, tci_fourier_product, r, sign);
    d = (tci_complex){tc_transpose(d.re, 0, 1), tc_transpose(d.im, 0, 1)};
    d = tci_fourier_shaped(d, 3, (const int64_t[]){r, 1, r}, here);
    x.re = tc_unsqueeze(tc_permute(x.re, 0, 2, 3, 1), 2); /* [rows, t, 1, done, r] */
    x.im = tc_unsqueeze(tc_permute(x.im, 0, 2, 3, 1), 2);
    tci_complex y = tci_complex_mul(x, d, here);
    y = (tci_complex){tc_sum(y.re, TC_AXES(-1), false), tc_sum(y.im, TC_AXES(-1), false)};
    if (t == 1) {
        return y;
    }
    tci_complex w = tci_fourier_roots(m, t, r, tci_fourier_product, r * t, sign);
    w = tci_fourier_shaped(w, 3, (const int64_t[]){t, r, 1}, here);
    return tci_complex_mul(y, w, here);
}

/* Rows of n elements forwards from position 0 of a circle, and backwards. */
static tc_tensor tci_fourier_around(tc_tensor x, int64_t n, int64_t room, tc_site here)
{
    tc_tensor back = tc_flip(tc_slice(x, -1, 1, TC_END, 1), -1);
    return tc_cat(TC_TENSORS(tc_pad(x, -1, 0, room - 2 * n + 1, 0), back), -1);
}

static tci_complex tci_fourier_transform(const tci_made *m, tci_complex x, int64_t n, int64_t inner,
                                         int64_t sign);

/* With w[j] = exp(sign pi i j^2 / n), result[k] is w[k] times the convolution of x[j] w[j] and the
 * conjugate of w, around a circle on which both have room. */
static tci_complex tci_fourier_chirp(const tci_made *m, tci_complex x, int64_t n, int64_t sign)
{
    tc_site here = m->here;
    int64_t room = 1;
    while (room < 2 * n - 1) {
        room *= 2;
    }
    tci_complex w = tci_fourier_roots(m, n, 1, tci_fourier_square, 2 * n, sign);
    w = tci_fourier_shaped(w, 2, (const int64_t[]){1, n}, here);
    tci_complex b = {tci_fourier_around(w.re, n, room, here),
                     tci_fourier_around(tc_neg(w.im), n, room, here)};
    b = tci_fourier_transform(m, b, room, 1, -1);
    tci_complex a = tci_complex_mul(x, w, here);
    a.re = tc_pad(a.re, -1, 0, room - n, 0);
    a.im = tc_pad(a.im, -1, 0, room - n, 0);
    a = tci_complex_mul(tci_fourier_transform(m, a, room, 1, -1), b, here);
    a = tci_fourier_transform(m, a, room, 1, 1);
    a.re = tc_mul(tc_slice(a.re, -1, 0, n, 1), 1 / (double)room);
    a.im = tc_mul(tc_slice(a.im, -1, 0, n, 1), 1 / (double)room);
    return tci_complex_mul(a, w, here);
}

/* The sums over j of x[rows, j, inner] exp(sign 2 pi i j k / n), for k from 0 to n - 1: rows of n
 * times inner. More than one inner number takes radices. */
static tci_complex tci_fourier_transform(const tci_made *m, tci_complex x, int64_t n, int64_t inner,
                                         int64_t sign)
{
    tc_site here = m->here;
    int64_t radices[TCI_FOURIER_STAGES], left = n, done = inner;
    const int stages = tci_fourier_radices(n, radices);
    if (n > 1 && !stages) {
        return tci_fourier_chirp(m, x, n, sign);
    }
    for (int i = 0; i < stages; i++) {
        const int64_t r = radices[i];
        left /= r;
        x = tci_fourier_shaped(x, 4, (const int64_t[]){-1, r, left, done}, here);
        x = tci_fourier_stage(m, x, r, left, sign);
        done *= r;
    }
    return tci_fourier_shaped(x, 2, (const int64_t[]){-1, n * inner}, here);
}

/* ---- calls ---- */

typedef struct tci_fourier {
    tci_made m;
    int rank, axis; /* of the numbers: an axis of pairs is not among them */
    int64_t n;      /* points of the transform */
    int64_t inner;  /* numbers after its axis, transformed where they are; 1: the axis is moved */
    double scale;
} tci_fourier;

/* n 0: the size of the axis, or what `points` makes of it. False: f->m.bad is the result. */
static bool tci_fourier_begin(tci_fourier *f, const char *name, tc_tensor x, bool pairs, int64_t n,
                              int64_t (*points)(int64_t size), int axis, const char *norm,
                              bool inverse, tc_site here)
{
    if (!tci_made_begin(&f->m, name, x, here)) {
        return false;
    }
    const int rank = tc_rank(x) - pairs;
    norm = norm ? norm : "backward";
    const bool forward = !strcmp(norm, "forward"), ortho = !strcmp(norm, "ortho");
    if (rank < 1 || (pairs && tc_size(x, -1) != 2)) {
        f->m.bad = tci_made_fail(&f->m, TC_ERR_SHAPE, "x has rank %d: expected %s", tc_rank(x),
                                 pairs ? "pairs of real and imaginary parts, [..., n, 2]"
                                       : "at least one axis");
        return false;
    }
    if (axis < -rank || axis >= rank) {
        f->m.bad = tci_made_fail(&f->m, TC_ERR_AXIS, "axis %d of numbers of %d axes", axis, rank);
        return false;
    }
    f->rank = rank;
    f->axis = axis < 0 ? axis + rank : axis;
    const int64_t size = tc_size(x, f->axis);
    if (!tci_dim_is_known(size)) {
        f->m.bad = tci_made_fail(&f->m, TC_ERR_UNSUPPORTED,
                                 "axis %d has size %s: expected a "
                                 "number",
                                 axis, TCI_DIM_TEXT(size));
        return false;
    }
    f->n = n ? n : points(size);
    f->inner = 1;
    if (f->n < 1 || f->n > TCI_FOURIER_MOST) {
        f->m.bad = tci_made_fail(&f->m, TC_ERR_ARGUMENT,
                                 "a transform of %lld points: expected 1 "
                                 "to %d",
                                 (long long)f->n, (int)TCI_FOURIER_MOST);
        return false;
    }
    if (!forward && !ortho && strcmp(norm, "backward")) {
        f->m.bad = tci_made_fail(&f->m, TC_ERR_ARGUMENT,
                                 "the norm is \"%.40s\": expected "
                                 "backward, ortho or forward",
                                 norm);
        return false;
    }
    f->scale = ortho ? 1 / sqrt((double)f->n) : forward == inverse ? 1 : 1 / (double)f->n;
    return true;
}

static int64_t tci_fourier_all(int64_t size)
{
    return size;
}
static int64_t tci_fourier_twice(int64_t size)
{
    return 2 * (size - 1);
}

/* The axes after this one stay last where vectors may run along them. */
static void tci_fourier_stay(tci_fourier *f, tc_tensor x)
{
    int64_t radices[TCI_FOURIER_STAGES], inner = 1;
    for (int i = f->axis + 1; i < f->rank && inner > 0; i++) {
        const int64_t size = tc_size(x, i);
        bool fits = tci_dim_is_known(size) && size > 0 && size < TCI_FOURIER_MOST / inner;
        inner = fits ? inner * size : 0;
    }
    f->inner = inner > 0 && tci_fourier_radices(f->n, radices) ? inner : 1;
}

/* Part 0 or 1 of pairs, or all of x (-1), as rows of n numbers: cut, or with zeros behind. */
static tc_tensor tci_fourier_rows(const tci_fourier *f, tc_tensor x, int part, int64_t n)
{
    tc_site here = f->m.here;
    const int64_t size = tc_size(x, f->axis);
    x = tci_made_wide(&f->m, x);
    x = part < 0 ? x : tc_squeeze(tc_slice(x, -1, part, part + 1, 1), -1);
    if (f->inner > 1) {
        return tc_reshape(tc_pad(x, f->axis, 0, n - size, 0), -1, n * f->inner);
    }
    x = tc_pad(tc_transpose(x, f->axis, -1), -1, 0, n - size, 0);
    return tc_reshape(x, -1, n);
}

/* The end: rows of n numbers, which stand for those of x along its axis; y.im TC_NONE: real. */
static tc_tensor tci_fourier_end(const tci_fourier *f, tc_tensor x, tci_complex y, int64_t n)
{
    tc_site here = f->m.here;
    tci_words w;
    int64_t *sizes = tci_words_get(&f->m.ctx->graph, &w, f->rank);
    tc_tensor parts[2] = {y.re, y.im};
    const int last = f->inner > 1 ? f->axis : f->rank - 1; /* where the axis is */
    for (int i = 0; sizes && i < f->rank; i++) {
        sizes[i] = i == last ? n : tc_size(x, i == f->axis ? last : i);
    }
    for (int i = 0; sizes && i < 2 && !tci_is_none(parts[i]); i++) {
        parts[i] = f->scale == 1 ? parts[i] : tc_mul(parts[i], f->scale);
        parts[i] = tc_transpose(tc_reshape_at(parts[i], f->rank, sizes, here), f->axis, last);
    }
    tci_words_put(&f->m.ctx->graph, &w, NULL);
    if (tci_is_none(y.im)) {
        return tci_made_round(&f->m, parts[0]);
    }
    tc_tensor pairs = tc_cat(TC_TENSORS(tc_unsqueeze(parts[0], -1), tc_unsqueeze(parts[1], -1)),
                             -1);
    return tci_made_round(&f->m, pairs);
}

static tc_tensor tci_fourier_both(const char *name, tc_tensor x, int64_t n, int axis,
                                  const char *norm, int64_t sign, tc_site here)
{
    tci_fourier f;
    if (!tci_fourier_begin(&f, name, x, true, n, tci_fourier_all, axis, norm, sign > 0, here)) {
        return f.m.bad;
    }
    tci_fourier_stay(&f, x);
    tci_complex rows = {tci_fourier_rows(&f, x, 0, f.n), tci_fourier_rows(&f, x, 1, f.n)};
    return tci_fourier_end(&f, x, tci_fourier_transform(&f.m, rows, f.n, f.inner, sign), f.n);
}

TC_API tc_tensor tc_fft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here)
{
    return tci_fourier_both("tc_fft", x, n, axis, norm, -1, here);
}

TC_API tc_tensor tc_ifft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here)
{
    return tci_fourier_both("tc_ifft", x, n, axis, norm, 1, here);
}

/* ---- of real numbers: an even number of them are half as many pairs, whose transform is that of
 * the even positions and i times that of the odd ones ---- */

/* x, and its conjugate from the back, of one place more: added, and subtracted. These are twice the
 * parts of x that real numbers at even and at odd positions give. */
static void tci_fourier_split(tci_complex x, tci_complex *even, tci_complex *odd, tc_site here)
{
    tc_tensor re = tc_flip(x.re, -1), im = tc_flip(x.im, -1);
    *even = (tci_complex){tc_add(x.re, re), tc_sub(x.im, im)};
    *odd = (tci_complex){tc_sub(x.re, re), tc_add(x.im, im)};
}

/* a + b i exp(2 pi i k / n), or with sign -1 the conjugate of that factor. */
static tci_complex tci_fourier_join(const tci_made *m, tci_complex a, tci_complex b, int64_t n,
                                    int64_t sign)
{
    tc_site here = m->here;
    tci_complex w = tci_fourier_roots(m, n / 2 + 1, 1, tci_fourier_place, n, sign);
    b = tci_complex_mul(b, tci_fourier_shaped(w, 1, (const int64_t[]){-1}, here), here);
    return sign > 0 ? (tci_complex){tc_sub(a.re, b.im), tc_add(a.im, b.re)}
                    : (tci_complex){tc_add(a.re, b.im), tc_sub(a.im, b.re)};
}

/* Positions 0 to n - 1 of rows. */
static tci_complex tci_fourier_first(tci_complex x, int64_t n, tc_site here)
{
    return (tci_complex){tc_slice(x.re, -1, 0, n, 1), tc_slice(x.im, -1, 0, n, 1)};
}

/* Positions 0 to n / 2 of the transform of rows of n real numbers, n even: half of it. */
static tci_complex tci_fourier_of_pairs(const tci_made *m, tc_tensor rows, int64_t n)
{
    tc_site here = m->here;
    rows = tc_reshape(rows, -1, n / 2, 2);
    tci_complex even, odd,
        z = {tc_squeeze(tc_slice(rows, -1, 0, 1, 1), -1),
             tc_squeeze(tc_slice(rows, -1, 1, 2, 1), -1)};
    z = tci_fourier_transform(m, z, n / 2, 1, -1);
    tci_complex first = tci_fourier_first(z, 1, here);
    z = (tci_complex){tc_cat(TC_TENSORS(z.re, first.re), -1),
                      tc_cat(TC_TENSORS(z.im, first.im), -1)};
    tci_fourier_split(z, &even, &odd, here);
    return tci_fourier_join(m, even, odd, n, -1);
}

TC_API tc_tensor tc_rfft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here)
{
    tci_fourier f;
    if (!tci_fourier_begin(&f, "tc_rfft", x, false, n, tci_fourier_all, axis, norm, false, here)) {
        return f.m.bad;
    }
    const int64_t kept = f.n / 2 + 1;
    tci_complex y = {tci_fourier_rows(&f, x, -1, f.n), TC_NONE};
    if (f.n % 2 == 0) {
        y = tci_fourier_of_pairs(&f.m, y.re, f.n);
        f.scale *= 0.5;
    } else {
        tc_tensor zero = tc_full(f.m.ctx->handle, 0, tc_dtype_of(y.re));
        y.im = tci_made_like(zero, y.re, here);
        y = tci_fourier_first(tci_fourier_transform(&f.m, y, f.n, 1, -1), kept, here);
    }
    return tci_fourier_end(&f, x, y, kept);
}

/* Rows of n real numbers, n even, from positions 0 to n / 2 of their transform, without 1 / n. */
static tc_tensor tci_fourier_to_pairs(const tci_made *m, tci_complex x, int64_t n)
{
    tc_site here = m->here;
    tci_complex even, odd;
    tci_fourier_split(x, &even, &odd, here);
    tci_complex z = tci_fourier_first(tci_fourier_join(m, even, odd, n, 1), n / 2, here);
    z = tci_fourier_transform(m, z, n / 2, 1, 1);
    tc_tensor rows = tc_cat(TC_TENSORS(tc_unsqueeze(z.re, -1), tc_unsqueeze(z.im, -1)), -1);
    return tc_reshape(rows, -1, n);
}

/* The same of an odd n, by all positions of the transform. */
static tc_tensor tci_fourier_to_odd(const tci_made *m, tci_complex x, int64_t n)
{
    tc_site here = m->here;
    tc_tensor re = tc_flip(tc_slice(x.re, -1, 1, TC_END, 1), -1);
    tc_tensor im = tc_neg(tc_flip(tc_slice(x.im, -1, 1, TC_END, 1), -1));
    x = (tci_complex){tc_cat(TC_TENSORS(x.re, re), -1), tc_cat(TC_TENSORS(x.im, im), -1)};
    return tci_fourier_transform(m, x, n, 1, 1).re;
}

TC_API tc_tensor tc_irfft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here)
{
    tci_fourier f;
    if (!tci_fourier_begin(&f, "tc_irfft", x, true, n, tci_fourier_twice, axis, norm, true, here)) {
        return f.m.bad;
    }
    const int64_t kept = f.n / 2 + 1;
    tci_complex y = {tci_fourier_rows(&f, x, 0, kept), tci_fourier_rows(&f, x, 1, kept)};
    /* what is its own mirror image has no imaginary part */
    tc_tensor place = tc_arange(f.m.ctx->handle, 0, kept, 1, TC_I64);
    tc_tensor own = tc_eq(tc_remainder(tc_mul(place, 2), f.n), 0);
    y.im = tc_where(own, 0, y.im);
    y.re = f.n % 2 ? tci_fourier_to_odd(&f.m, y, f.n) : tci_fourier_to_pairs(&f.m, y, f.n);
    return tci_fourier_end(&f, x, (tci_complex){y.re, TC_NONE}, f.n);
}

#pragma pop_macro("TC_HERE")
