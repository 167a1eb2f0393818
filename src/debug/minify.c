/* debug/minify.c - minimizes a failure to a small program that fails in the same way.
 *
 * In: a program, and the failure. Out: a file of C (debug/repro.c), and a line that names it.
 *
 * Design: a test case is reduced step by step, and a step is kept only if the rest still fails in
 * the same way: the nodes of the failing kernel alone, with the values that they read; then fewer
 * nodes (an earlier node as the result, a node replaced by its value, a node removed); then smaller
 * sizes; then simpler numbers. Each try is a compile and a run with the same check, in this
 * process; a kernel that crashes does so in a child (debug/kernel_check.c). */
#include "minify.h"

#include <string.h>

#include "../base/alloc.h"
#include "../base/private_dir.h"
#include "string_intern.h"
#include "repro.h"

#ifndef TC_NO_DEBUG

enum { TCI_MINIFY_TRIES = 300 };
static const int64_t tci_minify_ns = (int64_t)40 * 1000000000; /* for all tries together */

typedef struct tci_minify {
    tci_scratch *s;
    tc_options o;
    const char *dir; /* options.dump_dir, or "": the current directory */
    int kind;        /* TC_CHECK_...; 0: the compile fails */
    tc_status status;
    int tries;
    int64_t deadline;
} tci_minify;

/* Whether the case fails as the program did. */
static bool tci_minify_fails(tci_minify *m, const tci_case *k)
{
    int kind = 0;
    if (m->tries++ >= TCI_MINIFY_TRIES || tci_os_now_ns() > m->deadline) {
        return false;
    }
    tc_status status = tci_case_try(m->s, k, &m->o, m->kind != 0, &kind);
    return m->kind ? kind == m->kind : status == m->status;
}

static bool tci_minify_take(tci_minify *m, tci_case *k, tci_case smaller)
{
    bool fails = tci_minify_fails(m, &smaller);
    if (fails) {
        *k = smaller;
    }
    return fails;
}

/* ---- fewer nodes ---- */

/* The smallest earlier result that fails. */
static bool tci_minify_root(tci_minify *m, tci_case *k)
{
    for (int i = 0; i < k->root; i++) {
        const tci_case_node *n = &k->nodes[i];
        bool plain = !tci_case_is_leaf(n) && n->op != TCI_OP_REPEAT && n->op != TCI_OP_BOUND;
        if (plain && tci_minify_take(m, k, tci_case_cut(m->s, k, i, NULL))) {
            return true;
        }
    }
    return false;
}

/* Nodes become the numbers that they compute: many at once, then fewer. */
static bool tci_minify_leaves(tci_minify *m, tci_case *k)
{
    bool any = false;
    for (int chunk = TCI_MAX(k->n / 2, 1); chunk; chunk /= 2) {
        for (int first = 0; first < k->root; first += chunk) {
            bool *cut = TCI_NEW_ARRAY(m->s, bool, k->n + 1);
            int n = 0;
            for (int i = first; i < k->root && i < first + chunk; i++) {
                bool known = k->nodes[i].known || !m->kind;
                cut[i] = !tci_case_is_leaf(&k->nodes[i]) && known;
                n += cut[i];
            }
            if (n && tci_minify_take(m, k, tci_case_cut(m->s, k, k->root, cut))) {
                any = true;
                first = -chunk; /* numbers have changed */
            }
        }
    }
    return any;
}

/* A node is left out: its users take one of its operands. */
static bool tci_minify_skip(tci_minify *m, tci_case *k)
{
    for (int i = 0; i < k->root; i++) {
        const tci_case_node *n = &k->nodes[i];
        for (int j = 0; j < n->n_in && !tci_case_is_leaf(n); j++) {
            const tci_case_node *x = &k->nodes[n->in[j]];
            bool same = x->dtype == n->dtype && x->rank == n->rank &&
                        !memcmp(x->shape, n->shape, sizeof(*n->shape) * (size_t)n->rank);
            if (!same) {
                continue;
            }
            tci_case without = *k;
            without.nodes = tci_scratch_copy(m->s, k->nodes, sizeof(*k->nodes) * (size_t)k->n);
            for (int u = i + 1; u < k->n; u++) {
                tci_case_node *user = &without.nodes[u];
                user->in = tci_scratch_copy(m->s, user->in,
                                            sizeof(*user->in) * (size_t)(user->n_in + 1));
                user->known = NULL;
                for (int p = 0; p < user->n_in; p++) {
                    user->in[p] = user->in[p] == i ? n->in[j] : user->in[p];
                }
            }
            if (tci_minify_take(m, k, tci_case_cut(m->s, &without, without.root, NULL))) {
                return true;
            }
        }
    }
    return false;
}

