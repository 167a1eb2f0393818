/* run/param.c - parameters: versioned memory, so that runs read a consistent snapshot while other
 * runs write new values.
 *
 * In: runs that read or change parameters, and reads by the user. Out: each sees a consistent
 * snapshot of all parameters, and a run that fails leaves them as they were (multi-version
 * concurrency).
 *
 * Design: a value does not change while it is held. A run holds the newest value of each
 * parameter that it reads. It writes changes to spare memory, which becomes the newest value when
 * the run succeeds. Runs therefore do not wait for each other, and the runs of one thread need two
 * versions (double buffering), or one if the update may be done in place (tci_run_effect.over_old):
 * until two runs have accessed a parameter concurrently, a run overwrites and holds the parameter
 * exclusively. A concurrent run waits for that one run, and from then on (is_shared) nothing is
 * overwritten.
 *
 * One run at a time may change a parameter (writer). A run on a device holds its parameters
 * exclusively while it binds and launches (run/execute.c); the order of the device's queue covers
 * the rest.
 *
 * All of it changes under a lock shared by the parameters of a context, so a run acquires and
 * changes all of its own at once. A run without parameters never takes it. */
#include <string.h>

#include "../base/alloc.h"
#include "runtime_structs.h"

struct tci_param_value {
    tci_param_value *next; /* among the spares */
    void *data;
    int32_t holders;
};

typedef struct tci_param_lock {
    tci_mutex mutex;
    tci_cond freed; /* a parameter that a run had for itself */
} tci_param_lock;

/* `writer` and `changing` hold the number of the process: in a child made by fork the runs of other
 * threads are gone, and their marks say nothing. */
struct tci_param {
    tci_param_lock *lock;
    tci_param_value *value;  /* the newest in host memory; tci_storage.data is its data */
    tci_param_value *spares; /* without holders */
    uint32_t writer;         /* a run changes it */
    uint32_t changing;       /* ... or its memory, now: no run may read that */
    bool is_shared;
    char *name;            /* or NULL; only the thread of the context asks */
    tci_param_value first; /* its data is in the storage itself */
};

enum { TCI_PARAM_LOCKS = 4, TCI_PARAM_HEADER = 64 };
_Static_assert(sizeof(tci_param_value) <= TCI_PARAM_HEADER, "the header precedes the data");

static tci_param_lock tci_param_locks[TCI_PARAM_LOCKS] = {{TCI_MUTEX_INIT, TCI_COND_INIT},
                                                          {TCI_MUTEX_INIT, TCI_COND_INIT},
                                                          {TCI_MUTEX_INIT, TCI_COND_INIT},
                                                          {TCI_MUTEX_INIT, TCI_COND_INIT}};
static uint32_t tci_param_process = 1;
static pthread_once_t tci_param_once = PTHREAD_ONCE_INIT;

static void tci_param_after_fork(void)
{
    tci_param_process++;
    for (int i = 0; i < TCI_PARAM_LOCKS; i++) {
        pthread_cond_init(&tci_param_locks[i].freed, NULL);
    }
}

/* A run that changed parameters updates the state of their device copies: that lock is the inner
 * one. */
static void tci_param_announce(void)
{
    for (int i = 0; i < TCI_PARAM_LOCKS; i++) {
        tci_os_keep_over_fork(&tci_param_locks[i].mutex, i ? NULL : tci_param_after_fork);
    }
    tci_copies_announce();
}

TCI_FN void tci_param_start(void)
{
    pthread_once(&tci_param_once, tci_param_announce);
}

/* ---- values: the caller holds the lock ---- */

static tci_param_value *tci_param_spare(const tci_storage *s)
{
    tci_param_value *v = s->param->spares;
    if (v) {
        s->param->spares = v->next;
        return v;
    }
    char *block = tci_heap_get_aligned((size_t)TCI_PARAM_HEADER + (size_t)s->bytes);
    if (!block) {
        return NULL;
    }
    v = (tci_param_value *)(void *)block;
    *v = (tci_param_value){.data = block + TCI_PARAM_HEADER};
    return v;
}

static void tci_param_put(tci_param *p, tci_param_value *v)
{
    if (v != p->value && v->holders == 0) {
        v->next = p->spares;
        p->spares = v;
    }
}

static void tci_param_release(tci_param *p, tci_param_value *v)
{
    v->holders--;
    tci_param_put(p, v);
}

static void tci_param_set(tci_storage *s, tci_param_value *v)
{
    tci_param_value *old = s->param->value;
    s->param->value = v;
    s->data = v->data;
    tci_param_put(s->param, old); /* unless v is the old one */
}

