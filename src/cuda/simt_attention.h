/* cuda/simt_attention.h - declares the CUDA code generator of fused attention, forward and
 * backward, on CUDA cores (no tensor cores). */
#ifndef TCI_CUDA_SIMT_ATTENTION_H
#define TCI_CUDA_SIMT_ATTENTION_H

#include "../loop/simt_attention.h"
#include "wgmma_attention.h"
#include "wgmma_attention_backward.h"

/* Definitions that every such kernel of a file shares, after those of cuda/wgmma_attention.h. */
TCI_FN void tci_cuda_simt_attn_prelude(tci_str *out);
/* True if the loop is one of these kernels. */
TCI_FN bool tci_cuda_is_simt_attn(const tci_loop *l);
/* The kernel up to its operands; before block i of its scores, and after it; and the end. */
TCI_FN void tci_cuda_simt_attn_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words);
TCI_FN void tci_cuda_simt_attn_open(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_simt_attn_close(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_simt_attn_tail(tci_str *out);

#endif
