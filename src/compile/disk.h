/* compile/disk.h - the disk cache: programs, kernels and object files that outlive the process. */
#ifndef TCI_COMPILE_DISK_H
#define TCI_COMPILE_DISK_H

#include "../base/dir.h"
#include "cache.h"

/* The cache directory of one compile, judged when it is opened. */
typedef struct tci_disk {
    const tc_options *options;
    tci_dir dir;               /* open while readable */
    bool readable, writable;   /* writable only when readable */
    int64_t cap_bytes;
} tci_disk;

TCI_FN void tci_disk_open(tci_disk *d, const tc_options *o);
TCI_FN void tci_disk_close(tci_disk *d);

/* The code of that key with all its kernels loaded, or NULL. */
TCI_FN tci_code *tci_disk_load_code(const tci_disk *d, const tci_request *r,
                                    const tc_backend *calls);
TCI_FN void tci_disk_store_code(const tci_disk *d, tci_code *c,
                                const tc_backend_compiler *compiler);

/* A kernel of that key in an object file of this cache; its module is retained. */
TCI_FN bool tci_disk_load_kernel(const tci_disk *d, const tc_backend *calls, const void *key,
                                 size_t key_bytes, tci_hash hash, tci_module_kernel *found);
TCI_FN void tci_disk_store_kernel(const tci_disk *d, const tci_module_kernel *k,
                                  const tc_backend_compiler *compiler);

/* Puts an object file and its source into the cache, under the hash of the object. False: it could
 * not be written. path (heap) is where the object lies then. */
TCI_FN bool tci_disk_store_object(const tci_disk *d, tci_hash sum, const tci_str *object,
                                  const tci_str *source, tci_str *path);
/* Takes it out again. */
TCI_FN void tci_disk_remove_object(const tci_disk *d, tci_hash sum);
/* What an engine made of a model (compile/graph_program.c), under a hash of all that it depends on.
 * Returns its length, 0: it is not there; *bytes lie in file (heap). */
TCI_FN size_t tci_disk_load_blob(const tci_disk *d, tci_hash sum, tci_str *file,
                                 const void **bytes);
TCI_FN void tci_disk_store_blob(const tci_disk *d, tci_hash sum, const void *bytes, size_t n);
/* Brings the directory under its cap, oldest use first, and removes what dead processes left there.
 * Cheap when little was written since. */
TCI_FN void tci_disk_evict(const tci_disk *d, int64_t written_bytes);

#endif
