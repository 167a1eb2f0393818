/* graph/einsum.c - matmul and einsum as CONTRACT nodes.
 *
 * In: operands, and the labels of their axes. Out: CONTRACT nodes (graph/node.h) between movement
 * ops.
 *
 * Design: every axis has a label, a small int. An axis of size 1 whose counterpart is longer loses
 * its label (a RESHAPE), so broadcasting needs no copy and CONTRACT sees equal sizes only. A label
 * that repeats within one operand (a diagonal) becomes a RESHAPE and a strided SLICE. An axis that
 * only one operand has and the result lacks is summed before the product.
 *
 * Operands of einsum are contracted left to right. In f16 and bf16 several nodes would round
 * several times, so expressions of more than one node are computed in f32 and rounded once. */
#include "build.h"

#include <inttypes.h>
#include <string.h>

enum { TCI_CONTRACT_LETTERS = 52 };

/* A tensor with a label per axis; labels is kept by the caller and changes as axes go. */
typedef struct tci_contract_term {
    tci_node *node;
    int64_t *labels;
    int n; /* equals node->rank once the node is known */
} tci_contract_term;

TCI_FN int tci_build_label(const int64_t *labels, int64_t n, int64_t label)
{
    for (int i = 0; i < n; i++) {
        if (labels[i] == label) {
            return i;
        }
    }
    return -1;
}

/* ---- the node ---- */

static bool tci_contract_sizes(tci_graph *g, const tci_contract_term *a, const tci_contract_term *b,
                               int rank_out, const int64_t *labels_out, tci_dim *shape)
{
    for (int i = 0; i < a->n; i++) {
        int j = tci_build_label(b->labels, b->n, a->labels[i]);
        if (j >= 0 && a->node->shape[i] != b->node->shape[j]) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "shapes %s and %s do not fit: axis %d of the first is %s, axis %d of "
                           "the second is %s%s",
                           TCI_SHAPE_TEXT(a->node), TCI_SHAPE_TEXT(b->node), i,
                           TCI_DIM_TEXT(a->node->shape[i]), j, TCI_DIM_TEXT(b->node->shape[j]),
                           TCI_UNEQUAL_NOTE(a->node->shape[i], b->node->shape[j]));
            return false;
        }
    }
    for (int i = 0; i < rank_out; i++) {
        int in_a = tci_build_label(a->labels, a->n, labels_out[i]);
        int in_b = tci_build_label(b->labels, b->n, labels_out[i]);
        if (in_a < 0 && in_b < 0) {
            tci_graph_fail(g, TC_ERR_ARGUMENT, "axis %d of the result stands in neither operand",
                           i);
            return false;
        }
        shape[i] = in_a >= 0 ? a->node->shape[in_a] : b->node->shape[in_b];
    }
    return true;
}

/* Writes the attributes: labels renumbered in the order of their first use, so equal contractions
 * are one node whatever letters they were written with. */
static void tci_contract_attr(const tci_contract_term *a, const tci_contract_term *b, int rank_out,
                              const int64_t *labels_out, int64_t *attr, int64_t *names)
{
    int n_names = 0, at = 3;
    const int64_t *lists[3] = {a->labels, b->labels, labels_out};
    const int counts[3] = {a->n, b->n, rank_out};
    for (int k = 0; k < 3; k++) {
        attr[k] = counts[k];
        for (int i = 0; i < counts[k]; i++) {
            int label = tci_build_label(names, n_names, lists[k][i]);
            if (label < 0) {
                label = n_names;
                names[n_names++] = lists[k][i];
            }
            attr[at++] = label;
        }
    }
}

