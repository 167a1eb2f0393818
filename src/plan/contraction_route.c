/* plan/contraction_route.c - selects the algorithm of each contraction: a table of routes, and the
 * default route.
 *
 * In: a CONTRACT of the rewritten graph. Out: the nodes of its route; operands that the route
 * reads often are stored. Design: the rows that fit give the association class (the first value of
 * tci_sums for which a route fits), from shapes and the kind of machine alone. Of the rows of that
 * class the cheapest under the cost model is built; the others are reported with their costs
 * (tc_explain). The file of forced schedules, or a measurement (compile/autotune_routes.c), may
 * select another row of the same class. */
#include "contraction_route.h"

#include <string.h>

enum {
    TCI_ROUTE_UNTILED = 4, /* times as long as in register tiles a product takes */
    TCI_ROUTE_MOST = 32    /* rows of the table, at most */
};

/* ---- plain: one CONTRACT of operands in the order that its loops read ---- */

static bool tci_route_plain_fits(tci_offer *o)
{
    (void)o;
    return true;
}

static double tci_route_plain_cost(const tci_offer *o)
{
    tci_route_work work = tci_route_work_of(o, TCI_BY_VECTORS);
    bool packs = tci_route_packs(o->c, &o->a->machine);
    bool tiles = packs || tci_route_gathers(o->c, &o->a->machine);
    work.products *= tiles ? 1 : TCI_ROUTE_UNTILED;
    return tci_route_ns(o, work) + (packs ? tci_route_pack_ns(o) : 0);
}

static tci_node *tci_route_plain_build(const tci_offer *o)
{
    return tci_plan_signs(o->a, tci_route_plain(o->a, o->n));
}

static const tci_route *tci_route_plain_row(void)
{
    static const tci_route row = {"plain",
                                  TCI_SUMS_CHAINS,
                                  0,
                                  tci_route_plain_fits,
                                  tci_route_plain_cost,
                                  tci_route_plain_build};
    return &row;
}

/* ---- the table ---- */

/* All rows; the last one fits any contraction. */
static int tci_route_table(const tci_route **rows)
{
    const tci_route *const table[] = {
        tci_route_prepacked_dot(), tci_route_unit(),      tci_route_winograd(),
        tci_route_zero_points(),   tci_route_gemv(),      tci_route_grouped(),
        tci_route_split_k(),       tci_route_prepacked(), tci_route_plain_row(),
    };
    int n = tci_block_routes(rows);
    memcpy(rows + n, table, sizeof(table));
    return n + (int)TCI_COUNT(table);
}

static tci_route_choice tci_route_choose(const tci_algo *a, tci_node *n, const tci_contraction *c,
                                         tci_sums last)
{
    const tci_route *rows[TCI_ROUTE_MOST];
    int n_rows = tci_route_table(rows);
    tci_route_choice choice = {.offers = TCI_NEW_ARRAY(a->s, tci_offer, n_rows)};
    for (int i = 0; i < n_rows; i++) {
        tci_offer *o = &choice.offers[choice.n];
        if (rows[i]->sums <= last && tci_route_fits(rows[i], a, n, c, o)) {
            const tci_offer *best = &choice.offers[choice.best];
            o->cost_ns = rows[i]->cost_ns(o);
            bool first = choice.n == 0 || o->route->sums < best->route->sums;
            bool cheaper = o->route->sums == best->route->sums && o->cost_ns < best->cost_ns;
            choice.best = first || cheaper ? choice.n : choice.best;
            choice.n++;
        }
    }
    return choice;
}

/* ---- reports and forced routes ---- */

/* "contract_8x64x64x512": batch (if there is one) x M x N x K. */
static void tci_route_name(char *text, size_t room, const tci_contraction *c)
{
    const double *size = c->size;
    int n = snprintf(text, room, "contract_");
    if (size[TCI_AXES_BATCH] != 1) {
        n += snprintf(text + n, room - (size_t)n, "%.0fx", size[TCI_AXES_BATCH]);
    }
    snprintf(text + n, room - (size_t)n, "%.0fx%.0fx%.0f", size[TCI_AXES_M], size[TCI_AXES_N],
             size[TCI_AXES_K]);
}

/* The route that a line "NAME: ROUTE # REMARK" of a text gives the contraction; NULL: none does. */
static const char *tci_route_forced(const char *text, const char *name, size_t *n)
{
    const char *at = text;
    for (size_t length = strlen(name); at && (at = strstr(at, name)) != NULL; at += length) {
        bool begins = at == text || at[-1] == '\n' || at[-1] == ' ';
        if (begins && at[length] == ':') {
            at += length + 1;
            at += strspn(at, " \t");
            *n = strcspn(at, "\r\n#");
            while (*n > 0 && at[*n - 1] == ' ') {
                --*n;
            }
            return at;
        }
    }
    return NULL;
}

/* Takes the route of that class that a file names, else the one that was measured; it is reported
 * where none of the file's name fits. The remark on what was measured; NULL: none. */
