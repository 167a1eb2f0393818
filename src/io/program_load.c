/* io/program_load.c - tc_program_load: loads a program from a file, without a compiler.
 *
 * In: a file that tc_program_save wrote, on this or another machine. Out: a program, and its
 * parameters as tensors of the context.
 *
 * Design: machine code is trusted under the rules of the disk cache: no other user can have written
 * the file (base/private_dir.c), or the caller marks it as trusted. All bytes are checked against
 * the hashes in the file, and code that this process cannot run is not loaded: another byte order,
 * build of tc, ABI or instruction set is rejected with an error that names the mismatch. */
#include "program_file.h"

#include <errno.h>
#include <string.h>

#include "../base/private_dir.h"
#include "../debug/summary.h"
#include "../run/shape_instances.h"

typedef struct tci_load {
    tci_scratch s;
    tci_frame *frame;
    const char *path;
    bool trusted;
    int fd;
    int64_t bytes; /* of the file */
    int64_t left;  /* of those, that no blob has been read from: blobs share none */
    tci_saved v;
    tci_code *memory; /* what the description is read into; the code itself if native */
    tci_code *code;   /* of the program */
    tc_program *f;
    bool reads_graph; /* a graph that is not valid is one of a damaged file */
} tci_load;

static void tci_load_damaged(tci_load *l, const char *what)
{
    tci_scratch_fail(&l->s, TC_ERR_IO, "it is damaged: %s", what);
}

/* ---- the file ---- */

static void tci_load_untrusted(tci_load *l, const char *why)
{
    tci_scratch_fail(&l->s, TC_ERR_IO,
                     "others could have put code there: %.160s (tc_load_options.trusted vouches "
                     "for it)",
                     why);
}

/* Opens the file in a directory that others cannot change. */
static int tci_load_open_private(tci_load *l, int *code)
{
    const char *slash = strrchr(l->path, '/');
    const char *name = slash ? slash + 1 : l->path;
    const char *folder = !slash ? "."
                         : slash == l->path
                             ? "/"
                             : tci_scratch_printf(&l->s, "%.*s", (int)(slash - l->path), l->path);
    tci_dir dir;
    tci_str why = {0};
    if (!tci_os_stat(l->path, NULL, NULL)) { /* a folder that is missing would be made */
        *code = ENOENT;
        return -1;
    }
    if (!tci_dir_open(&dir, folder, TCI_DIR_CODE, &why)) {
        char text[200];
        snprintf(text, sizeof(text), "%s", tci_str_text(&why));
        tci_str_free(&why);
        if (!text[0]) {
            tci_scratch_fail(&l->s, TC_ERR_MEMORY, "out of memory");
        }
        tci_load_untrusted(l, text);
    }
    int fd = tci_os_open_private_at(dir.fd, name, dir.closed, code);
    tci_dir_close(&dir);
    tci_str_free(&why);
    if (fd < 0 && *code == EPERM) {
        tci_load_untrusted(l, "the file belongs to another user, or others may write to it");
    } else if (fd < 0 && *code == ELOOP) {
        tci_load_untrusted(l, "it is a link");
    }
    return fd;
}

static void tci_load_read(tci_load *l, void *to, int64_t n, int64_t at)
{
    if (at < 0 || n < 0 || at > l->bytes || n > l->bytes - at) {
        tci_load_damaged(l, "it has been cut short");
    }
    int code = tci_os_read_at(l->fd, to, (size_t)n, at);
    if (code) {
        tci_scratch_fail(&l->s, TC_ERR_IO, "it cannot be read: %s", strerror(code));
    }
}

/* Before there is memory for a blob, so that a small file cannot ask for much. */
static void tci_load_need(tci_load *l, const tci_saved_blob *b)
{
    if (b->bytes > l->left) {
        tci_load_damaged(l, "its parts are larger than the whole");
    }
    l->left -= b->bytes;
}

static void tci_load_read_blob(tci_load *l, const tci_saved_blob *b, void *to)
{
    tci_load_read(l, to, b->bytes, b->at);
    tci_hash sum = tci_hash_bytes(to, (size_t)b->bytes);
    if (sum.lo != b->sum.lo || sum.hi != b->sum.hi) {
        tci_load_damaged(l, "bytes have changed since it was written");
    }
}

static uint64_t tci_load_swap(uint64_t v)
{
    uint64_t swapped = 0;
    for (int i = 0; i < 8; i++, v >>= 8) {
        swapped = swapped << 8 | (v & 255);
    }
    return swapped;
}

