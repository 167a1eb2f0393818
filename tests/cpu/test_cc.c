/* Compilers that are missing, fail, hang, print, die or leave garbage, and what is left behind of
 * them. Needs a compiler that does not. */
#include "cache.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- compilers ---- */

TEST(a_missing_compiler_means_the_interpreter)
{
    begin();
    tc_options o = default_options();
    o.cc = "/no/such/compiler";
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "interp");
    CHECK_EQ_INT(r.used.interpreted, 1);
    CHECK_EQ_INT(r.used.compiler_runs, 0);
    CHECK_HAS(r.explain, "interpreted instead of compiled");
    CHECK_HAS(r.explain, "/no/such/compiler");
    outcome again = attempt(&o, 0, false);
    CHECK_RAN(again, "interp");
    CHECK_EQ_INT(again.used.memory_hits, 1);
    tc_options other = default_options(); /* a compiler that is there is used */
    other.no_disk_cache = true;
    CHECK_RAN(attempt(&other, 0, false), "cpu");
    tc_shutdown();
    o.fallback = TC_FALLBACK_REFUSE;
    outcome refused = attempt(&o, 0, false);
    CHECK_EQ_INT(refused.status, TC_ERR_COMPILER);
    CHECK_HAS(refused.error, "/no/such/compiler");
    o.cc = NULL;
    hide_compilers(true);
    outcome nowhere = attempt(&o, 0, true);
    CHECK_EQ_INT(nowhere.status, TC_ERR_COMPILER);
    CHECK_HAS(nowhere.error, "PATH");
    end();
}

/* Runs with a compiler that is this script: first with fallback, then without. */
static outcome with_script(const char *script, tc_options *o)
{
    o->cc = in_dir("mycc");
    setenv("TMPDIR", dir, 1); /* what a failure keeps goes with the test */
    write_script(o->cc, script);
    outcome r = attempt(o, 0, true);
    CHECK_RAN(r, "interp");
    CHECK_EQ_INT(r.used.interpreted, 1);
    o->fallback = TC_FALLBACK_REFUSE;
    outcome refused = attempt(o, 0, true);
    CHECK_EQ_INT(refused.status, TC_ERR_COMPILER);
    unsetenv("TMPDIR");
    return refused;
}

TEST(a_failing_compiler_is_quoted_and_its_source_kept)
{
    begin();
    tc_options o = default_options();
    outcome r = with_script("#!/bin/sh\necho kaboom from $0 >&2\nexit 3\n", &o);
    CHECK_HAS(r.error, "kaboom");
    CHECK_HAS(r.error, "mycc");
    CHECK_HAS(r.error, "code 3");
    const char *kept = strstr(r.error, "kept in ");
    REQUIRE(kept);
    char folder[512];
    snprintf(folder, sizeof(folder), "%s", kept + 8);
    folder[strcspn(folder, "\n ")] = 0;
    CHECK(find_file(folder, "tc_0", ".c")[0]);
    CHECK(find_file(folder, "build", ".log")[0]);
    end();
}

TEST(a_killed_compiler_has_failed)
{
    begin();
    tc_options o = default_options();
    outcome r = with_script("#!/bin/sh\necho half; kill -9 $$\n", &o);
    CHECK_HAS(r.error, "half");
    CHECK_HAS(r.error, "code 137");
    end();
}

TEST(a_compiler_that_cannot_be_started_is_missing)
{
    begin();
    tc_options o = default_options();
    outcome r = with_script("#!/no/such/interpreter\n", &o);
    CHECK_HAS(r.error, "cannot be started");
    CHECK_EQ_INT(r.used.compiler_runs, 0);
    end();
}

TEST(the_environment_names_the_compiler)
{
    begin();
    tc_options o = default_options();
    write_script(in_dir("other-cc"), "#!/bin/sh\ntouch \"${0%/*}/used\"\nexec cc \"$@\"\n");
    setenv("TC_CC", in_dir("other-cc"), 1);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(access(in_dir("used"), F_OK), 0);
    unsetenv("TC_CC");
    outcome usual = attempt(&o, 0, true); /* any compiler's code serves */
    CHECK_RAN(usual, "cpu");
    CHECK_EQ_INT(usual.used.disk_hits, 1);
    CHECK_EQ_INT(usual.used.compiler_runs, 0);
    end();
}

TEST(a_hanging_compiler_is_killed)
{
    begin();
    tc_options o = default_options();
    o.cc_timeout_s = 1; /* the clock allows five times as much */
    outcome r = with_script("#!/bin/sh\nsleep 1000 &\nsleep 1000\n", &o);
    CHECK_HAS(r.error, "killed after 5 s");
    end();
}

TEST(a_compiler_may_use_so_much_processor_time)
{
    begin();
    tc_options o = default_options();
    o.cc_timeout_s = 1234;
    outcome r = with_script("#!/bin/sh\nsleep 0.5\necho may use $(ulimit -t)\nexit 7\n", &o);
    CHECK_HAS(r.error, "may use 1234");
    CHECK_HAS(r.error, "ended with code 7");
    CHECK_HAS(r.error, "s of processor time (of 1234 s)");
    end();
}

TEST(a_compiler_may_print_megabytes)
{
    begin();
    tc_options o = default_options();
    outcome r = with_script("#!/bin/sh\nhead -c 8000000 /dev/zero | tr '\\0' 'x'\nexit 1\n", &o);
    CHECK(strlen(r.error) < 8192);
    CHECK_HAS(r.error, "xxxx");
    end();
}

