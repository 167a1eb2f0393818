/* onnx/import_helpers.c - helpers of the ONNX importers: operands, attributes, shapes, weights in
 * files, and bodies of subgraphs.
 *
 * Calls go one way: known_values.c, this file, constant_fold.c and the operators, the table of
 * operator_table.c, import.c. An importer that builds a subgraph does so through tci_ox.build. */
#include "import.h"
#include "user_call_site.h"

#include <inttypes.h>
#include <string.h>

#include "../api/internal.h"
#include "../base/system_headers.h"

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
TCI_FN void tci_ox_fail_tensor(const tci_ox_op *o, tc_tensor t)
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

TCI_FN tci_ox_value *tci_ox_find(const tci_ox_names *names, const char *name)
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

TCI_FN tci_ox_names tci_ox_names_new(tci_scratch *s, const tci_ox_names *around, int64_t expected)
{
    tci_ox_names names = {.around = around, .n_buckets = (uint32_t)(expected * 2 + 16)};
    names.buckets = TCI_NEW_ARRAY(s, tci_ox_value *, names.n_buckets);
    return names;
}

TCI_FN void tci_ox_declare(const tci_ox_op *o, tci_ox_names *names, tci_ox_value *v)
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

TCI_FN tci_ox_value *tci_ox_value_new(tci_scratch *s, const char *name)
{
    tci_ox_value *v = TCI_NEW(s, tci_ox_value);
    v->name = name;
    v->t = v->count = TC_NONE;
    return v;
}

/* ---- files ---- */

TCI_FN void tci_ox_file_release(tci_owner *owner)
{
    tci_ox_file *f = (tci_ox_file *)(void *)owner;
    if (__atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        munmap(f->map, (size_t)f->bytes);
        tci_heap_free(f);
    }
}

/* Maps it and adds it to the import's files. */
TCI_FN tci_ox_file *tci_ox_file_open(tci_ox *m, const char *path, const char *place)
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
    *f = (tci_ox_file){.owner = {tci_ox_file_release},
                       .refs = 1,
                       .map = map,
                       .bytes = (int64_t)st.st_size,
                       .place = place,
                       .next = m->files};
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
        tci_ox_fail(o, TC_ERR_UNSUPPORTED,
                    "tensor %.40s is in the file %.40s: a model in memory "
                    "has none (tc_onnx_load reads it)",
                    t->name, t->place);
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
            tci_ox_fail(o, TC_ERR_IO,
                        "tensor %.40s needs %" PRId64 " bytes from %" PRId64 " on of "
                        "%.40s, which has %" PRId64,
                        t->name, bytes, t->offset, t->place, f->bytes);
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
    tci_node *x = f.failed
                      ? NULL
                      : tci_leaf_borrow(&f, data, dtype, t->rank, t->sizes, NULL, &owner->owner);
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
        tci_ox_fail(o, TC_ERR_UNSUPPORTED,
                    "%.60s has a size that depends on values: expected elementwise ops, movement "
                    "of other axes, a gather at it or a sum over them, or an output of the graph",
                    v->name);
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
    tc_status status = tc_read_as_at(t, TC_BUF((void *)data, n), o->here);
    if (status == TC_ERR_ARGUMENT || status == TC_ERR_SHAPE) { /* a symbolic size is in it */
        return NULL;
    } else if (status != TC_OK) {
        tci_ox_fail(o, status, "%s", tc_error(t));
    }
    return tci_ox_known_read(o->s, tc_dtype_of(t), rank, sizes, data);
}

TCI_FN bool tci_ox_can_know(const tci_ox_op *o, tci_ox_value *v)
{
    if (!v->known && !v->initializer && !v->depends) {
        v->known = tci_ox_read(o, v);
        return v->known != NULL;
    }
    return v->known || v->initializer || !(v->depends & ~o->m->offered);
}

static void tci_ox_fail_unknown(const tci_ox_op *o, const tci_ox_value *v, const char *what)
{
    const tci_onnx_graph *g = o->m->proto->graph;
    uint64_t missing = v->depends & ~o->m->offered;
    if ((missing & TCI_OX_UNKNOWABLE) || !missing) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "%s (%.40s) follows from values that only a run knows",
                    what, v->name);
    }
    int i = 0;
    while (i < TCI_OX_INPUTS && !(missing >> i & 1)) {
        i++;
    }
    tci_ox_fail(o, TC_ERR_UNSUPPORTED,
                "%s (%.40s) follows from the value of input %.40s, which "
                "must be told (tc_onnx_options.inputs)",
                what, v->name, i < g->n_inputs ? g->inputs[i].name : "");
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

TCI_FN const tci_onnx_attr *tci_ox_find_attr(const tci_onnx_attr *list, int n, const char *name)
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

/* ---- bodies ---- */

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
