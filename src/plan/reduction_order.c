/* plan/reduction_order.c - reduction order (association class) of a kernel: the order in which
 * each of its reductions adds.
 *
 * In: nodes; a kernel before it is scheduled, the kind of machine. Out: where its vectors lie, and
 * the class of each reduction. The one idea: results follow from the class alone, so it never
 * follows from what a size typically is or how fast a machine is. Where a size is a symbol the
 * class is one that serves its whole range.
 *
 * On a processor classes are facts of nodes, which groups and kernels keep: LANES, BLOCK_SCAN and
 * CHAIN of reductions and scans are decided on the graph (plan/association.c); ONLINE, the parts of
 * SPLIT and the order of the axes of a sum over windows follow from the node (tci_class_online_of,
 * tci_class_part_of, tci_class_turns). So it does not matter which ops share a kernel, where values
 * lie, or which instructions there are; but for MATRIX, TF32, PAIRS and STEPS, which need a unit or
 * instructions for them. On a machine of blocks of threads a class is a function of the kernel, so
 * of shape, layout, dtype and of what shares it:
 *
 *   MATRIX    products of halves or f64 that a matrix unit takes (kernel/matrix.c, product.c)
 *   TF32      such products of f32, where math may be fast
 *   PAIRS     besides SPLIT or CHAIN: contractions of bf16 on a processor that multiplies pairs of
 *             these, whatever their shape
 *   STEPS     with them, or by threads alone, the weights of attention (kernel/attention.c)
 *   SPLIT(n)  other contractions of f32, f16 or bf16 with more than 512 products a sum, or perhaps
 *             so many: the error of a chain grows with its length
 *   CHAIN     other contractions, rows that are kept, and reductions and scans where neighbours
 *             along the last outer axis lie together in memory: each lane of a vector is a sum of
 *             its own
 *   LANES(n)  other reductions: rows. 64 lanes on a processor, on a machine of blocks so many that
 *             a block holds the longest row in a few vectors; those of a thread are joined first
 *   BLOCK_SCAN(n)  other scans: of rows, with the same n
 *
 * So is the order of the axes of a sum over windows (kernel/window_overlap.h): on a processor the
 * one along which neighbouring rows of places meet the same row of an image comes last, where no
 * filter is met by several channels.
 *
 * The combine row of a reduction is part of its class too:
 *
 *   ONLINE    a sum of exp(v - m), m the largest v of the same row, where the row is far: the sum
 *             is scaled as m grows, so both are made in one pass over the row. A row is far when
 *             the first pass leaves it in no near memory: on a processor from TCI_CLASS_FAR bytes
 *             on, on a machine of blocks when a block cannot hold it in registers
 *             (loop/row_block.c). Near rows are read twice: a step of ONLINE waits for an exp, and
 *             rounds once more.
 *             Where a size is a symbol the row is far if it always is. A row that is cut
 *             (plan/algorithm.c) is not waited for: each part has an m of its own, and is near or
 *             far itself.
 *
 * Where results must be reproducible (tci_machine.reproducible) the class follows from what is the
 * same for all sizes and machines: a reduction whose axes end with the last one of its input, as
 * the graph has them, is LANES(64) over these axes as one, a scan along it BLOCK_SCAN(64), and any
 * other one is CHAIN. Axes of both
 * kinds are reduced one after the other; no kernel holds both; no lane axis is split. An axis of
 * size 1, which a program of known sizes does not have, changes neither: its sum is its element. No
 * sum is ONLINE. */
#include "../kernel/attention.h"
#include "../kernel/backward.h"
#include "../kernel/product.h"
#include "../kernel/window_overlap.h"
#include "../graph/build.h"
#include "group.h"

enum {
    TCI_CLASS_SHORT_ROW = 16,    /* elements of rows that are better many side by side */
    TCI_CLASS_WIDE = 16,         /* least neighbours for that, */
    TCI_CLASS_POINTS = 1024,     /* or points, where any may be neighbours, */
    TCI_CLASS_POINTS_EACH = 4096, /* and those that leave no device idle, one a thread */
    TCI_CLASS_SHARED_ROW = 48,   /* elements of rows of fewer points that a block shares out */
    TCI_CLASS_PAIRS_ROW = 256,   /* elements of rows in pairs that lanes of their own take */
    TCI_CLASS_WARP = 32,         /* least threads of a block */
    TCI_CLASS_BLOCK_VECTORS = 8, /* of a row that a block should hold at once, at most */
    TCI_CLASS_BLOCK_ROW = 1024,  /* elements of a row where any number may come */
    TCI_CLASS_FAR = 1 << 20,     /* bytes of a row that near memory does not hold */
    TCI_CLASS_PART = 512,        /* products of a part, about */
    TCI_CLASS_SLAB = 16,
    TCI_CLASS_STEP_MOST = 1536,  /* products that are not cut to make parts of whole steps */
    TCI_CLASS_TURNED = 1 << 16   /* products that other orders of them are worth */
};

