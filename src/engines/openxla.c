/* engines/openxla.c - XLA as a graph-level backend, through a PJRT plugin.
 *
 * In: a StableHLO module as text. Out: a loaded executable. A plugin exports one table of
 * functions, each of which takes one struct (pjrt_c_api.h). Structs are zeroed and larger than
 * those of any version, so that newer plugins find defaults in members that they added.
 *
 * Executables are not stored on disk: XLA's CPU loader writes to stderr if it finds machine
 * features that it does not know. On the CPU inputs are read in place (zero copy). The plugin
 * chooses the number of threads, by the affinity mask of the process. */
#include "openxla.h"

#include <stdio.h>
#include <string.h>

#include "../onnx/onnx.h"

/* Places of PJRT_Api, counted from the first function. */
enum {
    TCI_XLA_ERROR_DESTROY = 0,
    TCI_XLA_ERROR_MESSAGE = 1,
    TCI_XLA_PLUGIN_INITIALIZE = 3,
    TCI_XLA_EVENT_DESTROY = 5,
    TCI_XLA_EVENT_AWAIT = 8,
    TCI_XLA_CLIENT_CREATE = 10,
    TCI_XLA_PLATFORM_NAME = 12,
    TCI_XLA_PLATFORM_VERSION = 14,
    TCI_XLA_DEVICES = 16,
    TCI_XLA_COMPILE = 20,
    TCI_XLA_BUFFER_FROM_HOST = 22,
    TCI_XLA_LOADED_DESTROY = 50,
    TCI_XLA_EXECUTE = 55,
    TCI_XLA_BUFFER_DESTROY = 58,
    TCI_XLA_TO_HOST = 70
};

/* A record: members by number. */
typedef struct tci_xla_args {
    size_t size;
    void *extension;
    void *v[62];
} tci_xla_args;

typedef struct tci_xla_plugin {
    tci_engine_library library;
    const char *option;
    bool ready, is_cpu; /* under the lock of the library */
    void *const *table;
    void *client, *device; /* for the rest of the process */
    char version[200];
} tci_xla_plugin;

/* By option; the last is for paths. */
static tci_xla_plugin tci_xla_plugins[] = {{.option = "cpu",
                                            .library = {.file = "libpjrt_cpu.so",
                                                        .package = "fastatomstruct_xla_cpu",
                                                        .get = "pip install fastatomstruct-xla-cpu",
                                                        .lock = TCI_MUTEX_INIT}},
                                           {.option = "cuda",
                                            .library = {.file = "xla_cuda_plugin.so",
                                                        .package = "jax_plugins/xla_cuda13",
                                                        .get = "pip install jax-cuda13-pjrt",
                                                        .lock = TCI_MUTEX_INIT}},
                                           {.option = "rocm",
                                            .library = {.file = "xla_rocm_plugin.so",
                                                        .package = "jax_plugins/xla_rocm7",
                                                        .get = "pip install jax-rocm7-pjrt",
                                                        .lock = TCI_MUTEX_INIT}},
                                           {.option = "/",
                                            .library = {.file = "a PJRT plugin",
                                                        .package = "",
                                                        .get = "give its path",
                                                        .lock = TCI_MUTEX_INIT}}};

typedef struct tci_xla_program {
    tci_xla_plugin *plugin;
    void *loaded;
} tci_xla_program;

/* NULL: there is no such option. */
static tci_xla_plugin *tci_xla_plugin_of(const char *option)
{
    int n = TCI_COUNT(tci_xla_plugins), i = 0;
    option = option[0] ? option : "cpu";
    while (i < n && strcmp(tci_xla_plugins[i].option, option)) {
        i++;
    }
    return !tci_engine_is_word(option) ? &tci_xla_plugins[n - 1]
           : i < n - 1                 ? &tci_xla_plugins[i]
                                       : NULL;
}

