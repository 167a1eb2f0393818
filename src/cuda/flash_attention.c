/* cuda/flash_attention.c - writes the CUDA source of fused attention and its gradients: for each
 * kernel a class of its numbers, products, cut and loads, and the frame around its slots.
 *
 * In: a loop with a chain (tci_loop.attention) and its slots. Out: text that instantiates the
 * device functions of cuda/wgmma_attention.c, or of cuda/simt_attention.c by threads, with the
 * class. All classes have the same names, so the forward pass and the gradients differ in numbers:
 * operand 0 of rows and steps is the one of the scores, operand 1 the one of the gradients of
 * weights, or, without rows, what the weights are multiplied with; `changes` and `weighs` say which
 * sums there are: o0 of score gradients and the steps of operand 0, o1 of weights and those of
 * operand 1.
 *
 * Tiles are assigned longest first where keys are cut off: to the blocks in order, then in reverse,
 * for balance. */
#include "flash_attention.h"

#include <string.h>

enum { TCI_CUDA_ATTENTION_NEAR = 32 << 20 }; /* bytes of keys and values in the last cache */

/* ---- the class: what both have ---- */

/* NAME_end: the last of n, where tiles of `tile` go beyond, as what is read for a row or step that
 * does not exist is that of the last one. */
static void tci_cuda_attention_end(tci_str *out, const char *name, int64_t n, int tile)
{
    tci_str_printf(out, "    TC_I int %s_end(int i) {\n        return ", name);
    if (n % tile == 0) {
        tci_str_add(out, "i;\n    }\n");
    } else {
        tci_str_printf(out, "i < %lld ? i : %lld;\n    }\n", (long long)n, (long long)n - 1);
    }
}

/* order: the number of the tile that is in place t, longest first, by as many heads as keep what
 * all tiles of one read near. Where queries are steps the first tiles of a head are the longest.
 */
static void tci_cuda_attention_order(tci_str *out, const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int64_t bytes = 2 * s->n * (s->k + x->in[1].k);
    long long tiles = (long long)s->tiles_m, all = s->tiles / tiles;
    long long heads = TCI_MIN(TCI_MAX(TCI_CUDA_ATTENTION_NEAR / bytes, 1), all);
    char last[24];
    snprintf(last, sizeof(last), "%lld - ", tiles - 1);
    tci_str_printf(out,
                   "    TC_I int order(int t) {\n"
                   "        const int first = t / %lld * %lld, in = t %% %lld;\n"
                   "        const int heads = %lld - first < %lld ? %lld - first : %lld;\n"
                   "        return (first + in %% heads) * %lld + %sin / heads;\n    }\n",
                   heads * tiles, heads, heads * tiles, all, heads, all, heads, tiles,
                   x->by_step ? "" : last);
}

/* seen: how many keys a query sees, and so all below it; steps_seen: of n keys whole steps up to
 * the last one that a query of the tile sees, one at least. */
static void tci_cuda_attention_seen(tci_str *out, const tci_attention_cut *cut, const tci_matrix *s)
{
    long long last = (long long)s->m - 1;
    tci_str_printf(out,
                   "    TC_I int seen(int row) { return %lld + %lld * row; }\n"
                   "    TC_I int steps_seen(tc_place p, int n) {\n"
                   "        const int most = seen(p.m + %d < %lld ? p.m + %d : %lld);\n"
                   "        const int steps = most > step ? (most + step - 1) / step : 1;\n"
                   "        return steps * step < n ? steps * step : n;\n    }\n",
                   (long long)cut->base + 1, (long long)cut->rows, s->rows - 1, last, s->rows - 1,
                   last);
}

/* first, end: the steps of a tile, one at least; whole: whether all pairs of 64 rows and a step are
 * seen; and the order of tiles. */
