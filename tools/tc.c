/* tools/tc.c - the command line of tc: what works here, the cache, pages of dumps.
 *
 *     tc doctor                            compilers, NVRTC, driver, GPUs, caches, and a self-test;
 *                                          exits with 1 if something fails or no compiler is here
 *     tc cache list|clear|show HASH|export DIR
 *     tc report DUMPDIR                    an index.html over what TC_DUMP wrote
 *
 * It holds the implementation, as any program with tc.h does: `make tool` builds build/tc. */
#ifdef TC_TOOL_CUDA
#define TC_CUDA
#endif
#define TC_IMPLEMENTATION
#include "tc.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- doctor ---- */

static void say_compilers(void)
{
    static const char *const names[] = {"cc", "gcc", "clang", "tcc"};
    puts("C compilers on PATH:");
    for (int i = 0; i < 4; i++) {
        tci_str path = {0};
        bool found = tci_os_find_program(names[i], &path);
        printf("  %-6s %s\n", names[i], found ? tci_str_text(&path) : "not found");
        tci_str_free(&path);
    }
}

static void say_backends(void)
{
    const tc_backend_entry *e;
    puts("backends:");
    for (int i = 0; (e = tc_backend_at(i)); i++) {
        printf("  %-8s %s: %s\n", e->name, e->usable ? "usable" : "not usable",
               e->usable ? e->found : e->why);
    }
#ifdef TC_CUDA
    const char *nvrtc = tci_nvrtc_path();
    printf("NVRTC: %s\n", nvrtc[0] ? nvrtc : "not found");
#else
    puts("NVRTC: this build has no CUDA");
#endif
}

static bool cache_open(tci_disk *d)
{
    static tc_options o;
    tc_ctx *ctx;
    if (tc_ctx_make(&ctx, NULL)) {
        return false;
    }
    o = tci_ctx_of(ctx)->options; /* with the environment's folder; the context stays */
    tci_disk_open(d, &o);
    return d->readable;
}

static void say_cache(void)
{
    tci_disk d;
    if (cache_open(&d)) {
        printf("cache: %s%s, at most %lld MiB\n", d.dir.path.text, d.writable ? "" : " (read only)",
               (long long)(d.cap_bytes >> 20));
    } else {
        puts("cache: none (TC_LOG=cache says why)");
    }
    tci_disk_close(&d);
}

/* A program of an elementwise op, a sum and a product on that backend. */
static bool self_test(const char *backend)
{
    enum { N = 64 };
    tc_ctx *ctx;
    tc_program *f = NULL;
    float x[N * N], y[N];
    double worst = 0;
    tc_options o = {.backend = backend, .fallback = TC_FALLBACK_REFUSE, .no_disk_cache = true};
    for (int i = 0; i < N * N; i++) {
        x[i] = (float)(i % 17) / 17 - 0.4f;
    }
    if (tc_ctx_make(&ctx, &o)) {
        return false;
    }
    tc_tensor a = tc_input(ctx, "x", TC_F32, N, N);
    tc_tensor out = tc_sum(tc_exp(tc_matmul(a, a)), TC_AXES(1), false);
    if (tc_compile(out, &f) || tc_run(f, TC_BUFS(TC_BUF(x, N * N)), TC_BUFS(TC_BUF(y, N)))) {
        printf("  %-8s failed: %s\n", backend, f ? tc_error(f) : tc_error(out));
        tc_program_free(f);
        tc_ctx_free(ctx);
        return false;
    }
    for (int i = 0; i < N; i++) {
        double sum = 0;
        for (int j = 0; j < N; j++) {
            double product = 0;
            for (int k = 0; k < N; k++) {
                product += (double)x[i * N + k] * x[k * N + j];
            }
            sum += exp(product);
        }
        worst = fmax(worst, fabs(sum - y[i]) / fmax(1, fabs(sum)));
    }
    printf("  %-8s %s (error %.1e)\n", backend, worst < 1e-4 ? "ok" : "WRONG", worst);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return worst < 1e-4;
}

