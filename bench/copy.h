/* bench/copy.h - what memory-bound kernels are compared with: reading and copying the same memory,
 * with the same pages and the same number of threads.
 *
 * A copy is made in four ways: memcpy, whole vectors through the caches, and whole vectors past
 * them with and without prefetches; "copy" is the fastest of them. "read" adds up whole vectors,
 * from the first to the last or in four places at once.
 * Threads are a team that spins for a moment before it sleeps, so that calls in a row find it awake
 * and a team that is not in use disturbs nobody. */
#ifndef BENCH_COPY_H
#define BENCH_COPY_H

#include <pthread.h>
#include <sys/mman.h>

#include "bench.h"

/* ---- memory on huge pages, where the system gives them ---- */

static inline float *bench_floats(int64_t n)
{
    size_t page = (size_t)2 << 20;
    size_t bytes = ((size_t)n * sizeof(float) + page - 1) / page * page;
    float *p = aligned_alloc(page, bytes);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
#ifdef MADV_HUGEPAGE
    (void)madvise(p, bytes, MADV_HUGEPAGE);
#endif
    for (int64_t i = 0; i < n; i++) {
        p[i] = (float)(i % 1009) * 0.0078125f - 3.5f;
    }
    return p;
}

/* ---- a team of threads ---- */

typedef void (*bench_part)(float *to, const float *from, int64_t n);
enum { BENCH_MOST_THREADS = 64, BENCH_SPIN_NS = 50000 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t threads[BENCH_MOST_THREADS];
    int n;             /* threads beside the caller */
    int parts;         /* of the current job */
    long ticket, done; /* atomic: number of the job; parts finished */
    bench_part part;
    float *to;
    const float *from;
    int64_t size;
} bench_team = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

/* Parts begin on whole pages of 4 KB. */
static inline void bench_do_part(int i)
{
    int64_t pages = (bench_team.size + 1023) / 1024;
    int64_t begin = pages * i / bench_team.parts * 1024;
    int64_t end = pages * (i + 1) / bench_team.parts * 1024;
    end = end < bench_team.size ? end : bench_team.size;
    bench_team.part(bench_team.to + begin, bench_team.from + begin, end - begin);
}

static inline long bench_team_wait(long seen)
{
    double since = bench_now_ns();
    long ticket = seen;
    while (ticket == seen && bench_now_ns() - since < BENCH_SPIN_NS) {
        ticket = __atomic_load_n(&bench_team.ticket, __ATOMIC_ACQUIRE);
    }
    if (ticket == seen) {
        pthread_mutex_lock(&bench_team.lock);
        while ((ticket = __atomic_load_n(&bench_team.ticket, __ATOMIC_ACQUIRE)) == seen) {
            pthread_cond_wait(&bench_team.wake, &bench_team.lock);
        }
        pthread_mutex_unlock(&bench_team.lock);
    }
    return ticket;
}

static inline void *bench_team_main(void *arg)
{
    int me = (int)(intptr_t)arg;
    long seen = 0;
    for (;;) {
        seen = bench_team_wait(seen);
        if (me < bench_team.parts) {
            bench_do_part(me);
            __atomic_add_fetch(&bench_team.done, 1, __ATOMIC_RELEASE);
        }
    }
    return NULL;
}

/* Runs `part` over n floats in `parts` threads; the team lives as long as the process. */
static inline void bench_team_run(int parts, bench_part part, float *to, const float *from,
                                  int64_t n)
{
    parts = parts < BENCH_MOST_THREADS ? parts : BENCH_MOST_THREADS;
    while (bench_team.n < parts - 1 &&
           !pthread_create(&bench_team.threads[bench_team.n], NULL, bench_team_main,
                           (void *)(intptr_t)(bench_team.n + 1))) {
        bench_team.n++;
    }
    bench_team.parts = parts < bench_team.n + 1 ? parts : bench_team.n + 1;
    bench_team.part = part;
    bench_team.to = to;
    bench_team.from = from;
    bench_team.size = n;
    bench_team.done = 0;
    if (bench_team.parts > 1) {
        pthread_mutex_lock(&bench_team.lock);
        __atomic_add_fetch(&bench_team.ticket, 1, __ATOMIC_RELEASE);
        pthread_cond_broadcast(&bench_team.wake);
        pthread_mutex_unlock(&bench_team.lock);
    }
    bench_do_part(0);
    while (__atomic_load_n(&bench_team.done, __ATOMIC_ACQUIRE) < bench_team.parts - 1) {
    }
}

/* ---- copies and reads ---- */

static inline void bench_copy_libc(float *to, const float *from, int64_t n)
{
    memcpy(to, from, (size_t)n * sizeof(float));
}

#if defined(__x86_64__)
#include <immintrin.h>

/* `bits` wide vectors; to and from are aligned to 64 bytes, n is a multiple of 1024 but for the
 * last part, whose rest goes through memcpy. */
