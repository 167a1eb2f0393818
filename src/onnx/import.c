/* onnx/import.c - imports an ONNX graph: nodes in order, functions, subgraphs, and the public
 * calls.
 *
 * Design: the graph is built once, in the order of its nodes. If a shape turns out to depend on the
 * value of an input that the caller gave, that input becomes a constant and the graph is rebuilt
 * (tci_ox.again). Shapes therefore never depend on the data of a run, and inputs stay inputs
 * wherever possible. */
#include "import.h"

#include <inttypes.h>
#include <string.h>

#include "../base/system_headers.h"
#include "operator_table.h"
#include "user_call_site.h"

enum { TCI_OX_DEEPEST = 48 };

/* ---- nodes ---- */

static const tci_ox_row *tci_ox_row_of(const char *op)
{
    int low = 0, high = tci_ox_n_rows();
    while (low < high) {
        int at = (low + high) / 2, by = strcmp(op, tci_ox_rows()[at].name);
        if (by == 0) {
            return &tci_ox_rows()[at];
        }
        *(by < 0 ? &high : &low) = by < 0 ? at : at + 1;
    }
    return NULL;
}

static bool tci_ox_is_main(const char *domain)
{
    return !*domain || !strcmp(domain, "ai.onnx");
}

static int64_t tci_ox_opset(const tci_ox *m, const char *domain)
{
    for (int i = 0; i < m->n_opsets; i++) {
        bool both = tci_ox_is_main(domain) && tci_ox_is_main(m->opsets[i].domain);
        if (both || !strcmp(m->opsets[i].domain, domain)) {
            return m->opsets[i].version;
        }
    }
    return 1;
}

static const tci_onnx_function *tci_ox_function_of(const tci_ox *m, const tci_onnx_node *n)
{
    for (int i = 0; i < m->proto->n_functions; i++) {
        const tci_onnx_function *u = &m->proto->functions[i];
        bool both = tci_ox_is_main(u->domain) && tci_ox_is_main(n->domain);
        if (!strcmp(u->name, n->op) && (both || !strcmp(u->domain, n->domain))) {
            return u;
        }
    }
    return NULL;
}

/* The node with attributes of the enclosing function in place of references to them. */
static tci_onnx_node *tci_ox_resolve(const tci_ox *m, const tci_onnx_node *n)
{
    tci_onnx_node *r = tci_scratch_copy(m->s, n, sizeof(*n));
    r->attrs = tci_scratch_copy(m->s, n->attrs, sizeof(*n->attrs) * (size_t)n->n_attrs);
    for (int i = 0; i < n->n_attrs; i++) {
        if (!n->attrs[i].ref) {
            continue;
        }
        const tci_onnx_attr *a = m->caller ? tci_ox_find_attr(m->caller->attrs, m->caller->n_attrs,
                                                              n->attrs[i].ref)
                                           : NULL;
        if (!a && m->function) {
            a = tci_ox_find_attr(m->function->defaults, m->function->n_defaults, n->attrs[i].ref);
        }
        r->attrs[i] = a ? *a : (tci_onnx_attr){.kind = TCI_ONNX_NOTHING};
        r->attrs[i].name = n->attrs[i].name;
        r->attrs[i].ref = NULL;
    }
    return r;
}

static void tci_ox_nodes(const tci_ox_op *o, const tci_onnx_node *nodes, int n,
                         tci_ox_names *names);

static void tci_ox_call(tci_ox_op *o, const tci_onnx_function *u)
{
    tci_ox *m = o->m;
    tci_ox saved = *m;
    if (o->n_in > u->n_in || o->n_out > u->n_out) {
        tci_ox_fail(o, TC_ERR_IO, "function %.60s has %d inputs and %d outputs", u->name, u->n_in,
                    u->n_out);
    }
    tci_ox_names names = tci_ox_names_new(o->s, NULL, u->n_nodes);
    for (int i = 0; i < u->n_in; i++) {
        if (tci_ox_has(o, i)) {
            tci_ox_value *v = tci_scratch_copy(o->s, o->in[i], sizeof(*v));
            v->name = u->in[i];
            tci_ox_declare(o, &names, v);
        }
    }
    m->caller = o->node;
    m->function = u;
    if (u->n_opsets) {
        m->opsets = u->opsets;
        m->n_opsets = u->n_opsets;
    }
    tci_ox_nodes(o, u->nodes, u->n_nodes, &names);
    m->caller = saved.caller;
    m->function = saved.function;
    m->opsets = saved.opsets;
    m->n_opsets = saved.n_opsets;
    m->names = saved.names;
    for (int i = 0; i < o->n_out; i++) {
        const tci_ox_value *v = o->out[i] ? tci_ox_find(&names, u->out[i]) : NULL;
        if (o->out[i] && !v) {
            tci_ox_fail(o, TC_ERR_IO, "function %.60s does not make %.60s", u->name, u->out[i]);
        } else if (o->out[i]) {
            const char *name = o->out[i]->name;
            *o->out[i] = *v;
            o->out[i]->name = name;
        }
    }
}

