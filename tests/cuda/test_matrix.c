/* Contractions on matrix units without a GPU: the kernels' text is run by the model (model.h) and
 * compared with sums in f64; bugs planted in it must show; NVRTC compiles it where it is found. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"
#include "matrix_context.h"

/* ---- cases ---- */

/* C[batch][m][n] = A B; a_turned: A lies as [k][m]; b_turned: B lies as [n][k]. */
typedef struct product_case {
    int batch, m, n, k;
    bool a_turned, b_turned, half, wide; /* half: f16; wide: the result is f32, unrounded */
    bool bias, gelu, residual;
    bool a_shared; /* A is the same for all of the batch */
} product_case;

enum { MOST_INPUTS = 4 };

typedef struct product {
    product_case c;
    tc_tensor in[MOST_INPUTS], y;
    int n_in;
    tc_program *program;
    uint16_t *data[MOST_INPUTS];
    int64_t n[MOST_INPUTS], n_out;
} product;

static uint32_t state = 1;

static double next_value(void)
{
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 23) - 1;
}

static uint16_t to_half(double x, bool half)
{
    uint32_t bits;
    float f = half ? (float)x : tci_round_bf16((float)x);
    memcpy(&bits, &f, sizeof(bits));
    return half ? tci_f32_to_f16_bits(f) : (uint16_t)(bits >> 16);
}

static double of_half(uint16_t h, bool half)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return (double)(half ? tci_f16_bits_to_f32(h) : f);
}

static tc_tensor add_input(product *p, tc_ctx *ctx, int batch, int rows, int columns)
{
    int64_t shape[4] = {p->c.half ? TC_F16 : TC_BF16, batch, rows, columns};
    int64_t n = (int64_t)batch * rows * columns;
    if (batch == 1) { /* matrices, rows where there is one */
        shape[1] = rows;
        shape[2] = columns;
    }
    int rank = batch > 1 ? 3 : rows > 1 ? 2 : 1;
    shape[1] = rank == 1 ? columns : shape[1];
    uint16_t *data = (uint16_t *)aligned_alloc(64, ((size_t)n * 2 + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++) {
        data[i] = to_half(next_value(), p->c.half);
    }
    tc_tensor x = tc_input_at(ctx, "x", rank + 1, shape, TC_HERE);
    p->data[p->n_in] = data;
    p->n[p->n_in] = n;
    p->in[p->n_in++] = x;
    return x;
}

static void make_product(product *p, tc_ctx *ctx, product_case c)
{
    memset(p, 0, sizeof(*p));
    p->c = c;
    p->n_out = (int64_t)c.batch * c.m * c.n;
    int batch = c.a_shared ? 1 : c.batch;
    tc_tensor a = c.a_turned ? add_input(p, ctx, batch, c.k, c.m)
                             : add_input(p, ctx, batch, c.m, c.k);
    tc_tensor b = c.b_turned ? add_input(p, ctx, c.batch, c.n, c.k)
                             : add_input(p, ctx, c.batch, c.k, c.n);
    a = c.a_turned ? tc_transpose(a, -1, -2) : a;
    b = c.b_turned ? tc_transpose(b, -1, -2) : b;
    p->y = c.wide ? tc_matmul(tc_cast(a, TC_F32), tc_cast(b, TC_F32)) : tc_matmul(a, b);
    if (c.bias) {
        p->y = tc_add(p->y, add_input(p, ctx, 1, 1, c.n));
    }
    p->y = c.gelu ? tc_gelu(p->y) : p->y;
    if (c.residual) {
        p->y = tc_add(p->y, add_input(p, ctx, c.batch, c.m, c.n));
    }
    p->y = tc_cast(p->y, TC_F32);
}

static void free_product(product *p)
{
    for (int i = 0; i < p->n_in; i++) {
        free(p->data[i]);
    }
    tc_program_free(p->program);
}

/* The value of element i and how far off the result may be: the bound of kernel/ir.h, and half a
 * unit for every rounding. */
static double want_element(const product *p, int64_t i, double *slack)
{
    const product_case *c = &p->c;
    int64_t batch = i / ((int64_t)c->m * c->n), row = i / c->n % c->m, column = i % c->n;
    int64_t a_batch = c->a_shared ? 0 : batch;
    const uint16_t *a = p->data[0] + a_batch * c->m * c->k;
    const uint16_t *b = p->data[1] + batch * c->k * c->n;
    double sum = 0, size = 0, unit = c->wide ? 0 : c->half ? 0x1p-11 : 0x1p-8;
    for (int64_t k = 0; k < c->k; k++) {
        double x = of_half(c->a_turned ? a[k * c->m + row] : a[row * c->k + k], c->half);
        double y = of_half(c->b_turned ? b[column * c->k + k] : b[k * c->n + column], c->half);
        sum += x * y;
        size += fabs(x * y);
    }
    *slack = size * (2 * ((c->k + 15) / 16) + 32) * 0x1p-23 + fabs(sum) * unit;
    int next = 2;
    if (c->bias) {
        sum += of_half(p->data[next++][column], c->half);
        *slack += fabs(sum) * unit;
    }
    if (c->gelu) {
        sum *= 0.5 * (1 + erf(sum * 0.70710678118654752));
        *slack = 1.2 * *slack + fabs(sum) * unit + 1e-6;
    }
    if (c->residual) {
        sum += of_half(p->data[next++][i], c->half);
        *slack += fabs(sum) * unit;
    }
    *slack += 1e-6 * fabs(sum); /* sums in f32 */
    return sum;
}

/* Runs it; how many elements are outside of their bound, -1: it does not run. */
static int64_t run_product(const product *p)
{
    tc_buf in[MOST_INPUTS];
    int64_t wrong = 0;
    float *out = (float *)malloc((size_t)p->n_out * sizeof(float));
    memset(out, 0xff, (size_t)p->n_out * sizeof(float));
    for (int i = 0; i < p->n_in; i++) {
        in[i] = TC_BUF((void *)p->data[i], 2 * p->n[i]);
    }
    tc_bufs ins = {in, p->n_in};
    if (tc_run(p->program, ins, TC_BUFS(TC_BUF(out, p->n_out)))) {
        wrong = -1;
    }
    for (int64_t i = 0; i < p->n_out && wrong >= 0; i++) {
        double slack, want = want_element(p, i, &slack);
        wrong += !(fabs((double)out[i] - want) <= slack);
    }
    free(out);
    return wrong;
}

/* ---- every form ---- */

static const product_case cases[] = {
    {.batch = 1, .m = 128, .n = 128, .k = 64},
    {.batch = 1, .m = 200, .n = 264, .k = 136, .b_turned = true},
    {.batch = 1, .m = 200, .n = 264, .k = 136, .a_turned = true},
    {.batch = 1, .m = 136, .n = 520, .k = 72, .a_turned = true, .b_turned = true},
    {.batch = 1, .m = 201, .n = 512, .k = 136, .bias = true, .gelu = true},
    {.batch = 1, .m = 130, .n = 77, .k = 200, .b_turned = true, .residual = true},
    {.batch = 1, .m = 264, .n = 136, .k = 64, .bias = true, .gelu = true, .residual = true},
    {.batch = 1, .m = 200, .n = 264, .k = 136, .wide = true, .b_turned = true},
    {.batch = 1, .m = 136, .n = 72, .k = 264, .wide = true, .a_turned = true, .bias = true},
    {.batch = 1, .m = 128, .n = 1000, .k = 200, .wide = true, .b_turned = true}, /* one buffer */
    {.batch = 1, .m = 200, .n = 264, .k = 136, .half = true, .residual = true},
    {.batch = 1, .m = 200, .n = 264, .k = 136, .half = true, .wide = true, .a_turned = true},
    {.batch = 3, .m = 130, .n = 72, .k = 200, .bias = true},
    {.batch = 5, .m = 72, .n = 64, .k = 136, .a_turned = true, .b_turned = true},
    {.batch = 4, .m = 70, .n = 96, .k = 64, .a_shared = true, .b_turned = true},
    {.batch = 1, .m = 16, .n = 1024, .k = 256},
    {.batch = 1, .m = 200, .n = 77, .k = 131, .bias = true}, /* odd rows: copied */
    {.batch = 2, .m = 131, .n = 76, .k = 130, .a_turned = true, .b_turned = true},
    {.batch = 1, .m = 16, .n = 60, .k = 1160, .b_turned = true, .residual = true}, /* narrow */
    {.batch = 1, .m = 40, .n = 200, .k = 264, .a_turned = true}, /* fewer rows than a tile has */
    {.batch = 1, .m = 500, .n = 128, .k = 136, .bias = true},    /* two products of each consumer */
    {.batch = 1, .m = 3, .n = 1000, .k = 520, .b_turned = true, .bias = true}, /* few rows */
    {.batch = 1, .m = 3000, .n = 48, .k = 16, .b_turned = true, .bias = true}, /* few products, */
    {.batch = 1, .m = 2000, .n = 72, .k = 8, .b_turned = true}, /* and a tile of all columns */
    {.batch = 2, .m = 1009, .n = 24, .k = 24, .a_turned = true, .residual = true},
    {.batch = 1, .m = 4000, .n = 17, .k = 17, .bias = true},
    {.batch = 1, .m = 24, .n = 40, .k = 8192, .b_turned = true, .bias = true}, /* split-K: along */
    {.batch = 1, .m = 40, .n = 24, .k = 8200, .a_turned = true, .wide = true}, /* K, and across */
};

enum { CASES = sizeof(cases) / sizeof(cases[0]) };

/* The first `count` cases in one batch. */
static tc_status compile_cases(tc_ctx *ctx, product *products, int count)
{
    tc_job jobs[CASES];
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; i < count; i++) {
        make_product(&products[i], ctx, cases[i]);
        jobs[i].inputs = (tc_tensors){products[i].in, products[i].n_in};
        jobs[i].outputs = (tc_tensors){&products[i].y, 1};
        jobs[i].program = &products[i].program;
    }
    tc_status status = tc_compile_many(jobs, count, NULL);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    return status;
}

