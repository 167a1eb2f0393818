/* tests/cuda/test_online.c - class ONLINE: the largest element of a long row and the sum of
 * exp(x - largest) in one pass. Against f64, for rows of all kinds; and with the same bits on
 * interp and cpu, and, as plans for blocks of threads are, on the interpreter and the emulated CUDA
 * dialect. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"
#include "same.h"

#include "emulate.h"

typedef tc_tensor (*expression)(tc_tensor x);

/* ---- backends ---- */

/* Plans as the emulation does and compiles nothing, so the interpreter runs the same kernels. */
static tc_status planned_target(void *user, int vector_bits, tc_backend_target *target)
{
    tc_status status = emu_target(user, vector_bits, target);
    snprintf(target->features, sizeof(target->features), "planned");
    target->usable = true;
    return status;
}

static tc_status planned_compile(void *user, tc_build *build)
{
    (void)user;
    (void)build;
    return TC_ERR_COMPILER;
}

static tc_ctx *context_of(const char *backend)
{
    static bool done;
    static tc_backend planned;
    tc_options o = {.backend = backend, .verify = true};
    tc_ctx *ctx = NULL;
    if (!done) {
        done = true;
        tc_register_backend(emulation());
        planned = *emulation();
        planned.name = "planned";
        planned.target = planned_target;
        planned.compile = planned_compile;
        tc_register_backend(&planned);
    }
    o.fallback = strcmp(backend, "planned") ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

/* ---- rows ---- */

/* What the first rows hold; those after them hold numbers without order. */
enum { MASKED, NAN_ROW, HALF_MASKED, INFINITE, ASCENDING, DESCENDING, EQUAL, LARGE, KINDS };

static float element(int kind, int i, int n)
{
    float any = (float)((i * 7919) % 2003 - 1001) / 157.0f;
    switch (kind) {
    case MASKED: return -INFINITY;
    case NAN_ROW: return i == n / 3 ? NAN : any;
    case HALF_MASKED: return i < n / 2 || i % 7 == 0 ? -INFINITY : any;
    case INFINITE: return i == n / 2 ? INFINITY : any;
    case ASCENDING: return (float)i * 1e-4f;
    case DESCENDING: return (float)(n - i) * 1e-4f;
    case EQUAL: return 0.1f;
    case LARGE: return any * 3e37f;
    default: return any + (float)kind;
    }
}

static float *make_rows(int rows, int n)
{
    float *x = (float *)malloc(sizeof(float) * (size_t)rows * (size_t)n);
    REQUIRE(x != NULL);
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < n; i++) {
            x[(int64_t)r * n + i] = element(r, i, n);
        }
    }
    return x;
}

/* ---- expressions: of x, which is read with zeros around it ---- */

static tc_tensor exp_sum(tc_tensor x)
{
    tc_tensor shifted = tc_sub(x, tc_max(x, TC_AXES(1), true));
    return tc_sum(tc_exp(shifted), TC_AXES(1), false);
}
static tc_tensor logsumexp(tc_tensor x)
{
    return tc_add(tc_max(x, TC_AXES(1), false), tc_log(exp_sum(x)));
}
static tc_tensor softmax(tc_tensor x)
{
    return tc_softmax(x, 1);
}
static tc_tensor softmax_half(tc_tensor x)
{
    tc_tensor twice = tc_cat(TC_TENSORS(x, tc_flip(x, 1)), 1);
    return tc_cast(tc_log_softmax(tc_cast(twice, TC_BF16), 1), TC_F32);
}
static tc_tensor softmax_columns(tc_tensor x)
{
    return tc_softmax(x, 0);
}
static tc_tensor losses(tc_tensor x)
{
    tc_tensor rows = tc_arange(x.ctx, 0, tc_size(x, 0), 1, TC_I64);
    return tc_cross_entropy(x, tc_mul(tc_remainder(rows, 7), 37));
}
static tc_tensor gradient(tc_tensor x)
{
    tc_tensor y = logsumexp(x), g = TC_NONE;
    tc_grad(tc_sum(tc_where(tc_lt(tc_abs(y), INFINITY), y, 0), TC_ALL, false), &x, 1, &g);
    return g;
}

