/* run/program.c - programs: compiled code together with the values and memory that one compile
 * captured.
 *
 * In: code (shared, immutable) and the request that led to it. Out: a tc_program, usable from any
 * thread and independent of its context.
 *
 * Design: everything that a run needs is precomputed here. The literal words of every kernel are
 * laid out as the kernel reads them, each launch knows whether threads pay off, and the operand
 * pointers of a call are split into those that never change (temporaries, captured leaves) and
 * those in `binds`, which each run updates. Results of the init section are kept with the program
 * (run/init_cache.c). A program is one heap block, so lazy evaluation (tc_eval) creates and frees
 * one at the cost of a malloc.
 *
 * Lifetime: reference-counted. tc_program_free drops the user's reference, a tc_call holds another.
 */
#include <pthread.h>
#include <stdio.h>

#include "../base/alloc.h"
#include "../debug/string_intern.h"
#include "../debug/source_location.h"
#include "device_memory.h"
#include "shape_instances.h"
#include "async_compile.h"

enum { TCI_PROGRAM_ERRORS = 16 }; /* texts of threads that are kept without a look at who lives */

/* A part below this is not worth a thread of its own; an interpreted task takes about this many
 * times the estimate, which is made for native code. */
#define TCI_PROGRAM_PART_NS 10000.0
#define TCI_PROGRAM_SLICE_NS 1e6   /* an in-kernel loop runs for so long before the host looks up */
#define TCI_PROGRAM_TAKE_NS 5000.0 /* what a thread takes at a time is worth so much, at least, */
#define TCI_PROGRAM_CALLS 256.0    /* and this many times the overhead of a call, over the square */
#define TCI_PROGRAM_CALLS_LEAST 4.0 /* of the threads, as the slowest of many is far behind */
#define TCI_PROGRAM_INTERP_FACTOR 8.0

/* ---- layout of the block ---- */

typedef struct tci_program_sizes {
    int n_inputs, n_outputs, n_captured, n_params, n_effects, n_steps;
    size_t n_slots, n_literal_words, n_binds, n_param_binds, n_kept_binds, n_moves;
    tci_index_room index; /* counted, then laid out */
    tci_port_room ports;  /* the same */
    int n_origins;
} tci_program_sizes;

static bool tci_program_is_user_buffer(const tci_code *code, int n_inputs, int n_outputs,
                                       int buffer)
{
    const tci_code_buffer *b = &code->buffers[buffer];
    return (b->kind == TCI_BUF_OUTPUT && b->index < n_outputs) ||
           (b->kind == TCI_BUF_INPUT && b->index < n_inputs);
}

/* All but n_outputs, n_steps and the sizes that follow are set. Binds of parameters: the most there
 * can be. */
static void tci_program_measure(const tci_code *code, tci_program_sizes *sizes)
{
    sizes->n_outputs = code->n_outputs - sizes->n_effects;
    sizes->n_steps = code->n_symbols ? 0 : code->n_steps;
    for (int i = 0; i < code->n_repeats && sizes->n_steps; i++) {
        sizes->n_moves += (size_t)code->repeats[i].n_moves;
    }
    for (int i = 0; i < sizes->n_steps; i++) {
        const tci_code_step *step = &code->steps[i];
        const tci_code_kernel *kernel = &code->kernels[step->kernel];
        sizes->n_slots += (size_t)kernel->n_operands + (tci_dim_known(kernel->work_bytes) > 0);
        sizes->n_literal_words += (size_t)kernel->n_literals + (kernel->is_loop ? 2 : 0);
        for (int j = 0; j < kernel->n_operands; j++) {
            bool user = tci_program_is_user_buffer(code, sizes->n_inputs, sizes->n_outputs,
                                                   step->operands[j]);
            uint8_t kind = code->buffers[step->operands[j]].kind;
            bool is_port = kind == TCI_BUF_INPUT || kind == TCI_BUF_OUTPUT;
            sizes->n_binds += user;
            sizes->n_param_binds += !user && is_port && sizes->n_params > 0;
            sizes->n_kept_binds += kind == TCI_BUF_KEPT;
        }
    }
}