TEST(products_of_every_form)
{
    static product products[CASES];
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    tc_status status = compile_cases(ctx, products, CASES);
    for (int i = 0; i < CASES && !status; i++) {
        const char *text = explained(products[i].program);
        CHECK_MSG(strstr(text, "matrix unit"), "case %d is no product of a matrix unit:\n%s", i,
                  text);
        for (emu_model_seed = 1; emu_model_seed <= 2; emu_model_seed++) {
            int64_t wrong = run_product(&products[i]);
            CHECK_MSG(wrong == 0, "case %d, seed %u: %d of %d wrong%s%s", i, emu_model_seed,
                      (int)wrong, (int)products[i].n_out, wrong < 0 ? ": " : "",
                      wrong < 0 ? emu_why : "");
        }
    }
    printf("cuda: %d kernels with a main loop of their own\n", (int)emu_skeletons);
    for (int i = 0; i < CASES; i++) {
        free_product(&products[i]);
    }
    tc_ctx_free(ctx);
}

/* ---- bytes ---- */

/* C[batch][m][n] = A B^T, of bytes of any signs. */
typedef struct bytes_case {
    int batch, m, n, k;
    bool a_unsigned, b_unsigned;
    bool scales; /* halves, of a scale for each column and a bias */
    bool zeros;  /* less a number for each row of A, and one of all of B */
} bytes_case;

static tc_tensor bytes_input(tc_ctx *ctx, bool is_unsigned, int batch, int rows, int columns)
{
    tc_dtype t = is_unsigned ? TC_U8 : TC_I8;
    return batch > 1 ? tc_input(ctx, "x", t, batch, rows, columns)
                     : tc_input(ctx, "x", t, rows, columns);
}

/* Compiles and runs it; the result is left at `out`. */
static void run_bytes(const bytes_case *c, const char *backend, tc_buf *in, tc_buf out)
{
    tc_program *f = NULL;
    tc_ctx *ctx = open_context(backend, 0);
    REQUIRE(ctx);
    tc_tensor a = bytes_input(ctx, c->a_unsigned, c->batch, c->m, c->k);
    tc_tensor b = bytes_input(ctx, c->b_unsigned, c->batch, c->n, c->k);
    tc_tensor scale = tc_input(ctx, "scale", TC_F32, c->n);
    tc_tensor x = tc_cast(a, TC_I32), w = tc_cast(tc_transpose(b, -1, -2), TC_I32);
    if (c->zeros) {
        x = tc_sub(x, tc_unsqueeze(tc_mul(tc_arange(ctx, 0, c->m, 1, TC_I32), 1000003), -1));
        w = tc_sub(w, 77);
    }
    tc_tensor y = tc_matmul(x, w);
    y = c->scales ? tc_cast(tc_gelu(tc_add(tc_mul(tc_cast(y, TC_F32), scale), 0.5)), TC_F16) : y;
    CHECK_MSG(!tc_compile_fn(TC_TENSORS(a, b, scale), TC_TENSORS(y), NULL, &f), "%s", tc_error(y));
    REQUIRE(f);
    if (strcmp(backend, "interp") != 0) {
        CHECK_MSG(strstr(explained(f), "matrix unit"), "%dx%dx%d is no product of a matrix unit",
                  c->m, c->n, c->k);
    }
    CHECK_MSG(!tc_run(f, (tc_bufs){in, 3}, (tc_bufs){&out, 1}), "%s %s", tc_error(f), emu_why);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static void check_bytes(const bytes_case *c)
{
    int64_t n[3] = {(int64_t)c->batch * c->m * c->k, (int64_t)c->batch * c->n * c->k, c->n};
    int64_t results = (int64_t)c->batch * c->m * c->n, bytes = c->scales ? 2 : 4;
    uint8_t *data[2];
    float *scales = calloc((size_t)c->n, sizeof(*scales));
    void *want = calloc((size_t)results, 4), *got = calloc((size_t)results, 4);
    REQUIRE(scales && want && got);
    for (int i = 0; i < 2; i++) {
        data[i] = (uint8_t *)aligned_alloc(64, ((size_t)n[i] + 63) / 64 * 64);
        REQUIRE(data[i]);
        for (int64_t j = 0; j < n[i]; j++) {
            data[i][j] = (uint8_t)(128 * (next_value() + 1));
        }
    }
    for (int i = 0; i < c->n; i++) {
        scales[i] = (float)next_value() * 1e-5f;
    }
    tc_buf in[3] = {{.data = data[0], .dtype = c->a_unsigned ? TC_U8 : TC_I8, .n = n[0]},
                    {.data = data[1], .dtype = c->b_unsigned ? TC_U8 : TC_I8, .n = n[1]},
                    {.data = scales, .dtype = TC_F32, .n = n[2]}};
    tc_buf out = {.data = want, .dtype = c->scales ? TC_F16 : TC_I32, .n = results};
    run_bytes(c, "interp", in, out);
    out.data = got;
    run_bytes(c, "emulated", in, out);
    CHECK_MSG(!memcmp(want, got, (size_t)(results * bytes)), "%dx%dx%d: other bits", c->m, c->n,
              c->k);
    free(data[0]);
    free(data[1]);
    free(scales);
    free(want);
    free(got);
}

TEST(bytes_of_every_sign)
{
    static const bytes_case examples[] = {
        {.batch = 1, .m = 128, .n = 128, .k = 128},
        {.batch = 1, .m = 65, .n = 257, .k = 144, .a_unsigned = true},
        {.batch = 1, .m = 127, .n = 131, .k = 80, .b_unsigned = true},
        {.batch = 1, .m = 63, .n = 65, .k = 1040, .a_unsigned = true, .b_unsigned = true},
        {.batch = 1, .m = 1009, .n = 17, .k = 64},
        {.batch = 1, .m = 33, .n = 1031, .k = 528, .b_unsigned = true, .scales = true},
        {.batch = 1, .m = 193, .n = 136, .k = 272, .scales = true},
        {.batch = 3, .m = 67, .n = 72, .k = 112, .a_unsigned = true, .scales = true},
        {.batch = 1, .m = 67, .n = 135, .k = 144, .a_unsigned = true, .zeros = true},
    };
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++) {
        check_bytes(&examples[i]);
    }
}

/* Products that are many enough for copies: along k, in rows of whole 16 bytes. */
TEST(nvrtc_takes_bytes)
{
    const char *why = "";
    if (!tci_nvrtc_get(&why)) {
        SKIP("NVRTC cannot be opened: %s", why);
    }
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    for (int i = 0; i < 4; i++) {
        tc_program *f = NULL;
        tc_tensor a = bytes_input(ctx, i & 2, 1, 512, 256);
        tc_tensor b = bytes_input(ctx, i & 1, 1, 400, 256);
        tc_tensor y = tc_matmul(tc_cast(a, TC_I32), tc_cast(tc_transpose(b, -1, -2), TC_I32));
        CHECK_MSG(!tc_compile_fn(TC_TENSORS(a, b), TC_TENSORS(y), NULL, &f), "%s", tc_error(y));
        REQUIRE(f);
        check_by_nvrtc(f);
        tc_program_free(f);
    }
    tc_ctx_free(ctx);
}

