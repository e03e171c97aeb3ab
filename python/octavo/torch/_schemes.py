"""The schemes of the offline command: what becomes of a layer's weights, and what of its input."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Literal, NamedTuple

import torch

from .. import _core, _functions
from ._layers import invalid, unsupported


class Scheme(NamedTuple):
    """Of a layer whose input is quantized row by row."""

    weight: Literal["s8", "s4"]
    input: Literal["s16"] | None  # none: 8 bits, s8 or u8 as the mode says

    @property
    def in_groups(self) -> bool:
        return self.weight == "s4"


DYNAMIC, STATIC = "w8a8-dynamic", "w8a8-static"
SCHEMES = {
    DYNAMIC: Scheme("s8", None),
    "w8a16": Scheme("s8", "s16"),
    "w4a8-group": Scheme("s4", None),
    "w4a16-group": Scheme("s4", "s16"),
}
GROUP_SIZE = 128  # where none is named
STORED = {torch.float16: "f16", torch.bfloat16: "bf16"}  # of weights whose scales are as short


def check_scheme(scheme: Any, names: Sequence[str]) -> None:
    if not isinstance(scheme, str) or scheme not in names:
        *first, last = (repr(name) for name in names)
        raise unsupported("scheme", f"expected {', '.join(first)} or {last}, got {scheme!r}")


def check_mode(mode: Any, scheme: str) -> None:
    """Only rows of 8 bits whose range is found while running may have a zero point."""
    if mode not in ("symmetric", "asymmetric"):
        raise unsupported("mode", f"expected 'symmetric' or 'asymmetric', got {mode!r}")
    dynamic = SCHEMES.get(scheme)
    if mode != "symmetric" and (dynamic is None or dynamic.input is not None):
        raise unsupported("mode", f"expected 'symmetric' for scheme {scheme!r}, got {mode!r}")


def check_group_size(group_size: Any, scheme: str, *words: str) -> Any:
    """A number, one of the words, or None for schemes without groups. `words`: those that stand
    for a size."""
    if scheme not in SCHEMES or not SCHEMES[scheme].in_groups:
        if group_size is not None:
            raise invalid(
                "group_size",
                f"expected None for scheme {scheme!r}, which has no groups, got {group_size!r}",
            )
        return None
    if group_size is None:
        return GROUP_SIZE
    if isinstance(group_size, str) and group_size in words:
        return group_size
    if isinstance(group_size, Integral) and group_size > 0 and group_size % 4 == 0:
        return int(group_size)
    *first, last = "a multiple of 4 above 0", *(repr(word) for word in words)
    raise invalid("group_size", f"expected {', '.join(first)} or {last}, got {group_size!r}")


def quantize_weight(
    weight: torch.Tensor, scheme: str, group_size: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The integers and scales that the command would write; those of s4 two to a byte. The scales
    of w8a8 are f32 (f64 of f64 weights), others have the type of the weight."""
    integer = SCHEMES[scheme].weight if scheme in SCHEMES else "s8"
    if group_size is None:
        q, scale, _ = _functions.quantize_dynamic(weight, dtype=integer)
    else:
        q, scale, _ = _functions.quantize_dynamic(
            weight, scope="group", group_size=group_size, dtype=integer
        )
    if scheme in (DYNAMIC, STATIC) or weight.dtype not in STORED:
        return q, scale
    scale = _core.stored_scales(scale, STORED[weight.dtype])
    axis: Any = "token" if group_size is None else None
    q = _functions.quantize(weight, scale, dtype=integer, axis=axis, group_size=group_size)
    return q, scale