static void tci_cuda_attention_cut(tci_str *out, const tci_attention *x)
{
    if (!x->cut.is_cut) {
        tci_str_add(out, "    TC_I int first(tc_place p, bool cuts) { return 0; }\n"
                         "    TC_I int end(tc_place p, bool cuts) { return n; }\n"
                         "    TC_I bool whole(int row, int step) { return true; }\n"
                         "    TC_I int order(int t) { return t; }\n");
        return;
    }
    tci_cuda_attention_seen(out, &x->cut, &x->in[0]);
    if (x->by_step) {
        tci_str_printf(out,
                       "    TC_I int first(tc_place p, bool cuts) {\n"
                       "        const int last = (n - 1) / step * step;\n"
                       "        const int query = %d * (p.m - %lld), at = query > 0 ? "
                       "query / step * step : 0;\n"
                       "        return !cuts ? 0 : at < last ? at : last;\n    }\n"
                       "    TC_I int end(tc_place p, bool cuts) { return n; }\n"
                       "    TC_I bool whole(int row, int at) { return row + 64 <= seen(at); }\n",
                       x->cut.rows != 0, (long long)x->cut.base);
    } else {
        tci_str_add(out, "    TC_I int first(tc_place p, bool cuts) { return 0; }\n"
                         "    TC_I int end(tc_place p, bool cuts) {\n"
                         "        return cuts ? steps_seen(p, n) : n;\n    }\n"
                         "    TC_I bool whole(int row, int at) { return at + step <= seen(row); "
                         "}\n");
    }
    tci_cuda_attention_order(out, x);
}

/* Numbers that do not depend on who multiplies, in a class whose enum is open. */
static void tci_cuda_attention_numbers(tci_str *out, const tci_attention *x)
{
    const tci_matrix *s = &x->in[0], *o = &x->out[0];
    int columns[2] = {TCI_ATTENTION_ROUND, TCI_ATTENTION_ROUND};
    bool weighs = false;
    for (int i = 0; i < x->n_out; i++) {
        columns[tci_attention_taken(x, i)] = x->out[i].columns;
        weighs |= tci_attention_taken(x, i) == 1;
    }
    tci_str_printf(out,
                   "        changes = %d, weighs = %d, columns_0 = %d, columns_1 = %d,\n"
                   "        n = %lld, step = %d, tiles = %lld, queries = %lld, values = %d,\n"
                   "        online = %d, by_step = %d, rounds = %d, tells = %d,\n"
                   "        row_threads = %d, columns = %d, lanes = %d, staged_pitch = %d,\n",
                   x->n_in > 1, weighs, columns[0], columns[1], (long long)s->n, s->columns,
                   (long long)s->tiles, (long long)(x->by_step ? s->n : s->m), x->n_values,
                   x->is_online, x->by_step, x->rounds, x->tells, o->row_threads, o->columns,
                   o->lanes, (int)o->staged_pitch);
}

/* ---- the class on tensor cores ---- */

static int tci_cuda_attention_warps(const tci_attention *x)
{
    return 4 * x->in[0].consumers + 4;
}

/* The side that is loaded as operand 1 of the steps: online in parts of 64 steps, as the last
 * product reads it. */
static tci_matrix tci_cuda_attention_second(const tci_attention *x)
{
    tci_matrix second = x->is_online ? x->out[0] : x->in[1];
    second.n = x->is_online ? tci_attention_value_columns(x) : second.n;
    return second;
}

/* Of the steps of gradients all are loaded that a box has, zeros after the last one: a product
 * takes them. */
static void tci_cuda_attention_maps(const tci_attention *x, tci_cuda_skeleton *k)
{
    tci_matrix second = tci_cuda_attention_second(x);
    k->n_maps = 2 + x->n_in;
    for (int i = 0; i < 2; i++) {
        if (i < x->n_in) {
            k->maps[3 * i] = tci_cuda_wgmma_map(&x->in[i], 0);
        }
        k->maps[1 + i] = tci_cuda_wgmma_map(i ? &second : &x->in[0], 1);
        if (!x->is_online) {
            k->maps[1 + i].box[1] = x->in[i].columns;
        }
    }
}

/* Barriers of turns, if any are: to issue products, online, or to leave sums. */
static int tci_cuda_attention_turns(const tci_attention *x)
{
    return x->is_online ? x->in[0].consumers : 2 * tci_attention_leaves_in_turns(x);
}

