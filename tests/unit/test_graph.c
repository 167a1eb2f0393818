/* The graph: nodes found again, handles and scopes, shape and dtype rules, text, verifier,
 * rewrites. */
#include "inside.h"

#include "tc_test.h"
#include "same.h"

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

static tci_node *node_of(tc_tensor t)
{
    CHECK_STR(tc_error(t), "");
    tci_node *n = tci_handle_node(t);
    REQUIRE(n != NULL);
    return n;
}

static bool is_same(tc_tensor a, tc_tensor b)
{
    return node_of(a) == node_of(b);
}

/* "f32 [3, 4]", or the error's status as "!2". */
static const char *facts(tc_tensor t)
{
    static char text[4][160];
    static int turn;
    char *out = text[turn++ % 4];
    const tci_node *n = tci_handle_node(t);
    if (!n) {
        snprintf(out, sizeof(text[0]), "!%d", (int)tc_status_of(t));
    } else {
        snprintf(out, sizeof(text[0]), "%s %s", tci_dtype_get((tc_dtype)n->dtype)->name,
                 TCI_SHAPE_TEXT(n));
    }
    return out;
}

static int64_t nodes(void)
{
    tc_stats s;
    CHECK_EQ_INT(tc_stats(ctx, &s), TC_OK);
    return s.nodes;
}

static int64_t bytes(void)
{
    tc_stats s;
    CHECK_EQ_INT(tc_stats(ctx, &s), TC_OK);
    return s.graph_bytes;
}

/* ---- nodes ---- */

TEST(equal_expressions_are_one_node)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), v = tc_input(ctx, "v", TC_F32, 4);
    CHECK(is_same(tc_add(x, v), tc_add(x, v)));
    CHECK(!is_same(tc_add(x, v), tc_add(v, x)));
    CHECK(is_same(tc_sum(x, TC_AXES(0), 0), tc_sum(x, TC_AXES(-2), 0)));
    CHECK(is_same(tc_mul(x, 2), tc_mul(x, 2.0)));
    CHECK(is_same(tc_reshape(x, 3, 4), x));
    CHECK(is_same(tc_permute(x, 0, 1), x));
    CHECK(is_same(tc_cast(x, TC_F32), x));
    CHECK(is_same(tc_slice(x, 1, 0, TC_END, 1), x));
    CHECK(is_same(tc_flip(tc_input(ctx, "one", TC_F32, 1), 0), tc_flip(x, 0)) == false);
    CHECK(!is_same(tc_input(ctx, "x", TC_F32, 3), tc_input(ctx, "x", TC_F32, 3)));
    CHECK(is_same(tc_einsum("ij,jk->ik", TC_TENSORS(x, tc_transpose(x, 0, 1))),
                  tc_matmul(x, tc_transpose(x, 0, 1))));
    tc_ctx_free(ctx);
}

TEST(only_five_numbers_are_constants)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3);
    const double known[] = {0, 1, -1, 2, 0.5}, fresh[] = {-0.0, 3, 0.25, 1e-3, INFINITY, NAN};
    for (int i = 0; i < 5; i++) {
        CHECK(is_same(tc_add(x, known[i]), tc_add(x, known[i])));
    }
    for (int i = 0; i < 6; i++) {
        CHECK(!is_same(tc_add(x, fresh[i]), tc_add(x, fresh[i])));
    }
    tci_node *sum = node_of(tc_add(x, 0.1));
    CHECK(tci_op_is_ew(sum->op));
    const tci_node *literal = sum->in[1]->in[0]->in[0];
    CHECK_EQ_INT(literal->op, TCI_OP_LITERAL);
    CHECK(literal->value.f == (double)0.1f);
    tc_ctx_free(ctx);
}

TEST(exponents_that_are_few_products_are_constants)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3), d = tc_input(ctx, "d", TC_F64, 3);
    const double known[] = {3, -2, 0.5, 1.5, -7.5, 8}, fresh[] = {8.5, 9, 0.3, INFINITY, NAN};
    for (int i = 0; i < TCI_COUNT(known); i++) {
        CHECK(is_same(tc_pow(x, known[i]), tc_pow(x, known[i])));
        CHECK(is_same(tc_pow(d, known[i]), tc_pow(d, known[i])));
        CHECK(i == 2 || !is_same(tc_pow(known[i], x), tc_pow(known[i], x)));
    }
    for (int i = 0; i < TCI_COUNT(fresh); i++) {
        CHECK(!is_same(tc_pow(x, fresh[i]), tc_pow(x, fresh[i])));
    }
    tc_ctx_free(ctx);
}

TEST(order_of_a_long_chain)
{
    tci_scratch s;
    tci_scratch_init(&s);
    REQUIRE(!setjmp(s.escape));
    tci_graph g;
    tci_graph_init(&g, &s, NULL);
    tci_dim n = 8;
    tci_node *x = tci_graph_node(&g, TCI_OP_INPUT, TC_F32, 1, &n, 0, NULL, 0, NULL);
    for (int i = 0; i < 200000; i++) {
        x = tci_build_ew(&g, i % 2 ? TCI_OP_EXP : TCI_OP_SIN, &x);
    }
    tci_node_list list = tci_graph_sort(&s, &x, 1);
    CHECK_EQ_INT(list.n, 200001);
    CHECK(list.items[list.n - 1] == x && list.items[0]->op == TCI_OP_INPUT);
    tci_scratch_free(&s);
}

/* ---- handles and scopes ---- */

TEST(handles_die_with_their_scope)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3);
    CHECK_EQ_INT(tc_scope_begin(ctx), TC_OK);
    tc_tensor y = tc_exp(x);
    CHECK_EQ_INT(tc_status_of(y), TC_OK);
    CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
    CHECK_EQ_INT(tc_status_of(y), TC_ERR_HANDLE);
    CHECK_HAS(tc_error(y), "dead");
    tc_tensor z = tc_exp(x); /* takes over the slot, not the handle */
    CHECK_EQ_INT(tc_status_of(z), TC_OK);
    CHECK_EQ_INT(tc_status_of(y), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_rank(y), -1);
    CHECK_EQ_INT(tc_size(y, 0), -1);
    CHECK_EQ_INT(tc_dtype_of(y), TC_DTYPE_COUNT);
    CHECK_EQ_INT(tc_nbytes(y), -1);
    CHECK_EQ_INT(tc_scope_end(ctx), TC_ERR_ARGUMENT);
    tc_ctx_free(ctx);
    CHECK_EQ_INT(tc_status_of(z), TC_ERR_HANDLE);
    CHECK_HAS(tc_error(z), "context was freed");
}

TEST(late_handles_of_a_freed_context_stay_dead)
{
    tc_tensor old[8];
    begin();
    for (int i = 0; i < 8; i++) {
        old[i] = tc_input(ctx, "x", TC_F32, i);
    }
    tc_ctx_free(ctx);
    begin(); /* the same struct again */
    for (int i = 0; i < 8; i++) {
        tc_input(ctx, "y", TC_F32, i);
    }
    for (int i = 0; i < 8; i++) {
        CHECK_EQ_INT(tc_status_of(old[i]), TC_ERR_HANDLE);
    }
    tc_ctx_free(ctx);
}

