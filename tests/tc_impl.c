/* tests/tc_impl.c - the implementation, compiled once for all test programs that use only the
 * public calls. A program that wants tci_ functions defines TC_IMPLEMENTATION itself. */
#define TC_IMPLEMENTATION
#include "tc.h"
#include "tc_comm.h"
