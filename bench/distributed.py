"""bench/distributed.py - data parallel training by tc and by PyTorch, in turns, on 1 and on N GPUs.

    python3 bench/distributed.py [--ranks N] [--no-peer] [--trace] [--batch N] [--patience S] [NAME ...]

Compiles bench/distributed.c and starts one process a network and GPU (with --backend cpu: a network and
rank). Each trains its network alone and with all ranks, by tc and, unless --no-peer, by PyTorch:
torch.compile of the model, and of DistributedDataParallel (25 MiB, gradient_as_bucket_view); SGD; the
same weights and data on both sides, other data on each rank. All networks compile at the same time and are
measured one after the other. Sides take turns, ROUNDS rounds of STEPS steps; a figure is the median of
the rounds' times of the slowest rank. --trace: what the GPU does in a step of tc, by CUPTI: when
collectives run, how much longer kernels take meanwhile, and how long nothing runs.
Prints the tables of bench/results/distributed.md.
"""
import argparse
import ctypes
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROUNDS, STEPS = 7, 10
SIZES = {"gpt2": (8, 1024), "bert_base": (32, 128), "resnet50": (64, 224)}
PREFIX = {"gpt2": b"transformer.", "bert_base": b"", "resnet50": b""}


class Ask(ctypes.Structure):
    _fields_ = [("network", ctypes.c_char_p), ("settings", ctypes.c_char_p),
                ("weights", ctypes.c_char_p), ("prefix", ctypes.c_char_p),
                ("dtype", ctypes.c_char_p), ("batch", ctypes.c_int64), ("length", ctypes.c_int64),
                ("bucket_bytes", ctypes.c_int64), ("is_parallel", ctypes.c_int32)]


class Link(ctypes.Structure):
    _fields_ = [(n, ctypes.c_double) for n in ("latency_us", "gb_per_s", "busy")]


class Cluster(ctypes.Structure):
    _fields_ = [("ranks_per_node", ctypes.c_int), ("inner", Link), ("outer", Link),
                ("compute", ctypes.c_double)]


class Model(ctypes.Structure):
    _fields_ = [(n, ctypes.c_double) for n in ("step_us", "compute_us", "comm_us", "exposed_us",
                                              "slowed_us")]


def load(path):
    lib = ctypes.CDLL(path)
    lib.dist_error.restype = ctypes.c_char_p
    lib.dist_make.restype = ctypes.c_void_p
    lib.dist_steps.restype = lib.dist_compile_ms.restype = ctypes.c_double
    lib.dist_last_loss.restype = ctypes.c_float
    for name in ("dist_fill", "dist_steps", "dist_compile_ms", "dist_last_loss", "dist_simulate",
                 "dist_explain", "dist_profile", "dist_free"):
        getattr(lib, name).argtypes = [ctypes.c_void_p] + {
            "dist_fill": [ctypes.c_int, ctypes.c_void_p, ctypes.c_int64],
            "dist_steps": [ctypes.c_int], "dist_explain": [ctypes.c_char_p],
            "dist_profile": [ctypes.c_int, ctypes.c_char_p],
            "dist_simulate": [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]}.get(name, [])
    return lib


class Tc:
    """A program of the library; `with` data of this rank."""

    def __init__(self, lib, a, name, weights, is_parallel, bucket=25 << 20):
        self.lib = lib
        batch, length = sizes_of(name, a)
        ask = Ask(name.encode(), words_of(name, a).encode(), weights, PREFIX[name], a.dtype.encode(), batch,
                  length, bucket, is_parallel)
        self.net = self.check(lib.dist_make(ctypes.byref(ask)))

    def check(self, good):
        if not good:
            print(self.lib.dist_error().decode(), file=sys.stderr, flush=True)
            os._exit(1)  # of the process, also on a thread
        return good

    def fill(self, arrays):
        for i, x in enumerate(arrays):
            self.check(self.lib.dist_fill(self.net, i, x, len(x)))

    def steps(self, n):
        ms = self.lib.dist_steps(self.net, n)
        self.check(ms >= 0)
        return ms

    def loss(self):
        self.steps(1)
        return self.lib.dist_last_loss(self.net)

    def simulate(self, ranks, machine=None):
        m = Model()
        self.check(self.lib.dist_simulate(self.net, ranks, ctypes.byref(machine) if machine else None,
                                          ctypes.byref(m)))
        return m


def words_of(name, a):
    """Of --settings "gpt2:n_layer=2 gpt2:n_embd=64 ..." those of the network, without its name."""
    words = [w.split(":", 1) for w in a.settings.split()]
    return " ".join(w[1] for w in words if w[0] == name)


def sizes_of(name, a):
    batch, length = SIZES[name]
    return a.batch or batch, a.length or length


# ---- PyTorch's side ----

