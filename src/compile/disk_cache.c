/* compile/disk_cache.c - disk cache: entries, their validation, and the size cap.
 *
 * In: code and kernels just built, or requested keys. Out: files, or loaded code. A directory has
 *   tc-p-HASH.bin   a program: its whole key and the code, without machine code
 *   tc-k-HASH.bin   a kernel: its whole key and the name of its object file
 *   tc-g-HASH.bin   the result of a graph-level backend for a model
 *   tc-m-HASH.so    an object file;  tc-m-HASH.c its source. HASH is that of the object, so that
 *                   processes that race write one file with the same bytes
 *   tc-t-HASH.bin   of an exported cache (compile/disk_cache_export.c): a target that it has
 *                   programs for
 *
 * Design: nothing that is read is trusted. The directory must be one that others cannot change
 * (base/private_dir.c), and its files must belong to this user. The header of an entry must match
 * what this build would write, its payload must have the recorded hash, the full key must be the
 * requested one, and an object file must have the size and hash that its entry says. The bytes that
 * were checked are loaded, not the file. An invalid entry is counted, removed, and compiled again.
 * Files appear by rename, so a reader sees a complete file or none; an entry whose object was
 * evicted is a miss. Failures to write are harmless: the code stays in memory.
 *
 * A crash of the machine: object files and program entries, which a warm start loads, are flushed
 * to the disk before the rename (two flushes per compile). Kernel entries (a compile may write
 * hundreds), and sources, which are for people, are not flushed: a torn entry is refused by
 * its checksum, and its kernel is compiled again.
 *
 * One function describes an entry for writing and for reading (compile/serialize.h). */
#include "disk_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../base/env.h"
#include "../base/temp_dir.h"
#include "../debug/log.h"
#include "serialize.h"

#define TCI_DISK_COUNT(field) __atomic_add_fetch(&tci_counters_get()->field, 1, __ATOMIC_RELAXED)

#define TCI_DISK_HOUR_NS (3600 * (int64_t)1000000000)

enum { TCI_DISK_DEFAULT_MB = 256 };

/* ---- the directory ---- */

static bool tci_disk_choose_dir(const tc_options *o, tci_str *dir)
{
    const char *given = o->cache_dir;
    const char *cache_home = tci_env_get(TCI_ENV_HOME_CACHE);
    const char *home = tci_env_get(TCI_ENV_HOME);
    if (given && given[0]) {
        tci_str_add(dir, given);
    } else if (cache_home && cache_home[0] == '/') {
        tci_str_printf(dir, "%s/tc", cache_home);
    } else if (home && home[0] == '/' && tci_os_stat(home, NULL, NULL)) { /* never made */
        tci_str_printf(dir, "%s/.cache/tc", home);
    }
    return dir->n > 0 && !dir->failed;
}

TCI_FN void tci_disk_open(tci_disk *d, const tc_options *o)
{
    tci_str path = {0}, why = {0};
    memset(d, 0, sizeof(*d));
    d->dir.fd = -1;
    d->options = o;
    if (o->no_disk_cache || o->quick_build) {
        return;
    }
    if (!tci_disk_choose_dir(o, &path)) {
        tci_log(o, "cache", "no disk cache: no directory is set, and HOME is unset or missing");
        tci_str_free(&path);
        return;
    }
    d->readable = tci_dir_open(&d->dir, path.text, TCI_DIR_CODE, &why);
    if (!d->readable) {
        tci_log(o, "cache", "no disk cache in '%s', where others could put code: %s", path.text,
                tci_str_text(&why));
    }
    d->writable = d->readable && d->dir.writable && !o->cache_read_only;
    d->cap_bytes = o->cache_bytes > 0 ? o->cache_bytes : (int64_t)TCI_DISK_DEFAULT_MB << 20;
    tci_str_free(&path);
    tci_str_free(&why);
}

TCI_FN void tci_disk_close(tci_disk *d)
{
    tci_dir_close(&d->dir);
    d->readable = d->writable = false;
}

