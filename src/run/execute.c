/* run/execute.c - executes the steps of a program (launches, copies, loops, collectives), on the
 * host and on devices.
 *
 * In: a checked call whose user buffers are bound. Out: all steps are done, or c->last names the
 * first that failed.
 *
 * Launches go to the host (functions or the interpreter, on threads of the pool) or to a backend
 * (run/launch_steps.c), with the loops among them (run/launch_control_flow.c). A backend with graph
 * capture (CUDA graphs) records the launches of a run once and replays them as long as operand
 * addresses do not change (run/bind_operands.c). With loops of known trip counts this begins with
 * the second run with operands at the same addresses, since capturing takes longer than launching
 * once. A run with user functions is not captured.
 *
 * Queues: a synchronous run submits everything to the device's own queue, in order. An asynchronous
 * run (r->splits) has a queue for each role in the list, so that uploads, kernels and downloads
 * overlap those of other runs; outputs are downloaded to host memory of the backend, for which
 * copies need not wait. Everything up to the first step at which the host must synchronize is
 * submitted at once; the rest follows when that is done.
 *
 * The init section runs first if the cached results were not computed from the current captured
 * memory (run/init_cache.c). Parameters: the order of the device's queue serializes runs, so a run
 * holds them only while its launches are submitted (tci_param_claim), and launches of asynchronous
 * runs with parameters go to the device's own queue too. New values that do not overwrite the old
 * ones are stored in copies of the call and committed when everything else succeeded.
 *
 * Cancellation: a flag (tc_call_cancel, options.cancel) is read at the start, before each iteration
 * of a loop, and before each slice of an in-kernel loop (about 1 ms of iterations). */
#include <string.h>

#include "../debug/kernel_check.h"
#include "../debug/device_spans.h"
#include "launch_steps.h"
#include "device_memory.h"

/* A run that ends takes the request of tc_call_cancel with it. */
TCI_INLINE void tci_walk_take_cancel(tc_call *c)
{
    if (TCI_UNLIKELY(__atomic_load_n(c->cancel, __ATOMIC_RELAXED))) {
        __atomic_store_n(c->cancel, 0, __ATOMIC_RELAXED);
    }
}

/* Turns a backend's status, or cancellation, into the status and text of the call. */
static tc_status tci_walk_judge(tc_call *c, tc_status status)
{
    const tc_backend *device = c->program->code->device;
    if (TCI_UNLIKELY(status == TC_ERR_COMM)) {
        return status; /* it was told where it was found */
    }
    if (TCI_UNLIKELY(status == TC_ERR_CANCELLED)) {
        return tci_call_refuse(c, status, "the run was cancelled before it ended");
    }
    const char *memory = TCI_UNLIKELY(status == TC_ERR_MEMORY) ? tci_device_memory_text() : "";
    if (TCI_UNLIKELY(memory[0])) {
        return tci_call_refuse(c, status, "%s", memory);
    }
    if (TCI_UNLIKELY(status == TC_ERR_CHECK || (status && !device))) {
        return status; /* debug/kernel_check.c has told why */
    }
    if (TCI_UNLIKELY(status)) {
        const char *why = device->last_error ? device->last_error(device->user) : NULL;
        return tci_call_refuse(c, status, "the backend %s failed: %s", device->name,
                               why ? why : "no reason given");
    }
    return TC_OK;
}

/* ---- queues ---- */

/* Event `which` of the call, made when first needed: what follows on queue `to` waits for all that
 * `from` was given so far. */
static tc_status tci_walk_order(tc_call *c, int which, void *from, void *to)
{
    const tc_backend *device = c->program->code->device;
    void **event = &c->device->events[which];
    tc_status status = *event ? TC_OK : device->queues->event_make(device->user, event);
    status = status ? status : device->queues->event_record(device->user, from, *event);
    return status ? status : device->queues->event_wait(device->user, to, *event);
}

static tc_status tci_walk_signal(tc_call *c, const tci_run *r, const tci_list_step *row)
{
    const tc_backend *device = c->program->code->device;
    void **event = &c->device->events[row->begin], *queue = r->queues[row->queue];
    if (!r->splits) {
        return TC_OK;
    }
    tc_status status = *event ? TC_OK : device->queues->event_make(device->user, event);
    return status ? status : device->queues->event_record(device->user, queue, *event);
}

