/* tc_engines.h - generated: edit the rooms under src/ and run make. SPDX-License-Identifier: MIT */
/* ---- src/tc_engines.h ---- */
/* src/tc_engines.h - amalgamation root of the optional header tc_engines.h: ONNX Runtime, OpenVINO,
 * XLA and TVM as backends that are selected by name. Includes tc_onnx.h, which writes the models
 * that they are given; tc.h does not depend on it. The implementation is compiled where
 * TC_IMPLEMENTATION is defined. */
#include "tc_onnx.h"

/* ---- src/engines/api.h ---- */
/* engines/api.h - declares external inference engines as backends that are selected by name: the
 * public API of tc_engines.h. */
#ifndef TC_ENGINES_API_H
#define TC_ENGINES_API_H


#ifdef __cplusplus
extern "C" {
#endif

/* Including this header where TC_IMPLEMENTATION is defined registers graph-level backends
 * (api/graph_backend.h) under these names, for options.backend and TC_BACKEND:
 *
 *     name      library                   options after ':'
 *     onnxrt    libonnxruntime.so 1.18+   cpu (default), cuda, tensorrt, openvino, dnnl
 *     openvino  libopenvino_c.so 2025.0+  cpu (default), gpu, npu, auto
 *     openxla   a PJRT plugin 0.50+       cpu (default), cuda, rocm, or the path of any plugin
 *     tvm       libtvm_runtime.so with    cpu (default)
 *               tvm-ffi 0.1
 *
 *     tc_options o = {.backend = "onnxrt"};
 *     if (tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &f) != TC_OK) puts(tc_error(y));
 *
 * No engine is needed to build. A library is searched for, when its name is requested, in the
 * directories of TC_ENGINES (separated by ':'), in Python's site-packages ($VIRTUAL_ENV, ~/.local,
 * /usr/local, /usr), then in the system's library directories. An option that has a '/' is the
 * path of the library ("onnxrt:/opt/ort/lib/libonnxruntime.so"). tvm compiles in a child process
 * by its Python tool, the python3 of the environment in which it was found. A library stays loaded.
 * A library that crashes while it is loaded does so in a child process, and is rejected. */

/* Compiles the graph (lists as tc_compile_fn takes them) for every backend that is usable here,
 * including engines, runs each for about `ms` milliseconds and sets *name to the fastest one, which
 * lives as long as the process. Inputs are zeros; sizes must be known. Results are not compared.
 *
 *     const char *name;
 *     if (tc_best_backend(TC_TENSORS(x), TC_TENSORS(y), 50, &name) == TC_OK) puts(name);
 *
 * TC_ERR_ARGUMENT: ms is not positive, or name is NULL; TC_ERR_SHAPE: a symbolic size;
 * TC_ERR_MEMORY; else the status of the last backend, if none compiled the graph. tc_error of an
 * output has the message. */
TC_API tc_status tc_best_backend_at(tc_tensors inputs, tc_tensors outputs, double ms,
                                    const char **name, tc_site here);
#define tc_best_backend(...) tc_best_backend_at(__VA_ARGS__, TC_HERE)
/* The same with the time of each: the entries of tc_backend_at(i) that were measured, best first,
 * into list[0..room); *n: how many there are. */
typedef struct tc_backend_time {
    const char *name;
    double us;       /* of a run: the median */
    double first_ms; /* of the compile */
} tc_backend_time;
TC_API tc_status tc_time_backends_at(tc_tensors inputs, tc_tensors outputs, double ms,
                                     tc_backend_time *list, int room, int *n, tc_site here);
#define tc_time_backends(...) tc_time_backends_at(__VA_ARGS__, TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif

#if defined(TC_IMPLEMENTATION) && !defined(TC_ENGINES_IMPLEMENTED)
#define TC_ENGINES_IMPLEMENTED

/* ---- src/base/impl_begin.h ---- */
/* base/impl_begin.h - opens the implementation section of an amalgamated header: strict floating
 * point, silenced warnings, POSIX declarations. Closed by base/impl_end.h.
 *
 * In: any compiler flags and warnings of the user's file. Out: a region with strict floating point,
 * without warnings, and with POSIX declared. The user's macros cannot collide: words in capitals
 * that the library uses begin with TC_ or TCI_, or are only pasted or stringized.
 *
 * Bit-identical results need strict floating point under all flags. GCC: the region has its own
 * optimize options. Clang: pragmas, which cannot undo -ffast-math, so that flag is refused.
 * Machines with excess precision are refused. Clang has no pragma for -fwrapv and
 * -fno-strict-aliasing, so the code relies on neither: signed sums do not overflow (the unit tests
 * are clean under Clang's UBSan; GCC's shows nothing, since -fwrapv turns its check off), and user
 * data of any type is moved by memcpy.
 *
 * The library is compiled again with each edit of the user's file, so compile time matters, and its
 * size is the user's. At -O0 the flags stay as they are. Otherwise it is optimised for size,
 * without those passes of GCC that take long and gain little; TCI_QUICK_BEGIN marks code that works
 * on elements and is optimised further. System headers (base/system_headers.h) come before the
 * change of options, so that their inline functions keep the user's options and can still be
 * inlined into the user's code. */

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Weverything"
#elif defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Waggregate-return"
#pragma GCC diagnostic ignored "-Warith-conversion"
#pragma GCC diagnostic ignored "-Wbad-function-cast"
#pragma GCC diagnostic ignored "-Wc++-compat"
#pragma GCC diagnostic ignored "-Wcast-align"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wclobbered"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wdate-time"
#pragma GCC diagnostic ignored "-Wdeclaration-after-statement"
#pragma GCC diagnostic ignored "-Wdouble-promotion"
#pragma GCC diagnostic ignored "-Wfloat-conversion"
#pragma GCC diagnostic ignored "-Wfloat-equal"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-truncation"
#pragma GCC diagnostic ignored "-Winline"
#pragma GCC diagnostic ignored "-Wjump-misses-init"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wmissing-declarations"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wnull-dereference"
#pragma GCC diagnostic ignored "-Woverlength-strings"
#pragma GCC diagnostic ignored "-Wpadded"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wredundant-decls"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=const"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=noreturn"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=pure"
#pragma GCC diagnostic ignored "-Wswitch-default"
#pragma GCC diagnostic ignored "-Wswitch-enum"
#pragma GCC diagnostic ignored "-Wtraditional-conversion"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wunsuffixed-float-constants"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-macros"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wvla"
#endif


/* 16 and 32 widen only what is narrower than that many bits: _Float16, where a processor has it. */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16 &&       \
    __FLT_EVAL_METHOD__ != 32
#error "tc: float and double must be evaluated in their own type (32-bit x86: -msse2 -mfpmath=sse)"
#endif

#if defined(__clang__)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "tc: compile the file with TC_IMPLEMENTATION without -ffast-math and -ffinite-math-only"
#endif
#pragma float_control(precise, on, push)
#ifndef TCI_KEEP_OPTIMIZE
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#endif
#pragma STDC FP_CONTRACT OFF

#elif defined(__GNUC__)
#pragma GCC push_options
#if defined(__OPTIMIZE__) && !defined(TCI_KEEP_OPTIMIZE)
#pragma GCC optimize("Os")
#pragma GCC optimize("no-tree-pre,no-code-hoisting,no-tree-vrp,no-tree-dominator-opts")
#pragma GCC optimize("no-tree-pta,no-ivopts,no-expensive-optimizations")
#pragma GCC optimize("no-schedule-insns2,no-rerun-cse-after-loop,no-cse-follow-jumps")
#pragma GCC optimize("no-ipa-cp,no-ipa-modref,no-ipa-sra,no-ipa-icf")
#pragma GCC optimize("no-tree-loop-optimize,no-tree-reassoc,no-tree-slsr,no-tree-sink,no-dse")
#pragma GCC optimize("no-if-conversion,no-if-conversion2,no-cprop-registers,no-shrink-wrap")
#endif
#pragma GCC optimize("fp-contract=off,no-fast-math,no-unsafe-math-optimizations")
#pragma GCC optimize("no-finite-math-only,no-associative-math,no-reciprocal-math,signed-zeros")
#pragma GCC optimize("trapping-math,no-cx-limited-range,wrapv,no-strict-aliasing")
#pragma GCC optimize("no-single-precision-constant")
#endif

/* ---- src/engines/load_library.c ---- */
/* engines/load_library.c - finds and loads the shared libraries of engines
 * (engines/load_library.h).
 *
 * A library may crash in its constructors, so it is first loaded in a child process whose output is
 * discarded. If the child cannot report (the host reaps it, or it hangs on a lock that another
 * thread held at the fork), the library is loaded anyway. If the child printed, output of this
 * process is discarded too while the library is loaded. */
/* ---- src/engines/load_library.h ---- */
/* engines/load_library.h - the shared library of an engine: located without loading it, then loaded
 * once.
 *
 * In: file names and default locations. Out: a handle, or a text that says what is missing. */
#ifndef TCI_ENGINES_LOAD_LIBRARY_H
#define TCI_ENGINES_LOAD_LIBRARY_H


typedef struct tci_engine_library {
    const char *file;    /* beginning of its name: "libonnxruntime.so" */
    const char *package; /* where it is below site-packages: "onnxruntime/capi" */
    const char *get;     /* how to get it: "pip install onnxruntime" */
    const char *silence; /* a variable that keeps its log off stderr, "NAME=VALUE", or NULL */
    tci_mutex lock;      /* guards what follows */
    bool tried;
    void *handle;                       /* NULL: it could not be loaded, */
    char path[480], why[TC_GRAPH_TEXT]; /* as `why` says */
} tci_engine_library;

/* True if option is empty or a word; false if it is a path. */
TCI_FN bool tci_engine_is_word(const char *option);
/* The path of the library, of the option or as found; false: text says what is missing. */
TCI_FN bool tci_engine_find(const tci_engine_library *l, const char *option, char path[480],
                            char text[TC_GRAPH_TEXT]);
/* The library, loaded at the first call; NULL: text says why not. One process has one of each. */
TCI_FN void *tci_engine_open(tci_engine_library *l, const char *option, char text[TC_GRAPH_TEXT]);
/* A row of a table of functions: where a function's address goes, and its name. */
typedef struct tci_engine_symbol {
    void *at;
    const char *name;
} tci_engine_symbol;
/* False: the library lacks one, as text says. */
TCI_FN bool tci_engine_symbols(const tci_engine_library *l, const tci_engine_symbol *rows, int n,
                               char text[TC_GRAPH_TEXT]);
/* From begin to end the process has one more variable, "NAME=VALUE", for code of an engine that
 * reads it and has no other option. The list of variables is replaced by a copy and put back, so
 * getenv in other threads reads one or the other. Nothing changes where the user has set NAME. */
typedef struct tci_engine_variable {
    char **list, **before; /* list NULL: nothing has changed */
} tci_engine_variable;
TCI_FN tci_engine_variable tci_engine_variable_begin(const char *variable);
TCI_FN void tci_engine_variable_end(tci_engine_variable *v);
/* A file of memory without a name, closed on exec; -1: none can be made. */
TCI_FN int tci_engine_unnamed_file(void);

#endif

/* ---- src/engines/load_library.c, continued ---- */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>


enum { TCI_ENGINE_SECONDS = 20 }; /* that a child may take to load a library */

TCI_FN bool tci_engine_is_word(const char *option)
{
    return !strchr(option, '/');
}

static bool tci_engine_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Order of file names by version: digits next to each other compare as one number. */
static int tci_engine_compare(const char *a, const char *b)
{
    const char *x = a, *y = b;
    while (*x && (*x == *y || (tci_engine_digit(*x) && tci_engine_digit(*y)))) {
        if (!tci_engine_digit(*x)) {
            x++, y++;
            continue;
        }
        char *end_x, *end_y;
        unsigned long long n = strtoull(x, &end_x, 10), m = strtoull(y, &end_y, 10);
        if (n != m) {
            return n < m ? -1 : 1;
        }
        x = end_x, y = end_y;
    }
    return *x != *y ? (unsigned char)*x - (unsigned char)*y : strcmp(a, b);
}

/* Replaces name by the newest entry of a directory that begins so and is older than name, if name
 * is not empty; false: there is none. */
static bool tci_engine_next(const char *dir, const char *begins, char name[256])
{
    char best[256] = "";
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!strncmp(e->d_name, begins, strlen(begins)) &&
            (!name[0] || tci_engine_compare(e->d_name, name) < 0) &&
            tci_engine_compare(e->d_name, best) > 0) {
            snprintf(best, sizeof(best), "%s", e->d_name);
        }
    }
    if (d) {
        closedir(d);
    }
    memcpy(name, best, sizeof(best));
    return best[0];
}

/* The newest library in a directory: its path. */
static bool tci_engine_in_directory(const tci_engine_library *l, const char *dir, char path[480])
{
    char name[256] = "";
    return tci_engine_next(dir, l->file, name) && snprintf(path, 480, "%s/%s", dir, name) < 480;
}

