/* Directories of caches and builds: those that others can change, that hold no code,
 * are full or only to be read. Needs a compiler. */
#define _GNU_SOURCE
#include "cache.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- plants ---- */

TEST(files_that_others_may_write_are_refused)
{
    begin();
    static const mode_t modes[] = {0620, 0602, 0666};
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    char path[1024];
    snprintf(path, sizeof(path), "%s", find_file(in_dir("cache"), "tc-p-", ".bin"));
    bytes good = read_file(path);
    for (int i = 0; i < 3; i++) {
        write_file(path, good.data, good.n, modes[i]);
        outcome r = attempt(&o, 0, true);
        CHECK_RAN(r, "cpu");
        CHECK_EQ_INT(r.used.disk_hits, 0);
        CHECK(r.used.cache_rejects >= 1);
    }
    write_file(in_dir("elsewhere"), good.data, good.n, 0600);
    unlink(path);
    CHECK_EQ_INT(symlink(in_dir("elsewhere"), path), 0);
    outcome link = attempt(&o, 0, true);
    CHECK_RAN(link, "cpu");
    CHECK_EQ_INT(link.used.disk_hits, 0);
    unlink(path);
    CHECK_EQ_INT(mkfifo(path, 0600), 0); /* opening it must not wait */
    outcome fifo = attempt(&o, 0, true);
    CHECK_RAN(fifo, "cpu");
    CHECK_EQ_INT(fifo.used.disk_hits, 0);
    free(good.data);
    end();
}

TEST(files_of_other_users_are_refused)
{
    if (geteuid() != 0) {
        SKIP("only root can give a file away");
    }
    begin();
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    const char *path = find_file(in_dir("cache"), "tc-p-", ".bin");
    CHECK_EQ_INT(chown(path, 12345, 12345), 0);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.disk_hits, 0);
    CHECK_EQ_INT(chown(in_dir("cache"), 12345, 12345), 0);
    outcome foreign = attempt(&o, 0, true);
    CHECK_RAN(foreign, "cpu");
    CHECK_EQ_INT(foreign.used.disk_hits, 0);
    CHECK_EQ_INT(foreign.used.compiler_runs, 1);
    end();
}

/* The compiler's files have the mode that the umask leaves; the folder they are in is closed. */
TEST(any_umask_gets_native_code)
{
    static const mode_t masks[] = {0, 002, 022, 077, 0777};
    mode_t before = umask(022);
    for (int i = 0; i < 5; i++) {
        if (masks[i] == 0777 && geteuid()) {
            continue; /* the compiler cannot read its own files */
        }
        begin();
        struct stat st;
        tc_options o = default_options();
        umask(masks[i]);
        outcome made = attempt(&o, 0, true), found = attempt(&o, 0, true);
        umask(022);
        CHECK_RAN(made, "cpu");
        CHECK_EQ_INT(made.used.compiler_runs, 1);
        CHECK_RAN(found, "cpu");
        CHECK_EQ_INT(found.used.disk_hits, 1);
        CHECK(stat(in_dir("cache"), &st) == 0 && (st.st_mode & 07777) == 0700);
        CHECK(stat(find_file(in_dir("cache"), "tc-m-", ".so"), &st) == 0);
        CHECK_EQ_INT(st.st_mode & 07777, 0600);
        end();
    }
    umask(before);
}

TEST(a_directory_that_others_may_write_is_not_used)
{
    begin();
    int n;
    tc_options o = default_options();
    CHECK_EQ_INT(mkdir(in_dir("cache"), 0700), 0);
    CHECK_EQ_INT(chmod(in_dir("cache"), 0777), 0);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu"); /* memory only */
    folder_bytes(in_dir("cache"), &n);
    CHECK_EQ_INT(n, 0);
    write_file(in_dir("file"), "x", 1, 0600);
    o.cache_dir = in_dir("file"); /* no directory at all */
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    o.cache_dir = "/proc/tc-cannot-be-made";
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    end();
}

