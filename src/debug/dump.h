/* debug/dump.h - diagnostic output of a compile: log lines by topic, and files of each stage. */
#ifndef TCI_DEBUG_DUMP_H
#define TCI_DEBUG_DUMP_H

#include "../api/types.h"
#include "../base/str.h"

/* Topics: compile, cache, fusion, recompiles, source. True when there is a listener (options.log or
 * TC_LOG). */
TCI_FN bool tci_log_wants(const tc_options *o, const char *topic);
/* One text to the user's callback and, with TC_LOG, a line to stderr. */
/* A line under "compile" for each environment variable that is set to what it cannot be. For TC_LOG
 * itself that is written whatever its topics are. */
TCI_FN void tci_log_environment(const tc_options *o);
TCI_FN void tci_log(const tc_options *o, const char *topic, const char *format, ...)
    TCI_PRINTF(3, 4);

/* Where the dumps of one compile go. */
typedef struct tci_dump {
    const char *stages; /* "graph,plan" or "all"; NULL: nothing is dumped */
    tci_str dir;        /* heap */
} tci_dump;
/* A program with options.name goes into the folder of that name; else the first of a process to the
 * dump directory itself, the n-th into its folder n. */
TCI_FN void tci_dump_begin(tci_dump *d, const tc_options *o);
TCI_FN void tci_dump_end(tci_dump *d);
TCI_FN bool tci_dump_list_has(const char *list, const char *word); /* "all" has every word */
TCI_FN bool tci_dump_wants(const tci_dump *d, const char *stage);
/* Writes the text to DIR/file. Failures are ignored: a dump never makes a compile fail. */
TCI_FN void tci_dump_file(const tci_dump *d, const char *file, const tci_str *text);

#endif
