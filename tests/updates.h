/* tests/updates.h - parameters updated by contractions and sums, where the new value may overwrite
 * the old one: the same bits as where the two are apart. After tc_test.h and same.h. */
#ifndef TESTS_UPDATES_H
#define TESTS_UPDATES_H

enum { UPDATES_MOST = 1 << 16, UPDATES = 3 };

typedef struct test_updates {
    int rows, k, n;
} test_updates;

/* New values of w[k, n], b[n] and s[rows], given x[rows, k] and g[rows, n]. */
static void test_updated(const tc_tensor *old, tc_tensor x, tc_tensor g, tc_tensor *now)
{
    tc_tensor slope = tc_matmul(tc_transpose(x, 0, 1), g);
    now[0] = tc_sub(tc_mul(old[0], 0.75), tc_mul(slope, 0.5));
    now[1] = tc_sub(old[1], tc_mul(tc_sum(g, TC_AXES(0), false), 0.25));
    now[2] = tc_add(tc_mul(old[2], 0.5), tc_sum(tc_mul(x, x), TC_AXES(1), false));
}

TCT_UNUSED static void test_update_in_place(tc_ctx *ctx, test_updates t)
{
    static float x[UPDATES_MOST], g[UPDATES_MOST], got[UPDATES_MOST];
    static float old[UPDATES][UPDATES_MOST], now[UPDATES][UPDATES_MOST];
    tc_tensor in[2 + UPDATES] = {tc_input(ctx, "x", TC_F32, t.rows, t.k),
                                 tc_input(ctx, "g", TC_F32, t.rows, t.n)};
    tc_tensor params[UPDATES], values[UPDATES], assigns[UPDATES];
    int64_t sizes[UPDATES] = {(int64_t)t.k * t.n, t.n, t.rows};
    tc_program *over = NULL, *apart = NULL;
    for (int i = 0; i < UPDATES_MOST; i++) {
        x[i] = (float)tct_random_unit() - 0.5f;
        g[i] = (float)tct_random_unit() - 0.5f;
        old[0][i] = old[1][i] = old[2][i] = x[i] - g[i];
    }
    for (int i = 0; i < UPDATES; i++) {
        int64_t shape[3] = {TC_F32, i == 0 ? t.k : sizes[i], t.n};
        params[i] = tc_param_at(ctx, old[i], 2 + (i == 0), shape, TC_HERE);
        in[2 + i] = tc_input_at(ctx, "old", 2 + (i == 0), shape, TC_HERE);
    }
    test_updated(params, in[0], in[1], values);
    for (int i = 0; i < UPDATES; i++) {
        assigns[i] = tc_assign(params[i], values[i]);
    }
    test_updated(in + 2, in[0], in[1], values);
    REQUIRE(tc_compile_fn((tc_tensors){in, 2}, (tc_tensors){assigns, UPDATES}, NULL, &over) == 0);
    REQUIRE(tc_compile_fn((tc_tensors){in, 2 + UPDATES}, (tc_tensors){values, UPDATES}, NULL,
                          &apart) == 0);
    for (int run = 0; run < 2; run++) {
        tc_buf bufs[2 + UPDATES] = {TC_BUF(x, t.rows * t.k), TC_BUF(g, t.rows * t.n)};
        tc_buf outs[UPDATES];
        for (int i = 0; i < UPDATES; i++) {
            bufs[2 + i] = TC_BUF(old[i], sizes[i]);
            outs[i] = TC_BUF(now[i], sizes[i]);
        }
        CHECK_EQ_INT(tc_run(over, (tc_bufs){bufs, 2}, (tc_bufs){NULL, 0}), TC_OK);
        CHECK_EQ_INT(tc_run(apart, (tc_bufs){bufs, 2 + UPDATES}, (tc_bufs){outs, UPDATES}), TC_OK);
        for (int i = 0; i < UPDATES; i++) {
            CHECK_EQ_INT(tc_read(params[i], got, sizes[i]), TC_OK);
            CHECK_MSG(!memcmp(got, now[i], (size_t)sizes[i] * sizeof(float)),
                      "parameter %d of [%d, %d, %d] after run %d", i, t.rows, t.k, t.n, run);
            memcpy(old[i], now[i], (size_t)sizes[i] * sizeof(float));
        }
    }
    tc_program_free(over);
    tc_program_free(apart);
}

/* ---- updates by what is read at indices ---- */

enum { UPDATES_ROWS = 40, UPDATES_K = 7, UPDATES_TABLE = 9, UPDATES_AT = 4 };

typedef struct test_indexed {
    float values[UPDATES_AT][UPDATES_ROWS * UPDATES_K];
} test_indexed;

