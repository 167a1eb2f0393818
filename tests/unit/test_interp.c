/* The block interpreter: kernels built by hand, results compared with plain loops. */
#include "inside.h"

#include "tc_test.h"
#include "same.h"
#include "interp_kernel.h"

/* ---- pointwise ---- */

TEST(pointwise_chain_with_literal)
{
    const int64_t sizes[] = {0, 1, 7, 63, 64, 65, 511, 512, 513, 5000};
    for (int i = 0; i < TCI_COUNT(sizes); i++) {
        int64_t n = sizes[i];
        tk_k *t = tk_open(TCI_VEC_OUTER);
        int a = tk_axis(t, n, false);
        int s = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
        int x = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, n), tk_ax(t, a));
        int y = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, n), tk_ax(t, a));
        tci_kinst lit = {.op = TCI_K_LIT, .dtype = TC_F32, .x = -1, .guard = -1};
        int c = tci_kernel_inst(t->k, lit);
        int v = tk_2(t, TCI_P_ADD, TC_F32, tk_2(t, TCI_P_MUL, TC_F32, x, c), y);
        tk_store(t, s, tci_kernel_operand(t->k, TC_F32, true, n), tk_ax(t, a), v);
        float *in0 = tk_floats(n), *in1 = tk_floats(n), *out = tk_floats(n);
        tci_value three = {.f = 3.25};
        tk_run(t, (void *[]){in0, in1, out}, &three.i, 2, sizeof(float) * (size_t)n);
        for (int64_t j = 0; j < n; j++) {
            volatile float product = in0[j] * 3.25f;
            CHECK(out[j] == product + in1[j]);
        }
        free(in0);
        free(in1);
        free(out);
        tk_close(t);
    }
}

TEST(strided_broadcast_and_reversed_loads)
{
    enum { R = 9, C = 700 };
    tk_k *t = tk_open(TCI_VEC_OUTER);
    int r = tk_axis(t, R, false), c = tk_axis(t, C, false);
    int s = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
    int transposed = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, R * C),
                             tk_at(t, c, R, tk_ax(t, r)));
    int row = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, R), tk_ax(t, r));
    int reversed = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, C),
                           tk_at(t, c, -1, tci_kx_const(t->k, C - 1)));
    int v = tk_2(t, TCI_P_SUB, TC_F32, tk_2(t, TCI_P_MUL, TC_F32, transposed, row), reversed);
    tk_store(t, s, tci_kernel_operand(t->k, TC_F32, true, 2 * R * C),
             tk_at(t, r, 2 * C, tk_at(t, c, 2, -1)), v);
    float *a = tk_floats(R * C), *b = tk_floats(R), *d = tk_floats(C), *out = tk_floats(2 * R * C);
    memset(out, 0x5a, sizeof(float) * 2 * R * C);
    tk_run(t, (void *[]){a, b, d, out}, NULL, 3, sizeof(float) * 2 * R * C);
    for (int i = 0; i < R; i++) {
        for (int j = 0; j < C; j++) {
            volatile float product = a[j * R + i] * b[i];
            CHECK(out[i * 2 * C + 2 * j] == product - d[C - 1 - j]);
        }
    }
    free(a);
    free(b);
    free(d);
    free(out);
    tk_close(t);
}

TEST(guards_fill_and_do_not_read)
{
    enum { N = 1200, M = 1000 };
    tk_k *t = tk_open(TCI_VEC_OUTER);
    int a = tk_axis(t, N, false);
    int s = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
    int p = tci_kernel_operand(t->k, TC_F32, false, M);
    tci_value fill = {.f = -7.5};
    /* x[i - 100] inside, fill around; and every third of it through a remainder, which is not
     * linear. */
    int shifted = tci_kx_add(t->k, tk_ax(t, a), tci_kx_const(t->k, -100));
    int whole = tk_load_guarded(t, p, shifted, tk_guard(t, shifted, 0, M - 1), 1, fill);
    int g = tk_guard(t, shifted, 0, M - 1);
    tk_guard(t, tci_kx_mod(t->k, tk_ax(t, a), 3), 0, 0);
    int third = tk_load_guarded(t, p, shifted, g, 2, fill);
    tci_kinst gi = {.op = TCI_K_GUARD, .dtype = TC_BOOL, .x = -1, .guard = g, .n_guards = 2};
    int mask = tci_kernel_inst(t->k, gi);
    int picked = tci_kernel_prim(t->k, TCI_P_SELECT, TC_F32, 3, mask, tk_const(t, TC_F32, 1000),
                                 whole);
    int o = tci_kernel_operand(t->k, TC_F32, true, 3 * N);
    tk_store(t, s, o, tk_ax(t, a), whole);
    tk_store(t, s, o, tci_kx_add(t->k, tk_ax(t, a), tci_kx_const(t->k, N)), third);
    tk_store(t, s, o, tci_kx_add(t->k, tk_ax(t, a), tci_kx_const(t->k, 2 * N)), picked);
    float *x = tk_floats(M), *out = tk_floats(3 * N);
    tk_run(t, (void *[]){x, out}, NULL, 1, sizeof(float) * 3 * N);
    for (int i = 0; i < N; i++) {
        bool in = i >= 100 && i < 100 + M;
        float want = in ? x[i - 100] : -7.5f;
        CHECK(out[i] == want);
        CHECK(out[N + i] == (in && i % 3 == 0 ? want : -7.5f));
        CHECK(out[2 * N + i] == (in && i % 3 == 0 ? 1000.0f : want));
    }
    free(x);
    free(out);
    tk_close(t);
}

/* Intervals that begin after the block's last lane, end before its first, or hold one lane. */
TEST(guards_whose_interval_is_outside_the_block)
{
    enum { N = 2100 };
    static const int64_t interval[][2] = {{1500, 1600}, {0, 9},       {511, 511},   {512, 512},
                                          {513, 1023},  {2099, 2099}, {2100, 3000}, {-50, -1}};
    for (int c = 0; c < 2 * TCI_COUNT(interval); c++) {
        const int64_t lo = interval[c / 2][0], hi = interval[c / 2][1];
        const bool reversed = c % 2;
        tk_k *t = tk_open(TCI_VEC_OUTER);
        int a = tk_axis(t, N, false);
        int s = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
        int x = reversed ? tk_at(t, a, -1, tci_kx_const(t->k, N - 1)) : tk_ax(t, a);
        int from = tci_kx_add(t->k, x, tci_kx_const(t->k, -lo));
        tci_value fill = {.f = 0.25};
        int v = tk_load_guarded(t, tci_kernel_operand(t->k, TC_F32, false, hi - lo + 1), from,
                                tk_guard(t, x, lo, hi), 1, fill);
        tk_store(t, s, tci_kernel_operand(t->k, TC_F32, true, N), tk_ax(t, a), v);
        float *in = tk_floats(hi - lo + 1), *out = tk_floats(N);
        tk_run(t, (void *[]){in, out}, NULL, 1, sizeof(float) * N);
        for (int i = 0; i < N; i++) {
            int64_t at = reversed ? N - 1 - i : i;
            CHECK(out[i] == (at >= lo && at <= hi ? in[at - lo] : 0.25f));
        }
        free(in);
        free(out);
        tk_close(t);
    }
}

