/* Every row of ops/table.h against plain C: elementwise ones against tests/judge.h, the others
 * against doubles, 64-bit integers and libm here, never tc's own arithmetic. Cases are graphs over
 * copied-in data; all of them run on the interpreter, on native code and in the reference
 * evaluator, which must give the same bits (a composite and a float sum: close to the reference,
 * whose order is another). The last test walks the table: a row that no case uses fails it. */
#include "inside.h"

#include "../tc_test.h"
#include "judge.h"
#include "same.h"

enum { MAX_CASES = 900, MAX_VALUES = 128, NX = 24 };

typedef struct op_case {
    char name[64];
    tc_tensor y;
    int n; /* expected values; numbers as doubles, i64 as integers */
    double want[MAX_VALUES];
    int64_t want_int[MAX_VALUES];
    double tolerance; /* relative, of f32; scaled by dtype */
    bool sums;        /* a float reduction or a composite */
} op_case;

static op_case cases[MAX_CASES];
static int n_cases;
static tc_ctx *ctx;
static bool seen[TCI_OP_COUNT];

static const tc_dtype dtypes[] = {TC_BOOL, TC_U8, TC_I32, TC_I64, TC_BF16, TC_F32, TC_F64};
enum { DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

static bool is_float(tc_dtype t)
{
    return t >= TC_F16 && t <= TC_F64;
}

/* ---- data ---- */

static const double data_a[NX] = {0,    -0.0, 1,        -1,        2,  -2,  0.5,  -0.5,
                                  1.5,  2.5,  -2.5,     3,         7,  100, -100, 1e-3,
                                  0.75, NAN,  INFINITY, -INFINITY, 12, 5,   -7,   3.25};
static const double data_b[NX] = {3,        2,   -2, 0.5, 0,     1, -1, 2, 3, -3, 2, NAN,
                                  INFINITY, 1.5, 4,  2,   -0.25, 1, 2,  3, 5, -5, 2, -INFINITY};
static const int64_t ints_a[NX] = {0, 1, -1, 2, -2,        7,         -7, 100, -100, 127, -128, 255,
                                   3, 5, 12, 6, INT32_MAX, INT32_MIN, 9,  -9,  31,   64,  -64,  10};
static const int64_t ints_b[NX] = {3, 0, 2, -2, 5, 3,  3,  -7, 7, 1, -1, 2,
                                   0, 4, 5, -3, 2, -1, -2, 2,  1, 6, 3,  -4};

static int64_t wrap(tc_dtype t, int64_t v)
{
    switch (t) {
    case TC_BOOL: return v != 0;
    case TC_U8: return (uint8_t)v;
    case TC_I32: return (int32_t)(uint32_t)(uint64_t)v;
    default: return v;
    }
}

static float to_bf16(double v) /* to nearest, ties to even; the values here are in range */
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (f == f) {
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    }
    memcpy(&f, &bits, 4);
    return f;
}

/* What remains of v in the dtype. */
static double in_dtype(tc_dtype t, double v)
{
    return t == TC_BF16 ? (double)to_bf16(v) : t == TC_F32 ? (double)(float)v : v;
}

/* n elements of the dtype; floats from f, others from i. What they hold goes to f and i. */
static tc_tensor make(tc_dtype t, int rank, const int64_t *sizes, double *f, int64_t *i)
{
    char memory[MAX_VALUES * 8];
    int64_t n = 1;
    for (int d = 0; d < rank; d++) {
        n *= sizes[d];
    }
    for (int64_t k = 0; k < n; k++) {
        float narrow = (float)f[k];
        uint32_t bits;
        f[k] = is_float(t) ? in_dtype(t, f[k]) : (double)wrap(t, i[k]);
        i[k] = wrap(t, i[k]);
        switch (t) {
        case TC_BOOL:
        case TC_U8: memory[k] = (char)i[k]; break;
        case TC_I32: ((int32_t *)(void *)memory)[k] = (int32_t)i[k]; break;
        case TC_I64: ((int64_t *)(void *)memory)[k] = i[k]; break;
        case TC_BF16:
            narrow = (float)f[k];
            memcpy(&bits, &narrow, 4);
            ((uint16_t *)(void *)memory)[k] = (uint16_t)(bits >> 16);
            break;
        case TC_F32: ((float *)(void *)memory)[k] = narrow; break;
        default: ((double *)(void *)memory)[k] = f[k]; break;
        }
    }
    return tc_copy_in_at(ctx, memory, t, rank, sizes, NULL, TC_HERE);
}

static op_case *add_case(const char *name, tc_tensor y, int n)
{
    op_case *c = &cases[n_cases];
    REQUIRE(n_cases < MAX_CASES && n <= MAX_VALUES);
    CHECK_MSG(!tc_status_of(y), "%s: %s", name, tc_error(y));
    if (tc_status_of(y)) {
        static op_case none;
        return &none;
    }
    n_cases++;
    memset(c, 0, sizeof(*c));
    snprintf(c->name, sizeof(c->name), "%s", name);
    c->y = y;
    c->n = n;
    CHECK_MSG(tc_count(y) == n, "%s has %lld elements, expected %d", name, (long long)tc_count(y),
              n);
    return c;
}

static void open_cases(void)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.verify = true;
    n_cases = 0;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* ---- running them ---- */

static void mark_ops(const op_case *c)
{
    tci_node *root = tci_handle_node(c->y);
    tci_scratch s;
    tci_scratch_init(&s);
    tci_node_list list = tci_graph_sort(&s, &root, 1);
    for (int i = 0; i < list.n; i++) {
        seen[list.items[i]->op] = true;
    }
    tci_scratch_free(&s);
}

static void check_values(const op_case *c, const char *who, const void *got)
{
    tc_dtype t = tc_dtype_of(c->y);
    double scale = t == TC_BF16 ? 1e-2 : t == TC_F64 && !c->sums ? 1e-9 : 1;
    for (int i = 0; i < c->n; i++) {
        tci_value v = tci_value_load(t, (const char *)got + i * tci_dtype_get(t)->bytes);
        double want = c->want[i];
        if (!is_float(t)) {
            CHECK_MSG(v.i == c->want_int[i], "%s (%s) on %s, element %d is %lld, expected %lld",
                      c->name, tci_dtype_get(t)->name, who, i, (long long)v.i,
                      (long long)c->want_int[i]);
            continue;
        }
        double room = t == TC_BF16 ? scale : c->tolerance * scale;
        bool same = v.f == want || (isnan(v.f) && isnan(want)) ||
                    fabs(v.f - want) <= room * (fabs(want) > 1 ? fabs(want) : 1) ||
                    (t != TC_F64 && isinf(v.f) && fabs(want) > 3e38);
        CHECK_MSG(same, "%s (%s) on %s, element %d is %.17g, expected %.17g", c->name,
                  tci_dtype_get(t)->name, who, i, v.f, want);
    }
}

static bool compiler_works(void)
{
    tc_options o;
    tc_program *f = NULL;
    memset(&o, 0, sizeof(o));
    o.backend = "cpu";
    o.fallback = TC_FALLBACK_REFUSE;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3), y = tc_neg(x);
    bool works = !tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &f);
    tc_program_free(f);
    return works;
}

