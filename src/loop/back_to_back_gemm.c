/* loop/back_to_back_gemm.c - schedules back-to-back GEMM: fused contractions (attention on CPUs),
 * computed for a strip of several rows at a time.
 *
 * In: a kernel whose stages are contractions that keep an axis, and stages over the kept axis
 * (attention; a softmax or a norm after a product). A unit is a strip of rows, few enough that
 * what they keep stays in the cache:
 *
 *     stage 0     contraction over packed panels (loop/gemm.c): fills an array of rows
 *     stages 1-3  row after row (loop/vec_reduced_axis.c): read and fill such arrays
 *     stage 4     contraction whose row operand is an array of rows, used in place
 *     stage 5     row after row: stores
 *
 * All contractions cut the rows into the same tiles, so that a strip is a range of tiles. On AMX
 * (loop/amx_packed.c) a tile has 32 rows; arrays have all 32 also of a partial one, and the extra
 * rows are never read. Where a comparison of indices masks scores (loop/causal_bound.h), as a
 * causal mask does, a contraction that keeps scores computes only those that some row of its tile
 * sees, and one over weights skips keys whose weights are +0 in the whole strip: the skipped
 * products with +0 can change a sum only through -0 or NaN; one row of them is computed and added
 * to all rows of the tile, so results stay bit-identical. Kernels whose rows are keys (backward)
 * skip the leading masked queries in the same way.
 *
 * The number and size of rows may be symbolic. Then rows are kept in whole tiles, the last one is
 * cut into smaller ones, and a strip has as many as fit the cache. */
#include "gemm.h"
#include "row_buffer.h"
#include "amx.h"
#include "register_tiles.h"

#include <math.h>

enum {
    TCI_B2B_NEAR = 1 << 17, /* bytes of the arrays of a strip, or half a processor's cache */
    TCI_B2B_MOST = 256,     /* rows of a strip */
    TCI_B2B_LEAST = 8,
    TCI_B2B_UNROLL = 2,     /* vectors of a tile */
    TCI_B2B_PACKS = 8,      /* rows whose products take as long as packing for them, */
    TCI_B2B_UNIT_PACKS = 24 /* on a unit */
};
enum { TCI_B2B_N_ROWS };

typedef struct tci_b2b {
    int axis;        /* the outer axis of the rows */
    bool on_unit;    /* AMX multiplies (loop/amx_packed.h): whole tiles of rows */
    tci_dim n_tiles; /* register tiles of them: as tci_gemm has it, */
    int64_t base, extra;
    tci_dim group;  /* tiles of a strip, */
    int64_t most;   /* and how many at most */
    tci_gemm *dots; /* per stage: how it is packed, where columns > 0 */
    bool is_cut;
    tci_causal cut; /* of the rows, where they are */
} tci_b2b;

/* ---- what fits ---- */

static bool tci_b2b_has_form(const tci_query *a)
{
    const tci_kernel *k = a->k;
    bool fits = tci_kernel_keeps(k) && a->machine.thread_scratch && a->machine.block_threads == 0 &&
                a->lanes > 1 && k->n_outer > 0 && k->n_axes < 63 &&
                k->n_operands < TCI_WORK_OPERANDS;
    for (int i = TCI_MAX(k->n_outer - 1, 0); i < k->n_axes && fits; i++) {
        fits = !tci_dim_le(k->axes[i].size, 0);
    }
    return fits && !tci_dim_lt(k->axes[k->n_outer - 1].size, TCI_B2B_LEAST);
}

static int64_t tci_b2b_near(const tci_query *a)
{
    return TCI_MAX(a->machine.facts.cache_bytes[1] / 2, TCI_B2B_NEAR);
}

/* Strips of `rows` rows, about, all of as many tiles as can be: each is one thread's. */
static void tci_b2b_cut(const tci_query *a, int64_t rows, tci_b2b *p)
{
    int registers = TCI_MIN(TCI_MAX(a->machine.facts.registers, 16), 32);
    int64_t most = p->on_unit ? TCI_MATRIX_WHOLE : (registers - 1) / TCI_B2B_UNROLL - 1;
    tci_dim size = a->k->axes[p->axis].size, bytes = tci_row_buffer_bytes(a->k, a->lanes);
    p->base = most;
    p->n_tiles = tci_dim_ceil_div(size, most);
    p->most = TCI_MAX(rows / most, 1);
    if (tci_dim_is_known(size)) {
        int64_t n_tiles = tci_dim_known(p->n_tiles);
        p->base = p->on_unit ? most : tci_dim_known(size) / n_tiles;
        p->extra = p->on_unit ? 0 : tci_dim_known(size) % n_tiles;
        p->most = TCI_MIN(TCI_MAX(rows / (p->base + (p->extra > 0)), 1), n_tiles);
        p->most = tci_ceil_div(n_tiles, tci_ceil_div(n_tiles, p->most));
    }
    p->group = p->most;
    if (!tci_dim_is_known(bytes)) {
        int64_t tile = p->base + (p->extra > 0);
        tci_dim near = tci_dim_div(tci_b2b_near(a), tci_dim_mul(bytes, tile));
        p->group = tci_dim_max(tci_dim_min(near, p->most), 1);
    }
}

