/* run/init_cache.c - results of a program's init section, cached across runs and shared between
 * programs.
 *
 * In: a call whose program has an init section, and the current versions of the captured memory
 * that the section reads. Out: memory with the results of each unit of the section
 * (compile/compiled_code.h).
 *
 * Design: results never change once computed; when captured memory changes, new results replace
 * them. Runs in flight keep the results that they started with, and a call that finds the versions
 * it knows takes no lock. Memory of outdated results is reused if it has no other reference.
 * Concurrent callers that need a missing result each compute it, and all but the first drop theirs.
 *
 * A unit is found by its key: the kernels and their operands, the captured storages and their
 * versions, the values of literals. Programs over the same weights (two sequence lengths of one
 * model) therefore pack them once. A unit lives as long as a program or call holds it; each of
 * these holds the storages too, so an address in a key cannot be reused by other memory.
 *
 * Counts of tci_init_cache and tc_program.kept change under the lock of the keeper: the program
 * itself, or the family of an instance, since all its instances compute the same. Units and their
 * counts change under the lock of the store, which is the inner lock. */
#include <string.h>

#include "../base/alloc.h"
#include "runtime_structs.h"
#include "device_memory.h"

typedef struct tci_init_cache_unit {
    struct tci_init_cache_unit *next; /* of the same bucket */
    int32_t refs;                     /* of tci_init_cache */
    bool is_listed;                   /* others may find it: it is computed */
    const tc_backend *device;         /* whose memory it is; NULL: the host's */
    void *memory;
    int64_t bytes;
    uint64_t hash;
    void *key;
    size_t key_bytes;
} tci_init_cache_unit;

struct tci_init_cache {
    int32_t refs;
    bool is_ready; /* computed, from these: */
    int n_units;
    tci_init_cache_unit **units;
    uint64_t versions[];
};

enum { TCI_INIT_CACHE_BUCKETS = 1024 };
static struct tci_init_cache_store {
    tci_mutex lock;
    int64_t bytes; /* of all units, listed or not */
    tci_init_cache_unit *buckets[TCI_INIT_CACHE_BUCKETS];
} tci_init_cache_store = {.lock = TCI_MUTEX_INIT};

/* ---- units ---- */

static void tci_init_cache_lock(void)
{
    tci_os_keep_over_fork(&tci_init_cache_store.lock, NULL);
    pthread_mutex_lock(&tci_init_cache_store.lock);
}

static void tci_init_cache_unlock(void)
{
    pthread_mutex_unlock(&tci_init_cache_store.lock);
}

static tci_init_cache_unit **tci_init_cache_bucket(uint64_t hash)
{
    return &tci_init_cache_store.buckets[hash % TCI_INIT_CACHE_BUCKETS];
}

/* Under the lock of the store, as what follows. NULL: there is none. */
static tci_init_cache_unit *tci_init_cache_find(const tci_init_cache_unit *like)
{
    tci_init_cache_unit *u = *tci_init_cache_bucket(like->hash);
    while (u && (u->hash != like->hash || u->key_bytes != like->key_bytes ||
                 memcmp(u->key, like->key, like->key_bytes) != 0)) {
        u = u->next;
    }
    return u;
}

static void tci_init_cache_unlist(tci_init_cache_unit *u)
{
    tci_init_cache_unit **at = tci_init_cache_bucket(u->hash);
    while (u->is_listed && *at != u) {
        at = &(*at)->next;
    }
    if (u->is_listed) {
        *at = u->next;
        u->is_listed = false;
    }
}

static void tci_init_cache_list(tci_init_cache_unit *u)
{
    tci_init_cache_unit **at = tci_init_cache_bucket(u->hash);
    u->next = *at;
    *at = u;
    u->is_listed = true;
}

