/* compile/forced.h - schedules that a file forces on kernels (tc_options.schedule). */
#ifndef TCI_COMPILE_FORCED_H
#define TCI_COMPILE_FORCED_H

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

#endif
