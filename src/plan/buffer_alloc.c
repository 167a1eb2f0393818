/* plan/buffer_alloc.c - assigns offsets in the arena to temporaries (static buffer allocation:
 * best fit, then local search).
 *
 * In: for each temporary its size and its first and last step. Out: an offset for each, a multiple
 * of 64, such that temporaries alive at the same time do not overlap; the size of the arena.
 *
 * Design: each temporary goes into the smallest gap that those placed before it and alive at the
 * same time leave. Placing them in the order of their first steps is fast, and optimal where all
 * have the same size, as in a chain. If the arena is then larger than the peak of live bytes, its
 * lower bound, other orders are tried that place large and long-lived temporaries first; a few
 * times, the temporary that ended up highest is moved to the front and everything is placed again.
 * The smallest arena is kept.
 *
 * Where independent launches run concurrently, small temporaries get memory of their own as long
 * as such launches exist, up to a total size: reused memory would make the launches wait. */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

enum {
    TCI_PLACE_SMALL = 4 << 20, /* bytes of a value that a GPU computes in the time of a launch */
    TCI_PLACE_APART = 64 << 20,
    TCI_PLACE_TRIES = 24,    /* from one order */
    TCI_PLACE_WORK = 1 << 24 /* pairs of lives that they may look at: of more, none is tried */
};

typedef struct tci_place_item {
    double key;
    int32_t life;
} tci_place_item;

typedef struct tci_place {
    const tci_life *lives;
    tci_place_item *items;
    int n;            /* in the order in which they are placed */
    int64_t *offsets; /* per life */
    int32_t *placed;  /* lives, by offset */
} tci_place;

/* Stretches of the arena that were given back, by offset; `end`: from there on it is unused. */
typedef struct tci_place_gap {
    int64_t offset, bytes;
} tci_place_gap;
typedef struct tci_place_gaps {
    tci_place_gap *items;
    int n;
    int64_t end;
} tci_place_gaps;

/* Memory that small temporaries get without reuse: never needed by others. */
static void tci_place_keep_apart(tci_life *lives, int n)
{
    int64_t total = 0;
    for (int b = 0; b < n; b++) {
        if (lives[b].last >= 0 && lives[b].bytes <= TCI_PLACE_SMALL &&
            total + lives[b].bytes <= TCI_PLACE_APART) {
            total += lives[b].bytes;
            lives[b].last = TCI_MAX(lives[b].last, lives[b].alone);
        }
    }
}

/* Rounded up, so that what follows is aligned too. */
static int64_t tci_place_bytes(const tci_life *l)
{
    return (l->bytes + 63) / 64 * 64;
}

TCI_FN int64_t tci_plan_least(tci_scratch *s, const tci_life *lives, int n, int n_steps)
{
    int64_t *change = TCI_NEW_ARRAY(s, int64_t, n_steps + 2), now = 0, most = 0, all = 0;
    for (int b = 0; b < n; b++) {
        if (lives[b].last >= 0) {
            if (lives[b].bytes > INT64_MAX / 2 - all) {
                tci_scratch_fail(s, TC_ERR_LIMIT, "temporaries need more than %lld bytes",
                                 (long long)INT64_MAX / 2);
            }
            all += tci_place_bytes(&lives[b]);
            change[lives[b].first] += tci_place_bytes(&lives[b]);
            change[lives[b].last + 1] -= tci_place_bytes(&lives[b]);
        }
    }
    for (int t = 0; t < n_steps; t++) {
        now += change[t];
        most = TCI_MAX(most, now);
    }
    return most;
}

/* ---- by time ---- */

static int tci_place_compare(const void *a, const void *b)
{
    const tci_place_item *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key) - (x->key > y->key) : x->life - y->life;
}

static int64_t tci_place_take(tci_place_gaps *g, int64_t bytes)
{
    int best = -1;
    for (int i = 0; i < g->n; i++) {
        bool fits = g->items[i].bytes >= bytes;
        best = fits && (best < 0 || g->items[i].bytes < g->items[best].bytes) ? i : best;
    }
    if (best < 0) {
        g->end += bytes;
        return g->end - bytes;
    }
    int64_t offset = g->items[best].offset;
    g->items[best].offset += bytes;
    g->items[best].bytes -= bytes;
    if (g->items[best].bytes == 0) {
        g->n--;
        memmove(g->items + best, g->items + best + 1, sizeof(*g->items) * (size_t)(g->n - best));
    }
    return offset;
}

/* Together with adjacent free memory. */
static void tci_place_give_back(tci_place_gaps *g, int64_t offset, int64_t bytes)
{
    int at = g->n;
    while (at > 0 && g->items[at - 1].offset > offset) {
        at--;
    }
    memmove(g->items + at + 1, g->items + at, sizeof(*g->items) * (size_t)(g->n - at));
    g->items[at] = (tci_place_gap){offset, bytes};
    g->n++;
    for (int i = TCI_MIN(at + 1, g->n - 1); i > 0 && i >= at; i--) {
        tci_place_gap *below = &g->items[i - 1];
        if (below->offset + below->bytes == g->items[i].offset) {
            below->bytes += g->items[i].bytes;
            g->n--;
            memmove(g->items + i, g->items + i + 1, sizeof(*g->items) * (size_t)(g->n - i));
        }
    }
    if (g->n && g->items[g->n - 1].offset + g->items[g->n - 1].bytes == g->end) {
        g->end = g->items[--g->n].offset;
    }
}