/* ---- places that do not hold code ---- */

/* Runs body in a child that may mount over folders of its own. */
static void in_child_with_mounts(int (*body)(void))
{
    enum { NO_MOUNTS = 77 };
    int ended = -1;
    fflush(stdout);
    tc_shutdown();
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
            tct_exit(NO_MOUNTS);
        }
        int result = body();
        fflush(stdout);
        tct_exit(result || tct_failures);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == NO_MOUNTS) {
        end();
        SKIP("nothing can be mounted here");
    }
    CHECK_EQ_INT(ended, 0);
}

static int mount_folder(const char *name, unsigned long flags, const char *options)
{
    return mkdir(in_dir(name), 0700) || mount("tmpfs", in_dir(name), "tmpfs", flags, options);
}

/* From now on the system makes no files in memory. False: that cannot be had. */
static bool forbid_memory_files(void)
{
#if defined(SYS_memfd_create) && defined(__linux__)
    struct sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                           0), /* the number of the call */
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {4, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
#else
    return true;
#endif
}

static int try_noexec_places(void)
{
    int n;
    char sound_cache[600];
    tc_options o = default_options();
    snprintf(sound_cache, sizeof(sound_cache), "%s", in_dir("sound"));
    if (mount_folder("cache", MS_NOEXEC, "mode=0700") ||
        mount_folder("temporary", MS_NOEXEC, "mode=0700")) {
        return 1;
    }
    outcome memory_only = attempt(&o, 0, true); /* what may not hold code is no cache */
    CHECK_RAN(memory_only, "cpu");
    folder_bytes(in_dir("cache"), &n);
    CHECK_EQ_INT(n, 0);
    setenv("TMPDIR", in_dir("temporary"), 1);
    for (int keep = 0; keep < 2; keep++) { /* built there, loaded from memory */
        setenv("TC_KEEP", keep ? "1" : "0", 1);
        CHECK_RAN(attempt(&o, 0, true), "cpu");
    }
    unsetenv("TC_KEEP");
    tc_options sound = default_options();
    sound.cache_dir = sound_cache;
    CHECK_RAN(attempt(&sound, 0, true), "cpu");
    CHECK_EQ_INT(attempt(&sound, 0, true).used.disk_hits, 1);
    if (!forbid_memory_files()) {
        return 0;
    }
    CHECK_EQ_INT(attempt(&sound, 0, true).used.disk_hits, 1); /* loaded by its name */
    outcome nowhere = attempt(&o, 1, true);
    CHECK_RAN(nowhere, "interp");
    CHECK_HAS(nowhere.explain, "interpreted instead of compiled");
    CHECK_HAS(nowhere.explain, "cannot be loaded");
    CHECK_EQ_INT(nowhere.used.interpreted, 1);
    o.fallback = TC_FALLBACK_REFUSE;
    outcome refused = attempt(&o, 1, true);
    CHECK_EQ_INT(refused.status, TC_ERR_COMPILER);
    CHECK_HAS(refused.error, "cannot be loaded");
    CHECK_RAN(attempt(&sound, 1, true), "cpu"); /* only the place of the build is noexec */
    CHECK_EQ_INT(attempt(&sound, 1, true).used.disk_hits, 1);
    return 0;
}

TEST(noexec_places_are_no_caches)
{
    begin();
    in_child_with_mounts(try_noexec_places);
    end();
}

static int try_full_places(void)
{
    tc_options o = default_options();
    if (mount_folder("cache", 0, "mode=0700,size=8k") ||
        mount_folder("temporary", 0, "mode=0700,size=8k")) {
        return 1;
    }
    outcome memory_only = attempt(&o, 0, true);
    CHECK_RAN(memory_only, "cpu");
    CHECK_STR(find_file(in_dir("cache"), "tc-", ".tmp"), "");
    outcome again = attempt(&o, 0, true);
    CHECK_RAN(again, "cpu");
    CHECK_EQ_INT(again.used.disk_hits + again.used.cache_rejects, 0);
    setenv("TMPDIR", in_dir("temporary"), 1);
    outcome nowhere = attempt(&o, 0, true); /* neither source nor object file fits */
    CHECK_RAN(nowhere, "interp");
    CHECK_HAS(nowhere.explain, "interpreted instead of compiled");
    return 0;
}

