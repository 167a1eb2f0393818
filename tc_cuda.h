/* tc_cuda.h - generated: edit the rooms under src/ and run make. SPDX-License-Identifier: MIT */
/* ---- src/tc_cuda.h ---- */
/* src/tc_cuda.h - root of the CUDA backend: CUDA source by NVRTC. Brought in by tc.h under TC_CUDA,
 * with or without tc_cpu.h. */
/* ---- src/cuda/matrix.c ---- */
/* cuda/matrix.c - see cuda/matrix.h. The text of the main loop, in three layers:
 *   the prelude's small functions, one PTX instruction each; tests that run the text without a GPU
 *     define TC_NO_PTX and these names
 *   the prelude's templates tc_matrix_load and tc_matrix_multiply: two of the three parts that
 *     warps play (loop/matrix.h), over a class S that holds the numbers of one kernel
 *   the kernel: its class S, the split into parts, and the third part around the hole
 *
 * Shared memory, from a multiple of 1024: stages of A's and B's boxes, buffers for sums, barriers
 * (tc_full, tc_empty: one a stage; tc_ready, tc_taken: one a consumer; tc_done). A box is rows of
 * 128 bytes whose 16-byte chunks are swizzled (chunk ^= row % 8). Along k it has a row for each m
 * or n; else a row for each k and 64 elements of m or n, and the boxes of a side lie one behind the
 * other.
 *
 * Descriptors of products: the address / 16 in bits 0-13, the leading offset in 16-29, the stride
 * between groups of eight rows in 32-45, 1 << 62 for this swizzle. A product takes 32 bytes of k,
 * 16 elements, 8 of f32 or 32 bytes; so many further are 32 bytes along k, else 16 rows.
 *
 * Blocks that share a side write to each other's stages, so a stage is free when both have read
 * it: a consumer says so at both, by its first warp, as a product is done for all of its warps at
 * once. Not as a release of the cluster: no thread wrote what is ordered here, and a fence of the
 * whole device for each step takes longer than its products. A block's loader stays until its last
 * stages were freed, so that nothing arrives at a block that has ended.
 *
 * Invariants: tc_empty counts a stage's readers, four warps of each consumer or, of blocks that
 * share, one of each consumer of both; a buffer is written only when the one who filled it before
 * has had it taken; no barrier of the whole block after tc_matrix_begin, as its warps go different
 * ways. */
/* ---- src/cuda/matrix.h ---- */
/* cuda/matrix.h - the main loop of contractions on Hopper's matrix units, as text; and what a
 * module says of such a kernel, so that it is known wherever the cubin comes from. */
#ifndef TCI_CUDA_MATRIX_H
#define TCI_CUDA_MATRIX_H


enum {
    TCI_CUDA_MAPS = 4,      /* at most */
    TCI_CUDA_MAP_WORDS = 16 /* 8-byte words of an encoded map */
};

/* A tensor map to encode for an operand's address: the arguments of cuTensorMapEncodeTiled; or,
 * where `axes` is not 0, of cuTensorMapEncodeIm2col: box[0] elements at each of box[1] places,
 * which go over so many axes, dim[1] .., of images that dim[axes + 1] counts. */
typedef struct tci_cuda_map {
    int64_t operand;
    int64_t type;      /* CU_TENSOR_MAP_DATA_TYPE_... */
    int64_t rank;
    int64_t offset;    /* bytes from the operand's start */
    int64_t dim[5];    /* the fastest first */
    int64_t stride[4]; /* bytes, of dim[1] .. */
    int64_t box[5];    /* elements that are loaded, */
    int64_t step[5];   /* of every so many */
    int64_t axes;
    int64_t low[3], high[3]; /* where a place is first and last, from the first and last element */
} tci_cuda_map;

/* The constant NAME_skeleton in the module of kernel NAME, all words of 8 bytes. */
typedef struct tci_cuda_skeleton {
    int64_t shared_bytes;
    int64_t block_x;   /* threads that a row of the tile is spread over */
    int64_t block_y;   /* 32 * warps / block_x */
    int64_t n_maps;
    tci_cuda_map maps[TCI_CUDA_MAPS];
} tci_cuda_skeleton;

/* Its parts for other skeletons: rows of m or n that the boxes of a side hold, the map of a side,
 * the text of its loads as a function `name`, and of the constant. */
TCI_FN int tci_cuda_matrix_loaded(const tci_matrix *x, int which);
TCI_FN tci_cuda_map tci_cuda_matrix_map(const tci_matrix *x, int which);
TCI_FN void tci_cuda_matrix_loads(tci_str *out, const char *name, const tci_matrix *x, int which);
TCI_FN void tci_cuda_matrix_place(tci_str *out, const tci_matrix *x);
TCI_FN void tci_cuda_skeleton_words(tci_str *out, const char *symbol, const tci_cuda_skeleton *k);
TCI_FN const char *tci_cuda_matrix_type(const tci_matrix *x);

/* Definitions that every such kernel of a file shares. */
TCI_FN void tci_cuda_matrix_prelude(tci_str *out);
/* The product that a kernel with this main loop calls: once in a file. */
TCI_FN const char *tci_cuda_matrix_product_name(tci_scratch *s, const tci_matrix *x);
TCI_FN void tci_cuda_matrix_product(tci_str *out, const char *name, const tci_matrix *x);
/* Where the operands of a kernel's struct of arguments are: the declaration and what opens it, of
 * blocks of so many warps, several at once on a processor. */
TCI_FN void tci_cuda_skeleton_open(tci_str *out, const char *symbol, const tci_loop *l, int n_maps,
                                   int n_words, int warps, int blocks);
/* What its holes read of them. */
TCI_FN void tci_cuda_skeleton_args(tci_str *out);
/* The kernel up to the hole; and what follows on the hole. */
TCI_FN void tci_cuda_matrix_head(tci_str *out, const char *symbol, const tci_loop *l,
                                 int n_words);
TCI_FN void tci_cuda_matrix_tail(tci_str *out, const char *symbol);

#endif

/* ---- src/cuda/matrix.c, continued ---- */
#include <string.h>

enum {
    TCI_CUDA_MAP_U8 = 0,    /* CU_TENSOR_MAP_DATA_TYPE_UINT8: bytes of any signs */
    TCI_CUDA_MAP_F16 = 6,   /* CU_TENSOR_MAP_DATA_TYPE_FLOAT16 */
    TCI_CUDA_MAP_BF16 = 9,  /* ..._BFLOAT16 */
    TCI_CUDA_MAP_TF32 = 11, /* ..._TFLOAT32: f32 that is rounded on its way */
    TCI_CUDA_SUB_BYTES = 64 * TCI_MATRIX_LINE,
    TCI_CUDA_ORDER_ROWS = 2048 /* rows of a band of tiles, about: a round's tiles are a square */
};

/* ---- what the module says ---- */

/* Rows of m or n that the boxes of a side hold. Beyond the side's end nothing is loaded where one
 * tile is all of it: filling with zeros takes time, and what the products make of the rest of
 * shared memory is in rows and columns that are not stored. */
TCI_FN int tci_cuda_matrix_loaded(const tci_matrix *x, int which)
{
    int64_t own = which == 0 ? x->m : x->n, tile = which == 0 ? x->rows : x->columns;
    if (which == 1 && x->y_axis >= 0) { /* whole rows of an image */
        return x->own_columns;
    }
    int64_t whole = x->side[which].along_k ? 8 * tci_matrix_sharing(x, which) : TCI_MATRIX_SUB;
    return (int)(tci_dim_known(tci_dim_ceil_div(TCI_MIN(tile, own), whole)) * whole);
}

static int tci_cuda_matrix_bytes(const tci_matrix *x)
{
    return tci_dtype_get((tc_dtype)x->dtype)->bytes;
}

/* How many elements a box has along a side's axis for this axis of the kernel. */
static int64_t tci_cuda_matrix_extent(const tci_matrix *x, int which, int axis)
{
    int own = which == 0 ? x->m_axis : x->n_axis;
    bool images = which == 1 && x->y_axis >= 0;
    for (int i = 0; i < x->n_k; i++) {
        if (x->k_axis[i] == axis) {
            return x->k_block[i];
        }
    }
    if (images && axis == x->y_axis) {
        return x->own_columns / x->image_row;
    }
    return axis != own ? 1 : images ? x->image_row
           : x->side[which].along_k ? tci_cuda_matrix_loaded(x, which)
                                    : TCI_MATRIX_SUB;
}

static void tci_cuda_matrix_boxes(const tci_matrix *x, int which, tci_cuda_map *map)
{
    const tci_matrix_side *side = &x->side[which];
    map->rank = side->n_dims;
    for (int i = 0; i < side->n_dims; i++) {
        const tci_matrix_dim *d = &side->dims[i];
        map->dim[i] = d->size;
        map->box[i] = 1;
        if (i > 0) {
            map->stride[i - 1] = tci_cuda_matrix_bytes(x) * d->stride;
        }
        for (int a = 0; a < TCI_MATRIX_AXES; a++) {
            int64_t n = d->coef[a] != 0 ? tci_cuda_matrix_extent(x, which, a) : 1;
            map->box[i] = n > 1 ? n : map->box[i];
            map->step[i] = n > 1 ? d->coef[a] : map->step[i];
        }
    }
}

/* Along an axis of images: what the elements of a window add at least to a place's coordinate. */
static int64_t tci_cuda_matrix_least(const tci_matrix *x, const tci_matrix_dim *d)
{
    int64_t least = 0;
    for (int i = 0; i < x->n_k; i++) {
        least += TCI_MIN(d->coef[x->k_axis[i]] * (x->k_sizes[i] - 1), 0);
    }
    return least;
}

/* A's images, where rows are places of them. */
static void tci_cuda_matrix_images(const tci_matrix *x, tci_cuda_map *map)
{
    const tci_matrix_side *side = &x->side[0];
    map->axes = x->n_places - !x->one_image;
    map->rank = map->axes + 2;
    map->box[0] = TCI_MATRIX_DEPTH_STEP;
    map->box[1] = tci_cuda_matrix_loaded(x, 0);
    for (int i = 0; i < map->rank; i++) {
        bool counts = i == map->rank - 1 && x->one_image;
        map->dim[i] = counts ? 1 : side->dims[i].size;
        if (i > 0) { /* one image is followed by none */
            map->stride[i - 1] = 2 * (counts ? side->dims[i - 1].stride * side->dims[i - 1].size
                                             : side->dims[i].stride);
        }
    }
    for (int i = 0; i < map->axes; i++) {
        const tci_matrix_dim *d = &side->dims[1 + i];
        map->step[1 + i] = d->coef[x->place_axis[i]];
        map->low[i] = d->base + tci_cuda_matrix_least(x, d);
        map->high[i] = map->low[i] + map->step[1 + i] * (x->place_sizes[i] - 1) + 1 - d->size;
    }
}

TCI_FN tci_cuda_map tci_cuda_matrix_map(const tci_matrix *x, int which)
{
    const tci_matrix_side *side = &x->side[which];
    int64_t own = which == 0 ? x->m : x->n, bytes = tci_cuda_matrix_bytes(x);
    tci_cuda_map map;
    memset(&map, 0, sizeof(map));
    map.operand = side->operand;
    map.type = x->dtype == TC_F16   ? TCI_CUDA_MAP_F16
               : x->dtype == TC_F32 ? TCI_CUDA_MAP_TF32
               : x->dtype == TC_I8  ? TCI_CUDA_MAP_U8
                                    : TCI_CUDA_MAP_BF16;
    map.rank = 2;
    map.offset = bytes * side->offset;
    for (int i = 0; i < TCI_COUNT(map.step); i++) {
        map.step[i] = 1;
    }
    if (which == 0 && x->n_places > 0) {
        tci_cuda_matrix_images(x, &map);
        return map;
    }
    if (x->is_boxes) {
        tci_cuda_matrix_boxes(x, which, &map);
        return map;
    }
    map.dim[0] = side->along_k ? x->k : own;
    map.dim[1] = side->along_k ? own : x->k;
    map.stride[0] = bytes * side->pitch;
    map.box[0] = tci_matrix_depth(x);
    map.box[1] = side->along_k ? tci_cuda_matrix_loaded(x, which) : tci_matrix_depth(x);
    map.box[1] /= tci_matrix_sharing(x, which);
    for (int i = 0; i < x->n_batch; i++) {
        if (side->batch_pitch[i] != 0) {
            map.dim[map.rank] = x->batch[i];
            map.stride[map.rank - 1] = bytes * side->batch_pitch[i];
            map.box[map.rank++] = 1;
        }
    }
    return map;
}

static tci_cuda_skeleton tci_cuda_matrix_describe(const tci_matrix *x)
{
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = tci_matrix_shared_bytes(x);
    int warps = 4 * x->consumers + 1 + x->last_warps;
    k.block_x = x->row_threads;
    k.block_y = TCI_MATRIX_WARP * warps / x->row_threads;
    k.n_maps = 2;
    k.maps[0] = tci_cuda_matrix_map(x, 0);
    k.maps[1] = tci_cuda_matrix_map(x, 1);
    return k;
}

/* ---- the prelude ---- */

static const char tci_cuda_matrix_ptx[] =
    "struct __align__(64) tc_map { unsigned long long q[16]; };\n"
    "struct tc_place { int m, n, b0, b1, b2, b3; };\n"
    "#ifndef TC_NO_PTX\n"
    "#define TC_MULTIPLY(type, columns, ta, tb) tc_multiply_##type##_##columns##_##ta##tb\n"
    "#define TC_SHARED extern __shared__ __align__(1024) unsigned char tc_shared[]\n"
    "TC_I unsigned tc_shared_at(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }\n"
    "TC_I void tc_shared_written() { asm volatile(\"fence.proxy.async.shared::cta;\" ::: "
    "\"memory\"); }\n"
    "TC_I void tc_barrier_init(unsigned bar, int arrivals) {\n"
    "    asm volatile(\"mbarrier.init.shared::cta.b64 [%0], %1;\" :: \"r\"(bar), "
    "\"r\"(arrivals));\n}\n"
    "TC_I void tc_barrier_init_done() {\n"
    "    asm volatile(\"fence.mbarrier_init.release.cluster;\" ::: \"memory\");\n}\n"
    "TC_I void tc_barrier_arrive(unsigned bar) {\n"
    "    asm volatile(\"mbarrier.arrive.shared::cta.b64 _, [%0];\" :: \"r\"(bar) : "
    "\"memory\");\n}\n"
    "TC_I void tc_barrier_expect(unsigned bar, int bytes) {\n"
    "    asm volatile(\"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\" :: \"r\"(bar), "
    "\"r\"(bytes) : \"memory\");\n}\n"
    "TC_I void tc_barrier_wait(unsigned bar, unsigned parity) {\n    unsigned done;\n    do {\n"
    "        asm volatile(\"{\\n.reg .pred p;\\n"
    "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\\nselp.u32 %0, 1, 0, p;\\n}\"\n"
    "            : \"=r\"(done) : \"r\"(bar), \"r\"(parity) : \"memory\");\n"
    "    } while (!done);\n}\n"
    "TC_I void tc_barrier_arrive_at(unsigned bar, int block) {\n"
    "    asm volatile(\"{\\n.reg .b32 at;\\nmapa.shared::cluster.u32 at, %0, %1;\\n"
    "mbarrier.arrive.shared::cluster.b64 _, [at];\\n}\" :: \"r\"(bar), "
    "\"r\"(block) : \"memory\");\n}\n"
    "TC_I void tc_blocks_meet() {\n"
    "    asm volatile(\"barrier.cluster.arrive.relaxed.aligned;\\n"
    "barrier.cluster.wait.acquire.aligned;\" ::: \"memory\");\n}\n"
    "#define TC_LOAD_BOX(rank, list, ...) asm volatile(\"cp.async.bulk.tensor.\" rank "
    "\"d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {\" list \"}], [%2];\" "
    ":: \"r\"(to), \"l\"(map), \"r\"(bar), __VA_ARGS__ : \"memory\")\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b) {\n"
    "    TC_LOAD_BOX(\"2\", \"%3, %4\", \"r\"(a), \"r\"(b));\n}\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c) {\n"
    "    TC_LOAD_BOX(\"3\", \"%3, %4, %5\", \"r\"(a), \"r\"(b), \"r\"(c));\n}\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d) {\n"
    "    TC_LOAD_BOX(\"4\", \"%3, %4, %5, %6\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d));\n}\n"
    "TC_I void tc_load_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, int e) {\n"
    "    TC_LOAD_BOX(\"5\", \"%3, %4, %5, %6, %7\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d), "
    "\"r\"(e));\n}\n"
    "#define TC_SHARE_BOX(rank, list, ...) asm volatile(\"cp.async.bulk.tensor.\" rank "
    "\"d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {\" "
    "list \"}], [%2], %3;\" :: \"r\"(to), \"l\"(map), \"r\"(bar), \"h\"((unsigned short)3), "
    "__VA_ARGS__ : \"memory\")\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b) {\n"
    "    TC_SHARE_BOX(\"2\", \"%4, %5\", \"r\"(a), \"r\"(b));\n}\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c) {\n"
    "    TC_SHARE_BOX(\"3\", \"%4, %5, %6\", \"r\"(a), \"r\"(b), \"r\"(c));\n}\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d) {\n"
    "    TC_SHARE_BOX(\"4\", \"%4, %5, %6, %7\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d));\n}\n"
    "TC_I void tc_share_box(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, int e) {\n"
    "    TC_SHARE_BOX(\"5\", \"%4, %5, %6, %7, %8\", \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d), "
    "\"r\"(e));\n}\n"
    "#endif\n";

/* Registers, products, what leaves them. */
static const char tci_cuda_matrix_products_ptx[] =
    "#ifndef TC_NO_PTX\n"
    "template <int n> TC_I void tc_take_registers() {\n"
    "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "template <int n> TC_I void tc_leave_registers() {\n"
    "    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "TC_I void tc_products_begin() {\n"
    "    asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n}\n"
    "TC_I void tc_products_commit() {\n"
    "    asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n}\n"
    "template <int left> TC_I void tc_products_wait() {\n"
    "    asm volatile(\"wgmma.wait_group.sync.aligned %0;\" :: \"n\"(left) : \"memory\");\n}\n"
    "TC_I unsigned tc_pair_f16(float low, float high) {\n    unsigned r;\n"
    "    asm(\"cvt.rn.f16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(high), \"f\"(low));\n"
    "    return r;\n}\n"
    "TC_I void tc_store_squares(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d) {\n"
    "    asm volatile(\"stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};\"\n"
    "        :: \"r\"(to), \"r\"(a), \"r\"(b), \"r\"(c), \"r\"(d) : \"memory\");\n}\n"
    "TC_I void tc_store_two(unsigned to, float a, float b) {\n"
    "    asm volatile(\"st.shared::cta.v2.f32 [%0], {%1, %2};\" :: \"r\"(to), \"f\"(a), \"f\"(b) "
    ": \"memory\");\n}\n"
    "TC_I void tc_store_two(unsigned to, int a, int b) {\n"
    "    asm volatile(\"st.shared::cta.v2.b32 [%0], {%1, %2};\" :: \"r\"(to), \"r\"(a), \"r\"(b) "
    ": \"memory\");\n}\n"
    "#endif\n";

/* Loads of places of images: coordinates of the first one, and offsets. */
static const char tci_cuda_matrix_places[] =
    "#ifndef TC_NO_PTX\n"
    "#define TC_LOAD_PLACES(rank, list, offsets, ...) asm volatile(\"cp.async.bulk.tensor.\" rank "
    "\"d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {\" list \"}], "
    "[%2], {\" offsets \"};\" :: \"r\"(to), \"l\"(map), \"r\"(bar), __VA_ARGS__ : \"memory\")\n"
    "TC_I void tc_load_places(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "unsigned short u) {\n"
    "    TC_LOAD_PLACES(\"3\", \"%3, %4, %5\", \"%6\", \"r\"(a), \"r\"(b), \"r\"(c), "
    "\"h\"(u));\n}\n"
    "TC_I void tc_load_places(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, unsigned short u, unsigned short v) {\n"
    "    TC_LOAD_PLACES(\"4\", \"%3, %4, %5, %6\", \"%7, %8\", \"r\"(a), \"r\"(b), \"r\"(c), "
    "\"r\"(d), \"h\"(u), \"h\"(v));\n}\n"
    "TC_I void tc_load_places(unsigned to, const tc_map *map, unsigned bar, int a, int b, int c, "
    "int d, int e, unsigned short u, unsigned short v, unsigned short w) {\n"
    "    TC_LOAD_PLACES(\"5\", \"%3, %4, %5, %6, %7\", \"%8, %9, %10\", \"r\"(a), \"r\"(b), "
    "\"r\"(c), \"r\"(d), \"r\"(e), \"h\"(u), \"h\"(v), \"h\"(w));\n}\n"
    "#endif\n";

/* Barriers and loading. tc_warp_arrive: one arrival of a warp, after what all its threads did. */
static const char tci_cuda_matrix_loading[] =
    "template <class S> TC_I int tc_warp() { return threadIdx.y * S::row_threads / 32; }\n"
    "template <class S> TC_I int tc_warp_lane() {\n"
    "    return threadIdx.x + threadIdx.y * S::row_threads % 32;\n}\n"
    "template <class S> TC_I void tc_warp_arrive(unsigned bar) {\n    __syncwarp();\n"
    "    if (tc_warp_lane<S>() == 0) {\n        tc_barrier_arrive(bar);\n    }\n}\n"
    "TC_I unsigned long long tc_box(unsigned at) {\n"
    "    return (unsigned long long)((at & 0x3ffff) >> 4) | (8192ull >> 4) << 16 | "
    "(1024ull >> 4) << 32 | 1ull << 62;\n}\n"
    "template <class S> TC_I unsigned tc_full(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * i;\n}\n"
    "template <class S> TC_I unsigned tc_empty(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * (S::stages + i);\n}\n"
    "template <class S> TC_I unsigned tc_ready(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * (2 * S::stages + i);\n}\n"
    "template <class S> TC_I unsigned tc_taken(unsigned at, int i) {\n"
    "    return at + S::barriers + 8 * (2 * S::stages + S::consumers + i);\n}\n"
    "template <class S> TC_I unsigned tc_done(unsigned at) {\n"
    "    return at + S::barriers + 8 * (2 * S::stages + 2 * S::consumers);\n}\n"
    "template <class S> TC_I int tc_staged(int row) {\n"
    "    return S::stages * S::stage_bytes + row * S::staged_pitch * S::staged_bytes;\n}\n"
    "template <class S> TC_I void tc_matrix_begin(unsigned at) {\n"
    "    if constexpr (S::k_rows < S::depth) { /* what follows them is zeros, always */\n"
    "        TC_SHARED;\n"
    "        unsigned *stages = (unsigned *)(tc_shared + (at - tc_shared_at(tc_shared)));\n"
    "        const int threads = 32 * (4 * S::consumers + 1 + S::last_warps);\n"
    "        for (int i = 32 * tc_warp<S>() + tc_warp_lane<S>(); i < S::stages * S::stage_bytes / "
    "4;\n             i += threads) {\n            stages[i] = 0;\n        }\n"
    "        tc_shared_written();\n    }\n"
    "    if (threadIdx.x == 0 && threadIdx.y == 0) {\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_init(tc_full<S>(at, i), 1);\n"
    "            tc_barrier_init(tc_empty<S>(at, i), S::readers);\n        }\n"
    "        for (int i = 0; i < S::consumers; i++) {\n"
    "            tc_barrier_init(tc_ready<S>(at, i), 4);\n"
    "            tc_barrier_init(tc_taken<S>(at, i), S::last_warps);\n        }\n"
    "        tc_barrier_init(tc_done<S>(at), 4 * S::consumers);\n"
    "        tc_barrier_init_done();\n    }\n"
    "    if constexpr (S::blocks > 1) {\n        tc_blocks_meet();\n    } else {\n"
    "        __syncthreads();\n    }\n}\n"
    "template <class S> TC_I void tc_stage_free(unsigned at, int stage) {\n"
    "    if constexpr (S::blocks > 1) {\n"
    "        if (tc_warp<S>() % 4 == 0 && tc_warp_lane<S>() < S::blocks) {\n"
    "            tc_barrier_arrive_at(tc_empty<S>(at, stage), tc_warp_lane<S>());\n        }\n"
    "    } else {\n        tc_warp_arrive<S>(tc_empty<S>(at, stage));\n    }\n}\n"
    "template <class S> TC_I void tc_matrix_load(unsigned at, const tc_map *maps) {\n"
    "    int stage = 0;\n    unsigned parity = 1;\n"
    "    for (int t = blockIdx.x; t < S::tiles; t += gridDim.x) {\n"
    "        const tc_place p = S::place(t);\n"
    "        for (int k = 0; k < S::k; k += S::depth) {\n"
    "            const unsigned boxes = at + stage * S::stage_bytes;\n"
    "            const unsigned full = tc_full<S>(at, stage);\n"
    "            tc_barrier_wait(tc_empty<S>(at, stage), parity);\n"
    "            tc_barrier_expect(full, S::loaded_bytes);\n"
    "            S::load_a(boxes, maps, full, p, k);\n"
    "            S::load_b(boxes + S::a_bytes, maps + 1, full, p, k);\n"
    "            if (++stage == S::stages) {\n                stage = 0;\n"
    "                parity ^= 1;\n            }\n        }\n    }\n"
    "    if constexpr (S::blocks > 1) { /* which free each other's stages, up to the last */\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_wait(tc_empty<S>(at, stage), parity);\n"
    "            if (++stage == S::stages) {\n                stage = 0;\n"
    "                parity ^= 1;\n            }\n        }\n    }\n}\n";

static const char tci_cuda_matrix_multiplying[] =
    "template <class S, class D>\n"
    "TC_I void tc_matrix_leave(const D (&d)[S::columns / 2], unsigned to) {\n"
    "    const int lane = tc_warp_lane<S>(), row = 16 * (tc_warp<S>() & 3);\n"
    "    if constexpr (S::staged_bytes == 4) {\n"
    "        const unsigned at = to + 4 * ((row + lane / 4) * S::staged_pitch + 2 * (lane & 3));\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::columns / 2; i += 2) {\n"
    "            tc_store_two(at + 4 * (i / 2 % 2 * 8 * S::staged_pitch + i / 4 * 8), d[i], "
    "d[i + 1]);\n        }\n        return;\n    }\n"
    "    const unsigned at = to + 2 * ((row + lane % 16) * S::staged_pitch + lane / 16 * 8);\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::columns / 2; i += 8) {\n"
    "        tc_store_squares(at + 4 * i, S::pair(d[i], d[i + 1]), S::pair(d[i + 2], d[i + 3]),\n"
    "                         S::pair(d[i + 4], d[i + 5]), S::pair(d[i + 6], d[i + 7]));\n"
    "    }\n}\n"
    "template <class S, class D = float> TC_I void tc_matrix_multiply(unsigned at, int group) {\n"
    "    D d[S::sub_rows][S::columns / 2];\n    int stage = 0, before = 0;\n"
    "    const int user = S::buffers == 1 ? (group + S::consumers - 1) % S::consumers : group;\n"
    "    const int buffer = S::buffers == 1 ? 0 : group;\n"
    "    unsigned parity = 0, taken = S::buffers > 1 || group == 0;\n"
    "    for (int t = blockIdx.x; t < S::tiles; t += gridDim.x) {\n"
    "        for (int k = 0; k < S::k; k += S::depth) {\n"
    "            const unsigned boxes = at + stage * S::stage_bytes;\n"
    "            tc_barrier_wait(tc_full<S>(at, stage), parity);\n"
    "            const unsigned long long a = tc_box(boxes + group * S::sub_rows * 8192);\n"
    "            const unsigned long long b = tc_box(boxes + S::a_bytes);\n"
    "            tc_products_begin();\n"
    "#pragma unroll\n"
    "            for (int i = 0; i < 4; i++) {\n"
    "#pragma unroll\n"
    "                for (int r = 0; r < S::sub_rows; r++) {\n"
    "                    S::multiply(d[r], a + 512 * r + S::a_step * i, b + S::b_step * i, "
    "k + i > 0);\n                }\n            }\n"
    "            tc_products_commit();\n            tc_products_wait<1>();\n"
    "            if (k > 0) {\n                tc_stage_free<S>(at, before);\n"
    "            }\n            before = stage;\n"
    "            if (++stage == S::stages) {\n                stage = 0;\n"
    "                parity ^= 1;\n            }\n        }\n"
    "        tc_products_wait<0>();\n        tc_stage_free<S>(at, before);\n"
    "        tc_barrier_wait(tc_taken<S>(at, user), taken);\n        taken ^= 1;\n"
    "#pragma unroll\n"
    "        for (int r = 0; r < S::sub_rows; r++) {\n"
    "            tc_matrix_leave<S>(d[r], at + tc_staged<S>((buffer * S::sub_rows + r) * 64));\n"
    "        }\n        tc_warp_arrive<S>(tc_ready<S>(at, group));\n    }\n"
    "    tc_warp_arrive<S>(tc_done<S>(at));\n}\n";


TCI_FN void tci_cuda_matrix_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_matrix_ptx);
    tci_str_add(out, tci_cuda_matrix_products_ptx);
    tci_str_add(out, tci_cuda_matrix_places);
    tci_str_add(out, tci_cuda_matrix_loading);
    tci_str_add(out, tci_cuda_matrix_multiplying);
}

/* ---- products ---- */

TCI_FN const char *tci_cuda_matrix_type(const tci_matrix *x)
{
    static const char *const bytes[4] = {"s8s8", "s8u8", "u8s8", "u8u8"};
    return x->dtype == TC_F16   ? "f16"
           : x->dtype == TC_F32 ? "tf32"
           : x->dtype == TC_I8  ? bytes[2 * x->side[0].is_unsigned + x->side[1].is_unsigned]
                                : "bf16";
}

/* In the product's name in PTX: sums, A and B. */
static const char *tci_cuda_matrix_ptx_type(tci_scratch *s, const tci_matrix *x)
{
    const char *type = tci_cuda_matrix_type(x);
    return x->dtype == TC_I8 ? tci_scratch_printf(s, "s32.%.2s.%s", type, type + 2)
                             : tci_scratch_printf(s, "f32.%s.%s", type, type);
}

/* Of a sum. */
static const char *tci_cuda_matrix_sum(const tci_matrix *x)
{
    return x->dtype == TC_I8 ? "int" : "float";
}

TCI_FN const char *tci_cuda_matrix_product_name(tci_scratch *s, const tci_matrix *x)
{
    return tci_scratch_printf(s, "tc_multiply_%s_%d_%d%d", tci_cuda_matrix_type(x), x->columns,
                              !x->side[0].along_k, !x->side[1].along_k);
}

TCI_FN void tci_cuda_matrix_product(tci_str *out, const char *name, const tci_matrix *x)
{
    bool bytes = x->dtype == TC_I8;
    int n = x->columns / 2;
    tci_str_printf(out,
                   "#ifndef TC_NO_PTX\nTC_I void %s(%s (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n"
                   "wgmma.mma_async.sync.aligned.m64n%dk%d.%s {",
                   name, tci_cuda_matrix_sum(x), n, n + 2, x->columns,
                   32 / tci_cuda_matrix_bytes(x), tci_cuda_matrix_ptx_type(out->s, x));
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s%%%d", i ? ", " : "", i);
    }
    tci_str_printf(out, "}, %%%d, %%%d, p%s", n, n + 1, bytes ? "" : ", 1, 1");
    if (tci_dtype_is_half((tc_dtype)x->dtype)) { /* others are not turned on their way */
        tci_str_printf(out, ", %d, %d", !x->side[0].along_k, !x->side[1].along_k);
    }
    tci_str_add(out, ";\\n}\"\n        : ");
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s\"+%c\"(d[%d])", i ? ", " : "", bytes ? 'r' : 'f', i);
    }
    tci_str_add(out, " : \"l\"(a), \"l\"(b), \"r\"(add));\n}\n#endif\n");
}

/* ---- the kernel ---- */

TCI_FN void tci_cuda_skeleton_words(tci_str *out, const char *symbol, const tci_cuda_skeleton *k)
{
    int64_t words[sizeof(*k) / sizeof(int64_t)];
    memcpy(words, k, sizeof(*k));
    tci_str_printf(out, "extern \"C\" __constant__ long long "
                   "%s_skeleton[] = {", symbol);
    for (int i = 0; i < TCI_COUNT(words); i++) {
        tci_str_printf(out, "%s%lld", i ? ", " : "", (long long)words[i]);
    }
    tci_str_add(out, "};\n");
}

/* Begins a load of one stage: with the first element of a step along each contracted axis: k0, k1,
 * .., the last one fastest. */
static void tci_cuda_matrix_load_head(tci_str *out, const char *name, const tci_matrix *x)
{
    int64_t below = tci_matrix_depth(x);
    tci_str_printf(out,
                   "    TC_I void %s(unsigned to, const tc_map *map, unsigned bar, "
                   "tc_place p, int k) {\n", name);
    for (int i = x->n_k - 1; i >= 0; i--) {
        int64_t n = tci_dim_known(tci_dim_ceil_div(x->k_sizes[i], x->k_block[i]));
        tci_str_printf(out, "        const int k%d = k / %lld %% %lld * %d;\n", i,
                       (long long)below, (long long)n, x->k_block[i]);
        below *= n;
    }
}

/* What says where axis a of the kernel stands. */
static const char *tci_cuda_matrix_where(const tci_matrix *x, int a)
{
    static const char *const batch[TCI_MATRIX_BATCH] = {"p.b0", "p.b1", "p.b2", "p.b3"};
    static const char *const k[TCI_MATRIX_K_AXES] = {"k0", "k1", "k2", "k3"};
    for (int i = 0; i < x->n_batch; i++) {
        if (x->batch_axis[i] == a) {
            return batch[i];
        }
    }
    for (int i = 0; i < x->n_k; i++) {
        if (x->k_axis[i] == a) {
            return k[i];
        }
    }
    return a == x->m_axis ? "p.m" : x->y_axis < 0 ? "p.n" : a == x->y_axis ? "p.n / row" : NULL;
}

/* Loads the boxes of one stage of a side that is an array: a box for every 64 of its own axis where
 * that lies fastest, else one. */
static void tci_cuda_matrix_load_boxes(tci_str *out, const char *name, const tci_matrix *x,
                                       int which)
{
    const tci_matrix_side *side = &x->side[which];
    int n = side->along_k ? 1 : tci_cuda_matrix_loaded(x, which) / TCI_MATRIX_SUB;
    tci_cuda_matrix_load_head(out, name, x);
    if (which == 1 && x->y_axis >= 0) {
        tci_str_printf(out, "        const int row = %lld;\n", (long long)x->image_row);
    }
    tci_str_printf(out,
                   "        for (int i = 0; i < %d; i++) {\n"
                   "            tc_load_box(to + %d * i, map, bar",
                   n, TCI_CUDA_SUB_BYTES);
    for (int i = 0; i < side->n_dims; i++) {
        const tci_matrix_dim *d = &side->dims[i];
        tci_str_printf(out, ", %lld", (long long)d->base);
        for (int a = 0; a < TCI_MATRIX_AXES; a++) {
            const char *where = d->coef[a] != 0 ? tci_cuda_matrix_where(x, a) : NULL;
            if (where) {
                tci_str_printf(out, " + %d * (%s)", d->coef[a], where);
            }
        }
        tci_str_add(out, i == 0 && !side->along_k ? " + 64 * i" : "");
    }
    tci_str_add(out, ");\n        }\n    }\n");
}

/* Loads what A's rows, places of images, have for one stage: where the first of them begins, and
 * for each axis the window's element of this step. */
