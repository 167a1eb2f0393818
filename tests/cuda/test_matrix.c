/* Contractions on matrix units without a GPU: the kernels' text is run by the model (model.h) and
 * compared with sums in f64; bugs planted in it must show; NVRTC compiles it where it is found. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"
#include "matrix_context.h"

/* ---- cases ---- */

/* C[batch][m][n] = A B; a_turned: A is stored as [k][m]; b_turned: B as [n][k]. */
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

TEST(bytes_in_another_layout_are_copied)
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

/* By their length all the products would share one file, next to one kernel of long text. */
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
