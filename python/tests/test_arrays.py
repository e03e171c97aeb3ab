"""Arrays of every maker: what comes back, that nothing is copied, in place, and overlaps."""

import array
import subprocess
import sys
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import octavo
import oracles
import pytest
import torch
from arrays import OnlyDLPack
from hypothesis import given
from hypothesis import strategies as st
from oracles import FLOATS, assert_bits

X = np.float32([[0.5, -1.25, 3.0], [100.0, -0.0, 7.5]])
W = np.int8([[1, 2, 3], [-4, 5, 6]])


def all_functions(x, w, out):
    """Each function once, on arrays of one maker; out(shape, dtype) makes an array to write."""
    q = octavo.quantize(x, 0.5)
    yield q
    yield octavo.dequantize(q, 0.5)
    yield octavo.fake_quantize(x, 0.5)
    yield octavo.quantize_backward(x, x, 0.5)
    yield octavo.fake_quantize_backward(x, x, 0.5)
    yield octavo.dequantize_backward(x, 0.5)
    yield from octavo.quantize_dynamic(x)[:2]
    yield octavo.linear(x, w, 0.1)
    yield octavo.smoothquant_linear(q, 0.5, w, 0.1)
    yield octavo.quantized_matmul(q, w, act_scale=0.5, weight_scale=0.1)
    yield octavo.int_matmul(q, octavo.pack(w))


def test_numpy_gives_numpy():
    results = list(all_functions(X, W, np.empty))
    assert all(type(r) is np.ndarray for r in results)


def test_pytorch_gives_pytorch_and_the_same_bits():
    x, w = torch.from_numpy(X), torch.from_numpy(W)
    for got, want in zip(
        all_functions(x, w, torch.empty), all_functions(X, W, np.empty), strict=True
    ):
        assert type(got) is torch.Tensor
        assert_bits(got.numpy(), want)


@pytest.mark.skipif(not hasattr(torch, "set_default_device"), reason="since PyTorch 2.0")
def test_results_are_where_the_input_is():
    torch.set_default_device("meta")
    try:
        assert octavo.quantize(torch.ones(3, device="cpu"), 1).device.type == "cpu"
    finally:
        torch.set_default_device("cpu")


@pytest.mark.skipif(not hasattr(torch, "uint16"), reason="since PyTorch 2.3")
def test_zero_points_of_unsigned_tensors():
    for dtype in (torch.uint16, torch.uint32, torch.uint64):
        assert octavo.quantize(torch.ones(3), 1, torch.tensor(2, dtype=dtype)).tolist() == [3] * 3


def test_sixteen_bits_come_and_go_as_int16():
    want = np.int16([[1, -2, 30000]] * 2)
    x = want.astype(np.float32)
    for make in (np.asarray, torch.from_numpy, OnlyDLPack):
        q = octavo.quantize(make(x), 1, dtype="s16")
        assert_bits(np.asarray(q), want)
        assert_bits(np.asarray(octavo.dequantize(make(want), 1)), x)
    assert octavo.quantize(torch.from_numpy(x), 1, dtype="int16").dtype == torch.int16
    q, scale, _ = octavo.quantize_dynamic(torch.from_numpy(x), dtype="s16")
    assert (q.dtype, q[:, 2].tolist()) == (torch.int16, [32639] * 2)
    assert_bits(scale.numpy(), np.float32([30000, 30000]) / np.float32(32639))
    half = x.astype(np.float16)
    assert octavo.quantize(half, 1, dtype="s16", out=half.view(np.int16)).dtype == np.int16
    assert_bits(half.view(np.int16), want)


def test_dlpack_alone_is_enough():
    x, w = OnlyDLPack(X), OnlyDLPack(W)
    for got, want in zip(all_functions(x, w, np.empty), all_functions(X, W, np.empty), strict=True):
        assert_bits(got, want)
    out = np.empty((2, 3), np.int8)
    octavo.quantize(X, 0.5, out=OnlyDLPack(out))
    assert_bits(out, octavo.quantize(X, 0.5))
    scales = OnlyDLPack(np.float32([1, 9, 2])[::2])
    assert_bits(octavo.quantize(X, scales, axis=0), octavo.quantize(X, [1, 2], axis=0))
    turned = OnlyDLPack(np.ascontiguousarray(X.T).T)
    assert_bits(octavo.linear(turned, W, 0.1), octavo.linear(X, W, 0.1))


def test_bf16_by_dlpack_that_numpy_would_not_take():
    t = torch.from_numpy(X).bfloat16().T.contiguous().T
    got = octavo.linear(OnlyDLPack(t), W, 0.1)
    assert got.dtype == FLOATS["bf16"]
    assert_bits(got.astype(np.float32), octavo.linear(t, W, 0.1).float().numpy())


