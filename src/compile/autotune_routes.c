/* compile/autotune_routes.c - autotuning of contraction routes (alternative algorithms, such as
 * im2col GEMM, Winograd, split-K): plans the program once with each route of the same association
 * class, measures the kernels that differ, keeps the fastest plan.
 *
 * In: a plan with the model's choices, and a function that plans the same program with other ones.
 * Out: that plan, or one with the routes that took less time. Design: two plans differ in
 * some kernels, and the time of a route is that of the kernels that only its plan runs, so
 * epilogues, copies and the init section (which takes no time of a run) count as they will in the
 * program. All these kernels are one source (compile/autotune.c). Routes of one class give the same
 * bits, so only times are compared.
 *
 * The record: times are kept in memory and on disk under a hash of the kernels that were compared
 * and of the target, so another program with the same contraction measures nothing. A hash
 * collision can only cost time; results stay correct. Invariants: the model's choice stays where a
 * kernel of the comparison cannot run by itself, or no other route is faster by tci_tune_better. */
#include <string.h>

#include "../debug/log.h"
#include "../loop/schedule.h"
#include "autotune.h"
#include "backend_registry.h"

enum {
    TCI_ROUTES_CONTESTS = 4, /* contractions of a program that are measured, */
    TCI_ROUTES_OPTIONS = 3,  /* and other routes of each, at most */
    TCI_ROUTES_RECORDS = 64  /* contests that the process remembers */
};

/* Nanoseconds of one other route and of the model's choice, each of the kernels that the other one
 * has not. */
typedef struct tci_routes_times {
    double before, after;
} tci_routes_times;

typedef struct tci_routes_kernel {
    const tci_kernel *kernel;
    tci_str text;
    tci_hash hash;
    int trial; /* of the tuning; -1: none yet */
} tci_routes_kernel;

/* Number of additional runs of a kernel under another route; negative: fewer runs. */
typedef struct tci_routes_change {
    int kernel;
    int64_t times;
} tci_routes_change;

typedef struct tci_routes_option {
    const char *route;
    tci_routes_change *changes;
    int n, cap;
    tci_routes_times times;
} tci_routes_option;

typedef struct tci_routes_contest {
    const tci_plan_contest *of;
    tci_routes_option options[TCI_ROUTES_OPTIONS];
    int n;
    tci_hash key;
    bool is_known; /* the record has its times */
} tci_routes_contest;

typedef struct tci_routes_tuner {
    tci_jit *j;
    const tci_plan *base;
    const tci_tune_planner *planner;
    tci_tuning *tuning;
    tci_routes_kernel *kernels; /* of all plans, each once */
    int n, cap;
    tci_routes_contest contests[TCI_ROUTES_CONTESTS];
    int n_contests;
} tci_routes_tuner;

/* ---- how plans differ ---- */

static int tci_routes_kernel_of(tci_routes_tuner *r, const tci_kernel *k)
{
    tci_routes_kernel item = {.kernel = k, .text = {.s = r->j->s}, .trial = -1};
    tci_kernel_print(&item.text, k);
    item.hash = tci_hash_bytes(item.text.text, item.text.n);
    for (int i = 0; i < r->n; i++) {
        const tci_routes_kernel *have = &r->kernels[i];
        if (have->hash.lo == item.hash.lo && have->text.n == item.text.n &&
            !memcmp(have->text.text, item.text.text, item.text.n)) {
            return i;
        }
    }
    TCI_PUSH(r->j->s, r->kernels, r->n, r->cap, item);
    return r->n - 1;
}

static void tci_routes_add(tci_routes_tuner *r, tci_routes_option *o, const tci_kernel *k,
                           int64_t times)
{
    tci_routes_change change = {tci_routes_kernel_of(r, k), times};
    for (int i = 0; i < o->n; i++) {
        if (o->changes[i].kernel == change.kernel) {
            o->changes[i].times += times;
            return;
        }
    }
    TCI_PUSH(r->j->s, o->changes, o->n, o->cap, change);
}

