/* Symbolic sizes: the algebra of base/dim.h against numbers; every op's shape rule with a symbolic
 * batch and height against the same rule for numbers, shapes and values both; what is refused, and
 * what the refusal says. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_test.h"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "interp";
    o.no_disk_cache = true;
    o.threads = 1;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* ---- the algebra ---- */

enum { N_SYMBOLS = 3, N_NODES = 14 };
static const int64_t ranges[N_SYMBOLS][2] = {{1, 7}, {0, 5}, {2, 9}};

static tci_dim symbol(int i)
{
    return tci_dim_symbol(NULL, i, ranges[i][0], ranges[i][1]);
}

/* A random expression, as operations on earlier entries, and as the tci_dim it makes. */
typedef struct entry {
    int op, a, b;
    int64_t number;
    tci_dim dim;
} entry;

static uint32_t draw(uint32_t n)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static int64_t quotient(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t value_of(const entry *e, const entry *all, const int64_t *values)
{
    int64_t a = e->op > 1 ? value_of(&all[e->a], all, values) : 0;
    int64_t b = e->op > 1 ? value_of(&all[e->b], all, values) : 0;
    switch (e->op) {
    case 0: return e->number;
    case 1: return values[e->number];
    case 2: return a + b;
    case 3: return a - b;
    case 4: return a * b;
    case 5: return quotient(a, b);
    case 6: return a - b * quotient(a, b);
    case 7: return -quotient(-a, b);
    case 8: return a < b ? a : b;
    default: return a > b ? a : b;
    }
}

static tci_dim made(int op, tci_dim a, tci_dim b)
{
    switch (op) {
    case 2: return tci_dim_add(a, b);
    case 3: return tci_dim_sub(a, b);
    case 4: return tci_dim_mul(a, b);
    case 5: return tci_dim_div(a, b);
    case 6: return tci_dim_mod(a, b);
    case 7: return tci_dim_ceil_div(a, b);
    case 8: return tci_dim_min(a, b);
    default: return tci_dim_max(a, b);
    }
}

static void draw_expression(entry *all)
{
    for (int i = 0; i < N_NODES; i++) {
        entry *e = &all[i];
        e->op = i < N_SYMBOLS ? 1 : i < N_SYMBOLS + 2 ? 0 : 2 + (int)draw(8);
        e->a = e->b = 0;
        e->number = e->op == 1 ? i : (int64_t)draw(6) - (i == N_SYMBOLS ? 0 : 2);
        if (e->op < 2) {
            e->dim = e->op ? symbol(i) : e->number;
            continue;
        }
        e->a = (int)draw((uint32_t)i);
        e->b = (int)draw((uint32_t)i);
        bool divides = e->op >= 5 && e->op <= 7;
        if ((divides && !tci_dim_le(1, all[e->b].dim)) ||
            (e->op == 4 && tci_dim_most(all[e->a].dim) > 1 << 20)) {
            e->op = 3;
        }
        e->dim = made(e->op, all[e->a].dim, all[e->b].dim);
        if (!tci_dim_is_valid(e->dim)) { /* too long to keep: rare */
            *e = all[0];
        }
    }
}

/* On to the next of all values that the symbols may have. */
static bool next_values(int64_t *values)
{
    for (int i = 0; i < N_SYMBOLS; i++) {
        if (values[i]++ < ranges[i][1]) {
            return true;
        }
        values[i] = ranges[i][0];
    }
    return false;
}

static void first_values(int64_t *values)
{
    for (int i = 0; i < N_SYMBOLS; i++) {
        values[i] = ranges[i][0];
    }
}

static void check_entry(const entry *all, const entry *e, const int64_t *values,
                        const tci_dim *symbols)
{
    int64_t want = value_of(e, all, values), got = tci_dim_value(e->dim, values);
    CHECK_MSG(got == want, "%s at %lld %lld %lld is %lld, want %lld", TCI_DIM_TEXT(e->dim),
              (long long)values[0], (long long)values[1], (long long)values[2], (long long)got,
              (long long)want);
    CHECK_MSG(tci_dim_least(e->dim) <= want && want <= tci_dim_most(e->dim),
              "%s is %lld, outside %lld..%lld", TCI_DIM_TEXT(e->dim), (long long)want,
              (long long)tci_dim_least(e->dim), (long long)tci_dim_most(e->dim));
    CHECK_EQ_INT(tci_dim_replace(e->dim, N_SYMBOLS, symbols, values), want);
}

static void check_words(tci_dim d, const tci_dim *symbols)
{
    int64_t words[1024];
    int n = tci_dim_write(d, NULL);
    REQUIRE(n <= 1024);
    CHECK_EQ_INT(tci_dim_write(d, words), n);
    const int64_t *at = words;
    CHECK(tci_dim_read(&at, words + n, symbols, N_SYMBOLS) == d);
    CHECK(at == words + n);
    at = words;
    if (n > 1) {
        CHECK(tci_dim_read(&at, words + n - 1, symbols, N_SYMBOLS) == TCI_DIM_OF_FAULT(NONE));
    }
}

TEST(expressions_against_numbers)
{
    tci_dim symbols[N_SYMBOLS];
    int64_t values[N_SYMBOLS];
    int n_true = 0, n_proven = 0;
    for (int i = 0; i < N_SYMBOLS; i++) {
        symbols[i] = symbol(i);
    }
    for (int round = 0; round < 150; round++) {
        entry all[N_NODES];
        bool le[N_NODES], multiple[N_NODES];
        draw_expression(all);
        for (int i = 0; i < N_NODES; i++) {
            le[i] = multiple[i] = true;
            check_words(all[i].dim, symbols);
        }
        first_values(values);
        do {
            for (int i = 0; i < N_NODES; i++) {
                int64_t v = value_of(&all[i], all, values);
                int64_t w = value_of(&all[(i + 1) % N_NODES], all, values);
                check_entry(all, &all[i], values, symbols);
                le[i] = le[i] && v <= w;
                multiple[i] = multiple[i] && v % 3 == 0;
            }
        } while (next_values(values));
        for (int i = 0; i < N_NODES; i++) {
            tci_dim a = all[i].dim, b = all[(i + 1) % N_NODES].dim;
            bool proven = tci_dim_le(a, b);
            CHECK_MSG(le[i] || !proven, "%s <= %s does not always hold", TCI_DIM_TEXT(a),
                      TCI_DIM_TEXT(b));
            CHECK_MSG(multiple[i] || !tci_dim_divides(3, a), "3 does not divide %s",
                      TCI_DIM_TEXT(a));
            n_true += le[i];
            n_proven += proven;
        }
    }
    CHECK_MSG(n_proven * 100 > n_true * 95, "%d of %d comparisons are proven", n_proven, n_true);
}

/* ---- quotients, minima and maxima within each other ---- */

enum { DEEP_NODES = 60, DEEP_POINTS = 8 };

typedef struct deep {
    tci_dim dims[DEEP_NODES];
    int64_t values[DEEP_POINTS][DEEP_NODES]; /* in C, at each point */
} deep;

static int64_t made_value(int op, int64_t a, int64_t b)
{
    entry pair[3] = {{0, 0, 0, a, 0}, {0, 0, 0, b, 0}, {op, 0, 1, 0, 0}};
    return value_of(&pair[2], pair, NULL);
}

/* Each of the last two expressions, so that the paths through the last one are as many as there are
 * Fibonacci numbers; returns how many were made before one was too large. */
static int draw_deep(deep *d, const int64_t points[DEEP_POINTS][N_SYMBOLS])
{
    for (int i = 0; i < DEEP_NODES; i++) {
        int op = 0, a = i - 1 - (int)draw(2), b = 2 * i - 3 - a;
        if (i < N_SYMBOLS) {
            d->dims[i] = symbol(i);
        } else {
            static const int ops[6] = {8, 9, 8, 9, 5, 2};
            op = ops[draw(6)];
            op = op == 2 && tci_dim_most(d->dims[a]) > 1 << 20 ? 8 : op;
            op = op == 5 && !tci_dim_le(1, d->dims[b]) ? 9 : op;
            tci_dim more = op == 8 || op == 9 ? tci_dim_add(d->dims[b], (int64_t)draw(9) - 4)
                                              : d->dims[b];
            d->dims[i] = made(op, d->dims[a], more);
            if (!tci_dim_is_valid(d->dims[i])) {
                return i;
            }
            for (int p = 0; p < DEEP_POINTS; p++) {
                int64_t diff = tci_dim_known(tci_dim_sub(more, d->dims[b]));
                d->values[p][i] = made_value(op, d->values[p][a], d->values[p][b] + diff);
            }
        }
        for (int p = 0; p < DEEP_POINTS && i < N_SYMBOLS; p++) {
            d->values[p][i] = points[p][i];
        }
    }
    return DEEP_NODES;
}

static void check_deep(const deep *d, int i, const int64_t points[DEEP_POINTS][N_SYMBOLS],
                       const tci_dim *symbols)
{
    tci_dim used[N_SYMBOLS];
    int n_used = 0;
    check_words(d->dims[i], symbols);
    CHECK(tci_dim_symbols(d->dims[i], used, &n_used, N_SYMBOLS));
    for (int p = 0; p < DEEP_POINTS; p++) {
        int64_t want = d->values[p][i];
        CHECK_EQ_INT(tci_dim_value(d->dims[i], points[p]), want);
        CHECK_EQ_INT(tci_dim_replace(d->dims[i], N_SYMBOLS, symbols, points[p]), want);
        tci_dim_bounds at = tci_dim_value_in(d->dims[i], points[p], points[p]);
        CHECK(at.least == want && at.most == want);
        CHECK(tci_dim_least(d->dims[i]) <= want && want <= tci_dim_most(d->dims[i]));
    }
}

TEST(deep_expressions_against_numbers)
{
    tci_dim symbols[N_SYMBOLS];
    int64_t points[DEEP_POINTS][N_SYMBOLS];
    int n_deep = 0;
    for (int i = 0; i < N_SYMBOLS; i++) {
        symbols[i] = symbol(i);
    }
    for (int p = 0; p < DEEP_POINTS; p++) {
        for (int i = 0; i < N_SYMBOLS; i++) {
            points[p][i] = ranges[i][0] + draw((uint32_t)(ranges[i][1] - ranges[i][0] + 1));
        }
    }
    for (int round = 0; round < (tct_soak ? 400 : 40); round++) {
        static deep d;
        int n = draw_deep(&d, points);
        for (int i = 0; i < n; i++) {
            check_deep(&d, i, points, symbols);
        }
        n_deep += n == DEEP_NODES;
    }
    CHECK(n_deep > 0);
}

/* n within itself twice at each level. */
static tci_dim nested(int levels, tci_dim a, tci_dim b)
{
    tci_dim n = a;
    for (int i = 0; i < levels; i++) {
        tci_dim least = tci_dim_min(n, tci_dim_add(b, 7 * i));
        n = i % 2 ? tci_dim_max(tci_dim_add(n, i + 1), tci_dim_mul(least, 2))
                  : tci_dim_max(tci_dim_div(tci_dim_add(n, b), 3 + i), least);
    }
    return n;
}

/* Quotients, minima and maxima that are looked into when such a program is compiled and run. */
static int64_t work_of_nested(int levels)
{
    begin();
    int64_t before = tci_dim_counted();
    tci_dim a = TC_DIM("a", 1, 1000), b = TC_DIM("b", 1, 1000);
    tci_dim n = tci_dim_add(tci_dim_min(nested(levels, a, b), 50), 1);
    tc_tensor x = tc_input(ctx, "x", TC_F32, a), y = tc_input(ctx, "y", TC_F32, b);
    tc_tensor z = tc_expand(tc_sum(tc_mul(tc_unsqueeze(x, 1), y), TC_ALL, false), n);
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile(tc_cumsum(z, 0), &f), TC_OK);
    float in[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, out[51];
    for (int size = 3; size <= 9 && f; size += 3) {
        int64_t m = tci_dim_known(tci_dim_add(tci_dim_min(nested(levels, size, 4), 50), 1));
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, size), TC_BUF(in, 4)), TC_BUFS(TC_BUF(out, m))),
                     TC_OK);
        CHECK(out[m - 1] == (float)(4 * size * m));
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return tci_dim_counted() - before;
}

