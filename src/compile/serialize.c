/* compile/serialize.c - serializes compiled programs (buffers, kernels, steps;
 * compile/serialize.h) for the disk cache and for program files.
 *
 * In: code, or its bytes from a file. Out: bytes, or the code, without its key and modules.
 *
 * Design: one function describes a structure for writing and for reading. The reader treats its
 * input as untrusted: each number has a range, each index is below the count that it indexes, and a
 * violation invalidates everything after it. */
#include "serialize.h"

#include <string.h>

#include "../base/alloc.h"

TCI_FN void tci_wire_bytes(tci_wire *w, void *bytes, size_t n)
{
    if (w->out) {
        tci_str_add_n(w->out, bytes, n);
    } else if (w->bad || (size_t)(w->end - w->at) < n) {
        w->bad = true;
        memset(bytes, 0, n);
    } else {
        memcpy(bytes, w->at, n);
        w->at += n;
    }
}

TCI_FN int64_t tci_wire_word(tci_wire *w, int64_t v)
{
    tci_wire_bytes(w, &v, sizeof(v));
    return v;
}

/* A number that must be in [lo, hi]. */
TCI_FN int64_t tci_wire_range(tci_wire *w, int64_t v, int64_t lo, int64_t hi)
{
    v = tci_wire_word(w, v);
    if (v < lo || v > hi) {
        w->bad = true;
        return lo;
    }
    return v;
}

/* A count of items that take at least item_bytes each in the entry, so that a damaged count
 * cannot ask for more memory than the entry has bytes. */
TCI_FN int32_t tci_wire_count(tci_wire *w, int64_t n, size_t item_bytes)
{
    int64_t most = w->out ? INT32_MAX : (int64_t)((size_t)(w->end - w->at) / item_bytes);
    return (int32_t)tci_wire_range(w, n, 0, TCI_MIN(most, (int64_t)INT32_MAX));
}

/* The array of a list: the one given when writing, a fresh one when reading. */
TCI_FN void *tci_wire_array(tci_wire *w, void *items, int32_t n, size_t item_bytes)
{
    if (w->out) {
        return items;
    }
    void *fresh = tci_code_get(w->memory, (size_t)n * item_bytes);
    w->no_memory |= !fresh;
    w->bad |= !fresh;
    return fresh;
}

TCI_FN char *tci_wire_text(tci_wire *w, char *text)
{
    int32_t n = tci_wire_count(w, text ? (int64_t)strlen(text) : 0, 1);
    text = w->out ? (text ? text : (char *)"") : tci_code_get(w->memory, (size_t)n + 1);
    w->no_memory |= !text;
    w->bad |= !text;
    if (!w->bad) {
        tci_wire_bytes(w, text, (size_t)n);
    }
    return text;
}

static int32_t *tci_wire_indices(tci_wire *w, int32_t *items, int32_t n, int32_t below)
{
    items = tci_wire_array(w, items, n, sizeof(*items));
    for (int32_t i = 0; i < n && !w->bad; i++) {
        items[i] = (int32_t)tci_wire_range(w, items[i], 0, (int64_t)below - 1);
    }
    return items;
}

/* ---- symbolic sizes: only then does an entry contain symbols ---- */

#ifdef TC_DYNAMIC_SHAPES

/* A number in [lo, hi]: 0 and itself; an expression: how many words, and those. */
TCI_FN tci_dim tci_wire_dim(tci_wire *w, tci_dim d, int64_t lo, int64_t hi)
{
    bool symbolic = w->out && !tci_dim_is_known(d);
    int32_t n = tci_wire_count(w, symbolic ? tci_dim_write(d, NULL) : 0, sizeof(int64_t));
    if (n == 0) { /* and not taken for an expression, which may be of another program */
        d = tci_wire_range(w, (int64_t)d, lo, hi);
        w->bad |= !tci_dim_is_known(d);
        return w->bad ? lo : d;
    }
    int64_t *words = tci_heap_get((size_t)n * sizeof(*words));
    if (!words) {
        w->bad = w->no_memory = true;
        return lo;
    }
    if (w->out) {
        tci_dim_write(d, words);
    }
    tci_wire_bytes(w, words, (size_t)n * sizeof(*words));
    if (!w->out && !w->bad) {
        const int64_t *at = words;
        d = tci_dim_read(&at, words + n, w->symbols, w->n_symbols);
        w->no_memory |= d == TCI_DIM_OF_FAULT(MEMORY);
        w->bad |= !tci_dim_is_valid(d) || at != words + n;
    }
    tci_heap_free(words);
    return w->bad ? lo : d;
}

