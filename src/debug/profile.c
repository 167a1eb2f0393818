/* debug/profile.c - profiling sessions: starts and stops recording, collects the rings of all
 * threads, and resolves records to names, lines and shapes.
 *
 * In: the rings of debug/profile_record.c. Out: tc_profile, which debug/timeline.c shows.
 *
 * Design: the names, lines and shapes of a program are noted once, at its first record, so a
 * profile outlives programs and contexts. Ending a session turns recording off, waits for threads
 * that are writing, and takes the contents of the rings. */
#include "profile.h"

#include <stdlib.h>
#include <string.h>

#include "../base/os.h"
#include "../base/system_headers.h"
#include "string_intern.h"
#include "source_location.h"
#include "summary.h"

#ifndef TC_NO_DEBUG

enum { TCI_PROFILE_MB = 64 };

/* ---- programs ---- */

static char *tci_profile_text(tci_str *text)
{
    return text->failed ? NULL : text->text; /* handed over */
}

static double tci_profile_best_ns(const char *note)
{
    const char *at = note ? strstr(note, ", at best ") : NULL;
    char *unit;
    double time = at ? strtod(at + 10, &unit) : 0;
    return !at                        ? 0
           : !strncmp(unit, " us", 3) ? time * 1e3
           : !strncmp(unit, " ms", 3) ? time * 1e6
                                      : time;
}

static void tci_profile_args(tci_str *out, const tc_program *f, int step, const char *program)
{
    const tci_code_step *s = &f->code->steps[step];
    const tci_code_kernel *k = &f->code->kernels[s->kernel];
    const tci_origin *at = tci_origin_of(f, step);
    tci_str region = {0}, line = {0};
    tci_origin_region_text(&region, tci_origin_region(f, step));
    tci_origin_line(&line, at);
    tci_str_add(out, "\"program\":");
    tci_summary_json_text(out, program);
    tci_str_printf(out,
                   ",\"bytes\":%lld,\"flops\":%lld,\"region\":", (long long)tci_dim_hint(k->bytes),
                   (long long)tci_dim_hint(k->flops));
    tci_summary_json_text(out, tci_str_text(&region));
    tci_str_add(out, ",\"line\":");
    tci_summary_json_text(out, tci_str_text(&line));
    tci_str_add(out, ",\"operands\":[");
    for (int o = 0; o < k->n_operands; o++) {
        const tci_code_buffer *b = &f->code->buffers[s->operands[o]];
        tci_str operand = {0};
        tci_str_add(&operand, k->writes[o] ? "write " : "read ");
        tci_summary_shape(&operand, b->dtype, b->rank, b->shape);
        tci_str_add(out, o ? "," : "");
        tci_summary_json_text(out, tci_str_text(&operand));
        tci_str_free(&operand);
    }
    tci_str_add(out, "]");
    tci_str_free(&region);
    tci_str_free(&line);
}

/* The first step that the step of a backward pass goes back to: of the same line, forward. */
static int32_t tci_profile_forward(const tc_program *f, int step)
{
    const tci_origin *at = tci_origin_of(f, step);
    if (!at || !(at->region & TCI_REGION_BACKWARD)) {
        return -1;
    }
    for (int t = f->code->n_init; t < step; t++) {
        const tci_origin *o = tci_origin_of(f, t);
        if (o && !(o->region & TCI_REGION_BACKWARD) && o->line == at->line && o->file == at->file) {
            return t;
        }
    }
    return -1;
}

static bool tci_profile_note_program(tci_profile_program *to, const tc_program *f)
{
    char hex[33];
    tci_str name = {0};
    bool ok = true;
    tci_str_add(&name, tci_program_name(f, hex));
    to->name = tci_profile_text(&name);
    to->n_steps = f->code->n_steps;
    to->steps = tci_heap_get(sizeof(*to->steps) * (size_t)(to->n_steps + 1));
    for (int t = 0; to->steps && t < to->n_steps; t++) {
        const tci_code_kernel *k = &f->code->kernels[f->code->steps[t].kernel];
        tci_profile_step *s = &to->steps[t];
        tci_str symbol = {0}, args = {0}, from = {0};
        tci_str_add(&symbol, k->symbol ? k->symbol : "");
        tci_profile_args(&args, f, t, to->name ? to->name : "");
        tci_str_add(&from, "");
        tci_origin_text(&from, f, t);
        *s = (tci_profile_step){.kernel = f->code->steps[t].kernel,
                                .name = tci_profile_text(&symbol),
                                .args = tci_profile_text(&args),
                                .from = tci_profile_text(&from),
                                .bytes = (double)tci_dim_hint(k->bytes),
                                .flops = (double)tci_dim_hint(k->flops),
                                .best_ns = tci_profile_best_ns(k->note),
                                .forward = tci_profile_forward(f, t)};
        ok = ok && s->name && s->args;
    }
    return ok && to->name && to->steps;
}

