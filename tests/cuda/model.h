/* tests/cuda/model.h - C++: what the matrix kernels' PTX means, for running their text on a CPU.
 *
 * The generated text (cuda/wgmma_gemm.c) is compiled with TC_NO_PTX behind this. The blocks of a
 * cluster run as fibers, one for each thread, in random order, some of them slow; whatever the
 * hardware does on its own happens as late as it may, or at a random earlier moment: a box arrives
 * when the scheduler likes, a product reads shared memory and writes its registers when it is
 * waited for at the latest. So a missing wait, a wrong parity, descriptor or count gives wrong
 * numbers, an error or a deadlock here too; an arrival at a block that has ended is an error.
 *
 * Modelled: barriers with arrivals, bytes and phases, also of the cluster's other block; boxes of
 * rank 2 to 5 with 128-byte swizzle and zeros outside, for one block or for both, and places of
 * images, walked from axis to axis and image to image; products of four warps from descriptors,
 * both orders of A and B, or from A in registers, in commit groups, fenced; 8x8 squares stored by a
 * warp; warps that meet and swap. Everything else is the compiler's.
 *
 * This shares its author's reading of the hardware with the text it tests. */
#include <algorithm>
#include <deque>
#include <map>
#include <vector>

struct model_map {
    const char *start;
    const long long *words;
    unsigned long long rest[14];
};

struct model_barrier {
    int pending, arrivals;
    long bytes;
    unsigned phase;
};

/* One product, issued by the 128 threads of a warpgroup. */
struct model_product {
    unsigned long long a, b;
    int columns, add, turn_a, turn_b, type, issued;
    float *d[128];
    const unsigned *held[128]; /* registers of the first factor, read late as well; NULL: none */
};

struct model_group { /* of products that were committed together */
    std::vector<model_product> products;
    int committed;
};

struct model_warpgroup {
    std::deque<model_group> groups;
    long done; /* groups that left the queue */
};

/* places: of images, offset by at[rank] .. ; blocks: a bit for each one it goes to */
struct model_box {
    unsigned to, bar;
    const void *map;
    int at[8];
    bool places;
    unsigned blocks;
};

struct model_signal {
    int block;
    unsigned bar;
}; /* an arrival on its way */

enum model_waits {
    MODEL_READY,
    MODEL_BARRIER,
    MODEL_PRODUCTS,
    MODEL_WARP,
    MODEL_BLOCK,
    MODEL_CLUSTER,
    MODEL_ENDED
};

struct model_fiber {
    ucontext_t context;
    model_waits wait;
    unsigned bar, parity;
    long group;      /* PRODUCTS: groups up to this one must be done */
    long open, next; /* group and number of the next product */
    bool fenced;
    unsigned slow; /* of 1024 turns, those that it misses */
};

struct model_warp {
    int here;
    unsigned to[32], squares[32][4];
    bool stores;
    float swapped[32];
};

struct model_copy {
    float *to, four[4];
};

struct model_block {
    std::vector<model_fiber> fibers;
    std::vector<model_warp> warps;
    std::vector<model_warpgroup> warpgroups;
    std::map<unsigned, model_barrier> barriers;
    std::map<unsigned, std::deque<std::vector<model_copy>>> copies; /* of each thread */
    std::vector<unsigned char> bytes;
    unsigned char *memory;
    int here, ended; /* threads */
};

static const unsigned model_start = 1040; /* of shared memory: no multiple of 1024 */
static const char *model_error;
static std::vector<model_block> model_blocks; /* of a cluster */
static model_block *model_in;                 /* whose thread model_me runs */
static std::vector<model_box> model_boxes;
static std::vector<model_signal> model_signals;
static unsigned char *model_memory; /* of model_in */
static unsigned model_bytes, model_random_state, model_me, model_block_x, model_first_block;
static int model_cluster_here;
static bool model_runs;
static ucontext_t model_scheduler;

static void model_enter(size_t block)
{
    model_in = &model_blocks[block];
    model_memory = model_in->memory;
    blockIdx.x = (int)(model_first_block + block);
}

