/* plan/contraction_route.h - declares routes: the algorithms that can compute a contraction, as
 * rows of one table.
 *
 * A route checks whether it fits a contraction, estimates its cost, and builds the nodes. Each row
 * has an association class (tci_sums): the order of the additions, and their instructions. The
 * class of a contraction is the first that a fitting row has, so it follows from shapes, dtypes
 * and the kind of machine; the cheapest row of it is taken. To add a route, add a row here and in
 * plan/contraction_route.c (or gpu_contraction_routes.c), and a source file.
 *
 * Invariants: `fits` materializes nothing and reports nothing; `build` is called only for the
 * chosen route. */
#ifndef TCI_PLAN_CONTRACTION_ROUTE_H
#define TCI_PLAN_CONTRACTION_ROUTE_H

#include "rfactor.h"

/* Association classes of contractions, the preferred ones first. On a CPU a result depends on
 * nothing else. */
typedef enum tci_sums {
    TCI_SUMS_UNIT_RUNS,  /* as a matrix unit adds over copies of windows: runs of channels filled up
                          * with zeros, or matrices, whose K may be cut */
    TCI_SUMS_UNIT_PARTS, /* parts of K by a matrix unit, added up by a second kernel */
    TCI_SUMS_UNIT,       /* as a matrix unit adds */
    TCI_SUMS_FAST,       /* other products than the graph's: TC_MATH_FAST */
    TCI_SUMS_LINES,      /* lines of an image, added up by a second kernel */
    TCI_SUMS_EXACT,      /* of integers: any order gives the same */
    TCI_SUMS_ROWS,       /* a SUM of products: that of any reduction */
    TCI_SUMS_INNER,      /* of the contraction that the route makes, with its axes permuted */
    TCI_SUMS_PARTS,      /* parts of K as chains, added up by a second kernel */
    TCI_SUMS_CHAINS      /* along K, as plan/reduction_order.c says */
} tci_sums;

enum {
    TCI_ROUTE_SPLITS = 1,  /* makes parts, halves or copies: not of what attention takes whole */
    TCI_ROUTE_REORDERS = 2 /* the order follows from sizes: not where sums are reproducible */
};

typedef struct tci_route tci_route;
typedef struct tci_offer tci_offer;
/* Rows that fit, and which of them is taken. */
typedef struct tci_route_choice {
    tci_offer *offers;
    int n, best;
} tci_route_choice;

/* A route for a contraction. */
struct tci_offer {
    const tci_route *route;
    const tci_algo *a;
    tci_node *n;
    const tci_contraction *c;
    void *found; /* what fits has found out, for the other functions */
    double cost_ns;
};

struct tci_route {
    const char *name;
    uint8_t sums; /* tci_sums */
    uint8_t flags;
    bool (*fits)(tci_offer *o);
    double (*cost_ns)(const tci_offer *o);
    tci_node *(*build)(const tci_offer *o);
};

/* The choice, for routes that are made of others: contraction n as the nodes of the route that is
 * taken; and all rows up to class `last` that fit, with their costs, and the cheapest one of the
 * first of their classes. */
struct tci_router {
    tci_node *(*contract)(const tci_algo *a, tci_node *n);
    tci_route_choice (*choose)(const tci_algo *a, tci_node *n, const tci_contraction *c,
                               tci_sums last);
};
TCI_FN const tci_router *tci_route_router(void); /* plan/contraction_route.c */
/* plan/operand_layout.c: contraction n of operands in the order that loops read them. */
TCI_FN tci_node *tci_route_plain(const tci_algo *a, tci_node *n);

/* ---- facts: plan/route_facts.c ---- */

/* The offer of that route; false: it does not fit. */
TCI_FN bool tci_route_fits(const tci_route *route, const tci_algo *a, tci_node *n,
                           const tci_contraction *c, tci_offer *o);
