/* run/comm_cost_model.h - declares the alpha-beta cost model of collectives: predicted time of a
 * program on many ranks. */
#ifndef TCI_RUN_COMM_COST_MODEL_H
#define TCI_RUN_COMM_COST_MODEL_H

#include "runtime_structs.h"

typedef struct tci_comm_model {
    double compute_ns; /* of kernels, one after the other */
    double comm_ns;    /* of collectives, one after the other */
    double exposed_ns; /* in which kernels wait for collectives, or lose by them */
    double slowed_ns;  /* of that, what they lose */
    double step_ns;    /* of a run */
    double bytes;      /* that a rank gives to collectives */
    int n, n_groups;   /* collectives; operations of one or several that begin together */
} tci_comm_model;

/* machine NULL: the links of each communicator. ranks: of communicator `of`, of all if that is 0;
 * 0: as they are. False: out of memory. */
TCI_FN bool tci_comm_model_of(const tc_program *f, const tc_cluster *machine, int64_t of, int ranks,
                              tci_comm_model *m);
/* A line of tc_explain, of a program with collectives. */
TCI_FN void tci_comm_model_text(tci_str *out, const tc_program *f);

#endif
