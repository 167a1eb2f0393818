/* debug/timeline.c - writes a profile: as a text table of kernels, and as a timeline for Perfetto
 * or chrome://tracing.
 *
 * In: an ended profile (debug/profile.c). Out: text, or Chrome's JSON trace format: complete events
 * ("ph":"X") with arguments, names of threads, and flows ("s", "f") from a launch to the kernel on
 * the device, and from a kernel to that of its backward pass. Process 1 is the host, with a track
 * for each thread; process 2 the devices, with a track for each queue (stream). A captured graph
 * replay is one span; in the first replays of a program its kernels are drawn in proportion to
 * their times in uncaptured runs (in all of them a long trace would take gigabytes). */
#include "profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "string_intern.h"
#include "summary.h"

#ifndef TC_NO_DEBUG

TCI_FN const char *tci_record_category(tci_record_kind kind)
{
    static const char *const names[] = {
#define TCI_ROW(id, category) category,
        TCI_RECORD_ROWS(TCI_ROW)
#undef TCI_ROW
    };
    return names[kind];
}

/* The step of a record of a kernel; NULL: it is none, or its program is not known. */
static const tci_profile_step *tci_timeline_step(const tc_profile *p, const tci_record *r)
{
    bool of_step = r->kind == TCI_RECORD_KERNEL || r->kind == TCI_RECORD_PART ||
                   r->kind == TCI_RECORD_LAUNCH || r->kind == TCI_RECORD_DEVICE ||
                   r->kind == TCI_RECORD_SHARE || r->kind == TCI_RECORD_COMM;
    const tci_profile_program *f = r->program ? &p->programs[r->program - 1] : NULL;
    return of_step && f && r->item >= 0 && r->item < f->n_steps ? &f->steps[r->item] : NULL;
}

/* ---- JSON ---- */

enum { TCI_TIMELINE_PIECE = 1 << 20 }; /* bytes that are written at once */

typedef struct tci_timeline_spot { /* where the last kernel of a step was drawn */
    int64_t at_ns;
    int pid;
    uint64_t tid;
} tci_timeline_spot;

typedef struct tci_timeline {
    const tc_profile *p;
    tci_str *out;
    tci_timeline_spot **spots; /* by program and step */
    int *shared; /* recorded runs of each program that were drawn with their kernels */
    tci_idle *idle;
    int n_idle, n_flows;
    bool any;
    tci_os_fresh *file; /* takes the text as it grows; NULL: it stays in memory */
} tci_timeline;

static double tci_timeline_us(const tci_timeline *t, int64_t ns)
{
    return (double)(ns - t->p->begin_ns) / 1000;
}

static void tci_timeline_next(tci_timeline *t)
{
    if (t->file && t->out->n >= TCI_TIMELINE_PIECE) {
        tci_os_fresh_write(t->file, t->out->text, t->out->n);
        t->out->n = 0;
    }
    tci_str_add(t->out, t->any ? ",\n" : "\n");
    t->any = true;
}

static void tci_timeline_flow(tci_timeline *t, const char *name, const char *id_kind, uint32_t id,
                              const tci_timeline_spot *from, const tci_timeline_spot *to)
{
    for (int end = 0; end < 2; end++) {
        const tci_timeline_spot *spot = end ? to : from;
        tci_timeline_next(t);
        tci_str_printf(t->out,
                       "{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"%s\",%s\"id\":\"%s%u\",\"pid\":%d,"
                       "\"tid\":%llu,\"ts\":%.3f}",
                       name, name, end ? "f" : "s", end ? "\"bp\":\"e\"," : "", id_kind, id,
                       spot->pid, (unsigned long long)spot->tid, tci_timeline_us(t, spot->at_ns));
    }
}

static void tci_timeline_name(tci_str *out, const tc_profile *p, const tci_record *r)
{
    const tci_profile_step *s = tci_timeline_step(p, r);
    const char *program = r->program ? p->programs[r->program - 1].name : "";
    tci_str text = {0};
    switch ((tci_record_kind)r->kind) {
    case TCI_RECORD_RUN:
        tci_str_printf(&text, "%s %s", r->item ? "init section" : "tc_run", program);
        break;
    case TCI_RECORD_STEP: tci_str_printf(&text, "step %d", r->item); break;
    case TCI_RECORD_PHASE:
    case TCI_RECORD_MARK: tci_str_add(&text, tci_label_text((uint32_t)r->item)); break;
    case TCI_RECORD_LAUNCH:
        tci_str_printf(&text, "launch %s", s ? s->name : "of a recorded run");
        break;
    case TCI_RECORD_GRAPH: tci_str_printf(&text, "recorded run %s", program); break;
    case TCI_RECORD_KERNEL:
    case TCI_RECORD_PART:
    case TCI_RECORD_DEVICE:
    case TCI_RECORD_SHARE:
    case TCI_RECORD_COMM:
    case TCI_RECORD_KINDS: tci_str_add(&text, s ? s->name : "?"); break;
    }
    tci_summary_json_text(out, tci_str_text(&text));
    tci_str_free(&text);
}