/* out[i, j, k] = x[i, k] - y[j] where 5 <= j + k, over axes of any lengths: blocks run along the
 * last axis, or along the longest where the last is short. */
static void tk_three_axes(int64_t ni, int64_t nj, int64_t nk, int along)
{
    tk_k *t = tk_open(TCI_VEC_OUTER);
    int i = tk_axis(t, ni, false), j = tk_axis(t, nj, false), k = tk_axis(t, nk, false);
    int s = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
    tci_value fill = {.f = 8};
    int guard = tk_guard(t, tci_kx_add(t->k, tk_ax(t, j), tk_ax(t, k)), 5, ni + nj + nk);
    int x = tk_load_guarded(t, tci_kernel_operand(t->k, TC_F32, false, ni * nk),
                            tk_at(t, i, nk, tk_ax(t, k)), guard, 1, fill);
    int y = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, nj),
                    tk_at(t, j, -1, tci_kx_const(t->k, nj - 1)));
    tk_store(t, s, tci_kernel_operand(t->k, TC_F32, true, ni * nj * nk),
             tk_at(t, i, nj * nk, tk_at(t, j, nk, tk_ax(t, k))), tk_2(t, TCI_P_SUB, TC_F32, x, y));
    float *in0 = tk_floats(ni * nk), *in1 = tk_floats(nj), *out = tk_floats(ni * nj * nk);
    tk_run(t, (void *[]){in0, in1, out}, NULL, 2, sizeof(float) * (size_t)(ni * nj * nk));
    for (int64_t n = 0; n < ni * nj * nk; n++) {
        int64_t at[3] = {n / nk / nj, n / nk % nj, n % nk};
        float want = at[1] + at[2] >= 5 ? in0[at[0] * nk + at[2]] : 8.0f;
        CHECK(out[n] == want - in1[nj - 1 - at[1]]);
    }
    tci_interp *p = tci_interp_make(t->k);
    REQUIRE(p);
    CHECK_EQ_INT(p->walk[2], along);
    tci_interp_free(p);
    free(in0);
    free(in1);
    free(out);
    tk_close(t);
}

TEST(blocks_run_along_a_long_axis)
{
    tk_three_axes(2, 3, 700, 2);
    tk_three_axes(700, 4, 3, 0);
    tk_three_axes(3, 1300, 2, 1);
    tk_three_axes(3, 3, 3, 2);
    tk_three_axes(40, 9, 31, 2);
    tk_three_axes(64, 64, 1, 1);
    tk_three_axes(1, 1, 1, 2);
    tk_three_axes(0, 200, 3, 1);
    tk_three_axes(200, 5, 0, 0);
}

TEST(quasi_affine_indices)
{
    enum { N = 2000 };
    tk_k *t = tk_open(TCI_VEC_OUTER);
    int a = tk_axis(t, N, false);
    int s = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
    int i = tk_ax(t, a);
    int reversed = tk_at(t, a, -3, tci_kx_const(t->k, 5));
    int x[] = {
        tci_kx_div(t->k, i, 7),
        tci_kx_mod(t->k, i, 7),
        tci_kx_div(t->k, reversed, 11),
        tci_kx_mod(t->k, reversed, 11),
        tci_kx_mod(t->k, tci_kx_add(t->k, tci_kx_div(t->k, i, 3), tci_kx_mod(t->k, i, 5)), 4),
        tci_kx_add(t->k, tci_kx_mul(t->k, tci_kx_div(t->k, i, 64), 100), tci_kx_mod(t->k, i, 64)),
    };
    int o = tci_kernel_operand(t->k, TC_I64, true, TCI_COUNT(x) * N);
    for (int j = 0; j < TCI_COUNT(x); j++) {
        tci_kinst index = {.op = TCI_K_INDEX, .dtype = TC_I64, .x = x[j], .guard = -1};
        tk_store(t, s, o, tci_kx_add(t->k, i, tci_kx_const(t->k, j * N)),
                 tci_kernel_inst(t->k, index));
    }
    int64_t *out = malloc(sizeof(int64_t) * TCI_COUNT(x) * N);
    tk_run(t, (void *[]){out}, NULL, 0, sizeof(int64_t) * TCI_COUNT(x) * N);
    for (int64_t j = 0; j < N; j++) {
        int64_t v = 5 - 3 * j, q = v / 11 - (v % 11 < 0);
        CHECK_EQ_INT(out[j], j / 7);
        CHECK_EQ_INT(out[N + j], j % 7);
        CHECK_EQ_INT(out[2 * N + j], q);
        CHECK_EQ_INT(out[3 * N + j], v - 11 * q);
        CHECK_EQ_INT(out[4 * N + j], (j / 3 + j % 5) % 4);
        CHECK_EQ_INT(out[5 * N + j], j / 64 * 100 + j % 64);
    }
    free(out);
    tk_close(t);
}

TEST(output_may_share_memory_with_input)
{
    enum { N = 1030 };
    tk_k *t = tk_open(TCI_VEC_OUTER);
    int a = tk_axis(t, N, false);
    int s = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
    int x = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, N), tk_ax(t, a));
    int o0 = tci_kernel_operand(t->k, TC_F32, true, N),
        o1 = tci_kernel_operand(t->k, TC_F32, true, N);
    tk_store(t, s, o0, tk_ax(t, a), tk_2(t, TCI_P_ADD, TC_F32, x, x));
    tk_store(t, s, o1, tk_ax(t, a), x);
    float *in = tk_floats(N), *out = tk_floats(N), *before = malloc(sizeof(float) * N);
    memcpy(before, in, sizeof(float) * N);
    tci_interp *p = tci_interp_make(t->k);
    REQUIRE(p);
    void *workspace = aligned_alloc(64, tci_interp_workspace(p));
    tci_interp_run(p, workspace, (void *[]){in, in, out}, NULL, NULL, 0, tci_interp_tasks(p));
    for (int i = 0; i < N; i++) {
        CHECK(in[i] == before[i] + before[i]);
        CHECK(out[i] == before[i]);
    }
    free(workspace);
    tci_interp_free(p);
    free(in);
    free(out);
    free(before);
    tk_close(t);
}

/* ---- gather ---- */

static void tk_gather(int64_t n, int64_t size, const int32_t *index, bool outside)
{
    tk_k *t = tk_open(TCI_VEC_OUTER);
    int a = tk_axis(t, n, false);
    int s = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
    int i = tk_load(t, tci_kernel_operand(t->k, TC_I32, false, n), tk_ax(t, a));
    tci_kinst fault =
        {.op = TCI_K_FAULT, .dtype = TC_I64, .n_args = 1, .x = -1, .guard = -1, .imm = size};
    fault.args[0] = tk_1(t, TCI_P_CAST, TC_I64, i);
    t->k->faults = true;
    int at = tci_kx_value(t->k, tci_kernel_inst(t->k, fault), 0, size > 0 ? size - 1 : 0);
    int v = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, size), at);
    tk_store(t, s, tci_kernel_operand(t->k, TC_F32, true, n), tk_ax(t, a), v);
    float *x = tk_floats(size), *out = tk_floats(n);
    tk_run(t, (void *[]){(void *)(uintptr_t)index, x, out}, NULL, 2, sizeof(float) * (size_t)n);
    CHECK_EQ_INT(tk_fault, outside ? size + 1 : 0);
    for (int64_t j = 0; j < n; j++) {
        int64_t from = index[j] < 0 ? index[j] + size : index[j];
        if (from >= 0 && from < size) {
            CHECK(out[j] == x[from]);
        }
    }
    free(x);
    free(out);
    tk_close(t);
}

