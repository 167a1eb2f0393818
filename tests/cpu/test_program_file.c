/* tests/cpu/test_program_file.c - programs in files: saved by one process, run by another without a
 * compiler; parameters, symbols, packed weights; files that are damaged, of others, or for machines
 * and builds that are not this one. Results are judged by plain C. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "cache.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { ROWS = 3, IN = 40, OUT = 64 };
static float w[IN * OUT], bias[OUT], x[16 * IN];

static const char *const backends[] = {"cpu", "interp"};

static tc_ctx *context(const char *backend)
{
    tc_ctx *ctx;
    tc_options o = {.backend = backend, .threads = 1, .cache_dir = usual_cache};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    for (int i = 0; i < IN * OUT; i++) {
        w[i] = (float)(i * 37 % 101 - 50);
    }
    for (int i = 0; i < OUT; i++) {
        bias[i] = (float)(i - 7);
    }
    for (int i = 0; i < 16 * IN; i++) {
        x[i] = (float)(i * 5 % 23 - 11);
    }
    return ctx;
}

/* Small integers: exact in any order of addition. scale: of the weights. */
static float layer(const float *row, int column, float scale)
{
    float sum = 0;
    for (int k = 0; k < IN; k++) {
        sum += row[k] * w[k * OUT + column] * scale;
    }
    sum += bias[column];
    return sum > 0 ? sum * 3.25f : 0;
}

static bool is_layer(const float *y, int rows, float scale)
{
    for (int i = 0; i < rows * OUT; i++) {
        if (y[i] != layer(x + i / OUT * IN, i % OUT, scale)) {
            return false;
        }
    }
    return true;
}

/* relu(x w + bias) * 3.25 over memory of the context; trains: a run doubles w. */
static tc_program *compile(tc_ctx *ctx, int64_t rows, bool trains)
{
    tc_program *f;
    tc_tensor in = tc_input(ctx, "x", TC_F32, rows, IN), outs[2];
    tc_tensor weights = trains ? tc_named(tc_param(ctx, w, TC_F32, IN, OUT), "fc.weight")
                               : tc_copy_in(ctx, w, TC_F32, IN, OUT);
    tc_tensor y = tc_add(tc_matmul(in, weights), tc_copy_in(ctx, bias, TC_F32, OUT));
    outs[0] = tc_mul(tc_relu(y), 3.25);
    outs[1] = trains ? tc_assign(weights, tc_mul(weights, 2)) : TC_NONE;
    tc_status status = tc_compile_fn(((tc_tensors){&in, 1}), ((tc_tensors){outs, 1 + trains}), NULL,
                                     &f);
    REQUIRE(status == TC_OK);
    return f;
}

static bool run(tc_program *f, int rows, float scale)
{
    float y[16 * OUT] = {0};
    tc_status status = tc_run(f, TC_BUFS(TC_BUF_ND(x, rows, IN)), TC_BUFS(TC_BUF(y, rows * OUT)));
    CHECK_MSG(status == TC_OK, "%s", tc_error(f));
    return !status && is_layer(y, rows, scale);
}

static const char *save(const char *name, tc_program *f, bool packed)
{
    const char *path = in_dir(name);
    tc_status status = tc_program_save(f, path, &(tc_save_options){.packed = packed});
    CHECK_MSG(status == TC_OK, "%s", tc_error(f));
    return path;
}

