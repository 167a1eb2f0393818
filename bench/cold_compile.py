"""bench/cold_compile.py - cold compile of the networks of bench_models: tc against torch.compile.

    make build/bench_models
    python3 bench/cold_compile.py build/bench_models [--train] [--batch N] [NAME ...]

Each side runs in a process of its own, with an empty cache. Seconds are processor time, of the process and
of the compilers that it started, so other load on the machine counts little: of tc those of tc_compile; of
PyTorch those of the first call of the compiled function (its backward pass and optimizer included), less
those of the second. A ratio of 0.15 or less is the aim.
"""
import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

NAMES = ["resnet18", "resnet50", "resnext50_32x4d", "alexnet", "vgg16", "squeezenet1_1", "mobilenet_v2",
         "mnasnet1_0", "vit_tiny_patch16_224", "vit_base_patch16_224", "bert_base", "bert_small",
         "bert_minilm_l6", "gpt2", "llama", "resnext101_32x8d"]


def processor_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def of_torch(name, a):
    """In the child process: prints the seconds of a first call, and of a second one."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # compilers are children that are waited for
    import torch
    import models_peers as peers
    model, forward = peers.model_of(name)
    model = model.train(a.train)
    x = peers.inputs_of(name, a)
    step = peers.step_of(model, torch.compile(forward), x, a)
    marks = [processor_seconds()]
    for _ in range(3):
        step()
        marks.append(processor_seconds())
    print(json.dumps({"first": marks[1] - marks[0], "second": marks[3] - marks[2]}))


def child(command, cache):
    env = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=cache, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1",
               TC_CACHE_DIR=cache)
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=False, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 and done.stdout else None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("bench_models")
    p.add_argument("--train", action="store_true")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--torch-child", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("names", nargs="*")
    a = p.parse_intermixed_args()
    a.backend, a.dtype = "cpu", "f32"
    if a.torch_child:
        return of_torch(a.names[0], a)
    flags = ["--batch", str(a.batch)] + (["--train"] if a.train else [])
    print("| network, " + ("training step" if a.train else "inference") +
          " | tc, processor s | torch.compile | ratio | kernels |", flush=True)
    print("| --- | --- | --- | --- | --- |", flush=True)
    for name in a.names or NAMES:
        with tempfile.TemporaryDirectory() as cache:
            ours = child([os.path.abspath(a.bench_models), "--cold", *flags, name], cache)
        with tempfile.TemporaryDirectory() as cache:
            theirs = child([sys.executable, os.path.abspath(__file__), a.bench_models, name, "--torch-child",
                            *flags], cache)
        if not ours or not theirs:
            print(f"| {name} | failed | | | |", flush=True)
            continue
        seconds = theirs["first"] - theirs["second"]
        print(f"| {name} | {ours['cold_cpu_s']:.1f} | {seconds:.1f} | {ours['cold_cpu_s'] / seconds:.2f} | "
              f"{ours['kernels']} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
