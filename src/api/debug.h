/* api/debug.h - declares debugging and profiling: named regions, profiles, tc_triage, reports, and
 * ops that print or assert values at run time.
 *
 * All of it is off by default and then costs nothing. With TC_NO_DEBUG defined where
 * TC_IMPLEMENTATION is, the implementation is left out: regions and marks do nothing, and the other
 * calls return TC_ERR_UNSUPPORTED. */
#ifndef TC_API_DEBUG_H
#define TC_API_DEBUG_H

#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- regions: names for parts of a program ----
 * Opens and closes a region: nodes made inside belong to it, gradients to the region whose backward
 * pass they are. tc_explain, profiles, dumps and reports show kernels with their region and
 * the user's line. Regions nest; the name of one inside another is "outer.inner". They are not part
 * of cache keys. The name is copied and kept until tc_shutdown.
 *     tc_region_begin(ctx, "encoder");
 *     x = tc_relu(tc_matmul(x, w));
 *     tc_region_end(ctx);
 * TC_ERR_HANDLE: the context is NULL or freed; TC_ERR_ARGUMENT: name is NULL or "", or at the end
 * no region is open; TC_ERR_MEMORY. */
TC_API tc_status tc_region_begin_at(tc_ctx *ctx, const char *name, tc_site here);
#define tc_region_begin(ctx, name) tc_region_begin_at((ctx), (name), TC_HERE)
TC_API tc_status tc_region_end_at(tc_ctx *ctx, tc_site here);
#define tc_region_end(ctx) tc_region_end_at((ctx), TC_HERE)

/* ---- profiles: timelines of runs and compiles, recorded per thread ----
 * From tc_profile_begin to tc_profile_end runs, kernels, parts of kernels on threads of the pool,
 * phases and compiler processes of compiles, steps and marks are recorded, 32 bytes each, in
 * memory.
 * On a GPU the first runs of a program in a profile are launched one by one, each kernel timed by
 * the device's events; later ones are replayed as without a profile, and are one span each, divided
 * among the kernels in proportion to their times in those runs (no_device: nothing is timed). Any
 * thread; one profile at a time.
 *     tc_profile_begin(NULL, &p);
 *     for (int i = 0; i < 3; i++) { tc_run(f, ...); tc_profile_step(p); }
 *     tc_profile_end(p);
 *     tc_profile_table(p, stdout, TC_BY_TIME, 20);
 *     tc_profile_write(p, "t.json");
 *     tc_profile_free(p);
 * TC_TRACE=FILE (options.trace) is the same from the first context until tc_shutdown or the exit of
 * the process. */
typedef struct tc_profile_options {
    int megabytes;  /* of records; then the oldest are dropped and counted. 0: 64 */
    bool no_device; /* kernels of devices are not timed one by one */
} tc_profile_options;
/* options NULL: defaults. The caller frees the profile. TC_ERR_ARGUMENT: profile is NULL;
 * TC_ERR_BUSY: another profile, or TC_TRACE, records; TC_ERR_MEMORY. */
TC_API tc_status tc_profile_begin(const tc_profile_options *options, tc_profile **profile);
/* Ends the recording. TC_ERR_ARGUMENT: NULL, or it has ended; TC_ERR_MEMORY: records were lost. */
TC_API tc_status tc_profile_end(tc_profile *profile);
/* Ends the current step and begins the next one; each is a numbered span. TC_ERR_ARGUMENT as
 * above. */
TC_API tc_status tc_profile_step(tc_profile *profile);
/* A named span of this thread. Spans nest, up to 64 deep. */
TC_API void tc_mark_begin(const char *name);
TC_API void tc_mark_end(void);
/* Prints an ended profile: a line for each kernel (most; 0: 20, -1: all): time, share, calls, GB/s
 * and Gflop/s by the plan's count of bytes and operations, fraction of the roofline ("at best" of
 * tc_explain), program, line and region; and a line for each thread and queue with kernels: the
 * share of the time from its first kernel to its last in which none ran ("launch-bound" above
 * half), between kernels of a run and outside of runs; time in compiles is not counted.
 * TC_ERR_ARGUMENT: NULL, or not ended; TC_ERR_MEMORY; TC_ERR_IO. */
TC_API tc_status tc_profile_table(const tc_profile *profile, FILE *out, tc_sort sort, int most);
/* A timeline in Chrome's JSON format, for ui.perfetto.dev or chrome://tracing: a track for each
 * thread and one for each queue (stream) of a device, named with its idle share; otherData.idle has
 * the same in numbers. Errors as above; tc_error(profile) has the message. */
TC_API tc_status tc_profile_write(const tc_profile *profile, const char *path);
TC_API void tc_profile_free(tc_profile *profile); /* ended or not; NULL is ignored */

/* ---- bisecting a wrong result ----
 * options.check (TC_CHECK=1) finds the first wrong kernel; this finds the responsible part of tc:
 * it runs the program (its first output) in six configurations, from the interpreter op by op, with
 * every stage verified, over fused and scalar code to the program's own, and CUDA if there is a
 * GPU, prints a line for each, and the configuration at which the result changes.
 *     tc_triage(f, TC_BUFS(TC_BUF(in, 64)), stdout);
 * Inputs are in host memory. TC_ERR_ARGUMENT: NULL, or the number of inputs; TC_ERR_BUFFER: an
 * input has another number of elements; TC_ERR_UNSUPPORTED: symbolic sizes; TC_ERR_IO;
 * TC_ERR_MEMORY. tc_error(f) has the message. */
TC_API tc_status tc_triage(tc_program *f, tc_bufs inputs, FILE *out);

/* ---- HTML report ----
 * Writes an HTML page, one file that needs no network: launches from top to bottom in their
 * regions, which fold, forward on the left and backward on the right, with widths by their
 * estimated times; buffers between them; the memory plan; a click shows nodes, lines, schedule and
 * source. TC_DUMP=html writes one for each program, and an index.html. TC_ERR_ARGUMENT: NULL;
 * TC_ERR_IO; TC_ERR_MEMORY. tc_error(f) has the message. */
TC_API tc_status tc_report(const tc_program *f, const char *path);

/* ---- printing and checking values at run time ----
 * Each returns x, of the same shape and dtype, and takes effect when a run computes that result:
 * use it instead of x. Also in loops, once per iteration; gradients pass through. On a GPU the
 * value is copied to the host, and such a run is not recorded as a graph. A run whose assertion
 * fails leaves all parameters as they were; so a program with assertions keeps new values of
 * parameters in memory of their own until the run ends. */
/* Prints a line to stderr: shape, minimum, maximum, mean, number of non-finite elements, the first
 * few. */
TC_API tc_tensor tc_print_value_at(tc_tensor x, const char *name, tc_site here);
#define tc_print_value(x, name) tc_print_value_at((x), (name), TC_HERE)
/* Fails the run with TC_ERR_CHECK if an element is NaN or infinite: tc_error has the line of this
 * call and the element. Outputs are then invalid. */
TC_API tc_tensor tc_assert_finite_at(tc_tensor x, tc_site here);
#define tc_assert_finite(x) tc_assert_finite_at((x), TC_HERE)
/* The same if an element of mask, of any shape, is 0; text describes the condition. */
TC_API tc_tensor tc_assert_all_at(tc_tensor x, tc_tensor mask, const char *text, tc_site here);
#define tc_assert_all(x, mask, text) tc_assert_all_at((x), (mask), (text), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
