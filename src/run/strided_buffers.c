/* run/strided_buffers.c - supports strided input and output buffers: gathers strided inputs into
 * dense copies before a run, and scatters dense outputs back after it.
 *
 * In: a call; buffers, some of them strided. Out: the run, on dense copies.
 *
 * Design: generated code expects dense memory, so the elements of an input are gathered before the
 * run, and those of an output are scattered after a run that succeeded. The user's memory is not
 * written in between, so such an output may overlap any input. Copies belong to the call: a run
 * with the sizes of the previous one allocates nothing. */
#include "../base/alloc.h"
#include "shape_instances.h"

#include <stdlib.h>
#include <string.h>

TCI_FN bool tci_strided_any(const tc_bufs *inputs, const tc_bufs *outputs)
{
    for (int side = 0; side < 2; side++) {
        const tc_bufs *list = side ? outputs : inputs;
        for (int i = 0; list->items && i < list->n; i++) {
            if (list->items[i].strides) {
                return true;
            }
        }
    }
    return false;
}

/* ---- checks ---- */

/* Whether b's elements, as many as its sizes say, are within what an address can reach. */
static bool tci_strided_reaches(const tc_buf *b)
{
    int64_t most = INT64_MAX / 8 / tci_dtype_get((tc_dtype)b->dtype)->bytes;
    if (tci_buf_sized(*b, b->rank, b->sizes).n != b->n) {
        return false;
    }
    for (int i = 0; i < b->rank; i++) {
        const int64_t stride = b->strides[i], steps = b->sizes[i] - 1;
        if (steps > 0 && (stride < -most || stride > most || most / steps < llabs(stride))) {
            return false;
        }
        most -= steps > 0 ? steps * llabs(stride) : 0;
    }
    return true;
}

static tc_status tci_strided_check(tc_call *c, const tc_buf *b, bool is_output, int i)
{
    const tci_code *code = c->program->code;
    const tci_code_port *port = is_output ? &code->outputs[i] : &code->inputs[i];
    const bool sized = b->sizes && b->n >= 0 && b->rank >= 0;
    const char *why = !tci_dtype_is_valid(b->dtype)        ? "untyped memory"
                      : !sized                             ? "no sizes"
                      : !b->data && b->n                   ? "NULL"
                      : is_output && b->is_const           ? "a pointer to const"
                      : !tci_strided_reaches(b)            ? "sizes or strides that do not fit"
                      : is_output && tci_overlap_itself(b) ? "two elements in one place"
                                                           : NULL;
    if (!why && b->n > tci_dim_most(port->n)) { /* before so much is copied */
        return tci_call_refuse(c, TC_ERR_BUFFER,
                               "%s %d: given %lld elements, expected %s%lld of %s",
                               is_output ? "output" : "input", i, (long long)b->n,
                               tci_dim_is_known(port->n) ? "" : "at most ",
                               (long long)tci_dim_most(port->n),
                               tci_dtype_get((tc_dtype)port->dtype)->name);
    }
    if (!why && !tci_dtype_is_aligned((tc_dtype)b->dtype, b->data)) {
        why = "an address that its type cannot have";
    }
    if (!why) { /* copied on the host, whatever runs the program */
        return tci_call_check_memory(c, is_output ? "output" : "input", i, b->data);
    }
    return tci_call_refuse(c, TC_ERR_BUFFER,
                           "%s %d: given strides and %s, expected%s memory of typed elements and "
                           "the sizes and strides of all axes%s",
                           is_output ? "output" : "input", i, why, is_output ? " writable" : "",
                           is_output ? ", no element twice" : "");
}

/* Checks that no other output overlaps output i, where one of the two has strides. */
static tc_status tci_strided_check_outputs(tc_call *c, const tc_bufs *outputs, int i)
{
    for (int k = 0; k < i; k++) {
        const tc_buf *a = &outputs->items[k], *b = &outputs->items[i];
        if ((a->strides || b->strides) && a->data && b->data && tci_overlap_each_other(a, b)) {
            return tci_call_refuse(c, TC_ERR_BUFFER,
                                   "output %d: given strides over elements of output %d, expected "
                                   "separate memory",
                                   b->strides ? i : k, b->strides ? k : i);
        }
    }
    return TC_OK;
}

/* ---- copies ---- */

/* One element after the other: `to` and `from` step by this many of them. The elements have the
 * user's types, so they are moved as bytes, of a number that the compiler knows. */
#define TCI_STRIDED_LINE(bytes)                                                                    \
    for (int64_t i = 0; i < n; i++) {                                                              \
        memcpy(to + i * to_step * (bytes), from + i * from_step * (bytes), (bytes));               \
    }