/* Adds what each run of plan p computes, `sign` times; of a joint each member by itself, so that
 * what shares its launch does not matter. */
static void tci_routes_count(tci_routes_tuner *r, const tci_plan *p, int sign, tci_routes_option *o)
{
    int64_t *times = TCI_NEW_ARRAY(r->j->s, int64_t, p->n_kernels + 1);
    for (int t = p->n_init; t < p->n_steps; t++) {
        times[p->steps[t].kernel] += sign * tci_plan_rounds(p, t);
    }
    for (int i = 0; i < p->n_kernels; i++) {
        const tci_kernel *k = p->kernels[i];
        bool joint = k->n_members > 0 && !k->loop;
        for (int m = 0; m < (joint ? k->n_members : 1) && times[i] != 0; m++) {
            tci_routes_add(r, o, joint ? k->members[m] : k, times[i]);
        }
    }
}

/* Kernels that run as often go. False: nothing is left, or a kernel that cannot be measured. */
static bool tci_routes_can_compare(const tci_routes_tuner *r, tci_routes_option *o)
{
    int n = 0;
    bool can = true;
    for (int i = 0; i < o->n; i++) {
        if (o->changes[i].times != 0) {
            o->changes[n++] = o->changes[i];
            can = can && tci_tune_can_run(r->kernels[o->changes[i].kernel].kernel);
        }
    }
    o->n = n;
    return can && n > 0;
}

/* Plans the program with another route of contest c. */
static void tci_routes_try(tci_routes_tuner *r, tci_routes_contest *c, const char *route)
{
    tci_routes_option *o = &c->options[c->n];
    const char *line = tci_scratch_printf(r->j->s, "%s: %s\n", c->of->name, route);
    *o = (tci_routes_option){.route = route};
    tci_routes_count(r, r->base, -1, o);
    tci_routes_count(r, r->planner->plan(r->planner->arg, line), 1, o);
    c->n += tci_routes_can_compare(r, o);
}

/* ---- the record ---- */

typedef struct tci_routes_record {
    tci_hash key;
    tci_routes_times times[TCI_ROUTES_OPTIONS];
} tci_routes_record;

static struct {
    tci_mutex lock;
    tci_routes_record rows[TCI_ROUTES_RECORDS]; /* the last ones, in turn */
    uint32_t n;
} tci_routes_known = {.lock = TCI_MUTEX_INIT};

static tci_hash tci_routes_key(const tci_routes_tuner *r, const tci_routes_contest *c)
{
    const tci_backend *b = r->j->backend;
    tci_str text = {.s = r->j->s};
    tci_str_printf(&text, "routes\n%s\n%s\n%s\n%s\n%s: %s\n", b->name, b->target.features,
                   TCI_BUILD_FORM, b->target.record, c->of->name, c->of->routes[0]);
    for (int i = 0; i < c->n; i++) {
        tci_str_printf(&text, "%s\n", c->options[i].route);
        for (int k = 0; k < c->options[i].n; k++) {
            const tci_routes_change *change = &c->options[i].changes[k];
            const tci_str *kernel = &r->kernels[change->kernel].text;
            tci_str_printf(&text, "%lld\n", (long long)change->times);
            tci_str_add_n(&text, kernel->text, kernel->n);
        }
    }
    return tci_hash_bytes(text.text, text.n);
}

static bool tci_routes_find_in_memory(tci_routes_record *found)
{
    bool has = false;
    tci_os_keep_over_fork(&tci_routes_known.lock, NULL);
    pthread_mutex_lock(&tci_routes_known.lock);
    for (int i = 0; i < TCI_ROUTES_RECORDS && !has; i++) {
        const tci_routes_record *row = &tci_routes_known.rows[i];
        has = row->key.lo == found->key.lo && row->key.hi == found->key.hi;
        *found = has ? *row : *found;
    }
    pthread_mutex_unlock(&tci_routes_known.lock);
    return has;
}