static bool run_cases(const char *backend, char (*got)[MAX_VALUES * 8])
{
    static tc_job jobs[MAX_CASES];
    static tc_program *programs[MAX_CASES];
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = backend;
    o.fallback = strcmp(backend, "interp") ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    for (int i = 0; i < n_cases; i++) {
        tc_job job = {{NULL, 0}, {&cases[i].y, 1}, &programs[i], TC_OK};
        jobs[i] = job;
    }
    tc_status status = tc_compile_many(jobs, n_cases, &o);
    if (status == TC_ERR_COMPILER && !compiler_works()) {
        return false;
    }
    for (int i = 0; i < n_cases; i++) {
        tc_buf out = {.data = got[i], .n = cases[i].n, .dtype = tc_dtype_of(cases[i].y)};
        tc_bufs in = {NULL, 0}, outs = {&out, 1};
        CHECK_MSG(!jobs[i].status, "%s does not compile on %s: %s", cases[i].name, backend,
                  tc_error(cases[i].y));
        if (!jobs[i].status) {
            CHECK_EQ_INT(tc_run(programs[i], in, outs), TC_OK);
            check_values(&cases[i], backend, got[i]);
        }
        tc_program_free(programs[i]);
    }
    return true;
}

static void close_cases(void)
{
    static char interp[MAX_CASES][MAX_VALUES * 8], native[MAX_CASES][MAX_VALUES * 8];
    char judged[MAX_VALUES * 8];
    run_cases("interp", interp);
    bool compiled = run_cases("cpu", native);
    for (int i = 0; i < n_cases; i++) {
        tci_node *root = tci_handle_node(cases[i].y);
        void *out = judged;
        CHECK_EQ_INT(tci_reference_eval(NULL, NULL, 0, &root, &out, 1, false), TC_OK);
        check_values(&cases[i], "the reference", judged);
        tc_dtype t = tc_dtype_of(cases[i].y);
        CHECK_MSG(cases[i].sums || same_bits(t, interp[i], judged, cases[i].n),
                  "%s: interp and the reference differ", cases[i].name);
        CHECK_MSG(!compiled || same_bits(t, interp[i], native[i], cases[i].n),
                  "%s: interp and cpu differ", cases[i].name);
        mark_ops(&cases[i]);
    }
    tc_ctx_free(ctx);
    if (!compiled) {
        SKIP("no C compiler here: interp and reference only");
    }
}

/* ---- elementwise rows ---- */

#define CALL_1(name) tc_##name##_at(tci_arg_tensor(a), TC_HERE)
#define CALL_2(name) tc_##name##_at(tci_arg_tensor(a), tci_arg_tensor(b), TC_HERE)
#define CALL_3(name)                                                                               \
    tc_##name##_at(tci_arg_tensor(a), tci_arg_tensor(b), tci_arg_tensor(c), TC_HERE)

static tc_tensor call_row(int op, tc_tensor a, tc_tensor b, tc_tensor c)
{
    switch (op) {
#define TCI_ROW(id, name, arity, ...) case TCI_OP_##id: return CALL_##arity(name);
        TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
    default: return TC_NONE;
    }
}

/* NUMERIC rows refuse bool, INTEGER rows floats, WORD rows both. */
static bool refuses(int op, tc_dtype t)
{
#define TCI_ROW(id, name, arity, rule, ...) {TCI_OP_##id, #rule},
    static const struct {
        int op;
        const char *rule;
    } rules[] = {TCI_EW_OPS(TCI_ROW)};
#undef TCI_ROW
    const char *rule = rules[op].rule;
    return (t == TC_BOOL && (!strcmp(rule, "NUMERIC") || !strcmp(rule, "WORD"))) ||
           (is_float(t) && (!strcmp(rule, "INTEGER") || !strcmp(rule, "WORD")));
}

/* An operand as the row takes it: integers go to f32 where it computes in floats. */
static tci_value operand(tc_dtype t, tc_dtype of, double f, int64_t i)
{
    tci_value v = {.i = is_float(t) ? f != 0 : of == TC_BOOL ? i != 0 : i};
    if (is_float(of)) {
        v.f = is_float(t) ? f : (double)(float)f;
    }
    return v;
}

/* Element i, of operands whose elements are f, of integers w. */
static void expect_row(op_case *c, int op, tc_dtype t, int i, double f[3][NX], int64_t w[3][NX])
{
    tc_dtype of, to;
    tci_build_ew_dtypes(TC_TORCH, op, t, &of, &to);
    judge_value j = judge_row(op, of, operand(t, of, f[0][i], w[0][i]),
                              operand(t, of, f[1][i], w[1][i]), operand(t, of, f[2][i], w[2][i]));
    CHECK_MSG(j.known && to == tc_dtype_of(c->y), "row %s of %s has no judge", tci_op_name(op),
              tci_dtype_get(of)->name);
    c->want[i] = (double)j.real;
    c->want_int[i] = (int64_t)judge_wrap(to, j.whole);
}

TEST(elementwise_rows)
{
    open_cases();
    for (int op = 0; op < TCI_OP_EW_END; op++) {
        for (int k = 0; k < DTYPES; k++) {
            tc_dtype t = dtypes[k];
            double f[3][NX];
            int64_t w[3][NX], size = NX;
            tc_tensor x[3];
            memcpy(f[0], data_a, sizeof(f[0]));
            memcpy(f[1], data_b, sizeof(f[1]));
            memcpy(w[0], ints_a, sizeof(w[0]));
            memcpy(w[1], ints_b, sizeof(w[1]));
            for (int i = 0; i < NX; i++) {
                f[2][i] = data_b[NX - 1 - i];
                w[2][i] = ints_b[NX - 1 - i];
            }
            for (int i = 0; i < 3; i++) {
                x[i] = make(t, 1, &size, f[i], w[i]);
            }
            tc_tensor y = call_row(op, x[0], x[1], x[2]);
            if (refuses(op, t)) {
                CHECK_MSG(tc_status_of(y) == TC_ERR_DTYPE, "%s takes %s", tci_op_name(op),
                          tci_dtype_get(t)->name);
                continue;
            }
            op_case *c = add_case(tci_op_name(op), y, NX);
            c->tolerance = 3e-6;
            for (int i = 0; i < NX; i++) {
                expect_row(c, op, t, i, f, w);
            }
        }
    }
    close_cases();
}

/* The zeros, infinities and near misses of Python's % and // (what NumPy gives, written out). */
TEST(division_corners)
{
    static const struct {
        double a, b, remainder, quotient;
    } rows[] = {
        {-1, 1, 0.0, -1},
        {1, -1, -0.0, -1},
        {-0.0, 1, 0.0, -0.0},
        {0.0, -1, -0.0, -0.0},
        {-0.0, -1, -0.0, 0.0},
        {6, -3, -0.0, -2},
        {-1, INFINITY, INFINITY, -1},
        {1, -INFINITY, -INFINITY, -1},
        {0, INFINITY, 0.0, 0.0},
        {-0.0, INFINITY, 0.0, -0.0},
        {1, INFINITY, 1, 0.0},
        {INFINITY, 1, NAN, NAN},
        {1, 0, NAN, INFINITY},
        {-1, 0, NAN, -INFINITY},
        {0, 0, NAN, NAN},
        {5, NAN, NAN, NAN},
        {-5.5, 2, 0.5, -3},
        {5.5, -2, -0.5, -3},
        {-0x1p-60, 1, 1, -1},
        {0x1p-60, 1, 0x1p-60, 0.0},
        {1, 0.0625, 0.0, 16},
    };
    enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
    static const tc_dtype floats[] = {TC_BF16, TC_F32, TC_F64};
    for (int k = 0; k < 6; k++) {
        double f[2][ROWS];
        int64_t none[ROWS] = {0}, size = ROWS;
        open_cases();
        for (int i = 0; i < ROWS; i++) {
            f[0][i] = rows[i].a;
            f[1][i] = rows[i].b;
        }
        tc_tensor a = make(floats[k / 2], 1, &size, f[0], none);
        tc_tensor b = make(floats[k / 2], 1, &size, f[1], none);
        tc_tensor y = k % 2 ? tc_floor_divide(a, b) : tc_remainder(a, b);
        op_case *c = add_case("a corner", y, ROWS);
        op_case *sign = add_case("its sign", tc_lt(tc_div(1, y), 0), ROWS);
        for (int i = 0; i < ROWS; i++) {
            c->want[i] = k % 2 ? rows[i].quotient : rows[i].remainder;
            sign->want_int[i] = isfinite(c->want[i]) && signbit(c->want[i]);
        }
        close_cases();
    }
}

