/* compile/disk_cache.h - disk cache: programs, kernels and object files that outlive the process.
 */
#ifndef TCI_COMPILE_DISK_CACHE_H
#define TCI_COMPILE_DISK_CACHE_H

#include "../base/private_dir.h"
#include "memory_cache.h"

/* The cache directory of one compile, judged when it is opened. */
typedef struct tci_disk {
    const tc_options *options;
    tci_dir dir;             /* open while readable */
    bool readable, writable; /* writable only when readable */
    int64_t cap_bytes;
} tci_disk;

TCI_FN void tci_disk_open(tci_disk *d, const tc_options *o);
TCI_FN void tci_disk_close(tci_disk *d);

/* The code of that key with all its kernels loaded, or NULL. */
TCI_FN tci_code *tci_disk_load_code(const tci_disk *d, const tci_request *r,
                                    const tc_backend *calls);
TCI_FN void tci_disk_store_code(const tci_disk *d, tci_code *c,
                                const tc_backend_compiler *compiler);

/* The same of an exported cache: code of that program that was made for another machine and runs
 * here, the most capable one first. It comes with r's key. Longjmps through s. */
TCI_FN tci_code *tci_disk_load_for_other(const tci_disk *d, tci_scratch *s, const tci_request *r,
                                         const tci_backend *backend);
/* Copies the entries of this build, their objects and sources to another directory, with the list
 * of targets that they are for. TC_ERR_IO: something could not be written; *why says what. */
TCI_FN tc_status tci_disk_export(const tci_disk *d, const tci_dir *to, tci_str *why);

/* A kernel of that key in an object file of this cache; its module is retained. */
TCI_FN bool tci_disk_load_kernel(const tci_disk *d, const tc_backend *calls, const void *key,
                                 size_t key_bytes, tci_hash hash, tci_module_kernel *found);
TCI_FN void tci_disk_store_kernel(const tci_disk *d, const tci_module_kernel *k,
                                  const tc_backend_compiler *compiler);

/* Puts an object file and its source into the cache, under the hash of the object. False: it could
 * not be written. path (heap) is the path of the object then. */
TCI_FN bool tci_disk_store_object(const tci_disk *d, tci_hash sum, const tci_str *object,
                                  const tci_str *source, tci_str *path);
/* Takes it out again. */
TCI_FN void tci_disk_remove_object(const tci_disk *d, tci_hash sum);
/* The blob that an engine compiled a model to (compile/graph_backend_program.c), under a hash of
 * all that it depends on. Returns its length; 0: none is stored. *bytes points into file (heap). */
TCI_FN size_t tci_disk_load_blob(const tci_disk *d, tci_hash sum, tci_str *file,
                                 const void **bytes);
TCI_FN void tci_disk_store_blob(const tci_disk *d, tci_hash sum, const void *bytes, size_t n);
/* Brings the directory under its cap, oldest use first, and removes what dead processes left there.
 * Cheap when little was written since. */
TCI_FN void tci_disk_evict(const tci_disk *d, int64_t written_bytes);

/* ---- entries: a header of 64 bytes, which has the checksum, and a payload ---- */
#define TCI_DISK_FORMAT 0x0000000b04030201u  /* format 11; also detects the byte order */
#define TCI_DISK_PROGRAM 0x31676f72702d6374u /* "tc-prog1" */
#define TCI_DISK_KERNEL 0x316e72656b2d6374u  /* "tc-kern1" */
#define TCI_DISK_BLOB 0x31626f6c622d6374u    /* "tc-blob1" */
#define TCI_DISK_TARGET 0x31677261742d6374u  /* "tc-targ1" */
enum {
    TCI_DISK_HEADER_BYTES = 64,
    TCI_DISK_NAME_BYTES = 64,
    TCI_DISK_ENTRY_MOST = 1 << 28 /* bytes of an entry, which holds no machine code */
};
/* kind 'p', 'k', 'm' or 't'. */
TCI_FN void tci_disk_name(char name[TCI_DISK_NAME_BYTES], char kind, tci_hash hash,
                          const char *end);
/* Reads an entry and checks its frame; one that is damaged is removed. */
TCI_FN bool tci_disk_read(const tci_disk *d, const char *name, uint64_t magic, tci_str *file);
TCI_FN void tci_disk_write(const tci_disk *d, const char *name, uint64_t magic, bool durable,
                           const tci_str *payload);
/* Writes a file; a failure is logged. */
TCI_FN bool tci_disk_publish(const tci_disk *d, const char *name, const tci_str *bytes,
                             bool durable);

#endif
