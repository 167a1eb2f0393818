/* onnx/here.h - the place of public calls that rooms of onnx/ make: that of the user's call.
 * Included by the code of rooms alone; a variable `o` (tci_ox_op) must be in sight. src/tc_onnx.h
 * ends it. */
#undef TC_HERE
#define TC_HERE (o->here)
