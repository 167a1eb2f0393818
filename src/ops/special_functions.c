/* ops/special_functions.c - expansions of ERFINV, LGAMMA and its derivatives into scalar
 * primitives.
 *
 * In and out as in ops/math.c, for all lanes at once: every lane computes all pieces of a function,
 * and selects take the one of its interval. Where pieces meet, each contributes 0, or 1 before a
 * logarithm, to the others, so they share the logarithm and the division. f32 is computed in f64
 * and rounded once, except ERFINV, which has polynomials of its own. Pieces that a lane does not
 * select see an argument clamped to their interval: they neither overflow nor give infinities.
 * Coefficients: interpolation at Chebyshev nodes in 50 digits, with the largest relative error of
 * the function. */
#include <math.h>

#include "math_expansion.h"

/* Over w - 1, w <= 6.25, 2^-56; over sqrt(w) - 3.25 up to w = 16, and sqrt(w) - 5 beyond, 2^-55:
 * erfinv(x) / x, w = -log(1 - x^2). */
static const double tci_math_erfinv_mid_c[] = {
    -0x1.b2643e45e1856p-72, 0x1.967d315b5ea3cp-66,  -0x1.58b28f55f9023p-61, 0x1.58caea001922bp-57,
    -0x1.b6e711c98a1f8p-54, 0x1.5bcf4d5812291p-51,  -0x1.15077c8f649fdp-49, -0x1.5ec7af08db0e6p-50,
    0x1.65fa2816b422cp-46,  0x1.56170bd7ff566p-43,  -0x1.7c702caf7b7b8p-40, -0x1.07b9e6cf11d5cp-38,
    0x1.294a2d088fd79p-34,  0x1.243210e79c08fp-36,  -0x1.9fa4f63c4719ep-29, 0x1.9f131c331ded8p-28,
    0x1.06ac9452c2dfbp-23,  -0x1.2f73f71539766p-21, -0x1.1eee00e1a9ceap-18, 0x1.4075e58125e1cp-15,
    0x1.a3f0f04a50c5fp-14,  -0x1.3779be7c1d93ep-9,  0x1.16931130faca6p-8,   0x1.fb8fccc606522p-3,
    0x1.209b9bb73e395p+0};
static const double tci_math_erfinv_far_c[] = {
    0x1.07e3c2020286fp-27, -0x1.06f1da245bfd3p-26, -0x1.674f1725daa65p-26, 0x1.1a9484c4d3628p-23,
    -0x1.079a074d6994p-22, -0x1.da75906425fdap-26, 0x1.8db69feb41fb6p-20,  -0x1.0b79e820e8497p-18,
    0x1.899aa0e374402p-19, 0x1.a241c6f237f34p-17,  -0x1.8cf463501e9ap-15,  0x1.1e6abbe66ca02p-14,
    0x1.932e8fd4360edp-16, -0x1.7448bcc8e9aa7p-12, 0x1.f3cc545d9ca81p-11,  -0x1.ba9240d8768c3p-10,
    0x1.468eeca944c44p-9,  -0x1.ebadabba02be5p-9,  0x1.5ffcfe5b6cd38p-8,   0x1.0158a6d641d55p+0,
    0x1.8abcc380d5a48p+1};
static const double tci_math_erfinv_end_c[] = {
    -0x1.5a60cd00c0f4dp-36, 0x1.7934134aef5eap-35,  0x1.244ceff7a33cdp-34, -0x1.e10f234323a88p-32,
    0x1.6b50dffc6876dp-30,  -0x1.dd21cff5a1426p-29, 0x1.0c8ba21edd728p-27, -0x1.0612a3c946ff2p-26,
    0x1.f2980d5ee3284p-26,  -0x1.2227296c17024p-24, 0x1.ebe27ddf44c79p-23, -0x1.0a9073bca0b22p-20,
    0x1.2fbcfe7a995a5p-18,  -0x1.4a348fc2c46d2p-16, 0x1.3ebf4ef9a4d2ep-14, -0x1.c2f36aa248aeap-13,
    -0x1.22ea5df1c5059p-13, 0x1.02a30d1fba10dp+0,   0x1.3664ddd1ad7fbp+2};
