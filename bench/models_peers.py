"""bench/models_peers.py - the networks of bench_models beside PyTorch's, a table of both.

    make bench-models
    python3 bench/models_peers.py build/bench_models [--backend cpu|cuda] [--train] [--batch N]
        [--dtype f32|bf16] [--threads N] [--no-compile] [--tf32] [NAME ...]

For each network bench_models runs first, then PyTorch on as many threads: eager mode, on a GPU the same
recorded as a CUDA graph, and torch.compile (there with graphs of its own). Times are those of the best
round in ms, of a run or of a training step (forward, backward, SGD). A ratio above 1: tc is faster than
the best of PyTorch's. Peak memory is what the process (the device) had in use at most from when the
weights lay there, beyond what it had before, on both sides: parameters, inputs, workspace, code; of
PyTorch's that of eager mode. Weights are random on both sides, so losses are alike and not equal. On a
GPU f32 is f32 unless --tf32 lets PyTorch's products round their factors and gives tc TC_MATH_FAST.
Networks whose library is not installed are left out. bench/models_chart.py draws the tables of
bench/results/models.md.
"""
import argparse
import ctypes
import gc
import json
import math
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

ROUNDS = 12
KINDS = ["eager", "CUDA graph", "torch.compile"]
HEAD = ("| network | tc | apart | apart / tc | " + " | ".join(KINDS) + " | best / tc | kernels, "
        "launches | cold compile | from disk | torch.compile, first run | workspace and parameters, "
        "MB | peak MB | PyTorch's | loss, or rms of the output: tc, eager |")
NAMES = ["resnet18", "resnet50", "resnext50_32x4d", "resnext101_32x8d", "alexnet", "vgg16",
         "squeezenet1_1", "mobilenet_v2", "mnasnet1_0", "vit_tiny_patch16_224",
         "vit_base_patch16_224", "bert_base", "bert_small", "bert_minilm_l6", "gpt2", "llama"]
BERTS = {"bert_base": {}, "bert_small": dict(hidden_size=512, num_hidden_layers=4,
                                             num_attention_heads=8, intermediate_size=2048),
         "bert_minilm_l6": dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
                                intermediate_size=1536)}


def model_of(name):
    """A module, and the function of its inputs that is timed."""
    if name in BERTS:
        import transformers
        config = transformers.BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                                         **BERTS[name])
        model = transformers.BertModel(config)
        return model, lambda x: model(x).last_hidden_state
    if name == "gpt2":
        import transformers
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
        return model, lambda x: model(x, use_cache=False).logits
    if name == "llama":
        import transformers
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12,
            rms_norm_eps=1e-5))
        return model, lambda x: model(x, use_cache=False).logits
    if name.startswith("vit"):
        import timm
        model = timm.create_model(name)
    else:
        import torchvision
        model = getattr(torchvision.models, name)()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model, model


def inputs_of(name, a):
    if name in BERTS or name in ("gpt2", "llama"):
        return torch.randint(0, 30000, (a.batch, 128), device=a.backend)
    dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
    return torch.rand(a.batch, 3, 224, 224, device=a.backend, dtype=dtype) * 2 - 1


def best_ms(step, backend):
    """Of one call, in rounds of about a tenth of a second."""
    def seconds(calls):
        begin = time.perf_counter()
        for _ in range(calls):
            step()
        if backend == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin
    seconds(2)
    calls = max(1, int(0.1 / seconds(1)))
    return min(seconds(calls) / calls for _ in range(ROUNDS)) * 1e3


