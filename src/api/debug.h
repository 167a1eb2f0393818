/* api/debug.h - regions, and what shows a program from inside: explain, profile, check.
 *
 * All of it is off until it is asked for and then costs nothing. With TC_NO_DEBUG defined where
 * TC_IMPLEMENTATION is, the code is left out: regions and marks do nothing, and the other calls
 * return TC_ERR_UNSUPPORTED. */
#ifndef TC_API_DEBUG_H
#define TC_API_DEBUG_H

#include "compile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- regions: names for parts of a program ----
 * Opens and closes a region: nodes made inside belong to it, gradients to the region that they are
 * the backward pass of. tc_explain, profiles, dumps and reports show kernels with their region and
 * the user's line. Regions nest; the name of one inside another is "outer.inner". They are no part
 * of any cache key. The name is copied and kept until tc_shutdown.
 *     tc_region_begin(ctx, "encoder");
 *     x = tc_relu(tc_matmul(x, w));
 *     tc_region_end(ctx);
 * TC_ERR_HANDLE: the context is NULL or freed; TC_ERR_ARGUMENT: name is NULL or "", or at the end no
 * region is open; TC_ERR_MEMORY. */
TC_API tc_status tc_region_begin_at(tc_ctx *ctx, const char *name, tc_site here);
#define tc_region_begin(ctx, name) tc_region_begin_at((ctx), (name), TC_HERE)
TC_API tc_status tc_region_end_at(tc_ctx *ctx, tc_site here);
#define tc_region_end(ctx) tc_region_end_at((ctx), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
