/* io/params.c - tc_save and tc_load: all parameters of a context by name.
 *
 * In: a context, a file. Out: the file, or new values of all parameters.
 *
 * Design: names on both sides are sorted, so one merge finds missing, superfluous and mismatched
 * arrays. Everything is read into private memory before the first parameter changes. */
#include "tensor_file.h"

#include <stdlib.h>
#include <string.h>

typedef struct tci_params {
    tci_node **items; /* by name; of each parameter one node */
    int n, cap;
} tci_params;

static const char *tci_params_name(const tci_node *x)
{
    const char *name = tci_param_name_of(x->storage);
    return name ? name : "";
}

static int tci_params_order(const void *a, const void *b)
{
    const tci_node *x = *(tci_node *const *)a, *y = *(tci_node *const *)b;
    int by_name = strcmp(tci_params_name(x), tci_params_name(y));
    uintptr_t p = (uintptr_t)x->storage, q = (uintptr_t)y->storage;
    return by_name ? by_name : (p > q) - (p < q);
}

/* Where a parameter was made, for messages. */
static const char *tci_params_site(tci_scratch *s, const tci_node *x)
{
    return x->site.file ? tci_scratch_printf(s, "%.60s:%d", x->site.file, x->site.line)
                        : "an unknown place";
}

static tci_params tci_params_list(tci_scratch *s, const tci_graph *g)
{
    tci_params all = {NULL, 0, 0};
    for (uint32_t i = 0; i < g->n_slots; i++) {
        tci_node *x = g->slots[i];
        if (x && x->op == TCI_OP_DATA && x->storage->param) {
            TCI_PUSH(s, all.items, all.n, all.cap, x);
        }
    }
    if (all.n) {
        qsort(all.items, (size_t)all.n, sizeof(*all.items), tci_params_order);
    }
    int n = 0;
    for (int i = 0; i < all.n; i++) {
        tci_node *x = all.items[i], *last = n ? all.items[n - 1] : NULL;
        if (last && last->storage == x->storage) {
            continue; /* moved by tc_keep: the same one */
        }
        if (!*tci_params_name(x)) {
            tci_scratch_fail(s, TC_ERR_ARGUMENT,
                             "the parameter made at %s has no name (tc_named "
                             "gives it one)",
                             tci_params_site(s, x));
        }
        if (last && !strcmp(tci_params_name(last), tci_params_name(x))) {
            tci_scratch_fail(s, TC_ERR_ARGUMENT, "two parameters are named %s, made at %s and %s",
                             TCI_IO_NAME(tci_params_name(x)), tci_params_site(s, last),
                             tci_params_site(s, x));
        }
        all.items[n++] = x;
    }
    all.n = n;
    return all;
}

/* ---- tc_save ---- */

static void tci_params_list_out(tci_io_out *o)
{
    tci_ctx *ctx = o->ctx;
    tci_params all = tci_params_list(&o->s, &ctx->graph);
    tc_tensor *tensors = TCI_NEW_ARRAY(&o->s, tc_tensor, all.n);
    const char **names = TCI_NEW_ARRAY(&o->s, const char *, all.n);
    for (int i = 0; i < all.n; i++) {
        const tci_node *x = all.items[i];
        tensors[i] = (tc_tensor){ctx->handle, x->id, x->generation};
        names[i] = tci_params_name(x);
    }
    o->n = all.n;
    o->tensors = tensors;
    o->names = names;
}

TC_API tc_status tc_save_at(tc_ctx *ctx, const char *path, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_save", here);
    tci_io_out o = {.ctx = f.ctx, .path = path};
    if (!path) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the path is NULL");
    }
    if (f.failed) {
        return tci_frame_status(&f);
    }
    return tci_io_write(&o, &f, tci_params_list_out);
}

/* ---- tc_load ---- */

typedef struct tci_params_load {
    tci_scratch s;
    const tci_ctx *ctx;
    const tc_file *file;
    tci_params all;
    tci_param_held *rooms; /* new values, one for each parameter; NULL: there are none yet */
} tci_params_load;

