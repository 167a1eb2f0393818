/* Rounding to f16 and bf16 is rounding once: every executor against integer arithmetic written
 * here, at and next to every tie of both formats, and over integers in a stride. And NaN stays
 * NaN. */
#include "tc.h"

#include "tc_test.h"
#include "same.h"

enum { MAX_N = 1 << 20, LIMITS = 2 };

/* A 16-bit format: bits of a mantissa with the hidden one, exponent of the least normal number. */
typedef struct half_format {
    tc_dtype dtype;
    int mantissa, least;
    uint16_t infinity;
} half_format;

static const half_format formats[LIMITS] = {{TC_BF16, 8, -126, 0x7f80}, {TC_F16, 11, -14, 0x7c00}};

/* ---- the judge ---- */

/* m * 2^e to the nearest of the format, ties to even; m != 0. */
static uint16_t round_magnitude(const half_format *h, uint64_t m, int e)
{
    while (!(m >> 63)) {
        m <<= 1;
        e--;
    }
    int top = e + 63;
    int unit = (top > h->least ? top : h->least) - (h->mantissa - 1);
    int shift = unit - e;
    if (shift > 64) {
        return 0;
    }
    uint64_t kept = shift == 64 ? 0 : m >> shift, rest = shift == 64 ? m : m << (64 - shift);
    kept += rest > (uint64_t)1 << 63 || (rest == (uint64_t)1 << 63 && (kept & 1));
    uint64_t bits = kept;
    if (top > h->least) {
        bits += (uint64_t)(top - h->least) << (h->mantissa - 1);
    }
    return bits > h->infinity ? h->infinity : (uint16_t)bits;
}

static uint16_t round_double(const half_format *h, double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof(u));
    uint16_t sign = u >> 63 ? 0x8000 : 0;
    int exponent = (int)(u >> 52 & 2047);
    uint64_t m = u & 0xfffffffffffffu;
    if (exponent == 2047) {
        return m ? 0x7fff : sign | h->infinity;
    }
    m |= exponent ? 0x10000000000000u : 0;
    return m ? sign | round_magnitude(h, m, (exponent ? exponent : 1) - 1075) : sign;
}

static uint16_t round_integer(const half_format *h, bool negative, uint64_t magnitude)
{
    uint16_t sign = negative ? 0x8000 : 0;
    return magnitude ? sign | round_magnitude(h, magnitude, 0) : 0;
}

/* The number of bits below infinity; of infinity itself the one after the largest. */
static double half_value(const half_format *h, uint16_t bits)
{
    int exponent = bits >> (h->mantissa - 1);
    double m = bits & ((1 << (h->mantissa - 1)) - 1);
    m += exponent ? 1 << (h->mantissa - 1) : 0;
    return ldexp(m, (exponent ? exponent - 1 : 0) + h->least - (h->mantissa - 1));
}

/* ---- operands ---- */

typedef struct operands {
    tc_dtype dtype;
    int64_t n;
    union {
        double *f64;
        float *f32;
        int32_t *i32;
        uint32_t *u32;
        int64_t *i64;
        uint64_t *u64;
        void *p;
    } at;
} operands;

static void add_around(operands *o, double x)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        double list[] = {x,
                         nextafter(x, 0),
                         nextafter(x, INFINITY),
                         x * (1 - 0x1p-30),
                         x * (1 + 0x1p-30),
                         x * (1 - 0x1p-24),
                         x * (1 + 0x1p-24)};
        for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
            REQUIRE(o->n < MAX_N);
            o->at.f64[o->n++] = sign * list[i];
        }
    }
}

static void make_doubles(operands *o)
{
    static const double others[] = {0,      1e300, 1e39,     3.5e38,     65519.999, 65520,
                                    1e-320, 1e-60, 0x1p-150, 0x1.8p-150, INFINITY};
    for (int k = 0; k < LIMITS; k++) {
        int step = tct_soak || formats[k].dtype == TC_F16 ? 1 : 2;
        for (int bits = 0; bits < formats[k].infinity; bits += step) {
            double low = half_value(&formats[k], (uint16_t)bits);
            add_around(o, (low + half_value(&formats[k], (uint16_t)(bits + 1))) / 2);
        }
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        add_around(o, others[i]);
    }
}

