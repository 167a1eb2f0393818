/* cpu/cc.c - finds and runs the system's C compiler.
 *
 * In: source texts and the paths of the objects wanted. Out: shared objects, or a status with the
 * command and the compiler's messages. No shell is involved: every argument is an element of a
 * vector.
 *
 * Flags. Flags that decide results are fixed: no contraction, wrapping integers, no strict
 * aliasing, no errno. gcc runs at -O1 plus four passes of -O2 (tci_cc_gcc_flags), which compiles a
 * sixth faster than -O2 and gives the same speed on code that is explicitly vectorized. Of these,
 * -fexpensive-optimizations fuses the multiply-adds of tiles, and without -fcaller-saves the rare
 * call of a slow path keeps every constant of a loop in memory. clang inlines only from -O2; its
 * loops must not become calls of memset and memcpy. On x86 with 16 vector registers gcc may not
 * hoist loop invariants: it does so whether or not registers are left, and then spills accumulators
 * of a tile (a convolution with a bias took twice as long). A quick build is -Og: for 40 kernels it
 * takes 0.37 of the CPU time (-O0: 0.30, -O1: 0.92).
 *
 * Generated code includes nothing and calls nothing but compiler helpers, so no libc is linked.
 * Nothing unwinds through a kernel: unwind tables, a fortieth of the time, are omitted unless the
 * user debugs. tcc silently ignores vector types, so its sources are scalar
 * (tc_backend_compiler.vector_bytes).
 *
 * A host built with the address sanitizer gets instrumented kernels if the compiler is of the same
 * kind: overruns inside kernels are then reported too. This is one of the features in every key,
 * since the loader of any other process would abort at such an object. */
#include "cc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../base/alloc.h"
#include "../debug/profile.h"
#include "../base/env.h"
#include "../base/object_loader.h"
#include "../base/system_headers.h"

#if defined(__SANITIZE_ADDRESS__)
#define TCI_CC_HOST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TCI_CC_HOST_ASAN 1
#endif
#endif
#ifndef TCI_CC_HOST_ASAN
#define TCI_CC_HOST_ASAN 0
#endif
#ifdef __clang__
#define TCI_CC_HOST_KIND TCI_CC_CLANG
#else
#define TCI_CC_HOST_KIND TCI_CC_GCC
#endif

/* WALL: how much longer than its CPU time a compiler may take by the clock. */
enum { TCI_CC_MAX_ARGS = 64, TCI_CC_LOG_BYTES = 1 << 16, TCI_CC_WALL = 5 };

/* ---- which compiler ---- */

static const char *tci_cc_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static tci_cc_kind tci_cc_kind_of_name(const char *name)
{
    if (strstr(name, "clang")) {
        return TCI_CC_CLANG;
    }
    if (strstr(name, "tcc")) {
        return TCI_CC_TCC;
    }
    return strstr(name, "gcc") ? TCI_CC_GCC : TCI_CC_UNKNOWN;
}

TCI_FN tci_cc_kind tci_cc_kind_of(const char *path)
{
    tci_cc_kind kind = tci_cc_kind_of_name(tci_cc_base_name(path));
    if (kind == TCI_CC_UNKNOWN) { /* "cc": see where it leads */
        char *real = realpath(path, NULL);
        kind = real ? tci_cc_kind_of_name(tci_cc_base_name(real)) : kind;
        free(real);
    }
    return kind;
}

TCI_FN bool tci_cc_find(const char *wanted, tc_backend_compiler *compiler)
{
    static const char *const usual[] = {"cc", "gcc", "clang", "tcc"};
    tci_str path = {0};
    bool found = false;
    if (wanted && wanted[0]) {
        found = tci_os_find_program(wanted, &path);
    } else {
        for (int i = 0; i < TCI_COUNT(usual) && !found; i++) {
            found = tci_os_find_program(usual[i], &path);
        }
    }
    memset(compiler, 0, sizeof(*compiler));
    found = found && !path.failed && path.n < sizeof(compiler->path) &&
            tci_os_stat(path.text, &compiler->bytes, &compiler->mtime_ns);
    if (found) {
        memcpy(compiler->path, path.text, path.n + 1);
        tci_cc_kind kind = tci_cc_kind_of(path.text);
        compiler->vector_bytes = kind == TCI_CC_TCC ? 0 : 64;
        compiler->has_quick = kind == TCI_CC_GCC;
    }
    tci_str_free(&path);
    return found;
}

TCI_FN bool tci_cc_instruments(void)
{
    return TCI_CC_HOST_ASAN;
}

TCI_FN bool tci_cc_is_watched(void)
{
    return TCI_CC_HOST_ASAN || tci_env_int(TCI_ENV_KEEP, 0);
}