/* Of f32: over w - 1, w <= 5, and over sqrt(w) - 3, w <= 16, both 2^-27. */
static const double tci_math_erfinv_f32_near_c[] = {
    -0x1.32e60ep-27, 0x1.350f3p-23,  -0x1.1f6eeep-21, -0x1.25bc3ep-18, 0x1.409174p-15,
    0x1.a47b9p-14,   -0x1.377af4p-9, 0x1.169212p-8,   0x1.fb8fcep-3,   0x1.209b9cp+0};
static const double tci_math_erfinv_f32_far_c[] = {0x1.0f0a24p-13, -0x1.4f77aap-12, -0x1.3ef7dp-14,
                                                   0x1.887ce6p-10, -0x1.d6431ep-9,  0x1.746b86p-8,
                                                   -0x1.f4a37cp-8, 0x1.3584a4p-7,   0x1.006dc6p+0,
                                                   0x1.6a9efcp+1};
/* log(Gamma(y)) / ((y - 1) (y - 2)) over y - 3/2, 0.704 <= y <= 2.3 */
static const double tci_math_lgamma_c[] = {
    -0x1.402e726382ef5p-20, 0x1.ee00a35f2eccdp-20, 0x1.8305fed6bbba9p-19,  -0x1.2a0f35446b00cp-18,
    -0x1.727d25f8a3347p-18, 0x1.1de338c931237p-17, 0x1.6cbf500bcc115p-19,  -0x1.168df60023c01p-18,
    -0x1.df7cce5b2e925p-18, 0x1.75473da848682p-17, -0x1.3a902045b8dbcp-17, 0x1.f09c7b54d9285p-17,
    -0x1.c185749fc9a8fp-16, 0x1.638a7dca915acp-15, -0x1.15c4ec0a082b5p-14, 0x1.ba729ac8e6dfbp-14,
    -0x1.6239e4c6c265dp-13, 0x1.1c7a2029984ebp-12, -0x1.cb45055df537ap-12, 0x1.750a97f015623p-11,
    -0x1.313e8a1efe7e7p-10, 0x1.f814ba7bfbfd3p-10, -0x1.a5035230c6867p-9,  0x1.64f0664aef208p-8,
    -0x1.34dbda149c8f9p-7,  0x1.13342352833dap-6,  -0x1.007aa83cee16ap-5,  0x1.01af62a29298dp-4,
    -0x1.2aed059bd608ap-3,  0x1.eeb95b094c191p-2};
/* Stirling's series over 1 / y^2, less a factor of 1 / y */
static const double tci_math_stirling_c[] = {-0.029550653594771242,   0.00641025641025641,
                                             -0.0019175269175269176,  0.00084175084175084175,
                                             -0.00059523809523809524, 0.00079365079365079365,
                                             -0.0027777777777777778,  0.083333333333333333};
/* digamma(u) / (u - root) over u - 2, 1 <= u <= 3, 2^-55 */
static const double tci_math_digamma_c[] = {
    -0x1.5e85b2d6eb61p-28,  0x1.5e85bd733bf32p-27, 0x1.32b4e1f5089e7p-26,  -0x1.32b4ddf998a5p-25,
    -0x1.efa957dc22aafp-25, 0x1.efa98b5daf9bbp-24, 0x1.e4ae934673553p-26,  -0x1.e4ab7a5a224e9p-25,
    -0x1.efc5fdb485822p-23, 0x1.efc9911beaaecp-22, -0x1.454eb2c8606dbp-21, 0x1.4556bd683ac5ep-20,
    -0x1.6181bfa5b3882p-19, 0x1.6193e91a427bcp-18, -0x1.5e5813a66b869p-17, 0x1.5e8134df34222p-16,
    -0x1.5f0817db8cebp-15,  0x1.5f65bb1232407p-14, -0x1.5fef17b5706cfp-13, 0x1.60c660d83e804p-12,
    -0x1.620f06b3e5d14p-11, 0x1.64076129f23e4p-10, -0x1.6714cfe05e6f7p-9,  0x1.6bdf5e15c49cfp-8,
    -0x1.7389aa8092789p-7,  0x1.802924f9b0c3bp-6,  -0x1.95ec0c3ba95ddp-5,  0x1.be76b26db7fcap-4,
    -0x1.0aff270ca07a7p-2,  0x1.9213d46736ba4p-1};
