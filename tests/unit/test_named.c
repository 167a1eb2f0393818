/* Nodes made by the name of their op (src/graph/named.h). Equal nodes are one, so what is made by
 * name is the very node that the public call makes; and each mistake has its text. */
#include "inside.h"

#include "tc_test.h"

static tc_ctx *ctx;
static tci_graph *graph;

static void begin(void)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    graph = &tci_ctx_of(ctx)->graph;
}

#define WORDS(...)                                                                                 \
    (int)(sizeof((tci_dim[]){__VA_ARGS__}) / sizeof(tci_dim)), (const tci_dim[]) { __VA_ARGS__ }
#define ATTRS(...) (const tci_named_attr[]){__VA_ARGS__, {NULL, 0, NULL}}
#define NO_ATTRS (const tci_named_attr[]){{NULL, 0, NULL}}

/* Of up to four operands, with attributes up to one without a name. */
static tci_node *make(const char *op, const tc_tensor *xs, int n, const tci_named_attr *attrs)
{
    tci_node *in[4] = {NULL};
    int n_attrs = 0;
    for (int i = 0; i < n; i++) {
        in[i] = tci_handle_node(xs[i]);
    }
    while (attrs[n_attrs].name) {
        n_attrs++;
    }
    return tci_build_named(graph, op, n, in, n_attrs, attrs);
}

TEST(every_elementwise_row)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), y = tc_input(ctx, "y", TC_F32, 4);
#define CALL_1(name, x, y) tc_##name(x)
#define CALL_2(name, x, y) tc_##name(x, y)
#define ROW(id, name, arity, ...)                                                                  \
    {                                                                                              \
        const tc_tensor both[2] = {x, y};                                                          \
        CHECK_MSG(make(#name, both, arity, NO_ATTRS) == tci_handle_node(CALL_##arity(name, x, y)), \
                  "%s is another node", #name);                                                    \
    }
    TCI_EW_OPS(ROW)
#undef ROW
    tc_ctx_free(ctx);
}

TEST(every_reduction)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4);
#define OVER_SAME(name) tc_##name(x, TC_AXES(1), true)
#define OVER_SUM OVER_SAME
#define OVER_BOOL OVER_SAME
#define OVER_FLOAT OVER_SAME
#define OVER_INDEX(name) tc_##name(x, 1, true)
#define ROW(id, name, rule, ...)                                                                   \
    CHECK_MSG(make(#name, &x, 1, ATTRS({"axes", WORDS(-1)}, {"keepdims", WORDS(1)})) ==            \
                  tci_handle_node(OVER_##rule(name)),                                              \
              "%s is another node", #name);
    TCI_REDUCE_OPS(ROW)
#undef ROW
    tc_ctx_free(ctx);
}

TEST(movement)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), y = tc_input(ctx, "y", TC_F32, 3, 2);
    tc_tensor one = tc_input(ctx, "one", TC_F32, 1, 4), fill = tc_full(ctx, 7.5, TC_F32);
    CHECK(make("reshape", &x, 1, ATTRS({"shape", WORDS(2, -1)})) ==
          tci_handle_node(tc_reshape(x, 2, 6)));
    CHECK(make("expand", &one, 1, ATTRS({"shape", WORDS(5, 4)})) ==
          tci_handle_node(tc_expand(one, 5, 4)));
    CHECK(make("permute", &x, 1, ATTRS({"order", WORDS(1, 0)})) ==
          tci_handle_node(tc_permute(x, 1, 0)));
    CHECK(make("slice", &x, 1, ATTRS({"stop", WORDS(3, 4)}, {"step", WORDS(2, 3)})) ==
          tci_handle_node(tc_slice(tc_slice(x, 0, 0, 3, 2), 1, 0, 4, 3)));
    const tc_tensor padded[2] = {x, fill}, both[2] = {x, y};
    tci_node *pad = make("pad", padded, 2, ATTRS({"before", WORDS(0, 2)}));
    CHECK(pad == tci_handle_node(tc_pad(x, 1, 2, 0, fill)));
    CHECK(make("cat", both, 2, ATTRS({"axis", WORDS(-1)})) ==
          tci_handle_node(tc_cat(TC_TENSORS(x, y), 1)));
    tci_node *w = make("window", &x, 1, ATTRS({"axis", WORDS(-1)}, {"kernel", WORDS(2)}));
    CHECK(w && w->rank == 3 && w->n_attr == 4 && w->attr[0] == 1 && w->attr[3] == 1);
    CHECK(make("cast", &x, 1, ATTRS({"dtype", WORDS(TC_I32)})) ==
          tci_handle_node(tc_cast(x, TC_I32)));
    CHECK(make("bitcast", &x, 1, ATTRS({"dtype", WORDS(TC_U32)})) ==
          tci_handle_node(tc_bitcast(x, TC_U32)));
    CHECK(make("scan", &x, 1, ATTRS({"axis", WORDS(0)})) == tci_handle_node(tc_cumsum(x, 0)));
    const tc_tensor key[2] = {tc_input(ctx, "key", TC_U64), tc_full(ctx, 0, TC_U64)};
    CHECK(make("random", key, 2, ATTRS({"shape", WORDS(5, 4)}, {"dtype", WORDS(TC_U32)})) ==
          tci_handle_node(tc_random_bits(ctx, key[0], TC_U32, 5, 4)));
    CHECK(!make("random", key, 2, ATTRS({"shape", WORDS(5, 4)}, {"dtype", WORDS(TC_F32)})));
    const tc_tensor put[3] = {x, tc_input(ctx, "i", TC_I64, 3, 2), y};
    CHECK(make("scatter", put, 3, ATTRS({"axis", WORDS(-1)}, {"mode", WORDS(TCI_MODE_MAX)})) ==
          tci_handle_node(tc_scatter_max(x, 1, put[1], y)));
    CHECK(!make("scatter", put, 3, ATTRS({"axis", WORDS(-1)}, {"mode", WORDS(TCI_MODE_COUNT)})));
    CHECK_HAS(graph->message, "expected a mode of stores");
    tc_ctx_free(ctx);
}

