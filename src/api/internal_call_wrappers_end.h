/* api/internal_call_wrappers_end.h - restores the users' macros after the files of the library
 * (api/internal_call_wrappers.h). */
#pragma pop_macro("TCI_WITH_1")
#pragma pop_macro("TCI_WITH_2")
#pragma pop_macro("TCI_WITH_3")