/* Takes n items from the block at *at; with block NULL only counts the bytes. */
static void *tci_program_carve(char *block, size_t *at, size_t n, size_t item_bytes)
{
    void *p = block ? block + *at : NULL;
    *at += (n * item_bytes + 15) & ~(size_t)15;
    return p;
}

static size_t tci_program_lay_out(tc_program *f, const tci_code *code, tci_program_sizes *sizes,
                                  int64_t **literal_words)
{
    char *block = (char *)f;
    tc_program unused;
    tc_program *p = f ? f : &unused;
    size_t at = 0;
    tci_program_carve(block, &at, 1, sizeof(tc_program));
    p->steps = tci_program_carve(block, &at, (size_t)sizes->n_steps, sizeof(tci_run_step));
    p->repeats = tci_program_carve(block, &at, (size_t)code->n_repeats, sizeof(tci_run_repeat));
    p->moves = tci_program_carve(block, &at, sizes->n_moves, sizeof(tci_run_move));
    p->binds = tci_program_carve(block, &at, sizes->n_binds, sizeof(tci_run_bind));
    p->aliases = tci_program_carve(block, &at, (size_t)code->n_aliases, sizeof(tci_alias));
    p->literals = tci_program_carve(block, &at, (size_t)code->n_literals, sizeof(int64_t));
    *literal_words = tci_program_carve(block, &at, sizes->n_literal_words, sizeof(int64_t));
    p->captured = tci_program_carve(block, &at, (size_t)sizes->n_captured, sizeof(tci_storage *));
    p->captured_data = tci_program_carve(block, &at, (size_t)sizes->n_captured, sizeof(void *));
    p->params = tci_program_carve(block, &at, (size_t)sizes->n_params, sizeof(tci_run_param));
    p->effects = tci_program_carve(block, &at, (size_t)sizes->n_effects, sizeof(tci_run_effect));
    p->param_binds = tci_program_carve(block, &at, sizes->n_param_binds, sizeof(tci_run_bind));
    p->kept_binds = tci_program_carve(block, &at, sizes->n_kept_binds, sizeof(tci_init_cache_bind));
    size_t n_once = code->n_init ? (size_t)sizes->n_captured : 0;
    p->once = tci_program_carve(block, &at, n_once, sizeof(int32_t));
    tci_index_room *index = &sizes->index;
    index->reads = tci_program_carve(block, &at, (size_t)index->n_reads, sizeof(tci_index_read));
    index->words = tci_program_carve(block, &at, index->n_words, sizeof(int64_t));
    index->text = tci_program_carve(block, &at, index->n_text, 1);
    tci_port_room *ports = &sizes->ports;
    ports->ports = tci_program_carve(block, &at, (size_t)ports->n_ports, sizeof(tc_port));
    ports->sizes = tci_program_carve(block, &at, ports->n_sizes, sizeof(int64_t));
    ports->text = tci_program_carve(block, &at, ports->n_text, 1);
    size_t n_origins = (size_t)sizes->n_origins;
    p->origins = tci_program_carve(n_origins ? block : NULL, &at, n_origins, sizeof(tci_origin));
    return at;
}

/* ---- what was captured ---- */

TCI_FN int64_t tci_program_lowest(const tci_node *n)
{
    int64_t lowest = n->offset;
    for (int i = 0; n->strides && i < n->rank; i++) {
        if (tci_dim_known(n->strides[i]) < 0 && tci_dim_known(n->shape[i]) > 1) {
            lowest += tci_dim_known(n->strides[i]) * (tci_dim_known(n->shape[i]) - 1);
        }
    }
    return lowest * tci_dtype_get(n->dtype)->bytes;
}

static void tci_program_capture(tc_program *f, const tci_request *r)
{
    for (int i = 0; i < r->n_literals; i++) {
        f->literals[i] = r->literals[i]->value.i;
    }
    for (int i = 0; i < r->n_captured; i++) {
        f->captured[i] = r->captured[i]->storage;
        void *data = f->captured[i]->param ? NULL : f->captured[i]->data;
        f->captured_data[i] = tci_run_at(data, tci_program_lowest(r->captured[i]));
        tci_storage_retain(f->captured[i]);
    }
    for (int i = 0; i < r->n_effects; i++) {
        f->effects[i].captured = r->effects[i];
    }
}

