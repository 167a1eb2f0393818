/* run/execute.c - executes the steps of a program, on the host and on devices.
 *
 * In: a checked call whose user buffers are bound. Out: all steps are done, or c->last names the
 * first that failed.
 *
 * Launches go to the host itself (functions or the interpreter, on threads of the pool) or to a
 * backend. A backend that captures gets the launches of a run once, and then replays them while no
 * operand moves (run/bind_operands.c). The launches of a repetition are submitted once per
 * iteration by the host, which moves their operands in between. If the trip count is known, all
 * iterations are captured too, but not before a second run with operands at the same addresses,
 * since capturing takes longer than launching once. For a loop that a value ends, two iterations
 * are captured if the device can test that value; otherwise the host tests it after each iteration.
 * User functions are called by the host between launches, with copies of their operands; a run with
 * such calls is not captured.
 *
 * Queues: a synchronous run submits everything to the device's own queue, in order. An asynchronous
 * run (r->splits) has a queue for each role in the list, so that uploads, kernels and downloads
 * overlap those of other runs; outputs are downloaded to host memory of the backend, for which
 * copies need not wait. Everything up to the first step at which the host must look is submitted at
 * once; the rest follows when that is done.
 *
 * The init list runs first if the cached results were not computed from the current captured memory
 * (run/init_cache.c). Parameters: the order of a device separates runs, so a run holds them only
 * while its launches are submitted (tci_param_claim), and launches of asynchronous runs with
 * parameters go to the device's own queue too. New values that do not overwrite the old ones are
 * stored in copies of the call and committed when everything else succeeded.
 *
 * Cancellation: a flag (tc_call_cancel, options.cancel) is read at the start, before each iteration
 * of a repetition, and before each slice of a fused loop (about 1 ms of iterations). A loop that a
 * device ends by itself is replayed in slices of iterations, between which the host reads the flag.
 */
#include <setjmp.h>
#include <string.h>

#include "../base/alloc.h"
#include "../debug/kernel_check.h"
#include "../debug/device_spans.h"
#include "../debug/profile.h"
#include "../compile/engine_program.h"
#include "runtime_structs.h"
#include "device_memory.h"

/* True if the user wants the run to end. */
TCI_INLINE bool tci_walk_is_cancelled(const tc_call *c)
{
    const volatile int *flag = c->program->options.cancel;
    return __atomic_load_n(c->cancel, __ATOMIC_RELAXED) ||
           (flag && __atomic_load_n(flag, __ATOMIC_RELAXED));
}

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
        tci_custom_run(step->call, slots, step->n_operands - step->call->n_inputs);
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

static void tci_call_launch_step(tc_call *c, const tci_run_step *step)
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
static void tci_walk_watch_here(tc_call *c, int begin, int end)
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

TCI_INLINE void tci_walk_launch_here(tc_call *c, int begin, int end)
{
    const tci_run_step *step = c->program->steps + begin, *last = c->program->steps + end;
    if (TCI_UNLIKELY(tci_profile_watch())) {
        tci_walk_watch_here(c, begin, end);
        return;
    }
    for (; step < last && TCI_LIKELY(!c->broke); step++) {
        if (TCI_LIKELY(step->threads == 1 && step->fn)) {
            step->fn(c->slots + step->first_slot, step->literals, step->faults ? c->faults : NULL,
                     0, step->n_tasks);
        } else {
            tci_call_launch_step(c, step);
        }
    }
}

/* ---- launches on a device ---- */

/* Operands of a launch, with the step's own memory. */
static int tci_device_buffers(const tc_call *c, int i)
{
    const tci_run_step *step = &c->program->steps[i];
    return step->n_operands + (step->work_bytes > 0);
}

static tc_launch tci_device_launch(const tc_call *c, int i)
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

/* A function of the user's, on host memory with room for its operands. */
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
        tci_custom_run(call, here, 1);
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
        tci_custom_run(call, c->slots + step->first_slot, step->n_operands - call->n_inputs);
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