/* ---- running ---- */

static char explained[8192];

static void explain(tc_program *f)
{
    FILE *text = tmpfile();
    REQUIRE(text != NULL);
    memset(explained, 0, sizeof(explained));
    CHECK_EQ_INT(tc_explain_as(f, text, &(tc_explain_options){.all = true}), TC_OK);
    rewind(text);
    explained[fread(explained, 1, sizeof(explained) - 1, text)] = 0;
    fclose(text);
}

/* Rows are far by what is read for them: four lines of zeros are added to x, along its longer
 * axis. The caller frees; NULL: there is no such backend here. */
static float *run(const char *backend, expression e, const float *x, int rows, int n,
                  int64_t *count)
{
    tc_ctx *ctx = context_of(backend);
    tc_program *f = NULL;
    if (!ctx) {
        return NULL;
    }
    int line = rows > n ? rows : n;
    tc_tensor x_in = tc_input(ctx, "x", TC_F32, rows, n), sum = x_in, zeros[4];
    for (int i = 0; i < 4; i++) {
        zeros[i] = rows > n ? tc_input(ctx, "zeros", TC_F32, rows, 1)
                            : tc_input(ctx, "zeros", TC_F32, 1, n);
        sum = tc_add(sum, zeros[i]);
    }
    tc_tensor y = e(sum);
    float *none = (float *)calloc((size_t)line, sizeof(float));
    *count = tc_count(y);
    float *out = (float *)calloc((size_t)*count, sizeof(float));
    tc_status status = tc_compile_fn(TC_TENSORS(x_in, zeros[0], zeros[1], zeros[2], zeros[3]),
                                     TC_TENSORS(y), NULL, &f);
    if (status == TC_ERR_COMPILER) {
        free(out);
        free(none);
        tc_ctx_free(ctx);
        return NULL;
    }
    CHECK_MSG(!status, "%s: %s", backend, tc_error(y));
    REQUIRE(!status && out && none);
    status = tc_run(f,
                    TC_BUFS(TC_BUF(x, (int64_t)rows * n), TC_BUF(none, line), TC_BUF(none, line),
                            TC_BUF(none, line), TC_BUF(none, line)),
                    TC_BUFS(TC_BUF(out, *count)));
    CHECK_MSG(!status, "%s: %s", backend, tc_error(f));
    explain(f);
    free(none);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return out;
}

enum { ROWS = 65, LONG = 65539 }; /* more rows than are cut; five lines are over a megabyte */
enum { FEW = KINDS + 1, CUT = 3 * 65536 }; /* rows that are cut */

/* note: in the words of tc_explain, how it is done. */
static void check_sums(int rows, int length, const char *note, double bound)
{
    float *x = make_rows(rows, length);
    int64_t n = 0;
    float *got = run("interp", exp_sum, x, rows, length, &n);
    REQUIRE(got && n == rows);
    CHECK_MSG(strstr(explained, note) != NULL, "%s", explained);
    for (int r = 0; r < rows; r++) {
        double most = -INFINITY, want = 0;
        for (int i = 0; i < length; i++) {
            double v = x[(int64_t)r * length + i];
            most = v > most || v != v ? v : most;
        }
        for (int i = 0; i < length; i++) {
            want += exp((double)(x[(int64_t)r * length + i] - (float)most));
        }
        bool nan = want != want;
        CHECK_MSG(nan ? got[r] != got[r] : fabs(got[r] - want) <= bound * want,
                  "row %d: %.9g, expected %.9g", r, got[r], want);
        CHECK_EQ_INT(nan, r == MASKED || r == NAN_ROW || r == INFINITE);
    }
    free(got);
    free(x);
}

/* A lane takes LONG / 64 steps: errors that had no order would be 16 of one step. */
TEST(sums_of_long_rows)
{
    check_sums(ROWS, LONG, "ONLINE LANES(64)", 4e-6);
    check_sums(FEW, CUT, " parts, each with a max of its own", 4e-6);
}

