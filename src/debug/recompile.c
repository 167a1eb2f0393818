/* debug/recompile.c - explains a recompile: which part of a program's signature differs from an
 * earlier program.
 *
 * In: the text of the graph of each program that was not in the memory cache. Out: a line for the
 * log, the report by line of the user's program, the text of TC_ERR_FROZEN.
 *
 * Design: the text has one line per node and is the same for the same graph. The nearest earlier
 * program is the one with the most equal lines, and the first line that differs is the cause: a
 * size, a dtype, an op, a constant. The newest programs are kept in a ring, and their texts up to a
 * total number of bytes. */
#include "recompile.h"

#include <stdlib.h>
#include <string.h>

#include "../base/os.h"
#include "log.h"

enum {
    TCI_RECOMPILE_KEPT = 256,
    TCI_RECOMPILE_MOST = 1 << 16,  /* bytes of a text that is worth keeping */
    TCI_RECOMPILE_TEXTS = 1 << 20, /* bytes of all that are kept */
    TCI_RECOMPILE_LINE = 160,      /* bytes of a line in the report */
    TCI_RECOMPILE_RANK = 16
};

/* An axis of an input that differed, with both sizes. */
typedef struct tci_recompile_axis {
    char input[48];
    int axis; /* -1: it was something else */
    int64_t is, was;
} tci_recompile_axis;

/* One heap block; the file's name follows it. */
typedef struct tci_recompile_past {
    char name[9], near[9]; /* near "": none resembled it */
    char call[64];
    const char *file;
    int line;
    uint64_t hash;
    const tc_ctx *ctx;
    bool from_disk;
    int equal, lines; /* lines of the text that the nearest has too, and of the longer text */
    char is[TCI_RECOMPILE_LINE], was[TCI_RECOMPILE_LINE];
    tci_recompile_axis axis;
    int64_t ns, hits;
    double hot_speed; /* over that of the symbolic program of a tc_jit; 0: not measured */
    bool hot;         /* and it serves the sizes that kept coming */
    char *graph;
    size_t n_graph; /* heap; NULL: not kept */
} tci_recompile_past;

static struct tci_recompile_process {
    tci_mutex lock;
    uint64_t hashes[TCI_RECOMPILE_KEPT]; /* of past, for the search */
    tci_recompile_past *past[TCI_RECOMPILE_KEPT];
    unsigned n;   /* so far; the n-th is at n % KEPT */
    size_t bytes; /* of texts */
} tci_recompile_process = {.lock = TCI_MUTEX_INIT};

static void tci_recompile_lock(void)
{
    tci_os_keep_over_fork(&tci_recompile_process.lock, NULL);
    pthread_mutex_lock(&tci_recompile_process.lock);
}

static void tci_recompile_unlock(void)
{
    pthread_mutex_unlock(&tci_recompile_process.lock);
}

/* ---- comparing ---- */

/* Number of equal lines of two texts, and the position of the first difference. */
typedef struct tci_recompile_match {
    int equal, lines;
    bool as_long;             /* as many lines: likely the same ops */
    const char *here, *there; /* NULL: none */
} tci_recompile_match;

static int tci_recompile_line(const char *text)
{
    return (int)strcspn(text, "\n");
}

static tci_recompile_match tci_recompile_compare(const char *here, const char *there)
{
    tci_recompile_match m = {0, 0, true, NULL, NULL};
    while (*here || *there) {
        int n = tci_recompile_line(here), n_there = tci_recompile_line(there);
        bool same = *here && n == n_there && !memcmp(here, there, (size_t)n);
        if (!same && !m.here) {
            m.here = here;
            m.there = there;
        }
        m.as_long = m.as_long && *here && *there;
        m.equal += same;
        m.lines++;
        here += n + (here[n] == '\n');
        there += n_there + (there[n_there] == '\n');
    }
    return m;
}

/* The sizes in "%0 = input f32 [9, 32] "x""; -1: it is no input of known sizes. *dtype: where its
 * dtype begins, *name where the rest does. */
