/* plan/route_facts.c - computes properties of contractions for routes: roofline costs,
 * multiply-adds per lane (dot instructions), how the kernel reads operands, which operands are
 * constant across runs.
 *
 * In: a contraction and a candidate route. Out: its properties; the graph is not modified. */
#include "../kernel/match_matrix_unit.h"
#include "contraction_route.h"

enum {
    TCI_ROUTE_PACK = 7,      /* time to pack an element, in those of its product with a row */
    TCI_ROUTE_PACK_ROWS = 8, /* that loop/gemm_operands.c asks of a packed contraction */
    TCI_ROUTE_PACK_COLUMNS = 16,
    TCI_ROUTE_PACK_INNER = 1024,
    TCI_ROUTE_WALK = 64 /* nodes that a fixed value is made of, at most */
};

TCI_FN bool tci_route_fits(const tci_route *route, const tci_algo *a, tci_node *n,
                           const tci_contraction *c, tci_offer *o)
{
    bool whole = tci_table_has(a->whole, n);
    *o = (tci_offer){.route = route, .a = a, .n = n, .c = c};
    return !(whole && (route->flags & TCI_ROUTE_SPLITS)) &&
           !(a->machine.reproducible && (route->flags & TCI_ROUTE_REORDERS)) && route->fits(o);
}

TCI_FN bool tci_route_reads_windows(const tci_algo *a, const tci_contraction *c)
{
    bool windows = false;
    for (int i = 0; i < 2; i++) {
        tci_node *x = tci_below(c->in[i].node, TCI_THROUGH_VIEWS | TCI_THROUGH_CASTS, a->forced);
        windows = windows || (x->op == TCI_OP_WINDOW && !tci_table_has(a->forced, x));
    }
    return windows;
}

/* ---- costs ---- */

TCI_FN tci_route_work tci_route_work_of(const tci_offer *o, tci_route_by by)
{
    const tci_contraction *c = o->c;
    double bytes = c->in[0].bytes + c->in[1].bytes + tci_node_value_bytes(c->n);
    return (tci_route_work){.products = c->products, .bytes = bytes, .by = by, .launches = 1};
}

/* Bytes in a nanosecond from where this many of them are kept between launches. */
static double tci_route_bandwidth(const tci_machine *m, double bytes)
{
    const tc_machine *f = &m->facts;
    bool near = f->cache_bytes[2] > 0 && bytes < (double)f->cache_bytes[2];
    double all = near ? f->all_bytes * f->ghz : f->memory_gbs;
    double one = near ? f->far_bytes * f->ghz : f->one_gbs;
    return m->block_threads > 0 ? TCI_MAX(all, one) : one;
}

TCI_FN double tci_route_ns(const tci_offer *o, tci_route_work work)
{
    const tci_machine m = tci_machine_complete(o->a->machine);
    const tc_machine *f = &m.facts;
    int bytes = tci_dtype_get((tc_dtype)o->n->dtype)->bytes;
    double lanes = m.block_threads > 0 ? 1 : TCI_MAX(m.vector_bytes / TCI_MAX(bytes, 1), 1);
    double unit = f->matrix_flops / (work.by == TCI_BY_UNIT_F32 ? 4 : 2);
    double rate = f->ghz * (work.by == TCI_BY_VECTORS || unit <= 0 ? f->ports * lanes : unit);
    double processors = m.block_threads > 0 ? f->processors : 1;
    if (work.blocks > 0) {
        processors = TCI_MIN(processors, work.blocks);
    }
    double computes = work.products / (rate * processors);
    double moves = work.bytes / tci_route_bandwidth(&m, work.bytes);
    return TCI_MAX(computes, moves) + work.launches * (double)f->launch_ns;
}

/* Time of packing the operand that has the N axes, by vectors. */
TCI_FN double tci_route_pack_ns(const tci_offer *o)
{
    const double *size = o->c->size;
    double elements = size[TCI_AXES_BATCH] * size[TCI_AXES_K] *
                      size[o->c->columns == 0 ? TCI_AXES_M : TCI_AXES_N];
    return tci_route_ns(o, (tci_route_work){.products = TCI_ROUTE_PACK * elements});
}

/* ---- products of a lane ---- */

/* The dtype that an operand in i32 widens, through views; TC_I32: it is not so. */
TCI_FN tc_dtype tci_int8_source(tci_node *n)
{
    n = tci_below(n, TCI_THROUGH_MOVEMENT, NULL);
    tc_dtype t = n->op == TCI_OP_CAST ? (tc_dtype)n->in[0]->dtype : TC_I32;
    return t == TC_I8 || t == TC_U8 || t == TC_I16 ? t : TC_I32;
}

/* True if the operands are bytes that a matrix unit takes, of any signedness, with at least `few`
 * rows or columns. The final decision needs the kernel. */
TCI_FN bool tci_int8_for_unit(const tci_contraction *c, int few)
{
    double m = c->size[TCI_AXES_M], n = c->size[TCI_AXES_N];
    return c->is_known && TCI_MIN(m, n) >= few && TCI_MAX(m, n) >= TCI_MATRIX_COLUMNS &&
           c->products >= TCI_MATRIX_COLUMNS * (double)tci_dim_known(tci_node_count(c->n)) &&
           2 * c->products >= TCI_MATRIX_FLOPS;
}

/* True if a CPU's matrix unit computes it (kernel/match_matrix_unit.c). */
static bool tci_int8_on_unit(const tci_contraction *c, const tci_machine *machine)
{
    return machine->unit_bytes && tci_int8_for_unit(c, TCI_MATRIX_FEW);
}