/* From the kernel that this one is the backward pass of, where that was drawn before. */
static void tci_timeline_link(tci_timeline *t, const tci_record *r, const tci_timeline_spot *here)
{
    const tci_profile_step *s = tci_timeline_step(t->p, r);
    tci_timeline_spot *spots = r->program ? t->spots[r->program - 1] : NULL;
    if (!s || !spots || r->kind == TCI_RECORD_PART || r->kind == TCI_RECORD_LAUNCH ||
        r->kind == TCI_RECORD_COMM) {
        return;
    }
    spots[r->item] = *here;
    if (s->forward >= 0 && spots[s->forward].pid) {
        tci_timeline_flow(t, "backward", "b", (uint32_t)++t->n_flows, &spots[s->forward], here);
    }
}

/* Half of the flow from a launch to what the device runs. */
static void tci_timeline_launch(tci_timeline *t, const tci_record *r, const tci_timeline_spot *here)
{
    tci_timeline_next(t);
    tci_str_printf(t->out,
                   "{\"name\":\"launch\",\"cat\":\"launch\",\"ph\":\"%s\",\"id\":\"l%u\","
                   "\"pid\":%d,\"tid\":%llu,\"ts\":%.3f}",
                   here->pid == 1 ? "s" : "f\",\"bp\":\"e", r->flow, here->pid,
                   (unsigned long long)here->tid, tci_timeline_us(t, r->begin_ns));
}

static void tci_timeline_event(tci_timeline *t, const tci_profile_thread *thread,
                               const tci_record *r)
{
    const tci_profile_step *s = tci_timeline_step(t->p, r);
    int pid = r->track ? 2 : r->kind == TCI_RECORD_COMM ? 3 : 1;
    tci_timeline_spot here = {r->begin_ns, pid, r->track ? r->track : pid == 3 ? 1 : thread->id};
    tci_timeline_next(t);
    tci_str_add(t->out, "{\"name\":");
    tci_timeline_name(t->out, t->p, r);
    tci_str_printf(t->out,
                   ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%llu,\"ts\":%.3f,\"dur\":%.3f",
                   tci_record_category((tci_record_kind)r->kind), here.pid,
                   (unsigned long long)here.tid, tci_timeline_us(t, r->begin_ns),
                   (double)(r->end_ns - r->begin_ns) / 1000);
    if (s && s->args && r->kind != TCI_RECORD_PART) {
        tci_str_printf(t->out, ",\"args\":{%s}", s->args);
    }
    tci_str_add(t->out, "}");
    if (r->flow) {
        tci_timeline_launch(t, r, &here);
    }
    tci_timeline_link(t, r, &here);
}

/* Of all steps of a program, by which a recorded run of it is shared. */
static int64_t tci_timeline_shares(const tci_profile_program *f)
{
    int64_t sum = 0;
    for (int i = 0; i < f->n_steps; i++) {
        sum += f->steps[i].share_ns;
    }
    return sum;
}

/* The kernel at step i of the recorded run `run`, after *done of the shares. False: it ran not. */
static bool tci_timeline_share(const tc_profile *p, const tci_record *run, int i, int64_t all,
                               int64_t *done, tci_record *share)
{
    const tci_profile_step *s = &p->programs[run->program - 1].steps[i];
    double ns = (double)(run->end_ns - run->begin_ns) / (double)TCI_MAX(all, 1);
    *share = *run;
    share->kind = TCI_RECORD_SHARE;
    share->item = i;
    share->flow = 0;
    share->begin_ns = run->begin_ns + (int64_t)(ns * (double)*done);
    *done += s->share_ns;
    share->end_ns = run->begin_ns + (int64_t)(ns * (double)*done);
    return s->share_calls > 0;
}