TEST(a_loop_of_scopes_stays_flat)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 16), wrong = tc_input(ctx, "w", TC_F32, 5);
    int64_t before = 0;
    for (int i = 0; i < 100000; i++) {
        tc_scope_begin(ctx);
        tc_tensor y = tc_exp(tc_add(tc_mul(x, 1.5), x));
        tc_tensor bad = tc_add(y, wrong);
        if (i % 1000 == 0) {
            CHECK_EQ_INT(tc_status_of(bad), TC_ERR_SHAPE);
        }
        tc_scope_end(ctx);
        before = i == 100 ? bytes() : before;
    }
    CHECK_EQ_INT(bytes(), before);
    CHECK_EQ_INT(nodes(), 2);
    tc_ctx_free(ctx);
}

TEST(the_same_mistake_for_ever_stays_flat)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3), w = tc_input(ctx, "w", TC_F32, 5);
    int64_t before = 0;
    for (int i = 0; i < 1000; i++) {
        tc_tensor bad = tc_add(x, w);
        CHECK_EQ_INT(tc_status_of(tc_exp(bad)), TC_ERR_SHAPE);
        before = i == 10 ? bytes() : before;
    }
    CHECK_EQ_INT(bytes(), before);
    tc_ctx_free(ctx);
}

TEST(keep_replaces_the_value_of_two_keeps_ago)
{
    float v[4] = {1, 2, 3, 4};
    begin();
    tc_tensor x = tc_copy_in(ctx, v, TC_F32, 4), before = x, older = x;
    for (int i = 0; i < 50; i++) {
        tc_scope_begin(ctx);
        tc_tensor next = tc_keep(tc_add(tc_mul(x, 0.5), 1));
        tc_scope_end(ctx);
        older = before;
        before = x;
        x = next;
        CHECK_EQ_INT(tc_status_of(x), TC_OK);
        CHECK_EQ_INT(tc_status_of(before), TC_OK);
        if (i > 2) {
            CHECK_EQ_INT(tc_status_of(older), TC_ERR_HANDLE);
        }
    }
    CHECK_EQ_INT(nodes(), 3); /* the copy, and two kept values */
    CHECK_EQ_INT(tc_read(x, v, 4), TC_OK);
    CHECK_CLOSE(v[3], 2, 1e-6);
    tc_ctx_free(ctx);
}

TEST(keep_of_a_two_step_recurrence)
{
    float v[2] = {1, 2}, got;
    begin();
    tc_tensor a = tc_copy_in(ctx, &v[0], TC_F32, 1), b = tc_copy_in(ctx, &v[1], TC_F32, 1);
    for (int i = 0; i < 20; i++) {
        tc_scope_begin(ctx);
        tc_tensor c = tc_keep(tc_add(a, b));
        tc_scope_end(ctx);
        a = b;
        b = c;
        CHECK_EQ_INT(tc_status_of(a), TC_OK);
    }
    CHECK(nodes() <= 6);
    CHECK_EQ_INT(tc_read(b, &got, 1), TC_OK);
    CHECK(got == 28657);
    tc_ctx_free(ctx);
}

TEST(kept_values_of_one_line_that_do_not_depend_stay)
{
    float v = 0.25f;
    tc_tensor kept[10];
    begin();
    tc_tensor x = tc_copy_in(ctx, &v, TC_F32, 1);
    for (int i = 0; i < 10; i++) {
        tc_scope_begin(ctx);
        kept[i] = tc_keep(tc_mul(x, i + 0.75));
        tc_scope_end(ctx);
    }
    for (int i = 0; i < 10; i++) {
        CHECK_EQ_INT(tc_read(kept[i], &v, 1), TC_OK);
        CHECK(v == 0.25f * (float)(i + 0.75));
    }
    tc_ctx_free(ctx);
}

TEST(retain_exempts_a_kept_value)
{
    float v = 1;
    tc_tensor all[6];
    begin();
    tc_tensor x = tc_copy_in(ctx, &v, TC_F32, 1);
    for (int i = 0; i < 6; i++) {
        tc_scope_begin(ctx);
        x = tc_keep(tc_add(x, 1));
        tc_scope_end(ctx);
        all[i] = i == 1 ? tc_retain(x) : x;
    }
    CHECK_EQ_INT(tc_status_of(all[0]), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_read(all[1], &v, 1), TC_OK);
    CHECK(v == 3);
    CHECK_EQ_INT(tc_status_of(all[2]), TC_ERR_HANDLE);
    tc_ctx_free(ctx);
}

TEST(kept_values_in_use_are_not_dropped)
{
    float v = 1;
    begin();
    tc_tensor x = tc_copy_in(ctx, &v, TC_F32, 1), sum = x;
    for (int i = 0; i < 10; i++) {
        tc_scope_begin(ctx);
        x = tc_keep(tc_add(x, 1));
        tc_scope_end(ctx);
        sum = tc_add(sum, x); /* lazy, outside: holds every value */
    }
    CHECK_EQ_INT(tc_read(sum, &v, 1), TC_OK);
    CHECK(v == 66);
    tc_ctx_free(ctx);
}

TEST(errors_leave_a_scope_through_keep)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3), w = tc_input(ctx, "w", TC_F32, 5);
    tc_scope_begin(ctx);
    tc_tensor inner = tc_add(x, w), kept = tc_keep(inner);
    tc_scope_end(ctx);
    CHECK_EQ_INT(tc_status_of(inner), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_status_of(kept), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(kept), "tc_add: shapes [3] and [5]");
    tc_ctx_free(ctx);
}

TEST(touch_forgets_what_was_computed)
{
    float v[2] = {1, 2}, got[2];
    begin();
    tc_tensor x = tc_borrow(ctx, v, TC_F32, 2), other = tc_full(ctx, 3, TC_F32, 2);
    tc_tensor y = tc_mul(x, 2), z = tc_exp(other);
    CHECK_EQ_INT(tc_read(y, got, 2), TC_OK);
    CHECK_EQ_INT(tc_eval(z), TC_OK);
    v[0] = 10;
    CHECK_EQ_INT(tc_touch(x), TC_OK);
    CHECK(node_of(z)->storage != NULL);
    CHECK_EQ_INT(tc_read(y, got, 2), TC_OK);
    CHECK(got[0] == 20 && got[1] == 4);
    CHECK_EQ_INT(tc_touch(y), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(y), "tc_borrow");
    tc_ctx_free(ctx);
}

/* ---- dtype rules, as the tables of PyTorch ---- */

static const tc_dtype table_dtypes[10] = {TC_BOOL, TC_U8,  TC_I8,   TC_I16, TC_I32,
                                          TC_I64,  TC_F16, TC_BF16, TC_F32, TC_F64};

static void check_table(const char *what, const char *const *rows, int rank_row, int rank_column)
{
    for (int i = 0; i < 10; i++) {
        char copy[80];
        snprintf(copy, sizeof(copy), "%s", rows[i]);
        char *at = copy;
        for (int j = 0; j < 10; j++) {
            const int64_t a[2] = {table_dtypes[i], 3}, b[2] = {table_dtypes[j], 3};
            char *end = at + strcspn(at, " ");
            bool last = !*end;
            *end = 0;
            tc_tensor s = tc_maximum(tc_input_at(ctx, "a", 1 + rank_row, a, TC_HERE),
                                     tc_input_at(ctx, "b", 1 + rank_column, b, TC_HERE));
            const char *got = tci_dtype_get(tc_dtype_of(s))->name;
            CHECK_MSG(!strcmp(got, at), "%s %d %d: %s, expected %s", what, i, j, got, at);
            at = last ? end : end + 1;
        }
    }
}

