/* api/run.c - public calls that run a program, and the record of its error message in the program
 * or the call. */
#include <stdio.h>

#include "../debug/minify.h"
#include "../run/device_memory.h"
#include "../run/shape_instances.h"
#include "../run/async_compile.h"
#include "internal.h"

TCI_FN tc_status tci_run_record(tc_program *f, tc_status why, const char *op, tc_site here,
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

TCI_FN const char *tci_run_no_workspace(const tc_program *f)
{
    const tc_backend *device = f->code->device;
    const char *memory = device ? tci_device_memory_text() : "";
    if (memory[0]) {
        return memory;
    }
    const char *why = device && device->last_error ? device->last_error(device->user) : NULL;
    return why && why[0] ? why : "out of memory: no workspace for one more call";
}

/* A run of symbolic sizes may have to compile; what computes in others is the pool's, which sets
 * the caller's floating-point environment aside by itself. */
TCI_FN tc_status tci_run_through(tc_call *c, tc_bufs inputs, tc_bufs outputs)
{
    if (TCI_UNLIKELY(tci_strided_any(&inputs, &outputs))) {
        tci_fpenv caller = tci_fpenv_enter();
        tc_status status = tci_strided_run(c, &inputs, &outputs);
        tci_fpenv_leave(caller);
        return status;
    }
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
    tc_program *runs = tci_later_current(f);
    tc_call *c = tci_call_take(runs);
    if (TCI_UNLIKELY(!c)) {
        return tci_run_record(f, TC_ERR_MEMORY, "tc_run", here, tci_run_no_workspace(runs));
    }
    tc_status status = tci_run_through(c, inputs, outputs);
    if (TCI_UNLIKELY(status == TC_ERR_CHECK)) {
        tci_minify_run(c);
    }
    if (TCI_UNLIKELY(status != TC_OK)) {
        tci_run_record(f, status, "tc_run", here, c->last.text);
    }
    tci_call_give(runs, c);
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
        return tci_run_record(f, TC_ERR_MEMORY, "tc_call_make", here, "out of memory");
    }
    tci_program_retain(f);
    *call = c;
    return TC_OK;
}

/* The call of the program's native form, made when that is there; until then, or where there is no
 * memory for it, the call itself. */
static tc_call *tci_run_native(tc_call *call)
{
    tc_program *native = tci_later_current(call->program);
    if (native != (call->native ? call->native->program : call->program)) {
        tc_call *made = tci_call_make(native); /* a second one where a quick build came first */
        if (made) {
            made->cancel = call->cancel;
            tci_call_free(call->native);
            call->native = made;
        }
    }
    return call->native ? call->native : call;
}

TC_API tc_status tc_run_call_at(tc_call *call, tc_bufs inputs, tc_bufs outputs, tc_site here)
{
    if (TCI_UNLIKELY(!call)) {
        return TC_ERR_ARGUMENT;
    }
    tc_call *runs = TCI_UNLIKELY(call->program->later != NULL) ? tci_run_native(call) : call;
    tc_status status = tci_run_through(runs, inputs, outputs);
    if (TCI_UNLIKELY(status == TC_ERR_CHECK)) {
        tci_minify_run(runs);
    }
    if (TCI_UNLIKELY(status != TC_OK && runs != call)) {
        call->last = runs->last;
    }
    if (TCI_UNLIKELY(status != TC_OK && here.file)) {
        tci_error plain = call->last;
        snprintf(call->last.text, sizeof(call->last.text), "%.400s:%d: tc_run_call: %.512s",
                 here.file, here.line, plain.text);
    }
    return status;
}

TC_API void tc_call_cancel(tc_call *call)
{
    if (call) {
        __atomic_store_n(&call->cancelled, 1, __ATOMIC_RELAXED);
    }
}

TC_API void tc_call_free(tc_call *call)
{
    if (call) {
        tc_program *f = call->program;
        tci_call_free(call);
        tci_program_release(f);
    }
}

TCI_FN tc_status tci_run_output_shape(tc_call *c, tc_bufs inputs, int output, int64_t *shape)
{
    const tci_code_port *port = &c->program->code->outputs[output];
    tc_bufs none = {NULL, c->program->n_outputs};
    if (inputs.n != c->program->n_inputs || (inputs.n && !inputs.items)) {
        return tci_call_check_lists(c, &inputs, &none);
    }
#ifdef TC_DYNAMIC_SHAPES
    if (c->program->dynamic) {
        return tci_dynamic_output(c, inputs, output, shape);
    }
#endif
    for (int i = 0; i < port->rank; i++) {
        shape[i] = tci_dim_known(port->shape[i]);
    }
    return TC_OK;
}

#ifdef TC_DYNAMIC_SHAPES

/* The size of an axis of an output, or with axis NULL its number of elements. */
static int64_t tci_run_output(tc_program *f, tc_bufs inputs, int output, const int *axis,
                              const char *op, tc_site here)
{
    if (!f) {
        return -1;
    }
    if (output < 0 || output >= f->n_outputs) {
        char text[96];
        snprintf(text, sizeof(text), "given output %d, expected 0 to %d", output, f->n_outputs - 1);
        tci_run_record(f, TC_ERR_ARGUMENT, op, here, text);
        return -1;
    }
    int rank = f->code->outputs[output].rank, at = axis ? *axis + (*axis < 0 ? rank : 0) : 0;
    if (axis && (at < 0 || at >= rank)) {
        char text[96];
        snprintf(text, sizeof(text), "given axis %d of a tensor of rank %d", *axis, rank);
        tci_run_record(f, TC_ERR_AXIS, op, here, text);
        return -1;
    }
    tc_call *c = tci_call_take(f);
    int64_t *shape = tci_heap_get(sizeof(*shape) * (size_t)TCI_MAX(rank, 1)), size = -1;
    if (!c || !shape) {
        tci_run_record(f, TC_ERR_MEMORY, op, here, "out of memory");
    } else {
        tc_status status = tci_run_output_shape(c, inputs, output, shape);
        size = status ? -1 : axis ? shape[at] : 1;
        for (int i = 0; i < rank && !axis && !status; i++) {
            size *= shape[i];
        }
        if (status) {
            tci_run_record(f, status, op, here, c->last.text);
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
    return tci_run_output(f, inputs, output, &axis, "tc_output_size", here);
}

TC_API int64_t tc_output_count_at(tc_program *f, tc_bufs inputs, int output, tc_site here)
{
    return tci_run_output(f, inputs, output, NULL, "tc_output_count", here);
}

#endif
