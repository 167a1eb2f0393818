/* debug/case.c - a program as plain data.
 *
 * In: a key, whose second half is the whole graph (compile/key.c writes it); the memory of a run.
 * Out: nodes that can be cut down and changed freely, built again in a context of their own, and
 * run. The one idea: what identifies a program in the caches also restores it, so a program keeps
 * nothing more for the day on which it fails. */
#include "case.h"

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

typedef struct tci_case_reader {
    tci_scratch *s;
    const uint8_t *at, *end;
    bool bad;
} tci_case_reader;

static uint64_t tci_case_number(tci_case_reader *r)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (r->at >= r->end) {
            r->bad = true;
            return 0;
        }
        uint8_t byte = *r->at++;
        v |= (uint64_t)(byte & 127) << (shift < 64 ? shift : 63);
        if (!(byte & 128)) {
            return v;
        }
    }
    r->bad = true;
    return 0;
}

static int64_t tci_case_signed(tci_case_reader *r)
{
    uint64_t v = tci_case_number(r);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static int tci_case_count(tci_case_reader *r)
{
    uint64_t n = tci_case_number(r);
    r->bad = r->bad || n > (uint64_t)(r->end - r->at);
    return r->bad ? 0 : (int)n;
}

static int tci_case_byte(tci_case_reader *r)
{
    r->bad = r->bad || r->at >= r->end;
    return r->bad ? 0 : *r->at++;
}

static void tci_case_take(tci_case_reader *r, void *to, size_t n)
{
    r->bad = r->bad || (size_t)(r->end - r->at) < n;
    if (!r->bad) {
        memcpy(to, r->at, n);
        r->at += n;
    }
}

static const char *tci_case_text(tci_case_reader *r)
{
    const char *text = (const char *)r->at;
    const uint8_t *end = memchr(r->at, 0, (size_t)(r->end - r->at));
    r->bad = r->bad || !end;
    r->at = r->bad ? r->at : end + 1;
    return r->bad ? "" : text;
}

/* A size: in a build with symbols a byte says that it is a number. */
static int64_t tci_case_dim(tci_case_reader *r)
{
#ifdef TC_DYNAMIC_SHAPES
    r->bad = r->bad || !tci_case_byte(r);
#endif
    return tci_case_signed(r);
}

static void tci_case_type(tci_case_reader *r, tci_case_node *n)
{
    n->dtype = (int8_t)tci_case_byte(r);
    n->rank = tci_case_count(r);
    n->shape = TCI_NEW_ARRAY(r->s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        n->shape[i] = tci_case_dim(r);
    }
    r->bad = r->bad || !tci_dtype_is_valid(n->dtype);
}

/* A captured leaf: its elements, densely. */
static void tci_case_leaf(tci_case_reader *r, tci_case_node *n, const char *first)
{
    int64_t *strides = TCI_NEW_ARRAY(r->s, int64_t, n->rank + 1), stride = 1;
    bool dense = tci_case_byte(r) != 0;
    for (int i = n->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= n->shape[i];
    }
    for (int i = 0; !dense && i < n->rank; i++) {
        strides[i] = tci_case_signed(r);
    }
    n->op = TCI_OP_INPUT;
    if (first && !r->bad && stride > 0) {
        size_t bytes = (size_t)tci_dtype_get((tc_dtype)n->dtype)->bytes;
        char *data = tci_scratch_get(r->s, (size_t)tci_case_bytes(n) + 1);
        for (int i = 0; i < n->rank; i++) { /* `first` is the lowest address */
            first -= strides[i] < 0 ? (n->shape[i] - 1) * strides[i] * (int64_t)bytes : 0;
        }
        tci_case_copy(data, first, bytes, n->rank, n->shape, strides);
        n->data = n->known = data;
    }
}

/* The part of a node behind its type. n_before: inputs have smaller numbers. */
static void tci_case_rest(tci_case_reader *r, tci_case_node *n, int n_before)
{
    if (n->op == TCI_OP_CONST) {
        tci_case_take(r, &n->value, sizeof(n->value));
    }
    n->n_in = tci_case_count(r);
    n->in = TCI_NEW_ARRAY(r->s, int32_t, n->n_in + 1);
    for (int i = 0; i < n->n_in; i++) {
        uint64_t number = tci_case_number(r);
        r->bad = r->bad || number >= (uint64_t)n_before;
        n->in[i] = r->bad ? 0 : (int32_t)number;
    }
    if (n->op == TCI_OP_CUSTOM) {
        const char *name = tci_case_text(r);
        int64_t version = tci_case_signed(r);
        tci_case_text(r);
        tci_case_signed(r);
        tci_case_signed(r);
        const tci_custom *c = r->bad ? NULL : tci_custom_find(name, (int)version);
        n->n_attr = 1;
        n->attr = TCI_NEW_ARRAY(r->s, int64_t, 1);
        n->attr[0] = c ? c->number : 0;
        r->bad = r->bad || !c;
        return;
    }
    n->n_attr = tci_case_count(r);
    n->attr = TCI_NEW_ARRAY(r->s, int64_t, n->n_attr + 1);
    for (int i = 0; i < n->n_attr; i++) {
        const tci_attr_info *a = tci_op_attr(n->op, n->n_attr, i);
        n->attr[i] = a && tci_attr_is_dim(a) ? tci_case_dim(r) : tci_case_signed(r);
    }
}

TCI_FN bool tci_case_read(tci_scratch *s, const uint8_t *key, size_t n, size_t at,
                          const tci_case_memory *memory, tci_case *k)
{
    tci_case_reader r = {.s = s, .at = key + at, .end = key + n};
#ifdef TC_DYNAMIC_SHAPES
    if (tci_case_number(&r)) {
        return false;
    }
#endif
    int n_inputs = tci_case_count(&r), n_nodes = tci_case_count(&r), n_roots = tci_case_count(&r);
    int n_captured = 0, n_literals = 0;
    *k = (tci_case){.nodes = TCI_NEW_ARRAY(s, tci_case_node, n_inputs + n_nodes + 1)};
    for (int i = 0; i < n_inputs && !r.bad; i++) {
        tci_case_node *node = &k->nodes[k->n++];
        node->op = TCI_OP_INPUT;
        tci_case_type(&r, node);
        node->data = node->known = memory->inputs ? memory->inputs[i] : NULL;
    }
    for (int i = 0; i < n_nodes && !r.bad; i++) {
        tci_case_node *node = &k->nodes[k->n];
        node->op = (int)tci_case_number(&r);
        tci_case_type(&r, node);
        if (node->op == TCI_OP_DATA) {
            tci_case_leaf(&r, node, memory->captured ? memory->captured[n_captured] : NULL);
            n_captured++;
        } else {
            tci_case_rest(&r, node, k->n);
        }
        if (node->op == TCI_OP_LITERAL) {
            node->value.i = memory->literals ? memory->literals[n_literals] : 0;
            n_literals++;
        }
        k->n++;
    }
    k->root = n_roots > 0 ? (int)tci_case_number(&r) : -1;
    if (!r.bad && k->root >= 0 && k->nodes[k->root].op == TCI_OP_ASSIGN) {
        k->root = k->nodes[k->root].in[1];
    }
    return !r.bad && k->root >= 0 && k->root < k->n;
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
            n = (tci_case_node){.op = TCI_OP_INPUT, .dtype = n.dtype, .rank = n.rank,
                                .shape = n.shape, .data = n.known, .known = n.known};
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

/* A case as a program, made by the rooms below the public calls: no context takes part. */
typedef struct tci_case_built {
    tci_scratch s;
    tci_node **nodes;          /* by number, */
    tci_node **inputs; int n_inputs;
    tc_buf *bufs;              /* of the inputs, */
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
    static const tc_options by_op = {.backend = "interp", .fusion = -1, .no_disk_cache = true,
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