static unsigned model_random()
{
    unsigned x = model_random_state += 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

static void model_fail(const char *what)
{
    model_error = model_error ? model_error : what;
}

static void model_switch(model_waits wait)
{
    unsigned me = model_me;
    model_in->fibers[me].wait = wait;
    swapcontext(&model_in->fibers[me].context, &model_scheduler);
}

/* Bytes of shared memory; never outside. */
static unsigned char *model_at(unsigned address, unsigned n)
{
    static unsigned char nowhere[64];
    if (address < model_start || address + n > model_start + model_bytes) {
        model_fail("an address outside of shared memory");
        return nowhere;
    }
    return model_memory + (address - model_start);
}

static unsigned model_swizzle(unsigned address)
{
    return address ^ (address >> 3 & 0x70);
}

/* ---- barriers ---- */

static model_barrier *model_find(unsigned bar)
{
    auto found = model_in->barriers.find(bar);
    if (found == model_in->barriers.end()) {
        model_fail("a barrier that was never made");
        return 0;
    }
    return &found->second;
}

static void model_settle(model_barrier *b)
{
    if (b->pending < 0 || (b->pending == 0 && b->bytes < 0)) {
        model_fail("more arrivals or bytes than a barrier expects");
    } else if (b->pending == 0 && b->bytes == 0) {
        b->phase++;
        b->pending = b->arrivals;
    }
}

static void tc_barrier_init(unsigned bar, int arrivals)
{
    model_at(bar, 8);
    model_in->barriers[bar] = model_barrier{arrivals, arrivals, 0, 0};
}

static void tc_barrier_init_done()
{
}
static void tc_shared_written()
{
}

static void model_arrive(unsigned bar, int bytes)
{
    model_barrier *b = model_find(bar);
    if (b) {
        b->bytes += bytes;
        b->pending--;
        model_settle(b);
    }
}

static void tc_barrier_arrive(unsigned bar)
{
    model_arrive(bar, 0);
}

/* Arrives later. */
static void tc_barrier_arrive_at(unsigned bar, int block)
{
    model_signals.push_back(model_signal{block, bar});
}

static void model_signalled(const model_signal &s)
{
    size_t before = (size_t)(model_in - model_blocks.data());
    if (s.block < 0 || s.block >= (int)model_blocks.size()) {
        model_fail("an arrival at a block that there is not");
        return;
    }
    model_enter((size_t)s.block);
    if (model_in->ended == (int)model_in->fibers.size()) {
        model_fail("an arrival at a block that has ended");
    }
    model_arrive(s.bar, 0);
    model_enter(before);
}

static void tc_barrier_expect(unsigned bar, int bytes)
{
    model_arrive(bar, bytes);
}

static void tc_barrier_wait(unsigned bar, unsigned parity)
{
    model_in->fibers[model_me].bar = bar;
    model_in->fibers[model_me].parity = parity;
    model_switch(MODEL_BARRIER);
}

/* ---- boxes ---- */

/* The words of a map: see tci_cuda_map. */
enum {
    MODEL_TYPE = 1,
    MODEL_RANK = 2,
    MODEL_DIM = 4,
    MODEL_STRIDE = 9,
    MODEL_BOX = 13,
    MODEL_STEP = 18,
    MODEL_AXES = 23,
    MODEL_LOW = 24,
    MODEL_HIGH = 27
};

static int model_bytes_of(const long long *words)
{
    return words[MODEL_TYPE] == 11 ? 4 : words[MODEL_TYPE] == 0 ? 1 : 2;
}

/* Bits of an f32 with ten behind the first one; the nearest, of two the even one. */
static unsigned model_round_tf32(unsigned bits)
{
    return (bits >> 23 & 255) == 255 ? bits : (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
}

/* 128 bytes as row `row` of what is loaded to box.to. */
static void model_row(const model_box &box, int row, const char *from, bool inside)
{
    const long long *w = ((const model_map *)box.map)->words;
    int bytes = model_bytes_of(w);
    for (int c = 0; c < w[MODEL_BOX]; c++) {
        unsigned v = 0;
        if (inside && box.at[0] + c >= 0 && box.at[0] + c < w[MODEL_DIM]) {
            memcpy(&v, from + bytes * (box.at[0] + c), bytes);
        }
        v = bytes == 4 ? model_round_tf32(v) : v;
        memcpy(model_at(model_swizzle(box.to + 128 * row + bytes * c), bytes), &v, bytes);
    }
}

/* box[1] places, the first at box.at; each axis goes up to its last place and begins anew. */
static int model_places(const model_box &box)
{
    const model_map *map = (const model_map *)box.map;
    const long long *w = map->words;
    int axes = (int)w[MODEL_AXES], at[5];
    memcpy(at, box.at, sizeof(at));
    for (int row = 0; row < w[MODEL_BOX + 1]; row++) {
        bool inside = at[axes + 1] >= 0 && at[axes + 1] < w[MODEL_DIM + axes + 1];
        const char *from = map->start + at[axes + 1] * w[MODEL_STRIDE + axes];
        for (int i = 1; i <= axes; i++) {
            long long x = at[i] + box.at[axes + 1 + i];
            inside = inside && x >= 0 && x < w[MODEL_DIM + i];
            from += x * w[MODEL_STRIDE + i - 1];
        }
        model_row(box, row, from, inside);
        int i = 1;
        while (i <= axes &&
               (at[i] += (int)w[MODEL_STEP + i]) > w[MODEL_DIM + i] - 1 + w[MODEL_HIGH + i - 1]) {
            at[i] = (int)w[MODEL_LOW + i - 1];
            i++;
        }
        at[axes + 1] += i > axes;
    }
    return (int)w[MODEL_BOX + 1];
}

static int model_tile(const model_box &box)
{
    const model_map *map = (const model_map *)box.map;
    const long long *w = map->words;
    int rank = (int)w[MODEL_RANK], rows = 1;
    for (int i = 1; i < rank; i++) {
        rows *= (int)w[MODEL_BOX + i];
    }
    for (int row = 0; row < rows; row++) { /* the box's second axis fastest */
        bool inside = true;
        const char *from = map->start;
        for (int i = 1, left = row; i < rank; left /= (int)w[MODEL_BOX + i++]) {
            long long at = box.at[i] + left % w[MODEL_BOX + i] * w[MODEL_STEP + i];
            inside = inside && at >= 0 && at < w[MODEL_DIM + i];
            from += at * w[MODEL_STRIDE + i - 1];
        }
        model_row(box, row, from, inside);
    }
    return rows;
}

static void model_arrives_here(const model_box &box)
{
    const long long *w = ((const model_map *)box.map)->words;
    int rows = box.places ? model_places(box) : model_tile(box);
    model_barrier *b = model_find(box.bar);
    if (b) {
        b->bytes -= (long)(model_bytes_of(w) * w[MODEL_BOX] * rows);
        model_settle(b);
    }
    if (model_in->ended == (int)model_in->fibers.size()) {
        model_fail("a load outlives its block");
    }
}

static void model_arrives(const model_box &box)
{
    size_t before = (size_t)(model_in - model_blocks.data());
    for (size_t i = 0; i < model_blocks.size(); i++) {
        if (box.blocks >> i & 1) {
            model_enter(i);
            model_arrives_here(box);
        }
    }
    model_enter(before);
}

static unsigned model_own()
{
    return 1u << (model_in - model_blocks.data());
}

static void model_load(unsigned blocks, unsigned to, const void *map, unsigned bar, int rank,
                       const int *at)
{
    const model_map *m = (const model_map *)map;
    if (to % 1024 != 0 || rank != m->words[MODEL_RANK] || m->words[MODEL_AXES] != 0 ||
        m->words[MODEL_BOX] * model_bytes_of(m->words) != 128) {
        model_fail("a box that does not suit its map or place");
    }
    for (int i = 0; i < rank; i++) {
        long long span = (m->words[MODEL_BOX + i] - 1) * m->words[MODEL_STEP + i] + 1;
        if (span < 1 || span > 256 || m->words[MODEL_STEP + i] < 1 ||
            m->words[MODEL_STEP + i] > 8 || (i > 0 && m->words[MODEL_STRIDE + i - 1] % 16 != 0)) {
            model_fail("a map that cannot be encoded");
        }
    }
    model_box box = {to, bar, map, {0}, false, blocks};
    memcpy(box.at, at, 5 * sizeof(*at));
    model_boxes.push_back(box);
}

/* at: a place of each axis, its image, and offsets, which have 8 bits, of three axes 5. */
static void model_load_places(unsigned to, const void *map, unsigned bar, int axes, const int *at)
{
    const long long *w = ((const model_map *)map)->words;
    model_box box = {to, bar, map, {0}, true, model_own()};
    long long corner = axes < 3 ? 128 : 16;
    if (to % 1024 != 0 || axes != w[MODEL_AXES] || axes != w[MODEL_RANK] - 2 ||
        w[MODEL_BOX] != 64 || w[MODEL_BOX + 1] < 1 || w[MODEL_BOX + 1] > 1024) {
        model_fail("places that do not suit their map");
    }
    for (int i = 1; i <= axes; i++) {
        long long low = w[MODEL_LOW + i - 1], high = w[MODEL_HIGH + i - 1];
        if (low < -corner || low >= corner || high < -corner || high >= corner ||
            w[MODEL_STEP + i] < 1 || w[MODEL_STEP + i] > 8 || w[MODEL_STRIDE + i - 1] % 16 != 0) {
            model_fail("a map that cannot be encoded");
        }
        if (at[i] < low || at[i] > w[MODEL_DIM + i] - 1 + high || at[axes + 1 + i] < 0 ||
            at[axes + 1 + i] >= 2 * corner) {
            model_fail("a place where none can begin");
        }
    }
    memcpy(box.at, at, sizeof(*at) * (size_t)(2 * axes + 2));
    model_boxes.push_back(box);
}

static void tc_load_places(unsigned to, const void *map, unsigned bar, int a, int b, int c,
                           unsigned short u)
{
    const int at[4] = {a, b, c, u};
    model_load_places(to, map, bar, 1, at);
}

static void tc_load_places(unsigned to, const void *map, unsigned bar, int a, int b, int c, int d,
                           unsigned short u, unsigned short v)
{
    const int at[6] = {a, b, c, d, u, v};
    model_load_places(to, map, bar, 2, at);
}

static void tc_load_places(unsigned to, const void *map, unsigned bar, int a, int b, int c, int d,
                           int e, unsigned short u, unsigned short v, unsigned short w)
{
    const int at[8] = {a, b, c, d, e, u, v, w};
    model_load_places(to, map, bar, 3, at);
}

template <class... C> static void tc_load_box(unsigned to, const void *map, unsigned bar, C... at)
{
    const int all[5] = {at...};
    model_load(1u << (model_in - model_blocks.data()), to, map, bar, (int)sizeof...(at), all);
}

template <class... C> static void tc_share_box(unsigned to, const void *map, unsigned bar, C... at)
{
    const int all[5] = {at...};
    if (model_blocks.size() != 2) {
        model_fail("a load for a block that there is not");
    }
    model_load(3, to, map, bar, (int)sizeof...(at), all);
}

/* ---- products ---- */

enum {
    model_type_bf16,
    model_type_f16,
    model_type_tf32,
    /* bytes: + 2 where those of A are unsigned, + 1 where those of B are */
    model_type_s8s8,
    model_type_s8u8,
    model_type_u8s8,
    model_type_u8u8
};

static float model_half(unsigned short h, int type)
{
    unsigned bits = (unsigned)h << 16;
    float f;
    if (type == model_type_f16) {
        int e = h >> 10 & 31;
        f = e ? ldexpf((float)(h & 1023 | 1024), e - 25) : ldexpf((float)(h & 1023), -24);
        f = e == 31 ? (h & 1023 ? NAN : INFINITY) : f;
        return h >> 15 ? -f : f;
    }
    memcpy(&f, &bits, 4);
    return f;
}

/* The element at an address of shared memory. */
static float model_element(unsigned at, int type)
{
    unsigned short h;
    unsigned bits;
    float f;
    if (type == model_type_tf32) { /* whose last bits are not looked at */
        memcpy(&bits, model_at(model_swizzle(at), 4), 4);
        bits &= ~0x1fffu;
        memcpy(&f, &bits, 4);
        return f;
    }
    memcpy(&h, model_at(model_swizzle(at), 2), 2);
    return model_half(h, type);
}

/* Elements of k in the 32 bytes that a product takes. */
static int model_depth(int type)
{
    return type == model_type_tf32 ? 8 : 16;
}

/* Elements [0, n) x [0, depth) of a descriptor's matrix, as rows of 16. */
static void model_operand(unsigned long long box, int n, bool turned, int type, float *to)
{
    unsigned start = (unsigned)(box & 0x3fff) << 4, leading = (unsigned)(box >> 16 & 0x3fff) << 4;
    unsigned stride = (unsigned)(box >> 32 & 0x3fff) << 4;
    int depth = model_depth(type), bytes = 32 / depth;
    if (box >> 62 != 1 || (box >> 49 & 7) != 0) {
        model_fail("a descriptor of another layout");
    }
    if (turned && type == model_type_tf32) {
        model_fail("f32 that a product would have to turn");
    }
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < depth; k++) {
            unsigned at = turned ? i / 64 * leading + i % 64 * 2 + k / 8 * stride + k % 8 * 128
                                 : i / 8 * stride + i % 8 * 128 + k * bytes;
            to[16 * i + k] = model_element(start + at, type);
        }
    }
}

