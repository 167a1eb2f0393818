/* api/within_end.h - the users' macros again, after the rooms of the library (api/within.h). */
#pragma pop_macro("TCI_WITH_1")
#pragma pop_macro("TCI_WITH_2")
#pragma pop_macro("TCI_WITH_3")
