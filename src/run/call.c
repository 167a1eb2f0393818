/* run/call.c - one run: buffers are checked, operand pointers patched, kernels launched.
 *
 * In: a program, the user's buffers. Out: the outputs are written, or nothing is and c->last says
 * why. What is found after the fact (TC_ERR_INDEX, a device that fails) leaves outputs half
 * written, but parameters as they were (run/param.c).
 *
 * The one idea: a call is everything one run needs besides the user's buffers, so a run allocates
 * nothing. The common case takes an idle call by one atomic exchange (no ABA: the whole call
 * changes hands), checks a few numbers, writes a few pointers and jumps; no lock, no system call.
 *
 * Parameters: what a run reads and changes of them it finds at its begin and gives back at its end
 * (run/param.c); only programs that have some take a lock for that.
 *
 * Overlaps: an output may be exactly an input's memory where the plan allows that pair; any other
 * meeting of an output with anything is refused. Few buffers are compared pair by pair; many are
 * sorted by address, and each span looks back only as far as an earlier span still reaches. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../debug/trace.h"
#include "dynamic.h"

#define TCI_CALL_PAIRWISE 16 /* buffers up to which pairs are compared */

/* ---- making ---- */

static void tci_call_fill_slots(tc_call *c)
{
    const tc_program *f = c->program;
    const tci_code *code = f->code;
    int slot = 0;
    for (int i = 0; i < code->n_steps; i++) {
        int n = code->kernels[code->steps[i].kernel].n_operands;
        for (int j = 0; j < n; j++, slot++) {
            const tci_code_buffer *b = &code->buffers[code->steps[i].operands[j]];
            if (b->kind == TCI_BUF_TEMP && c->workspace) {
                c->slots[slot] = c->workspace + b->offset;
            } else if (b->kind == TCI_BUF_INPUT && b->index >= f->n_inputs) {
                c->slots[slot] = f->captured_data[b->index - f->n_inputs];
            }
        }
        if (f->steps[i].work_bytes > 0) {
            c->slots[slot++] = c->work;
        }
    }
}

TCI_FN tc_call *tci_call_make(tc_program *f)
{
#ifdef TC_DYNAMIC_SHAPES
    if (f->dynamic) {
        return tci_dynamic_call_make(f);
    }
#endif
    const tci_code *code = f->code;
    size_t n_buffers = (size_t)code->n_inputs + (size_t)code->n_outputs;
    size_t slots_at = (sizeof(tc_call) + 15) & ~(size_t)15;
    size_t values_at = slots_at + (size_t)f->n_slots * sizeof(void *);
    size_t faults_at =
        values_at + ((size_t)f->n_params + (size_t)f->n_effects) * sizeof(tci_param_value *);
    size_t spans_at = faults_at + (size_t)f->max_threads * sizeof(int64_t);
    size_t bytes = spans_at +
                   (n_buffers > TCI_CALL_PAIRWISE ? n_buffers * sizeof(tci_run_span) : 0);
    tc_call *c = tci_heap_get(bytes);
    if (!c) {
        return NULL;
    }
    bool on_device = code->device && code->device->alloc;
    size_t arena_bytes = on_device ? 0 : ((size_t)code->arena_bytes + 63) & ~(size_t)63;
    size_t interp_bytes = code->device ? 0 : (size_t)code->interp_bytes * (size_t)f->max_threads;
    interp_bytes = (interp_bytes + 63) & ~(size_t)63;
    size_t work_bytes = code->device ? 0 : (size_t)f->work_bytes * (size_t)f->max_threads;
    size_t workspace_bytes = arena_bytes + interp_bytes + work_bytes;
    if (workspace_bytes) {
        c->workspace = tci_heap_get_aligned(workspace_bytes);
        if (!c->workspace) {
            tci_heap_free(c);
            return NULL;
        }
        c->interp = c->workspace + arena_bytes;
        c->work = c->interp + interp_bytes;
    }
    c->program = f;
    c->slots = (void **)((char *)c + slots_at);
    c->values = (tci_param_value **)(void *)((char *)c + values_at);
    c->faults = (int64_t *)((char *)c + faults_at);
    c->spans = n_buffers > TCI_CALL_PAIRWISE ? (tci_run_span *)((char *)c + spans_at) : NULL;
    if (!on_device) {
        tci_call_fill_slots(c);
    } else if (!tci_device_make(c)) {
        tci_heap_free(c);
        return NULL;
    }
    return c;
}

