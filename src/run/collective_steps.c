/* run/collective_steps.c - executes the collective steps of a run: start and wait on communicators,
 * and the check that all ranks run the same program.
 *
 * In: a program with collectives, a run of it. Out: operations given to the engines of its
 * communicators, in the order of its steps.
 *
 * A run holds its communicators exclusively. Before the first run of a program all ranks of each
 * communicator compare what they compiled: hashes of the nodes of the canonical graph, with their
 * source lines. This is also a barrier: the timeouts of operations apply only after it, because
 * before it a rank may still be compiling. A failure aborts the communicator, because the position
 * of the other ranks is then unknown; parameters stay as they were.
 *
 * An engine of host memory works on copies where the program runs on a device with memory of its
 * own. */
#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../debug/profile.h"
#include "collective_info.h"

enum { TCI_COLLECTIVE_SITE = 96 };

/* One node as another rank is told of it. */
typedef struct tci_collective_told {
    uint64_t hash;
    char site[TCI_COLLECTIVE_SITE]; /* "all_reduce at net.c:12" */
} tci_collective_told;

/* ---- whether all ranks have the same program ---- */

typedef struct tci_collective_head {
    uint64_t graph, order; /* hashes: of the graph, and of the operations in the steps' order */
    int64_t n_marks, n_steps;
    uint8_t loose, pad[7]; /* this rank's may differ in all but the operations */
} tci_collective_head;

/* The operation that starts with launch t on communicator `comm`, if there is one. */
static const tci_custom_call *tci_collective_at(const tci_code *code, int t, const tc_comm *comm)
{
    const tci_custom_call *call = code->kernels[code->steps[t].kernel].call;
    bool starts = call && call->comm.phase == TCI_COMM_START && call->comm.comm == comm->number;
    return starts ? call : NULL;
}

static uint64_t tci_collective_hash(const tci_custom_call *call)
{
    const tci_comm_step *c = &call->comm;
    uint64_t h = tci_hash_mix(c->verb, c->how);
    h = tci_hash_mix(h, (uint64_t)call->arrays[0].dtype);
    h = tci_hash_mix(h, (uint64_t)c->peer);
    return tci_hash_mix(h, (uint64_t)call->arrays[0].n);
}

/* Operations that all ranks take part in, in the order of the steps. told NULL: they are
 * counted. */
static int tci_collective_tell_steps(const tc_call *c, const tc_comm *comm,
                                     tci_collective_told *told, uint64_t *order)
{
    const tci_code *code = c->program->code;
    int n = 0;
    for (int t = 0; t < code->n_steps; t++) {
        const tci_custom_call *call = tci_collective_at(code, t, comm);
        if (!call || tci_comm_verb_is_pair(call->comm.verb)) {
            continue;
        }
        const tci_collective *item = &c->program->collectives->items[call->comm.number];
        if (told) {
            told[n].hash = tci_collective_hash(call);
            snprintf(told[n].site, sizeof(told[n].site), "%s%s%s of %lld %s at %s:%d",
                     tci_comm_verb_name(call->comm.verb),
                     tci_comm_verb_reduces(call->comm.verb) ? " " : "",
                     tci_comm_verb_reduces(call->comm.verb) ? tci_comm_how_name(call->comm.how)
                                                            : "",
                     (long long)call->arrays[0].n, tc_dtype_name(call->arrays[0].dtype), item->file,
                     item->line);
        }
        *order = tci_hash_mix(*order, tci_collective_hash(call));
        n++;
    }
    return n;
}

static void tci_collective_tell_nodes(const tci_collectives *l, tci_collective_told *told)
{
    for (int i = 0; i < l->n_marks; i++) {
        const tci_collective_mark *m = &l->marks[i];
        told[i].hash = m->hash;
        snprintf(told[i].site, sizeof(told[i].site), "%s at %s:%d", tci_op_name(m->op),
                 l->files[m->file], (int)m->line);
    }
}

/* Fails the run, but not the communicator: all ranks know. */
static tc_status tci_collective_differ(tc_call *c, const tc_comm *comm, int other, const char *what,
                                       const tci_collective_told *mine,
                                       const tci_collective_told *theirs)
{
    return tci_call_refuse(c, TC_ERR_COMM,
                           "the programs of ranks %d and %d differ: %s is %s here (rank %d), and "
                           "%s on rank %d. Expected the same program on all ranks",
                           comm->rank, other, what, mine ? mine->site : "missing", comm->rank,
                           theirs ? theirs->site : "missing", other);
}

