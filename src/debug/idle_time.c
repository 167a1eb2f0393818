/* debug/idle_time.c - computes the idle share of a profile: the time during which no kernel ran on
 * a track.
 *
 * In: an ended profile. Out: for each track with kernels (a thread of the host, a queue of a
 * device) the time from the begin of its first kernel to the end of its last, and how much of it
 * had no kernel: inside runs, in compiles, and outside of both.
 *
 * Design: begins and ends of kernels, runs and phases of compiles are points; sorted by time
 * they are swept once with a count of the spans that are open. A collective counts as a kernel. */
#include "profile.h"

#include <stdlib.h>

#include "../base/alloc.h"

#ifndef TC_NO_DEBUG

typedef enum tci_idle_span {
    TCI_IDLE_KERNEL,
    TCI_IDLE_RUN,
    TCI_IDLE_COMPILE,
    TCI_IDLE_SPANS,
    TCI_IDLE_NONE
} tci_idle_span;

typedef struct tci_idle_point {
    int64_t at_ns;
    int8_t span, opens; /* opens: 1, or -1 where it ends */
} tci_idle_point;

/* Span of a record on the track: for a thread, its own records; for a device, records of any
 * thread. */
static tci_idle_span tci_idle_span_of(const tci_idle *row, const tci_record *r)
{
    switch ((tci_record_kind)r->kind) {
    case TCI_RECORD_COMM: return TCI_IDLE_KERNEL;
    case TCI_RECORD_RUN: return TCI_IDLE_RUN;
    case TCI_RECORD_PHASE: return TCI_IDLE_COMPILE;
    case TCI_RECORD_KERNEL: return row->is_device ? TCI_IDLE_NONE : TCI_IDLE_KERNEL;
    case TCI_RECORD_DEVICE:
    case TCI_RECORD_GRAPH:
        return row->is_device && r->track == row->track + 1 ? TCI_IDLE_KERNEL : TCI_IDLE_NONE;
    case TCI_RECORD_PART:
    case TCI_RECORD_LAUNCH:
    case TCI_RECORD_SHARE:
    case TCI_RECORD_MARK:
    case TCI_RECORD_STEP:
    case TCI_RECORD_KINDS: break;
    }
    return TCI_IDLE_NONE;
}

/* The points of a track go to `to`, where that is not NULL; how many there are. *kernels: whether
 * the track has kernels of its own. */
static int64_t tci_idle_points(const tc_profile *p, const tci_idle *row, tci_idle_point *to,
                               bool *kernels)
{
    int64_t n = 0;
    *kernels = false;
    for (int i = 0; i < p->n_threads; i++) {
        for (int64_t k = 0; k < p->threads[i].n && (row->is_device || row->track == i); k++) {
            const tci_record *r = &p->threads[i].records[k];
            tci_idle_span span = tci_idle_span_of(row, r);
            if (span == TCI_IDLE_NONE) {
                continue;
            }
            *kernels |= span == TCI_IDLE_KERNEL && r->kind != TCI_RECORD_COMM;
            if (to) {
                to[n] = (tci_idle_point){r->begin_ns, (int8_t)span, 1};
                to[n + 1] = (tci_idle_point){r->end_ns, (int8_t)span, -1};
            }
            n += 2;
        }
    }
    return n;
}

static int tci_idle_earlier(const void *a, const void *b)
{
    const tci_idle_point *x = a, *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static void tci_idle_sweep(tci_idle *row, tci_idle_point *points, int64_t n)
{
    int64_t open[TCI_IDLE_SPANS] = {0}, first = INT64_MAX, last = INT64_MIN;
    qsort(points, (size_t)n, sizeof(*points), tci_idle_earlier);
    for (int64_t i = 0; i < n; i++) {
        if (points[i].span == TCI_IDLE_KERNEL) {
            first = TCI_MIN(first, points[i].at_ns);
            last = TCI_MAX(last, points[i].at_ns);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t begin = i ? TCI_MAX(points[i - 1].at_ns, first) : first;
        int64_t ns = TCI_MAX(TCI_MIN(points[i].at_ns, last) - begin, 0);
        int64_t *in = open[TCI_IDLE_KERNEL]    ? &row->busy_ns
                      : open[TCI_IDLE_RUN]     ? &row->in_runs_ns
                      : open[TCI_IDLE_COMPILE] ? &row->in_compiles_ns
                                               : &row->outside_ns;
        *in += ns;
        open[points[i].span] += points[i].opens;
    }
}

/* Adds the row of a track that has kernels. False: no memory. */
static bool tci_idle_track(const tc_profile *p, bool is_device, int track, tci_idle *rows, int *n)
{
    bool kernels;
    tci_idle row = {.is_device = is_device, .track = track};
    int64_t most = tci_idle_points(p, &row, NULL, &kernels);
    if (!kernels) {
        return true;
    }
    tci_idle_point *points = tci_heap_resize(NULL, sizeof(*points) * (size_t)most);
    if (points) {
        (void)tci_idle_points(p, &row, points, &kernels);
        tci_idle_sweep(&row, points, most);
        rows[(*n)++] = row;
    }
    tci_heap_free(points);
    return points != NULL;
}

TCI_FN tci_idle *tci_idle_measure(const tc_profile *p, int *n)
{
    tci_idle *rows = tci_heap_get(sizeof(*rows) * (size_t)(p->n_threads + p->n_tracks + 1));
    bool ok = rows != NULL;
    *n = 0;
    for (int i = 0; i < p->n_threads && ok; i++) {
        ok = tci_idle_track(p, false, i, rows, n);
    }
    for (int i = 0; i < p->n_tracks && ok; i++) {
        ok = tci_idle_track(p, true, i, rows, n);
    }
    if (!ok) {
        tci_heap_free(rows);
        rows = NULL;
    }
    return rows;
}

TCI_FN double tci_idle_share(const tci_idle *row)
{
    double idle = (double)row->in_runs_ns + (double)row->outside_ns;
    return idle / TCI_MAX(idle + (double)row->busy_ns, 1);
}

#endif
