/* run/shape_instances.c - dynamic shapes: instantiates a program compiled for symbolic sizes for
 * the concrete sizes of a run, without compiling, and caches the instances by the shapes of the
 * buffers.
 *
 * In: a program whose code is a family (compile/compiled_code.h), buffers. Out: a run of an
 * *instance*: an ordinary program whose code has the family's functions and known sizes everywhere
 * else. The functions that run it (run/call.c, run/execute.c) therefore handle no symbols.
 *
 * An instance is made the first time its sizes occur: every expression of the family is evaluated,
 * temporaries are placed in an arena of their own, each launch gets its tasks, its threads and, as
 * words after its literals, the values of the expressions that it uses; an interpreted kernel is
 * prepared for the sizes.
 *
 * Design: the description of the buffers (numbers of elements, types, sizes where given) decides
 * everything. A call remembers its last binding and reuses it if the buffers match; otherwise the
 * program's list is searched, most recent first; only then are sizes inferred (run/infer_sizes.c).
 * The first two steps allocate nothing.
 *
 * Lifetimes: an instance is reference-counted, by the list and by calls that remember it; it leaves
 * the list when TCI_DYNAMIC_KEPT more recent ones are there. The family's list and order are
 * guarded by its program's lock; an instance does not change. */
#include "shape_instances.h"

#ifdef TC_DYNAMIC_SHAPES

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../compile/memory_cache.h"
#include "../debug/kernel_check.h"
#include "../kernel/specialize_sizes.h"

struct tci_dynamic_call {
    tci_instance *instance; /* that ran last, counted; NULL: none yet */
    tc_call *inner;         /* a call of it */
    int64_t *values, *room; /* for solving */
};

/* ---- making and freeing ---- */

TCI_FN bool tci_dynamic_make(tc_program *f, const tci_request *r)
{
    size_t n = (size_t)r->n_symbols;
    tci_dynamic *d = tci_heap_get(sizeof(*d) + n * sizeof(*d->user));
    if (!d) {
        return false;
    }
    d->user = (tci_dim *)(d + 1);
    for (size_t i = 0; i < n; i++) {
        d->user[i] = r->user_symbols[i];
    }
    d->solver = tci_solver_make(f->code, f->n_inputs, f->n_outputs, d->user);
    f->dynamic = d;
    return d->solver != NULL;
}

TCI_FN const char *tci_dynamic_untold(const tc_program *f)
{
    int symbol = f->dynamic ? tci_solver_untold(f->dynamic->solver) : -1;
    return symbol >= 0 ? tci_dim_name(f->dynamic->user[symbol]) : NULL;
}

