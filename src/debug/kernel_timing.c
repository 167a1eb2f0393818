/* debug/kernel_timing.c - measures the time of individual kernels of a program.
 *
 * In: a program. Out: nanoseconds of one launch of each of its kernels, the minimum of several.
 *
 * Design: a kernel is measured on zeroed memory of its own, as compile/autotune.c does it: no run
 * of the program is needed, no user memory is read or written, and 0 is a valid index
 * everywhere. On a device, events around several launches give the time, which excludes the cost of
 * a launch on the host. */
#include "kernel_timing.h"

#include <string.h>

#include "../base/alloc.h"

enum {
    TCI_MEASURE_CALLS = 1000,
    TCI_MEASURE_LEAST = 3 /* samples of a short kernel, whatever its time is up to */
};
static const double tci_measure_sample_ns = 200000; /* of a sample: the clock is far finer */

typedef struct tci_measure {
    const tc_program *f;
    const tci_run_step *step;
    void **slots; /* operands, then work memory */
    int64_t *literals, *faults;
    char *work, *interp;
    void *events[2]; /* of the device, or NULL: the host's clock is used */
} tci_measure;

static void *tci_measure_get(const tc_backend *device, int64_t bytes)
{
    void *host = tci_heap_get_aligned((size_t)TCI_MAX(bytes, (int64_t)64));
    if (host) {
        memset(host, 0, (size_t)bytes);
    }
    if (!host || !device || !device->alloc) {
        return host;
    }
    void *memory = device->alloc(device->user, TCI_MAX(bytes, (int64_t)64));
    if (memory && device->upload(device->user, memory, host, bytes) != TC_OK) {
        device->free(device->user, memory);
        memory = NULL;
    }
    tci_heap_free_aligned(host);
    return memory;
}

static void tci_measure_drop(const tc_backend *device, void *memory)
{
    if (memory && device && device->alloc) {
        device->free(device->user, memory);
    } else {
        tci_heap_free_aligned(memory);
    }
}

/* A tci_pool_body. */
static void tci_measure_part(void *arg, int worker, int64_t begin, int64_t end)
{
    const tci_measure *m = arg;
    const tci_run_step *step = m->step;
    void *own[TCI_WORK_OPERANDS + 1];
    void *const *slots = m->slots;
    if (step->work_bytes > 0 && step->fn) {
        memcpy(own, m->slots, sizeof(*own) * (size_t)step->n_operands);
        own[step->n_operands] = m->work + m->f->work_bytes * worker;
        slots = own;
    }
    if (step->fn) {
        step->fn(slots, m->literals, &m->faults[worker], begin, end);
    } else {
        tci_interp_run(step->interp, m->interp + (size_t)m->f->code->interp_bytes * (size_t)worker,
                       slots, m->literals, &m->faults[worker], begin, end);
    }
}

static void tci_measure_make_events(tci_measure *m)
{
    const tc_backend *device = m->f->code->device;
    const tc_backend_queues *q = device ? device->queues : NULL;
    bool ok = q && q->event_make && q->event_record && q->event_elapsed;
    for (int i = 0; i < 2 && ok; i++) {
        ok = q->event_make(device->user, &m->events[i]) == TC_OK;
    }
    if (!ok && m->events[0]) {
        q->event_free(device->user, m->events[0]);
        m->events[0] = NULL;
    }
}

static void tci_measure_free_events(tci_measure *m)
{
    const tc_backend *device = m->f->code->device;
    for (int i = 0; i < 2 && m->events[0]; i++) {
        device->queues->event_free(device->user, m->events[i]);
    }
}

/* Launches it so often. False: a device failed. */
static bool tci_measure_launch(tci_measure *m, int step, int64_t calls)
{
    const tci_code *code = m->f->code;
    const tc_backend *device = code->device;
    const tci_code_kernel *k = &code->kernels[code->steps[step].kernel];
    bool ok = true;
    for (int64_t i = 0; i < calls && ok; i++) {
        tc_launch launch = {.function = k->function,
                            .buffers = m->slots,
                            .literals = m->literals,
                            .fault = NULL,
                            .n_buffers = k->n_operands + (m->step->work_bytes > 0),
                            .n_literals = k->n_literals,
                            .task_end = m->step->n_tasks};
        if (device) {
            ok = device->launch(device->user, &launch) == TC_OK;
        } else {
            tci_pool_run(&m->f->options, TCI_MAX(m->step->threads, 1), m->step->n_tasks,
                         m->step->least, tci_measure_part, m);
        }
    }
    return ok;
}

