/* io/program_save.c - tc_program_save: writes a program, with everything that it needs, to one
 * file.
 *
 * In: a program. Out: a file that is written atomically, and that only its owner may write.
 *
 * Design: the contents are verified first: the request is rebuilt from the key, as tc_program_load
 * does, so a program that could not be loaded is refused here. Parameter values are a consistent
 * snapshot between two runs. */
#include "program_file.h"

#include <errno.h>
#include <string.h>

#include "../debug/string_intern.h"
#include "../debug/source_location.h"
#include "../run/shape_instances.h"
#include "../run/async_compile.h"

typedef struct tci_save {
    tci_scratch s;
    tc_program *f;           /* that runs */
    const tc_program *asked; /* the user's, which has ports and origins */
    bool packed;
    tci_code *code; /* its code, compiled again; NULL: the program's */
    tci_saved v;
    tci_param_held *held; /* memory of the storages, while it is read; NULL: none is */
    tc_call *call;        /* that has what is computed once, or NULL */
    tc_program *called;   /* its program */
    tci_str *objects;     /* heap: of the modules */
    tci_os_fresh to;
} tci_save;

static char *tci_save_text(tci_save *p, const char *text)
{
    return tci_scratch_printf(&p->s, "%s", text ? text : "");
}

/* ---- what can be saved ---- */

static void tci_save_check(tci_save *p)
{
    const tc_program *f = p->f;
    const char *why = NULL;
    if (!tc_program_ready(p->asked)) {
        tci_scratch_fail(&p->s, TC_ERR_BUSY, "it is still being compiled: tc_program_wait first");
    }
    if (f->collectives) {
        why = "it uses communicators, which are of this process";
    } else if (f->code->engine) {
        why = "an engine runs it, or a part of it";
    } else if (f->options.check) {
        why = "it is checked (options.check)";
    } else if (!f->key_graph && !p->asked->key_graph) {
        why = "it is an inner one";
    }
    if (why) {
        tci_scratch_fail(&p->s, TC_ERR_UNSUPPORTED, "%s: expected a program without that", why);
    }
}

/* ---- what is written ---- */

static void tci_save_names(tci_save *p)
{
    tci_saved *v = &p->v;
    v->n_inputs = p->f->n_inputs;
    v->inputs = TCI_NEW_ARRAY(&p->s, char *, v->n_inputs);
    for (int i = 0; i < v->n_inputs; i++) {
        v->inputs[i] = tci_save_text(p, p->asked->ports[i].name);
    }
#ifdef TC_DYNAMIC_SHAPES
    v->n_symbols = p->f->code->n_symbols;
    v->symbols = TCI_NEW_ARRAY(&p->s, char *, v->n_symbols);
    for (int i = 0; i < v->n_symbols; i++) {
        v->symbols[i] = tci_save_text(p, tci_dim_name(p->f->dynamic->user[i]));
    }
#endif
}

static int32_t tci_save_file_number(tci_save *p, uint32_t label, uint32_t *labels)
{
    tci_saved *v = &p->v;
    int32_t i = 0;
    while (i < v->n_files && labels[i] != label) {
        i++;
    }
    if (label && i == v->n_files) {
        labels[i] = label;
        v->files[v->n_files++] = tci_save_text(p, tci_label_text(label));
    }
    return label ? i + 1 : 0;
}

static void tci_save_sites(tci_save *p)
{
    enum { TCI_SAVE_FILES = 64 }; /* a program of more files has no lines of the others */
    const tc_program *f = p->asked;
    uint32_t labels[TCI_SAVE_FILES + 1];
    tci_saved *v = &p->v;
    v->files = TCI_NEW_ARRAY(&p->s, char *, TCI_SAVE_FILES + 1);
    v->sites = TCI_NEW_ARRAY(&p->s, tci_saved_site, f->n_origins);
    v->n_sites = f->n_origins;
    for (int i = 0; i < f->n_origins && v->n_files < TCI_SAVE_FILES; i++) {
        v->sites[i].file = tci_save_file_number(p, f->origins[i].file, labels);
        v->sites[i].line = f->origins[i].line;
    }
}

