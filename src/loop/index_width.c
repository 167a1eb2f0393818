/* loop/index_width.c - decides whether 32 bits hold every index of a loop nest (index width).
 *
 * In: a finished loop. Out: tci_loop.narrow. Design: each index expression has a range that
 * follows from the bounds of the FORs around it, the threads and the tasks; if every subexpression
 * fits 32 bits, a GPU computes an index with one instruction instead of several (a division by a
 * constant in three instructions instead of thirty). Data-dependent and symbolic values have no
 * range, and the loop keeps 64-bit indices. */
#include "../kernel/match_matrix_unit.h"
#include "ir.h"

/* Ranges are of what can happen and more: a quotient's dividend is never negative, though its range
 * may say so. */
typedef struct tci_lnarrow_range {
    bool known;
    int64_t lo, hi;
} tci_lnarrow_range;
typedef struct tci_lnarrow {
    const tci_loop *l;
    tci_lnarrow_range *indices, *lx;
} tci_lnarrow;

static tci_lnarrow_range tci_lnarrow_of(int64_t lo, int64_t hi)
{
    tci_lnarrow_range r = {lo >= INT32_MIN / 2 && hi <= INT32_MAX / 2 && lo <= hi, lo, hi};
    return r;
}

static tci_lnarrow_range tci_lnarrow_lx(tci_lnarrow *w, int x);

static tci_lnarrow_range tci_lnarrow_times(tci_lnarrow_range a, int64_t c)
{
    if (c < INT32_MIN || c > INT32_MAX) {
        return tci_lnarrow_of(1, 0);
    }
    return tci_lnarrow_of(TCI_MIN(a.lo * c, a.hi * c), TCI_MAX(a.lo * c, a.hi * c));
}

/* Of an expression of others; a, b and c (if there is one) are known. */
static tci_lnarrow_range tci_lnarrow_join(const tci_lx *e, tci_lnarrow_range a, tci_lnarrow_range b)
{
    int64_t lo = TCI_MAX(a.lo, 0), hi = TCI_MAX(a.hi, 0), c = tci_dim_known(e->c);
    switch (e->op) {
    case TCI_LX_ADD: return tci_lnarrow_of(a.lo + b.lo, a.hi + b.hi);
    case TCI_LX_MIN: return tci_lnarrow_of(TCI_MIN(a.lo, b.lo), TCI_MIN(a.hi, b.hi));
    case TCI_LX_MAX: return tci_lnarrow_of(TCI_MAX(a.lo, b.lo), TCI_MAX(a.hi, b.hi));
    case TCI_LX_MUL: return tci_lnarrow_times(a, c);
    case TCI_LX_DIV: return tci_lnarrow_of(lo / c, hi / c);
    default: return tci_lnarrow_of(0, TCI_MIN(c - 1, hi));
    }
}

/* The position of a template's main loop on an axis. */
static tci_lnarrow_range tci_lnarrow_given(const tci_matrix *x, int axis)
{
    int64_t size = axis == x->m_axis ? x->m : axis == x->n_axis ? x->n : 0;
    for (int i = 0; i < x->n_batch; i++) {
        size = axis == x->batch_axis[i] ? x->batch[i] : size;
    }
    return tci_lnarrow_of(0, size - 1);
}

static tci_lnarrow_range tci_lnarrow_find(tci_lnarrow *w, const tci_lx *e)
{
    tci_lnarrow_range a, b = tci_lnarrow_of(0, 0);
    if (!tci_dim_is_known(e->c)) {
        return tci_lnarrow_of(1, 0);
    }
    switch (e->op) {
    case TCI_LX_CONST: return tci_lnarrow_of(tci_dim_known(e->c), tci_dim_known(e->c));
    case TCI_LX_VAR: return w->indices[e->a];
    case TCI_LX_THREAD: return tci_lnarrow_of(0, w->l->threads - 1);
    case TCI_LX_ROW: return tci_lnarrow_of(0, w->l->rows - 1);
    case TCI_LX_TASK_BEGIN:
    case TCI_LX_TASK_END: return tci_lnarrow_of(0, tci_dim_known(w->l->n_tasks));
    case TCI_LX_GIVEN: return tci_lnarrow_given(w->l->matrix, (int)tci_dim_known(e->c));
    case TCI_LX_ADD:
    case TCI_LX_MIN:
    case TCI_LX_MAX: b = tci_lnarrow_lx(w, e->b); break;
    case TCI_LX_MUL:
    case TCI_LX_DIV:
    case TCI_LX_MOD: break;
    default: return tci_lnarrow_of(1, 0);
    }
    a = tci_lnarrow_lx(w, e->a);
    return a.known && b.known ? tci_lnarrow_join(e, a, b) : tci_lnarrow_of(1, 0);
}

static tci_lnarrow_range tci_lnarrow_lx(tci_lnarrow *w, int x)
{
    if (!w->lx[x].known) {
        w->lx[x] = tci_lnarrow_find(w, &w->l->lx[x]);
    }
    return w->lx[x];
}

static bool tci_lnarrow_block(tci_lnarrow *w, int block);

/* The variable ends one step beyond the last round. */
static bool tci_lnarrow_for(tci_lnarrow *w, const tci_lstmt *st)
{
    tci_lnarrow_range begin = tci_lnarrow_lx(w, st->x), end = tci_lnarrow_lx(w, st->n);
    int64_t step = tci_dim_known(st->imm);
    tci_lnarrow_range all = tci_lnarrow_of(begin.lo, TCI_MAX(begin.hi, end.hi + step));
    if (!begin.known || !end.known || !all.known) {
        return false;
    }
    w->indices[st->dst] = tci_lnarrow_of(begin.lo, TCI_MAX(begin.lo, end.hi - 1));
    return tci_lnarrow_block(w, st->body);
}

static bool tci_lnarrow_stmt(tci_lnarrow *w, const tci_lstmt *st)
{
    if (st->op == TCI_L_FROM_VALUE || st->op == TCI_L_FAULT) {
        return false;
    }
    if (st->op == TCI_L_FOR) {
        return tci_lnarrow_for(w, st);
    }
    bool fits = (st->x < 0 || tci_lnarrow_lx(w, st->x).known) &&
                (st->n < 0 || tci_lnarrow_lx(w, st->n).known);
    if (st->op == TCI_L_INDEX && fits) {
        w->indices[st->dst] = tci_lnarrow_lx(w, st->x);
    }
    return fits && (st->op != TCI_L_IF || tci_lnarrow_block(w, st->body));
}

static bool tci_lnarrow_block(tci_lnarrow *w, int block)
{
    const tci_lblock *b = &w->l->blocks[block];
    bool fits = true;
    for (int i = 0; i < b->n && fits; i++) {
        fits = tci_lnarrow_stmt(w, &b->stmts[i]);
    }
    return fits;
}

TCI_FN bool tci_loop_is_narrow(tci_scratch *s, const tci_loop *l)
{
    tci_lnarrow w = {l, TCI_NEW_ARRAY(s, tci_lnarrow_range, l->n_indices + 1),
                     TCI_NEW_ARRAY(s, tci_lnarrow_range, l->n_lx + 1)};
    return tci_dim_is_known(l->n_tasks) && tci_lnarrow_block(&w, 0);
}
