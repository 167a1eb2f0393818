/* debug/device_spans.c - times of kernels on a device.
 *
 * In: launches, one by one. Out: for each a record of the launch by the host and one of the kernel,
 * with a flow between them.
 * The one idea: an event before and one after each launch, read when all is done, give times by the
 * device's clock; a base event, after which the host waits, gives the host's time of the same
 * moment. A device without events is waited for after each launch instead, by the host's clock. */
#include "device_spans.h"

#include "../base/alloc.h"
#include "../run/collective.h"
#include "profile.h"

#ifndef TC_NO_DEBUG

static tc_status tci_device_spans_sync(const tci_device_spans *s)
{
    return s->queue ? s->device->queues->sync(s->device->user, s->queue)
                    : s->device->sync(s->device->user);
}

static void tci_device_spans_free(tci_device_spans *s)
{
    for (int i = 0; s->events && i <= 2 * s->most; i++) {
        if (s->events[i]) {
            s->device->queues->event_free(s->device->user, s->events[i]);
        }
    }
    tci_heap_free(s->events);
    tci_heap_free(s->steps);
    tci_heap_free(s->host_ns);
}

/* Events and the base; without one of them the host's clock is used. */
static void tci_device_spans_make_events(tci_device_spans *s)
{
    const tc_backend_queues *q = s->device->queues;
    bool ok = q && q->event_make && q->event_record && q->event_elapsed;
    s->events = ok ? tci_heap_get(sizeof(void *) * (size_t)(2 * s->most + 1)) : NULL;
    for (int i = 0; s->events && ok && i <= 2 * s->most; i++) {
        ok = q->event_make(s->device->user, &s->events[i]) == TC_OK;
    }
    ok = ok && s->events && !tci_device_spans_sync(s) &&
         !q->event_record(s->device->user, s->queue, s->events[0]) && !tci_device_spans_sync(s);
    s->base_ns = tci_os_now_ns();
    if (!ok && s->events) {
        for (int i = 0; i <= 2 * s->most; i++) {
            if (s->events[i]) {
                q->event_free(s->device->user, s->events[i]);
            }
        }
        tci_heap_free(s->events);
        s->events = NULL;
    }
}

TCI_FN bool tci_device_spans_wanted(void)
{
    return (tci_profile_watch() & TCI_PROFILE_RECORDS) && tci_profile_times_devices();
}

TCI_FN bool tci_device_spans_begin(tci_device_spans *s, const tc_program *f, void *queue, int most)
{
    *s = (tci_device_spans){.f = f, .device = f->code->device, .queue = queue, .most = most};
    s->steps = tci_heap_get(sizeof(*s->steps) * (size_t)(most + 1));
    s->host_ns = tci_heap_get(sizeof(*s->host_ns) * 2 * (size_t)(most + 1));
    if (!s->steps || !s->host_ns) {
        tci_heap_free(s->steps);
        tci_heap_free(s->host_ns);
        return false;
    }
    tci_device_spans_make_events(s);
    return true;
}

TCI_FN tc_status tci_device_spans_launch(tci_device_spans *s, int i, const tc_launch *launch)
{
    const tc_backend *device = s->device;
    int n = s->n;
    tc_status status = TC_OK;
    if (s->events) {
        status = device->queues->event_record(device->user, s->queue, s->events[2 * n + 1]);
    }
    s->host_ns[2 * n] = tci_os_now_ns();
    if (!status) {
        status = s->queue ? device->queues->launch(device->user, s->queue, launch)
                          : device->launch(device->user, launch);
    }
    int64_t launched = tci_os_now_ns();
    if (s->events && !status) {
        status = device->queues->event_record(device->user, s->queue, s->events[2 * n + 2]);
    } else if (!status) {
        status = tci_device_spans_sync(s);
        launched = tci_os_now_ns();
    }
    s->host_ns[2 * n + 1] = launched;
    s->steps[n] = i;
    s->n += !status;
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

TCI_FN tc_status tci_device_spans_end(tci_device_spans *s)
{
    tc_status status = tci_device_spans_sync(s);
    int64_t at[2];
    for (int i = 0; i < s->n && !status; i++) {
        const tci_custom_call *call = s->f->steps[s->steps[i]].call;
        if (call && call->comm.phase) {
            if (tci_device_spans_read(s, i, at)) {
                tci_device_spans_note(s, i, at);
            }
        } else if (tci_device_spans_read(s, i, at)) {
            uint32_t flow = tci_profile_flow();
            tci_profile_add_flow(TCI_RECORD_LAUNCH, s->f, s->steps[i], s->host_ns[2 * i],
                                 s->host_ns[2 * i + 1], flow);
            tci_profile_add_flow(TCI_RECORD_DEVICE, s->f, s->steps[i], at[0], at[1], flow);
        }
    }
    tci_device_spans_free(s);
    return status;
}

#else

TCI_FN bool tci_device_spans_wanted(void)
{
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

TCI_FN tc_status tci_device_spans_end(tci_device_spans *s)
{
    (void)s;
    return TC_ERR_UNSUPPORTED;
}

#endif