/* ---- where vectors lie ---- */

/* The axis that vectors of a load could lie along inside its stage: the last inner one it knows;
 * -1: it knows none, so it is one load for each outer point. */
static int tci_class_last_inner(const tci_kernel *k, const tci_kinst *load)
{
    int last = -1;
    for (int a = k->n_outer; a < k->n_axes; a++) {
        last = load->axes >> TCI_MIN(a, 63) & 1 ? a : last;
    }
    return last;
}

/* The stride of a sum x of terms along an axis; 0: none; -1: a term of it is no product of the
 * axis, as an index that is read. */
static tci_dim tci_class_stride(const tci_kernel *k, int x, int axis)
{
    tci_dim stride = 0;
    for (int rest; x >= 0; x = rest) {
        tci_kx e = k->kx[x];
        rest = e.op == TCI_KX_ADD ? e.a : -1;
        e = e.op == TCI_KX_ADD ? k->kx[e.b] : e;
        tci_dim c = e.op == TCI_KX_MUL ? e.c : 1;
        e = e.op == TCI_KX_MUL ? k->kx[e.a] : e;
        if (e.op == TCI_KX_AXIS && tci_kx_number(&e) == axis) {
            stride = tci_dim_add(stride, c);
        } else if (e.axes >> TCI_MIN(axis, 63) & 1 && e.op != TCI_KX_AXIS) {
            return -1;
        }
    }
    return stride;
}

/* Loads of many elements for each outer point: how many walk the outer axis `outer` with stride 1,
 * how many with another stride, and how many of these walk the last inner axis they know with
 * stride 1. What does not know `outer` is the same for all lanes along it: it asks for neither. By
 * blocks of threads what is read at indices walks nothing with stride 1; to a processor every other
 * element, as of pairs, is as good where nothing has stride 1. */
static void tci_class_count_loads(const tci_kernel *k, int outer, tci_machine machine, int *unit,
                                  int *strided, int *inner_unit)
{
    tci_dim base, *coef = TCI_NEW_ARRAY(k->s, tci_dim, k->n_axes + 1);
    *unit = *strided = *inner_unit = 0;
    for (int i = 0; i < k->n_insts; i++) {
        int last = k->insts[i].op == TCI_K_LOAD ? tci_class_last_inner(k, &k->insts[i]) : -1;
        if (last < 0) {
            continue;
        }
        bool affine = tci_kx_affine(k, k->insts[i].x, coef, &base);
        if (!affine && machine.block_threads > 0) {
            *strided += 1;
            continue;
        }
        tci_dim along = tci_class_stride(k, k->insts[i].x, outer);
        bool inner = along != 0 && tci_class_stride(k, k->insts[i].x, last) == 1;
        bool pairs = along == 2 && !inner && machine.block_threads == 0;
        *unit += along == 1 || pairs;
        *strided += along != 0 && along != 1 && !pairs;
        *inner_unit += inner;
    }
}

/* Has the kernel so many outer points? */
static bool tci_class_has_many(const tci_kernel *k, int64_t many)
{
    int64_t points = 1;
    for (int a = 0; a < k->n_outer && points < many; a++) {
        points *= TCI_MIN(tci_dim_most(k->axes[a].size), many);
    }
    return points >= many;
}

/* Are there points enough that each lane has one of its own, though the axis `outer` is short? On a
 * machine of blocks neighbours are found on any outer axes (loop/thread_per_point.c); a processor
 * has lanes along `outer` alone, which is better as long as rows, read once, are no longer. */
static bool tci_class_has_points(const tci_kernel *k, int outer, int64_t row, tci_machine machine)
{
    bool fits = machine.block_threads > 0 || row <= tci_dim_most(k->axes[outer].size);
    for (int t = 1; t < k->n_stages && machine.block_threads == 0; t++) {
        fits = fits && k->stages[t].n_axes == 0;
    }
    return fits && tci_class_has_many(k, TCI_CLASS_POINTS);
}

/* Is the axis `outer` long enough for lanes? On a machine of blocks few points would leave it idle
 * for as long as one thread takes for a row, which a block shares out instead, unless the row is
 * short. */
