/* debug/recompile.h - why a program was compiled anew: TC_LOG=recompiles. */
#ifndef TCI_DEBUG_RECOMPILE_H
#define TCI_DEBUG_RECOMPILE_H

#include "dump.h"

/* Logs in which node the graph (text of tci_graph_print) differs from the nearest of those that
 * were given before, and remembers it. name: of the program. */
TCI_FN void tci_recompile_say(const tc_options *o, const char *name, const tci_str *graph);
TCI_FN void tci_recompile_forget(void);

#endif
