/* debug/repro.h - writes a captured program as a standalone C program that reproduces its failure.
 */
#ifndef TCI_DEBUG_REPRO_H
#define TCI_DEBUG_REPRO_H

#include "captured_program.h"

#ifndef TC_NO_DEBUG
/* False: an op of it has no public call; then out is not complete. why: what failed, a line. */
TCI_FN bool tci_repro_text(tci_str *out, const tci_case *k, const tc_options *o, int check,
                           const char *file, const char *why);
/* Whether a public call makes such a node. */
TCI_FN bool tci_repro_can(const tci_case *k, int node);
#endif

#endif