/* The range of each. */
TCI_FN void tci_wire_symbols(tci_wire *w, tci_dim **symbols, int32_t *n)
{
    *n = tci_wire_count(w, *n, 2 * sizeof(int64_t));
    *symbols = tci_wire_array(w, *symbols, *n, sizeof(**symbols));
    for (int32_t i = 0; i < *n && !w->bad; i++) {
        tci_dim *symbol = &(*symbols)[i];
        int64_t least = tci_wire_range(w, w->out ? tci_dim_least(*symbol) : 0, 0, TCI_DIM_MOST);
        int64_t most = tci_wire_range(w, w->out ? tci_dim_most(*symbol) : 0, least, TCI_DIM_MOST);
        *symbol = w->out ? *symbol : tci_dim_symbol(NULL, i, least, most);
        w->no_memory |= *symbol == TCI_DIM_OF_FAULT(MEMORY);
        w->bad |= !tci_dim_is_valid(*symbol);
    }
    w->symbols = *symbols;
    w->n_symbols = *n;
}

TCI_FN void tci_wire_dims(tci_wire *w, tci_dim **dims, int32_t *n)
{
    *n = tci_wire_count(w, *n, sizeof(int64_t));
    *dims = tci_wire_array(w, *dims, *n, sizeof(**dims));
    for (int32_t i = 0; i < *n && !w->bad; i++) {
        (*dims)[i] = tci_wire_dim(w, (*dims)[i], INT64_MIN, INT64_MAX);
    }
}

#endif

TCI_FN void tci_wire_hash(tci_wire *w, tci_hash *h)
{
    tci_wire_bytes(w, h, sizeof(*h));
}

/* Compares (reading) or writes the key. */
TCI_FN bool tci_wire_key(tci_wire *w, const void *key, size_t n)
{
    int32_t stored = tci_wire_count(w, (int64_t)n, 1);
    if (w->out) {
        tci_str_add_n(w->out, key, n);
        return true;
    }
    if (w->bad || (size_t)stored != n || memcmp(w->at, key, n)) {
        return false;
    }
    w->at += n;
    return true;
}

static void tci_wire_shape(tci_wire *w, int8_t *dtype, int32_t *rank, tci_dim **shape)
{
    *dtype = (int8_t)tci_wire_range(w, *dtype, TC_BOOL, TC_DTYPE_COUNT - 1);
    *rank = tci_wire_count(w, *rank, 8);
    *shape = tci_wire_array(w, *shape, *rank, sizeof(**shape));
    for (int32_t j = 0; j < *rank && !w->bad; j++) {
        (*shape)[j] = tci_wire_dim(w, (*shape)[j], 0, INT64_MAX);
    }
}

static void tci_wire_ports(tci_wire *w, tci_code_port **ports, int32_t *n)
{
    *n = tci_wire_count(w, *n, 32);
    *ports = tci_wire_array(w, *ports, *n, sizeof(**ports));
    for (int32_t i = 0; i < *n && !w->bad; i++) {
        tci_code_port *p = &(*ports)[i];
        tci_wire_shape(w, &p->dtype, &p->rank, &p->shape);
        p->n = tci_wire_dim(w, p->n, 0, INT64_MAX);
        p->bytes = tci_wire_dim(w, p->bytes, 0, INT64_MAX);
    }
}

