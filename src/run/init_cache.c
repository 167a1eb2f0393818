/* run/init_cache.c - results of a program's init section, cached from run to run.
 *
 * In: a call whose program has an init list, and the versions of the captured memory that the list
 * reads, as the run at hand finds them. Out: memory with what the list makes of that.
 *
 * The one idea: what is kept does not change once it is there; when captured memory changes,
 * another takes its place. So runs that go on at the time keep what they began with, and a call
 * that finds the versions it knows takes no lock. Where a call is the only one to hold what is
 * outdated, that memory is used again. Callers that meet when there is nothing each compute it, and
 * all but the first drop theirs.
 *
 * Counts and tc_program.kept change under the lock of the keeper: the program itself, or the family
 * of an instance, as all its instances compute the same. */
#include <string.h>

#include "../base/alloc.h"
#include "context.h"
#include "device_memory.h"

struct tci_kept {
    int32_t refs;
    bool is_ready;            /* computed, from these */
    const tc_backend *device; /* whose memory it is; NULL: the host's */
    void *memory;
    int64_t bytes;
    uint64_t versions[];
};

static bool tci_kept_fits(const tci_kept *k, const tc_call *c)
{
    size_t bytes = sizeof(*c->versions) * (size_t)c->program->n_once;
    return k && k->is_ready && !memcmp(k->versions, c->versions, bytes);
}

TCI_FN void tci_kept_note(tc_call *c)
{
    const tc_program *f = c->program;
    for (int i = 0; i < f->n_once; i++) {
        c->versions[i] = __atomic_load_n(&f->captured[f->once[i]]->version, __ATOMIC_ACQUIRE);
    }
}

TCI_FN bool tci_kept_is_current(const tc_call *c)
{
    return tci_kept_fits(c->kept, c);
}

TCI_FN void *tci_kept_memory(const tc_call *c)
{
    return c->kept->memory;
}

static void tci_kept_destroy(tci_kept *k)
{
    if (k->device) {
        tci_device_memory_free(k->device, k->memory, k->bytes);
    } else {
        tci_heap_free_aligned(k->memory);
    }
    tci_heap_free(k);
}

static tci_kept *tci_kept_make(const tc_program *f)
{
    const tc_backend *device = f->code->device;
    tci_kept *k = tci_heap_get(sizeof(*k) + sizeof(k->versions[0]) * (size_t)f->n_captured);
    if (!k) {
        return NULL;
    }
    k->refs = 1;
    k->device = device && device->alloc ? device : NULL;
    int64_t bytes = TCI_MAX(f->code->kept_bytes, (int64_t)1);
    k->memory = k->device ? tci_device_memory_get(device, bytes)
                          : tci_heap_get_aligned((size_t)bytes);
    k->bytes = bytes;
    if (!k->memory) {
        tci_heap_free(k);
        k = NULL;
    }
    return k;
}

/* The caller holds the lock. Returns what nobody holds any more, to be destroyed without it. */
static tci_kept *tci_kept_let_go(tci_kept *k)
{
    return k && --k->refs == 0 ? k : NULL;
}

TCI_FN tc_status tci_kept_take(tc_call *c, bool *ready)
{
    tc_program *keeper = c->program->keeper;
    tci_kept *mine = c->kept, *dropped = NULL;
    pthread_mutex_lock(keeper->lock);
    *ready = tci_kept_fits(keeper->kept, c);
    c->kept = NULL;
    if (*ready) {
        c->kept = keeper->kept;
        c->kept->refs++;
    } else if (mine && mine->refs == 1 + (mine == keeper->kept)) { /* nobody else reads it */
        keeper->kept = mine == keeper->kept ? NULL : keeper->kept;
        mine->refs = 1;
        mine->is_ready = false;
        c->kept = mine;
        mine = NULL;
    }
    dropped = tci_kept_let_go(mine);
    pthread_mutex_unlock(keeper->lock);
    if (dropped) {
        tci_kept_destroy(dropped);
    }
    c->kept = c->kept ? c->kept : tci_kept_make(c->program);
    return c->kept ? TC_OK : TC_ERR_MEMORY;
}

TCI_FN void tci_kept_publish(tc_call *c)
{
    tc_program *keeper = c->program->keeper;
    tci_kept *mine = c->kept, *dropped;
    memcpy(mine->versions, c->versions, sizeof(*c->versions) * (size_t)c->program->n_once);
    pthread_mutex_lock(keeper->lock);
    if (tci_kept_fits(keeper->kept, c)) {
        c->kept = keeper->kept;
        dropped = mine;
    } else {
        dropped = tci_kept_let_go(keeper->kept);
        mine->is_ready = true;
        keeper->kept = mine;
    }
    c->kept->refs++;
    pthread_mutex_unlock(keeper->lock);
    if (dropped) {
        tci_kept_destroy(dropped);
    }
}

TCI_FN void tci_kept_drop(tc_call *c)
{
    tci_kept *dropped = NULL;
    if (c->kept) {
        pthread_mutex_lock(c->program->keeper->lock);
        dropped = tci_kept_let_go(c->kept);
        pthread_mutex_unlock(c->program->keeper->lock);
        c->kept = NULL;
    }
    if (dropped) {
        tci_kept_destroy(dropped);
    }
}

TCI_FN tc_status tci_kept_install(tc_program *f, const void *bytes, int64_t n)
{
    if (n != f->code->kept_bytes || (f->code->device && f->code->device->alloc)) {
        return TC_ERR_IO;
    }
    f->kept = tci_kept_make(f);
    if (!f->kept) {
        return TC_ERR_MEMORY;
    }
    memcpy(f->kept->memory, bytes, (size_t)n);
    for (int i = 0; i < f->n_captured; i++) {
        f->kept->versions[i] = f->captured[0]->version;
    }
    f->kept->is_ready = true;
    return TC_OK;
}

TCI_FN void tci_kept_free(tc_program *f)
{
    if (f->kept) {
        tci_kept_destroy(f->kept); /* its calls are gone */
        f->kept = NULL;
    }
}
