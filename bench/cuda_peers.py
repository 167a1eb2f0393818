"""bench/cuda_peers.py - the cases of bench/cuda.c beside PyTorch, in turns, in one process.

    cc -O2 -shared -fPIC -DBENCH_SHARED -I. bench/cuda.c -o libcuda_cases.so -lm -ldl -lpthread
    python3 bench/cuda_peers.py ./libcuda_cases.so [--quick] [part of a name ...]

Each case takes turns on the same memory: tc, PyTorch eager, torch.compile, and a copy of the same
bytes. Two figures each, medians: a call that waits for the device, and the device alone (replays of
one CUDA graph, one behind the other, less what a single one takes). A ratio above 1: tc is faster.
"""
import ctypes
import statistics
import sys
import time

import torch

M64 = 1 << 26
M16 = 1 << 24
SAMPLE = 16  # rows that are compared with f64
ROUNDS = 15
REPLAYS = 20


def chain(x):
    for i in range(10):
        x = torch.cumsum(x, i % 2)
    return x


def parts(x, m, n, k, bias=0):
    """Both matrices, and what is added, lie one behind the other."""
    a, b, c = x.split([m * k, k * n, bias])
    return a.view(m, k), b.view(k, n), c


def product(m, n, k):
    def function(x):
        a, b, _ = parts(x, m, n, k)
        return a @ b
    return function


def layer(m, n, k):
    def function(x):
        a, b, c = parts(x, m, n, k, n)
        return torch.nn.functional.gelu(a @ b + c)
    return function


def batch(x):
    a, b = x.split(M16)
    return torch.bmm(a.view(16, 1024, 1024), b.view(16, 1024, 1024))


def exact_product(m, n, k, bias=0):
    """Some rows of it in f64."""
    def function(x):
        a, b, c = parts(x, m, n, k, bias)
        y = a[:SAMPLE].double() @ b.double()
        return torch.nn.functional.gelu(y + c.double()) if bias else y
    return function


# name of the case, shape of the input, the peer; of bf16: rows of the result in f64
PEERS = {
    "x + 1, 64 M": ((M64,), lambda x: x + 1),
    "sin(cos(x)), 64 M": ((M64,), lambda x: torch.sin(torch.cos(x))),
    "sin(cos(x)), 256 M": ((4 * M64,), lambda x: torch.sin(torch.cos(x))),
    "gelu, 64 M": ((M64,), torch.nn.functional.gelu),
    "softmax 8192x8192": ((8192, 8192), lambda x: torch.softmax(x, -1)),
    "softmax 65536x1024": ((65536, 1024), lambda x: torch.softmax(x, -1)),
    "layer_norm 8192x8192": (
        (8192, 8192), lambda x: torch.nn.functional.layer_norm(x, (8192,))),
    "sum of rows 8192x8192": ((8192, 8192), lambda x: x.sum(1)),
    "sum of columns 8192x8192": ((8192, 8192), lambda x: x.sum(0)),
    "sum of all, 64 M": ((M64,), lambda x: x.sum()),
    "transpose + 1, 8192x8192": ((8192, 8192), lambda x: (x.t() + 1).contiguous()),
    "matmul f32 2048": ((2048, 2048), lambda x: x @ x),
    "matmul f32 4096": ((4096, 4096), lambda x: x @ x),
    "gelu(x @ x + 0.5), 2048": (
        (2048, 2048), lambda x: torch.nn.functional.gelu(x @ x + 0.5)),
    "matmul bf16 4096": ((2 * M16,), product(4096, 4096, 4096), exact_product(4096, 4096, 4096)),
    "matmul bf16 8192": ((2 * M64,), product(8192, 8192, 8192), exact_product(8192, 8192, 8192)),
    "matmul + bias, gelu 4096": (
        (2 * M16 + 4096,), layer(4096, 4096, 4096), exact_product(4096, 4096, 4096, 4096)),
    "matmul + bias, gelu 8192": (
        (2 * M64 + 8192,), layer(8192, 8192, 8192), exact_product(8192, 8192, 8192, 8192)),
    "matmul 4104x4000x1016": (
        (1016 * 8104,), product(4104, 4000, 1016), exact_product(4104, 4000, 1016)),
    "matmul 512x512x512": ((1 << 19,), product(512, 512, 512), exact_product(512, 512, 512)),
    "matmul 16x4096x4096": (
        (16 * 4096 + M16,), product(16, 4096, 4096), exact_product(16, 4096, 4096)),
    "matmul 16 x 1024": (
        (2 * M16,), batch,
        lambda x: x[:SAMPLE * 1024].view(SAMPLE, 1024).double()
        @ x[M16:M16 + (1 << 20)].view(1024, 1024).double()),
    "chain of ten kernels, 64 K": ((256, 256), chain),
}


