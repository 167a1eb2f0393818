/* examples/example.h - what the examples share: a clock, and leaving on a failed call. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CHECK_OK(call, object)                                                                     \
    do {                                                                                           \
        if ((call) != TC_OK) {                                                                     \
            fprintf(stderr, "%s\n", tc_error(object));                                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline double now_us(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Best of n runs, in microseconds. */
#define BEST_US(n, result, statement)                                                              \
    do {                                                                                           \
        (result) = 1e30;                                                                           \
        for (int tries = 0; tries < (n); tries++) {                                                \
            double t0 = now_us();                                                                  \
            statement;                                                                             \
            double t1 = now_us();                                                                  \
            (result) = t1 - t0 < (result) ? t1 - t0 : (result);                                    \
        }                                                                                          \
    } while (0)

#endif
