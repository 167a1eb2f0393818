/* run/device_residency.c - device residency: keeps device copies of captured memory between runs,
 * and uploads those that are outdated.
 *
 * In: a storage that a program captured, and the device of the program. Out: device memory that
 * holds the storage's bytes.
 *
 * Design: a storage counts its versions, and each copy stores which version it is. A run uploads
 * only outdated copies. A parameter that a run changed stays on the device until its bytes are
 * needed in host memory.
 *
 * Data: tci_storage.residents, one entry per device, only ever pushed in front; tci_storage.ahead,
 * the dirty entry (newer than host memory), or NULL; the number of storages with such an entry, so
 * that host programs check only then. All of it changes under one lock; a run that finds the newest
 * version reads it without the lock. A parameter is claimed exclusively by the run
 * (tci_param_claim): runs change it, and only then can an entry be dirty. */
#include "../base/alloc.h"
#include "runtime_structs.h"
#include "device_memory.h"

struct tci_copies {
    tci_copies *next;
    const tc_backend *device;
    void *memory;
    uint64_t held; /* 1 + the version that it holds; 0: none */
};

static struct {
    tci_mutex lock;
    int64_t n_ahead; /* atomic */
} tci_residents = {.lock = TCI_MUTEX_INIT};

TCI_FN void tci_copies_announce(void)
{
    tci_os_keep_over_fork(&tci_residents.lock, NULL);
}

static void tci_copies_lock(void)
{
    tci_param_start();
    pthread_mutex_lock(&tci_residents.lock);
}

static uint64_t tci_copies_version(const tci_storage *s)
{
    return __atomic_load_n(&s->version, __ATOMIC_RELAXED) + 1;
}

static void tci_copies_unlock(void)
{
    pthread_mutex_unlock(&tci_residents.lock);
}

static tci_copies *tci_copies_find(const tci_storage *s, const tc_backend *device)
{
    tci_copies *r = __atomic_load_n(&s->residents, __ATOMIC_ACQUIRE);
    while (r && r->device != device) {
        r = r->next;
    }
    return r;
}

static void tci_copies_set_ahead(tci_storage *s, tci_copies *r)
{
    __atomic_add_fetch(&tci_residents.n_ahead, (r != NULL) - (s->ahead != NULL), __ATOMIC_RELAXED);
    s->ahead = r;
}

/* Caller holds the lock. */
static tc_status tci_copies_fetch(tci_storage *s)
{
    tci_copies *r = s->ahead;
    if (!r) {
        return TC_OK;
    }
    tc_status status = r->device->download(r->device->user, s->data, r->memory, s->bytes);
    if (!status) {
        tci_copies_set_ahead(s, NULL);
    }
    return status;
}

static tci_copies *tci_copies_make(tci_storage *s, const tc_backend *device)
{
    tci_copies *r = tci_heap_get(sizeof(*r));
    void *memory = r ? tci_device_memory_try(device, s->bytes) : NULL;
    if (!memory) {
        tci_heap_free(r);
        return NULL;
    }
    r->next = s->residents;
    r->device = device;
    r->memory = memory;
    __atomic_store_n(&s->residents, r, __ATOMIC_RELEASE);
    return r;
}

/* Caller holds the lock. */
static tc_status tci_copies_update(tci_storage *s, const tc_backend *device, void **memory)
{
    tci_copies *r = tci_copies_find(s, device);
    r = r ? r : tci_copies_make(s, device);
    if (!r) {
        return TC_ERR_MEMORY;
    }
    *memory = r->memory;
    tc_status status = TC_OK;
    if (r->held != tci_copies_version(s)) {
        status = tci_copies_fetch(s); /* another device has the newest */
        status = status ? status : device->upload(device->user, r->memory, s->data, s->bytes);
    }
    if (!status) {
        __atomic_store_n(&r->held, tci_copies_version(s), __ATOMIC_RELEASE);
    }
    return status;
}

TCI_FN tc_status tci_copies_bring(tci_storage *s, const tc_backend *device, void **memory)
{
    const tci_copies *r = tci_copies_find(s, device);
    if (TCI_LIKELY(r && __atomic_load_n(&r->held, __ATOMIC_ACQUIRE) == tci_copies_version(s))) {
        *memory = r->memory;
        return TC_OK;
    }
    tci_copies_lock();
    tc_status status = tci_copies_update(s, device, memory);
    tci_copies_unlock();
    if (status == TC_ERR_MEMORY) { /* what is given back takes other locks */
        tci_device_memory_reclaim(device);
        tci_copies_lock();
        status = tci_copies_update(s, device, memory);
        tci_copies_unlock();
    }
    return status;
}

TCI_FN void tci_copies_changed(tci_storage *s, const tc_backend *device)
{
    if (TCI_LIKELY(!__atomic_load_n(&s->residents, __ATOMIC_ACQUIRE))) {
        __atomic_add_fetch(&s->version, 1, __ATOMIC_RELAXED);
        return;
    }
    tci_copies_lock();
    tci_copies *r = device ? tci_copies_find(s, device) : NULL;
    __atomic_add_fetch(&s->version, 1, __ATOMIC_RELAXED);
    if (r) {
        __atomic_store_n(&r->held, tci_copies_version(s), __ATOMIC_RELEASE);
    }
    tci_copies_set_ahead(s, r);
    tci_copies_unlock();
}

TCI_FN tc_status tci_copies_home(tci_storage *s)
{
    if (TCI_LIKELY(__atomic_load_n(&tci_residents.n_ahead, __ATOMIC_RELAXED) == 0)) {
        return TC_OK;
    }
    tci_copies_lock();
    tc_status status = tci_copies_fetch(s);
    tci_copies_unlock();
    return status;
}

TCI_FN void tci_copies_free(tci_storage *s)
{
    if (TCI_LIKELY(!s->residents)) {
        return;
    }
    tci_copies_lock();
    tci_copies_set_ahead(s, NULL);
    tci_copies_unlock();
    while (s->residents) {
        tci_copies *r = s->residents;
        s->residents = r->next;
        tci_device_memory_free(r->device, r->memory, s->bytes);
        tci_heap_free(r);
    }
}
