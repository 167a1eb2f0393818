/* cuda/nvrtc.c - compiles CUDA source to cubin files with NVRTC.
 *
 * In: a build request of the backend interface. Out: one cubin file per source. Sources are
 * compiled concurrently, each in a thread of its own, which NVRTC allows (in older versions its
 * back ends are serialized); messages are passed on when all have ended. Options: a real
 * architecture (sm_XX), so that loading never JIT-compiles PTX; no FMA contraction (--fmad=false),
 * which would change bits; functions without a qualifier are the device's, so that texts shared
 * with C compile. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../base/os.h"
#include "driver_api.h"
#include "nvrtc.h"

/* One source. */
typedef struct tci_nvrtc_task {
    const tci_nvrtc *rtc;
    const tc_build *build;
    int i;
    const char *architecture, *why;
    tc_status status;
    char *log; /* heap: what NVRTC said, or NULL */
    pthread_t thread;
    bool spawned; /* thread compiles it */
    bool refuses; /* the text is what is wrong */
} tci_nvrtc_task;

static void tci_nvrtc_keep_log(tci_nvrtc_task *t, void *program)
{
    size_t n = 0;
    if (t->rtc->log_size(program, &n) || n <= 1) {
        return;
    }
    t->log = tci_heap_get(n + 1);
    if (t->log && t->rtc->log(program, t->log)) {
        t->log[0] = 0;
    }
}

static tc_status tci_nvrtc_write_cubin(const tci_nvrtc *rtc, void *program, const char *path,
                                       const char **why)
{
    size_t n = 0;
    int code = 0;
    if (rtc->cubin_size(program, &n) || n == 0) {
        *why = "NVRTC made no cubin";
        return TC_ERR_COMPILER;
    }
    char *cubin = tci_heap_get(n);
    if (!cubin) {
        *why = "out of memory for a cubin";
        return TC_ERR_MEMORY;
    }
    bool written = !rtc->cubin(program, cubin) && tci_os_publish(path, cubin, n, &code);
    tci_heap_free(cubin);
    *why = written ? "" : "a cubin could not be written";
    return written ? TC_OK : TC_ERR_IO;
}

static tc_status tci_nvrtc_build_one(tci_nvrtc_task *t)
{
    const tci_nvrtc *rtc = t->rtc;
    const tc_build *build = t->build;
    const char *options[] = {t->architecture, "--fmad=false", "-default-device", "-std=c++17"};
    void *program = NULL;
    if (rtc->create(&program, build->sources[t->i], "tc.cu", 0, NULL, NULL)) {
        t->why = "NVRTC cannot take the source";
        return TC_ERR_COMPILER;
    }
    int failed = rtc->compile(program, TCI_COUNT(options), options);
    tc_status status = TC_ERR_COMPILER;
    t->why = "NVRTC refuses the generated source";
    t->refuses = failed != 0;
    if (failed || build->keep) {
        tci_nvrtc_keep_log(t, program);
    }
    if (!failed) {
        status = tci_nvrtc_write_cubin(rtc, program, build->outputs[t->i], &t->why);
    }
    rtc->destroy(&program);
    return status;
}

static void *tci_nvrtc_run(void *arg)
{
    tci_nvrtc_task *t = arg;
    t->status = tci_nvrtc_build_one(t);
    return NULL;
}

/* Kept sources are next to the outputs, as the C compiler's are. */
static void tci_nvrtc_keep(const tc_build *build, int i)
{
    char path[600];
    int code;
    snprintf(path, sizeof(path), "%s.cu", build->outputs[i]);
    tci_os_publish(path, build->sources[i], strlen(build->sources[i]), &code);
}

/* The first in this thread, as are those that have none of their own. */
static void tci_nvrtc_run_all(tci_nvrtc_task *tasks, int n)
{
    for (int i = 1; i < n; i++) {
        tasks[i].spawned = pthread_create(&tasks[i].thread, NULL, tci_nvrtc_run, &tasks[i]) == 0;
    }
    for (int i = 0; i < n; i++) {
        if (!tasks[i].spawned) {
            tci_nvrtc_run(&tasks[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        if (tasks[i].spawned) {
            pthread_join(tasks[i].thread, NULL);
        }
    }
}

TCI_FN tc_status tci_nvrtc_build(tc_build *build, const char *architecture, const char **why)
{
    const tci_nvrtc *rtc = tci_nvrtc_get(why);
    tci_nvrtc_task *tasks = rtc ? tci_heap_get((size_t)build->n * sizeof(*tasks)) : NULL;
    tc_status status = TC_OK;
    if (!tasks) {
        *why = rtc ? "out of memory for NVRTC's threads" : *why;
        return rtc ? TC_ERR_MEMORY : TC_ERR_COMPILER;
    }
    for (int i = 0; i < build->n; i++) {
        tasks[i] = (tci_nvrtc_task){.rtc = rtc,
                                    .build = build,
                                    .i = i,
                                    .architecture = architecture,
                                    .why = ""};
    }
    tci_nvrtc_run_all(tasks, build->n);
    for (int i = 0; i < build->n; i++) {
        if (tasks[i].log) {
            build->say(build->say_arg, tasks[i].log);
        }
        if (tasks[i].status || build->keep) {
            tci_nvrtc_keep(build, i);
        }
        build->refused = !status && tasks[i].refuses ? i : build->refused;
        *why = status ? *why : tasks[i].why;
        status = status ? status : tasks[i].status;
        tci_heap_free(tasks[i].log);
    }
    build->processes += build->n;
    tci_heap_free(tasks);
    return status;
}
