/* onnx/user_call_site.h - call site of public calls made in onnx/: that of the user's call. Included
 * only by .c files of onnx/; a variable `o` (tci_ox_op) must be in scope. src/tc_onnx.h ends it. */
#undef TC_HERE
#define TC_HERE (o->here)
