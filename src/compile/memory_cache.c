/* compile/memory_cache.c - in-memory cache of compiled programs and kernels, by key, with claims on
 * keys that are being compiled.
 *
 * In: keys. Out: counted references to code that any thread may run.
 *
 * Design: one lock guards four small tables and is held for lookups and list operations only. A key
 * that is being compiled is in the list of claims; other threads that want it wait on the condition
 * variable and look again. The same key is therefore compiled once however many threads request it,
 * and a failure leaves no trace.
 *
 * Eviction: codes are also in a list by last use. When codes and loaded modules together exceed the
 * cap, the least recently used are evicted, except those in use by a program, which would free
 * nothing. This happens when code is added and when a program releases its code.
 *
 * Invariants: the cache holds one reference to each code in its table, and a code holds one to each
 * of its modules. Code that left the table lives on with its programs. Module counts change under
 * the lock only; an unreferenced module leaves the list before it is unloaded, which is done
 * without the lock. Full keys are compared, never hashes alone. A child made by fork finds the lock
 * free and no claims. */
#include "memory_cache.h"

#include <string.h>

#include "../base/os.h"
#include "graph_backend_registry.h"

enum {
    TCI_CACHE_BUCKETS = 1024,
    TCI_CACHE_CHUNK_BYTES = 4096,
    TCI_CACHE_PASSED = 64 /* codes in use that one search for others passes */
};

static struct {
    tci_mutex lock;
    tci_cond settled;
    tci_code *codes[TCI_CACHE_BUCKETS];
    tci_code *newest, *oldest; /* the same codes by last use */
    int64_t cap_bytes;         /* atomic; 0: nothing was added yet */
    bool watched;              /* atomic: forks know of the lock */
    tci_claim *claims;
    tci_module *modules;
    tci_module_kernel *kernels[TCI_CACHE_BUCKETS];
} tci_cache = {.lock = TCI_MUTEX_INIT, .settled = TCI_COND_INIT};

/* Entries that left the tables and are freed later, without the lock. */
typedef struct tci_cache_dropped {
    tci_code *codes;
    tci_module *modules;
} tci_cache_dropped;

static void tci_cache_after_fork(void)
{
    tci_cache.claims = NULL;
    pthread_cond_init(&tci_cache.settled, NULL);
}

static void tci_cache_lock(void)
{
    if (TCI_UNLIKELY(!__atomic_load_n(&tci_cache.watched, __ATOMIC_RELAXED))) {
        tci_os_keep_over_fork(&tci_cache.lock, tci_cache_after_fork);
        __atomic_store_n(&tci_cache.watched, true, __ATOMIC_RELAXED);
    }
    pthread_mutex_lock(&tci_cache.lock);
}

TCI_FN tci_counters *tci_counters_get(void)
{
    static tci_counters counters;
    return &counters;
}

static bool tci_cache_is_over(void);
static void tci_cache_make_room(void);
static void tci_module_unlink(tci_module *m);
static void tci_module_free(tci_module *m);

/* ---- code ---- */

struct tci_code_chunk {
    struct tci_code_chunk *older;
    size_t bytes;
};

TCI_FN void *tci_code_get(tci_code *c, size_t bytes)
{
    if (bytes > SIZE_MAX / 4) {
        return NULL;
    }
    bytes = (bytes + 15) & ~(size_t)15;
    if ((size_t)(c->chunk_end - c->chunk_next) < bytes) {
        size_t size = TCI_MAX(bytes, (size_t)TCI_CACHE_CHUNK_BYTES);
        struct tci_code_chunk *chunk = tci_heap_get(sizeof(*chunk) + size);
        if (!chunk) {
            return NULL;
        }
        chunk->older = c->chunks;
        chunk->bytes = size;
        c->chunks = chunk;
        c->chunk_next = (char *)(chunk + 1);
        c->chunk_end = c->chunk_next + size;
    }
    void *p = c->chunk_next;
    c->chunk_next += bytes;
    return p;
}

TCI_FN bool tci_code_bind(tci_code *c, const tc_backend *calls)
{
    for (int32_t i = 0; i < c->n_kernels; i++) {
        tci_code_kernel *k = &c->kernels[i];
        if (k->call) {
            c->calls = true;
            c->device = calls->launch ? calls : NULL;
            continue;
        }
        void *function = calls->module_find(calls->user, c->modules[k->module]->handle, k->symbol);
        if (!function) {
            return false;
        }
        tci_code_set_function(c, k, calls, function);
    }
    return true;
}