/* Lists the storages of the captured leaves, and where in them each begins. */
static void tci_save_leaves(tci_save *p)
{
    const tc_program *f = p->f;
    tci_saved *v = &p->v;
    v->n_leaves = f->n_captured;
    v->leaves = TCI_NEW_ARRAY(&p->s, tci_saved_leaf, v->n_leaves);
    v->storages = TCI_NEW_ARRAY(&p->s, tci_saved_storage, v->n_leaves);
    for (int i = 0; i < f->n_captured; i++) {
        tci_storage *s = f->captured[i];
        int32_t k = 0;
        while (k < v->n_storages && v->storages[k].storage != s) {
            k++;
        }
        tci_saved_storage *x = &v->storages[k];
        const char *lowest = f->captured_data[i];
        v->leaves[i].storage = k;
        v->leaves[i].lowest = s->param ? 0 : lowest - (const char *)s->data;
        int64_t end = v->leaves[i].lowest + tci_dim_known(f->code->inputs[f->n_inputs + i].bytes);
        if (k == v->n_storages) {
            v->n_storages++;
            x->storage = s;
            x->is_param = s->param != NULL;
            x->name = tci_save_text(p, tci_param_name_of(s));
            x->first = v->leaves[i].lowest;
        }
        x->first = s->param ? 0 : TCI_MIN(x->first, v->leaves[i].lowest);
        x->blob.bytes = s->param ? s->bytes : TCI_MAX(x->blob.bytes, end);
    }
    for (int k = 0; k < v->n_storages; k++) {
        tci_saved_storage *x = &v->storages[k];
        x->first -= x->first % TCI_SAVED_ALIGN;
        x->blob.bytes -= x->first;
    }
    for (int i = 0; i < v->n_leaves; i++) {
        v->leaves[i].lowest -= v->storages[v->leaves[i].storage].first;
    }
}

static void tci_save_hold(tci_save *p)
{
    tci_saved *v = &p->v;
    tci_param_held *held = TCI_NEW_ARRAY(&p->s, tci_param_held, v->n_storages);
    for (int k = 0; k < v->n_storages; k++) {
        held[k].next = k + 1 < v->n_storages ? &held[k + 1] : NULL;
        held[k].storage = v->storages[k].storage;
    }
    tc_status status = v->n_storages ? tci_param_hold(held) : TC_OK;
    if (status) {
        tci_scratch_fail(&p->s, status, "the memory of a parameter cannot be read");
    }
    p->held = v->n_storages ? held : NULL;
    for (int k = 0; k < v->n_storages; k++) {
        const char *device = tci_backend_hides(held[k].data);
        if (device) {
            tci_scratch_fail(&p->s, TC_ERR_UNSUPPORTED,
                             "it borrowed memory of a %s device: expected memory of the host",
                             device);
        }
        v->storages[k].blob.data = (const char *)held[k].data + v->storages[k].first;
    }
}

/* A call that has computed what is computed once. */
static void tci_save_pack(tci_save *p)
{
    tc_program *f = p->f;
#ifdef TC_DYNAMIC_SHAPES
    if (f->dynamic) {
        f = f->dynamic->first ? f->dynamic->first->program : NULL;
    }
#endif
    if (!f) {
        tci_scratch_fail(&p->s, TC_ERR_ARGUMENT,
                         "what a program of symbolic sizes computes once is not there before its "
                         "first run: run it once, or save it without `packed`");
    }
    if (!tci_saved_is_native(&p->v) || !f->code->n_init || f->code->device) {
        return; /* nothing, or on a device, where the first run computes it */
    }
    p->called = f;
    p->call = tci_call_take(f);
    tc_status status = p->call ? tci_walk_once(p->call) : TC_ERR_MEMORY;
    if (status) {
        tci_scratch_fail(&p->s, status, "what is computed once: %s", tc_status_text(status));
    }
    p->v.kept.bytes = f->code->kept_bytes;
    void *bytes = tci_scratch_get(&p->s, (size_t)f->code->kept_bytes);
    tci_init_cache_copy(p->call, bytes);
    p->v.kept.data = bytes;
}

/* False: the file of a module is gone from the disk cache. */
static bool tci_save_read_modules(tci_save *p, tci_code *c)
{
    tci_saved *v = &p->v;
    v->code = c;
    v->n_modules = c->n_modules;
    v->modules = TCI_NEW_ARRAY(&p->s, tci_saved_blob, v->n_modules);
    p->objects = TCI_NEW_ARRAY(&p->s, tci_str, v->n_modules);
    for (int i = 0; i < v->n_modules; i++) {
        if (!tci_module_bytes(c->modules[i], &p->objects[i])) {
            return false;
        }
        v->modules[i].bytes = (int64_t)p->objects[i].n;
        v->modules[i].data = p->objects[i].text;
    }
    return true;
}

static void tci_save_drop_modules(tci_save *p)
{
    for (int i = 0; i < p->v.n_modules && p->objects; i++) {
        tci_str_free(&p->objects[i]);
    }
    p->objects = NULL;
}

