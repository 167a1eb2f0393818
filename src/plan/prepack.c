/* plan/prepack.c - packs GEMM panels of constant operands once per program (weight prepacking).
 *
 * In: a CONTRACT that a CPU computes from packed panels (loop/gemm.c), whose column operand is
 * constant across runs: weights. Out: the same CONTRACT over a view of a
 * copy that is stored as the panels are, so the copy is made once (plan/init_section.c) and the
 * loops read it in place. For w[columns, k]:
 *
 *     copy  w[columns / panel, k, column of the panel], the last panel padded with zeros
 *     view  the copy's axes in w's order again, with the two column axes merged
 *
 * Where lanes take several products at once (plan/int8_dot.c), or a unit takes whole steps, the
 * copy interleaves neighbours along k as loop/dot_packing.c does: two bf16, the odd one first, or
 * two or four integers:
 *
 *     copy  w[columns / panel, k / 2, column of the panel, 1 - k % 2], an odd k padded with zeros
 *     copy  w[columns / panel, k / 4, column of the panel, k % 4], padded with zeros
 *
 * Design: the values and the order of their sums are unchanged, so executors without panels (the
 * interpreter, other schedules) compute the same bits through the view. Its index
 * keeps a division and a remainder; the operand's `panel` (kernel/ir.h) says that no axis is to be
 * split for them.
 *
 * The gain is the ratio of packing time to multiplication time: smaller with more rows, larger
 * where columns are strided and must be transposed. The cost is a second copy of the weights. So
 * the route is limited to GEMMs of few rows. Two rows are enough: they are memory-bound, whereas
 * dot products along k (plan/split_k.c) are compute-bound. Where columns are contiguous and rows
 * are few, the GEMM is memory-bound, and long contiguous rows are read at least as fast as
 * panels. */
#include "contraction_route.h"

enum {
    TCI_PREPACK_VECTORS = 2, /* of a panel: what loop/tile_schedules.c makes a register tile of */
    TCI_PREPACK_LEAST = 64,  /* columns, and products of a sum, */
    TCI_PREPACK_MOVE = 7,    /* time to pack an element, in those of its product with a row, */
    TCI_PREPACK_TURN = 15,   /* and where columns are not contiguous, as measured */
    TCI_PREPACK_FEW = 32,    /* rows up to which contiguous ones are as fast in place */
    TCI_PREPACK_GAIN = 3,    /* percent of the time of multiplying that packing is worth, least */
    TCI_PREPACK_UNIT = 16    /* times as fast as f32 a unit is */
};

typedef struct tci_prepack {
    const tci_algo *a;
    const tci_node *n;
    const tci_contraction *c;
    int which;        /* the factor with the columns, */
    int axis;         /* and their axis of it */
    tci_node *factor; /* as it is copied: integers of few bits as such */
    bool is_narrow;
    int64_t width; /* of a panel */
    int points;    /* along k that an element of it holds */
} tci_prepack;

/* ---- what has columns ---- */

/* Finds the factor that has the result's last axis; false where it has other axes than this and
 * one that is summed, or the contraction others that it lacks. */
static bool tci_prepack_look(tci_prepack *p)
{
    const tci_contraction *c = p->c;
    if (c->columns < 0) {
        return false;
    }
    const tci_contract_axis_of *last = &c->axes[p->n->rank - 1];
    p->which = c->columns;
    p->axis = last->at[p->which];
    const tci_node *x = p->n->in[p->which];
    if (x->rank != 2 || x->dtype != p->n->dtype || !tci_build_is_known(2, x->shape)) {
        return false;
    }
    int64_t summed = c->in[p->which].labels[1 - p->axis];
    return tci_contract_sums(p->n, summed) && tci_contract_has(p->n, 1 - p->which, summed) &&
           p->n->in[1 - p->which]->rank == p->n->rank;
}

/* Rows, but for those beyond `most`. */
static int64_t tci_prepack_rows(const tci_node *n, int64_t most)
{
    int64_t rows = 1;
    for (int i = 0; i < n->rank - 1; i++) {
        rows *= TCI_MIN(tci_dim_hint(n->shape[i]), most + 1);
    }
    return rows;
}

static bool tci_prepack_for_unit(const tci_prepack *p)
{
    bool bytes = tci_plan_any_signs(p->c, &p->a->machine);
    return bytes ||
           (p->n->in[0]->dtype == TC_BF16 && p->points > 1 && p->a->machine.matrix_units > 0);
}

/* A unit reads whole steps of a panel. */
static bool tci_prepack_are_whole(const tci_prepack *p)
{
    int64_t step = TCI_MATRIX_WHOLE / 2 * p->points;
    return tci_dim_known(p->n->in[p->which]->shape[1 - p->axis]) % step == 0;
}

static bool tci_prepack_pay(tci_prepack *p)
{
    const tci_node *n = p->n, *x = n->in[p->which];
    bool straight = p->c->in[p->which].fastest == p->axis;
    int64_t least = straight ? TCI_PREPACK_FEW + 1 : 1;
    int64_t most = 100 * (straight ? TCI_PREPACK_MOVE : TCI_PREPACK_TURN) / TCI_PREPACK_GAIN;
    most *= tci_prepack_for_unit(p) ? TCI_PREPACK_UNIT : p->points; /* multiplying is faster */
    int64_t rows = tci_prepack_rows(n, most);
    return rows >= least && rows <= most && tci_dim_known(x->shape[0]) >= TCI_PREPACK_LEAST &&
           tci_dim_known(x->shape[1]) >= TCI_PREPACK_LEAST;
}