TEST(gather_counts_from_the_end_and_faults)
{
    enum { N = 777 };
    int32_t index[N];
    for (int i = 0; i < N; i++) {
        index[i] = (int32_t)(tk_bits() % 40) - 20;
    }
    tk_gather(N, 20, index, false);
    index[700] = 20;
    tk_gather(N, 20, index, true);
    index[700] = -21;
    tk_gather(N, 20, index, true);
    tk_gather(1, 0, index, true);
}

/* ---- reductions ---- */

TEST(inner_sum_and_max_use_64_lanes)
{
    const int64_t sizes[] = {1, 3, 64, 65, 200, 512, 513, 1500};
    for (int i = 0; i < TCI_COUNT(sizes); i++) {
        const int64_t rows = 5, mid = 3, n = sizes[i];
        tk_k *t = tk_open(TCI_VEC_INNER);
        int r = tk_axis(t, rows, false), m = tk_axis(t, mid, true), c = tk_axis(t, n, true);
        int reduce = tk_stage(t, TCI_STAGE_REDUCE, 2, m, c),
            map = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
        int x = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, rows * mid * n),
                        tk_at(t, r, mid * n, tk_at(t, m, n, tk_ax(t, c))));
        int sum = tk_red(t, TCI_RED_SUM, TC_F32, reduce, x, -1);
        int max = tk_red(t, TCI_RED_MAX, TC_F32, reduce, x, -1);
        int o = tci_kernel_operand(t->k, TC_F32, true, 2 * rows);
        tk_store(t, map, o, tk_at(t, r, 2, -1), sum);
        tk_store(t, map, o, tk_at(t, r, 2, tci_kx_const(t->k, 1)), max);
        float *in = tk_floats(rows * mid * n), out[10];
        in[rows * mid * n - 1] = NAN;
        tk_run(t, (void *[]){in, out}, NULL, 1, sizeof out);
        for (int64_t j = 0; j < rows; j++) {
            const float *row = in + j * mid * n;
            float want = tk_lanes(row, mid, n, n, 0, tk_add),
                  most = tk_lanes(row, mid, n, n, -INFINITY, tk_max);
            CHECK(j == rows - 1 ? out[2 * j] != out[2 * j] : out[2 * j] == want);
            CHECK(j == rows - 1 ? out[2 * j + 1] != out[2 * j + 1] : out[2 * j + 1] == most);
        }
        free(in);
        tk_close(t);
    }
}

TEST(outer_reductions_fold_in_order)
{
    enum { COLS = 600, K = 37 };
    tk_k *t = tk_open(TCI_VEC_OUTER);
    int c = tk_axis(t, COLS, false), k = tk_axis(t, K, true);
    int reduce = tk_stage(t, TCI_STAGE_REDUCE, 1, k, -1),
        map = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
    int p = tci_kernel_operand(t->k, TC_F32, false, K * COLS),
        q = tci_kernel_operand(t->k, TC_F32, false, K);
    int x = tk_load(t, p, tk_at(t, k, COLS, tk_ax(t, c))), w = tk_load(t, q, tk_ax(t, k));
    int reds[] = {
        tk_red(t, TCI_RED_SUM, TC_F32, reduce, x, -1),
        tk_red(t, TCI_RED_PROD, TC_F32, reduce, x, -1),
        tk_red(t, TCI_RED_MIN, TC_F32, reduce, x, -1),
        tk_red(t, TCI_RED_DOT, TC_F32, reduce, x, w),
        tk_red(t, TCI_RED_SUM, TC_F32, reduce, w, -1),
    };
    int o = tci_kernel_operand(t->k, TC_F32, true, 6 * COLS);
    for (int i = 0; i < TCI_COUNT(reds); i++) {
        tk_store(t, map, o, tk_at(t, c, 1, tci_kx_const(t->k, i * COLS)), reds[i]);
    }
    int positive = tk_2(t, TCI_P_LT, TC_F32, tk_const(t, TC_F32, 3.9), x);
    int any = tk_red(t, TCI_RED_ANY, TC_BOOL, reduce, positive, -1);
    tk_store(t, map, o, tk_at(t, c, 1, tci_kx_const(t->k, 5 * COLS)),
             tk_1(t, TCI_P_CAST, TC_F32, any));
    float *in = tk_floats(K * COLS), *v = tk_floats(K), *out = tk_floats(6 * COLS);
    tk_run(t, (void *[]){in, v, out}, NULL, 2, sizeof(float) * 6 * COLS);
    for (int j = 0; j < COLS; j++) {
        float sum = 0, product = 1, least = INFINITY, dot = 0, weights = 0, has = 0;
        for (int i = 0; i < K; i++) {
            float e = in[i * COLS + j];
            sum += e;
            product *= e;
            least = e < least ? e : least;
            dot = fmaf(e, v[i], dot);
            weights += v[i];
            has = e > 3.9f ? 1 : has;
        }
        CHECK(out[j] == sum);
        CHECK(out[COLS + j] == product);
        CHECK(out[2 * COLS + j] == least);
        CHECK(out[3 * COLS + j] == dot);
        CHECK(out[4 * COLS + j] == weights);
        CHECK(out[5 * COLS + j] == has);
    }
    free(in);
    free(v);
    free(out);
    tk_close(t);
}

TEST(matmul_of_floats_and_bytes)
{
    enum { M = 5, N = 130, K = 33 };
    for (int pass = 0; pass < 2; pass++) {
        tc_dtype dtype = pass ? TC_I8 : TC_F64;
        tk_k *t = tk_open(TCI_VEC_OUTER);
        int m = tk_axis(t, M, false), n = tk_axis(t, N, false), k = tk_axis(t, K, true);
        int reduce = tk_stage(t, TCI_STAGE_REDUCE, 1, k, -1),
            map = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
        int a = tk_load(t, tci_kernel_operand(t->k, dtype, false, M * K),
                        tk_at(t, m, K, tk_ax(t, k)));
        int b = tk_load(t, tci_kernel_operand(t->k, dtype, false, K * N),
                        tk_at(t, k, N, tk_ax(t, n)));
        int dot = tk_red(t, TCI_RED_DOT, dtype, reduce, a, b);
        tk_store(t, map, tci_kernel_operand(t->k, dtype, true, M * N), tk_at(t, m, N, tk_ax(t, n)),
                 dot);
        static double x[M * K], y[K * N], z[M * N];
        static int8_t p[M * K], q[K * N], r[M * N];
        for (int i = 0; i < K * N; i++) {
            y[i] = tk_float();
            q[i] = (int8_t)tk_bits();
            x[i % (M * K)] = tk_float();
            p[i % (M * K)] = (int8_t)tk_bits();
        }
        if (pass) {
            tk_run(t, (void *[]){p, q, r}, NULL, 2, sizeof r);
        } else {
            tk_run(t, (void *[]){x, y, z}, NULL, 2, sizeof z);
        }
        for (int i = 0; i < M * N; i++) {
            double acc = 0;
            int wrapped = 0;
            for (int j = 0; j < K; j++) {
                acc = fma(x[i / N * K + j], y[j * N + i % N], acc);
                wrapped += p[i / N * K + j] * q[j * N + i % N];
            }
            CHECK(pass ? r[i] == (int8_t)wrapped : z[i] == acc);
        }
        tk_close(t);
    }
}

