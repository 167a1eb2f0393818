/* io/npz.c - .npz: a zip archive of .npy files, stored or deflated.
 *
 * The format: each entry after a local header, a central directory that lists them, the end record
 * that says where that is. All is taken from the directory; of a local header only how long it is.
 * Archives beyond 4 GiB (zip64), encrypted entries and those of other methods are refused by name;
 * entries that hold no array of numbers are errors when they are asked for.
 *
 * A deflated entry is inflated twice: its header when the file is opened, all of it when the array
 * is read, into memory of whoever asked. So opening takes neither time nor memory for data, and
 * nothing that a hostile entry says is allocated before somebody wants that array. */
#include "file.h"
#include "inflate.h"

#include <inttypes.h>
#include <string.h>

enum {
    TCI_NPZ_LOCAL = 0x04034b50,
    TCI_NPZ_LOCAL_BYTES = 30,
    TCI_NPZ_ENTRY = 0x02014b50,
    TCI_NPZ_ENTRY_BYTES = 46,
    TCI_NPZ_END = 0x06054b50,
    TCI_NPZ_END_BYTES = 22,
    TCI_NPZ_DEFLATED = 8,         /* a method; 0: stored */
    TCI_NPZ_RATIO = 1032          /* deflate makes at most so many bytes of one */
};

TCI_FN bool tci_npz_is(tc_file *file)
{
    uint64_t first = file->bytes >= TCI_NPZ_END_BYTES ? tci_io_number(file, 0, 4) : 0;
    return first == TCI_NPZ_LOCAL || first == TCI_NPZ_END;
}

/* ---- reading ---- */

