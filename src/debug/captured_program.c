/* debug/captured_program.c - captured program: a program's graph and inputs as editable data, for
 * the minimizer and the writer of repro programs.
 *
 * In: a key, whose second half is the whole graph (written by compile/cache_key.c); the memory of a
 * run. Out: nodes that can be removed and changed, rebuilt in a context of their own, and run. The
 * key that identifies a program in the caches also restores its graph, so a program stores nothing
 * more for the case that it fails. */
#include "captured_program.h"

#include <string.h>

#include "../base/alloc.h"

#ifndef TC_NO_DEBUG

TCI_FN bool tci_case_is_leaf(const tci_case_node *n)
{
    return n->op == TCI_OP_INPUT || n->op == TCI_OP_LITERAL || n->op == TCI_OP_CONST;
}

TCI_FN int64_t tci_case_bytes(const tci_case_node *n)
{
    int64_t bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes;
    for (int i = 0; i < n->rank; i++) {
        bytes *= n->shape[i];
    }
    return bytes;
}

TCI_FN void tci_case_copy(char *to, const char *from, size_t bytes, int rank, const int64_t *sizes,
                          const int64_t *strides)
{
    if (rank == 0) {
        memcpy(to, from, bytes);
        return;
    }
    int64_t inner = (int64_t)bytes;
    for (int i = 1; i < rank; i++) {
        inner *= sizes[i];
    }
    for (int64_t i = 0; i < sizes[0]; i++) {
        tci_case_copy(to + i * inner, from + i * strides[0] * (int64_t)bytes, bytes, rank - 1,
                      sizes + 1, strides + 1);
    }
}

/* ---- reading a key ---- */

/* The elements of a captured leaf, densely. first: the lowest address. */
static void tci_case_leaf(tci_scratch *s, tci_case_node *n, const tci_node *from, const char *first)
{
    int64_t *strides = TCI_NEW_ARRAY(s, int64_t, n->rank + 1), stride = 1;
    size_t bytes = (size_t)tci_dtype_get((tc_dtype)n->dtype)->bytes;
    for (int i = n->rank - 1; i >= 0; i--) {
        strides[i] = from->strides ? tci_dim_known(from->strides[i]) : stride;
        stride *= n->shape[i];
    }
    n->op = TCI_OP_INPUT;
    if (first && stride > 0) {
        char *data = tci_scratch_get(s, (size_t)tci_case_bytes(n) + 1);
        for (int i = 0; i < n->rank; i++) {
            first -= strides[i] < 0 ? (n->shape[i] - 1) * strides[i] * (int64_t)bytes : 0;
        }
        tci_case_copy(data, first, bytes, n->rank, n->shape, strides);
        n->data = n->known = data;
    }
}

static void tci_case_take(tci_scratch *s, tci_case_node *n, const tci_node *from,
                          const tci_table *numbers)
{
    *n = (tci_case_node){.op = from->op,
                         .dtype = from->dtype,
                         .rank = from->rank,
                         .n_in = from->n_in,
                         .n_attr = from->n_attr,
                         .value = from->value};
    n->shape = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    n->attr = TCI_NEW_ARRAY(s, int64_t, n->n_attr + 1);
    n->in = TCI_NEW_ARRAY(s, int32_t, n->n_in + 1);
    for (int i = 0; i < n->rank; i++) {
        n->shape[i] = tci_dim_known(from->shape[i]);
    }
    for (int i = 0; i < n->n_attr; i++) {
        n->attr[i] = from->attr[i];
    }
    for (int i = 0; i < n->n_in; i++) {
        n->in[i] = *(const int32_t *)tci_table_item(numbers, from->in[i]);
    }
}

TCI_FN bool tci_case_read(tci_scratch *s, const uint8_t *key, size_t n, size_t at,
                          const tci_case_memory *memory, tci_case *k)
{
    tci_key_graph g;
    tci_table numbers = tci_table_in(s, sizeof(int32_t));
    int n_captured = 0, n_literals = 0;
    if (!tci_key_read(s, key, n, at, NULL, 0, &g) || g.n_symbols || !g.n_roots) {
        return false;
    }
    *k = (tci_case){.nodes = TCI_NEW_ARRAY(s, tci_case_node, g.n + 1), .n = g.n};
    for (int i = 0; i < g.n; i++) {
        tci_case_node *node = &k->nodes[i];
        tci_case_take(s, node, g.nodes[i], &numbers);
        *(int32_t *)tci_table_at(&numbers, g.nodes[i]) = i;
        if (i < g.n_inputs) {
            node->data = node->known = memory->inputs ? memory->inputs[i] : NULL;
        } else if (node->op == TCI_OP_DATA) {
            const char *first = memory->captured ? memory->captured[n_captured] : NULL;
            tci_case_leaf(s, node, g.nodes[i], first);
            n_captured++;
        } else if (node->op == TCI_OP_LITERAL) {
            node->value.i = memory->literals ? memory->literals[n_literals] : 0;
            n_literals++;
        }
    }
    const tci_node *root = g.roots[0];
    root = root->op == TCI_OP_ASSIGN ? root->in[1] : root;
    k->root = *(const int32_t *)tci_table_item(&numbers, root);
    return true;
}

