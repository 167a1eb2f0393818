/* loop/dot_packing.c - packs operands for dot instructions (VDPBF16PS, VPDPBUSD): groups of two or
 * four K elements per lane.
 *
 * In: a block of a contraction whose lanes take several products at once (tci_kred.points). Out:
 * statements that fill the panels with groups of neighbouring k values, and the loop that
 * multiplies them.
 *
 * For bf16 (class PAIRS) a group is one 32-bit word with the bf16 of the even k index in its upper
 * half, the next one in the lower, +0 after an odd number of k values. The panels are those of f32
 * at half the depth, and VDPBF16PS, which adds the upper product and then the lower one, keeps the
 * order along k. For integers a group is an i32 of two 16-bit values or of four int8 values, the
 * first one lowest, zeros after the last one: their sums are exact modulo 2^32 in any order, and a
 * lane takes two (VPMADDWD) or four (VPDPBUSD) products at once. The int8 values of one operand are
 * unsigned and those of the other signed (plan/int8_dot.c), except on AMX (loop/amx_packed.c).
 *
 * Making a group: with one inner axis its values are evaluated together; with several, the values
 * of a few small windows are; otherwise each is evaluated alone, in order, and merged with those
 * before it (tci_lkeep.point). Rows of the row operand are written in long runs, contiguously; bf16
 * pairs are then swapped. Values that are contiguous in memory are loaded as groups and copied or
 * transposed.
 *
 * Expected speed: a tile of R rows and V vectors executes R V instructions per group of k values,
 * and R + V loads; a Zen 5 issues two per cycle (for bf16 128 flops, hence 515
 * GFLOP/s per core at 4.03 GHz, for bytes 1030; the latency of each needs a tile of 12). A 512^3
 * GEMM has a floor of 0.52 ms on one thread, for bytes 0.26, for f32 1.04; packing costs the same
 * as for f32 and so takes a larger share of the time. */
#include "dot_packing.h"

enum {
    TCI_DOT_PACK_STEPS = 2,    /* elements of a tile that are written out, */
    TCI_DOT_PACK_WINDOW = 49,  /* and points of a window that is packed at once, */
    TCI_DOT_PACK_WINDOWS = 100 /* and of all such windows, at most */
};

TCI_FN tc_dtype tci_dot_pack_dtype(tc_dtype t, int points)
{
    return t == TC_F32 ? TC_BF16 : points == 4 ? TC_I8 : TC_I16;
}

/* Of the elements. */
static tc_dtype tci_dot_pack_type(const tci_gemm_state *s)
{
    return (tc_dtype)s->b->k->reds[s->p->red].dtype;
}

TCI_FN bool tci_dot_pack_by_two(const tci_gemm *p)
{
    return p->points > 1 && p->n_inner == 1 && p->of_columns.n_axes == 1;
}

/* body at element number `step`, which has n points. */
static void tci_dot_pack_at(tci_gemm_state *s, tci_lin step, int n, void (*body)(tci_gemm_state *))
{
    tci_build *b = s->b;
    int64_t size = tci_kernel_known(b->k, b->k->stages[s->p->stage].axes[0]);
    tci_lin at = tci_lin_add(b, s->first, tci_lin_mul(b, step, s->p->points));
    s->step = step;
    for (int i = 0; i < s->p->points; i++) {
        s->places[i] = i < n ? tci_build_bind(b, tci_lin_plus(at, i), i, size - n + i, false, -1)
                             : NULL;
    }
    body(s);
}

TCI_FN void tci_dot_pack_walk(tci_gemm_state *s, int from, int to, int unroll,
                              void (*body)(tci_gemm_state *))
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_lopen open;
    int64_t size = tci_kernel_known(b->k, b->k->stages[s->p->stage].axes[0]);
    int points = s->p->points, rest = (int)(size % points);
    int end = tci_lx_make(l, TCI_LX_DIV, to, -1, points);
    tci_lin step = tci_lin_var(b, tci_build_for(b, tci_lx_make(l, TCI_LX_DIV, from, -1, points),
                                                end, 1, &open));
    open.st.unroll = unroll;
    if (size >= points) {
        tci_dot_pack_at(s, step, points, body);
    }
    tci_build_close(b, &open);
    if (rest != 0) { /* only the last block may end with a part of an element */
        int part = tci_lx_make(l, TCI_LX_MOD, to, -1, points);
        tci_build_if(b, tci_build_in_range(b, part, rest, rest), &open);
        tci_dot_pack_at(s, tci_build_let(b, end), rest, body);
        tci_build_close(b, &open);
    }
}