static void tci_strided_line(char *to, int64_t to_step, const char *from, int64_t from_step,
                             int64_t n, int bytes)
{
    switch (bytes) {
    case 1: TCI_STRIDED_LINE(1) break;
    case 2: TCI_STRIDED_LINE(2) break;
    case 4: TCI_STRIDED_LINE(4) break;
    default: TCI_STRIDED_LINE(8) break;
    }
}
#undef TCI_STRIDED_LINE

/* The elements of b and dense memory of them, in row-major order: into that, or back. index: room
 * for as many as b has axes. */
static void tci_strided_copy(const tc_buf *b, char *dense, bool back, int64_t *index)
{
    const int bytes = tci_dtype_get((tc_dtype)b->dtype)->bytes, last = b->rank - 1;
    const int64_t n = b->rank ? b->sizes[last] : 1, step = b->rank ? b->strides[last] : 1;
    memset(index, 0, sizeof(*index) * (size_t)b->rank);
    for (int64_t done = 0; done < b->n; done += n) {
        char *own = (char *)b->data, *line = dense + done * bytes;
        for (int i = 0; i < last; i++) {
            own += index[i] * b->strides[i] * bytes;
        }
        if (back) {
            tci_strided_line(own, step, line, 1, n, bytes);
        } else {
            tci_strided_line(line, 1, own, step, n, bytes);
        }
        for (int i = last - 1; i >= 0 && ++index[i] == b->sizes[i]; i--) {
            index[i] = 0;
        }
    }
}

/* ---- a run ---- */

static int64_t tci_strided_bytes(const tc_buf *b)
{
    const int64_t bytes = b->n * tci_dtype_get((tc_dtype)b->dtype)->bytes;
    return (bytes + TCI_ALIGNED_BYTES - 1) / TCI_ALIGNED_BYTES * TCI_ALIGNED_BYTES;
}

/* Dense memory for all of them, and the lists that name it. */
typedef struct tci_strided {
    tc_buf *bufs; /* inputs, then outputs */
    int64_t *index;
    char *memory;
} tci_strided;

static tc_status tci_strided_make(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs,
                                  tci_strided *s)
{
    const int n = inputs->n + outputs->n;
    int64_t bytes = 0;
    int rank = 0;
    for (int i = 0; i < n; i++) {
        const bool is_output = i >= inputs->n;
        const int at = is_output ? i - inputs->n : i;
        const tc_buf *b = is_output ? &outputs->items[at] : &inputs->items[at];
        tc_status status = b->strides ? tci_strided_check(c, b, is_output, at) : TC_OK;
        status = status || !is_output ? status : tci_strided_check_outputs(c, outputs, at);
        if (status) {
            return status;
        }
        bytes += b->strides ? tci_strided_bytes(b) : 0;
        rank = b->strides ? TCI_MAX(rank, b->rank) : rank;
    }
    const int64_t lists = (int64_t)sizeof(tc_buf) * n + (int64_t)sizeof(int64_t) * (rank + 1);
    if (c->strided_bytes < bytes + lists) {
        tci_heap_free_aligned(c->strided);
        c->strided = tci_heap_get_aligned((size_t)(bytes + lists));
        c->strided_bytes = c->strided ? bytes + lists : 0;
    }
    s->memory = c->strided;
    s->bufs = (tc_buf *)(void *)(c->strided + bytes);
    s->index = (int64_t *)(void *)(c->strided + bytes + (int64_t)sizeof(tc_buf) * n);
    return c->strided ? TC_OK
                      : tci_call_refuse(c, TC_ERR_MEMORY,
                                        "out of memory for copies of buffers "
                                        "with strides");
}

TCI_FN tc_status tci_strided_run(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs)
{
    tci_strided s;
    tc_status status = tci_call_check_lists(c, inputs, outputs);
    status = status ? status : tci_strided_make(c, inputs, outputs, &s);
    if (status) {
        return status;
    }
    const int n = inputs->n + outputs->n;
    char *at = s.memory;
    for (int i = 0; i < n; i++) {
        const tc_buf *b = i < inputs->n ? &inputs->items[i] : &outputs->items[i - inputs->n];
        s.bufs[i] = *b;
        if (b->strides) {
            s.bufs[i].data = at;
            s.bufs[i].strides = NULL;
            at += tci_strided_bytes(b);
        }
        if (b->strides && i < inputs->n) {
            tci_strided_copy(b, s.bufs[i].data, false, s.index);
        }
    }
    status = tci_call_run(c, (tc_bufs){s.bufs, inputs->n},
                          (tc_bufs){s.bufs + inputs->n, outputs->n});
    for (int i = 0; i < outputs->n && !status; i++) {
        if (outputs->items[i].strides) {
            tci_strided_copy(&outputs->items[i], s.bufs[inputs->n + i].data, true, s.index);
        }
    }
    return status;
}
