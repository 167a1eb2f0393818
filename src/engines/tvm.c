/* engines/tvm.c - TVM as a graph-level backend: its Python tool compiles, its C runtime executes.
 *
 * In: an ONNX model. Out: a shared object, built by a child process (python3, tvm.relax) and
 * executed in this process by the relax virtual machine of libtvm_runtime. The bytes of the object
 * are the blob in the disk cache, so a model that was compiled once needs no Python.
 *
 * The runtime is reached through 5 functions of libtvm_ffi (tvm/ffi/c_api.h, 0.1), which call
 * others by name with tagged values. A virtual machine serves one run at a time; concurrent runs
 * wait. Compiled reductions over a symbolic axis of size 0 leave their results as they were in
 * memory: these are tc's (needs_elements). */
#include "tvm.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "../base/system_headers.h"
#include "../base/temp_dir.h"
#include "../onnx/onnx.h"

enum { TCI_TVM_SECONDS = 600 }; /* that the tool may take */

/* Kinds of a value (TVMFFITypeIndex). */
enum {
    TCI_TVM_INT = 1,
    TCI_TVM_BOOL = 2,
    TCI_TVM_DLTENSOR = 7,
    TCI_TVM_TEXT = 8,
    TCI_TVM_OBJECT = 64, /* and all above: counted */
    TCI_TVM_TENSOR = 70,
    TCI_TVM_ARRAY = 71
};

typedef struct tci_tvm_any {
    int32_t kind;
    uint32_t zero;
    union {
        int64_t number;
        void *object;
        const void *pointer;
    } of;
} tci_tvm_any;

typedef struct tci_tvm_bytes {
    const char *text;
    size_t n;
} tci_tvm_bytes;

/* DLTensor of DLPack. */
typedef struct tci_tvm_tensor {
    void *data;
    int32_t device, device_id, rank;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *sizes, *strides;
    uint64_t offset;
} tci_tvm_tensor;

enum { TCI_TVM_HEAD = 24 }; /* bytes of an object before what it holds */

static tci_engine_library tci_tvm_ffi = {.file = "libtvm_ffi.so",
                                         .package = "tvm_ffi/lib",
                                         .get = "pip install apache-tvm onnx",
                                         .lock = TCI_MUTEX_INIT};
static tci_engine_library tci_tvm_runtime = {.file = "libtvm_runtime.so",
                                             .package = "tvm/lib",
                                             .get = "pip install apache-tvm onnx",
                                             .lock = TCI_MUTEX_INIT};
/* Sorts and top-k, which compiled models call by name; the runtime of other builds has them. */
static tci_engine_library tci_tvm_extra = {.file = "libtvm_runtime_extra.so",
                                           .package = "tvm/lib",
                                           .get = "pip install apache-tvm onnx",
                                           .lock = TCI_MUTEX_INIT};
static struct {
    tci_mutex lock;
    bool ready;
    int (*global)(const tci_tvm_bytes *name, void **function);
    int (*call)(void *function, const tci_tvm_any *args, int32_t n, tci_tvm_any *result);
    void (*raised)(void **error);
    int (*drop)(void *object);
    void (*version)(uint32_t numbers[3]);
    void *load, *get, *item, *threads; /* functions, for the rest of the process */
    uint32_t numbers[3];
} tci_tvm = {.lock = TCI_MUTEX_INIT};

typedef struct tci_tvm_program {
    tci_mutex lock;
    void *machine, *main;
    void *object; /* heap: the shared object's bytes */
    size_t n_object;
    int threads;
} tci_tvm_program;

/* ---- calls ---- */

static void tci_tvm_drop(tci_tvm_any *a)
{
    if (a->kind >= TCI_TVM_OBJECT && a->of.object) {
        tci_tvm.drop(a->of.object);
    }
    *a = (tci_tvm_any){0};
}

static tci_tvm_any tci_tvm_text(const char *text)
{
    return (tci_tvm_any){.kind = TCI_TVM_TEXT, .of.pointer = text};
}

static tci_tvm_any tci_tvm_int(int64_t number)
{
    return (tci_tvm_any){.kind = TCI_TVM_INT, .of.number = number};
}

/* True: it failed, as text says in TVM's words. */
static bool tci_tvm_fails(void *function, const tci_tvm_any *args, int n, tci_tvm_any *result,
                          char text[TC_GRAPH_TEXT])
{
    *result = (tci_tvm_any){0};
    if (tci_tvm.call(function, args, n, result) == 0) {
        return false;
    }
    tci_tvm_bytes words[2] = {{NULL, 0}, {NULL, 0}}; /* kind, message */
    tci_tvm_any error = {.kind = TCI_TVM_OBJECT};
    tci_tvm.raised(&error.of.object);
    if (error.of.object) {
        memcpy(words, (const char *)error.of.object + TCI_TVM_HEAD, sizeof(words));
    }
    snprintf(text, TC_GRAPH_TEXT, "%.*s: %.*s", (int)TCI_MIN(words[0].n, (size_t)60),
             words[0].text ? words[0].text : "", (int)TCI_MIN(words[1].n, (size_t)400),
             words[1].text ? words[1].text : "no reason given");
    tci_tvm_drop(&error);
    return true;
}

/* A function of a module. */
static bool tci_tvm_member_fails(const tci_tvm_any *module, const char *name, tci_tvm_any *function,
                                 char text[TC_GRAPH_TEXT])
{
    const tci_tvm_any args[] = {*module,
                                tci_tvm_text(name),
                                {.kind = TCI_TVM_BOOL, .of.number = 1}};
    if (tci_tvm_fails(tci_tvm.get, args, 3, function, text)) {
        return true;
    }
    if (!function->of.object) {
        snprintf(text, TC_GRAPH_TEXT, "the compiled module lacks %s", name);
    }
    return !function->of.object;
}

/* ---- the library ---- */

static bool tci_tvm_global(const char *name, void **function, char text[TC_GRAPH_TEXT])
{
    const tci_tvm_bytes n = {name, strlen(name)};
    bool found = tci_tvm.global(&n, function) == 0 && *function;
    if (!found) {
        snprintf(text, TC_GRAPH_TEXT, "TVM lacks the function %s: its version is not known here",
                 name);
    }
    return found;
}

/* Caller holds the lock. */
static bool tci_tvm_start(char text[TC_GRAPH_TEXT])
{
    const tci_engine_symbol rows[] = {{&tci_tvm.global, "TVMFFIFunctionGetGlobal"},
                                      {&tci_tvm.call, "TVMFFIFunctionCall"},
                                      {&tci_tvm.raised, "TVMFFIErrorMoveFromRaised"},
                                      {&tci_tvm.drop, "TVMFFIObjectDecRef"},
                                      {&tci_tvm.version, "TVMFFIGetVersion"}};
    if (!tci_engine_symbols(&tci_tvm_ffi, rows, TCI_COUNT(rows), text)) {
        return false;
    }
    tci_tvm.version(tci_tvm.numbers);
    tci_tvm.ready = tci_tvm_global("ffi.ModuleLoadFromFile", &tci_tvm.load, text) &&
                    tci_tvm_global("ffi.ModuleGetFunction", &tci_tvm.get, text) &&
                    tci_tvm_global("ffi.ArrayGetItem", &tci_tvm.item, text) &&
                    tci_tvm_global("runtime.config_threadpool", &tci_tvm.threads, text);
    return tci_tvm.ready;
}

/* libtvm_ffi replaces the process's handler of SIGSEGV when it is loaded: ours is put back. */
static bool tci_tvm_open(char text[TC_GRAPH_TEXT])
{
    struct sigaction before;
    char without[TC_GRAPH_TEXT];
    pthread_mutex_lock(&tci_tvm.lock);
    bool known = sigaction(SIGSEGV, NULL, &before) == 0;
    bool open = tci_tvm.ready ||
                (tci_engine_open(&tci_tvm_ffi, "", text) &&
                 tci_engine_open(&tci_tvm_runtime, "", text) && tci_tvm_start(text));
    if (open) {
        (void)tci_engine_open(&tci_tvm_extra, "", without);
    }
    if (known) {
        sigaction(SIGSEGV, &before, NULL);
    }
    pthread_mutex_unlock(&tci_tvm.lock);
    return open;
}

static bool tci_tvm_find(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    char path[480];
    (void)user;
    if (option[0] && strcmp(option, "cpu")) {
        snprintf(text, TC_GRAPH_TEXT, "there is no target '%.60s': expected cpu", option);
        return false;
    }
    return tci_engine_find(&tci_tvm_ffi, "", path, text) &&
           tci_engine_find(&tci_tvm_runtime, "", path, text);
}

static tc_status tci_tvm_version(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    (void)user, (void)option;
    if (!tci_tvm_open(text)) {
        return TC_ERR_BACKEND;
    }
    snprintf(text, TC_GRAPH_TEXT, "TVM's runtime with tvm-ffi %u.%u.%u, target llvm",
             (unsigned)tci_tvm.numbers[0], (unsigned)tci_tvm.numbers[1],
             (unsigned)tci_tvm.numbers[2]);
    return TC_OK;
}

/* ---- the tool ---- */

static const char tci_tvm_script[] =
    "import sys\n"
    "sys.path.insert(0, sys.argv[3])\n"
    "import onnx, tvm\n"
    "from tvm import relax\n"
    "from tvm.relax.frontend.onnx import from_onnx\n"
    "module = from_onnx(onnx.load(sys.argv[1]), keep_params_in_input=False)\n"
    "cpu = tvm.get_global_func('target.llvm_get_system_cpu', allow_missing=True)\n"
    "target = tvm.target.Target({'kind': 'llvm', 'mcpu': cpu()} if cpu else 'llvm')\n"
    "relax.build(module, target).export_library(sys.argv[2])\n";

/* The last line that says something. */
static void tci_tvm_last_line(const tci_str *log, char text[TC_GRAPH_TEXT])
{
    const char *at = tci_str_text(log), *last = at;
    while (*at) {
        size_t n = strcspn(at, "\n");
        last = n && at[0] != ' ' ? at : last;
        at += n + (at[n] == '\n');
    }
    snprintf(text, TC_GRAPH_TEXT, "%.*s", (int)TCI_MIN(strcspn(last, "\n"), (size_t)400), last);
}

/* PREFIX/lib/python3.X/site-packages/tvm_ffi/lib/FILE: its site-packages, and PREFIX/bin/python3
 * or, where there is none, the python3 of PATH. */
static void tci_tvm_places(char packages[480], char python[500])
{
    char *at = packages;
    snprintf(packages, 480, "%s", tci_tvm_ffi.path);
    for (int i = 0; i < 3 && (at = strrchr(packages, '/')); i++) {
        *at = 0;
    }
    const char *lib = strstr(packages, "/lib/python3");
    snprintf(python, 500, "%.*s/bin/python3", lib ? (int)(lib - packages) : 0, packages);
    if (!lib || access(python, X_OK)) {
        snprintf(python, 500, "python3");
    }
}

/* Runs the tool in w's directory, where model.onnx becomes model.so. */
static bool tci_tvm_build(const tci_workdir *w, char text[TC_GRAPH_TEXT])
{
    char packages[480], python[500], model[600], object[600];
    tci_str log = {0};
    int code = 0;
    tci_tvm_places(packages, python);
    snprintf(model, sizeof(model), "%.580s/model.onnx", tci_str_text(&w->dir.path));
    snprintf(object, sizeof(object), "%.580s/model.so", tci_str_text(&w->dir.path));
    /* -I: no module of the current folder or of PYTHONPATH is imported. */
    const char *argv[] = {python, "-I", "-c", tci_tvm_script, model, object, packages, NULL};
    tci_command c = {.argv = argv,
                     .wall_ms = 1000 * (int64_t)TCI_TVM_SECONDS,
                     .log_limit = 1 << 16,
                     .temp_dir = tci_str_text(&w->dir.path)};
    tci_spawn ended = tci_os_run(&c, &log, &code);
    if (ended == TCI_SPAWN_MISSING) {
        snprintf(text, TC_GRAPH_TEXT, "TVM's tool needs '%.400s', which is not there", python);
    } else if (ended == TCI_SPAWN_TIMEOUT) {
        snprintf(text, TC_GRAPH_TEXT, "TVM's tool took more than %d seconds", TCI_TVM_SECONDS);
    } else if (ended != TCI_SPAWN_OK) {
        tci_tvm_last_line(&log, text);
    }
    tci_str_free(&log);
    return ended == TCI_SPAWN_OK;
}

/* The shared object of a model: p->object. */
static bool tci_tvm_make(tci_tvm_program *p, const tci_workdir *w, const tc_graph_model *m,
                         char text[TC_GRAPH_TEXT])
{
    tci_str read = {0};
    int why = 0;
    if (!tci_dir_publish(&w->dir, "model.onnx", m->bytes, m->n, false, &why)) {
        snprintf(text, TC_GRAPH_TEXT, "the model cannot be written: %s", strerror(why));
        return false;
    }
    if (!tci_tvm_build(w, text)) {
        return false;
    }
    bool whole = tci_dir_read(&w->dir, "model.so", (int64_t)1 << 32, &read, &why);
    if (!whole) {
        snprintf(text, TC_GRAPH_TEXT, "what TVM's tool wrote cannot be read: %s", strerror(why));
        tci_str_free(&read);
        return false;
    }
    p->object = read.text;
    p->n_object = read.n;
    return true;
}