/* Twice as deep is at most 16 times the work: it does not grow with the paths through them. */
TEST(nested_sizes_cost_what_they_are_long)
{
    int64_t few = work_of_nested(6), more = work_of_nested(12);
    CHECK_MSG(few > 0 && more < 16 * few, "%lld, then %lld", (long long)few, (long long)more);
    REQUIRE(more < 16 * few);
    CHECK(work_of_nested(24) < 16 * more);
}

TEST(sizes_are_nested_64_deep)
{
    tci_dim n = symbol(0);
    for (int i = 0; i < 64; i++) {
        n = tci_dim_div(tci_dim_add(tci_dim_mul(n, n), symbol(2)), 3);
        REQUIRE(tci_dim_is_valid(n));
    }
    check_words(n, (tci_dim[]){symbol(0), symbol(1), symbol(2)});
    n = tci_dim_div(tci_dim_add(tci_dim_mul(n, n), symbol(2)), 3);
    CHECK(n == TCI_DIM_OF_FAULT(LARGE));
    CHECK_HAS(tci_dim_fault_text(tci_dim_fault(n)), "64 quotients, minima and maxima within");
}

TEST(equal_expressions_are_one)
{
    for (int round = 0; round < 500; round++) {
        entry x[N_NODES];
        draw_expression(x);
        tci_dim a = x[N_NODES - 1].dim, b = x[N_NODES - 2].dim, c = x[N_NODES - 3].dim;
        tci_dim ab = tci_dim_add(a, b), left = tci_dim_mul(ab, c);
        tci_dim right = tci_dim_add(tci_dim_mul(c, a), tci_dim_mul(b, c));
        if (!tci_dim_is_valid(left) || !tci_dim_is_valid(right)) {
            continue;
        }
        CHECK(ab == tci_dim_add(b, a));
        CHECK(left == right);
        CHECK(tci_dim_sub(ab, b) == a);
        CHECK(tci_dim_sub(left, right) == 0);
        CHECK(tci_dim_min(a, b) == tci_dim_min(b, a));
        CHECK(tci_dim_max(a, b) == tci_dim_max(b, a));
        CHECK_STR(TCI_DIM_TEXT(left), TCI_DIM_TEXT(right));
    }
    tci_dim n = symbol(0), m = symbol(2);
    CHECK(tci_dim_ceil_div(n, 4) == tci_dim_add(tci_dim_div(tci_dim_sub(n, 1), 4), 1));
    CHECK(tci_dim_div(tci_dim_div(n, 2), 3) == tci_dim_div(n, 6));
    CHECK(tci_dim_ceil_div(tci_dim_ceil_div(n, 2), 3) == tci_dim_ceil_div(n, 6));
    CHECK(tci_dim_div(tci_dim_mul(n, 6), 4) == tci_dim_div(tci_dim_mul(n, 3), 2));
    CHECK(tci_dim_div(tci_dim_mul(n, m), m) == n);
    CHECK(tci_dim_mod(tci_dim_mul(n, 12), 4) == 0);
    CHECK(tci_dim_div(tci_dim_sub(tci_dim_mul(n, n), 1), tci_dim_add(n, 1)) == tci_dim_sub(n, 1));
    CHECK(tci_dim_div(n, 8) == 0);
}

