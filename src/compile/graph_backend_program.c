/* compile/graph_backend_program.c - graphs compiled by external engines (graph-level backends such
 * as ONNX Runtime), wrapped as compiled code that has a single step.
 *
 * In: a request whose backend is an engine. Out: code with one step, which calls the engine's
 * compiled model. compile/graph_split.c uses the same functions for parts of graphs.
 *
 * Design: to the rest of tc such a program is one kernel that is a host function, with the user's
 * inputs and outputs as operands. Checks of buffers, strides, parameters, symbolic sizes, explain
 * and profiles work as for every program.
 *
 * Captured memory and literals are constants of the model, so that the engine can fold and pack
 * them; the key of the request has their versions and values (compile/cache_key.c). Parameters are
 * inputs, since runs of other programs change them; effects (ASSIGN) are outputs. */
#include "graph_backend_program.h"

#include <string.h>

#include "../base/os.h"
#include "../debug/explain.h"

static void tci_graph_program_check(tc_status status, tci_graph_making *m, const char *text)
{
    if (status) {
        tci_scratch_fail(m->s, status == TC_ERR_MEMORY ? status : TC_ERR_BACKEND, "%s: %s",
                         m->e->backend.name, text[0] ? text : "no reason given");
    }
}

TCI_FN void tci_graph_program_find(tci_graph_making *m)
{
    const tc_graph_backend *calls = m->e->calls;
    char text[TC_GRAPH_TEXT] = "";
    if (tci_os_is_setuid()) {
        snprintf(text, sizeof(text), "the process runs with more rights than its user");
    }
    bool found = !text[0] && calls->find(calls->user, m->e->option, text);
    tci_graph_program_check(found ? TC_OK : TC_ERR_BACKEND, m, text);
    tci_graph_program_check(calls->version(calls->user, m->e->option, m->version), m, m->version);
}

/* A symbolic size of n or its operands; 0: all are known. */
static tci_dim tci_graph_program_symbol(const tci_node *n)
{
    for (int k = -1; k < n->n_in; k++) {
        const tci_node *x = k < 0 ? n : n->in[k];
        for (int i = 0; i < x->rank; i++) {
            if (!tci_dim_is_known(x->shape[i])) {
                return x->shape[i];
            }
        }
    }
    return 0;
}

static bool tci_graph_program_has_axis(const tci_node *n, tci_dim size)
{
    int i = 0;
    while (i < n->rank && n->shape[i] != size) {
        i++;
    }
    return i < n->rank;
}

/* True if an operand of n has no elements where n has some; maybe: for some value of the symbolic
 * sizes. */
static bool tci_graph_program_fills(const tci_node *n, bool maybe)
{
    bool fills = false;
    for (int k = 0; k < n->n_in && n->op != TCI_OP_RESHAPE; k++) {
        const tci_node *x = n->in[k];
        for (int i = 0; i < x->rank; i++) {
            tci_dim d = x->shape[i];
            bool empty = (maybe || tci_dim_is_known(d)) && tci_dim_least(d) < 1;
            fills = fills || (empty && !tci_graph_program_has_axis(n, d));
        }
    }
    return fills;
}

TCI_FN const char *tci_graph_program_refusal(tci_graph_making *m, const tci_node *n)
{
    const tc_graph_backend *calls = m->e->calls;
    const char *of = NULL;
    if (tci_node_is_value(n) || tci_op_is(n->op, TCI_IS_LEAF)) {
        return NULL;
    }
    tci_dim symbol = calls->format()->known_sizes ? tci_graph_program_symbol(n) : 0;
    if (symbol) {
        of = tci_scratch_printf(m->s, " with the symbolic size %s", tci_dim_text_of(symbol).text);
    } else if (tci_graph_program_fills(n, calls->needs_elements)) {
        of = " of an operand that may have no elements";
    } else if (calls->supports &&
               !calls->supports(calls->user, tci_op_name(n->op), (tc_dtype)n->dtype)) {
        of = "";
    }
    return of ? tci_scratch_printf(m->s, "%s does not take %s of %s%s, made at %.120s:%d",
                                   m->e->backend.name, n->call ? n->call : tci_op_name(n->op),
                                   tc_dtype_name((tc_dtype)n->dtype), of,
                                   n->site.file ? n->site.file : "?", n->site.line)
              : NULL;
}

