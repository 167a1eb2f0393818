/* kernel/machine.h - what plans and schedules must know of the machine, and nothing else. */
#ifndef TCI_KERNEL_MACHINE_H
#define TCI_KERNEL_MACHINE_H

#include <stdbool.h>

enum {
    TCI_WORK_MOST = 1 << 26,  /* bytes of work memory that a kernel may ask for */
    TCI_WORK_OPERANDS = 32    /* operands of a kernel that asks for some, at most */
};

typedef struct tci_machine {
    int vector_bytes; /* of a vector register, or of the lanes one thread holds; 0: scalar code */
    /* 0: a task is run by one thread. Else by a block of up to so many (a power of two), which
     * together hold one vector: thread i has lanes [i * q, (i + 1) * q), q of vector_bytes. */
    int block_threads;
    bool has_work;    /* each thread is given work memory (tci_launch.work_bytes) */
} tci_machine;

#endif
