/* base/atomic_file.c - atomic file replacement: writes a temporary file and renames it, so that a
 * file is complete or absent. See base/os.h.
 *
 * In: a path, and bytes in order. Out: a file.
 *
 * Design: the bytes go to a temporary file in the directory of the path, which is renamed to the
 * path at the end. The directory is opened once and all later steps name files relative to it, so
 * only the length of the file name itself is limited.
 *
 * Files that must survive a crash of the machine are flushed to the disk before the rename
 * (durable). A flush takes 0.3 ms on a virtual disk and milliseconds on others, so it is used only
 * where a reader would otherwise have to start from nothing.
 *
 * Temporary files in the user's directories are named tc-HASH-SLOT.tmp, where HASH is that of the
 * destination's name. Their writer holds a lock (flock) on them until the rename; the system
 * releases it when the process dies. A save looks at the slots of its name, removes those that are
 * not locked, and takes a free one. On file systems without locks (some network file systems) a
 * file that is a day old counts as stale. */
#include "hash.h"
#include "os.h"
#include "system_headers.h"

enum { TCI_FRESH_LINKS = 40, TCI_FRESH_SWEPT = 16, TCI_FRESH_SLOTS = 1024 };

/* Opens the directory of a path; the name in it is kept. An errno code, or 0. */
static int tci_fresh_enter(tci_os_fresh *f, int at, const char *path)
{
    tci_str dir = {0}, name = {0};
    const char *slash = strrchr(path, '/');
    tci_str_add(&name, slash ? slash + 1 : path);
    tci_str_add_n(&dir, slash ? path : ".", slash ? (size_t)(slash - path) + 1 : 1);
    int code = dir.failed || name.failed ? ENOMEM : 0;
    if (!code && (!name.n || !strcmp(name.text, ".") || !strcmp(name.text, ".."))) {
        code = *path ? EISDIR : ENOENT;
    }
    int fd = code ? -1 : openat(at, dir.text, TCI_O_PASS | O_DIRECTORY | O_CLOEXEC);
    code = code ? code : fd < 0 ? errno : 0;
    if (f->dir >= 0) {
        close(f->dir);
    }
    tci_str_free(&f->name);
    tci_str_free(&dir);
    f->dir = fd;
    f->name = name;
    return code;
}

/* As the system's own rule for links in directories that everybody writes to
 * (fs.protected_symlinks): no other user's link says which of our files is replaced. */
static bool tci_fresh_may_follow(const tci_os_fresh *f, const struct stat *link)
{
    struct stat dir;
    return tci_os_is_ours(link) ||
           (fstat(f->dir, &dir) == 0 &&
            (link->st_uid == dir.st_uid || !(dir.st_mode & S_ISVTX) || !(dir.st_mode & S_IWOTH)));
}

/* Finds the current file at the path, following links. */
static int tci_fresh_find(tci_os_fresh *f, const char *path)
{
    char target[4096];
    struct stat st;
    int code = tci_fresh_enter(f, AT_FDCWD, path);
    for (int i = 0; !code; i++) {
        if (fstatat(f->dir, f->name.text, &st, AT_SYMLINK_NOFOLLOW)) {
            return errno == ENOENT ? 0 : errno;
        }
        if (!S_ISLNK(st.st_mode)) {
            break;
        }
        if (!tci_fresh_may_follow(f, &st)) {
            return EACCES;
        }
        ssize_t n = readlinkat(f->dir, f->name.text, target, sizeof(target) - 1);
        if (n <= 0 || (size_t)n == sizeof(target) - 1 || i == TCI_FRESH_LINKS) {
            return ELOOP;
        }
        target[n] = 0;
        code = tci_fresh_enter(f, f->dir, target);
    }
    if (code) {
        return code;
    }
    if (!S_ISREG(st.st_mode)) {
        return S_ISDIR(st.st_mode) ? EISDIR : ENOTSUP;
    }
    f->replaces = true;
    f->mode = st.st_mode & 0777;
    f->uid = st.st_uid;
    f->gid = st.st_gid;
    return 0;
}

/* ---- temporary files ---- */

static void tci_fresh_create(tci_os_fresh *f, int mode)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    f->fd = openat(f->dir, f->temporary.text, flags, mode);
    f->code = f->fd < 0 ? errno : 0;
}

/* Sets the name of a slot. False: out of memory. */
static bool tci_fresh_name_slot(tci_os_fresh *f, int slot)
{
    tci_hash hash = tci_hash_bytes(f->name.text, f->name.n);
    f->temporary.n = 0;
    tci_str_printf(&f->temporary, "tc-%016llx-%d.tmp", (unsigned long long)hash.lo, slot);
    f->code = f->temporary.failed ? ENOMEM : 0;
    return !f->code;
}

/* Removes the file of a slot if its writer is dead. Only who holds the lock of a file renames or
 * removes it, so what the name means does not change once the lock is ours. */
static void tci_fresh_sweep(const tci_os_fresh *f)
{
    const int64_t day_s = 24 * 3600;
    struct stat st, now;
    const char *name = f->temporary.text;
    int fd = openat(f->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || !tci_os_is_ours(&st)) {
        (void)(fd >= 0 && close(fd));
        return;
    }
    bool is_left = !flock(fd, LOCK_EX | LOCK_NB) ||
                   (errno != EWOULDBLOCK && st.st_mtime < time(NULL) - day_s);
    if (is_left && !fstatat(f->dir, name, &now, AT_SYMLINK_NOFOLLOW) && now.st_ino == st.st_ino &&
        now.st_dev == st.st_dev) {
        (void)unlinkat(f->dir, name, 0);
    }
    close(fd);
}