static tci_node *tci_contract_pair(tci_graph *g, const tci_contract_term *a,
                                   const tci_contract_term *b, int rank_out,
                                   const int64_t *labels_out)
{
    int total = a->n + b->n + rank_out;
    tci_words w;
    int64_t *attr = tci_words_get(g, &w, 3 + 2 * total + rank_out);
    if (!attr) {
        return NULL;
    }
    int64_t *names = attr + 3 + total;
    tci_dim *shape = (tci_dim *)(names + total);
    tci_node *in[2] = {a->node, b->node};
    tc_dtype dtype = tci_dtype_promote(g->promotion, (tc_dtype)a->node->dtype,
                                       (tc_dtype)b->node->dtype);
    if (!tci_contract_sizes(g, a, b, rank_out, labels_out, shape)) {
        return tci_words_put(g, &w, NULL);
    }
    if (dtype == TC_BOOL) {
        tci_graph_fail(g, TC_ERR_DTYPE,
                       "bool has no products of sums: expected integers or floats (tc_cast makes "
                       "them)");
        return tci_words_put(g, &w, NULL);
    }
    tci_contract_attr(a, b, rank_out, labels_out, attr, names);
    in[0] = tci_build_cast(g, in[0], dtype);
    in[1] = tci_build_cast(g, in[1], dtype);
    if (!in[0] || !in[1] || !tci_build_check_shape(g, rank_out, shape, dtype)) {
        return tci_words_put(g, &w, NULL);
    }
    return tci_words_put(
        g, &w, tci_graph_node(g, TCI_OP_CONTRACT, dtype, rank_out, shape, 2, in, 3 + total, attr));
}

TCI_FN tci_node *tci_build_contract(tci_graph *g, tci_node *a, const int *labels_a, tci_node *b,
                                    const int *labels_b, int rank_out, const int *labels_out)
{
    if (!a || !b) {
        return NULL;
    }
    tci_words w;
    int64_t *labels = tci_words_get(g, &w, a->rank + b->rank + rank_out);
    if (!labels) {
        return NULL;
    }
    tci_contract_term ta = {a, labels, a->rank}, tb = {b, labels + a->rank, b->rank};
    int64_t *out = tb.labels + b->rank;
    for (int i = 0; i < a->rank; i++) {
        ta.labels[i] = labels_a[i];
    }
    for (int i = 0; i < b->rank; i++) {
        tb.labels[i] = labels_b[i];
    }
    for (int i = 0; i < rank_out; i++) {
        out[i] = labels_out[i];
    }
    return tci_words_put(g, &w, tci_contract_pair(g, &ta, &tb, rank_out, out));
}

/* ---- terms ---- */

/* Takes away axis `at`, which has size 1. */
static bool tci_contract_drop_axis(tci_graph *g, tci_contract_term *t, int at)
{
    t->node = tci_build_squeeze(g, t->node, at);
    t->n--;
    memmove(t->labels + at, t->labels + at + 1, (size_t)(t->n - at) * sizeof(*t->labels));
    return t->node != NULL;
}

/* Axes of size 1 that meet a longer one under the same label in `other` go. */
static bool tci_contract_broadcast(tci_graph *g, tci_contract_term *t,
                                   const tci_contract_term *other)
{
    for (int i = t->n - 1; i >= 0; i--) {
        int j = tci_build_label(other->labels, other->n, t->labels[i]);
        if (j >= 0 && t->node->shape[i] == 1 && other->node->shape[j] != 1 &&
            !tci_contract_drop_axis(g, t, i)) {
            return false;
        }
    }
    return true;
}

/* Sums the axes that `keep` says false for. */
static bool tci_contract_sum(tci_graph *g, tci_contract_term *t, const bool *drop, int n_drop)
{
    tc_dtype dtype = (tc_dtype)t->node->dtype;
    if (!n_drop) {
        return true;
    }
    if (dtype == TC_BOOL) {
        tci_graph_fail(g, TC_ERR_DTYPE,
                       "bool has no sums here: expected integers or floats (tc_cast makes them)");
        return false;
    }
    tci_words w;
    int *axes = tci_words_ints(g, &w, n_drop);
    if (!axes) {
        return false;
    }
    int n_axes = 0, n_kept = 0;
    for (int i = 0; i < t->n; i++) {
        if (drop[i]) {
            axes[n_axes++] = i;
        } else {
            t->labels[n_kept++] = t->labels[i];
        }
    }
    tc_axes list = {axes, n_axes, false};
    t->n = n_kept;
    t->node = tci_build_cast(g, tci_build_reduce(g, TCI_OP_SUM, t->node, list, false), dtype);
    return tci_words_put(g, &w, t->node) != NULL;
}

