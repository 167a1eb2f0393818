/* compile/step_list.c - builds the list of steps that a run of a program executes (launches,
 * copies, loops, waits), and prints it as text.
 *
 * In: compiled code with its launches, inputs and outputs. Out: its list (compile/compiled_code.h).
 *
 * On the host, and on devices that work on host memory, a run consists of launches only. On a
 * device with its own memory three queues overlap: inputs are uploaded while kernels of an earlier
 * run execute, and outputs are downloaded while those of a later run do. The init section has one
 * queue; captured memory is uploaded in both lists, since a call may have its own copy. */
#include "compiled_code.h"

/* Rows are counted first, where there is no memory for them yet. */
typedef struct tci_list_maker {
    tci_list_step *rows;
    int32_t n;
} tci_list_maker;

static void tci_list_add(tci_list_maker *m, tci_list_kind kind, tci_queue_role queue, int32_t begin,
                         int32_t end)
{
    if (m->rows) {
        m->rows[m->n] = (tci_list_step){(uint8_t)kind, (uint8_t)queue, begin, end};
    }
    m->n++;
}

/* Later steps of queue `to` wait for all steps of `from` so far. */
static void tci_list_order(tci_list_maker *m, tci_queue_role from, tci_queue_role to, int32_t event)
{
    tci_list_add(m, TCI_LIST_SIGNAL, from, event, event + 1);
    tci_list_add(m, TCI_LIST_WAIT, to, event, event + 1);
}

static bool tci_list_faults(const tci_code *c)
{
    bool faults = false;
    for (int32_t t = c->n_init; t < c->n_steps; t++) {
        faults |= c->kernels[c->steps[t].kernel].faults;
    }
    return faults;
}

/* Returns how many rows the init section has. */
static int32_t tci_list_make(tci_list_maker *m, const tci_code *c)
{
    bool moves = c->device && c->device->alloc;
    if (moves && c->n_init && c->n_user_inputs < c->n_inputs) {
        tci_list_add(m, TCI_LIST_UPLOAD, TCI_QUEUE_WORK, c->n_user_inputs, c->n_inputs);
    }
    if (c->n_init) {
        tci_list_add(m, TCI_LIST_LAUNCH, TCI_QUEUE_WORK, 0, c->n_init);
    }
    int32_t n_init = m->n;
    if (moves && c->n_inputs) {
        tci_list_add(m, TCI_LIST_UPLOAD, TCI_QUEUE_UP, 0, c->n_inputs);
        tci_list_order(m, TCI_QUEUE_UP, TCI_QUEUE_WORK, 0);
    }
    if (c->n_init < c->n_steps) {
        tci_list_add(m, TCI_LIST_LAUNCH, TCI_QUEUE_WORK, c->n_init, c->n_steps);
    }
    bool faults = tci_list_faults(c), sets = moves && c->n_user_outputs < c->n_outputs;
    if (faults) {
        tci_list_add(m, TCI_LIST_CHECK, TCI_QUEUE_WORK, 0, 0);
    }
    if (moves && c->n_user_outputs) {
        tci_list_order(m, TCI_QUEUE_WORK, TCI_QUEUE_DOWN, 1);
        tci_list_add(m, TCI_LIST_DOWNLOAD, TCI_QUEUE_DOWN, 0, c->n_user_outputs);
    }
    if (sets && !faults) {
        tci_list_add(m, TCI_LIST_CHECK, TCI_QUEUE_WORK, 0, 0);
    }
    if (sets) {
        tci_list_add(m, TCI_LIST_SET, TCI_QUEUE_WORK, 0, c->n_outputs - c->n_user_outputs);
    }
    return n_init;
}

TCI_FN bool tci_code_list(tci_code *c)
{
    tci_list_maker m = {NULL, 0};
    tci_list_make(&m, c);
    m.rows = c->list = tci_code_get(c, sizeof(*c->list) * (size_t)TCI_MAX(m.n, 1));
    c->n_list = m.n;
    m.n = 0;
    c->n_init_section = c->list ? tci_list_make(&m, c) : 0;
    return c->list != NULL;
}

/* ---- memory ---- */

TCI_FN int64_t tci_code_own(const tci_code *c, const tci_code_step *step)
{
    return c->device ? (tci_dim_known(c->kernels[step->kernel].work_bytes) + 63) / 64 * 64 : 0;
}

