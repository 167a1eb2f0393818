/* run/bind_operands.c - operand binding: resolves the operands of every launch of a run to
 * pointers.
 *
 * In: a checked call. Out: its slots, one pointer for each operand of each launch.
 *
 * On the host they are filled when the call is made, except for user memory, parameters, and
 * results of the init section, which each run updates where they changed. On a device with its
 * own memory every port (input, captured leaf or output) is bound to device memory: the user's own
 * if the backend can use it; for captured memory the storage's device copy
 * (run/device_residency.c), which is uploaded only when its bytes changed, and in which parameters
 * are updated in place; otherwise a copy that the call owns, made at first use.
 *
 * Flags: a step of a device may request private memory (tci_launch.work_bytes), placed after the
 * temporaries of each call. It is zeroed when the call is made and never shared with another step
 * or call. Runs of a call, and iterations of a loop, are sequential, however many calls are
 * in flight. No run clears it: a kernel finds its flag words as the previous run left them, so
 * those of running sums contain the run number (epoch, loop/simt_row_block.c).
 *
 * Design: while bindings stay the same, so do all arguments of all launches; the backend then
 * captures them once, and a run is one replay (run/launch_control_flow.c). */
#include "../base/alloc.h"
#include "runtime_structs.h"
#include "device_memory.h"

/* ---- on the host ---- */

TCI_FN void tci_bind_fixed(tc_call *c)
{
    const tc_program *f = c->program;
    const tci_code *code = f->code;
    int slot = 0;
    for (int i = 0; i < code->n_steps; i++) {
        int n = code->kernels[code->steps[i].kernel].n_operands;
        for (int j = 0; j < n; j++, slot++) {
            const tci_code_buffer *b = &code->buffers[code->steps[i].operands[j]];
            int64_t offset = tci_dim_known(code->steps[i].offsets[j]);
            if (b->kind == TCI_BUF_TEMP && c->workspace) {
                c->slots[slot] = c->workspace + b->offset + offset;
            } else if (b->kind == TCI_BUF_INPUT && b->index >= f->n_inputs) {
                c->slots[slot] = tci_run_at(f->captured_data[b->index - f->n_inputs], offset);
            }
        }
        if (f->steps[i].work_bytes > 0) {
            c->slots[slot++] = c->work;
        }
    }
}

TCI_FN void tci_bind_kept(tc_call *c)
{
    const tc_program *f = c->program;
    for (int i = 0; i < f->n_kept_binds; i++) {
        const tci_init_cache_bind *b = &f->kept_binds[i];
        c->slots[b->slot] = (char *)tci_init_cache_memory(c, b->unit) + b->offset;
    }
    if (c->device) {
        c->device->is_current = false;
    }
}

/* ---- on a device ---- */

TCI_FN int64_t tci_bind_bytes(const tci_code *code, int port)
{
    return tci_dim_known(port < code->n_inputs ? code->inputs[port].bytes
                                               : code->outputs[port - code->n_inputs].bytes);
}

static void tci_bind_drop_sequence(tc_call *c)
{
    const tc_backend *device = c->program->code->device;
    void **recorded[2] = {&c->device->sequence, &c->device->updates};
    for (int i = 0; i < 2; i++) {
        if (*recorded[i]) {
            device->sequence_free(device->user, *recorded[i]);
            *recorded[i] = NULL;
        }
    }
    for (int i = 0; c->device->loops && i < c->program->code->n_repeats; i++) {
        tci_walk_loop *loop = &c->device->loops[i];
        if (loop->sequence) {
            device->sequence_free(device->user, loop->sequence);
        }
        if (loop->done) {
            tci_device_memory_free(device, loop->done, sizeof(int64_t));
        }
    }
    tci_heap_free(c->device->loops);
    c->device->loops = NULL;
    c->device->runs = 0;
}

