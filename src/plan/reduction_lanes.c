/* plan/reduction_lanes.c - chooses, before fusion, the summation order of each reduction and scan:
 * partial sums in interleaved lanes (LANES, BLOCK_SCAN) or one sequential sum per output element
 * (CHAIN).
 *
 * In: a graph. Out: for each REDUCE and SCAN whether its class is LANES (BLOCK_SCAN) or CHAIN
 * (kernel/ir.h), the axes over which elements are assigned to lanes, and the number of lanes.
 *
 * Design: the class decides the bits of a sum, so it follows from the graph alone, and later
 * decisions (which ops share a kernel, where vectors run, which instructions exist) must keep it.
 * All reductions of a group have one class; one whose result does not depend on the order fits
 * every class.
 *
 * On a CPU the graph is taken before any choice of layout, algorithm or kernel. The class is
 * stored in a table of the graph, and tci_graph_rebuild passes it on to a replacing node. On a GPU
 * it is the graph from which groups are made, whose layouts and parts follow from shapes and
 * device.
 *
 * For each axis of the reduced value the rule counts how many elements would be read with stride 1
 * along it, through views and elementwise ops down to memory, contractions and other reductions,
 * whose results are row-major.
 *
 *   CHAIN  if more loads are contiguous along the last kept axis than along the last reduced one,
 *          or rows are short (contiguous or not), or are made of two short rows, and there are
 *          enough adjacent results for a vector of them
 *   LANES  otherwise: the reduction runs along contiguous rows. Lanes are assigned along the last
 *          reduced axis, merged with the preceding axes as long as all accesses are linear in the
 *          merged axis and they do not fill the lanes: until their size is a multiple of the lanes,
 *          or TCI_ASSOC_FILLED. Kernels may split and merge that axis if it changes no lane
 *          (kernel/canonicalize.c). A CPU has 64 lanes, a GPU as many as let a block hold the row
 *          in a few vectors; those of one thread are combined first.
 *
 * A matrix that a contraction computes is computed transposed if only its transpose is read
 * (rewrite/slice_pushdown.c). So that other readers of the matrix decide no class, its transpose
 * counts as row-major in either case; on GPUs it is looked at before contractions are replaced.
 *
 * A reduction that plan/decompose.c makes from another keeps its class if it reduces the same rows,
 * on a CPU; others are decided by the same rule when first requested. */
#include "fusion_groups.h"

enum {
    TCI_ASSOC_SHORT_ROW = 16,  /* elements of rows that are better many side by side */
    TCI_ASSOC_WIDE = 16,       /* least neighbours for that, */
    TCI_ASSOC_POINTS = 1024,   /* or results, of rows no longer than there are neighbours */
    TCI_ASSOC_PAIRS_ROW = 256, /* elements of rows in pairs that lanes of their own take */
    TCI_ASSOC_FILLED = 256,    /* elements of an axis that needs no other to fill lanes */
    /* On GPUs: */
    TCI_ASSOC_SHARED_ROW = 48,    /* elements of rows that a block shares out, */
    TCI_ASSOC_POINTS_EACH = 4096, /* unless there are this many results, a thread each */
    TCI_ASSOC_FILLED_BLOCK = 2 * TCI_VLANES_MAX, /* as TCI_ASSOC_FILLED */
    TCI_ASSOC_WARP = 32,                         /* least threads of a block */
    TCI_ASSOC_VECTORS = 8, /* of a row that a block should hold at once, at most */
    TCI_ASSOC_ROW = 1024   /* elements of a row whose size is a symbol, at most */
};

/* Elements of n; of symbolic sizes at most. */
static double tci_assoc_elements(const tci_node *n)
{
    double elements = 1;
    for (int i = 0; i < n->rank; i++) {
        elements *= (double)tci_dim_most(n->shape[i]);
    }
    return elements;
}

/* ---- what is read along each axis ---- */

/* NULL: n was not looked at. */
static tci_assoc_axis *tci_assoc_of(const tci_table *known, const tci_node *n)
{
    const tci_association *is = tci_table_find(known, n);
    return is ? is->axes : NULL;
}

static void tci_assoc_row_major(const tci_node *n, tci_assoc_axis *axes)
{
    bool found = false;
    for (int i = n->rank - 1; i >= 0; i--) {
        bool last = !found && n->shape[i] != 1;
        axes[i] = (tci_assoc_axis){last ? tci_assoc_elements(n) : 0, true};
        found = found || last;
    }
}