/* ---- the model ---- */

/* n: an input of the model or the value of an output. */
static void tci_graph_program_port(tci_graph_making *m, int i, const char *kind, int number,
                                   const tci_node *n)
{
    int64_t *sizes = TCI_NEW_ARRAY(m->s, int64_t, n->rank + 1);
    n = tci_op_is(n->op, TCI_IS_EFFECT) ? n->in[1] : n;
    for (int a = 0; a < n->rank; a++) {
        sizes[a] = tci_dim_is_known(n->shape[a]) ? tci_dim_known(n->shape[a]) : -1;
    }
    m->ports[i] = (tc_graph_port){tci_scratch_printf(m->s, "%s%d", kind, number),
                                  (tc_dtype)n->dtype, n->rank, sizes};
}

TCI_FN void tci_graph_program_write(tci_graph_making *m, tci_node **at)
{
    const tci_request *r = m->r;
    const tc_graph_format *format = m->e->calls->format();
    m->ports = TCI_NEW_ARRAY(m->s, tc_graph_port, m->n_inputs + m->n_roots + 1);
    for (int i = 0; i < m->n_inputs; i++) {
        tci_graph_program_port(m, i, "input", i, m->inputs[i]);
    }
    for (int i = 0; i < m->n_roots; i++) {
        tci_graph_program_port(m, m->n_inputs + i, "output", i, m->roots[i]);
    }
    if (!r->ctx) {
        tci_scratch_fail(m->s, TC_ERR_UNSUPPORTED, "%s compiles graphs of a context only",
                         m->e->backend.name);
    }
    m->model = (tci_str){.s = m->s};
    format->write(m->s,
                  &(tci_model_graph){.ctx = r->ctx,
                                     .here = r->site,
                                     .inputs = m->inputs,
                                     .roots = m->roots,
                                     .input_ports = m->ports,
                                     .output_ports = m->ports + m->n_inputs,
                                     .n_inputs = m->n_inputs,
                                     .n_roots = m->n_roots,
                                     .known = &r->places,
                                     .at = at},
                  &m->model);
}

/* Hash of everything that the blob of a model depends on. */
static tci_hash tci_graph_program_sum(tci_graph_making *m, int threads)
{
    tci_str text = {.s = m->s};
    tci_hash sum = tci_hash_bytes(tci_str_text(&m->model), m->model.n);
    char hex[33];
    tci_hash_hex(sum, hex);
    tci_str_printf(&text, "%s %zu %s %d %s", hex, m->model.n, m->version, threads,
                   m->e->backend.name);
    return tci_hash_bytes(tci_str_text(&text), text.n);
}

/* Leaves of the request that are part of the model. */
static void tci_graph_program_constants(tci_graph_making *m)
{
    const tci_request *r = m->r;
    tci_graph_program *p = m->made;
    p->constants = tci_code_need(m->s, m->c, r->n_captured, sizeof(*p->constants));
    p->versions = tci_code_need(m->s, m->c, r->n_captured, sizeof(*p->versions));
    for (int i = 0; i < r->n_captured; i++) {
        const tci_node *leaf = r->captured[i];
        bool read = !m->is_part || tci_table_has(&m->leaves, leaf);
        if (read && tci_graph_backend_embeds(leaf)) {
            p->constants[p->n_constants] = i;
            p->versions[p->n_constants++] = __atomic_load_n(&leaf->storage->version,
                                                            __ATOMIC_ACQUIRE);
        }
    }
}

TCI_FN tc_status tci_graph_program_compile(tci_graph_making *m, char text[TC_GRAPH_TEXT])
{
    const tc_graph_backend *calls = m->e->calls;
    int threads = tci_graph_backend_threads(m->d->options);
    tci_hash sum = tci_graph_program_sum(m, threads);
    tci_str blob = {0};
    const void *bytes = NULL;
    size_t n = calls->blob ? tci_disk_load_blob(m->d, sum, &blob, &bytes) : 0;
    m->made = tci_code_need(m->s, m->c, 1, sizeof(*m->made));
    m->made->entry = m->e;
    tci_graph_program_constants(m);
    m->from_blob = n > 0;
    tc_graph_model given = {tci_str_text(&m->model),
                            m->model.n,
                            m->ports,
                            m->ports + m->n_inputs,
                            m->n_inputs,
                            m->n_roots,
                            m->e->option,
                            threads,
                            bytes,
                            n};
    text[0] = 0;
    tc_status status = calls->compile(calls->user, &given, &m->made->compiled, text);
    tci_str_free(&blob);
    if (status) {
        return status;
    }
    m->made->next = m->c->engine; /* the code's from here on */
    m->c->engine = m->made;
    bytes = calls->blob && !m->from_blob ? calls->blob(calls->user, m->made->compiled, &n) : NULL;
    if (bytes && n) {
        tci_disk_store_blob(m->d, sum, bytes, n);
    }
    return TC_OK;
}