static tc_status tci_walk_wait(tc_call *c, const tci_run *r, const tci_list_step *row)
{
    const tc_backend *device = c->program->code->device;
    return r->splits ? device->queues->event_wait(device->user, r->queues[row->queue],
                                                  c->device->events[row->begin])
                     : TC_OK;
}

/* ---- launches of a run on a device ---- */

/* Where a run with these goes: its own queue for kernels, or the device's. */
static bool tci_walk_is_apart(const tc_call *c, const tci_run *r)
{
    const tci_code *code = c->program->code;
    return r->splits && !c->program->n_params && !code->n_repeats && !code->calls &&
           !c->program->options.check;
}

static tc_status tci_walk_replay(tc_call *c, const tci_run *r, int begin, int end)
{
    const tc_backend *device = c->program->code->device;
    void *queue = tci_walk_is_apart(c, r) ? r->queues[TCI_QUEUE_WORK] : NULL;
    void **sequence = begin == c->program->commit ? &c->device->updates : &c->device->sequence;
    tc_status status = *sequence ? TC_OK : tci_walk_record(c, begin, end, sequence);
    if (status) {
        return status == TC_ERR_COMM ? tci_collectives_refuse(c) : status;
    }
    if (TCI_UNLIKELY(tci_device_spans_wanted())) {
        return tci_walk_watch_replay(c, *sequence, queue, begin, !r->splits);
    }
    return queue ? device->queues->replay(device->user, queue, *sequence)
                 : device->replay(device->user, *sequence);
}

/* One by one, each launch timed; from the second run on its times are the shares of recorded runs.
 */
static tc_status tci_walk_launch_watched(tc_call *c, const tci_run *r, int begin, int end)
{
    tc_status status = tci_walk_is_apart(c, r)
                           ? tci_walk_watch_there(c, r->queues[TCI_QUEUE_WORK], begin, end)
                           : tci_walk_launch_rounds(c, begin, end);
    bool is_whole = end == c->program->code->n_steps;
    if (!status && is_whole && c->device->runs > 1 && !c->program->options.check) {
        tci_profile_shares_end(c->program);
    }
    return status;
}

static tc_status tci_walk_launch_all(tc_call *c, const tci_run *r, int begin, int end)
{
    const tc_backend *device = c->program->code->device;
    const tci_code *code = c->program->code;
    tc_status status = TC_OK;
    bool again = !code->n_repeats || c->device->runs > 0;
    c->device->runs = TCI_MIN(c->device->runs + (begin != c->program->commit), 2);
    bool watched = tci_device_spans_wanted();
    bool records = c->program->options.record >= 0 && !c->program->options.check;
    if (again && records && !(watched && tci_device_spans_one_by_one(c->program)) &&
        tci_walk_recorded(c, begin, end) > 0) {
        return tci_walk_replay(c, r, begin, end);
    }
    if (watched) {
        return tci_walk_launch_watched(c, r, begin, end);
    }
    if (!tci_walk_is_apart(c, r)) {
        return tci_walk_launch_rounds(c, begin, end);
    }
    for (int i = begin; i < end && !status; i++) {
        tc_launch launch = tci_device_launch(c, i);
        status = device->queues->launch(device->user, r->queues[TCI_QUEUE_WORK], &launch);
    }
    return status;
}

/* With collectives updates follow when these went well, as a rank that is gone must leave old
 * values. */
static tc_status tci_walk_launch_parts(tc_call *c, const tci_run *r, int begin, int end)
{
    const int commit = TCI_MIN(TCI_MAX(c->program->commit, begin), end);
    if (!c->program->collectives) {
        return tci_walk_launch_all(c, r, begin, end);
    }
    tc_status status = tci_walk_launch_all(c, r, begin, commit);
    status = status ? status : tci_collectives_finish(c);
    return status || commit == end ? status : tci_walk_launch_all(c, r, commit, end);
}

