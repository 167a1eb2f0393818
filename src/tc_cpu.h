/* src/tc_cpu.h - root of the CPU backend: C source by the system compiler. Included by tc.h. */
#include "cpu/cpu_features.c"
#include "cpu/machine.c"
#include "cpu/cc.c"
#include "cpu/backend.c"
