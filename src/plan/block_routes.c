/* plan/block_routes.c - the rows of the table of routes that only machines of blocks of threads
 * have.
 *
 * In: nothing. Out: those rows, which plan/route.c weighs with its own, and the cost of copies. */
#include "route.h"

#include <string.h>

TCI_BLOCK_FN double tci_route_copies_ns(const tci_offer *o, tci_route_by by)
{
    tci_route_work work = tci_route_work_of(o, by);
    work.bytes += 2 * (o->c->in[0].bytes + o->c->in[1].bytes);
    work.launches += 2;
    return tci_route_ns(o, work);
}

TCI_FN int tci_block_routes(const tci_route **rows)
{
    const tci_route *const table[] = {tci_route_few_channels(), tci_route_unit_split_k(),
                                      tci_route_kmajor(),       tci_route_channels_last(),
                                      tci_route_bf16x3(),       tci_route_depthwise()};
    memcpy(rows, table, sizeof(table));
    return (int)TCI_COUNT(table);
}
