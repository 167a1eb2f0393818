/* debug/device_spans.c - records the times of kernels and of captured graph replays on a device.
 *
 * In: launches, one by one, or the replay of a captured run. Out: for each launch one record on the
 * host track and one on the device queue's track, linked by a flow event.
 *
 * Design: an event before and one after each launch, read when both have completed, give times of
 * the device's clock. A base event on the device's own queue, for which the host waits, maps them
 * to the host's clock. On a device without events the host waits after each launch and uses its own
 * clock.
 *
 * Kernels within a captured run have no events. The first runs of a program in a profile are
 * therefore launched one by one; later runs are one span each, with the shares of the kernels
 * measured before. Spans of asynchronous runs are read when the profile ends, so that the host does
 * not wait for a queue, and runs of several queues overlap as they do without a profile. */
#include "device_spans.h"

#include "../base/alloc.h"
#include "../base/system_headers.h"
#include "../run/collective_info.h"
#include "profile.h"

#ifndef TC_NO_DEBUG

enum { TCI_SPANS_PENDING = 1024 }; /* then the host waits for them */

static struct {
    tci_mutex lock;
    tci_device_spans *first; /* newest first */
    int n;
} tci_spans_pending = {.lock = TCI_MUTEX_INIT};

static tc_status tci_device_spans_sync(const tci_device_spans *s)
{
    return s->queue ? s->device->queues->sync(s->device->user, s->queue)
                    : s->device->sync(s->device->user);
}

static void tci_device_spans_free_events(tci_device_spans *s)
{
    for (int i = 0; s->events && i <= 2 * s->most; i++) {
        if (s->events[i]) {
            s->device->queues->event_free(s->device->user, s->events[i]);
        }
    }
    tci_heap_free(s->events);
    s->events = NULL;
}

static void tci_device_spans_free(tci_device_spans *s)
{
    tci_device_spans_free_events(s);
    tci_heap_free(s->steps);
    tci_heap_free(s->flows);
    tci_heap_free(s->host_ns);
}

/* Events and the base; without one of them the host's clock is used. */
static void tci_device_spans_make_events(tci_device_spans *s)
{
    const tc_backend_queues *q = s->device->queues;
    void *user = s->device->user;
    bool ok = q && q->event_make && q->event_record && q->event_elapsed;
    s->events = ok ? tci_heap_get(sizeof(void *) * (size_t)(2 * s->most + 1)) : NULL;
    for (int i = 0; s->events && ok && i <= 2 * s->most; i++) {
        ok = q->event_make(user, &s->events[i]) == TC_OK;
    }
    ok = ok && s->events && !s->device->sync(user) && !q->event_record(user, NULL, s->events[0]) &&
         !s->device->sync(user);
    s->base_ns = tci_os_now_ns();
    if (!ok) {
        tci_device_spans_free_events(s);
    }
}

TCI_FN bool tci_device_spans_wanted(void)
{
    return tci_profile_watch() && tci_profile_times_devices();
}

TCI_FN bool tci_device_spans_one_by_one(const tc_program *f)
{
    return (tci_profile_watch() & TCI_PROFILE_LOGS) || !tci_profile_has_shares(f);
}

static void tci_device_spans_drain(void);

TCI_FN bool tci_device_spans_begin(tci_device_spans *s, const tc_program *f, void *queue, int most)
{
    tci_profile_process *process = tci_profile_state();
    *s = (tci_device_spans){.f = f, .device = f->code->device, .queue = queue, .most = most};
    s->steps = tci_heap_get(sizeof(*s->steps) * (size_t)(most + 1));
    s->flows = tci_heap_get(sizeof(*s->flows) * (size_t)(most + 1));
    s->host_ns = tci_heap_get(sizeof(*s->host_ns) * 2 * (size_t)(most + 1));
    if (!s->steps || !s->flows || !s->host_ns) {
        tci_device_spans_free(s);
        return false;
    }
    if (tci_profile_watch() & TCI_PROFILE_RECORDS) {
        process->drain = tci_device_spans_drain;
        s->number = tci_profile_program_of(f);
        s->track = tci_profile_track_of(s->device->name, queue);
    }
    tci_device_spans_make_events(s);
    return true;
}

