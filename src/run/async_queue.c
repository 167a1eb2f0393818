/* run/async_queue.c - asynchronous runs: a queue of tasks with a thread that executes them.
 *
 * In: programs and buffers. Out: the runs execute in the order of submission, and their events
 * report the status.
 *
 * Design: a queue is a list of tasks and a thread that executes them in order. On the host a task
 * is a whole run. On a device with queues, the caller's thread submits as much as it can at once,
 * so the order is that of the calls, also relative to work that the host puts on a stream; the task
 * is the end of that run: wait for the device, check for faults, and copy downloaded outputs.
 * Waiting for a device thus happens on the queue's thread, without a lock.
 *
 * Order on a device: kernels keep the order of the calls. The host's work at the end of a run has
 * no such order, so a run starts after those earlier runs of the queue have ended that write host
 * memory that it reads, or that set parameters if it has some.
 *
 * A queue works for one device at a time: device queues for upload, compute and download, created
 * at its first run for that device, and drained and dropped when it gets a run for another.
 *
 * Locks: `gate` serializes submitters; `lock` guards the list and is held briefly. A task holds a
 * reference to its program, and to its event. An event has its own lock and outlives the queue. A
 * child made by fork has no thread; every call reports that. */
#include "async_compile.h"
#include "async_queue.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../debug/profile.h"

enum { TCI_QUEUE_DEPTH = 8 }; /* tasks at once: who gives one more waits */

struct tc_event {
    int32_t refs; /* atomic: the user's, and the task's */
    uint32_t process;
    tci_mutex lock;
    tci_cond reached;
    bool is_done; /* atomic; what follows is set then */
    int64_t at_ns;
    const tc_backend *device; /* where the queue is one of a device: the event there */
    void *native;
    tci_error error;
};

typedef struct tci_task {
    struct tci_task *next;
    tc_program *program;      /* NULL: only an event is to be reached */
    tc_call *call, *inner;    /* inner: of a device's run that has begun; else NULL */
    tc_event *event;          /* or NULL */
    const tc_backend *device; /* of `ended`, */
    void *ended;              /* reached when it is done; of `event`, if there is one */
    bool sets;                /* the program sets parameters */
    tci_run run;
    tc_bufs inputs, outputs;
    tc_buf buffers[];
} tci_task;

struct tc_queue {
    uint32_t process;
    tci_mutex gate, lock;
    tci_cond changed;
    tci_task *first, *last; /* not done; the thread is at the first */
    int n_open;             /* how many */
    bool ends, has_thread;
    pthread_t thread;
    const tc_backend *device; /* NULL: none yet */
    void *native[TCI_QUEUES];
    bool is_over;   /* the one for work belongs to another owner */
    tci_error lost; /* of the first failed run without an event since the last record */
};

static tci_mutex tci_queue_fork_lock = TCI_MUTEX_INIT;
static uint32_t tci_queue_process = 1;
static pthread_once_t tci_queue_once = PTHREAD_ONCE_INIT;

static void tci_queue_after_fork(void)
{
    tci_queue_process++;
}

static void tci_queue_announce(void)
{
    tci_os_keep_over_fork(&tci_queue_fork_lock, tci_queue_after_fork);
}

/* ---- events ---- */

static tc_event *tci_event_make(void)
{
    tc_event *e = tci_heap_get(sizeof(*e));
    if (e) {
        e->refs = 2;
        e->process = tci_queue_process;
        pthread_mutex_init(&e->lock, NULL);
        pthread_cond_init(&e->reached, NULL);
    }
    return e;
}