static int tci_recompile_sizes(const char *line, int64_t *sizes, const char **dtype,
                               const char **name)
{
    const char *at = strstr(line, " = input ");
    const char *end = line + tci_recompile_line(line);
    int n = 0;
    if (!at || at > end) {
        return -1;
    }
    *dtype = at + 9;
    at = strchr(at, '[');
    if (!at || at > end) {
        return -1;
    }
    while (*at != ']' && n < TCI_RECOMPILE_RANK) {
        char *after;
        sizes[n++] = strtoll(at + 1, &after, 10);
        if (after == at + 1 || (*after != ',' && *after != ']')) {
            return -1;
        }
        at = after;
    }
    *name = at + 1;
    return *at == ']' ? n : -1;
}

/* The one axis in which two lines differ, if both are inputs that differ in nothing else but
 * sizes. */
static tci_recompile_axis tci_recompile_find_axis(const tci_recompile_match *m)
{
    tci_recompile_axis a = {"", -1, 0, 0};
    int64_t is[TCI_RECOMPILE_RANK], was[TCI_RECOMPILE_RANK];
    const char *dtype, *dtype_was, *name, *name_was;
    int n = m->here ? tci_recompile_sizes(m->here, is, &dtype, &name) : -1;
    int n_was = n >= 0 ? tci_recompile_sizes(m->there, was, &dtype_was, &name_was) : -1;
    if (n < 0 || n != n_was || strncmp(dtype, dtype_was, strcspn(dtype, " ") + 1)) {
        return a;
    }
    for (int i = 0; i < n && a.axis < 0; i++) {
        if (is[i] != was[i]) {
            a.axis = i;
            a.is = is[i];
            a.was = was[i];
        }
    }
    name += strspn(name, " \"");
    snprintf(a.input, sizeof(a.input), "%.*s", (int)strcspn(name, "\"\n"), name);
    return a;
}

/* The nearest of those that are kept, of the same line of the user's program if there is one; of
 * other lines only what has half of its nodes, or a quarter and as many. NULL: none resembles
 * it. Under the lock. */
static const tci_recompile_past *tci_recompile_nearest(const tci_recompile_asked *asked,
                                                       const char *graph, tci_recompile_match *best)
{
    const tci_recompile_past *near = NULL;
    int best_score = 0;
    for (unsigned i = 0; graph && i < TCI_RECOMPILE_KEPT; i++) {
        unsigned newest_first = tci_recompile_process.n - 1 - i;
        const tci_recompile_past *p = tci_recompile_process.past[newest_first % TCI_RECOMPILE_KEPT];
        if (!p || !p->graph) {
            continue;
        }
        bool same_line = asked->site.file && p->line == asked->site.line &&
                         !strcmp(p->file, asked->site.file);
        tci_recompile_match m = tci_recompile_compare(graph, p->graph);
        int least = same_line ? 1 : m.as_long ? m.lines / 4 + 1 : m.lines / 2 + 1;
        int score = m.equal < least ? 0 : m.equal + (same_line ? TCI_RECOMPILE_MOST : 0);
        if (score > best_score) {
            best_score = score;
            *best = m;
            near = p;
        }
    }
    return near;
}

/* ---- remembering ---- */

static const char *tci_recompile_text(const tci_recompile_asked *asked)
{
    const tci_str *g = asked->graph;
    return g && !g->failed && g->n && g->n <= TCI_RECOMPILE_MOST ? g->text : NULL;
}

static void tci_recompile_drop_graph(tci_recompile_past *p)
{
    tci_recompile_process.bytes -= p->n_graph;
    tci_heap_free(p->graph);
    p->graph = NULL;
    p->n_graph = 0;
}

static void tci_recompile_free(unsigned at)
{
    tci_recompile_past *p = tci_recompile_process.past[at];
    if (p) {
        tci_recompile_drop_graph(p);
        tci_heap_free(p);
        tci_recompile_process.past[at] = NULL;
        tci_recompile_process.hashes[at] = 0;
    }
}

