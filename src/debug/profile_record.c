/* debug/profile_record.c - writes profiling records to per-thread ring buffers.
 *
 * In: hooks in runs, compiles and the pool; user marks (tc_mark_begin). Out: records, which
 * debug/profile.c collects.
 *
 * Design: a record is 32 bytes in a ring of its thread, so writing one takes no lock and no I/O,
 * and a kernel of 20 ns is not shown as 10 us. A ring grows by chunks until the profile's memory is
 * used up; then it wraps, and the oldest records are dropped and counted.
 *
 * Rings belong to threads and stay until the process ends; a thread that ends leaves its ring to
 * the next one that needs one. `busy` protects a ring while its thread writes: the thread sets it
 * and then checks that the profile is on; whoever ends the profile turns it off and then waits for
 * `busy`. Functions of higher layers (names of programs) are called through tci_profile_process. */
#include "profile.h"

#include <string.h>

#include "../base/system_headers.h"
#include "../run/runtime_structs.h"
#include "string_intern.h"

#ifndef TC_NO_DEBUG

static tci_profile_process tci_profile_now = {.lock = TCI_MUTEX_INIT};

TCI_FN tci_profile_process *tci_profile_state(void)
{
    return &tci_profile_now;
}

static _Thread_local tci_ring *tci_ring_own;
static _Thread_local const char *tci_ring_role;
static _Thread_local int tci_ring_number;

TCI_FN int tci_profile_watch(void)
{
    return __atomic_load_n(&tci_profile_now.watch, __ATOMIC_RELAXED);
}

TCI_FN bool tci_profile_exists(void)
{
    return tci_profile_now.n_profiles > 0;
}

TCI_FN bool tci_profile_times_devices(void)
{
    return !__atomic_load_n(&tci_profile_now.no_device, __ATOMIC_RELAXED);
}

TCI_FN uint32_t tci_profile_flow(void)
{
    return __atomic_add_fetch(&tci_profile_now.flow, 1, __ATOMIC_RELAXED);
}

TCI_FN void tci_profile_role(const char *role, int number)
{
    tci_ring_role = role;
    tci_ring_number = number;
}

/* ---- rings ---- */

/* The thread is gone: its ring may be another one's, after this profile. */
static void tci_ring_leave(void *ring)
{
    __atomic_store_n(&((tci_ring *)ring)->taken, 0, __ATOMIC_RELEASE);
}

