/* api/context.c - contexts: made with their options, ended, counted.
 *
 * In: tc_options of the user, zero = default. Out: a tc_ctx whose options have the environment
 * applied (a field that is set wins over its variable) and own their strings.
 * The one idea: a freed context's struct is retired, not given back: a late handle to it, or a
 * second tc_ctx_free, reads a dead mark instead of freed memory. Once TCI_CONTEXT_WAIT others were
 * freed a tc_ctx_make takes it over; its nodes then start at generations far from the old ones, so
 * old handles stay dead. */
#include "../base/env.h"
#include "../debug/dump.h"
#include "../debug/trace.h"
#include "frame.h"

#include <stdio.h>
#include <string.h>

#define TCI_CONTEXT_WAIT 16

/* The options that are strings. */
#define TCI_CONTEXT_STRINGS(X)                                                                     \
    X(backend, BACKEND)                                                                            \
    X(cc, CC)                                                                                      \
    X(cache_dir, CACHE_DIR)                                                                        \
    X(dump, DUMP)                                                                                  \
    X(dump_dir, DUMP_DIR)                                                                          \
    X(trace, TRACE)

static struct tci_context_process {
    tci_mutex lock;
    tc_ctx *oldest, *newest; /* freed ones, linked from oldest to newest */
    int n_retired;
    uint32_t made;           /* contexts so far: seeds their generations */
} tci_context_process = {.lock = TCI_MUTEX_INIT};

/* The memory of the context that was freed longest ago, when many were since; NULL: take new. */
static tc_ctx *tci_context_reuse(void)
{
    tc_ctx *c = tci_context_process.oldest;
    if (tci_context_process.n_retired < TCI_CONTEXT_WAIT) {
        return NULL;
    }
    tci_context_process.oldest = c->next_retired;
    tci_context_process.n_retired--;
    return c;
}

static void tci_context_retire(tc_ctx *c)
{
    c->next_retired = NULL;
    if (tci_context_process.n_retired++) {
        tci_context_process.newest->next_retired = c;
    } else {
        tci_context_process.oldest = c;
    }
    tci_context_process.newest = c;
}

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
#define TCI_ROW(field, variable)                                                                   \
    tci_heap_free((void *)(uintptr_t)o->field);                                                    \
    o->field = NULL;
    TCI_CONTEXT_STRINGS(TCI_ROW)
#undef TCI_ROW
}

/* Replaces each string by a copy of it, or of its variable. False: out of memory, all freed. */
static bool tci_context_own_strings(tc_options *o)
{
    tc_options given = *o;
    bool ok = true;
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
        o->cc_timeout_s = (int)tci_env_int(TCI_ENV_CC_TIMEOUT, 0);
    }
    if (!o->cache_bytes) {
        int64_t mb = tci_env_int(TCI_ENV_CACHE_MB, 0);
        o->cache_bytes = mb > 0 && mb < (INT64_MAX >> 20) ? mb << 20 : 0;
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
    o->no_disk_cache = o->no_disk_cache || tci_env_int(TCI_ENV_NO_CACHE, 0) == 1;
    o->verify = o->verify || tci_env_int(TCI_ENV_VERIFY, 0) == 1;
}

TC_API tc_status tc_ctx_make(tc_ctx **ctx, const tc_options *options)
{
    static const tc_options defaults;
    if (!ctx) {
        return TC_ERR_ARGUMENT;
    }
    *ctx = NULL;
    tci_env_help_once();
    tc_options o = options ? *options : defaults;
    tci_context_apply_env(&o);
    if (!tci_context_own_strings(&o)) {
        return TC_ERR_MEMORY;
    }
    tci_os_keep_over_fork(&tci_context_process.lock, NULL);
    pthread_mutex_lock(&tci_context_process.lock);
    tc_ctx *c = tci_context_reuse();
    uint32_t seed = ++tci_context_process.made;
    pthread_mutex_unlock(&tci_context_process.lock);
    if (!c) {
        c = tci_heap_get(sizeof(*c));
    }
    if (!c) {
        tci_context_free_strings(&o);
        return TC_ERR_MEMORY;
    }
    memset(c, 0, sizeof(*c));
    c->options = o;
    tci_graph_init(&c->graph, NULL, &c->options.allocator);
    c->graph.first_generation = seed * 0x9E3779B1u | 1u;
    c->next_poison = c->graph.first_generation;
    c->magic = TCI_CTX_MAGIC;
    tci_pool_retain();
    if (c->options.trace && !tci_trace_open(c->options.trace)) {
        tci_log(&c->options, "compile", "no trace: '%s' cannot be written", c->options.trace);
    }
    *ctx = c;
    return TC_OK;
}

TC_API void tc_ctx_free(tc_ctx *ctx)
{
    if (!tci_ctx_is_live(ctx)) {
        return;
    }
    tci_scope_free_all(ctx);
    tci_graph_deinit(&ctx->graph);
    tci_context_free_strings(&ctx->options);
    ctx->magic = 0;
    pthread_mutex_lock(&tci_context_process.lock);
    tci_context_retire(ctx);
    pthread_mutex_unlock(&tci_context_process.lock);
    tci_pool_release();
}

TC_API void tc_shutdown(void)
{
    tci_pool_shutdown();
    tci_cache_trim();
    tci_trace_close();
#ifdef TC_DYNAMIC_SHAPES
    if (!tci_pool_has_users()) {
        tci_dim_free_all();
    }
#endif
    pthread_mutex_lock(&tci_context_process.lock);
    while (tci_context_process.n_retired) {
        tc_ctx *c = tci_context_process.oldest;
        tci_context_process.oldest = c->next_retired;
        tci_context_process.n_retired--;
        tci_heap_free(c);
    }
    pthread_mutex_unlock(&tci_context_process.lock);
}

/* Memory that the context's nodes hold; memory of the user is not counted. */
static int64_t tci_context_data_bytes(const tc_ctx *ctx)
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
    if (!stats || !tci_ctx_is_live(ctx)) {
        return stats ? TC_ERR_HANDLE : TC_ERR_ARGUMENT;
    }
    const tci_counters *n = tci_counters_get();
    *stats = (tc_stats){
        .nodes = ctx->graph.n_nodes,
        .scopes = TCI_MAX(ctx->graph.n_scopes, 1),
        .graph_bytes = ctx->graph.bytes + tci_context_data_bytes(ctx),
        .compiles = __atomic_load_n(&n->compiles, __ATOMIC_RELAXED),
        .compiler_runs = __atomic_load_n(&n->compiler_runs, __ATOMIC_RELAXED),
        .kernels_built = __atomic_load_n(&n->kernels_built, __ATOMIC_RELAXED),
        .memory_hits = __atomic_load_n(&n->memory_hits, __ATOMIC_RELAXED),
        .disk_hits = __atomic_load_n(&n->disk_hits, __ATOMIC_RELAXED),
        .misses = __atomic_load_n(&n->misses, __ATOMIC_RELAXED),
        .kernel_hits = __atomic_load_n(&n->kernel_hits, __ATOMIC_RELAXED),
        .evictions = __atomic_load_n(&n->evictions, __ATOMIC_RELAXED),
        .cache_rejects = __atomic_load_n(&n->cache_rejects, __ATOMIC_RELAXED),
        .interpreted = __atomic_load_n(&n->interpreted, __ATOMIC_RELAXED),
    };
    return TC_OK;
}
#undef TCI_CONTEXT_WAIT
#undef TCI_CONTEXT_STRINGS
