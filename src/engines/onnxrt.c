/* engines/onnxrt.c - ONNX Runtime as a graph-level backend.
 *
 * In: an ONNX model. Out: a session, whose runs read and write the user's memory. The C API of ONNX
 * Runtime is a table of functions to which releases only append (onnxruntime_c_api.h, OrtApi), so
 * indices into the table suffice and no header is needed. Its log is discarded: errors are returned
 * as text. */
#include "onnxrt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../onnx/onnx.h"

/* X(field, place, result, parameters): the rows of OrtApi in use. A status is NULL where all is
 * well. */
#define TCI_ORT_ROWS(X)                                                                            \
    X(message, 2, const char *, (void *status))                                                    \
    X(env_make, 4, void *, (void (*log)(void *, int, const char *, const char *, const char *,     \
                                        const char *), void *user, int level, const char *name,    \
                            void **env))                                                           \
    X(session_make, 8, void *, (void *env, const void *model, size_t n, void *options,             \
                                void **session))                                                   \
    X(run, 9, void *, (void *session, void *how, const char *const *inputs, void *const *values,   \
                       size_t n_inputs, const char *const *outputs, size_t n_outputs,              \
                       void **results))                                                            \
    X(options_make, 10, void *, (void **options))                                                  \
    X(intra_threads, 24, void *, (void *options, int threads))                                     \
    X(inter_threads, 25, void *, (void *options, int threads))                                     \
    X(tensor_make, 49, void *, (void *memory, void *data, size_t bytes, const int64_t *sizes,      \
                                size_t rank, int type, void **value))                              \
    X(memory_make, 69, void *, (int allocator, int kind, void **memory))                           \
    X(status_free, 93, void, (void *status))                                                       \
    X(session_free, 95, void, (void *session))                                                     \
    X(value_free, 96, void, (void *value))                                                         \
    X(options_free, 100, void, (void *options))                                                    \
    X(providers, 125, void *, (char ***names, int *n))                                             \
    X(providers_free, 126, void *, (char **names, int n))                                          \
    X(tensorrt_use, 170, void *, (void *options, const void *provider))                            \
    X(tensorrt_make, 171, void *, (void **provider))                                               \
    X(tensorrt_free, 174, void, (void *provider))                                                  \
    X(cuda_use, 204, void *, (void *options, const void *provider))                                \
    X(cuda_make, 205, void *, (void **provider))                                                   \
    X(cuda_free, 208, void, (void *provider))                                                      \
    X(dnnl_use, 239, void *, (void *options, const void *provider))                                \
    X(dnnl_make, 240, void *, (void **provider))                                                   \
    X(dnnl_free, 243, void, (void *provider))                                                      \
    X(openvino_use, 275, void *, (void *options, const char *const *keys,                          \
                                  const char *const *values, size_t n))

typedef struct tci_ort_api {
#define TCI_ROW(field, place, result, parameters) result(*field) parameters;
    TCI_ORT_ROWS(TCI_ROW)
#undef TCI_ROW
} tci_ort_api;

static tci_engine_library tci_ort_library = {.file = "libonnxruntime.so",
                                             .package = "onnxruntime/capi",
                                             .get = "pip install onnxruntime",
                                             .lock = TCI_MUTEX_INIT};
static struct {
    tci_mutex lock;
    bool ready;
    tci_ort_api api;
    char version[32];
    void *env, *memory; /* for the rest of the process */
} tci_ort = {.lock = TCI_MUTEX_INIT};

typedef struct tci_ort_session {
    void *session;
    char **names; /* of inputs, then outputs */
    int n_names;
} tci_ort_session;

static bool tci_ort_fails(void *status, char text[TC_GRAPH_TEXT])
{
    if (status) {
        snprintf(text, TC_GRAPH_TEXT, "%s", tci_ort.api.message(status));
        tci_ort.api.status_free(status);
    }
    return status != NULL;
}

static void tci_ort_log(void *user, int level, const char *category, const char *name,
                        const char *place, const char *text)
{
    (void)user, (void)level, (void)category, (void)name, (void)place, (void)text;
}

/* ---- the library ---- */

/* Caller holds the lock. */
static bool tci_ort_start(char text[TC_GRAPH_TEXT])
{
    enum { TCI_ORT_LEAST = 18, TCI_ORT_FATAL = 4, TCI_ORT_ARENA = 1, TCI_ORT_DEFAULT = 0 };
    typedef struct {
        const void *const *(*get)(uint32_t version);
        const char *(*version)(void);
    } tci_ort_base;
    const tci_ort_base *(*base)(void) = NULL;
    const tci_engine_symbol rows[] = {{&base, "OrtGetApiBase"}};
    if (!tci_engine_symbols(&tci_ort_library, rows, 1, text)) {
        return false;
    }
    snprintf(tci_ort.version, sizeof(tci_ort.version), "%.31s", base()->version());
    const char *dot = strchr(tci_ort.version, '.');
    const void *const *table = base()->get(1);
    if (atoi(tci_ort.version) < 1 || !dot || !table ||
        (atoi(tci_ort.version) == 1 && atoi(dot + 1) < TCI_ORT_LEAST)) {
        snprintf(text, TC_GRAPH_TEXT, "onnxruntime %s is too old: expected 1.%d or later",
                 tci_ort.version, (int)TCI_ORT_LEAST);
        return false;
    }
#define TCI_ROW(field, place, result, parameters)                                                  \
    memcpy(&tci_ort.api.field, &table[place], sizeof(tci_ort.api.field));
    TCI_ORT_ROWS(TCI_ROW)
#undef TCI_ROW
    tci_ort.ready =
        !tci_ort_fails(tci_ort.api.env_make(tci_ort_log, NULL, TCI_ORT_FATAL, "tc", &tci_ort.env),
                       text) &&
        !tci_ort_fails(tci_ort.api.memory_make(TCI_ORT_ARENA, TCI_ORT_DEFAULT, &tci_ort.memory),
                       text);
    return tci_ort.ready;
}

