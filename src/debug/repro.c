/* debug/repro.c - writes a captured program as a standalone C program that reproduces its failure.
 *
 * In: a test case. Out: a program of public calls that builds with one command, prints PASS or
 * FAIL, and exits with 0 or 1. Most nodes are written as the call with the name of their op; the
 * exceptions are listed here. */
#include "repro.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#ifndef TC_NO_DEBUG

static void tci_repro_ints(tci_str *out, const int64_t *x, int n, const char *between)
{
    for (int i = 0; i < n; i++) {
        tci_str_printf(out, "%s%" PRId64, i ? between : "", x[i]);
    }
}

static const char *tci_repro_dtype(int dtype)
{
    static const struct {
        int dtype;
        const char *name;
    } names[] = {
#define TCI_ROW(ID, name, ctype, bytes, kind, compute) {ID, #ID},
        TCI_DTYPE_ROWS(TCI_ROW)
#undef TCI_ROW
    };
    int i = 0;
    while (i < TCI_COUNT(names) - 1 && names[i].dtype != dtype) {
        i++;
    }
    return names[i].name;
}

static void tci_repro_number(tci_str *out, const tci_case_node *n)
{
    if (tci_dtype_is_float((tc_dtype)n->dtype)) {
        if (isfinite(n->value.f)) {
            tci_str_printf(out, "%a", n->value.f);
        } else {
            tci_str_add(out, n->value.f != n->value.f ? "NAN"
                             : n->value.f > 0         ? "INFINITY"
                                                      : "-INFINITY");
        }
    } else if (n->dtype == TC_U64) {
        tci_str_printf(out, "UINT64_C(%" PRIu64 ")", n->value.u);
    } else {
        tci_str_printf(out, "INT64_C(%" PRId64 ")", n->value.i);
    }
}

static void tci_repro_operands(tci_str *out, const tci_case_node *n, int first)
{
    for (int i = first; i < n->n_in; i++) {
        tci_str_printf(out, "%st%d", i > first ? ", " : "", n->in[i]);
    }
}

/* One call for each axis that is sliced. */
static void tci_repro_slice(tci_str *out, const tci_case *k, const tci_case_node *n, int number)
{
    const tci_case_node *x = &k->nodes[n->in[0]];
    tci_str_printf(out, "    tc_tensor t%d = t%d;\n", number, n->in[0]);
    for (int a = 0; a < n->rank; a++) {
        int64_t start = n->attr[2 * a], step = n->attr[2 * a + 1], size = n->shape[a];
        if (start == 0 && step == 1 && size == x->shape[a]) {
            continue;
        }
        int64_t last = start + (size - 1) * step;
        tci_str_printf(out, "    t%d = tc_slice(t%d, %d, %" PRId64 ", ", number, number, a, start);
        if (step < 0 && last == 0) {
            tci_str_printf(out, "TC_END, %" PRId64 ");\n", step);
        } else {
            tci_str_printf(out, "%" PRId64 ", %" PRId64 ");\n", last + (step < 0 ? -1 : 1), step);
        }
    }
}

static void tci_repro_pad(tci_str *out, const tci_case *k, const tci_case_node *n, int number)
{
    const tci_case_node *x = &k->nodes[n->in[0]];
    tci_str_printf(out, "    tc_tensor t%d = t%d;\n", number, n->in[0]);
    for (int a = 0; a < n->rank; a++) {
        int64_t before = n->attr[a], after = n->shape[a] - x->shape[a] - before;
        if (before || after) {
            tci_str_printf(out, "    t%d = tc_pad(t%d, %d, %" PRId64 ", %" PRId64 ", t%d);\n",
                           number, number, a, before, after, n->in[1]);
        }
    }
}

/* One call for each axis with windows: node.h has the attributes. */
static void tci_repro_window(tci_str *out, const tci_case_node *n, int number)
{
    tci_str_printf(out, "    tc_tensor t%d = t%d;\n", number, n->in[0]);
    for (int i = 0; i + 3 < n->n_attr; i += 4) {
        tci_str_printf(out, "    t%d = tc_unfold(t%d, %" PRId64 ", %" PRId64 ", %" PRId64 ");\n",
                       number, number, n->attr[i], n->attr[i + 1], n->attr[i + 2]);
    }
}

static bool tci_repro_windows(const tci_case_node *n)
{
    bool dense = true;
    for (int i = 3; i < n->n_attr; i += 4) {
        dense = dense && n->attr[i] == 1; /* tc_unfold has no dilation */
    }
    return dense;
}