TEST(comparisons_that_must_be_proven)
{
    tci_dim n = symbol(0), z = symbol(1), m = symbol(2);
    tci_dim wide = tci_dim_symbol(NULL, 0, 1, (int64_t)1 << 40);
    tci_dim half = tci_dim_div(tci_dim_sub(m, 2), 2);
    CHECK(tci_dim_le(0, tci_dim_mod(wide, 4)));
    CHECK(tci_dim_lt(tci_dim_mod(wide, 4), 4));
    CHECK(tci_dim_le(tci_dim_mul(tci_dim_div(wide, 4), 4), wide));
    CHECK(tci_dim_le(wide, tci_dim_mul(tci_dim_ceil_div(wide, 8), 8)));
    CHECK(tci_dim_le(tci_dim_ceil_div(wide, 8), wide));
    /* quotients of quotients: the bounds by fractions leave -2 / 3, which no whole number is */
    tci_dim third = tci_dim_add(tci_dim_div(tci_dim_sub(2, n), 3), 82);
    CHECK(tci_dim_le(third, tci_dim_mul(tci_dim_ceil_div(third, 16), 16)));
    CHECK(tci_dim_le(tci_dim_mul(tci_dim_div(third, 16), 16), third));
    CHECK(!tci_dim_le(third, tci_dim_mul(tci_dim_div(third, 16), 16)));
    CHECK(tci_dim_le(tci_dim_add(tci_dim_mul(half, 2), 2), m));
    CHECK(tci_dim_le(0, tci_dim_mul(tci_dim_sub(n, 1), tci_dim_sub(m, 2))));
    CHECK(tci_dim_le(n, tci_dim_mul(n, m)));
    CHECK(tci_dim_le(tci_dim_mul(n, tci_dim_div(m, 2)), tci_dim_mul(n, m)));
    CHECK(tci_dim_le(tci_dim_min(n, m), n));
    CHECK(tci_dim_le(tci_dim_min(n, m), tci_dim_max(n, m)));
    CHECK(tci_dim_le(tci_dim_add(tci_dim_min(n, m), z), tci_dim_add(n, z)));
    CHECK(tci_dim_le(wide, INT64_MAX));
    CHECK(tci_dim_le(INT64_MIN, wide));
    CHECK(!tci_dim_le(n, m));
    CHECK(!tci_dim_le(1, z));
    CHECK(!tci_dim_le(n, TCI_DIM_OF_FAULT(NONE)));
    CHECK(!tci_dim_le(TCI_DIM_OF_FAULT(NONE), TCI_DIM_OF_FAULT(NONE)));
    CHECK(tci_dim_divides(6, tci_dim_mul(tci_dim_mul(n, 2), 3)));
    CHECK(tci_dim_divides(n, tci_dim_mul(n, 5)));
    CHECK(!tci_dim_divides(2, n));
}

TEST(symbols_are_what_they_are_called)
{
    tci_dim a = tci_dim_symbol("batch", -1, 0, 64);
    CHECK(a == tci_dim_symbol("batch", -1, 0, 64));
    CHECK(a != tci_dim_symbol("batch", -1, 1, 64));
    CHECK(a != tci_dim_symbol("height", -1, 0, 64));
    CHECK_EQ_INT(tci_dim_symbol("fixed", -1, 5, 5), 5);
    CHECK_STR(TCI_DIM_TEXT(a), "batch");
    CHECK_STR(TCI_DIM_TEXT(tci_dim_add(tci_dim_mul(a, 2), 3)), "(2*batch + 3)");
    CHECK_STR(TCI_DIM_TEXT(tci_dim_div(tci_dim_add(a, 1), 2)), "floor((batch + 1) / 2)");
    CHECK_STR(TCI_DIM_TEXT(symbol(1)), "s1{0..5}");
    CHECK(!tci_dim_is_valid(a + 1));
    CHECK(tci_dim_is_known((tci_dim)((uint64_t)a * 2))); /* and negative */
    CHECK(!tci_dim_is_valid(TCI_DIM_OF_FAULT(NONE)));
    CHECK(tci_dim_add(TCI_DIM_OF_FAULT(NONE), 1) == TCI_DIM_OF_FAULT(NONE));
    CHECK(tci_dim_mul(a, (int64_t)1 << 61) == TCI_DIM_OF_FAULT(LARGE));
    tci_dim list[2], product = tci_dim_mul(a, tci_dim_div(symbol(0), 2));
    int n = 0;
    CHECK(tci_dim_symbols(product, list, &n, 2));
    CHECK_EQ_INT(n, 2);
    n = 0;
    CHECK(!tci_dim_symbols(product, list, &n, 1));
}

/* ---- ops: recipes ---- */

enum { N_IN = 4 };

/* X [b, 2, h, 6], Y [b, h], Z [h, 6], I [b] of 0 .. 2. */
typedef tc_tensor (*recipe_fn)(const tc_tensor *in, int64_t b, int64_t h);

