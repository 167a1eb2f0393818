/* cpu/cc.h - declares how the system's C compiler is found and called, and the CPU that it compiles
 * for. */
#ifndef TCI_CPU_CC_H
#define TCI_CPU_CC_H

#include "../api/backend.h"
#include "../emit/target_features.h"

typedef enum tci_cc_kind { TCI_CC_UNKNOWN, TCI_CC_GCC, TCI_CC_CLANG, TCI_CC_TCC } tci_cc_kind;

/* cpu/cpu_features.c. vector_bits as in tc_options. */
TCI_FN void tci_target_detect(tci_target *t, int vector_bits);
/* The compiler's flags for t->features. */
TCI_FN void tci_target_set_flags(tci_target *t);
/* True if this process may run code that was made for a target of these features. */
TCI_FN bool tci_target_runs(const char *features);
/* Why there is no native code on this processor. */
TCI_FN const char *tci_target_why_none(void);

/* cpu/machine.c */
TCI_FN void tci_cpu_machine(tc_machine *m);

/* The compiler that `wanted` names (NULL: cc, gcc, clang, tcc from PATH). False: there is none. */
TCI_FN bool tci_cc_find(const char *wanted, tc_backend_compiler *compiler);
/* Decided by the name and the libraries it links to; nothing is run. */
TCI_FN tci_cc_kind tci_cc_kind_of(const char *path);
/* Whether objects shall have a name in the file system: for debuggers (TC_KEEP), for reports of the
 * address sanitizer. */
TCI_FN bool tci_cc_is_watched(void);
/* Whether objects are instrumented as this process is, so that others cannot load them. */
TCI_FN bool tci_cc_instruments(void);
/* Compiles build->n sources at once, a process each. *why (static text) says what kind of
 * failure it was. */
TCI_FN tc_status tci_cc_build(tc_build *build, const tci_target *target, const char **why);

#endif
