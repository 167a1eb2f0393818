/* compile/backend_registry.c - registry of backends, and the choice of a backend for a set of
 * options.
 *
 * In: function tables (api/backend.h) and options. Out: a tci_backend: name, functions and
 * target.
 *
 * Design: a backend is asked about the machine once per process and vector width, so choosing one
 * costs a lock and a comparison. "interp" is not registered; it is represented by a NULL function
 * table. Backends are never removed, so the returned pointers live as long as the process. */
#include <string.h>

#include "../base/os.h"
#include "../loop/gpu_schedules.h"
#include "backend_registry.h"
#include "graph_backend_registry.h"

#define TCI_BACKEND_MAX 16
#define TCI_BACKEND_WIDTHS 5

typedef struct tci_backend_row {
    const tc_backend *calls;
    bool known[TCI_BACKEND_WIDTHS];
    tci_backend picks[TCI_BACKEND_WIDTHS];
} tci_backend_row;

static struct {
    tci_mutex lock;
    int n;
    tci_backend_row rows[TCI_BACKEND_MAX];
    int n_others;
    tci_backend_row others[TCI_BACKEND_MAX]; /* devices but the first of each of those */
    bool started;
} tci_backends = {.lock = TCI_MUTEX_INIT};

/* Backends with a device whose memory the host cannot read; the list only grows. */
static struct {
    int n; /* atomic */
    const tc_backend *of[TCI_BACKEND_MAX];
} tci_backend_memory;

static const tci_backend tci_backend_interp = {.name = "interp",
                                               .target = {.arch = "c", .features = "interp"}};
#define TCI_BACKEND_NO_CPU "tc_cpu.h was not next to tc.h, or TC_NO_CPU was defined"
static const tci_backend tci_backend_interp_only = {
    .name = "interp",
    .target = {.arch = "c", .features = "interp"},
    .fallback = true,
    .why = "this build has no backend that compiles (" TCI_BACKEND_NO_CPU ")"};

/* Caller holds the lock. */
static tci_backend_row *tci_backend_find(const char *name)
{
    if (!tci_backends.started) {
        tci_backends.started = true;
        tci_os_keep_over_fork(&tci_backends.lock, NULL);
#ifdef TCI_HAS_CPU
        tci_backends.rows[tci_backends.n++].calls = tci_cpu_backend();
#endif
#ifdef TCI_HAS_CUDA
        tci_backends.rows[tci_backends.n++].calls = tci_cuda_backend();
#endif
    }
    for (int i = 0; i < tci_backends.n; i++) {
        if (!name || !strcmp(tci_backends.rows[i].calls->name, name)) {
            return &tci_backends.rows[i];
        }
    }
    return NULL;
}

/* Caller holds the lock. That of the device; NULL: there can be none, or there are too many. */
static tci_backend_row *tci_backend_find_device(tci_backend_row *first, int device)
{
    const tc_backend *calls = first->calls;
    if (device == 0) {
        return first;
    }
    calls = device > 0 && calls->device ? calls->device(calls->user, device) : NULL;
    for (int i = 0; calls && i < tci_backends.n_others; i++) {
        if (tci_backends.others[i].calls == calls) {
            return &tci_backends.others[i];
        }
    }
    if (!calls || tci_backends.n_others == TCI_BACKEND_MAX) {
        return NULL;
    }
    tci_backends.others[tci_backends.n_others].calls = calls;
    return &tci_backends.others[tci_backends.n_others++];
}

static int tci_backend_width_index(int vector_bits)
{
    static const int widths[TCI_BACKEND_WIDTHS] = {0, -1, 128, 256, 512};
    for (int i = 1; i < TCI_BACKEND_WIDTHS; i++) {
        if (vector_bits == widths[i]) {
            return i;
        }
    }
    return vector_bits < 0 ? 1 : 0;
}

/* The kind of machine and the facts, for plans and schedules. */
static tci_machine tci_backend_machine_of(const tci_target *t)
{
    tci_machine m = {0};
    m.vector_bytes = t->vector_bytes;
    m.block_threads = t->block_threads;
    m.matrix_units = t->matrix_units;
    m.has_pairs = t->has_pairs;
    m.unit_bytes = t->unit_bytes;
    m.int_points = t->int_points;
    m.warp_unit = t->warp_unit;
    m.no_shared_memory = t->no_shared_memory;
    m.groups_launches = !t->no_shared_memory; /* in tc's own dialects */
    m.facts = t->machine;
    return tci_machine_complete(m);
}

