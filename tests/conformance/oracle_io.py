"""The oracle on disk: `index.json` with one entry per case, and `cases.bin` with every tensor.

A tensor is raw and little-endian; the index names its element type, byte offset and element count.
Equal tensors are stored once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

ALIGNMENT = 64
NAMES = {
    **{"float32": "f32", "float64": "f64", "float16": "f16"},
    **{"int8": "s8", "uint8": "u8", "int32": "s32"},
}


class Oracle:
    """Collects cases, then writes them."""

    def __init__(self, about: dict[str, Any]) -> None:
        self._about = about
        self._cases: list[dict[str, Any]] = []
        self._blob = bytearray()
        self._stored: dict[tuple[str, bytes], dict[str, Any]] = {}

    def tensor(self, values: np.ndarray, dtype: str | None = None) -> dict[str, Any]:
        """Stores `values`; `dtype` names what numpy cannot (bf16, held as its bits)."""
        values = np.ascontiguousarray(values)
        data = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        key = (dtype or NAMES[values.dtype.name], data)
        if key not in self._stored:
            self._blob += bytes(-len(self._blob) % ALIGNMENT)
            self._stored[key] = {"dtype": key[0], "offset": len(self._blob), "count": values.size}
            self._blob += data
        return self._stored[key]

    def add(self, group: str, name: str, **fields: Any) -> None:
        """One case. Fields that are None are left out; arrays become tensors."""
        case: dict[str, Any] = {"group": group, "name": name}
        for key, value in fields.items():
            if isinstance(value, np.ndarray):
                value = self.tensor(value)
            if value is not None:
                case[key] = value
        self._cases.append(case)

    def write(self, out: Path) -> dict[str, int]:
        """Writes both files and returns the number of cases per group."""
        counts: dict[str, int] = {}
        for case in self._cases:
            counts[case["group"]] = counts.get(case["group"], 0) + 1
        index = {
            **self._about,
            "replaced": sum(case.get("replaced", 0) for case in self._cases),
            "counts": counts,
            "blob_bytes": len(self._blob),
        }
        lines = ",\n".join(json.dumps(case) for case in self._cases)
        head = json.dumps(index, indent=1).removesuffix("\n}")
        out.mkdir(parents=True, exist_ok=True)
        index_path = out / "index.json"
        index_path.unlink(missing_ok=True)  # never a new blob under an old index
        (out / "cases.bin").write_bytes(self._blob)
        index_path.write_text(f'{head},\n "cases": [\n{lines}\n]}}\n', encoding="utf-8")
        return counts
