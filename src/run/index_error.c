/* run/index_error.c - builds the message of TC_ERR_INDEX: which index was outside its axis.
 *
 * In: the index reads of a request, when a program is made; the size of an axis, when a run found
 * an index outside of it. Out: a text that names the index, its position, the axis and the user's
 * call.
 *
 * Design: generated code reports only the size of the axis, so a run pays nothing. After a failed
 * run the host searches the index reads of that size whose indices it can read for the first one
 * out of range. If it finds none, the text names the reads that it could not search.
 *
 * A leaf is searched only if its memory is as the run found it, that is, if no output overlaps it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime_structs.h"

#define TCI_INDEX_NAMED 3 /* readings in one text */

/* ---- when a program is made ---- */

static const char *tci_index_keep(tci_index_room *room, const char *s)
{
    size_t n = s ? strlen(s) + 1 : 0;
    char *to = room->text && n ? room->text + room->n_text : NULL;
    if (to) {
        memcpy(to, s, n);
    }
    room->n_text += n;
    return to;
}

static const int64_t *tci_index_keep_strides(tci_index_room *room, const tci_node *leaf)
{
    size_t n = leaf->strides ? (size_t)leaf->rank : 0;
    int64_t *to = room->words && n ? room->words + room->n_words : NULL;
    for (size_t i = 0; to && i < n; i++) {
        to[i] = tci_dim_known(leaf->strides[i]);
    }
    room->n_words += n;
    return to;
}

static int32_t tci_index_port(const tci_request *r, const tci_node *leaf)
{
    for (int i = 0; i < r->n_inputs; i++) {
        if (r->inputs[i] == leaf) {
            return i;
        }
    }
    return -1;
}

/* A PAD that cuts nothing off. */
static bool tci_index_is_padded(const tci_node *n)
{
    bool all = n->op == TCI_OP_PAD;
    for (int i = 0; all && i < n->rank; i++) {
        const tci_dim before = tci_node_dims(n)[i], had = n->in[0]->shape[i];
        all = tci_dim_le(0, before) && tci_dim_le(tci_dim_add(before, had), n->shape[i]);
    }
    return all;
}

/* Below movement that leaves no element of the leaf out. */
static const tci_node *tci_index_leaf(const tci_node *n, tci_index_read *read)
{
    while (!tci_node_is_value(n) &&
           (n->op == TCI_OP_CAST || n->op == TCI_OP_RESHAPE || n->op == TCI_OP_PERMUTE ||
            n->op == TCI_OP_EXPAND || tci_index_is_padded(n))) {
        read->padded = read->padded || n->op == TCI_OP_PAD;
        if (n->op == TCI_OP_CAST && read->n_casts == TCI_INDEX_CASTS) {
            return NULL;
        }
        if (n->op == TCI_OP_CAST) {
            read->casts[read->n_casts++] = n->dtype;
        }
        n = n->in[0];
    }
    for (int i = 0, j = read->n_casts - 1; i < j; i++, j--) {
        int8_t first = read->casts[i];
        read->casts[i] = read->casts[j];
        read->casts[j] = first;
    }
    return n;
}

static tci_dim tci_index_own_size(const tci_request *r, tci_dim size)
{
#ifdef TC_DYNAMIC_SHAPES
    if (!tci_dim_is_known(size)) {
        size = tci_dim_replace(size, r->n_symbols, r->user_symbols, r->symbols);
        return tci_dim_is_valid(size) ? size : -1; /* no memory for it: it matches no fault */
    }
#endif
    (void)r;
    return size;
}

