/* run/device.c - runs whose kernels a registered backend launches (tci_code.device).
 *
 * In: a checked call. Out: the outputs in the user's memory. Backends that work on host memory get
 * the call's operand pointers as they are. For the others every port (input, captured leaf or
 * output) is bound to device memory: the user's own where the backend can use it; for what was
 * captured the storage's own memory there (run/resident.c), which is uploaded only when its bytes
 * changed, and where parameters are changed in place; else a copy that the call owns, made when
 * first needed. Inputs with such a copy go up before, outputs come down after.
 *
 * Parameters: the order of the device keeps runs apart, so a run has them for itself only while it
 * is queued (tci_param_claim). New values that are not written over the old ones lie in copies of
 * the call and move when everything else went well.
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

/* The captured leaf behind a port, or -1. */
static int tci_device_captured(const tc_program *f, int port)
{
    int output = port - f->code->n_inputs;
    if (output >= f->n_outputs) {
        return f->effects[output - f->n_outputs].captured;
    }
    return output < 0 && port >= f->n_inputs ? port - f->n_inputs : -1;
}

/* A new value that must not be written over the old one before the end of the run. */
static bool tci_device_is_staged(const tc_program *f, int port)
{
    int effect = port - f->code->n_inputs - f->n_outputs;
    return effect >= 0 && !f->effects[effect].over_old;
}

/* Bound to the memory of a parameter. */
static bool tci_device_is_param(const tc_program *f, int port)
{
    int captured = tci_device_captured(f, port);
    return captured >= 0 && f->captured[captured]->param && !tci_device_is_staged(f, port);
}

/* NULL: the port is no user's, but a parameter. */
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
    return i < f->n_outputs ? outputs->items[i].data : NULL;
}

/* Generated code takes what it may at once, so memory starts at a multiple of that. */
static bool tci_device_takes(const tc_backend *device, const void *memory)
{
    return (uintptr_t)memory % TCI_ALIGNED_BYTES == 0 && device->is_device &&
           device->is_device(device->user, memory);
}

/* Where a captured leaf lies on the device; *bound stays NULL where the leaf is already there, or
 * lies so that generated code cannot take it. */
static tc_status tci_device_bind_captured(tc_call *c, int captured, void **bound)
{
    const tc_program *f = c->program;
    const tc_backend *device = f->code->device;
    tci_storage *s = f->captured[captured];
    const char *data = f->captured_data[captured];
    int64_t offset = s->param ? 0 : data - (const char *)s->data;
    bool there = s->borrowed && !s->residents && device->is_device &&
                 device->is_device(device->user, data);
    if (there || offset % TCI_ALIGNED_BYTES != 0) {
        return TC_OK;
    }
    void *memory = NULL;
    tc_status status = tci_resident_bring(s, device, &memory);
    *bound = status ? NULL : (char *)memory + offset;
    return status;
}

/* The user's memory where generated code can take it, else a copy. */
static tc_status tci_device_bind_memory(tc_call *c, int port, void *user_memory, void **bound)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    void **copy = &c->device->memory[1 + port];
    bool known = user_memory && user_memory == c->device->bound[port];
    *bound = user_memory;
    if (!known && !(user_memory && tci_device_takes(device, user_memory))) {
        if (!*copy) {
            *copy = device->alloc(device->user, tci_device_bytes(code, port));
        }
        *bound = *copy;
    }
    return *bound ? TC_OK : TC_ERR_MEMORY;
}