/* (digamma(z + 1/2) - log z) z^2 over 1 / z^2, z >= 2.5, 2^-55 */
static const double tci_math_digamma_far_c[] = {
    0x1.beb1e8202cc9bp+4, -0x1.089bfa8ed39a7p+5, 0x1.23eed4e811e55p+4, -0x1.9745c2c5b71fep+2,
    0x1.a4791180d786ap+0, -0x1.71d6dd7f652f9p-2, 0x1.4656b426baf7ap-4, -0x1.5781e00241ab2p-6,
    0x1.ef5a0e544bd59p-8, -0x1.0eee6253f1866p-8, 0x1.f7df7c014719ap-9, -0x1.dddddddd2a08dp-8,
    0x1.555555555552ap-5};
/* trigamma(u) over u - 2, 1 <= u <= 3, 2^-55 */
static const double tci_math_trigamma_c[] = {
    -0x1.53cbaabce2eabp-25, 0x1.4a9982b3ed84cp-24, 0x1.662ff904793ecp-23,  -0x1.5cfdcc9a3fcf1p-22,
    -0x1.1415856f410cfp-21, 0x1.0c9cc9a9774ebp-20, 0x1.2561aa96b1a1p-21,   -0x1.1f0ef99d23056p-20,
    -0x1.99231e3caf6fbp-20, 0x1.8b84662ade663p-19, -0x1.0bb58050713e1p-19, 0x1.fbcda4b1f75e2p-19,
    -0x1.4bec8fcb740bdp-17, 0x1.3ba53f659d515p-16, -0x1.1eea9c5543c43p-15, 0x1.0f009aa5ff116p-14,
    -0x1.005a07d495c04p-13, 0x1.e0e9d42df8a0ep-13, -0x1.c1071f425bd39p-12, 0x1.a171418664eap-11,
    -0x1.8205ed7eae9e1p-10, 0x1.62ce532ec39f6p-9,  -0x1.43df1665c65c6p-8,  0x1.254fe7e59ed58p-7,
    -0x1.073e7b04c649cp-6,  0x1.d39fb32eaa43bp-6,  -0x1.9a6238f9af3dap-5,  0x1.632f97c2d41e8p-4,
    -0x1.2e831d94f9a1p-3,   0x1.f9cb402bc4774p-3,  -0x1.9dd002780310ap-2,  0x1.4a34cc4a60fa6p-1};
/* (trigamma(z + 1/2) z - 1) z^2 over 1 / z^2, z >= 2.5, 2^-55 */
static const double tci_math_trigamma_far_c[] = {
    -0x1.b3175db9f0579p+13, 0x1.1d3ceeee45941p+14, -0x1.5a24df871ae03p+13, 0x1.044afd09b8e1dp+12,
    -0x1.141ced6ce1ca5p+10, 0x1.c431ed625a5efp+7,  -0x1.391ab4ac4f3a7p+5,  0x1.9ae1c620391cdp+2,
    -0x1.250db9fe0dfep+0,   0x1.028a2eb78d3cfp-2,  -0x1.35a9f7b7dde9ep-4,  0x1.0eeec4979359dp-5,
    -0x1.79e79e08978abp-6,  0x1.dddddddda0f83p-6,  -0x1.555555555553fp-4};

/* ---- shared ---- */

/* The argument in f64. */
static int tci_special_argument(tci_math *m)
{
    int x = tci_math_arg(m, 0);
    if (tci_math_is_wide(m)) {
        return x;
    }
    m->t = TC_F64;
    m->bits = TC_I64;
    return tci_math_prim(m, TCI_P_CAST, TC_F64, 1, x, 0, 0);
}

static void tci_special_end(tci_math *m, tc_dtype t, int y)
{
    if (t == TC_F32) {
        tci_math_prim(m, TCI_P_CAST, TC_F32, 1, y, 0, 0);
    }
}

