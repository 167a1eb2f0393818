/* src/tc.h - root of the joined header: the rooms in data-flow order, and nothing else.
 * tools/amalgamate.c turns this file into the shipped tc.h. */
#ifndef TC_H
#define TC_H

#include "api/manual.h"
#include "api/types.h"
#include "api/tensor.h"
#include "api/ops.h"
#include "api/optim.h"
#include "api/compile.h"
#ifndef TC_NO_IO
#include "api/io.h"
#endif
#include "api/backend.h"
#ifdef TC_CUDA
#include "api/cuda.h"
#endif

#endif

#if defined(TC_IMPLEMENTATION) && defined(__cplusplus)
#error "tc is implemented in C11: define TC_IMPLEMENTATION in one .c file, and not in C++"
#elif defined(TC_IMPLEMENTATION) && defined(__TINYC__) && __TINYC__ < 928
#error "this tcc lacks C11 atomics: build the file with TC_IMPLEMENTATION with gcc or clang"
#elif defined(TC_IMPLEMENTATION) && !defined(TC_IMPLEMENTED)
#define TC_IMPLEMENTED
#if !defined(TC_NO_CPU) && defined(__has_include)
#if __has_include("tc_cpu.h")
#define TCI_HAS_CPU
#endif
#endif
#if defined(TC_CUDA) && defined(__has_include)
#if __has_include("tc_cuda.h")
#define TCI_HAS_CUDA
#endif
#endif

#include "base/protect.h"

#include "base/alloc.c"
#include "base/str.c"
#include "base/hash.c"
#include "base/env.c"
#include "base/os.c"
#include "base/dir.c"
#include "base/object.c"
#include "base/spawn.c"
#include "base/workdir.c"
#include "base/dim_table.c"
#include "base/dim_bounds.c"
#include "base/dim_stray.c"
#include "base/dim.c"
#include "base/dim_value.c"
#include "base/dim_text.c"

#include "ops/dtype.c"
#include "ops/info.c"
#include "ops/prim.c"
#include "ops/formula.c"
#include "ops/combine.c"
#include "ops/helpers.c"
#include "ops/math.c"

#include "graph/node.c"
#include "graph/table.c"
#include "graph/build.c"
#include "graph/move.c"
#include "graph/scatter.c"
#include "graph/contract.c"
#include "graph/print.c"
#include "graph/verify.c"
#include "ops/composite.c"
#include "ops/arrange.c"
#include "ops/search.c"
#include "ops/sets.c"
#include "ops/linear.c"
#include "ops/window.c"
#include "ops/resample.c"
#include "ops/random.c"

#include "grad/vjp.c"
#include "grad/rules.c"
#include "grad/grad.c"
#include "grad/transpose.c"

#include "rewrite/rewrite.c"
#include "rewrite/crop.c"

#include "kernel/machine.c"
#include "kernel/ir.c"
#include "kernel/print.c"
#include "kernel/verify.c"
#include "kernel/random.c"
#include "kernel/bits.c"
#include "kernel/lower.c"
#include "kernel/simplify.c"
#include "kernel/concrete.c"
#include "kernel/matrix.c"
#include "kernel/boxes.c"
#include "kernel/attention.c"

#include "plan/order.c"
#include "plan/sort.c"
#include "plan/parts.c"
#include "plan/scan.c"
#include "plan/images.c"
#include "plan/algorithm.c"
#include "plan/root.c"
#include "plan/store.c"
#include "plan/trail.c"
#include "plan/join.c"
#include "plan/pattern.c"
#include "plan/group.c"
#include "plan/class.c"
#include "plan/kernel.c"
#include "plan/sequence.c"
#include "plan/place.c"
#include "plan/memory.c"
#include "plan/once.c"
#include "plan/plan.c"
#include "plan/print.c"
#include "plan/verify.c"

#include "loop/ir.c"
#include "loop/build.c"
#include "loop/access.c"
#include "loop/cost.c"
#include "loop/cut.c"
#include "loop/combine.c"
#include "loop/vectors.c"
#include "loop/point.c"
#include "loop/outer.c"
#include "loop/scatter.c"
#include "loop/inner.c"
#include "loop/scan.c"
#include "loop/keep.c"
#include "loop/stage.c"
#include "loop/panel.c"
#include "loop/sides.c"
#include "loop/blocks.c"
#include "loop/packing.c"
#include "loop/blocked.c"
#include "loop/matrix.c"
#include "loop/attention.c"
#include "loop/tiles.c"
#include "loop/row.c"
#include "loop/square.c"
#include "loop/product.c"
#include "loop/spread.c"
#include "loop/narrow.c"
#include "loop/ask.c"
#include "loop/nest.c"
#include "loop/unit.c"
#include "loop/map.c"
#include "loop/tile.c"
#include "loop/strip.c"
#include "loop/rows.c"
#include "loop/schedule.c"
#include "loop/print.c"
#include "loop/walk.c"
#include "loop/verify.c"
#include "emit/c_like.c"
#include "emit/c_soft.c"
#include "emit/c_memory.c"
#include "emit/c_prims.c"
#include "emit/c_dialect.c"

#include "interp/loops.c"
#include "interp/values.c"
#include "interp/nodes.c"
#include "interp/reds.c"
#include "interp/needs.c"
#include "interp/access.c"
#include "interp/steps.c"
#include "interp/place.c"
#include "interp/prepare.c"
#include "interp/kernels.c"
#include "interp/verify.c"
#include "interp/print.c"
#include "interp/reference.c"

#include "compile/backend.c"
#include "compile/forced.c"
#include "compile/key.c"
#include "compile/cache.c"
#include "compile/disk.c"
#include "compile/jit.c"
#include "compile/tune.c"
#include "compile/steps.c"
#include "compile/verify.c"
#include "compile/compile.c"

#include "run/pool.c"
#include "run/param.c"
#include "run/resident.c"
#include "run/buffer.c"
#include "run/index.c"
#include "run/program.c"
#include "run/check.c"
#include "run/kept.c"
#include "run/bind.c"
#include "run/after.c"
#include "run/walk.c"
#include "run/call.c"
#include "run/solve.c"
#include "run/dynamic.c"
#include "run/queue.c"

#include "debug/dump.c"
#include "debug/recompile.c"
#include "debug/explain.c"
#include "debug/trace.c"

#include "api/handle.c"
#include "api/context.c"
#include "api/scope.c"
#include "api/dim.c"
#include "api/leaf.c"
#include "api/ops.c"
#include "api/made.c"
#include "api/grad.c"
#include "api/named.c"
#include "api/batch.c"
#include "api/run.c"
#include "api/async.c"
#include "api/lazy.c"
#include "api/read.c"
#include "api/state.c"
#include "api/optim.c"
#include "api/inspect.c"
#include "api/print.c"

#ifndef TC_NO_IO
#include "io/file.c"
#include "io/head.c"
#include "io/npy.c"
#include "io/npz.c"
#include "io/gguf.c"
#include "io/safetensors.c"
#include "io/write.c"
#include "io/params.c"
#include "io/dlpack.c"
#endif

#ifdef TCI_HAS_CPU
#include "tc_cpu.h"
#endif
#ifdef TCI_HAS_CUDA
#include "tc_cuda.h"
#endif

#include "base/unprotect.h"
#endif