/* Fills the list of index reads, which were counted before, in the program's block. */
static void tci_program_list_reads(tc_program *f, const tci_request *r, const tci_index_room *room)
{
    tci_index_room filled = {.reads = room->reads, .words = room->words, .text = room->text};
    if (room->n_reads) {
        tci_index_list(r, &filled);
    }
    f->reads = filled.reads;
    f->n_reads = filled.n_reads;
}

/* The same of its inputs and outputs. */
static void tci_program_list_ports(tc_program *f, const tci_request *r, const tci_port_room *room)
{
    tci_port_room filled = {.ports = room->ports, .sizes = room->sizes, .text = room->text};
    tci_port_list(r, &filled);
    f->ports = filled.ports;
}

/* A run that fails midway, or calls the host's own code on the way, has to leave the old value:
 * there new values are kept apart, unless a run that meets an index outside computes old ones. */
static bool tci_program_is_simple(const tc_program *f)
{
    bool holds = !f->faults || f->code->intact;
    return holds && !f->options.check &&
           (f->code->device ? f->code->device->alloc != NULL : f->options.parallel_for == NULL);
}

/* A run may be cancelled before any step of a loop, and fail in any of a collective: none may
 * follow the first launch that writes the new value. The slots of launches ascend. */
static bool tci_program_is_last(const tc_program *f, int effect)
{
    int end = 0;
    if (f->collectives && (f->code->n_symbols || f->code->n_repeats)) { /* instances are asked */
        return false;
    }
    for (int i = 0; i < f->code->n_steps && f->collectives; i++) {
        const tci_custom_call *call = f->steps[i].call;
        end = call && call->comm.phase ? i + 1 : end;
    }
    for (int i = 0; i < f->code->n_repeats; i++) {
        end = TCI_MAX(end, f->code->repeats[i].last);
    }
    for (int i = 0; i < f->code->n_steps && !f->code->n_symbols; i++) {
        end = f->steps[i].slice ? TCI_MAX(end, i + 1) : end;
    }
    for (int i = 0; end && i < f->n_param_binds; i++) {
        const tci_run_bind *b = &f->param_binds[i];
        int first_slot = end < f->code->n_steps ? f->steps[end].first_slot : f->n_slots;
        if (b->arg == f->n_params + effect && b->slot < first_slot) {
            return false;
        }
    }
    return true;
}

static bool tci_program_over_old(const tc_program *f, int output, int captured)
{
    if (!tci_program_is_simple(f) || !tci_program_is_last(f, output - f->n_outputs)) {
        return false;
    }
    for (int i = 0; i < f->n_captured; i++) { /* another view of the same parameter */
        if (i != captured && f->captured[i] == f->captured[captured]) {
            return false;
        }
    }
    for (int i = 0; i < f->code->n_aliases; i++) {
        tci_alias a = f->code->aliases[i];
        if (a.output == output && a.input == f->n_inputs + captured) {
            return true;
        }
    }
    return false;
}

static int tci_program_effect_on(const tc_program *f, int captured)
{
    int e = f->n_effects - 1;
    while (e >= 0 && f->effects[e].captured != captured) {
        e--;
    }
    return e;
}

/* Called after captured leaves and effects are listed. */
static void tci_program_list_params(tc_program *f)
{
    for (int i = 0; i < f->n_captured; i++) {
        if (f->captured[i]->param) {
            int e = tci_program_effect_on(f, i);
            if (e >= 0) {
                f->effects[e].param = f->n_params;
            }
            f->params[f->n_params++] = (tci_run_param){i, e};
        }
    }
}

/* The first step that writes over an old value. */
static int tci_program_first_over(const tc_program *f)
{
    int first = f->code->n_steps;
    for (int i = 0; i < f->n_param_binds; i++) {
        const tci_run_bind *b = &f->param_binds[i];
        const int effect = b->arg - f->n_params;
        if (effect >= 0 && f->effects[effect].over_old) {
            int step = f->code->n_steps - 1;
            while (step > 0 && f->steps[step].first_slot > b->slot) {
                step--;
            }
            first = TCI_MIN(first, step);
        }
    }
    return first;
}

