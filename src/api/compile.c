/* api/compile.c - implements tc_compile, tc_compile_many and the compile half of exports: turns a
 * batch of jobs (checked lists of tensor handles) into programs.
 *
 * In: handles. Out: programs; statuses, with the text in ctx->last.
 *
 * Design: every compile is a batch of jobs with the same steps: make a request for each job (which
 * detects errors), compile all of them at once, make a program of each.
 *
 * Requests are in the scratch memory of the batch. Every function that takes scratch memory is
 * called through tci_batch_armed, which sets the target of the longjmp; nothing is allocated
 * outside. */
#include "compile.h"
#include "internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../debug/string_intern.h"
#include "../debug/minify.h"
#include "../debug/dump.h"
#include "../debug/log.h"
#include "../debug/html_report.h"
#include "../debug/summary.h"
#include "../run/shape_instances.h"
#include "../run/async_compile.h"

/* ---- errors ---- */

TCI_FN tc_status tci_batch_fail(const tci_frame *f, tc_tensor about, const tc_site *made,
                                tc_status why, const char *format, ...)
{
    tci_ctx *ctx = tci_ctx_of(about.ctx);
    char made_at[320] = "", place[320] = "", text[sizeof(ctx->last.text)];
    if (made && made->file) {
        snprintf(made_at, sizeof(made_at), " (the tensor was made at %.256s:%d)", made->file,
                 made->line);
    }
    if (f->here.file) {
        snprintf(place, sizeof(place), "%.256s:%d: ", f->here.file, f->here.line);
    }
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    int room = (int)(sizeof(ctx->last.text) - strlen(place) - strlen(f->op) - strlen(made_at)) - 3;
    snprintf(ctx->last.text, sizeof(ctx->last.text), "%s%s: %.*s%s", place, f->op, room, text,
             made_at);
    ctx->last.status = why;
    ctx->last_on = about;
    return why;
}

TCI_FN tci_node *tci_batch_node(const tci_frame *f, tc_tensor about, tc_tensor t, tc_status *status)
{
    tci_node *n = tci_handle_node(t);
    if (TCI_LIKELY(n != NULL)) {
        return n;
    }
    tci_error e;
    *status = tci_handle_error(t, e.text, sizeof(e.text));
    tc_tensor on = about.ctx ? about : t;
    if (tci_ctx_of(on.ctx)) {
        tci_batch_fail(f, on, NULL, *status, "%s", e.text);
    }
    return NULL;
}

static tc_status tci_batch_fail_outputs(const tci_frame *f, tc_tensor about)
{
    return tci_batch_fail(f, about, NULL, TC_ERR_ARGUMENT,
                          "given no outputs, expected at least one");
}

/* ---- options ---- */

/* Zero fields of `over` leave the context's choice. */
static tc_options tci_batch_options(const tci_ctx *ctx, const tc_options *over)
{
    tc_options o = ctx->options;
    if (!over) {
        return o;
    }
#define TCI_BATCH_TAKE(field)                                                                      \
    if (over->field) {                                                                             \
        o.field = over->field;                                                                     \
    }
    TCI_BATCH_TAKE(backend)
    TCI_BATCH_TAKE(device)
    TCI_BATCH_TAKE(machine)
    TCI_BATCH_TAKE(math)
    TCI_BATCH_TAKE(stance)
    TCI_BATCH_TAKE(fallback)
    TCI_BATCH_TAKE(threads)
    TCI_BATCH_TAKE(vector_bits)
    TCI_BATCH_TAKE(matrix)
    TCI_BATCH_TAKE(reproducible)
    TCI_BATCH_TAKE(fusion)
    TCI_BATCH_TAKE(remat)
    TCI_BATCH_TAKE(spin_us)
    TCI_BATCH_TAKE(record)
    TCI_BATCH_TAKE(cc)
    TCI_BATCH_TAKE(cc_timeout_s)
    TCI_BATCH_TAKE(cache_dir)
    TCI_BATCH_TAKE(cache_bytes)
    TCI_BATCH_TAKE(memory_cache_bytes)
    TCI_BATCH_TAKE(no_disk_cache)
    TCI_BATCH_TAKE(cache_read_only)
    TCI_BATCH_TAKE(verify)
    TCI_BATCH_TAKE(check)
    TCI_BATCH_TAKE(schedule)
    TCI_BATCH_TAKE(tune_ms)
    TCI_BATCH_TAKE(quick_build)
    TCI_BATCH_TAKE(compilers)
    TCI_BATCH_TAKE(name)
    TCI_BATCH_TAKE(dump)
    TCI_BATCH_TAKE(dump_dir)
    TCI_BATCH_TAKE(trace)
    TCI_BATCH_TAKE(memory_limit)
    TCI_BATCH_TAKE(cancel)
#undef TCI_BATCH_TAKE
    if (over->log) {
        o.log = over->log;
        o.log_user = over->log_user;
    }
    if (over->progress) {
        o.progress = over->progress;
        o.progress_user = over->progress_user;
    }
    if (over->background) {
        o.background = over->background;
        o.background_user = over->background_user;
    }
    if (over->parallel_for) {
        o.parallel_for = over->parallel_for;
        o.parallel_user = over->parallel_user;
    }
    return o;
}

