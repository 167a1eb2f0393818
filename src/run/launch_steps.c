/* run/launch_steps.c - launches single steps of a run: kernels, custom functions, collectives and
 * engines, on threads of the host or on a device.
 *
 * In: a call whose operands are bound, a step. Out: the step is done (host) or submitted (device).
 * User functions are called by the host between launches of a device, with copies of their
 * operands. While a profile records, each launch is timed. */
#include <string.h>

#include "../base/alloc.h"
#include "../compile/graph_backend_program.h"
#include "../debug/device_spans.h"
#include "../debug/kernel_check.h"
#include "launch_steps.h"

/* ---- launches on the host ---- */

/* The step of a program of a graph-level backend, whose model has copies of captured memory. */
static tc_status tci_call_engine(tc_call *c, const tci_run_step *step)
{
    const tci_graph_program *p = step->call->engine;
    char text[TC_GRAPH_TEXT];
    for (int i = 0; i < p->n_constants; i++) {
        const tci_storage *s = c->program->captured[p->constants[i]];
        if (__atomic_load_n(&s->version, __ATOMIC_ACQUIRE) != p->versions[i]) {
            return tci_call_refuse(c, TC_ERR_BACKEND,
                                   "%s: captured memory was changed (tc_touch) "
                                   "after the program was compiled, and the model has its old "
                                   "values: compile it again, or make the memory a tc_param",
                                   p->entry->backend.name);
        }
    }
    tc_status status = tci_graph_program_run(step->call, c->slots + step->first_slot,
                                             step->n_operands, text);
    return status ? tci_call_refuse(c, status, "%s: %s", p->entry->backend.name,
                                    text[0] ? text : "no reason given")
                  : TC_OK;
}

/* A user function. A run continues after an assertion that failed, until its CHECK step. */
static void tci_call_custom(tc_call *c, const tci_custom_call *call, void *const *operands,
                            int n_results)
{
    char text[400];
    tci_custom_run(call, operands, n_results);
    if (call->op->asserts && tci_checker_failed(text, sizeof(text)) && !c->asserted) {
        tci_call_refuse(c, TC_ERR_CHECK, "%s", text);
        c->asserted = true;
    }
}

typedef struct tci_call_part {
    tc_call *call;
    const tci_run_step *step;
} tci_call_part;

/* A tci_pool_body. Every thread has a fault word and a workspace of its own. */
static void tci_call_do_part(void *arg, int worker, int64_t begin, int64_t end)
{
    const tci_call_part *part = arg;
    const tci_run_step *step = part->step;
    tc_call *c = part->call;
    void *const *slots = c->slots + step->first_slot;
    int64_t *fault = step->faults ? &c->faults[worker] : NULL;
    if (step->fn && step->work_bytes > 0 && worker > 0) {
        void *own[TCI_WORK_OPERANDS + 1];
        memcpy(own, slots, sizeof(*own) * (size_t)step->n_operands);
        own[step->n_operands] = c->work + c->program->work_bytes * worker;
        step->fn(own, step->literals, fault, begin, end);
    } else if (step->fn) {
        step->fn(slots, step->literals, fault, begin, end);
    } else if (step->call && step->call->comm.phase) {
        c->broke = c->broke ? c->broke : tci_collectives_step(c, step);
    } else if (step->call && step->call->engine) {
        c->broke = tci_call_engine(c, step);
    } else if (step->call && step->call->kind == TCI_CUSTOM_UNPACK) {
        tci_graph_program_unpack(step->call, slots, step->n_operands);
    } else if (step->call) {
        tci_call_custom(c, step->call, slots, step->n_operands - step->call->n_inputs);
    } else {
        char *workspace = c->interp + (size_t)c->program->code->interp_bytes * (size_t)worker;
        tci_interp_run(step->interp, workspace, slots, step->literals, fault, begin, end);
    }
}

/* A fused loop, slice by slice. */
static void tci_call_launch_loop(tc_call *c, const tci_run_step *step)
{
    tci_call_part part = {c, step};
    const char *go = step->go >= 0 ? c->slots[step->first_slot + step->go] : NULL;
    for (int64_t t = 0; t < step->rounds && !c->broke && (!t || !go || *go); t += step->slice) {
        c->broke = tci_walk_is_cancelled(c) ? TC_ERR_CANCELLED : TC_OK;
        if (!c->broke) {
            tci_call_do_part(&part, 0, t, TCI_MIN(t + step->slice, step->rounds));
        }
    }
}

