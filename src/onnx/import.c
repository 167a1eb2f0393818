/* onnx/import.c - an ONNX graph to tensors of tc: names, values, operands, attributes, nodes in
 * order, and the public calls.
 *
 * The one idea: a graph is built once, in the order of its nodes; where a shape turns out to follow
 * from the value of an input that the caller told, that input becomes a constant and the graph is
 * built anew (tci_ox.again). So shapes never depend on what a run brings, and inputs stay inputs
 * wherever they can. */
#include "import.h"

#include <inttypes.h>
#include <string.h>

#include "../base/posix.h"
#include "rows.h"

enum { TCI_OX_DEEPEST = 48 };

/* ---- failures ---- */

TCI_FN void tci_ox_fail(const tci_ox_op *o, tc_status why, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (o->node) {
        tci_scratch_fail(o->s, why, "node %d %.40s%s(%.30s): %s", o->node->number, o->node->name,
                         *o->node->name ? " " : "", o->node->op, text);
    }
    tci_scratch_fail(o->s, why, "%s", text);
}

/* The text of a poisoned tensor, from the name of the call on. */
static void tci_ox_fail_tensor(const tci_ox_op *o, tc_tensor t)
{
    const char *text = tc_error(t), *call = strstr(text, "tc_");
    tci_ox_fail(o, tc_status_of(t), "%s", call ? call : text);
}

/* ---- names ---- */

static uint32_t tci_ox_hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++) {
        h = (h ^ (unsigned char)*name) * 16777619u;
    }
    return h;
}

static tci_ox_value *tci_ox_find(const tci_ox_names *names, const char *name)
{
    uint32_t h = tci_ox_hash(name);
    for (; names; names = names->around) {
        for (tci_ox_value *v = names->buckets[h % names->n_buckets]; v; v = v->next) {
            if (!strcmp(v->name, name)) {
                return v;
            }
        }
    }
    return NULL;
}

TCI_FN tci_ox_value *tci_ox_lookup(const tci_ox_op *o, const char *name)
{
    return o->m->names ? tci_ox_find(o->m->names, name) : NULL;
}

static tci_ox_names tci_ox_names_new(tci_scratch *s, const tci_ox_names *around, int64_t expected)
{
    tci_ox_names names = {.around = around, .n_buckets = (uint32_t)(expected * 2 + 16)};
    names.buckets = TCI_NEW_ARRAY(s, tci_ox_value *, names.n_buckets);
    return names;
}

static void tci_ox_declare(const tci_ox_op *o, tci_ox_names *names, tci_ox_value *v)
{
    uint32_t at = tci_ox_hash(v->name) % names->n_buckets;
    for (tci_ox_value *w = names->buckets[at]; w; w = w->next) {
        if (!strcmp(v->name, w->name)) {
            tci_ox_fail(o, TC_ERR_IO, "%.60s is given twice", v->name);
        }
    }
    v->next = names->buckets[at];
    names->buckets[at] = v;
}

static tci_ox_value *tci_ox_value_new(tci_scratch *s, const char *name)
{
    tci_ox_value *v = TCI_NEW(s, tci_ox_value);
    v->name = name;
    v->t = v->count = TC_NONE;
    return v;
}

/* ---- files ---- */

static void tci_ox_file_release(tci_owner *owner)
{
    tci_ox_file *f = (tci_ox_file *)(void *)owner;
    if (__atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        munmap(f->map, (size_t)f->bytes);
        tci_heap_free(f);
    }
}

/* Maps it and adds it to the import's files. */
static tci_ox_file *tci_ox_file_open(tci_ox *m, const char *path, const char *place)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0;
    const char *why = fd < 0 ? strerror(errno) : "it is empty, or no regular file";
    void *map = is ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    why = is && map == MAP_FAILED ? strerror(errno) : why;
    if (fd >= 0) {
        close(fd);
    }
    if (map == MAP_FAILED) {
        tci_scratch_fail(m->s, TC_ERR_IO, "%.80s cannot be read: %s", place, why);
    }
    tci_ox_file *f = tci_heap_get(sizeof(*f));
    if (!f) {
        munmap(map, (size_t)st.st_size);
        tci_scratch_fail(m->s, TC_ERR_MEMORY, "out of memory");
    }
    *f = (tci_ox_file){.owner = {tci_ox_file_release}, .refs = 1, .map = map,
                       .bytes = (int64_t)st.st_size, .place = place, .next = m->files};
    m->files = f;
    return f;
}

