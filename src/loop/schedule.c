/* loop/schedule.c - selects the cheapest schedule of a kernel by the cost model, and builds its
 * loop nest.
 *
 * In: a kernel and a machine, or a schedule's text. Out: the loop IR and the data that a run needs
 * (tci_launch). Design: a schedule is a plain value: a kind and its parameters
 * (loop/schedule_kind.h). Each kind that fits lists its candidate parameters, and the cheapest
 * under the cost model is built; of equals the first in the order of kinds and candidates. All that
 * fit give the same bits, so one can be forced, stored or measured instead.
 *
 * The text of a schedule is the name of its kind and NAME=NUMBER for each parameter, in any
 * order. */
#include <stdio.h>
#include <string.h>

#include "gpu_schedules.h"
#include "cycle_estimate.h"

/* ---- forms ---- */

static const tci_form *tci_sched_form(int i)
{
    const tci_form *const *lists[] = {tci_map_forms(), tci_block_forms(), tci_tile_forms(),
                                      tci_b2b_forms(), tci_rows_forms(),  tci_mma_forms()};
    for (int list = 0; list < TCI_COUNT(lists); list++) {
        for (int at = 0; lists[list][at]; at++, i--) {
            if (i == 0) {
                return lists[list][at];
            }
        }
    }
    return NULL;
}

static int tci_sched_numbers(const tci_form *form)
{
    int n = 0;
    while (n < TCI_FORM_NUMBERS && form->numbers[n]) {
        n++;
    }
    return n;
}

/* ---- candidates ---- */

static bool tci_sched_is_same(const tci_sched *x, const tci_sched *y)
{
    bool same = x->form == y->form;
    for (int i = 0; same && i < tci_sched_numbers(x->form); i++) {
        same = x->n[i] == y->n[i];
    }
    return same;
}

/* Puts it where its cost belongs, after its equals; drops what is there already. */
static int tci_sched_insert(tci_sched *list, int n, int most, const tci_sched *s)
{
    int at = n;
    for (int i = 0; i < n; i++) {
        if (tci_sched_is_same(&list[i], s)) {
            return n;
        }
    }
    while (at > 0 && s->cost_ns < list[at - 1].cost_ns) {
        at--;
    }
    if (at == most) {
        return n;
    }
    n = TCI_MIN(n + 1, most);
    memmove(&list[at + 1], &list[at], sizeof(*list) * (size_t)(n - at - 1));
    list[at] = *s;
    return n;
}

static double tci_sched_cost(const tci_query *a, const tci_form *form, const int64_t *n)
{
    return a->machine.facts.launch_ns + form->cost_ns(a, n);
}

static tci_build *tci_sched_emit(const tci_query *a, const tci_sched *s, tci_launch *launch)
{
    tci_build *b = tci_build_make(a->s, a->k, tci_loop_make(a->s, a->k));
    memset(launch, 0, sizeof(*launch));
    b->waits = a->machine.block_threads > 0;
    s->form->emit(a, s->n, b, launch);
    if (!b->l->matrix) {
        b->l->n_tasks = launch->n_tasks;
    }
    return b;
}

/* Counts instructions if that is more exact than the roofline, and returns the larger estimate: the
 * cheapest schedule is built until it is one that was counted. */
static void tci_sched_count(const tci_query *a, tci_sched *list, int n)
{
    tci_launch launch;
    while (n > 0 && !list[0].counted) {
        tci_sched s = list[0];
        double ns = tci_loop_count_ns(a->s, tci_sched_emit(a, &s, &launch)->l, &a->machine.facts);
        s.cost_ns = TCI_MAX(ns, s.cost_ns);
        s.counted = true;
        int at = 0;
        for (; at + 1 < n && list[at + 1].cost_ns < s.cost_ns; at++) {
            list[at] = list[at + 1];
        }
        list[at] = s;
    }
}

TCI_FN int tci_sched_candidates(const tci_query *a, tci_sched *list, int most)
{
    int n = 0;
    const tci_form *form;
    for (int f = 0; (form = tci_sched_form(f)) != NULL; f++) {
        int64_t numbers[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS] = {{0}};
        int n_numbers = form->numbers[0] ? form->candidates(a, numbers) : 1;
        for (int i = 0; i < n_numbers; i++) {
            if (form->fits(a, numbers[i])) {
                tci_sched s = {form, {0}, tci_sched_cost(a, form, numbers[i]), false};
                memcpy(s.n, numbers[i], sizeof(s.n));
                n = tci_sched_insert(list, n, most, &s);
            }
        }
    }
    if (tci_query_counts(a)) {
        tci_sched_count(a, list, n);
    }
    return n;
}

