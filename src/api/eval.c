/* api/eval.c - tc_eval: lazy evaluation of graph nodes.
 *
 * In: handles. Out: values at nodes; statuses, with the text in ctx->last. The lazy form is a batch
 * of one job without inputs (api/compile.h), whose program runs once, into new memory that the
 * nodes then own. */
#include "../debug/minify.h"
#include "../run/shape_instances.h"
#include "compile.h"
#include "internal.h"

/* State of an evaluation; the arrays are in the batch's scratch memory. */
typedef struct tci_lazy {
    tci_batch b;
    tci_batch_job job;
    /* of job.outputs, without those that hold a value and without repeats */
    tci_node **nodes;
    int n_nodes, n_values; /* the nodes after n_values are effects */
    tci_storage **values;  /* their new memory */
    tc_buf *bufs;
} tci_lazy;

static void tci_lazy_list_missing(tci_lazy *w, tci_node *const *all, int n)
{
    tci_table listed = tci_table_in(&w->b.s, sizeof(bool));
    for (int i = 0; i < n; i++) {
        if (!tci_node_is_value(all[i]) && tci_table_add(&listed, all[i])) {
            w->nodes[w->n_nodes++] = all[i];
        }
    }
}

/* A symbolic size gets its value from the inputs of a run: without any there is none. */
static tc_status tci_lazy_check_sizes(const tci_lazy *w, const tci_request *r)
{
    for (int i = 0; i < r->n_nodes; i++) {
        const tci_node *n = r->nodes[i];
        for (int d = 0; d < n->rank; d++) {
            if (!tci_dim_is_known(n->shape[d])) {
                return tci_batch_fail(w->b.f, w->job.about, &n->site, TC_ERR_SHAPE,
                                      "%s, the size of axis %d of the result of %s, has no value "
                                      "before a run: compile it with an input of that size",
                                      TCI_DIM_TEXT(n->shape[d]), d, TCI_MAKER(n));
            }
        }
    }
    return TC_OK;
}

/* A tci_batch_body: b is the first member of the tci_lazy. */
static tc_status tci_lazy_request(tci_batch *b, tci_batch_job *job)
{
    tci_lazy *w = (tci_lazy *)(void *)b;
    int n = job->outputs.n;
    tci_node **all = TCI_NEW_ARRAY(&b->s, tci_node *, n);
    w->nodes = TCI_NEW_ARRAY(&b->s, tci_node *, n);
    w->values = TCI_NEW_ARRAY(&b->s, tci_storage *, n);
    w->bufs = TCI_NEW_ARRAY(&b->s, tc_buf, n);
    tc_status status = tci_batch_nodes(b, job, &job->outputs, all);
    if (status) {
        return status;
    }
    tci_lazy_list_missing(w, all, n);
    if (!w->n_nodes) {
        return TC_OK;
    }
    job->site = w->nodes[0]->site;
    b->requests = TCI_NEW_ARRAY(&b->s, tci_request *, 1);
    b->codes = TCI_NEW_ARRAY(&b->s, tci_code *, 1);
    b->statuses = TCI_NEW_ARRAY(&b->s, tc_status, 1);
    tci_request *r = tci_request_make(&b->s, NULL, 0, w->nodes, w->n_nodes, b->options, NULL, NULL);
    if (r->n_user_inputs) {
        const tci_node *input = r->inputs[0];
        return tci_batch_fail(b->f, job->about, &job->site, TC_ERR_ARGUMENT,
                              "the value needs '%.60s', a %s: compile it and bind the input with "
                              "tc_run, or use tc_borrow or tc_copy_in",
                              input->name ? input->name : "",
                              TCI_MADE_AT(input, "tc_input placeholder"));
    }
    status = tci_lazy_check_sizes(w, r);
    if (status) {
        return status;
    }
    job->request = r;
    w->nodes = r->roots;
    w->n_values = r->n_roots - r->n_effects;
    return TC_OK;
}

static tc_status tci_lazy_make_memory(tci_lazy *w)
{
    const tci_code *code = w->job.code;
    for (int i = 0; i < w->n_values; i++) {
        w->values[i] = tci_storage_make(tci_dim_known(code->outputs[i].bytes));
        if (!w->values[i]) {
            return tci_batch_fail(w->b.f, w->job.about, &w->nodes[i]->site, TC_ERR_MEMORY,
                                  "out of memory: %lld bytes for the value",
                                  (long long)code->outputs[i].bytes);
        }
        w->bufs[i] = (tc_buf){.data = w->values[i]->data,
                              .n = tci_dim_known(code->outputs[i].n),
                              .dtype = code->outputs[i].dtype};
    }
    return TC_OK;
}

static tc_status tci_lazy_run(tci_lazy *w, tc_program *f)
{
    tc_status status = tci_lazy_make_memory(w);
    tc_call *c = status ? NULL : tci_call_make(f);
    if (!status && !c) {
        status = tci_batch_fail(w->b.f, w->job.about, &w->job.site, TC_ERR_MEMORY,
                                "out of memory: workspace of a run");
    }
    if (!status) {
        tc_bufs none = {NULL, 0};
        tc_bufs outputs = {w->bufs, w->n_values};
        status = tci_call_run(c, none, outputs);
        if (status == TC_ERR_CHECK) {
            tci_minify_run(c);
        }
        if (status) {
            tci_batch_fail(w->b.f, w->job.about, &w->job.site, status, "%s", c->last.text);
        }
    }
    tci_call_free(c);
    for (int i = 0; i < w->n_values; i++) {
        if (status) {
            tci_storage_release(w->values[i]);
        } else {
            tci_storage_release(w->nodes[i]->storage); /* stale: it depends on a parameter */
            w->nodes[i]->storage = w->values[i];
        }
    }
    return status;
}