/* External data: a file next to the model, never outside of its directory. */
static const tci_ox_file *tci_ox_external(const tci_ox_op *o, const tci_onnx_tensor *t)
{
    tci_ox *m = o->m;
    for (const tci_ox_file *f = m->files; f; f = f->next) {
        if (!strcmp(f->place, t->place)) {
            return f;
        }
    }
    if (!m->path) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "tensor %.40s is in the file %.40s: a model in memory "
                    "has none (tc_onnx_load reads it)", t->name, t->place);
    }
    if (*t->place == '/' || !strcmp(t->place, "..") || !strncmp(t->place, "../", 3) ||
        strstr(t->place, "/../")) {
        tci_ox_fail(o, TC_ERR_IO, "tensor %.40s is in %.60s, outside of the model's directory",
                    t->name, t->place);
    }
    const char *slash = strrchr(m->path, '/');
    int n = slash ? (int)(slash - m->path) + 1 : 0;
    return tci_ox_file_open(m, tci_scratch_printf(o->s, "%.*s%s", n, m->path, t->place), t->place);
}

/* Where the elements are; *file NULL: not in a file that can be borrowed from. */
static const char *tci_ox_data(const tci_ox_op *o, const tci_onnx_tensor *t,
                               const tci_ox_file **file)
{
    *file = NULL;
    if (t->place) {
        const tci_ox_file *f = tci_ox_external(o, t);
        int64_t bytes = t->count * tc_dtype_size(tci_onnx_dtype(t->type));
        if (t->offset > f->bytes || bytes > f->bytes - t->offset ||
            (t->length >= 0 && t->length != bytes)) {
            tci_ox_fail(o, TC_ERR_IO, "tensor %.40s needs %" PRId64 " bytes from %" PRId64 " on of "
                        "%.40s, which has %" PRId64, t->name, bytes, t->offset, t->place, f->bytes);
        }
        *file = f;
        return f->map + t->offset;
    }
    for (const tci_ox_file *f = o->m->files; f; f = f->next) {
        if (t->data >= f->map && t->data < f->map + f->bytes) {
            *file = f;
        }
    }
    return t->data;
}

/* ---- values ---- */

TCI_FN tc_dtype tci_ox_dtype(const tci_ox_op *o, int64_t type)
{
    tc_dtype d = tci_onnx_dtype(type);
    if (d == TC_DTYPE_COUNT) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "dtype %s is not supported", tci_onnx_type_name(type));
    }
    return d;
}

static tc_tensor tci_ox_borrow(const tci_ox_op *o, const tci_onnx_tensor *t, tc_dtype dtype,
                               const char *data, const tci_ox_file *file)
{
    tci_frame f = tci_frame_on(o->ctx, "tc_onnx_load", o->here);
    tci_ox_file *owner = (tci_ox_file *)(uintptr_t)file;
    __atomic_add_fetch(&owner->refs, 1, __ATOMIC_RELAXED);
    tci_node *x = f.failed ? NULL : tci_leaf_borrow(&f, data, dtype, t->rank, t->sizes, NULL,
                                                    &owner->owner);
    if (!x) {
        tci_ox_file_release(&owner->owner);
    }
    return tci_frame_end(&f, x);
}

static tc_tensor tci_ox_copy(const tci_ox_op *o, const tci_onnx_tensor *t, tc_dtype dtype,
                             const char *data)
{
    int64_t bytes = t->count * tc_dtype_size(dtype);
    char *copy = tci_scratch_get(o->s, (size_t)bytes + 1); /* aligned */
    if (bytes) {
        memcpy(copy, data, (size_t)bytes);
    }
    for (int64_t i = 0; dtype == TC_BOOL && i < bytes; i++) {
        copy[i] = copy[i] != 0;
    }
    return tc_copy_in_at(o->ctx, copy, dtype, t->rank, t->sizes, NULL, o->here);
}

