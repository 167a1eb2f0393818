/* plan/im2col_gemm.c - explicit im2col: convolutions with few output tiles, or with windows that no
 * TMA box describes, as a GEMM over a copy of the windows.
 *
 * In: a CONTRACT of bf16 or f16 values, whose one operand is windows of an image, and no batch
 * axis, on a GPU. Out: the copy [positions, taps] (positions: images and positions of windows;
 * taps: channels and window elements), the other operand as a matrix, a CONTRACT of two axes each,
 * which takes a route of its own (split-K, plan/tensor_core_split_k.c), and the result in the axes
 * of the old one.
 *
 * Design: implicit GEMM (plan/conv_layout.c) reads windows as TMA boxes and copies nothing, but
 * each tile iterates over all of K: a convolution of 64 images of 2 x 2 has 16 tiles of 72 steps
 * for 132 SMs. The copy is small then, and its K may be cut. Windows of few channels have no TMA
 * box at all. The route fits where the model of such kernels is faster than the kernel that it
 * replaces; the model has the constants of a kind of machine, so the choice is the same on every
 * GPU. */
#include "split_k.h"

enum {
    TCI_IM2COL_STEP = 320, /* cycles of a step of implicit GEMM on few tiles (measured, H200) */
    TCI_IM2COL_WAIT = 50,  /* cycles of a step of K where threads compute windows, at least, */
    TCI_IM2COL_LANES = 64, /* multiply-adds of an SM in a cycle there, */
    TCI_IM2COL_NARROW = 8  /* and where the result has fewer columns than the unit (measured) */
};
/* Time of the kernel that is replaced in which copy and product must be done. */
#define TCI_IM2COL_GAIN 0.85

typedef struct tci_im2col {
    const tci_algo *a;
    const tci_node *n;
    const tci_contraction *c;
    int which;         /* the operand that is windows */
    tci_axes taps;     /* the group of its channels and elements: K, or its own */
    tci_node *half[2]; /* the operands as f16 or bf16 */
    double cycles;     /* of the route */
} tci_im2col;

static tci_axes tci_im2col_own(int which)
{
    return which ? TCI_AXES_N : TCI_AXES_M;
}

/* Operand x in f16 or bf16; NULL: it is something else. */
static tci_node *tci_im2col_half(const tci_algo *a, tci_node *x)
{
    if (tci_dtype_is_half((tc_dtype)x->dtype)) {
        return x;
    }
    tci_node *cast = tci_below(x, TCI_THROUGH_MOVEMENT | TCI_THROUGH_ZEROS, a->forced);
    bool widens = cast->op == TCI_OP_CAST && !tci_table_has(a->forced, cast) &&
                  tci_dtype_is_half((tc_dtype)cast->in[0]->dtype);
    return widens ? tci_relayout_over(a, x, cast, cast->in[0]) : NULL;
}

/* Operand `which` below casts. */
static tci_node *tci_im2col_below(const tci_im2col *m, int which)
{
    return tci_below(m->n->in[which], TCI_THROUGH_CASTS, NULL);
}

/* Positions of the windows that operand `which` is, 0: it is none. Filters that are read in phases
 * are windows too, of one position. */
static double tci_im2col_positions(const tci_im2col *m, int which)
{
    const tci_node *w = tci_im2col_below(m, which);
    double positions = w->op == TCI_OP_WINDOW;
    for (int i = 0; w->op == TCI_OP_WINDOW && i < w->n_attr; i += 4) {
        positions *= (double)tci_dim_known(w->shape[w->attr[i]]);
    }
    return positions;
}

/* Finds the operand of windows; its window axes must be in one group. */
static bool tci_im2col_find_taps(tci_im2col *m)
{
    m->which = tci_im2col_positions(m, 0) < tci_im2col_positions(m, 1);
    const tci_node *w = tci_im2col_below(m, m->which);
    if (w->op != TCI_OP_WINDOW) {
        return false;
    }
    int first = w->in[0]->rank;
    bool fits = true, found = false;
    for (int i = 0; i < m->c->n_axes; i++) {
        const tci_contract_axis_of *axis = &m->c->axes[i];
        if (axis->at[m->which] >= first) {
            fits = fits && (!found || m->taps == (tci_axes)axis->group);
            m->taps = (tci_axes)axis->group;
            found = true;
        }
        bool other = axis->group == TCI_AXES_BATCH || axis->group == TCI_AXES_ALONE;
        fits = fits && !(other && tci_dim_lt(1, axis->size));
    }
    return found && fits && (m->taps == TCI_AXES_K || m->taps == tci_im2col_own(m->which));
}

/* The group that is contiguous in operand `which` as a matrix. */
static tci_axes tci_im2col_inner(const tci_im2col *m, int which)
{
    if (which == m->which) {
        return m->taps;
    }
    const tci_contract_operand *x = &m->c->in[which];
    bool summed = tci_contract_sums(m->n, x->labels[x->fastest]);
    return summed ? TCI_AXES_K : tci_im2col_own(which);
}

