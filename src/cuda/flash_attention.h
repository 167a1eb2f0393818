/* cuda/flash_attention.h - declares the writer of CUDA source for fused attention and its gradients
 * (loop/flash_attention.h): the class of a kernel and its frame, and the device functions that the
 * frame calls, on tensor cores (cuda/wgmma_attention.c) or on threads (cuda/simt_attention.c). */
#ifndef TCI_CUDA_FLASH_ATTENTION_H
#define TCI_CUDA_FLASH_ATTENTION_H

#include "../loop/flash_attention.h"
#include "wgmma_gemm.h"

/* Definitions that kernels of a file share, after those of cuda/wgmma_gemm.c: of all attention, of
 * online chains and of gradients on tensor cores, and of both on threads. */
TCI_FN void tci_cuda_attention_prelude(tci_str *out);
TCI_FN void tci_cuda_online_prelude(tci_str *out);
TCI_FN void tci_cuda_backward_prelude(tci_str *out);
TCI_FN void tci_cuda_simt_attention_prelude(tci_str *out);
/* The product of pairs in registers and steps in shared memory: once in a file. */
TCI_FN const char *tci_cuda_attention_product_name(tci_scratch *s, const tci_matrix *x);
TCI_FN void tci_cuda_attention_product(tci_str *out, const char *name, const tci_matrix *x);

/* The kernel up to its operands; before slot i, and after it; and the end. */
TCI_FN void tci_cuda_attention_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words);
TCI_FN void tci_cuda_attention_open(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attention_close(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attention_tail(tci_str *out, const char *symbol, const tci_loop *l);

#endif
