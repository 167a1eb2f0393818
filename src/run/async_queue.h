/* run/async_queue.h - asynchronous runs: queues, and events that report completion and status. */
#ifndef TCI_RUN_ASYNC_QUEUE_H
#define TCI_RUN_ASYNC_QUEUE_H

#include "../api/program.h"
#include "runtime_structs.h"

/* NULL: no memory, or no thread. */
TCI_FN tc_queue *tci_queue_make(void);
/* One whose work goes to a queue of the backend that another owner has. */
TCI_FN tc_queue *tci_queue_over(const tc_backend *device, void *native);
/* Waits for everything on it. NULL is fine. */
TCI_FN void tci_queue_free(tc_queue *q);
/* Checks, and gives the run to the queue; *event, if requested, completes at its end. The text of a
 * failure, which is one of now, is in *why: "" where there was no memory for a call. */
TCI_FN tc_status tci_queue_run(tc_queue *q, tc_program *f, const tc_bufs *inputs,
                               const tc_bufs *outputs, tc_event **event, tci_error *why);
/* An event that is reached when all that the queue has so far is done. */
TCI_FN tc_status tci_queue_record(tc_queue *q, tc_event **event);
TCI_FN tc_status tci_event_wait(tc_event *e);
TCI_FN bool tci_event_is_done(const tc_event *e);
TCI_FN tc_status tci_event_elapsed(tc_event *from, tc_event *to, double *ms);
TCI_FN void tci_event_release(tc_event *e);
TCI_FN const char *tci_event_text(const tc_event *e);

#endif