static int doctor(void)
{
    const tc_backend_entry *e;
    bool ok = true;
    printf("tc %s\n", tc_version());
    say_compilers();
    say_backends();
    say_cache();
    puts("self-test:");
    for (int i = 0; (e = tc_backend_at(i)); i++) {
        ok = (!e->usable || self_test(e->name)) && ok;
    }
    puts(ok ? "all that is here works" : "something that is here does not work");
    return !ok;
}

/* ---- cache ---- */

typedef struct cache_sums {
    int programs, kernels, objects, removed, kept, shown;
    long long bytes;
} cache_sums;

/* Kind of a cache entry by its file name (compile/disk_cache.c); NULL: name is of no entry. */
static const char *entry_kind(const char *name)
{
    static const char *const kinds[] = {"p program", "k kernel", "m object", "g engine",
                                        "t target"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (!strncmp(name, "tc-", 3) && name[3] == kinds[i][0] && name[4] == '-') {
            return kinds[i] + 2;
        }
    }
    return NULL;
}

/* Those of this build, for machines without a compiler. */
static bool cache_export(const char *from, const char *to)
{
    tc_ctx *ctx;
    bool ok = !tc_ctx_make(&ctx, NULL) && !tc_cache_export(ctx, to);
    if (ok) {
        printf("exported %s to ", from);
    } else {
        fprintf(stderr, "%s\n", tc_ctx_error(ctx));
    }
    tc_ctx_free(ctx);
    return ok;
}

/* Generated source. */
static bool cache_show(const char *path)
{
    char line[4096];
    FILE *in = fopen(path, "r");
    while (in && fgets(line, sizeof(line), in)) {
        fputs(line, stdout);
    }
    if (in) {
        fclose(in);
    }
    return in != NULL;
}

/* The tc_explain text of a cached program: a text of the entry, after its length. */
static bool cache_show_program(const tci_disk *d, const char *name)
{
    tci_str file = {0}, text = {0};
    bool shown = false;
    size_t at = TCI_DISK_HEADER_BYTES + sizeof(int64_t);
    bool whole = tci_disk_read(d, name, TCI_DISK_PROGRAM, &file);
    for (; whole && !shown && at + 8 < file.n; at++) {
        int64_t n = 0;
        const char *word = file.text + at + strspn(file.text + at, "0123456789");
        memcpy(&n, file.text + at - sizeof(n), sizeof(n));
        shown = word > file.text + at && !strncmp(word, " launch", 7) && n > 0 &&
                n <= (int64_t)(file.n - at);
        if (shown) {
            tci_str explain = {0};
            tci_str_add_n(&explain, file.text + at, (size_t)n);
            tci_why_plain(&text, tci_str_text(&explain));
            tci_str_free(&explain);
        }
    }
    fputs(tci_str_text(&text), stdout);
    tci_str_free(&text);
    tci_str_free(&file);
    return shown;
}

/* One entry for a command. */
static void cache_entry(const tci_disk *d, const char *dir, const char *name, const char *command,
                        const char *arg, cache_sums *sums)
{
    char path[4096];
    struct stat st;
    bool asked = !strcmp(command, "show") && strstr(name, arg);
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (stat(path, &st)) {
        return; /* gone meanwhile */
    }
    sums->programs += name[3] == 'p';
    sums->kernels += name[3] == 'k';
    sums->objects += name[3] == 'm';
    sums->bytes += (long long)st.st_size;
    if (!strcmp(command, "list")) {
        printf("%-8s %10lld bytes  %6.1f hours  %s\n", entry_kind(name), (long long)st.st_size,
               difftime(time(NULL), st.st_mtime) / 3600, name);
    } else if (!strcmp(command, "clear")) {
        bool gone = unlink(path) == 0;
        sums->removed += gone;
        sums->kept += !gone;
    } else if (asked && name[3] == 'p') {
        sums->shown += cache_show_program(d, name);
    } else if (asked && strstr(name, ".c")) {
        sums->shown += cache_show(path);
    }
}