/* Overwritten parameters are newest on the device once the launches are queued. */
static void tci_walk_mark_changed(tc_call *c)
{
    const tc_program *f = c->program;
    for (int i = 0; i < f->n_effects; i++) {
        if (f->effects[i].bytes > 0 && f->effects[i].over_old) {
            tci_copies_changed(f->captured[f->effects[i].captured], f->code->device);
        }
    }
}

static tc_status tci_walk_keep(tc_call *c, tci_run *r);

/* The launches of a run, between the claim of its parameters and their release. */
static tc_status tci_walk_claimed(tc_call *c, tci_run *r, int begin, int end)
{
    tc_status status = tci_walk_judge(c, tci_bind_ports(c, r, true));
    if (!status && c->program->code->n_init) {
        tci_init_cache_note(c);
        status = tci_walk_keep(c, r);
    }
    if (!status) {
        tci_bind_refresh(c);
        void *work = r->queues[TCI_QUEUE_WORK];
        bool crosses = r->splits && !tci_walk_is_apart(c, r);
        status = crosses ? tci_walk_order(c, TCI_LIST_EVENTS, work, NULL) : TC_OK;
        status = status ? status : tci_walk_launch_parts(c, r, begin, end);
        if (!status && crosses) {
            status = tci_walk_order(c, TCI_LIST_EVENTS + 1, NULL, work);
        }
        status = tci_walk_judge(c, status);
    }
    if (!status) {
        tci_walk_mark_changed(c);
    }
    return status;
}

static tc_status tci_walk_launch_there(tc_call *c, tci_run *r, int begin, int end)
{
    bool is_init = begin < c->program->code->n_init;
    if (!c->device || is_init) {
        return tci_walk_judge(c, tci_walk_launch_rounds(c, begin, end));
    }
    tc_status status = tci_walk_judge(c, tci_param_claim(c));
    if (!status) {
        status = tci_walk_claimed(c, r, begin, end);
        tci_param_unclaim(c);
    }
    return status;
}

/* ---- other steps ---- */

TCI_FN int64_t tci_call_fault(const tc_call *c)
{
    for (int i = 0; i < c->program->max_threads; i++) {
        if (c->faults[i]) {
            return c->faults[i] - 1;
        }
    }
    return -1;
}

static tc_status tci_walk_check(tc_call *c, tci_run *r)
{
    const tc_backend *device = c->program->code->device;
    bool waits = device && !r->splits; /* else it was waited for */
    tc_status status = waits ? tci_walk_judge(c, device->sync(device->user)) : TC_OK;
    int64_t size = !status && c->program->faults ? tci_call_fault(c) : -1;
    r->waited = true;
    c->unclean = status || size >= 0;
    if (TCI_UNLIKELY(size >= 0)) {
        return tci_index_tell(c, c->program, NULL, size, r->inputs, r->outputs);
    }
    return TCI_UNLIKELY(c->asserted) && !status ? TC_ERR_CHECK : status;
}

static tc_status tci_walk_upload(tc_call *c, tci_run *r, int begin, int end)
{
    const tc_backend *device = c->program->code->device;
    tc_status status = TC_OK;
    for (int i = begin; i < end && !status; i++) {
        int64_t bytes = tci_bind_bytes(c->program->code, i);
        void *copy = tci_bind_copy(c, i);
        const void *from = tci_bind_user_memory(c, r, i);
        if (bytes && copy) {
            status = r->splits ? device->queues->copy(device->user, r->queues[TCI_QUEUE_UP], copy,
                                                      from, bytes)
                               : device->upload(device->user, copy, from, bytes);
        }
    }
    return status;
}

static tc_status tci_walk_download_one(tc_call *c, const tci_run *r, int output, const void *from,
                                       int64_t bytes)
{
    const tc_backend *device = c->program->code->device;
    void *to = r->outputs->items[output].data, **staging = &c->device->staging[output];
    if (!r->splits) {
        return device->download(device->user, to, from, bytes);
    }
    if (!r->ends) {
        *staging = *staging ? *staging : device->queues->host_alloc(device->user, bytes);
        if (!*staging) {
            return TC_ERR_MEMORY;
        }
        to = *staging;
    }
    return device->queues->copy(device->user, r->queues[TCI_QUEUE_DOWN], to, from, bytes);
}