/* The options that the program was compiled with. Its modules were stored, so the first one's path
 * begins with the directory of the cache. */
static tc_options tci_save_compile_options(tci_save *p)
{
    const tc_program *f = p->f;
    tc_options o = tci_saved_options(&p->v, &f->options);
    const char *path = f->code->modules[0]->path, *slash = strrchr(path, '/');
    o.backend = p->v.backend;
    o.cache_dir = slash ? tci_scratch_printf(&p->s, "%.*s", (int)(slash - path), path) : NULL;
    o.cc = f->cc ? tci_label_text(f->cc) : NULL;
    o.machine = f->machine ? tci_label_text(f->machine) : NULL;
    o.tune_ms = f->options.tune_ms;
    o.stance = TC_STANCE_COMPILE;
    o.fallback = TC_FALLBACK_REFUSE;
    o.progress = NULL;
    return o;
}

/* Compiles the program again, as the cache dropped a file of its machine code. */
static void tci_save_compile(tci_save *p)
{
    const tci_code *was = p->f->code;
    tc_options o = tci_save_compile_options(p);
    const tci_backend *b = tci_backend_pick(&o);
    tci_request *r = b ? tci_saved_request(&p->s, &p->v, &o, b) : NULL;
    tc_status status = TC_ERR_BACKEND;
    tci_str log = {.s = &p->s};
    if (r && r->key_bytes == was->key_bytes && !memcmp(r->key, was->key, r->key_bytes)) {
        r->anew = true;
        tci_compile_requests(&p->s, &r, 1, &o, &p->code, &status, &log);
    } else {
        tci_str_add(&log, "its target, or a file that it was compiled with, is another one now");
    }
    if (status) {
        tci_scratch_fail(&p->s, status,
                         "its machine code was dropped from the disk cache, and it cannot be "
                         "compiled again: %.600s",
                         tci_str_text(&log));
    }
    if (p->code->kept_bytes != was->kept_bytes) {
        tci_scratch_fail(&p->s, TC_ERR_INTERNAL, "compiled again it keeps other memory");
    }
}

static void tci_save_modules(tci_save *p)
{
    if (!tci_save_read_modules(p, p->f->code)) {
        tci_save_drop_modules(p);
        tci_save_compile(p);
        if (!tci_save_read_modules(p, p->code)) {
            tci_scratch_fail(&p->s, TC_ERR_IO,
                             "the disk cache drops its machine code as soon as it is compiled");
        }
    }
}

/* The target features in the code's key, after build and backend. */
static char *tci_save_features(const tci_code *c)
{
    char *at = (char *)c->key;
    at += strlen(at) + 1;
    return at + strlen(at) + 1;
}

static void tci_save_describe(tci_save *p)
{
    const tc_program *f = p->f;
    tci_saved *v = &p->v;
    bool native = f->code->n_modules > 0;
    v->version = tci_save_text(p, tc_version());
    v->build = tci_save_text(p, tci_key_build());
    v->abi = tci_save_text(p, tci_saved_abi());
    v->backend = f->code->backend;
    v->features = native ? tci_save_features(f->code) : tci_save_text(p, "");
    v->name = tci_save_text(p, tci_label_text(p->asked->name));
    v->math = f->options.math;
    v->matrix = f->options.matrix < 0 ? -1 : 0;
    v->fusion = f->options.fusion < 0 ? -1 : 0;
    v->remat = f->options.remat;
    v->reproducible = f->options.reproducible;
    v->key = f->code->key;
    v->key_bytes = (int32_t)f->code->key_bytes;
    v->key_graph = (int32_t)(f->key_graph ? f->key_graph : p->asked->key_graph);
    v->literals = f->literals;
    v->n_literals = f->code->n_literals;
}

/* ---- the file ---- */

static int64_t tci_save_place(tci_saved_blob *b, int64_t at)
{
    b->at = b->bytes ? (at + TCI_SAVED_ALIGN - 1) / TCI_SAVED_ALIGN * TCI_SAVED_ALIGN : 0;
    b->sum = tci_hash_bytes(b->data, (size_t)b->bytes);
    return b->bytes ? b->at + b->bytes : at;
}

/* Places of all blobs after the description. Returns the bytes of the file. */
static int64_t tci_save_place_all(tci_saved *v, int64_t description)
{
    int64_t at = (int64_t)sizeof(tci_saved_header) + description;
    for (int i = 0; i < v->n_storages; i++) {
        at = tci_save_place(&v->storages[i].blob, at);
    }
    for (int i = 0; i < v->n_modules; i++) {
        at = tci_save_place(&v->modules[i], at);
    }
    return v->kept.bytes ? tci_save_place(&v->kept, at) : at;
}

