/* tests/unit/test_io_replace.c - the file that a save replaces: its mode, group, links and name,
 * and what is left where a save is killed. */
#include "inside.h"

#include "io_file.h"

#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

static tc_status save(const char *path, float value)
{
    tc_tensor t = tc_full(ctx, value, TC_F32, 3);
    return tc_file_write(ctx, path, NULL, TC_TENSORS(t), NULL);
}

static bool holds(const char *path, float value)
{
    float got[3] = {0};
    tc_file *file = open_file(path);
    bool same = tc_read(tc_file_copy_in(ctx, file, NULL), got, 3) == TC_OK && got[2] == value;
    tc_file_close(file);
    return same;
}

static int mode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? -1 : (int)(st.st_mode & 07777);
}

TEST(a_replaced_file_keeps_its_mode)
{
    static const mode_t modes[] = {0600, 0640, 0644, 0444, 0666, 0755}, masks[] = {0, 022, 077};
    begin();
    mode_t before = umask(022);
    for (int i = 0; i < 18; i++) {
        umask(masks[i % 3]);
        unlink(io_path("o.npy"));
        CHECK_EQ_INT(save(io_path("o.npy"), 1), TC_OK);
        CHECK_EQ_INT(mode_of(io_path("o.npy")), (int)(0666 & ~masks[i % 3]));
        CHECK_EQ_INT(chmod(io_path("o.npy"), modes[i / 3]), 0);
        CHECK_EQ_INT(save(io_path("o.npy"), (float)i), TC_OK);
        CHECK_EQ_INT(mode_of(io_path("o.npy")), (int)modes[i / 3]);
        umask(022);
        CHECK(geteuid() || holds(io_path("o.npy"), (float)i));
    }
    CHECK_EQ_INT(chmod(io_path("o.npy"), 04755), 0); /* what is written runs as no other user */
    CHECK_EQ_INT(save(io_path("o.npy"), 1), TC_OK);
    CHECK_EQ_INT(mode_of(io_path("o.npy")), 0755);
    if (geteuid() == 0) {
        struct stat st;
        CHECK_EQ_INT(chown(io_path("o.npy"), 12345, 54321) + chmod(io_path("o.npy"), 0640), 0);
        CHECK_EQ_INT(save(io_path("o.npy"), 1), TC_OK);
        CHECK(stat(io_path("o.npy"), &st) == 0 && st.st_uid == 12345 && st.st_gid == 54321);
        CHECK_EQ_INT(st.st_mode & 07777, 0640);
    }
    CHECK_EQ_INT(io_count_files(), 1);
    umask(before);
    end();
}

/* Saves as user 12345 without groups; the code it ends with, or -1. */
static int save_as_another(const char *path)
{
    int ended = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        _exit(setgroups(0, NULL) || setgid(12345) || setuid(12345) ? 99 : save(path, 2));
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

/* Rights that its group had do not pass to the group of who replaces it. */
TEST(a_group_that_cannot_be_kept_gets_no_rights)
{
    if (geteuid()) {
        SKIP("only root can become two users");
    }
    begin();
    CHECK_EQ_INT(save(io_path("o.npy"), 1), TC_OK);
    CHECK_EQ_INT(chown(io_path("o.npy"), 12345, 54321) + chmod(io_path("o.npy"), 0664), 0);
    CHECK_EQ_INT(chmod(io_dir, 0777), 0);
    CHECK_EQ_INT(save_as_another(io_path("o.npy")), TC_OK);
    CHECK_EQ_INT(mode_of(io_path("o.npy")), 0644);
    CHECK(holds(io_path("o.npy"), 2));
    end();
}

TEST(a_link_stays_and_its_target_is_replaced)
{
    begin();
    struct stat st;
    char absolute[200];
    CHECK_EQ_INT(mkdir(io_path("in"), 0755), 0);
    CHECK_EQ_INT(save(io_path("in/target.npy"), 1), TC_OK);
    CHECK_EQ_INT(chmod(io_path("in/target.npy"), 0600), 0);
    snprintf(absolute, sizeof(absolute), "%s", io_path("in/target.npy"));
    CHECK_EQ_INT(symlink(absolute, io_path("first.npy")), 0);
    CHECK_EQ_INT(symlink("../first.npy", io_path("in/second.npy")), 0);
    CHECK_EQ_INT(symlink("in/second.npy", io_path("third.npy")), 0);
    CHECK_EQ_INT(save(io_path("third.npy"), 2), TC_OK);
    CHECK(holds(absolute, 2) && mode_of(absolute) == 0600);
    CHECK(!lstat(io_path("third.npy"), &st) && S_ISLNK(st.st_mode));
    CHECK(!lstat(io_path("in/second.npy"), &st) && S_ISLNK(st.st_mode));
    CHECK(!lstat(io_path("first.npy"), &st) && S_ISLNK(st.st_mode));
    CHECK_EQ_INT(unlink(absolute), 0); /* it leads to what is not there yet */
    CHECK_EQ_INT(save(io_path("third.npy"), 3), TC_OK);
    CHECK(holds(absolute, 3));
    CHECK_EQ_INT(symlink("loop.npy", io_path("loop.npy")), 0);
    check_fails(save(io_path("loop.npy"), 1), TC_ERR_IO, "links");
    CHECK_EQ_INT(symlink("nowhere/x", io_path("broken.npy")), 0);
    check_fails(save(io_path("broken.npy"), 1), TC_ERR_IO, "No such file");
    CHECK_EQ_INT(mkdir(io_path("folder.npy"), 0755), 0);
    check_fails(save(io_path("folder.npy"), 1), TC_ERR_IO, "directory");
    CHECK_EQ_INT(mkfifo(io_path("fifo.npy"), 0600), 0);
    check_fails(save(io_path("fifo.npy"), 1), TC_ERR_IO, "not a regular file");
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3), y = tc_neg(x);
    CHECK_EQ_INT(tc_export_c(TC_TENSORS(x), TC_TENSORS(y), NULL, io_path("e.c")), TC_OK);
    CHECK_EQ_INT(chmod(io_path("e.c"), 0600) + symlink("e.c", io_path("l.c")), 0);
    CHECK_EQ_INT(tc_export_c(TC_TENSORS(x), TC_TENSORS(y), NULL, io_path("l.c")), TC_OK);
    CHECK(mode_of(io_path("e.c")) == 0600 && !lstat(io_path("l.c"), &st) && S_ISLNK(st.st_mode));
    end();
}

