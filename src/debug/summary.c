/* debug/summary.c - tc_explain: prints a one-screen summary of a program (kernels, times, traffic,
 * why values are not fused) with the user's names and lines.
 *
 * In: a program. Out: text or JSON. The parts that need the plan were written at compile time
 * (debug/explain.c) and are stored with the code. The user's lines, regions and names of inputs and
 * parameters are added here from the program, so that code from a cache shows the names of the
 * program that found it. */
#include "summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../base/env.h"
#include "../base/system_headers.h"
#include "../plan/fusion_groups.h"
#include "../run/async_compile.h"
#include "../run/shape_instances.h"
#include "log.h"
#include "explain.h"
#include "string_intern.h"
#include "kernel_timing.h"
#include "../run/comm_cost_model.h"
#include "source_location.h"

enum {
    TCI_SUMMARY_MOST = 20,   /* kernels of a screen, */
    TCI_SUMMARY_PORTS = 8,   /* inputs or outputs, */
    TCI_SUMMARY_PARAMS = 4,  /* parameters, */
    TCI_SUMMARY_REASONS = 6, /* sentences, */
    TCI_SUMMARY_PLACES = 3,  /* places of each, */
    TCI_SUMMARY_LINES = 4,   /* and lines of any other section */
    TCI_SUMMARY_WIDTH = 44   /* of a kernel's name */
};

/* ---- rows ---- */

/* Time in a note of a schedule: "... in 12.3 us of one thread by the model". */
static double tci_summary_noted_ns(const char *note)
{
    const char *end = note ? strstr(note, " by the model") : NULL;
    for (const char *at = end ? strstr(note, " in ") : NULL; at && at < end;
         at = strstr(at + 1, " in ")) {
        char *unit;
        double time = strtod(at + 4, &unit);
        double scale = !strncmp(unit, " ns", 3)   ? 1
                       : !strncmp(unit, " us", 3) ? 1e3
                       : !strncmp(unit, " ms", 3) ? 1e6
                                                  : 0;
        if (scale > 0) {
            return time * scale;
        }
    }
    return 0;
}

TCI_FN double tci_summary_model_ns(const tci_code_kernel *k)
{
    double noted = tci_summary_noted_ns(k->note);
    return noted > 0 ? noted : (double)tci_dim_hint(k->n_tasks) * k->task_ns;
}

TCI_FN int tci_summary_rows(const tc_program *f, tci_summary_row *rows)
{
    const tci_code *code = f->code;
    int n = 0;
    for (int t = code->n_init; t < code->n_steps; t++) {
        const tci_code_kernel *k = &code->kernels[code->steps[t].kernel];
        double rounds = (double)tci_code_rounds(code, t);
        int at = 0;
        while (at < n && rows[at].kernel != code->steps[t].kernel) {
            at++;
        }
        if (at == n) {
            rows[n++] = (tci_summary_row){.kernel = code->steps[t].kernel, .step = t};
        }
        rows[at].calls += (int64_t)rounds;
        rows[at].ns += rounds * tci_summary_model_ns(k);
        rows[at].bytes += rounds * (double)tci_dim_hint(k->bytes);
        rows[at].flops += rounds * (double)tci_dim_hint(k->flops);
    }
    return n;
}

static bool tci_summary_before(const tc_program *f, const tci_summary_row *a,
                               const tci_summary_row *b, tc_sort sort)
{
    double by = sort == TC_BY_TIME    ? a->ns - b->ns
                : sort == TC_BY_CALLS ? (double)(a->calls - b->calls)
                : sort == TC_BY_BYTES ? a->bytes - b->bytes
                : sort == TC_BY_FLOPS ? a->flops - b->flops
                                      : 0;
    if (sort == TC_BY_NAME) {
        by = -(double)strcmp(f->code->kernels[a->kernel].symbol,
                             f->code->kernels[b->kernel].symbol);
    }
    return by != 0 ? by > 0 : a->step < b->step;
}

/* A heap would be shorter in time; there are hundreds of rows at most. */
TCI_FN int tci_summary_sort(const tc_program *f, tci_summary_row *rows, int n, tc_sort sort,
                            int most)
{
    int shown = most < 0 ? n : TCI_MIN(n, most ? most : (int)TCI_SUMMARY_MOST);
    for (int i = 0; i < shown; i++) {
        int best = i;
        for (int j = i + 1; j < n; j++) {
            best = tci_summary_before(f, &rows[j], &rows[best], sort) ? j : best;
        }
        tci_summary_row row = rows[best];
        memmove(&rows[i + 1], &rows[i], (size_t)(best - i) * sizeof(row));
        rows[i] = row;
    }
    return shown;
}

