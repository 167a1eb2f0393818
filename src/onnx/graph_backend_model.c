/* onnx/graph_backend_model.c - serializes the graph of a compile request for graph-level backends
 * (api/graph_backend.h), as an ONNX or a StableHLO model in memory.
 *
 * In: the graph of a request, with the names of its inputs and outputs. Out: a model in memory.
 * Inputs may be leaves of parameters; the output of an effect is the new value. */
#include "../compile/graph_backend_registry.h"
#include "export.h"

typedef void (*tci_ox_model_writer)(tci_ox_walk *w, tci_node *const *outputs, int n,
                                    const char *const *names, tci_str *out);

static void tci_ox_format(tci_scratch *s, const tci_model_graph *m, const char *format,
                          tci_ox_model_writer write, tci_str *out)
{
    tci_ctx *ctx = tci_ctx_of(m->ctx);
    tci_ox_walk w = {.s = s,
                     .graph = &ctx->graph,
                     .format = format,
                     .ctx = ctx,
                     .here = m->here,
                     .inputs = m->inputs,
                     .n_inputs = m->n_inputs,
                     .at = m->at,
                     .known = m->known};
    tci_node **outputs = TCI_NEW_ARRAY(s, tci_node *, m->n_roots + 1);
    const char **names = TCI_NEW_ARRAY(s, const char *, m->n_inputs + m->n_roots + 1);
    for (int i = 0; i < m->n_inputs; i++) {
        names[i] = m->input_ports[i].name;
    }
    for (int i = 0; i < m->n_roots; i++) {
        tci_node *root = m->roots[i];
        outputs[i] = tci_op_is(root->op, TCI_IS_EFFECT) ? root->in[1] : root;
        names[m->n_inputs + i] = m->output_ports[i].name;
    }
    w.input_names = names;
    write(&w, outputs, m->n_roots, names + m->n_inputs, out);
}

static void tci_ox_format_onnx(tci_ox_walk *w, tci_node *const *outputs, int n,
                               const char *const *names, tci_str *out)
{
    tci_str weights = {.s = w->s};
    const tc_onnx_export how = {.output_names = names};
    tci_ox_write_onnx(w, outputs, n, &how, "", out, &weights);
}

/* Names do not matter: @main has inputs and outputs in their order. */
static void tci_ox_format_stablehlo(tci_ox_walk *w, tci_node *const *outputs, int n,
                                    const char *const *names, tci_str *out)
{
    (void)names;
    tci_ox_write_stablehlo(w, outputs, n, NULL, out);
}

static void tci_ox_write_as_onnx(tci_scratch *s, const tci_model_graph *m, tci_str *out)
{
    tci_ox_format(s, m, "ONNX", tci_ox_format_onnx, out);
}

static void tci_ox_write_as_stablehlo(tci_scratch *s, const tci_model_graph *m, tci_str *out)
{
    tci_ox_format(s, m, "StableHLO", tci_ox_format_stablehlo, out);
}

TC_API const tc_graph_format *tc_onnx_format(void)
{
    static const tc_graph_format format = {"ONNX", false, tci_ox_write_as_onnx};
    return &format;
}

TC_API const tc_graph_format *tc_stablehlo_format(void)
{
    static const tc_graph_format format = {"StableHLO", true, tci_ox_write_as_stablehlo};
    return &format;
}