/* A device has newer bytes, which will come to host memory: not over a value that has a holder. */
static bool tci_param_make_room(tci_storage *s)
{
    if (!s->ahead || s->param->value->holders == 0) {
        return true;
    }
    tci_param_value *v = tci_param_spare(s);
    if (v) {
        tci_param_set(s, v);
    }
    return v != NULL;
}

static tc_status tci_param_fetch(tci_storage *s)
{
    return tci_param_make_room(s) ? tci_copies_home(s) : TC_ERR_MEMORY;
}

static bool tci_param_is_marked(uint32_t mark)
{
    return mark == tci_param_process;
}

/* ---- what is not a run ---- */

TCI_FN bool tci_param_make(tci_storage *s, const tci_ctx *ctx)
{
    tci_param *p = tci_heap_get(sizeof(*p));
    if (p) {
        tci_param_start();
        p->lock = &tci_param_locks[(uintptr_t)ctx / 64 % TCI_PARAM_LOCKS];
        p->first.data = s->data;
        p->value = &p->first;
        s->param = p;
    }
    return p != NULL;
}

TCI_FN void tci_param_free(tci_storage *s)
{
    tci_param *p = s->param;
    if (!p) {
        return;
    }
    tci_param_set(s, &p->first); /* the others are spares then */
    while (p->spares) {
        tci_param_value *v = p->spares;
        p->spares = v->next;
        if (v != &p->first) {
            tci_heap_free_aligned(v);
        }
    }
    tci_heap_free(p->name);
    tci_heap_free(p);
    s->param = NULL;
}

/* The lock of the parameters in a list, taken; NULL: there are none. */
static tci_param_lock *tci_param_lock_list(const tci_param_held *list)
{
    while (list && !list->storage->param) {
        list = list->next;
    }
    if (!list) {
        return NULL;
    }
    tci_param_lock *lock = list->storage->param->lock;
    pthread_mutex_lock(&lock->mutex);
    return lock;
}

static void tci_param_unlock_list(tci_param_lock *lock)
{
    if (lock) {
        pthread_mutex_unlock(&lock->mutex);
    }
}

/* Until no run has one of them for itself. */
static void tci_param_wait_list(tci_param_lock *lock, const tci_param_held *list)
{
    for (const tci_param_held *h = list; lock && h;) {
        tci_param *p = h->storage->param;
        h = h->next;
        if (p && tci_param_is_marked(p->changing)) {
            p->is_shared = true;
            pthread_cond_wait(&lock->freed, &lock->mutex);
            h = list; /* meanwhile others may have begun */
        }
    }
}

TCI_FN tc_status tci_param_hold(tci_param_held *list)
{
    tc_status status = TC_OK;
    tci_param_lock *lock = tci_param_lock_list(list);
    tci_param_wait_list(lock, list);
    for (tci_param_held *h = list; h; h = h->next) {
        tci_storage *s = h->storage;
        status = s->param && !status ? tci_param_fetch(s) : status;
        h->value = s->param && !status ? s->param->value : NULL;
        h->data = s->data;
        if (h->value) {
            h->value->holders++;
        }
    }
    tci_param_unlock_list(lock);
    if (status) {
        tci_param_drop(list);
    }
    return status;
}

TCI_FN void tci_param_drop(tci_param_held *list)
{
    tci_param_lock *lock = tci_param_lock_list(list);
    for (tci_param_held *h = list; h; h = h->next) {
        if (h->value) {
            tci_param_release(h->storage->param, h->value);
        }
    }
    tci_param_unlock_list(lock);
}

TCI_FN tc_status tci_param_touch(tci_storage *s)
{
    tci_param_held one = {.storage = s};
    tci_param_lock *lock = tci_param_lock_list(&one);
    tci_param_wait_list(lock, &one);
    tc_status status = lock ? tci_param_fetch(s) : TC_OK; /* what a run changed is not lost */
    if (!status) {
        tci_copies_changed(s, NULL);
    }
    tci_param_unlock_list(lock);
    return status;
}

/* ---- what the user sets ---- */

/* Back to the spares. */
static void tci_param_put_list(tci_param_held *list)
{
    for (tci_param_held *h = list; h; h = h->next) {
        if (h->value) {
            tci_param_put(h->storage->param, h->value);
        }
        h->value = NULL;
    }
}