/* x[m, k] w[n, k], both with k contiguous: lanes are along n, so w is strided. True if the steps
 * read w from panels. */
static bool tk_rows_times_rows(int m, int n, int k)
{
    tk_k *t = tk_open(TCI_VEC_OUTER);
    int i = tk_axis(t, m, false), j = tk_axis(t, n, false), l = tk_axis(t, k, true);
    int reduce = tk_stage(t, TCI_STAGE_REDUCE, 1, l, -1),
        map = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
    int a = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, m * k), tk_at(t, i, k, tk_ax(t, l)));
    int b = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, n * k), tk_at(t, j, k, tk_ax(t, l)));
    int dot = tk_red(t, TCI_RED_DOT, TC_F32, reduce, a, b);
    tk_store(t, map, tci_kernel_operand(t->k, TC_F32, true, m * n), tk_at(t, i, n, tk_ax(t, j)),
             dot);
    float *x = tk_floats(m * k), *w = tk_floats(n * k), *y = tk_floats(m * n);
    tk_run(t, (void *[]){x, w, y}, NULL, 2, sizeof(float) * (size_t)(m * n));
    for (int at = 0; at < m * n; at++) {
        float sum = 0;
        for (int p = 0; p < k; p++) {
            sum = fmaf(x[at / n * k + p], w[at % n * k + p], sum);
        }
        CHECK(y[at] == sum);
    }
    tci_interp *p = tci_interp_make(t->k);
    tci_str text = {0};
    REQUIRE(p);
    tci_interp_verify(&t->s, p);
    tci_interp_print(&text, p);
    bool packs = strstr(tci_str_text(&text), "by panels") != NULL;
    tci_str_free(&text);
    tci_interp_free(p);
    free(x);
    free(w);
    free(y);
    tk_close(t);
    return packs;
}

TEST(strided_operands_are_packed_once_for_many_points)
{
    const struct {
        int m, n, k;
        bool packs;
    } cases[] = {
        {9, 150, 33, true},   /* one chunk of lanes */
        {4, 150, 5500, true}, /* chunks of 64, 64 and 22 lanes */
        {40, 70, 100, true},  /* several tasks in a chunk */
        {3, 150, 33, false},  /* too few points */
        {9, 150, 9, false},   /* lanes are less than a cache line apart */
        {4, 9, 17000, false}  /* no room for 64 lanes */
    };
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        bool packs = tk_rows_times_rows(cases[i].m, cases[i].n, cases[i].k);
        CHECK_MSG(packs == cases[i].packs, "case %d", i);
    }
}

/* y[i, j] = sum over a, b of x * w, where x moves by `dx` and w by `dw` along i, j, a, b. True if
 * it runs in strips. */
static bool tk_in_strips(tc_dtype t, const int size[4], const int dx[4], const int dw[4])
{
    tk_k *k = tk_open(TCI_VEC_OUTER);
    int axis[4], stage, map, out = size[0] * size[1], reach[2] = {1, 1}, base[2] = {0, 0};
    for (int i = 0; i < 4; i++) {
        axis[i] = tk_axis(k, size[i], i > 1);
        reach[0] += abs(dx[i]) * (size[i] - 1);
        reach[1] += abs(dw[i]) * (size[i] - 1);
        base[0] -= dx[i] < 0 ? dx[i] * (size[i] - 1) : 0;
        base[1] -= dw[i] < 0 ? dw[i] * (size[i] - 1) : 0;
    }
    stage = tk_stage(k, TCI_STAGE_REDUCE, 2, axis[2], axis[3]);
    map = tk_stage(k, TCI_STAGE_MAP, 0, -1, -1);
    int load[2];
    for (int f = 0; f < 2; f++) {
        const int *d = f ? dw : dx;
        int at = tci_kx_const(k->k, base[f]);
        for (int i = 0; i < 4; i++) {
            at = d[i] ? tk_at(k, axis[i], d[i], at) : at;
        }
        load[f] = tk_load(k, tci_kernel_operand(k->k, t, false, reach[f]), at);
    }
    int dot = tk_red(k, TCI_RED_DOT, t, stage, load[0], load[1]);
    tk_store(k, map, tci_kernel_operand(k->k, t, true, out),
             tk_at(k, axis[0], size[1], tk_ax(k, axis[1])), dot);
    int bytes = t == TC_F64 ? 8 : 4;
    char *x[3];
    for (int f = 0; f < 3; f++) {
        int n = f < 2 ? reach[f] : out;
        x[f] = calloc((size_t)n + (n == 0), (size_t)bytes);
        for (int i = 0; i < n; i++) {
            double v = tk_float();
            tci_value_store(t, x[f] + i * bytes,
                            (tci_value){.f = t == TC_F64 ? v : (double)(float)v});
        }
    }
    tk_run(k, (void *[]){x[0], x[1], x[2]}, NULL, 2, (size_t)(out * bytes));
    for (int o = 0; o < out; o++) {
        double sum = 0;
        for (int p = 0; p < size[2] * size[3]; p++) {
            int at[4] = {o / size[1], o % size[1], p / size[3], p % size[3]},
                f[2] = {base[0], base[1]};
            for (int i = 0; i < 4; i++) {
                f[0] += at[i] * dx[i];
                f[1] += at[i] * dw[i];
            }
            double a = tci_value_load(t, x[0] + f[0] * bytes).f;
            double b = tci_value_load(t, x[1] + f[1] * bytes).f;
            sum = t == TC_F64 ? fma(a, b, sum) : (double)fmaf((float)a, (float)b, (float)sum);
        }
        CHECK(tci_value_load(t, x[2] + o * bytes).f == sum);
    }
    tci_interp *p = tci_interp_make(k->k);
    tci_str text = {0};
    REQUIRE(p);
    tci_interp_verify(&k->s, p);
    tci_interp_print(&text, p);
    bool strips = strstr(tci_str_text(&text), " in strips") != NULL;
    tci_str_free(&text);
    tci_interp_free(p);
    for (int f = 0; f < 3; f++) {
        free(x[f]);
    }
    tk_close(k);
    return strips;
}

TEST(contractions_run_in_strips)
{
    static const struct {
        int size[4], dx[4], dw[4]; /* i, j, a, b */
    } cases[] = {
        {{5, 64, 7, 9}, {63, 0, 9, 1}, {0, 1, 576, 64}},   /* a product: one axis */
        {{5, 65, 7, 9}, {63, 0, 9, 1}, {0, 1, 585, 65}},   /* lanes that are no whole group */
        {{3, 300, 3, 3}, {310, 1, 310, 1}, {0, 0, 3, 1}},  /* a window along the lanes */
        {{3, 70, 5, 3}, {310, 2, 310, 1}, {0, 0, 3, 1}},   /* of stride 2 */
        {{2, 96, 9, 4}, {0, 1, 384, 96}, {0, 1, 400, 99}}, /* both factors vary */
        {{2, 50, 11, 13},
         {0, -3, 150, 700},
         {7, 1, 50, -60}},                                 /* and not by whole groups, backward */
        {{9, 600, 2, 20}, {40, 0, 20, 1}, {0, 40, 20, 1}}, /* panels, blocks of lanes */
        {{4, 33, 1, 1}, {33, 1, 0, 0}, {0, 0, 0, 0}},      /* one point */
        {{2, 40, 3, 0}, {0, 1, 40, 1}, {0, 0, 1, 1}},      /* none */
    };
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        bool f32 = tk_in_strips(TC_F32, cases[i].size, cases[i].dx, cases[i].dw);
        bool f64 = tk_in_strips(TC_F64, cases[i].size, cases[i].dx, cases[i].dw);
        CHECK_MSG(f32 && f64, "case %d", i);
    }
}

