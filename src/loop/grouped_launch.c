/* loop/grouped_launch.c - builds one loop function for several kernels: horizontally fused kernels
 * (grouped launch), and the body kernels of a REPEAT whose iterations run inside one launch.
 *
 * In: a horizontally fused kernel (a joint, kernel/ir.h). Out: the loops of its members, each with
 * a schedule of its own, and where each starts in the tasks, operands and literals of the whole.
 * Equal members share one loop, so code size does not grow with their number.
 *
 * A member gets no work memory, except a GEMM on a CPU, whose tasks have that of the thread. A
 * member without reductions gets no shared memory, since the shared memory of all members is
 * allocated at the same time. Threads of a block beyond those of a member exit before it starts.
 *
 * In: an in-kernel loop (tci_kloop, kernel/ir.h). Out: the loops of its members likewise, and the
 * symbolic numbers that any of them, or the offset of an operand, needs. On a CPU a task is an
 * iteration. On a GPU one block is launched and runs the iteration range that is passed as
 * arguments. */
#include "schedule_kind.h"

#include <string.h>

/* This many at the start of a function's thread blocks belong to the first member, and so on. */
static void tci_grouped_launch(const tci_loop *l, const tci_launch *launches, tci_launch *launch)
{
    double ns = 0;
    for (int i = 0; i < l->n_members; i++) {
        const tci_launch *member = &launches[i];
        ns += (double)tci_dim_known(member->n_tasks) * member->task_ns;
        launch->call_ns = TCI_MAX(launch->call_ns, member->call_ns);
        launch->lanes = TCI_MAX(launch->lanes, member->lanes);
    }
    launch->n_tasks = l->n_tasks;
    launch->work_bytes = l->work_bytes;
    launch->task_ns = ns / (double)TCI_MAX(tci_dim_known(l->n_tasks), 1);
}

/* The time of all members first, then what each is. */
static const char *tci_grouped_why(tci_scratch *s, const tci_loop *l, const tci_launch *launches,
                                   const tci_launch *all)
{
    tci_str why = {.s = s};
    tci_str_add(&why, "joint in ");
    tci_sched_time(&why, all->call_ns + (double)tci_dim_known(all->n_tasks) * all->task_ns);
    tci_str_add(&why, " by the model, of");
    for (int i = 0; i < l->n_members; i++) {
        if (l->members[i].first_same == i) {
            tci_str_printf(&why, "\n  %s: %s, %s", l->members[i].kernel->name, launches[i].note,
                           launches[i].why);
        }
    }
    return tci_str_text(&why);
}

TCI_FN tci_loop *tci_grouped_schedule(tci_scratch *s, const tci_kernel *k, tci_machine machine,
                                      tci_launch *launch)
{
    tci_loop *l = tci_loop_make(s, k);
    tci_launch *launches = TCI_NEW_ARRAY(s, tci_launch, k->n_members);
    int32_t operand = 0, literal = 0;
    memset(launch, 0, sizeof(*launch));
    const bool no_shared_memory = machine.no_shared_memory, thread_scratch = machine.thread_scratch;
    machine.in_order_blocks = false;
    l->members = TCI_NEW_ARRAY(s, tci_loop_member, k->n_members);
    l->n_members = k->n_members;
    l->n_tasks = 0;
    for (int i = 0; i < k->n_members; i++) {
        const tci_kernel *m = k->members[i];
        int same = tci_kernel_first_same(k, i);
        launches[i] = launches[same];
        machine.no_shared_memory = no_shared_memory || !m->n_reds;
        machine.thread_scratch = thread_scratch && machine.block_threads == 0 && m->n_reds > 0 &&
                                 m->reds[0].op == TCI_RED_DOT;
        tci_loop *of = same < i ? l->members[same].loop
                                : tci_loop_schedule(s, m, machine, &launches[i]);
        l->members[i] = (tci_loop_member){m, of, same, operand, literal, tci_dim_known(l->n_tasks)};
        l->n_tasks = tci_dim_add(l->n_tasks, of->n_tasks);
        l->threads = TCI_MAX(l->threads, of->threads * of->rows);
        l->faults |= of->faults;
        operand += m->n_operands;
        literal += m->n_literals;
        l->work_bytes = tci_dim_max(l->work_bytes, of->work_bytes);
        TCI_ASSERT(s, !of->matrix && !of->n_dims);
    }
    l->lanes = l->threads;
    tci_grouped_launch(l, launches, launch);
    snprintf(launch->note, sizeof(launch->note), "%d kernels side by side", k->n_members);
    l->note = tci_scratch_printf(s, "%s", launch->note);
    launch->why = tci_grouped_why(s, l, launches, launch);
    return l;
}

/* ---- in-kernel loops ---- */

TCI_FN tci_machine tci_loop_member_machine(const tci_kernel *k, tci_machine machine)
{
    if (machine.block_threads > 0) {
        machine.thread_scratch = machine.in_order_blocks = false;
        machine.no_shared_memory = machine.no_shared_memory || !k->n_reds;
    }
    return machine;
}