/* Calls a function of the table; true: it failed. */
static bool tci_xla_fails(const tci_xla_plugin *p, int place, tci_xla_args *a,
                          char text[TC_GRAPH_TEXT])
{
    void *(*call)(tci_xla_args *) = NULL;
    void (*tell)(tci_xla_args *) = NULL;
    memcpy(&call, &p->table[place], sizeof(call));
    a->size = sizeof(*a);
    void *error = call(a);
    if (error) {
        tci_xla_args m = {.size = sizeof(m), .v = {error}};
        memcpy(&tell, &p->table[TCI_XLA_ERROR_MESSAGE], sizeof(tell));
        tell(&m);
        snprintf(text, TC_GRAPH_TEXT, "%.*s", (int)TCI_MIN((size_t)m.v[2], (size_t)400),
                 m.v[1] ? (const char *)m.v[1] : "");
        tci_xla_args e = {.size = sizeof(e), .v = {error}};
        memcpy(&tell, &p->table[TCI_XLA_ERROR_DESTROY], sizeof(tell));
        tell(&e);
    }
    return error != NULL;
}

/* Calls one that takes an object and gives nothing. */
static void tci_xla_drop(const tci_xla_plugin *p, int place, void *object)
{
    char text[TC_GRAPH_TEXT];
    tci_xla_args a = {.v = {object}};
    if (object) {
        (void)tci_xla_fails(p, place, &a, text);
    }
}

/* Waits for an event, and drops it. */
static bool tci_xla_await_fails(const tci_xla_plugin *p, void *event, char text[TC_GRAPH_TEXT])
{
    tci_xla_args a = {.v = {event}};
    bool fails = event && tci_xla_fails(p, TCI_XLA_EVENT_AWAIT, &a, text);
    tci_xla_drop(p, TCI_XLA_EVENT_DESTROY, event);
    return fails;
}

/* ---- the plugin ---- */

/* The name and version of the platform. */
static bool tci_xla_describe(tci_xla_plugin *p, const int *api, char text[TC_GRAPH_TEXT])
{
    tci_xla_args name = {.v = {p->client}}, version = {.v = {p->client}};
    if (tci_xla_fails(p, TCI_XLA_PLATFORM_NAME, &name, text) ||
        tci_xla_fails(p, TCI_XLA_PLATFORM_VERSION, &version, text)) {
        return false;
    }
    const char *of = version.v[1];
    int n = 0;
    while (of && n < (int)(size_t)version.v[2] && n < 100 && of[n] != '\n') {
        n++;
    }
    p->is_cpu = (size_t)name.v[2] == 3 && !memcmp(name.v[1], "cpu", 3);
    snprintf(p->version, sizeof(p->version), "XLA %.*s by PJRT %d.%d, platform %.*s", n,
             of ? of : "", api[0], api[1], (int)TCI_MIN((size_t)name.v[2], (size_t)40),
             (const char *)name.v[1]);
    return true;
}

/* Caller holds the lock. */
static bool tci_xla_start(tci_xla_plugin *p, char text[TC_GRAPH_TEXT])
{
    enum { TCI_XLA_VERSION_AT = 32, TCI_XLA_TABLE_AT = 40, TCI_XLA_LEAST = 50 };
    char *(*get)(void) = NULL;
    const tci_engine_symbol rows[] = {{&get, "GetPjrtApi"}};
    if (!tci_engine_symbols(&p->library, rows, 1, text)) {
        return false;
    }
    char *api = get();
    int version[2];
    memcpy(version, api + TCI_XLA_VERSION_AT, sizeof(version));
    p->table = (void *const *)(void *)(api + TCI_XLA_TABLE_AT);
    if (version[0] != 0 || version[1] < TCI_XLA_LEAST) {
        snprintf(text, TC_GRAPH_TEXT, "the plugin has PJRT %d.%d, expected 0.%d or later",
                 version[0], version[1], (int)TCI_XLA_LEAST);
        return false;
    }
    tci_xla_args init = {0}, client = {0};
    if (tci_xla_fails(p, TCI_XLA_PLUGIN_INITIALIZE, &init, text) ||
        tci_xla_fails(p, TCI_XLA_CLIENT_CREATE, &client, text)) {
        return false;
    }
    p->client = client.v[6];
    tci_xla_args devices = {.v = {p->client}};
    if (tci_xla_fails(p, TCI_XLA_DEVICES, &devices, text)) {
        return false;
    }
    if (!devices.v[2]) {
        snprintf(text, TC_GRAPH_TEXT, "the plugin found no device");
        return false;
    }
    p->device = *(void **)devices.v[1];
    p->ready = tci_xla_describe(p, version, text);
    return p->ready;
}