static bool tci_class_is_wide(const tci_kernel *k, int outer, int64_t row, tci_machine machine)
{
    return tci_dim_most(k->axes[outer].size) >= TCI_CLASS_WIDE &&
           (machine.block_threads == 0 || row <= TCI_CLASS_SHARED_ROW ||
            tci_class_has_many(k, TCI_CLASS_POINTS_EACH));
}

TCI_FN uint8_t tci_class_vector(const tci_kernel *k, tci_machine machine)
{
    int inner = -1, outer = k->n_outer - 1;
    if (tci_kernel_keeps(k) || tci_kernel_earlier(k)) {
        return TCI_VEC_INNER;
    }
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kstage *stage = &k->stages[k->reds[r].stage];
        bool split = stage->kind == TCI_STAGE_SCAN && stage->n_axes > 1;
        if (k->reds[r].op == TCI_RED_DOT || split || stage->n_axes == 0) {
            return TCI_VEC_OUTER;
        }
        inner = stage->axes[stage->n_axes - 1];
    }
    if (inner < 0 || outer < 0) {
        return inner < 0 ? TCI_VEC_OUTER : TCI_VEC_INNER;
    }
    int inner_unit, outer_unit, outer_strided;
    tci_class_count_loads(k, outer, machine, &outer_unit, &outer_strided, &inner_unit);
    int64_t longest = 0;
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *stage = &k->stages[t];
        int last = stage->n_axes > 0 ? stage->axes[stage->n_axes - 1] : inner;
        longest = TCI_MAX(longest, tci_dim_most(k->axes[last].size));
    }
    bool wide = tci_class_is_wide(k, outer, longest, machine);
    bool many = wide || tci_class_has_points(k, outer, longest, machine);
    if (longest < TCI_CLASS_SHORT_ROW && many && outer_strided <= inner_unit) {
        return TCI_VEC_OUTER;
    }
    /* Of pairs of two rows each knows one of the axes: lanes of their own have nothing to join. */
    bool pairs = inner_unit == 0 && outer_strided == 0 && machine.block_threads == 0 &&
                 longest <= TCI_CLASS_PAIRS_ROW;
    return (outer_unit > inner_unit || pairs) && wide ? TCI_VEC_OUTER : TCI_VEC_INNER;
}

/* ---- lanes ---- */

/* Bytes of the widest value that lies along the last inner axis of a reduction's stage; what only
 * makes up an index does not count. */
static int tci_class_widest(const tci_kernel *k)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    uint64_t axes = 0;
    int widest = 1;
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        const tci_kstage *stage = &k->stages[red->stage];
        axes |= (uint64_t)1 << TCI_MIN(stage->axes[stage->n_axes - 1], 63);
        for (int j = 0; j < tci_red_takes(red->op); j++) {
            live[red->in[j]] = true;
        }
        for (int part = 0; part < tci_red_parts(red->op); part++) {
            tc_dtype t = tci_red_dtype(red->op, part, (tc_dtype)red->dtype);
            widest = TCI_MAX(widest, tci_dtype_get(t)->bytes);
        }
    }
    for (int i = 0; i < k->n_stores; i++) {
        live[k->stores[i].value] = true;
    }
    for (int i = k->n_insts - 1; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        for (int a = 0; live[i] && in->op != TCI_K_FAULT && a < in->n_args; a++) {
            live[in->args[a]] = true;
        }
        if (live[i] && in->op != TCI_K_FAULT && in->dtype != TC_BOOL && (in->axes & axes)) {
            widest = TCI_MAX(widest, tci_dtype_get((tc_dtype)in->dtype)->bytes);
        }
    }
    return widest;
}

/* Elements of a stage that are shared out among threads: all of them, of lines no shorter than two
 * vectors. */
static int64_t tci_class_row(const tci_kernel *k, const tci_kstage *stage)
{
    int64_t all = 1, line = 1;
    for (int i = 0; i < stage->n_axes; i++) {
        tci_dim size = k->axes[stage->axes[i]].size;
        line = tci_dim_is_known(size) ? tci_dim_known(size)
                                      : TCI_MIN(tci_dim_most(size), TCI_CLASS_BLOCK_ROW);
        all = TCI_MIN(all, INT32_MAX) * TCI_MIN(line, INT32_MAX);
    }
    return TCI_MIN(all, line * (TCI_CLASS_BLOCK_VECTORS / 2));
}

/* Lanes that a thread of a block holds. */
static int tci_class_held(const tci_kernel *k)
{
    return TCI_MAX(TCI_CLASS_THREAD_BYTES / tci_class_widest(k), 1);
}

