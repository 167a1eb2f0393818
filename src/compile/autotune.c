/* compile/autotune.c - autotuning: measures candidate schedules of a kernel, and individual kernels
 * (for the selection of contraction routes).
 *
 * In: the kernels that are about to be compiled. Out: for those that could be measured, the fastest
 * of the schedules that the cost model ranks highest.
 *
 * Design: one source file has all candidates of the most expensive kernels, so they cost one run of
 * the compiler. Each candidate runs on memory allocated for it, in turns with the other candidates
 * of its kernel, and its best time counts. All candidates compute the same bits, so only times are
 * compared.
 *
 * The clock is checked before every step that takes time: the compiler gets the remaining time as
 * its limit, and no run is started that is not expected to end in time. The choice becomes part of
 * the kernel's code, in memory and on disk, under a key that contains it. */
#include "autotune.h"

#include <string.h>

#include "../debug/log.h"
#include "../loop/schedule_kind.h"
#include "backend_registry.h"

enum {
    TCI_TUNE_ROUNDS = 15,
    TCI_TUNE_CALLS = 1000,      /* of a round, at most, */
    TCI_TUNE_SAMPLE_NS = 50000, /* which should take so long */
    TCI_TUNE_WALL = 5,          /* a compiler may take this many times its limit by the clock */
    TCI_TUNE_OBJECT_MOST = 1 << 28
};
static const int64_t tci_tune_bytes = (int64_t)1 << 29; /* of a kernel's memory, at most */

TCI_FN int64_t tci_tune_left_ms(const tci_tuning *t)
{
    return (t->deadline - tci_os_now_ns()) / 1000000;
}

/* ---- what is tried ---- */

static int64_t tci_tune_operand_bytes(const tci_koperand *o)
{
    return TCI_MAX(tci_dim_hint(o->n), 1) * tci_dtype_get((tc_dtype)o->dtype)->bytes;
}

TCI_FN bool tci_tune_can_run(const tci_kernel *k)
{
    int64_t bytes = 0;
    if (k->call || k->loop || tci_kernel_earlier(k)) {
        return false;
    }
    for (int i = 0; i < k->n_axes; i++) {
        if (!tci_dim_is_known(k->axes[i].size)) {
            return false;
        }
    }
    for (int o = 0; o < k->n_operands; o++) {
        if (!tci_dim_le(k->operands[o].n, tci_tune_bytes)) {
            return false;
        }
        bytes += tci_tune_operand_bytes(&k->operands[o]);
    }
    return bytes <= tci_tune_bytes;
}

TCI_FN tci_trial *tci_tune_trial(tci_tuning *t, const tci_kernel *k)
{
    tci_trial *trial = &t->trials[t->n];
    memset(trial, 0, sizeof(*trial));
    trial->kernel = k;
    trial->symbol = tci_scratch_printf(t->j->s, "tc_trial_%d", t->n);
    t->n++;
    return trial;
}

static void tci_tune_add(tci_tuning *t, tci_jit_kernel *k, const tci_query *a)
{
    tci_sched list[TCI_TUNE_EACH];
    int n = tci_sched_candidates(a, list, TCI_TUNE_EACH);
    for (int i = 0; i < n && n > 1; i++) {
        tci_trial *trial = tci_tune_trial(t, k->kernel);
        tci_str text = {.s = t->j->s};
        trial->unit = k;
        trial->cost_ns = list[i].cost_ns;
        trial->loop = tci_sched_build(a, &list[i], &trial->launch);
        tci_sched_print(&text, &list[i]);
        trial->text = tci_str_text(&text);
    }
}

/* The costliest kernels that are compiled anew and are free to choose. */
static void tci_tune_choose(tci_tuning *t)
{
    tci_jit *j = t->j;
    tci_machine machine = tci_jit_machine(j);
    bool *taken = TCI_NEW_ARRAY(j->s, bool, j->n_kernels);
    for (int round = 0; round < TCI_TUNE_KERNELS; round++) {
        int best = -1;
        for (int i = 0; i < j->n_kernels; i++) {
            const tci_jit_kernel *k = &j->kernels[i];
            bool open = !taken[i] && !k->is_found && !k->forced && !k->kernel->n_members &&
                        tci_tune_can_run(k->kernel);
            bool costlier = best < 0 ||
                            k->kernel->bytes + k->kernel->flops / 8 >
                                j->kernels[best].kernel->bytes + j->kernels[best].kernel->flops / 8;
            best = open && costlier ? i : best;
        }
        if (best < 0) {
            return;
        }
        taken[best] = true;
        tci_tune_add(t, &j->kernels[best], tci_query_make(j->s, j->kernels[best].kernel, machine));
    }
}