static tc_program *load(tc_ctx *ctx, const char *path)
{
    tc_program *f = NULL;
    tc_status status = tc_program_load(ctx, path, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    REQUIRE(f);
    return f;
}

/* ---- another process ---- */

static int in_other_process(const char *path, const char *scale)
{
    int code = -1;
    pid_t child = fork();
    if (child == 0) {
        setenv("TC_TEST_SAVED", path, 1);
        setenv("TC_TEST_SCALE", scale, 1);
        setenv("PATH", "/nonexistent", 1);
        execl("/proc/self/exe", "test", "--filter", "as_the_other_process", (char *)NULL);
        _exit(99);
    }
    REQUIRE(child > 0 && waitpid(child, &code, 0) == child);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

/* The other side of the test below; alone it has nothing to do. */
TEST(as_the_other_process_a_saved_program_runs)
{
    const char *path = getenv("TC_TEST_SAVED"), *scale = getenv("TC_TEST_SCALE");
    if (!path) {
        return;
    }
    tc_ctx *ctx = context(NULL);
    tc_stats before, after;
    tc_stats(ctx, &before);
    tc_program *f = load(ctx, path);
    CHECK(run(f, ROWS, (float)atof(scale)));
    tc_stats(ctx, &after);
    CHECK_EQ_INT(after.compiler_runs - before.compiler_runs, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(another_process_without_a_compiler_runs_a_saved_program)
{
    for (int i = 0; i < TCI_COUNT(backends); i++) {
        begin();
        tc_ctx *ctx = context(backends[i]);
        tc_program *f = compile(ctx, ROWS, true);
        CHECK(run(f, ROWS, 1)); /* which doubles the weights */
        CHECK_EQ_INT(in_other_process(save("net.tcp", f, i == 0), "2"), 0);
        tc_program_free(f);
        tc_ctx_free(ctx);
        end();
    }
}

/* ---- what is in the file ---- */

TEST(a_loaded_program_says_its_inputs_outputs_and_symbols)
{
    for (int i = 0; i < TCI_COUNT(backends); i++) {
        begin();
        tc_ctx *ctx = context(backends[i]);
        tc_program *f = compile(ctx, TC_DIM("rows", 1, 16), false);
        const char *path = save("net.tcp", f, false);
        tc_program_free(f);
        tc_ctx_free(ctx);
        tc_shutdown();
        hide_compilers(true);
        ctx = context(NULL);
        f = load(ctx, path);
        tc_port port;
        CHECK_EQ_INT(tc_program_find_input(f, "x"), 0);
        CHECK_EQ_INT(tc_program_get_input(f, 0, &port), TC_OK);
        CHECK_EQ_INT(port.rank, 2);
        CHECK(port.sizes[0] == TC_DIM("rows", 1, 16));
        CHECK_EQ_INT(port.sizes[1], IN);
        CHECK_EQ_INT(tc_program_get_output(f, 0, &port), TC_OK);
        CHECK(port.sizes[0] == TC_DIM("rows", 1, 16) && port.dtype == TC_F32);
        CHECK(run(f, 1, 1) && run(f, 16, 1) && run(f, 5, 1));
        float y[17 * OUT], many[17 * IN] = {0};
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_ND(many, 17, IN)), TC_BUFS(TC_BUF(y, 17 * OUT))),
                     TC_ERR_BUFFER);
        CHECK_HAS(tc_error(f), "rows");
        tc_program_free(f);
        tc_ctx_free(ctx);
        end();
    }
}

TEST(parameters_of_a_loaded_program_are_the_contexts)
{
    for (int i = 0; i < TCI_COUNT(backends); i++) {
        begin();
        tc_ctx *ctx = context(backends[i]);
        tc_program *f = compile(ctx, ROWS, true);
        CHECK(run(f, ROWS, 1));
        const char *path = save("net.tcp", f, true);
        CHECK(run(f, ROWS, 2)); /* the file has the value of its moment */
        tc_program_free(f);
        tc_ctx_free(ctx);
        ctx = context(NULL);
        f = load(ctx, path);
        CHECK(run(f, ROWS, 2) && run(f, ROWS, 4));
        float got[IN * OUT];
        tc_tensor weight = tc_param_find(ctx, "fc.weight");
        REQUIRE(tc_read(weight, got, IN * OUT) == TC_OK);
        CHECK(got[5] == 8 * w[5] && got[IN * OUT - 1] == 8 * w[IN * OUT - 1]);
        CHECK_EQ_INT(tc_param_write(weight, w, IN * OUT), TC_OK);
        CHECK(run(f, ROWS, 1));
        CHECK_EQ_INT(tc_save(ctx, in_dir("w.safetensors")), TC_OK);
        CHECK(run(f, ROWS, 2));
        CHECK_EQ_INT(tc_load(ctx, in_dir("w.safetensors")), TC_OK);
        CHECK(run(f, ROWS, 2));
        CHECK_EQ_INT(tc_status_of(tc_param_find(ctx, "fc.bias")), TC_ERR_ARGUMENT);
        CHECK_HAS(tc_ctx_error(ctx), "no parameter is named 'fc.bias'");
        tc_program_free(f);
        tc_ctx_free(ctx);
        end();
    }
}

TEST(a_loaded_program_is_saved_again)
{
    begin();
    tc_ctx *ctx = context("cpu");
    tc_program *f = compile(ctx, ROWS, true);
    tc_program *g = load(ctx, save("one.tcp", f, true)), *h = load(ctx, save("two.tcp", g, true));
    bytes one = read_file(in_dir("one.tcp")), two = read_file(in_dir("two.tcp"));
    CHECK(one.n == two.n && !memcmp(one.data, two.data, one.n));
    CHECK(run(h, ROWS, 1) && run(h, ROWS, 2) && run(g, ROWS, 1) && run(f, ROWS, 1));
    CHECK_EQ_INT(tc_status_of(tc_param_find(ctx, "fc.weight")), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_ctx_error(ctx), "two parameters are named 'fc.weight'");
    free(one.data);
    free(two.data);
    tc_program_free(f);
    tc_program_free(g);
    tc_program_free(h);
    tc_ctx_free(ctx);
    end();
}

TEST(packed_weights_are_in_the_file_and_follow_the_parameter)
{
    begin();
    tc_ctx *ctx = context("cpu");
    enum { FEW = 8, SIDE = 256 };
    static float a[FEW * SIDE], v[SIDE * SIDE], y[FEW * SIDE], z[FEW * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) {
        v[i] = (float)(i % 7 - 3);
        a[i % (FEW * SIDE)] = (float)(i % 5 - 2);
    }
    tc_tensor weight = tc_named(tc_param(ctx, v, TC_F32, SIDE, SIDE), "v");
    tc_program *f, *g, *plain;
    tc_tensor in = tc_input(ctx, "a", TC_F32, FEW, SIDE);
    REQUIRE(tc_compile(tc_matmul(in, tc_transpose(weight, 0, 1)), &f) == TC_OK);
    tc_program_info info;
    tc_program_get_info(f, &info);
    if (!info.n_once) {
        SKIP("no weights are packed on this machine");
    }
    CHECK_EQ_INT(tc_program_save(f, in_dir("plain.tcp"), NULL), TC_OK);
    g = load(ctx, save("packed.tcp", f, true));
    plain = load(ctx, in_dir("plain.tcp"));
    bytes with = read_file(in_dir("packed.tcp")), without = read_file(in_dir("plain.tcp"));
    CHECK((int64_t)(with.n - without.n) >= info.kept_bytes);
    CHECK(g->kept != NULL && plain->kept == NULL);
    const void *packed = g->kept;
    CHECK_EQ_INT(tc_run(plain, TC_BUFS(TC_BUF(a, FEW * SIDE)), TC_BUFS(TC_BUF(z, FEW * SIDE))),
                 TC_OK);
    for (int turn = 0; turn < 2; turn++) {
        tc_tensor own = {ctx, 0, 0};
        CHECK_EQ_INT(tc_run(g, TC_BUFS(TC_BUF(a, FEW * SIDE)), TC_BUFS(TC_BUF(y, FEW * SIDE))),
                     TC_OK);
        CHECK(turn || g->kept == packed); /* it was not computed again */
        for (int i = 0; i < FEW * SIDE; i += 17) {
            float sum = 0;
            for (int k = 0; k < SIDE; k++) {
                sum += a[i / SIDE * SIDE + k] * v[i % SIDE * SIDE + k];
            }
            CHECK(y[i] == sum && (turn || z[i] == sum));
        }
        for (int i = 0; i < SIDE * SIDE && !turn; i++) {
            v[i] = (float)(i % 3);
        }
        for (uint32_t i = 0; i < tci_ctx_of(ctx)->graph.n_slots; i++) { /* g's of the three "v" */
            tci_node *n = tci_ctx_of(ctx)->graph.slots[i];
            if (n && n->storage == g->captured[0]) {
                own = (tc_tensor){ctx, n->id, n->generation};
            }
        }
        CHECK_EQ_INT(tc_param_write(own, v, SIDE * SIDE), TC_OK);
        packed = turn ? packed : g->kept;
    }
    free(with.data);
    free(without.data);
    tc_program_free(f);
    tc_program_free(g);
    tc_program_free(plain);
    tc_ctx_free(ctx);
    end();
}

TEST(views_of_one_memory_stay_views)
{
    for (int i = 0; i < TCI_COUNT(backends); i++) {
        begin();
        tc_ctx *ctx = context(backends[i]);
        float data[24], y[12];
        for (int k = 0; k < 24; k++) {
            data[k] = (float)k;
        }
        int64_t sizes[2] = {3, 4}, back[2] = {-4, 1}, every[2] = {1, 6};
        tc_tensor reversed = tc_borrow_strided(ctx, data + 8, TC_F32, 2, sizes, back);
        tc_tensor columns = tc_borrow_strided(ctx, data, TC_F32, 2, sizes, every);
        tc_program *f;
        REQUIRE(tc_compile(tc_sub(tc_mul(reversed, 100), columns), &f) == TC_OK);
        tc_program *g = load(ctx, save("views.tcp", f, false));
        memset(data, 0, sizeof(data)); /* the file has its own */
        CHECK_EQ_INT(tc_run(g, TC_BUFS(), TC_BUFS(TC_BUF(y, 12))), TC_OK);
        for (int k = 0; k < 12; k++) {
            int row = k / 4, column = k % 4;
            CHECK(y[k] == 100 * (float)((2 - row) * 4 + column) - (float)(row + 6 * column));
        }
        tc_program_free(f);
        tc_program_free(g);
        tc_ctx_free(ctx);
        end();
    }
}

TEST(an_index_outside_names_the_line_that_recorded_it)
{
    begin();
    tc_ctx *ctx = context("cpu");
    int32_t at[2] = {1, 40};
    float y[2];
    tc_tensor index = tc_input(ctx, "at", TC_I32, 2);
    tc_program *f;
    int line = __LINE__ + 1;
    tc_tensor picked = tc_gather(tc_copy_in(ctx, w, TC_F32, 40), 0, index);
    REQUIRE(tc_compile(picked, &f) == TC_OK);
    tc_program *g = load(ctx, save("index.tcp", f, false));
    CHECK_EQ_INT(tc_run(g, TC_BUFS(TC_BUF(at, 2)), TC_BUFS(TC_BUF(y, 2))), TC_ERR_INDEX);
    char place[64];
    snprintf(place, sizeof(place), "test_program_file.c:%d", line);
    CHECK_HAS(tc_error(g), place);
    CHECK_HAS(tc_error(g), "40");
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
    end();
}

static void triple_run(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user, (void)n;
    for (int64_t i = 0; i < out->n; i++) {
        ((float *)out->data)[i] = 3 * ((const float *)in->data)[i];
    }
}

TEST(custom_ops_are_found_by_name_and_version)
{
    begin();
    tc_ctx *ctx = context("cpu");
    const tc_custom_op triple = {.name = "triple", .version = 4, .run = triple_run};
    tc_program *f, *g;
    float y[4];
    REQUIRE(tc_compile(tc_add(tc_custom(&triple, TC_TENSORS(tc_input(ctx, "x", TC_F32, 4))), 1),
                       &f) == TC_OK);
    const char *path = save("custom.tcp", f, false);
    g = load(ctx, path);
    CHECK_EQ_INT(tc_run(g, TC_BUFS(TC_BUF(x, 4)), TC_BUFS(TC_BUF(y, 4))), TC_OK);
    CHECK(y[0] == 3 * x[0] + 1 && y[3] == 3 * x[3] + 1);
    bytes b = read_file(path);
    for (size_t i = 0; i + 6 < b.n; i++) { /* as a process that has no op of that name sees it */
        if (!memcmp(b.data + i, "triple", 6)) {
            memcpy(b.data + i, "absent", 6);
        }
    }
    tci_saved_header h;
    memcpy(&h, b.data, sizeof(h));
    h.sum = tci_hash_bytes(b.data + sizeof(h), (size_t)h.description);
    memcpy(b.data, &h, sizeof(h));
    write_file(path, b.data, b.n, 0600);
    tc_program *none;
    CHECK_EQ_INT(tc_program_load(ctx, path, NULL, &none), TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_ctx_error(ctx), "the custom op 'absent'");
    free(b.data);
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
    end();
}

/* ---- in-kernel loops ---- */

static tc_status below_limit(void *user, const tc_tensor *c, tc_tensor *go)
{
    (void)user;
    *go = tc_lt(tc_sum(c[0], TC_ALL, false), 1000);
    return TC_OK;
}

static tc_status twice_less_one(void *user, const tc_tensor *c, tc_tensor *next)
{
    (void)user;
    next[0] = tc_sub(tc_mul(c[0], 2), 1);
    next[1] = tc_add(c[1], 1);
    return TC_OK;
}

static tc_status mix(void *user, const tc_tensor *c, const tc_tensor *in, tc_tensor *next,
                     tc_tensor *y)
{
    (void)user;
    y[0] = tc_add(c[0], in[0]);
    next[0] = tc_sub(tc_flip(c[0], 0), in[0]);
    return TC_OK;
}

/* What plain C computes of so many steps of mix and then of the loop that stops. */
static void check_loops(tc_program *f, int n)
{
    float c[3] = {1, 2, 4}, y[9][3], last[3], steps[1], out[27], end = 0;
    tc_status status = tc_run(f, TC_BUFS(TC_BUF(x, n)),
                              TC_BUFS(TC_BUF(out, 3 * n), TC_BUF(last, 3), TC_BUF(steps, 1)));
    CHECK_MSG(status == TC_OK, "%s", tc_error(f));
    for (int t = 0; t < n; t++) {
        float old[3] = {c[0], c[1], c[2]};
        for (int i = 0; i < 3; i++) {
            y[t][i] = old[i] + x[t];
            c[i] = old[2 - i] - x[t];
        }
    }
    for (int i = 0; i < 3; i++) {
        c[i] = fabsf(c[i]) + 2;
    }
    for (; c[0] + c[1] + c[2] < 1000; end++) {
        for (int i = 0; i < 3; i++) {
            c[i] = 2 * c[i] - 1;
        }
    }
    CHECK(!memcmp(out, y, sizeof(float) * (size_t)(3 * n)) && !memcmp(last, c, sizeof(c)));
    CHECK_CLOSE(steps[0], end, 0);
}

static int fused_loops(const tc_program *f)
{
    int n = 0;
    for (int i = 0; i < f->code->n_kernels; i++) {
        n += f->code->kernels[i].is_loop;
    }
    return n;
}

TEST(fused_loops_are_saved_with_their_rounds)
{
    for (int b = 0; b < 2; b++) {
        tc_ctx *ctx = context(backends[b]), *other = context(backends[b]);
        tc_tensor given = tc_input(ctx, "x", TC_F32, TC_DIM("n", 1, 9)), last, y, end[2];
        float first[3] = {1, 2, 4};
        tc_program *f = NULL;
        CHECK(!tc_scan(TC_TENSORS(tc_copy_in(ctx, first, TC_F32, 3)), TC_TENSORS(given), 0, false,
                       mix, NULL, &last, &y, 1));
        tc_tensor start = tc_add(tc_abs(last), 2), none = tc_full(ctx, 0, TC_F32);
        CHECK(!tc_while(TC_TENSORS(start, none), 0, below_limit, twice_less_one, NULL, end));
        REQUIRE(!tc_compile_fn(TC_TENSORS(given), TC_TENSORS(y, end[0], end[1]), NULL, &f));
        tc_program *loaded = load(other, save("loops.tcp", f, false));
        CHECK_EQ_INT(fused_loops(f), b ? 0 : 2);
        CHECK_EQ_INT(fused_loops(loaded), fused_loops(f));
        for (int n = 1; n <= 9; n++) {
            check_loops(f, n);
            check_loops(loaded, n);
        }
        tc_program_free(f);
        tc_program_free(loaded);
        tc_ctx_free(ctx);
        tc_ctx_free(other);
    }
}

/* ---- what is refused ---- */

static void check_refused(tc_ctx *ctx, const char *path, tc_status why, const char *text)
{
    tc_program *f = (tc_program *)ctx;
    CHECK_EQ_INT(tc_program_load(ctx, path, NULL, &f), why);
    CHECK(f == NULL);
    CHECK_HAS(tc_ctx_error(ctx), text);
    CHECK_HAS(tc_ctx_error(ctx), "test_program_file.c:");
}

/* Writes the file with `from` replaced in its description, under a new hash. */
static const char *changed(const bytes *b, const char *from, const char *to)
{
    const char *path = in_dir("changed.tcp");
    size_t n = strlen(from);
    tci_saved_header h;
    memcpy(&h, b->data, sizeof(h));
    unsigned char *copy = malloc(b->n);
    memcpy(copy, b->data, b->n);
    bool found = false;
    for (size_t i = sizeof(h); i + n < sizeof(h) + h.description && !found; i++) {
        found = !memcmp(copy + i, from, n);
        if (found) {
            memcpy(copy + i, to, n);
        }
    }
    CHECK_MSG(found, "'%s' is not in the file", from);
    h.sum = tci_hash_bytes(copy + sizeof(h), (size_t)h.description);
    memcpy(copy, &h, sizeof(h));
    write_file(path, copy, b->n, 0600);
    free(copy);
    return path;
}

TEST(files_for_other_machines_and_builds_are_refused_by_name)
{
    begin();
    tc_ctx *ctx = context("cpu");
    tc_program *f = compile(ctx, ROWS, false);
    bytes b = read_file(save("net.tcp", f, false));
    const char *features = (const char *)f->code->key;
    features += strlen(features) + 1;
    features += strlen(features) + 1;
    char other[128];
    snprintf(other, sizeof(other), "%s", features);
    memcpy(other, "sse9", 4);
    check_refused(ctx, changed(&b, features, other), TC_ERR_UNSUPPORTED,
                  "its machine code needs sse9");
    check_refused(ctx, changed(&b, "Linux", "Plan9"), TC_ERR_UNSUPPORTED, "Plan9");
    char build[128];
    snprintf(build, sizeof(build), "%s", tci_key_build());
    build[0] ^= 1;
    check_refused(ctx, changed(&b, tci_key_build(), build), TC_ERR_UNSUPPORTED,
                  "save it again with this one");
    tci_saved_header h;
    memcpy(&h, b.data, sizeof(h));
    uint64_t swapped = 0;
    for (int i = 0; i < 8; i++) {
        swapped |= (h.magic >> 8 * i & 255) << (56 - 8 * i);
    }
    memcpy(b.data, &swapped, sizeof(swapped));
    write_file(in_dir("swapped.tcp"), b.data, b.n, 0600);
    check_refused(ctx, in_dir("swapped.tcp"), TC_ERR_UNSUPPORTED, "the other byte order");
    memcpy(b.data, &h.magic, sizeof(h.magic));
    b.data[12] ^= 8;
    write_file(in_dir("later.tcp"), b.data, b.n, 0600);
    check_refused(ctx, in_dir("later.tcp"), TC_ERR_UNSUPPORTED, "another version of tc saved it");
    static const char text[] = "hello, this is not a program of tc, but it is as long as one is";
    write_file(in_dir("none.tcp"), text, sizeof(text), 0600);
    check_refused(ctx, in_dir("none.tcp"), TC_ERR_IO, "no program that tc_program_save wrote");
    check_refused(ctx, in_dir("missing.tcp"), TC_ERR_IO, "No such file");
    free(b.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(code_for_less_than_this_machine_has_is_loaded)
{
    begin();
    if (tci_backend_pick(&(tc_options){.backend = "cpu"})->target.vector_bytes < 32) {
        SKIP("needs vectors of 32 bytes");
    }
    tc_ctx *ctx = context("cpu");
    tc_tensor y = tc_sin(tc_input(ctx, "x", TC_F32, 100)), in = tc_input(ctx, "x", TC_F32, 100);
    (void)y;
    y = tc_mul(in, 5);
    for (int bits = -1; bits <= 256; bits = bits < 0 ? 128 : 2 * bits) {
        tc_program *f, *g;
        float out[100];
        REQUIRE(tc_compile_fn(((tc_tensors){&in, 1}), ((tc_tensors){&y, 1}),
                              (&(tc_options){.vector_bits = bits}), &f) == TC_OK);
        g = load(ctx, save("narrow.tcp", f, false));
        CHECK_EQ_INT(tc_run(g, TC_BUFS(TC_BUF(x, 100)), TC_BUFS(TC_BUF(out, 100))), TC_OK);
        CHECK(out[99] == 5 * x[99]);
        tc_program_free(f);
        tc_program_free(g);
    }
    tc_ctx_free(ctx);
    end();
}

TEST(damaged_files_are_refused)
{
    for (int i = 0; i < TCI_COUNT(backends); i++) {
        begin();
        tc_ctx *ctx = context(backends[i]);
        tc_program *f = compile(ctx, ROWS, true), *g = NULL;
        bytes b = read_file(save("net.tcp", f, true));
        const char *path = in_dir("damaged.tcp");
        int n_padding = 0, n_tried = 0;
        for (size_t at = 0; at < b.n; at += at < 600 ? 7 : 997) {
            b.data[at] ^= 0x20;
            write_file(path, b.data, b.n, 0600);
            b.data[at] ^= 0x20;
            tc_status status = tc_program_load(ctx, path, NULL, &g);
            n_tried++;
            n_padding += status == TC_OK; /* bytes between blobs, which are not read */
            CHECK(status == TC_OK || status == TC_ERR_IO || status == TC_ERR_UNSUPPORTED);
            tc_program_free(g);
        }
        CHECK_MSG(n_padding <= 3 + n_tried / 50, "%d of %d", n_padding, n_tried);
        for (size_t n = 0; n < b.n; n += n < 200 ? 13 : 1499) {
            write_file(path, b.data, n, 0600);
            check_refused(ctx, path, TC_ERR_IO, "damaged.tcp");
        }
        free(b.data);
        tc_program_free(f);
        tc_ctx_free(ctx);
        end();
    }
}

/* A description that was changed on purpose has the right hash: ranges are checked all the same. */
TEST(descriptions_that_were_tampered_with_do_not_crash)
{
    for (int i = 0; i < TCI_COUNT(backends); i++) {
        begin();
        tc_ctx *ctx = context(backends[i]);
        tc_program *f = compile(ctx, ROWS, true), *g = NULL;
        bytes b = read_file(save("net.tcp", f, true));
        const char *path = in_dir("tampered.tcp");
        tci_saved_header h;
        memcpy(&h, b.data, sizeof(h));
        for (int k = 0; k < (tct_soak ? 20000 : 400); k++) {
            size_t at = sizeof(h) + (size_t)(tct_random() % h.description);
            unsigned char before = b.data[at];
            b.data[at] = (unsigned char)tct_random();
            tci_saved_header now = h;
            now.sum = tci_hash_bytes(b.data + sizeof(h), (size_t)h.description);
            memcpy(b.data, &now, sizeof(now));
            write_file(path, b.data, b.n, 0600);
            b.data[at] = before;
            tc_program_load(ctx, path, NULL, &g); /* not to be run: it may be another program */
            tc_program_free(g);
        }
        free(b.data);
        tc_program_free(f);
        tc_ctx_free(ctx);
        end();
    }
}

/* The description of a file, to be changed in a way that hashes do not find. */
static tci_code *described(const bytes *b, tci_saved *v)
{
    tci_saved_header h;
    memcpy(&h, b->data, sizeof(h));
    const uint8_t *text = (const uint8_t *)b->data + sizeof(h);
    tci_code *memory = tci_code_make();
    REQUIRE(memory);
    *v = (tci_saved){.code = memory};
    tci_wire wire = {.at = text, .end = text + h.description, .memory = memory};
    tci_saved_wire(&wire, v);
    REQUIRE(!wire.bad);
    return memory;
}

/* A file of that description, and of the blobs of b. */
static const char *written(const bytes *b, tci_saved *v)
{
    const char *path = in_dir("written.tcp");
    tci_str text = {0};
    tci_wire wire = {.out = &text};
    tci_saved_header h;
    memcpy(&h, b->data, sizeof(h));
    tci_saved_wire(&wire, v); /* for its length */
    size_t first = sizeof(h) + (size_t)h.description;
    size_t shift = text.n <= h.description ? 0 : (text.n - (size_t)h.description + 63) / 64 * 64;
    for (int i = 0; i < v->n_storages; i++) {
        v->storages[i].blob.at += (int64_t)shift;
    }
    for (int i = 0; i < v->n_modules; i++) {
        v->modules[i].at += (int64_t)shift;
    }
    v->kept.at += (int64_t)shift;
    text.n = 0;
    tci_saved_wire(&wire, v);
    REQUIRE(!wire.bad && !text.failed);
    unsigned char *whole = calloc(b->n + shift, 1);
    REQUIRE(whole);
    memcpy(whole + first + shift, b->data + first, b->n - first);
    h.description = text.n;
    h.bytes = b->n + shift;
    h.sum = tci_hash_bytes(text.text, text.n);
    memcpy(whole, &h, sizeof(h));
    memcpy(whole + sizeof(h), text.text, text.n);
    write_file(path, whole, b->n + shift, 0600);
    free(whole);
    tci_str_free(&text);
    return path;
}

/* One node of many kinds each, over symbolic sizes. */
static tc_program *compile_many_kinds(tc_ctx *ctx)
{
    tc_tensor in = tc_input(ctx, "x", TC_F32, TC_DIM("rows", 6, 16), 6);
    tc_tensor square = tc_copy_in(ctx, w, TC_F32, 6, 6);
    tc_tensor index = tc_input(ctx, "at", TC_I64, 2, 6), ins[2] = {in, index};
    int64_t sizes[2] = {6, 6}, apart[2] = {-6, 2};
    tc_tensor strided = tc_borrow_strided(ctx, w + 60, TC_F32, 2, sizes, apart);
    tc_tensor y = tc_matmul(tc_cumsum(in, 1), tc_cholesky(square, false));
    y = tc_softmax(tc_solve(strided, tc_transpose(y, 0, 1)), 0);
    y = tc_add(tc_cat(TC_TENSORS(y, tc_slice(y, 0, 4, 1, -2)), 0), tc_sum(y, TC_AXES(0), true));
    y = tc_mul(tc_gather(y, 0, index), tc_sum(y, TC_AXES(0, 1), true));
    tc_program *f;
    tc_status status = tc_compile_fn(((tc_tensors){ins, 2}), ((tc_tensors){&y, 1}), NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(y));
    REQUIRE(status == TC_OK);
    return f;
}

/* The same of the graph alone, with numbers that hurt: it is read from the key, node by node. */
TEST(graphs_that_were_tampered_with_do_not_crash)
{
    static const uint8_t hurting[] = {0, 1, 2, 3, 0x7e, 0x7f, 0x80, 0xfe, 0xff};
    begin();
    tc_ctx *ctx = context("interp");
    tc_program *f = compile_many_kinds(ctx), *g = NULL;
    bytes b = read_file(save("many.tcp", f, false));
    int n_loaded = 0, n_tried = tct_soak ? 100000 : 500;
    for (int k = 0; k < n_tried; k++) {
        tci_saved v;
        tci_code *memory = described(&b, &v);
        for (int left = 1 + tct_random_below(3); left > 0; left--) {
            int at = v.key_graph + tct_random_below(v.key_bytes - v.key_graph);
            int n = TCI_MIN(1 + tct_random_below(9), v.key_bytes - at);
            int what = tct_random_below(3);
            if (what == 0) { /* a number of many bytes */
                memset(v.key + at, 0xff, (size_t)n);
                v.key[at + n - 1] = (uint8_t)tct_random_below(0x80);
            } else {
                v.key[at] = what == 1 ? hurting[tct_random_below(TCI_COUNT(hurting))]
                                      : (uint8_t)tct_random_below(256);
            }
        }
        tc_status status = tc_program_load(ctx, written(&b, &v), NULL, &g);
        n_loaded += status == TC_OK;
        CHECK_MSG(status != TC_ERR_INTERNAL, "%s", tc_error(ctx));
        tc_program_free(g);
        tci_code_release(memory);
    }
    CHECK_MSG(n_loaded < n_tried / 2, "%d of %d", n_loaded, n_tried);
    free(b.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* Sizes whose product is 0 in 64 bits, of a captured array. */
TEST(a_captured_array_of_overflowing_sizes_is_refused)
{
    static const uint8_t was[] = {(uint8_t)TC_F32, 2, 1, 2 * IN, 1, 128, 1};
    static const uint8_t huge[] = {
        (uint8_t)TC_F32, 2, 1, 128, 128, 128, 128, 32, 1, 128, 128, 128, 128, 32};
    begin();
    tc_ctx *ctx = context("interp");
    tc_program *f = compile(ctx, ROWS, false);
    bytes b = read_file(save("net.tcp", f, false));
    tci_saved v;
    tci_code *memory = described(&b, &v);
    uint8_t *key = malloc((size_t)v.key_bytes + sizeof(huge));
    int at = v.key_graph;
    while (at + (int)sizeof(was) < v.key_bytes && memcmp(v.key + at, was, sizeof(was))) {
        at++;
    }
    REQUIRE(key && at + (int)sizeof(was) < v.key_bytes);
    int rest = v.key_bytes - at - (int)sizeof(was);
    memcpy(key, v.key, (size_t)at);
    memcpy(key + at, huge, sizeof(huge));
    memcpy(key + at + sizeof(huge), v.key + at + sizeof(was), (size_t)rest);
    v.key = key;
    v.key_bytes = at + (int)sizeof(huge) + rest;
    check_refused(ctx, written(&b, &v), TC_ERR_IO, "it is damaged: a captured array");
    free(key);
    tci_code_release(memory);
    free(b.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

static int put_signed(uint8_t *to, int64_t v)
{
    uint64_t left = (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
    int n = 0;
    for (; left > 127; left >>= 7) {
        to[n++] = (uint8_t)((left & 127) | 128);
    }
    to[n++] = (uint8_t)left;
    return n;
}

/* The key of an input of that rank whose sizes are in n bytes. Whether it is read; *used: bytes of
 * scratch. */
static bool key_is_read(int n_symbols, int rank, const uint8_t *sizes, int n, size_t *used)
{
    static uint8_t key[1 << 16];
    tci_scratch s;
    tci_key_graph g;
    int at = 0;
    key[at++] = (uint8_t)n_symbols;
    for (int i = 0; i < n_symbols; i++) {
        at += put_signed(key + at, 1);
        at += put_signed(key + at, 16);
    }
    memcpy(key + at, "\1\0\1", 3); /* an input, no node, a root */
    at += 3;
    key[at++] = (uint8_t)TC_F32;
    key[at++] = (uint8_t)((rank & 127) | 128);
    key[at++] = (uint8_t)(rank >> 7);
    memcpy(key + at, sizes, (size_t)n);
    at += n;
    key[at++] = 0;
    tci_scratch_init(&s);
    REQUIRE(!setjmp(s.escape));
    bool is_read = tci_key_read(&s, key, (size_t)at, 0, NULL, 0, &g);
    *used = s.bytes;
    tci_scratch_free(&s);
    return is_read;
}

/* A symbol of another program, which the number of an expression would name. */
TEST(numbers_in_a_file_are_not_taken_for_symbolic_sizes)
{
    const int64_t rows = TC_DIM("rows", 1, 16);
    uint8_t sizes[16] = {1};
    size_t used;
    CHECK(key_is_read(0, 1, sizes, 1 + put_signed(sizes + 1, 16), &used));
    CHECK(!key_is_read(0, 1, sizes, 1 + put_signed(sizes + 1, rows), &used));
    int64_t words[2] = {0, 16}, ranges[3] = {1, 1, 16};
    tci_wire wire = {.at = (const uint8_t *)words, .end = (const uint8_t *)(words + 2)};
    CHECK(tci_wire_dim(&wire, 0, 0, INT64_MAX) == 16 && !wire.bad);
    words[1] = rows;
    wire.at = (const uint8_t *)words;
    CHECK(tci_wire_dim(&wire, 0, 0, INT64_MAX) == 0 && wire.bad);
    for (int i = 0; i < 2; i++) { /* a range that no symbol has */
        tci_code *memory = tci_code_make();
        REQUIRE(memory);
        ranges[1] = i ? rows : 1; /* of one number, which is the size */
        ranges[2] = i ? rows : 16;
        wire = (tci_wire){.at = (const uint8_t *)ranges,
                          .end = (const uint8_t *)(ranges + 3),
                          .memory = memory};
        tci_wire_symbols(&wire, &memory->symbols, &memory->n_symbols);
        CHECK(wire.bad == (i == 1));
        tci_code_release(memory);
    }
}

/* "s0", 2,000 times, in a key of 12 KB. */
TEST(symbolic_sizes_of_a_key_take_little_memory)
{
    enum { RANK = 2000 };
    static uint8_t sizes[RANK * 16];
    int64_t words[16];
    size_t used;
    int n = 0, n_words = tci_dim_write(tci_dim_symbol(NULL, 0, 1, 16), words);
    for (int i = 0; i < RANK; i++) {
        sizes[n++] = 0;
        for (int k = 0; k < n_words; k++) {
            n += put_signed(sizes + n, words[k]);
        }
    }
    CHECK(key_is_read(1, RANK, sizes, n, &used));
    CHECK_MSG(used < 1 << 20, "%zu bytes", used);
}

/* All of them are one blob of the file: it would ask for a multiple of its size. */
TEST(a_small_file_does_not_ask_for_much_memory)
{
    enum { COPIES = 1000 };
    static tci_saved_storage copies[COPIES];
    for (int i = 0; i < TCI_COUNT(backends); i++) {
        begin();
        tc_ctx *ctx = context(backends[i]);
        tc_program *f = compile(ctx, ROWS, false);
        bytes b = read_file(save("net.tcp", f, false));
        tci_saved v;
        tci_code *memory = described(&b, &v);
        tc_program_free(load(ctx, written(&b, &v)));
        REQUIRE(v.n_storages == 2);
        for (int k = 0; k < COPIES; k++) {
            copies[k] = v.storages[k < 2 ? k : 0];
        }
        v.storages = copies;
        v.n_storages = COPIES;
        check_refused(ctx, written(&b, &v), TC_ERR_IO, "larger than the whole");
        tci_code_release(memory);
        free(b.data);
        tc_program_free(f);
        tc_ctx_free(ctx);
        end();
    }
}

TEST(a_program_whose_last_array_is_empty_is_loaded)
{
    for (int i = 0; i < TCI_COUNT(backends); i++) {
        begin();
        tc_ctx *ctx = context(backends[i]);
        for (int name = 1; name < 9; name++) { /* descriptions of any length */
            tc_tensor in = tc_input(ctx, &"xxxxxxxx"[8 - name], TC_F32, 4);
            tc_tensor none = tc_sum(tc_copy_in(ctx, w, TC_F32, 0), TC_ALL, false);
            tc_program *f, *g;
            float y[4];
            REQUIRE(tc_compile(tc_add(tc_mul(in, 3), none), &f) == TC_OK);
            g = load(ctx, save("empty.tcp", f, false));
            CHECK_EQ_INT(tc_run(g, TC_BUFS(TC_BUF(x, 4)), TC_BUFS(TC_BUF(y, 4))), TC_OK);
            CHECK(y[0] == 3 * x[0] && y[3] == 3 * x[3]);
            tc_program_free(f);
            tc_program_free(g);
        }
        tc_ctx_free(ctx);
        end();
    }
}

TEST(files_where_others_could_put_code_need_a_word_of_the_user)
{
    const tc_load_options vouched = {.trusted = true};
    begin();
    tc_ctx *ctx = context("cpu");
    tc_program *f = compile(ctx, ROWS, false), *g = NULL;
    umask(0);
    const char *path = save("net.tcp", f, false);
    umask(022);
    struct stat st;
    REQUIRE(stat(path, &st) == 0);
    CHECK_EQ_INT(st.st_mode & 0777, 0644);
    REQUIRE(chmod(path, 0664) == 0);
    check_refused(ctx, path, TC_ERR_IO, "others may write to it");
    REQUIRE(chmod(path, 0644) == 0);
    REQUIRE(symlink(path, in_dir("link.tcp")) == 0);
    check_refused(ctx, in_dir("link.tcp"), TC_ERR_IO, "it is a link");
    REQUIRE(mkdir(in_dir("open"), 0777) == 0 && chmod(in_dir("open"), 0777) == 0);
    const char *there = in_dir("open/net.tcp");
    CHECK_EQ_INT(tc_program_save(f, there, NULL), TC_OK);
    check_refused(ctx, there, TC_ERR_IO, "others could have put code there");
    CHECK_EQ_INT(tc_program_load(ctx, there, &vouched, &g), TC_OK);
    CHECK(run(g, ROWS, 1));
    tc_program_free(g);
    CHECK_EQ_INT(tc_program_load(ctx, in_dir("link.tcp"), &vouched, &g), TC_OK);
    tc_program_free(g);
    REQUIRE(mkfifo(in_dir("fifo.tcp"), 0600) == 0);
    CHECK_EQ_INT(tc_program_load(ctx, in_dir("fifo.tcp"), &vouched, &g), TC_ERR_IO);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(what_cannot_be_saved_is_said)
{
    begin();
    tc_ctx *ctx = context("cpu");
    tc_program *f = compile(ctx, TC_DIM("rows", 1, 16), false), *checked;
    CHECK_EQ_INT(tc_program_save(NULL, in_dir("a.tcp"), NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_program_save(f, NULL, NULL), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(f), "the path is NULL");
    CHECK_EQ_INT(tc_program_save(f, in_dir("none/a.tcp"), NULL), TC_ERR_IO);
    CHECK_HAS(tc_error(f), "test_program_file.c:");
    CHECK_EQ_INT(tc_program_save(f, in_dir("a.tcp"), &(tc_save_options){.packed = true}),
                 TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(f), "run it once");
    CHECK(run(f, ROWS, 1));
    tc_program *g = load(ctx, save("a.tcp", f, true));
    CHECK(run(g, 7, 1));
    tc_program_free(g);
    tc_tensor y = tc_mul(tc_input(ctx, "x", TC_F32, 8), 3);
    REQUIRE(tc_compile_fn(((tc_tensors){&(tc_tensor){0}, 0}), ((tc_tensors){&y, 1}), NULL,
                          &checked) != TC_OK);
    tc_tensor in = tc_input(ctx, "x", TC_F32, 8);
    y = tc_mul(in, 3);
    REQUIRE(tc_compile_fn(((tc_tensors){&in, 1}), ((tc_tensors){&y, 1}),
                          (&(tc_options){.check = TC_CHECK_NAN | TC_CHECK_NO_FILE}),
                          &checked) == TC_OK);
    CHECK_EQ_INT(tc_program_save(checked, in_dir("b.tcp"), NULL), TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(checked), "options.check");
    CHECK_EQ_INT(access(in_dir("b.tcp"), F_OK), -1);
    CHECK_EQ_INT(tc_program_load(NULL, in_dir("a.tcp"), NULL, &g), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_program_load(ctx, in_dir("a.tcp"), NULL, NULL), TC_ERR_ARGUMENT);
    tc_program_free(checked);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(a_program_of_a_cache_in_memory_alone_is_saved)
{
    begin();
    tc_ctx *ctx;
    tc_options o = {.backend = "cpu", .no_disk_cache = true, .threads = 1};
    tc_ctx_free(context("cpu")); /* for the weights */
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f = compile(ctx, ROWS, false);
    tc_program *g = load(ctx, save("net.tcp", f, false));
    tc_program_free(f);
    CHECK(run(g, ROWS, 1));
    tc_program_free(g);
    tc_ctx_free(ctx);
    end();
}

/* As an eviction does: files of machine code leave the cache. */
static void drop_machine_code(void)
{
    for (const char *path; (path = find_file(usual_cache, "tc-m-", ".so"))[0];) {
        REQUIRE(unlink(path) == 0);
    }
}

TEST(a_program_whose_machine_code_the_cache_dropped_is_saved)
{
    for (int symbolic = 0; symbolic < 2; symbolic++) {
        begin();
        tc_ctx *ctx = context("cpu");
        tc_program *f = compile(ctx, symbolic ? TC_DIM("rows", 1, 16) : ROWS, true);
        CHECK(run(f, ROWS, 1)); /* which doubles the weights */
        drop_machine_code();
        tc_ctx_stance(ctx, TC_STANCE_FAIL);
        const char *path = save("net.tcp", f, true);
        CHECK_EQ_INT(in_other_process(path, "2"), 0);
        CHECK(run(f, ROWS, 2)); /* the code that it had serves on */
        CHECK_EQ_INT(in_other_process(save("net.tcp", f, false), "4"), 0);
        tc_program_free(f);
        tc_ctx_free(ctx);
        end();
    }
}

TEST(machine_code_that_was_dropped_and_cannot_be_made_is_an_error_that_says_why)
{
    begin();
    tc_ctx *ctx = context("cpu");
    tc_program *f = compile(ctx, ROWS, false);
    drop_machine_code();
    hide_compilers(true);
    CHECK_EQ_INT(tc_program_save(f, in_dir("net.tcp"), NULL), TC_ERR_COMPILER);
    CHECK_HAS(tc_error(f), "was dropped from the disk cache, and it cannot be compiled again: ");
    CHECK_EQ_INT(access(in_dir("net.tcp"), F_OK), -1);
    hide_compilers(false);
    CHECK(run(f, ROWS, 1));
    save("net.tcp", f, false);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST_MAIN
