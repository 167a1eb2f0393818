/* loop/simt_attention.h - declares fused attention without tensor cores (SIMT), forward and
 * backward: parameters of the kernel templates.
 *
 * The counterpart of loop/wgmma_attention.h and loop/wgmma_attention_backward.h, with the same
 * blocks and epilogue slot, for f32 and for half precision without tensor cores, on every GPU: a
 * block of TCI_FLASH_THREADS threads has a tile of rows, and iterates over blocks of the other side
 * (keys or queries), staged in shared memory as f32. Half a warp has every eighth row, each of its
 * lanes every 16th element of the block; each sum is accumulated sequentially. Scores pass between
 * lanes through shared memory of their own, so no rows x steps array is stored. */
#ifndef TCI_LOOP_SIMT_ATTENTION_H
#define TCI_LOOP_SIMT_ATTENTION_H

#include "wgmma_attention_backward.h"

enum {
    TCI_FLASH_THREADS = 128,
    TCI_FLASH_LANES = 16, /* that share a row, */
    TCI_FLASH_GROUPS = TCI_FLASH_THREADS / TCI_FLASH_LANES,
    TCI_FLASH_PAD = 4 /* and elements after each row in shared memory: banks differ */
};

/* Elements between rows of a factor in shared memory, of so many elements. */
static inline int tci_simt_attn_pitch(int64_t size)
{
    return (int)((size + 3) / 4 * 4) + TCI_FLASH_PAD;
}

/* The numbers of a tile worth weighing (rows, rows of a step), for both; how many. */
TCI_FN int tci_simt_attn_tiles(int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS]);
/* Bytes of shared memory. */
TCI_FN int64_t tci_simt_attn_bytes(const tci_attention *x);
TCI_FN int64_t tci_simt_attn_back_bytes(const tci_attn_grad *x);
/* The time of a kernel with such a tile; -1: it does not fit. */
TCI_FN double tci_simt_attn_ns(const tci_kernel *k, const tci_machine *machine,
                               const int64_t *tile);
TCI_FN double tci_simt_attn_back_ns(const tci_kernel *k, const tci_machine *machine,
                                    const int64_t *tile);
/* Its kernel template, for a tile that fits; of the launch, n_tasks and task_ns. */
TCI_FN void tci_simt_attn_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                               tci_launch *launch);
TCI_FN void tci_simt_attn_back_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                                    tci_launch *launch);

#endif