/* Nanoseconds of a launch, measured over this many; 0: a device failed. */
static double tci_measure_sample(tci_measure *m, int step, int64_t calls)
{
    const tc_backend *device = m->f->code->device;
    const tc_backend_queues *q = m->events[0] ? device->queues : NULL;
    double ms = 0;
    int64_t from = tci_os_now_ns();
    bool ok = (!q || q->event_record(device->user, NULL, m->events[0]) == TC_OK) &&
              tci_measure_launch(m, step, calls) &&
              (!q || q->event_record(device->user, NULL, m->events[1]) == TC_OK) &&
              (!device || device->sync(device->user) == TC_OK);
    double ns = (double)(tci_os_now_ns() - from);
    if (ok && q && q->event_elapsed(device->user, m->events[0], m->events[1], &ms) == TC_OK) {
        ns = ms * 1e6;
    }
    return ok ? TCI_MAX(ns, 1) / (double)calls : 0;
}

static double tci_measure_time(tci_measure *m, int step, int64_t until)
{
    double best = 0;
    int64_t calls = 1;
    for (int round = 0; round < 20; round++) {
        double ns = tci_measure_sample(m, step, calls);
        if (ns <= 0) {
            return 0;
        }
        best = round <= 1 || ns < best ? ns : best; /* the first one warms up */
        bool few = round < TCI_MEASURE_LEAST && ns < tci_measure_sample_ns; /* another is cheap */
        if (round && !few && tci_os_now_ns() >= until) {
            break;
        }
        double many = tci_measure_sample_ns / ns;
        calls = many < 1 ? 1 : (int64_t)TCI_MIN(many, (double)TCI_MEASURE_CALLS);
    }
    return best;
}

static int64_t tci_measure_bytes(const tci_code *code, const tci_code_step *s, int operand)
{
    const tci_code_buffer *b = &code->buffers[s->operands[operand]];
    return tci_dim_known(b->bytes) - tci_dim_known(s->offsets[operand]);
}

static bool tci_measure_can(const tc_program *f, int step)
{
    const tci_code_kernel *k = &f->code->kernels[f->code->steps[step].kernel];
    bool host = f->code->device == NULL;
    bool runs = host ? (k->fn || k->interp) && k->n_operands <= TCI_WORK_OPERANDS
                     : k->function != NULL;
    bool ends = !k->is_loop || (host && k->go < 0); /* whatever its memory holds */
    return f->steps && !f->code->n_symbols && !k->call && !k->faults && runs && ends;
}

static double tci_measure_step(const tc_program *f, int step, int64_t until)
{
    const tci_code *code = f->code;
    const tci_code_step *s = &code->steps[step];
    int n = code->kernels[s->kernel].n_operands, threads = f->max_threads;
    tci_measure m = {.f = f, .step = &f->steps[step]};
    m.slots = tci_heap_get(sizeof(void *) * (size_t)(n + 1));
    m.literals = tci_heap_get(sizeof(int64_t) * (size_t)(code->n_literals + 1));
    m.faults = tci_heap_get(sizeof(int64_t) * (size_t)threads);
    int64_t work = code->device ? m.step->work_bytes : f->work_bytes * threads;
    m.work = tci_measure_get(code->device, work);
    m.interp = tci_heap_get_aligned((size_t)(code->interp_bytes * threads + 64));
    bool ok = m.slots && m.literals && m.faults && m.work && m.interp;
    for (int o = 0; o < n && ok; o++) {
        m.slots[o] = tci_measure_get(code->device, tci_measure_bytes(code, s, o));
        ok = m.slots[o] != NULL;
    }
    if (ok) {
        m.slots[n] = m.work;
    }
    double ns = 0;
    if (ok) {
        tci_measure_make_events(&m);
        ns = tci_measure_time(&m, step, until);
        tci_measure_free_events(&m);
    }
    for (int o = 0; o < n && m.slots; o++) {
        tci_measure_drop(code->device, m.slots[o]);
    }
    tci_measure_drop(code->device, m.work);
    tci_heap_free_aligned(m.interp);
    tci_heap_free(m.slots);
    tci_heap_free(m.literals);
    tci_heap_free(m.faults);
    return ns;
}

TCI_FN void tci_measure_rows(const tc_program *f, tci_summary_row *rows, int n, int ms)
{
    int64_t now = tci_os_now_ns(), deadline = now + (int64_t)ms * 1000000;
    for (int i = 0; i < n; i++) {
        now = tci_os_now_ns();
        int64_t until = now + TCI_MAX((deadline - now) / (n - i), (int64_t)0);
        bool can = tci_measure_can(f, rows[i].step);
        rows[i].ns = can ? (double)rows[i].calls * tci_measure_step(f, rows[i].step, until) : 0;
    }
}