def settings_of(name, a):
    return {k: int(v) for k, v in (w.split("=") for w in words_of(name, a).split())}


def model_of(name, a):
    import torch
    if name == "resnet50":
        import torchvision
        model = torchvision.models.resnet50()
        return model, lambda m, x: m(x), 1000
    import transformers
    if name == "gpt2":
        config = transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                         **settings_of(name, a))
        return (transformers.GPT2LMHeadModel(config), lambda m, x: m(x, use_cache=False).logits,
                config.vocab_size)
    config = transformers.BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                                     **settings_of(name, a))
    return (transformers.BertModel(config, add_pooling_layer=False),
            lambda m, x: m(x).last_hidden_state, 0)


def data_of(name, a, rank, classes):
    """Tensors of this rank on the host: what the model reads, and classes; then all of tc's."""
    import torch
    g = torch.Generator().manual_seed(100 + rank)
    batch, length = sizes_of(name, a)
    if name == "resnet50":
        x = torch.rand(batch, 3, length, length, generator=g) * 2 - 1
        y = torch.randint(0, classes, (batch,), generator=g)
        x = x.to(dtype_of(a))
        return x, y, [x, y]
    words = settings_of(name, a).get("vocab_size", 30000)
    x = torch.randint(1, min(words, 30000), (batch, length), generator=g)
    if not classes:
        return x, None, [x, torch.zeros_like(x), torch.ones_like(x)]
    y = torch.randint(0, classes, (batch * length,), generator=g)
    return x, y, [x, y]


def dtype_of(a):
    import torch
    return torch.bfloat16 if a.dtype == "bf16" else torch.float32


def raw(x):
    import torch
    return x.contiguous().cpu().view(torch.uint8 if x.dtype != torch.int64 else x.dtype).numpy().tobytes()


def state_of(name, model):
    """With the pooler of tc's BERT, which has no gradient here (DDP refuses such parameters)."""
    import torch
    state = dict(model.state_dict())
    if name == "bert_base":
        width, dtype = model.config.hidden_size, next(iter(state.values())).dtype
        state["pooler.dense.weight"] = torch.zeros(width, width, dtype=dtype)
        state["pooler.dense.bias"] = torch.zeros(width, dtype=dtype)
    return state


def write_weights(path, state):
    """The state as a safetensors file."""
    import torch
    head, blobs, at = {}, [], 0
    names = {torch.bfloat16: "BF16", torch.float32: "F32", torch.int64: "I64"}
    for name, x in state.items():
        blob = raw(x)
        head[name] = {"dtype": names[x.dtype], "shape": list(x.shape),
                      "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(head).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


class Torch:
    def __init__(self, model, forward, x, y, parallel):
        import torch
        if parallel:
            model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True,
                                                              broadcast_buffers=False)
        self.model, self.forward, self.x, self.y = torch.compile(model), forward, x, y
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.sync = torch.cuda.synchronize if x.is_cuda else lambda: None

    def step(self):
        import torch.nn.functional as F
        z = self.forward(self.model, self.x).float()
        loss = (F.cross_entropy(z.reshape(-1, z.shape[-1]), self.y) if self.y is not None
                else z.square().mean())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def steps(self, n):
        self.sync()
        begin = time.perf_counter()
        for _ in range(n):
            self.step()
        self.sync()
        return (time.perf_counter() - begin) * 1e3 / n

    def loss(self):
        return float(self.step().detach())


# ---- what the GPU does in a step ----

def trace_of(side, steps, path):
    """Kernels of so many steps: (begin us, end us, name, stream), by CUPTI."""
    import torch
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
        side.steps(steps)
        torch.cuda.synchronize()
    p.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    kernels = [(e["ts"], e["ts"] + e["dur"], e["name"], e["args"].get("stream"))
               for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    return sorted(kernels), sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                                   if "GraphLaunch" in e.get("name", ""))


def covered(spans):
    total, end = 0, 0
    for b, e in sorted(spans):
        total += max(0, e - max(b, end))
        end = max(end, e)
    return total


def is_comm(name):
    return "nccl" in name.lower()


def tell_trace(title, kernels, launches, steps, out):
    """Per step: all time, time without a kernel, collectives, and those that are alone."""
    if not kernels:
        return
    comm = [(b, e) for b, e, name, _ in kernels if is_comm(name)]
    work = [(b, e) for b, e, name, _ in kernels if not is_comm(name)]
    both = covered(comm + work)
    whole = max(e for _, e, _, _ in kernels) - kernels[0][0]
    print(f"{title}: {whole / steps:.0f} us a step, idle {(whole - both) / steps:.0f}, kernels "
          f"{covered(work) / steps:.0f} (sum {sum(e - b for b, e in work) / steps:.0f}, "
          f"{len(work) / steps:.0f} of them), collectives {covered(comm) / steps:.0f} "
          f"({len(comm) / steps:.0f}), alone {(both - covered(work)) / steps:.0f}; launch by the host "
          f"{sum(e - b for b, e in launches) / steps:.0f}", flush=True)
    with open(out, "w") as file:
        for b, e, name, stream in kernels:
            file.write(f"{b - kernels[0][0]:.1f} {e - b:.1f} {stream} {name[:60]}\n")