/* ---- pieces of text ---- */

TCI_FN void tci_summary_time(tci_str *out, double ns)
{
    static const char *const units[] = {"ns", "us", "ms", "s "};
    int u = 0;
    while (ns >= 999.5 && u + 1 < TCI_COUNT(units)) {
        ns /= 1000;
        u++;
    }
    tci_str_printf(out, ns < 99.95 && u ? "%5.1f %s" : "%5.0f %s", ns, units[u]);
}

TCI_FN void tci_summary_json_text(tci_str *out, const char *text)
{
    tci_str_add(out, "\"");
    size_t n = text ? strlen(text) : 0;
    for (int length; n; text += length, n -= (size_t)length) {
        unsigned char c = (unsigned char)*text;
        int valid = tci_str_utf8(text, n);
        length = valid ? valid : 1;
        if (!valid) {
            tci_str_add(out, "\\ufffd");
        } else if (c == '<') { /* in a page of HTML too */
            tci_str_add(out, "\\u003c");
        } else if (c == '"' || c == '\\') {
            tci_str_printf(out, "\\%c", c);
        } else if (c < ' ') {
            tci_str_printf(out, "\\u%04x", c);
        } else {
            tci_str_add_n(out, text, (size_t)length);
        }
    }
    tci_str_add(out, "\"");
}

TCI_FN void tci_summary_shape(tci_str *out, int dtype, int rank, const tci_dim *shape)
{
    tci_str_printf(out, "%s [", tci_dtype_get((tc_dtype)dtype)->name);
    for (int i = 0; i < rank; i++) {
        tci_str_add(out, i ? ", " : "");
        tci_dim_print(out, shape[i]);
    }
    tci_str_add(out, "]");
}

static void tci_summary_port(tci_str *out, const tci_code_port *port)
{
    tci_summary_shape(out, port->dtype, port->rank, port->shape);
}

/* The program whose ports and captured memory have names. */
static const tc_program *tci_summary_owner(const tc_program *f)
{
    return f->ports ? f : f->keeper;
}

TCI_FN const char *tci_summary_captured(const tc_program *f, int i)
{
    const tci_storage *s = tci_summary_owner(f)->captured[i];
    const char *name = s->param ? tci_param_name_of(s) : NULL;
    return name ? name : "";
}

/* ---- inputs, outputs, parameters ---- */

static void tci_summary_ports(tci_str *out, const tc_program *f, bool outputs, int most)
{
    const tc_program *owner = tci_summary_owner(f);
    int n = outputs ? f->n_outputs : f->n_inputs;
    const tci_code_port *ports = outputs ? f->code->outputs : f->code->inputs;
    for (int i = 0; i < n && i < most; i++) {
        const char *name = owner->ports ? owner->ports[i + (outputs ? f->n_inputs : 0)].name : "";
        tci_str_printf(out, "  %s %d: ", outputs ? "output" : "input", i);
        tci_summary_port(out, &ports[i]);
        tci_str_printf(out, "%s%s\n", *name ? " " : "", name);
    }
    if (n > most) {
        tci_str_printf(out, "  %d more %ss\n", n - most, outputs ? "output" : "input");
    }
}

static void tci_summary_params(tci_str *out, const tc_program *f, int most)
{
    int64_t bytes = 0;
    for (int i = 0; i < f->n_captured; i++) {
        bytes += tci_dim_hint(f->code->inputs[f->n_inputs + i].bytes);
    }
    if (!f->n_captured) {
        return;
    }
    tci_str_printf(out, "  captured: %d, ", f->n_captured);
    tci_explain_bytes(out, bytes);
    if (f->n_effects) {
        tci_str_printf(out, ", %d of them changed by a run", f->n_effects);
    }
    for (int i = 0; i < f->n_captured && i < most; i++) {
        const char *name = tci_summary_captured(f, i);
        tci_str_printf(out, "%s%s%s", i ? ", " : ": ", name, *name ? " " : "");
        tci_summary_port(out, &f->code->inputs[f->n_inputs + i]);
    }
    tci_str_add(out, f->n_captured > most ? ", ...\n" : "\n");
}