TEST(a_compiler_that_leaves_nothing_or_garbage_has_failed)
{
    begin();
    tc_options o = default_options();
    outcome nothing = with_script("#!/bin/sh\nexit 0\n", &o);
    CHECK_HAS(nothing.error, "no object file");
    tc_options again = default_options();
    outcome garbage = with_script(
        "#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\necho garbage > \"$2\"\n", &again);
    CHECK_HAS(garbage.error, "cannot be loaded");
    end();
}

TEST(a_replaced_compiler_invalidates_what_it_made)
{
    begin();
    tc_options o = default_options();
    o.cc = in_dir("gcc-like");
    write_script(o.cc, "#!/bin/sh\nexec cc \"$@\"\n");
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.compiler_runs, 1);
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
    write_script(o.cc, "#!/bin/sh\n# newer\nexec cc \"$@\"\n");
    outcome replaced = attempt(&o, 0, true);
    CHECK_RAN(replaced, "cpu");
    CHECK_EQ_INT(replaced.used.disk_hits, 0);
    CHECK_EQ_INT(replaced.used.compiler_runs, 1);
    CHECK_EQ_INT(replaced.used.cache_rejects, 0);
    unlink(o.cc); /* gone: what it made still serves */
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
    end();
}

/* ---- objects that are not whole ---- */

/* A compiler that makes an object and does `then` to it ($o). */
static const char *spoiling_script(const char *then)
{
    static char text[1024];
    snprintf(text, sizeof(text), "#!/bin/sh\nfor a; do [ \"$p\" = -o ] && o=$a; p=$a; done\n%s\n",
             then);
    return text;
}

TEST(objects_cut_short_do_no_harm)
{
    begin();
    static const int percents[] = {3, 30, 60, 90, 99};
    for (int i = 0; i < 5; i++) {
        char then[256];
        tc_options o = default_options();
        snprintf(then, sizeof(then),
                 "cc \"$@\"; s=$(wc -c <\"$o\"); head -c $((s * %d / 100)) \"$o\" >\"$o.x\"; "
                 "mv \"$o.x\" \"$o\"",
                 percents[i]);
        outcome r = with_script(spoiling_script(then), &o);
        CHECK_HAS(r.error, "cannot be loaded");
    }
    CHECK_STR(find_file(in_dir("cache"), "tc-m-", ".so"), "");
    end();
}

/* The host hears nothing of how a compiler ended. */
TEST(a_compiler_that_dies_unheard_does_no_harm)
{
    begin();
    void (*old)(int) = signal(SIGCHLD, SIG_IGN);
    tc_options o = default_options();
    outcome r = with_script(spoiling_script("cc \"$@\"; head -c 600 \"$o\" >\"$o.x\"; "
                                            "mv \"$o.x\" \"$o\"; kill -9 $$"),
                            &o);
    CHECK_HAS(r.error, "cannot be loaded");
    signal(SIGCHLD, old);
    end();
}

TEST(what_a_compiler_leaves_must_be_a_file)
{
    static const char *const tricks[] = {"mkfifo \"$o\"; sleep 1000 >\"$o\" &", "mkfifo \"$o\"",
                                         "mkdir \"$o\"", "ln -s /dev/zero \"$o\"",
                                         "cc \"$@\"; mv \"$o\" \"$o.x\"; ln -s \"$o.x\" \"$o\""};
    begin();
    for (int i = 0; i < 5; i++) {
        tc_options o = default_options();
        outcome r = with_script(spoiling_script(tricks[i]), &o);
        CHECK_HAS(r.error, "no object file");
    }
    end();
}

/* ---- what is left behind ---- */

/* A compiler that kills the program which started it. */
TEST(the_next_compile_removes_what_a_killed_one_left)
{
    begin();
    setenv("TMPDIR", dir, 1);
    write_script(in_dir("killer"), "#!/bin/sh\nkill -9 $PPID\nsleep 1000\n");
    for (int i = 0; i < 3; i++) {
        int ended = -1;
        fflush(stdout);
        tc_shutdown();
        pid_t child = fork();
        if (child == 0) {
            tc_options o = default_options();
            o.cc = in_dir("killer");
            (void)attempt(&o, 0, true);
            tct_exit(0);
        }
        CHECK_EQ_INT(waitpid(child, &ended, 0), child);
        CHECK(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
        CHECK_EQ_INT(count_entries(dir, "tc-b-", ""), 1); /* its own */
    }
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK_EQ_INT(count_entries(dir, "tc-b-", ""), 0);
    unsetenv("TMPDIR");
    end();
}

TEST(only_the_last_failures_are_kept)
{
    begin();
    tc_options o = default_options();
    o.cc = in_dir("mycc");
    setenv("TMPDIR", dir, 1);
    write_script(o.cc, "#!/bin/sh\nexit 1\n");
    for (int i = 0; i < 20; i++) {
        CHECK_RAN(attempt(&o, i, true), "interp");
    }
    CHECK_EQ_INT(count_entries(dir, "tc-b-", ""), 16);
    setenv("TC_KEEP", "1", 1);
    o.cc = NULL;
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    unsetenv("TC_KEEP");
    CHECK_RAN(attempt(&o, 1, true), "cpu");
    CHECK_EQ_INT(count_entries(dir, "tc-kept-", ""), 1);
    unsetenv("TMPDIR");
    end();
}

TEST_MAIN
