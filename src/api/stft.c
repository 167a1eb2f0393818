/* api/stft.c - short-time Fourier transform (STFT) and its inverse.
 *
 * In: signals [..., n], or spectra [..., bins, frames, 2]. Out: the other one. Frames are a sliding
 * window over the signal (a view), so the transform is one multiplication by the window function
 * and one FFT of all frames; the inverse adds overlapping frames as the transpose of that view
 * (col2im) and divides by the sum of the squared windows (Griffin and Lim, 1984). */
#include "composite_helpers.h"

#include <math.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

typedef struct tci_stft {
    tci_made m;
    int64_t n_fft, hop, bins;
    bool centred, two_sided;
    double scale;     /* of the forward transform */
    tc_tensor window; /* [n_fft], in the compute dtype */
} tci_stft;

/* A known size from 1 on; 0 in `given` stands for `otherwise`. */
static bool tci_stft_size(tci_stft *s, const char *what, int64_t given, int64_t otherwise,
                          int64_t most, int64_t *size)
{
    *size = given ? given : otherwise;
    if (tci_dim_is_known(*size) && *size >= 1 && *size <= most) {
        return true;
    }
    s->m.bad = *size ? tci_made_fail(&s->m, TC_ERR_ARGUMENT, "%s is %s: expected 1 to %lld", what,
                                     TCI_DIM_TEXT(*size), (long long)most)
                     : tci_made_fail(&s->m, TC_ERR_ARGUMENT,
                                     "no %s is given: expected options that set it, 1 to %lld",
                                     what, (long long)most);
    return false;
}

/* The window function, centred in n_fft elements; ones where there is none. */
static bool tci_stft_window(tci_stft *s, tc_tensor window, int64_t length)
{
    tc_site here = s->m.here;
    const tc_dtype t = (tc_dtype)tci_dtype_get(s->m.dtype)->compute;
    if (tci_is_none(window)) {
        window = tc_full(s->m.ctx->handle, 1, t, length);
    } else if (!tc_status_of(window) && (tc_rank(window) != 1 || tc_size(window, 0) != length)) {
        s->m.bad = tci_made_fail(&s->m, TC_ERR_SHAPE,
                                 "the window has shape %s: expected [%lld], the win_length",
                                 tci_made_shape(window).text, (long long)length);
        return false;
    }
    const int64_t before = (s->n_fft - length) / 2;
    s->window = tc_pad(tc_cast(window, t), 0, before, s->n_fft - length - before, 0);
    return true;
}

static bool tci_stft_begin(tci_stft *s, const char *name, tc_tensor x, tc_tensor window,
                           const tc_stft_options *o, tc_site here)
{
    enum { TCI_STFT_MOST = 1 << 30 };
    const tc_stft_options none = {0};
    int64_t length;
    o = o ? o : &none;
    if (!tci_made_begin(&s->m, name, x, here)) {
        return false;
    }
    if (!tci_stft_size(s, "n_fft", o->n_fft, 0, TCI_STFT_MOST, &s->n_fft) ||
        !tci_stft_size(s, "hop_length", o->hop_length, TCI_MAX(s->n_fft / 4, 1), TCI_STFT_MOST,
                       &s->hop) ||
        !tci_stft_size(s, "win_length", o->win_length, s->n_fft, s->n_fft, &length) ||
        !tci_stft_window(s, window, length)) {
        return false;
    }
    s->centred = !o->uncentered;
    s->two_sided = o->two_sided;
    s->bins = s->two_sided ? s->n_fft : s->n_fft / 2 + 1;
    s->scale = o->normalized ? 1 / sqrt((double)s->n_fft) : 1;
    return true;
}

TC_API tc_tensor tc_stft_at(tc_tensor x, tc_tensor window, const tc_stft_options *o, tc_site here)
{
    tci_stft s;
    if (!tci_stft_begin(&s, "tc_stft", x, window, o, here)) {
        return s.m.bad;
    }
    if (tc_rank(x) < 1) {
        return tci_made_fail(&s.m, TC_ERR_SHAPE, "x is 0-d: expected signals [..., n]");
    }
    tc_tensor wide = tci_made_wide(&s.m, x);
    if (s.centred) {
        const char *mode = o && o->pad_mode ? o->pad_mode : "reflect";
        wide = tc_pad_mode(wide, -1, s.n_fft / 2, s.n_fft / 2, mode);
    }
    tc_tensor frames = tc_mul(tc_unfold(wide, -1, s.n_fft, s.hop), s.window);
    if (s.scale != 1) {
        frames = tc_mul(frames, s.scale);
    }
    tc_tensor y = s.two_sided ? tc_fft(tc_complex(frames, tc_mul(frames, 0.0)), 0, -1, NULL)
                              : tc_rfft(frames, 0, -1, NULL);
    return tci_made_round(&s.m, tc_transpose(y, -3, -2));
}

