/* tests/ops/test_sort.c - values by their bits, against memory itself; the first of an axis in
 * order, against a plain sort: every dtype, both algorithms, ties, NaN, zeros of both signs;
 * gradients. */
#include "inside.h"

#include "tc_test.h"

#include "same.h"

static tc_ctx *make_ctx(const char *backend)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend, .no_disk_cache = true, .verify = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static bool read_any(tc_tensor x, void *to, int64_t n)
{
    tc_status status = tc_read(x, to, n * tci_dtype_get(tc_dtype_of(x))->bytes);
    CHECK_MSG(status == TC_OK, "%s", tc_error(x));
    return status == TC_OK;
}

static const tc_dtype numbers[] = {TC_U8,  TC_I8,  TC_U16, TC_I16, TC_U32,  TC_I32,
                                   TC_U64, TC_I64, TC_F16, TC_F32, TC_BF16, TC_F64};
enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

/* ---- bits ---- */

enum { PATTERNS = 65536 };

/* Of 16 bits all that there are; of others some that are random, and with corners in front. */
static void fill_patterns(tc_dtype t, void *to)
{
    static const uint64_t corners[] = {0,          1,          UINT64_MAX, INT64_MIN,
                                       0x7f800000, 0xff800000, 0x80000000, 0x7ff0000000000000,
                                       0x3f800000};
    int bytes = tci_dtype_get(t)->bytes;
    for (int i = 0; i < PATTERNS; i++) {
        uint64_t word = bytes <= 2 ? (uint64_t)i : i < 9 ? corners[i] : tct_random();
        memcpy((char *)to + i * bytes, &word, (size_t)bytes);
    }
}

/* All stay but those of a NaN of either dtype, which stay a NaN. */
static int64_t first_changed(tc_dtype from, tc_dtype to, const void *a, const void *b)
{
    int64_t i = 0, bytes = tci_dtype_get(from)->bytes;
    while (i < PATTERNS) {
        const char *x = (const char *)a + i * bytes, *y = (const char *)b + i * bytes;
        if (!same_bits(from, x, y, 1) && !same_bits(to, x, y, 1)) {
            break;
        }
        i++;
    }
    return i;
}

TEST(bits_stay)
{
    static uint64_t given[PATTERNS], got[PATTERNS];
    static const char *const backends[] = {"interp", "cpu"};
    for (int b = 0; b < 2; b++) {
        tc_ctx *ctx = make_ctx(backends[b]);
        for (int i = 0; i < NUMBERS; i++) {
            fill_patterns(numbers[i], given);
            tc_tensor x = tc_copy_in(ctx, (void *)given, numbers[i], PATTERNS);
            for (int k = 0; k < NUMBERS; k++) {
                tc_dtype to = numbers[k];
                if (tci_dtype_get(to)->bytes != tci_dtype_get(numbers[i])->bytes) {
                    continue;
                }
                tc_tensor y = tc_bitcast(x, to);
                REQUIRE(read_any(y, got, PATTERNS));
                int64_t at = first_changed(numbers[i], to, given, got);
                CHECK_MSG(at == PATTERNS, "%s: %s to %s: pattern %d", backends[b],
                          tci_dtype_get(numbers[i])->name, tci_dtype_get(to)->name, (int)at);
            }
        }
        tc_ctx_free(ctx);
    }
}

/* A value that was computed has the bits of what is stored of it. */
TEST(bits_of_computed_values)
{
    static const tc_dtype floats[] = {TC_F16, TC_BF16, TC_F32, TC_F64};
    static const tc_dtype words[] = {TC_U16, TC_U16, TC_U32, TC_U64};
    static uint64_t y[999], bits[999];
    static const char *const backends[] = {"interp", "cpu"};
    for (int i = 0; i < 8; i++) {
        tc_ctx *ctx = make_ctx(backends[i / 4]);
        tc_tensor x = tc_randn(ctx, 7, floats[i % 4], 999);
        x = tc_mul(x, tc_mul(x, x));
        tc_tensor both[2] = {tc_exp(tc_sub(0, tc_mul(x, x))), TC_NONE};
        both[1] = tc_bitcast(both[0], words[i % 4]);
        REQUIRE(read_any(both[1], bits, 999) && read_any(both[0], y, 999));
        CHECK(same_bits(floats[i % 4], y, bits, 999));
        tc_ctx_free(ctx);
    }
}

/* ---- in order ---- */

/* An axis of a shape, and how many are taken. */
typedef struct taking {
    int rank, axis;
    int64_t sizes[3], k;
} taking;