TCI_FN void tci_call_launch_step(tc_call *c, const tci_run_step *step)
{
    tci_call_part part = {c, step};
    if (step->slice) {
        tci_call_launch_loop(c, step);
    } else if (step->threads == 1) {
        tci_call_do_part(&part, 0, 0, step->n_tasks);
    } else {
        tci_pool_run(&c->program->options, step->threads, step->n_tasks, step->least,
                     tci_call_do_part, &part);
    }
}

/* The same with a record of the part of each thread. */
static void tci_call_watch_part(void *arg, int worker, int64_t begin, int64_t end)
{
    const tci_call_part *part = arg;
    const tc_program *f = part->call->program;
    int64_t from = tci_os_now_ns();
    tci_call_do_part(arg, worker, begin, end);
    tci_profile_add(TCI_RECORD_PART, f, (int32_t)(part->step - f->steps), from, tci_os_now_ns());
}

/* The host's time at its end. */
static int64_t tci_walk_watch_step(tc_call *c, int i, int watch, int64_t begin)
{
    const tc_program *f = c->program;
    const tci_run_step *step = &f->steps[i];
    bool records = watch & TCI_PROFILE_RECORDS;
    tci_call_part part = {c, step};
    if (step->threads <= 1 || !records) {
        tci_call_launch_step(c, step);
    } else {
        tci_pool_run(&f->options, step->threads, step->n_tasks, step->least, tci_call_watch_part,
                     &part);
    }
    int64_t end = tci_os_now_ns();
    if (records) {
        tci_profile_add(TCI_RECORD_KERNEL, f, i, begin, end);
    }
    if (watch & TCI_PROFILE_LOGS) {
        tci_profile_log(f, i, end - begin);
    }
    return end;
}

/* A run lasts from the begin of its first kernel to the end of its last: reading the clock costs
 * more than a record. */
TCI_FN void tci_walk_watch_here(tc_call *c, int begin, int end)
{
    int watch = tci_profile_watch();
    int64_t begin_ns = tci_os_now_ns(), end_ns = begin_ns;
    for (int i = begin; i < end && !c->broke; i++) {
        end_ns = tci_walk_watch_step(c, i, watch, i == begin ? begin_ns : tci_os_now_ns());
    }
    if (watch & TCI_PROFILE_RECORDS) {
        tci_profile_add(TCI_RECORD_RUN, c->program, begin < c->program->code->n_init, begin_ns,
                        end_ns);
    }
}

/* ---- launches on a device ---- */

TCI_FN int tci_device_buffers(const tc_call *c, int i)
{
    const tci_run_step *step = &c->program->steps[i];
    return step->n_operands + (step->work_bytes > 0);
}

TCI_FN tc_launch tci_device_launch(const tc_call *c, int i)
{
    const tci_code *code = c->program->code;
    const tci_run_step *step = &c->program->steps[i];
    const tci_code_kernel *kernel = &code->kernels[code->steps[i].kernel];
    tc_launch launch = {.function = kernel->function,
                        .buffers = c->slots + step->first_slot,
                        .literals = step->literals,
                        .fault = step->faults ? c->faults : NULL,
                        .n_buffers = tci_device_buffers(c, i),
                        .n_literals = kernel->n_literals + 2 * kernel->is_loop,
                        .task_begin = 0,
                        .task_end = step->n_tasks};
    if (TCI_UNLIKELY(c->program->collectives != NULL)) {
        tci_collectives_record(c, step, &launch);
    }
    return launch;
}

/* Operands are aligned as those of an arena are. */
static int64_t tci_walk_room(int64_t bytes)
{
    return (bytes + 63) & ~(int64_t)63;
}

/* A user function, on host memory with room for its operands. */
static tc_status tci_walk_call_copies(tc_call *c, const tci_run_step *step, char *host)
{
    const tc_backend *device = c->program->code->device;
    const tci_custom_call *call = step->call;
    void *const *there = c->slots + step->first_slot;
    void *here[TC_CUSTOM_MOST + 1];
    tc_status status = TC_OK;
    for (int i = 0; i <= call->n_inputs && !status; i++) {
        int64_t bytes = tci_custom_bytes(&call->arrays[i]);
        here[i] = host;
        host += tci_walk_room(bytes);
        if (i < call->n_inputs && bytes) {
            status = device->download(device->user, here[i], there[i], bytes);
        }
    }
    int64_t bytes = tci_custom_bytes(&call->arrays[call->n_inputs]);
    if (!status) {
        tci_call_custom(c, call, here, 1);
    }
    for (int i = call->n_inputs; i < step->n_operands && bytes && !status; i++) {
        status = device->upload(device->user, there[i], here[call->n_inputs], bytes);
    }
    return status;
}