TCI_FN void tci_call_free(tc_call *c)
{
    if (c) {
#ifdef TC_DYNAMIC_SHAPES
        tci_dynamic_call_free(c);
#endif
        tci_device_free(c);
        tci_heap_free_aligned(c->workspace);
        tci_heap_free(c);
    }
}

TCI_FN tc_call *tci_call_take(tc_program *f)
{
    tc_call *c = __atomic_exchange_n(&f->spare, NULL, __ATOMIC_ACQUIRE);
    if (TCI_LIKELY(c != NULL)) {
        return c;
    }
    pthread_mutex_lock(f->lock);
    c = f->idle;
    if (c) {
        f->idle = c->next;
    }
    pthread_mutex_unlock(f->lock);
    return c ? c : tci_call_make(f);
}

TCI_FN void tci_call_give(tc_program *f, tc_call *c)
{
    tc_call *none = NULL;
    if (TCI_LIKELY(__atomic_compare_exchange_n(&f->spare, &none, c, false, __ATOMIC_RELEASE,
                                               __ATOMIC_RELAXED))) {
        return;
    }
    pthread_mutex_lock(f->lock);
    c->next = f->idle;
    f->idle = c;
    pthread_mutex_unlock(f->lock);
}

/* ---- texts of refusals: never on the fast path ---- */

static const char *tci_call_dtype_name(int dtype)
{
    if (!tci_dtype_is_valid(dtype)) {
        return "untyped";
    }
    return tci_dtype_get((tc_dtype)dtype)->name;
}

TCI_FN tc_status tci_call_refuse(tc_call *c, tc_status why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->last.text, sizeof(c->last.text), format, args);
    va_end(args);
    c->last.status = why;
    return why;
}

static tc_status tci_call_refuse_buffer(tc_call *c, bool is_output, int i, const tc_buf *b,
                                        const tci_code_port *port)
{
    const char *side = is_output ? "output" : "input";
    const char *dtype = tci_call_dtype_name(port->dtype);
    char shape[256];
    tci_graph_print_shape(shape, sizeof(shape), port->rank, port->shape);
    if (is_output && b->is_const) {
        return tci_call_refuse(c, TC_ERR_BUFFER,
                               "%s %d: given a pointer to const, expected writable memory of"
                               " %lld %s",
                               side, i, (long long)port->n, dtype);
    }
    if (!b->data && port->n) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "%s %d: given NULL, expected %lld %s, shape %s",
                               side, i, (long long)port->n, dtype, shape);
    }
    if (b->dtype != port->dtype && b->dtype != -1) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "%s %d: given %s, expected %s", side, i,
                               tci_call_dtype_name(b->dtype), dtype);
    }
    if (b->data && !tci_dtype_is_aligned((tc_dtype)port->dtype, b->data)) {
        return tci_call_refuse(c, TC_ERR_BUFFER,
                               "%s %d: given memory at %p, expected an address that is a multiple "
                               "of %d, as %s needs",
                               side, i, b->data, tci_dtype_get((tc_dtype)port->dtype)->align,
                               dtype);
    }
    if (b->dtype == -1 && b->n != port->bytes) {
        return tci_call_refuse(c, TC_ERR_BUFFER,
                               "%s %d: given %lld bytes of untyped memory, expected %lld: %lld of "
                               "%s, shape %s",
                               side, i, (long long)b->n, (long long)port->bytes,
                               (long long)port->n, dtype, shape);
    }
    if (b->sizes && (b->n == port->n || b->dtype == -1)) {
        char sizes[256];
        tci_graph_print_shape(sizes, sizeof(sizes), b->rank, b->sizes);
        return tci_call_refuse(c, TC_ERR_BUFFER, "%s %d: given sizes %s, expected %s", side, i,
                               sizes, shape);
    }
    return tci_call_refuse(c, TC_ERR_BUFFER,
                           "%s %d: given %lld elements, expected %lld of %s, shape %s", side, i,
                           (long long)b->n, (long long)port->n, dtype, shape);
}

/* Name of buffer `index` in the order of tci_run_span. */
static void tci_call_name_buffer(const tc_program *f, int index, char *text, size_t room)
{
    int n_outputs = f->n_outputs;
    if (index < n_outputs) {
        snprintf(text, room, "output %d", index);
    } else if (index - n_outputs < f->n_inputs) {
        snprintf(text, room, "input %d", index - n_outputs);
    } else {
        snprintf(text, room, "the captured tensor %d", index - n_outputs - f->n_inputs);
    }
}

