/* compile/compile.c - compilation driver: runs every stage from graph to loaded code, in order, for
 * a batch of requests.
 *
 * In: requests (compile/cache_key.c). Out: reference-counted code for each, from memory, from disk,
 * or newly compiled.
 *
 * Design: tci_compile_batch calls every stage by name, in order, and nothing else sequences them:
 *
 *   graph -> rewrite -> plan (with its kernels) -> loop -> source -> compiler -> module -> code
 *
 * After each stage the driver verifies its IR (options.verify), dumps it (options.dump) and adds
 * its time. A stage longjmps by tci_scratch_fail when memory runs out or an invariant fails; the
 * one setjmp is tci_compile_guard. Stages own nothing outside the scratch arena of the batch, so
 * after a longjmp the whole batch is dropped.
 *
 * If native code is unavailable (no compiler, a failed build, an unsupported machine), the plan's
 * kernels are interpreted instead, unless the options forbid that. Interpreted code is kept in
 * memory only.
 *
 * Threads: a key is claimed (compile/memory_cache.c) before it is compiled. A caller first compiles
 * the keys that it claimed, then waits for those of other threads, so no two callers wait for each
 * other. */
#include <string.h>

#include "../base/env.h"
#include "../base/os.h"
#include "../debug/kernel_check.h"
#include "../debug/explain.h"
#include "../debug/recompile.h"
#include "../debug/profile.h"
#include "../kernel/specialize_sizes.h"
#include "../plan/fusion_groups.h"
#include "../rewrite/rewrite.h"
#include "autotune.h"
#include "compile.h"

#define TCI_COMPILE_COUNT(field) __atomic_add_fetch(&tci_counters_get()->field, 1, __ATOMIC_RELAXED)

enum { TCI_COMPILE_MEMORY_MB = 64 }; /* of the memory cache */

typedef tc_status (*tci_compile_stage)(tci_compile_batch_state *b, tci_compile_job *job);

/* Runs a stage; what it longjmps with becomes its status. */
static tc_status tci_compile_guard(tci_compile_batch_state *b, tci_compile_stage stage,
                                   tci_compile_job *job)
{
    if (setjmp(b->scratch.escape)) {
        tci_str_printf(b->log, "%s", b->scratch.message);
        return b->scratch.why;
    }
    return stage(b, job);
}

/* Ends one timed phase and begins the next. */
static int64_t tci_compile_lap(int64_t *since_ns, const char *phase)
{
    int64_t now_ns = tci_os_now_ns();
    int64_t lap_ns = now_ns - *since_ns;
    tci_profile_phase(phase, *since_ns, now_ns);
    *since_ns = now_ns;
    return lap_ns;
}

/* The job's code with what does not follow from a plan. */
static tci_code *tci_compile_begin_code(tci_compile_batch_state *b, tci_compile_job *job)
{
    const tci_request *r = job->request;
    job->code = tci_code_make();
    tci_code *c = job->code;
    if (!c) {
        tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory for a program");
    }
    c->key = tci_code_need(&b->scratch, c, (int64_t)r->key_bytes, 1);
    memcpy(c->key, r->key, r->key_bytes);
    c->key_bytes = r->key_bytes;
    c->hash = r->hash;
    c->compiler = r->compiler;
    c->n_symbols = r->n_symbols;
    c->symbols = tci_code_need(&b->scratch, c, r->n_symbols, sizeof(*c->symbols));
    for (int i = 0; i < r->n_symbols; i++) {
        c->symbols[i] = r->symbols[i];
    }
    return c;
}

/* ---- stages of one request ---- */

/* The request's graph for the stages that follow. */
static void tci_compile_copy(tci_compile_batch_state *b, tci_compile_job *job)
{
    const tci_request *r = job->request;
    if (TCI_UNLIKELY(r->engine != NULL)) {
        tci_code *c = tci_compile_begin_code(b, job);
        job->copy = tci_split_copy_graph(&b->scratch, c, r, &b->disk, &job->split);
    } else {
        job->copy = tci_request_copy_graph(&b->scratch, r, NULL);
    }
}

/* A job that is planned, with lines on measured routes (compile/autotune_routes.c). */
typedef struct tci_compile_planning {
    tci_compile_batch_state *b;
    tci_compile_job *job;
} tci_compile_planning;

static tci_plan *tci_compile_plan(void *arg, const char *measured)
{
    const tci_compile_planning *p = arg;
    const tci_request *r = p->job->request;
    tci_machine machine = tci_backend_machine(p->b->backend, p->b->options);
    machine.routes = tci_str_text(&p->b->jit.forced);
    machine.measured = measured;
    return tci_plan_make(&p->b->scratch, p->job->copy.graph, p->job->copy.inputs, r->n_inputs,
                         p->job->copy.literals, r->n_literals, p->job->roots, r->n_roots, machine);
}

static tc_status tci_compile_front(tci_compile_batch_state *b, tci_compile_job *job)
{
    tci_scratch *s = &b->scratch;
    tci_request *r = job->request;
    int64_t at = tci_os_now_ns();

    tci_compile_copy(b, job);
    if (b->verify) {
        tci_graph_verify(s, job->copy.roots, r->n_roots);
    }
    tci_compile_dump_graph(b, job, "graph", "graph.txt", job->copy.roots);
    tci_compile_dump_dot(b, job);
    job->times.key = tci_compile_lap(&at, "key");

    job->roots = tci_rewrite(s, job->copy.graph, job->copy.roots, r->n_roots);
    job->intact = tci_rewrite_intact(s, job->copy.graph, job->roots, r->n_roots);
    if (b->verify) {
        tci_graph_verify(s, job->roots, r->n_roots);
    }
    tci_compile_dump_graph(b, job, "rewrite", "rewrite.txt", job->roots);
    job->times.rewrite = tci_compile_lap(&at, "rewrite");

    tci_compile_planning planning = {b, job};
    const tci_tune_planner planner = {tci_compile_plan, &planning};
    job->plan = tci_compile_plan(&planning, NULL);
    if (b->options->tune_ms > 0 && b->backend->calls && !b->jit.exports && !b->jit.shows) {
        job->plan = tci_tune_routes(&b->jit, job->plan, &planner);
    }
    if (b->verify) {
        tci_plan_verify(s, job->plan);
        for (int i = 0; i < job->plan->n_kernels; i++) {
            tci_kernel_verify(s, job->plan->kernels[i]);
        }
    }
    tci_compile_dump_plan(b, job);
    job->times.plan = tci_compile_lap(&at, "plan");
    return TC_OK;
}