/* Operands and results of a node as values. */
static void tci_ox_bind(tci_ox_op *o, const tci_ox_names *names)
{
    const tci_onnx_node *n = o->node;
    uint64_t depends = 0;
    o->n_in = n->n_in;
    o->n_out = n->n_out;
    o->in = TCI_NEW_ARRAY(o->s, tci_ox_value *, n->n_in + 1);
    o->out = TCI_NEW_ARRAY(o->s, tci_ox_value *, n->n_out + 1);
    for (int i = 0; i < n->n_in; i++) {
        if (!*n->in[i]) {
            continue;
        }
        o->in[i] = tci_ox_find(names, n->in[i]);
        if (!o->in[i]) {
            tci_ox_fail(o, TC_ERR_IO,
                        "it reads %.60s, which nothing before it makes: the graph is "
                        "not in order, or has a cycle",
                        n->in[i]);
        }
        depends |= o->in[i]->depends;
    }
    while (o->n_in > 0 && !o->in[o->n_in - 1]) {
        o->n_in--;
    }
    for (int i = 0; i < n->n_out; i++) {
        if (*n->out[i]) {
            o->out[i] = tci_ox_value_new(o->s, n->out[i]);
            o->out[i]->depends = depends;
        }
    }
}

static void tci_ox_node(tci_ox *m, const tci_onnx_node *n, tci_ox_names *names)
{
    tci_ox_op op = {.m = m, .here = m->here, .ctx = m->ctx, .s = m->s}, *o = &op;
    o->node = n;
    o->node = tci_ox_resolve(m, n);
    o->opset = tci_ox_opset(m, n->domain);
    tci_ox_bind(o, names);
    const tci_onnx_function *function = tci_ox_function_of(m, n);
    const tci_ox_row *row = tci_ox_is_main(n->domain) ? tci_ox_row_of(n->op) : NULL;
    if (++m->depth > TCI_OX_DEEPEST) {
        tci_ox_fail(o, TC_ERR_LIMIT, "functions and graphs nest more than %d deep", TCI_OX_DEEPEST);
    }
    if (function) {
        tci_ox_call(o, function);
    } else if (!row) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED,
                    "op %.60s of domain %.40s, opset %" PRId64 ", is not "
                    "supported",
                    n->op, *n->domain ? n->domain : "ai.onnx", o->opset);
    } else if (!tci_ox_fold(o)) {
        o->row = row;
        if (!tci_ox_make_counted(o)) {
            row->make(o);
        }
    }
    m->depth--;
    for (int i = 0; i < o->n_out; i++) {
        if (o->out[i] && !o->out[i]->is_made && !o->out[i]->known && !o->out[i]->initializer) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "output %d is not supported", i);
        }
        if (o->out[i]) {
            tci_ox_declare(o, names, o->out[i]);
        }
    }
}

static void tci_ox_nodes(const tci_ox_op *o, const tci_onnx_node *nodes, int n, tci_ox_names *names)
{
    tci_ox *m = o->m;
    const tci_ox_names *around = m->names;
    m->names = names;
    for (int i = 0; i < n; i++) {
        tci_ox_node(m, &nodes[i], names);
    }
    m->names = around;
}

/* ---- graphs ---- */

static void tci_ox_initializers(const tci_ox_op *o, const tci_onnx_graph *g, tci_ox_names *names)
{
    if (g->is_sparse) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "sparse initializers are not supported");
    }
    for (int i = 0; i < g->n_tensors; i++) {
        tci_ox_value *v = tci_ox_value_new(o->s, g->tensors[i].name);
        v->initializer = &g->tensors[i];
        tci_ox_declare(o, names, v);
    }
}