/* Where a / b of floats rounds up to the next integer, // does not. */
TEST(floor_divide_is_of_the_exact_quotient)
{
    enum { N = 8 };
    static const float a[N] = {1, 3, 0.3f, 2.4f, 1e8f, 7.2f, 0.7f, 9},
                       b[N] = {0.1f, 0.3f, 0.1f, 0.2f, 3.1e-3f, 0.9f, 0.1f, 0.7f};
    open_cases();
    tc_tensor x = tc_copy_in(ctx, a, TC_F32, N), y = tc_copy_in(ctx, b, TC_F32, N);
    op_case *c = add_case("floor_divide", tc_floor_divide(x, y), N);
    int below = 0;
    for (int i = 0; i < N; i++) {
        long double exact = floorl((long double)a[i] / (long double)b[i]);
        c->want[i] = (double)(float)exact;
        below += (long double)floorf(a[i] / b[i]) > exact;
    }
    CHECK_MSG(below > 1, "the operands show nothing");
    close_cases();
}

/* Integers stay exact where tc_floor(tc_div(a, 2)) goes through f32. */
TEST(floor_divide_of_large_integers)
{
    static const int64_t a[] = {INT64_MAX, INT64_MIN, INT64_MIN, 16777217, -16777217, 9, -9, 5};
    static const int64_t b[] = {2, -1, 2, 2, 2, -4, 4, 0};
    static const int64_t want[] = {
        INT64_MAX / 2, INT64_MIN, INT64_MIN / 2, 8388608, -8388609, -3, -3, 0};
    open_cases();
    tc_tensor x = tc_copy_in(ctx, a, TC_I64, 8), y = tc_copy_in(ctx, b, TC_I64, 8);
    op_case *c = add_case("floor_divide", tc_floor_divide(x, y), 8);
    memcpy(c->want_int, want, sizeof(want));
    static const uint64_t u[] = {UINT64_MAX, 7, 0}, v[] = {2, 0, 3};
    tc_tensor wide = tc_floor_divide(tc_copy_in(ctx, u, TC_U64, 3), tc_copy_in(ctx, v, TC_U64, 3));
    c = add_case("floor_divide of u64", wide, 3);
    c->want_int[0] = INT64_MAX;
    close_cases();
}

/* a * b - 1 where a * b rounds to 1: 0 in two roundings. */
/* Six comparisons of u64 with a signed number, by hand: a negative one is less than all. */
static bool compared(int op, uint64_t a, int64_t b, bool turned)
{
    int order = b < 0 || a > (uint64_t)b ? 1 : a < (uint64_t)b ? -1 : 0;
    order = turned ? -order : order;
    const bool results[6] = {order == 0, order != 0, order < 0, order <= 0, order > 0, order >= 0};
    return results[op];
}

static tc_tensor compare(int op, tc_arg a, tc_arg b)
{
    return op == 0   ? tc_eq_at(a, b, TC_HERE)
           : op == 1 ? tc_ne_at(a, b, TC_HERE)
           : op == 2 ? tc_lt_at(a, b, TC_HERE)
           : op == 3 ? tc_le_at(a, b, TC_HERE)
           : op == 4 ? tc_gt_at(a, b, TC_HERE)
                     : tc_ge_at(a, b, TC_HERE);
}

/* Exact, though no dtype holds both: tensors of one, as operands and as constants, and numbers. */
TEST(comparisons_of_u64_with_signed_integers)
{
    enum { N = 7 };
    static const uint64_t us[N] = {0,          1,          (1ull << 53) + 1, 1ull << 53,
                                   1ull << 63, UINT64_MAX, INT64_MAX};
    static const int64_t is[N] = {0, -1, 1ll << 53, (1ll << 53) + 1, INT64_MAX, INT64_MIN, 1};
    for (int way = 0; way < 2; way++) {
        tc_options o = {.backend = way ? "cpu" : "interp", .no_disk_cache = true};
        tc_ctx *own = NULL;
        REQUIRE(tc_ctx_make(&own, &o) == TC_OK);
        tc_tensor u = tc_input(own, "u", TC_U64, N, 1), i = tc_input(own, "i", TC_I64, N);
        tc_tensor ys[12];
        bool got[12][N * N];
        tc_buf out[12];
        for (int k = 0; k < 12; k++) {
            tc_tensor a = k < 6 ? u : i, b = k < 6 ? i : u;
            ys[k] = compare(k % 6, (tc_arg){.tensor = a}, (tc_arg){.tensor = b});
            out[k] = TC_BUF(got[k], N * N);
        }
        tc_program *f = NULL;
        tc_tensors all = {ys, 12};
        CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(u, i), all, NULL, &f), TC_OK);
        tc_bufs outs = {out, 12};
        REQUIRE(f && tc_run(f, TC_BUFS(TC_BUF(us, N), TC_BUF(is, N)), outs) == TC_OK);
        for (int k = 0; k < 12 * N * N; k++) {
            int op = k / (N * N), at = k % (N * N);
            CHECK_MSG(got[op][at] == compared(op % 6, us[at / N], is[at % N], op >= 6),
                      "comparison %d of %llu and %lld", op, (unsigned long long)us[at / N],
                      (long long)is[at % N]);
        }
        tc_program_free(f);
        for (int k = 0; k < 6 * N * N && !way; k++) { /* numbers; and folded, of constants */
            int op = k / (N * N), a = k / N % N, b = k % N;
            bool want = compared(op, us[a], is[b], false), one[3];
            tc_tensor tu = tc_full(own, us[a], TC_U64, 1), ti = tc_full(own, is[b], TC_I64, 1);
            tc_tensor by_number = compare(op, tci_arg_uint(us[a]), (tc_arg){.tensor = ti});
            tc_tensor of_number = compare(op, (tc_arg){.tensor = tu}, tci_arg_int(is[b]));
            tc_tensor folded = compare(op, (tc_arg){.tensor = tu}, (tc_arg){.tensor = ti});
            CHECK(tc_read(by_number, one, 1) == TC_OK && tc_read(of_number, one + 1, 1) == TC_OK &&
                  tc_read(folded, one + 2, 1) == TC_OK);
            CHECK_MSG(one[0] == want && one[1] == want && one[2] == want,
                      "comparison %d of %llu and %lld: %d %d %d", op, (unsigned long long)us[a],
                      (long long)is[b], one[0], one[1], one[2]);
        }
        tc_ctx_free(own);
    }
}

