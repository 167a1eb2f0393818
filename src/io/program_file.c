/* io/program_file.c - serializes the metadata of a saved program, and rebuilds its compile request.
 *
 * In: a metadata record, or its bytes. Out: bytes, or a metadata record; a request over the saved
 * memory.
 *
 * Design: a program is its key, its code and its captured memory. The key contains the graph, so
 * ports, symbols, index reads and effects follow from the request as for any other program
 * (run/program.c), and the file does not repeat them. */
#include "program_file.h"

#include <string.h>

#if defined(__x86_64__)
#define TCI_SAVED_PROCESSOR "x86-64"
#elif defined(__aarch64__)
#define TCI_SAVED_PROCESSOR "aarch64"
#elif defined(__riscv)
#define TCI_SAVED_PROCESSOR "riscv"
#else
#define TCI_SAVED_PROCESSOR "another processor"
#endif
#if defined(__linux__)
#define TCI_SAVED_SYSTEM "Linux"
#elif defined(__APPLE__)
#define TCI_SAVED_SYSTEM "macOS"
#else
#define TCI_SAVED_SYSTEM "another system"
#endif

TCI_FN const char *tci_saved_abi(void)
{
    return sizeof(void *) == 8 ? TCI_SAVED_PROCESSOR ", " TCI_SAVED_SYSTEM ", 64 bits"
                               : TCI_SAVED_PROCESSOR ", " TCI_SAVED_SYSTEM ", 32 bits";
}

TCI_FN bool tci_saved_is_native(const tci_saved *v)
{
    return v->features[0] != 0;
}

/* ---- the description ---- */

static void tci_saved_wire_texts(tci_wire *w, char ***texts, int32_t *n)
{
    *n = tci_wire_count(w, *n, sizeof(int64_t));
    *texts = tci_wire_array(w, *texts, *n, sizeof(**texts));
    for (int32_t i = 0; i < *n && !w->bad; i++) {
        (*texts)[i] = tci_wire_text(w, (*texts)[i]);
    }
}

static void tci_saved_wire_blob(tci_wire *w, tci_saved_blob *b)
{
    b->at = tci_wire_range(w, b->at, 0, INT64_MAX);
    b->bytes = tci_wire_range(w, b->bytes, 0, INT64_MAX);
    tci_wire_hash(w, &b->sum);
    w->bad |= b->at % TCI_SAVED_ALIGN != 0;
}

static void tci_saved_wire_key(tci_wire *w, tci_saved *v)
{
    v->key_bytes = tci_wire_count(w, v->key_bytes, 1);
    v->key = tci_wire_array(w, v->key, v->key_bytes, 1);
    if (!w->bad) {
        tci_wire_bytes(w, v->key, (size_t)v->key_bytes);
    }
    v->key_graph = (int32_t)tci_wire_range(w, v->key_graph, 0, v->key_bytes);
}

static void tci_saved_wire_sites(tci_wire *w, tci_saved *v)
{
    tci_saved_wire_texts(w, &v->files, &v->n_files);
    v->n_sites = tci_wire_count(w, v->n_sites, 2 * sizeof(int64_t));
    v->sites = tci_wire_array(w, v->sites, v->n_sites, sizeof(*v->sites));
    for (int32_t i = 0; i < v->n_sites && !w->bad; i++) {
        v->sites[i].file = (int32_t)tci_wire_range(w, v->sites[i].file, 0, v->n_files);
        v->sites[i].line = (int32_t)tci_wire_range(w, v->sites[i].line, INT32_MIN, INT32_MAX);
    }
}

