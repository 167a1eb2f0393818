/* plan/mincut.h - declares the minimum cut between a source and a sink, found by maximum flow. */
#ifndef TCI_PLAN_MINCUT_H
#define TCI_PLAN_MINCUT_H

#include "../base/alloc.h"

#define TCI_MINCUT_NEVER (INT64_MAX / 4) /* the cost of what is in no cut */

typedef struct tci_mincut_edge {
    int32_t to, next; /* next: of those from the same end */
    int64_t left;     /* of its capacity; edge i ^ 1 is the way back */
} tci_mincut_edge;
typedef struct tci_mincut {
    tci_scratch *s;
    int n; /* vertices; each is two ends, where ways come in and go out */
    tci_mincut_edge *edges;
    int n_edges, cap_edges;
    int32_t *first;      /* per end: its first edge, -1: none */
    int32_t *level, *at; /* while solving */
    int32_t *queue;
} tci_mincut;

/* Vertices 0 .. n - 1, then the source n and the sink n + 1; all cost TCI_MINCUT_NEVER. */
TCI_FN tci_mincut *tci_mincut_make(tci_scratch *s, int n);
TCI_FN void tci_mincut_cost(tci_mincut *c, int vertex, int64_t cost);
TCI_FN void tci_mincut_join(tci_mincut *c, int from, int to, int64_t cost);
/* False: that would take too long, and there is no cut. */
TCI_FN bool tci_mincut_solve(tci_mincut *c);
/* On the source's side, or in the cut itself. */
TCI_FN bool tci_mincut_is_before(const tci_mincut *c, int vertex);
TCI_FN bool tci_mincut_is_in(const tci_mincut *c, int vertex);

#endif
