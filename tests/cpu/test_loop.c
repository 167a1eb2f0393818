/* Judges the way from kernel IR to C: hand-built kernels are scheduled, printed and compiled for
 * several vector widths, and every result is compared bit for bit with the interpreter's (any NaN
 * equals any NaN). Operands end at a guard page, so a read or write past the end stops the test. */
#include "inside.h"

#include "../tc_test.h"
#include "loop_kernels.h"

/* ---- pointwise ---- */

static void pointwise_tail(int64_t n, tc_dtype t)
{
    char name[40];
    snprintf(name, sizeof(name), "tail_%s_%lld", tci_dtype_get(t)->name, (long long)n);
    tci_kernel *k = begin_kernel(name);
    int i = tci_kernel_axis(k, n, false);
    int a = tci_kernel_operand(k, t, false, n), b = tci_kernel_operand(k, t, false, n);
    int o = tci_kernel_operand(k, t, true, n);
    int x = tci_kx_axis(k, i);
    int v = op2(k, TCI_P_ADD, op2(k, TCI_P_MUL, load_at(k, a, x), load_at(k, b, x)),
                load_at(k, a, x));
    if (tci_dtype_is_half(t)) {
        v = op1(k, t == TC_F16 ? TCI_P_ROUND16 : TCI_P_ROUNDB16, v);
    }
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, x, v);
    end_kernel(k);
}

TEST(pointwise_tails)
{
    BEGIN();
    for (int64_t n = 0; n <= 130; n += n < 40 ? 1 : 5) {
        pointwise_tail(n, TC_F32);
    }
    static const tc_dtype dtypes[] = {TC_U8,  TC_I16,  TC_I32, TC_I64,
                                      TC_F16, TC_BF16, TC_F64, TC_U64};
    for (int t = 0; t < TCI_COUNT(dtypes); t++) {
        static const int sizes[] = {1, 2, 7, 16, 33, 64, 127, 5000};
        for (int s = 0; s < TCI_COUNT(sizes); s++) {
            pointwise_tail(sizes[s], dtypes[t]);
        }
    }
    pointwise_tail(200003, TC_F32);
    judge_all();
}

/* out[i, j] = a[strided] * literal + b[j] + row[i] with any strides of a */
static void strided_kernel(const char *name, int64_t m, int64_t n, int64_t stride_i,
                           int64_t stride_j, int64_t base, int64_t size, bool transposed_store)
{
    tci_kernel *k = begin_kernel(name);
    int i = tci_kernel_axis(k, m, false), j = tci_kernel_axis(k, n, false);
    int a = tci_kernel_operand(k, TC_F32, false, size), b = tci_kernel_operand(k, TC_F32, false, n);
    int r = tci_kernel_operand(k, TC_F32, false, m), o = tci_kernel_operand(k, TC_F32, true, m * n);
    int xa = tci_kx_add(k, tci_kx_add(k, axis_x(k, i, stride_i), axis_x(k, j, stride_j)),
                        tci_kx_const(k, base));
    int xo = transposed_store ? tci_kx_add(k, axis_x(k, i, 1), axis_x(k, j, m))
                              : tci_kx_add(k, axis_x(k, i, n), axis_x(k, j, 1));
    int v = op2(k, TCI_P_MUL, load_at(k, a, xa), literal(k, 0, TC_F32));
    v = op2(k, TCI_P_ADD, v, load_at(k, b, tci_kx_axis(k, j)));
    v = op2(k, TCI_P_ADD, v, op1(k, TCI_P_NEG, load_at(k, r, tci_kx_axis(k, i))));
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, xo, v);
    end_kernel(k);
}

TEST(pointwise_strides)
{
    BEGIN();
    strided_kernel("dense", 7, 133, 133, 1, 0, 7 * 133, false);
    strided_kernel("transpose", 37, 75, 1, 37, 0, 37 * 75, false);
    strided_kernel("transpose_big", 300, 200, 1, 300, 0, 300 * 200, false);
    strided_kernel("transposed_store", 70, 130, 130, 1, 0, 70 * 130, true);
    strided_kernel("step2", 5, 61, 122, 2, 0, 5 * 122, false);
    strided_kernel("flip", 5, 61, 61, -1, 60, 5 * 61, false);
    strided_kernel("broadcast", 9, 40, 1, 0, 0, 9, false);
    strided_kernel("long_row", 2, 70001, 70001, 1, 0, 2 * 70001, false);
    judge_all();
}

/* out[i, j, c] = a[j, i, c] + 1: rows in another order, in blocks where m has a divisor for one */
static void rows_kernel(int64_t n, int64_t m, int64_t length)
{
    tci_kernel *k = begin_kernel("rows_in_order");
    int i = tci_kernel_axis(k, n, false), j = tci_kernel_axis(k, m, false);
    int c = tci_kernel_axis(k, length, false);
    int a = tci_kernel_operand(k, TC_F32, false, n * m * length);
    int o = tci_kernel_operand(k, TC_F32, true, n * m * length);
    int xa = tci_kx_add(k, axis_x(k, i, length), axis_x(k, j, n * length));
    int xo = tci_kx_add(k, axis_x(k, i, m * length), axis_x(k, j, length));
    int v = op2(k, TCI_P_ADD, load_at(k, a, tci_kx_add(k, xa, axis_x(k, c, 1))),
                literal(k, 0, TC_F32));
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, tci_kx_add(k, xo, axis_x(k, c, 1)), v);
    end_kernel(k);
}

TEST(pointwise_rows_in_another_order)
{
    BEGIN();
    rows_kernel(24, 96, 64); /* six blocks of 16 */
    rows_kernel(30, 95, 50); /* 19 of 5 */
    rows_kernel(30, 97, 50); /* none */
    judge_all();
}