static void tci_saved_wire_memory(tci_wire *w, tci_saved *v)
{
    v->n_literals = tci_wire_count(w, v->n_literals, sizeof(int64_t));
    v->literals = tci_wire_array(w, v->literals, v->n_literals, sizeof(*v->literals));
    for (int32_t i = 0; i < v->n_literals && !w->bad; i++) {
        v->literals[i] = tci_wire_word(w, v->literals[i]);
    }
    v->n_storages = tci_wire_count(w, v->n_storages, 6 * sizeof(int64_t));
    v->storages = tci_wire_array(w, v->storages, v->n_storages, sizeof(*v->storages));
    for (int32_t i = 0; i < v->n_storages && !w->bad; i++) {
        tci_saved_storage *x = &v->storages[i];
        x->is_param = tci_wire_range(w, x->is_param, 0, 1) != 0;
        x->name = tci_wire_text(w, x->name);
        tci_saved_wire_blob(w, &x->blob);
    }
    v->n_leaves = tci_wire_count(w, v->n_leaves, 2 * sizeof(int64_t));
    v->leaves = tci_wire_array(w, v->leaves, v->n_leaves, sizeof(*v->leaves));
    for (int32_t i = 0; i < v->n_leaves && !w->bad; i++) {
        tci_saved_leaf *x = &v->leaves[i];
        x->storage = (int32_t)tci_wire_range(w, x->storage, 0, (int64_t)v->n_storages - 1);
        x->lowest = tci_wire_range(w, x->lowest, 0, INT64_MAX);
    }
}

TCI_FN void tci_saved_wire(tci_wire *w, tci_saved *v)
{
    v->version = tci_wire_text(w, v->version);
    v->build = tci_wire_text(w, v->build);
    if (w->bad || (!w->out && strcmp(v->build, tci_key_build()))) {
        return; /* another build may describe what follows in another way */
    }
    v->abi = tci_wire_text(w, v->abi);
    v->backend = tci_wire_text(w, v->backend);
    v->features = tci_wire_text(w, v->features);
    v->name = tci_wire_text(w, v->name);
    v->math = (int32_t)tci_wire_range(w, v->math, TC_MATH_EXACT, TC_MATH_FAST);
    v->matrix = (int32_t)tci_wire_range(w, v->matrix, -1, 0);
    v->fusion = (int32_t)tci_wire_range(w, v->fusion, -1, 0);
    v->remat = (int32_t)tci_wire_range(w, v->remat, TC_REMAT_NONE, TC_REMAT_ALL);
    v->reproducible = tci_wire_range(w, v->reproducible, 0, 1) != 0;
    tci_saved_wire_key(w, v);
    tci_saved_wire_texts(w, &v->symbols, &v->n_symbols);
    tci_saved_wire_texts(w, &v->inputs, &v->n_inputs);
    tci_saved_wire_sites(w, v);
    tci_saved_wire_memory(w, v);
    v->n_modules = tci_wire_count(w, v->n_modules, 4 * sizeof(int64_t));
    v->modules = tci_wire_array(w, v->modules, v->n_modules, sizeof(*v->modules));
    for (int32_t i = 0; i < v->n_modules && !w->bad; i++) {
        tci_saved_wire_blob(w, &v->modules[i]);
    }
    tci_saved_wire_blob(w, &v->kept);
    if (!w->bad && tci_saved_is_native(v)) {
        tci_wire_code(w, v->code, v->n_modules);
    }
    w->bad |= !w->out && w->at != w->end;
}

TCI_FN tc_options tci_saved_options(const tci_saved *v, const tc_options *base)
{
    tc_options o = *base;
    o.math = (tc_math)v->math;
    o.matrix = v->matrix;
    o.fusion = v->fusion;
    o.remat = (tc_remat)v->remat;
    o.reproducible = v->reproducible;
    o.check = o.tune_ms = 0;
    o.schedule = NULL;
    return o;
}

/* ---- the request ---- */

static void tci_saved_fail(tci_scratch *s, const char *what)
{
    tci_scratch_fail(s, TC_ERR_IO, "it is damaged: %s", what);
}

enum { TCI_SAVED_ELEMENTS_BITS = 50 }; /* of a captured array, more than any memory has */

/* Number of elements, if memory can have these sizes; -1: it cannot. */
static int64_t tci_saved_count(const tci_node *n)
{
    const int64_t limit = (int64_t)1 << TCI_SAVED_ELEMENTS_BITS;
    int64_t count = 1;
    bool none = false;
    for (int i = 0; i < n->rank; i++) {
        int64_t size = tci_dim_known(n->shape[i]);
        if (!tci_dim_is_known(n->shape[i]) || size < 0 || size > limit / count) {
            return -1;
        }
        none = none || !size;
        count *= TCI_MAX(size, (int64_t)1);
    }
    return none ? 0 : count;
}

/* Elements before and after element 0...0 that a leaf of this many reaches. False: out of all
 * bounds. */
