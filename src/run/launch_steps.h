/* run/launch_steps.h - declares the launches of a run: single launches on the host or a device
 * (run/launch_steps.c), and launches with the loops among them (run/launch_control_flow.c). */
#ifndef TCI_RUN_LAUNCH_STEPS_H
#define TCI_RUN_LAUNCH_STEPS_H

#include "../debug/profile.h"
#include "runtime_structs.h"

/* True if the user wants the run to end. */
TCI_INLINE bool tci_walk_is_cancelled(const tc_call *c)
{
    const volatile int *flag = c->program->options.cancel;
    return __atomic_load_n(c->cancel, __ATOMIC_RELAXED) ||
           (flag && __atomic_load_n(flag, __ATOMIC_RELAXED));
}

/* ---- run/launch_steps.c ---- */
/* Launches one step on the host. */
TCI_FN void tci_call_launch_step(tc_call *c, const tci_run_step *step);
/* The launches [begin, end) on the host while a profile records. */
TCI_FN void tci_walk_watch_here(tc_call *c, int begin, int end);
/* Number of operands of launch i, with the step's own memory. */
TCI_FN int tci_device_buffers(const tc_call *c, int i);
TCI_FN tc_launch tci_device_launch(const tc_call *c, int i);
TCI_FN tc_status tci_walk_launch_one(tc_call *c, int i);
TCI_FN tc_status tci_walk_launch_each(tc_call *c, int begin, int end);
/* The launches [begin, end) on a queue of a device, and the replay of a sequence, while a profile
 * records. */
TCI_FN tc_status tci_walk_watch_there(tc_call *c, void *queue, int begin, int end);
TCI_FN tc_status tci_walk_watch_replay(tc_call *c, void *sequence, void *queue, int begin,
                                       bool waits);

/* The launches [begin, end) on the host. */
TCI_INLINE void tci_walk_launch_here(tc_call *c, int begin, int end)
{
    const tci_run_step *step = c->program->steps + begin, *last = c->program->steps + end;
    if (TCI_UNLIKELY(tci_profile_watch())) {
        tci_walk_watch_here(c, begin, end);
        return;
    }
    for (; step < last && TCI_LIKELY(!c->broke); step++) {
        if (TCI_LIKELY(step->threads == 1 && step->fn)) {
            step->fn(c->slots + step->first_slot, step->literals, step->faults ? c->faults : NULL,
                     0, step->n_tasks);
        } else {
            tci_call_launch_step(c, step);
        }
    }
}

/* ---- run/launch_control_flow.c ---- */
/* Launches [begin, end) with the loops among them. */
TCI_FN tc_status tci_walk_launch_rounds(tc_call *c, int begin, int end);
/* Number of launches of [begin, end) with all iterations; 0: they cannot be recorded. */
TCI_FN int64_t tci_walk_recorded(const tc_call *c, int begin, int end);
/* Records the launches [begin, end) as a sequence of the device. */
TCI_FN tc_status tci_walk_record(tc_call *c, int begin, int end, void **to);

#endif