TEST(pointwise_mixed_dtypes)
{
    BEGIN();
    for (int64_t n = 3; n < 100; n += 31) {
        tci_kernel *k = begin_kernel("mixed");
        int i = tci_kernel_axis(k, n, false), x = tci_kx_axis(k, i);
        int a = tci_kernel_operand(k, TC_U8, false, n),
            b = tci_kernel_operand(k, TC_BF16, false, n);
        int c = tci_kernel_operand(k, TC_F64, false, n),
            m = tci_kernel_operand(k, TC_BOOL, false, n);
        int o = tci_kernel_operand(k, TC_F64, true, n),
            o2 = tci_kernel_operand(k, TC_BOOL, true, n);
        int o3 = tci_kernel_operand(k, TC_I32, true, n);
        int f = op2(k, TCI_P_ADD, cast(k, load_at(k, a, x), TC_F32), load_at(k, b, x));
        int d = op2(k, TCI_P_MUL, cast(k, f, TC_F64), load_at(k, c, x));
        int less = tci_kernel_prim(k, TCI_P_LT, TC_BOOL, 2, d, load_at(k, c, x), -1);
        int both = op2(k, TCI_P_AND, less, load_at(k, m, x));
        int st = add_stage(k, TCI_STAGE_MAP, 0, NULL);
        add_store(k, st, o, x, select3(k, both, d, load_at(k, c, x)));
        add_store(k, st, o2, x, both);
        add_store(k, st, o3, x, cast(k, f, TC_I32));
        end_kernel(k);
        k = begin_kernel("iota");
        i = tci_kernel_axis(k, 3, false);
        int j = tci_kernel_axis(k, n, false);
        o = tci_kernel_operand(k, TC_F32, true, 3 * n);
        x = tci_kx_add(k, axis_x(k, i, n), axis_x(k, j, 1));
        int v = index_of(k, tci_kx_add(k, axis_x(k, i, 5), axis_x(k, j, 3)));
        int w = index_of(k, tci_kx_div(k, axis_x(k, j, 1), 7));
        v = op2(k, TCI_P_ADD, op2(k, TCI_P_ADD, v, w), index_of(k, tci_kx_axis(k, j)));
        add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, x, cast(k, v, TC_F32));
        end_kernel(k);
        k = begin_kernel("bools");
        i = tci_kernel_axis(k, n, false);
        a = tci_kernel_operand(k, TC_BOOL, false, n);
        b = tci_kernel_operand(k, TC_BOOL, false, n);
        o = tci_kernel_operand(k, TC_BOOL, true, n);
        x = tci_kx_axis(k, i);
        add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, x,
                  op2(k, TCI_P_OR, load_at(k, a, x), op1(k, TCI_P_NOT, load_at(k, b, x))));
        end_kernel(k);
    }
    judge_all();
}

/* ---- guards and gathers ---- */

static void pad_kernel(int64_t n, int64_t before, int64_t after, double fill, int64_t step)
{
    tci_kernel *k = begin_kernel("pad");
    int64_t m = (n + before + after + step - 1) / step;
    int r = tci_kernel_axis(k, 3, false), i = tci_kernel_axis(k, m, false);
    int a = tci_kernel_operand(k, TC_F32, false, 3 * n),
        o = tci_kernel_operand(k, TC_F32, true, 3 * m);
    int at = tci_kx_add(k, axis_x(k, i, step), tci_kx_const(k, -before));
    int v = guarded_load(k, a, tci_kx_add(k, axis_x(k, r, n), at), at, 0, n - 1, fill);
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o,
              tci_kx_add(k, axis_x(k, r, m), axis_x(k, i, 1)), v);
    end_kernel(k);
}

static void pad_rows_kernel(int64_t n)
{
    tci_kernel *k = begin_kernel("pad_rows");
    int r = tci_kernel_axis(k, 7, false), i = tci_kernel_axis(k, n, false);
    int a = tci_kernel_operand(k, TC_F32, false, 4 * n),
        o = tci_kernel_operand(k, TC_F32, true, 7 * n);
    int at = tci_kx_add(k, axis_x(k, r, 1), tci_kx_const(k, -1));
    int v = guarded_load(k, a, tci_kx_add(k, tci_kx_mul(k, at, n), axis_x(k, i, 1)), at, 0, 3, 2.5);
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o,
              tci_kx_add(k, axis_x(k, r, n), axis_x(k, i, 1)), v);
    end_kernel(k);
}

/* three parts joined, chosen by guard values; the middle one flipped */
static void cat_kernel(int64_t n)
{
    tci_kernel *k = begin_kernel("cat");
    int64_t m = 3 * n + 5;
    int i = tci_kernel_axis(k, m, false), x = tci_kx_axis(k, i);
    int a = tci_kernel_operand(k, TC_F32, false, n), b = tci_kernel_operand(k, TC_F32, false, n);
    int c = tci_kernel_operand(k, TC_F32, false, n + 5), o = tci_kernel_operand(k, TC_F32, true, m);
    int va = guarded_load(k, a, x, x, 0, n - 1, 0);
    int vb = guarded_load(k, b, tci_kx_add(k, tci_kx_mul(k, x, -1), tci_kx_const(k, 2 * n - 1)), x,
                          n, 2 * n - 1, 0);
    int vc = guarded_load(k, c, tci_kx_add(k, x, tci_kx_const(k, -2 * n)), x, 2 * n, m - 1, 0);
    tci_kinst g = {0};
    g.op = TCI_K_GUARD;
    g.dtype = TC_BOOL;
    g.x = -1;
    g.n_guards = 1;
    g.guard = k->insts[vb].guard;
    int in_b = tci_kernel_inst(k, g);
    g.guard = k->insts[va].guard;
    int in_a = tci_kernel_inst(k, g);
    int v = select3(k, in_a, va, select3(k, in_b, vb, vc));
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, x,
              op1(k, TCI_P_SQRT, op1(k, TCI_P_ABS, v)));
    end_kernel(k);
}