TEST(bytes_that_lie_otherwise_are_copied)
{
    static const struct {
        int m, n, k;
        bool unit;
    } sizes[] = {{1024, 1024, 1024, true}, {1003, 1201, 1031, true}, {512, 512, 512, false}};
    tc_ctx *ctx = open_context("emulated", 0);
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    REQUIRE(ctx);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        tc_program *f = NULL;
        tc_tensor a = tc_input(ctx, "a", TC_U8, sizes[i].m, sizes[i].k);
        tc_tensor b = tc_input(ctx, "b", TC_I8, sizes[i].k, sizes[i].n);
        tc_tensor y = tc_matmul(tc_cast(a, TC_I32), tc_cast(b, TC_I32));
        CHECK_MSG(!tc_compile_fn(TC_TENSORS(a, b), TC_TENSORS(y), NULL, &f), "%s", tc_error(y));
        REQUIRE(f);
        CHECK((strstr(explained(f), "matrix unit") != NULL) == sizes[i].unit);
        tc_program_free(f);
    }
    tc_ctx_free(ctx);
}

/* ---- NVRTC ---- */

TEST(nvrtc_takes_the_text_and_has_nothing_to_say)
{
    enum { SOME = 12 };
    static product products[SOME];
    const char *why = "";
    if (!tci_nvrtc_get(&why)) {
        SKIP("NVRTC cannot be opened: %s", why);
    }
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    tc_shutdown(); /* a batch of its own, in one source */
    if (!compile_cases(ctx, products, SOME)) {
        check_by_nvrtc(products[0].program);
    }
    for (int i = 0; i < SOME; i++) {
        free_product(&products[i]);
    }
    tc_ctx_free(ctx);
}

/* ---- tiles that the choice does not come to here ---- */

typedef struct forced_case {
    product_case c;
    const char *schedule, *says;
    bool compiles; /* NVRTC too */
} forced_case;

static const forced_case forced[] = {
    /* 256 x 160, whose sums take registers from the other warps */
    {{.batch = 1, .m = 261, .n = 325, .k = 328, .bias = true},
     "consumers=2 sub_rows=2 columns=160 shares=0",
     "tile 256x160",
     true},
    /* two blocks share columns: some with a tile of no rows, or with few columns */
    {{.batch = 1, .m = 261, .n = 325, .k = 712, .bias = true},
     "consumers=2 sub_rows=1 columns=192 shares=2",
     "share columns",
     true},
    {{.batch = 1, .m = 129, .n = 72, .k = 136, .b_turned = true, .bias = true},
     "consumers=2 sub_rows=1 columns=96 shares=2",
     "share columns",
     false},
    {{.batch = 3, .m = 127, .n = 264, .k = 328, .b_turned = true, .residual = true},
     "consumers=1 sub_rows=1 columns=128 shares=2",
     "share columns",
     false},
    /* rows */
    {{.batch = 1, .m = 261, .n = 325, .k = 712, .bias = true},
     "consumers=2 sub_rows=1 columns=64 shares=1",
     "share rows",
     false},
    {{.batch = 2, .m = 264, .n = 129, .k = 72, .a_turned = true, .residual = true},
     "consumers=2 sub_rows=2 columns=64 shares=1",
     "share rows",
     true},
    {{.batch = 1, .m = 7, .n = 512, .k = 520, .b_turned = true, .bias = true},
     "consumers=1 sub_rows=1 columns=48 shares=1",
     "share rows",
     false},
};

/* A file that forces a schedule on every kernel of products here; path is mkstemp's. */
static bool write_schedule(char *path, const char *schedule)
{
    static const char *const names[] = {"tc_k_cast_add_contract", "tc_k_cast_add_contract_slice",
                                        "tc_k_cast_add_contract_permute", "tc_k_cast_contract"};
    int file = mkstemp(path);
    if (file < 0) {
        return false;
    }
    FILE *out = fdopen(file, "w");
    for (int i = 0; i < TCI_COUNT(names); i++) {
        fprintf(out, "%s: matrix %s\n", names[i], schedule);
    }
    return fclose(out) == 0;
}

/* Compiles c with a schedule; false: it does not compile. */
static bool make_forced(product *p, tc_ctx *ctx, product_case c, const char *schedule)
{
    char path[] = "/tmp/tc-test-matrix-XXXXXX";
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.schedule = path;
    make_product(p, ctx, c);
    tc_tensors in = {p->in, p->n_in}, out = {&p->y, 1};
    bool made = write_schedule(path, schedule) && !tc_compile_fn(in, out, &o, &p->program);
    CHECK_MSG(made, "%s", tc_error(ctx));
    remove(path);
    return made;
}

TEST(forced_tiles)
{
    const char *why = "";
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TCI_COUNT(forced); i++) {
        product p;
        tc_shutdown();
        tc_ctx *ctx = open_context("emulated", 0);
        REQUIRE(ctx);
        if (make_forced(&p, ctx, forced[i].c, forced[i].schedule)) {
            CHECK_MSG(strstr(explained(p.program), forced[i].says), "case %d: %s", i,
                      explained(p.program));
            for (emu_model_seed = 1; emu_model_seed <= 3; emu_model_seed++) {
                int64_t wrong = run_product(&p);
                CHECK_MSG(wrong == 0, "case %d, seed %u: %d wrong%s%s", i, emu_model_seed,
                          (int)wrong, wrong < 0 ? ": " : "", wrong < 0 ? emu_why : "");
            }
            if (forced[i].compiles && tci_nvrtc_get(&why)) {
                check_by_nvrtc(p.program);
            }
        }
        free_product(&p);
        tc_ctx_free(ctx);
    }
}

/* ---- planted bugs ---- */

/* Each change of the text is a bug that a run must show. */
static const emu_mutation mutations[] = {
    {"", ""}, /* none: the text as it is */
    {"unsigned parity = 1;", "unsigned parity = 0;"},
    {"unsigned parity = 0, taken", "unsigned parity = 1, taken"},
    {"taken = S::buffers > 1 || group == 0;", "taken = 0;"},
    {"unsigned ready = 0;", "unsigned ready = 1;"},
    {"tc_barrier_wait(tc_done<", "if (0) tc_barrier_wait(tc_done<"},
    {"tc_warp_arrive<S>(tc_done<S>(at));", ""},
    {"tc_barrier_wait(tc_full<S>(at, stage), parity);", ""},
    {"tc_barrier_wait(tc_empty<S>(at, stage), parity);", ""},
    {"tc_barrier_wait(tc_taken<S>(at, user), taken);", ""},
    {"tc_barrier_wait(tc_ready<", "if (0) tc_barrier_wait(tc_ready<"},
    {"tc_products_wait<1>();", ""},
    {"tc_products_wait<0>();", "tc_products_wait<1>();"},
    {"tc_products_begin();", ""},
    {"tc_products_commit();", ""},
    {"expect(full, S::loaded_bytes);", "expect(full, S::loaded_bytes - 128);"},
    {"expect(full, S::loaded_bytes);", "expect(full, S::loaded_bytes + 128);"},
    {"(1024ull >> 4) << 32", "(512ull >> 4) << 32"},
    {"(8192ull >> 4) << 16", "(4096ull >> 4) << 16"},
    {"| 1ull << 62", "| 2ull << 62"},
    {"a + 512 * r + S::a_step * i", "a + 512 * r"},
    {"boxes + group * S::sub_rows * 8192", "boxes"},
    {"k + i > 0", "1"},
    {"tc_empty<S>(at, i), S::readers", "tc_empty<S>(at, i), 4"},
    {"stage = 0;\n                parity ^= 1;", "stage = 0;"},
    {"    __syncwarp();\n", ""},
    {"p.n + 64 * i", "p.n"},
    {"lane / 16 * 8", "lane / 16 * 16"},
    {"__syncthreads();\n    }\n}\ntemplate", "}\n}\ntemplate"},
    {"+ 1023) & ~1023u", "+ 15) & ~15u"},
    {NULL, NULL}};

/* Of blocks that share. */
static const emu_mutation shared_mutations[] = {
    {"", ""},
    {"tc_blocks_meet();", "__syncthreads();"},
    {"tc_empty<S>(at, i), S::readers", "tc_empty<S>(at, i), S::readers / 2"},
    {"tc_barrier_arrive_at(tc_empty<S>(at, stage), tc_warp_lane<S>());",
     "tc_barrier_arrive_at(tc_empty<S>(at, stage), blockIdx.x % 2);"},
    {"i < S::stages; i++) {\n            tc_barrier_wait",
     "i < 0; i++) {\n            tc_barrier_wait"},
    {"tc_share_box(", "tc_load_box("},
    {"to += 128 * rows;", ""},
    {"p.n += rows;", ""},
    {"blockIdx.x % 2 * 96", "0"},
    {"% 1) * 192", "% 1) * 192 + t % 2 * 192"}, /* tiles that are no neighbours */
    {NULL, NULL}};

enum { BUG_SEEDS = 4 };