/* 64 x 16 elements in registers, pairs of neighbours in each of four. */
static void model_held(const model_product &p, float *to)
{
    for (int thread = 0; thread < 128; thread++) {
        for (int i = 0; i < 8; i++) {
            int row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2);
            int k = 2 * (thread % 4) + 8 * (i / 4) + i % 2;
            unsigned two = p.held[thread][i / 2];
            to[16 * row + k] = model_half((unsigned short)(i % 2 ? two >> 16 : two), p.type);
        }
    }
}

/* The 32 bytes of k of row i of a descriptor's matrix, as they are multiplied. */
static void model_byte_row(unsigned long long box, int i, bool is_unsigned, int *to)
{
    unsigned start = (unsigned)(box & 0x3fff) << 4, stride = (unsigned)(box >> 32 & 0x3fff) << 4;
    for (int k = 0; k < 32; k++) {
        unsigned at = start + i / 8 * stride + i % 8 * 128 + k;
        unsigned char byte = *model_at(model_swizzle(at), 1);
        to[k] = is_unsigned ? byte : (signed char)byte;
    }
}

/* Sums of bytes, which wrap. */
static void model_multiply_bytes(const model_product &p)
{
    static int a[64][32], b[256][32];
    int signs = p.type - model_type_s8s8;
    if (p.turn_a || p.turn_b || p.held[0] || p.a >> 62 != 1 || p.b >> 62 != 1) {
        model_fail("bytes that a product would have to turn, or a descriptor of another layout");
    }
    for (int i = 0; i < 64; i++) {
        model_byte_row(p.a, i, signs & 2, a[i]);
    }
    for (int i = 0; i < p.columns; i++) {
        model_byte_row(p.b, i, signs & 1, b[i]);
    }
    for (int thread = 0; thread < 128; thread++) {
        for (int i = 0; i < p.columns / 2; i++) {
            int row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2);
            int column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
            unsigned sum = 0;
            memcpy(&sum, p.d[thread] + i, p.add ? sizeof(sum) : 0);
            for (int k = 0; k < 32; k++) {
                sum += (unsigned)(a[row][k] * b[column][k]);
            }
            memcpy(p.d[thread] + i, &sum, sizeof(sum));
        }
    }
}