#define X in[0]
#define Y in[1]
#define Z in[2]
#define I in[3]
#define RECIPES(R)                                                                                 \
    R(add_broadcast, tc_add(X, tc_reshape(Y, b, 1, h, 1)))                                         \
    R(add_row, tc_mul(X, tc_sum(Z, TC_AXES(0), false)))                                            \
    R(where, tc_where(tc_lt(Y, 0.25), Y, tc_exp(Y)))                                               \
    R(softmax_known, tc_softmax(X, -1))                                                            \
    R(softmax_height, tc_softmax(Y, 1))                                                            \
    R(softmax_batch, tc_softmax(Y, 0))                                                             \
    R(log_softmax, tc_log_softmax(X, 2))                                                           \
    R(mean_all, tc_mean(X, TC_ALL, false))                                                         \
    R(mean_batch, tc_mean(Y, TC_AXES(0), true))                                                    \
    R(mean_height, tc_mean(X, TC_AXES(2, 3), false))                                               \
    R(layer_norm, tc_layer_norm(X, TC_AXES(2, 3), Z, TC_NONE, 1e-5))                               \
    R(cross_entropy, tc_cross_entropy(Y, I))                                                       \
    R(sum_all, tc_sum(X, TC_ALL, true))                                                            \
    R(prod, tc_prod(Y, TC_AXES(1), false))                                                         \
    R(max_height, tc_max(Y, TC_AXES(1), false))                                                    \
    R(max_both, tc_max(X, TC_AXES(1, 2), false))                                                   \
    R(argmax_height, tc_argmax(Y, 1, false))                                                       \
    R(any, tc_any(tc_lt(Y, 0), TC_AXES(0), false))                                                 \
    R(cumsum_batch, tc_cumsum(Y, 0))                                                               \
    R(cumsum_height, tc_cumsum(Y, -1))                                                             \
    R(flatten_rest, tc_reshape(X, b, -1))                                                          \
    R(flatten_front, tc_reshape(X, -1, 6))                                                         \
    R(flatten_all, tc_reshape(X, -1))                                                              \
    R(split, tc_reshape(tc_reshape(X, -1), b, h, -1))                                              \
    R(reshape_size, tc_reshape(X, tc_size(X, 0), 12, tc_size(X, 2)))                               \
    R(permute, tc_permute(X, 2, 0, 3, 1))                                                          \
    R(transpose, tc_transpose(Y, 0, 1))                                                            \
    R(squeeze, tc_squeeze(tc_unsqueeze(Y, 1), 1))                                                  \
    R(expand, tc_expand(tc_sum(Y, TC_AXES(0), true), b, h))                                        \
    R(slice_step, tc_slice(Y, 0, 1, TC_END, 2))                                                    \
    R(slice_tail, tc_slice(Y, 1, -2, TC_END, 1))                                                   \
    R(slice_tail_step, tc_slice(X, 2, 1, TC_END, 2))                                               \
    R(slice_inner, tc_slice(Y, 0, -3, -1, 1))                                                      \
    R(slice_clamped, tc_slice(Z, 0, 0, 5, 1))                                                      \
    R(slice_back, tc_slice(Z, 0, TC_END, -100, -2))                                                \
    R(slice_to_size, tc_slice(tc_cat(TC_TENSORS(Y, Y), 1), 1, tc_size(Z, 0), TC_END, 1))           \
    R(slice_of_slice, tc_slice(tc_slice(Y, 1, 1, TC_END, 1), 1, 0, -1, 2))                         \
    R(flip_batch, tc_flip(Y, 0))                                                                   \
    R(flip_height, tc_flip(X, 2))                                                                  \
    R(pad_batch, tc_pad(Y, 0, 2, 1, 0.5))                                                          \
    R(crop_height, tc_pad(Y, 1, -1, -1, 0))                                                        \
    R(pad_size, tc_pad(Y, 1, 0, tc_size(Y, 0), 1))                                                 \
    R(cat_batch, tc_cat(TC_TENSORS(Y, tc_neg(Y), tc_slice(Y, 0, 0, 1, 1)), 0))                     \
    R(cat_height, tc_cat(TC_TENSORS(X, tc_slice(X, 2, 0, 2, 1)), 2))                               \
    R(gather, tc_gather(Y, 1, tc_unsqueeze(I, 1)))                                                 \
    R(gather_own, tc_gather(Y, 0, tc_cast(tc_mul(Y, 0), TC_I64)))                                  \
    R(index_select, tc_index_select(Z, 0, I))                                                      \
    R(scatter_add, tc_scatter_add(Y, 1, tc_unsqueeze(I, 1), tc_mul(Y, 2)))                         \
    R(scatter_own, tc_scatter(Y, 0, tc_cast(tc_mul(Y, 0), TC_I64), tc_neg(Y)))                     \
    R(index_add, tc_index_add(Z, 0, I, tc_expand(tc_sum(Y, TC_AXES(1), true), b, 6)))              \
    R(index_select_both, tc_index_select(Y, 1, I))                                                 \
    R(matmul, tc_matmul(Y, Z))                                                                     \
    R(matmul_sums_batch, tc_matmul(tc_transpose(Y, 0, 1), Y))                                      \
    R(matmul_batched, tc_matmul(X, tc_transpose(X, 2, 3)))                                         \
    R(einsum, tc_einsum("bchw,hw->bc", TC_TENSORS(X, Z)))                                          \
    R(einsum_diagonal, tc_einsum("ii->i", TC_TENSORS(tc_matmul(tc_transpose(Y, 0, 1), Y))))        \
    R(conv, tc_conv2d(X, weights(3, 2, 3), TC_NONE, NULL))                                         \
    R(conv_strided, tc_conv2d(X, weights(3, 2, 3), TC_NONE,                                        \
                              &(tc_conv){.stride = {2, 2}, .padding = {1, 1}}))                    \
    R(conv_dilated, tc_conv2d(X, weights(4, 1, 2), TC_NONE,                                        \
                              &(tc_conv){.dilation = {2, 3}, .groups = 2, .stride = {3, 1}}))      \
    R(pool, tc_max_pool2d(X, &(tc_pool){.kernel = {2, 2}}))                                        \
    R(pool_ceil, tc_max_pool2d(X, &(tc_pool){.kernel = {3, 3}, .stride = {2, 2},                   \
                                             .padding = {1, 1}, .ceil_mode = true}))               \
    R(pool_over_the_edge, tc_max_pool2d(X, &(tc_pool){.kernel = {4, 7}, .stride = {3, 2},          \
                                                      .ceil_mode = true}))                         \
    R(first_half, tc_slice(Y, 0, 0, tc_dim_div(b, 2), 1))                                          \
    R(second_half, tc_slice(Y, 0, tc_dim_div(tc_size(Y, 0), 2), TC_END, 1))                        \
    R(all_but_three, tc_slice(Y, 1, tc_dim_max(tc_dim_sub(h, 3), 0), TC_END, 1))                   \
    R(differences, tc_sub(tc_slice(Y, 0, 1, TC_END, 1), tc_slice(Y, 0, 0, -1, 1)))                 \
    R(stencil, tc_add(tc_add(tc_slice(Y, 0, 1, -1, 1), tc_slice(Y, 0, 2, TC_END, 1)),              \
                      tc_slice(Y, 0, 0, -2, 1)))                                                   \
    R(last_of_two, tc_max(tc_slice(Y, 1, -2, TC_END, 2), TC_AXES(1), false))                       \
    R(pad_to_threes, tc_pad(Y, 0, 0, tc_dim_sub(tc_dim_mul(tc_dim_div(tc_dim_add(b, 2), 3), 3),    \
                                                b), 0.5))                                          \
    R(pairs, tc_reshape(X, tc_dim_mul(b, 2), tc_dim_mul(tc_dim_add(h, 0), 2), 3))                  \
    R(at_most_four, tc_slice(Z, 0, 0, tc_dim_min(h, 4), 1))                                        \
    R(one_more, tc_expand(tc_unsqueeze(Y, 0), tc_dim_add(b, 1), b, h))                             \
    R(mean_by_hand, tc_div(tc_sum(Y, TC_ALL, false), tc_dim_max(tc_count(Y), 1)))                  \
    R(a_size_below_0, tc_mul(Y, tc_dim_sub(b, 5)))                                                 \
    R(arange_up, tc_add(tc_arange(ctx, 0, tc_size(Y, 1), 1, TC_F32), Y))                           \
    R(arange_down, tc_arange(ctx, b, -1, -2, TC_I64))                                              \
    R(arange_from, tc_arange(ctx, 2, h, 1, TC_F32))                                                \
    R(full, tc_full(ctx, 1.5, TC_F32, b, h))                                                       \
    R(times_size, tc_mul(Y, tc_size(Y, 0)))                                                        \
    R(size_alone, tc_add(tc_sum(I, TC_ALL, false), h))

static tc_tensor weights(int64_t out, int64_t in_group, int64_t k)
{
    float data[256];
    for (int i = 0; i < 256; i++) {
        data[i] = (float)(i * 7 % 11) / 8.0f - 0.5f;
    }
    return tc_copy_in(ctx, data, TC_F32, out, in_group, k, k);
}

#define R(name, made)                                                                              \
    static tc_tensor recipe_##name(const tc_tensor *in, int64_t b, int64_t h)                      \
    {                                                                                              \
        (void)in, (void)b, (void)h;                                                                \
        return made;                                                                               \
    }
RECIPES(R)
#undef R
#undef X
#undef Y
#undef Z
#undef I
static const struct {
    const char *name;
    recipe_fn make;
} recipes[] = {
#define R(name, made) {#name, recipe_##name},
    RECIPES(R)
#undef R
};

/* A recipe's graph for some sizes: the result and, of a float one, gradients of the sum of squares
 * for X, Y and Z. */
typedef struct built {
    tci_node *in[N_IN], *out[4];
    int n;
} built;

static built build(int recipe, int64_t b, int64_t h)
{
    built r = {.n = 1};
    const tc_tensor in[N_IN] = {tc_input(ctx, "x", TC_F32, b, 2, h, 6),
                                tc_input(ctx, "y", TC_F32, b, h), tc_input(ctx, "z", TC_F32, h, 6),
                                tc_input(ctx, "i", TC_I64, b)};
    tc_tensor out = recipes[recipe].make(in, b, h), grads[3];
    if (b == 0 && tc_status_of(out)) { /* -1 with a 0 says nothing, but with a batch it does */
        CHECK_HAS(tc_error(out), "0 elements of shape [0");
        r.n = 0;
        return r;
    }
    CHECK_STR(tc_error(out), "");
    if (tci_dtype_is_float(tc_dtype_of(out))) {
        tc_tensor loss = tc_sum(tc_mul(out, out), TC_ALL, false);
        tc_status status = tc_grad(loss, in, 3, grads);
        CHECK_MSG(!status, "%s: %s", recipes[recipe].name, tc_error(grads[0]));
        r.n += status ? 0 : 3;
    }
    for (int i = 0; i < N_IN; i++) {
        r.in[i] = tci_handle_node(in[i]);
    }
    for (int i = 0; i < r.n; i++) {
        r.out[i] = tci_handle_node(i ? grads[i - 1] : out);
        REQUIRE(r.out[i] != NULL);
    }
    return r;
}

