/* run/infer_sizes.h - solves for the symbolic sizes of a program from the sizes of the buffers of a
 * run. Only under TC_DYNAMIC_SHAPES. */
#ifndef TCI_RUN_INFER_SIZES_H
#define TCI_RUN_INFER_SIZES_H

#include "../compile/compiled_code.h"

#ifdef TC_DYNAMIC_SHAPES

/* Equations of one program's buffers: made once, then constant. */
typedef struct tci_solver tci_solver;

/* Of code with symbols: its first n_inputs inputs and n_outputs outputs are the user's, user[i] is
 * the user's symbol for number i, whose range counts. All outlive the solver. NULL: no memory. */
TCI_FN tci_solver *tci_solver_make(const tci_code *code, int n_inputs, int n_outputs,
                                   const tci_dim *user);
TCI_FN void tci_solver_free(tci_solver *v);
/* A symbol that no buffer determines; -1: there is none. */
TCI_FN int tci_solver_untold(const tci_solver *v);
/* Words of room that one search needs, zeroed. */
TCI_FN size_t tci_solver_room(const tci_solver *v);
/* Finds values[i] of every symbol; outputs NULL: not known. There are as many buffers as the
 * program takes. TC_ERR_BUFFER: none fit, or several do; text has the message. */
TCI_FN tc_status tci_solver_solve(const tci_solver *v, int64_t *room, const tc_bufs *inputs,
                                  const tc_bufs *outputs, int64_t *values, char *text,
                                  size_t text_room);

#endif
#endif