/* ---- one process ---- */

typedef struct tci_cc_task {
    const char *args[TCI_CC_MAX_ARGS];
    int n_args;
    tci_command command;
    tci_str source_path, log; /* heap */
    tci_spawn result;
    int exit_code;
    const tc_build *build;
    int number; /* of the file, from 1 */
    pthread_t thread;
    bool threaded; /* thread runs it */
} tci_cc_task;

static void tci_cc_arg(tci_cc_task *t, const char *arg)
{
    if (t->n_args < TCI_CC_MAX_ARGS - 1) {
        t->args[t->n_args++] = arg;
    }
}

/* Lists that end in NULL. */
static const char *const tci_cc_gcc_flags[] = {"-O1",      "-fexpensive-optimizations",
                                               "-fgcse",   "-fcaller-saves",
                                               "-fipa-ra", NULL};
static const char *const tci_cc_gcc_quick[] = {"-Og", NULL};
static const char *const tci_cc_gcc_few_registers[] = {"-fno-move-loop-invariants", NULL};
static const char *const tci_cc_clang_flags[] = {"-O2", "-fno-builtin-memset",
                                                 "-fno-builtin-memcpy", NULL};
static const char *const tci_cc_other_flags[] = {"-O2", NULL};
static const char *const tci_cc_common_flags[] = {
    "-fPIC",           "-ffp-contract=off",    "-fwrapv", "-fno-strict-aliasing",
    "-fno-math-errno", "-fno-stack-protector", "-w",      NULL};

/* Constants in the pages of the code. A page of constants alone may never be asked for, where all
 * that is read of it is masked; and while it is not there each such read takes a hundred times as
 * long. */
#if defined(__ELF__)
#define TCI_CC_NEAR_CONSTANTS "-Wl,-z,noseparate-code"
#else
#define TCI_CC_NEAR_CONSTANTS "-w"
#endif

static void tci_cc_list(tci_cc_task *t, const char *const *list)
{
    for (; *list; list++) {
        tci_cc_arg(t, *list);
    }
}

static void tci_cc_fill_args(tci_cc_task *t, const tc_build *build, const tci_target *target,
                             const char *output)
{
    tci_cc_kind kind = tci_cc_kind_of(build->compiler);
    bool asan = TCI_CC_HOST_ASAN && kind == TCI_CC_HOST_KIND;
    tci_cc_arg(t, build->compiler);
    tci_cc_arg(t, "-shared");
    if (kind == TCI_CC_TCC) {
        tci_cc_arg(t, "-nostdlib");
        tci_cc_arg(t, "-w");
    } else {
        tci_cc_list(t, kind == TCI_CC_GCC     ? build->quick ? tci_cc_gcc_quick : tci_cc_gcc_flags
                       : kind == TCI_CC_CLANG ? tci_cc_clang_flags
                                              : tci_cc_other_flags);
        tci_cc_list(t, tci_cc_common_flags);
        if (kind == TCI_CC_GCC && target->vector_bytes < 64 && !strcmp(target->arch, "x86-64")) {
            tci_cc_list(t, tci_cc_gcc_few_registers);
        }
        for (int i = 0; i < target->n_flags; i++) {
            tci_cc_arg(t, target->flags[i]);
        }
        tci_cc_arg(t, asan ? "-fsanitize=address" : "-nostdlib");
    }
    if (build->keep) {
        tci_cc_arg(t, "-g");
    } else if (kind != TCI_CC_TCC && !asan) {
        tci_cc_arg(t, "-fno-asynchronous-unwind-tables");
    }
    tci_cc_arg(t, "-o");
    tci_cc_arg(t, output);
    if (kind != TCI_CC_TCC) {
        tci_cc_arg(t, TCI_CC_NEAR_CONSTANTS);
        tci_cc_arg(t, "-x");
        tci_cc_arg(t, "c");
    }
    tci_cc_arg(t, t->source_path.text);
    if (kind != TCI_CC_TCC) {
        tci_cc_arg(t, "-x");
        tci_cc_arg(t, "none");
        tci_cc_arg(t, "-lgcc");
    }
    t->args[t->n_args] = NULL;
}

static void *tci_cc_run(void *arg)
{
    tci_cc_task *t = arg;
    int64_t begin_ns = tci_os_now_ns();
    t->result = tci_os_run(&t->command, &t->log, &t->exit_code);
    if (t->build->built) {
        t->build->built(t->build->built_arg);
    }
    const char *file = strrchr(tci_str_text(&t->source_path), '/');
    char name[80];
    snprintf(name, sizeof(name), "compiler %s", file ? file + 1 : "");
    tci_profile_phase(name, begin_ns, tci_os_now_ns());
    return NULL;
}

