/* debug/minify.h - a failure as a small program that fails in the same way. */
#ifndef TCI_DEBUG_MINIFY_H
#define TCI_DEBUG_MINIFY_H

#include "check.h"

/* A kernel of the call's run failed its check: writes tc_repro_HASH.c and says so in text. */
TCI_FN void tci_minify_run(tc_call *c, const tci_checker_found *found, tci_str *text);
/* The request cannot be compiled. */
TCI_FN void tci_minify_compile(const tci_request *r, const tc_options *o, tc_status status,
                               tci_str *text);

#endif