/* ---- sections of the stored text ---- */

/* The section of that title, without it; NULL: there is none. *n: its bytes, up to the next. */
static const char *tci_summary_section(const char *text, const char *title, size_t *n)
{
    size_t length = strlen(title);
    const char *at = text;
    while (at && strncmp(at, title, length)) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at) {
        return NULL;
    }
    at += length;
    const char *end = at;
    while (*end && (*end == ' ' || end == at)) { /* lines that are set in */
        end += strcspn(end, "\n");
        end += *end == '\n';
    }
    *n = (size_t)(end - at);
    return at;
}

/* Up to the first section of launches. */
static size_t tci_summary_head(const char *text)
{
    const char *at = text;
    while (*at && strncmp(at, "launches", 8)) {
        at += strcspn(at, "\n");
        at += *at == '\n';
    }
    return (size_t)(at - text);
}

/* Lines with alternatives, after a semicolon, come first. */
static void tci_summary_some_lines(tci_str *out, const char *text, const char *title, int most)
{
    size_t n = 0;
    const char *from = tci_summary_section(text, title, &n);
    int seen = 0;
    if (!from) {
        return;
    }
    tci_str_add(out, title);
    for (int plain = 0; plain < 2; plain++) {
        for (const char *at = from; at < from + n;) {
            size_t line = strcspn(at, "\n") + 1;
            bool wanted = (memchr(at, ';', line) == NULL) == plain;
            if (wanted && seen < most) {
                tci_str_add_n(out, at, line);
            }
            seen += wanted;
            at += line;
        }
    }
    if (seen > most) {
        tci_str_printf(out, "  %d more lines\n", seen - most);
    }
}

/* ---- reasons ---- */

typedef struct tci_reason {
    const char *text; /* the sentence, of `length` bytes */
    size_t length;
    int count;
    double bytes;
    int n_places;
    struct {
        const char *words; /* "sum is not computed with mul", of this many bytes */
        size_t length;
        unsigned reader, source;
    } places[TCI_SUMMARY_PLACES];
} tci_reason;

static const tci_origin *tci_summary_origin(const tc_program *f, unsigned region)
{
    const tc_program *owner = f->origins ? f : f->keeper;
    return region > 0 && owner->origins && (int)region <= owner->n_origins
               ? &owner->origins[region - 1]
               : NULL;
}

/* True if two nodes are of the same line and region. */
static bool tci_summary_same(const tc_program *f, unsigned a, unsigned b)
{
    const tci_origin *x = tci_summary_origin(f, a), *y = tci_summary_origin(f, b);
    return x == y || (x && y && x->file == y->file && x->line == y->line && x->call == y->call &&
                      x->region == y->region);
}

/* A line "A is not computed with B: sentence\treader source bytes" joins the reason of its
 * sentence. */
static void tci_summary_take_reason(const tc_program *f, tci_reason *list, int *n, int cap,
                                    const char *line, size_t size)
{
    const char *tab = memchr(line, '\t', size), *colon = strstr(line, ": ");
    size_t end = tab ? (size_t)(tab - line) : size;
    if (!colon || colon > line + end) {
        return;
    }
    const char *text = colon + 2;
    size_t length = end - (size_t)(text - line);
    int at = 0;
    while (at < *n && (list[at].length != length || memcmp(list[at].text, text, length))) {
        at++;
    }
    if (at == cap) {
        return;
    }
    if (at == *n) {
        list[(*n)++] = (tci_reason){.text = text, .length = length};
    }
    tci_reason *r = &list[at];
    unsigned reader = 0, source = 0;
    double bytes = 0;
    if (tab) {
        char *next;
        reader = (unsigned)strtoul(tab + 1, &next, 10);
        source = (unsigned)strtoul(next, &next, 10);
        bytes = strtod(next, NULL);
    }
    r->count++;
    r->bytes += bytes;
    bool known = false;
    for (int p = 0; p < r->n_places; p++) {
        known = known || (r->places[p].length == (size_t)(colon - line) &&
                          !memcmp(r->places[p].words, line, r->places[p].length) &&
                          tci_summary_same(f, r->places[p].reader, reader) &&
                          tci_summary_same(f, r->places[p].source, source));
    }
    if (r->n_places < TCI_SUMMARY_PLACES && !known) {
        r->places[r->n_places].words = line;
        r->places[r->n_places].length = (size_t)(colon - line);
        r->places[r->n_places].reader = reader;
        r->places[r->n_places++].source = source;
    }
}

