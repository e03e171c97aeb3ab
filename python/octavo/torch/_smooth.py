"""SmoothQuant on a model in memory, by the code of the offline command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from .. import _core
from .._error import Error, ErrorCode


@dataclass
class PairReport:
    """A norm and the layers that read it, smoothed with this alpha."""

    norm: str
    linears: list[str]
    alpha: float


def _invalid(argument: str, message: str) -> Error:
    return Error(ErrorCode.invalid_problem, f"{argument}: {message}", argument)


def scales_of(
    weights: list[torch.Tensor],
    absmax: np.ndarray,
    sample: np.ndarray,
    alpha: float | str,
    scheme: str,
) -> tuple[float, np.ndarray]:
    """The alpha, searched for if it is "auto", and the smoothing scales of layers with one input.
    scheme: how the layers will be quantized, as the command calls it."""
    chosen = alpha
    if alpha == "auto":
        chosen, _, _ = _core.search_alpha(weights, absmax, sample, scheme)
    elif isinstance(alpha, str):
        raise _invalid("alpha", f"expected 0 to 1 or 'auto', got '{alpha}'")
    return float(chosen), _core.smoothing_scales(weights, absmax, chosen)


def smooth_(
    model: torch.nn.Module,
    statistics: _core.Statistics,
    *,
    alpha: float | str = 0.5,
    pairs: Iterable[tuple[str, Iterable[str]]] | None = None,
) -> list[PairReport]:
    """Moves outliers of activations into the weights, in place; the float model computes the same.

    alpha: 0 to 1, or "auto": for each pair the one with the least error of the layers' outputs on
    the sampled rows of the statistics. pairs: (norm, linears) by their names in the model; by
    default those known for its architecture.

    >>> model = torch.nn.Sequential(torch.nn.LayerNorm(2), torch.nn.Linear(2, 2))
    >>> found = octavo.torch.calibrate(model, [torch.randn(8, 2)], show_progress=False)
    >>> octavo.torch.smooth_(model, found, pairs=[("0", ["1"])])
    [PairReport(norm='0', linears=['1'], alpha=0.5)]
    """
    if pairs is None:
        config = getattr(model, "config", None)
        found = _core.smoothing_pairs(
            list(model.state_dict().keys()), str(getattr(config, "model_type", "") or "")
        )
        if not found["pairs"]:
            raise _invalid(
                "model", f"expected an architecture whose pairs are known, got {found['note']}; "
                "name the pairs"
            )  # fmt: skip
        pairs = found["pairs"]
    modules = dict(model.named_modules())
    planned = []
    for norm_name, linear_names in pairs:
        linears = list(linear_names)
        for name in (norm_name, *linears):
            if name not in modules:
                raise _invalid("pairs", f"expected modules of the model, got '{name}'")
        known = [statistics.layer(name) for name in linears]
        if any(layer is None for layer in known):
            missing = linears[known.index(None)]
            raise _invalid("statistics", f"expected those of all layers, got none of '{missing}'")
        absmax = np.maximum.reduce([layer["absmax"] for layer in known])
        weights = [modules[name].weight.detach() for name in linears]
        chosen, scales = scales_of(weights, absmax, known[0]["sample"], alpha, "w8a8-dynamic")
        planned.append((norm_name, linears, weights, scales, chosen))
    report = []
    for norm_name, linears, weights, scales, chosen in planned:
        norm = modules[norm_name]
        bias = getattr(norm, "bias", None)
        _core.smooth(norm.weight.detach(), None if bias is None else bias.detach(), weights, scales)
        report.append(PairReport(norm_name, linears, chosen))
    return report
