/* compile/port_descriptors.c - fills in the input and output descriptors (ports) of compiled code:
 * dtype, shape and byte size of each input, captured tensor and output, and the dtype of each
 * scalar literal.
 *
 * In: a request and its copy. Out: the ports of its code, with the program's own symbols. */
#include "compiled_code.h"

TCI_FN void *tci_code_need(tci_scratch *s, tci_code *c, int64_t n, size_t item_bytes)
{
    void *p = tci_code_get(c, (size_t)n * item_bytes);
    if (!p) {
        tci_scratch_fail(s, TC_ERR_MEMORY, "out of memory: %lld bytes for a program",
                         (long long)n * (long long)item_bytes);
    }
    return p;
}

/* Bytes from the lowest to past the highest element that a strided leaf touches. */
static tci_dim tci_ports_extent(const tci_node *n)
{
    int64_t elements = 1, bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes;
    if (!n->strides) {
        return tci_dim_mul(tci_node_count(n), bytes);
    }
    for (int i = 0; i < n->rank; i++) { /* only memory has strides, and its sizes are known */
        if (!n->shape[i]) {
            return 0;
        }
        int64_t stride = tci_dim_known(n->strides[i]);
        elements += (tci_dim_known(n->shape[i]) - 1) * (stride < 0 ? -stride : stride);
    }
    return elements * bytes;
}

static void tci_ports_fill(tci_scratch *s, tci_code *c, tci_code_port *p, const tci_node *n)
{
    p->dtype = n->dtype;
    p->rank = n->rank;
    p->shape = tci_code_need(s, c, n->rank, sizeof(*p->shape));
    for (int i = 0; i < n->rank; i++) {
        p->shape[i] = n->shape[i];
    }
    p->n = tci_node_count(n);
    p->bytes = tci_dim_mul(p->n, tci_dtype_get((tc_dtype)n->dtype)->bytes);
}

TCI_FN void tci_code_fill_ports(tci_scratch *s, tci_code *c, const tci_request *r,
                                const tci_request_copy *copy)
{
    c->n_inputs = r->n_inputs;
    c->n_user_inputs = r->n_user_inputs;
    c->n_user_outputs = r->n_roots - r->n_effects;
    c->inputs = tci_code_need(s, c, r->n_inputs, sizeof(*c->inputs));
    for (int i = 0; i < r->n_inputs; i++) {
        tci_ports_fill(s, c, &c->inputs[i], copy->inputs[i]);
        c->inputs[i].bytes = tci_ports_extent(copy->inputs[i]);
    }
    c->n_outputs = r->n_roots;
    c->outputs = tci_code_need(s, c, r->n_roots, sizeof(*c->outputs));
    for (int i = 0; i < r->n_roots; i++) {
        tci_ports_fill(s, c, &c->outputs[i], copy->roots[i]);
    }
    c->n_literals = r->n_literals;
    c->literal_dtypes = tci_code_need(s, c, r->n_literals, 1);
    for (int i = 0; i < r->n_literals; i++) {
        c->literal_dtypes[i] = r->literals[i]->dtype;
    }
}
