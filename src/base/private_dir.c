/* base/private_dir.c - directories that other users cannot change: opened and used safely
 * (base/private_dir.h).
 *
 * In: a path, and the purpose of the directory. Out: a descriptor.
 *
 * Design: whoever may write to a directory may replace its entries, so a path is only as safe as
 * the least safe directory on it. The path is resolved one name at a time from the root. Each
 * directory is opened relative to the previous one without following links, and checked by its
 * descriptor. Links are resolved here, so that the directories along link targets are checked too.
 * Once the last directory is open, paths are not used any more.
 *
 * Check: the owner is this user, root, or the owner of "/" (who could replace libc as well; root
 * maps to another uid in a user namespace). Nobody else may write to the
 * directory, except under the sticky bit, since entries that tc uses there are checked by their own
 * owner. The group may write to a directory of this user if it is the user's private group, which
 * distributions with umask 002 give each user. */
#include "private_dir.h"
#include "system_headers.h"

#define TCI_DIR_OTHERS (S_IWGRP | S_IWOTH)

enum { TCI_DIR_LINKS = 40, TCI_DIR_NAME = 256, TCI_DIR_DEPTH = 8 };

typedef struct tci_dir_walk {
    int at;       /* descriptor of where we are, -1: failed */
    tci_str here; /* its path; "": the root */
    tci_str rest; /* of the path */
    tci_dir_use use;
    uid_t root_owner;
    int links; /* followed so far */
    tci_str *why;
} tci_dir_walk;

/* ---- private groups ---- */

/* Field number `at` of the line, and its length: what is between colons. */
static const char *tci_dir_field(const char *line, int at, size_t *n)
{
    while (at > 0 && *line && *line != '\n') {
        at -= *line++ == ':';
    }
    *n = strcspn(line, ":\n");
    return line;
}

static bool tci_dir_field_is(const char *line, int at, unsigned number)
{
    size_t n;
    const char *field = tci_dir_field(line, at, &n);
    char *end;
    errno = 0;
    unsigned long value = strtoul(field, &end, 10);
    return n > 0 && !errno && end == field + n && value == number;
}

static const char *tci_dir_next_line(const char *line)
{
    line += strcspn(line, "\n");
    return line + (*line == '\n');
}

TCI_FN bool tci_dir_group_is_private(const char *passwd, const char *group, unsigned uid,
                                     unsigned gid)
{
    const char *name = NULL;
    size_t length = 0, n;
    for (const char *line = passwd; *line; line = tci_dir_next_line(line)) {
        if (*line == '+' || (tci_dir_field_is(line, 3, gid) && !tci_dir_field_is(line, 2, uid))) {
            return false; /* of a network's users nothing is known */
        }
        name = tci_dir_field_is(line, 3, gid) ? tci_dir_field(line, 0, &length) : name;
    }
    for (const char *line = group; *line && name; line = tci_dir_next_line(line)) {
        const char *members = tci_dir_field(line, 3, &n);
        bool own = n == 0 || (n == length && !memcmp(members, name, n));
        if (*line == '+' || (tci_dir_field_is(line, 2, gid) && !own)) {
            return false;
        }
    }
    return name != NULL;
}

/* True if another user may write to what st describes. */
static bool tci_dir_is_open(const struct stat *st)
{
    tci_str passwd = {0}, group = {0};
    bool open = (st->st_mode & TCI_DIR_OTHERS) != 0;
    if (open && !(st->st_mode & S_IWOTH) && st->st_uid == geteuid() &&
        tci_os_read_file("/etc/passwd", &passwd, NULL) &&
        tci_os_read_file("/etc/group", &group, NULL)) {
        open = !tci_dir_group_is_private(tci_str_text(&passwd), tci_str_text(&group), st->st_uid,
                                         st->st_gid);
    }
    tci_str_free(&passwd);
    tci_str_free(&group);
    return open;
}

