/* The networks of examples/models: names and shapes of their state as the libraries have them, a
 * small BERT against what another library computed (build/model takes any such file), and what the
 * layers say of files that do not fit. */
#include "tc.h"

#include "tc_test.h"

#include "../examples/models/sentences.h"
#include "model_case.h"
#include "safetensors.h"

#include <unistd.h>

#define DATA "tests/data/models/"

static char *text;
static json *manifest;

static void open_manifest(void)
{
    size_t bytes;
    text = json_read_file(DATA "models.json", &bytes);
    manifest = text ? json_parse(text) : NULL;
    REQUIRE(manifest != NULL);
}

static void close_manifest(void)
{
    json_free(manifest);
    free(text);
}

/* ---- the state ---- */

/* A parameter that has a shape and no memory. */
static tc_tensor make_placeholder(nn_model *model, const char *name, nn_kind kind, int rank,
                                  const int64_t *sizes)
{
    int64_t list[NN_RANK + 1] = {kind == NN_COUNT ? TC_I64 : TC_F32};
    memcpy(list + 1, sizes, (size_t)rank * sizeof(*sizes));
    return tc_input_at(model->ctx, name, rank + 1, list, TC_HERE);
}

/* The network on inputs of that size, its parameters without memory. */
static bool write_down(nn_model *model, const nn_network *network, int64_t batch, int64_t size)
{
    tc_tensor in[NN_INPUTS], out[NN_OUTPUTS];
    bool images = !strcmp(network->inputs[0], "x");
    model->make = make_placeholder;
    model->preset = network->preset;
    for (int i = 0; i < NN_INPUTS && network->inputs[i]; i++) {
        in[i] = images ? tc_input(model->ctx, "x", TC_F32, batch, 3, size, size)
                       : tc_input(model->ctx, network->inputs[i], TC_I64, batch, size);
    }
    network->build(nn_top(model), in, out);
    CHECK_MSG(!*nn_error(model), "%s: %s", network->name, nn_error(model));
    return !*nn_error(model);
}

/* Whether the tensor is what the list says: [name, [sizes], dtype, "param" or "buffer"]. */
static bool is_listed(const nn_named *s, const json *entry)
{
    const json *sizes = entry->first->next, *kind = sizes->next->next;
    int i = 0;
    for (const json *n = sizes->first; n; n = n->next, i++) {
        if (n->integer != tc_size(s->tensor, i)) {
            return false;
        }
    }
    return i == tc_rank(s->tensor) && !strcmp(kind->string, "param") == (s->kind <= NN_SCALE);
}

static const nn_named *find_state(const nn_model *model, const char *name)
{
    for (int i = 0; i < model->n_state; i++) {
        if (!strcmp(model->state[i].name, name)) {
            return &model->state[i];
        }
    }
    return NULL;
}

TEST(names_and_shapes_are_those_of_the_libraries)
{
    open_manifest();
    for (const json *v = json_get(manifest, "full")->first; v; v = v->next) {
        const nn_network *network = nn_find(v->key);
        const json *list = json_get(v, "tensors");
        nn_model model = {0};
        REQUIRE(network != NULL && tc_ctx_make(&model.ctx, NULL) == TC_OK);
        bool images = !strcmp(network->inputs[0], "x");
        write_down(&model, network, 1, images ? 224 : 16);
        CHECK_EQ_INT(model.n_state, list->n);
        for (const json *entry = list->first; entry; entry = entry->next) {
            const nn_named *s = find_state(&model, entry->first->string);
            CHECK_MSG(s && is_listed(s, entry), "%s: %s", v->key, entry->first->string);
        }
        nn_free(&model);
        tc_ctx_free(model.ctx);
    }
    close_manifest();
}

