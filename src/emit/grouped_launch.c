/* emit/grouped_launch.c - grouped launch: the text of several kernels as one function.
 *
 * In: a joint's loop. Out: a function of each of its kernels, and one that finds whose tasks it was
 * given: a table has, for each member, the first of its tasks, where its operands and literals
 * begin, and which function it is. So another member is another row. The text is C, whatever the
 * dialect, but for what stands before a function (tci_dialect.head). */
#include "dialect.h"
#include "../loop/ir.h"

static const char *tci_joint_symbol(tci_dialect *d, const char *symbol, int member)
{
    return tci_scratch_printf(d->s, "%s_%d", symbol, member);
}

static void tci_joint_table(tci_dialect *d, tci_str *out, const tci_loop *l, const char *symbol)
{
    tci_str_printf(out, "%s%s %s_table[%d][4] = {", d->table_word, d->type(d, TC_I64, 1), symbol,
                   l->n_members + 1);
    for (int i = 0; i <= l->n_members; i++) {
        const tci_loop_member *m = &l->members[TCI_MIN(i, l->n_members - 1)];
        bool end = i == l->n_members;
        tci_str_printf(out, "%s{%lld, %d, %d, %d}", i % 4 ? ", " : i ? ",\n    " : "\n    ",
                       (long long)(end ? tci_dim_known(l->n_tasks) : m->first_task),
                       end ? 0 : (int)m->operand, end ? 0 : (int)m->literal,
                       end ? 0 : (int)m->first_same);
    }
    tci_str_add(out, "};\n");
}

static void tci_joint_call(tci_dialect *d, tci_str *out, const tci_loop *l, const char *symbol,
                           int member)
{
    const tci_loop *of = l->members[member].loop;
    tci_str_printf(out, "        case %d: ", member);
    if (of->threads * of->rows < l->threads) {
        tci_str_printf(out, "if (TC_THREAD >= %d) { TC_SURPLUS; return; } ",
                       of->threads * of->rows);
    }
    tci_str_printf(out, "%s(bufs + m[1], lits + m[2], fault, from - m[0], to - m[0]); break;\n",
                   tci_joint_symbol(d, symbol, member));
}

TCI_FN void tci_emit_joint(tci_str *out, tci_dialect *d, const tci_kernel *k, const tci_loop *l,
                           const char *symbol)
{
    const char *word = d->type(d, TC_I64, 1);
    for (int i = 0; i < l->n_members; i++) {
        const tci_loop_member *m = &l->members[i];
        if (m->first_same == i) {
            tci_loop of = *m->loop;
            of.is_member = true;
            tci_emit_kernel(out, d, m->kernel, &of, tci_joint_symbol(d, symbol, i));
        }
    }
    tci_joint_table(d, out, l, symbol);
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
            tci_joint_call(d, out, l, symbol, i);
        }
    }
    tci_str_add(out, "        }\n    }\n");
    d->tail(d, out, symbol, l);
}
