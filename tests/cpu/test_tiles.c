/* Contractions on a CPU's matrix unit: the code that plain C stands in for runs everywhere, is
 * compared with the interpreter within the bound of its numeric class, and gives the same bits for
 * any number of threads; where this processor has the unit, it gives those bits too. */
#include "inside.h"

#include "tc_test.h"
#include "same.h"

enum { WIDE = 512 }; /* bits: only such vectors have tiles, whatever TC_VECTOR says */

/* The "cpu" backend with a matrix unit that is not there. */
static tc_status imitation_target(void *user, int vector_bits, tc_backend_target *out)
{
    tci_target t;
    memset(&t, 0, sizeof(t));
    tci_target_detect(&t, vector_bits);
    tc_status status = tci_cpu_backend()->target(user, vector_bits, out);
    char *unit = strstr(out->features, ",amx");
    if (unit) { /* the flags that come without it */
        memmove(unit, unit + 4, strlen(unit + 4) + 1);
    }
    out->matrix_units = 1;
    return status;
}

static tc_status imitation_compile(void *user, tc_build *build)
{
    tci_target t;
    const char *why;
    (void)user;
    tci_target_detect(&t, WIDE);
    t.n_flags -= t.matrix_units;
    return tci_cc_build(build, &t, &why);
}

static void register_imitation(void)
{
    static tc_backend imitation;
    if (!imitation.name) {
        imitation = *tci_cpu_backend();
        imitation.name = "tiles";
        imitation.target = imitation_target;
        imitation.compile = imitation_compile;
        tc_register_backend(&imitation);
    }
}

static bool is_wide(void)
{
    tci_target t;
    tci_target_detect(&t, WIDE);
    return t.vector_bytes == 64;
}

static bool has_unit(void)
{
    tci_target t;
    tci_target_detect(&t, WIDE);
    return t.matrix_units > 0;
}

typedef struct product {
    const char *name;
    int batch, m, n, k;
    bool b_turned, chain; /* chain: bias, gelu and a bf16 result */
    bool fits;            /* the unit takes it */
} product;

static uint16_t *random_halves(int64_t n)
{
    uint16_t *p = malloc((size_t)n * sizeof(*p) + 1);
    REQUIRE(p != NULL);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)tct_random_below(2001) / 1000 - 1;
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        p[i] = (uint16_t)(bits >> 16);
    }
    return p;
}

static float value_of(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static bool is_for_the_unit(const tc_program *f)
{
    char text[4096] = "";
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    tc_explain(f, file);
    rewind(file);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = 0;
    fclose(file);
    return strstr(text, "matrix unit") != NULL;
}

/* Runs the product; says whether it was made for the unit. */
static bool run(product p, const char *backend, int threads, const uint16_t *a, const uint16_t *b,
                float *to)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    tc_options options = {.threads = threads, .backend = backend, .no_disk_cache = true,
                          .verify = true, .vector_bits = WIDE, .fallback = TC_FALLBACK_REFUSE};
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    int64_t n_a = (int64_t)p.batch * p.m * p.k, n_b = (int64_t)p.k * p.n;
    tc_tensor x = tc_input(ctx, "x", TC_BF16, p.batch, p.m, p.k);
    tc_tensor y = tc_input(ctx, "y", TC_BF16, p.b_turned ? p.n : p.k, p.b_turned ? p.k : p.n);
    tc_tensor right = tc_cast(p.b_turned ? tc_transpose(y, 0, 1) : y, TC_F32);
    tc_tensor z = tc_matmul(tc_cast(x, TC_F32), right);
    z = p.chain ? tc_cast(tc_cast(tc_gelu(tc_add(z, 0.25)), TC_BF16), TC_F32) : z;
    CHECK_MSG(tc_compile_fn(TC_TENSORS(x, y), TC_TENSORS(z), &options, &f) == TC_OK, "%s: %s",
              p.name, tc_error(z));
    REQUIRE(f != NULL);
    tc_buf in[2] = {{.data = (void *)(uintptr_t)a, .dtype = TC_BF16, .n = n_a},
                    {.data = (void *)(uintptr_t)b, .dtype = TC_BF16, .n = n_b}};
    tc_bufs ins = {in, 2};
    CHECK_MSG(tc_run(f, ins, TC_BUFS(TC_BUF(to, (int64_t)p.batch * p.m * p.n))) == TC_OK, "%s: %s",
              p.name, tc_error(f));
    bool on_unit = is_for_the_unit(f);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return on_unit;
}

/* The bound of the class (kernel/ir.h) on a sum, and what the chain may make of it. */
static bool is_close(product p, const uint16_t *a, const uint16_t *b, int64_t at, float want,
                     float got)
{
    int64_t row = at / p.n, column = at % p.n;
    double all = 0;
    for (int64_t k = 0; k < p.k; k++) {
        int64_t y = p.b_turned ? column * p.k + k : k * p.n + column;
        all += fabs((double)value_of(a[row * p.k + k]) * value_of(b[y]));
    }
    double bound = (2.0 * ((p.k + 15) / 16) + 32) * 0x1p-23 * all;
    bound = p.chain ? 2 * bound + fabs(want) * 0x1p-7 : bound;
    return fabs((double)want - got) <= bound;
}

static void check_product(product p)
{
    int64_t n = (int64_t)p.batch * p.m * p.n;
    uint16_t *a = random_halves((int64_t)p.batch * p.m * p.k);
    uint16_t *b = random_halves((int64_t)p.k * p.n);
    float *want = calloc((size_t)n, sizeof(*want)), *one = calloc((size_t)n, sizeof(*one));
    float *got = calloc((size_t)n, sizeof(*got));
    static const int threads[] = {1, 2, 5};
    REQUIRE(want && one && got);
    run(p, "interp", 1, a, b, want);
    for (int i = 0; i < 3; i++) {
        bool on_unit = run(p, "tiles", threads[i], a, b, i ? got : one);
        CHECK_MSG(on_unit == p.fits, "%s: %s the unit", p.name, on_unit ? "on" : "not on");
        CHECK_MSG(i == 0 || same_bits(TC_F32, one, got, n),
                  "%s, %d threads: other bits than one", p.name, threads[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        bool close = p.fits ? is_close(p, a, b, i, want[i], one[i]) : want[i] == one[i];
        if (!close) {
            CHECK_MSG(false, "%s: element %lld is %g, expected %g", p.name, (long long)i, one[i],
                      want[i]);
            break;
        }
    }
    if (has_unit()) {
        CHECK(run(p, "cpu", 2, a, b, got) == p.fits);
        CHECK_MSG(same_bits(TC_F32, one, got, n), "%s: the unit has other bits", p.name);
    }
    free(a);
    free(b);
    free(want);
    free(one);
    free(got);
}

TEST(products_on_a_matrix_unit)
{
    static const product products[] = {
        {"one block", 1, 128, 128, 128, false, false, true},
        {"blocks of columns", 1, 64, 1120, 96, false, false, true},
        {"deep", 1, 32, 64, 1056, false, true, true},
        {"batched", 3, 64, 96, 160, false, true, true},
        {"odd rows", 1, 100, 256, 128, false, false, false},
        {"odd depth", 1, 128, 256, 120, false, true, false},
        {"turned right", 1, 128, 128, 128, true, false, true},
        {"turned right, blocks of columns", 1, 64, 1120, 96, true, true, true},
        {"turned right, deep, batched", 2, 64, 160, 1056, true, false, true},
    };
    if (!is_wide()) {
        SKIP("no vectors of 512 bits");
    }
    register_imitation();
    for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++) {
        check_product(products[i]);
    }
}

TEST_MAIN