# ---- a rank ----

def slowest(times, group):
    import torch
    import torch.distributed as dist
    if not dist.is_initialized():
        return times
    t = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.MAX, group=group)
    return t.tolist()


def turns(sides, group):
    """Medians in ms, of the slowest rank."""
    import torch.distributed as dist
    times = {k: [] for k in sides}
    for side in sides.values():
        side.steps(3)
    for _ in range(ROUNDS):
        for name, side in sides.items():
            dist.barrier(group=group)
            times[name].append(side.steps(STEPS))
    return {k: statistics.median(slowest(t, group)) for k, t in times.items()}


def mark(a, what, name, rank):
    open(os.path.join(a.out, f"{what}.{name}.{rank}"), "w").close()


def is_marked(a, what, name, ranks):
    return all(os.path.exists(os.path.join(a.out, f"{what}.{name}.{r}")) for r in range(ranks))


def wait_for_turn(a, name, rank, ranks):
    """Until all networks are compiled, and those before this one measured. A network that failed counts
    as both; nobody waits longer than --patience for one that still compiles."""
    mark(a, "ready", name, rank)
    before = a.names[:a.names.index(name)]
    while time.perf_counter() < a.patience and not all(is_marked(a, "ready", n, ranks) for n in a.names):
        time.sleep(0.05)
    before = [n for n in before if is_marked(a, "ready", n, ranks)]
    while not all(is_marked(a, "done", n, ranks) for n in before):
        time.sleep(0.05)


def network(lib, name, a, rank, ranks, group):
    import torch
    torch.manual_seed(1)
    model, forward, classes = model_of(name, a)
    model = model.to(dtype_of(a)).train()
    weights = os.path.join(a.out, f"{name}.{rank}.safetensors")
    write_weights(weights, state_of(name, model))
    x, y, data = data_of(name, a, rank, classes)
    arrays = [raw(t) for t in data]
    sides, losses, made = {}, {}, {}

    def make_tc():
        for parallel in (0, 1):
            made[f"tc {ranks if parallel else 1}"] = Tc(lib, a, name, weights.encode(), parallel)

    thread = threading.Thread(target=make_tc)
    thread.start()
    if not a.no_peer:
        import copy
        place = "cuda" if a.backend == "cuda" else "cpu"
        x, y = x.to(place), None if y is None else y.to(place)
        for parallel in (False, True):
            side = Torch(copy.deepcopy(model).to(place), forward, x, y, parallel)
            losses[f"torch {ranks if parallel else 1}"] = [side.loss() for _ in range(4)]
            sides[f"torch {ranks if parallel else 1}"] = side
    thread.join()
    for key, side in made.items():
        side.fill(arrays)
        losses[key] = [side.loss() for _ in range(4)]
    sides = {**made, **sides}
    if a.backend == "cuda":
        torch.cuda.empty_cache()  # for the networks that are measured before
    wait_for_turn(a, name, rank, ranks)
    link = measured_link(lib, name, rank)
    ms = turns(sides, group)
    report(name, a, rank, ranks, made, ms, losses, link)
    if a.trace:
        for key, side in made.items():
            torch.distributed.barrier(group=group)
            kernels, launches = trace_of(side, 4, os.path.join(a.out, f"{name}.{rank}.json"))
            if rank == 0:
                tell_trace(f"{name} {key}", kernels, launches, 4,
                           os.path.join(a.out, f"{name}.{key.replace(' ', '')}.txt"))
    lib.dist_explain(made[f"tc {ranks}"].net, os.path.join(a.out, f"{name}.{rank}.explain").encode())
    mark(a, "done", name, rank)


def report(name, a, rank, ranks, made, ms, losses, link):
    if rank:
        return
    batch, _ = sizes_of(name, a)
    for who in ("tc", "torch"):
        if f"{who} 1" in ms:
            one, many = ms[f"{who} 1"], ms[f"{who} {ranks}"]
            print(f"{name}: {who}: {one:.2f} ms alone, {many:.2f} of {ranks}; "
                  f"{1e3 * batch * ranks / many:.0f} samples/s, efficiency {one / many:.3f}; losses "
                  f"{' '.join(f'{x:.5g}' for x in losses[f'{who} 1'])}; "
                  f"{' '.join(f'{x:.5g}' for x in losses[f'{who} {ranks}'])}", flush=True)
    if f"torch {ranks}" in ms:
        print(f"{name}: samples/s over PyTorch's {ms[f'torch {ranks}'] / ms[f'tc {ranks}']:.3f}")
    tell_model(name, made, ms, ranks, link)


