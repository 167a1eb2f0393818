/* compile/backend_registry.h - registry of backends (CPU, CUDA, the user's): lookup and target
 * records. */
#ifndef TCI_COMPILE_BACKEND_REGISTRY_H
#define TCI_COMPILE_BACKEND_REGISTRY_H

#include "../emit/dialect.h"
#include "compiled_code.h"

/* cpu/backend.c. */
#ifdef TCI_HAS_CPU
TCI_FN const tc_backend *tci_cpu_backend(void);
#endif

/* cuda/backend.c. */
#if defined(TCI_HAS_CUDA) || defined(TCI_SEPARATE)
TCI_FN const tc_backend *tci_cuda_backend(void);
#endif

/* The backend of that name has found a device, whose memory the host may not be able to read. */
TCI_FN void tci_backend_has_memory(const char *name);
/* ---- compile/cross_target.c ---- */
/* The record of a machine. */
typedef struct tci_foreign_record {
    char backend[16];
    tc_backend_target target;
} tci_foreign_record;
/* By the name of one that comes with tc, or the path of a file. False: *why (heap) says why. */
TCI_FN bool tci_foreign_read(const char *name, tci_foreign_record *r, tci_str *why);
TCI_FN void tci_foreign_write(FILE *out, const tci_backend *b);
/* The compiler of a real backend, and stubs for what loads and runs. */
TCI_FN tc_backend tci_foreign_stubs(const tc_backend *real);
/* Machine description for plans and schedules of this backend. */
TCI_FN tci_machine tci_backend_machine(const tci_backend *b, const tc_options *o);
#endif