/* Which is larger, by whole numbers: 1 a, -1 x, 0 none; 2: x is NaN. */
static int order_of_real(bool huge, int64_t a, double x)
{
    const uint64_t u = (uint64_t)a;
    if (isnan(x) || x >= 0x1p64 || x < -0x1p63) {
        return isnan(x) ? 2 : x > 0 ? -1 : 1;
    }
    if (x >= 0x1p63) { /* such a number has no fraction */
        return !huge || u<(uint64_t)x ? -1 : u>(uint64_t) x;
    }
    const int64_t whole = (int64_t)x; /* toward 0 */
    const double rest = x - (double)whole;
    if (huge || a != whole) {
        return huge || a > whole ? 1 : -1;
    }
    return rest > 0 ? -1 : rest < 0;
}

/* Comparisons of integers with floating numbers are exact: f32 holds few of these. */
TEST(comparisons_of_integers_with_floating_numbers)
{
    static const tc_dtype wholes[] = {TC_BOOL, TC_I8, TC_I32, TC_U32, TC_I64, TC_U64};
    static const double xs[] = {0.25,
                                -0.25,
                                1e-60,
                                1,
                                300.5,
                                -1,
                                16777216,
                                16777217,
                                16777216.5,
                                -16777216.5,
                                2147483648.5,
                                1e300,
                                -1e300,
                                0x1p63,
                                -0x1p63,
                                0x1p64,
                                -0x1.0000000000001p63,
                                INFINITY,
                                -INFINITY,
                                NAN,
                                1099511627777.0,
                                0x1p53};
    static const int64_t as[] = {
        0,         1,         -1,        127,        16777216,      16777217,       -16777216,
        -16777217, INT64_MAX, INT64_MIN, 2147483647, 1099511627776, (1ll << 53) + 1};
    enum { N = sizeof(as) / sizeof(as[0]), M = sizeof(xs) / sizeof(xs[0]) };
    for (int numpy = 0; numpy < 2; numpy++) {
        tc_options o = {.backend = "interp", .no_disk_cache = true};
        o.promotion = numpy ? TC_NUMPY : TC_TORCH;
        tc_ctx *own = NULL;
        REQUIRE(tc_ctx_make(&own, &o) == TC_OK);
        for (int d = 0; d < 6; d++) {
            const tc_dtype t = wholes[d];
            tc_tensor x = tc_cast(tc_copy_in(own, as, TC_I64, N), t), ys[12 * M];
            int64_t kept[N]; /* as the dtype has them */
            bool got[12 * M][N];
            REQUIRE(tc_read(tc_cast(x, TC_I64), kept, N) == TC_OK);
            for (int k = 0; k < 12 * M; k++) {
                const tc_arg v = {.tensor = x}, number = tci_arg_float(xs[k / 12]);
                ys[k] = compare(k % 6, k / 6 % 2 ? number : v, k / 6 % 2 ? v : number);
            }
            CHECK_EQ_INT(tc_eval_many(TC_TENSORS_N(ys, 12 * M)), TC_OK);
            for (int k = 0; k < 12 * M; k++) {
                CHECK_EQ_INT(tc_read(ys[k], got[k], N), TC_OK);
                for (int i = 0; i < N; i++) {
                    int r = order_of_real(t == TC_U64 && kept[i] < 0, kept[i], xs[k / 12]);
                    r = k / 6 % 2 && r != 2 ? -r : r;
                    const bool want[6] = {r == 0, r != 0,          r == -1, r == -1 || r == 0,
                                          r == 1, r == 1 || r == 0};
                    CHECK_MSG(got[k][i] == want[k % 6], "comparison %d of %s %lld and %.17g",
                              k % 12, tc_dtype_name(t), (long long)kept[i], xs[k / 12]);
                }
            }
        }
        static const int64_t two[] = {1099511627776, 1099511627777};
        tc_tensor by_text = tc_copy_in(own, two, TC_I64, 2);
        by_text = tc_expr(own, "x == 1099511627777.0", TC_ATTRS(TC_ATTR("x", by_text)));
        bool same[2] = {true, false};
        CHECK_EQ_INT(tc_read(by_text, same, 2), TC_OK);
        CHECK(!same[0] && same[1]);
        tc_ctx_free(own);
    }
}

TEST(fma_rounds_once)
{
    static const float a[3] = {1 + 0x1p-12f, 1 + 0x1p-14f, 3};
    static const float b[3] = {1 - 0x1p-12f, 1 - 0x1p-14f, 5};
    static const double x[3] = {1 + 0x1p-27, 1 + 0x1p-30, 3};
    static const double y[3] = {1 - 0x1p-27, 1 - 0x1p-30, 5};
    open_cases();
    op_case *narrow = add_case(
        "fma of f32", tc_fma(tc_copy_in(ctx, a, TC_F32, 3), tc_copy_in(ctx, b, TC_F32, 3), -1), 3);
    op_case *wide = add_case(
        "fma of f64", tc_fma(tc_copy_in(ctx, x, TC_F64, 3), tc_copy_in(ctx, y, TC_F64, 3), -1), 3);
    static const double of_f32[3] = {-0x1p-24, -0x1p-28, 14}, of_f64[3] = {-0x1p-54, -0x1p-60, 14};
    memcpy(narrow->want, of_f32, sizeof(of_f32));
    memcpy(wide->want, of_f64, sizeof(of_f64));
    close_cases();
}

/* The limits at the infinities, where the formula itself is 0 * inf. */
TEST(gelu_at_the_infinities)
{
    static const double in[] = {-INFINITY, INFINITY, -1e30, NAN};
    static const double want[] = {-0.0, INFINITY, -0.0, NAN};
    static const tc_dtype floats[] = {TC_BF16, TC_F32, TC_F64};
    open_cases();
    for (int k = 0; k < 3; k++) {
        double f[4];
        int64_t none[4] = {0}, size = 4;
        memcpy(f, in, sizeof(f));
        tc_tensor y = tc_gelu(make(floats[k], 1, &size, f, none));
        op_case *c = add_case("gelu", y, 4);
        op_case *sign = add_case("its sign", tc_lt(tc_div(1, y), 0), 4);
        memcpy(c->want, want, sizeof(want));
        sign->want_int[0] = sign->want_int[2] = 1;
    }
    close_cases();
}

/* ---- promotion and broadcasting ---- */

TEST(promotion_and_broadcasting)
{
    open_cases();
    for (int i = 0; i < DTYPES; i++) {
        for (int k = 0; k < DTYPES; k++) {
            tc_dtype s = dtypes[i], t = dtypes[k];
            double fa[3] = {1, 2, 3}, fb[4] = {5, 6, 7, 8};
            int64_t ia[3] = {1, 2, 3}, ib[4] = {5, 6, 7, 8}, row[1] = {3}, column[2] = {4, 1};
            tc_tensor a = make(s, 1, row, fa, ia), b = make(t, 2, column, fb, ib);
            op_case *c = add_case("a[3] + b[4, 1]", tc_add(a, b), 12);
            /* kinds first, then the wider; among themselves bf16 < f32 < f64, u8 < i32 < i64 */
            CHECK_EQ_INT(tc_dtype_of(c->y), s > t ? s : t);
            for (int p = 0; p < 12; p++) {
                c->want[p] = in_dtype(tc_dtype_of(c->y), fa[p % 3] + fb[p / 3]);
                c->want_int[p] = wrap(tc_dtype_of(c->y), ia[p % 3] + ib[p / 3]);
            }
        }
    }
    close_cases();
}

