/* cuda/wgmma_attention.h - declares the CUDA code generator of fused attention on WGMMA: the main
 * loop. */
#ifndef TCI_CUDA_WGMMA_ATTENTION_H
#define TCI_CUDA_WGMMA_ATTENTION_H

#include "../loop/wgmma_attention.h"
#include "wgmma_gemm.h"

/* Definitions that every such kernel of a file shares, after those of cuda/wgmma_gemm.h. */
TCI_FN void tci_cuda_attention_prelude(tci_str *out);
/* The product of weights in registers and values in shared memory: once in a file. */
TCI_FN const char *tci_cuda_attention_product_name(tci_scratch *s, const tci_matrix *x);
TCI_FN void tci_cuda_attention_product(tci_str *out, const char *name, const tci_matrix *x);
/* Functions of a kernel's class (cuda/wgmma_attention_backward.c). NAME_end: the last of n, where
 * tiles of `tile` go beyond, as what is read for a row or step that does not exist is that of the
 * last one. */
TCI_FN void tci_cuda_attention_end(tci_str *out, const char *name, int64_t n, int tile);
/* order: the number of the tile that is in place t, longest first, by so many heads that what all
 * tiles of one read, `bytes`, stays near. rises: the first tiles of a head are the longest. */
TCI_FN void tci_cuda_attention_order(tci_str *out, const tci_matrix *s, int64_t bytes, bool rises);
/* seen: how many keys a query sees, and so all below it; steps_seen: of n keys whole steps up to
 * the last one that a query of the tile sees, one at least. */
TCI_FN void tci_cuda_attention_seen(tci_str *out, const tci_attention_cut *cut,
                                    const tci_matrix *s);
/* seen; end: steps_seen, or all; and the order of tiles. */
TCI_FN void tci_cuda_attention_cut(tci_str *out, const tci_attention *x);
/* Parts of a kernel: the batch of p as axes; the loop over tiles, with it; a warp's rows, from
 * `rows` on, of the accumulators that are left in shared memory. */
TCI_FN void tci_cuda_attention_batch(tci_str *out, const tci_matrix *s);
TCI_FN void tci_cuda_attention_tiles(tci_str *out, const char *symbol, const tci_matrix *s);
TCI_FN void tci_cuda_attention_rows(tci_str *out, const char *symbol, const tci_matrix *o);
/* The kernel up to its operands; from there to block i for scores, and after it, up to the next or
 * to the epilogue slot for rows; and the end. */
TCI_FN void tci_cuda_attention_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words);
TCI_FN void tci_cuda_attention_value(tci_str *out, const tci_matrix *s, int i);
TCI_FN void tci_cuda_attention_score(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attention_scored(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attention_tail(tci_str *out);

#endif