/* kind 'p', 'k', 'g' or 'm'. */
TCI_FN void tci_disk_name(char name[TCI_DISK_NAME_BYTES], char kind, tci_hash hash, const char *end)
{
    char hex[33];
    tci_hash_hex(hash, hex);
    snprintf(name, TCI_DISK_NAME_BYTES, "tc-%c-%s.%s", kind, hex, end);
}

static void tci_disk_path(const tci_disk *d, const char *name, tci_str *path)
{
    path->n = 0;
    tci_str_printf(path, "%s/%s", d->dir.path.text, name);
}

static void tci_disk_reject(const tci_disk *d, const char *name, const char *why)
{
    TCI_DISK_COUNT(cache_rejects);
    tci_log(d->options, "cache", "refused '%s/%s': %s", d->dir.path.text, name, why);
    if (d->writable) {
        tci_dir_remove(&d->dir, name);
    }
}

/* ---- entries ---- */

/* True if the compiler that d's options ask for is there and knows vectors. */
static bool tci_disk_has_vectors(const tci_disk *d, const tc_backend *calls)
{
    tc_backend_compiler c;
    memset(&c, 0, sizeof(c));
    return calls->compiler(calls->user, d->options->cc, &c) == TC_OK && c.vector_bytes;
}

/* The compiler that built it, whatever the options ask for. When it is gone the entry serves; when
 * it was replaced it does not, nor does a host's scalar code of a compiler without vectors where
 * another compiler is at hand. */
static bool tci_disk_wire_compiler(tci_wire *w, const tc_backend_compiler *compiler,
                                   const tci_disk *d, const tc_backend *calls)
{
    tc_backend_compiler c;
    memset(&c, 0, sizeof(c));
    if (compiler) {
        c = *compiler;
    }
    char *path = tci_wire_text(w, c.path);
    c.bytes = tci_wire_word(w, c.bytes);
    c.mtime_ns = tci_wire_word(w, c.mtime_ns);
    bool scalar = tci_wire_range(w, !c.vector_bytes, 0, 1) != 0;
    if (w->out || w->bad || !path[0]) {
        return true;
    }
    int64_t bytes, mtime_ns;
    bool same = !tci_os_stat(path, &bytes, &mtime_ns) ||
                (bytes == c.bytes && mtime_ns == c.mtime_ns);
    return same && !(scalar && !calls->launch && tci_disk_has_vectors(d, calls));
}

/* ---- frames: header and checksum around a payload ---- */

static void tci_disk_seal(uint64_t header[8], uint64_t magic, const void *payload, size_t n)
{
    tci_hash sum = tci_hash_bytes(payload, n);
    memset(header, 0, TCI_DISK_HEADER_BYTES);
    header[0] = magic;
    header[1] = TCI_DISK_FORMAT;
    header[2] = n;
    header[3] = sum.lo;
    header[4] = sum.hi;
}

TCI_FN bool tci_disk_publish(const tci_disk *d, const char *name, const tci_str *bytes,
                             bool durable)
{
    int why = ENOMEM;
    bool good = !bytes->failed &&
                tci_dir_publish(&d->dir, name, tci_str_text(bytes), bytes->n, durable, &why);
    if (!good) {
        tci_log(d->options, "cache", "'%s/%s' is not written: %s", d->dir.path.text, name,
                strerror(why));
    }
    return good;
}

TCI_FN void tci_disk_write(const tci_disk *d, const char *name, uint64_t magic, bool durable,
                           const tci_str *payload)
{
    uint64_t header[8];
    tci_str file = {0};
    tci_disk_seal(header, magic, tci_str_text(payload), payload->n);
    tci_str_add_n(&file, header, sizeof(header));
    tci_str_add_n(&file, tci_str_text(payload), payload->n);
    file.failed |= payload->failed;
    tci_disk_publish(d, name, &file, durable);
    tci_str_free(&file);
}

