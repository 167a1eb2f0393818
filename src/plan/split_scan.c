/* plan/split_scan.c - splits a long prefix scan into parts: a single-pass chained scan (a variant
 * of decoupled look-back with a fixed order), or reduce-then-scan.
 *
 * In: a SCAN. Out: a SCAN whose parts each start from the prefix total of the preceding parts, or
 * NULL to leave it whole. The prefix totals come in one of two ways.
 *
 *   linked   one kernel: a block reduces its part, publishes the total, waits for the totals of the
 *            preceding parts, in two levels, and scans its part, which it kept in registers: x is
 *            read once. For GPUs that dispatch blocks in index order.
 *   starts   a second input: the reductions of the parts, in a kernel of their own, and the prefix
 *            totals of these; for very many parts, a scan in parts again.
 *
 * Both fix the order of all sums. Decoupled look-back proper (Merrill and Garland, Single-pass
 * Parallel Prefix Scan with Decoupled Look-back, 2016) reads x once too, but its order depends on
 * which block arrives first.
 *
 * A SCAN is cut if it has too little parallelism: on a GPU a block takes one row, or as many
 * adjacent columns as it has lanes; on a CPU a thread takes a row. The cut follows from the shape
 * and the kind of machine; symbolic sizes and reproducible results leave it whole. Parts are
 * equal, so an axis without a divisor near the wanted length is padded with the identity, and a
 * copy crops the result; a CPU leaves it whole. Running products of floats stay whole: a part may
 * overflow where no prefix does. */
#include "rfactor.h"

enum {
    TCI_SCAN_FEW = 16,           /* rows of a processor up to which they are cut */
    TCI_SCAN_PART = 32768,       /* elements of a part of them, about */
    TCI_SCAN_COLUMNS = 1024,     /* columns that one block has side by side */
    TCI_SCAN_NEIGHBOURS = 16,    /* from which an axis before them is one of columns */
    TCI_SCAN_BLOCK_LONG = 16384, /* elements of a row from which a block does not have it alone, */
    TCI_SCAN_BLOCK_LEAST = 2048, /* and of its parts, about: least */
    TCI_SCAN_BLOCK_MOST = 8192,  /* and most, where there are */
    TCI_SCAN_BLOCK_PARTS = 1024, /* more parts than these */
    TCI_SCAN_TOTALS = 2048,      /* parts of a row, each of which adds up the totals before it, */
    TCI_SCAN_LINKS = 1 << 17,    /* of linked ones, whose words then take 1 MB */
    TCI_SCAN_COLUMN_PART = 64    /* least elements of a part of a column */
};

typedef struct tci_scan_cut {
    int64_t size, length;
    bool even;
} tci_scan_cut;

/* The wanted length of a part; 0: n is left whole. */
static int64_t tci_scan_wanted(const tci_node *n, int axis, tci_machine machine)
{
    int64_t all = 1, behind = 1, size = tci_dim_known(n->shape[axis]);
    for (int i = 0; i < n->rank; i++) {
        all *= i == axis ? 1 : tci_dim_known(n->shape[i]);
        behind *= i > axis ? tci_dim_known(n->shape[i]) : 1;
    }
    if (machine.block_threads == 0) {
        return all <= TCI_SCAN_FEW && size >= 2 * TCI_SCAN_PART ? TCI_SCAN_PART : 0;
    }
    bool rows = behind < TCI_SCAN_NEIGHBOURS;
    int64_t blocks = rows ? all : (all + TCI_SCAN_COLUMNS - 1) / TCI_SCAN_COLUMNS;
    int64_t parts = TCI_CLASS_PIECES / blocks;
    if (parts < 2 || size < (rows ? TCI_SCAN_BLOCK_LONG : 2 * TCI_SCAN_COLUMN_PART)) {
        return 0;
    }
    int64_t each = size / TCI_SCAN_BLOCK_PARTS;
    return rows ? TCI_MIN(TCI_MAX(each, TCI_SCAN_BLOCK_LEAST), TCI_SCAN_BLOCK_MOST)
                : TCI_MAX(TCI_SCAN_COLUMN_PART, size / parts);
}