def test_bf16_of_ml_dtypes_and_of_pytorch():
    ml = X.astype(ml_dtypes.bfloat16)
    pt = torch.from_numpy(X).bfloat16()
    for got, want in zip(
        all_functions(ml, W, np.empty), all_functions(pt, torch.from_numpy(W), 0), strict=True
    ):
        assert type(got) is np.ndarray
        if want.dtype == torch.bfloat16:
            assert got.dtype == FLOATS["bf16"]
            got, want = got.view(np.uint16).astype(int), want.view(torch.int16).numpy()
            np.testing.assert_array_equal(got, want.view(np.uint16))
        else:
            assert_bits(got, want.numpy())
    out = np.empty(X.shape, ml_dtypes.bfloat16)
    assert octavo.dequantize(octavo.quantize(X, 0.5), 0.5, dtype="bf16", out=out) is out
    assert_bits(out, oracles.dequantize(octavo.quantize(X, 0.5), 0.5, dtype="bf16"))
    assert_bits(octavo.quantize(X, ml_dtypes.bfloat16(0.5)), octavo.quantize(X, 0.5))
    scales = np.array([0.5, 2], ml_dtypes.bfloat16)
    assert_bits(octavo.quantize(X, scales, axis=0), octavo.quantize(X, [0.5, 2], axis=0))


def test_other_buffers():
    want = octavo.quantize(X[0], 0.5)
    assert_bits(octavo.quantize(array.array("f", X[0]), 0.5), want)
    assert_bits(octavo.quantize(memoryview(X)[0:1], 0.5)[0], want)
    out = bytearray(3)
    assert octavo.quantize(X[0], 0.5, dtype="u8", out=out) is out
    assert_bits(octavo.dequantize(bytes(out), 1), octavo.dequantize(np.uint8(list(out)), 1))


def test_out_may_be_of_another_maker():
    out = torch.empty(2, 3, dtype=torch.int8)
    assert octavo.quantize(X, 0.5, out=out) is out
    assert_bits(out.numpy(), octavo.quantize(X, 0.5))


@pytest.mark.parametrize("make", [np.empty, torch.empty], ids=["numpy", "torch"])
def test_out_is_what_comes_back(make):
    f32, s8, s32 = (
        (np.float32, np.int8, np.int32)
        if make is np.empty
        else (torch.float32, torch.int8, torch.int32)
    )
    x, w = (X, W) if make is np.empty else (torch.from_numpy(X), torch.from_numpy(W))
    q = octavo.quantize(x, 0.5)
    calls = [
        (lambda **k: octavo.quantize(x, 0.5, **k), (2, 3), s8),
        (lambda **k: octavo.dequantize(q, 0.5, **k), (2, 3), f32),
        (lambda **k: octavo.fake_quantize(x, 0.5, **k), (2, 3), f32),
        (lambda **k: octavo.quantize_backward(x, x, 0.5, **k), (2, 3), f32),
        (lambda **k: octavo.fake_quantize_backward(x, x, 0.5, **k), (2, 3), f32),
        (lambda **k: octavo.dequantize_backward(x, 0.5, **k), (2, 3), f32),
        (lambda **k: octavo.quantize_dynamic(x, **k)[0], (2, 3), s8),
        (lambda **k: octavo.linear(x, w, 0.1, **k), (2, 2), f32),
        (lambda **k: octavo.smoothquant_linear(q, 0.5, w, 0.1, **k), (2, 2), f32),
        (lambda **k: octavo.quantized_matmul(q, w, act_scale=1, weight_scale=1, **k), (2, 2), f32),
        (lambda **k: octavo.int_matmul(q, w, **k), (2, 2), s32),
    ]
    for call, shape, dtype in calls:
        out = make(shape, dtype=dtype)
        assert call(out=out) is out
        assert_bits(np.asarray(out), np.asarray(call()))


def test_no_copies_of_large_arrays():
    """Less memory than a thousandth of an argument is asked for during a call."""
    x = np.zeros((64, 1 << 16), np.float32)
    q = np.zeros(x.shape, np.int8)
    bf = x.view(np.uint16)[:, ::2].view(ml_dtypes.bfloat16)
    one = octavo.Stream(threads=1)
    tracemalloc.start()
    try:
        octavo.quantize(x, 0.5, out=q, stream=one)
        octavo.quantize(x.T[::2].T, 0.5, out=q[:, ::1][:, : 1 << 15], stream=one)
        octavo.quantize(bf, 0.5, out=q, stream=one)
        octavo.fake_quantize(x, 0.5, out=x, stream=one)
        octavo.quantize(torch.from_numpy(x), 0.5, out=torch.from_numpy(q), stream=one)
        octavo.quantize(OnlyDLPack(x), 0.5, out=OnlyDLPack(q), stream=one)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes // 1000


PEAK = """
import resource, sys
import numpy as np, octavo, torch
sys.path.insert(0, {tests!r})
from arrays import OnlyDLPack

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

n = 1 << 22
x, q = np.ones((4, n), np.float32), np.ones((4, n), np.int8)
one = octavo.Stream(threads=1)
makers = {{"numpy": lambda a: a, "torch": torch.from_numpy, "dlpack": OnlyDLPack}}
calls = {{
    "quantize": lambda of: octavo.quantize(of(x), 0.5, out=of(q), stream=one),
    "strided": lambda of: octavo.quantize(of(x[:, ::2]), 0.5, out=of(q[:, : n // 2]), stream=one),
    "dequantize": lambda of: octavo.dequantize(of(q), 0.5, out=of(x), stream=one),
    "dynamic": lambda of: octavo.quantize_dynamic(of(x), out=of(q), stream=one),
    "backward": lambda of: octavo.quantize_backward(of(x), of(x), 0.5, out=of(x), stream=one),
}}
for name, call in calls.items():
    for kind, of in makers.items():
        before = peak()
        call(of)
        if peak() - before > q.nbytes // 4:
            print(name, kind, peak() - before)
"""


