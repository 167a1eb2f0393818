"""Runs exported models on arrays from files, by engines that share no code with tc.

    elsewhere.py onnx|stablehlo FOLDER

For each FOLDER/N.onnx or N.mlir: inputs are arg0, arg1, ... of N.in.safetensors, in the order of
the model; outputs go to N.out.safetensors as output0, output1, ..., or the error to N.error.
The last line of stdout is how many ran."""
import glob, json, os, signal, sys
import numpy as np

KINDS = {"BOOL": "bool", "U8": "u1", "U16": "u2", "U32": "u4", "U64": "u8", "I8": "i1", "I16": "i2",
         "I32": "i4", "I64": "i8", "F16": "f2", "F32": "f4", "F64": "f8"}


def bf16():
    import ml_dtypes
    return np.dtype(ml_dtypes.bfloat16)


def read(path):
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    arrays = {}
    for name, a in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = a["data_offsets"]
            dtype = bf16() if a["dtype"] == "BF16" else np.dtype(KINDS[a["dtype"]])
            array = np.frombuffer(data[8 + n + begin:8 + n + end], dtype)
            arrays[name] = array.reshape(a["shape"]).copy()
    return arrays


def write(path, arrays):
    header, data = {}, b""
    for name, a in arrays.items():
        bits = np.ascontiguousarray(a).tobytes()
        kind = "BF16" if a.dtype.name == "bfloat16" else next(
            k for k, v in KINDS.items() if np.dtype(v) == a.dtype)
        header[name] = {"dtype": kind, "shape": list(a.shape),
                        "data_offsets": [len(data), len(data) + len(bits)]}
        data += bits
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + data)


def onnx_runner():
    import onnxruntime as rt
    rt.set_default_logger_severity(4)
    options = rt.SessionOptions()
    options.intra_op_num_threads = 1

    def run(path, arrays):
        session = rt.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        values = {}
        for n, i in enumerate(session.get_inputs()):
            a = arrays[f"arg{n}"]
            if a.dtype.name == "bfloat16":
                values[i.name] = rt.OrtValue.ortvalue_from_numpy_with_onnx_type(a, 16)
            else:
                values[i.name] = rt.OrtValue.ortvalue_from_numpy(a)
        names = [o.name for o in session.get_outputs()]
        made = session.run_with_ort_values(names, values)
        return [v.numpy() for v in made]
    return run


def stablehlo_runner():
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    jax.config.update("jax_enable_x64", True)
    from jax.extend.backend import get_backend
    from jaxlib import xla_client as xc
    backend = get_backend("cpu")
    devices = xc.DeviceList(tuple(backend.local_devices()[:1]))

    def run(path, arrays):
        program = backend.compile_and_load(open(path).read(), devices, xc.CompileOptions())
        values = [jax.device_put(arrays[f"arg{i}"]) for i in range(len(arrays))]
        made = program.execute_sharded(values).disassemble_into_single_device_arrays()
        return [np.asarray(m[0]) for m in made]
    return run


def main(kind, folder):
    run = onnx_runner() if kind == "onnx" else stablehlo_runner()
    done = 0
    for path in sorted(glob.glob(f"{folder}/*.{'onnx' if kind == 'onnx' else 'mlir'}")):
        base = os.path.splitext(path)[0]
        signal.alarm(300)  # of one case: ends the process
        try:
            made = run(path, read(base + ".in.safetensors"))
            write(base + ".out.safetensors", {f"output{i}": np.asarray(m) for i, m in
                                              enumerate(made)})
            done += 1
        except Exception as e:
            with open(base + ".error", "w") as f:
                no_type = "No corresponding Numpy type" in str(e)  # bf16
                f.write(("skip:" if no_type else "") + f"{type(e).__name__}: {e}"[:2000])
    print(done)


main(*sys.argv[1:])