static int tci_class_lanes(const tci_kernel *k, tci_machine machine)
{
    if (machine.block_threads == 0 || machine.reproducible) {
        return TCI_VLANES;
    }
    int64_t longest = 1;
    for (int t = 0; t < k->n_stages; t++) {
        longest = TCI_MAX(longest, tci_class_row(k, &k->stages[t]));
    }
    int64_t held = tci_class_held(k);
    int64_t threads = TCI_CLASS_WARP;
    while (threads < TCI_CLASS_THREADS && threads * held * TCI_CLASS_BLOCK_VECTORS < longest) {
        threads *= 2;
    }
    return (int)TCI_MIN(TCI_MAX(threads * held, TCI_VLANES), TCI_VLANES_MAX);
}

/* ---- online ---- */

/* The MAX over the axes of stage `row` whose result m a sum of exp(v - m) over that stage has; -1:
 * inst is something else. */
static int tci_class_max_of_exp(const tci_kernel *k, const tci_kstage *row, int inst)
{
    const tci_kinst *power = &k->insts[inst];
    bool is_exp = power->op == TCI_K_PRIM && power->prim == TCI_P_EXP;
    const tci_kinst *less = is_exp ? &k->insts[power->args[0]] : power;
    if (!is_exp || less->op != TCI_K_PRIM || less->prim != TCI_P_SUB ||
        k->insts[less->args[1]].op != TCI_K_RED) {
        return -1;
    }
    int r = tci_kinst_number(&k->insts[less->args[1]]);
    const tci_kstage *of = &k->stages[k->reds[r].stage];
    bool same = k->reds[r].op == TCI_RED_MAX && k->reds[r].in[0] == less->args[0] &&
                of->n_axes == row->n_axes && of->n_kept == 0 && row->n_kept == 0;
    for (int i = 0; i < row->n_axes && same; i++) {
        same = of->axes[i] == row->axes[i];
    }
    return same ? r : -1;
}

/* Of all loads that value v of a stage makes for one outer point: how many there are in bytes of
 * what lies in memory, and of what registers hold. */
static void tci_class_row_bytes(const tci_kernel *k, const tci_kstage *row, int v, tci_dim *memory,
                                tci_dim *registers)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    live[v] = true;
    *memory = *registers = 0;
    for (int i = v; i >= 0; i--) {
        const tci_kinst *in = &k->insts[i];
        for (int a = 0; live[i] && a < in->n_args; a++) {
            live[in->args[a]] = true;
        }
        tci_dim n = 1;
        bool varies = false;
        for (int a = 0; a < row->n_axes && in->op == TCI_K_LOAD; a++) {
            bool walks = in->axes >> TCI_MIN(row->axes[a], 63) & 1;
            n = walks ? tci_dim_mul(n, k->axes[row->axes[a]].size) : n;
            varies |= walks;
        }
        if (live[i] && varies) {
            tc_dtype stored = (tc_dtype)k->operands[tci_kinst_number(in)].dtype;
            *memory = tci_dim_add(*memory, tci_dim_mul(n, tci_dtype_get(stored)->bytes));
            n = tci_dim_mul(n, tci_dtype_get((tc_dtype)in->dtype)->bytes);
            *registers = tci_dim_add(*registers, n);
        }
    }
}

TCI_FN int tci_class_online(const tci_kernel *k, const tci_kstage *row, const tci_kred *red,
                            tci_machine machine)
{
    int max = red->op == TCI_RED_SUM ? tci_class_max_of_exp(k, row, red->in[0]) : -1;
    if (max < 0 || machine.reproducible) {
        return -1;
    }
    tci_dim memory, registers;
    tci_class_row_bytes(k, row, k->reds[max].in[0], &memory, &registers);
    int64_t held = TCI_CLASS_THREADS * TCI_CLASS_THREAD_BYTES * TCI_CLASS_ROW_VECTORS;
    bool far = machine.block_threads > 0 ? tci_dim_lt(held, registers)
                                         : tci_dim_le(TCI_CLASS_FAR, memory);
    return far ? max : -1;
}

/* ---- parts ---- */

/* Products of the axes that the stage sums, from number `from` on, or a bound where sizes are
 * symbols. */
static int64_t tci_class_products(const tci_kernel *k, const tci_kstage *stage, int from)
{
    int64_t n = 1;
    for (int i = from; i < stage->n_axes - stage->n_kept; i++) {
        int64_t size = TCI_MAX(tci_dim_most(k->axes[stage->axes[i]].size), 1);
        n = n > INT32_MAX / size ? INT32_MAX : n * size;
    }
    return n;
}

