/* run/device.c - runs whose kernels a registered backend launches (tci_code.device).
 *
 * In: a checked call. Out: the outputs in the user's memory. Backends that work on host memory get
 * the call's operand pointers as they are. For the others every port (input, captured leaf or
 * output) is bound to device memory: the user's own where the backend can use it, else a copy that
 * the call owns, made when first needed. Inputs with a copy go up before, outputs come down after.
 *
 * The one idea: as long as bindings stay as they were, so do all arguments of all launches; the
 * backend then records them once, and a run is one replay.
 *
 * tc_call.device: memory[0] the arena, then a copy for each port or NULL; bound[i]: what port i was
 * bound to last. Ports are numbered inputs first, captured leaves, then outputs. */
#include "../base/alloc.h"
#include "../loop/mem.h"
#include "context.h"

struct tci_device_call {
    int n_ports;
    bool is_current;    /* the call's slots hold what is bound */
    void *sequence;     /* recorded launches, or NULL */
    tc_launch *launches;
    void **bound;
    void **memory;      /* 1 + n_ports */
};

static int64_t tci_device_bytes(const tci_code *code, int port)
{
    return port < code->n_inputs ? code->inputs[port].bytes
                                 : code->outputs[port - code->n_inputs].bytes;
}

static void tci_device_drop_sequence(tc_call *c)
{
    const tc_backend *device = c->program->code->device;
    if (c->device->sequence) {
        device->sequence_free(device->user, c->device->sequence);
        c->device->sequence = NULL;
    }
}

TCI_FN void tci_device_free(tc_call *c)
{
    const tc_backend *device = c->program->code->device;
    if (!c->device) {
        return;
    }
    tci_device_drop_sequence(c);
    for (int i = 0; i < 1 + c->device->n_ports; i++) {
        if (c->device->memory[i]) {
            device->free(device->user, c->device->memory[i]);
        }
    }
    tci_heap_free(c->device);
    c->device = NULL;
}

/* The arena, and room for the rest. False: there is no memory left. */
TCI_FN bool tci_device_make(tc_call *c)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    int n = code->n_inputs + code->n_outputs;
    size_t launches_at = (sizeof(*c->device) + 15) & ~(size_t)15;
    size_t bound_at = launches_at + (size_t)code->n_steps * sizeof(tc_launch);
    size_t memory_at = bound_at + (size_t)n * sizeof(void *);
    char *block = tci_heap_get(memory_at + (size_t)(n + 1) * sizeof(void *));
    if (!block) {
        return false;
    }
    c->device = (struct tci_device_call *)block;
    c->device->n_ports = n;
    c->device->launches = (tc_launch *)(block + launches_at);
    c->device->bound = (void **)(block + bound_at);
    c->device->memory = (void **)(block + memory_at);
    if (code->arena_bytes) {
        c->device->memory[0] = device->alloc(device->user, code->arena_bytes);
        if (!c->device->memory[0]) {
            tci_device_free(c);
            return false;
        }
    }
    return true;
}

/* ---- binding ---- */

static void *tci_device_user_memory(const tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs,
                                    int port)
{
    const tc_program *f = c->program;
    if (port < f->n_inputs) {
        return inputs->items[port].data;
    }
    if (port < f->code->n_inputs) {
        return f->captured_data[port - f->n_inputs];
    }
    int i = port - f->code->n_inputs;
    return i < f->n_outputs ? outputs->items[i].data
                            : f->captured_data[f->effects[i - f->n_outputs].captured];
}

/* Generated code takes what it may at once, so memory starts at a multiple of that. */
static bool tci_device_takes(const tc_backend *device, const void *memory)
{
    return (uintptr_t)memory % TCI_ALIGNED_BYTES == 0 && device->is_device &&
           device->is_device(device->user, memory);
}