static void tci_index_add(const tci_request *r, tci_index_room *room, const tci_node *n, int axis)
{
    tci_dim size = n->in[0]->shape[axis];
    tci_dim_text text = tci_dim_text_of(size);
    const char *size_text = tci_dim_is_known(size) ? NULL : text.text;
    tci_index_read read = {.call = n->call ? n->call : tci_op_name(n->op),
                           .file = tci_index_keep(room, n->site.file),
                           .line = n->site.line,
                           .axis = axis,
                           .size = tci_index_own_size(r, size),
                           .size_text = tci_index_keep(room, size_text)};
    const tci_node *leaf = tci_index_leaf(n->in[1], &read);
    read.port = leaf ? tci_index_port(r, leaf) : -1;
    if (read.port >= r->n_user_inputs) {
        read.strides = tci_index_keep_strides(room, leaf);
        read.leaf_file = tci_index_keep(room, leaf->site.file);
        read.leaf_line = leaf->site.line;
    } else if (read.port >= 0) {
        read.name = tci_index_keep(room, leaf->name);
    }
    if (room->reads) {
        room->reads[room->n_reads] = read;
    }
    room->n_reads++;
}

TCI_FN void tci_index_list(const tci_request *r, tci_index_room *room)
{
    for (int i = 0; i < r->n_nodes; i++) {
        const tci_node *n = r->nodes[i];
        bool gathers = n->op == TCI_OP_GATHER || n->op == TCI_OP_SCATTER;
        bool picks = n->op == TCI_OP_CROSS_ENTROPY;
        if ((gathers || picks) && !tci_node_is_value(n) && tci_node_count(n->in[1]) != 0) {
            tci_index_add(r, room, n, gathers ? (int)n->attr[0] : n->in[0]->rank > 1);
        }
    }
}

/* ---- when a run failed ---- */

/* A run that met an index outside its axis. */
typedef struct tci_index_run {
    const tc_program *ran;
    const int64_t *values; /* of its symbols */
    int64_t size;
    const tc_bufs *inputs, *outputs;
} tci_index_run;

/* The first index outside: its value, its number in the leaf, and whether a cast made it. */
typedef struct tci_index_hit {
    int64_t value, at;
    bool is_cast;
} tci_index_hit;

static bool tci_index_is_of_size(const tci_index_run *run, const tci_index_read *read)
{
#ifdef TC_DYNAMIC_SHAPES
    if (!tci_dim_is_known(read->size)) {
        return tci_dim_value(read->size, run->values) == run->size;
    }
#endif
    return read->size == run->size;
}

static bool tci_index_is_under_output(const tci_index_run *run, const char *data, int64_t bytes)
{
    uintptr_t begin = (uintptr_t)data, end = begin + (uintptr_t)bytes;
    for (int i = 0; i < run->outputs->n; i++) {
        uintptr_t out = (uintptr_t)run->outputs->items[i].data;
        if (out < end && begin < out + (uintptr_t)run->ran->code->outputs[i].bytes) {
            return true;
        }
    }
    return false;
}

/* Index memory that the host can read; NULL: none, or not as the run found it. */
static const char *tci_index_memory(const tci_index_run *run, const tci_index_read *read)
{
    const tc_program *f = run->ran;
    const tc_backend *device = f->code->device;
    if (read->port < 0) {
        return NULL;
    }
    const char *data = read->port < f->n_inputs ? run->inputs->items[read->port].data
                                                : f->captured_data[read->port - f->n_inputs];
    bool away = data && device && device->is_device && device->is_device(device->user, data);
    int64_t bytes = tci_dim_known(f->code->inputs[read->port].bytes);
    bool over = away || tci_index_is_under_output(run, data, bytes);
    return over ? NULL : data;
}

/* Elements from the lowest address to element number `at` in row-major order. */
static int64_t tci_index_offset(const tci_index_read *read, const tci_code_port *port, int64_t at)
{
    int64_t offset = 0;
    for (int i = port->rank - 1; read->strides && i >= 0; i--) {
        int64_t size = tci_dim_known(port->shape[i]), stride = tci_dim_known(read->strides[i]);
        offset += stride * (at % size) - (stride < 0 ? stride * (size - 1) : 0);
        at /= size;
    }
    return read->strides ? offset : at;
}

