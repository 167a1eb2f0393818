/* io/tensor_file.c - opens tensor files: selects the reader by format, lists the arrays, and makes
 * leaf tensors that borrow the memory-mapped data or copy it.
 *
 * In: paths. Out: tc_file, a sorted list of arrays with their offsets; DATA nodes.
 *
 * Design: the header of a file is read once, by calls that a concurrent change of the file cannot
 * harm, into scratch memory of the tc_file. Every array is then checked against the size of the
 * file and against all other arrays. After that nothing changes, so threads need no lock. Only
 * borrowed tensors read the mapping, and each holds a reference to the file. */
#include "tensor_file.h"

#include <inttypes.h>

#include "../base/system_headers.h"
#include "inflate.h"

/* ---- opening ---- */

static int tci_io_by_place(const void *a, const void *b)
{
    const tci_io_array *x = a, *y = b;
    if (x->at != y->at) {
        return x->at < y->at ? -1 : 1;
    }
    return (x->held > y->held) - (x->held < y->held); /* empty ones first */
}

static int tci_io_by_name(const void *a, const void *b)
{
    return strcmp(((const tci_io_array *)a)->seen.name, ((const tci_io_array *)b)->seen.name);
}

static int tci_io_by_key(const void *a, const void *b)
{
    return strcmp(((const tci_io_pair *)a)->key, ((const tci_io_pair *)b)->key);
}

/* No two arrays share a byte, but for those that may, or a name, no two pairs a key. */
static void tci_io_check_all(tc_file *file)
{
    tci_io_array *a = file->arrays;
    size_t n = (size_t)file->n_arrays, n_pairs = (size_t)file->n_pairs;
    if (n) {
        qsort(a, n, sizeof(*a), tci_io_by_place);
    }
    for (size_t i = 1; i < n; i++) {
        bool share = a[i].shares && a[i - 1].shares;
        if (a[i].at < a[i - 1].at + a[i - 1].held && !share) {
            tci_io_bad(file, "the data of %s and of %s overlap", TCI_IO_NAME(a[i - 1].seen.name),
                       TCI_IO_NAME(a[i].seen.name));
        }
    }
    if (n) {
        qsort(a, n, sizeof(*a), tci_io_by_name);
    }
    for (size_t i = 1; i < n; i++) {
        if (!tci_io_by_name(&a[i - 1], &a[i])) {
            tci_io_bad(file, "two arrays are named %s", TCI_IO_NAME(a[i].seen.name));
        }
    }
    if (n_pairs) {
        qsort(file->pairs, n_pairs, sizeof(*file->pairs), tci_io_by_key);
    }
    for (size_t i = 1; i < n_pairs; i++) {
        if (!tci_io_by_key(&file->pairs[i - 1], &file->pairs[i])) {
            tci_io_bad(file, "two entries of the metadata are named %s",
                       TCI_IO_NAME(file->pairs[i].key));
        }
    }
}

static void tci_io_fail_errno(tc_file *file, const char *what)
{
    tci_scratch_fail(&file->s, errno == ENOMEM ? TC_ERR_MEMORY : TC_ERR_IO, "%s: %s", what,
                     strerror(errno));
}

static void tci_io_attach(tc_file *file, const char *path)
{
    struct stat st;
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO has no writer to wait for */
    if (file->fd < 0 || fstat(file->fd, &st)) {
        tci_io_fail_errno(file, "it cannot be opened");
    }
    if (!S_ISREG(st.st_mode)) {
        tci_io_bad(file, "it is no regular file");
    }
    if (st.st_size <= 0) {
        tci_io_bad(file, "it is empty");
    }
    file->bytes = (int64_t)st.st_size;
    void *map = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (map == MAP_FAILED) {
        tci_io_fail_errno(file, "it cannot be mapped");
    }
    file->map = map;
}