/* ---- stages of all requests of a batch together ---- */

static void tci_compile_find_kernels(tci_compile_batch_state *b)
{
    for (int i = 0; i < b->n_jobs; i++) {
        tci_compile_job *job = &b->jobs[i];
        int n = job->plan ? job->plan->n_kernels : 0;
        job->units = TCI_NEW_ARRAY(&b->scratch, int, n);
        for (int k = 0; k < n; k++) {
            const tci_kernel *kernel = job->plan->kernels[k];
            job->units[k] = tci_jit_takes(&b->jit, kernel) ? tci_jit_add(&b->jit, kernel) : -1;
        }
    }
    tci_jit_find(&b->jit);
}

static void tci_compile_write_source(tci_compile_batch_state *b, tc_times *times, int64_t *at)
{
    tci_jit_schedule(&b->jit, b->verify);
    tci_compile_dump_loops(b);
    times->lower = tci_compile_lap(at, "lower");

    tci_jit_emit(&b->jit);
    tci_compile_dump_source(b);
    times->emit = tci_compile_lap(at, "emit");
}

static tc_status tci_compile_back(tci_compile_batch_state *b, tci_compile_job *unused)
{
    tci_jit *jit = &b->jit;
    tc_times times = {0};
    int64_t at = tci_os_now_ns();
    (void)unused;

    tci_compile_find_kernels(b);
    times.load = tci_compile_lap(&at, "load");

    tc_status status = jit->n_missing ? tci_jit_find_compiler(jit, b->log) : TC_OK;
    if (jit->cancel && __atomic_load_n(jit->cancel, __ATOMIC_RELAXED)) {
        status = TC_ERR_CANCELLED;
    }
    if (status != TC_OK) {
        return status;
    }
    tci_tune(jit);
    tci_jit_tell_phase(jit, TC_PHASE_SOURCE);
    tci_compile_write_source(b, &times, &at);
    if (!jit->n_missing && b->disk.writable) { /* entries say which compiler is behind them */
        tci_str ignored = {.s = &b->scratch};
        (void)tci_jit_find_compiler(jit, &ignored);
    }
    status = tci_jit_compile(jit, b->log);
    if (tci_dump_wants(&b->jobs[0].dump, "source")) {
        tci_dump_file(&b->jobs[0].dump, "build.log", &jit->said);
    }
    times.compiler = tci_compile_lap(&at, "compiler");
    for (int i = 0; i < b->n_jobs; i++) {
        tc_times *t = &b->jobs[i].times;
        t->load = times.load;
        t->lower = times.lower;
        t->emit = times.emit;
        t->compiler = times.compiler;
    }
    return status;
}

/* The same for source that others compile: nothing is found, and each kernel is without function
 * or module. */
static tc_status tci_compile_export_back(tci_compile_batch_state *b, tci_compile_job *job)
{
    int64_t at = tci_os_now_ns();
    b->jit.compiler.vector_bytes = b->backend->target.vector_bytes; /* whoever it will be */
    tci_compile_find_kernels(b);
    tci_compile_write_source(b, &job->times, &at);
    for (int i = 0; i < b->jit.n_kernels; i++) {
        b->jit.kernels[i].found.record = tci_jit_record(&b->jit.kernels[i]);
    }
    return TC_OK;
}

/* ---- plan to code ---- */

static void *tci_compile_get(tci_compile_batch_state *b, tci_code *c, int64_t n, size_t item_bytes)
{
    return tci_code_need(&b->scratch, c, n, item_bytes);
}

static char *tci_compile_text(tci_compile_batch_state *b, tci_code *c, const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(tci_compile_get(b, c, (int64_t)n, 1), text, n);
}

/* Shape and origin of a buffer: those of its node; one axis where the layout pads or cuts it. */
static void tci_compile_fill_value(tci_compile_batch_state *b, const tci_buffer *from, tci_code *c,
                                   tci_code_buffer *to)
{
    const tci_node *n = from->node;
    bool same = n && tci_node_count(n) == from->n;
    to->dtype = from->dtype;
    to->rank = same ? n->rank : 1;
    to->shape = tci_compile_get(b, c, to->rank, sizeof(*to->shape));
    for (int d = 0; d < to->rank; d++) {
        to->shape[d] = same ? n->shape[d] : from->n;
    }
    to->origin = n ? (int32_t)n->region : 0;
}