/* The products of a part of a DOT's sums, 0: one chain is no longer. Whole steps of the first inner
 * axis, so that a packed block is a part (loop/gemm_blocking.c), of a multiple of a GPU's slab
 * (loop/simt_gemm.c) where that can be. */
static int tci_class_part(const tci_kernel *k, const tci_kred *red, tci_machine machine)
{
    const tci_kstage *stage = &k->stages[red->stage];
    if (red->op != TCI_RED_DOT || red->dtype != TC_F32 ||
        tci_class_products(k, stage, 0) <= TCI_CLASS_PART) {
        return 0;
    }
    int64_t step = tci_class_products(k, stage, 1), slab = TCI_CLASS_SLAB;
    bool known = true;
    for (int i = 1; i < stage->n_axes - stage->n_kept; i++) {
        known = known && tci_dim_is_known(k->axes[stage->axes[i]].size);
    }
    if (machine.reproducible || !known || step > TCI_CLASS_STEP_MOST) {
        return TCI_CLASS_PART;
    }
    bool blocks = machine.block_threads > 0; /* rather twice as long than no tiles */
    while (slab > 1 && step * slab > TCI_CLASS_PART * (1 + blocks)) {
        slab /= 2;
    }
    int64_t whole = step * slab;
    if (blocks && whole % TCI_CLASS_SLAB != 0) {
        return TCI_CLASS_PART;
    }
    int64_t part = TCI_MAX(TCI_CLASS_PART / whole, 1) * whole;
    return tci_class_products(k, stage, 0) <= part ? 0 : (int)part;
}

/* The same of the node, on a processor: its summed axes as the graph has them, whatever a kernel
 * makes one axis of. */
TCI_FN int tci_class_part_of(const tci_node *n, tci_machine machine)
{
    int64_t all = 1, step = 1, first = 0;
    bool known = true;
    for (int i = 0; i < n->in[0]->rank; i++) {
        int64_t size = TCI_MAX(tci_dim_most(n->in[0]->shape[i]), 1);
        if (size == 1 || !tci_contract_sums(n, tci_contract_labels(n, 0)[i])) {
            continue;
        }
        known = known && (first == 0 || tci_dim_is_known(n->in[0]->shape[i]));
        step = first > 0 ? (step > INT32_MAX / size ? INT32_MAX : step * size) : 1;
        all = all > INT32_MAX / size ? INT32_MAX : all * size;
        first++;
    }
    if (tci_dtype_get((tc_dtype)n->dtype)->compute != TC_F32 || all <= TCI_CLASS_PART) {
        return 0;
    }
    if (machine.reproducible || !known || step > TCI_CLASS_STEP_MOST) {
        return TCI_CLASS_PART;
    }
    int64_t slab = TCI_CLASS_SLAB;
    while (slab > 1 && step * slab > TCI_CLASS_PART) {
        slab /= 2;
    }
    int64_t part = TCI_MAX(TCI_CLASS_PART / (step * slab), 1) * step * slab;
    return all <= part ? 0 : (int)part;
}

/* ---- given by nodes ---- */

TCI_FN bool tci_class_is_given(const tci_fusion *f)
{
    return f->associations || f->reproducible;
}

/* True if the folded axes of n end with the last axis of what it folds. */
static bool tci_class_ends_rows(const tci_node *n)
{
    int last = n->op == TCI_OP_SCAN ? 0 : n->n_attr - 1; /* of its axes */
    return n->n_attr > 0 && n->attr[last] == n->in[0]->rank - 1;
}

TCI_FN bool tci_class_is_row(const tci_fusion *f, const tci_node *n)
{
    return f->associations ? tci_association_of(f->s, f->associations, n).lanes
                           : tci_class_ends_rows(n);
}

TCI_FN bool tci_class_has_rows(const tci_fusion *f, const tci_group *g)
{
    for (int i = 0; i < g->n_roots; i++) {
        const tci_root *r = &f->roots[g->roots[i]];
        if (r->kind == TCI_ROOT_REDUCE || r->kind == TCI_ROOT_SCAN) {
            return tci_class_is_row(f, r->node);
        }
    }
    return false;
}

TCI_FN bool tci_class_may_keep(const tci_fusion *f, const tci_node *n)
{
    bool given = f->associations != NULL;
    return tci_class_is_row(f, n) &&
           !(given && (tci_class_run(f, n) > 1 || tci_class_online_of(f->s, n)));
}

TCI_FN int tci_class_run(const tci_fusion *f, const tci_node *n)
{
    return f->associations ? tci_association_of(f->s, f->associations, n).run : 0;
}

