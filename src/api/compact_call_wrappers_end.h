/* api/compact_call_wrappers_end.h - restores the public forms of the call macros (TCI_WITH_1, ...)
 * that api/compact_call_wrappers.h replaced for the library's own sources. */
#pragma pop_macro("TCI_WITH_1")
#pragma pop_macro("TCI_WITH_2")
#pragma pop_macro("TCI_WITH_3")