static void tci_compile_fill_plan(tci_compile_batch_state *b, const tci_plan *p, tci_code *c)
{
    c->arena_bytes = p->arena_bytes;
    c->kept_bytes = p->kept_bytes;
    c->n_init = p->n_init;
    c->n_buffers = p->n_buffers;
    c->buffers = tci_compile_get(b, c, p->n_buffers, sizeof(*c->buffers));
    for (int i = 0; i < p->n_buffers; i++) {
        c->buffers[i].kind = p->buffers[i].kind;
        c->buffers[i].index = p->buffers[i].index;
        c->buffers[i].offset = p->buffers[i].index < 0 ? p->buffers[i].offset : 0;
        c->buffers[i].bytes = p->buffers[i].bytes;
        c->buffers[i].first = p->buffers[i].first;
        c->buffers[i].last = p->buffers[i].last;
        tci_compile_fill_value(b, &p->buffers[i], c, &c->buffers[i]);
    }
    c->n_aliases = p->n_aliases;
    c->aliases = tci_compile_get(b, c, p->n_aliases, sizeof(*c->aliases));
    for (int i = 0; i < p->n_aliases; i++) {
        c->aliases[i] = p->aliases[i];
    }
    c->n_steps = p->n_steps;
    c->steps = tci_compile_get(b, c, p->n_steps, sizeof(*c->steps));
    for (int i = 0; i < p->n_steps; i++) {
        const tci_step *from = &p->steps[i];
        const tci_kernel *k = p->kernels[from->kernel];
        tci_code_step *to = &c->steps[i];
        to->kernel = from->kernel;
        to->operands = tci_compile_get(b, c, k->n_operands, sizeof(*to->operands));
        to->offsets = tci_compile_get(b, c, k->n_operands, sizeof(*to->offsets));
        to->literals = tci_compile_get(b, c, k->n_literals, sizeof(*to->literals));
        for (int j = 0; j < k->n_operands; j++) {
            to->operands[j] = from->operands[j];
            to->offsets[j] = from->offsets[j];
        }
        for (int j = 0; j < k->n_literals; j++) {
            to->literals[j] = from->literals[j];
        }
        to->n_origins = from->n_origins;
        to->origins = tci_compile_get(b, c, from->n_origins, sizeof(*to->origins));
        for (int j = 0; j < from->n_origins; j++) {
            to->origins[j] = from->origins[j];
        }
    }
}

static void tci_compile_fill_repeats(tci_compile_batch_state *b, const tci_plan *p, tci_code *c)
{
    c->n_repeats = p->n_spans;
    c->repeats = tci_compile_get(b, c, p->n_spans, sizeof(*c->repeats));
    for (int i = 0; i < p->n_spans; i++) {
        const tci_span *from = &p->spans[i];
        tci_move *moves = tci_compile_get(b, c, from->n_moves, sizeof(*moves));
        for (int m = 0; m < from->n_moves; m++) {
            moves[m] = p->moves[from->first_move + m];
        }
        tci_turn *turns = tci_compile_get(b, c, from->n_turns, sizeof(*turns));
        for (int k = 0; k < from->n_turns; k++) {
            turns[k] = p->turns[from->first_turn + k];
        }
        c->repeats[i] = (tci_code_repeat){.enter = from->enter,
                                          .first = from->first,
                                          .last = from->last,
                                          .n_within = from->n_within,
                                          .rounds = from->rounds,
                                          .moves = moves,
                                          .n_moves = from->n_moves,
                                          .turns = turns,
                                          .n_turns = from->n_turns,
                                          .stops = from->stops};
    }
}

/* Index of m in the code's modules; takes a reference the first time. */
static int32_t tci_compile_module_index(tci_code *c, tci_module *m)
{
    for (int32_t i = 0; i < c->n_modules; i++) {
        if (c->modules[i] == m) {
            return i;
        }
    }
    tci_module_retain(m);
    c->modules[c->n_modules] = m;
    return c->n_modules++;
}

static void tci_compile_fill_native(tci_compile_batch_state *b, const tci_compile_job *job,
                                    tci_code *c)
{
    const tc_backend *calls = b->backend->calls;
    c->modules = tci_compile_get(b, c, job->plan->n_kernels, sizeof(tci_module *));
    for (int i = 0; i < c->n_kernels; i++) {
        if (job->units[i] < 0) {
            continue;
        }
        const tci_module_kernel *found = &b->jit.kernels[job->units[i]].found;
        tci_code_kernel *k = &c->kernels[i];
        k->symbol = tci_compile_text(b, c, found->record.symbol);
        k->note = tci_compile_text(b, c, found->record.note);
        k->n_tasks = found->record.n_tasks;
        tci_dim_need(&b->scratch, k->n_tasks, "the number of tasks of a kernel");
        tci_dim_need(&b->scratch, found->record.work_bytes, "the work memory of a kernel");
        k->task_ns = found->record.task_ns;
        k->call_ns = found->record.call_ns;
        k->work_bytes = found->record.work_bytes;
        k->n_dims = found->record.n_dims;
        k->dims = tci_compile_get(b, c, k->n_dims, sizeof(*k->dims));
        for (int j = 0; j < k->n_dims; j++) {
            k->dims[j] = found->record.dims[j];
        }
        if (found->module) {
            k->module = tci_compile_module_index(c, found->module);
            tci_code_set_function(c, k, calls, found->function);
        }
    }
}

/* Of the kernels of the init section, so that programs share what they compute. */
static void tci_compile_fill_identities(tci_compile_batch_state *b, const tci_compile_job *job,
                                        tci_code *c)
{
    for (int i = 0; i < c->n_init; i++) {
        tci_code_kernel *k = &c->kernels[c->steps[i].kernel];
        if (k->identity || k->call) {
            continue;
        }
        tci_str text = {.s = &b->scratch};
        tci_kernel_print(&text, job->plan->kernels[c->steps[i].kernel]);
        tci_str_printf(&text, "\n%s\n%s\n%s\n", b->backend->name, b->backend->target.features,
                       b->backend->target.record);
        k->identity = tci_compile_text(b, c, tci_str_text(&text));
        k->n_identity = (int32_t)text.n;
    }
}

#ifdef TC_DYNAMIC_SHAPES
static void *tci_compile_keep(void *code, size_t bytes)
{
    return tci_code_get(code, bytes);
}

/* A family's kernels are made ready, to be interpreted or checked, when their sizes are known. */
static bool tci_compile_fill_kernel(tci_compile_batch_state *b, tci_code *c, tci_code_kernel *k,
                                    const tci_kernel *from)
{
    if (!c->n_symbols) {
        return false;
    }
    k->kernel = tci_kernel_keep(tci_compile_keep, c, from);
    if (!k->kernel) {
        tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory for an interpreted kernel");
    }
    return true;
}
#else
#define tci_compile_fill_kernel(b, c, k, from) false
#endif

