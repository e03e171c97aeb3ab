"""Type checkers see the signatures: right programs pass, wrong ones are found."""

import subprocess
import sys
from pathlib import Path

import octavo
import pytest

pytest.importorskip("mypy")

HEAD = """
import numpy as np
import octavo
x = np.ones((2, 4), np.float32)
"""
RIGHT = """
stream = octavo.Stream(threads=1, target="scalar")
target: str | None = stream.target
q, scale, zero_point = octavo.quantize_dynamic(x, scope="token", stream=stream)
octavo.dequantize(q, scale, zero_point, axis="token", dtype="f32")
packed: octavo.PackedWeight = octavo.pack(np.ones((3, 4), np.int8))
n, k = packed.shape
octavo.linear(x, packed, 0.1, relu=True)
grouped = octavo.pack(
    np.ones((3, 8), np.uint8), q_dtype="u4", scale=np.ones((3, 4)), group_size=4, zero_point=8
)
size: int | None = grouped.group_size
kind: str | None = grouped.scale_dtype
shifted: bool = grouped.has_zero_point
weight, weight_scale, weight_zero_point = grouped.unpack()
octavo.linear(np.ones(16, np.float32), grouped, quantized="s16")
octavo.float_linear(x, octavo.pack(x), out_dtype="f16")
octavo.embedding([1, 0], np.ones((3, 4), np.uint8), 0.1, zero_point=8, q_dtype="u4")
names: list[str] = octavo.targets()
try:
    octavo.quantize(x, 0.0)
except octavo.Error as e:
    code: octavo.ErrorCode = e.code
    argument: str = e.argument
version: str = octavo.__version__
if octavo.cuda.is_available():
    there: octavo.cuda.DeviceArray = octavo.cuda.asarray(x, device=0)
    octavo.quantize(there, 0.1, stream=octavo.Stream.cuda(device=0))
    sizes: tuple[int, ...] = there.shape
    there.numpy().sum()
    place: str = packed.to("cuda:0").device
    for device in octavo.cuda.devices():
        major, minor = device.capability
    octavo.cuda.synchronize()
seen = octavo.Statistics(sample_rows=3)
seen.update("layer", x)
layer = seen.layer("layer")
if layer is not None:
    print(layer["absmax"].max())
"""
WRONG = [
    'octavo.quantize(x, 0.1, dtype="s9")',
    'octavo.quantize_dynamic(x, scope="row")',
    "octavo.linear(x)",
    'octavo.linear(x, x, quantized="s4")',
    'octavo.float_linear(x, x, out_dtype="f64")',
    'octavo.embedding(1, x, out_dtype="f64")',
    'octavo.pack(x, q_dtype="s16")',
    'octavo.Stream(threads="2")',
    "octavo.pack(x).colour",
    'octavo.cuda.asarray(x, device="0")',
    "octavo.cuda.asarray(x).stride",
    "octavo.Stream.cuda(1, 2, 3)",
    "octavo.nonsense",
]


def check(tmp_path, program):
    file = tmp_path / "program.py"
    file.write_text(HEAD + program)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", file],
        env={"MYPYPATH": str(Path(octavo.__file__).parents[1]), "PATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout


def test_programs(tmp_path):
    assert "Success" in check(tmp_path, RIGHT)
    found = check(tmp_path, "\n".join(WRONG))
    lines = {
        int(line.split(":")[1]) for line in found.splitlines() if line.startswith("program.py")
    }
    first = HEAD.count("\n") + 1
    assert lines == set(range(first, first + len(WRONG))), found