/* Source for other machines is C that any of them can compile, unless vectors are asked for. */
static tc_options tci_batch_export_options(tc_options o)
{
    o.backend = "cpu";
    o.machine = NULL;
    o.device = 0;
    o.vector_bits = o.vector_bits ? o.vector_bits : -1;
    o.matrix = -1;
    return o;
}

/* ---- batches ---- */

TCI_FN tc_status tci_batch_armed(tci_batch *b, tci_batch_job *job, tci_batch_body body)
{
    if (setjmp(b->s.escape)) {
        return tci_batch_fail(b->f, job ? job->about : b->about, job ? &job->site : NULL, b->s.why,
                              "%s", b->s.message);
    }
    return body(b, job);
}

/* The job failed and ctx->last has the message. Of many, the first keeps the last word. */
static void tci_batch_settle(tci_batch *b, tci_batch_job *job, tc_status status)
{
    job->status = status;
    if (status && !b->first) {
        b->first = status;
        b->first_error = b->ctx->last;
        b->first_on = b->ctx->last_on;
    }
}

static tc_status tci_batch_get_lists(tci_batch *b, tci_batch_job *none)
{
    (void)none;
    b->requests = TCI_NEW_ARRAY(&b->s, tci_request *, b->n);
    b->codes = TCI_NEW_ARRAY(&b->s, tci_code *, b->n);
    b->statuses = TCI_NEW_ARRAY(&b->s, tc_status, b->n);
    return TC_OK;
}

TCI_FN tc_status tci_batch_nodes(tci_batch *b, const tci_batch_job *job, const tc_tensors *list,
                                 tci_node **nodes)
{
    tc_status status = TC_OK;
    for (int i = 0; i < list->n && !status; i++) {
        nodes[i] = tci_batch_node(b->f, job->about, list->items[i], &status);
        if (nodes[i] && list->items[i].ctx != b->about.ctx) {
            status = tci_batch_fail(b->f, job->about, &nodes[i]->site, TC_ERR_HANDLE,
                                    "given tensors of two contexts, expected all from one");
        }
    }
    return status;
}

static tc_status tci_batch_check_job(tci_batch *b, const tci_batch_job *job)
{
    if (!job->program && !b->exports) {
        return tci_batch_fail(b->f, job->about, NULL, TC_ERR_ARGUMENT,
                              "given NULL, expected a place for the program");
    }
    if (job->outputs.n < 1 || !job->outputs.items) {
        return tci_batch_fail_outputs(b->f, job->about);
    }
    if (job->inputs.n < 0 || (job->inputs.n && !job->inputs.items)) {
        return tci_batch_fail(b->f, job->about, NULL, TC_ERR_ARGUMENT,
                              "given a list of %d inputs at %p", job->inputs.n,
                              (const void *)job->inputs.items);
    }
    return TC_OK;
}