/* The MAX of x over the axes of SUM n that node m spreads over x again; NULL: m is something
 * else. */
static const tci_node *tci_class_max_spread(const tci_node *n, const tci_node *x,
                                            const tci_node *m)
{
    const tci_node *max = m;
    while (max->op == TCI_OP_EXPAND || max->op == TCI_OP_RESHAPE || max->op == TCI_OP_BARRIER) {
        max = max->in[0];
    }
    bool same = max->op == TCI_OP_MAX && max->in[0] == x && max->n_attr == n->n_attr &&
                m->op == TCI_OP_EXPAND && m->in[0]->rank == x->rank;
    for (int i = 0, at = 0; i < x->rank && same; i++) {
        bool folds = at < n->n_attr && n->attr[at] == i;
        same = m->in[0]->shape[i] == (folds ? 1 : x->shape[i]);
        at += folds;
    }
    for (int i = 0; i < n->n_attr && same; i++) {
        same = max->attr[i] == n->attr[i];
    }
    return same ? max : NULL;
}

/* Bytes of a row of `row` elements of all that x is read from, through movement and elementwise
 * ops. */
static tci_dim tci_class_bytes_of(tci_scratch *s, const tci_node *x, tci_dim row)
{
    const tci_node **stack = NULL;
    int n = 0, cap = 0;
    tci_dim bytes = 0;
    tci_table seen = tci_table_in(s, sizeof(bool));
    TCI_PUSH(s, stack, n, cap, x);
    while (n > 0) {
        x = stack[--n];
        bool goes = tci_op_is(x->op, TCI_IS_POINTWISE | TCI_IS_VIEW) || x->op == TCI_OP_PAD ||
                    x->op == TCI_OP_BARRIER || x->op == TCI_OP_CAT;
        if (!goes) {
            tci_dim elements = tci_dim_min(row, tci_node_count(x));
            bytes = tci_dim_add(bytes, tci_dim_mul(elements,
                                                   tci_dtype_get((tc_dtype)x->dtype)->bytes));
        }
        for (int i = 0; i < x->n_in && goes; i++) {
            if (tci_table_add(&seen, x->in[i])) {
                TCI_PUSH(s, stack, n, cap, x->in[i]);
            }
        }
    }
    return bytes;
}

TCI_FN tci_node *tci_class_online_of(tci_scratch *s, const tci_node *n)
{
    const tci_node *less = n->op == TCI_OP_SUM && n->in[0]->op == TCI_OP_EXP ? n->in[0]->in[0] : n;
    tci_node *x = less->op == TCI_OP_SUB ? less->in[0] : NULL;
    if (!x || x->dtype != n->dtype || tci_dtype_is_half((tc_dtype)n->dtype)) {
        return NULL;
    }
    tci_dim row = 1;
    for (int i = 0; i < n->n_attr; i++) {
        row = tci_dim_mul(row, x->shape[n->attr[i]]);
    }
    bool fits = tci_class_max_spread(n, x, less->in[1]) != NULL;
    return fits && tci_dim_le(TCI_CLASS_FAR, tci_class_bytes_of(s, x, row)) ? x : NULL;
}

/* What lies in memory in a kernel that tells the order of a contraction: all that is no view. */
static int tci_class_access(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    if (tci_op_is(n->op, TCI_IS_VIEW) || n->op == TCI_OP_BARRIER) {
        return -1;
    }
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    int operand = tci_kernel_operand(l->k, (tc_dtype)n->dtype, false, tci_node_count(n));
    return tci_lower_load(l, operand, t, tci_lower_offset(l, n->rank, n->shape, NULL, idx), guard);
}

/* Halves may be multiplied in pairs, which has an order of its own. */
static bool tci_class_is_of_halves(const tci_node *n)
{
    for (; tci_op_is(n->op, TCI_IS_VIEW) || n->op == TCI_OP_CAST; n = n->in[0]) {
        if (tci_dtype_is_half((tc_dtype)n->dtype)) {
            return true;
        }
    }
    return tci_dtype_is_half((tc_dtype)n->dtype);
}