static bool tci_ort_open(const char *option, char text[TC_GRAPH_TEXT])
{
    bool open = tci_engine_open(&tci_ort_library, option, text) != NULL;
    pthread_mutex_lock(&tci_ort.lock);
    open = open && (tci_ort.ready || tci_ort_start(text));
    pthread_mutex_unlock(&tci_ort.lock);
    return open;
}

/* ---- providers ---- */

/* X(option, onnxruntime's name, package): a provider other than the CPU's. */
#define TCI_ORT_PROVIDERS(X)                                                                       \
    X("cuda", "CUDAExecutionProvider", "onnxruntime-gpu")                                          \
    X("tensorrt", "TensorrtExecutionProvider", "onnxruntime-gpu")                                  \
    X("openvino", "OpenVINOExecutionProvider", "onnxruntime-openvino")                             \
    X("dnnl", "DnnlExecutionProvider", "an onnxruntime built with --use_dnnl")

static bool tci_ort_is_cpu(const char *option)
{
    return !option[0] || !strcmp(option, "cpu") || !tci_engine_is_word(option);
}

/* True if the library has the provider of the option; else text says what it has. */
static bool tci_ort_has(const char *option, char text[TC_GRAPH_TEXT])
{
    static const char *const rows[][3] = {
#define TCI_ROW(option, name, package) {option, name, package},
        TCI_ORT_PROVIDERS(TCI_ROW)
#undef TCI_ROW
    };
    char **names = NULL, had[256] = "";
    int n = 0;
    const char *const *row = NULL;
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        row = strcmp(rows[i][0], option) ? row : rows[i];
    }
    if (!row) {
        snprintf(text, TC_GRAPH_TEXT,
                 "there is no provider '%.60s': expected cpu, cuda, tensorrt, "
                 "openvino, dnnl or the path of the library",
                 option);
        return false;
    }
    if (tci_ort_fails(tci_ort.api.providers(&names, &n), text)) {
        return false;
    }
    bool has = false;
    for (int i = 0; i < n; i++) {
        size_t at = strlen(had);
        snprintf(had + at, sizeof(had) - at, "%s%s", i ? ", " : "", names[i]);
        has = has || !strcmp(names[i], row[1]);
    }
    tci_ort_fails(tci_ort.api.providers_free(names, n), text);
    if (!has) {
        snprintf(text, TC_GRAPH_TEXT, "onnxruntime %s has no %s, but %s: %s has it",
                 tci_ort.version, row[1], had, row[2]);
    }
    return has;
}

/* A provider's record of options, with its defaults; the session's options keep a copy. */
static bool tci_ort_add(void *options, void *(*make)(void **), void *(*use)(void *, const void *),
                        void (*drop)(void *), char text[TC_GRAPH_TEXT])
{
    void *provider = NULL;
    if (tci_ort_fails(make(&provider), text)) {
        return false;
    }
    bool used = !tci_ort_fails(use(options, provider), text);
    drop(provider);
    return used;
}

static bool tci_ort_use(void *options, const char *option, char text[TC_GRAPH_TEXT])
{
    const tci_ort_api *a = &tci_ort.api;
    if (!strcmp(option, "cuda")) {
        return tci_ort_add(options, a->cuda_make, a->cuda_use, a->cuda_free, text);
    } else if (!strcmp(option, "tensorrt")) {
        return tci_ort_add(options, a->tensorrt_make, a->tensorrt_use, a->tensorrt_free, text);
    } else if (!strcmp(option, "dnnl")) {
        return tci_ort_add(options, a->dnnl_make, a->dnnl_use, a->dnnl_free, text);
    } else if (!strcmp(option, "openvino")) {
        static const char *const keys[] = {"device_type"}, *const values[] = {"CPU"};
        return !tci_ort_fails(a->openvino_use(options, keys, values, 1), text);
    }
    return true;
}

/* ---- the backend ---- */

static bool tci_ort_find(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    char path[480];
    (void)user;
    return tci_engine_find(&tci_ort_library, option, path, text);
}