/* Each of the program's variants but the first must go wrong. */
static void check_mutations(const product *p, const emu_mutation *m)
{
    for (emu_variant = 0; m[emu_variant].from; emu_variant++) {
        bool shows = false;
        for (emu_model_seed = 1; emu_model_seed <= BUG_SEEDS && !shows; emu_model_seed++) {
            shows = run_product(p) != 0;
        }
        CHECK_MSG(shows == (emu_variant > 0), "\"%s\" as \"%s\" %s", m[emu_variant].from,
                  m[emu_variant].to, shows ? "fails" : "is not noticed");
    }
    emu_variant = 0;
}

TEST(planted_bugs_show)
{
    static const product_case c = {.batch = 1, .m = 264, .n = 512, .k = 520, .residual = true};
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    product p;
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    make_product(&p, ctx, c);
    emu_mutations = mutations;
    tc_status status = tc_compile_fn((tc_tensors){p.in, p.n_in}, (tc_tensors){&p.y, 1}, NULL,
                                     &p.program);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    if (!status) {
        check_mutations(&p, mutations);
    }
    emu_mutations = NULL;
    free_product(&p);
    tc_ctx_free(ctx);
}

TEST(planted_bugs_of_blocks_that_share_show)
{
    static const product_case c =
        {.batch = 1, .m = 200, .n = 384, .k = 520, .b_turned = true, .bias = true};
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    product p;
    tc_shutdown();
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    emu_mutations = shared_mutations;
    if (make_forced(&p, ctx, c, "consumers=2 sub_rows=1 columns=192 shares=2")) {
        check_mutations(&p, shared_mutations);
    }
    emu_mutations = NULL;
    free_product(&p);
    tc_ctx_free(ctx);
}

/* ---- the choice ---- */

TEST(a_user_can_refuse_the_class)
{
    static const product_case c = {.batch = 1, .m = 128, .n = 128, .k = 64};
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int matrix = 0; matrix >= -1; matrix--) {
        product p;
        tc_ctx *ctx = open_context("emulated", matrix);
        REQUIRE(ctx);
        make_product(&p, ctx, c);
        tc_status status = tc_compile_fn((tc_tensors){p.in, p.n_in}, (tc_tensors){&p.y, 1}, NULL,
                                         &p.program);
        CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
        if (!status) {
            bool used = strstr(explained(p.program), "matrix unit, sums in its order") != NULL;
            CHECK(used == (matrix == 0));
            CHECK_EQ_INT(run_product(&p), 0);
        }
        free_product(&p);
        tc_ctx_free(ctx);
    }
}

/* ---- f32 where math may be fast ---- */

enum { FAST_SIDE = 512, FAST_N = FAST_SIDE * FAST_SIDE, FAST_FILTER = 64 * 64 * 9 };
typedef enum fast_kind { FAST_PRODUCT, FAST_CONV, FAST_FILTER_GRADIENT, FAST_KINDS } fast_kind;

/* Elements of the second factor, of the result. */
static int64_t fast_second(fast_kind kind)
{
    return kind == FAST_CONV ? FAST_FILTER : FAST_N;
}

static int64_t fast_results(fast_kind kind)
{
    return kind == FAST_FILTER_GRADIENT ? FAST_FILTER : FAST_N;
}

/* a b of f32, or a 3x3 convolution of an image a by filters b, or the gradient of one to its
 * filters where b is the gradient to its result; what tc_explain says. */