static void tci_instance_release(tci_instance *x)
{
    if (x && __atomic_sub_fetch(&x->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        tci_program_release(x->program);
        tci_heap_free(x);
    }
}

TCI_FN void tci_dynamic_free(tc_program *f)
{
    tci_dynamic *d = f->dynamic;
    while (d && d->first) {
        tci_instance *next = d->first->next;
        tci_instance_release(d->first);
        d->first = next;
    }
    if (d) {
        tci_solver_free(d->solver);
        tci_heap_free(d);
        f->dynamic = NULL;
    }
}

TCI_FN tc_call *tci_dynamic_call_make(tc_program *f)
{
    size_t n = (size_t)f->code->n_symbols;
    size_t dynamic_at = (sizeof(tc_call) + 15) & ~(size_t)15;
    size_t words_at = dynamic_at + ((sizeof(struct tci_dynamic_call) + 15) & ~(size_t)15);
    size_t words = n + tci_solver_room(f->dynamic->solver);
    tc_call *c = tci_heap_get(words_at + words * sizeof(int64_t));
    if (c) {
        c->program = f;
        c->cancel = &c->cancelled;
        c->dynamic = (struct tci_dynamic_call *)(void *)((char *)c + dynamic_at);
        c->dynamic->values = (int64_t *)(void *)((char *)c + words_at);
        c->dynamic->room = c->dynamic->values + n;
    }
    return c;
}

TCI_FN void tci_dynamic_call_free(tc_call *c)
{
    struct tci_dynamic_call *d = c->dynamic;
    if (d && d->instance) {
        tci_call_free(d->inner);
        tci_instance_release(d->instance);
        d->instance = NULL;
    }
}

/* ---- code of known sizes ---- */

/* State of the construction of an instance; freed as a whole when memory runs out. */
typedef struct tci_dynamic_build {
    tci_scratch scratch;
    const tci_code *family;
    const int64_t *values;
    bool verify;
    int check; /* options.check */
    tci_code *code;
    int64_t *words;
    int n_words, cap_words; /* values of dims, kernel by kernel */
} tci_dynamic_build;

static void *tci_dynamic_get(tci_dynamic_build *b, int64_t n, size_t item_bytes)
{
    void *p = tci_code_get(b->code, (size_t)TCI_MAX(n, (int64_t)1) * item_bytes);
    if (!p) {
        tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory for a program of these sizes");
    }
    return p;
}

/* A size, a count or bytes. */
static int64_t tci_dynamic_size(tci_dynamic_build *b, tci_dim d)
{
    int64_t v = tci_dim_value(d, b->values);
    if (v >= (int64_t)1 << 60) {
        tci_scratch_fail(&b->scratch, TC_ERR_LIMIT, "more elements than memory can hold");
    }
    return v;
}

static tci_code_port *tci_dynamic_ports(tci_dynamic_build *b, const tci_code_port *from, int n,
                                        const char *side)
{
    tci_code_port *ports = tci_dynamic_get(b, n, sizeof(*ports));
    for (int i = 0; i < n; i++) {
        tci_code_port *p = &ports[i];
        *p = from[i];
        p->shape = tci_dynamic_get(b, p->rank, sizeof(*p->shape));
        for (int a = 0; a < p->rank; a++) {
            p->shape[a] = tci_dynamic_size(b, from[i].shape[a]);
            if (tci_dim_known(p->shape[a]) < 0) {
                tci_scratch_fail(&b->scratch, TC_ERR_SHAPE, "%s %d would have size %lld on axis %d",
                                 side, i, (long long)p->shape[a], a);
            }
        }
        p->n = tci_dynamic_size(b, from[i].n);
        p->bytes = tci_dynamic_size(b, from[i].bytes);
    }
    return ports;
}

static void tci_dynamic_memory(tci_dynamic_build *b)
{
    const tci_code *from = b->family;
    tci_code *c = b->code;
    tci_life *lives = TCI_NEW_ARRAY(&b->scratch, tci_life, from->n_buffers + 1);
    c->n_buffers = from->n_buffers;
    c->buffers = tci_dynamic_get(b, from->n_buffers, sizeof(*c->buffers));
    for (int i = 0; i < from->n_buffers; i++) {
        c->buffers[i] = from->buffers[i];
        c->buffers[i].bytes = tci_dynamic_size(b, from->buffers[i].bytes);
        c->buffers[i].shape = tci_dynamic_get(b, from->buffers[i].rank, sizeof(tci_dim));
        for (int d = 0; d < from->buffers[i].rank; d++) {
            c->buffers[i].shape[d] = tci_dynamic_size(b, from->buffers[i].shape[d]);
        }
        lives[i].first = from->buffers[i].first;
        lives[i].last = from->buffers[i].kind == TCI_BUF_TEMP ? from->buffers[i].last : -1;
        lives[i].alone = from->n_steps - 1;
        lives[i].offset = from->buffers[i].offset; /* of what is kept, whose sizes are known */
        lives[i].bytes = tci_dim_known(tci_dim_max(c->buffers[i].bytes, 0));
    }
    c->arena_bytes = tci_plan_place(&b->scratch, lives, from->n_buffers, from->n_steps,
                                    from->device && from->device->record);
    for (int i = 0; i < from->n_buffers; i++) {
        c->buffers[i].offset = lives[i].offset;
    }
}

/* The estimate for one task was made for typical sizes: as these tasks are larger or smaller. */
static double tci_dynamic_task_ns(const tci_code_kernel *from, const tci_code_kernel *to)
{
    double typical = (double)TCI_MAX(tci_dim_hint(from->flops), tci_dim_hint(from->bytes)) *
                     (double)tci_dim_known(to->n_tasks);
    double here = (double)tci_dim_known(tci_dim_max(to->flops, to->bytes)) *
                  (double)tci_dim_hint(from->n_tasks);
    bool scales = !tci_dim_is_known(from->flops) || !tci_dim_is_known(from->bytes);
    return scales && typical > 0 ? from->task_ns * here / typical : from->task_ns;
}

static void tci_dynamic_interpret(tci_dynamic_build *b, tci_code_kernel *to,
                                  const tci_code_kernel *from)
{
    tci_kernel *k = tci_kernel_at(&b->scratch, from->kernel, b->values);
    to->interp = tci_interp_make(k);
    if (!to->interp) {
        tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory for an interpreted kernel");
    }
    if (b->verify) {
        tci_kernel_verify(&b->scratch, k);
        tci_interp_verify(&b->scratch, to->interp);
    }
    to->n_tasks = tci_interp_tasks(to->interp);
    int64_t work = tci_dim_known(tci_dim_max(to->flops, to->bytes)); /* about one a nanosecond */
    to->task_ns = (double)work / (double)tci_dim_known(tci_dim_max(to->n_tasks, 1));
    b->code->interp_bytes = TCI_MAX(b->code->interp_bytes,
                                    (int64_t)tci_interp_workspace(to->interp));
}

/* A user function is given the sizes of the run. */
static const tci_custom_call *tci_dynamic_custom(tci_dynamic_build *b, const tci_custom_call *from)
{
    tci_custom_call *call = tci_dynamic_get(b, 1, sizeof(*call));
    *call = *from;
    int n = call->n_inputs + 1 + call->n_more;
    call->arrays = tci_dynamic_get(b, n, sizeof(*call->arrays));
    for (int i = 0; i < n; i++) {
        tc_custom_array *a = &call->arrays[i];
        *a = from->arrays[i];
        a->n = tci_dynamic_size(b, (tci_dim)a->n);
        a->sizes = tci_dynamic_get(b, a->rank, sizeof(*a->sizes));
        for (int d = 0; d < a->rank; d++) {
            a->sizes[d] = tci_dynamic_size(b, tci_dim_list(from->arrays[i].sizes)[d]);
        }
    }
    return call;
}

static void tci_dynamic_kernels(tci_dynamic_build *b)
{
    tci_code *c = b->code;
    c->kernels = tci_dynamic_get(b, b->family->n_kernels, sizeof(*c->kernels));
    c->n_kernels = b->family->n_kernels;
    for (int i = 0; i < c->n_kernels; i++) {
        const tci_code_kernel *from = &b->family->kernels[i];
        tci_code_kernel *to = &c->kernels[i];
        *to = *from;
        to->kernel = NULL;
        to->dims = NULL;
        to->n_dims = 0;
        to->n_tasks = tci_dynamic_size(b, from->n_tasks);
        to->work_bytes = tci_dynamic_size(b, from->work_bytes);
        to->rounds = tci_dynamic_size(b, from->rounds);
        to->flops = tci_dim_value(from->flops, b->values);
        to->bytes = tci_dim_value(from->bytes, b->values);
        if (from->call) {
            to->call = tci_dynamic_custom(b, from->call);
        } else if (from->kernel && !from->fn && !from->function) {
            tci_dynamic_interpret(b, to, from);
        } else {
            to->task_ns = tci_dynamic_task_ns(from, to);
        }
        tci_kernel *k = b->check && from->kernel
                            ? tci_kernel_at(&b->scratch, from->kernel, b->values)
                            : NULL;
        if (k && !tci_checker_prepare(c, to, k, b->check)) {
            tci_scratch_fail(&b->scratch, TC_ERR_MEMORY, "out of memory for a checked kernel");
        }
        to->n_literals += from->n_dims;
    }
}

/* Buffer offsets of an instance, if they differ from the family's. */
static tci_dim *tci_dynamic_offsets(tci_dynamic_build *b, const tci_code_step *step, int n)
{
    bool known = true;
    for (int i = 0; i < n; i++) {
        known = known && tci_dim_is_known(step->offsets[i]);
    }
    if (known) {
        return step->offsets;
    }
    tci_dim *offsets = tci_dynamic_get(b, n, sizeof(*offsets));
    for (int i = 0; i < n; i++) {
        offsets[i] = tci_dynamic_size(b, step->offsets[i]);
    }
    return offsets;
}

/* The words of a kernel follow those of the family, once for each kernel. */
static void tci_dynamic_steps(tci_dynamic_build *b)
{
    const tci_code *from = b->family;
    tci_code *c = b->code;
    int *first = TCI_NEW_ARRAY(&b->scratch, int, from->n_kernels + 1);
    c->n_literals = from->n_literals;
    for (int i = 0; i < from->n_kernels; i++) {
        first[i] = c->n_literals;
        for (int j = 0; j < from->kernels[i].n_dims; j++) {
            int64_t v = tci_dim_value(from->kernels[i].dims[j], b->values);
            TCI_PUSH(&b->scratch, b->words, b->n_words, b->cap_words, v);
            c->n_literals++;
        }
    }
    c->literal_dtypes = tci_dynamic_get(b, c->n_literals, 1);
    for (int i = 0; i < c->n_literals; i++) {
        c->literal_dtypes[i] = i < from->n_literals ? from->literal_dtypes[i] : TC_I64;
    }
    c->n_steps = from->n_steps;
    c->steps = tci_dynamic_get(b, from->n_steps, sizeof(*c->steps));
    for (int i = 0; i < from->n_steps; i++) {
        const tci_code_step *step = &from->steps[i];
        const tci_code_kernel *k = &from->kernels[step->kernel];
        int32_t *literals = tci_dynamic_get(b, (int64_t)k->n_literals + k->n_dims,
                                            sizeof(*literals));
        for (int j = 0; j < k->n_literals + k->n_dims; j++) {
            literals[j] = j < k->n_literals ? step->literals[j]
                                            : first[step->kernel] + j - k->n_literals;
        }
        c->steps[i] = (tci_code_step){
            step->kernel, step->operands, tci_dynamic_offsets(b, step, k->n_operands),
            literals,     step->origins,  step->n_origins};
    }
}

static void tci_dynamic_repeats(tci_dynamic_build *b)
{
    tci_code *c = b->code;
    c->n_repeats = b->family->n_repeats;
    c->repeats = tci_dynamic_get(b, c->n_repeats, sizeof(*c->repeats));
    for (int i = 0; i < c->n_repeats; i++) {
        const tci_code_repeat *from = &b->family->repeats[i];
        tci_code_repeat *to = &c->repeats[i];
        *to = *from;
        to->rounds = tci_dynamic_size(b, from->rounds);
        to->moves = tci_dynamic_get(b, from->n_moves, sizeof(*to->moves));
        to->turns = tci_dynamic_get(b, from->n_turns, sizeof(*to->turns));
        for (int m = 0; m < from->n_moves; m++) {
            to->moves[m] = from->moves[m];
            to->moves[m].by = tci_dynamic_size(b, from->moves[m].by);
        }
        for (int t = 0; t < from->n_turns; t++) {
            to->turns[t] = from->turns[t];
            to->turns[t].bytes = tci_dynamic_size(b, from->turns[t].bytes);
        }
    }
}

/* Texts, operand lists, aliases and modules stay the family's. */
static void tci_dynamic_fill_code(tci_dynamic_build *b)
{
    const tci_code *from = b->family;
    tci_code *c = b->code;
    c->device = from->device;
    c->calls = from->calls;
    memcpy(c->backend, from->backend, sizeof(c->backend));
    c->list = from->list;
    c->n_list = from->n_list;
    c->n_init_section = from->n_init_section;
    c->intact = from->intact;
    c->n_init = from->n_init;
    c->kept_bytes = from->kept_bytes;
    c->units = from->units;
    c->n_units = from->n_units;
    c->kept_places = from->kept_places;
    c->n_user_inputs = from->n_user_inputs;
    c->n_user_outputs = from->n_user_outputs;
    c->aliases = from->aliases;
    c->n_aliases = from->n_aliases;
    c->n_inputs = from->n_inputs;
    c->inputs = tci_dynamic_ports(b, from->inputs, from->n_inputs, "input");
    c->n_outputs = from->n_outputs;
    c->outputs = tci_dynamic_ports(b, from->outputs, from->n_outputs, "output");
    tci_dynamic_memory(b);
    tci_dynamic_kernels(b);
    tci_dynamic_steps(b);
    tci_dynamic_repeats(b);
}

/* ---- instances ---- */

/* " for batch = 3, height = 64" */
static void tci_dynamic_name_values(const tc_program *f, const int64_t *values, char *text,
                                    size_t room)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < f->code->n_symbols && at < room; i++) {
        int n = snprintf(text + at, room - at, "%s%s = %lld", i ? ", " : " for ",
                         tci_dim_name(f->dynamic->user[i]), (long long)values[i]);
        at += n > 0 ? (size_t)n : room;
    }
}

