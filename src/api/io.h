/* api/io.h - declares tensor files, saving and loading of named parameters and of programs, export
 * to C, and exchange of tensors with other libraries (DLPack). TC_NO_IO leaves it out. */
#ifndef TC_API_IO_H
#define TC_API_IO_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- files of arrays ----
 * .npy and .npz of NumPy, .safetensors, .gguf, and .pt or .pth of PyTorch 1.6 and later: recognized
 * by their contents, not by their names. Nothing in a .pt is executed. TC_ERR_IO: the file cannot
 * be opened, read or written, has another format, or is damaged; TC_ERR_UNSUPPORTED: it contains
 * something that tc does not read (named in the message); TC_ERR_MEMORY. Files may be untrusted:
 * any bytes are either rejected or read as numbers. */

/* An open file. It is immutable until it is closed, so any number of threads may query it. */
typedef struct tc_file tc_file;
/* tc_file_open(ctx, path, &file): the caller closes it. On failure *file is NULL and tc_error(ctx)
 * has the message; the file does not depend on the context otherwise. */
TC_API tc_status tc_file_open_at(tc_ctx *ctx, const char *path, tc_file **file, tc_site here);
#define tc_file_open(ctx, path, file) tc_file_open_at((ctx), (path), (file), TC_HERE)
/* NULL is ignored. Tensors borrowed from it stay valid. No other call on it may be in progress. */
TC_API void tc_file_close(tc_file *file);

/* One array of a file, until that is closed. */
typedef struct tc_array {
    const char *name; /* UTF-8; "" in a .npy */
    const char *type; /* as the file has it: "F32", "<f4", "Q4_K" */
    tc_dtype dtype;   /* TC_DTYPE_COUNT: a type that tc does not have */
    int rank;
    const int64_t *sizes; /* as many */
} tc_array;
/* Array number i, counted from 0, in the order of their names; NULL past the last one. */
TC_API const tc_array *tc_file_array(const tc_file *file, int i);
/* By name; NULL: there is none. */
TC_API const tc_array *tc_file_find(const tc_file *file, const char *name);
/* Metadata of a .safetensors, .gguf or .pt file under this key as text; NULL: none, or a list.
 * Valid until the file is closed. */
TC_API const char *tc_file_metadata(const tc_file *file, const char *key);

/* tc_file_borrow(ctx, file, "fc1.weight"): a leaf over the mapped file, as tc_borrow, which is read
 * from disk when it is used; a copy if the data is not aligned for the dtype, compressed, or bool.
 * The file must not be written to or truncated until the tensor and programs that captured it are
 * freed: accesses past the end of a truncated file end the process (SIGBUS), as with any mapped
 * file. tc_file_copy_in reads it immediately. name NULL: the only array of the file.
 * TC_ERR_ARGUMENT: there is no such array; TC_ERR_UNSUPPORTED: a type that tc does not have, an
 * entry of an .npz that is no array, or a big-endian array that is borrowed; TC_ERR_IO: the file
 * was truncated, or compressed data does not match its checksum. */
TC_API tc_tensor tc_file_borrow_at(tc_ctx *ctx, tc_file *file, const char *name, tc_site here);
#define tc_file_borrow(ctx, file, name) tc_file_borrow_at((ctx), (file), (name), TC_HERE)
TC_API tc_tensor tc_file_copy_in_at(tc_ctx *ctx, tc_file *file, const char *name, tc_site here);
#define tc_file_copy_in(ctx, file, name) tc_file_copy_in_at((ctx), (file), (name), TC_HERE)

/* tc_file_write(ctx, path, names, TC_TENSORS(a, b), metadata) evaluates the tensors, by one
 * program, and writes them under these names: the extension of the path selects .safetensors, .npz,
 * or .npy (exactly one tensor, names may be NULL). metadata: key, value, key, value, ..., NULL, or
 * NULL; only .safetensors has any. The file is written atomically; it keeps the mode of a file that
 * it replaces, and the target of a symbolic link is replaced. TC_ERR_ARGUMENT: another extension,
 * or a name that is missing, given twice or not UTF-8; TC_ERR_HANDLE: a tensor of another context;
 * TC_ERR_LIMIT: an .npz of 4 GiB, more than 64 axes;
 * TC_ERR_IO; the errors of tc_eval. tc_error(ctx) has the message. */
