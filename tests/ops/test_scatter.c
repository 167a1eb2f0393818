/* tests/ops/test_scatter.c - writing at indices: every mode and dtype against plain loops, bit for
 * bit, on the interpreter and in native code with any vectors and threads; gradients of reading at
 * indices, and that they cost what they read and write. */
#include "inside.h"

#include "tc_test.h"

#include "same.h"

enum { MODES = TCI_MODE_COUNT, MOST = 40000 };

typedef struct shape {
    int rank, axis;
    int64_t x[3], index[3];
} shape;

/* x, the part of it that indices reach, and how many of them there are along the axis */
static const shape shapes[] = {
    {1, 0, {7}, {50}},
    {1, 0, {1}, {9}},
    {1, 0, {300}, {1}},
    {2, 0, {5, 37}, {40, 37}},
    {2, 1, {37, 5}, {37, 40}},
    {2, 0, {11, 16}, {30, 9}},
    {2, 1, {9, 12}, {4, 33}},
    {3, 1, {3, 4, 5}, {3, 9, 5}},
    {3, 1, {4, 3, 70}, {2, 8, 33}},
    {3, 0, {6, 2, 3}, {0, 2, 3}},
    {3, 2, {2, 3, 40}, {2, 3, 1}},
    {2, 0, {1, 65}, {7, 65}},
    {2, 0, {64, 512}, {100, 512}},
};

static tc_ctx *make_ctx(const char *backend, int threads, int bits)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend,
                    .threads = threads,
                    .vector_bits = bits,
                    .no_disk_cache = true,
                    .verify = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static int64_t count_of(const int64_t *sizes, int rank)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        n *= sizes[i];
    }
    return n;
}

static tc_tensor put(int mode, tc_tensor x, int axis, tc_tensor index, tc_tensor src)
{
    switch ((tci_mode)mode) {
    case TCI_MODE_SET: return tc_scatter(x, axis, index, src);
    case TCI_MODE_ADD: return tc_scatter_add(x, axis, index, src);
    case TCI_MODE_MIN: return tc_scatter_min(x, axis, index, src);
    case TCI_MODE_MAX: return tc_scatter_max(x, axis, index, src);
    case TCI_MODE_MUL: return tc_scatter_prod(x, axis, index, src);
    case TCI_MODE_COUNT: break;
    }
    return x;
}

static float merged(int mode, float old, float v)
{
    switch ((tci_mode)mode) {
    case TCI_MODE_SET: return v;
    case TCI_MODE_ADD: return old + v;
    case TCI_MODE_MIN: return old < v || old != old ? old : v;
    case TCI_MODE_MAX: return old > v || old != old ? old : v;
    case TCI_MODE_MUL: return old * v;
    case TCI_MODE_COUNT: break;
    }
    return 0;
}

/* Numbers whose sums depend on their order, with a few that are none. */
static void fill(float *to, int64_t n, bool odd)
{
    static const float corners[] = {-0.0f, 0.0f, INFINITY, -INFINITY, NAN};
    for (int64_t i = 0; i < n; i++) {
        double r = (double)(tct_random() % 2000003) / 7919.0 - 126.0;
        to[i] = (float)(r * pow(10, (double)(tct_random() % 7) - 3));
        to[i] = odd && tct_random() % 23 == 0 ? corners[tct_random() % 5] : to[i];
    }
}

/* Element by element of src in row-major order. */
static void expect(const shape *s, int mode, const float *x, const int64_t *index, const float *src,
                   float *out)
{
    int64_t n = count_of(s->index, s->rank);
    memcpy(out, x, sizeof(*out) * (size_t)count_of(s->x, s->rank));
    for (int64_t i = 0; i < n; i++) {
        int64_t at[3], rest = i, to = 0;
        for (int d = s->rank - 1; d >= 0; d--) {
            at[d] = rest % s->index[d];
            rest /= s->index[d];
        }
        at[s->axis] = index[i] < 0 ? index[i] + s->x[s->axis] : index[i];
        for (int d = 0; d < s->rank; d++) {
            to = to * s->x[d] + at[d];
        }
        out[to] = merged(mode, out[to], src[i]);
    }
}

/* One shape and mode: memory of its own, and the result, not computed yet. */
typedef struct scattering {
    const shape *s;
    int mode;
    float *x, *src;
    int64_t *index;
    tc_tensor y;
} scattering;