/* Places all in the order of their first steps; returns the bytes that takes. */
static int64_t tci_place_by_time(tci_scratch *s, tci_place *p, tci_life *lives)
{
    tci_place_gaps gaps = {TCI_NEW_ARRAY(s, tci_place_gap, p->n + 1), 0, 0};
    tci_place_item *ends = TCI_NEW_ARRAY(s, tci_place_item, p->n + 1);
    int64_t most = 0;
    for (int i = 0, b; i < p->n; i++) {
        b = p->items[i].life;
        p->items[i].key = -(double)lives[b].first;
        ends[i] = (tci_place_item){-(double)lives[b].last, b};
    }
    qsort(p->items, (size_t)p->n, sizeof(*p->items), tci_place_compare);
    qsort(ends, (size_t)p->n, sizeof(*ends), tci_place_compare);
    for (int i = 0, ended = 0; i < p->n; i++) {
        tci_life *l = &lives[p->items[i].life];
        for (; lives[ends[ended].life].last < l->first; ended++) {
            const tci_life *over = &lives[ends[ended].life];
            tci_place_give_back(&gaps, over->offset, tci_place_bytes(over));
        }
        l->offset = tci_place_take(&gaps, tci_place_bytes(l));
        most = TCI_MAX(most, gaps.end);
    }
    return most;
}

/* ---- by size ---- */

/* The largest first: what is large is in the way of others, the more so the longer it is needed.
 * The other order goes by that alone. */
static double tci_place_key(const tci_life *l, bool by_length)
{
    double bytes = by_length ? 1 : (double)l->bytes;
    return bytes * bytes * (l->last - l->first + 1);
}

/* Offset of one more life: in the smallest gap that is large enough, else above all others. */
static int64_t tci_place_find(const tci_place *p, int n_placed, const tci_life *l)
{
    int64_t end = 0, best = -1, least = INT64_MAX;
    for (int i = 0; i < n_placed; i++) {
        const tci_life *other = &p->lives[p->placed[i]];
        if (other->first > l->last || l->first > other->last) {
            continue;
        }
        int64_t gap = p->offsets[p->placed[i]] - end;
        if (gap >= tci_place_bytes(l) && gap < least) {
            best = end;
            least = gap;
        }
        end = TCI_MAX(end, p->offsets[p->placed[i]] + tci_place_bytes(other));
    }
    return best >= 0 ? best : end;
}

static void tci_place_put(tci_place *p, int n_placed, int life, int64_t offset)
{
    int at = n_placed;
    for (; at > 0 && p->offsets[p->placed[at - 1]] > offset; at--) {
        p->placed[at] = p->placed[at - 1];
    }
    p->placed[at] = life;
    p->offsets[life] = offset;
}

/* Places all in order; returns the bytes that takes, *highest: the position in the order of the
 * life that ends there. */
static int64_t tci_place_all(tci_place *p, int *highest)
{
    int64_t bytes = -1;
    for (int i = 0; i < p->n; i++) {
        const tci_life *l = &p->lives[p->items[i].life];
        int64_t offset = tci_place_find(p, i, l);
        tci_place_put(p, i, p->items[i].life, offset);
        if (offset + tci_place_bytes(l) > bytes) {
            bytes = offset + tci_place_bytes(l);
            *highest = i;
        }
    }
    return TCI_MAX(bytes, 0);
}

static void tci_place_to_front(tci_place *p, int at)
{
    tci_place_item item = p->items[at];
    for (; at > 0; at--) {
        p->items[at] = p->items[at - 1];
    }
    p->items[0] = item;
}

/* Places all, starting from one order; keeps the offsets where they are better than *bytes. */
static void tci_place_try(tci_place *p, tci_life *lives, bool by_length, int64_t least,
                          int64_t *bytes)
{
    int64_t most_tries = TCI_PLACE_WORK / ((int64_t)p->n * p->n + 1);
    for (int i = 0; i < p->n; i++) {
        p->items[i].key = tci_place_key(&lives[p->items[i].life], by_length);
    }
    qsort(p->items, (size_t)p->n, sizeof(*p->items), tci_place_compare);
    for (int i = 0, highest = 0; i < TCI_MIN(TCI_PLACE_TRIES, most_tries) && *bytes > least; i++) {
        tci_place_to_front(p, highest);
        int64_t now = tci_place_all(p, &highest);
        for (int j = 0; j < p->n && now < *bytes; j++) {
            lives[p->items[j].life].offset = p->offsets[p->items[j].life];
        }
        *bytes = TCI_MIN(*bytes, now);
    }
}

TCI_FN int64_t tci_plan_place(tci_scratch *s, tci_life *lives, int n, int n_steps, bool apart)
{
    if (apart) {
        tci_place_keep_apart(lives, n);
    }
    tci_place p = {lives, TCI_NEW_ARRAY(s, tci_place_item, n + 1), 0,
                   TCI_NEW_ARRAY(s, int64_t, n + 1), TCI_NEW_ARRAY(s, int32_t, n + 1)};
    for (int b = 0; b < n; b++) {
        if (lives[b].last >= 0) {
            p.items[p.n++].life = b;
        }
    }
    int64_t least = tci_plan_least(s, lives, n, n_steps), bytes = tci_place_by_time(s, &p, lives);
    tci_place_try(&p, lives, false, least, &bytes);
    tci_place_try(&p, lives, true, least, &bytes);
    return bytes;
}
