/* tests/comm/test_simulate.c - time of communication: the model of tc_simulate against formulas
 * written out here, the line of tc_explain, links that were measured, the track of a profile. */
#include "tc_comm.h"

#include "tc_test.h"

#include "ranks.h"
#include "verbs.h"

enum { N = 1 << 20 };

static bool near_to(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b) + 1e-12;
}

/* A program that reduces N f32, and one with work between start and wait. */
static tc_program *reducing(tc_ctx *ctx, tc_comm *comm, bool overlaps)
{
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, N), w = tc_input(ctx, "w", TC_F32, 256, 256);
    tc_tensor ys[2] = {tc_comm_all_reduce(comm, x, TC_COMM_SUM), tc_matmul(w, w)};
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x, w), (tc_tensors){ys, overlaps ? 2 : 1}, NULL, &f),
                 TC_OK);
    return f;
}

TEST(an_all_reduce_takes_what_the_alpha_beta_model_says)
{
    tc_comm *comm = NULL;
    tc_simulation s;
    REQUIRE(tc_comm_from_env(&comm) == TC_OK);
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducing(ctx, comm, false);
    const double bytes = 4.0 * N;
    const tc_cluster m = {.ranks_per_node = 8, .inner = {3, 200}, .outer = {20, 25}};
    CHECK_EQ_INT(tc_simulate(f, &m, NULL, 1, &s), TC_OK);
    CHECK(s.comm_us == 0 && s.collectives == 1);
    CHECK_EQ_INT(tc_simulate(f, &m, comm, 8, &s), TC_OK); /* log2(8) rounds there and back */
    const double node = 2 * (3 * 3 + 7.0 / 8 * bytes / 200e3);
    CHECK(near_to(s.comm_us, node) && near_to(s.exposed_us, node));
    CHECK(near_to(s.step_us, s.compute_us + s.exposed_us));
    CHECK_EQ_INT(tc_simulate(f, &m, NULL, 64, &s), TC_OK); /* an eighth of it between 8 nodes */
    CHECK(near_to(s.comm_us, node + 2 * (3 * 20 + 7.0 / 8 * (bytes / 8) / 25e3)));
    CHECK_EQ_INT(tc_simulate(f, &m, NULL, 1024, &s), TC_OK);
    CHECK(near_to(s.comm_us, node + 2 * (7 * 20 + 127.0 / 128 * (bytes / 8) / 25e3)));
    CHECK_EQ_INT(tc_simulate(f, &m, NULL, 0, &s), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_simulate(f, &(tc_cluster){.inner = {1, 0}}, NULL, 2, &s), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_simulate(NULL, &m, NULL, 2, &s), TC_ERR_ARGUMENT);
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_comm_free(comm);
}

TEST(kernels_between_start_and_wait_hide_communication)
{
    tc_comm *comm = NULL;
    tc_simulation s, slow;
    REQUIRE(tc_comm_from_env(&comm) == TC_OK);
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducing(ctx, comm, true);
    const tc_cluster m = {.inner = {1, 1e3}}, far = {.inner = {1, 1e3}, .compute = 1000};
    CHECK_EQ_INT(tc_simulate(f, &m, NULL, 8, &s), TC_OK);
    CHECK_EQ_INT(tc_simulate(f, &far, NULL, 8, &slow), TC_OK);
    CHECK(near_to(slow.compute_us, 1000 * s.compute_us) && near_to(slow.comm_us, s.comm_us));
    CHECK(slow.exposed_us == 0 && near_to(slow.step_us, slow.compute_us));
    CHECK(s.exposed_us >= 0 && s.exposed_us < s.comm_us);
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_comm_free(comm);
}

TEST(kernels_next_to_communication_lose_a_share_of_their_speed)
{
    tc_comm *comm = NULL;
    tc_simulation s, free_of_it;
    REQUIRE(tc_comm_from_env(&comm) == TC_OK);
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducing(ctx, comm, true);
    const tc_cluster m = {.inner = {0, 1e3, 0.25}, .compute = 1000};
    const tc_cluster none = {.inner = {0, 1e3}, .compute = 1000};
    CHECK_EQ_INT(tc_simulate(f, &m, NULL, 8, &s), TC_OK);
    CHECK_EQ_INT(tc_simulate(f, &none, NULL, 8, &free_of_it), TC_OK);
    CHECK(free_of_it.slowed_us == 0 && free_of_it.exposed_us == 0);
    CHECK(near_to(s.slowed_us, 0.25 * s.comm_us)); /* the kernel is longer than the operation */
    CHECK(near_to(s.exposed_us, s.slowed_us) && near_to(s.step_us, s.compute_us + s.slowed_us));
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_comm_free(comm);
}

static const char *read_all_of(FILE *from)
{
    static char text[1 << 18];
    rewind(from);
    text[fread(text, 1, sizeof(text) - 1, from)] = 0;
    fclose(from);
    return text;
}

static void measured(tc_comm *comm)
{
    static float x[N], y[N], w[256 * 256];
    tc_link link = {0, 0};
    tc_profile *p = NULL;
    char path[] = "/tmp/tc-test-comm-XXXXXX";
    CHECK_EQ_INT(tc_comm_measure(comm, "interp", &link), TC_OK);
    CHECK(link.latency_us > 0 && link.gb_per_s > 0);
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducing(ctx, comm, false);
    CHECK_EQ_INT(tc_profile_begin(NULL, &p), TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, N), TC_BUF(w, 256 * 256)), TC_BUFS(TC_BUF(y, N))),
                 TC_OK);
    CHECK_EQ_INT(tc_profile_end(p), TC_OK);
    FILE *said = tmpfile();
    CHECK_EQ_INT(tc_explain(f, said), TC_OK);
    const char *told = read_all_of(said), *line = strstr(told, "communication: 1 collectives in "
                                                               "1 operations, 4.0 MiB from each "
                                                               "rank");
    CHECK(line && strstr(line, "(links measured: "));
    CHECK(line && strstr(line, "measured: kernels wait ") && strstr(line, "us a run, of 1 runs"));
    close(mkstemp(path));
    unlink(path);
    CHECK_EQ_INT(tc_profile_write(p, path), TC_OK);
    FILE *json = fopen(path, "r");
    told = json ? read_all_of(json) : "";
    CHECK(strstr(told, "\"cat\":\"communication\",\"ph\":\"X\",\"pid\":3,\"tid\":1") != NULL);
    CHECK(strstr(told, "{\"name\":\"wait_all_reduce\",\"cat\":\"communication\"") != NULL);
    unlink(path);
    tc_profile_free(p);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(links_are_measured_and_communication_has_a_line_and_a_track)
{
    CHECK(ranks_run(2, 0, measured));
    tc_link link;
    CHECK_EQ_INT(tc_comm_measure(NULL, NULL, &link), TC_ERR_HANDLE);
}

TEST_MAIN
