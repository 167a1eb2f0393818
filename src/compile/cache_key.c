/* compile/cache_key.c - compile requests: canonical order of the nodes, and the cache key.
 *
 * In: roots in the user's graph, options, backend, target. Out: the nodes in post-order from the
 * roots; the numbering of inputs, captured leaves and literal slots; the key bytes and their hash;
 * and, only for a request that no cache has, a copy of the graph in scratch memory.
 *
 * Design: the traversal depends on structure alone, so names, pointers, ids and the order of
 * creation do not reach the key. The key is written directly from the user's nodes, because most
 * requests end in the memory cache and never need the copy.
 *
 * Key numbers: user input i is i, nodes[j] is n_user_inputs + j; the number of inputs is known when
 * the traversal is done. The positions of a request are therefore j + 1 for nodes[j], and -(i + 1)
 * for user input i. */
#include <string.h>

#include "../base/env.h"
#include "../ops/communicator.h"
#include "schedule_file.h"
#include "graph_backend_registry.h"

/* ---- traversal ---- */

typedef struct tci_key_frame {
    tci_node *node;
    int32_t next; /* input to look at next */
} tci_key_frame;

typedef struct tci_key_walk {
    tci_scratch *s;
    tci_request *r;
    int cap_nodes, cap_inputs, cap_literals, cap_captured, cap_symbols, cap_collectives;
    tci_node **captured;
    int n_captured;
    tci_key_frame *frames;
    int n_frames, cap_frames;
    bool inputs_given;
} tci_key_walk;

/* The place of n; 0: the traversal has not met it. */
TCI_INLINE int32_t *tci_key_place(tci_request *r, const tci_node *n)
{
    return tci_table_at(&r->places, n);
}

static void tci_key_add_input(tci_key_walk *w, tci_node *n)
{
    tci_request *r = w->r;
    TCI_PUSH(w->s, r->inputs, r->n_user_inputs, w->cap_inputs, n);
    *tci_key_place(r, n) = -r->n_user_inputs;
}

TCI_INLINE bool tci_key_is_leaf(const tci_node *n)
{
    return tci_node_is_value(n) || tci_op_is(n->op, TCI_IS_LEAF);
}

/* All inputs of n have been met. */
static void tci_key_add_node(tci_key_walk *w, tci_node *n)
{
    tci_request *r = w->r;
    if (tci_node_is_value(n)) {
        TCI_PUSH(w->s, w->captured, w->n_captured, w->cap_captured, n);
    } else if (n->op == TCI_OP_LITERAL) {
        TCI_PUSH(w->s, r->literals, r->n_literals, w->cap_literals, n);
    } else if (n->op == TCI_OP_INPUT) {
        if (w->inputs_given) {
            tci_scratch_fail(w->s, TC_ERR_ARGUMENT,
                             "the outputs need input '%.60s', which is not in the list of inputs",
                             n->name ? n->name : "");
        }
        tci_key_add_input(w, n);
        return;
    } else if (n->op == TCI_OP_COLLECTIVE) {
        TCI_PUSH(w->s, r->collectives, r->n_collectives, w->cap_collectives, n);
    }
    TCI_PUSH(w->s, r->nodes, r->n_nodes, w->cap_nodes, n);
    *tci_key_place(r, n) = r->n_nodes;
}

/* A node that is new and not a leaf waits for its inputs, below which it is not met again. */
static inline void tci_key_meet(tci_key_walk *w, tci_node *n)
{
    tci_key_frame frame = {n, 0};
    if (*tci_key_place(w->r, n)) {
        return;
    }
    if (tci_key_is_leaf(n)) {
        tci_key_add_node(w, n);
    } else {
        TCI_PUSH(w->s, w->frames, w->n_frames, w->cap_frames, frame);
    }
}