static tc_status tci_walk_download(tc_call *c, tci_run *r, int begin, int end)
{
    int first = c->program->code->n_inputs;
    tc_status status = TC_OK;
    for (int i = begin; i < end && !status; i++) {
        int64_t bytes = tci_bind_bytes(c->program->code, first + i);
        const void *copy = tci_bind_copy(c, first + i);
        if (bytes && copy) {
            status = tci_walk_download_one(c, r, i, copy, bytes);
        }
    }
    return status;
}

/* Copies outputs that were downloaded during other work to the user's memory. */
static void tci_walk_unstage(tc_call *c, const tci_run *r, int begin, int end)
{
    int first = c->program->code->n_inputs;
    for (int i = begin; i < end; i++) {
        int64_t bytes = tci_bind_bytes(c->program->code, first + i);
        if (bytes && tci_bind_copy(c, first + i)) {
            memcpy(r->outputs->items[i].data, c->device->staging[i], (size_t)bytes);
        }
    }
}

/* The new value of a parameter, which the run left in the call's copy. */
static tc_status tci_walk_set_one(tc_call *c, int effect)
{
    const tc_program *f = c->program;
    const tc_backend *device = f->code->device;
    const tci_run_effect *e = &f->effects[effect];
    tci_storage *s = f->captured[e->captured];
    const void *from = c->device->bound[f->code->n_inputs + f->n_outputs + effect];
    void *to = NULL;
    if (!device->copy) {
        return tci_param_download(s, device, from);
    }
    tc_status status = tci_copies_bring(s, device, &to);
    status = status ? status : device->copy(device->user, to, from, e->bytes);
    if (!status) {
        tci_copies_changed(s, device);
    }
    return status;
}

static bool tci_walk_is_staged(const tci_run_effect *e)
{
    return e->bytes > 0 && !e->over_old;
}

static tc_status tci_walk_set(tc_call *c, int begin, int end)
{
    const tc_program *f = c->program;
    int n_staged = 0;
    for (int i = begin; i < end; i++) {
        n_staged += tci_walk_is_staged(&f->effects[i]);
    }
    tc_status status = n_staged ? tci_param_claim(c) : TC_OK;
    if (status || !n_staged) {
        return status;
    }
    for (int i = begin; i < end && !status; i++) {
        status = tci_walk_is_staged(&f->effects[i]) ? tci_walk_set_one(c, i) : TC_OK;
    }
    tci_param_unclaim(c);
    return status;
}

/* ---- the list ---- */

static tc_status tci_walk_row(tc_call *c, tci_run *r, const tci_list_step *row)
{
    r->waited = false;
    switch ((tci_list_kind)row->kind) {
    case TCI_LIST_LAUNCH: return tci_walk_launch_there(c, r, row->begin, row->end);
    case TCI_LIST_UPLOAD: return tci_walk_judge(c, tci_walk_upload(c, r, row->begin, row->end));
    case TCI_LIST_DOWNLOAD: return tci_walk_judge(c, tci_walk_download(c, r, row->begin, row->end));
    case TCI_LIST_SET: return tci_walk_judge(c, tci_walk_set(c, row->begin, row->end));
    case TCI_LIST_CHECK: return tci_walk_check(c, r);
    case TCI_LIST_SIGNAL: return tci_walk_judge(c, tci_walk_signal(c, r, row));
    case TCI_LIST_WAIT: return tci_walk_judge(c, tci_walk_wait(c, r, row));
    case TCI_LIST_COUNT: break;
    }
    return TC_OK;
}

static tc_status tci_walk_rows(tc_call *c, tci_run *r, int begin, int end)
{
    const tci_code *code = c->program->code;
    tc_status status = TC_OK;
    for (int i = begin; i < end && !status; i++) {
        const tci_list_step *row = &code->list[i];
        if (row->kind == TCI_LIST_LAUNCH && !code->device) {
            status = tci_walk_judge(c, tci_walk_launch_rounds(c, row->begin, row->end));
        } else {
            status = tci_walk_row(c, r, row);
        }
    }
    return status;
}