/* Called after it is known whether anything faults. */
static void tci_program_place_effects(tc_program *f)
{
    for (int i = 0; i < f->n_effects; i++) {
        tci_run_effect *e = &f->effects[i];
        e->bytes = tci_dim_known(f->code->outputs[f->n_outputs + i].bytes);
        e->over_old = tci_program_over_old(f, f->n_outputs + i, e->captured);
    }
    f->commit = f->collectives ? tci_program_first_over(f) : f->code->n_steps;
}

/* ---- what a run does ---- */

static int tci_program_choose_threads(const tci_code_kernel *kernel, int64_t n_tasks, int available)
{
    double ns = (double)tci_dim_known(kernel->n_tasks) * kernel->task_ns;
    if (!kernel->fn) {
        ns *= TCI_PROGRAM_INTERP_FACTOR;
    }
    if (available <= 1 || n_tasks <= 1 || !(ns > 2 * TCI_PROGRAM_PART_NS)) {
        return 1;
    }
    double parts = ns / TCI_PROGRAM_PART_NS;
    int64_t most = TCI_MIN((int64_t)available, n_tasks);
    return parts < (double)most ? (int)parts : (int)most;
}

/* Tasks that are worth being taken by themselves. A thread that calls several times can be helped
 * by others when it is slow, but each call has an overhead (it packs columns anew). Of two
 * threads one is rarely far behind; of sixteen on CPUs that are shared with strangers some
 * took twice as long as others for as many tasks. */
static int64_t tci_program_least(const tci_code_kernel *kernel, int64_t n_tasks, int threads)
{
    double ns = kernel->fn ? kernel->task_ns : kernel->task_ns * TCI_PROGRAM_INTERP_FACTOR;
    double calls = TCI_PROGRAM_CALLS / ((double)threads * threads);
    double overhead = TCI_MAX(calls, TCI_PROGRAM_CALLS_LEAST) * kernel->call_ns;
    double wanted = TCI_MAX(overhead, TCI_PROGRAM_TAKE_NS);
    int64_t part = n_tasks / threads;
    return wanted < ns * (double)part ? TCI_MAX((int64_t)(wanted / ns), 1) : part;
}

/* Of an in-kernel loop: rounds, and how many of them take about TCI_PROGRAM_SLICE_NS. */
static void tci_program_fill_loop(const tci_code_kernel *kernel, bool device, tci_run_step *step)
{
    step->go = kernel->go;
    if (!kernel->is_loop) {
        return;
    }
    step->rounds = tci_dim_known(kernel->rounds);
    double each = kernel->fn ? 1 : TCI_PROGRAM_INTERP_FACTOR;
    each *= device ? kernel->task_ns / (double)TCI_MAX(step->rounds, (int64_t)1) : kernel->task_ns;
    int64_t slice = TCI_MAX((int64_t)(TCI_PROGRAM_SLICE_NS / TCI_MAX(each, 1.0)), (int64_t)1);
    step->slice = step->go >= 0 || step->rounds > slice ? slice : 0;
    step->threads = step->slice ? 0 : 1;
}

/* For tci_run_bind: which parameter or effect the buffer, none of the user's, is; -1: neither. */
static int32_t tci_program_param_arg(const tc_program *f, const tci_code_buffer *b)
{
    if (b->kind == TCI_BUF_OUTPUT) {
        return f->n_params + b->index - f->n_outputs;
    }
    int low = 0, high = b->kind == TCI_BUF_INPUT ? f->n_params : 0, wanted = b->index - f->n_inputs;
    while (low < high) { /* they ascend */
        int middle = low + (high - low) / 2;
        if (f->params[middle].captured == wanted) {
            return middle;
        }
        *(f->params[middle].captured < wanted
              ? &low
              : &high) = middle + (f->params[middle].captured < wanted);
    }
    return -1;
}

/* An operand of a launch, at that offset of buffer b, has no memory that a run or a parameter gives
 * it. */
static void tci_program_note_kept(tc_program *f, const tci_code_buffer *b, int64_t offset,
                                  bool is_init)
{
    if (b->kind == TCI_BUF_KEPT) {
        const tci_init_cache_place *place = &f->code->kept_places[b - f->code->buffers];
        f->kept_binds[f->n_kept_binds++] = (tci_init_cache_bind){place->offset + offset, f->n_slots,
                                                                 place->unit};
    }
    bool known = !is_init || b->kind != TCI_BUF_INPUT;
    for (int i = 0; i < f->n_once && !known; i++) {
        known = f->once[i] == b->index - f->n_inputs;
    }
    if (!known) {
        f->once[f->n_once++] = b->index - f->n_inputs;
    }
}