/* How n is split; length 0: not at all. */
static tci_scan_cut tci_scan_choose(const tci_node *n, int axis, tci_machine machine)
{
    tci_scan_cut cut = {0, 0, true};
    if (n->attr[2] == TCI_MODE_MUL && tci_dtype_is_float((tc_dtype)n->dtype)) {
        return cut;
    }
    for (int i = 0; i < n->rank; i++) {
        if (!tci_dim_is_known(n->shape[i]) || tci_dim_known(n->shape[i]) == 0) {
            return cut;
        }
    }
    int64_t wanted = tci_scan_wanted(n, axis, machine);
    cut.size = tci_dim_known(n->shape[axis]);
    cut.length = wanted > 0 ? tci_plan_divisor(cut.size, wanted) : 0;
    if (wanted > 0 && cut.length == 0 && machine.block_threads > 0) {
        cut.even = false;
        cut.length = wanted;
        cut.size = (cut.size + wanted - 1) / wanted * wanted;
    }
    return cut;
}

static tci_node *tci_scan_built(const tci_algo *a, tci_node *n)
{
    TCI_ASSERT(a->s, n != NULL);
    return n;
}

/* The identity of the mode. */
static tci_node *tci_scan_nothing(const tci_algo *a, tci_mode mode, tc_dtype t)
{
    return tci_scan_built(a, tci_graph_const(a->g, t, tci_op_identity(tci_mode_fold(mode), t)));
}

/* The total of each part of x: one element along `axis` for each. */
static tci_node *tci_scan_totals(const tci_algo *a, tci_node *x, const tci_node *n, int64_t length)
{
    tci_graph *g = a->g;
    int axis = (int)tci_dim_known(n->attr[0]), inner = axis + 1;
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)x->dtype)->compute;
    tci_node *y = tci_scan_built(a, tci_build_cast(g, x, t));
    y = tci_rfactor_axis(a, y, axis, length);
    tc_axes axes = {&inner, 1, false};
    return tci_scan_built(a,
                          tci_build_reduce(g, tci_mode_fold((tci_mode)n->attr[2]), y, axes, false));
}

/* 0, 1 .. n - 1, or backwards, along an axis of rank `rank`. */
static tci_node *tci_scan_numbers(const tci_algo *a, tci_dim n, bool backwards, int axis, int rank)
{
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, rank);
    for (int i = 0; i < rank; i++) {
        shape[i] = i == axis ? n : 1;
    }
    tci_node *numbers = tci_scan_built(a, tci_build_iota(a->g, n));
    numbers = backwards ? tci_scan_built(a, tci_build_flip(a->g, numbers, 0)) : numbers;
    return tci_scan_built(a, tci_build_reshape(a->g, numbers, rank, shape));
}

/* The prefix total of each part, in the order of the scan. The kernel of a part adds all totals
 * before its own. */
static tci_node *tci_scan_each_start(const tci_algo *a, tci_node *totals, const tci_node *n)
{
    tci_graph *g = a->g;
    const int axis = (int)tci_dim_known(n->attr[0]), rank = totals->rank + 1;
    const bool reverse = n->attr[1] != 0;
    const tci_mode mode = (tci_mode)n->attr[2];
    tci_dim parts = totals->shape[axis];
    tci_node *part = tci_scan_numbers(a, parts, reverse, axis, rank);
    tci_node *other = tci_scan_numbers(a, parts, false, axis + 1, rank);
    tci_node *in_order[2] = {reverse ? part : other, reverse ? other : part};
    tci_node *comes_before = tci_scan_built(a, tci_build_ew(g, TCI_OP_LT, in_order));
    tci_node *each = tci_scan_built(a, tci_build_unsqueeze(g, totals, axis));
    tci_node *nothing = tci_scan_nothing(a, mode, (tc_dtype)totals->dtype);
    each = tci_scan_built(a, tci_build_where(g, comes_before, each, nothing));
    int summed = axis + 1;
    tc_axes axes = {&summed, 1, false};
    return tci_scan_built(a, tci_build_reduce(g, tci_mode_fold(mode), each, axes, false));
}

/* The same of many parts: running values of the totals, in parts again. */
static tci_node *tci_scan_running_starts(const tci_algo *a, tci_node *totals, const tci_node *n)
{
    tci_graph *g = a->g;
    const int axis = (int)tci_dim_known(n->attr[0]);
    const bool reverse = n->attr[1] != 0;
    const tci_mode mode = (tci_mode)n->attr[2];
    int64_t parts = tci_dim_known(totals->shape[axis]);
    tci_node *y = reverse ? tci_scan_built(a, tci_build_flip(g, totals, axis)) : totals;
    y = tci_scan_built(a, tci_build_slice(g, y, axis, 0, parts - 1, 1));
    y = tci_scan_built(a, tci_build_scan(g, y, axis, false, mode));
    tci_node *again = tci_plan_scan(a, y);
    y = again ? again : y;
    return tci_scan_built(a, tci_build_pad(g, y, axis, 1, 0,
                                           tci_scan_nothing(a, mode, (tc_dtype)totals->dtype)));
}

