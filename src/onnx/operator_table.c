/* onnx/operator_table.c - builds the table of imported ONNX operators from the rows of
 * onnx/operator_table.h. */
#include "operator_table.h"

static const tci_ox_row tci_ox_table[] = {
#define TCI_ROW(name, make, call, how) {#name, tci_ox_make_##make, call, how},
    TCI_OX_ROWS(TCI_ROW)
#undef TCI_ROW
};

TCI_FN const tci_ox_row *tci_ox_rows(void)
{
    return tci_ox_table;
}

TCI_FN int tci_ox_n_rows(void)
{
    return TCI_COUNT(tci_ox_table);
}