static void tci_cuda_attention_unit_numbers(tci_str *out, const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int line = 2 * TCI_MATRIX_DEPTH_STEP, part = TCI_MATRIX_SUB * line;
    int step[2] = {(int)tci_attention_step_bytes(x, 0), (int)tci_attention_step_bytes(x, 1)};
    int both = x->is_online ? 0 : step[1]; /* in one slot of the ring */
    int rows = (int)tci_attention_rows_bytes(x), loaded = tci_cuda_wgmma_loaded(s, 0);
    long long steps_at = (long long)x->slots * rows;
    long long step_1 = (x->is_online ? x->rings : 1) * (long long)step[0];
    long long values_at = steps_at + x->rings * (long long)(step[0] + step[1]);
    long long staged_at = values_at + x->rings * tci_attention_values_bytes(x);
    long long barriers = staged_at + tci_attention_staged_bytes(x);
    int stages = x->slots + x->rings * (x->is_online ? 2 : 1);
    tci_str_printf(
        out,
        "        depth_0 = %lld, depth_1 = %lld,\n"
        "        consumers = %d, turns = %d, turn_barriers = %d, slots = %d, rings = %d, "
        "stages = %d,\n"
        "        rows_bytes = %d, rows_1 = %d, rows_slab = %d, rows_loaded = %d,\n"
        "        steps_at = %lld, step_bytes = %d, step_slab = %d, step_loaded = %d,\n"
        "        step_1 = %lld, step_bytes_1 = %d, taken_slab = %d, taken_part = %d,\n"
        "        values_at = %lld, staged_at = %lld, staged_bytes = %d, barriers = %lld, "
        "turns_at = %lld\n    };\n",
        (long long)s->k, (long long)x->in[1].k, s->consumers,
        x->is_online ? x->turns : tci_attention_leaves_in_turns(x), tci_cuda_attention_turns(x),
        x->slots, x->rings, stages, rows, s->rows * line * tci_attention_slabs(s->k),
        s->rows * line, loaded * (rows / s->rows), steps_at, step[0] + both, s->columns * line,
        x->is_online ? tci_cuda_wgmma_loaded(s, 1) * (step[0] / s->columns) : step[0] + both,
        step_1, step[1] + (both ? step[0] : 0), x->is_online ? part : s->columns * line,
        x->is_online ? part * tci_attention_slabs(x->in[1].k) : part, values_at, staged_at,
        tci_dtype_get((tc_dtype)x->out[0].staged)->bytes, barriers,
        barriers + 16 * stages + (x->is_online ? 8 : 0));
}

static void tci_cuda_attention_unit_products(tci_str *out, const tci_attention *x)
{
    const char *type = tci_cuda_wgmma_type(&x->in[0]);
    tci_str_printf(out,
                   "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, high); "
                   "}\n"
                   "    TC_I unsigned halves(float low, float high) { return tc_pair_%s(low, "
                   "high); }\n"
                   "    TC_I float low(unsigned two) { return tc_low_%s(two); }\n"
                   "    TC_I float high(unsigned two) { return tc_high_%s(two); }\n"
                   "    TC_I void multiply(float (&d)[%d], unsigned long long a, "
                   "unsigned long long b, int add) {\n"
                   "        TC_MULTIPLY(%s, %d, 0, 0)(d, a, b, add);\n    }\n",
                   x->out[0].staged == TC_F16 ? "f16" : "bf16", type, type, type,
                   x->in[0].columns / 2, type, x->in[0].columns);
    for (int i = 0; i < x->n_out; i++) {
        tci_str_printf(out,
                       "    TC_I void multiply_%d(float (&d)[%d], const unsigned *a, "
                       "unsigned long long b, int add) {\n"
                       "        TC_MULTIPLY_HELD(%s, %d)(d, a, b, add);\n    }\n",
                       tci_attention_taken(x, i), x->out[i].columns / 2, type, x->out[i].columns);
    }
}