static tci_saved_header tci_load_read_header(tci_load *l)
{
    tci_saved_header h;
    if (l->bytes < (int64_t)sizeof(h)) {
        tci_scratch_fail(&l->s, TC_ERR_IO, "it is no program that tc_program_save wrote");
    }
    tci_load_read(l, &h, sizeof(h), 0);
    if (tci_load_swap(h.magic) == TCI_SAVED_MAGIC) {
        tci_scratch_fail(&l->s, TC_ERR_UNSUPPORTED,
                         "it was saved on a machine of the other byte order");
    }
    if (h.magic != TCI_SAVED_MAGIC) {
        tci_scratch_fail(&l->s, TC_ERR_IO, "it is no program that tc_program_save wrote");
    }
    if (h.form != TCI_SAVED_FORM) {
        tci_scratch_fail(&l->s, TC_ERR_UNSUPPORTED,
                         "another version of tc saved it: save it again "
                         "with this one (%s)",
                         tc_version());
    }
    if (h.bytes != (uint64_t)l->bytes || h.description > TCI_SAVED_DESCRIPTION_MOST) {
        tci_load_damaged(l, h.bytes > (uint64_t)l->bytes ? "it has been cut short"
                                                         : "its size is not the one it had");
    }
    return h;
}

/* A description whose code calls a custom op that is not known here does not make sense for
 * that. */
static void tci_load_find_missing(tci_load *l)
{
    const tci_saved *v = &l->v;
    tci_key_graph g;
    if (v->key && v->key_graph) {
        tci_key_read(&l->s, v->key, (size_t)v->key_bytes, (size_t)v->key_graph,
                     (const char *const *)v->symbols, v->n_symbols, &g);
        tci_saved_need_op(&l->s, &g);
    }
}

static void tci_load_describe(tci_load *l)
{
    tci_saved_header h = tci_load_read_header(l);
    const tci_saved_blob b = {.at = sizeof(h), .bytes = (int64_t)h.description, .sum = h.sum};
    tci_load_need(l, &b);
    uint8_t *text = tci_scratch_get(&l->s, (size_t)b.bytes + 1);
    tci_load_read_blob(l, &b, text);
    l->memory = tci_code_make();
    if (!l->memory) {
        tci_scratch_fail(&l->s, TC_ERR_MEMORY, "out of memory");
    }
    l->v.code = l->memory;
    tci_wire w = {.at = text, .end = text + b.bytes, .memory = l->memory};
    tci_saved_wire(&w, &l->v);
    if (!w.bad && strcmp(l->v.build, tci_key_build())) {
        tci_scratch_fail(&l->s, TC_ERR_UNSUPPORTED,
                         "tc %.20s (build %.40s) saved it, this is tc %s (build %.40s): save it "
                         "again with this one",
                         l->v.version, l->v.build, tc_version(), tci_key_build());
    }
    if (w.no_memory) {
        tci_scratch_fail(&l->s, TC_ERR_MEMORY, "out of memory");
    }
    if (w.bad) {
        tci_load_find_missing(l);
        tci_load_damaged(l, "its description");
    }
}

/* ---- what runs here ---- */

static const tci_backend *tci_load_backend(tci_load *l, tc_options *o)
{
    const tci_saved *v = &l->v;
    bool native = tci_saved_is_native(v);
    if (native && strcmp(v->abi, tci_saved_abi())) {
        tci_scratch_fail(&l->s, TC_ERR_UNSUPPORTED,
                         "it is machine code for %.60s, and this process is %s", v->abi,
                         tci_saved_abi());
    }
    o->device = o->backend && !strcmp(o->backend, v->backend) ? o->device : 0;
    o->backend = v->backend;
    o->machine = NULL; /* it is to run here */
    o->fallback = TC_FALLBACK_REFUSE;
    const tci_backend *b = tci_backend_pick(o);
    if (!b || (native && !b->calls)) {
        tci_scratch_fail(&l->s, TC_ERR_BACKEND, "it is for the backend %.15s%s%.120s", v->backend,
                         b ? ", which cannot work here: " : ", which this process does not have",
                         b ? b->why : "");
    }
    if (native && !tci_backend_runs(b, v->features)) {
        tci_scratch_fail(&l->s, TC_ERR_UNSUPPORTED,
                         "its machine code needs %.100s, and this machine has %.100s", v->features,
                         b->target.features);
    }
    return b;
}