TEST(configurations_have_as_many_parameters_as_theirs)
{
    open_manifest();
    for (const json *v = json_get(manifest, "tiny")->first; v; v = v->next) {
        const nn_network *network = nn_find(v->key);
        char *settings = mdl_settings(json_get(v, "config"));
        nn_model model = {.settings = settings, .ignores = true};
        int64_t n = 0;
        REQUIRE(network != NULL && tc_ctx_make(&model.ctx, NULL) == TC_OK);
        write_down(&model, network, json_get(v, "batch")->integer, json_get(v, "size")->integer);
        for (int i = 0; i < model.n_state; i++) {
            n += model.state[i].kind <= NN_SCALE ? tc_count(model.state[i].tensor) : 0;
        }
        CHECK_MSG(n == json_get(v, "parameters")->integer, "%s: %d", v->key, (int)n);
        nn_free(&model);
        tc_ctx_free(model.ctx);
        free(settings);
    }
    close_manifest();
}

TEST(settings_that_no_network_asks_for_are_mistakes)
{
    static const char *const wrong[][2] = {{"detph=3", "'detph=3' is none of this network's"},
                                           {"layer=1", "'layer=1' is none of this network's"},
                                           {"layers", "'layers' has no number"},
                                           {"classes=many", "'classes=many' has no number"}};
    for (int i = 0; i < 5; i++) {
        char settings[80];
        tc_tensor y, x;
        nn_model model = {.settings = settings, .make = make_placeholder};
        REQUIRE(tc_ctx_make(&model.ctx, NULL) == TC_OK);
        snprintf(settings, sizeof(settings), " classes=7  width_divisor=8 layers=1,1,1,1 %s",
                 i < 4 ? wrong[i][0] : "");
        x = tc_input(model.ctx, "x", TC_F32, 1, 3, 64, 64);
        resnet(nn_top(&model), &x, &y);
        CHECK(i == 4 ? tc_size(y, 1) == 7 && !*nn_error(&model) : tc_size(y, 1) == -1);
        if (i < 4) {
            CHECK_HAS(nn_error(&model), wrong[i][1]);
        }
        nn_free(&model);
        tc_ctx_free(model.ctx);
    }
}

/* ---- numbers ---- */

static mdl_run replay(const char *path, const char *backend, bool train, FILE *out)
{
    static mdl_run r;
    open_manifest();
    r = (mdl_run){.name = "bert", .backend = backend, .train = train, .out = out};
    r.meta = json_get(json_get(manifest, "tiny"), "bert");
    mdl_replay(&r, path);
    close_manifest();
    return r;
}

TEST(bert_is_the_reference_s_in_use_and_in_training)
{
    static const char *const backends[] = {"interp", "cpu"};
    for (int i = 0; i < 2; i++) {
        mdl_run r = replay(DATA "bert.safetensors", backends[i], true, stdout);
        CHECK_EQ_INT(r.failed, 0);
        CHECK_EQ_INT(r.passed, 42);
        CHECK_EQ_INT(r.skipped, 0);
    }
    mdl_run r = replay(DATA "bert.safetensors", "interp", false, stdout);
    CHECK_EQ_INT(r.passed, 2);
    CHECK_EQ_INT(r.skipped, 40);
}

TEST(a_wrong_weight_is_found_and_its_layer_named)
{
    char path[64];
    st_file f;
    snprintf(path, sizeof(path), "/tmp/tc-test-model-%d", (int)getpid());
    REQUIRE(st_open(&f, DATA "bert.safetensors"));
    const st_array *a = st_find(&f, "w/encoder.layer.1.intermediate.dense.weight");
    REQUIRE(a != NULL);
    float wrong = 3;
    memcpy(f.text + (a->data - f.text), &wrong, sizeof(wrong));
    FILE *file = fopen(path, "wb");
    const st_array *last = f.arrays;
    for (int i = 0; i < f.n; i++) {
        last = f.arrays[i].data > last->data ? &f.arrays[i] : last;
    }
    size_t bytes = (size_t)(last->data + last->bytes - f.text);
    REQUIRE(file != NULL && fwrite(f.text, 1, bytes, file) == bytes && fclose(file) == 0);
    st_close(&f);
    mdl_run r = replay(path, "interp", true, NULL);
    remove(path);
    CHECK_MSG(r.failed > 10, "%d", r.failed);
    CHECK_STR(r.first, "encoder.layer.1.intermediate.dense");
}

