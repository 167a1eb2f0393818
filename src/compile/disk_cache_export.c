/* compile/disk_cache_export.c - exported disk caches: copies a disk cache for other machines, and
 * finds code for this machine in such a copy.
 *
 * In: a disk cache. Out: a directory with its entries of this build and a tc-t-HASH.bin for each
 * target that has programs. On a machine with such a directory: code for a target that this machine
 * can run, used instead of code for its native target.
 *
 * Design: a key is the target's texts followed by a graph, so the key of another machine's code
 * follows from that target's texts and the request. Nothing in the directory is searched except its
 * list of targets. */
#include "disk_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../debug/log.h"

enum { TCI_TARGET_TEXTS = 3 }; /* backend, features, record: as in a key, behind the build */

/* ---- targets ---- */

typedef struct tci_disk_target {
    const char *backend, *features, *record; /* in the scratch */
} tci_disk_target;

/* Splits n bytes that begin with texts. False: they do not. */
static bool tci_target_parse(const char *at, size_t n, const char **texts, int n_texts)
{
    for (int i = 0; i < n_texts; i++) {
        const char *end = n ? memchr(at, 0, n) : NULL;
        if (!end) {
            return false;
        }
        texts[i] = at;
        n -= (size_t)(end + 1 - at);
        at = end + 1;
    }
    return true;
}

static bool tci_target_read(const tci_disk *d, tci_scratch *s, const char *name,
                            tci_disk_target *target)
{
    tci_str file = {0};
    const char *texts[TCI_TARGET_TEXTS];
    bool good = tci_disk_read(d, name, TCI_DISK_TARGET, &file);
    if (good) {
        const char *payload = tci_scratch_copy(s, file.text + TCI_DISK_HEADER_BYTES,
                                               file.n - TCI_DISK_HEADER_BYTES);
        good = tci_target_parse(payload, file.n - TCI_DISK_HEADER_BYTES, texts, TCI_TARGET_TEXTS);
    }
    if (good) {
        *target = (tci_disk_target){texts[0], texts[1], texts[2]};
    }
    tci_str_free(&file);
    return good;
}

/* More features first; then by text, so that the order is the same in every process. */
static int tci_target_order(const void *a, const void *b)
{
    const tci_disk_target *x = a, *y = b;
    size_t n = strlen(x->features), m = strlen(y->features);
    int by_features = strcmp(x->features, y->features);
    return n != m ? (n < m ? 1 : -1) : by_features ? by_features : strcmp(x->record, y->record);
}

/* The targets of that backend that this machine can run, in scratch memory. */
static tci_disk_target *tci_target_list(const tci_disk *d, tci_scratch *s,
                                        const tci_backend *backend, int *n)
{
    tci_dir_entry *files = NULL;
    int n_files = tci_dir_list(&d->dir, "tc-t-", &files);
    char(*names)[sizeof(files->name)] = tci_heap_get(sizeof(*names) * (size_t)TCI_MAX(n_files, 1));
    for (int i = 0; i < n_files && names; i++) {
        memcpy(names[i], files[i].name, sizeof(names[i]));
    }
    n_files = names ? TCI_MAX(n_files, 0) : 0;
    tci_heap_free(files);
    tci_str kept = {.s = s};
    tci_str_add_n(&kept, names, sizeof(*names) * (size_t)n_files);
    tci_heap_free(names);
    tci_disk_target *list = TCI_NEW_ARRAY(s, tci_disk_target, n_files);
    *n = 0;
    for (int i = 0; i < n_files; i++) {
        tci_disk_target *t = &list[*n];
        *n += tci_target_read(d, s, kept.text + sizeof(*names) * (size_t)i, t) &&
              !strcmp(t->backend, backend->name) && tci_backend_runs(backend, t->features);
    }
    if (*n > 1) {
        qsort(list, (size_t)*n, sizeof(*list), tci_target_order);
    }
    return list;
}

TCI_FN tci_code *tci_disk_load_for_other(const tci_disk *d, tci_scratch *s, const tci_request *r,
                                         const tci_backend *backend)
{
    int n = 0;
    tci_code *c = NULL;
    const tci_disk_target *list = d->readable ? tci_target_list(d, s, backend, &n) : NULL;
    for (int i = 0; i < n && !c; i++) {
        const tci_disk_target *t = &list[i];
        const tci_request *other = tci_request_for_target(s, r, d->options, t->backend, t->features,
                                                          t->record);
        c = tci_disk_load_code(d, other, backend->calls);
        uint8_t *key = c ? tci_code_get(c, r->key_bytes) : NULL;
        if (key) { /* this machine's requests find it in memory */
            memcpy(key, r->key, r->key_bytes);
            c->key = key;
            c->key_bytes = r->key_bytes;
            c->hash = r->hash;
            tci_log(d->options, "cache", "code for %s serves", t->features);
        } else if (c) {
            tci_code_release(c);
            return NULL;
        }
    }
    return c;
}

/* ---- export ---- */

