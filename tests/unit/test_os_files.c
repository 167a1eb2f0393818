/* Files, private directories and the temporary directories of builds (base/os.c, atomic_file.c,
 * private_dir.c, temp_dir.c). */
#include "inside.h"

#include "tc_test.h"
#include "temp_dir.h"

/* ---- files ---- */

TEST(private_files)
{
    tci_str text = {0};
    int why = 0;
    tct_make_dir();
    const char *path = tct_path("file");
    REQUIRE(tci_os_publish(path, "content", 7, &why));
    CHECK(tci_os_read_private(path, &text, &why));
    CHECK_STR(text.text, "content");
    tci_str_free(&text);

    struct stat st;
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);

    chmod(path, 0620);
    CHECK(!tci_os_read_private(path, &text, &why));
    CHECK_EQ_INT(why, EPERM);
    CHECK(tci_os_read_file(path, &text, &why));
    tci_str_free(&text);
    chmod(path, 0602);
    CHECK(!tci_os_read_private(path, &text, &why));
    chmod(path, 0600);

    REQUIRE(symlink("file", tct_path("link")) == 0);
    CHECK(!tci_os_read_private(tct_path("link"), &text, &why));
    CHECK_EQ_INT(why, ELOOP);
    CHECK(!tci_os_read_private(tct_path("missing"), &text, &why));
    CHECK_EQ_INT(why, ENOENT);
    CHECK(!tci_os_read_private(tct_dir, &text, &why));
    REQUIRE(mkfifo(tct_path("fifo"), 0600) == 0);
    CHECK(!tci_os_read_private(tct_path("fifo"), &text, &why)); /* must not wait for a writer */
    CHECK(!tci_os_read_file("/dev/zero", &text, &why));         /* has no end */
    CHECK(why == EINVAL);
    tci_str_free(&text);
    tct_remove_dir();
}

TEST(files_of_other_users)
{
    tci_str text = {0};
    int why = 0;
    if (geteuid() != 0) {
        SKIP("only root can give a file away");
    }
    tct_make_dir();
    REQUIRE(tci_os_publish(tct_path("file"), "x", 1, &why));
    REQUIRE(chown(tct_path("file"), 65534, 65534) == 0);
    CHECK(!tci_os_read_private(tct_path("file"), &text, &why));
    CHECK_EQ_INT(why, EPERM);
    tct_remove_dir();
}

/* No other user can reach what is in a directory of mode 0700: the modes of its files, which are
 * the umask's, say nothing. Elsewhere they count. */
TEST(modes_count_only_where_others_can_come)
{
    tci_dir d, in;
    tci_str text = {0};
    int why = 0;
    tct_make_dir();
    REQUIRE(tci_dir_open(&d, tct_dir, TCI_DIR_CODE, NULL));
    REQUIRE(tci_dir_open_in(&in, &d, "in", true));
    CHECK(in.closed && !d.closed);
    REQUIRE(tci_dir_publish(&in, "file", "x", 1, false, NULL) && !chmod(tct_path("in/file"), 0666));
    CHECK(tci_dir_read(&in, "file", 10, &text, &why));
    tci_str_free(&text);
    if (geteuid() == 0) {
        REQUIRE(chown(tct_path("in/file"), 65534, 65534) == 0);
        CHECK(!tci_dir_read(&in, "file", 10, &text, &why) && why == EPERM);
    }
    REQUIRE(symlink("/etc/passwd", tct_path("in/link")) == 0);
    CHECK(!tci_dir_read(&in, "link", 1 << 20, &text, &why) && why == ELOOP);
    REQUIRE(tci_dir_publish(&d, "file", "x", 1, false, NULL) && !chmod(tct_path("file"), 0660));
    CHECK(!tci_dir_read(&d, "file", 10, &text, &why) && why == EPERM);
    tci_dir_close(&in);
    chmod(tct_path("in"), 0710);
    CHECK(!tci_dir_open_in(&in, &d, "in", false));
    tci_dir_close(&d);
    tct_remove_dir();
}