static void tci_io_list(tc_file *file)
{
    static const struct {
        bool (*is)(tc_file *file);
        void (*read)(tc_file *file);
    } formats[] = {
#define TCI_ROW(name) {tci_##name##_is, tci_##name##_read},
        TCI_IO_READERS(TCI_ROW)
#undef TCI_ROW
    };
    int i = 0;
    while (i < TCI_COUNT(formats) - 1 && !formats[i].is(file)) {
        i++;
    }
    formats[i].read(file);
    tci_io_check_all(file);
}

/* Fills the file; on failure its scratch says why. */
static tc_status tci_io_open(tc_file *file, const char *path)
{
    struct tci_io_window window;
    if (setjmp(file->s.escape)) {
        return file->s.why;
    }
    window.at = window.n = 0;
    file->window = &window;
    file->path = tci_scratch_copy(&file->s, path, strlen(path) + 1);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    tci_scratch_fail(&file->s, TC_ERR_UNSUPPORTED, "files of arrays need a little-endian machine");
#endif
    tci_io_attach(file, path);
    tci_io_list(file);
    file->window = NULL;
    return TC_OK;
}

static void tci_io_release(tci_owner *owner)
{
    tc_file *file = (tc_file *)(void *)owner; /* its first member */
    if (__atomic_sub_fetch(&file->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    if (file->map) {
        munmap(file->map, (size_t)file->bytes);
    }
    if (file->fd >= 0) {
        close(file->fd);
    }
    tci_scratch_free(&file->s);
    tci_heap_free(file);
}

TCI_FN tc_file *tci_io_open_file(tci_frame *f, const char *path)
{
    tc_file *file = tci_heap_get(sizeof(*file));
    if (!file) {
        tci_frame_fail(f, TC_ERR_MEMORY, "out of memory for a file");
        return NULL;
    }
    file->owner.release = tci_io_release;
    file->refs = 1;
    file->fd = -1;
    tci_scratch_init(&file->s);
    tc_status status = tci_io_open(file, path);
    if (status) {
        tci_frame_fail(f, status, "'%.300s': %s", path, file->s.message);
        tci_io_release(&file->owner);
    }
    return status ? NULL : file;
}

TC_API tc_status tc_file_open_at(tc_ctx *ctx, const char *path, tc_file **file, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_file_open", here);
    if (file) {
        *file = NULL;
    }
    if (!file || !path) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the %s is NULL", path ? "file" : "path");
    }
    if (!f.failed) {
        *file = tci_io_open_file(&f, path);
    }
    return tci_frame_status(&f);
}

TC_API void tc_file_close(tc_file *file)
{
    if (file) {
        tci_io_release(&file->owner);
    }
}

/* ---- what is in it ---- */

TC_API const tc_array *tc_file_array(const tc_file *file, int i)
{
    return file && i >= 0 && i < file->n_arrays ? &file->arrays[i].seen : NULL;
}

static const tci_io_array *tci_io_find(const tc_file *file, const char *name)
{
    tci_io_array key = {.seen = {.name = name}};
    if (!name) {
        return file->n_arrays == 1 ? file->arrays : NULL;
    }
    return file->n_arrays
               ? bsearch(&key, file->arrays, (size_t)file->n_arrays, sizeof(key), tci_io_by_name)
               : NULL;
}

TC_API const tc_array *tc_file_find(const tc_file *file, const char *name)
{
    const tci_io_array *a = file && name ? tci_io_find(file, name) : NULL;
    return a ? &a->seen : NULL;
}

TC_API const char *tc_file_metadata(const tc_file *file, const char *key)
{
    tci_io_pair wanted = {key, NULL};
    const tci_io_pair *pair = file && key && file->n_pairs
                                  ? bsearch(&wanted, file->pairs, (size_t)file->n_pairs,
                                            sizeof(wanted), tci_io_by_key)
                                  : NULL;
    return pair ? pair->value : NULL;
}

/* ---- leaves ---- */

static const char tci_io_shorter[] = "cannot be read: has the file become shorter?";

/* Inflates the array's part of the file, as whole as its entry says, and takes the elements of
 * it. */
static const char *tci_io_inflate_array(const tc_file *file, const tci_io_array *a, void *to,
                                        tc_status *status)
{
    int64_t all = a->skip + a->bytes, made = 0;
    char *packed = tci_heap_get((size_t)a->held), *plain = tci_heap_get((size_t)all);
    const char *why = NULL;
    *status = TC_ERR_IO;
    if (!packed || !plain) {
        why = "cannot be read: out of memory";
        *status = TC_ERR_MEMORY;
    } else if (!tci_io_read_now(file, a->at, packed, a->held)) {
        why = tci_io_shorter;
    } else if (tci_inflate(packed, a->held, plain, all, &made) != TCI_INFLATE_WHOLE ||
               made != all || tci_inflate_crc(0, plain, all) != a->crc) {
        why = "is damaged: its compressed data is not what its checksum says";
    } else if (a->bytes) {
        memcpy(to, plain + a->skip, (size_t)a->bytes);
    }
    tci_heap_free(packed);
    tci_heap_free(plain);
    return why;
}

static void tci_io_swap(char *elements, int64_t bytes, int width)
{
    for (char *e = elements; e < elements + bytes; e += width) {
        for (int i = 0; i < width / 2; i++) {
            char byte = e[i];
            e[i] = e[width - 1 - i];
            e[width - 1 - i] = byte;
        }
    }
}

TCI_FN const char *tci_io_read_array(const tc_file *file, const tci_io_array *a, void *to,
                                     tc_status *status)
{
    const char *why = NULL;
    if (a->deflated) {
        why = tci_io_inflate_array(file, a, to, status);
    } else if (!tci_io_read_now(file, a->at, to, a->bytes)) {
        why = tci_io_shorter;
        *status = TC_ERR_IO;
    }
    if (why) {
        return why;
    }
    if (a->swapped) {
        tci_io_swap(to, a->bytes, tci_dtype_get(a->seen.dtype)->bytes);
    }
    if (a->seen.dtype == TC_BOOL) { /* of a file any byte but 0 is true; of tensors it is 1 */
        unsigned char *b = to;
        for (int64_t i = 0; i < a->bytes; i++) {
            b[i] = b[i] != 0;
        }
    }
    return NULL;
}

static tci_node *tci_io_copy_in(tci_frame *f, tc_file *file, const tci_io_array *a)
{
    tci_storage *storage = tci_storage_make(a->bytes);
    tc_status status = TC_OK;
    const char *why = storage ? tci_io_read_array(file, a, storage->data, &status) : NULL;
    if (why) {
        tci_frame_fail(f, status, "the data of %s %s", TCI_IO_NAME(a->seen.name), why);
        tci_storage_release(storage);
        return NULL;
    }
    return tci_leaf_data(&f->ctx->graph, a->seen.dtype, a->seen.rank, a->seen.sizes, storage,
                         a->strides, 0);
}

static tci_node *tci_io_borrow(tci_frame *f, tc_file *file, const tci_io_array *a)
{
    struct stat st;
    if (fstat(file->fd, &st) || (int64_t)st.st_size < file->bytes) {
        tci_frame_fail(f, TC_ERR_IO, "the file has become shorter since it was opened");
        return NULL;
    }
    __atomic_add_fetch(&file->refs, 1, __ATOMIC_RELAXED);
    tci_node *x = tci_leaf_borrow(f, file->map + a->at, a->seen.dtype, a->seen.rank, a->seen.sizes,
                                  a->strides, &file->owner);
    if (!x) {
        tci_io_release(&file->owner); /* the caller's count is still there */
    }
    return x;
}

/* Edit distance of the names, over their first 64 letters. */
static int tci_io_distance(const char *a, const char *b)
{
    enum { TCI_IO_LETTERS = 64 };
    int row[TCI_IO_LETTERS + 1], n_b = 0;
    while (n_b < TCI_IO_LETTERS && b[n_b]) {
        n_b++;
    }
    for (int j = 0; j <= n_b; j++) {
        row[j] = j;
    }
    for (int i = 0; i < TCI_IO_LETTERS && a[i]; i++) {
        int before = row[0]++;
        for (int j = 1; j <= n_b; j++) {
            int changed = before + (a[i] != b[j - 1]), moved = TCI_MIN(row[j], row[j - 1]) + 1;
            before = row[j];
            row[j] = TCI_MIN(changed, moved);
        }
    }
    return row[n_b];
}

/* The name in the file that is most like this one; NULL: there are none. */
static const char *tci_io_nearest(const tc_file *file, const char *name)
{
    enum { TCI_IO_COMPARED = 10000 };
    const char *nearest = NULL;
    int least = INT_MAX;
    for (int i = 0; i < TCI_MIN(file->n_arrays, TCI_IO_COMPARED); i++) {
        int distance = tci_io_distance(file->arrays[i].seen.name, name);
        nearest = distance < least ? file->arrays[i].seen.name : nearest;
        least = TCI_MIN(distance, least);
    }
    return nearest;
}

/* There is no array of that name that could be listed. */
static void tci_io_missing(tci_frame *f, const tc_file *file, const char *name)
{
    for (int i = 0; i < file->n_others; i++) {
        if (!strcmp(file->others[i].name, name)) {
            tci_frame_fail(f, TC_ERR_UNSUPPORTED, "%s %s", TCI_IO_NAME(name), file->others[i].why);
            return;
        }
    }
    const char *nearest = tci_io_nearest(file, name);
    tci_frame_fail(f, TC_ERR_ARGUMENT, "'%.200s' has no array %s%s%s%s", file->path,
                   TCI_IO_NAME(name), nearest ? " (the nearest of its names is " : "",
                   nearest ? TCI_IO_NAME(nearest) : "", nearest ? ")" : "");
}

static const tci_io_array *tci_io_choose(tci_frame *f, const tc_file *file, const char *name,
                                         bool borrows)
{
    const tci_io_array *a = file ? tci_io_find(file, name) : NULL;
    bool fits = false;
    if (!file) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "the file is NULL");
    } else if (!a && !name) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "the name is NULL, and the file has %d arrays",
                       file->n_arrays);
    } else if (!a) {
        tci_io_missing(f, file, name);
    } else if (a->seen.dtype == TC_DTYPE_COUNT) {
        tci_frame_fail(f, TC_ERR_UNSUPPORTED, "%s is of type %s, which tc does not have",
                       TCI_IO_NAME(a->seen.name), TCI_IO_NAME(a->seen.type));
    } else if (a->swapped && borrows) {
        tci_frame_fail(f, TC_ERR_UNSUPPORTED,
                       "%s is of type %s, big-endian: tc_file_copy_in swaps "
                       "its bytes",
                       TCI_IO_NAME(a->seen.name), TCI_IO_NAME(a->seen.type));
    } else {
        fits = tci_build_check_shape(&f->ctx->graph, a->seen.rank, tci_dim_list(a->seen.sizes),
                                     a->seen.dtype);
    }
    return fits ? a : NULL;
}

static tc_tensor tci_io_tensor(tci_frame f, tc_file *file, const char *name, bool borrows)
{
    tci_node *x = NULL;
    const tci_io_array *a = f.failed ? NULL : tci_io_choose(&f, file, name, borrows);
    if (a) {
        bool fits = a->bytes && !a->deflated && a->seen.dtype != TC_BOOL &&
                    tci_dtype_is_aligned(a->seen.dtype, file->map + a->at);
        x = borrows && fits ? tci_io_borrow(&f, file, a) : tci_io_copy_in(&f, file, a);
    }
    return tci_frame_end(&f, x);
}

TC_API tc_tensor tc_file_borrow_at(tc_ctx *ctx, tc_file *file, const char *name, tc_site here)
{
    return tci_io_tensor(tci_frame_on(ctx, "tc_file_borrow", here), file, name, true);
}

TC_API tc_tensor tc_file_copy_in_at(tc_ctx *ctx, tc_file *file, const char *name, tc_site here)
{
    return tci_io_tensor(tci_frame_on(ctx, "tc_file_copy_in", here), file, name, false);
}
