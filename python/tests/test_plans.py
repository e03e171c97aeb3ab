"""Plans are kept from call to call: a call never gets that of another one, however alike."""

import numpy as np
import octavo
import pytest
from oracles import assert_bits

ONE = octavo.Stream(threads=1)
# (1.65 * (1 / 0.3) is 5.5, and 1.65 / 0.3 is less: the profiles differ.)
ROWS = np.tile(np.float32([[1.5, -0.3, 300, -40.25, 1.65, 2.25, 0.1, -1.65],
                           [0.7, 2.5, -9, 130, -2.25, 1.65, -0.3, 1.5]]), (256, 1))  # fmt: skip
INTS = np.tile(np.int8([[1, -128, 127, 3], [5, -7, 100, -100]]), (256, 2))
CHANNELS = np.float32([0.1, 0.3, 0.7, 1, 1.1, 2, 3, 0.01])
SCALES = [{"scale": 0.3}, {"scale": CHANNELS, "axis": 1},
          {"scale": CHANNELS.astype(np.float64) / 3, "axis": 1}]  # fmt: skip
RANGES = [{}, {"q_min": -7}, {"q_max": 7}, {"q_min": -7, "q_max": 7}]
PROFILES = [{"profile": "torch"}, {"profile": "onnx"}]


def tokens(rows, **others):
    return {"scale": np.full(rows, 0.2, np.float32), "axis": "token", **others}