/* The reasons of f's code, those that cost most first; returns how many. */
static int tci_summary_reasons(const tc_program *f, tci_reason *list, int cap)
{
    static const char title[] = "not fused, and why:\n";
    const char *at = f->code->explain ? strstr(f->code->explain, title) : NULL;
    int n = 0;
    for (at = at ? at + sizeof(title) - 1 : ""; *at;) {
        size_t line = strcspn(at, "\n");
        tci_summary_take_reason(f, list, &n, cap, at, line);
        at += line + (at[line] == '\n');
    }
    for (int i = 1; i < n; i++) {
        for (int j = i; j > 0 && list[j].bytes > list[j - 1].bytes; j--) {
            tci_reason r = list[j];
            list[j] = list[j - 1];
            list[j - 1] = r;
        }
    }
    return n;
}

static void tci_summary_node(tci_str *out, const tci_origin *o)
{
    tci_origin_line(out, o);
    if (o && o->region) {
        tci_str_add(out, ", ");
        tci_origin_region_text(out, o->region);
    }
}

static void tci_summary_place(tci_str *out, const tc_program *f, const tci_reason *r, int p)
{
    tci_str_add_n(out, r->places[p].words, r->places[p].length);
    const tci_origin *reader = tci_summary_origin(f, r->places[p].reader);
    const tci_origin *source = tci_summary_origin(f, r->places[p].source);
    if ((reader && reader->file) || (source && source->file)) {
        tci_str_add(out, " (");
        tci_summary_node(out, reader);
        tci_str_add(out, reader && source ? "; " : "");
        tci_summary_node(out, source);
        tci_str_add(out, ")");
    }
}

enum {
    TCI_SUMMARY_SENTENCES = 64
}; /* rows of plan/fusion_refusal.h, and those with numbers in them */

static void tci_summary_reason_text(tci_str *out, const tc_program *f, tci_reason *list)
{
    int n = tci_summary_reasons(f, list, TCI_SUMMARY_SENTENCES);
    if (n) {
        tci_str_add(out, "not fused:\n");
    }
    for (int i = 0; i < n && i < TCI_SUMMARY_REASONS; i++) {
        const tci_reason *r = &list[i];
        tci_str_printf(out, "  %d x %.*s", r->count, (int)r->length, r->text);
        if (r->bytes > 0) {
            tci_str_add(out, "; together would save ");
            tci_explain_bytes(out, (int64_t)TCI_MIN(r->bytes, 9e18));
        }
        tci_str_add(out, "\n");
        for (int p = 0; p < r->n_places; p++) {
            tci_str_add(out, "      ");
            tci_summary_place(out, f, r, p);
            tci_str_add(out, "\n");
        }
    }
    if (n > TCI_SUMMARY_REASONS) {
        tci_str_printf(out, "  %d more reasons\n", n - TCI_SUMMARY_REASONS);
    }
}

/* ---- the whole ---- */

TCI_FN const char *tci_summary_not_recorded(const tc_program *f)
{
    const tci_code *code = f->code;
    if (!code->device || !code->device->record) {
        return "this backend records nothing";
    }
    if (f->options.record < 0) {
        return "options.record forbids it";
    }
    if (code->calls && !(f->collectives && tci_collectives_can_record(f))) {
        return "the host calls a function of the user's between launches";
    }
    for (int i = 0; i < code->n_repeats; i++) {
        if (code->repeats[i].stops >= 0) {
            return "it has a loop whose rounds a value tells";
        }
    }
    return NULL;
}

static void tci_summary_kernel(tci_str *out, const tc_program *f, const tci_summary_row *r,
                               double total_ns)
{
    const char *symbol = f->code->kernels[r->kernel].symbol;
    tci_summary_time(out, r->ns);
    tci_str_printf(out, " %5.1f%% %5lld %6.1f %8.1f  %-*s  ",
                   total_ns > 0 ? 100 * r->ns / total_ns : 0.0, (long long)r->calls,
                   r->ns > 0 ? r->bytes / r->ns : 0.0, r->ns > 0 ? r->flops / r->ns : 0.0,
                   (int)TCI_SUMMARY_WIDTH, symbol ? symbol : "");
    tci_origin_text(out, f, r->step);
    tci_str_add(out, "\n");
}

