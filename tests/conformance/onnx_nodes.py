"""Reads ONNX node tests with no more of protobuf than they need, and adds them as cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import oracle_inputs as inputs
from oracle_io import Oracle

NODE_TESTS = Path("/usr/share/libonnx-testdata/data/node")
PREFIXES = {
    "quantizelinear": "quantize",
    "dequantizelinear": "dequantize",
    "dynamicquantizelinear": "dynamic_range_quantize",
}
TENSOR_TYPES: dict[int, np.dtype] = {
    number: np.dtype(name) for number, name in ((1, "<f4"), (2, "u1"), (3, "i1"), (6, "<i4"))
}


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A protobuf varint and the position after it."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: numbers as int, everything else as bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"protobuf wire type {wire} is not expected here")
        yield key >> 3, data[at : at + size]
        at += size


def packed(values: list[int | bytes]) -> list[int]:
    """A repeated integer field, packed or not."""
    out: list[int] = []
    for value in values:
        if isinstance(value, int):
            out.append(value)
            continue
        at = 0
        while at < len(value):
            item, at = varint(value, at)
            out.append(item)
    return out


def collect(data: bytes) -> dict[int, list[int | bytes]]:
    """All fields of a message by number."""
    out: dict[int, list[int | bytes]] = {}
    for number, value in fields(data):
        out.setdefault(number, []).append(value)
    return out


def sub_messages(message: dict[int, list[int | bytes]], number: int) -> list[bytes]:
    """The occurrences of a field that holds bytes."""
    return [value for value in message.get(number, []) if isinstance(value, bytes)]


def read_tensor(path: Path) -> np.ndarray:
    """A TensorProto: dims = 1, data_type = 2, float_data = 4, int32_data = 5, raw_data = 9."""
    message = collect(path.read_bytes())
    dtype = TENSOR_TYPES[packed(message[2])[0]]
    shape = packed(message.get(1, []))
    if 9 in message:
        values = np.frombuffer(b"".join(sub_messages(message, 9)), dtype)
    elif 4 in message:
        values = np.frombuffer(b"".join(sub_messages(message, 4)), "<f4")
    else:
        values = np.array(packed(message.get(5, []))).astype(np.int64).astype(dtype)
    return values.reshape(shape)


def read_axis(path: Path) -> int:
    """The node's `axis`: ModelProto.graph = 7, GraphProto.node = 1, NodeProto.attribute = 5."""
    (graph,) = sub_messages(collect(path.read_bytes()), 7)
    (node,) = sub_messages(collect(graph), 1)
    for attribute in map(collect, sub_messages(collect(node), 5)):
        if attribute[1] == [b"axis"]:
            value = packed(attribute[3])[0]
            return value - (1 << 64) if value >> 63 else value
    return 1  # the standard's default


def add_node_tests(oracle: Oracle, directory: Path) -> None:
    """Every QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear node test."""
    found = [
        (test, op)
        for prefix, op in PREFIXES.items()
        for test in sorted(directory.glob(f"test_{prefix}*"))
    ]
    if not found:
        raise SystemExit(
            f"{directory}: no ONNX node tests; on Debian: apt install libonnx-testdata"
        )
    for test, op in found:
        for data in sorted(test.glob("test_data_set_*")):
            # DynamicQuantizeLinear finds the scale and the zero point: they are outputs.
            dynamic = op == "dynamic_range_quantize"
            parameters = "output" if dynamic else "input"
            x = read_tensor(data / "input_0.pb")
            scales, zps = (read_tensor(data / f"{parameters}_{i}.pb") for i in (1, 2))
            axis = read_axis(test / "model.onnx") if scales.size > 1 else None
            oracle.add(
                "onnx", f"{test.name}/{data.name}", op=op, profile="onnx", shape=x.shape, axis=axis,
                input=x, scales=scales.ravel(), zero_points=zps.ravel().astype(np.int32),
                mode="asymmetric" if dynamic else None, expected=read_tensor(data / "output_0.pb"),
            )  # fmt: skip


def add_formula(oracle: Oracle) -> None:
    """The node tests are few: QuantizeLinear's formula, evaluated by numpy on near-ties."""
    scales = (1.0, 0.1, 1 / 3, 0.0235, 7.3, 3.7e-5, 2.9e38)
    for dtype, s, z in itertools.product((np.int8, np.uint8), scales, (0, 5, 127)):
        info = np.iinfo(dtype)
        name = f"numpy/{info.dtype}/scale {s:.6g}/zero point {z}"
        scale, zp = np.full(1031, s, np.float32), np.full(1031, z)
        x = inputs.floats_near_ties(name, scale, zp, info.min, info.max)
        q = np.clip(np.rint(x / scale).astype(np.float64) + z, info.min, info.max).astype(dtype)
        oracle.add(
            "onnx", name, op="quantize", profile="onnx", shape=x.shape, input=x, scales=scale[:1],
            zero_points=zp[:1].astype(np.int32), expected=q,
        )  # fmt: skip