static void tci_wire_buffers(tci_wire *w, tci_code *c)
{
    c->n_buffers = tci_wire_count(w, c->n_buffers, 24);
    c->buffers = tci_wire_array(w, c->buffers, c->n_buffers, sizeof(*c->buffers));
    for (int32_t i = 0; i < c->n_buffers && !w->bad; i++) {
        tci_code_buffer *b = &c->buffers[i];
        b->kind = (uint8_t)tci_wire_range(w, b->kind, TCI_BUF_INPUT, TCI_BUF_KEPT);
        int64_t most = b->kind == TCI_BUF_INPUT ? c->n_inputs - 1 : c->n_outputs - 1;
        bool is_ours = b->kind == TCI_BUF_TEMP || b->kind == TCI_BUF_KEPT;
        b->index = (int32_t)tci_wire_range(w, b->index, is_ours ? INT32_MIN : 0,
                                           is_ours ? INT32_MAX : most);
        b->offset = tci_wire_range(w, b->offset, 0, INT64_MAX);
        w->bad |= b->kind == TCI_BUF_TEMP && b->offset > c->arena_bytes;
        w->bad |= b->kind == TCI_BUF_KEPT && b->offset > c->kept_bytes;
        b->bytes = tci_wire_dim(w, b->bytes, 0, INT64_MAX);
        tci_wire_shape(w, &b->dtype, &b->rank, &b->shape);
        b->origin = (int32_t)tci_wire_range(w, b->origin, 0, INT32_MAX);
#ifdef TC_DYNAMIC_SHAPES
        b->first = (int32_t)tci_wire_range(w, b->first, 0, INT32_MAX);
        b->last = (int32_t)tci_wire_range(w, b->last, -1, INT32_MAX);
#endif
    }
    c->n_aliases = tci_wire_count(w, c->n_aliases, 16);
    c->aliases = tci_wire_array(w, c->aliases, c->n_aliases, sizeof(*c->aliases));
    for (int32_t i = 0; i < c->n_aliases && !w->bad; i++) {
        c->aliases[i].output = (int32_t)tci_wire_range(w, c->aliases[i].output, 0,
                                                       (int64_t)c->n_outputs - 1);
        c->aliases[i].input = (int32_t)tci_wire_range(w, c->aliases[i].input, 0,
                                                      (int64_t)c->n_inputs - 1);
    }
}

/* A communicator's number is of this process: the key named it. */
static void tci_wire_comm(tci_wire *w, tci_comm_step *c)
{
    c->phase = (uint8_t)tci_wire_range(w, c->phase, TCI_COMM_NONE, TCI_COMM_WAIT);
    c->verb = (uint8_t)tci_wire_range(w, c->verb, 0, (int64_t)TC_COMM_VERB_COUNT - 1);
    c->how = (uint8_t)tci_wire_range(w, c->how, TC_COMM_SUM, TC_COMM_MEAN);
    c->ranks = (int32_t)tci_wire_range(w, c->ranks, 0, INT32_MAX);
    c->peer = (int32_t)tci_wire_range(w, c->peer, 0, INT32_MAX);
    c->number = (int32_t)tci_wire_range(w, c->number, 0, INT32_MAX);
    c->comm = tci_wire_range(w, c->comm, 0, INT64_MAX);
}