static void tci_backend_record(tci_target *t)
{
    tci_machine m = tci_backend_machine_of(t);
    tci_machine_text(&m, t->record, sizeof(t->record));
}

/* Caller holds the lock. The devices of one kind answer alike. */
static void tci_backend_list_memory(const tc_backend *calls)
{
    int n = tci_backend_memory.n, i = 0;
    while (i < n && tci_backend_memory.of[i]->is_hidden != calls->is_hidden) {
        i++;
    }
    if (calls->is_hidden && i == n && n < TCI_BACKEND_MAX) {
        tci_backend_memory.of[n] = calls;
        __atomic_store_n(&tci_backend_memory.n, n + 1, __ATOMIC_RELEASE);
    }
}

TCI_FN void tci_backend_has_memory(const char *name)
{
    pthread_mutex_lock(&tci_backends.lock);
    const tci_backend_row *row = tci_backend_find(name);
    if (row) {
        tci_backend_list_memory(row->calls);
    }
    pthread_mutex_unlock(&tci_backends.lock);
}

TCI_FN bool tci_backend_hides_any(void)
{
    return __atomic_load_n(&tci_backend_memory.n, __ATOMIC_ACQUIRE) > 0;
}

TCI_FN const char *tci_backend_hides(const void *memory)
{
    int n = __atomic_load_n(&tci_backend_memory.n, __ATOMIC_ACQUIRE);
    for (int i = 0; memory && i < n; i++) {
        const tc_backend *calls = tci_backend_memory.of[i];
        if (calls->is_hidden(calls->user, memory)) {
            return calls->name;
        }
    }
    return NULL;
}

/* A backend with that target. */
static void tci_backend_fill(tci_backend *b, const tc_backend *calls,
                             const tc_backend_target *target)
{
    bool spelled = target->block_threads > 0 || !calls->own_dialect;
    b->name = calls->name;
    b->calls = calls;
    memcpy(b->target.arch, "c", 2);
    b->target.vector_bytes = target->vector_bytes;
    b->target.block_threads = target->block_threads;
    b->target.matrix_units = spelled ? target->matrix_units : 0;
    b->target.has_pairs = spelled && target->has_pairs;
    b->target.unit_bytes = spelled && target->unit_bytes;
    b->target.int_points = spelled ? target->int_points : 0;
    b->target.warp_unit = spelled ? target->warp_unit : TC_WARP_NONE;
    b->target.no_shared_memory = !spelled;
    b->target.machine = target->machine;
    b->target.usable = true;
    memcpy(b->target.features, target->features, sizeof(b->target.features));
    tci_backend_record(&b->target);
}

static void tci_backend_ask(tci_backend *b, const tc_backend *calls, int vector_bits)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    tc_status status = calls->target(calls->user, vector_bits, &target);
    target.features[sizeof(target.features) - 1] = 0;
    target.why[sizeof(target.why) - 1] = 0;
    const tc_dialect *own = calls->own_dialect;
    const char *why = NULL;
    if (tci_os_is_setuid()) {
        why = "the process runs with more rights than its user";
    } else if (status != TC_OK || !target.usable) {
        why = target.why[0] ? target.why : "the backend cannot work on this machine";
    } else if (target.block_threads > 0 && !tci_blocks_are_joined()) {
        why = "it runs blocks of threads: define TC_BLOCKS where TC_IMPLEMENTATION is defined";
    } else if (target.block_threads > 0 && !(own && own->make)) {
        why = "it runs blocks of threads, which its dialect does not have (tc_dialect.make)";
    }
    if (why) {
        *b = tci_backend_interp;
        b->fallback = true;
        memcpy(b->why, why, strlen(why) + 1);
        return;
    }
    tci_backend_list_memory(calls);
    tci_backend_fill(b, calls, &target);
}

/* Caller holds the lock. */
static const tci_backend *tci_backend_of_row(tci_backend_row *row, int vector_bits)
{
    int i = tci_backend_width_index(vector_bits);
    if (!row->known[i]) {
        tci_backend_ask(&row->picks[i], row->calls, vector_bits);
        row->known[i] = true;
    }
    return &row->picks[i];
}

/* Caller holds the lock. The processor, where a device is not there: it computes the same. */
static const tci_backend *tci_backend_instead(const tci_backend *picked, const tci_backend_row *row,
                                              const tc_options *o)
{
    tci_backend_row *cpu = tci_backend_find("cpu");
    if (!picked->fallback || !row->calls->launch || o->fallback == TC_FALLBACK_REFUSE || !cpu) {
        return picked;
    }
    const tci_backend *instead = tci_backend_of_row(cpu, o->vector_bits);
    return instead->fallback ? picked : instead;
}

