/* debug/trace.h - a chrome trace (chrome://tracing, Perfetto) of compiles, runs and kernels.
 *
 * Process-wide and off until the first context with options.trace opens it. Off, a span costs
 * one load. */
#ifndef TCI_DEBUG_TRACE_H
#define TCI_DEBUG_TRACE_H

#include "../base/platform.h"

/* False: the file cannot be written. A second call while a trace is open keeps the first file. */
TCI_FN bool tci_trace_open(const char *path);
TCI_FN void tci_trace_close(void);
TCI_FN bool tci_trace_is_on(void);
/* One finished span of this thread, in tci_os_now_ns time. category: "compile", "run", "kernel". */
TCI_FN void tci_trace_span(const char *category, const char *name, int64_t begin_ns,
                           int64_t end_ns);

#endif
