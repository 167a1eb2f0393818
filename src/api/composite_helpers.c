/* api/composite_helpers.c - helpers for public ops that are compositions of other public ops: begin
 * and end of the outer call, its errors, operands in the compute dtype, rounding of the result.
 *
 * In: operands, and the state of the outer call (tci_made). Out: handles, or its error.
 * Design: errors and node origins name only the outer op. Its body needs no case for half
 * precision: floats are widened before it and rounded once at the end. */
#include "composite_helpers.h"

#include <stdarg.h>

TCI_FN bool tci_made_begin(tci_made *m, const char *name, tc_tensor x, tc_site here)
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, x);
    const tci_node *n = tci_frame_node(&f, x, "operand 1");
    if (!n) {
        m->bad = tci_frame_end(&f, NULL);
        return false;
    }
    tci_frame_leave(&f);
    m->name = name;
    m->here = here;
    m->ctx = f.ctx;
    m->outer = f.ctx->within;
    m->dtype = tci_dtype_real(f.ctx->graph.promotion, (tc_dtype)n->dtype);
    f.ctx->within = m->outer ? m->outer : name;
    return true;
}

TCI_FN tc_tensor tci_made_end(const tci_made *m, tc_tensor y)
{
    m->ctx->within = m->outer;
    return y;
}

TCI_FN tc_tensor tci_made_fail(const tci_made *m, tc_status why, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    tci_frame f = tci_frame_on(m->ctx->handle, m->name, m->here);
    tci_frame_fail(&f, why, "%s", text);
    return tci_made_end(m, tci_frame_end(&f, NULL));
}

TCI_FN tci_shape_text tci_made_shape(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    return tci_shape_text_of(n ? n->rank : 0, n ? n->shape : NULL);
}

TCI_FN bool tci_made_list(tci_made *m, const void *items, int n, const char *what)
{
    tci_frame f = tci_frame_on(m->ctx->handle, m->name, m->here);
    if (tci_frame_list(&f, items, n, what)) {
        tci_frame_leave(&f);
        return true;
    }
    m->bad = tci_made_end(m, tci_frame_end(&f, NULL));
    return false;
}

TCI_FN bool tci_made_operand(tci_made *m, tc_tensor t, const char *what)
{
    tci_frame f = tci_frame_on(m->ctx->handle, m->name, m->here);
    if (tci_frame_node(&f, t, what)) {
        tci_frame_leave(&f);
        return true;
    }
    m->bad = tci_made_end(m, tci_frame_end(&f, NULL));
    return false;
}

TCI_FN tc_tensor tci_made_wide(const tci_made *m, tc_tensor x)
{
    return tc_cast_at(x, (tc_dtype)tci_dtype_get(m->dtype)->compute, m->here);
}

TCI_FN tc_tensor tci_made_round(const tci_made *m, tc_tensor y)
{
    return tci_made_end(m, tc_cast_at(y, m->dtype, m->here));
}

TCI_FN tc_tensor tci_made_named(const tci_made *m, tci_call_name call, tc_tensor y,
                                tc_tensors operands, double number, int n_words,
                                const int64_t *words)
{
    tci_node *nodes[TCI_NAMED_OPERANDS];
    int n = 0;
    tci_frame f = tci_frame_begin(m->name, m->here);
    tci_frame_use(&f, y);
    tci_node *r = tci_frame_node(&f, y, "the result");
    for (int i = 0; i < operands.n && !f.failed; i++) {
        if (!tci_is_none(operands.items[i])) {
            nodes[n++] = tci_frame_node(&f, operands.items[i], "an operand");
        }
    }
    if (f.failed) {
        return tci_frame_end(&f, NULL);
    }
    tci_graph *g = &f.ctx->graph;
    nodes[n] = tci_graph_literal(g, TC_F64, (tci_value){.f = number});
    return tci_frame_end(&f, nodes[n] ? tci_build_named(g, call, r, n + 1, nodes, n_words, words)
                                      : NULL);
}

TCI_FN tc_tensor tci_made_reduced(const tci_made *m, tc_tensor loss, tc_reduction how)
{
    tci_frame f = tci_frame_begin(m->name, m->here);
    tci_frame_use(&f, loss);
    tci_node *n = tci_frame_node(&f, loss, "the loss");
    return tci_made_round(m, tci_frame_end(&f, n ? tci_build_reduction(&f.ctx->graph, n, (int)how)
                                                 : NULL));
}

TCI_FN bool tci_made_is_left_out(tc_arg a)
{
    return !a.kind && tci_is_none(a.tensor);
}

TCI_FN int64_t tci_made_others(tc_tensor x, int axis)
{
    int64_t count = 1;
    for (int i = 0; i < tc_rank(x); i++) {
        count = i == axis ? count : tc_dim_mul(count, tc_size(x, i));
    }
    return count;
}

/* The result of a builder for x and the shape of y. */
static tc_tensor tci_made_by(tc_tensor x, tc_tensor y, tc_site here,
                             tci_node *(*build)(tci_graph *g, tci_node *x, int rank,
                                                const tci_dim *shape))
{
    tci_frame f = tci_frame_begin("shape", here);
    tci_frame_use(&f, y);
    const tci_node *like = tci_frame_node(&f, y, "operand 2");
    tci_node *n = tci_frame_node(&f, x, "operand 1");
    return tci_frame_end(&f, n && like ? build(&f.ctx->graph, n, like->rank, like->shape) : NULL);
}

TCI_FN tc_tensor tci_made_like(tc_tensor x, tc_tensor y, tc_site here)
{
    return tci_made_by(x, y, here, tci_build_broadcast);
}

TCI_FN tc_tensor tci_made_shaped(tc_tensor x, tc_tensor y, tc_site here)
{
    return tci_made_by(x, y, here, tci_build_reshape);
}

TCI_FN tc_tensor tci_made_differentiated(tc_tensor value, tc_tensor f, tc_site here)
{
    tci_frame frame = tci_frame_begin("derivative", here);
    tci_frame_use(&frame, value);
    tci_node *v = tci_frame_node(&frame, value, "value"), *n = tci_frame_node(&frame, f, "f");
    bool is_float = v && n && tci_dtype_is_float((tc_dtype)v->dtype);
    return tci_frame_end(&frame, is_float ? tci_build_with_derivative(&frame.ctx->graph, n, v) : v);
}
