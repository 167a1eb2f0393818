/* cuda/attention.h - the main loop of attention on Hopper's matrix units, as text. */
#ifndef TCI_CUDA_ATTENTION_H
#define TCI_CUDA_ATTENTION_H

#include "../loop/attention.h"
#include "matrix.h"

/* Definitions that every such kernel of a file shares, behind those of cuda/matrix.h. */
TCI_FN void tci_cuda_attention_prelude(tci_str *out);
/* The product of weights in registers and values in shared memory: once in a file. */
TCI_FN const char *tci_cuda_attention_product_name(tci_scratch *s, const tci_attention *x);
TCI_FN void tci_cuda_attention_product(tci_str *out, const char *name, const tci_attention *x);
/* The kernel up to its operands; from there to block i for scores, and behind it, up to the next
 * or to the hole for rows; and the end. */
TCI_FN void tci_cuda_attention_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words);
TCI_FN void tci_cuda_attention_score(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attention_scored(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attention_tail(tci_str *out);

#endif
