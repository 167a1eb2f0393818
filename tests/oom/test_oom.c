/* tests/oom/test_oom.c - memory runs out at the n-th request, for every n until nothing fails any
 * more: recording, compiling, running, evaluating, reading, printing and freeing. Each call either
 * works, with the right values, or says TC_ERR_MEMORY; nothing crashes, nothing leaks, and what was
 * there before still works. */
#include "inside.h"

#include "tc_test.h"

#include <unistd.h>

/* Once an allocation failed a call may refuse to work, but only for that reason. */
typedef struct oom_walk {
    tc_ctx *ctx;
    int n_refused;
    const char *step; /* what is under way, for the text of a failed check */
    long at;
} oom_walk;

static const float oom_x[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

/* True: the step worked. */
static bool oom_worked(oom_walk *w, const char *step, tc_status status)
{
    w->step = step;
    CHECK_MSG(status == TC_OK || status == TC_ERR_MEMORY, "request %ld, %s: status %d (%s)", w->at,
              step, (int)status, tc_ctx_error(w->ctx));
    w->n_refused += status != TC_OK;
    return status == TC_OK;
}

static void oom_close(const oom_walk *w, float got, float expected)
{
    CHECK_MSG(fabsf(got - expected) <= 1e-5f * fabsf(expected), "request %ld, %s: %g, expected %g",
              w->at, w->step, (double)got, (double)expected);
}

/* ---- the walk ---- */

static void oom_record(oom_walk *w)
{
    tc_tensor x = tc_copy_in(w->ctx, oom_x, TC_F32, 3, 4), t = x;
    for (int i = 0; i < 20; i++) { /* ranks beyond a builder's own memory, at last */
        t = tc_unsqueeze(t, 0);
    }
    t = tc_permute(tc_flip(t, -1), 21, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17,
                   18, 19, 20);
    float out[12];
    if (oom_worked(w, "high rank", tc_read(t, out, 12))) {
        oom_close(w, out[0], 4);
        oom_close(w, out[11], 9);
    }
    tc_tensor threes = tc_expand(tc_full(w->ctx, 3, TC_F32, 4), 2, 4);
    tc_tensor parts = tc_cat(TC_TENSORS(x, tc_pad(x, 0, 1, 0, 7), threes), 0);
    tc_tensor product = tc_einsum("ij,kj->ik", TC_TENSORS(x, x));
    oom_worked(w, "cat", tc_status_of(parts));
    oom_worked(w, "einsum", tc_status_of(product));
    tc_tensor wrong = tc_add(x, tc_full(w->ctx, 1, TC_F32, 5));
    tc_status why = tc_status_of(wrong);
    CHECK_MSG(why == TC_ERR_SHAPE || why == TC_ERR_MEMORY, "request %ld: status %d", w->at,
              (int)why);
}

/* An expression as text: lists, keywords, subscripts, a method and an operator. */
static void oom_expression(oom_walk *w)
{
    tc_tensor x = tc_copy_in(w->ctx, oom_x, TC_F32, 3, 4);
    tc_attr names[] = {TC_ATTR("x", x), TC_ATTR_LIST("axes", 0, 1), TC_ATTR_TEXT("how", "sum")};
    tc_tensor y = tc_expr(w->ctx,
                          "cat([x[:, 1:], x[::-1, :3]], axis=0).reshape(6, -1).T * 2 + "
                          "sum(x, axes) * mse_loss(x, x, how)",
                          TC_ATTRS_N(names, 3));
    float out[18];
    if (oom_worked(w, "tc_expr", tc_status_of(y)) &&
        oom_worked(w, "expression", tc_read(y, out, 18))) {
        oom_close(w, out[0], 4);
        oom_close(w, out[17], 6);
    }
}

static tc_status oom_step(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                          tc_tensor *y)
{
    const tc_tensor *held = user;
    next[0] = tc_add(tc_mul(c[0], *held), x[0]);
    y[0] = tc_sum(next[0], TC_ALL, false);
    return TC_OK;
}

/* Two steps: 1 2 3 4, then twice that and 5 6 7 8. */
static void oom_repeat(oom_walk *w)
{
    tc_tensor x = tc_slice(tc_copy_in(w->ctx, oom_x, TC_F32, 3, 4), 0, 0, 2, 1);
    tc_tensor zero = tc_full(w->ctx, 0, TC_F32, 4), two = tc_full(w->ctx, 2, TC_F32), last, y;
    tc_status status = tc_scan(TC_TENSORS(zero), TC_TENSORS(x), 0, false, oom_step, &two, &last, &y,
                               1);
    float out[4];
    if (oom_worked(w, "repeat", status) && oom_worked(w, "last", tc_read(last, out, 4))) {
        oom_close(w, out[3], 16);
    }
    if (!status && oom_worked(w, "rows", tc_read(y, out, 2))) {
        oom_close(w, out[1], 46);
    }
}

static void oom_compile_and_run(oom_walk *w)
{
    tc_tensor a = tc_input(w->ctx, "a", TC_F32, 3, 4), b = tc_input(w->ctx, "b", TC_F32, 4);
    tc_tensor sum = tc_add(tc_mul(a, b), 0.25), rows = tc_sum(sum, TC_AXES(-1), false);
    tc_tensor soft = tc_softmax(tc_layer_norm(sum, TC_AXES(-1), b, TC_NONE, 1e-5), 1);
    tc_tensor dot = tc_matmul(soft, tc_transpose(soft, 0, 1));
    tc_program *f, *g = NULL;
    tc_call *call = NULL;
    float out[3], square[9];
    tc_bufs in = TC_BUFS(TC_BUF(oom_x, 12), TC_BUF(oom_x, 4));
    tc_status status = tc_compile_fn(TC_TENSORS(a, b), TC_TENSORS(rows, dot), NULL, &f);
    if (!oom_worked(w, "tc_compile_fn", status)) {
        CHECK(!f);
        return;
    }
    tc_bufs to = TC_BUFS(TC_BUF(out, 3), TC_BUF(square, 9));
    if (oom_worked(w, "tc_run", tc_run(f, in, to))) {
        oom_close(w, out[0], 31);
        oom_close(w, out[2], 111);
    }
    tc_job jobs[2] = {{{&b, 1}, {&b, 0}, &g, TC_OK}, {{&a, 1}, {&a, 1}, NULL, TC_OK}};
    tc_tensor twice = tc_mul(b, 2);
    jobs[0].outputs = TC_TENSORS(twice);
    if (oom_worked(w, "tc_compile_many", tc_compile_many(jobs, 1, NULL))) {
        if (oom_worked(w, "tc_call_make", tc_call_make(g, &call))) {
            float four[4];
            tc_status ran = tc_run_call(call, TC_BUFS(TC_BUF(oom_x, 4)), TC_BUFS(TC_BUF(four, 4)));
            if (oom_worked(w, "tc_run_call", ran)) {
                oom_close(w, four[3], 8);
            }
        }
    } else {
        CHECK(!g);
    }
    /* Without a workspace nothing is checked. */
    status = tc_run(f, TC_BUFS(), to);
    CHECK(status == TC_ERR_BUFFER || status == TC_ERR_MEMORY);
    tc_call_free(call);
    tc_program_free(g);
    tc_program_free(f);
}

static void oom_evaluate(oom_walk *w)
{
    float borrowed[4] = {1, 2, 3, 4}, out[4];
    tc_tensor x = tc_borrow(w->ctx, borrowed, TC_F32, 4), mean = tc_mul(x, 1);
    for (int i = 0; i < 4; i++) {
        if (!oom_worked(w, "tc_scope_begin", tc_scope_begin(w->ctx))) {
            return;
        }
        mean = tc_keep(tc_mul(tc_add(mean, x), 0.5));
        CHECK_EQ_INT(tc_scope_end(w->ctx), TC_OK);
    }
    if (oom_worked(w, "kept", tc_read(mean, out, 4))) {
        oom_close(w, out[3], 4);
    }
    tc_tensor reversed = tc_flip(x, 0);
    if (oom_worked(w, "tc_read", tc_read(reversed, out, 4))) {
        oom_close(w, out[0], 4);
        borrowed[3] = 9;
        if (oom_worked(w, "tc_touch", tc_touch(x)) &&
            oom_worked(w, "tc_read again", tc_read(reversed, out, 4))) {
            oom_close(w, out[0], 9);
        }
    }
    FILE *null = fopen("/dev/null", "w");
    tc_tensor index = tc_arange(w->ctx, 0, 3, 1, TC_I64);
    tc_tensor rows[2] = {tc_cumsum(x, 0), tc_index_select(x, 0, index)};
    tc_tensors list = {rows, 2};
    if (oom_worked(w, "tc_eval_many", tc_eval_many(list)) && null) {
        oom_worked(w, "tc_print", tc_print(null, rows[0]));
    }
    if (null) {
        fclose(null);
    }
}

static void oom_square(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)user;
    y[0] = tc_square(x[0]);
}