/* c[0] t^(n-1) + ... + c[n-1] + rest as two parts, the last addition's loss kept. */
static tci_math_pair tci_special_poly(tci_math *m, int t, const double *c, int n, double rest)
{
    int top = tci_math_fma(m, tci_math_poly(m, t, c, n - 1), t, tci_math_k(m, rest));
    return tci_math_sum(m, tci_math_k(m, c[n - 1]), top);
}

/* x less the nearest integer; 0 for what has no fraction. */
static int tci_special_off(tci_math *m, int x)
{
    x = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, -0x1p52), x);
    x = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 0x1p52), x);
    return tci_math_2(m, TCI_P_SUB, x, tci_math_1(m, TCI_P_RINT, x));
}

/* a where m, else b, of both parts. */
static tci_math_pair tci_special_pick(tci_math *m, int mask, tci_math_pair a, tci_math_pair b)
{
    tci_math_pair y = {tci_math_select(m, mask, a.hi, b.hi), tci_math_select(m, mask, a.lo, b.lo)};
    return y;
}

/* ---- ERFINV ---- */

/* x p where |x| < 1, which `inside` says; x itself where it is 0. */
static void tci_special_erfinv_of(tci_math *m, int x, int inside, tci_math_pair p)
{
    int one = tci_math_k(m, 1.0), a = tci_math_1(m, TCI_P_ABS, x);
    int y = tci_math_fma(m, x, p.hi, tci_math_2(m, TCI_P_MUL, x, p.lo));
    int edge = tci_math_select(m, tci_math_compare(m, TCI_P_EQ, a, one),
                               tci_math_2(m, TCI_P_MUL, x, tci_math_k(m, (double)INFINITY)),
                               tci_math_k(m, (double)NAN));
    tci_math_keep_zero(m, x, tci_math_select(m, inside, y, edge));
}

/* And what rounding s, the root of w, took, which counts 1.008 / (2 s) times, about so. */
static int tci_special_root_rest(tci_math *m, int w, int s, int lo)
{
    int rest = tci_math_fma(m, tci_math_1(m, TCI_P_NEG, s), s, w);
    int slope = tci_math_fma(m, s, tci_math_k_of(m, -0x1p-5, -0.031),
                             tci_math_k_of(m, 0x1.1p-2, 0.264));
    return tci_math_fma(m, rest, slope, lo);
}

static void tci_special_erfinv_f32(tci_math *m)
{
    int x = tci_math_arg(m, 0), one = tci_math_k(m, 1.0);
    int inside = tci_math_compare(m, TCI_P_LT, tci_math_1(m, TCI_P_ABS, x), one);
    int less = tci_math_fma(m, tci_math_1(m, TCI_P_NEG, x), x, one);
    int w = tci_math_log_f32_of(m, tci_math_select(m, inside, less, one));
    w = tci_math_1(m, TCI_P_ABS, w);
    int s = tci_math_1(m, TCI_P_SQRT, w);
    tci_math_pair near = tci_special_poly(m, tci_math_2(m, TCI_P_SUB, w, one),
                                          tci_math_erfinv_f32_near_c,
                                          TCI_COUNT(tci_math_erfinv_f32_near_c), -0x1.9e057p-27);
    tci_math_pair far = tci_special_poly(m, tci_math_2(m, TCI_P_SUB, s, tci_math_k(m, 3.0)),
                                         tci_math_erfinv_f32_far_c,
                                         TCI_COUNT(tci_math_erfinv_f32_far_c), -0x1.95a1a2p-26);
    far.lo = tci_special_root_rest(m, w, s, far.lo);
    int is_near = tci_math_compare(m, TCI_P_LT, w, tci_math_k(m, 5.0));
    tci_special_erfinv_of(m, x, inside, tci_special_pick(m, is_near, near, far));
}

