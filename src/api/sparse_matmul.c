/* api/sparse_matmul.c - products of a sparse matrix (COO, CSR) and a dense one.
 *
 * In: values of the sparse matrix and their positions, a dense matrix. Out: compositions of other
 * public calls: the product gathers the rows that the positions name and scatter-adds them, so no
 * zero is multiplied, and the gradient has the same form. */
#include "composite_helpers.h"

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

/* The elements of one axis, and a dense matrix: else *bad. */
static bool tci_sparse_takes(const tci_made *m, tc_tensor list, tc_tensor columns, tc_tensor values,
                             tc_tensor dense, tc_tensor *bad)
{
    const tc_tensor all[4] = {list, columns, values, dense};
    for (int i = 0; i < 4; i++) {
        if (tc_status_of(all[i])) {
            *bad = tci_made_end(m, all[i]);
            return false;
        }
        if (tc_rank(all[i]) != (i < 3 ? 1 : 2)) {
            *bad = tci_made_fail(m, TC_ERR_SHAPE,
                                 "operand %d has rank %d: expected lists of one "
                                 "axis, and a dense matrix",
                                 i + 1, tc_rank(all[i]));
            return false;
        }
    }
    return true;
}

/* Row i of the result takes in values[e] * dense[columns[e]] for the elements e of row i. */
static tc_tensor tci_sparse_product(const tci_made *m, tc_tensor rows, tc_tensor columns,
                                    tc_tensor values, int64_t n_rows, tc_tensor dense)
{
    tc_site here = m->here;
    const int64_t count = tc_size(values, 0);
    if (tc_size(columns, 0) != count || tc_size(rows, 0) != count) {
        return tci_made_fail(m, TC_ERR_SHAPE,
                             "%s values, %s columns and %s rows: expected as many "
                             "of each",
                             TCI_DIM_TEXT(count), TCI_DIM_TEXT(tc_size(columns, 0)),
                             TCI_DIM_TEXT(tc_size(rows, 0)));
    }
    tc_tensor parts = tc_mul(tc_unsqueeze(values, 1), tc_index_select(dense, 0, columns));
    if (tc_status_of(parts)) {
        return tci_made_end(m, parts);
    }
    tc_tensor zero = tc_full(m->ctx->handle, 0, tc_dtype_of(parts), n_rows, tc_size(dense, 1));
    return tci_made_end(m, tc_index_add(zero, 0, rows, parts));
}

TC_API tc_tensor tc_coo_matmul_at(tc_tensor rows, tc_tensor columns, tc_tensor values,
                                  int64_t n_rows, tc_tensor dense, tc_site here)
{
    tci_made m;
    tc_tensor bad;
    if (!tci_made_begin(&m, "tc_coo_matmul", values, here)) {
        return m.bad;
    }
    return tci_sparse_takes(&m, rows, columns, values, dense, &bad)
               ? tci_sparse_product(&m, rows, columns, values, n_rows, dense)
               : bad;
}

TC_API tc_tensor tc_csr_matmul_at(tc_tensor starts, tc_tensor columns, tc_tensor values,
                                  tc_tensor dense, tc_site here)
{
    tci_made m;
    tc_tensor bad;
    if (!tci_made_begin(&m, "tc_csr_matmul", values, here)) {
        return m.bad;
    }
    if (!tci_sparse_takes(&m, starts, columns, values, dense, &bad)) {
        return bad;
    }
    tc_tensor at = tc_arange(m.ctx->handle, 0, tc_size(values, 0), 1, TC_I64);
    tc_tensor rows = tc_sub(tc_searchsorted(tc_cast(starts, TC_I64), at, true), 1);
    return tci_sparse_product(&m, rows, columns, values, tc_dim_add(tc_size(starts, 0), -1), dense);
}

#pragma pop_macro("TC_HERE")