/* Under the lock. The oldest texts go where all are too many. */
static void tci_recompile_keep_graph(tci_recompile_past *p, const char *graph)
{
    size_t n = strlen(graph) + 1;
    unsigned oldest = tci_recompile_process.n; /* its place is free: p is not in the ring yet */
    for (unsigned i = 1; tci_recompile_process.bytes + n > TCI_RECOMPILE_TEXTS; i++) {
        tci_recompile_past *q = tci_recompile_process.past[(oldest + i) % TCI_RECOMPILE_KEPT];
        if (i == TCI_RECOMPILE_KEPT) {
            return;
        }
        if (q) {
            tci_recompile_drop_graph(q);
        }
    }
    p->graph = tci_heap_get(n);
    if (p->graph) {
        memcpy(p->graph, graph, n);
        p->n_graph = n;
        tci_recompile_process.bytes += n;
    }
}

static tci_recompile_past *tci_recompile_make(const tci_recompile_asked *asked)
{
    const char *file = asked->site.file ? asked->site.file : "";
    size_t n_file = strlen(file) + 1;
    tci_recompile_past *p = tci_heap_get(sizeof(*p) + n_file);
    if (p) {
        char hex[33];
        tci_hash_hex(asked->hash, hex);
        snprintf(p->name, sizeof(p->name), "%.8s", hex);
        snprintf(p->call, sizeof(p->call), "%s", asked->call ? asked->call : "");
        p->file = memcpy(p + 1, file, n_file);
        p->line = asked->site.line;
        p->hash = asked->hash.lo;
        p->ctx = asked->ctx;
        p->axis.axis = -1;
    }
    return p;
}

static void tci_recompile_log(const tc_options *o, const tci_recompile_past *p, bool compared)
{
    char place[300] = "";
    if (p->file[0]) {
        snprintf(place, sizeof(place), " (%.220s:%d: %s)", p->file, p->line, p->call);
    }
    if (!compared) {
        return;
    }
    if (!p->near[0]) {
        tci_log(o, "recompiles", "%s%s: no earlier program resembles it", p->name, place);
    } else if (!p->is[0]) {
        tci_log(o, "recompiles",
                "%s%s: the graph of %s again: options, strides, constants or the machine differ, "
                "or it was dropped",
                p->name, place, p->near);
    } else {
        tci_log(o, "recompiles",
                "%s%s: %d of %d lines are those of %s; the first other: %s; was: %s", p->name,
                place, p->equal, p->lines, p->near, p->is, p->was);
    }
}

TCI_FN void tci_recompile_note(const tc_options *o, const tci_recompile_asked *asked,
                               bool from_disk)
{
    const char *graph = tci_recompile_text(asked);
    tci_recompile_past *p = tci_recompile_make(asked);
    if (!p) {
        return;
    }
    p->from_disk = from_disk;
    tci_recompile_lock();
    tci_recompile_match m = {0, 0, false, NULL, NULL};
    const tci_recompile_past *near = tci_recompile_nearest(asked, graph, &m);
    if (near) {
        memcpy(p->near, near->name, sizeof(p->near));
        p->equal = m.equal;
        p->lines = m.lines;
        if (m.here) {
            snprintf(p->is, sizeof(p->is), "%.*s", tci_recompile_line(m.here), m.here);
            snprintf(p->was, sizeof(p->was), "%.*s", tci_recompile_line(m.there), m.there);
        }
        p->axis = tci_recompile_find_axis(&m);
    }
    unsigned at = tci_recompile_process.n % TCI_RECOMPILE_KEPT;
    tci_recompile_free(at);
    if (graph) {
        tci_recompile_keep_graph(p, graph);
    }
    tci_recompile_process.n++;
    tci_recompile_process.past[at] = p;
    tci_recompile_process.hashes[at] = p->hash;
    tci_recompile_past copy = *p;
    char file[256];
    snprintf(file, sizeof(file), "%s", p->file);
    copy.file = file;
    tci_recompile_unlock();
    if (!from_disk) {
        tci_recompile_log(o, &copy, graph != NULL); /* a user callback: without the lock */
    }
}