/* The element of an instruction at these positions. */
static int tci_dot_pack_value(tci_gemm_state *s, int inst)
{
    tci_build *b = s->b;
    int axis = b->k->stages[s->p->stage].axes[0], n = 0, points[TCI_DOT_PACK_MOST];
    for (; n < s->p->points && s->places[n]; n++) {
        tci_build_set(b, axis, s->places[n]);
        points[n] = tci_build_value(b, inst);
    }
    tci_build_set(b, axis, NULL);
    if (s->p->in_order) {
        tci_value zero = {.u = 0};
        int even = points[0];
        points[0] = n > 1 ? points[1] : tci_build_const(b, TC_F32, zero);
        points[1] = even;
        n = 2;
    }
    int word = tci_build_word(b, n, s->p->points, points);
    return tci_build_widen(b, word, b->l->lanes);
}

static void tci_dot_pack_put(tci_gemm_state *s, int local, tci_lin at, int value)
{
    tci_stage_array_set(s->b, tci_stage_tuple_of(local, -1), tci_build_lx(s->b, at),
                        tci_stage_tuple_of(value, -1));
}

/* Vector i of the columns at s->step, in elements of the panel. */
static tci_lin tci_dot_pack_vector_at(tci_gemm_state *s, tci_lin step, int64_t i)
{
    tci_build *b = s->b;
    int64_t wide = s->p->is_vec_there ? s->p->points : 1; /* that an element is there */
    tci_lin at = tci_lin_add(b, s->vec->base, tci_lin_mul(b, step, wide * s->tile));
    return tci_lin_plus(at, wide * i * b->l->lanes);
}

TCI_FN void tci_dot_pack_fill(tci_gemm_state *s)
{
    tci_build *b = s->b;
    int kept = s->vec->inst;
    s->vec->inst = -1; /* stored here */
    for (int i = 0; i < s->n_vecs; i++) {
        tci_build_set(b, s->p->vec_axis, s->vecs[i]);
        int value = tci_dot_pack_value(s, s->p->vec_inst);
        tci_dot_pack_put(s, s->vec_pairs, tci_dot_pack_vector_at(s, s->step, i), value);
    }
    tci_build_set(b, s->p->vec_axis, NULL);
    s->vec->inst = kept;
}

TCI_FN void tci_dot_pack_pack_rows(tci_gemm_state *s, int64_t skip)
{
    tci_build *b = s->b;
    int kept = s->row->inst;
    s->row->inst = -1;
    int value = tci_dot_pack_value(s, s->p->row_inst);
    tci_lin at = tci_lin_add(b, s->row_base, tci_lin_mul(b, s->step, s->row_step));
    tci_dot_pack_put(s, s->row_pairs, tci_lin_plus(at, skip), value);
    s->row->inst = kept;
}

/* ---- windows ---- */

/* Windows whose points are whole elements. */
static int64_t tci_dot_pack_whole(const tci_gemm *p)
{
    return p->points / tci_lx_gcd(p->inner, p->points);
}

TCI_FN bool tci_dot_pack_by_window(const tci_gemm *p)
{
    int64_t whole = tci_dot_pack_whole(p);
    return p->points > 1 && !tci_dot_pack_by_two(p) && p->inner <= TCI_DOT_PACK_WINDOW &&
           whole * p->inner <= TCI_DOT_PACK_WINDOWS && (p->n_depths == 1 || p->depth % whole == 0);
}

/* The value at point number `point` of `n` windows from the position `at` of the cut axis on. */
static int tci_dot_pack_window_value(tci_gemm_state *s, tci_lin at, int64_t n, int64_t point)
{
    tci_build *b = s->b;
    const tci_gemm *p = s->p;
    const int32_t *axes = b->k->stages[p->stage].axes;
    for (int i = p->n_inner - 1; i >= p->cut; i--) {
        int64_t size = tci_kernel_known(b->k, axes[i]);
        bool cut = i == p->cut;
        int64_t digit = cut ? point : point % size;
        tci_lin here = cut ? tci_lin_plus(at, digit) : tci_lin_const(digit);
        tci_build_set(b, axes[i],
                      tci_build_bind(b, here, digit, cut ? size - n + digit : digit, false, -1));
        point /= size;
    }
    return tci_build_value(b, p->vec_inst);
}