static void tci_cuda_matrix_load_places(tci_str *out, const char *name, const tci_matrix *x)
{
    const tci_matrix_side *side = &x->side[0];
    int axes = x->n_places - !x->one_image;
    long long below = 1;
    tci_cuda_matrix_load_head(out, name, x);
    tci_str_add(out, "        tc_load_places(to, map, bar");
    for (int i = 0; i < x->n_k; i++) {
        tci_str_printf(out, side->dims[0].coef[x->k_axis[i]] != 0 ? ", k%d" : "", i);
    }
    for (int i = 0; i < axes; below *= x->place_sizes[i++]) {
        const tci_matrix_dim *d = &side->dims[1 + i];
        tci_str_printf(out, ", %lld + %d * (p.m / %lld %% %lld)",
                       (long long)(d->base + tci_cuda_matrix_least(x, d)),
                       d->coef[x->place_axis[i]], below, (long long)x->place_sizes[i]);
    }
    tci_str_printf(out, x->one_image ? ", 0" : ", p.m / %lld", below);
    for (int i = 0; i < axes; i++) {
        tci_str_add(out, ", 0");
        for (int a = 0; a < x->n_k; a++) {
            int coef = side->dims[1 + i].coef[x->k_axis[a]];
            if (coef > 0) {
                tci_str_printf(out, " + %d * k%d", coef, a);
            } else if (coef < 0) {
                tci_str_printf(out, " + %d * (%lld - k%d)", -coef, (long long)x->k_sizes[a] - 1, a);
            }
        }
    }
    tci_str_add(out, ");\n    }\n");
}

/* Loads the boxes of one stage of A or B. */
TCI_FN void tci_cuda_matrix_loads(tci_str *out, const char *name, const tci_matrix *x, int which)
{
    if (which == 0 && x->n_places > 0) {
        tci_cuda_matrix_load_places(out, name, x);
        return;
    }
    if (x->is_boxes) {
        tci_cuda_matrix_load_boxes(out, name, x, which);
        return;
    }
    const tci_matrix_side *side = &x->side[which];
    char own = "mn"[which];
    bool shared = tci_matrix_sharing(x, which) > 1;
    const char *how = shared ? "share" : "load";
    int rows = (side->along_k ? tci_cuda_matrix_loaded(x, which) : tci_matrix_depth(x)) / 2;
    tci_str_printf(out,
                   "    TC_I void %s(unsigned to, const tc_map *map, unsigned bar, "
                   "tc_place p, int k) {\n",
                   name);
    if (shared) { /* rows of the boxes that this block loads for both */
        tci_str_printf(out,
                       "        const int rows = blockIdx.x %% 2 * %d;\n        to += %d * rows;\n",
                       rows, TCI_MATRIX_LINE);
        tci_str_printf(out, side->along_k ? "        p.%c += rows;\n" : "        k += rows;\n",
                       own);
    }
    if (side->along_k) {
        tci_str_printf(out, "        tc_%s_box(to, map, bar, k, p.%c", how, own);
    } else {
        tci_str_printf(out,
                       "        for (int i = 0; i < %d; i++) {\n"
                       "            tc_%s_box(to + %d * i, map, bar, p.%c + %d * i, k",
                       tci_cuda_matrix_loaded(x, which) / TCI_MATRIX_SUB, how, TCI_CUDA_SUB_BYTES,
                       own, TCI_MATRIX_SUB);
    }
    for (int i = 0; i < x->n_batch; i++) {
        if (side->batch_pitch[i] != 0) {
            tci_str_printf(out, ", p.b%d", i);
        }
    }
    tci_str_add(out, side->along_k ? ");\n    }\n" : ");\n        }\n    }\n");
}

/* Tile t: bands of rows, about as high as each other; inside them columns, inside them rows; the
 * batch is slowest. Blocks that share a side are at neighbours: as many columns lie side by side,
 * or a band has a multiple of as many rows. */
TCI_FN void tci_cuda_matrix_place(tci_str *out, const tci_matrix *x)
{
    const int most = TCI_MAX(TCI_CUDA_ORDER_ROWS / x->rows, 1);
    const int beside = tci_matrix_sharing(x, 0), below = tci_matrix_sharing(x, 1);
    tci_dim bands = tci_dim_ceil_div(x->tiles_m, most);
    int band = (int)tci_dim_known(tci_dim_ceil_div(x->tiles_m, bands));
    band += (below - band % below) % below;
    long long each = (long long)(x->tiles_m * x->tiles_n);
    tci_str_printf(out,
                   "    TC_I tc_place place(int t) {\n        tc_place p = {0, 0, 0, 0, 0, 0};\n"
                   "        const int in = t %% %lld, first = in / %lld * %d;\n"
                   "        const int left = %lld - first, rows = left < %d ? left : %d;\n"
                   "        p.m = (first + in %% %lld / %d %% rows) * %d;\n"
                   "        p.n = (in %% %lld / (%d * rows) * %d + in %% %d) * %d;\n",
                   each, (long long)x->tiles_n * band, band, (long long)x->tiles_m, band, band,
                   (long long)x->tiles_n * band, beside, x->rows, (long long)x->tiles_n * band,
                   beside, beside, beside, x->own_columns);
    for (int i = x->n_batch - 1; i >= 0; i--) {
        tci_str_printf(out, "        p.b%d = t / %lld %% %lld;\n", i, each,
                       (long long)x->batch[i]);
        each *= x->batch[i];
    }
    tci_str_add(out, "        return p;\n    }\n");
}

static void tci_cuda_matrix_class(tci_str *out, const char *symbol, const tci_matrix *x)
{
    int64_t barriers = x->stages * tci_matrix_stage_bytes(x) + tci_matrix_staged_bytes(x);
    int64_t depth = x->is_boxes ? x->k_steps * tci_matrix_depth(x) : x->k;
    tci_str_printf(out,
                   "struct %s_shape {\n    enum {\n        k = %lld, tiles = %lld, stages = %d, "
                   "consumers = %d, last_warps = %d, sub_rows = %d,\n        columns = %d, "
                   "row_threads = %d, a_bytes = %d, "
                   "stage_bytes = %d, loaded_bytes = %d, depth = %d, k_rows = %d,\n"
                   "        a_step = %d, b_step = %d, "
                   "buffers = %d, staged_pitch = %d, staged_bytes = %d, barriers = %lld,\n"
                   "        blocks = %d, readers = %d\n"
                   "    };\n",
                   symbol, (long long)depth,
                   (long long)x->tiles, x->stages, x->consumers,
                   x->last_warps, x->sub_rows, x->columns, x->row_threads,
                   x->rows * TCI_MATRIX_LINE,
                   (int)tci_matrix_stage_bytes(x),
                   (tci_cuda_matrix_loaded(x, 0) + tci_cuda_matrix_loaded(x, 1)) * TCI_MATRIX_LINE /
                       tci_matrix_depth(x) * x->k_rows,
                   tci_matrix_depth(x), x->k_rows, x->side[0].along_k ? 2 : TCI_MATRIX_LINE,
                   x->side[1].along_k ? 2 : TCI_MATRIX_LINE, x->buffers, (int)x->staged_pitch,
                   tci_dtype_get((tc_dtype)x->staged)->bytes,
                   (long long)barriers, x->shares ? 2 : 1, (x->shares ? 2 : 4) * x->consumers);
    tci_str_printf(out,
                   "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, high); "
                   "}\n"
                   "    TC_I void multiply(%s (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY(%s, %d, %d, %d)(d, a, b, add);\n    }\n",
                   x->staged == TC_F16 ? "f16" : "bf16", tci_cuda_matrix_sum(x), x->columns / 2,
                   tci_cuda_matrix_type(x), x->columns, !x->side[0].along_k, !x->side[1].along_k);
    tci_cuda_matrix_loads(out, "load_a", x, 0);
    tci_cuda_matrix_loads(out, "load_b", x, 1);
    tci_cuda_matrix_place(out, x);
    tci_str_add(out, "};\n");
}

/* The parts before the hole. Twelve warps leave each thread the 168 registers that multiplying
 * takes; of sixteen, those that multiply have these from the others, and more of twelve in wide
 * tiles. */
static void tci_cuda_matrix_split(tci_str *out, const char *symbol, const tci_matrix *x)
{
    int loader = 4 * x->consumers;
    bool wide = tci_matrix_is_wide(x), more = x->last_warps > TCI_MATRIX_LAST_WARPS;
    const char *take = wide   ? "        tc_take_registers<208>();\n"
                       : more ? "        tc_take_registers<168>();\n"
                              : "";
    tci_str_printf(out,
                   "    TC_SHARED;\n"
                   "    const unsigned at = (tc_shared_at(tc_shared) + 1023) & ~1023u;\n"
                   "    tc_matrix_begin<%s_shape>(at);\n"
                   "    const int warp = tc_warp<%s_shape>();\n"
                   "    if (warp < %d) {\n%s"
                   "        tc_matrix_multiply<%s_shape%s>(at, warp / 4);\n%s    }\n"
                   "    if (warp == %d) {\n        if (tc_warp_lane<%s_shape>() == 0) {\n"
                   "            tc_matrix_load<%s_shape>(at, args.maps);\n        }\n"
                   "        return;\n    }\n",
                   symbol, symbol, loader, take, symbol, x->dtype == TC_I8 ? ", int" : "",
                   !take[0] ? ""
                         : "        tc_leave_registers<88>();\n    } else {\n"
                           "        tc_leave_registers<88>();\n",
                   loader, symbol, symbol);
}

/* The third part's loops up to the hole. Consumers come here behind their last tile and help with
 * what nothing is left behind any more; one may be a tile ahead of the other, which
 * a parity does not tell, so they wait until all have left their last sums. */
static void tci_cuda_matrix_rows(tci_str *out, const char *symbol, const tci_matrix *x)
{
    int part_rows = TCI_MATRIX_SUB * x->sub_rows, consumers = 4 * x->consumers;
    int groups = TCI_MATRIX_WARP / x->row_threads; /* of rows and chunks that a warp is at */
    tci_str_printf(out,
                   "    const bool helps = warp < %d;\n"
                   "    const int worker = %d * (helps ? warp + %d : warp - %d) + "
                   "threadIdx.y %% %d;\n"
                   "    const int before = (%lld - 1 - (int)blockIdx.x) / (int)gridDim.x;\n"
                   "    const int last = blockIdx.x + before * gridDim.x;\n"
                   "    unsigned ready = 0;\n"
                   "    if (helps) {\n        tc_barrier_wait(tc_done<%s_shape>(at), 0);\n    }\n"
                   "    for (int t = helps ? last : blockIdx.x; t <= last; t += gridDim.x, "
                   "ready ^= 1) {\n"
                   "    const tc_place p = %s_shape::place(t);\n",
                   consumers, groups, x->last_warps, consumers + 1, groups,
                   (long long)x->tiles, symbol, symbol);
    tci_str_printf(out,
                   "    for (int part = 0; part < %d; part++) {\n"
                   "    const bool all = t == last%s;\n"
                   "    if (helps && !all) {\n        continue;\n    }\n"
                   "    if (!helps) {\n"
                   "        tc_barrier_wait(tc_ready<%s_shape>(at, part), ready);\n    }\n"
                   "    for (int unit = worker; unit < %d; unit += all ? %d : %d) {\n"
                   "    const int row = unit / %d * %d, column = unit %% %d * %d;\n",
                   x->consumers, x->buffers == 1 && x->consumers > 1 ? " && part == 1" : "", symbol,
                   part_rows / x->group_rows * x->chunks, (x->last_warps + consumers) * groups,
                   x->last_warps * groups, x->chunks, x->group_rows, x->chunks, x->lanes);
    tci_str_printf(out,
                   "    const tc_i64 at_%d = p.m + %d * part + row, at_%d = p.n + column;\n"
                   "    if (at_%d >= %lld) {\n        break;\n    }\n"
                   "    if (at_%d >= %lld) {\n        continue;\n    }\n",
                   x->m_axis, part_rows, x->n_axis, x->m_axis, (long long)x->m, x->n_axis,
                   (long long)x->n);
    for (int i = 0; i < x->n_batch; i++) {
        tci_str_printf(out, "    const tc_i64 at_%d = p.b%d;\n", x->batch_axis[i], i);
    }
    tci_str_printf(out,
                   "    void *given = tc_shared + (at - tc_shared_at(tc_shared)) + "
                   "tc_staged<%s_shape>(%d * part + row) + %d * column;\n",
                   symbol, x->buffers == 1 ? 0 : TCI_MATRIX_SUB * x->sub_rows,
                   tci_dtype_get((tc_dtype)x->staged)->bytes);
}

TCI_FN void tci_cuda_skeleton_open(tci_str *out, const char *symbol, const tci_loop *l, int n_maps,
                                   int n_words, int warps, int blocks)
{
    char maps[32] = "";
    if (n_maps > 0) {
        snprintf(maps, sizeof(maps), "tc_map maps[%d]; ", n_maps);
    }
    bool pairs = l->matrix && l->matrix->shares;
    tci_str_printf(out,
                   "struct %s_args { %svoid *bufs[%d]; tc_i64 lits[%d]; tc_i64 *fault; };\n"
                   "extern \"C\" __global__ void %s__launch_bounds__(%d, %d) "
                   "%s(const __grid_constant__ %s_args args)\n{\n",
                   symbol, maps, TCI_MAX(l->n_operands, 1), TCI_MAX(n_words, 1),
                   pairs ? "__cluster_dims__(2, 1, 1) " : "", TCI_MATRIX_WARP * warps, blocks,
                   symbol, symbol);
}

TCI_FN void tci_cuda_skeleton_args(tci_str *out)
{
    tci_str_add(out, "    void *const *bufs = args.bufs;\n    const tc_i64 *lits = args.lits;\n"
                     "    tc_i64 *fault = args.fault;\n");
}

TCI_FN void tci_cuda_matrix_head(tci_str *out, const char *symbol, const tci_loop *l,
                                 int n_words)
{
    const tci_matrix *x = l->matrix;
    tci_cuda_skeleton k = tci_cuda_matrix_describe(x);
    tci_cuda_skeleton_words(out, symbol, &k);
    tci_cuda_matrix_class(out, symbol, x);
    tci_cuda_skeleton_open(out, symbol, l, 2, n_words,
                           4 * x->consumers + 1 + x->last_warps, 1);
    tci_cuda_matrix_split(out, symbol, x);
    tci_cuda_skeleton_args(out);
    tci_cuda_matrix_rows(out, symbol, x);
}

/* The loop over rows ends; what was staged has been taken; the parts and the tiles end. */
TCI_FN void tci_cuda_matrix_tail(tci_str *out, const char *symbol)
{
    tci_str_printf(out,
                   "    }\n    if (!all) {\n"
                   "        tc_warp_arrive<%s_shape>(tc_taken<%s_shape>(at, part));\n"
                   "    }\n    }\n    }\n}\n",
                   symbol, symbol);
}
/* ---- src/cuda/attention.c ---- */
/* cuda/attention.c - see cuda/attention.h. The text of the main loop, in the layers of
 * cuda/matrix.c, whose small functions it shares.
 *
 * Shared memory, from a multiple of 1024: the queries of a tile, and where there is room of the
 * next one, a ring of steps of keys, one of values, what is left of the sums, barriers. The first
 * slots are the queries', then come the keys' ring and the values', each slot with a barrier that
 * it is full and one that it is empty. Queries and keys lie in slabs of 64 elements of d, a row for
 * each query or key; values in parts of 64 keys, each of slabs of 64 columns, a row for each key.
 *
 * Element i of a thread's scores is of row 16 * warp + lane / 4 + 8 * (i / 2 % 2) and key
 * 8 * (i / 4) + 2 * (lane % 4) + i % 2; four threads share a row. Pairs of them, rounded, are the
 * registers that the second product takes its first factor from, as they stand.
 *
 * Where keys are cut off for a tile's queries, the steps beyond the cut are left out when the one
 * score of what is cut off is so far below the largest of each row that its power is 0: each warp
 * leaves how far it is, after the first step, and the loader and all consumers read what all of
 * them have left behind the last step before the cut. Scores are asked whether they are cut off in
 * the steps alone that the cut goes through, and tiles are handed out longest first: to the blocks
 * in order, then in reverse, so that all get as many steps.
 *
 * In turns, each group of four warps issues the products of a step when the other has issued its
 * own, so that one has powers to make while the other's products run.
 *
 * Invariants: the sums of a step are waited for behind the powers of the next one: a branch, whose
 * arms both wait, keeps the compiler from waiting earlier (tc_attention_behind), and no register of
 * a product under way is touched: tc_registers_here, behind each wait, keeps the compiler from
 * reading them before it.
 * Warps leave and take rows of their own, so a warp's meeting is enough there. */
/* ---- src/cuda/attention.h ---- */
/* cuda/attention.h - the main loop of attention on Hopper's matrix units, as text. */
#ifndef TCI_CUDA_ATTENTION_H
#define TCI_CUDA_ATTENTION_H


/* Definitions that every such kernel of a file shares, behind those of cuda/matrix.h. */
TCI_FN void tci_cuda_attention_prelude(tci_str *out);
/* The product of weights in registers and values in shared memory: once in a file. */
TCI_FN const char *tci_cuda_attention_product_name(tci_scratch *s, const tci_matrix *x);
TCI_FN void tci_cuda_attention_product(tci_str *out, const char *name, const tci_matrix *x);
/* Functions of a kernel's class (cuda/backward.c). NAME_end: the last of n, where tiles of `tile`
 * go beyond, as what is read for a row or step that does not exist is that of the last one. */
TCI_FN void tci_cuda_attention_end(tci_str *out, const char *name, int64_t n, int tile);
/* order: the number of the tile that is in place t, longest first, by so many heads that what all
 * tiles of one read, `bytes`, stays near. rises: the first tiles of a head are the longest. */
TCI_FN void tci_cuda_attention_order(tci_str *out, const tci_matrix *s, int64_t bytes,
                                     bool rises);
/* seen: how many keys a query sees, and so all below it; steps_seen: of n keys whole steps up to
 * the last one that a query of the tile sees, one at least. */
TCI_FN void tci_cuda_attention_seen(tci_str *out, const tci_attention_cut *cut,
                                    const tci_matrix *s);
/* seen; end: steps_seen, or all; and the order of tiles. */
TCI_FN void tci_cuda_attention_cut(tci_str *out, const tci_attention *x);
/* Parts of a kernel: the batch of p as axes; the loop over tiles, with it; a warp's rows, from
 * `rows` on, of the sums that are left in shared memory. */
TCI_FN void tci_cuda_attention_batch(tci_str *out, const tci_matrix *s);
TCI_FN void tci_cuda_attention_tiles(tci_str *out, const char *symbol, const tci_matrix *s);
TCI_FN void tci_cuda_attention_rows(tci_str *out, const char *symbol, const tci_matrix *o);
/* The kernel up to its operands; from there to block i for scores, and behind it, up to the next
 * or to the hole for rows; and the end. */
TCI_FN void tci_cuda_attention_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words);
TCI_FN void tci_cuda_attention_value(tci_str *out, const tci_matrix *s, int i);
TCI_FN void tci_cuda_attention_score(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attention_scored(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_attention_tail(tci_str *out);

#endif

/* ---- src/cuda/attention.c, continued ---- */
#include <string.h>

enum { TCI_CUDA_ATTENTION_NEAR = 32 << 20 }; /* bytes of keys and values in the last cache */

/* ---- the prelude ---- */

/* tc_fma_bf16: of two halves at once, the lower ones 0; c: -0 in both, or another such value. */
static const char tci_cuda_attention_ptx[] =
    "#ifndef TC_NO_PTX\n"
    "#define TC_MULTIPLY_HELD(type, columns) tc_multiply_held_##type##_##columns\n"
    "template <int n> TC_I void tc_registers_fewer() {\n"
    "    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "template <int n> TC_I void tc_registers_more() {\n"
    "    asm volatile(\"setmaxnreg.inc.sync.aligned.u32 %0;\" :: \"n\"(n));\n}\n"
    "TC_I float tc_swap(float x, int lanes) {\n"
    "    return __shfl_xor_sync(0xffffffffu, x, lanes);\n}\n"
    "TC_I float tc_fma_bf16(float a, float b, unsigned c) {\n    unsigned r;\n"
    "    asm(\"fma.rn.bf16x2 %0, %1, %2, %3;\" : \"=r\"(r) : \"r\"(__float_as_int(a)), "
    "\"r\"(__float_as_int(b)), \"r\"(c));\n    return __int_as_float((int)r);\n}\n"
    "TC_I float tc_mul_bf16(float a, float b) { return tc_fma_bf16(a, b, 0x80008000u); }\n"
    "TC_I float tc_add_bf16(float a, float b) {\n"
    "    return tc_fma_bf16(a, 1.0f, (unsigned)__float_as_int(b));\n}\n"
    "TC_I float tc_power_of_2(float x) {\n    float r;\n"
    "    asm(\"ex2.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n    return r;\n}\n"
    "TC_I float tc_log_2(float x) {\n    float r;\n"
    "    asm(\"lg2.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(x));\n    return r;\n}\n"
    "TC_I float tc_load_one(unsigned from) {\n    float r;\n"
    "    asm volatile(\"ld.shared::cta.f32 %0, [%1];\" : \"=f\"(r) : \"r\"(from) : "
    "\"memory\");\n    return r;\n}\n"
    "template <int n> TC_I void tc_registers_here(float (&s)[n]) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < n; i += 8) {\n"
    "        asm volatile(\"\" : \"+f\"(s[i]), \"+f\"(s[i + 1]), \"+f\"(s[i + 2]), "
    "\"+f\"(s[i + 3]), \"+f\"(s[i + 4]), \"+f\"(s[i + 5]), \"+f\"(s[i + 6]), \"+f\"(s[i + 7]) "
    ":: \"memory\");\n    }\n}\n"
    "template <int n> TC_I void tc_attention_behind(float (&s)[n], bool first) {\n"
    "    tc_registers_here(s);\n"
    "    if (first) {\n        tc_products_wait<0>();\n    } else {\n"
    "        tc_products_wait<0>();\n    }\n}\n"
    "#endif\n";

/* Behind the barriers of slots: one that all consumers' warps have left their distance, one for the
 * turn of each consumer, and the distances, those of a tile while others read those of the tile
 * before. */
static const char tci_cuda_attention_loading[] =
    "template <class S> TC_I unsigned tc_attention_told(unsigned at) {\n"
    "    return at + S::barriers + 16 * S::stages;\n}\n"
    "template <class S> TC_I unsigned tc_attention_turn(unsigned at, int group) {\n"
    "    return tc_attention_told<S>(at) + 8 + 8 * group;\n}\n"
    "template <class S> TC_I unsigned tc_attention_word(unsigned at, unsigned turn, int warp) {\n"
    "    return tc_attention_turn<S>(at, S::consumers) + 8 * (turn * 4 * S::consumers + warp);\n}\n"
    "TC_I int tc_attention_next(int round) {\n"
    "    const int blocks = gridDim.x, block = blockIdx.x;\n"
    "    return round * blocks + (round % 2 ? blocks - 1 - block : block);\n}\n"
    "template <class S> TC_I int tc_attention_rest(unsigned at, int end, unsigned &turn) {\n"
    "    tc_barrier_wait(tc_attention_told<S>(at), turn);\n"
    "    for (int i = 0; i < 4 * S::consumers; i++) {\n"
    "        if (!(tc_load_one(tc_attention_word<S>(at, turn, i)) > 128.0f)) {\n"
    "            end = S::keys;\n        }\n    }\n"
    "    turn ^= 1;\n    return end;\n}\n"
    "template <class S> TC_I void tc_attention_begin(unsigned at) {\n"
    "    if (threadIdx.x == 0 && threadIdx.y == 0) {\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_init(tc_full<S>(at, i), 1);\n"
    "            tc_barrier_init(tc_empty<S>(at, i), 4 * S::consumers);\n        }\n"
    "        tc_barrier_init(tc_attention_told<S>(at), 4 * S::consumers);\n"
    "        for (int i = 0; i < S::consumers; i++) {\n"
    "            tc_barrier_init(tc_attention_turn<S>(at, i), 4);\n        }\n"
    "        tc_barrier_init_done();\n    }\n    __syncthreads();\n}\n"
    "template <class S> TC_I void tc_attention_load(unsigned at, const tc_map *maps) {\n"
    "    int ring = 0;\n    unsigned parity = 1, turn = 0;\n"
    "    for (int i = 0, t; (t = tc_attention_next(i)) < S::tiles; i++) {\n"
    "        tc_place p = S::place(S::order(t));\n"
    "        const int own = i % S::slots;\n"
    "        tc_barrier_wait(tc_empty<S>(at, own), 1 - i / S::slots % 2);\n"
    "        tc_barrier_expect(tc_full<S>(at, own), S::queries_loaded);\n"
    "        for (int k = 0; k < S::depth; k += 64) {\n"
    "            S::load_queries(at + own * S::queries_bytes + k / 64 * S::queries_slab, maps, "
    "tc_full<S>(at, own), p, k);\n        }\n"
    "        int end = S::end(p);\n        bool asks = end < S::keys;\n"
    "        for (int key = 0; key < end; key += S::step) {\n"
    "            const int slot = S::slots + ring, after = slot + S::rings;\n"
    "            p.n = key;\n"
    "            tc_barrier_wait(tc_empty<S>(at, slot), parity);\n"
    "            tc_barrier_expect(tc_full<S>(at, slot), S::keys_loaded);\n"
    "            for (int k = 0; k < S::depth; k += 64) {\n"
    "                S::load_keys(at + S::keys_at + ring * S::keys_bytes + "
    "k / 64 * S::keys_slab, maps + 1, tc_full<S>(at, slot), p, k);\n            }\n"
    "            p.n = 0;\n"
    "            tc_barrier_wait(tc_empty<S>(at, after), parity);\n"
    "            tc_barrier_expect(tc_full<S>(at, after), S::values_bytes);\n"
    "            for (int k = 0; k < S::step; k += 64) {\n"
    "                S::load_values(at + S::values_at + ring * S::values_bytes + "
    "k / 64 * S::values_part, maps + 2, tc_full<S>(at, after), p, key + k);\n            }\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "            if (asks && key + S::step == end) {\n                asks = false;\n"
    "                end = tc_attention_rest<S>(at, end, turn);\n            }\n"
    "        }\n    }\n}\n";

/* A thread's part of a tile. most and sum: of its two rows; scale: what the sums so far are worth
 * beside the step at hand. */
static const char tci_cuda_attention_steps[] =
    "template <class S> struct tc_attention {\n"
    "    float o[S::columns / 2], s[S::step / 2], most[2], sum[2], scale[2];\n"
    "    unsigned w[S::step / 4];\n};\n"
    "template <class S>\n"
    "TC_I void tc_attention_scores(tc_attention<S> &x, unsigned at, unsigned queries, int ring) {\n"
    "    const unsigned long long q = tc_box(queries);\n"
    "    const unsigned long long k = tc_box(at + S::keys_at + ring * S::keys_bytes);\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < (S::depth + 15) / 16; i++) {\n"
    "        S::multiply(x.s, q + i / 4 * (S::queries_slab / 16) + i % 4 * 2,\n"
    "                    k + i / 4 * (S::keys_slab / 16) + i % 4 * 2, i > 0);\n    }\n"
    "    tc_products_commit();\n}\n"
    "template <class S>\n"
    "TC_I void tc_attention_sums(tc_attention<S> &x, unsigned at, int ring, int add) {\n"
    "    const unsigned long long v = tc_box(at + S::values_at + ring * S::values_bytes);\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 16; i++) {\n"
    "        S::multiply_held(x.o, x.w + 4 * i, v + i / 4 * (S::values_part / 16) + i % 4 * 128,\n"
    "                         i > 0 ? 1 : add);\n    }\n"
    "    tc_products_commit();\n}\n"
    "template <class S, class F>\n"
    "TC_I void tc_attention_each(tc_attention<S> &x, tc_place p, int group, int key, F score) {\n"
    "    const int lane = tc_warp_lane<S>(), first = key + 2 * (lane & 3);\n"
    "    const int row = p.m + 64 * group + 16 * (tc_warp<S>() & 3) + lane / 4;\n"
    "    const int rows[2] = {S::rows_end(row), S::rows_end(row + 8)};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i++) {\n"
    "        x.s[i] = score(x.s[i], rows[i / 2 % 2], S::keys_end(first + i / 4 * 8 + i % 2));\n"
    "    }\n"
    "    if (S::keys % S::step != 0 && key + S::step > S::keys) {\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::step / 2; i++) {\n"
    "            x.s[i] = first + i / 4 * 8 + i % 2 < S::keys ? x.s[i] : -__builtin_inff();\n"
    "        }\n    }\n}\n"
    "template <class S, class F, class G>\n"
    "TC_I void tc_attention_values(tc_attention<S> &x, tc_place p, int group, int key, F score, "
    "G seen) {\n"
    "    if (key + S::step <= S::seen(p.m + 64 * group)) {\n"
    "        tc_attention_each<S>(x, p, group, key, seen);\n    } else {\n"
    "        tc_attention_each<S>(x, p, group, key, score);\n    }\n}\n"
    "template <class S> TC_I void tc_attention_powers(tc_attention<S> &x, bool fresh) {\n"
    "    const float log2e = 1.44269504f;\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < 2; r++) {\n"
    "        float mosts[2] = {x.s[2 * r], x.s[2 * r + 1]}, sums[2] = {0, 0};\n"
    "#pragma unroll\n"
    "        for (int i = 4; i < S::step / 2; i += 4) {\n"
    "            mosts[0] = fmaxf(mosts[0], x.s[i + 2 * r]);\n"
    "            mosts[1] = fmaxf(mosts[1], x.s[i + 2 * r + 1]);\n        }\n"
    "        float most = fmaxf(mosts[0], mosts[1]);\n"
    "        most = fmaxf(most, tc_swap(most, 1));\n"
    "        most = fmaxf(most, tc_swap(most, 2));\n"
    "        const float old = fresh ? -__builtin_inff() : x.most[r];\n"
    "        x.most[r] = fmaxf(old, most);\n"
    "        const float off = x.most[r] == -__builtin_inff() ? 0.0f : x.most[r] * log2e;\n"
    "        x.scale[r] = tc_power_of_2(__fmaf_rn(old, log2e, -off));\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::step / 2; i += 4) {\n"
    "#pragma unroll\n"
    "            for (int j = i + 2 * r; j < i + 2 * r + 2; j++) {\n"
    "                x.s[j] = tc_power_of_2(__fmaf_rn(x.s[j], log2e, -off));\n"
    "                sums[j % 2] += x.s[j];\n            }\n        }\n"
    "        const float sum = sums[0] + sums[1];\n"
    "        x.sum[r] = fresh ? sum : __fmaf_rn(x.sum[r], x.scale[r], sum);\n    }\n}\n"
    "template <class S> TC_I void tc_attention_round(tc_attention<S> &x) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 4; i++) {\n"
    "        x.w[i] = S::weights(x.s[2 * i], x.s[2 * i + 1]);\n    }\n}\n";

/* How far a warp's rows are above `cut`, the score of what is cut off; where that is -inf, what is
 * left out is 0 however low they are. */
static const char tci_cuda_attention_telling[] =
    "template <class S>\n"
    "TC_I void tc_attention_tell(tc_attention<S> &x, unsigned at, unsigned turn, float cut) {\n"
    "    float far = fminf(x.most[0] - cut, x.most[1] - cut);\n"
    "    far = fminf(far, tc_swap(far, 4));\n    far = fminf(far, tc_swap(far, 8));\n"
    "    far = fminf(far, tc_swap(far, 16));\n"
    "    far = cut == -__builtin_inff() ? __builtin_inff() : far;\n"
    "    if (tc_warp_lane<S>() == 0) {\n"
    "        tc_store_two(tc_attention_word<S>(at, turn, tc_warp<S>()), far, far);\n    }\n"
    "    tc_warp_arrive<S>(tc_attention_told<S>(at));\n}\n";

/* A tile, the block's number i: ring, parity, turn and own, the parity of the group's own turn, go
 * on from the tile before. */
static const char tci_cuda_attention_tile[] =
    "template <class S, class F, class G>\n"
    "TC_I void tc_attention_tile(unsigned at, int group, int &ring, unsigned &parity, "
    "unsigned &turn,\n                            unsigned &own, int i, tc_place p, "
    "F score, G seen) {\n"
    "    tc_attention<S> x;\n    const int slot = i % S::slots;\n"
    "    const unsigned queries = at + slot * S::queries_bytes + group * 8192;\n"
    "    tc_barrier_wait(tc_full<S>(at, slot), i / S::slots % 2);\n"
    "    tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "    tc_attention_scores<S>(x, at, queries, ring);\n"
    "    tc_products_wait<0>();\n    tc_registers_here(x.s);\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + ring));\n"
    "    tc_attention_values<S>(x, p, group, 0, score, seen);\n"
    "    tc_attention_powers<S>(x, true);\n"
    "    int end = S::end(p);\n    bool asks = end < S::keys;\n"
    "    if (asks) {\n"
    "        tc_attention_tell<S>(x, at, turn, score(0.0f, S::rows_end(p.m), end));\n    }\n"
    "    tc_attention_round<S>(x);\n"
    "    for (int key = S::step;; key += S::step) {\n"
    "        if (asks && key == end) {\n            asks = false;\n"
    "            end = tc_attention_rest<S>(at, end, turn);\n        }\n"
    "        if (key >= end) {\n            break;\n        }\n"
    "        const int before = ring;\n        const unsigned old = parity;\n"
    "        if (++ring == S::rings) {\n            ring = 0;\n            parity ^= 1;\n"
    "        }\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "        if (S::turns) {\n            tc_barrier_wait(tc_attention_turn<S>(at, group), own);\n"
    "            own ^= 1;\n        }\n"
    "        tc_attention_scores<S>(x, at, queries, ring);\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + S::rings + before), old);\n"
    "        tc_attention_sums<S>(x, at, before, key > S::step);\n"
    "        if (S::turns) {\n"
    "            tc_warp_arrive<S>(tc_attention_turn<S>(at, (group + 1) % S::consumers));\n"
    "        }\n"
    "        tc_products_wait<1>();\n        tc_registers_here(x.s);\n"
    "        tc_warp_arrive<S>(tc_empty<S>(at, S::slots + ring));\n"
    "        tc_attention_values<S>(x, p, group, key, score, seen);\n"
    "        tc_attention_powers<S>(x, false);\n"
    "        tc_attention_behind(x.s, key == S::step);\n        tc_registers_here(x.o);\n"
    "        tc_warp_arrive<S>(tc_empty<S>(at, S::slots + S::rings + before));\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::columns / 2; i++) {\n"
    "            x.o[i] *= x.scale[i / 2 % 2];\n        }\n"
    "        tc_attention_round<S>(x);\n    }\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, slot));\n"
    "    tc_barrier_wait(tc_full<S>(at, S::slots + S::rings + ring), parity);\n"
    "    tc_attention_sums<S>(x, at, ring, end > S::step);\n"
    "    tc_products_wait<0>();\n    tc_registers_here(x.o);\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + S::rings + ring));\n"
    "    if (++ring == S::rings) {\n        ring = 0;\n        parity ^= 1;\n    }\n"
    "    float by[2];\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < 2; r++) {\n"
    "        float sum = x.sum[r] + tc_swap(x.sum[r], 1);\n"
    "        sum += tc_swap(sum, 2);\n        by[r] = 1.0f / sum;\n"
    "        if (S::tells && (tc_warp_lane<S>() & 3) == 0) {\n"
    "            const int row = 16 * tc_warp<S>() + tc_warp_lane<S>() / 4 + 8 * r;\n"
    "            tc_store_two(at + S::staged_at + (row * S::staged_pitch + S::lanes) * "
    "S::staged_bytes, x.most[r], sum);\n        }\n    }\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::columns / 2; i++) {\n"
    "        x.o[i] *= by[i / 2 % 2];\n    }\n"
    "    tc_matrix_leave<S>(x.o, at + S::staged_at + 64 * group * S::staged_pitch * "
    "S::staged_bytes);\n    __syncwarp();\n}\n";

TCI_FN void tci_cuda_attention_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_attention_ptx);
    tci_str_add(out, tci_cuda_attention_loading);
    tci_str_add(out, tci_cuda_attention_steps);
    tci_str_add(out, tci_cuda_attention_telling);
    tci_str_add(out, tci_cuda_attention_tile);
}

/* ---- products ---- */

TCI_FN const char *tci_cuda_attention_product_name(tci_scratch *s, const tci_matrix *x)
{
    return tci_scratch_printf(s, "tc_multiply_held_%s_%d", tci_cuda_matrix_type(x), x->columns);
}

TCI_FN void tci_cuda_attention_product(tci_str *out, const char *name, const tci_matrix *x)
{
    const char *type = tci_cuda_matrix_type(x);
    int n = x->columns / 2;
    tci_str_printf(out,
                   "#ifndef TC_NO_PTX\nTC_I void %s(float (&d)[%d], const unsigned *a, "
                   "unsigned long long b, int add) {\n"
                   "    asm volatile(\"{\\n.reg .pred p;\\nsetp.ne.b32 p, %%%d, 0;\\n"
                   "wgmma.mma_async.sync.aligned.m64n%dk16.f32.%s.%s {",
                   name, n, n + 5, x->columns, type, type);
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s%%%d", i ? ", " : "", i);
    }
    tci_str_printf(out, "}, {%%%d, %%%d, %%%d, %%%d}, %%%d, p, 1, 1, 1;\\n}\"\n        : ", n,
                   n + 1, n + 2, n + 3, n + 4);
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s\"+f\"(d[%d])", i ? ", " : "", i);
    }
    tci_str_add(out, " : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), "
                     "\"r\"(add));\n}\n#endif\n");
}

