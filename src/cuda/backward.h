/* cuda/backward.h - the main loop of attention's gradients on Hopper's matrix units, as text. */
#ifndef TCI_CUDA_BACKWARD_H
#define TCI_CUDA_BACKWARD_H

#include "../loop/backward.h"
#include "attention.h"

/* Definitions that every such kernel of a file shares, behind those of cuda/attention.h. */
TCI_FN void tci_cuda_backward_prelude(tci_str *out);
/* The kernel up to its operands; before block i of its scores, and behind it; and the end. */
TCI_FN void tci_cuda_backward_head(tci_str *out, const char *symbol, const tci_loop *l,
                                   int n_words);
TCI_FN void tci_cuda_backward_open(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_backward_close(tci_str *out, const char *symbol, const tci_loop *l, int i);

#endif
