/* cuda/graph_while.c - runs while loops on the device: a CUDA graph with conditional nodes.
 *
 * In: the launches of two consecutive iterations (carries alternate between two buffers), and their
 * continue flags. Out: a sequence
 *
 *     decide(go[0]) -> while: rounds[0], decide(go[1]) -> if: rounds[1], decide(go[0])
 *
 * where `decide` is a kernel of one thread that counts iterations and sets the conditions of the
 * nodes. CUDA C++ without headers cannot, so it is PTX, compiled by the driver on first use. */
#include <string.h>

#include "../base/alloc.h"
#include "device.h"

enum { TCI_CUDA_LOOP_NODES = 4096 }; /* of both rounds together, at most */

/* decide(go, done, step, most, node, other): *done is set to 0 (step 0) or grows by one; if *go and
 * *done < most, the nodes (other: 0 for none) are done. */
static const char tci_cuda_decide_text[] =
    ".version 8.3\n.target sm_80\n.address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 node, .param .b32 value);\n"
    ".visible .entry decide(.param .u64 go, .param .u64 done, .param .u64 step, .param .u64 most,\n"
    "                       .param .u64 node, .param .u64 other)\n"
    "{\n"
    "    .reg .pred p, q;\n    .reg .u64 r<7>;\n    .reg .b16 h;\n    .reg .b32 w;\n"
    "    ld.param.u64 r0, [go];\n    ld.param.u64 r1, [done];\n    ld.param.u64 r2, [step];\n"
    "    ld.param.u64 r3, [most];\n    ld.param.u64 r4, [node];\n    ld.param.u64 r5, [other];\n"
    "    ld.global.u64 r6, [r1];\n    setp.eq.u64 q, r2, 0;\n@q  mov.u64 r6, 0;\n"
    "    add.u64 r6, r6, r2;\n    st.global.u64 [r1], r6;\n"
    "    ld.global.u8 h, [r0];\n    setp.ne.u16 p, h, 0;\n    setp.lt.and.u64 p, r6, r3, p;\n"
    "    selp.u32 w, 1, 0, p;\n"
    "    { .param .b64 x; .param .b32 y; st.param.b64 [x], r4; st.param.b32 [y], w;\n"
    "      call.uni cudaGraphSetConditional, (x, y); }\n"
    "    setp.eq.u64 p, r5, 0;\n@p  bra END;\n"
    "    { .param .b64 x; .param .b32 y; st.param.b64 [x], r5; st.param.b32 [y], w;\n"
    "      call.uni cudaGraphSetConditional, (x, y); }\n"
    "END:\n    ret;\n}\n";