/* Where the end record is: the last bytes, but for a comment whose length it tells. */
static int64_t tci_npz_find_end(tc_file *file)
{
    int64_t last = file->bytes - TCI_NPZ_END_BYTES, first = TCI_MAX(last - 65535, (int64_t)0);
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

typedef struct tci_npz_entry {
    const char *name;
    int64_t local, packed, bytes;
    bool deflated;
    uint32_t crc;
} tci_npz_entry;

static void tci_npz_unsupported(tc_file *file, const char *name, const char *what)
{
    tci_scratch_fail(&file->s, TC_ERR_UNSUPPORTED, "%s is %s: expected an archive of numpy.savez",
                     TCI_IO_NAME(name), what);
}

/* The entry at *at of the directory, which ends at `end`; *at moves behind it. */
static tci_npz_entry tci_npz_next(tc_file *file, int64_t *at, int64_t end)
{
    if (end - *at < TCI_NPZ_ENTRY_BYTES || tci_io_number(file, *at, 4) != TCI_NPZ_ENTRY) {
        tci_io_bad(file, "its directory is damaged at %" PRId64, *at);
    }
    uint64_t flags = tci_io_number(file, *at + 8, 2), method = tci_io_number(file, *at + 10, 2);
    uint64_t packed = tci_io_number(file, *at + 20, 4), bytes = tci_io_number(file, *at + 24, 4);
    uint64_t local = tci_io_number(file, *at + 42, 4);
    int64_t n_name = (int64_t)tci_io_number(file, *at + 28, 2);
    int64_t rest = (int64_t)(tci_io_number(file, *at + 30, 2) + tci_io_number(file, *at + 32, 2));
    int64_t head = TCI_NPZ_ENTRY_BYTES + n_name + rest, crc_at = *at + 16;
    if (head > end - *at) {
        tci_io_bad(file, "its directory is damaged at %" PRId64, *at);
    }
    char *name = tci_scratch_get(&file->s, (size_t)n_name + 1);
    tci_io_read(file, *at + TCI_NPZ_ENTRY_BYTES, name, n_name);
    if (strlen(name) != (size_t)n_name) {
        tci_io_bad(file, "a name has a zero in it: %s", TCI_IO_NAME(name));
    }
    if (flags & 1) {
        tci_npz_unsupported(file, name, "encrypted");
    }
    if (packed == UINT32_MAX || bytes == UINT32_MAX || local == UINT32_MAX) {
        tci_npz_unsupported(file, name, "beyond 4 GiB (zip64)");
    }
    if (method && method != TCI_NPZ_DEFLATED) {
        tci_npz_unsupported(file, name, "compressed by another method than deflate");
    }
    if (method && bytes / TCI_NPZ_RATIO > packed) {
        tci_io_bad(file, "%s would have %" PRIu64 " bytes from %" PRIu64 " compressed ones",
                   TCI_IO_NAME(name), bytes, packed);
    }
    if (!method && packed != bytes) {
        tci_io_bad(file, "%s is stored in %" PRIu64 " bytes, but has %" PRIu64, TCI_IO_NAME(name),
                   packed, bytes);
    }
    *at += head;
    uint32_t crc = (uint32_t)tci_io_number(file, crc_at, 4);
    return (tci_npz_entry){name, (int64_t)local, (int64_t)packed, (int64_t)bytes, method != 0, crc};
}

/* limit: where the directory begins. */
static void tci_npz_array(tc_file *file, const tci_npz_entry *e, int64_t limit)
{
    size_t n = strlen(e->name);
    if (n < 4 || strcmp(e->name + n - 4, ".npy")) {
        tci_io_add_other(file, e->name, "is no .npy");
        return;
    }
    if (e->local > limit - TCI_NPZ_LOCAL_BYTES ||
        tci_io_number(file, e->local, 4) != TCI_NPZ_LOCAL) {
        tci_io_bad(file, "%s is not where the directory says", TCI_IO_NAME(e->name));
    }
    int64_t names = (int64_t)(tci_io_number(file, e->local + 26, 2) +
                              tci_io_number(file, e->local + 28, 2));
    int64_t data = e->local + TCI_NPZ_LOCAL_BYTES + names;
    if (data > limit || e->packed > limit - data) {
        tci_io_bad(file, "%s is not all before the directory", TCI_IO_NAME(e->name));
    }
    const char *name = tci_scratch_printf(&file->s, "%.*s", (int)n - 4, e->name);
    tci_io_array part = {.at = data, .held = e->packed, .bytes = e->bytes,
                         .deflated = e->deflated, .crc = e->crc};
    const char *why = tci_npy_read_at(file, name, &part);
    if (why) {
        tci_io_add_other(file, name, why);
    }
}

TCI_FN void tci_npz_read(tc_file *file)
{
    int64_t end = tci_npz_find_end(file);
    uint64_t n = tci_io_number(file, end + 10, 2), bytes = tci_io_number(file, end + 12, 4);
    uint64_t first = tci_io_number(file, end + 16, 4);
    if (n == UINT16_MAX || bytes == UINT32_MAX || first == UINT32_MAX) {
        tci_npz_unsupported(file, "the archive", "beyond 4 GiB or 65534 entries (zip64)");
    }
    if (tci_io_number(file, end + 4, 4) || tci_io_number(file, end + 8, 2) != n ||
        first > (uint64_t)end || bytes != (uint64_t)end - first) {
        tci_io_bad(file, "the end of its archive is damaged, or it is one of several parts");
    }
    int64_t at = (int64_t)first;
    for (uint64_t i = 0; i < n; i++) {
        tci_npz_entry e = tci_npz_next(file, &at, end);
        tci_npz_array(file, &e, (int64_t)first);
    }
    if (at != end) {
        tci_io_bad(file, "its directory has more than the %" PRIu64 " entries it tells of", n);
    }
}

/* ---- writing ---- */

static void tci_npz_put(tci_str *to, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++, number >>= 8) {
        char c = (char)(number & 255);
        tci_str_add_n(to, &c, 1);
    }
}

enum {
    TCI_NPZ_VERSION = 20,
    TCI_NPZ_UTF8 = 1 << 11,
    TCI_NPZ_DATE = 1 << 5 | 1 /* the first day that a zip can name: files do not tell when */
};