static tc_tensor tci_ox_parameter(const tci_ox_op *o, const tci_onnx_tensor *t, tc_dtype dtype,
                                  const char *data)
{
    tci_ox *m = o->m;
    int64_t *words = TCI_NEW_ARRAY(o->s, int64_t, t->rank + 1);
    words[0] = dtype;
    memcpy(words + 1, t->sizes, sizeof(*words) * (size_t)t->rank);
    char *copy = tci_scratch_get(o->s, (size_t)(t->count * tc_dtype_size(dtype)) + 1);
    memcpy(copy, data, (size_t)(t->count * tc_dtype_size(dtype)));
    tc_tensor p = tc_named(tc_param_at(o->ctx, copy, t->rank + 1, words, o->here), t->name);
    TCI_PUSH(m->s, m->parameters, m->n_parameters, m->cap_parameters, p);
    return p;
}

/* A leaf for the elements of a TensorProto. */
static tc_tensor tci_ox_leaf(const tci_ox_op *o, const tci_onnx_tensor *t, bool is_initializer)
{
    tc_dtype dtype = tci_ox_dtype(o, t->type);
    const tci_ox_file *file;
    const char *data = tci_ox_data(o, t, &file);
    if (is_initializer && o->m->options->parameters && tci_ox_is_float(dtype) && t->count > 1) {
        return tci_ox_parameter(o, t, dtype, data);
    }
    if (t->count <= 1) {
        return tci_ox_known_tensor(o, tci_ox_known_read(o->s, dtype, t->rank, t->sizes, data));
    }
    if (file && dtype != TC_BOOL && tci_dtype_is_aligned(dtype, data)) {
        return tci_ox_borrow(o, t, dtype, data, file);
    }
    return tci_ox_copy(o, t, dtype, data);
}

TCI_FN tc_tensor tci_ox_tensor(const tci_ox_op *o, tci_ox_value *v)
{
    if (v->is_cut) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "%.60s has as many elements as values say: it can only "
                    "be an output of the graph", v->name);
    }
    if (!v->is_made) {
        if (v->known) {
            v->t = tci_ox_known_tensor(o, v->known);
        } else if (v->initializer) {
            v->t = tci_ox_leaf(o, v->initializer, true);
        } else {
            tci_ox_fail(o, TC_ERR_INTERNAL, "%.60s has no value", v->name);
        }
        v->is_made = true;
        if (tc_status_of(v->t) != TC_OK) {
            tci_ox_fail_tensor(o, v->t);
        }
    }
    return v->t;
}

TCI_FN bool tci_ox_has(const tci_ox_op *o, int i)
{
    return i < o->n_in && o->in[i];
}

TCI_FN tc_tensor tci_ox_in(const tci_ox_op *o, int i)
{
    if (!tci_ox_has(o, i)) {
        tci_ox_fail(o, TC_ERR_IO, "operand %d is left out", i);
    }
    return tci_ox_tensor(o, o->in[i]);
}

TCI_FN tc_tensor tci_ox_maybe(const tci_ox_op *o, int i)
{
    return tci_ox_has(o, i) ? tci_ox_in(o, i) : TC_NONE;
}

TCI_FN bool tci_ox_wants(const tci_ox_op *o, int i)
{
    return i < o->n_out && o->out[i];
}

TCI_FN void tci_ox_out(const tci_ox_op *o, int i, tc_tensor t)
{
    if (tc_status_of(t) != TC_OK) {
        tci_ox_fail_tensor(o, t);
    }
    if (tci_ox_wants(o, i)) {
        o->out[i]->t = t;
        o->out[i]->is_made = true;
    }
}

TCI_FN void tci_ox_out_known(const tci_ox_op *o, int i, const tci_ox_known *k)
{
    if (tci_ox_wants(o, i)) {
        o->out[i]->known = k;
        o->out[i]->depends = 0;
    }
}

/* ---- known operands ---- */

TCI_FN const tci_ox_known *tci_ox_known_of(const tci_ox_op *o, tci_ox_value *v)
{
    const tci_onnx_tensor *t = v->initializer;
    if (!v->known && t && t->count <= TCI_OX_FOLD_MOST / 4) {
        const tci_ox_file *file;
        tc_dtype dtype = tci_ox_dtype(o, t->type);
        v->known = tci_ox_known_read(o->s, dtype, t->rank, t->sizes, tci_ox_data(o, t, &file));
    }
    return v->known;
}