TCI_FN int64_t tci_code_workspace(const tci_code *c)
{
    int64_t own = 0;
    for (int32_t i = 0; i < c->n_steps && !c->n_symbols; i++) {
        own += tci_code_own(c, &c->steps[i]);
    }
    return own ? (c->arena_bytes + 63) / 64 * 64 + own : c->arena_bytes;
}

/* ---- text ---- */

static void tci_list_print_buffer(tci_str *out, const tci_code *c, int32_t buffer)
{
    const tci_code_buffer *b = &c->buffers[buffer];
    switch ((tci_buffer_kind)b->kind) {
    case TCI_BUF_INPUT: tci_str_printf(out, "input%d", (int)b->index); break;
    case TCI_BUF_OUTPUT: tci_str_printf(out, "output%d", (int)b->index); break;
    case TCI_BUF_TEMP:
        tci_str_printf(out, "temp%d at %lld", (int)buffer, (long long)b->offset);
        break;
    case TCI_BUF_KEPT:
        tci_str_printf(out, "kept%d at %lld", (int)buffer, (long long)b->offset);
        break;
    }
}

static void tci_list_print_launch(tci_str *out, const tci_code *c, int32_t t)
{
    const tci_code_step *step = &c->steps[t];
    const tci_code_kernel *k = &c->kernels[step->kernel];
    tci_str_printf(out, "    %d. %s(", (int)t, k->symbol);
    for (int32_t o = 0; o < k->n_operands; o++) {
        tci_str_printf(out, "%s%s ", o ? ", " : "", k->writes[o] ? "write" : "read");
        tci_list_print_buffer(out, c, step->operands[o]);
        if (step->offsets[o] != 0) {
            tci_str_printf(out, " from %s", TCI_DIM_TEXT(step->offsets[o]));
        }
    }
    for (int32_t l = 0; l < k->n_literals; l++) {
        tci_str_printf(out, "%s literal%d", l || k->n_operands ? "," : "", (int)step->literals[l]);
    }
    tci_str_printf(out, ")%s\n", k->faults ? " may fault" : "");
}

/* Loops that begin with launch t. */
static void tci_list_print_repeats(tci_str *out, const tci_code *c, int32_t t)
{
    for (int32_t i = 0; i < c->n_repeats; i++) {
        const tci_code_repeat *r = &c->repeats[i];
        if (r->first == t) {
            tci_str_printf(out, "    %s%s rounds of %d to %d\n", r->stops >= 0 ? "up to " : "",
                           TCI_DIM_TEXT(r->rounds), (int)t, (int)r->last - 1);
        }
    }
}

TCI_FN void tci_code_print(tci_str *out, const tci_code *c)
{
    static const char *const names[] = {
#define TCI_ROW(id, name, counts) name,
        TCI_LIST_ROWS(TCI_ROW)
#undef TCI_ROW
    };
    static const char *const counted[] = {
#define TCI_ROW(id, name, counts) counts,
        TCI_LIST_ROWS(TCI_ROW)
#undef TCI_ROW
    };
    static const char *const queues[] = {"up", "work", "down"};
    for (int32_t i = 0; i < c->n_list; i++) {
        const tci_list_step *row = &c->list[i];
        if (i == 0 || i == c->n_init_section) {
            tci_str_add(out, i < c->n_init_section ? "once:\n" : "run:\n");
        }
        tci_str_printf(out, "  %s: %s", queues[row->queue], names[row->kind]);
        if (counted[row->kind]) {
            tci_str_printf(out, " %s %d", counted[row->kind], (int)row->begin);
        }
        if (row->end > row->begin + 1) {
            tci_str_printf(out, " to %d", (int)row->end - 1);
        }
        tci_str_add(out, "\n");
        for (int32_t t = row->begin; row->kind == TCI_LIST_LAUNCH && t < row->end; t++) {
            tci_list_print_repeats(out, c, t);
            tci_list_print_launch(out, c, t);
        }
    }
    tci_str_printf(out, "workspace %lld bytes, kept %lld bytes\n", (long long)tci_code_workspace(c),
                   (long long)c->kept_bytes);
}

TCI_FN int64_t tci_code_rounds(const tci_code *c, int t)
{
    int64_t rounds = 1;
    for (int i = 0; i < c->n_repeats; i++) {
        const tci_code_repeat *r = &c->repeats[i];
        bool within = r->first <= t && t < r->last && r->stops < 0;
        rounds *= within ? tci_dim_hint(r->rounds) : 1;
    }
    return rounds;
}