static void oom_train(oom_walk *w)
{
    tc_tensor p = tc_param(w->ctx, oom_x, TC_F32, 4), g = p;
    tc_tensor loss = tc_sum(tc_mul(p, p), TC_ALL, false);
    float out[4];
    if (!oom_worked(w, "tc_grad", tc_grad(loss, &p, 1, &g))) {
        return;
    }
    if (oom_worked(w, "gradient", tc_read(g, out, 4))) {
        oom_close(w, out[3], 8);
    }
    tc_tensor t, many;
    if (oom_worked(w, "tc_jvp", tc_jvp(TC_TENSORS(g), TC_TENSORS(p), TC_TENSORS(p), &t)) &&
        oom_worked(w, "tangent", tc_read(t, out, 4))) {
        oom_close(w, out[3], 8);
    }
    tc_tensor rows = tc_reshape(p, 2, 2);
    tc_status mapped = tc_vmap(oom_square, NULL, TC_TENSORS(rows), NULL, &many, NULL, 1);
    if (oom_worked(w, "tc_vmap", mapped) && oom_worked(w, "examples", tc_read(many, out, 4))) {
        oom_close(w, out[3], 16);
    }
    oom_worked(w, "tc_gradcheck", tc_gradcheck(loss, TC_TENSORS(p), NULL, NULL));
    tc_tensor named = tc_named(tc_param(w->ctx, oom_x, TC_F32, 4), "p"), effects[TC_EFFECTS(1)];
    int n = 0;
    oom_worked(w, "tc_adamw", tc_adamw(&named, &p, 1, 0.1, NULL, effects, &n));
    bool stepped = oom_worked(w, "tc_assign", tc_eval(tc_assign(p, tc_sub(p, tc_mul(g, 0.25)))));
    if (oom_worked(w, "parameter", tc_read(p, out, 4))) {
        oom_close(w, out[3], stepped ? 2 : 4);
    }
}