static void tci_tune_prepare(tci_tuning *t)
{
    tci_jit *j = t->j;
    int operands = 0, literals = 0;
    tci_str body = {.s = j->s};
    tci_dialect *d = tci_jit_dialect(j);
    for (int i = 0; i < t->n; i++) {
        const tci_kernel *k = t->trials[i].kernel;
        operands = TCI_MAX(operands, k->n_operands);
        literals = TCI_MAX(literals, k->n_literals);
        tci_emit_kernel(&body, d, k, t->trials[i].loop, t->trials[i].symbol);
    }
    t->source.s = j->s;
    d->prelude(d, &t->source);
    tci_str_add_n(&t->source, body.text, body.n);
    tci_dialect_finish(d, &t->source);
    t->slots = TCI_NEW_ARRAY(j->s, void *, operands + 1);
    t->literals = TCI_NEW_ARRAY(j->s, int64_t, literals + 1);
}

/* ---- compiling; from here on nothing may longjmp ---- */

static void tci_tune_ignore(void *arg, const char *text)
{
    (void)arg, (void)text;
}

static bool tci_tune_compile(tci_tuning *t)
{
    tci_jit *j = t->j;
    const tc_backend *calls = j->backend->calls;
    int64_t left = tci_tune_left_ms(t);
    tci_str why = {0};
    char told[256] = "";
    int code = 0;
    if (left < TCI_TUNE_LEAST_MS || !tci_workdir_make(&t->dir, NULL, false, &why)) {
        tci_str_free(&why);
        return false;
    }
    tci_str_free(&why);
    tci_str_printf(&t->output, "%s/tc_trial.so", t->dir.dir.path.text);
    if (t->output.failed) {
        return false;
    }
    const char *source = t->source.text, *output = t->output.text;
    tc_build build;
    memset(&build, 0, sizeof(build));
    build.n = 1;
    build.sources = &source;
    build.outputs = &output;
    build.directory = t->dir.dir.path.text;
    build.features = j->backend->target.features;
    build.compiler = j->compiler.path;
    build.timeout_ms = (int)TCI_MIN(left / TCI_TUNE_WALL, INT32_MAX / 2);
    build.say = tci_tune_ignore;
    tc_status status = calls->compile(calls->user, &build);
    __atomic_add_fetch(&tci_counters_get()->compiler_runs, build.processes, __ATOMIC_RELAXED);
    if (status != TC_OK ||
        !tci_dir_read(&t->dir.dir, "tc_trial.so", TCI_TUNE_OBJECT_MOST, &t->object, &code)) {
        return false;
    }
    t->module = tci_module_load(calls, output, &t->object,
                                tci_hash_bytes(t->object.text, t->object.n), told);
    for (int i = 0; i < t->n && t->module; i++) {
        tci_trial *trial = &t->trials[i];
        trial->function = calls->module_find(calls->user, t->module->handle, trial->symbol);
    }
    return t->module != NULL;
}

/* ---- running ---- */

static void *tci_tune_get(const tc_backend *calls, int64_t bytes)
{
    void *host = tci_heap_get_aligned((size_t)bytes);
    if (host) {
        memset(host, 0, (size_t)bytes); /* real pages; 0 is a value of every dtype, and an index */
    }
    if (!calls->alloc || !host) {
        return host;
    }
    void *device = calls->alloc(calls->user, bytes);
    if (device && calls->upload(calls->user, device, host, bytes) != TC_OK) {
        calls->free(calls->user, device);
        device = NULL;
    }
    tci_heap_free_aligned(host);
    return device;
}

static void tci_tune_drop(const tc_backend *calls, void *memory)
{
    if (memory && calls->alloc) {
        calls->free(calls->user, memory);
    } else {
        tci_heap_free_aligned(memory);
    }
}

/* So many runs of all tasks; the time of one, 0: they failed. */
static double tci_tune_run(tci_tuning *t, const tci_trial *trial, void *work, int calls_of)
{
    const tc_backend *calls = t->j->backend->calls;
    const tci_kernel *k = trial->kernel;
    int64_t fault = 0, from = tci_os_now_ns();
    t->slots[k->n_operands] = work;
    if (!calls->launch) {
        union {
            void *object;
            tci_kernel_fn call;
        } u = {trial->function};
        for (int i = 0; i < calls_of; i++) {
            u.call(t->slots, t->literals, &fault, 0, tci_dim_hint(trial->launch.n_tasks));
        }
        return (double)TCI_MAX(tci_os_now_ns() - from, 1) / calls_of;
    }
    tc_launch launch = {.function = trial->function,
                        .buffers = t->slots,
                        .literals = t->literals,
                        .fault = k->faults ? &fault : NULL,
                        .n_buffers = k->n_operands,
                        .n_literals = k->n_literals,
                        .task_end = tci_dim_hint(trial->launch.n_tasks)};
    bool ran = true;
    for (int i = 0; i < calls_of; i++) {
        ran = ran && calls->launch(calls->user, &launch) == TC_OK;
    }
    ran = calls->sync(calls->user) == TC_OK && ran;
    return ran ? (double)TCI_MAX(tci_os_now_ns() - from, 1) / calls_of : 0;
}