static void tci_assoc_memory(const tci_node *n, tci_assoc_axis *axes)
{
    for (int i = 0; i < n->rank; i++) {
        bool unit = n->strides[i] == 1 && n->shape[i] != 1;
        axes[i].along = unit ? tci_assoc_elements(n) : 0;
        axes[i].joined = i > 0 && n->strides[i - 1] == tci_dim_mul(n->strides[i], n->shape[i]);
    }
}

/* True if an axis of n is read with stride 1. */
static bool tci_assoc_has_unit(const tci_node *n, const tci_assoc_axis *axes)
{
    bool has = false;
    for (int i = 0; i < n->rank; i++) {
        has = has || axes[i].along > 0;
    }
    return has;
}

/* On GPUs an operand that is read with stride 1 along no axis, as what a pool or a convolution of
 * steps gives back, does not part axes that others traverse as one: if it is not stored, its index
 * is computed for each element in any case. */
static void tci_assoc_pointwise(const tci_table *known, const tci_node *n, bool blocks,
                                tci_assoc_axis *axes)
{
    bool units = false;
    for (int k = 0; k < n->n_in && blocks; k++) {
        units = units || tci_assoc_has_unit(n->in[k], tci_assoc_of(known, n->in[k]));
    }
    for (int i = 0; i < n->rank; i++) {
        axes[i] = (tci_assoc_axis){0, true};
    }
    for (int k = 0; k < n->n_in; k++) {
        const tci_assoc_axis *in = tci_assoc_of(known, n->in[k]);
        bool counts = !units || tci_assoc_has_unit(n->in[k], in);
        for (int i = 0; i < n->rank && n->in[k]->rank == n->rank; i++) {
            axes[i].along = TCI_MAX(axes[i].along, in[i].along);
            axes[i].joined = axes[i].joined && (in[i].joined || !counts);
        }
    }
}

/* True if axis i of PERMUTE n follows the one before it also in what n reads, but for axes of one
 * element. */
static bool tci_assoc_follows(const tci_node *n, const tci_assoc_axis *in, int i)
{
    int before = i - 1, from = (int)n->attr[i];
    bool joined = true;
    while (before > 0 && n->shape[before] == 1) {
        before--;
    }
    for (; from > 0 && joined; from--) {
        joined = in[from].joined;
        if (n->in[0]->shape[from - 1] != 1) {
            break;
        }
    }
    return joined && before >= 0 && from > 0 && n->attr[before] == from - 1;
}

/* True if n is the transpose of a contraction's matrix, which may be computed transposed. */
static bool tci_assoc_is_transpose(const tci_node *n)
{
    return n->op == TCI_OP_PERMUTE && n->rank == 2 && n->in[0]->op == TCI_OP_CONTRACT;
}

/* On a CPU no axis of one element may be between axes that are traversed as one. */
static void tci_assoc_permute(const tci_node *n, bool blocks, const tci_assoc_axis *in,
                              tci_assoc_axis *axes)
{
    if (tci_assoc_is_transpose(n)) {
        tci_assoc_row_major(n, axes);
        return;
    }
    for (int i = 0; i < n->rank; i++) {
        bool next = i > 0 && n->attr[i] == n->attr[i - 1] + 1 && in[n->attr[i]].joined;
        bool follows = blocks && (n->shape[i] == 1 || tci_assoc_follows(n, in, i));
        axes[i] = (tci_assoc_axis){in[n->attr[i]].along, next || follows};
    }
}

static void tci_assoc_expand(const tci_node *n, const tci_assoc_axis *in, tci_assoc_axis *axes)
{
    const tci_node *x = n->in[0];
    for (int i = 0; i < n->rank; i++) {
        bool spread = x->rank != n->rank || x->shape[i] != n->shape[i];
        bool before = i > 0 && (x->rank != n->rank || x->shape[i - 1] != n->shape[i - 1]);
        axes[i].along = spread ? 0 : in[i].along;
        axes[i].joined = spread ? before : !before && in[i].joined;
    }
}

/* Elements of n for each one of what it reads. */
static double tci_assoc_scale(const tci_node *n)
{
    double from = tci_assoc_elements(n->in[0]);
    return from > 0 ? tci_assoc_elements(n) / from : 0;
}

