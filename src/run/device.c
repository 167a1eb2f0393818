/* run/device.c - runs whose kernels a registered backend launches (tci_code.device).
 *
 * In: a checked call. Out: the outputs in the user's memory. Backends that work on host memory get
 * the call's operand pointers as they are. For the others the call owns a device copy of every
 * input, captured leaf and output, and of the arena; inputs go up before, outputs come down after.
 *
 * tc_call.device: [0] the arena, then inputs (captured leaves too), then outputs; NULL without
 * device memory. */
#include "../base/alloc.h"
#include "context.h"

static int64_t tci_device_bytes(const tci_code *code, int i)
{
    if (i == 0) {
        return code->arena_bytes;
    }
    return i <= code->n_inputs ? code->inputs[i - 1].bytes
                               : code->outputs[i - 1 - code->n_inputs].bytes;
}

TCI_FN void tci_device_free(tc_call *c)
{
    const tci_code *code = c->program->code;
    for (int i = 0; c->device && i < 1 + code->n_inputs + code->n_outputs; i++) {
        if (c->device[i]) {
            code->device->free(code->device->user, c->device[i]);
        }
    }
    tci_heap_free(c->device);
    c->device = NULL;
}

/* Fills c->slots with device memory. False: there is none left. */
TCI_FN bool tci_device_make(tc_call *c)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    int n = 1 + code->n_inputs + code->n_outputs;
    c->device = tci_heap_get((size_t)n * sizeof(void *));
    for (int i = 0; c->device && i < n; i++) {
        int64_t bytes = tci_device_bytes(code, i);
        c->device[i] = bytes ? device->alloc(device->user, bytes) : NULL;
        if (bytes && !c->device[i]) {
            tci_device_free(c);
        }
    }
    if (!c->device) {
        return false;
    }
    int slot = 0;
    for (int i = 0; i < code->n_steps; i++) {
        int n_operands = code->kernels[code->steps[i].kernel].n_operands;
        for (int j = 0; j < n_operands; j++, slot++) {
            const tci_code_buffer *b = &code->buffers[code->steps[i].operands[j]];
            if (b->kind == TCI_BUF_TEMP) {
                c->slots[slot] = c->device[0] ? (char *)c->device[0] + b->offset : NULL;
            } else {
                c->slots[slot] =
                    c->device[1 + (b->kind == TCI_BUF_OUTPUT ? code->n_inputs : 0) + b->index];
            }
        }
    }
    return true;
}

static tc_status tci_device_upload(tc_call *c, const tc_bufs *inputs)
{
    const tc_program *f = c->program;
    const tc_backend *device = f->code->device;
    tc_status status = TC_OK;
    for (int i = 0; i < f->code->n_inputs && !status; i++) {
        const void *from = i < f->n_inputs ? inputs->items[i].data
                                           : f->captured_data[i - f->n_inputs];
        int64_t bytes = f->code->inputs[i].bytes;
        if (bytes) {
            status = device->upload(device->user, c->device[1 + i], from, bytes);
        }
    }
    return status;
}

static tc_status tci_device_download(tc_call *c, const tc_bufs *outputs)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    tc_status status = TC_OK;
    for (int i = 0; i < code->n_outputs && !status; i++) {
        int64_t bytes = code->outputs[i].bytes;
        if (bytes) {
            status = device->download(device->user, outputs->items[i].data,
                                      c->device[1 + code->n_inputs + i], bytes);
        }
    }
    return status;
}

static tc_status tci_device_launch(tc_call *c, int i)
{
    const tci_code *code = c->program->code;
    const tci_run_step *step = &c->program->steps[i];
    const tci_code_kernel *kernel = &code->kernels[code->steps[i].kernel];
    tc_launch launch = {.function = kernel->function,
                        .buffers = c->slots + step->first_slot,
                        .literals = step->literals,
                        .fault = step->faults ? c->faults : NULL,
                        .n_buffers = kernel->n_operands,
                        .n_literals = kernel->n_literals,
                        .task_begin = 0,
                        .task_end = step->n_tasks};
    return code->device->launch(code->device->user, &launch);
}

/* The backend's own status; why it failed is asked of the backend by the caller. */
TCI_FN tc_status tci_device_run(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tci_code *code = c->program->code;
    tc_status status = c->device ? tci_device_upload(c, inputs) : TC_OK;
    for (int i = 0; i < code->n_steps && !status; i++) {
        status = tci_device_launch(c, i);
    }
    if (!status) {
        status = code->device->sync(code->device->user);
    }
    return status || !c->device ? status : tci_device_download(c, outputs);
}
