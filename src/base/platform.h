/* base/platform.h - compiler, linkage and platform macros that every folder may use.
 *
 * Linkage: TCI_FN marks a function shared between source files. In the amalgamated form (the
 * shipped headers and src/tc.h) it is static; with TCI_SEPARATE (make rooms: each .c compiled
 * alone) it is extern. File-local helpers are plain `static` and have the prefix of their file,
 * because all files share one namespace in the amalgamated form. */
#ifndef TCI_BASE_PLATFORM_H
#define TCI_BASE_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef TCI_SEPARATE
#define TCI_FN
#else
#define TCI_FN static
#endif
/* TCI_FN for a function of src/tc_gpu.h that the core never calls. Where that file is not
 * joined, compilers would warn of a static function that is declared and never defined. */
#if defined(TCI_SEPARATE) || defined(TCI_HAS_BLOCKS)
#define TCI_BLOCK_FN TCI_FN
#else
#define TCI_BLOCK_FN extern
#endif

#if defined(__GNUC__) || defined(__clang__)
#define TCI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define TCI_INLINE static inline __attribute__((always_inline)) /* also in a build at -O0 */
#define TCI_LIKELY(x) __builtin_expect(!!(x), 1)
#define TCI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define TCI_PRINTF(fmt, args)
#define TCI_INLINE static inline
#define TCI_LIKELY(x) (x)
#define TCI_UNLIKELY(x) (x)
#endif

/* Around code that works on every element, which is optimised also where the rest is not, or only
 * for size (base/impl_begin.h). GCC at -O0: Og takes half the time of O1, and loops on vectors are
 * as quick. Clang can only leave out what it would do for size. */
#if defined(TCI_KEEP_OPTIMIZE) || defined(TCI_SEPARATE)
#define TCI_QUICK_BEGIN
#define TCI_QUICK_END
#elif defined(__clang__)
#define TCI_QUICK_BEGIN _Pragma("clang attribute pop")
#define TCI_QUICK_END _Pragma("clang attribute push(__attribute__((minsize)), apply_to = function)")
#elif defined(__GNUC__)
#ifdef __OPTIMIZE__
#define TCI_QUICK_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"O1\")")
#else
#define TCI_QUICK_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"Og\")")
#endif
#define TCI_QUICK_END _Pragma("GCC pop_options")
#else
#define TCI_QUICK_BEGIN
#define TCI_QUICK_END
#endif

/* Hash of all rooms, stamped by tools/amalgamate.c into the shipped header: part of every cache
 * key. */
#ifndef TCI_BUILD
#define TCI_BUILD "rooms " __DATE__ " " __TIME__ /* never the cache of an earlier build */
#endif
/* Build features that are part of cache keys. */
#ifdef TC_DYNAMIC_SHAPES
#define TCI_BUILD_FORM TCI_BUILD " dynamic"
#else
#define TCI_BUILD_FORM TCI_BUILD
#endif

/* Whether programs remember where they come from, and the rooms of debug/ are there. */
#ifdef TC_NO_DEBUG
#define TCI_DEBUG 0
#else
#define TCI_DEBUG 1
#endif

#define TCI_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define TCI_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TCI_MAX(a, b) ((a) > (b) ? (a) : (b))

/* a / b upwards; a >= 0, b > 0 */
static inline int64_t tci_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif
