/* compile/build_cost.h - estimated time that a C compiler takes for a kernel. */
#ifndef TCI_COMPILE_BUILD_COST_H
#define TCI_COMPILE_BUILD_COST_H

#include "../loop/ir.h"

/* Statements of loop IR that take a compiler as long as this kernel, which was printed as this many
 * bytes: about 0.1 ms each with gcc 12 on a Xeon of 2023. Each kernel counts some for itself. */
TCI_FN int64_t tci_build_cost(const tci_loop *l, size_t text_bytes);

#endif