static void tci_routes_keep_in_memory(const tci_jit *j, const tci_routes_record *row)
{
    if (j->options->memory_cache_bytes >= 0) {
        pthread_mutex_lock(&tci_routes_known.lock);
        tci_routes_known.rows[tci_routes_known.n++ % TCI_ROUTES_RECORDS] = *row;
        pthread_mutex_unlock(&tci_routes_known.lock);
    }
}

static bool tci_routes_find_on_disk(const tci_jit *j, tci_routes_record *found)
{
    tci_str file = {0};
    const void *bytes = NULL;
    bool has = tci_disk_load_blob(j->disk, found->key, &file, &bytes) == sizeof(found->times);
    if (has) {
        memcpy(found->times, bytes, sizeof(found->times));
    }
    for (int i = 0; i < TCI_ROUTES_OPTIONS && has; i++) { /* as no broken file would have them */
        has = found->times[i].before >= 0 && found->times[i].after >= 0;
    }
    tci_str_free(&file);
    return has;
}

/* Takes the times of a contest out of the record. */
static void tci_routes_recall(tci_routes_tuner *r, tci_routes_contest *c)
{
    tci_routes_record found = {.key = tci_routes_key(r, c)};
    c->key = found.key;
    c->is_known = tci_routes_find_in_memory(&found);
    if (!c->is_known && tci_routes_find_on_disk(r->j, &found)) {
        c->is_known = true;
        tci_routes_keep_in_memory(r->j, &found);
    }
    for (int i = 0; i < c->n && c->is_known; i++) {
        c->options[i].times = found.times[i];
    }
}

static void tci_routes_keep(const tci_routes_tuner *r, const tci_routes_contest *c)
{
    tci_routes_record row;
    memset(&row, 0, sizeof(row));
    row.key = c->key;
    for (int i = 0; i < c->n; i++) {
        row.times[i] = c->options[i].times;
    }
    tci_routes_keep_in_memory(r->j, &row);
    tci_disk_store_blob(r->j->disk, row.key, row.times, sizeof(row.times));
}

/* ---- measuring ---- */

/* The kernels of a contest's options as trials, by the schedules of the model. False: there are too
 * many. */
static bool tci_routes_add_trials(tci_routes_tuner *r, const tci_routes_contest *c)
{
    tci_machine machine = tci_jit_machine(r->j);
    for (int i = 0; i < c->n; i++) {
        for (int k = 0; k < c->options[i].n; k++) {
            tci_routes_kernel *kernel = &r->kernels[c->options[i].changes[k].kernel];
            if (kernel->trial >= 0) {
                continue;
            }
            if (r->tuning->n == TCI_TUNE_TRIALS) {
                return false;
            }
            kernel->trial = r->tuning->n;
            tci_trial *trial = tci_tune_trial(r->tuning, kernel->kernel);
            trial->loop = tci_loop_schedule(r->j->s, kernel->kernel, machine, &trial->launch);
            trial->cost_ns = trial->launch.task_ns * (double)tci_dim_hint(trial->launch.n_tasks);
        }
    }
    return true;
}

/* Sums up what each option takes; false: a kernel did not run. */
static bool tci_routes_sum(const tci_routes_tuner *r, tci_routes_contest *c)
{
    for (int i = 0; i < c->n; i++) {
        tci_routes_option *o = &c->options[i];
        o->times = (tci_routes_times){0, 0};
        for (int k = 0; k < o->n; k++) {
            int trial = r->kernels[o->changes[k].kernel].trial;
            double ns = trial < 0 ? 0 : r->tuning->trials[trial].best_ns;
            if (ns == 0) {
                return false;
            }
            double all = ns * (double)o->changes[k].times;
            o->times.before -= all < 0 ? all : 0;
            o->times.after += all > 0 ? all : 0;
        }
    }
    return true;
}

static void tci_routes_measure(tci_routes_tuner *r)
{
    for (int i = 0; i < r->n_contests; i++) {
        tci_routes_contest *c = &r->contests[i];
        c->n = c->is_known || tci_routes_add_trials(r, c) ? c->n : 0;
    }
    if (r->tuning->n > 0) {
        tci_tune_run_all(r->tuning);
    }
    for (int i = 0; i < r->n_contests; i++) {
        tci_routes_contest *c = &r->contests[i];
        if (c->n > 0 && !c->is_known && tci_routes_sum(r, c)) {
            c->is_known = true;
            tci_routes_keep(r, c);
        }
    }
}