/* Files: what cannot be read or written leaves no trace. */
static void oom_files(oom_walk *w)
{
    static const char *const names[] = {"f32", "sum"};
    char path[64];
    tc_file *file;
    tc_dlpack *dl;
    float out[24];
    snprintf(path, sizeof(path), "/tmp/tc-oom-%ld.safetensors", (long)getpid());
    tc_tensor p = tc_named(tc_param(w->ctx, oom_x, TC_F32, 12), "p");
    bool named = oom_worked(w, "tc_named", tc_status_of(p));
    if (oom_worked(w, "tc_file_open", tc_file_open(w->ctx, "tests/data/io/numpy.npz", &file))) {
        tc_tensor a = tc_file_borrow(w->ctx, file, "fortran"), b = tc_add(a, 1);
        tc_file_close(file);
        if (oom_worked(w, "tc_file_borrow", tc_read(b, out, 24))) {
            oom_close(w, out[0], 0.25f);
        }
        tc_status wrote = tc_file_write(w->ctx, path, names, TC_TENSORS(a, b), NULL);
        if (oom_worked(w, "tc_file_write", wrote)) {
            tc_status opened = tc_file_open(w->ctx, path, &file);
            if (oom_worked(w, "tc_file_open again", opened)) {
                tc_tensor c = tc_file_borrow(w->ctx, file, "sum");
                tc_file_close(file);
                oom_worked(w, "borrowed", tc_status_of(c));
            }
        }
    } else {
        CHECK(!file);
    }
    tc_status deflated = tc_file_open(w->ctx, "tests/data/io/deflated.npz", &file);
    if (oom_worked(w, "tc_file_open of a deflated file", deflated)) {
        tc_tensor a = tc_file_copy_in(w->ctx, file, "fortran");
        tc_file_close(file);
        if (oom_worked(w, "tc_file_copy_in of a deflated array", tc_read(tc_add(a, 1), out, 24))) {
            oom_close(w, out[0], 0.25f);
        }
    }
    if (named && oom_worked(w, "tc_save", tc_save(w->ctx, path))) {
        static const float zeros[12] = {0};
        oom_worked(w, "tc_param_write", tc_param_write(p, zeros, 12));
        bool loaded = oom_worked(w, "tc_load", tc_load(w->ctx, path));
        if (loaded && oom_worked(w, "loaded", tc_read(p, out, 12))) {
            oom_close(w, out[11], 12);
        }
    }
    if (oom_worked(w, "tc_to_dlpack", tc_to_dlpack(p, &dl))) {
        tc_tensor t = tc_from_dlpack(w->ctx, dl);
        if (!oom_worked(w, "tc_from_dlpack", tc_status_of(t))) {
            dl->deleter(dl);
        }
    }
    unlink(path);
}

