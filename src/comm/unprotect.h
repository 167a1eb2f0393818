/* comm/unprotect.h - closes what comm/protect.h opened. */

#if defined(__clang__)
#pragma float_control(pop)
#pragma clang diagnostic pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