static void compare_as(const char *note, const char *backend, const char *other, expression e,
                       const char *name, const float *x, int rows, int n)
{
    int64_t count = 0;
    float *want = run(backend, e, x, rows, n, &count), *got = NULL;
    REQUIRE(want != NULL);
    CHECK_MSG(strstr(explained, note) != NULL, "%s: %s", name, explained);
    got = run(other, e, x, rows, n, &count);
    if (got) {
        int64_t at = same_until(TC_F32, want, got, count);
        CHECK_MSG(at < 0, "%s on %s: element %lld is %a, expected %a", name, other, (long long)at,
                  at < 0 ? 0 : got[at], at < 0 ? 0 : want[at]);
    }
    free(want);
    free(got);
}

static void compare(const char *backend, const char *other, expression e, const char *name,
                    const float *x, int rows, int n)
{
    compare_as("ONLINE ", backend, other, e, name, x, rows, n);
}

TEST(native_code_has_the_bits_of_the_interpreter)
{
    float *x = make_rows(ROWS, LONG);
    compare("interp", "cpu", exp_sum, "sum", x, ROWS, LONG);
    compare("interp", "cpu", logsumexp, "logsumexp", x, ROWS, LONG);
    compare("interp", "cpu", softmax, "softmax", x, ROWS, LONG);
    compare("interp", "cpu", softmax_half, "log_softmax of bf16", x, ROWS, LONG);
    compare("interp", "cpu", softmax_columns, "softmax of columns", x, LONG, ROWS);
    compare("interp", "cpu", losses, "cross_entropy", x, ROWS, LONG);
    compare("interp", "cpu", gradient, "gradient of logsumexp", x, ROWS, LONG);
    free(x);
    x = make_rows(FEW, CUT);
    compare_as(" a max of its own", "interp", "cpu", softmax, "softmax, cut", x, FEW, CUT);
    compare_as(" a max of its own", "interp", "cpu", losses, "cross_entropy, cut", x, FEW, CUT);
    free(x);
}

TEST(emulated_blocks_have_the_bits_of_the_interpreter)
{
    enum { ROW = 8191 }; /* too short to be cut, five of them too long for registers */
    float *x = make_rows(FEW, ROW);
    tc_ctx *probe = context_of("emulated");
    if (!probe) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx_free(probe);
    compare("planned", "emulated", logsumexp, "logsumexp", x, FEW, ROW);
    compare("planned", "emulated", losses, "cross_entropy", x, FEW, ROW);
    free(x);
    x = make_rows(FEW, 12 * 1024);
    compare_as(" a max of its own", "planned", "emulated", softmax, "softmax, cut", x, FEW,
               12 * 1024);
    free(x);
}

/* d logsumexp / dx is softmax; that of the largest element has gone through the maximum too. */
TEST(gradients_are_those_of_the_sum)
{
    float *x = make_rows(ROWS, LONG);
    int64_t n = 0;
    float *got = run("interp", gradient, x, ROWS, LONG, &n);
    REQUIRE(got && n == (int64_t)ROWS * LONG);
    for (int r = HALF_MASKED; r < ROWS; r++) {
        double most = -INFINITY, sum = 0, worst = 0;
        if (r == INFINITE) {
            continue;
        }
        for (int i = 0; i < LONG; i++) {
            most = fmax(most, x[(int64_t)r * LONG + i]);
        }
        for (int i = 0; i < LONG; i++) {
            sum += exp((double)(x[(int64_t)r * LONG + i] - (float)most));
        }
        for (int i = 0; i < LONG; i++) {
            double want = exp((double)(x[(int64_t)r * LONG + i] - (float)most)) / sum;
            double error = fabs(got[(int64_t)r * LONG + i] - want);
            bool largest = x[(int64_t)r * LONG + i] == (float)most;
            worst = fmax(worst, largest ? error : error / (want + 1e-12));
        }
        CHECK_MSG(worst <= 1e-5, "row %d: off by %g", r, worst);
    }
    free(got);
    free(x);
}

TEST_MAIN
