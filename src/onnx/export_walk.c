/* onnx/export_walk.c - traversal of an exported graph in topological order (onnx/export_walk.h). */
#include "export_walk.h"
#include "../api/compile.h"
#include "../graph/loop_node.h"
#include "import.h"

#include <inttypes.h>
#include <string.h>

#include "../base/system_headers.h"

TCI_FN void tci_ox_refuse(const tci_ox_walk *w, const tci_node *n, const char *why)
{
    tci_scratch_fail(w->s, TC_ERR_UNSUPPORTED, "%s, made at %.60s:%d, has no form in %s%s%s",
                     n->call ? n->call : tci_op_name(n->op), n->site.file ? n->site.file : "?",
                     n->site.line, w->format, *why ? ": " : "", why);
}

/* ---- names of nodes ---- */

TCI_FN const char *tci_ox_named(const tci_ox_walk *w, const tci_node *n)
{
    return n->id < w->n_left ? w->left[n->id].name : NULL;
}

static tci_ox_left *tci_ox_left_of(tci_ox_walk *w, const tci_node *n)
{
    if (n->id >= w->n_left) {
        uint32_t room = n->id * 2 + 64;
        tci_ox_left *left = TCI_NEW_ARRAY(w->s, tci_ox_left, room);
        if (w->n_left) {
            memcpy(left, w->left, sizeof(*left) * w->n_left);
        }
        w->left = left;
        w->n_left = room;
    }
    return &w->left[n->id];
}

TCI_FN void tci_ox_set_name(tci_ox_walk *w, const tci_node *n, const char *name)
{
    tci_ox_left_of(w, n)->name = name;
}

TCI_FN const char *tci_ox_input_name(const tci_ox_walk *w, int i)
{
    const char *name = w->input_names ? w->input_names[i] : w->inputs[i]->name;
    bool clear = name && *name;
    for (int j = 0; j < w->n_inputs && clear && !w->input_names; j++) {
        clear = j == i || !w->inputs[j]->name || strcmp(name, w->inputs[j]->name);
    }
    return clear ? tci_scratch_printf(w->s, "%s", name) : tci_scratch_printf(w->s, "input%d", i);
}

TCI_FN bool tci_ox_rows_are_read(const tci_ox_walk *w, const tci_node *repeat)
{
    const tci_repeat r = tci_repeat_of(repeat);
    for (uint32_t i = 0; i < w->graph->n_slots; i++) {
        const tci_node *n = w->graph->slots[i];
        bool reads = n && n->op == TCI_OP_RESULT && n->in[0] == repeat;
        if (reads && n->attr[0] >= r.n_carry + r.n_y) {
            return true;
        }
    }
    return false;
}

/* ---- memory ---- */

TCI_FN const void *tci_ox_memory_of(const tci_ox_walk *w, tci_node *n, int64_t *bytes)
{
    tc_tensor t = tci_handle_make(w->ctx, n, w->here);
    *bytes = tc_nbytes(t);
    if (*bytes < 0) {
        tci_ox_refuse(w, n, "memory of a symbolic size");
    }
    char *data = tci_scratch_get(w->s, (size_t)*bytes + 8);
    tc_status status = tc_read_as_at(t, TC_BUF((void *)data, *bytes), w->here);
    if (status != TC_OK) {
        tci_scratch_fail(w->s, status, "%s", tc_error(t));
    }
    return data;
}

TCI_FN const char *tci_ox_parameter_name(const tci_ox_walk *w, tci_node *n)
{
    const char *name = n->storage && n->storage->param
                           ? tc_name_of(tci_handle_make(w->ctx, n, w->here))
                           : "";
    return *name ? tci_scratch_printf(w->s, "%s", name) : NULL;
}

TCI_FN void tci_ox_put_file(const tci_ox_walk *w, const char *path, const tci_str *bytes)
{
    tci_os_fresh f = {.began = false};
    tci_os_fresh_begin_users(&f, path);
    tci_os_fresh_write(&f, tci_str_text(bytes), bytes->n);
    int code = tci_os_fresh_end(&f, true, true);
    if (code) {
        tci_scratch_fail(w->s, code == ENOMEM ? TC_ERR_MEMORY : TC_ERR_IO,
                         "'%.120s' cannot be written: %s", path, tci_os_fresh_why(code));
    }
}

/* ---- traversal ---- */

/* A list of nodes whose operands must leave before them. */
typedef struct tci_ox_stack {
    tci_node **items;
    int n, cap;
} tci_ox_stack;

/* Operands within a loop's body are the loop's own matter. */
static int tci_ox_n_operands(const tci_node *n)
{
    return tci_node_is_value(n) ? 0 : tci_node_n_outside(n);
}