enum { LONGEST = 3000, MOST = 200000 };

static bool is_float(tc_dtype t)
{
    return tci_dtype_is_float(t);
}

/* Few numbers, so that many are equal, and corners of the dtype. */
static void fill(tc_dtype t, void *to, int64_t n, bool many)
{
    static const double corners[] = {-0.0, 0.0, INFINITY, -INFINITY, NAN};
    int bytes = tci_dtype_get(t)->bytes;
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = tct_random();
        tci_value v = {.i = (int64_t)(r % (many ? 100000 : 7)) - 3};
        v.f = is_float(t) ? (double)v.i * 0.25 : v.f;
        if (is_float(t) && r >> 40 & 7) {
            v.f = r >> 50 & 3 ? v.f : corners[(r >> 53) % 5];
        } else if (!is_float(t)) {
            v = tci_value_cast(r >> 50 & 7 ? v : (tci_value){.u = r}, TC_I64, t);
        }
        tci_value_store(t, (char *)to + i * bytes, v);
    }
}

/* -1, 0, 1: a below b, level with it, above; NaN is above all else. */
static int compare(tc_dtype t, tci_value a, tci_value b)
{
    if (!is_float(t)) {
        return t == TC_U64 ? (a.u > b.u) - (a.u < b.u) : (a.i > b.i) - (a.i < b.i);
    }
    bool nan_a = isnan(a.f), nan_b = isnan(b.f);
    return nan_a || nan_b ? nan_a - nan_b : (a.f > b.f) - (a.f < b.f);
}

/* Places of n elements, `inner` apart, in order: by merging, which keeps what is equal in order. */
static void sort_places(tc_dtype t, const char *x, int64_t inner, int64_t n, bool largest,
                        int64_t *out)
{
    static int64_t other[LONGEST];
    int bytes = tci_dtype_get(t)->bytes;
    for (int64_t i = 0; i < n; i++) {
        out[i] = i;
    }
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t from = 0; from < n; from += 2 * width) {
            int64_t middle = from + width < n ? from + width : n;
            int64_t end = middle + width < n ? middle + width : n, a = from, b = middle;
            for (int64_t i = from; i < end; i++) {
                int order = 0;
                if (a < middle && b < end) {
                    order = compare(t, tci_value_load(t, x + out[b] * inner * bytes),
                                    tci_value_load(t, x + out[a] * inner * bytes));
                }
                bool later = a == middle || (b < end && (largest ? order > 0 : order < 0));
                other[i] = later ? out[b++] : out[a++];
            }
        }
        memcpy(out, other, sizeof(*out) * (size_t)n);
    }
}

/* One call: memory of its own, and the results, not computed yet. */
typedef struct sorting {
    tc_dtype dtype;
    taking t;
    bool largest;
    char *x;
    tc_tensor values, indices;
} sorting;

static int64_t product(const taking *t, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) {
        n *= t->sizes[i];
    }
    return n;
}

static sorting begin(tc_ctx *ctx, tc_dtype dtype, const taking *t, bool largest, bool many)
{
    sorting s = {.dtype = dtype, .t = *t, .largest = largest};
    int64_t n = product(t, 0, t->rank);
    s.x = malloc((size_t)n * 8 + 8);
    REQUIRE(s.x && n <= MOST);
    fill(dtype, s.x, n, many);
    tc_tensor x = tc_borrow_at(ctx, s.x, dtype, t->rank, t->sizes, 0, TC_HERE);
    tc_topk(x, t->axis, t->k, largest, &s.values, &s.indices);
    return s;
}

static void check(sorting *s, const char *who)
{
    static int64_t order[LONGEST], indices[MOST], values[MOST];
    const taking *t = &s->t;
    int64_t n = t->sizes[t->axis], inner = product(t, t->axis + 1, t->rank);
    int64_t outer = product(t, 0, t->axis), bytes = tci_dtype_get(s->dtype)->bytes, wrong = 0;
    REQUIRE(n <= LONGEST && read_any(s->values, values, outer * t->k * inner) &&
            read_any(s->indices, indices, outer * t->k * inner));
    for (int64_t line = 0; line < outer * inner; line++) {
        int64_t first = line / inner * n * inner + line % inner;
        sort_places(s->dtype, s->x + first * bytes, inner, n, s->largest, order);
        for (int64_t i = 0; i < t->k; i++) {
            int64_t at = (line / inner * t->k + i) * inner + line % inner;
            const char *want = s->x + (first + order[i] * inner) * bytes;
            wrong += indices[at] != order[i] ||
                     !same_bits(s->dtype, want, (char *)values + at * bytes, 1);
        }
    }
    CHECK_MSG(wrong == 0, "%s, %s, %d of %d along axis %d%s: %d differ", who,
              tci_dtype_get(s->dtype)->name, (int)t->k, (int)n, t->axis,
              s->largest ? ", largest" : "", (int)wrong);
    free(s->x);
}