/* ---- the kernel ---- */

static int tci_cuda_attention_warps(const tci_attention *x)
{
    return 4 * x->scores.consumers + 4;
}

static tci_cuda_skeleton tci_cuda_attention_describe(const tci_attention *x)
{
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = tci_attention_shared_bytes(x);
    k.block_x = x->result.row_threads;
    k.block_y = TCI_MATRIX_WARP * tci_cuda_attention_warps(x) / x->result.row_threads;
    k.n_maps = 3;
    k.maps[0] = tci_cuda_matrix_map(&x->scores, 0);
    k.maps[1] = tci_cuda_matrix_map(&x->scores, 1);
    k.maps[2] = tci_cuda_matrix_map(&x->result, 1);
    return k;
}

TCI_FN void tci_cuda_attention_end(tci_str *out, const char *name, int64_t n, int tile)
{
    tci_str_printf(out, "    TC_I int %s_end(int i) {\n        return ", name);
    if (n % tile == 0) {
        tci_str_add(out, "i;\n    }\n");
    } else {
        tci_str_printf(out, "i < %lld ? i : %lld;\n    }\n", (long long)n, (long long)n - 1);
    }
}

TCI_FN void tci_cuda_attention_order(tci_str *out, const tci_matrix *s, int64_t bytes,
                                     bool rises)
{
    long long tiles = (long long)s->tiles_m, all = s->tiles / tiles;
    long long heads = TCI_MIN(TCI_MAX(TCI_CUDA_ATTENTION_NEAR / bytes, 1), all);
    char last[24];
    snprintf(last, sizeof(last), "%lld - ", tiles - 1);
    tci_str_printf(out,
                   "    TC_I int order(int t) {\n"
                   "        const int first = t / %lld * %lld, in = t %% %lld;\n"
                   "        const int heads = %lld - first < %lld ? %lld - first : %lld;\n"
                   "        return (first + in %% heads) * %lld + %sin / heads;\n    }\n",
                   heads * tiles, heads, heads * tiles, all, heads, all, heads, tiles,
                   rises ? "" : last);
}

TCI_FN void tci_cuda_attention_seen(tci_str *out, const tci_attention_cut *cut,
                                    const tci_matrix *s)
{
    long long last = (long long)s->m - 1;
    tci_str_printf(out,
                   "    TC_I int seen(int row) { return %lld + %lld * row; }\n"
                   "    TC_I int steps_seen(tc_place p, int n) {\n"
                   "        const int most = seen(p.m + %d < %lld ? p.m + %d : %lld);\n"
                   "        const int steps = most > step ? (most + step - 1) / step : 1;\n"
                   "        return steps * step < n ? steps * step : n;\n    }\n",
                   (long long)cut->base + 1, (long long)cut->rows, s->rows - 1, last, s->rows - 1,
                   last);
}

TCI_FN void tci_cuda_attention_cut(tci_str *out, const tci_attention *x)
{
    const tci_matrix *s = &x->scores;
    if (!x->cut.is_cut) {
        tci_str_add(out, "    TC_I int seen(int row) { return 0x7fffffff; }\n"
                         "    TC_I int end(tc_place p) { return keys; }\n"
                         "    TC_I int order(int t) { return t; }\n");
        return;
    }
    tci_cuda_attention_seen(out, &x->cut, s);
    tci_str_add(out, "    TC_I int end(tc_place p) { return steps_seen(p, keys); }\n");
    tci_cuda_attention_order(out, s, 2 * s->n * (s->k + x->result.n), false);
}

static void tci_cuda_attention_class(tci_str *out, const char *symbol, const tci_attention *x)
{
    const tci_matrix *s = &x->scores, *r = &x->result;
    int line = 2 * TCI_MATRIX_DEPTH_STEP, slabs = tci_attention_slabs(s->k);
    long long keys_at = (long long)(x->slots * tci_attention_queries_bytes(x));
    long long values_at = keys_at + x->rings * tci_attention_keys_bytes(x);
    long long staged_at = values_at + x->rings * tci_attention_values_bytes(x);
    const char *type = tci_cuda_matrix_type(s);
    tci_str_printf(out,
                   "struct %s_shape {\n    enum {\n        depth = %lld, keys = %lld, step = %d, "
                   "columns = %d, tiles = %lld, consumers = %d,\n        turns = %d, tells = %d, "
                   "lanes = %d, slots = %d, rings = %d, stages = %d, row_threads = %d,\n"
                   "        queries_bytes = %d, queries_slab = %d, queries_loaded = %d,\n"
                   "        keys_at = %lld, keys_bytes = %d, keys_slab = %d, keys_loaded = %d,\n"
                   "        values_at = %lld, values_bytes = %d, values_part = %d,\n"
                   "        staged_at = %lld, staged_pitch = %d, staged_bytes = %d, "
                   "barriers = %lld\n    };\n",
                   symbol, (long long)s->k, (long long)s->n, s->columns, r->columns,
                   (long long)s->tiles, s->consumers, x->turns, x->tells, r->lanes, x->slots,
                   x->rings, 2 * x->rings + x->slots, r->row_threads,
                   (int)tci_attention_queries_bytes(x), s->rows * line,
                   tci_cuda_matrix_loaded(s, 0) * line * slabs, keys_at,
                   (int)tci_attention_keys_bytes(x), s->columns * line,
                   tci_cuda_matrix_loaded(s, 1) * line * slabs, values_at,
                   (int)tci_attention_values_bytes(x),
                   TCI_MATRIX_SUB * line * tci_attention_slabs(r->n), staged_at,
                   (int)r->staged_pitch, tci_dtype_get((tc_dtype)r->staged)->bytes,
                   staged_at + (long long)tci_matrix_staged_bytes(r));
    tci_str_printf(out,
                   "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, high); "
                   "}\n"
                   "    TC_I unsigned weights(float low, float high) { return tc_pair_%s(low, "
                   "high); }\n"
                   "    TC_I void multiply(float (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY(%s, %d, 0, 0)(d, a, b, add);\n    }\n"
                   "    TC_I void multiply_held(float (&d)[%d], const unsigned *a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY_HELD(%s, %d)(d, a, b, add);\n    }\n",
                   r->staged == TC_F16 ? "f16" : "bf16", type, s->columns / 2, type, s->columns,
                   r->columns / 2, type, r->columns);
    tci_cuda_attention_cut(out, x);
    tci_cuda_attention_end(out, "rows", s->m, s->rows);
    tci_cuda_attention_end(out, "keys", s->n, s->columns);
    tci_cuda_matrix_loads(out, "load_queries", s, 0);
    tci_cuda_matrix_loads(out, "load_keys", s, 1);
    tci_cuda_matrix_loads(out, "load_values", r, 1);
    tci_cuda_matrix_place(out, r);
    tci_str_add(out, "};\n");
}

/* 168 registers a thread of twelve warps, and what the loading warps do not need goes to the
 * others; of eight warps each has all that it can. */
TCI_FN void tci_cuda_attention_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words)
{
    const tci_attention *x = l->attention;
    tci_cuda_skeleton k = tci_cuda_attention_describe(x);
    int loader = 4 * x->scores.consumers;
    bool moves = x->scores.consumers > 1;
    tci_cuda_skeleton_words(out, symbol, &k);
    tci_cuda_attention_class(out, symbol, x);
    tci_cuda_skeleton_open(out, symbol, l, 3, n_words, tci_cuda_attention_warps(x), 1);
    tci_str_printf(out,
                   "    TC_SHARED;\n"
                   "    const unsigned at = (tc_shared_at(tc_shared) + 1023) & ~1023u;\n"
                   "    tc_attention_begin<%s_shape>(at);\n"
                   "    const int warp = tc_warp<%s_shape>();\n"
                   "    if (warp >= %d) {\n%s"
                   "        if (warp == %d && tc_warp_lane<%s_shape>() == 0) {\n"
                   "            tc_attention_load<%s_shape>(at, args.maps);\n        }\n"
                   "        return;\n    }\n%s",
                   symbol, symbol, loader, moves ? "        tc_registers_fewer<24>();\n" : "",
                   loader, symbol, symbol, moves ? "    tc_registers_more<240>();\n" : "");
    tci_cuda_skeleton_args(out);
}

TCI_FN void tci_cuda_attention_batch(tci_str *out, const tci_matrix *s)
{
    for (int i = 0; i < s->n_batch; i++) {
        tci_str_printf(out, "    const tc_i64 at_%d = p.b%d;\n", s->batch_axis[i], i);
    }
}

TCI_FN void tci_cuda_attention_tiles(tci_str *out, const char *symbol, const tci_matrix *s)
{
    tci_str_printf(out,
                   "    for (int i = 0, t; (t = tc_attention_next(i)) < %s_shape::tiles; i++) {\n"
                   "    const tc_place p = %s_shape::place(%s_shape::order(t));\n",
                   symbol, symbol, symbol);
    tci_cuda_attention_batch(out, s);
}

TCI_FN void tci_cuda_attention_rows(tci_str *out, const char *symbol, const tci_matrix *o)
{
    int groups = TCI_MATRIX_WARP / o->row_threads; /* of rows that a warp is at */
    const char *row = o->buffers < o->consumers ? "row % 64" : "row";
    tci_str_printf(out,
                   "    for (int row = rows + threadIdx.y %% %d * %d; row < rows + 16; "
                   "row += %d) {\n"
                   "    if (p.m + row >= %lld) {\n        break;\n    }\n"
                   "    void *given = tc_shared + (at - tc_shared_at(tc_shared)) + "
                   "%s_shape::staged_at + %s * %d;\n",
                   groups, o->group_rows, groups * o->group_rows, (long long)o->m, symbol, row,
                   (int)o->staged_pitch * tci_dtype_get((tc_dtype)o->staged)->bytes);
}

TCI_FN void tci_cuda_attention_score(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_matrix *s = &l->attention->scores;
    if (i == 0) {
        tci_str_add(out, "    int ring = 0;\n    unsigned parity = 0, turn = 0, own = warp < 4;\n");
        tci_cuda_attention_tiles(out, symbol, s);
    }
    tci_cuda_attention_value(out, s, i);
}

TCI_FN void tci_cuda_attention_value(tci_str *out, const tci_matrix *s, int i)
{
    tci_str_printf(out,
                   "    const auto score_%d = [&](float value, int row, int key) {\n"
                   "    void *given = &value;\n"
                   "    const tc_i64 at_%d = row, at_%d = key;\n",
                   i, s->m_axis, s->n_axis);
}

TCI_FN void tci_cuda_attention_scored(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_matrix *r = &l->attention->result;
    tci_str_add(out, "    return value;\n    };\n");
    if (i + 1 < l->n_scores) {
        return;
    }
    tci_str_printf(out,
                   "    tc_attention_tile<%s_shape>(at, warp / 4, ring, parity, turn, own, i, "
                   "p, score_0, score_%d);\n"
                   "    const int rows = 64 * (warp / 4) + 16 * (warp & 3);\n",
                   symbol, i);
    tci_cuda_attention_rows(out, symbol, r);
    tci_str_printf(out, "    const tc_i64 at_%d = p.m + row, at_%d = 0;\n", r->m_axis, r->n_axis);
}

TCI_FN void tci_cuda_attention_tail(tci_str *out)
{
    tci_str_add(out, "    }\n    __syncwarp();\n    }\n}\n");
}
/* ---- src/cuda/backward.c ---- */
/* cuda/backward.c - see cuda/backward.h. The text of the main loop, in the layers of
 * cuda/matrix.c and with the small functions of cuda/attention.c.
 *
 * Shared memory, from a multiple of 1024: both factors of a tile's rows, and where there is room of
 * the next one's, a ring of both factors of steps, values of their queries, what is left of the
 * sums, barriers: for each slot one that it is full and one that it is empty, the rows' first, and
 * where consumers leave sums in turns one for the turn of each. All factors lie in slabs of 64
 * elements, a row for each row or step: so they lie for the first products, and the steps, turned,
 * for the last ones, whose leading offset is a slab.
 *
 * Element i of a thread's pairs is of row 16 * warp + lane / 4 + 8 * (i / 2 % 2) and step
 * 8 * (i / 4) + 2 * (lane % 4) + i % 2. Pairs of them, rounded, are the registers that the last
 * products take their first factor from, as they stand.
 *
 * A step: both first products are issued; weights are made of the first while the second runs, the
 * product that takes them is issued, changes are made while that one runs, and theirs is issued.
 * Nothing waits for these but the scores of the next step. Two consumers keep the unit busy: while
 * one makes pairs the other multiplies. Sums o0 are those of changes and the steps of the first
 * product, o1 those of weights and the steps of the second one. `changes` and `weighs` say which of
 * them there are; without changes the second product is not made, and has no rows.
 *
 * Where keys are cut off and the one score of these is -inf, so that their weights are 0 whatever
 * else is in a row, the steps that no row of a tile has a part in are left out. Tiles are handed
 * out longest first.
 *
 * Invariants: as in cuda/attention.c. Steps behind the last one are zeros in shared memory; their
 * weights are 0 too: of keys as their scores are -inf, of queries as their maximum is inf. */
/* ---- src/cuda/backward.h ---- */
/* cuda/backward.h - the main loop of attention's gradients on Hopper's matrix units, as text. */
#ifndef TCI_CUDA_BACKWARD_H
#define TCI_CUDA_BACKWARD_H


/* Which of a kernel's blocks one is (loop/backward.h). */
enum {
    TCI_CUDA_BACKWARD_VALUES,
    TCI_CUDA_BACKWARD_OFF,
    TCI_CUDA_BACKWARD_SCORE,
    TCI_CUDA_BACKWARD_SEEN,
    TCI_CUDA_BACKWARD_CHANGE,
    TCI_CUDA_BACKWARD_ROWS
};

/* Definitions that every such kernel of a file shares, behind those of cuda/attention.h. */
TCI_FN void tci_cuda_backward_prelude(tci_str *out);
/* The kernel up to its operands; before block i of its scores, and behind it; and the end. */
TCI_FN void tci_cuda_backward_head(tci_str *out, const char *symbol, const tci_loop *l,
                                   int n_words);
TCI_FN void tci_cuda_backward_open(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_backward_close(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_backward_tail(tci_str *out, const char *symbol, const tci_loop *l);

/* Parts that the form by threads shares: which sums there are, in the class; which block i is, and
 * its end; the steps of a tile, one at least, whether all pairs of 64 rows and a step are seen, and
 * the order of tiles. */
TCI_FN void tci_cuda_backward_sums(tci_str *out, const tci_backward *x);
TCI_FN int tci_cuda_backward_block(const tci_backward *x, int i);
TCI_FN void tci_cuda_backward_end(tci_str *out, const tci_backward *x, int i);
TCI_FN void tci_cuda_backward_cut(tci_str *out, const tci_backward *x);

#endif

/* ---- src/cuda/backward.c, continued ---- */
#include <string.h>

/* ---- the prelude ---- */

static const char tci_cuda_backward_ptx[] =
    "#ifndef TC_NO_PTX\n"
    "TC_I void tc_load_two(unsigned from, float &a, float &b) {\n"
    "    asm volatile(\"ld.shared::cta.v2.f32 {%0, %1}, [%2];\" : \"=f\"(a), \"=f\"(b) : "
    "\"r\"(from) : \"memory\");\n}\n"
    "#endif\n"
    "TC_I float tc_low_bf16(unsigned two) { return __int_as_float((int)(two << 16)); }\n"
    "TC_I float tc_high_bf16(unsigned two) { return __int_as_float((int)(two & 0xffff0000u)); }\n"
    "TC_I float tc_low_f16(unsigned two) { return tc_widen_f32_f16((unsigned short)two); }\n"
    "TC_I float tc_high_f16(unsigned two) { return tc_low_f16(two >> 16); }\n";

static const char tci_cuda_backward_loading[] =
    "template <class S> TC_I unsigned tc_backward_told(unsigned at, int ring) {\n"
    "    return at + S::values_at + ring * S::values * S::step * 4;\n}\n"
    "template <class S> TC_I unsigned tc_backward_turn(unsigned at, int group) {\n"
    "    return at + S::barriers + 16 * S::stages + 8 * group;\n}\n"
    "template <class S> TC_I void tc_backward_begin(unsigned at) {\n"
    "    if (threadIdx.x == 0 && threadIdx.y == 0) {\n"
    "        for (int i = 0; i < S::stages; i++) {\n"
    "            tc_barrier_init(tc_full<S>(at, i), S::by_step && i >= S::slots ? 2 : 1);\n"
    "            tc_barrier_init(tc_empty<S>(at, i), 4 * S::consumers);\n        }\n"
    "        for (int i = 0; i < 2 * S::turns; i++) {\n"
    "            tc_barrier_init(tc_backward_turn<S>(at, i), 4);\n        }\n"
    "        tc_barrier_init_done();\n    }\n"
    "    __syncthreads();\n}\n"
    "template <class S> TC_I void tc_backward_load(unsigned at, const tc_map *maps, bool cuts) {\n"
    "    int ring = 0;\n    unsigned parity = 1;\n"
    "    for (int i = 0, t; (t = tc_attention_next(i)) < S::tiles; i++) {\n"
    "        tc_place p = S::place(S::order(t));\n        const int own = i % S::slots;\n"
    "        const unsigned rows = at + own * S::rows_bytes;\n"
    "        tc_barrier_wait(tc_empty<S>(at, own), 1 - i / S::slots % 2);\n"
    "        tc_barrier_expect(tc_full<S>(at, own), S::rows_loaded);\n"
    "        for (int k = 0; k < S::depth_0; k += 64) {\n"
    "            S::load_rows_0(rows + k / 64 * S::rows_slab, maps, tc_full<S>(at, own), p, k);\n"
    "        }\n"
    "        if constexpr (S::changes) {\n"
    "            for (int k = 0; k < S::depth_1; k += 64) {\n"
    "                S::load_rows_1(rows + S::rows_1 + k / 64 * S::rows_slab, maps + 3,\n"
    "                               tc_full<S>(at, own), p, k);\n            }\n        }\n"
    "        const int end = S::end(p, cuts);\n"
    "        for (int n = S::first(p, cuts); n < end; n += S::step) {\n"
    "            const unsigned full = tc_full<S>(at, S::slots + ring);\n"
    "            const unsigned to = at + S::steps_at + ring * S::step_bytes;\n"
    "            p.n = n;\n"
    "            tc_barrier_wait(tc_empty<S>(at, S::slots + ring), parity);\n"
    "            tc_barrier_expect(full, S::step_bytes);\n"
    "            for (int k = 0; k < S::depth_0; k += 64) {\n"
    "                S::load_steps_0(to + k / 64 * S::step_slab, maps + 1, full, p, k);\n"
    "            }\n"
    "            for (int k = 0; k < S::depth_1; k += 64) {\n"
    "                S::load_steps_1(to + S::step_1 + k / 64 * S::step_slab, maps + 2, full, p, "
    "k);\n            }\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "        }\n"
    "    }\n"
    "}\n";

static const char tci_cuda_backward_values[] =
    "template <class S, class V>\n"
    "TC_I void tc_backward_own(float (&own)[S::values], V values, tc_place p, int query) {\n"
    "    const bool is = query < S::queries;\n    values(own, p, is ? query : S::queries - 1);\n"
    "    own[0] = is ? __fmaf_rn(own[0], 1.44269504f, tc_log_2(own[1])) : __builtin_inff();\n}\n"
    "template <class S, class V> TC_I void tc_backward_tell(unsigned at, V values, bool cuts) {\n"
    "    int ring = 0;\n    unsigned parity = 1;\n"
    "    for (int i = 0, t; (t = tc_attention_next(i)) < S::tiles; i++) {\n"
    "        const tc_place p = S::place(S::order(t));\n"
    "        const int end = S::end(p, cuts);\n"
    "        for (int n = S::first(p, cuts); n < end; n += S::step) {\n"
    "            const unsigned told = tc_backward_told<S>(at, ring);\n"
    "            tc_barrier_wait(tc_empty<S>(at, S::slots + ring), parity);\n"
    "            for (int j = 2 * tc_warp_lane<S>(); j < S::step; j += 64) {\n"
    "                float a[S::values], b[S::values];\n"
    "                tc_backward_own<S>(a, values, p, n + j);\n"
    "                tc_backward_own<S>(b, values, p, n + j + 1);\n"
    "                for (int k = 0; k < S::values; k++) {\n"
    "                    tc_store_two(told + 4 * (k * S::step + j), a[k], b[k]);\n"
    "                }\n"
    "            }\n"
    "            tc_warp_arrive<S>(tc_full<S>(at, S::slots + ring));\n"
    "            if (++ring == S::rings) {\n                ring = 0;\n"
    "                parity ^= 1;\n            }\n"
    "        }\n"
    "    }\n"
    "}\n";

static const char tci_cuda_backward_pairs[] =
    "template <class S> struct tc_backward {\n"
    "    float s[S::step / 2], g[S::step / 2], o0[S::columns_0 / 2], o1[S::columns_1 / 2];\n"
    "    unsigned w[S::step / 4], c[S::step / 4];\n    float own[2][S::values];\n};\n"
    "template <class S, int depth>\n"
    "TC_I void tc_backward_product(float (&d)[S::step / 2], unsigned rows, unsigned steps) {\n"
    "    const unsigned long long a = tc_box(rows), b = tc_box(steps);\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < (depth + 15) / 16; i++) {\n"
    "        S::multiply(d, a + i / 4 * (S::rows_slab / 16) + i % 4 * 2,\n"
    "                    b + i / 4 * (S::step_slab / 16) + i % 4 * 2, i > 0);\n    }\n"
    "    tc_products_commit();\n}\n"
    "TC_I unsigned long long tc_backward_turned(unsigned steps, int slab) {\n"
    "    return tc_box(steps) + ((unsigned long long)(slab - 8192) >> 4 << 16);\n}\n"
    "template <class S, int which>\n"
    "TC_I void tc_backward_take(tc_backward<S> &x, unsigned steps, bool add) {\n"
    "    const unsigned long long b = tc_backward_turned(steps, S::step_slab);\n"
    "    tc_products_begin();\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < S::step / 16; k++) {\n"
    "        if constexpr (which == 0) {\n"
    "            S::multiply_0(x.o0, x.c + 4 * k, b + k * 128, add || k > 0);\n"
    "        } else {\n"
    "            S::multiply_1(x.o1, x.w + 4 * k, b + k * 128, add || k > 0);\n        }\n"
    "    }\n"
    "    tc_products_commit();\n}\n"
    "template <class S, class F>\n"
    "TC_I void tc_backward_scores(tc_backward<S> &x, int row, int n, F score) {\n"
    "    const int rows[2] = {S::rows_end(row), S::rows_end(row + 8)};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i++) {\n"
    "        x.s[i] = score(x.s[i], rows[i / 2 % 2], S::steps_end(n + i / 4 * 8 + i % 2));\n"
    "    }\n"
    "    if (!S::by_step && S::n % S::step != 0 && n > S::n - S::step) {\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < S::step / 2; i++) {\n"
    "            x.s[i] = n + i / 4 * 8 + i % 2 < S::n ? x.s[i] : -__builtin_inff();\n        }\n"
    "    }\n"
    "}\n"
    "template <class S> TC_I void tc_backward_told_of(tc_backward<S> &x, unsigned told, int i, int "
    "k,\n                                                 float (&of)[2]) {\n"
    "    if (S::by_step) {\n"
    "        tc_load_two(told + 4 * (k * S::step + i / 4 * 8), of[0], of[1]);\n    } else {\n"
    "        of[0] = x.own[0][k];\n        of[1] = x.own[1][k];\n    }\n"
    "}\n"
    "template <class S> TC_I void tc_backward_weights(tc_backward<S> &x, unsigned told) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i += 4) {\n        float off[2];\n"
    "        tc_backward_told_of(x, told, i, 0, off);\n"
    "#pragma unroll\n"
    "        for (int j = i; j < i + 4; j++) {\n"
    "            const int q = S::by_step ? j % 2 : j / 2 % 2;\n"
    "            x.s[j] = tc_power_of_2(__fmaf_rn(x.s[j], 1.44269504f, -off[q]));\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int j = i; j < i + 4; j += 2) {\n"
    "            x.w[j / 2] = S::halves(x.s[j], x.s[j + 1]);\n            if (S::rounds) {\n"
    "                x.s[j] = S::low(x.w[j / 2]);\n"
    "                x.s[j + 1] = S::high(x.w[j / 2]);\n            }\n"
    "        }\n"
    "    }\n"
    "}\n"
    "template <class S, class G>\n"
    "TC_I void tc_backward_changes(tc_backward<S> &x, unsigned told, int row, int n, G change) {\n"
    "    const int rows[2] = {S::rows_end(row), S::rows_end(row + 8)};\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::step / 2; i += 4) {\n        float own[S::values][2];\n"
    "#pragma unroll\n"
    "        for (int k = 2; k < S::values; k++) {\n"
    "            tc_backward_told_of(x, told, i, k, own[k]);\n        }\n"
    "#pragma unroll\n"
    "        for (int j = i; j < i + 4; j++) {\n"
    "            const int q = S::by_step ? j % 2 : j / 2 % 2;\n"
    "            x.g[j] = change(x.s[j], x.g[j], own, q, rows[j / 2 % 2],\n"
    "                            S::steps_end(n + i / 4 * 8 + j % 2));\n        }\n"
    "        x.c[i / 2] = S::halves(x.g[i], x.g[i + 1]);\n"
    "        x.c[i / 2 + 1] = S::halves(x.g[i + 2], x.g[i + 3]);\n    }\n"
    "}\n";

static const char tci_cuda_backward_tile[] =
    "template <class S, class V, class F, class H, class G>\n"
    "TC_I void tc_backward_tile(tc_backward<S> &x, unsigned at, int group, int &ring,\n"
    "                           unsigned &parity, int i, tc_place p, bool cuts, V values, F "
    "score,\n                           H seen, G change) {\n"
    "    const int slot = i % S::slots, lane = tc_warp_lane<S>();\n"
    "    const int first = S::first(p, cuts), end = S::end(p, cuts);\n"
    "    const int row = p.m + 64 * group + 16 * (tc_warp<S>() & 3) + lane / 4;\n"
    "    const unsigned rows = at + slot * S::rows_bytes + group * 8192;\n    int before = 0;\n"
    "    if (!S::by_step) {\n        tc_backward_own<S>(x.own[0], values, p, row);\n"
    "        tc_backward_own<S>(x.own[1], values, p, row + 8);\n    }\n"
    "    tc_barrier_wait(tc_full<S>(at, slot), i / S::slots % 2);\n"
    "    for (int n = first; n < end; n += S::step) {\n"
    "        const unsigned steps = at + S::steps_at + ring * S::step_bytes;\n"
    "        const unsigned told = tc_backward_told<S>(at, ring) + 8 * (lane & 3);\n"
    "        const int step = n + 2 * (lane & 3);\n"
    "        tc_barrier_wait(tc_full<S>(at, S::slots + ring), parity);\n"
    "        tc_backward_product<S, S::depth_0>(x.s, rows, steps);\n"
    "        if constexpr (S::changes) {\n"
    "            tc_backward_product<S, S::depth_1>(x.g, rows + S::rows_1, steps + S::step_1);\n"
    "        }\n"
    "        tc_products_wait<S::changes>();\n        tc_registers_here(x.s);\n"
    "        if (n > first) {\n"
    "            tc_warp_arrive<S>(tc_empty<S>(at, S::slots + before));\n        }\n"
    "        if (S::whole(p.m + 64 * group, n)) {\n"
    "            tc_backward_scores<S>(x, row, step, seen);\n        } else {\n"
    "            tc_backward_scores<S>(x, row, step, score);\n        }\n"
    "        tc_backward_weights<S>(x, told);\n"
    "        if constexpr (S::changes) {\n"
    "            tc_attention_behind(x.s, n == first);\n            tc_registers_here(x.g);\n"
    "        }\n"
    "        if constexpr (S::weighs) {\n"
    "            tc_backward_take<S, 1>(x, steps + S::step_1, n > first);\n        }\n"
    "        if constexpr (S::changes) {\n"
    "            tc_backward_changes<S>(x, told, row, step, change);\n"
    "            tc_backward_take<S, 0>(x, steps, n > first);\n        }\n"
    "        before = ring;\n        if (++ring == S::rings) {\n"
    "            ring = 0;\n            parity ^= 1;\n        }\n"
    "    }\n"
    "    tc_products_wait<0>();\n"
    "    if constexpr (S::changes) {\n        tc_registers_here(x.o0);\n    }\n"
    "    if constexpr (S::weighs) {\n        tc_registers_here(x.o1);\n    }\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, slot));\n"
    "    tc_warp_arrive<S>(tc_empty<S>(at, S::slots + before));\n}\n";

TCI_FN void tci_cuda_backward_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_backward_ptx);
    tci_str_add(out, tci_cuda_backward_loading);
    tci_str_add(out, tci_cuda_backward_values);
    tci_str_add(out, tci_cuda_backward_pairs);
    tci_str_add(out, tci_cuda_backward_tile);
}

/* ---- the kernel ---- */

static int tci_cuda_backward_warps(const tci_backward *x)
{
    return 4 * x->in[0].consumers + 4;
}

/* Of steps all are loaded that a box has, zeros behind the last one: a product takes them. */
static tci_cuda_skeleton tci_cuda_backward_describe(const tci_backward *x)
{
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = tci_backward_shared_bytes(x);
    k.block_x = x->out[0].row_threads;
    k.block_y = TCI_MATRIX_WARP * tci_cuda_backward_warps(x) / x->out[0].row_threads;
    k.n_maps = 2 + x->n_in;
    for (int i = 0; i < 2; i++) {
        if (i < x->n_in) {
            k.maps[3 * i] = tci_cuda_matrix_map(&x->in[i], 0);
        }
        k.maps[1 + i] = tci_cuda_matrix_map(&x->in[i], 1);
        k.maps[1 + i].box[1] = x->in[i].columns;
    }
    return k;
}

TCI_FN void tci_cuda_backward_sums(tci_str *out, const tci_backward *x)
{
    int columns[2] = {TCI_BACKWARD_ROUND, TCI_BACKWARD_ROUND};
    bool weighs = false;
    for (int i = 0; i < x->n_out; i++) {
        columns[tci_backward_taken(x, i)] = x->out[i].columns;
        weighs |= tci_backward_taken(x, i) == 1;
    }
    tci_str_printf(out,
                   "    enum { changes = %d, weighs = %d, columns_0 = %d, columns_1 = %d };\n",
                   x->n_in > 1, weighs, columns[0], columns[1]);
}

static void tci_cuda_backward_numbers(tci_str *out, const char *symbol, const tci_backward *x)
{
    const tci_matrix *s = &x->in[0], *g = &x->in[1];
    int line = 2 * TCI_MATRIX_DEPTH_STEP, slabs = tci_attention_slabs(s->k);
    long long steps_at = (long long)(x->slots * tci_backward_rows_bytes(x));
    long long values_at = steps_at + x->rings * tci_backward_step_bytes(x);
    long long staged_at = values_at + x->rings * tci_backward_values_bytes(x);
    tci_str_printf(out,
                   "struct %s_shape {\n    enum {\n        depth_0 = %lld, depth_1 = %lld, "
                   "n = %lld, step = %d,\n"
                   "        by_step = %d, rounds = %d, values = %d, queries = %lld,\n"
                   "        tiles = %lld, consumers = %d, turns = %d, slots = %d, rings = %d, "
                   "stages = %d, row_threads = %d,\n"
                   "        rows_bytes = %d, rows_1 = %d, rows_slab = %d, rows_loaded = %d,\n"
                   "        steps_at = %lld, step_bytes = %d, step_1 = %d, step_slab = %d,\n"
                   "        values_at = %lld, staged_at = %lld, barriers = %lld\n    };\n",
                   symbol, (long long)s->k, (long long)g->k, (long long)s->n, s->columns,
                   x->by_step, x->rounds, x->n_values, (long long)(x->by_step ? s->n : s->m),
                   (long long)s->tiles, s->consumers, tci_backward_turns(x), x->slots, x->rings,
                   x->slots + x->rings, x->out[0].row_threads, (int)tci_backward_rows_bytes(x),
                   s->rows * line * slabs, s->rows * line,
                   tci_cuda_matrix_loaded(s, 0) * (int)(tci_backward_rows_bytes(x) / s->rows),
                   steps_at, (int)tci_backward_step_bytes(x), s->columns * line * slabs,
                   s->columns * line, values_at, staged_at,
                   staged_at + (long long)tci_backward_staged_bytes(x));
}

static void tci_cuda_backward_products(tci_str *out, const tci_backward *x)
{
    const char *type = tci_cuda_matrix_type(&x->in[0]);
    tci_str_printf(out,
                   "    TC_I unsigned halves(float low, float high) { return tc_pair_%s(low, "
                   "high); }\n"
                   "    TC_I float low(unsigned two) { return tc_low_%s(two); }\n"
                   "    TC_I float high(unsigned two) { return tc_high_%s(two); }\n"
                   "    TC_I void multiply(float (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY(%s, %d, 0, 0)(d, a, b, add);\n    }\n",
                   type, type, type, x->in[0].columns / 2, type, x->in[0].columns);
    for (int i = 0; i < x->n_out; i++) {
        tci_str_printf(out,
                       "    TC_I void multiply_%d(float (&d)[%d], const unsigned *a, "
                       "unsigned long long b, int add) {\n"
                       "        TC_MULTIPLY_HELD(%s, %d)(d, a, b, add);\n    }\n",
                       tci_backward_taken(x, i), x->out[i].columns / 2, type,
                       x->out[i].columns);
    }
}