TEST(kernels_of_strips_give_the_same_bits)
{
    enum { POINTS = 7, GROUPS = 11, BYTES = GROUPS * TCI_INTERP_GROUP };
    static char acc[2][BYTES], x[POINTS][BYTES], y[POINTS][BYTES];
    const char *px[POINTS], *py[POINTS];
    for (int pass = 0; pass < 4; pass++) {
        tc_dtype t = pass & 1 ? TC_F64 : TC_F32;
        const int bytes = pass & 1 ? 8 : 4;
        for (int p = 0; p < POINTS; p++) {
            px[p] = x[p];
            py[p] = y[p];
            for (int i = 0; i < BYTES; i += bytes) {
                tci_value_store(t, x[p] + i, (tci_value){.f = (double)(float)tk_float()});
                tci_value_store(t, y[p] + i, (tci_value){.f = (double)(float)tk_float()});
                tci_value_store(t, acc[0] + i, (tci_value){.f = (double)(float)tk_float()});
            }
        }
        memcpy(acc[1], acc[0], BYTES);
        for (int best = 0; best < 2; best++) {
            tci_interp_strip_kernel(t, pass > 1, best && tci_interp_has_avx2())(acc[best], GROUPS,
                                                                                px, py, POINTS);
        }
        CHECK(memcmp(acc[0], acc[1], BYTES) == 0);
    }
}

TEST(argmax_takes_first_nan_and_first_tie)
{
    enum { ROWS = 70, N = 150 };
    static float in[ROWS * N];
    static int64_t out[2 * ROWS];
    for (int i = 0; i < ROWS * N; i++) {
        in[i] = (float)(tk_bits() % 7); /* ties everywhere */
        if (tk_bits() % 400 == 0) {
            in[i] = NAN;
        }
    }
    for (int j = 0; j < N; j++) {
        in[3 * N + j] = -INFINITY;
    }
    for (int pass = 0; pass < 2; pass++) {
        tk_k *t = tk_open(pass ? TCI_VEC_INNER : TCI_VEC_OUTER);
        int r = tk_axis(t, ROWS, false), c = tk_axis(t, N, true);
        int reduce = tk_stage(t, TCI_STAGE_REDUCE, 1, c, -1),
            map = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
        int x = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, ROWS * N),
                        tk_at(t, r, N, tk_ax(t, c)));
        tci_kinst index = {.op = TCI_K_INDEX, .dtype = TC_I64, .x = tk_ax(t, c), .guard = -1};
        int i = tci_kernel_inst(t->k, index);
        int o = tci_kernel_operand(t->k, TC_I64, true, 2 * ROWS);
        tk_store(t, map, o, tk_ax(t, r), tk_red(t, TCI_RED_ARGMAX, TC_F32, reduce, x, i));
        tk_store(t, map, o, tk_at(t, r, 1, tci_kx_const(t->k, ROWS)),
                 tk_red(t, TCI_RED_ARGMIN, TC_F32, reduce, x, i));
        tk_run(t, (void *[]){in, out}, NULL, 1, sizeof out);
        for (int row = 0; row < ROWS; row++) {
            int most = 0, least = 0;
            for (int j = 1; j < N; j++) {
                float v = in[row * N + j], top = in[row * N + most], low = in[row * N + least];
                most = v > top || (v != v && top == top) ? j : most;
                least = v < low || (v != v && low == low) ? j : least;
            }
            CHECK_EQ_INT(out[row], most);
            CHECK_EQ_INT(out[ROWS + row], least);
        }
        tk_close(t);
    }
}

TEST(scan_stores_every_step)
{
    enum { ROWS = 65, N = 40 };
    tk_k *t = tk_open(TCI_VEC_OUTER);
    int r = tk_axis(t, ROWS, false), c = tk_axis(t, N, true);
    int scan = tk_stage(t, TCI_STAGE_SCAN, 1, c, -1), map = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
    int x = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, ROWS * N),
                    tk_at(t, r, N, tk_ax(t, c)));
    int sum = tk_red(t, TCI_RED_SUM, TC_F32, scan, tk_2(t, TCI_P_MUL, TC_F32, x, x), -1);
    int doubled = tk_2(t, TCI_P_ADD, TC_F32, sum, sum);
    tk_store(t, scan, tci_kernel_operand(t->k, TC_F32, true, ROWS * N), tk_at(t, r, N, tk_ax(t, c)),
             doubled);
    int total = tci_kernel_operand(t->k, TC_F32, true, ROWS);
    tk_store(t, map, total, tk_ax(t, r), sum);
    float *in = tk_floats(ROWS * N), *out = tk_floats(ROWS * N), *last = tk_floats(ROWS);
    tk_run(t, (void *[]){in, out, last}, NULL, 1, sizeof(float) * ROWS * N);
    for (int i = 0; i < ROWS; i++) {
        float acc = 0;
        for (int j = 0; j < N; j++) {
            volatile float square = in[i * N + j] * in[i * N + j];
            acc += square;
            CHECK(out[i * N + j] == acc + acc);
        }
        CHECK(last[i] == acc);
    }
    free(in);
    free(out);
    free(last);
    tk_close(t);
}

/* Scan and arg-reduction where the blocks run along the first of two outer axes. */
TEST(stages_in_blocks_along_the_first_axis)
{
    enum { I = 600, J = 3, N = 7 };
    tk_k *t = tk_open(TCI_VEC_OUTER);
    int i = tk_axis(t, I, false), j = tk_axis(t, J, false), c = tk_axis(t, N, true);
    int scan = tk_stage(t, TCI_STAGE_SCAN, 1, c, -1);
    int reduce = tk_stage(t, TCI_STAGE_REDUCE, 1, c, -1);
    int map = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
    int row = tk_at(t, i, J, tk_ax(t, j)), at = tk_at(t, i, J * N, tk_at(t, j, N, tk_ax(t, c)));
    int x = tk_load(t, tci_kernel_operand(t->k, TC_I32, false, I * J * N), at);
    tci_kinst index = {.op = TCI_K_INDEX, .dtype = TC_I64, .x = tk_ax(t, c), .guard = -1};
    int best = tk_red(t, TCI_RED_ARGMIN, TC_I32, reduce, x, tci_kernel_inst(t->k, index));
    tk_store(t, scan, tci_kernel_operand(t->k, TC_I32, true, I * J * N), at,
             tk_red(t, TCI_RED_SUM, TC_I32, scan, x, -1));
    tk_store(t, map, tci_kernel_operand(t->k, TC_I64, true, I * J), row, best);
    static int32_t in[I * J * N], sums[I * J * N];
    static int64_t least[I * J];
    for (int n = 0; n < I * J * N; n++) {
        in[n] = (int32_t)(tk_bits() % 9) - 4;
    }
    tk_run(t, (void *[]){in, sums, least}, NULL, 1, sizeof sums);
    for (int r = 0; r < I * J; r++) {
        int32_t sum = 0, at_least = 0;
        for (int n = 0; n < N; n++) {
            sum += in[r * N + n];
            at_least = in[r * N + n] < in[r * N + at_least] ? n : at_least;
            CHECK_EQ_INT(sums[r * N + n], sum);
        }
        CHECK_EQ_INT(least[r], at_least);
    }
    tk_close(t);
}