TCI_FN bool tci_ox_can_know(const tci_ox_op *o, const tci_ox_value *v)
{
    return v->known || v->initializer || !(v->depends & ~o->m->offered);
}

/* Elements of a tensor that depends on no input: computed now. */
static const tci_ox_known *tci_ox_read(const tci_ox_op *o, tci_ox_value *v)
{
    int rank;
    tc_tensor t = tci_ox_tensor(o, v);
    const int64_t *sizes = tci_ox_sizes(o, t, &rank);
    int64_t n = tc_nbytes(t);
    if (n < 0 || tc_count(t) > TCI_OX_LIST_MOST) {
        return NULL;
    }
    char *data = tci_scratch_get(o->s, (size_t)n + 1);
    if (tc_read_as_at(t, TC_BUF((void *)data, n), o->here) != TC_OK) {
        tci_ox_fail_tensor(o, t);
    }
    return tci_ox_known_read(o->s, tc_dtype_of(t), rank, sizes, data);
}

static void tci_ox_fail_unknown(const tci_ox_op *o, const tci_ox_value *v, const char *what)
{
    const tci_onnx_graph *g = o->m->proto->graph;
    uint64_t missing = v->depends & ~o->m->offered;
    if (missing & TCI_OX_UNKNOWABLE) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "%s (%.40s) follows from values that only a run knows",
                    what, v->name);
    }
    int i = 0;
    while (i < TCI_OX_INPUTS && !(missing >> i & 1)) {
        i++;
    }
    tci_ox_fail(o, TC_ERR_UNSUPPORTED, "%s (%.40s) follows from the value of input %.40s, which "
                "must be told (tc_onnx_options.inputs)", what, v->name,
                i < g->n_inputs ? g->inputs[i].name : "");
}

TCI_FN const tci_ox_known *tci_ox_need(const tci_ox_op *o, int i, const char *what)
{
    if (!tci_ox_has(o, i)) {
        tci_ox_fail(o, TC_ERR_IO, "%s is left out", what);
    }
    tci_ox_value *v = o->in[i];
    if (tci_ox_known_of(o, v)) {
        return v->known;
    }
    if (!v->depends) {
        v->known = tci_ox_read(o, v);
    } else if (!(v->depends & ~o->m->offered)) {
        o->m->fixed |= v->depends;
        o->m->again = true;
        tci_scratch_fail(o->s, TC_ERR_INTERNAL, "inputs become constants");
    }
    if (!v->known) {
        tci_ox_fail_unknown(o, v, what);
    }
    return v->known;
}

TCI_FN const int64_t *tci_ox_need_ints(const tci_ox_op *o, int i, const char *what, int *n)
{
    const tci_ox_known *k = tci_ox_need(o, i, what);
    int64_t *list = TCI_NEW_ARRAY(o->s, int64_t, k->n + 1);
    for (int64_t j = 0; j < k->n; j++) {
        list[j] = k->cells[j].i;
    }
    if (k->n > TCI_OX_LIST_MOST || tci_ox_is_float(k->dtype)) {
        tci_ox_fail(o, TC_ERR_DTYPE, "%s is no list of integers", what);
    }
    *n = (int)k->n;
    return list;
}

TCI_FN int64_t tci_ox_need_int(const tci_ox_op *o, int i, const char *what)
{
    int n;
    const int64_t *list = tci_ox_need_ints(o, i, what, &n);
    if (n != 1) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%s has %d elements: expected one", what, n);
    }
    return list[0];
}

TCI_FN double tci_ox_need_real(const tci_ox_op *o, int i, const char *what)
{
    const tci_ox_known *k = tci_ox_need(o, i, what);
    if (k->n != 1 || k->cells[0].den || !tci_dim_is_known(k->cells[0].i)) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%s is not one number", what);
    }
    return tci_ox_is_float(k->dtype) ? k->cells[0].f : (double)k->cells[0].i;
}

/* ---- attributes ---- */

