/* tests/tc_impl.c - the implementation, compiled once for all test programs that use only the
 * public calls. A program that wants tci_ functions defines TC_IMPLEMENTATION itself. */
#define TC_IMPLEMENTATION
#include "tc_engines.h"
#include "tc_comm.h"

#ifdef TCI_TEST_ALLOC /* with the rooms' functions visible: the judge, which no user needs, too */
#include "../src/base/impl_begin.h"
#include "../src/interp/reference_composites.c"
#include "../src/interp/reference.c"
#include "../src/base/impl_end.h"
#endif
