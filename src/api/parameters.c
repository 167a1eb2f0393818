/* api/parameters.c - parameters: created from memory, zeros or a value, named, written by the user,
 * and assigned by programs (tc_param, tc_named, tc_param_write, tc_assign).
 *
 * In: memory, tensors, names. Out: DATA nodes whose storage is a parameter (run/param.c). Name and
 * value belong to the storage and not to a node, so a parameter that tc_keep moved to another scope
 * is the same parameter. */
#include <string.h>

#include "compile.h"
#include "internal.h"

/* A leaf becomes a parameter; ends the frame. */
static tc_tensor tci_state_end(tci_frame *f, tci_node *x)
{
    if (x && tci_param_make(x->storage, f->ctx)) {
        x->stateful = true;
    } else if (x) {
        tci_frame_fail(f, TC_ERR_MEMORY, "out of memory for a parameter");
    }
    return tci_frame_end(f, x);
}

TC_API tc_tensor tc_param_as_at(tc_ctx *ctx, tc_buf from, int n, const int64_t *dtype_and_sizes,
                                tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_param", here);
    const void *data = from.data;
    if (!tci_frame_dtype(&f, "the data", dtype_and_sizes, n) ||
        !tci_leaf_is_memory_of(&f, &from, (tc_dtype)dtype_and_sizes[0])) {
        return tci_frame_end(&f, NULL);
    }
    tc_dtype dtype = (tc_dtype)dtype_and_sizes[0];
    const int64_t *sizes = dtype_and_sizes + 1;
    tci_node *x = data ? tci_leaf_copy_in(&f, data, dtype, n - 1, sizes, NULL)
                       : tci_leaf_zeros(&f, dtype, n - 1, sizes);
    return tci_state_end(&f, x);
}

TC_API tc_tensor tc_param_at(tc_ctx *ctx, const void *data, int n, const int64_t *dtype_and_sizes,
                             tc_site here)
{
    return tc_param_as_at(ctx, TC_BUF(data, 0), n, dtype_and_sizes, here);
}

TCI_FN tc_tensor tci_state_zeros(tc_tensor like, const char *op, tc_site here)
{
    tci_frame f = tci_frame_begin(op, here);
    tci_frame_use(&f, like);
    const tci_node *n = tci_frame_node(&f, like, "the parameter");
    const int64_t *sizes = n ? tci_dim_words(n->shape) : NULL;
    tci_node *x = n ? tci_leaf_zeros(&f, (tc_dtype)n->dtype, n->rank, sizes) : NULL;
    return tci_state_end(&f, x);
}

TC_API tc_tensor tc_param_from_at(tc_tensor value, tc_site here)
{
    tci_lazy_held m;
    tci_frame f = tci_frame_begin("tc_param_from", here);
    tci_frame_use(&f, value);
    if (!tci_frame_node(&f, value, "the value")) {
        return tci_frame_end(&f, NULL);
    }
    if (tci_lazy_hold(&f, (tc_tensors){&value, 1}, &m)) {
        f.bad = tci_handle_keep_last(f.ctx);
        f.failed = true;
        return tci_frame_end(&f, NULL);
    }
    const tci_node *n = m.node;
    int64_t count = tci_dim_known(tci_node_count(n));
    tci_storage *storage = tci_storage_make(count * tci_dtype_get((tc_dtype)n->dtype)->bytes);
    if (storage) {
        tci_read_value(&m, storage->data);
    }
    tci_node *x = tci_leaf_data(&f.ctx->graph, (tc_dtype)n->dtype, n->rank, tci_dim_words(n->shape),
                                storage, NULL, 0);
    tci_lazy_drop(&m, 1);
    return tci_state_end(&f, x);
}

/* The node of a parameter; NULL: the frame is failed. */
static tci_node *tci_state_node(tci_frame *f, tc_tensor t)
{
    tci_frame_use(f, t);
    tci_node *x = tci_frame_node(f, t, "the parameter");
    if (x && (x->op != TCI_OP_DATA || !x->storage->param)) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "expected a parameter (tc_param): given one of %s",
                       TCI_MAKER(x));
    }
    return f->failed ? NULL : x;
}

