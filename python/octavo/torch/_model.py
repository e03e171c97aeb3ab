"""All linear layers of a model, quantized in place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

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
    weight_of,
)
from ._modules import DynamicScheme, QuantizedLinear, SmoothQuantLinear
from ._names import Patterns
from ._report import LayerReport, ModelReport, float_shares, loose_weights
from ._schemes import DYNAMIC, SCHEMES, STATIC, check_group_size, check_mode, check_scheme
from ._smooth import scales_of

ModelScheme = Literal[
    "w8a8-dynamic", "w8a8-static", "w8a16", "w4a8-group", "w4a16-group", "dynamic", "static"
]
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
        _, smoothing = scales_of(weights, absmax, seen["sample"], alpha, STATIC)
    scale = _core.static_scale(absmax, smoothing)
    return SmoothQuantLinear.from_float(module, scale, smoothing=smoothing)


def _why_not(name: str, modules: dict[str, torch.nn.Module], patterns: Patterns) -> str:
    """Why a layer stays as it is, whatever the scheme; empty if it need not."""
    if (pattern := patterns.find(name)) is not None:
        return f"ignored by '{pattern}'"
    module = modules[name]
    parent = modules.get(name.rpartition(".")[0]) if name else None
    if not is_plain(module):
        return f"its class {type(module).__name__} may compute something else"
    if isinstance(parent, torch.nn.MultiheadAttention):
        return "attention reads its weight directly"
    if not module.weight.is_floating_point():
        return f"its weights are {module.weight.dtype}"
    if not name:
        return "the model itself is a linear layer: make one with from_float"
    return ""


# The first names that the two had.
ALIASES = {"dynamic": DYNAMIC, "static": STATIC}
NAMES = (DYNAMIC, STATIC, *(name for name in SCHEMES if name != DYNAMIC))


def _check(scheme: str, mode: str, statistics: object, alpha: object) -> str:
    """The scheme by its name."""
    check_scheme(scheme, (*NAMES, *ALIASES))
    name = ALIASES.get(scheme, scheme)
    check_mode(mode, name)
    if name == STATIC and statistics is None:
        raise invalid("statistics", f"expected those of calibrate for scheme {scheme!r}, got None")
    if name != STATIC and alpha is not None:
        raise invalid(
            "alpha", f"expected None for scheme {scheme!r}, got {alpha!r}; smooth_ smooths for it"
        )
    return name


# ---- groups


def _left_by(weights: Iterable[torch.Tensor], group_size: int) -> int:
    """How many of the weights these groups leave float: rows of which they are no part."""
    return sum(w.numel() for w in weights if w.shape[1] % group_size != 0)


def _best_group_size(weights: list[torch.Tensor]) -> int:
    """The largest of the usual ones that leaves the fewest weights float."""
    return min((128, 64, 32, 16), key=lambda size: _left_by(weights, size))


def _remedy(weights: list[torch.Tensor], group_size: int) -> str:
    """What would fit, where these groups leave weights float."""
    left, best = _left_by(weights, group_size), _best_group_size(weights)
    now = _left_by(weights, best)
    if now >= left:
        return 'group_size="channel" would fit all layers'
    return f"group_size={best} would fit {'more' if now else 'all'} layers"


# ---- the model


def quantize_model_(
    model: torch.nn.Module,
    *,
    scheme: ModelScheme = "dynamic",
    statistics: _core.Statistics | str | os.PathLike[str] | None = None,
    alpha: float | str | None = None,
    ignore: Iterable[str] | None = HEAD,
    mode: Mode = "symmetric",
    group_size: int | Literal["auto", "channel"] | None = None,
) -> ModelReport:
    """Replaces the linear layers of a model by quantized ones, in place, and says what it did:
    which weights stay float, and why, those that no linear layer holds among them.

    scheme, as the offline command calls them: "w8a8-dynamic" ("dynamic" for short), "w8a16",
    "w4a8-group" and "w4a16-group" make a `QuantizedLinear`, "w8a8-static" ("static") makes a
    `SmoothQuantLinear`, which needs the statistics of `calibrate`, or their file.

    group_size, for weights of 4 bits: how many input channels share a scale, 128 by default. It is
    a multiple of 4; "auto", the largest of 128, 64, 32 and 16 that leaves the fewest weights float;
    or "channel", one scale per output channel. A layer whose in_features is no multiple of it stays
    float, and the last line of the report says so.

    alpha, for "w8a8-static": smooths each layer by itself, with 0 to 1 or "auto" as in `smooth_`;
    no norm has to be named, for the input is divided as it is quantized. ignore: names of layers
    that stay float, with * and ?, or `re:` and a regular expression; the default keeps the head of
    a language model. mode: of rows of 8 bits, for "w8a8-dynamic" and "w4a8-group".

    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> report = octavo.torch.quantize_model_(model, scheme="w4a8-group", group_size=32)
    >>> report.quantized, str(report.layers[1]).split("kept: ")[1]
    (['0'], 'in = 8 is no multiple of 32')
    """
    check_model(model)
    scheme_name = _check(scheme, mode, statistics, alpha)
    groups = check_group_size(group_size, scheme_name, "auto", "channel")
    known = statistics_of(statistics) if scheme_name == STATIC else None
    patterns = Patterns(ignore, optional=HEAD)
    modules = dict(model.named_modules(remove_duplicate=False))
    linears = {name: module for name, module in modules.items() if is_linear(module)}
    reasons = {name: _why_not(name, modules, patterns) for name in linears}
    names: dict[int, list[str]] = {}
    wanted: dict[int, torch.Tensor] = {}
    for name, module in linears.items():
        names.setdefault(id(module), []).append(name)
        if not reasons[name]:
            wanted[id(module)] = weight_of(module)
    if groups == "auto":
        groups = _best_group_size(list(wanted.values()))
    report = ModelReport()
    planned: list[tuple[str, torch.nn.Module, Seen | None]] = []
    for name, module in linears.items():
        rows, columns = weight_of(module).shape
        reason, seen = reasons[name], None
        if not reason and isinstance(groups, int) and columns % groups != 0:
            reason = f"in = {columns} is no multiple of {groups}"
            report.remedy = _remedy(list(wanted.values()), groups)
        if not reason and known is not None:
            seen = _seen(known, names[id(module)])
            if seen is None:
                reason = "no statistics of its input"
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
            + "".join(f"\n  {line}" for line in (*report.layers, report.remedy) if line),
        )

    def make(module: torch.nn.Module, seen: Seen | None) -> torch.nn.Module:
        if seen is not None:
            return _static(module, seen, alpha)
        return QuantizedLinear.from_float(
            module, mode=mode, scheme=cast(DynamicScheme, scheme_name), group_size=groups
        )

    _replace(modules, planned, make)
    return report


def _replace(
    modules: dict[str, torch.nn.Module],
    planned: list[tuple[str, torch.nn.Module, Seen | None]],
    make: Callable[[torch.nn.Module, Seen | None], torch.nn.Module],
) -> None:
    """All are made before the first is replaced, so that a refusal leaves the model whole."""
    made: dict[int, torch.nn.Module] = {}
    for _, module, seen in planned:
        if id(module) not in made:
            made[id(module)] = make(module, seen).train(module.training)
    above = set()
    for name, module, _ in planned:
        parent, _, last = name.rpartition(".")
        setattr(modules[parent], last, made[id(module)])
        above |= {name[:i] for i, c in enumerate(name) if c == "."} | {""}
    bypass_fast_paths(modules[name] for name in above)