static const tci_onnx_attr *tci_ox_find_attr(const tci_onnx_attr *list, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (!strcmp(list[i].name, name)) {
            return &list[i];
        }
    }
    return NULL;
}

TCI_FN const tci_onnx_attr *tci_ox_attr(const tci_ox_op *o, const char *name)
{
    const tci_onnx_attr *a = tci_ox_find_attr(o->node->attrs, o->node->n_attrs, name);
    return a && a->kind != TCI_ONNX_NOTHING ? a : NULL;
}

/* NULL: not given. */
static const tci_onnx_attr *tci_ox_attr_of(const tci_ox_op *o, const char *name, tci_onnx_kind kind)
{
    const tci_onnx_attr *a = tci_ox_attr(o, name);
    if (a && a->kind != kind) {
        tci_ox_fail(o, TC_ERR_IO, "attribute %.40s has another type than the op says", name);
    }
    return a;
}

TCI_FN int64_t tci_ox_int(const tci_ox_op *o, const char *name, int64_t otherwise)
{
    const tci_onnx_attr *a = tci_ox_attr_of(o, name, TCI_ONNX_INT);
    return a ? a->i : otherwise;
}

TCI_FN double tci_ox_real(const tci_ox_op *o, const char *name, double otherwise)
{
    const tci_onnx_attr *a = tci_ox_attr_of(o, name, TCI_ONNX_FLOAT);
    return a ? a->f : otherwise;
}

TCI_FN const char *tci_ox_text(const tci_ox_op *o, const char *name, const char *otherwise)
{
    const tci_onnx_attr *a = tci_ox_attr_of(o, name, TCI_ONNX_STRING);
    return a ? a->s : otherwise;
}

TCI_FN const int64_t *tci_ox_ints(const tci_ox_op *o, const char *name, int *n)
{
    const tci_onnx_attr *a = tci_ox_attr_of(o, name, TCI_ONNX_INTS);
    static const int64_t none = 0;
    *n = a ? a->n : 0;
    return a ? a->n ? a->ints : &none : NULL;
}

TCI_FN const tci_onnx_graph *tci_ox_body(const tci_ox_op *o, const char *name)
{
    const tci_onnx_attr *a = tci_ox_attr_of(o, name, TCI_ONNX_GRAPH);
    if (!a) {
        tci_ox_fail(o, TC_ERR_IO, "graph %s is missing", name);
    }
    return a->g;
}

/* ---- shapes ---- */

TCI_FN int tci_ox_axis(const tci_ox_op *o, int64_t axis, int rank)
{
    int64_t at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank) {
        tci_ox_fail(o, TC_ERR_AXIS, "axis %" PRId64 " of %d axes", axis, rank);
    }
    return (int)at;
}

TCI_FN const int64_t *tci_ox_sizes(const tci_ox_op *o, tc_tensor t, int *rank)
{
    *rank = tc_rank(t);
    if (*rank < 0) {
        tci_ox_fail_tensor(o, t);
    }
    int64_t *sizes = TCI_NEW_ARRAY(o->s, int64_t, *rank + 1);
    for (int i = 0; i < *rank; i++) {
        sizes[i] = tc_size(t, i);
    }
    return sizes;
}

TCI_FN tc_tensor tci_ox_shape_as(const tci_ox_op *o, tc_tensor t, int rank, const int64_t *sizes)
{
    return tc_reshape_at(t, rank, sizes, o->here);
}

TCI_FN tc_tensor tci_ox_move(const tci_ox_op *o, tc_tensor t, const int64_t *order)
{
    return tc_permute_at(t, tc_rank(t), order, o->here);
}

TCI_FN tc_tensor tci_ox_places(const tci_ox_op *o, int64_t n, int rank, int axis)
{
    int64_t *sizes = TCI_NEW_ARRAY(o->s, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        sizes[i] = i == axis ? n : 1;
    }
    return tci_ox_shape_as(o, tc_arange(o->ctx, 0, n, 1, TC_I64), rank, sizes);
}

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