static tc_status tci_walk_launch_one(tc_call *c, int i)
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
static tc_status tci_walk_watch_there(tc_call *c, void *queue, int begin, int end)
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
static tc_status tci_walk_watch_replay(tc_call *c, void *sequence, void *queue, int begin,
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

static tc_status tci_walk_launch_each(tc_call *c, int begin, int end)
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

/* ---- launches that are recorded ---- */

enum { TCI_WALK_RECORDED = 1 << 17 }; /* launches of a run with repetitions, at most */

/* With their operands where they lay when they were put on it. */
typedef struct tci_walk_tape {
    tc_launch *launches;
    int n;
    void **buffers;
    int64_t n_buffers;
} tci_walk_tape;

/* Number of executions of launch i in a run, with nothing but launches in between; 0: unknown. */
static int64_t tci_walk_times(const tci_code *code, int launch)
{
    int64_t times = 1;
    for (int i = 0; i < code->n_repeats; i++) {
        const tci_code_repeat *r = &code->repeats[i];
        int64_t rounds = TCI_MIN(tci_dim_known(r->rounds), (int64_t)TCI_WALK_RECORDED + 1);
        bool settles = r->n_turns > 0 && tci_dim_known(r->rounds) % 2;
        bool within = r->first <= launch && launch < r->last && times <= TCI_WALK_RECORDED;
        times = r->stops >= 0 || settles ? 0 : within ? times * rounds : times;
    }
    return times;
}

/* Launches of a run; 0: they cannot be recorded. */
static int64_t tci_walk_recorded(const tc_call *c, int begin, int end)
{
    const tci_code *code = c->program->code;
    bool calls = code->calls && !tci_collectives_can_record(c->program);
    int64_t n = 0;
    for (int i = begin; i < end && n <= TCI_WALK_RECORDED; i++) {
        n += tci_walk_times(code, i);
    }
    bool fits = !code->n_repeats || n <= TCI_WALK_RECORDED;
    return code->device->record && fits && !calls ? n : 0;
}

static void tci_walk_put(tc_call *c, int begin, int end)
{
    tci_walk_tape *t = c->device->tape;
    for (int i = begin; i < end; i++) {
        tc_launch launch = tci_device_launch(c, i);
        memcpy(t->buffers + t->n_buffers, launch.buffers,
               sizeof(*t->buffers) * (size_t)launch.n_buffers);
        launch.buffers = t->buffers + t->n_buffers;
        t->n_buffers += launch.n_buffers;
        t->launches[t->n++] = launch;
    }
}

static tc_status tci_walk_launch_rounds(tc_call *c, int begin, int end);

/* Each launch of repetitions after the one before it. */
static void tci_walk_chain(tci_scratch *s, tci_walk_tape *t)
{
    int32_t *last = TCI_NEW_ARRAY(s, int32_t, t->n + 1);
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        if (t->launches[i].task_begin < t->launches[i].task_end) { /* others are no launches */
            t->launches[n] = t->launches[i];
            last[n] = n - 1;
            t->launches[n].after = &last[n];
            t->launches[n].n_after = n > 0;
            n++;
        }
    }
    t->n = n;
}

static tc_status tci_walk_record_in(tci_scratch *s, tc_call *c, int begin, int end, void **to)
{
    const tci_code *code = c->program->code;
    int64_t n = tci_walk_recorded(c, begin, end), n_buffers = 0;
    for (int i = begin; i < end; i++) {
        n_buffers += tci_walk_times(code, i) * tci_device_buffers(c, i);
    }
    tci_walk_tape tape = {.launches = TCI_NEW_ARRAY(s, tc_launch, n + 1),
                          .buffers = TCI_NEW_ARRAY(s, void *, n_buffers + 1)};
    c->device->tape = &tape;
    tc_status status = tci_walk_launch_rounds(c, begin, end);
    c->device->tape = NULL;
    if (status) { /* cancelled */
        return status;
    }
    if (code->n_repeats) {
        tci_walk_chain(s, &tape);
    } else {
        tci_deps_launches(s, c, begin, tape.launches, tape.n);
        tci_collectives_chain(s, tape.launches, tape.n);
    }
    return code->device->record(code->device->user, tape.launches, tape.n, to);
}