/* True if an operand is windows that no kernel stores. */
TCI_FN bool tci_route_reads_windows(const tci_algo *a, const tci_contraction *c);
/* Products that lanes of a CPU, or its matrix unit, take at once (tci_kred.points), 0: one. */
TCI_FN int tci_plan_points(const tci_contraction *c, const tci_machine *machine);
/* True if a CPU's matrix unit takes the contraction, which is of bytes of any signs. */
TCI_FN bool tci_plan_any_signs(const tci_contraction *c, const tci_machine *machine);
/* The dtype that an operand in i32 widens, through views; TC_I32: it is not so. */
TCI_FN tc_dtype tci_int8_source(tci_node *n);
/* True if a matrix unit that takes bytes is worth it: `few` rows or columns at least. */
TCI_FN bool tci_int8_for_unit(const tci_contraction *c, int few);
/* True if the kernel of the contraction packs its operands (loop/gemm.c); */
TCI_FN bool tci_route_packs(const tci_contraction *c, const tci_machine *machine);
/* if a block of threads makes tiles of it; if the threads of a block take points of it. */
TCI_FN bool tci_route_gathers(const tci_contraction *c, const tci_machine *machine);
TCI_FN bool tci_route_spreads(const tci_contraction *c, const tci_machine *machine);
/* True if n is computed from nothing that a run gives or changes; from: bytes it is made of. */
TCI_FN bool tci_plan_is_fixed(const tci_algo *a, const tci_node *n, double *from);

/* ---- costs ---- */

/* Resource that bounds a route's multiply-adds. */
typedef enum tci_route_by { TCI_BY_VECTORS, TCI_BY_UNIT, TCI_BY_UNIT_F32 } tci_route_by;
typedef struct tci_route_work {
    double products, bytes;
    tci_route_by by;
    int launches;
    double blocks; /* that run at once, at most: 0: enough for all processors */
} tci_route_work;
/* Of the contraction itself: its products, its operands and result once. */
TCI_FN tci_route_work tci_route_work_of(const tci_offer *o, tci_route_by by);
TCI_FN double tci_route_ns(const tci_offer *o, tci_route_work work);
/* Time to pack the operand that has the N axes, in ns. */
TCI_FN double tci_route_pack_ns(const tci_offer *o);
/* Of the contraction where both operands are copied first. */
static inline double tci_route_copies_ns(const tci_offer *o, tci_route_by by)
{
    tci_route_work work = tci_route_work_of(o, by);
    work.bytes += 2 * (o->c->in[0].bytes + o->c->in[1].bytes);
    work.launches += 2;
    return tci_route_ns(o, work);
}

/* ---- rows ---- */

TCI_FN const tci_route *tci_route_unit(void); /* matrix_unit_gemm.c */
TCI_FN const tci_route *tci_route_winograd(void);
TCI_FN const tci_route *tci_route_zero_points(void);   /* int8_dot.c */
TCI_FN const tci_route *tci_route_prepacked_dot(void); /* prepack.c */
TCI_FN const tci_route *tci_route_prepacked(void);
TCI_FN const tci_route *tci_route_gemv(void); /* split_k.c */
TCI_FN const tci_route *tci_route_grouped(void);
TCI_FN const tci_route *tci_route_split_k(void);
/* plan/gpu_contraction_routes.c: writes the rows that only GPUs have; how many. */
TCI_FN int tci_block_routes(const tci_route **rows);
TCI_BLOCK_FN const tci_route *tci_route_unit_split_k(void);
TCI_BLOCK_FN const tci_route *tci_route_im2col(void);        /* im2col_gemm.c */
TCI_BLOCK_FN const tci_route *tci_route_few_channels(void);  /* small_channel_conv.c */
TCI_BLOCK_FN const tci_route *tci_route_channels_last(void); /* conv_layout.c */
TCI_BLOCK_FN const tci_route *tci_route_kmajor(void);        /* kmajor.c */
TCI_BLOCK_FN const tci_route *tci_route_bf16x3(void);
TCI_BLOCK_FN const tci_route *tci_route_depthwise(void); /* depthwise_wgrad.c */

#endif