static void model_multiply(const model_product &p)
{
    if (p.type >= model_type_s8s8) {
        model_multiply_bytes(p);
        return;
    }
    static float a[64 * 16], b[256 * 16];
    if (p.held[0]) {
        model_held(p, a);
    } else {
        model_operand(p.a, 64, p.turn_a, p.type, a);
    }
    model_operand(p.b, p.columns, p.turn_b, p.type, b);
    for (int thread = 0; thread < 128; thread++) {
        for (int i = 0; i < p.columns / 2; i++) {
            int row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2);
            int column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
            float sum = 0;
            for (int k = 0; k < model_depth(p.type); k++) {
                sum += a[16 * row + k] * b[16 * column + k];
            }
            float *d = p.d[thread] + i;
            *d = p.add ? *d + sum : sum;
        }
    }
}

static model_group *model_open_group()
{
    model_fiber &f = model_in->fibers[model_me];
    model_warpgroup &w = model_in->warpgroups[model_me / 128];
    while ((long)w.groups.size() <= f.open - w.done) {
        w.groups.push_back(model_group());
        w.groups.back().committed = 0;
    }
    return &w.groups[f.open - w.done];
}

static void model_ask(const model_product &want, float *d, const unsigned *held)
{
    model_fiber &f = model_in->fibers[model_me];
    model_group *g = model_open_group();
    if (!f.fenced) {
        model_fail("a product without a fence");
    }
    if ((long)g->products.size() <= f.next) {
        g->products.push_back(want);
    }
    model_product &p = g->products[f.next++];
    if (p.a != want.a || p.b != want.b || p.add != want.add || p.columns != want.columns) {
        model_fail("threads of a warpgroup ask for different products");
    }
    p.d[model_me % 128] = d;
    p.held[model_me % 128] = held;
    p.issued++;
}