def groups(rows, size, **others):
    return {"scale": np.tile(CHANNELS[: 8 // size], (rows, 1)), "group_size": size, **others}


def elementwise():
    """Functions of the number of rows, of which the first do not depend on how many there are."""
    for function in (octavo.quantize, octavo.fake_quantize):
        for others in [{**r, **p} for r in RANGES for p in PROFILES]:
            yield from (
                lambda n, f=function, s=s, o=others: f(ROWS[:n], **s, **o, stream=ONE)
                for s in SCALES
            )
            yield lambda n, f=function, o=others: f(ROWS[:n], **tokens(n, **o), stream=ONE)
            yield from (
                lambda n, f=function, o=others, g=g: f(ROWS[:n], **groups(n, g, **o), stream=ONE)
                for g in (2, 4)
            )
    for dtype in ("s8", "u8", "s4", "u4", "s16"):
        yield lambda n, d=dtype: octavo.quantize(ROWS[:n], 0.3, dtype=d, stream=ONE)
    for t in (np.float64, np.float16):
        yield lambda n, t=t: octavo.quantize(ROWS[:n].astype(t), 0.3, stream=ONE)
    for s in SCALES:
        yield lambda n, s=s: octavo.quantize_backward(ROWS[:n], ROWS[:n], **s, stream=ONE)
        yield lambda n, s=s: octavo.fake_quantize_backward(ROWS[:n], ROWS[:n], **s, stream=ONE)
        yield lambda n, s=s: octavo.dequantize_backward(ROWS[:n], **s, stream=ONE)
        for dtype in ("f32", "f64", "f16"):
            yield lambda n, s=s, d=dtype: octavo.dequantize(INTS[:n], **s, dtype=d, stream=ONE)
    for dtype in ("s4", "u4"):
        yield lambda n, d=dtype: octavo.dequantize(
            INTS[:n].view(np.uint8), 0.3, q_dtype=d, stream=ONE
        )


SCOPES = [{"scope": "token"}, {"scope": "tensor"}, {"scope": "channel", "axis": 1},
          {"scope": "group", "group_size": 2}, {"scope": "group", "group_size": 4}]  # fmt: skip


def dynamic():
    for mode in ("symmetric", "asymmetric"):
        for scope in SCOPES:
            for others in [{**r, **p} for r in RANGES for p in PROFILES] + [
                {"dtype": "s4"},
                {"dtype": "s16"},
            ]:
                yield lambda n, m=mode, s=scope, o=others: octavo.quantize_dynamic(
                    ROWS[:n], mode=m, **s, **o, stream=ONE
                )[0]


WEIGHTS = np.tile(INTS, (1, 4))
X = np.tile(ROWS[:2], (1, 4))


def linear():
    """Functions of the number of output channels."""
    weights = [lambda n: WEIGHTS[:n], lambda n: octavo.pack(WEIGHTS[:n])]
    options = [
        lambda n: {},
        lambda n: {"relu": True},
        lambda n: {"bias": np.full(n, -3, np.float32)},
        lambda n: {"residual": np.full((2, n), 1000, np.float32)},
    ]
    for w in weights:
        for o in options:
            for kind in (
                {},
                {"mode": "asymmetric"},
                {"profile": "onnx"},
                {"quantized": "s16"},
                {"mode": "asymmetric", "quantized": "s8"},
            ):
                yield (
                    lambda n, w=w, o=o, k=kind: (
                        octavo.linear(X, w(n), 0.1, **o(n), **k, stream=ONE).T
                    )
                )
            for scale, zero in ((0.1, 0), (0.2, 0), (0.1, 3), (0.0, 0), (-0.0, 0)):
                yield (
                    lambda n, w=w, o=o, s=scale, z=zero: (
                        octavo.smoothquant_linear(
                            WEIGHTS[:2], s, w(n), 0.1, act_zero_point=z, **o(n), stream=ONE
                        ).T
                    )
                )
        for dtype in ("f64", "f16"):
            yield lambda n, w=w, d=dtype: octavo.linear(X, w(n), 0.1, out_dtype=d, stream=ONE).T
        for dtype in ("s8", "u8"):
            yield (
                lambda n, w=w, d=dtype: (
                    octavo.quantized_matmul(
                        WEIGHTS[:2],
                        w(n),
                        act_scale=0.1,
                        weight_scale=0.1,
                        out_dtype=d,
                        out_scale=9,
                        stream=ONE,
                    ).T
                )
            )
        yield lambda n, w=w: octavo.linear(X, w(n), 0.1, weight_zero_point=3, stream=ONE).T
        for zeros in ({}, {"act_zero_point": 1}, {"weight_zero_point": 1}):
            yield lambda n, w=w, z=zeros: octavo.int_matmul(WEIGHTS[:2], w(n), **z, stream=ONE).T


def grouped():
    """Functions of the number of output channels, of weights in groups and of floats."""
    wide = WEIGHTS.view(np.uint8)  # (as nibbles twice as long as X)
    for size in (4, 8, 16):
        for t in (np.float32, np.float16, np.float64):
            scale = (np.arange(512 * 32 // size) % 7 / 10).reshape(512, -1).astype(t)
            for zero in (None, 3):
                yield (
                    lambda n, g=size, s=scale, z=zero: (
                        octavo.linear(
                            X, WEIGHTS[:n], s[:n], group_size=g, weight_zero_point=z, stream=ONE
                        ).T
                    )
                )
                yield (
                    lambda n, g=size, s=scale, z=zero: (
                        octavo.linear(
                            X,
                            octavo.pack(WEIGHTS[:n], scale=s[:n], group_size=g, zero_point=z),
                            stream=ONE,
                        ).T
                    )
                )
        for q_dtype in ("s4", "u4"):
            yield (
                lambda n, g=size, q=q_dtype: (
                    octavo.linear(
                        X, wide[:n, ::2].copy(), 0.1, group_size=g, q_dtype=q, stream=ONE
                    ).T
                )
            )
    for kind in ({"quantized": "s16"}, {"mode": "asymmetric"}):
        yield lambda n, k=kind: octavo.linear(X, WEIGHTS[:n], 0.1, group_size=4, **k, stream=ONE).T
    for t in (np.float32, np.float16):
        yield lambda n, t=t: octavo.float_linear(X, WEIGHTS[:n].astype(t), stream=ONE).T
        yield (
            lambda n, t=t: (
                octavo.float_linear(
                    X.astype(t), octavo.pack(WEIGHTS[:n].astype(np.float32)), relu=True, stream=ONE
                ).T
            )
        )


def gathered():
    """Functions of the number of rows of a table."""
    rows = np.arange(512) % 4
    for out in ("f32", "f16"):
        for t in (np.float32, np.float16):
            yield lambda n, t=t, o=out: octavo.embedding(
                rows[:n], WEIGHTS[:n].astype(t), out_dtype=o, stream=ONE
            )
        for t in (np.int8, np.uint8):
            for group in (None, 4, 8):
                for zero in (None, 3):
                    yield lambda n, t=t, g=group, z=zero, o=out: octavo.embedding(
                        rows[:n], WEIGHTS[:n].view(t), 0.1, group_size=g, zero_point=z,
                        out_dtype=o, stream=ONE,
                    )  # fmt: skip


@pytest.mark.parametrize("family", [elementwise, dynamic, linear, grouped, gathered])
def test_a_call_gets_its_own_plan(family):
    """Of a size that nobody else has, no plan but its own fits a call; of one size, all would."""
    calls = list(family())
    few = 4
    alone = [call(few + 2 * i) for i, call in enumerate(calls, 1)]
    for call, expected in zip(calls, alone, strict=True):
        assert_bits(call(few), expected[:few])
    for call, expected in zip(reversed(calls), reversed(alone), strict=True):  # all are known now
        assert_bits(call(few), expected[:few])