/* In its place among the launches: what was launched before is done, and what follows waits. */
static tc_status tci_walk_call(tc_call *c, const tci_run_step *step)
{
    const tc_backend *device = c->program->code->device;
    const tci_custom_call *call = step->call;
    int64_t bytes = 1;
    if (call->comm.phase) {
        return tci_collectives_step(c, step);
    }
    tc_status status = device->sync(device->user);
    if (!status && !device->alloc) {
        tci_call_custom(c, call, c->slots + step->first_slot, step->n_operands - call->n_inputs);
    }
    if (status || !device->alloc) {
        return status;
    }
    for (int i = 0; i <= call->n_inputs; i++) {
        bytes += tci_walk_room(tci_custom_bytes(&call->arrays[i]));
    }
    char *host = tci_heap_get_aligned((size_t)bytes);
    status = host ? tci_walk_call_copies(c, step, host) : TC_ERR_MEMORY;
    tci_heap_free_aligned(host);
    return status;
}

TCI_FN tc_status tci_walk_launch_one(tc_call *c, int i)
{
    const tc_backend *device = c->program->code->device;
    const tci_run_step *step = &c->program->steps[i];
    tc_launch launch = tci_device_launch(c, i);
    return step->call ? tci_walk_call(c, step) : device->launch(device->user, &launch);
}

/* A run of a profile, on the host's track. */
static void tci_walk_watched(const tc_call *c, int begin, int64_t begin_ns)
{
    if (tci_profile_watch() & TCI_PROFILE_RECORDS) {
        tci_profile_add(TCI_RECORD_RUN, c->program, begin < c->program->code->n_init, begin_ns,
                        tci_os_now_ns());
    }
}

/* While a profile records: one by one, each timed by the device. Their shares of recorded runs are
 * not those of a first run, which loads code. */
TCI_FN tc_status tci_walk_watch_there(tc_call *c, void *queue, int begin, int end)
{
    tci_device_spans spans;
    tc_status status = TC_OK;
    int64_t begin_ns = tci_os_now_ns();
    if (!tci_device_spans_begin(&spans, c->program, queue, end - begin)) {
        return TC_ERR_MEMORY;
    }
    spans.shares = spans.track && c->device && c->device->runs > 1 &&
                   begin >= c->program->code->n_init;
    for (int i = begin; i < end && !status; i++) {
        const tci_run_step *step = &c->program->steps[i];
        tc_launch launch = tci_device_launch(c, i);
        bool joins = step->call && step->call->comm.phase;
        status = joins        ? tci_device_spans_call(&spans, i, c, tci_walk_call)
                 : step->call ? tci_walk_call(c, step)
                              : tci_device_spans_launch(&spans, i, &launch);
    }
    tc_status ended = tci_device_spans_end(&spans, true);
    tci_walk_watched(c, begin, begin_ns);
    return status ? status : ended;
}

/* The replay of a recorded run, timed as one span. */
TCI_FN tc_status tci_walk_watch_replay(tc_call *c, void *sequence, void *queue, int begin,
                                       bool waits)
{
    tci_device_spans spans;
    int64_t begin_ns = tci_os_now_ns();
    if (!tci_device_spans_begin(&spans, c->program, queue, 1)) {
        return TC_ERR_MEMORY;
    }
    tc_status status = tci_device_spans_replay(&spans, sequence);
    tc_status ended = tci_device_spans_end(&spans, waits || status);
    tci_walk_watched(c, begin, begin_ns);
    return status ? status : ended;
}

TCI_FN tc_status tci_walk_launch_each(tc_call *c, int begin, int end)
{
    if (TCI_UNLIKELY(tci_device_spans_wanted())) {
        return tci_walk_watch_there(c, NULL, begin, end);
    }
    tc_status status = TC_OK;
    for (int i = begin; i < end && !status; i++) {
        status = tci_walk_launch_one(c, i);
    }
    return status;
}
