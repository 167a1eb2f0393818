/* io/npz.c - reads and writes .npz, zip archives of .npy files: stored or deflated entries are
 * read, stored ones are written (the zip reader is io/zip.h).
 *
 * Entries that are not arrays of numbers give an error when they are requested. A deflated entry is
 * inflated twice: its header when the file is opened, all of it when the array is read, into memory
 * of the reader. Opening therefore needs neither time nor memory for data, and a size in a hostile
 * entry allocates nothing before that array is requested. */
#include "tensor_file.h"
#include "inflate.h"
#include "zip.h"

#include <inttypes.h>
#include <string.h>

TCI_FN bool tci_npz_is(tc_file *file)
{
    return tci_zip_is(file);
}

/* ---- reading ---- */

static void tci_npz_array(tc_file *file, const tci_zip_entry *e)
{
    size_t n = strlen(e->name);
    if (n < 4 || strcmp(e->name + n - 4, ".npy")) {
        tci_io_add_other(file, e->name, "is no .npy");
        return;
    }
    const char *name = tci_scratch_printf(&file->s, "%.*s", (int)n - 4, e->name);
    tci_io_array part = {.at = tci_zip_data(file, e),
                         .held = e->packed,
                         .bytes = e->bytes,
                         .deflated = e->deflated,
                         .crc = e->crc};
    const char *why = tci_npy_read_at(file, name, &part);
    if (why) {
        tci_io_add_other(file, name, why);
    }
}

TCI_FN void tci_npz_read(tc_file *file)
{
    tci_zip_entry *entries;
    int n = tci_zip_list(file, &entries);
    for (int i = 0; i < n; i++) {
        tci_npz_array(file, &entries[i]);
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
    TCI_NPZ_DATE = 1 << 5 | 1 /* the first day that a zip can represent: files have no time stamp */
};

/* Fields that local header and directory share, from the version to the lengths. */
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
    int64_t end = at + TCI_ZIP_LOCAL_BYTES + (int64_t)n_name + bytes;
    if (end >= UINT32_MAX || n_name > UINT16_MAX) {
        tci_scratch_fail(&o->s, TC_ERR_LIMIT,
                         "%s makes it larger than the 4 GiB of an .npz "
                         "(a .safetensors has no such limit)",
                         TCI_IO_NAME(name));
    }
    uint32_t crc = tci_inflate_crc(0, head.text, (int64_t)head.n);
    crc = tci_inflate_crc(crc, data, tci_io_bytes(o, i));
    tci_npz_put(&local, TCI_ZIP_LOCAL, 4);
    tci_npz_facts(&local, crc, bytes, n_name);
    tci_str_add_n(&local, name, n_name);
    tci_io_put(o, local.text, (int64_t)local.n);
    tci_io_put(o, head.text, (int64_t)head.n);
    tci_io_put(o, data, tci_io_bytes(o, i));
    tci_npz_put(directory, TCI_ZIP_ENTRY, 4);
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
        tci_scratch_fail(&o->s, TC_ERR_LIMIT,
                         "an .npz has at most 65534 arrays and 4 GiB (a "
                         ".safetensors has no such limit)");
    }
    tci_npz_put(&directory, TCI_ZIP_END, 4);
    tci_npz_put(&directory, 0, 4);
    tci_npz_put(&directory, (uint64_t)o->n, 2);
    tci_npz_put(&directory, (uint64_t)o->n, 2);
    tci_npz_put(&directory, bytes, 4);
    tci_npz_put(&directory, (uint64_t)at, 4);
    tci_npz_put(&directory, 0, 2);
    tci_io_put(o, directory.text, (int64_t)directory.n);
}