static int cache(const char *command, const char *arg)
{
    tci_disk d;
    cache_sums sums = {0};
    bool needs = !strcmp(command, "show") || !strcmp(command, "export");
    bool known = needs || !strcmp(command, "list") || !strcmp(command, "clear");
    if (!known || (needs && !arg)) {
        fputs("usage: tc cache list | clear | show HASH | export DIR\n", stderr);
        return 2;
    }
    if (!cache_open(&d)) {
        puts("there is no cache (TC_LOG=cache says why)");
        return 1;
    }
    const char *folder = d.dir.path.text;
    bool exports = !strcmp(command, "export"), shows = !strcmp(command, "show");
    DIR *dir = NULL;
    if (!exports || cache_export(folder, arg)) {
        folder = exports ? arg : folder;
        dir = opendir(folder);
    }
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (entry_kind(e->d_name)) {
            cache_entry(&d, folder, e->d_name, command, arg, &sums);
        }
    }
    bool ok = dir && (!shows || sums.shown);
    if (dir) {
        closedir(dir);
    }
    if (shows && !sums.shown) {
        fprintf(stderr,
                "no program or source '%s' is in %s: expected digits of a name of tc cache list\n",
                arg, folder);
    } else if (ok && !shows) {
        printf("%s: %d programs, %d kernels, %d objects and sources, %.1f MiB%s\n", folder,
               sums.programs, sums.kernels, sums.objects, (double)sums.bytes / (1 << 20),
               sums.kept      ? "; some cannot be removed"
               : sums.removed ? "; all removed"
                              : "");
    }
    tci_disk_close(&d);
    return !ok;
}

/* ---- report ---- */

static void link_folder(FILE *out, const char *dir, const char *below)
{
    char path[4096];
    struct dirent **names = NULL;
    snprintf(path, sizeof(path), "%s%s%s", dir, *below ? "/" : "", below);
    int n = scandir(path, &names, NULL, alphasort);
    fprintf(out, "<h2>%s</h2><ul>\n", *below ? below : "first program");
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        if (names[i]->d_type != DT_DIR && strcmp(name, "index.html")) {
            fprintf(out, "<li><a href=\"%s%s%s\">%s</a></li>\n", below, *below ? "/" : "", name,
                    name);
        }
    }
    fputs("</ul>\n", out);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_type == DT_DIR && names[i]->d_name[0] != '.' && !*below) {
            link_folder(out, dir, names[i]->d_name);
        }
        free(names[i]);
    }
    free(names);
}

static int report(const char *dir)
{
    char path[4096];
    struct stat st;
    if (stat(dir, &st) || !S_ISDIR(st.st_mode)) {
        fprintf(stderr, "'%s' is no folder: expected one that TC_DUMP wrote\n", dir);
        return 1;
    }
    snprintf(path, sizeof(path), "%s/index.html", dir);
    FILE *out = fopen(path, "w");
    if (!out) {
        fprintf(stderr, "'%s' cannot be written: %s\n", path, strerror(errno));
        return 1;
    }
    fputs("<!DOCTYPE html><meta charset=\"utf-8\"><title>tc dumps</title>\n", out);
    link_folder(out, dir, "");
    bool ok = fclose(out) == 0;
    printf("wrote %s\n", path);
    return !ok;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    if (!strcmp(command, "doctor")) {
        return doctor();
    }
    if (!strcmp(command, "cache") && argc > 2) {
        return cache(argv[2], argc > 3 ? argv[3] : NULL);
    }
    if (!strcmp(command, "report") && argc > 2) {
        return report(argv[2]);
    }
    fputs("usage: tc doctor | cache list|clear|show HASH|export DIR | report DUMPDIR\n", stderr);
    return 2;
}
