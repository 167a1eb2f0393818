/* bench/bench.h - what the benchmarks share: a clock, interleaved measuring, and the table.
 *
 * Design: a figure is a ratio of things measured in turns. The sides of a comparison take
 * turns in short rounds, and the ratio is the median of the ratios of each round, so what slows
 * the machine for a while slows both sides of a round and cancels. A figure that is a time is that
 * of the best round: other programs of the machine can only add to it.
 *
 *     static void add(void *arg) { ... }       // one call of what is measured
 *
 *     int main(int argc, char **argv)
 *     {
 *         bench_begin(argc, argv, "pointwise");
 *         bench_side sides[] = {{"add", add, &this}, {"copy", copy, &that}};
 *         bench_measure(sides, 2, 21, 5);                        // 21 rounds of 5 ms a side
 *         bench_row("add", bench_ratio(&sides[1], &sides[0]), "of copy", BENCH_AT_LEAST, 0.85);
 *         bench_row("add", sides[0].best_ns / 1e3, "us", BENCH_INFO, 0);
 *         return bench_end();
 *     }
 *
 * A program never fails because of a figure. --json prints a JSON object a line instead of the
 * table: {"bench":"pointwise","name":"add","figure":0.93,"unit":"of copy","goal":"at_least",
 * "target":0.85,"ratio":1.09,"met":true}. goal is null for information; a skip has "skipped". */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BENCH_MOST_ROUNDS = 255 };

typedef enum bench_goal { BENCH_INFO, BENCH_AT_MOST, BENCH_AT_LEAST } bench_goal;

typedef struct bench_side {
    const char *name;
    void (*run)(void *arg);
    void *arg;
    double ns;                         /* out: of one call, median over the rounds */
    double best_ns;                    /* out: in the best round */
    double samples[BENCH_MOST_ROUNDS]; /* out: of one call, in each round */
    int rounds;
} bench_side;

static struct {
    const char *name;
    bool json;
    int met, missed, skipped;
} bench_state;

/* Keeps the compiler from dropping work whose result is at p. */
#if defined(__GNUC__)
#define BENCH_USE(p) __asm__ volatile("" : : "g"(p) : "memory")
#else
static void *volatile bench_sink;
#define BENCH_USE(p) (bench_sink = (void *)(p))
#endif

static inline double bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of n values; they stay as they are. */
static inline double bench_median(const double *values, int n)
{
    double sorted[BENCH_MOST_ROUNDS];
    n = n < BENCH_MOST_ROUNDS ? n : BENCH_MOST_ROUNDS;
    memcpy(sorted, values, (size_t)n * sizeof(*sorted));
    qsort(sorted, (size_t)n, sizeof(*sorted), bench_compare);
    return n ? (sorted[(n - 1) / 2] + sorted[n / 2]) / 2 : 0;
}

static inline double bench_least(const double *values, int n)
{
    double least = n ? values[0] : 0;
    for (int i = 1; i < n; i++) {
        least = values[i] < least ? values[i] : least;
    }
    return least;
}

/* ---- measuring ---- */

static inline double bench_time_ns(const bench_side *side, int64_t calls)
{
    double begin = bench_now_ns();
    for (int64_t i = 0; i < calls; i++) {
        side->run(side->arg);
    }
    return bench_now_ns() - begin;
}

/* Calls that take about round_ms, after two calls to warm up. */
static inline int64_t bench_calibrate(const bench_side *side, double round_ms)
{
    double ns = bench_time_ns(side, 1);
    int64_t calls = 1;
    ns = bench_time_ns(side, 1);
    while (ns < round_ms * 1e6 && calls < (int64_t)1 << 40) {
        double grow = ns > 1000 ? round_ms * 1e6 / ns : 10;
        if (grow < 1.3) {
            break;
        }
        calls = (int64_t)((double)calls * (grow < 10 ? grow : 10)) + 1;
        ns = bench_time_ns(side, calls);
    }
    return calls;
}