/* out[i, j] = table[index[i, j] (faulting), j mod 3] in two forms of vector dependence */
static void gather_kernel(int64_t n, bool by_row)
{
    tci_kernel *k = begin_kernel(by_row ? "gather_rows" : "gather_lanes");
    int i = tci_kernel_axis(k, 6, false), j = tci_kernel_axis(k, n, false);
    int table = tci_kernel_operand(k, TC_F32, false, 20 * n);
    int index = tci_kernel_operand(k, TC_I32, false, 6 * n),
        o = tci_kernel_operand(k, TC_F32, true, 6 * n);
    int at = by_row ? axis_x(k, i, 1) : tci_kx_add(k, axis_x(k, i, n), axis_x(k, j, 1));
    int row = fault(k, cast(k, load_at(k, index, at), TC_I64), 20);
    int x = tci_kx_add(k, tci_kx_mul(k, tci_kx_value(k, row, 0, 19), n), axis_x(k, j, 1));
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o,
              tci_kx_add(k, axis_x(k, i, n), axis_x(k, j, 1)),
              op1(k, TCI_P_NEG, load_at(k, table, x)));
    end_kernel(k);
}

TEST(guards_and_gathers)
{
    BEGIN();
    for (int64_t n = 1; n < 140; n += 23) {
        pad_kernel(n, 2, 3, 0, 1);
        pad_kernel(n, 17, 0, 1.5, 1);
        pad_kernel(n, 3, 70, -1, 2);
        pad_rows_kernel(n);
        cat_kernel(n);
        gather_kernel(n, false);
        gather_kernel(n, true);
    }
    pad_kernel(100000, 5, 9, 0.5, 1);
    cat_kernel(70000);
    judge_all();
}

/* an index map that is not affine: rows of 12 read from rows of 5 */
TEST(quotients_and_remainders)
{
    BEGIN();
    for (int64_t n = 11; n < 80; n += 20) {
        tci_kernel *k = begin_kernel("div_mod");
        int i = tci_kernel_axis(k, n, false), x = tci_kx_axis(k, i);
        int a = tci_kernel_operand(k, TC_F32, false, 5 * n),
            o = tci_kernel_operand(k, TC_F32, true, n);
        int shifted = tci_kx_add(k, x, tci_kx_const(k, -7));
        int row = tci_kx_add(k, tci_kx_div(k, shifted, 12), tci_kx_const(k, 1));
        int at = tci_kx_add(k, tci_kx_mul(k, row, 5), tci_kx_mod(k, shifted, 5));
        add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, x, load_at(k, a, at));
        end_kernel(k);
    }
    judge_all();
}

/* ---- reductions ---- */

/* out[m] over b x n of a[m, b, n]; op of x, of a MATH of x, ... */
static void reduce_kernel(tci_red_op op, tc_dtype t, int64_t m, int64_t b, int64_t n, bool inner)
{
    char name[64];
    snprintf(name, sizeof(name), "red%d_%s_%lldx%lldx%lld_%s", op, tci_dtype_get(t)->name,
             (long long)m, (long long)b, (long long)n, inner ? "inner" : "outer");
    tci_kernel *k = begin_kernel(name);
    bool arg = op == TCI_RED_ARGMAX || op == TCI_RED_ARGMIN;
    tc_dtype to = arg ? TC_I64 : t;
    int im = tci_kernel_axis(k, m, false), ib = tci_kernel_axis(k, b, true),
        in = tci_kernel_axis(k, n, true);
    k->vector = inner ? TCI_VEC_INNER : TCI_VEC_OUTER;
    int a = tci_kernel_operand(k, t, false, m * b * n), o = tci_kernel_operand(k, to, true, m);
    int64_t sm = inner ? b * n : 1, sb = inner ? n : n * m, sn = inner ? 1 : m;
    int x = tci_kx_add(k, tci_kx_add(k, axis_x(k, im, sm), axis_x(k, ib, sb)), axis_x(k, in, sn));
    int flat = tci_kx_add(k, axis_x(k, ib, n), axis_x(k, in, 1));
    int axes[2] = {ib, in};
    int st = add_stage(k, TCI_STAGE_REDUCE, 2, axes);
    int v = load_at(k, a, x), second = arg ? index_of(k, flat) : -1;
    if (op == TCI_RED_ONLINE) { /* of v alone the sum is 1, or NaN where v is */
        second = op2(k, TCI_P_ADD, op2(k, TCI_P_SUB, v, v), constant(k, t, 1));
    }
    int r = add_red(k, op, st, v, second);
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, tci_kx_axis(k, im), r);
    end_kernel(k);
}

TEST(reductions)
{
    BEGIN();
    static const tci_red_op ops[] = {TCI_RED_SUM,    TCI_RED_PROD,   TCI_RED_MAX,   TCI_RED_MIN,
                                     TCI_RED_ARGMAX, TCI_RED_ARGMIN, TCI_RED_ONLINE};
    static const int64_t sizes[] = {0, 1, 5, 15, 16, 17, 63, 64, 65, 100, 128, 131, 1000};
    for (int s = 0; s < TCI_COUNT(sizes); s++) {
        for (int o = 0; o < TCI_COUNT(ops); o++) {
            bool arg = ops[o] == TCI_RED_ARGMAX || ops[o] == TCI_RED_ARGMIN;
            if (!(arg && sizes[s] == 0)) {
                reduce_kernel(ops[o], TC_F32, 3, 2, sizes[s], true);
                reduce_kernel(ops[o], TC_F32, sizes[s], 2, 3, false);
            }
        }
        reduce_kernel(TCI_RED_SUM, TC_F64, 2, 1, sizes[s], true);
        reduce_kernel(TCI_RED_SUM, TC_I32, 2, 3, sizes[s], true);
        reduce_kernel(TCI_RED_MAX, TC_U8, 2, 3, sizes[s], true);
        reduce_kernel(TCI_RED_MIN, TC_I64, sizes[s], 3, 4, false);
        reduce_kernel(TCI_RED_ANY, TC_BOOL, 2, 3, sizes[s], true);
        reduce_kernel(TCI_RED_ALL, TC_BOOL, sizes[s], 3, 2, false);
    }
    reduce_kernel(TCI_RED_ARGMAX, TC_F64, 3, 2, 77, true);
    reduce_kernel(TCI_RED_ONLINE, TC_F64, 3, 2, 777, true);
    reduce_kernel(TCI_RED_ONLINE, TC_F64, 30, 2, 70, false);
    reduce_kernel(TCI_RED_ARGMIN, TC_I32, 30, 2, 7, false);
    judge_all();
}

