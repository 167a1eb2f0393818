/* What is fused, counted through the public calls: kernels, bytes moved, workspace, and the reasons
 * that tc_explain gives for what was not. These are the interpreter's, which are made without a
 * compiler; a machine's speed decides only where a pattern says so (plan/fusion_patterns.c). */
#include "tc.h"

#include "tc_test.h"

static tc_ctx *ctx;
static tc_program_info info;
static char why[1 << 18];

static void open_ctx(void)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "interp";
    o.no_disk_cache = true;
    o.verify = true;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* Compiles, leaves counts in `info` and the explanation in `why`. */
static void plan(tc_tensors inputs, tc_tensors outputs)
{
    tc_program *f;
    tc_status status = tc_compile_fn(inputs, outputs, NULL, &f);
    CHECK_MSG(!status, "%s", tc_error(ctx));
    memset(&info, 0, sizeof(info));
    memset(why, 0, sizeof(why));
    if (status) {
        return;
    }
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    FILE *text = tmpfile();
    if (text) {
        CHECK_EQ_INT(tc_explain_as(f, text, &(tc_explain_options){.all = true}), TC_OK);
        rewind(text);
        why[fread(why, 1, sizeof(why) - 1, text)] = 0;
        fclose(text);
    }
    tc_program_free(f);
}

#define PLAN(ins, ...) plan(TC_TENSORS ins, TC_TENSORS(__VA_ARGS__))
#define KERNELS(n) CHECK_MSG(info.n_kernels == (n) && info.n_steps == (n),                         \
                             "%d kernels, %d launches, expected %d: %s", info.n_kernels,           \
                             info.n_steps, (n), why)

/* Up to where a compiler takes more time for each operation; test_unrolled.c has the rest. */
TEST(a_chain_is_one_kernel)
{
    open_ctx();
    for (int length = 1; length <= 150; length = length * 2 + 1) {
        tc_tensor x = tc_input(ctx, "x", TC_F32, 1000), y = x;
        for (int i = 0; i < length; i++) {
            y = i % 3 == 0 ? tc_sin(y) : i % 3 == 1 ? tc_add(y, x) : tc_relu(y);
        }
        PLAN((x), y);
        KERNELS(1);
        CHECK_EQ_INT(info.bytes_read, 4000);
        CHECK_EQ_INT(info.bytes_written, 4000);
        CHECK_EQ_INT(info.arena_bytes, 0);
    }
    tc_ctx_free(ctx);
}

TEST(normalizations_are_one_kernel)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 100), w = tc_input(ctx, "w", TC_F32, 100),
              b = tc_input(ctx, "b", TC_F32, 100);
    tc_tensor outs[] = {tc_softmax(x, -1), tc_softmax(tc_mul(x, 3), 1), tc_log_softmax(x, 1),
                        tc_relu(tc_softmax(x, 0)), tc_sum(tc_square(x), TC_AXES(1), false)};
    for (int i = 0; i < 5; i++) {
        PLAN((x), outs[i]);
        KERNELS(1);
        CHECK_EQ_INT(info.arena_bytes, 0);
    }
    PLAN((x, w, b), tc_layer_norm(x, TC_AXES(-1), w, b, 1e-5));
    KERNELS(1);
    CHECK_EQ_INT(info.arena_bytes, 0);
    tc_ctx_free(ctx);
}

TEST(a_loss_is_its_rows_and_their_mean)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 100), t = tc_input(ctx, "t", TC_I64, 64);
    PLAN((x, t), tc_cross_entropy(x, t));
    KERNELS(2);
    CHECK_HAS(why, "not fused, and why");
    tc_ctx_free(ctx);
}

TEST(several_outputs_and_siblings_share_a_kernel)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 100), y = tc_input(ctx, "y", TC_F32, 64, 100);
    tc_tensor e = tc_exp(x);
    PLAN((x), e, tc_add(e, 1), tc_mul(e, e));
    KERNELS(1);
    CHECK_EQ_INT(info.bytes_read, 25600);
    PLAN((x, y), tc_sin(x), tc_cos(y)); /* nothing in common but their loops */
    KERNELS(1);
    PLAN((x), tc_sum(x, TC_AXES(1), false), tc_max(tc_neg(x), TC_AXES(1), false));
    KERNELS(1);
    CHECK_EQ_INT(info.bytes_read, 25600);
    tc_ctx_free(ctx);
}