/* A umask that takes rights from the owner does not spoil what is made under it. */
TEST(no_umask_shuts_us_out)
{
    tci_dir d;
    struct stat st;
    tct_make_dir();
    mode_t before = umask(0777);
    bool good = tci_dir_open(&d, tct_path("a/b"), TCI_DIR_CODE, NULL);
    good = good && tci_dir_publish(&d, "file", "x", 1, false, NULL);
    umask(before);
    REQUIRE(good);
    CHECK(stat(tct_path("a"), &st) == 0 && (st.st_mode & 07777) == 0700);
    CHECK(stat(tct_path("a/b"), &st) == 0 && (st.st_mode & 07777) == 0700);
    CHECK(stat(tct_path("a/b/file"), &st) == 0 && (st.st_mode & 07777) == 0600);
    tci_dir_close(&d);
    tct_remove_dir();
}

TEST(publishing_is_all_or_nothing)
{
    tci_str text = {0};
    int why = 0;
    tct_make_dir();
    CHECK(!tci_os_publish(tct_path("no/such/dir"), "x", 1, &why));
    CHECK_EQ_INT(why, ENOENT);
    CHECK(!tci_os_publish("/dev/full/x", "x", 1, &why));
    REQUIRE(mkdir(tct_path("taken"), 0700) == 0);
    CHECK(!tci_os_publish(tct_path("taken"), "x", 1, &why)); /* rename onto a directory fails */
    CHECK_EQ_INT(tct_count("", false), 0);                   /* and leaves no temporary */

    char *block = malloc(1 << 20);
    REQUIRE(block);
    pid_t writers[3];
    for (int w = 0; w < 3; w++) {
        writers[w] = fork();
        if (writers[w] == 0) {
            for (int i = 0; i < 20; i++) {
                memset(block, 'a' + w, 1 << 20);
                tci_os_publish(tct_path("file"), block, 1 << 20, &why);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < 100; i++) { /* a reader sees one writer's whole text, or no file yet */
        if (tci_os_read_private(tct_path("file"), &text, &why)) {
            CHECK_EQ_INT(text.n, 1 << 20);
            CHECK(text.text[0] == text.text[text.n - 1]);
        }
        tci_str_free(&text);
    }
    for (int w = 0; w < 3; w++) {
        waitpid(writers[w], NULL, 0);
    }
    CHECK_EQ_INT(tct_count("", false), 1);
    free(block);
    tct_remove_dir();
}

/* ---- directories ---- */

/* Opens and closes. */
static bool tct_opens(const char *path, tci_dir_use use, const char *why)
{
    tci_dir d;
    tci_str text = {0};
    bool good = tci_dir_open(&d, path, use, &text);
    if (good) {
        tci_dir_close(&d);
    } else if (why) {
        CHECK_HAS(tci_str_text(&text), why);
    }
    tci_str_free(&text);
    return good;
}

/* True if files that this test makes have a group that is this user's alone. */
static bool tct_has_own_group(void)
{
    tci_str passwd = {0}, group = {0};
    struct stat st;
    bool own = !stat(tct_path(""), &st) && tci_os_read_file("/etc/passwd", &passwd, NULL) &&
               tci_os_read_file("/etc/group", &group, NULL) &&
               tci_dir_group_is_private(tci_str_text(&passwd), tci_str_text(&group), geteuid(),
                                        st.st_gid);
    tci_str_free(&passwd);
    tci_str_free(&group);
    return own;
}

TEST(private_directories)
{
    tct_make_dir();
    tci_dir d;
    REQUIRE(tci_dir_open(&d, tct_path("a/./b//c/"), TCI_DIR_CODE, NULL));
    CHECK(d.writable);
    CHECK_STR(d.path.text, tct_path("a/b/c"));
    tci_dir_close(&d);
    struct stat st;
    CHECK(stat(tct_path("a"), &st) == 0 && (st.st_mode & 0777) == 0700);
    CHECK(tct_opens(tct_path("a/b/../b/c"), TCI_DIR_CODE, NULL));
    CHECK(!tct_opens(tct_path("missing"), TCI_DIR_TEMPORARY, "missing"));
    chmod(tct_path("a/b/c"), 0772);
    CHECK(!tct_opens(tct_path("a/b/c"), TCI_DIR_CODE, "others may write"));
    chmod(tct_path("a/b/c"), 0770);
    CHECK(tct_opens(tct_path("a/b/c"), TCI_DIR_CODE, "others may write") == tct_has_own_group());
    chmod(tct_path("a/b/c"), 0500);
    REQUIRE(tci_dir_open(&d, tct_path("a/b/c"), TCI_DIR_CODE, NULL));
    CHECK(d.writable == (geteuid() == 0));
    tci_dir_close(&d);
    REQUIRE(tci_os_publish(tct_path("file"), "x", 1, NULL));
    CHECK(!tct_opens(tct_path("file"), TCI_DIR_CODE, "file"));
    CHECK(!tct_opens(tct_path("file/below"), TCI_DIR_CODE, "file"));
    CHECK(!tct_opens("", TCI_DIR_CODE, ""));
    CHECK(!tct_opens("/proc/tc", TCI_DIR_CODE, "/proc/tc"));
    char *name = malloc(300);
    memset(name, 'n', 299);
    name[299] = 0;
    CHECK(!tct_opens(tct_path(name), TCI_DIR_CODE, "long"));
    free(name);
    tct_remove_dir();
}

TEST(a_group_is_private_if_no_other_user_is_in_it)
{
    static const struct {
        const char *passwd, *group;
        bool is;
    } rows[] = {
        {"root:x:0:0::/:\nada:x:1000:1000::/home/ada:/bin/sh\n", "ada:x:1000:\n", true},
        {"ada:x:1000:1000:Ada:/home/ada:/bin/sh", "root:x:0:eve\nada:x:1000:ada", true},
        {"ada:x:1000:1000::/home/ada:/bin/sh\n", "", true},
        {"ada:x:1000:1000::/:\neve:x:1001:1000::/:\n", "ada:x:1000:\n", false},
        {"ada:x:1000:1000::/:\n", "ada:x:1000:eve\n", false},
        {"ada:x:1000:1000::/:\n", "ada:x:1000:ada,eve\n", false},
        {"ada:x:1000:1000::/:\n", "ada:x:1000:\nstaff:x:1000:eve\n", false},
        {"ada:x:1000:100::/:\n", "users:x:100:\nada:x:1000:\n", false},
        {"ada:x:1000:1000::/:\n+::::::\n", "ada:x:1000:\n", false},
        {"ada:x:1000:1000::/:\n", "ada:x:1000:\n+:::\n", false},
        {"eve:x:1001:1001::/:\n", "eve:x:1001:\n", false},
        {"ada:x:1000:1000\neve:x\n", "ada:x:1000", true},
        {"", "", false},
    };
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        CHECK_MSG(tci_dir_group_is_private(rows[i].passwd, rows[i].group, 1000, 1000) == rows[i].is,
                  "row %d", i);
    }
}

/* One level up is as good as the directory itself: who may write there may swap it. */
TEST(directories_above_are_judged_too)
{
    static const struct {
        mode_t mode;
        bool code, temporary;
    } rows[] = {{0700, true, true},   {0755, true, true},   {0711, true, true},
                {0770, false, false}, {0777, false, false}, {0775, false, false},
                {01777, true, true},  {01770, true, true}};
    tct_make_dir();
    REQUIRE(mkdir(tct_path("up"), 0700) == 0 && mkdir(tct_path("up/in"), 0700) == 0);
    REQUIRE(symlink(tct_path("up/in"), tct_path("link")) == 0);
    REQUIRE(symlink("up/../up/in", tct_path("near")) == 0);
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        chmod(tct_path("up"), rows[i].mode);
        bool own = tct_has_own_group() && !(rows[i].mode & S_IWOTH);
        CHECK(tct_opens(tct_path("up/in"), TCI_DIR_CODE, "/up'") == (rows[i].code || own));
        CHECK(tct_opens(tct_path("link"), TCI_DIR_CODE, "/up'") == (rows[i].code || own));
        CHECK(tct_opens(tct_path("near"), TCI_DIR_CODE, "/up'") == (rows[i].code || own));
        CHECK(tct_opens(tct_path("up"), TCI_DIR_TEMPORARY, NULL) == (rows[i].temporary || own));
        CHECK(tct_opens(tct_path("up/in"), TCI_DIR_NOTES, NULL));
    }
    chmod(tct_path("up"), 01777);
    CHECK(!tct_opens(tct_path("up"), TCI_DIR_CODE, "others may write"));
    REQUIRE(symlink("loop", tct_path("loop")) == 0);
    CHECK(!tct_opens(tct_path("loop"), TCI_DIR_CODE, "link"));
    char old[1024];
    REQUIRE(getcwd(old, sizeof(old)) && chdir(tct_path("up")) == 0);
    CHECK(tct_opens("in", TCI_DIR_CODE, NULL));
    chmod(tct_path("up"), 0777);
    CHECK(!tct_opens("in", TCI_DIR_CODE, "/up'"));
    REQUIRE(chdir(old) == 0);
    tct_remove_dir();
}