static void tci_ox_graph(const tci_ox_op *o, const tci_onnx_graph *g, tci_ox_value *inputs, int n,
                         tci_ox_value **results)
{
    tci_ox_names names = tci_ox_names_new(o->s, o->m->names, g->n_nodes + g->n_tensors);
    if (g->n_inputs != n) {
        tci_ox_fail(o, TC_ERR_IO, "its graph has %d inputs: expected %d", g->n_inputs, n);
    }
    for (int i = 0; i < n; i++) {
        inputs[i].name = g->inputs[i].name;
        tci_ox_declare(o, &names, &inputs[i]);
    }
    tci_ox_initializers(o, g, &names);
    tci_ox_nodes(o, g->nodes, g->n_nodes, &names);
    for (int i = 0; i < g->n_outputs; i++) {
        results[i] = tci_ox_find(&names, g->outputs[i].name);
        if (!results[i]) {
            tci_ox_fail(o, TC_ERR_IO, "its graph does not make %.60s", g->outputs[i].name);
        }
    }
}

/* ---- the model ---- */

static const tc_onnx_input *tci_ox_told(const tci_ox *m, const char *name)
{
    for (int i = 0; i < m->options->n_inputs; i++) {
        if (m->options->inputs[i].name && !strcmp(m->options->inputs[i].name, name)) {
            return &m->options->inputs[i];
        }
    }
    return NULL;
}

/* The size of an axis that the model names or leaves open. */
static int64_t tci_ox_open_size(const tci_ox_op *o, const tci_onnx_info *v, int axis)
{
    const char *name = v->params[axis];
    name = *name && strcmp(name, "?") ? name : tci_scratch_printf(o->s, "%s.%d", v->name, axis);
    for (int i = 0; i < o->m->options->n_sizes; i++) {
        if (!strcmp(o->m->options->sizes[i].name, name)) {
            return o->m->options->sizes[i].size;
        }
    }
#ifdef TC_DYNAMIC_SHAPES
    int64_t most = o->m->options->largest ? o->m->options->largest : 65536;
    return tc_dim_make(name, 1, most);
#else
    tci_ox_fail(o, TC_ERR_SHAPE,
                "axis %d of input %.60s has no size (\"%.40s\"): tell it "
                "(tc_onnx_options.sizes), or define TC_DYNAMIC_SHAPES",
                axis, v->name, name);
    return 0;
#endif
}

static void tci_ox_input(const tci_ox_op *o, int i, tci_ox_value *v)
{
    const tci_onnx_info *info = &o->m->proto->graph->inputs[i];
    const tc_onnx_input *told = tci_ox_told(o->m, info->name);
    int rank = told && told->sizes ? told->rank : info->rank;
    int64_t *words = TCI_NEW_ARRAY(o->s, int64_t, TCI_MAX(rank, 0) + 1);
    if (!info->type) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "input %.60s is no tensor", info->name);
    }
    if (rank < 0) {
        tci_ox_fail(o, TC_ERR_SHAPE,
                    "input %.60s has no shape in the model: tell it "
                    "(tc_onnx_options.inputs)",
                    info->name);
    }
    words[0] = tci_ox_dtype(o, info->type);
    bool differs = info->rank >= 0 && rank != info->rank;
    for (int d = 0; d < rank && !differs && told && told->sizes && info->rank >= 0; d++) {
        differs = info->sizes[d] >= 0 && told->sizes[d] != info->sizes[d];
    }
    if (differs) {
        tci_ox_fail(o, TC_ERR_SHAPE, "input %.60s is told other sizes than the model has",
                    info->name);
    }
    for (int d = 0; d < rank; d++) {
        words[d + 1] = told && told->sizes   ? told->sizes[d]
                       : info->sizes[d] >= 0 ? info->sizes[d]
                                             : tci_ox_open_size(o, info, d);
    }
    uint64_t bit = i < TCI_OX_INPUTS ? UINT64_C(1) << i : TCI_OX_UNKNOWABLE;
    if (told && told->value && i < TCI_OX_INPUTS) {
        o->m->offered |= bit;
    }
    if (o->m->fixed & bit) {
        tci_onnx_tensor *t = TCI_NEW(o->s, tci_onnx_tensor);
        *t = (tci_onnx_tensor){.name = info->name,
                               .type = info->type,
                               .rank = rank,
                               .count = 1,
                               .sizes = words + 1,
                               .data = told->value};
        for (int d = 0; d < rank; d++) {
            t->count *= words[d + 1];
        }
        t->bytes = t->count * tc_dtype_size((tc_dtype)words[0]);
        v->initializer = t;
        return;
    }
    v->depends = bit;
    v->t = tc_input_at(o->ctx, info->name, rank + 1, words, o->here);
    v->is_made = true;
    if (tc_status_of(v->t) != TC_OK) {
        tci_ox_fail_tensor(o, v->t);
    }
}