static float tk_eval_f32(tci_prim p, float a)
{
    tci_value v = {.f = a};
    return (float)tci_prim_eval(p, TC_F32, TC_F32, 0, &v).f;
}

TEST(softmax_is_one_kernel_of_three_stages)
{
    const int64_t sizes[] = {5, 64, 700};
    for (int pass = 0; pass < 2 * TCI_COUNT(sizes); pass++) {
        const int64_t rows = 70, n = sizes[pass / 2];
        const bool inner = pass % 2;
        tk_k *t = tk_open(inner ? TCI_VEC_INNER : TCI_VEC_OUTER);
        int r = tk_axis(t, rows, false), c0 = tk_axis(t, n, true), c1 = tk_axis(t, n, true),
            c2 = tk_axis(t, n, true);
        int s0 = tk_stage(t, TCI_STAGE_REDUCE, 1, c0, -1),
            s1 = tk_stage(t, TCI_STAGE_REDUCE, 1, c1, -1);
        int s2 = tk_stage(t, TCI_STAGE_MAP, 1, c2, -1);
        int p = tci_kernel_operand(t->k, TC_F32, false, rows * n),
            o = tci_kernel_operand(t->k, TC_F32, true, rows * n);
        int max = tk_red(t, TCI_RED_MAX, TC_F32, s0, tk_load(t, p, tk_at(t, r, n, tk_ax(t, c0))),
                         -1);
        int x1 = tk_load(t, p, tk_at(t, r, n, tk_ax(t, c1))),
            x2 = tk_load(t, p, tk_at(t, r, n, tk_ax(t, c2)));
        int e1 = tk_1(t, TCI_P_EXP, TC_F32, tk_2(t, TCI_P_SUB, TC_F32, x1, max));
        int sum = tk_red(t, TCI_RED_SUM, TC_F32, s1, e1, -1);
        int e2 = tk_1(t, TCI_P_EXP, TC_F32, tk_2(t, TCI_P_SUB, TC_F32, x2, max));
        int inverse = tk_2(t, TCI_P_DIV, TC_F32, tk_const(t, TC_F32, 1), sum);
        tk_store(t, s2, o, tk_at(t, r, n, tk_ax(t, c2)), tk_2(t, TCI_P_MUL, TC_F32, e2, inverse));
        float *in = tk_floats(rows * n), *out = tk_floats(rows * n), *e = tk_floats(n);
        tk_run(t, (void *[]){in, out}, NULL, 1, sizeof(float) * (size_t)(rows * n));
        for (int64_t i = 0; i < rows; i++) {
            float most = -INFINITY, total = 0;
            for (int64_t j = 0; j < n; j++) {
                most = tk_max(most, in[i * n + j]);
            }
            for (int64_t j = 0; j < n; j++) {
                e[j] = tk_eval_f32(TCI_P_EXP, in[i * n + j] - most);
                total += e[j];
            }
            total = inner ? tk_lanes(e, 1, n, n, 0, tk_add) : total;
            for (int64_t j = 0; j < n; j++) {
                CHECK(out[i * n + j] == e[j] * (1 / total));
            }
        }
        free(in);
        free(out);
        free(e);
        tk_close(t);
    }
}

/* ---- every prim against the scalar evaluator ---- */

/* Values that reach the corners of each dtype. */
static tci_value tk_value(tc_dtype t)
{
    static const double corners[] = {0.0,          -0.0,  1,        -1,        0.5,    1.5,
                                     2.5,          -2.5,  INFINITY, -INFINITY, NAN,    1e-40,
                                     -1e-44,       3e38,  127.5,    255,       256,    -128,
                                     2147483648.0, 65519, 65520,    6e-8,      9.3e18, 1e5};
    tci_value v;
    uint64_t pick = tk_bits() % 8;
    if (tci_dtype_is_float(t)) {
        v.f = pick < 3   ? corners[tk_bits() % TCI_COUNT(corners)]
              : pick < 6 ? tk_float()
                         : tk_float() * 100;
        return tci_value_cast(v, TC_F64, t);
    }
    v.u = tk_bits();
    v.i = pick < 3 ? (int64_t)(v.u % 5) - 2 : pick < 5 ? (int64_t)(v.u % 80) : v.i;
    v.u = pick == 7 ? (uint64_t)1 << (v.u % 64) : v.u;
    return tci_value_cast(v, TC_I64, t);
}

static bool tk_same(tc_dtype t, tci_value a, tci_value b)
{
    if (tci_dtype_is_float(t)) {
        return (a.f != a.f && b.f != b.f) || a.i == b.i;
    }
    return a.i == b.i;
}

/* out = p(a, b, c) over n elements; operands listed in `uniform` are one element for all. */
static void tk_prim_case(tci_prim p, tc_dtype t, tc_dtype to, unsigned uniform)
{
    enum { N = 150 };
    const int arity = tci_prim_get(p)->arity;
    tk_k *k = tk_open(TCI_VEC_OUTER);
    int axis = tk_axis(k, N, false);
    int s = tk_stage(k, TCI_STAGE_MAP, 0, -1, -1);
    uint64_t memory[4][N];
    void *bufs[4] = {memory[0], memory[1], memory[2], memory[3]};
    tc_dtype types[3] = {p == TCI_P_SELECT ? TC_BOOL : t, t, t};
    tci_value values[3][N];
    int args[3] = {-1, -1, -1};
    for (int a = 0; a < arity; a++) {
        bool one = uniform >> a & 1;
        int operand = tci_kernel_operand(k->k, types[a], false, one ? 1 : N);
        args[a] = tk_load(k, operand, one ? tci_kx_const(k->k, 0) : tk_ax(k, axis));
        for (int i = 0; i < N; i++) {
            values[a][i] = one && i > 0 ? values[a][0] : tk_value(types[a]);
            if (p == TCI_P_TOINT) {
                values[a][i].f = (double)(float)(int)(tk_float() * 1000);
            }
            if (!one || i == 0) {
                tci_value_store(types[a],
                                (char *)memory[a] + (size_t)i * tci_dtype_get(types[a])->bytes,
                                values[a][i]);
            }
        }
    }
    tc_dtype named = tci_prim_get(p)->result == 'O' ? to : t;
    int v = tci_kernel_prim(k->k, p, named, arity, args[0], args[1], args[2]);
    int o = tci_kernel_operand(k->k, to, true, N);
    tk_store(k, s, o, tk_ax(k, axis), v);
    bufs[o] = memory[3];
    tk_run(k, bufs, NULL, o, (size_t)N * tci_dtype_get(to)->bytes);
    int bad = 0;
    for (int i = 0; i < N; i++) {
        tci_value x[3] = {values[0][i]};
        for (int a = 1; a < arity; a++) {
            x[a] = values[a][i];
        }
        tci_value want = tci_prim_eval(p, t, to, 0, x);
        tci_value got = tci_value_load(to,
                                       (char *)memory[3] + (size_t)i * tci_dtype_get(to)->bytes);
        bad += !tk_same(to, want, got);
        if (bad == 1 && !tk_same(to, want, got)) {
            CHECK_MSG(false,
                      "%s %s -> %s (uniform %u): %g %g (%lld %lld): %g, want %g (%lld, %lld)",
                      tci_prim_get(p)->name, tci_dtype_get(t)->name, tci_dtype_get(to)->name,
                      uniform, x[0].f, x[1].f, (long long)x[0].i, (long long)x[1].i, got.f, want.f,
                      (long long)got.i, (long long)want.i);
        }
    }
    tk_close(k);
}