/* tests/data/sentences: a BERT, its words, and what the tokenizer and the network of transformers
 * make of texts. */
TEST(texts_become_the_vectors_of_the_reference)
{
    static const char *const backends[] = {"interp", "cpu"};
    for (int i = 0; i < 2; i++) {
        sentences s;
        double worst = 0;
        int n = 0;
        tc_options options = {.backend = backends[i]};
        CHECK_MSG(sentences_open(&s, "tests/data/sentences", &options), "%s", s.error);
        CHECK_MSG(sentences_compare(&s, "tests/data/sentences/expected.txt", 1 + i, &worst, &n),
                  "%s", s.error);
        CHECK_MSG(n == 10 && worst < 1e-5, "%d texts, %g", n, worst);
        sentences_close(&s);
    }
    sentences s;
    CHECK(!sentences_open(&s, "tests/data/models", NULL));
    CHECK_HAS(s.error, "tests/data/models/config.json: it cannot be read");
    sentences_close(&s);
}

/* The published weights; minilm.txt has what sentence-transformers computes. */
TEST(minilm_gives_the_vectors_of_sentence_transformers)
{
    static const int at_once[] = {1, SENTENCES_BATCH};
    if (access("data/minilm/model.safetensors", R_OK)) {
        SKIP("no data/minilm (make data)");
    }
    for (int i = 0; i < 2; i++) {
        sentences s;
        double worst = 0;
        int n = 0;
        CHECK_MSG(sentences_open(&s, "data/minilm", NULL), "%s", s.error);
        CHECK_MSG(sentences_compare(&s, "tests/data/sentences/minilm.txt", at_once[i], &worst, &n),
                  "%s", s.error);
        CHECK_MSG(n == 13 && worst < 1e-5, "%d texts, %g", n, worst);
        sentences_close(&s);
    }
}

TEST(long_texts_and_words_are_cut)
{
    wp_words w;
    int64_t ids[12];
    char word[300] = "";
    REQUIRE(wp_open(&w, "tests/data/sentences/vocab.txt"));
    CHECK_EQ_INT(wp_encode(&w, "the cat the cat the cat", ids, 5), 5);
    CHECK(ids[0] == w.start && ids[4] == w.end && ids[3] == ids[1]);
    memset(word, 'z', 100);
    CHECK_EQ_INT(wp_encode(&w, word, ids, 12), 12);
    memset(word, 'z', 101);
    CHECK_EQ_INT(wp_encode(&w, word, ids, 12), 3);
    CHECK_EQ_INT(ids[1], w.unknown);
    CHECK_EQ_INT(wp_encode(&w, "\xff\xc3 cat \xe4\xb8", ids, 12), 3); /* no UTF-8 */
    wp_close(&w);
    CHECK(!wp_open(&w, "tests/data/nothing"));
    wp_close(&w);
    CHECK(!wp_open(&w, "tests/data/sentences/config.json"));
    wp_close(&w);
}

/* ---- files that do not fit ---- */

TEST(a_file_of_another_shape_is_refused_by_name)
{
    nn_model model = {.prefix = "w/", .settings = "vocab_size=120 hidden_size=64"};
    REQUIRE(tc_ctx_make(&model.ctx, NULL) == TC_OK);
    REQUIRE(tc_file_open(model.ctx, DATA "bert.safetensors", &model.file) == TC_OK);
    tc_tensor ids = tc_input(model.ctx, "ids", TC_I64, 1, 4), out[2];
    bert(nn_top(&model), (tc_tensor[]){ids, ids, ids}, out);
    CHECK_STR(nn_error(&model), "w/embeddings.word_embeddings.weight is [120, 64], the file has "
                                "[120, 48]");
    CHECK(tc_status_of(out[1]) != TC_OK);
    nn_free(&model);
    model = (nn_model){.ctx = model.ctx, .file = model.file};
    bert(nn_top(&model), (tc_tensor[]){ids, ids, ids}, out);
    CHECK_STR(nn_error(&model), "the file has no embeddings.word_embeddings.weight");
    nn_free(&model);
    tc_file_close(model.file);
    tc_ctx_free(model.ctx);
}