/* One life of a context; returns whether some call was refused. */
static bool oom_walk_once(const tc_options *o, long at)
{
    oom_walk w = {.at = at};
    if (oom_worked(&w, "tc_ctx_make", tc_ctx_make(&w.ctx, o))) {
        oom_record(&w);
        oom_expression(&w);
        oom_repeat(&w);
        oom_compile_and_run(&w);
        oom_evaluate(&w);
        oom_files(&w); /* first: the parameters of the other have no names */
        oom_train(&w);
    } else {
        CHECK(!w.ctx);
    }
    tc_ctx_free(w.ctx);
    return w.n_refused > 0;
}

/* ---- the n-th request fails ---- */

static void oom_arm(long at, bool sticky)
{
    tci_test_alloc_count = 0;
    tci_test_alloc_sticky = sticky;
    tci_test_alloc_fail_at = at;
}

/* A program of before; it works after every failure. */
typedef struct oom_before {
    tc_ctx *ctx;
    tc_program *f;
} oom_before;

static oom_before oom_prepare(const tc_options *o)
{
    oom_before b = {NULL, NULL};
    if (tc_ctx_make(&b.ctx, o)) {
        return b;
    }
    tc_tensor x = tc_input(b.ctx, "x", TC_F32, 4);
    tc_compile(tc_add(tc_exp(x), 1), &b.f);
    return b;
}

static void oom_check_before(const oom_before *b, long at)
{
    float zero[4] = {0, 0, 0, 0}, out[4];
    tc_status status = tc_run(b->f, TC_BUFS(TC_BUF(zero, 4)), TC_BUFS(TC_BUF(out, 4)));
    CHECK_MSG(status == TC_OK && out[3] == 2, "request %ld: the earlier program fails", at);
}

/* Memory fails somewhere in an export: it is refused, no file is there, and no block is left. */
TEST(exports)
{
#ifdef TCI_HAS_CPU
    char code[64], header[64], weights[64];
    tc_options o = {.backend = "cpu", .no_disk_cache = true};
    tc_ctx *ctx;
    snprintf(code, sizeof(code), "/tmp/oom_export_%ld.c", (long)getpid());
    snprintf(header, sizeof(header), "/tmp/oom_export_%ld.h", (long)getpid());
    snprintf(weights, sizeof(weights), "/tmp/oom_export_%ld.bin", (long)getpid());
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), w = tc_borrow(ctx, oom_x, TC_F32, 4, 3);
    tc_tensor p = tc_param_from(tc_full(ctx, 1, TC_F32, 3, 3)), y = tc_matmul(x, w);
    tc_tensors ins = TC_TENSORS(x), outs = TC_TENSORS(y, tc_assign(p, tc_add(p, y)));
    tc_export how = {.header = true, .weights = true};
    tc_status status = tc_export_c_as(ins, outs, NULL, &how, code);
    CHECK_MSG(!status, "%s", tc_error(y));
    tci_cache_trim();
    long live = tci_test_alloc_live;
    int n_refused = 0;
    bool over = false;
    for (long at = 1; !over && tct_failures < 10; at += 1 + at / 40) {
        CHECK_EQ_INT(unlink(code), status ? -1 : 0);
        tci_test_alloc_count = 0;
        tci_test_alloc_sticky = at % 2 == 0;
        tci_test_alloc_fail_at = at;
        status = tc_export_c_as(ins, outs, NULL, &how, code);
        over = tci_test_alloc_count < at;
        tci_test_alloc_fail_at = 0;
        n_refused += status != TC_OK;
        tci_cache_trim();
        CHECK_MSG(tci_test_alloc_live <= live + 2, "request %ld: %ld blocks are left, expected %ld",
                  at, (long)tci_test_alloc_live, live);
        CHECK(!over || status == TC_OK);
    }
    CHECK_MSG(n_refused >= 10, "%d exports were refused", n_refused);
    unlink(code);
    unlink(header);
    unlink(weights);
    tc_ctx_free(ctx);