/* ---- smaller sizes ---- */

/* The leading part of a leaf's elements. */
static const char *tci_minify_slice(tci_minify *m, const tci_case_node *from,
                                    const tci_case_node *to)
{
    if (!from->data) {
        return NULL;
    }
    int64_t strides[32], stride = 1;
    size_t bytes = (size_t)tci_dtype_get((tc_dtype)from->dtype)->bytes;
    for (int i = from->rank - 1; i >= 0 && from->rank <= 32; i--) {
        strides[i] = stride;
        stride *= from->shape[i];
    }
    char *data = from->rank <= 32 ? tci_scratch_get(m->s, (size_t)tci_case_bytes(to) + 64) : NULL;
    if (data && tci_case_bytes(to)) {
        tci_case_copy(data, from->data, bytes, to->rank, to->shape, strides);
    }
    return data;
}

/* Every size `was` is `now` instead; the verifier says whether that is a program. */
static tci_case tci_minify_resized(tci_minify *m, const tci_case *k, int64_t was, int64_t now)
{
    tci_case to = *k;
    to.nodes = tci_scratch_copy(m->s, k->nodes, sizeof(*k->nodes) * (size_t)k->n);
    for (int i = 0; i < to.n; i++) {
        tci_case_node *n = &to.nodes[i];
        n->shape = tci_scratch_copy(m->s, n->shape, sizeof(*n->shape) * (size_t)(n->rank + 1));
        for (int d = 0; d < n->rank; d++) {
            n->shape[d] = n->shape[d] == was ? now : n->shape[d];
        }
        n->known = NULL;
        n->data = n->op == TCI_OP_INPUT ? tci_minify_slice(m, &k->nodes[i], n) : NULL;
    }
    return to;
}

static bool tci_minify_sizes(tci_minify *m, tci_case *k)
{
    static const int64_t small[] = {1, 2, 3, 4, 8, 16, 17, 32, 33, 64};
    bool any = false;
    for (int i = 0; i < k->n; i++) {
        for (int d = 0; d < k->nodes[i].rank; d++) {
            int64_t was = k->nodes[i].shape[d];
            bool done = was <= 1;
            for (int t = 0; t < TCI_COUNT(small) && !done && small[t] < was; t++) {
                done = tci_minify_take(m, k, tci_minify_resized(m, k, was, small[t]));
                any |= done;
            }
            for (int64_t half = was / 2; half > 64 && !done; half /= 2) {
                done = tci_minify_take(m, k, tci_minify_resized(m, k, was, half));
                any |= done;
            }
        }
    }
    return any;
}

/* ---- simpler numbers ---- */

static void tci_minify_data(tci_minify *m, tci_case *k)
{
    for (int i = 0; i < k->n; i++) {
        if (k->nodes[i].op != TCI_OP_INPUT || !k->nodes[i].data) {
            continue;
        }
        for (int way = 0; way < 2; way++) { /* zeros; the first element everywhere */
            tci_case to = *k;
            to.nodes = tci_scratch_copy(m->s, k->nodes, sizeof(*k->nodes) * (size_t)k->n);
            tci_case_node *n = &to.nodes[i];
            int64_t size = tci_dtype_get((tc_dtype)n->dtype)->bytes, bytes = tci_case_bytes(n);
            if (way == 1) {
                char *data = tci_scratch_get(m->s, (size_t)bytes + 64);
                for (int64_t at = 0; at < bytes; at += size) {
                    memcpy(data + at, n->data, (size_t)size);
                }
                n->data = data;
            } else {
                n->data = NULL;
            }
            if (tci_minify_take(m, k, to)) {
                break;
            }
        }
    }
}

/* ---- the whole ---- */