/* Binds one port. TC_ERR_MEMORY: the device has none left. */
static tc_status tci_device_bind_port(tc_call *c, int port, void *user_memory)
{
    int captured = tci_device_captured(c->program, port);
    void *bound = NULL;
    tc_status status = TC_OK;
    if (tci_device_bytes(c->program->code, port) > 0) {
        if (captured >= 0 && !tci_device_is_staged(c->program, port)) {
            status = tci_device_bind_captured(c, captured, &bound);
        }
        if (!status && !bound) {
            status = tci_device_bind_memory(c, port, user_memory, &bound);
        }
    }
    c->device->is_current = c->device->is_current && bound == c->device->bound[port];
    c->device->bound[port] = bound;
    return status;
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

/* The ports that are parameters, or all others. */
static tc_status tci_device_bind(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs,
                                 bool params)
{
    tc_status status = TC_OK;
    for (int i = 0; i < c->device->n_ports && !status; i++) {
        if (tci_device_is_param(c->program, i) == params) {
            status = tci_device_bind_port(c, i, tci_device_user_memory(c, inputs, outputs, i));
        }
    }
    return status;
}

static void tci_device_refresh(tc_call *c)
{
    if (!c->device->is_current) {
        tci_device_drop_sequence(c);
        tci_device_fill_slots(c);
        c->device->is_current = true;
    }
}

/* Copies every port that has a copy of the call in use: inputs up, or outputs down. */
static tc_status tci_device_move(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs, bool up)
{
    const tc_program *f = c->program;
    const tc_backend *device = f->code->device;
    int begin = up ? 0 : f->code->n_inputs;
    int end = up ? f->code->n_inputs : f->code->n_inputs + f->n_outputs;
    tc_status status = TC_OK;
    for (int i = begin; i < end && !status; i++) {
        void *mine = c->device->bound[i], *theirs = tci_device_user_memory(c, inputs, outputs, i);
        int64_t bytes = tci_device_bytes(f->code, i);
        if (bytes && mine && mine == c->device->memory[1 + i]) {
            status = up ? device->upload(device->user, mine, theirs, bytes)
                        : device->download(device->user, theirs, mine, bytes);
        }
    }
    return status;
}

/* The new value of a parameter, which the run left in the call's copy. */
static tc_status tci_device_commit_staged(tc_call *c, int effect)
{
    const tc_program *f = c->program;
    const tc_backend *device = f->code->device;
    const tci_run_effect *e = &f->effects[effect];
    tci_storage *s = f->captured[e->captured];
    const void *from = c->device->bound[f->code->n_inputs + f->n_outputs + effect];
    void *to = NULL;
    if (!device->copy) {
        return tci_param_download(s, device, from);
    }
    tc_status status = tci_resident_bring(s, device, &to);
    status = status ? status : device->copy(device->user, to, from, e->bytes);
    if (!status) {
        tci_resident_changed(s, device);
    }
    return status;
}

/* The run waited for its kernels. Waits for the copies too, to know that they went well. */
static tc_status tci_device_commit(tc_call *c)
{
    const tc_program *f = c->program;
    const tc_backend *device = f->code->device;
    int n_staged = 0;
    for (int i = 0; i < f->n_effects; i++) {
        n_staged += f->effects[i].bytes > 0 && !f->effects[i].over_old;
    }
    tc_status status = n_staged ? tci_param_claim(c) : TC_OK;
    if (status || !n_staged) {
        return status;
    }
    for (int i = 0; i < f->n_effects && !status; i++) {
        if (f->effects[i].bytes > 0 && !f->effects[i].over_old) {
            status = tci_device_commit_staged(c, i);
        }
    }
    tci_param_unclaim(c);
    return status || !device->copy ? status : device->sync(device->user);
}

/* What was written over is newest on the device once that is queued. */
static void tci_device_mark_changed(tc_call *c)
{
    const tc_program *f = c->program;
    for (int i = 0; i < f->n_effects; i++) {
        if (f->effects[i].bytes > 0 && f->effects[i].over_old) {
            tci_resident_changed(f->captured[f->effects[i].captured], f->code->device);
        }
    }
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

/* Inputs are there. */
static tc_status tci_device_queue(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    tc_status status = tci_param_claim(c);
    if (status) {
        return status;
    }
    status = tci_device_bind(c, inputs, outputs, true);
    if (!status) {
        tci_device_refresh(c);
        bool records = c->program->code->device->record && c->program->code->n_steps > 0;
        status = records ? tci_device_replay(c) : tci_device_launch_all(c);
    }
    if (!status) {
        tci_device_mark_changed(c);
    }
    tci_param_unclaim(c);
    return status;
}

/* The backend's own status; why it failed is asked of the backend by the caller. */
TCI_FN tc_status tci_device_run(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tc_backend *device = c->program->code->device;
    tc_status status = TC_OK;
    if (c->device) {
        status = tci_device_bind(c, inputs, outputs, false);
        status = status ? status : tci_device_move(c, inputs, outputs, true);
        status = status ? status : tci_device_queue(c, inputs, outputs);
    } else {
        status = tci_device_launch_all(c);
    }
    /* Also when it failed: what was launched before writes to memory and faults of this call. */
    tc_status synced = device->sync(device->user);
    return status ? status : synced;
}

TCI_FN tc_status tci_device_finish(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    tc_status status = tci_device_move(c, inputs, outputs, false);
    return status ? status : tci_device_commit(c);
}