static void tci_program_fill_steps(tc_program *f, int n_steps, int64_t *literal_words)
{
    const tci_code *code = f->code;
    int available = code->device ? 1 : tci_pool_threads(&f->options);
    f->max_threads = 1;
    for (int i = 0; i < n_steps; i++) {
        const tci_code_step *from = &code->steps[i];
        const tci_code_kernel *kernel = &code->kernels[from->kernel];
        tci_run_step *step = &f->steps[i];
        step->fn = kernel->fn;
        step->interp = kernel->interp;
        step->call = kernel->call;
        step->n_tasks = kernel->interp && !kernel->fn ? tci_interp_tasks(kernel->interp)
                                                      : tci_dim_known(kernel->n_tasks);
        step->threads = tci_program_choose_threads(kernel, step->n_tasks, available);
        step->least = tci_program_least(kernel, step->n_tasks, step->threads);
        tci_program_fill_loop(kernel, code->device != NULL, step);
        step->faults = kernel->faults;
        step->literals = literal_words;
        step->first_slot = f->n_slots;
        for (int j = 0; j < kernel->n_literals; j++) {
            *literal_words++ = f->literals[from->literals[j]];
        }
        if (kernel->is_loop) { /* the rounds of one launch: see tci_loop.rounds */
            *literal_words++ = 0;
            *literal_words++ = step->rounds;
        }
        for (int j = 0; j < kernel->n_operands; j++) {
            const tci_code_buffer *b = &code->buffers[from->operands[j]];
            int64_t offset = tci_dim_known(from->offsets[j]);
            if (tci_program_is_user_buffer(code, f->n_inputs, f->n_outputs, from->operands[j])) {
                int32_t arg = b->kind == TCI_BUF_INPUT ? b->index : f->n_inputs + b->index;
                f->binds[f->n_binds++] = (tci_run_bind){arg, f->n_slots, offset};
            } else if (tci_program_param_arg(f, b) >= 0) {
                tci_run_bind bind = {tci_program_param_arg(f, b), f->n_slots, offset};
                f->param_binds[f->n_param_binds++] = bind;
            }
            tci_program_note_kept(f, b, offset, i < code->n_init);
            f->n_slots++;
        }
        step->n_operands = kernel->n_operands;
        step->work_bytes = tci_dim_known(kernel->work_bytes);
        f->n_slots += tci_dim_known(kernel->work_bytes) > 0;
        f->work_bytes = TCI_MAX(f->work_bytes, (step->work_bytes + 63) & ~(int64_t)63);
        f->max_threads = TCI_MAX(f->max_threads, step->threads);
        f->faults |= kernel->faults;
    }
}

static bool tci_program_is_plain(const tc_program *f, const tci_code_repeat *r)
{
    bool plain = !r->n_within && r->stops < 0 && !f->code->device && !f->options.check;
    for (int i = r->first; i < r->last; i++) {
        plain = plain && f->steps[i].fn && f->steps[i].threads == 1;
    }
    return plain;
}

/* The steps have their slots. */
static void tci_program_fill_repeats(tc_program *f)
{
    tci_run_move *move = f->moves;
    for (int i = 0; i < f->code->n_repeats; i++) {
        const tci_code_repeat *from = &f->code->repeats[i];
        f->repeats[i] = (tci_run_repeat){.first = from->first,
                                         .last = from->last,
                                         .n_within = from->n_within,
                                         .rounds = tci_dim_known(from->rounds),
                                         .moves = move,
                                         .n_moves = from->n_moves,
                                         .code = from,
                                         .is_plain = tci_program_is_plain(f, from)};
        for (int m = 0; m < from->n_moves; m++) {
            const tci_move *x = &from->moves[m];
            int32_t slot = f->steps[x->step].first_slot + x->operand;
            *move++ = (tci_run_move){slot, x->back, tci_dim_known(x->by)};
        }
    }
}