static tc_status tci_collective_exchange(tc_call *c, tc_comm *comm, const void *mine, void *all,
                                         int64_t bytes, int64_t limit_ms)
{
    char why[TC_COMM_WHY] = "", text[512];
    tc_status status = comm->engine->exchange(comm->state, mine, all, bytes, limit_ms,
                                              "the comparison of programs", why);
    if (status) {
        const tci_collective *first = &c->program->collectives->items[0];
        snprintf(text, sizeof(text),
                 "rank %d could not compare its program with the others' "
                 "before its first run (its first collective is at %s:%d): %s",
                 comm->rank, first->file, first->line, why);
        tci_comm_fail(comm, text);
        return tci_call_refuse(c, TC_ERR_COMM, "%s", text);
    }
    return TC_OK;
}

/* Heads differ between this rank and `other`: finds where. */
static tc_status tci_collective_find(tc_call *c, tc_comm *comm, const tci_collective_head *heads,
                                     int other, bool nodes)
{
    const tci_collective_head *mine = &heads[comm->rank];
    int64_t most = 0, own = nodes ? mine->n_marks : mine->n_steps;
    for (int r = 0; r < comm->size; r++) {
        most = TCI_MAX(most, nodes ? heads[r].n_marks : heads[r].n_steps);
    }
    int64_t theirs = nodes ? heads[other].n_marks : heads[other].n_steps;
    size_t bytes = sizeof(tci_collective_told) * (size_t)most;
    tci_collective_told *told = tci_heap_get(bytes * ((size_t)comm->size + 1) + 1), *all;
    tc_status status = TC_ERR_MEMORY;
    uint64_t order = 0;
    if (!told) {
        return tci_call_refuse(c, status, "out of memory for what other ranks run");
    }
    all = told + most;
    if (nodes) {
        tci_collective_tell_nodes(c->program->collectives, told);
    } else {
        tci_collective_tell_steps(c, comm, told, &order);
    }
    status = tci_collective_exchange(c, comm, told, all, (int64_t)bytes, comm->options.timeout_ms);
    const tci_collective_told *there = all + other * most;
    int64_t i = 0;
    while (!status && i < own && i < theirs && told[i].hash == there[i].hash) {
        i++;
    }
    if (!status) {
        char what[48];
        snprintf(what, sizeof(what), "%s %lld", nodes ? "node" : "collective", (long long)i);
        status = i < own || i < theirs
                     ? tci_collective_differ(c, comm, other, what, i < own ? &told[i] : NULL,
                                             i < theirs ? &there[i] : NULL)
                     : tci_call_refuse(c, TC_ERR_COMM,
                                       "the programs of ranks %d and %d have options that differ "
                                       "(math, reproducible)",
                                       comm->rank, other);
    }
    tci_heap_free(told);
    return status;
}

/* The first rank, from this one on, whose value differs from this one's, or -1 */
static int tci_collective_other(const tc_comm *comm, const tci_collective_head *heads, bool nodes)
{
    const tci_collective_head *mine = &heads[comm->rank];
    for (int r = 0; r < comm->size; r++) {
        bool same = nodes ? heads[r].graph == mine->graph
                          : heads[r].order == mine->order && heads[r].n_steps == mine->n_steps;
        if (!same) {
            return r;
        }
    }
    return -1;
}

