/* debug/probe.h - conditions that a run tests (tc_assert_finite, tc_assert_all). */
#ifndef TCI_DEBUG_PROBE_H
#define TCI_DEBUG_PROBE_H

#include "../base/platform.h"

/* True if one did not hold on this thread since the last call: text says which. */
TCI_FN bool tci_probe_take(char *text, size_t room);

#endif
