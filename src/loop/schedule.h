/* loop/schedule.h - declares the scheduler: selects the cheapest schedule of a kernel for a machine
 * by the cost model (loop/schedule.c), and lowers the kernel with it to loop IR (loop/ir.h). */
#ifndef TCI_LOOP_SCHEDULE_H
#define TCI_LOOP_SCHEDULE_H

#include "../kernel/ir.h"
#include "../kernel/machine.h"

typedef struct tci_loop tci_loop;   /* loop/ir.h */
typedef struct tci_sched tci_sched; /* a schedule: loop/schedule_kind.h */
typedef struct tci_query tci_query; /* a kernel on a machine: loop/schedule_kind.h */

/* Launch parameters of the chosen schedule. */
typedef struct tci_launch {
    tci_dim n_tasks; /* independent tasks; see tci_kernel_fn */
    double task_ns;  /* estimated time of one task, for choosing serial or threads, */
    double call_ns;  /* and of what each call does before its first one */
    /* Memory that each thread gets, 64-byte aligned, as one more operand. Of blocks it is the
     * step's: zero before its first run in a call, and no other step's, so that the next run finds
     * what one left (flags, run/bind_operands.c). */
    tci_dim work_bytes;
    tci_dim *dims;
    int n_dims;      /* scratch: whose values are words after the literals */
    int lanes;       /* for explain */
    char note[96];   /* one line for explain: "vector 16 x f32, tile 4x2, stream" */
    const char *why; /* scratch: the schedule's text and cost, the best, the runners-up */
} tci_launch;

/* The cheapest schedule by the model. Never fails but by longjmp. */
TCI_FN tci_loop *tci_loop_schedule(tci_scratch *s, const tci_kernel *k, tci_machine machine,
                                   tci_launch *launch);
/* The loop IR for the schedule text `forced` (NULL: the cheapest). If that is not a schedule of
 * this kernel on this machine, *why says so, and the cheapest is taken. */
TCI_FN tci_loop *tci_loop_schedule_as(tci_scratch *s, const tci_kernel *k, tci_machine machine,
                                      const char *forced, tci_str *why, tci_launch *launch);
/* Price of a kernel by the cost model in ns, without its launch: for one thread; on a device, for
 * all its blocks. */
typedef struct tci_price {
    double ns;      /* the cheapest schedule */
    double flop_ns; /* one operation, and */
    double move_ns; /* all its bytes, at the rates of the machine */
} tci_price;
TCI_FN tci_price tci_loop_price(tci_scratch *s, const tci_kernel *k, tci_machine machine);
/* loop/grouped_launch.c: the machine for which member k of an in-kernel loop is scheduled. */
TCI_FN tci_machine tci_loop_member_machine(const tci_kernel *k, tci_machine machine);
TCI_FN void tci_loop_print(tci_str *out, const tci_loop *l);
TCI_FN void tci_loop_verify(tci_scratch *s, const tci_loop *l);

#endif
