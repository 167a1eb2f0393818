/* examples/example.h - what the examples share: leaving on a failed call, a clock, and the
 * comparison with a run that fuses nothing.
 *
 * Every call that computes (not those that only move or repeat elements: any library has views for
 * them) goes through example_step(), by the macros at the end. Usually that is the call itself.
 * Between example_steps_begin() and example_steps_end() each call becomes a program of its own that
 * writes an array of its own, so the same formula runs one op at a time. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK_OK(call, object)                                                                     \
    do {                                                                                           \
        if ((call) != TC_OK) {                                                                     \
            fprintf(stderr, "%s\n", tc_error(object));                                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Microseconds since the first call. */
static inline double now_us(void)
{
    static struct timespec first;
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    first = first.tv_sec ? first : t;
    return (double)(t.tv_sec - first.tv_sec) * 1e6 + (double)(t.tv_nsec - first.tv_nsec) * 1e-3;
}

/* Best of the runs that fit into a fifth of a second, at least three; in microseconds. */
#define BEST_US(result, statement)                                                                 \
    do {                                                                                           \
        double example_begin = now_us(), example_end = example_begin;                              \
        (result) = 1e30;                                                                           \
        for (int tries = 0; tries < 3 || example_end < example_begin + 2e5; tries++) {             \
            double example_t0 = now_us();                                                          \
            statement;                                                                             \
            example_end = now_us();                                                                \
            (result) = fmin((result), example_end - example_t0);                                   \
        }                                                                                          \
    } while (0)

/* ---- one op at a time ---- */

enum { EXAMPLE_STEPS = 128 };
static struct {
    bool on;
    int n;
    tc_program *programs[EXAMPLE_STEPS];
    tc_buf outputs[EXAMPLE_STEPS];
} example_steps;

static inline tc_tensor example_step(tc_tensor t)
{
    int rank = tc_rank(t), n = example_steps.n;
    int64_t sizes[8];
    if (!example_steps.on || rank < 0 || rank > 8 || n == EXAMPLE_STEPS) {
        return t; /* also a poisoned tensor: its error shows at the compile */
    }
    for (int i = 0; i < rank; i++) {
        sizes[i] = tc_size(t, i);
    }
    size_t room = ((size_t)tc_nbytes(t) + 127) / 64 * 64;
    example_steps.outputs[n] = TC_BUF(aligned_alloc(64, room), tc_count(t));
    example_steps.outputs[n].dtype = (int)tc_dtype_of(t);
    CHECK_OK(tc_compile(t, &example_steps.programs[n]), t);
    example_steps.n++;
    return tc_borrow_at(t.ctx, example_steps.outputs[n].data, tc_dtype_of(t), rank, sizes, NULL,
                        TC_HERE);
}

static inline void example_steps_begin(void)
{
    example_steps.on = true;
}

static inline void example_steps_run(void)
{
    for (int i = 0; i < example_steps.n; i++) {
        tc_bufs out = {&example_steps.outputs[i], 1};
        CHECK_OK(tc_run(example_steps.programs[i], TC_BUFS(), out), example_steps.programs[i]);
    }
}

/* ---- the report ---- */

static inline void example_bytes(const char *what, int64_t bytes)
{
    bool large = bytes >= 10000000;
    printf("%s %6.1f %s, ", what, (double)bytes / (large ? 1e6 : 1e3), large ? "MB" : "kB");
}

static inline void example_line(const char *what, tc_program *const *programs, int n, double us)
{
    tc_program_info info, sum = {0};
    for (int i = 0; i < n; i++) {
        tc_program_get_info(programs[i], &info);
        sum.n_kernels += info.n_kernels;
        sum.bytes_read += info.bytes_read;
        sum.bytes_written += info.bytes_written;
        sum.backend = info.backend;
    }
    printf("  %-8s %3d kernel%-1s on %s, ", what, sum.n_kernels, sum.n_kernels == 1 ? "" : "s",
           sum.backend);
    example_bytes("reads", sum.bytes_read);
    example_bytes("writes", sum.bytes_written);
    printf("%9.*f us", us < 10 ? 2 : 1, us);
}