TC_API tc_status tc_file_write_at(tc_ctx *ctx, const char *path, const char *const *names,
                                  tc_tensors tensors, const char *const *metadata, tc_site here);
#define tc_file_write(ctx, path, names, tensors, metadata)                                         \
    tc_file_write_at((ctx), (path), (names), (tensors), (metadata), TC_HERE)

/* ---- parameters by their names (tc_named) ----
 * Every live parameter of the context is written, or read. The values are a consistent snapshot
 * between two runs. TC_ERR_ARGUMENT: a parameter has no name, or two have the same; otherwise as
 * tc_file_write and tc_file_open. tc_error(ctx) has the message. */
TC_API tc_status tc_save_at(tc_ctx *ctx, const char *path, tc_site here);
#define tc_save(ctx, path) tc_save_at((ctx), (path), TC_HERE)
/* Sets all parameters, or none: also TC_ERR_ARGUMENT (the file lacks one, or has an array whose
 * name no parameter has), TC_ERR_SHAPE, TC_ERR_DTYPE (they differ), TC_ERR_BUSY (a run changes
 * one). */
TC_API tc_status tc_load_at(tc_ctx *ctx, const char *path, tc_site here);
#define tc_load(ctx, path) tc_load_at((ctx), (path), TC_HERE)

/* ---- programs in files ----
 * A file contains one program: machine code, captured memory with its current value, parameters
 * with their names, names and sizes of inputs and outputs, symbols (TC_DIM). Another process loads
 * it without a compiler and without the source that recorded it:
 *     tc_program_save(f, "net.tcp", NULL);
 *     tc_program_load(ctx, "net.tcp", NULL, &f);
 *     tc_run(f, TC_BUFS(TC_BUF(x, 784)), TC_BUFS(TC_BUF(y, 10)));
 * An interpreted program (backend "interp") has no machine code in its file and is planned anew. */
typedef struct tc_save_options {
    /* also stores the results of the init section (packed weights, folded constants), so that the
     * first run after a load need not compute them; the file is larger by
     * tc_program_info.kept_bytes. A program of symbolic sizes must have run once. Ignored on a
     * device */
    bool packed;
} tc_save_options;
/* The file is written atomically, and only its owner may write to it. options NULL: all zero.
 * tc_error(f) has the message. TC_ERR_ARGUMENT: NULL; TC_ERR_BUSY: f is still being compiled
 * (TC_STANCE_LATER); TC_ERR_UNSUPPORTED: f has collectives, options.check, a part that an engine
 * runs, or memory borrowed from a device; TC_ERR_IO; TC_ERR_MEMORY. If f's machine code was evicted
 * from the disk cache meanwhile, it is compiled again, under any stance: as tc_compile,
 * TC_ERR_COMPILER if that fails. */
TC_API tc_status tc_program_save_at(tc_program *f, const char *path, const tc_save_options *options,
                                    tc_site here);
#define tc_program_save(f, path, options) tc_program_save_at((f), (path), (options), TC_HERE)

typedef struct tc_load_options {
    /* false: the file is loaded only if no other user can have written it, by the rules of the disk
     * cache: the file and its directory belong to this user or root and are not writable by others,
     * nor are any parent directories (except /tmp), and the file is not a link. true: the caller
     * marks the file as trusted, wherever it is */
    bool trusted;
} tc_load_options;
/* Loads a program from the file; the caller frees it. Threads, pool, log, cancel and memory_limit
 * are those of ctx, options that affect results are those of the saved program. Parameters of the
 * program become parameters of ctx, in the current scope: tc_param_find returns their tensors, and
 * tc_save and tc_load include them. On failure *f is NULL and tc_error(ctx) has the message.
 * TC_ERR_IO: the file cannot be read, is no saved program, is damaged, or may have been written by
 * another user; TC_ERR_UNSUPPORTED: it is of another byte order, ABI, instruction set or build of
 * tc, or needs a custom op that this process does not know; TC_ERR_BACKEND: its backend cannot work
 * here; TC_ERR_LIMIT: memory_limit; TC_ERR_ARGUMENT; TC_ERR_MEMORY. */
