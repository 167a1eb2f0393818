/* api/context.c - contexts: creation with options, release, reference counts.
 *
 * In: the caller's tc_options, zero = default. Out: a tc_ctx whose options have the environment
 * applied (a field that is set overrides its variable) and which owns their strings.
 *
 * Design: a tc_ctx * is not an address but a number: the slot of the context, and above it a serial
 * number that no other context ever has. Any use of a freed context's handle, such as a second
 * tc_ctx_free, is therefore detected, however many contexts were made since; and the memory of the
 * context is freed at once. */
#include "../base/env.h"
#include "../debug/kernel_check.h"
#include "../debug/log.h"
#include "../debug/string_intern.h"
#include "../debug/recompile.h"
#include "../debug/profile.h"
#include "../run/async_compile.h"
#include "internal.h"

#include <stdio.h>
#include <string.h>

/* The options that are strings. */
#define TCI_CONTEXT_STRINGS(X)                                                                     \
    X(backend, BACKEND)                                                                            \
    X(machine, MACHINE)                                                                            \
    X(cc, CC)                                                                                      \
    X(cache_dir, CACHE_DIR)                                                                        \
    X(schedule, SCHEDULE)                                                                          \
    X(dump, DUMP)                                                                                  \
    X(dump_dir, DUMP_DIR)                                                                          \
    X(trace, TRACE)

/* ---- handles ---- */

/* Chunk k has FIRST << k slots; it comes when the chunks before it are full, and stays. */
enum {
    TCI_CONTEXT_SLOT_BITS = sizeof(void *) > 4 ? 20 : 12,
    TCI_CONTEXT_FIRST = 16,
    TCI_CONTEXT_CHUNKS = TCI_CONTEXT_SLOT_BITS - 4
};

/* Read without the lock: `ctx` and what follows are of the context whose handle stands there. */
typedef struct tci_context_slot {
    uintptr_t handle; /* atomic; 0: the slot is free */
    tci_ctx *ctx;
    struct tci_context_slot *next_free;
    uint32_t index;
} tci_context_slot;

static struct tci_context_process {
    tci_mutex lock;
    tci_context_slot *chunks[TCI_CONTEXT_CHUNKS]; /* atomic */
    int n_chunks;
    tci_context_slot *free;
    uint32_t n_live;
    uintptr_t serial; /* of the newest context */
} tci_context_process = {.lock = TCI_MUTEX_INIT};

static tci_context_slot *tci_context_find(const tc_ctx *handle)
{
    uintptr_t number = (uintptr_t)handle;
    uint32_t at = (uint32_t)(number & (((uintptr_t)1 << TCI_CONTEXT_SLOT_BITS) - 1));
    uint32_t n = TCI_CONTEXT_FIRST;
    int k = 0;
    for (; at >= n; n *= 2) {
        at -= n;
        k++;
    }
    tci_context_slot *chunk = handle && k < TCI_CONTEXT_CHUNKS
                                  ? __atomic_load_n(&tci_context_process.chunks[k],
                                                    __ATOMIC_ACQUIRE)
                                  : NULL;
    bool live = chunk && __atomic_load_n(&chunk[at].handle, __ATOMIC_ACQUIRE) == number;
    return live ? &chunk[at] : NULL;
}

TCI_FN tci_ctx *tci_ctx_of(const tc_ctx *handle)
{
    const tci_context_slot *slot = tci_context_find(handle);
    return slot ? slot->ctx : NULL;
}

/* Under the lock. False: out of memory, or of slots. */
static bool tci_context_grow(void)
{
    int k = tci_context_process.n_chunks;
    uint32_t n = (uint32_t)TCI_CONTEXT_FIRST << k;
    tci_context_slot *chunk = k < TCI_CONTEXT_CHUNKS ? tci_heap_get(n * sizeof(*chunk)) : NULL;
    if (!chunk) {
        return false;
    }
    for (uint32_t i = n; i-- > 0;) {
        chunk[i].index = i + n - TCI_CONTEXT_FIRST;
        chunk[i].next_free = tci_context_process.free;
        tci_context_process.free = &chunk[i];
    }
    __atomic_store_n(&tci_context_process.chunks[k], chunk, __ATOMIC_RELEASE);
    tci_context_process.n_chunks++;
    return true;
}

