/* api/shape_bucketing.c - shape bucketing: pads buffers to sizes that are powers of two, so that
 * few programs serve many sizes.
 *
 * In: the user's buffers. Out: dense padded copies, and the results cut out of larger ones. Padding
 * is zero, so ops that combine elements along a padded axis see zeros there; the user says which
 * axes may not be padded (options.fixed_axes). Invariant: the buffers of a list are adjacent, each
 * padded to whole lines of 64 bytes. */
#include "shape_bucketing.h"

#include <stdio.h>
#include <string.h>

static int64_t tci_bucket_up(int64_t size)
{
    int64_t up = 1;
    while (up < size) {
        up *= 2;
    }
    return size ? up : 0;
}

/* Adds b with room for its sizes, which the caller fills. NULL: there is none. */
static int64_t *tci_bucket_add(tci_bucket_list *list, const tc_buf *b, int rank)
{
    if (list->n == TCI_BUCKET_BUFFERS || rank > TCI_BUCKET_AXES - list->n_axes) {
        return NULL;
    }
    int64_t *sizes = list->sizes + list->n_axes;
    list->n_axes += rank;
    list->items[list->n++] = (tc_buf){.dtype = b->dtype, .rank = rank, .sizes = sizes};
    return sizes;
}

/* Number of elements, once the sizes are there. */
static void tci_bucket_count(tci_bucket_list *list)
{
    tc_buf *b = &list->items[list->n - 1];
    *b = tci_buf_sized(*b, b->rank, b->sizes);
}

TCI_FN bool tci_bucket_round(const tci_general *g, const tc_bufs *inputs, tci_bucket_list *padded)
{
    padded->n = padded->n_axes = 0;
    for (int i = 0; i < inputs->n; i++) {
        const int64_t *from = tci_variants_sizes(&inputs->items[i]);
        int rank = tci_variants_rank(&inputs->items[i]);
        int64_t *to = tci_bucket_add(padded, &inputs->items[i], rank);
        if (!to) {
            return false;
        }
        for (int a = 0; a < rank; a++) {
            to[a] = tci_general_is_fixed(g, i, a, rank) ? from[a] : tci_bucket_up(from[a]);
        }
        tci_bucket_count(padded);
    }
    return true;
}

TCI_FN bool tci_bucket_outputs(const tc_program *f, const tc_bufs *outputs, tci_bucket_list *padded,
                               char *why, size_t room)
{
    padded->n = padded->n_axes = 0;
    for (int i = 0; i < outputs->n; i++) {
        const tci_code_port *p = &f->code->outputs[i];
        const tc_buf *b = &outputs->items[i];
        const tc_buf typed = {.dtype = p->dtype};
        int64_t *to = tci_bucket_add(padded, &typed, p->rank);
        bool fits = to && (b->sizes || !p->rank) && (!b->sizes || b->rank == p->rank) &&
                    b->dtype == p->dtype && !b->is_const && (b->data || !b->n);
        for (int a = 0; a < p->rank && to; a++) {
            to[a] = tci_dim_known(p->shape[a]);
            fits = fits && b->sizes[a] >= 0 && b->sizes[a] <= to[a];
        }
        if (!fits) {
            snprintf(why, room,
                     "output %d: expected writable %s memory with a size for each of %d "
                     "axes (TC_BUF_ND), none above that of the padded result",
                     i, tc_dtype_name((tc_dtype)p->dtype), p->rank);
            return false;
        }
        tci_bucket_count(padded);
    }
    return true;
}

static size_t tci_bucket_bytes_of(const tc_buf *b)
{
    size_t bytes = (size_t)b->n * (size_t)tci_dtype_get((tc_dtype)b->dtype)->bytes;
    return (bytes + 63) & ~(size_t)63;
}

TCI_FN size_t tci_bucket_bytes(const tci_bucket_list *list)
{
    size_t bytes = 0;
    for (int i = 0; i < list->n; i++) {
        bytes += tci_bucket_bytes_of(&list->items[i]);
    }
    return bytes;
}

/* Copies between the user's buffer and the first elements of the padded one; axis: from there
 * on. */
static void tci_bucket_copy(const tc_buf *user, char *own, const int64_t *padded, char *memory,
                            int axis, bool back)
{
    size_t bytes = (size_t)tci_dtype_get((tc_dtype)user->dtype)->bytes;
    const int64_t *sizes = tci_variants_sizes(user);
    int rank = tci_variants_rank(user);
    if (axis == rank) {
        memcpy(back ? own : memory, back ? memory : own, bytes);
        return;
    }
    int64_t step = 1, to_step = 1;
    for (int a = axis + 1; a < rank; a++) {
        step *= sizes[a];
        to_step *= padded[a];
    }
    step = user->strides ? user->strides[axis] : step;
    if (axis == rank - 1 && step == 1) {
        memcpy(back ? own : memory, back ? memory : own, bytes * (size_t)sizes[axis]);
        return;
    }
    for (int64_t i = 0; i < sizes[axis]; i++) {
        tci_bucket_copy(user, own + i * step * (int64_t)bytes, padded,
                        memory + i * to_step * (int64_t)bytes, axis + 1, back);
    }
}

TCI_FN char *tci_bucket_place(tci_bucket_list *padded, const tc_bufs *user, char *memory,
                              bool fills)
{
    for (int i = 0; i < padded->n; i++) {
        tc_buf *b = &padded->items[i];
        b->data = memory;
        memory += tci_bucket_bytes_of(b);
        if (fills && b->n) {
            memset(b->data, 0, tci_bucket_bytes_of(b));
            if (user->items[i].n) {
                tci_bucket_copy(&user->items[i], user->items[i].data, b->sizes, b->data, 0, false);
            }
        }
    }
    return memory;
}

TCI_FN void tci_bucket_cut(const tci_bucket_list *padded, const tc_bufs *user)
{
    for (int i = 0; i < padded->n; i++) {
        const tc_buf *b = &padded->items[i];
        if (user->items[i].n && b->n) {
            tci_bucket_copy(&user->items[i], user->items[i].data, b->sizes, b->data, 0, true);
        }
    }
}