/* One chunk, chunks of chunks, whose last one is filled up, and digits; groups, whose last one is
 * filled up, and what is parted by rank. */
static const taking takings[] = {
    {1, 0, {1}, 1},         {1, 0, {7}, 0},        {1, 0, {7}, 7},         {2, 1, {3, 40}, 1},
    {2, 0, {40, 3}, 11},    {3, 1, {2, 70, 5}, 9}, {2, 0, {0, 4}, 0},      {2, 1, {0, 9}, 4},
    {2, 1, {2, 129}, 3},    {1, 0, {1025}, 17},    {2, 1, {2, 1300}, 1},   {2, 0, {1301, 2}, 64},
    {2, 1, {2, 1024}, 600}, {1, 0, {1025}, 1025},  {2, 0, {1400, 3}, 300}, {1, 0, {2048}, 1000},
    {2, 0, {1301, 2}, 9},   {1, 0, {2999}, 2},     {1, 0, {2900}, 40},
};
enum { TAKINGS = sizeof(takings) / sizeof(takings[0]) };

TEST(first_of_every_dtype)
{
    tc_ctx *ctx = make_ctx("interp");
    for (int i = -1; i < NUMBERS; i++) {
        for (int k = 0; k < TAKINGS; k++) {
            sorting s = begin(ctx, i < 0 ? TC_BOOL : numbers[i], &takings[k], k % 2, k % 3);
            check(&s, "interp");
        }
    }
    tc_ctx_free(ctx);
}

/* Native code, several in one program. */
TEST(first_in_native_code)
{
    static const tc_dtype dtypes[] = {TC_F32, TC_F64, TC_BF16, TC_I8, TC_U64, TC_I32};
    static const taking some[] = {{2, 1, {9, 1000}, 50}, {2, 1, {2, 1300}, 5}, {1, 0, {1500}, 700}};
    tc_ctx *ctx = make_ctx("cpu");
    for (int i = 0; i < 6; i++) {
        sorting s[3];
        for (int k = 0; k < 3; k++) {
            s[k] = begin(ctx, dtypes[i], &some[k], (i + k) % 2, i % 2);
        }
        CHECK(tc_eval_many(TC_TENSORS(s[0].values, s[0].indices, s[1].values, s[1].indices,
                                      s[2].values, s[2].indices)) == TC_OK);
        for (int k = 0; k < 3; k++) {
            check(&s[k], "cpu");
        }
    }
    tc_ctx_free(ctx);
}

/* The elements of single ranks, and of all the middle one. */
static void check_ranks(tc_ctx *ctx, tc_dtype dtype, const taking *t, bool many)
{
    static int64_t order[LONGEST];
    const int64_t n = t->sizes[t->axis], inner = product(t, t->axis + 1, t->rank);
    sorting s = begin(ctx, dtype, t, false, many);
    int bytes = tci_dtype_get(dtype)->bytes;
    tc_tensor x = tc_borrow_at(ctx, s.x, dtype, t->rank, t->sizes, 0, TC_HERE), v[2], i[2];
    tc_kthvalue(x, t->k, t->axis, false, &v[0], &i[0]);
    tc_nanmedian(x, t->axis, true, &v[1], &i[1]);
    CHECK(tc_eval_many(TC_TENSORS(v[0], i[0], v[1], i[1])) == TC_OK);
    for (int which = 0; which < 2; which++) {
        int64_t at[64], values[64];
        REQUIRE(inner <= 64 && read_any(i[which], at, inner) && read_any(v[which], values, inner));
        for (int64_t line = 0; line < inner; line++) {
            int64_t rank = t->k - 1, seen = 0;
            sort_places(dtype, s.x + line * bytes, inner, n, false, order);
            for (int64_t e = 0; e < n; e++) {
                tci_value one = tci_value_load(dtype, s.x + (e * inner + line) * bytes);
                seen += !is_float(dtype) || !isnan(one.f);
            }
            rank = which ? (seen - 1) / 2 : rank;
            CHECK_EQ_INT(at[line], order[rank]);
            CHECK(same_bits(dtype, (char *)values + line * bytes,
                            s.x + (order[rank] * inner + line) * bytes, 1));
        }
    }
    free(s.x);
}

