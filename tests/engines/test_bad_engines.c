/* tests/engines/test_bad_engines.c - libraries in the places of engines that are too old, crash or
 * print while they are loaded, or are none: said by their names, and loaded only when asked for.
 * One library for each engine, since a process loads one of each. */
#include "inside.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include "io.h"
#include "tc_engines.h"
#include "tc_test.h"

/* Makes a shared library of that source in the folder that TC_ENGINES names; false: no compiler. */
static bool plant(const char *name, const char *source)
{
    char command[1200];
    setenv("TC_ENGINES", (io_path("x"), io_dir), 1);
    io_spill(io_path("library.c"), source, strlen(source));
    snprintf(command, sizeof(command), "%s -shared -fPIC %s -o %s 2>/dev/null",
             getenv("TC_TEST_CC") ? getenv("TC_TEST_CC") : "cc", io_path("library.c"),
             io_path(name));
    return system(command) == 0;
}

/* A graph for the backend; what it says of itself where it is compiled by tc instead. */
static tc_status compile(const char *backend, tc_fallback fallback, char text[600])
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    float x[3] = {1, 4, 9}, y[3] = {0};
    REQUIRE(tc_ctx_make(&ctx, &(tc_options){.backend = backend, .fallback = fallback}) == TC_OK);
    tc_tensor t = tc_sqrt(tc_input(ctx, "x", TC_F32, 3));
    tc_status status = tc_compile(t, &f);
    snprintf(text, 600, "%s", status ? tc_error(t) : "");
    if (!status) {
        CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 3)), TC_BUFS(TC_BUF(y, 3))) == TC_OK);
        CHECK(y[0] == 1 && y[1] == 2 && y[2] == 3);
        FILE *out = fmemopen(text, 599, "w");
        CHECK(out && tc_explain(f, out) == TC_OK);
        fclose(out);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return status;
}

/* Refused with the text where only the engine will do, else compiled by tc, which says why. */
static void is_refused(const char *backend, const char *why)
{
    char text[600];
    CHECK_EQ_INT(compile(backend, TC_FALLBACK_REFUSE, text), TC_ERR_BACKEND);
    CHECK_HAS(text, why);
    CHECK_EQ_INT(compile(backend, TC_FALLBACK_ALLOW, text), TC_OK);
    CHECK_HAS(text, why);
}

TEST(an_engine_that_is_too_old_is_refused_by_its_version)
{
    static const char source[] =
        "typedef struct { const void *(*get)(unsigned); const char *(*version)(void); } base;\n"
        "static const void *get(unsigned v) { (void)v; return 0; }\n"
        "static const char *version(void) { return \"1.2.0\"; }\n"
        "static const base b = {get, version};\n"
        "const base *OrtGetApiBase(void) { return &b; }\n";
    if (!plant("libonnxruntime.so.1.2.0", source)) {
        SKIP("no C compiler");
    }
    is_refused("onnxrt", "onnxruntime 1.2.0 is too old: expected 1.18 or later");
    io_clean();
}

TEST(an_engine_that_crashes_while_it_is_loaded_is_refused)
{
    if (!plant("libopenvino_c.so.2500", "#include <stdlib.h>\n__attribute__((constructor)) static "
                                        "void f(void) { *(volatile int *)0 = 1; }\n")) {
        SKIP("no C compiler");
    }
    is_refused("openvino", "crashes while it is loaded (signal 11)");
    io_clean();
}

/* Before 2025.0 its number 4 was f16, of 2 bytes, where it is now f32. */
TEST(an_openvino_that_numbers_dtypes_otherwise_is_refused)
{
    static const char source[] =
        "#include <stddef.h>\n"
        "typedef struct { long rank; long *sizes; } shape;\n"
        "typedef struct { const char *build, *description; } words;\n"
        "static int type;\n"
        "int ov_tensor_create_from_host_ptr(int t, shape s, void *data, void **tensor)\n"
        "{ (void)s, (void)data; type = t; *tensor = &type; return 0; }\n"
        "int ov_tensor_get_byte_size(void *tensor, size_t *n)\n"
        "{ (void)tensor; *n = type == 5 ? 4 : 2; return 0; }\n"
        "int ov_get_openvino_version(words *w)\n"
        "{ w->build = \"2024.6.0-17404-4c0f47d2335\"; return 0; }\n"
        "#define F(name) int name(void) { return 0; }\n"
        "F(ov_core_create) F(ov_core_set_property) F(ov_core_read_model_from_memory_buffer) "
        "F(ov_core_compile_model)\n"
        "F(ov_core_import_model) F(ov_compiled_model_export_model)\n"
        "F(ov_compiled_model_create_infer_request) F(ov_infer_request_set_tensor)\n"
        "F(ov_infer_request_infer) F(ov_compiled_model_input_by_name) F(ov_get_error_info)\n"
        "F(ov_get_last_err_msg) F(ov_model_free) F(ov_compiled_model_free)\n"
        "F(ov_infer_request_free) F(ov_tensor_free) F(ov_output_const_port_free)\n";
    if (!plant("libopenvino_c.so.2460", source)) {
        SKIP("no C compiler");
    }
    is_refused("openvino", "OpenVINO 2024.6.0 is too old: expected 2025.0 or later");
    io_clean();
}

