/* emit/grouped_launch.c - prints several kernels as one function: grouped launches (horizontal
 * fusion), and loops whose iterations run inside one launch.
 *
 * In: the loop IR of a grouped launch (a joint). Out: a function for each member kernel, and a
 * dispatcher, which maps a task number to its member by a table. The table has, for each member,
 * its first task, where its operands and literals start, and its function, so a further member is
 * a further row. The text is C in every dialect, except for what precedes a function
 * (tci_dialect.head).
 *
 * In: the loop IR of an in-kernel loop (loop/grouped_launch.c). Out: a function for each distinct
 * member, inlined into the one that calls it, and the function with the loop. Its arrays are the
 * local scalars (c0, c1, ...) and each member's words (l0, l1, ...: literals, then symbolic
 * numbers); their addresses are not passed on, so the compiler keeps them in registers where it
 * can.
 *
 * On GPUs local scalars are in shared memory, thread 0 moves carries, and a barrier follows each
 * member and each such move. */
#include "dialect.h"
#include "../loop/ir.h"

static const char *tci_grouped_symbol(tci_dialect *d, const char *symbol, int member)
{
    return tci_scratch_printf(d->s, "%s_%d", symbol, member);
}

static void tci_grouped_table(tci_dialect *d, tci_str *out, const tci_loop *l, const char *symbol)
{
    tci_str_printf(out, "%s%s %s_table[%d][4] = {", d->table_word, d->type(d, TC_I64, 1), symbol,
                   l->n_members + 1);
    for (int i = 0; i <= l->n_members; i++) {
        const tci_loop_member *m = &l->members[TCI_MIN(i, l->n_members - 1)];
        bool end = i == l->n_members;
        tci_str_printf(out, "%s{%lld, %d, %d, %d}",
                       i % 4 ? ", "
                       : i   ? ",\n    "
                             : "\n    ",
                       (long long)(end ? tci_dim_known(l->n_tasks) : m->first_task),
                       end ? 0 : (int)m->operand, end ? 0 : (int)m->literal,
                       end ? 0 : (int)m->first_same);
    }
    tci_str_add(out, "};\n");
}

static void tci_grouped_call(tci_dialect *d, tci_str *out, const tci_loop *l, const char *symbol,
                             int member)
{
    const tci_loop *of = l->members[member].loop;
    tci_str_printf(out, "        case %d: ", member);
    if (of->threads * of->rows < l->threads) {
        tci_str_printf(out, "if (TC_THREAD >= %d) { TC_SURPLUS; return; } ",
                       of->threads * of->rows);
    }
    const char *operands = "bufs + m[1]";
    if (of->work_bytes != 0) { /* work memory follows a member's own operands */
        operands = "own";
        tci_str_printf(out, "{ void *const own[] = {");
        for (int o = 0; o < of->n_operands; o++) {
            tci_str_printf(out, "bufs[m[1] + %d], ", o);
        }
        tci_str_printf(out, "bufs[%d]}; ", l->n_operands);
    }
    tci_str_printf(out, "%s(%s, lits + m[2], fault, from - m[0], to - m[0]); %sbreak;\n",
                   tci_grouped_symbol(d, symbol, member), operands,
                   of->work_bytes != 0 ? "} " : "");
}

TCI_FN void tci_emit_grouped_launch(tci_str *out, tci_dialect *d, const tci_kernel *k,
                                    const tci_loop *l, const char *symbol)
{
    const char *word = d->type(d, TC_I64, 1);
    for (int i = 0; i < l->n_members; i++) {
        const tci_loop_member *m = &l->members[i];
        if (m->first_same == i) {
            tci_loop of = *m->loop;
            of.is_member = true;
            tci_emit_kernel(out, d, m->kernel, &of, tci_grouped_symbol(d, symbol, i));
        }
    }
    tci_grouped_table(d, out, l, symbol);
    tci_str_printf(out, "/* %s: %s */\n", k->name, l->note);
    d->head(d, out, symbol, l, k->n_literals);
    tci_str_printf(out,
                   "    int low = 0, high = %d;\n"
                   "    while (high - low > 1) {\n"
                   "        const int middle = (low + high) / 2;\n"
                   "        if (%s_table[middle][0] <= task_begin) {\n"
                   "            low = middle;\n        } else {\n            high = middle;\n"
                   "        }\n    }\n"
                   "    for (; %s_table[low][0] < task_end; low++) {\n"
                   "        const %s *m = %s_table[low];\n"
                   "        const %s from = m[0] < task_begin ? task_begin : m[0];\n"
                   "        const %s next = %s_table[low + 1][0];\n"
                   "        const %s to = next < task_end ? next : task_end;\n"
                   "        switch (m[3]) {\n",
                   l->n_members, symbol, symbol, word, symbol, word, word, symbol, word);
    for (int i = 0; i < l->n_members; i++) {
        if (l->members[i].first_same == i) {
            tci_grouped_call(d, out, l, symbol, i);
        }
    }
    tci_str_add(out, "        }\n    }\n");
    d->tail(d, out, symbol, l);
}