static tc_status tci_batch_check_inputs(tci_batch *b, const tci_batch_job *job,
                                        tci_node *const *inputs)
{
    for (int i = 0; i < job->inputs.n; i++) {
        if (inputs[i]->op != TCI_OP_INPUT) {
            return tci_batch_fail(
                b->f, job->about, &inputs[i]->site, TC_ERR_ARGUMENT,
                "input %d: given the result of %s, expected a tc_input placeholder", i,
                TCI_MAKER(inputs[i]));
        }
    }
    return TC_OK;
}

/* Checks one job and makes its request. */
static tc_status tci_batch_request(tci_batch *b, tci_batch_job *job)
{
    tc_status status = tci_batch_check_job(b, job);
    if (status) {
        return status;
    }
    tci_node **outputs = TCI_NEW_ARRAY(&b->s, tci_node *, job->outputs.n);
    status = tci_batch_nodes(b, job, &job->outputs, outputs);
    if (status) {
        return status;
    }
    job->site = outputs[0]->site;
    tci_node **inputs = NULL;
    if (!job->find_inputs) {
        inputs = TCI_NEW_ARRAY(&b->s, tci_node *, TCI_MAX(1, job->inputs.n));
        status = tci_batch_nodes(b, job, &job->inputs, inputs);
        if (!status) {
            status = tci_batch_check_inputs(b, job, inputs);
        }
        if (status) {
            return status;
        }
    }
    job->request = tci_request_make(&b->s, inputs, job->inputs.n, outputs, job->outputs.n,
                                    b->options, NULL, NULL);
    return TC_OK;
}

/* Whose call asks, for reports. */
static void tci_batch_sign(const tci_batch *b, tci_request *r)
{
    r->call = b->ctx->trace ? b->ctx->trace->name : b->f->op;
    r->site = b->f->here;
    r->ctx = b->ctx->handle;
}

/* The code of an export, and of its further forms: all of them or none. */
static tc_status tci_batch_compile_export(tci_batch *b, tci_str *log)
{
    tci_batch_job *job = &b->jobs[0];
    tc_options o = *b->options;
    tc_status status = tci_compile_export(b->requests[0], &o, &b->codes[0], log);
    for (int i = 0; i < job->n_forms && !status; i++) {
        o.vector_bits = job->forms[i].vector_bits;
        status = tci_compile_export(b->requests[0], &o, &job->forms[i].code, log);
    }
    if (status) {
        tci_code_release(b->codes[0]);
        b->codes[0] = NULL;
    }
    return status;
}

/* The same program for another backend (NULL: tc's default), or split between that and an engine
 * (or NULL). */
static tc_status tci_batch_compile_for(tci_batch *b, tci_batch_job *job, tc_options o,
                                       const char *backend, const tci_backend *engine, tci_str *log)
{
    const tci_request *r = job->request;
    o.backend = backend;
    o.progress = NULL;
    job->request = tci_request_make(&b->s, r->inputs, r->n_user_inputs, r->roots, r->n_roots, &o,
                                    NULL, NULL);
    tci_batch_sign(b, job->request);
    if (engine) {
        tci_request_split(&b->s, job->request, &o, engine);
    }
    tc_status status;
    tci_compile_requests(&b->s, &job->request, 1, &o, &job->code, &status, log);
    return status;
}

static tc_status tci_batch_compile_plain(tci_batch *b, tci_batch_job *job, tc_options o,
                                         const char *backend)
{
    tci_str log = {.s = &b->s};
    tc_status status = tci_batch_compile_for(b, job, o, backend, NULL, &log);
    if (status) {
        tci_batch_fail(b->f, job->about, &job->site, status, "%s: %s", tc_status_text(status),
                       tci_str_text(&log));
    }
    return status;
}

/* The stance leaves what no cache has to the interpreter. */
static tc_status tci_batch_interpret(tci_batch *b, tci_batch_job *job)
{
    tc_options o = *b->options;
    o.stance = TC_STANCE_COMPILE;
    return tci_batch_compile_plain(b, job, o, "interp");
}

/* An engine refused the graph: it runs the parts that it takes, and tc the rest, in memory of the
 * host; without such parts, or without the engine, tc compiles all of it. */
