/* debug/trace.c - writes the chrome trace.
 *
 * In: finished spans. Out: a JSON array of complete events ("ph":"X"), one a line, times in
 * microseconds. The one idea: after every event the closing bracket is written too, and the next
 * event begins over it, so the file is valid JSON at any moment, also when the host never says
 * goodbye or crashes.
 *
 * One lock guards the file. */
#include "trace.h"

#include <stdio.h>
#include <string.h>

#include "../base/os.h"

static struct {
    tci_mutex lock;
    int on; /* atomic */
    FILE *file;
    bool any;
    int64_t origin_ns;
} tci_trace = {.lock = TCI_MUTEX_INIT};

TCI_FN bool tci_trace_is_on(void)
{
    return __atomic_load_n(&tci_trace.on, __ATOMIC_RELAXED) != 0;
}

/* Returns what tci_trace_unlock takes: writing is where a cancelled thread would stop. */
static int tci_trace_lock(void)
{
    int cancel = tci_os_no_cancel();
    pthread_mutex_lock(&tci_trace.lock);
    return cancel;
}

static void tci_trace_unlock(int cancel)
{
    pthread_mutex_unlock(&tci_trace.lock);
    tci_os_may_cancel(cancel);
}

TCI_FN bool tci_trace_open(const char *path)
{
    tci_os_keep_over_fork(&tci_trace.lock, NULL);
    int cancel = tci_trace_lock();
    if (!tci_trace.file) {
        tci_trace.file = fopen(path, "we");
        if (tci_trace.file) {
            fputs("[\n]\n", tci_trace.file);
            fflush(tci_trace.file);
            tci_trace.any = false;
            tci_trace.origin_ns = tci_os_now_ns();
            __atomic_store_n(&tci_trace.on, 1, __ATOMIC_RELAXED);
        }
    }
    bool open = tci_trace.file != NULL;
    tci_trace_unlock(cancel);
    return open;
}

TCI_FN void tci_trace_close(void)
{
    int cancel = tci_trace_lock();
    __atomic_store_n(&tci_trace.on, 0, __ATOMIC_RELAXED);
    if (tci_trace.file) {
        fclose(tci_trace.file);
        tci_trace.file = NULL;
    }
    tci_trace_unlock(cancel);
}

/* Names come from ops and kernels; anything that JSON would have to escape becomes a dot. */
static void tci_trace_clean(char *out, size_t room, const char *name)
{
    size_t n = 0;
    for (; name[n] && n + 1 < room; n++) {
        char c = name[n];
        out[n] = c < ' ' || c > '~' || c == '"' || c == '\\' ? '.' : c;
    }
    out[n] = 0;
}

TCI_FN void tci_trace_span(const char *category, const char *name, int64_t begin_ns, int64_t end_ns)
{
    if (!tci_trace_is_on()) {
        return;
    }
    char clean[128];
    tci_trace_clean(clean, sizeof(clean), name);
    int cancel = tci_trace_lock();
    FILE *f = tci_trace.file;
    if (f && fseek(f, -2, SEEK_END) == 0) {
        fprintf(f,
                "%s{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%llu,\"ts\":%.3f,"
                "\"dur\":%.3f}\n]\n",
                tci_trace.any ? "," : "", clean, category, (unsigned long long)tci_os_thread_id(),
                (double)(begin_ns - tci_trace.origin_ns) / 1000,
                    (double)(end_ns - begin_ns) / 1000);
        fflush(f);
        tci_trace.any = true;
    }
    tci_trace_unlock(cancel);
}