/* ---- cutting ---- */

TCI_FN tci_case tci_case_cut(tci_scratch *s, const tci_case *k, int root, const bool *cut)
{
    int32_t *now = TCI_NEW_ARRAY(s, int32_t, k->n + 1);
    tci_case to = {.nodes = TCI_NEW_ARRAY(s, tci_case_node, k->n + 1)};
    now[root] = 1;
    for (int i = root; i >= 0; i--) { /* what is needed */
        bool leaf = cut && cut[i] && i != root;
        for (int j = 0; now[i] && !leaf && j < k->nodes[i].n_in; j++) {
            now[k->nodes[i].in[j]] = 1;
        }
    }
    for (int i = 0; i <= root; i++) {
        if (!now[i]) {
            continue;
        }
        tci_case_node n = k->nodes[i];
        if (cut && cut[i] && i != root && !tci_case_is_leaf(&n)) {
            n = (tci_case_node){.op = TCI_OP_INPUT,
                                .dtype = n.dtype,
                                .rank = n.rank,
                                .shape = n.shape,
                                .data = n.known,
                                .known = n.known};
        }
        int32_t *in = TCI_NEW_ARRAY(s, int32_t, n.n_in + 1);
        for (int j = 0; j < n.n_in; j++) {
            in[j] = now[n.in[j]];
        }
        n.in = in;
        now[i] = to.n;
        to.nodes[to.n++] = n;
    }
    to.root = to.n - 1;
    return to;
}

TCI_FN int tci_case_size(const tci_case *k)
{
    int n = 0;
    for (int i = 0; i < k->n; i++) {
        const tci_case_node *x = &k->nodes[i];
        bool moves = (x->op == TCI_OP_EXPAND || x->op == TCI_OP_RESHAPE) && i != k->root;
        n += !tci_case_is_leaf(x) && !moves;
    }
    return n;
}

/* ---- building and running ---- */

/* A case as a program, made by the modules below the public calls: no context takes part. */
typedef struct tci_case_built {
    tci_scratch s;
    tci_node **nodes; /* by number, */
    tci_node **inputs;
    int n_inputs;
    tc_buf *bufs; /* of the inputs, */
    tci_code *code;
    tc_program *f;
} tci_case_built;

static void tci_case_drop(tci_case_built *b)
{
    tci_program_release(b->f);
    tci_code_release(b->code);
    tci_scratch_free(&b->s);
}

static tci_node *tci_case_build_node(tci_scratch *s, tci_graph *g, const tci_case_node *n,
                                     tci_node **made)
{
    if (n->op == TCI_OP_LITERAL) {
        return tci_graph_literal(g, (tc_dtype)n->dtype, n->value);
    }
    if (n->op == TCI_OP_CONST) {
        return tci_graph_const(g, (tc_dtype)n->dtype, n->value);
    }
    tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in + 1);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = made[n->in[i]];
    }
    return tci_graph_node(g, n->op, (tc_dtype)n->dtype, n->rank, tci_dim_list(n->shape), n->n_in,
                          in, n->n_attr, n->attr);
}

static void tci_case_build_nodes(const tci_case *k, tci_case_built *b)
{
    tci_scratch *s = &b->s;
    tci_graph *g = TCI_NEW(s, tci_graph);
    tci_graph_init(g, s, NULL);
    b->nodes = TCI_NEW_ARRAY(s, tci_node *, k->n + 1);
    b->inputs = TCI_NEW_ARRAY(s, tci_node *, k->n + 1);
    b->bufs = TCI_NEW_ARRAY(s, tc_buf, k->n + 1);
    for (int i = 0; i < k->n; i++) {
        const tci_case_node *n = &k->nodes[i];
        b->nodes[i] = tci_case_build_node(s, g, n, b->nodes);
        if (n->op == TCI_OP_INPUT) {
            int64_t bytes = tci_case_bytes(n);
            const void *zeros = n->data ? NULL : tci_scratch_get(s, (size_t)bytes + 64);
            b->bufs[b->n_inputs] = (tc_buf){.data = (void *)(uintptr_t)(n->data ? n->data : zeros),
                                            .n = bytes / tci_dtype_get((tc_dtype)n->dtype)->bytes,
                                            .dtype = n->dtype};
            b->inputs[b->n_inputs++] = b->nodes[i];
        }
    }
}

