/* io/zip.c - reads the central directory of a zip archive (io/zip.h).
 *
 * The format: entries, each after a local header; a central directory that lists them; an end
 * record with the offset of the directory. Everything is read from the directory, and of a local
 * header only its length. */
#include "zip.h"

#include <inttypes.h>
#include <string.h>

TCI_FN bool tci_zip_is(tc_file *file)
{
    uint64_t first = file->bytes >= TCI_ZIP_END_BYTES ? tci_io_number(file, 0, 4) : 0;
    return first == TCI_ZIP_LOCAL || first == TCI_ZIP_END;
}

/* Where the end record is: the last bytes, but for a comment whose length it tells. */
static int64_t tci_zip_find_end(tc_file *file)
{
    int64_t last = file->bytes - TCI_ZIP_END_BYTES, first = TCI_MAX(last - 65535, (int64_t)0);
    int64_t n = file->bytes - first;
    unsigned char *tail = tci_scratch_get(&file->s, (size_t)n);
    tci_io_read(file, first, tail, n);
    for (int64_t at = last; at >= first; at--) {
        const unsigned char *c = tail + (at - first);
        bool is_end = c[0] == 'P' && c[1] == 'K' && c[2] == 5 && c[3] == 6;
        if (is_end && (c[20] | c[21] << 8) == last - at) {
            return at;
        }
    }
    tci_io_bad(file, "its archive has no end: it is cut short");
    return -1;
}

static void tci_zip_unsupported(tc_file *file, const char *name, const char *what)
{
    tci_scratch_fail(&file->s, TC_ERR_UNSUPPORTED,
                     "%s is %s: expected an archive of numpy.savez "
                     "or torch.save",
                     TCI_IO_NAME(name), what);
}

/* The numbers of an entry that 32 bits do not hold are in its extra field of type 1, in order. */
static void tci_zip_wide(tc_file *file, const char *name, int64_t extra, int64_t n,
                         uint64_t *const *numbers)
{
    while (n >= 4) {
        int64_t type = (int64_t)tci_io_number(file, extra, 2);
        int64_t bytes = (int64_t)tci_io_number(file, extra + 2, 2), at = extra + 4;
        if (bytes > n - 4) {
            break;
        }
        for (int i = 0; i < 3 && type == 1; i++) {
            if (*numbers[i] == UINT32_MAX && at + 8 <= extra + 4 + bytes) {
                *numbers[i] = tci_io_number(file, at, 8);
                at += 8;
            }
        }
        extra += 4 + bytes;
        n -= 4 + bytes;
    }
    for (int i = 0; i < 3; i++) {
        if (*numbers[i] > (uint64_t)INT64_MAX) {
            tci_io_bad(file, "%s has a negative size", TCI_IO_NAME(name));
        }
    }
}

/* The entry at *at of the directory, which ends at `end`; *at moves after it. */
static tci_zip_entry tci_zip_next(tc_file *file, int64_t *at, int64_t end)
{
    if (end - *at < TCI_ZIP_ENTRY_BYTES || tci_io_number(file, *at, 4) != TCI_ZIP_ENTRY) {
        tci_io_bad(file, "its directory is damaged at %" PRId64, *at);
    }
    uint64_t flags = tci_io_number(file, *at + 8, 2), method = tci_io_number(file, *at + 10, 2);
    uint64_t packed = tci_io_number(file, *at + 20, 4), bytes = tci_io_number(file, *at + 24, 4);
    uint64_t local = tci_io_number(file, *at + 42, 4);
    int64_t n_name = (int64_t)tci_io_number(file, *at + 28, 2);
    int64_t rest = (int64_t)(tci_io_number(file, *at + 30, 2) + tci_io_number(file, *at + 32, 2));
    int64_t head = TCI_ZIP_ENTRY_BYTES + n_name + rest, crc_at = *at + 16;
    if (head > end - *at) {
        tci_io_bad(file, "its directory is damaged at %" PRId64, *at);
    }
    char *name = tci_scratch_get(&file->s, (size_t)n_name + 1);
    tci_io_read(file, *at + TCI_ZIP_ENTRY_BYTES, name, n_name);
    if (strlen(name) != (size_t)n_name) {
        tci_io_bad(file, "a name has a zero in it: %s", TCI_IO_NAME(name));
    }
    if (flags & 1) {
        tci_zip_unsupported(file, name, "encrypted");
    }
    tci_zip_wide(file, name, *at + TCI_ZIP_ENTRY_BYTES + n_name,
                 (int64_t)tci_io_number(file, *at + 30, 2),
                 (uint64_t *const[]){&bytes, &packed, &local});
    if (method && method != TCI_ZIP_DEFLATED) {
        tci_zip_unsupported(file, name, "compressed by another method than deflate");
    }
    if (method && bytes / TCI_ZIP_RATIO > packed) {
        tci_io_bad(file, "%s would have %" PRIu64 " bytes from %" PRIu64 " compressed ones",
                   TCI_IO_NAME(name), bytes, packed);
    }
    if (!method && packed != bytes) {
        tci_io_bad(file, "%s is stored in %" PRIu64 " bytes, but has %" PRIu64, TCI_IO_NAME(name),
                   packed, bytes);
    }
    *at += head;
    uint32_t crc = (uint32_t)tci_io_number(file, crc_at, 4);
    return (tci_zip_entry){name, (int64_t)local, (int64_t)packed, (int64_t)bytes, end, method != 0,
                           crc};
}

