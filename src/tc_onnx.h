/* src/tc_onnx.h - root of tc_onnx.h: ONNX models. Includes tc.h, which does not know it. Its code
 * is where TC_IMPLEMENTATION is defined, together with that of tc.h. */
#include "tc.h"

#include "onnx/onnx.h"

#if defined(TC_IMPLEMENTATION) && !defined(TC_ONNX_IMPLEMENTED)
#define TC_ONNX_IMPLEMENTED

#include "base/impl_begin.h"

#include "onnx/proto.c"
#include "onnx/known.c"
#include "onnx/import_helpers.c"
#include "onnx/fold.c"
#include "onnx/elementwise.c"
#include "onnx/shape.c"
#include "onnx/reduce.c"
#include "onnx/index.c"
#include "onnx/window.c"
#include "onnx/resize.c"
#include "onnx/quantize.c"
#include "onnx/signal.c"
#include "onnx/attention.c"
#include "onnx/recurrent.c"
#include "onnx/control.c"
#include "onnx/rows.c"
#include "onnx/import.c"
#include "onnx/walk.c"
#include "onnx/find_conv.c"
#include "onnx/write.c"
#include "onnx/export_conv.c"
#include "onnx/export_scalar.c"
#include "onnx/export_loop.c"
#include "onnx/export_named.c"
#include "onnx/export_contract.c"
#include "onnx/export.c"
#include "onnx/stablehlo_text.c"
#include "onnx/stablehlo_scalar.c"
#include "onnx/stablehlo_index.c"
#include "onnx/stablehlo_while.c"
#include "onnx/stablehlo_conv.c"
#include "onnx/stablehlo.c"
#include "onnx/formats.c"

#undef TC_HERE
#define TC_HERE (tci_here(__FILE__, __LINE__))

#include "base/impl_end.h"
#endif