static void tci_profile_drop_program(tci_profile_program *p)
{
    for (int t = 0; p->steps && t < p->n_steps; t++) {
        tci_heap_free(p->steps[t].name);
        tci_heap_free(p->steps[t].args);
        tci_heap_free(p->steps[t].from);
    }
    tci_heap_free(p->steps);
    tci_heap_free(p->name);
}

/* f gets its number in the profile. 0: no memory. The ring of the caller is busy, so the profile
 * stays. */
static uint32_t tci_profile_register(tc_program *f)
{
    tci_profile_process *process = tci_profile_state();
    pthread_mutex_lock(&process->lock);
    tc_profile *p = process->now;
    uint32_t number = p && f->profile_epoch == p->epoch ? f->profile_number : 0;
    if (p && !number) {
        if (p->n_programs == p->cap_programs) {
            int cap = TCI_MAX(2 * p->cap_programs, 16);
            void *more = tci_heap_resize(p->programs, sizeof(*p->programs) * (size_t)cap);
            p->programs = more ? more : p->programs;
            p->cap_programs = more ? cap : p->cap_programs;
        }
        if (p->n_programs < p->cap_programs) {
            tci_profile_program *to = &p->programs[p->n_programs];
            memset(to, 0, sizeof(*to));
            if (tci_profile_note_program(to, f)) {
                number = (uint32_t)++p->n_programs;
                f->profile_number = number;
                __atomic_store_n(&f->profile_epoch, p->epoch, __ATOMIC_RELEASE);
            } else {
                tci_profile_drop_program(to);
            }
        }
    }
    pthread_mutex_unlock(&process->lock);
    return number;
}

TCI_FN uint16_t tci_profile_track_of(const char *device, const void *queue)
{
    tci_profile_process *process = tci_profile_state();
    pthread_mutex_lock(&process->lock);
    tc_profile *p = process->now;
    int number = 0, n = p ? p->n_tracks : 0;
    for (int i = 0; i < n; i++) {
        if (!strcmp(p->tracks[i].device, device)) {
            if (p->tracks[i].queue == queue) {
                pthread_mutex_unlock(&process->lock);
                return (uint16_t)(i + 1);
            }
            number = TCI_MAX(number, p->tracks[i].number);
        }
    }
    void *more = p && n < UINT16_MAX
                     ? tci_heap_resize(p->tracks, sizeof(*p->tracks) * (size_t)(n + 1))
                     : NULL;
    if (more) {
        p->tracks = more;
        p->tracks[p->n_tracks++] = (tci_profile_track){device, queue, queue ? number + 1 : 0};
    }
    pthread_mutex_unlock(&process->lock);
    return (uint16_t)(more ? n + 1 : 0);
}

/* ---- shares: how long the kernels of a recorded run take, by an unrecorded one ---- */

TCI_FN void tci_profile_share(uint32_t number, int32_t item, int64_t ns)
{
    tci_profile_process *process = tci_profile_state();
    pthread_mutex_lock(&process->lock);
    tc_profile *p = process->now;
    if (p && number && number <= (uint32_t)p->n_programs && item >= 0 &&
        item < p->programs[number - 1].n_steps) {
        tci_profile_step *s = &p->programs[number - 1].steps[item];
        s->share_ns += TCI_MAX(ns, 0);
        s->share_calls++;
    }
    pthread_mutex_unlock(&process->lock);
}