TEST(movement_reads_its_source_once_and_copies_nothing)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 40, 60), y = tc_input(ctx, "y", TC_F32, 60, 40);
    PLAN((x, y), tc_add(tc_permute(x, 1, 0), y));
    KERNELS(1);
    CHECK_EQ_INT(info.bytes_read, 2 * 9600);
    CHECK_EQ_INT(info.arena_bytes, 0);
    PLAN((x), tc_relu(tc_slice(x, 0, 10, 30, 2)));
    KERNELS(1);
    CHECK_MSG(info.bytes_read <= 9600, "%lld bytes", (long long)info.bytes_read);
    CHECK_EQ_INT(info.bytes_written, 2400);
    CHECK_EQ_INT(info.arena_bytes, 0);
    PLAN((x), tc_sum(tc_flip(x, 1), TC_AXES(1), false));
    KERNELS(1);
    CHECK_EQ_INT(info.bytes_read, 9600);
    CHECK_EQ_INT(info.arena_bytes, 0);
    PLAN((x), tc_exp(tc_pad(tc_reshape(tc_flip(x, 0), 60, 40), 1, 2, -3, 0)));
    KERNELS(1);
    CHECK_EQ_INT(info.arena_bytes, 0);
    tc_ctx_free(ctx);
}

TEST(an_outer_product_is_summed_without_being_stored)
{
    open_ctx();
    tc_tensor a = tc_input(ctx, "a", TC_F32, 300, 1), b = tc_input(ctx, "b", TC_F32, 1, 200);
    PLAN((a, b), tc_sum(tc_mul(a, b), TC_AXES(1), false));
    KERNELS(1);
    CHECK_EQ_INT(info.arena_bytes, 0);
    CHECK_EQ_INT(info.bytes_read, 2000);
    tc_ctx_free(ctx);
}

/* Of weights [out, in] the gradient is a product in their layout, and the step is its
 * epilogue; so is a product that is turned. Where it is read both ways it is made once. */
TEST(steps_of_a_layer_are_made_of_its_gradient)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 40, 96), t = tc_input(ctx, "t", TC_F32, 40, 64);
    tc_tensor w = tc_input(ctx, "w", TC_F32, 64, 96), turned = tc_transpose(w, 0, 1), g;
    tc_tensor loss = tc_sum(tc_mul(tc_matmul(x, turned), t), TC_ALL, false);
    REQUIRE(!tc_grad(loss, &w, 1, &g));
    PLAN((x, t, w), tc_sub(w, tc_mul(g, 0.1)));
    KERNELS(1);
    CHECK_EQ_INT(info.bytes_read, 4 * (40 * 96 + 40 * 64 + 64 * 96));
    tc_tensor y = tc_matmul(x, turned);
    PLAN((x, t, w), tc_exp(tc_transpose(y, 0, 1)));
    KERNELS(1); /* a factor is packed in another order */
    PLAN((x, t, w), tc_exp(tc_transpose(y, 0, 1)), tc_neg(y));
    KERNELS(3);
    CHECK_MSG(strstr(why, "5.25e+05 flops"), "%s", why);
    tc_ctx_free(ctx);
}

TEST(a_layer_is_one_kernel)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 32, 64), w = tc_input(ctx, "w", TC_F32, 64, 48),
              b = tc_input(ctx, "b", TC_F32, 48);
    PLAN((x, w, b), tc_relu(tc_add(tc_matmul(x, w), b)));
    KERNELS(1);
    CHECK_EQ_INT(info.arena_bytes, 0);
    tc_ctx_free(ctx);
}