typedef struct tci_ox_result { /* in the scratch */
    tci_ox_value **inputs, **outputs;
    int n_inputs, n_outputs;
} tci_ox_result;

/* Declares inputs, initializers and nodes of the graph. */
static tci_ox_result tci_ox_build_main(const tci_ox_op *o)
{
    const tci_onnx_graph *g = o->m->proto->graph;
    tci_ox_result r = {TCI_NEW_ARRAY(o->s, tci_ox_value *, g->n_inputs + 1),
                       TCI_NEW_ARRAY(o->s, tci_ox_value *, g->n_outputs + 1), 0, g->n_outputs};
    tci_ox_names *names = TCI_NEW(o->s, tci_ox_names);
    *names = tci_ox_names_new(o->s, NULL, (int64_t)g->n_nodes + g->n_tensors + g->n_inputs);
    tci_ox_initializers(o, g, names);
    for (int i = 0; i < g->n_inputs; i++) {
        if (tci_ox_find(names, g->inputs[i].name)) {
            continue; /* before IR 4 initializers were inputs too */
        }
        tci_ox_value *v = tci_ox_value_new(o->s, g->inputs[i].name);
        tci_ox_input(o, i, v);
        tci_ox_declare(o, names, v);
        if (!v->initializer) {
            r.inputs[r.n_inputs++] = v;
        }
    }
    tci_ox_nodes(o, g->nodes, g->n_nodes, names);
    for (int i = 0; i < g->n_outputs; i++) {
        r.outputs[i] = tci_ox_find(names, g->outputs[i].name);
        if (!r.outputs[i]) {
            tci_ox_fail(o, TC_ERR_IO, "nothing makes output %.60s", g->outputs[i].name);
        }
        bool cut = r.outputs[i]->is_cut;
        r.outputs[i]->is_cut = false;
        tci_ox_tensor(o, r.outputs[i]);
        r.outputs[i]->is_cut = cut;
    }
    return r;
}

/* A block with the arrays and names after the struct. */
static tc_onnx_model *tci_ox_pack(const tci_ox_op *o, const tci_ox_result *r)
{
    const tci_ox *m = o->m;
    size_t n = (size_t)(r->n_inputs + r->n_outputs), text = 0;
    size_t tensors = n + (size_t)(r->n_outputs + m->n_parameters);
    for (size_t i = 0; i < n; i++) {
        const tci_ox_value *v = i < (size_t)r->n_inputs ? r->inputs[i]
                                                        : r->outputs[i - (size_t)r->n_inputs];
        text += strlen(v->name) + 1;
    }
    tc_onnx_model *out = tci_heap_get(sizeof(*out) + tensors * sizeof(tc_tensor) +
                                      n * sizeof(char *) + (size_t)r->n_outputs * sizeof(int) +
                                      text);
    if (!out) {
        tci_ox_fail(o, TC_ERR_MEMORY, "out of memory");
    }
    tc_tensor *t = (tc_tensor *)(out + 1);
    const char **names = (const char **)(t + tensors);
    out->axes = (int *)(names + n);
    char *at = (char *)(out->axes + r->n_outputs);
    out->n_inputs = r->n_inputs;
    out->n_outputs = r->n_outputs;
    out->n_parameters = m->n_parameters;
    out->inputs = t;
    out->outputs = t + r->n_inputs;
    out->counts = out->outputs + r->n_outputs;
    out->parameters = out->counts + r->n_outputs;
    out->input_names = names;
    out->output_names = names + r->n_inputs;
    out->opset = (int)tci_ox_opset(m, "");
    for (size_t i = 0; i < n; i++) {
        size_t j = i - (size_t)r->n_inputs;
        const tci_ox_value *v = i < (size_t)r->n_inputs ? r->inputs[i] : r->outputs[j];
        t[i] = v->t;
        names[i] = strcpy(at, v->name);
        at += strlen(v->name) + 1;
        if (i >= (size_t)r->n_inputs) {
            out->counts[j] = v->is_cut ? v->count : TC_NONE;
            out->axes[j] = v->axis;
        }
    }
    if (m->n_parameters) {
        memcpy(out->parameters, m->parameters, sizeof(tc_tensor) * (size_t)m->n_parameters);
    }
    return out;
}