/* Reads an entry and checks its frame. */
TCI_FN bool tci_disk_read(const tci_disk *d, const char *name, uint64_t magic, tci_str *file)
{
    uint64_t expected[8];
    int why = 0;
    if (!tci_dir_read(&d->dir, name, TCI_DISK_ENTRY_MOST, file, &why)) {
        if (why != ENOENT && why != ENOMEM) {
            tci_disk_reject(d, name, strerror(why));
        }
        return false;
    }
    if (file->n >= TCI_DISK_HEADER_BYTES) {
        tci_disk_seal(expected, magic, file->text + TCI_DISK_HEADER_BYTES,
                      file->n - TCI_DISK_HEADER_BYTES);
        if (!memcmp(expected, file->text, sizeof(expected))) {
            return true;
        }
    }
    tci_disk_reject(d, name, "it is damaged");
    return false;
}

TCI_FN size_t tci_disk_load_blob(const tci_disk *d, tci_hash sum, tci_str *file, const void **bytes)
{
    char name[TCI_DISK_NAME_BYTES];
    tci_disk_name(name, 'g', sum, "bin");
    if (!d->readable || !tci_disk_read(d, name, TCI_DISK_BLOB, file)) {
        return 0;
    }
    tci_dir_touch(&d->dir, name);
    *bytes = file->text + TCI_DISK_HEADER_BYTES;
    return file->n - TCI_DISK_HEADER_BYTES;
}

TCI_FN void tci_disk_store_blob(const tci_disk *d, tci_hash sum, const void *bytes, size_t n)
{
    char name[TCI_DISK_NAME_BYTES];
    tci_str payload = {0};
    if (d->writable && n <= TCI_DISK_ENTRY_MOST - TCI_DISK_HEADER_BYTES) {
        tci_str_add_n(&payload, bytes, n);
        tci_disk_name(name, 'g', sum, "bin");
        tci_disk_write(d, name, TCI_DISK_BLOB, false, &payload);
        tci_str_free(&payload);
        tci_disk_evict(d, (int64_t)n);
    }
}

/* ---- object files ---- */

static const char *tci_disk_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Only names that we make: an entry must not lead out of the directory. */
static bool tci_disk_is_object_name(const char *name)
{
    return !strncmp(name, "tc-m-", 5) && strlen(name) == 5 + 32 + 3 && !strchr(name, '/') &&
           !strcmp(name + 37, ".so");
}

TCI_FN bool tci_disk_store_object(const tci_disk *d, tci_hash sum, const tci_str *object,
                                  const tci_str *source, tci_str *path)
{
    char text[TCI_DISK_NAME_BYTES], file[TCI_DISK_NAME_BYTES];
    if (!d->writable) {
        return false;
    }
    tci_disk_name(text, 'm', sum, "c");
    tci_disk_name(file, 'm', sum, "so");
    tci_disk_path(d, file, path);
    return !path->failed && tci_disk_publish(d, text, source, false) &&
           tci_disk_publish(d, file, object, true);
}

TCI_FN void tci_disk_remove_object(const tci_disk *d, tci_hash sum)
{
    char name[TCI_DISK_NAME_BYTES];
    tci_disk_name(name, 'm', sum, "so");
    tci_dir_remove(&d->dir, name);
    tci_disk_name(name, 'm', sum, "c");
    tci_dir_remove(&d->dir, name);
}

