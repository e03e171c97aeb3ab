"""octavo.torch.QuantizedLinear beside PyTorch's own linear layers: float32, bfloat16 and int8.

torch_linear.py [--quick] [--threads N] [--shape OUTxIN ...], with the module on PYTHONPATH;
`./dev bench torch` runs it with PyPI's PyTorch.

All take turns, each a few calls in a row, so that its weights are in the caches as far as they fit
there; a figure is the best of many calls. A peer's column is its time over ours: 2x means that ours
is twice as fast. "limit" is the least time that the machine allows over ours: the longer of reading
the int8 weights (PyTorch's sum of them, as 64-bit integers) and of multiplying (the rate of
octavo.int_matmul on operands that fit the second cache, which is near the peak of the registers).
"""

import argparse
import functools
import os
import sys
import time
import warnings

import numpy as np
import octavo
import octavo.torch
import torch

SHAPES = [(384, 384), (1536, 384), (384, 1536), (4096, 4096), (11008, 4096)]
QUICK_SHAPES = [(384, 384), (384, 1536), (4096, 4096)]
ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
QUICK_ROWS = [1, 8, 64, 512]


class Best:
    """The least time of a call, over all turns."""

    def __init__(self, call):
        self.call, self.seconds = call, float("inf")

    def turn(self, seconds):
        end = time.perf_counter() + seconds
        self.call()  # (its weights come into the caches)
        while True:
            start = time.perf_counter()
            self.call()
            now = time.perf_counter()
            self.seconds = min(self.seconds, now - start)
            if now > end:
                return


def take_turns(calls, seconds):
    """The least time of each of the calls, by name."""
    all_of_them = {name: Best(call) for name, call in calls.items()}
    turns = 8
    for _ in range(turns):
        for one in all_of_them.values():
            one.turn(seconds / turns)
    return {name: one.seconds for name, one in all_of_them.items()}


def peak_rate(threads, seconds):
    """Multiplications and additions of 8-bit integers per second, out of the caches."""
    rng = np.random.default_rng(0)
    a, w = (rng.integers(-127, 128, (512, 384), np.int8) for _ in range(2))
    out = np.empty((512, 512), np.int32)
    packed, stream = octavo.pack(w), octavo.Stream(threads=threads)
    best = Best(lambda: octavo.int_matmul(a, packed, out=out, stream=stream))
    best.turn(seconds)
    return 2 * 512 * 512 * 384 / best.seconds


def int8_of_pytorch(layer, engine):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what PyTorch will remove one day
        torch.backends.quantized.engine = engine
        return torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(layer))[0]


def layers_of(n, k):
    """By name: ours first, and PyTorch's int8 by each of its engines for this CPU."""
    layer = torch.nn.Linear(k, n)
    found = {
        "ours": octavo.torch.QuantizedLinear.from_float(layer),
        "f32": layer,
        "bf16": torch.nn.Linear(k, n, dtype=torch.bfloat16),
    }
    for engine in ("fbgemm", "onednn"):
        if engine in torch.backends.quantized.supported_engines:
            found[engine] = int8_of_pytorch(layer, engine)
    return found


def measure(n, k, rows, rate, seconds):
    """For each number of rows: the times of all layers, and the limit's."""
    layers = layers_of(n, k)
    weights = torch.randint(-100, 100, (n * k,), dtype=torch.int8).view(torch.int64)
    for m in rows:
        x = torch.randn(m, k)
        inputs = dict.fromkeys(layers, x)
        inputs["bf16"] = x.bfloat16()
        calls = {name: functools.partial(layer, inputs[name]) for name, layer in layers.items()}
        times = take_turns({**calls, "stream": weights.sum}, seconds)
        limit = max(times.pop("stream"), 2 * m * n * k / rate)
        yield m, times, limit


def table(n, k, rows, rate, seconds):
    peers = None
    for m, times, limit in measure(n, k, rows, rate, seconds):
        ours = times.pop("ours")
        if peers is None:
            peers = list(times)
            print(f"\n| out {n}, in {k}: rows | us | limit |", *(f"{p} |" for p in peers))
            print("|---:" * (3 + len(peers)) + "|")
        ratios = " | ".join(f"{times[peer] / ours:.2f}x" for peer in peers)
        print(f"| {m} | {1e6 * ours:.1f} | {limit / ours:.2f} | {ratios} |", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer shapes and rows, less time")
    parser.add_argument("--threads", type=int, help="instead of 1 and then all")
    parser.add_argument("--shape", action="append", help="OUTxIN, such as 4096x4096")
    return parser.parse_args()


def main():
    options = arguments()
    shapes = QUICK_SHAPES if options.quick else SHAPES
    if options.shape:
        shapes = [tuple(int(size) for size in text.split("x")) for text in options.shape]
    rows, seconds = (QUICK_ROWS, 0.1) if options.quick else (ROWS, 0.3)
    cores = len(os.sched_getaffinity(0))
    all_threads = [options.threads] if options.threads else sorted({1, cores})
    with torch.inference_mode():
        for threads in all_threads:
            torch.set_num_threads(threads)
            rate = peak_rate(threads, seconds)
            print(
                f"\n{threads} thread(s), PyTorch {torch.__version__}, peak {rate / 1e12:.3f} TOPS",
                file=sys.stderr,
            )
            for n, k in shapes:
                table(n, k, rows, rate, seconds)


if __name__ == "__main__":
    main()