static tci_xla_plugin *tci_xla_open(const char *option, char text[TC_GRAPH_TEXT])
{
    tci_xla_plugin *p = tci_xla_plugin_of(option);
    if (!p) {
        snprintf(text, TC_GRAPH_TEXT,
                 "there is no platform '%.60s': expected cpu, cuda, rocm or "
                 "the path of a PJRT plugin",
                 option);
        return NULL;
    }
    if (!tci_engine_open(&p->library, option, text)) {
        return NULL;
    }
    pthread_mutex_lock(&p->library.lock);
    bool ready = p->ready || tci_xla_start(p, text);
    pthread_mutex_unlock(&p->library.lock);
    return ready ? p : NULL;
}

/* ---- the backend ---- */

static bool tci_xla_find(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    char path[480];
    const tci_xla_plugin *p = tci_xla_plugin_of(option);
    (void)user;
    return !p || tci_engine_find(&p->library, option, path, text);
}

static tc_status tci_xla_version(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    const tci_xla_plugin *p = tci_xla_open(option, text);
    (void)user;
    if (p) {
        snprintf(text, TC_GRAPH_TEXT, "%s", p->version);
    }
    return p ? TC_OK : TC_ERR_BACKEND;
}

static void tci_xla_free(void *user, void *compiled)
{
    tci_xla_program *x = compiled;
    (void)user;
    tci_xla_drop(x->plugin, TCI_XLA_LOADED_DESTROY, x->loaded);
    tci_heap_free(x);
}

/* One replica and one partition, as CompileOptionsProto. */
static const char tci_xla_options[] = {0x1a, 4, 0x20, 1, 0x28, 1};

static tc_status tci_xla_compile(void *user, const tc_graph_model *m, void **compiled,
                                 char text[TC_GRAPH_TEXT])
{
    tci_xla_plugin *p = tci_xla_open(m->option, text);
    tci_xla_program *x = p ? tci_heap_get(sizeof(*x)) : NULL;
    (void)user;
    if (!x) {
        return p ? TC_ERR_MEMORY : TC_ERR_BACKEND;
    }
    x->plugin = p;
    tci_xla_args program = {.size = sizeof(program),
                            .v = {(void *)(uintptr_t)m->bytes, (void *)m->n, "mlir", (void *)4}};
    tci_xla_args a = {.v = {p->client, &program, (void *)(uintptr_t)tci_xla_options,
                            (void *)sizeof(tci_xla_options)}};
    if (tci_xla_fails(p, TCI_XLA_COMPILE, &a, text)) {
        tci_xla_free(NULL, x);
        return TC_ERR_BACKEND;
    }
    x->loaded = a.v[4];
    *compiled = x;
    return TC_OK;
}

