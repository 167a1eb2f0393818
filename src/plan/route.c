/* plan/route.c - chooses how a contraction is computed: the table of routes, and the routes that
 * leave it one CONTRACT (matrix unit, plain).
 *
 * In: a CONTRACT of the rewritten graph. Out: the nodes of its route, with operands stored where
 * that route reads them often. The one idea: the rows that fit, which follows from
 * shapes and the kind of machine, give the association class, the first one of tci_sums; of the
 * rows of that class the cheapest by the model is built, and the others are reported with their prices (tc_explain).
 * A line of the file of forced schedules may name another row of the class. */
#include "../kernel/matrix.h"
#include "route.h"

#include <string.h>

enum {
    TCI_ROUTE_REUSE = 4,       /* times an operand is read before it is worth a copy */
    TCI_ROUTE_BACK = 256,      /* results that an element read backwards is for, to be copied */
    TCI_ROUTE_PACK_ROWS = 8,   /* that loop/gemm_operands.c asks of a packed contraction */
    TCI_ROUTE_PACK_COLUMNS = 16,
    TCI_ROUTE_PACK_INNER = 1024,
    TCI_ROUTE_PACK_OPS = 4,    /* operations of an operand that packing evaluates */
    TCI_ROUTE_PITCH_ROWS = 64, /* rows of a product that is worth a copy of an operand */
    TCI_ROUTE_SCORES = 8,      /* operations between a score and its product, at most */
    TCI_ROUTE_PACK = 7,        /* time to pack an element, in those of its product with a row */
    TCI_ROUTE_UNTILED = 4,     /* times as long as in register tiles a product takes */
    TCI_ROUTE_MOST = 16        /* rows of the table, at most */
};

/* ---- costs ---- */

TCI_FN tci_route_work tci_route_work_of(const tci_offer *o, tci_route_by by)
{
    const tci_contraction *c = o->c;
    double bytes = c->in[0].bytes + c->in[1].bytes + tci_node_value_bytes(c->n);
    return (tci_route_work){.products = c->products, .bytes = bytes, .by = by, .launches = 1};
}

/* Bytes in a nanosecond from where so many of them are kept between launches. */
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

/* What packing the operand with the columns takes, by vectors. */
static double tci_route_pack_ns(const tci_offer *o)
{
    const double *size = o->c->size;
    double elements = size[TCI_AXES_BATCH] * size[TCI_AXES_K] *
                      size[o->c->columns == 0 ? TCI_AXES_M : TCI_AXES_N];
    return tci_route_ns(o, (tci_route_work){.products = TCI_ROUTE_PACK * elements});
}

/* ---- what the kernel will do with operands ---- */

/* One operand has the last axis of the result, the other the rows (the last axis of the result that
 * the first one lacks), and both have all that is summed. */
