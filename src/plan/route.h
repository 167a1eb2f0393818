/* plan/route.h - routes: the ways to compute a contraction, as rows of one table.
 *
 * A route says whether it fits a contraction, what that takes by the model of the machine, and
 * builds the nodes. Each row has an association class (tci_sums): in which order, and by what, the
 * products are added. The class of a contraction is the first one that a row fits of, so it follows
 * from shapes, dtypes and the kind of machine alone; among the rows of that class the cheapest one
 * is taken (plan/route.c). A new route is a row here and in plan/route.c (or block_routes.c), and
 * a room that has its three functions.
 *
 * Invariants: `fits` forces nothing into memory and writes no report; `build` is called for the
 * route that is taken alone. */
#ifndef TCI_PLAN_ROUTE_H
#define TCI_PLAN_ROUTE_H

#include "relayout.h"

/* Association classes of contractions, the preferred ones first. On a processor a result depends on
 * nothing else. */
typedef enum tci_sums {
    TCI_SUMS_UNIT_RUNS,  /* as a matrix unit adds, along runs of channels, filled up with zeros */
    TCI_SUMS_UNIT_PARTS, /* parts of K by a matrix unit, added up by a second kernel */
    TCI_SUMS_UNIT,      /* as a matrix unit adds */
    TCI_SUMS_FAST,      /* other products than the graph's: TC_MATH_FAST */
    TCI_SUMS_LINES,     /* lines of an image, added up by a second kernel */
    TCI_SUMS_EXACT,     /* of integers: any order gives the same */
    TCI_SUMS_INNER,     /* of the contraction that the route makes, with its axes turned */
    TCI_SUMS_ROWS,      /* a SUM of products: that of any reduction */
    TCI_SUMS_PARTS,     /* parts of K as chains, added up by a second kernel */
    TCI_SUMS_CHAINS     /* along K, as plan/reduction_order.c says */
} tci_sums;

enum {
    TCI_ROUTE_SPLITS = 1,  /* makes parts, halves or copies: not of what attention takes whole */
    TCI_ROUTE_REORDERS = 2 /* the order follows from sizes: not where sums are reproducible */
};

typedef struct tci_route tci_route;

/* A route for a contraction. */
typedef struct tci_offer {
    const tci_route *route;
    const tci_algo *a;
    tci_node *n;
    const tci_contraction *c;
    void *found;    /* what fits has found out, for the other functions */
    double cost_ns;
} tci_offer;

struct tci_route {
    const char *name;
    uint8_t sums;  /* tci_sums */
    uint8_t flags;
    bool (*fits)(tci_offer *o);
    double (*cost_ns)(const tci_offer *o);
    tci_node *(*build)(const tci_offer *o);
};

/* Contraction n as the nodes of the route that is taken. */
TCI_FN tci_node *tci_route_contract(const tci_algo *a, tci_node *n);
/* All rows up to class `last` that fit, with their costs, and the cheapest one of the first of their
 * classes. */
typedef struct tci_route_choice { tci_offer *offers; int n, best; } tci_route_choice;
TCI_FN tci_route_choice tci_route_choose(const tci_algo *a, tci_node *n, const tci_contraction *c,
                                         tci_sums last);
/* The offer of that route; false: it does not fit. */
TCI_FN bool tci_route_fits(const tci_route *route, const tci_algo *a, tci_node *n,
                           const tci_contraction *c, tci_offer *o);
/* Contraction n of operands in the order that loops read them, as plan/route.c stores them. */
TCI_FN tci_node *tci_route_plain(const tci_algo *a, tci_node *n);
/* True if the kernel of the contraction packs its operands (loop/gemm.c). */
TCI_FN bool tci_route_packs(const tci_contraction *c, const tci_machine *machine);

/* ---- costs ---- */

/* What a route takes: of multiply-adds by what, of bytes moved through memory, and of launches. */
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
/* plan/block_routes.c: the same where both operands are copied first. */
TCI_BLOCK_FN double tci_route_copies_ns(const tci_offer *o, tci_route_by by);

/* ---- rows ---- */

TCI_FN const tci_route *tci_route_unit(void);          /* route.c */
TCI_FN const tci_route *tci_route_winograd(void);
TCI_FN const tci_route *tci_route_zero_points(void);   /* int8_dot.c */
TCI_FN const tci_route *tci_route_prepacked_dot(void); /* prepack.c */
TCI_FN const tci_route *tci_route_prepacked(void);
TCI_FN const tci_route *tci_route_gemv(void);          /* split_k.c */
TCI_FN const tci_route *tci_route_grouped(void);
TCI_FN const tci_route *tci_route_split_k(void);
/* plan/block_routes.c: writes the rows that machines of blocks of threads alone have; how many. */
TCI_FN int tci_block_routes(const tci_route **rows);
TCI_BLOCK_FN const tci_route *tci_route_unit_split_k(void);
TCI_BLOCK_FN const tci_route *tci_route_few_channels(void);  /* small_channel_conv.c */
TCI_BLOCK_FN const tci_route *tci_route_channels_last(void); /* conv_layout.c */
TCI_BLOCK_FN const tci_route *tci_route_kmajor(void);        /* kmajor.c */
TCI_BLOCK_FN const tci_route *tci_route_bf16x3(void);
TCI_BLOCK_FN const tci_route *tci_route_depthwise(void);     /* depthwise_wgrad.c */

#endif
