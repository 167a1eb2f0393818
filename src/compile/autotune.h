/* compile/autotune.h - declares autotuning: chooses schedules and contraction routes by measurement
 * in addition to the cost model (tc_options.tune_ms). */
#ifndef TCI_COMPILE_AUTOTUNE_H
#define TCI_COMPILE_AUTOTUNE_H

#include "../base/temp_dir.h"
#include "../plan/plan.h"
#include "jit.h"

enum {
    TCI_TUNE_KERNELS = 12,   /* of a compile that are measured, at most */
    TCI_TUNE_EACH = 8,       /* schedules of each */
    TCI_TUNE_LEAST_MS = 100, /* without which no compiler is started */
    TCI_TUNE_TRIALS = TCI_TUNE_KERNELS * TCI_TUNE_EACH
};
static const double tci_tune_better = 0.97; /* of the model's choice, to be taken instead */

/* One schedule of one kernel. */
typedef struct tci_trial {
    const tci_kernel *kernel;
    tci_jit_kernel *unit; /* whose schedule is chosen, and */
    const char *text;     /* the schedule; NULL: the kernel's time alone is asked for */
    char *symbol;
    tci_loop *loop;
    tci_launch launch;
    double cost_ns; /* by the model, all tasks by one thread */
    double best_ns; /* of one call, in the best round; 0: it did not run */
    void *function;
} tci_trial;

typedef struct tci_tuning {
    tci_jit *j;
    int64_t deadline; /* tci_os_now_ns */
    tci_trial trials[TCI_TUNE_TRIALS];
    int n;
    tci_str source;
    void **slots; /* room for the operands of any of the kernels, and two words */
    int64_t *literals;
    tci_workdir dir;
    tci_str output, object;
    tci_module *module;
} tci_tuning;

TCI_FN tci_tuning *tci_tune_begin(tci_jit *j, int64_t deadline);
TCI_FN int64_t tci_tune_left_ms(const tci_tuning *t);
/* True if the kernel's sizes are known, it is no text of the user's and no in-kernel loop, its
 * memory is not too much, and it needs none that a step of a device has for itself. */
TCI_FN bool tci_tune_can_run(const tci_kernel *k);
/* Another trial, of that kernel; its loop and launch are the caller's to set. Trials of one kernel
 * are neighbours, and there are at most TCI_TUNE_TRIALS. */
TCI_FN tci_trial *tci_tune_trial(tci_tuning *t, const tci_kernel *k);
/* Compiles all trials as one source and sets best_ns of those that ran before the deadline. */
TCI_FN void tci_tune_run_all(tci_tuning *t);

/* Measures the cheapest schedules of the kernels that are about to be compiled, the costliest
 * first, until tune_ms are over, and sets `measured` and `measured_note` of those where it could.
 * The compiler is known. Whatever fails leaves the model's choice. Longjmps when scratch runs
 * out. */
TCI_FN void tci_tune(tci_jit *j);

/* compile/autotune_routes.c. Plans a program with measured routes of contractions: lines of the
 * form of a file of forced schedules, NULL: none. */
typedef struct tci_tune_planner {
    tci_plan *(*plan)(void *arg, const char *measured);
    void *arg;
} tci_tune_planner;
/* p, the plan of the model's choices, or one with the routes that were faster when measured. At
 * most half of tune_ms is spent; the rest is for schedules. Longjmps when scratch runs out. */
TCI_FN tci_plan *tci_tune_routes(tci_jit *j, tci_plan *p, const tci_tune_planner *planner);

#endif
