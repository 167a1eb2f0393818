/* engines/openxla.c - XLA as a graph-level backend, through a PJRT plugin.
 *
 * In: a StableHLO module as text. Out: a loaded executable. A plugin exports one table of
 * functions, each of which takes one struct (pjrt_c_api.h). Structs are zeroed and larger than
 * those of any version, so that newer plugins find defaults in members that they added.
 *
 * Executables are not stored on disk: XLA's CPU loader writes to stderr if it finds machine
 * features that it does not know. On the CPU inputs are read in place (zero copy).
 *
 * Threads belong to a client of the plugin, and PJRT has no option for their number: XLA's CPU
 * client takes it from the variable PJRT_NPROC (DefaultThreadPoolSize of xla/pjrt/utils.cc), and
 * not less than its devices. So there is one client of one device for each number of threads that
 * programs ask for. */
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

/* Devices and threads of a plugin, for the rest of the process. */
typedef struct tci_xla_client {
    struct tci_xla_client *next;
    int threads; /* 0: as many as XLA likes */
    void *client, *device;
} tci_xla_client;

typedef struct tci_xla_plugin {
    tci_engine_library library;
    const char *option;
    bool ready, is_cpu; /* under the lock of the library, as the clients are */
    void *const *table;
    tci_xla_client *clients;
    char version[200];
} tci_xla_plugin;

/* Errors are texts; what XLA logs above that goes to stderr. It reads the variable while it is
 * loaded. */
#define TCI_XLA_SILENCE "TF_CPP_MIN_LOG_LEVEL=3"

/* By option; the last is for paths. */
static tci_xla_plugin tci_xla_plugins[] = {{.option = "cpu",
                                            .library = {.file = "libpjrt_cpu.so",
                                                        .package = "fastatomstruct_xla_cpu",
                                                        .get = "pip install fastatomstruct-xla-cpu",
                                                        .silence = TCI_XLA_SILENCE,
                                                        .lock = TCI_MUTEX_INIT}},
                                           {.option = "cuda",
                                            .library = {.file = "xla_cuda_plugin.so",
                                                        .package = "jax_plugins/xla_cuda13",
                                                        .get = "pip install jax-cuda13-pjrt",
                                                        .silence = TCI_XLA_SILENCE,
                                                        .lock = TCI_MUTEX_INIT}},
                                           {.option = "rocm",
                                            .library = {.file = "xla_rocm_plugin.so",
                                                        .package = "jax_plugins/xla_rocm7",
                                                        .get = "pip install jax-rocm7-pjrt",
                                                        .silence = TCI_XLA_SILENCE,
                                                        .lock = TCI_MUTEX_INIT}},
                                           {.option = "/",
                                            .library = {.file = "a PJRT plugin",
                                                        .package = "",
                                                        .get = "give its path",
                                                        .silence = TCI_XLA_SILENCE,
                                                        .lock = TCI_MUTEX_INIT}}};