TEST(an_engine_that_lacks_functions_is_refused)
{
    if (!plant("libpjrt_cpu.so", "int nothing;\n")) {
        SKIP("no C compiler");
    }
    is_refused("openxla", "lacks GetPjrtApi: it is too old");
    io_clean();
}

TEST(a_library_is_loaded_only_when_its_name_is_asked_for)
{
    char source[600], text[600], mark[200];
    snprintf(mark, sizeof(mark), "%s", io_path("loaded"));
    snprintf(source, sizeof(source),
             "#include <stdio.h>\n__attribute__((constructor)) static void f(void)\n"
             "{ FILE *f = fopen(\"%s\", \"w\"); fclose(f); puts(\"hello from an engine\"); }\n",
             mark);
    if (!plant("pjrt_c_api_cpu_plugin.so", source)) {
        SKIP("no C compiler");
    }
    for (int i = 0; tc_backend_at(i); i++) {
    }
    CHECK_EQ_INT(compile("interp", TC_FALLBACK_ALLOW, text), TC_OK);
    CHECK(access(mark, F_OK) != 0);
    snprintf(source, sizeof(source), "openxla:%s", io_path("pjrt_c_api_cpu_plugin.so"));
    CHECK_EQ_INT(compile(source, TC_FALLBACK_REFUSE, text), TC_ERR_BACKEND);
    CHECK_HAS(text, "lacks GetPjrtApi");
    CHECK(access(mark, F_OK) == 0);
    io_clean();
}

/* Output of the process while `load` runs. */
static io_bytes printed_by(void (*load)(const char *), const char *path)
{
    fflush(stdout);
    int to = open(io_path("printed"), O_WRONLY | O_CREAT | O_TRUNC, 0600), out = dup(1),
        err = dup(2);
    REQUIRE(to >= 0 && out >= 0 && err >= 0);
    dup2(to, 1);
    dup2(to, 2);
    load(path);
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(to);
    close(out);
    close(err);
    return io_slurp(io_path("printed"));
}

static tci_engine_library talkative = {
    .file = "libtalk.so", .package = "", .get = "?", .lock = TCI_MUTEX_INIT};

static void load_it(const char *path)
{
    char text[TC_GRAPH_TEXT];
    printf("before ");
    CHECK(tci_engine_open(&talkative, path, text) != NULL);
    printf("after");
}

static void load_plainly(const char *path)
{
    CHECK(dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL);
}

TEST(text_that_a_library_prints_while_it_is_loaded_is_discarded)
{
    static const char source[] = "#include <stdio.h>\n#include <unistd.h>\n"
                                 "__attribute__((constructor)) static void f(void)\n"
                                 "{ printf(\"buffered\"); fputs(\"to stderr\", stderr);\n"
                                 "  if (write(1, \"at once\", 7) != 7) perror(\"write\"); }\n";
    if (!plant("libtalk.so", source)) {
        SKIP("no C compiler");
    }
    io_bytes text = printed_by(load_it, io_path("libtalk.so"));
    CHECK_MSG(text.n == 12 && !memcmp(text.at, "before after", 12), "%.*s", (int)text.n, text.at);
    free(text.at);
    CHECK(plant("libloud.so", source)); /* a library that is not tc's to load is heard */
    text = printed_by(load_plainly, io_path("libloud.so"));
    CHECK_EQ_INT(text.n, 24);
    free(text.at);
    io_clean();
}

TEST_MAIN