/* Axes i < j of one label become their diagonal, as the last axis. */
static bool tci_contract_diagonal(tci_graph *g, tci_contract_term *t, int i, int j)
{
    tci_dim size = t->node->shape[i];
    int64_t label = t->labels[i];
    int n = t->n;
    if (size != t->node->shape[j]) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "a repeated label needs equal sizes: axis %d is %s, axis %d is %s%s", i,
                       TCI_DIM_TEXT(size), j, TCI_DIM_TEXT(t->node->shape[j]),
                       TCI_UNEQUAL_NOTE(size, t->node->shape[j]));
        return false;
    }
    tci_words w, v;
    int *order = tci_words_ints(g, &w, n);
    if (!order) {
        return false;
    }
    tci_dim *shape = tci_words_dims(g, &v, n);
    if (!shape) {
        tci_words_put(g, &w, NULL);
        return false;
    }
    int at = 0;
    for (int d = 0; d < n; d++) {
        if (d != i && d != j) {
            t->labels[at] = t->labels[d];
            shape[at] = t->node->shape[d];
            order[at++] = d;
        }
    }
    order[n - 2] = i;
    order[n - 1] = j;
    shape[n - 2] = tci_dim_mul(size, size);
    t->labels[n - 2] = label;
    t->n = n - 1;
    tci_node *flat = tci_build_reshape(g, tci_build_permute(g, t->node, n, order), n - 1, shape);
    t->node = tci_build_slice(g, flat, -1, 0, INT64_MAX, tci_dim_add(size, 1));
    tci_words_put(g, &v, NULL);
    return tci_words_put(g, &w, t->node) != NULL;
}

static bool tci_contract_diagonals(tci_graph *g, tci_contract_term *t)
{
    for (int i = 0; i < t->n; i++) {
        int j = tci_build_label(t->labels + i + 1, t->n - i - 1, t->labels[i]);
        if (j >= 0) {
            if (!tci_contract_diagonal(g, t, i, i + 1 + j)) {
                return false;
            }
            i = -1;
        }
    }
    return true;
}

/* ---- matmul ---- */

/* Labels: batch axes count from the right as 3, 4, ...; 0 the rows of a, 1 the summed axis, 2 the
 * columns of b. */
static void tci_contract_matmul_labels(tci_contract_term *t, int64_t row, int64_t column)
{
    int n = t->n;
    for (int i = 0; i + 2 < n; i++) {
        t->labels[i] = 3 + (n - 3 - i);
    }
    t->labels[n - 1] = n > 1 ? column : 1;
    if (n > 1) {
        t->labels[n - 2] = row;
    }
}

TCI_FN tci_node *tci_build_matmul(tci_graph *g, tci_node *a, tci_node *b)
{
    if (!a || !b) {
        return NULL;
    }
    if (!a->rank || !b->rank) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the %s operand is 0-d: expected at least one axis",
                       a->rank ? "second" : "first");
        return NULL;
    }
    tci_words w;
    int64_t *labels = tci_words_get(g, &w, a->rank + b->rank + a->rank + b->rank);
    if (!labels) {
        return NULL;
    }
    tci_contract_term ta = {a, labels, a->rank}, tb = {b, labels + a->rank, b->rank};
    int64_t *out = tb.labels + b->rank;
    tci_contract_matmul_labels(&ta, 0, 1);
    tci_contract_matmul_labels(&tb, 1, 2);
    tci_dim inner_a = a->shape[a->rank - 1], inner_b = b->shape[b->rank > 1 ? b->rank - 2 : 0];
    if (inner_a != inner_b) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "shapes %s and %s do not fit: axis %d of the first is %s, axis %d of the "
                       "second is %s%s",
                       TCI_SHAPE_TEXT(a), TCI_SHAPE_TEXT(b), a->rank - 1, TCI_DIM_TEXT(inner_a),
                       b->rank > 1 ? b->rank - 2 : 0, TCI_DIM_TEXT(inner_b),
                       TCI_UNEQUAL_NOTE(inner_a, inner_b));
        return tci_words_put(g, &w, NULL);
    }
    int rank = 0;
    for (int i = TCI_MAX(a->rank, b->rank) - 3; i >= 0; i--) {
        out[rank++] = 3 + i;
    }
    if (a->rank > 1) {
        out[rank++] = 0;
    }
    if (b->rank > 1) {
        out[rank++] = 2;
    }
    /* The summed axes are equal, so size 1 is never dropped there. */
    if (!tci_contract_broadcast(g, &ta, &tb) || !tci_contract_broadcast(g, &tb, &ta)) {
        return tci_words_put(g, &w, NULL);
    }
    return tci_words_put(g, &w, tci_contract_pair(g, &ta, &tb, rank, out));
}

