/* io/tensor_file_write.c - writes named tensors, or all parameters of a context, to a tensor file
 * in any format.
 *
 * In: tensors and names. Out: a file that is written atomically.
 *
 * Design: all values are computed and held first, so the file is a consistent snapshot and every
 * error is found before it exists. Then the format's writer emits its bytes in order. */
#include "tensor_file.h"

#include <inttypes.h>

#include "../base/system_headers.h"

/* ---- for writers of formats ---- */

TCI_FN void tci_io_put(tci_io_out *o, const void *bytes, int64_t n)
{
    if (n) {
        tci_os_fresh_write(&o->to, bytes, (size_t)n);
    }
    if (o->to.code) {
        tci_scratch_fail(&o->s, o->to.code == ENOMEM ? TC_ERR_MEMORY : TC_ERR_IO,
                         "it cannot be written: %s", tci_os_fresh_why(o->to.code));
    }
}

TCI_FN const void *tci_io_value(tci_io_out *o, int i)
{
    const tci_lazy_held *m = &o->values[i];
    if (!m->node->strides) {
        return m->first;
    }
    char *dense = tci_scratch_get(&o->s, (size_t)tci_io_bytes(o, i));
    tci_read_value(m, dense);
    return dense;
}

/* ---- one call ---- */

typedef struct tci_io_writer {
    const char *ending;
    void (*write)(tci_io_out *o);
    bool has_names, has_metadata;
} tci_io_writer;

/* By the end of the path; NULL: none. */
static const tci_io_writer *tci_io_choose_writer(const char *path)
{
    static const tci_io_writer rows[] = {
#define TCI_ROW(name, has_names, has_metadata)                                                     \
    {"." #name, tci_##name##_write, has_names, has_metadata},
        TCI_IO_WRITERS(TCI_ROW)
#undef TCI_ROW
    };
    size_t n = strlen(path);
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        size_t k = strlen(rows[i].ending);
        if (n > k && !strcmp(path + n - k, rows[i].ending)) {
            return &rows[i];
        }
    }
    return NULL;
}

static int tci_io_by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks that texts are given, valid UTF-8, and distinct. step 2: every second one. */
static void tci_io_check_texts(tci_io_out *o, const char *what, const char *const *texts, int n,
                               int step)
{
    const char **sorted = TCI_NEW_ARRAY(&o->s, const char *, n);
    for (int i = 0; i < n; i++) {
        sorted[i] = texts[i * step];
        if (!sorted[i] || !tci_io_is_utf8(sorted[i], strlen(sorted[i]))) {
            tci_scratch_fail(&o->s, TC_ERR_ARGUMENT, "%s %d is %s", what, i,
                             sorted[i] ? "not UTF-8" : "NULL");
        }
        if (!strcmp(sorted[i], "__metadata__")) {
            tci_scratch_fail(&o->s, TC_ERR_ARGUMENT,
                             "%s %d is '__metadata__', which files keep "
                             "for themselves",
                             what, i);
        }
    }
    qsort(sorted, (size_t)n, sizeof(*sorted), tci_io_by_text);
    for (int i = 1; i < n; i++) {
        if (!strcmp(sorted[i - 1], sorted[i])) {
            tci_scratch_fail(&o->s, TC_ERR_ARGUMENT, "%s %s is given twice", what,
                             TCI_IO_NAME(sorted[i]));
        }
    }
}

static void tci_io_check_metadata(tci_io_out *o, const tci_io_writer *format)
{
    int n = 0;
    while (o->metadata && o->metadata[2 * n]) {
        const char *value = o->metadata[2 * n + 1];
        if (!value || !tci_io_is_utf8(value, strlen(value))) {
            tci_scratch_fail(&o->s, TC_ERR_ARGUMENT, "the metadata's value %d is %s", n,
                             value ? "not UTF-8" : "NULL");
        }
        n++;
    }
    if (n && !format->has_metadata) {
        tci_scratch_fail(&o->s, TC_ERR_ARGUMENT, "a %s has no metadata, only a .safetensors has",
                         format->ending);
    }
    tci_io_check_texts(o, "the metadata's key", o->metadata, n, 2);
}