/* Next to the ties of numbers up to 2^bits, and all in a stride. */
static void make_integers(operands *o, int bits, bool is_signed)
{
    int size = bits > 32 ? 8 : 4, top = bits - is_signed;
    uint64_t limit = UINT64_MAX >> (64 - top), step = limit / 20011;
    for (int e = 8; e < top; e++) {
        for (uint64_t m = 0x101; m < 0x200; m += 2) { /* nine bits: a tie of bf16 */
            for (int d = -2; d <= 2; d++) {
                uint64_t x = (e > 8 ? m << (e - 8) : m) + (uint64_t)d;
                uint64_t y = is_signed && (m & 2) ? 0 - x : x;
                memcpy((char *)o->at.p + o->n++ * size, &y, (size_t)size);
            }
        }
    }
    for (uint64_t x = 0; x < limit - step && o->n + 2 < MAX_N; x += step) {
        uint64_t y = is_signed ? 0 - x : limit - x;
        memcpy((char *)o->at.p + o->n++ * size, &x, (size_t)size);
        memcpy((char *)o->at.p + o->n++ * size, &y, (size_t)size);
    }
    memcpy((char *)o->at.p + o->n++ * size, &limit, (size_t)size);
}

/* Every exponent-of-NaN pattern with one bit of payload, few, or all. */
static void make_nans(operands *o)
{
    for (int i = 0; i < 1000; i++) {
        uint64_t r = tct_random(), few = r & (r >> 7) & 0xfffffffffffffu;
        uint64_t low = i < 52 ? (uint64_t)1 << i : few;
        uint64_t u = (r & (uint64_t)1 << 63) | 0x7ff0000000000000u | (low ? low : 1);
        uint32_t v = (uint32_t)(r >> 32 & 0x80000000u) | 0x7f800000u | (uint32_t)(low & 0x7fffff);
        v |= v & 0x7fffff ? 0 : 1;
        memcpy((char *)o->at.p + o->n++ * (o->dtype == TC_F64 ? 8 : 4),
               o->dtype == TC_F64 ? (void *)&u : (void *)&v, o->dtype == TC_F64 ? 8 : 4);
    }
}

static uint16_t expected(const half_format *h, const operands *o, int64_t i)
{
    switch (o->dtype) {
    case TC_F64: return round_double(h, o->at.f64[i]);
    case TC_F32: return round_double(h, (double)o->at.f32[i]);
    case TC_U32: return round_integer(h, false, o->at.u32[i]);
    case TC_U64: return round_integer(h, false, o->at.u64[i]);
    default: {
        int64_t v = o->dtype == TC_I32 ? o->at.i32[i] : o->at.i64[i];
        return round_integer(h, v < 0, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
    }
    }
}

/* ---- executors ---- */

static const struct {
    const char *backend;
    int vector_bits;
} executors[] = {{"interp", 0}, {"cpu", 0}, {"cpu", 256}, {"cpu", -1}};

enum { EXECUTORS = sizeof(executors) / sizeof(executors[0]) };

static tc_options options_of(int executor)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = executors[executor].backend;
    o.vector_bits = executors[executor].vector_bits;
    o.fallback = strcmp(o.backend, "interp") ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    o.verify = true;
    return o;
}

typedef tc_tensor (*make_y)(tc_tensor x, tc_dtype to);

static tc_tensor cast(tc_tensor x, tc_dtype to)
{
    return tc_cast(x, to);
}
/* A composite of f64, exactly x again: the mean of two of them. */
static tc_tensor mean(tc_tensor x, tc_dtype to)
{
    tc_tensor both = tc_cat(TC_TENSORS(tc_unsqueeze(x, 0), tc_unsqueeze(x, 0)), 0);
    return tc_cast(tc_mean(both, TC_AXES(0), false), to);
}
/* Stored as one dtype and rounded again within the kernel. */
static tc_tensor inside(tc_tensor x, tc_dtype to)
{
    return tc_cast(tc_mul(tc_cast(x, to), 1.0), to);
}

static void compare(const half_format *h, const operands *o, const uint16_t *got, const char *who)
{
    int64_t wrong = 0, first = 0;
    for (int64_t i = o->n - 1; i >= 0; i--) {
        uint16_t want = expected(h, o, i);
        bool same = same_bits(h->dtype, &want, &got[i], 1);
        wrong += !same;
        first = same ? first : i;
    }
    CHECK_MSG(!wrong, "%s: %lld of %lld wrong, the first (%lld) is %04x, expected %04x", who,
              (long long)wrong, (long long)o->n, (long long)first, got[first],
              expected(h, o, first));
}