def step_of(model, forward, x, a):
    """A function that does one run or training step, and one that tells its loss."""
    if not a.train:
        def run():
            with torch.inference_mode():
                return forward(x)
        return run
    y = forward(x)
    hidden = y.dim() == 3 and y.shape[-1] < 1000
    target = torch.randint(0, y.shape[-1], (y.numel() // y.shape[-1],), device=a.backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train():
        z = forward(x).float()
        loss = z.square().mean() if hidden else F.cross_entropy(z.reshape(-1, z.shape[-1]), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss
    return train


def recorded(step, a):
    """The step as a CUDA graph; None where it cannot be one."""
    try:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return graph.replay
    except RuntimeError as error:
        print(f"no CUDA graph: {error}", file=sys.stderr)
        return None


def memory_now(a):
    """MB in use: of the device, or of this process at most since memory_begin."""
    if a.backend == "cuda":
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return (total - free) / 1e6
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1.024e-3


def memory_begin(a):
    if a.backend == "cuda":
        torch.zeros(1, device="cuda")
        torch.cuda.empty_cache()
    else:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    return memory_now(a)


def torch_times(name, a):
    """ms by kind of run, the seconds that torch.compile took, MB, the first loss."""
    before = memory_begin(a)
    model, forward = model_of(name)
    model = model.to(a.backend, torch.bfloat16 if a.dtype == "bf16" else torch.float32)
    model.train(a.train)
    memory_begin(a)
    x = inputs_of(name, a)
    step = step_of(model, forward, x, a)
    first = float(step().detach().float().square().mean().sqrt())
    ms, seconds = {"eager": best_ms(step, a.backend)}, math.nan
    peak = memory_now(a) - before
    graph = recorded(step, a) if a.backend == "cuda" else None
    if graph:
        ms["CUDA graph"] = best_ms(graph, a.backend)
    if not a.no_compile:
        mode = "reduce-overhead" if a.backend == "cuda" else "default"
        step = step_of(model, torch.compile(forward, mode=mode), x, a)
        begin = time.perf_counter()
        step()
        seconds = time.perf_counter() - begin
        ms["torch.compile"] = best_ms(step, a.backend)
    return ms, seconds, peak, first


def tc_line(name, a):
    command = [a.program, "--json", "--backend", a.backend, "--batch", str(a.batch), "--dtype",
               a.dtype, name] + (["--train"] if a.train else []) + (["--fast"] if a.tf32 else [])
    env = dict(os.environ)
    if a.threads:
        env["TC_THREADS"] = str(a.threads)
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--backend", default="cpu")
    p.add_argument("--train", action="store_true")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--dtype", default="f32")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--tf32", action="store_true")
    p.add_argument("names", nargs="*")
    a = p.parse_intermixed_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = a.tf32
    ratios, unfused = [], []
    print(HEAD + "\n" + "|" + " --- |" * (HEAD.count("|") - 1))
    for name in a.names or NAMES:
        try:
            __import__("timm" if name.startswith("vit") else "transformers"
                       if name in BERTS or name in ("gpt2", "llama") else "torchvision")
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        t = tc_line(name, a)
        ms, seconds, peak, first = torch_times(name, a)
        ratios.append(min(ms.values()) / t["ms"])
        unfused.append(t["apart_ms"] / t["ms"])
        peers = " | ".join(f"{ms[k]:.3f}" if k in ms else "-" for k in KINDS)
        print(f"| {name} | {t['ms']:.3f} | {t['apart_ms']:.3f} | {unfused[-1]:.2f} | {peers} | "
              f"{ratios[-1]:.2f} | {t['kernels']}, {t['launches']} | {t['cold_ms']:.0f} | "
              f"{t['warm_ms']:.1f} | {'-' if math.isnan(seconds) else f'{1000 * seconds:.0f}'} | "
              f"{t['workspace_mb'] + t['params_mb']:.1f} | {t['peak_mb']:.0f} | {peak:.0f} | "
              f"{t['first']:.5g}, {first:.5g} |", flush=True)
    for what, list_ in (("apart / tc", unfused), ("best of PyTorch / tc", ratios)):
        print(f"\n{what}: geometric mean {math.exp(sum(map(math.log, list_)) / len(list_)):.2f}")


if __name__ == "__main__":
    main()