/* `n` windows from the position `at` on, whose first element is `word`. */
static void tci_dot_pack_windows(tci_gemm_state *s, tci_lin at, int64_t n, tci_lin word, int n_vecs,
                                 const tci_bind *const *vecs)
{
    tci_build *b = s->b;
    int64_t points = n * s->p->inner;
    int each = s->p->points, values[TCI_DOT_PACK_MOST];
    for (int64_t j = 0; j < points; j += each) {
        for (int i = 0; i < n_vecs; i++) {
            int count = (int)TCI_MIN(points - j, each);
            tci_build_set(b, s->p->vec_axis, vecs[i]);
            for (int of = 0; of < count; of++) {
                values[of] = tci_dot_pack_window_value(s, at, n, j + of);
            }
            tci_build_keep_word(b, s->vec, tci_lin_plus(word, j / each),
                                tci_build_word(b, count, each, values));
        }
    }
}

TCI_FN void tci_dot_pack_pack_window(tci_gemm_state *s, int n, const tci_bind *const *vecs)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    const tci_gemm *p = s->p;
    const int32_t *axes = b->k->stages[p->stage].axes;
    tci_lopen open;
    int64_t whole = tci_dot_pack_whole(p), size = tci_kernel_known(b->k, axes[p->cut]);
    int64_t words = whole * p->inner / p->points, rest = size % whole;
    int kept = s->vec->inst, depth = tci_build_lx(b, s->depth);
    tci_lin before = tci_lin_add(b, s->first, tci_lin_mul(b, s->vec->origin[axes[p->cut]], -1));
    before = tci_build_let(b, tci_lx_make(l, TCI_LX_DIV, tci_build_lx(b, before), -1, whole));
    s->vec->inst = -1; /* stored here */
    for (int i = 0; i < p->cut; i++) {
        tci_build_set(b, axes[i], s->fixed[i]);
    }
    tci_lin end = tci_build_let(b, tci_lx_make(l, TCI_LX_DIV, depth, -1, whole));
    tci_lin i = tci_lin_var(b,
                            tci_build_for(b, tci_lx_const(l, 0), tci_build_lx(b, end), 1, &open));
    if (size >= whole) {
        tci_dot_pack_windows(s, tci_lin_add(b, s->first, tci_lin_mul(b, i, whole)), whole,
                             tci_lin_mul(b, tci_lin_add(b, before, i), words), n, vecs);
    }
    tci_build_close(b, &open);
    if (rest != 0) { /* only the last block may end with this many */
        int left = tci_lx_make(l, TCI_LX_MOD, depth, -1, whole);
        tci_build_if(b, tci_build_in_range(b, left, rest, rest), &open);
        tci_dot_pack_windows(s, tci_lin_add(b, s->first, tci_lin_mul(b, end, whole)), rest,
                             tci_lin_mul(b, tci_lin_add(b, before, end), words), n, vecs);
        tci_build_close(b, &open);
    }
    for (int a = 0; a < p->n_inner; a++) {
        tci_build_set(b, axes[a], NULL);
    }
    tci_build_set(b, p->vec_axis, NULL);
    s->vec->inst = kept;
}

/* ---- operands contiguous along the points ---- */

TCI_FN bool tci_dot_pack_in_order(const tci_build *b, const tci_gemm *p, int load)
{
    const tci_kernel *k = b->k;
    const tci_kinst *in = &k->insts[TCI_MAX(load, 0)];
    int axis = k->stages[p->stage].axes[0];
    int64_t whole = p->points * b->l->lanes, size = tci_kernel_known(k, axis);
    tci_dim coef = 0;
    return load >= 0 && p->points > 1 && p->n_inner == 1 && in->n_guards == 0 &&
           tci_dtype_get((tc_dtype)k->operands[tci_kinst_number(in)].dtype)->bytes * p->points ==
               (int)sizeof(float) &&
           size % whole == 0 && p->depth % whole == 0 && tci_build_coef(k, in->x, axis, &coef) &&
           coef == 1;
}

static int tci_dot_pack_shifted(tci_build *b, tci_prim p, int word)
{
    tci_value half = {.u = 16};
    int args[2] = {word, tci_build_const(b, TC_U32, half)};
    return tci_build_prim(b, p, TC_U32, 2, args, 0);
}