def test_no_copies_below_python():
    """The most memory a process ever had does not grow by what a copy of an input would take.
    (Linear layers quantize and rearrange their rows in a workspace, so they are not asked.)"""
    program = PEAK.format(tests=str(Path(__file__).parent))
    assert subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout == ""  # fmt: skip


def test_out_is_written_where_it_lies():
    big = np.full((4, 6), 9, np.int8)
    view = big[1:3, 2:5]
    assert octavo.quantize(X, 0.5, out=view) is view
    assert_bits(big[1:3, 2:5], octavo.quantize(X, 0.5))
    big[1:3, 2:5] = 9
    assert (big == 9).all()
    t = torch.full((4, 6), 9, dtype=torch.int8)
    octavo.quantize(X, 0.5, out=t[1:3, 2:5])
    assert (t == 9).sum() == 24 - 6


@given(st.sampled_from(list(FLOATS)), st.booleans())
def test_in_place(dtype, transposed):
    x = X.astype(FLOATS[dtype])
    want = octavo.fake_quantize(x, 0.5)
    assert octavo.fake_quantize(x, 0.5, out=x) is x
    assert_bits(x, want)
    dy = X.astype(FLOATS[dtype])
    want = octavo.quantize_backward(x, dy, 0.5)
    assert octavo.quantize_backward(x, dy, 0.5, out=dy if transposed else x) is not None
    assert_bits(dy if transposed else x, want)


def test_bytes_in_place():
    q = np.arange(6, dtype=np.uint8)
    f = q.view(np.uint8)
    with pytest.raises(octavo.Error, match="out"):
        octavo.dequantize(f, 1.0, out=q)  # of another type
    t = torch.from_numpy(X.copy())
    assert octavo.dequantize_backward(t, 2.0, out=t) is t
    assert_bits(t.numpy(), X * 2)


def overlaps():
    buffer = np.zeros(64, np.float32)
    bytes_ = buffer.view(np.int8)
    x = buffer[:12].reshape(4, 3)
    yield "shifted", lambda: octavo.fake_quantize(buffer[:8], 1, out=buffer[1:9])
    yield "smaller", lambda: octavo.quantize(buffer[:8], 1, out=bytes_[:8])
    yield "input of linear", lambda: octavo.linear(x, W, 1, out=buffer[8:16].reshape(4, 2))
    yield "copied input", lambda: octavo.linear(x[::-1], W, 1, out=buffer[8:16].reshape(4, 2))
    weight = bytes_[:6].reshape(2, 3)
    other = np.ones((4, 3), np.float32)
    yield "weight", lambda: octavo.linear(other, weight, 1, out=buffer[:8].reshape(4, 2))
    yield (
        "residual, shifted",
        lambda: octavo.linear(
            other, W, 1, residual=buffer[1:9].reshape(4, 2), out=buffer[:8].reshape(4, 2)
        ),
    )
    result = buffer[:8].reshape(4, 2)
    yield "copied residual", lambda: octavo.linear(other, W, 1, residual=result[::-1], out=result)


@pytest.mark.parametrize("name", ["shifted", "smaller", "input of linear", "copied input",
                                  "weight", "residual, shifted", "copied residual"])  # fmt: skip
def test_overlaps_are_refused(name):
    with pytest.raises(octavo.Error, match="overlap") as e:
        dict(overlaps())[name]()
    assert e.value.argument == "out"
    assert "input" not in str(e.value)


def test_broadcast_arrays_are_read_and_never_written():
    x = np.broadcast_to(np.float32([1, 2, 3]), (2, 3))
    np.testing.assert_array_equal(octavo.quantize(x, 1), [[1, 2, 3]] * 2)
    out = torch.zeros(3, dtype=torch.int8).expand(2, 3)
    with pytest.raises(octavo.Error) as e:
        octavo.quantize(X, 1, out=out)
    assert e.value.argument == "out"


def test_results_outlive_their_inputs():
    q = octavo.quantize(np.ones(1 << 16, np.float32), 0.5)
    x = np.full(1 << 16, 9, np.float32)
    assert (q == 2).all()
    del x


def test_results_are_on_the_cpu_whatever_the_default_device_is():
    if not hasattr(torch, "set_default_device"):
        pytest.skip(f"PyTorch {torch.__version__} has no default device")
    x = torch.ones(2, 4)
    packed = octavo.pack(torch.ones(3, 4, dtype=torch.int8))
    with torch.device("meta"):
        assert octavo.quantize(x, 0.5).device.type == "cpu"
        assert octavo.linear(x, packed, 1.0).tolist() == [[4.0] * 3] * 2