template <int columns, int type, int turn_a, int turn_b>
static void model_issue(float *d, unsigned long long a, unsigned long long b, int add)
{
    model_ask(model_product{a, b, columns, add, turn_a, turn_b, type, 0, {0}, {0}}, d, 0);
}

template <int columns, int type, int turn_a, int turn_b>
static void model_issue(int *d, unsigned long long a, unsigned long long b, int add)
{
    model_issue<columns, type, turn_a, turn_b>((float *)d, a, b, add);
}

template <int columns, int type>
static void model_issue_held(float *d, const unsigned *a, unsigned long long b, int add)
{
    model_ask(model_product{0, b, columns, add, 0, 1, type, 0, {0}, {0}}, d, a);
}

#define TC_MULTIPLY(type, columns, ta, tb) model_issue<columns, model_type_##type, ta, tb>
#define TC_MULTIPLY_HELD(type, columns) model_issue_held<columns, model_type_##type>

/* A thread here has any number of them. */
template <int n> static void tc_take_registers()
{
}
template <int n> static void tc_leave_registers()
{
}

static void tc_products_begin()
{
    model_in->fibers[model_me].fenced = true;
}

static void tc_products_commit()
{
    model_fiber &f = model_in->fibers[model_me];
    model_open_group()->committed++;
    f.open++;
    f.next = 0;
    f.fenced = false;
}