static tc_onnx_model *tci_ox_import(tci_ox *m)
{
    tci_ox_op op = {.m = m, .here = m->here, .ctx = m->ctx, .s = m->s}, *o = &op;
    int64_t opset;
    m->opsets = m->proto->opsets;
    m->n_opsets = m->proto->n_opsets;
    m->build = tci_ox_graph;
    m->names = NULL;
    m->depth = 0;
    m->n_parameters = 0;
    m->again = false;
    m->s->why = TC_OK;
    m->offered = 0;
    opset = tci_ox_opset(m, "");
    if (opset < 1 || opset > 28) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "opset %" PRId64 ": expected 1 to 28", opset);
    }
    tci_ox_result r = tci_ox_build_main(o);
    return tci_ox_pack(o, &r);
}

/* ---- the public calls ---- */

/* Arguments of a load, and data that lives as long as it. */
typedef struct tci_ox_load {
    tci_scratch s;
    tci_ox m;
    const void *bytes;
    size_t n;
} tci_ox_load;

/* Parses and imports; NULL: the scratch says why. */
static tc_onnx_model *tci_ox_load_now(tci_ox_load *l)
{
    tci_ox *m = &l->m;
    if (setjmp(l->s.escape)) {
        if (!m->again) {
            return NULL;
        }
    }
    if (!m->proto) {
        if (m->path) {
            const tci_ox_file *f = tci_ox_file_open(m, m->path, m->path);
            l->bytes = f->map;
            l->n = (size_t)f->bytes;
        }
        m->proto = tci_onnx_parse(&l->s, l->bytes, l->n);
    }
    return tci_ox_import(m);
}

static tc_status tci_ox_load_all(tci_ox_load *l, const char *op, tc_onnx_model **model)
{
    static const tc_onnx_options defaults = {NULL, 0, NULL, 0, 0, false};
    tci_ox *m = &l->m;
    tci_frame f = tci_frame_on(m->ctx, op, m->here);
    if (!f.failed && m->options) {
        tci_frame_list(&f, m->options->inputs, m->options->n_inputs, "the inputs");
        tci_frame_list(&f, m->options->sizes, m->options->n_sizes, "the sizes");
    }
    if (!f.failed && !model) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "model is NULL: expected where the model goes");
    }
    if (f.failed) {
        return tci_frame_status(&f);
    }
    tci_frame_leave(&f);
    m->options = m->options ? m->options : &defaults;
    tci_scratch_init(&l->s);
    m->s = &l->s;
    *model = tci_ox_load_now(l);
    while (m->files) {
        tci_ox_file *next = m->files->next;
        tci_ox_file_release(&m->files->owner);
        m->files = next;
    }
    tc_status status = TC_OK;
    if (!*model) {
        f = tci_frame_on(m->ctx, op, m->here);
        tci_frame_fail(&f, l->s.why, "%.200s: %s", m->path ? m->path : "model", l->s.message);
        status = tci_frame_status(&f);
    }
    tci_scratch_free(&l->s);
    return status;
}

TC_API tc_status tc_onnx_load_at(tc_ctx *ctx, const char *path, const tc_onnx_options *options,
                                 tc_onnx_model **model, tc_site here)
{
    tci_ox_load l = {.m = {.ctx = ctx, .here = here, .options = options, .path = path}};
    if (!path) {
        l.m.path = "";
    }
    if (model) {
        *model = NULL;
    }
    return tci_ox_load_all(&l, "tc_onnx_load", model);
}

TC_API tc_status tc_onnx_load_memory_at(tc_ctx *ctx, const void *bytes, size_t n,
                                        const tc_onnx_options *options, tc_onnx_model **model,
                                        tc_site here)
{
    tci_ox_load l = {.m = {.ctx = ctx, .here = here, .options = options}, .bytes = bytes, .n = n};
    if (model) {
        *model = NULL;
    }
    l.n = bytes ? n : 0;
    return tci_ox_load_all(&l, "tc_onnx_load_memory", model);
}

TC_API void tc_onnx_free(tc_onnx_model *model)
{
    tci_heap_free(model);
}

TC_API const char *tc_onnx_op_name(int i)
{
    return i >= 0 && i < tci_ox_n_rows() ? tci_ox_rows()[i].name : NULL;
}

TC_API const char *tc_onnx_op_how(int i)
{
    return i >= 0 && i < tci_ox_n_rows() ? tci_ox_rows()[i].how : NULL;
}