static void tci_minify_shrink(tci_minify *m, tci_case *k)
{
    for (bool any = true; any && tci_os_now_ns() < m->deadline;) {
        any = tci_minify_root(m, k);
        any = tci_minify_leaves(m, k) || any;
        any = tci_minify_skip(m, k) || any;
    }
    while (tci_minify_sizes(m, k)) {
    }
    if (m->kind) {
        tci_minify_data(m, k);
    }
}

/* Makes the folder, if it is not there; else publishing a file in it says why not. */
static void tci_minify_make_dir(const char *path)
{
    tci_dir dir;
    tci_str why = {0};
    if (*path && tci_dir_open(&dir, path, TCI_DIR_NOTES, &why)) {
        tci_dir_close(&dir);
    }
    tci_str_free(&why);
}

/* Writes the case and says where. */
static void tci_minify_write(tci_minify *m, const tci_case *k, const char *why, tci_str *text)
{
    char hex[33];
    tci_str program = {0}, path = {0}, whole = {0};
    (void)tci_repro_text(&whole, k, &m->o, m->kind, "", why);
    tci_hash_hex(tci_hash_bytes(tci_str_text(&whole), whole.n), hex);
    hex[8] = 0;
    tci_str_printf(&path, "%s/tc_repro_%s.c", *m->dir ? m->dir : ".", hex);
    tci_minify_make_dir(m->dir);
    const char *file = strrchr(tci_str_text(&path), '/');
    bool can = tci_repro_text(&program, k, &m->o, m->kind, file ? file + 1 : "", why);
    if (!can) {
        int odd = 0;
        while (odd < k->root && tci_repro_can(k, odd)) {
            odd++;
        }
        tci_str_printf(text, "; no program was written: no call makes its '%s' alone",
                       tci_op_name(k->nodes[odd].op));
    } else if (!path.failed && !program.failed &&
               tci_os_publish(path.text, program.text, program.n, NULL)) {
        int64_t most = 0;
        for (int i = 0; i < k->n; i++) {
            most = TCI_MAX(most, tci_case_bytes(&k->nodes[i]) /
                                     tci_dtype_get((tc_dtype)k->nodes[i].dtype)->bytes);
        }
        int nodes = tci_case_size(k);
        tci_str_printf(text, "; wrote %s (%d node%s, %lld element%s)", path.text, nodes,
                       nodes == 1 ? "" : "s", (long long)most, most == 1 ? "" : "s");
    } else {
        tci_str_printf(text, "; '%s' cannot be written", tci_str_text(&path));
    }
    tci_str_free(&program);
    tci_str_free(&whole);
    tci_str_free(&path);
}

/* Options of a try: those of the program, the check alone, and no cache on disk. */
static tc_options tci_minify_options(const tc_options *from, const char *backend, const char *cc,
                                     int kind)
{
    return (tc_options){.backend = backend,
                        .device = from->device,
                        .math = from->math,
                        .fallback = TC_FALLBACK_REFUSE,
                        .threads = 1,
                        .vector_bits = from->vector_bits,
                        .matrix = from->matrix,
                        .reproducible = from->reproducible,
                        .fusion = from->fusion,
                        .remat = from->remat,
                        .cc = cc,
                        .cc_timeout_s = from->cc_timeout_s,
                        .no_disk_cache = true,
                        .check = kind | TC_CHECK_NO_FILE};
}

/* The nodes of the failing kernel alone, or all of the program. */
static bool tci_minify_begin(tci_minify *m, const tc_program *f, int at, tci_case *k)
{
    const tci_code_step *step = &f->code->steps[at];
    bool *cut = TCI_NEW_ARRAY(m->s, bool, k->n + 1);
    int last = -1;
    tci_case whole = *k;
    for (int i = 0; i < k->n; i++) {
        cut[i] = k->nodes[i].known != NULL;
    }
    for (int i = 0; i < step->n_origins; i++) {
        int32_t number = step->origins[i];
        if (number < k->n && !tci_case_is_leaf(&k->nodes[number])) {
            cut[number] = false;
            last = TCI_MAX(last, number);
        }
    }
    for (int i = 0; i < k->n; i++) { /* numbers stay what they are */
        const tci_case_node *n = &k->nodes[i];
        bool moves = n->op == TCI_OP_EXPAND || n->op == TCI_OP_RESHAPE;
        if (moves && (k->nodes[n->in[0]].op == TCI_OP_LITERAL || !cut[n->in[0]])) {
            cut[i] = false;
        }
    }
    for (int root = last; root >= 0; root = root == last && last < k->root ? k->root : -1) {
        *k = tci_case_cut(m->s, &whole, root, cut);
        if (tci_minify_fails(m, k)) {
            return true;
        }
    }
    *k = tci_case_cut(m->s, &whole, whole.root, NULL);
    return tci_minify_fails(m, k);
}