/* ---- movement: by the index that each element comes from ---- */

enum { VR = 3, VC = 5 };

/* A view of [3, 5] and, for each element, where it comes from; -1: the fill, which is 9. */
static tc_tensor view_of(int which, tc_tensor x, int *from, int *n)
{
    int at = 0;
    tc_tensor y = x;
#define EACH(rows, columns, source)                                                                \
    for (int i = 0; i < (rows); i++) {                                                             \
        for (int j = 0; j < (columns); j++) {                                                      \
            from[at++] = (source);                                                                 \
        }                                                                                          \
    }
    switch (which) {
    case 0: EACH(VR, VC, i * VC + j) break;
    case 1: y = tc_permute(x, 1, 0); EACH(VC, VR, j * VC + i) break;
    case 2: y = tc_flip(x, -1); EACH(VR, VC, i * VC + VC - 1 - j) break;
    case 3: y = tc_slice(x, 1, TC_END, TC_END, -2); EACH(VR, 3, i * VC + 4 - 2 * j) break;
    case 4: y = tc_slice(x, 0, 1, 1, 1); break;
    case 5: y = tc_expand(tc_slice(x, 1, 2, 3, 1), -1, 4); EACH(VR, 4, i * VC + 2) break;
    case 6: y = tc_pad(x, 1, 1, -2, 9); EACH(VR, 4, j ? i * VC + j - 1 : -1) break;
    case 7: y = tc_pad(x, 0, -1, 2, 9); EACH(4, VC, i < 2 ? (i + 1) * VC + j : -1) break;
    case 8: y = tc_reshape(x, VC, VR); EACH(VC, VR, i * VR + j) break;
    case 9:
        y = tc_cat(TC_TENSORS(x, tc_flip(x, 0)), 0);
        EACH(2 * VR, VC, (i < VR ? i : 2 * VR - 1 - i) * VC + j) break;
    case 10:
        y = tc_reshape(tc_slice(tc_slice(x, 0, 2, 3, 1), 1, 3, 4, 1), 1);
        EACH(1, 1, 2 * VC + 3) break;
    case 11:
        y = tc_squeeze(tc_squeeze(tc_slice(tc_slice(x, 0, 1, 2, 1), 1, 1, 2, 1), 0), 0);
        EACH(1, 1, VC + 1) break;
    case 12: y = tc_transpose(tc_unsqueeze(x, 0), 0, 2); EACH(VC, VR, j * VC + i) break;
    default: *n = -1; return y;
    }
#undef EACH
    *n = at;
    return y;
}

TEST(movement_in_every_dtype)
{
    open_cases();
    for (int k = 0; k < DTYPES; k++) {
        double f[VR * VC];
        int64_t w[VR * VC], sizes[2] = {VR, VC};
        int from[64], n = 0;
        for (int i = 0; i < VR * VC; i++) {
            f[i] = i == 4 ? NAN : i == 5 ? -0.0 : i - 7.5;
            w[i] = dtypes[k] == TC_BOOL ? i % 3 != 0 : i * 17 - 60;
        }
        tc_tensor x = make(dtypes[k], 2, sizes, f, w);
        for (int v = 0; n >= 0; v++) {
            tc_tensor y = view_of(v, x, from, &n);
            for (int add = 0; n >= 0 && add < 2; add++) { /* the view itself; in a computation */
                char name[32];
                snprintf(name, sizeof(name), "view %d%s", v, add ? ", added" : "");
                op_case *c = add_case(name, add ? tc_add(y, y) : y, n);
                for (int i = 0; i < n; i++) {
                    double a = from[i] < 0 ? 9 : f[from[i]];
                    int64_t b = from[i] < 0 ? wrap(dtypes[k], 9) : w[from[i]];
                    c->want[i] = add ? a + a : a;
                    c->want_int[i] = wrap(dtypes[k], add && dtypes[k] != TC_BOOL ? b + b : b);
                }
            }
        }
    }
    close_cases();
}

TEST(strided_memory)
{
    static int32_t memory[40];
    for (int i = 0; i < 40; i++) {
        memory[i] = i * i - 7;
    }
    static const int64_t sizes[] = {3, 4}, strides[][2] = {{-12, -1}, {0, 2}, {2, -6}, {0, 0}};
    open_cases();
    for (int k = 0; k < 4; k++) {
        const int32_t *at = memory + 39 - (k == 1 ? 30 : k == 2 ? 10 : 0);
        tc_tensor x = tc_borrow_strided(ctx, at, TC_I32, 2, sizes, strides[k]);
        op_case *c = add_case("strided", tc_mul(x, 3), 12);
        for (int i = 0; i < 12; i++) {
            c->want_int[i] = 3 * at[i / 4 * strides[k][0] + i % 4 * strides[k][1]];
        }
    }
    close_cases();
}

/* ---- conversions and choice ---- */

static int64_t saturated(tc_dtype t, double v)
{
    double low = t == TC_U8 ? 0 : t == TC_I32 ? -0x1p31 : -0x1p63;
    double high = t == TC_U8 ? 255 : t == TC_I32 ? 0x1p31 - 1 : 0x1p63;
    if (isnan(v) || t == TC_BOOL || is_float(t)) {
        return t == TC_BOOL ? v != 0 : 0;
    }
    return v <= low    ? (int64_t)low
           : v >= high ? (t == TC_I64 ? INT64_MAX : (int64_t)high)
                       : (int64_t)v;
}

TEST(cast_and_where)
{
    open_cases();
    for (int i = 0; i < DTYPES; i++) {
        for (int k = 0; k < DTYPES; k++) {
            double f[NX], g[NX];
            int64_t w[NX], size = NX, one = 1;
            memcpy(f, data_a, sizeof(f));
            memcpy(w, ints_a, sizeof(w));
            f[3] = 300.5, f[5] = -1e10, f[8] = 1e19;
            tc_tensor x = make(dtypes[i], 1, &size, f, w);
            op_case *c = add_case("cast", tc_cast(x, dtypes[k]), NX);
            for (int j = 0; j < NX; j++) {
                c->want[j] = in_dtype(dtypes[k], f[j]);
                c->want_int[j] = is_float(dtypes[i]) ? saturated(dtypes[k], f[j])
                                                     : wrap(dtypes[k], w[j]);
            }
            if (i != k) {
                continue;
            }
            memcpy(g, f, sizeof(g));
            op_case *d = add_case("where", tc_where(x, x, make(dtypes[i], 1, &one, f, w)), NX);
            for (int j = 0; j < NX; j++) {
                bool holds = is_float(dtypes[i]) ? g[j] != 0 : w[j] != 0;
                d->want[j] = holds ? g[j] : g[0];
                d->want_int[j] = holds ? w[j] : w[0];
            }
        }
    }
    double f[NX];
    int64_t w[NX], size = NX;
    memcpy(f, data_a, sizeof(f));
    memcpy(w, ints_a, sizeof(w));
    op_case *c = add_case("bitcast", tc_bitcast(make(TC_F32, 1, &size, f, w), TC_I32), NX);
    for (int j = 0; j < NX; j++) {
        float narrow = (float)f[j];
        int32_t bits;
        memcpy(&bits, &narrow, sizeof(bits));
        c->want_int[j] = bits;
    }
    close_cases();
}