/* The class of the sums of last product i, for what leaves them. */
static void tci_cuda_attention_left(tci_str *out, const char *symbol, const tci_attention *x, int i)
{
    const tci_matrix *o = &x->out[i];
    tci_str_printf(out,
                   "struct %s_left_%d {\n    enum { columns = %d, row_threads = %d, "
                   "staged_pitch = %d, staged_bytes = %d };\n"
                   "    TC_I unsigned pair(float low, float high) { return tc_pair_%s(low, "
                   "high); }\n};\n",
                   symbol, tci_attention_taken(x, i), o->columns, o->row_threads,
                   (int)o->staged_pitch, tci_dtype_get((tc_dtype)o->staged)->bytes,
                   o->staged == TC_F16 ? "f16" : "bf16");
}

static void tci_cuda_attention_unit_loads(tci_str *out, const tci_attention *x)
{
    tci_matrix second = tci_cuda_attention_second(x);
    second.n = x->is_online ? x->in[1].k : second.n;
    tci_cuda_wgmma_loads(out, "load_rows_0", &x->in[0], 0);
    if (x->n_in > 1) {
        tci_cuda_wgmma_loads(out, "load_rows_1", &x->in[1], 0);
    }
    tci_cuda_wgmma_loads(out, "load_steps_0", &x->in[0], 1);
    tci_cuda_wgmma_loads(out, "load_steps_1", &second, 1);
}

/* ---- the class by threads ---- */

static void tci_cuda_attention_thread_numbers(tci_str *out, const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    int width[2] = {(int)tci_attention_width(x, 0), (int)tci_attention_width(x, 1)};
    int rows_1 = s->rows * tci_attention_pitch(width[0]);
    int steps_at = rows_1 + (x->n_in > 1 ? s->rows * tci_attention_pitch(width[1]) : 0);
    int steps_1 = steps_at + s->columns * tci_attention_pitch(width[0]);
    int pairs_at = steps_1 + s->columns * tci_attention_pitch(width[1]);
    tci_str_printf(out,
                   "        threads = %d, points = %d, each = %d, width_0 = %d, width_1 = %d,\n"
                   "        rows_1 = %d, steps_at = %d, steps_1 = %d, pairs_at = %d, "
                   "words_at = %d\n    };\n",
                   x->threads, s->rows / TCI_FLASH_GROUPS, s->columns / TCI_FLASH_LANES, width[0],
                   width[1], rows_1, steps_at, steps_1, pairs_at,
                   pairs_at + s->rows * tci_attention_pitch(s->columns));
}

static void tci_cuda_attention_dtype(tci_str *out, const tci_matrix *x)
{
    bool is_f16 = x->dtype == TC_F16;
    if (x->dtype == TC_F32) {
        tci_str_add(out, "    TC_I float round(float x) { return x; }\n"
                         "    TC_I float wide(unsigned short x) { return x; }\n");
    } else {
        tci_str_printf(out,
                       "    TC_I float wide(unsigned short x) {\n        return %s;\n    }\n"
                       "    TC_I float round(float x) {\n        return %s;\n    }\n",
                       is_f16 ? "tc_widen_f32_f16(x)" : "__int_as_float((int)((unsigned)x << 16))",
                       is_f16 ? "tc_widen_f32_f16(tc_narrow_f32_f16(x))" : "tc_round_bf16(x)");
    }
}

/* True if groups of four of its elements start at a multiple of four. */
static bool tci_cuda_attention_is_whole(const tci_matrix *x, const tci_matrix_side *side)
{
    bool whole = side->summed == 1 && x->k % 4 == 0 && side->own % 4 == 0 && side->offset % 4 == 0;
    for (int i = 0; i < x->n_batch; i++) {
        whole = whole && side->batch_pitch[i] % 4 == 0;
    }
    return whole;
}

/* The function that loads rows (which == 0) or steps of operand i from row `first` on; they are
 * `own` apart, their elements `summed`. Of row statistics no more of operand 1 is there than keys
 * have. */
