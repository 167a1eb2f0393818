/* io/reader_helpers.c - helpers for format readers: bounds-checked reads of the file, dtype names,
 * and the list of arrays being built (io/tensor_file.h). */
#include "tensor_file.h"

#include <inttypes.h>

#include "../base/system_headers.h"
#include "inflate.h"

TCI_FN const tci_io_type *tci_io_types(void)
{
    static const tci_io_type rows[TCI_DTYPE_N] = {
#define TCI_ROW(dtype, name, letter, ggml, dlpack) {dtype, name, letter, ggml, dlpack},
        TCI_IO_TYPES(TCI_ROW)
#undef TCI_ROW
    };
    return rows;
}

TCI_FN void tci_io_bad(tc_file *file, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    tci_scratch_fail(&file->s, TC_ERR_IO, "%s", text);
}

TCI_FN tci_io_name tci_io_show(const char *name)
{
    tci_io_name shown;
    snprintf(shown.text, sizeof(shown.text), "'%.60s'", name);
    for (char *c = shown.text; *c; c++) {
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
    }
    return shown;
}

TCI_FN bool tci_io_read_now(const tc_file *file, int64_t at, void *to, int64_t n)
{
    char *next = to;
    while (n > 0) {
        ssize_t got = pread(file->fd, next, (size_t)TCI_MIN(n, (int64_t)1 << 30), (off_t)at);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        if (got > 0) {
            next += got;
            at += got;
            n -= got;
        }
    }
    return true;
}

TCI_FN void tci_io_read(tc_file *file, int64_t at, void *to, int64_t n)
{
    struct tci_io_window *w = file->window;
    if (at < 0 || n < 0 || at > file->bytes || n > file->bytes - at) {
        tci_io_bad(file, "it ends within its header: %" PRId64 " bytes at %" PRId64 " of %" PRId64,
                   n, at, file->bytes);
    }
    if (n > TCI_IO_WINDOW) {
        if (!tci_io_read_now(file, at, to, n)) {
            tci_io_bad(file, "its bytes at %" PRId64 " cannot be read", at);
        }
        return;
    }
    if (at < w->at || at + n > w->at + w->n) {
        w->at = at;
        w->n = TCI_MIN((int64_t)TCI_IO_WINDOW, file->bytes - at);
        if (!tci_io_read_now(file, at, w->bytes, w->n)) {
            tci_io_bad(file, "its bytes at %" PRId64 " cannot be read", at);
        }
    }
    memcpy(to, w->bytes + (at - w->at), (size_t)n);
}

TCI_FN uint64_t tci_io_number(tc_file *file, int64_t at, int bytes)
{
    unsigned char text[8];
    uint64_t number = 0;
    tci_io_read(file, at, text, bytes);
    for (int i = bytes - 1; i >= 0; i--) {
        number = number << 8 | text[i];
    }
    return number;
}

TCI_FN bool tci_io_is_utf8(const char *text, size_t n)
{
    size_t i = 0;
    for (int length = 1; i < n && length && text[i]; i += (size_t)length) {
        length = tci_str_utf8(text + i, n - i);
    }
    return i == n;
}

TCI_FN int64_t tci_io_count(int rank, const int64_t *sizes)
{
    const int64_t most = INT64_MAX / 16;
    int64_t count = 1;
    bool none = false;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] < 0 || sizes[i] > most || (sizes[i] && count > most / sizes[i])) {
            return -1;
        }
        none = none || !sizes[i];
        count *= sizes[i] ? sizes[i] : 1;
    }
    return none ? 0 : count;
}

