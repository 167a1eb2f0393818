/* api/read_tensor.c - tc_read: copies a tensor's value to a contiguous user buffer, after
 * evaluation if needed. */
#include <string.h>

#include "compile.h"
#include "internal.h"

static tc_status tci_read_check(const tci_frame *f, tc_tensor t, const tci_node *n,
                                const tc_buf *to)
{
    int64_t count = tci_dim_known(tci_node_count(n));
    const tci_dtype_info *info = tci_dtype_get((tc_dtype)n->dtype);
    const char *device = tci_backend_hides(to->data);
    if (device) {
        return tci_batch_fail(f, t, &n->site, TC_ERR_BUFFER,
                              "given memory of a %s device, expected memory of the host", device);
    }
    if (to->is_const || (!to->data && count)) {
        return tci_batch_fail(f, t, &n->site, TC_ERR_BUFFER,
                              "given %s, expected memory for %lld %s",
                              to->data ? "a pointer to const" : "NULL", (long long)count,
                              info->name);
    }
    if (to->dtype != n->dtype && to->dtype != -1) {
        bool known = tci_dtype_is_valid(to->dtype);
        return tci_batch_fail(f, t, &n->site, TC_ERR_BUFFER, "given memory of %s, expected %s",
                              known ? tci_dtype_get((tc_dtype)to->dtype)->name : "no known dtype",
                              info->name);
    }
    bool untyped = to->dtype == -1;
    int64_t expected = untyped ? count * info->bytes : count;
    if (to->n != expected) {
        return tci_batch_fail(f, t, &n->site, TC_ERR_BUFFER,
                              "given room for %lld %s, expected %lld", (long long)to->n,
                              untyped ? "bytes of untyped memory" : "elements",
                              (long long)expected);
    }
    return TC_OK;
}

TCI_FN void tci_read_value(const tci_lazy_held *m, void *to)
{
    const tci_node *n = m->node;
    int64_t bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes;
    int64_t count = tci_dim_known(tci_node_count(n));
    if (count && n->strides) {
        tci_leaf_copy(to, m->first, (size_t)bytes, n->rank, tci_dim_words(n->shape),
                      tci_dim_words(n->strides));
    } else if (count) {
        memmove(to, m->first, (size_t)(bytes * count));
    }
}

TC_API tc_status tc_read_as_at(tc_tensor t, tc_buf to, tc_site here)
{
    tci_lazy_held m;
    tci_frame f = tci_frame_begin("tc_read", here);
    tc_status status = tci_lazy_hold(&f, (tc_tensors){&t, 1}, &m);
    if (!status) {
        status = tci_read_check(&f, t, m.node, &to);
        if (!status) {
            tci_read_value(&m, to.data);
        }
        tci_lazy_drop(&m, 1);
    }
    tci_frame_leave(&f);
    return status;
}
