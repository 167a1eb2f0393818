/* interp/reference_values.h - declares the values of the reference evaluator: one dense array of
 * tci_value per node, in row-major order, and multi-indices over its shape. Private to
 * interp/reference*.c. */
#ifndef TCI_INTERP_REFERENCE_VALUES_H
#define TCI_INTERP_REFERENCE_VALUES_H

#include "reference.h"

typedef struct tci_ref {
    tci_scratch s;
    bool wide;
    tc_status status; /* TC_ERR_INDEX once a gather read outside */
    tci_node *const *inputs;
    const void *const *memory;
    int n_inputs;
    tci_table values; /* of tci_value *: those of the nodes so far */
} tci_ref;

/* ---- dense indices ---- */

typedef struct tci_ref_index {
    int rank;
    const tci_dim *shape;
    int64_t *at;
} tci_ref_index;

static inline tci_ref_index tci_ref_walk(tci_ref *r, int rank, const tci_dim *shape)
{
    tci_ref_index i = {rank, shape, TCI_NEW_ARRAY(&r->s, int64_t, rank + 1)};
    return i;
}

/* Steps to the next element in row-major order. */
static inline void tci_ref_next(tci_ref_index *i)
{
    for (int d = i->rank - 1; d >= 0; d--) {
        if (++i->at[d] < tci_dim_known(i->shape[d])) {
            return;
        }
        i->at[d] = 0;
    }
}

static inline int64_t tci_ref_flat(int rank, const tci_dim *shape, const int64_t *at)
{
    int64_t flat = 0;
    for (int d = 0; d < rank; d++) {
        flat = flat * tci_dim_known(shape[d]) + at[d];
    }
    return flat;
}

static inline const tci_value *tci_ref_of(const tci_ref *r, const tci_node *n)
{
    return tci_reference_values(&r->values, n);
}

static inline int64_t tci_ref_count(const tci_node *n)
{
    return tci_dim_known(tci_node_count(n));
}

static inline int64_t tci_ref_product(const tci_dim *shape, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++) {
        n *= tci_dim_known(shape[d]);
    }
    return n;
}

/* ---- numbers ---- */

/* The dtype in which a node of dtype t is computed. */
static inline tc_dtype tci_ref_compute(const tci_ref *r, tc_dtype t)
{
    return r->wide && tci_dtype_is_float(t) ? TC_F64 : (tc_dtype)tci_dtype_get(t)->compute;
}

/* To the dtype of a node; wide floats are not rounded. */
static inline tci_value tci_ref_round(const tci_ref *r, tci_value v, tc_dtype from, tc_dtype to)
{
    if (r->wide && tci_dtype_is_float(to)) {
        to = TC_F64;
    }
    return tci_value_cast(v, from, to);
}

static inline tci_value tci_ref_float(double x)
{
    tci_value v;
    v.f = x;
    return v;
}

static inline tci_value tci_ref_int(int64_t x)
{
    tci_value v;
    v.i = x;
    return v;
}

/* ---- axes ---- */

/* Elements of one axis are `inner` apart; `outer` * `inner` of them start one. */
typedef struct tci_ref_axis {
    int64_t size, inner, outer;
} tci_ref_axis;

static inline tci_ref_axis tci_ref_along(const tci_node *n, int64_t axis)
{
    tci_ref_axis a = {tci_dim_known(n->shape[axis]),
                      tci_ref_product(n->shape, (int)axis + 1, n->rank),
                      tci_ref_product(n->shape, 0, (int)axis)};
    return a;
}

static inline int64_t tci_ref_start(const tci_ref_axis *a, int64_t line)
{
    return line / a->inner * a->inner * a->size + line % a->inner;
}

/* Position in the output of an input position: the reduced axes drop out. */
static inline int64_t tci_ref_kept(const tci_node *n, const tci_node *in, const int64_t *at)
{
    int64_t flat = 0;
    int next = 0;
    for (int d = 0; d < in->rank; d++) {
        if (next < n->n_attr && n->attr[next] == d) {
            next++;
        } else {
            flat = flat * tci_dim_known(in->shape[d]) + at[d];
        }
    }
    return flat;
}

/* An index counted from the end where negative; -1 and a failed status when outside. */
static inline int64_t tci_ref_check(tci_ref *r, int64_t index, int64_t size)
{
    index = index < 0 ? index + size : index;
    if (index < 0 || index >= size) {
        r->status = TC_ERR_INDEX;
        return -1;
    }
    return index;
}

/* ---- interp/reference_composites.c: one node each ---- */
TCI_FN void tci_ref_softmax(const tci_ref *r, const tci_node *n, tci_value *out);
TCI_FN void tci_ref_mean(tci_ref *r, const tci_node *n, tci_value *out);
TCI_FN void tci_ref_layer_norm(tci_ref *r, const tci_node *n, tci_value *out);
TCI_FN void tci_ref_cross_entropy(tci_ref *r, const tci_node *n, tci_value *out);
TCI_FN void tci_ref_conv_transpose(tci_ref *r, const tci_node *n, tci_value *out);
TCI_FN void tci_ref_linear(tci_ref *r, const tci_node *n, tci_value *out);

#endif