TEST(promotion_of_tensors)
{
    static const char *const both[10] = {"bool u8 i8 i16 i32 i64 f16 bf16 f32 f64",
                                         "u8 u8 i16 i16 i32 i64 f16 bf16 f32 f64",
                                         "i8 i16 i8 i16 i32 i64 f16 bf16 f32 f64",
                                         "i16 i16 i16 i16 i32 i64 f16 bf16 f32 f64",
                                         "i32 i32 i32 i32 i32 i64 f16 bf16 f32 f64",
                                         "i64 i64 i64 i64 i64 i64 f16 bf16 f32 f64",
                                         "f16 f16 f16 f16 f16 f16 f16 f32 f32 f64",
                                         "bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64",
                                         "f32 f32 f32 f32 f32 f32 f32 f32 f32 f64",
                                         "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64"};
    static const char *const zero_dim[10] = {"bool u8 i8 i16 i32 i64 f16 bf16 f32 f64",
                                             "u8 u8 u8 u8 u8 u8 f16 bf16 f32 f64",
                                             "i8 i8 i8 i8 i8 i8 f16 bf16 f32 f64",
                                             "i16 i16 i16 i16 i16 i16 f16 bf16 f32 f64",
                                             "i32 i32 i32 i32 i32 i32 f16 bf16 f32 f64",
                                             "i64 i64 i64 i64 i64 i64 f16 bf16 f32 f64",
                                             "f16 f16 f16 f16 f16 f16 f16 f16 f16 f16",
                                             "bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16",
                                             "f32 f32 f32 f32 f32 f32 f32 f32 f32 f32",
                                             "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64"};
    begin();
    check_table("tensors", both, 1, 1);
    check_table("0-d tensors", both, 0, 0);
    check_table("tensor and 0-d", zero_dim, 1, 0);
    tc_ctx_free(ctx);
}

TEST(numbers_are_weak)
{
    static const char *const want[10][3] = {{"bool", "i64", "f32"}, {"u8", "u8", "f32"},
                                            {"i8", "i8", "f32"},    {"i16", "i16", "f32"},
                                            {"i32", "i32", "f32"},  {"i64", "i64", "f32"},
                                            {"f16", "f16", "f16"},  {"bf16", "bf16", "bf16"},
                                            {"f32", "f32", "f32"},  {"f64", "f64", "f64"}};
    begin();
    for (int i = 0; i < 10; i++) {
        for (int rank = 0; rank < 2; rank++) {
            const int64_t list[2] = {table_dtypes[i], 3};
            tc_tensor x = tc_input_at(ctx, "x", 1 + rank, list, TC_HERE);
            CHECK_STR(tci_dtype_get(tc_dtype_of(tc_maximum(x, (bool)true)))->name, want[i][0]);
            CHECK_STR(tci_dtype_get(tc_dtype_of(tc_add(x, 3)))->name, want[i][1]);
            CHECK_STR(tci_dtype_get(tc_dtype_of(tc_mul(2.5, x)))->name, want[i][2]);
            CHECK_STR(tci_dtype_get(tc_dtype_of(tc_mul(2.5f, x)))->name, want[i][2]);
        }
    }
    tc_tensor b = tc_input(ctx, "b", TC_BOOL, 3);
    CHECK_STR(facts(tc_where(b, 1, 0)), "i64 [3]");
    CHECK_STR(facts(tc_where(b, 1, 0.5)), "f32 [3]");
    CHECK_STR(facts(tc_where(b, (bool)1, (bool)0)), "bool [3]");
    CHECK_STR(facts(tc_where(1, b, 2)), "i64 [3]");
    tc_ctx_free(ctx);
}

TEST(comparing_with_a_number_out_of_range_is_exact)
{
    unsigned char v[3] = {0, 44, 255};
    bool got[3];
    begin();
    tc_tensor x = tc_copy_in(ctx, v, TC_U8, 3);
    CHECK_EQ_INT(tc_read(tc_lt(x, 300), got, 3), TC_OK);
    CHECK(got[0] && got[1] && got[2]);
    CHECK_EQ_INT(tc_read(tc_gt(x, -1), got, 3), TC_OK);
    CHECK(got[0] && got[1] && got[2]);
    CHECK_EQ_INT(tc_read(tc_eq(x, 300), got, 3), TC_OK);
    CHECK(!got[0] && !got[1] && !got[2]);
    CHECK_EQ_INT(tc_read(tc_lt(-1, x), got, 3), TC_OK);
    CHECK(got[0] && got[1] && got[2]);
    tc_ctx_free(ctx);
}

TEST(results_of_op_families)
{
    begin();
    tc_tensor i = tc_input(ctx, "i", TC_I32, 3), b = tc_input(ctx, "b", TC_BOOL, 3);
    tc_tensor h = tc_input(ctx, "h", TC_BF16, 3), u = tc_input(ctx, "u", TC_U64, 3);
    CHECK_STR(facts(tc_exp(i)), "f32 [3]");
    CHECK_STR(facts(tc_exp(h)), "bf16 [3]");
    CHECK_STR(facts(tc_div(i, i)), "f32 [3]");
    CHECK_STR(facts(tc_eq(i, h)), "bool [3]");
    CHECK_STR(facts(tc_logical_and(i, h)), "bool [3]");
    CHECK_STR(facts(tc_sum(b, TC_ALL, 0)), "i64 []");
    CHECK_STR(facts(tc_sum(i, TC_ALL, 1)), "i64 [1]");
    CHECK_STR(facts(tc_prod(h, TC_ALL, 0)), "bf16 []");
    CHECK_STR(facts(tc_cumsum(i, 0)), "i64 [3]");
    CHECK_STR(facts(tc_cumsum(u, 0)), "u64 [3]");
    CHECK_STR(facts(tc_max(i, TC_ALL, 0)), "i32 []");
    CHECK_STR(facts(tc_any(h, TC_ALL, 0)), "bool []");
    CHECK_STR(facts(tc_argmax(h, 0, 0)), "i64 []");
    CHECK_STR(facts(tc_mean(h, TC_ALL, 0)), "bf16 []");
    CHECK_STR(facts(tc_mean(i, TC_ALL, 0)), "f32 []");
    CHECK_STR(facts(tc_softmax(i, 0)), "f32 [3]");
    CHECK_STR(facts(tc_floor(i)), "i32 [3]");
    CHECK_STR(facts(tc_matmul(i, i)), "i32 []");
    tc_ctx_free(ctx);
}

/* ---- shape rules ---- */