/* The candidates [first, end) of one kernel in turns, until `until`. */
static void tci_tune_measure(tci_tuning *t, int first, int end, int64_t until)
{
    const tc_backend *calls = t->j->backend->calls;
    const tci_kernel *k = t->trials[first].kernel;
    int64_t work_bytes = 0;
    int n_calls = 1;
    bool whole = true;
    for (int i = first; i < end; i++) {
        work_bytes = TCI_MAX(work_bytes, tci_dim_hint(t->trials[i].launch.work_bytes));
        whole = whole && t->trials[i].function && t->trials[i].launch.n_dims == 0;
    }
    void *work = work_bytes > 0 ? tci_tune_get(calls, work_bytes) : NULL;
    whole = whole && (work || work_bytes == 0);
    for (int o = 0; o < k->n_operands; o++) {
        t->slots[o] = tci_tune_get(calls, tci_tune_operand_bytes(&k->operands[o]));
        whole = whole && t->slots[o];
    }
    for (int round = 0; round < TCI_TUNE_ROUNDS && whole; round++) {
        for (int i = first; i < end && whole; i++) {
            tci_trial *trial = &t->trials[i];
            double next = round > 0 ? trial->best_ns : trial->cost_ns;
            whole = (double)(until - tci_os_now_ns()) > next * n_calls;
            double ns = whole ? tci_tune_run(t, trial, work, n_calls) : 0;
            bool better = ns > 0 && (round <= 1 || ns < trial->best_ns); /* the first warms up */
            trial->best_ns = better ? ns : trial->best_ns;
        }
        if (round == 0 && t->trials[first].best_ns > 0) {
            double many = TCI_TUNE_SAMPLE_NS / t->trials[first].best_ns;
            n_calls = many < 1 ? 1 : (int)TCI_MIN(many, TCI_TUNE_CALLS);
        }
    }
    for (int o = 0; o < k->n_operands; o++) {
        tci_tune_drop(calls, t->slots[o]);
    }
    tci_tune_drop(calls, work);
}

/* ---- the whole ---- */

static int tci_tune_end_of(const tci_tuning *t, int first)
{
    int end = first;
    while (end < t->n && t->trials[end].kernel == t->trials[first].kernel) {
        end++;
    }
    return end;
}

static void tci_tune_measure_all(tci_tuning *t)
{
    int left = 0;
    for (int i = 0; i < t->n; i = tci_tune_end_of(t, i)) {
        left++;
    }
    for (int i = 0; i < t->n; i = tci_tune_end_of(t, i), left--) {
        int64_t now = tci_os_now_ns();
        tci_tune_measure(t, i, tci_tune_end_of(t, i), now + (t->deadline - now) / left);
    }
}

static void tci_tune_free(tci_tuning *t)
{
    if (t->module) {
        tci_module_release(t->module);
    }
    if (t->dir.dir.fd >= 0) {
        tci_workdir_end(&t->dir, false);
    }
    tci_str_free(&t->object);
    tci_str_free(&t->output);
}

TCI_FN tci_tuning *tci_tune_begin(tci_jit *j, int64_t deadline)
{
    tci_tuning *t = TCI_NEW(j->s, tci_tuning);
    t->j = j;
    t->deadline = deadline;
    t->dir.dir.fd = t->dir.base.fd = -1;
    return t;
}

TCI_FN void tci_tune_run_all(tci_tuning *t)
{
    tci_tune_prepare(t);
    if (tci_tune_compile(t)) {
        tci_tune_measure_all(t);
    }
    tci_tune_free(t);
}

/* Where every candidate ran, the fastest; the model's where none is clearly faster. */
static void tci_tune_decide(tci_tuning *t, int first, int end)
{
    int best = first;
    for (int i = first; i < end; i++) {
        if (t->trials[i].best_ns == 0) {
            return;
        }
        best = t->trials[i].best_ns < t->trials[best].best_ns ? i : best;
    }
    double model = t->trials[first].best_ns, least = t->trials[best].best_ns;
    tci_jit_kernel *k = t->trials[first].unit;
    k->measured = t->trials[least < tci_tune_better * model ? best : first].text;
    k->measured_note = tci_scratch_printf(
        t->j->s, "; measured %.3f us, the model's choice %.3f us (%s), of %d", least * 1e-3,
        model * 1e-3, t->trials[first].text, end - first);
}

TCI_FN void tci_tune(tci_jit *j)
{
    bool runs = !tci_foreign_refuses(j->backend->calls);
    if (j->options->tune_ms <= 0 || !j->n_missing || !runs) {
        return;
    }
    int64_t budget = (int64_t)j->options->tune_ms * 1000000 - j->tuned_ns;
    tci_tuning *t = tci_tune_begin(j, tci_os_now_ns() + budget);
    tci_tune_choose(t);
    if (t->n == 0) {
        return;
    }
    tci_tune_run_all(t);
    for (int i = 0; i < t->n; i = tci_tune_end_of(t, i)) {
        tci_tune_decide(t, i, tci_tune_end_of(t, i));
    }
    tci_log(j->options, "compile", "%d schedules were measured, %lld ms of %d left", t->n,
            (long long)tci_tune_left_ms(t), j->options->tune_ms);
}