/* softmax over the last axis of m x n, in t */
static void softmax_kernel(int64_t m, int64_t n, tc_dtype t, bool inner)
{
    tci_kernel *k = begin_kernel(inner ? "softmax" : "softmax_columns");
    int i = tci_kernel_axis(k, m, false), j = tci_kernel_axis(k, n, true);
    k->vector = inner ? TCI_VEC_INNER : TCI_VEC_OUTER;
    int a = tci_kernel_operand(k, t, false, m * n), o = tci_kernel_operand(k, t, true, m * n);
    int x = tci_kx_add(k, axis_x(k, i, inner ? n : 1), axis_x(k, j, inner ? 1 : m));
    int v = load_at(k, a, x);
    int best = add_red(k, TCI_RED_MAX, add_stage(k, TCI_STAGE_REDUCE, 1, &j), v, -1);
    int e = op1(k, TCI_P_EXP, op2(k, TCI_P_SUB, v, best));
    int sum = add_red(k, TCI_RED_SUM, add_stage(k, TCI_STAGE_REDUCE, 1, &j), e, -1);
    int y = op2(k, TCI_P_DIV, e, sum);
    if (t == TC_BF16) {
        y = op1(k, TCI_P_ROUNDB16, y);
    }
    add_store(k, add_stage(k, TCI_STAGE_MAP, 1, &j), o, x, y);
    end_kernel(k);
}

/* (x - mean) / sqrt(variance + literal), two reductions in one stage, both results stored too */
static void moments_kernel(int64_t m, int64_t n)
{
    tci_kernel *k = begin_kernel("moments");
    int i = tci_kernel_axis(k, m, false), j = tci_kernel_axis(k, n, true);
    k->vector = TCI_VEC_INNER;
    int a = tci_kernel_operand(k, TC_F32, false, m * n),
        o = tci_kernel_operand(k, TC_F32, true, m * n);
    int om = tci_kernel_operand(k, TC_F32, true, m);
    int x = tci_kx_add(k, axis_x(k, i, n), axis_x(k, j, 1));
    int v = load_at(k, a, x), st = add_stage(k, TCI_STAGE_REDUCE, 1, &j);
    int sum = add_red(k, TCI_RED_SUM, st, v, -1);
    int squares = add_red(k, TCI_RED_SUM, st, op2(k, TCI_P_MUL, v, v), -1);
    int count = constant(k, TC_F32, (double)n);
    int mean = op2(k, TCI_P_DIV, sum, count);
    int variance = op2(k, TCI_P_SUB, op2(k, TCI_P_DIV, squares, count),
                       op2(k, TCI_P_MUL, mean, mean));
    int scale = op1(k, TCI_P_SQRT,
                    op1(k, TCI_P_ABS, op2(k, TCI_P_ADD, variance, literal(k, 0, TC_F32))));
    int y = op2(k, TCI_P_DIV, op2(k, TCI_P_SUB, v, mean), scale);
    add_store(k, add_stage(k, TCI_STAGE_MAP, 1, &j), o, x, y);
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), om, tci_kx_axis(k, i), mean);
    end_kernel(k);
}

TEST(row_kernels)
{
    BEGIN();
    static const int64_t sizes[] = {1, 3, 16, 31, 64, 100, 129, 1000, 40000};
    for (int s = 0; s < TCI_COUNT(sizes); s++) {
        softmax_kernel(3, sizes[s], TC_F32, true);
        softmax_kernel(2, sizes[s], TC_BF16, true);
        softmax_kernel(2, sizes[s], TC_F64, true);
        softmax_kernel(sizes[s], 5, TC_F32, false);
        moments_kernel(4, sizes[s]);
    }
    judge_all();
}

/* ---- memory that is far away: streamed stores, rows fetched ahead, panels, squares ---- */

/* Schedules go by the size of the operands and by the bytes a kernel is said to move. */
static void pretend_far(void)
{
    kernels[n_kernels - 1]->bytes = (int64_t)64 << 20;
}

/* The latest kernel is scheduled as the test means it to be. */
static void expect_schedule(const char *word)
{
    tci_launch launch;
    tci_machine machine = {.vector_bytes = 64, .thread_scratch = true};
    tci_loop_schedule(&scratch, kernels[n_kernels - 1], machine, &launch);
    CHECK_MSG(strstr(launch.note, word) != NULL, "%s: %s, expected %s", names[n_kernels - 1],
              launch.note, word);
}

/* out[j] = literal * sum of a[i, j]^2 + largest of w[i] * a[i, j] */
static void columns_kernel(int64_t rows, int64_t columns, tc_dtype t)
{
    char name[64];
    snprintf(name, sizeof(name), "columns_%s_%lldx%lld", tci_dtype_get(t)->name, (long long)rows,
             (long long)columns);
    tci_kernel *k = begin_kernel(name);
    int j = tci_kernel_axis(k, columns, false), i = tci_kernel_axis(k, rows, true);
    int a = tci_kernel_operand(k, t, false, rows * columns);
    int w = tci_kernel_operand(k, t, false, rows), o = tci_kernel_operand(k, t, true, columns);
    int v = load_at(k, a, tci_kx_add(k, axis_x(k, i, columns), axis_x(k, j, 1)));
    int st = add_stage(k, TCI_STAGE_REDUCE, 1, &i);
    int sum = add_red(k, TCI_RED_SUM, st, op2(k, TCI_P_MUL, v, v), -1);
    int weighed = op2(k, TCI_P_MUL, load_at(k, w, tci_kx_axis(k, i)), v);
    int largest = add_red(k, TCI_RED_MAX, st, weighed, -1);
    int y = op2(k, TCI_P_ADD, op2(k, TCI_P_MUL, sum, literal(k, 0, compute_of(t))), largest);
    y = t == TC_BF16 ? op1(k, TCI_P_ROUNDB16, y) : y;
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, tci_kx_axis(k, j), y);
    end_kernel(k);
    pretend_far();
    expect_schedule("panel");
}