TEST(shapes)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), v = tc_input(ctx, "v", TC_F32, 4);
    tc_tensor s = tc_input(ctx, "s", TC_F32), e = tc_input(ctx, "e", TC_F32, 0, 4);
    tc_tensor k = tc_input(ctx, "k", TC_I64, 5), t = tc_input(ctx, "t", TC_F32, 2, 1, 4);
    CHECK_STR(facts(tc_add(x, v)), "f32 [3, 4]");
    CHECK_STR(facts(tc_add(t, x)), "f32 [2, 3, 4]");
    CHECK_STR(facts(tc_add(e, v)), "f32 [0, 4]");
    CHECK_STR(facts(tc_add(s, x)), "f32 [3, 4]");
    CHECK_STR(facts(tc_sum(x, TC_AXES(1), 1)), "f32 [3, 1]");
    CHECK_STR(facts(tc_sum(x, TC_AXES(), 0)), "f32 [3, 4]");
    CHECK_STR(facts(tc_sum(e, TC_AXES(0), 0)), "f32 [4]");
    CHECK_STR(facts(tc_max(e, TC_AXES(1), 0)), "f32 [0]");
    CHECK_STR(facts(tc_sum(s, TC_AXES(-1), 0)), "f32 []");
    CHECK_STR(facts(tc_softmax(s, 0)), "f32 []");
    CHECK_STR(facts(tc_argmax(s, -1, 1)), "i64 []");
    CHECK_STR(facts(tc_reshape(x, 2, -1)), "f32 [2, 6]");
    CHECK_STR(facts(tc_reshape(e, 0, 7)), "f32 [0, 7]");
    CHECK_STR(facts(tc_reshape(e, -1, 4)), "f32 [0, 4]");
    CHECK_STR(facts(tc_expand(v, 2, 3, -1)), "f32 [2, 3, 4]");
    CHECK_STR(facts(tc_expand(s, 2, 3)), "f32 [2, 3]");
    CHECK_STR(facts(tc_squeeze(t, 1)), "f32 [2, 4]");
    CHECK_STR(facts(tc_squeeze(t, 0)), "f32 [2, 1, 4]");
    CHECK_STR(facts(tc_unsqueeze(x, -1)), "f32 [3, 4, 1]");
    CHECK_STR(facts(tc_unsqueeze(s, 0)), "f32 [1]");
    CHECK_STR(facts(tc_pad(x, 0, 2, -4, 0)), "f32 [1, 4]");
    CHECK_STR(facts(tc_pad(x, 1, -4, 0, 0)), "f32 [3, 0]");
    CHECK_STR(facts(tc_cat(TC_TENSORS(x, e, x), 0)), "f32 [6, 4]");
    CHECK_STR(facts(tc_cat(TC_TENSORS(tc_input(ctx, "0", TC_F32, 0), x), 1)), "f32 [3, 4]");
    CHECK_STR(facts(tc_cat(TC_TENSORS(x, tc_cast(x, TC_F64)), -1)), "f64 [3, 8]");
    CHECK_STR(facts(tc_index_select(x, 0, k)), "f32 [5, 4]");
    CHECK_STR(facts(tc_gather(x, 1, tc_reshape(k, 1, 5))), "f32 [1, 5]");
    CHECK_STR(facts(tc_gather(v, 0, tc_input(ctx, "i", TC_U8))), "f32 []");
    CHECK_STR(facts(tc_full(ctx, 1, TC_I32)), "i32 []");
    CHECK_STR(facts(tc_full(ctx, 1.5, TC_I32, 2, 0)), "i32 [2, 0]");
    tc_ctx_free(ctx);
}

TEST(shapes_of_contractions_and_windows)
{
    begin();
    tc_tensor v = tc_input(ctx, "v", TC_F32, 4), x = tc_input(ctx, "x", TC_F32, 3, 4);
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2, 1, 3, 4), b = tc_input(ctx, "b", TC_F32, 5, 4, 6);
    CHECK_STR(facts(tc_matmul(v, v)), "f32 []");
    CHECK_STR(facts(tc_matmul(x, v)), "f32 [3]");
    CHECK_STR(facts(tc_matmul(v, b)), "f32 [5, 6]");
    CHECK_STR(facts(tc_matmul(a, b)), "f32 [2, 5, 3, 6]");
    CHECK_STR(facts(tc_matmul(a, v)), "f32 [2, 1, 3]");
    CHECK_STR(facts(tc_einsum("ij,nj k -> kin", TC_TENSORS(x, b))), "f32 [6, 3, 5]");
    CHECK_STR(facts(tc_einsum("ba,cb", TC_TENSORS(x, tc_input(ctx, "c", TC_F32, 7, 3)))),
              "f32 [4, 7]");
    CHECK_STR(facts(tc_einsum("ii->i", TC_TENSORS(tc_matmul(x, tc_transpose(x, 0, 1))))), "f32 "
                                                                                          "[3]");
    CHECK_STR(facts(tc_einsum("...ij,...jk", TC_TENSORS(a, b))), "f32 [2, 5, 3, 6]");
    CHECK_STR(facts(tc_einsum("i,j,k->ijk", TC_TENSORS(v, v, v))), "f32 [4, 4, 4]");
    CHECK_STR(facts(tc_einsum("abc->", TC_TENSORS(b))), "f32 []");
    tc_tensor im = tc_input(ctx, "im", TC_F32, 2, 4, 9, 8);
    tc_tensor w = tc_input(ctx, "w", TC_F32, 6, 2, 3, 2), one = tc_input(ctx, "o", TC_F32, 4, 9, 8);
    CHECK_STR(facts(tc_conv2d(im, w, TC_NONE, &(tc_conv){.groups = 2})), "f32 [2, 6, 7, 7]");
    CHECK_STR(facts(tc_conv2d(one, w, TC_NONE, &(tc_conv){.groups = 2, .padding = {1, 2}})),
              "f32 [6, 9, 11]");
    CHECK_STR(facts(tc_conv2d(im, w, tc_input(ctx, "b", TC_F32, 6),
                              &(tc_conv){.stride = {2, 3}, .dilation = {2, 1}, .groups = 2})),
              "f32 [2, 6, 3, 3]");
    CHECK_STR(facts(tc_max_pool2d(im, &(tc_pool){.kernel = {2, 2}})), "f32 [2, 4, 4, 4]");
    CHECK_STR(facts(tc_max_pool2d(im, &(tc_pool){.kernel = {2, 3}, .ceil_mode = true})),
              "f32 [2, 4, 5, 3]");
    CHECK_STR(facts(tc_max_pool2d(one, &(tc_pool){.kernel = {3, 3}, .padding = {1, 1}})),
              "f32 [4, 3, 3]");
    tc_ctx_free(ctx);
}

/* Python's slice(start, stop, step).indices(n), element by element. */
static int python_slice(int64_t n, int64_t start, int64_t stop, int64_t step, int64_t *first)
{
    int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n;
    start = start < 0 ? start + n : start;
    start = start < lo ? lo : start > hi ? hi : start;
    if (stop == TC_END && step < 0) {
        stop = -1;
    } else {
        stop = stop == TC_END ? hi : stop < 0 ? stop + n : stop;
        stop = stop < lo ? lo : stop > hi ? hi : stop;
    }
    int count = 0;
    *first = start;
    for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
        count++;
    }
    return count;
}

TEST(slices_are_those_of_python)
{
    begin();
    for (int64_t n = 0; n < 5; n++) {
        tc_tensor x = tc_input(ctx, "x", TC_F32, n);
        for (int64_t start = -7; start < 8; start++) {
            for (int64_t stop = -7; stop < 9; stop++) {
                for (int64_t step = -3; step < 4; step++) {
                    int64_t to = stop == 8 ? TC_END : stop, first;
                    tc_tensor y = tc_slice(x, 0, start, to, step);
                    if (!step) {
                        CHECK_EQ_INT(tc_status_of(y), TC_ERR_ARGUMENT);
                        continue;
                    }
                    int count = python_slice(n, start, to, step, &first);
                    CHECK_EQ_INT(tc_count(y), count);
                    const tci_node *s = node_of(y);
                    if (count && s->op == TCI_OP_SLICE) {
                        CHECK_EQ_INT(s->attr[0], first);
                        CHECK(count == 1 || s->attr[1] == step);
                    }
                }
            }
        }
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, 6);
    CHECK_EQ_INT(tc_count(tc_slice(x, 0, TC_END, TC_END, -1)), 6);
    CHECK_EQ_INT(tc_count(tc_slice(x, 0, TC_END, INT64_MIN, INT64_MIN)), 1);
    CHECK_EQ_INT(tc_count(tc_slice(x, 0, INT64_MIN, TC_END, INT64_MAX)), 1);
    tc_ctx_free(ctx);
}

