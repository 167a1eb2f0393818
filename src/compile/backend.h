/* compile/backend.h - the registry behind api/backend.h, for the compile rooms. */
#ifndef TCI_COMPILE_BACKEND_H
#define TCI_COMPILE_BACKEND_H

#include "../emit/dialect.h"
#include "code.h"

/* cpu/backend.c. */
#ifdef TCI_HAS_CPU
TCI_FN const tc_backend *tci_cpu_backend(void);
#endif

/* cuda/backend.c. */
#ifdef TCI_HAS_CUDA
TCI_FN const tc_backend *tci_cuda_backend(void);
TCI_FN tci_dialect *tci_dialect_cuda(tci_scratch *s, int vector_bytes); /* cuda/dialect.c */
#endif

/* What plans and schedules for this backend must know. */
TCI_FN tci_machine tci_backend_machine(const tci_backend *b, const tc_options *o);
/* The dialect of that name for vectors of this width; NULL: this build does not have it. */
TCI_FN tci_dialect *tci_backend_dialect(tci_scratch *s, const char *name, int vector_bytes);

#endif