#else
    SKIP("no backend that compiles");
#endif
}

static void oom_free_before(oom_before *b)
{
    tc_program_free(b->f);
    tc_ctx_free(b->ctx);
}

/* Memory fails at request first, first + step, ... until a walk needs fewer requests. */
static void oom_try_all(const tc_options *o, bool sticky, long first, long step)
{
    oom_before before = oom_prepare(o);
    REQUIRE(before.f != NULL);
    oom_check_before(&before, 0); /* it has its workspace now */
    oom_arm(0, false);
    for (int i = 0; i < 40; i++) { /* freed contexts wait before their memory is used again */
        tc_ctx *ctx;
        REQUIRE(tc_ctx_make(&ctx, o) == TC_OK);
        tc_ctx_free(ctx);
    }
    CHECK(!oom_walk_once(o, 0)); /* fills the disk cache, and what lasts as long as the process */
    tci_cache_trim();
    tci_recompile_forget();
    long live = tci_test_alloc_live, at = first;
    bool over = false;
    for (; !over && tct_failures < 10; at += step) {
        oom_arm(at, sticky);
        bool refused = oom_walk_once(o, at);
        over = tci_test_alloc_count < at;
        oom_arm(0, false);
        CHECK_MSG(!refused || !over, "request %ld: refused without a failed allocation", at);
        oom_check_before(&before, at);
        tci_cache_trim(); /* programs come from disk or the pipeline, not from memory */
        tci_recompile_forget();
        CHECK_MSG(tci_test_alloc_live <= live, "request %ld: %ld blocks are left, expected %ld", at,
                  (long)tci_test_alloc_live, live);
    }
    CHECK_MSG(at > 100, "only %ld requests were tried", at);
    oom_arm(0, false);
    CHECK(!oom_walk_once(o, at));
    oom_free_before(&before);
    tc_shutdown();
}