static tci_node *tci_scan_starts(const tci_algo *a, tci_node *totals, const tci_node *n)
{
    int64_t parts = tci_dim_known(totals->shape[tci_dim_known(n->attr[0])]);
    return parts <= TCI_SCAN_TOTALS ? tci_scan_each_start(a, totals, n)
                                    : tci_scan_running_starts(a, totals, n);
}

/* True if x is read, through layout and elementwise ops of any operands, in another order than it
 * is stored in. */
static bool tci_scan_is_turned(tci_scratch *s, const tci_node *x)
{
    const tci_node **stack = NULL;
    int n = 0, cap = 0;
    tci_table seen = tci_table_in(s, sizeof(bool));
    TCI_PUSH(s, stack, n, cap, x);
    while (n > 0) {
        x = stack[--n];
        if (x->op == TCI_OP_PERMUTE || x->op == TCI_OP_WINDOW) {
            return true;
        }
        bool goes = tci_op_is(x->op, TCI_IS_POINTWISE | TCI_IS_VIEW) || x->op == TCI_OP_PAD;
        for (int i = 0; i < x->n_in && goes; i++) {
            if (tci_table_add(&seen, x->in[i])) {
                TCI_PUSH(s, stack, n, cap, x->in[i]);
            }
        }
    }
    return false;
}

/* True if the parts use decoupled look-back: they are stored as in n, one after the other, and
 * blocks can publish totals of their dtype. f16 and bf16 do not: their steps take longer than
 * reading them again, and fewer blocks can wait. */
static bool tci_scan_is_linked(const tci_algo *a, const tci_node *n, tci_scan_cut cut)
{
    int bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes;
    int64_t behind = 1;
    for (int i = (int)tci_dim_known(n->attr[0]) + 1; i < n->rank; i++) {
        behind *= tci_dim_known(n->shape[i]);
    }
    return a->machine.in_order_blocks && behind == 1 && (bytes == 4 || bytes == 8) &&
           cut.size / cut.length <= TCI_SCAN_LINKS && !tci_scan_is_turned(a->s, n->in[0]);
}

TCI_FN tci_node *tci_plan_scan(const tci_algo *a, tci_node *n)
{
    tci_graph *g = a->g;
    int axis = (int)tci_dim_known(n->attr[0]);
    tci_scan_cut cut = tci_scan_choose(n, axis, a->machine);
    if (cut.length == 0) {
        return NULL;
    }
    int64_t parts = cut.size / cut.length;
    if (a->machine.reproducible) {
        tci_str_printf(a->orders, "scan: whole, to be reproducible, else %lld parts\n",
                       (long long)parts);
        return NULL;
    }
    bool linked = tci_scan_is_linked(a, n, cut);
    tci_str_printf(a->orders, "scan of %lld elements: %lld %sparts of %lld\n",
                   (long long)tci_dim_known(n->shape[axis]), (long long)parts,
                   linked ? "linked " : "", (long long)cut.length);
    tci_node *in[2] = {n->in[0], NULL};
    tci_dim behind = tci_dim_sub(cut.size, n->shape[axis]);
    if (!cut.even) {
        tci_node *fill = tci_scan_nothing(a, (tci_mode)n->attr[2], (tc_dtype)n->dtype);
        in[0] = tci_scan_built(a, tci_build_pad(g, in[0], axis, 0, behind, fill));
    }
    if (!linked) {
        in[1] = tci_scan_starts(a, tci_scan_totals(a, in[0], n, cut.length), n);
    }
    int64_t attr[TCI_SCAN_PARTS + 1] = {n->attr[0], n->attr[1], n->attr[2], parts};
    tci_node *scan = tci_graph_node(g, TCI_OP_SCAN, (tc_dtype)n->dtype, n->rank, in[0]->shape,
                                    linked ? 1 : 2, in, TCI_SCAN_PARTS + linked, attr);
    bool each = !linked && tci_op_is_reduce(in[1]->op);
    if (each && a->associations && a->machine.block_threads > 0) { /* one kernel has both */
        tci_association as = tci_association_of(a->associations, scan, true);
        tci_association_as(a->associations, in[1], as);
    }
    return cut.even ? scan
                    : tci_scan_built(a, tci_build_slice(g, scan, axis, 0, n->shape[axis], 1));
}