TC_API tc_tensor tc_named_at(tc_tensor param, const char *name, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_named", here);
    tci_node *x = tci_state_node(&f, param);
    if (x && !name) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the name is NULL");
    } else if (x && !tci_param_name(x->storage, name)) {
        tci_frame_fail(&f, TC_ERR_MEMORY, "out of memory for a name");
    }
    return tci_frame_end(&f, x);
}

TC_API tc_tensor tc_param_find_at(tc_ctx *ctx, const char *name, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_param_find", here);
    tci_node *found = NULL;
    if (!f.failed && !name) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the name is NULL");
    }
    for (uint32_t i = 0; !f.failed && i < f.ctx->graph.n_slots; i++) {
        tci_node *x = f.ctx->graph.slots[i];
        const char *own = x && x->op == TCI_OP_DATA ? tci_param_name_of(x->storage) : NULL;
        if (!own || strcmp(own, name)) {
            continue;
        }
        if (found && found->storage != x->storage) {
            tci_frame_fail(&f, TC_ERR_ARGUMENT, "two parameters are named '%.60s'", name);
        }
        found = x;
    }
    if (!f.failed && !found) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "no parameter is named '%.60s' (tc_named)", name);
    }
    return tci_frame_end(&f, f.failed ? NULL : found);
}

TC_API const char *tc_name_of(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    const char *name = n && n->storage ? tci_param_name_of(n->storage) : n ? n->name : NULL;
    return name ? name : "";
}

static bool tci_state_check(tci_frame *f, const tci_node *x, const tc_buf *from)
{
    const tci_dtype_info *info = tci_dtype_get((tc_dtype)x->dtype);
    int64_t count = tci_dim_known(tci_node_count(x));
    bool untyped = from->dtype == -1;
    int64_t expected = untyped ? count * info->bytes : count;
    const char *device = tci_backend_hides(from->data);
    if (device) {
        tci_frame_fail(f, TC_ERR_BUFFER, "given memory of a %s device, expected memory of the host",
                       device);
    } else if (!from->data && count) {
        tci_frame_fail(f, TC_ERR_BUFFER, "given NULL, expected %lld elements of %s",
                       (long long)count, info->name);
    } else if (!untyped && from->dtype != x->dtype) {
        bool known = tci_dtype_is_valid(from->dtype);
        tci_frame_fail(f, TC_ERR_BUFFER, "given memory of %s, expected %s",
                       known ? tci_dtype_get((tc_dtype)from->dtype)->name : "no known dtype",
                       info->name);
    } else if (from->n != expected) {
        tci_frame_fail(f, TC_ERR_BUFFER, "given %lld %s, expected %lld", (long long)from->n,
                       untyped ? "bytes of untyped memory" : "elements", (long long)expected);
    }
    return !f->failed;
}

TC_API tc_status tc_param_write_as_at(tc_tensor param, tc_buf from, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_param_write", here);
    const tci_node *x = tci_state_node(&f, param);
    if (x && tci_state_check(&f, x, &from)) {
        tci_param_held room = {.storage = x->storage};
        tc_status status = tci_param_room(&room);
        if (!status) {
            memcpy(room.data, from.data ? from.data : room.data, (size_t)x->storage->bytes);
            status = tci_param_settle(&room, true);
        }
        if (status) {
            tci_frame_fail(&f, status, "%s",
                           status == TC_ERR_BUSY ? "another run changes the parameter"
                                                 : "out of memory for a new value");
        }
    }
    if (f.failed && tci_handle_node(param)) {
        f.ctx->last_on = param; /* tc_error(param) has the message */
    }
    return tci_frame_status(&f);
}

TC_API tc_tensor tc_assign_at(tc_tensor param, tc_tensor value, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_assign", here);
    tci_frame_use(&f, param);
    tci_frame_use(&f, value);
    tci_node *p = tci_frame_node(&f, param, "the parameter");
    tci_node *x = tci_frame_node(&f, value, "the value");
    return tci_frame_end(&f, f.failed ? NULL : tci_build_param_assign(&f.ctx->graph, p, x));
}
