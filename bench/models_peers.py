"""bench/models_peers.py - the networks of bench_models beside PyTorch's, a table of both.

    make bench-models
    python3 bench/models_peers.py build/bench_models [--backend cpu|cuda] [--train] [--batch N]
        [--dtype f32|bf16] [--threads N] [--no-compile] [--tf32] [NAME ...]

For each network bench_models runs first, then PyTorch on as many threads: eager mode and torch.compile
(on a GPU with its CUDA graphs). Times are those of the best round in ms, of a run or of a training step (forward,
backward, SGD). A ratio above 1: tc is faster than the best of PyTorch's. Weights are random on both
sides, so losses are alike and not equal. On a
GPU f32 is f32 unless --tf32 lets PyTorch's products round their factors. Networks whose library is not installed are left out.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

ROUNDS = 12
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


def torch_times(name, a):
    """ms of eager mode and of torch.compile, its seconds, the first loss."""
    model, forward = model_of(name)
    model = model.to(a.backend, torch.bfloat16 if a.dtype == "bf16" else torch.float32)
    model.train(a.train)
    x = inputs_of(name, a)
    step = step_of(model, forward, x, a)
    first = float(step().detach().float().square().mean().sqrt())
    eager, compiled, seconds = best_ms(step, a.backend), math.nan, math.nan
    if not a.no_compile:
        mode = "reduce-overhead" if a.backend == "cuda" else "default"
        step = step_of(model, torch.compile(forward, mode=mode), x, a)
        begin = time.perf_counter()
        step()
        seconds = time.perf_counter() - begin
        compiled = best_ms(step, a.backend)
    return eager, compiled, seconds, first


def tc_line(name, a):
    command = [a.program, "--json", "--backend", a.backend, "--batch", str(a.batch), "--dtype",
               a.dtype, name] + (["--train"] if a.train else [])
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
    print("| network | tc | a kernel for each op | ratio | eager | torch.compile | ratio | kernels, "
          "launches | cold compile ms | from disk ms | torch.compile s | workspace MB | loss, or rms "
          "of the output: tc, eager |")
    print("|" + " --- |" * 13)
    for name in a.names or NAMES:
        try:
            __import__("timm" if name.startswith("vit") else "transformers"
                       if name in BERTS or name in ("gpt2", "llama") else "torchvision")
        except ImportError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        t = tc_line(name, a)
        eager, compiled, seconds, first = torch_times(name, a)
        best = eager if math.isnan(compiled) else min(eager, compiled)
        ratios.append(best / t["ms"])
        unfused.append(t["apart_ms"] / t["ms"])
        print(f"| {name} | {t['ms']:.3f} | {t['apart_ms']:.3f} | {unfused[-1]:.2f} | {eager:.3f} | "
              f"{compiled:.3f} | {ratios[-1]:.2f} | {t['kernels']}, {t['launches']} | "
              f"{t['cold_ms']:.0f} | {t['warm_ms']:.1f} | {seconds:.1f} | {t['workspace_mb']:.1f} | "
              f"{t['first']:.5g}, {first:.5g} |", flush=True)
    for what, list_ in (("a kernel for each op / tc", unfused), ("best of PyTorch / tc", ratios)):
        print(f"\n{what}: geometric mean {math.exp(sum(map(math.log, list_)) / len(list_)):.2f}")


if __name__ == "__main__":
    main()