TEST(elements_of_ranks)
{
    static const taking some[] = {{1, 0, {66}, 1}, {2, 0, {300, 3}, 299}, {1, 0, {2222}, 700}};
    static const char *const backends[] = {"interp", "cpu"};
    for (int b = 0; b < 2; b++) {
        tc_ctx *ctx = make_ctx(backends[b]);
        for (int i = 0; i < NUMBERS; i += b ? 4 : 1) {
            check_ranks(ctx, numbers[i], &some[i % 3], i % 2);
        }
        check_ranks(ctx, TC_F32, &some[1], true);
        tc_ctx_free(ctx);
    }
}

/* True elements stand in front, as far as there is room, and behind them nothing. */
TEST(true_elements)
{
    enum { N = 400, MORE = 450 };
    static float x[N], values[MORE];
    static int64_t places[MORE][2];
    static const char *const backends[] = {"interp", "cpu"};
    static const int64_t rooms[] = {0, 3, N, MORE};
    int64_t count, found = 0, want[N];
    for (int i = 0; i < N; i++) {
        x[i] = tct_random() % 3 ? 0.0f : (float)i + 0.5f;
        want[found] = i;
        found += x[i] != 0;
    }
    for (int b = 0; b < 8; b++) {
        tc_ctx *ctx = make_ctx(backends[b / 4]);
        int64_t room = rooms[b % 4];
        tc_tensor t = tc_copy_in(ctx, x, TC_F32, 20, 20), at, v, n;
        tc_nonzero(t, room, &at, &n);
        tc_masked_select(t, tc_ne(t, 0), room, &v, NULL);
        CHECK(tc_read(at, places, 2 * room) == TC_OK && tc_read(v, values, room) == TC_OK &&
              tc_read(n, &count, 1) == TC_OK);
        CHECK_EQ_INT(count, found);
        for (int64_t i = 0; i < room; i++) {
            int64_t e = i < found ? want[i] : 0;
            CHECK(places[i][0] == e / 20 && places[i][1] == e % 20);
            CHECK(values[i] == (i < found ? x[e] : 0));
        }
        tc_ctx_free(ctx);
    }
}

/* Lists of every length up to where all numbers of halves have come, with equal elements. */
TEST(values_in_sorted_lists)
{
    enum { LONGEST_LIST = 34, VALUES = 40 };
    static const char *const backends[] = {"interp", "cpu"};
    float list[LONGEST_LIST], values[VALUES];
    int64_t got[2][VALUES];
    for (int i = 0; i < LONGEST_LIST; i++) {
        list[i] = (float)(i * 2 / 3);
    }
    for (int i = 0; i < VALUES; i++) {
        values[i] = (float)i * 0.75f - 2;
    }
    values[VALUES - 1] = INFINITY;
    for (int n = 0; n <= LONGEST_LIST; n++) {
        tc_ctx *ctx = make_ctx(backends[n % 11 == 7]);
        tc_tensor sorted = tc_copy_in(ctx, list, TC_F32, n);
        tc_tensor x = tc_copy_in(ctx, values, TC_F32, VALUES);
        for (int right = 0; right < 2; right++) {
            CHECK(tc_read(tc_searchsorted(sorted, x, right), got[right], VALUES) == TC_OK);
        }
        for (int i = 0; i < VALUES; i++) {
            int64_t less = 0, no_greater = 0;
            for (int k = 0; k < n; k++) {
                less += list[k] < values[i];
                no_greater += list[k] <= values[i];
            }
            CHECK(got[0][i] == less && got[1][i] == no_greater);
        }
        tc_ctx_free(ctx);
    }
}

