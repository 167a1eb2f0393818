/* interp/reference_composites.c - composites and matrix ops of the reference evaluator (test
 * oracle): textbook formulas, in double.
 *
 * In: a node, the values of its inputs. Out: its values, rounded to its dtype. Composites guarantee
 * an error bound, not an order of operations, so they are computed in double in both modes of the
 * evaluator. */
#include <math.h>
#include <string.h>

#include "reference_values.h"

/* ---- composites: the textbook formulas, in double ---- */

static double tci_ref_double(const tci_ref *r, const tci_node *n, int64_t i)
{
    tci_value v = tci_ref_of(r, n)[i];
    return tci_dtype_is_float((tc_dtype)n->dtype) ? v.f
                                                  : tci_value_cast(v, (tc_dtype)n->dtype, TC_F64).f;
}

static void tci_ref_put(const tci_ref *r, const tci_node *n, tci_value *out, int64_t i, double x)
{
    out[i] = tci_ref_round(r, tci_ref_float(x), TC_F64, (tc_dtype)n->dtype);
}

/* The largest and log(sum(exp(x - largest))) of a line of x. */
static void tci_ref_log_sum(const tci_ref *r, const tci_node *x, const tci_ref_axis *a,
                            int64_t start, double *most, double *log_sum)
{
    double sum = 0;
    *most = -(double)INFINITY;
    for (int64_t j = 0; j < a->size; j++) {
        double v = tci_ref_double(r, x, start + j * a->inner);
        *most = v > *most || v != v ? v : *most;
    }
    for (int64_t j = 0; j < a->size; j++) {
        sum += exp(tci_ref_double(r, x, start + j * a->inner) - *most);
    }
    *log_sum = log(sum);
}

TCI_FN void tci_ref_softmax(const tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *x = n->in[0];
    const tci_ref_axis a = tci_ref_along(x, n->attr[0]);
    for (int64_t line = 0; line < a.outer * a.inner; line++) {
        const int64_t start = tci_ref_start(&a, line);
        double most, log_sum;
        tci_ref_log_sum(r, x, &a, start, &most, &log_sum);
        for (int64_t j = 0; j < a.size; j++) {
            double v = tci_ref_double(r, x, start + j * a.inner) - most;
            tci_ref_put(r, n, out, start + j * a.inner,
                        n->op == TCI_OP_SOFTMAX ? exp(v) / exp(log_sum) : v - log_sum);
        }
    }
}

TCI_FN void tci_ref_mean(tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *in = n->in[0];
    const int64_t count = tci_ref_count(n);
    double *sum = TCI_NEW_ARRAY(&r->s, double, count + 1);
    double per = 1;
    tci_ref_index at = tci_ref_walk(r, in->rank, in->shape);
    for (int64_t i = 0; i < tci_ref_count(in); i++, tci_ref_next(&at)) {
        sum[tci_ref_kept(n, in, at.at)] += tci_ref_double(r, in, i);
    }
    for (int i = 0; i < n->n_attr; i++) {
        per *= (double)tci_dim_known(in->shape[n->attr[i]]);
    }
    for (int64_t i = 0; i < count; i++) {
        tci_ref_put(r, n, out, i, sum[i] / per);
    }
}

/* Flat position of `at` among only the given axes, or among all others. */
static int64_t tci_ref_among(const tci_node *x, const int64_t *axes, int n_axes, const int64_t *at,
                             bool given)
{
    int64_t flat = 0;
    int next = 0;
    for (int d = 0; d < x->rank; d++) {
        bool is_given = next < n_axes && axes[next] == d;
        next += is_given;
        if (is_given == given) {
            flat = flat * tci_dim_known(x->shape[d]) + at[d];
        }
    }
    return flat;
}