typedef struct tci_xla_program {
    const tci_xla_plugin *plugin;
    const tci_xla_client *client;
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

/* Name and version of the client's platform. */
static bool tci_xla_describe(tci_xla_plugin *p, const tci_xla_client *c, const int *api,
                             char text[TC_GRAPH_TEXT])
{
    tci_xla_args name = {.v = {c->client}}, version = {.v = {c->client}};
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

/* PJRT_Client_Create for this many threads; 0: as the plugin likes. */
static bool tci_xla_create_fails(const tci_xla_plugin *p, int threads, void **client,
                                 char text[TC_GRAPH_TEXT])
{
    enum { TCI_XLA_INT64 = 1 };
    struct {
        size_t size;
        void *extension;
        const char *name;
        size_t n_name;
        int type;
        int64_t value;
        size_t n_value;
    } one_device = {sizeof(one_device), NULL, "cpu_device_count", 16, TCI_XLA_INT64, 1, 1};
    char pool[32];
    snprintf(pool, sizeof(pool), "PJRT_NPROC=%d", threads);
    tci_engine_variable v = tci_engine_variable_begin(threads ? pool : NULL);
    tci_xla_args a = {.v = {&one_device, (void *)1}}, plain = {0};
    bool fails = !threads || tci_xla_fails(p, TCI_XLA_CLIENT_CREATE, &a, text);
    if (fails) { /* a plugin may refuse options that it does not know */
        a = plain;
        fails = tci_xla_fails(p, TCI_XLA_CLIENT_CREATE, &a, text);
    }
    tci_engine_variable_end(&v);
    *client = a.v[6];
    return fails;
}

/* The client of this many threads, made where there is none; NULL: text says why. Caller holds the
 * lock. */
static tci_xla_client *tci_xla_client_of(tci_xla_plugin *p, int threads, char text[TC_GRAPH_TEXT])
{
    tci_xla_client *c = p->clients;
    while (c && c->threads != threads) {
        c = c->next;
    }
    if (c) {
        return c;
    }
    tci_xla_args devices = {0};
    if (tci_xla_create_fails(p, threads, &devices.v[0], text) ||
        tci_xla_fails(p, TCI_XLA_DEVICES, &devices, text)) {
        return NULL;
    }
    c = devices.v[2] ? tci_heap_get(sizeof(*c)) : NULL;
    if (!c) {
        snprintf(text, TC_GRAPH_TEXT, devices.v[2] ? "no memory" : "the plugin found no device");
        return NULL;
    }
    *c = (tci_xla_client){p->clients, threads, devices.v[0], *(void **)devices.v[1]};
    p->clients = c;
    return c;
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
    tci_xla_args init = {0};
    if (tci_xla_fails(p, TCI_XLA_PLUGIN_INITIALIZE, &init, text)) {
        return false;
    }
    const tci_xla_client *c = tci_xla_client_of(p, strcmp(p->option, "cpu") ? 0 : 1, text);
    p->ready = c && tci_xla_describe(p, c, version, text);
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

/* CompileOptionsProto: one replica and one partition, and, of one thread, the override that its
 * operations are not cut for a pool. */
#define TCI_XLA_ONE "\x1a\x04\x20\x01\x28\x01"
#define TCI_XLA_ONE_THREAD                                                                         \
    TCI_XLA_ONE "\x3a\x20\x0a\x1a"                                                                 \
                "xla_cpu_multi_thread_eigen"                                                       \
                "\x12\x02\x10\x00"

static tc_status tci_xla_compile(void *user, const tc_graph_model *m, void **compiled,
                                 char text[TC_GRAPH_TEXT])
{
    tci_xla_plugin *p = tci_xla_open(m->option, text);
    tci_xla_program *x = p ? tci_heap_get(sizeof(*x)) : NULL;
    (void)user;
    if (!x) {
        return p ? TC_ERR_MEMORY : TC_ERR_BACKEND;
    }
    pthread_mutex_lock(&p->library.lock);
    const tci_xla_client *c = tci_xla_client_of(p, p->is_cpu ? m->threads : 0, text);
    pthread_mutex_unlock(&p->library.lock);
    const char *options = c && c->threads == 1 ? TCI_XLA_ONE_THREAD : TCI_XLA_ONE;
    size_t n_options = c && c->threads == 1 ? sizeof(TCI_XLA_ONE_THREAD) : sizeof(TCI_XLA_ONE);
    *x = (tci_xla_program){p, c, NULL};
    tci_xla_args program = {.size = sizeof(program),
                            .v = {(void *)(uintptr_t)m->bytes, (void *)m->n, "mlir", (void *)4}};
    tci_xla_args a = {
        .v = {c ? c->client : NULL, &program, (void *)(uintptr_t)options, (void *)(n_options - 1)}};
    if (!c || tci_xla_fails(p, TCI_XLA_COMPILE, &a, text)) {
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
static bool tci_xla_give(const tci_xla_program *x, const tc_custom_array *a, void **buffer,
                         char text[TC_GRAPH_TEXT])
{
    const tci_xla_plugin *p = x->plugin;
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
    } h = {.client = x->client->client,
           .data = a->data,
           .type = tci_xla_type(a->dtype),
           .sizes = a->sizes,
           .rank = (size_t)a->rank,
           .device = x->client->device,
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
        done = tci_xla_give(x, &inputs[i], &buffers[i], text);
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