/* Submits the launch or replay between the two events of a span. */
static tc_status tci_device_spans_give(const tci_device_spans *s, const tc_launch *launch,
                                       void *sequence)
{
    const tc_backend *device = s->device;
    if (s->queue) {
        return launch ? device->queues->launch(device->user, s->queue, launch)
                      : device->queues->replay(device->user, s->queue, sequence);
    }
    return launch ? device->launch(device->user, launch) : device->replay(device->user, sequence);
}

static tc_status tci_device_spans_span(tci_device_spans *s, int i, const tc_launch *launch,
                                       void *sequence)
{
    const tc_backend *device = s->device;
    int n = s->n;
    tc_status status = TC_OK;
    if (s->events) {
        status = device->queues->event_record(device->user, s->queue, s->events[2 * n + 1]);
    }
    s->host_ns[2 * n] = tci_os_now_ns();
    status = status ? status : tci_device_spans_give(s, launch, sequence);
    int64_t launched = tci_os_now_ns();
    if (s->events && !status) {
        status = device->queues->event_record(device->user, s->queue, s->events[2 * n + 2]);
    } else if (!status) {
        status = tci_device_spans_sync(s);
        launched = tci_os_now_ns();
    }
    s->host_ns[2 * n + 1] = launched;
    s->steps[n] = i;
    s->flows[n] = tci_profile_flow();
    s->n += !status;
    if (!status && s->track) {
        tci_profile_put(NULL, (tci_record){.begin_ns = s->host_ns[2 * n],
                                           .end_ns = launched,
                                           .program = s->number,
                                           .item = i,
                                           .flow = s->flows[n],
                                           .kind = TCI_RECORD_LAUNCH});
    }
    return status;
}

TCI_FN tc_status tci_device_spans_call(tci_device_spans *s, int i, tc_call *c,
                                       tc_status (*call)(tc_call *c, const tci_run_step *step))
{
    const tc_backend_queues *q = s->device->queues;
    const int n = s->n;
    tc_status status = TC_OK;
    if (s->events) {
        status = q->event_record(s->device->user, s->queue, s->events[2 * n + 1]);
    }
    s->host_ns[2 * n] = tci_os_now_ns();
    status = status ? status : call(c, &s->f->steps[i]);
    s->host_ns[2 * n + 1] = tci_os_now_ns();
    if (s->events && !status) {
        status = q->event_record(s->device->user, s->queue, s->events[2 * n + 2]);
    }
    s->steps[n] = i;
    s->n += !status;
    return status;
}

/* A collective: its record goes from where kernels before its start were done to where those behind
 * its wait go on, which have waited meanwhile. */
static void tci_device_spans_note(const tci_device_spans *s, int i, const int64_t at[2])
{
    tci_collectives *l = s->f->collectives;
    const tci_comm_step *comm = &s->f->steps[s->steps[i]].call->comm;
    tci_collective *item = &l->items[comm->number];
    if (comm->phase == TCI_COMM_START) {
        item->begin_ns = at[0];
        return;
    }
    l->exposed_ns += at[1] - at[0];
    l->n_profiled += comm->number == 0;
    tci_profile_add(TCI_RECORD_COMM, s->f, s->steps[i], TCI_MAX(item->begin_ns, l->done_ns), at[1]);
    l->done_ns = at[1];
}

TCI_FN tc_status tci_device_spans_launch(tci_device_spans *s, int i, const tc_launch *launch)
{
    return tci_device_spans_span(s, i, launch, NULL);
}

TCI_FN tc_status tci_device_spans_replay(tci_device_spans *s, void *sequence)
{
    s->is_graph = true;
    return tci_device_spans_span(s, -1, NULL, sequence);
}

/* The times of launch i on the device. */
static bool tci_device_spans_read(const tci_device_spans *s, int i, int64_t at[2])
{
    for (int end = 0; end < 2; end++) {
        double ms = 0;
        if (s->events && s->device->queues->event_elapsed(s->device->user, s->events[0],
                                                          s->events[2 * i + 1 + end], &ms)) {
            return false;
        }
        at[end] = s->events ? s->base_ns + (int64_t)(ms * 1e6) : s->host_ns[2 * i + end];
    }
    return true;
}

static bool tci_device_spans_is_collective(const tci_device_spans *s, int i)
{
    const tci_custom_call *call = s->f && !s->is_graph ? s->f->steps[s->steps[i]].call : NULL;
    return call && call->comm.phase;
}

