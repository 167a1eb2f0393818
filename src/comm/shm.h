/* comm/shm.h - declares collectives of processes on one host through shared memory, without another
 * library. */
#ifndef TCI_COMM_SHM_H
#define TCI_COMM_SHM_H

#include "../ops/communicator.h"

typedef struct tci_shm tci_shm;

/* Identity of the ranks: `group` is a text that all of them, and no other processes at this time,
 * pass. */
typedef struct tci_shm_group {
    const char *group;
    int rank, size;
    int64_t join_ms, timeout_ms; /* until all have joined; of an operation */
} tci_shm_group;

/* Waits until all ranks are there. NULL: `why` has the reason (TC_COMM_WHY bytes). */
TCI_FN tci_shm *tci_shm_join(const tci_shm_group *g, char *why);
/* State: tci_shm. Size 1 is named "self". */
TCI_FN const tc_comm_engine *tci_shm_engine(int size);

#endif