/* The node with attributes of the enclosing function in the place of references to them. */
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
            tci_ox_fail(o, TC_ERR_IO, "it reads %.60s, which nothing before it makes: the graph is "
                        "not in order, or has a cycle", n->in[i]);
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
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "op %.60s of domain %.40s, opset %" PRId64 ", is not "
                    "supported", n->op, *n->domain ? n->domain : "ai.onnx", o->opset);
    } else if (!tci_ox_fold(o)) {
        o->row = row;
        row->make(o);
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

TCI_FN void tci_ox_graph(const tci_ox_op *o, const tci_onnx_graph *g, tci_ox_value *inputs, int n,
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

TCI_FN tc_status tci_ox_within(tci_ox_op *o, tci_ox_build build, void *user)
{
    jmp_buf outer;
    tci_ox *m = o->m;
    const tci_ox_names *names = m->names;
    const int depth = m->depth;
    tc_status status = TC_OK;
    memcpy(&outer, &o->s->escape, sizeof(outer));
    if (setjmp(o->s->escape)) {
        status = o->s->why;
        m->names = names;
        m->depth = depth;
    } else {
        o->s->why = TC_OK;
        build(o, user);
    }
    memcpy(&o->s->escape, &outer, sizeof(outer));
    return status;
}

TCI_FN void tci_ox_rethrow(const tci_ox_op *o, tc_status status)
{
    if (status == TC_OK) {
        return;
    }
    if (o->s->why != TC_OK) { /* the text of what left the body is still there */
        longjmp(o->s->escape, 1);
    }
    const char *text = tc_error(o->ctx), *call = strstr(text, "tc_");
    tci_ox_fail(o, status, "%s", call ? call : text);
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
#ifdef TC_DYNAMIC_SHAPES
    int64_t most = o->m->options->largest ? o->m->options->largest : 65536;
    return tc_dim_make(*name ? name : tci_scratch_printf(o->s, "%s.%d", v->name, axis), 1, most);
#else
    tci_ox_fail(o, TC_ERR_SHAPE, "axis %d of input %.60s has no size (\"%.40s\"): tell it "
                "(tc_onnx_options.inputs), or define TC_DYNAMIC_SHAPES", axis, v->name, name);
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
        tci_ox_fail(o, TC_ERR_SHAPE, "input %.60s has no shape in the model: tell it "
                    "(tc_onnx_options.inputs)", info->name);
    }
    words[0] = tci_ox_dtype(o, info->type);
    for (int d = 0; d < rank; d++) {
        words[d + 1] = told && told->sizes ? told->sizes[d]
                       : info->sizes[d] >= 0 ? info->sizes[d] : tci_ox_open_size(o, info, d);
    }
    uint64_t bit = i < TCI_OX_INPUTS ? UINT64_C(1) << i : TCI_OX_UNKNOWABLE;
    if (told && told->value && i < TCI_OX_INPUTS) {
        o->m->offered |= bit;
    }
    if (o->m->fixed & bit) {
        tci_onnx_tensor *t = TCI_NEW(o->s, tci_onnx_tensor);
        *t = (tci_onnx_tensor){.name = info->name, .type = info->type, .rank = rank, .count = 1,
                               .sizes = words + 1, .data = told->value};
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

/* A block with the arrays and names behind the struct. */
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
    memcpy(out->parameters, m->parameters, sizeof(tc_tensor) * (size_t)m->n_parameters);
    return out;
}

static tc_onnx_model *tci_ox_import(tci_ox *m)
{
    tci_ox_op op = {.m = m, .here = m->here, .ctx = m->ctx, .s = m->s}, *o = &op;
    int64_t opset;
    m->opsets = m->proto->opsets;
    m->n_opsets = m->proto->n_opsets;
    m->names = NULL;
    m->depth = 0;
    m->n_parameters = 0;
    m->again = false;
    m->offered = 0;
    opset = tci_ox_opset(m, "");
    if (opset < 1 || opset > 28) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "opset %" PRId64 ": expected 1 to 28", opset);
    }
    tci_ox_result r = tci_ox_build_main(o);
    return tci_ox_pack(o, &r);
}

/* ---- the public calls ---- */

/* What a load is given, and what lives as long as it. */
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
    static const tc_onnx_options defaults = {NULL, 0, 0, false};
    tci_ox *m = &l->m;
    tci_frame f = tci_frame_on(m->ctx, op, m->here);
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