/* Calls by tci_mode; NULL: there is none. */
static const char *const tci_repro_scatters[TCI_MODE_COUNT] = {[TCI_MODE_SET] = "scatter",
                                                               [TCI_MODE_ADD] = "scatter_add",
                                                               [TCI_MODE_MIN] = "scatter_min",
                                                               [TCI_MODE_MAX] = "scatter_max",
                                                               [TCI_MODE_MUL] = "scatter_prod"};
static const char *const tci_repro_scans[TCI_MODE_COUNT] = {[TCI_MODE_ADD] = "cumsum",
                                                            [TCI_MODE_MUL] = "cumprod",
                                                            [TCI_MODE_MIN] = "cummin",
                                                            [TCI_MODE_MAX] = "cummax"};

/* A scan from the last element on is one of the flipped axis, flipped. */
static void tci_repro_scan(tci_str *out, const tci_case_node *n, int number)
{
    bool extreme = n->attr[2] == TCI_MODE_MIN || n->attr[2] == TCI_MODE_MAX;
    int axis = (int)n->attr[0];
    tci_str_printf(out, "    tc_tensor t%d = t%d;\n", number, n->in[0]);
    for (int turn = 0; turn < 3; turn++) {
        if (turn != 1 && n->attr[1]) {
            tci_str_printf(out, "    t%d = tc_flip(t%d, %d);\n", number, number, axis);
        } else if (turn == 1 && extreme) {
            tci_str_printf(out, "    tc_%s(t%d, %d, &t%d, NULL);\n", tci_repro_scans[n->attr[2]],
                           number, axis, number);
        } else if (turn == 1) {
            tci_str_printf(out, "    t%d = tc_%s(t%d, %d);\n", number, tci_repro_scans[n->attr[2]],
                           number, axis);
        }
    }
}

/* The sum of squared deviations: the variance times the count. */
static void tci_repro_devsq(tci_str *out, const tci_case *k, const tci_case_node *n, int number)
{
    int64_t count = 1;
    for (int i = 0; i < n->n_attr; i++) {
        count *= k->nodes[n->in[0]].shape[n->attr[i]];
    }
    tci_str_printf(out, "    tc_tensor t%d = tc_mul(tc_var(t%d, TC_AXES(", number, n->in[0]);
    tci_repro_ints(out, n->attr, n->n_attr, ", ");
    tci_str_printf(out, "), 0, false), %" PRId64 ");\n", count);
}

static void tci_repro_layer_norm(tci_str *out, const tci_case_node *n)
{
    int axes = (int)n->attr[0], at = 2;
    tci_str_printf(out, "tc_layer_norm(t%d, TC_AXES(", n->in[0]);
    tci_repro_ints(out, n->attr + 1, axes, ", ");
    tci_str_add(out, ")");
    for (int i = 0; i < 2; i++) { /* weight, bias */
        if (n->attr[1 + axes + i]) {
            tci_str_printf(out, ", t%d", n->in[at++]);
        } else {
            tci_str_add(out, ", TC_NONE");
        }
    }
    tci_str_printf(out, ", t%d)", n->in[1]);
}

static bool tci_repro_letters(const tci_case_node *n)
{
    bool fits = n->attr[0] + n->attr[1] + n->attr[2] + 3 == n->n_attr;
    for (int i = 3; i < n->n_attr; i++) {
        fits = fits && n->attr[i] >= 0 && n->attr[i] < 52;
    }
    return fits;
}

static void tci_repro_contract(tci_str *out, const tci_case_node *n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    const int64_t *label = n->attr + 3;
    tci_str_add(out, "tc_einsum(\"");
    for (int part = 0; part < 3; part++) {
        tci_str_add(out, part == 0 ? "" : part == 1 ? "," : "->");
        for (int i = 0; i < n->attr[part]; i++) {
            tci_str_printf(out, "%c", letters[*label++]);
        }
    }
    tci_str_printf(out, "\", TC_TENSORS(t%d, t%d))", n->in[0], n->in[1]);
}

TCI_FN bool tci_repro_can(const tci_case *k, int node)
{
    const tci_case_node *n = &k->nodes[node];
    if (tci_case_is_leaf(n) || tci_op_is_ew(n->op)) {
        return true;
    }
    if (tci_op_is_reduce(n->op)) {
        return true;
    }
    switch (n->op) {
    case TCI_OP_IOTA:
    case TCI_OP_WHERE:
    case TCI_OP_CAST:
    case TCI_OP_BITCAST:
    case TCI_OP_RESHAPE:
    case TCI_OP_PERMUTE:
    case TCI_OP_EXPAND:
    case TCI_OP_SLICE:
    case TCI_OP_PAD:
    case TCI_OP_CAT:
    case TCI_OP_GATHER:
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX:
    case TCI_OP_MEAN:
    case TCI_OP_LAYER_NORM:
    case TCI_OP_STOP_GRADIENT:
    case TCI_OP_NAMED:
    case TCI_OP_TOPK:
    case TCI_OP_SCATTER:
    case TCI_OP_CROSS_ENTROPY: return true;
    case TCI_OP_WINDOW: return tci_repro_windows(n);
    case TCI_OP_SCAN: return n->n_in == 1 && tci_repro_scans[n->attr[2]];
    case TCI_OP_CONTRACT: return tci_repro_letters(n);
    default: return false;
    }
}