/* Of a directory: the library itself, or below a package of it. */
static bool tci_engine_in(const tci_engine_library *l, const char *dir, size_t n, char path[480])
{
    char own[480], package[480];
    return n && snprintf(own, 480, "%.*s", (int)n, dir) < 480 &&
           (tci_engine_in_directory(l, own, path) ||
            (snprintf(package, 480, "%s/%s", own, l->package) < 480 &&
             tci_engine_in_directory(l, package, path)));
}

/* Of a prefix with Python packages: PREFIX/lib/python3.X/site-packages, of the newest Python that
 * has the library. */
static bool tci_engine_in_python(const tci_engine_library *l, const char *prefix, char path[480])
{
    static const char *const folders[] = {"site-packages", "dist-packages"};
    char lib[480], dir[480], python[256] = "";
    bool found = false;
    if (!prefix || !prefix[0] || snprintf(lib, 480, "%s/lib", prefix) >= 480) {
        return false;
    }
    while (!found && tci_engine_next(lib, "python3", python)) {
        for (int i = 0; i < 2 && !found; i++) {
            int n = snprintf(dir, 480, "%s/%s/%s", lib, python, folders[i]);
            found = n < 480 && tci_engine_in(l, dir, (size_t)n, path);
        }
    }
    return found;
}

static bool tci_engine_look(const tci_engine_library *l, char path[480])
{
    static const char *const dirs[] = {"/usr/local/lib", "/usr/lib", "/usr/lib64",
                                       "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"};
    const char *at = tci_env_get(TCI_ENV_ENGINES), *home = tci_env_get(TCI_ENV_HOME);
    bool found = false;
    for (size_t n; at && *at && !found; at += n + (at[n] == ':')) {
        n = strcspn(at, ":");
        found = tci_engine_in(l, at, n, path);
    }
    char local[480] = "";
    snprintf(local, sizeof(local), home ? "%s/.local" : "", home ? home : "");
    found = found || tci_engine_in_python(l, tci_env_get(TCI_ENV_VIRTUAL_ENV), path) ||
            tci_engine_in_python(l, local, path) || tci_engine_in_python(l, "/usr/local", path) ||
            tci_engine_in_python(l, "/usr", path);
    for (int i = 0; i < TCI_COUNT(dirs) && !found; i++) {
        found = tci_engine_in_directory(l, dirs[i], path);
    }
    return found;
}

TCI_FN bool tci_engine_find(const tci_engine_library *l, const char *option, char path[480],
                            char text[TC_GRAPH_TEXT])
{
    bool found = true;
    if (!tci_engine_is_word(option)) {
        found = snprintf(path, 480, "%s", option) < 480 && tci_os_stat(path, NULL, NULL);
        snprintf(text, TC_GRAPH_TEXT, found ? "%.400s" : "there is no file '%.400s'", path);
    } else if (tci_engine_look(l, path)) {
        snprintf(text, TC_GRAPH_TEXT, "%.480s", path);
    } else {
        found = false;
        snprintf(text, TC_GRAPH_TEXT,
                 "%s is not in TC_ENGINES, in Python's site-packages or in the system's library "
                 "directories: %s, then set TC_ENGINES to its site-packages",
                 l->file, l->get);
    }
    return found;
}

/* ---- variables ---- */

/* A list that took the place of `environ`: it stays allocated, since other threads may read it. */
typedef struct tci_engine_list {
    struct tci_engine_list *next;
    char *rows[];
} tci_engine_list;

static tci_mutex tci_engine_environ = TCI_MUTEX_INIT; /* from begin to end */
static tci_engine_list *tci_engine_lists;

TCI_FN tci_engine_variable tci_engine_variable_begin(const char *variable)
{
    char name[64];
    size_t n = 0, length = variable ? strlen(variable) + 1 : 0;
    tci_engine_variable v = {NULL, NULL};
    pthread_mutex_lock(&tci_engine_environ);
    snprintf(name, sizeof(name), "%.*s", variable ? (int)strcspn(variable, "=") : 0, variable);
    if (!variable || tci_os_getenv(name)) {
        return v;
    }
    while (environ && environ[n]) {
        n++;
    }
    tci_engine_list *l = tci_heap_get(sizeof(*l) + sizeof(char *) * (n + 2) + length);
    if (l) {
        l->next = tci_engine_lists;
        l->rows[0] = memcpy(l->rows + n + 2, variable, length);
        memcpy(l->rows + 1, environ, sizeof(char *) * n);
        l->rows[n + 1] = NULL;
        tci_engine_lists = l;
        v = (tci_engine_variable){l->rows, environ};
        __atomic_store_n(&environ, v.list, __ATOMIC_RELEASE);
    }
    return v;
}

TCI_FN void tci_engine_variable_end(tci_engine_variable *v)
{
    char **list = v->list;
    if (list) { /* another list is there if a thread has called setenv meanwhile: it stays */
        __atomic_compare_exchange_n(&environ, &list, v->before, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&tci_engine_environ);
}

/* ---- loading ---- */

TCI_FN int tci_engine_unnamed_file(void)
{
    const int close_on_exec = 1; /* MFD_CLOEXEC */
    return (int)syscall(SYS_memfd_create, "tc-engine", close_on_exec);
}

/* stdout and stderr to that file; it is closed. */
static void tci_engine_divert(int to)
{
    if (to >= 0) {
        dup2(to, STDOUT_FILENO);
        dup2(to, STDERR_FILENO);
        close(to);
    }
}

/* In the child: loads the library, with its output in the file, and ends. */
static void tci_engine_try(const char *path, int output)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGALRM};
    tci_engine_divert(output);
    for (int i = 0; i < TCI_COUNT(signals); i++) {
        signal(signals[i], SIG_DFL);
    }
    alarm(TCI_ENGINE_SECONDS);
    (void)dlopen(path, RTLD_NOW | RTLD_LOCAL);
    fflush(stdout);
    raise(SIGKILL); /* it went well: this ends the child alone, without its exit handlers */
}

/* The signal that ends a child which loads the library; 0: none that says anything about it.
 * *prints: the child wrote to stdout or stderr. */
static int tci_engine_crash(const char *path, bool *prints)
{
    int status = 0, output = tci_engine_unnamed_file();
    fflush(stdout); /* not by the child */
    pid_t child = fork();
    if (child == 0) {
        tci_engine_try(path, output < 0 ? open("/dev/null", O_WRONLY) : output);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            status = 0;
            break;
        }
    }
    struct stat st;
    *prints = output >= 0 && fstat(output, &st) == 0 && st.st_size > 0;
    if (output >= 0) {
        close(output);
    }
    int number = child > 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return number == SIGKILL || number == SIGALRM ? 0 : number;
}

/* dlopen, with the output of the process discarded until it is done. */
static void *tci_engine_open_silently(const char *path, char why[256])
{
    fflush(stdout);
    int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    int err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    bool kept = out >= 0 && err >= 0; /* else one is closed already */
    if (kept) {
        tci_engine_divert(open("/dev/null", O_WRONLY | O_CLOEXEC));
    }
    void *handle = tci_os_dlopen(path, why);
    fflush(stdout);
    if (kept) {
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
    }
    for (int i = 0; i < 2; i++) {
        int fd = i ? err : out;
        if (fd >= 0) {
            close(fd);
        }
    }
    return handle;
}

static void tci_engine_load(tci_engine_library *l)
{
    char why[256];
    bool prints = false;
    int number = tci_engine_crash(l->path, &prints);
    if (number) {
        snprintf(l->why, sizeof(l->why), "'%.300s' crashes while it is loaded (signal %d)", l->path,
                 number);
        return;
    }
    tci_engine_variable v = tci_engine_variable_begin(l->silence);
    l->handle = prints ? tci_engine_open_silently(l->path, why) : tci_os_dlopen(l->path, why);
    tci_engine_variable_end(&v);
    if (!l->handle) {
        snprintf(l->why, sizeof(l->why), "'%.200s' cannot be loaded: %.255s", l->path, why);
    }
}

TCI_FN void *tci_engine_open(tci_engine_library *l, const char *option, char text[TC_GRAPH_TEXT])
{
    char path[480];
    void *handle = NULL;
    if (!tci_engine_find(l, option, path, text)) {
        return NULL;
    }
    pthread_mutex_lock(&l->lock);
    if (!l->tried || (!l->handle && strcmp(l->path, path))) {
        l->tried = true;
        memcpy(l->path, path, sizeof(path));
        tci_engine_load(l);
    }
    if (l->handle && strcmp(l->path, path)) {
        snprintf(text, TC_GRAPH_TEXT, "the process has loaded '%.400s' already", l->path);
    } else if (!l->handle) {
        snprintf(text, TC_GRAPH_TEXT, "%s", l->why);
    } else {
        handle = l->handle;
    }
    pthread_mutex_unlock(&l->lock);
    return handle;
}

TCI_FN bool tci_engine_symbols(const tci_engine_library *l, const tci_engine_symbol *rows, int n,
                               char text[TC_GRAPH_TEXT])
{
    for (int i = 0; i < n; i++) {
        void *symbol = tci_os_dlsym(l->handle, rows[i].name);
        memcpy(rows[i].at, &symbol, sizeof(symbol));
        if (!symbol) {
            snprintf(text, TC_GRAPH_TEXT, "'%.300s' lacks %s: it is too old", l->path,
                     rows[i].name);
            return false;
        }
    }
    return true;
}
/* ---- src/engines/onnxrt.c ---- */
/* engines/onnxrt.c - ONNX Runtime as a graph-level backend.
 *
 * In: an ONNX model. Out: a session, whose runs read and write the user's memory. The C API of ONNX
 * Runtime is a table of functions to which releases only append (onnxruntime_c_api.h, OrtApi), so
 * indices into the table suffice and no header is needed. Its log is discarded: errors are returned
 * as text. */
/* ---- src/engines/onnxrt.h ---- */
/* engines/onnxrt.h - ONNX Runtime and its execution providers as a graph-level backend. */
#ifndef TCI_ENGINES_ONNXRT_H
#define TCI_ENGINES_ONNXRT_H


TCI_FN const tc_graph_backend *tci_onnxrt_backend(void);

#endif

/* ---- src/engines/onnxrt.c, continued ---- */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* X(field, place, result, parameters): the rows of OrtApi in use. A status is NULL where all is
 * well. */
#define TCI_ORT_ROWS(X)                                                                            \
    X(message, 2, const char *, (void *status))                                                    \
    X(env_make, 4, void *, (void (*log)(void *, int, const char *, const char *, const char *,     \
                                        const char *), void *user, int level, const char *name,    \
                            void **env))                                                           \
    X(session_make, 8, void *, (void *env, const void *model, size_t n, void *options,             \
                                void **session))                                                   \
    X(run, 9, void *, (void *session, void *how, const char *const *inputs, void *const *values,   \
                       size_t n_inputs, const char *const *outputs, size_t n_outputs,              \
                       void **results))                                                            \
    X(options_make, 10, void *, (void **options))                                                  \
    X(intra_threads, 24, void *, (void *options, int threads))                                     \
    X(inter_threads, 25, void *, (void *options, int threads))                                     \
    X(tensor_make, 49, void *, (void *memory, void *data, size_t bytes, const int64_t *sizes,      \
                                size_t rank, int type, void **value))                              \
    X(memory_make, 69, void *, (int allocator, int kind, void **memory))                           \
    X(status_free, 93, void, (void *status))                                                       \
    X(session_free, 95, void, (void *session))                                                     \
    X(value_free, 96, void, (void *value))                                                         \
    X(options_free, 100, void, (void *options))                                                    \
    X(providers, 125, void *, (char ***names, int *n))                                             \
    X(providers_free, 126, void *, (char **names, int n))                                          \
    X(tensorrt_use, 170, void *, (void *options, const void *provider))                            \
    X(tensorrt_make, 171, void *, (void **provider))                                               \
    X(tensorrt_free, 174, void, (void *provider))                                                  \
    X(cuda_use, 204, void *, (void *options, const void *provider))                                \
    X(cuda_make, 205, void *, (void **provider))                                                   \
    X(cuda_free, 208, void, (void *provider))                                                      \
    X(dnnl_use, 239, void *, (void *options, const void *provider))                                \
    X(dnnl_make, 240, void *, (void **provider))                                                   \
    X(dnnl_free, 243, void, (void *provider))                                                      \
    X(openvino_use, 275, void *, (void *options, const char *const *keys,                          \
                                  const char *const *values, size_t n))

typedef struct tci_ort_api {
#define TCI_ROW(field, place, result, parameters) result(*field) parameters;
    TCI_ORT_ROWS(TCI_ROW)
#undef TCI_ROW
} tci_ort_api;

static tci_engine_library tci_ort_library = {.file = "libonnxruntime.so",
                                             .package = "onnxruntime/capi",
                                             .get = "pip install onnxruntime",
                                             .lock = TCI_MUTEX_INIT};
