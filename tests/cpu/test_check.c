/* tests/cpu/test_check.c - options.check finds the kernel that computes something else, makes a NaN
 * or crashes, and writes a program of a few nodes that fails as well. Compilers that miscompile are
 * scripts that change the generated code. Needs a compiler. */
#include "inside.h"

#include "broken_backend.h"
#include "cache.h"

#include <math.h>
#include <sys/stat.h>

enum { LENGTH = 100 };

/* A compiler that edits kernels by a sed script before it compiles them. */
static const char *compiler(const char *sed)
{
    static char path[600];
    snprintf(path, sizeof(path), "%s", in_dir("badcc"));
    FILE *f = fopen(path, "w");
    REQUIRE(f != NULL);
    fprintf(f,
            "#!/bin/sh\nfor a in \"$@\"; do case \"$a\" in *.c)\n"
            "sed -i '/^void tc_k_/,$ { %s\n}' \"$a\";; esac; done\nexec %s \"$@\"\n",
            sed, getenv("TC_TEST_CC") ? getenv("TC_TEST_CC") : "cc");
    fclose(f);
    chmod(path, 0700);
    return path;
}

/* Ops of several kinds, in a few kernels. */
static tc_tensor network(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, LENGTH);
    tc_region_begin(ctx, "body");
    tc_tensor a = tc_sin(x), b = tc_cos(x);
    tc_tensor c = tc_add(tc_mul(a, b), tc_div(x, 3)), d = tc_sqrt(tc_abs(c));
    tc_tensor e = tc_sub(tc_exp(d), tc_mul(x, x));
    tc_tensor f = tc_where(tc_lt(x, 0.5), tc_tanh(e), tc_maximum(e, a));
    tc_region_end(ctx);
    return tc_add(tc_sub(f, tc_max(f, TC_AXES(0), true)), tc_lgamma(tc_add(tc_abs(x), 1)));
}

/* Kernels whose ops are written as other calls than those of their names. */
static tc_tensor scatter_network(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, LENGTH);
    tc_tensor index = tc_remainder(tc_arange(ctx, 0, LENGTH, 1, TC_I64), 7);
    return tc_mul(tc_scatter_add(tc_zeros(ctx, TC_F32, 7), 0, index, tc_sin(x)), 3);
}

static tc_tensor sort_network(tc_ctx *ctx)
{
    tc_tensor values;
    tc_sort(tc_sin(tc_input(ctx, "x", TC_F32, LENGTH)), 0, false, &values, NULL);
    return tc_add(values, 1);
}

static tc_tensor norm_network(tc_ctx *ctx)
{
    tc_tensor x = tc_reshape(tc_input(ctx, "x", TC_F32, LENGTH), 5, LENGTH / 5);
    tc_tensor spread = tc_var(tc_exp(x), TC_AXES(1), 1, true);
    tc_tensor windows = tc_sum(tc_unfold(x, 1, 3, 1), TC_AXES(-1), false);
    return tc_add(tc_layer_norm(tc_slice(tc_add(x, spread), 1, 2, TC_END, 1), TC_AXES(1), TC_NONE,
                                TC_NONE, 1e-5),
                  windows);
}

/* What tc_run says of the network by that compiler and backend; "" where it is right. */
static const char *backend = "cpu";
static tc_tensor (*made)(tc_ctx *ctx) = network;
static const char *checked(const char *cc, int check, const char *dump_dir, tc_status *status)
{
    static char text[2000];
    float in[LENGTH], out[LENGTH];
    tc_ctx *ctx;
    tc_program *f;
    tc_options o = {.backend = backend,
                    .threads = 1,
                    .no_disk_cache = true,
                    .cc = cc,
                    .check = check,
                    .name = "net",
                    .fallback = TC_FALLBACK_REFUSE};
    for (int i = 0; i < LENGTH; i++) {
        in[i] = 0.02f * (float)i - 0.7f;
    }
    setenv("TC_DUMP_DIR", dump_dir, 1);
    tc_shutdown(); /* no kernel of another compiler stays in memory */
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor y = made(ctx);
    *status = tc_compile(y, &f);
    snprintf(text, sizeof(text), "%s", *status ? tc_error(y) : "");
    if (f) {
        *status = tc_run(f, TC_BUFS(TC_BUF(in, LENGTH)), TC_BUFS(TC_BUF(out, tc_count(y))));
        snprintf(text, sizeof(text), "%s", tc_error(f));
    }
    unsetenv("TC_DUMP_DIR");
    tc_program_free(f);
    tc_ctx_free(ctx);
    return text;
}