/* ---- overlaps ---- */

static tci_run_span tci_call_span(const tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs,
                                  int index)
{
    const tc_program *f = c->program;
    const tci_code *code = f->code;
    int input = index - f->n_outputs;
    const void *data;
    int64_t bytes;
    if (input < 0) {
        data = outputs->items[index].data;
        bytes = code->outputs[index].bytes;
    } else {
        data = input < f->n_inputs ? inputs->items[input].data
                                   : f->captured_data[input - f->n_inputs];
        bytes = data ? code->inputs[input].bytes : 0; /* no user has memory of a parameter */
    }
    tci_run_span span = {(uintptr_t)data, (uintptr_t)data + (uintptr_t)bytes, 0, 0, index};
    return span;
}

static bool tci_call_may_alias(const tc_program *f, int output, int input)
{
    int low = 0;
    int high = f->code->n_aliases;
    while (low < high) {
        int middle = low + (high - low) / 2;
        tci_alias a = f->aliases[middle];
        if (a.output == output && a.input == input) {
            return true;
        }
        if (a.output < output || (a.output == output && a.input < input)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

/* The spans a and b meet and one of them is an output: is that allowed? */
static tc_status tci_call_judge(tc_call *c, const tci_run_span *a, const tci_run_span *b)
{
    const tc_program *f = c->program;
    const tci_run_span *out = a->index < b->index ? a : b; /* outputs have the lower numbers */
    const tci_run_span *other = out == a ? b : a;
    int input = other->index - f->n_outputs;
    bool exact = a->begin == b->begin && a->end == b->end;
    if (exact && input >= 0 && tci_call_may_alias(f, out->index, input)) {
        return TC_OK;
    }
    char name[64];
    char other_name[64];
    tci_call_name_buffer(f, out->index, name, sizeof(name));
    tci_call_name_buffer(f, other->index, other_name, sizeof(other_name));
    const char *expected =
        input < 0 ? "separate memory"
        : exact   ? "separate memory (this program reads it after or beside what it writes)"
                  : "separate memory, or exactly the same where the program works in place";
    return tci_call_refuse(c, TC_ERR_BUFFER,
                           "%s: given memory [%p, %p) that overlaps %s [%p, %p), expected %s", name,
                           (void *)out->begin, (void *)out->end, other_name, (void *)other->begin,
                           (void *)other->end, expected);
}

static tc_status tci_call_check_pairs(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    int n = c->program->code->n_inputs + outputs->n;
    for (int i = 0; i < outputs->n; i++) {
        tci_run_span out = tci_call_span(c, inputs, outputs, i);
        for (int j = i + 1; j < n; j++) {
            tci_run_span other = tci_call_span(c, inputs, outputs, j);
            bool meet = other.begin < out.end && out.begin < other.end && other.begin < other.end;
            if (TCI_UNLIKELY(meet && out.begin < out.end)) {
                tc_status status = tci_call_judge(c, &out, &other);
                if (status) {
                    return status;
                }
            }
        }
    }
    return TC_OK;
}

static void tci_call_sift(tci_run_span *spans, int i, int n)
{
    tci_run_span moved = spans[i];
    for (int child = 2 * i + 1; child < n; child = 2 * i + 1) {
        if (child + 1 < n && spans[child].begin < spans[child + 1].begin) {
            child++;
        }
        if (spans[child].begin <= moved.begin) {
            break;
        }
        spans[i] = spans[child];
        i = child;
    }
    spans[i] = moved;
}

/* Heap sort by address: in place, unlike qsort. */
static void tci_call_sort(tci_run_span *spans, int n)
{
    for (int i = n / 2 - 1; i >= 0; i--) {
        tci_call_sift(spans, i, n);
    }
    for (int last = n - 1; last > 0; last--) {
        tci_run_span top = spans[0];
        spans[0] = spans[last];
        spans[last] = top;
        tci_call_sift(spans, 0, last);
    }
}

static tc_status tci_call_check_sorted(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    tci_run_span *spans = c->spans;
    int n_all = c->program->code->n_inputs + outputs->n;
    int n = 0;
    for (int i = 0; i < n_all; i++) {
        spans[n] = tci_call_span(c, inputs, outputs, i);
        n += spans[n].begin < spans[n].end;
    }
    tci_call_sort(spans, n);
    for (int i = 0; i < n; i++) {
        tci_run_span *s = &spans[i];
        bool is_output = s->index < outputs->n;
        for (int j = i - 1; j >= 0; j--) {
            if ((is_output ? spans[j].max_end : spans[j].max_out_end) <= s->begin) {
                break;
            }
            if (spans[j].end > s->begin && (is_output || spans[j].index < outputs->n)) {
                tc_status status = tci_call_judge(c, &spans[j], s);
                if (status) {
                    return status;
                }
            }
        }
        uintptr_t max_end = i ? spans[i - 1].max_end : 0;
        uintptr_t max_out_end = i ? spans[i - 1].max_out_end : 0;
        s->max_end = TCI_MAX(max_end, s->end);
        s->max_out_end = is_output ? TCI_MAX(max_out_end, s->end) : max_out_end;
    }
    return TC_OK;
}

/* ---- checks ---- */

static bool tci_call_sizes_fit(const tc_buf *b, const tci_code_port *port)
{
    bool fit = b->rank == port->rank;
    for (int i = 0; i < port->rank && fit; i++) {
        fit = b->sizes[i] == port->shape[i];
    }
    return fit;
}

/* Untyped memory is counted in bytes. */
static inline bool tci_call_fits(const tc_buf *b, const tci_code_port *port)
{
    bool typed = b->dtype == port->dtype && b->n == port->n;
    bool untyped = b->dtype == -1 && b->n == port->bytes;
    bool sized = TCI_LIKELY(!b->sizes) || tci_call_sizes_fit(b, port);
    return (typed || untyped) && (b->data || !port->n) && sized &&
           tci_dtype_is_aligned((tc_dtype)port->dtype, b->data);
}

TCI_FN tc_status tci_call_check_lists(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tc_program *f = c->program;
    if (TCI_UNLIKELY(inputs->n != f->n_inputs || outputs->n != f->n_outputs)) {
        return tci_call_refuse(c, TC_ERR_BUFFER,
                               "given %d inputs and %d outputs, expected %d and %d", inputs->n,
                               outputs->n, f->n_inputs, f->n_outputs);
    }
    if (TCI_UNLIKELY((!inputs->items && inputs->n) || (!outputs->items && outputs->n))) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "given a NULL list of buffers");
    }
    return TC_OK;
}

static tc_status tci_call_check(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tci_code *code = c->program->code;
    tc_status status = tci_call_check_lists(c, inputs, outputs);
    if (TCI_UNLIKELY(status)) {
        return status;
    }
    for (int i = 0; i < inputs->n; i++) {
        if (TCI_UNLIKELY(!tci_call_fits(&inputs->items[i], &code->inputs[i]))) {
            return tci_call_refuse_buffer(c, false, i, &inputs->items[i], &code->inputs[i]);
        }
    }
    for (int i = 0; i < outputs->n; i++) {
        const tc_buf *b = &outputs->items[i];
        if (TCI_UNLIKELY(!tci_call_fits(b, &code->outputs[i]) || b->is_const)) {
            return tci_call_refuse_buffer(c, true, i, b, &code->outputs[i]);
        }
    }
    return c->spans ? tci_call_check_sorted(c, inputs, outputs)
                    : tci_call_check_pairs(c, inputs, outputs);
}

/* ---- running ---- */

typedef struct tci_call_part { tc_call *call; const tci_run_step *step; } tci_call_part;

/* A tci_pool_body. Every part has a fault word and a workspace of its own. */
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
    } else {
        char *workspace = c->interp + (size_t)c->program->code->interp_bytes * (size_t)worker;
        tci_interp_run(step->interp, workspace, slots, step->literals, fault, begin, end);
    }
}