/* All executors on y = make(x) for both formats. */
static void check_rounding(const operands *o, make_y make)
{
    uint16_t *got = malloc((size_t)o->n * sizeof(*got));
    for (int e = 0; e < EXECUTORS; e++) {
        tc_options options = options_of(e);
        tc_ctx *ctx;
        REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
        for (int k = 0; k < LIMITS; k++) {
            tc_program *f = NULL;
            tc_tensor x = tc_input(ctx, "x", o->dtype, o->n), y = make(x, formats[k].dtype);
            tc_status status = tc_compile(y, &f);
            if (status == TC_ERR_COMPILER) {
                free(got);
                tc_ctx_free(ctx);
                SKIP("no C compiler here: the interpreter only");
            }
            CHECK_MSG(!status, "%s: %s", executors[e].backend, tc_error(y));
            tc_buf in = {o->at.p, o->n, (int)o->dtype, false, 0, NULL, NULL};
            tc_buf out = {got, o->n, (int)formats[k].dtype, false, 0, NULL, NULL};
            CHECK_EQ_INT(tc_run(f, (tc_bufs){&in, 1}, (tc_bufs){&out, 1}), TC_OK);
            char who[64];
            snprintf(who, sizeof(who), "%s %d, format %d", executors[e].backend,
                     executors[e].vector_bits, k);
            compare(&formats[k], o, got, who);
            tc_program_free(f);
        }
        tc_ctx_free(ctx);
    }
    free(got);
}

static operands open_operands(tc_dtype dtype)
{
    operands o = {dtype, 0, {NULL}};
    o.at.p = malloc((size_t)MAX_N * 8);
    REQUIRE(o.at.p);
    return o;
}

/* ---- the tests ---- */

TEST(judge_knows_its_formats)
{
    for (int k = 0; k < LIMITS; k++) {
        const half_format *h = &formats[k];
        for (int bits = 0; bits < h->infinity; bits++) {
            CHECK_EQ_INT(round_double(h, half_value(h, (uint16_t)bits)), bits);
            CHECK_EQ_INT(round_double(h, -half_value(h, (uint16_t)bits)), bits | 0x8000);
        }
    }
    CHECK_EQ_INT(round_double(&formats[1], 65519.99), 0x7bff);
    CHECK_EQ_INT(round_double(&formats[1], 65520), 0x7c00);
    CHECK_EQ_INT(round_double(&formats[0], 1 + 0x1p-8), 0x3f80);
    CHECK_EQ_INT(round_double(&formats[0], 1 + 0x1p-8 + 0x1p-50), 0x3f81);
    CHECK_EQ_INT(round_integer(&formats[0], true, 257), 0xc380);
}

TEST(doubles_round_once)
{
    operands o = open_operands(TC_F64);
    make_doubles(&o);
    check_rounding(&o, cast);
    free(o.at.p);
}

TEST(composites_of_doubles_round_once)
{
    operands o = open_operands(TC_F64);
    for (int bits = 0; bits < 0x7f80; bits += 37) {
        double low = half_value(&formats[0], (uint16_t)bits);
        add_around(&o, (low + half_value(&formats[0], (uint16_t)(bits + 1))) / 4);
    }
    check_rounding(&o, mean);
    check_rounding(&o, inside);
    free(o.at.p);
}

static void check_integers(tc_dtype dtype, int bits, bool is_signed)
{
    operands o = open_operands(dtype);
    make_integers(&o, bits, is_signed);
    check_rounding(&o, cast);
    free(o.at.p);
}

TEST(i32_rounds_once)
{
    check_integers(TC_I32, 32, true);
}
TEST(u32_rounds_once)
{
    check_integers(TC_U32, 32, false);
}
TEST(i64_rounds_once)
{
    check_integers(TC_I64, 64, true);
}
TEST(u64_rounds_once)
{
    check_integers(TC_U64, 64, false);
}

TEST(nan_stays_nan)
{
    for (int k = 0; k < 2; k++) {
        operands o = open_operands(k ? TC_F64 : TC_F32);
        make_nans(&o);
        check_rounding(&o, cast);
        check_rounding(&o, inside);
        free(o.at.p);
    }
}