/* ---- without a file ---- */

/* The network is the same but for rounding; the weights are made once, and again when one of what
 * they are made of is another. */
TEST(norms_fold_into_convolutions)
{
    enum { PIXELS = 3 * 32 * 32, CLASSES = 7 };
    static float image[PIXELS], y[2][CLASSES], after[2][CLASSES], means[8];
    tc_ctx *ctx;
    tc_program *f[2] = {NULL, NULL};
    tc_tensor params[2];
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    for (int i = 0; i < PIXELS; i++) {
        image[i] = (float)sin(i);
    }
    for (int i = 0; i < 8; i++) {
        means[i] = 0.1f * (float)i;
    }
    for (int i = 0; i < 2; i++) {
        nn_model model = {.ctx = ctx,
                          .folds = i == 1,
                          .settings = "width_divisor=8 layers=1,1,1,1 "
                                      "bottleneck=0 classes=7"};
        tc_tensor x = tc_input(ctx, "x", TC_F32, 1, 3, 32, 32), out;
        tc_program_info info;
        resnet(nn_top(&model), &x, &out);
        REQUIRE(tc_compile(out, &f[i]) == TC_OK);
        params[i] = find_state(&model, "bn1.running_mean")->tensor;
        tc_program_get_info(f[i], &info);
        CHECK_MSG(i == 0 || info.n_once >= 10, "%d launches done once", info.n_once);
        CHECK_EQ_INT(tc_run(f[i], TC_BUFS(TC_BUF(image, PIXELS)), TC_BUFS(TC_BUF(y[i], CLASSES))),
                     TC_OK);
        CHECK_EQ_INT(tc_param_write(params[i], means, 8), TC_OK);
        CHECK_EQ_INT(tc_run(f[i], TC_BUFS(TC_BUF(image, PIXELS)),
                            TC_BUFS(TC_BUF(after[i], CLASSES))),
                     TC_OK);
        nn_free(&model);
    }
    double moved = 0;
    for (int c = 0; c < CLASSES; c++) {
        CHECK_CLOSE(y[1][c], y[0][c], 1e-5);
        CHECK_CLOSE(after[1][c], after[0][c], 1e-5);
        moved = fmax(moved, fabs((double)after[0][c] - (double)y[0][c]));
    }
    CHECK_MSG(moved > 1e-3, "%g", moved);
    tc_program_free(f[0]);
    tc_program_free(f[1]);
    tc_ctx_free(ctx);
}

/* Attention of 8 places, the last one masked, or with a causal mask. */
TEST(attention_drops_weights_in_training)
{
    enum { N = 2 * 3 * 8 * 4 };
    static float whole[N], kept[N], dropped[N];
    nn_model model = {.training = true};
    REQUIRE(tc_ctx_make(&model.ctx, NULL) == TC_OK);
    nn m = nn_top(&model);
    tc_keys keys = {tc_full(model.ctx, 3, TC_U64), 0};
    tc_tensor q = tc_randn(model.ctx, 1, TC_F32, 2, 3, 8, 4);
    tc_tensor k = tc_randn(model.ctx, 2, TC_F32, 2, 3, 8, 4), v = tc_mul(k, q);
    tc_tensor mask = tc_lt(tc_arange(model.ctx, 0, 8, 1, TC_I64), 7);
    for (int causal = 0; causal < 2; causal++) {
        tc_tensor seen = causal ? TC_NONE : mask;
        model.dropout = NULL;
        tc_tensor a = nn_attention(m, q, k, v, seen, causal, 0.5);
        model.dropout = &keys;
        tc_tensor b = nn_attention(m, q, k, v, seen, causal, 1e-9);
        tc_tensor c = nn_attention(m, q, k, v, seen, causal, 0.5);
        CHECK_EQ_INT(tc_read(a, whole, N), TC_OK);
        CHECK_EQ_INT(tc_read(b, kept, N), TC_OK);
        CHECK_EQ_INT(tc_read(c, dropped, N), TC_OK);
        int zeros = 0, differ = 0;
        for (int i = 0; i < N; i++) {
            CHECK_CLOSE(kept[i], whole[i], 1e-5);
            zeros += dropped[i] == 0;
            differ += fabsf(dropped[i] - whole[i]) > 1e-3f;
        }
        CHECK_MSG(differ > N * 3 / 4 && zeros < N / 4, "%d, %d zeros", differ, zeros);
    }
    tc_ctx_free(model.ctx);
}

