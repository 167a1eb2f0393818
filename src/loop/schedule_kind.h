/* loop/schedule_kind.h - defines schedule kinds and their tunable parameters: a schedule is a kind
 * and its parameter values.
 *
 * A kind is one way to run a kernel. It decides whether it fits a kernel on a machine with given
 * parameter values (arbitrary values: they may come from a file), lists candidate values, estimates
 * their cost on the machine, and builds the loops. No schedule changes a result, so every one that
 * fits is correct, and only its cost decides (loop/schedule.c). */
#ifndef TCI_LOOP_SCHEDULE_KIND_H
#define TCI_LOOP_SCHEDULE_KIND_H

#include "../kernel/window_overlap.h"
#include "lower_expr.h"
#include "schedule.h"

enum {
    TCI_FORM_NUMBERS = 4,    /* of one schedule, at most */
    TCI_FORM_CANDIDATES = 8, /* of one form, at most */
    TCI_FORM_CUTS = 12
};

/* A kernel on a machine, and what several forms ask of the two. Sizes are typical ones. */
struct tci_query {
    tci_scratch *s;
    const tci_kernel *k;
    tci_machine machine;     /* complete */
    int lanes, threads;      /* that suit the kernel's vector axis, */
    int rows;                /* and this many vectors a block of threads, of reductions */
    int widest;              /* bytes of the widest value in vectors */
    bool is_map;             /* one MAP stage without inner axes */
    int64_t flops;           /* of a point, over all stages */
    int vec_axis;            /* -1: no vectors along an outer axis */
    int row_axis;            /* the other axis that a tile has: -1 none */
    bool turns;              /* is_map: loads along row_axis can be transposed in registers */
    tci_window_overlap skew; /* of neighbours along row_axis and the last inner axis */
    tci_dim n_vec;
    tci_dim cuts[TCI_FORM_CUTS + 1];
    int n_cuts;        /* of the vector axis, where guards change */
    double operations; /* of the whole kernel, that its arithmetic begins */
    /* For the whole kernel, as the model has it: of one thread; of the device, where blocks are. */
    double ns;
    double tasks_ns; /* by which tasks are cut: sums and products count apart */
};

typedef struct tci_form tci_form;
struct tci_sched {
    const tci_form *form;
    int64_t n[TCI_FORM_NUMBERS];
    double cost_ns;
    bool counted; /* cost_ns is no less than its instructions take */
};

struct tci_form {
    const char *name;
    const char *numbers[TCI_FORM_NUMBERS]; /* their names; NULL: no more */
    bool (*fits)(const tci_query *a, const int64_t *n);
    /* Writes those worth weighing, what has served best first; fits says no of some. NULL where
     * there are no numbers. */
    int (*candidates)(const tci_query *a, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS]);
    double (*cost_ns)(const tci_query *a, const int64_t *n); /* from when it begins */
    /* Lanes, threads, all statements; of *launch n_tasks and task_ns. */
    void (*emit)(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch);
    /* Text of the note after the lanes: ", tile 4x2". */
    void (*note)(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out);
};

/* More than one of something, or perhaps so. */
static inline bool tci_query_many(tci_dim n)
{
    return !tci_dim_is_known(n) || !tci_dim_le(n, 1);
}

/* loop/kernel_facts.c */
TCI_FN tci_query *tci_query_make(tci_scratch *s, const tci_kernel *k, tci_machine machine);
/* A matrix unit makes the kernel's sums: only the forms for that fit. */
TCI_FN bool tci_query_on_unit(const tci_query *a);
/* Flops per cycle of the matrix unit: twice as many for bytes as for f16 and bf16. */
TCI_FN double tci_query_unit_flops(const tci_query *a);
/* True if the kernel is attention on SIMT threads: only the form of loop/flash_attention.h fits. */
TCI_FN bool tci_query_is_flash(const tci_query *a);
/* Vectors of this many lanes along the vector axis, about. */
TCI_FN int64_t tci_query_vectors(const tci_query *a, int64_t lanes);
/* Lanes and threads that a machine can be given for the vector axis. */
TCI_FN bool tci_query_lanes_fit(const tci_query *a, int64_t lanes, int64_t threads);
/* Number of vectors of this many threads in a block. */
TCI_FN int tci_query_rows(const tci_query *a, int threads);
/* A power of two from lo to hi. */
TCI_FN bool tci_query_is_power(int64_t n, int64_t lo, int64_t hi);
/* True if the kernel's operands exceed the caches of one processor. */
TCI_FN bool tci_query_is_far(const tci_query *a);
/* The time of the model where computing and moving take this many times longer than they could. */
TCI_FN double tci_query_ns(const tci_query *a, double flops, double bytes);
/* True if the roofline may be far off, so that instructions are counted (loop/cycle_estimate.h):
 * of a kernel for a processor, without contractions, that has several stages, which may evaluate a
 * value each, long chains of operations, or accesses that are neither one element nor neighbours
 * for all lanes of a vector (guards, strides, divisions, loaded indices, an axis shorter than a
 * vector). */