/* ---- in-kernel loops ---- */

typedef struct tci_emit_kloop_text {
    tci_dialect *d;
    tci_str *out;
    const tci_kernel *k;
    const tci_loop *l;
    const char *symbol, *word;
    bool blocks;
} tci_emit_kloop_text;

static void tci_emit_kloop_number(const tci_emit_kloop_text *x, tci_dim d)
{
    int i = 0;
    if (tci_dim_is_known(d)) {
        tci_str_printf(x->out, "%lld", (long long)d);
        return;
    }
    while (i < x->l->n_dims && x->l->dims[i] != d) {
        i++;
    }
    TCI_ASSERT(x->d->s, i < x->l->n_dims);
    tci_str_printf(x->out, "n%d", i);
}

/* The address of a place in round t. */
static void tci_emit_kloop_address(const tci_emit_kloop_text *x, const tci_kplace *p)
{
    static const char *const rounds[] = {"t", "(t & 1)", "((t - begin) & 1)"};
    bool is_cell = p->base < 0;
    tci_str_printf(x->out, is_cell ? "(char *)c%d" : "(char *)bufs[%d]",
                   (int)(is_cell ? ~p->base : p->base));
    if (p->offset != 0) {
        tci_str_add(x->out, " + ");
        tci_emit_kloop_number(x, p->offset);
    }
    if (p->by != 0) {
        tci_str_printf(x->out, " + %s * (", rounds[p->step]);
        tci_emit_kloop_number(x, p->by);
        tci_str_add(x->out, ")");
    }
}

static const char *tci_emit_kloop_ctype(const tci_emit_kloop_text *x, int cell)
{
    return tci_dtype_get((tc_dtype)x->k->loop->cells[cell].dtype)->ctype;
}

static void tci_emit_kloop_barrier(const tci_emit_kloop_text *x, int depth)
{
    if (x->blocks) {
        tci_str_printf(x->out, "%*s%s();\n", 4 * depth, "",
                       x->d->mem(x->d, TCI_MEM_BARRIER, TC_F32, TC_F32, 1));
    }
}

/* A row of a carry to its local scalars, or these to the row. */
static void tci_emit_kloop_move(const tci_emit_kloop_text *x, const tci_kplace *row, int cell,
                                bool loads, int depth)
{
    const char *type = tci_emit_kloop_ctype(x, cell);
    tci_str_printf(x->out, "%*s{ %s *r = (%s *)(", 4 * depth, "", type, type);
    tci_emit_kloop_address(x, row);
    tci_str_add(x->out, ");");
    for (int64_t i = 0; i < x->k->loop->cells[cell].n; i++) {
        if (loads) {
            tci_str_printf(x->out, " c%d[%lld] = r[%lld];", cell, (long long)i, (long long)i);
        } else {
            tci_str_printf(x->out, " r[%lld] = c%d[%lld];", (long long)i, cell, (long long)i);
        }
    }
    tci_str_add(x->out, " }\n");
}

static bool tci_emit_kloop_has_cells(const tci_emit_kloop_text *x)
{
    bool has = false;
    for (int i = 0; i < x->k->loop->n_carries; i++) {
        has = has || x->k->loop->carries[i].cell >= 0;
    }
    return has;
}

/* Begins and ends what one thread of a block does for all. */
static void tci_emit_kloop_alone(const tci_emit_kloop_text *x, bool begins, int depth)
{
    if (x->blocks && begins) {
        tci_str_printf(x->out, "%*sif (TC_THREAD == 0) {\n", 4 * depth, "");
    } else if (x->blocks) {
        tci_str_printf(x->out, "%*s}\n", 4 * depth, "");
    }
}