/* Rounds in which the sides take turns, about round_ms for each side. */
static inline void bench_measure(bench_side *sides, int n, int rounds, double round_ms)
{
    enum { MOST_SIDES = 16 };
    int64_t calls[MOST_SIDES];
    n = n < MOST_SIDES ? n : MOST_SIDES;
    rounds = rounds < BENCH_MOST_ROUNDS ? rounds : BENCH_MOST_ROUNDS;
    for (int i = 0; i < n; i++) {
        calls[i] = bench_calibrate(&sides[i], round_ms);
        sides[i].rounds = rounds;
    }
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < n; i++) {
            sides[i].samples[round] = bench_time_ns(&sides[i], calls[i]) / (double)calls[i];
        }
    }
    for (int i = 0; i < n; i++) {
        sides[i].ns = bench_median(sides[i].samples, rounds);
        sides[i].best_ns = bench_least(sides[i].samples, rounds);
    }
}

/* Median over the rounds of a's time in units of b's: 2 means that a takes twice as long. */
static inline double bench_ratio(const bench_side *a, const bench_side *b)
{
    double ratios[BENCH_MOST_ROUNDS];
    for (int i = 0; i < a->rounds; i++) {
        ratios[i] = a->samples[i] / b->samples[i];
    }
    return bench_median(ratios, a->rounds);
}

/* ---- the table ---- */

static inline void bench_begin(int argc, char **argv, const char *name)
{
    bench_state.name = name;
    for (int i = 1; i < argc; i++) {
        bench_state.json = bench_state.json || !strcmp(argv[i], "--json");
    }
    if (!bench_state.json) {
        printf("%-50s %11s %-12s %11s %6s\n", name, "figure", "unit", "target", "ratio");
    }
}

/* ratio in the table: figure / target. */
static inline void bench_row(const char *name, double figure, const char *unit, bench_goal goal,
                             double target)
{
    double ratio = target != 0 ? figure / target : 0;
    bool met = goal == BENCH_AT_MOST ? figure <= target : figure >= target;
    bench_state.met += goal != BENCH_INFO && met;
    bench_state.missed += goal != BENCH_INFO && !met;
    if (bench_state.json && goal == BENCH_INFO) {
        printf("{\"bench\":\"%s\",\"name\":\"%s\",\"figure\":%.6g,\"unit\":\"%s\",\"goal\":null}\n",
               bench_state.name, name, figure, unit);
    } else if (bench_state.json) {
        printf("{\"bench\":\"%s\",\"name\":\"%s\",\"figure\":%.6g,\"unit\":\"%s\",\"goal\":\"%s\","
               "\"target\":%.6g,\"ratio\":%.4g,\"met\":%s}\n",
               bench_state.name, name, figure, unit, goal == BENCH_AT_MOST ? "at_most" : "at_least",
               target, ratio, met ? "true" : "false");
    } else if (goal == BENCH_INFO) {
        printf("%-50s %11.4g %s\n", name, figure, unit);
    } else {
        printf("%-50s %11.4g %-12s %s %8.4g %6.2f  %s\n", name, figure, unit,
               goal == BENCH_AT_MOST ? "<=" : ">=", target, ratio, met ? "met" : "MISSED");
    }
    fflush(stdout);
}

/* A line of text: what a peer is, say. */
static inline void bench_note(const char *name, const char *text)
{
    if (bench_state.json) {
        printf("{\"bench\":\"%s\",\"name\":\"%s\",\"note\":\"%s\"}\n", bench_state.name, name,
               text);
    } else {
        printf("%-50s %s\n", name, text);
    }
    fflush(stdout);
}

static inline void bench_skip(const char *name, const char *reason)
{
    bench_state.skipped++;
    if (bench_state.json) {
        printf("{\"bench\":\"%s\",\"name\":\"%s\",\"skipped\":\"%s\"}\n", bench_state.name, name,
               reason);
    } else {
        printf("%-50s skipped: %s\n", name, reason);
    }
    fflush(stdout);
}

/* Totals; what main returns. */
static inline int bench_end(void)
{
    if (!bench_state.json) {
        printf("%-50s %d met, %d missed, %d skipped\n\n", bench_state.name, bench_state.met,
               bench_state.missed, bench_state.skipped);
    }
    return 0;
}

#endif
