/* comm/mpi.h - declares collectives through MPI, whose library is opened at run time. */
#ifndef TCI_COMM_MPI_H
#define TCI_COMM_MPI_H

#include "../ops/communicator.h"

/* All ranks that mpirun started; initializes MPI unless the process did. */
TCI_FN tc_status tci_mpi_world(const tc_comm_options *options, tc_comm **out, char *why);

#endif
