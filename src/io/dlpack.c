/* io/dlpack.c - DLPack: import and export of tensors shared with other libraries.
 *
 * In: DLPack's managed tensors, or tensors. Out: leaf tensors over their memory, or managed
 * tensors.
 *
 * Design: memory has one owner, whose deleter is called once, when the last reference is dropped.
 * Imported memory is owned by its own deleter, which the storage of the leaf calls at the end.
 * Exported memory holds a reference to the storage, or is a copy, and is released in its deleter.
 * Both may happen on any thread and after the context is freed. */
#include <inttypes.h>
#include <string.h>

#include "tensor_file.h"

enum { TCI_DL_CPU = 1, TCI_DL_CUDA_HOST = 3, TCI_DL_MAJOR = 1, TCI_DL_MINOR = 0 };
enum { TCI_DL_READ_ONLY = 1, TCI_DL_IS_COPIED = 2 };

/* ---- in ---- */

/* An imported managed tensor, of either version. */
typedef struct tci_dlpack_in {
    tci_owner owner; /* first */
    tc_dlpack *versioned;
    tc_dlpack_unversioned *plain;
} tci_dlpack_in;

static void tci_dlpack_release(tci_owner *owner)
{
    tci_dlpack_in *in = (tci_dlpack_in *)(void *)owner;
    if (in->versioned && in->versioned->deleter) {
        in->versioned->deleter(in->versioned);
    }
    if (in->plain && in->plain->deleter) {
        in->plain->deleter(in->plain);
    }
    tci_heap_free(in);
}

static tc_dtype tci_dlpack_dtype(const tc_dlpack_tensor *t)
{
    const tci_io_type *types = tci_io_types();
    for (int i = 0; i < TCI_DTYPE_N && t->lanes == 1; i++) {
        if (types[i].dlpack == t->code && 8 * tci_dtype_get(types[i].dtype)->bytes == t->bits) {
            return types[i].dtype;
        }
    }
    return TC_DTYPE_COUNT;
}

static bool tci_dlpack_check(tci_frame *f, const tc_dlpack_tensor *t)
{
    if (t->device_type != TCI_DL_CPU && t->device_type != TCI_DL_CUDA_HOST) {
        tci_frame_fail(f, TC_ERR_UNSUPPORTED,
                       "the memory is of device %d of kind %d: expected a "
                       "processor's, kind 1",
                       t->device_id, t->device_type);
    } else if (tci_dlpack_dtype(t) == TC_DTYPE_COUNT) {
        tci_frame_fail(f, TC_ERR_UNSUPPORTED,
                       "elements are of type code %d with %d bits and %d "
                       "lanes, which tc does not have",
                       t->code, t->bits, t->lanes);
    } else {
        tci_frame_list(f, t->shape, t->ndim, "the shape");
    }
    return !f->failed;
}

/* Takes `in` over, also on failure. */
static tc_tensor tci_dlpack_leaf(tci_frame *f, const tc_dlpack_tensor *t, tci_dlpack_in *in)
{
    tci_node *x = NULL;
    tc_dtype dtype = TC_DTYPE_COUNT;
    const char *data = t->data ? (const char *)t->data + t->byte_offset : NULL;
    bool fits = tci_dlpack_check(f, t);
    if (fits) {
        dtype = tci_dlpack_dtype(t);
    }
    if (fits && tci_dtype_is_aligned(dtype, data)) {
        x = tci_leaf_borrow(f, data, dtype, t->ndim, t->shape, t->strides, &in->owner);
    } else if (fits) {
        x = tci_leaf_copy_in(f, data, dtype, t->ndim, t->shape, t->strides);
        if (x) {
            tci_dlpack_release(&in->owner); /* it is copied: the memory is not used any more */
        }
    }
    if (!x) {
        tci_heap_free(in); /* the caller still has the tensor */
    }
    return tci_frame_end(f, x);
}

static tci_dlpack_in *tci_dlpack_begin(tci_frame *f, const void *given)
{
    tci_dlpack_in *in = NULL;
    if (!given) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "the DLPack tensor is NULL");
    }
    if (!f->failed) {
        in = tci_heap_get(sizeof(*in));
    }
    if (!f->failed && !in) {
        tci_frame_fail(f, TC_ERR_MEMORY, "out of memory for a tensor");
    }
    if (in) {
        in->owner.release = tci_dlpack_release;
    }
    return in;
}

TC_API tc_tensor tc_from_dlpack_at(tc_ctx *ctx, tc_dlpack *dl, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_from_dlpack", here);
    if (dl && dl->major != TCI_DL_MAJOR) {
        tci_frame_fail(&f, TC_ERR_UNSUPPORTED, "it is of version %u.%u of DLPack: expected %d",
                       dl->major, dl->minor, TCI_DL_MAJOR);
    }
    tci_dlpack_in *in = tci_dlpack_begin(&f, dl);
    if (!in) {
        return tci_frame_end(&f, NULL);
    }
    in->versioned = dl;
    return tci_dlpack_leaf(&f, &dl->tensor, in);
}

