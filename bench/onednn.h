/* bench/onednn.h - oneDNN's own convolution and matmul, through the C calls of its version 2, which
 * are opened at run time.
 *
 * Descriptors are opaque here: memory that is larger than any of them. A convolution may choose the
 * layout of all its arrays; they are brought into it once, outside of what is timed. A matmul reads
 * and writes dense rows. */
#ifndef BENCH_ONEDNN_H
#define BENCH_ONEDNN_H

#include <dlfcn.h>

#include "bench.h"

enum { /* of the interface */
       ONEDNN_ANY = 1,
       ONEDNN_AB = 3, /* tags: dense in order of the axes, 2 to 4 of them */
       ONEDNN_ABC = 4,
       ONEDNN_ABCD = 5,
       ONEDNN_BF16 = 2,
       ONEDNN_F32 = 3,
       ONEDNN_CPU = 1,
       ONEDNN_INFERENCE = 96,
       ONEDNN_DIRECT = 1,
       ONEDNN_WINOGRAD = 2,
       ONEDNN_SRC = 1,
       ONEDNN_DST = 17,
       ONEDNN_WEIGHTS = 33,
       ONEDNN_SRC_MD = 129,
       ONEDNN_WEIGHTS_MD = 131,
       ONEDNN_DST_MD = 133
};

typedef struct onednn_md {
    int64_t words[256];
} onednn_md; /* 696 bytes in 2.6 */
typedef struct onednn_desc {
    int64_t words[2048];
} onednn_desc; /* 5976 */
typedef struct onednn_arg {
    int arg;
    void *memory;
} onednn_arg;
typedef struct onednn_op {
    void *primitive;
    onednn_arg args[3];
} onednn_op;

static struct {
    void *engine, *stream;
    int (*md)(onednn_md *md, int rank, const int64_t *sizes, int type, int tag);
    int (*convolution)(onednn_desc *d, int kind, int algorithm, const onednn_md *src,
                       const onednn_md *weights, const onednn_md *bias, const onednn_md *dst,
                       const int64_t *strides, const int64_t *before, const int64_t *after);
    int (*matmul)(onednn_desc *d, const onednn_md *src, const onednn_md *weights,
                  const onednn_md *bias, const onednn_md *dst);
    int (*describe)(void **pd, const onednn_desc *d, const void *attr, void *engine, void *hint);
    const onednn_md *(*query)(void *pd, int what, int index);
    int (*create)(void **primitive, void *pd);
    int (*memory)(void **memory, const onednn_md *md, void *engine, void *data);
    int (*reorder)(void **pd, const onednn_md *from, void *from_engine, const onednn_md *to,
                   void *to_engine, const void *attr);
    int (*execute)(void *primitive, void *stream, int n, const onednn_arg *args);
    int (*wait)(void *stream);
} onednn;

static inline bool onednn_find(void *library, const char *name, void *to)
{
    void *found = dlsym(library, name);
    memcpy(to, &found, sizeof(found));
    return found != NULL;
}

/* False: the library is not there, or of another version. */
static inline bool onednn_open(void)
{
    void *so = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_GLOBAL);
    int (*engine)(void **, int, size_t), (*stream)(void **, void *, unsigned);
    return so && onednn_find(so, "dnnl_memory_desc_init_by_tag", &onednn.md) &&
           onednn_find(so, "dnnl_convolution_forward_desc_init", &onednn.convolution) &&
           onednn_find(so, "dnnl_matmul_desc_init", &onednn.matmul) &&
           onednn_find(so, "dnnl_primitive_desc_create", &onednn.describe) &&
           onednn_find(so, "dnnl_primitive_desc_query_md", &onednn.query) &&
           onednn_find(so, "dnnl_primitive_create", &onednn.create) &&
           onednn_find(so, "dnnl_memory_create", &onednn.memory) &&
           onednn_find(so, "dnnl_reorder_primitive_desc_create", &onednn.reorder) &&
           onednn_find(so, "dnnl_primitive_execute", &onednn.execute) &&
           onednn_find(so, "dnnl_stream_wait", &onednn.wait) &&
           onednn_find(so, "dnnl_engine_create", &engine) &&
           onednn_find(so, "dnnl_stream_create", &stream) &&
           !engine(&onednn.engine, ONEDNN_CPU, 0) && !stream(&onednn.stream, onednn.engine, 1);
}

