/* src/tc_cpu.h - amalgamation root of tc_cpu.h, the CPU backend: C source compiled by the system
 * compiler. Included by tc.h. */
#include "cpu/cpu_features.c"
#include "cpu/machine.c"
#include "cpu/cc.c"
#include "cpu/backend.c"