/* A row of the init section; of its launches those of units that are not computed yet. */
static tc_status tci_walk_init_row(tc_call *c, tci_run *r, const tci_list_step *row)
{
    const tci_code *code = c->program->code;
    tc_status status = TC_OK;
    if (row->kind != TCI_LIST_LAUNCH) {
        return tci_walk_row(c, r, row);
    }
    for (int u = 0; u < code->n_units && !status; u++) {
        const tci_code_unit *unit = &code->units[u];
        for (int i = 0; i < unit->n_steps && tci_init_cache_wants(c, u) && !status; i++) {
            tci_list_step launch = *row;
            launch.begin = unit->steps[i];
            launch.end = launch.begin + 1;
            status = tci_walk_row(c, r, &launch);
        }
    }
    return status;
}

/* c->kept is what the init section makes of the captured memory as it was noted. */
static tc_status tci_walk_keep(tc_call *c, tci_run *r)
{
    const tci_code *code = c->program->code;
    bool ready = false;
    if (TCI_LIKELY(tci_init_cache_is_current(c))) {
        return TC_OK;
    }
    tc_status status = tci_init_cache_take(c, &ready);
    if (status) {
        return tci_call_refuse(c, status, "out of memory: %lld bytes for what is computed once",
                               (long long)code->kept_bytes);
    }
    if (!ready) {
        tci_run here = {.inputs = r->inputs, .outputs = r->outputs};
        tci_bind_kept(c);
        if (c->device) {
            tci_bind_refresh(c);
        }
        for (int i = 0; i < code->n_init_section && !status; i++) {
            status = tci_walk_init_row(c, &here, &code->list[i]);
        }
        if (!status && code->device) { /* other queues use it */
            status = tci_walk_judge(c, code->device->sync(code->device->user));
        }
        if (status) {
            tci_init_cache_drop(c);
            return status;
        }
        tci_init_cache_publish(c);
    }
    tci_bind_kept(c);
    return TC_OK;
}

TCI_FN tc_status tci_walk_once(tc_call *c)
{
    tci_run none = {.waited = true};
    bool has_params = c->program->n_params > 0;
    tc_status status = has_params ? tci_param_begin(c) : TC_OK;
    if (!status) {
        tci_fpenv saved = tci_fpenv_enter();
        if (!has_params) { /* else it is noted where they are held */
            tci_init_cache_note(c);
        }
        status = tci_walk_keep(c, &none);
        tci_fpenv_leave(saved);
        if (has_params) {
            tci_param_end(c, false);
        }
    }
    return status;
}

/* The operands in memory of the user. */
TCI_INLINE void tci_walk_bind_user(tc_call *c, const tci_run *r)
{
    const tci_run_bind *bind = c->program->binds, *end = bind + c->program->n_binds;
    const tc_buf *inputs = r->inputs->items, *outputs = r->outputs->items;
    int n_inputs = c->program->n_inputs;
    for (; bind < end; bind++) {
        int output = bind->arg - n_inputs;
        void *memory = output < 0 ? inputs[bind->arg].data : outputs[output].data;
        c->slots[bind->slot] = tci_run_at(memory, bind->offset);
    }
}

/* On a device what is captured is bound, and so looked at, only when the run has its parameters. */
static tc_status tci_walk_prepare(tc_call *c, tci_run *r)
{
    const tc_program *f = c->program;
    const volatile int *flag = f->options.cancel;
    if (flag && __atomic_load_n(flag, __ATOMIC_RELAXED)) {
        return tci_walk_judge(c, TC_ERR_CANCELLED);
    }
    for (int i = 0; c->unclean && i < f->max_threads; i++) {
        c->faults[i] = 0;
    }
    c->unclean = f->faults;
    c->asserted = false;
    if (c->device) {
        return tci_walk_judge(c, tci_bind_ports(c, r, false));
    }
    tci_walk_bind_user(c, r);
    if (!f->code->n_init) {
        return TC_OK;
    }
    if (!f->n_params) { /* else it is noted where they are held */
        tci_init_cache_note(c);
    }
    return tci_walk_keep(c, r);
}

