/* engines/openvino.c - OpenVINO as a graph-level backend.
 *
 * In: an ONNX model. Out: a compiled model; each run takes an inference request from a pool. Floats
 * are computed in f32 even if the processor has bf16 (INFERENCE_PRECISION_HINT). The cached blob is
 * OpenVINO's own format (export_model). */
#include "openvino.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../base/system_headers.h"
#include "../onnx/onnx.h"

typedef struct tci_ov_shape { /* ov_shape_t */
    int64_t rank;
    int64_t *sizes;
} tci_ov_shape;
typedef struct tci_ov_version { /* ov_version_t */
    const char *build, *description;
} tci_ov_version;

/* X(field, symbol, parameters): functions that return a status, 0 where all is well. */
#define TCI_OV_ROWS(X)                                                                             \
    X(core_make, "ov_core_create", (void **core))                                                  \
    X(property, "ov_core_set_property", (void *core, const char *device, ...))                     \
    X(read, "ov_core_read_model_from_memory_buffer",                                               \
      (void *core, const char *model, size_t n, void *weights, void **read))                       \
    X(compile, "ov_core_compile_model",                                                            \
      (void *core, void *model, const char *device, size_t n_words, void **compiled, ...))         \
    X(import, "ov_core_import_model",                                                              \
      (void *core, const char *blob, size_t n, const char *device, void **compiled))               \
    X(export, "ov_compiled_model_export_model", (void *compiled, const char *path))                \
    X(request_make, "ov_compiled_model_create_infer_request", (void *compiled, void **request))    \
    X(tensor_make, "ov_tensor_create_from_host_ptr",                                               \
      (int type, tci_ov_shape shape, void *data, void **tensor))                                   \
    X(tensor_bytes, "ov_tensor_get_byte_size", (void *tensor, size_t *bytes))                      \
    X(set, "ov_infer_request_set_tensor", (void *request, const char *name, void *tensor))         \
    X(infer, "ov_infer_request_infer", (void *request))                                            \
    X(input, "ov_compiled_model_input_by_name",                                                    \
      (void *compiled, const char *name, void **port))                                             \
    X(version, "ov_get_openvino_version", (tci_ov_version *version))

/* X(field, symbol, result, parameters): the others. */
#define TCI_OV_OTHER_ROWS(X)                                                                       \
    X(error, "ov_get_error_info", const char *, (int status))                                      \
    X(last, "ov_get_last_err_msg", const char *, (void))                                           \
    X(model_free, "ov_model_free", void, (void *model))                                            \
    X(compiled_free, "ov_compiled_model_free", void, (void *compiled))                             \
    X(request_free, "ov_infer_request_free", void, (void *request))                                \
    X(tensor_free, "ov_tensor_free", void, (void *tensor))                                         \
    X(port_free, "ov_output_const_port_free", void, (void *port))

static tci_engine_library tci_ov_library = {.file = "libopenvino_c.so",
                                            .package = "openvino/libs",
                                            .get = "pip install openvino",
                                            .lock = TCI_MUTEX_INIT};
static struct {
    tci_mutex lock;
    bool ready;
#define TCI_ROW(field, symbol, parameters) int(*field) parameters;
    TCI_OV_ROWS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(field, symbol, result, parameters) result(*field) parameters;
    TCI_OV_OTHER_ROWS(TCI_ROW)
#undef TCI_ROW
    void *core; /* for the rest of the process */
    char build[64];
} tci_ov = {.lock = TCI_MUTEX_INIT};

typedef struct tci_ov_request {
    struct tci_ov_request *next;
    void *request;
} tci_ov_request;

typedef struct tci_ov_program {
    tci_mutex lock;
    tci_ov_request *idle;
    void *compiled;
    void *blob;  /* aligned heap: what it was imported from, or was asked for; or NULL */
    bool *takes; /* of each input: false: nothing reads it, and OpenVINO dropped it */
} tci_ov_program;