TCI_FN void tci_cuda_backward_cut(tci_str *out, const tci_backward *x)
{
    const tci_matrix *s = &x->in[0];
    if (!x->cut.is_cut) {
        tci_str_add(out, "    TC_I int first(tc_place p, bool cuts) { return 0; }\n"
                         "    TC_I int end(tc_place p, bool cuts) { return n; }\n"
                         "    TC_I bool whole(int row, int step) { return true; }\n"
                         "    TC_I int order(int t) { return t; }\n");
        return;
    }
    tci_cuda_attention_seen(out, &x->cut, s);
    if (x->by_step) {
        tci_str_printf(out,
                       "    TC_I int first(tc_place p, bool cuts) {\n"
                       "        const int last = (n - 1) / step * step;\n"
                       "        const int query = %d * (p.m - %lld), at = query > 0 ? "
                       "query / step * step : 0;\n"
                       "        return !cuts ? 0 : at < last ? at : last;\n    }\n"
                       "    TC_I int end(tc_place p, bool cuts) { return n; }\n"
                       "    TC_I bool whole(int row, int at) { return row + 64 <= seen(at); }\n",
                       x->cut.rows != 0, (long long)x->cut.base);
    } else {
        tci_str_add(out, "    TC_I int first(tc_place p, bool cuts) { return 0; }\n"
                         "    TC_I int end(tc_place p, bool cuts) {\n"
                         "        return cuts ? steps_seen(p, n) : n;\n    }\n"
                         "    TC_I bool whole(int row, int at) { return at + step <= seen(row); "
                         "}\n");
    }
    tci_cuda_attention_order(out, s, 2 * s->n * (s->k + x->in[1].k), x->by_step);
}

static void tci_cuda_backward_class(tci_str *out, const char *symbol, const tci_backward *x)
{
    const tci_matrix *s = &x->in[0];
    tci_cuda_backward_numbers(out, symbol, x);
    tci_cuda_backward_sums(out, x);
    tci_cuda_backward_products(out, x);
    tci_cuda_backward_cut(out, x);
    tci_cuda_attention_end(out, "rows", s->m, s->rows);
    tci_cuda_attention_end(out, "steps", s->n, s->columns);
    tci_cuda_matrix_loads(out, "load_rows_0", s, 0);
    if (x->n_in > 1) {
        tci_cuda_matrix_loads(out, "load_rows_1", &x->in[1], 0);
    }
    tci_cuda_matrix_loads(out, "load_steps_0", s, 1);
    tci_cuda_matrix_loads(out, "load_steps_1", &x->in[1], 1);
    tci_cuda_matrix_place(out, &x->out[0]);
    tci_str_add(out, "};\n");
    for (int i = 0; i < x->n_out; i++) {
        const tci_matrix *o = &x->out[i];
        tci_str_printf(out,
                       "struct %s_left_%d {\n    enum { columns = %d, row_threads = %d, "
                       "staged_pitch = %d, staged_bytes = %d };\n"
                       "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, "
                       "high); }\n};\n",
                       symbol, tci_backward_taken(x, i), o->columns, o->row_threads,
                       (int)o->staged_pitch, tci_dtype_get((tc_dtype)o->staged)->bytes,
                       o->staged == TC_F16 ? "f16" : "bf16");
    }
}

TCI_FN void tci_cuda_backward_head(tci_str *out, const char *symbol, const tci_loop *l,
                                   int n_words)
{
    const tci_backward *x = l->backward;
    tci_cuda_skeleton k = tci_cuda_backward_describe(x);
    tci_cuda_skeleton_words(out, symbol, &k);
    tci_cuda_backward_class(out, symbol, x);
    tci_cuda_skeleton_open(out, symbol, l, (int)k.n_maps, n_words, tci_cuda_backward_warps(x), 1);
    tci_str_printf(out,
                   "    TC_SHARED;\n"
                   "    const unsigned at = (tc_shared_at(tc_shared) + 1023) & ~1023u;\n"
                   "    tc_backward_begin<%s_shape>(at);\n"
                   "    const int warp = tc_warp<%s_shape>();\n",
                   symbol, symbol);
    tci_cuda_skeleton_args(out);
}

/* ---- its blocks ---- */

TCI_FN int tci_cuda_backward_block(const tci_backward *x, int i)
{
    bool whole = !x->cut.is_cut; /* the blocks of a cut are not there */
    return i + (whole && i > TCI_CUDA_BACKWARD_VALUES) +
           (whole && i + 1 > TCI_CUDA_BACKWARD_SCORE);
}

/* Of a pair of a row and a step. */
static void tci_cuda_backward_open_pair(tci_str *out, const tci_backward *x, int block)
{
    const tci_matrix *s = &x->in[0];
    if (block == TCI_CUDA_BACKWARD_CHANGE) {
        tci_str_add(out, "    const auto change = [&](float weight, float value, const auto &own, "
                         "int q, int row, int step) {\n"
                         "    float all[] = {weight, value");
        for (int i = 2; i < x->n_values; i++) {
            tci_str_printf(out, ", own[%d][q]", i);
        }
        tci_str_add(out, "};\n    void *given = all;\n");
    } else {
        tci_str_printf(out,
                       "    const auto score_%d = [&](float value, int row, int step) {\n"
                       "    void *given = &value;\n",
                       block - TCI_CUDA_BACKWARD_SCORE);
    }
    tci_str_printf(out, "    const tc_i64 at_%d = row, at_%d = step;\n", s->m_axis, s->n_axis);
}

TCI_FN void tci_cuda_backward_open(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_backward *x = l->backward;
    const tci_matrix *s = &x->in[0], *o = &x->out[1];
    int block = tci_cuda_backward_block(x, i);
    (void)symbol;
    if (block == TCI_CUDA_BACKWARD_VALUES) {
        tci_str_add(out, "    const auto values = [&](float *own, tc_place p, int query) {\n"
                         "    void *given = own;\n");
        tci_cuda_attention_batch(out, s);
        tci_str_printf(out, "    const tc_i64 at_%d = query;\n",
                       x->by_step ? s->n_axis : s->m_axis);
    } else if (block == TCI_CUDA_BACKWARD_OFF) {
        tci_str_add(out, "    float off;\n    {\n    void *given = &off;\n");
    } else if (block == TCI_CUDA_BACKWARD_ROWS) {
        tci_str_printf(out,
                       "    const auto rows_1 = [&](int row, void *given) {\n"
                       "    const tc_i64 at_%d = row, at_%d = 0;\n",
                       o->m_axis, o->n_axis);
    } else {
        tci_cuda_backward_open_pair(out, x, block);
    }
}

/* The parts that the warps play, and the loop over tiles up to what the blocks for pairs need. All
 * warps know whether steps are left out. */
static void tci_cuda_backward_split(tci_str *out, const char *symbol, const tci_backward *x)
{
    int loader = 4 * x->in[0].consumers;
    bool moves = x->in[0].consumers > 1;
    tci_str_printf(out,
                   "    const bool cuts = %s;\n"
                   "    if (warp >= %d) {\n%s"
                   "        if (warp == %d && tc_warp_lane<%s_shape>() == 0) {\n"
                   "            tc_backward_load<%s_shape>(at, args.maps, cuts);\n        }\n",
                   x->cut.is_cut ? "off == -__builtin_inff()" : "false", loader,
                   moves ? "        tc_registers_fewer<40>();\n" : "", loader, symbol, symbol);
    if (x->by_step) {
        tci_str_printf(out,
                       "        if (warp == %d) {\n"
                       "            tc_backward_tell<%s_shape>(at, values, cuts);\n        }\n",
                       loader + 1, symbol);
    }
    tci_str_printf(out,
                   "        return;\n    }\n%s"
                   "    int ring = 0;\n    unsigned parity = 0;\n",
                   moves ? "    tc_registers_more<232>();\n" : "");
    tci_cuda_attention_tiles(out, symbol, &x->in[0]);
}

/* The sums of last product i are left, and a warp's rows of them taken, up to the hole. */
static void tci_cuda_backward_rows(tci_str *out, const char *symbol, const tci_backward *x, int i)
{
    const tci_matrix *o = &x->out[i];
    int taken = tci_backward_taken(x, i), bytes = tci_dtype_get((tc_dtype)o->staged)->bytes;
    tci_str_printf(out,
                   "    tc_matrix_leave<%s_left_%d>(x.o%d, at + %s_shape::staged_at + "
                   "warp / 4 * %d);\n    __syncwarp();\n",
                   symbol, taken, taken, symbol,
                   tci_backward_turns(x) ? 0 : TCI_MATRIX_SUB * (int)o->staged_pitch * bytes);
    tci_cuda_attention_rows(out, symbol, o);
}

static void tci_cuda_backward_run(tci_str *out, const char *symbol, const tci_backward *x)
{
    const tci_matrix *o = &x->out[0];
    tci_str_printf(out,
                   "    tc_backward<%s_shape> x;\n"
                   "    tc_backward_tile<%s_shape>(x, at, warp / 4, ring, parity, i, p, cuts, "
                   "values, score_0, score_%d, %s);\n"
                   "    const int rows = 64 * (warp / 4) + 16 * (warp & 3);\n",
                   symbol, symbol, x->cut.is_cut, x->n_in > 1 ? "change" : "0");
    if (tci_backward_turns(x)) {
        tci_str_printf(out,
                       "    tc_barrier_wait(tc_backward_turn<%s_shape>(at, warp / 4), "
                       "(i + 1 + warp / 4) %% 2);\n",
                       symbol);
    }
    if (x->n_out > 1) {
        tci_cuda_backward_rows(out, symbol, x, 1);
        tci_str_add(out, "    rows_1(p.m + row, given);\n    }\n    __syncwarp();\n");
    }
    tci_cuda_backward_rows(out, symbol, x, 0);
    tci_str_printf(out, "    const tc_i64 at_%d = p.m + row, at_%d = 0;\n", o->m_axis, o->n_axis);
}

TCI_FN void tci_cuda_backward_end(tci_str *out, const tci_backward *x, int i)
{
    int block = tci_cuda_backward_block(x, i);
    tci_str_add(out, block == TCI_CUDA_BACKWARD_CHANGE ? "    return all[0];\n    };\n"
                     : block == TCI_CUDA_BACKWARD_OFF  ? "    }\n"
                     : block == TCI_CUDA_BACKWARD_SCORE || block == TCI_CUDA_BACKWARD_SEEN
                         ? "    return value;\n    };\n"
                         : "    };\n");
}

TCI_FN void tci_cuda_backward_close(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_backward *x = l->backward;
    tci_cuda_backward_end(out, x, i);
    if (tci_cuda_backward_block(x, i) ==
        (x->cut.is_cut ? TCI_CUDA_BACKWARD_OFF : TCI_CUDA_BACKWARD_VALUES)) {
        tci_cuda_backward_split(out, symbol, x);
    }
    if (i + 1 == l->n_scores) {
        tci_cuda_backward_run(out, symbol, x);
    }
}

TCI_FN void tci_cuda_backward_tail(tci_str *out, const char *symbol, const tci_loop *l)
{
    tci_str_add(out, "    }\n    __syncwarp();\n");
    if (tci_backward_turns(l->backward)) {
        tci_str_printf(out,
                       "    tc_warp_arrive<%s_shape>(tc_backward_turn<%s_shape>(at, "
                       "1 - warp / 4));\n",
                       symbol, symbol);
    }
    tci_str_add(out, "    }\n}\n");
}
/* ---- src/cuda/custom.c ---- */
/* cuda/custom.c - see cuda/custom.h: a source of the user's text and a kernel that calls it.
 *
 * In: a kernel with a call whose op has a text. Out: a source that shares nothing with others, so
 * that no names meet. What NVRTC says of the text has the op's name and the line of the text.
 * Known sizes stand in the kernel as numbers; others are the words that its launch brings. */
/* ---- src/cuda/custom.h ---- */
/* cuda/custom.h - ops of the user's that have a text in CUDA C++, as kernels. */
#ifndef TCI_CUDA_CUSTOM_H
#define TCI_CUDA_CUSTOM_H

/* ---- src/cuda/dialect.h ---- */
/* cuda/dialect.h - the CUDA dialect's maker. */
#ifndef TCI_CUDA_DIALECT_H
#define TCI_CUDA_DIALECT_H


enum { TCI_CUDA_MAX_THREADS = 512, TCI_CUDA_THREAD_BYTES = 16 };

/* vector_bytes: of one thread's lanes. */
TCI_FN const tc_dialect *tci_cuda_words(void); /* what backends hand in */
TCI_FN tci_dialect *tci_dialect_cuda(tci_scratch *s, int vector_bytes);

#endif

/* ---- src/cuda/custom.h, continued ---- */
/* The hook `call` of the dialect (emit/dialect.h). */
TCI_FN void tci_cuda_custom(tci_dialect *d, tci_str *out, const tci_kernel *k, const tci_launch *l,
                            const char *symbol);

#endif

/* ---- src/cuda/custom.c, continued ---- */
static const char tci_cuda_custom_types[] =
    "struct tc_custom_array {\n    void *data;\n    tc_dtype dtype;\n    int rank;\n"
    "    const long long *sizes;\n    long long n;\n};\n";

static void tci_cuda_custom_dtypes(tci_str *out)
{
    tci_str_add(out, "enum tc_dtype {\n");
#define TCI_ROW(id, name, ctype, bytes, kind, compute)                                             \
    tci_str_printf(out, "    %s = %d,\n", #id, (int)id);
    TCI_DTYPE_ROWS(TCI_ROW)
#undef TCI_ROW
    tci_str_add(out, "};\n");
}

static void tci_cuda_custom_number(tci_str *out, const tci_launch *l, tci_dim d)
{
    int i = 0;
    while (i < l->n_dims && l->dims[i] != d) {
        i++;
    }
    if (i < l->n_dims) {
        tci_str_printf(out, "args.lits[%d]", i);
    } else {
        tci_str_printf(out, "%lld", (long long)tci_dim_known(d));
    }
}

static void tci_cuda_custom_sizes(tci_str *out, const tci_launch *l, const tc_custom_array *a,
                                  int i)
{
    tci_str_printf(out, "    const long long sizes%d[] = {", i);
    for (int d = 0; d < a->rank; d++) {
        tci_cuda_custom_number(out, l, tci_dim_list(a->sizes)[d]);
        tci_str_add(out, ", ");
    }
    tci_str_add(out, "0};\n"); /* an array has an element */
}

static void tci_cuda_custom_array(tci_str *out, const tci_launch *l, const tc_custom_array *a,
                                  int i, int operand)
{
    tci_str_printf(out, "{args.bufs[%d], (tc_dtype)%d, %d, sizes%d, ", operand, (int)a->dtype,
                   a->rank, i);
    tci_cuda_custom_number(out, l, (tci_dim)a->n);
    tci_str_add(out, "}");
}

/* Results that are the same value are computed one after the other. */
static void tci_cuda_custom_calls(tci_str *out, const tci_kernel *k, const tci_launch *l)
{
    const tci_custom_call *call = k->call;
    int n = call->n_inputs;
    for (int i = 0; i <= n; i++) {
        tci_cuda_custom_sizes(out, l, &call->arrays[i], i);
    }
    tci_str_add(out, "    const tc_custom_array in[] = {\n");
    for (int i = 0; i < n; i++) {
        tci_str_add(out, "        ");
        tci_cuda_custom_array(out, l, &call->arrays[i], i, i);
        tci_str_add(out, ",\n");
    }
    tci_str_add(out, "    };\n");
    for (int o = n; o < k->n_operands; o++) {
        tci_str_printf(out, "    tc_custom_array out%d = ", o - n);
        tci_cuda_custom_array(out, l, &call->arrays[n], n, o);
        tci_str_printf(out, ";\n%s    run(in, %d, &out%d);\n",
                       o > n ? "    __syncthreads();\n" : "", n, o - n);
    }
}

TCI_FN void tci_cuda_custom(tci_dialect *d, tci_str *out, const tci_kernel *k, const tci_launch *l,
                            const char *symbol)
{
    const tc_custom_op *op = &k->call->op->op;
    (void)d;
    tci_cuda_custom_dtypes(out);
    tci_str_add(out, tci_cuda_custom_types);
    tci_str_add(out, "#line 1 \"");
    for (const char *c = op->name; *c; c++) { /* as a file's name */
        tci_str_printf(out, "%c", *c == '"' || *c == '\\' || *c == '\n' ? '_' : *c);
    }
    tci_str_printf(out, "\"\n%s\n#line 1 \"tc.cu\"\n", op->cuda);
    tci_str_printf(out,
                   "struct %s_args { void *bufs[%d]; long long lits[%d]; long long *fault; };\n"
                   "extern \"C\" __global__ void __launch_bounds__(%d) %s(const %s_args args)\n{\n",
                   symbol, k->n_operands, TCI_MAX(l->n_dims, 1), tci_custom_threads(k->call->op),
                   symbol, symbol);
    tci_cuda_custom_calls(out, k, l);
    tci_str_add(out, "}\n");
}
/* ---- src/cuda/flash.c ---- */
/* cuda/flash.c - see cuda/flash.h. The text of the main loops, of small functions as in
 * cuda/attention.c and cuda/backward.c, some of which it shares.
 *
 * Shared memory, all as f32: of attention the queries of a tile, a step of keys, one of values, the
 * weights of tile by step, and a word for each half warp; of its gradients both factors of the
 * rows, both of a step, and pairs of tile by step. Each row is padded by four elements, so that
 * 16 bytes of neighbouring rows lie in different banks. What is left of the sums takes the place of
 * all that, once they are made.
 *
 * Half a warp has rows group + 8 r of a tile; each of its lanes has steps lane + 16 j of these, and
 * of each 16 W columns of a result W that lie together. So a product of four elements along a row
 * takes one load for a row, which the half warp shares, and one for a step; and weights that lanes
 * leave in shared memory are taken by lanes of the same warp.
 *
 * Keys of the next step are on their way while weights are made and summed, values of it while its
 * scores are. Where keys are cut off for a tile's queries, the steps beyond the cut are left out as
 * in cuda/attention.c: each half warp says whether its rows are far enough above it.
 *
 * Invariants: a barrier stands before the first read of what all threads have copied and before
 * the next copy to where all have read. Rows and steps that do not exist are zeros, and their
 * weights are 0, or are never stored. */
/* ---- src/cuda/flash.h ---- */
/* cuda/flash.h - the main loops of attention and its gradients by threads alone, as text. */
#ifndef TCI_CUDA_FLASH_H
#define TCI_CUDA_FLASH_H


/* Definitions that every such kernel of a file shares, behind those of cuda/attention.h. */
TCI_FN void tci_cuda_flash_prelude(tci_str *out);
/* Is the loop one of these kernels? */
TCI_FN bool tci_cuda_is_flash(const tci_loop *l);
/* The kernel up to its operands; before block i of its scores, and behind it; and the end. */
TCI_FN void tci_cuda_flash_head(tci_str *out, const char *symbol, const tci_loop *l, int n_words);
TCI_FN void tci_cuda_flash_open(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_flash_close(tci_str *out, const char *symbol, const tci_loop *l, int i);
TCI_FN void tci_cuda_flash_tail(tci_str *out);

#endif

/* ---- src/cuda/flash.c, continued ---- */
#include <string.h>

/* ---- the prelude ---- */

/* Copies of 16 bytes that go on by themselves, in groups; older cards wait for each. */
static const char tci_cuda_flash_copies[] =
    "#ifndef TC_NO_PTX\n#if __CUDA_ARCH__ >= 800\n"
    "TC_I void tc_copy_four(float *to, const float *from, bool is) {\n"
    "    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" :: "
    "\"r\"(tc_shared_at(to)), \"l\"(from), \"r\"(is ? 16 : 0) : \"memory\");\n}\n"
    "TC_I void tc_copies_commit() { asm volatile(\"cp.async.commit_group;\" ::: \"memory\"); }\n"
    "template <int n> TC_I void tc_copies_wait() {\n"
    "    asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(n) : \"memory\");\n}\n"
    "#else\n"
    "TC_I void tc_copy_four(float *to, const float *from, bool is) {\n"
    "    *(tc_pack<float, 4> *)to = is ? *(const tc_pack<float, 4> *)from : "
    "tc_pack<float, 4>{{0, 0, 0, 0}};\n}\n"
    "TC_I void tc_copies_commit() {}\n"
    "template <int n> TC_I void tc_copies_wait() {}\n"
    "#endif\n#endif\n";

/* Rows of `size` elements, n of which exist, as rows of `width`. whole: four at once lie at a
 * multiple of four; turned: rows lie together. */
static const char tci_cuda_flash_loading[] =
    "template <class S> TC_I int tc_flash_thread() {\n"
    "    return threadIdx.y * S::row_threads + threadIdx.x;\n}\n"
    "TC_I float tc_flash_max(float x) {\n"
    "    for (int i = 1; i < 16; i *= 2) {\n        x = fmaxf(x, tc_swap(x, i));\n    }\n"
    "    return x;\n}\n"
    "TC_I float tc_flash_sum(float x) {\n"
    "    for (int i = 1; i < 16; i *= 2) {\n        x += tc_swap(x, i);\n    }\n"
    "    return x;\n}\n"
    "template <class S, bool whole, int size>\n"
    "TC_I void tc_flash_four(float *to, const float *from, tc_i64 summed, int k, bool is) {\n"
    "    if (whole) {\n"
    "        tc_copy_four(to, from + (k < size ? k : 0), is && k < size);\n        return;\n    }\n"
    "    tc_pack<float, 4> four;\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < 4; j++) {\n"
    "        four.e[j] = is && k + j < size ? from[(k + j) * summed] : 0;\n    }\n"
    "    *(tc_pack<float, 4> *)to = four;\n}\n"
    "template <class S, bool whole, int size>\n"
    "TC_I void tc_flash_four(float *to, const unsigned short *from, tc_i64 summed, int k, bool is) "
    "{\n"
    "    tc_pack<float, 4> four;\n    tc_pack<unsigned short, 4> halves = {{0, 0, 0, 0}};\n"
    "    if (whole && is && k < size) {\n"
    "        halves = *(const tc_pack<unsigned short, 4> *)(from + k);\n    }\n"
    "#pragma unroll\n"
    "    for (int j = 0; j < 4; j++) {\n"
    "        if (!whole && is && k + j < size) {\n"
    "            halves.e[j] = from[(k + j) * summed];\n        }\n"
    "        four.e[j] = S::wide(halves.e[j]);\n    }\n"
    "    *(tc_pack<float, 4> *)to = four;\n}\n"
    "template <class S, int rows, int size, int width, bool whole, bool turned, class E>\n"
    "TC_I void tc_flash_load(float *to, const E *from, tc_i64 own, tc_i64 summed, int n) {\n"
    "    const int fours = width / 4;\n"
    "#pragma unroll 8\n"
    "    for (int i = tc_flash_thread<S>(); i < rows * fours; i += S::threads) {\n"
    "        const int row = turned ? i % rows : i / fours, k = 4 * (turned ? i / rows : i % "
    "fours);\n"
    "        tc_flash_four<S, whole, size>(to + row * (width + 4) + k, from + (row < n ? row : 0) "
    "* own,\n                                      summed, k, row < n);\n    }\n}\n";

/* Pairs s += rows steps, over `width` elements of both; and sums o += pairs steps. */
static const char tci_cuda_flash_products[] =
    "template <class S, int width>\n"
    "TC_I void tc_flash_pairs(float (&s)[S::points][S::each], const float *rows, const float "
    "*steps) {\n"
    "    rows += tc_flash_thread<S>() / 16 * (width + 4);\n"
    "    steps += tc_flash_thread<S>() % 16 * (width + 4);\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        s[i / S::each][i % S::each] = 0;\n    }\n"
    "#pragma unroll 2\n"
    "    for (int k = 0; k < width; k += 4) {\n        tc_pack<float, 4> b[S::each];\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < S::each; j++) {\n"
    "            b[j] = *(const tc_pack<float, 4> *)(steps + 16 * j * (width + 4) + k);\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int r = 0; r < S::points; r++) {\n"
    "            const tc_pack<float, 4> a = *(const tc_pack<float, 4> *)(rows + 8 * r * (width + "
    "4) + k);\n"
    "#pragma unroll\n"
    "            for (int i = 0; i < 4 * S::each; i++) {\n"
    "                const int j = i % S::each, e = i / S::each;\n"
    "                s[r][j] = __fmaf_rn(a.e[e], b[j].e[e], s[r][j]);\n            }\n"
    "        }\n    }\n}\n"
    "template <class S, int columns>\n"
    "TC_I void tc_flash_sums(float (&o)[S::points][columns / 16], const float *pairs, const float "
    "*steps) {\n"
    "    const int wide = columns % 64 == 0 ? 4 : columns % 32 == 0 ? 2 : 1;\n"
    "    pairs += tc_flash_thread<S>() / 16 * (S::step + 4);\n"
    "    steps += tc_flash_thread<S>() % 16 * wide;\n"
    "#pragma unroll 1\n"
    "    for (int n = 0; n < S::step; n += 4) {\n        tc_pack<float, 4> a[S::points];\n"
    "#pragma unroll\n"
    "        for (int r = 0; r < S::points; r++) {\n"
    "            a[r] = *(const tc_pack<float, 4> *)(pairs + 8 * r * (S::step + 4) + n);\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < 4 * (columns / 16 / wide); i++) {\n"
    "            const int e = i % 4, g = i / 4;\n"
    "            const tc_pack<float, wide> b = *(const tc_pack<float, wide> *)(steps + (n + e) * "
    "(columns + 4) + g * 16 * wide);\n"
    "#pragma unroll\n"
    "            for (int j = 0; j < S::points * wide; j++) {\n"
    "                float &to = o[j / wide][g * wide + j % wide];\n"
    "                to = __fmaf_rn(a[j / wide].e[e], b.e[j % wide], to);\n            }\n"
    "        }\n    }\n}\n"
    "template <class S, int columns>\n"
    "TC_I void tc_flash_leave(const float (&o)[S::points][columns / 16], float *to, int pitch) {\n"
    "    const int wide = columns % 64 == 0 ? 4 : columns % 32 == 0 ? 2 : 1;\n"
    "    to += tc_flash_thread<S>() / 16 * pitch + tc_flash_thread<S>() % 16 * wide;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * (columns / 16); i++) {\n"
    "        const int r = i / (columns / 16), c = i % (columns / 16);\n"
    "        to[8 * r * pitch + c / wide * 16 * wide + c % wide] = o[r][c];\n    }\n}\n"
    "template <class S>\n"
    "TC_I void tc_flash_tell(const float (&s)[S::points][S::each], float *pairs) {\n"
    "    pairs += tc_flash_thread<S>() / 16 * (S::step + 4) + tc_flash_thread<S>() % 16;\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        pairs[8 * (i / S::each) * (S::step + 4) + 16 * (i % S::each)] =\n"
    "            S::round(s[i / S::each][i % S::each]);\n    }\n    __syncwarp();\n}\n"
    "template <class S, class F>\n"
    "TC_I void tc_flash_scores(float (&s)[S::points][S::each], int row, int n, F score) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        float &to = s[i / S::each][i % S::each];\n"
    "        to = score(to, S::rows_end(row + 8 * (i / S::each)), S::steps_end(n + 16 * (i % "
    "S::each)));\n    }\n}\n";

static const char tci_cuda_flash_powers[] =
    "template <class S> struct tc_flash {\n"
    "    float o[S::points][S::columns / 16], s[S::points][S::each], most[S::points], "
    "sum[S::points];\n};\n"
    "template <class S> TC_I void tc_flash_powers(tc_flash<S> &x) {\n"
    "    const float log2e = 1.44269504f;\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n        float most = x.s[r][0], sum = 0;\n"
    "#pragma unroll\n"
    "        for (int j = 1; j < S::each; j++) {\n"
    "            most = fmaxf(most, x.s[r][j]);\n        }\n"
    "        const float old = x.most[r];\n"
    "        x.most[r] = fmaxf(old, tc_flash_max(most));\n"
    "        const float off = x.most[r] == -__builtin_inff() ? 0.0f : x.most[r];\n"
    "        const float scale = tc_power_of_2((old - off) * log2e);\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < S::each; j++) {\n"
    "            x.s[r][j] = tc_power_of_2((x.s[r][j] - off) * log2e);\n"
    "            sum += x.s[r][j];\n        }\n"
    "        x.sum[r] = __fmaf_rn(x.sum[r], scale, sum);\n"
    "#pragma unroll\n"
    "        for (int c = 0; c < S::columns / 16; c++) {\n            x.o[r][c] *= scale;\n"
    "        }\n    }\n}\n"
    "template <class S> TC_I bool tc_flash_is_far(tc_flash<S> &x, float *words, float cut) {\n"
    "    float far = __builtin_inff();\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        far = fminf(far, cut == -__builtin_inff() ? far : x.most[r] - cut);\n    }\n"
    "    if (tc_flash_thread<S>() % 16 == 0) {\n"
    "        words[tc_flash_thread<S>() / 16] = far;\n    }\n    __syncthreads();\n"
    "    bool all = true;\n"
    "    for (int i = 0; i < 8; i++) {\n        all = all && words[i] > 128.0f;\n    }\n"
    "    return all;\n}\n";

static const char tci_cuda_flash_tile[] =
    "template <class S, class F, class G>\n"
    "TC_I void tc_flash_tile(tc_flash<S> &x, float *at, void *const *bufs, tc_place p, F score, G "
    "seen) {\n"
    "    const int row = p.m + tc_flash_thread<S>() / 16, lane = tc_flash_thread<S>() % 16;\n"
    "    int end = S::end(p);\n    bool asks = end < S::keys;\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        x.most[r] = -__builtin_inff();\n        x.sum[r] = 0;\n"
    "#pragma unroll\n"
    "        for (int c = 0; c < S::columns / 16; c++) {\n            x.o[r][c] = 0;\n        }\n"
    "    }\n"
    "    S::load_queries(at, bufs, p, p.m);\n"
    "    S::load_keys(at + S::keys_at, bufs, p, 0);\n    tc_copies_commit();\n"
    "    S::load_values(at + S::values_at, bufs, p, 0);\n    tc_copies_commit();\n"
    "    for (int key = 0;;) {\n"
    "        tc_copies_wait<1>();\n        __syncthreads();\n"
    "        tc_flash_pairs<S, S::width>(x.s, at, at + S::keys_at);\n"
    "        __syncthreads();\n"
    "        if (key + S::step < end) {\n"
    "            S::load_keys(at + S::keys_at, bufs, p, key + S::step);\n        }\n"
    "        tc_copies_commit();\n"
    "        if (key + S::step <= S::seen(p.m)) {\n"
    "            tc_flash_scores<S>(x.s, row, key + lane, seen);\n        } else {\n"
    "            tc_flash_scores<S>(x.s, row, key + lane, score);\n        }\n"
    "        if (S::keys % S::step != 0 && key + S::step > S::keys) {\n"
    "#pragma unroll\n"
    "            for (int i = 0; i < S::points * S::each; i++) {\n"
    "                if (key + lane + 16 * (i % S::each) >= S::keys) {\n"
    "                    x.s[i / S::each][i % S::each] = -__builtin_inff();\n                }\n"
    "            }\n        }\n"
    "        tc_flash_powers<S>(x);\n"
    "        tc_flash_tell<S>(x.s, at + S::pairs_at);\n"
    "        tc_copies_wait<1>();\n        __syncthreads();\n"
    "        tc_flash_sums<S, S::columns>(x.o, at + S::pairs_at, at + S::values_at);\n"
    "        __syncthreads();\n        key += S::step;\n"
    "        if (key >= end) {\n"
    "            if (!asks || tc_flash_is_far<S>(x, at + S::words_at, score(0.0f, "
    "S::rows_end(p.m), end))) {\n                break;\n            }\n"
    "            asks = false;\n            end = S::keys;\n"
    "            S::load_keys(at + S::keys_at, bufs, p, key);\n            tc_copies_commit();\n"
    "        }\n"
    "        S::load_values(at + S::values_at, bufs, p, key);\n        tc_copies_commit();\n"
    "    }\n    __syncthreads();\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        const float sum = tc_flash_sum(x.sum[r]), by = 1.0f / sum;\n"
    "#pragma unroll\n"
    "        for (int c = 0; c < S::columns / 16; c++) {\n            x.o[r][c] *= by;\n        }\n"
    "        if (S::tells && lane == 0) {\n"
    "            float *to = at + (row - p.m + 8 * r) * S::staged_pitch + S::lanes;\n"
    "            to[0] = x.most[r];\n            to[1] = sum;\n        }\n    }\n"
    "    tc_flash_leave<S, S::columns>(x.o, at, S::staged_pitch);\n    __syncthreads();\n}\n";

/* ---- the prelude of gradients ---- */

static const char tci_cuda_flash_back[] =
    "template <class S> struct tc_flash_back {\n"
    "    float s[S::points][S::each], g[S::points][S::each];\n"
    "    float o0[S::points][S::columns_0 / 16], o1[S::points][S::columns_1 / 16];\n"
    "    float own[S::values][S::by_step ? S::each : S::points];\n};\n"
    "template <class S, class V>\n"
    "TC_I void tc_flash_own(tc_flash_back<S> &x, V values, tc_place p, int i, int query) {\n"
    "    float own[S::values];\n    const bool is = query < S::queries;\n"
    "    values(own, p, is ? query : S::queries - 1);\n"
    "    own[0] = is ? own[0] : __builtin_inff();\n    own[1] = is ? tc_log_2(own[1]) : 0.0f;\n"
    "#pragma unroll\n"
    "    for (int k = 0; k < S::values; k++) {\n        x.own[k][i] = own[k];\n    }\n}\n"
    "template <class S> TC_I void tc_flash_weights(tc_flash_back<S> &x, int n) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        const int r = i / S::each, j = i % S::each, q = S::by_step ? j : r;\n"
    "        const bool is = S::by_step || n + 16 * j < S::n;\n"
    "        const float s = is ? x.s[r][j] : -__builtin_inff();\n"
    "        x.s[r][j] = tc_power_of_2(__fmaf_rn(s - x.own[0][q], 1.44269504f, -x.own[1][q]));\n"
    "    }\n}\n"
    "template <class S, class G>\n"
    "TC_I void tc_flash_changes(tc_flash_back<S> &x, int row, int n, G change) {\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < S::points * S::each; i++) {\n"
    "        const int r = i / S::each, j = i % S::each;\n"
    "        const float w = S::rounds ? S::round(x.s[r][j]) : x.s[r][j];\n"
    "        x.g[r][j] = change(w, x.g[r][j], x.own, S::by_step ? j : r, S::rows_end(row + 8 * "
    "r),\n                           S::steps_end(n + 16 * j));\n    }\n}\n"
    "template <class S, class V, class F, class H, class G>\n"
    "TC_I void tc_flash_back_tile(tc_flash_back<S> &x, float *at, void *const *bufs, tc_place p, "
    "bool cuts,\n                             V values, F score, H seen, G change) {\n"
    "    const int row = p.m + tc_flash_thread<S>() / 16, lane = tc_flash_thread<S>() % 16;\n"
    "    const int end = S::end(p, cuts);\n"
    "#pragma unroll\n"
    "    for (int r = 0; r < S::points; r++) {\n"
    "        for (int c = 0; c < S::columns_0 / 16; c++) {\n            x.o0[r][c] = 0;\n"
    "        }\n"
    "        for (int c = 0; c < S::columns_1 / 16; c++) {\n            x.o1[r][c] = 0;\n"
    "        }\n"
    "        if (!S::by_step) {\n            tc_flash_own(x, values, p, r, row + 8 * r);\n"
    "        }\n"
    "    }\n"
    "    S::load_rows_0(at, bufs, p, p.m);\n"
    "    if constexpr (S::changes) {\n"
    "        S::load_rows_1(at + S::rows_1, bufs, p, p.m);\n    }\n"
    "    for (int n = S::first(p, cuts); n < end; n += S::step) {\n"
    "        S::load_steps_0(at + S::steps_at, bufs, p, n);\n"
    "        S::load_steps_1(at + S::steps_1, bufs, p, n);\n        tc_copies_commit();\n"
    "        if (S::by_step) {\n"
    "#pragma unroll\n"
    "            for (int j = 0; j < S::each; j++) {\n"
    "                tc_flash_own(x, values, p, j, n + lane + 16 * j);\n            }\n        }\n"
    "        tc_copies_wait<0>();\n        __syncthreads();\n"
    "        tc_flash_pairs<S, S::width_0>(x.s, at, at + S::steps_at);\n"
    "        if (S::whole(p.m, n)) {\n"
    "            tc_flash_scores<S>(x.s, row, n + lane, seen);\n        } else {\n"
    "            tc_flash_scores<S>(x.s, row, n + lane, score);\n        }\n"
    "        tc_flash_weights<S>(x, n + lane);\n"
    "        if constexpr (S::weighs) {\n"
    "            tc_flash_tell<S>(x.s, at + S::pairs_at);\n"
    "            tc_flash_sums<S, S::columns_1>(x.o1, at + S::pairs_at, at + S::steps_1);\n"
    "            __syncwarp();\n        }\n"
    "        if constexpr (S::changes) {\n"
    "            tc_flash_pairs<S, S::width_1>(x.g, at + S::rows_1, at + S::steps_1);\n"
    "            tc_flash_changes<S>(x, row, n + lane, change);\n"
    "            tc_flash_tell<S>(x.g, at + S::pairs_at);\n"
    "            tc_flash_sums<S, S::columns_0>(x.o0, at + S::pairs_at, at + S::steps_at);\n"
    "        }\n"
    "        __syncthreads();\n    }\n}\n";

TCI_FN void tci_cuda_flash_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_flash_copies);
    tci_str_add(out, tci_cuda_flash_loading);
    tci_str_add(out, tci_cuda_flash_products);
    tci_str_add(out, tci_cuda_flash_powers);
    tci_str_add(out, tci_cuda_flash_tile);
    tci_str_add(out, tci_cuda_flash_back);
}

