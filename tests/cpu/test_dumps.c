/* What is shown on request: dumps, logs, sources, traces. Needs a compiler. */
#include "json.h"
#include "cache.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what is shown on request ---- */

static int n_logged;
static void count_log(void *user, const char *topic, const char *text)
{
    (void)user;
    n_logged += !strcmp(topic, "compile") && text[0] != 0;
}

TEST(dumps_logs_and_source)
{
    begin();
    static const char *const files[] = {"graph.txt",  "graph.dot", "rewrite.txt",
                                        "groups.txt", "plan.txt",  "kernel.txt",
                                        "loop.txt",   "source.c",  "build.log"};
    tc_options o = default_options();
    o.dump = "all";
    o.dump_dir = in_dir("dump");
    o.log = count_log;
    o.verify = true;
    n_logged = 0;
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK(n_logged >= 1);
    for (int i = 0; i < (int)(sizeof(files) / sizeof(files[0])); i++) {
        CHECK_MSG(find_file(in_dir("dump"), files[i], "")[0], "%s is missing", files[i]);
    }
    o.dump = NULL;
    for (int fresh = 0; fresh < 2; fresh++) { /* made here; then read back from the disk cache */
        tc_ctx *ctx;
        tc_program *f;
        tc_shutdown();
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        REQUIRE(tc_compile(expression(ctx, 0), &f) == TC_OK);
        CHECK_HAS(tc_source(f), "tc_k_");
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    end();
}

/* What the environment asks for, seen from outside. */
TEST(the_environment_asks_for_logs_dumps_and_traces)
{
    begin();
    int ended = -1;
    fflush(stdout);
    tc_shutdown();
    pid_t child = fork();
    if (child == 0) {
        int fd = open(in_dir("stderr"), O_WRONLY | O_CREAT, 0600);
        dup2(fd, 2);
        setenv("TC_LOG", "all", 1);
        setenv("TC_DUMP", "plan,source", 1);
        setenv("TC_DUMP_DIR", in_dir("dump"), 1);
        setenv("TC_TRACE", in_dir("trace.json"), 1);
        tc_options o = default_options();
        outcome r = attempt(&o, 0, true);
        tc_shutdown(); /* writes the trace, as exit would */
        tct_exit(!r.correct);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    CHECK_EQ_INT(ended, 0);
    bytes log = read_file(in_dir("stderr"));
    log.data[log.n] = 0;
    CHECK_HAS((char *)log.data, "tc compile: ");
    CHECK_HAS((char *)log.data, "tc source: ");
    CHECK_HAS((char *)log.data, "tc kernels: ");
    CHECK_HAS((char *)log.data, " GB/s ");
    const char *dump = in_dir("dump"); /* a later program of the process has a folder of its own */
    dump = find_file(dump, "plan", ".txt")[0] ? dump : in_dir("dump/2");
    CHECK(find_file(dump, "plan", ".txt")[0]);
    CHECK(find_file(dump, "source", ".c")[0]);
    CHECK(!find_file(dump, "loop", ".txt")[0]);
    free(log.data);
    bytes trace = read_file(in_dir("trace.json"));
    trace.data[trace.n] = 0;
    CHECK_HAS((char *)trace.data, "\"name\":\"compiler\"");
    CHECK_HAS((char *)trace.data, "\"cat\":\"kernel\"");
    free(trace.data);
    end();
}

TEST_MAIN
