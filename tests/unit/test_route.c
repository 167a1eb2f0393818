/* tests/unit/test_route.c - descriptors of contractions, and which route each takes. */
#include "inside.h"

#include "tc_test.h"

static tci_node *input(tci_graph *g, tc_dtype t, int rank, const tci_dim *shape)
{
    tci_node *x = tci_graph_node(g, TCI_OP_INPUT, t, rank, shape, 0, NULL, 0, NULL);
    x->value.i = g->n_nodes; /* told apart by it */
    return x;
}

/* ---- descriptors ---- */

/* The image [2, 8, 10, 10] in bf16, as f32, in windows of 3 x 3 for filters [16, 8, 3, 3]. */
static tci_node *convolution(tci_graph *g, tci_node **image, tci_node **filter)
{
    const tci_dim of_image[4] = {2, 8, 10, 10}, of_filter[4] = {16, 8, 3, 3};
    const tci_dim windows[6] = {2, 8, 8, 8, 3, 3};
    const int64_t attr[8] = {2, 3, 1, 1, 3, 3, 1, 1};
    const int x[6] = {0, 1, 2, 3, 4, 5}, w[4] = {6, 1, 4, 5}, y[4] = {0, 6, 2, 3};
    *image = input(g, TC_BF16, 4, of_image);
    *filter = input(g, TC_F32, 4, of_filter);
    tci_node *wide = tci_build_cast(g, *image, TC_F32);
    wide = tci_graph_node(g, TCI_OP_WINDOW, TC_F32, 6, windows, 1, &wide, 8, attr);
    return tci_build_contract(g, wide, x, *filter, w, 4, y);
}

TEST(a_convolution_is_described)
{
    tci_scratch s;
    tci_graph g;
    tci_node *image, *filter;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
        return;
    }
    tci_graph_init(&g, &s, NULL);
    const tci_node *n = convolution(&g, &image, &filter);
    const tci_contraction *c = tci_contraction_of(&s, n);
    CHECK(c->is_known && c->n_axes == 7 && c->columns == 0);
    CHECK(c->size[TCI_AXES_BATCH] == 1 && c->size[TCI_AXES_ALONE] == 1);
    CHECK(c->size[TCI_AXES_M] == 2 * 8 * 8 && c->size[TCI_AXES_N] == 16);
    CHECK(c->size[TCI_AXES_K] == 8 * 3 * 3 && c->products == 128.0 * 16 * 72);
    CHECK(c->in[0].source == image && c->in[0].dtype == TC_BF16 && c->in[0].bytes == 3200);
    CHECK(c->in[0].window && c->in[0].window->op == TCI_OP_WINDOW && !c->in[1].window);
    CHECK(c->in[1].source == filter && c->in[1].reads == 128 && c->in[0].reads == 16);
    /* the result's axes are images, filters, rows, columns; then channels and two of windows */
    static const int at[7][3] = {{0, -1, 0}, {-1, 0, 1}, {2, -1, 2}, {3, -1, 3},
                                 {1, 1, -1}, {4, 2, -1}, {5, 3, -1}};
    for (int i = 0; i < 7; i++) {
        for (int k = 0; k < 3; k++) {
            CHECK_EQ_INT(c->axes[i].at[k], at[i][k]);
        }
    }
    tci_scratch_free(&s);
}

TEST(a_walk_below_movement_stops_where_it_is_told)
{
    tci_scratch s;
    tci_graph g;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
        return;
    }
    tci_graph_init(&g, &s, NULL);
    const tci_dim shape[2] = {3, 5}, padded[2] = {4, 5};
    const int64_t turn[2] = {1, 0}, none[2] = {0, 0};
    tci_node *x = input(&g, TC_F16, 2, shape), *wide = tci_build_cast(&g, x, TC_F32);
    tci_node *fill[2] = {wide, tci_graph_const(&g, TC_F32, (tci_value){.u = 0})};
    tci_node *pad = tci_graph_node(&g, TCI_OP_PAD, TC_F32, 2, padded, 2, fill, 2, none);
    const tci_dim turned[2] = {5, 4};
    tci_node *top = tci_graph_node(&g, TCI_OP_PERMUTE, TC_F32, 2, turned, 1, &pad, 2, turn);
    tci_table stored = tci_table_in(&s, sizeof(bool));
    CHECK(tci_below(top, TCI_THROUGH_CASTS, NULL) == top);
    CHECK(tci_below(top, TCI_THROUGH_MOVEMENT, NULL) == pad);
    CHECK(tci_below(top, TCI_THROUGH_MOVEMENT | TCI_THROUGH_ZEROS, NULL) == wide);
    CHECK(tci_below(top, TCI_THROUGH_ALL | TCI_THROUGH_PADS, NULL) == x);
    CHECK(tci_below(wide, TCI_THROUGH_WIDENING, NULL) == x);
    tci_table_add(&stored, wide);
    CHECK(tci_below(top, TCI_THROUGH_ALL | TCI_THROUGH_PADS, &stored) == wide);
    CHECK_EQ_INT(tci_fastest_axis(top), 0);
    tci_scratch_free(&s);
}

