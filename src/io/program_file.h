/* io/program_file.h - layout of a saved program file: header, metadata record, 64-byte aligned
 * blobs (captured memory, object files, results of the init section).
 *
 * A header of 64 bytes, a metadata record, then blobs, 64-byte aligned: the captured memory, the
 * object files, and the results of the init section. One function writes and reads the record
 * (tci_saved_wire), as for entries of the disk cache (compile/serialize.h). It has the offset, size
 * and hash of each blob. The graph is the one in the key (compile/cache_key_decode.c). */
#ifndef TCI_IO_PROGRAM_FILE_H
#define TCI_IO_PROGRAM_FILE_H

#include "../compile/serialize.h"
#include "tensor_file.h"

typedef struct tci_saved_blob {
    int64_t at, bytes;
    tci_hash sum;
    const void *data; /* writing */
} tci_saved_blob;

/* Memory of captured leaves. */
typedef struct tci_saved_storage {
    tci_saved_blob blob;
    bool is_param;
    char *name;    /* of a parameter; "": none */
    int64_t first; /* writing: the byte of the storage with which the blob begins */
    tci_storage *storage;
} tci_saved_storage;

typedef struct tci_saved_leaf {
    int32_t storage; /* its number */
    int64_t lowest;  /* byte of the blob: the lowest address of its elements */
} tci_saved_leaf;

/* Where a node was made. file: number + 1; 0: not known. */
typedef struct tci_saved_site {
    int32_t file, line;
} tci_saved_site;

typedef struct tci_saved {
    char *version, *build;          /* of tc, that wrote it */
    char *abi, *backend, *features; /* features "": interpreted, and the code is made anew */
    char *name;                     /* options.name, or "" */
    /* options that results depend on */
    int32_t math, matrix, fusion, remat;
    bool reproducible;
    uint8_t *key;
    int32_t key_bytes, key_graph; /* as in the request */
    char **symbols;
    int32_t n_symbols;
    char **inputs;
    int32_t n_inputs; /* names */
    char **files;
    int32_t n_files;
    tci_saved_site *sites;
    int32_t n_sites; /* by canonical number; none: not known */
    int64_t *literals;
    int32_t n_literals;
    tci_saved_storage *storages;
    int32_t n_storages;
    tci_saved_leaf *leaves;
    int32_t n_leaves;
    tci_saved_blob *modules;
    int32_t n_modules;
    tci_saved_blob kept; /* bytes 0: none */
    tci_code *code;      /* native: all but key and modules */
} tci_saved;

typedef struct tci_saved_header {
    uint64_t magic, form;        /* form: byte order and number of the format */
    uint64_t description, bytes; /* bytes of the description, of the file */
    tci_hash sum;                /* of the description */
    uint64_t unused[2];
} tci_saved_header;
#define TCI_SAVED_MAGIC 0x31676f72702e6374u /* "tc.prog1" */
#define TCI_SAVED_FORM 0x0000000104030201u  /* format 1; its low half detects the byte order */
enum { TCI_SAVED_ALIGN = 64, TCI_SAVED_DESCRIPTION_MOST = 1 << 28 };

TCI_FN const char *tci_saved_abi(void);
TCI_FN bool tci_saved_is_native(const tci_saved *v);
TCI_FN void tci_saved_wire(tci_wire *w, tci_saved *v);
/* base, with the options that results depend on as they were. */
TCI_FN tc_options tci_saved_options(const tci_saved *v, const tc_options *base);
/* Longjmps where the graph calls a custom op that this process does not know. */
TCI_FN void tci_saved_need_op(tci_scratch *s, const tci_key_graph *g);
/* The request that the saved key is of, over the storages; its roots and nodes are in s.
 * Longjmps. */
TCI_FN tci_request *tci_saved_request(tci_scratch *s, const tci_saved *v, const tc_options *o,
                                      const tci_backend *backend);

#endif