static bool tci_dir_fail(tci_dir_walk *w, const char *name, const char *why)
{
    if (w->why) {
        w->why->n = 0;
        tci_str_printf(w->why, "'%s%s%s': %s", tci_str_text(&w->here), name ? "/" : "",
                       name        ? name
                       : w->here.n ? ""
                                   : "/",
                       why);
    }
    return false;
}

/* Of a directory on the way, or of a link: others cannot change where the path leads. Notes may be
 * kept below any directory, but no other user's link chooses in which of our directories. */
static bool tci_dir_judge(tci_dir_walk *w, const char *name, const struct stat *st)
{
    if (w->use == TCI_DIR_NOTES && !S_ISLNK(st->st_mode)) {
        return true;
    }
    if (!tci_os_is_ours(st) && st->st_uid != w->root_owner) {
        return tci_dir_fail(w, name, "it belongs to another user");
    }
    if (S_ISDIR(st->st_mode) && !(st->st_mode & S_ISVTX) && tci_dir_is_open(st)) {
        return tci_dir_fail(w, name, "others may write to it");
    }
    return true;
}

/* Makes a directory of mode 0700 also where the umask takes rights from its owner. Does not follow
 * a link that another user puts in its place; a libc that cannot do that leaves the mode alone. */
static int tci_dir_make(int at, const char *name)
{
    int failed = mkdirat(at, name, 0700);
    if (!failed) {
        (void)fchmodat(at, name, 0700, AT_SYMLINK_NOFOLLOW);
    }
    return failed;
}

/* ---- traversal ---- */

static bool tci_dir_start(tci_dir_walk *w)
{
    struct stat st;
    if (w->at >= 0) {
        close(w->at);
    }
    w->here.n = 0;
    tci_str_add(&w->here, "");
    w->at = open("/", TCI_O_PASS | O_DIRECTORY | O_CLOEXEC);
    if (w->at < 0 || fstat(w->at, &st)) {
        return tci_dir_fail(w, NULL, strerror(errno));
    }
    w->root_owner = st.st_uid;
    return tci_dir_judge(w, NULL, &st);
}

/* The path of the rest becomes what the link says, and then the rest. */
static bool tci_dir_follow(tci_dir_walk *w, const char *name, const struct stat *st)
{
    char target[4096];
    if (!tci_dir_judge(w, name, st)) {
        return false;
    }
    ssize_t n = readlinkat(w->at, name, target, sizeof(target) - 1);
    if (n <= 0 || (size_t)n == sizeof(target) - 1 || ++w->links > TCI_DIR_LINKS) {
        return tci_dir_fail(w, name, "it is a link that leads nowhere");
    }
    target[n] = 0;
    tci_str rest = {0};
    tci_str_printf(&rest, "%s/%s", target, tci_str_text(&w->rest));
    tci_str_free(&w->rest);
    w->rest = rest;
    return target[0] != '/' || tci_dir_start(w);
}

static void tci_dir_name_step(tci_dir_walk *w, const char *name)
{
    if (strcmp(name, "..")) {
        tci_str_printf(&w->here, "/%s", name);
        return;
    }
    while (w->here.n && w->here.text[--w->here.n] != '/') {
    }
    w->here.text[w->here.n] = 0;
}

