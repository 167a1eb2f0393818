#!/usr/bin/env python3
"""The rows of bench/accuracy.c, of the same numbers, by NumPy in f32. Two columns: NumPy's error,
and with a file of accuracy.c's output as argument, tc's beside it and their ratio."""
import sys
import numpy as np

RESULTS, CHANNELS, SIDE = 16, 4, 16


def numbers(n, series, signed):
    h = (np.arange(n, dtype=np.uint64) * 2654435761 + series * 40503 + 1).astype(np.uint32)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    x = (h >> np.uint32(8)).astype(np.float32)
    return x / np.float32(8388608) - np.float32(1) if signed else x / np.float32(16777216)


def errors(got, exact, size):
    return float(np.sqrt(np.mean(((got - exact) / size) ** 2)))


def sums(k, signed):
    found = {"sum": [], "mean": [], "dot": []}
    for r in range(RESULTS // 4 if k > 4000000 else RESULTS):
        x, y = numbers(k, 2 * r, signed), numbers(k, 2 * r + 1, signed)
        x8, p8 = x.astype(float), x.astype(float) * y
        found["sum"].append((float(x.sum()), x8.sum(), abs(x8).sum()))
        found["mean"].append((float(x.mean()), x8.mean(), abs(x8).mean()))
        found["dot"].append((float(np.dot(x, y)), p8.sum(), abs(p8).sum()))
    for name, rows in found.items():
        yield name, k, errors(*np.array(rows).T)


def matmul(k, signed):
    x = numbers(RESULTS * k, 0, signed).reshape(RESULTS, k)
    y = numbers(k * RESULTS, 1, signed).reshape(k, RESULTS)
    x8, y8 = x.astype(float), y.astype(float)
    yield "matmul", k, errors(x @ y, x8 @ y8, abs(x8) @ abs(y8))


def gradient(windows, d):
    return np.tensordot(d, windows, axes=((0, 2, 3), (0, 2, 3)))


def conv(n, signed):
    shape = (n, CHANNELS, SIDE, SIDE)
    count = n * CHANNELS * SIDE * SIDE
    x, d = numbers(count, 0, signed).reshape(shape), numbers(count, 1, signed).reshape(shape)
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    w = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    x8, d8 = x.astype(float), d.astype(float)
    w8 = np.lib.stride_tricks.sliding_window_view(x8, (3, 3), axis=(2, 3))
    yield "conv dw", n * SIDE * SIDE, errors(gradient(w, d), gradient(w8, d8),
                                             gradient(abs(w8), abs(d8)))


def table():
    for signed in (False, True):
        for k in (100, 4096, 10000, 1000000, 16000000):
            yield from ((*row, signed) for row in sums(k, signed))
            if k <= 1000000:
                yield from ((*row, signed) for row in matmul(k, signed))
                yield from ((*row, signed) for row in conv(-(-k // SIDE ** 2), signed))


tc = {}
for line in open(sys.argv[1]) if len(sys.argv) > 1 else ():
    *key, error = line.rsplit(None, 3)
    tc[tuple(line.rsplit(None, 3)[0:3])] = float(error)
print(f"{'what':8} {'numbers':9} {'k':>9} {'NumPy':>10}" + (f" {'tc':>10} {'tc/NumPy':>9}" if tc else ""))
for name, k, error, signed in table():
    kind = "signed" if signed else "positive"
    own = tc.get((name, kind, str(k)))
    print(f"{name:8} {kind:9} {k:9} {error:10.2e}" +
          (f" {own:10.2e} {own / error if error else 0:9.2f}" if own is not None else ""), flush=True)
