/* api/specialization_trial.c - A/B timing of two programs of a tc_jit (api/specialization_trial.h).
 *
 * In: two programs of the same function, the inputs of a call. Out: the speedup of the second. Both
 * run in turns within one call on the same memory, and the best round of each counts, so a change
 * of machine load or of inputs affects both. A trial costs about eight runs of each, or at least
 * two if they are long. */
#include "specialization_trial.h"

#ifdef TC_DYNAMIC_SHAPES

#include "../base/alloc.h"
#include "internal.h"

enum {
    TCI_HOT_TRIAL_ROUNDS = 7,
    TCI_HOT_TRIAL_LEAST = 2,          /* rounds, however long they take */
    TCI_HOT_TRIAL_MOST_NS = 20000000, /* after which no further round begins */
    TCI_HOT_TRIAL_SAMPLE_NS = 20000,  /* a round should take so long: several runs, */
    TCI_HOT_TRIAL_RUNS = 64           /* at most */
};

TCI_FN bool tci_hot_trial_allows(const tc_program *f)
{
    return !f->n_effects && !f->collectives;
}

/* Dense outputs of the fixed program in one block, which the caller frees. NULL: no memory. */
static void *tci_hot_trial_outputs(const tc_program *fixed, tc_buf *outputs)
{
    int64_t bytes = 64;
    for (int i = 0; i < fixed->n_outputs; i++) {
        const tci_code_port *p = &fixed->code->outputs[i];
        outputs[i] = (tc_buf){.n = 1, .dtype = p->dtype};
        for (int a = 0; a < p->rank; a++) {
            outputs[i].n *= tci_dim_known(p->shape[a]);
        }
        bytes += outputs[i].n * tci_dtype_get((tc_dtype)p->dtype)->bytes + 63;
    }
    char *memory = tci_heap_get_aligned((size_t)bytes), *at = memory;
    for (int i = 0; i < fixed->n_outputs && memory; i++) {
        outputs[i].data = at;
        at += (outputs[i].n * tci_dtype_get((tc_dtype)outputs[i].dtype)->bytes + 63) & -64;
    }
    return memory;
}

/* Nanoseconds of `runs` runs; -1: one failed. */
static int64_t tci_hot_trial_round(tc_call *call, tc_bufs inputs, tc_bufs outputs, int runs)
{
    int64_t begin = tci_os_now_ns();
    for (int i = 0; i < runs; i++) {
        if (tci_run_through(call, inputs, outputs)) {
            return -1;
        }
    }
    return tci_os_now_ns() - begin;
}

static bool tci_hot_trial_rounds(tc_call *const calls[2], tc_bufs inputs, tc_bufs outputs,
                                 int64_t best[2])
{
    int64_t begin = tci_os_now_ns();
    int runs[2] = {1, 1};
    for (int round = -1; round < TCI_HOT_TRIAL_ROUNDS; round++) { /* -1: instances, kept values */
        for (int i = 0; i < 2; i++) {
            int64_t ns = tci_hot_trial_round(calls[i], inputs, outputs, runs[i]);
            if (ns < 0) {
                return false;
            }
            ns /= runs[i];
            best[i] = round <= 0 || ns < best[i] ? ns : best[i];
            if (round == 0) {
                runs[i] = (int)TCI_MIN(TCI_HOT_TRIAL_SAMPLE_NS / (ns + 1) + 1, TCI_HOT_TRIAL_RUNS);
            }
        }
        if (round + 1 >= TCI_HOT_TRIAL_LEAST && tci_os_now_ns() - begin > TCI_HOT_TRIAL_MOST_NS) {
            break;
        }
    }
    return true;
}

TCI_FN bool tci_hot_trial(tc_program *symbolic, tc_program *fixed, const tc_bufs *inputs,
                          double *speed)
{
    tc_program *programs[2] = {symbolic, fixed};
    tc_call *calls[2] = {NULL, NULL};
    int64_t best[2] = {0, 0};
    size_t n = (size_t)TCI_MAX(fixed->n_outputs, 1);
    tc_buf *outputs = tci_heap_get(n * sizeof(*outputs));
    void *memory = outputs ? tci_hot_trial_outputs(fixed, outputs) : NULL;
    for (int i = 0; i < 2 && memory; i++) {
        calls[i] = tci_call_take(programs[i]);
    }
    tc_bufs outs = {outputs, fixed->n_outputs};
    bool ran = calls[0] && calls[1] && tci_hot_trial_rounds(calls, *inputs, outs, best);
    for (int i = 0; i < 2; i++) {
        if (calls[i]) {
            tci_call_give(programs[i], calls[i]);
        }
    }
    tci_heap_free_aligned(memory);
    tci_heap_free(outputs);
    *speed = (double)best[0] / (double)TCI_MAX(best[1], 1);
    return ran;
}

#endif