/* The expression of a node that is one call. */
static void tci_repro_call(tci_str *out, const tci_case *k, const tci_case_node *n)
{
    const char *name = tci_op_name(n->op);
    if (tci_op_is(n->op, TCI_IS_ARG)) {
        tci_str_printf(out, "tc_%s(t%d, %" PRId64 ", false)", name, n->in[0], n->attr[0]);
        return;
    }
    if (tci_op_is_reduce(n->op) || n->op == TCI_OP_MEAN) {
        tci_str_printf(out, "tc_%s(t%d, TC_AXES(", name, n->in[0]);
        tci_repro_ints(out, n->attr, n->n_attr, ", ");
        tci_str_add(out, "), false)");
        return;
    }
    switch (n->op) {
    case TCI_OP_IOTA:
        tci_str_printf(out, "tc_arange(ctx, 0, %" PRId64 ", 1, TC_I64)", n->shape[0]);
        return;
    case TCI_OP_CAST:
    case TCI_OP_BITCAST:
        tci_str_printf(out, "tc_%s(t%d, %s)", name, n->in[0], tci_repro_dtype(n->dtype));
        return;
    case TCI_OP_RESHAPE:
    case TCI_OP_EXPAND:
        tci_str_printf(out, n->rank ? "tc_%s(t%d, " : "tc_squeeze_all(", name, n->in[0]);
        tci_repro_ints(out, n->shape, n->rank, ", ");
        tci_str_add(out, ")");
        return;
    case TCI_OP_PERMUTE:
        tci_str_printf(out, "tc_permute(t%d, ", n->in[0]);
        tci_repro_ints(out, n->attr, n->n_attr, ", ");
        tci_str_add(out, ")");
        return;
    case TCI_OP_CAT:
        tci_str_add(out, "tc_cat(TC_TENSORS(");
        tci_repro_operands(out, n, 0);
        tci_str_printf(out, "), %" PRId64 ")", n->attr[0]);
        return;
    case TCI_OP_GATHER:
        tci_str_printf(out, "tc_gather(t%d, %" PRId64 ", t%d)", n->in[0], n->attr[0], n->in[1]);
        return;
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX:
        tci_str_printf(out, "tc_%s(t%d, %" PRId64 ")", name, n->in[0], n->attr[0]);
        return;
    case TCI_OP_SCATTER:
        tci_str_printf(out, "tc_%s(t%d, %" PRId64 ", t%d, t%d)", tci_repro_scatters[n->attr[1]],
                       n->in[0], n->attr[0], n->in[1], n->in[2]);
        return;
    case TCI_OP_NAMED: tci_str_printf(out, "t%d", n->in[0]); return;
    case TCI_OP_LAYER_NORM: tci_repro_layer_norm(out, n); return;
    case TCI_OP_CONTRACT: tci_repro_contract(out, n); return;
    default:
        tci_str_printf(out, "tc_%s(", name);
        tci_repro_operands(out, n, 0);
        tci_str_add(out, ")");
        (void)k;
    }
}