static scattering begin(tc_ctx *ctx, const shape *s, int mode)
{
    int64_t n = count_of(s->x, s->rank), m = count_of(s->index, s->rank);
    scattering r = {.s = s, .mode = mode};
    r.x = malloc(sizeof(*r.x) * (size_t)n);
    r.src = malloc(sizeof(*r.src) * (size_t)(m + 1));
    r.index = malloc(sizeof(*r.index) * (size_t)(m + 1));
    REQUIRE(r.x && r.src && r.index);
    fill(r.x, n, true);
    fill(r.src, m, true);
    for (int64_t i = 0; i < m; i++) {
        r.index[i] = (int64_t)(tct_random() % (uint64_t)(2 * s->x[s->axis])) - s->x[s->axis];
    }
    tc_tensor x = tc_borrow_at(ctx, r.x, TC_F32, s->rank, s->x, 0, TC_HERE);
    tc_tensor index = tc_borrow_at(ctx, r.index, TC_I64, s->rank, s->index, 0, TC_HERE);
    tc_tensor src = tc_borrow_at(ctx, r.src, TC_F32, s->rank, s->index, 0, TC_HERE);
    r.y = put(mode, x, s->axis, index, src);
    return r;
}

static void check(const scattering *r, const char *who)
{
    static float want[MOST], got[MOST];
    int64_t n = count_of(r->s->x, r->s->rank), wrong = 0;
    REQUIRE(n <= MOST);
    expect(r->s, r->mode, r->x, r->index, r->src, want);
    CHECK_MSG(tc_read(r->y, got, n) == TC_OK, "%s", tc_error(r->y));
    for (int64_t i = 0; i < n; i++) {
        wrong += !same_bits(TC_F32, &want[i], &got[i], 1);
    }
    CHECK_MSG(wrong == 0, "%s, shape %d, mode %d: %d of %d elements differ", who,
              (int)(r->s - shapes), r->mode, (int)wrong, (int)n);
}

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static void check_shapes(const char *backend, int threads, int bits)
{
    tc_ctx *ctx = make_ctx(backend, threads, bits);
    scattering all[SHAPES * MODES];
    tc_tensor ys[SHAPES * MODES];
    char who[60];
    snprintf(who, sizeof(who), "%s with %d threads and %d bits", backend, threads, bits);
    for (int i = 0; i < SHAPES * MODES; i++) {
        all[i] = begin(ctx, &shapes[i / MODES], i % MODES);
        ys[i] = all[i].y;
    }
    CHECK_EQ_INT(tc_eval_many((tc_tensors){ys, SHAPES * MODES}), TC_OK);
    for (int i = 0; i < SHAPES * MODES; i++) {
        check(&all[i], who);
        free(all[i].x);
        free(all[i].src);
        free(all[i].index);
    }
    tc_ctx_free(ctx);
}

TEST(interpreted)
{
    check_shapes("interp", 1, 0);
}
TEST(interpreted_by_threads)
{
    check_shapes("interp", 3, 0);
}
TEST(native)
{
    check_shapes("cpu", 2, 0);
}
TEST(native_in_narrow_vectors)
{
    check_shapes("cpu", 1, 128);
}
TEST(native_without_vectors)
{
    check_shapes("cpu", 3, -1);
}