/* The newest of that key, or NULL. Under the lock. */
static tci_recompile_past *tci_recompile_find(tci_hash hash)
{
    for (unsigned i = 1; i <= TCI_RECOMPILE_KEPT; i++) {
        unsigned at = (tci_recompile_process.n - i) % TCI_RECOMPILE_KEPT;
        if (tci_recompile_process.hashes[at] == hash.lo && tci_recompile_process.past[at]) {
            return tci_recompile_process.past[at];
        }
    }
    return NULL;
}

TCI_FN void tci_recompile_took(tci_hash hash, int64_t ns)
{
    tci_recompile_lock();
    tci_recompile_past *p = tci_recompile_find(hash);
    if (p) {
        p->ns = ns;
    }
    tci_recompile_unlock();
}

TCI_FN void tci_recompile_hit(tci_hash hash)
{
    tci_recompile_lock();
    tci_recompile_past *p = tci_recompile_find(hash);
    if (p) {
        p->hits++;
    }
    tci_recompile_unlock();
}

TCI_FN void tci_recompile_hot(tci_hash hash, double speed, bool serves)
{
    tci_recompile_lock();
    tci_recompile_past *p = tci_recompile_find(hash);
    if (p) {
        p->hot_speed = speed;
        p->hot = serves;
    }
    tci_recompile_unlock();
}

TCI_FN void tci_recompile_differs(tci_str *out, const tci_recompile_asked *asked)
{
    const char *graph = tci_recompile_text(asked);
    tci_recompile_lock();
    tci_recompile_match m = {0, 0, false, NULL, NULL};
    const tci_recompile_past *p = tci_recompile_nearest(asked, graph, &m);
    if (!p) {
        tci_str_printf(out, "no program that was compiled resembles it");
    } else if (!m.here) {
        tci_str_printf(out,
                       "the graph is that of %s (%s:%d: %s), but options, strides, constants "
                       "or the machine differ, or it was dropped",
                       p->name, p->file, p->line, p->call);
    } else {
        tci_str_printf(out,
                       "%d of %d lines of its graph are those of %s (%s:%d: %s); the first "
                       "other: %.*s; was: %.*s",
                       m.equal, m.lines, p->name, p->file, p->line, p->call,
                       TCI_MIN(tci_recompile_line(m.here), 200), m.here,
                       TCI_MIN(tci_recompile_line(m.there), 200), m.there);
    }
    tci_recompile_unlock();
}

TCI_FN void tci_recompile_forget(void)
{
    pthread_mutex_lock(&tci_recompile_process.lock);
    for (unsigned i = 0; i < TCI_RECOMPILE_KEPT; i++) {
        tci_recompile_free(i);
    }
    pthread_mutex_unlock(&tci_recompile_process.lock);
}

/* ---- the report ---- */

/* One line of the user's program. */
typedef struct tci_recompile_place {
    const char *file;
    int line;
    int n; /* programs */
    int64_t ns, hits;
} tci_recompile_place;

/* Entries of the report, oldest first. */
typedef struct tci_recompile_report {
    tci_str *out;
    bool json;
    const tci_recompile_past *list[TCI_RECOMPILE_KEPT];
    int n;
} tci_recompile_report;

static bool tci_recompile_same_place(const tci_recompile_past *a, const tci_recompile_past *b)
{
    return a->line == b->line && !strcmp(a->file, b->file);
}

static bool tci_recompile_is_first(const tci_recompile_report *r, int i)
{
    for (int k = 0; k < i; k++) {
        if (tci_recompile_same_place(r->list[k], r->list[i])) {
            return false;
        }
    }
    return true;
}

static void tci_recompile_quote(tci_str *out, const char *text)
{
    tci_str_printf(out, "%c", '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            tci_str_printf(out, "\\%c", c);
        } else if (c < ' ') {
            tci_str_printf(out, "\\u%04x", c);
        } else {
            tci_str_printf(out, "%c", c);
        }
    }
    tci_str_printf(out, "%c", '"');
}

/* Axes of inputs whose sizes differed: the range that was seen, and what makes one program of
 * them. */