static bool tci_ov_fails(int status, char text[TC_GRAPH_TEXT])
{
    if (status) {
        const char *last = tci_ov.last();
        snprintf(text, TC_GRAPH_TEXT, "%s%s%.400s", tci_ov.error(status), last && *last ? ": " : "",
                 last ? last : "");
    }
    return status != 0;
}

/* ov_element_type_e since 2025.0; -1: it has none. */
static int tci_ov_type(tc_dtype t)
{
    switch (t) {
    case TC_BOOL: return 1;
    case TC_BF16: return 2;
    case TC_F16: return 3;
    case TC_F32: return 4;
    case TC_F64: return 5;
    case TC_I8: return 7;
    case TC_I16: return 8;
    case TC_I32: return 9;
    case TC_I64: return 10;
    case TC_U8: return 16;
    case TC_U16: return 17;
    case TC_U32: return 18;
    case TC_U64: return 19;
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
    return -1;
}

/* ---- the library ---- */

static bool tci_ov_wrap(const tc_custom_array *a, void **tensor, char text[TC_GRAPH_TEXT])
{
    static int64_t nothing[1];
    tci_ov_shape shape = {a->rank, a->sizes};
    return !tci_ov_fails(
        tci_ov.tensor_make(tci_ov_type(a->dtype), shape, a->n ? a->data : nothing, tensor), text);
}

/* Numbers of dtypes changed between releases: asks one of each size. */
static bool tci_ov_knows_types(char text[TC_GRAPH_TEXT])
{
    static const tc_dtype asked[] = {TC_F32, TC_F64, TC_I16, TC_I64, TC_U8, TC_U16, TC_U64};
    int64_t one = 1, data[1] = {0};
    bool known = true;
    for (int i = 0; i < TCI_COUNT(asked) && known; i++) {
        const tc_custom_array a = {data, asked[i], 1, &one, 1};
        void *tensor = NULL;
        size_t bytes = 0;
        known = tci_ov_wrap(&a, &tensor, text) && !tci_ov.tensor_bytes(tensor, &bytes) &&
                bytes == (size_t)tc_dtype_size(asked[i]);
        if (tensor) {
            tci_ov.tensor_free(tensor);
        }
    }
    if (!known) {
        snprintf(text, TC_GRAPH_TEXT, "OpenVINO %s is too old: expected 2025.0 or later",
                 tci_ov.build);
    }
    return known;
}

/* Caller holds the lock. */
static bool tci_ov_start(char text[TC_GRAPH_TEXT])
{
    const tci_engine_symbol rows[] = {
#define TCI_ROW(field, symbol, ...) {&tci_ov.field, symbol},
        TCI_OV_ROWS(TCI_ROW) TCI_OV_OTHER_ROWS(TCI_ROW)
#undef TCI_ROW
    };
    tci_ov_version version = {NULL, NULL};
    if (!tci_engine_symbols(&tci_ov_library, rows, TCI_COUNT(rows), text)) {
        return false;
    }
    if (!tci_ov.version(&version) && version.build) {
        size_t n = strcspn(version.build, "-");
        snprintf(tci_ov.build, sizeof(tci_ov.build), "%.*s", (int)TCI_MIN(n, (size_t)40),
                 version.build);
    }
    tci_ov.ready = tci_ov_knows_types(text) && !tci_ov_fails(tci_ov.core_make(&tci_ov.core), text);
    return tci_ov.ready;
}

static bool tci_ov_open(const char *option, char text[TC_GRAPH_TEXT])
{
    bool open = tci_engine_open(&tci_ov_library, option, text) != NULL;
    pthread_mutex_lock(&tci_ov.lock);
    open = open && (tci_ov.ready || tci_ov_start(text));
    pthread_mutex_unlock(&tci_ov.lock);
    return open;
}

/* OpenVINO's name of the device: "GPU" of "gpu". */
static void tci_ov_device(const char *option, char device[64])
{
    bool word = option[0] && tci_engine_is_word(option);
    snprintf(device, 64, "%s", word ? option : "CPU");
    for (char *c = device; *c; c++) {
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    }
}

/* ---- the backend ---- */

static bool tci_ov_find(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    char path[480];
    (void)user;
    return tci_engine_find(&tci_ov_library, option, path, text);
}

static tc_status tci_ov_say_version(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    char device[64];
    (void)user;
    tci_ov_device(option, device);
    if (!tci_ov_open(option, text)) {
        return TC_ERR_BACKEND;
    }
    snprintf(text, TC_GRAPH_TEXT, "OpenVINO %s, device %s", tci_ov.build, device);
    return TC_OK;
}

/* The CPU plugin computes f64 in f32, u64 in i32, and short integers saturating, without a word. */
static bool tci_ov_supports(void *user, const char *op, tc_dtype dtype)
{
    (void)user, (void)op;
    return dtype == TC_F32 || dtype == TC_F16 || dtype == TC_BF16 || dtype == TC_I32 ||
           dtype == TC_I64 || dtype == TC_BOOL;
}

static void tci_ov_free(void *user, void *compiled)
{
    tci_ov_program *p = compiled;
    (void)user;
    for (tci_ov_request *r = p->idle, *next; r; r = next) {
        next = r->next;
        tci_ov.request_free(r->request);
        tci_heap_free(r);
    }
    if (p->compiled) {
        tci_ov.compiled_free(p->compiled);
    }
    tci_heap_free_aligned(p->blob);
    tci_heap_free(p);
}

static bool tci_ov_read_and_compile(const tc_graph_model *m, const char *device, void **compiled,
                                    char text[TC_GRAPH_TEXT])
{
    void *model = NULL;
    if (tci_ov_fails(tci_ov.read(tci_ov.core, m->bytes, m->n, NULL, &model), text)) {
        return false;
    }
    bool made = !tci_ov_fails(tci_ov.compile(tci_ov.core, model, device, 0, compiled), text);
    tci_ov.model_free(model);
    return made;
}

/* Of the device, for what is compiled or imported next; caller holds the lock. */
static bool tci_ov_set_properties(const tc_graph_model *m, const char *device,
                                  char text[TC_GRAPH_TEXT])
{
    char threads[16];
    snprintf(threads, sizeof(threads), "%d", m->threads);
    const char *const rows[][2] = {{"INFERENCE_PRECISION_HINT", "f32"},
                                   {"INFERENCE_NUM_THREADS", threads},
                                   {"NUM_STREAMS", "1"}};
    bool set = true;
    for (int i = 0; i < (strcmp(device, "CPU") ? 1 : TCI_COUNT(rows)) && set; i++) {
        set = !tci_ov_fails(tci_ov.property(tci_ov.core, device, rows[i][0], rows[i][1], NULL),
                            text);
    }
    return set;
}

/* Constants of the imported program stay in the blob, which lives as long. */
static bool tci_ov_import(tci_ov_program *p, const tc_graph_model *m, const char *device,
                          char text[TC_GRAPH_TEXT])
{
    p->blob = tci_heap_get_aligned(m->n_blob);
    if (p->blob) {
        memcpy(p->blob, m->blob, m->n_blob);
    }
    return p->blob &&
           !tci_ov_fails(tci_ov.import(tci_ov.core, p->blob, m->n_blob, device, &p->compiled),
                         text);
}

static tc_status tci_ov_compile(void *user, const tc_graph_model *m, void **compiled,
                                char text[TC_GRAPH_TEXT])
{
    char device[64];
    tci_ov_program *p = tci_heap_get(sizeof(*p) + (size_t)m->n_inputs);
    (void)user;
    if (!p) {
        return TC_ERR_MEMORY;
    }
    p->takes = (bool *)(p + 1);
    pthread_mutex_init(&p->lock, NULL);
    tci_ov_device(m->option, device);
    pthread_mutex_lock(&tci_ov.lock);
    bool made = tci_ov_set_properties(m, device, text);
    if (made && !(m->blob && tci_ov_import(p, m, device, text))) {
        made = tci_ov_read_and_compile(m, device, &p->compiled, text);
    }
    pthread_mutex_unlock(&tci_ov.lock);
    if (!made) {
        tci_ov_free(NULL, p);
        return TC_ERR_BACKEND;
    }
    for (int i = 0; i < m->n_inputs; i++) {
        void *port = NULL;
        p->takes[i] = !tci_ov.input(p->compiled, m->inputs[i].name, &port);
        if (port) {
            tci_ov.port_free(port);
        }
    }
    *compiled = p;
    return TC_OK;
}

/* A request that no other run uses. */
static tci_ov_request *tci_ov_take(tci_ov_program *p, char text[TC_GRAPH_TEXT])
{
    pthread_mutex_lock(&p->lock);
    tci_ov_request *r = p->idle;
    p->idle = r ? r->next : NULL;
    pthread_mutex_unlock(&p->lock);
    if (!r && (r = tci_heap_get(sizeof(*r))) &&
        tci_ov_fails(tci_ov.request_make(p->compiled, &r->request), text)) {
        tci_heap_free(r);
        r = NULL;
    }
    return r;
}

static void tci_ov_give(tci_ov_program *p, tci_ov_request *r)
{
    pthread_mutex_lock(&p->lock);
    r->next = p->idle;
    p->idle = r;
    pthread_mutex_unlock(&p->lock);
}

/* The request keeps a count of the tensor. */
static bool tci_ov_bind(void *request, const char *kind, int i, const tc_custom_array *a,
                        char text[TC_GRAPH_TEXT])
{
    char name[32];
    void *tensor = NULL;
    snprintf(name, sizeof(name), "%s%d", kind, i);
    bool bound = tci_ov_wrap(a, &tensor, text) &&
                 !tci_ov_fails(tci_ov.set(request, name, tensor), text);
    if (tensor) {
        tci_ov.tensor_free(tensor);
    }
    return bound;
}

static tc_status tci_ov_run(void *user, void *compiled, const tc_custom_array *inputs, int n_inputs,
                            tc_custom_array *outputs, int n_outputs, char text[TC_GRAPH_TEXT])
{
    tci_ov_program *p = compiled;
    tci_ov_request *r = tci_ov_take(p, text);
    bool done = r != NULL;
    (void)user;
    for (int i = 0; i < n_inputs + n_outputs && done; i++) {
        bool in = i < n_inputs;
        const tc_custom_array *a = in ? &inputs[i] : &outputs[i - n_inputs];
        bool matters = in ? p->takes[i] : a->n > 0; /* an empty result is one element there */
        done = !matters ||
               tci_ov_bind(r->request, in ? "input" : "output", in ? i : i - n_inputs, a, text);
    }
    done = done && !tci_ov_fails(tci_ov.infer(r->request), text);
    if (r) {
        tci_ov_give(p, r);
    }
    return done ? TC_OK : TC_ERR_BACKEND;
}

/* OpenVINO writes to a path: here that of memory without a name. */
static const void *tci_ov_blob(void *user, void *compiled, size_t *n)
{
    tci_ov_program *p = compiled;
    char path[64];
    struct stat st;
    int fd = tci_engine_unnamed_file();
    (void)user;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    bool written = fd >= 0 && !tci_ov.export(p->compiled, path) && !fstat(fd, &st) &&
                   st.st_size > 0;
    p->blob = written ? tci_heap_get_aligned((size_t)st.st_size) : NULL;
    if (p->blob && pread(fd, p->blob, (size_t)st.st_size, 0) == (ssize_t)st.st_size) {
        *n = (size_t)st.st_size;
    } else {
        *n = 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return *n ? p->blob : NULL;
}

TCI_FN const tc_graph_backend *tci_openvino_backend(void)
{
    static const tc_graph_backend backend = {.name = "openvino",
                                             .format = tc_onnx_format,
                                             .find = tci_ov_find,
                                             .version = tci_ov_say_version,
                                             .supports = tci_ov_supports,
                                             .compile = tci_ov_compile,
                                             .run = tci_ov_run,
                                             .free = tci_ov_free,
                                             .blob = tci_ov_blob};
    return &backend;
}
