/* 15_async.c - runs that no thread waits for: the host makes the next block while tc works on the
 * one before.
 *
 * tc_run_async gives a run to a queue and returns; its event says when it ended, and how. Until
 * then the buffers are the run's, so there are as many as runs may be under way. On a GPU
 * (TC_BACKEND=cuda, in a build with TC_CUDA) the queue has streams of its own: a block goes up and
 * another comes down while a third is computed, and nothing here changes.
 *
 * Prints the number of blocks and the loudest value, and that one by one gives the same.
 *
 * Build, from the project's root: cc -O2 -I. examples/15_async.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { FRAMES = 1 << 15, BLOCKS = 32, AHEAD = 3 };

typedef struct slot {
    float in[FRAMES], out[FRAMES];
    tc_event *done; /* of the run that has the slot, or NULL */
} slot;
static slot slots[AHEAD];

/* Work of the host: here a sound, block by block. */
static void make_block(float *to, int block)
{
    for (int i = 0; i < FRAMES; i++) {
        double t = (double)(block * FRAMES + i) / 48000;
        to[i] = (float)(sin(440 * t) + 0.3 * sin(1760 * t + 2 * sin(3 * t)));
    }
}

static double use_block(const float *from)
{
    double loudest = 0;
    for (int i = 0; i < FRAMES; i++) {
        loudest = fmax(loudest, fabs(from[i]));
    }
    return loudest;
}

static tc_program *compile(tc_ctx *ctx)
{
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, FRAMES);
    tc_tensor y = tc_tanh(tc_mul(x, 4));
    y = tc_sub(y, tc_mul(tc_exp(tc_neg(tc_square(x))), 0.25));
    CHECK_OK(tc_compile(y, &f), y);
    return f;
}

/* Takes what the slot's last run made, if there was one. */
static double finish(slot *s)
{
    double loudest = 0;
    if (s->done) {
        CHECK_OK(tc_event_wait(s->done), s->done); /* what failed in the run is told here */
        loudest = use_block(s->out);
        tc_event_free(s->done);
        s->done = NULL;
    }
    return loudest;
}

int main(void)
{
    static float in[FRAMES], out[FRAMES];
    tc_ctx *ctx;
    tc_queue *queue;
    double one_by_one = 0, ahead = 0;
    if (tc_ctx_make(&ctx, NULL) || tc_queue_make(&queue)) {
        fprintf(stderr, "no context or no queue\n");
        return 1;
    }
    tc_program *f = compile(ctx);

    for (int b = 0; b < BLOCKS; b++) {
        make_block(in, b);
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, FRAMES)), TC_BUFS(TC_BUF(out, FRAMES))), f);
        one_by_one = fmax(one_by_one, use_block(out));
    }

    for (int b = 0; b < BLOCKS + AHEAD; b++) {
        slot *s = &slots[b % AHEAD];
        ahead = fmax(ahead, finish(s));
        if (b < BLOCKS) {
            make_block(s->in, b);
            CHECK_OK(tc_run_async(f, queue, TC_BUFS(TC_BUF(s->in, FRAMES)),
                                  TC_BUFS(TC_BUF(s->out, FRAMES)), &s->done),
                     f);
        }
    }
    tc_queue_free(queue);
    tc_program_free(f);
    tc_ctx_free(ctx);

    printf("%d blocks of %d frames, %d at once, the loudest %.6f\n", BLOCKS, FRAMES, AHEAD, ahead);
    printf("%s\n", one_by_one == ahead ? "the same as one by one" : "NOT the same as one by one");
    return one_by_one != ahead;
}