TCI_FN void tci_ref_layer_norm(tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *x = n->in[0];
    const int n_axes = (int)n->attr[0];
    const int64_t *axes = n->attr + 1, count = tci_ref_count(x);
    const bool has_weight = n->attr[1 + n_axes] != 0, has_bias = n->attr[2 + n_axes] != 0;
    const double eps = tci_ref_double(r, n->in[1], 0);
    double per = 1;
    for (int i = 0; i < n_axes; i++) {
        per *= (double)tci_dim_known(x->shape[axes[i]]);
    }
    double *mean = TCI_NEW_ARRAY(&r->s, double, count + 1),
           *var = TCI_NEW_ARRAY(&r->s, double, count + 1);
    tci_ref_index at = tci_ref_walk(r, x->rank, x->shape);
    for (int64_t i = 0; i < count; i++, tci_ref_next(&at)) {
        mean[tci_ref_among(x, axes, n_axes, at.at, false)] += tci_ref_double(r, x, i) / per;
    }
    for (int64_t i = 0; i < count; i++, tci_ref_next(&at)) {
        int64_t group = tci_ref_among(x, axes, n_axes, at.at, false);
        double d = tci_ref_double(r, x, i) - mean[group];
        var[group] += d * d / per;
    }
    for (int64_t i = 0; i < count; i++, tci_ref_next(&at)) {
        int64_t group = tci_ref_among(x, axes, n_axes, at.at, false);
        int64_t within = tci_ref_among(x, axes, n_axes, at.at, true);
        double y = (tci_ref_double(r, x, i) - mean[group]) / sqrt(var[group] + eps);
        y = has_weight ? y * tci_ref_double(r, n->in[2], within) : y;
        y = has_bias ? y + tci_ref_double(r, n->in[2 + has_weight], within) : y;
        tci_ref_put(r, n, out, i, y);
    }
}

TCI_FN void tci_ref_cross_entropy(tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *x = n->in[0], *target = n->in[1];
    const tci_ref_axis a = tci_ref_along(x, x->rank > 1 ? 1 : 0);
    double loss = 0;
    for (int64_t line = 0; line < a.outer * a.inner; line++) {
        const int64_t start = tci_ref_start(&a, line);
        double most, log_sum;
        tci_ref_log_sum(r, x, &a, start, &most, &log_sum);
        int64_t index =
            tci_value_cast(tci_ref_of(r, target)[line], (tc_dtype)target->dtype, TC_I64).i;
        index = tci_ref_check(r, index, a.size);
        loss -= index < 0 ? 0 : tci_ref_double(r, x, start + index * a.inner) - most - log_sum;
    }
    tci_ref_put(r, n, out, 0, loss / (double)(a.outer * a.inner));
}

/* Each element of x adds its products with the kernel to the places that the kernel covers. */
TCI_FN void tci_ref_conv_transpose(tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *x = n->in[0], *w = n->in[1];
    const int64_t each = tci_dim_known(w->shape[1]);
    const int64_t channels = tci_dim_known(x->shape[1]) / n->attr[0];
    const int64_t kernel = tci_ref_count(w) / TCI_MAX(1, tci_dim_known(w->shape[0]));
    double *sum = TCI_NEW_ARRAY(&r->s, double, tci_ref_count(n) + 1);
    tci_ref_index from = tci_ref_walk(r, x->rank, x->shape);
    tci_ref_index at = tci_ref_walk(r, w->rank, w->shape);
    int64_t *to = TCI_NEW_ARRAY(&r->s, int64_t, n->rank);
    for (int64_t i = 0; i < tci_ref_count(x); i++, tci_ref_next(&from)) {
        for (int64_t k = 0; k < kernel; k++, tci_ref_next(&at)) {
            bool inside = true;
            to[0] = from.at[0];
            to[1] = from.at[1] / channels * each + at.at[1];
            for (int d = 2; d < n->rank; d++) {
                const int64_t *a = n->attr + 1 + 3 * (d - 2); /* stride, dilation, before */
                to[d] = from.at[d] * a[0] + at.at[d] * a[1] - a[2];
                inside = inside && to[d] >= 0 && to[d] < tci_dim_known(n->shape[d]);
            }
            if (inside) {
                sum[tci_ref_flat(n->rank, n->shape, to)] += tci_ref_double(r, x, i) *
                                                            tci_ref_double(r, w,
                                                                           from.at[1] * kernel + k);
            }
        }
    }
    for (int64_t i = 0; i < tci_ref_count(n); i++) {
        tci_ref_put(r, n, out, i, sum[i]);
    }
}

/* ---- matrices ---- */

/* a x = b where a is a triangle whose element (i, j) is a[i * row + j * column]; b is
 * replaced. */
static void tci_ref_substitute(const double *a, int64_t row, int64_t column, int64_t n, double *b,
                               int64_t width, bool upper, bool unit)
{
    for (int64_t step = 0; step < n; step++) {
        const int64_t i = upper ? n - 1 - step : step;
        for (int64_t k = 0; k < width; k++) {
            double sum = b[i * width + k];
            for (int64_t j = upper ? i + 1 : 0; j < (upper ? n : i); j++) {
                sum -= a[i * row + j * column] * b[j * width + k];
            }
            b[i * width + k] = unit ? sum : sum / a[i * row + i * column];
        }
    }
}