static tc_status tci_dynamic_refuse(tc_call *c, const int64_t *values, tc_status why,
                                    const char *text)
{
    char sizes[400];
    tci_dynamic_name_values(c->program, values, sizes, sizeof(sizes));
    return tci_call_refuse(c, why, "%.500s%s", text, sizes);
}

static tc_status tci_dynamic_build_program(tc_call *c, tci_dynamic_build *b, tc_program **program)
{
    if (setjmp(b->scratch.escape)) {
        return tci_dynamic_refuse(c, b->values, b->scratch.why, b->scratch.message);
    }
    b->code = tci_code_make();
    if (!b->code) {
        return tci_dynamic_refuse(c, b->values, TC_ERR_MEMORY, "out of memory");
    }
    b->code->family = (tci_code *)(uintptr_t)b->family;
    tci_code_retain(b->code->family);
    tci_dynamic_fill_code(b);
    if (b->verify) {
        tci_code_verify(&b->scratch, b->code);
    }
    tc_status status = tci_program_make_instance(b->code, c->program, b->words, program);
    if (status == TC_ERR_LIMIT) {
        char text[160];
        snprintf(text, sizeof(text),
                 "the program needs %lld bytes of workspace, expected at most memory_limit = %lld",
                 (long long)(tci_code_workspace(b->code) + b->code->kept_bytes),
                 (long long)c->program->options.memory_limit);
        return tci_dynamic_refuse(c, b->values, status, text);
    }
    return status ? tci_dynamic_refuse(c, b->values, status, "out of memory") : TC_OK;
}

