/* api/async.c - implements the public calls of asynchronous runs: tc_queue (a queue of runs
 * executed in order) and tc_event (completion, status and times of a run). */
#include <stdio.h>

#include "../run/async_queue.h"
#include "internal.h"

TC_API tc_status tc_queue_make(tc_queue **queue)
{
    if (!queue) {
        return TC_ERR_ARGUMENT;
    }
    *queue = tci_queue_make();
    return *queue ? TC_OK : TC_ERR_MEMORY;
}

TC_API void tc_queue_free(tc_queue *queue)
{
    tci_queue_free(queue);
}

TC_API tc_status tc_run_async_at(tc_program *f, tc_queue *queue, tc_bufs inputs, tc_bufs outputs,
                                 tc_event **event, tc_site here)
{
    if (event) {
        *event = NULL;
    }
    if (!f || !queue) {
        return f ? tci_run_record(f, TC_ERR_ARGUMENT, "tc_run_async", here,
                                  "given NULL, expected a queue")
                 : TC_ERR_ARGUMENT;
    }
    tci_error why;
    tci_fpenv caller = tci_fpenv_enter();
    tc_status status = tci_queue_run(queue, f, &inputs, &outputs, event, &why);
    tci_fpenv_leave(caller);
    const char *text = why.text[0] ? why.text : tci_run_no_workspace(f);
    return status ? tci_run_record(f, status, "tc_run_async", here, text) : TC_OK;
}

TC_API tc_status tc_event_record(tc_queue *queue, tc_event **event)
{
    if (event) {
        *event = NULL;
    }
    return queue && event ? tci_queue_record(queue, event) : TC_ERR_ARGUMENT;
}

TC_API tc_status tc_event_wait(tc_event *event)
{
    return event ? tci_event_wait(event) : TC_ERR_ARGUMENT;
}

TC_API bool tc_event_done(const tc_event *event)
{
    return event && tci_event_is_done(event);
}

TC_API tc_status tc_event_elapsed(tc_event *from, tc_event *to, double *ms)
{
    if (!from || !to || !ms) {
        return TC_ERR_ARGUMENT;
    }
    return tci_event_elapsed(from, to, ms);
}

TC_API void tc_event_free(tc_event *event)
{
    tci_event_release(event);
}

TC_API const char *tc_event_error(const tc_event *event)
{
    return event ? tci_event_text(event) : "the event is NULL: tc_run_async failed?";
}