static bool tk_prim_takes(tci_prim p, tc_dtype t)
{
    bool is_float = tci_dtype_is_float(t);
    switch (p) {
    case TCI_P_REM:
    case TCI_P_DIV: return t != TC_BOOL;
    case TCI_P_FMA:
    case TCI_P_SQRT:
    case TCI_P_FLOOR:
    case TCI_P_CEIL:
    case TCI_P_TRUNC:
    case TCI_P_RINT: return is_float;
    case TCI_P_AND:
    case TCI_P_OR:
    case TCI_P_XOR:
    case TCI_P_NOT: return !is_float;
    case TCI_P_SHL:
    case TCI_P_SHR: return tci_dtype_is_int(t);
    case TCI_P_POWI:
    case TCI_P_GCD:
    case TCI_P_MULHI: return !is_float;
    case TCI_P_ROUND16:
    case TCI_P_ROUNDB16: return t == TC_F32;
    case TCI_P_CAST:
    case TCI_P_BITS:
    case TCI_P_TOINT:
    case TCI_P_LANE1: return false;
    default: return !tci_prim_is_math(p) || is_float;
    }
}

TEST(prims_equal_the_scalar_evaluator)
{
    for (int p = 0; p < TCI_P_COUNT; p++) {
        for (int t = TC_BOOL; t < TC_DTYPE_COUNT; t++) {
            if (p == TCI_P_MATH_FIRST || tci_dtype_is_half((tc_dtype)t) ||
                !tk_prim_takes((tci_prim)p, (tc_dtype)t)) {
                continue;
            }
            tc_dtype to = tci_prim_get((tci_prim)p)->result == 'B' ? TC_BOOL : (tc_dtype)t;
            for (unsigned uniform = 0; uniform < 1u << tci_prim_get((tci_prim)p)->arity;
                 uniform++) {
                tk_prim_case((tci_prim)p, (tc_dtype)t, to, uniform);
            }
        }
    }
}

TEST(conversions_equal_the_scalar_evaluator)
{
    for (int from = TC_BOOL; from < TC_DTYPE_COUNT; from++) {
        for (int to = TC_BOOL; to < TC_DTYPE_COUNT; to++) {
            if (!tci_dtype_is_half((tc_dtype)from) && !tci_dtype_is_half((tc_dtype)to)) {
                tk_prim_case(TCI_P_CAST, (tc_dtype)from, (tc_dtype)to, 0);
                tk_prim_case(TCI_P_CAST, (tc_dtype)from, (tc_dtype)to, 1);
            }
        }
    }
    tk_prim_case(TCI_P_BITS, TC_F32, TC_I32, 0);
    tk_prim_case(TCI_P_BITS, TC_I64, TC_F64, 0);
    tk_prim_case(TCI_P_TOINT, TC_F32, TC_I32, 0);
    tk_prim_case(TCI_P_TOINT, TC_F64, TC_I64, 0);
}

/* ---- the loops for the baseline against the ones that were chosen ---- */

static void tk_loop_case(const tci_interp_loop_row *row, unsigned uniform)
{
    enum { GROUPS = 5 };
    const tc_dtype from = (tc_dtype)row->dtype, to = (tc_dtype)row->to;
    const int bytes = tci_dtype_get(from)->bytes, n = GROUPS * TCI_INTERP_GROUP / bytes;
    const bool mask = row->prim == TCI_P_SELECT;
    char memory[3][GROUPS * TCI_INTERP_GROUP], out[2][8 * GROUPS * TCI_INTERP_GROUP];
    const void *in[3] = {memory[0], memory[1], memory[2]};
    uint8_t vary[3];
    for (int a = 0; a < 3; a++) {
        vary[a] = !(uniform >> a & 1);
        tci_value v = {.i = 0};
        for (int i = 0; i < n; i++) {
            v = i > 0 && !vary[a] ? v : mask && a == 0 ? v : tk_value(from);
            v.f = row->prim == TCI_P_TOINT ? (double)(int)(tk_float() * 1000) : v.f;
            v.i = mask && a == 0 ? -(int64_t)(tk_bits() & vary[0]) : v.i;
            tci_value_store(from, memory[a] + i * bytes, v);
        }
    }
    const int64_t count = row->group ? GROUPS : n;
    row->base(out[0], in, vary, count);
    row->best(out[1], in, vary, count);
    for (int i = 0; i < n; i++) {
        const int size = tci_dtype_get(to)->bytes;
        tci_value x = tci_value_load(to, out[0] + i * size),
                  y = tci_value_load(to, out[1] + i * size);
        if (!same_bits(to, out[0] + i * size, out[1] + i * size, 1)) {
            CHECK_MSG(false, "prim %d of %s to %s (uniform %u): lane %d %llx, best %llx", row->prim,
                      tci_dtype_get(from)->name, tci_dtype_get(to)->name, uniform, i,
                      (unsigned long long)x.u, (unsigned long long)y.u);
            return;
        }
    }
}

TEST(loops_of_the_baseline_give_the_same_bits)
{
    int n;
    const tci_interp_loop_row *rows = tci_interp_loop_table(&n);
    if (!tci_interp_has_avx2()) {
        SKIP("this machine runs the baseline's loops anyway");
    }
    for (int r = 0; r < n; r++) {
        for (unsigned uniform = 0; uniform < (rows[r].group ? 8u : 1u); uniform++) {
            if (rows[r].base != rows[r].best) {
                tk_loop_case(&rows[r], uniform);
            }
        }
    }
}