/* A user function, which this process knows: the key named it. */
static void tci_wire_call(tci_wire *w, tci_code_kernel *k)
{
    tci_custom_call *call = tci_wire_array(w, (void *)(uintptr_t)k->call, 1, sizeof(*call));
    if (w->bad) {
        return;
    }
    tci_wire_comm(w, &call->comm);
    if (call->comm.phase == TCI_COMM_NONE) {
        const char *own = w->out ? call->op->op.name : NULL;
        const char *name = tci_wire_text(w, (char *)(uintptr_t)own);
        int64_t version = tci_wire_range(w, w->out ? call->op->op.version : 0, INT32_MIN,
                                         INT32_MAX);
        if (!w->out && !w->bad) {
            call->op = tci_custom_find(name, (int)version);
            w->bad |= !call->op;
        }
    }
    if (w->bad) {
        return;
    }
    call->n_inputs = (int)tci_wire_range(w, call->n_inputs, 1, TC_CUSTOM_MOST);
    call->arrays = tci_wire_array(w, call->arrays, call->n_inputs + 1, sizeof(*call->arrays));
    for (int i = 0; i <= call->n_inputs && !w->bad; i++) {
        tc_custom_array *a = &call->arrays[i];
        a->dtype = (tc_dtype)tci_wire_range(w, a->dtype, INT8_MIN, INT8_MAX);
        w->bad |= !tci_dtype_is_valid((int)a->dtype);
        a->rank = (int)tci_wire_range(w, a->rank, 0, TC_CUSTOM_MOST);
        a->n = (int64_t)tci_wire_dim(w, (tci_dim)a->n, 0, INT64_MAX);
        a->sizes = tci_wire_array(w, a->sizes, a->rank, sizeof(*a->sizes));
        for (int d = 0; d < a->rank && !w->bad; d++) {
            a->sizes[d] = (int64_t)tci_wire_dim(w, (tci_dim)a->sizes[d], 0, INT64_MAX);
        }
    }
    k->call = call;
}

static void tci_wire_kernel(tci_wire *w, tci_code_kernel *k, int32_t n_modules)
{
    if (tci_wire_range(w, k->call != NULL, 0, 1)) {
        tci_wire_call(w, k);
    }
    k->symbol = tci_wire_text(w, k->symbol);
    k->note = tci_wire_text(w, k->note);
    k->identity = tci_wire_text(w, k->identity);
    k->n_identity = w->bad ? 0 : (int32_t)strlen(k->identity);
    k->module = (int32_t)tci_wire_range(w, k->module, 0, (int64_t)n_modules - 1);
    k->n_tasks = tci_wire_dim(w, k->n_tasks, 0, INT64_MAX);
    tci_wire_bytes(w, &k->task_ns, sizeof(k->task_ns));
    tci_wire_bytes(w, &k->call_ns, sizeof(k->call_ns));
    k->work_bytes = tci_wire_dim(w, k->work_bytes, 0, TCI_WORK_MOST);
    k->flops = tci_wire_dim(w, k->flops, INT64_MIN, INT64_MAX);
    k->bytes = tci_wire_dim(w, k->bytes, INT64_MIN, INT64_MAX);
#ifdef TC_DYNAMIC_SHAPES
    tci_wire_dims(w, &k->dims, &k->n_dims);
#endif
    k->n_operands = (int32_t)tci_wire_range(w, k->n_operands, 0, INT32_MAX);
    k->n_literals = (int32_t)tci_wire_range(w, k->n_literals, 0, INT32_MAX);
    k->faults = tci_wire_range(w, k->faults, 0, 1) != 0;
    k->is_loop = tci_wire_range(w, k->is_loop, 0, 1) != 0;
    k->rounds = tci_wire_dim(w, k->rounds, 0, INT64_MAX);
    k->go = (int32_t)tci_wire_range(w, k->go, -1, (int64_t)k->n_operands - 1);
    w->bad |= !w->out && k->n_operands > w->end - w->at;
    w->bad |= k->call && k->n_operands <= k->call->n_inputs;
    k->writes = tci_wire_array(w, k->writes, w->bad ? 0 : k->n_operands, 1);
    for (int32_t o = 0; o < k->n_operands && !w->bad; o++) {
        k->writes[o] = (uint8_t)tci_wire_range(w, k->writes[o], 0, 1);
    }
}

/* Where a size is known, an operand begins inside its buffer. */
static void tci_wire_offsets(tci_wire *w, const tci_code *c, const tci_code_kernel *k,
                             tci_code_step *s)
{
    s->offsets = tci_wire_array(w, s->offsets, k->n_operands, sizeof(*s->offsets));
    for (int32_t o = 0; o < k->n_operands && !w->bad; o++) {
        tci_dim bytes = c->buffers[s->operands[o]].bytes;
        int64_t most = tci_dim_is_known(bytes) ? tci_dim_known(bytes) : INT64_MAX;
        s->offsets[o] = tci_wire_dim(w, s->offsets[o], 0, most);
    }
}