#define BENCH_COPY_FORMS(bits, type, prefix, machine)                                            \
    __attribute__((target(machine))) static inline void bench_copy_plain_##bits(                   \
        float *to, const float *from, int64_t n)                                                   \
    {                                                                                              \
        int64_t step = bits / 32, i = 0;                                                           \
        for (; i + 4 * step <= n; i += 4 * step) {                                                 \
            for (int u = 0; u < 4; u++) {                                                          \
                prefix##_storeu_ps(to + i + u * step, prefix##_loadu_ps(from + i + u * step));     \
            }                                                                                      \
        }                                                                                          \
        memcpy(to + i, from + i, (size_t)(n - i) * sizeof(float));                                 \
    }                                                                                              \
    __attribute__((target(machine))) static inline void bench_copy_stream_##bits(                  \
        float *to, const float *from, int64_t n)                                                   \
    {                                                                                              \
        int64_t step = bits / 32, i = 0;                                                           \
        for (; i + 4 * step <= n; i += 4 * step) {                                                 \
            for (int u = 0; u < 4; u++) {                                                          \
                prefix##_stream_ps(to + i + u * step, prefix##_loadu_ps(from + i + u * step));     \
            }                                                                                      \
        }                                                                                          \
        memcpy(to + i, from + i, (size_t)(n - i) * sizeof(float));                                 \
        _mm_sfence();                                                                              \
    }                                                                                              \
    __attribute__((target(machine))) static inline void bench_copy_ahead_##bits(                   \
        float *to, const float *from, int64_t n)                                                   \
    {                                                                                              \
        int64_t step = bits / 32, i = 0;                                                           \
        for (; i + 4 * step <= n; i += 4 * step) {                                                 \
            for (int u = 0; u < 4; u++) {                                                          \
                _mm_prefetch((const char *)(from + i + u * step) + 2048, _MM_HINT_T0);             \
                prefix##_stream_ps(to + i + u * step, prefix##_loadu_ps(from + i + u * step));     \
            }                                                                                      \
        }                                                                                          \
        memcpy(to + i, from + i, (size_t)(n - i) * sizeof(float));                                 \
        _mm_sfence();                                                                              \
    }                                                                                              \
    __attribute__((target(machine))) static inline void bench_read_##bits(                         \
        float *to, const float *from, int64_t n)                                                   \
    {                                                                                              \
        int64_t step = bits / 32, i = 0;                                                           \
        type sum[8];                                                                               \
        for (int u = 0; u < 8; u++) {                                                              \
            sum[u] = prefix##_setzero_ps();                                                        \
        }                                                                                          \
        for (; i + 8 * step <= n; i += 8 * step) {                                                 \
            for (int u = 0; u < 8; u++) {                                                          \
                sum[u] = prefix##_add_ps(sum[u], prefix##_loadu_ps(from + i + u * step));          \
            }                                                                                      \
        }                                                                                          \
        for (int u = 1; u < 8; u++) {                                                              \
            sum[0] = prefix##_add_ps(sum[0], sum[u]);                                              \
        }                                                                                          \
        (void)to;                                                                                  \
        BENCH_USE(&sum[0]);                                                                        \
    }                                                                                              \
    __attribute__((target(machine))) static inline void bench_read_streams_##bits(                 \
        float *to, const float *from, int64_t n)                                                   \
    {                                                                                              \
        int64_t step = bits / 32, quarter = n / 4 / step * step;                                   \
        type sum[4];                                                                               \
        for (int u = 0; u < 4; u++) {                                                              \
            sum[u] = prefix##_setzero_ps();                                                        \
        }                                                                                          \
        for (int64_t i = 0; i < quarter; i += step) {                                              \
            for (int u = 0; u < 4; u++) {                                                          \
                sum[u] = prefix##_add_ps(sum[u], prefix##_loadu_ps(from + i + u * quarter));       \
            }                                                                                      \
        }                                                                                          \
        for (int u = 1; u < 4; u++) {                                                              \
            sum[0] = prefix##_add_ps(sum[0], sum[u]);                                              \
        }                                                                                          \
        (void)to;                                                                                  \
        BENCH_USE(&sum[0]);                                                                        \
    }
BENCH_COPY_FORMS(256, __m256, _mm256, "avx2")
BENCH_COPY_FORMS(512, __m512, _mm512, "avx512f")

static inline bool bench_has_512(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f");
}
#define BENCH_FORM(name) (bench_has_512() ? bench_##name##_512 : bench_##name##_256)
#else
#define BENCH_FORM(name) bench_copy_libc
#endif

/* A side of a comparison: `part` from one array to another. */
typedef struct bench_move {
    bench_part part;
    float *to;
    const float *from;
    int64_t n;
    int threads;
} bench_move;

static inline void bench_move_run(void *arg)
{
    const bench_move *m = arg;
    bench_team_run(m->threads, m->part, m->to, m->from, m->n);
}

enum { BENCH_COPIES = 4 };

/* Fills four sides with the ways to copy. */
static inline void bench_copy_sides(bench_side *sides, bench_move *moves, float *to,
                                    const float *from, int64_t n, int threads)
{
    static const char *const names[BENCH_COPIES] = {"memcpy", "plain", "stream", "ahead"};
    const bench_part parts[BENCH_COPIES] = {bench_copy_libc, BENCH_FORM(copy_plain),
                                            BENCH_FORM(copy_stream), BENCH_FORM(copy_ahead)};
    for (int i = 0; i < BENCH_COPIES; i++) {
        moves[i] = (bench_move){parts[i], to, from, n, threads};
        sides[i] = (bench_side){.name = names[i], .run = bench_move_run, .arg = &moves[i]};
    }
}

/* The fastest of n sides. */
static inline bench_side *bench_fastest(bench_side *sides, int n)
{
    bench_side *best = sides;
    for (int i = 1; i < n; i++) {
        best = sides[i].ns < best->ns ? &sides[i] : best;
    }
    return best;
}

#endif