static void tci_key_visit(tci_key_walk *w, tci_node *root)
{
    tci_key_meet(w, root);
    while (w->n_frames) {
        tci_key_frame *top = &w->frames[w->n_frames - 1];
        tci_node *n = top->node;
        if (top->next == n->n_in) {
            tci_key_add_node(w, n);
            w->n_frames--;
            continue;
        }
        tci_node *in = n->in[top->next++];
        if (TCI_UNLIKELY(tci_op_is(in->op, TCI_IS_EFFECT))) {
            tci_scratch_fail(w->s, TC_ERR_ARGUMENT,
                             "%s is given a tc_assign as an operand: an assign has no value, it "
                             "can only be an output of a program",
                             tci_op_name(n->op));
        }
        tci_key_meet(w, in);
    }
}

/* Heap sort: no recursion, no worst case, few inputs anyway. */
static void tci_key_sift(tci_node **a, int i, int n)
{
    for (int child = 2 * i + 1; child < n; i = child, child = 2 * i + 1) {
        if (child + 1 < n && a[child + 1]->value.u > a[child]->value.u) {
            child++;
        }
        if (a[i]->value.u >= a[child]->value.u) {
            return;
        }
        tci_node *t = a[i];
        a[i] = a[child];
        a[child] = t;
    }
}

/* By creation: the value of an INPUT or COLLECTIVE counts up with each one made. */
static void tci_key_sort(tci_node **a, int n)
{
    for (int i = n / 2 - 1; i >= 0; i--) {
        tci_key_sift(a, i, n);
    }
    for (int last = n - 1; last > 0; last--) {
        tci_node *t = a[0];
        a[0] = a[last];
        a[last] = t;
        tci_key_sift(a, 0, last);
    }
}

/* Inputs that the traversal found go by creation. */
static void tci_key_sort_inputs(tci_request *r)
{
    tci_key_sort(r->inputs, r->n_user_inputs);
    for (int i = 0; i < r->n_user_inputs; i++) {
        *tci_key_place(r, r->inputs[i]) = -i - 1;
    }
}

/* Where a COLLECTIVE is among those of the program. */
static int64_t tci_key_collective_number(const tci_request *r, const tci_node *n)
{
    int64_t i = 0;
    while (r->collectives[i] != n) {
        i++;
    }
    return i;
}

static void tci_key_walk_all(tci_key_walk *w, tci_node *const *user_inputs, int n_inputs)
{
    tci_request *r = w->r;
    w->inputs_given = user_inputs != NULL;
    for (int i = 0; user_inputs && i < n_inputs; i++) {
        if (*tci_key_place(r, user_inputs[i])) {
            tci_scratch_fail(w->s, TC_ERR_ARGUMENT, "input %d is listed twice", i);
        }
        tci_key_add_input(w, user_inputs[i]);
    }
    for (int i = 0; i < r->n_roots; i++) {
        tci_key_visit(w, r->roots[i]);
    }
    if (!user_inputs) {
        tci_key_sort_inputs(r);
    }
    tci_key_sort(r->collectives, r->n_collectives);
    r->n_inputs = r->n_user_inputs;
    for (int i = 0; i < w->n_captured; i++) {
        TCI_PUSH(w->s, r->inputs, r->n_inputs, w->cap_inputs, w->captured[i]);
    }
    r->captured = r->n_inputs > 0 ? r->inputs + r->n_user_inputs : NULL;
    r->n_captured = w->n_captured;
}

/* ---- the key ---- */

typedef struct tci_key_bytes {
    tci_scratch *s;
    uint8_t *at, *end, *begin;
} tci_key_bytes;

static void tci_key_reserve(tci_key_bytes *k, size_t more)
{
    if (TCI_LIKELY((size_t)(k->end - k->at) >= more)) {
        return;
    }
    size_t n = (size_t)(k->at - k->begin);
    size_t cap = TCI_MAX(2 * n + more, (size_t)768);
    uint8_t *fresh = tci_scratch_get(k->s, cap);
    if (n) {
        memcpy(fresh, k->begin, n);
    }
    k->begin = fresh;
    k->at = fresh + n;
    k->end = fresh + cap;
}

