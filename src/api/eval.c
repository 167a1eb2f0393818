/* api/eval.c - compile, run, evaluate, read, look inside: the public calls of api/compile.h.
 *
 * In: handles, buffers. Out: programs, values at nodes; statuses, with the text in ctx->last (for a
 * run: in the program or the call).
 *
 * The one idea: every compile is a batch of jobs that goes through the same steps: make a request
 * of each (which finds mistakes), have all of them compiled at once, make a program of each. The
 * lazy form is a batch of one job without inputs, whose program runs once, into new memory that the
 * nodes then hold.
 *
 * Requests live in the batch's scratch. Every function that takes scratch memory is called through
 * tci_eval_armed, which sets the escape anew; nothing is taken outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../run/dynamic.h"
#include "frame.h"

/* ---- errors ---- */

/* Sets the context's error, "app.c:12: tc_compile: ... (the tensor was made at app.c:10)", so that
 * tc_error(about) tells it too. about: of a live context. made: where what it concerns was made, or
 * NULL. */
static tc_status tci_eval_fail(const tci_frame *f, tc_tensor about, const tc_site *made,
                               tc_status why, const char *format, ...) TCI_PRINTF(5, 6);
static tc_status tci_eval_fail(const tci_frame *f, tc_tensor about, const tc_site *made,
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

/* The live node of t. NULL: *status says why, as does the error of `about`, or of t where that has
 * no context. */
static tci_node *tci_eval_node(const tci_frame *f, tc_tensor about, tc_tensor t, tc_status *status)
{
    tci_node *n = tci_handle_node(t);
    if (TCI_LIKELY(n != NULL)) {
        return n;
    }
    tci_error e;
    *status = tci_handle_error(t, e.text, sizeof(e.text));
    tc_tensor on = about.ctx ? about : t;
    if (tci_ctx_of(on.ctx)) {
        tci_eval_fail(f, on, NULL, *status, "%s", e.text);
    }
    return NULL;
}

/* ---- options ---- */

/* Zero fields of `over` leave the context's choice. */
static tc_options tci_eval_options(const tci_ctx *ctx, const tc_options *over)
{
    tc_options o = ctx->options;
    if (!over) {
        return o;
    }
#define TCI_EVAL_TAKE(field)                                                                       \
    if (over->field) {                                                                             \
        o.field = over->field;                                                                     \
    }
    TCI_EVAL_TAKE(backend)
    TCI_EVAL_TAKE(math)
    TCI_EVAL_TAKE(fallback)
    TCI_EVAL_TAKE(threads)
    TCI_EVAL_TAKE(vector_bits)
    TCI_EVAL_TAKE(matrix)
    TCI_EVAL_TAKE(spin_us)
    TCI_EVAL_TAKE(cc)
    TCI_EVAL_TAKE(cc_timeout_s)
    TCI_EVAL_TAKE(cache_dir)
    TCI_EVAL_TAKE(cache_bytes)
    TCI_EVAL_TAKE(memory_cache_bytes)
    TCI_EVAL_TAKE(no_disk_cache)
    TCI_EVAL_TAKE(cache_read_only)
    TCI_EVAL_TAKE(verify)
    TCI_EVAL_TAKE(dump)
    TCI_EVAL_TAKE(dump_dir)
    TCI_EVAL_TAKE(trace)
    TCI_EVAL_TAKE(memory_limit)
#undef TCI_EVAL_TAKE
    if (over->log) {
        o.log = over->log;
        o.log_user = over->log_user;
    }
    if (over->parallel_for) {
        o.parallel_for = over->parallel_for;
        o.parallel_user = over->parallel_user;
    }
    return o;
}

/* ---- batches ---- */

typedef struct tci_eval_job {
    tc_tensors inputs, outputs;
    bool find_inputs;          /* inputs are the INPUT leaves in use, by creation */
    tc_program **program;
    tc_status status;
    tc_tensor about;           /* its first output */
    tc_site site;              /* where that was made */
    tci_request *request;
    tci_code *code;            /* counted */
} tci_eval_job;

typedef struct tci_eval_batch {
    const tci_frame *f;        /* the public call */
    tc_tensor about;           /* live: of its context, and what errors without a job concern */
    tci_ctx *ctx;              /* that context */
    const tc_options *options;
    tci_eval_job *jobs;
    int n;
    tci_scratch s;
    tci_request **requests;    /* of the jobs that have one, as tci_compile_requests takes them */
    tci_code **codes;
    tc_status *statuses;
    int n_requests;
    tc_status first;           /* of the first job that failed, */
    tc_tensor first_on;        /* what it concerned */
    tci_error first_error;     /* and its text; both set when `first` is */
} tci_eval_batch;

typedef tc_status (*tci_eval_body)(tci_eval_batch *b, tci_eval_job *job);

/* Runs `body` with the scratch armed; an escape becomes a status and a text. */
static tc_status tci_eval_armed(tci_eval_batch *b, tci_eval_job *job, tci_eval_body body)
{
    if (setjmp(b->s.escape)) {
        return tci_eval_fail(b->f, job ? job->about : b->about, job ? &job->site : NULL, b->s.why,
                             "%s", b->s.message);
    }
    return body(b, job);
}

/* The job failed and ctx->last tells why. Of many, the first keeps the last word. */
static void tci_eval_settle(tci_eval_batch *b, tci_eval_job *job, tc_status status)
{
    job->status = status;
    if (status && !b->first) {
        b->first = status;
        b->first_error = b->ctx->last;
        b->first_on = b->ctx->last_on;
    }
}

static tc_status tci_eval_get_lists(tci_eval_batch *b, tci_eval_job *none)
{
    (void)none;
    b->requests = TCI_NEW_ARRAY(&b->s, tci_request *, b->n);
    b->codes = TCI_NEW_ARRAY(&b->s, tci_code *, b->n);
    b->statuses = TCI_NEW_ARRAY(&b->s, tc_status, b->n);
    return TC_OK;
}

/* Nodes of a list of handles, all of the batch's context. */
static tc_status tci_eval_nodes(tci_eval_batch *b, const tci_eval_job *job, const tc_tensors *list,
                                tci_node **nodes)
{
    tc_status status = TC_OK;
    for (int i = 0; i < list->n && !status; i++) {
        nodes[i] = tci_eval_node(b->f, job->about, list->items[i], &status);
        if (nodes[i] && list->items[i].ctx != b->about.ctx) {
            status = tci_eval_fail(b->f, job->about, &nodes[i]->site, TC_ERR_HANDLE,
                                   "given tensors of two contexts, expected all from one");
        }
    }
    return status;
}

static tc_status tci_eval_check_job(tci_eval_batch *b, const tci_eval_job *job)
{
    if (!job->program) {
        return tci_eval_fail(b->f, job->about, NULL, TC_ERR_ARGUMENT,
                             "given NULL, expected a place for the program");
    }
    if (job->outputs.n < 1 || !job->outputs.items) {
        return tci_eval_fail(b->f, job->about, NULL, TC_ERR_ARGUMENT,
                             "given no outputs, expected at least one");
    }
    if (job->inputs.n < 0 || (job->inputs.n && !job->inputs.items)) {
        return tci_eval_fail(b->f, job->about, NULL, TC_ERR_ARGUMENT,
                             "given a list of %d inputs at %p", job->inputs.n,
                             (const void *)job->inputs.items);
    }
    return TC_OK;
}

static tc_status tci_eval_check_inputs(tci_eval_batch *b, const tci_eval_job *job,
                                       tci_node *const *inputs)
{
    for (int i = 0; i < job->inputs.n; i++) {
        if (inputs[i]->op != TCI_OP_INPUT) {
            return tci_eval_fail(
                b->f, job->about, &inputs[i]->site, TC_ERR_ARGUMENT,
                "input %d: given a tensor made by %s, expected a tc_input placeholder", i,
                tci_op_name(inputs[i]->op));
        }
    }
    return TC_OK;
}

/* Checks one job and makes its request. */
static tc_status tci_eval_request(tci_eval_batch *b, tci_eval_job *job)
{
    tc_status status = tci_eval_check_job(b, job);
    if (status) {
        return status;
    }
    tci_node **outputs = TCI_NEW_ARRAY(&b->s, tci_node *, job->outputs.n);
    status = tci_eval_nodes(b, job, &job->outputs, outputs);
    if (status) {
        return status;
    }
    job->site = outputs[0]->site;
    tci_node **inputs = NULL;
    if (!job->find_inputs) {
        inputs = TCI_NEW_ARRAY(&b->s, tci_node *, TCI_MAX(1, job->inputs.n));
        status = tci_eval_nodes(b, job, &job->inputs, inputs);
        if (!status) {
            status = tci_eval_check_inputs(b, job, inputs);
        }
        if (status) {
            return status;
        }
    }
    job->request = tci_request_make(&b->s, inputs, job->inputs.n, outputs, job->outputs.n,
                                    b->options, NULL, NULL);
    return TC_OK;
}

/* Compiles every job that has a request; each gets its code, counted, or its status. */
static void tci_eval_compile(tci_eval_batch *b)
{
    b->n_requests = 0;
    for (int i = 0; i < b->n; i++) {
        if (b->jobs[i].request) {
            b->requests[b->n_requests++] = b->jobs[i].request;
        }
    }
    if (!b->n_requests) {
        return;
    }
    tci_str log = {0};
    tci_compile_requests(&b->s, b->requests, b->n_requests, b->options, b->codes, b->statuses,
                         &log);
    for (int i = 0, r = 0; i < b->n; i++) {
        tci_eval_job *job = &b->jobs[i];
        if (!job->request) {
            continue;
        }
        tc_status status = b->statuses[r];
        job->code = b->codes[r++];
        if (!job->code) {
            const char *text = tci_str_text(&log);
            status = status ? status : TC_ERR_INTERNAL;
            tci_eval_fail(b->f, job->about, &job->site, status, "%s%s%s", tc_status_text(status),
                          *text ? ": " : "", text);
            tci_eval_settle(b, job, status);
        }
    }
    tci_str_free(&log);
}

static tc_status tci_eval_make_program(tci_eval_batch *b, tci_eval_job *job)
{
    tc_status status = tci_program_make(job->code, job->request, b->options, job->program);
    if (status == TC_ERR_LIMIT) {
        tci_eval_fail(
            b->f, job->about, &job->site, status,
            "the program needs %lld bytes of workspace, expected at most memory_limit = %lld",
            (long long)job->code->arena_bytes, (long long)b->options->memory_limit);
    } else if (status) {
        tci_eval_fail(b->f, job->about, &job->site, status, "%s", tc_status_text(status));
    }
#ifdef TC_DYNAMIC_SHAPES
    const char *untold = status ? NULL : tci_dynamic_untold(*job->program);
    if (untold) {
        tci_program_release(*job->program);
        *job->program = NULL;
        return tci_eval_fail(b->f, job->about, &job->site, TC_ERR_SHAPE,
                             "'%.60s' is the size of no axis of an input or output: no run could"
                             " tell it",
                             untold);
    }
#endif
    return status;
}

/* From checked handles to programs. A thread that is cancelled is so afterwards: others wait for
 * what it compiles. */
static tc_status tci_eval_make_programs(tci_eval_batch *b)
{
    int cancel = tci_os_no_cancel();
    tci_scratch_init(&b->s);
    b->first = tci_eval_armed(b, NULL, tci_eval_get_lists);
    if (b->first) {
        for (int i = 0; i < b->n; i++) {
            b->jobs[i].status = b->first;
        }
        tci_scratch_free(&b->s);
        tci_os_may_cancel(cancel);
        return b->first;
    }
    for (int i = 0; i < b->n; i++) {
        tci_eval_settle(b, &b->jobs[i], tci_eval_armed(b, &b->jobs[i], tci_eval_request));
    }
    tci_eval_compile(b);
    for (int i = 0; i < b->n; i++) {
        if (b->jobs[i].code) {
            tci_eval_settle(b, &b->jobs[i], tci_eval_make_program(b, &b->jobs[i]));
            tci_code_release(b->jobs[i].code);
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

/* The first live output of all jobs. False: there is none, *status says why. */
static bool tci_eval_find_live(const tci_frame *f, const tci_eval_job *jobs, int n, tc_tensor *live,
                               tc_status *status)
{
    static const tc_tensor nothing;
    *status = TC_ERR_ARGUMENT;
    for (int pass = 0; pass < 2; pass++) { /* only when none is live are the others asked why */
        for (int i = 0; i < n; i++) {
            const tc_tensors *out = &jobs[i].outputs;
            for (int j = 0; out->items && j < out->n; j++) {
                *live = out->items[j];
                if (pass == 0 && tci_handle_node(*live)) {
                    return true;
                }
                if (pass == 1) {
                    tci_eval_node(f, nothing, *live, status);
                    return false;
                }
            }
        }
    }
    return false;
}

static tc_status tci_eval_compile_jobs(const tci_frame *f, tci_eval_job *jobs, int n,
                                       const tc_options *options)
{
    tc_status status;
    tci_eval_batch b;
    for (int i = 0; i < n; i++) {
        if (jobs[i].program) {
            *jobs[i].program = NULL;
        }
    }
    if (!tci_eval_find_live(f, jobs, n, &b.about, &status)) {
        for (int i = 0; i < n; i++) {
            jobs[i].status = status;
        }
        return status;
    }
    b.ctx = tci_ctx_of(b.about.ctx);
    tc_options merged = tci_eval_options(b.ctx, options);
    for (int i = 0; i < n; i++) {
        bool has_first = jobs[i].outputs.n > 0 && jobs[i].outputs.items;
        bool usable = has_first && jobs[i].outputs.items[0].ctx == b.about.ctx;
        jobs[i].about = usable ? jobs[i].outputs.items[0] : b.about;
    }
    b.f = f;
    b.options = &merged;
    b.jobs = jobs;
    b.n = n;
    return tci_eval_make_programs(&b);
}

/* The whole of a public call that compiles. */
static tc_status tci_eval_compile_call(const char *op, tc_site here, tci_eval_job *jobs, int n,
                                       const tc_options *options)
{
    tci_frame f = tci_frame_begin(op, here);
    tc_status status = tci_eval_compile_jobs(&f, jobs, n, options);
    tci_frame_leave(&f);
    return status;
}

TC_API tc_status tc_compile_at(tc_tensor y, tc_program **f, tc_site here)
{
    tci_eval_job job = {.outputs = {&y, 1}, .find_inputs = true, .program = f};
    return tci_eval_compile_call("tc_compile", here, &job, 1, NULL);
}

TC_API tc_status tc_compile_fn_at(tc_tensors inputs, tc_tensors outputs, const tc_options *options,
                                  tc_program **f, tc_site here)
{
    tci_eval_job job = {.inputs = inputs, .outputs = outputs, .program = f};
    return tci_eval_compile_call("tc_compile_fn", here, &job, 1, options);
}

TC_API tc_status tc_compile_many_at(tc_job *jobs, int n, const tc_options *options, tc_site here)
{
    if (n < 0 || (n && !jobs)) {
        return TC_ERR_ARGUMENT;
    }
    tci_eval_job *work = tci_heap_get(sizeof(*work) * (size_t)TCI_MAX(n, 1));
    for (int i = 0; i < n; i++) {
        jobs[i].status = TC_ERR_MEMORY;
        if (work) {
            work[i] = (tci_eval_job){.inputs = jobs[i].inputs,
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
        status = tci_eval_compile_call("tc_compile_many", here, work, n, options);
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
}

/* ---- run ---- */

/* Keeps the text for tc_error(f), with the user's place in front; returns why. */
static tc_status tci_eval_record(tc_program *f, tc_status why, const char *op, tc_site here,
                                 const char *text)
{
    char name[480];
    if (here.file) {
        snprintf(name, sizeof(name), "%.400s:%d: %s", here.file, here.line, op);
        op = name;
    }
    tci_program_record(f, why, op, text);
    return why;
}

/* Why there is no call: a device may know more. */
static const char *tci_eval_no_workspace(const tc_program *f)
{
    const tc_backend *device = f->code->device;
    const char *why = device && device->last_error ? device->last_error(device->user) : NULL;
    return why && why[0] ? why : "out of memory: no workspace for one more call";
}

/* A run of symbolic sizes may have to compile; what computes in others is the pool's, which sets
 * the caller's floating-point environment aside by itself. */
static tc_status tci_eval_run(tc_call *c, tc_bufs inputs, tc_bufs outputs)
{
#ifdef TC_DYNAMIC_SHAPES
    if (c->dynamic) {
        tci_fpenv caller = tci_fpenv_enter();
        tc_status status = tci_call_run(c, inputs, outputs);
        tci_fpenv_leave(caller);
        return status;
    }
#endif
    return tci_call_run(c, inputs, outputs);
}

TC_API tc_status tc_run_at(tc_program *f, tc_bufs inputs, tc_bufs outputs, tc_site here)
{
    if (TCI_UNLIKELY(!f)) {
        return TC_ERR_ARGUMENT;
    }
    tc_call *c = tci_call_take(f);
    if (TCI_UNLIKELY(!c)) {
        return tci_eval_record(f, TC_ERR_MEMORY, "tc_run", here, tci_eval_no_workspace(f));
    }
    tc_status status = tci_eval_run(c, inputs, outputs);
    if (TCI_UNLIKELY(status != TC_OK)) {
        tci_eval_record(f, status, "tc_run", here, c->last.text);
    }
    tci_call_give(f, c);
    return status;
}

TC_API tc_status tc_call_make_at(tc_program *f, tc_call **call, tc_site here)
{
    if (call) {
        *call = NULL;
    }
    if (!f || !call) {
        return TC_ERR_ARGUMENT;
    }
    tc_call *c = tci_call_make(f);
    if (!c) {
        return tci_eval_record(f, TC_ERR_MEMORY, "tc_call_make", here, "out of memory");
    }
    tci_program_retain(f);
    *call = c;
    return TC_OK;
}

TC_API tc_status tc_run_call_at(tc_call *call, tc_bufs inputs, tc_bufs outputs, tc_site here)
{
    if (TCI_UNLIKELY(!call)) {
        return TC_ERR_ARGUMENT;
    }
    tc_status status = tci_eval_run(call, inputs, outputs);
    if (TCI_UNLIKELY(status != TC_OK && here.file)) {
        tci_error plain = call->last;
        snprintf(call->last.text, sizeof(call->last.text), "%.400s:%d: tc_run_call: %.512s",
                 here.file, here.line, plain.text);
    }
    return status;
}

TC_API void tc_call_free(tc_call *call)
{
    if (call) {
        tc_program *f = call->program;
        tci_call_free(call);
        tci_program_release(f);
    }
}

#ifdef TC_DYNAMIC_SHAPES

/* Into shape, which has room for the rank of the output. c: a call of f. */
static tc_status tci_eval_output_shape(tc_call *c, tc_bufs inputs, int output, int64_t *shape)
{
    const tci_code_port *port = &c->program->code->outputs[output];
    tc_bufs none = {NULL, c->program->n_outputs};
    if (inputs.n != c->program->n_inputs || (inputs.n && !inputs.items)) {
        return tci_call_check_lists(c, &inputs, &none);
    }
    if (c->program->dynamic) {
        return tci_dynamic_output(c, inputs, output, shape);
    }
    for (int i = 0; i < port->rank; i++) {
        shape[i] = port->shape[i];
    }
    return TC_OK;
}

/* The size of an axis of an output, or with axis NULL its number of elements. */
static int64_t tci_eval_output(tc_program *f, tc_bufs inputs, int output, const int *axis,
                               const char *op, tc_site here)
{
    if (!f) {
        return -1;
    }
    if (output < 0 || output >= f->n_outputs) {
        char text[96];
        snprintf(text, sizeof(text), "given output %d, expected 0 to %d", output, f->n_outputs - 1);
        tci_eval_record(f, TC_ERR_ARGUMENT, op, here, text);
        return -1;
    }
    int rank = f->code->outputs[output].rank, at = axis ? *axis + (*axis < 0 ? rank : 0) : 0;
    if (axis && (at < 0 || at >= rank)) {
        char text[96];
        snprintf(text, sizeof(text), "given axis %d of a tensor of rank %d", *axis, rank);
        tci_eval_record(f, TC_ERR_AXIS, op, here, text);
        return -1;
    }
    tc_call *c = tci_call_take(f);
    int64_t *shape = tci_heap_get(sizeof(*shape) * (size_t)TCI_MAX(rank, 1)), size = -1;
    if (!c || !shape) {
        tci_eval_record(f, TC_ERR_MEMORY, op, here, "out of memory");
    } else {
        tc_status status = tci_eval_output_shape(c, inputs, output, shape);
        size = status ? -1 : axis ? shape[at] : 1;
        for (int i = 0; i < rank && !axis && !status; i++) {
            size *= shape[i];
        }
        if (status) {
            tci_eval_record(f, status, op, here, c->last.text);
        }
    }
    tci_heap_free(shape);
    if (c) {
        tci_call_give(f, c);
    }
    return size;
}

TC_API int64_t tc_output_size_at(tc_program *f, tc_bufs inputs, int output, int axis, tc_site here)
{
    return tci_eval_output(f, inputs, output, &axis, "tc_output_size", here);
}

TC_API int64_t tc_output_count_at(tc_program *f, tc_bufs inputs, int output, tc_site here)
{
    return tci_eval_output(f, inputs, output, NULL, "tc_output_count", here);
}

#endif

/* ---- the lazy form ---- */

/* What one evaluation needs; the arrays are in the batch's scratch. */
typedef struct tci_eval_lazy {
    tci_eval_batch b;
    tci_eval_job job;
    /* of job.outputs, without those that hold a value and without repeats */
    tci_node **nodes;
    int n_nodes, n_values;     /* the nodes behind n_values are effects */
    tci_storage **values;      /* their new memory */
    tc_buf *bufs;
} tci_eval_lazy;

/* Marks keep a node from being listed twice; nothing can escape between setting and clearing
 * them. */
static void tci_eval_list_missing(tci_eval_lazy *w, tci_node *const *all, int n)
{
    for (int i = 0; i < n; i++) {
        if (!tci_node_is_value(all[i]) && !all[i]->mark) {
            all[i]->mark = 1;
            w->nodes[w->n_nodes++] = all[i];
        }
    }
    for (int i = 0; i < w->n_nodes; i++) {
        w->nodes[i]->mark = 0;
    }
}

/* A symbolic size gets its value from the inputs of a run: without any there is none. */
static tc_status tci_eval_check_sizes(const tci_eval_lazy *w, const tci_request *r)
{
    for (int i = 0; i < r->n_nodes; i++) {
        const tci_node *n = r->nodes[i];
        for (int d = 0; d < n->rank; d++) {
            if (!tci_dim_is_known(n->shape[d])) {
                return tci_eval_fail(w->b.f, w->job.about, &n->site, TC_ERR_SHAPE,
                                     "%s, the size of axis %d of a tensor made by %s, has no value "
                                     "before a run: compile it with an input of that size",
                                     TCI_DIM_TEXT(n->shape[d]), d, tci_op_name(n->op));
            }
        }
    }
    return TC_OK;
}

/* A tci_eval_body: b is the first member of the tci_eval_lazy. */
static tc_status tci_eval_lazy_request(tci_eval_batch *b, tci_eval_job *job)
{
    tci_eval_lazy *w = (tci_eval_lazy *)(void *)b;
    int n = job->outputs.n;
    tci_node **all = TCI_NEW_ARRAY(&b->s, tci_node *, n);
    w->nodes = TCI_NEW_ARRAY(&b->s, tci_node *, n);
    w->values = TCI_NEW_ARRAY(&b->s, tci_storage *, n);
    w->bufs = TCI_NEW_ARRAY(&b->s, tc_buf, n);
    tc_status status = tci_eval_nodes(b, job, &job->outputs, all);
    if (status) {
        return status;
    }
    tci_eval_list_missing(w, all, n);
    if (!w->n_nodes) {
        return TC_OK;
    }
    job->site = w->nodes[0]->site;
    b->requests = TCI_NEW_ARRAY(&b->s, tci_request *, 1);
    b->codes = TCI_NEW_ARRAY(&b->s, tci_code *, 1);
    b->statuses = TCI_NEW_ARRAY(&b->s, tc_status, 1);
    tci_request *r = tci_request_make(&b->s, NULL, 0, w->nodes, w->n_nodes, b->options, NULL, NULL);
    if (r->n_user_inputs) {
        const tci_node *input = r->inputs[0];
        return tci_eval_fail(b->f, job->about, &job->site, TC_ERR_ARGUMENT,
                             "the value needs '%.60s', a tc_input placeholder%s%.200s%s: compile "
                             "it and bind the input"
                             " with tc_run, or use tc_borrow or tc_copy_in",
                             input->name ? input->name : "", input->site.file ? " (made in " : "",
                             input->site.file ? input->site.file : "", input->site.file ? ")" : "");
    }
    status = tci_eval_check_sizes(w, r);
    if (status) {
        return status;
    }
    job->request = r;
    w->nodes = r->roots;
    w->n_values = r->n_roots - r->n_effects;
    return TC_OK;
}

static tc_status tci_eval_lazy_memory(tci_eval_lazy *w)
{
    const tci_code *code = w->job.code;
    for (int i = 0; i < w->n_values; i++) {
        w->values[i] = tci_storage_make(code->outputs[i].bytes);
        if (!w->values[i]) {
            return tci_eval_fail(w->b.f, w->job.about, &w->nodes[i]->site, TC_ERR_MEMORY,
                                 "out of memory: %lld bytes for the value",
                                 (long long)code->outputs[i].bytes);
        }
        w->bufs[i] = (tc_buf){.data = w->values[i]->data,
                              .n = code->outputs[i].n,
                              .dtype = code->outputs[i].dtype};
    }
    return TC_OK;
}

static tc_status tci_eval_lazy_run(tci_eval_lazy *w, tc_program *f)
{
    tc_status status = tci_eval_lazy_memory(w);
    tc_call *c = status ? NULL : tci_call_make(f);
    if (!status && !c) {
        status = tci_eval_fail(w->b.f, w->job.about, &w->job.site, TC_ERR_MEMORY,
                               "out of memory: workspace of a run");
    }
    if (!status) {
        tc_bufs none = {NULL, 0};
        tc_bufs outputs = {w->bufs, w->n_values};
        status = tci_call_run(c, none, outputs);
        if (status) {
            tci_eval_fail(w->b.f, w->job.about, &w->job.site, status, "%s", c->last.text);
        }
    }
    tci_call_free(c);
    for (int i = 0; i < w->n_values; i++) {
        if (status) {
            tci_storage_release(w->values[i]);
        } else {
            tci_storage_release(w->nodes[i]->storage); /* stale: it depends on a parameter */
            w->nodes[i]->storage = w->values[i];
        }
    }
    return status;
}

/* The first of ts is live. */
static tc_status tci_eval_lazily(const tci_frame *frame, tc_tensors ts)
{
    tci_eval_lazy w;
    tc_program *f = NULL;
    w.b.f = frame;
    w.b.about = ts.items[0];
    w.b.ctx = tci_ctx_of(ts.items[0].ctx);
    w.b.options = &w.b.ctx->options;
    w.b.jobs = &w.job;
    w.b.n = 1;
    w.b.first = TC_OK;
    w.job = (tci_eval_job){.outputs = ts, .about = ts.items[0], .find_inputs = true, .program = &f};
    w.n_nodes = w.n_values = 0;
    int cancel = tci_os_no_cancel();
    tci_scratch_init(&w.b.s);
    tc_status status = tci_eval_armed(&w.b, &w.job, tci_eval_lazy_request);
    if (!status && w.job.request) {
        tci_eval_compile(&w.b);
        status = w.job.status;
        if (!status) {
            status = tci_eval_make_program(&w.b, &w.job);
            tci_code_release(w.job.code); /* the program holds its own count */
        }
        if (!status) {
            status = tci_eval_lazy_run(&w, f);
            tci_program_release(f);
        }
    }
    tci_scratch_free(&w.b.s);
    tci_os_may_cancel(cancel);
    return status;
}

TCI_FN tc_status tci_eval_value(const tci_frame *f, tc_tensor t, tci_node **node)
{
    tc_status status = TC_OK;
    *node = tci_eval_node(f, t, t, &status);
    if (!*node || tci_node_is_value(*node)) {
        return status;
    }
    tc_tensors ts = {&t, 1};
    return tci_eval_lazily(f, ts);
}

TCI_FN tc_status tci_eval_hold(const tci_frame *f, tc_tensor t, tci_eval_memory *m)
{
    tc_status status = tci_eval_value(f, t, &m->node);
    if (status) {
        return status;
    }
    const tci_node *n = m->node;
    const void *data;
    if (!n->storage) {
        return tci_eval_fail(f, t, &n->site, TC_ERR_ARGUMENT,
                             "given an assign, which has no value: expected the parameter itself");
    }
    status = tci_param_hold(n->storage, &m->held, &data);
    if (status) {
        return tci_eval_fail(f, t, &n->site, status,
                             "the device that has the value failed, or memory ran out");
    }
    m->first = (const char *)data + n->offset * tci_dtype_get((tc_dtype)n->dtype)->bytes;
    return TC_OK;
}

TCI_FN void tci_eval_drop(const tci_eval_memory *m)
{
    tci_param_drop(m->node->storage, m->held);
}

TC_API tc_status tc_eval_at(tc_tensor t, tc_site here)
{
    tci_node *n;
    tci_frame f = tci_frame_begin("tc_eval", here);
    tc_status status = tci_eval_value(&f, t, &n);
    tci_frame_leave(&f);
    return status;
}

TC_API tc_status tc_eval_many_at(tc_tensors ts, tc_site here)
{
    tc_status status = TC_OK;
    if (ts.n < 0 || (ts.n && !ts.items)) {
        return TC_ERR_ARGUMENT;
    }
    tci_frame f = tci_frame_begin("tc_eval_many", here);
    for (int i = 0; i < ts.n && !status; i++) {
        tci_eval_node(&f, ts.items[i], ts.items[i], &status);
    }
    if (ts.n && !status) {
        status = tci_eval_lazily(&f, ts);
    }
    tci_frame_leave(&f);
    return status;
}

/* ---- reading ---- */

/* Copies axes [axis, rank) of a value to dense memory; returns the end of what was written. */
static char *tci_eval_copy_out(const tci_node *n, int axis, const char *from, char *to)
{
    size_t bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes;
    if (axis == n->rank) {
        memcpy(to, from, bytes);
        return to + bytes;
    }
    if (axis == n->rank - 1 && n->strides[axis] == 1) {
        size_t row = bytes * (size_t)n->shape[axis];
        memcpy(to, from, row);
        return to + row;
    }
    for (int64_t i = 0; i < n->shape[axis]; i++) {
        to = tci_eval_copy_out(n, axis + 1, from + i * n->strides[axis] * (int64_t)bytes, to);
    }
    return to;
}

static tc_status tci_eval_check_read(const tci_frame *f, tc_tensor t, const tci_node *n,
                                     const tc_buf *to)
{
    int64_t count = tci_node_count(n);
    const tci_dtype_info *info = tci_dtype_get((tc_dtype)n->dtype);
    if (to->is_const || (!to->data && count)) {
        return tci_eval_fail(f, t, &n->site, TC_ERR_BUFFER,
                             "given %s, expected memory for %lld %s",
                             to->data ? "a pointer to const" : "NULL", (long long)count,
                             info->name);
    }
    if (to->dtype != n->dtype && to->dtype != -1) {
        bool known = tci_dtype_is_valid(to->dtype);
        return tci_eval_fail(f, t, &n->site, TC_ERR_BUFFER,
                             "given memory of %s, expected %s",
                             known ? tci_dtype_get((tc_dtype)to->dtype)->name : "no known dtype",
                             info->name);
    }
    bool untyped = to->dtype == -1;
    int64_t expected = untyped ? count * info->bytes : count;
    if (to->n != expected) {
        return tci_eval_fail(f, t, &n->site, TC_ERR_BUFFER,
                             "given room for %lld %s, expected %lld", (long long)to->n,
                             untyped ? "bytes of untyped memory" : "elements",
                             (long long)expected);
    }
    return TC_OK;
}

static void tci_eval_read(const tci_eval_memory *m, void *to)
{
    const tci_node *n = m->node;
    int64_t bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes, count = tci_node_count(n);
    if (count && n->strides) {
        tci_eval_copy_out(n, 0, m->first, to);
    } else if (count) {
        memmove(to, m->first, (size_t)(bytes * count));
    }
}

TC_API tc_status tc_read_as_at(tc_tensor t, tc_buf to, tc_site here)
{
    tci_eval_memory m;
    tci_frame f = tci_frame_begin("tc_read", here);
    tc_status status = tci_eval_hold(&f, t, &m);
    if (!status) {
        status = tci_eval_check_read(&f, t, m.node, &to);
        if (!status) {
            tci_eval_read(&m, to.data);
        }
        tci_eval_drop(&m);
    }
    tci_frame_leave(&f);
    return status;
}

/* ---- look inside ---- */

TC_API const char *tc_program_error(const tc_program *f)
{
    return f ? tci_program_error_text((tc_program *)(uintptr_t)f) : "";
}

TC_API const char *tc_call_error(const tc_call *call)
{
    return call ? call->last.text : "";
}

TC_API const char *tc_source(const tc_program *f)
{
    return f ? tci_code_source(f->code) : "";
}

static void tci_eval_explain_times(const tc_program *f, FILE *out)
{
    const tc_times *t = &f->code->times;
    const char *found = f->from_memory ? "memory" : f->from_disk ? "disk" : NULL;
    if (found) {
        fprintf(out, "compile: found in the %s cache\n", found);
        return;
    }
    fprintf(out,
            "compile: %.2f ms = key %.2f + rewrite %.2f + plan %.2f + lower %.2f + emit %.2f + "
            "compiler %.2f"
            " + load %.2f\n",
            (double)t->total / 1e6, (double)t->key / 1e6, (double)t->rewrite / 1e6,
            (double)t->plan / 1e6, (double)t->lower / 1e6, (double)t->emit / 1e6,
            (double)t->compiler / 1e6, (double)t->load / 1e6);
}

TC_API tc_status tc_explain(const tc_program *f, FILE *out)
{
    if (!f || !out) {
        return TC_ERR_ARGUMENT;
    }
    tci_fpenv caller = tci_fpenv_enter();
#ifdef TC_DYNAMIC_SHAPES
    if (f->dynamic) {
        tci_dynamic_explain(f, out);
    }
#endif
    fputs(f->code->explain ? f->code->explain : "", out);
    tci_eval_explain_times(f, out);
    tci_fpenv_leave(caller);
    return ferror(out) ? TC_ERR_IO : TC_OK;
}

/* What a run of that code moves and takes. */
static void tci_eval_count_run(const tci_code *code, tc_program_info *info)
{
    int64_t moved = 0;
    for (int i = 0; i < code->n_steps; i++) {
        moved += code->kernels[code->steps[i].kernel].bytes;
        info->flops += code->kernels[code->steps[i].kernel].flops;
    }
    for (int i = 0; i < code->n_outputs; i++) { /* parameters too */
        info->bytes_written += code->outputs[i].bytes;
    }
    info->bytes_read = TCI_MAX(0, moved - info->bytes_written);
    info->arena_bytes = code->arena_bytes;
}

TC_API tc_status tc_program_get_info(const tc_program *f, tc_program_info *info)
{
    if (!f || !info) {
        return TC_ERR_ARGUMENT;
    }
    const tci_code *code = f->code;
    *info = (tc_program_info){.n_inputs = f->n_inputs,
                              .n_outputs = f->n_outputs,
                              .n_kernels = code->n_kernels,
                              .n_steps = code->n_steps,
                              .backend = code->backend,
                              .from_memory = f->from_memory,
                              .from_disk = f->from_disk};
#ifdef TC_DYNAMIC_SHAPES
    if (f->dynamic) {
        tci_code *last = tci_dynamic_last((tc_program *)(uintptr_t)f);
        if (last) {
            tci_eval_count_run(last, info);
            tci_code_release(last);
        }
        return TC_OK;
    }
#endif
    tci_eval_count_run(code, info);
    return TC_OK;
}

TC_API tc_status tc_compile_times(const tc_program *f, tc_times *times)
{
    if (!f || !times) {
        return TC_ERR_ARGUMENT;
    }
    *times = f->from_memory || f->from_disk ? (tc_times){0} : f->code->times;
    return TC_OK;
}