TEST(full_places_do_no_harm)
{
    begin();
    in_child_with_mounts(try_full_places);
    end();
}

TEST(a_read_only_place_is_only_read)
{
    begin();
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    char seeded[600];
    snprintf(seeded, sizeof(seeded), "%s", in_dir("cache"));
    int ended = -1;
    fflush(stdout);
    tc_shutdown();
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount(seeded, seeded, NULL, MS_BIND, NULL) ||
            mount(NULL, seeded, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL)) {
            tct_exit(0);
        }
        outcome known = attempt(&o, 0, true);
        outcome other = attempt(&o, 1, true);
        bool good = known.correct && known.used.disk_hits == 1 && other.correct &&
                    !strcmp(other.backend, "cpu") && other.used.compiler_runs == 1;
        tct_exit(!good);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    CHECK_EQ_INT(ended, 0);
    end();
}

static void restore(const char *name, char *kept)
{
    if (kept) {
        setenv(name, kept, 1);
    } else {
        unsetenv(name);
    }
    free(kept);
}

static char *keep(const char *name)
{
    const char *now = getenv(name);
    return now ? strdup(now) : NULL;
}

/* Directories that the user names for the cache are made; his home is not, as where a system user
 * has "/nonexistent". */
TEST(a_home_that_is_missing_is_not_made)
{
    begin();
    char *cache = keep("TC_CACHE_DIR"), *base = keep("XDG_CACHE_HOME"), *home = keep("HOME");
    tc_options o = default_options();
    o.cache_dir = NULL;
    unsetenv("TC_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", in_dir("home"), 1);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK(access(in_dir("home"), F_OK) != 0);
    CHECK_EQ_INT(mkdir(in_dir("home"), 0700), 0);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK_EQ_INT(access(in_dir("home/.cache/tc"), F_OK), 0);
    setenv("XDG_CACHE_HOME", in_dir("made"), 1);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK_EQ_INT(access(in_dir("made/tc"), F_OK), 0);
    setenv("TC_CACHE_DIR", in_dir("given/deep"), 1);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK_EQ_INT(access(in_dir("given/deep"), F_OK), 0);
    restore("TC_CACHE_DIR", cache);
    restore("XDG_CACHE_HOME", base);
    restore("HOME", home);
    end();
}

/* Without PATH, or with one that has no absolute entry, the compiler finds its linker too. */
TEST(a_compiler_without_a_path_gets_one)
{
    begin();
    tc_options o = default_options();
    unsetenv("PATH");
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    char *cc = realpath("/usr/bin/cc", NULL);
    o.cc = cc ? cc : "/bin/cc";
    setenv("PATH", ".:bin", 1);
    CHECK_RAN(attempt(&o, 1, true), "cpu");
    free(cc);
    end();
}

TEST(names_with_spaces_and_quotes_are_only_names)
{
    begin();
    tc_options o = default_options();
    o.cache_dir = in_dir("a b'c\"d;$(touch pwned)");
    setenv("TMPDIR", in_dir("t m'p"), 1);
    CHECK_EQ_INT(mkdir(in_dir("t m'p"), 0700), 0);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
    o.cc = "cc; touch pwned";
    outcome r = attempt(&o, 1, true);
    CHECK_RAN(r, "interp");
    CHECK_HAS(r.explain, "cc; touch pwned");
    CHECK(access("pwned", F_OK) != 0);
    unsetenv("TMPDIR");
    end();
}

