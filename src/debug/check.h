/* debug/check.h - options.check: each kernel next to the interpreter, on the same operands. */
#ifndef TCI_DEBUG_CHECK_H
#define TCI_DEBUG_CHECK_H

#include "../run/context.h"

/* What a checked kernel's code has in addition; made while the plan exists. */
struct tci_checker_info {
    int64_t *bytes;       /* per operand: of the stretch that it reads or writes */
    int8_t *dtypes;       /* per operand */
    bool loose;           /* its sums have an order that the interpreter does not share */
    bool infinite;        /* it has infinite constants */
    size_t workspace;     /* of the interpreter */
};

/* What was found first. */
typedef struct tci_checker_found {
    int kind;             /* one of TC_CHECK_...; 0: nothing */
    int step;
    int64_t element;
    char what[200];       /* "element 5 of operand 2 is 1.25, ..." */
} tci_checker_found;

/* Fills k->check, and k->interp where bits are compared. Memory is the code's; false: there is
 * none. */
TCI_FN bool tci_checker_prepare(tci_code *c, tci_code_kernel *k, const tci_kernel *from, int check);
/* Around a run: the inputs as they were before it, for a case that is written. False: no memory. */
TCI_FN bool tci_checker_begin(tc_call *c, const tci_run *r);
TCI_FN void tci_checker_end(tc_call *c);
/* Launches [begin, end) one after the other. */
TCI_FN tc_status tci_checker_steps(tc_call *c, int begin, int end);
/* The program could not be made, with that status: a case is written where options.check is set.
 * Adds to `text` what. */
TCI_FN void tci_checker_compile(const tci_request *r, const tc_options *o, tc_status status,
                              tci_str *text);
/* "bits,nan" or a number as flags; *odd: the first word that is none, or NULL. */
TCI_FN int tci_checker_flags(const char *text, const char **odd);

#endif