/* A contraction is the only reduction of its stage. */
static bool tci_b2b_plan_stage(const tci_kernel *k, int stage, int lanes, const tci_b2b *p,
                               tci_gemm *dot)
{
    const tci_kstage *st = &k->stages[stage];
    int n_reds = 0;
    if (st->n_kept == 0 || st->n_kept == st->n_axes) {
        return st->kind != TCI_STAGE_SCAN;
    }
    for (int r = 0; r < k->n_reds; r++) {
        n_reds += k->reds[r].stage == stage;
        dot->red = k->reds[r].stage == stage ? r : dot->red;
    }
    int64_t columns = tci_dim_most(k->axes[st->axes[st->n_axes - 1]].size);
    dot->stage = stage;
    dot->row_axis = p->axis;
    dot->unroll = (int)TCI_MIN(tci_ceil_div(columns, lanes), TCI_B2B_UNROLL);
    dot->n_tiles = p->n_tiles;
    dot->base = p->base;
    dot->extra = p->extra;
    dot->group = p->most;
    return n_reds == 1 && tci_gemm_plan_row(k, lanes, dot);
}

/* Where rows are cut a contraction that keeps what they see computes no more of it, and one over
 * rows of zeros, in whole parts of its sums, leaves out what all rows of a strip have there. */
static void tci_b2b_cut_stage(const tci_kernel *k, const tci_b2b *p, tci_gemm *dot)
{
    bool whole = dot->part == 0 || dot->is_part;
    if (dot->columns == 0 || !p->is_cut) {
        return;
    }
    dot->hides_columns = dot->vec_axis == p->cut.axis &&
                         tci_causal_hides(k, &p->cut, dot->red, NULL);
    bool zeros = dot->is_row_there && dot->n_inner == 1 && whole &&
                 k->stages[dot->stage].axes[0] == p->cut.axis && p->cut.is_one[dot->row_inst];
    dot->masked = dot->hides_columns || zeros ? &p->cut : NULL;
}

static bool tci_b2b_plan(const tci_query *a, int64_t rows, tci_b2b *p)
{
    bool fits = tci_b2b_has_form(a);
    if (!fits) {
        return false;
    }
    p->axis = a->k->n_outer - 1;
    p->on_unit = tci_query_on_unit(a);
    p->dots = TCI_NEW_ARRAY(a->s, tci_gemm, a->k->n_stages);
    tci_b2b_cut(a, rows, p);
    p->is_cut = tci_causal_find(a->k, p->axis, &p->cut);
    for (int t = 0; t < a->k->n_stages && fits; t++) {
        fits = tci_b2b_plan_stage(a->k, t, a->lanes, p, &p->dots[t]);
        tci_b2b_cut_stage(a->k, p, &p->dots[t]);
    }
    return fits;
}

static int64_t tci_b2b_most(const tci_b2b *p)
{
    return p->most * (p->base + (p->extra > 0));
}

/* ---- the nest ---- */

/* The first row of tile number `tile`, the number of rows after the last one. */
static tci_lin tci_b2b_first(tci_build *b, const tci_b2b *p, int tile)
{
    tci_loop *l = b->l;
    int row = tci_lx_make(l, TCI_LX_MUL, tile, -1, p->base);
    int longer = tci_lx_make(l, TCI_LX_MIN, tile, tci_lx_const(l, p->extra), 0);
    tci_dim size = b->k->axes[p->axis].size;
    int first = tci_lx_make(l, TCI_LX_ADD, row, longer, 0);
    if (tci_dim_add(tci_dim_mul(p->n_tiles, p->base), p->extra) != size) {
        first = tci_lx_make(l, TCI_LX_MIN, first, tci_lx_const(l, size), 0);
    }
    return tci_build_let(b, first);
}

/* Tiles [begin, end) of a contraction, one block of columns after the other. */
static void tci_b2b_contract(tci_build *b, const tci_gemm *dot, int begin, int end)
{
    tci_dim n = tci_dim_ceil_div(b->k->axes[dot->vec_axis].size, dot->columns);
    tci_lopen open;
    if (n == 1) {
        tci_gemm_emit(b, dot, tci_lin_const(0), begin, end);
        return;
    }
    int chunk = tci_build_for(b, tci_lx_const(b->l, 0), tci_lx_const(b->l, n), 1, &open);
    tci_gemm_emit(b, dot, tci_lin_var(b, chunk), begin, end);
    tci_build_close(b, &open);
}