static void tci_call_launch_step(tc_call *c, const tci_run_step *step)
{
    tci_call_part part = {c, step};
    if (step->threads == 1) {
        tci_call_do_part(&part, 0, 0, step->n_tasks);
    } else {
        tci_pool_run(&c->program->options, step->threads, step->n_tasks, tci_call_do_part, &part);
    }
}

static void tci_call_launch(tc_call *c)
{
    const tc_program *f = c->program;
    int n_steps = f->code->n_steps;
    for (int i = 0; i < n_steps; i++) {
        const tci_run_step *step = &f->steps[i];
        if (TCI_LIKELY(step->threads == 1 && step->fn)) {
            step->fn(c->slots + step->first_slot, step->literals, step->faults ? c->faults : NULL,
                     0, step->n_tasks);
        } else {
            tci_call_launch_step(c, step);
        }
    }
}

static void tci_call_launch_traced(tc_call *c)
{
    const tci_code *code = c->program->code;
    int64_t begin = tci_os_now_ns();
    int64_t step_begin = begin;
    for (int i = 0; i < code->n_steps; i++) {
        tci_call_launch_step(c, &c->program->steps[i]);
        int64_t end = tci_os_now_ns();
        tci_trace_span("kernel", code->kernels[code->steps[i].kernel].symbol, step_begin, end);
        step_begin = end;
    }
    tci_trace_span("run", "tc_run", begin, step_begin);
}