/* ---- text ---- */

TCI_FN void tci_sched_print(tci_str *out, const tci_sched *s)
{
    tci_str_add(out, s->form->name);
    for (int i = 0; i < tci_sched_numbers(s->form); i++) {
        tci_str_printf(out, " %s=%lld", s->form->numbers[i], (long long)s->n[i]);
    }
}

/* The next word; false: there is none. */
static bool tci_sched_word(const char **at, const char **word, size_t *n)
{
    *at += strspn(*at, " \t\r");
    *word = *at;
    *n = strcspn(*at, " \t\r\n");
    *at += *n;
    return *n > 0;
}

static bool tci_sched_is_word(const char *name, const char *word, size_t n)
{
    return strlen(name) == n && !memcmp(name, word, n);
}

/* A number up to 2^31, and nothing after it. */
static bool tci_sched_number(const char *text, size_t n, int64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9' || *value > INT32_MAX) {
            return false;
        }
        *value = 10 * *value + (text[i] - '0');
    }
    return n > 0;
}

static bool tci_sched_assign(tci_sched *s, const char *word, size_t n, unsigned *given)
{
    const char *equals = memchr(word, '=', n);
    size_t name = equals ? (size_t)(equals - word) : n;
    for (int i = 0; equals && i < tci_sched_numbers(s->form); i++) {
        if (tci_sched_is_word(s->form->numbers[i], word, name)) {
            bool again = *given >> i & 1;
            *given |= 1u << i;
            return !again && tci_sched_number(equals + 1, n - name - 1, &s->n[i]);
        }
    }
    return false;
}

TCI_FN bool tci_sched_parse(const char *text, tci_sched *s, tci_str *why)
{
    const char *word;
    size_t n;
    unsigned given = 0;
    memset(s, 0, sizeof(*s));
    if (!tci_sched_word(&text, &word, &n)) {
        tci_str_add(why, "no form is given");
        return false;
    }
    for (int f = 0; (s->form = tci_sched_form(f)) && !tci_sched_is_word(s->form->name, word, n);) {
        f++;
    }
    if (!s->form) {
        tci_str_printf(why, "there is no form '%.*s': expected", (int)TCI_MIN(n, 40), word);
        for (int f = 0; tci_sched_form(f); f++) {
            tci_str_printf(why, " %s", tci_sched_form(f)->name);
        }
        return false;
    }
    while (tci_sched_word(&text, &word, &n)) {
        if (!tci_sched_assign(s, word, n, &given)) {
            tci_str_printf(why, "%s takes no '%.*s'", s->form->name, (int)TCI_MIN(n, 40), word);
            return false;
        }
    }
    for (int i = 0; i < tci_sched_numbers(s->form); i++) {
        if (!(given >> i & 1)) {
            tci_str_printf(why, "%s needs %s=NUMBER", s->form->name, s->form->numbers[i]);
            return false;
        }
    }
    return true;
}

/* ---- the notes ---- */

TCI_FN void tci_sched_time(tci_str *out, double ns)
{
    if (ns < 1e4) {
        tci_str_printf(out, "%.0f ns", ns);
    } else {
        tci_str_printf(out, ns < 1e7 ? "%.1f us" : "%.1f ms", ns < 1e7 ? ns * 1e-3 : ns * 1e-6);
    }
}

static void tci_sched_note(const tci_query *a, const tci_sched *s, tci_build *b, tci_launch *launch)
{
    tci_str note = {.s = a->s};
    const tci_loop *l = b->l;
    if (!l->matrix) {
        tci_str_printf(&note, "%s%d lane%s", l->lanes > 1 ? "vector " : "scalar ", l->lanes,
                       l->lanes > 1 ? "s" : "");
    }
    s->form->note(a, s->n, b, &note);
    snprintf(launch->note, sizeof(launch->note), "%s", tci_str_text(&note));
    b->l->note = tci_scratch_printf(a->s, "%s", launch->note);
}