static void tci_compile_fill_interp(tci_compile_batch_state *b, const tci_compile_job *job,
                                    tci_code *c)
{
    for (int i = 0; i < c->n_kernels; i++) {
        const tci_kernel *from = job->plan->kernels[i];
        tci_code_kernel *k = &c->kernels[i];
        if (from->call) {
            continue;
        }
        k->symbol = tci_compile_text(b, c, from->name);
        k->note = tci_compile_text(b, c, "interpreted");
        if (tci_compile_fill_kernel(b, c, k, from)) {
            continue;
        }
        k->interp = tci_interp_make(from);
        if (!k->interp) {
            tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory for an interpreted kernel");
        }
        if (b->verify) {
            tci_interp_verify(&b->scratch, k->interp);
        }
        k->n_tasks = tci_interp_tasks(k->interp);
        int64_t work = tci_dim_known(tci_dim_max(from->flops, from->bytes)); /* one a nanosecond */
        k->task_ns = (double)work / (double)tci_dim_known(tci_dim_max(k->n_tasks, 1));
        c->interp_bytes = TCI_MAX(c->interp_bytes, (int64_t)tci_interp_workspace(k->interp));
    }
}

/* Description of a collective's step for tc_explain. */
static const char *tci_compile_collective(tci_compile_batch_state *b, const tci_custom_call *call)
{
    const tci_comm_step *s = &call->comm;
    const tc_custom_array *in = &call->arrays[0];
    tci_str text = {.s = &b->scratch};
    tci_str_printf(&text, "collective %d: %s%s%s of %s %s", (int)s->number,
                   tci_comm_verb_name(s->verb), tci_comm_verb_reduces(s->verb) ? " " : "",
                   tci_comm_verb_reduces(s->verb) ? tci_comm_how_name(s->how) : "",
                   TCI_DIM_TEXT((tci_dim)in->n), tc_dtype_name(in->dtype));
    tci_str_printf(&text, ", %s bytes from each of %d ranks of communicator %lld",
                   TCI_DIM_TEXT(tci_dim_mul((tci_dim)in->n, tc_dtype_size(in->dtype))),
                   (int)s->ranks, (long long)s->comm);
    return tci_str_text(&text);
}

/* A call of a split graph: what it computes is in the job's list. */
static void tci_compile_fill_split(tci_compile_batch_state *b, const tci_compile_job *job,
                                   tci_code_kernel *k, tci_code *c, tci_custom_call *call)
{
    const tci_split_call *row = &job->split.calls[call->split];
    int n_in = call->n_inputs;
    call->kind = (uint8_t)row->kind;
    call->engine = row->engine;
    call->n_more = row->n_results - 1;
    call->arrays = tci_compile_get(b, c, n_in + row->n_results, sizeof(*call->arrays));
    for (int i = 0; i < row->n_results; i++) {
        const tci_node *n = row->results[i];
        tci_dim count = 1;
        tc_custom_array *a = &call->arrays[n_in + i];
        *a = (tc_custom_array){.dtype = (tc_dtype)n->dtype, .rank = n->rank};
        a->sizes = tci_compile_get(b, c, n->rank, sizeof(*a->sizes));
        for (int d = 0; d < n->rank; d++) {
            a->sizes[d] = (int64_t)row->shapes[i][d];
            count = tci_dim_mul(count, row->shapes[i][d]);
        }
        a->n = (int64_t)count;
    }
    k->symbol = tci_compile_text(b, c, job->split.name);
    k->note = tci_compile_text(b, c, row->note);
}

/* A user function, or a step of a collective. */
static void tci_compile_fill_own(tci_compile_batch_state *b, const tci_compile_job *job,
                                 tci_code_kernel *k, tci_code *c, tci_custom_call *call)
{
    const bool joins = call->comm.phase != TCI_COMM_NONE;
    const char *together = joins ? tci_compile_collective(b, call) : NULL;
    call->arrays = tci_compile_get(b, c, call->n_inputs + 1, sizeof(*call->arrays));
    k->symbol = tci_compile_text(b, c,
                                 joins ? job->plan->kernels[k - c->kernels]->name
                                       : call->op->op.name);
    k->note = tci_compile_text(b, c,
                               joins       ? together
                               : c->device ? "a function of the user's, called by the host: "
                                             "operands are copied there, the result back; its text "
                                             "for the device would save that"
                                           : "a function of the user's");
}

/* Functions that the host calls, wherever kernels run. */
static void tci_compile_fill_calls(tci_compile_batch_state *b, const tci_compile_job *job,
                                   tci_code *c)
{
    const tc_backend *device = b->native && b->backend->calls->launch ? b->backend->calls : NULL;
    for (int i = 0; i < c->n_kernels; i++) {
        const tci_custom_call *from = job->plan->kernels[i]->call;
        if (!from || (b->native && job->units[i] >= 0)) {
            continue;
        }
        tci_custom_call *call = tci_compile_get(b, c, 1, sizeof(*call));
        *call = *from;
        c->device = device;
        (from->kind ? tci_compile_fill_split : tci_compile_fill_own)(b, job, &c->kernels[i], c,
                                                                     call);
        for (int a = 0; a < from->n_inputs + !from->kind; a++) {
            size_t bytes = sizeof(int64_t) * (size_t)from->arrays[a].rank;
            call->arrays[a] = from->arrays[a];
            call->arrays[a].sizes = tci_compile_get(b, c, (int64_t)bytes, 1);
            memcpy(call->arrays[a].sizes, from->arrays[a].sizes, bytes);
        }
        c->kernels[i].call = call;
        c->kernels[i].n_tasks = 1;
        c->calls = true;
    }
}

/* Source of a program: what this batch compiled, and where the kernels that were found come
 * from. */
static void tci_compile_fill_source(tci_compile_batch_state *b, tci_code *c)
{
    tci_str text = {.s = &b->scratch};
    for (int i = 0; i < b->jit.n_sources; i++) {
        tci_str_add_n(&text, b->jit.sources[i].text, b->jit.sources[i].n);
    }
    for (int i = 0; i < c->n_kernels && b->native; i++) {
        if (c->kernels[i].call) {
            continue;
        }
        const tci_module *m = c->modules[c->kernels[i].module];
        if (!strstr(tci_str_text(&text), c->kernels[i].symbol)) {
            tci_str_printf(&text, "/* %s: compiled before, in %s */\n", c->kernels[i].symbol,
                           m->path);
        }
    }
    c->source = tci_compile_text(b, c, tci_str_text(&text));
}