static tc_status tci_collective_compare(tc_call *c, tc_comm *comm)
{
    const tci_collectives *l = c->program->collectives;
    tci_collective_head mine = {.graph = l->graph.lo, .n_marks = l->n_marks, .order = 0};
    mine.loose = comm->options.may_differ || l->has_pairs;
    mine.n_steps = tci_collective_tell_steps(c, comm, NULL, &mine.order);
    tci_collective_head *heads = tci_heap_get(sizeof(mine) * (size_t)comm->size);
    if (!heads) {
        return tci_call_refuse(c, TC_ERR_MEMORY, "out of memory for what other ranks run");
    }
    tc_status status = tci_collective_exchange(c, comm, &mine, heads, sizeof(mine),
                                               comm->options.first_timeout_ms);
    bool steps = false, nodes = false, loose = false;
    for (int r = 0; r < comm->size && !status; r++) { /* every rank comes to the same */
        steps |= heads[r].order != heads[0].order || heads[r].n_steps != heads[0].n_steps;
        nodes |= heads[r].graph != heads[0].graph;
        loose |= heads[r].loose != 0;
    }
    nodes = nodes && !steps && !loose;
    if (steps || nodes) {
        int other = tci_collective_other(comm, heads, nodes);
        other = other >= 0 ? other : comm->rank; /* others differ: this one only takes part */
        status = tci_collective_find(c, comm, heads, other, nodes);
        if (other == comm->rank && status == TC_ERR_COMM) {
            status = tci_call_refuse(c, TC_ERR_COMM,
                                     "the programs of other ranks differ from that "
                                     "of rank %d: see what they report",
                                     comm->rank);
        }
    }
    tci_heap_free(heads);
    return status;
}

/* ---- a run ---- */

static void tci_collectives_unclaim(const tci_collectives *l, int n)
{
    for (int i = 0; i < n; i++) {
        tci_comm_unclaim(l->comms[i]);
    }
}

/* Programs of one graph and the same operations, as instances of the same sizes and native code in
 * the place of interpreted, are compared once. */
static bool tci_collective_is_known(const tc_call *c, uint64_t *order)
{
    const tci_collectives *l = c->program->collectives;
    *order = 1;
    for (int i = 0; i < l->n_comms; i++) {
        tci_collective_tell_steps(c, l->comms[i], NULL, order);
    }
    bool known = false;
    for (int i = 0; i < TCI_MIN(l->n_agreed, (int)TCI_COUNT(l->agreed)); i++) {
        known = known || l->agreed[i] == *order;
    }
    return known;
}

TCI_FN tc_status tci_collectives_begin(tc_call *c)
{
    tc_program *f = c->program;
    tci_collectives *l = f->collectives;
    char why[512];
    tc_status status = TC_OK;
    int n = 0;
    c->broke = TC_OK;
    l->held = NULL;
    while (n < l->n_comms && !status) {
        status = tci_comm_claim(l->comms[n], why);
        n += !status;
    }
    if (status) {
        status = tci_call_refuse(c, status, "%s (the first collective is at %s:%d)", why,
                                 l->items[0].file, l->items[0].line);
    }
    uint64_t order = 0;
    f->agreed = f->agreed || (!status && tci_collective_is_known(c, &order));
    for (int i = 0; i < l->n_comms && !status && !f->agreed; i++) {
        status = tci_collective_compare(c, l->comms[i]);
    }
    if (status) {
        tci_collectives_unclaim(l, n);
        return status;
    }
    if (!f->agreed) {
        l->agreed[l->n_agreed++ % (int)TCI_COUNT(l->agreed)] = order;
    }
    f->agreed = true;
    return TC_OK;
}

static void tci_collective_drop(tci_collective *item)
{
    tci_heap_free_aligned(item->copies);
    item->copies = NULL;
}

TCI_FN void tci_collectives_end(tc_call *c, tc_status status)
{
    tci_collectives *l = c->program->collectives;
    l->n_runs += !status;
    bool done = !status || status == TC_ERR_INDEX || status == TC_ERR_CHECK; /* all steps were */
    for (int i = 0; i < l->n_comms && !done; i++) {
        tci_comm_fail(l->comms[i], status == TC_ERR_CANCELLED
                                       ? "a run was cancelled before its collectives were done"
                                       : "a run failed before its collectives were done");
    }
    for (int i = 0; i < l->n; i++) {
        tci_collective_drop(&l->items[i]);
    }
    tci_collectives_unclaim(l, l->n_comms);
}

TCI_FN tc_status tci_collectives_finish(tc_call *c)
{
    tci_collectives *l = c->program->collectives;
    char why[TC_COMM_WHY] = "", text[512];
    for (int i = 0; i < l->n_comms; i++) {
        tc_comm *comm = l->comms[i];
        if (comm->engine->finish && comm->engine->finish(comm->state, why)) {
            snprintf(text, sizeof(text),
                     "a collective on rank %d of %d (the first is at %s:%d): "
                     "%s",
                     comm->rank, comm->size, l->items[0].file, l->items[0].line, why);
            tci_comm_fail(comm, text);
            return tci_call_refuse(c, TC_ERR_COMM, "%s", text);
        }
    }
    return TC_OK;
}