TCI_FN bool tci_route_packs(const tci_contraction *c, const tci_machine *machine)
{
    const tci_node *n = c->n;
    if (!machine->has_work || n->rank < 2 || n->dtype == TC_BOOL ||
        tci_dim_hint(n->shape[n->rank - 1]) < TCI_ROUTE_PACK_COLUMNS || c->columns < 0) {
        return false;
    }
    int row = n->rank - 2, least = tci_plan_points(c, machine) > 0 ? TCI_PAIRS_ROWS
                                                                   : TCI_ROUTE_PACK_ROWS;
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
static bool tci_route_gathers(const tci_contraction *c, const tci_machine *machine)
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
static bool tci_route_spreads(const tci_contraction *c, const tci_machine *machine)
{
    const tci_node *n = c->n;
    return c->is_known && machine->block_threads >= TCI_GATHER_THREADS && n->dtype != TC_BOOL &&
           n->rank > 0 &&
           (tci_dim_lt(n->shape[n->rank - 1], TCI_SPREAD_SHORT) ||
            c->in[0].source->op == TCI_OP_PAD || c->in[1].source->op == TCI_OP_PAD);
}

/* ADD, SUB, MUL and the like over leaves, seen through views: how many, or too many. pads: padding
 * is one of them. */
static int tci_route_cheap_ops(tci_node *n, bool pads)
{
    n = tci_below(n, TCI_THROUGH_ALL, NULL);
    bool given = tci_op_is(n->op, TCI_IS_MEMORY | TCI_IS_NUMBER);
    bool cheap = n->op == TCI_OP_ADD || n->op == TCI_OP_SUB || n->op == TCI_OP_MUL ||
                 n->op == TCI_OP_NEG || n->op == TCI_OP_RELU || (pads && n->op == TCI_OP_PAD);
    int ops = given ? 0 : cheap ? 1 : TCI_ROUTE_PACK_OPS + 1;
    for (int i = 0; cheap && i < n->n_in && ops <= TCI_ROUTE_PACK_OPS; i++) {
        ops += tci_route_cheap_ops(n->in[i], pads);
    }
    return ops;
}

/* ---- matrix unit ---- */

/* The bf16 or f16 value of an operand that could be in memory as it is read: below movement and a
 * widening, unless one of these is stored. NULL: there is none. */
static tci_node *tci_route_half_source(const tci_algo *a, tci_node *n)
{
    n = tci_below(n, TCI_THROUGH_MOVEMENT | TCI_THROUGH_WIDENING, a->forced);
    bool fits = n->rank > 0 && tci_build_is_known(n->rank, n->shape);
    return tci_dtype_is_half((tc_dtype)n->dtype) && fits ? n : NULL;
}

/* True if rows of the value begin where a matrix unit reads them, or a copy with longer rows can
 * take its place. Only movement that leaves rows whole may be between; on a CPU it would be packed
 * anyway. */
static bool tci_route_can_pitch(const tci_node *n, const tci_node *source,
                                const tci_machine *machine, int64_t rows)
{
    bool whole = machine->block_threads > 0 && rows >= TCI_ROUTE_PITCH_ROWS;
    int align = tci_matrix_align(source->dtype);
    if (tci_dim_known(source->shape[tci_relayout_row_axis(source)]) % align == 0) {
        return true;
    }
    for (; n != source; n = n->in[0]) {
        whole = whole && (n->op == TCI_OP_PERMUTE || n->op == TCI_OP_CAST);
    }
    return whole;
}

/* True if n is made, element by element, of a contraction. */
static bool tci_route_is_scores(const tci_node *n, int depth)
{
    bool found = n->op == TCI_OP_CONTRACT;
    bool goes = depth < TCI_ROUTE_SCORES && tci_op_is(n->op, TCI_IS_POINTWISE);
    for (int i = 0; i < n->n_in && goes && !found; i++) {
        found = tci_route_is_scores(n->in[i], depth + 1);
    }
    return found;
}

/* True if n is the weights of attention, which one kernel makes of its scores (plan/pattern.c). */
static bool tci_route_is_weights(const tci_node *n)
{
    while (n->op == TCI_OP_CAST) {
        n = n->in[0];
    }
    for (int i = 0; i < 2 && (n->op == TCI_OP_MUL || n->op == TCI_OP_DIV); i++) {
        const tci_node *e = n->in[i];
        if (e->op == TCI_OP_EXP && e->in[0]->op == TCI_OP_SUB) {
            return tci_route_is_scores(e->in[0]->in[0], 0);
        }
    }
    return false;
}

/* True if n is made of them, element by element, as the changes of scores are. */
static bool tci_route_is_of_weights(const tci_node *n, int depth)
{
    bool found = tci_route_is_weights(n);
    bool goes = depth < TCI_ROUTE_SCORES && tci_op_is(n->op, TCI_IS_POINTWISE);
    for (int i = 0; i < n->n_in && goes && !found; i++) {
        found = tci_route_is_of_weights(n->in[i], depth + 1);
    }
    return found;
}

/* As far as the graph tells; loop/matrix.c, which sees the kernel, decides. */
static bool tci_route_unit_fits(tci_offer *o)
{
    const tci_contraction *c = o->c;
    const tci_node *n = o->n;
    const tci_machine *m = &o->a->machine;
    if (m->matrix_units == 0 || n->rank < 2 || n->dtype == TC_F64 || c->columns < 0) {
        return false;
    }
    const tci_node *x = tci_route_half_source(o->a, n->in[0]);
    const tci_node *y = tci_route_half_source(o->a, n->in[1]);
    if (!c->is_known || !x || !y || x->dtype != y->dtype) {
        return false;
    }
    int64_t rows = 1, columns = tci_dim_known(n->shape[n->rank - 1]);
    int64_t depth = (int64_t)c->size[TCI_AXES_K];
    for (int i = 0; i < n->rank - 1; i++) {
        bool row = c->axes[i].group == (c->columns ? TCI_AXES_M : TCI_AXES_N);
        rows = row ? TCI_MAX(rows, tci_dim_known(n->shape[i])) : rows;
    }
    bool whole = rows % TCI_MATRIX_WHOLE == 0 && depth % TCI_MATRIX_WHOLE == 0 &&
                 columns % TCI_MATRIX_WHOLE == 0;
    if (m->block_threads == 0 && (x->dtype != TC_BF16 || !whole)) {
        return false;
    }
    double flops = 2.0 * (double)tci_dim_known(tci_node_count(n)) * (double)depth;
    return tci_route_can_pitch(n->in[0], x, m, rows) && tci_route_can_pitch(n->in[1], y, m, rows) &&
           rows >= TCI_MATRIX_FEW && columns >= TCI_MATRIX_COLUMNS && depth >= TCI_MATRIX_DEPTH &&
           flops >= TCI_MATRIX_FLOPS;
}

/* A processor packs the operand with the columns in each run. */
static double tci_route_unit_cost(const tci_offer *o)
{
    double ns = tci_route_ns(o, tci_route_work_of(o, TCI_BY_UNIT));
    return ns + (o->a->machine.block_threads == 0 ? tci_route_pack_ns(o) : 0);
}

/* Operand n over its halves in rows that the unit reads: weights of attention, and what is made of
 * them, are in no memory. */
static tci_node *tci_route_pitch(const tci_algo *a, tci_node *n)
{
    tci_node *source = tci_route_half_source(a, n);
    if (tci_route_is_of_weights(source, 0)) {
        tci_algo_force(a, source);
        return n;
    }
    tci_node *now = tci_relayout_pitch(a, source, NULL, tci_matrix_align(source->dtype));
    return tci_relayout_over(a, n, source, now);
}

static tci_node *tci_route_unit_build(const tci_offer *o)
{
    tci_node *in[2] = {tci_route_pitch(o->a, o->n->in[0]), tci_route_pitch(o->a, o->n->in[1])};
    return tci_contract_of(o->a->g, o->n, (tc_dtype)o->n->dtype, in);
}

TCI_FN const tci_route *tci_route_unit(void)
{
    static const tci_route row = {"MMA", TCI_SUMS_UNIT, TCI_ROUTE_REORDERS,
                                  tci_route_unit_fits, tci_route_unit_cost, tci_route_unit_build};
    return &row;
}

/* ---- plain: one CONTRACT of operands in the order that its loops read ---- */

/* Times that an element of operand `which` is read. blocks: the threads of a block, which read
 * neighbours together, count once. */
static double tci_route_reads(const tci_node *n, int which, bool blocks)
{
    double times = 1;
    for (int i = 0; i < n->rank; i++) {
        bool own = blocks ? i == n->rank - 1
                          : tci_contract_has(n, which, tci_contract_labels(n, 2)[i]);
        times *= own ? 1 : (double)tci_dim_hint(n->shape[i]);
    }
    return times;
}

/* Operand `which` with its vector axis (the last axis of the result) contiguous, as a stored
 * permutation; the labels follow. Unchanged where it is so, or is read too few times. */
static tci_node *tci_route_operand_order(const tci_algo *a, const tci_node *n, int which,
                                         int64_t *labels)
{
    tci_node *x = n->in[which];
    int at = n->rank > 0 ? tci_contract_axis(n, which, n->attr[n->n_attr - 1]) : -1;
    if (at < 0 || at == tci_fastest_axis(x) || x->op == TCI_OP_WINDOW || x->op == TCI_OP_EXPAND ||
        n->shape[n->rank - 1] == 1 ||
        tci_route_reads(n, which, a->machine.block_threads > 0) < TCI_ROUTE_REUSE) {
        return x;
    }
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    tci_relayout_last(x, at, order);
    for (int i = 0; i < x->rank; i++) {
        labels[i] = tci_contract_labels(n, which)[order[i]];
    }
    return tci_relayout(a, x, (tci_relayout_to){.order = order, .is_turned = true,
                                                .is_own = true});
}

/* True if operand n is read backwards, as the filters are for the gradient to an image. */
static bool tci_route_goes_back(const tci_algo *a, tci_node *n)
{
    bool back = false;
    for (const tci_node *to = tci_below(n, TCI_THROUGH_ALL, a->forced); n != to; n = n->in[0]) {
        for (int i = 0; n->op == TCI_OP_SLICE && i < n->rank; i++) {
            back = back || tci_dim_lt(n->attr[2 * i + 1], 0);
        }
    }
    return back;
}

/* Operand `which`, whose rows loops pack again for each block of columns: one that is read
 * backwards as a copy, in which what is summed is contiguous, and forwards. */
static tci_node *tci_route_rows_forward(const tci_algo *a, const tci_node *n, int which)
{
    tci_node *x = n->in[which];
    tci_node *from = tci_dtype_is_half((tc_dtype)x->dtype) ? x : tci_plan_narrow(a, x);
    if (!from || tci_contract_has(n, which, n->attr[n->n_attr - 1]) ||
        tci_route_reads(n, which, false) < TCI_ROUTE_BACK ||
        !tci_build_is_known(x->rank, x->shape) || !tci_route_goes_back(a, x)) {
        return x;
    }
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    int at = 0;
    for (int summed = 0; summed < 2; summed++) {
        for (int i = 0; i < x->rank; i++) {
            if (tci_contract_sums(n, tci_contract_labels(n, which)[i]) == (summed > 0)) {
                order[at++] = i;
            }
        }
    }
    const tci_relayout_to to = {.order = order, .is_own = true};
    return tci_build_cast(a->g, tci_relayout(a, from, to), (tc_dtype)x->dtype);
}

TCI_FN tci_node *tci_route_plain(const tci_algo *a, tci_node *n)
{
    const tci_machine *m = &a->machine;
    tci_node *in[2];
    if (m->block_threads == 0) {
        in[0] = tci_relayout_pad_narrow(a, n->in[0]);
        in[1] = tci_relayout_pad_narrow(a, n->in[1]);
        n = tci_contract_of(a->g, n, (tc_dtype)n->dtype, in);
        in[0] = tci_route_rows_forward(a, n, 0);
        in[1] = tci_route_rows_forward(a, n, 1);
        n = tci_contract_of(a->g, n, (tc_dtype)n->dtype, in);
    }
    const tci_contraction *c = tci_contraction_of(a->s, n);
    bool gathers = tci_route_gathers(c, m) || tci_route_spreads(c, m);
    bool packs = gathers || tci_route_packs(c, m);
    for (int i = 0; i < 2; i++) {
        if (!packs || tci_route_cheap_ops(n->in[i], gathers) > TCI_ROUTE_PACK_OPS) {
            tci_relayout_store(a, n->in[i]);
        }
    }
    if (gathers || (packs && tci_dim_is_known(n->shape[n->rank - 1]))) { /* of known columns */
        return n;
    }
    int64_t *attr = tci_scratch_copy(a->s, n->attr, sizeof(int64_t) * (size_t)n->n_attr);
    in[0] = tci_route_operand_order(a, n, 0, attr + 3);
    in[1] = tci_route_operand_order(a, n, 1, attr + 3 + attr[0]);
    return tci_graph_node(a->g, TCI_OP_CONTRACT, (tc_dtype)n->dtype, n->rank, n->shape, 2, in,
                          n->n_attr, attr);
}

static bool tci_route_plain_fits(tci_offer *o)
{
    (void)o;
    return true;
}

static double tci_route_plain_cost(const tci_offer *o)
{
    tci_route_work work = tci_route_work_of(o, TCI_BY_VECTORS);
    bool packs = tci_route_packs(o->c, &o->a->machine);
    bool tiles = packs || tci_route_gathers(o->c, &o->a->machine);
    work.products *= tiles ? 1 : TCI_ROUTE_UNTILED;
    return tci_route_ns(o, work) + (packs ? tci_route_pack_ns(o) : 0);
}

static tci_node *tci_route_plain_build(const tci_offer *o)
{
    return tci_plan_signs(o->a, tci_route_plain(o->a, o->n));
}

static const tci_route *tci_route_plain_row(void)
{
    static const tci_route row = {"plain", TCI_SUMS_CHAINS, 0, tci_route_plain_fits,
                                  tci_route_plain_cost, tci_route_plain_build};
    return &row;
}

/* ---- the table ---- */

/* All rows; the last one fits any contraction. */
static int tci_route_table(const tci_route **rows)
{
    const tci_route *const table[] = {
        tci_route_prepacked_dot(), tci_route_unit(),    tci_route_winograd(),
        tci_route_zero_points(),   tci_route_gemv(),    tci_route_grouped(),
        tci_route_split_k(),       tci_route_prepacked(), tci_route_plain_row()};
    int n = tci_block_routes(rows);
    memcpy(rows + n, table, sizeof(table));
    return n + (int)TCI_COUNT(table);
}

TCI_FN bool tci_route_fits(const tci_route *route, const tci_algo *a, tci_node *n,
                           const tci_contraction *c, tci_offer *o)
{
    bool whole = tci_table_has(a->whole, n);
    *o = (tci_offer){.route = route, .a = a, .n = n, .c = c};
    return !(whole && (route->flags & TCI_ROUTE_SPLITS)) &&
           !(a->machine.reproducible && (route->flags & TCI_ROUTE_REORDERS)) && route->fits(o);
}

TCI_FN tci_route_choice tci_route_choose(const tci_algo *a, tci_node *n, const tci_contraction *c,
                                         tci_sums last)
{
    const tci_route *rows[TCI_ROUTE_MOST];
    int n_rows = tci_route_table(rows);
    tci_route_choice choice = {.offers = TCI_NEW_ARRAY(a->s, tci_offer, n_rows)};
    for (int i = 0; i < n_rows; i++) {
        tci_offer *o = &choice.offers[choice.n];
        if (rows[i]->sums <= last && tci_route_fits(rows[i], a, n, c, o)) {
            const tci_offer *best = &choice.offers[choice.best];
            o->cost_ns = rows[i]->cost_ns(o);
            bool first = choice.n == 0 || o->route->sums < best->route->sums;
            bool cheaper = o->route->sums == best->route->sums && o->cost_ns < best->cost_ns;
            choice.best = first || cheaper ? choice.n : choice.best;
            choice.n++;
        }
    }
    return choice;
}

/* ---- reports and forced routes ---- */

/* "contract_8x64x64x512": batch (if there is one) x M x N x K. */
static void tci_route_name(char *text, size_t room, const tci_contraction *c)
{
    const double *size = c->size;
    int n = snprintf(text, room, "contract_");
    if (size[TCI_AXES_BATCH] != 1) {
        n += snprintf(text + n, room - (size_t)n, "%.0fx", size[TCI_AXES_BATCH]);
    }
    snprintf(text + n, room - (size_t)n, "%.0fx%.0fx%.0f", size[TCI_AXES_M], size[TCI_AXES_N],
             size[TCI_AXES_K]);
}

/* The route that a line "NAME: ROUTE" of the user's file gives the contraction; NULL: none does. */
static const char *tci_route_forced(const tci_algo *a, const char *name, size_t *n)
{
    const char *text = a->machine.routes, *at = text;
    for (size_t length = strlen(name); at && (at = strstr(at, name)) != NULL; at += length) {
        bool begins = at == text || at[-1] == '\n' || at[-1] == ' ';
        if (begins && at[length] == ':') {
            at += length + 1;
            at += strspn(at, " \t");
            *n = strcspn(at, "\r\n#");
            while (*n > 0 && at[*n - 1] == ' ') {
                --*n;
            }
            return at;
        }
    }
    return NULL;
}

/* Takes the route of that class that a file names; it is reported where none of that name fits. */
static void tci_route_force(const tci_algo *a, const char *name, tci_route_choice *choice)
{
    size_t n = 0;
    const char *want = tci_route_forced(a, name, &n);
    const uint8_t sums = choice->offers[choice->best].route->sums;
    for (int i = 0; want && i < choice->n; i++) {
        const tci_route *r = choice->offers[i].route;
        if (r->sums == sums && strlen(r->name) == n &&
            !memcmp(want, r->name, n)) {
            choice->best = i;
            return;
        }
    }
    if (want && a->routes) {
        tci_str_printf(a->routes, "%s is not computed as '%.*s': no such route of its class fits\n",
                       name, (int)TCI_MIN(n, 60), want);
    }
}

/* A line on what was taken, with the runners-up. */
static void tci_route_report(const tci_algo *a, const char *name, const tci_route_choice *choice)
{
    tci_str line = {.s = a->s};
    const tci_offer *best = &choice->offers[choice->best];
    tci_str_printf(&line, "%s: %s, %.1f us by the model", name, best->route->name,
                   best->cost_ns * 1e-3);
    for (int i = 0; i < choice->n; i++) {
        const tci_offer *o = &choice->offers[i];
        if (o != best) {
            bool other = o->route->sums != best->route->sums;
            tci_str_printf(&line, "; %s %.1f us%s", o->route->name, o->cost_ns * 1e-3,
                           other ? " (other sums)" : "");
        }
    }
    tci_str_add(&line, "\n");
    if (a->routes && !strstr(tci_str_text(a->routes), tci_str_text(&line))) {
        tci_str_add(a->routes, tci_str_text(&line));
    }
}

/* A line where sums would have another class, were they not to be reproducible. */
static void tci_route_report_whole(const tci_algo *a, tci_node *n, const tci_contraction *c)
{
    tci_algo free = *a;
    tci_offer o;
    free.machine.reproducible = false;
    if (a->machine.reproducible && (tci_route_fits(tci_route_gemv(), &free, n, c, &o) ||
                                    tci_route_fits(tci_route_split_k(), &free, n, c, &o))) {
        tci_str_add(a->orders, "contract: whole, to be reproducible, else parts\n");
    }
}

TCI_FN tci_node *tci_route_contract(const tci_algo *a, tci_node *n)
{
    char name[96];
    const tci_contraction *c = tci_contraction_of(a->s, n);
    tci_route_choice choice = tci_route_choose(a, n, c, TCI_SUMS_CHAINS);
    tci_route_name(name, sizeof(name), c);
    tci_route_force(a, name, &choice);
    tci_route_report(a, name, &choice);
    const tci_offer *best = &choice.offers[choice.best];
    if (best->route->sums == TCI_SUMS_CHAINS) {
        tci_route_report_whole(a, n, c);
    }
    return best->route->build(best);
}
