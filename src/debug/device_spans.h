/* debug/device_spans.h - times of kernels and of captured graph replays on a device, while a
 * profile records or TC_LOG=kernels is on. */
#ifndef TCI_DEBUG_DEVICE_SPANS_H
#define TCI_DEBUG_DEVICE_SPANS_H

#include "../run/runtime_structs.h"

typedef struct tci_device_spans {
    struct tci_device_spans *next;
    const tc_program *f; /* NULL: it may be gone; the number is known */
    const tc_backend *device;
    void *queue;     /* NULL: the device's own */
    uint32_t number; /* of the program, */
    uint16_t track;  /* and of the queue in the profile; 0: none records */
    bool is_graph;   /* of one recorded run; else of launches */
    bool shares;     /* the times are the shares of recorded runs */
    void **events;   /* the base, then one before and one after each launch; NULL: none */
    int32_t *steps;
    uint32_t *flows;
    int64_t *host_ns; /* begin and end of each launch */
    int n, most;
    int64_t base_ns;
} tci_device_spans;

/* Whether launches are timed now. */
TCI_FN bool tci_device_spans_wanted(void);
/* Whether a run of f that could be replayed is to be launched one by one: its shares are not known,
 * or each kernel is told as it runs. */
TCI_FN bool tci_device_spans_one_by_one(const tc_program *f);
/* False: no memory; then nothing else is called. */
TCI_FN bool tci_device_spans_begin(tci_device_spans *s, const tc_program *f, void *queue, int most);
/* Launches step i. */
TCI_FN tc_status tci_device_spans_launch(tci_device_spans *s, int i, const tc_launch *launch);
/* Step i, of a collective, which `call` gives to its communicator. */
TCI_FN tc_status tci_device_spans_call(tci_device_spans *s, int i, tc_call *c,
                                       tc_status (*call)(tc_call *c, const tci_run_step *step));
/* Replays a recorded run: the only span of s. */
TCI_FN tc_status tci_device_spans_replay(tci_device_spans *s, void *sequence);
/* Writes the records and frees. waits: when the device is done; else at the end of the profile. */
TCI_FN tc_status tci_device_spans_end(tci_device_spans *s, bool waits);

#endif
