/* run/device_memory.c - allocates device memory with accounting, and frees cached buffers when it
 * runs out.
 *
 * In: requests for device memory. Out: memory, or the reason why there is none.
 *
 * Design: the memory of idle calls (workspaces, copies of the user's buffers) is a cache that the
 * next run fills again. Before a run fails with out-of-memory, all programs of that device free
 * their idle calls, and the request is tried once more. */
#include "device_memory.h"

#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"

enum { TCI_DEVICE_MEMORY_DEVICES = 32 };

static struct {
    tci_mutex lock;
    void (*free_call)(tc_call *c);
    tc_program *first; /* programs that run on devices, by next_on_device */
    /* bytes that tc holds, by device in order of first use; atomic */
    const tc_backend *devices[TCI_DEVICE_MEMORY_DEVICES];
    int64_t held[TCI_DEVICE_MEMORY_DEVICES];
} tci_device_memory = {.lock = TCI_MUTEX_INIT};

/* The last failure, and what was told of it. */
static _Thread_local char tci_device_memory_why[400], tci_device_memory_told[400];

TCI_FN void tci_device_memory_announce(void)
{
    tci_os_keep_over_fork(&tci_device_memory.lock, NULL);
}

TCI_FN const char *tci_device_memory_text(void)
{
    memcpy(tci_device_memory_told, tci_device_memory_why, sizeof(tci_device_memory_told));
    tci_device_memory_why[0] = 0;
    return tci_device_memory_told;
}

TCI_FN void tci_device_memory_enter(tc_program *f, void (*free_call)(tc_call *c))
{
    pthread_mutex_lock(&tci_device_memory.lock);
    tci_device_memory.free_call = free_call;
    f->next_on_device = tci_device_memory.first;
    tci_device_memory.first = f;
    pthread_mutex_unlock(&tci_device_memory.lock);
}

TCI_FN void tci_device_memory_leave(tc_program *f)
{
    pthread_mutex_lock(&tci_device_memory.lock);
    tc_program **at = &tci_device_memory.first;
    while (*at != f) {
        at = &(*at)->next_on_device;
    }
    *at = f->next_on_device;
    pthread_mutex_unlock(&tci_device_memory.lock);
}

/* Where the device's bytes are counted; NULL: there are too many devices. */
static int64_t *tci_device_memory_held(const tc_backend *device)
{
    for (int i = 0; i < TCI_DEVICE_MEMORY_DEVICES; i++) {
        const tc_backend *none = NULL;
        if (__atomic_load_n(&tci_device_memory.devices[i], __ATOMIC_RELAXED) == device ||
            __atomic_compare_exchange_n(&tci_device_memory.devices[i], &none, device, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
            none == device) {
            return &tci_device_memory.held[i];
        }
    }
    return NULL;
}

static void tci_device_memory_count(const tc_backend *device, int64_t bytes)
{
    int64_t *held = tci_device_memory_held(device);
    if (held) {
        __atomic_add_fetch(held, bytes, __ATOMIC_RELAXED);
    }
}

TCI_FN void tci_device_memory_free(const tc_backend *device, void *memory, int64_t bytes)
{
    device->free(device->user, memory);
    tci_device_memory_count(device, -bytes);
}

static void tci_device_memory_tell(const tc_backend *device, int64_t bytes)
{
    int64_t left = -1, all = -1, *held = tci_device_memory_held(device);
    char room[80] = "", said[120] = "";
    const char *why = device->last_error ? device->last_error(device->user) : NULL;
    snprintf(said, sizeof(said), "%s", why ? why : "");
    if (device->memory_left && !device->memory_left(device->user, &left, &all)) {
        snprintf(room, sizeof(room), ", %lld of its %lld bytes are free", (long long)left,
                 (long long)all);
    }
    snprintf(tci_device_memory_why, sizeof(tci_device_memory_why),
             "%s gave no memory: wanted %lld bytes%s, tc holds %lld; idle workspaces were "
             "given back%s%s",
             device->name, (long long)bytes, room,
             held ? (long long)__atomic_load_n(held, __ATOMIC_RELAXED) : -1LL,
             said[0] ? "; it says: " : "", said);
}

TCI_FN void *tci_device_memory_try(const tc_backend *device, int64_t bytes)
{
    void *memory = device->alloc(device->user, bytes);
    if (memory) {
        tci_device_memory_count(device, bytes);
        tci_device_memory_why[0] = 0;
    } else {
        tci_device_memory_tell(device, bytes);
    }
    return memory;
}

/* The idle calls of f, as a list. Under the room's lock. */
static tc_call *tci_device_memory_take_idle(tc_program *f, tc_call *list)
{
    tc_call *spare = __atomic_exchange_n(&f->spare, NULL, __ATOMIC_ACQUIRE);
    pthread_mutex_lock(f->lock);
    tc_call *idle = f->idle;
    f->idle = NULL;
    pthread_mutex_unlock(f->lock);
    while (idle) {
        tc_call *next = idle->next;
        idle->next = list;
        list = idle;
        idle = next;
    }
    if (spare) {
        spare->next = list;
        list = spare;
    }
    return list;
}

TCI_FN void tci_device_memory_reclaim(const tc_backend *device)
{
    tc_call *list = NULL;
    void (*free_call)(tc_call *c);
    pthread_mutex_lock(&tci_device_memory.lock);
    for (tc_program *f = tci_device_memory.first; f; f = f->next_on_device) {
        if (f->code->device == device) {
            list = tci_device_memory_take_idle(f, list);
        }
    }
    free_call = tci_device_memory.free_call;
    pthread_mutex_unlock(&tci_device_memory.lock);
    while (list) {
        tc_call *next = list->next;
        free_call(list);
        list = next;
    }
    tci_cache_trim();
}

TCI_FN void *tci_device_memory_get(const tc_backend *device, int64_t bytes)
{
    void *memory = tci_device_memory_try(device, bytes);
    if (!memory) {
        tci_device_memory_reclaim(device);
        memory = tci_device_memory_try(device, bytes);
    }
    return memory;
}