/* ---- reductions ---- */

enum { RA = 4, RB = 6 };

#define OVER_INDEX(name, x, axis) tc_##name(x, axis, false)
#define OVER_SUM(name, x, axis) tc_##name(x, TC_AXES(axis), false)
#define OVER_SAME OVER_SUM
#define OVER_BOOL OVER_SUM
#define OVER_FLOAT OVER_SUM

static tc_tensor call_reduce(int op, tc_tensor x, int axis)
{
    switch (op) {
#define TCI_ROW(id, name, rule, ...) case TCI_OP_##id: return OVER_##rule(name, x, axis);
        TCI_REDUCE_OPS(TCI_ROW)
#undef TCI_ROW
    default: return TC_NONE;
    }
}

/* One group of n values; integers are folded next to the doubles. false: no such row here. */
static bool fold(int op, const double *f, const int64_t *w, int n, double *y, int64_t *z)
{
    bool arg = op == TCI_OP_ARGMAX || op == TCI_OP_ARGMIN,
         least = op == TCI_OP_MIN || op == TCI_OP_ARGMIN;
    int best = 0;
    double mean = 0;
    *y = op == TCI_OP_PROD;
    *z = op == TCI_OP_PROD || op == TCI_OP_ALL;
    for (int i = 0; i < n; i++) {
        bool wins = isnan(f[i]) ? !isnan(f[best]) : least ? f[i] < f[best] : f[i] > f[best];
        best = wins ? i : best;
        switch (op) {
        case TCI_OP_SUM:
            *y += f[i];
            *z += w[i];
            break;
        case TCI_OP_PROD:
            *y *= f[i];
            *z = (int64_t)((uint64_t)*z * (uint64_t)w[i]);
            break;
        case TCI_OP_ANY: *z = *z || f[i] != 0; break;
        case TCI_OP_ALL: *z = *z && f[i] != 0; break;
        case TCI_OP_MAX:
        case TCI_OP_MIN:
            *y = f[best];
            *z = w[best];
            break;
        case TCI_OP_DEVSQ: mean += f[i] / n; break;
        default: *z = best; break;
        }
    }
    for (int i = 0; i < n && op == TCI_OP_DEVSQ; i++) {
        *y += (f[i] - mean) * (f[i] - mean);
    }
    return arg || op == TCI_OP_DEVSQ || op == TCI_OP_SUM || op == TCI_OP_PROD || op == TCI_OP_ANY ||
           op == TCI_OP_ALL || op == TCI_OP_MAX || op == TCI_OP_MIN;
}

TEST(reduce_rows)
{
    open_cases();
    for (int op = TCI_OP_EW_END; op < TCI_OP_REDUCE_END; op++) {
        for (int k = 0; k < 2 * DTYPES; k++) {
            tc_dtype t = dtypes[k / 2];
            double f[RA * RB], line[RB];
            int64_t w[RA * RB], ints[RB], sizes[2] = {RA, RB};
            for (int i = 0; i < RA * RB; i++) {
                f[i] = i == 20 ? NAN : (i * 7 % 11 - 4) * 0.5;
                w[i] = t == TC_BOOL ? i % 4 != 1 : i * 7 % 11 - 4;
            }
            tc_tensor x = make(t, 2, sizes, f, w);
            int axis = k % 2, groups = axis ? RA : RB, n = axis ? RB : RA;
            op_case *c = add_case(tci_op_name(op), call_reduce(op, x, axis - 2), groups);
            c->tolerance = 1e-6;
            c->sums = is_float(t) && (op == TCI_OP_SUM || op == TCI_OP_PROD);
            c->sums = c->sums || op == TCI_OP_DEVSQ;
            for (int g = 0; g < groups; g++) {
                for (int i = 0; i < n; i++) {
                    int at = axis ? g * RB + i : i * RB + g;
                    line[i] = op == TCI_OP_DEVSQ && !is_float(t) ? (double)w[at] : f[at];
                    ints[i] = w[at];
                }
                CHECK_MSG(fold(op, line, ints, n, &c->want[g], &c->want_int[g]),
                          "row %s has no expectation here", tci_op_name(op));
            }
        }
    }
    int64_t none[2] = {3, 0};
    tc_tensor empty = make(TC_F32, 2, none, (double[1]){0}, (int64_t[1]){0});
    (void)add_case("sum of nothing", tc_sum(empty, TC_AXES(1), false), 3);
    op_case *c = add_case("prod of nothing", tc_prod(empty, TC_ALL, false), 1);
    c->want[0] = 1;
    CHECK(tc_status_of(tc_max(empty, TC_AXES(1), false)) != TC_OK);
    close_cases();
}

/* ---- the special rows that compute ---- */