TEST(a_network_of_random_numbers_learns_with_dropout)
{
    enum { BATCH = 4, LENGTH = 8, WORDS = 12, IDS = BATCH * LENGTH, STEPS = 60 };
    static int64_t ids[IDS], next[IDS];
    nn_model model = {.learns = true,
                      .training = true,
                      .settings = "vocab_size=12 n_embd=16 n_head=2 n_layer=1 n_positions=8"};
    REQUIRE(tc_ctx_make(&model.ctx, NULL) == TC_OK);
    tc_tensor runs = tc_param(model.ctx, NULL, TC_I64);
    tc_keys keys = {tc_fold_in(7, runs), 0};
    model.dropout = &keys;
    for (int i = 0; i < IDS; i++) {
        ids[i] = i * i % WORDS;
        next[i] = (i + 1) * (i + 1) % WORDS;
    }
    tc_tensor x = tc_input(model.ctx, "x", TC_I64, BATCH, LENGTH), y;
    tc_tensor target = tc_input(model.ctx, "y", TC_I64, IDS);
    gpt2(nn_top(&model), &x, &y);
    tc_tensor loss = tc_cross_entropy(tc_reshape(y, IDS, WORDS), target);
    tc_tensor w[32], g[32], outs[TC_EFFECTS(32) + 2] = {loss};
    int n = nn_learning(&model, w), n_effects;
    CHECK_EQ_INT(n, 16);
    CHECK_EQ_INT((int)keys.given, 4);
    CHECK_MSG(tc_grad(loss, w, n, g) == TC_OK, "%s", nn_error(&model));
    REQUIRE(tc_adam(w, g, n, 0.01, NULL, outs + 1, &n_effects) == TC_OK);
    outs[1 + n_effects] = tc_assign(runs, tc_add(runs, 1));
    tc_program *step;
    tc_status status = tc_compile_fn(TC_TENSORS(x, target), TC_TENSORS_N(outs, n_effects + 2), NULL,
                                     &step);
    CHECK_MSG(status == TC_OK, "%s", nn_error(&model));
    float losses[STEPS] = {0};
    for (int i = 0; i < STEPS && status == TC_OK; i++) {
        status = tc_run(step, TC_BUFS(TC_BUF(ids, IDS), TC_BUF(next, IDS)),
                        TC_BUFS(TC_BUF(&losses[i], 1)));
    }
    CHECK_MSG(losses[STEPS - 1] < 0.5f * losses[0], "%g after %g", (double)losses[STEPS - 1],
              (double)losses[0]);
    tc_program_free(step);
    nn_free(&model);
    tc_ctx_free(model.ctx);
}

/* ---- bits ---- */

enum { BITS_STATE = 1024, BITS_IMAGE = 2 * 3 * 32 * 32 };