static void tci_save_put(tci_save *p, const void *bytes, int64_t n)
{
    tci_os_fresh_write(&p->to, bytes, (size_t)n);
    if (p->to.code) {
        tci_scratch_fail(&p->s, p->to.code == ENOMEM ? TC_ERR_MEMORY : TC_ERR_IO,
                         "it cannot be written: %s", tci_os_fresh_why(p->to.code));
    }
}

static void tci_save_put_blob(tci_save *p, const tci_saved_blob *b, int64_t *at)
{
    static const char zeros[TCI_SAVED_ALIGN];
    if (b->bytes) {
        tci_save_put(p, zeros, b->at - *at);
        tci_save_put(p, b->data, b->bytes);
        *at = b->at + b->bytes;
    }
}

static void tci_save_write(tci_save *p, const char *path)
{
    tci_saved *v = &p->v;
    tci_str text = {.s = &p->s};
    tci_wire w = {.out = &text};
    tci_saved_wire(&w, v); /* for its length: every number takes as much */
    int64_t n = (int64_t)text.n, at = (int64_t)sizeof(tci_saved_header) + n;
    tci_saved_header header = {.magic = TCI_SAVED_MAGIC, .form = TCI_SAVED_FORM};
    header.description = (uint64_t)n;
    header.bytes = (uint64_t)tci_save_place_all(v, n);
    text.n = 0;
    tci_saved_wire(&w, v);
    if (w.bad || (int64_t)text.n != n) {
        tci_scratch_fail(&p->s, w.no_memory ? TC_ERR_MEMORY : TC_ERR_INTERNAL,
                         "it cannot be described");
    }
    header.sum = tci_hash_bytes(text.text, text.n);
    tci_os_fresh_begin_users(&p->to, path);
    tci_os_fresh_close_to_others(&p->to);
    tci_save_put(p, &header, sizeof(header));
    tci_save_put(p, text.text, n);
    for (int i = 0; i < v->n_storages; i++) {
        tci_save_put_blob(p, &v->storages[i].blob, &at);
    }
    for (int i = 0; i < v->n_modules; i++) {
        tci_save_put_blob(p, &v->modules[i], &at);
    }
    tci_save_put_blob(p, &v->kept, &at);
    tci_os_fresh_end(&p->to, true, true);
    tci_save_put(p, NULL, 0);
}

/* ---- the call ---- */

static tc_status tci_save_armed(tci_save *p, const char *path)
{
    if (setjmp(p->s.escape)) {
        return p->s.why;
    }
    tci_save_check(p);
    tci_save_describe(p);
    tci_save_names(p);
    tci_save_sites(p);
    tci_save_leaves(p);
    const tci_backend *b = tci_backend_pick(&(tc_options){.backend = p->v.backend});
    if (!b) {
        tci_scratch_fail(&p->s, TC_ERR_BACKEND, "its backend is gone");
    }
    tc_options o = tci_saved_options(&p->v, &(tc_options){.backend = p->v.backend});
    tci_saved_request(&p->s, &p->v, &o, b);
    if (p->packed) {
        tci_save_pack(p);
    }
    tci_save_hold(p);
    tci_save_modules(p);
    tci_save_write(p, path);
    return TC_OK;
}

static void tci_save_end(tci_save *p)
{
    tci_os_fresh_end(&p->to, false, false);
    if (p->held) {
        tci_param_drop(p->held);
    }
    if (p->call) {
        tci_call_give(p->called, p->call);
    }
    tci_save_drop_modules(p);
    tci_code_release(p->code);
}

TC_API tc_status tc_program_save_at(tc_program *f, const char *path, const tc_save_options *options,
                                    tc_site here)
{
    if (!f) {
        return TC_ERR_ARGUMENT;
    }
    tci_save p = {.f = tci_later_current(f), .asked = f, .packed = options && options->packed};
    tc_status status = path ? TC_OK : TC_ERR_ARGUMENT;
    tci_str text = {0};
    if (status) {
        tci_str_add(&text, "the path is NULL");
    } else {
        tci_scratch_init(&p.s);
        int cancel = tci_os_no_cancel();
        status = tci_save_armed(&p, path);
        tci_str_printf(&text, "'%.300s': %s", path, p.s.message);
        tci_save_end(&p);
        tci_scratch_free(&p.s);
        tci_os_may_cancel(cancel);
    }
    if (status) {
        tci_run_record(f, status, "tc_program_save", here, tci_str_text(&text));
    }
    tci_str_free(&text);
    return status;
}