/* Rows of two inputs, whose groups are apart until a third one reads both. */
TEST(groups_over_one_space_are_joined)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 500, 200), y = tc_input(ctx, "y", TC_F32, 500, 300);
    tc_tensor a = tc_sum(x, TC_AXES(1), true), b = tc_max(y, TC_AXES(1), true);
    PLAN((x, y), tc_add(a, b));
    KERNELS(1);
    CHECK_EQ_INT(info.arena_bytes, 0);
    PLAN((x, y), tc_add(a, b), tc_mul(a, 2), b);
    KERNELS(1);
    tc_tensor u = tc_softmax(x, -1), v = tc_layer_norm(y, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
    PLAN((x, y), tc_sum(u, TC_AXES(1), false),
         tc_add(tc_sum(tc_square(u), TC_AXES(1), true), tc_sum(tc_abs(v), TC_AXES(1), true)));
    KERNELS(1);
    tc_tensor w = tc_input(ctx, "w", TC_F32, 40, 200), small = tc_input(ctx, "s", TC_F32, 50, 200);
    PLAN((small, w), tc_sum(small, TC_AXES(1), false), tc_sum(w, TC_AXES(1), false));
    KERNELS(2); /* other spaces, and not worth several threads side by side */
    tc_tensor z = tc_input(ctx, "z", TC_F32, 400, 200);
    PLAN((x, z), tc_sum(x, TC_AXES(1), false), tc_sum(z, TC_AXES(1), false));
    KERNELS(1);
    CHECK_HAS(why, "2 kernels, reads 2, writes 2");
    tc_ctx_free(ctx);
}

/* y against g, summed: gradients of it are y's. */
static tc_tensor loss_of(tc_tensor y, tc_tensor g)
{
    return tc_sum(tc_mul(tc_cast(y, TC_F32), tc_cast(g, TC_F32)), TC_ALL, false);
}

/* One kernel of rows, which are read once, and one of all column sums; between them is a
 * number or two of each row. */
static void check_row_gradients(const char *name, tc_tensor loss, tc_tensor x, tc_tensor g,
                                tc_tensor w, tc_tensor b, int n, int kernels)
{
    enum { ROWS = 400, COLUMNS = 300 };
    tc_tensor in[4] = {x, w, b, g}, out[3];
    REQUIRE(tc_grad(loss, in, n, out) == TC_OK);
    plan((tc_tensors){in, 4}, (tc_tensors){out, n});
    CHECK_MSG(info.n_kernels == kernels, "%s: %d kernels, not %d: %s", name, info.n_kernels,
              kernels, why);
    CHECK_MSG(info.arena_bytes <= 2 * 4 * ROWS, "%s: %lld bytes of workspace", name,
              (long long)info.arena_bytes);
    int64_t numbers = 8 * (ROWS + COLUMNS), array = 4 * ROWS * COLUMNS;
    CHECK_MSG(info.bytes_read <= kernels * (2 * array + numbers), "%s: reads %lld bytes", name,
              (long long)info.bytes_read);
    CHECK_MSG(info.bytes_written <= array + 2 * numbers, "%s: writes %lld bytes", name,
              (long long)info.bytes_written);
}

TEST(gradients_of_rows_are_two_kernels)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 400, 300), g = tc_input(ctx, "g", TC_F32, 400, 300);
    tc_tensor w = tc_input(ctx, "w", TC_F32, 300), b = tc_input(ctx, "b", TC_F32, 300);
    tc_tensor norm = tc_layer_norm(x, TC_AXES(-1), w, b, 1e-5);
    check_row_gradients("layer norm", loss_of(norm, g), x, g, w, b, 3, 2);
    tc_tensor scale = tc_rsqrt(tc_add(tc_mean(tc_square(x), TC_AXES(-1), true), 1e-6));
    check_row_gradients("rms norm", loss_of(tc_mul(tc_mul(x, scale), w), g), x, g, w, b, 2, 2);
    check_row_gradients("softmax", loss_of(tc_softmax(x, -1), g), x, g, w, b, 1, 1);
    check_row_gradients("log softmax", loss_of(tc_log_softmax(x, -1), g), x, g, w, b, 1, 1);
    tc_ctx_free(ctx);
}

/* The loss and its gradient: rows, and the mean of one number of each. */
TEST(a_loss_and_its_gradient_are_two_kernels)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 400, 300), id = tc_input(ctx, "id", TC_I64, 400), dx;
    tc_tensor loss = tc_cross_entropy(x, id);
    REQUIRE(tc_grad(loss, &x, 1, &dx) == TC_OK);
    PLAN((x, id), loss, dx);
    KERNELS(2);
    CHECK(info.arena_bytes <= 2 * 4 * 400);
    tc_ctx_free(ctx);
}

/* Scores, weights and their gradients are in no memory: two kernels compute them, one for rows of
 * queries and one for rows of keys. */