/* The functions of the backend of that name, whether or not it can work here; NULL: none. */
static const tc_backend *tci_backend_calls(const char *name)
{
    pthread_mutex_lock(&tci_backends.lock);
    const tci_backend_row *row = tci_backend_find(name);
    const tc_backend *calls = row ? row->calls : NULL;
    pthread_mutex_unlock(&tci_backends.lock);
    return calls;
}

/* ---- machines that are not here ---- */

/* Of one record: made once a process. */
typedef struct tci_backend_foreign {
    struct tci_backend_foreign *next;
    char *name;
    tc_backend calls;
    tci_backend backend;
} tci_backend_foreign;

static struct {
    tci_mutex lock;
    tci_backend_foreign *first;
} tci_backend_foreigners = {.lock = TCI_MUTEX_INIT};

static tci_backend_foreign *tci_backend_make_foreign(const char *name, const tci_foreign_record *r,
                                                     tci_str *why)
{
    const tc_backend *real = tci_backend_calls(r->backend);
    const tc_dialect *own = real ? real->own_dialect : NULL;
    bool blocks = r->target.block_threads > 0;
    bool has_blocks = tci_blocks_are_joined() && own && own->make;
    const char *wrong = !real                      ? "this build has no such backend"
                        : blocks && !has_blocks    ? "this build has no blocks of threads (TC_CUDA)"
                        : blocks != !!real->launch ? "the machine is not of that backend"
                                                   : NULL;
    if (wrong) {
        tci_str_printf(why, "backend %s: %s", r->backend, wrong);
        return NULL;
    }
    size_t n = strlen(name) + 1;
    tci_backend_foreign *x = tci_heap_get(sizeof(*x) + n);
    if (!x) {
        tci_str_add(why, "out of memory");
        return NULL;
    }
    x->name = memcpy(x + 1, name, n);
    tci_backend_fill(&x->backend, real, &r->target);
    const tci_backend *here = tci_backend_pick(&(tc_options){.backend = r->backend});
    if (!here || !here->calls || !tci_backend_runs(here, r->target.features)) {
        x->calls = tci_foreign_stubs(real);
        x->backend.calls = &x->calls;
    }
    return x;
}

/* NULL: *why says what is wrong. */
static const tci_backend *tci_backend_of_machine(const char *name, tci_str *why)
{
    tci_os_keep_over_fork(&tci_backend_foreigners.lock, NULL);
    pthread_mutex_lock(&tci_backend_foreigners.lock);
    tci_backend_foreign *x = tci_backend_foreigners.first;
    while (x && strcmp(x->name, name)) {
        x = x->next;
    }
    if (!x) {
        tci_foreign_record record;
        if (tci_foreign_read(name, &record, why)) {
            x = tci_backend_make_foreign(name, &record, why);
        }
        if (x) {
            x->next = tci_backend_foreigners.first;
            tci_backend_foreigners.first = x;
        }
    }
    pthread_mutex_unlock(&tci_backend_foreigners.lock);
    return x ? &x->backend : NULL;
}

static const tci_backend *tci_backend_pick_foreign(const tc_options *o)
{
    tci_str why = {0};
    const tci_backend *b = tci_backend_of_machine(o->machine, &why);
    tci_str_free(&why);
    return b && o->backend && strcmp(o->backend, b->name) ? NULL : b;
}

static void tci_backend_missing_foreign(tci_str *out, const tc_options *o)
{
    tci_str why = {0};
    const tci_backend *b = tci_backend_of_machine(o->machine, &why);
    if (b) {
        tci_str_printf(out, "machine '%.80s' is of backend %s, given backend %.20s", o->machine,
                       b->name, o->backend);
    } else {
        tci_str_printf(out, "machine '%.80s': %s", o->machine, tci_str_text(&why));
    }
    tci_str_free(&why);
}

TCI_FN const tci_backend *tci_backend_pick(const tc_options *o)
{
    const char *name = o->backend;
    if (name && !strcmp(name, "interp")) {
        return &tci_backend_interp;
    }
    if (TCI_UNLIKELY(o->machine != NULL)) {
        return tci_backend_pick_foreign(o);
    }
    pthread_mutex_lock(&tci_backends.lock);
    tci_backend_row *row = tci_backend_find(name);
    const tci_backend *picked = row || name ? NULL : &tci_backend_interp_only;
    row = row ? tci_backend_find_device(row, o->device) : NULL;
    if (row) {
        picked = tci_backend_instead(tci_backend_of_row(row, o->vector_bits), row, o);
    }
    pthread_mutex_unlock(&tci_backends.lock);
    return picked || !name ? picked : tci_graph_backend_pick(name);
}