/* The only stage of a program of a graph-level backend. */
static tc_status tci_compile_engine(tci_compile_batch_state *b, tci_compile_job *job)
{
    const tci_request *r = job->request;
    int64_t at = tci_os_now_ns();
    job->copy = tci_request_copy_graph(&b->scratch, r, NULL);
    tci_compile_dump_graph(b, job, "graph", "graph.txt", job->copy.roots);
    job->times.key = tci_compile_lap(&at, "key");
    tci_code *c = tci_compile_begin_code(b, job);
    snprintf(c->backend, sizeof(c->backend), "%s", b->backend->name);
    tci_graph_program_make(&b->scratch, c, r, &job->copy, b->backend, &b->disk);
    job->times.compiler = tci_compile_lap(&at, "engine");
    c->times = job->times;
    if (b->verify) {
        tci_code_verify(&b->scratch, c);
    }
    tci_compile_dump_code(b, job);
    return TC_OK;
}

static tc_status tci_compile_finish(tci_compile_batch_state *b, tci_compile_job *job)
{
    const tci_request *r = job->request;
    tci_code *c = job->code ? job->code : tci_compile_begin_code(b, job); /* a split graph has it */
    c->exports = b->jit.exports;
    c->intact = job->intact;
    c->fallback = !b->native && (b->backend->calls || b->backend->fallback);
    snprintf(c->backend, sizeof(c->backend), "%s", b->native ? b->backend->name : "interp");
    tci_code_fill_ports(&b->scratch, c, r, &job->copy);
    tci_compile_fill_plan(b, job->plan, c);
    tci_compile_fill_repeats(b, job->plan, c);
    c->kernels = tci_compile_get(b, c, job->plan->n_kernels, sizeof(*c->kernels));
    c->n_kernels = job->plan->n_kernels;
    for (int i = 0; i < c->n_kernels; i++) {
        const tci_kernel *from = job->plan->kernels[i];
        c->kernels[i].flops = from->all_flops;
        c->kernels[i].bytes = from->all_bytes;
        c->kernels[i].n_operands = from->n_operands;
        c->kernels[i].n_literals = from->n_literals;
        c->kernels[i].faults = from->faults;
        c->kernels[i].is_loop = from->loop != NULL;
        c->kernels[i].rounds = from->loop ? from->loop->rounds : 0;
        c->kernels[i].go = from->loop && from->loop->stops >= 0
                               ? from->loop->carries[from->loop->stops].from.base
                               : -1;
        c->kernels[i].writes = tci_compile_get(b, c, from->n_operands, 1);
        for (int o = 0; o < from->n_operands; o++) {
            c->kernels[i].writes[o] = from->operands[o].is_output;
        }
    }
    tci_compile_fill_calls(b, job, c);
    if (b->native) {
        tci_compile_fill_native(b, job, c);
    } else {
        tci_compile_fill_interp(b, job, c);
    }
    for (int i = 0; i < c->n_kernels && b->options->check; i++) {
        tci_code_kernel *k = &c->kernels[i];
        const tci_kernel *from = job->plan->kernels[i];
        bool later = k->call || k->kernel || tci_compile_fill_kernel(b, c, k, from);
        if (!later && !tci_checker_prepare(c, k, from, b->options->check)) {
            tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory for a checked kernel");
        }
    }
    tci_compile_fill_source(b, c);
    tci_compile_fill_identities(b, job, c);
    if (!tci_code_list(c) || !tci_code_split_init(c)) {
        tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory for a program");
    }
    c->times = job->times;
    tci_str explain = {.s = &b->scratch};
    tci_explain_text(&explain, job->plan, c, b->why, job->split.text);
    c->explain = tci_compile_text(b, c, tci_str_text(&explain));
    if (b->verify) {
        tci_code_verify(&b->scratch, c);
    }
    tci_compile_dump_code(b, job);
    return TC_OK;
}

/* ---- the spine ---- */

/* Why native code was not had is known: interpret instead, or refuse. */
static tc_status tci_compile_fall_back(tci_compile_batch_state *b, tc_status why)
{
    bool about_compiler = why == TC_ERR_COMPILER || why == TC_ERR_IO || why == TC_ERR_BACKEND;
    if (!about_compiler || b->options->fallback == TC_FALLBACK_REFUSE) {
        return why == TC_ERR_IO ? TC_ERR_COMPILER : why;
    }
    tci_log(b->options, "compile", "interpreting instead of compiling: %s", tci_str_text(b->log));
    snprintf(b->why, sizeof(b->why), "%s", tci_str_text(b->log));
    b->log->n = 0;
    if (b->log->text) {
        b->log->text[0] = 0;
    }
    b->native = false;
    return TC_OK;
}

static void tci_compile_report(tci_compile_batch_state *b, const tci_compile_job *job)
{
    char hex[33];
    tci_hash_hex(job->request->hash, hex);
    const tci_code *c = job->code;
    tci_log(b->options, "compile",
            "%s%s%.8s: %d kernels for %s in %.2f ms (plan %.2f, source %.2f, compiler %.2f)",
            b->options->name ? b->options->name : "", b->options->name ? " " : "", hex,
            c->n_kernels, c->backend, (double)c->times.total / 1e6, (double)c->times.plan / 1e6,
            (double)(c->times.lower + c->times.emit) / 1e6, (double)c->times.compiler / 1e6);
}

/* Says where a program was found, or that it was not. */
static void tci_compile_say_found(const tc_options *o, const tci_request *r)
{
    static const char *const texts[] = {[TCI_FOUND_NOWHERE] = "not found: compiled anew",
                                        [TCI_FOUND_MEMORY] = "found in memory",
                                        [TCI_FOUND_DISK] = "found on disk"};
    char hex[33];
    if (tci_log_wants(o, "cache")) {
        tci_hash_hex(r->hash, hex);
        tci_log(o, "cache", "%.8s: %s", hex, texts[r->found]);
    }
}