static tc_status tci_batch_instead(tci_batch *b, tci_batch_job *job)
{
    tci_str log = {.s = &b->s};
    tc_options o = *b->options;
    o.stance = o.stance == TC_STANCE_LATER ? TC_STANCE_COMPILE : o.stance;
    job->instead = tci_scratch_printf(&b->s, "%.900s", job->instead);
    tc_status status = tci_batch_compile_for(b, job, o, NULL, tci_backend_pick(b->options), &log);
    if (status == TC_ERR_BACKEND || status == TC_ERR_UNSUPPORTED) {
        tci_log(b->options, "compile", "the graph is not split: %s", tci_str_text(&log));
        return tci_batch_compile_plain(b, job, o, NULL);
    } else if (status) {
        tci_batch_fail(b->f, job->about, &job->site, status, "%s: %s", tc_status_text(status),
                       tci_str_text(&log));
    } else {
        job->instead = NULL;
    }
    return status;
}

/* True if tc's own backend may compile what the engine did not, as it said with that status. */
static bool tci_batch_may_replace(const tci_batch *b, tc_status status)
{
    bool about_engine = status == TC_ERR_BACKEND || status == TC_ERR_UNSUPPORTED;
    if (!about_engine || b->options->fallback == TC_FALLBACK_REFUSE) {
        return false;
    }
    const tci_backend *asked = tci_backend_pick(b->options);
    return asked && asked->graph;
}

/* A request that the stance refuses is interpreted instead, where it says so, and one that an
 * engine refuses is compiled by tc; else it failed. */
static void tci_batch_refused(tci_batch *b, tci_batch_job *job, tc_status status, const char *text)
{
    if (status == TC_ERR_FROZEN && b->options->stance >= TC_STANCE_INTERPRET) {
        job->later = b->options->stance == TC_STANCE_LATER ? job->request : NULL;
        status = tci_batch_armed(b, job, tci_batch_interpret);
    } else if (tci_batch_may_replace(b, status)) {
        job->instead = text;
        tci_log(b->options, "compile", "not the whole graph on the engine: %s", text);
        status = tci_batch_armed(b, job, tci_batch_instead);
    } else {
        tci_str written = {0};
        tci_minify_compile(job->request, b->options, status, &written);
        tci_batch_fail(b->f, job->about, &job->site, status, "%s%s%s%s", tc_status_text(status),
                       tci_str_text(&written), *text ? ": " : "", text);
        tci_str_free(&written);
    }
    if (status) {
        tci_batch_settle(b, job, status);
    }
}

TCI_FN void tci_batch_compile(tci_batch *b)
{
    b->n_requests = 0;
    for (int i = 0; i < b->n; i++) {
        if (b->jobs[i].request) {
            tci_batch_sign(b, b->jobs[i].request);
            b->requests[b->n_requests++] = b->jobs[i].request;
        }
    }
    if (!b->n_requests) {
        return;
    }
    tci_str log = {0};
    if (b->exports) {
        b->statuses[0] = tci_batch_compile_export(b, &log);
    } else {
        tci_compile_requests(&b->s, b->requests, b->n_requests, b->options, b->codes, b->statuses,
                             &log);
    }
    for (int i = 0, r = 0; i < b->n; i++) {
        tci_batch_job *job = &b->jobs[i];
        if (!job->request) {
            continue;
        }
        tc_status status = b->statuses[r];
        job->code = b->codes[r++];
        job->instead = NULL;
        if (!job->code) {
            tci_batch_refused(b, job, status ? status : TC_ERR_INTERNAL, tci_str_text(&log));
        }
    }
    tci_str_free(&log);
}

TCI_FN tc_status tci_batch_take_back(tci_batch *b, tci_lent lent, tc_status status)
{
    const char *why = tci_take_back(b->ctx, lent);
    return why && !status ? tci_batch_fail(b->f, b->about, NULL, TC_ERR_ARGUMENT, "%s", why)
                          : status;
}