/* Elements of points as they are in memory, as those of the panel: of bf16 the halves change
 * places, of bytes that flip the highest bit of each changes. */
static int tci_dot_pack_arranged(tci_gemm_state *s, int words, bool flips)
{
    tci_build *b = s->b;
    bool is_float = tci_dot_pack_type(s) == TC_F32;
    if (s->p->in_order || (!is_float && !flips)) {
        return words;
    }
    tci_value highest = {.u = 0x80808080U};
    int word = tci_build_prim(b, is_float ? TCI_P_BITS : TCI_P_CAST, TC_U32, 1, &words, 0);
    int both[2] = {word, -1};
    if (is_float) {
        both[0] = tci_dot_pack_shifted(b, TCI_P_SHL, word);
        both[1] = tci_dot_pack_shifted(b, TCI_P_SHR, word);
    } else {
        both[1] = tci_build_const(b, TC_U32, highest);
    }
    word = tci_build_prim(b, is_float ? TCI_P_OR : TCI_P_XOR, TC_U32, 2, both, 0);
    return tci_build_prim(b, is_float ? TCI_P_BITS : TCI_P_CAST, tci_dot_pack_type(s), 1, &word, 0);
}

/* The elements from the point that is bound on, `skip` points further. */
static int tci_dot_pack_load(tci_gemm_state *s, int load, tci_dim skip)
{
    tci_build *b = s->b;
    const tci_kinst *in = &b->k->insts[load];
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_LOAD_PAIRS;
    st.base = tci_kinst_number(in);
    st.x = tci_build_lx(b, tci_lin_plus(tci_build_kx(b, in->x), skip));
    return tci_build_mem(b, st, tci_dot_pack_type(s), b->l->lanes, b->cur);
}

/* A loop over the block, a vector of elements after the other: binds its points, gives its
 * number. */
static tci_lin tci_dot_pack_open(tci_gemm_state *s, tci_lopen *open)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int axis = b->k->stages[s->p->stage].axes[0];
    int64_t whole = s->p->points * l->lanes, size = tci_kernel_known(b->k, axis);
    int end = tci_lx_make(l, TCI_LX_DIV, tci_build_lx(b, s->depth), -1, whole);
    tci_lin i = tci_lin_var(b, tci_build_for(b, tci_lx_const(l, 0), end, 1, open));
    tci_lin at = tci_lin_add(b, s->first, tci_lin_mul(b, i, whole));
    tci_build_set(b, axis, tci_build_bind(b, at, 0, size - whole, false, -1));
    return i;
}

static void tci_dot_pack_close(tci_gemm_state *s, const tci_lopen *open)
{
    tci_build_set(s->b, s->b->k->stages[s->p->stage].axes[0], NULL);
    tci_build_close(s->b, open);
}

TCI_FN void tci_dot_pack_copy_row(tci_gemm_state *s, tci_lin at)
{
    tci_build *b = s->b;
    tci_lopen open;
    tci_lin i = tci_dot_pack_open(s, &open);
    int words = tci_dot_pack_load(s, s->p->row_load, 0);
    tci_dot_pack_put(s, s->row_pairs, tci_lin_add(b, at, tci_lin_mul(b, i, b->l->lanes)),
                     tci_dot_pack_arranged(s, words, s->p->row_flips));
    tci_dot_pack_close(s, &open);
}

TCI_FN void tci_dot_pack_transpose(tci_build *b, int *v)
{
    for (int h = b->l->lanes / 2; h > 0; h /= 2) {
        for (int j = 0; j < b->l->lanes; j++) {
            if ((j & h) == 0) {
                int x = v[j], y = v[j + h];
                v[j] = tci_build_swap(b, TCI_MEM_SWAP_LOW, x, y, h);
                v[j + h] = tci_build_swap(b, TCI_MEM_SWAP_HIGH, x, y, h);
            }
        }
    }
}