static tc_status tci_call_judge_device(tc_call *c, tc_status status)
{
    const tc_backend *device = c->program->code->device;
    if (status) {
        const char *why = device->last_error ? device->last_error(device->user) : NULL;
        return tci_call_refuse(c, status, "the backend %s failed: %s", device->name,
                               why ? why : "no reason given");
    }
    return TC_OK;
}

TCI_FN int64_t tci_call_fault(const tc_call *c)
{
    for (int i = 0; i < c->program->max_threads; i++) {
        if (c->faults[i]) {
            return c->faults[i] - 1;
        }
    }
    return -1;
}

static tc_status tci_call_find_fault(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    int64_t size = tci_call_fault(c);
    return size < 0 ? TC_OK : tci_index_tell(c, c->program, NULL, size, inputs, outputs);
}

static void tci_call_patch(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tc_program *f = c->program;
    for (int i = 0; i < f->n_binds; i++) {
        tci_run_bind bind = f->binds[i];
        const tc_buf *b = bind.arg < f->n_inputs ? &inputs->items[bind.arg]
                                                 : &outputs->items[bind.arg - f->n_inputs];
        c->slots[bind.slot] = b->data;
    }
}

/* The buffers are checked. */
static tc_status tci_call_run_checked(tc_call *c, tc_bufs inputs, tc_bufs outputs)
{
    const tc_program *f = c->program;
    tc_status status = TC_OK;
    for (int i = 0; f->faults && i < f->max_threads; i++) {
        c->faults[i] = 0;
    }
    if (TCI_LIKELY(!c->device)) {
        tci_call_patch(c, &inputs, &outputs);
    }
    tci_fpenv saved = tci_fpenv_enter();
    if (TCI_UNLIKELY(f->code->device != NULL)) {
        status = tci_call_judge_device(c, tci_device_run(c, &inputs, &outputs));
    } else if (TCI_UNLIKELY(tci_trace_is_on())) {
        tci_call_launch_traced(c);
    } else {
        tci_call_launch(c);
    }
    tci_fpenv_leave(saved);
    if (TCI_UNLIKELY(f->faults && !status)) {
        status = tci_call_find_fault(c, &inputs, &outputs);
    }
    if (TCI_UNLIKELY(c->device && !status)) {
        status = tci_call_judge_device(c, tci_device_finish(c, &inputs, &outputs));
    }
    return status;
}

/* Parameters change only by a run that went well. */
static tc_status tci_call_run_with_params(tc_call *c, tc_bufs inputs, tc_bufs outputs)
{
    tc_status status = tci_param_begin(c);
    if (status == TC_ERR_BUSY) {
        return tci_call_refuse(c, status,
                               "another run changes a parameter that this program changes: "
                               "expected one such run at a time");
    }
    if (status) {
        return tci_call_refuse(c, status, status == TC_ERR_MEMORY
                                              ? "out of memory for the new value of a parameter"
                                              : "the device that has a parameter failed");
    }
    status = tci_call_run_checked(c, inputs, outputs);
    tci_param_end(c, !status);
    return status;
}

TCI_FN tc_status tci_call_run(tc_call *c, tc_bufs inputs, tc_bufs outputs)
{
    tc_program *f = c->program;
#ifdef TC_DYNAMIC_SHAPES
    if (c->dynamic) {
        return tci_dynamic_call_run(c, inputs, outputs);
    }
#endif
    tc_status status = tci_call_check(c, &inputs, &outputs);
    if (TCI_UNLIKELY(status != TC_OK)) {
        return status;
    }
    return TCI_LIKELY(!f->n_params) ? tci_call_run_checked(c, inputs, outputs)
                                    : tci_call_run_with_params(c, inputs, outputs);
}

#undef TCI_CALL_PAIRWISE