static void tci_recompile_print_axes(const tci_recompile_report *r, int first)
{
    const char *comma = "";
    for (int i = first; i < r->n; i++) {
        const tci_recompile_axis *a = &r->list[i]->axis;
        bool is_new = a->axis >= 0 && tci_recompile_same_place(r->list[first], r->list[i]);
        int64_t least = TCI_MIN(a->is, a->was), most = TCI_MAX(a->is, a->was);
        for (int k = first; k < r->n && is_new; k++) {
            const tci_recompile_axis *b = &r->list[k]->axis;
            if (b->axis == a->axis && !strcmp(b->input, a->input) &&
                tci_recompile_same_place(r->list[first], r->list[k])) {
                is_new = k >= i;
                least = TCI_MIN(least, TCI_MIN(b->is, b->was));
                most = TCI_MAX(most, TCI_MAX(b->is, b->was));
            }
        }
        if (is_new && r->json) {
            tci_str_printf(r->out, "%s{\"input\": ", comma);
            tci_recompile_quote(r->out, a->input);
            tci_str_printf(r->out, ", \"axis\": %d, \"least\": %lld, \"most\": %lld}", a->axis,
                           (long long)least, (long long)most);
            comma = ", ";
        } else if (is_new) {
            tci_str_printf(r->out,
                           "  write TC_DIM(\"%s_%d\", %lld, %lld) for axis %d of \"%s\": one "
                           "program for all of these sizes\n",
                           a->input, a->axis, (long long)least, (long long)most, a->axis, a->input);
        }
    }
}

static void tci_recompile_print_json(const tci_recompile_report *r, const tci_recompile_past *p,
                                     const char *comma)
{
    tci_str_printf(r->out, "%s{\"name\": \"%s\", \"from\": \"%s\", \"ms\": %.3f, \"hits\": %lld",
                   comma, p->name, p->from_disk ? "disk" : "compiler", (double)p->ns / 1e6,
                   (long long)p->hits);
    if (p->near[0]) {
        tci_str_printf(r->out,
                       ", \"near\": \"%s\", \"equal\": %d, \"lines\": %d, \"is\": ", p->near,
                       p->equal, p->lines);
        tci_recompile_quote(r->out, p->is);
        tci_str_printf(r->out, ", \"was\": ");
        tci_recompile_quote(r->out, p->was);
    }
    if (p->hot_speed > 0) {
        tci_str_printf(r->out, ", \"hot\": %s, \"speed\": %.2f", p->hot ? "true" : "false",
                       p->hot_speed);
    }
    tci_str_printf(r->out, "%c", '}');
}

/* True if the call wants a value of the lazy form; tc_compile and a tc_jit do not. */
static bool tci_recompile_is_cut(const tci_recompile_past *p)
{
    static const char *const calls[] = {"tc_eval", "tc_eval_many", "tc_read", "tc_keep",
                                        "tc_print"};
    bool cuts = false;
    for (int k = 0; k < TCI_COUNT(calls); k++) {
        cuts = cuts || !strcmp(p->call, calls[k]);
    }
    return cuts;
}

/* True if most of a piece of the lazy form is what a piece of another line computes too, as values
 * that depend on parameters are not stored. */
static bool tci_recompile_repeats(const tci_recompile_report *r, const tci_recompile_past *p)
{
    bool repeats = false;
    for (int i = 0; i < r->n && tci_recompile_is_cut(p) && 2 * p->equal > p->lines; i++) {
        const tci_recompile_past *near = r->list[i];
        repeats = repeats || (!strcmp(near->name, p->near) && tci_recompile_is_cut(near) &&
                              !tci_recompile_same_place(near, p));
    }
    return repeats;
}

static void tci_recompile_print_text(const tci_recompile_report *r, const tci_recompile_past *p)
{
    tci_str_printf(r->out, "  %s  %s%.1f ms, %lld hits: ", p->name,
                   p->from_disk ? "from disk, " : "", (double)p->ns / 1e6, (long long)p->hits);
    if (p->hot_speed > 0) {
        tci_str_printf(r->out, "sizes that kept coming, %.2f times as fast as with symbols%s; ",
                       p->hot_speed, p->hot ? "" : ", not kept");
    }
    if (!p->near[0]) {
        tci_str_printf(r->out, "no earlier program resembles it\n");
    } else if (!p->is[0]) {
        tci_str_printf(r->out,
                       "the graph of %s with other options, strides or constants, or it was "
                       "dropped\n",
                       p->near);
    } else {
        tci_str_printf(r->out, "differs from %s in %s; was %s\n", p->near, p->is, p->was);
    }
    if (tci_recompile_repeats(r, p)) {
        tci_str_printf(r->out,
                       "    %d of %d lines of the graph are those of %s, and are computed in both: "
                       "make them in a scope and tc_keep the value\n",
                       p->equal, p->lines, p->near);
    }
}