TCI_FN void tci_io_add(tc_file *file, const tci_io_array *a)
{
    tci_scratch *s = &file->s;
    const tc_array *seen = &a->seen;
    bool known = tci_dtype_is_valid(seen->dtype);
    int64_t count = tci_io_count(seen->rank, seen->sizes);
    if (file->n_arrays == TCI_IO_ARRAYS_MAX) {
        tci_io_bad(file, "it has more than %d arrays", TCI_IO_ARRAYS_MAX);
    }
    if (!tci_io_is_utf8(seen->name, strlen(seen->name))) {
        tci_io_bad(file, "a name is not UTF-8: %s", TCI_IO_NAME(seen->name));
    }
    if (count < 0) {
        tci_io_bad(file, "%s has sizes that no memory can hold", TCI_IO_NAME(seen->name));
    }
    if (a->at < 0 || a->held < 0 || a->at > file->bytes || a->held > file->bytes - a->at) {
        tci_io_bad(file,
                   "the data of %s, %" PRId64 " bytes at %" PRId64 ", is not all in its %" PRId64,
                   TCI_IO_NAME(seen->name), a->held, a->at, file->bytes);
    }
    if (known && a->bytes != count * tci_dtype_get(seen->dtype)->bytes) {
        tci_io_bad(file, "%s has %" PRId64 " bytes, its sizes make %" PRId64 " of %s",
                   TCI_IO_NAME(seen->name), a->bytes, count * tci_dtype_get(seen->dtype)->bytes,
                   tci_dtype_get(seen->dtype)->name);
    }
    tci_io_array own = *a;
    own.bytes = known ? a->bytes : 0;
    own.seen.name = tci_scratch_copy(s, seen->name, strlen(seen->name) + 1);
    own.seen.type = tci_scratch_copy(s, seen->type, strlen(seen->type) + 1);
    if (a->strides) {
        own.strides = tci_scratch_copy(s, a->strides, sizeof(*a->strides) * (size_t)seen->rank);
    }
    own.seen.sizes = tci_scratch_copy(s, seen->sizes, (size_t)seen->rank * sizeof(*seen->sizes));
    TCI_PUSH(s, file->arrays, file->n_arrays, file->cap_arrays, own);
}

TCI_FN void tci_io_add_other(tc_file *file, const char *name, const char *why)
{
    tci_io_other other = {name, why};
    TCI_PUSH(&file->s, file->others, file->n_others, file->cap_others, other);
}

/* Inflates the first n bytes of the array's part, from no more than a stream without waste
 * needs for them. False: it is damaged. */
static bool tci_io_inflate_front(tc_file *file, const tci_io_array *a, char *front, int64_t n)
{
    int64_t held = TCI_MIN(2 * n + TCI_IO_WINDOW, a->held), made = 0;
    char *packed = tci_heap_get((size_t)held); /* not of the scratch: it would stay */
    if (!packed) {
        tci_scratch_fail(&file->s, TC_ERR_MEMORY, "out of memory for the header of an array");
    }
    if (tci_io_read_now(file, a->at, packed, held)) {
        (void)tci_inflate(packed, held, front, n, &made);
    }
    tci_heap_free(packed);
    return made == n;
}

TCI_FN const char *tci_io_front(tc_file *file, const tci_io_array *a, int64_t n)
{
    file->front_bytes += n;
    if (file->front_bytes > TCI_IO_HEADER_MAX) {
        tci_io_bad(file, "its headers, for all arrays, have more than %d bytes", TCI_IO_HEADER_MAX);
    }
    if (a->at < 0 || a->held < 0 || a->at > file->bytes || a->held > file->bytes - a->at) {
        tci_io_bad(file, "%s is not all in its %" PRId64 " bytes", TCI_IO_NAME(a->seen.name),
                   file->bytes);
    }
    char *front = tci_scratch_get(&file->s, (size_t)n + 1);
    if (!a->deflated) {
        tci_io_read(file, a->at, front, n);
    } else if (!tci_io_inflate_front(file, a, front, n)) {
        tci_io_bad(file, "the compressed data of %s is damaged", TCI_IO_NAME(a->seen.name));
    }
    return front;
}

TCI_FN void tci_io_add_pair(tc_file *file, const char *key, const char *value)
{
    tci_io_pair pair = {key, value};
    TCI_PUSH(&file->s, file->pairs, file->n_pairs, file->cap_pairs, pair);
}
