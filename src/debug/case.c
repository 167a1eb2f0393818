/* debug/case.c - a program as plain data.
 *
 * In: a key, whose second half is the whole graph (compile/key.c writes it); the memory of a run.
 * Out: nodes that can be cut down and changed freely, built again in a context of their own, and
 * run. The one idea: what identifies a program in the caches also restores it, so a program keeps
 * nothing more for the day on which it fails. */
#include "case.h"

#include <string.h>

#include "../api/frame.h"
#include "../base/alloc.h"

#ifndef TC_NO_DEBUG

TCI_FN int *tci_case_last_kind(void)
{
    static _Thread_local int kind;
    return &kind;
}

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
        tci_leaf_copy(data, first, bytes, n->rank, n->shape, strides);
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

typedef struct tci_case_built {
    tc_ctx *ctx;
    tc_tensor *nodes;          /* by number; heap */
    tc_tensor *inputs; int n_inputs;
    tc_buf *bufs;              /* of the inputs */
    char *zeros;               /* for leaves without data; heap */
} tci_case_built;

static void tci_case_drop(tci_case_built *b)
{
    tc_ctx_free(b->ctx);
    tci_heap_free(b->nodes);
    tci_heap_free(b->inputs);
    tci_heap_free(b->bufs);
    tci_heap_free_aligned(b->zeros);
}

static tci_node *tci_case_build_node(tci_graph *g, const tci_case_node *n, tci_node **made)
{
    if (n->op == TCI_OP_LITERAL) {
        return tci_graph_literal(g, (tc_dtype)n->dtype, n->value);
    }
    if (n->op == TCI_OP_CONST) {
        return tci_graph_const(g, (tc_dtype)n->dtype, n->value);
    }
    tci_node *in[64], **list = n->n_in <= TCI_COUNT(in) ? in : NULL;
    if (!list) {
        return NULL; /* a long list is not worth a case */
    }
    for (int i = 0; i < n->n_in; i++) {
        list[i] = made[n->in[i]];
    }
    const tci_dim *shape = tci_dim_list(n->shape);
    return tci_graph_node(g, n->op, (tc_dtype)n->dtype, n->rank, shape, n->n_in, list, n->n_attr,
                          n->attr);
}

/* Whether the rules of shapes and dtypes hold. */
static bool tci_case_holds(tci_node *root)
{
    tci_scratch s;
    tci_scratch_init(&s);
    bool ok = setjmp(s.escape) == 0;
    if (ok) {
        tci_graph_verify(&s, &root, 1);
    }
    tci_scratch_free(&s);
    return ok;
}

static bool tci_case_build_in(const tci_case *k, tci_case_built *b, tci_node **made)
{
    tci_graph *g = &tci_ctx_of(b->ctx)->graph;
    tc_site nowhere = {NULL, 0};
    int64_t zeros = 64;
    for (int i = 0; i < k->n; i++) {
        const tci_case_node *n = &k->nodes[i];
        made[i] = tci_case_build_node(g, n, made);
        if (!made[i]) {
            return false;
        }
        b->nodes[i] = tci_handle_make(tci_ctx_of(b->ctx), made[i], nowhere);
        if (n->op == TCI_OP_INPUT) {
            int64_t bytes = tci_case_bytes(n);
            zeros = TCI_MAX(zeros, n->data ? 0 : bytes);
            b->bufs[b->n_inputs] = (tc_buf){.data = (void *)(uintptr_t)n->data,
                                            .n = bytes / tci_dtype_get((tc_dtype)n->dtype)->bytes,
                                            .dtype = n->dtype};
            b->inputs[b->n_inputs++] = b->nodes[i];
        }
    }
    b->zeros = tci_heap_get_aligned((size_t)zeros);
    if (b->zeros) {
        memset(b->zeros, 0, (size_t)zeros);
    }
    for (int i = 0; i < b->n_inputs; i++) {
        b->bufs[i].data = b->bufs[i].data ? b->bufs[i].data : b->zeros;
    }
    return b->zeros && tci_case_holds(made[k->root]);
}

