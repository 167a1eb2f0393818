/* tests/cuda/test_grouped_launch.c - independent kernels in one launch, on the emulation: the
 * update of parameters of unlike sizes, whose sums and values have blocks of unlike numbers of
 * threads; and random graphs, several as one program, so that their kernels meet in grouped
 * launches. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "../fuzz/draw.h"
#include "../same.h"
#include "emulate.h"

enum { PARAMS = 6, LONGEST = 2000 };

static const int sizes[PARAMS] = {33, LONGEST, 64, 1027, 64, 1};

/* What all parameters are after two steps of AdamW on clipped gradients; the launches of one. */
static int run_steps(bool apart, float *all)
{
    tc_options o = {.backend = "emulated",
                    .no_disk_cache = true,
                    .verify = true,
                    .fallback = TC_FALLBACK_REFUSE,
                    .fusion = apart ? -1 : 0};
    tc_tensor w[PARAMS], grads[PARAMS], clipped[PARAMS], effects[TC_EFFECTS(PARAMS)];
    static float grad[LONGEST];
    tc_buf buffers[PARAMS];
    tc_program_info info;
    tc_program *f = NULL;
    tc_ctx *ctx = NULL;
    int n = 0;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    for (int i = 0; i < LONGEST; i++) {
        grad[i] = (float)(i * 37 % 101 - 50) / 64;
    }
    for (int i = 0; i < PARAMS; i++) {
        w[i] = tc_param(ctx, grad, TC_F32, sizes[i]);
        grads[i] = tc_input(ctx, "", TC_F32, sizes[i]);
        buffers[i] = TC_BUF(grad, sizes[i]);
    }
    tc_clip_grads(grads, PARAMS, 0.5, clipped);
    REQUIRE(tc_adamw(w, clipped, PARAMS, 0.05, NULL, effects, &n) == TC_OK);
    tc_compile_fn(TC_TENSORS_N(grads, PARAMS), TC_TENSORS_N(effects, n), NULL, &f);
    CHECK_MSG(f != NULL, "%s", tc_error(ctx));
    REQUIRE(f != NULL);
    tc_program_get_info(f, &info);
    for (int i = 0; i < 2; i++) {
        tc_status status = tc_run(f, TC_BUFS_N(buffers, PARAMS), TC_BUFS_N(NULL, 0));
        CHECK_MSG(status == TC_OK, "%s", tc_error(f));
    }
    for (int i = 0; i < PARAMS; i++) {
        CHECK_EQ_INT(tc_read(w[i], all, sizes[i]), TC_OK);
        all += sizes[i];
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return info.n_steps;
}

TEST(joints_have_the_bits_of_their_members)
{
    static float values[2][PARAMS * LONGEST];
    tc_register_backend(emulation());
    if (system("c++ --version >/dev/null 2>&1")) {
        SKIP("no C++ compiler");
    }
    int launches = run_steps(false, values[0]), apart = run_steps(true, values[1]);
    CHECK_MSG(launches <= 8 && apart > 2 * PARAMS, "%d launches, apart %d", launches, apart);
    CHECK(!memcmp(values[0], values[1], sizeof(values[0])));
}

/* ---- random graphs ---- */

enum { PROGRAMS = 10, PROGRAMS_SOAK = 200, GRAPHS = 3, PORTS = GRAPHS * FZ_MAX_STEPS };

typedef struct mixed {
    fz_recipe recipes[GRAPHS];
    fz_graph graphs[GRAPHS];
    tc_tensor inputs[PORTS], outputs[GRAPHS * FZ_MAX_OUT];
    tc_buf in[PORTS], out[2][GRAPHS * FZ_MAX_OUT];
    int n_inputs, n_outputs;
    tc_program *programs[2];
} mixed;

static tc_buf buffer_of(tc_tensor t)
{
    tc_buf b = {.data = calloc(1, (size_t)tc_nbytes(t) + 1),
                .n = tc_count(t),
                .dtype = (int)tc_dtype_of(t)};
    return b;
}

/* Some graphs of small values, independent of each other. */
static void mix(mixed *m, uint64_t *seed, tc_ctx *ctx)
{
    memset(m, 0, sizeof(*m));
    for (int i = 0; i < GRAPHS;) {
        bool small = true;
        fz_recipe *f = &m->recipes[i];
        fz_draw_recipe(f, (*seed)++, ctx);
        for (int k = 0; k < f->n; k++) {
            small = small && fz_count(&f->steps[k]) <= FZ_MOST;
        }
        if (!small || !fz_build(f, ctx, &m->graphs[i])) {
            continue;
        }
        for (int k = 0; k < m->graphs[i].n_inputs; k++) {
            tc_buf b = buffer_of(m->graphs[i].inputs[k]);
            fz_fill(f, m->graphs[i].input_steps[k], b.data, b.n);
            m->inputs[m->n_inputs] = m->graphs[i].inputs[k];
            m->in[m->n_inputs++] = b;
        }
        for (int k = 0; k < f->n_outputs; k++) {
            m->outputs[m->n_outputs] = m->graphs[i].outputs[k];
            m->out[0][m->n_outputs] = buffer_of(m->graphs[i].outputs[k]);
            m->out[1][m->n_outputs++] = buffer_of(m->graphs[i].outputs[k]);
        }
        i++;
    }
}

static void mixed_free(mixed *m)
{
    for (int i = 0; i < m->n_inputs; i++) {
        free(m->in[i].data);
    }
    for (int way = 0; way < 2; way++) {
        for (int i = 0; i < m->n_outputs; i++) {
            free(m->out[way][i].data);
        }
        tc_program_free(m->programs[way]);
    }
    for (int i = 0; i < GRAPHS; i++) {
        fz_graph_free(&m->graphs[i]);
    }
}

static void compile_mixed(mixed *all, int n, int way)
{
    static const char *const backends[2] = {"interp", "emulated"};
    tc_options o = {.backend = backends[way],
                    .no_disk_cache = true,
                    .verify = true,
                    .reproducible = true,
                    .fallback = way ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW};
    tc_job *jobs = (tc_job *)calloc((size_t)n, sizeof(*jobs));
    for (int i = 0; i < n; i++) {
        tc_job job = {{all[i].inputs, all[i].n_inputs},
                      {all[i].outputs, all[i].n_outputs},
                      &all[i].programs[way],
                      TC_OK};
        jobs[i] = job;
    }
    tc_compile_many(jobs, n, &o);
    for (int i = 0; i < n; i++) {
        CHECK_MSG(jobs[i].status == TC_OK, "the graphs from seed %llu on %s: %s",
                  (unsigned long long)all[i].recipes[0].seed, backends[way],
                  tc_error(all[i].outputs[0]));
    }
    free(jobs);
}

/* Both ways the same bits, or an index outside. Returns the joints. */
static int run_mixed(mixed *m)
{
    tc_status status[2];
    for (int way = 0; way < 2; way++) {
        tc_bufs in = {m->in, m->n_inputs}, out = {m->out[way], m->n_outputs};
        status[way] = tc_run(m->programs[way], in, out);
        CHECK_MSG(status[way] == TC_OK || status[way] == TC_ERR_INDEX, "%s",
                  tc_error(m->programs[way]));
    }
    CHECK_EQ_INT(status[0], status[1]);
    for (int i = 0; i < m->n_outputs && !status[0]; i++) {
        CHECK_MSG(same_bits(tc_dtype_of(m->outputs[i]), m->out[0][i].data, m->out[1][i].data,
                            m->out[0][i].n),
                  "output %d of the graphs from seed %llu", i,
                  (unsigned long long)m->recipes[0].seed);
    }
    int joints = 0;
    const char *at = tc_source(m->programs[1]);
    while (at && (at = strstr(at, "__launch_bounds__")) != NULL) {
        at = strstr(at, "tc_k_");
        joints += at && !strncmp(at, "tc_k_joint", 10);
    }
    return joints;
}

TEST(joints_of_random_graphs)
{
    int n = tct_soak ? PROGRAMS_SOAK : PROGRAMS, joints = 0, with = 0;
    uint64_t seed = tct_seed * 7000003;
    tc_ctx *ctx = NULL;
    tc_register_backend(emulation());
    if (system("c++ --version >/dev/null 2>&1")) {
        SKIP("no C++ compiler");
    }
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    mixed *all = (mixed *)calloc((size_t)n, sizeof(*all));
    for (int i = 0; i < n; i++) {
        mix(&all[i], &seed, ctx);
    }
    for (int way = 0; way < 2; way++) {
        compile_mixed(all, n, way);
    }
    for (int i = 0; i < n; i++) {
        int now = all[i].programs[0] && all[i].programs[1] ? run_mixed(&all[i]) : 0;
        joints += now;
        with += now > 0;
        mixed_free(&all[i]);
    }
    printf("cuda/%s: %d joints in %d of %d programs\n", tct_name, joints, with, n);
    CHECK_MSG(2 * with > n, "%d of %d programs have joints", with, n);
    free(all);
    tc_ctx_free(ctx);
}

TEST_MAIN