/* b[j, i] = a[i, j] + c[j, i] */
static void turned_kernel(int64_t m, int64_t n, tc_dtype t)
{
    char name[64];
    snprintf(name, sizeof(name), "turned_%s_%lldx%lld", tci_dtype_get(t)->name, (long long)m,
             (long long)n);
    tci_kernel *k = begin_kernel(name);
    int j = tci_kernel_axis(k, n, false), i = tci_kernel_axis(k, m, false);
    int a = tci_kernel_operand(k, t, false, m * n), c = tci_kernel_operand(k, t, false, m * n);
    int b = tci_kernel_operand(k, t, true, m * n);
    int x = tci_kx_add(k, axis_x(k, j, m), axis_x(k, i, 1));
    int from = tci_kx_add(k, axis_x(k, i, n), axis_x(k, j, 1));
    int y = op2(k, TCI_P_ADD, load_at(k, a, from), load_at(k, c, x));
    y = t == TC_BF16 ? op1(k, TCI_P_ROUNDB16, y) : y;
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), b, x, y);
    end_kernel(k);
    expect_schedule(n * tci_dtype_get(t)->bytes >= 64 ? "square" : "vector");
}

/* Two large outputs whose memory is not aligned in the same way. */
static void two_streams_kernel(int64_t n)
{
    tci_kernel *k = begin_kernel("two_streams");
    int i = tci_kernel_axis(k, n, false), x = tci_kx_axis(k, i);
    int a = tci_kernel_operand(k, TC_F32, false, n);
    int b = tci_kernel_operand(k, TC_F32, true, n), c = tci_kernel_operand(k, TC_F32, true, n + 2);
    int st = add_stage(k, TCI_STAGE_MAP, 0, NULL), v = load_at(k, a, x);
    add_store(k, st, b, x, op1(k, TCI_P_NEG, v));
    add_store(k, st, c, tci_kx_add(k, x, tci_kx_const(k, 2)), op1(k, TCI_P_ABS, v));
    end_kernel(k);
}

TEST(panels)
{
    BEGIN();
    static const int64_t rows[] = {8, 9, 23}, columns[] = {512, 525, 1100, 4099};
    for (int r = 0; r < TCI_COUNT(rows); r++) {
        for (int c = 0; c < TCI_COUNT(columns); c++) {
            columns_kernel(rows[r], columns[c], TC_F32);
        }
    }
    columns_kernel(17, 1030, TC_F64);
    columns_kernel(17, 1030, TC_I32);
    columns_kernel(17, 1030, TC_BF16);
    columns_kernel(9, 600, TC_I8);
    judge_all();
}

TEST(squares)
{
    BEGIN();
    static const tc_dtype dtypes[] = {TC_F32, TC_F64, TC_BF16, TC_U8, TC_I16};
    for (int t = 0; t < TCI_COUNT(dtypes); t++) {
        turned_kernel(64, 64, dtypes[t]);
        turned_kernel(67, 131, dtypes[t]);
        turned_kernel(5, 300, dtypes[t]);
        turned_kernel(300, 5, dtypes[t]);
    }
    turned_kernel(2900, 2901, TC_F32);
    judge_all();
}

TEST(streams)
{
    BEGIN();
    two_streams_kernel(((int64_t)8 << 20) + 5);
    expect_schedule("stream");
    softmax_kernel(8200, 1027, TC_F32, true);
    expect_schedule("stream");
    softmax_kernel(17, 1027, TC_F32, true);
    pretend_far();
    moments_kernel(9, 700);
    pretend_far();
    judge_all();
}

/* Sums of the parts of a padded row, read forwards or backwards: most are inside as a whole, the
 * first and the last ones in part or not at all. */
static void parts_kernel(int64_t length, bool backwards)
{
    enum { PARTS = 7 };
    tci_kernel *k = begin_kernel(backwards ? "parts_backwards" : "parts");
    int64_t n = (PARTS - 3) * length + length / 3, sign = backwards ? -1 : 1;
    int i = tci_kernel_axis(k, PARTS, false), j = tci_kernel_axis(k, length, true);
    k->vector = TCI_VEC_INNER;
    int a = tci_kernel_operand(k, TC_F32, false, n), o = tci_kernel_operand(k, TC_F32, true, PARTS);
    int at = tci_kx_add(k, axis_x(k, i, sign * length), axis_x(k, j, sign));
    at = tci_kx_add(k, at, tci_kx_const(k, backwards ? n + length / 2 : -length / 2));
    int r = add_red(k, TCI_RED_SUM, add_stage(k, TCI_STAGE_REDUCE, 1, &j),
                    guarded_load(k, a, at, at, 0, n - 1, 0.25), -1);
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, tci_kx_axis(k, i), r);
    end_kernel(k);
}

/* guarded inner reduction: a moving sum over a padded row */
TEST(guarded_reductions)
{
    BEGIN();
    for (int64_t n = 1; n < 300; n += 37) {
        tci_kernel *k = begin_kernel("window_inner");
        int64_t size = n + 20;
        int i = tci_kernel_axis(k, 5, false), j = tci_kernel_axis(k, size, true);
        k->vector = TCI_VEC_INNER;
        int a = tci_kernel_operand(k, TC_F32, false, n), o = tci_kernel_operand(k, TC_F32, true, 5);
        int at = tci_kx_add(k, tci_kx_add(k, axis_x(k, i, 3), axis_x(k, j, 1)),
                            tci_kx_const(k, -15));
        int r = add_red(k, TCI_RED_MAX, add_stage(k, TCI_STAGE_REDUCE, 1, &j),
                        guarded_load(k, a, at, at, 0, n - 1, -INFINITY), -1);
        add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, tci_kx_axis(k, i), r);
        end_kernel(k);
        k = begin_kernel("window_outer");
        i = tci_kernel_axis(k, n, false);
        j = tci_kernel_axis(k, 5, true);
        a = tci_kernel_operand(k, TC_F32, false, n);
        o = tci_kernel_operand(k, TC_F32, true, n);
        at = tci_kx_add(k, tci_kx_add(k, axis_x(k, i, 1), axis_x(k, j, 1)), tci_kx_const(k, -2));
        r = add_red(k, TCI_RED_SUM, add_stage(k, TCI_STAGE_REDUCE, 1, &j),
                    guarded_load(k, a, at, at, 0, n - 1, 0.25), -1);
        add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, tci_kx_axis(k, i), r);
        end_kernel(k);
        parts_kernel(n + 60, false);
        parts_kernel(n + 60, true);
    }
    judge_all();
}

