/* debug/string_intern.h - interned strings that live as long as the process: names of regions,
 * files and programs. */
#ifndef TCI_DEBUG_STRING_INTERN_H
#define TCI_DEBUG_STRING_INTERN_H

#include "../base/platform.h"

/* The number of a text, the same for equal texts; 0: it is empty, or out of memory. Any thread. */
TCI_FN uint32_t tci_label_of(const char *text);
TCI_FN const char *tci_label_text(uint32_t label); /* "" for 0; valid until tci_label_forget */
/* tc_shutdown's part, while no program is left. */
TCI_FN void tci_label_forget(void);

#endif
