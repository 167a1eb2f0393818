/* 20_voice.c - when a person speaks: a network for voice activity over a recording of any length.
 * Usage: 20_voice [mono 16 kHz 16-bit .wav].
 *
 * Silero's network looks at 32 ms at a time, and at 4 ms before them: a Fourier transform written
 * as a convolution, four convolutions of its magnitudes, an LSTM cell over time, a sigmoid. One
 * program of a symbolic size does it, however many stretches a recording has: what does not look
 * back is computed for all of them at once, and tc_scan takes the LSTM's cell from one to the next.
 *
 * Data: the network's weights (Silero Team, MIT license) and a sentence of "Sense and Sensibility",
 * read for LibriVox (public domain); see data/LICENSE.txt.
 *
 * Prints how long the recording took to process, the stretches of speech in seconds, and the
 * difference from PyTorch.
 *
 * Build, from the project's root: cc -O2 -I. examples/20_voice.c -lm -ldl -lpthread */
#define TC_DYNAMIC_SHAPES
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { RATE = 16000, STRETCH = 512, BEFORE = 64, WIDTH = 128, MOST = 20000 };

/* Percent, of the sentence's stretches, by the same network in PyTorch. */
static const signed char reference[] = {
    3,   3,   2,   2,   2,   2,   1,   5,   87,  99,  100, 99,  99,  100, 100, 100, 100, 100, 100,
    100, 100, 100, 100, 100, 100, 100, 99,  99,  100, 100, 99,  99,  82,  29,  12,  26,  86,  86,
    74,  77,  97,  99,  100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 99,  100, 100, 100,
    100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 99,  100,
    100, 100, 100, 100, 100, 100, 100, 100, 99,  99,  99,  97,  71,  22,  6,   3,   2};

typedef struct weights {
    tc_ctx *ctx;
    tc_file *file;
} weights;

static tc_tensor named(const weights *w, const char *name)
{
    return tc_file_borrow(w->ctx, w->file, name);
}

static tc_tensor conv(const weights *w, tc_tensor x, int i, int64_t stride)
{
    char weight[32], bias[32];
    snprintf(weight, sizeof(weight), "conv%d.weight", i);
    snprintf(bias, sizeof(bias), "conv%d.bias", i);
    return tc_relu(tc_conv1d(x, named(w, weight), named(w, bias),
                             &(tc_conv){.stride = {stride}, .padding = {1}}));
}

/* Samples [n * STRETCH] -> what each stretch adds to the LSTM's gates, [n, 4 * WIDTH]. */
static tc_tensor look(const weights *w, tc_tensor samples)
{
    tc_tensor x = tc_pad(tc_div(tc_cast(samples, TC_F32), 32768), 0, BEFORE, 0, 0);
    x = tc_pad_mode(tc_unfold(x, 0, BEFORE + STRETCH, STRETCH), 1, 0, 64, "reflect");
    x = tc_conv1d(tc_unsqueeze(x, 1), named(w, "stft_conv.weight"), TC_NONE,
                  &(tc_conv){.stride = {128}});
    x = tc_hypot(tc_range(x, 1, 0, 129), tc_range(x, 1, 129, 258));
    x = conv(w, conv(w, conv(w, conv(w, x, 1, 1), 2, 2), 3, 2), 4, 1);
    x = tc_matmul(tc_squeeze(x, 2), tc_transpose(named(w, "lstm_cell.weight_ih"), 0, 1));
    return tc_add(tc_add(x, named(w, "lstm_cell.bias_ih")), named(w, "lstm_cell.bias_hh"));
}

