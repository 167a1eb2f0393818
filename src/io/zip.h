/* io/zip.h - central directory of zip archives, the container of .npz and .pt files: names, offsets
 * and sizes of entries.
 *
 * Encrypted entries and those with compression methods other than deflate are rejected with an
 * error that names them. */
#ifndef TCI_IO_ZIP_H
#define TCI_IO_ZIP_H

#include "tensor_file.h"

enum {
    TCI_ZIP_LOCAL = 0x04034b50,
    TCI_ZIP_LOCAL_BYTES = 30,
    TCI_ZIP_ENTRY = 0x02014b50,
    TCI_ZIP_ENTRY_BYTES = 46,
    TCI_ZIP_END = 0x06054b50,
    TCI_ZIP_END_BYTES = 22,
    TCI_ZIP_WIDE_END = 0x06064b50, /* the end record of 64 bits, */
    TCI_ZIP_WIDE_AT = 0x07064b50,  /* and where it is */
    TCI_ZIP_WIDE_BYTES = 76,       /* of both */
    TCI_ZIP_DEFLATED = 8,          /* a method; 0: stored */
    TCI_ZIP_RATIO = 1032           /* deflate makes at most this many bytes of one */
};

typedef struct tci_zip_entry {
    const char *name;
    int64_t local, packed, bytes;
    int64_t limit; /* where the directory begins */
    bool deflated;
    uint32_t crc;
} tci_zip_entry;

TCI_FN bool tci_zip_is(tc_file *file);
/* All entries, in the order of the directory, in the file's scratch; returns how many. */
TCI_FN int tci_zip_list(tc_file *file, tci_zip_entry **entries);
/* Where the bytes that an entry holds begin. */
TCI_FN int64_t tci_zip_data(tc_file *file, const tci_zip_entry *e);

#endif