/* The rows of a, with that of the largest element in front, column by column; order: which. */
static void tci_ref_lu(double *a, int64_t n, double *order)
{
    for (int64_t i = 0; i < n; i++) {
        order[i] = (double)i;
    }
    for (int64_t k = 0; k < n; k++) {
        int64_t p = k;
        for (int64_t i = k + 1; i < n; i++) {
            const double v = fabs(a[i * n + k]), best = fabs(a[p * n + k]);
            p = v > best || (v != v && best == best) ? i : p;
        }
        for (int64_t j = 0; j < n + 1; j++) {
            double *one = j < n ? &a[k * n + j] : &order[k];
            double *other = j < n ? &a[p * n + j] : &order[p];
            const double was = *one;
            *one = *other;
            *other = was;
        }
        for (int64_t i = k + 1; i < n; i++) {
            a[i * n + k] /= a[k * n + k] == 0 ? 1 : a[k * n + k];
            for (int64_t j = k + 1; j < n; j++) {
                a[i * n + j] -= a[i * n + k] * a[k * n + j];
            }
        }
    }
}

static void tci_ref_cholesky(const double *a, int64_t n, double *l)
{
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < n; i++) {
            double sum = a[i * n + j];
            for (int64_t k = 0; k < j; k++) {
                sum -= l[i * n + k] * l[j * n + k];
            }
            l[i * n + j] = i < j ? 0 : i == j ? sqrt(sum) : sum / l[j * n + j];
        }
    }
}

/* Matrix `at` of x, of this many elements. */
static double *tci_ref_matrix(tci_ref *r, const tci_node *x, int64_t at, int64_t count)
{
    double *m = TCI_NEW_ARRAY(&r->s, double, count + 1);
    for (int64_t i = 0; i < count; i++) {
        m[i] = tci_ref_double(r, x, at * count + i);
    }
    return m;
}

/* x of P a = L U, or of the same transposed: the last rows of lu say where those of a went. */
static void tci_ref_solve(const double *lu, int64_t n, double *b, int64_t width, bool transposed,
                          double *to)
{
    const double *order = lu + n * n;
    for (int64_t i = 0; i < n * width; i++) {
        const int64_t row = (int64_t)order[i / width];
        to[i] = b[transposed ? i : row * width + i % width];
    }
    tci_ref_substitute(lu, transposed ? 1 : n, transposed ? n : 1, n, to, width, false,
                       !transposed);
    tci_ref_substitute(lu, transposed ? 1 : n, transposed ? n : 1, n, to, width, true, transposed);
    for (int64_t i = 0; transposed && i < n * width; i++) {
        b[(int64_t)order[i / width] * width + i % width] = to[i];
    }
    for (int64_t i = 0; transposed && i < n * width; i++) {
        to[i] = b[i];
    }
}

TCI_FN void tci_ref_linear(tci_ref *r, const tci_node *n, tci_value *out)
{
    const tci_node *last = n->in[n->n_in - 1];
    const int64_t size = tci_dim_known(n->in[0]->shape[n->rank - 1]);
    const int64_t rows = tci_dim_known(n->shape[n->rank - 2]);
    const int64_t width = tci_dim_known(n->shape[n->rank - 1]), count = rows * width;
    for (int64_t at = 0; count && at < tci_ref_count(n) / count; at++) {
        double *a = tci_ref_matrix(r, n->in[0], at, size * size);
        double *b = tci_ref_matrix(r, last, at, size * width), *to = b;
        if (n->op == TCI_OP_LU) {
            to = TCI_NEW_ARRAY(&r->s, double, count);
            tci_ref_lu(a, size, to + size * size);
            memcpy(to, a, sizeof(*to) * (size_t)(size * size));
        } else if (n->op == TCI_OP_CHOLESKY) {
            tci_ref_cholesky(a, size, b);
        } else if (n->op == TCI_OP_SOLVE_TRIANGULAR) {
            tci_ref_substitute(a, size, 1, size, b, width, false, n->attr[0] != 0);
        } else {
            to = TCI_NEW_ARRAY(&r->s, double, count);
            tci_ref_solve(tci_ref_matrix(r, n->in[1], at, (size + 1) * size), size, b, width,
                          n->attr[0] != 0, to);
        }
        for (int64_t i = 0; i < count; i++) {
            tci_ref_put(r, n, out, at * count + i, to[i]);
        }
    }
}
