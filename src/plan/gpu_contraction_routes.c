/* plan/gpu_contraction_routes.c - defines the routes of contractions that only GPUs have.
 *
 * In: nothing. Out: those rows; plan/contraction_route.c compares them with its own. */
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