/* One that another thread made meanwhile is taken; modules stay as long as the process. */
static void *tci_cuda_decide(tci_cuda_device *d)
{
    const tci_cu *cu = tci_cuda_driver();
    void *made = __atomic_load_n(&d->decide, __ATOMIC_ACQUIRE), *module = NULL, *none = NULL;
    if (made || !cu->graph_handle || !cu->graph_add) {
        return made;
    }
    if (cu->module_load(&module, tci_cuda_decide_text)) {
        return NULL;
    }
    if (cu->module_find(&made, module, "decide")) {
        made = NULL;
    }
    bool first = made && __atomic_compare_exchange_n(&d->decide, &none, made, false,
                                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    if (!first) {
        cu->module_free(module);
    }
    return first ? made : none;
}

typedef struct tci_cuda_looping {
    tci_cuda_device *d;
    const tc_backend_loop *loop;
    void *decide;
    void **nodes, **after;    /* an entry for each launch of an iteration */
    unsigned long long again; /* handle of the while */
} tci_cuda_looping;

/* Behind `before`, if that is not NULL; *node is it. */
static tc_status tci_cuda_loop_decide(const tci_cuda_looping *x, void *graph, void *before,
                                      int parity, uint64_t step, unsigned long long other,
                                      void **node)
{
    uint64_t go = (uintptr_t)x->loop->go[parity], done = (uintptr_t)x->loop->done;
    uint64_t most = (uint64_t)x->loop->most, again = x->again, also = other;
    void *params[] = {&go, &done, &step, &most, &again, &also};
    tci_cu_kernel_params k = {.function = x->decide,
                              .grid_x = 1,
                              .grid_y = 1,
                              .grid_z = 1,
                              .block_x = 1,
                              .block_y = 1,
                              .block_z = 1,
                              .params = params};
    return tci_cuda_check(tci_cuda_driver()->graph_add_kernel(node, graph, &before, before != NULL,
                                                              &k),
                          "cuGraphAddKernelNode");
}

/* A conditional node behind another; *body is its graph. */
static tc_status tci_cuda_loop_node(const tci_cuda_looping *x, void *graph, void *before,
                                    unsigned long long handle, int kind, void **body)
{
    enum { TCI_CU_CONDITIONAL = 13 }; /* CU_GRAPH_NODE_TYPE_... */
    tci_cu_conditional c = {.type = TCI_CU_CONDITIONAL,
                            .handle = handle,
                            .kind = kind,
                            .n_bodies = 1,
                            .context = x->d->context};
    void *node = NULL;
    tc_status status = tci_cuda_check(tci_cuda_driver()->graph_add(&node, graph, &before, 1, &c),
                                      "cuGraphAddNode");
    *body = status ? NULL : c.bodies[0];
    return status;
}

/* The launches of a round, each after the one before. *last: that of the last, NULL: of none. */
static tc_status tci_cuda_loop_round(const tci_cuda_looping *x, void *graph, int parity,
                                     void **last)
{
    tc_status status = TC_OK;
    int32_t before = -1;
    for (int i = 0; i < x->loop->n && !status; i++) {
        tc_launch launch = x->loop->rounds[parity][i];
        launch.after = &before;
        launch.n_after = before >= 0;
        x->nodes[i] = NULL;
        status = tci_cuda_add_node(graph, &launch, x->nodes, 0, i, x->after);
        before = x->nodes[i] ? i : before;
    }
    *last = before >= 0 ? x->nodes[before] : NULL;
    return status;
}

static tc_status tci_cuda_loop_handle(const tci_cuda_looping *x, void *graph,
                                      unsigned long long *handle)
{
    return tci_cuda_check(tci_cuda_driver()->graph_handle(handle, graph, x->d->context, 0, 0),
                          "cuGraphConditionalHandleCreate");
}

static tc_status tci_cuda_loop_graph(tci_cuda_looping *x, void *graph)
{
    enum { TCI_CU_IF = 0, TCI_CU_WHILE = 1 }; /* CU_GRAPH_COND_TYPE_... */
    void *node = NULL, *even = NULL, *odd = NULL;
    unsigned long long other = 0;
    tc_status status = tci_cuda_loop_handle(x, graph, &x->again);
    status = status ? status : tci_cuda_loop_decide(x, graph, NULL, 0, 0, 0, &node);
    status = status ? status : tci_cuda_loop_node(x, graph, node, x->again, TCI_CU_WHILE, &even);
    status = status ? status : tci_cuda_loop_handle(x, even, &other);
    status = status ? status : tci_cuda_loop_round(x, even, 0, &node);
    status = status ? status : tci_cuda_loop_decide(x, even, node, 1, 1, other, &node);
    status = status ? status : tci_cuda_loop_node(x, even, node, other, TCI_CU_IF, &odd);
    status = status ? status : tci_cuda_loop_round(x, odd, 1, &node);
    return status ? status : tci_cuda_loop_decide(x, odd, node, 0, 1, 0, &node);
}

/* Builds a loop in the driver's graph. If the driver cannot, the host runs it iteration by
 * iteration. */
static tc_status tci_cuda_loop_make(tci_cuda_looping *x, tci_cuda_graph *g)
{
    const tci_cu *cu = tci_cuda_driver();
    x->decide = tci_cuda_decide(x->d);
    if (!x->decide) {
        return TC_ERR_UNSUPPORTED;
    }
    tc_status status = tci_cuda_check(cu->graph_create(&g->graph, 0), "cuGraphCreate");
    status = status ? status : tci_cuda_loop_graph(x, g->graph);
    if (!status) {
        status = tci_cuda_check(cu->graph_instantiate(&g->executable, g->graph, 0),
                                "cuGraphInstantiate");
    }
    return status && status != TC_ERR_MEMORY ? TC_ERR_UNSUPPORTED : status;
}

TCI_FN tc_status tci_cuda_record_loop(void *user, const tc_backend_loop *loop, void **sequence)
{
    tci_cuda_looping x = {.d = tci_cuda_of(user), .loop = loop};
    *sequence = NULL;
    if (2 * loop->n > TCI_CUDA_LOOP_NODES) {
        return TC_ERR_UNSUPPORTED;
    }
    tci_cuda_sequence *s = tci_cuda_sequence_make(1);
    x.nodes = tci_heap_get(sizeof(*x.nodes) * 2 * (size_t)TCI_MAX(loop->n, 1));
    x.after = x.nodes ? x.nodes + loop->n : NULL;
    if (!s || !x.nodes) {
        tci_heap_free(s);
        tci_heap_free(x.nodes);
        return TC_ERR_MEMORY;
    }
    tci_cuda_stay in = tci_cuda_enter(x.d);
    tc_status status = tci_cuda_leave(&in, in.status ? TC_OK : tci_cuda_loop_make(&x, s->graphs));
    tci_heap_free(x.nodes);
    if (status) {
        tci_cuda_sequence_free(user, s);
        s = NULL;
    }
    *sequence = s;
    return status;
}