TC_API tc_status tc_program_load_at(tc_ctx *ctx, const char *path, const tc_load_options *options,
                                    tc_program **f, tc_site here);
#define tc_program_load(ctx, path, options, f)                                                     \
    tc_program_load_at((ctx), (path), (options), (f), TC_HERE)

/* ---- a program as C ----
 * tc_export_c(inputs, outputs, options, "net.c"), with the first three as tc_compile_fn takes them,
 * writes a file of C99 that needs nothing else: no tc, no library, not even libm; it is C++17 too
 * (hexadecimal floats; g++ also takes -std=gnu++11). It defines the following function; its head
 * comment lists all shapes:
 *     int net(const float *in0, ..., float *out0, ..., void *workspace);
 * It computes the outputs from the inputs, all dense, and returns 0, or 1 if an index was out of
 * range. Captured memory is stored in the file with its current value; use inputs for memory that
 * shall not be stored. workspace: net_workspace bytes (a macro), owned by the caller; call
 * net_prepare(workspace) once before the first net(...) with it: it computes the values that depend
 * on captured memory alone. Several threads may call net with a workspace each.
 *
 * A training step: each tc_assign among the outputs adds an argument after the outputs, in their
 * order, which is read and set to the next value of the parameter ("float *param0"). The caller
 * owns and initializes these arrays: with the values that the parameters have now (tc_read, or
 * tc_save for all), for the step to go on as tc_run would. The head comment has the value where all
 * elements are equal, as in the state of a new optimizer: moments 0, powers of beta 1. If net
 * returns 1 the arrays are unchanged.
 *
 * Symbolic sizes (TC_DIM) are arguments before all others, "long long s0, ...", in the order in
 * which the inputs first have them; the head comment lists them and their ranges. net returns 2 if
 * one is out of range. net_workspace is a function of them then: the bytes, or -1. A workspace may
 * be used for other sizes too if it is large enough for them.
 *
 * Results are bit-identical to those of a tc program with the same options, if the compiler uses
 * strict floating point (clang: also -fwrapv). With options.vector_bits 0 the file has three
 * variants of the code, which gcc (from 8) and clang build for x86-64 whatever their target flags:
 * scalar, AVX2 with FMA, AVX-512. net selects one by the CPU features when it is first called; the
 * bits are the same. -DTC_LEVELS=1 leaves AVX-512 out, 0 both. Other compilers and architectures
 * get the scalar variant. vector_bits -1 generates scalar code only, and 128, 256 or 512 vectors of
 * gcc and clang for such a CPU (compile with -mavx2 -mfma). The code does not depend on the machine
 * that exports.
 *
 * The file is written atomically. TC_ERR_ARGUMENT: the path does not end in a function name and
 * ".c", or the name is a keyword of C or C++, a name of the C library or of a builtin, begins with
 * _, or is a name in the generated code (tc_...); TC_ERR_UNSUPPORTED: a custom op;
 * TC_ERR_BACKEND: without tc_cpu.h; TC_ERR_IO; the errors of
 * tc_compile_fn. tc_error of the first output and of the context has the message. */
TC_API tc_status tc_export_c_at(tc_tensors inputs, tc_tensors outputs, const tc_options *options,
                                const char *path, tc_site here);
#define tc_export_c(...) tc_export_c_at(__VA_ARGS__, TC_HERE)