static void tci_cuda_attention_thread_load(tci_str *out, const char *symbol, const tci_attention *x,
                                           int which, int i)
{
    tci_matrix in = x->in[i];
    const tci_matrix_side *side = &in.side[which];
    in.k = i == 1 && x->only_rows ? tci_attention_value_columns(x) : in.k;
    tci_str_printf(out,
                   "    TC_I void load_%s_%d(float *to, void *const *bufs, tc_place p, int first) "
                   "{\n"
                   "        tc_flash_load<%s_shape, %d, %lld, %d, %d, %d>(to, (const %s *)bufs[%d] "
                   "+ %lld",
                   which ? "steps" : "rows", i, symbol, which ? in.columns : in.rows,
                   (long long)in.k, (int)tci_attention_width(x, i),
                   tci_cuda_attention_is_whole(&in, side), side->own == 1 && side->summed != 1,
                   in.dtype == TC_F32 ? "float" : "unsigned short", side->operand,
                   (long long)side->offset);
    for (int b = 0; b < in.n_batch; b++) {
        if (side->batch_pitch[b]) {
            tci_str_printf(out, " + p.b%d * %lldll", b, (long long)side->batch_pitch[b]);
        }
    }
    tci_str_printf(out, " + first * %lldll,\n            %lld, %lld, %lld - first);\n    }\n",
                   (long long)side->own, (long long)side->own, (long long)side->summed,
                   (long long)(which ? in.n : in.m));
}

static void tci_cuda_attention_thread_loads(tci_str *out, const char *symbol,
                                            const tci_attention *x)
{
    for (int i = 0; i < 2; i++) {
        if (i < x->n_in) {
            tci_cuda_attention_thread_load(out, symbol, x, 0, i);
        }
        tci_cuda_attention_thread_load(out, symbol, x, 1, i);
    }
}

/* ---- the kernel ---- */

static void tci_cuda_attention_class(tci_str *out, const char *symbol, const tci_attention *x)
{
    const tci_matrix *s = &x->in[0];
    tci_str_printf(out, "struct %s_shape {\n    enum {\n", symbol);
    tci_cuda_attention_numbers(out, x);
    if (x->threads) {
        tci_cuda_attention_thread_numbers(out, x);
        tci_cuda_attention_dtype(out, s);
        tci_cuda_attention_thread_loads(out, symbol, x);
    } else {
        tci_cuda_attention_unit_numbers(out, x);
        tci_cuda_attention_unit_products(out, x);
        tci_cuda_attention_unit_loads(out, x);
    }
    tci_cuda_attention_cut(out, x);
    tci_cuda_attention_end(out, "rows", s->m, s->rows);
    tci_cuda_attention_end(out, "steps", s->n, s->columns);
    tci_cuda_wgmma_place(out, &x->out[0]);
    tci_str_add(out, "};\n");
    for (int i = 0; i < x->n_out && !x->threads && !x->is_online; i++) {
        tci_cuda_attention_left(out, symbol, x, i);
    }
}

/* The parts that the warps play. 168 registers a thread of twelve warps, and what the loading warps
 * do not need goes to the others; of eight warps each has all that it can. */
static void tci_cuda_attention_split(tci_str *out, const char *symbol, const tci_attention *x)
{
    int loader = 4 * x->in[0].consumers;
    bool moves = x->in[0].consumers > 1;
    tci_str_printf(out, "    if (warp >= %d) {\n", loader);
    if (moves) {
        tci_str_printf(out, "        tc_registers_fewer<%d>();\n", x->is_online ? 24 : 40);
    }
    tci_str_printf(out,
                   "        if (warp == %d && tc_warp_lane<%s_shape>() == 0) {\n"
                   "            tc_%s_load<%s_shape>(at, args.maps%s);\n        }\n",
                   loader, symbol, x->is_online ? "online" : "backward", symbol,
                   x->is_online ? "" : ", cuts");
    if (x->by_step) {
        tci_str_printf(out,
                       "        if (warp == %d) {\n"
                       "            tc_backward_tell<%s_shape>(at, values, cuts);\n        }\n",
                       loader + 1, symbol);
    }
    tci_str_add(out, "        return;\n    }\n");
    if (moves) {
        tci_str_printf(out, "    tc_registers_more<%d>();\n", x->is_online ? 240 : 232);
    }
    tci_str_add(out, "    int ring = 0;\n    unsigned parity = 0;\n");
    tci_str_add(out, x->is_online ? "    unsigned turn = 0, own = warp < 4;\n" : "");
}