static void fast_product(tc_math math, fast_kind kind, const float *a, const float *b, float *out,
                         char *text, size_t n_text)
{
    tc_ctx *ctx = open_context("emulated", 0);
    tc_options o;
    tc_program *f = NULL;
    REQUIRE(ctx);
    memset(&o, 0, sizeof(o));
    o.math = math;
    bool image = kind != FAST_PRODUCT;
    tc_tensor x = image ? tc_input(ctx, "x", TC_F32, 4, 64, 32, 32)
                        : tc_input(ctx, "a", TC_F32, FAST_SIDE, FAST_SIDE);
    tc_tensor w = image ? tc_input(ctx, "w", TC_F32, 64, 64, 3, 3)
                        : tc_input(ctx, "b", TC_F32, FAST_SIDE, FAST_SIDE);
    tc_tensor up = tc_input(ctx, "up", TC_F32, 4, 64, 32, 32);
    tc_conv how = {.padding = {1, 1}};
    tc_tensor y = image ? tc_conv2d(x, w, TC_NONE, &how) : tc_matmul(x, w);
    if (kind == FAST_FILTER_GRADIENT) {
        REQUIRE(!tc_grad(tc_sum(tc_mul(y, up), TC_ALL, false), &w, 1, &y));
        w = up;
    }
    tc_status status = tc_compile_fn(TC_TENSORS(x, w), TC_TENSORS(y), &o, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    if (!status) {
        snprintf(text, n_text, "%s", explained(f));
        status = tc_run(f, TC_BUFS(TC_BUF(a, FAST_N), TC_BUF(b, fast_second(kind))),
                        TC_BUFS(TC_BUF(out, fast_results(kind))));
        CHECK_MSG(status == TC_OK, "%s, %s", tc_error(f), emu_why);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Element (image, channel, y, x) of [4, 64, 32, 32]; 0 in its padding. */
static double fast_pixel(const float *a, int64_t image, int64_t channel, int64_t y, int64_t x)
{
    bool inside = y >= 0 && y < 32 && x >= 0 && x < 32;
    return inside ? (double)a[((image * 64 + channel) * 32 + y) * 32 + x] : 0;
}

/* Product k of result i. */
static double fast_term(fast_kind kind, const float *a, const float *b, int64_t i, int64_t k)
{
    if (kind == FAST_PRODUCT) {
        return (double)a[i / FAST_SIDE * FAST_SIDE + k] * (double)b[k * FAST_SIDE + i % FAST_SIDE];
    }
    if (kind == FAST_CONV) {
        return fast_pixel(a, i / 65536, k / 9, i / 32 % 32 + k / 3 % 3 - 1, i % 32 + k % 3 - 1) *
               (double)b[i / 1024 % 64 * 64 * 9 + k];
    }
    int64_t y = k / 32 % 32, x = k % 32;
    return fast_pixel(a, k / 1024, i / 9 % 64, y + i / 3 % 3 - 1, x + i % 3 - 1) *
           fast_pixel(b, k / 1024, i / 576, y, x);
}

/* Result i, and the sum of |a b|. */
static double fast_want(fast_kind kind, const float *a, const float *b, int64_t i, double *size)
{
    static const int64_t products[] = {FAST_SIDE, 64 * 9, 4 * 1024};
    double sum = 0;
    *size = 0;
    for (int64_t k = 0; k < products[kind]; k++) {
        double term = fast_term(kind, a, b, i, k);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* What tc_explain says of each kind: filters' gradients are summed along pixels, which lie as no
 * unit reads f32. */
static const char *const fast_says[] = {"class TF32", "class TF32", "of bf16 halves"};

/* And how far off a result may be, in sums of |a b|. */
static const double fast_bound[] = {0x1p-10, 0x1p-10, 0x1p-15};

TEST(fast_math_rounds_f32_or_makes_it_of_halves)
{
    static float a[FAST_N], b[FAST_N], out[FAST_N];
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < FAST_N; i++) {
        a[i] = (float)next_value();
        b[i] = (float)next_value();
    }
    for (int kind = 0; kind < FAST_KINDS; kind++) {
        char text[6000] = "";
        int64_t wrong = 0;
        fast_product(TC_MATH_FAST, (fast_kind)kind, a, b, out, text, sizeof(text));
        CHECK_MSG(strstr(text, fast_says[kind]) && strstr(text, "matrix unit"), "%s", text);
        for (int64_t i = 0; i < fast_results((fast_kind)kind); i += 37) {
            double size, want = fast_want((fast_kind)kind, a, b, i, &size);
            wrong += !(fabs((double)out[i] - want) <= size * (fast_bound[kind] + 0x1p-16));
        }
        CHECK_EQ_INT(wrong, 0);
    }
    char text[4000] = "";
    fast_product(TC_MATH_EXACT, FAST_PRODUCT, a, b, out, text, sizeof(text));
    CHECK_MSG(!strstr(text, "halves") && !strstr(text, "TF32"), "%s", text);
}

/* C[batch][m][n] = A B of f32, as product_case; copies: operands that do not lie along k, or in
 * rows that no unit reads; exact: no unit makes it. */
typedef struct single_case {
    int batch, m, n, k;
    bool a_turned, b_turned, exact;
    int copies;
} single_case;

static const single_case single_cases[] = {
    {.batch = 1, .m = 128, .n = 128, .k = 64, .b_turned = true},
    {.batch = 1, .m = 127, .n = 129, .k = 68, .b_turned = true},
    {.batch = 1, .m = 257, .n = 65, .k = 132, .b_turned = true},
    {.batch = 1, .m = 191, .n = 1000, .k = 200, .b_turned = true},
    {.batch = 3, .m = 130, .n = 72, .k = 44, .b_turned = true},
    {.batch = 1, .m = 512, .n = 512, .k = 512, .copies = 1},
    {.batch = 1, .m = 509, .n = 523, .k = 521, .b_turned = true, .copies = 2}, /* odd rows */
    {.batch = 1, .m = 384, .n = 640, .k = 548, .a_turned = true, .copies = 2},
    {.batch = 1, .m = 640, .n = 384, .k = 552, .a_turned = true, .b_turned = true, .copies = 1},
    {.batch = 1, .m = 31, .n = 512, .k = 512, .b_turned = true, .exact = true}, /* few rows */
    {.batch = 1, .m = 128, .n = 128, .k = 64, .exact = true}, /* too small for a copy */
};

/* x with ten bits behind the first one. */
static double single_round(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&x, &bits, sizeof(bits));
    return (double)x;
}

/* Element i of the result, of rounded factors unless it is exact, and how far off it may be. */
static double single_want(const single_case *c, const float *a, const float *b, int64_t i,
                          double *slack)
{
    int64_t batch = i / ((int64_t)c->m * c->n), row = i / c->n % c->m, column = i % c->n;
    double sum = 0, size = 0;
    a += batch * c->m * c->k;
    b += batch * c->k * c->n;
    for (int64_t k = 0; k < c->k; k++) {
        float x = c->a_turned ? a[k * c->m + row] : a[row * c->k + k];
        float y = c->b_turned ? b[column * c->k + k] : b[k * c->n + column];
        double term = c->exact ? (double)x * (double)y : single_round(x) * single_round(y);
        sum += term;
        size += fabs(term);
    }
    *slack = size * (2 * ((c->k + 7) / 8) + 32) * 0x1p-23;
    return sum;
}

static tc_status single_compile(tc_ctx *ctx, const single_case *c, tc_program **f)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.math = TC_MATH_FAST;
    tc_tensor in[2] = {c->a_turned ? tc_input(ctx, "a", TC_F32, c->batch, c->k, c->m)
                                   : tc_input(ctx, "a", TC_F32, c->batch, c->m, c->k),
                       c->b_turned ? tc_input(ctx, "b", TC_F32, c->batch, c->n, c->k)
                                   : tc_input(ctx, "b", TC_F32, c->batch, c->k, c->n)};
    tc_tensor y = tc_matmul(c->a_turned ? tc_transpose(in[0], -1, -2) : in[0],
                            c->b_turned ? tc_transpose(in[1], -1, -2) : in[1]);
    return tc_compile_fn((tc_tensors){in, 2}, TC_TENSORS(y), &o, f);
}

static void check_single(const single_case *c, int number)
{
    int64_t n[3] = {(int64_t)c->batch * c->m * c->k, (int64_t)c->batch * c->n * c->k,
                    (int64_t)c->batch * c->m * c->n};
    float *data[3];
    tc_program *f = NULL;
    tc_program_info info;
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    for (int i = 0; i < 3; i++) {
        data[i] = (float *)malloc((size_t)n[i] * sizeof(float));
        for (int64_t j = 0; j < n[i]; j++) {
            data[i][j] = (float)next_value();
        }
    }
    tc_status status = single_compile(ctx, c, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    if (!status) {
        bool rounds = strstr(explained(f), "class TF32") != NULL;
        tc_program_get_info(f, &info);
        bool alone = c->exact || info.n_kernels == 1 + c->copies; /* exact ones may be in parts */
        CHECK_MSG(rounds == !c->exact && alone, "case %d:\n%s", number, explained(f));
        status = tc_run(f, TC_BUFS(TC_BUF(data[0], n[0]), TC_BUF(data[1], n[1])),
                        TC_BUFS(TC_BUF(data[2], n[2])));
        CHECK_MSG(status == TC_OK, "%s, %s", tc_error(f), emu_why);
    }
    int64_t wrong = 0;
    for (int64_t i = 0; i < n[2]; i += n[2] > 10000 ? 13 : 1) {
        double slack, want = single_want(c, data[0], data[1], i, &slack);
        wrong += !(fabs((double)data[2][i] - want) <= slack);
    }
    CHECK_MSG(wrong == 0, "case %d: %d of %d wrong", number, (int)wrong, (int)n[2]);
    for (int i = 0; i < 3; i++) {
        free(data[i]);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(f32_is_rounded_for_products_along_k)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < (int)(sizeof(single_cases) / sizeof(single_cases[0])); i++) {
        check_single(&single_cases[i], i);
    }
}

TEST(nvrtc_takes_products_of_f32)
{
    const char *why = "";
    tc_program *f = NULL;
    if (!tci_nvrtc_get(&why) || !can_emulate()) {
        SKIP("NVRTC cannot be opened: %s", why);
    }
    tc_ctx *ctx = open_context("emulated", 0);
    REQUIRE(ctx);
    tc_shutdown();
    CHECK_EQ_INT(single_compile(ctx, &single_cases[3], &f), TC_OK);
    check_by_nvrtc(f);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- whole networks ---- */

enum { TOKENS = 128, WIDTH = 64, HIDDEN = 128, N_GRADS = WIDTH * HIDDEN };

/* Both weights' gradients of a layer with gelu and a residual; the program's launches. */
static void gradients(const char *backend, const uint16_t *x, const uint16_t *w, float *first,
                      float *second, char *text, size_t n_text)
{
    tc_tensor grads[2], outputs[2];
    tc_program *f = NULL;
    tc_ctx *ctx = open_context(backend, 0);
    REQUIRE(ctx);
    tc_tensor in = tc_input(ctx, "x", TC_BF16, TOKENS, WIDTH);
    tc_tensor params[2] = {tc_input(ctx, "w1", TC_BF16, WIDTH, HIDDEN),
                           tc_input(ctx, "w2", TC_BF16, HIDDEN, WIDTH)};
    tc_tensor hidden = tc_gelu(tc_matmul(in, params[0]));
    tc_tensor y = tc_add(tc_matmul(hidden, params[1]), in);
    tc_tensor loss = tc_sum(tc_square(tc_cast(y, TC_F32)), TC_ALL, false);
    tc_tensor inputs[3] = {in, params[0], params[1]};
    REQUIRE(tc_grad(loss, params, 2, grads) == TC_OK);
    outputs[0] = tc_cast(grads[0], TC_F32);
    outputs[1] = tc_cast(grads[1], TC_F32);
    tc_status status = tc_compile_fn((tc_tensors){inputs, 3}, (tc_tensors){outputs, 2}, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    if (!status) {
        snprintf(text, n_text, "%s", explained(f));
        CHECK_EQ_INT(tc_run(f,
                            TC_BUFS(TC_BUF((const void *)x, 2 * TOKENS * WIDTH),
                                    TC_BUF((const void *)w, 2 * N_GRADS),
                                    TC_BUF((const void *)(w + N_GRADS), 2 * N_GRADS)),
                            TC_BUFS(TC_BUF(first, N_GRADS), TC_BUF(second, N_GRADS))),
                     TC_OK);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(gradients_are_products_too)
{
    static uint16_t x[TOKENS * WIDTH], w[2 * N_GRADS];
    static float got[2][N_GRADS], want[2][N_GRADS];
    char text[4000] = "", ignored[4000];
    int products = 0;
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        x[i] = to_half(next_value(), false);
    }
    for (int i = 0; i < 2 * N_GRADS; i++) {
        w[i] = to_half(next_value() * 0.2, false);
    }
    gradients("emulated", x, w, got[0], got[1], text, sizeof(text));
    gradients("interp", x, w, want[0], want[1], ignored, sizeof(ignored));
    for (const char *at = strstr(text, "matrix unit"); at; at = strstr(at + 1, "matrix unit")) {
        products++;
    }
    CHECK_MSG(products == 5 && strstr(text, "5 launches"), "%d products:\n%s", products, text);
    for (int i = 0; i < 2; i++) {
        double off = 0, size = 0;
        for (int j = 0; j < N_GRADS; j++) {
            off += fabs((double)got[i][j] - (double)want[i][j]);
            size += fabs((double)want[i][j]);
        }
        CHECK_MSG(off <= 0.01 * size, "gradient %d: off by %g of %g", i, off, size);
    }
}

/* ---- convolutions: boxes of images ---- */

typedef struct image_case {
    int64_t images, channels, height, width, filters, kernel;
    tc_conv how;
    int boxes; /* kernels that read boxes: of the result and both gradients */
    bool half, wide;
} image_case;

static const image_case image_cases[] = {
    {2, 32, 9, 8, 64, 3, {.padding = {1, 1}}, 3, false, false},
    {2, 40, 8, 28, 72, 3, {.padding = {1, 1}}, 3, false, false},
    {3, 64, 7, 7, 40, 3, {.padding = {1, 1}}, 3, true, false},    /* 49 of 64 in a step */
    {3, 32, 28, 20, 40, 3, {.padding = {1, 1}}, 3, false, false}, /* parts of images */
    {2, 72, 12, 14, 64, 3, {.padding = {1, 1}, .stride = {2, 2}}, 3, false, false},
    {1, 64, 14, 16, 48, 5, {.padding = {2, 1}, .dilation = {1, 2}}, 3, false, true},
    {17, 32, 6, 6, 64, 1, {.padding = {0, 0}}, 0, false, false},
    {2, 48, 13, 11, 64, 2, {.padding = {0, 1}}, 3, true, true},
    {2, 128, 8, 56, 64, 3, {.padding = {1, 1}}, 3, false, false},
    {2, 72, 9, 16, 72, 3, {.padding = {1, 1}, .groups = 3}, 2, false, false}, /* 24 of 64 */
    {3, 32, 16, 24, 48, 2, {.stride = {2, 2}}, 2, false, false},              /* no overlap */
};

static int64_t image_channels(const image_case *c)
{
    return c->channels / (c->how.groups ? c->how.groups : 1);
}

/* All values of the convolution and of its gradients, one behind the other; heap. */
static float *convolve(const char *backend, const image_case *c, const uint16_t *const in[3],
                       const int64_t n[3], char *text, size_t n_text, int64_t *n_out)
{
    tc_ctx *ctx = open_context(backend, 0);
    tc_dtype t = c->half ? TC_F16 : TC_BF16;
    int64_t high = 0, wide = 0;
    tc_tensor x = tc_input(ctx, "x", t, c->images, c->channels, c->height, c->width);
    tc_tensor w = tc_input(ctx, "w", t, c->filters, image_channels(c), c->kernel, c->kernel);
    tc_tensor a = c->wide ? tc_cast(x, TC_F32) : x, b = c->wide ? tc_cast(w, TC_F32) : w;
    tc_tensor y = tc_conv2d(a, b, TC_NONE, &c->how), grads[2];
    high = tc_size(y, 2);
    wide = tc_size(y, 3);
    tc_tensor g = tc_input(ctx, "g", t, c->images, c->filters, high, wide);
    tc_tensor loss = tc_sum(tc_mul(tc_cast(y, TC_F32), tc_cast(g, TC_F32)), TC_ALL, false);
    tc_tensor xw[2] = {x, w}, inputs[3] = {x, w, g}, outputs[3];
    tc_grad(loss, xw, 2, grads);
    outputs[0] = tc_cast(tc_relu(y), TC_F32);
    outputs[1] = tc_cast(grads[0], TC_F32);
    outputs[2] = tc_cast(grads[1], TC_F32);
    int64_t sizes[3] = {c->images * c->filters * high * wide, n[0], n[1]};
    *n_out = sizes[0] + sizes[1] + sizes[2];
    float *out = (float *)calloc((size_t)*n_out, sizeof(float));
    tc_program *f = NULL;
    tc_status status = tc_compile_fn((tc_tensors){inputs, 3}, (tc_tensors){outputs, 3}, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", backend, tc_error(ctx));
    if (!status) {
        snprintf(text, n_text, "%s", explained(f));
        status = tc_run(f,
                        TC_BUFS(TC_BUF((const void *)in[0], 2 * n[0]),
                                TC_BUF((const void *)in[1], 2 * n[1]),
                                TC_BUF((const void *)in[2], 2 * sizes[0])),
                        TC_BUFS(TC_BUF(out, sizes[0]), TC_BUF(out + sizes[0], sizes[1]),
                                TC_BUF(out + sizes[0] + sizes[1], sizes[2])));
        CHECK_MSG(status == TC_OK, "%s: %s, %s", backend, tc_error(f), emu_why);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return out;
}

static void check_image_case(int number)
{
    const image_case *c = &image_cases[number];
    char text[20000] = "", ignored[20000];
    int64_t n[3] = {c->images * c->channels * c->height * c->width,
                    c->filters * image_channels(c) * c->kernel * c->kernel, 0};
    n[2] = c->images * c->filters * (c->height + 8) * (c->width + 8);
    uint16_t *in[3];
    for (int i = 0; i < 3; i++) {
        in[i] = (uint16_t *)malloc((size_t)n[i] * 2);
        for (int64_t j = 0; j < n[i]; j++) {
            in[i][j] = to_half(next_value(), c->half);
        }
    }
    int64_t n_out = 0;
    const uint16_t *const given[3] = {in[0], in[1], in[2]};
    float *got = convolve("emulated", c, given, n, text, sizeof(text), &n_out);
    float *want = convolve("interp", c, given, n, ignored, sizeof(ignored), &n_out);
    double size = 0;
    int64_t wrong = 0;
    for (int64_t i = 0; i < n_out; i++) {
        size += (double)want[i] * (double)want[i] / (double)n_out;
    }
    for (int64_t i = 0; i < n_out; i++) {
        double slack = fabs((double)want[i]) * 0x1p-7 + sqrt(size) * 1e-4;
        wrong += !(fabs((double)got[i] - (double)want[i]) <= slack);
    }
    int boxes = 0;
    for (const char *at = strstr(text, ", boxes"); at; at = strstr(at + 1, ", boxes")) {
        boxes++;
    }
    CHECK_MSG(wrong == 0, "case %d: %d of %d wrong", number, (int)wrong, (int)n_out);
    CHECK_MSG(boxes == c->boxes, "case %d reads boxes in %d kernels, expected %d:\n%s", number,
              boxes, c->boxes, text);
    free(got);
    free(want);
    for (int i = 0; i < 3; i++) {
        free(in[i]);
    }
}

TEST(convolutions_read_boxes_of_images)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < (int)(sizeof(image_cases) / sizeof(image_cases[0])); i++) {
        check_image_case(i);
    }
}

/* ---- networks of convolutions: channels last from one to the next ---- */

/* A convolution of its own filters, and a norm's scale and shift; inputs[*n] .. are made. */
static tc_tensor conv_norm(tc_ctx *ctx, tc_tensor x, int64_t filters, int64_t kernel, tc_conv how,
                           tc_tensor *inputs, int *n)
{
    int64_t channels = tc_size(x, 1) / (how.groups ? how.groups : 1);
    tc_tensor w = tc_input(ctx, "w", TC_BF16, filters, channels, kernel, kernel);
    tc_tensor scale = tc_input(ctx, "scale", TC_BF16, filters, 1, 1);
    tc_tensor shift = tc_input(ctx, "shift", TC_BF16, filters, 1, 1);
    inputs[(*n)++] = w;
    inputs[(*n)++] = scale;
    inputs[(*n)++] = shift;
    tc_tensor y = tc_cast(tc_conv2d(x, w, TC_NONE, &how), TC_F32);
    return tc_cast(tc_add(tc_mul(y, tc_cast(scale, TC_F32)), tc_cast(shift, TC_F32)), TC_BF16);
}

enum { NETWORK_INPUTS = 32, NETWORK_OUTPUTS = 20 };

typedef struct network {
    tc_tensor inputs[NETWORK_INPUTS], outputs[NETWORK_OUTPUTS];
    int n_inputs, n_outputs;
} network;

/* Few channels, a pool, a residual block, one that projects its shortcut by steps of two, and a
 * block between whose products each channel has a filter of its own. */
static void residual_network(tc_ctx *ctx, network *m)
{
    const tc_conv same = {.padding = {1, 1}}, half = {.stride = {2, 2}, .padding = {1, 1}};
    const tc_conv first = {.stride = {2, 2}, .padding = {3, 3}}, one = {.stride = {1, 1}};
    const tc_conv own = {.padding = {1, 1}, .groups = 96};
    tc_tensor *in = m->inputs, x = tc_input(ctx, "x", TC_BF16, 3, 3, 60, 60);
    int *n = &m->n_inputs;
    in[(*n)++] = x;
    x = tc_relu(conv_norm(ctx, x, 64, 7, first, in, n));
    x = tc_max_pool2d(x, &(tc_pool){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    tc_tensor y = tc_relu(conv_norm(ctx, x, 64, 3, same, in, n));
    x = tc_relu(tc_add(conv_norm(ctx, y, 64, 3, same, in, n), x));
    y = tc_relu(conv_norm(ctx, x, 72, 3, half, in, n));
    y = conv_norm(ctx, y, 72, 3, same, in, n);
    x = tc_relu(tc_add(y, conv_norm(ctx, x, 72, 1, (tc_conv){.stride = {2, 2}}, in, n)));
    y = tc_relu(conv_norm(ctx, x, 96, 1, one, in, n));
    y = tc_relu(conv_norm(ctx, y, 96, 3, own, in, n));
    x = tc_add(conv_norm(ctx, y, 72, 1, one, in, n), x);
    x = tc_cast(conv_norm(ctx, x, 64, 3, same, in, n), TC_F32);
    m->outputs[m->n_outputs++] = x;
}

/* Two convolutions, one behind the other: of lines; of one image, with elements apart; of cubes. */
static void ranks_network(tc_ctx *ctx, network *m)
{
    tc_tensor line = tc_input(ctx, "line", TC_BF16, 2, 40, 150);
    tc_tensor wide = tc_input(ctx, "wide", TC_BF16, 64, 40, 5);
    tc_tensor image = tc_input(ctx, "image", TC_BF16, 1, 32, 20, 17);
    tc_tensor dilated = tc_input(ctx, "dilated", TC_BF16, 64, 32, 3, 3);
    tc_tensor cube = tc_input(ctx, "cube", TC_BF16, 2, 32, 5, 6, 7);
    tc_tensor cubes = tc_input(ctx, "cubes", TC_BF16, 64, 32, 3, 3, 3);
    tc_tensor back = tc_input(ctx, "back", TC_BF16, 64, 64);
    tc_tensor all[7] = {line, wide, image, dilated, cube, cubes, back};
    tc_tensor y[3] = {
        tc_conv1d(line, wide, TC_NONE, &(tc_conv){.stride = {3}, .padding = {2}}),
        tc_conv2d(image, dilated, TC_NONE, &(tc_conv){.padding = {2, 3}, .dilation = {2, 3}}),
        tc_conv3d(cube, cubes, TC_NONE, &(tc_conv){.padding = {1, 1, 1}}),
    };
    y[0] = tc_conv1d(tc_relu(y[0]), tc_reshape(back, 64, 64, 1), TC_NONE, NULL);
    y[1] = tc_conv2d(tc_relu(y[1]), tc_reshape(back, 64, 64, 1, 1), TC_NONE, NULL);
    y[2] = tc_conv3d(tc_relu(y[2]), tc_reshape(back, 64, 64, 1, 1, 1), TC_NONE, NULL);
    for (int i = 0; i < 7; i++) {
        m->inputs[m->n_inputs++] = all[i];
    }
    for (int i = 0; i < 3; i++) {
        m->outputs[m->n_outputs++] = tc_cast(y[i], TC_F32);
    }
}

/* An image of three channels, and parts of a value from convolutions of another one. */
static void parts_network(tc_ctx *ctx, network *m)
{
    const tc_conv half = {.stride = {2, 2}}, same = {.padding = {1, 1}}, one = {.stride = {1, 1}};
    tc_tensor *in = m->inputs, x = tc_input(ctx, "x", TC_BF16, 2, 3, 57, 65);
    int *n = &m->n_inputs;
    in[(*n)++] = x;
    x = tc_relu(conv_norm(ctx, x, 64, 3, half, in, n));
    tc_tensor y = tc_relu(conv_norm(ctx, x, 32, 1, one, in, n)), parts[2];
    parts[0] = tc_relu(conv_norm(ctx, y, 64, 1, one, in, n));
    parts[1] = tc_relu(conv_norm(ctx, y, 72, 3, same, in, n));
    y = tc_relu(conv_norm(ctx, tc_cat(TC_TENSORS_N(parts, 2), 1), 64, 1, one, in, n));
    m->outputs[m->n_outputs++] = tc_cast(y, TC_F32);
}

/* A convolution, a norm by the statistics of what it made, relu. */
static tc_tensor conv_learning(tc_ctx *ctx, tc_tensor x, int64_t filters, int64_t kernel,
                               tc_conv how, network *m)
{
    int64_t channels = tc_size(x, 1) / (how.groups ? how.groups : 1);
    tc_tensor w = tc_input(ctx, "w", TC_BF16, filters, channels, kernel, kernel);
    tc_tensor scale = tc_input(ctx, "scale", TC_BF16, filters);
    tc_tensor shift = tc_input(ctx, "shift", TC_BF16, filters);
    m->inputs[m->n_inputs++] = w;
    m->inputs[m->n_inputs++] = scale;
    m->inputs[m->n_inputs++] = shift;
    x = tc_conv2d(x, w, TC_NONE, &how);
    return tc_relu(tc_batch_norm(x, TC_NONE, TC_NONE, scale, shift, true, 1e-3));
}

/* Norms that learn, a pool, a residual block, a step of two; the mean of what comes out, and the
 * gradients to all that was given. */
static void learning_network(tc_ctx *ctx, network *m)
{
    const tc_conv same = {.padding = {1, 1}}, half = {.stride = {2, 2}, .padding = {1, 1}};
    const tc_conv first = {.stride = {2, 2}, .padding = {3, 3}}, one = {.stride = {1, 1}};
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 2, 3, 60, 60), gradients[NETWORK_INPUTS];
    m->inputs[m->n_inputs++] = x;
    x = conv_learning(ctx, x, 64, 7, first, m);
    x = tc_max_pool2d(x, &(tc_pool){.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}});
    tc_tensor y = conv_learning(ctx, x, 64, 3, same, m);
    x = tc_add(conv_learning(ctx, y, 64, 3, same, m), x);
    x = conv_learning(ctx, x, 72, 3, half, m);
    x = conv_learning(ctx, x, 64, 1, one, m);
    x = tc_mean(tc_square(tc_cast(x, TC_F32)), TC_ALL, false);
    m->outputs[m->n_outputs++] = x;
    CHECK(tc_grad(x, m->inputs + 1, m->n_inputs - 1, gradients) == TC_OK);
    for (int i = 0; i + 1 < m->n_inputs; i++) {
        m->outputs[m->n_outputs++] = tc_cast(gradients[i], TC_F32);
    }
}

/* Filters of one channel each: by steps, of odd images whose lines are cut or stay whole, large
 * ones with elements apart; between convolutions of all channels. */
static void alone_network(tc_ctx *ctx, network *m)
{
    const tc_conv same = {.padding = {1, 1}}, one = {.stride = {1, 1}};
    const tc_conv half = {.padding = {1, 1}, .stride = {2, 2}, .groups = 32};
    const tc_conv apart = {.padding = {4, 4}, .dilation = {2, 2}, .groups = 24};
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 2, 32, 13, 22), gradients[NETWORK_INPUTS];
    m->inputs[m->n_inputs++] = x;
    x = conv_learning(ctx, x, 32, 3, same, m);
    x = conv_learning(ctx, x, 32, 3, half, m);
    x = conv_learning(ctx, x, 24, 1, one, m);
    x = conv_learning(ctx, x, 24, 5, apart, m);
    x = conv_learning(ctx, x, 32, 1, one, m);
    x = tc_mean(tc_square(tc_cast(x, TC_F32)), TC_ALL, false);
    m->outputs[m->n_outputs++] = x;
    CHECK(tc_grad(x, m->inputs + 1, m->n_inputs - 1, gradients) == TC_OK);
    for (int i = 0; i + 1 < m->n_inputs; i++) {
        m->outputs[m->n_outputs++] = tc_cast(gradients[i], TC_F32);
    }
}

/* Linear layers over the channels of an image of 14 x 14, whose rows are not aligned, as in a
 * ConvNeXt block; and all gradients. And one over channels-last images, flattened as if the
 * channels came first. */
static void channel_mlp_network(tc_ctx *ctx, network *m)
{
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 2, 64, 14, 14), gradients[NETWORK_INPUTS];
    tc_tensor up = tc_input(ctx, "up", TC_BF16, 64, 136);
    tc_tensor down = tc_input(ctx, "down", TC_BF16, 136, 64);
    tc_tensor scale = tc_input(ctx, "scale", TC_BF16, 64, 1, 1);
    m->inputs[m->n_inputs++] = x;
    m->inputs[m->n_inputs++] = up;
    m->inputs[m->n_inputs++] = down;
    m->inputs[m->n_inputs++] = scale;
    tc_tensor y = tc_matmul(tc_gelu(tc_matmul(tc_permute(x, 0, 2, 3, 1), up)), down);
    y = tc_add(tc_mul(tc_permute(y, 0, 3, 1, 2), scale), x);
    y = tc_mean(tc_square(tc_cast(y, TC_F32)), TC_ALL, false);
    m->outputs[m->n_outputs++] = y;
    CHECK(tc_grad(y, m->inputs, m->n_inputs, gradients) == TC_OK);
    for (int i = 0; i < m->n_inputs; i++) {
        m->outputs[m->n_outputs++] = tc_cast(gradients[i], TC_F32);
    }
    tc_tensor last = tc_input(ctx, "last", TC_BF16, 64, 7, 7, 24);
    tc_tensor w = tc_input(ctx, "w", TC_BF16, 24 * 7 * 7, 64);
    m->inputs[m->n_inputs++] = last;
    m->inputs[m->n_inputs++] = w;
    y = tc_matmul(tc_reshape(tc_permute(last, 0, 3, 1, 2), 64, 24 * 7 * 7), w);
    m->outputs[m->n_outputs++] = tc_cast(y, TC_F32);
}

typedef void make_network(tc_ctx *, network *);

/* bf16 numbers about 0, of a filter so small that its sums are about 1; heap. */
static uint16_t *network_numbers(tc_tensor t, bool is_filter, uint32_t *seed)
{
    int64_t count = tc_count(t);
    float scale = is_filter ? 1 / sqrtf((float)(count / tc_size(t, 0))) : 1;
    uint16_t *values = (uint16_t *)malloc((size_t)count * 2);
    for (int64_t i = 0; i < count; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        values[i] = to_half(((float)(*seed >> 8) / 8388608.0f - 1) * scale, false);
    }
    return values;
}

/* Its values, one output behind the other, heap; the same inputs for each backend. What is said of
 * its launches is in text. */
static float *run_network(const char *backend, make_network *make, char *text, size_t n_text,
                          tc_program_info *info, int64_t *n_out, int64_t *ends)
{
    tc_ctx *ctx = open_context(backend, 0);
    tc_buf in[NETWORK_INPUTS], out[NETWORK_OUTPUTS];
    network m = {.n_inputs = 0};
    tc_program *f = NULL;
    uint32_t seed = 7;
    *n_out = 0;
    make(ctx, &m);
    for (int i = 0; i < m.n_inputs; i++) {
        bool is_filter = i % 3 == 1 || tc_rank(m.inputs[i]) == 2;
        in[i] = TC_BUF((const void *)network_numbers(m.inputs[i], is_filter, &seed),
                       2 * tc_count(m.inputs[i]));
    }
    for (int i = 0; i < m.n_outputs; i++) {
        *n_out += tc_count(m.outputs[i]);
        ends[i] = *n_out;
    }
    float *values = (float *)calloc((size_t)*n_out, sizeof(float)), *at = values;
    for (int i = 0; i < m.n_outputs; i++) {
        out[i] = TC_BUF(at, tc_count(m.outputs[i]));
        at += tc_count(m.outputs[i]);
    }
    tc_status status = tc_compile_fn((tc_tensors){m.inputs, m.n_inputs},
                                     (tc_tensors){m.outputs, m.n_outputs}, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", backend, tc_error(ctx));
    if (!status) {
        tc_program_get_info(f, info);
        snprintf(text, n_text, "%s", explained(f));
        status = tc_run(f, TC_BUFS_N(in, m.n_inputs), TC_BUFS_N(out, m.n_outputs));
        CHECK_MSG(status == TC_OK, "%s: %s, %s", backend, tc_error(f), emu_why);
    }
    for (int i = 0; i < m.n_inputs; i++) {
        free(in[i].data);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return values;
}

static int count_text(const char *text, const char *word)
{
    int n = 0;
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        n++;
    }
    return n;
}

/* places, matrices: kernels whose rows are places of images, and that have a matrix unit's sums. */
static void check_network(make_network *make, int launches, int places, int matrices)
{
    static char text[100000], ignored[100000];
    tc_program_info info, other;
    memset(&info, 0, sizeof(info));
    int64_t n = 0;
    int64_t ends[NETWORK_OUTPUTS];
    float *got = run_network("emulated", make, text, sizeof(text), &info, &n, ends);
    float *want = run_network("interp", make, ignored, sizeof(ignored), &other, &n, ends);
    for (int64_t i = 0, output = 0; i < n; output++) {
        double size = 0, off = 0;
        for (; i < ends[output]; i++) {
            size += (double)want[i] * (double)want[i];
            off += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        }
        CHECK_MSG(off <= 0.05 * 0.05 * size, "output %d is off by %g of %g", (int)output, sqrt(off),
                  sqrt(size));
    }
    CHECK_MSG(info.n_steps == launches && count_text(text, ", places") == places &&
                  count_text(text, "class MATRIX") == matrices,
              "%d launches, %d of places, %d of the unit, expected %d, %d and %d:\n%s",
              info.n_steps, count_text(text, ", places"), count_text(text, "class MATRIX"),
              launches, places, matrices, text);
    free(got);
    free(want);
}

/* Norms, relus, shortcuts and pools are computed where a convolution's result is, and read as it
 * lies: a launch for each of ten convolutions and for the pool, one that copies the image, eight
 * that copy filters. */
TEST(channels_stay_last_between_convolutions)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(residual_network, 20, 4, 8);
}

/* Each part is finished where it is made, and the whole a copy of them: a launch for each of five
 * convolutions and for that, two that copy filters. */
TEST(parts_of_a_value_lie_with_channels_last)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(parts_network, 8, 1, 4);
}

/* The values of both ways of a training step lie so too. */
TEST(channels_stay_last_where_norms_learn)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(learning_network, 69, 8, 13);
}

/* So do those of filters of one channel each, whose gradients are sums of parts. */
TEST(channels_stay_last_where_filters_of_one_channel_learn)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(alone_network, 56, 1, 2);
}

/* Two products and their four gradients, and the one of flattened images, over copies of images as
 * matrices. */
TEST(images_with_odd_rows_are_copied_as_matrices)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(channel_mlp_network, 15, 0, 7);
}