TEST(special_rows)
{
    open_cases();
    double a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {0.5, -1, 2, 3, -2, 1}, p[4] = {4, 1, -3, 2};
    int64_t wa[6] = {1, 2, 3, 4, 5, 6}, wb[6] = {1, -1, 2, 3, -2, 1}, wi[4] = {2, 0, -1, 1};
    int64_t s23[2] = {2, 3}, s32[2] = {3, 2}, s22[2] = {2, 2}, s4[1] = {4};
    for (int k = 2; k < DTYPES; k++) { /* a product is a sum: bool and u8 are not of interest */
        tc_tensor x = make(dtypes[k], 2, s23, a, wa), y = make(dtypes[k], 2, s32, b, wb);
        op_case *c = add_case("matmul", tc_matmul(x, y), 4);
        op_case *d = add_case("cumsum", tc_cumsum(x, 1), 6);
        op_case *e = add_case("cumsum", tc_cumsum(tc_reshape(tc_permute(x, 1, 0), 6), 0), 6);
        c->tolerance = d->tolerance = e->tolerance = 1e-6;
        for (int i = 0; i < 4; i++) {
            for (int j = 0; j < 3; j++) {
                c->want[i] += a[i / 2 * 3 + j] * b[j * 2 + i % 2];
                c->want_int[i] += wa[i / 2 * 3 + j] * wb[j * 2 + i % 2];
            }
        }
        for (int i = 0; i < 6; i++) {
            d->want[i] = a[i] + (i % 3 ? d->want[i - 1] : 0);
            d->want_int[i] = wa[i] + (i % 3 ? d->want_int[i - 1] : 0);
            e->want[i] = a[i % 2 * 3 + i / 2] + (i ? e->want[i - 1] : 0);
            e->want_int[i] = wa[i % 2 * 3 + i / 2] + (i ? e->want_int[i - 1] : 0);
        }
    }
    tc_tensor x = make(TC_F32, 2, s23, a, wa), index = make(TC_I64, 2, s22, p, wi);
    op_case *g = add_case("gather", tc_gather(x, 1, index), 4);
    op_case *h = add_case("index_select", tc_index_select(x, 1, make(TC_I64, 1, s4, p, wi)), 8);
    tc_tensor src = make(TC_F32, 2, s22, p, wi);
    op_case *put = add_case("scatter", tc_scatter(x, 1, index, src), 6);
    op_case *sum = add_case("scatter_add", tc_scatter_add(x, 1, index, src), 6);
    op_case *least = add_case("scatter_min", tc_scatter_min(x, 1, index, src), 6);
    op_case *most = add_case("scatter_max", tc_scatter_max(x, 1, index, src), 6);
    tc_tensor first, where;
    tc_topk(x, 1, 1, true, &first, &where);
    op_case *top = add_case("topk", where, 2);
    op_case *top_value = add_case("value of topk", first, 2);
    top->want_int[0] = top->want_int[1] = 2;
    top_value->want[0] = 3, top_value->want[1] = 6;
    op_case *rows = add_case("index_add", tc_index_add(x, 1, make(TC_I64, 1, s22, p, wi), src), 6);
    for (int i = 0; i < 6; i++) {
        put->want[i] = sum->want[i] = least->want[i] = most->want[i] = rows->want[i] = a[i];
    }
    for (int i = 0; i < 4; i++) {
        int64_t to = i / 2 * 3 + (wi[i] + 3) % 3;
        put->want[to] = p[i];
        sum->want[to] += p[i];
        least->want[to] = fmin(least->want[to], p[i]);
        most->want[to] = fmax(most->want[to], p[i]);
        rows->want[i / 2 * 3 + wi[i % 2]] += p[i];
    }
    for (int i = 0; i < 4; i++) {
        g->want[i] = a[i / 2 * 3 + (wi[i] + 3) % 3];
        h->want[i] = a[(wi[i] + 3) % 3];
        h->want[4 + i] = a[3 + (wi[i] + 3) % 3];
    }
    op_case *r = add_case("arange", tc_arange(ctx, 1, 12, 3, TC_I64), 4);
    op_case *f = add_case("full", tc_full(ctx, 2.5, TC_F32, 2), 2);
    /* the first block of Philox4x32-10 for counter and key 0, as published */
    static const uint32_t block[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    op_case *b0 = add_case("random_bits", tc_random_bits(ctx, 0, TC_U32, 4), 4);
    for (int i = 0; i < 4; i++) {
        b0->want_int[i] = block[i];
        r->want_int[i] = 1 + 3 * i;
        f->want[i % 2] = 2.5;
    }
    close_cases();
}

TEST(windows)
{
    open_cases();
    enum { H = 4, W = 5 };
    double f[H * W], k[6] = {1, -2, 0.5, 3, 1, -1};
    int64_t w[H * W] = {0}, sizes[4] = {1, 1, H, W}, of[4] = {1, 1, 2, 3};
    for (int i = 0; i < H * W; i++) {
        f[i] = i * 7 % 13 - 6;
    }
    tc_tensor x = make(TC_F32, 4, sizes, f, w), kernel = make(TC_F32, 4, of, k, w);
    tc_tensor y = tc_conv2d(x, kernel, TC_NONE, &(tc_conv){.padding = {0, 1}, .stride = {1, 2}});
    op_case *c = add_case("conv2d", y, 9);
    tc_tensor z = tc_max_pool2d(x, &(tc_pool){.kernel = {2, 2}, .stride = {2, 2}});
    op_case *d = add_case("max_pool2d", z, 4);
    for (int i = 0; i < 9; i++) {
        for (int j = 0; j < 6; j++) {
            int row = i / 3 + j / 3, column = i % 3 * 2 + j % 3 - 1;
            c->want[i] += column < 0 || column >= W ? 0 : f[row * W + column] * k[j];
        }
    }
    for (int i = 0; i < 4; i++) {
        int at = i / 2 * 2 * W + i % 2 * 2;
        d->want[i] = fmax(fmax(f[at], f[at + 1]), fmax(f[at + W], f[at + W + 1]));
    }
    close_cases();
}

/* ---- composites ---- */

static void expect_softmax(op_case *c, op_case *log_of, const double *f, int rows, int n)
{
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += exp(f[r * n + i]);
        }
        for (int i = 0; i < n; i++) {
            c->want[r * n + i] = exp(f[r * n + i]) / sum;
            log_of->want[r * n + i] = f[r * n + i] - log(sum);
        }
    }
}

TEST(composite_rows)
{
    enum { R = 3, N = 7 };
    open_cases();
    for (int k = 4; k < DTYPES; k++) {
        double f[R * N], weight[N], bias[N], picked[R] = {2, 6, 0};
        int64_t w[R * N] = {0}, target[R] = {2, 6, 0}, sizes[2] = {R, N}, n = N, r = R;
        for (int i = 0; i < R * N; i++) {
            f[i] = (i * 5 % 17 - 8) * 0.25;
            weight[i % N] = 1 + i % N * 0.125;
            bias[i % N] = i % N - 3;
        }
        tc_tensor x = make(dtypes[k], 2, sizes, f, w);
        tc_tensor g = make(dtypes[k], 1, &n, weight, w), b = make(dtypes[k], 1, &n, bias, w);
        op_case *same = add_case("stop_gradient", tc_stop_gradient(x), R * N);
        op_case *stored = add_case("materialize", tc_materialize(tc_neg(tc_neg(x))), R * N);
        op_case *s = add_case("softmax", tc_softmax(x, -1), R * N);
        op_case *l = add_case("log_softmax", tc_log_softmax(x, 1), R * N);
        op_case *m = add_case("mean", tc_mean(x, TC_AXES(1), false), R);
        op_case *v = add_case("layer_norm", tc_layer_norm(x, TC_AXES(-1), g, b, 0.5), R * N);
        op_case *e = add_case("cross_entropy",
                              tc_cross_entropy(x, make(TC_I64, 1, &r, picked, target)), 1);
        s->sums = l->sums = m->sums = v->sums = e->sums = true;
        s->tolerance = l->tolerance = m->tolerance = v->tolerance = e->tolerance = 2e-6;
        expect_softmax(s, l, f, R, N);
        memcpy(same->want, f, sizeof(f));
        memcpy(stored->want, f, sizeof(f));
        for (int i = 0; i < R * N; i++) {
            double var = 0;
            m->want[i / N] += i % N ? 0 : 0;
            for (int j = 0; j < N && i % N == 0; j++) {
                m->want[i / N] += f[i + j] / N;
            }
            for (int j = 0; j < N; j++) {
                double away = f[i / N * N + j] - m->want[i / N];
                var += away * away / N;
            }
            v->want[i] = (f[i] - m->want[i / N]) / sqrt(var + 0.5) * weight[i % N] + bias[i % N];
        }
        for (int i = 0; i < R; i++) {
            e->want[0] -= l->want[i * N + target[i]] / R;
        }
    }
    close_cases();
}

/* Each element adds the filter, times itself, at twice its place. */
TEST(conv_transpose)
{
    enum { N = 3, K = 3 };
    const int64_t sizes[3] = {1, 1, N};
    open_cases();
    for (int k = 4; k < DTYPES; k++) {
        double line[N] = {1, -2, 3}, filter[K] = {2, 1, -4};
        int64_t whole[N] = {0};
        tc_tensor x = make(dtypes[k], 3, sizes, line, whole);
        tc_tensor w = make(dtypes[k], 3, sizes, filter, whole);
        tc_tensor y = tc_conv_transpose1d(x, w, TC_NONE, &(tc_conv){.stride = {2}});
        op_case *c = add_case("conv_transpose", y, 2 * (N - 1) + K);
        for (int i = 0; i < N * K; i++) {
            c->want[2 * (i / K) + i % K] += line[i / K] * filter[i % K];
        }
    }
    close_cases();
}