TCI_FN void tci_cuda_attention_head(tci_str *out, const char *symbol, const tci_loop *l,
                                    int n_words)
{
    const tci_attention *x = l->attention;
    int threads = x->threads ? x->threads : TCI_MATRIX_WARP * tci_cuda_attention_warps(x);
    tci_cuda_skeleton k;
    memset(&k, 0, sizeof(k));
    k.shared_bytes = tci_attention_shared_bytes(x);
    k.block_x = x->out[0].row_threads;
    k.block_y = threads / x->out[0].row_threads;
    if (!x->threads) {
        tci_cuda_attention_maps(x, &k);
    }
    tci_cuda_skeleton_words(out, symbol, &k);
    tci_cuda_attention_class(out, symbol, x);
    tci_cuda_skeleton_open(out, symbol, l, (int)k.n_maps, n_words, threads / TCI_MATRIX_WARP,
                           x->threads ? x->blocks : 1);
    if (x->threads) {
        tci_str_add(out, "    TC_SHARED;\n    float *const at = (float *)tc_shared;\n");
    } else {
        tci_str_printf(out,
                       "    TC_SHARED;\n"
                       "    const unsigned at = (tc_shared_at(tc_shared) + 1023) & ~1023u;\n"
                       "    tc_attention_begin<%s_shape>(at);\n"
                       "    const int warp = tc_warp<%s_shape>();\n",
                       symbol, symbol);
    }
    if (x->is_online && !x->threads) {
        tci_cuda_attention_split(out, symbol, x);
    }
    tci_cuda_skeleton_args(out);
}

/* The batch of p as axes. */
static void tci_cuda_attention_batch(tci_str *out, const tci_matrix *s)
{
    for (int i = 0; i < s->n_batch; i++) {
        tci_str_printf(out, "    const tc_i64 at_%d = p.b%d;\n", s->batch_axis[i], i);
    }
}

/* The loop over tiles, up to what the slots of pairs need. All warps know whether steps are left
 * out: online it turns out later. */
static void tci_cuda_attention_tiles(tci_str *out, const char *symbol, const tci_attention *x)
{
    if (!x->is_online) {
        tci_str_printf(out, "    const bool cuts = %s;\n",
                       x->cut.is_cut ? "off == -__builtin_inff()" : "false");
    }
    if (!x->is_online && !x->threads) { /* loaders evaluate the values of queries */
        tci_cuda_attention_split(out, symbol, x);
    }
    tci_str_printf(out,
                   "    for (int i = 0, t; (t = tc_attention_next(i)) < %s_shape::tiles; i++) {\n"
                   "    const tc_place p = %s_shape::place(%s_shape::order(t));\n",
                   symbol, symbol, symbol);
    tci_cuda_attention_batch(out, &x->in[0]);
}

/* ---- its slots ---- */

/* The slot that is block i. */
static int tci_cuda_attention_slot(const tci_attention *x, int i)
{
    int slot = 0;
    for (int n = tci_attention_has_slot(x, 0); n <= i; n += tci_attention_has_slot(x, slot)) {
        slot++;
    }
    return slot;
}

/* Of a pair of a row and a step. */
static void tci_cuda_attention_open_pair(tci_str *out, const tci_attention *x, int slot)
{
    const tci_matrix *s = &x->in[0];
    if (slot == TCI_ATTENTION_SLOT_CHANGE) {
        tci_str_add(out, "    const auto change = [&](float weight, float value, const auto &own, "
                         "int q, int row, int step) {\n"
                         "    float all[] = {weight, value");
        for (int i = 2; i < x->n_values; i++) {
            tci_str_printf(out, ", own[%d][q]", i);
        }
        tci_str_add(out, "};\n    void *given = all;\n");
    } else {
        tci_str_printf(out,
                       "    const auto score_%d = [&](float value, int row, int step) {\n"
                       "    void *given = &value;\n",
                       slot - TCI_ATTENTION_SLOT_SCORE);
    }
    tci_str_printf(out, "    const tc_i64 at_%d = row, at_%d = step;\n", s->m_axis, s->n_axis);
}