/* Frees a unit that is in no list and has no holder. Without the lock. */
static void tci_init_cache_free_unit(tci_init_cache_unit *u)
{
    if (u->memory && u->device) {
        tci_device_memory_free(u->device, u->memory, u->bytes);
    } else if (u->memory) {
        tci_heap_free_aligned(u->memory);
    }
    tci_heap_free(u->key);
    tci_heap_free(u);
}

static void tci_init_cache_release(tci_init_cache_unit *u)
{
    tci_init_cache_lock();
    bool last = --u->refs == 0;
    if (last) {
        tci_init_cache_unlist(u);
        tci_init_cache_store.bytes -= u->memory ? u->bytes : 0;
    }
    tci_init_cache_unlock();
    if (last) {
        tci_init_cache_free_unit(u);
    }
}

TCI_FN int64_t tci_init_cache_total(void)
{
    tci_init_cache_lock();
    int64_t bytes = tci_init_cache_store.bytes;
    tci_init_cache_unlock();
    return bytes;
}

/* ---- keys ---- */

/* The version of a captured leaf among those that were noted, or that of now. */
static uint64_t tci_init_cache_version(const tc_program *f, const uint64_t *versions, int32_t leaf)
{
    for (int i = 0; i < f->n_once && versions; i++) {
        if (f->once[i] == leaf) {
            return versions[i];
        }
    }
    return __atomic_load_n(&f->captured[leaf]->version, __ATOMIC_ACQUIRE);
}

/* A unit without memory, held once. NULL: no memory. */
static tci_init_cache_unit *tci_init_cache_make_unit(const tc_program *f, const uint64_t *versions,
                                                     int unit)
{
    const tci_code_unit *from = &f->code->units[unit];
    const tc_backend *device = f->code->device;
    size_t n = (size_t)from->n_identity;
    size_t bytes = n + (3 * (size_t)from->n_leaves + (size_t)from->n_literals) * sizeof(uint64_t);
    tci_init_cache_unit *u = tci_heap_get(sizeof(*u));
    char *key = u ? tci_heap_get(TCI_MAX(bytes, (size_t)1)) : NULL;
    if (!key) {
        tci_heap_free(u);
        return NULL;
    }
    *u = (tci_init_cache_unit){.refs = 1,
                               .device = device && device->alloc ? device : NULL,
                               .bytes = TCI_MAX(from->bytes, (int64_t)1),
                               .key = key,
                               .key_bytes = bytes};
    memcpy(key, from->identity ? from->identity : "", n);
    key += n;
    for (int i = 0; i < from->n_leaves; i++, key += 3 * sizeof(uint64_t)) {
        int32_t leaf = from->leaves[i];
        uint64_t words[3] = {(uint64_t)(uintptr_t)f->captured[leaf],
                             (uint64_t)(uintptr_t)f->captured_data[leaf],
                             tci_init_cache_version(f, versions, leaf)};
        memcpy(key, words, sizeof(words));
    }
    for (int i = 0; i < from->n_literals; i++, key += sizeof(uint64_t)) {
        memcpy(key, &f->literals[from->literals[i]], sizeof(uint64_t));
    }
    u->hash = tci_hash_bytes(u->key, bytes).lo;
    return u;
}

/* The listed unit like u, which goes then, or u. Under no lock. */
static tci_init_cache_unit *tci_init_cache_take_listed(tci_init_cache_unit *u, bool lists)
{
    tci_init_cache_lock();
    tci_init_cache_unit *there = tci_init_cache_find(u);
    if (there) {
        there->refs++;
        tci_init_cache_store.bytes -= u->memory ? u->bytes : 0;
    } else if (lists) {
        tci_init_cache_list(u);
    }
    tci_init_cache_unlock();
    if (there) {
        tci_init_cache_free_unit(u);
    }
    return there ? there : u;
}

/* u takes over the memory of an outdated unit without another holder. */
static void tci_init_cache_reuse(tci_init_cache_unit *u, tci_init_cache_unit *old)
{
    tci_init_cache_lock();
    if (old->refs == 1 && old->memory && old->bytes == u->bytes && old->device == u->device) {
        tci_init_cache_unlist(old);
        u->memory = old->memory;
        old->memory = NULL;
    }
    tci_init_cache_unlock();
}