/* All events were reached. */
static void tci_device_spans_tell(const tci_device_spans *s)
{
    int64_t at[2];
    bool logs = s->f && !s->is_graph && (tci_profile_watch() & TCI_PROFILE_LOGS);
    for (int i = 0; i < s->n; i++) {
        if (!tci_device_spans_read(s, i, at)) {
            continue;
        }
        if (tci_device_spans_is_collective(s, i)) {
            tci_device_spans_note(s, i, at);
            continue;
        }
        if (s->track) {
            tci_profile_put(NULL,
                            (tci_record){.begin_ns = at[0],
                                         .end_ns = at[1],
                                         .program = s->number,
                                         .item = s->steps[i],
                                         .flow = s->flows[i],
                                         .kind = s->is_graph ? TCI_RECORD_GRAPH : TCI_RECORD_DEVICE,
                                         .track = s->track});
        }
        if (s->shares) {
            tci_profile_share(s->number, s->steps[i], at[1] - at[0]);
        }
        if (logs) {
            tci_profile_log(s->f, s->steps[i], at[1] - at[0]);
        }
    }
}

/* Before a profile ends, and when too many spans wait. A queue may be gone, its events are not. */
static void tci_device_spans_drain(void)
{
    pthread_mutex_lock(&tci_spans_pending.lock);
    tci_device_spans *s = tci_spans_pending.first;
    tci_spans_pending.first = NULL;
    tci_spans_pending.n = 0;
    pthread_mutex_unlock(&tci_spans_pending.lock);
    while (s) {
        tci_device_spans *next = s->next;
        if (!s->device->queues->event_sync(s->device->user, s->events[2 * s->n])) {
            tci_device_spans_tell(s);
        }
        tci_device_spans_free(s);
        tci_heap_free(s);
        s = next;
    }
}

/* s is kept until tci_device_spans_drain; false: no memory. */
static bool tci_device_spans_keep(tci_device_spans *s)
{
    tci_device_spans *kept = tci_heap_get(sizeof(*kept));
    if (!kept) {
        return false;
    }
    *kept = *s;
    kept->f = NULL;
    pthread_mutex_lock(&tci_spans_pending.lock);
    kept->next = tci_spans_pending.first;
    tci_spans_pending.first = kept;
    bool full = ++tci_spans_pending.n > TCI_SPANS_PENDING;
    pthread_mutex_unlock(&tci_spans_pending.lock);
    if (full) {
        tci_device_spans_drain();
    }
    return true;
}

TCI_FN tc_status tci_device_spans_end(tci_device_spans *s, bool waits)
{
    if (!waits && s->events && s->n && s->device->queues->event_sync && tci_device_spans_keep(s)) {
        return TC_OK;
    }
    tc_status status = tci_device_spans_sync(s);
    if (!status) {
        tci_device_spans_tell(s);
    }
    tci_device_spans_free(s);
    return status;
}

#else

TCI_FN bool tci_device_spans_wanted(void)
{
    return false;
}

TCI_FN bool tci_device_spans_one_by_one(const tc_program *f)
{
    (void)f;
    return false;
}

TCI_FN bool tci_device_spans_begin(tci_device_spans *s, const tc_program *f, void *queue, int most)
{
    (void)s, (void)f, (void)queue, (void)most;
    return false;
}

TCI_FN tc_status tci_device_spans_launch(tci_device_spans *s, int i, const tc_launch *launch)
{
    (void)s, (void)i, (void)launch;
    return TC_ERR_UNSUPPORTED;
}

TCI_FN tc_status tci_device_spans_call(tci_device_spans *s, int i, tc_call *c,
                                       tc_status (*call)(tc_call *c, const tci_run_step *step))
{
    (void)s, (void)i, (void)c, (void)call;
    return TC_ERR_UNSUPPORTED;
}

TCI_FN tc_status tci_device_spans_replay(tci_device_spans *s, void *sequence)
{
    (void)s, (void)sequence;
    return TC_ERR_UNSUPPORTED;
}

TCI_FN tc_status tci_device_spans_end(tci_device_spans *s, bool waits)
{
    (void)s, (void)waits;
    return TC_ERR_UNSUPPORTED;
}

#endif