/* Square tiles of elements and columns. */
static void tci_dot_pack_turn(tci_gemm_state *s, tci_lin first, int vector)
{
    tci_build *b = s->b;
    const tci_kinst *in = &b->k->insts[s->p->vec_load];
    int lanes = b->l->lanes, *v = TCI_NEW_ARRAY(b->s, int, lanes);
    tci_dim count = lanes, coef = 0;
    tci_value zero = {.u = 0};
    if (s->vecs[vector]->n >= 0) {
        tci_lx_is_const(b->l, s->vecs[vector]->n, &count);
    }
    tci_build_set(b, s->p->vec_axis, s->vecs[vector]);
    tci_build_coef(b->k, in->x, s->p->vec_axis, &coef);
    for (int j = 0; j < lanes; j++) {
        v[j] = j < tci_dim_known(count)
                   ? tci_dot_pack_load(s, s->p->vec_load, tci_dim_mul(coef, j))
                   : tci_build_splat(b, tci_build_const(b, tci_dot_pack_type(s), zero));
    }
    tci_build_set(b, s->p->vec_axis, NULL);
    tci_dot_pack_transpose(b, v);
    for (int j = 0; j < lanes; j++) {
        tci_lin step = tci_lin_plus(first, j);
        tci_dot_pack_put(s, s->vec_pairs, tci_dot_pack_vector_at(s, step, vector),
                         tci_dot_pack_arranged(s, v[j], s->p->vec_flips));
    }
}

TCI_FN void tci_dot_pack_pack_turned(tci_gemm_state *s)
{
    tci_build *b = s->b;
    tci_lopen open;
    tci_lin i = tci_dot_pack_open(s, &open);
    for (int v = 0; v < s->n_vecs; v++) {
        tci_dot_pack_turn(s, tci_lin_mul(b, i, b->l->lanes), v);
    }
    tci_dot_pack_close(s, &open);
}

/* Zeros after the last point of a row, up to a whole element and perhaps further. */
static void tci_dot_pack_fill_row(tci_gemm_state *s, tci_lin at, int points)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    int each = s->p->points;
    tci_value zero = {.u = 0};
    tci_dim known = 1;
    bool whole = tci_lx_is_const(l, points, &known) && tci_dim_known(known) % each == 0;
    int local = s->row->local, begin = tci_build_lx(b, tci_lin_mul(b, at, each));
    tc_dtype t = tci_dot_pack_type(s) == TC_F32 ? TC_F32 : (tc_dtype)l->locals[local].dtype;
    for (int i = 0; i < each - 1 && !whole; i++) {
        tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
        int end = tci_lx_make(l, TCI_LX_ADD, points, tci_lx_const(l, i), 0);
        st.mem = TCI_MEM_STORE_ONE;
        st.base = ~local;
        st.x = tci_lx_make(l, TCI_LX_ADD, begin, end, 0);
        st.args[0] = tci_build_const(b, t, zero);
        tci_build_mem(b, st, t, 1, b->cur);
    }
}

TCI_FN void tci_dot_pack_finish_row(tci_gemm_state *s, tci_lin at)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_lopen open;
    int64_t lanes = l->lanes;
    int points = tci_build_lx(b, tci_lin_mul(b, s->depth, s->p->inner));
    at = tci_build_let(b, tci_build_lx(b, at));
    tci_dot_pack_fill_row(s, at, points);
    if (s->p->in_order || tci_dot_pack_type(s) != TC_F32) {
        return; /* their layout is that of elements */
    }
    int vectors = tci_lx_make(l, TCI_LX_ADD, points, tci_lx_const(l, 2 * lanes - 1), 0);
    vectors = tci_lx_make(l, TCI_LX_DIV, vectors, -1, 2 * lanes);
    int i = tci_build_for(b, tci_lx_const(l, 0), vectors, 1, &open);
    at = tci_lin_add(b, at, tci_lin_mul(b, tci_lin_var(b, i), lanes));
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    st.mem = TCI_MEM_LOAD;
    st.base = ~s->row_pairs;
    st.x = tci_build_lx(b, at);
    int pairs = tci_build_mem(b, st, TC_F32, l->lanes, b->cur);
    tci_dot_pack_put(s, s->row_pairs, at, tci_dot_pack_arranged(s, pairs, false));
    tci_build_close(b, &open);
}

/* ---- rows that are contiguous, for a unit ---- */

/* A square: the rows that are bound, from row `skip` of the tile on, at `n` points from `first` on,
 * which is the point `at` of the axis; element number `step` of the block. */
