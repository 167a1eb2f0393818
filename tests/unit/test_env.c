/* Every environment variable of base/env.h is set by a test: those that are fields of tc_options
 * here, one row each; of the others some test says so by name. */
#include "inside.h"

#include "tc_test.h"

#include <sys/wait.h>
#include <unistd.h>

typedef struct env_case {
    tci_env id;
    const char *text;
    size_t at;      /* the field of tc_options */
    int bytes;      /* its size; 0: a string */
    int64_t wanted; /* of a number */
} env_case;

#define NUMBER(id, text, field, wanted)                                                            \
    {TCI_ENV_##id, text, offsetof(tc_options, field), (int)sizeof(((tc_options *)0)->field), wanted}
#define TEXT(id, text, field) {TCI_ENV_##id, text, offsetof(tc_options, field), 0, 0}

static const env_case cases[] = {
    TEXT(BACKEND, "interp", backend),
    TEXT(CC, "/bin/false", cc),
    NUMBER(CC_TIMEOUT, "7", cc_timeout_s, 7),
    NUMBER(CC_TIMEOUT, "0", cc_timeout_s, 1),
    TEXT(CACHE_DIR, "/nonexistent/tc", cache_dir),
    NUMBER(CACHE_MB, "3", cache_bytes, 3 << 20),
    NUMBER(MEMORY_CACHE_MB, "5", memory_cache_bytes, 5 << 20),
    NUMBER(MEMORY_CACHE_MB, "0", memory_cache_bytes, -1),
    NUMBER(NO_CACHE, "1", no_disk_cache, 1),
    NUMBER(THREADS, "3", threads, 3),
    NUMBER(VECTOR, "128", vector_bits, 128),
    NUMBER(VECTOR, "0", vector_bits, -1),
    NUMBER(MATRIX, "0", matrix, -1),
    NUMBER(REPRODUCIBLE, "1", reproducible, 1),
    NUMBER(FUSION, "0", fusion, -1),
    TEXT(SCHEDULE, "/nonexistent/schedules", schedule),
    TEXT(DUMP, "graph", dump),
    TEXT(DUMP_DIR, "/nonexistent/dumps", dump_dir),
    NUMBER(VERIFY, "1", verify, 1),
    NUMBER(CHECK, "nan", check, TC_CHECK_NAN),
    NUMBER(CHECK, "bits,inf", check, TC_CHECK_BITS | TC_CHECK_INF),
};

static const char *const names[] = {
#define ROW(id, name, doc) name,
    TCI_ENV_ROWS(ROW)
#undef ROW
};

static int64_t number_at(const tc_options *o, const env_case *c)
{
    const char *field = (const char *)o + c->at;
    int32_t narrow;
    int64_t wide;
    bool flag;
    switch (c->bytes) {
    case 1: return memcpy(&flag, field, 1), flag;
    case 4: return memcpy(&narrow, field, 4), narrow;
    default: return memcpy(&wide, field, 8), wide;
    }
}

static void check_case(const env_case *c)
{
    tc_options none = {.backend = c->id == TCI_ENV_BACKEND ? NULL : "interp"};
    tc_ctx *ctx = NULL;
    const char *name = names[c->id], *had = getenv(name);
    char before[256];
    snprintf(before, sizeof(before), "%s", had ? had : "");
    setenv(name, c->text, 1);
    CHECK_MSG(tc_ctx_make(&ctx, &none) == TC_OK, "%s=%s", name, c->text);
    if (ctx && c->bytes) {
        int64_t got = number_at(&tci_ctx_of(ctx)->options, c);
        CHECK_MSG(got == c->wanted, "%s=%s sets %lld, expected %lld", name, c->text, (long long)got,
                  (long long)c->wanted);
    } else if (ctx) {
        const char *text;
        memcpy(&text, (const char *)&tci_ctx_of(ctx)->options + c->at, sizeof(text));
        CHECK_MSG(text && !strcmp(text, c->text), "%s=%s sets %s", name, c->text,
                  text ? text : "nothing");
    }
    tc_ctx_free(ctx);
    if (had) {
        setenv(name, before, 1);
    } else {
        unsetenv(name);
    }
}

TEST(variables_set_fields_of_the_options)
{
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        check_case(&cases[i]);
    }
}