TCI_FN void tci_profile_shares_end(tc_program *f)
{
    tci_profile_process *process = tci_profile_state();
    uint32_t number = tci_profile_program_of(f);
    pthread_mutex_lock(&process->lock);
    tc_profile *p = process->now;
    if (p && number) {
        p->programs[number - 1].share_runs++;
        __atomic_store_n(&f->profile_shares, p->epoch, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&process->lock);
}

TCI_FN bool tci_profile_has_shares(const tc_program *f)
{
    return __atomic_load_n(&f->profile_shares, __ATOMIC_ACQUIRE) ==
           __atomic_load_n(&tci_profile_state()->epoch, __ATOMIC_RELAXED);
}

/* A line of TC_LOG=kernels. */
static void tci_profile_log_line(const tc_program *f, int step, int64_t ns)
{
    const tci_code_kernel *k = &f->code->kernels[f->code->steps[step].kernel];
    double time = (double)TCI_MAX(ns, (int64_t)1);
    char hex[33];
    tci_str from = {0};
    tci_origin_text(&from, f, step);
    fprintf(stderr, "tc kernels: %s %-40s %10.2f us %7.1f GB/s %8.1f Gflop/s  %s\n",
            tci_program_name(f, hex), k->symbol ? k->symbol : "", time / 1e3,
            (double)tci_dim_hint(k->bytes) / time, (double)tci_dim_hint(k->flops) / time,
            tci_str_text(&from));
    tci_str_free(&from);
}

TCI_FN void tci_profile_log_kernels(void)
{
    tci_profile_state()->log = tci_profile_log_line;
    __atomic_or_fetch(&tci_profile_state()->watch, TCI_PROFILE_LOGS, __ATOMIC_RELEASE);
}

/* ---- begin and end ---- */

TCI_FN tc_profile *tci_profile_start(const tc_profile_options *o, tc_status *status)
{
    tci_profile_process *process = tci_profile_state();
    tci_os_keep_over_fork(&process->lock, NULL);
    tc_profile *p = tci_heap_get(sizeof(*p));
    *status = p ? TC_OK : TC_ERR_MEMORY;
    pthread_mutex_lock(&process->lock);
    if (p && process->now) {
        *status = TC_ERR_BUSY;
    } else if (p) {
        int64_t mb = o && o->megabytes > 0 ? o->megabytes : TCI_PROFILE_MB;
        __atomic_store_n(&process->no_device, o && o->no_device, __ATOMIC_RELAXED);
        p->epoch = ++process->epoch;
        p->errors = tci_heap_get(sizeof(*p->errors));
        p->begin_ns = p->step_ns = tci_os_now_ns();
        process->now = p;
        process->note = tci_profile_register;
        process->n_profiles++;
        __atomic_store_n(&process->budget,
                         mb * (1 << 20) / (int64_t)(TCI_RING_CHUNK * sizeof(tci_record)),
                         __ATOMIC_RELAXED);
        __atomic_or_fetch(&process->watch, TCI_PROFILE_RECORDS, __ATOMIC_SEQ_CST);
    }
    pthread_mutex_unlock(&process->lock);
    if (*status) {
        tci_heap_free(p);
        p = NULL;
    }
    return p;
}

/* The records of a ring, oldest first, in one array; the ring is given back empty. */
static bool tci_profile_collect(tci_profile_thread *to, tci_ring *r)
{
    int n = r->n_chunks;
    int64_t last = r->chunk >= 0 ? r->at : 0, total = 0;
    to->id = r->id;
    to->role = r->role;
    to->number = r->number;
    to->records = tci_heap_resize(NULL, (size_t)(n + 1) * TCI_RING_CHUNK * sizeof(*to->records));
    for (int i = 1; i <= n && to->records; i++) {
        int chunk = r->wrapped ? (r->chunk + i) % n : i - 1;
        int64_t records = chunk == r->chunk ? last : TCI_RING_CHUNK;
        memcpy(to->records + total, r->chunks[chunk], (size_t)records * sizeof(*to->records));
        total += records;
    }
    to->n = total;
    return to->records != NULL;
}

TCI_FN tc_status tci_profile_stop(tc_profile *p)
{
    tci_profile_process *process = tci_profile_state();
    pthread_mutex_lock(&process->lock);
    if (process->now != p) {
        pthread_mutex_unlock(&process->lock);
        return TC_ERR_ARGUMENT;
    }
    void (*drain)(void) = process->drain;
    pthread_mutex_unlock(&process->lock); /* who writes may need it for a new program */
    if (drain) {
        drain();
    }
    __atomic_and_fetch(&process->watch, ~TCI_PROFILE_RECORDS, __ATOMIC_SEQ_CST);
    tc_status status = TC_OK;
    int n = 0;
    for (tci_ring *r = __atomic_load_n(&process->rings, __ATOMIC_ACQUIRE); r; r = r->next) {
        while (__atomic_load_n(&r->busy, __ATOMIC_ACQUIRE)) {
        }
        n++;
    }
    pthread_mutex_lock(&process->lock);
    process->now = NULL;
    p->end_ns = tci_os_now_ns();
    p->ended = true;
    p->threads = tci_heap_get(sizeof(*p->threads) * (size_t)(n + 1));
    for (tci_ring *r = process->rings; r && p->threads && p->n_threads < n; r = r->next) {
        if (r->epoch == p->epoch) {
            bool whole = tci_profile_collect(&p->threads[p->n_threads++], r);
            status = whole ? status : TC_ERR_MEMORY;
            p->dropped += r->dropped;
            tci_ring_restart(r, 0);
        }
    }
    status = p->threads ? status : TC_ERR_MEMORY;
    pthread_mutex_unlock(&process->lock);
    return status;
}

TCI_FN void tci_profile_drop(tc_profile *p)
{
    for (int i = 0; i < p->n_programs; i++) {
        tci_profile_drop_program(&p->programs[i]);
    }
    for (int i = 0; i < p->n_threads; i++) {
        tci_heap_free(p->threads[i].records);
    }
    tci_heap_free(p->programs);
    tci_heap_free(p->tracks);
    tci_heap_free(p->threads);
    if (p->errors) {
        tci_errors_free(p->errors);
    }
    tci_heap_free(p->errors);
    tci_heap_free(p);
    __atomic_sub_fetch(&tci_profile_state()->n_profiles, 1, __ATOMIC_RELAXED);
}

TCI_FN tc_status tci_profile_refuse(const tc_profile *p, tc_status why, const char *op,
                                    const char *text)
{
    if (p && p->errors) {
        tci_errors_record(p->errors, &tci_profile_state()->lock, why, op, text);
    }
    return why;
}

TC_API const char *tc_profile_error(const tc_profile *p)
{
    return !p          ? "the profile is NULL: tc_profile_begin failed?"
           : p->errors ? tci_errors_text(p->errors, &tci_profile_state()->lock)
                       : "";
}

TC_API tc_status tc_profile_begin(const tc_profile_options *options, tc_profile **profile)
{
    tc_status status = TC_ERR_ARGUMENT;
    if (profile) {
        *profile = tci_profile_start(options, &status);
    }
    return status;
}

TC_API tc_status tc_profile_end(tc_profile *p)
{
    if (!p || p->ended) {
        return tci_profile_refuse(p, TC_ERR_ARGUMENT, "tc_profile_end", "it has ended before");
    }
    tc_status status = tci_profile_stop(p);
    return status
               ? tci_profile_refuse(p, status, "tc_profile_end", "out of memory: records were lost")
               : TC_OK;
}

TC_API tc_status tc_profile_step(tc_profile *p)
{
    if (!p || p->ended) {
        return tci_profile_refuse(p, TC_ERR_ARGUMENT, "tc_profile_step", "the profile has ended");
    }
    int64_t now = tci_os_now_ns();
    tci_profile_add(TCI_RECORD_STEP, NULL, p->n_steps++, p->step_ns, now);
    p->step_ns = now;
    return TC_OK;
}

TC_API void tc_profile_free(tc_profile *p)
{
    if (p) {
        if (!p->ended) {
            tci_profile_stop(p);
        }
        tci_profile_drop(p);
    }
}

#else

TC_API tc_status tc_profile_begin(const tc_profile_options *options, tc_profile **profile)
{
    (void)options;
    if (profile) {
        *profile = NULL;
    }
    return TC_ERR_UNSUPPORTED;
}

TC_API tc_status tc_profile_end(tc_profile *p)
{
    (void)p;
    return TC_ERR_UNSUPPORTED;
}

TC_API tc_status tc_profile_step(tc_profile *p)
{
    (void)p;
    return TC_ERR_UNSUPPORTED;
}

TC_API const char *tc_profile_error(const tc_profile *p)
{
    (void)p;
    return "this build has no profiles: TC_NO_DEBUG was defined";
}

TC_API void tc_profile_free(tc_profile *p)
{
    (void)p;
}

#endif
