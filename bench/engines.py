"""bench/engines.py - the 16 networks by tc, onnxruntime, OpenVINO, XLA and torch.compile: one table.

    make bench-engines
    python3 bench/engines.py [--threads 2] [--rounds 5] [--limit 570] [--prepare] [--out FILE] [NAME ...]

For each network build/bench_engines measures tc and each engine, and torch.compile runs on as many threads,
each in a process of its own, since the idle threads of one engine spin and slow the next. Times are those of
the best round in ms; images are 224 x 224, texts 128 words, the batch is 1. Weights are random numbers and
differ between build/bench_engines and torch.compile. A row is written as soon as its network is measured,
to FILE too. Engines that crash, refuse or take longer than --each seconds are "-" with a line that says why. Networks that do not begin within
--limit seconds are listed at the end: a second call with the same FILE measures only these.

--prepare compiles everything and measures nothing: compiled code of tc, OpenVINO and torch.compile stays in
their caches on disk, so that a call after it takes a few minutes. TC_ENGINES says where the engines are;
torch.compile is left out where this Python has no torch, torchvision, timm or transformers."""
import argparse
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["squeezenet1_1", "mobilenet_v2", "mnasnet1_0", "vit_tiny_patch16_224", "resnet18",
         "bert_minilm_l6", "bert_small", "resnet50", "resnext50_32x4d", "alexnet",
         "vit_base_patch16_224", "bert_base", "gpt2", "llama", "resnext101_32x8d", "vgg16"]
BACKENDS = ["cpu", "onnxrt", "openvino", "openxla"]


def torch_line(name, threads, rounds):
    """In a process of its own: ms of the best round, and seconds of the first call."""
    import torch
    import models_peers
    torch.set_num_threads(threads)
    a = argparse.Namespace(backend="cpu", batch=1, dtype="f32", train=False)
    model, forward = models_peers.model_of(name)
    model.train(False)
    step = models_peers.step_of(model, torch.compile(forward), models_peers.inputs_of(name, a), a)
    begin = time.perf_counter()
    step()
    first = time.perf_counter() - begin
    best = float("inf")
    for _ in range(rounds):
        calls, begin = 0, time.perf_counter()
        while calls == 0 or time.perf_counter() - begin < 0.1:
            step()
            calls += 1
        best = min(best, (time.perf_counter() - begin) / calls)
    print(json.dumps({"backend": "torch.compile", "ms": best * 1e3, "compile_ms": first * 1e3}))


def lines_of(command, seconds, env):
    """The JSON objects that a command prints, and why there are no more."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=env)
        out, why = done.stdout, done.stderr.strip()[-300:] if done.returncode else ""
        why = f"exit {done.returncode}: {why}" if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        out = (late.stdout or b"").decode()
        why = f"took more than {seconds:.0f} s"
    except OSError as error:
        out, why = "", str(error)
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")], why


def measure(name, a, env):
    """ms by backend, and lines about what is missing."""
    rounds = "0" if a.prepare else str(a.rounds)
    ms, notes, lines = {}, [], []
    for backend in BACKENDS:
        more, why = lines_of([a.program, "--json", "--threads", str(a.threads), "--rounds", rounds,
                              "--backends", backend, name], a.each, env)
        lines += more
        notes += [f"{name} by {backend}: {why}"] if why else []
    more, why = lines_of([sys.executable, os.path.abspath(__file__), "--torch", name, "--threads",
                          str(a.threads), "--rounds", rounds], a.each, env)
    notes += [f"{name} by torch.compile: {why}"] if why else []
    for line in lines + more:
        if line.get("refused"):
            notes.append(f"{name} by {line['backend']}: refused")
        elif a.prepare:
            ms[line["backend"]] = line["compile_ms"]
        else:
            ms[line["backend"]] = line["ms"]
    return ms, notes


def row_of(name, ms):
    cells = [f"{ms[b]:.2f}" if b in ms else "-" for b in BACKENDS + ["torch.compile"]]
    best = min(ms, key=ms.get) if ms else "-"
    others = [v for b, v in ms.items() if b != "cpu"]
    ratio = f"{min(others) / ms['cpu']:.2f}" if others and "cpu" in ms else "-"
    return f"| {name} | " + " | ".join(cells) + f" | {best} | {ratio} |"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--program", default=os.path.join(HERE, "..", "build", "bench_engines"))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--limit", type=float, default=570)
    p.add_argument("--each", type=float, default=150)
    p.add_argument("--prepare", action="store_true")
    p.add_argument("--out", default="")
    p.add_argument("--torch", default="")
    p.add_argument("names", nargs="*")
    a = p.parse_intermixed_args()
    if a.torch:
        torch_line(a.torch, a.threads, a.rounds)
        return
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    begin, notes, late = time.monotonic(), [], []
    done = open(a.out).read() if a.out and os.path.exists(a.out) else ""
    head = "| network | tc | " + " | ".join(BACKENDS[1:] + ["torch.compile", "fastest", "best other / tc"]) + " |"
    head += "\n|" + " --- |" * 8

    def say(text):
        print(text, flush=True)
        if a.out:
            with open(a.out, "a") as file:
                file.write(text + "\n")
    if not done:
        say(head)
    for name in a.names or NAMES:
        if f"| {name} |" in done:
            continue
        if time.monotonic() - begin > a.limit:
            late.append(name)
            continue
        ms, more = measure(name, a, env)
        notes += more
        say(row_of(name, ms))
    for note in notes:
        print(note, file=sys.stderr)
    if late:
        print("not begun within the limit: " + " ".join(late), file=sys.stderr)


if __name__ == "__main__":
    main()