/* Insertion sort: the plan lists them nearly in order. */
static void tci_program_sort_aliases(tc_program *f)
{
    for (int i = 0; i < f->code->n_aliases; i++) {
        tci_alias a = f->code->aliases[i];
        int j = i;
        for (; j > 0; j--) {
            tci_alias b = f->aliases[j - 1];
            if (b.output < a.output || (b.output == a.output && b.input <= a.input)) {
                break;
            }
            f->aliases[j] = b;
        }
        f->aliases[j] = a;
    }
}

/* The strings of the options may be freed before the program, and no run reads them. */
static tc_options tci_program_options(const tc_options *o)
{
    tc_options kept = *o;
    kept.backend = kept.cc = kept.cache_dir = kept.dump = kept.dump_dir = kept.trace = NULL;
    kept.name = kept.machine = kept.schedule = NULL;
    return kept;
}

/* A child made by fork finds every lock free (base/os.c), which is told of a few that stay rather
 * than of one for each program. What they guard takes no other lock. */
enum { TCI_PROGRAM_LOCKS = 8 };
static tci_mutex tci_program_locks[TCI_PROGRAM_LOCKS] = {TCI_MUTEX_INIT, TCI_MUTEX_INIT,
                                                         TCI_MUTEX_INIT, TCI_MUTEX_INIT,
                                                         TCI_MUTEX_INIT, TCI_MUTEX_INIT,
                                                         TCI_MUTEX_INIT, TCI_MUTEX_INIT};
static pthread_once_t tci_program_locks_once = PTHREAD_ONCE_INIT;

static void tci_program_keep_locks(void)
{
    tci_device_memory_announce();
    for (int i = 0; i < TCI_PROGRAM_LOCKS; i++) {
        tci_os_keep_over_fork(&tci_program_locks[i], NULL);
    }
}

static tci_mutex *tci_program_pick_lock(const tc_program *f)
{
    pthread_once(&tci_program_locks_once, tci_program_keep_locks);
    return &tci_program_locks[(uintptr_t)f / 64 % TCI_PROGRAM_LOCKS];
}

/* A program that has captured nothing yet. */
static tc_status tci_program_new(tci_code *code, tci_program_sizes *sizes, const tc_options *o,
                                 tc_program **f, int64_t **literal_words)
{
    *f = NULL;
    if (o->memory_limit > 0 && tci_code_workspace(code) + code->kept_bytes > o->memory_limit) {
        return TC_ERR_LIMIT;
    }
    tci_program_measure(code, sizes);
    if (sizes->n_slots > INT32_MAX) {
        return TC_ERR_LIMIT;
    }
    size_t bytes = tci_program_lay_out(NULL, code, sizes, literal_words);
    tc_program *p = tci_heap_get(bytes);
    if (!p) {
        return TC_ERR_MEMORY;
    }
    tci_program_lay_out(p, code, sizes, literal_words);
    p->code = code;
    p->options = tci_program_options(o);
    p->n_inputs = sizes->n_inputs;
    p->n_outputs = sizes->n_outputs;
    p->n_effects = sizes->n_effects;
    p->n_captured = sizes->n_captured;
    p->refs = 1;
    p->keeper = p;
    p->lock = tci_program_pick_lock(p);
    tci_code_retain(code);
    tci_pool_retain();
    if (code->device && code->device->alloc) {
        tci_device_memory_enter(p, tci_call_free);
    }
    *f = p;
    return TC_OK;
}

/* Called after captured values are set. */
static void tci_program_complete(tc_program *f, int n_steps, int64_t *literal_words)
{
    tci_program_list_params(f);
    tci_program_fill_steps(f, n_steps, literal_words);
    if (n_steps) {
        tci_program_fill_repeats(f);
    }
    tci_program_place_effects(f);
    tci_program_sort_aliases(f);
    bool slices = false;
    for (int i = 0; i < n_steps; i++) {
        slices = slices || f->steps[i].slice;
    }
    f->only_launches = !slices && !f->faults && !f->code->n_init && !f->code->device &&
                       !f->code->n_repeats && !f->options.cancel && !f->options.check &&
                       !f->collectives;
}