static bool tci_saved_reach(const tci_node *n, int64_t count, int64_t *before, int64_t *after)
{
    const int64_t limit = (int64_t)1 << TCI_SAVED_ELEMENTS_BITS;
    *before = 0;
    *after = n->strides ? 0 : count - 1;
    for (int i = 0; n->strides && i < n->rank; i++) {
        int64_t stride = tci_dim_known(n->strides[i]), last = tci_dim_known(n->shape[i]) - 1;
        int64_t most = last > 0 ? limit / last : limit;
        if (stride > most || stride < -most) {
            return false;
        }
        *before += stride < 0 ? -stride * last : 0;
        *after += stride > 0 ? stride * last : 0;
        if (*before > limit || *after > limit) {
            return false;
        }
    }
    return *after <= limit;
}

/* Memory of a captured leaf, which must be inside of its storage. */
static void tci_saved_place(tci_scratch *s, const tci_saved *v, int leaf, tci_node *n)
{
    int64_t item = tci_dtype_get((tc_dtype)n->dtype)->bytes, before = 0, after = -1;
    int64_t count = tci_saved_count(n);
    if (leaf >= v->n_leaves || count < 0 ||
        (count && !tci_saved_reach(n, count, &before, &after))) {
        tci_saved_fail(s, "a captured array");
    }
    const tci_saved_leaf *x = &v->leaves[leaf];
    tci_storage *storage = v->storages[x->storage].storage;
    if (x->lowest % item || x->lowest > storage->bytes - (before + after + 1) * item) {
        tci_saved_fail(s, "a captured array is outside of its memory");
    }
    n->storage = storage;
    n->offset = x->lowest / item + before;
}

/* Names, lines, values and memory for the nodes of the key. */
static void tci_saved_fill(tci_scratch *s, const tci_saved *v, const tci_key_graph *g)
{
    int n_leaves = 0, n_literals = 0;
    for (int i = 0; i < g->n; i++) {
        tci_node *n = g->nodes[i];
        const tci_saved_site *site = i < v->n_sites ? &v->sites[i] : NULL;
        if (site && site->file) {
            n->site = (tc_site){v->files[site->file - 1], site->line};
        }
        if (i < g->n_inputs) {
            n->name = i < v->n_inputs ? v->inputs[i] : "";
        } else if (n->op == TCI_OP_DATA) {
            tci_saved_place(s, v, n_leaves++, n);
        } else if (n->op == TCI_OP_LITERAL && n_literals < v->n_literals) {
            n->value.i = v->literals[n_literals++];
        }
    }
    if (n_leaves != v->n_leaves || n_literals != v->n_literals || g->n_inputs != v->n_inputs) {
        tci_saved_fail(s, "its parts do not belong together");
    }
}

TCI_FN void tci_saved_need_op(tci_scratch *s, const tci_key_graph *g)
{
    if (g->missing) {
        tci_scratch_fail(s, TC_ERR_UNSUPPORTED,
                         "it calls the custom op '%.60s', which this process has not used yet in "
                         "that version (tc_custom makes an op known)",
                         g->missing);
    }
}

TCI_FN tci_request *tci_saved_request(tci_scratch *s, const tci_saved *v, const tc_options *o,
                                      const tci_backend *backend)
{
    tci_key_graph g;
    bool is_read = tci_key_read(s, v->key, (size_t)v->key_bytes, (size_t)v->key_graph,
                                (const char *const *)v->symbols, v->n_symbols, &g);
    tci_saved_need_op(s, &g);
    if (!is_read) {
        tci_saved_fail(s, "its graph");
    }
    tci_saved_fill(s, v, &g);
    tci_graph_verify(s, g.roots, g.n_roots);
    tci_request *r = tci_request_make(s, g.nodes, g.n_inputs, g.roots, g.n_roots, o, backend->name,
                                      &backend->target);
    size_t n = (size_t)(v->key_bytes - v->key_graph);
    const uint8_t *graph = v->key + v->key_graph;
    if (r->key_bytes - r->key_graph != n || memcmp(r->key + r->key_graph, graph, n)) {
        tci_saved_fail(s, "its graph is another one");
    }
    return r;
}

#undef TCI_SAVED_PROCESSOR
#undef TCI_SAVED_SYSTEM