/* ---- the class of a kernel ---- */

TCI_FN bool tci_cuda_is_flash(const tci_loop *l)
{
    return (l->attention && l->attention->threads) || (l->backward && l->backward->threads);
}

static const char *tci_cuda_flash_type(const tci_matrix *x)
{
    return x->dtype == TC_F32 ? "float" : "unsigned short";
}

/* Do fours of its elements lie at a multiple of four? */
static bool tci_cuda_flash_is_whole(const tci_matrix *x, const tci_matrix_side *side, int64_t size)
{
    bool whole = side->summed == 1 && size % 4 == 0 && side->own % 4 == 0 && side->offset % 4 == 0;
    for (int i = 0; i < x->n_batch; i++) {
        whole = whole && side->batch_pitch[i] % 4 == 0;
    }
    return whole;
}

/* The function `name`, which loads `rows` of a side's n rows of `size` elements from row `first`
 * on; they lie `own` apart, their elements `summed`. */
static void tci_cuda_flash_load(tci_str *out, const char *symbol, const char *name,
                                const tci_matrix *x, tci_matrix_side side, int64_t n, int rows,
                                int64_t size, int width)
{
    tci_str_printf(out,
                   "    TC_I void %s(float *to, void *const *bufs, tc_place p, int first) {\n"
                   "        tc_flash_load<%s_shape, %d, %lld, %d, %d, %d>(to, (const %s *)bufs[%d] "
                   "+ %lld",
                   name, symbol, rows, (long long)size, width,
                   tci_cuda_flash_is_whole(x, &side, size), side.own == 1 && side.summed != 1,
                   tci_cuda_flash_type(x), side.operand, (long long)side.offset);
    for (int i = 0; i < x->n_batch; i++) {
        if (side.batch_pitch[i]) {
            tci_str_printf(out, " + p.b%d * %lldll", i, (long long)side.batch_pitch[i]);
        }
    }
    tci_str_printf(out, " + first * %lldll,\n            %lld, %lld, %lld - first);\n    }\n",
                   (long long)side.own, (long long)side.own, (long long)side.summed, (long long)n);
}

/* A side whose own axis and summed axis have changed places. */
static tci_matrix_side tci_cuda_flash_turned(tci_matrix_side side)
{
    int64_t own = side.own;
    side.own = side.summed;
    side.summed = own;
    return side;
}

static void tci_cuda_flash_dtype(tci_str *out, const tci_matrix *x)
{
    bool is_f16 = x->dtype == TC_F16;
    if (x->dtype == TC_F32) {
        tci_str_add(out, "    TC_I float round(float x) { return x; }\n"
                         "    TC_I float wide(unsigned short x) { return x; }\n");
    } else {
        tci_str_printf(out,
                       "    TC_I float wide(unsigned short x) {\n        return %s;\n    }\n"
                       "    TC_I float round(float x) {\n        return %s;\n    }\n",
                       is_f16 ? "tc_widen_f32_f16(x)" : "__int_as_float((int)((unsigned)x << 16))",
                       is_f16 ? "tc_widen_f32_f16(tc_narrow_f32_f16(x))" : "tc_round_bf16(x)");
    }
}

static int tci_cuda_flash_width(int64_t size)
{
    return tci_flash_pitch(size) - TCI_FLASH_PAD;
}

static void tci_cuda_flash_class(tci_str *out, const char *symbol, const tci_attention *x)
{
    const tci_matrix *s = &x->scores, *r = &x->result;
    int width = tci_cuda_flash_width(s->k);
    int keys_at = s->rows * tci_flash_pitch(s->k);
    int values_at = keys_at + s->columns * tci_flash_pitch(s->k);
    int pairs_at = values_at + s->columns * tci_flash_pitch(r->columns);
    tci_str_printf(out,
                   "struct %s_shape {\n    enum {\n        threads = %d, row_threads = %d, "
                   "width = %d, keys = %lld, step = %d, points = %d,\n        each = %d, "
                   "columns = %d, tiles = %lld, tells = %d, lanes = %d, staged_pitch = %d,\n"
                   "        keys_at = %d, values_at = %d, pairs_at = %d, words_at = %d\n    };\n",
                   symbol, x->threads, r->row_threads, width, (long long)s->n, s->columns,
                   s->rows / TCI_FLASH_GROUPS, s->columns / TCI_FLASH_LANES, r->columns,
                   (long long)s->tiles, x->tells, r->lanes, (int)r->staged_pitch, keys_at,
                   values_at, pairs_at, pairs_at + s->rows * tci_flash_pitch(s->columns));
    tci_cuda_flash_dtype(out, s);
    tci_cuda_attention_cut(out, x);
    tci_cuda_attention_end(out, "rows", s->m, s->rows);
    tci_cuda_attention_end(out, "steps", s->n, s->columns);
    tci_cuda_flash_load(out, symbol, "load_queries", s, s->side[0], s->m, s->rows, s->k, width);
    tci_cuda_flash_load(out, symbol, "load_keys", s, s->side[1], s->n, s->columns, s->k, width);
    tci_cuda_flash_load(out, symbol, "load_values", r, tci_cuda_flash_turned(r->side[1]), s->n,
                        s->columns, r->n, r->columns);
    tci_cuda_matrix_place(out, r);
    tci_str_add(out, "};\n");
}

static void tci_cuda_flash_back_class(tci_str *out, const char *symbol, const tci_backward *x)
{
    const tci_matrix *s = &x->in[0], *g = &x->in[1];
    int width[2] = {(int)tci_backward_columns_of(s->k), (int)tci_backward_columns_of(g->k)};
    int rows_1 = s->rows * tci_flash_pitch(width[0]);
    int steps_at = rows_1 + (x->n_in > 1 ? s->rows * tci_flash_pitch(width[1]) : 0);
    int steps_1 = steps_at + s->columns * tci_flash_pitch(width[0]);
    tci_str_printf(out,
                   "struct %s_shape {\n    enum {\n        threads = %d, row_threads = %d, "
                   "width_0 = %d, width_1 = %d, n = %lld, step = %d, points = %d, each = %d,\n"
                   "        by_step = %d, rounds = %d, values = %d, queries = %lld, tiles = "
                   "%lld, staged_pitch = %d,\n        rows_1 = %d, steps_at = %d, steps_1 = %d, "
                   "pairs_at = %d\n    };\n",
                   symbol, x->threads, x->out[0].row_threads, width[0], width[1],
                   (long long)s->n, s->columns, s->rows / TCI_FLASH_GROUPS,
                   s->columns / TCI_FLASH_LANES, x->by_step, x->rounds, x->n_values,
                   (long long)(x->by_step ? s->n : s->m), (long long)s->tiles,
                   (int)x->out[0].staged_pitch, rows_1, steps_at, steps_1,
                   steps_1 + s->columns * tci_flash_pitch(width[1]));
    tci_cuda_backward_sums(out, x);
    tci_cuda_flash_dtype(out, s);
    tci_cuda_backward_cut(out, x);
    tci_cuda_attention_end(out, "rows", s->m, s->rows);
    tci_cuda_attention_end(out, "steps", s->n, s->columns);
    for (int i = 0; i < 2; i++) {
        const tci_matrix *in = &x->in[i];
        if (i < x->n_in) {
            tci_cuda_flash_load(out, symbol, i ? "load_rows_1" : "load_rows_0", in, in->side[0],
                                s->m, s->rows, in->k, width[i]);
        }
        tci_cuda_flash_load(out, symbol, i ? "load_steps_1" : "load_steps_0", in, in->side[1],
                            s->n, s->columns, in->k, width[i]);
    }
    tci_cuda_matrix_place(out, &x->out[0]);
    tci_str_add(out, "};\n");
}

/* ---- the kernel ---- */

TCI_FN void tci_cuda_flash_head(tci_str *out, const char *symbol, const tci_loop *l, int n_words)
{
    const tci_attention *a = l->attention;
    const tci_backward *x = l->backward;
    int threads = a ? a->threads : x->threads;
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = a ? tci_flash_bytes(a) : tci_flash_back_bytes(x);
    k.block_x = l->matrix->row_threads;
    k.block_y = threads / l->matrix->row_threads;
    tci_cuda_skeleton_words(out, symbol, &k);
    if (a) {
        tci_cuda_flash_class(out, symbol, a);
    } else {
        tci_cuda_flash_back_class(out, symbol, x);
    }
    tci_cuda_skeleton_open(out, symbol, l, 0, n_words, threads / TCI_MATRIX_WARP,
                           a ? a->blocks : x->blocks);
    tci_str_add(out, "    TC_SHARED;\n    float *const at = (float *)tc_shared;\n");
    tci_cuda_skeleton_args(out);
}

/* A warp's rows of the sums that are left, up to what takes them. */
static void tci_cuda_flash_rows(tci_str *out, const tci_matrix *o, int threads)
{
    int groups = TCI_MATRIX_WARP / o->row_threads; /* of rows that a warp is at */
    int rows = o->rows / (threads / TCI_MATRIX_WARP);
    tci_str_printf(out,
                   "    for (int row = threadIdx.y / %d * %d + threadIdx.y %% %d * %d, end = "
                   "threadIdx.y / %d * %d + %d; row < end; row += %d) {\n"
                   "    if (p.m + row >= %lld) {\n        break;\n    }\n"
                   "    void *given = at + row * %d;\n",
                   groups, rows, groups, o->group_rows, groups, rows, rows,
                   groups * o->group_rows, (long long)o->m, (int)o->staged_pitch);
}

static void tci_cuda_flash_run(tci_str *out, const char *symbol, const tci_attention *x)
{
    const tci_matrix *r = &x->result;
    tci_str_printf(out,
                   "    tc_flash<%s_shape> x;\n"
                   "    tc_flash_tile<%s_shape>(x, at, bufs, p, score_0, score_%d);\n",
                   symbol, symbol, x->cut.is_cut);
    tci_cuda_flash_rows(out, r, x->threads);
    tci_str_printf(out, "    const tc_i64 at_%d = p.m + row, at_%d = 0;\n", r->m_axis, r->n_axis);
}

static void tci_cuda_flash_back_run(tci_str *out, const char *symbol, const tci_backward *x)
{
    const tci_matrix *o = &x->out[0];
    tci_str_printf(out,
                   "    tc_flash_back<%s_shape> x;\n"
                   "    tc_flash_back_tile<%s_shape>(x, at, bufs, p, cuts, values, score_0, "
                   "score_%d, %s);\n",
                   symbol, symbol, x->cut.is_cut, x->n_in > 1 ? "change" : "0");
    for (int i = x->n_out - 1; i >= 0; i--) {
        int taken = tci_backward_taken(x, i);
        tci_str_printf(out,
                       "    tc_flash_leave<%s_shape, %s_shape::columns_%d>(x.o%d, at, "
                       "%s_shape::staged_pitch);\n    __syncthreads();\n",
                       symbol, symbol, taken, taken, symbol);
        tci_cuda_flash_rows(out, &x->out[i], x->threads);
        if (i == 1) {
            tci_str_add(out, "    rows_1(p.m + row, given);\n    }\n    __syncthreads();\n");
        }
    }
    tci_str_printf(out, "    const tc_i64 at_%d = p.m + row, at_%d = 0;\n", o->m_axis, o->n_axis);
}

TCI_FN void tci_cuda_flash_open(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    if (l->backward) {
        tci_cuda_backward_open(out, symbol, l, i);
        return;
    }
    const tci_matrix *s = &l->attention->scores;
    if (i == 0) {
        tci_cuda_attention_tiles(out, symbol, s);
    }
    tci_cuda_attention_value(out, s, i);
}

TCI_FN void tci_cuda_flash_close(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_backward *x = l->backward;
    bool last = i + 1 == l->n_scores;
    if (!x) {
        tci_str_add(out, "    return value;\n    };\n");
        if (last) {
            tci_cuda_flash_run(out, symbol, l->attention);
        }
        return;
    }
    tci_cuda_backward_end(out, x, i);
    if (tci_cuda_backward_block(x, i) ==
        (x->cut.is_cut ? TCI_CUDA_BACKWARD_OFF : TCI_CUDA_BACKWARD_VALUES)) {
        tci_str_printf(out, "    const bool cuts = %s;\n",
                       x->cut.is_cut ? "off == -__builtin_inff()" : "false");
        tci_cuda_attention_tiles(out, symbol, &x->in[0]);
    }
    if (last) {
        tci_cuda_flash_back_run(out, symbol, x);
    }
}

TCI_FN void tci_cuda_flash_tail(tci_str *out)
{
    tci_str_add(out, "    }\n    __syncthreads();\n    }\n}\n");
}
/* ---- src/cuda/warps.c ---- */
/* cuda/warps.c - see cuda/warps.h: mma.sync, which cards have from sm_75 on.
 *
 * In: the unit's statements (loop/mem.h). Out: their text, in two layers: functions of one PTX
 * instruction each, which tests that run the text without a GPU define for themselves (TC_NO_PTX),
 * and what the statements make of them.
 *
 * Layouts of the PTX ISA, lane = g * 4 + t: a factor of 16 rows of 32 bytes is four words, word j
 * number t + 4 (j / 2) of row g + 8 (j % 2). That is how ldmatrix.x4 hands out four squares of
 * 8 rows of 16 bytes, to which lanes 8 j .. 8 j + 7 give square j's rows; it is the first factor of
 * m16n8k16 (k8 of f32, k32 of bytes). A second factor is two of 8 columns, words 0, 1 and words 2,
 * 3, neighbours as the instruction wants registers: word j is number t + 4 (j % 2) of row g + 8
 * (j / 2). The results are sums 0 .. 3 and 4 .. 7: rows g, g, g + 8, g + 8, columns 2 t, 2 t + 1,
 * and so again. A word of f64 is one element, number 2 t + j / 2 of the row where it says number
 * t + 4 (j / 2): both factors have them in that order, so that two lie together in memory.
 * Smaller instructions take one part of these after the other: sm_75 multiplies eight f16 of the
 * depth at once, words 0, 1 by the first of a second factor's two, then 2, 3 by the other, and 8
 * rows of 16 bytes; sm_80 8 rows of four f64. */
/* ---- src/cuda/warps.h ---- */
/* cuda/warps.h - the matrix units of warps, as text. */
#ifndef TCI_CUDA_WARPS_H
#define TCI_CUDA_WARPS_H


/* How an access is spelled: see tci_cuda_rows in cuda/dialect.c. */
typedef struct tci_cuda_row { uint8_t mem; const char *name, *text; } tci_cuda_row;

/* The row of a statement of the unit; NULL: it is none. */
TCI_FN const tci_cuda_row *tci_cuda_warps_row(tci_mem m);
/* Definitions that the rows share. */
TCI_FN void tci_cuda_warps_prelude(tci_str *out);

#endif

/* ---- src/cuda/warps.c, continued ---- */
static const char tci_cuda_warps_text[] =
    "#ifndef TC_NO_PTX\n"
    "TC_I unsigned tc_shared_of(const void *p) {\n"
    "    return (unsigned)__cvta_generic_to_shared(p);\n"
    "}\n"
    "TC_I void tc_squares(unsigned *w, const void *row) {\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(w[0]), \"=r\"(w[1]), \"=r\"(w[2]), \"=r\"(w[3])\n"
    "                 : \"r\"(tc_shared_of(row)) : \"memory\");\n"
    "}\n"
    "TC_I void tc_squares_turned(unsigned *w, const void *row) {\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(w[0]), \"=r\"(w[1]), \"=r\"(w[2]), \"=r\"(w[3])\n"
    "                 : \"r\"(tc_shared_of(row)) : \"memory\");\n"
    "}\n"
    "#define TC_MULTIPLY(name, C, A, B, sum, factor, shape) \\\n"
    "TC_I void name(C *c, const A *a, B b, B d) { \\\n"
    "    asm(\"mma.sync.aligned.\" shape \" {%0, %1, %2, %3}, {%4, %5, %6, %7}, \" \\\n"
    "        \"{%8, %9}, {%0, %1, %2, %3};\" \\\n"
    "        : \"+\" sum(c[0]), \"+\" sum(c[1]), \"+\" sum(c[2]), \"+\" sum(c[3]) \\\n"
    "        : factor(a[0]), factor(a[1]), factor(a[2]), factor(a[3]), factor(b), factor(d)); \\\n"
    "}\n"
    "#define TC_MULTIPLY_8(name, C, A, B, sum, factor, shape) \\\n"
    "TC_I void name(C *c, A a, B b) { \\\n"
    "    asm(\"mma.sync.aligned.\" shape \" {%0, %1}, {%2}, {%3}, {%0, %1};\" \\\n"
    "        : \"+\" sum(c[0]), \"+\" sum(c[1]) : factor(a), factor(b)); \\\n"
    "}\n"
    "#define TC_MULTIPLY_BYTES(each, name, shape) \\\n"
    "each(name, int, int, int, \"r\", \"r\", shape \".row.col.s32.s8.s8.s32\") \\\n"
    "each(name, int, int, unsigned, \"r\", \"r\", shape \".row.col.s32.s8.u8.s32\") \\\n"
    "each(name, int, unsigned, int, \"r\", \"r\", shape \".row.col.s32.u8.s8.s32\") \\\n"
    "each(name, int, unsigned, unsigned, \"r\", \"r\", shape \".row.col.s32.u8.u8.s32\")\n"
    "#define TC_MULTIPLY_DOUBLES(each, name, shape) \\\n"
    "each(name, double, double, double, \"d\", \"d\", shape \".row.col.f64.f64.f64.f64\")\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "#define TC_MULTIPLY_WORDS(name, shape) \\\n"
    "TC_MULTIPLY(name, float, unsigned, unsigned, \"f\", \"r\", shape)\n"
    "TC_MULTIPLY_WORDS(tc_multiply_f16, \"m16n8k16.row.col.f32.f16.f16.f32\")\n"
    "TC_MULTIPLY_WORDS(tc_multiply_bf16, \"m16n8k16.row.col.f32.bf16.bf16.f32\")\n"
    "TC_MULTIPLY_WORDS(tc_multiply_f32, \"m16n8k8.row.col.f32.tf32.tf32.f32\")\n"
    "TC_MULTIPLY_BYTES(TC_MULTIPLY, tc_multiply_i8, \"m16n8k32\")\n"
    "TC_I unsigned tc_tf32(unsigned x) {\n"
    "    unsigned r;\n"
    "    asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(r) : \"f\"(__int_as_float((int)x)));\n"
    "    return r;\n"
    "}\n"
    "#else\n"
    "TC_I void tc_multiply_8(float *c, unsigned a, unsigned e, unsigned b) {\n"
    "    asm(\"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, \"\n"
    "        \"{%6}, {%0, %1, %2, %3};\"\n"
    "        : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3])\n"
    "        : \"r\"(a), \"r\"(e), \"r\"(b));\n"
    "}\n"
    "TC_I void tc_multiply_f16(float *c, const unsigned *a, unsigned b, unsigned d) {\n"
    "    tc_multiply_8(c, a[0], a[1], b);\n"
    "    tc_multiply_8(c, a[2], a[3], d);\n"
    "}\n"
    "TC_MULTIPLY_BYTES(TC_MULTIPLY_8, tc_multiply_8, \"m8n8k16\")\n"
    "template <class A, class B> TC_I void tc_multiply_i8(int *c, const A *a, B b, B d) {\n"
    "    tc_multiply_8(c, a[0], b);\n"
    "    tc_multiply_8(c + 2, a[1], b);\n"
    "    tc_multiply_8(c, a[2], d);\n"
    "    tc_multiply_8(c + 2, a[3], d);\n"
    "}\n"
    "#endif\n"
    "#if __CUDA_ARCH__ >= 900\n"
    "TC_MULTIPLY_DOUBLES(TC_MULTIPLY, tc_multiply_f64, \"m16n8k8\")\n"
    "#elif __CUDA_ARCH__ >= 800\n"
    "TC_MULTIPLY_DOUBLES(TC_MULTIPLY_8, tc_multiply_8, \"m8n8k4\")\n"
    "TC_I void tc_multiply_f64(double *c, const double *a, double b, double d) {\n"
    "    tc_multiply_8(c, a[0], b);\n"
    "    tc_multiply_8(c + 2, a[1], b);\n"
    "    tc_multiply_8(c, a[2], d);\n"
    "    tc_multiply_8(c + 2, a[3], d);\n"
    "}\n"
    "#endif\n"
    "#endif\n";

/* A warp's factors from a panel. Turned bytes: a square of halves is of two columns, of which each
 * thread is given two neighbouring rows, and another one the two behind them: picked apart they are
 * four rows of each column. Which rows a square has differs between threads, so that its eight lie
 * in different banks. */
static const char tci_cuda_take_text[] =
    "#define TC_LANE const int lane = (int)threadIdx.x & 31\n"
    "template <class W, class S> TC_I void tc_rows(W *w, const S *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    tc_squares((unsigned *)w, p + (lane & 15) * pitch + lane / 16 * (16 / (int)sizeof(S)));\n"
    "}\n"
    "template <class W, class S> TC_I void tc_columns(W *w, const S *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    p += (lane / 16 * 8 + (lane & 7)) * pitch;\n"
    "    tc_squares((unsigned *)w, p + lane / 8 % 2 * (16 / (int)sizeof(S)));\n"
    "}\n"
    "TC_I void tc_rows_turned(unsigned *w, const unsigned short *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    tc_squares_turned(w, p + (lane / 16 * 8 + (lane & 7)) * pitch + (lane & 8));\n"
    "}\n"
    "TC_I void tc_columns_turned(unsigned *w, const unsigned short *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    tc_squares_turned(w, p + (lane & 15) * pitch + lane / 16 * 8);\n"
    "}\n"
    "TC_I void tc_rows_turned(unsigned *w, const float *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = *(const tc_two *)(p + (lane % 4 + i / 2 * 4) * pitch + lane / 4 + i % 2 * 8);\n"
    "    }\n"
    "}\n"
    "TC_I void tc_columns_turned(unsigned *w, const float *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = *(const tc_two *)(p + (lane % 4 + i % 2 * 4) * pitch + lane / 4 + i / 2 * 8);\n"
    "    }\n"
    "}\n"
    "template <class W, class S> TC_I void tc_rows_turned(W *w, const S *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    const int group = lane / 2 & 3, square = lane / 8;\n"
    "    const int row = square / 2 * 16 + group * 4 + ((square ^ group / 2) & 1) * 2 + lane % 2;\n"
    "    const unsigned even = lane & 2 ? 0x2064 : 0x6420;\n"
    "    unsigned x[4];\n"
    "    tc_squares_turned(x, p + row * pitch);\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = (W)__byte_perm(x[i / 2 * 2], x[i / 2 * 2 + 1], i % 2 ? even + 0x1111 : even);\n"
    "    }\n"
    "}\n"
    "template <class W, class S> TC_I void tc_columns_turned(W *w, const S *p, tc_i64 pitch) {\n"
    "    tc_rows_turned(w, p, pitch);\n"
    "    const W x = w[1];\n"
    "    w[1] = w[2];\n"
    "    w[2] = x;\n"
    "}\n"
    "typedef tc_pack<double, 2> tc_doubles;\n"
    "TC_I tc_doubles tc_doubles_at(const double *p, tc_i64 row, tc_i64 pitch, int own) {\n"
    "    return *(const tc_doubles *)(p + row * pitch + 2 * own);\n"
    "}\n"
    "TC_I void tc_rows(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane / 4 + i % 2 * 8, pitch, lane % 4).e[i / 2];\n"
    "    }\n"
    "}\n"
    "TC_I void tc_columns(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane / 4 + i / 2 * 8, pitch, lane % 4).e[i % 2];\n"
    "    }\n"
    "}\n"
    "TC_I void tc_rows_turned(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane % 4 * 2 + i / 2, pitch, lane / 4).e[i % 2];\n"
    "    }\n"
    "}\n"
    "TC_I void tc_columns_turned(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane % 4 * 2 + i % 2, pitch, lane / 4).e[i / 2];\n"
    "    }\n"
    "}\n";

TCI_FN void tci_cuda_warps_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_warps_text);
    tci_str_add(out, tci_cuda_take_text);
}

/* Words are stored through a pack of them, as they may be anything's; f32 is rounded where it is
 * stored, once for all warps that take it. */
#define TCI_CUDA_SIXTEEN "tc_pack<tc_two, 4>"
#define TCI_CUDA_TAKE(how)                                                                         \
    "TC_I $T $n(const $S *p, tc_i64 pitch) {\n    $T r;\n    " how "(r.v, p, pitch);\n"            \
    "    return r;\n}\n"
static const tci_cuda_row tci_cuda_warps_rows[] = {
    {TCI_MEM_WORDS, "words",
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const " TCI_CUDA_SIXTEEN " w = *(const " TCI_CUDA_SIXTEEN " *)p;\n"
     "    TC_LANES(r) {\n        r.v[i] = w.e[i];\n    }\n    return r;\n}\n"},
    {TCI_MEM_WORDS_IF, "words_if",
     "TC_I $T $n(const $S *p, bool m) {\n    $T r;\n    " TCI_CUDA_SIXTEEN " w = {};\n"
     "    if (m) {\n        w = *(const " TCI_CUDA_SIXTEEN " *)p;\n    }\n"
     "    TC_LANES(r) {\n        r.v[i] = w.e[i];\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE_WORDS, "store_words",
     "TC_I void $n($S *p, $T x) {\n    " TCI_CUDA_SIXTEEN " w;\n    TC_LANES(x) {\n"
     "        w.e[i] = $U(x.v[i]);\n    }\n    *(" TCI_CUDA_SIXTEEN " *)p = w;\n}\n"},
    {TCI_MEM_STORE_UNIT, "store_unit",
     "TC_I void $n($S *p, $E x) {\n    $W(p, $X);\n}\n"},
    {TCI_MEM_UNIT_ROWS, "unit_rows", TCI_CUDA_TAKE("tc_rows")},
    {TCI_MEM_UNIT_COLUMNS, "unit_columns", TCI_CUDA_TAKE("tc_columns")},
    {TCI_MEM_UNIT_ROWS_TURNED, "unit_rows_turned", TCI_CUDA_TAKE("tc_rows_turned")},
    {TCI_MEM_UNIT_COLUMNS_TURNED, "unit_columns_turned", TCI_CUDA_TAKE("tc_columns_turned")},
    {TCI_MEM_UNIT_ZERO, "unit_zero", "TC_I $T $n() {\n    return {};\n}\n"},
    {TCI_MEM_UNIT_DOT, "unit_dot",
     "template <class A, class B> TC_I $T $n($T c, const A &a, const B &b) {\n"
     "    tc_multiply_$D(c.v, a.v, b.v[0], b.v[1]);\n"
     "    tc_multiply_$D(c.v + 4, a.v, b.v[2], b.v[3]);\n    return c;\n}\n"},
    {TCI_MEM_UNIT_SUM, "unit_sum",
     "TC_I $E $n(const $T &c, int i) {\n    return c.v[i];\n}\n"},
};

TCI_FN const tci_cuda_row *tci_cuda_warps_row(tci_mem m)
{
    for (int i = 0; i < TCI_COUNT(tci_cuda_warps_rows); i++) {
        if (tci_cuda_warps_rows[i].mem == m) {
            return &tci_cuda_warps_rows[i];
        }
    }
    return NULL;
}

#undef TCI_CUDA_SIXTEEN
#undef TCI_CUDA_TAKE
/* ---- src/cuda/dialect.c ---- */
/* cuda/dialect.c - the CUDA dialect: one block of threads is one wide vector machine.
 *
 * In: requests by name (emit/dialect.h), where `lanes` counts the lanes that ONE THREAD holds.
 * Out: definitions for NVRTC, without any #include.
 *
 * The one idea: a vector of T * q lanes is spread over the T threads of a block, q neighbouring
 * lanes each, so that a thread's lanes are one access of up to 16 bytes and a warp's accesses join.
 * Lane i belongs to thread i / q. Whatever is not a vector is computed by all threads alike, so
 * control flow is the same in the whole block and any statement may hold a barrier. Scalars are
 * spelled by the C dialect, which this one extends; only vectors differ: a struct of q elements.
 *
 * Lanes meet in four places: LANE (one lane to all), HIGH_HALF and its like (lane i takes lane i +
 * h), BELOW (h lanes take the last of the h before) and BARRIER (local arrays may be read by other
 * threads than wrote them). Blocks meet in one: AWAIT, of what a block before told (TELL). Cards
 * begin blocks in the order of their numbers, which no manual promises, and run them to their end,
 * so none waits for one that has no place; words are read and written past the caches of a
 * processor (volatile).
 *
 * A block may also hold several vectors side by side, each in the threads of a warp or of a part of
 * one; those of one warp are all there or none is. Threads are counted from the vector's first
 * then, and lanes meet inside the vector: definitions for that have the number of its threads in
 * their name. */
#include <string.h>


typedef struct tci_cuda_dialect {
    const char *(*prim)(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes, int imm);
    const char *(*mem)(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage, int lanes);
    const char *(*type)(tci_dialect *d, tc_dtype t, int lanes);
    int group;  /* threads of a warp and a vector of the kernel in print that meet; 1: none */
    int beside; /* threads of a vector of the kernel in print, 0: it has the block for itself */
} tci_cuda_dialect;

/* The C dialect's own functions, for scalars. */
static tci_cuda_dialect tci_cuda_scalar(tci_dialect *d)
{
    return *(const tci_cuda_dialect *)((tci_cd *)d->state)->more;
}

static const char *tci_cuda_type(tci_dialect *d, tc_dtype t, int lanes)
{
    tci_cd *cd = d->state;
    const char *element = tci_cuda_scalar(d).type(d, t, 1);
    if (lanes == 1) {
        return element;
    }
    bool is_new;
    const char *name = tci_scratch_printf(d->s, "tc_%s", tci_cd_suffix(cd, t, lanes));
    name = tci_cd_intern(cd, name, &is_new);
    if (is_new) {
        tci_str_printf(&cd->out, "typedef struct { %s v[%d]; } %s;\n", element, lanes, name);
    }
    return name;
}

/* ---- prims: the scalar one on each of the thread's lanes ---- */

/* Scalars with an instruction or an exact function of their own; the others are the C dialect's. */
static const struct { uint8_t prim; const char *args, *f32, *f64; } tci_cuda_scalars[] = {
    {TCI_P_FMA, "a, b, c", "__fmaf_rn", "__fma_rn"}, {TCI_P_ABS, "a", "fabsf", "fabs"},
    {TCI_P_SQRT, "a", "__fsqrt_rn", "__dsqrt_rn"},   {TCI_P_FLOOR, "a", "floorf", "floor"},
    {TCI_P_CEIL, "a", "ceilf", "ceil"},              {TCI_P_TRUNC, "a", "truncf", "trunc"},
    {TCI_P_RINT, "a", "rintf", "rint"},              {TCI_P_ROUNDB16, "a", "tc_round_bf16", ""},
};

/* Where nothing under- or overflows: Newton's step on the reciprocal that the unit gives, and two
 * remainders, the last of which rounds (Markstein, IA-64 and Elementary Functions, 2000). nvcc's
 * division makes the same steps behind a branch, which keeps elements side by side apart. */
static const char tci_cuda_quotient_text[] =
    "#ifdef TC_NO_PTX\n"
    "#define tc_quotient(a, b) ((a) / (b))\n"
    "#else\n"
    "TC_I float tc_quotient(float a, float b) {\n    float r;\n"
    "    asm(\"rcp.approx.ftz.f32 %0, %1;\" : \"=f\"(r) : \"f\"(b));\n"
    "    r = __fmaf_rn(r, __fmaf_rn(-b, r, 1.0f), r);\n"
    "    float q = a * r;\n"
    "    q = __fmaf_rn(__fmaf_rn(-b, q, a), r, q);\n"
    "    return __fmaf_rn(__fmaf_rn(-b, q, a), r, q);\n}\n"
    "#endif\n";

static const char *tci_cuda_quotient(tci_cd *cd)
{
    bool is_new;
    const char *name = tci_cd_intern(cd, "tc_quotient", &is_new);
    if (is_new) {
        tci_str_add(&cd->out, tci_cuda_quotient_text);
    }
    return name;
}

static const char *tci_cuda_scalar_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to,
                                        int imm)
{
    tci_cd *cd = d->state;
    if (p == TCI_P_DIV && t == TC_F32 && imm == TCI_DIV_NORMAL) {
        return tci_cuda_quotient(cd);
    }
    for (int i = 0; i < TCI_COUNT(tci_cuda_scalars) && tci_dtype_is_float(t); i++) {
        if (tci_cuda_scalars[i].prim != p) {
            continue;
        }
        bool is_new;
        const char *args = tci_cuda_scalars[i].args;
        const char *name = tci_scratch_printf(d->s, "tc_%s_%s", tci_prim_get(p)->name,
                                              tci_dtype_get(t)->name);
        name = tci_cd_intern(cd, name, &is_new);
        if (is_new) {
            tci_str_printf(&cd->out, "#define %s(%s) %s(%s)\n", name, args,
                           t == TC_F32 ? tci_cuda_scalars[i].f32 : tci_cuda_scalars[i].f64, args);
        }
        return name;
    }
    return tci_cuda_scalar(d).prim(d, p, t, to, 1, imm);
}

static void tci_cuda_define_lanes(tci_cd *cd, const char *name, const char *scalar,
                                  const char *const *types, int n_args, const char *result)
{
    tci_str params = {.s = cd->d.s}, args = {.s = cd->d.s};
    for (int i = 0; i < n_args; i++) {
        tci_str_printf(&params, "%s%s %c", i ? ", " : "", types[i], 'a' + i);
        tci_str_printf(&args, "%s%c.v[i]", i ? ", " : "", 'a' + i);
    }
    tci_str_printf(&cd->out,
                   "TC_I %s %s(%s) {\n    %s r;\n    TC_LANES(r) {\n"
                   "        r.v[i] = %s(%s);\n    }\n    return r;\n}\n",
                   result, name, params.text, result, scalar, args.text);
}

static const char *tci_cuda_any(tci_cd *cd, int lanes)
{
    bool is_new;
    const char *mask = cd->d.type(&cd->d, TC_BOOL, lanes), *one = cd->d.type(&cd->d, TC_BOOL, 1);
    const char *name = tci_scratch_printf(cd->d.s, "tc_any_x%d", lanes);
    name = tci_cd_intern(cd, name, &is_new);
    if (is_new) {
        tci_str_printf(&cd->out,
                       "TC_I %s %s(%s m) {\n    %s r = 0;\n    TC_LANES(m) {\n"
                       "        r |= m.v[i];\n    }\n    return r;\n}\n",
                       one, name, mask, one);
    }
    return name;
}

