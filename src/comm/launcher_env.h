/* comm/launcher_env.h - rank, world size and local rank from the environment variables of
 * launchers (Open MPI, MPICH and Slurm, torchrun). */
#ifndef TCI_COMM_LAUNCHER_ENV_H
#define TCI_COMM_LAUNCHER_ENV_H

#include "../ops/communicator.h"

enum { TCI_LAUNCH_TEXT = 256 };
typedef struct tci_launch_group {
    int rank, size, local_rank;
    int local_size;              /* ranks on this host; 0: not known */
    bool is_mpi;                 /* a launcher of MPI started the process */
    bool is_local;               /* all ranks are on this host */
    char group[TCI_LAUNCH_TEXT]; /* the same for all ranks, and no other group at this time */
} tci_launch_group;

/* False: a variable is not what it should be, `why` (TC_COMM_WHY bytes) says which. */
TCI_FN bool tci_launch_read(tci_launch_group *g, char *why);

#endif