/* Inputs and roots of the whole graph; leaves that are part of the model are no inputs. */
static void tci_graph_program_whole(tci_graph_making *m)
{
    const tci_request *r = m->r;
    m->inputs = TCI_NEW_ARRAY(m->s, tci_node *, r->n_inputs + 1);
    for (int i = 0; i < r->n_inputs; i++) {
        if (i < r->n_user_inputs || !tci_graph_backend_embeds(r->inputs[i])) {
            m->inputs[m->n_inputs++] = r->inputs[i];
        }
    }
    m->roots = r->roots;
    m->n_roots = r->n_roots;
    for (int i = 0; i < r->n_nodes; i++) {
        const char *why = tci_graph_program_refusal(m, r->nodes[i]);
        if (why) {
            tci_scratch_fail(m->s, TC_ERR_UNSUPPORTED, "%s", why);
        }
    }
}

/* ---- the code ---- */

static void tci_graph_program_array(tci_graph_making *m, tc_custom_array *a,
                                    const tci_code_port *port)
{
    *a = (tc_custom_array){.dtype = (tc_dtype)port->dtype, .rank = port->rank};
    a->sizes = tci_code_need(m->s, m->c, port->rank, sizeof(int64_t));
    a->n = (int64_t)port->n;
    for (int i = 0; i < port->rank; i++) {
        a->sizes[i] = (int64_t)port->shape[i];
    }
}

/* The call, its arrays, and the buffers and operands of the only step. */
static void tci_graph_program_step(tci_graph_making *m, tci_code_kernel *k)
{
    tci_code *c = m->c;
    int n = m->n_inputs + c->n_outputs;
    tci_custom_call *call = tci_code_need(m->s, c, 1, sizeof(*call));
    call->engine = m->made;
    call->n_inputs = m->n_inputs;
    call->n_more = c->n_outputs - 1;
    call->arrays = tci_code_need(m->s, c, n, sizeof(*call->arrays));
    c->buffers = tci_code_need(m->s, c, n, sizeof(*c->buffers));
    c->steps = tci_code_need(m->s, c, 1, sizeof(*c->steps));
    c->steps->operands = tci_code_need(m->s, c, n, sizeof(int32_t));
    c->steps->offsets = tci_code_need(m->s, c, n, sizeof(tci_dim));
    c->n_steps = 1;
    k->call = call;
    k->n_operands = n;
    k->writes = tci_code_need(m->s, c, n, 1);
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        bool is_output = i >= c->n_inputs;
        if (!is_output && i >= c->n_user_inputs && tci_graph_backend_embeds(m->r->inputs[i])) {
            continue;
        }
        const tci_code_port *port = is_output ? &c->outputs[i - c->n_inputs] : &c->inputs[i];
        int at = c->n_buffers++;
        c->buffers[at] = (tci_code_buffer){.kind = is_output ? TCI_BUF_OUTPUT : TCI_BUF_INPUT,
                                           .index = is_output ? i - c->n_inputs : i,
                                           .bytes = port->bytes,
                                           .dtype = port->dtype,
                                           .rank = port->rank,
                                           .shape = port->shape};
        c->steps->operands[at] = at;
        k->writes[at] = is_output;
        k->bytes = tci_dim_add(k->bytes, port->bytes);
        tci_graph_program_array(m, &call->arrays[at], port);
    }
}

static char *tci_graph_program_text(tci_graph_making *m, const char *text)
{
    size_t n = strlen(text) + 1;
    return memcpy(tci_code_need(m->s, m->c, (int64_t)n, 1), text, n);
}