/* The helper itself is out of line, so that its registers and its length do not weigh on the code
 * that almost never calls it. */
static const char *tci_cuda_lanes_of(tci_cd *cd, int id, tc_dtype t, int lanes)
{
    const tci_helper *h = tci_helper_get(id);
    const char *type = cd->d.type(&cd->d, t, lanes), *mask = cd->d.type(&cd->d, TC_BOOL, lanes);
    bool is_new;
    const char *name = tci_scratch_printf(cd->d.s, "tc_lanes_%s_%s", h->name,
                                          tci_cd_suffix(cd, t, lanes));
    name = tci_cd_intern(cd, name, &is_new);
    if (is_new) {
        tci_cd_define_helper(cd, id);
        tci_str_printf(&cd->out,
                       "TC_I %s %s(%s a, %s m) {\n    %s r;\n    TC_LANES(r) {\n"
                       "        r.v[i] = m.v[i] ? %s(a.v[i]) : 0;\n    }\n    return r;\n}\n",
                       type, name, type, mask, type, h->name);
    }
    return name;
}

static const char *tci_cuda_prim(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes,
                                 int imm)
{
    tci_cd *cd = d->state;
    if (lanes > 1 && tci_prim_is_math(p)) { /* the recipe on vectors: rare lanes are tested once */
        return tci_cuda_scalar(d).prim(d, p, t, to, lanes, imm);
    }
    const char *scalar = tci_cuda_scalar_prim(d, p, t, to, imm);
    if (lanes == 1) {
        return scalar;
    }
    bool is_new;
    const char *name = tci_cd_intern(cd, tci_scratch_printf(d->s, "%sx%d", scalar, lanes), &is_new);
    if (!is_new) {
        return name;
    }
    const tci_prim_info *info = tci_prim_get(p);
    const char *type = d->type(d, t, lanes), *mask = d->type(d, TC_BOOL, lanes);
    const char *types[3] = {type, type, type};
    int n_args = info->arity;
    if (p == TCI_P_SELECT) {
        types[0] = mask;
    }
    if (p == TCI_P_LANE1) {
        types[1] = mask;
    }
    const char *result = info->result == 'O'   ? d->type(d, to, lanes)
                         : info->result == 'B' ? mask
                                               : type;
    tci_cuda_define_lanes(cd, name, scalar, types, n_args, result);
    return name;
}

/* ---- memory ---- */

/* The name begins with the row's. $n is the whole of it, $T the vector type, $E its element, $S the
 * storage type, $L and $W one element loaded and stored, $P what a thread's part lies in on its
 * way, w, $I element i of that and $O its storing, $B the mask type, $Q lanes of a thread, $H its
 * number, $G how many meet, $R what a shuffle is told of the threads that it is among, $D the
 * storage dtype's name, $U what rounds a word of it for a matrix unit, $X x rounded so
 * (cuda/warps.c). Counts and strides are of the whole vector. */
static const tci_cuda_row tci_cuda_rows[] = {
    {TCI_MEM_LOAD, "load",
     "TC_I $T $n(const $S *p) {\n    $T r;\n    p += $Q * $H;\n"
     "    if (TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n"
     "        const $P w = *(const $P *)p;\n"
     "        TC_LANES(r) {\n            r.v[i] = $I;\n        }\n"
     "    } else {\n        TC_LANES(r) {\n            r.v[i] = $L(p + i);\n        }\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_LOAD_ALIGNED, "load_aligned",
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const $P w = *(const $P *)(p + $Q * $H);\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_IF, "load_if",
     "TC_I $T $n(const $S *p, bool m) {\n    $T r;\n    $P w = {};\n"
     "    if (m) {\n        w = *(const $P *)(p + $Q * $H);\n    }\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_N_ALIGNED, "load_n_aligned",
     "TC_I $T $n(const $S *p, tc_i64 n) {\n    $T r;\n    $P w = {};\n"
     "    if (n > $Q * $H) {\n        w = *(const $P *)(p + $Q * $H);\n    }\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_REPEAT, "load_repeat",
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const $P w = *(const $P *)(p + $Q * (TC_THREAD & 31));\n"
     "    TC_LANES(r) {\n        r.v[i] = $I;\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE_ALIGNED, "store_aligned",
     "TC_I void $n($S *p, $T x) {\n    $P w;\n    TC_LANES(x) {\n"
     "        $O\n    }\n"
     "    *($P *)(p + $Q * $H) = w;\n}\n"},
    {TCI_MEM_STORE_PAIRS, "store_pairs",
     "TC_I void $n($S *p, $E a, $E b) {\n    $P w;\n    const $T x = {a, b};\n"
     "    TC_LANES(x) {\n        $O\n    }\n    *($P *)p = w;\n}\n"},
    {TCI_MEM_LANE_REPEAT, "lane_repeat",
     "TC_I $E $n($T x, int lane) {\n"
     "    return ($E)__shfl_sync(0xffffffffu, x.v[lane % $Q], lane / $Q$R);\n}\n"},
    {TCI_MEM_LOAD_MASK, "load_mask",
     "TC_I $T $n(const $S *p, $B m) {\n    $T r;\n    p += $Q * $H;\n    TC_LANES(r) {\n"
     "        r.v[i] = m.v[i] ? $L(p + i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_N, "load_n",
     "TC_I $T $n(const $S *p, tc_i64 n) {\n    $T r;\n    p += $Q * $H;\n"
     "    n -= $Q * $H;\n"
     "    if (n >= $Q && TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n"
     "        const $P w = *(const $P *)p;\n"
     "        TC_LANES(r) {\n            r.v[i] = $I;\n        }\n"
     "        return r;\n    }\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n ? $L(p + i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_STRIDED, "load_strided",
     "TC_I $T $n(const $S *p, tc_i64 stride) {\n    $T r;\n    p += stride * $Q * $H;\n"
     "    TC_LANES(r) {\n        r.v[i] = $L(p + stride * i);\n    }\n    return r;\n}\n"},
    {TCI_MEM_LOAD_STRIDED_N, "load_strided_n",
     "TC_I $T $n(const $S *p, tc_i64 stride, tc_i64 n) {\n    $T r;\n"
     "    p += stride * $Q * $H;\n    n -= $Q * $H;\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n ? $L(p + stride * i) : 0;\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE, "store",
     "TC_I void $n($S *p, $T x) {\n    p += $Q * $H;\n    $P w;\n    TC_LANES(x) {\n"
     "        $O\n    }\n    tc_put<$G>(p, w);\n}\n"},
    {TCI_MEM_STORE_N, "store_n",
     "TC_I void $n($S *p, $T x, tc_i64 n) {\n    p += $Q * $H;\n    n -= $Q * $H;\n"
     "    if (n >= $Q && TC_IS_ALIGNED(p, $Q * sizeof($S))) {\n        $P w;\n"
     "        TC_LANES(x) {\n            $O\n        }\n"
     "        *($P *)p = w;\n        return;\n    }\n"
     "    TC_LANES(x) {\n        if (i < n) {\n            $W(p + i, x.v[i]);\n        }\n"
     "    }\n}\n"},
    {TCI_MEM_STORE_STRIDED, "store_strided",
     "TC_I void $n($S *p, tc_i64 stride, $T x) {\n    p += stride * $Q * $H;\n"
     "    TC_LANES(x) {\n        $W(p + stride * i, x.v[i]);\n    }\n}\n"},
    {TCI_MEM_STORE_STRIDED_N, "store_strided_n",
     "TC_I void $n($S *p, tc_i64 stride, $T x, tc_i64 n) {\n    p += stride * $Q * $H;\n"
     "    n -= $Q * $H;\n    TC_LANES(x) {\n        if (i < n) {\n"
     "            $W(p + stride * i, x.v[i]);\n        }\n    }\n}\n"},
    {TCI_MEM_SPLAT, "splat",
     "TC_I $T $n($E x) {\n    $T r;\n    TC_LANES(r) {\n        r.v[i] = x;\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_IOTA, "iota",
     "TC_I $T $n($E first) {\n    $T r;\n    TC_LANES(r) {\n"
     "        r.v[i] = ($E)(first + $Q * $H + i);\n    }\n    return r;\n}\n"},
    {TCI_MEM_FIRST_N, "first_n",
     "TC_I $T $n(tc_i64 n) {\n    $T r;\n    n -= $Q * $H;\n    TC_LANES(r) {\n"
     "        r.v[i] = i < n;\n    }\n    return r;\n}\n"},
    {TCI_MEM_LANE, "lane",
     "TC_I $E $n($T x, int lane) {\n    return ($E)tc_lane(x, x.v[lane % $Q], lane / $Q);\n}\n"},
    {TCI_MEM_HIGH_HALF, "high_half",
     "TC_I $T $n($T x, int h) {\n    if (h >= $Q) {\n        return tc_down(x, h / $Q);\n    }\n"
     "    $T r = x;\n    TC_LANES(r) {\n        if (i < h) {\n"
     "            r.v[i] = x.v[(i + h) % $Q];\n        }\n    }\n    return r;\n}\n"},
    {TCI_MEM_NEAR_HALF, "near_half",
     "TC_I $T $n($T x, int h) {\n    if (h >= $Q) {\n        return tc_down(x, h / $Q);\n    }\n"
     "    $T r = x;\n    TC_LANES(r) {\n        r.v[i] = x.v[(i + h) % $Q];\n    }\n"
     "    return r;\n}\n"},
    {TCI_MEM_HIGH_FIRST, "high_first",
     "TC_I $T $n($T x, int h) {\n    return tc_down_first(x, h / $Q);\n}\n"},
    {TCI_MEM_TAG, "tag",
     "TC_I tc_i64 $n(const $S *p) {\n    return *(const volatile $S *)p >> 32;\n}\n"},
    {TCI_MEM_TELL, "tell",
     "TC_I void $n($S *p, $E x, tc_i64 tag) {\n    if ($H == 0) {\n"
     "        TC_EACH(i, sizeof(x) / 4) {\n"
     "            ((volatile $S *)p)[i] = (tc_i64)((unsigned long long)tag << 32) |\n"
     "                                    ((const tc_two *)&x)[i];\n        }\n"
     "    }\n}\n"},
    {TCI_MEM_AWAIT, "await",
     "TC_I $T $n(const $S *p, tc_i64 tag, tc_i64 n) {\n    $T r;\n"
     "    enum { N = sizeof(r) / 4, EACH = sizeof($E) / 4 };\n"
     "    const volatile $S *from = p + N * $H;\n    $S w[N];\n    bool all;\n"
     "    n = (n - $Q * $H) * EACH;\n    do {\n        all = true;\n"
     "        TC_EACH(i, N) {\n            w[i] = i < n ? from[i] : 0;\n"
     "            all = all && (i >= n || (unsigned)(w[i] >> 32) == (unsigned)tag);\n        }\n"
     "    } while (!all);\n    TC_EACH(i, N) {\n"
     "        ((tc_two *)&r)[i] = (tc_two)w[i];\n    }\n    return r;\n}\n"},
    {TCI_MEM_BELOW, "below",
     "TC_I $T $n($T x, $T none, int h) {\n    if (h >= $Q) {\n"
     "        return tc_below(x, none, x.v[$Q - 1], h / $Q);\n    }\n    TC_LANES(none) {\n"
     "        if (i & h) {\n            none.v[i] = x.v[((i | (h - 1)) ^ h) % $Q];\n        }\n"
     "    }\n    return none;\n}\n"},
};

static const char *tci_cuda_letter(tci_dialect *d, char letter, const char *name, tc_dtype t,
                                   tc_dtype storage, int lanes)
{
    tci_cuda_dialect scalar = tci_cuda_scalar(d);
    bool pairs = storage == TC_BF16 && t == TC_F32 && lanes % 2 == 0; /* of half the instructions */
    switch (letter) {
    case 'n': return name;
    case 'P':
        return pairs ? tci_scratch_printf(d->s, "tc_pack<tc_two, %d>", lanes / 2)
                     : tci_scratch_printf(d->s, "tc_pack<%s, %d>", tci_dtype_get(storage)->ctype,
                                          lanes);
    case 'I':
        return pairs ? "tc_half_of(w.e[i / 2], i % 2)"
                     : tci_scratch_printf(d->s, "%s(w.e + i)", scalar.mem(d, TCI_MEM_LOAD_ONE, t,
                                                                         storage, 1));
    case 'O':
        return pairs ? "w.e[i / 2] = tc_pair_bf16(x.v[i / 2 * 2], x.v[i / 2 * 2 + 1]);"
                     : tci_scratch_printf(d->s, "%s(w.e + i, x.v[i]);",
                                          scalar.mem(d, TCI_MEM_STORE_ONE, t, storage, 1));
    case 'T': return d->type(d, t, lanes);
    case 'E': return d->type(d, t, 1);
    case 'B': return d->type(d, TC_BOOL, lanes);
    case 'S': return tci_dtype_get(storage)->ctype;
    case 'L': return scalar.mem(d, TCI_MEM_LOAD_ONE, t, storage, 1);
    case 'W': return scalar.mem(d, TCI_MEM_STORE_ONE, t, storage, 1);
    case 'H':
        return scalar.beside ? tci_scratch_printf(d->s, "(TC_THREAD & %d)", scalar.beside - 1)
                             : "TC_THREAD";
    case 'D': return tci_dtype_get(storage)->name;
    case 'U': return storage == TC_F32 ? "tc_tf32" : "";
    case 'X':
        return storage == TC_F32
                   ? "__int_as_float((int)tc_tf32((unsigned)__float_as_int(x)))" : "x";
    case 'G': return tci_scratch_printf(d->s, "%d", scalar.group);
    case 'R': return scalar.beside ? tci_scratch_printf(d->s, ", %d", scalar.beside) : "";
    default: return tci_scratch_printf(d->s, "%d", lanes);
    }
}

/* NULL: there is none. */
static const tci_cuda_row *tci_cuda_row_of(tci_cd *cd, tci_mem m)
{
    for (int i = 0; i < TCI_COUNT(tci_cuda_rows); i++) {
        if (tci_cuda_rows[i].mem == m) {
            return &tci_cuda_rows[i];
        }
    }
    bool is_new;
    const tci_cuda_row *row = tci_cuda_warps_row(m);
    if (row) {
        tci_cd_intern(cd, "tc_warps", &is_new);
        if (is_new) {
            tci_cuda_warps_prelude(&cd->out);
        }
    }
    return row;
}

static void tci_cuda_define_mem(tci_dialect *d, const char *name, const char *text, tc_dtype t,
                                tc_dtype storage, int lanes)
{
    tci_cd *cd = d->state;
    tci_str own = {.s = d->s};
    (void)d->type(d, TC_I64, 1);
    while (*text) {
        size_t plain = strcspn(text, "$");
        tci_str_add_n(&own, text, plain);
        text += plain;
        if (*text) {
            tci_str_add(&own, tci_cuda_letter(d, text[1], name, t, storage, lanes));
            text += 2;
        }
    }
    tci_str_add_n(&cd->out, tci_str_text(&own), own.n);
}

static const char *tci_cuda_mem(tci_dialect *d, tci_mem m, tc_dtype compute, tc_dtype storage,
                                int lanes)
{
    tci_cd *cd = d->state;
    if (m == TCI_MEM_STORE_STREAM) {
        m = TCI_MEM_STORE;
    }
    lanes = m == TCI_MEM_STORE_PAIRS ? 2 : lanes;
    if (m == TCI_MEM_BARRIER) {
        return "__syncthreads";
    }
    if (lanes == 1 && m < TCI_MEM_TAG) {
        return tci_cuda_scalar(d).mem(d, m, compute, storage, 1);
    }
    const tci_cuda_row *row = tci_cuda_row_of(cd, m);
    TCI_ASSERT(d->s, row);
    bool is_new;
    int beside = tci_cuda_scalar(d).beside;
    const char *of = beside ? tci_scratch_printf(d->s, "_of%d", beside) : "";
    bool together = m == TCI_MEM_STORE && tci_cuda_scalar(d).group > 1;
    const char *name = tci_scratch_printf(d->s, "tc_%s_%s_%s%s%s", row->name,
                                          tci_cd_suffix(cd, compute, lanes),
                                          tci_dtype_get(storage)->name, of,
                                          together ? "_together" : "");
    name = tci_cd_intern(cd, name, &is_new);
    if (is_new) {
        tci_cuda_define_mem(d, name, row->text, compute, storage, lanes);
    }
    return name;
}

/* ---- the file ---- */

/* bf16 by the one instruction that newer cards have for two of them, f16 by the one that all have;
 * tests define TC_NO_PTX. Back without one: where scores are rounded beside products (attention),
 * ptxas has all products wait for the instruction (C7514). The C dialect's names are taken. */
static const char *const tci_cuda_halves_names[] = {"tc_narrow_f32_bf16", "tc_narrow_f32_f16",
                                                    "tc_widen_f32_f16"};
static const char tci_cuda_halves_text[] =
    "#if !defined(TC_NO_PTX) && __CUDA_ARCH__ >= 800\n"
    "TC_I unsigned tc_pair_bf16(float low, float high) {\n    unsigned r;\n"
    "    asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(r) : \"f\"(high), \"f\"(low));\n"
    "    return r;\n}\n"
    "#else\n"
    "TC_I unsigned tc_bits_bf16(float a) {\n    const unsigned u = (unsigned)__float_as_int(a);\n"
    "    return a != a ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;\n}\n"
    "TC_I unsigned tc_pair_bf16(float low, float high) {\n"
    "    return tc_bits_bf16(high) << 16 | tc_bits_bf16(low);\n}\n"
    "#endif\n"
    "TC_I unsigned short tc_narrow_f32_bf16(float a) {\n"
    "    return (unsigned short)tc_pair_bf16(a, 0);\n}\n"
    "TC_I float tc_round_bf16(float a) { return __int_as_float((int)tc_pair_bf16(0, a)); }\n"
    "#ifndef TC_NO_PTX\n"
    "TC_I unsigned short tc_narrow_f32_f16(float a) {\n    unsigned short r;\n"
    "    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(r) : \"f\"(a));\n    return r;\n}\n"
    "#endif\n"
    "TC_I float tc_widen_f32_f16(unsigned short a) {\n"
    "    const unsigned u = (a & 0x7fffu) << 13;\n"
    "    const float f = u < 0x0f800000u ? __int_as_float((int)u) * 0x1p112f\n"
    "                                    : __int_as_float((int)(u | 0x7f800000u));\n"
    "    return __int_as_float(__float_as_int(f) | (int)((a & 0x8000u) << 16));\n}\n";

/* tc_lane, tc_down and tc_below hold barriers before and after their use of the shared box, so that
 * one may follow another at once. A block has at most TCI_CUDA_MAX_THREADS threads. What tc_below
 * asks is one of the 2 * threads around the thread itself, so vectors side by side, which begin at
 * multiples of that, keep to themselves.
 *
 * tc_put stores what each of `group` threads has behind what the one before has. Where that is not
 * aligned, parts of words would go out in pieces, each a transfer to the cache of its own; so a
 * thread stores the aligned block that its part ends in, whose beginning the thread before has. The
 * first one stores what lies before its first block, the last one what lies behind the last. Halves
 * cost more to move than that saves. */
static const char tci_cuda_prelude_text[] =
    "#define __FMA__ 1\n#define TC_HAS(x) 0\n#define TC_GCC 0\n#define TC_CONVERT 0\n"
    "#define TC_I static __device__ __forceinline__\n"
    "#define TC_THREAD ((long long)threadIdx.x)\n"
    "#ifndef TC_SURPLUS\n#define TC_SURPLUS\n#endif\n"
    "#define TC_PRAGMA(x) _Pragma(#x)\n#define TC_UNROLL(n) TC_PRAGMA(unroll n)\n"
    "#define TC_LANES(r) _Pragma(\"unroll\") for (int i = 0; i < (int)(sizeof((r).v) / "
    "sizeof((r).v[0])); i++)\n"
    "#define TC_EACH(i, n) _Pragma(\"unroll\") for (int i = 0; i < (int)(n); i++)\n"
    "#define TC_IS_ALIGNED(p, n) (((n) & ((n) - 1)) == 0 && "
    "((unsigned long long)(p) & (((n) < 16 ? (n) : 16) - 1)) == 0)\n"
    "#define __builtin_fmaf(a, b, c) __fmaf_rn(a, b, c)\n"
    "#define __builtin_fma(a, b, c) __fma_rn(a, b, c)\n"
    "#define __builtin_inff() __int_as_float(0x7f800000)\n"
    "#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)\n"
    "#define __builtin_nanf(text) __int_as_float(0x7fc00000)\n"
    "#define __builtin_nan(text) __longlong_as_double(0x7ff8000000000000ll)\n"
    "typedef unsigned __attribute__((__may_alias__)) tc_two; /* halves */\n"
    "TC_I float tc_half_of(tc_two x, int i) {\n"
    "    return __int_as_float((int)(i ? x & 0xffff0000u : x << 16));\n}\n"
    "template <class S, int n> struct __align__(sizeof(S) * n > 16 ? 16 : sizeof(S) * n) tc_pack "
    "{ S e[n]; };\n"
    "template <int group, class S, class P> TC_I void tc_put(S *p, const P &x) {\n"
    "    enum { N = sizeof(P) / 4, MEETS = sizeof(S) >= 4 && sizeof(P) <= 16 && group >= 4 };\n"
    "    const int lane = (int)TC_THREAD & (group - 1);\n"
    "    const int mine = (int)(-(unsigned long long)p & (sizeof(P) - 1)) / 4;\n"
    "    unsigned w[2 * N + 1];\n"
    "    TC_EACH(i, MEETS ? N : 0) {\n        w[N + i] = ((const tc_two *)&x)[i];\n"
    "        w[i] = __shfl_sync(0xffffffffu, w[N + i], (int)(TC_THREAD + 31) & 31);\n    }\n"
    "    if (TC_IS_ALIGNED(p, sizeof(P))) {\n        *(P *)p = x;\n        return;\n    }\n"
    "    if (!MEETS) {\n        TC_EACH(i, sizeof(P) / sizeof(S)) {\n"
    "            p[i] = ((const S *)&x)[i];\n        }\n        return;\n    }\n"
    "    TC_EACH(i, N) {\n        if (lane == (i < mine ? 0 : group - 1)) {\n"
    "            ((tc_two *)p)[i] = w[N + i];\n        }\n    }\n"
    "    TC_EACH(i, 2 * N - 2) {\n        w[i] = mine & 2 ? w[i + 2] : w[i];\n    }\n"
    "    P block;\n    TC_EACH(i, N) {\n"
    "        ((tc_two *)&block)[i] = mine & 1 ? w[i + 1] : w[i];\n    }\n"
    "    if (lane > 0) {\n        *(P *)((tc_two *)p - (N - mine)) = block;\n    }\n}\n"
    "template <class T, class E> TC_I E tc_lane(const T &x, E mine, int thread) {\n"
    "    __shared__ E box;\n    __syncthreads();\n    if (threadIdx.x == thread) {\n"
    "        box = mine;\n    }\n    __syncthreads();\n    return box;\n}\n"
    "template <class T> TC_I T tc_down(T x, int threads) {\n    T r = x;\n"
    "    if (threads < 32) {\n        TC_LANES(r) {\n"
    "            r.v[i] = __shfl_down_sync(0xffffffffu, x.v[i], threads);\n        }\n"
    "        return r;\n    }\n"
    "    __shared__ T box[256];\n    __syncthreads();\n"
    "    int from = (int)threadIdx.x - threads;\n"
    "    if (from >= 0 && from < threads) {\n        box[from] = x;\n    }\n    __syncthreads();\n"
    "    if ((int)threadIdx.x < threads) {\n        r = box[threadIdx.x];\n    }\n    return "
    "r;\n}\n"
    "template <class T> TC_I T tc_down_first(T x, int threads) {\n    if (threads >= 32) {\n"
    "        return tc_down(x, threads);\n    }\n"
    "    x.v[0] = __shfl_down_sync(0xffffffffu, x.v[0], threads);\n    return x;\n}\n"
    "template <class T, class E> TC_I T tc_below(const T &x, T none, E last, int threads) {\n"
    "    const int from = ((int)threadIdx.x | (threads - 1)) ^ threads;\n"
    "    if (threads < 32) {\n        last = __shfl_sync(0xffffffffu, last, from & 31);\n"
    "    } else {\n        __shared__ E box[32];\n        __syncthreads();\n"
    "        if ((threadIdx.x & 31) == 31) {\n            box[threadIdx.x / 32] = last;\n"
    "        }\n        __syncthreads();\n        last = box[from / 32];\n    }\n"
    "    if (threadIdx.x & threads) {\n        TC_LANES(none) {\n"
    "            none.v[i] = last;\n        }\n    }\n    return none;\n}\n";

static void tci_cuda_prelude(tci_dialect *d, tci_str *out)
{
    tci_cd *cd = d->state;
    tci_str_add(out, tci_cuda_prelude_text);
    tci_str_add(out, tci_cuda_halves_text);
    tci_str_add_n(out, tci_str_text(&cd->out), cd->out.n);
}

/* The definitions that a kernel with that main loop needs. */
static void tci_cuda_matrix_need(tci_dialect *d, const tci_matrix *x)
{
    tci_cd *cd = d->state;
    bool is_new;
    tci_cd_intern(cd, "tc_map", &is_new);
    if (is_new) {
        tci_cuda_matrix_prelude(&cd->out);
    }
    const char *name = tci_cd_intern(cd, tci_cuda_matrix_product_name(d->s, x), &is_new);
    if (is_new) {
        tci_cuda_matrix_product(&cd->out, name, x);
    }
}

static void tci_cuda_held_need(tci_dialect *d, const tci_matrix *x)
{
    tci_cd *cd = d->state;
    bool is_new;
    const char *name = tci_cd_intern(cd, tci_cuda_attention_product_name(d->s, x), &is_new);
    if (is_new) {
        tci_cuda_attention_product(&cd->out, name, x);
    }
}

static void tci_cuda_attention_need(tci_dialect *d, const tci_attention *x)
{
    tci_cd *cd = d->state;
    bool is_new;
    tci_cuda_matrix_need(d, &x->scores);
    tci_cd_intern(cd, "tc_attention", &is_new);
    if (is_new) {
        tci_cuda_attention_prelude(&cd->out);
    }
    tci_cuda_held_need(d, &x->result);
}

static void tci_cuda_backward_need(tci_dialect *d, const tci_backward *x)
{
    tci_cd *cd = d->state;
    bool is_new;
    tci_cuda_matrix_need(d, &x->in[0]);
    tci_cd_intern(cd, "tc_attention", &is_new);
    if (is_new) {
        tci_cuda_attention_prelude(&cd->out);
    }
    tci_cd_intern(cd, "tc_backward", &is_new);
    if (is_new) {
        tci_cuda_backward_prelude(&cd->out);
    }
    for (int i = 0; i < x->n_out; i++) {
        tci_cuda_held_need(d, &x->out[i]);
    }
}

static void tci_cuda_flash_need(tci_dialect *d)
{
    tci_cd *cd = d->state;
    bool is_new;
    tci_cd_intern(cd, "tc_map", &is_new);
    if (is_new) {
        tci_cuda_matrix_prelude(&cd->out);
    }
    tci_cd_intern(cd, "tc_attention", &is_new);
    if (is_new) {
        tci_cuda_attention_prelude(&cd->out);
    }
    tci_cd_intern(cd, "tc_flash", &is_new);
    if (is_new) {
        tci_cuda_flash_prelude(&cd->out);
    }
}

static void tci_cuda_score_head(tci_dialect *d, tci_str *out, const char *symbol,
                                const tci_loop *l, int i)
{
    (void)d;
    if (tci_cuda_is_flash(l)) {
        tci_cuda_flash_open(out, symbol, l, i);
    } else if (l->backward) {
        tci_cuda_backward_open(out, symbol, l, i);
    } else {
        tci_cuda_attention_score(out, symbol, l, i);
    }
}

static void tci_cuda_score_tail(tci_dialect *d, tci_str *out, const char *symbol,
                                const tci_loop *l, int i)
{
    (void)d;
    if (tci_cuda_is_flash(l)) {
        tci_cuda_flash_close(out, symbol, l, i);
    } else if (l->backward) {
        tci_cuda_backward_close(out, symbol, l, i);
    } else {
        tci_cuda_attention_scored(out, symbol, l, i);
    }
}

static const char *tci_cuda_rounded(tci_dialect *d, tci_prim p)
{
    (void)d;
    return p == TCI_P_MUL ? "tc_mul_bf16" : p == TCI_P_ADD ? "tc_add_bf16" : NULL;
}

/* Where a vector is among those of its block. */
static void tci_cuda_beside(tci_dialect *d, tci_str *out, const char *word)
{
    int beside = tci_cuda_scalar(d).beside;
    if (beside) {
        tci_str_printf(out, "    const %s row = TC_THREAD / %d, thread = TC_THREAD & %d;\n", word,
                       beside, beside - 1);
    }
}

/* One block is one task. The arguments are one struct, so that a launch is one copy. */
static void tci_cuda_head(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l,
                          int n_words)
{
    const char *word = d->type(d, TC_I64, 1);
    tci_cuda_dialect *own = ((tci_cd *)d->state)->more;
    own->group = l->together ? TCI_MIN(l->threads, TCI_WARP) : 1;
    own->beside = l->rows > 1 ? l->threads : 0; /* of a skeleton too: it stands behind others */
    if (tci_cuda_is_flash(l)) {
        tci_cuda_flash_need(d);
        tci_cuda_flash_head(out, symbol, l, n_words);
        return;
    }
    if (l->attention) {
        tci_cuda_attention_need(d, l->attention);
        tci_cuda_attention_head(out, symbol, l, n_words);
        return;
    }
    if (l->backward) {
        tci_cuda_backward_need(d, l->backward);
        tci_cuda_backward_head(out, symbol, l, n_words);
        return;
    }
    if (l->matrix) {
        tci_cuda_matrix_need(d, l->matrix);
        tci_cuda_matrix_head(out, symbol, l, n_words);
        return;
    }
    if (l->is_member) {
        tci_str_printf(out,
                       "TC_I void %s(void *const *bufs, const %s *lits, %s *fault, "
                       "const %s task_begin, const %s task_end)\n{\n", symbol, word, word, word,
                       word);
        tci_cuda_beside(d, out, word);
        return;
    }
    const char *resident = l->resident ? tci_scratch_printf(d->s, ", %d", l->resident) : "";
    /* a joint takes operands by numbers that are not known: without a copy of them all */
    const char *indexed = l->n_members ? "__grid_constant__ " : "";
    tci_str_printf(out,
                   "struct %s_args { void *bufs[%d]; %s lits[%d]; %s *fault; };\n"
                   "extern \"C\" __global__ void __launch_bounds__(%d%s) %s(const %s%s_args args)\n"
                   "{\n"
                   "    void *const *bufs = args.bufs;\n    const %s *lits = args.lits;\n"
                   "    %s *fault = args.fault;\n"
                   "    const %s task_begin = blockIdx.x, task_end = task_begin + 1;\n",
                   symbol, TCI_MAX(l->n_operands + (l->work_bytes != 0), 1), word,
                   TCI_MAX(n_words, 1), word,
                   l->threads * l->rows, resident, symbol, indexed, symbol, word, word, word);
    tci_cuda_beside(d, out, word);
}

static void tci_cuda_tail(tci_dialect *d, tci_str *out, const char *symbol, const tci_loop *l)
{
    (void)d;
    if (tci_cuda_is_flash(l)) {
        tci_cuda_flash_tail(out);
    } else if (l->attention) {
        tci_cuda_attention_tail(out);
    } else if (l->backward) {
        tci_cuda_backward_tail(out, symbol, l);
    } else if (l->matrix) {
        tci_cuda_matrix_tail(out, symbol);
    } else {
        tci_str_add(out, "}\n");
    }
}

TCI_FN const tc_dialect *tci_cuda_words(void)
{
    static const tc_dialect words = {.space = "", .operand = "bufs[#]", .make = tci_dialect_cuda};
    return &words;
}

TCI_FN tci_dialect *tci_dialect_cuda(tci_scratch *s, int vector_bytes)
{
    tci_dialect *d = tci_dialect_c(s, 0);
    tci_cuda_dialect *scalar = TCI_NEW(s, tci_cuda_dialect);
    scalar->prim = d->prim;
    scalar->mem = d->mem;
    scalar->type = d->type;
    tci_cd *cd = d->state;
    cd->more = scalar;
    cd->any = tci_cuda_any;
    cd->lanes_of = tci_cuda_lanes_of;
    cd->helper_word = "__noinline__ ";
    bool is_new;
    for (int i = 0; i < TCI_COUNT(tci_cuda_halves_names); i++) {
        tci_cd_intern(cd, tci_cuda_halves_names[i], &is_new);
    }
    d->words = tci_cuda_words();
    d->vector_bytes = vector_bytes;
    d->local_word = "__shared__ ";
    d->table_word = "static __constant__ const ";
    d->prim = tci_cuda_prim;
    d->mem = tci_cuda_mem;
    d->type = tci_cuda_type;
    d->prelude = tci_cuda_prelude;
    d->head = tci_cuda_head;
    d->score_head = tci_cuda_score_head;
    d->score_tail = tci_cuda_score_tail;
    d->rounded = tci_cuda_rounded;
    d->tail = tci_cuda_tail;
    d->call = tci_cuda_custom;
    return d;
}
/* ---- src/cuda/load.c ---- */
/* cuda/load.c - opens libcuda and libnvrtc.
 *
 * In: nothing. Out: tables of functions. The one idea: a table is filled once a process under a
 * lock and never changes after. NVRTC is opened only when something must be compiled (it takes
 * longer than anything else at a start), so its path can be had without opening it. */
#include <stdio.h>
#include <string.h>

/* ---- src/cuda/load.h ---- */
/* cuda/load.h - the CUDA driver and NVRTC as tables of functions, opened at run time: no CUDA
 * header, no library at link time. Names and enum values: the CUDA 13 driver API reference. */
#ifndef TCI_CUDA_LOAD_H
#define TCI_CUDA_LOAD_H

#include <stddef.h>


typedef unsigned long long tci_cu_ptr; /* device address */

typedef struct tci_cu_kernel_params { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    void *function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **params;
    void **extra;
    void *kernel, *context;
} tci_cu_kernel_params;

typedef struct tci_cu_conditional { /* CUgraphNodeParams of a conditional node */
    int type, reserved[3];
    unsigned long long handle;
    int kind;                   /* CUgraphConditionalNodeType */
    unsigned n_bodies;
    void **bodies;              /* out: a graph */
    void *context;
    long long rest[26];         /* of a union of 29 words, and one more */
} tci_cu_conditional;

