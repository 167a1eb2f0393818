/* base/temp_dir.c - creates, keeps and removes the temporary directories in which compilers work.
 *
 * In: candidate parent directories. Out: an open directory that only this user can enter.
 *
 * Design: a directory is in use while a process holds its lock (flock on the directory), which the
 * kernel releases when the process dies. Whoever gets the lock may remove the directory, whichever
 * machine or container its owner's process number came from. A creator that loses its directory
 * between creation and locking notices this and creates another.
 *
 * On file systems without directory locks (some network file systems) a directory that is a day old
 * counts as stale. */
#include "temp_dir.h"

#include <stdlib.h>

#include "env.h"
#include "hash.h"
#include "system_headers.h"

#define TCI_WORKDIR_PREFIX "tc-b-" /* 16 digits follow */
#define TCI_WORKDIR_DAY_NS (24 * 3600 * (int64_t)1000000000)

enum { TCI_WORKDIR_TRIES = 8 };

typedef enum tci_workdir_lock {
    TCI_WORKDIR_OURS,
    TCI_WORKDIR_USED,
    TCI_WORKDIR_UNKNOWN
} tci_workdir_lock;

static tci_workdir_lock tci_workdir_try_lock(const tci_dir *d)
{
    if (flock(d->fd, LOCK_EX | LOCK_NB) == 0) {
        return TCI_WORKDIR_OURS;
    }
    return errno == EWOULDBLOCK || errno == EINTR ? TCI_WORKDIR_USED : TCI_WORKDIR_UNKNOWN;
}

/* ---- sweeping ---- */

static int tci_workdir_compare_age(const void *a, const void *b)
{
    const tci_dir_entry *x = a;
    const tci_dir_entry *y = b;
    return (x->age_ns > y->age_ns) - (x->age_ns < y->age_ns);
}

static void tci_workdir_sweep_one(const tci_dir *d, const tci_dir_entry *e, int *failures)
{
    tci_dir folder;
    bool is_old = e->age_ns > TCI_WORKDIR_DAY_NS;
    if (!e->is_dir || strlen(e->name) != strlen(TCI_WORKDIR_PREFIX) + 16 ||
        !tci_dir_open_in(&folder, d, e->name, false)) {
        return; /* another user's, say */
    }
    tci_workdir_lock lock = tci_workdir_try_lock(&folder);
    bool is_left = lock == TCI_WORKDIR_OURS || (lock == TCI_WORKDIR_UNKNOWN && is_old);
    if (is_left && faccessat(folder.fd, TCI_WORKDIR_LOG, F_OK, 0) == 0) {
        is_left = is_old || ++*failures > TCI_WORKDIR_FAILURES;
    }
    if (is_left) {
        (void)tci_dir_remove_tree(d, e->name);
    }
    tci_dir_close(&folder);
}

/* Whether this is the first look at that directory; of the last few that were looked at. */
static bool tci_workdir_is_new(const tci_dir *d)
{
    static struct {
        tci_mutex lock;
        tci_hash seen[4];
        int next;
    } known = {.lock = TCI_MUTEX_INIT};
    tci_hash hash = tci_hash_bytes(d->path.text, d->path.n);
    bool is_new = true;
    tci_os_keep_over_fork(&known.lock, NULL);
    pthread_mutex_lock(&known.lock);
    for (int i = 0; i < TCI_COUNT(known.seen); i++) {
        is_new = is_new && (known.seen[i].lo != hash.lo || known.seen[i].hi != hash.hi);
    }
    if (is_new) {
        known.seen[known.next++ % TCI_COUNT(known.seen)] = hash;
    }
    pthread_mutex_unlock(&known.lock);
    return is_new;
}

TCI_FN void tci_workdir_sweep(const tci_dir *d, bool again)
{
    tci_dir_entry *entries;
    if (!tci_workdir_is_new(d) && !again) {
        return;
    }
    int n = tci_dir_list(d, TCI_WORKDIR_PREFIX, &entries);
    int failures = 0;
    if (n > 1) {
        qsort(entries, (size_t)n, sizeof(*entries), tci_workdir_compare_age);
    }
    for (int i = 0; i < n; i++) {
        tci_workdir_sweep_one(d, &entries[i], &failures);
    }
    tci_heap_free(entries);
}

/* ---- making ---- */

/* False: errno says why. */
static bool tci_workdir_make_in(tci_workdir *w)
{
    const char *prefix = w->is_kept ? "tc-kept-" : TCI_WORKDIR_PREFIX;
    for (int i = 0; i < TCI_WORKDIR_TRIES; i++) {
        struct stat st;
        snprintf(w->name, sizeof(w->name), "%s%016llx", prefix,
                 (unsigned long long)tci_os_random());
        if (!tci_dir_open_in(&w->dir, &w->base, w->name, true)) {
            if (errno != EEXIST && errno != ENOENT) {
                return false;
            }
            continue;
        }
        tci_workdir_lock lock = tci_workdir_try_lock(&w->dir);
        if (lock != TCI_WORKDIR_USED &&
            fstatat(w->base.fd, w->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            return true;
        }
        tci_dir_close(&w->dir); /* another process sweeps it */
        errno = EAGAIN;
    }
    return false;
}

static void tci_workdir_tell(tci_str *why, const char *text)
{
    tci_str_printf(why, "%s%s", why->n ? "; " : "", text);
}

static bool tci_workdir_try(tci_workdir *w, const char *place, tci_dir_use use, tci_str *why)
{
    tci_str wrong = {0};
    bool good = tci_dir_open(&w->base, place, use, &wrong);
    if (!good) {
        tci_workdir_tell(why, tci_str_text(&wrong));
    } else if (!tci_workdir_make_in(w)) {
        tci_str_printf(&wrong, "'%s': %s", w->base.path.text, strerror(errno));
        tci_workdir_tell(why, tci_str_text(&wrong));
        tci_dir_close(&w->base);
        good = false;
    }
    tci_str_free(&wrong);
    return good;
}

TCI_FN bool tci_workdir_make(tci_workdir *w, const char *last, bool is_kept, tci_str *why)
{
    const char *wanted = tci_env_get(TCI_ENV_TMPDIR);
    memset(w, 0, sizeof(*w));
    w->base.fd = w->dir.fd = -1;
    w->is_kept = is_kept;
    bool good = (wanted && tci_workdir_try(w, wanted, TCI_DIR_TEMPORARY, why)) ||
                tci_workdir_try(w, "/tmp", TCI_DIR_TEMPORARY, why) ||
                (last && tci_workdir_try(w, last, TCI_DIR_CODE, why));
    if (good) {
        tci_workdir_sweep(&w->base, false);
    }
    return good;
}

TCI_FN void tci_workdir_end(tci_workdir *w, bool failed)
{
    if (w->dir.fd < 0) {
        return;
    }
    if (!failed && !w->is_kept) {
        (void)tci_dir_remove_tree(&w->base, w->name);
    }
    tci_dir_close(&w->dir);
    if (failed) {
        tci_workdir_sweep(&w->base, true);
    }
    tci_dir_close(&w->base);
}

#undef TCI_WORKDIR_PREFIX
#undef TCI_WORKDIR_DAY_NS