static bool tci_im2col_look(tci_im2col *m)
{
    const double *size = m->c->size;
    if (!m->c->is_known || m->n->rank < 2 || m->c->columns < 0 || !tci_im2col_find_taps(m)) {
        return false;
    }
    bool fits = size[TCI_AXES_M] >= TCI_MATRIX_FEW && size[TCI_AXES_N] >= TCI_MATRIX_FEW &&
                TCI_MAX(size[TCI_AXES_M], size[TCI_AXES_N]) <= INT32_MAX &&
                size[TCI_AXES_K] <= INT32_MAX && size[TCI_AXES_K] >= TCI_MATRIX_DEPTH &&
                2 * m->c->products >= TCI_MATRIX_FLOPS;
    for (int i = 0; i < 2 && fits; i++) {
        fits = (int64_t)size[tci_im2col_inner(m, i)] % TCI_MATRIX_ALIGN == 0;
        m->half[i] = fits ? tci_im2col_half(m->a, m->n->in[i]) : NULL;
        fits = m->half[i] != NULL;
    }
    return fits && m->half[0]->dtype == m->half[1]->dtype &&
           size[m->c->columns ? TCI_AXES_N : TCI_AXES_M] >= TCI_MATRIX_COLUMNS;
}

/* ---- the model ---- */

/* Cycles of the copy and the product. */
static double tci_im2col_cycles(const tci_im2col *m)
{
    const double *size = m->c->size;
    const double copy = 2 * size[TCI_AXES_K] * size[tci_im2col_own(m->which)];
    const tci_unit_gemm g = {.size = size,
                             .k = size[TCI_AXES_K],
                             .bytes = copy + m->c->in[1 - m->which].bytes,
                             .results = size[TCI_AXES_M] * size[TCI_AXES_N],
                             .sum_bytes = 4};
    return tci_unit_gemm_cycles(&g, tci_unit_gemm_parts(&g)) + TCI_SPLIT_K_LAUNCH +
           copy / TCI_SPLIT_K_CYCLE_BYTES;
}

/* Columns of the result that a tile may have: positions of one image where they come last. */
static double tci_im2col_columns(const tci_im2col *m)
{
    double columns = 1;
    if (m->c->columns != m->which) {
        return m->c->size[m->which ? TCI_AXES_M : TCI_AXES_N];
    }
    for (int i = m->n->rank - 1; i >= 0 && i >= m->n->rank - 2; i--) {
        bool own = m->c->axes[i].group == tci_im2col_own(m->which);
        columns *= own ? (double)tci_dim_known(m->n->shape[i]) : 1;
    }
    return columns;
}

/* Cycles of the kernel that computes the contraction otherwise. */
static double tci_im2col_replaced(const tci_im2col *m, bool boxes)
{
    const double *size = m->c->size;
    const bool narrow = tci_im2col_columns(m) < TCI_MATRIX_COLUMNS;
    if (!boxes || narrow) {
        int lanes = narrow ? TCI_IM2COL_NARROW : TCI_IM2COL_LANES;
        return TCI_MAX(m->c->products / (TCI_SPLIT_K_PROCESSORS * lanes),
                       size[TCI_AXES_K] * TCI_IM2COL_WAIT);
    }
    const tci_unit_gemm g = {.size = size,
                             .k = size[TCI_AXES_K],
                             .bytes = m->c->in[0].bytes + m->c->in[1].bytes,
                             .results = size[TCI_AXES_M] * size[TCI_AXES_N],
                             .sum_bytes = 4,
                             .step = TCI_IM2COL_STEP};
    return tci_unit_gemm_cycles(&g, 1);
}

/* Other copies of few channels compete by their cost, and a gradient of filters over boxes has its
 * K cut as it is. */
static bool tci_im2col_fits(tci_offer *o)
{
    const tci_algo *a = o->a;
    tci_offer other;
    tci_im2col *m = TCI_NEW(a->s, tci_im2col);
    *m = (tci_im2col){.a = a, .n = o->n, .c = o->c};
    o->found = m;
    if (!tci_plan_has_image_unit(a->machine) || !tci_route_reads_windows(a, o->c) ||
        !tci_im2col_look(m)) {
        return false;
    }
    m->cycles = tci_im2col_cycles(m);
    bool boxes = tci_route_fits(tci_route_channels_last(), a, o->n, o->c, &other);
    return tci_route_fits(tci_route_few_channels(), a, o->n, o->c, &other) ||
           (!(boxes && m->taps != TCI_AXES_K) &&
            m->cycles < TCI_IM2COL_GAIN * tci_im2col_replaced(m, boxes));
}

static double tci_im2col_cost(const tci_offer *o)
{
    const tci_im2col *m = o->found;
    return m->cycles / tci_machine_complete(o->a->machine).facts.ghz;
}

/* ---- the matrices ---- */

/* Writes the axes of a group, as positions in c->axes, in the order of the matrices: of taps as the
 * windows have them, but with that one last which is contiguous in the image. How many. */