/* Loads the object of w's directory, and makes a machine of it. */
static bool tci_tvm_load(tci_tvm_program *p, const tci_workdir *w, char text[TC_GRAPH_TEXT])
{
    enum { TCI_TVM_CPU = 1, TCI_TVM_POOLED = 2 };
    char path[600];
    tci_tvm_any module = {0}, machine = {0}, function = {0}, none = {0}, entry = {0};
    snprintf(path, sizeof(path), "%.580s/model.so", tci_str_text(&w->dir.path));
    const tci_tvm_any name = tci_tvm_text(path);
    const tci_tvm_any how[] = {tci_tvm_int(TCI_TVM_CPU), tci_tvm_int(0),
                               tci_tvm_int(TCI_TVM_POOLED)};
    bool made = !tci_tvm_fails(tci_tvm.load, &name, 1, &module, text) &&
                !tci_tvm_member_fails(&module, "vm_load_executable", &function, text) &&
                !tci_tvm_fails(function.of.object, NULL, 0, &machine, text);
    tci_tvm_drop(&function);
    made = made && !tci_tvm_member_fails(&machine, "vm_initialization", &function, text) &&
           !tci_tvm_fails(function.of.object, how, 3, &none, text) &&
           !tci_tvm_member_fails(&machine, "main", &entry, text);
    tci_tvm_drop(&function);
    tci_tvm_drop(&none);
    tci_tvm_drop(&module);
    p->machine = machine.of.object;
    p->main = entry.of.object;
    return made;
}

/* ---- the backend ---- */

static void tci_tvm_free(void *user, void *compiled)
{
    tci_tvm_program *p = compiled;
    (void)user;
    if (p->main) {
        tci_tvm.drop(p->main);
    }
    if (p->machine) {
        tci_tvm.drop(p->machine);
    }
    tci_heap_free(p->object);
    tci_heap_free(p);
}

static tc_status tci_tvm_compile(void *user, const tc_graph_model *m, void **compiled,
                                 char text[TC_GRAPH_TEXT])
{
    tci_tvm_program *p = tci_heap_get(sizeof(*p));
    tci_workdir w;
    tci_str why = {0};
    int code = 0;
    (void)user;
    if (!p) {
        return TC_ERR_MEMORY;
    }
    p->lock = (tci_mutex)TCI_MUTEX_INIT;
    p->threads = m->threads;
    if (!tci_workdir_make(&w, NULL, false, &why)) {
        snprintf(text, TC_GRAPH_TEXT, "no folder to compile in: %.400s", tci_str_text(&why));
        tci_str_free(&why);
        tci_heap_free(p);
        return TC_ERR_BACKEND;
    }
    bool made = m->blob ? tci_dir_publish(&w.dir, "model.so", m->blob, m->n_blob, false, &code)
                        : tci_tvm_make(p, &w, m, text);
    made = made && tci_tvm_load(p, &w, text);
    tci_workdir_end(&w, false);
    tci_str_free(&why);
    if (!made) {
        tci_tvm_free(NULL, p);
        return TC_ERR_BACKEND;
    }
    *compiled = p;
    return TC_OK;
}

static const void *tci_tvm_blob(void *user, void *compiled, size_t *n)
{
    const tci_tvm_program *p = compiled;
    (void)user;
    *n = p->n_object;
    return p->object;
}

/* DLDataType: code of the kind, bits. */
static void tci_tvm_type(tc_dtype t, tci_tvm_tensor *to)
{
    enum { TCI_TVM_SIGNED, TCI_TVM_UNSIGNED, TCI_TVM_FLOAT, TCI_TVM_BFLOAT = 4, TCI_TVM_TRUTH = 6 };
    bool is_signed = t == TC_I8 || t == TC_I16 || t == TC_I32 || t == TC_I64;
    to->code = t == TC_BOOL                                ? TCI_TVM_TRUTH
               : t == TC_BF16                              ? TCI_TVM_BFLOAT
               : t == TC_F16 || t == TC_F32 || t == TC_F64 ? TCI_TVM_FLOAT
               : is_signed                                 ? TCI_TVM_SIGNED
                                                           : TCI_TVM_UNSIGNED;
    to->bits = (uint8_t)(8 * tc_dtype_size(t));
    to->lanes = 1;
}

/* Threads of TVM's pool, which each thread that runs has of its own. */
static bool tci_tvm_set_threads(int threads, char text[TC_GRAPH_TEXT])
{
    static __thread int set;
    const tci_tvm_any args[] = {tci_tvm_int(1), tci_tvm_int(threads)};
    tci_tvm_any none;
    if (set == threads) {
        return true;
    }
    set = threads;
    return !tci_tvm_fails(tci_tvm.threads, args, 2, &none, text);
}