/* What local header and directory have in common, from the version to the lengths. */
static void tci_npz_facts(tci_str *to, uint32_t crc, int64_t bytes, size_t n_name)
{
    tci_npz_put(to, TCI_NPZ_VERSION, 2);
    tci_npz_put(to, TCI_NPZ_UTF8, 2);
    tci_npz_put(to, 0, 2 + 2); /* stored, at midnight */
    tci_npz_put(to, TCI_NPZ_DATE, 2);
    tci_npz_put(to, crc, 4);
    tci_npz_put(to, (uint64_t)bytes, 4);
    tci_npz_put(to, (uint64_t)bytes, 4);
    tci_npz_put(to, n_name, 2);
    tci_npz_put(to, 0, 2);
}

/* Writes value i at `at`; its line of the directory goes to `directory`. Returns where it ends. */
static int64_t tci_npz_entry_out(tci_io_out *o, int i, int64_t at, tci_str *directory)
{
    tci_str head = {.s = &o->s}, local = {.s = &o->s};
    const char *name = tci_scratch_printf(&o->s, "%s.npy", o->names[i]);
    size_t n_name = strlen(name);
    const void *data = tci_io_value(o, i);
    tci_npy_head(o, i, &head);
    int64_t bytes = tci_io_bytes(o, i) + (int64_t)head.n;
    int64_t end = at + TCI_NPZ_LOCAL_BYTES + (int64_t)n_name + bytes;
    if (end >= UINT32_MAX || n_name > UINT16_MAX) {
        tci_scratch_fail(&o->s, TC_ERR_LIMIT, "%s makes it larger than the 4 GiB of an .npz "
                         "(a .safetensors has no such limit)", TCI_IO_NAME(name));
    }
    uint32_t crc = tci_inflate_crc(0, head.text, (int64_t)head.n);
    crc = tci_inflate_crc(crc, data, tci_io_bytes(o, i));
    tci_npz_put(&local, TCI_NPZ_LOCAL, 4);
    tci_npz_facts(&local, crc, bytes, n_name);
    tci_str_add_n(&local, name, n_name);
    tci_io_put(o, local.text, (int64_t)local.n);
    tci_io_put(o, head.text, (int64_t)head.n);
    tci_io_put(o, data, tci_io_bytes(o, i));
    tci_npz_put(directory, TCI_NPZ_ENTRY, 4);
    tci_npz_put(directory, TCI_NPZ_VERSION, 2);
    tci_npz_facts(directory, crc, bytes, n_name);
    tci_npz_put(directory, 0, 2 + 2 + 2 + 4); /* no comment, one part, binary, no rights */
    tci_npz_put(directory, (uint64_t)at, 4);
    tci_str_add_n(directory, name, n_name);
    return end;
}

TCI_FN void tci_npz_write(tci_io_out *o)
{
    tci_str directory = {.s = &o->s};
    int64_t at = 0;
    for (int i = 0; i < o->n; i++) {
        at = tci_npz_entry_out(o, i, at, &directory);
    }
    size_t bytes = directory.n;
    if (o->n >= UINT16_MAX || (uint64_t)at + bytes >= UINT32_MAX) {
        tci_scratch_fail(&o->s, TC_ERR_LIMIT, "an .npz has at most 65534 arrays and 4 GiB (a "
                         ".safetensors has no such limit)");
    }
    tci_npz_put(&directory, TCI_NPZ_END, 4);
    tci_npz_put(&directory, 0, 4);
    tci_npz_put(&directory, (uint64_t)o->n, 2);
    tci_npz_put(&directory, (uint64_t)o->n, 2);
    tci_npz_put(&directory, bytes, 4);
    tci_npz_put(&directory, (uint64_t)at, 4);
    tci_npz_put(&directory, 0, 2);
    tci_io_put(o, directory.text, (int64_t)directory.n);
}