TEST(directories_of_other_users)
{
    if (geteuid() != 0) {
        SKIP("only root can give a directory away");
    }
    tct_make_dir();
    REQUIRE(mkdir(tct_path("up"), 0755) == 0 && mkdir(tct_path("up/in"), 0700) == 0);
    CHECK(tct_opens(tct_path("up/in"), TCI_DIR_CODE, NULL));
    REQUIRE(lchown(tct_path("up"), 65534, 65534) == 0);
    CHECK(!tct_opens(tct_path("up/in"), TCI_DIR_CODE, "another user"));
    CHECK(!tct_opens(tct_path("up"), TCI_DIR_TEMPORARY, "another user"));
    REQUIRE(lchown(tct_path("up"), 0, 0) == 0 && lchown(tct_path("up/in"), 65534, 65534) == 0);
    CHECK(!tct_opens(tct_path("up/in"), TCI_DIR_CODE, "another user"));
    REQUIRE(lchown(tct_path("up/in"), 0, 0) == 0 && symlink("in", tct_path("up/link")) == 0);
    CHECK(tct_opens(tct_path("up/link"), TCI_DIR_CODE, NULL));
    REQUIRE(lchown(tct_path("up/link"), 65534, 65534) == 0); /* who could point it elsewhere */
    CHECK(!tct_opens(tct_path("up/link"), TCI_DIR_CODE, "another user"));
    tct_remove_dir();
}