static void tci_timeline_graph(tci_timeline *t, const tci_profile_thread *thread,
                               const tci_record *run)
{
    const tci_profile_program *f = run->program ? &t->p->programs[run->program - 1] : NULL;
    bool draws = f && t->shared && t->shared[run->program - 1]++ < TCI_TIMELINE_SHARED;
    int64_t all = draws ? tci_timeline_shares(f) : 0, done = 0;
    tci_record share;
    for (int i = 0; draws && i < f->n_steps; i++) {
        if (tci_timeline_share(t->p, run, i, all, &done, &share)) {
            tci_timeline_event(t, thread, &share);
        }
    }
}

static void tci_track_name(tci_str *out, const tc_profile *p, bool is_device, int i)
{
    const tci_profile_track *track = is_device ? &p->tracks[i] : NULL;
    const tci_profile_thread *thread = is_device ? NULL : &p->threads[i];
    if (track) {
        tci_str_add(out, track->device);
        if (track->queue) {
            tci_str_printf(out, " stream %d", track->number);
        }
    } else if (thread->role) {
        tci_str_add(out, thread->role);
        if (thread->number) {
            tci_str_printf(out, " %d", thread->number);
        }
    } else {
        tci_str_printf(out, "thread %llu", (unsigned long long)thread->id);
    }
}

/* With the idle share of a track that has kernels. */
static void tci_timeline_track_name(tci_str *out, const tci_timeline *t, bool is_device, int i)
{
    tci_track_name(out, t->p, is_device, i);
    for (int k = 0; k < t->n_idle; k++) {
        if (t->idle[k].is_device == is_device && t->idle[k].track == i) {
            double share = tci_idle_share(&t->idle[k]);
            tci_str_printf(out, " (idle %.0f%%%s)", 100 * share,
                           share > 0.5 ? ", launch-bound" : "");
        }
    }
}

static void tci_timeline_track(tci_timeline *t, int pid, uint64_t tid, const char *what,
                               const char *name)
{
    tci_timeline_next(t);
    tci_str_printf(t->out,
                   "{\"name\":\"%s\",\"ph\":\"M\",\"pid\":%d,\"tid\":%llu,\"args\":{\"name\":",
                   what, pid, (unsigned long long)tid);
    tci_summary_json_text(t->out, name);
    tci_str_add(t->out, "}}");
}

static bool tci_timeline_communicates(const tc_profile *p)
{
    bool any = false;
    for (int i = 0; i < p->n_threads && !any; i++) {
        for (int64_t k = 0; k < p->threads[i].n && !any; k++) {
            any = p->threads[i].records[k].kind == TCI_RECORD_COMM;
        }
    }
    return any;
}

static void tci_timeline_tracks(tci_timeline *t)
{
    tci_timeline_track(t, 1, 0, "process_name", "host");
    if (t->p->n_tracks) {
        tci_timeline_track(t, 2, 0, "process_name", "device");
    }
    for (int i = 0; i < t->p->n_tracks; i++) {
        tci_str name = {0};
        tci_timeline_track_name(&name, t, true, i);
        tci_timeline_track(t, 2, (uint64_t)i + 1, "thread_name", tci_str_text(&name));
        tci_str_free(&name);
    }
    if (tci_timeline_communicates(t->p)) {
        tci_timeline_track(t, 3, 0, "process_name", "communication");
        tci_timeline_track(t, 3, 1, "thread_name", "collectives");
    }
    for (int i = 0; i < t->p->n_threads; i++) {
        tci_str name = {0};
        tci_timeline_track_name(&name, t, false, i);
        tci_timeline_track(t, 1, t->p->threads[i].id, "thread_name", tci_str_text(&name));
        tci_str_free(&name);
    }
}

/* Numbers of the idle time of each track, for tools. */
static void tci_timeline_idle_numbers(tci_timeline *t)
{
    tci_str_add(t->out, "\"idle\":[");
    for (int i = 0; i < t->n_idle; i++) {
        const tci_idle *row = &t->idle[i];
        tci_str name = {0};
        tci_track_name(&name, t->p, row->is_device, row->track);
        tci_str_add(t->out, i ? ",{\"track\":" : "{\"track\":");
        tci_summary_json_text(t->out, tci_str_text(&name));
        tci_str_printf(t->out,
                       ",\"busy_us\":%.3f,\"in_runs_us\":%.3f,\"in_compiles_us\":%.3f,"
                       "\"outside_us\":%.3f,\"idle\":%.4f,\"launch_bound\":%s}",
                       (double)row->busy_ns / 1e3, (double)row->in_runs_ns / 1e3,
                       (double)row->in_compiles_ns / 1e3, (double)row->outside_ns / 1e3,
                       tci_idle_share(row), tci_idle_share(row) > 0.5 ? "true" : "false");
        tci_str_free(&name);
    }
    tci_str_add(t->out, "]");
}