/* Serials begin at a number of this copy of the library's own: a program may hold several. */
static uintptr_t tci_context_next_serial(void)
{
    const uintptr_t most = UINTPTR_MAX >> TCI_CONTEXT_SLOT_BITS;
    uintptr_t *serial = &tci_context_process.serial;
    if (!*serial) {
        uintptr_t place = (uintptr_t)&tci_context_process;
        *serial = (uintptr_t)tci_hash_mix(0, (uint64_t)place) & most;
    }
    *serial = *serial < most ? *serial + 1 : 1;
    return *serial;
}

/* Gives the context its handle. False: out of memory. */
static bool tci_context_enter(tci_ctx *c)
{
    pthread_mutex_lock(&tci_context_process.lock);
    bool ok = tci_context_process.free || tci_context_grow();
    if (ok) {
        tci_context_slot *slot = tci_context_process.free;
        tci_context_process.free = slot->next_free;
        tci_context_process.n_live++;
        uintptr_t number = tci_context_next_serial() << TCI_CONTEXT_SLOT_BITS | slot->index;
        c->handle = (tc_ctx *)number;
        slot->ctx = c;
        __atomic_store_n(&slot->handle, number, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&tci_context_process.lock);
    return ok;
}

/* From here on the handle is dead. NULL: it was, or a call under way needs the context. */
static tci_ctx *tci_context_leave(const tc_ctx *handle)
{
    pthread_mutex_lock(&tci_context_process.lock);
    tci_context_slot *slot = tci_context_find(handle);
    tci_ctx *c = slot ? slot->ctx : NULL;
    if (c && c->n_lent) {
        c->freed_within = true;
        c = NULL;
    } else if (slot) {
        __atomic_store_n(&slot->handle, 0, __ATOMIC_RELEASE);
        slot->next_free = tci_context_process.free;
        tci_context_process.free = slot;
        tci_context_process.n_live--;
    }
    pthread_mutex_unlock(&tci_context_process.lock);
    return c;
}

static void tci_context_free_slots(void)
{
    pthread_mutex_lock(&tci_context_process.lock);
    for (int k = 0; k < TCI_CONTEXT_CHUNKS && !tci_context_process.n_live; k++) {
        tci_heap_free(tci_context_process.chunks[k]);
        tci_context_process.chunks[k] = NULL;
        tci_context_process.n_chunks = 0;
        tci_context_process.free = NULL;
    }
    pthread_mutex_unlock(&tci_context_process.lock);
}

/* ---- options ---- */

static char *tci_context_copy_text(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = tci_heap_get(n);
    if (copy) {
        memcpy(copy, text, n);
    }
    return copy;
}

static void tci_context_free_strings(tc_options *o)
{
    tci_heap_free((void *)(uintptr_t)o->name);
    o->name = NULL;
#define TCI_ROW(field, variable)                                                                   \
    tci_heap_free((void *)(uintptr_t)o->field);                                                    \
    o->field = NULL;
    TCI_CONTEXT_STRINGS(TCI_ROW)
#undef TCI_ROW
}

TCI_FN bool tci_options_are_wrong(const tc_options *o, char *text, size_t room)
{
    static const int widths[] = {-1, 0, 128, 256, 512};
    bool known = false;
    for (int i = 0; i < TCI_COUNT(widths); i++) {
        known = known || o->vector_bits == widths[i];
    }
    if (o->threads < 0) {
        snprintf(text, room, "options.threads is %d: expected 0 (all CPUs) or a positive number",
                 o->threads);
    } else if (!known) {
        snprintf(text, room,
                 "options.vector_bits is %d: expected 0 (the machine's), 128, 256, 512 or -1 "
                 "(scalar code)",
                 o->vector_bits);
    }
    return o->threads < 0 || !known;
}

/* Replaces each string by a copy of it, or of its variable. False: out of memory, all freed. */
static bool tci_context_own_strings(tc_options *o)
{
    tc_options given = *o;
    o->name = given.name ? tci_context_copy_text(given.name) : NULL;
    bool ok = !given.name || o->name;
#define TCI_ROW(field, variable)                                                                   \
    {                                                                                              \
        const char *text = given.field ? given.field : tci_env_get(TCI_ENV_##variable);           \
        o->field = text ? tci_context_copy_text(text) : NULL;                                      \
        ok = ok && (!text || o->field);                                                            \
    }
    TCI_CONTEXT_STRINGS(TCI_ROW)
#undef TCI_ROW
    if (!ok) {
        tci_context_free_strings(o);
    }
    return ok;
}

static void tci_context_apply_env(tc_options *o)
{
    if (!o->cc_timeout_s) {
        int64_t seconds = tci_env_int(TCI_ENV_CC_TIMEOUT, -1);
        o->cc_timeout_s = seconds < 0 ? 0 : (int)TCI_MIN(TCI_MAX(seconds, 1), INT32_MAX / 1000);
    }
    if (!o->cache_bytes) {
        int64_t mb = tci_env_int(TCI_ENV_CACHE_MB, -1);
        o->cache_bytes = mb < 0 || mb >= INT64_MAX >> 20 ? 0 : TCI_MAX(mb, (int64_t)1) << 20;
    }
    if (!o->memory_cache_bytes) {
        int64_t mb = tci_env_int(TCI_ENV_MEMORY_CACHE_MB, -1);
        o->memory_cache_bytes = mb > 0 && mb < (INT64_MAX >> 20) ? mb << 20 : mb == 0 ? -1 : 0;
    }
    if (!o->threads) {
        int64_t threads = tci_env_int(TCI_ENV_THREADS, 0);
        o->threads = threads > 0 && threads < 65536 ? (int)threads : 0;
    }
    if (!o->vector_bits && tci_env_get(TCI_ENV_VECTOR)) {
        int64_t bits = tci_env_int(TCI_ENV_VECTOR, 0);
        o->vector_bits = bits <= 0 ? -1 : (int)TCI_MIN(bits, 4096);
    }
    if (!o->matrix && tci_env_int(TCI_ENV_MATRIX, 1) == 0) {
        o->matrix = -1;
    }
    o->reproducible = o->reproducible || tci_env_int(TCI_ENV_REPRODUCIBLE, 0) != 0;
    if (!o->fusion && tci_env_int(TCI_ENV_FUSION, 1) == 0) {
        o->fusion = -1;
    }
    if (!o->stance) {
        int stance = tci_env_word(TCI_ENV_STANCE, TCI_ENV_STANCES);
        o->stance = stance < 0 ? TC_STANCE_COMPILE : (tc_stance)stance;
    }
    o->no_disk_cache = o->no_disk_cache || tci_env_int(TCI_ENV_NO_CACHE, 0) != 0;
    const char *odd;
    o->check = o->check ? o->check : tci_checker_flags(tci_env_get(TCI_ENV_CHECK), &odd);
    o->verify = o->verify || tci_env_int(TCI_ENV_VERIFY, 0) != 0;
}

/* ---- public calls ---- */

TC_API tc_status tc_ctx_make(tc_ctx **ctx, const tc_options *options)
{
    static const tc_options defaults;
    if (!ctx) {
        return TC_ERR_ARGUMENT;
    }
    *ctx = NULL;
    tci_env_help_once();
    tc_options o = options ? *options : defaults;
    char wrong[160];
    if (tci_options_are_wrong(&o, wrong, sizeof(wrong))) {
        tci_log(&o, "compile", "%s", wrong);
        return TC_ERR_ARGUMENT;
    }
    tci_context_apply_env(&o);
    if (!tci_context_own_strings(&o)) {
        return TC_ERR_MEMORY;
    }
    if (!tci_backend_is_known(o.backend)) {
        tci_str text = {0};
        tci_backend_missing(&text, &o);
        tci_log(&o, "compile", "%s", tci_str_text(&text));
        tci_str_free(&text);
        tci_context_free_strings(&o);
        return TC_ERR_BACKEND;
    }
    tci_os_keep_over_fork(&tci_context_process.lock, NULL);
    tci_ctx *c = tci_heap_get(sizeof(*c));
    if (!c || !tci_context_enter(c)) {
        tci_context_free_strings(&o);
        tci_heap_free(c);
        return TC_ERR_MEMORY;
    }
    c->options = o;
    tci_graph_init(&c->graph, NULL, &c->options.allocator);
    c->graph.promotion = o.promotion == TC_NUMPY ? TC_NUMPY : TC_TORCH;
    tci_pool_retain();
    tci_log_environment(&c->options);
    if (c->options.trace && !tci_profile_trace(c->options.trace)) {
        tci_log(&c->options, "compile", "no trace: '%s' cannot be written", c->options.trace);
    }
    if (tci_env_has_word(TCI_ENV_LOG, "kernels")) {
        tci_profile_log_kernels();
    }
    *ctx = c->handle;
    return TC_OK;
}

#ifndef TC_DYNAMIC_SHAPES
#undef tc_ctx_make /* bindings of other languages find it by this name */
TC_API tc_status tc_ctx_make(tc_ctx **ctx, const tc_options *options);
TC_API tc_status tc_ctx_make(tc_ctx **ctx, const tc_options *options)
{
    return tc_ctx_make_fixed_shapes(ctx, options);
}
#endif

TCI_FN void tci_ctx_tidy(void)
{
    if (!tci_pool_has_users()) {
        tci_later_rest();
        tci_recompile_forget();
    }
}

TC_API void tc_ctx_free(tc_ctx *ctx)
{
    tci_ctx *c = tci_context_leave(ctx);
    if (!c) {
        return;
    }
    tci_scope_free_all(c);
    tci_graph_deinit(&c->graph);
    tci_heap_free(c->regions);
    tci_context_free_strings(&c->options);
    tci_heap_free(c);
    tci_pool_release();
    tci_ctx_tidy();
}

TC_API void tc_shutdown(void)
{
    tci_later_shutdown();
    tci_pool_shutdown();
    tci_cache_trim();
    tci_profile_flush();
    tci_recompile_forget();
    if (!tci_pool_has_users()) {
        if (!tci_profile_exists()) {
            tci_label_forget();
        }
#ifdef TC_DYNAMIC_SHAPES
        tci_dim_free_all();
#endif
    }
    tci_context_free_slots();
}

TC_API tc_status tc_ctx_stance(tc_ctx *ctx, tc_stance stance)
{
    tci_ctx *c = tci_ctx_of(ctx);
    if (!c || stance < TC_STANCE_COMPILE || stance > TC_STANCE_LATER) {
        return c ? TC_ERR_ARGUMENT : TC_ERR_HANDLE;
    }
    c->options.stance = stance;
    return TC_OK;
}

/* Memory that the context's nodes hold; memory of the user is not counted. */
static int64_t tci_context_data_bytes(const tci_ctx *ctx)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < ctx->graph.n_slots; i++) {
        const tci_node *n = ctx->graph.slots[i];
        if (n && n->storage && !n->storage->borrowed) {
            bytes += n->storage->bytes;
        }
    }
    return bytes;
}