static void tci_summary_kernels(tci_str *out, const tc_program *f, tci_summary_row *rows, int n,
                                const tc_explain_options *o)
{
    double total = 0, rest = 0;
    for (int i = 0; i < n; i++) {
        total += rows[i].ns;
    }
    int shown = tci_summary_sort(f, rows, n, o->sort, o->most);
    tci_str_printf(out, "%s  share calls   GB/s  Gflop/s  %-*s  from\n",
                   o->measure_ms > 0 ? "measured" : "by model", (int)TCI_SUMMARY_WIDTH, "kernel");
    for (int i = 0; i < n; i++) {
        if (i < shown) {
            tci_summary_kernel(out, f, &rows[i], total);
        } else {
            rest += rows[i].ns;
        }
    }
    if (n > shown) {
        tci_summary_time(out, rest);
        tci_str_printf(out, " %5.1f%%  %d more kernels\n", total > 0 ? 100 * rest / total : 0.0,
                       n - shown);
    }
}

static void tci_summary_times(tci_str *out, const tc_program *f)
{
    const tc_times *t = &f->code->times;
    const char *found = f->from_memory ? "memory" : f->from_disk ? "disk" : NULL;
    if (found) {
        tci_str_printf(out, "compile: found in the %s cache\n", found);
        return;
    }
    tci_str_printf(out,
                   "compile: %.2f ms = key %.2f + rewrite %.2f + plan %.2f + lower %.2f + emit "
                   "%.2f + compiler %.2f + load %.2f\n",
                   (double)t->total / 1e6, (double)t->key / 1e6, (double)t->rewrite / 1e6,
                   (double)t->plan / 1e6, (double)t->lower / 1e6, (double)t->emit / 1e6,
                   (double)t->compiler / 1e6, (double)t->load / 1e6);
}

#ifdef TC_DYNAMIC_SHAPES
static void tci_summary_sizes(tci_str *out, const tc_program *f)
{
    for (int i = 0; f->dynamic && i < f->code->n_symbols; i++) {
        tci_dim user = f->dynamic->user[i];
        tci_str_printf(out, "%s %s (s%d) from %lld to %lld", i ? "," : "sizes:", tci_dim_name(user),
                       i, (long long)tci_dim_least(user), (long long)tci_dim_most(user));
    }
    tci_str_add(out, f->dynamic ? "\n" : "");
}
#else
#define tci_summary_sizes(out, f) ((void)(f))
#endif

/* Ports between the totals and the launches. */
static void tci_summary_begin(tci_str *out, const tc_program *f, bool all)
{
    const char *text = f->code->explain ? f->code->explain : "";
    const tc_program *owner = f->origins ? f : f->keeper;
    if (owner->name) {
        tci_str_printf(out, "%s: ", tci_label_text(owner->name));
    }
    tci_summary_sizes(out, f);
    tci_str_add_n(out, text, tci_summary_head(text));
    if (f->instead) {
        tci_str_printf(out, "not on the engine that was asked for: %s\n",
                       tci_label_text(f->instead));
    }
    tci_summary_ports(out, f, false, all ? INT32_MAX : (int)TCI_SUMMARY_PORTS);
    tci_summary_ports(out, f, true, all ? INT32_MAX : (int)TCI_SUMMARY_PORTS);
    tci_summary_params(out, f, all ? INT32_MAX : (int)TCI_SUMMARY_PARAMS);
}

