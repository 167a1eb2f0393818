/* api/recording_compare.h - compares two recordings of one function of a tc_jit
 * (tc_jit_options.check). */
#ifndef TCI_API_RECORDING_COMPARE_H
#define TCI_API_RECORDING_COMPARE_H

#include "internal.h"

/* Two lists of n outputs, tensors of ctx: TC_OK if they compute the same from the same inputs
 * (graph, captured numbers, contents of captured memory), or if an output is poisoned, of which
 * the compile has the message. TC_ERR_ARGUMENT: why says what differs first, with the line that
 * recorded it. */
TCI_FN tc_status tci_recording_compare(tci_ctx *ctx, const tc_tensor *const outputs[2], int n,
                                       char *why, size_t room);

#endif
