/* debug/log.h - log lines by topic (TC_LOG, options.log). */
#ifndef TCI_DEBUG_LOG_H
#define TCI_DEBUG_LOG_H

#include "../api/types.h"
#include "../base/platform.h"

/* Topics: compile, cache, fusion, recompiles, source. True when there is a listener (options.log or
 * TC_LOG). */
TCI_FN bool tci_log_wants(const tc_options *o, const char *topic);
/* Passes one message to the user's callback and, with TC_LOG, writes it as a line to stderr. */
TCI_FN void tci_log(const tc_options *o, const char *topic, const char *format, ...)
    TCI_PRINTF(3, 4);
/* A line under "compile" for each environment variable that is set to what it cannot be. For TC_LOG
 * itself that is written whatever its topics are. */
TCI_FN void tci_log_environment(const tc_options *o);

#endif