TEST(contractions_and_composites)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), y = tc_input(ctx, "y", TC_F32, 4, 5);
    tc_tensor eps = tc_full(ctx, 1e-3, TC_F64), weight = tc_input(ctx, "w", TC_F32, 4);
    tc_tensor target = tc_input(ctx, "t", TC_I64, 3);
    const tc_tensor xy[2] = {x, y}, norm[3] = {x, eps, weight}, loss[2] = {x, target};
    CHECK(make("contract", xy, 2, ATTRS({"labels", WORDS(7, 2, 2, 9, 7, 9)})) ==
          tci_handle_node(tc_matmul(x, y)));
    CHECK(make("softmax", &x, 1, ATTRS({"axis", WORDS(1)})) == tci_handle_node(tc_softmax(x, 1)));
    CHECK(make("log_softmax", &x, 1, ATTRS({"axis", WORDS(0)})) ==
          tci_handle_node(tc_log_softmax(x, 0)));
    CHECK(make("mean", &x, 1, ATTRS({"axes", WORDS(0, 1)})) ==
          tci_handle_node(tc_mean(x, TC_AXES(0, 1), false)));
    tci_node *n = make("layer_norm", norm, 3, ATTRS({"axes", WORDS(1)}, {"has_weight", WORDS(1)}));
    CHECK(n && n->n_in == 3 && n->n_attr == 4 && n->attr[2] == 1 && n->attr[3] == 0);
    CHECK(make("cross_entropy", loss, 2, NO_ATTRS) ==
          tci_handle_node(tc_cross_entropy(x, target)));
    tc_ctx_free(ctx);
}

/* What is said when `op` over the first n of x, x, x is given these. */
#define SAYS(text, op, n, attrs)                                                                   \
    do {                                                                                           \
        const tc_tensor three_[3] = {x, x, x};                                                     \
        CHECK_MSG(!make(op, three_, n, attrs), "%s is made", op);                                  \
        CHECK_MSG(!strcmp(graph->message, text), "it says: %s", graph->message);                   \
        CHECK(graph->error == TC_ERR_ARGUMENT);                                                    \
    } while (0)

TEST(mistakes)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4);
    SAYS("there is no op 'sofmax'", "sofmax", 1, NO_ATTRS);
    SAYS("add is given 1 inputs: expected 2", "add", 1, NO_ATTRS);
    SAYS("cat is given 0 inputs: expected 1 or more", "cat", 0, ATTRS({"axis", WORDS(0)}));
    SAYS("softmax needs the attribute 'axis'", "softmax", 1, NO_ATTRS);
    SAYS("softmax has no attribute 'dim'", "softmax", 1, ATTRS({"dim", WORDS(0)}));
    SAYS("layer_norm has no attribute 'n_axes'", "layer_norm", 2, ATTRS({"n_axes", WORDS(1)}));
    SAYS("softmax is given the attribute 'axis' twice", "softmax", 1,
         ATTRS({"axis", WORDS(0)}, {"axis", WORDS(0)}));
    SAYS("'axis' of softmax is given 2 times: expected 1", "softmax", 1,
         ATTRS({"axis", WORDS(0, 1)}));
    SAYS("'order' of permute is given 1 times: expected 2", "permute", 1,
         ATTRS({"order", WORDS(0)}));
    SAYS("'stride' of window is given 2 times: expected 1", "window", 1,
         ATTRS({"axis", WORDS(0)}, {"kernel", WORDS(2)}, {"stride", WORDS(1, 1)}));
    SAYS("'keepdims' of sum is 2: expected 0 or 1", "sum", 1,
         ATTRS({"axes", WORDS(0)}, {"keepdims", WORDS(2)}));
    SAYS("'dtype' of cast is 99: expected a dtype", "cast", 1, ATTRS({"dtype", WORDS(99)}));
    SAYS("'axis' of softmax is 4294967296: expected an axis", "softmax", 1,
         ATTRS({"axis", WORDS((int64_t)1 << 32)}));
    SAYS("input is a leaf: nothing makes one by its name", "input", 0, NO_ATTRS);
    CHECK(!make("softmax", &x, 1, ATTRS({"axis", WORDS(2)})) && graph->error == TC_ERR_AXIS);
    CHECK(!make("window", &x, 1, ATTRS({"axis", WORDS(2)}, {"kernel", WORDS(2)})) &&
          graph->error == TC_ERR_AXIS);
    const tc_tensor both[2] = {x, x};
    CHECK(!make("contract", both, 2, ATTRS({"labels", WORDS(1, 1, 2, 3)})));
    CHECK_HAS(graph->message, "none twice");
    tc_ctx_free(ctx);
}

TEST_MAIN