TEST(gradients_of_attention_keep_no_scores)
{
    open_ctx();
    static const char *const names[4] = {"q", "k", "v", "g"};
    tc_tensor in[4], out[3];
    for (int i = 0; i < 4; i++) {
        in[i] = tc_input(ctx, names[i], TC_F32, 3, 128, 32);
    }
    tc_tensor scores = tc_mul(tc_matmul(in[0], tc_transpose(in[1], -1, -2)), 0.125);
    tc_tensor y = tc_matmul(tc_softmax(scores, -1), in[2]);
    REQUIRE(tc_grad(loss_of(y, in[3]), in, 3, out) == TC_OK);
    plan((tc_tensors){in, 4}, (tc_tensors){out, 3});
    KERNELS(2);
    CHECK_MSG(info.arena_bytes <= 4 * (2 * 3 * 128 * 32 + 3 * 3 * 128), "%lld bytes of workspace",
              (long long)info.arena_bytes);
    tc_ctx_free(ctx);
}

/* The values between the products of attention are not stored. */
TEST(attention_is_one_kernel)
{
    open_ctx();
    tc_tensor q = tc_input(ctx, "q", TC_F32, 4, 64, 32), k = tc_input(ctx, "k", TC_F32, 4, 32, 80),
              v = tc_input(ctx, "v", TC_F32, 4, 80, 48);
    tc_tensor scores = tc_matmul(q, k), y = tc_matmul(tc_softmax(scores, -1), v);
    PLAN((q, k, v), y);
    KERNELS(1);
    CHECK_EQ_INT(info.arena_bytes, 0);
    CHECK_EQ_INT(info.bytes_read, 4 * 4 * (64 * 32 + 32 * 80 + 80 * 48));
    tc_tensor i = tc_unsqueeze(tc_arange(ctx, 0, 64, 1, TC_I64), 1);
    tc_tensor j = tc_arange(ctx, 0, 80, 1, TC_I64);
    tc_tensor seen = tc_where(tc_le(j, i), scores, -1e30);
    PLAN((q, k, v), tc_matmul(tc_softmax(seen, -1), v)); /* the mask is in none either */
    KERNELS(1);
    CHECK_EQ_INT(info.arena_bytes, 0);
    PLAN((q, k, v), y, scores); /* the scores are asked for: they are stored anyway */
    KERNELS(3);
    PLAN((q, k), tc_softmax(scores, -1));
    KERNELS(1);
    PLAN((q, k), tc_softmax(scores, -1), tc_sum(scores, TC_ALL, false)); /* a second reader */
    CHECK(info.n_kernels > 1);
    tc_tensor few = tc_input(ctx, "few", TC_F32, 4, 32, 7);
    PLAN((q, few), tc_softmax(tc_matmul(q, few), -1));
    KERNELS(2);
    CHECK_HAS(why, "max is not computed with contract: a kernel holds whole rows only of a known");
    tc_ctx_free(ctx);
}

/* sin, cos, a product and a sum each have a kernel; what only moves has none. */
TEST(ops_are_kept_apart_where_that_is_asked_for)
{
    float in[12], fused, apart;
    open_ctx();
    for (int i = 0; i < 12; i++) {
        in[i] = (float)i / 7;
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4);
    tc_tensor y = tc_mul(tc_cos(tc_sin(tc_transpose(x, 0, 1))), 3);
    tc_tensor sum = tc_sum(tc_flip(y, 0), TC_ALL, false);
    tc_options o = {.fusion = -1};
    tc_program *together, *each;
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(sum), NULL, &together) == TC_OK);
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(sum), &o, &each) == TC_OK);
    tc_program_get_info(together, &info);
    CHECK_EQ_INT(info.n_kernels, 1);
    tc_program_get_info(each, &info);
    CHECK_EQ_INT(info.n_kernels, 4);
    CHECK_EQ_INT(tc_run(together, TC_BUFS(TC_BUF(in, 12)), TC_BUFS(TC_BUF(&fused, 1))), TC_OK);
    CHECK_EQ_INT(tc_run(each, TC_BUFS(TC_BUF(in, 12)), TC_BUFS(TC_BUF(&apart, 1))), TC_OK);
    CHECK_MSG(fabsf(fused - apart) < 1e-4f, "%g, %g", (double)fused, (double)apart);
    FILE *text = tmpfile();
    memset(why, 0, sizeof(why));
    if (text) {
        tc_explain_as(each, text, &(tc_explain_options){.all = true});
        rewind(text);
        why[fread(why, 1, sizeof(why) - 1, text)] = 0;
        fclose(text);
        CHECK_MSG(strstr(why, "options.fusion keeps ops apart"), "%s", why);
    }
    tc_program_free(together);
    tc_program_free(each);
    tc_ctx_free(ctx);
}

