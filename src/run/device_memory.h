/* run/device_memory.h - device memory: allocation, accounting, and what is freed when it runs out.
 */
#ifndef TCI_RUN_DEVICE_MEMORY_H
#define TCI_RUN_DEVICE_MEMORY_H

#include "runtime_structs.h"

/* Memory of the device; where it has none left, idle workspaces and code that no program uses are
 * given back and it is asked once more. NULL: out of memory, and tci_device_memory_text has the
 * message. No lock of run/ is held. */
TCI_FN void *tci_device_memory_get(const tc_backend *device, int64_t bytes);
/* The same without giving anything back: under a lock. */
TCI_FN void *tci_device_memory_try(const tc_backend *device, int64_t bytes);
TCI_FN void tci_device_memory_free(const tc_backend *device, void *memory, int64_t bytes);
/* Gives back what idle calls hold. */
TCI_FN void tci_device_memory_reclaim(const tc_backend *device);
/* "wanted 4096 bytes, ...", of this thread's last failure, once; "": there was none since. */
TCI_FN const char *tci_device_memory_text(void);
/* A program that runs on a device comes, and goes; free_call: what gives a call of it back. */
TCI_FN void tci_device_memory_enter(tc_program *f, void (*free_call)(tc_call *c));
TCI_FN void tci_device_memory_leave(tc_program *f);
TCI_FN void tci_device_memory_announce(void); /* its lock, before those of programs */

#endif