/* The same graph in g with other sizes in the place of symbols. */
static built replaced(tci_scratch *s, tci_graph *g, const built *from, const tci_dim *symbols,
                      const tci_dim *values)
{
    built r = {.n = from->n};
    tci_node *roots[N_IN + 4];
    memcpy(roots, from->in, sizeof(from->in));
    memcpy(roots + N_IN, from->out, sizeof(*roots) * (size_t)from->n);
    tci_node_list list = tci_graph_sort(s, roots, N_IN + from->n);
    uint32_t most = 0;
    for (int i = 0; i < list.n; i++) {
        most = TCI_MAX(most, list.items[i]->id);
    }
    tci_node **now = TCI_NEW_ARRAY(s, tci_node *, most + 1);
    for (int i = 0; i < list.n; i++) {
        const tci_node *n = list.items[i];
        tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in);
        tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, n->rank);
        int64_t *attr = TCI_NEW_ARRAY(s, int64_t, n->n_attr);
        for (int k = 0; k < n->n_in; k++) {
            in[k] = now[n->in[k]->id];
        }
        for (int k = 0; k < n->rank; k++) {
            shape[k] = tci_dim_replace(n->shape[k], 2, symbols, values);
        }
        for (int k = 0; k < n->n_attr; k++) {
            attr[k] = tci_dim_replace(n->attr[k], 2, symbols, values);
        }
        tci_node *copy = n->op == TCI_OP_CONST
                             ? tci_graph_const(g, (tc_dtype)n->dtype, n->value)
                             : tci_graph_node(g, n->op, (tc_dtype)n->dtype, n->rank, shape, n->n_in,
                                              in, n->n_attr, attr);
        copy->value = n->value;
        copy->storage = n->storage;
        now[n->id] = copy;
    }
    for (int i = 0; i < N_IN; i++) {
        r.in[i] = now[from->in[i]->id];
    }
    for (int i = 0; i < r.n; i++) {
        r.out[i] = now[from->out[i]->id];
    }
    return r;
}

enum { ROOM = 1 << 16 };

static void evaluate(const built *r, char out[4][ROOM])
{
    static float x[ROOM / 4];
    static int64_t index[64];
    const void *memory[N_IN] = {x, x + 7, x + 3, index};
    void *outputs[4];
    for (int i = 0; i < ROOM / 4; i++) {
        x[i] = (float)(i * 37 % 101) / 64.0f - 0.75f;
    }
    for (int i = 0; i < 64; i++) {
        index[i] = i * 5 % 3;
    }
    for (int i = 0; i < r->n; i++) {
        REQUIRE(tci_node_count(r->out[i]) * 8 <= ROOM);
        memset(out[i], 0, ROOM);
        outputs[i] = out[i];
    }
    CHECK_EQ_INT(tci_reference_eval(r->in, memory, N_IN, r->out, outputs, r->n, false), TC_OK);
}

static void compare(const char *name, const char *what, const built *got, const built *want,
                    const int64_t *values)
{
    static char a[4][ROOM], b[4][ROOM];
    for (int i = 0; i < want->n; i++) {
        CHECK_MSG(tci_build_same_shape(got->out[i]->rank, got->out[i]->shape, want->out[i]->rank,
                                       want->out[i]->shape),
                  "%s %s, result %d at b = %lld, h = %lld: %s, want %s", name, what, i,
                  (long long)values[0], (long long)values[1], TCI_SHAPE_TEXT(got->out[i]),
                  TCI_SHAPE_TEXT(want->out[i]));
        if (!tci_build_same_shape(got->out[i]->rank, got->out[i]->shape, want->out[i]->rank,
                                  want->out[i]->shape)) {
            return;
        }
    }
    evaluate(got, a);
    evaluate(want, b);
    for (int i = 0; i < want->n; i++) {
        CHECK_MSG(!memcmp(a[i], b[i], ROOM), "%s %s, values of result %d at b = %lld, h = %lld",
                  name, what, i, (long long)values[0], (long long)values[1]);
    }
}

static built rewritten(tci_scratch *s, tci_graph *g, built r)
{
    tci_node **simple = tci_rewrite(s, g, r.out, r.n);
    memcpy(r.out, simple, sizeof(*simple) * (size_t)r.n);
    return r;
}

static void check_recipe(int recipe)
{
    static const int64_t batches[] = {0, 1, 2, 3, 5}, heights[] = {3, 4, 5, 8};
    const tci_dim symbols[2] = {TC_DIM("batch", 0, 64), TC_DIM("height", 3, 40)};
    const tci_dim canonical[2] = {tci_dim_symbol(NULL, 0, 0, 64), tci_dim_symbol(NULL, 1, 3, 40)};
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s: %s", recipes[recipe].name, s.message);
        tci_scratch_free(&s);
        return;
    }
    REQUIRE(tc_scope_begin(ctx) == TC_OK);
    built symbolic = build(recipe, symbols[0], symbols[1]);
    tci_graph_verify(&s, symbolic.out, symbolic.n);
    tci_graph g;
    tci_graph_init(&g, &s, NULL);
    built program = replaced(&s, &g, &symbolic, symbols, canonical);
    tci_graph_verify(&s, program.out, program.n);
    program = rewritten(&s, &g, program);
    tci_graph_verify(&s, program.out, program.n);
    for (int k = 0; k < TCI_COUNT(batches) * TCI_COUNT(heights); k++) {
        int64_t at[2] = {batches[k % TCI_COUNT(batches)], heights[k / TCI_COUNT(batches)]};
        built want = build(recipe, at[0], at[1]), got = replaced(&s, &g, &symbolic, symbols, at);
        if (!want.n) {
            continue;
        }
        compare(recipes[recipe].name, "as built", &got, &want, at);
        got = replaced(&s, &g, &program, canonical, at);
        want = rewritten(&s, &g, replaced(&s, &g, &want, symbols, at));
        compare(recipes[recipe].name, "rewritten", &got, &want, at);
    }
    CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
    tci_scratch_free(&s);
}

TEST(ops_with_symbolic_sizes)
{
    begin();
    for (int i = 0; i < TCI_COUNT(recipes); i++) {
        check_recipe(i);
    }
    tc_ctx_free(ctx);
}

/* ---- what is refused ---- */

static void refused(tc_tensor t, tc_status status, const char *text)
{
    CHECK_EQ_INT(tc_status_of(t), status);
    CHECK_HAS(tc_error(t), text);
}

static tc_tensor image(int64_t b, int64_t h)
{
    return tc_input(ctx, "x", TC_F32, b, 2, h, 6);
}

