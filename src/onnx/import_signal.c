/* onnx/import_signal.c - imports ONNX signal operators: Fourier transforms, windows, mel filters.
 */
#include "operator_table.h"
#include "user_call_site.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* [..., 1] or [..., 2] as pairs. */
static tc_tensor tci_ox_pairs(const tci_ox_op *o, tc_tensor x)
{
    return tc_size(x, -1) == 1 ? tc_pad(x, -1, 0, 1, 0) : x;
}

TCI_OX_MAKE(dft)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), y;
    tci_ox_sizes(o, x, &rank);
    int64_t axis = o->opset >= 20 ? tci_ox_has(o, 2) ? tci_ox_need_int(o, 2, "the axis") : -2
                                  : tci_ox_int(o, "axis", 1);
    int at = tci_ox_axis(o, axis, rank);
    bool inverse = tci_ox_int(o, "inverse", 0) != 0, half = tci_ox_int(o, "onesided", 0) != 0;
    int64_t n = tci_ox_has(o, 1) ? tci_ox_need_int(o, 1, "dft_length") : 0;
    if (inverse && half) {
        y = tc_unsqueeze(tc_irfft(tci_ox_pairs(o, x), n, at, NULL), -1);
    } else if (inverse) {
        y = tc_ifft(tci_ox_pairs(o, x), n, at, NULL);
    } else if (half) {
        y = tc_rfft(tc_squeeze(x, -1), n, at, NULL);
    } else {
        y = tc_fft(tci_ox_pairs(o, x), n, at, NULL);
    }
    tci_ox_out(o, 0, tc_cast(y, tc_dtype_of(x)));
}

/* [batch, n, 1 or 2] to [batch, frames, bins, 2]. */
TCI_OX_MAKE(stft)
{
    tc_tensor x = tci_ox_in(o, 0), window = tci_ox_maybe(o, 2);
    int64_t step = tci_ox_need_int(o, 1, "frame_step");
    int64_t size = tci_ox_has(o, 3)       ? tci_ox_need_int(o, 3, "frame_length")
                   : tci_ox_given(window) ? tc_size(window, 0)
                                          : 0;
    bool half = tci_ox_int(o, "onesided", 1) != 0;
    x = tc_unfold(tci_ox_pairs(o, x), 1, size, step); /* [batch, frames, 2, size] */
    x = tci_ox_given(window) ? tc_mul(x, window) : x;
    x = tc_fft(tc_transpose(x, 2, 3), size, 2, NULL);
    tci_ox_out(o, 0, half ? tc_slice(x, 2, 0, tc_dim_add(tc_dim_div(size, 2), 1), 1) : x);
}

/* a - b cos(2 pi i / n) + c cos(4 pi i / n) */
TCI_OX_MAKE(window)
{
    int64_t n = tci_ox_need_int(o, 0, "the size");
    double span = (double)(n - (tci_ox_int(o, "periodic", 1) ? 0 : 1));
    const char *kind = o->row->call;
    double a = *kind == 'h' ? 0.5 : *kind == 'H' ? 25.0 / 46.0 : 0.42;
    double b = *kind == 'H' ? 1 - a : 0.5, c = *kind == 'b' ? 0.08 : 0;
    tci_ox_known *k;
    if (n < 0 || n > TCI_OX_LIST_MOST) {
        tci_ox_fail(o, TC_ERR_LIMIT, "a window of %" PRId64 " elements", n);
    }
    k = tci_ox_known_new(o->s, TC_F64, 1, &n);
    for (int64_t i = 0; i < n; i++) {
        double angle = 2 * 3.14159265358979323846 * (double)i / span;
        k->cells[i].f = a - b * cos(angle) + c * cos(2 * angle);
    }
    tci_ox_out(o, 0,
               tc_cast(tci_ox_known_tensor(o, k),
                       tci_ox_dtype(o, tci_ox_int(o, "output_datatype", 1))));
}

TCI_OX_MAKE(mel)
{
    int64_t bins = tci_ox_need_int(o, 0, "num_mel_bins"), n = tci_ox_need_int(o, 1, "dft_length");
    double rate = tci_ox_need_real(o, 2, "sample_rate"), edge[2];
    int64_t rows = n / 2 + 1;
    if (bins < 1 || n < 1 || rows > TCI_OX_LIST_MOST / bins || !(rate > 0)) {
        tci_ox_fail(o, TC_ERR_LIMIT, "%" PRId64 " bins of %" PRId64 " points", bins, n);
    }
    for (int i = 0; i < 2; i++) {
        edge[i] = 2595 * log10(1 + tci_ox_need_real(o, 3 + i, "an edge") / 700);
    }
    int64_t *at = TCI_NEW_ARRAY(o->s, int64_t, bins + 2);
    for (int64_t i = 0; i < bins + 2; i++) {
        double mel = edge[0] + (double)i * (edge[1] - edge[0]) / (double)(bins + 2);
        at[i] = (int64_t)floor((double)(n + 1) * 700 * (pow(10, mel / 2595) - 1) / rate);
        at[i] = at[i] < 0 ? 0 : at[i] >= rows ? rows - 1 : at[i];
    }
    tci_ox_known *k = tci_ox_known_new(o->s, TC_F64, 2, (int64_t[]){rows, bins});
    for (int64_t i = 0; i < bins; i++) {
        int64_t low = at[i], mid = at[i + 1], high = at[i + 2];
        for (int64_t j = low; j <= mid; j++) {
            k->cells[j * bins + i].f = mid == low ? 1 : (double)(j - low) / (double)(mid - low);
        }
        for (int64_t j = mid; j < high; j++) {
            k->cells[j * bins + i].f = (double)(high - j) / (double)(high - mid);
        }
    }
    tci_ox_out(o, 0,
               tc_cast(tci_ox_known_tensor(o, k),
                       tci_ox_dtype(o, tci_ox_int(o, "output_datatype", 1))));
}
