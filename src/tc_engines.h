/* src/tc_engines.h - amalgamation root of the optional header tc_engines.h: ONNX Runtime, OpenVINO,
 * XLA and TVM as backends that are selected by name. Includes tc_onnx.h, which writes the models
 * that they are given; tc.h does not depend on it. The implementation is compiled where
 * TC_IMPLEMENTATION is defined. */
#include "tc_onnx.h"

#include "engines/api.h"

#if defined(TC_IMPLEMENTATION) && !defined(TC_ENGINES_IMPLEMENTED)
#define TC_ENGINES_IMPLEMENTED

#include "base/impl_begin.h"

#include "engines/load_library.c"
#include "engines/onnxrt.c"
#include "engines/openvino.c"
#include "engines/openxla.c"
#include "engines/tvm.c"
#include "engines/register.c"
#include "engines/fastest_backend.c"

#include "base/impl_end.h"
#endif