TCI_FN tci_node *tci_build_matmul_wide(tci_graph *g, tci_node *a, tci_node *b)
{
    const tci_node *n = tci_build_matmul(g, a, b);
    return !n ? NULL
              : tci_graph_node(g, TCI_OP_CONTRACT,
                               (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute, n->rank,
                               n->shape, 2, n->in, n->n_attr, n->attr);
}

/* ---- einsum ---- */

typedef struct tci_contract_parse {
    tci_graph *g;
    const char *spec;
    const char *next;
} tci_contract_parse;

static bool tci_contract_bad_spec(const tci_contract_parse *p, const char *why)
{
    tci_graph_fail(p->g, TC_ERR_ARGUMENT, "\"%.80s\": %s at character %d", p->spec, why,
                   (int)(p->next - p->spec) + 1);
    return false;
}

static int tci_contract_letter(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    return c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}

static bool tci_contract_is_dots(const char *p)
{
    return p[0] == '.' && p[1] == '.' && p[2] == '.';
}

/* Reads one operand's or the result's labels: letters, spaces, at most one "...", which stands for
 * `n_dots` axes labelled TCI_CONTRACT_LETTERS + distance from the right. Stops at ',', '-' or the
 * end. labels NULL: only counts the letters and says whether there are dots. */
static bool tci_contract_read_labels(tci_contract_parse *p, int n_dots, int64_t *labels,
                                     int *n_letters, bool *dots)
{
    int n = 0;
    *n_letters = 0;
    *dots = false;
    for (; *p->next && *p->next != ',' && *p->next != '-'; p->next++) {
        int letter = tci_contract_letter(*p->next);
        if (*p->next == ' ') {
            continue;
        }
        if (letter >= 0) {
            if (labels) {
                labels[n] = letter;
            }
            n++;
            (*n_letters)++;
            continue;
        }
        if (!tci_contract_is_dots(p->next) || *dots) {
            return tci_contract_bad_spec(p, "expected a letter, \"...\" once, ',' or \"->\"");
        }
        *dots = true;
        p->next += 2;
        for (int i = 0; labels && i < n_dots; i++) {
            labels[n++] = TCI_CONTRACT_LETTERS + n_dots - 1 - i;
        }
    }
    return true;
}

/* The result's labels where the spec has no "->": the dots, then in alphabetical order every letter
 * that occurs once. */
static int tci_contract_implicit(const tci_contract_term *terms, int n_terms, int max_dots,
                                 int64_t *out)
{
    int n = 0;
    for (int i = max_dots - 1; i >= 0; i--) {
        out[n++] = TCI_CONTRACT_LETTERS + i;
    }
    for (int64_t letter = 0; letter < TCI_CONTRACT_LETTERS; letter++) {
        int uses = 0;
        for (int t = 0; t < n_terms; t++) {
            for (int i = 0; i < terms[t].n; i++) {
                uses += terms[t].labels[i] == letter;
            }
        }
        if (uses == 1) {
            out[n++] = letter;
        }
    }
    return n;
}

static bool tci_contract_parse_inputs(tci_contract_parse *p, tci_contract_term *terms, int n,
                                      int *max_dots)
{
    *max_dots = 0;
    for (int t = 0; t < n; t++) {
        int n_letters;
        bool dots;
        const char *start = p->next;
        if (!tci_contract_read_labels(p, 0, NULL, &n_letters, &dots)) {
            return false;
        }
        int n_dots = terms[t].node->rank - n_letters;
        if (n_dots < 0 || (n_dots && !dots)) {
            tci_graph_fail(p->g, TC_ERR_SHAPE,
                           "\"%.80s\": operand %d has rank %d, its labels say %s%d", p->spec, t + 1,
                           terms[t].node->rank, dots ? "at least " : "", n_letters);
            return false;
        }
        p->next = start;
        if (!tci_contract_read_labels(p, n_dots, terms[t].labels, &n_letters, &dots)) {
            return false;
        }
        *max_dots = TCI_MAX(*max_dots, n_dots);
        if (t + 1 < n && *p->next != ',') {
            tci_graph_fail(p->g, TC_ERR_ARGUMENT, "\"%.80s\" names %d operands: given %d", p->spec,
                           t + 1, n);
            return false;
        }
        p->next += t + 1 < n;
    }
    return *p->next != ',' || tci_contract_bad_spec(p, "more operands are named than given");
}

static bool tci_contract_parse_output(tci_contract_parse *p, const tci_contract_term *terms, int n,
                                      int max_dots, int64_t *out, int *rank)
{
    if (!*p->next) {
        *rank = tci_contract_implicit(terms, n, max_dots, out);
        return true;
    }
    if (p->next[0] != '-' || p->next[1] != '>') {
        return tci_contract_bad_spec(p, "expected \"->\"");
    }
    p->next += 2;
    int n_letters;
    bool dots;
    const char *start = p->next;
    if (!tci_contract_read_labels(p, max_dots, NULL, &n_letters, &dots)) {
        return false;
    }
    if (*p->next) {
        return tci_contract_bad_spec(p, "unexpected text after the result");
    }
    if (n_letters > TCI_CONTRACT_LETTERS) {
        return tci_contract_bad_spec(p, "a label stands twice in the result");
    }
    p->next = start;
    *rank = n_letters + (dots ? max_dots : 0);
    tci_contract_read_labels(p, max_dots, out, &n_letters, &dots);
    for (int i = 0; i < *rank; i++) {
        bool known = false;
        for (int t = 0; t < n && !known; t++) {
            known = tci_build_label(terms[t].labels, terms[t].n, out[i]) >= 0;
        }
        if (!known || tci_build_label(out, i, out[i]) >= 0) {
            tci_graph_fail(p->g, TC_ERR_ARGUMENT, "\"%.80s\": label %d of the result stands %s",
                           p->spec, i + 1, known ? "there twice" : "in no operand");
            return false;
        }
    }
    return true;
}

/* Sums those axes of t that no other part needs: not the result, and none of terms[0, n) but t
 * itself. */
static bool tci_contract_sum_own(tci_graph *g, tci_contract_term *t, const tci_contract_term *terms,
                                 int n, const int64_t *out, int rank)
{
    tci_words w;
    bool *drop = tci_words_flags(g, &w, t->n);
    if (!drop) {
        return false;
    }
    int n_drop = 0;
    for (int i = 0; i < t->n; i++) {
        bool needed = tci_build_label(out, rank, t->labels[i]) >= 0;
        for (int k = 0; k < n && !needed; k++) {
            needed = &terms[k] != t &&
                     tci_build_label(terms[k].labels, terms[k].n, t->labels[i]) >= 0;
        }
        drop[i] = !needed;
        n_drop += !needed;
    }
    bool ok = tci_contract_sum(g, t, drop, n_drop);
    tci_words_put(g, &w, NULL);
    return ok;
}

/* The single remaining term in the result's axis order. */
static tci_node *tci_contract_finish(tci_graph *g, tci_contract_term *t, const int64_t *out,
                                     int rank)
{
    if (!tci_contract_sum_own(g, t, NULL, 0, out, rank)) {
        return NULL;
    }
    tci_words w;
    int *order = tci_words_ints(g, &w, rank);
    if (!order) {
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        order[i] = tci_build_label(t->labels, t->n, out[i]);
    }
    return tci_words_put(g, &w, tci_build_permute(g, t->node, rank, order));
}

/* terms[0] = terms[0] * terms[1], keeping what the result or terms[2, n) need. room: labels for the
 * product, used in turn with terms[0]'s own. */
static bool tci_contract_step(tci_graph *g, tci_contract_term *terms, int n, const int64_t *out,
                              int rank, int64_t *room)
{
    tci_contract_term *a = &terms[0], *b = &terms[1];
    if (!tci_contract_broadcast(g, a, b) || !tci_contract_broadcast(g, b, a) ||
        !tci_contract_sum_own(g, a, terms, n, out, rank) ||
        !tci_contract_sum_own(g, b, terms, n, out, rank)) {
        return false;
    }
    int n_labels = 0;
    if (n == 2) {
        memcpy(room, out, (size_t)rank * sizeof(*out));
        n_labels = rank;
    }
    for (int s = 0; n > 2 && s < 2; s++) {
        for (int i = 0; i < terms[s].n; i++) {
            int64_t label = terms[s].labels[i];
            bool needed = tci_build_label(out, rank, label) >= 0;
            for (int k = 2; k < n && !needed; k++) {
                needed = tci_build_label(terms[k].labels, terms[k].n, label) >= 0;
            }
            if (needed && tci_build_label(room, n_labels, label) < 0) {
                room[n_labels++] = label;
            }
        }
    }
    tci_node *product = tci_contract_pair(g, a, b, n_labels, room);
    memcpy(a->labels, room, (size_t)n_labels * sizeof(*room));
    a->node = product;
    a->n = n_labels;
    for (int i = 1; i + 1 < n; i++) {
        terms[i] = terms[i + 1];
    }
    return product != NULL;
}

/* Whether more than one node will round: several products, or a sum before the product. */
static bool tci_contract_rounds_twice(const tci_contract_term *terms, int n, const int64_t *out,
                                      int rank)
{
    for (int t = 0; n == 2 && t < n; t++) {
        const tci_contract_term *own = &terms[t], *other = &terms[1 - t];
        for (int i = 0; i < own->n; i++) {
            int j = tci_build_label(other->labels, other->n, own->labels[i]);
            bool shared = j >= 0 && other->node->shape[j] == own->node->shape[i];
            if (!shared && tci_build_label(out, rank, own->labels[i]) < 0) {
                return true;
            }
        }
    }
    return n > 2;
}

static bool tci_contract_widen(tci_graph *g, tci_contract_term *terms, int n, tc_dtype dtype,
                               bool twice)
{
    tc_dtype wide = tci_dtype_is_half(dtype) && twice ? TC_F32 : dtype;
    for (int t = 0; t < n; t++) {
        terms[t].node = tci_build_cast(g, terms[t].node, wide);
        if (!terms[t].node || !tci_contract_diagonals(g, &terms[t])) {
            return false;
        }
    }
    return true;
}

static tci_node *tci_contract_einsum(tci_graph *g, const char *spec, tci_contract_term *terms,
                                     int n, int64_t *out, int64_t *room)
{
    tci_contract_parse p = {g, spec, spec};
    int max_dots, rank;
    if (!tci_contract_parse_inputs(&p, terms, n, &max_dots) ||
        !tci_contract_parse_output(&p, terms, n, max_dots, out, &rank)) {
        return NULL;
    }
    tc_dtype dtype = (tc_dtype)terms[0].node->dtype;
    for (int t = 1; t < n; t++) {
        dtype = tci_dtype_promote(g->promotion, dtype, (tc_dtype)terms[t].node->dtype);
    }
    bool twice = tci_contract_rounds_twice(terms, n, out, rank);
    if (!tci_contract_widen(g, terms, n, dtype, twice)) {
        return NULL;
    }
    for (; n > 1; n--) {
        if (!tci_contract_step(g, terms, n, out, rank, room)) {
            return NULL;
        }
    }
    return tci_build_cast(g, tci_contract_finish(g, &terms[0], out, rank), dtype);
}

TCI_FN tci_node *tci_build_einsum(tci_graph *g, const char *spec, tci_node *const *xs, int n)
{
    if (!spec || n < 1) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "%s",
                       spec ? "no operands are given" : "the specification is NULL");
        return NULL;
    }
    int total = 0, max_rank = 0;
    for (int t = 0; t < n; t++) {
        if (!xs[t]) {
            return NULL;
        }
        max_rank = TCI_MAX(max_rank, xs[t]->rank);
        total += xs[t]->rank;
    }
    /* The product of two terms never has more labels than letters and dots. */
    int most = TCI_CONTRACT_LETTERS + max_rank;
    const size_t bytes = (size_t)n * sizeof(tci_contract_term);
    tci_contract_term *terms = tci_graph_resize(g, NULL, 0, bytes);
    tci_words w;
    int64_t *out = terms ? tci_words_get(g, &w, total + 3 * most) : NULL;
    tci_node *r = NULL;
    if (out) {
        int64_t *room = out + most, *rest = out + 2 * most;
        for (int t = 0; t < n; t++) {
            terms[t] = (tci_contract_term){xs[t], rest, xs[t]->rank};
            rest += t ? xs[t]->rank : most;
        }
        r = tci_words_put(g, &w, tci_contract_einsum(g, spec, terms, n, out, room));
    }
    if (terms) {
        tci_graph_resize(g, terms, bytes, 0);
    }
    return r;
}