class Tc:
    """A case of the library."""

    def __init__(self, lib, index):
        self.lib, self.index = lib, index

    def call(self):
        return self.lib.bench_cuda_call(self.index)

    def device(self):
        return self.lib.bench_cuda_device(self.index)


class Torch:
    """A function of PyTorch on one input."""

    def __init__(self, function, x):
        self.function, self.x = function, x
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.result = function(x)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.kept = function(x)
        self.call()

    def call(self):
        at = time.perf_counter()
        self.function(self.x)
        torch.cuda.synchronize()
        return (time.perf_counter() - at) * 1e3

    def replays(self, n):
        at = time.perf_counter()
        for _ in range(n):
            self.graph.replay()
        torch.cuda.synchronize()
        return (time.perf_counter() - at) * 1e3

    def device(self):
        return (self.replays(REPLAYS + 1) - self.replays(1)) / REPLAYS


def open_library(path):
    lib = ctypes.CDLL(path)
    lib.bench_cuda_name.restype = lib.bench_cuda_error.restype = ctypes.c_char_p
    lib.bench_cuda_call.restype = lib.bench_cuda_device.restype = ctypes.c_double
    lib.bench_cuda_size.restype = ctypes.c_int64
    lib.bench_cuda_open.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    return lib


def measure(sides):
    """Medians of (call, device) of each side, the sides in turns."""
    for side in sides:
        side.call()
        side.device()
    figures = [([], []) for _ in sides]
    for _ in range(ROUNDS):
        for side, (calls, devices) in zip(sides, figures):
            calls.append(side.call())
            devices.append(side.device())
    return [(statistics.median(c), statistics.median(d)) for c, d in figures]


def worst(got, want):
    scale = want.abs().amax().item() or 1.0
    return (got - want).abs().amax().item() / scale


def run_case(lib, index, memory, compile_peers):
    name = lib.bench_cuda_name(index).decode()
    shape, function = PEERS[name][:2]
    half = lib.bench_cuda_is_half(index)
    n_in, n_out = lib.bench_cuda_size(index, 0), lib.bench_cuda_size(index, 1)
    x = memory[:n_in].view(shape)
    x = x.bfloat16() if half else x
    out = torch.empty(n_out, device="cuda", dtype=x.dtype)
    if not lib.bench_cuda_open(index, x.data_ptr(), out.data_ptr()):
        print("| %s | %s |" % (name, lib.bench_cuda_error().decode()), flush=True)
        return
    tc = Tc(lib, index)
    tc.call()
    floats = (n_in + n_out) // (4 if half else 2)
    target = torch.empty(floats, device="cuda")
    copy = Torch(lambda source: target.copy_(source), memory[:floats])
    eager = Torch(function, x)
    sides = [tc, copy, eager]
    if compile_peers:
        sides.append(Torch(torch.compile(function), x))
    want = (PEERS[name][2](x) if half else eager.result).reshape(-1)
    error = worst(out.view(-1)[:want.numel()].to(want.dtype), want)
    figures = measure(sides)
    (tc_call, tc_device), (copy_call, copy_device), (eager_call, eager_device) = figures[:3]
    line = "| %s | %.4f | %.2f | %.4f | %.2f | %.4f | %.4f | %.2f |" % (
        name, tc_call, copy_call / tc_call, tc_device, copy_device / tc_device, eager_call,
        eager_device, eager_device / tc_device)
    if compile_peers:
        call, device = figures[3]
        line += " %.4f | %.4f | %.2f | %.2f |" % (
            call, device, call / tc_call, device / tc_device)
    print(line + " %.0e |" % error, flush=True)


def main():
    lib = open_library(sys.argv[1])
    compile_peers = "--quick" not in sys.argv
    torch.backends.cuda.matmul.allow_tf32 = False
    n = lib.bench_cuda_begin()
    if n == 0:
        print("no GPU works here")
        return
    torch.manual_seed(1)
    memory = torch.rand(4 * M64, device="cuda") * 2 - 1
    print("%s, PyTorch %s" % (torch.cuda.get_device_name(), torch.__version__))
    print("ms; call: with the wait; device: replays of a graph; error: of the largest value")
    head = "case | tc call | of copy | tc device | of copy | eager call | eager device | ratio"
    if compile_peers:
        head += " | compiled call | compiled device | ratio of calls | of device"
    print("| %s | error |" % head)
    print("| --- " * (head.count("|") + 2) + "|", flush=True)
    wanted = [a for a in sys.argv[2:] if not a.startswith("--")]
    for i in range(n):
        name = lib.bench_cuda_name(i).decode()
        if not wanted or any(part in name for part in wanted):
            run_case(lib, i, memory, compile_peers)
    if wanted:
        return
    us = (ctypes.c_double * 3)()
    lib.bench_cuda_cost(n - 1, us)
    print("%s: a run costs the processor %.2f us, %.2f of them the launch; with the wait %.2f us"
          % (lib.bench_cuda_name(n - 1).decode(), us[1], us[0], us[2]))


main()