static void tci_dot_pack_turn_rows(tci_gemm_state *s, tci_lin at, int64_t n, tci_lin step,
                                   int64_t skip)
{
    tci_build *b = s->b;
    int lanes = b->l->lanes, each = s->p->points, *v = TCI_NEW_ARRAY(b->s, int, lanes);
    int64_t size = tci_kernel_known(b->k, b->k->stages[s->p->stage].axes[0]);
    tci_value zero = {.u = 0};
    for (int64_t j = 0; j < lanes; j++) {
        for (int64_t i = each * j; i < each * (j + 1); i++) {
            s->places[i % each] = i < n ? tci_build_bind(b, tci_lin_plus(at, i), i, size - n + i,
                                                         false, -1)
                                        : NULL;
        }
        v[j] = each * j < n ? tci_dot_pack_value(s, s->p->row_inst)
                            : tci_build_splat(b, tci_build_const(b, tci_dot_pack_type(s), zero));
    }
    tci_dot_pack_transpose(b, v);
    for (int64_t j = 0; j < lanes; j++) {
        tci_lin to = tci_lin_plus(s->row_base, (skip + j) * s->row_step);
        tci_dot_pack_put(s, s->row_pairs, tci_lin_add(b, to, step), v[j]);
    }
}

/* The rows that are bound: square tiles, and what is left of the axis. */
static void tci_dot_pack_turn_all(tci_gemm_state *s, int64_t skip)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_lopen open;
    int64_t lanes = l->lanes, whole = s->p->points * lanes;
    int64_t size = tci_kernel_known(b->k, b->k->stages[s->p->stage].axes[0]), rest = size % whole;
    int squares = tci_lx_make(l, TCI_LX_DIV, tci_build_lx(b, s->depth), -1, whole);
    if (size >= whole) {
        tci_lin i = tci_lin_var(b, tci_build_for(b, tci_lx_const(l, 0), squares, 1, &open));
        tci_dot_pack_turn_rows(s, tci_lin_add(b, s->first, tci_lin_mul(b, i, whole)), whole,
                               tci_lin_mul(b, i, lanes), skip);
        tci_build_close(b, &open);
    }
    if (rest > 0) { /* of the last block */
        int left = tci_lx_make(l, TCI_LX_MOD, tci_build_lx(b, s->depth), -1, whole);
        tci_build_if(b, tci_build_in_range(b, left, rest, rest), &open);
        tci_dot_pack_turn_rows(s, tci_lin_const(size - rest), rest,
                               tci_lin_mul(b, tci_build_let(b, squares), lanes), skip);
        tci_build_close(b, &open);
    }
}

TCI_FN void tci_dot_pack_pack_turned_rows(tci_gemm_state *s)
{
    tci_build *b = s->b;
    const tci_bind *first = s->at.rows[0], *last = s->at.rows[s->at.n_rows - 1];
    int64_t lanes = b->l->lanes, n = s->at.n_rows;
    int kept = s->row->inst;
    s->row->inst = -1; /* stored here */
    for (int64_t r = 0; r < n; r += lanes) {
        int count = n - r < lanes ? tci_lx_const(b->l, n - r) : -1;
        tci_dim hi = tci_dim_add(last->hi, -TCI_MAX(n - r - lanes, 0));
        tci_build_set(b, s->p->row_axis,
                      tci_build_bind(b, tci_lin_plus(first->at, r), tci_dim_add(first->lo, r), hi,
                                     true, count));
        tci_dot_pack_turn_all(s, r);
    }
    tci_build_set(b, s->p->row_axis, NULL);
    s->row->inst = kept;
}

/* ---- multiplying ---- */

/* The element of row r of the tile, in each lane. */
static int tci_dot_pack_row(tci_gemm_state *s, tci_lin step, int64_t r)
{
    tci_build *b = s->b;
    bool across = s->p->row_by_vector;
    tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
    tci_lin at = tci_lin_add(b, s->row_base, tci_lin_mul(b, step, across ? s->row_step : 1));
    st.mem = TCI_MEM_LOAD_ONE;
    st.base = ~s->row_pairs;
    st.x = tci_build_lx(b, tci_lin_plus(at, r * (across ? 1 : s->row_step)));
    int word = tci_build_mem(b, st, tci_dot_pack_type(s), 1, b->cur);
    return tci_build_widen(b, word, b->l->lanes);
}