TCI_FN void tci_event_release(tc_event *e)
{
    if (e && __atomic_sub_fetch(&e->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        if (e->native) {
            e->device->queues->event_free(e->device->user, e->native);
        }
        pthread_mutex_destroy(&e->lock);
        pthread_cond_destroy(&e->reached);
        tci_heap_free(e);
    }
}

/* The task's part: it is reached, with this error or none. */
static void tci_event_reach(tc_event *e, const tci_error *error)
{
    pthread_mutex_lock(&e->lock);
    e->at_ns = tci_os_now_ns();
    if (error) {
        e->error = *error;
    }
    __atomic_store_n(&e->is_done, true, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&e->reached);
    pthread_mutex_unlock(&e->lock);
    tci_event_release(e);
}

TCI_FN bool tci_event_is_done(const tc_event *e)
{
    return __atomic_load_n(&e->is_done, __ATOMIC_ACQUIRE);
}

TCI_FN tc_status tci_event_wait(tc_event *e)
{
    if (tci_event_is_done(e)) { /* the lock of one may be held for ever in a child made by fork */
        return e->error.status;
    }
    if (e->process != tci_queue_process) {
        return TC_ERR_BACKEND; /* its thread is in the parent */
    }
    pthread_mutex_lock(&e->lock);
    while (!e->is_done) {
        pthread_cond_wait(&e->reached, &e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return e->error.status;
}

TCI_FN const char *tci_event_text(const tc_event *e)
{
    return tci_event_is_done(e) ? e->error.text : "";
}

TCI_FN tc_status tci_event_elapsed(tc_event *from, tc_event *to, double *ms)
{
    if (!tci_event_is_done(from) || !tci_event_is_done(to)) {
        return TC_ERR_ARGUMENT;
    }
    if (from->native && to->native && from->device == to->device) {
        return to->device->queues->event_elapsed(to->device->user, from->native, to->native, ms);
    }
    *ms = (double)(to->at_ns - from->at_ns) / 1e6;
    return TC_OK;
}

/* ---- the thread ---- */

/* On a device: what is left to do when it is done with what it was given. */
static tc_status tci_queue_end_run(tci_task *t)
{
    const tc_backend *device = t->device;
    tc_status status = device->queues->event_sync(device->user, t->ended);
    if (!status) {
        return tci_call_end(t->inner, &t->run);
    }
    const char *why = device->last_error ? device->last_error(device->user) : NULL;
    tci_call_refuse(t->inner, status, "the backend %s failed: %s", device->name,
                    why ? why : "no reason given");
    if (t->inner->program->n_params) {
        tci_param_end(t->inner, false);
    }
    return status;
}

static tc_status tci_queue_run_task(tci_task *t)
{
    if (t->inner) {
        return tci_call_told(t->call, tci_queue_end_run(t), &t->inputs, &t->outputs);
    }
    return tci_call_run(t->call, t->inputs, t->outputs);
}

/* Releases everything that the task holds, except its event. */
static void tci_queue_drop(tci_task *t)
{
    if (t->ended && !t->event) {
        t->device->queues->event_free(t->device->user, t->ended);
    }
    if (t->program) {
        tci_call_give(t->program, t->call);
        tci_program_release(t->program);
    }
}

/* Executes a task. Its resources are released before its event is signalled. */
static void tci_queue_do(tc_queue *q, tci_task *t)
{
    tci_error error = {TC_OK, ""};
    if (t->program) {
        error.status = tci_queue_run_task(t);
        if (error.status) {
            memcpy(error.text, t->call->last.text, sizeof(error.text));
        }
    } else {
        error = q->lost;
        q->lost.status = TC_OK;
        if (t->ended && !error.status) {
            error.status = t->device->queues->event_sync(t->device->user, t->ended);
        }
    }
    tci_queue_drop(t);
    if (t->event) {
        tci_event_reach(t->event, &error);
    } else if (error.status && !q->lost.status) {
        q->lost = error;
    }
}

static void *tci_queue_main(void *arg)
{
    static int threads; /* atomic; of queues, so far */
    tc_queue *q = arg;
    tci_profile_role("tc queue", __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED));
    pthread_mutex_lock(&q->lock);
    for (;;) {
        tci_task *t = q->first;
        if (!t && q->ends) {
            break;
        }
        if (!t) {
            pthread_cond_wait(&q->changed, &q->lock);
            continue;
        }
        pthread_mutex_unlock(&q->lock);
        tci_queue_do(q, t);
        pthread_mutex_lock(&q->lock);
        q->first = t->next;
        tci_heap_free(t);
        q->n_open--;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

/* Caller holds the lock. Signals of the process are for others. */
static bool tci_queue_start(tc_queue *q)
{
    sigset_t all, before;
    if (!q->has_thread) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        q->has_thread = pthread_create(&q->thread, NULL, tci_queue_main, q) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return q->has_thread;
}

/* Until at most this many tasks are not done. */
static void tci_queue_wait(tc_queue *q, int most)
{
    pthread_mutex_lock(&q->lock);
    while (q->n_open > most) {
        pthread_cond_wait(&q->changed, &q->lock);
    }
    pthread_mutex_unlock(&q->lock);
}

static uintptr_t tci_queue_buf_end(const tc_buf *b)
{
    int64_t size = b->dtype == -1 ? 1 : tci_dtype_get((tc_dtype)b->dtype)->bytes;
    return (uintptr_t)b->data + (uintptr_t)(b->n * size);
}

static bool tci_queue_meet(const tc_buf *a, const tc_buf *b)
{
    return (uintptr_t)a->data < tci_queue_buf_end(b) && (uintptr_t)b->data < tci_queue_buf_end(a);
}

/* Reads what an earlier task writes, and kernels are not all that touch that memory. */
static bool tci_task_reads(const tci_task *t, const tci_task *earlier, const tc_backend *device)
{
    for (int i = 0; i < earlier->outputs.n; i++) {
        const tc_buf *out = &earlier->outputs.items[i];
        for (int j = 0; j < t->inputs.n; j++) {
            const tc_buf *in = &t->inputs.items[j];
            if (tci_queue_meet(out, in) &&
                !(tci_bind_takes(device, out->data) && tci_bind_takes(device, in->data))) {
                return true;
            }
        }
    }
    return false;
}

/* A task that must have ended before t begins on the device is not done. Caller holds the lock. */
static bool tci_queue_is_behind(const tc_queue *q, const tci_task *t)
{
    bool behind = false;
    for (const tci_task *open = q->first; open && !behind; open = open->next) {
        behind = (open->sets && t->program->n_params) || tci_task_reads(t, open, q->device);
    }
    return behind;
}

static void tci_queue_wait_before(tc_queue *q, const tci_task *t)
{
    pthread_mutex_lock(&q->lock);
    while (tci_queue_is_behind(q, t)) {
        pthread_cond_wait(&q->changed, &q->lock);
    }
    pthread_mutex_unlock(&q->lock);
}

static void tci_queue_push(tc_queue *q, tci_task *t)
{
    pthread_mutex_lock(&q->lock);
    if (q->first) {
        q->last->next = t;
    } else {
        q->first = t;
    }
    q->last = t;
    q->n_open++;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

/* ---- making and freeing ---- */

TCI_FN tc_queue *tci_queue_make(void)
{
    pthread_once(&tci_queue_once, tci_queue_announce);
    tc_queue *q = tci_heap_get(sizeof(*q));
    if (!q) {
        return NULL;
    }
    q->process = tci_queue_process;
    pthread_mutex_init(&q->gate, NULL);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    pthread_mutex_lock(&q->lock);
    bool started = tci_queue_start(q);
    pthread_mutex_unlock(&q->lock);
    if (!started) {
        tci_queue_free(q);
        q = NULL;
    }
    return q;
}

/* All is done: leaves the device that the queue worked for. */
static void tci_queue_leave(tc_queue *q)
{
    for (int i = 0; i < TCI_QUEUES; i++) {
        if (q->native[i] && !(q->is_over && i == TCI_QUEUE_WORK)) {
            q->device->queues->free(q->device->user, q->native[i]);
            q->native[i] = NULL;
        }
    }
    q->device = q->is_over ? q->device : NULL;
}

/* The queue works for that device from now on. */
static tc_status tci_queue_enter(tc_queue *q, const tc_backend *device)
{
    tc_status status = TC_OK;
    if (q->device != device) {
        tci_queue_wait(q, 0);
        tci_queue_leave(q);
        q->device = device;
    }
    for (int i = 0; i < TCI_QUEUES && !status; i++) {
        if (!q->native[i]) {
            status = device->queues->make(device->user, &q->native[i]);
        }
    }
    return status;
}

TCI_FN tc_queue *tci_queue_over(const tc_backend *device, void *native)
{
    tc_queue *q = tci_queue_make();
    if (q) {
        q->is_over = true;
        q->device = device;
        q->native[TCI_QUEUE_WORK] = native;
    }
    return q;
}

TCI_FN void tci_queue_free(tc_queue *q)
{
    if (!q) {
        return;
    }
    if (q->has_thread && q->process == tci_queue_process) {
        pthread_mutex_lock(&q->lock);
        q->ends = true;
        pthread_cond_broadcast(&q->changed);
        pthread_mutex_unlock(&q->lock);
        pthread_join(q->thread, NULL);
        tci_queue_leave(q);
        pthread_mutex_destroy(&q->gate);
        pthread_mutex_destroy(&q->lock);
        pthread_cond_destroy(&q->changed);
    }
    tci_heap_free(q);
}

/* ---- giving tasks ---- */

static const tc_buf *tci_task_given(const tc_bufs *inputs, const tc_bufs *outputs, size_t i)
{
    size_t n_inputs = (size_t)inputs->n;
    return i < n_inputs ? &inputs->items[i] : &outputs->items[i - n_inputs];
}

/* With the lists of buffers and their sizes, which are the caller's. */
static tci_task *tci_task_make(tc_program *f, const tc_bufs *inputs, const tc_bufs *outputs)
{
    size_t n_inputs = (size_t)inputs->n, n = n_inputs + (size_t)outputs->n, n_sizes = 0;
    for (size_t i = 0; i < n; i++) {
        const tc_buf *b = tci_task_given(inputs, outputs, i);
        n_sizes += b->sizes && b->rank > 0 ? (size_t)b->rank : 0;
    }
    size_t sizes_at = sizeof(tci_task) + n * sizeof(tc_buf);
    tci_task *t = tci_heap_get(sizes_at + n_sizes * sizeof(int64_t));
    if (t) {
        int64_t *sizes = (int64_t *)(void *)((char *)t + sizes_at);
        for (size_t i = 0; i < n; i++) {
            t->buffers[i] = *tci_task_given(inputs, outputs, i);
            for (int a = 0; t->buffers[i].sizes && a < t->buffers[i].rank; a++) {
                sizes[a] = t->buffers[i].sizes[a];
            }
            if (t->buffers[i].sizes) {
                t->buffers[i].sizes = sizes;
                sizes += TCI_MAX(t->buffers[i].rank, 0);
            }
        }
        t->inputs = (tc_bufs){t->buffers, inputs->n};
        t->outputs = (tc_bufs){t->buffers + n_inputs, outputs->n};
        t->run.inputs = &t->inputs;
        t->run.outputs = &t->outputs;
        t->program = f;
        t->sets = f && f->n_effects > 0;
    }
    return t;
}

/* An event of the device, which the task or its event then has. */
static tc_status tci_task_add_end(tc_queue *q, tci_task *t)
{
    t->device = q->device;
    tc_status status = t->device->queues->event_make(t->device->user, &t->ended);
    if (!status && t->event) {
        t->event->device = t->device;
        t->event->native = t->ended;
    }
    return status;
}

static tc_status tci_task_record_end(tc_queue *q, tci_task *t)
{
    return t->device->queues->event_record(t->device->user, q->native[TCI_QUEUE_WORK], t->ended);
}

static tc_status tci_queue_refuse_device(tc_call *c, tc_status status)
{
    const tc_backend *device = c->program->code->device;
    const char *why = device->last_error ? device->last_error(device->user) : NULL;
    return tci_call_refuse(c, status, "the backend %s failed: %s", device->name,
                           why ? why : "no reason given");
}

/* Gives the device its part of a run. */
static tc_status tci_queue_begin_run(tc_queue *q, tci_task *t, tc_call *inner)
{
    tc_status status = tci_queue_enter(q, inner->program->code->device);
    status = status ? status : tci_task_add_end(q, t);
    if (status) {
        return tci_queue_refuse_device(t->call, status);
    }
    tci_queue_wait_before(q, t);
    t->run.splits = true;
    memcpy(t->run.queues, q->native, sizeof(q->native));
    status = tci_call_begin(inner, &t->run);
    if (status) {
        return tci_call_told(t->call, status, &t->inputs, &t->outputs);
    }
    t->inner = inner;
    status = tci_task_record_end(q, t);
    if (status) { /* it is under way: waits for all of it */
        inner->program->code->device->queues->sync(q->device->user, q->native[TCI_QUEUE_WORK]);
        if (inner->program->n_params) {
            tci_param_end(inner, false);
        }
        tci_queue_refuse_device(t->call, status);
    }
    return status;
}

/* The gate is closed behind the caller. */
static tc_status tci_queue_give_run(tc_queue *q, tci_task *t)
{
    tc_call *inner = NULL;
    tc_status status = tci_call_accept(t->call, &t->inputs, &t->outputs, &inner);
    if (status) {
        return status;
    }
    const tc_backend *device = inner->program->code->device;
    bool on_queues = inner->device && device->queues;
    if (q->is_over && (!on_queues || device != q->device)) {
        return tci_call_refuse(t->call, TC_ERR_ARGUMENT,
                               "the queue is a stream of %s, the program runs on %s",
                               q->device->name, inner->program->code->backend);
    }
    tci_queue_wait(q, TCI_QUEUE_DEPTH - 1);
    if (on_queues) {
        status = tci_queue_begin_run(q, t, inner);
    } else if (q->device) {
        tci_queue_wait(q, 0);
        tci_queue_leave(q);
    }
    return status;
}

static tc_status tci_queue_check(const tc_queue *q, tci_error *why)
{
    if (q->process == tci_queue_process) {
        return TC_OK;
    }
    snprintf(why->text, sizeof(why->text), "the queue was made before a fork of this process");
    return TC_ERR_BACKEND;
}

TCI_FN tc_status tci_queue_run(tc_queue *q, tc_program *f, const tc_bufs *inputs,
                               const tc_bufs *outputs, tc_event **event, tci_error *why)
{
    why->text[0] = 0;
    tc_status status = tci_queue_check(q, why);
    f = tci_later_current(f);
    tc_call *c = status ? NULL : tci_call_take(f);
    if (!c) {
        return status ? status : TC_ERR_MEMORY;
    }
    status = tci_call_check_lists(c, inputs, outputs);
    tci_task *t = status ? NULL : tci_task_make(f, inputs, outputs);
    tc_event *e = t && event ? tci_event_make() : NULL;
    if (!status && (!t || (event && !e))) {
        tci_call_refuse(c, TC_ERR_MEMORY, "out of memory");
        status = TC_ERR_MEMORY;
    }
    if (!status) {
        t->call = c;
        t->event = e;
        pthread_mutex_lock(&q->gate);
        status = tci_queue_give_run(q, t);
        if (!status) {
            tci_program_retain(f);
            tci_queue_push(q, t);
        }
        pthread_mutex_unlock(&q->gate);
    }
    if (!status) {
        if (event) {
            *event = e;
        }
        return TC_OK;
    }
    *why = c->last;
    tci_call_give(f, c);
    if (t && t->ended && !e) {
        t->device->queues->event_free(t->device->user, t->ended);
    }
    if (e) {
        e->refs = 1;
        tci_event_release(e);
    }
    tci_heap_free(t);
    return status;
}

TCI_FN tc_status tci_queue_record(tc_queue *q, tc_event **event)
{
    tci_error unused;
    tc_bufs none = {NULL, 0};
    tc_status status = tci_queue_check(q, &unused);
    tci_task *t = status ? NULL : tci_task_make(NULL, &none, &none);
    tc_event *e = t ? tci_event_make() : NULL;
    if (!e) {
        tci_heap_free(t);
        return status ? status : TC_ERR_MEMORY;
    }
    t->event = e;
    pthread_mutex_lock(&q->gate);
    if (q->device) {
        status = tci_queue_enter(q, q->device);
        status = status ? status : tci_task_add_end(q, t);
        status = status ? status : tci_task_record_end(q, t);
    }
    if (!status) {
        tci_queue_push(q, t);
        *event = e;
    }
    pthread_mutex_unlock(&q->gate);
    if (status) {
        e->refs = 1;
        tci_event_release(e);
        tci_heap_free(t);
    }
    return status;
}