static int64_t tci_index_value(const tci_index_read *read, tci_value v, tc_dtype from)
{
    for (int i = 0; i < read->n_casts; i++) {
        v = tci_value_cast(v, from, (tc_dtype)read->casts[i]);
        from = (tc_dtype)read->casts[i];
    }
    return tci_value_cast(v, from, TC_I64).i;
}

static bool tci_index_scan(const tci_index_run *run, const tci_index_read *read, const char *data,
                           tci_index_hit *hit)
{
    const tci_code_port *port = &run->ran->code->inputs[read->port];
    tc_dtype dtype = (tc_dtype)port->dtype;
    int64_t bytes = tci_dtype_get(dtype)->bytes;
    for (int64_t i = 0; i < tci_dim_known(port->n); i++) {
        tci_value v = tci_value_load(dtype, data + bytes * tci_index_offset(read, port, i));
        int64_t index = tci_index_value(read, v, dtype);
        if (index < -run->size || index >= run->size) {
            bool is_cast = index != tci_value_cast(v, dtype, TC_I64).i;
            *hit = (tci_index_hit){index, i, is_cast};
            return true;
        }
    }
    return false;
}

/* ---- texts ---- */

typedef struct tci_index_text {
    char text[320];
} tci_index_text;

/* " made at app.c:12", of a long path its end. */
static tci_index_text tci_index_made(const char *file, int line)
{
    tci_index_text t = {""};
    size_t n = file ? strlen(file) : 0, most = 100;
    if (n) {
        snprintf(t.text, sizeof(t.text), " made at %s%s:%d", n > most ? "..." : "",
                 n > most ? file + n - most : file, line);
    }
    return t;
}

/* "axis 0 of size 6 in tc_gather made at app.c:12" */
static tci_index_text tci_index_place(const tci_index_read *read, int64_t size)
{
    tci_index_text t, made = tci_index_made(read->file, read->line);
    bool symbolic = read->size_text != NULL;
    snprintf(t.text, sizeof(t.text), "axis %d of size %lld%s%.60s%s in %.40s%s", (int)read->axis,
             (long long)size, symbolic ? " (" : "", symbolic ? read->size_text : "",
             symbolic ? ")" : "", read->call, made.text);
    return t;
}

/* "input 1 "which"" */
static tci_index_text tci_index_leaf_name(const tci_index_run *run, const tci_index_read *read)
{
    tci_index_text t, made = tci_index_made(read->leaf_file, read->leaf_line);
    if (read->port >= run->ran->n_inputs) {
        snprintf(t.text, sizeof(t.text), "the tensor%s", made.text[0] ? made.text : " of indices");
    } else if (read->name && read->name[0]) {
        snprintf(t.text, sizeof(t.text), "input %d \"%.60s\"", (int)read->port, read->name);
    } else {
        snprintf(t.text, sizeof(t.text), "input %d", (int)read->port);
    }
    return t;
}

/* "3", "[1, 2]" */
static tci_index_text tci_index_element(const tci_code_port *port, int64_t at)
{
    enum { most = 8 };
    tci_index_text t;
    tci_dim place[most];
    if (port->rank < 2 || port->rank > most) {
        snprintf(t.text, sizeof(t.text), "%lld", (long long)at);
        return t;
    }
    for (int i = port->rank - 1; i >= 0; i--) {
        place[i] = at % tci_dim_known(port->shape[i]);
        at /= tci_dim_known(port->shape[i]);
    }
    tci_graph_print_shape(t.text, sizeof(t.text), port->rank, place);
    return t;
}

static tc_status tci_index_tell_hit(tc_call *c, const tci_index_run *run,
                                    const tci_index_read *read, tci_index_hit hit)
{
    tci_index_text element = tci_index_element(&run->ran->code->inputs[read->port], hit.at);
    tci_index_text leaf = tci_index_leaf_name(run, read), place = tci_index_place(read, run->size);
    return tci_call_refuse(c, TC_ERR_INDEX,
                           "index %lld (element %s of %s%s) is outside %s: expected %lld to %lld",
                           (long long)hit.value, element.text, leaf.text,
                           hit.is_cast ? ", cast" : "", place.text, (long long)-run->size,
                           (long long)run->size - 1);
}

