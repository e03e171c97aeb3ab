"""SmoothQuant on a model in memory, by the code of the offline command."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import _core
from ._layers import (
    check_model,
    invalid,
    is_linear,
    on_cpu,
    statistics_of,
    unsupported,
    weight_of,
)


@dataclass
class PairReport:
    """A norm and the layers that read it, smoothed with this alpha."""

    norm: str
    linears: list[str]
    alpha: float


def scales_of(
    weights: list[torch.Tensor], absmax: Any, sample: Any, alpha: float | str, scheme: str
) -> tuple[float, Any]:
    """The alpha, searched for if it is "auto", and the smoothing scales of layers with one input.
    scheme: how the layers will be quantized, as the command calls it."""
    if alpha is None or (isinstance(alpha, str) and alpha != "auto"):
        raise invalid("alpha", f"expected 0 to 1 or 'auto', got {alpha!r}")
    chosen = alpha
    weights = [on_cpu(weight) for weight in weights]
    if alpha == "auto":
        chosen, _, _ = _core.search_alpha(weights, absmax, sample, scheme)
    scales = _core.smoothing_scales(weights, absmax, chosen)  # refuses what is no number
    return float(chosen), scales


def _layer(statistics: _core.Statistics, name: str) -> dict[str, Any]:
    layer = statistics.layer(name)
    if layer is None:
        raise invalid("statistics", f"expected those of all layers, got none of '{name}'")
    return layer


def _known_pairs(model: torch.nn.Module) -> list[tuple[str, list[str]]]:
    config = getattr(model, "config", None)
    # As the command reads config.json: where a norm also feeds the residual, nothing can be folded.
    feeds_residual = (
        getattr(config, "do_layer_norm_before", None) is False
        or getattr(config, "apply_residual_connection_post_layernorm", None) is True
    )
    found = _core.smoothing_pairs(
        list(model.state_dict().keys()),
        str(getattr(config, "model_type", "") or ""),
        feeds_residual,
    )
    if not found["pairs"]:
        raise invalid(
            "model",
            f"expected an architecture whose pairs are known: {found['note']}; name the pairs",
        )
    return found["pairs"]


def _given_pairs(pairs: Any) -> list[tuple[str, list[str]]]:
    try:
        listed = [
            (norm, [linears] if isinstance(linears, str) else list(linears))
            for norm, linears in pairs
        ]
    except (TypeError, ValueError):
        listed = []
    if not listed or not all(linears for _, linears in listed):
        raise invalid("pairs", f"expected (norm, [linear, ...]) pairs, got {pairs!r}")
    return listed


def _tensors(
    modules: dict[str, torch.nn.Module], norm_name: str, linears: list[str]
) -> tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
    """The weight and bias of a norm, and the weights of layers; refuses what cannot be smoothed."""
    for name in (norm_name, *linears):
        if name not in modules:
            raise invalid("pairs", f"expected modules of the model, got {name!r}")
    for name in linears:
        if not is_linear(modules[name]):
            kind = type(modules[name]).__name__
            raise unsupported("pairs", f"expected linear layers, got '{name}', a {kind}")
    weights = [weight_of(modules[name]) for name in linears]
    norm = getattr(modules[norm_name], "weight", None)
    channels = weights[0].shape[1]
    if not isinstance(norm, torch.Tensor) or norm.shape != (channels,):
        got = f"shape {tuple(norm.shape)}" if isinstance(norm, torch.Tensor) else "none"
        raise invalid(
            "pairs", f"expected a norm with a weight of shape ({channels},), got {got} in "
            f"'{norm_name}'"
        )  # fmt: skip
    bias = getattr(modules[norm_name], "bias", None)
    return norm.detach(), None if bias is None else bias.detach(), weights


def smooth_(
    model: torch.nn.Module,
    statistics: _core.Statistics | str | os.PathLike[str],
    alpha: float | str = 0.5,
    *,
    pairs: Iterable[tuple[str, Iterable[str]]] | None = None,
) -> list[PairReport]:
    """Moves outliers of activations into the weights, in place; the float model computes the same.

    alpha: 0 to 1, or "auto": for each pair the one with the least error of the layers' outputs on
    the sampled rows of the statistics (of `calibrate`, or their file). pairs: (norm, linears) by
    their names in the model; by default those known for its architecture.

    >>> model = torch.nn.Sequential(torch.nn.LayerNorm(2), torch.nn.Linear(2, 2))
    >>> found = octavo.torch.calibrate(model, [torch.randn(8, 2)], show_progress=False)
    >>> octavo.torch.smooth_(model, found, pairs=[("0", ["1"])])
    [PairReport(norm='0', linears=['1'], alpha=0.5)]
    """
    check_model(model)
    known = statistics_of(statistics)
    modules = dict(model.named_modules(remove_duplicate=False))
    wanted = _known_pairs(model) if pairs is None else _given_pairs(pairs)
    planned: list[tuple[Any, ...]] = []
    report: list[PairReport] = []
    for norm_name, linears in wanted:
        norm, bias, weights = _tensors(modules, norm_name, linears)
        layers = [_layer(known, name) for name in linears]
        absmax = np.maximum.reduce([layer["absmax"] for layer in layers])
        chosen, scales = scales_of(weights, absmax, layers[0]["sample"], alpha, "w8a8-dynamic")
        planned.append((norm, bias, weights, scales))
        report.append(PairReport(norm_name, linears, chosen))
    for norm, bias, weights, scales in planned:
        given = [norm, *([] if bias is None else [bias]), *weights]
        here = {id(tensor): on_cpu(tensor) for tensor in given}
        _core.smooth(
            here[id(norm)],
            None if bias is None else here[id(bias)],
            [here[id(weight)] for weight in weights],
            scales,
        )
        for tensor in given:
            if tensor.is_cuda:
                tensor.copy_(here[id(tensor)])
    return report