/* Status of an operation; the text begins with its call site and rank. */
static tc_status tci_collective_judge(tc_call *c, tci_collective *item, tc_status status,
                                      const char *why)
{
    char text[512];
    if (!status) {
        return TC_OK;
    }
    snprintf(text, sizeof(text), "%s at %s:%d on rank %d of %d: %s", item->job.name, item->file,
             item->line, item->comm->rank, item->comm->size, why);
    tci_comm_fail(item->comm, text);
    return tci_call_refuse(c, TC_ERR_COMM, "%s", text);
}

static int64_t tci_collective_room(int64_t bytes)
{
    return (bytes + 63) & ~(int64_t)63;
}

/* The operands on a device whose memory the engine does not take: copies in host memory. */
static tc_status tci_collective_fetch(const tc_backend *device, tci_collective *item,
                                      const tci_custom_call *call, const void *there)
{
    int64_t in = tci_custom_bytes(&call->arrays[0]), out = tci_custom_bytes(&call->arrays[1]);
    tc_status status = device->sync(device->user);
    if (status || !device->alloc) {
        return status;
    }
    item->copies = tci_heap_get_aligned((size_t)(tci_collective_room(in) + out + 1));
    if (!item->copies) {
        return TC_ERR_MEMORY;
    }
    item->job.in = item->copies;
    item->job.out = item->copies + tci_collective_room(in);
    return in ? device->download(device->user, item->copies, there, in) : TC_OK;
}

static tc_comm_job tci_collective_job(const tc_call *c, const tci_collective *item,
                                      const tci_run_step *step, bool near)
{
    const tci_custom_call *call = step->call;
    const tci_comm_step *s = &call->comm;
    void *const *slots = c->slots + step->first_slot;
    return (tc_comm_job){.verb = (tc_comm_verb)s->verb,
                         .how = (tc_comm_how)s->how,
                         .dtype = call->arrays[0].dtype,
                         .peer = s->peer,
                         .number = s->number,
                         .n = call->arrays[0].n,
                         .in = slots[0],
                         .out = slots[1],
                         .device = near ? c->program->code->device : NULL,
                         .site = {.file = item->file, .line = item->line},
                         .name = tci_comm_verb_name(s->verb)};
}

static bool tci_collective_can_join(const tci_custom_call *call)
{
    return call && call->comm.phase == TCI_COMM_START && !tci_comm_verb_is_pair(call->comm.verb) &&
           call->comm.verb != TC_COMM_BARRIER;
}

TCI_FN bool tci_collective_is_held(const tc_program *f, const tci_run_step *step,
                                   const tc_comm *comm)
{
    const tci_code *code = f->code;
    const int next = (int)(step - f->steps) + 1;
    return comm->engine->groups && !code->n_repeats && next < code->n_steps &&
           next != code->n_init && tci_collective_can_join(step->call) &&
           tci_collective_can_join(step[1].call) && step[1].call->comm.comm == comm->number;
}

/* Puts the operation to those that are held. True: it is, too, and so does not begin yet. */
static bool tci_collective_join(const tc_call *c, tci_collective *item, const tci_run_step *step)
{
    tci_collectives *l = c->program->collectives;
    const bool held = tci_collective_is_held(c->program, step, item->comm);
    item->job.with = l->held;
    l->held = held ? &item->job : NULL;
    return held;
}

static tc_status tci_collective_start(tc_call *c, tci_collective *item, const tci_run_step *step,
                                      bool near)
{
    const tci_custom_call *call = step->call;
    const tc_backend *device = c->program->code->device;
    void *const *slots = c->slots + step->first_slot;
    char why[TC_COMM_WHY] = "";
    item->job = tci_collective_job(c, item, step, near);
    tc_status status = device && !near ? tci_collective_fetch(device, item, call, slots[0]) : TC_OK;
    if (status) {
        return tci_collective_judge(c, item, status, "its operand could not be copied to the host");
    }
    if (tci_collective_join(c, item, step)) {
        return TC_OK;
    }
    status = item->comm->engine->start(item->comm->state, &item->job, why);
    return tci_collective_judge(c, item, status, why);
}