TC_API tc_status tc_stats_get(tc_ctx *ctx, tc_stats *stats)
{
    const tci_ctx *c = tci_ctx_of(ctx);
    if (!stats || !c) {
        return stats ? TC_ERR_HANDLE : TC_ERR_ARGUMENT;
    }
    const tci_counters *n = tci_counters_get();
    *stats = (tc_stats){
        .nodes = c->graph.n_nodes,
        .scopes = TCI_MAX(c->graph.n_scopes, 1),
        .graph_bytes = c->graph.bytes + tci_context_data_bytes(c),
        .compiles = __atomic_load_n(&n->compiles, __ATOMIC_RELAXED),
        .compiler_runs = __atomic_load_n(&n->compiler_runs, __ATOMIC_RELAXED),
        .kernels_built = __atomic_load_n(&n->kernels_built, __ATOMIC_RELAXED),
        .memory_hits = __atomic_load_n(&n->memory_hits, __ATOMIC_RELAXED),
        .disk_hits = __atomic_load_n(&n->disk_hits, __ATOMIC_RELAXED),
        .misses = __atomic_load_n(&n->misses, __ATOMIC_RELAXED),
        .kernel_hits = __atomic_load_n(&n->kernel_hits, __ATOMIC_RELAXED),
        .evictions = __atomic_load_n(&n->evictions, __ATOMIC_RELAXED),
        .memory_entries = __atomic_load_n(&n->memory_entries, __ATOMIC_RELAXED),
        .memory_bytes = __atomic_load_n(&n->memory_bytes, __ATOMIC_RELAXED),
        .memory_evictions = __atomic_load_n(&n->memory_evictions, __ATOMIC_RELAXED),
        .cache_rejects = __atomic_load_n(&n->cache_rejects, __ATOMIC_RELAXED),
        .interpreted = __atomic_load_n(&n->interpreted, __ATOMIC_RELAXED),
        .kept_bytes = tci_init_cache_total(),
    };
    return TC_OK;
}
#undef TCI_CONTEXT_STRINGS