static const tc_buf *tci_dynamic_buffer(const tc_program *f, const tc_bufs *inputs,
                                        const tc_bufs *outputs, int i)
{
    return i < f->n_inputs ? &inputs->items[i] : &outputs->items[i - f->n_inputs];
}

/* An instance with one count. */
static tc_status tci_dynamic_make_instance(tc_call *c, const int64_t *values, const tc_bufs *inputs,
                                           const tc_bufs *outputs, tci_instance **made)
{
    const tc_program *f = c->program;
    size_t n_symbols = (size_t)f->code->n_symbols;
    int n_buffers = f->n_inputs + f->n_outputs;
    size_t looks_at = sizeof(tci_instance) + n_symbols * sizeof(int64_t);
    tci_dynamic_build *b = tci_heap_get(sizeof(*b));
    tci_instance *x = tci_heap_get(looks_at + (size_t)n_buffers * sizeof(tci_dynamic_look));
    tc_status status = TC_ERR_MEMORY;
    if (b && x) {
        tci_scratch_init(&b->scratch);
        b->family = f->code;
        b->values = values;
        b->verify = f->options.verify;
        b->check = f->options.check;
        status = tci_dynamic_build_program(c, b, &x->program);
        tci_code_release(b->code);
        tci_scratch_free(&b->scratch);
    } else {
        tci_dynamic_refuse(c, values, status, "out of memory");
    }
    tci_heap_free(b);
    if (status) {
        tci_heap_free(x);
        return status;
    }
    x->refs = 1;
    x->values = (int64_t *)(void *)(x + 1);
    memcpy(x->values, values, n_symbols * sizeof(*values));
    x->looks = (tci_dynamic_look *)(void *)((char *)x + looks_at);
    for (int i = 0; i < n_buffers; i++) {
        const tc_buf *buffer = tci_dynamic_buffer(f, inputs, outputs, i);
        x->looks[i] = (tci_dynamic_look){buffer->n, buffer->dtype, buffer->sizes != NULL};
    }
    *made = x;
    return TC_OK;
}

