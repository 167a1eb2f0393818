/* base/unprotect.h - closes what base/protect.h opened: the user's options and warnings
 * are back. */

#if defined(__clang__)
#ifndef TCI_KEEP_OPTIMIZE
#pragma clang attribute pop
#endif
#pragma float_control(pop)
#pragma clang diagnostic pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