static tc_status tci_walk_record(tc_call *c, int begin, int end, void **to)
{
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        tci_scratch_free(&s);
        return TC_ERR_MEMORY;
    }
    tc_status status = tci_walk_record_in(&s, c, begin, end, to);
    tci_scratch_free(&s);
    return status;
}

/* ---- repetitions ---- */

/* The operands of a repetition are where they are in the next round; */
TCI_INLINE void tci_walk_move(tc_call *c, const tci_run_repeat *r, int64_t round)
{
    void **slots = c->slots;
    for (const tci_run_move *m = r->moves, *end = m + r->n_moves; m < end; m++) {
        int64_t by = m->back && round % 2 ? -m->by : m->by;
        slots[m->slot] = (char *)slots[m->slot] + by;
    }
}

/* and after so many rounds where they did in the first. */
static void tci_walk_move_back(tc_call *c, const tci_run_repeat *r, int64_t rounds)
{
    for (int i = 0; i < r->n_moves; i++) {
        const tci_run_move *m = &r->moves[i];
        c->slots[m->slot] = (char *)c->slots[m->slot] - m->by * (m->back ? rounds % 2 : rounds);
    }
}

/* A tci_checker_launch_step. */
static tc_status tci_walk_launch_any(tc_call *c, int i)
{
    if (c->program->code->device) {
        return tci_walk_launch_one(c, i);
    }
    tci_call_launch_step(c, &c->program->steps[i]);
    return TC_OK;
}

static tc_status tci_walk_plain(tc_call *c, int begin, int end)
{
    if (TCI_UNLIKELY(c->program->options.check)) {
        return tci_checker_steps(c, begin, end, tci_walk_launch_any);
    }
    if (c->device && c->device->tape) {
        tci_walk_put(c, begin, end);
        return TC_OK;
    }
    if (c->program->code->device) {
        return tci_walk_launch_each(c, begin, end);
    }
    tci_walk_launch_here(c, begin, end);
    tc_status broke = c->broke;
    c->broke = broke == TC_ERR_CANCELLED ? TC_OK : broke; /* of this run alone */
    return broke;
}

/* The carry of a turn, as it is after so many rounds. */
static char *tci_walk_turn(const tc_call *c, const tci_code_repeat *r, int which, int64_t rounds)
{
    const tci_turn *turn = &r->turns[which];
    char *row = c->slots[c->program->steps[turn->step].first_slot + turn->operand];
    return row + rounds % 2 * tci_dim_known(turn->bytes);
}

/* True if another iteration follows. *status: that of a device that was asked. */
static bool tci_walk_goes_on(tc_call *c, const tci_code_repeat *r, int64_t rounds,
                             tc_status *status)
{
    const tc_backend *device = c->program->code->device;
    if (rounds == tci_dim_known(r->rounds) || r->stops < 0) {
        return rounds < tci_dim_known(r->rounds);
    }
    const char *at = tci_walk_turn(c, r, r->stops, rounds);
    uint8_t go = 0;
    if (device) {
        *status = device->sync(device->user);
    }
    if (device && device->alloc) {
        *status = *status ? *status : device->download(device->user, &go, at, 1);
    } else {
        memcpy(&go, at, 1);
    }
    return !*status && go;
}

/* A row of device memory to another, through host memory where the device does not copy itself. */
static tc_status tci_walk_copy(const tc_backend *device, void *to, const void *from, int64_t bytes)
{
    if (device->copy) {
        return device->copy(device->user, to, from, bytes);
    }
    void *host = tci_heap_get((size_t)bytes);
    tc_status status = host ? device->download(device->user, host, from, bytes) : TC_ERR_MEMORY;
    status = status ? status : device->upload(device->user, to, host, bytes);
    tci_heap_free(host);
    return status;
}