/* CONTRACT root r alone, its operands in memory row by row; NULL: no sum over windows. */
static tci_kernel *tci_class_alone(const tci_fusion *f, const tci_root *r)
{
    tci_kernel *k = tci_kernel_make(f->s);
    tci_lower l;
    tci_lower_init(&l, f->s, k);
    l.access = tci_class_access;
    int *domain = TCI_NEW_ARRAY(f->s, int, r->n_domain + 1);
    tci_kstage stage = {TCI_STAGE_REDUCE, 0, TCI_NEW_ARRAY(f->s, int32_t, r->n_domain + 1), 0, -1,
                        -1};
    for (int i = 0; i < r->n_domain; i++) {
        bool inner = i >= r->n_out, one = r->domain[i] == 1;
        int axis = one ? -1 : tci_kernel_axis(k, r->domain[i], inner);
        domain[i] = one ? tci_kx_const(k, 0) : tci_kx_axis(k, axis);
        if (inner && !one) {
            stage.axes[stage.n_axes++] = axis;
        }
    }
    if (stage.n_axes < 2) {
        return NULL;
    }
    TCI_PUSH(k->s, k->stages, k->n_stages, k->cap_stages, stage);
    tci_kred red = {.op = TCI_RED_DOT, .dtype = TC_F32, .in = {-1, -1, -1, -1}, .inst = -1};
    for (int i = 0; i < 2; i++) {
        red.in[i] = tci_lower_value(&l, r->node->in[i], tci_plan_input_index(&l, r, i, domain), 0);
    }
    TCI_PUSH(k->s, k->reds, k->n_reds, k->cap_reds, red);
    return k;
}

/* Are there so many products that another order is worth it? Sizes that are symbols count as 1. */
static bool tci_class_pays_turning(const tci_root *r)
{
    double products = 1;
    for (int i = 0; i < r->n_domain; i++) {
        products *= tci_dim_is_known(r->domain[i]) ? (double)tci_dim_known(r->domain[i]) : 1;
    }
    return products >= TCI_CLASS_TURNED;
}

TCI_FN bool tci_class_turns(const tci_fusion *f, const tci_root *r)
{
    const tci_node *n = r->node;
    bool may = f->associations && tci_class_pays_turning(r) && !tci_class_is_of_halves(n->in[0]) &&
               !tci_class_is_of_halves(n->in[1]);
    const tci_kernel *k = may ? tci_class_alone(f, r) : NULL;
    return k && tci_skew_is_across(k, k->n_outer - 1);
}

/* ---- reproducible ---- */

/* The op of n over axes of x. */
static tci_node *tci_class_fold(tci_scratch *s, tci_graph *g, tci_node *n, tci_node *x, int n_axes,
                                const int64_t *axes)
{
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, x->rank);
    int rank = 0;
    for (int i = 0, at = 0; i < x->rank; i++) {
        bool reduced = at < n_axes && axes[at] == i;
        at += reduced;
        if (!reduced) {
            shape[rank++] = x->shape[i];
        }
    }
    return tci_graph_node(g, n->op, (tc_dtype)x->dtype, rank, shape, 1, &x, n_axes, axes);
}

TCI_FN tci_node *tci_class_reproducible(tci_scratch *s, tci_graph *g, tci_node *n)
{
    tci_node *x = n->in[0];
    int run = 0;
    while (run < n->n_attr && n->attr[n->n_attr - 1 - run] == x->rank - 1 - run) {
        run++;
    }
    if (run == 0 || (run == 1 && n->n_attr == 1)) {
        return n;
    }
    bool half = tci_dtype_is_half((tc_dtype)x->dtype);
    tc_dtype t = half ? TC_F32 : (tc_dtype)n->dtype;
    if (x->dtype != t) {
        x = tci_graph_node(g, TCI_OP_CAST, t, x->rank, x->shape, 1, &x, 0, NULL);
    }
    int rank = x->rank - run + 1;
    int64_t last = rank - 1;
    tci_dim *shape = tci_scratch_copy(s, x->shape, sizeof(tci_dim) * (size_t)rank);
    for (int i = rank; i < x->rank; i++) {
        shape[last] = tci_dim_mul(shape[last], x->shape[i]);
    }
    if (run > 1) {
        x = tci_graph_node(g, TCI_OP_RESHAPE, t, rank, shape, 1, &x, 0, NULL);
    }
    x = tci_class_fold(s, g, n, x, 1, &last);
    if (n->n_attr > run) {
        x = tci_class_fold(s, g, n, x, n->n_attr - run, n->attr);
    }
    return t == (tc_dtype)n->dtype ? x
                                   : tci_graph_node(g, TCI_OP_CAST, (tc_dtype)n->dtype, x->rank,
                                                    x->shape, 1, &x, 0, NULL);
}

/* ---- the choice ---- */

