/* debug/minify.h - minimizes a failure to a small program that fails in the same way. */
#ifndef TCI_DEBUG_MINIFY_H
#define TCI_DEBUG_MINIFY_H

#include "kernel_check.h"

/* After a run of the call that ended with TC_ERR_CHECK: writes tc_repro_HASH.c, where a kernel's
 * check failed, and says so in c->last. */
TCI_FN void tci_minify_run(tc_call *c);
/* The request cannot be compiled, with that status: the same, where options.check is set. */
TCI_FN void tci_minify_compile(const tci_request *r, const tc_options *o, tc_status status,
                               tci_str *text);

#endif