static tc_status tci_walk_list(tc_call *c, tci_run *r)
{
    const tci_code *code = c->program->code;
    tc_status status = tci_walk_prepare(c, r);
    if (!status) {
        status = tci_walk_rows(c, r, code->n_init_section, code->n_list);
    }
    c->broke = TC_OK;
    if (code->device && !r->waited) {
        /* Also when it failed: what was launched before writes to memory and faults. */
        tc_status synced = code->device->sync(code->device->user);
        status = status ? status : tci_walk_judge(c, synced);
    }
    tci_walk_take_cancel(c);
    return status;
}

/* The list; with options.check the inputs are copied first, for the text of a failure. */
static tc_status tci_walk_checked_list(tc_call *c, tci_run *r)
{
    tc_status status = TC_OK;
    if (TCI_UNLIKELY(c->program->options.check)) {
        status = tci_checker_begin(c, r);
    }
    if (status == TC_ERR_MEMORY) {
        return tci_call_refuse(c, status, "out of memory: copies of the inputs");
    }
    return status ? status : tci_walk_list(c, r);
}

TCI_FN tc_status tci_walk_run(tc_call *c, tci_run *r)
{
    tc_status status = TC_OK;
    tci_fpenv saved = tci_fpenv_enter();
    if (TCI_LIKELY(c->program->only_launches)) {
        tci_walk_bind_user(c, r);
        tci_walk_launch_here(c, 0, c->program->code->n_steps);
        status = c->broke;
        c->broke = TC_OK;
    } else if (TCI_UNLIKELY(c->program->collectives != NULL)) {
        status = tci_collectives_begin(c);
        if (!status) {
            status = tci_walk_checked_list(c, r);
            tci_collectives_end(c, status);
        }
    } else {
        status = tci_walk_checked_list(c, r);
    }
    tci_fpenv_leave(saved);
    return status;
}

/* ---- asynchronous runs ---- */

/* Rows up to where the host must look. */
static int tci_walk_until_check(const tci_code *code)
{
    int at = code->n_init_section;
    while (at < code->n_list && code->list[at].kind != TCI_LIST_CHECK) {
        at++;
    }
    return at;
}

static void tci_walk_sync_all(tc_call *c, const tci_run *r)
{
    const tc_backend *device = c->program->code->device;
    for (int q = 0; q < TCI_QUEUES; q++) {
        device->queues->sync(device->user, r->queues[q]);
    }
    device->sync(device->user);
}

TCI_FN tc_status tci_walk_begin(tc_call *c, tci_run *r)
{
    const tci_code *code = c->program->code;
    tci_fpenv saved = tci_fpenv_enter();
    r->at = tci_walk_until_check(code);
    tc_status status = c->program->collectives ? tci_collectives_begin(c) : TC_OK;
    bool holds = !status && c->program->collectives;
    status = status ? status : tci_walk_prepare(c, r);
    status = status ? status : tci_walk_rows(c, r, code->n_init_section, r->at);
    if (!status) { /* what is after the run on its queue comes after all of it */
        void **q = r->queues;
        status = tci_walk_judge(c, tci_walk_order(c, 1, q[TCI_QUEUE_DOWN], q[TCI_QUEUE_WORK]));
    }
    if (status) {
        tci_walk_sync_all(c, r);
        tci_walk_take_cancel(c);
        if (holds) {
            tci_collectives_end(c, status);
        }
    }
    tci_fpenv_leave(saved);
    return status;
}

TCI_FN tc_status tci_walk_end(tc_call *c, tci_run *r)
{
    const tc_backend *device = c->program->code->device;
    const tci_code *code = c->program->code;
    tci_fpenv saved = tci_fpenv_enter();
    r->ends = true;
    tc_status status = tci_walk_rows(c, r, r->at, code->n_list);
    if (r->at < code->n_list && !r->waited) {
        tc_status synced = device->queues->sync(device->user, r->queues[TCI_QUEUE_DOWN]);
        synced = synced ? synced : device->sync(device->user);
        status = status ? status : tci_walk_judge(c, synced);
    }
    for (int i = code->n_init_section; i < r->at && !status; i++) {
        if (code->list[i].kind == TCI_LIST_DOWNLOAD) {
            tci_walk_unstage(c, r, code->list[i].begin, code->list[i].end);
        }
    }
    tci_walk_take_cancel(c);
    if (c->program->collectives) {
        tci_collectives_end(c, status);
    }
    tci_fpenv_leave(saved);
    return status;
}
