/* debug/explain.c - writes the report of tc_explain at compile time, while the plan exists: the
 * list of kernel launches with their traffic and flops, and why values were not fused. The
 * report is kept with the code, also on disk.
 *
 * In: plan and code. Out: text sections. The first has totals; "launches, once:" and
 * "launches:" list the launches; each other section has a title that ends in a colon and its own
 * lines (tci_explain_text): a pass appends a section of its own in tci_explain_text. Tab-separated
 * fields at the end of a line are read by debug/summary.c, which prints the report. */
#include "explain.h"

#include <string.h>

TCI_FN void tci_explain_bytes(tci_str *out, int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    int u = 0;
    while (x >= (u ? 1024 : 10240) && u + 1 < TCI_COUNT(units)) {
        x /= 1024;
        u++;
    }
    tci_str_printf(out, u ? "%.1f %s" : "%.0f %s", x, units[u]);
}

/* The numeric class of each reduction, neighbours of one class once. */
static void tci_explain_classes(tci_str *out, const tci_kernel *k)
{
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r], *before = red - (r > 0);
        bool same = red->order == before->order && red->order_n == before->order_n &&
                    (red->op == TCI_RED_ONLINE) == (before->op == TCI_RED_ONLINE);
        if (r == 0 || !same) {
            tci_str_add(out, r == 0 ? ", class " : " ");
            tci_kernel_print_order(out, red);
        }
    }
}

/* Each line of a longer text, set in. */
static void tci_explain_lines(tci_str *out, const char *indent, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        tci_str_add(out, indent);
        tci_str_add_n(out, text, n);
        tci_str_add(out, "\n");
        text += n + (text[n] != 0);
    }
}

static void tci_explain_step(tci_str *out, const tci_plan *p, const tci_code *code, int t)
{
    const tci_step *step = &p->steps[t];
    const tci_kernel *k = p->kernels[step->kernel];
    int reads = 0, writes = 0;
    for (int o = 0; o < k->n_operands; o++) {
        writes += k->operands[o].is_output;
        reads += !k->operands[o].is_output;
    }
    int parts = k->n_members ? k->n_members : k->n_stages;
    tci_str_printf(out, "  %d. %s: %d %s%s, reads %d, writes %d, ", t + 1, k->name, parts,
                   k->n_members ? "kernel" : "stage", parts == 1 ? "" : "s", reads, writes);
    tci_explain_bytes(out, k->bytes);
    tci_str_printf(out, ", %.3g flops", (double)k->flops);
    tci_explain_classes(out, k);
    const char *note = code->kernels[step->kernel].note;
    size_t n = note ? strcspn(note, "\n") : 0; /* in a word; then the schedule and others */
    if (n > 0) {
        tci_str_printf(out, "; %.*s", (int)n, note);
    }
    tci_str_add(out, "\n");
    if (n > 0 && note[n]) {
        tci_explain_lines(out, "     ", note + n + 1);
    }
}

/* The loops that begin with step t. */
static void tci_explain_repeats(tci_str *out, const tci_plan *p, int t)
{
    for (int i = 0; i < p->n_spans; i++) {
        const tci_span *x = &p->spans[i];
        if (x->first == t && x->last > x->first) {
            tci_str_printf(out, "  %d to %d, %s%s times, one after the other:\n", t + 1, x->last,
                           x->stops >= 0 ? "while carry says so, up to " : "",
                           TCI_DIM_TEXT(x->rounds));
        }
    }
}

TCI_FN void tci_explain_text(tci_str *out, const tci_plan *plan, const tci_code *code,
                             const char *fallback, const char *split)
{
    int64_t bytes = 0, flops = 0;
    int n_each = plan->n_steps - plan->n_init;
    for (int t = plan->n_init; t < plan->n_steps; t++) {
        bytes += plan->kernels[plan->steps[t].kernel]->bytes * tci_plan_rounds(plan, t);
        flops += plan->kernels[plan->steps[t].kernel]->flops * tci_plan_rounds(plan, t);
    }
    tci_str_printf(out, "%d launch%s of %d kernel%s on %s; ", n_each, n_each == 1 ? "" : "es",
                   plan->n_kernels, plan->n_kernels == 1 ? "" : "s", code->backend);
    tci_explain_bytes(out, bytes);
    tci_str_printf(out, " moved, %.3g flops, ", (double)flops);
    tci_explain_bytes(out, tci_code_workspace(code));
    tci_str_add(out, " of workspace");
    if (plan->arena_least < plan->arena_bytes) {
        tci_str_add(out, ", of which ");
        tci_explain_bytes(out, plan->arena_least);
        tci_str_add(out, " are needed at once");
    }
    tci_str_add(out, "\n");
    if (plan->n_init) {
        tci_str_printf(out, "%d more, once for the program and when captured memory changed; ",
                       plan->n_init);
        tci_explain_bytes(out, plan->kept_bytes);
        tci_str_add(out, " kept\n");
    }
    if (fallback[0]) {
        tci_str_add(out, "interpreted instead of compiled, because:\n");
        tci_explain_lines(out, "  ", fallback);
    }
    tci_str_add(out, split ? split : "");
    if (plan->n_init) {
        tci_str_add(out, "launches, once:\n");
    }
    for (int t = 0; t < plan->n_init; t++) {
        tci_explain_step(out, plan, code, t);
    }
    tci_str_add(out, "launches:\n");
    for (int t = plan->n_init; t < plan->n_steps; t++) {
        tci_explain_repeats(out, plan, t);
        tci_explain_step(out, plan, code, t);
    }
    if (plan->routes.n > 0) {
        tci_str_add(out, "contractions, and other routes that fit:\n");
        tci_explain_lines(out, "  ", tci_str_text(&plan->routes));
    }
    if (plan->orders.n > 0) {
        tci_str_add(out, "orders of sums:\n");
        tci_explain_lines(out, "  ", tci_str_text(&plan->orders));
    }
    if (plan->again.n > 0) {
        tci_str_add(out, "computed again, for less memory:\n");
        tci_explain_lines(out, "  ", tci_str_text(&plan->again));
    }
    if (plan->tried.n > 0) {
        tci_str_add(out, "kernels that stay whole, as storing a value would gain too little:\n");
        tci_explain_lines(out, "  ", tci_str_text(&plan->tried));
    }
    if (plan->why.n > 0) {
        tci_str_printf(out, "not fused, and why:\n%s", tci_str_text(&plan->why));
    }
}