/* A saved program, loaded and saved again; and a cache, exported. dir: a private folder. */
static void oom_saved(const tc_options *o, const char *dir)
{
    char path[96], again[96], out[96];
    float x[4] = {1, 2, 3, 4}, y[3];
    tc_ctx *ctx;
    tc_program *f, *g;
    REQUIRE(tc_ctx_make(&ctx, o) == TC_OK);
    snprintf(path, sizeof(path), "%s/a.tcp", dir);
    snprintf(again, sizeof(again), "%s/b.tcp", dir);
    snprintf(out, sizeof(out), "%s/out", dir);
    tc_tensor w = tc_named(tc_param(ctx, oom_x, TC_F32, 3, 4), "w");
    tc_tensor in = tc_input(ctx, "x", TC_F32, 4);
    REQUIRE(tc_compile(tc_matmul(w, in), &f) == TC_OK);
    REQUIRE(tc_program_save(f, path, NULL) == TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown();
    REQUIRE(tc_ctx_make(&ctx, o) == TC_OK); /* before the count, as others are */
    long live = tci_test_alloc_live;
    bool over = false;
    for (long at = 1; !over && at < 5000; at++) {
        tci_test_alloc_count = 0;
        tci_test_alloc_sticky = at % 2 == 0;
        tci_test_alloc_fail_at = at;
        tc_scope_begin(ctx);
        tc_status loaded = tc_program_load(ctx, path, NULL, &f), saved = TC_OK, ran = TC_OK;
        if (!loaded) {
            ran = tc_run(f, TC_BUFS(TC_BUF(x, 4)), TC_BUFS(TC_BUF(y, 3)));
            saved = tc_program_save(f, again, NULL);
        }
        tc_status exported = o->no_disk_cache ? TC_OK : tc_cache_export(ctx, out);
        over = tci_test_alloc_count < at;
        tci_test_alloc_fail_at = 0;
        CHECK_MSG(!over || (!loaded && !ran && !saved && !exported), "%d %d %d %d: %s", loaded, ran,
                  saved, exported, tc_ctx_error(ctx));
        CHECK_MSG(!loaded || loaded == TC_ERR_MEMORY || loaded == TC_ERR_BACKEND,
                  "request %ld: %d (%s)", at, loaded, tc_ctx_error(ctx));
        CHECK(loaded || ran || (y[0] == 30 && y[1] == 70 && y[2] == 110));
        tc_program_free(f);
        CHECK(!tc_program_load(ctx, path, NULL, &g)); /* nothing was spoiled */
        tc_program_free(g);
        tc_scope_end(ctx);
        /* the memory cache has the code */
        CHECK_MSG(tci_test_alloc_live <= live + 40, "request %ld: %ld blocks, at first %ld", at,
                  (long)tci_test_alloc_live, live);
    }
    CHECK(over);
    tc_ctx_free(ctx);
    tc_shutdown();
}

TEST(saved_programs)
{
    char dir[] = "/tmp/tc-oom-XXXXXX", command[64];
    REQUIRE(mkdtemp(dir) != NULL);
    tc_options interp = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    tc_options cpu = {.backend = "cpu", .cache_dir = dir, .threads = 1};
    oom_saved(&interp, dir);
    oom_saved(&cpu, dir);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    CHECK_EQ_INT(system(command), 0);
}

TEST(interpreter)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    oom_try_all(&o, false, 1, 1);
}

TEST(interpreter_where_memory_stays_gone)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    oom_try_all(&o, true, 1, 1);
}

TEST(interpreter_with_workers)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 3};
    oom_try_all(&o, false, 1, 3);
}

/* A context's own allocator is counted and fails like the heap. */
static long oom_user_live;

static void *oom_user_resize(void *user, void *p, size_t old_bytes, size_t new_bytes)
{
    CHECK(user == &oom_user_live && (p != NULL) == (old_bytes != 0));
    oom_user_live += (new_bytes != 0) - (old_bytes != 0);
    if (!new_bytes) {
        free(p);
        return NULL;
    }
    return realloc(p, new_bytes);
}

TEST(allocator_of_the_context)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    o.allocator.resize = oom_user_resize;
    o.allocator.user = &oom_user_live;
    oom_try_all(&o, false, 1, 1);
    CHECK_EQ_INT(oom_user_live, 0);
}

/* Native code from a warm disk cache. There is no compiler then, so none is started where memory
 * runs out while an entry is loaded. */
TEST(cpu_from_disk)
{
    char dir[] = "/tmp/tc-oom-XXXXXX", command[64];
    REQUIRE(mkdtemp(dir) != NULL);
    tc_options o = {.backend = "cpu", .cache_dir = dir, .threads = 1};
    tc_stats warm = {0}, after = {0};
    CHECK(!oom_walk_once(&o, 0));
    oom_before counted = oom_prepare(&o);
    tc_stats(counted.ctx, &warm);
    char *path = strdup(getenv("PATH") ? getenv("PATH") : "/bin:/usr/bin");
    setenv("PATH", "/nonexistent", 1);
    oom_try_all(&o, false, 1, 1);
    oom_try_all(&o, true, 1, 7);
    setenv("PATH", path, 1);
    free(path);
    tc_stats(counted.ctx, &after);
    CHECK_EQ_INT(after.compiler_runs, warm.compiler_runs);
    CHECK_EQ_INT(after.cache_rejects, warm.cache_rejects); /* no good entry is taken for damaged */
    CHECK(after.disk_hits > warm.disk_hits + 100);
    oom_free_before(&counted);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    CHECK_EQ_INT(system(command), 0);
}

/* Around a run of the compiler; one request only, as each walk starts it several times. */
TEST(cpu_without_a_cache)
{
    tc_options o = {.backend = "cpu", .no_disk_cache = true, .threads = 1};
    oom_try_all(&o, false, 100, 1000);
}

TEST_MAIN