/* ---- routes ---- */

/* What a plan of x[m, k] w[k, n] for that machine says of routes; static memory. */
static const char *routes_of(tc_dtype t, int64_t m, int64_t n, int64_t k, tci_machine machine)
{
    static char text[1000];
    tci_scratch s;
    tci_graph g;
    tci_scratch_init(&s);
    text[0] = 0;
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
        return text;
    }
    tci_graph_init(&g, &s, NULL);
    const tci_dim of_x[2] = {m, k}, of_w[2] = {k, n};
    const int x[2] = {0, 1}, w[2] = {1, 2}, y[2] = {0, 2};
    tci_node *in[2] = {input(&g, t, 2, of_x), input(&g, t, 2, of_w)};
    tci_node *root = tci_build_contract(&g, in[0], x, in[1], w, 2, y);
    tci_plan *p = tci_plan_make(&s, &g, in, 2, NULL, 0, &root, 1, machine);
    tci_plan_verify(&s, p);
    snprintf(text, sizeof(text), "%s", tci_str_text(&p->routes));
    tci_scratch_free(&s);
    return text;
}

static const tci_machine cpu = {.vector_bytes = 64, .thread_scratch = true};
static const tci_machine gpu = {.vector_bytes = 16, .block_threads = 1024, .matrix_units = 132};

TEST(each_contraction_takes_the_route_of_its_kind)
{
    tci_machine fast = gpu;
    fast.is_fast = true;
    CHECK_HAS(routes_of(TC_F32, 256, 256, 256, cpu), "contract_256x256x256: plain, ");
    CHECK_HAS(routes_of(TC_F32, 1, 1, 100000, cpu), ": rows of products, ");
    CHECK_HAS(routes_of(TC_F32, 8, 8, 65536, cpu), ": split-K, ");
    CHECK_HAS(routes_of(TC_BF16, 2048, 2048, 2048, gpu), ": MMA, ");
    CHECK_HAS(routes_of(TC_F32, 2048, 2048, 2048, fast), ": K-major copies, ");
    CHECK_HAS(routes_of(TC_F32, 2048, 2048, 2048, gpu), ": plain, ");
}

TEST(other_routes_that_fit_are_told_with_their_prices)
{
    const char *text = routes_of(TC_F32, 8, 8, 65536, cpu);
    double split = 0, plain = 0;
    const char *next = strstr(text, "; plain ");
    REQUIRE(next && sscanf(text, "contract_8x8x65536: split-K, %lf us", &split) == 1);
    REQUIRE(sscanf(next, "; plain %lf us (other sums)", &plain) == 1);
    CHECK(split > 0 && plain > split);
}

/* As measured on an H100: 157 us whole and 7 in parts, 116 and 23, 7.6 and 4.8; 29.5 and 33.6,
 * 41.8 and 43.3, 63 and 70. */
TEST(few_tiles_of_a_matrix_unit_are_cut_along_k)
{
    static const int parts[][3] = {{64, 64, 65536}, {96, 384, 50176}, {64, 64, 2048}};
    static const int whole[][3] = {{1024, 1024, 8192}, {16, 4096, 14336}, {768, 3072, 8192}};
    for (int i = 0; i < 3; i++) {
        const int *p = parts[i], *w = whole[i];
        CHECK_HAS(routes_of(TC_BF16, p[0], p[1], p[2], gpu), ": split-K MMA, ");
        CHECK_HAS(routes_of(TC_BF16, w[0], w[1], w[2], gpu), ": MMA, ");
    }
}

TEST(a_file_forces_routes_of_the_class_alone)
{
    tci_machine machine = cpu;
    machine.routes = "# a remark\ncontract_8x8x65536: plain\n";
    CHECK_HAS(routes_of(TC_F32, 8, 8, 65536, machine),
              "is not computed as 'plain': no such route of its class fits");
    CHECK_HAS(routes_of(TC_F32, 8, 8, 65536, machine), ": split-K, ");
    machine.routes = "contract_8x8x65536: split-K\ncontract_9x9x9: plain\n";
    CHECK(!strstr(routes_of(TC_F32, 8, 8, 65536, machine), "is not computed"));
}

TEST_MAIN