static int tci_program_count_params(const tci_request *r)
{
    int n = 0;
    for (int i = 0; i < r->n_captured; i++) {
        n += r->captured[i]->storage->param != NULL;
    }
    return n;
}

TCI_FN tc_status tci_program_make(tci_code *code, const tci_request *r, const tc_options *o,
                                  tc_program **f)
{
    tci_program_sizes sizes = {.n_inputs = r->n_user_inputs,
                               .n_captured = r->n_captured,
                               .n_params = tci_program_count_params(r),
                               .n_effects = r->n_effects,
                               .n_origins = TCI_DEBUG ? r->n_user_inputs + r->n_nodes : 0};
    int64_t *literal_words = NULL;
    tci_index_list(r, &sizes.index);
    tci_port_list(r, &sizes.ports);
    tc_status status = tci_program_new(code, &sizes, o, f, &literal_words);
    if (status) {
        return status;
    }
    tc_program *p = *f;
    status = tci_collectives_make(r, o, &p->collectives);
    p->has_collectives = true;
    if (status) {
        tci_program_release(p);
        *f = NULL;
        return status;
    }
    p->from_memory = r->found == TCI_FOUND_MEMORY;
    p->from_disk = r->found == TCI_FOUND_DISK;
    tci_program_capture(p, r);
    tci_program_list_reads(p, r, &sizes.index);
    tci_program_list_ports(p, r, &sizes.ports);
    p->name = tci_label_of(o->name);
    p->cc = tci_label_of(o->cc);
    p->dump_dir = tci_label_of(o->dump_dir);
    p->machine = tci_label_of(o->machine);
    p->key_graph = r->key_graph;
    p->n_origins = sizes.n_origins;
    if (p->n_origins) {
        tci_origin_list(r, p->origins);
    }
    tci_program_complete(p, sizes.n_steps, literal_words);
#ifdef TC_DYNAMIC_SHAPES
    if (code->n_symbols && !tci_dynamic_make(p, r)) {
        tci_program_release(p);
        *f = NULL;
        return TC_ERR_MEMORY;
    }
#endif
    return TC_OK;
}

/* With what another program captured, and words for the literals that it does not have. keeper
 * NULL: itself. */
static tc_status tci_program_make_of(tci_code *code, const tc_program *like, const int64_t *words,
                                     const tc_program *keeper, tc_program **f)
{
    tci_program_sizes sizes = {.n_inputs = like->n_inputs,
                               .n_captured = like->n_captured,
                               .n_params = like->n_params,
                               .n_effects = like->n_effects};
    int64_t *literal_words = NULL;
    tc_status status = tci_program_new(code, &sizes, &like->options, f, &literal_words);
    if (status) {
        return status;
    }
    tc_program *p = *f;
    p->keeper = keeper ? (tc_program *)(uintptr_t)keeper : p;
    p->collectives = like->collectives;
    int n_own = like->code->n_literals;
    for (int i = 0; i < code->n_literals; i++) {
        p->literals[i] = i < n_own ? like->literals[i] : words[i - n_own];
    }
    for (int i = 0; i < p->n_captured; i++) {
        p->captured[i] = like->captured[i];
        p->captured_data[i] = like->captured_data[i];
        tci_storage_retain(p->captured[i]);
    }
    for (int i = 0; i < p->n_effects; i++) {
        p->effects[i].captured = like->effects[i].captured;
    }
    tci_program_complete(p, sizes.n_steps, literal_words);
    return TC_OK;
}

TCI_FN tc_status tci_program_make_like(tci_code *code, const tc_program *like, tc_program **f)
{
    tc_status status = tci_program_make_of(code, like, NULL, NULL, f);
    if (status) {
        return status;
    }
    (*f)->ports = like->ports;
    (*f)->reads = like->reads;
    (*f)->n_reads = like->n_reads;
#ifdef TC_DYNAMIC_SHAPES
    if (code->n_symbols) {
        const tci_request symbols = {.n_symbols = code->n_symbols,
                                     .user_symbols = like->dynamic->user};
        if (!tci_dynamic_make(*f, &symbols)) {
            tci_program_release(*f);
            *f = NULL;
            return TC_ERR_MEMORY;
        }
    }
#endif
    return TC_OK;
}