TCI_FN const char *tci_backend_replaced(const tc_options *o)
{
    const tci_backend *b = tci_backend_pick(o);
    const char *why = NULL;
    if (b && b->calls && o->backend && strcmp(b->name, o->backend)) {
        pthread_mutex_lock(&tci_backends.lock);
        tci_backend_row *row = tci_backend_find(o->backend);
        row = row ? tci_backend_find_device(row, o->device) : NULL;
        const tci_backend *asked = row ? tci_backend_of_row(row, o->vector_bits) : NULL;
        why = asked && asked->fallback ? asked->why : NULL;
        pthread_mutex_unlock(&tci_backends.lock);
    }
    return why;
}

TCI_FN bool tci_backend_runs(const tci_backend *b, const char *features)
{
    const tc_backend *calls = b->calls;
    return !strcmp(b->target.features, features) ||
           (calls && calls->runs && calls->runs(calls->user, features));
}

TCI_FN bool tci_backend_is_known(const char *name)
{
    pthread_mutex_lock(&tci_backends.lock);
    bool known = !name || !strcmp(name, "interp") || tci_backend_find(name);
    pthread_mutex_unlock(&tci_backends.lock);
    return known || tci_graph_backend_pick(name);
}

TC_API const tc_backend_entry *tc_backend_at(int i)
{
    static struct {
        tc_backend_entry entry;
        char found[400];
    } entries[TCI_BACKEND_MAX + 1];
    pthread_mutex_lock(&tci_backends.lock);
    (void)tci_backend_find("");
    int n = tci_backends.n + 1;
    tc_backend_entry *e = i >= 0 && i < n ? &entries[i].entry : NULL;
    if (e && !e->name) {
        tci_backend_row *row = i ? &tci_backends.rows[i - 1] : NULL;
        const tci_backend *b = row ? tci_backend_of_row(row, 0) : &tci_backend_interp;
        tc_backend_compiler c = {0};
        bool has_compiler = row && !row->calls->compiler(row->calls->user, NULL, &c) && c.path[0];
        snprintf(entries[i].found, sizeof(entries[i].found), "%s%s%.200s",
                 row ? b->target.features : "runs kernels without a compiler",
                 has_compiler ? "; compiler " : "", has_compiler ? c.path : "");
        *e = (tc_backend_entry){.name = row ? row->calls->name : "interp",
                                .usable = !b->fallback,
                                .found = b->fallback ? "" : entries[i].found,
                                .why = b->fallback ? b->why : ""};
    }
    pthread_mutex_unlock(&tci_backends.lock);
    return e || i < n ? e : tci_graph_backend_at(i - n);
}

TCI_FN void tci_backend_missing(tci_str *out, const tc_options *o)
{
    const char *names[2 * TCI_BACKEND_MAX + 1], *name = o->backend ? o->backend : "";
    if (o->machine) {
        tci_backend_missing_foreign(out, o);
        return;
    }
    pthread_mutex_lock(&tci_backends.lock);
    const tci_backend_row *row = tci_backend_find(o->backend);
    pthread_mutex_unlock(&tci_backends.lock);
    if (row) {
        tci_str_printf(out, "the backend %s has no device %d", row->calls->name, o->device);
        return;
    }
    int n = tc_list_backends(names, TCI_COUNT(names));
    tci_str_printf(out, "there is no backend '%.40s': expected ", name);
    for (int i = 0; i < n && i < TCI_COUNT(names); i++) {
        tci_str_printf(out, i ? ", %s" : "%s", names[i]);
    }
    if (!strcmp(name, "cpu")) {
        tci_str_add(out, " (" TCI_BACKEND_NO_CPU ")");
    } else if (!strcmp(name, "cuda")) {
        tci_str_add(out, " (TC_CUDA was not defined, or tc_cuda.h was not next to tc.h)");
    }
}