TCI_FN void tci_graph_program_tell(const tci_graph_making *m, tci_str *text)
{
    tci_str_printf(text, "%s: %s, given a model in %s of ", m->e->backend.name, m->version,
                   m->e->calls->format()->name);
    tci_explain_bytes(text, (int64_t)m->model.n);
    tci_str_add(text, m->from_blob ? ", whose program was in the disk cache" : "");
}

static void tci_graph_program_explain(tci_graph_making *m)
{
    tci_str text = {.s = m->s};
    int n_params = m->n_inputs - m->r->n_user_inputs;
    tci_str_printf(&text, "the whole graph of %d nodes on ", m->r->n_nodes);
    tci_graph_program_tell(m, &text);
    tci_str_printf(&text,
                   ", with %d constant%s and %d parameter%s\nvalues have its bits, not tc's\n",
                   m->made->n_constants, m->made->n_constants == 1 ? "" : "s", n_params,
                   n_params == 1 ? "" : "s");
    m->c->explain = tci_graph_program_text(m, tci_str_text(&text));
    m->c->kernels->symbol = tci_graph_program_text(m, m->e->calls->name);
    m->c->kernels->note = tci_graph_program_text(m, m->version);
    m->c->source = tci_graph_program_text(m, "");
}

TCI_FN void tci_graph_program_make(tci_scratch *s, tci_code *c, const tci_request *r,
                                   const tci_request_copy *copy, const tci_backend *b,
                                   const tci_disk *d)
{
    tci_graph_making m = {.s = s, .c = c, .r = r, .e = b->graph, .d = d};
    char text[TC_GRAPH_TEXT];
    tci_graph_program_find(&m);
    tci_graph_program_whole(&m);
    tci_code_fill_ports(s, c, r, copy);
    tci_graph_program_write(&m, NULL);
    tci_graph_program_check(tci_graph_program_compile(&m, text), &m, text);
    c->kernels = tci_code_need(s, c, 1, sizeof(*c->kernels));
    tci_graph_program_step(&m, c->kernels);
    c->kernels->n_tasks = 1;
    c->n_kernels = 1;
    c->calls = true;
    tci_graph_program_explain(&m);
    if (!tci_code_list(c)) {
        tci_scratch_fail(s, TC_ERR_MEMORY, "out of memory for a program");
    }
}

/* ---- runs ---- */

TCI_FN tc_status tci_graph_program_run(const tci_custom_call *call, void *const *operands,
                                       int n_operands, char text[TC_GRAPH_TEXT])
{
    const tci_graph_program *p = call->engine;
    const tc_graph_backend *calls = p->entry->calls;
    int n_in = call->n_inputs, n = n_in + 1 + call->n_more;
    bool packs = call->kind == TCI_CUSTOM_PART && call->n_more;
    size_t bytes = sizeof(tc_custom_array) * (size_t)n, at = 0;
    tc_custom_array *arrays = tci_heap_get(bytes);
    text[0] = 0;
    if (!arrays) {
        return TC_ERR_MEMORY;
    }
    memcpy(arrays, call->arrays, bytes);
    for (int i = 0; i < n; i++) {
        bool packed = packs && i >= n_in;
        arrays[i].data = packed ? (char *)operands[n_in] + at : operands[i];
        at += packed ? (size_t)tci_custom_bytes(&arrays[i]) : 0;
    }
    tc_status status = calls->run(calls->user, p->compiled, arrays, n_in, arrays + n_in, n - n_in,
                                  text);
    at = packs ? at : (size_t)tci_custom_bytes(&arrays[n_in]);
    for (int i = packs ? n_in + 1 : n; i < n_operands && !status; i++) {
        memcpy(operands[i], operands[n_in], at); /* outputs that are the same value */
    }
    tci_heap_free(arrays);
    return status ? TC_ERR_BACKEND : TC_OK;
}

TCI_FN void tci_graph_program_unpack(const tci_custom_call *call, void *const *operands,
                                     int n_operands)
{
    const tc_custom_array *result = &call->arrays[1];
    int64_t at = 0;
    for (int i = 0; i < call->n_more; i++) {
        at += tci_custom_bytes(&call->arrays[2 + i]);
    }
    for (int i = 1; i < n_operands; i++) {
        memcpy(operands[i], (const char *)operands[0] + at, (size_t)tci_custom_bytes(result));
    }
}
