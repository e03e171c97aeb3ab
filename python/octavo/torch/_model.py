"""All linear layers of a model, quantized in place."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

import torch

from .. import _core
from .._functions import Mode
from ._layers import (
    bypass_fast_paths,
    check_model,
    invalid,
    is_linear,
    is_plain,
    statistics_of,
    unsupported,
    weight_of,
)
from ._modules import QuantizedLinear, SmoothQuantLinear
from ._names import Patterns
from ._report import LayerReport, ModelReport, float_shares, loose_weights
from ._smooth import scales_of

Seen = dict[str, Any]  # what a layer saw, of Statistics.layer

HEAD = ("*lm_head",)  # of a language model; others have none


def _seen(statistics: _core.Statistics, names: Iterable[str]) -> Seen | None:
    """By a layer with these names: one that a model uses twice is calibrated under the first."""
    return next((seen for name in names if (seen := statistics.layer(name)) is not None), None)


def _static(module: torch.nn.Module, seen: Seen, alpha: float | str | None) -> SmoothQuantLinear:
    """With the scale that the largest input seen calls for; smoothed if alpha is given."""
    absmax, smoothing = seen["absmax"], None
    if alpha is not None:
        weights = [weight_of(module)]
        _, smoothing = scales_of(weights, absmax, seen["sample"], alpha, "w8a8-static")
    scale = _core.static_scale(absmax, smoothing)
    return SmoothQuantLinear.from_float(module, scale, smoothing=smoothing)


def _why_not(name: str, module: torch.nn.Module, parent: torch.nn.Module | None) -> str:
    """Why a layer stays as it is; empty if it need not."""
    if not is_plain(module):
        return f"its class {type(module).__name__} may compute something else"
    if isinstance(parent, torch.nn.MultiheadAttention):
        return "attention reads its weight directly"
    if not module.weight.is_floating_point():
        return f"its weights are {module.weight.dtype}"
    if not name:
        return "the model itself is a linear layer: make one with from_float"
    return ""


def _check(scheme: str, mode: str, statistics: object, alpha: object) -> None:
    if scheme not in ("dynamic", "static"):
        raise unsupported("scheme", f"expected 'dynamic' or 'static', got {scheme!r}")
    if mode not in ("symmetric", "asymmetric"):
        raise unsupported("mode", f"expected 'symmetric' or 'asymmetric', got {mode!r}")
    if scheme == "static" and mode != "symmetric":
        raise unsupported("mode", "expected 'symmetric' for scheme 'static', got 'asymmetric'")
    if scheme == "static" and statistics is None:
        raise invalid("statistics", "expected those of calibrate for scheme 'static', got None")
    if scheme == "dynamic" and alpha is not None:
        raise invalid(
            "alpha", f"expected None for scheme 'dynamic', got {alpha!r}; smooth_ smooths for it"
        )


def quantize_model_(
    model: torch.nn.Module,
    *,
    scheme: Literal["dynamic", "static"] = "dynamic",
    statistics: _core.Statistics | str | os.PathLike[str] | None = None,
    alpha: float | str | None = None,
    ignore: Iterable[str] | None = HEAD,
    mode: Mode = "symmetric",
) -> ModelReport:
    """Replaces the linear layers of a model by quantized ones, in place, and says what it did:
    which weights stay float, and why, those that no linear layer holds among them.

    scheme: "dynamic" (`QuantizedLinear`) or "static" (`SmoothQuantLinear`, which needs the
    statistics of `calibrate`, or their file). alpha, for "static": smooths each layer by itself,
    with 0 to 1 or "auto" as in `smooth_`; no norm has to be named, for the input is divided as it
    is quantized. ignore: names of layers that stay float, with * and ?, or `re:` and a regular
    expression; the default keeps the head of a language model. mode: of the rows of "dynamic".

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> print(octavo.torch.quantize_model_(model, ignore=["2"]).quantized)
    ['0']
    """
    check_model(model)
    _check(scheme, mode, statistics, alpha)
    known = statistics_of(statistics) if scheme == "static" else None
    patterns = Patterns(ignore, optional=HEAD)
    modules = dict(model.named_modules(remove_duplicate=False))
    names: dict[int, list[str]] = {}
    for name, module in modules.items():
        if is_linear(module):
            names.setdefault(id(module), []).append(name)
    report = ModelReport()
    planned: list[tuple[str, torch.nn.Module, Seen | None]] = []
    for name, module in modules.items():
        if not is_linear(module):
            continue
        parent = modules.get(name.rpartition(".")[0]) if name else None
        reason = _why_not(name, module, parent)
        pattern = patterns.find(name)
        if pattern is not None:
            reason = f"ignored by '{pattern}'"
        seen = None
        if not reason and known is not None:
            seen = _seen(known, names[id(module)])
            if seen is None:
                reason = "no statistics of its input"
        rows, columns = weight_of(module).shape
        report.layers.append(LayerReport(name, (rows, columns), not reason, reason))
        if not reason:
            planned.append((name, module, seen))
    report.layers += loose_weights(modules, patterns.find)
    report.float_shares = float_shares(modules, report.layers)
    patterns.check_all_used()
    if not planned:
        raise invalid(
            "model",
            "expected linear layers to quantize, got none"
            + "".join(f"\n  {layer}" for layer in report.layers),
        )
    _replace(modules, planned, mode, alpha)
    return report


def _replace(
    modules: dict[str, torch.nn.Module],
    planned: list[tuple[str, torch.nn.Module, Seen | None]],
    mode: Mode,
    alpha: float | str | None,
) -> None:
    """All are made before the first is replaced, so that a refusal leaves the model whole."""
    made: dict[int, torch.nn.Module] = {}
    for _, module, seen in planned:
        if id(module) not in made:
            made[id(module)] = (
                QuantizedLinear.from_float(module, mode=mode)
                if seen is None
                else _static(module, seen, alpha)
            ).train(module.training)
    above = set()
    for name, module, _ in planned:
        parent, _, last = name.rpartition(".")
        setattr(modules[parent], last, made[id(module)])
        above |= {name[:i] for i, c in enumerate(name) if c == "."} | {""}
    bypass_fast_paths(modules[name] for name in above)