static void tci_wire_steps(tci_wire *w, tci_code *c, int32_t n_modules)
{
    c->n_kernels = tci_wire_count(w, c->n_kernels, 80);
    c->kernels = tci_wire_array(w, c->kernels, c->n_kernels, sizeof(*c->kernels));
    for (int32_t i = 0; i < c->n_kernels && !w->bad; i++) {
        tci_wire_kernel(w, &c->kernels[i], n_modules);
    }
    c->n_steps = tci_wire_count(w, c->n_steps, 8);
    c->steps = tci_wire_array(w, c->steps, c->n_steps, sizeof(*c->steps));
    for (int32_t i = 0; i < c->n_steps && !w->bad; i++) {
        tci_code_step *s = &c->steps[i];
        s->kernel = (int32_t)tci_wire_range(w, s->kernel, 0, (int64_t)c->n_kernels - 1);
        if (w->bad) {
            return;
        }
        const tci_code_kernel *k = &c->kernels[s->kernel];
        if (!w->out && (int64_t)k->n_operands + k->n_literals > (w->end - w->at) / 8) {
            w->bad = true;
            return;
        }
        s->operands = tci_wire_indices(w, s->operands, k->n_operands, c->n_buffers);
        tci_wire_offsets(w, c, k, s);
        s->literals = tci_wire_indices(w, s->literals, k->n_literals, c->n_literals);
        s->n_origins = tci_wire_count(w, s->n_origins, sizeof(int64_t));
        s->origins = tci_wire_indices(w, s->origins, s->n_origins, INT32_MAX);
    }
}

static void tci_wire_moves(tci_wire *w, const tci_code *c, tci_code_repeat *r)
{
    r->n_moves = tci_wire_count(w, r->n_moves, 32);
    r->moves = tci_wire_array(w, r->moves, r->n_moves, sizeof(*r->moves));
    for (int32_t i = 0; i < r->n_moves && !w->bad; i++) {
        tci_move *m = &r->moves[i];
        m->step = (int32_t)tci_wire_range(w, m->step, r->first, (int64_t)r->last - 1);
        if (w->bad) {
            return;
        }
        int32_t n_operands = c->kernels[c->steps[m->step].kernel].n_operands;
        m->operand = (int32_t)tci_wire_range(w, m->operand, 0, (int64_t)n_operands - 1);
        m->by = tci_wire_dim(w, m->by, INT64_MIN, INT64_MAX);
        m->back = tci_wire_range(w, m->back, 0, 1) != 0;
    }
}

static void tci_wire_turns(tci_wire *w, const tci_code *c, tci_code_repeat *r)
{
    r->n_turns = tci_wire_count(w, r->n_turns, 24);
    r->stops = (int32_t)tci_wire_range(w, r->stops, -1, TCI_MAX((int64_t)r->n_turns - 1, -1));
    r->turns = tci_wire_array(w, r->turns, r->n_turns, sizeof(*r->turns));
    for (int32_t i = 0; i < r->n_turns && !w->bad; i++) {
        tci_turn *t = &r->turns[i];
        t->step = (int32_t)tci_wire_range(w, t->step, r->enter, (int64_t)r->first - 1);
        if (w->bad) {
            return;
        }
        int32_t n_operands = c->kernels[c->steps[t->step].kernel].n_operands;
        t->operand = (int32_t)tci_wire_range(w, t->operand, 0, (int64_t)n_operands - 1);
        t->bytes = tci_wire_dim(w, t->bytes, 0, INT64_MAX);
    }
}

