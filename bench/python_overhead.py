"""What a call from Python costs over the C++ `run` that it makes, with out= and one thread.

python_overhead.py <octavo_python_run_cost>, with the module on PYTHONPATH:

    cmake --build build/release --target octavo_core octavo_python_run_cost
    PYTHONPATH=build/release/python build/venv/bin/python bench/python_overhead.py \
        build/release/bin/octavo_python_run_cost
"""

import subprocess
import sys
import timeit

import numpy as np
import octavo

try:
    import torch
except ImportError:
    torch = None

ONE = octavo.Stream(threads=1)


def cases(array):
    """By the names that the C++ program prints: a call on arrays made by `array`."""
    found = {}
    for n in (64, 4096):
        x, out = array(np.ones(n, np.float32)), array(np.zeros(n, np.int8))
        found[f"quantize_{n}"] = lambda x=x, out=out: octavo.quantize(x, 0.5, out=out, stream=ONE)
    x, y = array(np.ones((1, 64), np.float32)), array(np.zeros((1, 64), np.float32))
    scale = array(np.full(64, 0.5, np.float32))
    packed = octavo.pack(np.ones((64, 64), np.int8))
    found["linear_64"] = lambda: octavo.linear(x, packed, scale, out=y, stream=ONE)
    return found


def best(call, batches=400, calls=500):
    """In ns, without what an empty call of Python costs."""
    timer, nothing = timeit.Timer(call), timeit.Timer(lambda: None)
    fastest = [min(t.repeat(batches, calls)) / calls * 1e9 for t in (timer, nothing)]
    return fastest[0] - fastest[1]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    printed = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout
    run = {name: float(ns) for name, ns in map(str.split, printed.splitlines())}
    makers = {"NumPy": cases(np.asarray)}
    if torch is not None:
        makers["PyTorch"] = cases(torch.from_numpy)
    print(f"{'ns, best of many':<18}{'C++ run':>10}", *(f"{m:>10}{'over':>10}" for m in makers))
    for name, cpp in run.items():
        times = [best(found[name]) for found in makers.values()]
        print(f"{name:<18}{cpp:>10.0f}", *(f"{t:>10.0f}{t - cpp:>+10.0f}" for t in times))


if __name__ == "__main__":
    main()