/* Completes the oldest group, if every thread has committed it. */
static bool model_complete(model_warpgroup &w)
{
    if (w.groups.empty() || w.groups.front().committed < 128) {
        return false;
    }
    for (const model_product &p : w.groups.front().products) {
        if (p.issued != 128) {
            model_fail("a product that not all threads asked for");
            return false;
        }
        model_multiply(p);
    }
    w.groups.pop_front();
    w.done++;
    return true;
}

template <int left> static void tc_products_wait()
{
    model_in->fibers[model_me].group = model_in->fibers[model_me].open - left;
    model_switch(MODEL_PRODUCTS);
}

/* ---- copies ---- */

static void model_copied(const model_copy &c)
{
    memcpy(c.to, c.four, sizeof(c.four));
}

/* Arrives at once, or as late as it may. */
static void tc_copy_four(float *to, const float *from, bool is)
{
    std::deque<std::vector<model_copy>> &groups = model_in->copies[model_me];
    model_copy c = {to, {0, 0, 0, 0}};
    if (((size_t)to | (size_t)from) % 16 != 0) {
        model_fail("a copy of 16 bytes that are not aligned");
    }
    if (is) {
        memcpy(c.four, from, sizeof(c.four));
    }
    if (groups.empty()) {
        groups.emplace_back();
    }
    if (model_random() % 2) {
        model_copied(c);
    } else {
        groups.back().push_back(c);
    }
}

static void tc_copies_commit()
{
    std::deque<std::vector<model_copy>> &groups = model_in->copies[model_me];
    groups.resize(groups.empty() ? 2 : groups.size() + 1);
}

template <int left> static void tc_copies_wait()
{
    std::deque<std::vector<model_copy>> &groups = model_in->copies[model_me];
    while ((int)groups.size() > left + 1) { /* the last one is open */
        for (const model_copy &c : groups.front()) {
            model_copied(c);
        }
        groups.pop_front();
    }
}

/* ---- warps ---- */

static void model_meet(bool stores)
{
    model_warp &w = model_in->warps[model_me / 32];
    if (w.here > 0 && w.stores != stores) {
        model_fail("threads of a warp meet at different places");
    }
    w.stores = stores;
    w.here++;
    model_switch(MODEL_WARP);
}

static void __syncwarp()
{
    model_meet(false);
}

/* What the lane of the warp whose number differs in these bits has. */
static float tc_swap(float x, int lanes)
{
    model_in->warps[model_me / 32].swapped[model_me % 32] = x;
    model_meet(false);
    x = model_in->warps[model_me / 32].swapped[model_me % 32 ^ lanes];
    model_meet(false);
    return x;
}

static float tc_load_one(unsigned from)
{
    float f;
    memcpy(&f, model_at(from, 4), 4);
    return f;
}

static void tc_load_two(unsigned from, float &a, float &b)
{
    memcpy(&a, model_at(from, 4), 4);
    memcpy(&b, model_at(from + 4, 4), 4);
}

static float tc_power_of_2(float x)
{
    return exp2f(x);
}
static float tc_log_2(float x)
{
    return log2f(x);
}

static float model_round_bf16(float f)
{
    unsigned u;
    memcpy(&u, &f, 4);
    u = f != f ? 0x7fff0000u : (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &u, 4);
    return f;
}

static float tc_mul_bf16(float a, float b)
{
    return model_round_bf16(a * b);
}
static float tc_add_bf16(float a, float b)
{
    return model_round_bf16(a + b);
}
template <int n> static void tc_registers_fewer()
{
}
template <int n> static void tc_registers_more()
{
}
template <int n> static void tc_registers_here(float (&)[n])
{
}
template <int n> static void tc_attention_behind(float (&)[n], bool)
{
    tc_products_wait<0>();
}