/* Data of a request for debug/recompile.c; the graph's text is in the batch's scratch memory. */
static tci_recompile_asked tci_compile_asked(tci_compile_batch_state *b, tci_compile_job *job,
                                             tci_str *text)
{
    const tci_request *r = job->request;
    text->s = &b->scratch;
    if (r->n_nodes <= TCI_RECOMPILE_NODES || tci_log_wants(b->options, "recompiles")) {
        tci_graph_print(text, &b->scratch, r->roots, r->n_roots);
    }
    return (tci_recompile_asked){r->hash, r->call, r->site, r->ctx, text};
}

static tc_status tci_compile_say_why(tci_compile_batch_state *b, tci_compile_job *job)
{
    tci_str text = {0};
    tci_recompile_asked asked = tci_compile_asked(b, job, &text);
    tci_recompile_note(b->options, &asked, job->request->found == TCI_FOUND_DISK);
    return TC_OK;
}

/* The stance allows no compile: says what was asked for, and how it differs from what there is. */
static tc_status tci_compile_say_frozen(tci_compile_batch_state *b, tci_compile_job *job)
{
    tci_str text = {0};
    tci_recompile_asked asked = tci_compile_asked(b, job, &text);
    char hex[33];
    tci_hash_hex(asked.hash, hex);
    tci_str_printf(b->log, "program %.8s is in no cache: ", hex);
    tci_recompile_differs(b->log, &asked);
    return TC_OK;
}

/* Compiles jobs whose code is in no cache. */
static void tci_compile_batch(tci_compile_batch_state *b)
{
    int64_t begin_ns = tci_os_now_ns();
    tc_status back = TC_OK;
    bool failed = false;
    b->jit.progress.programs = b->n_jobs;
    tci_jit_tell_phase(&b->jit, TC_PHASE_PLAN);
    for (int i = 0; i < b->n_jobs; i++) {
        tci_compile_say_found(b->options, b->jobs[i].request);
        tci_compile_guard(b, tci_compile_say_why, &b->jobs[i]);
        tci_dump_begin(&b->jobs[i].dump, b->options);
        b->jobs[i].status = tci_compile_guard(
            b, b->backend->graph ? tci_compile_engine : tci_compile_front, &b->jobs[i]);
        if (b->jobs[i].status != TC_OK) {
            b->jobs[i].plan = NULL;
        }
    }
    b->native = b->backend->calls != NULL;
    if (b->native) {
        back = tci_compile_guard(b, tci_compile_back, NULL);
    } else if (b->backend->fallback) {
        tci_str_printf(b->log, "%s", b->backend->why);
        back = TC_ERR_COMPILER;
    }
    if (back != TC_OK) {
        back = tci_compile_fall_back(b, back);
    }
    for (int i = 0; i < b->n_jobs; i++) {
        tci_compile_job *job = &b->jobs[i];
        job->status = job->status != TC_OK ? job->status : back;
        if (job->status == TC_OK && !b->backend->graph) {
            job->status = tci_compile_guard(b, tci_compile_finish, job);
        }
        if (job->status != TC_OK) {
            failed = true;
            tci_code_release(job->code);
            job->code = NULL;
        } else {
            job->code->times.total = tci_os_now_ns() - begin_ns;
            tci_recompile_took(job->request->hash, job->code->times.total);
            TCI_COMPILE_COUNT(compiles);
            if (job->code->fallback) {
                TCI_COMPILE_COUNT(interpreted);
            }
            if (b->native && !b->options->check && !job->request->engine) {
                tci_disk_store_code(&b->disk, job->code, &b->jit.compiler);
            }
            tci_compile_report(b, job);
        }
        tci_dump_end(&job->dump);
    }
    tci_disk_evict(&b->disk, b->jit.written_bytes);
    tci_jit_tell_phase(&b->jit, failed || b->why[0] ? TC_PHASE_FAILED : TC_PHASE_DONE);
}

/* ---- requests ---- */

/* Claims what no other thread is compiling. Returns how many jobs are ours now. */
static int tci_compile_claim(tci_compile_job *jobs, int n, bool native)
{
    int ours = 0;
    for (int i = 0; i < n; i++) {
        tci_compile_job *job = &jobs[i];
        if (job->state != TCI_COMPILE_OPEN) {
            continue;
        }
        tci_claim_result result = tci_cache_claim(&job->claim, job->request, native, &job->code);
        if (result == TCI_CLAIM_FOUND) {
            job->state = TCI_COMPILE_DONE;
            job->request->found = TCI_FOUND_MEMORY;
            TCI_COMPILE_COUNT(memory_hits);
        } else if (result == TCI_CLAIM_OURS) {
            job->state = TCI_COMPILE_CLAIMED;
            ours++;
        }
    }
    return ours;
}

static void tci_compile_settle(const tc_options *o, tci_compile_job *job)
{
    int64_t cap = o->memory_cache_bytes ? TCI_MAX(o->memory_cache_bytes, (int64_t)1)
                                        : (int64_t)TCI_COMPILE_MEMORY_MB << 20;
    tci_cache_settle(&job->claim, job->status == TC_OK ? job->code : NULL, cap);
    job->state = TCI_COMPILE_DONE;
}

/* Where nothing can be compiled for this machine, or nothing stored, code for a lesser one
 * serves. */
static tc_status tci_compile_find_other(tci_compile_batch_state *b, tci_compile_job *job)
{
    const tc_backend *calls = b->backend->calls;
    tc_backend_compiler c;
    memset(&c, 0, sizeof(c));
    if (!b->disk.writable || calls->compiler(calls->user, b->options->cc, &c)) {
        job->code = tci_disk_load_for_other(&b->disk, &b->scratch, job->request, b->backend);
    }
    return TC_OK;
}

