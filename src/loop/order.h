/* loop/order.h - what the choice of an order and the choice of a schedule share. */
#ifndef TCI_LOOP_ORDER_H
#define TCI_LOOP_ORDER_H

#include <stdint.h>

#include "../base/platform.h"

/* Threads, at least a warp, that cover n lanes of which each holds `held`. */
TCI_FN int tci_loop_threads(int64_t n, int held, int most);

#endif