TCI_FN int64_t tci_zip_data(tc_file *file, const tci_zip_entry *e)
{
    if (e->local > e->limit - TCI_ZIP_LOCAL_BYTES ||
        tci_io_number(file, e->local, 4) != TCI_ZIP_LOCAL) {
        tci_io_bad(file, "%s is not where the directory says", TCI_IO_NAME(e->name));
    }
    int64_t names = (int64_t)(tci_io_number(file, e->local + 26, 2) +
                              tci_io_number(file, e->local + 28, 2));
    int64_t data = e->local + TCI_ZIP_LOCAL_BYTES + names;
    if (data > e->limit || e->packed > e->limit - data) {
        tci_io_bad(file, "%s is not all before the directory", TCI_IO_NAME(e->name));
    }
    return data;
}

/* The directory: how many entries, where, and how many bytes. An end record of 64 bits, and where
 * that is, may be in front of the end record; it has what 32 bits do not hold. */
static uint64_t tci_zip_directory(tc_file *file, uint64_t *first, uint64_t *bytes)
{
    int64_t end = tci_zip_find_end(file), wide = end - TCI_ZIP_WIDE_BYTES;
    uint64_t n = tci_io_number(file, end + 10, 2), part = tci_io_number(file, end + 4, 4);
    uint64_t here = tci_io_number(file, end + 8, 2);
    *bytes = tci_io_number(file, end + 12, 4);
    *first = tci_io_number(file, end + 16, 4);
    if (wide >= 0 && tci_io_number(file, wide, 4) == TCI_ZIP_WIDE_END &&
        tci_io_number(file, end - 20, 4) == TCI_ZIP_WIDE_AT) {
        here = tci_io_number(file, wide + 24, 8);
        n = tci_io_number(file, wide + 32, 8);
        *bytes = tci_io_number(file, wide + 40, 8);
        *first = tci_io_number(file, wide + 48, 8);
        end = wide;
    }
    if (part || here != n || *first > (uint64_t)end || *bytes != (uint64_t)end - *first ||
        n > *bytes / TCI_ZIP_ENTRY_BYTES) {
        tci_io_bad(file, "the end of its archive is damaged, or it is one of several parts");
    }
    return n;
}

TCI_FN int tci_zip_list(tc_file *file, tci_zip_entry **entries)
{
    uint64_t first, bytes, n = tci_zip_directory(file, &first, &bytes);
    int64_t end = (int64_t)(first + bytes);
    if (n > TCI_IO_ARRAYS_MAX) {
        tci_io_bad(file, "it has more than %d entries", TCI_IO_ARRAYS_MAX);
    }
    int64_t at = (int64_t)first;
    *entries = TCI_NEW_ARRAY(&file->s, tci_zip_entry, n + 1);
    for (uint64_t i = 0; i < n; i++) {
        (*entries)[i] = tci_zip_next(file, &at, end);
        (*entries)[i].limit = (int64_t)first;
    }
    if (at != end) {
        tci_io_bad(file, "its directory has more than the %" PRIu64 " entries it tells of", n);
    }
    return (int)n;
}