/* Whatever takes more than one kernel says why. */
TEST(every_refusal_has_a_reason)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 64), w = tc_input(ctx, "w", TC_F32, 64, 64);
    tc_tensor m = tc_matmul(x, w), p = tc_transpose(tc_softmax(x, 1), 0, 1);
    tc_tensor outs[] = {tc_softmax(m, 1),
                        tc_matmul(tc_softmax(x, 1), w),
                        tc_matmul(m, w),
                        tc_add(tc_cumsum(x, 0), tc_sum(x, TC_ALL, false)),
                        tc_cumsum(tc_cumsum(x, 0), 1),
                        tc_softmax(p, 1),
                        tc_sum(tc_sum(tc_exp(x), TC_AXES(1), true), TC_ALL, false)};
    int several = 0;
    for (int i = 0; i < (int)(sizeof(outs) / sizeof(outs[0])); i++) {
        PLAN((x, w), outs[i]);
        bool told = strstr(why, "not fused, and why:\n") != NULL;
        CHECK_MSG(info.n_kernels == 1 || told, "graph %d: %d kernels and no reason: %s", i,
                  info.n_kernels, why);
        several += info.n_kernels > 1;
    }
    CHECK(several >= 5);
    tc_ctx_free(ctx);
}

/* Whether a value could join the kernel of another one without a circle is looked up among all
 * kernels that wait for it; where these are many the reason says that it was not. */
TEST(readers_beyond_the_walk_are_told_as_such)
{
    enum { FEW = 20, MANY = 600 };
    static tc_tensor outs[MANY + 1];
    const char *far = "so many kernels depend on one of them that a cycle is not ruled out";
    for (int n = FEW; n <= MANY; n += MANY - FEW) {
        open_ctx();
        tc_tensor x = tc_input(ctx, "x", TC_F32, 4, 4), w = tc_input(ctx, "w", TC_F32, 4, 4);
        tc_tensor y = tc_matmul(x, w), other = tc_sum(tc_exp(x), TC_ALL, false);
        for (int i = 0; i < n; i++) {
            outs[i] = tc_matmul(y, tc_mul(w, 1.5 + i));
        }
        outs[n] = tc_add(y, other);
        plan(TC_TENSORS(x, w), TC_TENSORS_N(outs, n + 1));
        CHECK_MSG((strstr(why, far) != NULL) == (n == MANY), "%d readers: %d kernels", n,
                  info.n_kernels);
        tc_ctx_free(ctx);
    }
}

TEST(siblings_over_other_spaces_say_so)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 64);
    tc_tensor outs[] = {tc_sum(x, TC_AXES(1), false), tc_max(x, TC_AXES(1), false), tc_exp(x)};
    PLAN((x), outs[0], outs[1], outs[2]);
    CHECK_EQ_INT(info.n_kernels, 2);
    CHECK_HAS(why, "exp is not computed with");
    CHECK_HAS(why, "the iteration spaces differ");
    tc_ctx_free(ctx);
}

TEST(variance_and_mean_are_one_kernel_and_one_read)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 100), var, mean;
    for (int axis = 0; axis < 2; axis++) {
        tc_var_mean(x, TC_AXES(axis), 1, false, &var, &mean);
        PLAN((x), var, mean);
        KERNELS(1);
        CHECK_EQ_INT(info.bytes_read, 4 * 64 * 100);
        CHECK_EQ_INT(info.bytes_written, 4 * 2 * (axis ? 64 : 100));
        CHECK_HAS(why, "2 stages");
    }
    tc_ctx_free(ctx);
}

/* Loads of one element for each row do not say along which axis vectors run: the rows are long. */
TEST(scales_of_channels_leave_vectors_along_the_image)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 16, 64, 112, 112);
    tc_tensor g = tc_input(ctx, "g", TC_F32, 64, 1, 1), b = tc_input(ctx, "b", TC_F32, 64, 1, 1);
    tc_tensor d = tc_sub(x, tc_mean(x, TC_AXES(0, 2, 3), true));
    tc_tensor var = tc_mean(tc_mul(d, d), TC_AXES(0, 2, 3), true);
    tc_tensor y = tc_mul(d, tc_rsqrt(tc_add(var, 1e-5)));
    PLAN((x, g, b), tc_add(tc_mul(y, g), b));
    CHECK_HAS(why, "class LANES(64)");
    CHECK(!strstr(why, "class CHAIN"));
    tc_ctx_free(ctx);
}