/* Of parameters w[k], s[rows], c[rows, k] and the table itself. */
static void test_indexed_step(const tc_tensor *old, tc_tensor index, tc_tensor *now)
{
    tc_tensor picked = tc_materialize(tc_index_select(old[3], 0, index));
    now[0] = tc_assign(old[0], tc_sub(old[0], tc_mul(tc_sum(picked, TC_AXES(0), false), 0.25)));
    now[1] = tc_assign(old[1], tc_add(tc_mul(old[1], 0.5), tc_sum(picked, TC_AXES(1), false)));
    now[2] = tc_assign(old[2], tc_add(old[2], picked));
    now[3] = tc_assign(old[3], tc_mul(old[3], 2));
}

static const int test_indexed_sizes[UPDATES_AT] = {UPDATES_K, UPDATES_ROWS, UPDATES_ROWS *UPDATES_K,
                                                   UPDATES_TABLE *UPDATES_K};

/* Whole numbers, so in any order. */
static void test_indexed_expect(test_indexed *t, const int64_t *index)
{
    test_indexed was = *t;
    for (int r = 0; r < UPDATES_ROWS; r++) {
        t->values[1][r] = was.values[1][r] * 0.5f;
        for (int k = 0; k < UPDATES_K; k++) {
            int64_t at = index[r] < 0 ? index[r] + UPDATES_TABLE : index[r];
            float picked = was.values[3][at * UPDATES_K + k];
            t->values[0][k] -= 0.25f * picked;
            t->values[1][r] += picked;
            t->values[2][r * UPDATES_K + k] += picked;
        }
    }
    for (int i = 0; i < test_indexed_sizes[3]; i++) {
        t->values[3][i] *= 2;
    }
}

static void test_indexed_check(const tc_tensor *params, const test_indexed *want, int run)
{
    float got[UPDATES_ROWS * UPDATES_K];
    for (int i = 0; i < UPDATES_AT; i++) {
        CHECK_EQ_INT(tc_read(params[i], got, test_indexed_sizes[i]), TC_OK);
        CHECK_MSG(!memcmp(got, want->values[i], sizeof(float) * (size_t)test_indexed_sizes[i]),
                  "parameter %d after run %d", i, run);
    }
}

/* New values overwrite the old ones, and yet a run that meets an index outside leaves these. */
TCT_UNUSED static void test_update_at_indices(tc_ctx *ctx)
{
    static const int64_t shapes[UPDATES_AT][3] = {{TC_F32, UPDATES_K},
                                                  {TC_F32, UPDATES_ROWS},
                                                  {TC_F32, UPDATES_ROWS, UPDATES_K},
                                                  {TC_F32, UPDATES_TABLE, UPDATES_K}};
    static test_indexed want;
    tc_tensor index = tc_input(ctx, "index", TC_I64, UPDATES_ROWS), params[UPDATES_AT];
    tc_tensor steps[UPDATES_AT];
    tc_program *f = NULL;
    int64_t at[UPDATES_ROWS];
    for (int i = 0; i < UPDATES_AT; i++) {
        for (int j = 0; j < test_indexed_sizes[i]; j++) {
            want.values[i][j] = (float)(4 * (j % 11));
        }
        params[i] = tc_param_at(ctx, want.values[i], 2 + (i > 1), shapes[i], TC_HERE);
    }
    test_indexed_step(params, index, steps);
    REQUIRE(tc_compile_fn(TC_TENSORS(index), TC_TENSORS_N(steps, UPDATES_AT), NULL, &f) == TC_OK);
    for (int i = 0; i < UPDATES_AT; i++) {
        CHECK_MSG(f->effects[i].over_old, "parameter %d is kept apart", i);
    }
    for (int run = 0; run < 4; run++) {
        for (int r = 0; r < UPDATES_ROWS; r++) {
            at[r] = (r * 5 + run) % (2 * UPDATES_TABLE) - UPDATES_TABLE;
        }
        tc_bufs in = TC_BUFS(TC_BUF(at, UPDATES_ROWS));
        int64_t inside = at[17];
        at[17] = run % 2 ? UPDATES_TABLE : -UPDATES_TABLE - 1;
        CHECK_EQ_INT(tc_run(f, in, (tc_bufs){NULL, 0}), TC_ERR_INDEX);
        test_indexed_check(params, &want, run);
        at[17] = inside;
        CHECK_EQ_INT(tc_run(f, in, (tc_bufs){NULL, 0}), TC_OK);
        test_indexed_expect(&want, at);
        test_indexed_check(params, &want, run);
    }
    tc_program_free(f);
}

/* ---- updates of few rows at places that a run is given ---- */

enum { RING = 50, RING_K = 9, RING_AT = 3, RING_WAYS = 5, RING_BYTES = 8 * RING * RING_K };

