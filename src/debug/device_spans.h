/* debug/device_spans.h - times of kernels on a device, while a profile records. */
#ifndef TCI_DEBUG_DEVICE_SPANS_H
#define TCI_DEBUG_DEVICE_SPANS_H

#include "../run/context.h"

typedef struct tci_device_spans {
    const tc_program *f;
    const tc_backend *device;
    void *queue;   /* NULL: the device's own */
    void **events; /* the base, then one before and one after each launch; NULL: none */
    int32_t *steps;
    int64_t *host_ns; /* begin and end of each launch */
    int n, most;
    int64_t base_ns;
} tci_device_spans;

/* Whether launches of f are timed one by one now. */
TCI_FN bool tci_device_spans_wanted(void);
/* False: no memory; then nothing else is called. */
TCI_FN bool tci_device_spans_begin(tci_device_spans *s, const tc_program *f, void *queue, int most);
/* Launches step i. */
TCI_FN tc_status tci_device_spans_launch(tci_device_spans *s, int i, const tc_launch *launch);
/* Step i, of a collective, which `call` gives to its communicator. */
TCI_FN tc_status tci_device_spans_call(tci_device_spans *s, int i, tc_call *c,
                                       tc_status (*call)(tc_call *c, const tci_run_step *step));
/* Waits for the device and writes the records; frees. */
TCI_FN tc_status tci_device_spans_end(tci_device_spans *s);

#endif