TCI_FN void tci_summary_text(tci_str *out, const tc_program *f, const tc_explain_options *o)
{
    const char *text = f->code->explain ? f->code->explain : "";
    tci_summary_begin(out, f, o->all);
    tci_summary_row *rows = tci_heap_get(sizeof(*rows) * (size_t)(f->code->n_kernels + 1));
    tci_reason *reasons = tci_heap_get(sizeof(*reasons) * TCI_SUMMARY_SENTENCES);
    if (!rows || !reasons) {
        out->failed = true;
    } else {
        int n = tci_summary_rows(f, rows);
        if (o->measure_ms > 0) {
            tci_measure_rows(f, rows, n, o->measure_ms);
        }
        if (f->code->device) {
            const char *why = tci_summary_not_recorded(f);
            tci_str_printf(out, "%s%s\n",
                           why ? "is not run as one recorded graph: "
                               : "runs as one recorded graph (CUDA graph)",
                           why ? why : "");
        }
        tci_summary_kernels(out, f, rows, n, o);
        tci_comm_model_text(out, f);
        tci_summary_reason_text(out, f, reasons);
    }
    tci_heap_free(rows);
    tci_heap_free(reasons);
    if (o->all) {
        tci_why_plain(out, text + tci_summary_head(text));
    } else {
        tci_summary_some_lines(out, text, "contractions, and other routes that fit:\n",
                               TCI_SUMMARY_LINES);
        tci_summary_some_lines(out, text, "orders of sums:\n", TCI_SUMMARY_LINES);
        tci_summary_some_lines(out, text, "computed again, for less memory:\n", TCI_SUMMARY_LINES);
    }
    tci_summary_times(out, f);
}

/* ---- JSON ---- */

static void tci_summary_json_port(tci_str *out, const char *name, const tci_code_port *port,
                                  bool first)
{
    tci_str_printf(out, "%s{\"name\":", first ? "" : ",");
    tci_summary_json_text(out, name);
    tci_str_printf(out, ",\"dtype\":\"%s\",\"shape\":[",
                   tci_dtype_get((tc_dtype)port->dtype)->name);
    for (int i = 0; i < port->rank; i++) {
        if (tci_dim_is_known(port->shape[i])) {
            tci_str_printf(out, "%s%lld", i ? "," : "", (long long)tci_dim_known(port->shape[i]));
        } else {
            tci_str_add(out, i ? "," : "");
            tci_summary_json_text(out, TCI_DIM_TEXT(port->shape[i]));
        }
    }
    tci_str_add(out, "]}");
}

static void tci_summary_json_ports(tci_str *out, const tc_program *f)
{
    const tc_program *owner = tci_summary_owner(f);
    for (int what = 0; what < 3; what++) {
        static const char *const names[] = {"inputs", "outputs", "captured"};
        int n = what == 0 ? f->n_inputs : what == 1 ? f->n_outputs : f->n_captured;
        tci_str_printf(out, ",\n\"%s\":[", names[what]);
        for (int i = 0; i < n; i++) {
            const char *name = what == 2      ? tci_summary_captured(f, i)
                               : owner->ports ? owner->ports[what * f->n_inputs + i].name
                                              : "";
            const tci_code_port *ports = what == 1 ? f->code->outputs : f->code->inputs;
            tci_summary_json_port(out, name, &ports[what == 2 ? f->n_inputs + i : i], i == 0);
        }
        tci_str_add(out, "]");
    }
}

static void tci_summary_json_kernel(tci_str *out, const tc_program *f, const tci_summary_row *r,
                                    const tc_explain_options *o, bool first)
{
    const tci_code_kernel *k = &f->code->kernels[r->kernel];
    const tci_origin *at = tci_origin_of(f, r->step);
    tci_str region = {0};
    tci_origin_region_text(&region, tci_origin_region(f, r->step));
    tci_str_printf(out, "%s\n {\"name\":", first ? "" : ",");
    tci_summary_json_text(out, k->symbol);
    tci_str_printf(out, ",\"calls\":%lld,\"%s\":%.1f,\"bytes\":%.0f,\"flops\":%.0f,\"region\":",
                   (long long)r->calls, o->measure_ms > 0 ? "measured_ns" : "model_ns", r->ns,
                   r->bytes, r->flops);
    tci_summary_json_text(out, tci_str_text(&region));
    tci_str_add(out, ",\"file\":");
    tci_summary_json_text(out, at ? tci_label_text(at->file) : "");
    tci_str_printf(out, ",\"line\":%d,\"call\":", at ? at->line : 0);
    tci_summary_json_text(out, at && at->call ? at->call : "");
    tci_str_add(out, ",\"schedule\":");
    tci_summary_json_text(out, k->note);
    tci_str_add(out, "}");
    tci_str_free(&region);
}