/* Nor do loads that every row shares: sums over the rows of a gradient run along its columns. */
TEST(numbers_of_rows_leave_vectors_along_the_columns)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 512, 256), mean = tc_input(ctx, "m", TC_F32, 512, 1);
    tc_tensor scale = tc_input(ctx, "s", TC_F32, 512, 1), g = tc_input(ctx, "g", TC_F32, 512, 256);
    PLAN((x, mean, scale, g), tc_sum(tc_mul(g, tc_mul(tc_sub(x, mean), scale)), TC_AXES(0), false));
    KERNELS(1);
    CHECK_HAS(why, "class CHAIN");
    tc_ctx_free(ctx);
}

/* Zeros go around an image of halves as it is given, not around what is widened of it. */
TEST(an_image_of_halves_is_padded_in_halves)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 2, 16, 30, 30);
    tc_tensor w = tc_input(ctx, "w", TC_BF16, 16, 16, 3, 3);
    PLAN((x, w), tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}}));
    KERNELS(2);
    CHECK_EQ_INT(info.arena_bytes, 2 * (2 * 16 * 32 * 32));
    tc_ctx_free(ctx);
}

/* Each element of a row with all others: lanes are sums of their own, unless the row is long. */
TEST(pairs_of_a_row_have_lanes_of_their_own)
{
    open_ctx();
    for (int n = 64; n <= 1024; n *= 16) {
        tc_tensor x = tc_input(ctx, "x", TC_F32, 100, n);
        tc_tensor less = tc_lt(tc_unsqueeze(x, 1), tc_unsqueeze(x, 2));
        PLAN((x), tc_sum(tc_cast(less, TC_I32), TC_AXES(2), false));
        CHECK_MSG(!strstr(why, "class LANES(64)") == (n == 64), "%d: %s", n, why);
    }
    tc_ctx_free(ctx);
}

/* Sums of rows that an index names, and of the parts of pairs, run along the columns. */
TEST(sums_of_chosen_rows_and_of_pairs_run_along_the_columns)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 8, 90, 40), i = tc_input(ctx, "i", TC_I64, 30);
    PLAN((x, i), tc_sum(tc_index_select(x, 1, i), TC_AXES(1), false));
    CHECK_HAS(why, "class CHAIN");
    tc_tensor z = tc_input(ctx, "z", TC_F32, 32, 40, 2);
    PLAN((z), tc_sum(tc_squeeze(tc_slice(z, -1, 0, 1, 1), -1), TC_AXES(0), false));
    CHECK_HAS(why, "class CHAIN");
    tc_ctx_free(ctx);
}

/* The gradient of a pool adds four windows that no vector reads in order: a lane each would leave
 * 60 of 64 idle. */
TEST(gradients_of_pools_have_a_lane_for_each_element)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4, 64, 55, 55), grad[2];
    const tc_pool pool = {.kernel = {3, 3}, .stride = {2, 2}};
    tc_tensor y[2] = {tc_max_pool2d(x, &pool), tc_avg_pool2d(x, &pool)};
    for (int i = 0; i < 2; i++) {
        REQUIRE(tc_grad(tc_sum(tc_square(y[i]), TC_ALL, false), &x, 1, &grad[i]) == TC_OK);
        PLAN((x), grad[i]);
        CHECK(!strstr(why, "class LANES(64)"));
        CHECK_HAS(why, "class CHAIN");
    }
    tc_ctx_free(ctx);
}

/* Reads of each lane at its own index are expensive: one axis of an image is done first. */
TEST(images_are_resized_along_one_axis_after_the_other)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1, 3, 50, 60);
    tc_interpolation to = {.size = {70, 80}, .mode = "bilinear"};
    PLAN((x), tc_interpolate(x, &to));
    KERNELS(2);
    CHECK_EQ_INT(info.arena_bytes, 4 * 3 * 50 * 80);
    tc_ctx_free(ctx);
}