/* ---- the routes ---- */

/* several: only where an element of a panel holds several points. */
static bool tci_prepack_find(tci_prepack *p, bool several)
{
    const tci_machine *m = &p->a->machine;
    if (!p->a->panels || m->block_threads > 0 || !m->thread_scratch || p->n->rank < 2 ||
        !tci_prepack_look(p)) {
        return false;
    }
    int points = tci_prepack_rows(p->n, 1) > 1 ? TCI_MAX(tci_plan_points(p->c, m), 1) : 1;
    p->points = points;
    p->points = !tci_prepack_for_unit(p) || tci_prepack_are_whole(p) ? points : 1;
    bool none = several || tci_plan_any_signs(p->c, m);
    if ((none && p->points == 1) || !tci_prepack_pay(p)) {
        return false;
    }
    p->factor = p->n->in[p->which];
    p->is_narrow = p->n->dtype == TC_I32 && p->points > 1;
    if (p->is_narrow) {
        tci_node *x = tci_plan_narrow(p->a, p->factor);
        p->factor = x && p->points == 2 ? tci_build_cast(p->a->g, x, TC_I16) : x;
    }
    const tc_dtype made = (tc_dtype)tci_dtype_get((tc_dtype)p->n->dtype)->compute;
    p->width = TCI_PREPACK_VECTORS * m->vector_bytes / tci_dtype_get(made)->bytes;
    double from = 0; /* bytes that the factor is made of */
    return p->factor && p->width >= 4 && tci_plan_is_fixed(p->a, p->factor, &from) &&
           tci_node_value_bytes(p->factor) <= from;
}

static tci_node *tci_prepack_contract(const tci_prepack *p)
{
    tci_node *in[2] = {p->n->in[0], p->n->in[1]};
    const tci_relayout_panel panel = {p->axis, p->width, p->points};
    tci_node *view = tci_relayout_panels(p->a, p->factor, panel);
    in[p->which] = p->is_narrow ? tci_build_cast(p->a->g, view, TC_I32) : view;
    return tci_contract_of(p->a->g, p->n, (tc_dtype)p->n->dtype, in);
}

static bool tci_prepack_fit(tci_offer *o, tci_node *n, bool several)
{
    tci_prepack *p = TCI_NEW(o->a->s, tci_prepack);
    const tci_contraction *c = n == o->n ? o->c : tci_contraction_of(o->a->s, n);
    *p = (tci_prepack){.a = o->a, .n = n, .c = c};
    o->found = p;
    return tci_prepack_find(p, several);
}

/* Products of several points are a stream of panels also where few rows would be sums along K. */
static bool tci_prepack_dot_fits(tci_offer *o)
{
    tci_offer rows;
    const tci_machine *m = &o->a->machine;
    return tci_prepack_fit(o, o->n, true) &&
           (m->matrix_units > 0 ||
            (!m->reproducible && tci_route_fits(tci_route_gemv(), o->a, o->n, o->c, &rows)));
}

static bool tci_prepack_plain_fits(tci_offer *o)
{
    if (o->a->machine.block_threads > 0) {
        return false;
    }
    tci_node *in[2] = {tci_relayout_pad_narrow(o->a, o->n->in[0]),
                       tci_relayout_pad_narrow(o->a, o->n->in[1])};
    tci_node *n = tci_contract_of(o->a->g, o->n, (tc_dtype)o->n->dtype, in);
    return tci_prepack_fit(o, n, false) &&
           tci_route_packs(((const tci_prepack *)o->found)->c, &o->a->machine);
}

/* Without packing, which the routes that pack in each run add. */
static double tci_prepack_cost(const tci_offer *o)
{
    const tci_prepack *p = o->found;
    bool unit = tci_prepack_for_unit(p);
    tci_route_work work = tci_route_work_of(o, unit ? TCI_BY_UNIT : TCI_BY_VECTORS);
    work.products /= unit ? 1 : p->points;
    return tci_route_ns(o, work);
}

static tci_node *tci_prepack_dot_build(const tci_offer *o)
{
    tci_relayout_store(o->a, o->n->in[0]);
    tci_relayout_store(o->a, o->n->in[1]);
    return tci_plan_signs(o->a, tci_prepack_contract(o->found));
}

static tci_node *tci_prepack_plain_build(const tci_offer *o)
{
    tci_prepack p = *(const tci_prepack *)o->found;
    p.n = tci_route_plain(o->a, o->n);
    return tci_plan_signs(o->a, tci_prepack_contract(&p));
}

TCI_FN const tci_route *tci_route_prepacked_dot(void)
{
    static const tci_route row = {"prepacked dots",     TCI_SUMS_UNIT,    0,
                                  tci_prepack_dot_fits, tci_prepack_cost, tci_prepack_dot_build};
    return &row;
}

TCI_FN const tci_route *tci_route_prepacked(void)
{
    static const tci_route row = {"prepacked",
                                  TCI_SUMS_CHAINS,
                                  TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
                                  tci_prepack_plain_fits,
                                  tci_prepack_cost,
                                  tci_prepack_plain_build};
    return &row;
}
