/* plan/gpu_contraction_routes.c - table of the contraction algorithms that only GPUs have (im2col,
 * split-K, BF16x3, K-major operands, depthwise, few channels, channels-last), which
 * plan/contraction_route.c compares with its own.
 *
 * In: nothing. Out: the rows. */
#include "contraction_route.h"

#include <string.h>

TCI_FN int tci_block_routes(const tci_route **rows)
{
    const tci_route *const table[] = {tci_route_few_channels(),  tci_route_unit_split_k(),
                                      tci_route_im2col(),        tci_route_kmajor(),
                                      tci_route_channels_last(), tci_route_bf16x3(),
                                      tci_route_depthwise()};
    memcpy(rows, table, sizeof(table));
    return (int)TCI_COUNT(table);
}