TCI_FN void tci_cuda_attention_open(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_attention *x = l->attention;
    const tci_matrix *s = &x->in[0], *o = &x->out[1];
    int slot = tci_cuda_attention_slot(x, i);
    switch (slot) {
    case TCI_ATTENTION_SLOT_VALUES:
        tci_str_add(out, "    const auto values = [&](float *own, tc_place p, int query) {\n"
                         "    void *given = own;\n");
        tci_cuda_attention_batch(out, s);
        tci_str_printf(out, "    const tc_i64 at_%d = query;\n",
                       x->by_step ? s->n_axis : s->m_axis);
        return;
    case TCI_ATTENTION_SLOT_OFF:
        tci_str_add(out, "    float off;\n    {\n    void *given = &off;\n");
        return;
    case TCI_ATTENTION_SLOT_ROWS:
        tci_str_printf(out,
                       "    const auto rows_1 = [&](int row, void *given) {\n"
                       "    const tc_i64 at_%d = row, at_%d = 0;\n",
                       o->m_axis, o->n_axis);
        return;
    case TCI_ATTENTION_SLOT_SCORE: tci_cuda_attention_tiles(out, symbol, x); break;
    default: break;
    }
    tci_cuda_attention_open_pair(out, x, slot);
}

/* A warp's rows of the sums that are left, up to what takes them. */
static void tci_cuda_attention_rows(tci_str *out, const char *symbol, const tci_attention *x, int i)
{
    const tci_matrix *o = &x->out[i];
    int groups = TCI_MATRIX_WARP / o->row_threads; /* of rows that a warp is at */
    if (x->threads) {
        int rows = o->rows / (x->threads / TCI_MATRIX_WARP);
        tci_str_printf(out,
                       "    for (int row = threadIdx.y / %d * %d + threadIdx.y %% %d * %d, end = "
                       "threadIdx.y / %d * %d + %d; row < end; row += %d) {\n"
                       "    if (p.m + row >= %lld) {\n        break;\n    }\n"
                       "    void *given = at + row * %d;\n",
                       groups, rows, groups, o->group_rows, groups, rows, rows,
                       groups * o->group_rows, (long long)o->m, (int)o->staged_pitch);
        return;
    }
    tci_str_printf(out,
                   "    for (int row = rows + threadIdx.y %% %d * %d; row < rows + 16; "
                   "row += %d) {\n"
                   "    if (p.m + row >= %lld) {\n        break;\n    }\n"
                   "    void *given = tc_shared + (at - tc_shared_at(tc_shared)) + "
                   "%s_shape::staged_at + %s * %d;\n",
                   groups, o->group_rows, groups * o->group_rows, (long long)o->m, symbol,
                   tci_attention_leaves_in_turns(x) ? "row % 64" : "row",
                   (int)o->staged_pitch * tci_dtype_get((tc_dtype)o->staged)->bytes);
}

/* Stores the sums of last product i. */
static void tci_cuda_attention_leave(tci_str *out, const char *symbol, const tci_attention *x,
                                     int i)
{
    const tci_matrix *o = &x->out[i];
    int taken = tci_attention_taken(x, i), bytes = tci_dtype_get((tc_dtype)o->staged)->bytes;
    if (x->threads) {
        tci_str_printf(out,
                       "    tc_flash_leave<%s_shape, %s_shape::columns_%d>(x.o%d, at, "
                       "%s_shape::staged_pitch);\n    __syncthreads();\n",
                       symbol, symbol, taken, taken, symbol);
        return;
    }
    tci_str_printf(out,
                   "    tc_matrix_leave<%s_left_%d>(x.o%d, at + %s_shape::staged_at + "
                   "warp / 4 * %d);\n    __syncwarp();\n",
                   symbol, taken, taken, symbol,
                   tci_attention_leaves_in_turns(x)
                       ? 0
                       : TCI_MATRIX_SUB * (int)o->staged_pitch * bytes);
}