TCI_FN tc_status tci_batch_make_program(tci_batch *b, tci_batch_job *job)
{
    tc_status status = tci_program_make(job->code, job->request, b->options, job->program);
    if (status == TC_ERR_LIMIT) {
        tci_batch_fail(
            b->f, job->about, &job->site, status,
            "the program needs %lld bytes of workspace, expected at most memory_limit = %lld",
            (long long)(tci_code_workspace(job->code) + job->code->kept_bytes),
            (long long)b->options->memory_limit);
    } else if (status) {
        tci_batch_fail(b->f, job->about, &job->site, status, "%s", tc_status_text(status));
    }
#ifdef TC_DYNAMIC_SHAPES
    const char *untold = status ? NULL : tci_dynamic_untold(*job->program);
    if (untold) {
        tci_program_release(*job->program);
        *job->program = NULL;
        return tci_batch_fail(b->f, job->about, &job->site, TC_ERR_SHAPE,
                              "'%.60s' is the size of no axis of an input or output: no run could"
                              " tell it",
                              untold);
    }
#endif
    if (!status && job->instead) {
        (*job->program)->instead = tci_label_of(job->instead);
    }
    if (!status && job->later) {
        tci_later_start(*job->program, job->later, b->options);
    }
    if (!status) {
        tci_summary_announce(*job->program, b->f->op, b->f->here);
        if (TCI_UNLIKELY(b->options->dump != NULL) && tci_dump_list_has(b->options->dump, "html")) {
            tci_report_dump(*job->program, b->options);
        }
    }
    return status;
}

/* From checked handles to programs. A thread that is cancelled is so afterwards: others wait for
 * what it compiles. */
static tc_status tci_batch_make_programs(tci_batch *b)
{
    int cancel = tci_os_no_cancel();
    tci_scratch_init(&b->s);
    b->first = tci_batch_armed(b, NULL, tci_batch_get_lists);
    if (b->first) {
        for (int i = 0; i < b->n; i++) {
            b->jobs[i].status = b->first;
        }
        tci_scratch_free(&b->s);
        tci_os_may_cancel(cancel);
        return b->first;
    }
    for (int i = 0; i < b->n; i++) {
        tci_batch_settle(b, &b->jobs[i], tci_batch_armed(b, &b->jobs[i], tci_batch_request));
    }
    tci_lent lent = tci_lend(b->ctx);
    tci_batch_compile(b);
    tc_status ended = tci_batch_take_back(b, lent, TC_OK);
    for (int i = 0; i < b->n; i++) {
        if (b->jobs[i].code) {
            tc_status status = ended        ? ended
                               : b->exports ? tci_batch_armed(b, &b->jobs[i], b->exports)
                                            : tci_batch_make_program(b, &b->jobs[i]);
            tci_batch_settle(b, &b->jobs[i], status);
            tci_code_release(b->jobs[i].code);
        }
        for (int k = 0; k < b->jobs[i].n_forms; k++) {
            tci_code_release(b->jobs[i].forms[k].code);
        }
    }
    tci_scratch_free(&b->s);
    if (b->first) {
        b->ctx->last = b->first_error;
        b->ctx->last_on = b->first_on;
    }
    tci_os_may_cancel(cancel);
    return b->first;
}

/* ---- compile ---- */

/* No job has an output: the text is that of the context of an input. */
static tc_status tci_batch_no_outputs(const tci_frame *f, const tci_batch_job *jobs, int n)
{
    for (int i = 0; i < n; i++) {
        const tc_tensors *in = &jobs[i].inputs;
        for (int j = 0; in->items && j < in->n; j++) {
            if (tci_handle_node(in->items[j])) {
                return tci_batch_fail_outputs(f, in->items[j]);
            }
        }
    }
    return TC_ERR_ARGUMENT;
}

/* The first live output of all jobs. False: there is none, *status says why. */
static bool tci_batch_find_live(const tci_frame *f, const tci_batch_job *jobs, int n,
                                tc_tensor *live, tc_status *status)
{
    static const tc_tensor nothing;
    for (int pass = 0; pass < 2; pass++) { /* only when none is live are the others asked why */
        for (int i = 0; i < n; i++) {
            const tc_tensors *out = &jobs[i].outputs;
            for (int j = 0; out->items && j < out->n; j++) {
                *live = out->items[j];
                if (pass == 0 && tci_handle_node(*live)) {
                    return true;
                }
                if (pass == 1) {
                    tci_batch_node(f, nothing, *live, status);
                    return false;
                }
            }
        }
    }
    *status = tci_batch_no_outputs(f, jobs, n);
    return false;
}

