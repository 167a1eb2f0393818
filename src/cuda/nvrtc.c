/* cuda/nvrtc.c - CUDA source to cubin files.
 *
 * In: a build request of the seam. Out: one cubin file for each source. Options: the real
 * architecture, so that loading never compiles; no contraction of a * b + c, which would change
 * bits; functions without a qualifier are the device's, so that texts shared with C compile. */
#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../base/os.h"
#include "load.h"
#include "nvrtc.h"

static void tci_nvrtc_say_log(const tci_nvrtc *rtc, void *program, tc_build *build)
{
    size_t n = 0;
    if (rtc->log_size(program, &n) || n <= 1) {
        return;
    }
    char *text = tci_heap_get(n + 1);
    if (text && !rtc->log(program, text)) {
        build->say(build->say_arg, text);
    }
    tci_heap_free(text);
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

static tc_status tci_nvrtc_build_one(const tci_nvrtc *rtc, tc_build *build, int i,
                                     const char *architecture, const char **why)
{
    const char *options[] = {architecture, "--fmad=false", "-default-device", "-std=c++17"};
    void *program = NULL;
    if (rtc->create(&program, build->sources[i], "tc.cu", 0, NULL, NULL)) {
        *why = "NVRTC cannot take the source";
        return TC_ERR_COMPILER;
    }
    int failed = rtc->compile(program, TCI_COUNT(options), options);
    tc_status status = TC_ERR_COMPILER;
    *why = "NVRTC refuses the generated source";
    if (failed || build->keep) {
        tci_nvrtc_say_log(rtc, program, build);
    }
    if (!failed) {
        status = tci_nvrtc_write_cubin(rtc, program, build->outputs[i], why);
    }
    rtc->destroy(&program);
    return status;
}

/* Kept sources lie beside the outputs, as the C compiler's do. */
static void tci_nvrtc_keep(const tc_build *build, int i)
{
    char path[600];
    int code;
    snprintf(path, sizeof(path), "%s.cu", build->outputs[i]);
    tci_os_publish(path, build->sources[i], strlen(build->sources[i]), &code);
}

TCI_FN tc_status tci_nvrtc_build(tc_build *build, const char *architecture, const char **why)
{
    const tci_nvrtc *rtc = tci_nvrtc_get(why);
    tc_status status = rtc ? TC_OK : TC_ERR_COMPILER;
    for (int i = 0; i < build->n && !status; i++) {
        build->processes++;
        status = tci_nvrtc_build_one(rtc, build, i, architecture, why);
        if (status || build->keep) {
            tci_nvrtc_keep(build, i);
        }
    }
    return status;
}
