"""Nothing leaks, threads do not disturb each other, and the GIL is free during a call."""

import gc
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import octavo
import pytest
from arrays import OnlyDLPack
from oracles import FLOATS, assert_bits

try:
    import torch
except ImportError:
    torch = None


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


X = np.ones((4, 64), np.float32)
BF = X.astype(FLOATS["bf16"])
Q = np.ones((4, 64), np.int8)
W = np.ones((8, 64), np.int8)
PACKED = octavo.pack(W)
HOLDS = octavo.pack(W, scale=np.ones((8, 4), np.float16), group_size=16)
KEEPS = octavo.pack(W, scale=np.ones(8, np.float32), zero_point=1)
SCALES = np.ones(4, np.float32)
ONE = octavo.Stream(threads=1)
ROWS = np.ones((4, 8), np.float32)
INDICES = np.ones((2, 3), np.int64)


def refused(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except octavo.Error:
        return
    raise AssertionError("not refused")


CALLS = {
    "quantize": lambda: octavo.quantize(X, SCALES, axis=0, stream=ONE),
    "out": lambda: octavo.quantize(X, 0.5, out=Q, stream=ONE),
    "ml_dtypes": lambda: octavo.fake_quantize(BF, 0.5, stream=ONE),
    "dlpack": lambda: octavo.quantize(OnlyDLPack(X), OnlyDLPack(SCALES), axis=0, stream=ONE),
    "dynamic": lambda: octavo.quantize_dynamic(X, mode="asymmetric", dtype="u8", stream=ONE),
    "linear": lambda: octavo.linear(X, PACKED, 1, residual=ROWS, stream=ONE),
    "groups": lambda: octavo.linear(X, HOLDS, quantized="s16", stream=ONE),
    "kept": lambda: octavo.linear(X, KEEPS, stream=ONE),
    "pack": lambda: octavo.pack(W, scale=SCALES[0], zero_point=2).unpack(),
    "floats": lambda: octavo.float_linear(X, X, stream=ONE),
    "embedding": lambda: octavo.embedding(INDICES, W, 0.5, zero_point=1, stream=ONE),
    "refused index": lambda: refused(octavo.embedding, 9, W, 0.5),
    "refused with a pack": lambda: refused(octavo.linear, X, HOLDS, 1.0),
    "rows": lambda: octavo.int_matmul(Q[::-1], W, stream=ONE),
    "refused by the library": lambda: refused(octavo.quantize, X, 0.0, out=Q),
    "refused before": lambda: refused(octavo.quantize, X, 1.0, profile="no", out=Q),
    "refused by shape": lambda: refused(octavo.linear, X, PACKED, np.ones(3), residual=ROWS),
    "refused dlpack": lambda: refused(octavo.quantize, OnlyDLPack(Q), 1.0),
}
if torch is not None:
    TX, TQ = torch.from_numpy(X), torch.from_numpy(Q)
    CALLS["torch"] = lambda: octavo.quantize(TX, 0.5, stream=ONE)
    CALLS["refused torch"] = lambda: refused(octavo.quantize, TQ, 1.0)
OBJECTS = {"X": X, "BF": BF, "Q": Q, "W": W, "PACKED": PACKED, "HOLDS": HOLDS,
           "KEEPS": KEEPS, "SCALES": SCALES, "ONE": ONE, "INDICES": INDICES,
           "ROWS": ROWS, "None": None, "Error": octavo.Error, "float32": X.dtype,
           "int8": Q.dtype}  # fmt: skip


def counts():
    gc.collect()
    return {name: sys.getrefcount(o) for name, o in OBJECTS.items()}


@pytest.mark.parametrize("name", CALLS)
def test_references_are_given_back(name):
    call = CALLS[name]
    for _ in range(50):
        call()
    before = counts()
    for _ in range(500):
        call()
    after = counts()
    # (A few come and go with Python's own bookkeeping; a leak would be 500.)
    assert {n: c for n, c in after.items() if abs(c - before[n]) > 50} == {}


def test_no_leak_in_100_000_calls():
    calls = list(CALLS.values())
    for _ in range(300):
        for call in calls:
            call()
    gc.collect()
    before = resident()
    for _ in range(100_000 // len(calls) + 1):
        for call in calls:
            call()
    gc.collect()
    # 20 bytes a call would be 2 MB.
    assert resident() - before < 2 << 20


def test_many_shapes_do_not_grow_for_ever():
    """Plans are kept, but not all of them."""
    small = np.ones(20_000, np.float32)
    out = np.empty(20_000, np.int8)
    for n in range(1, 5000):
        octavo.quantize(small[:n], 0.5, out=out[:n], stream=ONE)
    before = resident()
    for n in range(5000, 17000):
        octavo.quantize(small[:n], 0.5, out=out[:n], stream=ONE)
    assert resident() - before < 4 << 20


def work(i):
    """One of many different calls, and its result."""
    rng = np.random.default_rng(i)
    rows, columns = 1 + i % 7, 8 * (1 + i % 13)
    x = rng.normal(0, 3, (rows, columns)).astype(FLOATS[["f32", "f16", "bf16", "f64"][i % 4]])
    kind = i % 3
    if kind == 0:
        return octavo.quantize(x, 0.1 + i % 5, dtype=["s8", "u4"][i % 2])
    if kind == 1:
        return octavo.quantize_dynamic(x, scope=["token", "tensor"][i % 2])[0]
    w = rng.integers(-128, 128, (5 + i % 11, columns)).astype(np.int8)
    return octavo.linear(x, w if i % 2 else octavo.pack(w), 0.1, mode="asymmetric")


def test_eight_threads_get_the_same_bits():
    expected = [work(i) for i in range(120)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            for got, want in zip(pool.map(work, range(120)), expected, strict=True):
                assert_bits(got, want)


def test_threads_that_write_parts_of_one_array():
    x = np.random.default_rng(0).normal(0, 9, (64, 1000)).astype(np.float32)
    out = np.zeros(x.shape, np.int8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: octavo.quantize(x[i], 0.1, out=out[i]), range(64)))
    assert_bits(out, octavo.quantize(x, 0.1))


def test_the_gil_is_free_during_a_call():
    """Another thread runs Python while a call works; with the GIL held it would stand still.

    A thread that asks for the GIL gets it after 5 ms of Python at the earliest, so the calls are
    long, and one that works for `busy` lets the other one run in it.
    """
    x = np.ones(1 << 24, np.float32)
    out = np.empty(x.shape, np.int8)
    inside, ticks_inside, stop = threading.Event(), [0], threading.Event()

    def tick():
        while not stop.is_set():
            if inside.is_set():
                ticks_inside[0] += 1
            time.sleep(0)

    thread = threading.Thread(target=tick)
    old = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody is made to give the GIL up
    try:
        thread.start()
        for _ in range(20):
            inside.set()
            octavo.quantize(x, 0.5, out=out, stream=ONE)
            inside.clear()
            if ticks_inside[0] > 10:
                break
    finally:
        sys.setswitchinterval(old)
        stop.set()
        thread.join()
    assert ticks_inside[0] > 10