/* Optional outputs of tc_export_c. */
typedef struct tc_export {
    /* net.h next to net.c: the declarations, with extern "C" for C++. */
    bool header;
    /* Captured memory goes to net.bin, which net.c does not open: the caller maps or reads all of
     * it (net_weights bytes, at a multiple of 8) and passes the address:
     *     int net(const float *in0, ..., const void *weights, void *workspace);
     *     void net_prepare(const void *weights, void *workspace);
     *     int net_check(const void *weights, size_t bytes);
     * net_check returns 0 for the file that was written with this net.c, 1 for any other bytes or
     * size; it compares the first 32 bytes ("tcweigh1", the size and a hash of the arrays, which it
     * does not recompute). Arrays follow from byte 64 on, in lines of 64 bytes,
     * little-endian. */
    bool weights;
} tc_export;
/* tc_export_c_as(inputs, outputs, options, &(tc_export){.header = true}, "net.c"): each file is
 * written atomically, net.c last. how NULL: as tc_export_c; errors as there. */
TC_API tc_status tc_export_c_as_at(tc_tensors inputs, tc_tensors outputs, const tc_options *options,
                                   const tc_export *how, const char *path, tc_site here);
#define tc_export_c_as(...) tc_export_c_as_at(__VA_ARGS__, TC_HERE)

/* ---- tensors of other libraries: DLPack ----
 * The structs have the layout of DLPack's (dlpack.h: DLTensor, DLManagedTensorVersioned,
 * DLManagedTensor), so that pointers to those are cast to these and back. The owner of a managed
 * tensor releases it by its deleter, once, on any thread. */
typedef struct tc_dlpack_tensor {
    void *data;
    int32_t device_type, device_id; /* 1: host memory */
    int32_t ndim;
    uint8_t code, bits; /* 0 int, 1 unsigned, 2 float, 4 bfloat, 6 bool */
    uint16_t lanes;
    int64_t *shape, *strides; /* strides in elements; NULL: row-major */
    uint64_t byte_offset;     /* from data to element 0...0 */
} tc_dlpack_tensor;
typedef struct tc_dlpack {
    uint32_t major, minor;
    void *manager;                           /* context of the library that made it */
    void (*deleter)(struct tc_dlpack *self); /* NULL: nothing to release */
    uint64_t flags;                          /* 1: read only; 2: a copy of its own */
    tc_dlpack_tensor tensor;
} tc_dlpack;
typedef struct tc_dlpack_unversioned {
    tc_dlpack_tensor tensor;
    void *manager;
    void (*deleter)(struct tc_dlpack_unversioned *self);
} tc_dlpack_unversioned;

/* A leaf over that memory, as tc_borrow; copied if it is not aligned for the dtype. Takes
 * ownership: the deleter is called when the last tensor and program that use it are freed (for a
 * copy immediately). On failure (poisoned) the caller keeps ownership. TC_ERR_UNSUPPORTED: memory
 * of another device, elements that tc does not have, another major version than 1; otherwise as
 * tc_borrow. */
TC_API tc_tensor tc_from_dlpack_at(tc_ctx *ctx, tc_dlpack *dl, tc_site here);
#define tc_from_dlpack(ctx, dl) tc_from_dlpack_at((ctx), (dl), TC_HERE)
TC_API tc_tensor tc_from_dlpack_unversioned_at(tc_ctx *ctx, tc_dlpack_unversioned *dl,
                                               tc_site here);
#define tc_from_dlpack_unversioned(ctx, dl) tc_from_dlpack_unversioned_at((ctx), (dl), TC_HERE)
/* Stores in *dl the value of t (evaluated if needed) for another library: the memory itself, read
 * only, or, for a parameter, a copy of its current value. The unversioned form has no read-only
 * flag and is always a copy. The caller, or the library that receives it, calls its deleter; it may
 * outlive the context. On failure *dl is NULL: the errors of tc_eval; TC_ERR_ARGUMENT: dl is NULL.
 * tc_error(t) has the message. */
TC_API tc_status tc_to_dlpack_at(tc_tensor t, tc_dlpack **dl, tc_site here);
#define tc_to_dlpack(t, dl) tc_to_dlpack_at((t), (dl), TC_HERE)
TC_API tc_status tc_to_dlpack_unversioned_at(tc_tensor t, tc_dlpack_unversioned **dl, tc_site here);
#define tc_to_dlpack_unversioned(t, dl) tc_to_dlpack_unversioned_at((t), (dl), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