/* ---- contractions ---- */

static void matmul_kernel(int64_t m, int64_t n, int64_t p, tc_dtype t, bool b_transposed,
                          bool epilogue)
{
    char name[64];
    snprintf(name, sizeof(name), "matmul_%s_%lldx%lldx%lld%s", tci_dtype_get(t)->name, (long long)m,
             (long long)n, (long long)p, b_transposed ? "_t" : "");
    tci_kernel *k = begin_kernel(name);
    int i = tci_kernel_axis(k, m, false), j = tci_kernel_axis(k, n, false),
        q = tci_kernel_axis(k, p, true);
    int a = tci_kernel_operand(k, t, false, m * p), b = tci_kernel_operand(k, t, false, p * n);
    int bias = tci_kernel_operand(k, t, false, n), o = tci_kernel_operand(k, t, true, m * n);
    int va = load_at(k, a, tci_kx_add(k, axis_x(k, i, p), axis_x(k, q, 1)));
    int vb = load_at(k, b,
                     tci_kx_add(k, axis_x(k, q, b_transposed ? 1 : n),
                                axis_x(k, j, b_transposed ? p : 1)));
    int r = add_red(k, TCI_RED_DOT, add_stage(k, TCI_STAGE_REDUCE, 1, &q), va, vb);
    if (epilogue) {
        r = op2(k, TCI_P_PMAX, op2(k, TCI_P_ADD, r, load_at(k, bias, tci_kx_axis(k, j))),
                constant(k, compute_of(t), 0));
    }
    if (t == TC_BF16) {
        r = op1(k, TCI_P_ROUNDB16, r);
    }
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o,
              tci_kx_add(k, axis_x(k, i, n), axis_x(k, j, 1)), r);
    end_kernel(k);
}

TEST(contractions)
{
    BEGIN();
    matmul_kernel(1, 40, 17, TC_F32, false, true);
    matmul_kernel(5, 7, 9, TC_F32, false, false);
    matmul_kernel(37, 37, 37, TC_F32, false, true);
    matmul_kernel(64, 64, 64, TC_F32, true, false);
    matmul_kernel(100, 48, 30, TC_F32, false, true);
    matmul_kernel(29, 33, 10, TC_F64, false, true);
    matmul_kernel(29, 33, 10, TC_BF16, false, true);
    matmul_kernel(13, 50, 11, TC_I32, true, false);
    matmul_kernel(4, 6, 0, TC_F32, false, true);
    matmul_kernel(130, 200, 70, TC_F32, false, true);
    judge_all();
}

/* convolution: out[y, x, c] = sum over ky, kx, d of in[y + ky - 1, x + kx - 1, d] * w[ky, kx, d,
 * c] */
TEST(convolution)
{
    BEGIN();
    for (int64_t c = 3; c < 40; c += 15) {
        tci_kernel *k = begin_kernel("conv");
        int64_t h = 5, w = 9, d = 4;
        int y = tci_kernel_axis(k, h, false), x = tci_kernel_axis(k, w, false),
            oc = tci_kernel_axis(k, c, false);
        int axes[3] = {tci_kernel_axis(k, 3, true), tci_kernel_axis(k, 3, true),
                       tci_kernel_axis(k, d, true)};
        int in = tci_kernel_operand(k, TC_F32, false, h * w * d);
        int weight = tci_kernel_operand(k, TC_F32, false, 9 * d * c),
            o = tci_kernel_operand(k, TC_F32, true, h * w * c);
        int iy = tci_kx_add(k, tci_kx_add(k, axis_x(k, y, 1), axis_x(k, axes[0], 1)),
                            tci_kx_const(k, -1));
        int ix = tci_kx_add(k, tci_kx_add(k, axis_x(k, x, 1), axis_x(k, axes[1], 1)),
                            tci_kx_const(k, -1));
        int at = tci_kx_add(k, tci_kx_add(k, tci_kx_mul(k, iy, w * d), tci_kx_mul(k, ix, d)),
                            axis_x(k, axes[2], 1));
        tci_kguard gx = {ix, 0, w - 1};
        int va = guarded_load(k, in, at, iy, 0, h - 1, 0);
        TCI_PUSH(&scratch, k->guards, k->n_guards, k->cap_guards, gx);
        tci_kinst both = k->insts[va];
        both.n_guards = 2;
        va = tci_kernel_inst(k, both);
        int xw = tci_kx_add(k,
                            tci_kx_add(k, axis_x(k, axes[0], 3 * d * c), axis_x(k, axes[1], d * c)),
                            tci_kx_add(k, axis_x(k, axes[2], c), axis_x(k, oc, 1)));
        int r = add_red(k, TCI_RED_DOT, add_stage(k, TCI_STAGE_REDUCE, 3, axes), va,
                        load_at(k, weight, xw));
        int xo = tci_kx_add(k, tci_kx_add(k, axis_x(k, y, w * c), axis_x(k, x, c)),
                            axis_x(k, oc, 1));
        add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, xo, r);
        end_kernel(k);
    }
    judge_all();
}

/* Of images in[d, y, x] and c filters of 3 x 3, no padding: out[c, y, x], whose columns are the
 * places of an image, of filters [c, d, ky, kx] or, turned, [d, c, 2 - ky, 2 - kx]; or the gradient
 * to the filters, out[c, d, ky, kx], whose rows are all axes but the first. */
