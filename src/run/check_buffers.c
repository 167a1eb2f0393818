/* run/check_buffers.c - validates the buffers of a run.
 *
 * In: a call, the user's buffers. Out: success, or c->last with the error of the first invalid
 * buffer.
 *
 * Overlap: an output may be exactly the memory of an input if the plan allows that pair; any other
 * overlap of an output is refused. Few buffers are compared pairwise; many are sorted by address,
 * and each span looks back only as far as an earlier span reaches. */
#include <stdarg.h>
#include <stdio.h>

#include "runtime_structs.h"

/* ---- texts of refusals: never on the fast path ---- */

static const char *tci_check_dtype_name(int dtype)
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

static tc_status tci_check_refuse_buffer(tc_call *c, bool is_output, int i, const tc_buf *b,
                                         const tci_code_port *port)
{
    const char *side = is_output ? "output" : "input";
    const char *dtype = tci_check_dtype_name(port->dtype);
    char shape[256];
    tci_graph_print_shape(shape, sizeof(shape), port->rank, port->shape);
    if (is_output && b->is_const) {
        return tci_call_refuse(c, TC_ERR_BUFFER,
                               "%s %d: given a pointer to const, expected writable memory of"
                               " %lld %s",
                               side, i, (long long)port->n, dtype);
    }
    if (b->strides) {
        return tci_call_refuse(c, TC_ERR_BUFFER,
                               "%s %d: given strides, expected dense memory of"
                               " %lld %s",
                               side, i, (long long)port->n, dtype);
    }
    if (!b->data && port->n) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "%s %d: given NULL, expected %lld %s, shape %s",
                               side, i, (long long)port->n, dtype, shape);
    }
    if (b->dtype != port->dtype && b->dtype != -1) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "%s %d: given %s, expected %s", side, i,
                               tci_check_dtype_name(b->dtype), dtype);
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
                               side, i, (long long)b->n, (long long)port->bytes, (long long)port->n,
                               dtype, shape);
    }
    if (b->sizes && (b->n == port->n || b->dtype == -1)) {
        char sizes[256];
        tci_graph_print_shape(sizes, sizeof(sizes), b->rank, tci_dim_list(b->sizes));
        return tci_call_refuse(c, TC_ERR_BUFFER, "%s %d: given sizes %s, expected %s", side, i,
                               sizes, shape);
    }
    return tci_call_refuse(c, TC_ERR_BUFFER,
                           "%s %d: given %lld elements, expected %lld of %s, shape %s", side, i,
                           (long long)b->n, (long long)port->n, dtype, shape);
}

/* Name of buffer `index` in the order of tci_run_span. */
static void tci_check_name_buffer(const tc_program *f, int index, char *text, size_t room)
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

/* ---- memory of devices ---- */

TCI_FN tc_status tci_call_check_memory(tc_call *c, const char *what, int i, const void *data)
{
    const char *device = tci_backend_hides(data);
    return device ? tci_call_refuse(c, TC_ERR_BUFFER,
                                    "%s %d: given %p, memory of a %s device, which this run would "
                                    "read or write on the host: expected memory of the host (or a "
                                    "program with options.backend \"%s\", and dense)",
                                    what, i, data, device, device)
                  : TC_OK;
}

/* Of a program that runs on the host. */
static tc_status tci_check_all_memory(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tc_program *f = c->program;
    tc_status status = TC_OK;
    for (int i = 0; i < outputs->n && !status; i++) {
        status = tci_call_check_memory(c, "output", i, outputs->items[i].data);
    }
    for (int i = 0; i < inputs->n && !status; i++) {
        status = tci_call_check_memory(c, "input", i, inputs->items[i].data);
    }
    for (int i = 0; i < f->code->n_inputs - f->n_inputs && !status; i++) {
        status = tci_call_check_memory(c, "the captured tensor", i, f->captured_data[i]);
    }
    return status;
}

/* ---- overlaps ---- */