static void tci_assoc_slice(const tci_node *n, const tci_assoc_axis *in, tci_assoc_axis *axes)
{
    const tci_node *x = n->in[0];
    for (int i = 0; i < n->rank; i++) {
        bool unit = n->attr[2 * i + 1] == 1 || n->attr[2 * i + 1] == -1;
        bool whole = n->attr[2 * i + 1] == 1 && x->shape[i] == n->shape[i];
        bool before = i > 0 && n->attr[2 * i - 1] == 1;
        double along = in[i].along * tci_assoc_scale(n);
        axes[i] = (tci_assoc_axis){unit ? along : 0, whole && before && in[i].joined};
        /* one part of pairs: every other element is as good as each */
        if (i > 0 && n->shape[i] == 1 && x->shape[i] == 2 && in[i].joined) {
            axes[i - 1].along = TCI_MAX(axes[i - 1].along, along);
        }
    }
}

static void tci_assoc_pad(const tci_node *n, const tci_assoc_axis *in, tci_assoc_axis *axes)
{
    for (int i = 0; i < n->rank; i++) {
        bool whole = n->in[0]->shape[i] == n->shape[i];
        bool before = i > 0 && n->in[0]->shape[i - 1] == n->shape[i - 1];
        axes[i].along = in[i].along * tci_assoc_scale(n);
        axes[i].joined = whole && before && in[i].joined;
    }
}

static void tci_assoc_window(const tci_node *n, const tci_assoc_axis *in, tci_assoc_axis *axes)
{
    int rank = n->in[0]->rank;
    for (int i = 0; i < rank; i++) {
        axes[i] = (tci_assoc_axis){in[i].along * tci_assoc_scale(n), in[i].joined};
    }
    for (int w = 0; w < n->n_attr / 4; w++) {
        const int64_t *a = n->attr + 4 * w; /* axis, kernel, stride, dilation */
        axes[rank + w] = (tci_assoc_axis){a[3] == 1 ? axes[a[0]].along : 0, false};
        axes[a[0]].along = a[2] == 1 ? axes[a[0]].along : 0;
        axes[a[0]].joined = false;
        if (a[0] + 1 < rank) {
            axes[a[0] + 1].joined = false;
        }
    }
}

/* Parts of a RESHAPE: axes [*i, *i_end) of what it reads are axes [*j, *j_end) of it. */
static void tci_assoc_part(const tci_node *x, const tci_node *n, int i, int j, int *i_end,
                           int *j_end)
{
    tci_dim from = 1, to = 1;
    *i_end = i;
    *j_end = j;
    do {
        bool known = tci_dim_is_known(from) && tci_dim_is_known(to);
        bool reads = *i_end < x->rank && (*j_end == n->rank || !known || tci_dim_le(from, to));
        if (reads) {
            from = tci_dim_mul(from, x->shape[(*i_end)++]);
        } else {
            to = tci_dim_mul(to, n->shape[(*j_end)++]);
        }
        if (*j_end == j && *j_end < n->rank && reads) {
            to = tci_dim_mul(to, n->shape[(*j_end)++]);
        }
    } while (from != to && (*i_end < x->rank || *j_end < n->rank));
}

/* The last axis of [from, to) that has more than one element; -1: none has. */
static int tci_assoc_last(const tci_node *n, int from, int to)
{
    int last = -1;
    for (int i = from; i < to; i++) {
        last = n->shape[i] != 1 ? i : last;
    }
    return last;
}

/* True if axis b of part [j, j_end) of RESHAPE n and the one before it are traversed as one: both
 * are of one axis of what it reads, or those that meet where they do are. */
static bool tci_assoc_splits(const tci_node *n, const tci_assoc_axis *in, int i, int i_end, int b,
                             int j_end)
{
    const tci_node *x = n->in[0];
    int64_t to = 1, from = 1;
    for (int c = b; c < j_end; c++) {
        to *= tci_dim_is_known(n->shape[c]) ? tci_dim_known(n->shape[c]) : 0;
    }
    for (int a = i_end - 1; a > i && from <= to; a--) {
        from *= tci_dim_is_known(x->shape[a]) ? tci_dim_known(x->shape[a]) : 0;
        if (from == to && !in[a].joined) {
            return false;
        }
    }
    return to > 0;
}

