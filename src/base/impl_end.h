/* base/impl_end.h - closes the region that base/impl_begin.h opened: restores the user's compiler
 * options and warnings. */

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
