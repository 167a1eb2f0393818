/* cuda/wgmma_gemm.h - declares the CUDA code generator of the WGMMA GEMM, and the launch metadata
 * (shared memory, block shape, tensor maps) that it embeds in the module, so that a cached cubin
 * has it too. */
#ifndef TCI_CUDA_WGMMA_GEMM_H
#define TCI_CUDA_WGMMA_GEMM_H

#include "../emit/dialect.h"
#include "../loop/ir.h"
#include "../loop/wgmma_gemm.h"

enum {
    TCI_CUDA_MAPS = 4,      /* at most */
    TCI_CUDA_MAP_WORDS = 16 /* 8-byte words of an encoded map */
};

/* A tensor map to encode for an operand's address: the arguments of cuTensorMapEncodeTiled; or,
 * where `axes` is not 0, of cuTensorMapEncodeIm2col: box[0] elements at each of box[1] positions,
 * which go over this many axes, dim[1] .., of images that dim[axes + 1] counts. */
typedef struct tci_cuda_map {
    int64_t operand;
    int64_t type; /* CU_TENSOR_MAP_DATA_TYPE_... */
    int64_t rank;
    int64_t offset;    /* bytes from the operand's start */
    int64_t dim[5];    /* the fastest first */
    int64_t stride[4]; /* bytes, of dim[1] .. */
    int64_t box[5];    /* elements that are loaded, */
    int64_t step[5];   /* one element of this many is loaded */
    int64_t axes;
    int64_t low[3], high[3]; /* first and last position, from the first and last element */
} tci_cuda_map;

/* The constant NAME_skeleton in the module of kernel NAME, all words of 8 bytes. */
typedef struct tci_cuda_skeleton {
    int64_t shared_bytes;
    int64_t block_x; /* threads that a row of the tile is spread over */
    int64_t block_y; /* 32 * warps / block_x */
    int64_t n_maps;
    tci_cuda_map maps[TCI_CUDA_MAPS];
} tci_cuda_skeleton;

/* Its parts for other templates: rows of m or n that the boxes of a side hold, the map of a side,
 * the text of its loads as a function `name`, and of the constant. */
TCI_FN int tci_cuda_wgmma_loaded(const tci_matrix *x, int which);
TCI_FN tci_cuda_map tci_cuda_wgmma_map(const tci_matrix *x, int which);
TCI_FN void tci_cuda_wgmma_loads(tci_str *out, const char *name, const tci_matrix *x, int which);
TCI_FN void tci_cuda_wgmma_place(tci_str *out, const tci_matrix *x);
TCI_FN void tci_cuda_skeleton_words(tci_str *out, const char *symbol, const tci_cuda_skeleton *k);
TCI_FN const char *tci_cuda_wgmma_type(const tci_matrix *x);

/* Definitions that every such kernel of a file shares. */
TCI_FN void tci_cuda_wgmma_prelude(tci_str *out);
/* The product that a kernel with this main loop calls: once in a file. */
TCI_FN const char *tci_cuda_wgmma_product_name(tci_scratch *s, const tci_matrix *x);
TCI_FN void tci_cuda_wgmma_product(tci_str *out, const char *name, const tci_matrix *x);
/* Where the operands of a kernel's struct of arguments are: the declaration and what opens it, of
 * blocks of this many warps, several at once on a CPU. */
TCI_FN void tci_cuda_skeleton_open(tci_str *out, const char *symbol, const tci_loop *l, int n_maps,
                                   int n_words, int warps, int blocks);
/* The values that its slots read of them. */
TCI_FN void tci_cuda_skeleton_args(tci_str *out);
/* The kernel up to the epilogue slot; and the text after it. */
TCI_FN void tci_cuda_wgmma_head(tci_str *out, const char *symbol, const tci_loop *l, int n_words);
TCI_FN void tci_cuda_wgmma_tail(tci_str *out, const char *symbol);

#endif