TEST(notes_go_where_no_other_user_chooses)
{
    tct_make_dir();
    REQUIRE(mkdir(tct_path("wide"), 0700) == 0 && chmod(tct_path("wide"), 0777) == 0);
    CHECK(tct_opens(tct_path("wide/in"), TCI_DIR_NOTES, NULL));
    CHECK(tct_opens(tct_path("wide"), TCI_DIR_NOTES, NULL));
    REQUIRE(mkdir(tct_path("ours"), 0700) == 0 && symlink("../ours", tct_path("wide/to")) == 0);
    CHECK(tct_opens(tct_path("wide/to"), TCI_DIR_NOTES, NULL));
    if (geteuid() == 0) {
        REQUIRE(lchown(tct_path("wide/to"), 65534, 65534) == 0);
        CHECK(!tct_opens(tct_path("wide/to"), TCI_DIR_NOTES, "another user"));
    }
    tct_remove_dir();
}

TEST(an_open_directory_is_the_one_that_was_judged)
{
    tci_dir d;
    tci_str text = {0};
    int why = 0;
    tct_make_dir();
    REQUIRE(tci_dir_open(&d, tct_path("a"), TCI_DIR_CODE, NULL));
    REQUIRE(tci_dir_publish(&d, "file", "mine", 4, false, &why));
    REQUIRE(rename(tct_path("a"), tct_path("b")) == 0 && mkdir(tct_path("a"), 0700) == 0);
    REQUIRE(tci_os_publish(tct_path("a/file"), "theirs", 6, NULL));
    REQUIRE(tci_dir_read(&d, "file", 100, &text, &why));
    CHECK_STR(text.text, "mine");
    tci_str_free(&text);
    CHECK(!tci_dir_read(&d, "file", 3, &text, &why));
    CHECK_EQ_INT(why, EFBIG);
    CHECK(tci_dir_has(&d, "file", 4) && !tci_dir_has(&d, "file", 6));
    REQUIRE(tci_dir_publish(&d, "new", "x", 1, true, &why));
    CHECK(access(tct_path("b/new"), F_OK) == 0 && access(tct_path("a/new"), F_OK) != 0);
    CHECK(tci_dir_remove(&d, "file") && !tci_dir_remove(&d, "file"));
    CHECK(access(tct_path("a/file"), F_OK) == 0);
    tci_dir_close(&d);
    tci_str_free(&text);
    tct_remove_dir();
}