static void tc_store_squares(unsigned to, unsigned a, unsigned b, unsigned c, unsigned d)
{
    model_warp &w = model_in->warps[model_me / 32];
    unsigned squares[4] = {a, b, c, d};
    w.to[model_me % 32] = to;
    memcpy(w.squares[model_me % 32], squares, sizeof(squares));
    model_meet(true);
}

/* Row r of square q: where lane 8 q + r says; columns 2 c and 2 c + 1 of it are in lane 4 r + c. */
static void model_store_squares(const model_warp &w)
{
    for (int q = 0; q < 4; q++) {
        for (int r = 0; r < 8; r++) {
            for (int c = 0; c < 4; c++) {
                memcpy(model_at(w.to[8 * q + r] + 4 * c, 4), &w.squares[4 * r + c][q], 4);
            }
        }
    }
}

static void tc_store_two(unsigned to, float a, float b)
{
    memcpy(model_at(to, 4), &a, 4);
    memcpy(model_at(to + 4, 4), &b, 4);
}

static void tc_store_two(unsigned to, int a, int b)
{
    memcpy(model_at(to, 4), &a, 4);
    memcpy(model_at(to + 4, 4), &b, 4);
}

static unsigned tc_pair_f16(float low, float high)
{
    return (unsigned)tc_narrow_f32_f16(high) << 16 | tc_narrow_f32_f16(low);
}

#define TC_SHARED unsigned char *const tc_shared = model_memory
static unsigned tc_shared_at(const void *p)
{
    return (unsigned)((const unsigned char *)p - model_memory) + model_start;
}

/* ---- the block ---- */

static bool model_can_go(const model_fiber &f, unsigned thread)
{
    switch (f.wait) {
    case MODEL_READY: return true;
    case MODEL_BARRIER: {
        model_barrier *b = model_find(f.bar);
        return !b || (b->phase & 1) != f.parity;
    }
    case MODEL_PRODUCTS: return model_in->warpgroups[thread / 128].done >= f.group;
    default: return false;
    }
}

/* Lets all threads of [first, first + n) that wait so go on. */
static void model_release(unsigned first, unsigned n, model_waits wait)
{
    for (unsigned i = first; i < first + n; i++) {
        if (model_in->fibers[i].wait == wait) {
            model_in->fibers[i].wait = MODEL_READY;
        }
    }
}

static void model_sync_block()
{
    model_in->here++;
    model_switch(MODEL_BLOCK);
}

static void tc_blocks_meet()
{
    model_cluster_here++;
    model_switch(MODEL_CLUSTER);
}

/* What happens without a thread: true if anything did. force: nothing else can. */
static bool model_advance(bool force)
{
    if (!model_boxes.empty() && (force || model_random() % 8 == 0)) {
        size_t i = model_random() % model_boxes.size();
        model_box box = model_boxes[i];
        model_boxes.erase(model_boxes.begin() + (long)i);
        model_arrives(box);
        return true;
    }
    if (!model_signals.empty() && (force || model_random() % 8 == 0)) {
        size_t i = model_random() % model_signals.size();
        model_signal signal = model_signals[i];
        model_signals.erase(model_signals.begin() + (long)i);
        model_signalled(signal);
        return true;
    }
    for (size_t i = 0; i < model_in->warpgroups.size(); i++) {
        if ((force || model_random() % 64 == 0) && model_complete(model_in->warpgroups[i])) {
            return true;
        }
    }
    return false;
}

/* model_enter has been called for the thread's block. */
static void model_meetings(unsigned thread)
{
    model_warp &w = model_in->warps[thread / 32];
    unsigned threads = (unsigned)model_in->fibers.size();
    if (w.here == 32) {
        if (w.stores) {
            model_store_squares(w);
        }
        w.here = 0;
        model_release(thread / 32 * 32, 32, MODEL_WARP);
    }
    if (model_in->here == (int)threads) {
        model_in->here = 0;
        model_release(0, threads, MODEL_BLOCK);
    }
    if (model_cluster_here == (int)(threads * model_blocks.size())) {
        model_cluster_here = 0;
        for (size_t i = 0; i < model_blocks.size(); i++) {
            model_enter(i);
            model_release(0, threads, MODEL_CLUSTER);
        }
    }
}

static void (*model_kernel)(const void *);
static const void *model_args;

static void model_entry()
{
    model_kernel(model_args);
    model_switch(MODEL_ENDED);
}

static void model_turn(unsigned thread)
{
    model_fiber &f = model_in->fibers[thread];
    model_me = thread;
    threadIdx.x = (int)(thread % model_block_x);
    threadIdx.y = (int)(thread / model_block_x);
    f.wait = MODEL_READY;
    swapcontext(&model_scheduler, &f.context);
    model_in->ended += f.wait == MODEL_ENDED;
    model_meetings(thread);
}