/* Memory of the captured leaves: a run that failed leaves parameters as they were. */
static void tci_minify_captured(const tc_program *f, const char **captured)
{
    for (int i = 0; i < f->n_captured; i++) {
        const tci_storage *s = f->captured[i];
        captured[i] = s->param ? s->data : f->captured_data[i];
    }
}

static void tci_minify_run_in(tci_minify *m, tc_call *c, tci_str *text)
{
    const tc_program *f = c->program;
    const char **captured = TCI_NEW_ARRAY(m->s, const char *, f->n_captured + 1);
    tci_case k;
    tci_minify_captured(f, captured);
    tci_case_memory memory = {.literals = f->literals,
                              .inputs = (const char *const *)c->check_inputs,
                              .captured = captured};
    bool read = f->key_graph && c->check_inputs &&
                tci_case_read(m->s, f->code->key, f->code->key_bytes, f->key_graph, &memory, &k);
    if (!read) {
        tci_str_add(text, "; no program is written of one with symbolic sizes");
        return;
    }
    (void)tci_case_compute(m->s, &k);
    if (!tci_minify_begin(m, f, c->check_step, &k)) {
        tci_str_add(text, "; by itself it does not fail again, so no program was written");
        return;
    }
    tci_minify_shrink(m, &k);
    tci_minify_write(m, &k, tci_str_text(text), text);
}

TCI_FN void tci_minify_run(tc_call *c)
{
    tci_scratch s;
    tci_str text = {0};
    const tc_program *f = c->program;
    int kind = c->check_kind;
    tci_minify m = {.s = &s, .kind = kind, .deadline = tci_os_now_ns() + tci_minify_ns};
    if (!kind || f->options.check & TC_CHECK_NO_FILE) {
        return;
    }
    m.o = tci_minify_options(&f->options, f->code->backend, f->cc ? tci_label_text(f->cc) : NULL,
                             kind);
    m.dir = tci_label_text(f->dump_dir);
    tci_str_add(&text, c->last.text);
    tci_scratch_init(&s);
    if (setjmp(s.escape) == 0) {
        tci_minify_run_in(&m, c, &text);
    } else {
        tci_str_printf(&text, "; no program was written: %s", s.message);
    }
    tci_scratch_free(&s);
    tci_call_refuse(c, TC_ERR_CHECK, "%s", tci_str_text(&text));
    tci_str_free(&text);
}

TCI_FN void tci_minify_compile(const tci_request *r, const tc_options *o, tc_status status,
                               tci_str *text)
{
    tci_scratch s;
    tci_case k;
    tci_case_memory memory = {0};
    bool wanted = o->check && !(o->check & TC_CHECK_NO_FILE);
    tci_minify m = {.s = &s, .status = status, .deadline = tci_os_now_ns() + tci_minify_ns};
    if (!wanted || (status != TC_ERR_COMPILER && status != TC_ERR_INTERNAL)) {
        return;
    }
    m.o = tci_minify_options(o, o->backend ? o->backend : "cpu", o->cc, 0);
    m.dir = o->dump_dir ? o->dump_dir : "";
    tci_scratch_init(&s);
    if (setjmp(s.escape) == 0) {
        bool read = tci_case_read(&s, r->key, r->key_bytes, r->key_graph, &memory, &k);
        k = read ? tci_case_cut(&s, &k, k.root, NULL) : k;
        if (read && tci_minify_fails(&m, &k)) {
            tci_minify_shrink(&m, &k);
            tci_minify_write(&m, &k, tc_status_text(status), text);
        }
    }
    tci_scratch_free(&s);
}

#else

TCI_FN void tci_minify_run(tc_call *c)
{
    (void)c;
}

TCI_FN void tci_minify_compile(const tci_request *r, const tc_options *o, tc_status status,
                               tci_str *text)
{
    (void)r, (void)o, (void)status, (void)text;
}

#endif