TEST(arange_counts)
{
    begin();
    CHECK_EQ_INT(tc_count(tc_arange(ctx, 0, 10, 3, TC_I64)), 4);
    CHECK_EQ_INT(tc_count(tc_arange(ctx, 10, 0, -3, TC_I32)), 4);
    CHECK_EQ_INT(tc_count(tc_arange(ctx, 0, 1, 0.25, TC_F32)), 4);
    CHECK_EQ_INT(tc_count(tc_arange(ctx, 5, 5, 1, TC_F32)), 0);
    CHECK_EQ_INT(tc_count(tc_arange(ctx, 5, 0, 1, TC_F32)), 0);
    CHECK_EQ_INT(tc_status_of(tc_arange(ctx, INT64_MIN, INT64_MAX, 1, TC_I64)), TC_ERR_LIMIT);
    float got[4];
    CHECK_EQ_INT(tc_read(tc_arange(ctx, 1, 2, 0.3, TC_F32), got, 4), TC_OK);
    CHECK(got[0] == 1 && got[3] == (float)(1 + 3 * 0.3));
    tc_ctx_free(ctx);
}

/* Unsigned numbers beyond the signed ones are what they are. */
TEST(arange_of_u64)
{
    const uint64_t half = (uint64_t)1 << 63;
    uint64_t got[10];
    begin();
    tc_tensor y = tc_arange(ctx, half - 5, half + 5, 1, TC_U64);
    REQUIRE(tc_count(y) == 10 && tc_read(y, got, 10) == TC_OK);
    CHECK(got[0] == half - 5 && got[5] == half && got[9] == half + 4);
    y = tc_arange(ctx, UINT64_MAX, UINT64_MAX - 9, -3, TC_U64);
    REQUIRE(tc_count(y) == 3 && tc_read(y, got, 3) == TC_OK);
    CHECK(got[0] == UINT64_MAX && got[2] == UINT64_MAX - 6);
    CHECK_EQ_INT(tc_count(tc_arange(ctx, 0, UINT64_MAX, half, TC_U64)), 2);
    CHECK_EQ_INT(tc_count(tc_arange(ctx, UINT64_MAX, 0, 1, TC_U64)), 0);
    CHECK_EQ_INT(tc_status_of(tc_arange(ctx, 0, UINT64_MAX, 1, TC_U64)), TC_ERR_LIMIT);
    CHECK_EQ_INT(tc_status_of(tc_arange(ctx, -5, UINT64_MAX, INT64_MAX, TC_U64)), TC_ERR_LIMIT);
    tc_ctx_free(ctx);
}

/* ---- text and verifier ---- */

static tci_scratch *scratch_open(void)
{
    tci_scratch *s = calloc(1, sizeof(*s));
    tci_scratch_init(s);
    return s;
}

static void scratch_close(tci_scratch *s)
{
    tci_scratch_free(s);
    free(s);
}

TEST(text_of_a_graph)
{
    begin();
    tc_tensor x = tc_input(ctx, "x\"\n", TC_F32, 3, 4);
    tc_tensor y = tc_sum(tc_mul(tc_permute(x, 1, 0), 2), TC_AXES(0), 0);
    tci_scratch *s = scratch_open();
    tci_node *roots[2] = {node_of(y), node_of(x)};
    REQUIRE(!setjmp(s->escape));
    tci_str text = {.s = s};
    tci_graph_print(&text, s, roots, 2);
    CHECK_STR(tci_str_text(&text), "%0 = input f32 [3, 4] \"x\\042\\012\"\n"
                                   "%1 = permute f32 [4, 3] (%0) {1, 0}\n"
                                   "%2 = const f32 [] = 2\n"
                                   "%3 = reshape f32 [1, 1] (%2)\n"
                                   "%4 = expand f32 [4, 3] (%3)\n"
                                   "%5 = mul f32 [4, 3] (%1, %4)\n"
                                   "%6 = sum f32 [3] (%5) {0}\n"
                                   "out %6, %0\n");
    tci_str dot = {.s = s};
    tci_graph_print_dot(&dot, s, roots, 2);
    CHECK_HAS(tci_str_text(&dot), "n5 -> n6;");
    scratch_close(s);
    tc_ctx_free(ctx);
}

TEST(verifier_finds_breaches)
{
    begin();
    tci_scratch *s = scratch_open();
    tci_node *n = node_of(tc_sum(tc_input(ctx, "x", TC_F32, 3, 4), TC_AXES(1), 0));
    volatile int caught = 0;
    for (volatile int i = 0; i < 3; i++) {
        if (setjmp(s->escape)) {
            caught++;
            CHECK_EQ_INT(s->why, TC_ERR_INTERNAL);
            CHECK_HAS(s->message, "sum");
        } else {
            n->shape[0] = i == 1 ? 5 : 3;
            n->attr[0] = i == 2 ? 2 : 1;
            tci_graph_verify(s, &n, 1);
        }
    }
    CHECK_EQ_INT(caught, 2);
    scratch_close(s);
    tc_ctx_free(ctx);
}

/* ---- rewrites ---- */

/* Copies what `root` needs into the scratch graph g: which node stands for each. */
static tci_table copy_graph(tci_scratch *s, tci_graph *g, tci_node *root)
{
    tci_node_list list = tci_graph_sort(s, &root, 1);
    tci_table copies = tci_table_in(s, sizeof(tci_node *));
    tci_graph_init(g, s, NULL);
    for (int i = 0; i < list.n; i++) {
        tci_node *n = list.items[i], *copy;
        tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in);
        for (int k = 0; k < n->n_in; k++) {
            in[k] = tci_table_get(&copies, n->in[k]);
        }
        copy = n->op == TCI_OP_CONST ? tci_graph_const(g, (tc_dtype)n->dtype, n->value)
                                     : tci_graph_node(g, n->op, (tc_dtype)n->dtype, n->rank,
                                                      n->shape, n->n_in, in, n->n_attr, n->attr);
        copy->value = n->value;
        copy->name = n->name;
        tci_table_put(&copies, n, copy);
    }
    return copies;
}

/* Rewrites t and says its op and how many nodes it takes: "mul 4". */
static const char *rewritten(tc_tensor t)
{
    static char text[64];
    tci_scratch *s = scratch_open();
    tci_graph g;
    if (setjmp(s->escape)) {
        snprintf(text, sizeof(text), "%.60s", s->message);
    } else {
        const tci_table copies = copy_graph(s, &g, node_of(t));
        tci_node *root = tci_table_get(&copies, node_of(t));
        tci_graph_verify(s, &root, 1);
        tci_node **now = tci_rewrite(s, &g, &root, 1);
        tci_graph_verify(s, now, 1);
        snprintf(text, sizeof(text), "%s %d", tci_op_name(now[0]->op), tci_graph_sort(s, now, 1).n);
    }
    scratch_close(s);
    return text;
}

