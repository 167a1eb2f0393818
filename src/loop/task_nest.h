/* loop/task_nest.h - declares the task decomposition around a schedule: tasks, units, and the
 * coordinates of a unit. */
#ifndef TCI_LOOP_TASK_NEST_H
#define TCI_LOOP_TASK_NEST_H

#include "schedule_kind.h"

/* The outer domain is cut into units: one point of the outer axes that are neither vectorized nor
 * tiled, times one chunk of the vector axis, times one group of row tiles. A task is `grain`
 * neighbouring units; on a GPU a task is a block, of one unit or of several side by side. */
typedef struct tci_nest {
    const tci_query *a;
    tci_build *b;
    int vec_axis, row_axis; /* -1 none: not fixed by a unit, */
    const bool *tiled;      /* nor are these outer axes; NULL: no others */
    tci_dim n_vec, n_tiles; /* elements along the one, tiles along the other */
    int64_t chunk;          /* elements */
    tci_dim group;          /* tiles; 0: as many as give enough units */
    int64_t joined;         /* chunks that a unit takes in where a task has them all */
    int64_t share;          /* > 0: units are row tiles, and tasks are multiples of it */
    int rows;               /* units of a block, where there are several: its rows */
    bool chunks_first;      /* neighbouring units are chunks, not groups */
    int64_t block;          /* > 0: of the last other axis, which it divides, this many positions */
    int within;             /* are inside this other axis, and blocks outside it */
    bool fence;             /* stores that bypass the caches end the task */
    /* derived */
    tci_dim n_chunks, n_groups, points, units;
    int *others;
    int n_others;
    int64_t grain;
} tci_nest;

/* The coordinates of a unit; begin and end: the task's units, index expressions. With shares `unit`
 * counts groups. */
typedef struct tci_nest_at {
    tci_lin unit, chunk, group;
    int begin, end;
} tci_nest_at;
typedef void (*tci_nest_body)(tci_nest *n, void *arg, const tci_nest_at *at);

/* One unit with nothing tiled; the caller sets what it tiles. */
TCI_FN tci_nest tci_nest_make(const tci_query *a, tci_build *b);
/* A chunk of `step` elements, or a multiple that still gives enough units, at least `least`. */
TCI_FN void tci_nest_cut(tci_nest *n, int64_t step, int64_t least);
/* The loops; of the launch, n_tasks and task_ns. */
TCI_FN void tci_nest_run(tci_nest *n, tci_nest_body body, void *arg, tci_launch *launch);

#endif