static void tci_emit_kloop_load(const tci_emit_kloop_text *x)
{
    if (!tci_emit_kloop_has_cells(x)) {
        return;
    }
    tci_emit_kloop_alone(x, true, 1);
    for (int i = 0; i < x->k->loop->n_carries; i++) {
        const tci_kcarry *c = &x->k->loop->carries[i];
        if (c->cell >= 0) {
            tci_emit_kloop_move(x, &c->from, c->cell, true, 1);
        }
    }
    tci_emit_kloop_alone(x, false, 1);
    tci_emit_kloop_barrier(x, 1);
}

/* Swaps the buffers of a loop iteration: results of one iteration are read by the next. */
static void tci_emit_kloop_turn(const tci_emit_kloop_text *x)
{
    if (!tci_emit_kloop_has_cells(x)) {
        return;
    }
    tci_emit_kloop_alone(x, true, 2);
    for (int i = 0; i < x->k->loop->n_carries; i++) {
        const tci_kcarry *c = &x->k->loop->carries[i];
        if (c->cell >= 0 && c->to.step == TCI_STEP_WALK) {
            tci_emit_kloop_move(x, &c->to, c->next, false, 2);
        }
        for (int64_t n = 0; c->cell >= 0 && n < x->k->loop->cells[c->cell].n; n++) {
            tci_str_printf(x->out, "        c%d[%lld] = c%d[%lld];\n", (int)c->cell, (long long)n,
                           (int)c->next, (long long)n);
        }
    }
    tci_emit_kloop_alone(x, false, 2);
    tci_emit_kloop_barrier(x, 2);
}

/* The second row of a carry to the first. */
static void tci_emit_kloop_settle(const tci_emit_kloop_text *x, const tci_kcarry *c)
{
    const char *type = tci_dtype_get((tc_dtype)x->k->operands[c->from.base].dtype)->ctype;
    tci_str_printf(x->out, "    for (%s i = %s; i < ((t - begin) & 1) * ", x->word,
                   x->blocks ? "TC_THREAD" : "0");
    tci_emit_kloop_number(x, c->bytes);
    tci_str_printf(x->out, " / (int)sizeof(%s); i += %d) {\n        ((%s *)((char *)bufs[%d] + ",
                   type, x->l->threads, type, (int)c->from.base);
    tci_emit_kloop_number(x, c->from.offset);
    tci_str_printf(x->out, "))[i] = ((%s *)(", type);
    tci_emit_kloop_address(x, &c->from);
    tci_str_add(x->out, "))[i];\n    }\n");
}

static void tci_emit_kloop_store(const tci_emit_kloop_text *x)
{
    if (tci_emit_kloop_has_cells(x)) {
        tci_emit_kloop_alone(x, true, 1);
    }
    for (int i = 0; i < x->k->loop->n_carries; i++) {
        const tci_kcarry *c = &x->k->loop->carries[i];
        tci_kplace row = c->from;
        row.by = row.step == TCI_STEP_ANEW ? 0 : row.by;
        if (c->cell >= 0 && c->from.step != TCI_STEP_WALK) {
            tci_emit_kloop_move(x, &row, c->cell, false, 1);
        }
    }
    if (tci_emit_kloop_has_cells(x)) {
        tci_emit_kloop_alone(x, false, 1);
    }
    for (int i = 0; i < x->k->loop->n_carries; i++) {
        const tci_kcarry *c = &x->k->loop->carries[i];
        if (c->cell < 0 && c->from.step == TCI_STEP_ANEW) {
            tci_emit_kloop_settle(x, c);
        }
    }
}

/* ---- members ---- */

static const char *tci_emit_kloop_symbol(const tci_emit_kloop_text *x, int member)
{
    return tci_scratch_printf(x->d->s, "%s_%d", x->symbol, member);
}

static void tci_emit_kloop_words(const tci_emit_kloop_text *x, int member)
{
    const tci_loop_member *m = &x->l->members[member];
    int n = m->kernel->n_literals, all = n + m->loop->n_dims;
    if (!all) {
        return;
    }
    tci_str_printf(x->out, "    const %s l%d[] = {", x->word, member);
    for (int i = 0; i < all; i++) {
        tci_str_add(x->out, i ? ", " : "");
        if (i < n) {
            tci_str_printf(x->out, "lits[%d]", (int)m->literal + i);
        } else {
            tci_emit_kloop_number(x, m->loop->dims[i - n]);
        }
    }
    tci_str_add(x->out, "};\n");
}