static int tci_im2col_group(const tci_im2col *m, tci_axes group, int *list)
{
    const tci_contraction *c = m->c;
    const int by = group == m->taps || group == TCI_AXES_K ? m->which : 2;
    tci_node *w = tci_im2col_below(m, m->which);
    const tci_node *image = tci_plan_image(m->a, w);
    int n = 0, last = -1;
    for (int at = 0; at < c->n_axes; at++) {
        for (int i = 0; i < c->n_axes; i++) {
            if (c->axes[i].group == group && c->axes[i].at[by] == at) {
                bool fast = group == m->taps && image && at < w->in[0]->rank &&
                            tci_plan_image_axis(w, image, at) == tci_fastest_axis(image);
                last = fast ? n : last;
                list[n++] = i;
            }
        }
    }
    for (int i = last; last >= 0 && i + 1 < n; i++) {
        int axis = list[i];
        list[i] = list[i + 1];
        list[i + 1] = axis;
    }
    return n;
}

/* Operand `which` in memory as a matrix of the groups outer and inner. */
static tci_node *tci_im2col_matrix(const tci_im2col *m, int which, tci_axes outer, tci_axes inner)
{
    tci_node *x = m->half[which];
    int *list = TCI_NEW_ARRAY(m->a->s, int, m->c->n_axes);
    int64_t *order = TCI_NEW_ARRAY(m->a->s, int64_t, x->rank + 1);
    bool *has = TCI_NEW_ARRAY(m->a->s, bool, x->rank + 1);
    const tci_dim shape[2] = {(int64_t)m->c->size[outer], (int64_t)m->c->size[inner]};
    const tci_axes groups[2] = {outer, inner};
    int rank = 0;
    for (int g = 0; g < 2; g++) {
        int n = tci_im2col_group(m, groups[g], list);
        for (int i = 0; i < n; i++) {
            int at = m->c->axes[list[i]].at[which];
            order[rank++] = at;
            has[at] = true;
        }
    }
    for (int i = 0; i < x->rank; i++) { /* those of one element that are of no group */
        if (!has[i]) {
            order[rank++] = i;
        }
    }
    bool windows = which == m->which;
    x = tci_relayout(m->a, x,
                     (tci_relayout_to){.order = order, .is_turned = true, .is_own = windows});
    return tci_build_reshape(m->a->g, x, 2, shape);
}

/* r, a matrix of the groups rows and columns, with the axes of the result. */
static tci_node *tci_im2col_back(const tci_im2col *m, tci_node *r, tci_axes rows, tci_axes columns)
{
    int *list = TCI_NEW_ARRAY(m->a->s, int, m->c->n_axes), rank = 0;
    int *perm = TCI_NEW_ARRAY(m->a->s, int, m->n->rank + 1);
    tci_dim *shape = TCI_NEW_ARRAY(m->a->s, tci_dim, m->n->rank + 1);
    const tci_axes groups[2] = {rows, columns};
    for (int i = 0; i < m->n->rank; i++) { /* batch axes of one element */
        if (m->c->axes[i].group == TCI_AXES_BATCH) {
            perm[i] = rank;
            shape[rank++] = 1;
        }
    }
    for (int g = 0; g < 2; g++) {
        int n = tci_im2col_group(m, groups[g], list);
        for (int i = 0; i < n; i++) {
            const tci_contract_axis_of *axis = &m->c->axes[list[i]];
            perm[axis->at[2]] = rank;
            shape[rank++] = axis->size;
        }
    }
    r = tci_build_reshape(m->a->g, r, rank, shape);
    return tci_build_permute(m->a->g, r, rank, perm);
}

static tci_node *tci_im2col_build(const tci_offer *o)
{
    static const int64_t labels[TCI_AXES_COUNT] = {0, 0, 1, 2, 0};
    const tci_im2col *m = o->found;
    const tci_axes columns = m->c->columns ? TCI_AXES_N : TCI_AXES_M;
    const tci_axes rows = m->c->columns ? TCI_AXES_M : TCI_AXES_N;
    const int64_t out[2] = {labels[rows], labels[columns]};
    const tci_dim shape[2] = {(int64_t)m->c->size[rows], (int64_t)m->c->size[columns]};
    int64_t in[2][2];
    tci_contract_form f = {.labels = {in[0], in[1], out}, .rank = {2, 2, 2}};
    for (int i = 0; i < 2; i++) {
        tci_axes inner = tci_im2col_inner(m, i);
        tci_axes outer = inner == TCI_AXES_K ? tci_im2col_own(i) : TCI_AXES_K;
        in[i][0] = labels[outer];
        in[i][1] = labels[inner];
        f.in[i] = tci_build_cast(m->a->g, tci_im2col_matrix(m, i, outer, inner),
                                 (tc_dtype)m->n->in[i]->dtype);
    }
    tci_node *r = tci_contract_make(m->a->s, m->a->g, &f, (tc_dtype)m->n->dtype, shape);
    return tci_im2col_back(m, m->a->router->contract(m->a, r), rows, columns);
}

TCI_BLOCK_FN const tci_route *tci_route_im2col(void)
{
    static const tci_route row = {
        "im2col copy",   TCI_SUMS_UNIT_RUNS, TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
        tci_im2col_fits, tci_im2col_cost,    tci_im2col_build};
    return &row;
}