static bool tci_dir_step(tci_dir_walk *w, const char *name)
{
    struct stat st;
    int failed = fstatat(w->at, name, &st, AT_SYMLINK_NOFOLLOW);
    if (failed && errno == ENOENT && w->use != TCI_DIR_TEMPORARY) {
        (void)tci_dir_make(w->at, name); /* what matters is what is there then */
        failed = fstatat(w->at, name, &st, AT_SYMLINK_NOFOLLOW);
    }
    if (failed) {
        return tci_dir_fail(w, name, strerror(errno));
    }
    if (S_ISLNK(st.st_mode)) {
        return tci_dir_follow(w, name, &st);
    }
    int fd = openat(w->at, name, TCI_O_PASS | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        tci_dir_fail(w, name, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    close(w->at);
    w->at = fd;
    tci_dir_name_step(w, name);
    return tci_dir_judge(w, NULL, &st);
}

/* Takes the next name off the rest. False: there is none, or (why is told) it is too long. */
static bool tci_dir_next(tci_dir_walk *w, char name[TCI_DIR_NAME], bool *good)
{
    const char *at = tci_str_text(&w->rest);
    size_t n;
    do {
        at += strspn(at, "/");
        n = strcspn(at, "/");
        at += n;
    } while (n == 1 && at[-1] == '.');
    *good = n < TCI_DIR_NAME || tci_dir_fail(w, NULL, strerror(ENAMETOOLONG));
    if (!n || !*good) {
        return false;
    }
    memcpy(name, at - n, n);
    name[n] = 0;
    size_t left = strlen(at);
    memmove(w->rest.text, at, left + 1);
    w->rest.n = left;
    return true;
}

static bool tci_dir_walk_all(tci_dir_walk *w, const char *path)
{
    char name[TCI_DIR_NAME], cwd[4096];
    bool good = path[0] != 0;
    if (!good) {
        return tci_dir_fail(w, "", strerror(ENOENT));
    }
    if (path[0] != '/') {
        good = getcwd(cwd, sizeof(cwd)) != NULL && cwd[0] == '/';
        tci_str_printf(&w->rest, "%s/", good ? cwd : "");
    }
    tci_str_add(&w->rest, path);
    good = good && tci_dir_start(w);
    while (good && tci_dir_next(w, name, &good)) {
        good = tci_dir_step(w, name) && !w->rest.failed;
    }
    return good && !w->rest.failed && !w->here.failed;
}

/* Whether the directory that the traversal came to may serve. */
static bool tci_dir_serves(tci_dir_walk *w)
{
    struct stat st;
    struct statvfs fs;
    if (w->use == TCI_DIR_TEMPORARY) {
        return true; /* judged on the way */
    }
    if (fstat(w->at, &st) || !tci_os_is_ours(&st)) {
        return tci_dir_fail(w, NULL, "it belongs to another user");
    }
    if (w->use == TCI_DIR_CODE && tci_dir_is_open(&st)) {
        return tci_dir_fail(w, NULL, "others may write to it");
    }
#if defined(ST_NOEXEC)
    const unsigned long noexec = ST_NOEXEC;
#else
    const unsigned long noexec = 0; /* not known here: loading will report it */
#endif
    if (w->use == TCI_DIR_CODE && (fstatvfs(w->at, &fs) || (fs.f_flag & noexec))) {
        return tci_dir_fail(w, NULL, "it may not hold code (noexec)");
    }
    return true;
}

TCI_FN bool tci_dir_open(tci_dir *d, const char *path, tci_dir_use use, tci_str *why)
{
    tci_dir_walk w = {.at = -1, .use = use, .why = why};
    memset(d, 0, sizeof(*d));
    d->fd = -1;
    if (tci_dir_walk_all(&w, path) && tci_dir_serves(&w)) {
        d->fd = openat(w.at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (d->fd < 0) {
            tci_dir_fail(&w, NULL, strerror(errno));
        }
    }
    if (w.at >= 0) {
        close(w.at);
    }
    tci_str_free(&w.rest);
    d->path = w.here;
    if (d->fd < 0) {
        tci_dir_close(d);
        return false;
    }
    if (!d->path.n) {
        tci_str_add(&d->path, "/");
    }
    d->writable = faccessat(d->fd, ".", W_OK | X_OK, 0) == 0;
    return true;
}

TCI_FN bool tci_dir_open_in(tci_dir *in, const tci_dir *d, const char *name, bool make)
{
    struct stat st;
    memset(in, 0, sizeof(*in));
    in->fd = -1;
    if (make && tci_dir_make(d->fd, name)) {
        return false;
    }
    in->fd = openat(d->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    tci_str_printf(&in->path, "%s/%s", strcmp(d->path.text, "/") ? d->path.text : "", name);
    in->writable = in->closed = true;
    if (in->fd < 0 || in->path.failed || fstat(in->fd, &st) || st.st_uid != geteuid() ||
        (st.st_mode & (S_IRWXG | S_IRWXO))) {
        int code = errno;
        tci_dir_close(in);
        errno = code;
        return false;
    }
    return true;
}

TCI_FN void tci_dir_close(tci_dir *d)
{
    if (d->fd >= 0) {
        close(d->fd);
    }
    tci_str_free(&d->path);
    d->fd = -1;
    d->writable = false;
}

/* ---- what is in it ---- */

TCI_FN bool tci_dir_read(const tci_dir *d, const char *name, int64_t most, tci_str *out, int *why)
{
    return tci_os_read_private_at(d->fd, name, d->closed, most, out, why);
}

TCI_FN bool tci_dir_publish(const tci_dir *d, const char *name, const void *bytes, size_t n,
                            bool durable, int *why)
{
    return tci_os_publish_at(d->fd, name, bytes, n, durable, why);
}

TCI_FN bool tci_dir_remove(const tci_dir *d, const char *name)
{
    return unlinkat(d->fd, name, 0) == 0 || unlinkat(d->fd, name, AT_REMOVEDIR) == 0;
}

TCI_FN bool tci_dir_has(const tci_dir *d, const char *name, int64_t bytes)
{
    struct stat st;
    return fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           st.st_size == bytes;
}

TCI_FN void tci_dir_touch(const tci_dir *d, const char *name)
{
    (void)utimensat(d->fd, name, NULL, AT_SYMLINK_NOFOLLOW);
}

/* A stream of its own, so that d's descriptor keeps its place. */
static DIR *tci_dir_stream(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
    if (!stream && fd >= 0) {
        close(fd);
    }
    return stream;
}

static bool tci_dir_is_dots(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static void tci_dir_remove_in(int at, const char *name, int depth)
{
    DIR *stream = tci_dir_stream(at, name);
    struct dirent *entry;
    while (stream && (entry = readdir(stream)) != NULL) {
        if (tci_dir_is_dots(entry->d_name) || unlinkat(dirfd(stream), entry->d_name, 0) == 0) {
            continue;
        }
        if (depth < TCI_DIR_DEPTH) {
            tci_dir_remove_in(dirfd(stream), entry->d_name, depth + 1);
        }
    }
    if (stream) {
        closedir(stream);
    }
    (void)unlinkat(at, name, AT_REMOVEDIR);
}

TCI_FN bool tci_dir_remove_tree(const tci_dir *d, const char *name)
{
    struct stat st;
    tci_dir_remove_in(d->fd, name, 0);
    return fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0;
}

static bool tci_dir_take(tci_dir_entry *e, int at, const char *name)
{
    struct stat st;
    size_t length = strlen(name);
    if (length >= sizeof(e->name) || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) ||
        (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
        return false;
    }
    memcpy(e->name, name, length + 1);
    e->is_dir = S_ISDIR(st.st_mode);
    e->bytes = st.st_size;
    e->mtime_ns = tci_os_mtime_ns(&st);
    e->age_ns = (int64_t)time(NULL) * 1000000000 - e->mtime_ns;
    return true;
}

TCI_FN int tci_dir_list(const tci_dir *d, const char *begins, tci_dir_entry **entries)
{
    DIR *stream = tci_dir_stream(d->fd, ".");
    struct dirent *entry;
    int n = 0, cap = 0;
    *entries = NULL;
    while (stream && (entry = readdir(stream)) != NULL) {
        if (strncmp(entry->d_name, begins, strlen(begins)) || tci_dir_is_dots(entry->d_name)) {
            continue;
        }
        if (n == cap) {
            cap = cap ? cap * 2 : 32;
            tci_dir_entry *fresh = tci_heap_resize(*entries, (size_t)cap * sizeof(**entries));
            if (!fresh) {
                tci_heap_free(*entries);
                *entries = NULL;
                n = -1;
                break;
            }
            *entries = fresh;
        }
        n += tci_dir_take(&(*entries)[n], dirfd(stream), entry->d_name);
    }
    if (stream) {
        closedir(stream);
    }
    return stream ? n : -1;
}

#undef TCI_DIR_OTHERS
