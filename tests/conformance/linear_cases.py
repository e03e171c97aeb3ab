"""Integer matrix products: by PyTorch, and the ONNX node tests."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx_nodes
import torch
from oracle_inputs import Bits
from oracle_io import Oracle

INTEGERS = {"s8": np.int8, "u8": np.uint8}
SHAPES = ((1, 1, 1), (1, 17, 64), (3, 5, 7), (16, 16, 64), (17, 33, 65), (5, 100, 1000))


def add_matmul(
    oracle: Oracle,
    group: str,
    name: str,
    a: np.ndarray,
    b: np.ndarray,
    expected: np.ndarray,
    **fields: Any,
) -> None:
    """a [m, k] by b [k, n], whose columns are the rows of Octavo's weights."""
    (m, k), n = a.shape, b.shape[1]
    oracle.add(
        group, name, op="quantized_matmul", m=m, n=n, k=k, input=a,
        weight=np.ascontiguousarray(b.T), expected=expected, **{"profile": "torch", **fields},
    )  # fmt: skip


def zero_points(values: np.ndarray) -> np.ndarray:
    return values.ravel().astype(np.int32)


def add_node_tests(oracle: Oracle, directory: Path) -> None:
    """MatMulInteger; and QLinearMatMul, whose batches are cases of their own."""
    node = directory / "test_matmulinteger" / "test_data_set_0"
    a, b, a_zero, b_zero = (onnx_nodes.read_tensor(node / f"input_{i}.pb") for i in range(4))
    add_matmul(
        oracle, "linear_onnx", "matmulinteger", a, b, onnx_nodes.read_tensor(node / "output_0.pb"),
        activation_zero_points=zero_points(a_zero), weight_zero_points=zero_points(b_zero),
    )  # fmt: skip
    for test in ("test_qlinearmatmul_2D", "test_qlinearmatmul_3D"):
        node = directory / test / "test_data_set_0"
        a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (
            onnx_nodes.read_tensor(node / f"input_{i}.pb") for i in range(8)
        )
        y = onnx_nodes.read_tensor(node / "output_0.pb")
        batches = [x.reshape(-1, *x.shape[-2:]) for x in (a, b, y)]
        for i, (one_a, one_b, one_y) in enumerate(zip(*batches, strict=True)):
            add_matmul(
                oracle, "linear_onnx", f"{test}/{i}", one_a, one_b, one_y, profile="onnx",
                activation_scales=a_scale.ravel(), activation_zero_points=zero_points(a_zero),
                weight_scales=b_scale.ravel(), weight_zero_points=zero_points(b_zero),
                output_scale=float(y_scale.ravel()[0]), output_zero_point=int(y_zero.ravel()[0]),
            )  # fmt: skip


def values(name: str, dtype: str, shape: tuple[int, int], extreme: bool) -> np.ndarray:
    """Any bytes; or only those at the ends of the range."""
    count = shape[0] * shape[1]
    raw = Bits(name).below(256, count)
    if extreme:
        raw = np.where(raw < 128, *((0x80, 0x7F) if dtype == "s8" else (0xFF, 0)))
    return raw.astype(np.uint8).view(INTEGERS[dtype]).reshape(shape)


def add_torch(oracle: Oracle) -> None:
    """torch.matmul of int32 (and of int64, which must be the same), with zero points or without."""
    pairs = itertools.product(INTEGERS, INTEGERS)
    turn = 0
    for (a_type, b_type), (m, n, k), zeros in itertools.product(pairs, SHAPES, range(4)):
        turn += 1
        name = f"torch/{a_type}.{b_type}/{m}x{n}x{k}/{zeros}"
        a = values(name + "/a", a_type, (m, k), turn % 3 == 0)
        b = values(name + "/b", b_type, (k, n), turn % 3 == 0)
        fields: dict[str, Any] = {}
        wide = [torch.from_numpy(x.astype(np.int64)) for x in (a, b)]
        if zeros & 1:
            zps = Bits(name + "/za").below(256, m) + np.iinfo(a.dtype).min
            fields["activation_zero_points"] = zero_points(zps)
            wide[0] = wide[0] - torch.from_numpy(zps).reshape(m, 1)
        if zeros & 2:
            zps = Bits(name + "/zw").below(256, n) + np.iinfo(b.dtype).min
            fields["weight_zero_points"] = zero_points(zps)
            wide[1] = wide[1] - torch.from_numpy(zps).reshape(1, n)
        y = wide[0] @ wide[1]
        narrow = wide[0].int() @ wide[1].int()
        assert torch.equal(narrow.long(), y), name
        add_matmul(oracle, "linear_torch", name, a, b, narrow.numpy(), **fields)


def add_int_mm(oracle: Oracle) -> bool:
    """torch._int_mm, where this PyTorch has it for CPUs."""
    shapes = ((17, 8, 8), (32, 16, 64), (33, 40, 72), (18, 1000, 504))
    for (m, n, k), extreme in itertools.product(shapes, (False, True)):
        name = f"_int_mm/{m}x{n}x{k}/{'extreme' if extreme else 'any'}"
        a = values(name + "/a", "s8", (m, k), extreme)
        b = values(name + "/b", "s8", (k, n), extreme)
        try:
            y = torch._int_mm(torch.from_numpy(a), torch.from_numpy(b))
        except (AttributeError, RuntimeError, NotImplementedError):
            return False
        add_matmul(oracle, "linear_torch", name, a, b, y.numpy())
    return True


def add_all(oracle: Oracle, onnx: Path) -> bool:
    """Adds every case and returns whether this PyTorch has _int_mm."""
    add_node_tests(oracle, onnx)
    add_torch(oracle)
    return add_int_mm(oracle)