static struct {
    tci_mutex lock;
    bool ready;
    tci_ort_api api;
    char version[32];
    void *env, *memory; /* for the rest of the process */
} tci_ort = {.lock = TCI_MUTEX_INIT};

typedef struct tci_ort_session {
    void *session;
    char **names; /* of inputs, then outputs */
    int n_names;
} tci_ort_session;

static bool tci_ort_fails(void *status, char text[TC_GRAPH_TEXT])
{
    if (status) {
        snprintf(text, TC_GRAPH_TEXT, "%s", tci_ort.api.message(status));
        tci_ort.api.status_free(status);
    }
    return status != NULL;
}

static void tci_ort_log(void *user, int level, const char *category, const char *name,
                        const char *place, const char *text)
{
    (void)user, (void)level, (void)category, (void)name, (void)place, (void)text;
}

/* ---- the library ---- */

/* Caller holds the lock. */
static bool tci_ort_start(char text[TC_GRAPH_TEXT])
{
    enum { TCI_ORT_LEAST = 18, TCI_ORT_FATAL = 4, TCI_ORT_ARENA = 1, TCI_ORT_DEFAULT = 0 };
    typedef struct {
        const void *const *(*get)(uint32_t version);
        const char *(*version)(void);
    } tci_ort_base;
    const tci_ort_base *(*base)(void) = NULL;
    const tci_engine_symbol rows[] = {{&base, "OrtGetApiBase"}};
    if (!tci_engine_symbols(&tci_ort_library, rows, 1, text)) {
        return false;
    }
    snprintf(tci_ort.version, sizeof(tci_ort.version), "%.31s", base()->version());
    const char *dot = strchr(tci_ort.version, '.');
    const void *const *table = base()->get(1);
    if (atoi(tci_ort.version) < 1 || !dot || !table ||
        (atoi(tci_ort.version) == 1 && atoi(dot + 1) < TCI_ORT_LEAST)) {
        snprintf(text, TC_GRAPH_TEXT, "onnxruntime %s is too old: expected 1.%d or later",
                 tci_ort.version, (int)TCI_ORT_LEAST);
        return false;
    }
#define TCI_ROW(field, place, result, parameters)                                                  \
    memcpy(&tci_ort.api.field, &table[place], sizeof(tci_ort.api.field));
    TCI_ORT_ROWS(TCI_ROW)
#undef TCI_ROW
    tci_ort.ready =
        !tci_ort_fails(tci_ort.api.env_make(tci_ort_log, NULL, TCI_ORT_FATAL, "tc", &tci_ort.env),
                       text) &&
        !tci_ort_fails(tci_ort.api.memory_make(TCI_ORT_ARENA, TCI_ORT_DEFAULT, &tci_ort.memory),
                       text);
    return tci_ort.ready;
}

static bool tci_ort_open(const char *option, char text[TC_GRAPH_TEXT])
{
    bool open = tci_engine_open(&tci_ort_library, option, text) != NULL;
    pthread_mutex_lock(&tci_ort.lock);
    open = open && (tci_ort.ready || tci_ort_start(text));
    pthread_mutex_unlock(&tci_ort.lock);
    return open;
}

/* ---- providers ---- */

/* X(option, onnxruntime's name, package): a provider other than the CPU's. */
#define TCI_ORT_PROVIDERS(X)                                                                       \
    X("cuda", "CUDAExecutionProvider", "onnxruntime-gpu")                                          \
    X("tensorrt", "TensorrtExecutionProvider", "onnxruntime-gpu")                                  \
    X("openvino", "OpenVINOExecutionProvider", "onnxruntime-openvino")                             \
    X("dnnl", "DnnlExecutionProvider", "an onnxruntime built with --use_dnnl")

static bool tci_ort_is_cpu(const char *option)
{
    return !option[0] || !strcmp(option, "cpu") || !tci_engine_is_word(option);
}

/* True if the library has the provider of the option; else text says what it has. */
static bool tci_ort_has(const char *option, char text[TC_GRAPH_TEXT])
{
    static const char *const rows[][3] = {
#define TCI_ROW(option, name, package) {option, name, package},
        TCI_ORT_PROVIDERS(TCI_ROW)
#undef TCI_ROW
    };
    char **names = NULL, had[256] = "";
    int n = 0;
    const char *const *row = NULL;
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        row = strcmp(rows[i][0], option) ? row : rows[i];
    }
    if (!row) {
        snprintf(text, TC_GRAPH_TEXT,
                 "there is no provider '%.60s': expected cpu, cuda, tensorrt, "
                 "openvino, dnnl or the path of the library",
                 option);
        return false;
    }
    if (tci_ort_fails(tci_ort.api.providers(&names, &n), text)) {
        return false;
    }
    bool has = false;
    for (int i = 0; i < n; i++) {
        size_t at = strlen(had);
        snprintf(had + at, sizeof(had) - at, "%s%s", i ? ", " : "", names[i]);
        has = has || !strcmp(names[i], row[1]);
    }
    tci_ort_fails(tci_ort.api.providers_free(names, n), text);
    if (!has) {
        snprintf(text, TC_GRAPH_TEXT, "onnxruntime %s has no %s, but %s: %s has it",
                 tci_ort.version, row[1], had, row[2]);
    }
    return has;
}

/* A provider's record of options, with its defaults; the session's options keep a copy. */
static bool tci_ort_add(void *options, void *(*make)(void **), void *(*use)(void *, const void *),
                        void (*drop)(void *), char text[TC_GRAPH_TEXT])
{
    void *provider = NULL;
    if (tci_ort_fails(make(&provider), text)) {
        return false;
    }
    bool used = !tci_ort_fails(use(options, provider), text);
    drop(provider);
    return used;
}

static bool tci_ort_use(void *options, const char *option, char text[TC_GRAPH_TEXT])
{
    const tci_ort_api *a = &tci_ort.api;
    if (!strcmp(option, "cuda")) {
        return tci_ort_add(options, a->cuda_make, a->cuda_use, a->cuda_free, text);
    } else if (!strcmp(option, "tensorrt")) {
        return tci_ort_add(options, a->tensorrt_make, a->tensorrt_use, a->tensorrt_free, text);
    } else if (!strcmp(option, "dnnl")) {
        return tci_ort_add(options, a->dnnl_make, a->dnnl_use, a->dnnl_free, text);
    } else if (!strcmp(option, "openvino")) {
        static const char *const keys[] = {"device_type"}, *const values[] = {"CPU"};
        return !tci_ort_fails(a->openvino_use(options, keys, values, 1), text);
    }
    return true;
}

/* ---- the backend ---- */

static bool tci_ort_find(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    char path[480];
    (void)user;
    return tci_engine_find(&tci_ort_library, option, path, text);
}

static tc_status tci_ort_version(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    (void)user;
    if (!tci_ort_open(option, text) || (!tci_ort_is_cpu(option) && !tci_ort_has(option, text))) {
        return TC_ERR_BACKEND;
    }
    snprintf(text, TC_GRAPH_TEXT, "onnxruntime %s, provider %s", tci_ort.version,
             tci_ort_is_cpu(option) ? "cpu" : option);
    return TC_OK;
}

static void tci_ort_free(void *user, void *compiled)
{
    tci_ort_session *s = compiled;
    (void)user;
    if (s->session) {
        tci_ort.api.session_free(s->session);
    }
    tci_heap_free(s);
}

/* One block: the session, pointers to the names, the names. */
static tci_ort_session *tci_ort_make(const tc_graph_model *m)
{
    int n = m->n_inputs + m->n_outputs;
    size_t bytes = sizeof(tci_ort_session) + sizeof(char *) * (size_t)n;
    for (int i = 0; i < n; i++) {
        bytes += strlen(i < m->n_inputs ? m->inputs[i].name : m->outputs[i - m->n_inputs].name) + 1;
    }
    tci_ort_session *s = tci_heap_get(bytes);
    char *at = s ? (char *)(s + 1) + sizeof(char *) * (size_t)n : NULL;
    if (s) {
        s->names = (char **)(s + 1);
        s->n_names = n;
    }
    for (int i = 0; i < n && s; i++) {
        const char *name = i < m->n_inputs ? m->inputs[i].name : m->outputs[i - m->n_inputs].name;
        size_t length = strlen(name) + 1;
        s->names[i] = memcpy(at, name, length);
        at += length;
    }
    return s;
}

static tc_status tci_ort_compile(void *user, const tc_graph_model *m, void **compiled,
                                 char text[TC_GRAPH_TEXT])
{
    const tci_ort_api *a = &tci_ort.api;
    tci_ort_session *s = tci_ort_make(m);
    void *options = NULL;
    (void)user;
    if (!s) {
        return TC_ERR_MEMORY;
    }
    bool made = !tci_ort_fails(a->options_make(&options), text) &&
                !tci_ort_fails(a->intra_threads(options, m->threads), text) &&
                !tci_ort_fails(a->inter_threads(options, 1), text) &&
                tci_ort_use(options, m->option, text) &&
                !tci_ort_fails(a->session_make(tci_ort.env, m->bytes, m->n, options, &s->session),
                               text);
    if (options) {
        a->options_free(options);
    }
    if (!made) {
        tci_ort_free(NULL, s);
        return TC_ERR_BACKEND;
    }
    *compiled = s;
    return TC_OK;
}

