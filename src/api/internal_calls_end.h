/* api/internal_calls_end.h - restores the users' macros after the files of the library
 * (api/internal_calls.h). */
#pragma pop_macro("TCI_WITH_1")
#pragma pop_macro("TCI_WITH_2")
#pragma pop_macro("TCI_WITH_3")