/* Seven bits a byte, low first: small numbers, by far the most, take one byte. At most 10 bytes. */
static inline void tci_key_number(tci_key_bytes *k, uint64_t v)
{
    while (v >= 128) {
        *k->at++ = (uint8_t)(v | 128);
        v >>= 7;
    }
    *k->at++ = (uint8_t)v;
}

/* Signed: 0, -1, 1, -2 ... become 0, 1, 2, 3 ... */
static inline void tci_key_signed(tci_key_bytes *k, int64_t v)
{
    tci_key_number(k, ((uint64_t)v << 1) ^ (v < 0 ? UINT64_MAX : 0));
}

static void tci_key_text(tci_key_bytes *k, const char *text)
{
    size_t n = strlen(text) + 1;
    tci_key_reserve(k, n);
    memcpy(k->at, text, n);
    k->at += n;
}

/* True if word `word` of n's attributes may be symbolic. */
static inline bool tci_key_is_size(const tci_node *n, int word)
{
    return tci_attr_is_dim(tci_op_attr(n->op, n->n_attr, word));
}

#ifdef TC_DYNAMIC_SHAPES

/* The program's own form of a size in the user's graph. */
static tci_dim tci_key_own(const tci_request *r, tci_dim d)
{
    return tci_dim_is_known(d) ? d : tci_dim_replace(d, r->n_symbols, r->user_symbols, r->symbols);
}

/* A byte says whether a number or words follow. */
static size_t tci_key_dim_bytes(const tci_request *r, tci_dim d)
{
    return 11 + (tci_dim_is_known(d) ? 0 : 10 * (size_t)tci_dim_write(tci_key_own(r, d), NULL));
}

static void tci_key_dim(tci_key_bytes *k, const tci_request *r, tci_dim d)
{
    *k->at++ = tci_dim_is_known(d);
    if (tci_dim_is_known(d)) {
        tci_key_signed(k, tci_dim_known(d));
        return;
    }
    d = tci_key_own(r, d);
    int n = tci_dim_write(d, NULL);
    int64_t *words = TCI_NEW_ARRAY(k->s, int64_t, n);
    tci_dim_write(d, words);
    for (int i = 0; i < n; i++) {
        tci_key_signed(k, words[i]);
    }
}

/* Numbers the symbols of d that have none yet. */
static void tci_key_add_symbols(tci_key_walk *w, tci_dim d)
{
    tci_request *r = w->r;
    if (tci_dim_is_known(d)) {
        return;
    }
    int n = r->n_symbols;
    while (!tci_dim_symbols(d, r->user_symbols, &r->n_symbols, w->cap_symbols)) {
        int room = TCI_MAX(2 * w->cap_symbols, 16);
        tci_dim *more = TCI_NEW_ARRAY(w->s, tci_dim, room);
        for (int i = 0; i < r->n_symbols; i++) {
            more[i] = r->user_symbols[i];
        }
        r->user_symbols = more;
        w->cap_symbols = room;
    }
    for (; n < r->n_symbols; n++) {
        const char *name = tci_dim_name(r->user_symbols[n]);
        for (int i = 0; i < n; i++) {
            if (!strcmp(name, tci_dim_name(r->user_symbols[i]))) {
                tci_scratch_fail(w->s, TC_ERR_SHAPE,
                                 "the dimension '%.40s' is declared with two ranges", name);
            }
        }
    }
}

