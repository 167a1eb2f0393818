/* loop/grouped_launch.c - grouped launch: the loops of several kernels as one function.
 *
 * In: a joint (kernel/ir.h). Out: the loops of its members, each with a schedule of its own, and
 * where each begins in the tasks, operands and literals of the whole. Members that are one kernel
 * have one loop, so code does not grow with their number.
 *
 * A member gets no work memory, and one without sums none that its block shares: all members have
 * theirs at once. Threads of a block beyond those of a member end before it begins. */
#include "form.h"

#include <string.h>

/* The first so many of a function's blocks of threads are the first member's, and so on. */
static void tci_joint_launch(const tci_loop *l, const tci_launch *launches, tci_launch *launch)
{
    double ns = 0;
    for (int i = 0; i < l->n_members; i++) {
        const tci_launch *member = &launches[i];
        ns += (double)tci_dim_known(member->n_tasks) * member->task_ns;
        launch->call_ns = TCI_MAX(launch->call_ns, member->call_ns);
        launch->lanes = TCI_MAX(launch->lanes, member->lanes);
    }
    launch->n_tasks = l->n_tasks;
    launch->task_ns = ns / (double)TCI_MAX(tci_dim_known(l->n_tasks), 1);
}

static const char *tci_joint_why(tci_scratch *s, const tci_loop *l, const tci_launch *launches)
{
    tci_str why = {.s = s};
    for (int i = 0; i < l->n_members; i++) {
        if (l->members[i].first_same == i) {
            tci_str_printf(&why, "%s%s: %s, %s", why.n ? "\n  " : "", l->members[i].kernel->name,
                           launches[i].note, launches[i].why);
        }
    }
    return tci_str_text(&why);
}

TCI_FN tci_loop *tci_joint_schedule(tci_scratch *s, const tci_kernel *k, tci_machine machine,
                                    tci_launch *launch)
{
    tci_loop *l = tci_loop_make(s, k);
    tci_launch *launches = TCI_NEW_ARRAY(s, tci_launch, k->n_members);
    int32_t operand = 0, literal = 0;
    memset(launch, 0, sizeof(*launch));
    const bool no_exchange = machine.no_exchange;
    machine.has_work = machine.has_flags = false;
    l->members = TCI_NEW_ARRAY(s, tci_loop_member, k->n_members);
    l->n_members = k->n_members;
    l->n_tasks = 0;
    for (int i = 0; i < k->n_members; i++) {
        const tci_kernel *m = k->members[i];
        int same = tci_kernel_first_same(k, i);
        launches[i] = launches[same];
        machine.no_exchange = no_exchange || !m->n_reds;
        tci_loop *of = same < i ? l->members[same].loop
                                : tci_loop_schedule(s, m, machine, &launches[i]);
        l->members[i] = (tci_loop_member){m, of, same, operand, literal, tci_dim_known(l->n_tasks)};
        l->n_tasks = tci_dim_add(l->n_tasks, of->n_tasks);
        l->threads = TCI_MAX(l->threads, of->threads * of->rows);
        l->faults |= of->faults;
        operand += m->n_operands;
        literal += m->n_literals;
        TCI_ASSERT(s, !of->work_bytes && !of->matrix && !of->n_dims);
    }
    l->lanes = l->threads;
    tci_joint_launch(l, launches, launch);
    snprintf(launch->note, sizeof(launch->note), "%d kernels side by side", k->n_members);
    l->note = tci_scratch_printf(s, "%s", launch->note);
    launch->why = tci_joint_why(s, l, launches);
    return l;
}
