/* engines/load_library.c - finds and loads the shared libraries of engines
 * (engines/load_library.h).
 *
 * A library may crash in its constructors, so it is first loaded in a child process whose output is
 * discarded. If the child cannot report (the host reaps it, or it hangs on a lock that another
 * thread held at the fork), the library is loaded anyway. If the child printed, output of this
 * process is discarded too while the library is loaded. */
#include "load_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../base/env.h"
#include "../base/system_headers.h"

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