/* Symbols by first use: user inputs in order, then what else the program is made of. */
static void tci_key_find_symbols(tci_key_walk *w)
{
    tci_request *r = w->r;
    for (int i = 0; i < r->n_user_inputs + r->n_nodes; i++) {
        const tci_node *n = i < r->n_user_inputs ? r->inputs[i] : r->nodes[i - r->n_user_inputs];
        for (int a = 0; a < n->rank; a++) {
            tci_key_add_symbols(w, n->shape[a]);
        }
        for (int a = 0; a < n->n_attr; a++) {
            if (tci_key_is_size(n, a)) {
                tci_key_add_symbols(w, n->attr[a]);
            }
        }
    }
    r->symbols = TCI_NEW_ARRAY(w->s, tci_dim, r->n_symbols);
    for (int i = 0; i < r->n_symbols; i++) {
        r->symbols[i] = tci_dim_symbol(NULL, i, tci_dim_least(r->user_symbols[i]),
                                       tci_dim_most(r->user_symbols[i]));
    }
}

static void tci_key_ranges(tci_key_bytes *k, const tci_request *r)
{
    tci_key_reserve(k, 10 + 20 * (size_t)r->n_symbols);
    tci_key_number(k, (uint64_t)r->n_symbols);
    for (int i = 0; i < r->n_symbols; i++) {
        tci_key_signed(k, tci_dim_least(r->symbols[i]));
        tci_key_signed(k, tci_dim_most(r->symbols[i]));
    }
}

/* dims as the program has them, in scratch. */
static const tci_dim *tci_key_own_list(tci_scratch *s, const tci_request *r, int n,
                                       const tci_dim *dims)
{
    tci_dim *own = r->n_symbols ? tci_scratch_copy(s, dims, sizeof(*dims) * (size_t)n) : NULL;
    for (int i = 0; own && i < n; i++) {
        own[i] = tci_key_own(r, dims[i]);
    }
    return own ? own : dims;
}

/* n's attributes likewise. */
static const int64_t *tci_key_own_words(tci_scratch *s, const tci_request *r, const tci_node *n)
{
    int64_t *own = r->n_symbols ? tci_scratch_copy(s, n->attr, sizeof(*own) * (size_t)n->n_attr)
                                : NULL;
    for (int i = 0; own && i < n->n_attr; i++) {
        own[i] = tci_key_is_size(n, i) ? (int64_t)tci_key_own(r, own[i]) : own[i];
    }
    return own ? own : n->attr;
}

#else

#define tci_key_dim_bytes(r, d) 10
#define tci_key_dim(k, r, d) tci_key_signed((k), (d))
#define tci_key_find_symbols(w) ((void)(w))
#define tci_key_ranges(k, r) ((void)(k))
#define tci_key_own_list(s, r, n, dims) (dims)
#define tci_key_own_words(s, r, n) ((n)->attr)

#endif

static size_t tci_key_type_bytes(const tci_request *r, const tci_node *n)
{
    size_t bytes = 16;
    (void)r;
    for (int i = 0; i < n->rank; i++) {
        bytes += tci_key_dim_bytes(r, n->shape[i]);
    }
    return bytes;
}

static inline void tci_key_type(tci_key_bytes *k, const tci_request *r, const tci_node *n)
{
    (void)r;
    *k->at++ = (uint8_t)n->dtype;
    tci_key_number(k, (uint64_t)n->rank);
    for (int i = 0; i < n->rank; i++) {
        tci_key_dim(k, r, n->shape[i]);
    }
}

static bool tci_key_is_dense(const tci_node *n)
{
    tci_dim stride = 1;
    for (int i = n->rank - 1; n->strides && i >= 0; i--) {
        if (n->shape[i] != 1 && n->strides[i] != stride) {
            return false;
        }
        stride = tci_dim_mul(stride, n->shape[i]);
    }
    return true;
}

static void tci_key_leaf(tci_key_bytes *k, const tci_request *r, const tci_node *n)
{
    bool dense = tci_key_is_dense(n);
    tci_key_number(k, TCI_OP_DATA);
    tci_key_type(k, r, n);
    *k->at++ = dense;
    for (int i = 0; !dense && i < n->rank; i++) {
        tci_key_signed(k, tci_dim_known(n->strides[i]));
    }
}