static bool tci_disk_same_hash(tci_hash a, tci_hash b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* Reads an object file and loads what was read, if it is what the entry says. NULL: it is not. */
static tci_module *tci_disk_read_object(const tci_disk *d, const tc_backend *calls,
                                        const char *name, const char *path, int64_t bytes,
                                        tci_hash sum)
{
    tci_module *m = NULL;
    tci_str file = {0};
    char text[256] = "";
    int why = 0;
    if (!tci_dir_read(&d->dir, name, bytes, &file, &why)) {
        if (why != ENOENT && why != ENOMEM) {
            tci_disk_reject(d, name, strerror(why));
        }
    } else if ((int64_t)file.n != bytes ||
               !tci_disk_same_hash(tci_hash_bytes(file.text, file.n), sum)) {
        tci_disk_reject(d, name, "its object file is not the one it was built with");
    } else {
        m = tci_module_load(calls, path, &file, sum, text);
        if (!m) { /* no reason to lose it: memory may be short */
            tci_log(d->options, "cache", "'%s' cannot be loaded: %s", path, text);
        }
    }
    tci_str_free(&file);
    return m;
}

/* The module of an object file that an entry names, loaded now or before. */
static tci_module *tci_disk_load_object(const tci_disk *d, const tc_backend *calls,
                                        const char *name, int64_t bytes, tci_hash sum)
{
    tci_str path = {0};
    tci_disk_path(d, name, &path);
    tci_module *m = path.failed ? NULL : tci_module_find(calls, path.text);
    if (m && (m->bytes != bytes || !tci_disk_same_hash(m->sum, sum) || m->calls != calls)) {
        tci_module_release(m);
        m = NULL;
    } else if (!m && !path.failed) {
        m = tci_disk_read_object(d, calls, name, path.text, bytes, sum);
    }
    if (m) {
        m->stored = true;
        tci_dir_touch(&d->dir, name);
    }
    tci_str_free(&path);
    return m;
}

/* Makes sure that the module's file is in this directory too. */
static bool tci_disk_has_object(const tci_disk *d, tci_module *m)
{
    const char *name = tci_disk_base_name(m->path);
    tci_str file = {0};
    if (!m->stored) {
        return false;
    }
    bool good = tci_dir_has(&d->dir, name, m->bytes);
    if (!good && tci_module_bytes(m, &file)) {
        good = tci_disk_publish(d, name, &file, true);
    }
    tci_str_free(&file);
    return good;
}

/* ---- programs ---- */

/* Reads the list of modules and loads each. False: one is gone or not what it was. */
static bool tci_disk_load_modules(const tci_disk *d, tci_wire *w, tci_code *c,
                                  const tc_backend *calls)
{
    int32_t n = tci_wire_count(w, 0, 32);
    c->modules = tci_wire_array(w, NULL, n, sizeof(*c->modules));
    for (int32_t i = 0; i < n && !w->bad; i++) {
        tci_hash sum;
        char *name = tci_wire_text(w, NULL);
        int64_t bytes = tci_wire_word(w, 0);
        tci_wire_hash(w, &sum);
        if (w->bad || !tci_disk_is_object_name(name)) {
            w->bad = true;
            return false;
        }
        tci_module *m = tci_disk_load_object(d, calls, name, bytes, sum);
        if (!m) {
            return false;
        }
        c->modules[c->n_modules++] = m;
    }
    return !w->bad;
}

static bool tci_disk_read_code(const tci_disk *d, tci_wire *w, const tci_request *r,
                               const tc_backend *calls)
{
    tci_code *c = w->memory;
    uint8_t *key = tci_code_get(c, r->key_bytes);
    if (!key || !tci_wire_key(w, r->key, r->key_bytes)) {
        return false;
    }
    memcpy(key, r->key, r->key_bytes);
    c->key = key;
    c->key_bytes = r->key_bytes;
    c->hash = r->hash;
    snprintf(c->backend, sizeof(c->backend), "%s", calls->name);
    if (!tci_disk_wire_compiler(w, NULL, d, calls)) {
        tci_log(d->options, "cache",
                "an entry is of a compiler that was replaced, or knows no "
                "vectors: compiling again");
        return false;
    }
    if (!tci_disk_load_modules(d, w, c, calls)) {
        return false;
    }
    tci_wire_code(w, c, c->n_modules);
    if (c->n_modules && !w->bad) {
        c->source_path = tci_code_copy_text(c, c->modules[0]->path);
        if (c->source_path) {
            memcpy(c->source_path + strlen(c->source_path) - 2, "c", 2); /* .so -> .c */
        }
    }
    w->bad |= w->at != w->end || c->n_inputs != r->n_inputs || c->n_outputs != r->n_roots ||
              c->n_user_inputs != r->n_user_inputs ||
              c->n_user_outputs != r->n_roots - r->n_effects || c->n_literals != r->n_literals ||
              c->n_symbols != r->n_symbols;
    w->bad = w->bad || !tci_code_bind(c, calls);
    return !w->bad;
}

TCI_FN tci_code *tci_disk_load_code(const tci_disk *d, const tci_request *r,
                                    const tc_backend *calls)
{
    char name[TCI_DISK_NAME_BYTES];
    tci_str file = {0};
    tci_code *c = NULL;
    if (!d->readable) {
        return NULL;
    }
    tci_disk_name(name, 'p', r->hash, "bin");
    if (tci_disk_read(d, name, TCI_DISK_PROGRAM, &file)) {
        c = tci_code_make();
        const uint8_t *payload = (const uint8_t *)file.text + TCI_DISK_HEADER_BYTES;
        tci_wire w = {.at = payload, .end = (const uint8_t *)file.text + file.n, .memory = c};
        if (c && tci_disk_read_code(d, &w, r, calls)) {
            c->from_disk = true;
            tci_dir_touch(&d->dir, name);
        } else {
            if (c && w.bad && !w.no_memory) {
                tci_disk_reject(d, name, "it does not make sense");
            }
            tci_code_release(c);
            c = NULL;
        }
    }
    tci_str_free(&file);
    return c;
}

TCI_FN void tci_disk_store_code(const tci_disk *d, tci_code *c, const tc_backend_compiler *compiler)
{
    char name[TCI_DISK_NAME_BYTES];
    tci_str payload = {0};
    tci_wire w = {.out = &payload};
    if (!d->writable || !c->n_modules) {
        return;
    }
    tci_wire_key(&w, c->key, c->key_bytes);
    tci_disk_wire_compiler(&w, compiler, d, NULL);
    tci_wire_count(&w, c->n_modules, 1);
    for (int32_t i = 0; i < c->n_modules; i++) {
        tci_module *m = c->modules[i];
        if (!tci_disk_has_object(d, m)) {
            tci_str_free(&payload);
            return;
        }
        char base[TCI_DISK_NAME_BYTES];
        snprintf(base, sizeof(base), "%s", tci_disk_base_name(m->path));
        tci_wire_text(&w, base);
        tci_wire_word(&w, m->bytes);
        tci_wire_hash(&w, &m->sum);
    }
    tci_wire_code(&w, c, c->n_modules);
    tci_disk_name(name, 'p', c->hash, "bin");
    if (!w.bad) {
        tci_disk_write(d, name, TCI_DISK_PROGRAM, true, &payload);
    }
    tci_str_free(&payload);
}

/* ---- kernels ---- */

static void tci_disk_wire_record(tci_wire *w, tci_kernel_record *r)
{
    r->n_tasks = tci_wire_dim(w, r->n_tasks, 0, INT64_MAX);
    tci_wire_bytes(w, &r->task_ns, sizeof(r->task_ns));
    tci_wire_bytes(w, &r->call_ns, sizeof(r->call_ns));
    r->work_bytes = tci_wire_dim(w, r->work_bytes, 0, TCI_WORK_MOST);
}

#ifdef TC_DYNAMIC_SHAPES

/* The symbols that a kernel uses, on the heap; NULL: out of memory. */
static tci_dim *tci_disk_used_symbols(const tci_kernel_record *r, int *n_used)
{
    for (int room = 16;; room *= 2) {
        tci_dim *used = tci_heap_get(sizeof(*used) * (size_t)room);
        *n_used = 0;
        bool all = used && tci_dim_symbols(r->n_tasks, used, n_used, room) &&
                   tci_dim_symbols(r->work_bytes, used, n_used, room);
        for (int i = 0; i < r->n_dims && all; i++) {
            all = tci_dim_symbols(r->dims[i], used, n_used, room);
        }
        if (all || !used) {
            return used;
        }
        tci_heap_free(used);
    }
}

/* The symbols of a kernel by number; those that it does not use are no symbols. Writing: false
 * where it cannot be. */
static bool tci_disk_wire_symbols(tci_wire *w, const tci_kernel_record *r)
{
    int n_used = 0, n = 0;
    tci_dim *used = w->out ? tci_disk_used_symbols(r, &n_used) : NULL, *all = NULL;
    for (int i = 0; i < n_used && used; i++) {
        n = TCI_MAX(n, tci_dim_ordinal(used[i]) + 1);
    }
    if (used) {
        all = tci_heap_get(sizeof(*all) * (size_t)TCI_MAX(n, 1));
    }
    for (int i = 0; i < n_used && all; i++) {
        all[tci_dim_ordinal(used[i])] = used[i];
    }
    tci_heap_free(used);
    bool good = !w->out || all;
    if (good) {
        tci_dim *symbols = all;
        tci_wire_symbols(w, &symbols, &n);
    }
    tci_heap_free(all);
    return good;
}

static bool tci_disk_wire_dims(tci_wire *w, tci_kernel_record *r)
{
    tci_dim *dims = (tci_dim *)(uintptr_t)r->dims;
    if (!tci_disk_wire_symbols(w, r)) {
        return false;
    }
    tci_wire_dims(w, &dims, &r->n_dims);
    r->dims = dims;
    return true;
}

#else

static bool tci_disk_wire_dims(tci_wire *w, tci_kernel_record *r)
{
    (void)w;
    (void)r;
    return true;
}

#endif

static bool tci_disk_read_kernel(const tci_disk *d, tci_wire *w, const tc_backend *calls,
                                 const void *key, size_t key_bytes, tci_module_kernel *k)
{
    if (!tci_wire_key(w, key, key_bytes) || !tci_disk_wire_compiler(w, NULL, d, calls)) {
        return false;
    }
    k->record.symbol = tci_wire_text(w, NULL);
    k->record.note = tci_wire_text(w, NULL);
    tci_disk_wire_dims(w, &k->record);
    tci_disk_wire_record(w, &k->record);
    char *name = tci_wire_text(w, NULL);
    int64_t bytes = tci_wire_word(w, 0);
    tci_hash sum;
    tci_wire_hash(w, &sum);
    if (w->bad || w->at != w->end || !tci_disk_is_object_name(name)) {
        w->bad = true;
        return false;
    }
    tci_module *m = tci_disk_load_object(d, calls, name, bytes, sum);
    if (!m) {
        return false;
    }
    k->function = calls->module_find(calls->user, m->handle, k->record.symbol);
    if (!k->function) {
        tci_module_release(m);
        w->bad = true;
        return false;
    }
    k->module = m;
    return true;
}

TCI_FN bool tci_disk_load_kernel(const tci_disk *d, const tc_backend *calls, const void *key,
                                 size_t key_bytes, tci_hash hash, tci_module_kernel *found)
{
    char name[TCI_DISK_NAME_BYTES];
    tci_str file = {0};
    bool good = false;
    if (!d->readable) {
        return false;
    }
    tci_disk_name(name, 'k', hash, "bin");
    if (tci_disk_read(d, name, TCI_DISK_KERNEL, &file)) {
        tci_code *memory = tci_code_make();
        const uint8_t *payload = (const uint8_t *)file.text + TCI_DISK_HEADER_BYTES;
        tci_wire w = {.at = payload, .end = (const uint8_t *)file.text + file.n, .memory = memory};
        tci_module_kernel k;
        memset(&k, 0, sizeof(k));
        good = memory && tci_disk_read_kernel(d, &w, calls, key, key_bytes, &k);
        if (good) {
            tci_dir_touch(&d->dir, name);
            tci_module_offer(k.module, key, key_bytes, hash, &k.record, k.function);
            /* Asked for again, because those texts live on. */
            good = tci_module_find_kernel(calls, key, key_bytes, hash, found);
            tci_module_release(k.module);
        } else if (w.bad && !w.no_memory && memory) {
            tci_disk_reject(d, name, "it does not make sense");
        }
        tci_code_release(memory);
    }
    tci_str_free(&file);
    return good;
}

TCI_FN void tci_disk_store_kernel(const tci_disk *d, const tci_module_kernel *k,
                                  const tc_backend_compiler *compiler)
{
    char name[TCI_DISK_NAME_BYTES], base[TCI_DISK_NAME_BYTES];
    tci_str payload = {0};
    tci_wire w = {.out = &payload};
    tci_module_kernel copy = *k;
    if (!d->writable || !k->module->stored) {
        return;
    }
    tci_wire_key(&w, k->key, k->key_bytes);
    tci_disk_wire_compiler(&w, compiler, d, NULL);
    tci_str symbol = {0}, note = {0};
    tci_str_add(&symbol, k->record.symbol);
    tci_str_add(&note, k->record.note);
    tci_wire_text(&w, symbol.text);
    tci_wire_text(&w, note.text);
    bool whole = tci_disk_wire_dims(&w, &copy.record);
    tci_disk_wire_record(&w, &copy.record);
    snprintf(base, sizeof(base), "%s", tci_disk_base_name(k->module->path));
    tci_wire_text(&w, base);
    tci_wire_word(&w, k->module->bytes);
    tci_wire_hash(&w, &k->module->sum);
    tci_disk_name(name, 'k', k->hash, "bin");
    if (whole && !w.bad) {
        tci_disk_write(d, name, TCI_DISK_KERNEL, false, &payload);
    }
    tci_str_free(&symbol);
    tci_str_free(&note);
    tci_str_free(&payload);
}

/* ---- the size cap ---- */

/* Files that a cache makes, their temporaries included; a directory may hold other things too. */
static bool tci_disk_is_ours(const tci_dir_entry *e)
{
    static const char *const prefixes[] = {"tc-p-", "tc-k-", "tc-g-", "tc-m-", "tc-t-"};
    bool ours = false;
    for (int i = 0; i < TCI_COUNT(prefixes); i++) {
        ours = ours || !strncmp(e->name, prefixes[i], 5);
    }
    return ours && !e->is_dir;
}

/* A file that a process which died was writing. */
static bool tci_disk_is_left(const tci_dir_entry *e)
{
    size_t n = strlen(e->name);
    return n > 4 && !strcmp(e->name + n - 4, ".tmp") && e->age_ns > TCI_DISK_HOUR_NS;
}

static int tci_disk_compare_age(const void *a, const void *b)
{
    const tci_dir_entry *x = a;
    const tci_dir_entry *y = b;
    return (x->mtime_ns > y->mtime_ns) - (x->mtime_ns < y->mtime_ns);
}

/* Returns the bytes that are left. */
static int64_t tci_disk_drop_oldest(const tci_disk *d)
{
    tci_dir_entry *files;
    int n = tci_dir_list(&d->dir, "tc-", &files);
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        total += tci_disk_is_ours(&files[i]) ? files[i].bytes : 0;
    }
    if (n > 0 && total > d->cap_bytes) {
        qsort(files, (size_t)n, sizeof(*files), tci_disk_compare_age);
    }
    /* Down to nine tenths, so that the next few entries need no second round. */
    int64_t goal = total > d->cap_bytes ? d->cap_bytes / 10 * 9 : total;
    for (int i = 0; i < n; i++) {
        bool is_left = tci_disk_is_left(&files[i]);
        if (tci_disk_is_ours(&files[i]) && (total > goal || is_left) &&
            tci_dir_remove(&d->dir, files[i].name)) {
            total -= files[i].bytes;
            if (!is_left) {
                TCI_DISK_COUNT(evictions);
                tci_log(d->options, "cache", "'%s' is dropped: the directory is full",
                        files[i].name);
            }
        }
    }
    tci_heap_free(files);
    return total;
}

TCI_FN void tci_disk_evict(const tci_disk *d, int64_t written_bytes)
{
    /* Contents of the directory that was scanned last, as counted by this process. */
    static struct {
        tci_mutex lock;
        tci_hash dir;
        int64_t bytes;
    } last = {.lock = TCI_MUTEX_INIT};
    if (!d->writable) {
        return;
    }
    tci_hash dir = tci_hash_bytes(d->dir.path.text, d->dir.path.n);
    tci_os_keep_over_fork(&last.lock, NULL);
    pthread_mutex_lock(&last.lock);
    bool known = last.dir.lo == dir.lo && last.dir.hi == dir.hi;
    last.bytes += written_bytes;
    bool look = !known || last.bytes > d->cap_bytes;
    pthread_mutex_unlock(&last.lock);
    if (look) {
        tci_workdir_sweep(&d->dir, false);
        int64_t left = tci_disk_drop_oldest(d);
        pthread_mutex_lock(&last.lock);
        last.dir = dir;
        last.bytes = left;
        pthread_mutex_unlock(&last.lock);
    }
}

#undef TCI_DISK_HOUR_NS
#undef TCI_DISK_COUNT