/* An output to the user's memory. */
static bool tci_tvm_take(const tci_tvm_any *value, const tc_custom_array *to,
                         char text[TC_GRAPH_TEXT])
{
    tci_tvm_tensor t;
    int64_t n = 1;
    if (value->kind == TCI_TVM_DLTENSOR) { /* an input that is an output as it is */
        memcpy(&t, value->of.pointer, sizeof(t));
    } else if (value->kind == TCI_TVM_TENSOR) {
        memcpy(&t, (const char *)value->of.object + TCI_TVM_HEAD, sizeof(t));
    } else {
        snprintf(text, TC_GRAPH_TEXT, "an output is no tensor, but of kind %d", (int)value->kind);
        return false;
    }
    for (int i = 0; i < t.rank; i++) {
        n *= t.sizes[i];
    }
    size_t bytes = (size_t)(to->n * tc_dtype_size(to->dtype));
    if (n != to->n || t.bits != 8 * tc_dtype_size(to->dtype)) {
        snprintf(text, TC_GRAPH_TEXT, "an output has %lld elements of %d bits, expected %lld of %d",
                 (long long)n, (int)t.bits, (long long)to->n, (int)(8 * tc_dtype_size(to->dtype)));
        return false;
    }
    memcpy(to->data, (const char *)t.data + t.offset, bytes);
    return true;
}

/* Kernels load whole vectors: an array that is not aligned to 64 bytes is copied. */
static bool tci_tvm_give(const tc_custom_array *from, tci_tvm_tensor *t, void **copy)
{
    size_t bytes = (size_t)(from->n * tc_dtype_size(from->dtype));
    *t = (tci_tvm_tensor){.data = from->data, .device = 1, .rank = from->rank};
    t->sizes = from->sizes;
    tci_tvm_type(from->dtype, t);
    if ((uintptr_t)from->data % 64) {
        *copy = t->data = tci_heap_get_aligned(bytes + 1);
        if (*copy) {
            memcpy(*copy, from->data, bytes);
        }
    }
    return t->data || !bytes;
}

static bool tci_tvm_outputs(const tci_tvm_any *result, const tc_custom_array *outputs, int n,
                            char text[TC_GRAPH_TEXT])
{
    bool done = true;
    if (result->kind != TCI_TVM_ARRAY) {
        return tci_tvm_take(result, outputs, text);
    }
    for (int i = 0; i < n && done; i++) {
        const tci_tvm_any args[] = {*result, tci_tvm_int(i)};
        tci_tvm_any item;
        done = !tci_tvm_fails(tci_tvm.item, args, 2, &item, text) &&
               tci_tvm_take(&item, &outputs[i], text);
        tci_tvm_drop(&item);
    }
    return done;
}

static tc_status tci_tvm_run(void *user, void *compiled, const tc_custom_array *inputs,
                             int n_inputs, tc_custom_array *outputs, int n_outputs,
                             char text[TC_GRAPH_TEXT])
{
    tci_tvm_program *p = compiled;
    tci_tvm_tensor *tensors = tci_heap_get(
        (sizeof(*tensors) + sizeof(void *) + sizeof(tci_tvm_any)) * (size_t)(n_inputs + 1));
    tci_tvm_any *args = (tci_tvm_any *)(void *)(tensors + n_inputs + 1), result = {0};
    void **copies = (void **)(void *)(args + n_inputs + 1);
    bool done = tensors != NULL;
    (void)user;
    for (int i = 0; i < n_inputs && done; i++) {
        done = tci_tvm_give(&inputs[i], &tensors[i], &copies[i]);
        args[i] = (tci_tvm_any){.kind = TCI_TVM_DLTENSOR, .of.pointer = &tensors[i]};
    }
    pthread_mutex_lock(&p->lock);
    done = done && tci_tvm_set_threads(p->threads, text) &&
           !tci_tvm_fails(p->main, args, n_inputs, &result, text) &&
           tci_tvm_outputs(&result, outputs, n_outputs, text);
    tci_tvm_drop(&result);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < n_inputs && tensors; i++) {
        tci_heap_free_aligned(copies[i]);
    }
    tci_heap_free(tensors);
    return done ? TC_OK : TC_ERR_BACKEND;
}

TCI_FN const tc_graph_backend *tci_tvm_backend(void)
{
    static const tc_graph_backend backend = {.name = "tvm",
                                             .format = tc_onnx_format,
                                             .find = tci_tvm_find,
                                             .version = tci_tvm_version,
                                             .compile = tci_tvm_compile,
                                             .run = tci_tvm_run,
                                             .free = tci_tvm_free,
                                             .blob = tci_tvm_blob,
                                             .needs_elements = true};
    return &backend;
}