/* ---- memory ---- */

static void tci_load_storage(tci_load *l, tci_saved_storage *x)
{
    tci_load_need(l, &x->blob);
    x->storage = tci_storage_make(x->blob.bytes);
    if (!x->storage) {
        tci_scratch_fail(&l->s, TC_ERR_MEMORY, "out of memory for the arrays that it captured");
    }
    tci_load_read_blob(l, &x->blob, x->storage->data);
    bool made = !x->is_param || (tci_param_make(x->storage, l->frame->ctx) &&
                                 (!x->name[0] || tci_param_name(x->storage, x->name)));
    if (!made) {
        tci_scratch_fail(&l->s, TC_ERR_MEMORY, "out of memory for a parameter");
    }
}

/* Loads one object file. Its path leads to no file, so that only these very bytes are loaded. */
static void tci_load_module(tci_load *l, const tci_backend *b, int i)
{
    const tci_saved_blob *blob = &l->v.modules[i];
    char why[256] = "", hex[33];
    tci_load_need(l, blob);
    tci_str object = {.text = tci_scratch_get(&l->s, (size_t)blob->bytes + 1),
                      .n = (size_t)blob->bytes};
    tci_load_read_blob(l, blob, object.text);
    tci_hash_hex(blob->sum, hex);
    char *path = tci_scratch_printf(&l->s, "/dev/null/tc-m-%s.so", hex);
    tci_module *m = tci_module_load(b->calls, path, &object, blob->sum, why);
    if (!m) {
        tci_scratch_fail(&l->s, TC_ERR_BACKEND, "its machine code cannot be loaded: %.200s", why);
    }
    l->code->modules[l->code->n_modules++] = m;
    tci_module_hold(m, &object);
}

/* Native code as it was saved, under the request's key. */
static void tci_load_native(tci_load *l, const tci_backend *b, const tci_request *r)
{
    tci_code *c = l->code = l->memory;
    tci_code_retain(c);
    c->modules = tci_code_get(c, (size_t)l->v.n_modules * sizeof(*c->modules));
    if (!c->modules) {
        tci_scratch_fail(&l->s, TC_ERR_MEMORY, "out of memory");
    }
    for (int i = 0; i < l->v.n_modules; i++) {
        tci_load_module(l, b, i);
    }
    c->key = l->v.key;
    c->key_bytes = (size_t)l->v.key_bytes;
    c->hash = tci_hash_bytes(c->key, c->key_bytes);
    c->from_disk = true;
    snprintf(c->backend, sizeof(c->backend), "%s", b->calls->name);
    bool fits = c->n_inputs == r->n_inputs && c->n_outputs == r->n_roots &&
                c->n_user_inputs == r->n_user_inputs &&
                c->n_user_outputs == r->n_roots - r->n_effects && c->n_literals == r->n_literals &&
                c->n_symbols == r->n_symbols;
    if (!fits || !tci_code_bind(c, b->calls)) {
        tci_load_damaged(l, "its code is of another program");
    }
}

/* Kernels for the interpreter, made anew. */
static void tci_load_interpreted(tci_load *l, tci_request *r, const tc_options *o)
{
    tc_status status = TC_OK;
    tci_str log = {.s = &l->s};
    tci_compile_requests(&l->s, &r, 1, o, &l->code, &status, &log);
    if (status) {
        tci_scratch_fail(&l->s, status, "%.200s", tci_str_text(&log));
    }
}

/* ---- the program ---- */

static void tci_load_make(tci_load *l, const tci_request *r, const tc_options *o)
{
    tc_status status = tci_program_make(l->code, r, o, &l->f);
    if (status == TC_ERR_LIMIT) {
        tci_scratch_fail(&l->s, status,
                         "it needs %lld bytes of workspace, expected at most memory_limit = %lld",
                         (long long)(tci_code_workspace(l->code) + l->code->kept_bytes),
                         (long long)o->memory_limit);
    } else if (status) {
        tci_scratch_fail(&l->s, status, "%s", tc_status_text(status));
    }
    const tci_saved_blob *kept = &l->v.kept;
    if (kept->bytes && tci_saved_is_native(&l->v)) {
        tci_load_need(l, kept);
        void *bytes = tci_scratch_get(&l->s, (size_t)kept->bytes);
        tci_load_read_blob(l, kept, bytes);
        status = tci_init_cache_install(l->f, bytes, kept->bytes);
        if (status == TC_ERR_MEMORY) {
            tci_scratch_fail(&l->s, status, "out of memory for what is computed once");
        }
    }
}