TCI_FN tc_status tci_param_room(tci_param_held *list)
{
    bool ok = true;
    tci_param_lock *lock = tci_param_lock_list(list);
    for (tci_param_held *h = list; h; h = h->next) {
        h->value = ok ? tci_param_spare(h->storage) : NULL;
        h->data = h->value ? h->value->data : NULL;
        ok = h->value != NULL;
    }
    if (!ok) {
        tci_param_put_list(list);
    }
    tci_param_unlock_list(lock);
    return ok ? TC_OK : TC_ERR_MEMORY;
}

TCI_FN tc_status tci_param_settle(tci_param_held *list, bool commits)
{
    tci_param_lock *lock = tci_param_lock_list(list);
    tci_param_wait_list(lock, list);
    bool busy = false;
    for (const tci_param_held *h = list; commits && h; h = h->next) {
        busy = busy || tci_param_is_marked(h->storage->param->writer);
    }
    for (tci_param_held *h = list; commits && !busy && h; h = h->next) {
        tci_param_set(h->storage, h->value);
        tci_copies_changed(h->storage, NULL);
    }
    tci_param_put_list(list);
    tci_param_unlock_list(lock);
    return busy ? TC_ERR_BUSY : TC_OK;
}

/* ---- names ---- */

TCI_FN bool tci_param_name(tci_storage *s, const char *name)
{
    size_t bytes = strlen(name) + 1;
    char *copy = tci_heap_resize(NULL, bytes);
    if (copy) {
        memcpy(copy, name, bytes);
        tci_heap_free(s->param->name);
        s->param->name = copy;
    }
    return copy != NULL;
}

TCI_FN const char *tci_param_name_of(const tci_storage *s)
{
    return s->param ? s->param->name : NULL;
}

/* ---- runs ---- */

static tci_storage *tci_param_of(const tc_program *f, int i)
{
    return f->captured[f->params[i].captured];
}

static tci_param_lock *tci_param_lock_of(const tc_program *f)
{
    return tci_param_of(f, 0)->param->lock;
}

/* Where the new value of effect e goes; NULL: not known yet, or on a device. */
static tci_param_value **tci_param_fresh(const tc_call *c, int e)
{
    return &c->values[c->program->n_params + e];
}

static tci_param *tci_param_changed_by(const tc_program *f, int e)
{
    return tci_param_of(f, f->effects[e].param)->param;
}

/* A parameter that another run has for itself; NULL: none. */
static tci_param *tci_param_find_changing(const tc_call *c)
{
    const tc_program *f = c->program;
    for (int i = 0; i < f->n_params; i++) {
        tci_param *p = tci_param_of(f, i)->param;
        int e = f->params[i].effect;
        bool is_mine = e >= 0 && *tci_param_fresh(c, e) == p->value;
        if (tci_param_is_marked(p->changing) && !is_mine) {
            return p;
        }
    }
    return NULL;
}

static bool tci_param_is_busy(const tc_program *f)
{
    for (int e = 0; e < f->n_effects; e++) {
        if (tci_param_is_marked(tci_param_changed_by(f, e)->writer)) {
            return true;
        }
    }
    return false;
}

/* Until no other run has a parameter for itself. False: another run changes one that this run would
 * change; is_writer: this run is known to be the one. */
static bool tci_param_wait(tc_call *c, bool is_writer)
{
    for (;;) {
        if (!is_writer && tci_param_is_busy(c->program)) {
            return false;
        }
        tci_param *p = tci_param_find_changing(c);
        if (!p) {
            return true;
        }
        p->is_shared = true;
        pthread_cond_wait(&p->lock->freed, &p->lock->mutex);
    }
}

/* Over the old value, or to spare memory. NULL: no memory. */
static tci_param_value *tci_param_place(const tc_program *f, int e)
{
    tci_param *p = tci_param_changed_by(f, e);
    p->is_shared = p->is_shared || p->value->holders > 0;
    if (!f->effects[e].over_old || p->is_shared) {
        return tci_param_spare(tci_param_of(f, f->effects[e].param));
    }
    p->changing = tci_param_process;
    return p->value;
}

/* Acquires the parameters of a run on the host; a device has its own memory. */
static tc_status tci_param_take(tc_call *c)
{
    const tc_program *f = c->program;
    tc_status status = TC_OK;
    for (int i = 0; i < f->n_params && !status; i++) {
        status = tci_param_fetch(tci_param_of(f, i));
    }
    for (int e = 0; e < f->n_effects && !status; e++) {
        *tci_param_fresh(c, e) = tci_param_place(f, e);
        status = *tci_param_fresh(c, e) ? TC_OK : TC_ERR_MEMORY;
    }
    for (int i = 0; i < f->n_params && !status; i++) {
        c->values[i] = tci_param_of(f, i)->param->value;
        c->values[i]->holders++;
    }
    tci_init_cache_note(c);
    return status;
}