static tci_run_span tci_check_span(const tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs,
                                   int index)
{
    const tc_program *f = c->program;
    const tci_code *code = f->code;
    int input = index - f->n_outputs;
    const void *data;
    int64_t bytes;
    if (input < 0) {
        data = outputs->items[index].data;
        bytes = tci_dim_known(code->outputs[index].bytes);
    } else {
        data = input < f->n_inputs ? inputs->items[input].data
                                   : f->captured_data[input - f->n_inputs];
        /* no user has memory of a parameter */
        bytes = data ? tci_dim_known(code->inputs[input].bytes) : 0;
    }
    tci_run_span span = {(uintptr_t)data, (uintptr_t)data + (uintptr_t)bytes, 0, 0, index};
    return span;
}

static bool tci_check_may_alias(const tc_program *f, int output, int input)
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
static tc_status tci_check_judge(tc_call *c, const tci_run_span *a, const tci_run_span *b)
{
    const tc_program *f = c->program;
    const tci_run_span *out = a->index < b->index ? a : b; /* outputs have the lower numbers */
    const tci_run_span *other = out == a ? b : a;
    int input = other->index - f->n_outputs;
    bool exact = a->begin == b->begin && a->end == b->end;
    if (exact && input >= 0 && tci_check_may_alias(f, out->index, input)) {
        return TC_OK;
    }
    char name[64];
    char other_name[64];
    tci_check_name_buffer(f, out->index, name, sizeof(name));
    tci_check_name_buffer(f, other->index, other_name, sizeof(other_name));
    const char *expected =
        input < 0 ? "separate memory"
        : exact   ? "separate memory (this program reads it after or while it writes)"
                  : "separate memory, or exactly the same where the program works in place";
    return tci_call_refuse(c, TC_ERR_BUFFER,
                           "%s: given memory [%p, %p) that overlaps %s [%p, %p), expected %s", name,
                           (void *)out->begin, (void *)out->end, other_name, (void *)other->begin,
                           (void *)other->end, expected);
}

static tc_status tci_check_check_pairs(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    int n = c->program->code->n_inputs + outputs->n;
    for (int i = 0; i < outputs->n; i++) {
        tci_run_span out = tci_check_span(c, inputs, outputs, i);
        for (int j = i + 1; j < n; j++) {
            tci_run_span other = tci_check_span(c, inputs, outputs, j);
            bool meet = other.begin < out.end && out.begin < other.end && other.begin < other.end;
            if (TCI_UNLIKELY(meet && out.begin < out.end)) {
                tc_status status = tci_check_judge(c, &out, &other);
                if (status) {
                    return status;
                }
            }
        }
    }
    return TC_OK;
}

static void tci_check_sift(tci_run_span *spans, int i, int n)
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
static void tci_check_sort(tci_run_span *spans, int n)
{
    for (int i = n / 2 - 1; i >= 0; i--) {
        tci_check_sift(spans, i, n);
    }
    for (int last = n - 1; last > 0; last--) {
        tci_run_span top = spans[0];
        spans[0] = spans[last];
        spans[last] = top;
        tci_check_sift(spans, 0, last);
    }
}