TCI_FN bool tci_query_counts(const tci_query *a);
/* Roofline: lower bound of all schedules on the whole machine. All arithmetic at its peak, or all
 * bytes at the bandwidth of the memory level that holds them, whichever is slower; plus the launch.
 */
TCI_FN double tci_query_arithmetic_ns(const tci_query *a);
TCI_FN double tci_query_memory_ns(const tci_query *a);
TCI_FN double tci_query_least_ns(const tci_query *a);
/* An output too large for the caches, written in long contiguous runs along `axis` (VEC_INNER: its
 * stage's last), whose vectors of this many lanes may bypass them: NULL none. They are aligned, so
 * there is only one. */
TCI_FN const tci_kstore *tci_query_stream(const tci_query *a, int axis, int lanes);
/* The same along the vector axis for an output whose lines are written whole wherever a vector
 * begins one, however short the run: all its rows begin alike in their lines. */
TCI_FN const tci_kstore *tci_query_stream_lines(const tci_query *a, int lanes);

/* loop/schedule.c */
enum {
    TCI_SCHED_MOST = 24, /* candidates of a kernel */
    TCI_SCHED_SHOWN = 4  /* of those that were not taken, in tc_explain */
};
/* All that fit, the cheapest first, `most` at most; returns how many. One at least. */
TCI_FN int tci_sched_candidates(const tci_query *a, tci_sched *list, int most);
TCI_FN bool tci_sched_fits(const tci_query *a, const tci_sched *s);
/* The text of a schedule, and back: false, and *why says why. */
TCI_FN void tci_sched_print(tci_str *out, const tci_sched *s);
TCI_FN bool tci_sched_parse(const char *text, tci_sched *s, tci_str *why);
/* A time as "12 ns", "3.4 us" or "5.6 ms". */
TCI_FN void tci_sched_time(tci_str *out, double ns);
/* The loops of a schedule that fits; fills *launch but for `why`. */
TCI_FN tci_loop *tci_sched_build(const tci_query *a, const tci_sched *s, tci_launch *launch);
/* launch.why, for s out of the list of candidates. In scratch. */
TCI_FN const char *tci_sched_why(const tci_query *a, const tci_sched *s, const tci_sched *list,
                                 int n);

/* loop/grouped_launch.c: the loops of a merged kernel's members. */
TCI_FN tci_loop *tci_grouped_schedule(tci_scratch *s, const tci_kernel *k, tci_machine machine,
                                      tci_launch *launch);
/* loop/grouped_launch.c: those of an in-kernel loop's members. */
TCI_FN tci_loop *tci_lfloop_schedule(tci_scratch *s, const tci_kernel *k, tci_machine machine,
                                     tci_launch *launch);
/* loop/row_schedule.c: arrays for expensive values that two stages along one row compute. */
TCI_FN void tci_rows_keep(const tci_query *a, tci_build *b);
/* loop/pointwise_schedules.c, tile_schedules.c, back_to_back_gemm.c, row_schedule.c: each ends with
 * NULL. Kinds of GPUs: loop/gpu_schedules.h. */
TCI_FN const tci_form *const *tci_map_forms(void);
TCI_FN const tci_form *const *tci_tile_forms(void);
TCI_FN const tci_form *const *tci_b2b_forms(void);
TCI_FN const tci_form *const *tci_rows_forms(void);

#endif
