/* api/convolution_pooling.c - public 1-D, 2-D and 3-D convolution, pooling and interpolation ops.
 *
 * In: handles, options, the user's call site. Out: a handle to the node, or a poisoned one. */
#include "operand.h"
#include "ops.h"

typedef tci_node *tci_ops_convolve(tci_graph *g, int n, tci_node *x, tci_node *w, tci_node *bias,
                                   const tc_conv *options);

static tc_tensor tci_ops_conv(const char *name, int n, tc_tensor x, tc_tensor weight,
                              tc_tensor bias, const tc_conv *options, tc_site here,
                              tci_ops_convolve *build)
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, weight);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *nw = tci_frame_node(&f, weight, "the weight");
    tci_node *nb = tci_frame_optional(&f, bias, "the bias");
    return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, n, nx, nw, nb, options));
}

#define TCI_OPS_IMAGES(n)                                                                          \
    TC_API tc_tensor tc_conv##n##d_at(tc_tensor x, tc_tensor weight, tc_tensor bias,               \
                                      const tc_conv *options, tc_site here)                        \
    {                                                                                              \
        return tci_ops_conv("tc_conv" #n "d", n, x, weight, bias, options, here, tci_build_conv);  \
    }                                                                                              \
    TC_API tc_tensor tc_conv_transpose##n##d_at(tc_tensor x, tc_tensor weight, tc_tensor bias,     \
                                                const tc_conv *options, tc_site here)              \
    {                                                                                              \
        return tci_ops_conv("tc_conv_transpose" #n "d", n, x, weight, bias, options, here,         \
                            tci_build_conv_transpose);                                             \
    }                                                                                              \
    TCI_OPS_ONE(max_pool##n##d, (tc_tensor x, const tc_pool *options, tc_site here),               \
                tci_build_max_pool, n, node, options)                                              \
    TC_API void tc_max_pool##n##d_with_indices_at(tc_tensor x, const tc_pool *options,             \
                                                  tc_tensor *values, tc_tensor *indices,           \
                                                  tc_site here)                                    \
    {                                                                                              \
        TCI_OPS_STORE(values, "tc_max_pool" #n "d_with_indices",                                   \
                      tci_build_max_pool(g, n, node, options))                                     \
        TCI_OPS_STORE(indices, "tc_max_pool" #n "d_with_indices",                                  \
                      tci_build_max_pool_indices(g, n, node, options))                             \
    }                                                                                              \
    TCI_OPS_ONE(avg_pool##n##d, (tc_tensor x, const tc_pool *options, tc_site here),               \
                tci_build_avg_pool, n, node, options)                                              \
    TCI_OPS_ONE(lp_pool##n##d, (tc_tensor x, double p, const tc_pool *options, tc_site here),      \
                tci_build_lp_pool, n, node, p, options)                                            \
    TCI_OPS_ONE(adaptive_avg_pool##n##d,                                                           \
                (tc_tensor x, int n_sizes, const int64_t *sizes, tc_site here),                    \
                tci_build_adaptive_avg_pool, n, node, n_sizes, tci_dim_list(sizes))                \
    TCI_OPS_ONE(adaptive_max_pool##n##d,                                                           \
                (tc_tensor x, int n_sizes, const int64_t *sizes, tc_site here),                    \
                tci_build_adaptive_max_pool, n, node, n_sizes, tci_dim_list(sizes))                \
    TC_API void tc_adaptive_max_pool##n##d_with_indices_at(tc_tensor x, tc_tensor *values,         \
                                                           tc_tensor *indices, int n_sizes,        \
                                                           const int64_t *sizes, tc_site here)     \
    {                                                                                              \
        TCI_OPS_STORE(values, "tc_adaptive_max_pool" #n "d_with_indices",                          \
                      tci_build_adaptive_max_pool(g, n, node, n_sizes, tci_dim_list(sizes)))       \
        TCI_OPS_STORE(indices, "tc_adaptive_max_pool" #n "d_with_indices",                         \
                      tci_build_adaptive_max_pool_indices(g, n, node, n_sizes,                     \
                                                          tci_dim_list(sizes)))                    \
    }
TCI_OPS_IMAGES(1)
TCI_OPS_IMAGES(2)
TCI_OPS_IMAGES(3)
#undef TCI_OPS_IMAGES

TCI_OPS_ONE(im2col, (tc_tensor x, const tc_pool *options, tc_site here), tci_build_im2col, node,
            options)
TCI_OPS_ONE(col2im,
            (tc_tensor x, int n, const int64_t *sizes, const tc_pool *options, tc_site here),
            tci_build_col2im, node, n, tci_dim_list(sizes), options)
TCI_OPS_ONE(interpolate, (tc_tensor x, const tc_interpolation *options, tc_site here),
            tci_build_interpolate, node, options)
TCI_OPS_BOTH(grid_sample, x, grid,
             (tc_tensor x, tc_tensor grid, const char *mode, const char *padding_mode,
              bool align_corners, tc_site here),
             tci_build_grid_sample, node, other, mode, padding_mode, align_corners)