static void images_of(int64_t c, int64_t d, int64_t h, int64_t w, int64_t stride, bool gradient,
                      bool turned)
{
    tci_kernel *k = begin_kernel(gradient ? "filters" : turned ? "turned" : "images");
    int64_t height = (h - 1) * stride + 3, width = (w - 1) * stride + 3;
    int oc = tci_kernel_axis(k, c, false), ic = -1, y = -1, x = -1, ky = -1, kx = -1, inner[3];
    for (int pass = 0; pass < 2; pass++) { /* outer axes, then those that are summed */
        if (pass == gradient) {
            y = tci_kernel_axis(k, h, pass);
            x = tci_kernel_axis(k, w, pass);
        }
        if (pass != gradient) {
            ic = tci_kernel_axis(k, d, pass);
            ky = tci_kernel_axis(k, 3, pass);
            kx = tci_kernel_axis(k, 3, pass);
        }
    }
    int n_inner = gradient ? 2 : 3;
    inner[0] = gradient ? y : ic;
    inner[1] = gradient ? x : ky;
    inner[2] = kx;
    int image = tci_kernel_operand(k, TC_F32, false, d * height * width);
    int other = tci_kernel_operand(k, TC_F32, false, gradient ? c * h * w : c * d * 9);
    int o = tci_kernel_operand(k, TC_F32, true, gradient ? c * d * 9 : c * h * w);
    int at = tci_kx_add(k, axis_x(k, ic, height * width), axis_x(k, y, stride * width));
    at = tci_kx_add(k, tci_kx_add(k, at, axis_x(k, x, stride)),
                    tci_kx_add(k, axis_x(k, ky, width), axis_x(k, kx, 1)));
    int places = tci_kx_add(k, tci_kx_add(k, axis_x(k, oc, h * w), axis_x(k, y, w)),
                            axis_x(k, x, 1));
    int filters = tci_kx_add(k, axis_x(k, oc, turned ? 9 : d * 9),
                             axis_x(k, ic, turned ? c * 9 : 9));
    filters = tci_kx_add(
        k, filters, tci_kx_add(k, axis_x(k, ky, turned ? -3 : 3), axis_x(k, kx, turned ? -1 : 1)));
    filters = turned ? tci_kx_add(k, filters, tci_kx_const(k, 8)) : filters;
    int value = load_at(k, other, gradient ? places : filters);
    int r = add_red(k, TCI_RED_DOT, add_stage(k, TCI_STAGE_REDUCE, n_inner, inner),
                    load_at(k, image, at), value);
    add_store(k, add_stage(k, TCI_STAGE_MAP, 0, NULL), o, gradient ? filters : places, r);
    end_kernel(k);
}

static void images_kernel(int64_t c, int64_t d, int64_t h, int64_t w, int64_t stride, bool gradient)
{
    images_of(c, d, h, w, stride, gradient, false);
}

TEST(sides_of_several_axes)
{
    BEGIN();
    images_kernel(9, 5, 7, 7, 1, false);   /* a vector is parts of three rows */
    images_kernel(20, 3, 9, 37, 2, false); /* gathers */
    images_kernel(40, 3, 6, 50, 1, true);  /* vectors along the filters */
    images_kernel(8, 11, 40, 41, 1, true); /* more places than a block is deep */
    images_kernel(20, 4, 1, 1, 1, true);
    images_of(17, 20, 9, 9, 1, false, true); /* rows in place, runs of 9 of a depth of two blocks */
    images_of(14, 70, 7, 7, 1, false, true);
    judge_all();
}

/* ---- scans ---- */

/* Running sums of m rows of n, and half of each. */
static void add_running_rows(tc_dtype t, int64_t m, int64_t n)
{
    tci_kernel *k = begin_kernel("running_rows");
    k->vector = TCI_VEC_INNER;
    int i = tci_kernel_axis(k, m, false), j = tci_kernel_axis(k, n, true);
    int a = tci_kernel_operand(k, t, false, m * n), o = tci_kernel_operand(k, t, true, m * n);
    int half = tci_kernel_operand(k, t, true, m * n);
    int x = tci_kx_add(k, axis_x(k, i, n), axis_x(k, j, 1));
    int st = add_stage(k, TCI_STAGE_SCAN, 1, &j);
    int v = load_at(k, a, x), r = add_red(k, TCI_RED_SUM, st, op1(k, TCI_P_NEG, v), -1);
    add_store(k, st, o, x, r);
    add_store(k, st, half, x, op2(k, TCI_P_SUB, r, v));
    end_kernel(k);
}

TEST(scans)
{
    BEGIN();
    for (int64_t m = 1; m < 100; m += 33) {
        tci_kernel *k = begin_kernel("cumsum");
        int64_t n = 21;
        int i = tci_kernel_axis(k, m, false), j = tci_kernel_axis(k, n, true);
        int a = tci_kernel_operand(k, TC_F32, false, m * n),
            o = tci_kernel_operand(k, TC_F32, true, m * n);
        int last = tci_kernel_operand(k, TC_F32, true, m);
        int x = tci_kx_add(k, axis_x(k, i, n), axis_x(k, j, 1));
        int st = add_stage(k, TCI_STAGE_SCAN, 1, &j);
        int r = add_red(k, TCI_RED_SUM, st, load_at(k, a, x), -1);
        add_store(k, st, o, x, op1(k, TCI_P_NEG, r));
        end_kernel(k);
        (void)last;
        k = begin_kernel("cumsum_columns");
        i = tci_kernel_axis(k, m, false);
        j = tci_kernel_axis(k, n, true);
        a = tci_kernel_operand(k, TC_F64, false, m * n);
        o = tci_kernel_operand(k, TC_F64, true, m * n);
        x = tci_kx_add(k, axis_x(k, i, 1), axis_x(k, j, m));
        st = add_stage(k, TCI_STAGE_SCAN, 1, &j);
        add_store(k, st, o, x, add_red(k, TCI_RED_SUM, st, load_at(k, a, x), -1));
        end_kernel(k);
    }
    static const int64_t lengths[] = {1, 3, 15, 16, 17, 63, 64, 65, 100, 127, 128, 129, 331};
    for (int i = 0; i < TCI_COUNT(lengths); i++) { /* in blocks of 64 */
        static const tc_dtype types[] = {TC_F32, TC_F64, TC_I64, TC_BF16};
        add_running_rows(types[i % 4], 3, lengths[i]);
    }
    tci_kernel *k = begin_kernel("cumsum_flat");
    int j = tci_kernel_axis(k, 50, true);
    int a = tci_kernel_operand(k, TC_F32, false, 50), o = tci_kernel_operand(k, TC_F32, true, 50);
    int st = add_stage(k, TCI_STAGE_SCAN, 1, &j);
    add_store(k, st, o, tci_kx_axis(k, j),
              add_red(k, TCI_RED_SUM, st, load_at(k, a, tci_kx_axis(k, j)), -1));
    end_kernel(k);
    judge_all();
}