static void tci_emit_kloop_call(const tci_emit_kloop_text *x, int member)
{
    const tci_loop_member *m = &x->l->members[member];
    const tci_kernel *k = m->kernel;
    bool has_words = k->n_literals + m->loop->n_dims > 0, works = m->loop->work_bytes != 0;
    int threads = m->loop->threads * m->loop->rows;
    tci_str_add(x->out, "        ");
    if (x->blocks && threads < x->l->threads) {
        tci_str_printf(x->out, "if (TC_THREAD < %d) ", threads);
    }
    tci_str_add(x->out, "{\n            void *const b[] = {");
    for (int o = 0; o < k->n_operands; o++) {
        tci_str_add(x->out, o ? ",\n                               " : "");
        tci_emit_kloop_address(x, &x->k->loop->places[m->operand + o]);
    }
    if (works) {
        tci_str_printf(x->out, "%sbufs[%d]", k->n_operands ? ", " : "", x->k->n_operands);
    }
    tci_str_add(x->out, "};\n            ");
    if (x->blocks) {
        tci_str_printf(x->out, "for (%s i = 0; i < %lld; i++) ", x->word,
                       (long long)tci_dim_known(m->loop->n_tasks));
    }
    tci_str_printf(x->out, "%s(b, ", tci_emit_kloop_symbol(x, m->first_same));
    tci_str_printf(x->out, has_words ? "l%d" : "0", member);
    tci_str_add(x->out, x->blocks ? ", fault, i, i + 1" : ", fault, 0, ");
    if (!x->blocks) {
        tci_emit_kloop_number(x, m->loop->n_tasks);
    }
    tci_str_add(x->out, ");\n        }\n");
    tci_emit_kloop_barrier(x, 2);
}

static void tci_emit_kloop_open(const tci_emit_kloop_text *x)
{
    const tci_loop *l = x->l;
    int words = x->k->n_literals + l->n_dims;
    tci_str_printf(x->out, "/* %s: %s */\n", x->k->name, l->note);
    x->d->head(x->d, x->out, x->symbol, l, words + (x->blocks ? 2 : 0));
    for (int i = 0; i < l->n_dims; i++) {
        tci_str_printf(x->out, "    const %s n%d = lits[%d];\n", x->word, i, x->k->n_literals + i);
    }
    for (int i = 0; i < l->n_members; i++) {
        tci_emit_kloop_words(x, i);
    }
    for (int i = 0; i < x->k->loop->n_cells; i++) {
        tci_str_printf(x->out, "    %s%s c%d[%lld] __attribute__((aligned(64)));\n",
                       x->d->local_word, tci_emit_kloop_ctype(x, i), i,
                       (long long)x->k->loop->cells[i].n);
    }
    if (x->blocks) {
        tci_str_printf(x->out, "    const %s begin = lits[%d], end = lits[%d];\n", x->word, words,
                       words + 1);
    } else {
        tci_str_printf(x->out, "    const %s begin = task_begin, end = task_end;\n", x->word);
    }
    tci_str_printf(x->out, "    %s t = begin;\n", x->word);
}

TCI_FN void tci_emit_kloop(tci_str *out, tci_dialect *d, const tci_kernel *k, const tci_loop *l,
                           const char *symbol)
{
    tci_emit_kloop_text x = {d, out, k, l, symbol, d->type(d, TC_I64, 1), d->local_word[0] != 0};
    for (int i = 0; i < l->n_members; i++) {
        const tci_loop_member *m = &l->members[i];
        if (m->first_same == i) {
            tci_loop of = *m->loop;
            of.is_member = of.is_inner = true;
            tci_emit_kernel(out, d, m->kernel, &of, tci_emit_kloop_symbol(&x, i));
        }
    }
    tci_emit_kloop_open(&x);
    if (k->loop->n_enter) {
        tci_str_add(out, "    if (begin == 0) {\n");
        for (int i = 0; i < k->loop->n_enter; i++) {
            tci_emit_kloop_call(&x, i);
        }
        tci_str_add(out, "    }\n");
    }
    tci_emit_kloop_load(&x);
    tci_str_add(out, "    for (; t < end; t++) {\n");
    if (k->loop->stops >= 0) {
        tci_str_printf(out, "        if (!c%d[0]) { break; }\n",
                       (int)k->loop->carries[k->loop->stops].cell);
    }
    for (int i = k->loop->n_enter; i < l->n_members; i++) {
        tci_emit_kloop_call(&x, i);
    }
    tci_emit_kloop_turn(&x);
    tci_str_add(out, "    }\n");
    tci_emit_kloop_store(&x);
    d->tail(d, out, symbol, l);
}