static void tci_special_erfinv_f64(tci_math *m)
{
    int x = tci_math_arg(m, 0), one = tci_math_k(m, 1.0), a = tci_math_1(m, TCI_P_ABS, x);
    int inside = tci_math_compare(m, TCI_P_LT, a, one);
    int less = tci_math_2(m, TCI_P_SUB, one, a), more = tci_math_2(m, TCI_P_ADD, one, a);
    less = tci_math_select(m, inside, tci_math_2(m, TCI_P_MUL, less, more), one);
    int w = tci_math_1(m, TCI_P_ABS, tci_math_log_of(m, less, NULL));
    int s = tci_math_1(m, TCI_P_SQRT, w);
    tci_math_pair mid = tci_special_poly(m, tci_math_2(m, TCI_P_SUB, w, tci_math_k(m, 1.0)),
                                         tci_math_erfinv_mid_c, TCI_COUNT(tci_math_erfinv_mid_c),
                                         -0x1.a8174df5c199ap-55);
    tci_math_pair far = tci_special_poly(m, tci_math_2(m, TCI_P_SUB, s, tci_math_k(m, 3.25)),
                                         tci_math_erfinv_far_c, TCI_COUNT(tci_math_erfinv_far_c),
                                         -0x1.92060f0628130p-54);
    tci_math_pair end = tci_special_poly(m, tci_math_2(m, TCI_P_SUB, s, tci_math_k(m, 5.0)),
                                         tci_math_erfinv_end_c, TCI_COUNT(tci_math_erfinv_end_c),
                                         -0x1.87570af7cf281p-54);
    int is_mid = tci_math_compare(m, TCI_P_LT, w, tci_math_k(m, 6.25));
    int is_end = tci_math_compare(m, TCI_P_LT, tci_math_k(m, 16.0), w);
    tci_math_pair p = tci_special_pick(m, is_end, end, far);
    p.lo = tci_special_root_rest(m, w, s, p.lo);
    tci_special_erfinv_of(m, x, inside, tci_special_pick(m, is_mid, mid, p));
}

/* x P(w), w = -log(1 - x^2) (M. Giles, Approximating the erfinv function, 2010). */
TCI_FN void tci_math_erfinv(tci_math *m)
{
    if (tci_math_is_wide(m)) {
        tci_special_erfinv_f64(m);
    } else {
        tci_special_erfinv_f32(m);
    }
}

/* ---- LGAMMA ---- */

/* Reduces y in [2.3, 8) by whole numbers to below 2.3, and multiplies the values on the way; for
 * other y up to 8 y itself, and 1. */
static int tci_special_fall(tci_math *m, int y, int *product)
{
    int left = y;
    *product = tci_math_k(m, 1.0);
    for (int i = 1; i <= 6; i++) {
        int next = tci_math_2(m, TCI_P_SUB, y, tci_math_k(m, i));
        int past = tci_math_compare(m, TCI_P_LE, tci_math_k(m, 1.3 + i), y);
        int longer = i == 1 ? next : tci_math_2(m, TCI_P_MUL, *product, next);
        *product = tci_math_select(m, past, longer, *product);
        left = tci_math_select(m, past, next, left);
    }
    return left;
}

/* log|Gamma(y)|, y > 0: from 0.704 to 2.3 (y - 1) (y - 2) R(y - 3/2); below and above that
 * y Gamma(y) = Gamma(y + 1), from 8 on Stirling's series. */
static int tci_special_lgamma_above(tci_math *m, int y)
{
    int one = tci_math_k(m, 1.0), eight = tci_math_k(m, 8.0), product, lost;
    int small = tci_math_compare(m, TCI_P_LT, y, tci_math_k(m, 0.704));
    int big = tci_math_compare(m, TCI_P_LE, eight, y);
    int u = tci_special_fall(m, tci_math_2(m, TCI_P_PMIN, eight, y), &product);
    u = tci_math_select(m, small, tci_math_2(m, TCI_P_ADD, u, one), u);
    int either = tci_math_2(m, TCI_P_OR, small, big);
    int log = tci_math_log_of(m, tci_math_select(m, either, y, product), &lost);
    tci_math_pair p = tci_special_poly(m, tci_math_2(m, TCI_P_SUB, u, tci_math_k(m, 1.5)),
                                       tci_math_lgamma_c, TCI_COUNT(tci_math_lgamma_c), 0.0);
    int d = tci_math_2(m, TCI_P_SUB, u, one);
    d = tci_math_fma(m, d, d, tci_math_1(m, TCI_P_NEG, d));
    int sign = tci_math_select(m, small, tci_math_k(m, -1.0), one);
    int near = tci_math_fma(m, d, p.lo, tci_math_2(m, TCI_P_MUL, sign, lost));
    near = tci_math_fma(m, sign, log, tci_math_fma(m, d, p.hi, near));
    int far = tci_math_2(m, TCI_P_PMIN, tci_math_k(m, 0x1p300), y);
    far = tci_math_2(m, TCI_P_DIV, one, tci_math_2(m, TCI_P_PMAX, eight, far));
    int series = tci_math_poly(m, tci_math_2(m, TCI_P_MUL, far, far), tci_math_stirling_c,
                               TCI_COUNT(tci_math_stirling_c));
    series = tci_math_fma(m, series, far, tci_math_k(m, 0.41893853320467274));
    int half = tci_math_2(m, TCI_P_SUB, y, tci_math_k(m, 0.5));
    far = tci_math_fma(m, half, tci_math_2(m, TCI_P_SUB, log, one), series);
    return tci_math_select(m, big, far, near);
}

