/* cuda/wgmma_attention_backward.h - declares the CUDA code generator of the attention gradients on
 * WGMMA: prelude, main loop, epilogue. */
#ifndef TCI_CUDA_WGMMA_ATTENTION_BACKWARD_H
#define TCI_CUDA_WGMMA_ATTENTION_BACKWARD_H

#include "../loop/wgmma_attention_backward.h"
#include "wgmma_attention.h"

/* Number of a kernel's block (loop/wgmma_attention_backward.h). */
enum {
    TCI_CUDA_BACKWARD_VALUES,
    TCI_CUDA_BACKWARD_OFF,
    TCI_CUDA_BACKWARD_SCORE,
    TCI_CUDA_BACKWARD_SEEN,
    TCI_CUDA_BACKWARD_CHANGE,
    TCI_CUDA_BACKWARD_ROWS
};

/* Definitions that every such kernel of a file shares, after those of cuda/wgmma_attention.h. */
TCI_FN void tci_cuda_attn_grad_prelude(tci_str *out);
/* The kernel up to its operands; before block i of its scores, and after it; and the end. */
TCI_FN void tci_cuda_attn_grad_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words);
TCI_FN void tci_cuda_attn_grad_open(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attn_grad_close(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attn_grad_tail(tci_str *out, const char *symbol, const tci_loop *l);

/* Parts that the form by threads shares: which accumulators there are, in the class; which block i
 * is, and its end; the steps of a tile, one at least, whether all pairs of 64 rows and a step are
 * seen, and the order of tiles. */
TCI_FN void tci_cuda_attn_grad_sums(tci_str *out, const tci_attn_grad *x);
TCI_FN int tci_cuda_attn_grad_block(const tci_attn_grad *x, int i);
TCI_FN void tci_cuda_attn_grad_end(tci_str *out, const tci_attn_grad *x, int i);
TCI_FN void tci_cuda_attn_grad_cut(tci_str *out, const tci_attn_grad *x);

#endif