/* ---- every candidate ---- */

/* One more: kernel i by the schedule of that text. */
static void add_forced(int i, const char *text)
{
    char name[sizeof(names[0])];
    REQUIRE(n_kernels < MAX_KERNELS);
    snprintf(name, sizeof(name), "%.28s [%.30s]", names[i], text);
    memcpy(names[n_kernels], name, sizeof(name));
    kernels[n_kernels] = kernels[i];
    forced[n_kernels++] = text;
}

/* Behind the first n kernels, one for each of their candidates, which are forced by their text. */
static void add_candidates(int n, int vector_bytes)
{
    tci_machine machine = {.vector_bytes = vector_bytes, .thread_scratch = true};
    n_kernels = n;
    for (int i = 0; i < n; i++) {
        tci_sched list[TCI_SCHED_MOST];
        const tci_query *a = tci_query_make(&scratch, kernels[i], machine);
        int n_list = tci_sched_candidates(a, list, TCI_SCHED_MOST);
        for (int c = 0; c < n_list; c++) {
            tci_str text = {.s = &scratch}, why = {.s = &scratch}, again = {.s = &scratch};
            tci_sched parsed;
            tci_sched_print(&text, &list[c]);
            CHECK_MSG(tci_sched_parse(tci_str_text(&text), &parsed, &why), "%s: %s", text.text,
                      tci_str_text(&why));
            tci_sched_print(&again, &parsed);
            CHECK_STR(tci_str_text(&again), tci_str_text(&text));
            add_forced(i, tci_str_text(&text));
        }
    }
}

/* Schedules that no cost model would choose, but that fit. */
static void add_odd_schedules(int n, int vector_bytes)
{
    static const char *const odd[] = {"map unroll=3 lanes=%d threads=1 stream=0",
                                      "tile rows=3 unroll=5 lanes=%d threads=1",
                                      "tile rows=7 unroll=1 lanes=%d threads=1",
                                      "block unroll=3",
                                      "packed rows=5 unroll=1 depth=48 columns=%d",
                                      "panel rows=3 columns=%d unroll=1",
                                      "rows keep=0 stream=0 ahead=0"};
    tci_machine machine = {.vector_bytes = vector_bytes, .thread_scratch = true};
    for (int i = 0; i < n; i++) {
        const tci_query *a = tci_query_make(&scratch, kernels[i], machine);
        for (int o = 0; o < TCI_COUNT(odd); o++) {
            tci_str why = {.s = &scratch};
            tci_sched s;
            const char *text = tci_scratch_printf(&scratch, odd[o], a->lanes);
            CHECK_MSG(tci_sched_parse(text, &s, &why), "%s: %s", text, tci_str_text(&why));
            if (tci_sched_fits(a, &s)) {
                add_forced(i, text);
            }
        }
    }
}

TEST(every_candidate_gives_the_same_bits)
{
    BEGIN();
    pointwise_tail(5003, TC_F32);
    pointwise_tail(70, TC_BF16);
    strided_kernel("turned_map", 37, 61, 1, 37, 0, 37 * 61, false);
    strided_kernel("turned_store", 40, 33, 33, 1, 0, 40 * 33, true);
    two_streams_kernel((4 << 20) + 3);
    reduce_kernel(TCI_RED_SUM, TC_F32, 37, 3, 41, false);
    reduce_kernel(TCI_RED_MAX, TC_F64, 3, 2, 1000, true);
    reduce_kernel(TCI_RED_ARGMAX, TC_F32, 65, 2, 33, false);
    reduce_kernel(TCI_RED_ONLINE, TC_F32, 3, 2, 1003, true);
    reduce_kernel(TCI_RED_ONLINE, TC_F32, 65, 2, 33, false);
    softmax_kernel(5, 1001, TC_F32, true);
    softmax_kernel(70, 33, TC_F32, false);
    moments_kernel(4, 129);
    columns_kernel(23, 1100, TC_F32);
    turned_kernel(67, 130, TC_F32);
    matmul_kernel(37, 37, 37, TC_F32, false, true);
    matmul_kernel(130, 200, 70, TC_F32, false, true);
    matmul_kernel(61, 190, 700, TC_F32, true, false);
    matmul_kernel(29, 33, 10, TC_F64, false, true);
    matmul_kernel(33, 65, 40, TC_BF16, false, true);
    images_kernel(30, 5, 13, 13, 1, false);
    images_kernel(33, 5, 41, 40, 1, true);
    images_of(30, 20, 13, 13, 1, false, true);
    pad_kernel(1000, 5, 3, 0.5, 1);
    cat_kernel(70);
    gather_kernel(300, true);
    int n = n_kernels;
    const char *compiler = have_compiler("gcc") ? "gcc" : have_compiler("clang") ? "clang" : NULL;
    if (!compiler) {
        SKIP("no C compiler");
    }
    int widest = 0;
#if defined(__x86_64__)
    widest = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") ? 64
             : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")       ? 32
                                                                                     : 0;
#endif
    add_candidates(n, widest);
    add_odd_schedules(n, widest);
    CHECK_MSG(n_kernels >= 3 * n, "%d schedules of %d kernels", n_kernels - n, n);
    judge(compiler, widest);
    tci_scratch_free(&scratch);
}

TEST_MAIN