/* Stages [begin, end) for each of the rows [first, last). */
static void tci_b2b_rows(tci_build *b, const tci_b2b *p, int begin, int end, tci_lin first,
                         tci_lin last)
{
    tci_tile tile = {0};
    tci_dim most = tci_dim_add(b->k->axes[p->axis].size, -1);
    tci_lopen open;
    tile.row_axis = tile.vec_axis = tile.next_axis = -1;
    tile.n_rows = tile.n_vecs = 1;
    int row = tci_build_for(b, tci_build_lx(b, first), tci_build_lx(b, last), 1, &open);
    tci_build_set(b, p->axis, tci_build_bind(b, tci_lin_var(b, row), 0, most, false, -1));
    for (int t = begin; t < end; t++) {
        tci_stage_one(b, &tile, t);
    }
    tci_build_close(b, &open);
    tci_build_set(b, p->axis, NULL);
}

/* The only reduction of stages [begin, end), if it keeps a row that contractions leave out, and
 * nothing else reads, before the position where all rows of a strip are cut; -1: there is none. */
static int tci_b2b_left(const tci_kernel *k, const tci_b2b *p, int begin, int end)
{
    bool *leaves = TCI_NEW_ARRAY(k->s, bool, k->n_stages);
    int only = -1;
    for (int t = 0; t < k->n_stages; t++) {
        leaves[t] = p->dots[t].masked && !p->dots[t].hides_columns;
    }
    for (int r = 0; r < k->n_reds; r++) {
        bool here = k->reds[r].stage >= begin && k->reds[r].stage < end;
        only = !here ? only : only == -1 ? r : -2;
    }
    if (!p->is_cut || !p->cut.low || only < 0 || end != begin + 1) {
        return -1;
    }
    const tci_kstage *st = &k->stages[begin];
    bool left = st->n_axes == 1 && st->n_kept == 1 && st->axes[0] == p->cut.axis &&
                p->cut.is_one[k->reds[only].inst] && tci_causal_hides(k, &p->cut, only, leaves);
    return left ? only : -1;
}

/* The same for a strip. What contractions leave out the first row has, which shows that they may,
 * and the others need not have. */
static void tci_b2b_walk(tci_build *b, const tci_b2b *p, int begin, int end, tci_lin first,
                         tci_lin last)
{
    int left = tci_b2b_left(b->k, p, begin, end);
    tci_lin next = left < 0 ? last : tci_lin_plus(first, 1);
    tci_b2b_rows(b, p, begin, end, first, next);
    if (left >= 0) {
        b->stage = end;
        b->cut_from = tci_causal_zeros(b, &p->cut, b->k->reds[left].inst, first, last);
        tci_b2b_rows(b, p, begin, end, next, last);
        b->cut_from = tci_lx_const(b->l, 0);
    }
}

/* A unit: the strip at->group of the rows. */
static void tci_b2b_body(tci_nest *nest, void *arg, const tci_nest_at *at)
{
    const tci_b2b *p = arg;
    tci_build *b = nest->b;
    tci_loop *l = b->l;
    int begin = tci_lx_make(l, TCI_LX_MUL, tci_build_lx(b, at->group), -1, p->group);
    int end = tci_lx_make(l, TCI_LX_ADD, begin, tci_lx_const(l, p->group), 0);
    end = tci_lx_make(l, TCI_LX_MIN, end, tci_lx_const(l, p->n_tiles), 0);
    begin = tci_build_lx(b, tci_build_let(b, begin));
    end = tci_build_lx(b, tci_build_let(b, end));
    tci_lin first = tci_b2b_first(b, p, begin), last = tci_b2b_first(b, p, end);
    for (int i = 0; i < b->n_keeps; i++) {
        b->keeps[i]->origin[p->axis] = first;
    }
    if (p->on_unit) {
        tci_amx_begin(b);
    }
    for (int t = 0, next = 0; t < b->k->n_stages; t = next) {
        next = t + 1;
        if (p->dots[t].columns > 0) {
            tci_gemm dot = p->dots[t];
            if (dot.masked) {
                b->stage = t;
                tci_lin row = dot.masked->low ? first : tci_lin_plus(last, -1);
                dot.cut_at = dot.hides_columns
                                 ? tci_causal_at(b, dot.masked, row)
                                 : tci_causal_zeros(b, dot.masked, dot.row_inst, first, last);
            }
            tci_b2b_contract(b, &dot, begin, end);
            continue;
        }
        while (next < b->k->n_stages && p->dots[next].columns == 0) {
            next++;
        }
        tci_b2b_walk(b, p, t, next, first, last);
    }
    if (p->on_unit) {
        tci_amx_end(b);
    }
}