/* One reading whose indices could not be looked through. */
static tc_status tci_index_tell_one(tc_call *c, const tci_index_run *run,
                                    const tci_index_read *read)
{
    bool computed = read->port < 0 || read->padded;
    tci_index_text leaf = tci_index_leaf_name(run, read), place = tci_index_place(read, run->size);
    return tci_call_refuse(c, TC_ERR_INDEX, "%s%s is outside %s: expected %lld to %lld",
                           computed ? "a computed index" : "an index of ",
                           computed ? "" : leaf.text, place.text, (long long)-run->size,
                           (long long)run->size - 1);
}

/* Readings; the text names the first few. */
typedef struct tci_index_some {
    const tci_index_read *items[TCI_INDEX_NAMED];
    int n;
} tci_index_some;

/* True if both have the same text: a call and its gradient, or one line that is run twice. */
static bool tci_index_is_same(const tci_index_read *a, const tci_index_read *b)
{
    const char *a_file = a->file ? a->file : "", *b_file = b->file ? b->file : "";
    return a->line == b->line && a->axis == b->axis && !strcmp(a->call, b->call) &&
           !strcmp(a_file, b_file);
}

static void tci_index_add_to(tci_index_some *some, const tci_index_read *read)
{
    for (int i = 0; i < TCI_MIN(some->n, TCI_INDEX_NAMED); i++) {
        if (tci_index_is_same(some->items[i], read)) {
            return;
        }
    }
    if (some->n < TCI_INDEX_NAMED) {
        some->items[some->n] = read;
    }
    some->n++;
}

static tc_status tci_index_tell_some(tc_call *c, const tci_index_run *run,
                                     const tci_index_some *some)
{
    char list[TCI_INDEX_NAMED * sizeof(tci_index_text) + 64] = "";
    size_t at = 0;
    for (int i = 0; i < TCI_MIN(some->n, TCI_INDEX_NAMED); i++) {
        tci_index_text place = tci_index_place(some->items[i], run->size);
        int more = snprintf(list + at, sizeof(list) - at, "%s%s", i ? "; or " : ": ", place.text);
        at += more > 0 ? (size_t)more : 0;
    }
    if (some->n > TCI_INDEX_NAMED) {
        snprintf(list + at, sizeof(list) - at, "; or %d more of that size",
                 some->n - TCI_INDEX_NAMED);
    }
    return tci_call_refuse(c, TC_ERR_INDEX,
                           "an index is outside an axis of size %lld, expected %lld to %lld%s",
                           (long long)run->size, (long long)-run->size, (long long)run->size - 1,
                           list);
}

TCI_FN tc_status tci_index_tell(tc_call *c, const tc_program *ran, const int64_t *values,
                                int64_t size, const tc_bufs *inputs, const tc_bufs *outputs)
{
    const tc_program *f = c->program;
    tci_index_run run = {ran, values, size, inputs, outputs};
    tci_index_some all = {.n = 0}, unseen = {.n = 0};
    for (int i = 0; i < f->n_reads; i++) {
        const tci_index_read *read = &f->reads[i];
        tci_index_hit hit;
        if (!tci_index_is_of_size(&run, read)) {
            continue;
        }
        const char *data = tci_index_memory(&run, read);
        if (data && tci_index_scan(&run, read, data, &hit)) {
            return tci_index_tell_hit(c, &run, read, hit);
        }
        tci_index_add_to(&all, read);
        if (!data || read->padded) {
            tci_index_add_to(&unseen, read);
        }
    }
    return unseen.n == 1 ? tci_index_tell_one(c, &run, unseen.items[0])
                         : tci_index_tell_some(c, &run, unseen.n ? &unseen : &all);
}

#undef TCI_INDEX_NAMED