TCI_FN bool tci_plan_any_signs(const tci_contraction *c, const tci_machine *machine)
{
    return c->n->dtype == TC_I32 && tci_plan_points(c, machine) == 4 &&
           tci_int8_on_unit(c, machine);
}

TCI_FN int tci_plan_points(const tci_contraction *c, const tci_machine *machine)
{
    const tci_node *n = c->n;
    if (machine->block_threads > 0) {
        return 0;
    }
    if (n->dtype == TC_I32) {
        tc_dtype a = tci_int8_source(n->in[0]), b = tci_int8_source(n->in[1]);
        int bytes = TCI_MAX(tci_dtype_get(a)->bytes, tci_dtype_get(b)->bytes);
        int fours = tci_int8_on_unit(c, machine) ? 4 : machine->int_points;
        return bytes == 1 ? fours : bytes == 2 ? TCI_MIN(machine->int_points, 2) : 0;
    }
    bool unit = machine->matrix_units > 0 && c->is_known &&
                2 * c->products >= TCI_MATRIX_FLOPS; /* kernel/match_matrix_unit.c */
    bool pairs = (machine->has_pairs || unit) && !machine->reproducible &&
                 n->in[0]->dtype == TC_BF16 && n->in[1]->dtype == TC_BF16;
    return pairs ? 2 : 0;
}

/* ---- what the kernel will do with operands ---- */

/* One operand has the last axis of the result, the other the rows (the last axis of the result that
 * the first one lacks), and both have all that is summed. */
TCI_FN bool tci_route_packs(const tci_contraction *c, const tci_machine *machine)
{
    const tci_node *n = c->n;
    if (!machine->thread_scratch || n->rank < 2 || n->dtype == TC_BOOL ||
        tci_dim_hint(n->shape[n->rank - 1]) < TCI_ROUTE_PACK_COLUMNS || c->columns < 0) {
        return false;
    }
    int row = n->rank - 2,
        least = tci_plan_points(c, machine) > 0 ? TCI_SCORES_ROWS : TCI_ROUTE_PACK_ROWS;
    while (row >= 0 && (n->shape[row] == 1 || c->axes[row].at[c->columns] >= 0)) {
        row--;
    }
    if (row < 0 || tci_dim_hint(n->shape[row]) < least) {
        return false;
    }
    int64_t inner = 1, first = 0;
    for (int i = n->rank; i < c->n_axes; i++) {
        if (c->axes[i].group == TCI_AXES_ALONE) {
            return false;
        }
        inner *= first ? tci_dim_hint(c->axes[i].size) : 1;
        first = 1;
    }
    return first && inner <= TCI_ROUTE_PACK_INNER;
}

/* True if a block of threads makes tiles of the contraction, reading each operand through its own
 * index expression (loop/simt_gemm.c): it has the rows, columns and products for that. */
TCI_FN bool tci_route_gathers(const tci_contraction *c, const tci_machine *machine)
{
    const tci_node *n = c->n;
    if (machine->block_threads < TCI_GATHER_THREADS || n->dtype == TC_BOOL || n->rank < 2 ||
        !c->is_known) {
        return false;
    }
    for (int i = n->rank; i < c->n_axes; i++) {
        if (c->axes[i].group == TCI_AXES_ALONE) {
            return false;
        }
    }
    int columns = c->axes[n->rank - 1].at[1] >= 0; /* the operand that has them */
    double own[2] = {c->size[TCI_AXES_M], c->size[TCI_AXES_N]};
    bool streams = tci_contract_sums(n, c->in[columns].labels[c->in[columns].fastest]);
    return own[columns] >= TCI_GATHER_SIDE && c->size[TCI_AXES_K] >= TCI_GATHER_DEPTH &&
           own[1 - columns] >= (streams ? TCI_GATHER_FEW : TCI_GATHER_SIDE);
}

/* True if the threads of a block each take points of the contraction, wherever those are
 * (loop/thread_per_point.c). */
TCI_FN bool tci_route_spreads(const tci_contraction *c, const tci_machine *machine)
{
    const tci_node *n = c->n;
    return c->is_known && machine->block_threads >= TCI_GATHER_THREADS && n->dtype != TC_BOOL &&
           n->rank > 0 &&
           (tci_dim_lt(n->shape[n->rank - 1], TCI_PER_POINT_SHORT) ||
            c->in[0].source->op == TCI_OP_PAD || c->in[1].source->op == TCI_OP_PAD);
}

/* ---- what no run changes ---- */

typedef struct tci_fixed {
    const tci_algo *a;
    int walked;
    double bytes;
} tci_fixed;

static bool tci_fixed_is(tci_fixed *p, const tci_node *n)
{
    if (++p->walked > TCI_ROUTE_WALK || !tci_build_is_known(n->rank, n->shape)) {
        return false;
    }
    if (n->n_in == 0) {
        bool fixed = n->op == TCI_OP_DATA || !tci_op_is(n->op, TCI_IS_MEMORY);
        for (int i = 0; i < p->a->n_changed; i++) {
            fixed = fixed && p->a->changed[i] != n;
        }
        p->bytes += n->op == TCI_OP_DATA ? tci_node_value_bytes(n) : 0;
        return fixed;
    }
    bool fixed = !tci_op_is(n->op, TCI_IS_UNIQUE);
    for (int i = 0; i < n->n_in && fixed; i++) {
        fixed = tci_fixed_is(p, n->in[i]);
    }
    return fixed;
}

TCI_FN bool tci_plan_is_fixed(const tci_algo *a, const tci_node *n, double *from)
{
    tci_fixed p = {.a = a};
    bool fixed = tci_fixed_is(&p, n);
    *from = p.bytes;
    return fixed;
}
