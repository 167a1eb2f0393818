/* cuda/emit_custom_op.h - declares the code generator for custom ops given as CUDA source: it emits
 * the user's source and a wrapper kernel that calls it. */
#ifndef TCI_CUDA_EMIT_CUSTOM_OP_H
#define TCI_CUDA_EMIT_CUSTOM_OP_H

#include "dialect.h"

/* The hook `call` of the dialect (emit/dialect.h). */
TCI_FN void tci_cuda_custom(tci_dialect *d, tci_str *out, const tci_kernel *k, const tci_launch *l,
                            const char *symbol);

#endif