/* NaN comes last: values of NumPy 2.4. */
TEST(nan_in_sorted_lists)
{
    static const double list[4] = {1, 2, NAN, NAN}, values[6] = {0, 1, 1.5, 3, INFINITY, NAN};
    static const double set[7] = {3, NAN, 5, 7, NAN, NAN, NAN}, x[5] = {5, 3, 7, 1, NAN};
    static const int64_t want[2][6] = {{0, 0, 1, 2, 2, 2}, {0, 1, 1, 2, 2, 4}};
    for (int cpu = 0; cpu < 2; cpu++) {
        tc_ctx *ctx = make_ctx(cpu ? "cpu" : "interp");
        tc_tensor sorted = tc_copy_in(ctx, list, TC_F64, 4), v = tc_copy_in(ctx, values, TC_F64, 6);
        tc_tensor nan = tc_full(ctx, (double)NAN, TC_F64, 3), in;
        int64_t at[6];
        bool is[5];
        for (int right = 0; right < 2; right++) {
            CHECK(tc_read(tc_searchsorted(sorted, v, right), at, 6) == TC_OK);
            CHECK(!memcmp(at, want[right], sizeof(at)));
            tc_tensor narrow = tc_cast(sorted, TC_F16);
            CHECK(tc_read(tc_bucketize(tc_cast(v, TC_F16), narrow, right), at, 6) == TC_OK);
            CHECK(!memcmp(at, want[right], sizeof(at)));
            CHECK(tc_read(tc_searchsorted(nan, v, right), at, 6) == TC_OK);
            CHECK(at[0] == 0 && at[4] == 0 && at[5] == (right ? 3 : 0));
        }
        in = tc_isin(tc_copy_in(ctx, x, TC_F64, 5), tc_copy_in(ctx, set, TC_F64, 7));
        CHECK(tc_read(in, is, 5) == TC_OK && is[0] && is[1] && is[2] && !is[3] && !is[4]);
        tc_ctx_free(ctx);
    }
}

TEST(sorted_wholes)
{
    static const float x[2][3] = {{2, NAN, -1}, {0, -0.0f, 5}};
    static const int64_t up[2][3] = {{2, 0, 1}, {0, 1, 2}}, down[2][3] = {{1, 0, 2}, {2, 0, 1}};
    float values[6];
    int64_t indices[6];
    tc_ctx *ctx = make_ctx("interp");
    tc_tensor t = tc_copy_in(ctx, x, TC_F32, 2, 3), v, i;
    for (int k = 0; k < 2; k++) {
        const int64_t *want = k ? down[0] : up[0];
        tc_sort(t, -1, k, &v, &i);
        CHECK(tc_read(v, values, 6) == TC_OK && tc_read(i, indices, 6) == TC_OK);
        for (int at = 0; at < 6; at++) {
            CHECK_EQ_INT(indices[at], want[at]);
            CHECK(same_bits(TC_F32, &values[at], &x[at / 3][want[at]], 1));
        }
        CHECK(tc_read(tc_argsort(t, 1, k), indices, 6) == TC_OK);
        CHECK(!memcmp(indices, want, sizeof(indices)));
    }
    tc_topk(tc_full(ctx, 3, TC_F32), 0, 1, true, &v, &i); /* 0-d */
    CHECK(tc_rank(v) == 0 && tc_read(v, values, 1) == TC_OK && tc_read(i, indices, 1) == TC_OK);
    CHECK(values[0] == 3 && indices[0] == 0);
    tc_topk(t, 1, 2, true, NULL, &i);
    CHECK(tc_rank(i) == 2 && tc_size(i, 1) == 2);
    tc_ctx_free(ctx);
}

/* What is taken takes the gradient, once, and all else none. */
TEST(gradient_goes_to_what_is_taken)
{
    enum { ROWS = 3, N = 200, K = 5 };
    static float x[ROWS][N], w[ROWS][K], dx[ROWS][N];
    int64_t at[ROWS][K];
    static const char *const backends[] = {"interp", "cpu"};
    for (int i = 0; i < ROWS * N; i++) {
        x[i / N][i % N] = (float)(i * 37 % 101);
    }
    for (int i = 0; i < ROWS * K; i++) {
        w[i / K][i % K] = (float)(i + 1);
    }
    for (int b = 0; b < 2; b++) {
        tc_ctx *ctx = make_ctx(backends[b]);
        tc_tensor t = tc_copy_in(ctx, x, TC_F32, ROWS, N), v, i, grad;
        tc_topk(t, 1, K, false, &v, &i);
        tc_tensor loss = tc_sum(tc_mul(v, tc_copy_in(ctx, w, TC_F32, ROWS, K)), TC_ALL, false);
        CHECK(tc_grad(loss, &t, 1, &grad) == TC_OK);
        CHECK_MSG(tc_read(grad, dx, ROWS * N) == TC_OK, "%s", tc_error(grad));
        CHECK(tc_read(i, at, ROWS * K) == TC_OK);
        for (int r = 0; r < ROWS; r++) {
            for (int k = 0; k < K; k++) {
                CHECK(dx[r][at[r][k]] == w[r][k]);
                dx[r][at[r][k]] = 0;
            }
        }
        for (int k = 0; k < ROWS * N; k++) {
            CHECK(dx[k / N][k % N] == 0);
        }
        tc_ctx_free(ctx);
    }
}

TEST_MAIN