/* A context with the case in it; what it has is freed by tci_case_drop in any case. */
static bool tci_case_build(const tci_case *k, const tc_options *o, tci_case_built *b)
{
    size_t n = (size_t)k->n + 1;
    *b = (tci_case_built){.nodes = tci_heap_get(sizeof(tc_tensor) * n),
                          .inputs = tci_heap_get(sizeof(tc_tensor) * n),
                          .bufs = tci_heap_get(sizeof(tc_buf) * n)};
    tci_node **made = tci_heap_get(sizeof(*made) * n);
    bool ok = made && b->nodes && b->inputs && b->bufs && tc_ctx_make(&b->ctx, o) == TC_OK &&
              tci_case_build_in(k, b, made);
    tci_heap_free(made);
    return ok;
}

static tc_status tci_case_run(const tci_case *k, const tci_case_built *b, tc_program *f, char *out)
{
    const tci_case_node *root = &k->nodes[k->root];
    tc_buf to = {.data = out,
                 .n = tci_case_bytes(root) / tci_dtype_get((tc_dtype)root->dtype)->bytes,
                 .dtype = root->dtype};
    return tc_run(f, ((tc_bufs){b->bufs, b->n_inputs}), ((tc_bufs){&to, 1}));
}

TCI_FN tc_status tci_case_try(const tci_case *k, const tc_options *o, bool runs, int *kind)
{
    tci_case_built b;
    tc_program *f = NULL;
    char *out = tci_heap_get_aligned((size_t)tci_case_bytes(&k->nodes[k->root]) + 64);
    bool built = tci_case_build(k, o, &b) && out;
    *kind = *tci_case_last_kind() = 0;
    tc_status status = TC_ERR_ARGUMENT; /* such a case cannot be */
    if (built) {
        status = tc_compile_fn(((tc_tensors){b.inputs, b.n_inputs}),
                               ((tc_tensors){&b.nodes[k->root], 1}), NULL, &f);
    }
    if (f && runs) {
        status = tci_case_run(k, &b, f, out);
        *kind = status == TC_ERR_CHECK ? *tci_case_last_kind() : 0;
    }
    tc_program_free(f);
    tci_case_drop(&b);
    tci_heap_free_aligned(out);
    return status;
}

TCI_FN tc_status tci_case_result(tci_scratch *s, const tci_case *k, const tc_options *o,
                                 const char **out)
{
    tci_case_built b;
    tc_program *f = NULL;
    char *memory = tci_scratch_get(s, (size_t)tci_case_bytes(&k->nodes[k->root]) + 64);
    tc_status status = TC_ERR_ARGUMENT;
    if (tci_case_build(k, o, &b)) {
        status = tc_compile_fn(((tc_tensors){b.inputs, b.n_inputs}),
                               ((tc_tensors){&b.nodes[k->root], 1}), NULL, &f);
    }
    if (f) {
        status = tci_case_run(k, &b, f, memory);
    }
    tc_program_free(f);
    tci_case_drop(&b);
    *out = status ? NULL : memory;
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
                                     .threads = 1, .check = TC_CHECK_NO_FILE};
    tci_case_built b;
    tc_program *f = NULL;
    tc_tensor *outs = TCI_NEW_ARRAY(s, tc_tensor, k->n + 1);
    tc_buf *bufs = TCI_NEW_ARRAY(s, tc_buf, k->n + 1);
    int *of = TCI_NEW_ARRAY(s, int, k->n + 1), n = 0;
    bool ok = tci_case_build(k, &by_op, &b);
    for (int i = 0; i < k->n && ok; i++) {
        const tci_case_node *x = &k->nodes[i];
        if (tci_case_is_wanted(x)) {
            int64_t bytes = tci_case_bytes(x);
            bufs[n] = (tc_buf){.data = tci_scratch_get(s, (size_t)bytes + 64),
                               .n = bytes / tci_dtype_get((tc_dtype)x->dtype)->bytes,
                               .dtype = x->dtype};
            of[n] = i;
            outs[n++] = b.nodes[i];
        }
    }
    ok = ok && n > 0 &&
         !tc_compile_fn(((tc_tensors){b.inputs, b.n_inputs}), ((tc_tensors){outs, n}), NULL, &f) &&
         !tc_run(f, ((tc_bufs){b.bufs, b.n_inputs}), ((tc_bufs){bufs, n}));
    for (int i = 0; i < n && ok; i++) {
        k->nodes[of[i]].known = bufs[i].data;
    }
    tc_program_free(f);
    tci_case_drop(&b);
    return ok;
}

#endif
