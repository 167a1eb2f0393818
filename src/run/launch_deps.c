/* run/launch_deps.c - computes dependencies between the launches of a captured run (graph capture).
 *
 * In: the launches of a run with all operands bound. Out: for each launch the numbers of earlier
 * ones that must finish before it, so that the device may overlap all others.
 *
 * Design: dependencies follow from bytes alone. A launch depends on the last writer of what it
 * reads or writes, and on all readers since then of what it writes. The starts and ends of operands
 * divide memory into intervals, and each interval has its last writer and the readers since. Reused
 * arena memory, outputs that alias inputs, and parameters that overwrite the old value therefore
 * need no special rules. Transitive dependencies are left out. */
#include <stdlib.h>

#include "runtime_structs.h"

typedef struct tci_deps_reader {
    int32_t launch, next; /* in `readers`; -1: the last */
} tci_deps_reader;

typedef struct tci_deps_piece {
    uintptr_t begin;        /* up to where the next one begins */
    int32_t writer, reader; /* the last launch that wrote it; a list; -1: none */
} tci_deps_piece;

typedef struct tci_deps {
    tci_scratch *s;
    const tc_call *c;
    int first; /* the run step of launch 0 */
    tci_deps_piece *pieces;
    int n_pieces;
    tci_deps_reader *readers;
    int n_readers, cap_readers;
    int32_t *met; /* per launch: the last one that was put after it, and one more */
    int32_t *after;
    int n_after, cap_after; /* of the launch at hand */
} tci_deps;

typedef struct tci_deps_span {
    uintptr_t begin, end;
    bool writes;
} tci_deps_span;

static int64_t tci_deps_bytes(const tci_code *code, int32_t buffer)
{
    const tci_code_buffer *b = &code->buffers[buffer];
    switch ((tci_buffer_kind)b->kind) {
    case TCI_BUF_INPUT: return tci_dim_known(code->inputs[b->index].bytes);
    case TCI_BUF_OUTPUT: return tci_dim_known(code->outputs[b->index].bytes);
    case TCI_BUF_TEMP:
    case TCI_BUF_KEPT: break;
    }
    return tci_dim_known(b->bytes);
}

static tci_deps_span tci_deps_operand(const tci_deps *w, int launch, int operand)
{
    const tci_code *code = w->c->program->code;
    const tci_code_step *step = &code->steps[w->first + launch];
    int32_t slot = w->c->program->steps[w->first + launch].first_slot + operand;
    uintptr_t begin = (uintptr_t)w->c->slots[slot];
    int64_t bytes = tci_deps_bytes(code, step->operands[operand]);
    tci_deps_span span = {begin, begin + (uintptr_t)bytes,
                          code->kernels[step->kernel].writes[operand]};
    return span;
}

static int tci_deps_count(const tci_deps *w, int launch)
{
    const tci_code *code = w->c->program->code;
    return code->kernels[code->steps[w->first + launch].kernel].n_operands;
}

static int tci_deps_compare(const void *a, const void *b)
{
    uintptr_t x = ((const tci_deps_piece *)a)->begin, y = ((const tci_deps_piece *)b)->begin;
    return (x > y) - (x < y);
}

static void tci_deps_cut(tci_deps *w, int n)
{
    int n_ends = 0, n_pieces = 0;
    for (int i = 0; i < n; i++) {
        n_ends += 2 * tci_deps_count(w, i);
    }
    w->pieces = TCI_NEW_ARRAY(w->s, tci_deps_piece, n_ends + 1);
    n_ends = 0;
    for (int i = 0; i < n; i++) {
        for (int o = 0; o < tci_deps_count(w, i); o++) {
            tci_deps_span span = tci_deps_operand(w, i, o);
            w->pieces[n_ends++] = (tci_deps_piece){span.begin, -1, -1};
            w->pieces[n_ends++] = (tci_deps_piece){span.end, -1, -1};
        }
    }
    qsort(w->pieces, (size_t)n_ends, sizeof(*w->pieces), tci_deps_compare);
    for (int i = 0; i < n_ends; i++) {
        if (!n_pieces || w->pieces[n_pieces - 1].begin != w->pieces[i].begin) {
            w->pieces[n_pieces++] = w->pieces[i];
        }
    }
    w->n_pieces = n_pieces;
}

/* The piece that begins there. */
static int tci_deps_find(const tci_deps *w, uintptr_t begin)
{
    int low = 0, high = w->n_pieces - 1;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (w->pieces[middle].begin < begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void tci_deps_put(tci_deps *w, int launch, int earlier)
{
    if (earlier >= 0 && earlier != launch && w->met[earlier] != launch + 1) {
        w->met[earlier] = launch + 1;
        TCI_PUSH(w->s, w->after, w->n_after, w->cap_after, earlier);
    }
}

static void tci_deps_look(tci_deps *w, int launch, tci_deps_span span)
{
    for (int p = tci_deps_find(w, span.begin); w->pieces[p].begin < span.end; p++) {
        tci_deps_put(w, launch, w->pieces[p].writer);
        for (int r = w->pieces[p].reader; r >= 0 && span.writes; r = w->readers[r].next) {
            tci_deps_put(w, launch, w->readers[r].launch);
        }
    }
}

static void tci_deps_note(tci_deps *w, int launch, tci_deps_span span)
{
    for (int p = tci_deps_find(w, span.begin); w->pieces[p].begin < span.end; p++) {
        tci_deps_piece *piece = &w->pieces[p];
        if (span.writes) {
            piece->writer = launch;
            piece->reader = -1;
        } else {
            tci_deps_reader reader = {launch, piece->reader};
            piece->reader = w->n_readers;
            TCI_PUSH(w->s, w->readers, w->n_readers, w->cap_readers, reader);
        }
    }
}

/* Leaves out what another of them comes after. */
static void tci_deps_reduce(tci_deps *w, tc_launch *launches, int launch)
{
    int32_t *kept = TCI_NEW_ARRAY(w->s, int32_t, w->n_after + 1);
    int n_kept = 0;
    for (int i = 0; i < w->n_after; i++) {
        const tc_launch *before = &launches[w->after[i]];
        for (int j = 0; j < before->n_after; j++) {
            w->met[before->after[j]] = 0;
        }
    }
    for (int i = 0; i < w->n_after; i++) {
        if (w->met[w->after[i]] == launch + 1) {
            kept[n_kept++] = w->after[i];
        }
    }
    launches[launch].after = kept;
    launches[launch].n_after = n_kept;
}

TCI_FN void tci_deps_launches(tci_scratch *s, const tc_call *c, int first, tc_launch *launches,
                              int n)
{
    tci_deps w = {.s = s, .c = c, .first = first};
    w.met = TCI_NEW_ARRAY(s, int32_t, n + 1);
    tci_deps_cut(&w, n);
    for (int i = 0; i < n; i++) {
        int n_operands = tci_deps_count(&w, i);
        w.n_after = 0;
        for (int o = 0; o < n_operands; o++) {
            tci_deps_look(&w, i, tci_deps_operand(&w, i, o));
        }
        for (int writes = 0; writes < 2; writes++) { /* what it reads, it read before it wrote */
            for (int o = 0; o < n_operands; o++) {
                tci_deps_span span = tci_deps_operand(&w, i, o);
                if (span.writes == (writes != 0)) {
                    tci_deps_note(&w, i, span);
                }
            }
        }
        tci_deps_reduce(&w, launches, i);
    }
}