TC_API tc_tensor tc_from_dlpack_unversioned_at(tc_ctx *ctx, tc_dlpack_unversioned *dl, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_from_dlpack_unversioned", here);
    tci_dlpack_in *in = tci_dlpack_begin(&f, dl);
    if (!in) {
        return tci_frame_end(&f, NULL);
    }
    in->plain = dl;
    return tci_dlpack_leaf(&f, &dl->tensor, in);
}

/* ---- out ---- */

/* An exported tensor: one block, followed by sizes and strides. */
typedef struct tci_dlpack_out {
    tc_dlpack versioned;
    tc_dlpack_unversioned plain;
    tci_storage *storage;
    int64_t words[];
} tci_dlpack_out;

static void tci_dlpack_drop(tci_dlpack_out *out)
{
    tci_storage_release(out->storage);
    tci_heap_free(out);
}

static void tci_dlpack_delete(tc_dlpack *dl)
{
    tci_dlpack_drop(dl->manager);
}

static void tci_dlpack_delete_plain(tc_dlpack_unversioned *dl)
{
    tci_dlpack_drop(dl->manager);
}

/* The memory that is shown: the value's own where neither side changes it, else a copy. */
static tci_storage *tci_dlpack_storage(const tci_lazy_held *m, bool copies)
{
    const tci_node *n = m->node;
    if (!copies) {
        tci_storage_retain(n->storage);
        return n->storage;
    }
    int64_t bytes = tci_dim_known(tci_node_count(n)) * tci_dtype_get((tc_dtype)n->dtype)->bytes;
    tci_storage *copy = tci_storage_make(bytes);
    if (copy) {
        tci_read_value(m, copy->data);
    }
    return copy;
}

static void tci_dlpack_fill(tci_dlpack_out *out, const tci_lazy_held *m, bool copies)
{
    const tci_node *n = m->node;
    const tci_dtype_info *info = tci_dtype_get((tc_dtype)n->dtype);
    int64_t *sizes = out->words, *strides = out->words + n->rank, stride = 1;
    for (int i = n->rank - 1; i >= 0; i--) {
        sizes[i] = tci_dim_known(n->shape[i]);
        strides[i] = n->strides && !copies ? tci_dim_known(n->strides[i]) : stride;
        stride *= TCI_MAX(sizes[i], 1);
    }
    tc_dlpack_tensor t = {.data = copies ? out->storage->data : (void *)(uintptr_t)m->first,
                          .device_type = TCI_DL_CPU,
                          .ndim = n->rank,
                          .code = tci_io_types()[n->dtype - TC_BOOL].dlpack,
                          .bits = (uint8_t)(8 * info->bytes),
                          .lanes = 1,
                          .shape = sizes,
                          .strides = strides};
    out->versioned = (tc_dlpack){.major = TCI_DL_MAJOR,
                                 .minor = TCI_DL_MINOR,
                                 .manager = out,
                                 .deleter = tci_dlpack_delete,
                                 .flags = copies ? TCI_DL_IS_COPIED : TCI_DL_READ_ONLY,
                                 .tensor = t};
    out->plain = (tc_dlpack_unversioned){.tensor = t,
                                         .manager = out,
                                         .deleter = tci_dlpack_delete_plain};
}

/* NULL: *status says why, and tc_error of t. */
static tci_dlpack_out *tci_dlpack_make(const char *op, tc_tensor t, bool copies, tc_site here,
                                       tc_status *status)
{
    tci_lazy_held m;
    tci_frame f = tci_frame_begin(op, here);
    tci_dlpack_out *out = NULL;
    *status = tci_lazy_hold(&f, (tc_tensors){&t, 1}, &m);
    if (!*status) {
        copies = copies || m.node->stateful;
        out = tci_heap_get(sizeof(*out) + 2 * (size_t)m.node->rank * sizeof(int64_t));
        tci_storage *storage = out ? tci_dlpack_storage(&m, copies) : NULL;
        if (storage) {
            out->storage = storage;
            tci_dlpack_fill(out, &m, copies);
        } else {
            tci_heap_free(out);
            out = NULL;
            *status = tci_fail(t, op, here, TC_ERR_MEMORY, "out of memory for a tensor");
        }
        tci_lazy_drop(&m, 1);
    }
    tci_frame_leave(&f);
    return out;
}

TC_API tc_status tc_to_dlpack_at(tc_tensor t, tc_dlpack **dl, tc_site here)
{
    tc_status status = TC_ERR_ARGUMENT;
    if (dl) {
        tci_dlpack_out *out = tci_dlpack_make("tc_to_dlpack", t, false, here, &status);
        *dl = out ? &out->versioned : NULL;
    }
    return status;
}

TC_API tc_status tc_to_dlpack_unversioned_at(tc_tensor t, tc_dlpack_unversioned **dl, tc_site here)
{
    tc_status status = TC_ERR_ARGUMENT;
    if (dl) {
        tci_dlpack_out *out = tci_dlpack_make("tc_to_dlpack_unversioned", t, true, here, &status);
        *dl = out ? &out->plain : NULL;
    }
    return status;
}