/* X(field, symbol, arguments) */
#define TCI_CU_ROWS(X)                                                                            \
    X(init, "cuInit", (unsigned))                                                                 \
    X(error_name, "cuGetErrorName", (int, const char **))                                         \
    X(driver_version, "cuDriverGetVersion", (int *))                                              \
    X(device_get, "cuDeviceGet", (int *, int))                                                    \
    X(device_name, "cuDeviceGetName", (char *, int, int))                                         \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, int))                                \
    X(context_retain, "cuDevicePrimaryCtxRetain", (void **, int))                                 \
    X(context_get, "cuCtxGetCurrent", (void **))                                                  \
    X(context_set, "cuCtxSetCurrent", (void *))                                                   \
    X(context_wait, "cuCtxSynchronize", (void))                                                   \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                       \
    X(stream_free, "cuStreamDestroy_v2", (void *))                                                \
    X(stream_wait, "cuStreamSynchronize", (void *))                                               \
    X(stream_after, "cuStreamWaitEvent", (void *, void *, unsigned))                              \
    X(event_create, "cuEventCreate", (void **, unsigned))                                         \
    X(event_free, "cuEventDestroy_v2", (void *))                                                  \
    X(event_record, "cuEventRecord", (void *, void *))                                            \
    X(event_wait, "cuEventSynchronize", (void *))                                                 \
    X(event_elapsed, "cuEventElapsedTime", (float *, void *, void *))                             \
    X(module_load, "cuModuleLoadData", (void **, const void *))                                   \
    X(module_find, "cuModuleGetFunction", (void **, void *, const char *))                        \
    X(module_free, "cuModuleUnload", (void *))                                                    \
    X(function_attribute, "cuFuncGetAttribute", (int *, int, void *))                             \
    X(launch, "cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned,        \
                                 unsigned, unsigned, void *, void **, void **))                   \
    X(alloc, "cuMemAlloc_v2", (tci_cu_ptr *, size_t))                                             \
    X(free, "cuMemFree_v2", (tci_cu_ptr))                                                         \
    X(host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned))                                  \
    X(host_free, "cuMemFreeHost", (void *))                                                       \
    X(copy, "cuMemcpyAsync", (tci_cu_ptr, tci_cu_ptr, size_t, void *))                            \
    X(pointer_attribute, "cuPointerGetAttribute", (void *, int, tci_cu_ptr))                      \
    X(graph_create, "cuGraphCreate", (void **, unsigned))                                         \
    X(graph_add_kernel, "cuGraphAddKernelNode_v2",                                                \
      (void **, void *, void *const *, size_t, const tci_cu_kernel_params *))                     \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))    \
    X(graph_launch, "cuGraphLaunch", (void *, void *))                                            \
    X(graph_exec_free, "cuGraphExecDestroy", (void *))                                            \
    X(graph_free, "cuGraphDestroy", (void *))                                                     \
    X(module_global, "cuModuleGetGlobal_v2", (tci_cu_ptr *, size_t *, void *, const char *))      \
    X(function_set, "cuFuncSetAttribute", (void *, int, int))

/* What drivers have since 12.0, and 12.4: NULL in older ones. */
#define TCI_CU_NEWER_ROWS(X)                                                                      \
    X(tensor_map, "cuTensorMapEncodeTiled",                                                       \
      (void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const unsigned *,       \
       const unsigned *, int, int, int, int))                                                     \
    X(place_map, "cuTensorMapEncodeIm2col",                                                       \
      (void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const int *,            \
       const int *, unsigned, unsigned, const unsigned *, int, int, int, int))                    \
    X(graph_handle, "cuGraphConditionalHandleCreate",                                             \
      (unsigned long long *, void *, void *, unsigned, unsigned))                                 \
    X(graph_add, "cuGraphAddNode",                                                                \
      (void **, void *, void *const *, size_t, tci_cu_conditional *))

#define TCI_NVRTC_ROWS(X)                                                                         \
    X(version, "nvrtcVersion", (int *, int *))                                                    \
    X(create, "nvrtcCreateProgram",                                                               \
      (void **, const char *, const char *, int, const char *const *, const char *const *))       \
    X(compile, "nvrtcCompileProgram", (void *, int, const char *const *))                         \
    X(log_size, "nvrtcGetProgramLogSize", (void *, size_t *))                                     \
    X(log, "nvrtcGetProgramLog", (void *, char *))                                                \
    X(cubin_size, "nvrtcGetCUBINSize", (void *, size_t *))                                        \
    X(cubin, "nvrtcGetCUBIN", (void *, char *))                                                   \
    X(destroy, "nvrtcDestroyProgram", (void **))

#define TCI_ROW(field, symbol, arguments) int (*field) arguments;
typedef struct tci_cu {
    TCI_CU_ROWS(TCI_ROW)
    TCI_CU_NEWER_ROWS(TCI_ROW)
} tci_cu;
typedef struct tci_nvrtc {
    TCI_NVRTC_ROWS(TCI_ROW)
} tci_nvrtc;
#undef TCI_ROW

/* A fork finds the lock of this room free. */
TCI_FN void tci_cu_keep_over_fork(void);
/* Process lifetime, opened at the first call; NULL: *why says why. Both from any thread. */
TCI_FN const tci_cu *tci_cu_get(const char **why);
TCI_FN const tci_nvrtc *tci_nvrtc_get(const char **why);
/* The file that tci_nvrtc_get would open, found without opening it: "" when nothing is found. */
TCI_FN const char *tci_nvrtc_path(void);

#endif

/* ---- src/cuda/load.c, continued ---- */
typedef struct tci_cu_symbol {
    const char *name;
    size_t offset;
} tci_cu_symbol;

#define TCI_ROW(field, symbol, arguments) {symbol, offsetof(tci_cu, field)},
static const tci_cu_symbol tci_cu_symbols[] = {TCI_CU_ROWS(TCI_ROW)};
static const tci_cu_symbol tci_cu_newer_symbols[] = {TCI_CU_NEWER_ROWS(TCI_ROW)};
#undef TCI_ROW
#define TCI_ROW(field, symbol, arguments) {symbol, offsetof(tci_nvrtc, field)},
static const tci_cu_symbol tci_nvrtc_symbols[] = {TCI_NVRTC_ROWS(TCI_ROW)};
#undef TCI_ROW

static struct {
    tci_mutex lock;
    bool cu_known, nvrtc_known;
    bool cu_works, nvrtc_works;
    tci_cu cu;
    tci_nvrtc nvrtc;
    char cu_why[256], nvrtc_why[256];
    char nvrtc_path[512];
} tci_cu_tables = {.lock = TCI_MUTEX_INIT};

static bool tci_cu_fill(void *library, const tci_cu_symbol *symbols, int n, void *table, char *why)
{
    for (int i = 0; i < n; i++) {
        void *function = tci_os_dlsym(library, symbols[i].name);
        if (!function) {
            snprintf(why, 256, "the library has no %s", symbols[i].name);
            return false;
        }
        memcpy((char *)table + symbols[i].offset, &function, sizeof(function));
    }
    return true;
}

TCI_FN void tci_cu_keep_over_fork(void)
{
    tci_os_keep_over_fork(&tci_cu_tables.lock, NULL);
}

TCI_FN const tci_cu *tci_cu_get(const char **why)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    if (!tci_cu_tables.cu_known) {
        void *library = tci_os_dlopen("libcuda.so.1", tci_cu_tables.cu_why);
        tci_cu_tables.cu_known = true;
        tci_cu_tables.cu_works =
            library && tci_cu_fill(library, tci_cu_symbols, TCI_COUNT(tci_cu_symbols),
                                   &tci_cu_tables.cu, tci_cu_tables.cu_why);
        char missing[256];
        if (tci_cu_tables.cu_works) {
            tci_cu_fill(library, tci_cu_newer_symbols, TCI_COUNT(tci_cu_newer_symbols),
                        &tci_cu_tables.cu, missing);
        }
    }
    pthread_mutex_unlock(&tci_cu_tables.lock);
    *why = tci_cu_tables.cu_why;
    return tci_cu_tables.cu_works ? &tci_cu_tables.cu : NULL;
}

/* Where distributions, NVIDIA's installers and containers put it; newest first. */
static const char *const tci_nvrtc_names[] = {
    "/usr/local/cuda/lib64/libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so.12",
    "/usr/local/cuda-13.0/lib/libnvrtc.so.13", "/usr/local/cuda/lib/libnvrtc.so.13",
    "/usr/lib/x86_64-linux-gnu/libnvrtc.so.13", "/usr/lib/x86_64-linux-gnu/libnvrtc.so.12",
    "/usr/lib/aarch64-linux-gnu/libnvrtc.so.13", "/usr/lib64/libnvrtc.so.13",
    "/usr/local/cuda/lib64/libnvrtc.so"};

/* Caller holds the lock. */
static const char *tci_nvrtc_find(void)
{
    const char *wanted = tci_env_get(TCI_ENV_NVRTC);
    int64_t bytes, mtime;
    if (tci_cu_tables.nvrtc_path[0]) {
        return tci_cu_tables.nvrtc_path;
    }
    if (wanted && wanted[0]) {
        snprintf(tci_cu_tables.nvrtc_path, sizeof(tci_cu_tables.nvrtc_path), "%s", wanted);
    }
    for (int i = 0; i < TCI_COUNT(tci_nvrtc_names) && !tci_cu_tables.nvrtc_path[0]; i++) {
        if (tci_os_stat(tci_nvrtc_names[i], &bytes, &mtime)) {
            snprintf(tci_cu_tables.nvrtc_path, sizeof(tci_cu_tables.nvrtc_path), "%s",
                     tci_nvrtc_names[i]);
        }
    }
    return tci_cu_tables.nvrtc_path;
}

TCI_FN const char *tci_nvrtc_path(void)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    const char *path = tci_nvrtc_find();
    pthread_mutex_unlock(&tci_cu_tables.lock);
    return path;
}

static void *tci_nvrtc_open(char *why)
{
    static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    const char *path = tci_nvrtc_find();
    void *library = path[0] ? tci_os_dlopen(path, why) : NULL;
    for (int i = 0; i < TCI_COUNT(sonames) && !library; i++) {
        library = tci_os_dlopen(sonames[i], why);
    }
    return library;
}

TCI_FN const tci_nvrtc *tci_nvrtc_get(const char **why)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    if (!tci_cu_tables.nvrtc_known) {
        void *library = tci_nvrtc_open(tci_cu_tables.nvrtc_why);
        tci_cu_tables.nvrtc_known = true;
        tci_cu_tables.nvrtc_works =
            library && tci_cu_fill(library, tci_nvrtc_symbols, TCI_COUNT(tci_nvrtc_symbols),
                                   &tci_cu_tables.nvrtc, tci_cu_tables.nvrtc_why);
    }
    pthread_mutex_unlock(&tci_cu_tables.lock);
    *why = tci_cu_tables.nvrtc_why;
    return tci_cu_tables.nvrtc_works ? &tci_cu_tables.nvrtc : NULL;
}
/* ---- src/cuda/nvrtc.c ---- */
/* cuda/nvrtc.c - CUDA source to cubin files.
 *
 * In: a build request of the seam. Out: one cubin file for each source. Sources are compiled side
 * by side, each in a thread of its own, which NVRTC allows (in older versions their back ends wait
 * for each other); what they say is passed on when all have ended. Options: the real
 * architecture, so that loading never compiles; no contraction of a * b + c, which would change
 * bits; functions without a qualifier are the device's, so that texts shared with C compile. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- src/cuda/nvrtc.h ---- */
/* cuda/nvrtc.h - builds with NVRTC, in this process. */
#ifndef TCI_CUDA_NVRTC_H
#define TCI_CUDA_NVRTC_H


/* architecture: the option, "--gpu-architecture=sm_90a". On failure *why is a borrowed text. */
TCI_FN tc_status tci_nvrtc_build(tc_build *build, const char *architecture, const char **why);

#endif

/* ---- src/cuda/nvrtc.c, continued ---- */
/* One source. */
typedef struct tci_nvrtc_task {
    const tci_nvrtc *rtc;
    const tc_build *build;
    int i;
    const char *architecture, *why;
    tc_status status;
    char *log;                  /* heap: what NVRTC said, or NULL */
    pthread_t thread;
    bool beside;                /* thread compiles it */
    bool refuses;               /* the text is what is wrong */
} tci_nvrtc_task;

static void tci_nvrtc_keep_log(tci_nvrtc_task *t, void *program)
{
    size_t n = 0;
    if (t->rtc->log_size(program, &n) || n <= 1) {
        return;
    }
    t->log = tci_heap_get(n + 1);
    if (t->log && t->rtc->log(program, t->log)) {
        t->log[0] = 0;
    }
}

static tc_status tci_nvrtc_write_cubin(const tci_nvrtc *rtc, void *program, const char *path,
                                       const char **why)
{
    size_t n = 0;
    int code = 0;
    if (rtc->cubin_size(program, &n) || n == 0) {
        *why = "NVRTC made no cubin";
        return TC_ERR_COMPILER;
    }
    char *cubin = tci_heap_get(n);
    if (!cubin) {
        *why = "out of memory for a cubin";
        return TC_ERR_MEMORY;
    }
    bool written = !rtc->cubin(program, cubin) && tci_os_publish(path, cubin, n, &code);
    tci_heap_free(cubin);
    *why = written ? "" : "a cubin could not be written";
    return written ? TC_OK : TC_ERR_IO;
}

static tc_status tci_nvrtc_build_one(tci_nvrtc_task *t)
{
    const tci_nvrtc *rtc = t->rtc;
    const tc_build *build = t->build;
    const char *options[] = {t->architecture, "--fmad=false", "-default-device", "-std=c++17"};
    void *program = NULL;
    if (rtc->create(&program, build->sources[t->i], "tc.cu", 0, NULL, NULL)) {
        t->why = "NVRTC cannot take the source";
        return TC_ERR_COMPILER;
    }
    int failed = rtc->compile(program, TCI_COUNT(options), options);
    tc_status status = TC_ERR_COMPILER;
    t->why = "NVRTC refuses the generated source";
    t->refuses = failed != 0;
    if (failed || build->keep) {
        tci_nvrtc_keep_log(t, program);
    }
    if (!failed) {
        status = tci_nvrtc_write_cubin(rtc, program, build->outputs[t->i], &t->why);
    }
    rtc->destroy(&program);
    return status;
}

static void *tci_nvrtc_run(void *arg)
{
    tci_nvrtc_task *t = arg;
    t->status = tci_nvrtc_build_one(t);
    return NULL;
}

/* Kept sources lie beside the outputs, as the C compiler's do. */
static void tci_nvrtc_keep(const tc_build *build, int i)
{
    char path[600];
    int code;
    snprintf(path, sizeof(path), "%s.cu", build->outputs[i]);
    tci_os_publish(path, build->sources[i], strlen(build->sources[i]), &code);
}

/* The first in this thread, as are those that have none of their own. */
static void tci_nvrtc_run_all(tci_nvrtc_task *tasks, int n)
{
    for (int i = 1; i < n; i++) {
        tasks[i].beside = pthread_create(&tasks[i].thread, NULL, tci_nvrtc_run, &tasks[i]) == 0;
    }
    for (int i = 0; i < n; i++) {
        if (!tasks[i].beside) {
            tci_nvrtc_run(&tasks[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        if (tasks[i].beside) {
            pthread_join(tasks[i].thread, NULL);
        }
    }
}

TCI_FN tc_status tci_nvrtc_build(tc_build *build, const char *architecture, const char **why)
{
    const tci_nvrtc *rtc = tci_nvrtc_get(why);
    tci_nvrtc_task *tasks = rtc ? tci_heap_get((size_t)build->n * sizeof(*tasks)) : NULL;
    tc_status status = TC_OK;
    if (!tasks) {
        *why = rtc ? "out of memory for NVRTC's threads" : *why;
        return rtc ? TC_ERR_MEMORY : TC_ERR_COMPILER;
    }
    for (int i = 0; i < build->n; i++) {
        tasks[i] = (tci_nvrtc_task){.rtc = rtc, .build = build, .i = i,
                                    .architecture = architecture, .why = ""};
    }
    tci_nvrtc_run_all(tasks, build->n);
    for (int i = 0; i < build->n; i++) {
        if (tasks[i].log) {
            build->say(build->say_arg, tasks[i].log);
        }
        if (tasks[i].status || build->keep) {
            tci_nvrtc_keep(build, i);
        }
        build->refused = !status && tasks[i].refuses ? i : build->refused;
        *why = status ? *why : tasks[i].why;
        status = status ? status : tasks[i].status;
        tci_heap_free(tasks[i].log);
    }
    build->processes += build->n;
    tci_heap_free(tasks);
    return status;
}
/* ---- src/cuda/device.c ---- */
/* cuda/device.c - see cuda/device.h: opens devices, and enters and leaves their contexts.
 *
 * In: numbers of devices. Out: open ones, with what the driver tells of them.
 *
 * The calling thread may have another context current (the host uses CUDA as well, and there are
 * several devices): every call of the seam makes its device's current and then again what was, also
 * where it fails. So the host's streams, allocations and errors stay its own.
 * After a fork the child has no device: every call says so, and none reaches the driver. */
/* ---- src/cuda/device.h ---- */
/* cuda/device.h - the GPUs of this process: their contexts, functions of modules, last errors. */
#ifndef TCI_CUDA_DEVICE_H
#define TCI_CUDA_DEVICE_H


enum { TCI_CUDA_DEVICES = 16 };

/* One GPU; the `user` of its backend. It does not change once it is open, but
 * for `decide`. */
typedef struct tci_cuda_device {
    char name[16];           /* of its backend: "cuda", "cuda:1" */
    int index;
    bool known;              /* it was tried to open it */
    void *context;           /* the primary one, retained for the rest of the process; NULL: none */
    void *stream;            /* of what is given to no other queue */
    void *decide;            /* atomic: the kernel of cuda/loop.c, made when first needed */
    char architecture[48];   /* NVRTC's option */
    tc_backend_target target;
} tci_cuda_device;

typedef struct tci_cuda_function {
    void *handle;
    int threads;
    bool is_skeleton;        /* its argument begins with encoded tensor maps */
    tci_cuda_skeleton skeleton;
    struct tci_cuda_function *next;
} tci_cuda_function;

/* The device of that number, which may not be there; NULL: there can be none. */
TCI_FN tci_cuda_device *tci_cuda_get(int index);
/* The device behind the `user` of a call; NULL is the first. */
TCI_FN tci_cuda_device *tci_cuda_of(void *user);
/* Opens it at the first call. */
TCI_FN tc_status tci_cuda_target(void *user, int vector_bits, tc_backend_target *target);
/* Tells the forks of the lock. */
TCI_FN void tci_cuda_keep_over_fork(void);
TCI_FN const tci_cu *tci_cuda_driver(void); /* of an open device */

/* Keeps the text for last_error. */
TCI_FN tc_status tci_cuda_say(const char *what, const char *detail);
/* TC_OK when the driver's code is 0. */
TCI_FN tc_status tci_cuda_check(int code, const char *what);
TCI_FN const char *tci_cuda_last_error(void *user);
/* A process made by fork has no device of its parent's, and no call of the driver may be made in
 * it. */
TCI_FN tc_status tci_cuda_check_process(void);
/* A stay in a device's context, which is this thread's from tci_cuda_enter to tci_cuda_leave. With
 * a status there is none, and no call of the driver is made; it is left all the same. */
typedef struct tci_cuda_stay {
    const tci_cuda_device *d;
    const tci_cu *cu;
    void *before; /* the context that the thread had */
    tc_status status;
} tci_cuda_stay;
TCI_FN tci_cuda_stay tci_cuda_enter(const tci_cuda_device *d);
/* The status of the stay, or else of what was done in it. */
TCI_FN tc_status tci_cuda_leave(const tci_cuda_stay *in, tc_status status);
/* A stay for one call of the driver, which `what` names where it fails. */
#define TCI_CUDA_DO(in, call, what)                                                                \
    tci_cuda_leave((in), (in)->status ? TC_OK : tci_cuda_check((call), (what)))

/* A recorded sequence: graphs, one behind the other. */
typedef struct tci_cuda_graph { void *graph, *executable; } tci_cuda_graph;
typedef struct tci_cuda_sequence {
    int n;
    tci_cuda_graph *graphs;
} tci_cuda_sequence;
/* cuda/queue.c: one of n graphs that are to be made; NULL: out of memory. */
TCI_FN tci_cuda_sequence *tci_cuda_sequence_make(int n);
/* nodes[i] of a graph, one for each launch from `first` on; NULL: it has no tasks, and nothing
 * waits for it. What comes before `first` is in a graph before. after: room for as many. */
TCI_FN tc_status tci_cuda_add_node(void *graph, const tc_launch *launch, void **nodes, int first,
                                   int i, void **after);
/* cuda/loop.c: a member of tc_backend. */
TCI_FN tc_status tci_cuda_record_loop(void *user, const tc_backend_loop *loop, void **sequence);

/* ---- cuda/memory.c ---- */
/* Memory from the driver itself, which users get; NULL: it has none. */
TCI_FN void *tci_cuda_get_memory(void *user, int64_t bytes);
TCI_FN void tci_cuda_free_memory(void *user, void *memory);
/* Members of tc_backend. */
TCI_FN void *tci_cuda_alloc(void *user, int64_t bytes);
TCI_FN void tci_cuda_free(void *user, void *memory);

/* ---- cuda/queue.c: the members of tc_backend and tc_backend_queues that give work ---- */
TCI_FN tc_status tci_cuda_launch(void *user, const tc_launch *launch);
TCI_FN tc_status tci_cuda_sync(void *user);
TCI_FN tc_status tci_cuda_record(void *user, const tc_launch *launches, int n, void **sequence);
TCI_FN tc_status tci_cuda_replay(void *user, void *sequence);
TCI_FN void tci_cuda_sequence_free(void *user, void *sequence);
TCI_FN tc_status tci_cuda_copy_within(void *user, void *to, const void *from, int64_t bytes);
/* upload, download, and between any memory of the process: returns when the bytes are there. */
TCI_FN tc_status tci_cuda_copy(void *user, void *to, const void *from, int64_t bytes);
TCI_FN const tc_backend_queues *tci_cuda_queues(void);

#endif

/* ---- src/cuda/device.c, continued ---- */
#include <stdio.h>
#include <string.h>


static struct {
    tci_mutex lock; /* while a device is opened */
    bool is_lost;   /* in a child made by fork */
    bool is_used;   /* some device is open */
    const tci_cu *cu;
    tci_cuda_device devices[TCI_CUDA_DEVICES];
} tci_cuda = {.lock = TCI_MUTEX_INIT};

static _Thread_local char tci_cuda_error[256];

/* ---- failures ---- */

TCI_FN tc_status tci_cuda_say(const char *what, const char *detail)
{
    snprintf(tci_cuda_error, sizeof(tci_cuda_error), "%s%s%s", what, detail[0] ? ": " : "", detail);
    return TC_ERR_BACKEND;
}

TCI_FN tc_status tci_cuda_check(int code, const char *what)
{
    const char *name = NULL;
    if (code == 0) {
        return TC_OK;
    }
    tci_cuda.cu->error_name(code, &name);
    return tci_cuda_say(what, name ? name : "an unknown error");
}

TCI_FN const char *tci_cuda_last_error(void *user)
{
    (void)user;
    return tci_cuda_error;
}

/* ---- contexts ---- */

TCI_FN const tci_cu *tci_cuda_driver(void)
{
    return tci_cuda.cu;
}

TCI_FN tci_cuda_device *tci_cuda_get(int index)
{
    return index >= 0 && index < TCI_CUDA_DEVICES ? &tci_cuda.devices[index] : NULL;
}

TCI_FN tci_cuda_device *tci_cuda_of(void *user)
{
    return user ? user : &tci_cuda.devices[0];
}

TCI_FN tc_status tci_cuda_check_process(void)
{
    return tci_cuda.is_lost
               ? tci_cuda_say("this process was made by fork, and its parent used the GPU before",
                              "CUDA does not survive a fork")
               : TC_OK;
}

TCI_FN tci_cuda_stay tci_cuda_enter(const tci_cuda_device *d)
{
    tci_cuda_stay in = {d, tci_cuda.cu, d->context, tci_cuda_check_process()};
    if (!in.status) {
        in.status = tci_cuda_check(in.cu->context_get(&in.before), "cuCtxGetCurrent");
    }
    if (!in.status && in.before != d->context) {
        in.status = tci_cuda_check(in.cu->context_set(d->context), "cuCtxSetCurrent");
    }
    return in;
}

TCI_FN tc_status tci_cuda_leave(const tci_cuda_stay *in, tc_status status)
{
    if (!in->status && in->before != in->d->context) {
        in->cu->context_set(in->before);
    }
    return in->status ? in->status : status;
}

static void tci_cuda_after_fork(void)
{
    tci_cuda.is_lost = tci_cuda.is_used;
    for (int i = 0; i < TCI_CUDA_DEVICES && tci_cuda.is_lost; i++) {
        tc_backend_target *t = &tci_cuda.devices[i].target;
        t->usable = false;
        snprintf(t->why, sizeof(t->why),
                 "CUDA does not survive a fork of a process that used the GPU");
    }
}

TCI_FN void tci_cuda_keep_over_fork(void)
{
    tci_os_keep_over_fork(&tci_cuda.lock, tci_cuda_after_fork);
}

/* ---- opening ---- */

static tc_status tci_cuda_open(tci_cuda_device *d, int device)
{
    const tci_cu *cu = tci_cuda.cu;
    tc_status status =
        tci_cuda_check(cu->context_retain(&d->context, device), "cuDevicePrimaryCtxRetain");
    tci_cuda.is_used = tci_cuda.is_used || !status;
    if (status) {
        return status;
    }
    tci_cuda_stay in = tci_cuda_enter(d);
    return TCI_CUDA_DO(&in, cu->stream_create(&d->stream, 1), "cuStreamCreate");
}

static int tci_cuda_attribute(int which, int device)
{
    int value = 0;
    return tci_cuda.cu->device_attribute(&value, which, device) ? 0 : TCI_MAX(value, 0);
}

/* What the driver tells of the device; what it does not tell stays 0. */
static void tci_cuda_machine(int device, tc_machine *m)
{
    enum { /* CU_DEVICE_ATTRIBUTE_... */
        TCI_CU_SHARED = 8,          /* MAX_SHARED_MEMORY_PER_BLOCK */
        TCI_CU_WARP = 10,           /* WARP_SIZE */
        TCI_CU_CLOCK = 13,          /* CLOCK_RATE, kHz */
        TCI_CU_PROCESSORS = 16,     /* MULTIPROCESSOR_COUNT */
        TCI_CU_MEMORY_CLOCK = 36,   /* MEMORY_CLOCK_RATE, kHz */
        TCI_CU_BUS = 37,            /* GLOBAL_MEMORY_BUS_WIDTH, bits */
        TCI_CU_CACHE = 38,          /* L2_CACHE_SIZE */
        TCI_CU_REGISTERS = 82,      /* MAX_REGISTERS_PER_MULTIPROCESSOR */
        TCI_CU_SHARED_MOST = 97     /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    };
    m->processors = tci_cuda_attribute(TCI_CU_PROCESSORS, device);
    m->ghz = tci_cuda_attribute(TCI_CU_CLOCK, device) * 1e-6;
    m->registers = tci_cuda_attribute(TCI_CU_REGISTERS, device);
    m->cache_bytes[2] = tci_cuda_attribute(TCI_CU_CACHE, device);
    double bytes = tci_cuda_attribute(TCI_CU_BUS, device) / 8; /* twice a clock */
    m->memory_gbs = 2e-6 * bytes * tci_cuda_attribute(TCI_CU_MEMORY_CLOCK, device);
    m->subgroup = tci_cuda_attribute(TCI_CU_WARP, device);
    m->shared_bytes = tci_cuda_attribute(TCI_CU_SHARED, device);
    m->shared_most = tci_cuda_attribute(TCI_CU_SHARED_MOST, device);
}

/* The units of warps; on Hopper for what its matrix units do not take (cuda/matrix.c). Operations
 * of halves in a cycle of a processor: NVIDIA's papers on the architectures have 512 multiply-adds
 * of f16 for Turing (TU102), 1024 for A100 (GA100), 512 for GA102 and AD102; newer cards, which
 * have other units too, as A100. f64 is no faster than by threads but on the large ones. */
static void tci_cuda_warps(int capability, tc_backend_target *t)
{
    bool hopper = capability / 10 == 9, large = capability == 80 || capability / 10 == 10;
    if (capability < 75) {
        return;
    }
    t->warp_unit = TC_WARP_BYTES | (hopper ? 0 : TC_WARP_HALVES) |
                   (hopper || capability < 80 ? 0 : TC_WARP_SINGLES) |
                   (hopper || large ? TC_WARP_DOUBLES : 0);
    t->machine.matrix_flops = hopper ? 0 : large ? 2048 : 1024;
}

/* Fills its target; usable only when everything works. */
static void tci_cuda_detect(tci_cuda_device *d)
{
    enum { TCI_CU_MAJOR = 75, TCI_CU_MINOR = 76 }; /* COMPUTE_CAPABILITY_... */
    tc_backend_target *t = &d->target;
    const char *why = "";
    int device = 0, driver = 0;
    tci_cuda.cu = tci_cu_get(&why);
    if (!tci_cuda.cu) {
        snprintf(t->why, sizeof(t->why), "no CUDA driver: %.100s", why);
        return;
    }
    const tci_cu *cu = tci_cuda.cu;
    tc_status status = tci_cuda_check(cu->init(0), "cuInit");
    if (!status) {
        status = tci_cuda_check(cu->device_get(&device, d->index), "cuDeviceGet");
    }
    if (!status) {
        cu->driver_version(&driver);
        status = tci_cuda_open(d, device);
    }
    if (status) {
        snprintf(t->why, sizeof(t->why), "%.120s", tci_cuda_error);
        return;
    }
    int major = tci_cuda_attribute(TCI_CU_MAJOR, device);
    int minor = tci_cuda_attribute(TCI_CU_MINOR, device);
    tci_cuda_machine(device, &t->machine);
    int processors = t->machine.processors;
    snprintf(d->architecture, sizeof(d->architecture), "--gpu-architecture=sm_%d%d%s", major, minor,
             major == 9 ? "a" : "");
    t->matrix_units = major == 9 && cu->tensor_map && cu->place_map ? processors : 0;
    tci_cuda_warps(10 * major + minor, t);
    snprintf(t->features, sizeof(t->features), "cuda sm_%d%d, %d processors, driver %d", major,
             minor, processors, driver);
    t->usable = true;
}

TCI_FN tc_status tci_cuda_target(void *user, int vector_bits, tc_backend_target *target)
{
    tci_cuda_device *d = tci_cuda_of(user);
    (void)vector_bits;
    pthread_mutex_lock(&tci_cuda.lock);
    if (!d->known) {
        d->known = true;
        d->index = (int)(d - tci_cuda.devices);
        d->target.vector_bytes = TCI_CUDA_THREAD_BYTES;
        d->target.block_threads = TCI_CUDA_MAX_THREADS;
        if (!tci_cuda_check_process()) {
            tci_cuda_detect(d);
        }
    }
    *target = d->target;
    pthread_mutex_unlock(&tci_cuda.lock);
    return TC_OK;
}
/* ---- src/cuda/memory.c ---- */
/* cuda/memory.c - memory of GPUs.
 *
 * In: sizes. Out: memory of a device. The driver shares out what is small by itself, but gives all
 * else in pages of 2 MB, so that a network whose weights are of 1.2 MB each would take 2 for each.
 * The one idea: a size of which pages would waste much is a piece of a slab, into which others go
 * too; a slab is an eighth of all before it together, so that little is left over in the last.
 *
 * Invariants: pieces lie in a slab in ascending order and are longer than TCI_CUDA_SMALL; a slab
 * without any goes back to the driver. As the driver does when it frees, what frees a piece waits
 * for the device first. In a child made by fork nothing here is reached, so the lock may be held
 * there by nobody. */
#include <string.h>


enum { /* bytes */
    TCI_CUDA_ALIGN = 256,
    TCI_CUDA_SMALL = 1 << 20,       /* up to here the driver shares out pages */
    TCI_CUDA_PAGE = 2 << 20,
    TCI_CUDA_PIECE_MOST = 8 << 20,
    TCI_CUDA_SLAB_MOST = 16 << 20
};
enum { TCI_CUDA_WASTE = 16 };       /* one in so many bytes may be wasted */

typedef struct tci_cuda_piece { int64_t begin, end; } tci_cuda_piece;

typedef struct tci_cuda_slab tci_cuda_slab;
struct tci_cuda_slab {
    tci_cuda_slab *next;
    tci_cu_ptr memory;
    int64_t bytes;
    int n;
    tci_cuda_piece pieces[TCI_CUDA_SLAB_MOST / TCI_CUDA_SMALL];
};

static struct {
    tci_mutex lock;
    tci_cuda_slab *slabs[TCI_CUDA_DEVICES]; /* the oldest first */
} tci_cuda_memory = {.lock = TCI_MUTEX_INIT};

static int64_t tci_cuda_round_up(int64_t bytes, int64_t unit)
{
    return tci_ceil_div(bytes, unit) * unit;
}

static bool tci_cuda_is_piece(int64_t bytes)
{
    int64_t waste = tci_cuda_round_up(bytes, TCI_CUDA_PAGE) - bytes;
    return bytes > TCI_CUDA_SMALL && bytes <= TCI_CUDA_PIECE_MOST && waste * TCI_CUDA_WASTE > bytes;
}

/* Where the slab has room for so many bytes: the piece before which they go, *begin; -1: none. */
static int tci_cuda_find_room(const tci_cuda_slab *s, int64_t bytes, int64_t *begin)
{
    *begin = 0;
    for (int i = 0; i <= s->n; i++) {
        int64_t end = i < s->n ? s->pieces[i].begin : s->bytes;
        if (end - *begin >= bytes) {
            return i;
        }
        *begin = i < s->n ? s->pieces[i].end : end;
    }
    return -1;
}

/* A slab with room for so many bytes, the last of the list; NULL: the device has no memory. */
static tci_cuda_slab *tci_cuda_add_slab(const tci_cuda_stay *in, int64_t bytes)
{
    tci_cuda_slab **at = &tci_cuda_memory.slabs[in->d->index];
    int64_t all = 0;
    for (; *at; at = &(*at)->next) {
        all += (*at)->bytes;
    }
    tci_cuda_slab *s = tci_heap_get(sizeof(*s));
    if (!s) {
        return NULL;
    }
    int64_t wanted = TCI_MIN(all / 8, (int64_t)TCI_CUDA_SLAB_MOST);
    s->bytes = tci_cuda_round_up(TCI_MAX(bytes, wanted), TCI_CUDA_PAGE);
    if (tci_cuda_check(in->cu->alloc(&s->memory, (size_t)s->bytes), "cuMemAlloc")) {
        tci_heap_free(s);
        return NULL;
    }
    *at = s;
    return s;
}

static tci_cu_ptr tci_cuda_cut(const tci_cuda_stay *in, int64_t bytes)
{
    int64_t begin = 0;
    int before = -1;
    bytes = tci_cuda_round_up(bytes, TCI_CUDA_ALIGN);
    tci_cuda_slab *s = tci_cuda_memory.slabs[in->d->index];
    while (s && (before = tci_cuda_find_room(s, bytes, &begin)) < 0) {
        s = s->next;
    }
    if (!s) {
        s = tci_cuda_add_slab(in, bytes);
        begin = before = 0;
    }
    if (!s) {
        return 0;
    }
    tci_cuda_piece *p = &s->pieces[before];
    memmove(p + 1, p, sizeof(*p) * (size_t)(s->n - before));
    *p = (tci_cuda_piece){begin, begin + bytes};
    s->n++;
    return s->memory + (tci_cu_ptr)begin;
}

/* False: it is no piece. */
static bool tci_cuda_put_back(const tci_cuda_stay *in, tci_cu_ptr memory)
{
    tci_cuda_slab **at = &tci_cuda_memory.slabs[in->d->index], *s;
    while ((s = *at) && (memory < s->memory || memory >= s->memory + (tci_cu_ptr)s->bytes)) {
        at = &s->next;
    }
    if (!s) {
        return false;
    }
    tci_cuda_piece *p = s->pieces;
    while (s->memory + (tci_cu_ptr)p->begin != memory) {
        p++;
    }
    in->cu->context_wait();
    s->n--;
    memmove(p, p + 1, sizeof(*p) * (size_t)(s->pieces + s->n - p));
    if (!s->n) {
        *at = s->next;
        in->cu->free(s->memory);
        tci_heap_free(s);
    }
    return true;
}

TCI_FN void *tci_cuda_get_memory(void *user, int64_t bytes)
{
    tci_cu_ptr p = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(&in, in.cu->alloc(&p, (size_t)bytes), "cuMemAlloc");
    return status ? NULL : (void *)(uintptr_t)p;
}

TCI_FN void tci_cuda_free_memory(void *user, void *memory)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->free((tci_cu_ptr)(uintptr_t)memory);
    }
    tci_cuda_leave(&in, TC_OK);
}

TCI_FN void *tci_cuda_alloc(void *user, int64_t bytes)
{
    if (!tci_cuda_is_piece(bytes)) {
        return tci_cuda_get_memory(user, bytes);
    }
    tci_cu_ptr p = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        pthread_mutex_lock(&tci_cuda_memory.lock);
        p = tci_cuda_cut(&in, bytes);
        pthread_mutex_unlock(&tci_cuda_memory.lock);
    }
    tci_cuda_leave(&in, TC_OK);
    return (void *)(uintptr_t)p;
}

