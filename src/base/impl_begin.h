/* base/impl_begin.h - opens the implementation section of an amalgamated header: strict floating
 * point, silenced warnings, POSIX declarations. Closed by base/impl_end.h.
 *
 * In: any compiler flags and warnings of the user's file. Out: a region with strict floating point,
 * without warnings, and with POSIX declared. The user's macros cannot collide: words in capitals
 * that the library uses begin with TC_ or TCI_, or are only pasted or stringized.
 *
 * Bit-identical results need strict floating point under all flags. GCC: the region has its own
 * optimize options. Clang: pragmas, which cannot undo -ffast-math, so that flag is refused.
 * Machines with excess precision are refused. Clang has no pragma for -fwrapv and
 * -fno-strict-aliasing, so the code relies on neither: signed sums do not overflow (the unit tests
 * are clean under Clang's UBSan; GCC's shows nothing, since -fwrapv turns its check off), and user
 * data of any type is moved by memcpy.
 *
 * The library is compiled again with each edit of the user's file, so compile time matters, and its
 * size is the user's. At -O0 the flags stay as they are. Otherwise it is optimised for size,
 * without those passes of GCC that take long and gain little; TCI_QUICK_BEGIN marks code that works
 * on elements and is optimised further. System headers (base/system_headers.h) come before the
 * change of options, so that their inline functions keep the user's options and can still be
 * inlined into the user's code. */

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Weverything"
#elif defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Waggregate-return"
#pragma GCC diagnostic ignored "-Warith-conversion"
#pragma GCC diagnostic ignored "-Wbad-function-cast"
#pragma GCC diagnostic ignored "-Wc++-compat"
#pragma GCC diagnostic ignored "-Wcast-align"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wclobbered"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wdate-time"
#pragma GCC diagnostic ignored "-Wdeclaration-after-statement"
#pragma GCC diagnostic ignored "-Wdouble-promotion"
#pragma GCC diagnostic ignored "-Wfloat-conversion"
#pragma GCC diagnostic ignored "-Wfloat-equal"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-truncation"
#pragma GCC diagnostic ignored "-Winline"
#pragma GCC diagnostic ignored "-Wjump-misses-init"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wmissing-declarations"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wnull-dereference"
#pragma GCC diagnostic ignored "-Woverlength-strings"
#pragma GCC diagnostic ignored "-Wpadded"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wredundant-decls"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=const"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=noreturn"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=pure"
#pragma GCC diagnostic ignored "-Wswitch-default"
#pragma GCC diagnostic ignored "-Wswitch-enum"
#pragma GCC diagnostic ignored "-Wtraditional-conversion"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wunsuffixed-float-constants"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-macros"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wvla"
#endif

#include "system_headers.h"

/* 16 and 32 widen only what is narrower than that many bits: _Float16, where a processor has it. */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16 &&       \
    __FLT_EVAL_METHOD__ != 32
#error "tc: float and double must be evaluated in their own type (32-bit x86: -msse2 -mfpmath=sse)"
#endif

#if defined(__clang__)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "tc: compile the file with TC_IMPLEMENTATION without -ffast-math and -ffinite-math-only"
#endif
#pragma float_control(precise, on, push)
#ifndef TCI_KEEP_OPTIMIZE
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#endif
#pragma STDC FP_CONTRACT OFF

#elif defined(__GNUC__)
#pragma GCC push_options
#if defined(__OPTIMIZE__) && !defined(TCI_KEEP_OPTIMIZE)
#pragma GCC optimize("Os")
#pragma GCC optimize("no-tree-pre,no-code-hoisting,no-tree-vrp,no-tree-dominator-opts")
#pragma GCC optimize("no-tree-pta,no-ivopts,no-expensive-optimizations")
#pragma GCC optimize("no-schedule-insns2,no-rerun-cse-after-loop,no-cse-follow-jumps")
#pragma GCC optimize("no-ipa-cp,no-ipa-modref,no-ipa-sra,no-ipa-icf")
#pragma GCC optimize("no-tree-loop-optimize,no-tree-reassoc,no-tree-slsr,no-tree-sink,no-dse")
#pragma GCC optimize("no-if-conversion,no-if-conversion2,no-cprop-registers,no-shrink-wrap")
#endif
#pragma GCC optimize("fp-contract=off,no-fast-math,no-unsafe-math-optimizations")
#pragma GCC optimize("no-finite-math-only,no-associative-math,no-reciprocal-math,signed-zeros")
#pragma GCC optimize("trapping-math,no-cx-limited-range,wrapv,no-strict-aliasing")
#pragma GCC optimize("no-single-precision-constant")
#endif
