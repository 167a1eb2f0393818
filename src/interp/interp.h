/* interp/interp.h - declares the interpreter: runs kernels without a compiler, in blocks over the
 * vector axis, with the same bits as generated code. Compiled into every build. */
#ifndef TCI_INTERP_INTERP_H
#define TCI_INTERP_INTERP_H

#include "../kernel/ir.h"

/* A kernel made ready for interpretation: owns copies of everything it needs, on the heap;
 * immutable afterwards and used from any thread. NULL: out of memory. */
typedef struct tci_interp tci_interp;
TCI_FN tci_interp *tci_interp_make(const tci_kernel *k);
TCI_FN void tci_interp_free(tci_interp *p);
/* interp/print.c: its steps, in the order in which they run. */
TCI_FN void tci_interp_print(tci_str *out, const tci_interp *p);
/* interp/verify_linear_ir.c; s only lends memory, and is the target of the longjmp. */
TCI_FN void tci_interp_verify(tci_scratch *s, const tci_interp *p);
TCI_FN size_t tci_interp_bytes(const tci_interp *p);     /* of memory that it holds */
TCI_FN int64_t tci_interp_tasks(const tci_interp *p);    /* n_tasks */
TCI_FN size_t tci_interp_workspace(const tci_interp *p); /* bytes one caller needs, 64-aligned */
/* As tci_kernel_fn, with the caller's workspace; allocates nothing. */
TCI_FN void tci_interp_run(const tci_interp *p, void *workspace, void *const *bufs,
                           const int64_t *lits, int64_t *fault, int64_t task_begin,
                           int64_t task_end);

#endif