TCI_FN void tci_bind_free(tc_call *c)
{
    const tc_backend *device = c->program->code->device;
    if (!c->device) {
        return;
    }
    tci_bind_drop_sequence(c);
    if (c->device->fault) {
        device->queues->host_free(device->user, c->device->fault);
    }
    for (int i = 0; i < 1 + c->device->n_ports; i++) {
        if (c->device->memory[i]) {
            int64_t bytes = i ? tci_bind_bytes(c->program->code, i - 1)
                              : tci_code_workspace(c->program->code);
            tci_device_memory_free(device, c->device->memory[i], bytes);
        }
    }
    for (int i = 0; i < c->program->n_outputs; i++) {
        if (c->device->staging[i]) {
            device->queues->host_free(device->user, c->device->staging[i]);
        }
    }
    for (int i = 0; i < TCI_COUNT(c->device->events); i++) {
        if (c->device->events[i]) {
            device->queues->event_free(device->user, c->device->events[i]);
        }
    }
    tci_heap_free(c->device);
    c->device = NULL;
}

/* Temporaries, and zeros for what steps have for themselves. */
static bool tci_bind_memory_make(tc_call *c)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    int64_t bytes = tci_code_workspace(code), own_at = bytes;
    for (int i = 0; i < code->n_steps; i++) {
        own_at -= tci_code_own(code, &code->steps[i]);
    }
    char *memory = bytes ? tci_device_memory_get(device, bytes) : NULL;
    char *zeros = bytes > own_at ? tci_heap_get((size_t)(bytes - own_at)) : NULL;
    c->device->memory[0] = memory;
    bool is_good = (memory || !bytes) && (zeros || bytes == own_at);
    if (is_good && zeros) {
        is_good = !device->upload(device->user, memory + own_at, zeros, bytes - own_at);
    }
    tci_heap_free(zeros);
    return is_good;
}

/* The arena, and room for the rest. */
TCI_FN bool tci_bind_make(tc_call *c)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    int n = code->n_inputs + code->n_outputs;
    size_t bound_at = (sizeof(*c->device) + 15) & ~(size_t)15;
    size_t memory_at = bound_at + (size_t)n * sizeof(void *);
    size_t staging_at = memory_at + (size_t)(n + 1) * sizeof(void *);
    char *block = tci_heap_get(staging_at + (size_t)code->n_outputs * sizeof(void *));
    if (!block) {
        return false;
    }
    c->device = (struct tci_device_call *)block;
    c->device->n_ports = n;
    c->device->bound = (void **)(block + bound_at);
    c->device->memory = (void **)(block + memory_at);
    c->device->staging = (void **)(block + staging_at);
    bool has_room = tci_bind_memory_make(c);
    if (has_room && c->program->faults && device->queues) {
        c->faults = c->device->fault = device->queues->host_alloc(device->user, sizeof(*c->faults));
        has_room = c->faults != NULL;
        c->unclean = true;
    }
    if (!has_room) {
        tci_bind_free(c);
    }
    return has_room;
}

/* The captured leaf behind a port, or -1. */
static int tci_bind_captured(const tc_program *f, int port)
{
    int output = port - f->code->n_inputs;
    if (output >= f->n_outputs) {
        return f->effects[output - f->n_outputs].captured;
    }
    return output < 0 && port >= f->n_inputs ? port - f->n_inputs : -1;
}

/* A new value that must not be written over the old one before the end of the run. */
static bool tci_bind_is_staged(const tc_program *f, int port)
{
    int effect = port - f->code->n_inputs - f->n_outputs;
    return effect >= 0 && !f->effects[effect].over_old;
}

/* Bound to the memory of a parameter. */
static bool tci_bind_is_param(const tc_program *f, int port)
{
    int captured = tci_bind_captured(f, port);
    return captured >= 0 && f->captured[captured]->param && !tci_bind_is_staged(f, port);
}

/* NULL: the port is no user's, but a parameter. */
TCI_FN void *tci_bind_user_memory(const tc_call *c, const tci_run *r, int port)
{
    const tc_program *f = c->program;
    if (port < f->n_inputs) {
        return r->inputs->items[port].data;
    }
    if (port < f->code->n_inputs) {
        return f->captured_data[port - f->n_inputs];
    }
    int i = port - f->code->n_inputs;
    return i < f->n_outputs ? r->outputs->items[i].data : NULL;
}