/* After so many rounds the carries that shall go to their first rows. */
static tc_status tci_walk_settle(tc_call *c, const tci_code_repeat *r, int64_t rounds)
{
    const tc_backend *device = c->program->code->device;
    tc_status status = TC_OK;
    for (int i = 0; i < r->n_turns && rounds % 2 && !status; i++) {
        void *to = tci_walk_turn(c, r, i, 0);
        const void *from = tci_walk_turn(c, r, i, rounds);
        int64_t bytes = tci_dim_known(r->turns[i].bytes);
        if (device && device->alloc) {
            status = tci_walk_copy(device, to, from, bytes);
        } else {
            memcpy(to, from, (size_t)bytes);
        }
    }
    return status;
}

/* ---- loops that a device ends ---- */

enum { TCI_WALK_SLICE = 1 << 14 }; /* rounds of one replay: even, so the next begins as it did */

/* True if the device can end the loop itself: it is in no other loop, has at most two alternating
 * iterations, and this is not the first run. */
static bool tci_walk_can_end(const tc_call *c, int i)
{
    const tci_code *code = c->program->code;
    const tci_run_repeat *r = &c->program->repeats[i];
    const tc_options *o = &c->program->options;
    bool wanted = o->record >= 0 && !o->check && !tci_device_spans_wanted();
    bool can = wanted && code->device && code->device->record_loop && c->device &&
               c->device->runs > 1 && r->code->stops >= 0 && !r->n_within && !code->calls;
    for (int k = 0; k < r->n_moves; k++) {
        can = can && r->moves[k].back;
    }
    for (int k = 0; k < i; k++) {
        can = can && k + c->program->repeats[k].n_within < i;
    }
    return can;
}

static tc_status tci_walk_record_rounds(tci_scratch *s, tc_call *c, const tci_run_repeat *r,
                                        tci_walk_loop *loop)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    int n = r->last - r->first;
    int64_t n_buffers = 0;
    for (int i = r->first; i < r->last; i++) {
        n_buffers += tci_device_buffers(c, i);
    }
    tci_walk_tape tape = {.launches = TCI_NEW_ARRAY(s, tc_launch, 2 * n + 1),
                          .buffers = TCI_NEW_ARRAY(s, void *, 2 * n_buffers + 1)};
    c->device->tape = &tape;
    tci_walk_put(c, r->first, r->last);
    tci_walk_move(c, r, 0);
    tci_walk_put(c, r->first, r->last);
    tci_walk_move_back(c, r, 1);
    c->device->tape = NULL;
    loop->done = loop->done ? loop->done : tci_device_memory_get(device, sizeof(int64_t));
    if (!loop->done) {
        return TC_ERR_MEMORY;
    }
    tc_backend_loop given = {.rounds = {tape.launches, tape.launches + n},
                             .n = n,
                             .go = {tci_walk_turn(c, r->code, r->code->stops, 0),
                                    tci_walk_turn(c, r->code, r->code->stops, 1)},
                             .most = TCI_MIN(r->rounds, (int64_t)TCI_WALK_SLICE),
                             .done = loop->done};
    return device->record_loop(device->user, &given, &loop->sequence);
}

static tc_status tci_walk_record_slice(tc_call *c, const tci_run_repeat *r, tci_walk_loop *loop)
{
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        tci_scratch_free(&s);
        return TC_ERR_MEMORY;
    }
    tc_status status = tci_walk_record_rounds(&s, c, r, loop);
    tci_scratch_free(&s);
    return status;
}

