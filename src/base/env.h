/* base/env.h - table of environment variables: every variable that tc reads is one row. The same
 * settings exist as fields of tc_options; a field that is set overrides the variable. Variables
 * with a field are read once, when a context is made; the others (LOG, KEEP, NVRTC, TMPDIR, HOME,
 * XDG_CACHE_HOME) when they are needed, and THREADS without a context once per process. A switch is
 * on for any number except 0. */
#ifndef TCI_BASE_ENV_H
#define TCI_BASE_ENV_H

#include "platform.h"

/* The words that TC_LOG and TC_DUMP take, and "all". */
#define TCI_ENV_TOPICS "compile,cache,fusion,recompiles,source,kernels"
#define TCI_ENV_STAGES "graph,rewrite,groups,plan,kernel,loop,interp,source,steps,dot,html"
/* The words that TC_CHECK takes. */
#define TCI_ENV_CHECKS "bits,nan,inf,crash"
/* The words of TC_STANCE, in the order of tc_stance. */
#define TCI_ENV_STANCES "compile,fail,interpret,later"

/* X(id, name, doc) */
#define TCI_ENV_ROWS(X)                                                                            \
    X(HELP, "TC_HELP", "1: print this list once to stderr")                                        \
    X(BACKEND, "TC_BACKEND", "interp, cpu, cuda, an engine (onnxrt) or a registered name")         \
    X(MACHINE, "TC_MACHINE", "file or name of the machine to compile for: options.machine")        \
    X(CC, "TC_CC", "the C compiler: a name on PATH or a path (default cc, gcc, clang, tcc)")      \
    X(NVRTC, "TC_NVRTC", "the NVRTC library to use (default: where CUDA is usually installed)")   \
    X(CC_TIMEOUT, "TC_CC_TIMEOUT", "seconds of processor time a compiler may use (default 120)")   \
    X(CACHE_DIR, "TC_CACHE_DIR", "disk cache (default $XDG_CACHE_HOME/tc or ~/.cache/tc)")         \
    X(CACHE_MB, "TC_CACHE_MB", "disk cache size cap in MiB (default 256)")                         \
    X(MEMORY_CACHE_MB, "TC_MEMORY_CACHE_MB", "memory cache size cap in MiB (default 64; 0: none)") \
    X(NO_CACHE, "TC_NO_CACHE", "1: do not read or write the disk cache")                           \
    X(KEEP, "TC_KEEP", "1: keep generated sources and objects, and compile with -g")               \
    X(THREADS, "TC_THREADS", "worker threads (default: affinity mask and cgroup quota)")           \
    X(VECTOR, "TC_VECTOR", "bits of a vector: 0 (scalar), 128, 256, 512 (default: the machine)")   \
    X(MATRIX, "TC_MATRIX", "0: contractions never use matrix units, or pairs of bf16")             \
    X(REPRODUCIBLE, "TC_REPRODUCIBLE", "1: the same bits on every backend and for symbolic sizes") \
    X(FUSION, "TC_FUSION", "0: each op that computes has a kernel of its own")                     \
    X(STANCE, "TC_STANCE", "what no cache has: " TCI_ENV_STANCES " (default compile)")             \
    X(SCHEDULE, "TC_SCHEDULE", "file of schedules to force: lines KERNEL: SCHEDULE, as explained") \
    X(DUMP, "TC_DUMP",                                                                             \
      "to dump: " TCI_ENV_STAGES " or all")                                                        \
    X(DUMP_DIR, "TC_DUMP_DIR", "where dumps go (default ./tc_dump)")                               \
    X(LOG, "TC_LOG", "topics logged to stderr: " TCI_ENV_TOPICS " or all")                         \
    X(EXPLAIN, "TC_EXPLAIN", "file (-: stderr) for tc_explain of each program that is made")       \
    X(CHECK, "TC_CHECK", "1: check each kernel of a run; or some of bits,nan,inf,crash")         \
    X(VERIFY, "TC_VERIFY", "1: verify every IR after every stage")                                 \
    X(TRACE, "TC_TRACE", "file: timeline of the process, for Perfetto; also after a crash")        \
    X(COMM, "TC_COMM", "engine of tc_comm_from_env: shm or mpi (default: what the launcher set)")  \
    X(ENGINES, "TC_ENGINES", "directories of engines' libraries or Python packages, split by ':'") \
    X(VIRTUAL_ENV, "VIRTUAL_ENV", "Python environment whose packages are searched for engines")    \
    X(HOME_CACHE, "XDG_CACHE_HOME", "base of the default cache directory")                         \
    X(HOME, "HOME", "base of the default cache directory when XDG_CACHE_HOME is unset")            \
    X(TMPDIR, "TMPDIR", "where private build directories are made (default /tmp)")

typedef enum tci_env {
#define TCI_ROW(id, name, doc) TCI_ENV_##id,
    TCI_ENV_ROWS(TCI_ROW)
#undef TCI_ROW
        TCI_ENV_COUNT
} tci_env;

TCI_FN const char *tci_env_get(tci_env id); /* NULL when unset or empty */
TCI_FN int64_t tci_env_int(tci_env id, int64_t fallback);
/* The place of the variable's value in a list of words; -1: it is not set, or none of them. */
TCI_FN int tci_env_word(tci_env id, const char *words);
TCI_FN bool tci_env_has_word(tci_env id, const char *word); /* in "a,b,c"; "all" has every word */
/* True if the variable is set to what it cannot be; text then says so: "TC_THREADS is 'abc' ..." */
TCI_FN bool tci_env_is_wrong(tci_env id, char *text, size_t room);
/* A variable of the process that begins with TC_ and is none of the rows; *at counts from 0 on.
 * NULL: there are no more. */
TCI_FN const char *tci_env_unknown(int *at);
TCI_FN void tci_env_help_once(void); /* TC_HELP=1: prints the rows to stderr, once a process */

#endif