/* ---- the form ---- */

static bool tci_b2b_fits(const tci_query *a, const int64_t *n)
{
    tci_b2b p = {0};
    int64_t rows = n[TCI_B2B_N_ROWS];
    return rows >= 1 && rows <= TCI_B2B_MOST && tci_b2b_plan(a, rows, &p) &&
           !tci_dim_lt(TCI_WORK_MOST / 2,
                       tci_dim_mul(tci_row_buffer_bytes(a->k, a->lanes), tci_b2b_most(&p)));
}

static int tci_b2b_candidates(const tci_query *a, int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    if (!tci_b2b_has_form(a)) {
        return 0;
    }
    int64_t near = tci_b2b_near(a) / TCI_MAX(tci_dim_hint(tci_row_buffer_bytes(a->k, a->lanes)), 1);
    n[0][TCI_B2B_N_ROWS] = TCI_MAX(TCI_MIN(near, TCI_B2B_MOST / 2), 1);
    n[1][TCI_B2B_N_ROWS] = TCI_B2B_MOST / 2;
    n[2][TCI_B2B_N_ROWS] = TCI_B2B_MOST / 4;
    n[3][TCI_B2B_N_ROWS] = TCI_B2B_MOST / 8;
    n[4][TCI_B2B_N_ROWS] = TCI_B2B_MOST / 16;
    return 5;
}

/* Slowdown from an uneven distribution: of 9 strips on 8 processors one runs alone. */
static double tci_b2b_uneven(const tci_query *a, const tci_b2b *p)
{
    double strips = (double)tci_ceil_div(TCI_MAX(tci_dim_hint(p->n_tiles), 1),
                                         TCI_MAX(tci_dim_hint(p->group), 1));
    double processors = TCI_MAX(a->machine.facts.processors, 1);
    for (int i = 0; i < a->k->n_outer; i++) {
        strips *= i == p->axis ? 1 : (double)TCI_MAX(tci_dim_hint(a->k->axes[i].size), 1);
    }
    return ceil(strips / processors) * processors / strips;
}

/* Each strip packs anew; what does not stay near comes from a farther cache. The processors that
 * have no strip count as if the one thread of the model did their share. */
static double tci_b2b_cost(const tci_query *a, const int64_t *n)
{
    tci_b2b p = {0};
    tci_b2b_plan(a, n[TCI_B2B_N_ROWS], &p);
    tci_dim bytes = tci_row_buffer_bytes(a->k, a->lanes);
    double rows = (double)tci_b2b_most(&p);
    bool far = tci_dim_is_known(bytes) &&
               rows * (double)tci_dim_known(bytes) > (double)tci_b2b_near(a);
    double packs = p.on_unit ? TCI_B2B_UNIT_PACKS : TCI_B2B_PACKS;
    double slower = 1.2 * (1 + packs / rows) * (far ? 1.05 : 1) * tci_b2b_uneven(a, &p);
    return tci_query_ns(a, slower, slower);
}

static void tci_b2b_emit(const tci_query *a, const int64_t *n, tci_build *b, tci_launch *launch)
{
    tci_nest nest = tci_nest_make(a, b);
    tci_b2b p = {0};
    tci_b2b_plan(a, n[TCI_B2B_N_ROWS], &p);
    b->l->lanes = a->lanes;
    b->l->threads = a->threads;
    nest.row_axis = p.axis;
    b->cut = p.is_cut ? &p.cut : NULL;
    b->cut_from = tci_lx_const(b->l, 0);
    nest.n_tiles = p.n_tiles;
    nest.group = p.group;
    tci_row_buffer_rows rows = {p.axis, tci_dim_mul(p.group, p.base + (p.extra > 0)), true};
    tci_row_buffer_arrays(b, rows);
    tci_rows_keep(a, b);
    tci_nest_run(&nest, tci_b2b_body, &p, launch);
}

static void tci_b2b_note(const tci_query *a, const int64_t *n, const tci_build *b, tci_str *out)
{
    tci_b2b p = {0};
    tci_b2b_plan(a, n[TCI_B2B_N_ROWS], &p);
    tci_str_printf(out, "%s, strips of %d rows, tile %dx%d", p.on_unit ? ", matrix unit" : "",
                   (int)tci_b2b_most(&p), (int)(p.base + (p.extra > 0)), TCI_B2B_UNROLL);
    (void)b;
}

TCI_FN const tci_form *const *tci_b2b_forms(void)
{
    static const tci_form strip = {"strip",      {"rows"},     tci_b2b_fits, tci_b2b_candidates,
                                   tci_b2b_cost, tci_b2b_emit, tci_b2b_note};
    static const tci_form *const forms[] = {&strip, NULL};
    return forms;
}