/* Binds one port. TC_ERR_MEMORY: the device has none left. */
static tc_status tci_device_bind_port(tc_call *c, int port, void *user_memory)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    void **copy = &c->device->memory[1 + port], *bound = user_memory;
    int64_t bytes = tci_device_bytes(code, port);
    if (bytes == 0) {
        bound = NULL;
    } else if (user_memory != c->device->bound[port] && !tci_device_takes(device, user_memory)) {
        if (!*copy) {
            *copy = device->alloc(device->user, bytes);
        }
        bound = *copy;
        if (!bound) {
            return TC_ERR_MEMORY;
        }
    }
    c->device->is_current = c->device->is_current && bound == c->device->bound[port];
    c->device->bound[port] = bound;
    return TC_OK;
}

static void tci_device_fill_slots(tc_call *c)
{
    const tci_code *code = c->program->code;
    char *arena = c->device->memory[0];
    int slot = 0;
    for (int i = 0; i < code->n_steps; i++) {
        int n_operands = code->kernels[code->steps[i].kernel].n_operands;
        for (int j = 0; j < n_operands; j++, slot++) {
            const tci_code_buffer *b = &code->buffers[code->steps[i].operands[j]];
            if (b->kind == TCI_BUF_TEMP) {
                c->slots[slot] = arena ? arena + b->offset : NULL;
            } else {
                int first = b->kind == TCI_BUF_OUTPUT ? code->n_inputs : 0;
                c->slots[slot] = c->device->bound[first + b->index];
            }
        }
    }
}

static tc_status tci_device_bind(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    tc_status status = TC_OK;
    for (int i = 0; i < c->device->n_ports && !status; i++) {
        status = tci_device_bind_port(c, i, tci_device_user_memory(c, inputs, outputs, i));
    }
    if (!status && !c->device->is_current) {
        tci_device_drop_sequence(c);
        tci_device_fill_slots(c);
        c->device->is_current = true;
    }
    return status;
}

/* Copies every port that has a copy in use: inputs up, or outputs down. */
static tc_status tci_device_move(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs, bool up)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    int begin = up ? 0 : code->n_inputs, end = up ? code->n_inputs : c->device->n_ports;
    tc_status status = TC_OK;
    for (int i = begin; i < end && !status; i++) {
        void *mine = c->device->bound[i], *theirs = tci_device_user_memory(c, inputs, outputs, i);
        int64_t bytes = tci_device_bytes(code, i);
        if (bytes && mine != theirs) {
            status = up ? device->upload(device->user, mine, theirs, bytes)
                        : device->download(device->user, theirs, mine, bytes);
        }
    }
    return status;
}

/* ---- launching ---- */

static tc_launch tci_device_launch(const tc_call *c, int i)
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
    return launch;
}

static tc_status tci_device_launch_all(tc_call *c)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    tc_status status = TC_OK;
    for (int i = 0; i < code->n_steps && !status; i++) {
        tc_launch launch = tci_device_launch(c, i);
        status = device->launch(device->user, &launch);
    }
    return status;
}

static tc_status tci_device_replay(tc_call *c)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    tc_status status = TC_OK;
    if (!c->device->sequence) {
        for (int i = 0; i < code->n_steps; i++) {
            c->device->launches[i] = tci_device_launch(c, i);
        }
        status = device->record(device->user, c->device->launches, code->n_steps,
                                &c->device->sequence);
    }
    return status ? status : device->replay(device->user, c->device->sequence);
}

/* The backend's own status; why it failed is asked of the backend by the caller. */
TCI_FN tc_status tci_device_run(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tc_backend *device = c->program->code->device;
    tc_status status = TC_OK;
    if (c->device) {
        status = tci_device_bind(c, inputs, outputs);
        status = status ? status : tci_device_move(c, inputs, outputs, true);
    }
    if (!status) {
        bool records = c->device && device->record && c->program->code->n_steps > 0;
        status = records ? tci_device_replay(c) : tci_device_launch_all(c);
    }
    if (!status) {
        status = device->sync(device->user);
    }
    return status || !c->device ? status : tci_device_move(c, inputs, outputs, false);
}
