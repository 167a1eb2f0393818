/* plan/mincut.c - computes a minimum cut by Dinic's algorithm (plan/mincut.h). Each phase finds
 * the distances from the source and saturates all shortest paths. A path may be as long as a
 * program, so nothing recurses. */
#include "mincut.h"

#include <string.h>

enum { TCI_MINCUT_PHASES = 200 }; /* each has longer paths than those before */

static int tci_mincut_in(int vertex)
{
    return 2 * vertex;
}

static int tci_mincut_out(int vertex)
{
    return 2 * vertex + 1;
}

static void tci_mincut_add(tci_mincut *c, int from, int to, int64_t capacity)
{
    tci_mincut_edge forth = {to, c->first[from], capacity}, back = {from, c->first[to], 0};
    c->first[from] = c->n_edges;
    TCI_PUSH(c->s, c->edges, c->n_edges, c->cap_edges, forth);
    c->first[to] = c->n_edges;
    TCI_PUSH(c->s, c->edges, c->n_edges, c->cap_edges, back);
}

TCI_FN tci_mincut *tci_mincut_make(tci_scratch *s, int n)
{
    tci_mincut *c = TCI_NEW(s, tci_mincut);
    int n_ends = 2 * (n + 2);
    c->s = s;
    c->n = n;
    c->first = TCI_NEW_ARRAY(s, int32_t, n_ends);
    c->level = TCI_NEW_ARRAY(s, int32_t, n_ends);
    c->at = TCI_NEW_ARRAY(s, int32_t, n_ends);
    c->queue = TCI_NEW_ARRAY(s, int32_t, n_ends);
    memset(c->first, -1, sizeof(*c->first) * (size_t)n_ends);
    for (int v = 0; v < n + 2; v++) { /* edge 2 * v is the vertex itself */
        tci_mincut_add(c, tci_mincut_in(v), tci_mincut_out(v), TCI_MINCUT_NEVER);
    }
    return c;
}

TCI_FN void tci_mincut_cost(tci_mincut *c, int vertex, int64_t cost)
{
    c->edges[2 * vertex].left = cost;
}

TCI_FN void tci_mincut_join(tci_mincut *c, int from, int to, int64_t cost)
{
    tci_mincut_add(c, tci_mincut_out(from), tci_mincut_in(to), cost);
}

/* False: the sink is not reached any more. */
static bool tci_mincut_find_levels(tci_mincut *c, int from, int to)
{
    int n = 0;
    memset(c->level, -1, sizeof(*c->level) * 2 * (size_t)(c->n + 2));
    c->level[from] = 0;
    c->queue[n++] = from;
    for (int i = 0; i < n; i++) {
        int u = c->queue[i];
        for (int32_t e = c->first[u]; e >= 0; e = c->edges[e].next) {
            int v = c->edges[e].to;
            if (c->edges[e].left > 0 && c->level[v] < 0) {
                c->level[v] = c->level[u] + 1;
                c->queue[n++] = v;
            }
        }
    }
    return c->level[to] >= 0;
}

/* Fills the way of n edges in the queue; returns how many of them are before the first full one. */
static int tci_mincut_fill(tci_mincut *c, int n)
{
    int64_t most = TCI_MINCUT_NEVER;
    int full = n;
    for (int i = 0; i < n; i++) {
        most = TCI_MIN(most, c->edges[c->queue[i]].left);
    }
    for (int i = n - 1; i >= 0; i--) {
        c->edges[c->queue[i]].left -= most;
        c->edges[c->queue[i] ^ 1].left += most;
        full = c->edges[c->queue[i]].left == 0 ? i : full;
    }
    return full;
}

/* Fills ways that go up by a level with each edge. The queue holds the edges of the way at hand. */
static void tci_mincut_fill_ways(tci_mincut *c, int from, int to)
{
    int n = 0;
    memcpy(c->at, c->first, sizeof(*c->at) * 2 * (size_t)(c->n + 2));
    for (int u = from;;) {
        int32_t e = c->at[u];
        if (u == to) {
            n = tci_mincut_fill(c, n);
            u = c->edges[c->queue[n] ^ 1].to;
        } else if (e < 0 && n == 0) {
            return;
        } else if (e < 0) { /* a dead end */
            u = c->edges[c->queue[--n] ^ 1].to;
            c->at[u] = c->edges[c->at[u]].next;
        } else if (c->edges[e].left > 0 && c->level[c->edges[e].to] == c->level[u] + 1) {
            c->queue[n++] = e;
            u = c->edges[e].to;
        } else {
            c->at[u] = c->edges[e].next;
        }
    }
}

TCI_FN bool tci_mincut_solve(tci_mincut *c)
{
    int from = tci_mincut_out(c->n), to = tci_mincut_in(c->n + 1);
    for (int phase = 0; phase < TCI_MINCUT_PHASES; phase++) {
        if (!tci_mincut_find_levels(c, from, to)) {
            return true; /* levels say what is before the cut */
        }
        tci_mincut_fill_ways(c, from, to);
    }
    return false;
}

TCI_FN bool tci_mincut_is_before(const tci_mincut *c, int vertex)
{
    return c->level[tci_mincut_in(vertex)] >= 0;
}

TCI_FN bool tci_mincut_is_in(const tci_mincut *c, int vertex)
{
    return tci_mincut_is_before(c, vertex) && c->level[tci_mincut_out(vertex)] < 0;
}