def tell_model(name, made, ms, ranks, link):
    """The model, with kernels scaled to what one rank alone takes, beside what was measured."""
    one, many = made["tc 1"], made[f"tc {ranks}"]
    alone = one.simulate(1)
    compute = ms["tc 1"] * 1e3 / alone.step_us
    machine = Cluster(0, link, link, compute)
    m = many.simulate(ranks, machine)
    print(f"{name}: model, kernels times {compute:.2f}: step {m.step_us:.0f} us, measured "
          f"{1e3 * ms[f'tc {ranks}']:.0f}; exposed {m.exposed_us:.0f}, measured "
          f"{1e3 * (ms[f'tc {ranks}'] - ms['tc 1']):.0f} more than alone, of which kernels of the model "
          f"{m.compute_us - alone.compute_us * compute:.0f}", flush=True)
    for n in (8, 64, 1024):
        machine = Cluster(8, link, Link(20, 50, 0), compute)
        m = many.simulate(n, machine)
        print(f"{name}: {n} ranks: step {m.step_us:.0f}, exposed {m.exposed_us:.0f}")


def measured_link(lib, name, rank):
    numbers = (ctypes.c_double * 4)()
    if not lib.dist_measure(numbers):
        sys.exit(lib.dist_error().decode())
    if rank == 0:
        print(f"{name}: link: {numbers[0]:.1f} us, {numbers[1]:.1f} GB/s, kernels lose "
              f"{numbers[2]:.2f}", flush=True)
    return Link(*numbers[:3])


def work(a):
    """One rank of one network."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo" if a.backend == "cpu" else "cpu:gloo,cuda:nccl", rank=rank,
                            world_size=ranks, init_method=f"file://{a.out}/meet.{a.only}")
    group = dist.new_group(backend="gloo")
    lib = load(a.library)
    if not lib.dist_open(a.backend.encode()):
        sys.exit(lib.dist_error().decode())
    network(lib, a.only, a, rank, ranks, group)
    sys.stdout.flush()
    os._exit(0)


def start(a):
    """Compiles the library and starts the ranks."""
    root = os.path.dirname(HERE)
    a.out = a.out or tempfile.mkdtemp(prefix="tc-distributed-")
    library = a.prebuilt or os.path.join(a.out, "libdistributed.so")
    a.prebuilt or subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-w", "-shared", "-fPIC",
                    f"-I{root}", f"{HERE}/distributed.c", "-o", library, "-lm", "-ldl", "-lpthread"],
                   check=True)
    groups = {name: [] for name in a.names}
    for i, name in enumerate(a.names):
        for r in range(a.ranks):
            env = dict(os.environ, RANK=str(r), LOCAL_RANK="0", WORLD_SIZE=str(a.ranks),
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29543 + i), NCCL_NVLS_ENABLE="0")
            if a.backend == "cuda":
                env["CUDA_VISIBLE_DEVICES"] = str(r)
            groups[name].append(subprocess.Popen([sys.executable, *sys.argv, "--library", library,
                                                  "--out", a.out, "--only", name], env=env))
    sys.exit(wait_for_all(a, groups))


def wait_for_all(a, groups):
    """Until all ranks ended; of a network that lost one the others are ended too."""
    worst = 0
    while any(p.poll() is None for ranks in groups.values() for p in ranks):
        for name, ranks in groups.items():
            if any(p.poll() for p in ranks) and not is_marked(a, "done", name, a.ranks):
                for r, p in enumerate(ranks):
                    p.kill()
                    mark(a, "ready", name, r)
                    mark(a, "done", name, r)
                print(f"{name}: a rank failed", flush=True)
        time.sleep(0.1)
    for ranks in groups.values():
        worst = max([worst] + [abs(p.returncode) for p in ranks])
    return worst


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--backend", default="cuda")
    p.add_argument("--dtype", default="bf16")
    p.add_argument("--batch", type=int, default=0)
    p.add_argument("--length", type=int, default=0)
    p.add_argument("--settings", default="")
    p.add_argument("--no-peer", action="store_true")
    p.add_argument("--trace", action="store_true")
    p.add_argument("--out", default="")
    p.add_argument("--prebuilt", default="")
    p.add_argument("--library", default="")
    p.add_argument("--only", default="")
    p.add_argument("--patience", type=float, default=600)
    p.add_argument("names", nargs="*", default=[])
    a = p.parse_intermixed_args()
    a.patience += time.perf_counter()
    a.names = a.names or list(SIZES)
    work(a) if a.library else start(a)


if __name__ == "__main__":
    main()