static void tci_summary_json_reasons(tci_str *out, const tc_program *f, tci_reason *list)
{
    int n = tci_summary_reasons(f, list, TCI_SUMMARY_SENTENCES);
    for (int i = 0; i < n; i++) {
        tci_str text = {0};
        tci_str_add_n(&text, list[i].text, list[i].length);
        tci_str_add(out, i ? ",\n {\"why\":" : "\n {\"why\":");
        tci_summary_json_text(out, tci_str_text(&text));
        tci_str_printf(out, ",\"count\":%d,\"bytes\":%.0f,\"places\":[", list[i].count,
                       list[i].bytes);
        for (int p = 0; p < list[i].n_places; p++) {
            text.n = 0;
            tci_summary_place(&text, f, &list[i], p);
            tci_str_add(out, p ? "," : "");
            tci_summary_json_text(out, tci_str_text(&text));
        }
        tci_str_add(out, "]}");
        tci_str_free(&text);
    }
}

TCI_FN void tci_summary_json(tci_str *out, const tc_program *f, const tc_explain_options *o)
{
    char hex[33];
    tci_summary_row *rows = tci_heap_get(sizeof(*rows) * (size_t)(f->code->n_kernels + 1));
    tci_reason *reasons = tci_heap_get(sizeof(*reasons) * TCI_SUMMARY_SENTENCES);
    if (!rows || !reasons) {
        out->failed = true;
    } else {
        int n = tci_summary_rows(f, rows);
        if (o->measure_ms > 0) {
            tci_measure_rows(f, rows, n, o->measure_ms);
        }
        int shown = tci_summary_sort(f, rows, n, o->sort, o->most ? o->most : -1);
        tci_str_add(out, "{\"program\":");
        tci_summary_json_text(out, tci_program_name(f, hex));
        tci_str_printf(out, ",\"backend\":\"%s\",\"launches\":%d,\"workspace_bytes\":%lld",
                       f->code->backend, f->code->n_steps - f->code->n_init,
                       (long long)tci_code_workspace(f->code));
        tci_summary_json_ports(out, f);
        tci_str_add(out, ",\n\"kernels\":[");
        for (int i = 0; i < shown; i++) {
            tci_summary_json_kernel(out, f, &rows[i], o, i == 0);
        }
        tci_str_add(out, "],\n\"not_fused\":[");
        tci_summary_json_reasons(out, f, reasons);
        tci_str_add(out, "]}\n");
    }
    tci_heap_free(rows);
    tci_heap_free(reasons);
}

/* ---- calls ---- */

TC_API tc_status tc_explain_as(const tc_program *f, FILE *out, const tc_explain_options *options)
{
    static const tc_explain_options defaults;
    const tc_explain_options *o = options ? options : &defaults;
    if (!f || !out) {
        return TC_ERR_ARGUMENT;
    }
    f = tci_later_current((tc_program *)(uintptr_t)f);
    tci_fpenv caller = tci_fpenv_enter();
    tci_str text = {0};
    (o->json ? tci_summary_json : tci_summary_text)(&text, f, o);
    bool failed = text.failed;
    fputs(failed ? "" : tci_str_text(&text), out);
    tci_str_free(&text);
    tci_fpenv_leave(caller);
    return failed ? TC_ERR_MEMORY : ferror(out) ? TC_ERR_IO : TC_OK;
}

TC_API tc_status tc_explain(const tc_program *f, FILE *out)
{
    return tc_explain_as(f, out, NULL);
}

TCI_FN void tci_summary_announce(const tc_program *f, const char *op, tc_site here)
{
    const char *path = tci_env_get(TCI_ENV_EXPLAIN);
    if (!path) {
        return;
    }
    FILE *out = !strcmp(path, "-") ? stderr : fopen(path, "ae");
    if (!out) {
        tci_log(&f->options, "compile", "TC_EXPLAIN: '%s' cannot be written: %s", path,
                strerror(errno));
        return;
    }
    char hex[33];
    tci_str text = {0};
    tci_str_printf(&text, "== program %s, made by %s", tci_program_name(f, hex), op);
    if (here.file) {
        tci_str_printf(&text, " at %s:%d", tci_origin_base(here.file), here.line);
    }
    tci_str_add(&text, "\n");
    if (f->from_memory) {
        tci_str_add(&text, "as before\n");
    } else {
        tci_summary_text(&text, f, &(tc_explain_options){.all = false});
    }
    fputs(tci_str_text(&text), out);
    tci_str_free(&text);
    if (out != stderr) {
        fclose(out);
    }
}