/* a x = b and what else is known of one a, with its lower triangle and a right side. */
TEST(matrix_rows)
{
    enum { N = 3 };
    static const double square[] = {2, 1, 0, 4, 3, 1, 0, 1, 4}, x[] = {1, 2, 3};
    static const double right[] = {4, 13, 14}, lower[] = {2, 10, 14};
    static const double positive[] = {4, 2, 0, 2, 10, 3, 0, 3, 5};
    static const double root[] = {2, 0, 0, 1, 3, 0, 0, 1, 2};
    open_cases();
    for (int k = 4; k < DTYPES; k++) {
        const int64_t sizes[2] = {N, N}, n = N;
        int64_t w[N * N] = {0};
        double a[N * N], p[N * N], b[N], c[N];
        memcpy(a, square, sizeof(a));
        memcpy(p, positive, sizeof(p));
        memcpy(b, right, sizeof(b));
        memcpy(c, lower, sizeof(c));
        tc_tensor m = make(dtypes[k], 2, sizes, a, w);
        tc_tensor l = tc_unsqueeze(make(dtypes[k], 1, &n, c, w), 1);
        op_case *all[4] = {
            add_case("solve", tc_solve(m, make(dtypes[k], 1, &n, b, w)), N),
            add_case("solve_triangular", tc_solve_triangular(m, l, false, true, false), N),
            add_case("cholesky", tc_cholesky(make(dtypes[k], 2, sizes, p, w), false), N * N),
            add_case("det", tc_det(m), 1)};
        for (int i = 0; i < 4; i++) {
            all[i]->sums = true;
            all[i]->tolerance = 1e-5;
        }
        memcpy(all[0]->want, x, sizeof(x));
        memcpy(all[1]->want, (double[]){1, 2, 3}, sizeof(x));
        memcpy(all[2]->want, root, sizeof(root));
        all[3]->want[0] = 6;
    }
    close_cases();
}

/* ---- corners ---- */

TEST(zeros_keep_their_sign)
{
    open_cases();
    double f[4] = {0, -0.0, -0.0, 0}, one[1] = {1};
    int64_t w[4] = {0}, n = 4, single = 1;
    tc_tensor x = make(TC_F32, 1, &n, f, w);
    tc_tensor infinite[] = {tc_div(1, x),
                            tc_div(1, tc_neg(x)),
                            tc_div(1, tc_add(x, 0)),
                            tc_div(1, tc_mul(x, make(TC_F32, 1, &single, one, w))),
                            tc_div(1, tc_sub(x, 0)),
                            tc_div(1, tc_floor(x))};
    static const char *const signs[] = {"+--+", "-++-", "++++", "+--+", "+--+", "+--+"};
    for (int i = 0; i < 6; i++) {
        op_case *c = add_case("1 / zero", infinite[i], 4);
        for (int j = 0; j < 4; j++) {
            c->want[j] = signs[i][j] == '+' ? INFINITY : -INFINITY;
        }
    }
    close_cases();
}

/* A constant NaN is one everywhere: nothing may assume that constants are numbers. */
TEST(constants_may_be_nan)
{
    open_cases();
    int64_t none = 0;
    tc_tensor nan = tc_mean(make(TC_F32, 1, &none, (double[1]){0}, (int64_t[1]){0}), TC_ALL, false);
    tc_tensor ys[] = {tc_maximum(nan, -4), tc_minimum(nan, 4), tc_relu(nan), tc_add(nan, 1)};
    for (int i = 0; i < 4; i++) {
        add_case("NaN", ys[i], 1)->want[0] = NAN;
    }
    close_cases();
}

/* ---- the table ---- */

TEST(every_row_has_a_case)
{
    if (!seen[TCI_OP_ADD] || !seen[TCI_OP_SOFTMAX]) {
        SKIP("the tests of the rows did not all run");
    }
    seen[TCI_OP_INPUT] = true;  /* cases hold their data; inputs are everywhere else */
    seen[TCI_OP_ASSIGN] = true; /* changes a parameter: no value of a graph */
    seen[TCI_OP_BOUND] = seen[TCI_OP_REPEAT] = true; /* repetitions: tests/ops/test_loops.c */
    seen[TCI_OP_RESULT] = true;
    seen[TCI_OP_CUSTOM] = true;     /* a function of the user's: tests/unit/test_custom.c */
    seen[TCI_OP_COLLECTIVE] = true; /* several processes: tests/comm/test_collectives.c */
    seen[TCI_OP_SHARD] = true;      /* parts of tensors: tests/comm/test_partition.c */
    seen[TCI_OP_SEGMENT] = true;    /* the planner's own: tests/ops/test_scatter.c */
    for (int op = 0; op < TCI_OP_COUNT; op++) {
        CHECK_MSG(op == TCI_OP_EW_END || seen[op], "row %s is in no case", tci_op_name(op));
    }
}

static uint64_t bits_of(uint64_t v)
{
    return v ? (v & 1) + bits_of(v >> 1) : 0;
}

TEST(popcount_of_every_width)
{
    static const tc_dtype types[] = {TC_U8, TC_I8, TC_U16, TC_I16, TC_U32, TC_I32, TC_U64, TC_I64};
    const uint64_t values[] = {
        0, 1, UINT64_MAX, 0x8000000000000000u, 0x0123456789abcdefu, 0x80, 0xfedcba9876543210u, 42};
    for (int i = 0; i < TCI_COUNT(types); i++) {
        int64_t got[TCI_COUNT(values)];
        REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
        tc_tensor x = tc_cast(tc_copy_in(ctx, values, TC_U64, TCI_COUNT(values)), types[i]);
        tc_tensor y = tc_cast(tc_popcount(x), TC_I64);
        CHECK_MSG(tc_read(y, got, TCI_COUNT(values)) == TC_OK, "%s", tc_error(y));
        int width = 8 * tci_dtype_get(types[i])->bytes;
        for (int k = 0; k < TCI_COUNT(values); k++) {
            CHECK_EQ_INT(got[k], (int64_t)bits_of(values[k] << (64 - width)));
        }
        tc_ctx_free(ctx);
    }
}

TEST(bags_of_rows)
{
    const float table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const int64_t index[4] = {3, 0, 1, 1}, cuts[3] = {0, 1, 1}; /* the second bag is empty */
    const float sums[6] = {7, 8, 0, 0, 7, 10}, means[4] = {4, 5, 3, 4}, most[4] = {7, 8, 0, 0};
    float got[6];
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    tc_tensor w = tc_copy_in(ctx, table, TC_F32, 4, 2);
    tc_tensor i = tc_copy_in(ctx, index, TC_I64, 4), at = tc_copy_in(ctx, cuts, TC_I64, 3);
    CHECK_EQ_INT(tc_read(tc_embedding_bag(i, w, at, "sum", TC_NONE, false, TC_END), got, 6), TC_OK);
    CHECK(!memcmp(got, sums, sizeof(sums)));
    i = tc_reshape(i, 2, 2);
    CHECK_EQ_INT(tc_read(tc_embedding_bag(i, w, TC_NONE, NULL, TC_NONE, false, TC_END), got, 4),
                 TC_OK);
    CHECK(!memcmp(got, means, sizeof(means)));
    tc_tensor kept = tc_embedding_bag(i, w, TC_NONE, "max", TC_NONE, false, 1);
    CHECK_EQ_INT(tc_read(kept, got, 4), TC_OK);
    CHECK(!memcmp(got, most, sizeof(most)));
    tc_ctx_free(ctx);
}

TEST_MAIN
