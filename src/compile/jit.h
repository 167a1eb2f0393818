/* compile/jit.h - JIT driver: deduplicates the kernels of a batch of programs, finds them in
 * caches, compiles the rest and returns functions. The stages are called in this order by
 * compile/compile.c. */
#ifndef TCI_COMPILE_JIT_H
#define TCI_COMPILE_JIT_H

#include "disk_cache.h"

typedef struct tci_jit_kernel {
    const tci_kernel *kernel;
    const char *key;
    size_t key_bytes; /* canonical text, target, compiler wanted, build */
    tci_hash hash;
    tci_hash name;        /* of the canonical text alone: what tc_explain shows */
    const char *forced;   /* schedule that the user's file gives it, or NULL */
    const char *measured; /* the schedule that was fastest, or NULL */
    const char *measured_note;
    const char *note; /* !is_found: its schedule, for tc_explain */
    bool is_found;
    tci_module_kernel found; /* is_found: its module is retained until tci_jit_end */
    /* !is_found: as scheduled, to be compiled; NULL of a custom op source */
    tci_loop *loop;
    tci_launch launch;
    char *symbol;
    int file; /* which source holds it */
} tci_jit_kernel;

typedef struct tci_jit {
    tci_scratch *s;
    const tc_options *options;
    const tci_backend *backend;
    const tci_disk *disk;
    tci_jit_kernel *kernels;
    int n_kernels, cap_kernels;
    int32_t *table;
    int table_size;               /* kernels by hash: index + 1, 0 = free; a power of two */
    int n_missing, n_texts;       /* of those that are missing: custom op sources */
    bool exports;                 /* one source for others: nothing is looked up or built */
    bool shows;                   /* all is scheduled and emitted, nothing is built */
    bool anew;                    /* no kernel of a cache serves */
    tc_backend_compiler compiler; /* path "": none was looked for, or none found */
    tci_str *sources;
    int n_sources;  /* scratch: the last n_texts are the user's */
    tci_str forced; /* heap: the user's file of schedules */
    tci_str said;   /* heap: command lines and compiler output */
    int64_t written_bytes;
    int64_t tuned_ns;        /* what measuring routes took */
    tci_mutex progress_lock; /* guards */
    tc_progress progress;    /* what options.progress was told last */
    const int *cancel;       /* ends the compilers when it is not 0, or NULL */
} tci_jit;

TCI_FN void tci_jit_begin(tci_jit *j, tci_scratch *s, const tc_options *o,
                          const tci_backend *backend, const tci_disk *disk);
/* Whether it is compiled; else it is a user function that the host calls. */
TCI_FN bool tci_jit_takes(const tci_jit *j, const tci_kernel *k);
TCI_FN int tci_jit_add(tci_jit *j, const tci_kernel *k); /* its number; equal kernels share one */
TCI_FN void tci_jit_find(tci_jit *j);                    /* in loaded modules, then on disk */
TCI_FN tc_status tci_jit_find_compiler(tci_jit *j, tci_str *log);
/* Machine description for schedules, and a new dialect: of the backend with the compiler that was
 * found. */
TCI_FN tci_machine tci_jit_machine(const tci_jit *j);
TCI_FN struct tci_dialect *tci_jit_dialect(const tci_jit *j);
TCI_FN void tci_jit_schedule(tci_jit *j, bool verify);
TCI_FN void tci_jit_emit(tci_jit *j);
/* Launch data of a scheduled kernel; its texts belong to the jit. */
TCI_FN tci_kernel_record tci_jit_record(const tci_jit_kernel *k);
TCI_FN tc_status tci_jit_compile(tci_jit *j, tci_str *log); /* log: why it failed, for the user */
/* Calls options.progress. */
TCI_FN void tci_jit_tell_phase(tci_jit *j, tc_phase phase);
TCI_FN void tci_jit_end(tci_jit *j);

#endif