/* Ranks that readers take. */
static void tci_io_check_ranks(tci_io_out *o)
{
    for (int i = 0; i < o->n; i++) {
        if (tci_io_node(o, i)->rank > TCI_IO_RANK_MAX) {
            tci_scratch_fail(&o->s, TC_ERR_LIMIT,
                             "tensor %d has %d axes: expected at most %d in a "
                             "file (tc_reshape it)",
                             i, tci_io_node(o, i)->rank, TCI_IO_RANK_MAX);
        }
    }
}

static void tci_io_check(tci_io_out *o, const tci_io_writer *format)
{
    if (!format) {
        tci_scratch_fail(&o->s, TC_ERR_ARGUMENT,
                         "expected a path that ends in .safetensors, .npz "
                         "or .npy");
    }
    if (!format->has_names && o->n != 1) {
        tci_scratch_fail(&o->s, TC_ERR_ARGUMENT, "a %s has one array, given %d", format->ending,
                         o->n);
    }
    if (format->has_names && o->n && !o->names) {
        tci_scratch_fail(&o->s, TC_ERR_ARGUMENT, "the names are NULL");
    }
    if (format->has_names) {
        tci_io_check_texts(o, "name", o->names, o->n, 1);
    }
    tci_io_check_metadata(o, format);
}

/* A failure is in o->s, or, of a value, already recorded. */
static tc_status tci_io_write_armed(tci_io_out *o, const tci_frame *f, tci_io_lister list)
{
    if (setjmp(o->s.escape)) {
        return o->s.why;
    }
    if (list) {
        list(o);
    }
    const tci_io_writer *format = tci_io_choose_writer(o->path);
    tci_io_check(o, format);
    o->values = TCI_NEW_ARRAY(&o->s, tci_lazy_held, o->n);
    tc_status status = tci_lazy_hold(f, (tc_tensors){o->tensors, o->n}, o->values);
    if (status) {
        return status;
    }
    o->holds = true;
    tci_io_check_ranks(o);
    tci_os_fresh_begin_users(&o->to, o->path);
    format->write(o);
    tci_os_fresh_end(&o->to, true, true);
    tci_io_put(o, NULL, 0);
    return TC_OK;
}

TCI_FN tc_status tci_io_write(tci_io_out *o, tci_frame *f, tci_io_lister list)
{
    tci_scratch_init(&o->s);
    tc_status status = tci_io_write_armed(o, f, list);
    if (o->s.why) {
        tci_frame_fail(f, status, "'%.300s': %s", o->path, o->s.message);
    }
    tci_os_fresh_end(&o->to, false, false);
    if (o->holds) {
        tci_lazy_drop(o->values, o->n);
    }
    tci_scratch_free(&o->s);
    (void)tci_frame_status(f); /* of a value that cannot be computed the frame knows nothing */
    return status;
}

TC_API tc_status tc_file_write_at(tc_ctx *ctx, const char *path, const char *const *names,
                                  tc_tensors tensors, const char *const *metadata, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_file_write", here);
    tci_io_out o = {.ctx = f.ctx,
                    .path = path,
                    .n = tensors.n,
                    .tensors = tensors.items,
                    .names = names,
                    .metadata = metadata};
    if (!path) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the path is NULL");
    }
    tci_frame_list(&f, tensors.items, tensors.n, "the tensors");
    for (int i = 0; i < tensors.n && !f.failed; i++) {
        tci_frame_node(&f, tensors.items[i], "a tensor");
    }
    if (f.failed) {
        return tci_frame_status(&f);
    }
    return tci_io_write(&o, &f, NULL);
}