static void tci_params_check_one(tci_params_load *w, const tci_node *x, const tci_io_array *a)
{
    tci_io_name name = tci_io_show(a->seen.name);
    const char *site = tci_params_site(&w->s, x);
    if (a->seen.dtype == TC_DTYPE_COUNT) {
        tci_scratch_fail(&w->s, TC_ERR_UNSUPPORTED, "%s is of type %s, which tc does not have",
                         name.text, TCI_IO_NAME(a->seen.type));
    }
    if (a->seen.dtype != (tc_dtype)x->dtype) {
        tci_scratch_fail(&w->s, TC_ERR_DTYPE, "%s is %s, the parameter made at %s is %s", name.text,
                         tc_dtype_name(a->seen.dtype), site, tc_dtype_name((tc_dtype)x->dtype));
    }
    if (!tci_build_same_shape(a->seen.rank, tci_dim_list(a->seen.sizes), x->rank, x->shape)) {
        tci_scratch_fail(&w->s, TC_ERR_SHAPE, "%s is %s, the parameter made at %s is %s", name.text,
                         tci_shape_text_of(a->seen.rank, tci_dim_list(a->seen.sizes)).text, site,
                         TCI_SHAPE_TEXT(x));
    }
}

/* Both lists are sorted: each name of one is in the other. */
static void tci_params_check(tci_params_load *w)
{
    const char *missing = NULL, *unexpected = NULL;
    int n_missing = 0, n_unexpected = 0, i = 0, k = 0;
    while (i < w->all.n || k < w->file->n_arrays) {
        const char *ours = i < w->all.n ? tci_params_name(w->all.items[i]) : NULL;
        const char *theirs = k < w->file->n_arrays ? w->file->arrays[k].seen.name : NULL;
        int order = !ours ? 1 : !theirs ? -1 : strcmp(ours, theirs);
        missing = order < 0 && !missing ? ours : missing;
        unexpected = order > 0 && !unexpected ? theirs : unexpected;
        n_missing += order < 0;
        n_unexpected += order > 0;
        i += order <= 0;
        k += order >= 0;
    }
    if (missing || unexpected) {
        tci_scratch_fail(&w->s, TC_ERR_ARGUMENT,
                         "it lacks %d of %d parameters%s%s, and has %d arrays that are none%s%s",
                         n_missing, w->all.n, missing ? ": " : "",
                         missing ? TCI_IO_NAME(missing) : "", n_unexpected, unexpected ? ": " : "",
                         unexpected ? TCI_IO_NAME(unexpected) : "");
    }
    for (i = 0; i < w->all.n; i++) {
        tci_params_check_one(w, w->all.items[i], &w->file->arrays[i]);
    }
}

static void tci_params_read(tci_params_load *w, const tci_io_array *a, void *to)
{
    void *stored = a->strides ? tci_scratch_get(&w->s, (size_t)a->bytes) : to;
    tc_status status = TC_OK;
    const char *why = tci_io_read_array(w->file, a, stored, &status);
    if (why) {
        tci_scratch_fail(&w->s, status, "the data of %s %s", TCI_IO_NAME(a->seen.name), why);
    }
    if (a->strides && a->bytes) {
        tci_leaf_copy(to, stored, tci_dtype_get(a->seen.dtype)->bytes, a->seen.rank, a->seen.sizes,
                      a->strides);
    }
}

static tc_status tci_params_load_armed(tci_params_load *w)
{
    if (setjmp(w->s.escape)) {
        return w->s.why;
    }
    w->all = tci_params_list(&w->s, &w->ctx->graph);
    tci_params_check(w);
    tci_param_held *rooms = TCI_NEW_ARRAY(&w->s, tci_param_held, w->all.n);
    for (int i = 0; i < w->all.n; i++) {
        rooms[i].next = i + 1 < w->all.n ? &rooms[i + 1] : NULL;
        rooms[i].storage = w->all.items[i]->storage;
    }
    if (w->all.n && tci_param_room(rooms)) {
        tci_scratch_fail(&w->s, TC_ERR_MEMORY, "out of memory for the new values");
    }
    w->rooms = w->all.n ? rooms : NULL;
    for (int i = 0; i < w->all.n; i++) {
        tci_params_read(w, &w->file->arrays[i], rooms[i].data);
    }
    return TC_OK;
}

TC_API tc_status tc_load_at(tc_ctx *ctx, const char *path, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_load", here);
    if (!path) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the path is NULL");
    }
    tc_file *file = f.failed ? NULL : tci_io_open_file(&f, path);
    if (file) {
        tci_params_load w = {.ctx = f.ctx, .file = file};
        tci_scratch_init(&w.s);
        tc_status status = tci_params_load_armed(&w);
        if (status) {
            tci_frame_fail(&f, status, "'%.300s': %s", path, w.s.message);
        }
        if (tci_param_settle(w.rooms, !status)) {
            tci_frame_fail(&f, TC_ERR_BUSY, "another run changes a parameter");
        }
        tci_scratch_free(&w.s);
        tc_file_close(file);
    }
    return tci_frame_status(&f);
}
