/* graph/print.c - prints a graph as text, for dumps, golden tests and error reports.
 *
 * In: roots. Out: one line per node, inputs first, numbered in that order. The text is
 * deterministic across processes (no addresses, no ids). A line reads %2 = reduce-row f32 [3] (%1)
 * {1}: inputs in parentheses, attributes in braces. The last line lists the roots. The second form
 * is Graphviz. */
#include "side_table.h"

#include <inttypes.h>

enum { TCI_PRINT_SHAPE_TEXT = 400 };

/* The nodes that are printed, and of each its position among them. */
typedef struct tci_print {
    tci_node_list list;
    tci_table numbers; /* of int */
} tci_print;

static tci_print tci_print_begin(tci_scratch *s, tci_node *const *roots, int n_roots)
{
    tci_print p = {tci_graph_sort(s, roots, n_roots), tci_table_in(s, sizeof(int))};
    for (int i = 0; i < p.list.n; i++) {
        *(int *)tci_table_at(&p.numbers, p.list.items[i]) = i;
    }
    return p;
}

static int tci_print_number(const tci_print *p, const tci_node *n)
{
    return *(const int *)tci_table_item(&p->numbers, n);
}

static void tci_graph_print_value(tci_str *out, const tci_node *n)
{
    if (tci_dtype_is_float((tc_dtype)n->dtype)) {
        tci_str_printf(out, " = %.17g", n->value.f);
    } else if (n->dtype == TC_U64) {
        tci_str_printf(out, " = %" PRIu64, n->value.u);
    } else {
        tci_str_printf(out, " = %" PRId64, n->value.i);
    }
}

/* Names are the user's: everything but plain characters is printed as an octal escape. */
static void tci_print_name(tci_str *out, const char *name)
{
    tci_str_add(out, " \"");
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c >= ' ' && c < 127 && c != '"' && c != '\\') {
            tci_str_add_n(out, name, 1);
        } else {
            tci_str_printf(out, "\\%03o", c);
        }
    }
    tci_str_add(out, "\"");
}

static void tci_print_words(tci_str *out, const char *open, const int64_t *words, int n,
                            const char *close)
{
    tci_str_add(out, open);
    for (int i = 0; i < n; i++) {
        tci_str_add(out, i ? ", " : "");
        tci_dim_print(out, words[i]);
    }
    tci_str_add(out, close);
}

static void tci_print_attrs(tci_str *out, const char *open, const tci_node *n)
{
    tci_str_add(out, open);
    for (int i = 0; i < n->n_attr; i++) {
        tci_str_add(out, i ? ", " : "");
        if (tci_attr_is_dim(tci_op_attr(n->op, n->n_attr, i))) {
            tci_dim_print(out, n->attr[i]);
        } else {
            tci_str_printf(out, "%" PRId64, n->attr[i]);
        }
    }
    tci_str_add(out, "}");
}

/* Prints a node without its inputs. */
static void tci_print_facts(tci_str *out, const tci_node *n)
{
    char shape[TCI_PRINT_SHAPE_TEXT];
    tci_graph_print_shape(shape, sizeof(shape), n->rank, n->shape);
    tci_str_printf(out, "%s %s %s", tci_op_name(n->op), tci_dtype_get((tc_dtype)n->dtype)->name,
                   shape);
}

static void tci_print_details(tci_str *out, const tci_node *n)
{
    if (n->n_attr) {
        tci_print_attrs(out, " {", n);
    }
    if (tci_op_is(n->op, TCI_IS_NUMBER)) {
        tci_graph_print_value(out, n);
    }
    if (n->name) {
        tci_print_name(out, n->name);
    }
    if (n->strides) {
        tci_print_words(out, " strides (", tci_dim_words(n->strides), n->rank, ")");
        tci_str_printf(out, " offset %" PRId64, n->offset);
    }
}

TCI_FN void tci_graph_print(tci_str *out, tci_scratch *s, tci_node *const *roots, int n_roots)
{
    tci_print p = tci_print_begin(s, roots, n_roots);
    for (int i = 0; i < p.list.n; i++) {
        const tci_node *n = p.list.items[i];
        tci_str_printf(out, "%%%d = ", i);
        tci_print_facts(out, n);
        for (int k = 0; k < n->n_in; k++) {
            tci_str_printf(out, "%s%%%d", k ? ", " : " (", tci_print_number(&p, n->in[k]));
        }
        tci_str_add(out, n->n_in ? ")" : "");
        tci_print_details(out, n);
        tci_str_add(out, "\n");
    }
    tci_str_add(out, "out");
    for (int i = 0; i < n_roots; i++) {
        tci_str_printf(out, "%s%%%d", i ? ", " : " ", tci_print_number(&p, roots[i]));
    }
    tci_str_add(out, "\n");
}

TCI_FN void tci_graph_print_dot(tci_str *out, tci_scratch *s, tci_node *const *roots, int n_roots)
{
    tci_print p = tci_print_begin(s, roots, n_roots);
    tci_str_add(out, "digraph tc {\n    node [shape=box, fontname=monospace];\n");
    for (int i = 0; i < p.list.n; i++) {
        const tci_node *n = p.list.items[i];
        tci_str_printf(out, "    n%d [label=\"", i);
        tci_print_facts(out, n);
        if (n->n_attr) {
            tci_print_attrs(out, "\\n{", n);
        }
        tci_str_add(out, "\"];\n");
        for (int k = 0; k < n->n_in; k++) {
            tci_str_printf(out, "    n%d -> n%d;\n", tci_print_number(&p, n->in[k]), i);
        }
    }
    for (int i = 0; i < n_roots; i++) {
        tci_str_printf(out, "    out%d [shape=plaintext];\n    n%d -> out%d;\n", i,
                       tci_print_number(&p, roots[i]), i);
    }
    tci_str_add(out, "}\n");
}