TCI_FN void tci_cuda_free(void *user, void *memory)
{
    bool is_piece = false;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        pthread_mutex_lock(&tci_cuda_memory.lock);
        is_piece = tci_cuda_put_back(&in, (tci_cu_ptr)(uintptr_t)memory);
        pthread_mutex_unlock(&tci_cuda_memory.lock);
    }
    tci_cuda_leave(&in, TC_OK);
    if (!is_piece) {
        tci_cuda_free_memory(user, memory);
    }
}
/* ---- src/cuda/queue.c ---- */
/* cuda/queue.c - what a GPU is given to do: launches, recorded sequences, copies, on streams.
 *
 * In: the calls of the seam (api/backend.h). A queue is a stream; NULL is the device's own. A
 * recorded sequence is a CUDA graph of explicit kernel nodes, each behind those that it must come
 * after, launched by one driver call; a long one is several of them, one behind the other.
 *
 * The driver takes calls from any thread, so nothing here takes a lock. Faults: kernels write to
 * host memory that the device sees (host_alloc), which is the launch's own word; it can be read
 * when the queue was waited for. */
#include <stdio.h>
#include <string.h>


enum { TCI_CUDA_MAX_ARGUMENTS = 500 }; /* 8-byte words: what every driver takes */

enum { TCI_CUDA_NODES = 4096 }; /* of a graph: the next is queued while it runs */

/* ---- launches ---- */

/* The map of one operand at its address. */
static bool tci_cuda_encode(const tc_launch *launch, const tci_cuda_map *map, int64_t *to)
{
    enum { TCI_CU_SWIZZLE_128B = 3, TCI_CU_L2_PROMOTION_128B = 2 }; /* CU_TENSOR_MAP_... */
    uint64_t dim[5], stride[4];
    unsigned box[5], step[5];
    for (int i = 0; i < 5; i++) {
        dim[i] = (uint64_t)map->dim[i];
        box[i] = (unsigned)((map->box[i] - 1) * map->step[i] + 1);
        step[i] = (unsigned)map->step[i];
        if (i < 4) {
            stride[i] = (uint64_t)map->stride[i];
        }
    }
    char *start = (char *)launch->buffers[map->operand] + map->offset;
    if (map->axes > 0) {
        int low[3], high[3];
        for (int i = 0; i < 3; i++) {
            low[i] = (int)map->low[i];
            high[i] = (int)map->high[i];
        }
        return !tci_cuda_driver()->place_map(to, (int)map->type, (unsigned)map->rank, start, dim,
                                             stride, low, high, (unsigned)map->box[0],
                                             (unsigned)map->box[1], step, 0, TCI_CU_SWIZZLE_128B,
                                             TCI_CU_L2_PROMOTION_128B, 0);
    }
    return !tci_cuda_driver()->tensor_map(to, (int)map->type, (unsigned)map->rank, start, dim,
                                          stride, box, step, 0, TCI_CU_SWIZZLE_128B,
                                          TCI_CU_L2_PROMOTION_128B, 0);
}

/* The kernel's one argument: maps of a skeleton, operands, literals, the fault word, at least one
 * of each (see tci_cuda_head and tci_cuda_matrix_head). False: it cannot be made. */
static bool tci_cuda_pack(const tc_launch *launch, int64_t *to)
{
    int n_buffers = TCI_MAX(launch->n_buffers, 1), n_literals = TCI_MAX(launch->n_literals, 1);
    const tci_cuda_function *f = launch->function;
    int n_maps = f->is_skeleton ? (int)f->skeleton.n_maps : 0;
    int map_words = n_maps * TCI_CUDA_MAP_WORDS;
    int n_words = map_words + n_buffers + n_literals + 1;
    if (n_words > TCI_CUDA_MAX_ARGUMENTS) {
        return false;
    }
    memset(to, 0, TCI_CUDA_MAX_ARGUMENTS * sizeof(*to));
    for (int i = 0; i < n_maps; i++) {
        if (!tci_cuda_encode(launch, &f->skeleton.maps[i], to + TCI_CUDA_MAP_WORDS * i)) {
            return false;
        }
    }
    to += map_words;
    for (int i = 0; i < launch->n_buffers; i++) {
        to[i] = (int64_t)(uintptr_t)launch->buffers[i];
    }
    for (int i = 0; i < launch->n_literals; i++) {
        to[n_buffers + i] = launch->literals[i];
    }
    to[n_buffers + n_literals] = (int64_t)(uintptr_t)launch->fault;
    return true;
}

/* What both ways of launching tell the driver. False: the launch is larger than it can be. */
static bool tci_cuda_describe(const tc_launch *launch, bool is_packed, tci_cu_kernel_params *k)
{
    const tci_cuda_function *f = launch->function;
    int64_t blocks = launch->task_end - launch->task_begin;
    memset(k, 0, sizeof(*k));
    k->function = f->handle;
    k->grid_x = (unsigned)blocks;
    k->grid_y = k->grid_z = k->block_y = k->block_z = 1;
    k->block_x = (unsigned)f->threads;
    if (f->is_skeleton) {
        k->block_x = (unsigned)f->skeleton.block_x;
        k->block_y = (unsigned)f->skeleton.block_y;
        k->shared_bytes = (unsigned)f->skeleton.shared_bytes;
    }
    if (!is_packed || launch->task_begin != 0 || blocks > INT32_MAX) {
        tci_cuda_say("a kernel has more operands or blocks than a launch can have, or an operand "
                     "that a tensor map cannot describe", "");
        return false;
    }
    return true;
}

static void *tci_cuda_stream(const tci_cuda_stay *in, void *queue)
{
    return queue ? queue : in->d->stream;
}

static tc_status tci_cuda_launch_inside(const tci_cuda_stay *in, const tc_launch *launch,
                                        void *stream)
{
    _Alignas(64) int64_t arguments[TCI_CUDA_MAX_ARGUMENTS]; /* of tensor maps */
    tci_cu_kernel_params k;
    bool is_packed = tci_cuda_pack(launch, arguments);
    if (!tci_cuda_describe(launch, is_packed, &k)) {
        return TC_ERR_LIMIT;
    }
    void *params[] = {arguments}; /* the driver knows its size and alignment from the kernel */
    return tci_cuda_check(in->cu->launch(k.function, k.grid_x, 1, 1, k.block_x, k.block_y, 1,
                                         k.shared_bytes, stream, params, NULL),
                          "cuLaunchKernel");
}

static tc_status tci_cuda_queue_launch(void *user, void *queue, const tc_launch *launch)
{
    if (launch->task_end == launch->task_begin) {
        return TC_OK;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    void *stream = tci_cuda_stream(&in, queue);
    return tci_cuda_leave(&in, in.status ? TC_OK : tci_cuda_launch_inside(&in, launch, stream));
}

static tc_status tci_cuda_queue_sync(void *user, void *queue)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_wait(tci_cuda_stream(&in, queue)), "a kernel failed");
}

/* ---- sequences ---- */

TCI_FN tci_cuda_sequence *tci_cuda_sequence_make(int n)
{
    tci_cuda_sequence *s = tci_heap_get(sizeof(*s) + sizeof(*s->graphs) * (size_t)n);
    if (s) {
        s->n = n;
        s->graphs = (tci_cuda_graph *)(s + 1);
    }
    return s;
}

TCI_FN void tci_cuda_sequence_free(void *user, void *sequence)
{
    tci_cuda_sequence *s = sequence;
    if (!s) {
        return;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    for (int i = 0; i < s->n && !in.status; i++) {
        if (s->graphs[i].executable) {
            in.cu->graph_exec_free(s->graphs[i].executable);
        }
        if (s->graphs[i].graph) {
            in.cu->graph_free(s->graphs[i].graph);
        }
    }
    tci_cuda_leave(&in, TC_OK);
    tci_heap_free(s);
}

TCI_FN tc_status tci_cuda_add_node(void *graph, const tc_launch *launch, void **nodes, int first,
                                   int i, void **after)
{
    _Alignas(64) int64_t arguments[TCI_CUDA_MAX_ARGUMENTS];
    tci_cu_kernel_params k;
    size_t n_after = 0;
    if (launch->task_end == launch->task_begin) {
        return TC_OK;
    }
    for (int j = 0; j < launch->n_after; j++) {
        after[n_after] = launch->after[j] < first ? NULL : nodes[launch->after[j]];
        n_after += after[n_after] != NULL;
    }
    bool is_packed = tci_cuda_pack(launch, arguments);
    if (!tci_cuda_describe(launch, is_packed, &k)) {
        return TC_ERR_LIMIT;
    }
    void *params[] = {arguments};
    k.params = params;
    return tci_cuda_check(
        tci_cuda_driver()->graph_add_kernel(&nodes[i], graph, after, n_after, &k),
        "cuGraphAddKernelNode");
}

/* Launches [first, last) of those. after: room for as many as there are. */
static tc_status tci_cuda_make_graph(tci_cuda_graph *g, const tc_launch *launches, void **nodes,
                                     void **after, int first, int last)
{
    const tci_cu *cu = tci_cuda_driver();
    tc_status status = tci_cuda_check(cu->graph_create(&g->graph, 0), "cuGraphCreate");
    for (int i = first; i < last && !status; i++) {
        status = tci_cuda_add_node(g->graph, &launches[i], nodes, first, i, after);
    }
    if (!status) {
        status = tci_cuda_check(cu->graph_instantiate(&g->executable, g->graph, 0),
                                "cuGraphInstantiate");
    }
    return status;
}

static tc_status tci_cuda_make_graphs(tci_cuda_sequence *s, const tc_launch *launches, int n)
{
    void **nodes = tci_heap_get(sizeof(*nodes) * 2 * (size_t)TCI_MAX(n, 1));
    tc_status status = nodes ? TC_OK : TC_ERR_MEMORY;
    for (int i = 0; i < s->n && !status; i++) {
        int first = i * TCI_CUDA_NODES;
        status = tci_cuda_make_graph(&s->graphs[i], launches, nodes, nodes + n, first,
                                     TCI_MIN(n, first + TCI_CUDA_NODES));
    }
    tci_heap_free(nodes);
    return status;
}

TCI_FN tc_status tci_cuda_record(void *user, const tc_launch *launches, int n, void **sequence)
{
    tci_cuda_sequence *s = tci_cuda_sequence_make(TCI_MAX((n + TCI_CUDA_NODES - 1) / TCI_CUDA_NODES,
                                                          1));
    *sequence = NULL;
    if (!s) {
        return TC_ERR_MEMORY;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = in.status ? TC_OK : tci_cuda_make_graphs(s, launches, n);
    status = tci_cuda_leave(&in, status);
    if (status) {
        tci_cuda_sequence_free(user, s);
        s = NULL;
    }
    *sequence = s;
    return status;
}

static tc_status tci_cuda_queue_replay(void *user, void *queue, void *sequence)
{
    const tci_cuda_sequence *s = sequence;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    void *stream = tci_cuda_stream(&in, queue);
    tc_status status = TC_OK;
    for (int i = 0; i < s->n && !in.status && !status; i++) {
        status = tci_cuda_check(in.cu->graph_launch(s->graphs[i].executable, stream),
                                "cuGraphLaunch");
    }
    return tci_cuda_leave(&in, status);
}

/* ---- copies ---- */

static tc_status tci_cuda_queue_copy(void *user, void *queue, void *to, const void *from,
                                     int64_t bytes)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in,
                       in.cu->copy((tci_cu_ptr)(uintptr_t)to, (tci_cu_ptr)(uintptr_t)from,
                                   (size_t)bytes, tci_cuda_stream(&in, queue)),
                       "cuMemcpyAsync");
}

TCI_FN tc_status tci_cuda_copy_within(void *user, void *to, const void *from, int64_t bytes)
{
    return tci_cuda_queue_copy(user, NULL, to, from, bytes);
}

TCI_FN tc_status tci_cuda_copy(void *user, void *to, const void *from, int64_t bytes)
{
    tc_status status = tci_cuda_queue_copy(user, NULL, to, from, bytes);
    if (status) {
        return status;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_wait(in.d->stream), "cuStreamSynchronize");
}

/* ---- the device's own queue ---- */

TCI_FN tc_status tci_cuda_launch(void *user, const tc_launch *launch)
{
    return tci_cuda_queue_launch(user, NULL, launch);
}

TCI_FN tc_status tci_cuda_replay(void *user, void *sequence)
{
    return tci_cuda_queue_replay(user, NULL, sequence);
}

TCI_FN tc_status tci_cuda_sync(void *user)
{
    return tci_cuda_queue_sync(user, NULL);
}

/* ---- queues ---- */

static tc_status tci_cuda_queue_make(void *user, void **queue)
{
    *queue = NULL;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_create(queue, 1), "cuStreamCreate");
}

static void tci_cuda_queue_free(void *user, void *queue)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->stream_free(queue);
    }
    tci_cuda_leave(&in, TC_OK);
}

/* ---- events ---- */

static tc_status tci_cuda_event_make(void *user, void **event)
{
    *event = NULL;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->event_create(event, 0), "cuEventCreate");
}

static void tci_cuda_event_free(void *user, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->event_free(event);
    }
    tci_cuda_leave(&in, TC_OK);
}

static tc_status tci_cuda_event_record(void *user, void *queue, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->event_record(event, tci_cuda_stream(&in, queue)),
                       "cuEventRecord");
}

static tc_status tci_cuda_event_wait(void *user, void *queue, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_after(tci_cuda_stream(&in, queue), event, 0),
                       "cuStreamWaitEvent");
}

static tc_status tci_cuda_event_sync(void *user, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->event_wait(event), "a kernel failed");
}

static tc_status tci_cuda_event_elapsed(void *user, void *from, void *to, double *ms)
{
    float elapsed = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status =
        TCI_CUDA_DO(&in, in.cu->event_elapsed(&elapsed, from, to), "cuEventElapsedTime");
    *ms = elapsed;
    return status;
}

/* ---- memory of the host that the device sees ---- */

static void *tci_cuda_host_alloc(void *user, int64_t bytes)
{
    enum { TCI_CU_PORTABLE_MAPPED = 3 }; /* CU_MEMHOSTALLOC_... */
    void *memory = NULL;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(
        &in, in.cu->host_alloc(&memory, (size_t)bytes, TCI_CU_PORTABLE_MAPPED), "cuMemHostAlloc");
    return status ? NULL : memory;
}

static void tci_cuda_host_free(void *user, void *memory)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->host_free(memory);
    }
    tci_cuda_leave(&in, TC_OK);
}

TCI_FN const tc_backend_queues *tci_cuda_queues(void)
{
    static const tc_backend_queues queues = {
        .make = tci_cuda_queue_make,
        .free = tci_cuda_queue_free,
        .launch = tci_cuda_queue_launch,
        .replay = tci_cuda_queue_replay,
        .copy = tci_cuda_queue_copy,
        .sync = tci_cuda_queue_sync,
        .event_make = tci_cuda_event_make,
        .event_free = tci_cuda_event_free,
        .event_record = tci_cuda_event_record,
        .event_wait = tci_cuda_event_wait,
        .event_sync = tci_cuda_event_sync,
        .event_elapsed = tci_cuda_event_elapsed,
        .host_alloc = tci_cuda_host_alloc,
        .host_free = tci_cuda_host_free,
    };
    return &queues;
}
/* ---- src/cuda/loop.c ---- */
/* cuda/loop.c - loops whose end the device finds: a CUDA graph with conditional nodes.
 *
 * In: two rounds, as launches, and the bytes that say whether there is another. Out: a sequence
 *
 *     decide(go[0]) -> while: rounds[0], decide(go[1]) -> if: rounds[1], decide(go[0])
 *
 * where `decide` is a kernel of one thread that counts rounds and tells the nodes, which a kernel
 * of CUDA C++ without headers cannot; so it is PTX, which the driver compiles when it is first
 * needed. */
#include <string.h>


enum { TCI_CUDA_LOOP_NODES = 4096 }; /* of both rounds together, at most */

/* decide(go, done, step, most, node, other): *done is set to 0 (step 0) or grows by one; if *go and
 * *done < most, the nodes (other: 0 for none) are done. */
static const char tci_cuda_decide_text[] =
    ".version 8.3\n.target sm_80\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 node, .param .b32 value);\n"
    ".visible .entry decide(.param .u64 go, .param .u64 done, .param .u64 step, .param .u64 most,\n"
    "                       .param .u64 node, .param .u64 other)\n"
    "{\n"
    "    .reg .pred p, q;\n    .reg .u64 r<7>;\n    .reg .b16 h;\n    .reg .b32 w;\n"
    "    ld.param.u64 r0, [go];\n    ld.param.u64 r1, [done];\n    ld.param.u64 r2, [step];\n"
    "    ld.param.u64 r3, [most];\n    ld.param.u64 r4, [node];\n    ld.param.u64 r5, [other];\n"
    "    ld.global.u64 r6, [r1];\n    setp.eq.u64 q, r2, 0;\n@q  mov.u64 r6, 0;\n"
    "    add.u64 r6, r6, r2;\n    st.global.u64 [r1], r6;\n"
    "    ld.global.u8 h, [r0];\n    setp.ne.u16 p, h, 0;\n    setp.lt.and.u64 p, r6, r3, p;\n"
    "    selp.u32 w, 1, 0, p;\n"
    "    { .param .b64 x; .param .b32 y; st.param.b64 [x], r4; st.param.b32 [y], w;\n"
    "      call.uni cudaGraphSetConditional, (x, y); }\n"
    "    setp.eq.u64 p, r5, 0;\n@p  bra END;\n"
    "    { .param .b64 x; .param .b32 y; st.param.b64 [x], r5; st.param.b32 [y], w;\n"
    "      call.uni cudaGraphSetConditional, (x, y); }\n"
    "END:\n    ret;\n}\n";

/* One that another thread made meanwhile is taken; modules stay as long as the process. */
static void *tci_cuda_decide(tci_cuda_device *d)
{
    const tci_cu *cu = tci_cuda_driver();
    void *made = __atomic_load_n(&d->decide, __ATOMIC_ACQUIRE), *module = NULL, *none = NULL;
    if (made || !cu->graph_handle || !cu->graph_add) {
        return made;
    }
    if (cu->module_load(&module, tci_cuda_decide_text)) {
        return NULL;
    }
    if (cu->module_find(&made, module, "decide")) {
        made = NULL;
    }
    bool first = made && __atomic_compare_exchange_n(&d->decide, &none, made, false,
                                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    if (!first) {
        cu->module_free(module);
    }
    return first ? made : none;
}

typedef struct tci_cuda_looping {
    tci_cuda_device *d;
    const tc_backend_loop *loop;
    void *decide;
    void **nodes, **after;      /* room for the launches of a round */
    unsigned long long again;   /* handle of the while */
} tci_cuda_looping;

/* Behind `before`, if that is not NULL; *node is it. */
static tc_status tci_cuda_loop_decide(const tci_cuda_looping *x, void *graph, void *before,
                                      int parity, uint64_t step, unsigned long long other,
                                      void **node)
{
    uint64_t go = (uintptr_t)x->loop->go[parity], done = (uintptr_t)x->loop->done;
    uint64_t most = (uint64_t)x->loop->most, again = x->again, also = other;
    void *params[] = {&go, &done, &step, &most, &again, &also};
    tci_cu_kernel_params k = {.function = x->decide, .grid_x = 1, .grid_y = 1, .grid_z = 1,
                              .block_x = 1, .block_y = 1, .block_z = 1, .params = params};
    return tci_cuda_check(tci_cuda_driver()->graph_add_kernel(node, graph, &before, before != NULL,
                                                              &k), "cuGraphAddKernelNode");
}

/* A conditional node behind another; *body is its graph. */
static tc_status tci_cuda_loop_node(const tci_cuda_looping *x, void *graph, void *before,
                                    unsigned long long handle, int kind, void **body)
{
    enum { TCI_CU_CONDITIONAL = 13 }; /* CU_GRAPH_NODE_TYPE_... */
    tci_cu_conditional c = {.type = TCI_CU_CONDITIONAL, .handle = handle, .kind = kind,
                            .n_bodies = 1, .context = x->d->context};
    void *node = NULL;
    tc_status status = tci_cuda_check(tci_cuda_driver()->graph_add(&node, graph, &before, 1, &c),
                                      "cuGraphAddNode");
    *body = status ? NULL : c.bodies[0];
    return status;
}

/* The launches of a round, each behind the one before. *last: that of the last, NULL: of none. */
static tc_status tci_cuda_loop_round(const tci_cuda_looping *x, void *graph, int parity,
                                     void **last)
{
    tc_status status = TC_OK;
    int32_t before = -1;
    for (int i = 0; i < x->loop->n && !status; i++) {
        tc_launch launch = x->loop->rounds[parity][i];
        launch.after = &before;
        launch.n_after = before >= 0;
        x->nodes[i] = NULL;
        status = tci_cuda_add_node(graph, &launch, x->nodes, 0, i, x->after);
        before = x->nodes[i] ? i : before;
    }
    *last = before >= 0 ? x->nodes[before] : NULL;
    return status;
}

static tc_status tci_cuda_loop_handle(const tci_cuda_looping *x, void *graph,
                                      unsigned long long *handle)
{
    return tci_cuda_check(tci_cuda_driver()->graph_handle(handle, graph, x->d->context, 0, 0),
                          "cuGraphConditionalHandleCreate");
}

static tc_status tci_cuda_loop_graph(tci_cuda_looping *x, void *graph)
{
    enum { TCI_CU_IF = 0, TCI_CU_WHILE = 1 }; /* CU_GRAPH_COND_TYPE_... */
    void *node = NULL, *even = NULL, *odd = NULL;
    unsigned long long other = 0;
    tc_status status = tci_cuda_loop_handle(x, graph, &x->again);
    status = status ? status : tci_cuda_loop_decide(x, graph, NULL, 0, 0, 0, &node);
    status = status ? status : tci_cuda_loop_node(x, graph, node, x->again, TCI_CU_WHILE, &even);
    status = status ? status : tci_cuda_loop_handle(x, even, &other);
    status = status ? status : tci_cuda_loop_round(x, even, 0, &node);
    status = status ? status : tci_cuda_loop_decide(x, even, node, 1, 1, other, &node);
    status = status ? status : tci_cuda_loop_node(x, even, node, other, TCI_CU_IF, &odd);
    status = status ? status : tci_cuda_loop_round(x, odd, 1, &node);
    return status ? status : tci_cuda_loop_decide(x, odd, node, 0, 1, 0, &node);
}

/* What the driver does not make, the host does round by round. */
static tc_status tci_cuda_loop_make(tci_cuda_looping *x, tci_cuda_graph *g)
{
    const tci_cu *cu = tci_cuda_driver();
    x->decide = tci_cuda_decide(x->d);
    if (!x->decide) {
        return TC_ERR_UNSUPPORTED;
    }
    tc_status status = tci_cuda_check(cu->graph_create(&g->graph, 0), "cuGraphCreate");
    status = status ? status : tci_cuda_loop_graph(x, g->graph);
    if (!status) {
        status = tci_cuda_check(cu->graph_instantiate(&g->executable, g->graph, 0),
                                "cuGraphInstantiate");
    }
    return status && status != TC_ERR_MEMORY ? TC_ERR_UNSUPPORTED : status;
}

TCI_FN tc_status tci_cuda_record_loop(void *user, const tc_backend_loop *loop, void **sequence)
{
    tci_cuda_looping x = {.d = tci_cuda_of(user), .loop = loop};
    *sequence = NULL;
    if (2 * loop->n > TCI_CUDA_LOOP_NODES) {
        return TC_ERR_UNSUPPORTED;
    }
    tci_cuda_sequence *s = tci_cuda_sequence_make(1);
    x.nodes = tci_heap_get(sizeof(*x.nodes) * 2 * (size_t)TCI_MAX(loop->n, 1));
    x.after = x.nodes ? x.nodes + loop->n : NULL;
    if (!s || !x.nodes) {
        tci_heap_free(s);
        tci_heap_free(x.nodes);
        return TC_ERR_MEMORY;
    }
    tci_cuda_stay in = tci_cuda_enter(x.d);
    tc_status status = tci_cuda_leave(&in, in.status ? TC_OK : tci_cuda_loop_make(&x, s->graphs));
    tci_heap_free(x.nodes);
    if (status) {
        tci_cuda_sequence_free(user, s);
        s = NULL;
    }
    *sequence = s;
    return status;
}
/* ---- src/cuda/backend.c ---- */
/* cuda/backend.c - the "cuda" backend: CUDA source by NVRTC, for GPUs, each a backend of its own.
 *
 * In: the calls of the seam (api/backend.h) that are not about work (cuda/queue.c): compiling,
 * modules. Out: the backend of each device, and what users call (api/cuda.h). */

#include <stdio.h>
#include <string.h>


#define TCI_CUDA_LEGACY ((void *)(uintptr_t)1) /* CU_STREAM_LEGACY */

typedef struct tci_cuda_module {
    void *handle;
    tci_cuda_function *functions; /* atomic: pushed in front */
} tci_cuda_module;

/* ---- compiling ---- */

/* The library is not opened for this: a warm start never needs it. */
static tc_status tci_cuda_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    const char *why = "";
    (void)user;
    (void)wanted; /* a C compiler */
    memset(compiler, 0, sizeof(*compiler));
    if (tci_cuda_check_process()) {
        return TC_ERR_COMPILER; /* what it makes could not be loaded */
    }
    snprintf(compiler->path, sizeof(compiler->path), "%s", tci_nvrtc_path());
    compiler->vector_bytes = TCI_CUDA_THREAD_BYTES;
    if (compiler->path[0] && tci_os_stat(compiler->path, &compiler->bytes, &compiler->mtime_ns)) {
        return TC_OK;
    }
    if (tci_nvrtc_get(&why)) {
        return TC_OK;
    }
    tci_cuda_say("NVRTC cannot be opened", why);
    return TC_ERR_COMPILER;
}

static tc_status tci_cuda_compile(void *user, tc_build *build)
{
    const char *why = "";
    tc_status status = tci_nvrtc_build(build, tci_cuda_of(user)->architecture, &why);
    if (status) {
        tci_cuda_say(why, "");
    }
    return status;
}

/* ---- modules ---- */

static tc_status tci_cuda_module_load(void *user, const void *cubin, size_t n, const char *path,
                                      void **module)
{
    (void)n; /* a cubin says how long it is */
    (void)path;
    *module = NULL;
    tci_cuda_module *m = tci_heap_get(sizeof(*m));
    if (!m) {
        return TC_ERR_MEMORY;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(&in, in.cu->module_load(&m->handle, cubin), "cuModuleLoadData");
    if (status) {
        tci_heap_free(m);
        return status;
    }
    *module = m;
    return TC_OK;
}

/* What the module says of a kernel with a main loop of its own, where it is one. */
static bool tci_cuda_read_skeleton(const tci_cuda_device *d, const tci_cuda_module *m,
                                   const char *symbol, tci_cuda_function *f)
{
    enum { TCI_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 }; /* CU_FUNC_ATTRIBUTE_... */
    const tci_cu *cu = tci_cuda_driver();
    tci_cuda_skeleton *k = &f->skeleton;
    char name[256];
    tci_cu_ptr at = 0;
    size_t bytes = 0;
    snprintf(name, sizeof(name), "%s_skeleton", symbol);
    if (cu->module_global(&at, &bytes, m->handle, name)) {
        return true;
    }
    f->is_skeleton = true;
    return bytes == sizeof(*k) &&
           !cu->copy((tci_cu_ptr)(uintptr_t)k, at, bytes, d->stream) &&
           !cu->stream_wait(d->stream) && k->n_maps <= TCI_CUDA_MAPS &&
           !cu->function_set(f->handle, TCI_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)k->shared_bytes);
}

static bool tci_cuda_describe_function(const tci_cuda_device *d, const tci_cuda_module *m,
                                       const char *symbol, tci_cuda_function *f)
{
    /* CU_FUNC_ATTRIBUTE_...: what __launch_bounds__ said */
    enum { TCI_CU_MAX_THREADS_PER_BLOCK = 0 };
    tci_cuda_stay in = tci_cuda_enter(d);
    bool found =
        !in.status && !in.cu->module_find(&f->handle, m->handle, symbol) &&
        !in.cu->function_attribute(&f->threads, TCI_CU_MAX_THREADS_PER_BLOCK, f->handle) &&
        tci_cuda_read_skeleton(d, m, symbol, f);
    tci_cuda_leave(&in, TC_OK);
    return found;
}

static void *tci_cuda_module_find(void *user, void *module, const char *symbol)
{
    tci_cuda_module *m = module;
    tci_cuda_function *f = tci_heap_get(sizeof(*f));
    if (!f) {
        return NULL;
    }
    if (!tci_cuda_describe_function(tci_cuda_of(user), m, symbol, f)) {
        tci_heap_free(f);
        return NULL;
    }
    f->next = __atomic_load_n(&m->functions, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&m->functions, &f->next, f, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
    return f;
}

static void tci_cuda_module_free(void *user, void *module)
{
    tci_cuda_module *m = module;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->module_free(m->handle);
    }
    tci_cuda_leave(&in, TC_OK);
    while (m->functions) {
        tci_cuda_function *next = m->functions->next;
        tci_heap_free(m->functions);
        m->functions = next;
    }
    tci_heap_free(m);
}

/* ---- memory ---- */

/* Memory of another device is copied like the host's. */
static bool tci_cuda_is_device(void *user, const void *memory)
{
    /* CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_... */
    enum { TCI_CU_MEMORY_TYPE = 2, TCI_CU_ORDINAL = 9, TCI_CU_DEVICE = 2 };
    unsigned type = 0;
    int ordinal = -1;
    tci_cu_ptr p = (tci_cu_ptr)(uintptr_t)memory;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    bool is_own = !in.status && !in.cu->pointer_attribute(&type, TCI_CU_MEMORY_TYPE, p) &&
                  type == TCI_CU_DEVICE &&
                  !in.cu->pointer_attribute(&ordinal, TCI_CU_ORDINAL, p) && ordinal == in.d->index;
    tci_cuda_leave(&in, TC_OK);
    return is_own;
}

static bool tci_cuda_is_hidden(void *user, const void *memory)
{
    /* CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_... */
    enum { TCI_CU_MEMORY_TYPE = 2, TCI_CU_HOST_POINTER = 4, TCI_CU_DEVICE = 2 };
    unsigned type = 0;
    void *host = NULL;
    tci_cu_ptr p = (tci_cu_ptr)(uintptr_t)memory;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    bool is_hidden = !in.status && !in.cu->pointer_attribute(&type, TCI_CU_MEMORY_TYPE, p) &&
                     type == TCI_CU_DEVICE && /* managed memory has an address for the host too */
                     in.cu->pointer_attribute(&host, TCI_CU_HOST_POINTER, p);
    tci_cuda_leave(&in, TC_OK);
    return is_hidden;
}

/* ---- what users call (api/cuda.h) ---- */

TCI_FN const tc_backend *tci_cuda_backend(void);

static bool tci_cuda_works(tci_cuda_device *d)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    if (d) {
        tci_cuda_target(d, 0, &target);
    }
    if (target.usable) {
        tci_backend_has_memory("cuda");
    }
    return target.usable;
}

TC_API tc_status tc_cuda_alloc_on(int device, int64_t bytes, void **memory)
{
    tci_cuda_device *d = tci_cuda_get(device);
    if (!memory || bytes < 0) {
        return TC_ERR_ARGUMENT;
    }
    *memory = NULL;
    if (!tci_cuda_works(d)) {
        return TC_ERR_BACKEND;
    }
    *memory = tci_cuda_get_memory(d, TCI_MAX(bytes, (int64_t)1));
    return *memory ? TC_OK : TC_ERR_MEMORY;
}

TC_API tc_status tc_cuda_alloc(int64_t bytes, void **memory)
{
    return tc_cuda_alloc_on(0, bytes, memory);
}

/* The driver knows whose it is. */
TC_API void tc_cuda_free(void *memory)
{
    if (memory && tci_cuda_works(tci_cuda_get(0))) {
        tci_cuda_free_memory(NULL, memory);
    }
}

TC_API tc_status tc_cuda_copy(void *to, const void *from, int64_t bytes)
{
    if (bytes < 0 || (bytes > 0 && (!to || !from))) {
        return TC_ERR_ARGUMENT;
    }
    if (!tci_cuda_works(tci_cuda_get(0))) {
        return TC_ERR_BACKEND;
    }
    return bytes ? tci_cuda_copy(NULL, to, from, bytes) : TC_OK;
}

/* ---- the seam ---- */

static const tc_backend *tci_cuda_device_backend(void *user, int index);

static void tci_cuda_fill_backend(tc_backend *b, int index)
{
    tci_cuda_device *d = tci_cuda_get(index);
    snprintf(d->name, sizeof(d->name), index ? "cuda:%d" : "cuda", index);
    *b = (tc_backend){
        .name = d->name,
        .dialect = "cuda",
        .own_dialect = tci_cuda_words(),
        .user = d,
        .target = tci_cuda_target,
        .compiler = tci_cuda_compiler,
        .compile = tci_cuda_compile,
        .module_load = tci_cuda_module_load,
        .module_find = tci_cuda_module_find,
        .module_free = tci_cuda_module_free,
        .launch = tci_cuda_launch,
        .sync = tci_cuda_sync,
        .alloc = tci_cuda_alloc,
        .free = tci_cuda_free,
        .upload = tci_cuda_copy,
        .download = tci_cuda_copy,
        .record = tci_cuda_record,
        .replay = tci_cuda_replay,
        .sequence_free = tci_cuda_sequence_free,
        .record_loop = tci_cuda_record_loop,
        .copy = tci_cuda_copy_within,
        .is_device = tci_cuda_is_device,
        .last_error = tci_cuda_last_error,
        .queues = tci_cuda_queues(),
        .device = tci_cuda_device_backend,
        .is_hidden = tci_cuda_is_hidden,
    };
}

/* Filled by tci_cuda_backend, before anybody can ask for one. */
static tc_backend tci_cuda_backends[TCI_CUDA_DEVICES];

static const tc_backend *tci_cuda_device_backend(void *user, int index)
{
    (void)user;
    return tci_cuda_get(index) ? &tci_cuda_backends[index] : NULL;
}

/* Called once, before anything else of this backend. The order in which the locks are announced is
 * that in which they are taken: for the target the driver is looked up. */
TCI_FN const tc_backend *tci_cuda_backend(void)
{
    for (int i = 0; i < TCI_CUDA_DEVICES && !tci_cuda_backends[i].name; i++) {
        tci_cuda_fill_backend(&tci_cuda_backends[i], i);
    }
    tci_cuda_keep_over_fork();
    tci_cu_keep_over_fork();
    return &tci_cuda_backends[0];
}

TC_API tc_status tc_cuda_queue(int device, void *stream, tc_queue **queue)
{
    tci_cuda_device *d = tci_cuda_get(device);
    if (!queue) {
        return TC_ERR_ARGUMENT;
    }
    *queue = NULL;
    if (!tci_cuda_works(d)) {
        return TC_ERR_BACKEND;
    }
    const tc_backend *backend = tci_cuda_device_backend(NULL, device);
    *queue = tci_queue_over(backend, stream ? stream : TCI_CUDA_LEGACY);
    return *queue ? TC_OK : TC_ERR_MEMORY;
}

#undef TCI_CUDA_LEGACY