/* Generated code takes what it may at once, so memory starts at a multiple of that. */
TCI_FN bool tci_bind_takes(const tc_backend *device, const void *memory)
{
    return (uintptr_t)memory % TCI_ALIGNED_BYTES == 0 && device->is_device &&
           device->is_device(device->user, memory);
}

/* The address of a captured leaf on the device; *bound stays NULL where the leaf is already there,
 * or has a layout that generated code cannot take. */
static tc_status tci_bind_leaf(tc_call *c, int captured, void **bound)
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
    tc_status status = tci_copies_bring(s, device, &memory);
    *bound = status ? NULL : (char *)memory + offset;
    return status;
}

/* The user's memory where generated code can take it, else a copy. */
static tc_status tci_bind_memory(tc_call *c, int port, void *user_memory, void **bound)
{
    const tci_code *code = c->program->code;
    const tc_backend *device = code->device;
    void **copy = &c->device->memory[1 + port];
    bool known = user_memory && user_memory == c->device->bound[port];
    *bound = user_memory;
    if (!known && !(user_memory && tci_bind_takes(device, user_memory))) {
        if (!*copy) {
            *copy = tci_device_memory_get(device, tci_bind_bytes(code, port));
        }
        *bound = *copy;
    }
    return *bound ? TC_OK : TC_ERR_MEMORY;
}

/* Binds one port. TC_ERR_MEMORY: the device has none left. */
static tc_status tci_bind_port(tc_call *c, int port, void *user_memory)
{
    int captured = tci_bind_captured(c->program, port);
    void *bound = NULL;
    tc_status status = TC_OK;
    if (tci_bind_bytes(c->program->code, port) > 0) {
        if (captured >= 0 && !tci_bind_is_staged(c->program, port)) {
            status = tci_bind_leaf(c, captured, &bound);
        }
        if (!status && !bound) {
            status = tci_bind_memory(c, port, user_memory, &bound);
        }
    }
    c->device->is_current = c->device->is_current && bound == c->device->bound[port];
    c->device->bound[port] = bound;
    return status;
}

TCI_FN tc_status tci_bind_ports(tc_call *c, const tci_run *r, bool params)
{
    tc_status status = TC_OK;
    for (int i = 0; i < c->device->n_ports && !status; i++) {
        if (tci_bind_is_param(c->program, i) == params) {
            status = tci_bind_port(c, i, tci_bind_user_memory(c, r, i));
        }
    }
    return status;
}

TCI_FN void *tci_bind_copy(const tc_call *c, int port)
{
    void *bound = c->device->bound[port];
    return bound == c->device->memory[1 + port] ? bound : NULL;
}

static void tci_bind_fill(tc_call *c)
{
    const tci_code *code = c->program->code;
    char *arena = c->device->memory[0];
    int64_t own_at = (code->arena_bytes + 63) / 64 * 64;
    int slot = 0;
    for (int i = 0; i < code->n_steps; i++) {
        int n_operands = code->kernels[code->steps[i].kernel].n_operands;
        for (int j = 0; j < n_operands; j++, slot++) {
            const tci_code_buffer *b = &code->buffers[code->steps[i].operands[j]];
            int64_t offset = tci_dim_known(code->steps[i].offsets[j]);
            if (b->kind == TCI_BUF_TEMP) {
                c->slots[slot] = tci_run_at(arena, b->offset + offset);
            } else if (b->kind != TCI_BUF_KEPT) {
                int first = b->kind == TCI_BUF_OUTPUT ? code->n_inputs : 0;
                c->slots[slot] = tci_run_at(c->device->bound[first + b->index], offset);
            }
        }
        if (c->program->steps[i].work_bytes > 0) {
            c->slots[slot++] = arena + own_at;
            own_at += tci_code_own(code, &code->steps[i]);
        }
    }
}

TCI_FN void tci_bind_refresh(tc_call *c)
{
    if (!c->device->is_current) {
        tci_bind_drop_sequence(c);
        tci_bind_fill(c);
        c->device->is_current = true;
    }
}