typedef struct tci_export_run {
    const tci_disk *from;
    tci_disk to;
    tci_str *why;
    bool failed;
} tci_export_run;

static void tci_export_publish(tci_export_run *x, const char *name, const tci_str *bytes)
{
    int code = ENOMEM;
    if (!bytes->failed &&
        tci_dir_publish(&x->to.dir, name, tci_str_text(bytes), bytes->n, false, &code)) {
        return;
    }
    if (!x->failed) {
        tci_str_printf(x->why, "'%s/%s' is not written: %s", x->to.dir.path.text, name,
                       strerror(code));
    }
    x->failed = true;
}

/* Copies an object file and its source, once. */
static void tci_export_object(tci_export_run *x, char name[TCI_DISK_NAME_BYTES])
{
    tci_str object = {0}, source = {0};
    char own[TCI_DISK_NAME_BYTES];
    if (tci_dir_read(&x->from->dir, name, INT64_MAX, &object, NULL)) {
        tci_disk_name(own, 'm', tci_hash_bytes(object.text, object.n), "so");
        if (!strcmp(own, name) && !tci_dir_has(&x->to.dir, name, (int64_t)object.n)) {
            tci_export_publish(x, name, &object);
            strcpy(strrchr(name, '.'), ".c");
            if (tci_dir_read(&x->from->dir, name, INT64_MAX, &source, NULL)) {
                tci_export_publish(x, name, &source);
            }
        }
    }
    tci_str_free(&object);
    tci_str_free(&source);
}

/* The objects that an entry names: "tc-m-" and 32 digits. */
static void tci_export_objects(tci_export_run *x, const char *at, size_t n)
{
    enum { TCI_EXPORT_NAME = 5 + 32 + 3 };
    char name[TCI_DISK_NAME_BYTES];
    for (size_t i = 0; i + TCI_EXPORT_NAME <= n; i++) {
        if (!memcmp(at + i, "tc-m-", 5) && !memcmp(at + i + 37, ".so", 3)) {
            memcpy(name, at + i, TCI_EXPORT_NAME);
            name[TCI_EXPORT_NAME] = 0;
            if (!strchr(name, '/')) {
                tci_export_object(x, name);
            }
        }
    }
}

/* The target of a program, whose payload begins with the bytes of its key, a word that counts them
 * in front. */
static void tci_export_target(tci_export_run *x, const char *payload, size_t n)
{
    const char *texts[1 + TCI_TARGET_TEXTS];
    char name[TCI_DISK_NAME_BYTES];
    tci_str bytes = {0};
    if (!tci_target_parse(payload, n, texts, TCI_COUNT(texts))) {
        return;
    }
    const char *end = texts[TCI_TARGET_TEXTS] + strlen(texts[TCI_TARGET_TEXTS]) + 1;
    tci_str_add_n(&bytes, texts[1], (size_t)(end - texts[1]));
    tci_disk_name(name, 't', tci_hash_bytes(tci_str_text(&bytes), bytes.n), "bin");
    tci_disk_write(&x->to, name, TCI_DISK_TARGET, false, &bytes);
    tci_str_free(&bytes);
}

static bool tci_export_is_of_build(const char *payload, size_t n)
{
    const char *build = tci_key_build();
    size_t length = strlen(build);
    for (size_t i = 0; i + length <= n; i++) {
        if (payload[i] == build[0] && !memcmp(payload + i, build, length)) {
            return true;
        }
    }
    return false;
}

static void tci_export_entry(tci_export_run *x, const char *name)
{
    bool program = name[3] == 'p';
    tci_str file = {0};
    if (tci_disk_read(x->from, name, program ? TCI_DISK_PROGRAM : TCI_DISK_KERNEL, &file)) {
        const char *payload = file.text + TCI_DISK_HEADER_BYTES;
        size_t n = file.n - TCI_DISK_HEADER_BYTES;
        if (tci_export_is_of_build(payload, n)) {
            tci_export_objects(x, payload, n);
            tci_export_publish(x, name, &file);
            if (program && n > sizeof(int64_t)) {
                tci_export_target(x, payload + sizeof(int64_t), n - sizeof(int64_t));
            }
        }
    }
    tci_str_free(&file);
}

TCI_FN tc_status tci_disk_export(const tci_disk *d, const tci_dir *to, tci_str *why)
{
    tci_export_run x = {.from = d, .to = {.options = d->options, .dir = *to}, .why = why};
    tci_dir_entry *files = NULL;
    x.to.readable = x.to.writable = true;
    int n = tci_dir_list(&d->dir, "tc-", &files);
    for (int i = 0; i < n && !x.failed; i++) {
        const char *name = files[i].name;
        if (!files[i].is_dir && (!strncmp(name, "tc-p-", 5) || !strncmp(name, "tc-k-", 5)) &&
            !strcmp(name + strlen(name) - 4, ".bin")) {
            tci_export_entry(&x, name);
        }
    }
    tci_heap_free(files);
    return x.failed || n < 0 ? TC_ERR_IO : TC_OK;
}