/* Compiles the request and runs it. */
static tc_status tci_lazy_compute(tci_lazy *w, tc_program **f)
{
    tci_batch_compile(&w->b);
    if (w->job.status) {
        return w->job.status;
    }
    tc_status status = tci_batch_make_program(&w->b, &w->job);
    tci_code_release(w->job.code); /* the program holds its own count */
    if (!status) {
        status = tci_lazy_run(w, *f);
        tci_program_release(*f);
    }
    return status;
}

/* The first of ts is live. */
static tc_status tci_lazy_eval(const tci_frame *frame, tc_tensors ts)
{
    tci_lazy w;
    tc_program *f = NULL;
    w.b.f = frame;
    w.b.about = ts.items[0];
    w.b.ctx = tci_ctx_of(ts.items[0].ctx);
    w.b.options = &w.b.ctx->options;
    w.b.exports = NULL;
    w.b.jobs = &w.job;
    w.b.n = 1;
    w.b.first = TC_OK;
    w.job =
        (tci_batch_job){.outputs = ts, .about = ts.items[0], .find_inputs = true, .program = &f};
    w.n_nodes = w.n_values = 0;
    int cancel = tci_os_no_cancel();
    tci_scratch_init(&w.b.s);
    tc_status status = tci_batch_armed(&w.b, &w.job, tci_lazy_request);
    if (!status && w.job.request) {
        tci_lent lent = tci_lend(w.b.ctx);
        status = tci_lazy_compute(&w, &f);
        status = tci_batch_take_back(&w.b, lent, status);
    }
    tci_scratch_free(&w.b.s);
    tci_os_may_cancel(cancel);
    return status;
}

TCI_FN tc_status tci_lazy_value(const tci_frame *f, tc_tensor t, tci_node **node)
{
    tc_status status = TC_OK;
    *node = tci_batch_node(f, t, t, &status);
    if (!*node || tci_node_is_value(*node)) {
        return status;
    }
    tc_tensors ts = {&t, 1};
    return tci_lazy_eval(f, ts);
}

/* Of every tensor, computed where it is not there. */
static tc_status tci_lazy_values(const tci_frame *f, tc_tensors ts)
{
    tc_status status = TC_OK;
    bool missing = false;
    for (int i = 0; i < ts.n && !status; i++) {
        const tci_node *n = tci_batch_node(f, ts.items[i], ts.items[i], &status);
        missing = missing || (n && !tci_node_is_value(n));
    }
    return missing && !status ? tci_lazy_eval(f, ts) : status;
}

/* Lets go of them where the host cannot read one, a leaf over memory of a device. */
static tc_status tci_lazy_check_memory(const tci_frame *f, tc_tensors ts, tci_lazy_held *m)
{
    for (int i = 0; i < ts.n && tci_backend_hides_any(); i++) {
        const char *device = tci_backend_hides(m[i].first);
        if (device) {
            tci_lazy_drop(m, ts.n);
            return tci_batch_fail(f, ts.items[i], &m[i].node->site, TC_ERR_BUFFER,
                                  "the value is in memory of a %s device, expected memory of the "
                                  "host",
                                  device);
        }
    }
    return TC_OK;
}

TCI_FN tc_status tci_lazy_hold(const tci_frame *f, tc_tensors ts, tci_lazy_held *m)
{
    tc_status status = tci_lazy_values(f, ts);
    for (int i = 0; i < ts.n && !status; i++) {
        tci_node *n = m[i].node = tci_handle_node(ts.items[i]);
        m[i].held = (tci_param_held){.next = i + 1 < ts.n ? &m[i + 1].held : NULL,
                                     .storage = n->storage};
        if (!n->storage) {
            status = tci_batch_fail(f, ts.items[i], &n->site, TC_ERR_ARGUMENT,
                                    "given an assign, which has no value: expected the parameter "
                                    "itself");
        }
    }
    if (status || !ts.n) {
        return status;
    }
    status = tci_param_hold(&m->held);
    if (status) {
        return tci_batch_fail(f, ts.items[0], &m->node->site, status,
                              "the device that has the value failed, or memory ran out");
    }
    for (int i = 0; i < ts.n; i++) {
        const tci_node *n = m[i].node;
        int64_t bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes;
        m[i].first = (const char *)m[i].held.data + n->offset * bytes;
    }
    return tci_lazy_check_memory(f, ts, m);
}

TCI_FN void tci_lazy_drop(tci_lazy_held *m, int n)
{
    tci_param_drop(n ? &m->held : NULL);
}

TC_API tc_status tc_eval_at(tc_tensor t, tc_site here)
{
    tci_node *n;
    tci_frame f = tci_frame_begin("tc_eval", here);
    tc_status status = tci_lazy_value(&f, t, &n);
    tci_frame_leave(&f);
    return status;
}

TC_API tc_status tc_eval_many_at(tc_tensors ts, tc_site here)
{
    if (ts.n < 0 || (ts.n && !ts.items)) {
        return TC_ERR_ARGUMENT;
    }
    tci_frame f = tci_frame_begin("tc_eval_many", here);
    tc_status status = tci_lazy_values(&f, ts);
    tci_frame_leave(&f);
    return status;
}
