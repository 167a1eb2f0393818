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
#endif

/* The backend of that name has found a device, whose memory the host may not be able to read. */
TCI_FN void tci_backend_has_memory(const char *name);
/* The functions of the backend of that name, whether or not it can work here; NULL: none. */
TCI_FN const tc_backend *tci_backend_calls(const char *name);
/* A backend with that target. */
TCI_FN void tci_backend_fill(tci_backend *b, const tc_backend *calls,
                             const tc_backend_target *target);
/* ---- compile/foreign.c ---- */
/* The backend of options.machine, which is not NULL. NULL: tci_foreign_missing says why. */
TCI_FN const tci_backend *tci_foreign_pick(const tc_options *o);
TCI_FN void tci_foreign_missing(tci_str *out, const tc_options *o);
/* What plans and schedules for this backend must know. */
TCI_FN tci_machine tci_backend_machine(const tci_backend *b, const tc_options *o);
#endif
