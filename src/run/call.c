/* run/call.c - executes one run of a program, from the user's buffers to results.
 *
 * In: a program, the user's buffers. Out: the outputs are written, or none is and c->last has the
 * error. Errors found after the fact (TC_ERR_INDEX, a device that fails) leave outputs partly
 * written, but parameters as they were (run/param.c).
 *
 * Design: a call holds everything that one run needs besides the user's buffers, so a run allocates
 * nothing. The common case takes an idle call by one atomic exchange (no ABA problem, since the
 * whole call changes hands), checks a few numbers (run/check_buffers.c), writes a few pointers
 * (run/bind_operands.c) and executes the steps (run/execute.c); no lock, no system call.
 *
 * Parameters: a run finds them at its start and releases them at its end (run/param.c); only
 * programs that have some take a lock for that. */
#include "../base/alloc.h"
#include "../debug/kernel_check.h"
#include "shape_instances.h"

/* ---- making ---- */

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
    size_t faults_at = values_at +
                       ((size_t)f->n_params + (size_t)f->n_effects) * sizeof(tci_param_value *);
    size_t versions_at = faults_at + (size_t)f->max_threads * sizeof(int64_t);
    size_t spans_at = versions_at + (size_t)f->n_once * sizeof(uint64_t);
    bool sorts = n_buffers > TCI_CHECK_PAIRWISE;
    size_t bytes = spans_at + (sorts ? n_buffers * sizeof(tci_run_span) : 0);
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
    c->cancel = &c->cancelled;
    c->slots = (void **)((char *)c + slots_at);
    c->values = (tci_param_value **)(void *)((char *)c + values_at);
    c->faults = (int64_t *)((char *)c + faults_at);
    c->versions = (uint64_t *)((char *)c + versions_at);
    c->spans = sorts ? (tci_run_span *)((char *)c + spans_at) : NULL;
    if (!on_device) {
        tci_bind_fixed(c);
    } else if (!tci_bind_make(c)) {
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
        tci_call_free(c->native);
        tci_checker_end(c);
        tci_init_cache_drop(c);
        tci_bind_free(c);
        tci_heap_free_aligned(c->workspace);
        tci_heap_free_aligned(c->strided);
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

/* ---- running ---- */

static tc_status tci_call_begin_params(tc_call *c)
{
    tc_status status = tci_param_begin(c);
    if (status == TC_ERR_BUSY) {
        return tci_call_refuse(c, status,
                               "another run changes a parameter that this program changes: "
                               "expected one such run at a time");
    }
    return status ? tci_call_refuse(c, status,
                                    status == TC_ERR_MEMORY
                                        ? "out of memory for the new value of a parameter"
                                        : "the device that has a parameter failed")
                  : TC_OK;
}

/* Parameters change only by a run that went well. */
static tc_status tci_call_run_with_params(tc_call *c, tci_run *r)
{
    tc_status status = tci_call_begin_params(c);
    if (!status) {
        status = tci_walk_run(c, r);
        tci_param_end(c, !status);
    }
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
    tci_run r = {.inputs = &inputs, .outputs = &outputs};
    return TCI_LIKELY(!f->n_params) ? tci_walk_run(c, &r) : tci_call_run_with_params(c, &r);
}

/* ---- asynchronous runs ---- */

TCI_FN tc_status tci_call_accept(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs,
                                 tc_call **inner)
{
    *inner = c;
#ifdef TC_DYNAMIC_SHAPES
    if (c->dynamic) {
        tc_status ready = tci_dynamic_ready(c, inputs, outputs, inner);
        if (!ready) {
            ready = tci_call_told(c, tci_call_check(*inner, inputs, outputs), inputs, outputs);
        }
        return ready;
    }
#endif
    return tci_call_check(c, inputs, outputs);
}

TCI_FN tc_status tci_call_begin(tc_call *inner, tci_run *r)
{
    bool has_params = inner->program->n_params > 0;
    tc_status status = has_params ? tci_call_begin_params(inner) : TC_OK;
    if (!status) {
        status = tci_walk_begin(inner, r);
        if (status && has_params) {
            tci_param_end(inner, false);
        }
    }
    return status;
}

TCI_FN tc_status tci_call_end(tc_call *inner, tci_run *r)
{
    tc_status status = tci_walk_end(inner, r);
    if (inner->program->n_params) {
        tci_param_end(inner, !status);
    }
    return status;
}

TCI_FN tc_status tci_call_told(tc_call *c, tc_status status, const tc_bufs *inputs,
                               const tc_bufs *outputs)
{
#ifdef TC_DYNAMIC_SHAPES
    if (status && c->dynamic) {
        return tci_dynamic_told(c, status, inputs, outputs);
    }
#endif
    (void)c, (void)inputs, (void)outputs;
    return status;
}