static bool tci_init_cache_get_memory(tci_init_cache_unit *u)
{
    if (!u->memory) {
        u->memory = u->device ? tci_device_memory_get(u->device, u->bytes)
                              : tci_heap_get_aligned((size_t)u->bytes);
        tci_init_cache_lock();
        tci_init_cache_store.bytes += u->memory ? u->bytes : 0;
        tci_init_cache_unlock();
    }
    return u->memory != NULL;
}

/* ---- all units of a program ---- */

static bool tci_init_cache_fits(const tci_init_cache *k, const tc_call *c)
{
    size_t bytes = sizeof(*c->versions) * (size_t)c->program->n_once;
    return k && k->is_ready && !memcmp(k->versions, c->versions, bytes);
}

TCI_FN void tci_init_cache_note(tc_call *c)
{
    const tc_program *f = c->program;
    for (int i = 0; i < f->n_once; i++) {
        c->versions[i] = __atomic_load_n(&f->captured[f->once[i]]->version, __ATOMIC_ACQUIRE);
    }
}

TCI_FN bool tci_init_cache_is_current(const tc_call *c)
{
    return tci_init_cache_fits(c->kept, c);
}

TCI_FN void *tci_init_cache_memory(const tc_call *c, int unit)
{
    return c->kept->units[unit]->memory;
}

TCI_FN bool tci_init_cache_wants(const tc_call *c, int unit)
{
    return !c->kept->is_ready && !c->kept->units[unit]->is_listed;
}

static void tci_init_cache_destroy(tci_init_cache *k)
{
    for (int i = 0; k && i < k->n_units; i++) {
        tci_init_cache_release(k->units[i]);
    }
    tci_heap_free(k);
}

/* Units that are listed are computed; the others have memory to be computed in. old: outdated, held
 * by no other program; or NULL. NULL: no memory. */
static tci_init_cache *tci_init_cache_make(const tc_program *f, const uint64_t *versions,
                                           const tci_init_cache *old)
{
    size_t words = sizeof(uint64_t) * (size_t)f->n_captured;
    tci_init_cache *k = tci_heap_get(sizeof(*k) + words +
                                     sizeof(void *) * (size_t)f->code->n_units);
    bool made = k != NULL;
    if (made) {
        k->refs = 1;
        k->units = (tci_init_cache_unit **)(void *)((char *)(k + 1) + words);
    }
    for (int i = 0; i < f->code->n_units && made; i++) {
        tci_init_cache_unit *u = tci_init_cache_make_unit(f, versions, i);
        made = u != NULL;
        if (made) {
            u = f->code->units[i].is_shared ? tci_init_cache_take_listed(u, false) : u;
            k->units[k->n_units++] = u;
            if (!u->is_listed && old) {
                tci_init_cache_reuse(u, old->units[i]);
            }
            made = tci_init_cache_get_memory(u);
        }
    }
    if (!made) {
        tci_init_cache_destroy(k);
    }
    return made ? k : NULL;
}

/* Publishes computed units to other programs, or takes theirs if they are already there. */
static void tci_init_cache_list_all(tci_init_cache *k, const tc_program *f)
{
    for (int i = 0; i < k->n_units; i++) {
        if (!k->units[i]->is_listed && f->code->units[i].is_shared) {
            k->units[i] = tci_init_cache_take_listed(k->units[i], true);
        }
    }
}

/* The caller holds the lock. Returns what has no holder any more, to be destroyed without it. */
static tci_init_cache *tci_init_cache_let_go(tci_init_cache *k)
{
    return k && --k->refs == 0 ? k : NULL;
}

