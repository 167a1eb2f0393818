/* plan/tensor_core_split_k.c - split-K on tensor cores for GEMMs with few tiles: parts of K become
 * a batch axis.
 *
 * In: a CONTRACT of bf16 or f16 values that a matrix unit takes, on a GPU. Out: the same product
 * with K cut in parts, which a second kernel adds in f32. Design: a GPU has 132 SMs and a tile
 * keeps one busy; with fewer tiles than that, parts of K become tiles of their own if that saves
 * more than the second kernel and the partial sums take. The number of parts follows from shapes
 * and the constants of the kind of machine, so it is the same on every GPU. */
#include "split_k.h"

#include <math.h>

enum {
    TCI_SPLIT_K_UNIT_SLAB = 64,    /* products along K that a tile takes in at once */
    TCI_SPLIT_K_UNIT_BEGIN = 3900, /* cycles until the first slab is there, and for the results */
    TCI_SPLIT_K_UNIT_BYTES = 1900  /* that memory gives to all SMs in a cycle */
};
/* Times of a whole product in which parts must be done. */
#define TCI_SPLIT_K_UNIT_GAIN 0.85

/* Cycles of a device with matrix units for this many parts, as tci_split_k_cycles: waves of blocks
 * that each make a tile, no faster than memory gives the operands. */
TCI_BLOCK_FN double tci_unit_gemm_cycles(const tci_unit_gemm *g, double parts)
{
    static const struct {
        int m, n, slab;
    } tiles[] = {{64, 64, 265}, {128, 64, 400}, {64, 128, 400}, {128, 128, 491}};
    double slabs = ceil(g->k / parts / TCI_SPLIT_K_UNIT_SLAB), least = HUGE_VAL;
    for (int i = 0; i < TCI_COUNT(tiles); i++) {
        double n = ceil(g->size[TCI_AXES_M] / tiles[i].m) * ceil(g->size[TCI_AXES_N] / tiles[i].n);
        double waves = ceil(parts * n * g->size[TCI_AXES_BATCH] / TCI_SPLIT_K_PROCESSORS);
        double slab = TCI_MAX(tiles[i].slab, g->step);
        least = TCI_MIN(least, waves * (slabs * slab + TCI_SPLIT_K_UNIT_BEGIN));
    }
    double operands = g->bytes / TCI_SPLIT_K_UNIT_BYTES;
    double moved = 2 * parts * g->results * g->sum_bytes / TCI_SPLIT_K_CYCLE_BYTES;
    double cycles = TCI_MAX(least, operands + TCI_SPLIT_K_UNIT_BEGIN);
    return parts > 1 ? cycles + TCI_SPLIT_K_LAUNCH + moved : cycles;
}

TCI_BLOCK_FN double tci_unit_gemm_parts(const tci_unit_gemm *g)
{
    double best = 1;
    for (double parts = 2; parts <= TCI_SPLIT_K_MANY && parts * TCI_SPLIT_K_LEAST_HALVES <= g->k;
         parts *= 2) {
        bool faster = tci_unit_gemm_cycles(g, parts) < 0.9 * tci_unit_gemm_cycles(g, best);
        best = faster ? parts : best;
    }
    return tci_unit_gemm_cycles(g, best) < TCI_SPLIT_K_UNIT_GAIN * tci_unit_gemm_cycles(g, 1) ? best
                                                                                              : 1;
}

static tci_unit_gemm tci_split_k_unit_gemm(const tci_split_k *p)
{
    return (tci_unit_gemm){.size = p->c->size,
                           .k = tci_split_k_products(p),
                           .bytes = p->c->in[0].bytes + p->c->in[1].bytes,
                           .results = (double)tci_dim_known(tci_node_count(p->n)),
                           .sum_bytes = tci_dtype_get(p->sum)->bytes};
}

/* Cuts K in about this many parts, each of a length at which rows begin where a unit reads them. */
static bool tci_split_k_unit_cut(tci_split_k *p, double parts)
{
    int64_t inner = 1, want = (int64_t)ceil(tci_split_k_products(p) / parts);
    p->at = p->n_summed - 1;
    while (p->at > 0 && inner * p->sizes[p->at] <= want) {
        inner *= p->sizes[p->at--];
    }
    int64_t size = p->sizes[p->at], least = (want + inner - 1) / inner;
    for (p->length = least; p->length < 2 * least && p->length <= size; p->length++) {
        if (size % p->length == 0 && inner * p->length % TCI_MATRIX_ALIGN == 0) {
            return p->at > 0 || p->length < size;
        }
    }
    return false;
}

/* Few tiles leave most units of a device idle: then parts of K are tiles of their own. Windows are
 * left to plan/conv_layout.c and plan/im2col_gemm.c. */
static bool tci_split_k_unit_fit(tci_offer *o)
{
    tci_offer unit;
    tci_split_k *p = TCI_NEW(o->a->s, tci_split_k);
    *p = (tci_split_k){.a = o->a, .s = o->a->s, .g = o->a->g, .n = o->n};
    o->found = p;
    if (o->a->machine.block_threads == 0 || tci_route_reads_windows(o->a, o->c) ||
        !tci_route_fits(tci_route_unit(), o->a, o->n, o->c, &unit) || !tci_split_k_begin(p)) {
        return false;
    }
    const tci_unit_gemm g = tci_split_k_unit_gemm(p);
    double parts = tci_unit_gemm_parts(&g);
    return parts > 1 && tci_split_k_unit_cut(p, parts);
}

static double tci_split_k_unit_cost(const tci_offer *o)
{
    const tci_split_k *p = o->found;
    double parts = tci_split_k_moved(p) / 2 / tci_node_value_bytes(o->n);
    const tci_unit_gemm g = tci_split_k_unit_gemm(p);
    return tci_unit_gemm_cycles(&g, TCI_MAX(parts, 2)) /
           tci_machine_complete(o->a->machine).facts.ghz;
}

static tci_node *tci_split_k_unit_build(const tci_offer *o)
{
    const tci_split_k *found = o->found;
    tci_split_k p = {.a = o->a, .s = o->a->s, .g = o->a->g, .n = tci_route_unit()->build(o)};
    TCI_ASSERT(o->a->s, tci_split_k_begin(&p));
    p.at = found->at;
    p.length = found->length;
    return tci_split_k_made(&p);
}

TCI_BLOCK_FN const tci_route *tci_route_unit_split_k(void)
{
    static const tci_route row = {
        "split-K MMA",        TCI_SUMS_UNIT_PARTS,   TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
        tci_split_k_unit_fit, tci_split_k_unit_cost, tci_split_k_unit_build};
    return &row;
}