/* Takes the lock. False: another process took this file for a leftover before it was locked. */
static bool tci_fresh_lock(const tci_os_fresh *f)
{
    struct stat st;
    bool busy = flock(f->fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    return !busy && !fstat(f->fd, &st) && st.st_nlink;
}

static void tci_fresh_take_slot(tci_os_fresh *f, int mode)
{
    for (int slot = 0; slot < TCI_FRESH_SWEPT && tci_fresh_name_slot(f, slot); slot++) {
        tci_fresh_sweep(f);
    }
    int code = f->code ? f->code : EEXIST;
    for (int slot = 0; slot < TCI_FRESH_SLOTS && code == EEXIST; slot++) {
        if (!tci_fresh_name_slot(f, slot)) {
            return;
        }
        tci_fresh_create(f, mode);
        code = f->code;
        if (!code && !tci_fresh_lock(f)) {
            close(f->fd);
            f->fd = -1;
            code = EEXIST;
        }
    }
    f->code = code;
}

/* ---- from begin to end ---- */

static void tci_fresh_start(tci_os_fresh *f)
{
    memset(f, 0, sizeof(*f));
    f->began = true;
    f->dir = f->fd = -1;
}

TCI_FN void tci_os_fresh_begin(tci_os_fresh *f, int at, const char *path)
{
    tci_fresh_start(f);
    f->code = tci_fresh_enter(f, at, path);
    tci_str_printf(&f->temporary, "%s.%ld.%016llx.tmp", tci_str_text(&f->name), (long)getpid(),
                   (unsigned long long)tci_os_random());
    f->code = f->code ? f->code : f->temporary.failed ? ENOMEM : 0;
    if (!f->code) {
        tci_fresh_create(f, 0600);
    }
    if (!f->code) {
        (void)fchmod(f->fd, 0600); /* the umask may have taken our own rights */
    }
}

TCI_FN void tci_os_fresh_begin_users(tci_os_fresh *f, const char *path)
{
    tci_fresh_start(f);
    f->users = true;
    f->code = tci_fresh_find(f, path);
    if (!f->code) {
        tci_fresh_take_slot(f, f->replaces ? 0600 : 0666);
    }
}

TCI_FN void tci_os_fresh_close_to_others(tci_os_fresh *f)
{
    struct stat st;
    const mode_t others = S_IWGRP | S_IWOTH;
    f->mode &= ~(unsigned)others;
    if (!f->code && !f->replaces && !fstat(f->fd, &st)) {
        (void)fchmod(f->fd, st.st_mode & 0777 & ~others);
    }
}

TCI_FN void tci_os_fresh_write(tci_os_fresh *f, const void *bytes, size_t n)
{
    f->code = f->code ? f->code : tci_os_write_all(f->fd, bytes, n);
}

/* Owner, group and mode of the file that is replaced. Where the group cannot be kept the new one
 * may do no more than others. A file system without modes is not an error: 0600 is stricter. */
static void tci_fresh_keep_mode(const tci_os_fresh *f)
{
    mode_t mode = (mode_t)f->mode;
    if (fchown(f->fd, (uid_t)f->uid, (gid_t)f->gid) && fchown(f->fd, (uid_t)-1, (gid_t)f->gid)) {
        mode &= (mode_t)(~S_IRWXG | (mode & S_IRWXO) << 3);
    }
    (void)fchmod(f->fd, mode);
}

static void tci_fresh_close(tci_os_fresh *f)
{
    if (close(f->fd) && !f->code) {
        f->code = errno;
    }
    f->fd = -1;
}

static void tci_fresh_finish(tci_os_fresh *f, bool keep, bool durable)
{
    if (keep && !f->code && f->replaces) {
        tci_fresh_keep_mode(f);
    }
    bool synced = f->code || !keep || !(durable || f->users) || !fsync(f->fd) || errno == EINVAL;
    if (!synced) { /* EINVAL: this kind has no disk */
        f->code = errno;
    }
    if (!f->users) { /* else the lock is held until the rename; what close tells fsync has told */
        tci_fresh_close(f);
    }
    if (keep && !f->code && renameat(f->dir, f->temporary.text, f->dir, f->name.text)) {
        f->code = errno;
    }
    if (!keep || f->code) {
        (void)unlinkat(f->dir, f->temporary.text, 0);
    }
    if (f->fd >= 0) {
        tci_fresh_close(f);
    }
}

TCI_FN int tci_os_fresh_end(tci_os_fresh *f, bool keep, bool durable)
{
    if (!f->began) {
        return f->code;
    }
    if (f->fd >= 0) {
        tci_fresh_finish(f, keep, durable);
    }
    if (f->dir >= 0) {
        close(f->dir);
    }
    tci_str_free(&f->name);
    tci_str_free(&f->temporary);
    f->began = false;
    return f->code;
}

TCI_FN const char *tci_os_fresh_why(int code)
{
    return code == ENOTSUP  ? "what is there is not a regular file"
           : code == EISDIR ? "it is a directory"
                            : strerror(code);
}

TCI_FN bool tci_os_publish_at(int at, const char *path, const void *bytes, size_t n, bool durable,
                              int *why)
{
    tci_os_fresh f;
    tci_os_fresh_begin(&f, at, path);
    tci_os_fresh_write(&f, bytes, n);
    int code = tci_os_fresh_end(&f, true, durable);
    if (code && why) {
        *why = code;
    }
    return !code;
}

TCI_FN bool tci_os_publish(const char *path, const void *bytes, size_t n, int *why)
{
    return tci_os_publish_at(AT_FDCWD, path, bytes, n, false, why);
}