static void tci_timeline_write(tci_str *out, const tc_profile *p, tci_os_fresh *file)
{
    tci_timeline t = {.p = p, .out = out, .file = file};
    t.spots = tci_heap_get(sizeof(*t.spots) * (size_t)(p->n_programs + 1));
    for (int i = 0; t.spots && i < p->n_programs; i++) {
        t.spots[i] = tci_heap_get(sizeof(**t.spots) * (size_t)(p->programs[i].n_steps + 1));
        out->failed |= !t.spots[i];
    }
    t.shared = tci_heap_get(sizeof(*t.shared) * (size_t)(p->n_programs + 1));
    t.idle = tci_idle_measure(p, &t.n_idle);
    out->failed |= !t.spots || !t.shared || !t.idle;
    tci_str_printf(out, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped\":%lld,",
                   (long long)p->dropped);
    tci_timeline_idle_numbers(&t);
    tci_str_add(out, "},\"traceEvents\":[");
    tci_timeline_tracks(&t);
    for (int i = 0; i < p->n_threads && !out->failed; i++) {
        for (int64_t k = 0; k < p->threads[i].n && !out->failed; k++) {
            const tci_record *r = &p->threads[i].records[k];
            tci_timeline_event(&t, &p->threads[i], r);
            if (r->kind == TCI_RECORD_GRAPH) {
                tci_timeline_graph(&t, &p->threads[i], r);
            }
        }
    }
    tci_str_add(out, "\n]}\n");
    for (int i = 0; t.spots && i < p->n_programs; i++) {
        tci_heap_free(t.spots[i]);
    }
    tci_heap_free(t.spots);
    tci_heap_free(t.shared);
    tci_heap_free(t.idle);
}

TCI_FN void tci_profile_json(tci_str *out, const tc_profile *p)
{
    tci_timeline_write(out, p, NULL);
}

TC_API tc_status tc_profile_write(const tc_profile *p, const char *path)
{
    static const char op[] = "tc_profile_write";
    if (!p || !path || !p->ended) {
        return tci_profile_refuse(p, TC_ERR_ARGUMENT, op,
                                  path ? "the profile has not ended: expected tc_profile_end before"
                                       : "the path is NULL: expected that of a file");
    }
    tci_str text = {0}, why = {0};
    tci_os_fresh file;
    tci_os_fresh_begin_users(&file, path);
    tci_timeline_write(&text, p, &file);
    bool whole = !text.failed;
    if (whole) {
        tci_os_fresh_write(&file, text.text, text.n);
    }
    int code = tci_os_fresh_end(&file, whole, false);
    tc_status status = !whole ? TC_ERR_MEMORY : code ? TC_ERR_IO : TC_OK;
    if (status) {
        tci_str_printf(&why, "'%s' cannot be written: %s", path, tci_os_fresh_why(code));
        tci_profile_refuse(p, status, op, whole ? tci_str_text(&why) : "out of memory");
    }
    tci_str_free(&text);
    tci_str_free(&why);
    return status;
}

/* ---- the table ---- */

typedef struct tci_timeline_row {
    int program, step; /* of the first record */
    int64_t calls;
    double ns, bytes, flops, best_ns;
} tci_timeline_row;

typedef struct tci_timeline_sum {
    const tc_profile *p;
    tci_timeline_row *rows;
    int n, cap;
    int **row_of; /* 1 + the row, by program and step; 0: none yet */
    double ns;    /* of all kernels */
    tci_idle *idle;
    int n_idle;
} tci_timeline_sum;

/* A row for all steps of a program that are the same kernel; NULL: no memory. */
static tci_timeline_row *tci_timeline_row_of(tci_timeline_sum *t, const tci_record *r)
{
    const tci_profile_program *f = &t->p->programs[r->program - 1];
    int **known = &t->row_of[r->program - 1];
    *known = *known ? *known : tci_heap_get(sizeof(**known) * (size_t)(f->n_steps + 1));
    if (!*known) {
        return NULL;
    }
    if ((*known)[r->item]) {
        return &t->rows[(*known)[r->item] - 1];
    }
    for (int i = 0; i < t->n; i++) {
        if (t->rows[i].program == (int)r->program - 1 &&
            f->steps[t->rows[i].step].kernel == f->steps[r->item].kernel) {
            (*known)[r->item] = i + 1;
            return &t->rows[i];
        }
    }
    if (t->n == t->cap) {
        int cap = TCI_MAX(2 * t->cap, 64);
        void *more = tci_heap_resize(t->rows, sizeof(*t->rows) * (size_t)cap);
        if (!more) {
            return NULL;
        }
        t->rows = more;
        t->cap = cap;
    }
    t->rows[t->n] = (tci_timeline_row){.program = (int)r->program - 1, .step = r->item};
    (*known)[r->item] = ++t->n;
    return &t->rows[t->n - 1];
}