/* NaN of either sign, as the processor makes them: none becomes a number when it is stored. */
static void check_made(tc_ctx *ctx, const half_format *h, const char *who)
{
    static const float values[] = {-4, INFINITY, 0};
    uint16_t got[8];
    tc_tensor x = tc_cast(tc_copy_in(ctx, values, TC_F32, 3), h->dtype);
    tc_tensor minus = tc_slice(x, 0, 0, 1, 1), inf = tc_slice(x, 0, 1, 2, 1);
    tc_tensor zero = tc_slice(x, 0, 2, 3, 1), empty = tc_slice(x, 0, 0, 0, 1);
    tc_tensor mean_of_none = tc_mean(empty, TC_ALL, true);
    tc_tensor y = tc_cat(TC_TENSORS(tc_sqrt(minus), mean_of_none, tc_sub(inf, inf),
                                    tc_div(zero, zero), tc_log(minus), tc_mul(inf, zero),
                                    tc_neg(tc_div(zero, zero)), tc_remainder(minus, zero)),
                         0);
    tc_buf out = {got, 8, (int)h->dtype, false, 0, NULL, NULL};
    tc_program *f = NULL;
    tc_status status = tc_compile_fn((tc_tensors){NULL, 0}, TC_TENSORS(y), NULL, &f);
    CHECK_MSG(!status || status == TC_ERR_COMPILER, "%s", tc_error(y));
    if (f) {
        CHECK_EQ_INT(tc_run(f, (tc_bufs){NULL, 0}, (tc_bufs){&out, 1}), TC_OK);
        for (int i = 0; i < 8; i++) {
            CHECK_MSG(same_bits(h->dtype, &got[i], &(uint16_t){0xffff}, 1), "%s: %d is %04x", who,
                      i, got[i]);
        }
    }
    tc_program_free(f);
}

TEST(nan_is_made_as_nan)
{
    for (int e = 0; e < EXECUTORS; e++) {
        tc_options options = options_of(e);
        tc_ctx *ctx;
        REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
        for (int k = 0; k < LIMITS; k++) {
            check_made(ctx, &formats[k], executors[e].backend);
        }
        tc_ctx_free(ctx);
    }
}

/* fill and -0 + fill as the numbers of a program, on one executor. */
static void check_number(tc_ctx *ctx, const half_format *h, tc_arg number, uint16_t want)
{
    tc_bf16 got[2];
    const int64_t sizes[] = {h->dtype, 1};
    tc_tensor fill = tc_full_at(ctx, number, 2, sizes, TC_HERE);
    tc_arg zero = tci_arg_tensor(tc_full(ctx, -0.0, h->dtype, 1));
    tc_tensor both = tc_cat(TC_TENSORS(fill, tc_add_at(zero, number, TC_HERE)), 0);
    tc_buf out = {got, 2, (int)h->dtype, false, 0, NULL, NULL};
    tc_program *f = NULL;
    tc_status status = tc_compile_fn((tc_tensors){NULL, 0}, TC_TENSORS(both), NULL, &f);
    CHECK_MSG(!status, "%s", tc_error(both));
    CHECK_EQ_INT(tc_run(f, (tc_bufs){NULL, 0}, (tc_bufs){&out, 1}), TC_OK);
    CHECK_EQ_INT(got[0].bits, want);
    CHECK_EQ_INT(got[1].bits, want);
    tc_program_free(f);
}

/* Numbers of the program's text: literals, fills, constants that are folded. */
TEST(numbers_round_once)
{
    static const double numbers[] = {1 + 0x1p-8 + 0x1p-40,
                                     1 + 3 * 0x1p-8 - 0x1p-40,
                                     -1 - 0x1p-11 - 0x1p-45,
                                     0x1p-134 + 0x1p-170,
                                     65519.9999999,
                                     3.1,
                                     1 + 3 * 0x1p-11 - 0x1p-45};
    static const int64_t whole[] = {(INT64_C(0x101) << 30) + 1, (INT64_C(0x103) << 40) - 1,
                                    16842753, -((INT64_C(0x101) << 54) + 1)};
    tc_options options = options_of(0);
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    for (int k = 0; k < LIMITS; k++) {
        const half_format *h = &formats[k];
        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
            check_number(ctx, h, TC_ARG(numbers[i]), round_double(h, numbers[i]));
        }
        for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
            uint64_t magnitude = whole[i] < 0 ? 0 - (uint64_t)whole[i] : (uint64_t)whole[i];
            check_number(ctx, h, TC_ARG(whole[i]), round_integer(h, whole[i] < 0, magnitude));
        }
    }
    tc_ctx_free(ctx);
}

TEST_MAIN
