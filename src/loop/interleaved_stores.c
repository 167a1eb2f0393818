/* loop/interleaved_stores.c - emits interleaved stores: shuffles the phases of a strided
 * convolution's data gradient together in registers, so that stores are contiguous.
 *
 * In: a pointwise stage and a tile whose rows are all elements of a short axis that is interleaved
 * with the vector axis in the output, as the phases of a strided convolution's gradient are. Out:
 * its stores, as contiguous vectors. Design: vectors of all phases are interleaved by halves, as
 * often as the number of phases can be halved. */
#include "interleaved_stores.h"

TCI_FN int tci_interleave_axis(const tci_kernel *k, int vec_axis)
{
    int found = -1;
    for (int axis = 0; axis < k->n_outer && k->n_stores > 0 && found < 0; axis++) {
        tci_dim size = k->axes[axis].size;
        bool fits = axis != vec_axis && (size == 2 || size == TCI_INTERLEAVE_MOST);
        for (int i = 0; i < k->n_stores && fits; i++) {
            const tci_kstore *store = &k->stores[i];
            tci_dim phase = 0, place = 0;
            fits = store->mode == TCI_MODE_SET && store->guard < 0 &&
                   tci_build_coef(k, store->x, axis, &phase) && phase == 1 &&
                   tci_build_coef(k, store->x, vec_axis, &place) && place == size;
        }
        found = fits ? axis : -1;
    }
    return found;
}

/* n vectors, `step` apart, interleaved to contiguous ones: out[0] .. out[n - 1]. */
static void tci_interleave_vectors(tci_build *b, const int *v, int n, int step, int *out)
{
    int halves[2][TCI_INTERLEAVE_MOST];
    if (n == 1) {
        out[0] = v[0];
        return;
    }
    for (int i = 0; i < 2; i++) {
        tci_interleave_vectors(b, v + i * step, n / 2, 2 * step, halves[i]);
    }
    for (int i = 0; i < n / 2; i++) {
        out[2 * i] = tci_build_swap(b, TCI_MEM_WEAVE_LOW, halves[0][i], halves[1][i], 0);
        out[2 * i + 1] = tci_build_swap(b, TCI_MEM_WEAVE_HIGH, halves[0][i], halves[1][i], 0);
    }
}

/* The statement where `left`, an index expression, is from lo to hi. */
static void tci_interleave_where(tci_build *b, tci_lstmt st, int left, int64_t lo, int64_t hi)
{
    tci_dim known = 0;
    tci_lopen some;
    bool is_const = tci_lx_is_const(b->l, left, &known) && tci_dim_is_known(known);
    if (is_const && (tci_dim_known(known) < lo || tci_dim_known(known) > hi)) {
        return;
    }
    if (!is_const) {
        tci_build_if(b, tci_build_in_range(b, left, lo, hi), &some);
    }
    tci_build_mem(b, st, TC_F32, 1, b->cur);
    if (!is_const) {
        tci_build_close(b, &some);
    }
}

/* Stores those of the n current vectors that have elements among the first `count`, an index
 * expression; -1: all. */
static void tci_interleave_store(tci_build *b, const tci_kstore *store, tci_lin at, const int *v,
                                 int n, int count)
{
    tci_loop *l = b->l;
    int64_t lanes = l->lanes, all = n * lanes;
    for (int i = 0; i < n; i++) {
        int skip = tci_lx_const(l, -i * lanes);
        int left = tci_lx_make(l, TCI_LX_ADD, count < 0 ? tci_lx_const(l, all) : count, skip, 0);
        tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
        st.mem = TCI_MEM_STORE;
        st.base = store->operand;
        st.x = tci_build_lx(b, tci_lin_plus(at, i * lanes));
        st.args[0] = v[i];
        tci_interleave_where(b, st, left, lanes, all);
        st.mem = TCI_MEM_STORE_N;
        st.n = left;
        tci_interleave_where(b, st, left, 1, lanes - 1);
    }
}

TCI_FN void tci_interleave_stores(tci_build *b, int stage, const tci_tile *tile)
{
    const tci_kernel *k = b->k;
    int rows = tile->n_rows, vecs = tile->n_vecs, points = rows * vecs;
    int *values = TCI_NEW_ARRAY(b->s, int, k->n_stores *points + 1);
    for (int i = 0; i < points; i++) { /* all before the stores: an output may be an input */
        tci_stage_point(b, tile, i);
        for (int s = 0; s < k->n_stores; s++) {
            int value = k->stores[s].stage == stage ? tci_build_value(b, k->stores[s].value) : -1;
            values[s * points + i] = value < 0 ? -1 : tci_build_widen(b, value, b->l->lanes);
        }
    }
    for (int i = 0; i < k->n_stores * vecs; i++) {
        const tci_kstore *store = &k->stores[i / vecs];
        int out[TCI_INTERLEAVE_MOST], vec = i % vecs, n = tile->vecs[vec]->n;
        if (store->stage != stage) {
            continue;
        }
        tci_stage_point(b, tile, vec);
        tci_lin at = tci_build_kx(b, store->x);
        tci_interleave_vectors(b, values + i / vecs * points + vec, rows, vecs, out);
        tci_interleave_store(b, store, at, out, rows,
                             n < 0 ? -1 : tci_lx_make(b->l, TCI_LX_MUL, n, -1, rows));
    }
}