TEST(identities)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), h = tc_input(ctx, "h", TC_BF16, 3);
    tc_tensor i = tc_input(ctx, "i", TC_I32, 3), b = tc_input(ctx, "b", TC_BOOL, 3, 4);
    CHECK_STR(rewritten(tc_mul(x, 1)), "input 1");
    CHECK_STR(rewritten(tc_mul(1, x)), "input 1");
    CHECK_STR(rewritten(tc_mul(x, -1)), "neg 2");
    CHECK_STR(rewritten(tc_div(x, 1)), "input 1");
    CHECK_STR(rewritten(tc_div(x, 2)), "mul 5");
    CHECK_STR(rewritten(tc_sub(x, 0)), "input 1");
    CHECK_STR(rewritten(tc_add(x, 0)), "add 5"); /* -0 + 0 is 0 */
    CHECK_STR(rewritten(tc_add(i, 0)), "input 1");
    CHECK_STR(rewritten(tc_neg(tc_neg(x))), "input 1");
    CHECK_STR(rewritten(tc_where(b, x, x)), "input 1");
    CHECK_STR(rewritten(tc_cast(tc_cast(h, TC_F32), TC_BF16)), "input 1");
    CHECK_STR(rewritten(tc_cast(tc_cast(x, TC_BF16), TC_F32)), "cast 3");
    CHECK_STR(rewritten(tc_cast(tc_cast(i, TC_F64), TC_I64)), "cast 2");
    CHECK_STR(rewritten(tc_cast(tc_cast(i, TC_F32), TC_I64)), "cast 3");
    CHECK_STR(rewritten(tc_transpose(tc_transpose(x, 0, 1), 1, 0)), "input 1");
    CHECK_STR(rewritten(tc_reshape(tc_reshape(x, 12), 3, 4)), "input 1");
    CHECK_STR(rewritten(tc_flip(tc_flip(x, 0), 0)), "input 1");
    CHECK_STR(rewritten(tc_slice(tc_slice(x, 1, 1, 4, 1), 1, 1, 3, 1)), "slice 2");
    CHECK_STR(rewritten(tc_permute(tc_full(ctx, 0.1, TC_F32, 3, 4), 1, 0)), "expand 3");
    CHECK_STR(rewritten(tc_slice(tc_matmul(x, tc_transpose(x, 0, 1)), 0, 1, 3, 1)), "contract 4");
    CHECK_STR(rewritten(tc_pad(tc_pad(x, 0, 1, 2, 0.0), 1, 1, 1, 0.0)), "pad 3");
    tc_tensor cut = tc_slice(tc_pad(x, 0, 2, 0, 0.0), 0, 1, 4, 1);
    CHECK_STR(rewritten(tc_pad(cut, 0, 1, 0, 0.0)), "pad 5");
    CHECK_STR(rewritten(tc_sqrt(tc_add(tc_full(ctx, 2, TC_F32), 2))), "const 1");
    CHECK_STR(rewritten(tc_exp(tc_full(ctx, 0.1, TC_F32))), "exp 2"); /* a literal is not known */
    CHECK_STR(rewritten(tc_flip(tc_cumsum(tc_flip(x, 1), 1), 1)), "scan 2");
    CHECK_STR(rewritten(tc_flip(tc_cumsum(tc_flip(x, 0), 1), 0)), "slice 4");
    CHECK_STR(rewritten(tc_flip(tc_cumsum(x, 1), 1)), "slice 3");
    tc_tensor one = tc_input(ctx, "one", TC_F32, 3, 1, 4);
    CHECK_STR(rewritten(tc_max(one, TC_AXES(1), false)), "reshape 2");
    CHECK_STR(rewritten(tc_max(one, TC_AXES(1, 2), false)), "max 2");
    CHECK_STR(rewritten(tc_sum(one, TC_AXES(1), true)), "add 5"); /* it begins at 0, as above */
    tc_ctx_free(ctx);
}

TEST(rewriting_a_long_chain_is_quick)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 16), v = tc_input(ctx, "v", TC_F32, 16);
    double took_s[2];
    for (int k = 0; k < 2; k++) {
        tc_tensor y = x;
        for (int i = 0; i < (k ? 20000 : 2000); i++) {
            y = i % 3 == 0 ? tc_add(y, v) : i % 3 == 1 ? tc_mul(y, 0.5) : tc_neg(y);
        }
        double from_s = tct_now_s();
        CHECK_HAS(rewritten(y), k ? "2000" : "200");
        took_s[k] = tct_now_s() - from_s;
    }
    CHECK_MSG(took_s[1] < 1.0, "20,000 nodes took %g s, 2,000 took %g s", took_s[1], took_s[0]);
    tc_ctx_free(ctx);
}

/* A random expression of shape [2, 3], over two inputs, that rewrites have something to do with. */
static tc_tensor random_expression(tc_tensor a, tc_tensor b, int depth)
{
    static const double numbers[] = {0, 1, -1, 2, 0.5, 0.3};
    if (depth == 0) {
        return tct_random_below(2) ? a : b;
    }
    tc_tensor x = random_expression(a, b, depth - 1);
    double k = numbers[tct_random_below(6)];
    switch (tct_random_below(19)) {
    case 0: return tc_mul(x, k);
    case 1: return tc_div(x, k);
    case 2: return tc_add(k, x);
    case 3: return tc_sub(x, k);
    case 4: return tc_neg(x);
    case 5: return tc_add(x, random_expression(a, b, depth - 1));
    case 6: return tc_cast(tc_cast(x, TC_BF16), TC_F32);
    case 7: return tc_reshape(tc_transpose(tc_reshape(x, 3, 2), 0, 1), 2, 3);
    case 8: return tc_flip(x, tct_random_below(2));
    case 9: return tc_slice(tc_slice(tc_pad(x, 1, 1, 2, k), 1, 5, TC_END, -1), 1, 1, 4, 1);
    case 10: return tc_where(tc_lt(x, k), x, tc_full(ctx, k, TC_F32, 2, 3));
    case 11: return tc_expand(tc_sum(x, TC_AXES(0), 1), 2, 3);
    case 12: return tc_pow(x, numbers[1 + tct_random_below(3)]);
    case 13: return tc_maximum(x, tc_permute(tc_full(ctx, k, TC_F32, 3, 2), 1, 0));
    case 14: return tc_abs(tc_abs(x));
    case 15: /* two pads, and a part of them */
        x = tc_pad(tc_pad(x, 0, 1, 2, k), 0, tct_random_below(2), 1, k);
        return tc_slice(x, 0, 2, 4, 1);
    case 16: /* parts of contractions */
        x = tc_matmul(tc_cat(TC_TENSORS(x, b), 0), tc_pad(tc_reshape(x, 3, 2), 1, 2, 1, k));
        return tc_slice(tc_slice(x, 0, 1, 3, 1), 1, 1, 4, 1);
    case 17:
        x = tc_conv2d(tc_reshape(x, 1, 2, 3), tc_full(ctx, k, TC_F32, 1, 1, 3, 3), TC_NONE,
                      &(tc_conv){.padding = {2, 2}});
        return tc_reshape(tc_slice(tc_slice(x, 1, 1, 3, 1), 2, 1, 4, 1), 2, 3);
    default: return tc_cat(TC_TENSORS(tc_slice(x, 0, 1, 2, 1), tc_slice(x, 0, 0, 1, 1)), 0);
    }
}