TCI_FN tc_status tci_init_cache_take(tc_call *c, bool *ready)
{
    tc_program *keeper = c->program->keeper;
    tci_init_cache *mine = c->kept, *old = NULL;
    pthread_mutex_lock(keeper->lock);
    *ready = tci_init_cache_fits(keeper->kept, c);
    c->kept = NULL;
    if (*ready) {
        c->kept = keeper->kept;
        c->kept->refs++;
    } else if (mine && mine->refs == 1 + (mine == keeper->kept)) { /* no other run reads it */
        keeper->kept = mine == keeper->kept ? NULL : keeper->kept;
        mine->refs = 1;
    }
    old = tci_init_cache_let_go(mine);
    pthread_mutex_unlock(keeper->lock);
    c->kept = c->kept ? c->kept : tci_init_cache_make(c->program, c->versions, old);
    tci_init_cache_destroy(old);
    return c->kept ? TC_OK : TC_ERR_MEMORY;
}

TCI_FN void tci_init_cache_publish(tc_call *c)
{
    tc_program *keeper = c->program->keeper;
    tci_init_cache *mine = c->kept, *dropped;
    memcpy(mine->versions, c->versions, sizeof(*c->versions) * (size_t)c->program->n_once);
    tci_init_cache_list_all(mine, c->program);
    pthread_mutex_lock(keeper->lock);
    if (tci_init_cache_fits(keeper->kept, c)) {
        c->kept = keeper->kept;
        dropped = mine;
    } else {
        dropped = tci_init_cache_let_go(keeper->kept);
        mine->is_ready = true;
        keeper->kept = mine;
    }
    c->kept->refs++;
    pthread_mutex_unlock(keeper->lock);
    tci_init_cache_destroy(dropped);
}

TCI_FN void tci_init_cache_drop(tc_call *c)
{
    tci_init_cache *dropped = NULL;
    if (c->kept) {
        pthread_mutex_lock(c->program->keeper->lock);
        dropped = tci_init_cache_let_go(c->kept);
        pthread_mutex_unlock(c->program->keeper->lock);
        c->kept = NULL;
    }
    tci_init_cache_destroy(dropped);
}

/* ---- files ---- */

/* Copies between the units and one block, where the code's buffers are as it places them. */
static void tci_init_cache_move(const tci_code *c, const tci_init_cache *k, char *bytes, bool out)
{
    for (int i = 0; i < c->n_buffers && c->kept_places; i++) {
        const tci_code_buffer *b = &c->buffers[i];
        const tci_init_cache_place *place = &c->kept_places[i];
        if (b->kind == TCI_BUF_KEPT && (out || !k->units[place->unit]->is_listed)) {
            char *own = (char *)k->units[place->unit]->memory + place->offset;
            size_t n = (size_t)tci_dim_known(b->bytes);
            memcpy(out ? bytes + b->offset : own, out ? own : bytes + b->offset, n);
        }
    }
}

TCI_FN void tci_init_cache_copy(const tc_call *c, void *bytes)
{
    memset(bytes, 0, (size_t)c->program->code->kept_bytes);
    tci_init_cache_move(c->program->code, c->kept, bytes, true);
}

TCI_FN tc_status tci_init_cache_install(tc_program *f, const void *bytes, int64_t n)
{
    if (n != f->code->kept_bytes || (f->code->device && f->code->device->alloc)) {
        return TC_ERR_IO;
    }
    f->kept = tci_init_cache_make(f, NULL, NULL);
    if (!f->kept) {
        return TC_ERR_MEMORY;
    }
    tci_init_cache_move(f->code, f->kept, (char *)(uintptr_t)bytes, false);
    for (int i = 0; i < f->n_captured; i++) {
        f->kept->versions[i] = f->captured[0]->version;
    }
    tci_init_cache_list_all(f->kept, f);
    f->kept->is_ready = true;
    return TC_OK;
}

TCI_FN void tci_init_cache_free(tc_program *f)
{
    if (f->kept) {
        tci_init_cache_destroy(f->kept); /* its calls are gone */
        f->kept = NULL;
    }
}