static tc_tensor test_ring_now(int way, tc_tensor ring, tc_tensor at, tc_tensor rows)
{
    tc_tensor each = tc_expand(tc_unsqueeze(at, 1), RING_AT, RING_K);
    switch (way) {
    case 0: return tc_scatter(ring, 0, each, rows);
    case 1: return tc_index_put(ring, TC_TENSORS(at), rows, false);
    case 2: return tc_index_add(ring, 0, at, rows);
    case 3: return tc_scatter_max(ring, 0, each, rows);
    default: return tc_scatter(tc_neg(ring), 0, each, rows);
    }
}

/* In: the places, the rows, and the ring, if that is no parameter. Out: rows at the places, of the
 * old ring or of the new one, and the new one. */
static tc_program *test_ring_make(tc_ctx *ctx, int way, tc_tensor ring, bool of_old, bool over)
{
    tc_tensor at = tc_input(ctx, "at", TC_I64, RING_AT);
    tc_tensor rows = tc_input(ctx, "rows", tc_dtype_of(ring), RING_AT, RING_K);
    tc_tensor now = test_ring_now(way, ring, at, rows), in[3] = {at, rows, ring};
    tc_tensor seen = tc_index_select(of_old ? ring : now, 0, at);
    tc_tensor out[2] = {seen, over ? tc_assign(ring, now) : now};
    tc_program *f = NULL;
    tc_compile_fn(TC_TENSORS_N(in, over ? 2 : 3), TC_TENSORS_N(out, 2), NULL, &f);
    CHECK_MSG(f != NULL, "%s", tc_error(ctx));
    REQUIRE(f != NULL);
    return f;
}

static tc_buf test_ring_buf(void *data, tc_dtype t, int64_t rows)
{
    tc_buf b = {.data = data, .n = rows * RING_K, .dtype = (int)t};
    return b;
}

/* The bits of a program that keeps the old ring and the new one apart, though one overwrites the
 * other; and the old one where a place is outside. */
static void test_update_ring(tc_ctx *ctx, int way, tc_dtype t, bool of_old)
{
    static char old[RING_BYTES], now[RING_BYTES], got[RING_BYTES], given[RING_BYTES];
    static char seen[2][RING_BYTES];
    tc_tensor ring = tc_param(ctx, NULL, t, RING, RING_K);
    tc_tensor kept = tc_input(ctx, "ring", t, RING, RING_K);
    tc_program *over = test_ring_make(ctx, way, ring, of_old, true);
    tc_program *apart = test_ring_make(ctx, way, kept, of_old, false);
    tc_buf rows = test_ring_buf(given, t, RING_AT), all = test_ring_buf(old, t, RING);
    tc_buf to[2] = {test_ring_buf(seen[0], t, RING_AT), test_ring_buf(seen[1], t, RING_AT)};
    tc_tensor drawn = tc_cast(tc_mul(tc_randn(ctx, 3, TC_F32, RING_AT, RING_K), 8), t);
    CHECK_EQ_INT(tc_read_as(drawn, rows), TC_OK);
    CHECK_MSG(over->effects[0].over_old, "way %d keeps the ring apart", way);
    memset(old, 0, sizeof(old));
    for (int run = 0; run < 6; run++) {
        int64_t at[RING_AT] = {run * 7, run % 2 ? -1 : run * 7, run % 3 == 2 ? RING : run};
        tc_status wanted = run % 3 == 2 ? TC_ERR_INDEX : TC_OK;
        tc_buf places = TC_BUF(at, RING_AT), whole = test_ring_buf(now, t, RING);
        CHECK_EQ_INT(tc_run(over, TC_BUFS(places, rows), TC_BUFS(to[0])), wanted);
        CHECK_EQ_INT(tc_run(apart, TC_BUFS(places, rows, all), TC_BUFS(to[1], whole)), wanted);
        if (wanted == TC_OK) {
            CHECK_MSG(same_bits(t, seen[0], seen[1], RING_AT * RING_K),
                      "way %d, dtype %d, run %d reads other rows", way, (int)t, run);
            memcpy(old, now, sizeof(old));
        }
        CHECK_EQ_INT(tc_read_as(ring, test_ring_buf(got, t, RING)), TC_OK);
        CHECK_MSG(same_bits(t, got, old, RING * RING_K), "way %d, dtype %d, run %d", way, (int)t,
                  run);
    }
    tc_program_free(over);
    tc_program_free(apart);
}

TCT_UNUSED static void test_update_rings(tc_ctx *ctx, int n_dtypes)
{
    static const tc_dtype dtypes[] = {TC_F32, TC_I64, TC_BF16, TC_U8};
    for (int i = 0; i < n_dtypes * RING_WAYS; i++) {
        test_update_ring(ctx, i % RING_WAYS, dtypes[i / RING_WAYS], i % 2);
    }
}

/* Around tiles and vectors; few and many rows. */
static const test_updates test_update_sizes[] = {
    {1, 1, 5}, {64, 17, 33}, {300, 130, 96}, {40, 7, 300}, {1000, 64, 64},
};

#endif
