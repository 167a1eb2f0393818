/* tests/cuda/unit.h - C++: what the PTX of the matrix units of warps means (cuda/mma_sync.c), for
 * running their text on a CPU, by the layouts of the PTX ISA. Products of floats are made and
 * summed in f64 and rounded to f32 once for each instruction: closer than any card, so a bound that
 * holds for cards holds here. Those of f64 are fused multiply-adds, in an order that changes from
 * one instruction to the next, as the ISA says nothing of it. A warp's threads meet at each of
 * them. */
static unsigned char emu_words[1024][64]; /* of each thread: what its warp is to read */

static unsigned emu_word(int thread, int i)
{
    unsigned w;
    memcpy(&w, emu_words[thread] + 4 * i, 4);
    return w;
}

static void emu_meet_warp();

/* Word i of a thread: number t + 4 (i / 2) of row g + 8 (i % 2) of four squares; it gave the
 * address of a row of one of them. Turned: of the halves' squares on their sides. */
static void emu_squares(unsigned *w, const void *row, bool turned)
{
    int me = threadIdx.x, first = me / 32 * 32, g = me % 32 / 4, t = me % 4;
    memcpy(emu_words[me], &row, sizeof(row));
    emu_meet_warp();
    for (int i = 0; i < 4; i++) {
        unsigned char *to = (unsigned char *)&w[i];
        for (int h = 0; h < 2; h++) {
            const unsigned char *from;
            int line = turned ? 2 * t + h : g, at = turned ? g : 2 * t + h;
            memcpy(&from, emu_words[first + 8 * i + line], sizeof(from));
            if (((unsigned long)from & 15) != 0) {
                emu_failed = 1;
            }
            memcpy(to + 2 * h, from + 2 * at, 2);
        }
    }
    emu_meet_warp();
}
static void tc_squares(unsigned *w, const void *row)
{
    emu_squares(w, row, false);
}
static void tc_squares_turned(unsigned *w, const void *row)
{
    emu_squares(w, row, true);
}

static float emu_half(unsigned short bits)
{
    _Float16 h;
    memcpy(&h, &bits, 2);
    return (float)h;
}
static float emu_bf16(unsigned short bits)
{
    return __int_as_float((int)((unsigned)bits << 16));
}

/* Adds 16 rows by 8 columns: a thread's are rows g and g + 8, columns 2 t and 2 t + 1. S is what an
 * instruction's products are summed in. */
template <class S, class C, class F, class G>
static void emu_multiply(C *c, const unsigned *a, unsigned b, unsigned d, F first, G second,
                         int each)
{
    int me = threadIdx.x, from = me / 32 * 32, g = me % 32 / 4, t = me % 4;
    unsigned words[6] = {a[0], a[1], a[2], a[3], b, d};
    memcpy(emu_words[me], words, sizeof(words));
    emu_meet_warp();
    for (int i = 0; i < 4; i++) {
        int column = 2 * t + i % 2;
        S sum = c[i];
        for (int k = 0; k < 8; k++) { /* words of a row: four in each half of it */
            unsigned x = emu_word(from + 4 * g + k % 4, k / 4 * 2 + i / 2);
            unsigned y = emu_word(from + 4 * column + k % 4, 4 + k / 4);
            for (int h = 0; h < each; h++) {
                sum += (S)first(x, h) * (S)second(y, h);
            }
        }
        c[i] = (C)sum;
    }
    emu_meet_warp();
}
template <class F>
static void emu_multiply(float *c, const unsigned *a, unsigned b, unsigned d, F element, int each)
{
    emu_multiply<double>(c, a, b, d, element, element, each);
}
static void tc_multiply_f16(float *c, const unsigned *a, unsigned b, unsigned d)
{
    emu_multiply(c, a, b, d, [](unsigned w, int h) { return emu_half(w >> 16 * h); }, 2);
}
static void tc_multiply_bf16(float *c, const unsigned *a, unsigned b, unsigned d)
{
    emu_multiply(c, a, b, d, [](unsigned w, int h) { return emu_bf16(w >> 16 * h); }, 2);
}
/* Bits that tf32 has not are not read: a factor that was not rounded is cut. */
static void tc_multiply_f32(float *c, const unsigned *a, unsigned b, unsigned d)
{
    emu_multiply(
        c, a, b, d, [](unsigned w, int) { return __int_as_float((int)(w & 0xffffe000u)); }, 1);
}
static unsigned tc_tf32(unsigned x)
{
    return (x & 0x7fffffff) >= 0x7f800000 ? x : (x + 0x1000) & 0xffffe000u;
}

/* Bytes: sums wrap. */
static unsigned __byte_perm(unsigned a, unsigned b, unsigned select)
{
    unsigned long long all = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        r |= (unsigned)(all >> 8 * (select >> 4 * i & 7) & 255) << 8 * i;
    }
    return r;
}
static int emu_byte(int w, int h)
{
    return (signed char)(w >> 8 * h);
}
static int emu_byte(unsigned w, int h)
{
    return (unsigned char)(w >> 8 * h);
}
template <class A, class B> static void tc_multiply_i8(int *c, const A *a, B b, B d)
{
    unsigned sums[4] = {(unsigned)c[0], (unsigned)c[1], (unsigned)c[2], (unsigned)c[3]};
    emu_multiply<unsigned>(
        sums, (const unsigned *)a, (unsigned)b, (unsigned)d,
        [](unsigned w, int h) { return (unsigned)emu_byte((A)w, h); },
        [](unsigned w, int h) { return (unsigned)emu_byte((B)w, h); }, 4);
    memcpy(c, sums, sizeof(sums));
}

static double emu_double(int thread, int i)
{
    double x;
    memcpy(&x, emu_words[thread] + 8 * i, 8);
    return x;
}
static void tc_multiply_f64(double *c, const double *a, double b, double d)
{
    static unsigned turn;
    int me = threadIdx.x, first = me / 32 * 32, g = me % 32 / 4, t = me % 4;
    double words[6] = {a[0], a[1], a[2], a[3], b, d};
    memcpy(emu_words[me], words, sizeof(words));
    emu_meet_warp();
    for (int i = 0; i < 4; i++, turn++) {
        for (int n = 0; n < 8; n++) {
            int k = (int)(n ^ turn % 8), column = 2 * t + i % 2;
            c[i] = fma(emu_double(first + 4 * g + k % 4, k / 4 * 2 + i / 2),
                       emu_double(first + 4 * column + k % 4, 4 + k / 4), c[i]);
        }
    }
    emu_meet_warp();
}