static void tci_lfloop_need(tci_loop *l, tci_dim d)
{
    bool known = tci_dim_is_known(d);
    for (int i = 0; !known && i < l->n_dims; i++) {
        known = l->dims[i] == d;
    }
    if (!known) {
        TCI_PUSH(l->s, l->dims, l->n_dims, l->cap_dims, d);
    }
}

static void tci_lfloop_need_place(tci_loop *l, const tci_kplace *p)
{
    tci_lfloop_need(l, p->offset);
    tci_lfloop_need(l, p->by);
}

static void tci_lfloop_find_dims(tci_loop *l)
{
    const tci_kloop *loop = l->rounds;
    for (int i = 0; i < loop->n_places; i++) {
        tci_lfloop_need_place(l, &loop->places[i]);
    }
    for (int i = 0; i < loop->n_carries; i++) {
        tci_lfloop_need_place(l, &loop->carries[i].from);
        tci_lfloop_need_place(l, &loop->carries[i].to);
        tci_lfloop_need(l, loop->carries[i].bytes);
    }
    for (int i = 0; i < l->n_members; i++) {
        const tci_loop *of = l->members[i].loop;
        tci_lfloop_need(l, of->n_tasks);
        for (int d = 0; d < of->n_dims; d++) {
            tci_lfloop_need(l, of->dims[d]);
        }
    }
}

/* The loop's time first, then what each member is. */
static const char *tci_lfloop_why(tci_scratch *s, const tci_loop *l, const tci_launch *launches,
                                  double ns)
{
    tci_str why = {.s = s};
    tci_str_printf(&why, "%s in ", l->rounds->stops >= 0 ? "each round" : "all rounds");
    tci_sched_time(&why, ns);
    tci_str_add(&why, " by the model, of\n  ");
    bool first = true;
    for (int i = 0; i < l->n_members; i++) {
        if (l->members[i].first_same == i) {
            tci_str_printf(&why, "%s%s: %s, %s", first ? "" : "\n  ", l->members[i].kernel->name,
                           launches[i].note, launches[i].why);
            first = false;
        }
    }
    return tci_str_text(&why);
}

static void tci_lfloop_launch(const tci_kernel *k, const tci_loop *l, const tci_launch *launches,
                              bool blocks, tci_launch *launch)
{
    double ns = 0, rounds = (double)(k->loop->stops < 0 ? tci_dim_hint(k->loop->rounds) : 1);
    for (int i = 0; i < l->n_members; i++) {
        const tci_launch *member = &launches[i];
        double one = member->call_ns + (double)tci_dim_hint(member->n_tasks) * member->task_ns;
        ns += i < k->loop->n_enter ? 0 : one;
        launch->lanes = TCI_MAX(launch->lanes, member->lanes);
    }
    launch->n_tasks = l->n_tasks;
    launch->task_ns = blocks ? ns * rounds : ns;
    launch->why = tci_lfloop_why(l->s, l, launches, ns * rounds);
    launch->dims = l->dims;
    launch->n_dims = l->n_dims;
    launch->work_bytes = l->work_bytes;
    snprintf(launch->note, sizeof(launch->note), "a loop around %d kernel%s",
             k->n_members - k->loop->n_enter, k->n_members - k->loop->n_enter == 1 ? "" : "s");
}

TCI_FN tci_loop *tci_lfloop_schedule(tci_scratch *s, const tci_kernel *k, tci_machine machine,
                                     tci_launch *launch)
{
    tci_loop *l = tci_loop_make(s, k);
    tci_launch *launches = TCI_NEW_ARRAY(s, tci_launch, k->n_members);
    bool blocks = machine.block_threads > 0;
    int32_t operand = 0, literal = 0;
    memset(launch, 0, sizeof(*launch));
    l->rounds = k->loop;
    l->members = TCI_NEW_ARRAY(s, tci_loop_member, k->n_members);
    l->n_members = k->n_members;
    l->n_tasks = blocks ? 1 : k->loop->rounds;
    for (int i = 0; i < k->n_members; i++) {
        const tci_kernel *m = k->members[i];
        int same = tci_kernel_first_same(k, i);
        launches[i] = launches[same];
        tci_loop *of = same < i ? l->members[same].loop
                                : tci_loop_schedule(s, m, tci_loop_member_machine(m, machine),
                                                    &launches[i]);
        l->members[i] = (tci_loop_member){m, of, same, operand, literal, 0};
        l->threads = TCI_MAX(l->threads, of->threads * of->rows);
        l->faults |= of->faults;
        l->work_bytes = tci_dim_max(l->work_bytes, of->work_bytes);
        operand += m->n_operands;
        literal += m->n_literals;
        TCI_ASSERT(s, !of->matrix && (!blocks || of->work_bytes == 0));
    }
    l->lanes = l->threads;
    tci_lfloop_find_dims(l);
    tci_lfloop_launch(k, l, launches, blocks, launch);
    l->note = tci_scratch_printf(s, "%s", launch->note);
    return l;
}
