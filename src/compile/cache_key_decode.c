/* compile/cache_key_decode.c - decoder of cache keys: rebuilds the canonical graph that a key
 * contains.
 *
 * In: a key, whose second half is the whole graph (written by compile/cache_key.c). Out: the same
 * nodes in a scratch graph, by their canonical numbers.
 *
 * Design: the key that identifies a program in the caches also restores it, so saved programs
 * (io/program_file.c) and minimized test cases (debug/captured_program.c) need no other description
 * of a graph.
 *
 * Leaves come without memory, literals and inputs without values and names, since a key does not
 * contain them. Invariant: a request made from the result has the same graph part of its key, byte
 * for byte. */
#include <string.h>

#include "compiled_code.h"

enum { TCI_KEY_DIM_WORDS = 1 << 12 }; /* of a symbolic size, at most */

typedef struct tci_key_reader {
    tci_scratch *s;
    const uint8_t *at, *end;
    bool bad;
    const tci_dim *symbols;
    int n_symbols;
    int64_t *words; /* TCI_KEY_DIM_WORDS: of the expression at hand */
    const char *missing;
} tci_key_reader;

static uint64_t tci_key_read_number(tci_key_reader *r)
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

static int64_t tci_key_read_signed(tci_key_reader *r)
{
    uint64_t v = tci_key_read_number(r);
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

/* A count of things that take a byte each at least. */
static int tci_key_read_count(tci_key_reader *r)
{
    uint64_t n = tci_key_read_number(r);
    r->bad = r->bad || n > (uint64_t)(r->end - r->at);
    return r->bad ? 0 : (int)n;
}

static int tci_key_read_byte(tci_key_reader *r)
{
    r->bad = r->bad || r->at >= r->end;
    return r->bad ? 0 : *r->at++;
}

static void tci_key_read_bytes(tci_key_reader *r, void *to, size_t n)
{
    r->bad = r->bad || (size_t)(r->end - r->at) < n;
    if (!r->bad) {
        memcpy(to, r->at, n);
        r->at += n;
    }
}

static const char *tci_key_read_text(tci_key_reader *r)
{
    const char *text = (const char *)r->at;
    const uint8_t *end = memchr(r->at, 0, (size_t)(r->end - r->at));
    r->bad = r->bad || !end;
    r->at = r->bad ? r->at : end + 1;
    return r->bad ? "" : text;
}

/* ---- sizes ---- */

/* A number that is not taken for an expression, which may be of another program. */
static tci_dim tci_key_read_known(tci_key_reader *r)
{
    tci_dim d = (tci_dim)tci_key_read_signed(r);
    r->bad = r->bad || !tci_dim_is_known(d);
    return r->bad ? 0 : d;
}

#ifdef TC_DYNAMIC_SHAPES

/* d, which may be a fault. */
static tci_dim tci_key_read_made(tci_key_reader *r, tci_dim d)
{
    if (d == TCI_DIM_OF_FAULT(MEMORY)) {
        tci_scratch_fail(r->s, TC_ERR_MEMORY, "out of memory");
    }
    r->bad = r->bad || !tci_dim_is_valid(d);
    return r->bad ? 0 : d;
}

/* An expression over the symbols. Only its reader knows how many words it has: as many as there may
 * be are decoded, and those that it took are skipped. */
static tci_dim tci_key_read_expression(tci_key_reader *r)
{
    const uint8_t *begin = r->at;
    r->words = r->words ? r->words : TCI_NEW_ARRAY(r->s, int64_t, TCI_KEY_DIM_WORDS);
    int64_t *words = r->words;
    const int64_t *at = words;
    int n = 0;
    while (n < TCI_KEY_DIM_WORDS && r->at < r->end) {
        words[n++] = tci_key_read_signed(r);
    }
    r->bad = false; /* the last one may be cut short: it is not of this size then */
    tci_dim d = tci_dim_read(&at, words + n, r->symbols, r->n_symbols);
    r->at = begin;
    for (int64_t i = 0; i < at - words; i++) {
        tci_key_read_signed(r);
    }
    return tci_key_read_made(r, d);
}

static tci_dim tci_key_read_dim(tci_key_reader *r)
{
    bool known = tci_key_read_byte(r) != 0;
    return r->bad ? 0 : known ? tci_key_read_known(r) : tci_key_read_expression(r);
}

/* The ranges of the symbols. */
static void tci_key_read_symbols(tci_key_reader *r, const char *const *names, int n_names,
                                 tci_key_graph *g)
{
    g->n_symbols = tci_key_read_count(r);
    r->bad = r->bad || (names && n_names != g->n_symbols);
    g->symbols = TCI_NEW_ARRAY(r->s, tci_dim, g->n_symbols);
    for (int i = 0; i < g->n_symbols && !r->bad; i++) {
        int64_t least = tci_key_read_signed(r), most = tci_key_read_signed(r);
        const char *name = names ? names[i] : tci_scratch_printf(r->s, "s%d", i);
        r->bad = r->bad || least < 0 || most < least || most > TCI_DIM_MOST;
        g->symbols[i] = r->bad ? 0 : tci_key_read_made(r, tci_dim_symbol(name, -1, least, most));
    }
    r->symbols = g->symbols;
    r->n_symbols = g->n_symbols;
}

#else

#define tci_key_read_dim tci_key_read_known
#define tci_key_read_symbols(r, names, n_names, g) ((void)(names), (void)(n_names))

#endif

/* ---- nodes ---- */

typedef struct tci_key_read_kind {
    int dtype, rank;
    tci_dim *shape;
} tci_key_read_kind;

static tci_key_read_kind tci_key_read_type(tci_key_reader *r)
{
    tci_key_read_kind t = {0};
    t.dtype = (int8_t)tci_key_read_byte(r);
    t.rank = tci_key_read_count(r);
    t.shape = TCI_NEW_ARRAY(r->s, tci_dim, t.rank);
    for (int i = 0; i < t.rank; i++) {
        t.shape[i] = tci_key_read_dim(r);
    }
    r->bad = r->bad || !tci_dtype_is_valid(t.dtype);
    return t;
}

/* A captured leaf, whose strides say how far its elements are apart. */
static tci_node *tci_key_read_leaf(tci_key_reader *r, tci_graph *g, const tci_key_read_kind *t)
{
    bool dense = tci_key_read_byte(r) != 0;
    tci_dim *strides = dense ? NULL : TCI_NEW_ARRAY(r->s, tci_dim, t->rank);
    for (int i = 0; !dense && i < t->rank; i++) {
        strides[i] = tci_key_read_known(r);
    }
    tci_node *leaf = r->bad ? NULL
                            : tci_graph_node(g, TCI_OP_DATA, (tc_dtype)t->dtype, t->rank, t->shape,
                                             0, NULL, 0, NULL);
    if (leaf) {
        leaf->strides = strides;
    }
    return leaf;
}

/* The number of a custom op in this process; -1: it has none of that name and version. */
static int64_t tci_key_read_custom(tci_key_reader *r)
{
    const char *name = tci_key_read_text(r);
    int64_t version = tci_key_read_signed(r);
    tci_key_read_text(r);
    tci_key_read_signed(r);
    tci_key_read_signed(r);
    const tci_custom *c = r->bad ? NULL : tci_custom_find(name, (int)version);
    if (!c) {
        r->missing = r->bad ? NULL : name;
        r->bad = true;
    }
    return c ? c->number : -1;
}

/* Any other node. n_before: inputs have smaller numbers. */
static tci_node *tci_key_read_op(tci_key_reader *r, tci_key_graph *g, int op,
                                 const tci_key_read_kind *t, int n_before)
{
    tci_value value = {.i = 0};
    int64_t *attr = NULL;
    if (op == TCI_OP_CONST) {
        tci_key_read_bytes(r, &value, sizeof(value));
    }
    int n_in = tci_key_read_count(r), n_attr = 1;
    tci_node **in = TCI_NEW_ARRAY(r->s, tci_node *, n_in);
    for (int i = 0; i < n_in; i++) {
        uint64_t number = tci_key_read_number(r);
        r->bad = r->bad || number >= (uint64_t)n_before;
        in[i] = r->bad ? NULL : g->nodes[number];
    }
    if (op == TCI_OP_CUSTOM) {
        attr = TCI_NEW(r->s, int64_t);
        attr[0] = tci_key_read_custom(r);
    } else {
        n_attr = tci_key_read_count(r);
        attr = TCI_NEW_ARRAY(r->s, int64_t, n_attr);
        for (int i = 0; i < n_attr && !r->bad; i++) {
            const tci_attr_info *a = tci_op_attr(op, n_attr, i);
            bool is_size = a && tci_attr_is_dim(a);
            attr[i] = is_size ? (int64_t)tci_key_read_dim(r) : tci_key_read_signed(r);
        }
    }
    if (r->bad) {
        return NULL;
    }
    return op == TCI_OP_CONST ? tci_graph_const(g->graph, (tc_dtype)t->dtype, value)
                              : tci_graph_node(g->graph, op, (tc_dtype)t->dtype, t->rank, t->shape,
                                               n_in, in, n_attr, attr);
}

static void tci_key_read_nodes(tci_key_reader *r, tci_key_graph *g, int n_nodes)
{
    for (int i = 0; i < g->n_inputs && !r->bad; i++) {
        tci_key_read_kind t = tci_key_read_type(r);
        if (!r->bad) {
            g->nodes[g->n++] = tci_graph_node(g->graph, TCI_OP_INPUT, (tc_dtype)t.dtype, t.rank,
                                              t.shape, 0, NULL, 0, NULL);
        }
    }
    for (int i = 0; i < n_nodes && !r->bad; i++) {
        uint64_t number = tci_key_read_number(r);
        r->bad = r->bad || number >= TCI_OP_COUNT;
        int op = r->bad ? 0 : (int)number;
        tci_key_read_kind t = tci_key_read_type(r);
        tci_node *n = r->bad              ? NULL
                      : op == TCI_OP_DATA ? tci_key_read_leaf(r, g->graph, &t)
                                          : tci_key_read_op(r, g, op, &t, g->n);
        g->nodes[g->n++] = n;
    }
}

TCI_FN bool tci_key_read(tci_scratch *s, const uint8_t *key, size_t n, size_t at,
                         const char *const *symbols, int n_symbols, tci_key_graph *g)
{
    tci_key_reader r = {.s = s, .at = key + at, .end = key + n};
    *g = (tci_key_graph){.graph = TCI_NEW(s, tci_graph)};
    tci_graph_init(g->graph, s, NULL);
    tci_key_read_symbols(&r, symbols, n_symbols, g);
    g->n_inputs = tci_key_read_count(&r);
    int n_nodes = tci_key_read_count(&r);
    g->n_roots = tci_key_read_count(&r);
    g->nodes = TCI_NEW_ARRAY(s, tci_node *, g->n_inputs + n_nodes + 1);
    g->roots = TCI_NEW_ARRAY(s, tci_node *, g->n_roots);
    tci_key_read_nodes(&r, g, n_nodes);
    for (int i = 0; i < g->n_roots && !r.bad; i++) {
        uint64_t number = tci_key_read_number(&r);
        r.bad = r.bad || number >= (uint64_t)g->n;
        g->roots[i] = r.bad ? NULL : g->nodes[number];
    }
    g->missing = r.missing;
    return !r.bad && r.at == r.end;
}

#ifndef TC_DYNAMIC_SHAPES
#undef tci_key_read_dim
#undef tci_key_read_symbols
#endif
