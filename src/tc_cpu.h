/* src/tc_cpu.h - root of the CPU backend: C source by the system compiler. Brought in by tc.h. */
#include "cpu/target.c"
#include "cpu/soft.c"
#include "cpu/memory.c"
#include "cpu/prims.c"
#include "cpu/dialect.c"
#include "cpu/cc.c"
#include "cpu/backend.c"