/* The call of a tile's main loop; on tensor cores that of an online chain leaves its sums too. */
static void tci_cuda_attention_tile(tci_str *out, const char *symbol, const tci_attention *x)
{
    if (x->is_online && !x->threads) {
        tci_str_printf(out,
                       "    tc_online_tile<%s_shape>(at, warp / 4, ring, parity, turn, own, i, p, "
                       "score_0, score_%d);\n",
                       symbol, x->cut.is_cut);
        return;
    }
    const char *of = !x->threads ? "backward" : x->is_online ? "flash" : "flash_back";
    tci_str_printf(out, "    tc_%s<%s_shape> x;\n    tc_%s_tile<%s_shape>(x, at, %s, p, ", of,
                   symbol, of, symbol, x->threads ? "bufs" : "warp / 4, ring, parity, i");
    tci_str_printf(out, "%sscore_0, score_%d%s);\n", x->is_online ? "" : "cuts, values, ",
                   x->cut.is_cut,
                   x->is_online  ? ""
                   : x->n_in > 1 ? ", change"
                                 : ", 0");
}

/* The main loop of a tile, and the sums up to the epilogue slot. */
static void tci_cuda_attention_run(tci_str *out, const char *symbol, const tci_attention *x)
{
    tci_cuda_attention_tile(out, symbol, x);
    if (!x->threads) {
        tci_str_add(out, "    const int rows = 64 * (warp / 4) + 16 * (warp & 3);\n");
    }
    if (!x->threads && tci_attention_leaves_in_turns(x)) {
        tci_str_printf(out,
                       "    tc_barrier_wait(tc_attention_turn<%s_shape>(at, warp / 4), "
                       "(i + 1 + warp / 4) %% 2);\n",
                       symbol);
    }
    for (int i = x->n_out - 1; i >= 0; i--) {
        if (x->threads || !x->is_online) {
            tci_cuda_attention_leave(out, symbol, x, i);
        }
        tci_cuda_attention_rows(out, symbol, x, i);
        if (i == 1) {
            tci_str_printf(out, "    rows_1(p.m + row, given);\n    }\n    %s();\n",
                           x->threads ? "__syncthreads" : "__syncwarp");
        }
    }
    tci_str_printf(out, "    const tc_i64 at_%d = p.m + row, at_%d = 0;\n", x->out[0].m_axis,
                   x->out[0].n_axis);
}

TCI_FN void tci_cuda_attention_close(tci_str *out, const char *symbol, const tci_loop *l, int i)
{
    const tci_attention *x = l->attention;
    switch (tci_cuda_attention_slot(x, i)) {
    case TCI_ATTENTION_SLOT_SCORE:
    case TCI_ATTENTION_SLOT_SEEN: tci_str_add(out, "    return value;\n    };\n"); break;
    case TCI_ATTENTION_SLOT_CHANGE: tci_str_add(out, "    return all[0];\n    };\n"); break;
    case TCI_ATTENTION_SLOT_OFF: tci_str_add(out, "    }\n"); break;
    default: tci_str_add(out, "    };\n"); break;
    }
    if (i + 1 == l->n_scores) {
        tci_cuda_attention_run(out, symbol, x);
    }
}

TCI_FN void tci_cuda_attention_tail(tci_str *out, const char *symbol, const tci_loop *l)
{
    const tci_attention *x = l->attention;
    tci_str_printf(out, "    }\n    %s();\n", x->threads ? "__syncthreads" : "__syncwarp");
    if (!x->threads && tci_attention_leaves_in_turns(x)) {
        tci_str_printf(out,
                       "    tc_warp_arrive<%s_shape>(tc_attention_turn<%s_shape>(at, "
                       "1 - warp / 4));\n",
                       symbol, symbol);
    }
    tci_str_add(out, "    }\n}\n");
}
