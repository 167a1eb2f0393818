/* api/named_regions.c - tc_region_begin and tc_region_end: named regions of a program, for profiles
 * and error texts.
 *
 * In: the name of a region, the user's line. Out: tci_ctx.region, which each public call stores in
 * the nodes that it makes. */
#include <string.h>

#include "../debug/string_intern.h"
#include "debug.h"
#include "api_call.h"

static bool tci_region_push(tci_ctx *c)
{
    if (c->n_regions == c->cap_regions) {
        int cap = TCI_MAX(2 * c->cap_regions, 8);
        uint32_t *more = tci_heap_resize(c->regions, (size_t)cap * sizeof(*more));
        if (!more) {
            return false;
        }
        c->regions = more;
        c->cap_regions = cap;
    }
    c->regions[c->n_regions++] = c->region;
    return true;
}

TC_API tc_status tc_region_begin_at(tc_ctx *ctx, const char *name, tc_site here)
{
    tci_ctx *c = tci_ctx_of(ctx);
    if (!c) {
        return TC_ERR_HANDLE;
    }
    if (!name || !*name) {
        tci_poison(c, "tc_region_begin", here, TC_ERR_ARGUMENT,
                   "given %s, expected the name of the region", name ? "\"\"" : "NULL");
        return TC_ERR_ARGUMENT;
    }
#ifndef TC_NO_DEBUG
    tci_str path = {0};
    tci_str_printf(&path, "%s%s%s", tci_label_text(c->region), c->region ? "." : "", name);
    uint32_t region = path.failed ? 0 : tci_label_of(path.text);
    tci_str_free(&path);
    if (!region || !tci_region_push(c)) {
        tci_poison(c, "tc_region_begin", here, TC_ERR_MEMORY, "out of memory");
        return TC_ERR_MEMORY;
    }
    c->region = region;
#else
    if (!tci_region_push(c)) {
        return TC_ERR_MEMORY;
    }
#endif
    return TC_OK;
}

TC_API tc_status tc_region_end_at(tc_ctx *ctx, tc_site here)
{
    tci_ctx *c = tci_ctx_of(ctx);
    if (!c) {
        return TC_ERR_HANDLE;
    }
    if (!c->n_regions) {
        tci_poison(c, "tc_region_end", here, TC_ERR_ARGUMENT,
                   "no region is open: expected a tc_region_begin before");
        return TC_ERR_ARGUMENT;
    }
    c->region = c->regions[--c->n_regions];
    return TC_OK;
}