/* A field that is set wins over its variable. */
TEST(a_field_wins_over_its_variable)
{
    tc_options o = {.backend = "interp", .threads = 2, .fusion = 1, .cc_timeout_s = 9};
    tc_ctx *ctx;
    setenv("TC_FUSION", "0", 1);
    setenv("TC_CC_TIMEOUT", "7", 1);
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    CHECK_EQ_INT(tci_ctx_of(ctx)->options.fusion, 1);
    CHECK_EQ_INT(tci_ctx_of(ctx)->options.cc_timeout_s, 9);
    tc_ctx_free(ctx);
    unsetenv("TC_FUSION");
    unsetenv("TC_CC_TIMEOUT");
}

static void keep_log(void *user, const char *topic, const char *text)
{
    (void)topic;
    (void)user;
    fprintf(stderr, "logged: %s\n", text);
}

/* The text that contexts print to stderr under NAME=VALUE, in a process of its own. */
static void printed(const char *name, const char *value, int contexts, bool log, char *text,
                    size_t room)
{
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        tc_options o = {.backend = "interp", .log = log ? keep_log : NULL};
        dup2(ends[1], STDERR_FILENO);
        setenv(name, value, 1);
        for (int i = 0; i < contexts; i++) {
            tc_ctx *ctx = NULL;
            tc_ctx_make(&ctx, &o);
            tc_ctx_free(ctx);
        }
        tct_exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n + 1 < room && (got = read(ends[0], text + n, room - 1 - n)) > 0;) {
        n += (size_t)got;
    }
    text[n] = 0;
    close(ends[0]);
    waitpid(child, NULL, 0);
}

TEST(help_lists_every_variable)
{
    char text[8192];
    printed("TC_HELP", "1", 2, false, text, sizeof(text));
    for (int i = 0; i < TCI_COUNT(names); i++) {
        CHECK_HAS(text, names[i]);
    }
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    while ((text = strstr(text, part))) {
        text += strlen(part);
        n++;
    }
    return n;
}

/* Through the log callback of any context, or to stderr for TC_LOG=compile; and for a word that
 * TC_LOG itself does not know, to stderr too. */
TEST(unknown_variables_and_words_are_told_once_a_process)
{
    static const struct {
        const char *name, *value, *says;
    } rows[] = {{"TC_BAKEND", "cpu", "TC_BAKEND is no variable of tc: TC_HELP=1 lists them\n"},
                {"TC_LOG", "recompile", "TC_LOG has 'recompile': expected words of compile,"},
                {"TC_DUMP", "plan,grpah", "TC_DUMP has 'grpah': expected words of graph,"},
                {"TC_CHECK", "nans", "TC_CHECK has 'nans': expected words of bits,"},
                {"TC_STANCE", "lazy", "TC_STANCE is 'lazy': expected one of compile,"},
                {"TC_THREADS", "abc", "TC_THREADS is 'abc': expected a number, taken as not"}};
    char text[8192];
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        bool by_stderr = !strcmp(rows[i].name, "TC_LOG");
        printed(rows[i].name, rows[i].value, 3, true, text, sizeof(text));
        CHECK_MSG(count_of(text, rows[i].says) == (by_stderr ? 2 : 1), "%s: %s", rows[i].name,
                  text);
        printed(rows[i].name, rows[i].value, 3, false, text, sizeof(text));
        CHECK_MSG(count_of(text, rows[i].says) == by_stderr, "%s, no log: %s", rows[i].name, text);
        setenv("TC_LOG", "compile", 1);
        printed(rows[i].name, rows[i].value, 3, false, text, sizeof(text));
        CHECK_MSG(count_of(text, rows[i].says) == 1, "%s, TC_LOG: %s", rows[i].name, text);
        unsetenv("TC_LOG");
    }
}

/* Of the rest: log topics, kept files, the trace, NVRTC and the places of directories. */
TEST(each_variable_is_set_by_some_test)
{
    char command[256];
    if (access("tests/unit/test_env.c", R_OK)) {
        SKIP("the tests' sources are not here");
    }
    for (int i = 0; i < TCI_ENV_COUNT; i++) {
        bool here = i == TCI_ENV_HELP;
        for (int k = 0; k < TCI_COUNT(cases); k++) {
            here = here || (int)cases[k].id == i;
        }
        snprintf(command, sizeof(command),
                 "grep -qE 'setenv\\(\"%s\"|[ \"]%s=' tests/*.c tests/*.h tests/*/*.[ch]", names[i],
                 names[i]);
        CHECK_MSG(here || system(command) == 0, "no test sets %s", names[i]);
    }
}

TEST_MAIN
