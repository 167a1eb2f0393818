/* kernel/machine.h - what plans and schedules must know of the machine, and nothing else. */
#ifndef TCI_KERNEL_MACHINE_H
#define TCI_KERNEL_MACHINE_H

#include <stdbool.h>

enum {
    TCI_WORK_MOST = 1 << 26,  /* bytes of work memory that a kernel may ask for */
    TCI_WORK_OPERANDS = 32,   /* operands of a kernel that asks for some, at most */
    TCI_MATRIX_ALIGN = 8,     /* elements between rows of what a matrix unit reads: a multiple */
    TCI_MATRIX_ROWS = 8,      /* least sizes of a product that is worth a matrix unit */
    TCI_MATRIX_COLUMNS = 16,
    TCI_MATRIX_DEPTH = 32,
    TCI_MATRIX_WHOLE = 32,    /* a CPU's unit takes multiples of it, in every size */
    TCI_MATRIX_FLOPS = 1 << 21,
    TCI_GATHER_THREADS = 256, /* of a block that makes tiles of any contraction (loop/product.c) */
    TCI_GATHER_SIDE = 32,     /* least rows and columns, and least products, of one that has them */
    TCI_GATHER_DEPTH = 16
};

typedef struct tci_machine {
    int vector_bytes; /* of a vector register, or of the lanes one thread holds; 0: scalar code */
    /* 0: a task is run by one thread. Else by a block of up to so many (a power of two), which
     * together hold one vector: thread i has lanes [i * q, (i + 1) * q), q of vector_bytes. */
    int block_threads;
    bool has_work;    /* each thread is given work memory (tci_launch.work_bytes) */
    /* processors that have a matrix unit (loop/matrix.h), 0: none; contractions may be made for
     * it */
    int matrix_units;
} tci_machine;

#endif