TCI_FN tci_machine tci_backend_machine(const tci_backend *b, const tc_options *o)
{
    tci_machine m = tci_backend_machine_of(&b->target);
    m.thread_scratch = !b->calls || !b->calls->launch;
    /* Linked scans spin on blocks of lower index, so blocks must start in that order. CUDA does not
     * promise it, but NVIDIA's devices do so, and NVIDIA's own single-pass scan relies on it too:
     * CUB's agent_scan.cuh takes blockIdx.x for the tile, without a ticket. A debugger that
     * reorders blocks could make such a kernel wait for ever; it cannot make it wrong. */
    m.in_order_blocks = b->calls && b->calls->launch && m.block_threads > 0 && !m.no_shared_memory;
    m.matrix_units = o->matrix < 0 ? 0 : m.matrix_units;
    m.has_pairs = m.has_pairs && o->matrix >= 0;
    m.unit_bytes = m.unit_bytes && m.matrix_units > 0;
    m.warp_unit = o->matrix < 0 ? TC_WARP_NONE : m.warp_unit;
    m.reproducible = o->reproducible;
    m.no_fusion = o->fusion < 0;
    m.loops = b->calls && !m.no_shared_memory && !o->check; /* a check looks at each kernel */
    m.remat = o->remat;
    m.memory_limit = o->memory_limit;
    m.is_fast = o->math == TC_MATH_FAST;
    return m;
}

TC_API tc_status tc_machine_write(const tc_options *options, FILE *out)
{
    tc_options o = options ? *options : (tc_options){0};
    const tci_backend *b = out ? tci_backend_pick(&o) : NULL;
    if (!b || !b->calls) {
        return out ? TC_ERR_BACKEND : TC_ERR_ARGUMENT;
    }
    tci_foreign_write(out, b);
    return ferror(out) ? TC_ERR_IO : TC_OK;
}

static bool tci_backend_has_dialect(const tc_backend *b)
{
    const tc_dialect *own = b->own_dialect;
    if (!b->dialect || !own) {
        return b->dialect && !strcmp(b->dialect, "c");
    }
    bool words = own->prelude && own->space && own->operand && own->head;
    return own->make || words;
}

static bool tci_backend_is_complete(const tc_backend *b)
{
    if (!b || !b->name || !b->name[0] || strlen(b->name) > 15 || !tci_backend_has_dialect(b)) {
        return false;
    }
    if (!b->target || !b->compiler || !b->compile || !b->module_load || !b->module_find ||
        !b->module_free) {
        return false;
    }
    bool memory = b->alloc && b->free && b->upload && b->download;
    bool no_memory = !b->alloc && !b->free && !b->upload && !b->download;
    bool sequences = !b->record == !b->replay && !b->record == !b->sequence_free &&
                     (!b->record_loop || (b->record && b->alloc));
    const tc_backend_queues *q = b->queues;
    bool queues = !q || (b->alloc && q->make && q->free && q->launch && q->copy && q->sync &&
                         !q->replay == !b->replay && q->event_make && q->event_free &&
                         q->event_record && q->event_wait && q->event_sync && q->event_elapsed &&
                         q->host_alloc && q->host_free);
    return sequences && queues && (b->launch ? b->sync && (memory || no_memory) : no_memory);
}

TC_API tc_status tc_register_backend(const tc_backend *backend)
{
    if (!tci_backend_is_complete(backend) || !strcmp(backend->name, "interp")) {
        return TC_ERR_ARGUMENT;
    }
    tc_status status = TC_OK;
    pthread_mutex_lock(&tci_backends.lock);
    if (tci_backend_find(backend->name) || tci_graph_backend_pick(backend->name)) {
        status = TC_ERR_ARGUMENT;
    } else if (tci_backends.n == TCI_BACKEND_MAX) {
        status = TC_ERR_LIMIT;
    } else {
        tci_backends.rows[tci_backends.n++].calls = backend;
    }
    pthread_mutex_unlock(&tci_backends.lock);
    return status;
}

TC_API tc_status tc_register_graph_backend(const tc_graph_backend *backend)
{
    bool free = tci_graph_backend_is_complete(backend) && !tci_backend_is_known(backend->name) &&
                strcmp(backend->name, "cpu") &&
                strcmp(backend->name, "cuda"); /* of tc, also where this build lacks them */
    return free ? tci_graph_backend_add(backend) : TC_ERR_ARGUMENT;
}

TC_API int tc_list_backends(const char **names, int room)
{
    pthread_mutex_lock(&tci_backends.lock);
    (void)tci_backend_find("");
    int n = tci_backends.n + 1;
    for (int i = 0; names && i < TCI_MIN(n, room); i++) {
        names[i] = i ? tci_backends.rows[i - 1].calls->name : "interp";
    }
    pthread_mutex_unlock(&tci_backends.lock);
    const char *name;
    for (int i = 0; (name = tci_graph_backend_name(i)); i++, n++) {
        if (names && n < room) {
            names[n] = name;
        }
    }
    return n;
}

#undef TCI_BACKEND_NO_CPU
#undef TCI_BACKEND_MAX
#undef TCI_BACKEND_WIDTHS
