/* cuda/driver_api.c - opens libcuda and libnvrtc at run time.
 *
 * In: nothing. Out: tables of functions. Design: a table is filled once per process under a lock
 * and never changes afterwards. NVRTC is opened only when something must be compiled (it is the
 * slowest part of a start), so its path can be queried without opening it. */
#include <stdio.h>
#include <string.h>

#include "../base/env.h"
#include "../base/os.h"
#include "driver_api.h"

typedef struct tci_cu_symbol {
    const char *name;
    size_t offset;
} tci_cu_symbol;

#define TCI_ROW(field, symbol, arguments) {symbol, offsetof(tci_cu, field)},
static const tci_cu_symbol tci_cu_symbols[] = {TCI_CU_ROWS(TCI_ROW)};
static const tci_cu_symbol tci_cu_newer_symbols[] = {TCI_CU_NEWER_ROWS(TCI_ROW)};
#undef TCI_ROW
#define TCI_ROW(field, symbol, arguments) {symbol, offsetof(tci_nvrtc, field)},
static const tci_cu_symbol tci_nvrtc_symbols[] = {TCI_NVRTC_ROWS(TCI_ROW)};
#undef TCI_ROW

static struct {
    tci_mutex lock;
    bool cu_known, nvrtc_known;
    bool cu_works, nvrtc_works;
    tci_cu cu;
    tci_nvrtc nvrtc;
    char cu_why[256], nvrtc_why[256];
    char nvrtc_path[512];
} tci_cu_tables = {.lock = TCI_MUTEX_INIT};

static bool tci_cu_fill(void *library, const tci_cu_symbol *symbols, int n, void *table, char *why)
{
    for (int i = 0; i < n; i++) {
        void *function = tci_os_dlsym(library, symbols[i].name);
        if (!function) {
            snprintf(why, 256, "the library has no %s", symbols[i].name);
            return false;
        }
        memcpy((char *)table + symbols[i].offset, &function, sizeof(function));
    }
    return true;
}

TCI_FN void tci_cu_keep_over_fork(void)
{
    tci_os_keep_over_fork(&tci_cu_tables.lock, NULL);
}

TCI_FN const tci_cu *tci_cu_get(const char **why)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    if (!tci_cu_tables.cu_known) {
        void *library = tci_os_dlopen("libcuda.so.1", tci_cu_tables.cu_why);
        tci_cu_tables.cu_known = true;
        tci_cu_tables.cu_works = library &&
                                 tci_cu_fill(library, tci_cu_symbols, TCI_COUNT(tci_cu_symbols),
                                             &tci_cu_tables.cu, tci_cu_tables.cu_why);
        char missing[256];
        if (tci_cu_tables.cu_works) {
            tci_cu_fill(library, tci_cu_newer_symbols, TCI_COUNT(tci_cu_newer_symbols),
                        &tci_cu_tables.cu, missing);
        }
    }
    pthread_mutex_unlock(&tci_cu_tables.lock);
    *why = tci_cu_tables.cu_why;
    return tci_cu_tables.cu_works ? &tci_cu_tables.cu : NULL;
}

/* Where distributions, NVIDIA's installers and containers put it; newest first. */
static const char *const tci_nvrtc_names[] = {
    "/usr/local/cuda/lib64/libnvrtc.so.13",      "/usr/local/cuda/lib64/libnvrtc.so.12",
    "/usr/local/cuda-13.0/lib/libnvrtc.so.13",   "/usr/local/cuda/lib/libnvrtc.so.13",
    "/usr/lib/x86_64-linux-gnu/libnvrtc.so.13",  "/usr/lib/x86_64-linux-gnu/libnvrtc.so.12",
    "/usr/lib/aarch64-linux-gnu/libnvrtc.so.13", "/usr/lib64/libnvrtc.so.13",
    "/usr/local/cuda/lib64/libnvrtc.so"};

/* Caller holds the lock. */
static const char *tci_nvrtc_find(void)
{
    const char *wanted = tci_env_get(TCI_ENV_NVRTC);
    int64_t bytes, mtime;
    if (tci_cu_tables.nvrtc_path[0]) {
        return tci_cu_tables.nvrtc_path;
    }
    if (wanted && wanted[0]) {
        snprintf(tci_cu_tables.nvrtc_path, sizeof(tci_cu_tables.nvrtc_path), "%s", wanted);
    }
    for (int i = 0; i < TCI_COUNT(tci_nvrtc_names) && !tci_cu_tables.nvrtc_path[0]; i++) {
        if (tci_os_stat(tci_nvrtc_names[i], &bytes, &mtime)) {
            snprintf(tci_cu_tables.nvrtc_path, sizeof(tci_cu_tables.nvrtc_path), "%s",
                     tci_nvrtc_names[i]);
        }
    }
    return tci_cu_tables.nvrtc_path;
}

TCI_FN const char *tci_nvrtc_path(void)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    const char *path = tci_nvrtc_find();
    pthread_mutex_unlock(&tci_cu_tables.lock);
    return path;
}

static void *tci_nvrtc_open(char *why)
{
    static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    const char *path = tci_nvrtc_find();
    void *library = path[0] ? tci_os_dlopen(path, why) : NULL;
    for (int i = 0; i < TCI_COUNT(sonames) && !library; i++) {
        library = tci_os_dlopen(sonames[i], why);
    }
    return library;
}

TCI_FN const tci_nvrtc *tci_nvrtc_get(const char **why)
{
    pthread_mutex_lock(&tci_cu_tables.lock);
    if (!tci_cu_tables.nvrtc_known) {
        void *library = tci_nvrtc_open(tci_cu_tables.nvrtc_why);
        tci_cu_tables.nvrtc_known = true;
        tci_cu_tables.nvrtc_works = library &&
                                    tci_cu_fill(library, tci_nvrtc_symbols,
                                                TCI_COUNT(tci_nvrtc_symbols), &tci_cu_tables.nvrtc,
                                                tci_cu_tables.nvrtc_why);
    }
    pthread_mutex_unlock(&tci_cu_tables.lock);
    *why = tci_cu_tables.nvrtc_why;
    return tci_cu_tables.nvrtc_works ? &tci_cu_tables.nvrtc : NULL;
}