static void tci_repro_node(tci_str *out, const tci_case *k, int number)
{
    const tci_case_node *n = &k->nodes[number];
    const char *dtype = tci_repro_dtype(n->dtype);
    if (n->op == TCI_OP_INPUT) {
        tci_str_printf(out, "    tc_tensor t%d = tc_input(ctx, \"x%d\", %s", number, number, dtype);
        tci_str_add(out, n->rank ? ", " : "");
        tci_repro_ints(out, n->shape, n->rank, ", ");
        tci_str_add(out, ");\n");
    } else if (n->op == TCI_OP_LITERAL || n->op == TCI_OP_CONST) {
        tci_str_printf(out, "    tc_tensor t%d = tc_full(ctx, ", number);
        tci_repro_number(out, n);
        tci_str_printf(out, ", %s);\n", dtype);
    } else if (n->op == TCI_OP_WINDOW) {
        tci_repro_window(out, n, number);
    } else if (n->op == TCI_OP_SCAN) {
        tci_repro_scan(out, n, number);
    } else if (n->op == TCI_OP_DEVSQ) {
        tci_repro_devsq(out, k, n, number);
    } else if (n->op == TCI_OP_TOPK) {
        tci_str_printf(out,
                       "    tc_tensor t%d;\n    tc_topk(t%d, %" PRId64 ", %" PRId64
                       ", %s, NULL, &t%d);\n",
                       number, n->in[0], n->attr[0], n->shape[n->attr[0]],
                       n->attr[1] ? "true" : "false", number);
    } else if (n->op == TCI_OP_SLICE) {
        tci_repro_slice(out, k, n, number);
    } else if (n->op == TCI_OP_PAD) {
        tci_repro_pad(out, k, n, number);
    } else if ((n->op == TCI_OP_RESHAPE || n->op == TCI_OP_EXPAND) && !n->rank) {
        tci_str_printf(out, "    tc_tensor t%d = tc_sum(t%d, TC_ALL, false);\n", number, n->in[0]);
    } else {
        tci_str_printf(out, "    tc_tensor t%d = ", number);
        tci_repro_call(out, k, n);
        tci_str_add(out, ";\n");
    }
}

/* ---- data ---- */

static int64_t tci_repro_count(const tci_case_node *n)
{
    return tci_case_bytes(n) / tci_dtype_get((tc_dtype)n->dtype)->bytes;
}

/* Bits of the elements, in words of their size. */
static void tci_repro_words(tci_str *out, const tci_case_node *n)
{
    int size = tci_dtype_get((tc_dtype)n->dtype)->bytes;
    for (int64_t i = 0; i < tci_repro_count(n); i++) {
        uint64_t word = 0;
        memcpy(&word, n->data + i * size, (size_t)size); /* of little-endian machines */
        tci_str_printf(out, "%s0x%" PRIx64 "%s", i % 8 ? " " : "\n    ", word,
                       size == 8 ? "u," : ",");
    }
}

static bool tci_repro_is_one_value(const tci_case_node *n)
{
    int64_t size = tci_dtype_get((tc_dtype)n->dtype)->bytes, bytes = tci_case_bytes(n);
    return n->data && bytes > size && !memcmp(n->data, n->data + size, (size_t)(bytes - size));
}

static void tci_repro_data(tci_str *out, const tci_case *k)
{
    for (int i = 0; i < k->n; i++) {
        const tci_case_node *n = &k->nodes[i];
        int bits = 8 * tci_dtype_get((tc_dtype)n->dtype)->bytes;
        long long count = (long long)TCI_MAX(tci_repro_count(n), (int64_t)1);
        if (n->op != TCI_OP_INPUT) {
            continue;
        }
        tci_str_printf(out, "static uint%d_t x%d[%lld]", bits, i, count);
        if (n->data && !tci_repro_is_one_value(n) && tci_case_bytes(n)) {
            tci_str_printf(out, " = { /* bits of %s */", tci_dtype_get((tc_dtype)n->dtype)->name);
            tci_repro_words(out, n);
            tci_str_add(out, "\n}");
        }
        tci_str_add(out, ";\n");
    }
    const tci_case_node *root = &k->nodes[k->root];
    tci_str_printf(out, "static uint%d_t y[%lld];\n\n",
                   8 * tci_dtype_get((tc_dtype)root->dtype)->bytes,
                   (long long)TCI_MAX(tci_repro_count(root), (int64_t)1));
}

static void tci_repro_fill(tci_str *out, const tci_case *k)
{
    for (int i = 0; i < k->n; i++) {
        const tci_case_node *n = &k->nodes[i];
        if (n->op == TCI_OP_INPUT && tci_repro_is_one_value(n)) {
            uint64_t word = 0;
            memcpy(&word, n->data, (size_t)tci_dtype_get((tc_dtype)n->dtype)->bytes);
            tci_str_printf(out,
                           "    for (int i = 0; i < %lld; i++) {\n        x%d[i] = 0x%" PRIx64
                           "u;\n    }\n",
                           (long long)tci_repro_count(n), i, word);
        }
    }
}

/* ---- the program ---- */