static void tci_recompile_print_place(const tci_recompile_report *r, int first, const char *comma)
{
    const tci_recompile_past *at = r->list[first];
    tci_recompile_place place = {at->file, at->line, 0, 0, 0};
    for (int i = first; i < r->n; i++) {
        if (tci_recompile_same_place(at, r->list[i])) {
            place.n++;
            place.ns += r->list[i]->ns;
            place.hits += r->list[i]->hits;
        }
    }
    if (r->json) {
        tci_str_printf(r->out, "%s\n  {\"file\": ", comma);
        tci_recompile_quote(r->out, place.file);
        tci_str_printf(r->out, ", \"line\": %d, \"call\": ", place.line);
        tci_recompile_quote(r->out, at->call);
        tci_str_printf(r->out, ", \"ms\": %.3f, \"hits\": %lld, \"programs\": [",
                       (double)place.ns / 1e6, (long long)place.hits);
    } else {
        tci_str_printf(r->out, "%s:%d: %s: %d program%s, %.1f ms, %lld hits\n", place.file,
                       place.line, at->call, place.n, place.n == 1 ? "" : "s",
                       (double)place.ns / 1e6, (long long)place.hits);
    }
    const char *between = "";
    for (int i = first; i < r->n; i++) {
        if (tci_recompile_same_place(at, r->list[i]) && r->json) {
            tci_recompile_print_json(r, r->list[i], between);
            between = ", ";
        } else if (tci_recompile_same_place(at, r->list[i])) {
            tci_recompile_print_text(r, r->list[i]);
        }
    }
    tci_str_add(r->out, r->json ? "], \"write\": [" : "");
    tci_recompile_print_axes(r, first);
    tci_str_add(r->out, r->json ? "]}" : "");
}

/* Prints how many programs the evaluating calls have made of the graph. */
static void tci_recompile_print_cuts(const tci_recompile_report *r)
{
    int places = 0, programs = 0, again = 0;
    for (int i = 0; i < r->n; i++) {
        bool cuts = tci_recompile_is_cut(r->list[i]);
        programs += cuts;
        places += cuts && tci_recompile_is_first(r, i);
        again += tci_recompile_repeats(r, r->list[i]);
    }
    if (places) {
        tci_str_printf(r->out, "the lazy form cuts the graph at %d line%s into %d program%s",
                       places, places == 1 ? "" : "s", programs, programs == 1 ? "" : "s");
        if (again) {
            tci_str_printf(r->out, "; %d of them compute%s most of another again", again,
                           again == 1 ? "s" : "");
        }
        tci_str_add(r->out, "\n");
    }
}

TCI_FN void tci_recompile_print(tci_str *out, const tc_ctx *ctx, bool json)
{
    tci_recompile_report r = {.out = out, .json = json};
    tci_recompile_lock();
    for (unsigned i = 0; i < TCI_RECOMPILE_KEPT; i++) {
        const tci_recompile_past *p =
            tci_recompile_process.past[(tci_recompile_process.n + i) % TCI_RECOMPILE_KEPT];
        if (p && (!ctx || p->ctx == ctx)) {
            r.list[r.n++] = p;
        }
    }
    const char *comma = "";
    tci_str_add(out, json ? "{\"lines\": [" : "");
    for (int i = 0; i < r.n; i++) {
        if (tci_recompile_is_first(&r, i)) {
            tci_recompile_print_place(&r, i, comma);
            comma = ",";
        }
    }
    if (!json) {
        tci_recompile_print_cuts(&r);
    }
    tci_str_add(out, json ? "]}\n" : r.n ? "" : "no program was compiled\n");
    tci_recompile_unlock();
}