/* ---- finding ---- */

/* Sizes that are given must be those of the instance; with numbers and types alike, what they say
 * is then the same as when it was made. */
static bool tci_dynamic_looks(const tc_program *f, const tci_instance *x, const tc_bufs *inputs,
                              const tc_bufs *outputs)
{
    const tci_code *code = x->program->code;
    for (int i = 0; i < f->n_inputs + f->n_outputs; i++) {
        const tc_buf *b = tci_dynamic_buffer(f, inputs, outputs, i);
        const tci_dynamic_look *look = &x->looks[i];
        if (b->n != look->n || b->dtype != look->dtype || (b->sizes != NULL) != look->sized) {
            return false;
        }
        if (look->sized) {
            const tci_code_port *p = i < f->n_inputs ? &code->inputs[i]
                                                     : &code->outputs[i - f->n_inputs];
            bool same = b->rank == p->rank;
            for (int a = 0; a < p->rank && same; a++) {
                same = b->sizes[a] == p->shape[a];
            }
            if (!same) {
                return false;
            }
        }
    }
    return true;
}

/* The caller holds the lock. */
static void tci_dynamic_to_front(tci_dynamic *d, tci_instance **at)
{
    tci_instance *x = *at;
    *at = x->next;
    x->next = d->first;
    d->first = x;
}

