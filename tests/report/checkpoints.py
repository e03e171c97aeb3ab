"""Llamas of random numbers: names that try to break out of a page, and many layers."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

HOSTILE = ("<script>alert(1)</script>", "\"><img src=x onerror='alert(2)'>", "&lt;b&gt; ]]> -->")
SIZE, WIDE = 16, 32
LAYERS = {
    "self_attn.q_proj": (SIZE, SIZE),
    "self_attn.k_proj": (SIZE, SIZE),
    "self_attn.v_proj": (SIZE, SIZE),
    "self_attn.o_proj": (SIZE, SIZE),
    "mlp.gate_proj": (WIDE, SIZE),
    "mlp.up_proj": (WIDE, SIZE),
    "mlp.down_proj": (SIZE, WIDE),
}
Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]


def write(path: Path, tensors: Tensors, metadata: dict[str, str]) -> None:
    """A safetensors file: the length of a JSON header, the header, the bytes."""
    header: dict[str, object] = {"__metadata__": metadata}
    at = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (at, at + len(data))}
        at += len(data)
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(data for _, _, data in tensors.values())


def floats(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def make(directory: Path, prefixes: list[str], blocks: int) -> tuple[Path, Path]:
    """A checkpoint of `blocks` blocks below each prefix, and its statistics."""
    rng = random.Random(1)
    weights: Tensors = {}
    stats: Tensors = {}
    for prefix in prefixes:
        for block in range(blocks):
            base = f"{prefix}.layers.{block}"
            for norm in ("input_layernorm", "post_attention_layernorm"):
                weights[f"{base}.{norm}.weight"] = ("F32", (SIZE,), floats([1.0] * SIZE))
            spread = {k: [rng.uniform(0.5, 2) for _ in range(k)] for k in (SIZE, WIDE)}
            for values in spread.values():
                values[3] *= 30  # an outlier
            for name, (n, k) in LAYERS.items():
                values = [rng.gauss(0, 1) for _ in range(n * k)]
                weights[f"{base}.{name}.weight"] = ("F32", (n, k), floats(values))
                high = floats(spread[k])
                low = floats([-v for v in spread[k]])
                rows = [v * rng.uniform(-1, 1) for _ in range(4) for v in spread[k]]
                stats |= {
                    f"{base}.{name}.input_absmax": ("F32", (k,), high),
                    f"{base}.{name}.input_min": ("F32", (k,), low),
                    f"{base}.{name}.input_max": ("F32", (k,), high),
                    f"{base}.{name}.count": ("I64", (1,), struct.pack("<q", 4)),
                    f"{base}.{name}.input_sample": ("F32", (4, k), floats(rows)),
                }
    model, found = directory / "model", directory / "stats.safetensors"
    write(model / "model.safetensors", weights, {"format": "pt"})
    (model / "config.json").write_text(json.dumps({"model_type": "llama"}))
    write(found, stats, {"octavo.stats": "1", "octavo.stats.sample_rows": "4"})
    return model, found


def hostile(directory: Path) -> tuple[Path, Path]:
    return make(directory, list(HOSTILE), 1)


def large(directory: Path) -> tuple[Path, Path]:
    return make(directory, ["model"], 100)
