/* tests/oracle_grad.h - from a case's results to its gradients.
 *
 * In: a built case. Out: the same case whose outputs are the gradients that the manifest wants:
 * those of sum over outputs of sum(output * cotangent), for the inputs that `grads` names by
 * slot. */
#ifndef TC_TEST_ORACLE_GRAD_H
#define TC_TEST_ORACLE_GRAD_H

#include "oracle_ops.h"

/* The list that a case's outputs are compared with, and where its own error stands. */
static const json *orc_wants(const orc_case *c)
{
    return json_get(c->spec, c->gradients ? "grads" : "outs");
}

static double orc_own_error(const orc_case *c)
{
    const json *v = json_get(c->spec, c->gradients ? "gerr" : "ferr");
    return v ? v->number : 0;
}

/* An array of the data file as a tensor; NULL-like when it is not there. */
static tc_tensor orc_constant(const orc_case *c, const st_file *arrays, const json *v)
{
    const st_array *a = st_find(arrays, json_string(v, "t"));
    const orc_dtype *d = orc_dtype_find(json_string(v, "d"));
    const json *shape = json_get(v, "s");
    int64_t sizes[ORC_MAX_RANK];
    int rank = 0;
    if (!a || !d || !shape || shape->n > ORC_MAX_RANK) {
        return TC_NONE;
    }
    for (const json *size = shape->first; size; size = size->next) {
        sizes[rank++] = size->integer;
    }
    return tc_copy_in_at(c->ctx, a->data, d->dtype, rank, sizes, NULL, TC_HERE);
}

/* The constant in the shape of y, whose sizes may be symbols: each element by its number. */
static tc_tensor orc_shaped(const orc_case *c, tc_tensor constant, tc_tensor y)
{
    int rank = tc_rank(y);
    int64_t stride = 1;
    tc_tensor at = TC_NONE;
    if (!c->symbolic || rank == 0 || rank != tc_rank(constant)) {
        return constant;
    }
    for (int axis = rank - 1; axis >= 0; axis--) {
        tc_tensor here = tc_arange(c->ctx, 0, tc_size(y, axis), 1, TC_I64);
        here = tc_mul(here, stride);
        for (int i = axis + 1; i < rank; i++) {
            here = tc_unsqueeze(here, -1);
        }
        at = at.ctx ? tc_add(at, here) : here;
        stride *= tc_size(constant, axis);
    }
    return tc_index(tc_reshape(constant, stride), TC_TENSORS(at));
}

static tc_tensor orc_loss(orc_case *c, const st_file *arrays)
{
    tc_tensor loss = TC_NONE;
    const json *cots = json_get(c->spec, "cots"), *cot = cots ? cots->first : NULL;
    for (int i = 0; i < c->n_outputs && cot; i++, cot = cot->next) {
        if (!orc_is_tensor(cot)) {
            continue;
        }
        tc_dtype wide = tc_dtype_of(c->outputs[i]) == TC_F64 ? TC_F64 : TC_F32;
        tc_tensor y = tc_cast(c->outputs[i], wide);
        tc_tensor factor = orc_shaped(c, orc_constant(c, arrays, cot), y);
        tc_tensor part = tc_sum(tc_mul(y, tc_cast(factor, wide)), TC_ALL, 0);
        loss = loss.ctx ? tc_add(loss, part) : part;
    }
    return loss;
}

static void orc_differentiate(orc_case *c, const st_file *arrays)
{
    tc_tensor params[ORC_MAX_TENSORS];
    int n = 0;
    for (const json *g = json_get(c->spec, "grads")->first; g; g = g->next) {
        const json *slot = json_get(g, "slot");
        for (int i = 0; i < c->n_inputs && slot; i++) {
            const json *own = json_get(c->input_specs[i], "slot");
            if (own && own->integer == slot->integer && n < ORC_MAX_TENSORS) {
                params[n++] = c->inputs[i];
                break;
            }
        }
    }
    tc_tensor loss = orc_loss(c, arrays);
    if (!loss.ctx) {
        orc_skip(c, "no cotangents");
        return;
    }
    tc_grad(loss, params, n, c->outputs);
    c->n_outputs = n;
    c->gradients = true;
    memset(c->is_index, 0, sizeof(c->is_index));
}

#endif