/* The gradients of a training step, one after the other, of a small network with random weights. */
static float *train(const nn_network *network, const char *settings, const tc_options *options,
                    int64_t *n)
{
    static float image[BITS_IMAGE];
    nn_model model = {.settings = settings,
                      .preset = network->preset,
                      .ignores = true,
                      .learns = true,
                      .training = true};
    tc_tensor x, out[NN_OUTPUTS], of[BITS_STATE], results[BITS_STATE];
    tc_buf bufs[BITS_STATE];
    tc_program *f = NULL;
    tc_status status = tc_ctx_make(&model.ctx, options);
    for (int i = 0; i < BITS_IMAGE; i++) {
        image[i] = (float)((i * 7919) % 1000) / 500 - 1;
    }
    x = tc_input(model.ctx, "x", TC_F32, 2, 3, 32, 32);
    network->build(nn_top(&model), &x, out);
    tc_tensor loss = tc_mean(tc_square(tc_sub(out[0], 0.25)), TC_ALL, false);
    int count = nn_learning(&model, of);
    status = status ? status : tc_grad(loss, of, count, results);
    CHECK(count + model.n_effects <= BITS_STATE);
    memcpy(results + count, model.effects, (size_t)model.n_effects * sizeof(*results));
    *n = 0;
    for (int i = 0; i < count; i++) {
        *n += tc_count(results[i]);
    }
    float *all = (float *)calloc((size_t)*n + 1, sizeof(*all));
    for (int64_t i = 0, at = 0; i < count; at += tc_count(results[i++])) {
        bufs[i] = TC_BUF(all + at, tc_count(results[i]));
    }
    tc_tensors wanted = TC_TENSORS_N(results, count + model.n_effects);
    status = status ? status : tc_compile_fn(TC_TENSORS(x), wanted, NULL, &f);
    status = status ? status
                    : tc_run(f, TC_BUFS(TC_BUF(image, BITS_IMAGE)), TC_BUFS_N(bufs, count));
    CHECK_MSG(status == TC_OK, "%s: %s, %s", network->name, nn_error(&model),
              f ? tc_error(f) : "not compiled");
    tc_program_free(f);
    nn_free(&model);
    tc_ctx_free(model.ctx);
    return all;
}

/* Plans for processors of several kinds run by the interpreter, and one network by native code. */
TEST(gradients_of_networks_have_the_same_bits_everywhere)
{
#define PLANNED(bits) .backend = "cpu", .cc = "no-such-compiler", .vector_bits = (bits)
    static const tc_options ways[] = {
        {.backend = "interp"},
        {.backend = "interp", .fusion = -1},
        {PLANNED(0)},
        {PLANNED(128)},
        {PLANNED(256), .fusion = -1},
        {PLANNED(-1)},
        {PLANNED(0), .matrix = -1},
        {.backend = "cpu"},
        {.backend = "cpu", .vector_bits = 128, .cc = "clang"},
    };
    static const struct {
        const char *name, *settings;
        bool native;
    } nets[] = {
        {"resnet18", "width_divisor=8 classes=10 layers=1,1,1,1", true},
        {"resnet50", "width_divisor=16 classes=10 layers=1,1,1,1", false},
        {"resnext50_32x4d", "width_divisor=16 classes=10 layers=1,1,1,1", false},
        {"mobilenet_v2", "width_mult=0.25 classes=10 dropout=0", false},
        {"mnasnet1_0", "alpha=0.1 classes=10 dropout=0", false},
        {"vit_tiny_patch16_224",
         "img_size=32 patch_size=8 embed_dim=48 depth=1 num_heads=3 "
         "num_classes=10",
         false},
    };
    for (int i = 0; i < (int)(sizeof(nets) / sizeof(*nets)); i++) {
        const nn_network *network = nn_find(nets[i].name);
        float *want = NULL;
        for (int w = 0; w < (int)(sizeof(ways) / sizeof(*ways)); w++) {
            tc_options o = ways[w];
            int64_t n, other = 0;
            tc_ctx *ctx = NULL;
            bool native = w >= 7, there = !tc_ctx_make(&ctx, &o);
            o.no_disk_cache = true;
            if (native && (!nets[i].native || !there ||
                           tc_read(tc_neg(tc_full(ctx, 1, TC_F32)), &(float){0}, 1))) {
                tc_ctx_free(ctx);
                continue; /* or there is no such compiler */
            }
            tc_ctx_free(ctx);
            float *got = train(network, nets[i].settings, &o, &n);
            for (int64_t k = 0; want && k < n; k++) {
                other += memcmp(&got[k], &want[k], sizeof(*got)) != 0;
            }
            CHECK_MSG(other == 0, "%s, way %d: %d of %d gradients have other bits", nets[i].name, w,
                      (int)other, (int)n);
            if (want) {
                free(got);
            }
            want = want ? want : got;
        }
        free(want);
    }
}

TEST_MAIN
