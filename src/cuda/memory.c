/* cuda/memory.c - allocates GPU memory, for programs and for users: suballocates medium sizes from
 * slabs, passes the others to the driver.
 *
 * In: sizes. Out: memory of a device. The driver suballocates small sizes, but gives everything
 * else in pages of 2 MB, so each 1.2 MB weight of a network would take 2 MB. Design: a size for
 * which pages would waste much is a suballocation from a slab, shared with others; each new slab is
 * 1/8 of the total so far, so that little of the last one is wasted.
 *
 * Invariants: suballocations of a slab are in ascending order and larger than TCI_CUDA_SMALL; an
 * empty slab is returned to the driver. Like the driver's free, freeing a suballocation waits for
 * the device first. In a child made by fork nothing here is reached, so no thread can hold the lock
 * there. */
#include <string.h>

#include "../base/alloc.h"
#include "../base/os.h"
#include "device.h"

enum { /* bytes */
       TCI_CUDA_ALIGN = 256,
       TCI_CUDA_SMALL = 1 << 20, /* up to here the driver shares out pages */
       TCI_CUDA_PAGE = 2 << 20,
       TCI_CUDA_PIECE_MOST = 8 << 20,
       TCI_CUDA_SLAB_MOST = 16 << 20
};
enum { TCI_CUDA_WASTE = 16 }; /* one in this many bytes may be wasted */

typedef struct tci_cuda_piece {
    int64_t begin, end;
} tci_cuda_piece;

typedef struct tci_cuda_slab tci_cuda_slab;
struct tci_cuda_slab {
    tci_cuda_slab *next;
    tci_cu_ptr memory;
    int64_t bytes;
    int n;
    tci_cuda_piece pieces[TCI_CUDA_SLAB_MOST / TCI_CUDA_SMALL];
};

static struct {
    tci_mutex lock;
    tci_cuda_slab *slabs[TCI_CUDA_DEVICES]; /* the oldest first */
} tci_cuda_memory = {.lock = TCI_MUTEX_INIT};

static int64_t tci_cuda_round_up(int64_t bytes, int64_t unit)
{
    return tci_ceil_div(bytes, unit) * unit;
}

static bool tci_cuda_is_piece(int64_t bytes)
{
    int64_t waste = tci_cuda_round_up(bytes, TCI_CUDA_PAGE) - bytes;
    return bytes > TCI_CUDA_SMALL && bytes <= TCI_CUDA_PIECE_MOST && waste * TCI_CUDA_WASTE > bytes;
}

/* A gap of the slab for this many bytes: the piece before which they go, *begin; -1: none. */
static int tci_cuda_find_room(const tci_cuda_slab *s, int64_t bytes, int64_t *begin)
{
    *begin = 0;
    for (int i = 0; i <= s->n; i++) {
        int64_t end = i < s->n ? s->pieces[i].begin : s->bytes;
        if (end - *begin >= bytes) {
            return i;
        }
        *begin = i < s->n ? s->pieces[i].end : end;
    }
    return -1;
}

/* A slab with this many free bytes, the last of the list; NULL: the device has no memory. */
static tci_cuda_slab *tci_cuda_add_slab(const tci_cuda_stay *in, int64_t bytes)
{
    tci_cuda_slab **at = &tci_cuda_memory.slabs[in->d->index];
    int64_t all = 0;
    for (; *at; at = &(*at)->next) {
        all += (*at)->bytes;
    }
    tci_cuda_slab *s = tci_heap_get(sizeof(*s));
    if (!s) {
        return NULL;
    }
    int64_t wanted = TCI_MIN(all / 8, (int64_t)TCI_CUDA_SLAB_MOST);
    s->bytes = tci_cuda_round_up(TCI_MAX(bytes, wanted), TCI_CUDA_PAGE);
    if (tci_cuda_check(in->cu->alloc(&s->memory, (size_t)s->bytes), "cuMemAlloc")) {
        tci_heap_free(s);
        return NULL;
    }
    *at = s;
    return s;
}

static tci_cu_ptr tci_cuda_cut(const tci_cuda_stay *in, int64_t bytes)
{
    int64_t begin = 0;
    int before = -1;
    bytes = tci_cuda_round_up(bytes, TCI_CUDA_ALIGN);
    tci_cuda_slab *s = tci_cuda_memory.slabs[in->d->index];
    while (s && (before = tci_cuda_find_room(s, bytes, &begin)) < 0) {
        s = s->next;
    }
    if (!s) {
        s = tci_cuda_add_slab(in, bytes);
        begin = before = 0;
    }
    if (!s) {
        return 0;
    }
    tci_cuda_piece *p = &s->pieces[before];
    memmove(p + 1, p, sizeof(*p) * (size_t)(s->n - before));
    *p = (tci_cuda_piece){begin, begin + bytes};
    s->n++;
    return s->memory + (tci_cu_ptr)begin;
}

/* False: it is no piece. */
static bool tci_cuda_put_back(const tci_cuda_stay *in, tci_cu_ptr memory)
{
    tci_cuda_slab **at = &tci_cuda_memory.slabs[in->d->index], *s;
    while ((s = *at) && (memory < s->memory || memory >= s->memory + (tci_cu_ptr)s->bytes)) {
        at = &s->next;
    }
    if (!s) {
        return false;
    }
    tci_cuda_piece *p = s->pieces;
    while (s->memory + (tci_cu_ptr)p->begin != memory) {
        p++;
    }
    in->cu->context_wait();
    s->n--;
    memmove(p, p + 1, sizeof(*p) * (size_t)(s->pieces + s->n - p));
    if (!s->n) {
        *at = s->next;
        in->cu->free(s->memory);
        tci_heap_free(s);
    }
    return true;
}

TCI_FN void *tci_cuda_get_memory(void *user, int64_t bytes)
{
    tci_cu_ptr p = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(&in, in.cu->alloc(&p, (size_t)bytes), "cuMemAlloc");
    return status ? NULL : (void *)(uintptr_t)p;
}

TCI_FN void tci_cuda_free_memory(void *user, void *memory)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->free((tci_cu_ptr)(uintptr_t)memory);
    }
    tci_cuda_leave(&in, TC_OK);
}

TCI_FN void *tci_cuda_alloc(void *user, int64_t bytes)
{
    if (!tci_cuda_is_piece(bytes)) {
        return tci_cuda_get_memory(user, bytes);
    }
    tci_cu_ptr p = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        pthread_mutex_lock(&tci_cuda_memory.lock);
        p = tci_cuda_cut(&in, bytes);
        pthread_mutex_unlock(&tci_cuda_memory.lock);
    }
    tci_cuda_leave(&in, TC_OK);
    return (void *)(uintptr_t)p;
}

TCI_FN void tci_cuda_free(void *user, void *memory)
{
    bool is_piece = false;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        pthread_mutex_lock(&tci_cuda_memory.lock);
        is_piece = tci_cuda_put_back(&in, (tci_cu_ptr)(uintptr_t)memory);
        pthread_mutex_unlock(&tci_cuda_memory.lock);
    }
    tci_cuda_leave(&in, TC_OK);
    if (!is_piece) {
        tci_cuda_free_memory(user, memory);
    }
}