static void tci_wire_repeats(tci_wire *w, tci_code *c)
{
    c->n_repeats = tci_wire_count(w, c->n_repeats, 48);
    c->repeats = tci_wire_array(w, c->repeats, c->n_repeats, sizeof(*c->repeats));
    for (int32_t i = 0; i < c->n_repeats && !w->bad; i++) {
        tci_code_repeat *r = &c->repeats[i];
        r->enter = (int32_t)tci_wire_range(w, r->enter, 0, c->n_steps);
        r->first = (int32_t)tci_wire_range(w, r->first, r->enter, c->n_steps);
        r->last = (int32_t)tci_wire_range(w, r->last, r->first, c->n_steps);
        r->n_within = (int32_t)tci_wire_range(w, r->n_within, 0, (int64_t)c->n_repeats - 1 - i);
        r->rounds = tci_wire_dim(w, r->rounds, 0, INT64_MAX);
        tci_wire_moves(w, c, r);
        tci_wire_turns(w, c, r);
    }
}

static int32_t tci_wire_items(const tci_code *c, int kind)
{
    switch ((tci_list_kind)kind) {
    case TCI_LIST_LAUNCH: return c->n_steps;
    case TCI_LIST_UPLOAD: return c->n_inputs;
    case TCI_LIST_DOWNLOAD: return c->n_user_outputs;
    case TCI_LIST_SET: return c->n_outputs - c->n_user_outputs;
    case TCI_LIST_SIGNAL:
    case TCI_LIST_WAIT: return TCI_LIST_EVENTS;
    case TCI_LIST_CHECK:
    case TCI_LIST_COUNT: break;
    }
    return 0;
}

static void tci_wire_list(tci_wire *w, tci_code *c)
{
    c->n_init = (int32_t)tci_wire_range(w, c->n_init, 0, c->n_steps);
    c->n_list = tci_wire_count(w, c->n_list, 32);
    c->n_init_section = (int32_t)tci_wire_range(w, c->n_init_section, 0, c->n_list);
    c->list = tci_wire_array(w, c->list, c->n_list, sizeof(*c->list));
    for (int32_t i = 0; i < c->n_list && !w->bad; i++) {
        tci_list_step *row = &c->list[i];
        row->kind = (uint8_t)tci_wire_range(w, row->kind, 0, TCI_LIST_COUNT - 1);
        row->queue = (uint8_t)tci_wire_range(w, row->queue, 0, TCI_QUEUES - 1);
        row->begin = (int32_t)tci_wire_range(w, row->begin, 0, tci_wire_items(c, row->kind));
        row->end = (int32_t)tci_wire_range(w, row->end, row->begin, tci_wire_items(c, row->kind));
    }
}

/* The whole of a code but its key and modules. */
TCI_FN void tci_wire_code(tci_wire *w, tci_code *c, int32_t n_modules)
{
#ifdef TC_DYNAMIC_SHAPES
    tci_wire_symbols(w, &c->symbols, &c->n_symbols);
#endif
    tci_wire_ports(w, &c->inputs, &c->n_inputs);
    tci_wire_ports(w, &c->outputs, &c->n_outputs);
    c->n_user_inputs = (int32_t)tci_wire_range(w, c->n_user_inputs, 0, c->n_inputs);
    c->n_user_outputs = (int32_t)tci_wire_range(w, c->n_user_outputs, 0, c->n_outputs);
    c->n_literals = tci_wire_count(w, c->n_literals, 1);
    c->literal_dtypes = tci_wire_array(w, c->literal_dtypes, c->n_literals, 1);
    if (!w->bad) {
        tci_wire_bytes(w, c->literal_dtypes, (size_t)c->n_literals);
    }
    c->intact = tci_wire_range(w, c->intact, 0, 1) != 0;
    c->arena_bytes = tci_wire_range(w, c->arena_bytes, 0, INT64_MAX);
    c->kept_bytes = tci_wire_range(w, c->kept_bytes, 0, INT64_MAX);
    tci_wire_buffers(w, c);
    tci_wire_steps(w, c, n_modules);
    tci_wire_repeats(w, c);
    tci_wire_list(w, c);
    c->explain = tci_wire_text(w, c->explain);
    if (!w->out && !w->bad && !tci_code_split_init(c)) {
        w->bad = w->no_memory = true;
    }
}