static void tci_key_node(tci_key_bytes *k, const tci_request *r, const tci_node *n)
{
    size_t bytes = 64 + tci_key_type_bytes(r, n) + 10 * ((size_t)n->rank + (size_t)n->n_in);
    for (int i = 0; i < n->n_attr; i++) {
        bytes += tci_key_is_size(n, i) ? tci_key_dim_bytes(r, n->attr[i]) : 10;
    }
    tci_key_reserve(k, bytes);
    if (tci_node_is_value(n)) {
        tci_key_leaf(k, r, n);
        return;
    }
    tci_key_number(k, n->op);
    tci_key_type(k, r, n);
    if (n->op == TCI_OP_CONST) {
        memcpy(k->at, &n->value, sizeof(n->value));
        k->at += sizeof(n->value);
    }
    tci_key_number(k, (uint64_t)n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        tci_key_number(k, (uint64_t)tci_request_number(r, n->in[i]));
    }
    if (n->op == TCI_OP_CUSTOM) { /* the number is of this process */
        const tci_custom *c = tci_custom_get(n->attr[0]);
        tci_key_text(k, c->op.name);
        tci_key_reserve(k, 10);
        tci_key_signed(k, c->op.version);
        tci_key_text(k, c->op.cuda ? c->op.cuda : "");
        tci_key_reserve(k, 20);
        tci_key_signed(k, c->op.cuda_threads);
        tci_key_signed(k, c->op.cuda_elements);
        return;
    }
    tci_key_number(k, (uint64_t)n->n_attr);
    for (int i = 0; i < n->n_attr; i++) {
        if (tci_key_is_size(n, i)) {
            tci_key_dim(k, r, n->attr[i]);
        } else if (n->op == TCI_OP_COLLECTIVE && i == TCI_COLLECTIVE_NUMBER) {
            tci_key_signed(k, tci_key_collective_number(r, n));
        } else {
            tci_key_signed(k, n->attr[i]);
        }
    }
}

TCI_FN const char *tci_key_build(void)
{
    return TCI_BUILD_FORM;
}

/* Options that change what is generated. threads and logs do not; nor does the compiler, whichever
 * it is: machines without one find what another one built. */
static void tci_key_options(tci_key_bytes *k, const tc_options *o, const char *backend,
                            const tci_target *target)
{
    tci_key_text(k, TCI_BUILD_FORM);
    tci_key_text(k, backend);
    tci_key_text(k, target->features);
    tci_key_text(k, target->record);
    tci_key_text(k, o->dump ? o->dump : "");
    tci_str forced = {0};
    bool is_read = tci_forced_read(&forced, o);
    tci_hash sum = tci_hash_bytes(tci_str_text(&forced), forced.n);
    tci_str_free(&forced);
    tci_key_reserve(k, 15 + sizeof(sum));
    *k->at++ = is_read;
    memcpy(k->at, &sum, sizeof(sum));
    k->at += sizeof(sum);
    *k->at++ = (uint8_t)o->math;
    *k->at++ = (uint8_t)((o->matrix < 0) | (o->reproducible ? 2 : 0) | (o->tune_ms > 0 ? 4 : 0) |
                         (o->fusion < 0 ? 8 : 0) | ((unsigned)o->remat << 4) |
                         (o->verify ? 64 : 0) /* a program found was verified if asked for */ |
                         (o->quick_build ? 128 : 0));
    *k->at++ = (uint8_t)sizeof(void *);
    *k->at++ = (uint8_t)(o->check & TC_CHECK_ALL);  /* such code has more to it */
    tci_key_signed(k, TCI_MAX(o->memory_limit, 0)); /* what does not fit is planned leaner */
}

/* An engine's model has constants: the values of numbers, and leaves in their versions. Both name
 * memory of this process, so the bytes of leaves need not be read. */