TEST(listing_and_times)
{
    tci_dir d;
    tci_dir_entry *entries = NULL;
    struct stat first, second;
    tct_make_dir();
    REQUIRE(tci_dir_open(&d, tct_dir, TCI_DIR_CODE, NULL));
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof(name), "f%d", i);
        REQUIRE(tci_dir_publish(&d, name, "12345", 5, false, NULL));
    }
    REQUIRE(mkdir(tct_path("dir"), 0700) == 0);
    REQUIRE(symlink("f1", tct_path("flink")) == 0);
    REQUIRE(mkfifo(tct_path("fifo"), 0600) == 0);
    CHECK_EQ_INT(tci_dir_list(&d, "f", &entries), 100);
    CHECK(entries && entries[0].bytes == 5 && entries[0].mtime_ns > 0 && !entries[0].is_dir);
    tci_heap_free(entries);
    CHECK_EQ_INT(tci_dir_list(&d, "", &entries), 101);
    tci_heap_free(entries);
    REQUIRE(stat(tct_path("f1"), &first) == 0);
    usleep(20000);
    tci_dir_touch(&d, "f1");
    REQUIRE(stat(tct_path("f1"), &second) == 0);
    CHECK(tci_os_mtime_ns(&second) > tci_os_mtime_ns(&first));
    REQUIRE(mkdir(tct_path("dir/deep"), 0700) == 0 && symlink("..", tct_path("dir/up")) == 0);
    REQUIRE(mkfifo(tct_path("dir/deep/fifo"), 0600) == 0);
    CHECK(!tci_dir_remove(&d, "dir") && tci_dir_remove_tree(&d, "dir"));
    CHECK_EQ_INT(tct_count("f", false), 100);
    tci_dir_close(&d);
    tct_remove_dir();
}

/* ---- folders of builds ---- */

/* A folder that a process left behind: killed, or (failed) after a failure. Returns its age set. */
static void tct_leave_folder(const char *tmp, bool failed, int age_s, bool alive)
{
    int ready[2], go[2];
    REQUIRE(pipe(ready) == 0 && pipe(go) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        tci_workdir w;
        tci_str why = {0};
        setenv("TMPDIR", tmp, 1);
        bool good = tci_workdir_make(&w, NULL, false, &why);
        if (failed) {
            good = good && tci_dir_publish(&w.dir, TCI_WORKDIR_LOG, "x", 1, false, NULL);
        }
        good = good && tci_dir_publish(&w.dir, "tc_0.c", "x", 1, false, NULL);
        struct timespec times[2] = {{time(NULL) - age_s, 0}, {time(NULL) - age_s, 0}};
        good = good && futimens(w.dir.fd, times) == 0;
        if (!good || write(ready[1], "x", 1) != 1 || (alive && read(go[0], &good, 1) < 0)) {
            _exit(1);
        }
        raise(SIGKILL);
    }
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    if (alive) { /* what is in use stays, however old */
        tci_dir d;
        int before = tct_count("tc-b-", true);
        REQUIRE(tci_dir_open(&d, tmp, TCI_DIR_TEMPORARY, NULL));
        tci_workdir_sweep(&d, true);
        CHECK_EQ_INT(tct_count("tc-b-", true), before);
        tci_dir_close(&d);
        REQUIRE(write(go[1], "x", 1) == 1);
    }
    waitpid(child, NULL, 0);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(go[i]);
    }
}

TEST(folders_of_dead_processes_are_swept)
{
    enum { DAY = 24 * 3600 };
    tci_dir d;
    tct_make_dir();
    REQUIRE(tci_dir_open(&d, tct_dir, TCI_DIR_TEMPORARY, NULL));
    tct_leave_folder(tct_dir, false, 10 * DAY, true);
    CHECK_EQ_INT(tct_count("tc-b-", true), 1);
    tci_workdir_sweep(&d, true);
    CHECK_EQ_INT(tct_count("tc-b-", true), 0);
    tct_leave_folder(tct_dir, false, 0, false);
    tct_leave_folder(tct_dir, true, 10, false);
    tct_leave_folder(tct_dir, true, 2 * DAY, false);
    CHECK_EQ_INT(tct_count("tc-b-", true), 3);
    REQUIRE(mkdir(tct_path("tc-b-0123456789abcdef0"), 0700) == 0); /* not one of ours */
    REQUIRE(mkdir(tct_path("tc-kept-0123456789abcdef"), 0700) == 0);
    tci_workdir_sweep(&d, true);
    CHECK_EQ_INT(tct_count("tc-b-", true), 2); /* the fresh failure, and the foreign one */
    CHECK_EQ_INT(tct_count("tc-kept-", true), 1);
    for (int i = 0; i < TCI_WORKDIR_FAILURES + 3; i++) {
        tct_leave_folder(tct_dir, true, 100 + i, false);
    }
    tci_workdir_sweep(&d, true);
    CHECK_EQ_INT(tct_count("tc-b-", true), TCI_WORKDIR_FAILURES + 1);
    tci_dir_close(&d);
    tct_remove_dir();
}