static tc_status tci_ort_version(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    (void)user;
    if (!tci_ort_open(option, text) || (!tci_ort_is_cpu(option) && !tci_ort_has(option, text))) {
        return TC_ERR_BACKEND;
    }
    snprintf(text, TC_GRAPH_TEXT, "onnxruntime %s, provider %s", tci_ort.version,
             tci_ort_is_cpu(option) ? "cpu" : option);
    return TC_OK;
}

static void tci_ort_free(void *user, void *compiled)
{
    tci_ort_session *s = compiled;
    (void)user;
    if (s->session) {
        tci_ort.api.session_free(s->session);
    }
    tci_heap_free(s);
}

/* One block: the session, pointers to the names, the names. */
static tci_ort_session *tci_ort_make(const tc_graph_model *m)
{
    int n = m->n_inputs + m->n_outputs;
    size_t bytes = sizeof(tci_ort_session) + sizeof(char *) * (size_t)n;
    for (int i = 0; i < n; i++) {
        bytes += strlen(i < m->n_inputs ? m->inputs[i].name : m->outputs[i - m->n_inputs].name) + 1;
    }
    tci_ort_session *s = tci_heap_get(bytes);
    char *at = s ? (char *)(s + 1) + sizeof(char *) * (size_t)n : NULL;
    if (s) {
        s->names = (char **)(s + 1);
        s->n_names = n;
    }
    for (int i = 0; i < n && s; i++) {
        const char *name = i < m->n_inputs ? m->inputs[i].name : m->outputs[i - m->n_inputs].name;
        size_t length = strlen(name) + 1;
        s->names[i] = memcpy(at, name, length);
        at += length;
    }
    return s;
}

static tc_status tci_ort_compile(void *user, const tc_graph_model *m, void **compiled,
                                 char text[TC_GRAPH_TEXT])
{
    const tci_ort_api *a = &tci_ort.api;
    tci_ort_session *s = tci_ort_make(m);
    void *options = NULL;
    (void)user;
    if (!s) {
        return TC_ERR_MEMORY;
    }
    bool made = !tci_ort_fails(a->options_make(&options), text) &&
                !tci_ort_fails(a->intra_threads(options, m->threads), text) &&
                !tci_ort_fails(a->inter_threads(options, 1), text) &&
                tci_ort_use(options, m->option, text) &&
                !tci_ort_fails(a->session_make(tci_ort.env, m->bytes, m->n, options, &s->session),
                               text);
    if (options) {
        a->options_free(options);
    }
    if (!made) {
        tci_ort_free(NULL, s);
        return TC_ERR_BACKEND;
    }
    *compiled = s;
    return TC_OK;
}

/* ONNX's number of a dtype; -1: it has none. */
static int tci_ort_type(tc_dtype t)
{
    switch (t) {
    case TC_F32: return 1;
    case TC_U8: return 2;
    case TC_I8: return 3;
    case TC_U16: return 4;
    case TC_I16: return 5;
    case TC_I32: return 6;
    case TC_I64: return 7;
    case TC_BOOL: return 9;
    case TC_F16: return 10;
    case TC_F64: return 11;
    case TC_U32: return 12;
    case TC_U64: return 13;
    case TC_BF16: return 16;
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
    return -1;
}

/* A value of the engine over an array's memory. */
static bool tci_ort_wrap(const tc_custom_array *a, void **value, char text[TC_GRAPH_TEXT])
{
    static char nothing[8];
    size_t bytes = (size_t)(a->n * tc_dtype_size(a->dtype));
    return !tci_ort_fails(tci_ort.api.tensor_make(tci_ort.memory, bytes ? a->data : nothing, bytes,
                                                  a->sizes, (size_t)a->rank, tci_ort_type(a->dtype),
                                                  value),
                          text);
}

static tc_status tci_ort_run(void *user, void *compiled, const tc_custom_array *inputs,
                             int n_inputs, tc_custom_array *outputs, int n_outputs,
                             char text[TC_GRAPH_TEXT])
{
    tci_ort_session *s = compiled;
    const char *const *names = (const char *const *)s->names;
    int n = n_inputs + n_outputs;
    void **values = tci_heap_get(sizeof(void *) * (size_t)n);
    bool done = values != NULL;
    (void)user;
    for (int i = 0; i < n && done; i++) {
        const tc_custom_array *a = i < n_inputs ? &inputs[i] : &outputs[i - n_inputs];
        done = tci_ort_wrap(a, &values[i], text);
    }
    done = done &&
           !tci_ort_fails(tci_ort.api.run(s->session, NULL, names, values, (size_t)n_inputs,
                                          names + n_inputs, (size_t)n_outputs, values + n_inputs),
                          text);
    for (int i = 0; i < n && values; i++) {
        if (values[i]) {
            tci_ort.api.value_free(values[i]);
        }
    }
    tci_heap_free(values);
    return done ? TC_OK : TC_ERR_BACKEND;
}

TCI_FN const tc_graph_backend *tci_onnxrt_backend(void)
{
    static const tc_graph_backend backend = {.name = "onnxrt",
                                             .format = tc_onnx_format,
                                             .find = tci_ort_find,
                                             .version = tci_ort_version,
                                             .compile = tci_ort_compile,
                                             .run = tci_ort_run,
                                             .free = tci_ort_free};
    return &backend;
}