TEST(rewrites_keep_every_bit)
{
    static const float special[] = {0, -0.0f, 1, -1, 3.5f, INFINITY, -INFINITY, NAN, 1e-40f, 3e38f};
    begin();
    for (int round = 0; round < 400; round++) {
        float memory[2][6], want[6], got[6];
        for (int i = 0; i < 12; i++) {
            memory[i / 6][i % 6] = special[tct_random_below(10)];
        }
        tc_scope_begin(ctx);
        tc_tensor a = tc_input(ctx, "a", TC_F32, 2, 3), b = tc_input(ctx, "b", TC_F32, 2, 3);
        tc_tensor y = random_expression(a, b, 1 + tct_random_below(6));
        tci_scratch *s = scratch_open();
        tci_graph g;
        if (setjmp(s->escape)) {
            CHECK_STR(s->message, "");
        } else {
            tci_node *keep[3] = {node_of(y), node_of(a), node_of(b)};
            tci_node *all = node_of(tc_add(y, tc_mul(a, b))); /* both inputs are in the copy */
            const tci_table copies = copy_graph(s, &g, all);
            tci_node *root = tci_table_get(&copies, keep[0]);
            tci_node *const inputs[2] = {tci_table_get(&copies, keep[1]),
                                         tci_table_get(&copies, keep[2])};
            const void *const in[2] = {memory[0], memory[1]};
            tci_node **now = tci_rewrite(s, &g, &root, 1);
            void *out = want;
            CHECK_EQ_INT(tci_reference_eval(inputs, in, 2, &root, &out, 1, false), TC_OK);
            out = got;
            CHECK_EQ_INT(tci_reference_eval(inputs, in, 2, now, &out, 1, false), TC_OK);
            for (int i = 0; i < 6; i++) {
                bool same = same_bits(TC_F32, &want[i], &got[i], 1);
                CHECK_MSG(same, "round %d element %d: %a, expected %a", round, i, got[i], want[i]);
            }
        }
        scratch_close(s);
        tc_scope_end(ctx);
    }
    tc_ctx_free(ctx);
}

/* ---- values of what this room composes ---- */

static void check_values(tc_tensor t, int n, const double *want, double tolerance)
{
    double got[64];
    CHECK_STR(tc_error(t), "");
    CHECK_EQ_INT(tc_read(tc_cast(t, TC_F64), got, n), TC_OK);
    for (int i = 0; i < n; i++) {
        CHECK_CLOSE(got[i], want[i], tolerance);
    }
}
#define VALUES(t, tolerance, ...)                                                                  \
    check_values((t), (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double)),               \
                 (const double[]){__VA_ARGS__}, (tolerance))

TEST(einsum_values)
{
    const float d[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, r[3] = {1, 10, 100};
    begin();
    tc_tensor x = tc_copy_in(ctx, d, TC_F32, 3, 3), v = tc_copy_in(ctx, r, TC_F32, 3);
    VALUES(tc_einsum("ii", TC_TENSORS(x)), 0, 15);
    VALUES(tc_einsum("ii->i", TC_TENSORS(x)), 0, 1, 5, 9);
    VALUES(tc_einsum("ij->ji", TC_TENSORS(x)), 0, 1, 4, 7, 2, 5, 8, 3, 6, 9);
    VALUES(tc_einsum("ij,j", TC_TENSORS(x, v)), 0, 321, 654, 987);
    VALUES(tc_einsum("ij,k->k", TC_TENSORS(x, v)), 0, 45, 450, 4500);
    VALUES(tc_einsum("i,i,i->", TC_TENSORS(v, v, v)), 0, 1001001);
    VALUES(tc_einsum("ii,jj->", TC_TENSORS(x, x)), 0, 225);
    VALUES(tc_einsum("ij,ij->i", TC_TENSORS(tc_unsqueeze(v, 0), x)), 0, 321, 654, 987);
    VALUES(tc_einsum("...,...->...", TC_TENSORS(v, x)), 0, 1, 20, 300, 4, 50, 600, 7, 80, 900);
    VALUES(tc_matmul(v, x), 0, 741, 852, 963);
    tc_tensor wide = tc_cast(tc_full(ctx, 256, TC_F32, 3), TC_BF16);
    tc_tensor ones = tc_cast(tc_full(ctx, 1, TC_F32, 3), TC_BF16);
    VALUES(tc_einsum("i,j,k->", TC_TENSORS(wide, ones, ones)), 0, 6912);
    tc_ctx_free(ctx);
}

TEST(composite_values)
{
    const float a[6] = {1, 2, 3, -1, 0, 1}, inf[3] = {-INFINITY, -INFINITY, -INFINITY};
    const int64_t classes[2] = {2, 0};
    begin();
    tc_tensor x = tc_copy_in(ctx, a, TC_F32, 2, 3), t = tc_copy_in(ctx, classes, TC_I64, 2);
    const double p[3] = {0.09003057317038046, 0.24472847105479764, 0.6652409557748218};
    VALUES(tc_softmax(x, 1), 1e-6, p[0], p[1], p[2], p[0], p[1], p[2]);
    VALUES(tc_log_softmax(x, -1), 1e-6, log(p[0]), log(p[1]), log(p[2]), log(p[0]), log(p[1]),
           log(p[2]));
    VALUES(tc_softmax(tc_copy_in(ctx, inf, TC_F32, 3), 0), 0, NAN, NAN, NAN);
    VALUES(tc_cross_entropy(x, t), 1e-6, -(log(p[2]) + log(p[0])) / 2);
    VALUES(tc_mean(x, TC_AXES(0), 0), 1e-6, 0, 1, 2);
    VALUES(tc_mean(tc_full(ctx, 1, TC_F32, 0), TC_ALL, 0), 0, NAN);
    const double s = sqrt(1.5);
    VALUES(tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 0), 1e-6, -s, 0, s, -s, 0, s);
    tc_tensor w = tc_arange(ctx, 1, 4, 1, TC_F32);
    VALUES(tc_layer_norm(x, TC_AXES(-1), w, w, 0), 1e-6, 1 - s, 2, 3 + 3 * s, 1 - s, 2, 3 + 3 * s);
    VALUES(tc_pow(tc_arange(ctx, -2, 3, 1, TC_I32), 2), 0, 4, 1, 0, 1, 4);
    tc_ctx_free(ctx);
}

TEST(conv_and_pool_values)
{
    float image[16], kernel[4] = {1, 0, 0, -1}, bias = 0.5f;
    begin();
    for (int i = 0; i < 16; i++) {
        image[i] = (float)i;
    }
    tc_tensor x = tc_copy_in(ctx, image, TC_F32, 1, 1, 4, 4);
    tc_tensor w = tc_copy_in(ctx, kernel, TC_F32, 1, 1, 2, 2),
              b = tc_copy_in(ctx, &bias, TC_F32, 1);
    VALUES(tc_conv2d(x, w, b, NULL), 0, -4.5, -4.5, -4.5, -4.5, -4.5, -4.5, -4.5, -4.5, -4.5);
    VALUES(tc_conv2d(x, w, TC_NONE, &(tc_conv){.stride = {3, 3}, .padding = {1, 1}}), 0, 0, -3, -12,
           -5);
    VALUES(tc_conv2d(x, w, TC_NONE, &(tc_conv){.dilation = {3, 3}}), 0, -15);
    VALUES(tc_max_pool2d(tc_neg(x), &(tc_pool){.kernel = {2, 2}, .padding = {1, 1}}), 0, 0, -1, -3,
           -4, -5, -7, -12, -13, -15);
    VALUES(tc_max_pool2d(x, &(tc_pool){.kernel = {3, 3}, .ceil_mode = true}), 0, 10, 11, 14, 15);
    tc_ctx_free(ctx);
}