/* calls of the kernel of r took so long together. */
static bool tci_timeline_add_kernel(tci_timeline_sum *t, const tci_record *r, double calls)
{
    const tci_profile_step *s = tci_timeline_step(t->p, r);
    double ns = (double)(r->end_ns - r->begin_ns);
    tci_timeline_row *row = tci_timeline_row_of(t, r);
    if (row) {
        row->calls += (int64_t)(calls + 0.5);
        row->ns += ns;
        row->bytes += calls * s->bytes;
        row->flops += calls * s->flops;
        row->best_ns += calls * s->best_ns;
        t->ns += ns;
    }
    return row != NULL;
}

/* The kernels of a recorded run, by their shares. */
static bool tci_timeline_add_graph(tci_timeline_sum *t, const tci_record *run)
{
    const tci_profile_program *f = run->program ? &t->p->programs[run->program - 1] : NULL;
    int64_t all = f ? tci_timeline_shares(f) : 0, done = 0;
    tci_record share;
    bool ok = true;
    for (int i = 0; f && i < f->n_steps && ok; i++) {
        double runs = (double)TCI_MAX(f->share_runs, 1);
        if (tci_timeline_share(t->p, run, i, all, &done, &share)) {
            ok = tci_timeline_add_kernel(t, &share, (double)f->steps[i].share_calls / runs);
        }
    }
    return ok;
}

static bool tci_timeline_add(tci_timeline_sum *t, const tci_record *r)
{
    if (r->kind == TCI_RECORD_GRAPH) {
        return tci_timeline_add_graph(t, r);
    }
    if (!tci_timeline_step(t->p, r) ||
        (r->kind != TCI_RECORD_KERNEL && r->kind != TCI_RECORD_DEVICE)) {
        return true;
    }
    return tci_timeline_add_kernel(t, r, 1);
}

static bool tci_timeline_sum_all(tci_timeline_sum *t)
{
    const tc_profile *p = t->p;
    t->row_of = tci_heap_get(sizeof(*t->row_of) * (size_t)(p->n_programs + 1));
    t->idle = tci_idle_measure(p, &t->n_idle);
    bool ok = t->row_of && t->idle;
    for (int i = 0; i < p->n_threads; i++) {
        for (int64_t k = 0; k < p->threads[i].n && ok; k++) {
            ok = tci_timeline_add(t, &p->threads[i].records[k]);
        }
    }
    return ok;
}

static void tci_timeline_sum_free(tci_timeline_sum *t)
{
    for (int i = 0; t->row_of && i < t->p->n_programs; i++) {
        tci_heap_free(t->row_of[i]);
    }
    tci_heap_free(t->row_of);
    tci_heap_free(t->idle);
    tci_heap_free(t->rows);
}

static const char *tci_timeline_row_name(const tc_profile *p, const tci_timeline_row *r)
{
    return p->programs[r->program].steps[r->step].name;
}

static bool tci_timeline_before(const tc_profile *p, const tci_timeline_row *a,
                                const tci_timeline_row *b, tc_sort sort)
{
    double by = sort == TC_BY_TIME    ? a->ns - b->ns
                : sort == TC_BY_CALLS ? (double)(a->calls - b->calls)
                : sort == TC_BY_BYTES ? a->bytes - b->bytes
                : sort == TC_BY_FLOPS ? a->flops - b->flops
                : sort == TC_BY_NAME
                    ? -(double)strcmp(tci_timeline_row_name(p, a), tci_timeline_row_name(p, b))
                    : 0;
    bool earlier = a->program != b->program ? a->program < b->program : a->step < b->step;
    return by != 0 ? by > 0 : earlier;
}

/* Selection: the rows that are shown come first. */
static void tci_timeline_sort(const tci_timeline_sum *t, tc_sort sort, int shown)
{
    for (int i = 0; i < shown; i++) {
        for (int j = i + 1; j < t->n; j++) {
            if (tci_timeline_before(t->p, &t->rows[j], &t->rows[i], sort)) {
                tci_timeline_row row = t->rows[i];
                t->rows[i] = t->rows[j];
                t->rows[j] = row;
            }
        }
    }
}

