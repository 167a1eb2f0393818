/* kernel/window_overlap.c - finds the overlap of neighbouring windows: output rows whose windows
 * read the same input row.
 *
 * In: a kernel in final form. Out: the strides (i, j), in output rows and in elements of the
 * window, at which the windows of neighbouring output rows read the same input row. Design: the
 * index is affine in row and element, so the strides are the two coefficients over their greatest
 * common divisor, if they are smaller than the numbers of rows and elements. */
#include "window_overlap.h"

enum {
    TCI_WINDOW_OVERLAP_LEAST = 3, /* elements of a window's side, */
    TCI_WINDOW_OVERLAP_MOST = 16  /* at most, and positions between two of them */
};

static int64_t tci_window_overlap_gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a < 0 ? -a : a;
}

TCI_FN tci_window_overlap tci_window_overlap_find(const tci_kernel *k, int vec, int axis, int inner)
{
    tci_window_overlap found = {0, 0};
    tci_dim base, *coef = TCI_NEW_ARRAY(k->s, tci_dim, k->n_axes + 1);
    tci_dim size = k->axes[inner].size;
    bool sums = k->n_reds == 1 && k->reds[0].op == TCI_RED_DOT &&
                k->reds[0].order == TCI_ORDER_CHAIN && k->reds[0].points == 0 &&
                tci_dim_is_known(size) && tci_dim_known(size) >= TCI_WINDOW_OVERLAP_LEAST &&
                tci_dim_known(size) <= TCI_WINDOW_OVERLAP_MOST;
    for (int i = 0; i < k->n_insts && sums; i++) {
        const tci_kinst *in = &k->insts[i];
        if (in->op != TCI_K_LOAD || !tci_kx_affine(k, in->x, coef, &base) || coef[vec] == 0 ||
            !tci_dim_is_known(coef[axis]) || !tci_dim_is_known(coef[inner]) ||
            tci_dim_known(coef[axis]) <= 0 || coef[inner] == 0) {
            continue;
        }
        int64_t row = tci_dim_known(coef[axis]), element = tci_dim_known(coef[inner]);
        int64_t both = tci_window_overlap_gcd(row, element);
        if (row / both < tci_dim_known(size) && element / both <= TCI_WINDOW_OVERLAP_MOST &&
            element / both >= -TCI_WINDOW_OVERLAP_MOST) {
            found = (tci_window_overlap){(int)(row / both), (int)(element / both)};
        }
    }
    return found;
}

/* True if windows of neighbours along any outer axis except the vector axis overlap in elements
 * along `inner`. */
static bool tci_window_overlap_any(const tci_kernel *k, int vec, int inner)
{
    bool any = false;
    for (int a = 0; a < k->n_outer; a++) {
        any = any || (a != vec && tci_window_overlap_find(k, vec, a, inner).row > 0);
    }
    return any;
}

TCI_FN bool tci_window_overlap_is_across(const tci_kernel *k, int vec)
{
    const tci_kstage *st = &k->stages[0];
    if (k->n_reds != 1 || k->reds[0].op != TCI_RED_DOT || st->kind != TCI_STAGE_REDUCE ||
        st->n_axes < 2 || st->n_kept > 0 || vec < 0) {
        return false;
    }
    uint64_t outer = k->n_outer < 63 ? ((uint64_t)1 << k->n_outer) - 1 : ~(uint64_t)0;
    uint64_t one = k->insts[k->reds[0].in[0]].axes, other = k->insts[k->reds[0].in[1]].axes;
    bool alone = (one & ~other & outer) == 0 || (other & ~one & outer) == 0;
    return alone && tci_window_overlap_any(k, vec, st->axes[st->n_axes - 2]) &&
           !tci_window_overlap_any(k, vec, st->axes[st->n_axes - 1]);
}