static void tci_key_constants(tci_key_bytes *k, const tci_request *r, const tc_options *o)
{
    tci_key_reserve(k, 10 + 10 * (size_t)r->n_literals);
    tci_key_number(k, (uint64_t)tci_graph_backend_threads(o));
    for (int i = 0; i < r->n_literals; i++) {
        tci_key_number(k, r->literals[i]->value.u);
    }
    tci_key_reserve(k, 30 * (size_t)r->n_captured);
    for (int i = 0; i < r->n_captured; i++) {
        const tci_node *leaf = r->captured[i];
        bool embeds = tci_graph_backend_embeds(leaf);
        tci_key_number(k, embeds ? (uint64_t)(uintptr_t)leaf->storage : 0);
        tci_key_number(k, embeds ? __atomic_load_n(&leaf->storage->version, __ATOMIC_ACQUIRE) : 0);
        tci_key_number(k, embeds ? (uint64_t)leaf->offset : 0);
    }
}

/* embeds: for an engine. */
static void tci_key_write(tci_scratch *s, tci_request *r, const tc_options *o, const char *backend,
                          const tci_target *target, bool embeds)
{
    tci_key_bytes k = {s, NULL, NULL, NULL};
    tci_key_options(&k, o, backend, target);
    r->key_graph = (size_t)(k.at - k.begin);
    tci_key_ranges(&k, r);
    tci_key_reserve(&k, 30);
    tci_key_number(&k, (uint64_t)r->n_user_inputs);
    tci_key_number(&k, (uint64_t)r->n_nodes);
    tci_key_number(&k, (uint64_t)r->n_roots);
    for (int i = 0; i < r->n_user_inputs; i++) {
        tci_key_reserve(&k, tci_key_type_bytes(r, r->inputs[i]));
        tci_key_type(&k, r, r->inputs[i]);
    }
    r->marks = r->n_collectives ? TCI_NEW_ARRAY(s, tci_hash, r->n_nodes) : NULL;
    for (int i = 0; i < r->n_nodes; i++) {
        size_t at = (size_t)(k.at - k.begin);
        tci_key_node(&k, r, r->nodes[i]);
        if (TCI_UNLIKELY(r->marks != NULL)) {
            r->marks[i] = tci_hash_bytes(k.begin + at, (size_t)(k.at - k.begin) - at);
        }
    }
    tci_key_reserve(&k, 10 * (size_t)r->n_roots);
    for (int i = 0; i < r->n_roots; i++) {
        tci_key_number(&k, (uint64_t)tci_request_number(r, r->roots[i]));
    }
    if (TCI_UNLIKELY(embeds)) {
        tci_key_constants(&k, r, o);
    }
    r->key = k.begin;
    r->key_bytes = (size_t)(k.at - k.begin);
    r->hash = tci_hash_bytes(r->key, r->key_bytes);
}

TCI_FN tci_request *tci_request_for_target(tci_scratch *s, const tci_request *r,
                                           const tc_options *o, const char *backend,
                                           const char *features, const char *record)
{
    tci_request *other = tci_scratch_copy(s, r, sizeof(*r));
    size_t graph = r->key_bytes - r->key_graph;
    tci_key_bytes k = {s, NULL, NULL, NULL};
    tci_target target;
    memset(&target, 0, sizeof(target));
    snprintf(target.features, sizeof(target.features), "%s", features);
    snprintf(target.record, sizeof(target.record), "%s", record);
    tci_key_options(&k, o, backend, &target);
    other->key_graph = (size_t)(k.at - k.begin);
    tci_key_reserve(&k, graph);
    memcpy(k.at, r->key + r->key_graph, graph);
    k.at += graph;
    other->key = k.begin;
    other->key_bytes = (size_t)(k.at - k.begin);
    other->hash = tci_hash_bytes(other->key, other->key_bytes);
    return other;
}