/* PJRT_Buffer_Type; 0: it has none. */
static int tci_xla_type(tc_dtype t)
{
    switch (t) {
    case TC_BOOL: return 1;
    case TC_I8: return 2;
    case TC_I16: return 3;
    case TC_I32: return 4;
    case TC_I64: return 5;
    case TC_U8: return 6;
    case TC_U16: return 7;
    case TC_U32: return 8;
    case TC_U64: return 9;
    case TC_F16: return 10;
    case TC_F32: return 11;
    case TC_F64: return 12;
    case TC_BF16: return 13;
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
    return 0;
}

/* A buffer of the plugin over, or with a copy of, an array. */
static bool tci_xla_give(const tci_xla_plugin *p, const tc_custom_array *a, void **buffer,
                         char text[TC_GRAPH_TEXT])
{
    enum { TCI_XLA_UNTIL_TRANSFERRED = 1, TCI_XLA_ZERO_COPY = 2 };
    struct {
        size_t size;
        void *extension, *client;
        const void *data;
        int type;
        const int64_t *sizes;
        size_t rank;
        const int64_t *strides;
        size_t n_strides;
        int semantics;
        void *device, *memory, *layout, *done, *buffer;
        void *more[16];
    } h = {.client = p->client,
           .data = a->data,
           .type = tci_xla_type(a->dtype),
           .sizes = a->sizes,
           .rank = (size_t)a->rank,
           .device = p->device,
           .semantics = p->is_cpu ? TCI_XLA_ZERO_COPY : TCI_XLA_UNTIL_TRANSFERRED};
    tci_xla_args record = {0};
    _Static_assert(sizeof(h) <= sizeof(record), "the record must fit");
    memcpy(&record, &h, sizeof(h));
    if (tci_xla_fails(p, TCI_XLA_BUFFER_FROM_HOST, &record, text)) {
        return false;
    }
    memcpy(&h, &record, sizeof(h));
    *buffer = h.buffer;
    if (p->is_cpu) { /* the event waits for the end of the buffer */
        tci_xla_drop(p, TCI_XLA_EVENT_DESTROY, h.done);
        return true;
    }
    return !tci_xla_await_fails(p, h.done, text);
}

static bool tci_xla_take(const tci_xla_plugin *p, const tc_custom_array *a, void *buffer,
                         char text[TC_GRAPH_TEXT])
{
    size_t bytes = (size_t)(a->n * tc_dtype_size(a->dtype));
    tci_xla_args h = {.v = {buffer, NULL, a->data, (void *)bytes}};
    return !bytes ||
           (!tci_xla_fails(p, TCI_XLA_TO_HOST, &h, text) && !tci_xla_await_fails(p, h.v[4], text));
}

static bool tci_xla_execute(const tci_xla_program *x, void **in, int n_inputs, void **out,
                            char text[TC_GRAPH_TEXT])
{
    tci_xla_args options = {.size = sizeof(options)};
    void *done = NULL;
    tci_xla_args a = {
        .v = {x->loaded, &options, &in, (void *)1, (void *)(size_t)n_inputs, &out, &done}};
    return !tci_xla_fails(x->plugin, TCI_XLA_EXECUTE, &a, text) &&
           !tci_xla_await_fails(x->plugin, done, text);
}

static tc_status tci_xla_run(void *user, void *compiled, const tc_custom_array *inputs,
                             int n_inputs, tc_custom_array *outputs, int n_outputs,
                             char text[TC_GRAPH_TEXT])
{
    const tci_xla_program *x = compiled;
    int n = n_inputs + n_outputs;
    void **buffers = tci_heap_get(sizeof(void *) * (size_t)n);
    bool done = buffers != NULL;
    (void)user;
    for (int i = 0; i < n_inputs && done; i++) {
        done = tci_xla_give(x->plugin, &inputs[i], &buffers[i], text);
    }
    done = done && tci_xla_execute(x, buffers, n_inputs, buffers + n_inputs, text);
    for (int i = 0; i < n_outputs && done; i++) {
        done = tci_xla_take(x->plugin, &outputs[i], buffers[n_inputs + i], text);
    }
    for (int i = 0; i < n && buffers; i++) {
        tci_xla_drop(x->plugin, TCI_XLA_BUFFER_DESTROY, buffers[i]);
    }
    tci_heap_free(buffers);
    return done ? TC_OK : TC_ERR_BACKEND;
}

TCI_FN const tc_graph_backend *tci_openxla_backend(void)
{
    static const tc_graph_backend backend = {.name = "openxla",
                                             .format = tc_stablehlo_format,
                                             .find = tci_xla_find,
                                             .version = tci_xla_version,
                                             .compile = tci_xla_compile,
                                             .run = tci_xla_run,
                                             .free = tci_xla_free};
    return &backend;
}
