/* kernel/machine.h - defines the machine model: the properties of a CPU or GPU that plans and
 * schedules use.
 *
 * The first fields are the kind of machine: they decide which code can be generated and the
 * numeric class of a kernel (kernel/ir.h). `facts` records capacities and speeds: it decides only
 * between schedules and which values share a kernel, and on a CPU all of these give the same
 * bits. */
#ifndef TCI_KERNEL_MACHINE_H
#define TCI_KERNEL_MACHINE_H

#include <stdbool.h>

#include "../api/backend.h"
#include "../base/platform.h"

enum {
    TCI_ALIGNED_BYTES = 16,  /* what one thread takes at once; all memory starts at a multiple */
    TCI_WORK_MOST = 1 << 26, /* bytes of work memory that a kernel may ask for */
    TCI_WORK_OPERANDS = 32,  /* operands of a kernel that asks for some, at most */
    TCI_MACHINE_FEW = 4,     /* threads that CPU code is made for, */
    TCI_MACHINE_MANY = 16,   /* and from half as many processors on */
    TCI_MATRIX_ALIGN = 8,    /* halves between rows of what a matrix unit reads: a multiple */
    TCI_MATRIX_ROWS = 8,     /* least sizes of a product that is worth a matrix unit */
    TCI_MATRIX_FEW = 2,      /* or so few, of a plain product */
    TCI_MATRIX_COLUMNS = 16,
    TCI_MATRIX_SINGLE = 32, /* rows and columns of a product of f32: fewer wait for memory */
    TCI_MATRIX_DEPTH = 8,
    TCI_MATRIX_WHOLE = 32, /* a CPU's unit takes multiples of it, in every size */
    TCI_MATRIX_FLOPS = 1 << 21,
    TCI_SCORES_ROWS = 4,      /* from which a product of bf16 is packed as pairs in each run */
    TCI_GATHER_THREADS = 256, /* of a block that makes tiles of a contraction (loop/simt_gemm.c) */
    TCI_GATHER_SIDE = 32,     /* least rows and columns, and least products, of one that has them */
    TCI_GATHER_DEPTH = 16,
    TCI_GATHER_FEW = 2,        /* or so few of one side: of rows whatever else there is, where the
                                * columns' factor is contiguous along products */
    TCI_PER_POINT_SHORT = 128, /* columns; below it a thread per point (loop/thread_per_point.c) */
    TCI_WINDOW_FEW = 32,       /* filter taps that one thread sums (loop/simt_short_reduction.c) */
    TCI_WINDOW_CHAIN = 512     /* and of a gradient of filters */
};

/* Of GPUs, as a kind of machine. Sums depend on them, so they are the same on every one of that
 * kind, however many processors it has. */
enum {
    TCI_CLASS_PIECES = 1056,    /* of a large sum, at most: no fewer than keep any device busy */
    TCI_CLASS_PIECE_ROW = 4096, /* least elements of a row's piece, */
    TCI_CLASS_LONG_ROW = 2 * TCI_CLASS_PIECE_ROW, /* and of a row that is cut into several */
    TCI_CLASS_THREADS = 512,                      /* of the block whose lanes a row has, at most, */
    TCI_CLASS_THREAD_BYTES = 16,                  /* and of the values that one of them holds */
    TCI_CLASS_LINES = 8,       /* of a row, from which one block is too long at them, */
    TCI_CLASS_LINE = 1024,     /* if they are shorter: few of its threads are busy with each */
    TCI_CLASS_ROW_VECTORS = 16 /* lanes of a row that registers hold, over all that is loaded */
};

typedef struct tci_machine {
    int vector_bytes; /* of a vector register, or of the lanes one thread holds; 0: scalar code */
    /* 0: a task is run by one thread. Else by a block of up to this many (a power of two), which
     * together hold one vector: thread i has lanes [i * q, (i + 1) * q), q of vector_bytes. */
    int block_threads;
    bool thread_scratch;  /* each thread is given work memory (tci_launch.work_bytes), */
    bool in_order_blocks; /* or, of blocks, which begin in order, each step memory of its own */
    /* processors that have a matrix unit (loop/wgmma_gemm.h), 0: none; contractions may be made for
     * it */
    int matrix_units;
    int int_points;        /* products of integers: tc_backend_target.int_points */
    bool has_pairs;        /* contractions of bf16 may be made of pairs (kernel/ir.h) */
    bool unit_bytes;       /* a CPU's matrix unit takes bytes too */
    int warp_unit;         /* blocks: what their warps multiply at once (bits of tc_warp_unit) */
    bool no_shared_memory; /* blocks: their threads have no memory to share and exchange nothing */
    /* only numeric classes that all machines and the interpreter share, and that are the same for
     * any sizes (plan/reduction_order.c) */
    bool reproducible;
    bool groups_launches; /* one launch may be of several kernels (plan/horizontal_fusion.c) */
    bool loops;           /* and of a whole in-kernel loop (plan/loop_in_kernel.c) */
    bool no_fusion;       /* each op that computes has a kernel of its own */
    tc_remat remat;       /* plans: tc_options.remat */
    int64_t memory_limit; /* plans: tc_options.memory_limit, */
    bool no_prepack;      /* and whether no weights are copied into panels, to keep within it */
    bool is_fast;         /* TC_MATH_FAST (class TF32, plan/bf16x3.c, plan/winograd.c) */
    const char *routes;   /* plans: text of the file of forced schedules, which may name routes of
                         * contractions (plan/contraction_route.c); NULL: none */
    const char *measured; /* lines of the same form, of routes that were measured; NULL: none */
    tc_machine facts;
} tci_machine;

/* With careful values for the facts that are not known. */
TCI_FN tci_machine tci_machine_complete(tci_machine machine);
/* For how many threads CPU code is made, which any number may run. There are two such
 * numbers, so that machines of about as many processors share their code. */
TCI_FN int tci_machine_threads(const tci_machine *machine);
/* The part of the facts that generated code may depend on, as text for keys. */
TCI_FN void tci_machine_text(const tci_machine *machine, char *text, size_t n);

#endif