TEST(errors_name_the_dimension)
{
    begin();
    int64_t batch = TC_DIM("batch", 0, 64), height = TC_DIM("height", 0, 40);
    tc_tensor x = tc_input(ctx, "x", TC_F32, batch, 4), w = weights(3, 2, 3);
    refused(tc_add(x, tc_input(ctx, "y", TC_F32, 64, 4)), TC_ERR_SHAPE,
            "shapes [batch, 4] and [64, 4] do not broadcast: axis 0 is batch against 64 (a "
            "symbolic size is equal only to itself)");
    refused(tc_add(x, tc_input(ctx, "y", TC_F32, height, 4)), TC_ERR_SHAPE,
            "axis 0 is batch against height");
    refused(tc_add(x, tc_input(ctx, "y", TC_F32, TC_DIM("batch", 1, 64), 4)), TC_ERR_SHAPE,
            "axis 0 is batch against batch (batch is declared as 0..64 and as 1..64)");
    refused(tc_matmul(x, tc_input(ctx, "y", TC_F32, batch, 4)), TC_ERR_SHAPE,
            "axis 1 of the first is 4, axis 0 of the second is batch (a symbolic");
    refused(tc_expand(x, 64, 4), TC_ERR_SHAPE, "axis 0 is batch, only size 1 repeats (a symbolic");
    refused(tc_reshape(x, 8, -1), TC_ERR_SHAPE,
            "4*batch elements of shape [batch, 4] do not fit shape [8, -1] at every value");
    refused(tc_reshape(x, batch, 5), TC_ERR_SHAPE, "4*batch elements of shape [batch, 4]");
    refused(tc_conv2d(image(batch, height), w, TC_NONE, NULL), TC_ERR_SHAPE,
            "axis 2 is height, which may be 0: a window of 3 elements (dilation 1) needs at least "
            "3: declare TC_DIM(\"height\", 3, ...)");
    refused(tc_conv2d(image(batch, height), w, TC_NONE,
                      &(tc_conv){.padding = {1, 1}, .dilation = {2, 1}}),
            TC_ERR_SHAPE,
            "axis 2 is (height + 2), which may be 2: a window of 3 elements (dilation 2) needs at "
            "least 5: declare TC_DIM(\"height\", 3, ...)");
    refused(tc_conv2d(image(batch, 2), w, TC_NONE, NULL), TC_ERR_SHAPE,
            "a window of 3 elements (dilation 1, stride 1) does not fit axis 2 of size 2");
    refused(tc_max_pool2d(image(batch, height), &(tc_pool){.kernel = {2, 2}}), TC_ERR_SHAPE,
            "as height may be 0: only the batch axis may: declare TC_DIM(\"height\", 1, ...)");
    refused(tc_max_pool2d(image(batch, TC_DIM("height", 1, 40)), &(tc_pool){.kernel = {2, 2}}),
            TC_ERR_SHAPE,
            "does not fit height elements and padding 0: declare TC_DIM(\"height\", "
            "2, ...)");
    refused(tc_pad(x, 0, -1, 0, 0), TC_ERR_SHAPE,
            "leaves no valid size: declare TC_DIM(\"batch\", 1, ...)");
    refused(tc_max(x, TC_AXES(0), false), TC_ERR_SHAPE,
            "max over axis 0 of shape [batch, 4] has no value where batch is 0: declare "
            "TC_DIM(\"batch\", 1, ...)");
    refused(tc_argmax(x, 0, false), TC_ERR_SHAPE, "has no value where batch is 0");
    tc_tensor three = tc_input(ctx, "i", TC_I64, 3);
    refused(tc_index_select(x, 0, three), TC_ERR_SHAPE,
            "axis 0 of x is batch, which may be 0: nothing can be read from it then: declare "
            "TC_DIM(\"batch\", 1, ...)");
    refused(tc_cross_entropy(tc_input(ctx, "l", TC_F32, 3, batch), three), TC_ERR_SHAPE,
            "axis 1 of the logits is batch, which may be 0");
    refused(tc_gather(x, 1, tc_input(ctx, "i", TC_I64, height, 2)), TC_ERR_SHAPE,
            "index of shape [height, 2] does not fit x of shape [batch, 4]");
    refused(tc_bmm(tc_input(ctx, "a", TC_F32, batch, 2, 2), tc_input(ctx, "b", TC_F32, 8, 2, 2)),
            TC_ERR_SHAPE, "shapes [batch, 2, 2] and [8, 2, 2]");
    refused(tc_cat(TC_TENSORS(x, tc_input(ctx, "y", TC_F32, batch, height)), 0), TC_ERR_SHAPE,
            "sizes off axis 0 must be equal");
    tc_ctx_free(ctx);
}

#define MADE_BY_C "no valid symbolic size: what C arithmetic makes of one"

TEST(no_valid_dims)
{
    begin();
    const char *text = "the size of axis 0 is no valid TC_DIM: expected a name and 0 <= least <= "
                       "most <= 2^40";
    int64_t wrong[] = {TC_DIM(NULL, 0, 4), TC_DIM("", 0, 4), TC_DIM("n", -1, 4), TC_DIM("n", 5, 4),
                       TC_DIM("n", 0, ((int64_t)1 << 40) + 1)};
    for (int i = 0; i < TCI_COUNT(wrong); i++) {
        refused(tc_input(ctx, "x", TC_F32, wrong[i]), TC_ERR_SHAPE, text);
        refused(tc_full(ctx, 0, TC_F32, wrong[i]), TC_ERR_SHAPE, text);
        refused(tc_full(ctx, 0, TC_F32, tc_dim_add(2, wrong[i])), TC_ERR_SHAPE, text);
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("n", 0, 4));
    refused(tc_slice(x, 0, 0, 2, TC_DIM("n", 0, 4)), TC_ERR_ARGUMENT,
            "the step of a slice, n, may be 0: declare TC_DIM(\"n\", 1, ...)");
    CHECK_EQ_INT(TC_DIM("n", 7, 7), 7);
    int64_t big = TC_DIM("big", 0, (int64_t)1 << 40), large = TC_DIM("large", 0, (int64_t)1 << 30);
    refused(tc_input(ctx, "x", TC_F32, big, large), TC_ERR_LIMIT,
            "shape [big, large] may have more elements than memory can address");
    CHECK_STR(tc_error(tc_input(ctx, "x", TC_F32, big, 1 << 18)), "");
    refused(tc_arange(ctx, 0, big, 0.5, TC_F32), TC_ERR_ARGUMENT, "a symbolic size");
    refused(tc_arange(ctx, 0, 10, large, TC_F32), TC_ERR_ARGUMENT, "a symbolic size");
    tc_ctx_free(ctx);
}

/* A symbolic size is a number to C. Whatever C makes of it is refused where it can be told from a
 * number that is meant. */
TEST(c_arithmetic_is_refused)
{
    begin();
    int64_t n = TC_DIM("n", 1, 100), m = TC_DIM("m", 0, 1 << 20), h = TC_DIM("h", 3, 9);
    const int64_t made[] = {n + 1,
                            n - 1,
                            n + 4096,
                            n / 2,
                            n / 3 + 1,
                            (n + 1) / 2,
                            n / 1000,
                            -n,
                            (int64_t)((uint64_t)n * 2),
                            (int64_t)((uint64_t)n * 3),
                            (int64_t)((uint64_t)n * 4),
                            (int64_t)((uint64_t)n + (uint64_t)m),
                            (int64_t)((uint64_t)n * (uint64_t)m),
                            n - m,
                            m - n,
                            m - n - 1,
                            h - m,
                            (int32_t)n,
                            (int64_t)(uint32_t)n};
    tc_tensor x = tc_input(ctx, "x", TC_F32, n), one = tc_full(ctx, 1, TC_F32, 1);
    tc_tensor image4 = tc_input(ctx, "i", TC_F32, 1, 1, 64, 64);
    for (int i = 0; i < TCI_COUNT(made); i++) {
        int64_t v = made[i];
        refused(tc_slice(x, 0, 0, v, 1), TC_ERR_ARGUMENT, "the stop is " MADE_BY_C);
        refused(tc_slice(x, 0, v, TC_END, 1), TC_ERR_ARGUMENT, "the start is " MADE_BY_C);
        refused(tc_slice(x, 0, 0, TC_END, v), TC_ERR_ARGUMENT, "the step is " MADE_BY_C);
        refused(tc_pad(x, 0, v, 0, 0), TC_ERR_ARGUMENT, "the padding before is " MADE_BY_C);
        refused(tc_pad(x, 0, 0, v, 0), TC_ERR_ARGUMENT, "the padding after is " MADE_BY_C);
        refused(tc_pad(x, 0, 0, 0, v), TC_ERR_ARGUMENT, "an operand is " MADE_BY_C);
        refused(tc_mul(x, v), TC_ERR_ARGUMENT, "an operand is " MADE_BY_C);
        refused(tc_where(x, v, x), TC_ERR_ARGUMENT, "an operand is " MADE_BY_C);
        refused(tc_full(ctx, v, TC_F32, 2), TC_ERR_ARGUMENT, "an operand is " MADE_BY_C);
        refused(tc_arange(ctx, 0, v, 1, TC_F32), TC_ERR_ARGUMENT, "an operand is " MADE_BY_C);
        refused(tc_input(ctx, "y", TC_F32, v), TC_ERR_SHAPE, MADE_BY_C);
        refused(tc_full(ctx, 0, TC_F32, 3, v), TC_ERR_SHAPE, "the size of axis 1 is " MADE_BY_C);
        refused(tc_expand(one, v), TC_ERR_SHAPE, MADE_BY_C);
        refused(tc_reshape(x, v, 1), TC_ERR_SHAPE, MADE_BY_C);
        refused(tc_max_pool2d(image4, &(tc_pool){.kernel = {2, 2}, .stride = {v, 1}}),
                TC_ERR_ARGUMENT, "stride is " MADE_BY_C);
        refused(tc_max_pool2d(image4, &(tc_pool){.kernel = {v, 2}}), TC_ERR_ARGUMENT,
                v < 0 ? "not positive" : "the kernel is " MADE_BY_C);
        refused(tc_full(ctx, 0, TC_F32, tc_dim_add(v, 1)), TC_ERR_SHAPE, MADE_BY_C);
    }
    const double reals[] = {(double)n,         (float)n,        0.5 * (double)n, 1.0 / (double)n,
                            255.0 / (double)n, 1.0f / (float)n, (double)n * -2.0};
    for (int i = 0; i < TCI_COUNT(reals); i++) {
        refused(tc_mul(x, reals[i]), TC_ERR_ARGUMENT, "an operand is " MADE_BY_C);
    }
    tc_ctx_free(ctx);
}