static tc_status tci_batch_compile_jobs(const tci_frame *f, tci_batch_job *jobs, int n,
                                        const tc_options *options, tci_batch_body exports)
{
    tc_status status;
    tci_batch b;
    for (int i = 0; i < n; i++) {
        if (jobs[i].program) {
            *jobs[i].program = NULL;
        }
    }
    if (!tci_batch_find_live(f, jobs, n, &b.about, &status)) {
        for (int i = 0; i < n; i++) {
            jobs[i].status = status;
        }
        return status;
    }
    b.ctx = tci_ctx_of(b.about.ctx);
    char wrong[160];
    if (options && tci_options_are_wrong(options, wrong, sizeof(wrong))) {
        for (int i = 0; i < n; i++) {
            jobs[i].status = TC_ERR_ARGUMENT;
        }
        return tci_batch_fail(f, b.about, NULL, TC_ERR_ARGUMENT, "%s", wrong);
    }
    tc_options merged = tci_batch_options(b.ctx, options);
    if (exports) {
        jobs[0].n_forms = merged.vector_bits ? 0 : jobs[0].n_forms;
        merged = tci_batch_export_options(merged);
    }
    for (int i = 0; i < n; i++) {
        bool has_first = jobs[i].outputs.n > 0 && jobs[i].outputs.items;
        bool usable = has_first && jobs[i].outputs.items[0].ctx == b.about.ctx;
        jobs[i].about = usable ? jobs[i].outputs.items[0] : b.about;
    }
    b.f = f;
    b.options = &merged;
    b.exports = exports;
    b.jobs = jobs;
    b.n = n;
    return tci_batch_make_programs(&b);
}

TCI_FN tc_status tci_batch_export(const tci_frame *f, tci_batch_job *job, const tc_options *options,
                                  tci_batch_body exports)
{
    return tci_batch_compile_jobs(f, job, 1, options, exports);
}

/* The whole of a public call that compiles. */
static tc_status tci_batch_compile_call(const char *op, tc_site here, tci_batch_job *jobs, int n,
                                        const tc_options *options)
{
    tci_frame f = tci_frame_begin(op, here);
    tc_status status = tci_batch_compile_jobs(&f, jobs, n, options, NULL);
    tci_frame_leave(&f);
    return status;
}

TC_API tc_status tc_compile_at(tc_tensor y, tc_program **f, tc_site here)
{
    tci_batch_job job = {.outputs = {&y, 1}, .find_inputs = true, .program = f};
    return tci_batch_compile_call("tc_compile", here, &job, 1, NULL);
}

TC_API tc_status tc_compile_fn_at(tc_tensors inputs, tc_tensors outputs, const tc_options *options,
                                  tc_program **f, tc_site here)
{
    tci_batch_job job = {.inputs = inputs, .outputs = outputs, .program = f};
    return tci_batch_compile_call("tc_compile_fn", here, &job, 1, options);
}

TC_API tc_status tc_compile_many_at(tc_job *jobs, int n, const tc_options *options, tc_site here)
{
    if (n < 0 || (n && !jobs)) {
        return TC_ERR_ARGUMENT;
    }
    tci_batch_job *work = tci_heap_get(sizeof(*work) * (size_t)TCI_MAX(n, 1));
    for (int i = 0; i < n; i++) {
        jobs[i].status = TC_ERR_MEMORY;
        if (work) {
            work[i] = (tci_batch_job){.inputs = jobs[i].inputs,
                                      .outputs = jobs[i].outputs,
                                      .program = jobs[i].program};
        } else if (jobs[i].program) {
            *jobs[i].program = NULL;
        }
    }
    if (!work) {
        return TC_ERR_MEMORY;
    }
    tc_status status = TC_OK;
    if (n) {
        status = tci_batch_compile_call("tc_compile_many", here, work, n, options);
    }
    for (int i = 0; i < n; i++) {
        jobs[i].status = work[i].status;
    }
    tci_heap_free(work);
    return status;
}

TC_API void tc_program_free(tc_program *f)
{
    tci_program_release(f);
    tci_ctx_tidy();
}