/* ---- NaN and infinity ---- */

static tc_ctx *interpreted(int check)
{
    tc_ctx *ctx;
    tc_options o = {.backend = "interp",
                    .threads = 1,
                    .no_disk_cache = true,
                    .check = check | TC_CHECK_NO_FILE};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

/* Wherever in an array of any float dtype it is, also behind the last whole word of eight bytes. */
TEST(each_nan_and_infinity_made_of_finite_numbers_is_found)
{
    enum { MOST = 9 };
    static const tc_dtype dtypes[] = {TC_F32, TC_F64, TC_BF16, TC_F16};
    tc_ctx *ctx = interpreted(TC_CHECK_NAN | TC_CHECK_INF);
    for (int n = 1; n <= MOST; n += 4) {
        for (size_t d = 0; d < sizeof(dtypes) / sizeof(*dtypes); d++) {
            tc_program *f;
            float x[MOST] = {0}, y[MOST];
            char want[64];
            tc_tensor wide = tc_input(ctx, "x", TC_F32, n), small = tc_cast(wide, dtypes[d]);
            tc_tensor made = tc_div(tc_sub(small, 1), small); /* of 0: infinite */
            REQUIRE(tc_compile(tc_cast(tc_materialize(made), TC_F32), &f) == TC_OK);
            tc_bufs in = TC_BUFS(TC_BUF(x, n)), out = TC_BUFS(TC_BUF(y, n));
            for (int i = 0; i < n; i++) {
                x[i] = (float)i + 1;
            }
            CHECK_MSG(tc_run(f, in, out) == TC_OK, "%s", tc_error(f));
            for (int i = 0; i < n; i++) {
                x[i] = 0;
                snprintf(want, sizeof(want), "element %d of the result of tc_div at", i);
                CHECK_EQ_INT(tc_run(f, in, out), TC_ERR_CHECK);
                CHECK_HAS(tc_error(f), want);
                CHECK_HAS(tc_error(f), "inf, made of finite numbers");
                x[i] = NAN; /* had been there */
                CHECK_MSG(tc_run(f, in, out) == TC_OK, "%s", tc_error(f));
                x[i] = INFINITY; /* makes a NaN that was not */
                CHECK_EQ_INT(tc_run(f, in, out), TC_ERR_CHECK);
                CHECK_HAS(tc_error(f), want);
                CHECK_HAS(tc_error(f), "is nan, made of infinite numbers");
                x[i] = (float)i + 1;
            }
            tc_program_free(f);
        }
    }
    tc_ctx_free(ctx);
}

/* A kernel that overwrites what it reads: what it read is looked at as it was. */
TEST(a_nan_in_place_of_a_finite_number_is_found)
{
    float start[3] = {1, -4, 9};
    tc_ctx *ctx = interpreted(TC_CHECK_NAN);
    tc_program *f;
    tc_tensor p = tc_param_from(tc_copy_in(ctx, start, TC_F32, 3));
    tc_tensor step = tc_assign(p, tc_sqrt(p));
    REQUIRE(tc_compile_fn(((tc_tensors){0}), TC_TENSORS(step), NULL, &f) == TC_OK);
    CHECK_EQ_INT(tc_run(f, ((tc_bufs){0}), ((tc_bufs){0})), TC_ERR_CHECK);
    CHECK_HAS(tc_error(f), "element 1 of the result of tc_sqrt at test_check.c:");
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static tc_status decay(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    (void)user;
    y[0] = tc_add(c[0], x[0]);
    next[0] = tc_mul(tc_flip(y[0], 0), 0.5);
    return TC_OK;
}

/* options.verify accepts a kernel that is native and has the interpreter's to compare with. */
TEST(checked_loops_are_right_and_verified)
{
    begin();
    float x[LENGTH], y[LENGTH][2], c[2] = {1, -3};
    tc_options o = {.backend = "cpu",
                    .threads = 1,
                    .no_disk_cache = true,
                    .verify = true,
                    .check = TC_CHECK_BITS | TC_CHECK_NAN | TC_CHECK_NO_FILE,
                    .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor xs = tc_input(ctx, "x", TC_F32, LENGTH), out;
    tc_tensor first = tc_copy_in(ctx, c, TC_F32, 2);
    CHECK(!tc_scan(TC_TENSORS(first), TC_TENSORS(xs), 0, false, decay, NULL, NULL, &out, 1));
    CHECK_MSG(!tc_compile(out, &f), "%s", tc_error(out));
    REQUIRE(f);
    for (int i = 0; i < LENGTH; i++) {
        x[i] = (float)(i % 7) - 2;
    }
    CHECK_MSG(!tc_run(f, TC_BUFS(TC_BUF(x, LENGTH)), TC_BUFS(TC_BUF(y[0], 2 * LENGTH))), "%s",
              tc_error(f));
    for (int i = 0; i < LENGTH; i++) {
        const float want[2] = {c[0] + x[i], c[1] + x[i]};
        CHECK(!memcmp(y[i], want, sizeof(want)));
        c[0] = want[1] / 2;
        c[1] = want[0] / 2;
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(right_kernels_pass_every_check)
{
    begin();
    tc_status status;
    const char *text = checked(NULL, TC_CHECK_ALL, in_dir("."), &status);
    CHECK_EQ_INT(status, TC_OK);
    CHECK_STR(text, "");
    end();
}

static const struct fault {
    const char *what, *sed;
    int check;
    const char *says;
    tc_tensor (*network)(tc_ctx *ctx); /* NULL: the usual one */
} faults[] = {
    /* these six are wrong for each element by itself */
    {"cosine is sine", "s/tc_cos_f32/tc_sin_f32/", TC_CHECK_BITS, "the interpreter's is"},
    {"sum is difference", "s/tc_add_f32/tc_sub_f32/", TC_CHECK_BITS, "the interpreter's is"},
    {"product is sum", "s/tc_mul_f32/tc_add_f32/", TC_CHECK_BITS, "the interpreter's is"},
    {"quotient is product", "s/tc_div_f32/tc_mul_f32/", TC_CHECK_BITS, "the interpreter's is"},
    {"exponential is absolute", "s/tc_exp_f32/tc_abs_f32/", TC_CHECK_BITS, "interpreter's is"},
    {"gamma is sine", "s/tc_lgamma_f32/tc_sin_f32/", TC_CHECK_BITS, "the interpreter's is"},
    {"a choice is turned",
     "s/tc_lt_f32\\([x0-9]*\\)(\\([^,]*\\), \\([^)]*\\))/tc_lt_f32\\1(\\3, \\2)/", TC_CHECK_BITS,
     "the interpreter's is"},
    {"loads are one element off", "s/(p0 + \\([^)]*\\))/(p0 + 1 + \\1)/", TC_CHECK_BITS,
     "the interpreter's is"},
    {"the last element is not stored",
     "s/tc_store_n\\(.*\\), \\([0-9]*\\))/tc_store_n\\1, \\2 - 1)/", TC_CHECK_BITS,
     "the interpreter's is"},
    {"a root of negative numbers",
     "s/tc_sqrt_f32\\([x0-9]*\\)(\\([^)]*\\))/tc_sqrt_f32\\1(tc_sub_f32\\1(\\2, "
     "tc_add_f32\\1(\\2, \\2)))/",
     TC_CHECK_NAN, "nan, made of finite numbers"},
    {"a kernel crashes", "s/^\\(.*= tc_sqrt_f32\\)/*(volatile int *)8 = 1; \\1/", TC_CHECK_CRASH,
     "signal 11"},
    {"a kernel calls what is not there", "s/= tc_tanh_f32/= tc_not_there_f32/", TC_CHECK_BITS,
     "the compiler is missing or failed"},
    {"additions at indices are products", "s/tc_add_f32(/tc_mul_f32(/", TC_CHECK_BITS,
     "the interpreter's is", scatter_network},
    {"places in an order are off by a bit", "s/tc_load_i64(\\(.*\\))/(tc_load_i64(\\1) ^ 1)/",
     TC_CHECK_BITS, "the interpreter's is", sort_network},
    {"products in norms are sums", "s/tc_mul_f32\\([x0-9]*\\)(/tc_add_f32\\1(/", TC_CHECK_BITS,
     "the interpreter's is", norm_network},
};

enum { BY_ELEMENT = 6 };

static const char *cc(void)
{
    const char *given = getenv("TC_TEST_CC");
    return given ? given : "cc";
}

static int shell(const char *command, char *said, size_t room)
{
    FILE *p = popen(command, "r");
    REQUIRE(p != NULL);
    size_t n = fread(said, 1, room - 1, p);
    said[n] = 0;
    int ended = pclose(p);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

static char library[1200], include[1000];

/* One object of the library, for all that is written, with the backend of broken_backend.h. */
static void build_library(void)
{
    char here[600], command[3000], said[2000];
    const char *form = getenv("TC_TEST_INCLUDE");
    REQUIRE(getcwd(here, sizeof(here)) != NULL);
    snprintf(include, sizeof(include), "%s/%s", here, form ? form : ".");
    snprintf(library, sizeof(library), "%s", in_dir("library.o"));
    FILE *f = fopen(in_dir("library.c"), "w");
    REQUIRE(f != NULL);
    fprintf(f,
            "#define TC_IMPLEMENTATION\n#include \"tc.h\"\n"
            "#include \"%s/tests/cpu/broken_backend.h\"\n"
            "__attribute__((constructor)) static void begin(void) { broken_register(); }\n",
            here);
    fclose(f);
    snprintf(command, sizeof(command), "%s -w -O0 -I%s -c %s -o %s 2>&1", cc(), include,
             in_dir("library.c"), library);
    CHECK_MSG(shell(command, said, sizeof(said)) == 0, "%s", said);
}

/* The exit code of what was written, built with the compiler of its options or (right) the usual
 * one. */
static int ends(const char *source, bool right, char *said, size_t room)
{
    char command[6000];
    snprintf(command, sizeof(command),
             "cd %s && sed '%s' %s > repro.c && %s -w -DTC_IMPLEMENTED -I%s repro.c %s -lm -ldl "
             "-lpthread -o repro 2>&1 && ./repro",
             in_dir("."), right ? "s/\\.cc = \"[^\"]*\",* *//" : "", source, cc(), include,
             library);
    return shell(command, said, room);
}

/* The text of an error says that a program of a few nodes was written; its path, and in shrunk_to
 * the elements of its largest array. */
static int shrunk_to;
static const char *written(const char *what, const char *text)
{
    static char source[600];
    const char *wrote = strstr(text, "wrote "), *open = wrote ? strchr(wrote, '(') : NULL;
    CHECK_MSG(open != NULL, "%s: %s", what, text);
    int nodes = open ? atoi(open + 1) : 99;
    CHECK_MSG(nodes >= 1 && nodes <= 3, "%s: %s", what, text);
    shrunk_to = open && strchr(open, ',') ? atoi(strchr(open, ',') + 1) : LENGTH;
    source[0] = 0;
    if (open) {
        snprintf(source, sizeof(source), "%.*s", (int)(open - 1 - (wrote + 6)), wrote + 6);
    }
    return source;
}

TEST(injected_faults_shrink_to_a_few_nodes_that_fail)
{
    begin();
    build_library();
    for (int i = 0; i < (int)(sizeof(faults) / sizeof(faults[0])); i++) {
        tc_status status;
        made = faults[i].network ? faults[i].network : network;
        const char *text = checked(compiler(faults[i].sed), faults[i].check, in_dir("."), &status);
        CHECK_MSG(status == TC_ERR_CHECK || status == TC_ERR_COMPILER, "%s: status %d, %s",
                  faults[i].what, status, text);
        CHECK_HAS(text, faults[i].says);
        const char *source = written(faults[i].what, text);
        CHECK_MSG(shrunk_to <= (i < BY_ELEMENT ? 1 : 4), "%s: %s", faults[i].what, text);
        if (*source) {
            char said[2000];
            CHECK_MSG(ends(source, false, said, sizeof(said)) == 1, "%s: %s", faults[i].what, said);
            CHECK_HAS(said, "FAIL: ");
            CHECK_MSG(ends(source, true, said, sizeof(said)) == 0, "%s: %s", faults[i].what, said);
            CHECK_STR(said, "PASS\n");
        }
        if (status == TC_ERR_CHECK) {
            CHECK_HAS(text, "net, kernel ");
            CHECK_HAS(text, "(test_check.c:");
        }
    }
    made = network;
    end();
}

/* Their graph keeps the names of the calls. */
static tc_tensor named_network(tc_ctx *ctx)
{
    tc_tensor x = tc_reshape(tc_input(ctx, "x", TC_F32, LENGTH), 1, 1, LENGTH);
    tc_tensor w = tc_reshape(tc_relu6(tc_slice(x, 2, 0, 3, 1)), 1, 1, 3);
    return tc_mul(tc_conv1d(x, w, TC_NONE, NULL), 3);
}

TEST(a_program_with_named_calls_is_written_and_runs)
{
    begin();
    build_library();
    static tci_scratch s;
    tci_scratch_init(&s);
    REQUIRE(!setjmp(s.escape));
    tc_ctx *ctx = interpreted(0);
    tc_program *f;
    REQUIRE(tc_compile(named_network(ctx), &f) == TC_OK);
    tci_case k;
    tci_case_memory memory = {.literals = f->literals};
    REQUIRE(tci_case_read(&s, f->code->key, f->code->key_bytes, f->key_graph, &memory, &k));
    int named = 0;
    for (int i = 0; i < k.n; i++) {
        named += k.nodes[i].op == TCI_OP_NAMED;
    }
    CHECK_EQ_INT(named, 2);
    tci_str program = {0};
    tc_options o = {.backend = "cpu", .threads = 1, .no_disk_cache = true};
    k = tci_case_cut(&s, &k, k.root, NULL);
    CHECK(tci_repro_text(&program, &k, &o, TC_CHECK_BITS, "named.c", "no fault"));
    FILE *file = fopen(in_dir("named.c"), "w");
    REQUIRE(file != NULL);
    fputs(tci_str_text(&program), file);
    fclose(file);
    char said[2000];
    CHECK_MSG(ends(in_dir("named.c"), true, said, sizeof(said)) == 0, "%s", said);
    CHECK_STR(said, "PASS\n");
    tci_str_free(&program);
    tci_scratch_free(&s);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* A bug of tc itself: the compile of the network meets an invariant that does not hold. */
TEST(an_internal_error_shrinks_to_a_few_nodes_that_fail)
{
    begin();
    char said[2000];
    tc_status status;
    broken_register();
    build_library();
    backend = "broken";
    const char *text = checked(NULL, TC_CHECK_BITS, in_dir("."), &status);
    CHECK_EQ_INT(status, TC_ERR_INTERNAL);
    CHECK_HAS(text, "broken_backend.h:");
    const char *source = written("an internal error", text);
    CHECK(ends(source, false, said, sizeof(said)) == 1);
    CHECK_HAS(said, "FAIL: ");
    CHECK_HAS(said, "broken_backend.h:");
    setenv("BROKEN_IS_MENDED", "1", 1);
    CHECK_MSG(ends(source, false, said, sizeof(said)) == 0, "%s", said);
    CHECK_STR(said, "PASS\n");
    (void)checked(NULL, TC_CHECK_BITS, in_dir("."), &status);
    CHECK_EQ_INT(status, TC_OK);
    unsetenv("BROKEN_IS_MENDED");
    backend = "cpu";
    end();
}

/* ---- matrix units ---- */

/* The "cpu" backend of a processor with AMX, whose instructions plain C stands in for, and whose
 * kernels store a first result that is off by a factor. */
static const tci_code_kernel *unit_of; /* the kernel, and its code */
static tci_kernel_fn unit_real;
static double unit_off;

static tc_status unit_target(void *user, int vector_bits, tc_backend_target *out)
{
    (void)user;
    tc_status status = tci_cpu_backend()->target(NULL, vector_bits, out);
    out->matrix_units = true;
    return status;
}

static tc_status unit_compile(void *user, tc_build *build)
{
    tci_target t;
    const char *why;
    int n = 0;
    (void)user;
    tci_target_detect(&t, 0);
    for (int i = 0; i < t.n_flags; i++) {
        t.flags[n] = t.flags[i];
        n += strncmp(t.flags[i], "-DTC_AMX", 8) != 0;
    }
    t.n_flags = n;
    return tci_cc_build(build, &t, &why);
}

static void unit_kernel(void *const *slots, const int64_t *literals, int64_t *fault, int64_t begin,
                        int64_t end)
{
    unit_real(slots, literals, fault, begin, end);
    for (int o = 0; o < unit_of->n_operands && end == tci_dim_known(unit_of->n_tasks); o++) {
        float *out = unit_of->writes[o] ? slots[o] : NULL;
        if (out) {
            *out = (float)(*out * (1 + unit_off));
        }
    }
}

/* Sums of a matrix unit have an order of their own: results may differ by 2^-9 of the largest. */
TEST(results_of_a_matrix_unit_may_differ_by_its_bound)
{
    enum { M = 64, K = 256, N = 64 };
    tc_backend_target here = {0};
    tci_cpu_backend()->target(NULL, 0, &here);
    if (here.vector_bytes < 64) {
        SKIP("vectors of 512 bits, which stand in for the unit, are not here");
    }
    begin();
    static tc_backend unit;
    static float a[M * K], b[K * N], c[M * N];
    static const struct {
        double off;
        bool passes;
    } rows[] = {{0, true}, {0x1p-12, true}, {-0x1p-10, true}, {0x1p-6, false}, {-0.5, false}};
    tc_ctx *ctx;
    tc_program *f;
    unit = *tci_cpu_backend();
    unit.name = "unit";
    unit.target = unit_target;
    unit.compile = unit_compile;
    REQUIRE(tc_register_backend(&unit) == TC_OK);
    tc_options o = {.backend = "unit",
                    .threads = 1,
                    .no_disk_cache = true,
                    .fallback = TC_FALLBACK_REFUSE,
                    .check = TC_CHECK_BITS | TC_CHECK_NO_FILE};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "a", TC_F32, M, K), w = tc_input(ctx, "b", TC_F32, K, N);
    tc_tensor y = tc_matmul(tc_cast(x, TC_BF16), tc_cast(w, TC_BF16));
    CHECK_MSG(!tc_compile(tc_cast(y, TC_F32), &f), "%s", tc_error(y));
    REQUIRE(f);
    for (int i = 0; i < M * K; i++) { /* the first result is the largest one */
        a[i] = i < K ? 2 : (float)tct_random_unit() - 0.5f;
        b[i] = i % N ? (float)tct_random_unit() - 0.5f : 2;
    }
    for (int s = 0; s < f->code->n_steps; s++) {
        const tci_code_kernel *k = &f->code->kernels[f->code->steps[s].kernel];
        if (k->check->loose) {
            unit_of = k;
            unit_real = k->fn;
            f->steps[s].fn = unit_kernel;
        }
    }
    REQUIRE(unit_of && strstr(unit_of->note, "matrix unit"));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        unit_off = rows[i].off;
        tc_status status = tc_run(f, TC_BUFS(TC_BUF(a, M * K), TC_BUF(b, K * N)),
                                  TC_BUFS(TC_BUF(c, M * N)));
        CHECK_MSG(status == (rows[i].passes ? TC_OK : TC_ERR_CHECK), "off by %g: %s", rows[i].off,
                  tc_error(f));
        if (!rows[i].passes) {
            CHECK_HAS(tc_error(f), "element 0 of the result of tc_");
            CHECK_HAS(tc_error(f), "the interpreter's is 1024");
        } else {
            CHECK_CLOSE(c[0], 1024 * (1 + rows[i].off), 0x1p-9);
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(the_reproduction_goes_where_the_options_say)
{
    begin();
    tc_ctx *ctx;
    tc_program *f;
    float in[3] = {-1, 1, 4}, out[3];
    tc_options o = {.backend = "interp", .threads = 1, .no_disk_cache = true};
    unsetenv("TC_DUMP_DIR");
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3);
    char there[600];
    snprintf(there, sizeof(there), "%s", in_dir("there"));
    o = (tc_options){.check = TC_CHECK_NAN, .dump_dir = there};
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_sqrt(x)), &o, &f) == TC_OK);
    memset(there, 'x', strlen(there)); /* the program has a copy */
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 3)), TC_BUFS(TC_BUF(out, 3))), TC_ERR_CHECK);
    char want[700];
    snprintf(want, sizeof(want), "wrote %s/tc_repro_", in_dir("there"));
    CHECK_HAS(tc_error(f), want);
    CHECK_EQ_INT(access(written("sqrt", tc_error(f)), R_OK), 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST_MAIN
