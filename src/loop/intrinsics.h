/* loop/intrinsics.h - enumerates the intrinsics of the loop IR (tci_mem): loads, stores, lane
 * shuffles, packed dot products, barriers and matrix-unit operations. Each is one function of the
 * dialect (emit/dialect.h): T is the compute type (T1 its scalar), S storage, B a mask. */
#ifndef TCI_LOOP_INTRINSICS_H
#define TCI_LOOP_INTRINSICS_H

enum {
    TCI_WARP = 32,      /* threads of a block whose lanes communicate without a barrier */
    TCI_UNIT_WORDS = 4, /* of a thread, in a factor that a warp's matrix unit takes at once, */
    TCI_UNIT_SUMS = 8   /* and in what it makes of two of them (cuda/mma_sync.c: which) */
};

typedef enum tci_mem {
    /* T f(const S *p): lanes consecutive elements of storage dtype S as compute T */
    TCI_MEM_LOAD,
    /* T f(const S *p, B m): lanes with m false are not touched and read as 0 */
    TCI_MEM_LOAD_MASK,
    /* T f(const S *p, long n): first n lanes, 0 < n < lanes; the rest read as 0 */
    TCI_MEM_LOAD_N,
    TCI_MEM_LOAD_STRIDED,   /* T f(const S *p, long stride): element i at p[i * stride] */
    TCI_MEM_LOAD_STRIDED_N, /* T f(const S *p, long stride, long n) */
    TCI_MEM_LOAD_AT,        /* T f(const S *p, i64 lanes at): element i at p[at[i]] */
    TCI_MEM_LOAD_ONE,       /* T1 f(const S *p): one element, scalar */
    TCI_MEM_STORE,          /* void f(S *p, T v): narrows, to nearest even, and stores */
    TCI_MEM_STORE_N,        /* void f(S *p, T v, long n) */
    TCI_MEM_STORE_STREAM, /* void f(S *p, T v): bypasses the caches if p is aligned to the vector */
    TCI_MEM_STORE_STRIDED,   /* void f(S *p, long stride, T v) */
    TCI_MEM_STORE_STRIDED_N, /* void f(S *p, long stride, T v, long n) */
    TCI_MEM_STORE_ONE,       /* void f(S *p, T1 v) */
    /* as STORE_ONE, inside a loop over lanes: by the thread that holds the lane */
    TCI_MEM_STORE_LANE,
    TCI_MEM_SPLAT,   /* T f(T1 v): every lane */
    TCI_MEM_IOTA,    /* T f(T1 first): first, first + 1, ... */
    TCI_MEM_FIRST_N, /* B f(long n): lanes < n */
    /* T f(T v, long n, long *fault) of i64: each lane as an index of n elements (TCI_K_FAULT) */
    TCI_MEM_INDEX,
    TCI_MEM_LANE,     /* T1 f(T v, int i) */
    TCI_MEM_SET_LANE, /* T f(T v, int i, T1 x) */
    /* T f(T v, int h): lane i takes lane i + h (i < h), the rest unspecified */
    TCI_MEM_HIGH_HALF,
    /* T f(T v, T none, int h), h a power of 2: where i & h lane i takes lane (i | (h - 1)) ^ h of
     * v, the last of the h lanes below; the others take that of none */
    TCI_MEM_BELOW,
    /* T f(T a, T b, int h), h a power of 2: halves of blocks of 2 h lanes are exchanged. LOW: lane
     * i is a[i] where i & h is 0, else b[i - h]; HIGH: a[i + h], else b[i] */
    TCI_MEM_SWAP_LOW,
    TCI_MEM_SWAP_HIGH,
    /* T f(T a, T b): the lower halves of the lanes of a and b in turns; the upper ones */
    TCI_MEM_WEAVE_LOW,
    TCI_MEM_WEAVE_HIGH,
    TCI_MEM_PREFETCH, /* void f(const void *p) */
    TCI_MEM_FENCE,    /* void f(void): after streaming stores */
    /* Up to TILES_END: registers 0 .. 7 of 16 rows of 64 bytes (loop/amx.c). A body has BEGIN
     * first and END last: void f(void) */
    TCI_MEM_TILES_BEGIN,
    TCI_MEM_TILE_ZERO,  /* void f(long tile) */
    TCI_MEM_TILE_LOAD,  /* void f(const S *p, long stride, long tile): rows of 64 bytes at p */
    TCI_MEM_TILE_STORE, /* void f(S *p, long stride, long tile) */
    /* void f(long c, int ab): adds to tile c, f32, the product of tiles a = ab / 8, bf16 rows, and
     * b = ab % 8, whose row i has rows 2 i and 2 i + 1 of the operand, interleaved by element */
    TCI_MEM_TILE_DOT,
    /* likewise of i32 and bytes, rows 4 i to 4 i + 3: ab + 64 where those of b are unsigned, + 128
     * where those of a are */
    TCI_MEM_TILE_FOURS,
    TCI_MEM_TILES_END,
    /* void f(S *p, T a, T b): lanes of a and b in turns; of a processor bf16, of a block's thread
     * one of each, aligned to both */
    TCI_MEM_STORE_PAIRS,
    /* T f(const S *p): as many S in each lane as its bits are: a pair of bf16 as an f32 */
    TCI_MEM_LOAD_PAIRS,
    /* T f(T c, T a, T b) of such pairs: the product of the upper halves is added to c, then that of
     * the lower ones; numbers below 2^-126 may count as zero. Of i32 the halves are i16 */
    TCI_MEM_DOT_PAIRS,
    /* T f(T c, T a, T b) of i32: the four products of the bytes of a, unsigned, and those of b,
     * not, are added to c */
    TCI_MEM_DOT_FOURS,
    /* T f(T v, int h): as HIGH_HALF, in each group of 2 h lanes */
    TCI_MEM_NEAR_HALF,
    /* as HIGH_HALF, of each thread's first lane alone; h is a multiple of what a thread holds */
    TCI_MEM_HIGH_FIRST,
    /* The rest only on GPUs. void f(void): between threads that write and read local arrays */
    TCI_MEM_BARRIER,
    /* as LOAD and STORE: what each thread takes is aligned to its own size */
    TCI_MEM_LOAD_ALIGNED,
    TCI_MEM_STORE_ALIGNED,
    /* T f(const S *p, bool m): as LOAD_ALIGNED; where m is false not touched and read as 0 */
    TCI_MEM_LOAD_IF,
    /* as LOAD_N, aligned so: each thread takes all of its own or nothing */
    TCI_MEM_LOAD_N_ALIGNED,
    /* T f(const S *p): lane i is element i % n, n the lanes of TCI_WARP threads; aligned */
    TCI_MEM_LOAD_REPEAT,
    /* T1 f(T v, int i): lane i of a vector that repeats itself in that way */
    TCI_MEM_LANE_REPEAT,
    /* Words, i64, by which blocks publish values of 4 or 8 bytes: 32 bits of the value, and above
     * them a tag. i64 f(const S *p): the tag of the word at p, as memory has it now */
    TCI_MEM_TAG,
    /* void f(S *p, T1 v, i64 tag): as many words at p as v has 32 bits, which others see whole */
    TCI_MEM_TELL,
    /* T f(const S *p, i64 tag, long n): the first n lanes, one value after the other, as soon as
     * their words have that tag; the rest read as 0 */
    TCI_MEM_AWAIT,
    /* The rest for the matrix unit of each warp (loop/mma_gemm.c). W is TCI_UNIT_WORDS words of
     * each thread (u32), F as many in a factor: words, i32 for bytes with signs, f64 for f64; C
     * TCI_UNIT_SUMS sums, f32, i32 or f64. W f(const S *p): the 16 bytes at p, of each thread's
     * own */
    TCI_MEM_WORDS,
    TCI_MEM_WORDS_IF,    /* W f(const S *p, bool m): where m is false not touched, and zeros */
    TCI_MEM_STORE_WORDS, /* void f(S *p, W v): likewise; f32 rounded as the matrix unit takes it
                          * (tf32) */
    TCI_MEM_STORE_UNIT,  /* void f(S *p, T1 v): as STORE_ONE; f32 rounded likewise */
    /* F f(const S *p, long stride): a first factor for the warp: 16 rows of 32 bytes at p, 64 of
     * f64, or the rows of those bytes' elements, 16 elements each, transposed; and a second one
     * likewise. Transposed bytes and f64 come in pairs: elements 2 i and 2 i + 1 as rows i and i +
     * 8 */
    TCI_MEM_UNIT_ROWS,
    TCI_MEM_UNIT_ROWS_TURNED,
    TCI_MEM_UNIT_COLUMNS,
    TCI_MEM_UNIT_COLUMNS_TURNED,
    TCI_MEM_UNIT_ZERO, /* C f(void) */
    /* C f(C c, F a, F b): c + a b of dtype imm, element (i, j) over rows i of a and j of b */
    TCI_MEM_UNIT_DOT,
    TCI_MEM_UNIT_SUM, /* C's element f(C c, int i): one of the thread's own */
    TCI_MEM_COUNT
} tci_mem;

#endif