/* Windows along an axis as torch counts them; 0: it refuses. */
static int64_t pool_count(int64_t n, const tc_pool *o)
{
    int64_t span = o->dilation[0] * (o->kernel[0] - 1) + 1, stride = o->stride[0];
    int64_t room = n + 2 * o->padding[0] - span + (o->ceil_mode ? stride - 1 : 0);
    int64_t count = room < 0 ? 0 : room / stride + 1;
    return o->ceil_mode && (count - 1) * stride >= n + o->padding[0] ? count - 1 : count;
}

/* The greatest of the elements of the line that window i sees. */
static float pool_value(const float *line, int64_t n, const tc_pool *o, int64_t i)
{
    float most = -INFINITY;
    for (int64_t k = 0; k < o->kernel[0]; k++) {
        int64_t at = i * o->stride[0] - o->padding[0] + k * o->dilation[0];
        most = at >= 0 && at < n && line[at] > most ? line[at] : most;
    }
    return most;
}

static bool pool_check(const float *line, int64_t n, const tc_pool *o)
{
    float got[16];
    tc_tensor y = tc_max_pool2d(tc_copy_in(ctx, line, TC_F32, 1, n, 1), o);
    int64_t count = pool_count(n, o);
    if (count < 1) {
        CHECK_EQ_INT(tc_status_of(y), TC_ERR_SHAPE);
        return false;
    }
    CHECK_EQ_INT(tc_size(y, 1), count);
    CHECK_EQ_INT(tc_read(y, got, count), TC_OK);
    for (int64_t i = 0; i < count; i++) {
        CHECK_MSG(got[i] == pool_value(line, n, o, i), "%d elements, window %d of %d by %d, %d: %g",
                  (int)n, (int)i, (int)o->kernel[0], (int)o->stride[0], (int)o->ceil_mode,
                  (double)got[i]);
    }
    return true;
}

/* A window may hang over the edge, also one that is larger than all of the image. */
TEST(windows_of_a_pool)
{
    static const float line[5] = {3, -1, -4, -1, -5};
    int n_made = 0, n_refused = 0;
    begin();
    for (int bits = 0; bits < 5 * 4 * 3 * 2 * 2 * 2; bits++) {
        int64_t n = 1 + bits % 5, kernel = 1 + bits / 5 % 4, stride = 1 + bits / 20 % 3;
        int64_t dilation = 1 + bits / 60 % 2, padding = bits / 120 % 2;
        tc_pool o = {.kernel = {kernel, 1},
                     .stride = {stride, 1},
                     .padding = {padding, 0},
                     .dilation = {dilation, 1},
                     .ceil_mode = bits / 240};
        if (padding <= kernel / 2) {
            bool made = pool_check(line, n, &o);
            n_made += made;
            n_refused += !made;
        }
    }
    CHECK_MSG(n_made > 200 && n_refused > 30, "%d and %d", n_made, n_refused);
    tc_ctx_free(ctx);
}

/* Without symbolic sizes they are numbers, by the same calls and with the same refusals. */
TEST(sizes_are_computed)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 7, 4);
    CHECK_EQ_INT(tc_dim_add(tc_size(x, 0), 2), 9);
    CHECK_EQ_INT(tc_dim_sub(2, 7), -5);
    CHECK_EQ_INT(tc_dim_mul(-3, tc_count(x)), -84);
    CHECK_EQ_INT(tc_dim_div(tc_size(x, 0), 2), 3);
    CHECK_EQ_INT(tc_dim_div(-7, 2), -4);
    CHECK_EQ_INT(tc_dim_min(3, -4), -4);
    CHECK_EQ_INT(tc_dim_max(3, -4), 3);
    tc_tensor half = tc_slice(x, 0, tc_dim_div(tc_size(x, 0), 2), TC_END, 1);
    CHECK_STR(facts(half), "f32 [4, 4]");
    const char *quotient = "is a quotient by what is, or may be, 0 or negative";
    tc_tensor t = tc_full(ctx, 0, TC_F32, tc_dim_add(1, tc_dim_div(4, 0)));
    CHECK_EQ_INT(tc_status_of(t), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(t), quotient);
    t = tc_slice(x, 0, tc_dim_div(4, -1), TC_END, 1);
    CHECK_EQ_INT(tc_status_of(t), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(t), quotient);
    t = tc_mul(x, tc_dim_div(4, 0));
    CHECK_EQ_INT(tc_status_of(t), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(t), quotient);
    int64_t most = (int64_t)1 << 60;
    const int64_t large[] = {tc_dim_add(most, 1), tc_dim_sub(-most, most), tc_dim_mul(most, most),
                             tc_dim_mul(most / 2, -4), tc_dim_max(TC_END, 1)};
    for (int i = 0; i < TCI_COUNT(large); i++) {
        t = tc_pad(x, 0, large[i], 0, 0);
        CHECK_EQ_INT(tc_status_of(t), TC_ERR_LIMIT);
        CHECK_HAS(tc_error(t), "too large an expression");
    }
    tc_ctx_free(ctx);
}

/* ---- memory ---- */

typedef struct failing {
    int64_t left; /* calls until one fails; negative: none does */
    int64_t live_bytes;
} failing;

static void *failing_resize(void *user, void *p, size_t old_bytes, size_t new_bytes)
{
    failing *f = user;
    if (new_bytes > old_bytes && f->left >= 0 && f->left-- == 0) {
        return NULL;
    }
    f->live_bytes += (int64_t)new_bytes - (int64_t)old_bytes;
    if (!new_bytes) {
        free(p);
        return NULL;
    }
    return realloc(p, new_bytes);
}

static tc_tensor build_much(tc_ctx *c)
{
    tc_tensor x = tc_input(c, "x", TC_F32, 8, 8), y = x;
    for (int i = 0; i < 40; i++) {
        y = tc_softmax(tc_add(tc_matmul(x, y), i), -1);
        y = tc_cat(TC_TENSORS(tc_slice(y, 0, 0, 4, 1), tc_slice(y, 0, 4, 8, 1)), 0);
    }
    return tc_mean(y, TC_ALL, 0);
}

TEST(every_failing_allocation_is_an_error)
{
    bool done = false;
    for (int64_t n = 0; !done; n++) {
        failing f = {-1, 0};
        tc_options o = {.backend = "interp", .allocator = {failing_resize, &f}};
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        f.left = n;
        tc_tensor y = build_much(ctx);
        done = f.left >= 0;
        CHECK(tc_status_of(y) == (done ? TC_OK : TC_ERR_MEMORY) || (!done && !y.ctx));
        f.left = -1;
        CHECK_EQ_INT(tc_status_of(build_much(ctx)), TC_OK);
        tc_ctx_free(ctx);
        CHECK_EQ_INT(f.live_bytes, 0);
        REQUIRE(n < 1000);
    }
}

TEST(ranks_without_limit)
{
    int64_t list[101], sizes[100];
    begin();
    list[0] = TC_F32;
    for (int i = 0; i < 100; i++) {
        list[1 + i] = sizes[i] = i < 3 ? 2 : 1;
    }
    tc_tensor x = tc_input_at(ctx, "x", 101, list, TC_HERE), y = tc_add(tc_flip(x, 99), x);
    CHECK_EQ_INT(tc_rank(y), 100);
    CHECK_EQ_INT(tc_rank(tc_sum(y, TC_AXES(0, 99, 50), 0)), 97);
    CHECK_EQ_INT(tc_rank(tc_matmul(y, y)), 100); /* matrices of 1 x 1 */
    tc_ctx_free(ctx);
}

TEST_MAIN