TEST(rounding_to_halves)
{
    enum { N = 6 * 8192 };
    static const uint32_t low[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff};
    static uint32_t in[N], out[2 * N];
    tk_k *k = tk_open(TCI_VEC_OUTER);
    int a = tk_axis(k, N, false);
    int s = tk_stage(k, TCI_STAGE_MAP, 0, -1, -1);
    int x = tk_load(k, tci_kernel_operand(k->k, TC_F32, false, N), tk_ax(k, a));
    int o = tci_kernel_operand(k->k, TC_F32, true, 2 * N);
    tk_store(k, s, o, tk_ax(k, a), tk_1(k, TCI_P_ROUND16, TC_F32, x));
    tk_store(k, s, o, tk_at(k, a, 1, tci_kx_const(k->k, N)), tk_1(k, TCI_P_ROUNDB16, TC_F32, x));
    /* the bits around the cut of f16, or 3 places up around that of bf16 */
    for (int i = 0; i < N; i++) {
        uint32_t top = (uint32_t)tk_bits() << 13;
        in[i] = top | low[i % 6];
        in[i] = i % 2 ? (top & 0xffff0000u) | low[i % 6] << 3 : in[i];
        /* f16 subnormals */
        in[i] = i % 5 ? in[i] : (in[i] & 0x807fffffu) | (uint32_t)(100 + i / 5 % 16) << 23;
    }
    tk_run(k, (void *[]){in, out}, NULL, 1, sizeof out);
    for (int i = 0; i < N; i++) {
        float v, f16, bf16;
        memcpy(&v, &in[i], 4);
        memcpy(&f16, &out[i], 4);
        memcpy(&bf16, &out[N + i], 4);
        float want16 = tci_round_f16(v), want_b16 = tci_round_bf16(v);
        CHECK(v != v ? f16 != f16 && bf16 != bf16
                     : memcmp(&want16, &f16, 4) == 0 && memcmp(&want_b16, &bf16, 4) == 0);
    }
    tk_close(k);
}

TEST(halves_convert_on_load_and_store)
{
    enum { N = 65536 };
    static uint16_t in[N], out[N];
    static float wide[N];
    for (int pass = 0; pass < 2; pass++) {
        tc_dtype t = pass ? TC_BF16 : TC_F16;
        tk_k *k = tk_open(TCI_VEC_OUTER);
        int a = tk_axis(k, N, false);
        int s = tk_stage(k, TCI_STAGE_MAP, 0, -1, -1);
        int x = tk_load(k, tci_kernel_operand(k->k, t, false, N), tk_ax(k, a));
        tk_store(k, s, tci_kernel_operand(k->k, t, true, N), tk_ax(k, a), x);
        tk_store(k, s, tci_kernel_operand(k->k, TC_F32, true, N), tk_ax(k, a), x);
        for (int i = 0; i < N; i++) {
            in[i] = (uint16_t)i;
        }
        tk_run(k, (void *[]){in, out, wide}, NULL, 1, sizeof out);
        for (int i = 0; i < N; i++) {
            double want = tci_value_load(t, &in[i]).f;
            CHECK(want != want ? wide[i] != wide[i] : wide[i] == (float)want && out[i] == in[i]);
        }
        tk_close(k);
    }
}

TEST(values_shared_by_stages_and_bool_masks)
{
    enum { ROWS = 3, N = 90 };
    /* out = sum(x > 0 ? x : 0) over n and the mask itself as bool, with the mask read in two
     * widths. */
    for (int pass = 0; pass < 2; pass++) {
        tk_k *t = tk_open(pass ? TCI_VEC_INNER : TCI_VEC_OUTER);
        int r = tk_axis(t, ROWS, false), c = tk_axis(t, N, true);
        int reduce = tk_stage(t, TCI_STAGE_REDUCE, 1, c, -1),
            map = tk_stage(t, TCI_STAGE_MAP, 1, c, -1);
        int at = tk_at(t, r, N, tk_ax(t, c));
        int x = tk_load(t, tci_kernel_operand(t->k, TC_F32, false, ROWS * N), at);
        int d = tk_load(t, tci_kernel_operand(t->k, TC_F64, false, ROWS * N), at);
        int b = tk_load(t, tci_kernel_operand(t->k, TC_BOOL, false, ROWS * N), at);
        int mask = tk_2(t, TCI_P_AND, TC_BOOL, tk_2(t, TCI_P_LT, TC_F32, tk_const(t, TC_F32, 0), x),
                        b);
        int v = tci_kernel_prim(t->k, TCI_P_SELECT, TC_F64, 3, mask, d, tk_const(t, TC_F64, 0));
        int sum = tk_red(t, TCI_RED_SUM, TC_F64, reduce, v, -1);
        int all = tk_red(t, TCI_RED_ALL, TC_BOOL, reduce, mask, -1);
        tk_store(t, map, tci_kernel_operand(t->k, TC_BOOL, true, ROWS * N), at, mask);
        int scaled = tk_2(t, TCI_P_MUL, TC_F64, v, sum);
        tk_store(t, map, tci_kernel_operand(t->k, TC_F64, true, ROWS * N), at, scaled);
        tk_store(t, map, tci_kernel_operand(t->k, TC_BOOL, true, ROWS * N), at, all);
        static float xs[ROWS * N];
        static double ds[ROWS * N], scaled_out[ROWS * N];
        static unsigned char bs[ROWS * N], mask_out[ROWS * N], all_out[ROWS * N];
        for (int i = 0; i < ROWS * N; i++) {
            xs[i] = i / N == 1 ? 1.0f : tk_float();
            ds[i] = (double)(int)(tk_bits() % 100);
            bs[i] = i / N == 1 || tk_bits() % 2;
        }
        tk_run(t, (void *[]){xs, ds, bs, mask_out, scaled_out, all_out}, NULL, 4,
               sizeof scaled_out);
        for (int row = 0; row < ROWS; row++) {
            double want = 0;
            for (int j = row * N; j < row * N + N; j++) {
                want += xs[j] > 0 && bs[j] ? ds[j] : 0;
            }
            for (int j = row * N; j < row * N + N; j++) {
                bool m = xs[j] > 0 && bs[j];
                CHECK_EQ_INT(mask_out[j], m);
                CHECK(scaled_out[j] == (m ? ds[j] * want : 0));
                CHECK_EQ_INT(all_out[j], row == 1);
            }
        }
        tk_close(t);
    }
}

TEST(no_outer_axis_and_empty_reduction)
{
    for (int pass = 0; pass < 4; pass++) {
        const int64_t n = pass < 2 ? 0 : 100;
        tk_k *t = tk_open(pass % 2 ? TCI_VEC_INNER : TCI_VEC_OUTER);
        int c = tk_axis(t, n, true);
        int reduce = tk_stage(t, TCI_STAGE_REDUCE, 1, c, -1),
            map = tk_stage(t, TCI_STAGE_MAP, 0, -1, -1);
        int x = tk_load(t, tci_kernel_operand(t->k, TC_I32, false, n), tk_ax(t, c));
        int o = tci_kernel_operand(t->k, TC_I32, true, 3);
        tk_store(t, map, o, tci_kx_const(t->k, 0), tk_red(t, TCI_RED_SUM, TC_I32, reduce, x, -1));
        tk_store(t, map, o, tci_kx_const(t->k, 1), tk_red(t, TCI_RED_PROD, TC_I32, reduce, x, -1));
        tk_store(t, map, o, tci_kx_const(t->k, 2), tk_red(t, TCI_RED_MAX, TC_I32, reduce, x, -1));
        int32_t in[100], out[3], sum = 0, max = INT32_MIN;
        uint32_t product = 1;
        for (int i = 0; i < 100; i++) {
            in[i] = (int32_t)(tk_bits() % 1000) * 2 - 999;
            sum += i < n ? in[i] : 0;
            product *= i < n ? (uint32_t)in[i] : 1;
            max = i < n && in[i] > max ? in[i] : max;
        }
        tk_run(t, (void *[]){in, out}, NULL, 1, sizeof out);
        CHECK_EQ_INT(out[0], sum);
        CHECK_EQ_INT((uint32_t)out[1], product);
        CHECK_EQ_INT(out[2], max);
        tk_close(t);
    }
}

TEST_MAIN
