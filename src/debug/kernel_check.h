/* debug/kernel_check.h - options.check: compares each kernel with the interpreter on the same
 * operands. */
#ifndef TCI_DEBUG_KERNEL_CHECK_H
#define TCI_DEBUG_KERNEL_CHECK_H

#include "../run/runtime_structs.h"

/* Additional data of a checked kernel's code, made while the plan exists. */
struct tci_checker_info {
    int64_t *bytes;   /* per operand: of the range that it reads or writes */
    int8_t *dtypes;   /* per operand */
    bool loose;       /* its sums have an order that the interpreter does not share */
    bool infinite;    /* it has infinite constants */
    size_t workspace; /* of the interpreter */
};

/* The first failure found. */
typedef struct tci_checker_found {
    int kind; /* one of TC_CHECK_...; 0: nothing */
    int step;
    int64_t element;
    char what[400]; /* "element 5 of the result of tc_mul at net.c:40 (f32 [8]) is 1.25, ..." */
} tci_checker_found;

/* Fills k->check, and k->interp where bits are compared. Memory is the code's; false: there is
 * none. */
TCI_FN bool tci_checker_prepare(tci_code *c, tci_code_kernel *k, const tci_kernel *from, int check);
/* Before a run: where the inputs are, for a case that is written (debug/minify.c). Copies stay with
 * the call until _end. TC_ERR_CHECK: a buffer cannot be read or written (c->last);
 * TC_ERR_MEMORY. */
TCI_FN tc_status tci_checker_begin(tc_call *c, const tci_run *r);
TCI_FN void tci_checker_end(tc_call *c);
/* Launches a step of the call, on whatever it runs on. */
typedef tc_status (*tci_checker_launch_step)(tc_call *c, int step);
/* Launches [begin, end) one after the other. TC_ERR_CHECK: c->check_kind and _step say what failed,
 * and c->last in words. */
TCI_FN tc_status tci_checker_steps(tc_call *c, int begin, int end, tci_checker_launch_step launch);
/* True for an op that may call tci_checker_fail (debug/debug_ops.c). */
TCI_FN bool tci_checker_asserts(const tc_custom_op *op);
/* A user condition did not hold in a step of the run on this thread (debug/debug_ops.c);
 */
TCI_FN void tci_checker_fail(const char *text);
/* true if one did not since the last call: text says which. */
TCI_FN bool tci_checker_failed(char *text, size_t room);
/* "bits,nan" or a number as flags; *odd: the first word that is none, or NULL. */
TCI_FN int tci_checker_flags(const char *text, const char **odd);

#endif