TCI_FN void tci_request_split(tci_scratch *s, tci_request *r, const tc_options *o,
                              const tci_backend *engine)
{
    tci_key_bytes k = {s, NULL, NULL, NULL};
    tci_key_reserve(&k, r->key_bytes);
    memcpy(k.at, r->key, r->key_bytes);
    k.at += r->key_bytes;
    tci_key_text(&k, engine->name);
    tci_key_constants(&k, r, o);
    r->engine = engine;
    r->key = k.begin;
    r->key_bytes = (size_t)(k.at - k.begin);
    r->hash = tci_hash_bytes(r->key, r->key_bytes);
}

/* ---- effects ---- */

/* Puts the effects after the others and returns how many there are. */
static int tci_key_sort_roots(tci_scratch *s, tci_request *r, tci_node *const *roots)
{
    int n_values = 0, at = 0;
    r->roots = TCI_NEW_ARRAY(s, tci_node *, r->n_roots);
    for (int effects = 0; effects < 2; effects++) {
        for (int i = 0; i < r->n_roots; i++) {
            if (tci_op_is(roots[i]->op, TCI_IS_EFFECT) == (effects != 0)) {
                r->roots[at++] = roots[i];
            }
        }
        n_values = effects ? n_values : at;
    }
    return r->n_roots - n_values;
}

/* Finds the captured leaf that each effect changes. */
static void tci_key_find_effects(tci_scratch *s, tci_request *r)
{
    int first = r->n_roots - r->n_effects;
    r->effects = TCI_NEW_ARRAY(s, int32_t, r->n_effects);
    for (int i = 0; i < r->n_effects; i++) {
        const tci_node *param = r->roots[first + i]->in[0];
        while (r->captured[r->effects[i]] != param) {
            r->effects[i]++;
        }
        for (int k = 0; k < i; k++) {
            bool same = r->effects[k] == r->effects[i] || /* read from a key: without storage */
                        (param->storage && r->captured[r->effects[k]]->storage == param->storage);
            if (same) {
                tci_scratch_fail(s, TC_ERR_ARGUMENT,
                                 "two tc_assign to one parameter: expected one in a program");
            }
        }
    }
}

TCI_FN tci_request *tci_request_make(tci_scratch *s, tci_node *const *user_inputs, int n_inputs,
                                     tci_node *const *roots, int n_roots, const tc_options *o,
                                     const char *backend, const tci_target *target)
{
    bool embeds = false;
    if (!backend || !target) {
        const tci_backend *b = tci_backend_pick(o);
        if (!b) {
            tci_str why = {.s = s};
            tci_backend_missing(&why, o);
            tci_scratch_fail(s, TC_ERR_BACKEND, "%s", tci_str_text(&why));
        }
        backend = b->name;
        target = &b->target;
        embeds = b->graph != NULL;
    }
    tci_request *r = TCI_NEW(s, tci_request);
    r->n_roots = n_roots;
    r->places = tci_table_in(s, sizeof(int32_t));
    r->n_effects = tci_key_sort_roots(s, r, roots);
    tci_key_walk w;
    memset(&w, 0, sizeof(w));
    w.s = s;
    w.r = r;
    tci_key_walk_all(&w, user_inputs, n_inputs);
    tci_key_find_symbols(&w);
    tci_key_find_effects(s, r);
    tci_key_write(s, r, o, backend, target, embeds);
    r->compiler = o->cc ? tci_hash_bytes(o->cc, strlen(o->cc)).lo : 0;
    return r;
}

/* ---- the copy ---- */

static tci_node *tci_key_copy_leaf(tci_scratch *s, tci_graph *g, const tci_node *n)
{
    tci_node *leaf = tci_graph_node(g, TCI_OP_DATA, (tc_dtype)n->dtype, n->rank, n->shape, 0, NULL,
                                    0, NULL);
    if (!tci_key_is_dense(n) && tci_node_count(n) != 0) {
        leaf->strides = tci_scratch_copy(s, n->strides, sizeof(tci_dim) * (size_t)n->rank);
        for (int i = 0; i < n->rank; i++) {
            int64_t stride = tci_dim_known(n->strides[i]);
            leaf->offset -= stride < 0 ? (tci_dim_known(n->shape[i]) - 1) * stride : 0;
        }
    }
    return leaf;
}