/* The instance of these values (values NULL: that these buffers look like), counted and moved to
 * the front; NULL: there is none. The caller holds the lock. */
static tci_instance *tci_dynamic_find(const tc_program *f, const int64_t *values,
                                      const tc_bufs *inputs, const tc_bufs *outputs)
{
    tci_dynamic *d = f->dynamic;
    size_t bytes = sizeof(*values) * (size_t)f->code->n_symbols;
    for (tci_instance **at = &d->first; *at; at = &(*at)->next) {
        tci_instance *x = *at;
        if (values ? !memcmp(x->values, values, bytes) : tci_dynamic_looks(f, x, inputs, outputs)) {
            tci_dynamic_to_front(d, at);
            __atomic_add_fetch(&x->refs, 1, __ATOMIC_RELAXED);
            return x;
        }
    }
    return NULL;
}

static tci_instance *tci_dynamic_take(tc_program *f, const int64_t *values, const tc_bufs *inputs,
                                      const tc_bufs *outputs)
{
    pthread_mutex_lock(f->lock);
    tci_instance *x = tci_dynamic_find(f, values, inputs, outputs);
    pthread_mutex_unlock(f->lock);
    return x;
}

/* Puts a new instance into the list, unless another thread made the same meanwhile; returns what is
 * in the list, counted. */
static tci_instance *tci_dynamic_put(tc_program *f, tci_instance *x)
{
    tci_instance *dropped = NULL;
    pthread_mutex_lock(f->lock);
    tci_instance *other = tci_dynamic_find(f, x->values, NULL, NULL);
    if (other) {
        dropped = x;
        x = other;
    } else {
        int n = 0;
        x->refs = 2;
        x->next = f->dynamic->first;
        f->dynamic->first = x;
        for (tci_instance **at = &f->dynamic->first; *at; at = &(*at)->next, n++) {
            if (n == TCI_DYNAMIC_KEPT) {
                dropped = *at;
                *at = NULL;
                break;
            }
        }
    }
    pthread_mutex_unlock(f->lock);
    tci_instance_release(dropped);
    return x;
}

/* ---- runs ---- */

static void tci_dynamic_unbind(struct tci_dynamic_call *d)
{
    if (d->instance) {
        d->inner->cancel = &d->inner->cancelled;
        tci_call_give(d->instance->program, d->inner);
        tci_instance_release(d->instance);
        d->instance = NULL;
    }
}