/* state: what is remembered and what is told, [WIDTH]. */
static tc_status cell(void *user, const tc_tensor *state, const tc_tensor *given, tc_tensor *next,
                      tc_tensor *told)
{
    tc_tensor x = tc_add(given[0], tc_matmul(named(user, "lstm_cell.weight_hh"), state[1]));
    tc_tensor gate[4];
    for (int i = 0; i < 4; i++) {
        tc_tensor g = tc_range(x, 0, i * WIDTH, (i + 1) * WIDTH);
        gate[i] = i == 2 ? tc_tanh(g) : tc_sigmoid(g);
    }
    next[0] = tc_add(tc_mul(gate[1], state[0]), tc_mul(gate[0], gate[2]));
    next[1] = told[0] = tc_mul(gate[3], tc_tanh(next[0]));
    return TC_OK;
}

/* Input: samples [n * STRETCH]. Output: the probability of speech in each stretch, [n]. */
static tc_program *compile(weights *w)
{
    int64_t n = TC_DIM("n", 1, MOST);
    tc_tensor samples = tc_input(w->ctx, "samples", TC_I16, tc_dim_mul(n, STRETCH));
    tc_tensor zero = tc_full(w->ctx, 0, TC_F32, WIDTH), told;
    CHECK_OK(tc_scan(TC_TENSORS(zero, zero), TC_TENSORS(look(w, samples)), 0, false, cell, w, NULL,
                     &told, 1),
             w->ctx);
    tc_tensor row = tc_reshape(named(w, "final_conv.weight"), WIDTH);
    tc_tensor p = tc_add(tc_matmul(tc_relu(told), row), named(w, "final_conv.bias"));
    tc_program *f;
    CHECK_OK(tc_compile(tc_sigmoid(p), &f), w->ctx);
    return f;
}

/* The samples of a .wav with a plain header of 44 bytes; how many there are. */
static int64_t read_wav(const char *path, int16_t *samples, int64_t most)
{
    unsigned char header[44];
    FILE *file = fopen(path, "rb");
    if (!file || fread(header, 1, 44, file) != 44 || memcmp(header + 8, "WAVEfmt ", 8) != 0 ||
        header[22] != 1 || header[24] + 256 * header[25] != RATE || header[34] != 16) {
        fprintf(stderr, "%s: no plain .wav of %d Hz, 16 bit, mono\n", path, (int)RATE);
        exit(1);
    }
    int64_t n = (int64_t)fread(samples, 2, (size_t)most, file);
    fclose(file);
    return n;
}

/* Speech begins at a half and ends below 0.35. */
static void print_times(const float *p, int64_t n)
{
    bool speaks = false;
    for (int64_t i = 0; i < n; i++) {
        if (p[i] >= 0.5f && !speaks) {
            printf("  speech from %6.2f s", (double)i * STRETCH / RATE);
            speaks = true;
        } else if (speaks && (p[i] < 0.35f || i == n - 1)) {
            printf(" to %6.2f s\n", (double)i * STRETCH / RATE);
            speaks = false;
        }
    }
}

int main(int argc, char **argv)
{
    static int16_t samples[MOST * STRETCH];
    static float p[MOST];
    const char *path = argc > 1 ? argv[1] : "examples/data/austen.wav";
    int64_t n = read_wav(path, samples, MOST * STRETCH) / STRETCH;
    weights w = {0};
    CHECK_OK(tc_ctx_make(&w.ctx, NULL), w.ctx);
    CHECK_OK(tc_file_open(w.ctx, "examples/data/silero_vad_16k.safetensors", &w.file), w.ctx);
    tc_program *f = compile(&w);
    tc_file_close(w.file);
    double begin = now_us(), worst = 0;
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(samples, n * STRETCH)), TC_BUFS(TC_BUF(p, n))), f);
    double ms = (now_us() - begin) * 1e-3, s = (double)n * STRETCH / RATE;
    printf("%.2f s of sound in %.1f ms, %.0f times as fast as spoken\n", s, ms, s / ms * 1e3);
    print_times(p, n);
    for (size_t i = 0; i < sizeof(reference); i++) {
        worst = fmax(worst, fabs(100 * (double)p[i] - reference[i]));
    }
    tc_program_free(f);
    tc_ctx_free(w.ctx);
    return argc > 1 ? 0 : report_check(worst, 0.6, "difference from PyTorch's percent");
}