/* Disk first, then the spine, for all jobs that are claimed. */
static void tci_compile_claimed(const tc_options *o, const tci_backend *backend,
                                tci_compile_job *jobs, int n, tci_compile_job *misses, tci_str *log)
{
    tci_compile_batch_state *b = tci_heap_get(sizeof(*b));
    int n_misses = 0;
    if (b) {
        tci_scratch_init(&b->scratch);
        b->options = o;
        b->backend = backend;
        b->log = log;
        b->verify = o->verify;
        tci_disk_open(&b->disk, o);
    }
    for (int i = 0; i < n; i++) {
        tci_compile_job *job = &jobs[i];
        if (job->state != TCI_COMPILE_CLAIMED) {
            continue;
        }
        bool look = b && backend->calls && !(o->dump && o->dump[0]) && !o->check &&
                    !tci_env_int(TCI_ENV_KEEP, 0) && !job->request->engine && !job->request->anew;
        job->code = look ? tci_disk_load_code(&b->disk, job->request, backend->calls) : NULL;
        if (look && !job->code) {
            tci_compile_guard(b, tci_compile_find_other, job);
        }
        job->status = b ? TC_OK : TC_ERR_MEMORY;
        if (job->code) {
            job->request->found = TCI_FOUND_DISK;
            TCI_COMPILE_COUNT(disk_hits);
            tci_compile_say_found(o, job->request);
            tci_compile_guard(b, tci_compile_say_why, job);
        } else if (b && o->stance != TC_STANCE_COMPILE &&
                   !(backend->graph && o->stance == TC_STANCE_LATER)) {
            tci_compile_guard(b, tci_compile_say_frozen, job);
            job->status = TC_ERR_FROZEN;
        }
        if (job->code || job->status) {
            tci_compile_settle(o, job);
        } else {
            TCI_COMPILE_COUNT(misses);
            misses[n_misses++].request = job->request;
        }
    }
    if (!b) {
        return;
    }
    if (n_misses) {
        tci_jit_begin(&b->jit, &b->scratch, o, backend, &b->disk);
        b->jit.cancel = misses[0].request->cancel;
        b->jit.anew = misses[0].request->anew;
        b->jobs = misses;
        b->n_jobs = n_misses;
        tci_compile_batch(b);
        tci_jit_end(&b->jit);
    }
    for (int i = 0, m = 0; i < n; i++) {
        if (jobs[i].state == TCI_COMPILE_CLAIMED) {
            jobs[i].status = misses[m].status;
            jobs[i].code = misses[m++].code;
            tci_compile_settle(o, &jobs[i]);
        }
    }
    tci_disk_close(&b->disk);
    tci_scratch_free(&b->scratch);
    tci_heap_free(b);
}

/* Some of the requests are not in memory. */
static tc_status tci_compile_missing(tci_compile_job *jobs, tci_compile_job *misses, int n,
                                     const tc_options *o, const tci_backend *backend, tci_str *log)
{
    bool native = o->fallback == TC_FALLBACK_REFUSE;
    for (;;) {
        if (tci_compile_claim(jobs, n, native)) {
            memset(misses, 0, sizeof(*misses) * (size_t)n);
            tci_compile_claimed(o, backend, jobs, n, misses, log);
        }
        int open = 0;
        while (open < n && jobs[open].state == TCI_COMPILE_DONE) {
            open++;
        }
        if (open == n) {
            break;
        }
        tci_cache_wait(jobs[open].request);
    }
    tc_status first = TC_OK;
    for (int i = 0; i < n; i++) {
        first = first != TC_OK ? first : jobs[i].status;
    }
    return first;
}

static tc_status tci_compile_fail_all(int n, tc_status *statuses, tc_status why)
{
    for (int i = 0; i < n; i++) {
        statuses[i] = why;
    }
    return why;
}

TCI_FN tc_status tci_compile_requests(tci_scratch *s, tci_request **requests, int n,
                                      const tc_options *o, tci_code **codes, tc_status *statuses,
                                      tci_str *log)
{
    bool native = o->fallback == TC_FALLBACK_REFUSE;
    int n_found = 0;
    (void)s;
    for (int i = 0; i < n; i++) {
        codes[i] = requests[i]->anew ? NULL : tci_cache_find(requests[i], native);
        requests[i]->found = codes[i] ? TCI_FOUND_MEMORY : TCI_FOUND_NOWHERE;
        statuses[i] = TC_OK;
        n_found += codes[i] != NULL;
        if (codes[i]) {
            tci_compile_say_found(o, requests[i]);
            tci_recompile_hit(requests[i]->hash);
        }
    }
    __atomic_add_fetch(&tci_counters_get()->memory_hits, n_found, __ATOMIC_RELAXED);
    if (n_found == n) {
        return TC_OK;
    }
    const tci_backend *backend = tci_backend_pick(o);
    tci_compile_job *jobs = backend ? tci_heap_get(sizeof(*jobs) * 2 * (size_t)n) : NULL;
    if (!jobs) {
        for (int i = 0; i < n; i++) {
            tci_code_release(codes[i]);
            codes[i] = NULL;
        }
        if (!backend) {
            tci_backend_missing(log, o);
        }
        return tci_compile_fail_all(n, statuses, backend ? TC_ERR_MEMORY : TC_ERR_BACKEND);
    }
    const char *why = tci_log_wants(o, "compile") ? tci_backend_replaced(o) : NULL;
    if (why) {
        tci_log(o, "compile", "%s instead of %s: %s", backend->name, o->backend, why);
    }
    int n_jobs = 0;
    for (int i = 0; i < n; i++) {
        if (!codes[i]) {
            jobs[n_jobs++].request = requests[i];
        }
    }
    int64_t at = tci_os_now_ns();
    tc_status status = tci_compile_missing(jobs, jobs + n, n_jobs, o, backend, log);
    tci_compile_lap(&at, "compile"); /* around the phases; waits and the disk are in it too */
    for (int i = 0, j = 0; i < n; i++) {
        if (!codes[i]) {
            codes[i] = jobs[j].status == TC_OK ? jobs[j].code : NULL;
            statuses[i] = jobs[j++].status;
        }
    }
    tci_heap_free(jobs);
    return status;
}

