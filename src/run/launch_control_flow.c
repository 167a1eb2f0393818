/* run/launch_control_flow.c - launches the steps of a run, including control-flow loops (REPEAT
 * nodes), and records launches for replay (graph capture).
 *
 * In: a range of launches. Out: they are done or submitted. The host submits the launches of a loop
 * body in each iteration and advances the operand pointers in between. If the trip count is known,
 * all iterations are recorded as one sequence. For a loop with a data-dependent exit condition, two
 * iterations are recorded if the device can test the condition; otherwise the host tests it after
 * each iteration.
 *
 * Cancellation is checked before each iteration; a loop whose exit condition is tested on the
 * device is replayed in slices of iterations, between which the host reads the flag. */
#include <setjmp.h>
#include <string.h>

#include "../base/alloc.h"
#include "../debug/device_spans.h"
#include "../debug/kernel_check.h"
#include "device_memory.h"
#include "launch_steps.h"

/* ---- launches that are recorded ---- */

enum { TCI_WALK_RECORDED = 1 << 17 }; /* launches of a run with loops, at most */

/* Launches with the operand addresses that they had when they were recorded. */
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

TCI_FN int64_t tci_walk_recorded(const tc_call *c, int begin, int end)
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

/* Each launch of loops after the one before it. */
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

TCI_FN tc_status tci_walk_record(tc_call *c, int begin, int end, void **to)
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

/* ---- loops ---- */

/* Advances the operands of a loop to the next iteration. */
TCI_INLINE void tci_walk_move(tc_call *c, const tci_run_repeat *r, int64_t round)
{
    void **slots = c->slots;
    for (const tci_run_move *m = r->moves, *end = m + r->n_moves; m < end; m++) {
        int64_t by = m->back && round % 2 ? -m->by : m->by;
        slots[m->slot] = (char *)slots[m->slot] + by;
    }
}

/* Moves the operands back by this many iterations, to where the first one has them. */
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

/* The carry of a turn, as it is after this many rounds. */
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

/* After this many rounds the carries that shall go to their first rows. */
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

/* All rounds of a plain loop, unless the run is cancelled; returns how many were done. */
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

/* Rounds of loop i from `*round` on, one after the other. */
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

/* Launches [begin, end); launches of the loops from `first` to before `last` are done in
 * rounds. Nested as deep as the user's calls of tc_scan are. */
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

/* Loops are in the list of a run only, not in the init section. */
TCI_FN tc_status tci_walk_launch_rounds(tc_call *c, int begin, int end)
{
    bool is_init = begin < c->program->code->n_init;
    return tci_walk_rounds(c, begin, end, 0, is_init ? 0 : c->program->code->n_repeats);
}