/* The sum of overlapping frames [batch, n_fft, frames]: [batch, length]. */
static tc_tensor tci_stft_overlap(const tci_stft *s, tc_tensor frames, int64_t length)
{
    tc_site here = s->m.here;
    const int64_t sizes[2] = {1, length};
    tc_tensor y = tc_col2im(frames, 2, sizes,
                            &(tc_pool){.kernel = {1, s->n_fft}, .stride = {1, s->hop}});
    return tc_squeeze(tc_squeeze(y, 1), 1);
}

/* Frames [..., frames, n_fft] as [batch, n_fft, frames]. */
static tc_tensor tci_stft_columns(tc_tensor frames, int64_t n_fft, tc_site here)
{
    int64_t batch = 1;
    for (int i = 0; i < tc_rank(frames) - 2; i++) {
        batch = tc_dim_mul(batch, tc_size(frames, i));
    }
    return tc_transpose(tc_reshape(frames, batch, tc_size(frames, -2), n_fft), 1, 2);
}

/* The part of y [batch, length] that the frames' centres span, or `wanted` elements. */
static tc_tensor tci_stft_cut(const tci_stft *s, tc_tensor y, int64_t wanted)
{
    tc_site here = s->m.here;
    const int64_t length = tc_size(y, 1), start = s->centred ? s->n_fft / 2 : 0;
    const int64_t stop = wanted ? tc_dim_add(wanted, start) : tc_dim_sub(length, start);
    return tc_pad(y, 1, -start, tc_dim_sub(stop, length), 0);
}

/* y [batch, n] as [..., n] with the leading axes of x. */
static tc_tensor tci_stft_batch(const tci_stft *s, tc_tensor y, tc_tensor x)
{
    tc_site here = s->m.here;
    tci_words w;
    const int rank = tc_rank(x) - 2;
    int64_t *sizes = tci_words_get(&s->m.ctx->graph, &w, rank);
    if (!sizes) {
        return y;
    }
    for (int i = 0; i < rank - 1; i++) {
        sizes[i] = tc_size(x, i);
    }
    sizes[rank - 1] = tc_size(y, 1);
    y = tc_reshape_at(y, rank, sizes, here);
    tci_words_put(&s->m.ctx->graph, &w, NULL);
    return y;
}

TC_API tc_tensor tc_istft_at(tc_tensor x, tc_tensor window, const tc_stft_options *o, tc_site here)
{
    tci_stft s;
    if (!tci_stft_begin(&s, "tc_istft", x, window, o, here)) {
        return s.m.bad;
    }
    if (tc_rank(x) < 3 || tc_size(x, -1) != 2 || tc_size(x, -3) != s.bins) {
        return tci_made_fail(&s.m, TC_ERR_SHAPE,
                             "x has shape %s: expected %sspectra [..., %lld, frames, 2] of n_fft "
                             "%lld",
                             tci_made_shape(x).text, s.two_sided ? "two-sided " : "",
                             (long long)s.bins, (long long)s.n_fft);
    }
    const int64_t wanted = o ? o->length : 0;
    if (tci_dim_is_known(wanted) && wanted < 0) {
        return tci_made_fail(&s.m, TC_ERR_ARGUMENT,
                             "length is %lld: expected the number of elements of the result, or 0 "
                             "for what the frames span",
                             (long long)wanted);
    }
    tc_tensor wide = tc_transpose(tci_made_wide(&s.m, x), -3, -2); /* [..., frames, bins, 2] */
    tc_tensor frames = s.two_sided ? tc_real(tc_ifft(wide, 0, -1, NULL))
                                   : tc_irfft(wide, s.n_fft, -1, NULL);
    if (s.scale != 1) {
        frames = tc_div(frames, s.scale);
    }
    const int64_t n = tc_size(x, -2);
    const int64_t length = tc_dim_add(tc_dim_mul(tc_dim_sub(n, 1), s.hop), s.n_fft);
    frames = tci_stft_columns(tc_mul(frames, s.window), s.n_fft, here);
    tc_tensor squares = tc_unsqueeze(tc_unsqueeze(tc_square(s.window), -1), 0);
    squares = tc_expand(squares, 1, s.n_fft, n);
    /* cut first: no window may cover what is cut off, and 0 / 0 has no derivative */
    tc_tensor y = tc_div(tci_stft_cut(&s, tci_stft_overlap(&s, frames, length), wanted),
                         tci_stft_cut(&s, tci_stft_overlap(&s, squares, length), wanted));
    return tci_made_round(&s.m, tci_stft_batch(&s, y, x));
}

#pragma pop_macro("TC_HERE")