/* ONNX's number of a dtype; -1: it has none. */
static int tci_ort_type(tc_dtype t)
{
    switch (t) {
    case TC_F32: return 1;
    case TC_U8: return 2;
    case TC_I8: return 3;
    case TC_U16: return 4;
    case TC_I16: return 5;
    case TC_I32: return 6;
    case TC_I64: return 7;
    case TC_BOOL: return 9;
    case TC_F16: return 10;
    case TC_F64: return 11;
    case TC_U32: return 12;
    case TC_U64: return 13;
    case TC_BF16: return 16;
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
    return -1;
}

/* A value of the engine over an array's memory. */
static bool tci_ort_wrap(const tc_custom_array *a, void **value, char text[TC_GRAPH_TEXT])
{
    static char nothing[8];
    size_t bytes = (size_t)(a->n * tc_dtype_size(a->dtype));
    return !tci_ort_fails(tci_ort.api.tensor_make(tci_ort.memory, bytes ? a->data : nothing, bytes,
                                                  a->sizes, (size_t)a->rank, tci_ort_type(a->dtype),
                                                  value),
                          text);
}

static tc_status tci_ort_run(void *user, void *compiled, const tc_custom_array *inputs,
                             int n_inputs, tc_custom_array *outputs, int n_outputs,
                             char text[TC_GRAPH_TEXT])
{
    tci_ort_session *s = compiled;
    const char *const *names = (const char *const *)s->names;
    int n = n_inputs + n_outputs;
    void **values = tci_heap_get(sizeof(void *) * (size_t)n);
    bool done = values != NULL;
    (void)user;
    for (int i = 0; i < n && done; i++) {
        const tc_custom_array *a = i < n_inputs ? &inputs[i] : &outputs[i - n_inputs];
        done = tci_ort_wrap(a, &values[i], text);
    }
    done = done &&
           !tci_ort_fails(tci_ort.api.run(s->session, NULL, names, values, (size_t)n_inputs,
                                          names + n_inputs, (size_t)n_outputs, values + n_inputs),
                          text);
    for (int i = 0; i < n && values; i++) {
        if (values[i]) {
            tci_ort.api.value_free(values[i]);
        }
    }
    tci_heap_free(values);
    return done ? TC_OK : TC_ERR_BACKEND;
}

TCI_FN const tc_graph_backend *tci_onnxrt_backend(void)
{
    static const tc_graph_backend backend = {.name = "onnxrt",
                                             .format = tc_onnx_format,
                                             .find = tci_ort_find,
                                             .version = tci_ort_version,
                                             .compile = tci_ort_compile,
                                             .run = tci_ort_run,
                                             .free = tci_ort_free};
    return &backend;
}
/* ---- src/engines/openvino.c ---- */
/* engines/openvino.c - OpenVINO as a graph-level backend.
 *
 * In: an ONNX model. Out: a compiled model; each run takes an inference request from a pool. Floats
 * are computed in f32 even if the processor has bf16 (INFERENCE_PRECISION_HINT). The cached blob is
 * OpenVINO's own format (export_model). */
/* ---- src/engines/openvino.h ---- */
/* engines/openvino.h - OpenVINO as a graph-level backend. */
#ifndef TCI_ENGINES_OPENVINO_H
#define TCI_ENGINES_OPENVINO_H


TCI_FN const tc_graph_backend *tci_openvino_backend(void);

#endif

/* ---- src/engines/openvino.c, continued ---- */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


typedef struct tci_ov_shape { /* ov_shape_t */
    int64_t rank;
    int64_t *sizes;
} tci_ov_shape;
typedef struct tci_ov_version { /* ov_version_t */
    const char *build, *description;
} tci_ov_version;

/* X(field, symbol, parameters): functions that return a status, 0 where all is well. */
#define TCI_OV_ROWS(X)                                                                             \
    X(core_make, "ov_core_create", (void **core))                                                  \
    X(property, "ov_core_set_property", (void *core, const char *device, ...))                     \
    X(read, "ov_core_read_model_from_memory_buffer",                                               \
      (void *core, const char *model, size_t n, void *weights, void **read))                       \
    X(compile, "ov_core_compile_model",                                                            \
      (void *core, void *model, const char *device, size_t n_words, void **compiled, ...))         \
    X(import, "ov_core_import_model",                                                              \
      (void *core, const char *blob, size_t n, const char *device, void **compiled))               \
    X(export, "ov_compiled_model_export_model", (void *compiled, const char *path))                \
    X(request_make, "ov_compiled_model_create_infer_request", (void *compiled, void **request))    \
    X(tensor_make, "ov_tensor_create_from_host_ptr",                                               \
      (int type, tci_ov_shape shape, void *data, void **tensor))                                   \
    X(tensor_bytes, "ov_tensor_get_byte_size", (void *tensor, size_t *bytes))                      \
    X(set, "ov_infer_request_set_tensor", (void *request, const char *name, void *tensor))         \
    X(infer, "ov_infer_request_infer", (void *request))                                            \
    X(input, "ov_compiled_model_input_by_name",                                                    \
      (void *compiled, const char *name, void **port))                                             \
    X(version, "ov_get_openvino_version", (tci_ov_version *version))

/* X(field, symbol, result, parameters): the others. */
#define TCI_OV_OTHER_ROWS(X)                                                                       \
    X(error, "ov_get_error_info", const char *, (int status))                                      \
    X(last, "ov_get_last_err_msg", const char *, (void))                                           \
    X(model_free, "ov_model_free", void, (void *model))                                            \
    X(compiled_free, "ov_compiled_model_free", void, (void *compiled))                             \
    X(request_free, "ov_infer_request_free", void, (void *request))                                \
    X(tensor_free, "ov_tensor_free", void, (void *tensor))                                         \
    X(port_free, "ov_output_const_port_free", void, (void *port))

static tci_engine_library tci_ov_library = {.file = "libopenvino_c.so",
                                            .package = "openvino/libs",
                                            .get = "pip install openvino",
                                            .lock = TCI_MUTEX_INIT};
static struct {
    tci_mutex lock;
    bool ready;
#define TCI_ROW(field, symbol, parameters) int(*field) parameters;
    TCI_OV_ROWS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(field, symbol, result, parameters) result(*field) parameters;
    TCI_OV_OTHER_ROWS(TCI_ROW)
#undef TCI_ROW
    void *core; /* for the rest of the process */
    char build[64];
} tci_ov = {.lock = TCI_MUTEX_INIT};

typedef struct tci_ov_request {
    struct tci_ov_request *next;
    void *request;
} tci_ov_request;

typedef struct tci_ov_program {
    tci_mutex lock;
    tci_ov_request *idle;
    void *compiled;
    void *blob;  /* aligned heap: what it was imported from, or was asked for; or NULL */
    bool *takes; /* of each input: false: nothing reads it, and OpenVINO dropped it */
} tci_ov_program;

static bool tci_ov_fails(int status, char text[TC_GRAPH_TEXT])
{
    if (status) {
        const char *last = tci_ov.last();
        snprintf(text, TC_GRAPH_TEXT, "%s%s%.400s", tci_ov.error(status), last && *last ? ": " : "",
                 last ? last : "");
    }
    return status != 0;
}

/* ov_element_type_e since 2025.0; -1: it has none. */
static int tci_ov_type(tc_dtype t)
{
    switch (t) {
    case TC_BOOL: return 1;
    case TC_BF16: return 2;
    case TC_F16: return 3;
    case TC_F32: return 4;
    case TC_F64: return 5;
    case TC_I8: return 7;
    case TC_I16: return 8;
    case TC_I32: return 9;
    case TC_I64: return 10;
    case TC_U8: return 16;
    case TC_U16: return 17;
    case TC_U32: return 18;
    case TC_U64: return 19;
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
    return -1;
}

/* ---- the library ---- */

static bool tci_ov_wrap(const tc_custom_array *a, void **tensor, char text[TC_GRAPH_TEXT])
{
    static int64_t nothing[1];
    tci_ov_shape shape = {a->rank, a->sizes};
    return !tci_ov_fails(
        tci_ov.tensor_make(tci_ov_type(a->dtype), shape, a->n ? a->data : nothing, tensor), text);
}

/* Numbers of dtypes changed between releases: asks one of each size. */
static bool tci_ov_knows_types(char text[TC_GRAPH_TEXT])
{
    static const tc_dtype asked[] = {TC_F32, TC_F64, TC_I16, TC_I64, TC_U8, TC_U16, TC_U64};
    int64_t one = 1, data[1] = {0};
    bool known = true;
    for (int i = 0; i < TCI_COUNT(asked) && known; i++) {
        const tc_custom_array a = {data, asked[i], 1, &one, 1};
        void *tensor = NULL;
        size_t bytes = 0;
        known = tci_ov_wrap(&a, &tensor, text) && !tci_ov.tensor_bytes(tensor, &bytes) &&
                bytes == (size_t)tc_dtype_size(asked[i]);
        if (tensor) {
            tci_ov.tensor_free(tensor);
        }
    }
    if (!known) {
        snprintf(text, TC_GRAPH_TEXT, "OpenVINO %s is too old: expected 2025.0 or later",
                 tci_ov.build);
    }
    return known;
}

/* Caller holds the lock. */
static bool tci_ov_start(char text[TC_GRAPH_TEXT])
{
    const tci_engine_symbol rows[] = {
#define TCI_ROW(field, symbol, ...) {&tci_ov.field, symbol},
        TCI_OV_ROWS(TCI_ROW) TCI_OV_OTHER_ROWS(TCI_ROW)
#undef TCI_ROW
    };
    tci_ov_version version = {NULL, NULL};
    if (!tci_engine_symbols(&tci_ov_library, rows, TCI_COUNT(rows), text)) {
        return false;
    }
    if (!tci_ov.version(&version) && version.build) {
        size_t n = strcspn(version.build, "-");
        snprintf(tci_ov.build, sizeof(tci_ov.build), "%.*s", (int)TCI_MIN(n, (size_t)40),
                 version.build);
    }
    tci_ov.ready = tci_ov_knows_types(text) && !tci_ov_fails(tci_ov.core_make(&tci_ov.core), text);
    return tci_ov.ready;
}

static bool tci_ov_open(const char *option, char text[TC_GRAPH_TEXT])
{
    bool open = tci_engine_open(&tci_ov_library, option, text) != NULL;
    pthread_mutex_lock(&tci_ov.lock);
    open = open && (tci_ov.ready || tci_ov_start(text));
    pthread_mutex_unlock(&tci_ov.lock);
    return open;
}

/* OpenVINO's name of the device: "GPU" of "gpu". */
static void tci_ov_device(const char *option, char device[64])
{
    bool word = option[0] && tci_engine_is_word(option);
    snprintf(device, 64, "%s", word ? option : "CPU");
    for (char *c = device; *c; c++) {
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    }
}

/* ---- the backend ---- */

static bool tci_ov_find(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    char path[480];
    (void)user;
    return tci_engine_find(&tci_ov_library, option, path, text);
}

static tc_status tci_ov_say_version(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    char device[64];
    (void)user;
    tci_ov_device(option, device);
    if (!tci_ov_open(option, text)) {
        return TC_ERR_BACKEND;
    }
    snprintf(text, TC_GRAPH_TEXT, "OpenVINO %s, device %s", tci_ov.build, device);
    return TC_OK;
}

/* The CPU plugin computes f64 in f32, u64 in i32, and short integers saturating, without a word. */
static bool tci_ov_supports(void *user, const char *op, tc_dtype dtype)
{
    (void)user, (void)op;
    return dtype == TC_F32 || dtype == TC_F16 || dtype == TC_BF16 || dtype == TC_I32 ||
           dtype == TC_I64 || dtype == TC_BOOL;
}

static void tci_ov_free(void *user, void *compiled)
{
    tci_ov_program *p = compiled;
    (void)user;
    for (tci_ov_request *r = p->idle, *next; r; r = next) {
        next = r->next;
        tci_ov.request_free(r->request);
        tci_heap_free(r);
    }
    if (p->compiled) {
        tci_ov.compiled_free(p->compiled);
    }
    tci_heap_free_aligned(p->blob);
    tci_heap_free(p);
}

static bool tci_ov_read_and_compile(const tc_graph_model *m, const char *device, void **compiled,
                                    char text[TC_GRAPH_TEXT])
{
    void *model = NULL;
    if (tci_ov_fails(tci_ov.read(tci_ov.core, m->bytes, m->n, NULL, &model), text)) {
        return false;
    }
    bool made = !tci_ov_fails(tci_ov.compile(tci_ov.core, model, device, 0, compiled), text);
    tci_ov.model_free(model);
    return made;
}

/* Of the device, for what is compiled or imported next; caller holds the lock. */
static bool tci_ov_set_properties(const tc_graph_model *m, const char *device,
                                  char text[TC_GRAPH_TEXT])
{
    char threads[16];
    snprintf(threads, sizeof(threads), "%d", m->threads);
    const char *const rows[][2] = {{"INFERENCE_PRECISION_HINT", "f32"},
                                   {"INFERENCE_NUM_THREADS", threads},
                                   {"NUM_STREAMS", "1"}};
    bool set = true;
    for (int i = 0; i < (strcmp(device, "CPU") ? 1 : TCI_COUNT(rows)) && set; i++) {
        set = !tci_ov_fails(tci_ov.property(tci_ov.core, device, rows[i][0], rows[i][1], NULL),
                            text);
    }
    return set;
}

/* Constants of the imported program stay in the blob, which lives as long. */
static bool tci_ov_import(tci_ov_program *p, const tc_graph_model *m, const char *device,
                          char text[TC_GRAPH_TEXT])
{
    p->blob = tci_heap_get_aligned(m->n_blob);
    if (p->blob) {
        memcpy(p->blob, m->blob, m->n_blob);
    }
    return p->blob &&
           !tci_ov_fails(tci_ov.import(tci_ov.core, p->blob, m->n_blob, device, &p->compiled),
                         text);
}

static tc_status tci_ov_compile(void *user, const tc_graph_model *m, void **compiled,
                                char text[TC_GRAPH_TEXT])
{
    char device[64];
    tci_ov_program *p = tci_heap_get(sizeof(*p) + (size_t)m->n_inputs);
    (void)user;
    if (!p) {
        return TC_ERR_MEMORY;
    }
    p->takes = (bool *)(p + 1);
    pthread_mutex_init(&p->lock, NULL);
    tci_ov_device(m->option, device);
    pthread_mutex_lock(&tci_ov.lock);
    bool made = tci_ov_set_properties(m, device, text);
    if (made && !(m->blob && tci_ov_import(p, m, device, text))) {
        made = tci_ov_read_and_compile(m, device, &p->compiled, text);
    }
    pthread_mutex_unlock(&tci_ov.lock);
    if (!made) {
        tci_ov_free(NULL, p);
        return TC_ERR_BACKEND;
    }
    for (int i = 0; i < m->n_inputs; i++) {
        void *port = NULL;
        p->takes[i] = !tci_ov.input(p->compiled, m->inputs[i].name, &port);
        if (port) {
            tci_ov.port_free(port);
        }
    }
    *compiled = p;
    return TC_OK;
}

/* A request that no other run uses. */
static tci_ov_request *tci_ov_take(tci_ov_program *p, char text[TC_GRAPH_TEXT])
{
    pthread_mutex_lock(&p->lock);
    tci_ov_request *r = p->idle;
    p->idle = r ? r->next : NULL;
    pthread_mutex_unlock(&p->lock);
    if (!r && (r = tci_heap_get(sizeof(*r))) &&
        tci_ov_fails(tci_ov.request_make(p->compiled, &r->request), text)) {
        tci_heap_free(r);
        r = NULL;
    }
    return r;
}

static void tci_ov_give(tci_ov_program *p, tci_ov_request *r)
{
    pthread_mutex_lock(&p->lock);
    r->next = p->idle;
    p->idle = r;
    pthread_mutex_unlock(&p->lock);
}

/* The request keeps a count of the tensor. */
static bool tci_ov_bind(void *request, const char *kind, int i, const tc_custom_array *a,
                        char text[TC_GRAPH_TEXT])
{
    char name[32];
    void *tensor = NULL;
    snprintf(name, sizeof(name), "%s%d", kind, i);
    bool bound = tci_ov_wrap(a, &tensor, text) &&
                 !tci_ov_fails(tci_ov.set(request, name, tensor), text);
    if (tensor) {
        tci_ov.tensor_free(tensor);
    }
    return bound;
}

static tc_status tci_ov_run(void *user, void *compiled, const tc_custom_array *inputs, int n_inputs,
                            tc_custom_array *outputs, int n_outputs, char text[TC_GRAPH_TEXT])
{
    tci_ov_program *p = compiled;
    tci_ov_request *r = tci_ov_take(p, text);
    bool done = r != NULL;
    (void)user;
    for (int i = 0; i < n_inputs + n_outputs && done; i++) {
        bool in = i < n_inputs;
        const tc_custom_array *a = in ? &inputs[i] : &outputs[i - n_inputs];
        bool matters = in ? p->takes[i] : a->n > 0; /* an empty result is one element there */
        done = !matters ||
               tci_ov_bind(r->request, in ? "input" : "output", in ? i : i - n_inputs, a, text);
    }
    done = done && !tci_ov_fails(tci_ov.infer(r->request), text);
    if (r) {
        tci_ov_give(p, r);
    }
    return done ? TC_OK : TC_ERR_BACKEND;
}

/* OpenVINO writes to a path: here that of memory without a name. */
static const void *tci_ov_blob(void *user, void *compiled, size_t *n)
{
    tci_ov_program *p = compiled;
    char path[64];
    struct stat st;
    int fd = tci_engine_unnamed_file();
    (void)user;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    bool written = fd >= 0 && !tci_ov.export(p->compiled, path) && !fstat(fd, &st) &&
                   st.st_size > 0;
    p->blob = written ? tci_heap_get_aligned((size_t)st.st_size) : NULL;
    if (p->blob && pread(fd, p->blob, (size_t)st.st_size, 0) == (ssize_t)st.st_size) {
        *n = (size_t)st.st_size;
    } else {
        *n = 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return *n ? p->blob : NULL;
}

TCI_FN const tc_graph_backend *tci_openvino_backend(void)
{
    static const tc_graph_backend backend = {.name = "openvino",
                                             .format = tc_onnx_format,
                                             .find = tci_ov_find,
                                             .version = tci_ov_say_version,
                                             .supports = tci_ov_supports,
                                             .compile = tci_ov_compile,
                                             .run = tci_ov_run,
                                             .free = tci_ov_free,
                                             .blob = tci_ov_blob};
    return &backend;
}
/* ---- src/engines/openxla.c ---- */
/* engines/openxla.c - XLA as a graph-level backend, through a PJRT plugin.
 *
 * In: a StableHLO module as text. Out: a loaded executable. A plugin exports one table of
 * functions, each of which takes one struct (pjrt_c_api.h). Structs are zeroed and larger than
 * those of any version, so that newer plugins find defaults in members that they added.
 *
 * Executables are not stored on disk: XLA's CPU loader writes to stderr if it finds machine
 * features that it does not know. On the CPU inputs are read in place (zero copy).
 *
 * Threads belong to a client of the plugin, and PJRT has no option for their number: XLA's CPU
 * client takes it from the variable PJRT_NPROC (DefaultThreadPoolSize of xla/pjrt/utils.cc), and
 * not less than its devices. So there is one client of one device for each number of threads that
 * programs ask for. */
/* ---- src/engines/openxla.h ---- */
/* engines/openxla.h - XLA as a graph-level backend, through a PJRT plugin. */
#ifndef TCI_ENGINES_OPENXLA_H
#define TCI_ENGINES_OPENXLA_H


TCI_FN const tc_graph_backend *tci_openxla_backend(void);

#endif

/* ---- src/engines/openxla.c, continued ---- */
#include <stdio.h>
#include <string.h>


/* Places of PJRT_Api, counted from the first function. */
enum {
    TCI_XLA_ERROR_DESTROY = 0,
    TCI_XLA_ERROR_MESSAGE = 1,
    TCI_XLA_PLUGIN_INITIALIZE = 3,
    TCI_XLA_EVENT_DESTROY = 5,
    TCI_XLA_EVENT_AWAIT = 8,
    TCI_XLA_CLIENT_CREATE = 10,
    TCI_XLA_PLATFORM_NAME = 12,
    TCI_XLA_PLATFORM_VERSION = 14,
    TCI_XLA_DEVICES = 16,
    TCI_XLA_COMPILE = 20,
    TCI_XLA_BUFFER_FROM_HOST = 22,
    TCI_XLA_LOADED_DESTROY = 50,
    TCI_XLA_EXECUTE = 55,
    TCI_XLA_BUFFER_DESTROY = 58,
    TCI_XLA_TO_HOST = 70
};

/* A record: members by number. */
typedef struct tci_xla_args {
    size_t size;
    void *extension;
    void *v[62];
} tci_xla_args;

/* Devices and threads of a plugin, for the rest of the process. */
typedef struct tci_xla_client {
    struct tci_xla_client *next;
    int threads; /* 0: as many as XLA likes */
    void *client, *device;
} tci_xla_client;

typedef struct tci_xla_plugin {
    tci_engine_library library;
    const char *option;
    bool ready, is_cpu; /* under the lock of the library, as the clients are */
    void *const *table;
    tci_xla_client *clients;
    char version[200];
} tci_xla_plugin;

/* Errors are texts; what XLA logs above that goes to stderr. It reads the variable while it is
 * loaded. */
#define TCI_XLA_SILENCE "TF_CPP_MIN_LOG_LEVEL=3"

/* By option; the last is for paths. */
static tci_xla_plugin tci_xla_plugins[] = {{.option = "cpu",
                                            .library = {.file = "libpjrt_cpu.so",
                                                        .package = "fastatomstruct_xla_cpu",
                                                        .get = "pip install fastatomstruct-xla-cpu",
                                                        .silence = TCI_XLA_SILENCE,
                                                        .lock = TCI_MUTEX_INIT}},
                                           {.option = "cuda",
                                            .library = {.file = "xla_cuda_plugin.so",
                                                        .package = "jax_plugins/xla_cuda13",
                                                        .get = "pip install jax-cuda13-pjrt",
                                                        .silence = TCI_XLA_SILENCE,
                                                        .lock = TCI_MUTEX_INIT}},
                                           {.option = "rocm",
                                            .library = {.file = "xla_rocm_plugin.so",
                                                        .package = "jax_plugins/xla_rocm7",
                                                        .get = "pip install jax-rocm7-pjrt",
                                                        .silence = TCI_XLA_SILENCE,
                                                        .lock = TCI_MUTEX_INIT}},
                                           {.option = "/",
                                            .library = {.file = "a PJRT plugin",
                                                        .package = "",
                                                        .get = "give its path",
                                                        .silence = TCI_XLA_SILENCE,
                                                        .lock = TCI_MUTEX_INIT}}};

typedef struct tci_xla_program {
    const tci_xla_plugin *plugin;
    const tci_xla_client *client;
    void *loaded;
} tci_xla_program;

/* NULL: there is no such option. */
static tci_xla_plugin *tci_xla_plugin_of(const char *option)
{
    int n = TCI_COUNT(tci_xla_plugins), i = 0;
    option = option[0] ? option : "cpu";
    while (i < n && strcmp(tci_xla_plugins[i].option, option)) {
        i++;
    }
    return !tci_engine_is_word(option) ? &tci_xla_plugins[n - 1]
           : i < n - 1                 ? &tci_xla_plugins[i]
                                       : NULL;
}

/* Calls a function of the table; true: it failed. */
static bool tci_xla_fails(const tci_xla_plugin *p, int place, tci_xla_args *a,
                          char text[TC_GRAPH_TEXT])
{
    void *(*call)(tci_xla_args *) = NULL;
    void (*tell)(tci_xla_args *) = NULL;
    memcpy(&call, &p->table[place], sizeof(call));
    a->size = sizeof(*a);
    void *error = call(a);
    if (error) {
        tci_xla_args m = {.size = sizeof(m), .v = {error}};
        memcpy(&tell, &p->table[TCI_XLA_ERROR_MESSAGE], sizeof(tell));
        tell(&m);
        snprintf(text, TC_GRAPH_TEXT, "%.*s", (int)TCI_MIN((size_t)m.v[2], (size_t)400),
                 m.v[1] ? (const char *)m.v[1] : "");
        tci_xla_args e = {.size = sizeof(e), .v = {error}};
        memcpy(&tell, &p->table[TCI_XLA_ERROR_DESTROY], sizeof(tell));
        tell(&e);
    }
    return error != NULL;
}

/* Calls one that takes an object and gives nothing. */
static void tci_xla_drop(const tci_xla_plugin *p, int place, void *object)
{
    char text[TC_GRAPH_TEXT];
    tci_xla_args a = {.v = {object}};
    if (object) {
        (void)tci_xla_fails(p, place, &a, text);
    }
}

/* Waits for an event, and drops it. */
static bool tci_xla_await_fails(const tci_xla_plugin *p, void *event, char text[TC_GRAPH_TEXT])
{
    tci_xla_args a = {.v = {event}};
    bool fails = event && tci_xla_fails(p, TCI_XLA_EVENT_AWAIT, &a, text);
    tci_xla_drop(p, TCI_XLA_EVENT_DESTROY, event);
    return fails;
}

/* ---- the plugin ---- */

/* Name and version of the client's platform. */
static bool tci_xla_describe(tci_xla_plugin *p, const tci_xla_client *c, const int *api,
                             char text[TC_GRAPH_TEXT])
{
    tci_xla_args name = {.v = {c->client}}, version = {.v = {c->client}};
    if (tci_xla_fails(p, TCI_XLA_PLATFORM_NAME, &name, text) ||
        tci_xla_fails(p, TCI_XLA_PLATFORM_VERSION, &version, text)) {
        return false;
    }
    const char *of = version.v[1];
    int n = 0;
    while (of && n < (int)(size_t)version.v[2] && n < 100 && of[n] != '\n') {
        n++;
    }
    p->is_cpu = (size_t)name.v[2] == 3 && !memcmp(name.v[1], "cpu", 3);
    snprintf(p->version, sizeof(p->version), "XLA %.*s by PJRT %d.%d, platform %.*s", n,
             of ? of : "", api[0], api[1], (int)TCI_MIN((size_t)name.v[2], (size_t)40),
             (const char *)name.v[1]);
    return true;
}

/* PJRT_Client_Create for this many threads; 0: as the plugin likes. */
static bool tci_xla_create_fails(const tci_xla_plugin *p, int threads, void **client,
                                 char text[TC_GRAPH_TEXT])
{
    enum { TCI_XLA_INT64 = 1 };
    struct {
        size_t size;
        void *extension;
        const char *name;
        size_t n_name;
        int type;
        int64_t value;
        size_t n_value;
    } one_device = {sizeof(one_device), NULL, "cpu_device_count", 16, TCI_XLA_INT64, 1, 1};
    char pool[32];
    snprintf(pool, sizeof(pool), "PJRT_NPROC=%d", threads);
    tci_engine_variable v = tci_engine_variable_begin(threads ? pool : NULL);
    tci_xla_args a = {.v = {&one_device, (void *)1}}, plain = {0};
    bool fails = !threads || tci_xla_fails(p, TCI_XLA_CLIENT_CREATE, &a, text);
    if (fails) { /* a plugin may refuse options that it does not know */
        a = plain;
        fails = tci_xla_fails(p, TCI_XLA_CLIENT_CREATE, &a, text);
    }
    tci_engine_variable_end(&v);
    *client = a.v[6];
    return fails;
}

/* The client of this many threads, made where there is none; NULL: text says why. Caller holds the
 * lock. */
static tci_xla_client *tci_xla_client_of(tci_xla_plugin *p, int threads, char text[TC_GRAPH_TEXT])
{
    tci_xla_client *c = p->clients;
    while (c && c->threads != threads) {
        c = c->next;
    }
    if (c) {
        return c;
    }
    tci_xla_args devices = {0};
    if (tci_xla_create_fails(p, threads, &devices.v[0], text) ||
        tci_xla_fails(p, TCI_XLA_DEVICES, &devices, text)) {
        return NULL;
    }
    c = devices.v[2] ? tci_heap_get(sizeof(*c)) : NULL;
    if (!c) {
        snprintf(text, TC_GRAPH_TEXT, devices.v[2] ? "no memory" : "the plugin found no device");
        return NULL;
    }
    *c = (tci_xla_client){p->clients, threads, devices.v[0], *(void **)devices.v[1]};
    p->clients = c;
    return c;
}

/* Caller holds the lock. */
static bool tci_xla_start(tci_xla_plugin *p, char text[TC_GRAPH_TEXT])
{
    enum { TCI_XLA_VERSION_AT = 32, TCI_XLA_TABLE_AT = 40, TCI_XLA_LEAST = 50 };
    char *(*get)(void) = NULL;
    const tci_engine_symbol rows[] = {{&get, "GetPjrtApi"}};
    if (!tci_engine_symbols(&p->library, rows, 1, text)) {
        return false;
    }
    char *api = get();
    int version[2];
    memcpy(version, api + TCI_XLA_VERSION_AT, sizeof(version));
    p->table = (void *const *)(void *)(api + TCI_XLA_TABLE_AT);
    if (version[0] != 0 || version[1] < TCI_XLA_LEAST) {
        snprintf(text, TC_GRAPH_TEXT, "the plugin has PJRT %d.%d, expected 0.%d or later",
                 version[0], version[1], (int)TCI_XLA_LEAST);
        return false;
    }
    tci_xla_args init = {0};
    if (tci_xla_fails(p, TCI_XLA_PLUGIN_INITIALIZE, &init, text)) {
        return false;
    }
    const tci_xla_client *c = tci_xla_client_of(p, strcmp(p->option, "cpu") ? 0 : 1, text);
    p->ready = c && tci_xla_describe(p, c, version, text);
    return p->ready;
}

static tci_xla_plugin *tci_xla_open(const char *option, char text[TC_GRAPH_TEXT])
{
    tci_xla_plugin *p = tci_xla_plugin_of(option);
    if (!p) {
        snprintf(text, TC_GRAPH_TEXT,
                 "there is no platform '%.60s': expected cpu, cuda, rocm or "
                 "the path of a PJRT plugin",
                 option);
        return NULL;
    }
    if (!tci_engine_open(&p->library, option, text)) {
        return NULL;
    }
    pthread_mutex_lock(&p->library.lock);
    bool ready = p->ready || tci_xla_start(p, text);
    pthread_mutex_unlock(&p->library.lock);
    return ready ? p : NULL;
}

/* ---- the backend ---- */

static bool tci_xla_find(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    char path[480];
    const tci_xla_plugin *p = tci_xla_plugin_of(option);
    (void)user;
    return !p || tci_engine_find(&p->library, option, path, text);
}

static tc_status tci_xla_version(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    const tci_xla_plugin *p = tci_xla_open(option, text);
    (void)user;
    if (p) {
        snprintf(text, TC_GRAPH_TEXT, "%s", p->version);
    }
    return p ? TC_OK : TC_ERR_BACKEND;
}

static void tci_xla_free(void *user, void *compiled)
{
    tci_xla_program *x = compiled;
    (void)user;
    tci_xla_drop(x->plugin, TCI_XLA_LOADED_DESTROY, x->loaded);
    tci_heap_free(x);
}

/* CompileOptionsProto: one replica and one partition, and, of one thread, the override that its
 * operations are not cut for a pool. */
#define TCI_XLA_ONE "\x1a\x04\x20\x01\x28\x01"
#define TCI_XLA_ONE_THREAD                                                                         \
    TCI_XLA_ONE "\x3a\x20\x0a\x1a"                                                                 \
                "xla_cpu_multi_thread_eigen"                                                       \
                "\x12\x02\x10\x00"

static tc_status tci_xla_compile(void *user, const tc_graph_model *m, void **compiled,
                                 char text[TC_GRAPH_TEXT])
{
    tci_xla_plugin *p = tci_xla_open(m->option, text);
    tci_xla_program *x = p ? tci_heap_get(sizeof(*x)) : NULL;
    (void)user;
    if (!x) {
        return p ? TC_ERR_MEMORY : TC_ERR_BACKEND;
    }
    pthread_mutex_lock(&p->library.lock);
    const tci_xla_client *c = tci_xla_client_of(p, p->is_cpu ? m->threads : 0, text);
    pthread_mutex_unlock(&p->library.lock);
    const char *options = c && c->threads == 1 ? TCI_XLA_ONE_THREAD : TCI_XLA_ONE;
    size_t n_options = c && c->threads == 1 ? sizeof(TCI_XLA_ONE_THREAD) : sizeof(TCI_XLA_ONE);
    *x = (tci_xla_program){p, c, NULL};
    tci_xla_args program = {.size = sizeof(program),
                            .v = {(void *)(uintptr_t)m->bytes, (void *)m->n, "mlir", (void *)4}};
    tci_xla_args a = {
        .v = {c ? c->client : NULL, &program, (void *)(uintptr_t)options, (void *)(n_options - 1)}};
    if (!c || tci_xla_fails(p, TCI_XLA_COMPILE, &a, text)) {
        tci_xla_free(NULL, x);
        return TC_ERR_BACKEND;
    }
    x->loaded = a.v[4];
    *compiled = x;
    return TC_OK;
}

/* PJRT_Buffer_Type; 0: it has none. */
static int tci_xla_type(tc_dtype t)
{
    switch (t) {
    case TC_BOOL: return 1;
    case TC_I8: return 2;
    case TC_I16: return 3;
    case TC_I32: return 4;
    case TC_I64: return 5;
    case TC_U8: return 6;
    case TC_U16: return 7;
    case TC_U32: return 8;
    case TC_U64: return 9;
    case TC_F16: return 10;
    case TC_F32: return 11;
    case TC_F64: return 12;
    case TC_BF16: return 13;
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
    return 0;
}

/* A buffer of the plugin over, or with a copy of, an array. */
static bool tci_xla_give(const tci_xla_program *x, const tc_custom_array *a, void **buffer,
                         char text[TC_GRAPH_TEXT])
{
    const tci_xla_plugin *p = x->plugin;
    enum { TCI_XLA_UNTIL_TRANSFERRED = 1, TCI_XLA_ZERO_COPY = 2 };
    struct {
        size_t size;
        void *extension, *client;
        const void *data;
        int type;
        const int64_t *sizes;
        size_t rank;
        const int64_t *strides;
        size_t n_strides;
        int semantics;
        void *device, *memory, *layout, *done, *buffer;
        void *more[16];
    } h = {.client = x->client->client,
           .data = a->data,
           .type = tci_xla_type(a->dtype),
           .sizes = a->sizes,
           .rank = (size_t)a->rank,
           .device = x->client->device,
           .semantics = p->is_cpu ? TCI_XLA_ZERO_COPY : TCI_XLA_UNTIL_TRANSFERRED};
    tci_xla_args record = {0};
    _Static_assert(sizeof(h) <= sizeof(record), "the record must fit");
    memcpy(&record, &h, sizeof(h));
    if (tci_xla_fails(p, TCI_XLA_BUFFER_FROM_HOST, &record, text)) {
        return false;
    }
    memcpy(&h, &record, sizeof(h));
    *buffer = h.buffer;
    if (p->is_cpu) { /* the event waits for the end of the buffer */
        tci_xla_drop(p, TCI_XLA_EVENT_DESTROY, h.done);
        return true;
    }
    return !tci_xla_await_fails(p, h.done, text);
}

static bool tci_xla_take(const tci_xla_plugin *p, const tc_custom_array *a, void *buffer,
                         char text[TC_GRAPH_TEXT])
{
    size_t bytes = (size_t)(a->n * tc_dtype_size(a->dtype));
    tci_xla_args h = {.v = {buffer, NULL, a->data, (void *)bytes}};
    return !bytes ||
           (!tci_xla_fails(p, TCI_XLA_TO_HOST, &h, text) && !tci_xla_await_fails(p, h.v[4], text));
}

static bool tci_xla_execute(const tci_xla_program *x, void **in, int n_inputs, void **out,
                            char text[TC_GRAPH_TEXT])
{
    tci_xla_args options = {.size = sizeof(options)};
    void *done = NULL;
    tci_xla_args a = {
        .v = {x->loaded, &options, &in, (void *)1, (void *)(size_t)n_inputs, &out, &done}};
    return !tci_xla_fails(x->plugin, TCI_XLA_EXECUTE, &a, text) &&
           !tci_xla_await_fails(x->plugin, done, text);
}

static tc_status tci_xla_run(void *user, void *compiled, const tc_custom_array *inputs,
                             int n_inputs, tc_custom_array *outputs, int n_outputs,
                             char text[TC_GRAPH_TEXT])
{
    const tci_xla_program *x = compiled;
    int n = n_inputs + n_outputs;
    void **buffers = tci_heap_get(sizeof(void *) * (size_t)n);
    bool done = buffers != NULL;
    (void)user;
    for (int i = 0; i < n_inputs && done; i++) {
        done = tci_xla_give(x, &inputs[i], &buffers[i], text);
    }
    done = done && tci_xla_execute(x, buffers, n_inputs, buffers + n_inputs, text);
    for (int i = 0; i < n_outputs && done; i++) {
        done = tci_xla_take(x->plugin, &outputs[i], buffers[n_inputs + i], text);
    }
    for (int i = 0; i < n && buffers; i++) {
        tci_xla_drop(x->plugin, TCI_XLA_BUFFER_DESTROY, buffers[i]);
    }
    tci_heap_free(buffers);
    return done ? TC_OK : TC_ERR_BACKEND;
}

TCI_FN const tc_graph_backend *tci_openxla_backend(void)
{
    static const tc_graph_backend backend = {.name = "openxla",
                                             .format = tc_stablehlo_format,
                                             .find = tci_xla_find,
                                             .version = tci_xla_version,
                                             .compile = tci_xla_compile,
                                             .run = tci_xla_run,
                                             .free = tci_xla_free};
    return &backend;
}
/* ---- src/engines/tvm.c ---- */
/* engines/tvm.c - TVM as a graph-level backend: its Python tool compiles, its C runtime executes.
 *
 * In: an ONNX model. Out: a shared object, built by a child process (python3, tvm.relax) and
 * executed in this process by the relax virtual machine of libtvm_runtime. The bytes of the object
 * are the blob in the disk cache, so a model that was compiled once needs no Python.
 *
 * The runtime is reached through 5 functions of libtvm_ffi (tvm/ffi/c_api.h, 0.1), which call
 * others by name with tagged values. A virtual machine serves one run at a time; concurrent runs
 * wait. Compiled reductions over a symbolic axis of size 0 leave their results as they were in
 * memory: these are tc's (needs_elements). */
/* ---- src/engines/tvm.h ---- */
/* engines/tvm.h - TVM as a graph-level backend (api/graph_backend.h). */
#ifndef TCI_ENGINES_TVM_H
#define TCI_ENGINES_TVM_H


TCI_FN const tc_graph_backend *tci_tvm_backend(void);

#endif

/* ---- src/engines/tvm.c, continued ---- */
#include <signal.h>
#include <stdio.h>
#include <string.h>


enum { TCI_TVM_SECONDS = 600 }; /* that the tool may take */

/* Kinds of a value (TVMFFITypeIndex). */
enum {
    TCI_TVM_INT = 1,
    TCI_TVM_BOOL = 2,
    TCI_TVM_DLTENSOR = 7,
    TCI_TVM_TEXT = 8,
    TCI_TVM_OBJECT = 64, /* and all above: counted */
    TCI_TVM_TENSOR = 70,
    TCI_TVM_ARRAY = 71
};

typedef struct tci_tvm_any {
    int32_t kind;
    uint32_t zero;
    union {
        int64_t number;
        void *object;
        const void *pointer;
    } of;
} tci_tvm_any;

typedef struct tci_tvm_bytes {
    const char *text;
    size_t n;
} tci_tvm_bytes;

/* DLTensor of DLPack. */
typedef struct tci_tvm_tensor {
    void *data;
    int32_t device, device_id, rank;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *sizes, *strides;
    uint64_t offset;
} tci_tvm_tensor;

enum { TCI_TVM_HEAD = 24 }; /* bytes of an object before what it holds */

static tci_engine_library tci_tvm_ffi = {.file = "libtvm_ffi.so",
                                         .package = "tvm_ffi/lib",
                                         .get = "pip install apache-tvm onnx",
                                         .lock = TCI_MUTEX_INIT};
static tci_engine_library tci_tvm_runtime = {.file = "libtvm_runtime.so",
                                             .package = "tvm/lib",
                                             .get = "pip install apache-tvm onnx",
                                             .lock = TCI_MUTEX_INIT};
/* Sorts and top-k, which compiled models call by name; the runtime of other builds has them. */
static tci_engine_library tci_tvm_extra = {.file = "libtvm_runtime_extra.so",
                                           .package = "tvm/lib",
                                           .get = "pip install apache-tvm onnx",
                                           .lock = TCI_MUTEX_INIT};
static struct {
    tci_mutex lock;
    bool ready;
    int (*global)(const tci_tvm_bytes *name, void **function);
    int (*call)(void *function, const tci_tvm_any *args, int32_t n, tci_tvm_any *result);
    void (*raised)(void **error);
    int (*drop)(void *object);
    void (*version)(uint32_t numbers[3]);
    void *load, *get, *item, *threads; /* functions, for the rest of the process */
    uint32_t numbers[3];
} tci_tvm = {.lock = TCI_MUTEX_INIT};

typedef struct tci_tvm_program {
    tci_mutex lock;
    void *machine, *main;
    void *object; /* heap: the shared object's bytes */
    size_t n_object;
    int threads;
} tci_tvm_program;

/* ---- calls ---- */

static void tci_tvm_drop(tci_tvm_any *a)
{
    if (a->kind >= TCI_TVM_OBJECT && a->of.object) {
        tci_tvm.drop(a->of.object);
    }
    *a = (tci_tvm_any){0};
}

static tci_tvm_any tci_tvm_text(const char *text)
{
    return (tci_tvm_any){.kind = TCI_TVM_TEXT, .of.pointer = text};
}

static tci_tvm_any tci_tvm_int(int64_t number)
{
    return (tci_tvm_any){.kind = TCI_TVM_INT, .of.number = number};
}

/* True: it failed, as text says in TVM's words. */
static bool tci_tvm_fails(void *function, const tci_tvm_any *args, int n, tci_tvm_any *result,
                          char text[TC_GRAPH_TEXT])
{
    *result = (tci_tvm_any){0};
    if (tci_tvm.call(function, args, n, result) == 0) {
        return false;
    }
    tci_tvm_bytes words[2] = {{NULL, 0}, {NULL, 0}}; /* kind, message */
    tci_tvm_any error = {.kind = TCI_TVM_OBJECT};
    tci_tvm.raised(&error.of.object);
    if (error.of.object) {
        memcpy(words, (const char *)error.of.object + TCI_TVM_HEAD, sizeof(words));
    }
    snprintf(text, TC_GRAPH_TEXT, "%.*s: %.*s", (int)TCI_MIN(words[0].n, (size_t)60),
             words[0].text ? words[0].text : "", (int)TCI_MIN(words[1].n, (size_t)400),
             words[1].text ? words[1].text : "no reason given");
    tci_tvm_drop(&error);
    return true;
}

/* A function of a module. */
static bool tci_tvm_member_fails(const tci_tvm_any *module, const char *name, tci_tvm_any *function,
                                 char text[TC_GRAPH_TEXT])
{
    const tci_tvm_any args[] = {*module,
                                tci_tvm_text(name),
                                {.kind = TCI_TVM_BOOL, .of.number = 1}};
    if (tci_tvm_fails(tci_tvm.get, args, 3, function, text)) {
        return true;
    }
    if (!function->of.object) {
        snprintf(text, TC_GRAPH_TEXT, "the compiled module lacks %s", name);
    }
    return !function->of.object;
}

/* ---- the library ---- */

static bool tci_tvm_global(const char *name, void **function, char text[TC_GRAPH_TEXT])
{
    const tci_tvm_bytes n = {name, strlen(name)};
    bool found = tci_tvm.global(&n, function) == 0 && *function;
    if (!found) {
        snprintf(text, TC_GRAPH_TEXT, "TVM lacks the function %s: its version is not known here",
                 name);
    }
    return found;
}

/* Caller holds the lock. */
static bool tci_tvm_start(char text[TC_GRAPH_TEXT])
{
    const tci_engine_symbol rows[] = {{&tci_tvm.global, "TVMFFIFunctionGetGlobal"},
                                      {&tci_tvm.call, "TVMFFIFunctionCall"},
                                      {&tci_tvm.raised, "TVMFFIErrorMoveFromRaised"},
                                      {&tci_tvm.drop, "TVMFFIObjectDecRef"},
                                      {&tci_tvm.version, "TVMFFIGetVersion"}};
    if (!tci_engine_symbols(&tci_tvm_ffi, rows, TCI_COUNT(rows), text)) {
        return false;
    }
    tci_tvm.version(tci_tvm.numbers);
    tci_tvm.ready = tci_tvm_global("ffi.ModuleLoadFromFile", &tci_tvm.load, text) &&
                    tci_tvm_global("ffi.ModuleGetFunction", &tci_tvm.get, text) &&
                    tci_tvm_global("ffi.ArrayGetItem", &tci_tvm.item, text) &&
                    tci_tvm_global("runtime.config_threadpool", &tci_tvm.threads, text);
    return tci_tvm.ready;
}

/* libtvm_ffi replaces the process's handler of SIGSEGV when it is loaded: ours is put back. */
static bool tci_tvm_open(char text[TC_GRAPH_TEXT])
{
    struct sigaction before;
    char without[TC_GRAPH_TEXT];
    pthread_mutex_lock(&tci_tvm.lock);
    bool known = sigaction(SIGSEGV, NULL, &before) == 0;
    bool open = tci_tvm.ready ||
                (tci_engine_open(&tci_tvm_ffi, "", text) &&
                 tci_engine_open(&tci_tvm_runtime, "", text) && tci_tvm_start(text));
    if (open) {
        (void)tci_engine_open(&tci_tvm_extra, "", without);
    }
    if (known) {
        sigaction(SIGSEGV, &before, NULL);
    }
    pthread_mutex_unlock(&tci_tvm.lock);
    return open;
}

static bool tci_tvm_find(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    char path[480];
    (void)user;
    if (option[0] && strcmp(option, "cpu")) {
        snprintf(text, TC_GRAPH_TEXT, "there is no target '%.60s': expected cpu", option);
        return false;
    }
    return tci_engine_find(&tci_tvm_ffi, "", path, text) &&
           tci_engine_find(&tci_tvm_runtime, "", path, text);
}

static tc_status tci_tvm_version(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    (void)user, (void)option;
    if (!tci_tvm_open(text)) {
        return TC_ERR_BACKEND;
    }
    snprintf(text, TC_GRAPH_TEXT, "TVM's runtime with tvm-ffi %u.%u.%u, target llvm",
             (unsigned)tci_tvm.numbers[0], (unsigned)tci_tvm.numbers[1],
             (unsigned)tci_tvm.numbers[2]);
    return TC_OK;
}

/* ---- the tool ---- */

static const char tci_tvm_script[] =
    "import sys\n"
    "sys.path.insert(0, sys.argv[3])\n"
    "import onnx, tvm\n"
    "from tvm import relax\n"
    "from tvm.relax.frontend.onnx import from_onnx\n"
    "module = from_onnx(onnx.load(sys.argv[1]), keep_params_in_input=False)\n"
    "cpu = tvm.get_global_func('target.llvm_get_system_cpu', allow_missing=True)\n"
    "target = tvm.target.Target({'kind': 'llvm', 'mcpu': cpu()} if cpu else 'llvm')\n"
    "relax.build(module, target).export_library(sys.argv[2])\n";

/* The last line that says something. */
static void tci_tvm_last_line(const tci_str *log, char text[TC_GRAPH_TEXT])
{
    const char *at = tci_str_text(log), *last = at;
    while (*at) {
        size_t n = strcspn(at, "\n");
        last = n && at[0] != ' ' ? at : last;
        at += n + (at[n] == '\n');
    }
    snprintf(text, TC_GRAPH_TEXT, "%.*s", (int)TCI_MIN(strcspn(last, "\n"), (size_t)400), last);
}

/* PREFIX/lib/python3.X/site-packages/tvm_ffi/lib/FILE: its site-packages, and PREFIX/bin/python3
 * or, where there is none, the python3 of PATH. */
static void tci_tvm_places(char packages[480], char python[500])
{
    char *at = packages;
    snprintf(packages, 480, "%s", tci_tvm_ffi.path);
    for (int i = 0; i < 3 && (at = strrchr(packages, '/')); i++) {
        *at = 0;
    }
    const char *lib = strstr(packages, "/lib/python3");
    snprintf(python, 500, "%.*s/bin/python3", lib ? (int)(lib - packages) : 0, packages);
    if (!lib || access(python, X_OK)) {
        snprintf(python, 500, "python3");
    }
}

/* Runs the tool in w's directory, where model.onnx becomes model.so. */
static bool tci_tvm_build(const tci_workdir *w, char text[TC_GRAPH_TEXT])
{
    char packages[480], python[500], model[600], object[600];
    tci_str log = {0};
    int code = 0;
    tci_tvm_places(packages, python);
    snprintf(model, sizeof(model), "%.580s/model.onnx", tci_str_text(&w->dir.path));
    snprintf(object, sizeof(object), "%.580s/model.so", tci_str_text(&w->dir.path));
    /* -I: no module of the current folder or of PYTHONPATH is imported. */
    const char *argv[] = {python, "-I", "-c", tci_tvm_script, model, object, packages, NULL};
    tci_command c = {.argv = argv,
                     .wall_ms = 1000 * (int64_t)TCI_TVM_SECONDS,
                     .log_limit = 1 << 16,
                     .temp_dir = tci_str_text(&w->dir.path)};
    tci_spawn ended = tci_os_run(&c, &log, &code);
    if (ended == TCI_SPAWN_MISSING) {
        snprintf(text, TC_GRAPH_TEXT, "TVM's tool needs '%.400s', which is not there", python);
    } else if (ended == TCI_SPAWN_TIMEOUT) {
        snprintf(text, TC_GRAPH_TEXT, "TVM's tool took more than %d seconds", TCI_TVM_SECONDS);
    } else if (ended != TCI_SPAWN_OK) {
        tci_tvm_last_line(&log, text);
    }
    tci_str_free(&log);
    return ended == TCI_SPAWN_OK;
}

/* The shared object of a model: p->object. */
static bool tci_tvm_make(tci_tvm_program *p, const tci_workdir *w, const tc_graph_model *m,
                         char text[TC_GRAPH_TEXT])
{
    tci_str read = {0};
    int why = 0;
    if (!tci_dir_publish(&w->dir, "model.onnx", m->bytes, m->n, false, &why)) {
        snprintf(text, TC_GRAPH_TEXT, "the model cannot be written: %s", strerror(why));
        return false;
    }
    if (!tci_tvm_build(w, text)) {
        return false;
    }
    bool whole = tci_dir_read(&w->dir, "model.so", (int64_t)1 << 32, &read, &why);
    if (!whole) {
        snprintf(text, TC_GRAPH_TEXT, "what TVM's tool wrote cannot be read: %s", strerror(why));
        tci_str_free(&read);
        return false;
    }
    p->object = read.text;
    p->n_object = read.n;
    return true;
}

/* Loads the object of w's directory, and makes a machine of it. */
static bool tci_tvm_load(tci_tvm_program *p, const tci_workdir *w, char text[TC_GRAPH_TEXT])
{
    enum { TCI_TVM_CPU = 1, TCI_TVM_POOLED = 2 };
    char path[600];
    tci_tvm_any module = {0}, machine = {0}, function = {0}, none = {0}, entry = {0};
    snprintf(path, sizeof(path), "%.580s/model.so", tci_str_text(&w->dir.path));
    const tci_tvm_any name = tci_tvm_text(path);
    const tci_tvm_any how[] = {tci_tvm_int(TCI_TVM_CPU), tci_tvm_int(0),
                               tci_tvm_int(TCI_TVM_POOLED)};
    bool made = !tci_tvm_fails(tci_tvm.load, &name, 1, &module, text) &&
                !tci_tvm_member_fails(&module, "vm_load_executable", &function, text) &&
                !tci_tvm_fails(function.of.object, NULL, 0, &machine, text);
    tci_tvm_drop(&function);
    made = made && !tci_tvm_member_fails(&machine, "vm_initialization", &function, text) &&
           !tci_tvm_fails(function.of.object, how, 3, &none, text) &&
           !tci_tvm_member_fails(&machine, "main", &entry, text);
    tci_tvm_drop(&function);
    tci_tvm_drop(&none);
    tci_tvm_drop(&module);
    p->machine = machine.of.object;
    p->main = entry.of.object;
    return made;
}

/* ---- the backend ---- */

static void tci_tvm_free(void *user, void *compiled)
{
    tci_tvm_program *p = compiled;
    (void)user;
    if (p->main) {
        tci_tvm.drop(p->main);
    }
    if (p->machine) {
        tci_tvm.drop(p->machine);
    }
    tci_heap_free(p->object);
    tci_heap_free(p);
}

static tc_status tci_tvm_compile(void *user, const tc_graph_model *m, void **compiled,
                                 char text[TC_GRAPH_TEXT])
{
    tci_tvm_program *p = tci_heap_get(sizeof(*p));
    tci_workdir w;
    tci_str why = {0};
    int code = 0;
    (void)user;
    if (!p) {
        return TC_ERR_MEMORY;
    }
    p->lock = (tci_mutex)TCI_MUTEX_INIT;
    p->threads = m->threads;
    if (!tci_workdir_make(&w, NULL, false, &why)) {
        snprintf(text, TC_GRAPH_TEXT, "no folder to compile in: %.400s", tci_str_text(&why));
        tci_str_free(&why);
        tci_heap_free(p);
        return TC_ERR_BACKEND;
    }
    bool made = m->blob ? tci_dir_publish(&w.dir, "model.so", m->blob, m->n_blob, false, &code)
                        : tci_tvm_make(p, &w, m, text);
    made = made && tci_tvm_load(p, &w, text);
    tci_workdir_end(&w, false);
    tci_str_free(&why);
    if (!made) {
        tci_tvm_free(NULL, p);
        return TC_ERR_BACKEND;
    }
    *compiled = p;
    return TC_OK;
}

static const void *tci_tvm_blob(void *user, void *compiled, size_t *n)
{
    const tci_tvm_program *p = compiled;
    (void)user;
    *n = p->n_object;
    return p->object;
}

/* DLDataType: code of the kind, bits. */
static void tci_tvm_type(tc_dtype t, tci_tvm_tensor *to)
{
    enum { TCI_TVM_SIGNED, TCI_TVM_UNSIGNED, TCI_TVM_FLOAT, TCI_TVM_BFLOAT = 4, TCI_TVM_TRUTH = 6 };
    bool is_signed = t == TC_I8 || t == TC_I16 || t == TC_I32 || t == TC_I64;
    to->code = t == TC_BOOL                                ? TCI_TVM_TRUTH
               : t == TC_BF16                              ? TCI_TVM_BFLOAT
               : t == TC_F16 || t == TC_F32 || t == TC_F64 ? TCI_TVM_FLOAT
               : is_signed                                 ? TCI_TVM_SIGNED
                                                           : TCI_TVM_UNSIGNED;
    to->bits = (uint8_t)(8 * tc_dtype_size(t));
    to->lanes = 1;
}

/* Threads of TVM's pool, which each thread that runs has of its own. */
static bool tci_tvm_set_threads(int threads, char text[TC_GRAPH_TEXT])
{
    static __thread int set;
    const tci_tvm_any args[] = {tci_tvm_int(1), tci_tvm_int(threads)};
    tci_tvm_any none;
    if (set == threads) {
        return true;
    }
    set = threads;
    return !tci_tvm_fails(tci_tvm.threads, args, 2, &none, text);
}

/* An output to the user's memory. */
static bool tci_tvm_take(const tci_tvm_any *value, const tc_custom_array *to,
                         char text[TC_GRAPH_TEXT])
{
    tci_tvm_tensor t;
    int64_t n = 1;
    if (value->kind == TCI_TVM_DLTENSOR) { /* an input that is an output as it is */
        memcpy(&t, value->of.pointer, sizeof(t));
    } else if (value->kind == TCI_TVM_TENSOR) {
        memcpy(&t, (const char *)value->of.object + TCI_TVM_HEAD, sizeof(t));
    } else {
        snprintf(text, TC_GRAPH_TEXT, "an output is no tensor, but of kind %d", (int)value->kind);
        return false;
    }
    for (int i = 0; i < t.rank; i++) {
        n *= t.sizes[i];
    }
    size_t bytes = (size_t)(to->n * tc_dtype_size(to->dtype));
    if (n != to->n || t.bits != 8 * tc_dtype_size(to->dtype)) {
        snprintf(text, TC_GRAPH_TEXT, "an output has %lld elements of %d bits, expected %lld of %d",
                 (long long)n, (int)t.bits, (long long)to->n, (int)(8 * tc_dtype_size(to->dtype)));
        return false;
    }
    memcpy(to->data, (const char *)t.data + t.offset, bytes);
    return true;
}

/* Kernels load whole vectors: an array that is not aligned to 64 bytes is copied. */
static bool tci_tvm_give(const tc_custom_array *from, tci_tvm_tensor *t, void **copy)
{
    size_t bytes = (size_t)(from->n * tc_dtype_size(from->dtype));
    *t = (tci_tvm_tensor){.data = from->data, .device = 1, .rank = from->rank};
    t->sizes = from->sizes;
    tci_tvm_type(from->dtype, t);
    if ((uintptr_t)from->data % 64) {
        *copy = t->data = tci_heap_get_aligned(bytes + 1);
        if (*copy) {
            memcpy(*copy, from->data, bytes);
        }
    }
    return t->data || !bytes;
}

static bool tci_tvm_outputs(const tci_tvm_any *result, const tc_custom_array *outputs, int n,
                            char text[TC_GRAPH_TEXT])
{
    bool done = true;
    if (result->kind != TCI_TVM_ARRAY) {
        return tci_tvm_take(result, outputs, text);
    }
    for (int i = 0; i < n && done; i++) {
        const tci_tvm_any args[] = {*result, tci_tvm_int(i)};
        tci_tvm_any item;
        done = !tci_tvm_fails(tci_tvm.item, args, 2, &item, text) &&
               tci_tvm_take(&item, &outputs[i], text);
        tci_tvm_drop(&item);
    }
    return done;
}

static tc_status tci_tvm_run(void *user, void *compiled, const tc_custom_array *inputs,
                             int n_inputs, tc_custom_array *outputs, int n_outputs,
                             char text[TC_GRAPH_TEXT])
{
    tci_tvm_program *p = compiled;
    tci_tvm_tensor *tensors = tci_heap_get(
        (sizeof(*tensors) + sizeof(void *) + sizeof(tci_tvm_any)) * (size_t)(n_inputs + 1));
    tci_tvm_any *args = (tci_tvm_any *)(void *)(tensors + n_inputs + 1), result = {0};
    void **copies = (void **)(void *)(args + n_inputs + 1);
    bool done = tensors != NULL;
    (void)user;
    for (int i = 0; i < n_inputs && done; i++) {
        done = tci_tvm_give(&inputs[i], &tensors[i], &copies[i]);
        args[i] = (tci_tvm_any){.kind = TCI_TVM_DLTENSOR, .of.pointer = &tensors[i]};
    }
    pthread_mutex_lock(&p->lock);
    done = done && tci_tvm_set_threads(p->threads, text) &&
           !tci_tvm_fails(p->main, args, n_inputs, &result, text) &&
           tci_tvm_outputs(&result, outputs, n_outputs, text);
    tci_tvm_drop(&result);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < n_inputs && tensors; i++) {
        tci_heap_free_aligned(copies[i]);
    }
    tci_heap_free(tensors);
    return done ? TC_OK : TC_ERR_BACKEND;
}

TCI_FN const tc_graph_backend *tci_tvm_backend(void)
{
    static const tc_graph_backend backend = {.name = "tvm",
                                             .format = tc_onnx_format,
                                             .find = tci_tvm_find,
                                             .version = tci_tvm_version,
                                             .compile = tci_tvm_compile,
                                             .run = tci_tvm_run,
                                             .free = tci_tvm_free,
                                             .blob = tci_tvm_blob,
                                             .needs_elements = true};
    return &backend;
}
/* ---- src/engines/register.c ---- */
/* engines/register.c - registers the graph-level backends (onnxruntime, OpenVINO, XLA, TVM) before
 * main, so that TC_BACKEND can name them. */

__attribute__((constructor)) static void tci_engines_register(void)
{
    (void)tc_register_graph_backend(tci_onnxrt_backend());
    (void)tc_register_graph_backend(tci_openvino_backend());
    (void)tc_register_graph_backend(tci_openxla_backend());
    (void)tc_register_graph_backend(tci_tvm_backend());
}
/* ---- src/engines/fastest_backend.c ---- */
/* engines/fastest_backend.c - tc_best_backend: measures which backend runs a graph fastest on this
 * machine.
 *
 * In: a graph and a time budget. Out: the backends that compiled it, sorted by the median time of a
 * run. Every backend runs with the options of the graph's context, on zeros. */
#include <stdlib.h>
#include <string.h>


enum { TCI_BEST_BACKENDS = 40, TCI_BEST_RUNS = 1001, TCI_BEST_PORTS = 64 };

/* Buffers of a program, full of zeros. */
typedef struct tci_best_buffers {
    tc_buf items[TCI_BEST_PORTS];
    int n;
} tci_best_buffers;

static void tci_best_free(tci_best_buffers *b)
{
    for (int i = 0; i < b->n; i++) {
        tci_heap_free_aligned(b->items[i].data);
    }
    b->n = 0;
}

/* Of known sizes only. */
static tc_status tci_best_get(const tc_program *f, bool outputs, int n, tci_best_buffers *b)
{
    for (b->n = 0; b->n < n; b->n++) {
        tc_port port;
        tc_status status = outputs ? tc_program_get_output(f, b->n, &port)
                                   : tc_program_get_input(f, b->n, &port);
        int64_t count = 1;
        for (int a = 0; a < port.rank && !status; a++) {
            bool known = tci_dim_is_known((tci_dim)port.sizes[a]);
            status = known ? TC_OK : TC_ERR_ARGUMENT;
            count = known ? count * port.sizes[a] : 0;
        }
        size_t bytes = status ? 0 : (size_t)(count * tc_dtype_size(port.dtype));
        void *data = status ? NULL : tci_heap_get_aligned(bytes + 1);
        if (!data) {
            return status ? status : TC_ERR_MEMORY;
        }
        memset(data, 0, bytes);
        b->items[b->n] = (tc_buf){.data = data, .n = count, .dtype = (int)port.dtype};
    }
    return TC_OK;
}

static int tci_best_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median time of a run, of about `ms` milliseconds of runs after one that is not counted. */
static tc_status tci_best_measure(tc_program *f, tc_bufs in, tc_bufs out, double ms, double *us)
{
    double *times = tci_heap_get(sizeof(*times) * TCI_BEST_RUNS);
    tc_status status = times ? tc_run(f, in, out) : TC_ERR_MEMORY;
    int64_t begin = tci_os_now_ns(), now = begin;
    int n = 0;
    while (!status && n < TCI_BEST_RUNS && (n < 3 || (double)(now - begin) < ms * 1e6)) {
        int64_t at = now;
        status = tc_run(f, in, out);
        now = tci_os_now_ns();
        times[n++] = (double)(now - at) / 1e3;
    }
    if (!status) {
        qsort(times, (size_t)n, sizeof(*times), tci_best_compare);
        *us = times[n / 2];
    }
    tci_heap_free(times);
    return status;
}

static tc_status tci_best_try(tc_tensors inputs, tc_tensors outputs, double ms,
                              tc_backend_time *time, tc_site here)
{
    tc_options o = {.backend = time->name, .fallback = TC_FALLBACK_REFUSE};
    tc_program *f = NULL;
    tci_best_buffers in = {.n = 0}, out = {.n = 0};
    int64_t begin = tci_os_now_ns();
    tc_status status = tc_compile_fn_at(inputs, outputs, &o, &f, here);
    time->first_ms = (double)(tci_os_now_ns() - begin) / 1e6;
    status = status ? status : tci_best_get(f, false, inputs.n, &in);
    status = status ? status : tci_best_get(f, true, outputs.n, &out);
    status = status ? status
                    : tci_best_measure(f, (tc_bufs){in.items, in.n}, (tc_bufs){out.items, out.n},
                                       ms, &time->us);
    tci_best_free(&in);
    tci_best_free(&out);
    tc_program_free(f);
    return status;
}

static tc_status tci_best_fail(tc_tensors outputs, tc_site here, tc_status why, const char *text)
{
    return outputs.n > 0 && outputs.items
               ? tci_fail(outputs.items[0], "tc_time_backends", here, why, "%s", text)
               : why;
}

TC_API tc_status tc_time_backends_at(tc_tensors inputs, tc_tensors outputs, double ms,
                                     tc_backend_time *list, int room, int *n, tc_site here)
{
    const tc_backend_entry *e;
    tc_status last = TC_ERR_BACKEND;
    int found = 0;
    if (!(ms > 0) || !list || !n || inputs.n > TCI_BEST_PORTS || outputs.n > TCI_BEST_PORTS ||
        inputs.n < 0 || outputs.n < 1 || !outputs.items) {
        return tci_best_fail(outputs, here, TC_ERR_ARGUMENT,
                             "given no place for the result, no output, ms that is not positive, "
                             "or more than 64 inputs or outputs");
    }
    for (int i = 0; (e = tc_backend_at(i)); i++) {
        tc_backend_time time = {.name = e->name};
        tc_status status = e->usable ? tci_best_try(inputs, outputs, ms, &time, here)
                                     : TC_ERR_BACKEND;
        int at = found;
        last = e->usable ? status : last;
        if (status) {
            continue;
        }
        while (at > 0 && list[at - 1].us > time.us) {
            at--;
        }
        found = TCI_MIN(found + 1, room);
        if (at < found) {
            memmove(&list[at + 1], &list[at], sizeof(*list) * (size_t)(found - at - 1));
            list[at] = time;
        }
    }
    *n = found;
    return found ? TC_OK : last;
}

TC_API tc_status tc_best_backend_at(tc_tensors inputs, tc_tensors outputs, double ms,
                                    const char **name, tc_site here)
{
    tc_backend_time list[TCI_BEST_BACKENDS];
    int n = 0;
    if (!name) {
        return tci_best_fail(outputs, here, TC_ERR_ARGUMENT, "name is NULL");
    }
    *name = NULL;
    tc_status status = tc_time_backends_at(inputs, outputs, ms, list, TCI_BEST_BACKENDS, &n, here);
    if (!status) {
        *name = list[0].name;
    }
    return status;
}

/* ---- src/base/impl_end.h ---- */
/* base/impl_end.h - closes the region that base/impl_begin.h opened: restores the user's compiler
 * options and warnings. */

#if defined(__clang__)
#ifndef TCI_KEEP_OPTIMIZE
#pragma clang attribute pop
#endif
#pragma float_control(pop)
#pragma clang diagnostic pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
#endif