#ifdef TC_DYNAMIC_SHAPES
TCI_FN tc_status tci_program_make_instance(tci_code *code, const tc_program *family,
                                           const int64_t *words, tc_program **f)
{
    return tci_program_make_of(code, family, words, family, f);
}
#endif

/* ---- lifetime ---- */

TCI_FN void tci_program_retain(tc_program *f)
{
    __atomic_add_fetch(&f->refs, 1, __ATOMIC_RELAXED);
}

TCI_FN void tci_program_release(tc_program *f)
{
    if (!f || __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    if (f->code->device && f->code->device->alloc) {
        tci_device_memory_leave(f);
    }
    tci_call_free(f->spare);
    while (f->idle) {
        tc_call *next = f->idle->next;
        tci_call_free(f->idle);
        f->idle = next;
    }
    tci_errors_free(&f->errors);
    if (f->later) {
        f->later->free(f->later);
    }
#ifdef TC_DYNAMIC_SHAPES
    tci_dynamic_free(f);
#endif
    tci_init_cache_free(f);
    if (f->has_collectives) { /* calls, and what they recorded, are gone */
        tci_collectives_free(f->collectives);
    }
    for (int i = 0; i < f->n_captured; i++) {
        tci_storage_release(f->captured[i]);
    }
    tci_code_release(f->code);
    tci_heap_free(f);
    tci_pool_release();
}

/* ---- errors of runs, by thread ---- */

static tci_thread_error *tci_errors_find(const tci_thread_errors *list, tci_mutex *lock)
{
    uint64_t me = tci_os_thread_id();
    pthread_mutex_lock(lock);
    tci_thread_error *e = list->first;
    while (e && e->thread != me) {
        e = e->next;
    }
    pthread_mutex_unlock(lock);
    return e;
}

/* Frees those of dead threads once there are twice as many as there were of living ones, so the
 * list does not grow with threads that come and go. Caller holds the lock. */
static void tci_errors_sweep(tci_thread_errors *list)
{
    if (list->n < list->most) {
        return;
    }
    for (tci_thread_error **at = &list->first, *e; (e = *at);) {
        if (tci_os_thread_lives(e->system_thread)) {
            at = &e->next;
        } else {
            *at = e->next;
            list->n--;
            tci_heap_free(e);
        }
    }
    list->most = TCI_MAX(2 * list->n, (int)TCI_PROGRAM_ERRORS);
}

TCI_FN void tci_errors_record(tci_thread_errors *list, tci_mutex *lock, tc_status why,
                              const char *op, const char *text)
{
    tci_thread_error *e = tci_errors_find(list, lock);
    if (!e) {
        e = tci_heap_get(sizeof(*e));
        if (!e) {
            return; /* the status still reports it */
        }
        e->thread = tci_os_thread_id();
        e->system_thread = tci_os_thread();
        pthread_mutex_lock(lock);
        tci_errors_sweep(list);
        e->next = list->first;
        list->first = e;
        list->n++;
        pthread_mutex_unlock(lock);
    }
    e->error.status = why;
    snprintf(e->error.text, sizeof(e->error.text), "%s: %s", op, text);
}

TCI_FN const char *tci_errors_text(tci_thread_errors *list, tci_mutex *lock)
{
    tci_thread_error *e = tci_errors_find(list, lock);
    return e ? e->error.text : "";
}

TCI_FN void tci_errors_free(tci_thread_errors *list)
{
    while (list->first) {
        tci_thread_error *next = list->first->next;
        tci_heap_free(list->first);
        list->first = next;
    }
}

TCI_FN void tci_program_record(tc_program *f, tc_status why, const char *op, const char *text)
{
    tci_errors_record(&f->errors, f->lock, why, op, text);
}

TCI_FN const char *tci_program_error_text(tc_program *f)
{
    return tci_errors_text(&f->errors, f->lock);
}

#undef TCI_PROGRAM_PART_NS
#undef TCI_PROGRAM_SLICE_NS
#undef TCI_PROGRAM_TAKE_NS
#undef TCI_PROGRAM_CALLS
#undef TCI_PROGRAM_CALLS_LEAST
#undef TCI_PROGRAM_TAKES
#undef TCI_PROGRAM_INTERP_FACTOR