TEST(rows_are_places_of_lines_images_and_cubes)
{
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    check_network(ranks_network, 12, 3, 5);
}

TEST(a_warm_start_knows_the_main_loop)
{
    static const product_case c = {.batch = 1, .m = 128, .n = 128, .k = 64};
    char folder[] = "/tmp/tc-test-matrix-XXXXXX", command[80];
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    REQUIRE(mkdtemp(folder));
    tc_shutdown(); /* what earlier tests left in memory */
    for (int warm = 0; warm < 2; warm++) {
        product p;
        tc_program_info info;
        tc_options o;
        tc_ctx *ctx = open_context("emulated", 0);
        REQUIRE(ctx);
        make_product(&p, ctx, c);
        memset(&o, 0, sizeof(o));
        memset(&info, 0, sizeof(info));
        o.cache_dir = folder;
        tci_ctx_of(ctx)->options.no_disk_cache = false;
        tc_status status = tc_compile_fn((tc_tensors){p.in, p.n_in}, (tc_tensors){&p.y, 1}, &o,
                                         &p.program);
        CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
        if (!status) {
            tc_program_get_info(p.program, &info);
            CHECK_EQ_INT(info.from_disk, warm);
            CHECK_EQ_INT(run_product(&p), 0);
        }
        free_product(&p);
        tc_ctx_free(ctx);
        tc_shutdown();
    }
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    CHECK_EQ_INT(system(command), 0);
}