/* Whole slices, in several dtypes, from expressions; of halves the sum rounds once. */
TEST(slices_and_dtypes)
{
    for (int native = 0; native < 2; native++) {
        tc_ctx *ctx = make_ctx(native ? "cpu" : "interp", 2, 0);
        int64_t which[5] = {2, -1, 0, 2, 2};
        double data[12], rows[20];
        for (int i = 0; i < 20; i++) {
            rows[i] = i * 37 % 11 - 4;
            data[i % 12] = i % 12 - 5;
        }
        tc_tensor i = tc_borrow(ctx, which, TC_I64, 5);
        const tc_dtype dtypes[] = {TC_I8, TC_I16, TC_I32, TC_I64, TC_F16, TC_BF16, TC_F32, TC_F64};
        for (int k = 0; k < TCI_COUNT(dtypes); k++) {
            tc_tensor x = tc_cast(tc_borrow(ctx, data, TC_F64, 3, 4), dtypes[k]);
            tc_tensor s = tc_cast(tc_borrow(ctx, rows, TC_F64, 5, 4), dtypes[k]);
            double got[12];
            CHECK_EQ_INT(tc_read(tc_cast(tc_cast(tc_index_add(x, 0, i, tc_add(s, s)), TC_I64),
                                         TC_F64),
                                 got, 12),
                         TC_OK);
            for (int d = 0; d < 12; d++) {
                double want = data[d];
                for (int r = 0; r < 5; r++) {
                    want += (which[r] + 3) % 3 == d / 4 ? 2 * rows[4 * r + d % 4] : 0;
                }
                CHECK_MSG(got[d] == want, "%s, element %d: %g, expected %g",
                          tci_dtype_get(dtypes[k])->name, d, got[d], want);
            }
        }
        uint8_t bits[3] = {0, 1, 0}, more[4] = {1, 0, 1, 0}, out[3];
        int32_t at[4] = {2, 1, 2, 0};
        tc_tensor b = tc_borrow(ctx, bits, TC_BOOL, 3), m = tc_borrow(ctx, more, TC_BOOL, 4);
        tc_tensor bi = tc_borrow(ctx, at, TC_I32, 4);
        CHECK_EQ_INT(tc_read(tc_cast(tc_scatter_add(b, 0, bi, m), TC_U8), out, 3), TC_OK);
        CHECK(out[0] == 0 && out[1] == 1 && out[2] == 1);
        CHECK_EQ_INT(tc_read(tc_cast(tc_scatter_min(b, 0, bi, m), TC_U8), out, 3), TC_OK);
        CHECK(out[0] == 0 && out[1] == 0 && out[2] == 0);
        tc_ctx_free(ctx);
    }
}

/* 4096 times 2^-9 to 1 in bf16: one by one nothing would come of it. */
TEST(halves_are_added_up_in_floats)
{
    tc_ctx *ctx = make_ctx("interp", 1, 0);
    enum { N = 4096 };
    float out = 0;
    tc_tensor one = tc_cast(tc_full(ctx, 1.0, TC_F32, 1), TC_BF16);
    tc_tensor bits = tc_cast(tc_full(ctx, 0x1p-9, TC_F32, N), TC_BF16);
    tc_tensor y = tc_scatter_add(one, 0, tc_full(ctx, 0, TC_I64, N), bits);
    CHECK(tc_dtype_of(y) == TC_BF16);
    CHECK_EQ_INT(tc_read(tc_cast(y, TC_F32), &out, 1), TC_OK);
    CHECK(out == 9);
    tc_ctx_free(ctx);
}

/* ---- gradients of reading ---- */

enum { ROWS = 2000, WIDTH = 64, READS = 500 };

/* The gradient of the sum of squares of rows of a table. */
static tc_tensor table_gradient(tc_tensor table, tc_tensor index)
{
    tc_tensor loss = tc_sum(tc_square(tc_index_select(table, 0, index)), TC_ALL, false), grad;
    REQUIRE(tc_grad(loss, &table, 1, &grad) == TC_OK);
    return grad;
}

/* Adds what is read and written and a table, not a table times the reads. */
TEST(a_gradient_costs_what_it_reads)
{
    tc_ctx *ctx = make_ctx("interp", 1, 0);
    tc_tensor table = tc_input(ctx, "table", TC_F32, ROWS, WIDTH);
    tc_tensor index = tc_input(ctx, "index", TC_I64, READS);
    tc_program *f = NULL;
    tc_program_info info;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(table, index), TC_TENSORS(table_gradient(table, index)),
                               NULL, &f),
                 TC_OK);
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    CHECK_MSG(info.flops <= 8 * READS * WIDTH, "%lld flops", (long long)info.flops);
    CHECK_MSG(info.bytes_read + info.bytes_written <= 4 * (2 * ROWS + 8 * READS) * WIDTH,
              "%lld bytes", (long long)(info.bytes_read + info.bytes_written));
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* A padding token, read by most. */
TEST(one_row_read_by_all)
{
    static float data[ROWS * WIDTH], out[ROWS * WIDTH];
    static int64_t which[READS];
    for (int native = 0; native < 2; native++) {
        tc_ctx *ctx = make_ctx(native ? "cpu" : "interp", 2, 0);
        fill(data, ROWS * WIDTH, false);
        for (int i = 0; i < READS; i++) {
            which[i] = i % 10 ? 7 : i;
        }
        tc_tensor table = tc_borrow(ctx, data, TC_F32, ROWS, WIDTH);
        tc_tensor grad = table_gradient(table, tc_borrow(ctx, which, TC_I64, READS));
        CHECK_EQ_INT(tc_read(grad, out, ROWS * WIDTH), TC_OK);
        int wrong = 0;
        for (int64_t i = 0; i < ROWS * WIDTH; i++) {
            float want = 0;
            for (int r = 0; r < READS; r++) {
                want += which[r] == i / WIDTH ? 2 * data[i] : 0;
            }
            wrong += out[i] != want;
        }
        CHECK_EQ_INT(wrong, 0);
        tc_ctx_free(ctx);
    }
}