/* Their names, where all have one; else NULL, and those without are on the stack. */
static const char *const *tci_ox_operands(tci_ox_walk *w, tci_node *n, tci_ox_stack *stack)
{
    tci_node *const *list = n->in;
    int count = w->needs && !tci_node_is_value(n) ? w->needs(w, n, &list) : 0;
    if (!count) {
        list = n->in; /* of a NAMED that leaves as its expansion, that alone */
        count = n->op == TCI_OP_NAMED ? 1 : tci_ox_n_operands(n);
    }
    const char **names = TCI_NEW_ARRAY(w->s, const char *, count + 1);
    bool ready = true;
    for (int i = 0; i < count; i++) {
        names[i] = tci_ox_named(w, list[i]);
        if (!names[i]) {
            TCI_PUSH(w->s, stack->items, stack->n, stack->cap, list[i]);
            ready = false;
        }
    }
    return ready ? names : NULL;
}

/* An expansion leaves in place of its composite: NULL once that has its name. */
static tci_node *tci_ox_expansion(tci_ox_walk *w, tci_node *n)
{
    tci_node *to = tci_ox_left_of(w, n)->expansion;
    if (!to) {
        to = tci_op_is_composite(n->op) ? tci_expand_composite(w->graph, n) : NULL;
        tci_ox_left_of(w, n)->expansion = to;
    }
    if (!to) {
        tci_ox_refuse(w, n, "");
    } else if (tci_ox_named(w, to)) {
        tci_ox_set_name(w, n, tci_ox_named(w, to));
        return NULL;
    }
    return to;
}

static void tci_ox_note(const tci_ox_walk *w, tci_node *n)
{
    const int32_t *place = w->at && w->depth == 1 ? tci_table_find(w->known, n) : NULL;
    if (place && *place) {
        *w->at = n;
    }
}

TCI_FN const char *tci_ox_walk_to(tci_ox_walk *w, tci_node *root)
{
    tci_ox_stack stack = {NULL, 0, 0};
    TCI_PUSH(w->s, stack.items, stack.n, stack.cap, root);
    w->depth++;
    while (stack.n) {
        tci_node *n = stack.items[stack.n - 1], *to;
        if (tci_ox_named(w, n)) {
            stack.n--;
            continue;
        }
        tci_ox_note(w, n);
        const char *const *in = tci_ox_operands(w, n, &stack);
        if (!in) {
            continue;
        }
        const char *name = w->leave(w, n, in);
        if (name) {
            tci_ox_set_name(w, n, name);
        } else if ((to = tci_ox_expansion(w, n)) != NULL) {
            TCI_PUSH(w->s, stack.items, stack.n, stack.cap, to);
        }
    }
    w->depth--;
    return tci_ox_named(w, root);
}

/* ---- public calls ---- */

/* The nodes of a list of handles; false: the frame failed. */
static bool tci_ox_nodes_of(tci_frame *f, tc_tensors list, const char *what, tci_node **nodes,
                            bool are_inputs)
{
    for (int i = 0; i < list.n && !f->failed; i++) {
        nodes[i] = tci_frame_node(f, list.items[i], what);
        if (!f->failed && are_inputs && nodes[i]->op != TCI_OP_INPUT) {
            tci_frame_fail(f, TC_ERR_ARGUMENT, "input %d is no tc_input", i);
        }
    }
    return !f->failed;
}

static void tci_ox_use_all(tci_frame *f, tc_tensors list, const char *what)
{
    tci_frame_list(f, list.items, list.n, what);
    for (int i = 0; i < list.n && !f->failed; i++) {
        tci_frame_use(f, list.items[i]);
    }
}

TCI_FN tc_status tci_ox_export_call(const tci_ox_export *e, tc_site here)
{
    tci_scratch s;
    tci_frame f = tci_frame_begin(e->call, here);
    tci_ox_use_all(&f, e->outputs, "the outputs");
    tci_ox_use_all(&f, e->inputs, "the inputs");
    if (!f.failed && e->outputs.n < 1) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "there are no outputs");
    }
    if (f.failed) {
        return tci_frame_status(&f);
    }
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        tci_frame_fail(&f, s.why, "%s", s.message);
    } else {
        tci_node **in = TCI_NEW_ARRAY(&s, tci_node *, e->inputs.n + 1);
        tci_node **out = TCI_NEW_ARRAY(&s, tci_node *, e->outputs.n + 1);
        if (tci_ox_nodes_of(&f, e->inputs, "an input", in, true) &&
            tci_ox_nodes_of(&f, e->outputs, "an output", out, false)) {
            tci_ox_walk w = {.s = &s,
                             .graph = &f.ctx->graph,
                             .format = e->format,
                             .ctx = f.ctx,
                             .here = here,
                             .inputs = in,
                             .n_inputs = e->inputs.n};
            e->write(&w, out, e->outputs.n, e);
        }
    }
    tci_scratch_free(&s);
    return tci_frame_status(&f);
}