/* Times the run of a program and prints what it does. The result is the time. */
#define REPORT_FUSED(program, us, run)                                                             \
    do {                                                                                           \
        BEST_US(us, CHECK_OK(run, program));                                                       \
        example_line("fused", &(program), 1, us);                                                  \
        printf("\n");                                                                              \
    } while (0)

/* Ends the recording of steps, times them, and compares with the fused time. */
static inline void example_steps_end(double fused_us)
{
    double us;
    BEST_US(us, example_steps_run());
    example_line("op by op", example_steps.programs, example_steps.n, us);
    printf(" (%.1f times the fused time)\n", us / fused_us);
    for (int i = 0; i < example_steps.n; i++) {
        tc_program_free(example_steps.programs[i]);
        free(example_steps.outputs[i].data);
    }
    memset(&example_steps, 0, sizeof(example_steps));
}

/* The formula again, one op at a time, next to the fused time. */
#define REPORT_OP_BY_OP(formula, fused_us)                                                         \
    do {                                                                                           \
        example_steps_begin();                                                                     \
        (void)(formula);                                                                           \
        example_steps_end(fused_us);                                                               \
    } while (0)

/* The verdict of an example, and its exit code. */
static inline int report_check(double worst, double limit, const char *unit)
{
    printf("  checked: worst %s %.2g of %.2g allowed: %s\n", unit, worst, limit,
           worst <= limit ? "ok" : "WRONG");
    return worst <= limit ? 0 : 1;
}

/* ---- the calls that compute ---- */
#define EXAMPLE_1(name, a) example_step(name##_at(TC_ARG(a), TC_HERE))
#define EXAMPLE_2(name, a, b) example_step(name##_at(TC_ARG(a), TC_ARG(b), TC_HERE))
#define EXAMPLE_REDUCE(name, x, axes, keep) example_step(name##_at((x), (axes), (keep), TC_HERE))
#undef tc_sin
#undef tc_cos
#undef tc_exp
#undef tc_sqrt
#undef tc_rsqrt
#undef tc_square
#undef tc_round
#undef tc_add
#undef tc_sub
#undef tc_mul
#undef tc_div
#undef tc_minimum
#undef tc_maximum
#undef tc_eq
#undef tc_logical_and
#undef tc_logical_or
#undef tc_sum
#undef tc_max
#undef tc_mean
#undef tc_cast
#undef tc_cat
#define tc_sin(a) EXAMPLE_1(tc_sin, a)
#define tc_cos(a) EXAMPLE_1(tc_cos, a)
#define tc_exp(a) EXAMPLE_1(tc_exp, a)
#define tc_sqrt(a) EXAMPLE_1(tc_sqrt, a)
#define tc_rsqrt(a) EXAMPLE_1(tc_rsqrt, a)
#define tc_square(a) EXAMPLE_1(tc_square, a)
#define tc_round(a) EXAMPLE_1(tc_round, a)
#define tc_add(a, b) EXAMPLE_2(tc_add, a, b)
#define tc_sub(a, b) EXAMPLE_2(tc_sub, a, b)
#define tc_mul(a, b) EXAMPLE_2(tc_mul, a, b)
#define tc_div(a, b) EXAMPLE_2(tc_div, a, b)
#define tc_minimum(a, b) EXAMPLE_2(tc_minimum, a, b)
#define tc_maximum(a, b) EXAMPLE_2(tc_maximum, a, b)
#define tc_eq(a, b) EXAMPLE_2(tc_eq, a, b)
#define tc_logical_and(a, b) EXAMPLE_2(tc_logical_and, a, b)
#define tc_logical_or(a, b) EXAMPLE_2(tc_logical_or, a, b)
#define tc_sum(x, axes, keepdims) EXAMPLE_REDUCE(tc_sum, x, axes, keepdims)
#define tc_max(x, axes, keepdims) EXAMPLE_REDUCE(tc_max, x, axes, keepdims)
#define tc_mean(x, axes, keepdims) EXAMPLE_REDUCE(tc_mean, x, axes, keepdims)
#define tc_cast(x, dtype) example_step(tc_cast_at((x), (dtype), TC_HERE))
#define tc_cat(xs, axis) example_step(tc_cat_at((xs), (axis), TC_HERE))

#endif
