/* compile/schedule_file.h - schedules that a file forces on kernels (tc_options.schedule). */
#ifndef TCI_COMPILE_SCHEDULE_FILE_H
#define TCI_COMPILE_SCHEDULE_FILE_H

#include "../api/types.h"
#include "../base/hash.h"
#include "../base/str.h"

/* The text of the file that the options name, on the heap: "" where they name none. False: it
 * cannot be read, or there is no memory. */
TCI_FN bool tci_forced_read(tci_str *out, const tc_options *o);
/* The schedule for a kernel of that name and hash of its canonical text, out of the file's text; in
 * scratch. NULL: none. */
TCI_FN const char *tci_forced_find(tci_scratch *s, const char *text, const char *name,
                                   tci_hash hash);
/* Whether the n characters of word name a kernel of that name and hash (in hex). */
TCI_FN bool tci_forced_names(const char *word, size_t n, const char *name, const char *hex);
/* Logs each line that has no colon, and each that names none of the kernels, as `has` tells. */
TCI_FN void tci_forced_check(const tc_options *o, const char *text,
                             bool (*has)(const void *kernels, const char *word, size_t n),
                             const void *kernels);

#endif