/* The loop as it was recorded; NULL: it is none, or that failed. */
static const tci_walk_loop *tci_walk_record_loop(tc_call *c, int i, tc_status *status)
{
    if (!tci_walk_can_end(c, i)) {
        return NULL;
    }
    if (!c->device->loops) {
        size_t n = (size_t)c->program->code->n_repeats;
        c->device->loops = tci_heap_get(sizeof(*c->device->loops) * n);
    }
    tci_walk_loop *loop = c->device->loops ? &c->device->loops[i] : NULL;
    if (loop && !loop->sequence && !loop->refused) {
        *status = tci_walk_record_slice(c, &c->program->repeats[i], loop);
        loop->refused = *status == TC_ERR_UNSUPPORTED;
        *status = loop->refused ? TC_OK : *status;
    }
    return loop && loop->sequence ? loop : NULL;
}

/* Slices of a recorded loop until it ends, or fewer rounds than a slice are left: *rounds are done,
 * and the caller does what is left. True if the loop has ended. */
static bool tci_walk_run_loop(tc_call *c, const tci_run_repeat *r, const tci_walk_loop *loop,
                              int64_t *rounds, tc_status *status)
{
    const tc_backend *device = c->program->code->device;
    int64_t slice = TCI_MIN(r->rounds, (int64_t)TCI_WALK_SLICE), done = slice;
    while (!*status && done == slice && *rounds <= r->rounds - slice) {
        *status = tci_walk_is_cancelled(c) ? TC_ERR_CANCELLED
                                           : device->replay(device->user, loop->sequence);
        *status = *status ? *status : device->sync(device->user);
        *status = *status ? *status
                          : device->download(device->user, &done, loop->done, sizeof(done));
        *rounds += *status ? 0 : done;
    }
    return done < slice;
}

static tc_status tci_walk_rounds(tc_call *c, int begin, int end, int first, int last);

/* All rounds of a plain repetition, unless the run is cancelled; returns how many were done. */
static int64_t tci_walk_plain_rounds(tc_call *c, const tci_run_repeat *r)
{
    const tci_run_step *steps = c->program->steps, *end = steps + r->last;
    void **slots = c->slots;
    int64_t *faults = c->faults;
    int64_t round = 0;
    for (; round < r->rounds && !tci_walk_is_cancelled(c); round++) {
        for (const tci_run_step *step = steps + r->first; step < end; step++) {
            step->fn(slots + step->first_slot, step->literals, step->faults ? faults : NULL, 0,
                     step->n_tasks);
        }
        tci_walk_move(c, r, round);
    }
    return round;
}

/* Rounds of repetition i from `*round` on, one after the other. */
static tc_status tci_walk_round_by_round(tc_call *c, int i, int64_t *round)
{
    const tci_run_repeat *r = &c->program->repeats[i];
    tc_status status = TC_OK;
    for (; !status && tci_walk_goes_on(c, r->code, *round, &status); ++*round) {
        if (tci_walk_is_cancelled(c)) {
            return TC_ERR_CANCELLED;
        }
        status = tci_walk_rounds(c, r->first, r->last, i + 1, i + 1 + r->n_within);
        tci_walk_move(c, r, *round);
    }
    return status;
}

/* Launches [begin, end), of which those of the repetitions from `first` to before `last` are done
 * in rounds. Nested as deep as the user's calls of tc_scan are. */
static tc_status tci_walk_rounds(tc_call *c, int begin, int end, int first, int last)
{
    tc_status status = TC_OK;
    for (int i = first; i < last && !status;) {
        const tci_run_repeat *r = &c->program->repeats[i];
        int64_t round = 0, recorded = 0;
        status = tci_walk_plain(c, begin, r->first);
        const tci_walk_loop *loop = status ? NULL : tci_walk_record_loop(c, i, &status);
        if (!status && r->is_plain && !tci_profile_watch()) {
            round = tci_walk_plain_rounds(c, r);
            status = round < r->rounds ? TC_ERR_CANCELLED : TC_OK;
        } else if (!status && (!loop || !tci_walk_run_loop(c, r, loop, &recorded, &status))) {
            round = recorded;
            status = status ? status : tci_walk_round_by_round(c, i, &round);
            round -= recorded;
        }
        tci_walk_move_back(c, r, round);
        round += recorded;
        status = status ? status : tci_walk_settle(c, r->code, round);
        begin = r->last;
        i += 1 + r->n_within;
    }
    return status ? status : tci_walk_plain(c, begin, end);
}