static void tci_timeline_idle(tci_str *out, const tc_profile *p, const tci_idle *row)
{
    double share = tci_idle_share(row);
    tci_track_name(out, p, row->is_device, row->track);
    tci_str_printf(out, " idle %.1f%% of", 100 * share);
    tci_summary_time(out, (double)(row->busy_ns + row->in_runs_ns + row->outside_ns));
    tci_str_add(out, share > 0.5 ? ", launch-bound:" : ":");
    tci_summary_time(out, (double)row->in_runs_ns);
    tci_str_add(out, " between kernels of a run,");
    tci_summary_time(out, (double)row->outside_ns);
    tci_str_add(out, " outside of runs");
    if (row->in_compiles_ns) {
        tci_str_add(out, "; without");
        tci_summary_time(out, (double)row->in_compiles_ns);
        tci_str_add(out, " in compiles");
    }
    tci_str_add(out, "\n");
}

static void tci_timeline_table(tci_str *out, const tci_timeline_sum *t, int shown)
{
    tci_str_add(out, "   total  share   calls     mean    GB/s  Gflop/s  of limit  kernel"
                     "                                        from\n");
    double rest = 0;
    for (int i = 0; i < t->n; i++) {
        const tci_timeline_row *r = &t->rows[i];
        const tci_profile_program *f = &t->p->programs[r->program];
        if (i >= shown) {
            rest += r->ns;
            continue;
        }
        tci_summary_time(out, r->ns);
        tci_str_printf(out, " %5.1f%% %7lld ", t->ns > 0 ? 100 * r->ns / t->ns : 0.0,
                       (long long)r->calls);
        tci_summary_time(out, r->ns / (double)TCI_MAX(r->calls, 1));
        double ns = TCI_MAX(r->ns, 1);
        tci_str_printf(out, " %7.1f %8.1f %8.0f%%  %-44s  ", r->bytes / ns, r->flops / ns,
                       100 * r->best_ns / ns, f->steps[r->step].name);
        tci_str_add_line(out, f->name);
        tci_str_add(out, *f->steps[r->step].from ? ": " : "");
        tci_str_add_line(out, f->steps[r->step].from);
        tci_str_add(out, "\n");
    }
    if (t->n > shown) {
        tci_summary_time(out, rest);
        tci_str_printf(out, " %5.1f%%  %d more kernels\n", t->ns > 0 ? 100 * rest / t->ns : 0.0,
                       t->n - shown);
    }
    for (int i = 0; i < t->n_idle; i++) {
        tci_timeline_idle(out, t->p, &t->idle[i]);
    }
    if (t->p->dropped) {
        tci_str_printf(out,
                       "%lld records were dropped, the oldest first: expected more megabytes\n",
                       (long long)t->p->dropped);
    }
}

TC_API tc_status tc_profile_table(const tc_profile *p, FILE *out, tc_sort sort, int most)
{
    if (!p || !out || !p->ended) {
        return tci_profile_refuse(p, TC_ERR_ARGUMENT, "tc_profile_table",
                                  out ? "the profile has not ended: expected tc_profile_end before"
                                      : "the file is NULL: expected an open one");
    }
    tci_timeline_sum t = {.p = p};
    tci_str text = {0};
    bool ok = tci_timeline_sum_all(&t);
    int shown = most < 0 ? t.n : TCI_MIN(t.n, most ? most : 20);
    tci_timeline_sort(&t, sort, shown);
    tci_timeline_table(&text, &t, shown);
    ok = ok && !text.failed;
    tci_timeline_sum_free(&t);
    fputs(ok ? tci_str_text(&text) : "", out);
    tci_str_free(&text);
    tc_status status = !ok ? TC_ERR_MEMORY : ferror(out) ? TC_ERR_IO : TC_OK;
    return status ? tci_profile_refuse(p, status, "tc_profile_table",
                                       ok ? "the file cannot be written" : "out of memory")
                  : TC_OK;
}

#else

TC_API tc_status tc_profile_write(const tc_profile *p, const char *path)
{
    (void)p, (void)path;
    return TC_ERR_UNSUPPORTED;
}

TC_API tc_status tc_profile_table(const tc_profile *p, FILE *out, tc_sort sort, int most)
{
    (void)p, (void)out, (void)sort, (void)most;
    return TC_ERR_UNSUPPORTED;
}

#endif