static const char *tci_route_force(const tci_algo *a, const char *name, tci_route_choice *choice)
{
    size_t n = 0;
    const char *users = tci_route_forced(a->machine.routes, name, &n);
    const char *want = users ? users : tci_route_forced(a->machine.measured, name, &n);
    const uint8_t sums = choice->offers[choice->best].route->sums;
    for (int i = 0; want && i < choice->n; i++) {
        const tci_route *r = choice->offers[i].route;
        if (r->sums == sums && strlen(r->name) == n && !memcmp(want, r->name, n)) {
            choice->best = i;
            const char *remark = want + n + strspn(want + n, " ");
            return !users && *remark == '#' ? remark + 2 : NULL;
        }
    }
    if (users && a->routes) {
        tci_str_printf(a->routes, "%s is not computed as '%.*s': no such route of its class fits\n",
                       name, (int)TCI_MIN(n, 60), users);
    }
    return NULL;
}

/* Notes a contraction that several routes of its class compute, once for each name, unless the
 * user's file names one. */
static void tci_route_note_contest(const tci_algo *a, const char *name,
                                   const tci_route_choice *choice)
{
    size_t n = 0;
    const tci_offer *best = &choice->offers[choice->best];
    bool open = a->contests && !tci_route_forced(a->machine.routes, name, &n);
    for (int i = 0; open && i < a->contests->n; i++) {
        open = strcmp(a->contests->items[i].name, name) != 0;
    }
    tci_plan_contest c = {.n = 1, .cost_ns = best->cost_ns};
    double *costs = TCI_NEW_ARRAY(a->s, double, choice->n);
    c.routes = TCI_NEW_ARRAY(a->s, const char *, choice->n);
    c.routes[0] = best->route->name;
    for (int i = 0; open && i < choice->n; i++) {
        const tci_offer *o = &choice->offers[i];
        if (o == best || o->route->sums != best->route->sums) {
            continue;
        }
        int at = c.n++;
        for (; at > 1 && costs[at - 1] > o->cost_ns; at--) {
            costs[at] = costs[at - 1];
            c.routes[at] = c.routes[at - 1];
        }
        costs[at] = o->cost_ns;
        c.routes[at] = o->route->name;
    }
    if (open && c.n > 1) {
        c.name = tci_scratch_printf(a->s, "%s", name);
        TCI_PUSH(a->s, a->contests->items, a->contests->n, a->contests->cap, c);
    }
}

/* A line on what was taken, with the runners-up; remark: what was measured, up to the end of its
 * line, or NULL. */
static void tci_route_report(const tci_algo *a, const char *name, const tci_route_choice *choice,
                             const char *remark)
{
    tci_str line = {.s = a->s};
    const tci_offer *best = &choice->offers[choice->best];
    tci_str_printf(&line, "%s: %s, %.1f us by the model", name, best->route->name,
                   best->cost_ns * 1e-3);
    if (remark) {
        tci_str_printf(&line, "; %.*s", (int)strcspn(remark, "\n"), remark);
    }
    for (int i = 0; i < choice->n; i++) {
        const tci_offer *o = &choice->offers[i];
        if (o != best) {
            bool other = o->route->sums != best->route->sums;
            tci_str_printf(&line, "; %s %.1f us%s", o->route->name, o->cost_ns * 1e-3,
                           other ? " (other sums)" : "");
        }
    }
    tci_str_add(&line, "\n");
    if (a->routes && !strstr(tci_str_text(a->routes), tci_str_text(&line))) {
        tci_str_add(a->routes, tci_str_text(&line));
    }
}

/* A line where sums would have another class, were they not to be reproducible. */
static void tci_route_report_whole(const tci_algo *a, tci_node *n, const tci_contraction *c)
{
    tci_algo free = *a;
    tci_offer o;
    free.machine.reproducible = false;
    if (a->machine.reproducible && (tci_route_fits(tci_route_gemv(), &free, n, c, &o) ||
                                    tci_route_fits(tci_route_split_k(), &free, n, c, &o))) {
        tci_str_add(a->orders, "contract: whole, to be reproducible, else parts\n");
    }
}

static tci_node *tci_route_contract(const tci_algo *a, tci_node *n)
{
    char name[96];
    const tci_contraction *c = tci_contraction_of(a->s, n);
    tci_route_choice choice = tci_route_choose(a, n, c, TCI_SUMS_CHAINS);
    tci_route_name(name, sizeof(name), c);
    tci_route_note_contest(a, name, &choice);
    const char *remark = tci_route_force(a, name, &choice);
    tci_route_report(a, name, &choice, remark);
    const tci_offer *best = &choice.offers[choice.best];
    if (best->route->sums == TCI_SUMS_CHAINS) {
        tci_route_report_whole(a, n, c);
    }
    return best->route->build(best);
}

TCI_FN const tci_router *tci_route_router(void)
{
    static const tci_router router = {tci_route_contract, tci_route_choose};
    return &router;
}