/* Below 0 the reflection pi / (y |sin(pi y)|), less that of y = |x|. */
TCI_FN void tci_math_lgamma(tci_math *m)
{
    tc_dtype t = m->t;
    int x = tci_special_argument(m), y = tci_math_1(m, TCI_P_ABS, x), one = tci_math_k(m, 1.0);
    int inf = tci_math_k(m, (double)INFINITY), zero = tci_math_k(m, 0.0);
    int below = tci_math_compare(m, TCI_P_LE, x, tci_math_k(m, -0x1p-60));
    int r = tci_math_1(m, TCI_P_ABS, tci_special_off(m, x));
    int sine = tci_math_2(m, TCI_P_MUL, tci_math_fma(m, tci_math_half_turn(m, r), r, r), y);
    int pole = tci_math_compare(m, TCI_P_EQ, sine, zero);
    int mirror = tci_math_log_of(m, tci_math_select(m, below, sine, one), NULL);
    int above = tci_special_lgamma_above(m, y);
    int sum = tci_math_2(m, TCI_P_ADD, mirror, above);
    int v = tci_math_select(m, below, tci_math_1(m, TCI_P_NEG, sum), above);
    pole = tci_math_2(m, TCI_P_AND, pole, below);
    pole = tci_math_2(m, TCI_P_OR, pole, tci_math_compare(m, TCI_P_EQ, y, zero));
    v = tci_math_select(m, pole, inf, v);
    int finite = tci_math_compare(m, TCI_P_LT, y, tci_math_k(m, 0x1p1023));
    v = tci_math_select(m, finite, v, tci_math_2(m, TCI_P_MUL, y, inf));
    tci_special_end(m, t, v);
}

/* ---- its derivatives ---- */

/* Of both: u >= 1 with a function of x by recurrence or reflection from that of u, x itself from 1
 * on, else 1 + |x|, u + lost exactly; near u is cut to [1, 3], far u - 1/2 to at least 2.5. */
typedef struct tci_special_shift {
    int x, size, u, lost;
    int below, lifted, tiny; /* x < 0, x < 1, |x| so small that one term is all */
    int is_near, near, far;
    int r, tail; /* x less the nearest integer; sin(pi r) / pi = r + r tail */
} tci_special_shift;

static tci_special_shift tci_special_shift_of(tci_math *m)
{
    tci_special_shift s = {.x = tci_special_argument(m)};
    int one = tci_math_k(m, 1.0), three = tci_math_k(m, 3.0), least = tci_math_k(m, 0x1p-60);
    s.size = tci_math_1(m, TCI_P_ABS, s.x);
    s.below = tci_math_compare(m, TCI_P_LE, s.x, tci_math_1(m, TCI_P_NEG, least));
    s.lifted = tci_math_compare(m, TCI_P_LT, s.x, one);
    s.tiny = tci_math_compare(m, TCI_P_LT, s.size, least);
    int more = tci_math_2(m, TCI_P_ADD, s.size, one);
    int lost = tci_math_2(m, TCI_P_SUB, s.size, tci_math_2(m, TCI_P_SUB, more, one));
    s.u = tci_math_select(m, s.lifted, more, s.x);
    s.lost = tci_math_select(m, s.lifted, lost, tci_math_k(m, 0.0));
    s.is_near = tci_math_compare(m, TCI_P_LT, s.u, three);
    s.near = tci_math_2(m, TCI_P_PMIN, three, s.u);
    s.far = tci_math_2(m, TCI_P_SUB, tci_math_2(m, TCI_P_PMAX, three, s.u), tci_math_k(m, 0.5));
    s.r = tci_special_off(m, s.x);
    s.tail = tci_math_half_turn(m, s.r);
    return s;
}