/* On a CPU the axes of a part are traversed as one if all that it reads are. */
static void tci_assoc_reshape(const tci_node *n, bool blocks, const tci_assoc_axis *in,
                              tci_assoc_axis *axes)
{
    const tci_node *x = n->in[0];
    for (int i = 0, j = 0, i_end, j_end; j < n->rank; i = i_end, j = j_end) {
        tci_assoc_part(x, n, i, j, &i_end, &j_end);
        bool joined = true;
        for (int a = i + 1; a < i_end; a++) {
            joined = joined && in[a].joined;
        }
        for (int b = j; b < j_end; b++) {
            bool splits = blocks && b > j && tci_assoc_splits(n, in, i, i_end, b, j_end);
            bool first = i < x->rank && i > 0 && in[i].joined;
            axes[b] = (tci_assoc_axis){0, b > j ? joined || splits : first};
        }
        int from = tci_assoc_last(x, i, i_end), to = tci_assoc_last(n, j, j_end);
        if (from >= 0 && to >= 0) {
            axes[to].along = in[from].along;
        }
    }
}

/* Of values that are computed at an index of their own: along axis `axis` each element may be
 * another one. On GPUs what is concatenated counts as if it were stored. */
static void tci_assoc_along(const tci_node *n, int64_t axis, bool blocks, tci_assoc_axis *axes)
{
    bool parts = !blocks || n->op != TCI_OP_CAT;
    tci_assoc_row_major(n, axes);
    for (int i = 0; i < n->rank; i++) {
        axes[i].joined = !parts || (i != axis && i != axis + 1);
    }
}

static tci_assoc_axis *tci_assoc_look(tci_scratch *s, const tci_table *known, const tci_node *n,
                                      bool blocks)
{
    tci_assoc_axis *axes = TCI_NEW_ARRAY(s, tci_assoc_axis, n->rank + 1);
    const tci_assoc_axis *in = n->n_in > 0 ? tci_assoc_of(known, n->in[0]) : NULL;
    switch ((int)n->op) {
    case TCI_OP_PERMUTE: tci_assoc_permute(n, blocks, in, axes); break;
    case TCI_OP_EXPAND: tci_assoc_expand(n, in, axes); break;
    case TCI_OP_SLICE: tci_assoc_slice(n, in, axes); break;
    case TCI_OP_PAD: tci_assoc_pad(n, in, axes); break;
    case TCI_OP_WINDOW: tci_assoc_window(n, in, axes); break;
    case TCI_OP_RESHAPE: tci_assoc_reshape(n, blocks, in, axes); break;
    case TCI_OP_BARRIER: return tci_assoc_of(known, n->in[0]);
    case TCI_OP_CAT:
    case TCI_OP_GATHER: tci_assoc_along(n, n->attr[0], blocks, axes); break;
    default:
        if (tci_op_is(n->op, TCI_IS_POINTWISE)) {
            tci_assoc_pointwise(known, n, blocks, axes);
        } else if (tci_op_is(n->op, TCI_IS_MEMORY) && n->strides) {
            tci_assoc_memory(n, axes);
        } else {
            tci_assoc_row_major(n, axes);
        }
    }
    return axes;
}

/* ---- the choice ---- */

/* A fold of x along some of its axes, in ascending order. */
typedef struct tci_assoc_fold {
    const tci_node *x;
    int n_axes;
    const int64_t *axes;
    const tci_assoc_axis *read; /* per axis of x */
    double results;
    int bytes;     /* of the widest part of the accumulator, and of x */
    int64_t parts; /* of a SCAN of blocks, each of which is a row; else 1 */
    bool linked;   /* it is one whose parts are */
    bool blocks;   /* on a GPU */
} tci_assoc_fold;

static bool tci_assoc_folds(const tci_assoc_fold *f, int axis)
{
    bool folds = false;
    for (int i = 0; i < f->n_axes; i++) {
        folds = folds || f->axes[i] == axis;
    }
    return folds;
}

/* Elements of the axes of x that end with `axis`, are kept or are not, and are traversed as one. */
static double tci_assoc_line(const tci_assoc_fold *f, int axis)
{
    double line = (double)tci_dim_most(f->x->shape[axis]);
    bool folds = tci_assoc_folds(f, axis);
    for (; axis > 0 && f->read[axis].joined && tci_assoc_folds(f, axis - 1) == folds; axis--) {
        line *= (double)tci_dim_most(f->x->shape[axis - 1]);
    }
    return line;
}