/* ---- a build ---- */

static bool tci_cc_write_source(tci_cc_task *t, const tc_build *build, int i)
{
    tci_str text = {0};
    tci_str_printf(&text, "%s\n" TCI_OBJECT_END_LINE, build->sources[i]);
    tci_str_printf(&t->source_path, "%s/tc_%d.c", build->directory, i);
    bool good = !text.failed && !t->source_path.failed &&
                tci_os_publish(t->source_path.text, text.text, text.n, NULL);
    tci_str_free(&text);
    return good;
}

static void tci_cc_fill_command(tci_cc_task *t, const tc_build *build)
{
    t->build = build;
    t->command.argv = t->args;
    t->command.cpu_s = ((int64_t)build->timeout_ms + 999) / 1000;
    t->command.wall_ms = (int64_t)build->timeout_ms * TCI_CC_WALL;
    t->command.log_limit = TCI_CC_LOG_BYTES;
    t->command.temp_dir = build->directory; /* others may reach the usual one */
    t->command.cancel = build->cancel;
}

/* The thread of one of the other processes. */
static void *tci_cc_thread(void *arg)
{
    const tci_cc_task *t = arg;
    tci_profile_role("C compiler", t->number);
    return tci_cc_run(arg);
}

/* The other processes run in parallel with the first, each from a thread that lives as long as it
 * does; one without a thread runs when the first has ended. */
static void tci_cc_run_all(tci_cc_task *tasks, int n)
{
    for (int i = 1; i < n; i++) {
        tasks[i].number = i + 1;
        tasks[i].threaded = pthread_create(&tasks[i].thread, NULL, tci_cc_thread, &tasks[i]) == 0;
    }
    for (int i = 0; i < n; i++) {
        if (!tasks[i].threaded) {
            tci_cc_run(&tasks[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        if (tasks[i].threaded) {
            pthread_join(tasks[i].thread, NULL);
        }
    }
}

/* The command, what it printed, and how it ended. */
static const char *tci_cc_tell(const tci_cc_task *t, tc_build *build)
{
    tci_str text = {0};
    const char *why = NULL;
    for (int i = 0; i < t->n_args; i++) {
        tci_str_printf(&text, "%s%s", i ? " " : "", t->args[i]);
    }
    tci_str_printf(&text, "\n%s", tci_str_text(&t->log));
    if (t->result == TCI_SPAWN_MISSING) {
        why = "the compiler cannot be started";
        tci_str_printf(&text, "\n%s", why);
    } else if (t->result == TCI_SPAWN_TIMEOUT) {
        why = "the compiler took too long";
        tci_str_printf(&text, "\nkilled after %.3g s", (double)t->command.wall_ms / 1000);
    } else if (t->result == TCI_SPAWN_FAILED) {
        why = "the compiler failed";
        tci_str_printf(&text, "\nended with code %d after %.3g s of processor time (of %lld s)",
                       t->exit_code, (double)t->command.used_ns / 1e9, (long long)t->command.cpu_s);
    }
    build->say(build->say_arg, tci_str_text(&text));
    tci_str_free(&text);
    return why;
}

TCI_FN tc_status tci_cc_build(tc_build *build, const tci_target *target, const char **why)
{
    int n = build->n;
    tci_cc_task *tasks = tci_heap_get((size_t)n * sizeof(*tasks));
    bool written = true;
    *why = NULL;
    if (!tasks) {
        *why = "out of memory for the compiler's processes";
        return TC_ERR_MEMORY;
    }
    for (int i = 0; i < n && written; i++) {
        tci_cc_fill_command(&tasks[i], build);
        written = tci_cc_write_source(&tasks[i], build, i);
        if (written) {
            tci_cc_fill_args(&tasks[i], build, target, build->outputs[i]);
        }
    }
    if (written) {
        tci_cc_run_all(tasks, n);
        for (int i = 0; i < n; i++) {
            build->processes += tasks[i].result != TCI_SPAWN_MISSING;
            const char *this_why = tci_cc_tell(&tasks[i], build);
            *why = *why ? *why : this_why;
        }
    } else {
        *why = "the source cannot be written";
        build->say(build->say_arg, *why);
    }
    for (int i = 0; i < n; i++) {
        tci_str_free(&tasks[i].source_path);
        tci_str_free(&tasks[i].log);
    }
    tci_heap_free(tasks);
    return !written ? TC_ERR_IO : *why ? TC_ERR_COMPILER : TC_OK;
}

#undef TCI_CC_HOST_ASAN
#undef TCI_CC_HOST_KIND