/* The program of those results. What b has is freed by tci_case_drop in any case.
 * TC_ERR_ARGUMENT: such a graph cannot be. */
static tc_status tci_case_build(const tci_case *k, const int *roots, int n, const tc_options *o,
                                tci_case_built *b)
{
    *b = (tci_case_built){.n_inputs = 0};
    tci_scratch_init(&b->s);
    volatile bool holds = false;
    if (setjmp(b->s.escape)) {
        return holds ? b->s.why : TC_ERR_ARGUMENT;
    }
    tci_case_build_nodes(k, b);
    tci_node **list = TCI_NEW_ARRAY(&b->s, tci_node *, n + 1);
    for (int i = 0; i < n; i++) {
        list[i] = b->nodes[roots[i]];
    }
    tci_graph_verify(&b->s, list, n);
    holds = true;
    tci_request *r = tci_request_make(&b->s, b->inputs, b->n_inputs, list, n, o, NULL, NULL);
    tc_status status = TC_OK;
    tci_str log = {0};
    tci_compile_requests(&b->s, &r, 1, o, &b->code, &status, &log);
    tci_str_free(&log);
    return status ? status : tci_program_make(b->code, r, o, &b->f);
}

/* One run, into memory for each root. The kind of the check that failed goes to *kind. */
static tc_status tci_case_run(tci_case_built *b, tc_buf *to, int n, int *kind)
{
    tc_call *c = tci_call_make(b->f);
    tc_status status = c ? tci_call_run(c, ((tc_bufs){b->bufs, b->n_inputs}), ((tc_bufs){to, n}))
                         : TC_ERR_MEMORY;
    *kind = c && status == TC_ERR_CHECK ? c->check_kind : 0;
    tci_call_free(c);
    return status;
}

static tc_buf tci_case_buf(tci_scratch *s, const tci_case_node *n)
{
    int64_t bytes = tci_case_bytes(n);
    return (tc_buf){.data = tci_scratch_get(s, (size_t)bytes + 64),
                    .n = bytes / tci_dtype_get((tc_dtype)n->dtype)->bytes,
                    .dtype = n->dtype};
}

TCI_FN tc_status tci_case_try(tci_scratch *s, const tci_case *k, const tc_options *o, bool runs,
                              int *kind)
{
    tci_case_built b;
    tc_buf to = tci_case_buf(s, &k->nodes[k->root]);
    tc_status status = tci_case_build(k, &k->root, 1, o, &b);
    *kind = 0;
    if (!status && runs) {
        status = tci_case_run(&b, &to, 1, kind);
    }
    tci_case_drop(&b);
    return status;
}

TCI_FN tc_status tci_case_result(tci_scratch *s, const tci_case *k, const tc_options *o,
                                 const char **out)
{
    tci_case_built b;
    int kind;
    tc_buf to = tci_case_buf(s, &k->nodes[k->root]);
    tc_status status = tci_case_build(k, &k->root, 1, o, &b);
    status = status ? status : tci_case_run(&b, &to, 1, &kind);
    tci_case_drop(&b);
    *out = status ? NULL : to.data;
    return status;
}

/* ---- values of all nodes ---- */

static bool tci_case_is_wanted(const tci_case_node *n)
{
    return !tci_case_is_leaf(n) && !n->known && n->op != TCI_OP_BOUND && n->op != TCI_OP_REPEAT &&
           n->op != TCI_OP_ASSIGN;
}

TCI_FN bool tci_case_compute(tci_scratch *s, tci_case *k)
{
    static const tc_options by_op = {.backend = "interp",
                                     .fusion = -1,
                                     .no_disk_cache = true,
                                     .threads = 1};
    tci_case_built b;
    tc_buf *bufs = TCI_NEW_ARRAY(s, tc_buf, k->n + 1);
    int *of = TCI_NEW_ARRAY(s, int, k->n + 1), n = 0, kind;
    for (int i = 0; i < k->n; i++) {
        if (tci_case_is_wanted(&k->nodes[i])) {
            bufs[n] = tci_case_buf(s, &k->nodes[i]);
            of[n++] = i;
        }
    }
    bool ok = n > 0 && !tci_case_build(k, of, n, &by_op, &b);
    ok = ok && !tci_case_run(&b, bufs, n, &kind);
    for (int i = 0; i < n && ok; i++) {
        k->nodes[of[i]].known = bufs[i].data;
    }
    if (n > 0) {
        tci_case_drop(&b);
    }
    return ok;
}

#endif