TEST(a_linked_directory_of_others_is_not_used)
{
    if (geteuid() != 0) {
        SKIP("only root can give a directory away");
    }
    begin();
    int n;
    tc_options o = default_options();
    CHECK_EQ_INT(mkdir(in_dir("theirs"), 0755), 0);
    CHECK_EQ_INT(chown(in_dir("theirs"), 12345, 12345), 0);
    CHECK_EQ_INT(symlink(in_dir("theirs"), in_dir("cache")), 0);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    folder_bytes(in_dir("theirs"), &n);
    CHECK_EQ_INT(n, 0);
    CHECK_EQ_INT(unlink(in_dir("cache")), 0);
    CHECK_EQ_INT(mkdir(in_dir("open"), 0700), 0); /* any user could swap its files */
    CHECK_EQ_INT(chmod(in_dir("open"), 0777), 0);
    o.cache_dir = in_dir("open/cache");
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    folder_bytes(o.cache_dir, &n);
    CHECK_EQ_INT(n, 0);
    end();
}

/* ---- places that others can change ---- */

TEST(a_cache_below_what_others_may_write_is_not_used)
{
    static const mode_t modes[] = {0707, 0777, 0770, 0775};
    const bool is_root = geteuid() == 0; /* it may give a directory to a group that it is not in */
    begin();
    int n;
    tc_options o = default_options();
    CHECK_EQ_INT(mkdir(in_dir("up"), 0700), 0);
    o.cache_dir = in_dir("up/deep/cache");
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
    for (int i = 0; i < (is_root ? 4 : 2); i++) {
        CHECK(!is_root || chown(in_dir("up"), 0, 12345) == 0);
        CHECK_EQ_INT(chmod(in_dir("up"), modes[i]), 0);
        outcome r = attempt(&o, 0, true);
        CHECK_RAN(r, "cpu"); /* memory only */
        CHECK_EQ_INT(r.used.disk_hits, 0);
    }
    CHECK_EQ_INT(chmod(in_dir("up"), 01777), 0); /* as /tmp: others cannot touch what is ours */
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
    if (is_root) {
        CHECK_EQ_INT(chown(in_dir("up"), 12345, 12345), 0);
        CHECK_EQ_INT(chmod(in_dir("up"), 0755), 0);
        CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 0);
        o.cache_dir = in_dir("up/new");
        CHECK_RAN(attempt(&o, 0, true), "cpu");
        folder_bytes(in_dir("up/new"), &n);
        CHECK_EQ_INT(n, 0);
    }
    end();
}

TEST(nothing_is_built_where_others_may_write)
{
    begin();
    tc_options o = default_options();
    setenv("TMPDIR", in_dir("tmp"), 1);
    setenv("TC_KEEP", "1", 1); /* leaves traces */
    for (int open = 0; open < 2; open++) {
        CHECK(mkdir(in_dir("tmp"), 0700) == 0 || open);
        CHECK_EQ_INT(chmod(in_dir("tmp"), open ? 01777 : 0777), 0);
        o.cc = in_dir("cc");
        write_script(o.cc, "#!/bin/sh\necho \"$TMPDIR\" >\"${0%/*}/said\"\nexec cc \"$@\"\n");
        CHECK_RAN(attempt(&o, open, true), "cpu");
        bytes said = read_file(in_dir("said")); /* where it put its own temporaries */
        said.data[said.n ? said.n - 1 : 0] = 0;
        bool there = !strncmp((char *)said.data, in_dir("tmp/"), strlen(in_dir("tmp/")));
        CHECK_MSG(there == (open == 1), "TMPDIR was %s", (char *)said.data);
        struct stat st;
        CHECK(stat((char *)said.data, &st) == 0 && (st.st_mode & 0777) == 0700);
        char command[1024];
        snprintf(command, sizeof(command), "rm -rf '%s'", (char *)said.data);
        CHECK(strstr((char *)said.data, "/tc-kept-") && system(command) == 0);
        free(said.data);
    }
    unsetenv("TC_KEEP");
    unsetenv("TMPDIR");
    end();
}

TEST_MAIN