/* ---- what is wrong with an index ---- */

TEST(an_index_outside_fails_the_run)
{
    for (int native = 0; native < 2; native++) {
        tc_ctx *ctx = make_ctx(native ? "cpu" : "interp", 1, 0);
        float x[6] = {0}, src[3] = {1, 2, 3}, out[6];
        int64_t which[3] = {0, 5, 6};
        tc_tensor tx = tc_input(ctx, "x", TC_F32, 6), ti = tc_input(ctx, "which", TC_I64, 3);
        tc_tensor ts = tc_input(ctx, "src", TC_F32, 3), y = tc_scatter_add(tx, 0, ti, ts);
        tc_program *f = NULL;
        CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(tx, ti, ts), TC_TENSORS(y), NULL, &f), TC_OK);
        tc_bufs in = TC_BUFS(TC_BUF(x, 6), TC_BUF(which, 3), TC_BUF(src, 3));
        CHECK_EQ_INT(tc_run(f, in, TC_BUFS(TC_BUF(out, 6))), TC_ERR_INDEX);
        CHECK_HAS(tc_error(f), "index 6 (element 2 of input 1 \"which\") is outside axis 0 of size "
                               "6 in tc_scatter_add made at ");
        CHECK_HAS(tc_error(f), __FILE__);
        which[2] = -6;
        CHECK_EQ_INT(tc_run(f, in, TC_BUFS(TC_BUF(out, 6))), TC_OK);
        CHECK(out[0] == 4 && out[5] == 2);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* Vectors of any width and what is left behind whole ones: each lane from where its index says, and
 * the one that is outside found wherever it stands. */
TEST(lanes_read_at_their_own_indices)
{
    enum { LINES = 3, N = 45, MOST_READ = 75 };
    static const tc_dtype dtypes[] = {TC_F32, TC_F64, TC_BF16, TC_I8};
    static const int lengths[] = {1, 7, 16, 64, MOST_READ}, bits[] = {0, 256, 128, -1};
    char x[LINES * N * 8], out[LINES * MOST_READ * 8];
    int64_t which[MOST_READ];
    for (int c = 0; c < 20; c++) {
        const tc_dtype t = dtypes[c % 4];
        const int n = lengths[c % 5], size = tci_dtype_get(t)->bytes, bad = (c * 11 + 3) % n;
        tc_ctx *ctx = make_ctx("cpu", 1, bits[c / 5]);
        for (int i = 0; i < LINES * N; i++) {
            tci_value_store(t, x + i * size, tci_value_cast((tci_value){.i = i - 60}, TC_I64, t));
        }
        for (int i = 0; i < n; i++) {
            which[i] = (int64_t)(tct_random() % (2 * N)) - N;
        }
        tc_tensor tx = tc_input(ctx, "x", t, LINES, N), ti = tc_input(ctx, "which", TC_I64, n);
        tc_program *f = NULL;
        CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(tx, ti), TC_TENSORS(tc_index_select(tx, 1, ti)), NULL,
                                   &f),
                     TC_OK);
        tc_buf in[2] = {{.data = x, .n = LINES * N, .dtype = t}, TC_BUF(which, n)};
        tc_buf to = {.data = out, .n = LINES * n, .dtype = t};
        CHECK_EQ_INT(tc_run(f, (tc_bufs){in, 2}, (tc_bufs){&to, 1}), TC_OK);
        for (int i = 0; i < LINES * n; i++) {
            int64_t at = i / n * N + (which[i % n] + N) % N;
            CHECK(!memcmp(out + i * size, x + at * size, (size_t)size));
        }
        which[bad] = c % 2 ? N : -N - 1;
        CHECK_EQ_INT(tc_run(f, (tc_bufs){in, 2}, (tc_bufs){&to, 1}), TC_ERR_INDEX);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* Index `kind` of x's 6 elements, computed from i32 numbers; last: of the numbers for which it is
 * outside the first. */
