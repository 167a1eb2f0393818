/* compile/memory_cache.h - declares the in-memory caches of the process: compiled code, loaded
 * modules, kernels, and the keys that are being compiled. One lock, never held across a compile or
 * a file access. */
#ifndef TCI_COMPILE_MEMORY_CACHE_H
#define TCI_COMPILE_MEMORY_CACHE_H

#include "../base/str.h"
#include "compiled_code.h"

/* ---- code ---- */
TCI_FN tci_code *tci_code_make(void); /* unpublished, refs 1; NULL: out of memory */
/* Sets the function of kernel k: a host function, or a device handle. */
TCI_FN void tci_code_set_function(tci_code *c, tci_code_kernel *k, const tc_backend *calls,
                                  void *function);
/* compile/cross_target.c: a device that refuses every launch, of a backend whose code cannot run
 * here; NULL: it can. */
TCI_FN const tc_backend *tci_foreign_refuses(const tc_backend *calls);
/* Finds the functions of all kernels of a code whose modules are loaded. False: one is missing. */
TCI_FN bool tci_code_bind(tci_code *c, const tc_backend *calls);
TCI_FN char *tci_code_copy_text(tci_code *c, const char *text); /* NULL: out of memory */

typedef enum tci_claim_result { TCI_CLAIM_FOUND, TCI_CLAIM_OURS, TCI_CLAIM_BUSY } tci_claim_result;
/* A key being compiled; lives with its owner between claim and settle. */
typedef struct tci_claim {
    const tci_request *request;
    struct tci_claim *next;
} tci_claim;

/* Counted reference to the code of that key, or NULL. Interpreted fallbacks serve only requests for
 * the compiler that was missing, and none where native is true. */
TCI_FN tci_code *tci_cache_find(const tci_request *r, bool native);
/* Finds it, or makes this caller the only one to compile that key (until tci_cache_settle), or
 * says that another thread compiles it. */
TCI_FN tci_claim_result tci_cache_claim(tci_claim *claim, const tci_request *r, bool native,
                                        tci_code **code);
/* Ends a claim and wakes who waits. code: published in place of what has the same key; the cache
 * takes a reference of its own. NULL: the compile failed. cap_bytes: what the cache may hold from
 * now on; beyond that, code that no program uses is dropped, the least recently used first. */
TCI_FN void tci_cache_settle(tci_claim *claim, tci_code *code, int64_t cap_bytes);
/* Waits until no thread is compiling that key. */
TCI_FN void tci_cache_wait(const tci_request *r);

/* ---- modules and the kernels in them ---- */
/* Data of a built kernel for its launches; texts and dims belong to the holder of the record. */
typedef struct tci_kernel_record {
    const char *symbol, *note;
    tci_dim n_tasks;
    double task_ns, call_ns;
    tci_dim work_bytes;
    const tci_dim *dims;
    int32_t n_dims;
} tci_kernel_record;

/* A kernel that a loaded module offers to later compiles. */
typedef struct tci_module_kernel {
    tci_hash hash;
    const uint8_t *key;
    size_t key_bytes;
    tci_kernel_record record;
    void *function;
    struct tci_module *module;
    struct tci_module_kernel *next; /* bucket chain */
} tci_module_kernel;

struct tci_module {
    int32_t refs;            /* under the cache's lock */
    const tc_backend *calls; /* that loaded it */
    void *handle;
    char *path;    /* of its bytes; in a cache, never those of another module */
    int64_t bytes; /* of the file, with its hash: compared before it is loaded again */
    tci_hash sum;
    int n_kernels;    /* that it offers */
    bool stored;      /* the file is in a disk cache */
    tci_str object;   /* heap: its bytes, where the file is in none (tci_module_hold) */
    tci_code *memory; /* owns this struct, path, kernels and their texts */
    struct tci_module *next;
};

/* The module that this backend loaded from that path, retained, or NULL. */
TCI_FN tci_module *tci_module_find(const tc_backend *calls, const char *path);
/* Loads the bytes of a file whose hash is sum. NULL: it cannot be loaded (why says so) or out of
 * memory. A thread that loaded the same path meanwhile wins. The module comes retained. */
TCI_FN tci_module *tci_module_load(const tc_backend *calls, const char *path, const tci_str *object,
                                   tci_hash sum, char why[256]);
/* Keeps the bytes of a module that no disk cache has, so that programs of it can be saved. */
TCI_FN void tci_module_hold(tci_module *m, const tci_str *object);
/* The bytes that m was loaded from, in out (heap). False: its file is gone from the cache. */
TCI_FN bool tci_module_bytes(tci_module *m, tci_str *out);
TCI_FN void tci_module_retain(tci_module *m);
TCI_FN void tci_module_release(tci_module *m);
/* Offers a kernel of m to later compiles; copies everything. Out of memory: it is not offered. */
TCI_FN void tci_module_offer(tci_module *m, const void *key, size_t key_bytes, tci_hash hash,
                             const tci_kernel_record *record, void *function);
/* A kernel of that key in some loaded module of that backend; its module is retained. False:
 * none. */
TCI_FN bool tci_module_find_kernel(const tc_backend *calls, const void *key, size_t key_bytes,
                                   tci_hash hash, tci_module_kernel *found);

#endif