/* ---- files ---- */

enum { FILE_PRODUCTS = 6, FILE_OPS = 1500 };

static int files, most_units; /* of the last build; main loops in the file that has most */

static tc_status count_units(void *user, tc_build *build)
{
    files = build->n;
    most_units = 0;
    for (int i = 0; i < build->n; i++) {
        int units = 0;
        for (const char *at = build->sources[i]; (at = strstr(at, ": matrix unit")); at++) {
            units++;
        }
        most_units = units > most_units ? units : most_units;
    }
    (void)user;
    return TC_ERR_COMPILER; /* that is all */
}

/* By their length all the products would share one file, beside one kernel of long text. */
TEST(main_loops_are_shared_out_over_files)
{
    static tc_backend counting;
    tc_tensor inputs[2 * FILE_PRODUCTS + 1], outputs[FILE_PRODUCTS + 1];
    tc_program *f = NULL;
    if (!can_emulate() || tci_os_cpu_count() < 2) {
        SKIP("there is no C++ compiler, or one processor");
    }
    counting = *emulation();
    counting.name = "counting";
    counting.compile = count_units;
    REQUIRE(tc_register_backend(&counting) == TC_OK);
    tc_ctx *ctx = open_context("counting", 0);
    REQUIRE(ctx);
    for (int i = 0; i < FILE_PRODUCTS; i++) {
        inputs[2 * i] = tc_input(ctx, "a", TC_BF16, 256 + 128 * i, 256);
        inputs[2 * i + 1] = tc_input(ctx, "b", TC_BF16, 256, 256);
        outputs[i] = tc_matmul(inputs[2 * i], inputs[2 * i + 1]);
    }
    tc_tensor x = inputs[2 * FILE_PRODUCTS] = tc_input(ctx, "x", TC_F32, 1000), y = x;
    for (int i = 0; i < FILE_OPS; i++) {
        y = i % 2 ? tc_mul(y, x) : tc_add(y, 0.25 + i);
    }
    outputs[FILE_PRODUCTS] = y;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS_N(inputs, 2 * FILE_PRODUCTS + 1),
                               TC_TENSORS_N(outputs, FILE_PRODUCTS + 1), NULL, &f),
                 TC_ERR_COMPILER);
    CHECK(files > 1);
    CHECK_MSG(most_units >= 1 && most_units <= 4, "%d of %d in one of %d files", most_units,
              FILE_PRODUCTS, files);
    tc_ctx_free(ctx);
}

TEST_MAIN