/* Gives back what tci_param_take got. */
static void tci_param_leave(tc_call *c)
{
    const tc_program *f = c->program;
    for (int e = 0; e < f->n_effects; e++) {
        tci_param *p = tci_param_changed_by(f, e);
        tci_param_value **fresh = tci_param_fresh(c, e);
        if (*fresh == p->value) {
            p->changing = 0;
        } else if (*fresh) {
            tci_param_put(p, *fresh);
        }
        *fresh = NULL;
        p->writer = 0;
    }
    for (int i = 0; i < f->n_params; i++) {
        if (c->values[i]) {
            tci_param_release(tci_param_of(f, i)->param, c->values[i]);
            c->values[i] = NULL;
        }
    }
    pthread_cond_broadcast(&tci_param_lock_of(f)->freed);
}

static void tci_param_bind(const tc_call *c)
{
    const tc_program *f = c->program;
    for (int i = 0; i < f->n_param_binds; i++) {
        const tci_run_bind *bind = &f->param_binds[i];
        c->slots[bind->slot] = tci_run_at(c->values[bind->arg]->data, bind->offset);
    }
}

TCI_FN tc_status tci_param_begin(tc_call *c)
{
    const tc_program *f = c->program;
    tci_param_lock *lock = tci_param_lock_of(f);
    tc_status status = TC_ERR_BUSY;
    pthread_mutex_lock(&lock->mutex);
    if (tci_param_wait(c, false)) {
        for (int e = 0; e < f->n_effects; e++) {
            tci_param_changed_by(f, e)->writer = tci_param_process;
        }
        status = c->device ? TC_OK : tci_param_take(c);
        if (status) {
            tci_param_leave(c);
        }
    }
    pthread_mutex_unlock(&lock->mutex);
    if (!status && !c->device) {
        tci_param_bind(c);
    }
    return status;
}

TCI_FN void tci_param_end(tc_call *c, bool commits)
{
    const tc_program *f = c->program;
    tci_param_lock *lock = tci_param_lock_of(f);
    pthread_mutex_lock(&lock->mutex);
    if (commits && !c->device) {
        tci_param_wait(c, true);
        for (int e = 0; e < f->n_effects; e++) {
            tci_storage *s = tci_param_of(f, f->effects[e].param);
            tci_param_set(s, *tci_param_fresh(c, e));
            tci_copies_changed(s, NULL);
        }
    }
    tci_param_leave(c);
    pthread_mutex_unlock(&lock->mutex);
}

/* ---- runs on a device ---- */

TCI_FN tc_status tci_param_claim(tc_call *c)
{
    const tc_program *f = c->program;
    tc_status status = TC_OK;
    if (!f->n_params) {
        return status;
    }
    pthread_mutex_lock(&tci_param_lock_of(f)->mutex);
    tci_param_wait(c, true);
    for (int i = 0; i < f->n_params && !status; i++) {
        status = tci_param_make_room(tci_param_of(f, i)) ? TC_OK : TC_ERR_MEMORY;
    }
    for (int i = 0; i < f->n_params && !status; i++) {
        tci_param_of(f, i)->param->changing = tci_param_process;
    }
    pthread_mutex_unlock(&tci_param_lock_of(f)->mutex);
    return status;
}

TCI_FN void tci_param_unclaim(tc_call *c)
{
    const tc_program *f = c->program;
    if (f->n_params) {
        pthread_mutex_lock(&tci_param_lock_of(f)->mutex);
        for (int i = 0; i < f->n_params; i++) {
            tci_param_of(f, i)->param->changing = 0;
        }
        pthread_cond_broadcast(&tci_param_lock_of(f)->freed);
        pthread_mutex_unlock(&tci_param_lock_of(f)->mutex);
    }
}

TCI_FN tc_status tci_param_download(tci_storage *s, const tc_backend *device, const void *from)
{
    tci_param *p = s->param;
    pthread_mutex_lock(&p->lock->mutex);
    tci_param_value *v = tci_param_spare(s);
    pthread_mutex_unlock(&p->lock->mutex);
    if (!v) {
        return TC_ERR_MEMORY;
    }
    tc_status status = device->download(device->user, v->data, from, s->bytes);
    pthread_mutex_lock(&p->lock->mutex);
    if (status) {
        tci_param_put(p, v);
    } else {
        tci_param_set(s, v);
        tci_copies_changed(s, NULL);
    }
    pthread_mutex_unlock(&p->lock->mutex);
    return status;
}