/* ---- the whole ---- */

/* Measures the contests of the plan, the most expensive first, while there is time. */
static void tci_routes_find(tci_routes_tuner *r)
{
    const tci_plan_contests *all = &r->base->contests;
    bool *taken = TCI_NEW_ARRAY(r->j->s, bool, all->n + 1);
    while (r->n_contests < TCI_ROUTES_CONTESTS) {
        int best = -1;
        for (int i = 0; i < all->n; i++) {
            bool costlier = best < 0 || all->items[i].cost_ns > all->items[best].cost_ns;
            best = !taken[i] && costlier ? i : best;
        }
        if (best < 0) {
            return;
        }
        taken[best] = true;
        tci_routes_contest *c = &r->contests[r->n_contests];
        *c = (tci_routes_contest){.of = &all->items[best]};
        for (int i = 1; i < c->of->n && c->n < TCI_ROUTES_OPTIONS; i++) {
            if (tci_tune_left_ms(r->tuning) < TCI_TUNE_LEAST_MS) {
                break;
            }
            tci_routes_try(r, c, c->of->routes[i]);
        }
        if (c->n > 0) {
            tci_routes_recall(r, c);
            r->n_contests++;
        }
    }
}

/* The option that gains most, -1: the model's choice is as fast. */
static int tci_routes_winner(const tci_routes_contest *c)
{
    int best = -1;
    double most = 0;
    for (int i = 0; i < c->n; i++) {
        double gain = c->options[i].times.before - c->options[i].times.after;
        bool faster = c->options[i].times.after < tci_tune_better * c->options[i].times.before;
        best = faster && gain > most ? i : best;
        most = best == i ? gain : most;
    }
    return best;
}

/* The line of a contest in the form of a file of forced routes; its remark is for tc_explain. */
static void tci_routes_tell(tci_str *lines, const tci_routes_contest *c)
{
    int best = tci_routes_winner(c);
    tci_str_printf(lines, "%s: %s # measured %.3f us by %s (the model's choice)", c->of->name,
                   best < 0 ? c->of->routes[0] : c->options[best].route,
                   c->options[best < 0 ? 0 : best].times.before * 1e-3, c->of->routes[0]);
    for (int i = 0; i < c->n; i++) {
        tci_str_printf(lines, ", %.3f us by %s", c->options[i].times.after * 1e-3,
                       c->options[i].route);
    }
    tci_str_add(lines, "\n");
}

TCI_FN tci_plan *tci_tune_routes(tci_jit *j, tci_plan *p, const tci_tune_planner *planner)
{
    int64_t from = tci_os_now_ns(), ms = j->options->tune_ms / 2 - j->tuned_ns / 1000000;
    tci_str ignored = {.s = j->s}, lines = {.s = j->s};
    if (p->contests.n == 0 || ms < TCI_TUNE_LEAST_MS || tci_foreign_refuses(j->backend->calls) ||
        tci_jit_find_compiler(j, &ignored) != TC_OK) {
        return p;
    }
    tci_routes_tuner *r = TCI_NEW(j->s, tci_routes_tuner);
    r->j = j;
    r->base = p;
    r->planner = planner;
    r->tuning = tci_tune_begin(j, from + ms * 1000000);
    tci_routes_find(r);
    tci_routes_measure(r);
    int n = 0;
    for (int i = 0; i < r->n_contests; i++) {
        if (r->contests[i].n > 0 && r->contests[i].is_known) {
            tci_routes_tell(&lines, &r->contests[i]);
            n++;
        }
    }
    j->tuned_ns += tci_os_now_ns() - from;
    tci_log(j->options, "compile", "the routes of %d contractions are measured, %d kernels anew", n,
            r->tuning->n);
    return n > 0 ? planner->plan(planner->arg, tci_str_text(&lines)) : p;
}