TCI_FN const char *tci_sched_why(const tci_query *a, const tci_sched *s, const tci_sched *list,
                                 int n)
{
    tci_str why = {.s = a->s};
    tci_sched_print(&why, s);
    tci_str_add(&why, " in ");
    tci_sched_time(&why, s->cost_ns);
    tci_str_printf(&why, " %sby the model, at best ",
                   a->machine.block_threads > 0 ? "" : "of one thread ");
    tci_sched_time(&why, tci_query_least_ns(a));
    tci_str_add(&why, " (arithmetic ");
    tci_sched_time(&why, tci_query_arithmetic_ns(a));
    tci_str_add(&why, ", memory ");
    tci_sched_time(&why, tci_query_memory_ns(a));
    tci_str_add(&why, ")");
    const char *before = "; then ";
    for (int i = 0, shown = 0; i < n && shown < TCI_SCHED_SHOWN; i++) {
        if (!tci_sched_is_same(&list[i], s)) {
            tci_str_add(&why, before);
            tci_sched_print(&why, &list[i]);
            tci_str_add(&why, " ");
            tci_sched_time(&why, list[i].cost_ns);
            before = ", ";
            shown++;
        }
    }
    return tci_str_text(&why);
}

/* ---- the whole ---- */

TCI_FN tci_loop *tci_sched_build(const tci_query *a, const tci_sched *s, tci_launch *launch)
{
    tci_build *b = tci_sched_emit(a, s, launch);
    tci_loop *l = b->l;
    if (!l->matrix) {
        l->narrow = a->machine.block_threads > 0 && tci_loop_is_narrow(a->s, l);
    }
    tci_loop_find_dims(l);
    launch->dims = l->dims;
    launch->n_dims = l->n_dims;
    launch->lanes = l->lanes;
    launch->work_bytes = l->work_bytes;
    tci_sched_note(a, s, b, launch);
    return l;
}

TCI_FN bool tci_sched_fits(const tci_query *a, const tci_sched *s)
{
    return s->form->fits(a, s->n);
}

TCI_FN tci_loop *tci_loop_schedule_as(tci_scratch *scratch, const tci_kernel *k,
                                      tci_machine machine, const char *forced, tci_str *why,
                                      tci_launch *launch)
{
    tci_sched list[TCI_SCHED_MOST], wanted;
    if (k->loop) {
        return tci_lfloop_schedule(scratch, k, machine, launch);
    }
    if (k->n_members) {
        return tci_grouped_schedule(scratch, k, machine, launch);
    }
    const tci_query *a = tci_query_make(scratch, k, machine);
    int n = tci_sched_candidates(a, list, TCI_SCHED_MOST);
    TCI_ASSERT(scratch, n > 0);
    const tci_sched *s = &list[0];
    if (forced && tci_sched_parse(forced, &wanted, why)) {
        if (tci_sched_fits(a, &wanted)) {
            wanted.cost_ns = tci_sched_cost(a, wanted.form, wanted.n);
            s = &wanted;
        } else {
            tci_str_add(why, "it does not fit the kernel on this machine");
        }
    }
    tci_loop *l = tci_sched_build(a, s, launch);
    launch->why = tci_sched_why(a, s, list, n);
    return l;
}

TCI_FN tci_price tci_loop_price(tci_scratch *s, const tci_kernel *k, tci_machine machine)
{
    tci_sched list[TCI_SCHED_MOST];
    tci_price price = {0, 0, 0};
    if (k->call || k->n_members || k->n_stages == 0) {
        return price;
    }
    if (machine.block_threads == 0) { /* one thread waits for no other one */
        machine.facts.processors = 1;
    }
    const tci_query *a = tci_query_make(s, k, machine);
    int n = tci_sched_candidates(a, list, TCI_SCHED_MOST);
    TCI_ASSERT(s, n > 0);
    price.ns = list[0].cost_ns - machine.facts.launch_ns;
    price.flop_ns = tci_query_ns(a, 1, 0) / (double)TCI_MAX(k->flops, 1);
    price.move_ns = tci_query_ns(a, 0, 1);
    return price;
}

TCI_FN tci_loop *tci_loop_schedule(tci_scratch *scratch, const tci_kernel *k, tci_machine machine,
                                   tci_launch *launch)
{
    return tci_loop_schedule_as(scratch, k, machine, NULL, NULL, launch);
}