/* Number of folded axes, up to number `last`, that form the axis of lanes. */
static int tci_assoc_run(const tci_assoc_fold *f, int last)
{
    tci_dim size = f->x->shape[f->axes[last]];
    int run = 1;
    for (int i = last; i > 0; i--, run++) {
        int64_t n = tci_dim_is_known(size) ? tci_dim_known(size) : 0;
        bool filled = f->blocks ? n >= TCI_ASSOC_FILLED_BLOCK
                                : n >= TCI_ASSOC_FILLED || (n > 0 && n % TCI_VLANES == 0);
        bool next = f->axes[i - 1] == f->axes[i] - 1 && f->read[f->axes[i]].joined;
        if (filled || !next) {
            break;
        }
        size = tci_dim_mul(size, f->x->shape[f->axes[i - 1]]);
    }
    return run;
}

/* Elements of axes [first, end) of the folded ones: as many as a class may follow from. */
static int64_t tci_assoc_count(const tci_assoc_fold *f, int first, int end)
{
    int64_t n = 1;
    for (int i = first; i < end; i++) {
        tci_dim size = f->x->shape[f->axes[i]];
        int64_t most = tci_dim_is_known(size) ? tci_dim_known(size)
                                              : TCI_MIN(tci_dim_most(size), TCI_ASSOC_ROW);
        n = TCI_MIN(n, INT32_MAX) * TCI_MIN(TCI_MAX(most, 1), INT32_MAX);
    }
    return n;
}

/* The number of the class, of lanes along the last `run` axes. A GPU has as many as let a block
 * hold the row, of lines no shorter than a fourth of it, in a few vectors. */
static void tci_assoc_number(const tci_assoc_fold *f, tci_association *as)
{
    as->n = TCI_VLANES;
    if (!f->blocks) {
        return;
    }
    int64_t all = tci_assoc_count(f, 0, f->n_axes) / f->parts, threads = TCI_ASSOC_WARP;
    int64_t line = tci_assoc_count(f, f->n_axes - as->run, f->n_axes) / f->parts;
    all = TCI_MIN(all, line * (TCI_ASSOC_VECTORS / 2));
    as->near = (uint8_t)TCI_MAX(TCI_CLASS_THREAD_BYTES / f->bytes, 1);
    while (threads < TCI_CLASS_THREADS && threads * as->near * TCI_ASSOC_VECTORS < all) {
        threads *= 2;
    }
    as->n = (int16_t)TCI_MIN(TCI_MAX(threads * as->near, TCI_VLANES), TCI_VLANES_MAX);
}

/* True if the neighbours along the last kept axis, `across` of them, are enough for each lane to
 * have one. On GPUs few results would leave the device idle for as long as one thread takes for
 * a row, which a block shares out instead, unless the row is short. */
static bool tci_assoc_is_wide(const tci_assoc_fold *f, double row, double across)
{
    bool busy = !f->blocks || row <= TCI_ASSOC_SHARED_ROW || f->results >= TCI_ASSOC_POINTS_EACH;
    return across >= TCI_ASSOC_WIDE && busy;
}

static tci_association tci_assoc_choose(const tci_assoc_fold *f)
{
    int last = f->n_axes - 1, kept = f->x->rank - 1;
    while (last >= 0 && f->x->shape[f->axes[last]] == 1) {
        last--;
    }
    while (kept >= 0 && (f->x->shape[kept] == 1 || tci_assoc_folds(f, kept))) {
        kept--;
    }
    if (last < 0) {
        return (tci_association){.known = true};
    }
    int run = tci_assoc_run(f, last);
    tci_association lanes = {.known = true,
                             .lanes = true,
                             .run = (int16_t)(f->n_axes - last - 1 + run)};
    tci_assoc_number(f, &lanes);
    if (kept < 0 || f->linked) {
        return lanes;
    }
    int axis = (int)f->axes[last];
    double in = f->read[axis].along, out = f->read[kept].along;
    double row = tci_assoc_line(f, axis) / (double)f->parts, across = tci_assoc_line(f, kept);
    bool wide = tci_assoc_is_wide(f, row, across);
    bool many = wide || ((f->blocks || row <= across) && f->results >= TCI_ASSOC_POINTS);
    bool brief = row < TCI_ASSOC_SHORT_ROW && many;
    bool pairs = !f->blocks && wide && row <= TCI_ASSOC_PAIRS_ROW && in > 0 &&
                 in < tci_assoc_elements(f->x);
    return brief || (wide && out > in) || pairs ? (tci_association){.known = true} : lanes;
}