static tc_status tci_check_check_sorted(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    tci_run_span *spans = c->spans;
    int n_all = c->program->code->n_inputs + outputs->n;
    int n = 0;
    for (int i = 0; i < n_all; i++) {
        spans[n] = tci_check_span(c, inputs, outputs, i);
        n += spans[n].begin < spans[n].end;
    }
    tci_check_sort(spans, n);
    for (int i = 0; i < n; i++) {
        tci_run_span *s = &spans[i];
        bool is_output = s->index < outputs->n;
        for (int j = i - 1; j >= 0; j--) {
            if ((is_output ? spans[j].max_end : spans[j].max_out_end) <= s->begin) {
                break;
            }
            if (spans[j].end > s->begin && (is_output || spans[j].index < outputs->n)) {
                tc_status status = tci_check_judge(c, &spans[j], s);
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

static bool tci_check_sizes_fit(const tc_buf *b, const tci_code_port *port)
{
    bool fit = b->rank == port->rank;
    for (int i = 0; i < port->rank && fit; i++) {
        fit = b->sizes[i] == port->shape[i];
    }
    return fit;
}

/* Untyped memory is counted in bytes. */
static inline bool tci_check_fits(const tc_buf *b, const tci_code_port *port)
{
    bool typed = b->dtype == port->dtype && b->n == port->n;
    bool untyped = b->dtype == -1 && b->n == port->bytes;
    bool sized = TCI_LIKELY(!b->sizes) || (tci_check_sizes_fit(b, port) && !b->strides);
    return (typed || untyped) && (b->data || !port->n) && sized &&
           tci_dtype_is_aligned((tc_dtype)port->dtype, b->data);
}

/* Where `given` is not the number of ports on that side: "; missing input 1 'rate', input 2 'x'",
 * or "; it has input 0 'y'" where there are too many, as far as there is room. "" where it fits. */
static void tci_check_list_ports(const tc_program *f, bool is_output, int given, char *text,
                                 size_t room)
{
    enum { TCI_CHECK_NAME = 40, TCI_CHECK_SHAPE = 60, TCI_CHECK_REST = TCI_CHECK_SHAPE + 50 };
    const int n_ports = is_output ? f->n_outputs : f->n_inputs;
    const tc_port *ports = is_output && f->ports ? f->ports + f->n_inputs : f->ports;
    const bool few = given < n_ports;
    size_t n = 0;
    int i = few ? TCI_MAX(given, 0) : 0;
    text[0] = 0;
    for (; ports && given != n_ports && i < n_ports && n + TCI_CHECK_REST < room; i++) {
        n += (size_t)snprintf(text + n, room - n, "%s%s %d",
                              n     ? ", "
                              : few ? "; missing "
                                    : "; it has ",
                              is_output ? "output" : "input", i);
        if (ports[i].name[0]) {
            n += (size_t)snprintf(text + n, room - n, " '%.*s'", TCI_CHECK_NAME, ports[i].name);
        } else {
            char shape[TCI_CHECK_SHAPE];
            tci_graph_print_shape(shape, sizeof(shape), ports[i].rank,
                                  tci_dim_list(ports[i].sizes));
            n += (size_t)snprintf(text + n, room - n, " (%s %s)",
                                  tci_check_dtype_name(ports[i].dtype), shape);
        }
    }
    if (n && i < n_ports) {
        snprintf(text + n, room - n, ", ...");
    }
}

TCI_FN tc_status tci_call_check_lists(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tc_program *f = c->program;
    if (TCI_UNLIKELY(inputs->n != f->n_inputs || outputs->n != f->n_outputs)) {
        char in[300], out[300];
        tci_check_list_ports(f, false, inputs->n, in, sizeof(in));
        tci_check_list_ports(f, true, outputs->n, out, sizeof(out));
        return tci_call_refuse(c, TC_ERR_BUFFER,
                               "given %d inputs and %d outputs, expected %d and %d%s%s", inputs->n,
                               outputs->n, f->n_inputs, f->n_outputs, in, out);
    }
    if (TCI_UNLIKELY((!inputs->items && inputs->n) || (!outputs->items && outputs->n))) {
        return tci_call_refuse(c, TC_ERR_BUFFER, "given a NULL list of buffers");
    }
    return TC_OK;
}

TCI_FN tc_status tci_call_check(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tci_code *code = c->program->code;
    tc_status status = tci_call_check_lists(c, inputs, outputs);
    if (TCI_UNLIKELY(status)) {
        return status;
    }
    for (int i = 0; i < inputs->n; i++) {
        if (TCI_UNLIKELY(!tci_check_fits(&inputs->items[i], &code->inputs[i]))) {
            return tci_check_refuse_buffer(c, false, i, &inputs->items[i], &code->inputs[i]);
        }
    }
    for (int i = 0; i < outputs->n; i++) {
        const tc_buf *b = &outputs->items[i];
        if (TCI_UNLIKELY(!tci_check_fits(b, &code->outputs[i]) || b->is_const)) {
            return tci_check_refuse_buffer(c, true, i, b, &code->outputs[i]);
        }
    }
    if (!code->device && TCI_UNLIKELY(tci_backend_hides_any())) {
        status = tci_check_all_memory(c, inputs, outputs);
        if (status) {
            return status;
        }
    }
    return c->spans ? tci_check_check_sorted(c, inputs, outputs)
                    : tci_check_check_pairs(c, inputs, outputs);
}