/* In a directory that everybody writes to, as /tmp, who plants a link does not choose which file of
 * ours is replaced. */
TEST(a_link_of_another_user_is_not_followed_where_all_may_write)
{
    if (geteuid()) {
        SKIP("only root can give a link away");
    }
    begin();
    struct stat st;
    CHECK_EQ_INT(mkdir(io_path("wide"), 0755) + chmod(io_path("wide"), 01777), 0);
    CHECK_EQ_INT(save(io_path("ours.npy"), 1), TC_OK);
    CHECK_EQ_INT(symlink("../ours.npy", io_path("wide/l.npy")), 0);
    CHECK_EQ_INT(lchown(io_path("wide/l.npy"), 12345, 12345), 0);
    check_fails(save(io_path("wide/l.npy"), 2), TC_ERR_IO, "Permission denied");
    CHECK(holds(io_path("ours.npy"), 1));
    CHECK(!lstat(io_path("wide/l.npy"), &st) && S_ISLNK(st.st_mode));
    CHECK_EQ_INT(chmod(io_path("wide"), 0755), 0); /* only we write there: it is as good as ours */
    CHECK_EQ_INT(save(io_path("wide/l.npy"), 2), TC_OK);
    CHECK(holds(io_path("ours.npy"), 2));
    end();
}

TEST(names_of_any_length_are_written)
{
    begin();
    char path[512];
    for (size_t n = 220; n <= 256; n++) {
        snprintf(path, sizeof(path), "%s", io_path(""));
        size_t at = strlen(path);
        memset(path + at, 'n', n - 4);
        strcpy(path + at + n - 4, ".npy");
        tc_status status = save(path, (float)n);
        CHECK_EQ_INT(status, n < 256 ? TC_OK : TC_ERR_IO);
        CHECK(status || holds(path, (float)n));
        unlink(path);
    }
    CHECK_EQ_INT(io_count_files(), 0);
    end();
}

/* A process that dies while it saves, with a lock on its temporary file, as all have. */
static void die_in_a_save(const char *path)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        tci_os_fresh f;
        tci_os_fresh_begin_users(&f, path);
        tci_os_fresh_write(&f, "half", 4);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
}

TEST(what_a_killed_save_left_goes_at_the_next)
{
    begin();
    tci_os_fresh living[3];
    CHECK_EQ_INT(save(io_path("o.npy"), 1), TC_OK);
    die_in_a_save(io_path("o.npy"));
    CHECK_EQ_INT(io_count_files(), 2);
    die_in_a_save(io_path("other.npy"));
    for (int i = 0; i < 3; i++) { /* writers that live keep theirs */
        tci_os_fresh_begin_users(&living[i], io_path("o.npy"));
        CHECK_EQ_INT(living[i].code, 0);
        tci_os_fresh_write(&living[i], "whole", 5);
        die_in_a_save(io_path("o.npy"));
    }
    CHECK_EQ_INT(io_count_files(), 1 + 1 + 3 + 1);
    CHECK_EQ_INT(save(io_path("o.npy"), 2), TC_OK);
    CHECK_EQ_INT(io_count_files(), 1 + 1 + 3);
    CHECK(holds(io_path("o.npy"), 2));
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tci_os_fresh_end(&living[i], i == 1, true), 0);
    }
    io_bytes last = io_slurp(io_path("o.npy"));
    CHECK(last.n == 5 && !memcmp(last.at, "whole", 5));
    free(last.at);
    CHECK_EQ_INT(save(io_path("other.npy"), 3), TC_OK);
    CHECK_EQ_INT(io_count_files(), 2);
    end();
}

/* Processes save one path, and some are killed: the file is always a whole one, and in the end
 * nothing else is there. */
TEST(savers_that_are_killed_leave_whole_files)
{
    enum { SAVERS = 4 };
    begin();
    pid_t children[SAVERS];
    CHECK_EQ_INT(save(io_path("o.npy"), 0), TC_OK);
    fflush(stdout);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < SAVERS; i++) {
            children[i] = fork();
            for (int k = 0; !children[i] && k < 1000; k++) {
                save(io_path("o.npy"), (float)i);
            }
            if (!children[i]) {
                _exit(0);
            }
        }
        usleep(3000 + 500 * (useconds_t)round);
        for (int i = 0; i < SAVERS; i++) {
            kill(children[i], SIGKILL);
        }
        for (int i = 0; i < SAVERS; i++) {
            waitpid(children[i], NULL, 0);
        }
        float got[3];
        tc_file *file = open_file(io_path("o.npy"));
        CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, NULL), got, 3), TC_OK);
        CHECK(got[0] == got[1] && got[1] == got[2]);
        tc_file_close(file);
    }
    CHECK_EQ_INT(save(io_path("o.npy"), 9), TC_OK);
    CHECK(holds(io_path("o.npy"), 9));
    CHECK_EQ_INT(io_count_files(), 1);
    end();
}

TEST_MAIN