static tci_node *tci_key_copy_node(tci_scratch *s, tci_graph *g, const tci_request *r,
                                   const tci_node *n, tci_node **places)
{
    if (tci_node_is_value(n)) {
        return tci_key_copy_leaf(s, g, n);
    }
    if (n->op == TCI_OP_CONST) {
        return tci_graph_const(g, (tc_dtype)n->dtype, n->value);
    }
    tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = places[tci_request_number(r, n->in[i])];
    }
    const tci_dim *shape = tci_key_own_list(s, r, n->rank, n->shape);
    const int64_t *attr = tci_key_own_words(s, r, n);
    tci_node *copy = tci_graph_node(g, n->op, (tc_dtype)n->dtype, n->rank, shape, n->n_in, in,
                                    n->n_attr, attr);
    if (n->op == TCI_OP_COLLECTIVE) {
        copy->attr[TCI_COLLECTIVE_NUMBER] = tci_key_collective_number(r, n);
    }
    return copy;
}

TCI_FN const tci_dim *tci_request_own_shape(tci_scratch *s, const tci_request *r, const tci_node *n)
{
    (void)s, (void)r;
    return tci_key_own_list(s, r, n->rank, n->shape);
}

/* The name by which kernels that compute the node are called, where that is not its own op's. */
static const char *tci_key_called(const tci_node *n)
{
    return n->op == TCI_OP_CUSTOM       ? tci_custom_get(n->attr[0])->op.name
           : tci_op_is_composite(n->op) ? tci_op_name(n->op)
                                        : NULL;
}

/* Values of literals stay behind: a stage that looked at one would make code that is wrong for
 * the next. */
TCI_FN tci_request_copy tci_request_copy_graph(tci_scratch *s, const tci_request *r,
                                               const tci_request_cut *cut)
{
    tci_request_copy c;
    c.graph = TCI_NEW(s, tci_graph);
    tci_graph_init(c.graph, s, NULL);
    c.inputs = TCI_NEW_ARRAY(s, tci_node *, r->n_inputs);
    c.literals = TCI_NEW_ARRAY(s, tci_node *, r->n_literals);
    c.roots = TCI_NEW_ARRAY(s, tci_node *, r->n_roots);
    tci_node **places = TCI_NEW_ARRAY(s, tci_node *, r->n_user_inputs + r->n_nodes);
    for (int i = 0; i < r->n_user_inputs; i++) {
        const tci_node *n = r->inputs[i];
        c.graph->region = (uint32_t)i + 1;
        c.inputs[i] = tci_graph_node(c.graph, TCI_OP_INPUT, (tc_dtype)n->dtype, n->rank,
                                     tci_key_own_list(s, r, n->rank, n->shape), 0, NULL, 0, NULL);
        c.inputs[i]->name = tci_scratch_printf(s, "in%d", i);
        places[i] = c.inputs[i];
    }
    int n_captured = 0, n_literals = 0;
    for (int at = 0; at < (cut ? cut->n : r->n_nodes); at++) {
        int i = cut ? cut->order[at] : at;
        if (i < 0) {
            cut->make(cut->user, c.graph, -1 - i, places);
            continue;
        }
        const tci_node *n = r->nodes[i];
        c.graph->region = (uint32_t)(r->n_user_inputs + i) + 1;
        c.graph->call = tci_key_called(n);
        tci_node *copy = tci_key_copy_node(s, c.graph, r, n, places);
        places[r->n_user_inputs + i] = copy;
        if (tci_node_is_value(n)) {
            c.inputs[r->n_user_inputs + n_captured++] = copy;
        } else if (n->op == TCI_OP_LITERAL) {
            c.literals[n_literals++] = copy;
        }
    }
    for (int i = 0; i < r->n_roots; i++) {
        c.roots[i] = places[tci_request_number(r, r->roots[i])];
    }
    return c;
}