/* And no number that is meant is taken for one. */
TEST(other_numbers_are_not)
{
    begin();
    int64_t n = TC_DIM("n", 1, 100);
    CHECK(tci_dim_is_stray(n + ((int64_t)1 << 38)) && !tci_dim_is_stray(n + ((int64_t)1 << 40)));
    const uint64_t plain[] = {1u << 20,
                              INT_MAX,
                              UINT_MAX,
                              1000000007,
                              1ull << 32,
                              1ull << 40,
                              1ull << 53,
                              1ull << 60,
                              1ull << 61,
                              1ull << 62,
                              3ull << 61,
                              1ull << 63,
                              UINT64_MAX,
                              INT64_MAX,
                              INT64_MAX - 1,
                              0x9e3779b97f4a7c15u,
                              6364136223846793005u,
                              1442695040888963407u,
                              0xcbf29ce484222325u,
                              0x5555555555555555u,
                              0xaaaaaaaaaaaaaaaau,
                              1000000000000u,
                              1000000000000000u,
                              1000000000000000000u};
    for (int i = 0; i < TCI_COUNT(plain); i++) {
        CHECK_MSG(!tci_dim_is_stray((int64_t)plain[i]), "%llx", (unsigned long long)plain[i]);
        CHECK_MSG(!tci_dim_is_stray((int64_t)(0 - plain[i])), "-%llx",
                  (unsigned long long)plain[i]);
        CHECK_MSG(!tci_dim_is_stray_real((double)plain[i]), "%g", (double)plain[i]);
        CHECK_MSG(!tci_dim_is_stray_real(1 / (double)plain[i]), "1 / %g", (double)plain[i]);
    }
    for (int e = 0; e < 1000; e++) {
        CHECK_MSG(!tci_dim_is_stray_real(ldexp(1, e)) && !tci_dim_is_stray_real(ldexp(1, -e)),
                  "2^%d", e);
        CHECK_MSG(!tci_dim_is_stray_real(pow(10, e * 0.3)), "10^%g", e * 0.3);
    }
    CHECK(!tci_dim_is_stray_real(INFINITY) && !tci_dim_is_stray_real(NAN));
    CHECK(!tci_dim_is_stray_real(DBL_MIN) && !tci_dim_is_stray_real(DBL_TRUE_MIN));
    tc_tensor x = tc_input(ctx, "x", TC_I64, 3);
    CHECK_STR(tc_error(tc_mul(x, (int64_t)1 << 62)), "");
    CHECK_STR(tc_error(tc_mul(x, ((int64_t)1 << 62) + 12345)), "");
    CHECK_STR(tc_error(tc_slice(x, 0, INT64_MIN, INT64_MAX - 1, 1)), "");
    tc_ctx_free(ctx);
}

TEST(sizes_are_computed)
{
    begin();
    int64_t n = TC_DIM("n", 1, 100), z = TC_DIM("z", 0, 9);
    tc_tensor x = tc_input(ctx, "x", TC_F32, n, 4);
    CHECK(tc_dim_add(n, 2) == tc_dim_sub(tc_dim_mul(2, n), tc_dim_sub(n, 2)));
    CHECK(tc_dim_mul(n, 4) == tc_count(x));
    CHECK(tc_dim_div(tc_count(x), 4) == n && tc_dim_div(tc_count(x), n) == 4);
    CHECK(tc_dim_max(n, 1) == n && tc_dim_min(n, 0) == 0);
    CHECK_EQ_INT(tc_dim_div(-7, 2), -4);
    CHECK_EQ_INT(tc_dim_add(3, tc_dim_min(4, 5)), 7);
    CHECK_STR(TCI_DIM_TEXT(tc_size(tc_slice(x, 0, 0, tc_dim_div(n, 2), 1), 0)), "floor(n / 2)");
    refused(tc_slice(x, 0, tc_dim_sub(n, 3), TC_END, 1), TC_ERR_ARGUMENT,
            "the start, (n + -3), may be negative, and only a number counts from the end "
            "(tc_dim_max with 0 cuts it off): declare TC_DIM(\"n\", 3, ...)");
    refused(tc_full(ctx, 0, TC_F32, tc_dim_sub(n, 3)), TC_ERR_SHAPE,
            "size (n + -3) of axis 0 may be negative in shape [(n + -3)]: declare TC_DIM(\"n\", "
            "3, ...)");
    const char *quotient = "a quotient by what is, or may be, 0 or negative";
    refused(tc_full(ctx, 0, TC_F32, tc_dim_div(n, 0)), TC_ERR_SHAPE, quotient);
    refused(tc_full(ctx, 0, TC_F32, tc_dim_div(n, z)), TC_ERR_SHAPE, quotient);
    refused(tc_mul(x, tc_dim_mul(2, tc_dim_div(n, z))), TC_ERR_ARGUMENT, quotient);
    refused(tc_slice(x, 0, tc_dim_div(n, -1), TC_END, 1), TC_ERR_ARGUMENT, quotient);
    const int64_t huge = (int64_t)1 << 60;
    const int64_t large[] = {tc_dim_add(huge, huge), tc_dim_mul(huge, -huge),
                             tc_dim_mul(n, huge + 1), tc_dim_min(n, TC_END),
                             tc_dim_add(INT64_MIN, INT64_MIN)};
    for (int i = 0; i < TCI_COUNT(large); i++) {
        refused(tc_full(ctx, 0, TC_F32, large[i]), TC_ERR_LIMIT, "too large an expression");
    }
    refused(tc_add(tc_slice(x, 0, 1, TC_END, 1), tc_slice(x, 0, 0, tc_dim_div(n, 2), 1)),
            TC_ERR_SHAPE, "(a symbolic size is equal only to itself)");
    refused(tc_add(tc_full(ctx, 1, TC_F32, tc_dim_max(z, 3)), tc_full(ctx, 1, TC_F32, z)),
            TC_ERR_SHAPE, "axis 0 is max(3, z) against z (equal with TC_DIM(\"z\", 3, ...))");
    tc_ctx_free(ctx);
}