/* The call's instance becomes that of these buffers. */
static tc_status tci_dynamic_bind(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    tc_program *f = c->program;
    struct tci_dynamic_call *d = c->dynamic;
    tci_instance *x = tci_dynamic_take(f, NULL, inputs, outputs);
    if (!x) {
        char text[sizeof(c->last.text)];
        tc_status status = tci_solver_solve(f->dynamic->solver, d->room, inputs, outputs, d->values,
                                            text, sizeof(text));
        if (status) {
            return tci_call_refuse(c, status, "%s", text);
        }
        x = tci_dynamic_take(f, d->values, NULL, NULL);
        if (!x) {
            status = tci_dynamic_make_instance(c, d->values, inputs, outputs, &x);
            if (status) {
                return status;
            }
            x = tci_dynamic_put(f, x);
        }
    }
    tci_dynamic_unbind(d);
    d->inner = tci_call_take(x->program);
    if (!d->inner) {
        tc_status status = tci_dynamic_refuse(c, x->values, TC_ERR_MEMORY,
                                              "out of memory: no workspace for one more call");
        tci_instance_release(x);
        return status;
    }
    d->inner->cancel = c->cancel;
    d->instance = x;
    return TC_OK;
}

TCI_FN tc_status tci_dynamic_ready(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs,
                                   tc_call **inner)
{
    struct tci_dynamic_call *d = c->dynamic;
    tc_status status = tci_call_check_lists(c, inputs, outputs);
    if (TCI_UNLIKELY(status)) {
        return status;
    }
    if (!d->instance || !tci_dynamic_looks(c->program, d->instance, inputs, outputs)) {
        status = tci_dynamic_bind(c, inputs, outputs);
    }
    *inner = status ? c : d->inner;
    return status;
}

TCI_FN tc_status tci_dynamic_told(tc_call *c, tc_status status, const tc_bufs *inputs,
                                  const tc_bufs *outputs)
{
    struct tci_dynamic_call *d = c->dynamic;
    c->last = d->inner->last;
    c->check_kind = d->inner->check_kind;
    c->check_step = d->inner->check_step;
    if (status == TC_ERR_INDEX) { /* the instance knows no names */
        const tc_program *ran = d->instance->program;
        int64_t size = ran->faults ? tci_call_fault(d->inner) : -1;
        status = size < 0 ? status
                          : tci_index_tell(c, ran, d->instance->values, size, inputs, outputs);
    }
    return status;
}

TCI_FN tc_status tci_dynamic_call_run(tc_call *c, tc_bufs inputs, tc_bufs outputs)
{
    tc_call *inner;
    tc_status status = tci_dynamic_ready(c, &inputs, &outputs, &inner);
    if (status) {
        return status;
    }
    status = tci_call_run(inner, inputs, outputs);
    return TCI_LIKELY(!status) ? status : tci_dynamic_told(c, status, &inputs, &outputs);
}

/* ---- look inside ---- */

TCI_FN tc_status tci_dynamic_output(tc_call *c, tc_bufs inputs, int output, int64_t *shape)
{
    const tc_program *f = c->program;
    struct tci_dynamic_call *d = c->dynamic;
    char text[sizeof(c->last.text)];
    tc_status status = tci_solver_solve(f->dynamic->solver, d->room, &inputs, NULL, d->values, text,
                                        sizeof(text));
    if (status) {
        return tci_call_refuse(c, status, "%s", text);
    }
    const tci_code_port *p = &f->code->outputs[output];
    for (int a = 0; a < p->rank; a++) {
        shape[a] = tci_dim_value(p->shape[a], d->values);
    }
    return TC_OK;
}

TCI_FN tci_code *tci_dynamic_last(tc_program *f)
{
    pthread_mutex_lock(f->lock);
    tci_instance *x = f->dynamic->first;
    tci_code *code = x ? x->program->code : NULL;
    if (code) {
        tci_code_retain(code);
    }
    pthread_mutex_unlock(f->lock);
    return code;
}

TCI_FN void tci_dynamic_explain(const tc_program *f, FILE *out)
{
    fputs("sizes:", out);
    for (int i = 0; i < f->code->n_symbols; i++) {
        tci_dim user = f->dynamic->user[i];
        fprintf(out, "%s %s (s%d) from %lld to %lld", i ? "," : "", tci_dim_name(user), i,
                (long long)tci_dim_least(user), (long long)tci_dim_most(user));
    }
    fputs("\n", out);
}

#endif
