/* cuda/dialect.h - declares the CUDA C++ target of the source printer (emit/dialect.h): how types,
 * primitives and memory accesses are written. */
#ifndef TCI_CUDA_DIALECT_H
#define TCI_CUDA_DIALECT_H

#include "../emit/dialect.h"
#include "../loop/ir.h"

enum { TCI_CUDA_MAX_THREADS = 512, TCI_CUDA_THREAD_BYTES = 16 };

/* vector_bytes: of one thread's lanes. */
TCI_FN const tc_dialect *tci_cuda_words(void); /* what backends hand in */
TCI_FN tci_dialect *tci_dialect_cuda(tci_scratch *s, int vector_bytes);

#endif