/* 1 / z, and 1 / z^2. */
static int tci_special_inverse(tci_math *m, int z, int *square)
{
    int one = tci_math_k(m, 1.0);
    int back = tci_math_2(m, TCI_P_DIV, one, z);
    int floor = tci_math_2(m, TCI_P_PMAX, tci_math_k(m, 0x1p-300), back);
    *square = tci_math_2(m, TCI_P_MUL, floor, floor);
    return back;
}

/* a / b as two parts. */
static tci_math_pair tci_special_quotient(tci_math *m, int a, int b, int b_rest)
{
    int back = tci_math_2(m, TCI_P_DIV, tci_math_k(m, 1.0), b);
    tci_math_pair q = {.hi = tci_math_2(m, TCI_P_MUL, a, back)};
    int minus = tci_math_1(m, TCI_P_NEG, q.hi);
    q.lo = tci_math_fma(m, minus, b, a);
    q.lo = b_rest ? tci_math_fma(m, minus, b_rest, q.lo) : q.lo;
    q.lo = tci_math_2(m, TCI_P_MUL, q.lo, back);
    return q;
}

/* From 1 to 3 (u - root) P(u - 2), the root in two parts; from 3 on log z + H(1 / z^2) / z^2,
 * z = u - 1/2; below 1 that of 1 + |x| less 1 / x, below 0 less pi cot(pi x). At 0 it is -inf of
 * the zero's sign, at the integers below it NaN. */
TCI_FN void tci_math_digamma(tci_math *m)
{
    tc_dtype t = m->t;
    tci_special_shift s = tci_special_shift_of(m);
    int zero = tci_math_k(m, 0.0), square;
    tci_math_pair p = tci_special_poly(m, tci_math_2(m, TCI_P_SUB, s.near, tci_math_k(m, 2.0)),
                                       tci_math_digamma_c, TCI_COUNT(tci_math_digamma_c),
                                       -0x1.7001b85c55be5p-56);
    int d = tci_math_2(m, TCI_P_SUB, s.near, tci_math_k(m, 0x1.762d86356be3fp+0));
    int rest = tci_math_2(m, TCI_P_SUB, s.lost, tci_math_k(m, 0x1.b86a722197829p-54));
    d = tci_math_2(m, TCI_P_ADD, d, rest);
    tci_math_pair near = tci_math_product(m, d, p.hi);
    near.lo = tci_math_fma(m, d, p.lo, near.lo);
    tci_special_inverse(m, s.far, &square);
    int h = tci_math_poly(m, square, tci_math_digamma_far_c, TCI_COUNT(tci_math_digamma_far_c));
    tci_math_pair far = {tci_math_log_of(m, s.far, NULL), tci_math_2(m, TCI_P_MUL, h, square)};
    tci_math_pair y = tci_special_pick(m, s.is_near, near, far);
    int cosine = tci_math_2(m, TCI_P_SUB, tci_math_k(m, 0.5), tci_math_1(m, TCI_P_ABS, s.r));
    cosine = tci_math_fma(m, tci_math_half_turn(m, cosine), cosine, cosine);
    cosine = tci_math_2(m, TCI_P_MUL, cosine, tci_math_k(m, -3.14159265358979312));
    int top = tci_math_select(m, s.below, cosine, tci_math_k(m, -1.0));
    int bottom = tci_math_select(m, s.below, tci_math_fma(m, s.tail, s.r, s.r), s.x);
    tci_math_pair q = tci_special_quotient(m, top, bottom, 0);
    tci_math_pair none = {zero, zero}, more = tci_special_pick(m, s.lifted, q, none);
    int sum = tci_math_2(m, TCI_P_ADD, more.hi, y.hi);
    int back = tci_math_2(m, TCI_P_SUB, sum, more.hi);
    int lost = tci_math_2(m, TCI_P_SUB, more.hi, tci_math_2(m, TCI_P_SUB, sum, back));
    lost = tci_math_2(m, TCI_P_ADD, lost, tci_math_2(m, TCI_P_SUB, y.hi, back));
    rest = tci_math_2(m, TCI_P_ADD, y.lo, more.lo);
    int v = tci_math_2(m, TCI_P_ADD, sum, tci_math_2(m, TCI_P_ADD, lost, rest));
    v = tci_math_select(m, s.tiny, q.hi, v);
    int finite = tci_math_compare(m, TCI_P_LT, s.x, tci_math_k(m, (double)INFINITY));
    v = tci_math_select(m, finite, v, s.x);
    tci_special_end(m, t, v);
}