/* Can no thread of any block go on? */
static bool model_is_stuck()
{
    for (size_t b = 0; b < model_blocks.size(); b++) {
        model_enter(b);
        for (unsigned i = 0; i < model_in->fibers.size(); i++) {
            if (model_in->fibers[i].wait != MODEL_ENDED && model_can_go(model_in->fibers[i], i)) {
                return false;
            }
        }
    }
    return true;
}

static int model_ended()
{
    int ended = 0;
    for (const model_block &b : model_blocks) {
        ended += b.ended;
    }
    return ended;
}

/* Runs the blocks of a cluster, of so many threads each. */
static void model_schedule(unsigned threads)
{
    unsigned all = threads * (unsigned)model_blocks.size();
    while (model_ended() < (int)all && !model_error) {
        bool moved = false;
        unsigned turn = model_random() % all, step = model_random() % 5 * 2 + 1;
        while (all % step == 0 && step > 1) {
            step += 2;
        }
        for (unsigned n = 0; n < all && !model_error; n++) {
            unsigned at = (turn + n * step) % all, i = at % threads;
            model_enter(at / threads);
            model_fiber &f = model_in->fibers[i];
            if (f.wait == MODEL_ENDED || !model_can_go(f, i) || model_random() % 1024 < f.slow) {
                moved = moved || f.wait == MODEL_READY;
                continue;
            }
            moved = true;
            model_turn(i);
            model_enter(at / threads);
            model_advance(false);
        }
        for (size_t b = 0; b < model_blocks.size() && !moved; b++) {
            model_enter(b);
            moved = model_advance(true);
        }
        if (!moved && model_is_stuck() && model_ended() < (int)all) {
            model_fail("a deadlock");
        }
    }
    if (!model_error && (!model_boxes.empty() || !model_signals.empty())) {
        model_fail("a load or an arrival outlives its block");
    }
}

static void model_begin_block(size_t block, unsigned threads, char *stacks, size_t stack,
                              unsigned slow_warps)
{
    unsigned warps = threads / 32;
    model_block &b = model_blocks[block];
    b.bytes.assign((size_t)model_bytes + 64, 0xee);
    b.memory = b.bytes.data() + (64 - (size_t)b.bytes.data() % 64) % 64;
    b.warps.assign(warps, model_warp());
    b.warpgroups.assign((warps + 3) / 4, model_warpgroup());
    b.fibers.assign(threads, model_fiber());
    for (unsigned i = 0; i < threads; i++) {
        bool last = i / 32 >= warps - 3;
        bool lags = slow_warps < 2 && last == (slow_warps == 1);
        b.fibers[i].slow = lags ? 1016 : model_random() % 64 == 0 ? 900 : 64;
        ucontext_t *c = &b.fibers[i].context;
        getcontext(c);
        c->uc_stack.ss_sp = stacks + stack * i;
        c->uc_stack.ss_size = stack;
        c->uc_link = 0;
        makecontext(c, model_entry, 0);
    }
}

/* Runs a grid of block_x x block_y threads in clusters of so many blocks; NULL: all went well. */
extern "C" const char *model_run(void (*kernel)(const void *), const void *args, int blocks,
                                 int cluster, int block_x, int block_y, long shared_bytes,
                                 unsigned seed)
{
    const size_t stack = 1 << 16;
    unsigned threads = (unsigned)(block_x * block_y);
    std::vector<char> stacks(stack * threads * (size_t)cluster);
    model_bytes = (unsigned)shared_bytes;
    model_kernel = kernel;
    model_args = args;
    model_error = blocks % cluster ? "a cluster that is not whole" : 0;
    model_random_state = seed;
    model_runs = true;
    model_block_x = (unsigned)block_x;
    gridDim.x = blocks;
    for (int block = 0; block < blocks && !model_error; block += cluster) {
        model_first_block = (unsigned)block;
        model_cluster_here = 0;
        model_boxes.clear();
        model_signals.clear();
        model_blocks.clear();
        model_blocks.resize((size_t)cluster);
        for (int i = 0; i < cluster; i++) { /* slow: consumers, the last warps, none */
            model_begin_block((size_t)i, threads, &stacks[stack * threads * (size_t)i], stack,
                              (seed + (unsigned)i) % 3);
        }
        model_schedule(threads);
    }
    model_runs = false;
    return model_error;
}