static void tci_repro_options(tci_str *out, const tc_options *o, int check)
{
    static const struct {
        int flag;
        const char *name;
    } flags[] = {{TC_CHECK_BITS, "TC_CHECK_BITS | "},
                 {TC_CHECK_NAN, "TC_CHECK_NAN | "},
                 {TC_CHECK_INF, "TC_CHECK_INF | "},
                 {TC_CHECK_CRASH, "TC_CHECK_CRASH | "}};
    tci_str_printf(out,
                   "    tc_options o = {.backend = \"%s\", .threads = 1, .no_disk_cache = true",
                   o->backend);
    if (o->cc) {
        tci_str_add(out, ", .cc = \"");
        for (const char *c = o->cc; *c; c++) {
            tci_str_printf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
        }
        tci_str_add(out, "\"");
    }
    if (o->vector_bits) {
        tci_str_printf(out, ", .vector_bits = %d", o->vector_bits);
    }
    if (o->fusion) {
        tci_str_printf(out, ", .fusion = %d", o->fusion);
    }
    tci_str_add(out, o->math == TC_MATH_FAST ? ", .math = TC_MATH_FAST" : "");
    tci_str_add(out, o->reproducible ? ", .reproducible = true" : "");
    tci_str_add(out, ",\n                    .fallback = TC_FALLBACK_REFUSE, .check = ");
    for (int i = 0; i < TCI_COUNT(flags); i++) {
        tci_str_add(out, check & flags[i].flag ? flags[i].name : "");
    }
    tci_str_add(out, "TC_CHECK_NO_FILE};\n");
}

static void tci_repro_bufs(tci_str *out, const tci_case *k)
{
    bool any = false;
    for (int i = 0; i < k->n; i++) {
        const tci_case_node *n = &k->nodes[i];
        if (n->op == TCI_OP_INPUT) {
            tci_str_printf(out, "%s{.data = x%d, .n = %lld, .dtype = %s}", any ? ", " : "", i,
                           (long long)tci_repro_count(n), tci_repro_dtype(n->dtype));
            any = true;
        }
    }
}

static void tci_repro_inputs(tci_str *out, const tci_case *k, int *n)
{
    for (int i = 0; i < k->n; i++) {
        if (k->nodes[i].op == TCI_OP_INPUT) {
            tci_str_printf(out, "%st%d", *n ? ", " : "", i);
            ++*n;
        }
    }
}

TCI_FN bool tci_repro_text(tci_str *out, const tci_case *k, const tc_options *o, int check,
                           const char *file, const char *why)
{
    int n_inputs = 0;
    tci_str inputs = {0};
    tci_repro_inputs(&inputs, k, &n_inputs);
    tci_str_printf(out, "/* %s - written by options.check of tc %s:\n * ", file, TC_VERSION);
    for (const char *c = why; *c; c++) {
        tci_str_printf(out, *c == '*' ? "." : *c == '\n' ? "\n * " : "%c", *c);
    }
    tci_str_printf(out, "\n * cc -I. %s -lm -ldl -lpthread && ./a.out\n */\n", file);
    tci_str_add(out, "#define TC_IMPLEMENTATION\n#include \"tc.h\"\n\n#include <math.h>\n"
                     "#include <stdio.h>\n\n");
    tci_repro_data(out, k);
    tci_str_add(out, "int main(void)\n{\n");
    tci_repro_options(out, o, check);
    tci_str_add(out, "    tc_ctx *ctx;\n    tc_program *f;\n    if (tc_ctx_make(&ctx, &o)) {\n"
                     "        puts(\"no context\");\n        return 2;\n    }\n");
    for (int i = 0; i < k->n; i++) {
        if (!tci_repro_can(k, i)) {
            tci_str_free(&inputs);
            return false;
        }
        tci_repro_node(out, k, i);
    }
    tci_repro_fill(out, k);
    tci_str_printf(out,
                   "    tc_status status = tc_compile_fn(%s%s%s, TC_TENSORS(t%d), NULL, &f);\n",
                   n_inputs ? "TC_TENSORS(" : "((tc_tensors){0})", tci_str_text(&inputs),
                   n_inputs ? ")" : "", k->root);
    tci_str_printf(out,
                   "    if (status) {\n        printf(\"FAIL: %%s\\n\", tc_error(t%d));\n"
                   "        return 1;\n    }\n",
                   k->root);
    tci_str_add(out, "    tc_buf in[] = {");
    tci_repro_bufs(out, k);
    const tci_case_node *root = &k->nodes[k->root];
    tci_str_printf(out,
                   "%s};\n    tc_buf to = {.data = y, .n = %lld, .dtype = %s};\n"
                   "    status = tc_run(f, ((tc_bufs){in, %d}), ((tc_bufs){&to, 1}));\n"
                   "    printf(status ? \"FAIL: %%s\\n\" : \"PASS%%s\\n\", status ? tc_error(f) : "
                   "\"\");\n    return status != TC_OK;\n}\n",
                   n_inputs ? "" : "{0}", (long long)tci_repro_count(root),
                   tci_repro_dtype(root->dtype), n_inputs);
    tci_str_free(&inputs);
    return !out->failed;
}

#endif