/* A ring that no thread has and that holds nothing of this profile, or a new one. */
static tci_ring *tci_ring_take(void)
{
    tci_profile_process *p = &tci_profile_now;
    tci_ring *r = p->rings;
    pthread_mutex_lock(&p->lock);
    for (; r; r = r->next) {
        int none = 0;
        if (r->epoch != p->epoch &&
            __atomic_compare_exchange_n(&r->taken, &none, 1, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            break;
        }
    }
    if (!r) {
        r = tci_heap_get(sizeof(*r));
        if (r) {
            r->taken = 1;
            r->next = p->rings;
            __atomic_store_n(&p->rings, r, __ATOMIC_RELEASE);
        }
    }
    if (!p->has_key) {
        p->has_key = pthread_key_create(&p->key, tci_ring_leave) == 0;
    }
    if (r && p->has_key) {
        pthread_setspecific(p->key, r);
    }
    pthread_mutex_unlock(&p->lock);
    if (r) {
        r->id = tci_os_thread_id();
    }
    return r;
}

TCI_FN void tci_ring_restart(tci_ring *r, uint32_t epoch)
{
    for (int i = 0; i < r->n_chunks; i++) {
        tci_heap_free(r->chunks[i]);
    }
    tci_heap_free(r->chunks);
    r->chunks = NULL;
    r->n_chunks = r->cap_chunks = r->chunk = 0;
    r->at = TCI_RING_CHUNK;
    r->chunk = -1;
    r->wrapped = false;
    r->dropped = 0;
    r->n_marks = 0;
    memset(r->seen, 0, sizeof(r->seen));
    r->role = tci_ring_role ? tci_ring_role : tci_os_thread() == getpid() ? "main" : NULL;
    r->number = tci_ring_number;
    r->epoch = epoch;
}

/* Room for more after the last chunk. */
static bool tci_ring_grow(tci_ring *r)
{
    if (__atomic_sub_fetch(&tci_profile_now.budget, 1, __ATOMIC_RELAXED) < 0) {
        return false;
    }
    if (r->n_chunks == r->cap_chunks) {
        int cap = TCI_MAX(2 * r->cap_chunks, 16);
        tci_record **more = tci_heap_resize(r->chunks, (size_t)cap * sizeof(*more));
        if (!more) {
            return false;
        }
        r->chunks = more;
        r->cap_chunks = cap;
    }
    tci_record *chunk = tci_heap_resize(NULL, TCI_RING_CHUNK * sizeof(*chunk));
    if (chunk) {
        r->chunks[r->n_chunks++] = chunk;
    }
    return chunk != NULL;
}

/* The next chunk: a new one, or the oldest. False: there is no memory at all. */
static bool tci_ring_turn(tci_ring *r)
{
    if (!r->wrapped && tci_ring_grow(r)) {
        r->chunk = r->n_chunks - 1;
    } else if (r->n_chunks) {
        r->wrapped = true;
        r->chunk = (r->chunk + 1) % r->n_chunks;
        r->dropped += TCI_RING_CHUNK;
    } else {
        r->dropped++;
        return false;
    }
    r->at = 0;
    return true;
}

/* The thread's ring, which is busy until tci_ring_close; NULL: nothing is recorded any more. */
static tci_ring *tci_ring_open(void)
{
    tci_ring *r = tci_ring_own;
    if (TCI_UNLIKELY(!r)) {
        r = tci_ring_own = tci_ring_take();
        if (!r) {
            return NULL;
        }
    }
    __atomic_store_n(&r->busy, 1, __ATOMIC_SEQ_CST);
    if (!(__atomic_load_n(&tci_profile_now.watch, __ATOMIC_SEQ_CST) & TCI_PROFILE_RECORDS)) {
        __atomic_store_n(&r->busy, 0, __ATOMIC_RELEASE);
        return NULL;
    }
    uint32_t epoch = __atomic_load_n(&tci_profile_now.epoch, __ATOMIC_RELAXED);
    if (TCI_UNLIKELY(r->epoch != epoch)) {
        tci_ring_restart(r, epoch);
    }
    return r;
}

static void tci_ring_close(tci_ring *r)
{
    __atomic_store_n(&r->busy, 0, __ATOMIC_RELEASE);
}

static void tci_ring_put(tci_ring *r, tci_record record)
{
    if (TCI_UNLIKELY(r->at == TCI_RING_CHUNK) && !tci_ring_turn(r)) {
        return;
    }
    r->chunks[r->chunk][r->at++] = record;
}

static uint32_t tci_profile_number(const tci_ring *r, const tc_program *f)
{
    if (!f) {
        return 0;
    }
    return TCI_LIKELY(__atomic_load_n(&f->profile_epoch, __ATOMIC_ACQUIRE) == r->epoch)
               ? f->profile_number
               : tci_profile_now.note((tc_program *)(uintptr_t)f);
}

/* ---- records ---- */

TCI_FN void tci_profile_put(const tc_program *f, tci_record record)
{
    tci_ring *r = tci_ring_open();
    if (r) {
        record.program = f ? tci_profile_number(r, f) : record.program;
        tci_ring_put(r, record);
        tci_ring_close(r);
    }
}

TCI_FN void tci_profile_add(tci_record_kind kind, const tc_program *f, int32_t item,
                            int64_t begin_ns, int64_t end_ns)
{
    tci_profile_put(
        f,
        (tci_record){.begin_ns = begin_ns, .end_ns = end_ns, .item = item, .kind = (uint8_t)kind});
}

TCI_FN uint32_t tci_profile_program_of(const tc_program *f)
{
    tci_ring *r = tci_ring_open();
    uint32_t number = 0;
    if (r) {
        number = tci_profile_number(r, f);
        tci_ring_close(r);
    }
    return number;
}

/* The label of a name that this thread has likely met before. */
static uint32_t tci_ring_label(tci_ring *r, const char *name)
{
    int at = (int)((uintptr_t)name >> 3) & (TCI_RING_SEEN - 1);
    if (r->seen[at].text != name || strcmp(tci_label_text(r->seen[at].label), name)) {
        r->seen[at].text = name;
        r->seen[at].label = tci_label_of(name);
    }
    return r->seen[at].label;
}

TCI_FN void tci_profile_phase(const char *name, int64_t begin_ns, int64_t end_ns)
{
    tci_ring *r = tci_profile_watch() & TCI_PROFILE_RECORDS ? tci_ring_open() : NULL;
    if (r) {
        int32_t label = (int32_t)tci_ring_label(r, name);
        tci_ring_put(r, (tci_record){.begin_ns = begin_ns,
                                     .end_ns = end_ns,
                                     .item = label,
                                     .kind = TCI_RECORD_PHASE});
        tci_ring_close(r);
    }
}

TC_API void tc_mark_begin(const char *name)
{
    tci_ring *r = tci_profile_watch() & TCI_PROFILE_RECORDS ? tci_ring_open() : NULL;
    if (!r) {
        return;
    }
    if (r->n_marks < TCI_RING_MARKS) {
        r->marks[r->n_marks].label = tci_ring_label(r, name ? name : "");
        r->marks[r->n_marks].begin_ns = tci_os_now_ns();
    }
    r->n_marks++;
    tci_ring_close(r);
}

TC_API void tc_mark_end(void)
{
    tci_ring *r = tci_profile_watch() & TCI_PROFILE_RECORDS ? tci_ring_open() : NULL;
    if (!r) {
        return;
    }
    if (r->n_marks && --r->n_marks < TCI_RING_MARKS) {
        int32_t label = (int32_t)r->marks[r->n_marks].label;
        tci_ring_put(r, (tci_record){.begin_ns = r->marks[r->n_marks].begin_ns,
                                     .end_ns = tci_os_now_ns(),
                                     .item = label,
                                     .kind = TCI_RECORD_MARK});
    }
    tci_ring_close(r);
}

TCI_FN void tci_profile_log(const tc_program *f, int step, int64_t ns)
{
    tci_profile_now.log(f, step, ns);
}

#else

TC_API void tc_mark_begin(const char *name)
{
    (void)name;
}

TC_API void tc_mark_end(void)
{
}

#endif