/* From 1 to 3 P(u - 2); from 3 on 1 / z + K(1 / z^2) / z^3, z = u - 1/2; below 1 that of 1 + |x|
 * and 1 / x^2, below 0 (pi / sin(pi x))^2 less it. What |x| + 1 lost counts as the slope, about
 * -1.37 times the value; at 0 and the integers below it is infinite. */
TCI_FN void tci_math_trigamma(tci_math *m)
{
    tc_dtype t = m->t;
    tci_special_shift s = tci_special_shift_of(m);
    int zero = tci_math_k(m, 0.0), square;
    tci_math_pair near = tci_special_poly(m, tci_math_2(m, TCI_P_SUB, s.near, tci_math_k(m, 2.0)),
                                          tci_math_trigamma_c, TCI_COUNT(tci_math_trigamma_c),
                                          0x1.8268c7211b5f3p-56);
    int slope = tci_math_2(m, TCI_P_MUL, near.hi, tci_math_k(m, -1.37));
    near.lo = tci_math_fma(m, slope, s.lost, near.lo);
    tci_math_pair far = {.hi = tci_special_inverse(m, s.far, &square)};
    int h = tci_math_poly(m, square, tci_math_trigamma_far_c, TCI_COUNT(tci_math_trigamma_far_c));
    far.lo = tci_math_2(m, TCI_P_MUL, far.hi, tci_math_2(m, TCI_P_MUL, h, square));
    tci_math_pair y = tci_special_pick(m, s.is_near, near, far);
    tci_math_pair sine = tci_math_sum(m, s.r, tci_math_2(m, TCI_P_MUL, s.tail, s.r));
    tci_math_pair plain = {s.x, zero}, bottom = tci_special_pick(m, s.below, sine, plain);
    tci_math_pair q = tci_special_quotient(m, tci_math_k(m, 1.0), bottom.hi, bottom.lo);
    tci_math_pair more = tci_math_product(m, q.hi, q.hi);
    int pole = tci_math_compare(m, TCI_P_LT, tci_math_1(m, TCI_P_ABS, bottom.hi),
                                tci_math_k(m, 0x1p-60));
    int all = more.hi;
    int twice = tci_math_2(m, TCI_P_ADD, q.hi, q.hi);
    more.lo = tci_math_fma(m, twice, q.lo, more.lo);
    tci_math_pair none = {zero, zero};
    more = tci_special_pick(m, s.lifted, more, none);
    int hi = tci_math_select(m, s.below, tci_math_1(m, TCI_P_NEG, y.hi), y.hi);
    int lo = tci_math_select(m, s.below, tci_math_1(m, TCI_P_NEG, y.lo), y.lo);
    int sum = tci_math_2(m, TCI_P_ADD, more.hi, hi);
    int back = tci_math_2(m, TCI_P_SUB, sum, more.hi);
    int lost = tci_math_2(m, TCI_P_SUB, more.hi, tci_math_2(m, TCI_P_SUB, sum, back));
    lost = tci_math_2(m, TCI_P_ADD, lost, tci_math_2(m, TCI_P_SUB, hi, back));
    lost = tci_math_2(m, TCI_P_ADD, lost, tci_math_2(m, TCI_P_ADD, lo, more.lo));
    int v = tci_math_select(m, pole, all, tci_math_2(m, TCI_P_ADD, sum, lost));
    tci_special_end(m, t, v);
}