/* The terms of a square of many symbols are more than are kept: then no node is made. */
TEST(expressions_that_are_too_large)
{
    begin();
    tc_tensor parts[12];
    for (int i = 0; i < 12; i++) {
        char name[8];
        snprintf(name, sizeof(name), "a%d", i);
        parts[i] = tc_input(ctx, name, TC_F32, TC_DIM(name, 1, 8));
    }
    tc_tensors all = {parts, 12};
    tc_tensor x = tc_cat(all, 0);
    tc_tensor column = tc_unsqueeze(x, 1), row = tc_unsqueeze(x, 0);
    const char *text = "too large an expression: expected at most 64 terms";
    CHECK_STR(tc_error(tc_mul(x, x)), "");
    refused(tc_matmul(column, row), TC_ERR_LIMIT, text);
    refused(tc_mul(column, row), TC_ERR_LIMIT, "the number of elements of shape [");
    refused(tc_full(ctx, 0, TC_F32, tc_size(x, 0), tc_size(x, 0)), TC_ERR_LIMIT, text);
    refused(tc_full(ctx, 0, TC_F32, tc_dim_mul(tc_size(x, 0), tc_size(x, 0))), TC_ERR_LIMIT, text);
    /* A node that was made around the checks: the plan finds it, verified or not. */
    tci_node *in = tci_handle_node(x);
    tci_dim square[2] = {in->shape[0], in->shape[0]};
    tci_ctx *made_on = tci_ctx_of(ctx);
    tci_graph *g = &made_on->graph;
    tci_node *wide = tci_handle_node(row);
    wide = tci_graph_node(g, TCI_OP_EXPAND, TC_F32, 2, square, 1, &wide, 0, NULL);
    tci_node *scan = tci_build_scan(g, wide, 1, false, TCI_MODE_ADD);
    tc_tensor y = tci_handle_make(
        made_on, tci_build_reduce(g, TCI_OP_SUM, scan, (tc_axes){NULL, 0, true}, false), TC_HERE);
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(all, TC_TENSORS(y), NULL, &f), TC_ERR_LIMIT);
    CHECK_HAS(tc_error(y), text);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Bounds in ranges, and which way an expression goes with a symbol, against all values. */
TEST(ranges_and_directions)
{
    int n_told = 0;
    for (int round = 0; round < 300; round++) {
        entry all[N_NODES];
        int64_t least[N_SYMBOLS], most[N_SYMBOLS], values[N_SYMBOLS];
        draw_expression(all);
        for (int i = 0; i < N_SYMBOLS; i++) {
            least[i] = ranges[i][0] + draw((uint32_t)(ranges[i][1] - ranges[i][0]));
            most[i] = least[i] + draw((uint32_t)(ranges[i][1] - least[i] + 1));
        }
        tci_dim d = all[N_NODES - 1].dim;
        tci_dim_bounds b = tci_dim_value_in(d, least, most);
        first_values(values);
        do {
            int64_t v = tci_dim_value(d, values);
            bool inside = true;
            for (int i = 0; i < N_SYMBOLS; i++) {
                inside = inside && least[i] <= values[i] && values[i] <= most[i];
                int way = tci_dim_direction(d, i);
                if (values[i] < ranges[i][1] && way != 2) {
                    values[i]++;
                    int64_t next = tci_dim_value(d, values);
                    values[i]--;
                    n_told++;
                    CHECK_MSG(way == 1    ? next >= v
                              : way == -1 ? next <= v
                                          : next == v,
                              "%s goes from %lld to %lld: %d", TCI_DIM_TEXT(d), (long long)v,
                              (long long)next, way);
                }
            }
            CHECK_MSG(!inside || (b.least <= v && v <= b.most), "%s is %lld, outside %lld..%lld",
                      TCI_DIM_TEXT(d), (long long)v, (long long)b.least, (long long)b.most);
        } while (next_values(values));
    }
    CHECK_MSG(n_told > 50000, "%d", n_told);
    tci_dim n = symbol(0);
    tci_dim saw = tci_dim_sub(tci_dim_mul(tci_dim_ceil_div(n, 3), 3), n);
    CHECK_EQ_INT(tci_dim_direction(saw, 0), 2);
    CHECK_EQ_INT(tci_dim_direction(n, 0), 1);
    CHECK_EQ_INT(tci_dim_direction(tci_dim_div(12, n), 0), -1);
    CHECK_EQ_INT(tci_dim_direction(n, 1), 0);
}

TEST(memory_has_known_sizes)
{
    begin();
    float data[64] = {0}, out[64];
    int64_t n = TC_DIM("n", 0, 64);
    const char *text = "size n of axis 0 has no value before a run";
    refused(tc_borrow(ctx, data, TC_F32, n), TC_ERR_SHAPE, text);
    refused(tc_copy_in(ctx, data, TC_F32, n), TC_ERR_SHAPE, text);
    refused(tc_param(ctx, data, TC_F32, n), TC_ERR_SHAPE, text);
    text = "n, the size of axis 0 of the result of tc_full (made at";
    tc_tensor ones = tc_full(ctx, 1, TC_F32, n), sum = tc_sum(ones, TC_ALL, false);
    CHECK_EQ_INT(tc_eval(sum), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(sum), text);
    CHECK_EQ_INT(tc_read(ones, out, 64), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_print(stdout, ones), TC_ERR_SHAPE);
    CHECK_EQ_INT(tc_eval(tc_input(ctx, "x", TC_F32, n)), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_scope_begin(ctx), TC_OK);
    refused(tc_keep(tc_mul(ones, 2)), TC_ERR_SHAPE, text);
    CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
    tc_tensor p = tc_param(ctx, data, TC_F32, 64);
    refused(tc_assign(p, ones), TC_ERR_SHAPE, "the value has shape [n], the parameter [64]");
    tc_ctx_free(ctx);
}

TEST(queries)
{
    begin();
    int64_t n = TC_DIM("n", 0, 64);
    tc_tensor x = tc_input(ctx, "x", TC_F32, n, 3), y = tc_cat(TC_TENSORS(x, x), 0);
    CHECK(tc_size(x, 0) == n);
    CHECK(tc_size(x, -2) == TC_DIM("n", 0, 64));
    CHECK_EQ_INT(tc_size(x, 1), 3);
    CHECK(tc_count(x) == tc_dim_mul(3, n));
    CHECK_EQ_INT(tc_nbytes(x), -1);
    CHECK_EQ_INT(tc_count(tc_sum(x, TC_AXES(0), false)), 3);
    CHECK_EQ_INT(tc_nbytes(tc_sum(x, TC_AXES(0), false)), 12);
    CHECK(tc_size(tc_input(ctx, "z", TC_F32, tc_size(y, 0)), 0) == tc_size(y, 0));
    CHECK_STR(tc_error(tc_add(y, tc_input(ctx, "z", TC_F32, tc_size(y, 0), 3))), "");
    tc_ctx_free(ctx);
}

TEST(shutdown_ends_symbols)
{
    begin();
    int64_t first = TC_DIM("first", 0, 7), other = TC_DIM("other", 0, 9);
    tc_shutdown(); /* a context is left */
    CHECK_STR(tc_error(tc_input(ctx, "x", TC_F32, first, other)), "");
    tc_ctx_free(ctx);
    tc_shutdown();
    begin();
    refused(tc_input(ctx, "x", TC_F32, first), TC_ERR_SHAPE, MADE_BY_C);
    CHECK_STR(tc_error(tc_input(ctx, "x", TC_F32, TC_DIM("new", 0, 7))), "");
    refused(tc_input(ctx, "x", TC_F32, first), TC_ERR_SHAPE, MADE_BY_C);
    CHECK(TC_DIM("other", 0, 9) != other || !tci_dim_is_valid(first));
    tc_ctx_free(ctx);
}

static void *make_dims(void *arg)
{
    int64_t *sums = arg;
    for (int i = 0; i < 400; i++) {
        tci_dim a = tci_dim_symbol("shared", -1, 0, i % 50 + 1);
        tci_dim b = tci_dim_mul(tci_dim_add(a, i), tci_dim_div(a, 3));
        sums[i] = b;
    }
    return NULL;
}

TEST(threads_share_symbols)
{
    static int64_t sums[4][400];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, make_dims, sums[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(memcmp(sums[i], sums[0], sizeof(sums[0])) == 0);
    }
}

TEST_MAIN