/* The orders that follow from where the kernel's vectors lie. */
static void tci_class_choose_orders(tci_kernel *k, tci_machine machine)
{
    for (int r = 0; r < k->n_reds; r++) {
        tci_kred *red = &k->reds[r];
        bool row = k->vector == TCI_VEC_INNER && k->stages[red->stage].n_kept == 0;
        bool scan = k->stages[red->stage].kind == TCI_STAGE_SCAN;
        red->order = !row  ? TCI_ORDER_CHAIN
                     : scan ? TCI_ORDER_BLOCK_SCAN
                            : TCI_ORDER_LANES;
        red->order_n = row ? tci_class_lanes(k, machine) : 0;
        bool by_threads = machine.block_threads > 0 && !machine.reproducible;
        red->near = red->order == TCI_ORDER_LANES && by_threads ? (uint8_t)tci_class_held(k) : 0;
        int part = tci_class_part(k, red, machine);
        if (part > 0) {
            red->order = TCI_ORDER_SPLIT;
            red->order_n = part;
        }
    }
}

/* Those of the units and instructions that the machine has. */
static void tci_class_choose_units(tci_kernel *k, tci_machine machine)
{
    for (int r = 0; r < k->n_reds; r++) {
        tci_kred *red = &k->reds[r];
        red->points = (uint8_t)tci_matrix_lane_points(k, red, machine);
    }
    tci_product_unit unit;
    if (!machine.reproducible && tci_product_by_warps(k, &machine, &unit) && !unit.is_exact) {
        k->reds[0].order = unit.dtypes[0] == TC_F32 ? TCI_ORDER_TF32 : TCI_ORDER_MATRIX;
        k->reds[0].order_n = 0;
    }
    if (tci_matrix_packs(k, machine)) {
        k->reds[0].order = TCI_ORDER_MATRIX;
        k->reds[0].order_n = 0;
        k->reds[0].points = k->reds[0].dtype == TC_I32 ? 4 : 0;
    }
    if (!machine.reproducible && tci_matrix_fits(k, machine)) {
        const tci_kinst *factor = &k->insts[tci_matrix_factor(k, 0)];
        bool single = k->operands[tci_kinst_number(factor)].dtype == TC_F32;
        k->reds[0].order = single ? TCI_ORDER_TF32 : TCI_ORDER_MATRIX;
        k->reds[0].order_n = 0;
        k->reds[0].points = 0;
    }
    for (int r = 0; !machine.reproducible && tci_matrix_keeps(k, machine) && r < k->n_reds; r++) {
        if (k->reds[r].op == TCI_RED_DOT) {
            k->reds[r].order = TCI_ORDER_MATRIX;
            k->reds[r].order_n = 0;
            k->reds[r].points = 0;
        }
    }
    if (!machine.reproducible && tci_attention_fits(k, machine)) {
        tci_attention_set_orders(k, machine);
    }
    if (!machine.reproducible && tci_backward_fits(k, machine)) {
        tci_backward_set_orders(k, machine);
    }
}

TCI_FN void tci_class_choose(tci_kernel *k, tci_machine machine)
{
    if (machine.block_threads > 0) { /* else they are given by the nodes (plan/kernel.c) */
        tci_class_choose_orders(k, machine);
    }
    tci_class_choose_units(k, machine);
}

/* A line where kernel k has another class than it would have if it need not be reproducible. */
static void tci_class_report_online(const tci_kernel *k, tci_machine machine, tci_str *orders)
{
    for (int r = 0; r < k->n_reds; r++) {
        if (tci_class_online(k, &k->stages[k->reds[r].stage], &k->reds[r], machine) >= 0) {
            tci_str_printf(orders, "%s: two passes, to be reproducible, else ONLINE\n", k->name);
        }
    }
}

TCI_FN void tci_class_report(tci_kernel *k, tci_machine machine, tci_str *orders)
{
    if (!machine.reproducible || k->n_reds == 0) {
        return;
    }
    tci_kred now = k->reds[0], *before = k->reds;
    uint8_t vector = k->vector;
    machine.reproducible = false;
    k->reds = tci_scratch_copy(k->s, before, sizeof(*before) * (size_t)k->n_reds);
    k->vector = tci_class_vector(k, machine);
    tci_class_choose_orders(k, machine);
    tci_class_choose_units(k, machine);
    if (now.order != k->reds[0].order || now.order_n != k->reds[0].order_n) {
        tci_str_printf(orders, "%s: ", k->name);
        tci_kernel_print_order(orders, &now);
        tci_str_add(orders, ", to be reproducible, else ");
        tci_kernel_print_order(orders, &k->reds[0]);
        tci_str_add(orders, "\n");
    }
    tci_class_report_online(k, machine, orders);
    k->reds = before;
    k->vector = vector;
}