/* To all places of the result; slots: the input, the result as it is read, then where it goes. */
static tc_status tci_collective_put(tc_call *c, const tci_collective *item,
                                    const tci_run_step *step, bool near)
{
    const tc_backend *device = c->program->code->device;
    void *const *slots = c->slots + step->first_slot;
    int64_t bytes = tci_custom_bytes(&step->call->arrays[1]);
    tc_status status = TC_OK;
    for (int i = 2; i < step->n_operands && bytes && !status; i++) {
        if (slots[i] == item->job.out) {
            continue;
        }
        if (device && near && device->copy) {
            status = device->copy(device->user, slots[i], item->job.out, bytes);
        } else if (device && device->alloc) {
            status = device->upload(device->user, slots[i], item->job.out, bytes);
        } else {
            memcpy(slots[i], item->job.out, (size_t)bytes);
        }
    }
    return status;
}

static tc_status tci_collective_wait(tc_call *c, tci_collective *item, const tci_run_step *step,
                                     bool near)
{
    char why[TC_COMM_WHY] = "";
    tc_status status = item->comm->engine->wait(item->comm->state, &item->job, why);
    if (!status && item->job.verb == TC_COMM_BARRIER && !near) {
        memset(item->job.out, 1, 1);
    }
    if (!status && tci_collective_put(c, item, step, near)) {
        status = TC_ERR_COMM;
        snprintf(why, sizeof(why), "its result could not be copied to the device");
    }
    status = tci_collective_judge(c, item, status, why);
    tci_collective_drop(item);
    return status;
}

/* True if the engine accepts memory of the program's device. */
static bool tci_collective_is_near(const tc_program *f, const tc_comm *comm)
{
    const char *wants = comm->engine->device;
    return f->code->device && wants && !strncmp(wants, f->code->device->name, strlen(wants));
}

TCI_FN bool tci_collectives_can_record(const tc_program *f)
{
    const tci_collectives *l = f->collectives;
    bool can = l != NULL;
    for (int i = 0; can && i < l->n_comms; i++) {
        can = l->comms[i]->engine->node && tci_collective_is_near(f, l->comms[i]);
    }
    for (int i = 0; can && i < f->code->n_steps; i++) {
        const tci_custom_call *call = f->steps[i].call;
        bool waits = call && call->comm.phase == TCI_COMM_WAIT;
        can = !call ||
              (call->comm.phase != TCI_COMM_NONE && !tci_comm_verb_is_pair(call->comm.verb) &&
               call->comm.verb != TC_COMM_BARRIER && (!waits || f->steps[i].n_operands == 3));
    }
    return can;
}

TCI_FN tc_status tci_collectives_refuse(tc_call *c)
{
    const tc_backend *device = c->program->code->device;
    const char *why = device->last_error ? device->last_error(device->user) : NULL;
    const char *text = why ? why : "an operation could not be recorded";
    tci_comm_fail(c->program->collectives->comms[0], text);
    return tci_call_refuse(c, TC_ERR_COMM, "%s", text);
}

TCI_FN void tci_collectives_record(const tc_call *c, const tci_run_step *step, tc_launch *launch)
{
    if (!step->call || !step->call->comm.phase) {
        return;
    }
    tci_collective *item = &c->program->collectives->items[step->call->comm.number];
    bool starts = step->call->comm.phase == TCI_COMM_START;
    if (starts) {
        item->job = tci_collective_job(c, item, step, true);
        tci_collective_join(c, item, step);
    }
    launch->node = item->comm->engine->node;
    launch->comm = item->comm->state;
    launch->job = starts ? &item->job : NULL;
}

/* Launches of collectives as nodes of a device's graph. */
typedef struct tci_collective_nodes {
    tci_scratch *s;
    tc_launch *launches;
    int32_t *into;  /* the launch whose node stands for each */
    int32_t *met;   /* the last launch that was found to come after it, and one more */
    int32_t last;   /* start so far; -1: none */
    int32_t behind; /* the last kernel that it comes after, or -1 */
} tci_collective_nodes;

static void tci_collective_add_after(tci_collective_nodes *q, int32_t *after, int i, int32_t before)
{
    tc_launch *launch = &q->launches[i];
    const int32_t of = q->into[before];
    if (of != i && q->met[of] != i + 1) {
        q->met[of] = i + 1;
        after[launch->n_after++] = of;
    }
}