static tc_tensor computed_index(tc_tensor i, int kind, int32_t *last)
{
    tc_tensor word = tc_cast(i, TC_U64);
    static const int32_t outside[] = {7, 6, INT32_MAX, 7, -9, 3, 1};
    *last = outside[kind];
    switch (kind) {
    case 0: return tc_clamp(i, 0, 5);                                      /* never */
    case 1: return tc_clamp(i, 0, 6);                                      /* at 6 */
    case 2: return tc_minimum(tc_add(i, 1), 5);                            /* the sum wraps */
    case 3: return tc_where(tc_gt(i, 2), 5, tc_cast(tc_gt(i, 0), TC_I64)); /* never */
    case 4: return tc_maximum(word, UINT64_C(5)); /* as words -9 is the most */
    case 5: return tc_sub(tc_clamp(i, 0, 3), tc_mul(tc_clamp(i, 0, 3), 4));         /* -9 at 3 */
    default: return tc_cast(tc_add(tc_clamp(tc_cast(i, TC_I8), 0, 1), 126), TC_I8); /* 127 at 1 */
    }
}

/* An index that cannot be outside is not checked; all others are. */
TEST(a_computed_index_is_checked_where_it_may_be_outside)
{
    for (int c = 0; c < 14; c++) {
        tc_ctx *ctx = make_ctx(c % 2 ? "cpu" : "interp", 1, 0);
        tc_tensor x = tc_input(ctx, "x", TC_F32, 6), i = tc_input(ctx, "i", TC_I32, 40);
        float values[6] = {0, 1, 2, 3, 4, 5}, out[40];
        int32_t numbers[40] = {0}, last;
        tc_tensor y = tc_index_select(x, 0, computed_index(i, c / 2, &last));
        bool never = c / 2 == 0 || c / 2 == 3, always = c / 2 == 6;
        tc_program *f = NULL;
        CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x, i), TC_TENSORS(y), NULL, &f), TC_OK);
        tc_bufs in = TC_BUFS(TC_BUF(values, 6), TC_BUF(numbers, 40));
        CHECK_EQ_INT(tc_run(f, in, TC_BUFS(TC_BUF(out, 40))), always ? TC_ERR_INDEX : TC_OK);
        numbers[39] = last;
        CHECK_EQ_INT(tc_run(f, in, TC_BUFS(TC_BUF(out, 40))), never ? TC_OK : TC_ERR_INDEX);
        CHECK(!never || out[39] == 5);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* What is read is the same everywhere, and the index is checked all the same. */
TEST(an_index_into_what_is_uniform_is_checked)
{
    for (int native = 0; native < 2; native++) {
        tc_ctx *ctx = make_ctx(native ? "cpu" : "interp", 1, 0);
        float out[4];
        int64_t which[4] = {0, 1, 2, 4};
        tc_tensor index = tc_input(ctx, "which", TC_I64, 4);
        tc_tensor row = tc_expand(tc_reshape(tc_full(ctx, 2.5, TC_F32), 1), 4);
        tc_tensor made[2] = {tc_index_select(tc_full(ctx, 1.5, TC_F32, 4), 0, index),
                             tc_gather(row, 0, index)};
        for (int i = 0; i < 2; i++) {
            tc_program *f = NULL;
            which[3] = 4;
            CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(index), TC_TENSORS(made[i]), NULL, &f), TC_OK);
            tc_bufs in = TC_BUFS(TC_BUF(which, 4));
            CHECK_EQ_INT(tc_run(f, in, TC_BUFS(TC_BUF(out, 4))), TC_ERR_INDEX);
            which[3] = -4;
            CHECK_EQ_INT(tc_run(f, in, TC_BUFS(TC_BUF(out, 4))), TC_OK);
            CHECK(out[3] == (i ? 2.5f : 1.5f));
            tc_program_free(f);
        }
        tc_ctx_free(ctx);
    }
}

TEST_MAIN