/* Bytes of the widest of what fold n takes in and the parts of its accumulator. */
static int tci_assoc_bytes(const tci_node *n)
{
    bool arg = tci_op_is(n->op, TCI_IS_ARG), reduce = tci_op_is_reduce(n->op);
    tc_dtype of = (tc_dtype)tci_dtype_get((tc_dtype)n->in[0]->dtype)->compute;
    tc_dtype t = arg ? of : (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    int bytes = TCI_MAX(tci_dtype_get(t)->bytes, tci_dtype_get(of)->bytes);
    for (int i = 0; reduce && i < tci_red_parts(tci_op_get(n->op)->red); i++) {
        tc_dtype part = tci_red_dtype(tci_op_get(n->op)->red, i, t);
        bytes = TCI_MAX(bytes, tci_dtype_get(part)->bytes);
    }
    return bytes;
}

/* Whether n is a fold, and of what. The axis of a SCAN counts as one. */
static bool tci_assoc_is_fold(const tci_node *n, bool blocks, tci_assoc_fold *f)
{
    bool scan = n->op == TCI_OP_SCAN;
    *f = (tci_assoc_fold){.x = n->n_in > 0 ? n->in[0] : NULL,
                          .n_axes = scan ? 1 : n->n_attr,
                          .axes = n->attr,
                          .results = tci_assoc_elements(n),
                          .bytes = n->n_in > 0 ? tci_assoc_bytes(n) : 0,
                          .blocks = blocks,
                          .parts = 1,
                          .linked = tci_root_is_linked(n)};
    f->parts = scan && blocks ? TCI_MAX(tci_dim_most(tci_root_parts(n)), 1) : 1;
    if (scan) {
        f->results *= (double)f->parts / TCI_MAX((double)tci_dim_most(n->shape[n->attr[0]]), 1);
    }
    return scan || tci_op_is_reduce(n->op);
}

/* True if what is read along the axes of n follows from that of its inputs. */
static bool tci_assoc_looks_through(const tci_node *n)
{
    return tci_op_is(n->op, TCI_IS_VIEW | TCI_IS_POINTWISE) || n->op == TCI_OP_PAD ||
           n->op == TCI_OP_BARRIER || n->op == TCI_OP_CAT || n->op == TCI_OP_GATHER;
}

/* Looks at n and what it follows from, with a stack of its own: chains may be long. */
static void tci_assoc_visit(tci_scratch *s, tci_table *known, const tci_node *n, bool blocks)
{
    const tci_node **stack = NULL;
    int n_stack = 0, cap = 0;
    TCI_PUSH(s, stack, n_stack, cap, n);
    while (n_stack > 0) {
        const tci_node *top = stack[n_stack - 1];
        int before = n_stack;
        for (int i = 0; i < top->n_in && tci_assoc_looks_through(top); i++) {
            if (!tci_assoc_of(known, top->in[i])) {
                TCI_PUSH(s, stack, n_stack, cap, top->in[i]);
            }
        }
        if (n_stack == before) {
            tci_association *is = tci_table_at(known, top);
            is->axes = is->axes ? is->axes : tci_assoc_look(s, known, top, blocks);
            n_stack--;
        }
    }
}

TCI_FN tci_association tci_association_of(tci_table *found, const tci_node *n, bool blocks)
{
    tci_association *is = tci_table_at(found, n);
    tci_assoc_fold fold;
    if (!is->known && tci_assoc_is_fold(n, blocks, &fold)) {
        tci_assoc_visit(found->s, found, fold.x, blocks);
        fold.read = tci_assoc_of(found, fold.x);
        tci_association as = tci_assoc_choose(&fold);
        as.axes = is->axes;
        *is = as;
    }
    return *is;
}

TCI_FN void tci_association_as(tci_table *found, const tci_node *n, tci_association as)
{
    tci_association *is = tci_table_at(found, n);
    if (!is->known) {
        as.axes = is->axes;
        *is = as;
    }
}

TCI_FN void tci_association_find(tci_scratch *s, tci_table *found, tci_node *const *roots,
                                 int n_roots, bool blocks)
{
    tci_node_list list = tci_graph_sort(s, roots, n_roots);
    for (int i = 0; i < list.n; i++) {
        if (!blocks) {
            tci_association_of(found, list.items[i], false);
        } else if (tci_assoc_is_transpose(list.items[i])) {
            tci_assoc_visit(s, found, list.items[i], true);
        }
    }
}