TEST(builds_happen_where_others_cannot_interfere)
{
    tci_workdir w;
    tci_str why = {0};
    const char *old = getenv("TMPDIR");
    char *kept = old ? strdup(old) : NULL;
    tct_make_dir();
    REQUIRE(mkdir(tct_path("open"), 0700) == 0 && chmod(tct_path("open"), 0777) == 0);
    setenv("TMPDIR", tct_path("open"), 1);
    REQUIRE(tci_workdir_make(&w, tct_path("last"), false, &why));
    CHECK(strncmp(w.dir.path.text, tct_path("open"), strlen(tct_path("open"))));
    CHECK_HAS(tci_str_text(&why), "others may write");
    char path[1024];
    snprintf(path, sizeof(path), "%s", w.dir.path.text);
    struct stat st;
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0700);
    tci_workdir_end(&w, false);
    CHECK(access(path, F_OK) != 0);
    chmod(tct_path("open"), 01777);
    REQUIRE(tci_workdir_make(&w, NULL, true, &why));
    CHECK_EQ_INT(
        strncmp(w.dir.path.text, tct_path("open/tc-kept-"), strlen(tct_path("open/tc-kept-"))), 0);
    tci_workdir_end(&w, false);
    if (kept) {
        setenv("TMPDIR", kept, 1);
    } else {
        unsetenv("TMPDIR");
    }
    free(kept);
    tci_str_free(&why);
    tct_remove_dir();
}

TEST(programs_on_path)
{
    tci_str path = {0};
    CHECK(tci_os_find_program("sh", &path));
    CHECK_HAS(tci_str_text(&path), "/sh");
    CHECK(tci_os_find_program("/bin/sh", &path));
    CHECK(!tci_os_find_program("no-such-program-of-tc", &path));
    CHECK(!tci_os_find_program("/etc/passwd", &path));
    CHECK(!tci_os_find_program("/", &path) && !tci_os_find_program("", &path));
    tci_str_free(&path);
}

/* Entries of PATH that mean a place below the current directory are anybody's. */
TEST(relative_entries_of_path_are_not_searched)
{
    static const char *const paths[] = {".", "", ":", "bin", "./bin:", "bin::.", "../X/bin"};
    tci_str path = {0}, log = {0};
    char old[1024], *kept = strdup(getenv("PATH") ? getenv("PATH") : "/bin:/usr/bin");
    int code;
    tct_make_dir();
    REQUIRE(getcwd(old, sizeof(old)) && chdir(tct_dir) == 0 && mkdir("bin", 0700) == 0);
    REQUIRE(tci_os_publish("tc-tool", "#!/bin/sh\necho ran\n", 19, NULL));
    REQUIRE(tci_os_publish("bin/tc-tool", "#!/bin/sh\necho ran\n", 19, NULL));
    REQUIRE(chmod("tc-tool", 0700) == 0 && chmod("bin/tc-tool", 0700) == 0);
    for (int i = 0; i < TCI_COUNT(paths); i++) {
        setenv("PATH", paths[i], 1);
        CHECK_MSG(!tci_os_find_program("tc-tool", &path), "PATH=%s", paths[i]);
    }
    char list[2048];
    snprintf(list, sizeof(list), ".:%s:bin:%s::bin", kept, tct_path("bin"));
    setenv("PATH", list, 1);
    CHECK(tci_os_find_program("tc-tool", &path));
    CHECK_STR(tci_str_text(&path), tct_path("bin/tc-tool"));
    snprintf(list, sizeof(list), ".:%s:bin", kept); /* nor by what the compiler starts */
    setenv("PATH", list, 1);
    CHECK(tct_sh("tc-tool", 10000, 1000, &log, &code) == TCI_SPAWN_FAILED);
    CHECK_EQ_INT(code, 127);
    setenv("PATH", kept, 1);
    REQUIRE(chdir(old) == 0);
    free(kept);
    tci_str_free(&path);
    tci_str_free(&log);
    tct_remove_dir();
}

TEST_MAIN