static inline void onednn_run(void *arg)
{
    onednn_op *op = arg;
    onednn.execute(op->primitive, onednn.stream, 3, op->args);
    onednn.wait(onednn.stream);
}

/* Memory in the layout that the primitive wants, holding what `data` (plain) holds. */
static inline void *onednn_place(const onednn_md *wanted, const onednn_md *plain, void *data)
{
    void *to = NULL, *from = NULL, *pd = NULL, *move = NULL;
    void *allocate = (void *)~(size_t)0;
    if (onednn.memory(&to, wanted, onednn.engine, allocate) ||
        onednn.memory(&from, plain, onednn.engine, data) ||
        onednn.reorder(&pd, plain, onednn.engine, wanted, onednn.engine, NULL) ||
        onednn.create(&move, pd)) {
        return NULL;
    }
    onednn_arg args[2] = {{ONEDNN_SRC, from}, {ONEDNN_DST, to}};
    return onednn.execute(move, onednn.stream, 2, args) || onednn.wait(onednn.stream) ? NULL : to;
}

/* A square convolution of one image with padding that keeps its size, ONEDNN_DIRECT or
 * ONEDNN_WINOGRAD. */
static inline bool onednn_convolution(onednn_op *op, int algorithm, int64_t channels, int64_t size,
                                      int64_t kernel, float *image, float *weights, float *to)
{
    int64_t image_size[4] = {1, channels, size, size};
    int64_t weights_size[4] = {channels, channels, kernel, kernel};
    int64_t one[2] = {1, 1}, padding[2] = {kernel / 2, kernel / 2};
    onednn_md any_image, any_weights, plain_image, plain_weights;
    onednn_desc desc;
    void *pd;
    if (onednn.md(&any_image, 4, image_size, ONEDNN_F32, ONEDNN_ANY) ||
        onednn.md(&any_weights, 4, weights_size, ONEDNN_F32, ONEDNN_ANY) ||
        onednn.md(&plain_image, 4, image_size, ONEDNN_F32, ONEDNN_ABCD) ||
        onednn.md(&plain_weights, 4, weights_size, ONEDNN_F32, ONEDNN_ABCD) ||
        onednn.convolution(&desc, ONEDNN_INFERENCE, algorithm, &any_image, &any_weights, NULL,
                           &any_image, one, padding, padding) ||
        onednn.describe(&pd, &desc, NULL, onednn.engine, NULL) ||
        onednn.create(&op->primitive, pd)) {
        return false;
    }
    op->args[0] = (onednn_arg){ONEDNN_SRC, onednn_place(onednn.query(pd, ONEDNN_SRC_MD, 0),
                                                        &plain_image, image)};
    op->args[1] = (onednn_arg){ONEDNN_WEIGHTS, onednn_place(onednn.query(pd, ONEDNN_WEIGHTS_MD, 0),
                                                            &plain_weights, weights)};
    op->args[2] = (onednn_arg){ONEDNN_DST,
                               onednn_place(onednn.query(pd, ONEDNN_DST_MD, 0), &plain_image, to)};
    return op->args[0].memory && op->args[1].memory && op->args[2].memory;
}

/* c = a b, dense rows; a and b of `type`, c f32. */
static inline bool onednn_matmul(onednn_op *op, int64_t m, int64_t n, int64_t k, int type, void *a,
                                 void *b, float *c)
{
    int64_t sizes[3][2] = {{m, k}, {k, n}, {m, n}};
    int types[3] = {type, type, ONEDNN_F32}, names[3] = {ONEDNN_SRC, ONEDNN_WEIGHTS, ONEDNN_DST};
    void *data[3] = {a, b, c}, *pd;
    onednn_md md[3];
    onednn_desc desc;
    for (int i = 0; i < 3; i++) {
        op->args[i].arg = names[i];
        if (onednn.md(&md[i], 2, sizes[i], types[i], ONEDNN_AB) ||
            onednn.memory(&op->args[i].memory, &md[i], onednn.engine, data[i])) {
            return false;
        }
    }
    return !onednn.matmul(&desc, &md[0], &md[1], NULL, &md[2]) &&
           !onednn.describe(&pd, &desc, NULL, onednn.engine, NULL) &&
           !onednn.create(&op->primitive, pd);
}

#endif