/* ---- code for others ---- */

/* The backend with a target that follows from the width alone, not from this machine. */
static tci_backend tci_compile_export_target(const tci_backend *backend, int vector_bits)
{
    tci_backend own = *backend;
    tci_target *t = &own.target;
    t->vector_bytes = vector_bits >= 512   ? 64
                      : vector_bits >= 256 ? 32
                      : vector_bits >= 128 ? 16
                                           : 0;
    t->matrix_units = 0;
    t->has_pairs = t->unit_bytes = false;
    t->int_points = t->vector_bytes ? 2 : 0;
    snprintf(t->features, sizeof(t->features), "vectors of %d bytes", t->vector_bytes);
    return own;
}

TCI_FN tc_status tci_compile_export(tci_request *r, const tc_options *o, tci_code **code,
                                    tci_str *log)
{
    const tci_backend *backend = tci_backend_pick(o);
    *code = NULL;
    if (!backend || !backend->calls) {
        tci_str_printf(log, "%s", backend ? backend->why : "");
        if (!backend) {
            tci_backend_missing(log, o);
        }
        return TC_ERR_BACKEND;
    }
    tci_compile_batch_state *b = tci_heap_get(sizeof(*b));
    if (!b) {
        return TC_ERR_MEMORY;
    }
    tci_compile_job job = {.request = r};
    tci_backend own = tci_compile_export_target(backend, o->vector_bits);
    tci_scratch_init(&b->scratch);
    b->options = o;
    b->backend = &own;
    b->log = log;
    b->verify = o->verify;
    b->native = true;
    b->jobs = &job;
    b->n_jobs = 1;
    tci_jit_begin(&b->jit, &b->scratch, o, &own, &b->disk);
    b->jit.exports = true;
    tci_dump_begin(&job.dump, o);
    tc_status status = tci_compile_guard(b, tci_compile_front, &job);
    status = status ? status : tci_compile_guard(b, tci_compile_export_back, &job);
    status = status ? status : tci_compile_guard(b, tci_compile_finish, &job);
    tci_dump_end(&job.dump);
    if (status) {
        tci_code_release(job.code);
    } else {
        *code = job.code;
    }
    tci_jit_end(&b->jit);
    tci_scratch_free(&b->scratch);
    tci_heap_free(b);
    return status;
}

/* ---- texts of a program that exists ---- */

static tc_status tci_compile_show_back(tci_compile_batch_state *b, tci_compile_job *job)
{
    tci_str unused = {.s = &b->scratch};
    int64_t at = tci_os_now_ns();
    if (tci_jit_find_compiler(&b->jit, &unused)) {
        b->jit.compiler.vector_bytes = b->backend->target.vector_bytes;
    }
    tci_compile_find_kernels(b);
    tci_compile_write_source(b, &job->times, &at);
    return TC_OK;
}

static bool tci_compile_show_job(tci_compile_batch_state *b, tci_compile_job *job,
                                 const tci_code *code, tci_str *kernels, tci_str *loops,
                                 tci_str *source)
{
    bool ok = tci_compile_guard(b, tci_compile_front, job) == TC_OK &&
              job->plan->n_kernels == code->n_kernels;
    bool native = ok && b->native && tci_compile_guard(b, tci_compile_show_back, job) == TC_OK;
    for (int i = 0; ok && i < code->n_kernels; i++) {
        const tci_jit_kernel *k = native && job->units[i] >= 0 ? &b->jit.kernels[job->units[i]]
                                                               : NULL;
        tci_kernel_print(&kernels[i], job->plan->kernels[i]);
        if (k && k->loop) {
            tci_loop_print(&loops[i], k->loop);
        }
    }
    for (int i = 0; native && i < b->jit.n_sources; i++) {
        tci_str_add_n(source, b->jit.sources[i].text, b->jit.sources[i].n);
    }
    return ok;
}

/* The request that a key is of; NULL: it is not understood. */
static tci_request *tci_compile_request_of(tci_scratch *s, const tci_code *code, size_t key_graph,
                                           const tc_options *o, const tci_backend *backend)
{
    tci_key_graph g;
    if (setjmp(s->escape)) {
        return NULL;
    }
    if (!tci_key_read(s, code->key, code->key_bytes, key_graph, NULL, 0, &g)) {
        return NULL;
    }
    return tci_request_make(s, g.nodes, g.n_inputs, g.roots, g.n_roots, o, backend->name,
                            &backend->target);
}

TCI_FN bool tci_compile_show(const tci_code *code, size_t key_graph, const tc_options *o,
                             tci_str *kernels, tci_str *loops, tci_str *source)
{
    tc_options own = *o;
    own.backend = code->backend;
    const tci_backend *backend = key_graph ? tci_backend_pick(&own) : NULL;
    tci_compile_batch_state *b = backend && !backend->graph ? tci_heap_get(sizeof(*b)) : NULL;
    if (!b) {
        return false;
    }
    tci_str log = {0};
    tci_scratch_init(&b->scratch);
    tci_compile_job job = {
        .request = tci_compile_request_of(&b->scratch, code, key_graph, &own, backend)};
    b->options = &own;
    b->backend = backend;
    b->log = &log;
    b->native = backend->calls != NULL;
    b->jobs = &job;
    b->n_jobs = 1;
    tci_jit_begin(&b->jit, &b->scratch, &own, backend, &b->disk);
    b->jit.shows = true;
    bool ok = job.request && tci_compile_show_job(b, &job, code, kernels, loops, source);
    tci_jit_end(&b->jit);
    tci_scratch_free(&b->scratch);
    tci_str_free(&log);
    tci_heap_free(b);
    return ok;
}

#undef TCI_COMPILE_COUNT
#ifndef TC_DYNAMIC_SHAPES
#undef tci_compile_fill_kernel
#endif
