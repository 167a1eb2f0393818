/* debug/explain.h - declares the writer of the tc_explain report: kernel launches, memory traffic,
 * missed fusions. */
#ifndef TCI_DEBUG_EXPLAIN_H
#define TCI_DEBUG_EXPLAIN_H

#include "../compile/compiled_code.h"

TCI_FN void tci_explain_bytes(tci_str *out, int64_t bytes); /* "12.3 KiB" */
/* Kernels, traffic, flops, memory, and why what was not fused was not. `code` is complete but
 * for its explain text. fallback: why it is interpreted though native code was wanted, or "".
 * split: which parts an engine runs, or NULL. */
TCI_FN void tci_explain_text(tci_str *out, const tci_plan *plan, const tci_code *code,
                             const char *fallback, const char *split);

#endif