static void tci_dot_pack_add(tci_gemm_state *s, tci_lin step, const int *vecs)
{
    tci_build *b = s->b;
    int n_vecs = s->n_vecs;
    for (int r = 0; r < s->at.n_rows; r++) {
        int row = tci_dot_pack_row(s, step, r);
        for (int i = 0; i < n_vecs; i++) {
            tci_stage_tuple acc = s->acc[r * n_vecs + i];
            tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
            st.mem = s->p->points == 4 ? TCI_MEM_DOT_FOURS : TCI_MEM_DOT_PAIRS;
            st.args[0] = acc.part[0];
            st.args[1] = s->p->vec_unsigned ? vecs[i] : row;
            st.args[2] = s->p->vec_unsigned ? row : vecs[i];
            int sum = tci_build_mem(b, st, tci_dot_pack_type(s), b->l->lanes, b->cur);
            tci_stage_assign(b, acc, tci_stage_tuple_of(sum, -1));
        }
    }
}

/* The columns as they are read, which stay in the panel for the other row tiles. */
static void tci_dot_pack_add_read(tci_gemm_state *s)
{
    tci_build *b = s->b;
    int axis = b->k->stages[s->p->stage].axes[0], kept = s->vec->inst;
    int *vecs = TCI_NEW_ARRAY(b->s, int, s->n_vecs + 1);
    bool stays = tci_dim_known(s->p->n_tiles) > 1;
    for (int i = 0; i < s->p->points && s->places[i]; i++) {
        tci_build_set(b, axis, s->places[i]);
        tci_gemm_fetch_vectors(s, s->n_vecs, s->vecs, 0, s->tile);
        tci_build_set(b, axis, NULL);
    }
    s->vec->inst = -1;
    for (int i = 0; i < s->n_vecs; i++) {
        tci_build_set(b, s->p->vec_axis, s->vecs[i]);
        vecs[i] = tci_dot_pack_value(s, s->p->vec_inst);
        if (stays) {
            tci_dot_pack_put(s, s->vec_pairs, tci_dot_pack_vector_at(s, s->step, i), vecs[i]);
        }
    }
    tci_build_set(b, s->p->vec_axis, NULL);
    s->vec->inst = kept;
    tci_dot_pack_add(s, s->step, vecs);
}

TCI_FN void tci_dot_pack_dot(tci_gemm_state *s, const tci_tile *tile, tci_lin number,
                             const tci_stage_tuple *acc, int from, int to)
{
    tci_build *b = s->b;
    tci_loop *l = b->l;
    tci_lopen open;
    int axis = b->k->stages[s->p->stage].axes[0];
    int *vecs = TCI_NEW_ARRAY(b->s, int, tile->n_vecs + 1);
    s->acc = acc;
    s->vecs = tile->vecs;
    s->n_vecs = tile->n_vecs;
    if (s->packs) {
        tci_dot_pack_walk(s, from, to, TCI_DOT_PACK_STEPS, tci_dot_pack_add_read);
        return;
    }
    int points = s->p->points, end = tci_lx_make(l, TCI_LX_ADD, to, tci_lx_const(l, points - 1), 0);
    end = tci_lx_make(l, TCI_LX_DIV, end, -1, points);
    from = tci_lx_make(l, TCI_LX_DIV, from, -1, points);
    tci_lin step = tci_lin_var(b, tci_build_for(b, from, end, 1, &open));
    open.st.unroll = TCI_DOT_PACK_STEPS;
    if (!s->p->fused) {
        tci_gemm_fetch_panel(s, tile->n_vecs, step);
    }
    if (s->p->fetch_rows) {
        tci_lin at = tci_lin_add(b, s->first, tci_lin_mul(b, step, points));
        tci_build_set(b, axis, tci_build_bind(b, at, 0, 0, false, -1));
        tci_gemm_fetch_rows(s, tile, number);
        tci_build_set(b, axis, NULL);
    }
    for (int i = 0; i < tile->n_vecs; i++) {
        tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
        st.mem = s->p->is_vec_there ? TCI_MEM_LOAD_PAIRS : TCI_MEM_LOAD;
        st.base = ~s->vec_pairs;
        st.x = tci_build_lx(b, tci_dot_pack_vector_at(s, step, i));
        vecs[i] = tci_build_mem(b, st, tci_dot_pack_type(s), l->lanes, b->cur);
    }
    tci_dot_pack_add(s, step, vecs);
    tci_build_close(b, &open);
}