/* A weight [columns, products] read by few rows is summed in its layout; more rows take tiles. */
TEST(a_product_of_few_rows_streams_the_weight)
{
    open_ctx();
    tc_tensor w = tc_input(ctx, "w", TC_F32, 512, 600), b = tc_input(ctx, "b", TC_F32, 512);
    for (int rows = 1; rows <= 16; rows = rows == 1 ? 7 : rows + 9) {
        tc_tensor x = tc_input(ctx, "x", TC_F32, rows, 600);
        PLAN((x, w, b), tc_add(tc_matmul(x, tc_transpose(w, 0, 1)), b));
        CHECK_MSG(!strstr(why, "class LANES(64)") == (rows == 16), "%d rows: %s", rows, why);
        CHECK(rows > 1 || info.n_kernels == 1);
    }
    tc_ctx_free(ctx);
}

/* So is one of any other dtype, also below the cast that makes sums of bytes. */
TEST(a_product_of_few_rows_streams_a_weight_of_any_dtype)
{
    const struct {
        tc_dtype stored, sum;
    } cases[] = {
        {TC_F64, TC_F64}, {TC_BF16, TC_BF16}, {TC_I64, TC_I64}, {TC_I32, TC_I32},
        {TC_I8, TC_I32},  {TC_U8, TC_I32},    {TC_F32, TC_F64},
    };
    open_ctx();
    for (int i = 0; i < (int)(sizeof(cases) / sizeof(cases[0])); i++) {
        tc_tensor w = tc_input(ctx, "w", cases[i].stored, 512, 600);
        tc_tensor x = tc_input(ctx, "x", cases[i].stored, 1, 600);
        tc_tensor a = tc_cast(x, cases[i].sum), b = tc_cast(tc_transpose(w, 0, 1), cases[i].sum);
        for (int late = 0; late < 2; late++) {
            b = late ? tc_transpose(tc_cast(w, cases[i].sum), 0, 1) : b;
            PLAN((x, w), tc_matmul(a, b));
            KERNELS(1);
            CHECK_MSG(strstr(why, "class LANES(64)"), "case %d, %d: %s", i, late, why);
        }
    }
    tc_ctx_free(ctx);
}

/* What reads two groups goes where most bytes are not read again, whichever is newer. */
TEST(a_reader_joins_where_most_is_saved)
{
    open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 512, 1000), z = tc_input(ctx, "z", TC_F32, 1000, 300);
    tc_tensor y = tc_exp(tc_sub(x, tc_max(x, TC_AXES(1), true)));
    tc_tensor few = tc_sum(z, TC_AXES(1), false), r = tc_mul(y, few);
    PLAN((x, z), y, few, r);
    KERNELS(2);
    CHECK_EQ_INT(info.bytes_read, 4 * (512 * 1000 + 1000 * 300 + 1000));
    tc_ctx_free(ctx);
}

/* Whether r may join a value is not searched further where hundreds of kernels read that value:
 * the text says that, and not that another kernel is between the two. */
TEST(a_search_for_a_cycle_that_was_cut_short_is_called_so)
{
    enum { MANY = 600 };
    static const char text[] = "mul is not computed with exp: so many kernels depend on one";
    static tc_tensor outs[MANY + 2];
    open_ctx();
    for (int n = 100; n <= MANY; n += MANY - 100) {
        tc_tensor x = tc_input(ctx, "x", TC_F32, 16, 16), z = tc_input(ctx, "z", TC_F32, 16, 16);
        tc_tensor w = tc_input(ctx, "w", TC_F32, n, 16, 16), e = tc_exp(x);
        for (int i = 0; i < n; i++) {
            outs[i] = tc_matmul(e, tc_squeeze(tc_slice(w, 0, i, i + 1, 1), 0));
        }
        outs[n] = e;
        outs[n + 1] = tc_mul(tc_cumsum(z, 0), e);
        plan(TC_TENSORS(x, w, z), TC_TENSORS_N(outs, n + 2));
        CHECK_MSG(!!strstr(why, text) == (n == MANY), "%d readers: %s", n, why);
        CHECK(!strstr(why, "mul is not computed with exp: another kernel"));
        CHECK_EQ_INT(info.n_kernels, n == MANY ? 4 : 3);
    }
    tc_ctx_free(ctx);
}

TEST_MAIN