/* Launches of a run that has repetitions, which are in no other list than that. */
static tc_status tci_walk_launch_rounds(tc_call *c, int begin, int end)
{
    bool is_init = begin < c->program->code->n_init;
    return tci_walk_rounds(c, begin, end, 0, is_init ? 0 : c->program->code->n_repeats);
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
        tci_kept_note(c);
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
    return size < 0 ? status : tci_index_tell(c, c->program, NULL, size, r->inputs, r->outputs);
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

/* A condition of the user's that did not hold ends the run (tc_assert_finite and the like). */
static tc_status tci_walk_probe(tc_call *c, tc_status status)
{
    char text[400];
    bool failed = c->program->code->calls && tci_checker_failed(text, sizeof(text));
    c->broke = TC_OK;
    return failed && !status ? tci_call_refuse(c, TC_ERR_CHECK, "%s", text) : status;
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

/* A row of the init list; of its launches those of units that are not computed yet. */
static tc_status tci_walk_init_row(tc_call *c, tci_run *r, const tci_list_step *row)
{
    const tci_code *code = c->program->code;
    tc_status status = TC_OK;
    if (row->kind != TCI_LIST_LAUNCH) {
        return tci_walk_row(c, r, row);
    }
    for (int u = 0; u < code->n_units && !status; u++) {
        const tci_code_unit *unit = &code->units[u];
        for (int i = 0; i < unit->n_steps && tci_kept_wants(c, u) && !status; i++) {
            tci_list_step launch = *row;
            launch.begin = unit->steps[i];
            launch.end = launch.begin + 1;
            status = tci_walk_row(c, r, &launch);
        }
    }
    return status;
}

/* c->kept is what the init list makes of the captured memory as it was noted. */
static tc_status tci_walk_keep(tc_call *c, tci_run *r)
{
    const tci_code *code = c->program->code;
    bool ready = false;
    if (TCI_LIKELY(tci_kept_is_current(c))) {
        return TC_OK;
    }
    tc_status status = tci_kept_take(c, &ready);
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
        for (int i = 0; i < code->n_init_list && !status; i++) {
            status = tci_walk_init_row(c, &here, &code->list[i]);
        }
        if (!status && code->device) { /* other queues use it */
            status = tci_walk_judge(c, code->device->sync(code->device->user));
        }
        if (status) {
            tci_kept_drop(c);
            return status;
        }
        tci_kept_publish(c);
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
            tci_kept_note(c);
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
    if (c->device) {
        return tci_walk_judge(c, tci_bind_ports(c, r, false));
    }
    tci_walk_bind_user(c, r);
    if (!f->code->n_init) {
        return TC_OK;
    }
    if (!f->n_params) { /* else it is noted where they are held */
        tci_kept_note(c);
    }
    return tci_walk_keep(c, r);
}

static tc_status tci_walk_list(tc_call *c, tci_run *r)
{
    const tci_code *code = c->program->code;
    tc_status status = tci_walk_prepare(c, r);
    if (!status) {
        status = tci_walk_rows(c, r, code->n_init_list, code->n_list);
    }
    status = code->calls ? tci_walk_probe(c, status) : status;
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
        status = TCI_UNLIKELY(c->program->code->calls) ? tci_walk_probe(c, c->broke) : TC_OK;
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
    int at = code->n_init_list;
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
    status = status ? status : tci_walk_rows(c, r, code->n_init_list, r->at);
    if (!status) { /* what is behind the run on its queue comes after all of it */
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
    for (int i = code->n_init_list; i < r->at && !status; i++) {
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
