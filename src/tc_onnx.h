/* src/tc_onnx.h - amalgamation root of the optional header tc_onnx.h: import and export of ONNX
 * models, and export of StableHLO. Includes tc.h, which does not depend on it. The implementation
 * is compiled where TC_IMPLEMENTATION is defined, together with that of tc.h. */
#include "tc.h"

#include "onnx/onnx.h"

#if defined(TC_IMPLEMENTATION) && !defined(TC_ONNX_IMPLEMENTED)
#define TC_ONNX_IMPLEMENTED

#include "base/impl_begin.h"

#include "onnx/proto_read.c"
#include "onnx/known_values.c"
#include "onnx/import_helpers.c"
#include "onnx/constant_fold.c"
#include "onnx/import_elementwise.c"
#include "onnx/import_shape.c"
#include "onnx/import_reduce.c"
#include "onnx/import_normalization.c"
#include "onnx/import_losses.c"
#include "onnx/import_indexing.c"
#include "onnx/import_conv_pool.c"
#include "onnx/import_resample.c"
#include "onnx/import_quantize.c"
#include "onnx/import_signal.c"
#include "onnx/import_attention.c"
#include "onnx/import_recurrent.c"
#include "onnx/import_control_flow.c"
#include "onnx/import_counted_axis.c"
#include "onnx/operator_table.c"
#include "onnx/import.c"
#include "onnx/export_walk.c"
#include "onnx/find_conv.c"
#include "onnx/proto_write.c"
#include "onnx/export_conv.c"
#include "onnx/export_scalar.c"
#include "onnx/export_loop.c"
#include "onnx/export_direct_ops.c"
#include "onnx/export_contract.c"
#include "onnx/export_gather.c"
#include "onnx/export.c"
#include "onnx/stablehlo_builder.c"
#include "onnx/export_stablehlo_scalar.c"
#include "onnx/export_stablehlo_index.c"
#include "onnx/export_stablehlo_while.c"
#include "onnx/export_stablehlo_conv.c"
#include "onnx/export_stablehlo.c"
#include "onnx/graph_backend_model.c"

#undef TC_HERE
#define TC_HERE (tci_here(__FILE__, __LINE__))

#include "base/impl_end.h"
#endif