TCI_FN char *tci_code_copy_text(tci_code *c, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = tci_code_get(c, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

TCI_FN tci_code *tci_code_make(void)
{
    tci_code *c = tci_heap_get(sizeof(*c));
    if (c) {
        c->refs = 1;
    }
    return c;
}

TCI_FN void tci_code_set_function(tci_code *c, tci_code_kernel *k, const tc_backend *calls,
                                  void *function)
{
    const tc_backend *refuses = tci_foreign_refuses(calls);
    if (calls->launch || refuses) {
        c->device = calls->launch ? calls : refuses;
        k->function = function;
    } else {
        /* An object pointer that holds a function's address, as dlsym gives it. */
        memcpy(&k->fn, &function, sizeof(k->fn));
    }
}

TCI_FN void tci_code_retain(tci_code *c)
{
    __atomic_add_fetch(&c->refs, 1, __ATOMIC_RELAXED);
}

static void tci_code_free(tci_code *c)
{
    for (int i = 0; i < c->n_kernels; i++) {
        if (c->kernels[i].interp) {
            tci_interp_free(c->kernels[i].interp);
        }
    }
    for (int i = 0; i < c->n_modules; i++) {
        tci_module_release(c->modules[i]);
    }
    tci_graph_backend_free(c->engine);
    tci_heap_free(c->late_source);
    tci_code_release(c->family);
    while (c->chunks) {
        struct tci_code_chunk *older = c->chunks->older;
        tci_heap_free(c->chunks);
        c->chunks = older;
    }
    tci_heap_free(c);
}

TCI_FN void tci_code_release(tci_code *c)
{
    int32_t left = c ? __atomic_sub_fetch(&c->refs, 1, __ATOMIC_ACQ_REL) : -1;
    if (left == 0) {
        tci_code_free(c);
    } else if (left == 1 && tci_cache_is_over()) { /* perhaps only the cache holds it now */
        tci_cache_make_room();
    }
}

static int64_t tci_code_bytes(const tci_code *c)
{
    size_t bytes = sizeof(*c);
    for (const struct tci_code_chunk *chunk = c->chunks; chunk; chunk = chunk->older) {
        bytes += sizeof(*chunk) + chunk->bytes;
    }
    for (int i = 0; i < c->n_kernels; i++) {
        bytes += c->kernels[i].interp ? tci_interp_bytes(c->kernels[i].interp) : 0;
    }
    return (int64_t)bytes;
}

/* Two threads may read the file at once; the first text stays, as pointers to it may be out. */
TCI_FN const char *tci_code_source(tci_code *c)
{
    if (c->source) {
        return c->source;
    }
    char *text = __atomic_load_n(&c->late_source, __ATOMIC_ACQUIRE);
    tci_str file = {0};
    if (text || !c->source_path || !tci_os_read_private(c->source_path, &file, NULL)) {
        tci_str_free(&file);
        return text ? text : "";
    }
    char *none = NULL;
    if (__atomic_compare_exchange_n(&c->late_source, &none, file.text, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        return file.text;
    }
    tci_str_free(&file);
    return none;
}

/* ---- the table of code; the caller holds the lock ---- */

static tci_code **tci_cache_slot(const tci_request *r)
{
    tci_code **at = &tci_cache.codes[r->hash.lo % TCI_CACHE_BUCKETS];
    while (*at) {
        tci_code *c = *at;
        if (c->hash.lo == r->hash.lo && c->hash.hi == r->hash.hi && c->key_bytes == r->key_bytes &&
            !memcmp(c->key, r->key, r->key_bytes)) {
            break;
        }
        at = &c->next;
    }
    return at;
}

/* Entries and bytes are counters: read without the lock, changed under it. */
static void tci_cache_add_bytes(int64_t bytes, int entries)
{
    __atomic_add_fetch(&tci_counters_get()->memory_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_add_fetch(&tci_counters_get()->memory_entries, entries, __ATOMIC_RELAXED);
}

static void tci_cache_list(tci_code *c)
{
    c->newer = NULL;
    c->older = tci_cache.newest;
    *(c->older ? &c->older->newer : &tci_cache.oldest) = c;
    tci_cache.newest = c;
}

static void tci_cache_unlist(tci_code *c)
{
    *(c->newer ? &c->newer->older : &tci_cache.newest) = c->older;
    *(c->older ? &c->older->newer : &tci_cache.oldest) = c->newer;
}

static tci_code *tci_cache_look_up(const tci_request *r, bool native)
{
    tci_code *c = *tci_cache_slot(r);
    if (!c || (c->fallback && (native || c->compiler != r->compiler))) {
        return NULL;
    }
    tci_cache_unlist(c);
    tci_cache_list(c);
    tci_code_retain(c);
    return c;
}

static void tci_cache_put(tci_code *c)
{
    tci_code **bucket = &tci_cache.codes[c->hash.lo % TCI_CACHE_BUCKETS];
    tci_code_retain(c);
    c->next = *bucket;
    *bucket = c;
    tci_cache_list(c);
    tci_cache_add_bytes(c->bytes, 1);
}

/* The cache's reference goes with it. */
static void tci_cache_take_out(tci_code *c, tci_cache_dropped *dropped)
{
    tci_code **at = &tci_cache.codes[c->hash.lo % TCI_CACHE_BUCKETS];
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    tci_cache_unlist(c);
    tci_cache_add_bytes(-c->bytes, -1);
    c->next = dropped->codes;
    dropped->codes = c;
}

/* No other holder is left, and no look-up can find it any more: its modules are let go of here, so
 * that what that frees is counted at once. */
static void tci_cache_drop(tci_code *c, tci_cache_dropped *dropped)
{
    tci_cache_take_out(c, dropped);
    for (int i = 0; i < c->n_modules; i++) {
        tci_module *m = c->modules[i];
        if (--m->refs == 0) {
            tci_module_unlink(m);
            m->next = dropped->modules;
            dropped->modules = m;
        }
    }
    c->n_modules = 0;
}

static bool tci_cache_is_over(void)
{
    int64_t cap = __atomic_load_n(&tci_cache.cap_bytes, __ATOMIC_RELAXED);
    return cap > 0 && __atomic_load_n(&tci_counters_get()->memory_bytes, __ATOMIC_RELAXED) > cap;
}

/* Down to the cap (all: to nothing), but for what programs use: they count as used just now. */
static void tci_cache_collect(bool all, tci_cache_dropped *dropped)
{
    tci_code *c = tci_cache.oldest;
    int left = all ? INT32_MAX : TCI_CACHE_PASSED;
    const tci_code *last = tci_cache.newest;
    while (c && left > 0 && (all || tci_cache_is_over())) {
        tci_code *newer = c == last ? NULL : c->newer;
        if (__atomic_load_n(&c->refs, __ATOMIC_ACQUIRE) == 1) {
            tci_cache_drop(c, dropped);
            __atomic_add_fetch(&tci_counters_get()->memory_evictions, !all, __ATOMIC_RELAXED);
        } else {
            tci_cache_unlist(c);
            tci_cache_list(c);
            left--;
        }
        c = newer;
    }
}

static void tci_cache_free(const tci_cache_dropped *dropped)
{
    for (tci_code *c = dropped->codes, *next; c; c = next) {
        next = c->next;
        tci_code_release(c);
    }
    for (tci_module *m = dropped->modules, *next; m; m = next) {
        next = m->next;
        tci_module_free(m);
    }
}

static void tci_cache_make_room(void)
{
    tci_cache_dropped dropped = {NULL, NULL};
    tci_cache_lock();
    tci_cache_collect(false, &dropped);
    pthread_mutex_unlock(&tci_cache.lock);
    tci_cache_free(&dropped);
}

TCI_FN void tci_cache_trim(void)
{
    tci_cache_dropped dropped = {NULL, NULL};
    tci_cache_lock();
    tci_cache_collect(true, &dropped);
    pthread_mutex_unlock(&tci_cache.lock);
    tci_cache_free(&dropped);
}

TCI_FN tci_code *tci_cache_find(const tci_request *r, bool native)
{
    tci_cache_lock();
    tci_code *c = tci_cache_look_up(r, native);
    pthread_mutex_unlock(&tci_cache.lock);
    return c;
}

/* ---- claims ---- */

static bool tci_cache_is_claimed(const tci_request *r)
{
    for (const tci_claim *c = tci_cache.claims; c; c = c->next) {
        const tci_request *other = c->request;
        if (other->hash.lo == r->hash.lo && other->key_bytes == r->key_bytes &&
            !memcmp(other->key, r->key, r->key_bytes)) {
            return true;
        }
    }
    return false;
}

TCI_FN tci_claim_result tci_cache_claim(tci_claim *claim, const tci_request *r, bool native,
                                        tci_code **code)
{
    tci_claim_result result = TCI_CLAIM_FOUND;
    tci_cache_lock();
    *code = r->anew ? NULL : tci_cache_look_up(r, native);
    if (!*code && tci_cache_is_claimed(r)) {
        result = TCI_CLAIM_BUSY;
    } else if (!*code) {
        result = TCI_CLAIM_OURS;
        claim->request = r;
        claim->next = tci_cache.claims;
        tci_cache.claims = claim;
    }
    pthread_mutex_unlock(&tci_cache.lock);
    return result;
}

TCI_FN void tci_cache_settle(tci_claim *claim, tci_code *code, int64_t cap_bytes)
{
    tci_cache_dropped replaced = {NULL, NULL}, dropped = {NULL, NULL};
    if (code) {
        code->bytes = tci_code_bytes(code);
    }
    tci_cache_lock();
    tci_claim **at = &tci_cache.claims;
    while (*at && *at != claim) {
        at = &(*at)->next;
    }
    if (*at) { /* else forked in the middle of a compile, by a callback say */
        *at = claim->next;
    }
    if (code) {
        tci_code *old = *tci_cache_slot(claim->request);
        if (old) {
            tci_cache_take_out(old, &replaced);
        }
        tci_cache_put(code);
        __atomic_store_n(&tci_cache.cap_bytes, cap_bytes, __ATOMIC_RELAXED);
        tci_cache_collect(false, &dropped);
    }
    pthread_cond_broadcast(&tci_cache.settled);
    pthread_mutex_unlock(&tci_cache.lock);
    tci_cache_free(&dropped);
    tci_cache_free(&replaced);
}

TCI_FN void tci_cache_wait(const tci_request *r)
{
    tci_cache_lock();
    while (tci_cache_is_claimed(r)) {
        pthread_cond_wait(&tci_cache.settled, &tci_cache.lock);
    }
    pthread_mutex_unlock(&tci_cache.lock);
}

/* ---- modules ---- */

/* The caller holds the lock. */
static tci_module *tci_module_look_up(const tc_backend *calls, const char *path)
{
    tci_module *m = tci_cache.modules;
    while (m && (m->calls != calls || strcmp(m->path, path))) {
        m = m->next;
    }
    if (m) {
        m->refs++;
    }
    return m;
}

TCI_FN tci_module *tci_module_find(const tc_backend *calls, const char *path)
{
    tci_cache_lock();
    tci_module *m = tci_module_look_up(calls, path);
    pthread_mutex_unlock(&tci_cache.lock);
    return m;
}

static void tci_module_free(tci_module *m)
{
    if (m->handle) {
        m->calls->module_free(m->calls->user, m->handle);
    }
    tci_str_free(&m->object);
    tci_code_release(m->memory);
}

static tci_module *tci_module_open(const tc_backend *calls, const char *path, const tci_str *object,
                                   char why[256])
{
    tci_code *memory = tci_code_make();
    tci_module *m = memory ? tci_code_get(memory, sizeof(*m)) : NULL;
    char *copy = m ? tci_code_copy_text(memory, path) : NULL;
    if (!copy) {
        tci_code_release(memory);
        strcpy(why, "out of memory");
        return NULL;
    }
    m->refs = 1;
    m->calls = calls;
    m->path = copy;
    m->memory = memory;
    if (calls->module_load(calls->user, object->text, object->n, path, &m->handle) != TC_OK) {
        const char *text = calls->last_error ? calls->last_error(calls->user) : "";
        snprintf(why, 256, "%s", text[0] ? text : "the module cannot be loaded");
        m->handle = NULL;
        tci_module_free(m);
        return NULL;
    }
    return m;
}

TCI_FN tci_module *tci_module_load(const tc_backend *calls, const char *path, const tci_str *object,
                                   tci_hash sum, char why[256])
{
    tci_module *m = tci_module_find(calls, path);
    if (m) {
        return m;
    }
    m = tci_module_open(calls, path, object, why);
    if (!m) {
        return NULL;
    }
    m->bytes = (int64_t)object->n;
    m->sum = sum;
    tci_cache_lock();
    tci_module *other = tci_module_look_up(calls, path);
    if (!other) {
        m->next = tci_cache.modules;
        tci_cache.modules = m;
        tci_cache_add_bytes(m->bytes, 0);
    }
    pthread_mutex_unlock(&tci_cache.lock);
    if (other) {
        tci_module_free(m);
        return other;
    }
    return m;
}

TCI_FN void tci_module_hold(tci_module *m, const tci_str *object)
{
    tci_str copy = {0};
    tci_str_add_n(&copy, object->text, object->n);
    tci_cache_lock();
    bool first = !m->object.n && !copy.failed;
    if (first) {
        m->object = copy;
    }
    pthread_mutex_unlock(&tci_cache.lock);
    if (!first) {
        tci_str_free(&copy);
    }
}

TCI_FN bool tci_module_bytes(tci_module *m, tci_str *out)
{
    tci_cache_lock();
    bool held = m->object.n > 0; /* set once */
    pthread_mutex_unlock(&tci_cache.lock);
    if (held) {
        tci_str_add_n(out, m->object.text, m->object.n);
        return !out->failed;
    }
    if (!m->stored || !tci_os_read_private(m->path, out, NULL)) {
        return false;
    }
    tci_hash sum = tci_hash_bytes(out->text, out->n);
    return sum.lo == m->sum.lo && sum.hi == m->sum.hi;
}

TCI_FN void tci_module_retain(tci_module *m)
{
    tci_cache_lock();
    m->refs++;
    pthread_mutex_unlock(&tci_cache.lock);
}

/* The caller holds the lock. */
static void tci_module_unlink(tci_module *m)
{
    tci_module **at = &tci_cache.modules;
    while (*at != m) {
        at = &(*at)->next;
    }
    *at = m->next;
    tci_cache_add_bytes(-m->bytes, 0);
    for (int i = 0; i < TCI_CACHE_BUCKETS && m->n_kernels; i++) {
        tci_module_kernel **k = &tci_cache.kernels[i];
        while (*k) {
            if ((*k)->module == m) {
                *k = (*k)->next;
                m->n_kernels--;
            } else {
                k = &(*k)->next;
            }
        }
    }
}

TCI_FN void tci_module_release(tci_module *m)
{
    tci_cache_lock();
    bool last = --m->refs == 0;
    if (last) {
        tci_module_unlink(m);
    }
    pthread_mutex_unlock(&tci_cache.lock);
    if (last) {
        tci_module_free(m);
    }
}

/* ---- kernels ---- */

/* The caller holds the lock. */
static tci_module_kernel *tci_module_look_up_kernel(const tc_backend *calls, const void *key,
                                                    size_t key_bytes, tci_hash hash)
{
    tci_module_kernel *k = tci_cache.kernels[hash.lo % TCI_CACHE_BUCKETS];
    while (k && (k->hash.lo != hash.lo || k->hash.hi != hash.hi || k->module->calls != calls ||
                 k->key_bytes != key_bytes || memcmp(k->key, key, key_bytes))) {
        k = k->next;
    }
    return k;
}

TCI_FN void tci_module_offer(tci_module *m, const void *key, size_t key_bytes, tci_hash hash,
                             const tci_kernel_record *record, void *function)
{
    tci_cache_lock();
    if (!tci_module_look_up_kernel(m->calls, key, key_bytes, hash)) {
        tci_module_kernel *k = tci_code_get(m->memory, sizeof(*k));
        uint8_t *key_copy = k ? tci_code_get(m->memory, key_bytes) : NULL;
        char *symbol = key_copy ? tci_code_copy_text(m->memory, record->symbol) : NULL;
        char *note = symbol ? tci_code_copy_text(m->memory, record->note) : NULL;
        size_t dims_bytes = sizeof(*record->dims) * (size_t)record->n_dims;
        tci_dim *dims = note ? tci_code_get(m->memory, dims_bytes) : NULL;
        if (dims) {
            memcpy(key_copy, key, key_bytes);
            k->hash = hash;
            k->key = key_copy;
            k->key_bytes = key_bytes;
            k->record = *record;
            k->record.symbol = symbol;
            k->record.note = note;
            for (int i = 0; i < record->n_dims; i++) {
                dims[i] = record->dims[i];
            }
            k->record.dims = dims;
            k->function = function;
            k->module = m;
            k->next = tci_cache.kernels[hash.lo % TCI_CACHE_BUCKETS];
            tci_cache.kernels[hash.lo % TCI_CACHE_BUCKETS] = k;
            m->n_kernels++;
        }
    }
    pthread_mutex_unlock(&tci_cache.lock);
}

TCI_FN bool tci_module_find_kernel(const tc_backend *calls, const void *key, size_t key_bytes,
                                   tci_hash hash, tci_module_kernel *found)
{
    tci_cache_lock();
    tci_module_kernel *k = tci_module_look_up_kernel(calls, key, key_bytes, hash);
    if (k) {
        *found = *k;
        k->module->refs++;
    }
    pthread_mutex_unlock(&tci_cache.lock);
    return k != NULL;
}