/* Each parameter becomes a tensor of the context. */
static void tci_load_give_params(tci_load *l, const tci_request *r)
{
    tci_graph *g = &l->frame->ctx->graph;
    for (int k = 0; k < l->v.n_storages; k++) {
        const tci_saved_storage *x = &l->v.storages[k];
        const tci_node *leaf = NULL;
        for (int i = 0; i < r->n_captured && !leaf; i++) {
            leaf = r->captured[i]->storage == x->storage ? r->captured[i] : NULL;
        }
        if (x->is_param && leaf) {
            tci_storage_retain(x->storage);
            tci_node *n = tci_leaf_data(g, (tc_dtype)leaf->dtype, leaf->rank,
                                        tci_dim_words(leaf->shape), x->storage, NULL, 0);
            if (!n) {
                tci_scratch_fail(&l->s, TC_ERR_MEMORY, "out of memory for a parameter");
            }
            n->stateful = true;
        }
    }
}

static tc_status tci_load_armed(tci_load *l)
{
    if (setjmp(l->s.escape)) {
        return l->s.why;
    }
    int code = 0;
    l->fd = l->trusted ? tci_os_open_file(l->path, &code) : tci_load_open_private(l, &code);
    if (l->fd < 0) {
        tci_scratch_fail(&l->s, code == ENOMEM ? TC_ERR_MEMORY : TC_ERR_IO,
                         "it cannot be opened: %s", strerror(code));
    }
    l->bytes = l->left = tci_os_file_bytes(l->fd);
    tci_load_describe(l);
    tc_options o = tci_saved_options(&l->v, &l->frame->ctx->options);
    const tci_backend *b = tci_load_backend(l, &o);
    o.stance = TC_STANCE_COMPILE;
    o.progress = NULL;
    o.name = l->v.name[0] ? l->v.name : NULL;
    for (int k = 0; k < l->v.n_storages; k++) {
        tci_load_storage(l, &l->v.storages[k]);
    }
    for (int k = 1; k < l->v.n_storages; k++) { /* one version for all: tci_init_cache_install */
        l->v.storages[k].storage->version = l->v.storages[0].storage->version;
    }
    l->reads_graph = true;
    tci_request *r = tci_saved_request(&l->s, &l->v, &o, b);
    l->reads_graph = false;
    r->call = l->frame->op;
    r->site = l->frame->here;
    r->ctx = l->frame->ctx->handle;
    if (tci_saved_is_native(&l->v)) {
        tci_load_native(l, b, r);
    } else {
        tci_load_interpreted(l, r, &o);
    }
    r->found = TCI_FOUND_DISK;
    tci_load_make(l, r, &o);
    tci_load_give_params(l, r);
    tci_summary_announce(l->f, l->frame->op, l->frame->here);
    return TC_OK;
}

TC_API tc_status tc_program_load_at(tc_ctx *ctx, const char *path, const tc_load_options *options,
                                    tc_program **f, tc_site here)
{
    tci_frame frame = tci_frame_on(ctx, "tc_program_load", here);
    if (f) {
        *f = NULL;
    }
    if (!frame.failed && (!path || !f)) {
        tci_frame_fail(&frame, TC_ERR_ARGUMENT, "the %s is NULL",
                       path ? "place for the program" : "path");
    }
    if (frame.failed) {
        return tci_frame_status(&frame);
    }
    tci_load l = {.frame = &frame, .path = path, .trusted = options && options->trusted, .fd = -1};
    int cancel = tci_os_no_cancel();
    tci_scratch_init(&l.s);
    tc_status status = tci_load_armed(&l);
    bool bad_graph = l.reads_graph && status == TC_ERR_INTERNAL;
    if (status) {
        tci_frame_fail(&frame, bad_graph ? TC_ERR_IO : status, "'%.300s': %s%s", path,
                       bad_graph ? "it is damaged: its graph is not valid: " : "", l.s.message);
        tci_program_release(l.f);
    } else {
        *f = l.f;
    }
    tci_os_close(l.fd);
    for (int k = 0; k < l.v.n_storages && l.v.storages; k++) {
        tci_storage_release(l.v.storages[k].storage);
    }
    tci_code_release(l.code);
    tci_code_release(l.memory);
    tci_scratch_free(&l.s);
    tci_os_may_cancel(cancel);
    return tci_frame_status(&frame);
}