/* An operation that is held has no node of its own: what stands for it is launch i. */
static tc_launch *tci_collective_find_held(tci_collective_nodes *q, int i)
{
    const tc_comm_job *job = q->launches[i].job;
    if (!q->launches[i].node || !job || !job->with) {
        return NULL;
    }
    for (int k = i - 1; k >= 0 && q->into[k] == q->last; k--) {
        q->into[k] = i;
    }
    return &q->launches[q->last];
}

/* Finds the launches on which launch i depends, each once. A start also depends on the start before
 * it. Kernels after a start in program order depend on the last kernel that it waits for: they fill
 * the time of the transfer, so they must not delay it. */
static void tci_collective_find_after(tci_collective_nodes *q, int i)
{
    tc_launch *launch = &q->launches[i], *held = tci_collective_find_held(q, i);
    const int32_t *before = launch->after;
    const int n = launch->n_after;
    int32_t *after = TCI_NEW_ARRAY(q->s, int32_t, n + (held ? held->n_after : 0) + 1), latest = -1;
    launch->n_after = 0;
    launch->after = after;
    for (int k = 0; k < n; k++) {
        tci_collective_add_after(q, after, i, before[k]);
    }
    for (int k = 0; held && k < held->n_after; k++) {
        tci_collective_add_after(q, after, i, held->after[k]);
    }
    for (int k = 0; k < launch->n_after; k++) {
        latest = q->launches[after[k]].node ? latest : TCI_MAX(latest, after[k]);
    }
    if (!launch->node && latest < q->behind) {
        tci_collective_add_after(q, after, i, q->behind);
    }
    if (!launch->node || !launch->job) {
        return;
    }
    if (!held && q->last >= 0) {
        tci_collective_add_after(q, after, i, q->last);
    }
    if (held) {
        held->task_end = held->task_begin;
        held->n_after = 0;
    }
    q->behind = TCI_MAX(q->behind, latest);
    q->last = i;
}

TCI_FN void tci_collectives_chain(tci_scratch *s, tc_launch *launches, int n)
{
    tci_collective_nodes q = {.s = s, .launches = launches, .last = -1, .behind = -1};
    q.into = TCI_NEW_ARRAY(s, int32_t, n + 1);
    q.met = TCI_NEW_ARRAY(s, int32_t, n + 1);
    for (int32_t i = 0; i < n; i++) {
        q.into[i] = i;
        tci_collective_find_after(&q, i);
        tc_launch *launch = &launches[i];
        if (launch->node && !launch->job && launch->n_after == 1) { /* a wait is no node */
            q.into[i] = launch->after[0];
            launch->task_end = launch->task_begin;
            launch->n_after = 0;
        }
    }
}

/* The host was in this step from begin_ns on. */
static void tci_collective_note(tc_call *c, tci_collective *item, const tci_run_step *step,
                                int64_t begin_ns)
{
    tci_collectives *l = c->program->collectives;
    const int64_t end_ns = tci_os_now_ns();
    if (c->program->code->device) {
        return; /* the device tells (debug/device_spans.c) */
    }
    l->exposed_ns += end_ns - begin_ns;
    if (step->call->comm.phase == TCI_COMM_START) {
        item->begin_ns = begin_ns;
        return;
    }
    if (tci_profile_watch() & TCI_PROFILE_RECORDS) {
        tci_profile_add(TCI_RECORD_COMM, c->program, (int32_t)(step - c->program->steps),
                        TCI_MAX(item->begin_ns, l->done_ns), end_ns);
    }
    l->done_ns = end_ns;
}

TCI_FN tc_status tci_collectives_step(tc_call *c, const tci_run_step *step)
{
    const int64_t begin_ns = tci_os_now_ns();
    tci_collective *item = &c->program->collectives->items[step->call->comm.number];
    bool near = tci_collective_is_near(c->program, item->comm);
    if (item->comm->engine->device && !near) {
        item->job.name = tci_comm_verb_name(step->call->comm.verb);
        return tci_collective_judge(c, item, TC_ERR_COMM,
                                    "the engine takes memory of a device, on "
                                    "which this program does not run");
    }
    tc_status status = step->call->comm.phase == TCI_COMM_START
                           ? tci_collective_start(c, item, step, near)
                           : tci_collective_wait(c, item, step, near);
    tci_collective_note(c, item, step, begin_ns);
    return status;
}
