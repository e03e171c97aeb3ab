"""All linear layers of a model, quantized in place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch

from .. import _core
from .._error import Error, ErrorCode
from ._modules import QuantizedLinear, SmoothQuantLinear
from ._names import Patterns
from ._smooth import scales_of


@dataclass
class LayerReport:
    """What became of a layer."""

    name: str
    shape: tuple[int, int]
    quantized: bool
    reason: str = ""

    def __str__(self) -> str:
        what = "quantized" if self.quantized else f"kept: {self.reason}"
        return f"{self.name:<50} {self.shape[0]:>6} x {self.shape[1]:<6} {what}"


@dataclass
class ModelReport:
    """What `quantize_model_` did, layer by layer; prints as a table."""

    layers: list[LayerReport] = field(default_factory=list)

    @property
    def quantized(self) -> list[str]:
        return [layer.name for layer in self.layers if layer.quantized]

    @property
    def kept(self) -> list[str]:
        return [layer.name for layer in self.layers if not layer.quantized]

    def __str__(self) -> str:
        lines = [str(layer) for layer in self.layers]
        lines.append(f"{len(self.quantized)} layers quantized, {len(self.kept)} kept")
        return "\n".join(lines)


def _static(
    module: torch.nn.Linear, seen: dict[str, np.ndarray], alpha: float | str | None
) -> SmoothQuantLinear:
    """With the scale that the largest input seen calls for; smoothed if alpha is given."""
    absmax, smoothing = seen["absmax"], None
    if alpha is not None:
        _, smoothing = scales_of(
            [module.weight.detach()], absmax, seen["sample"], alpha, "w8a8-static"
        )
        absmax = absmax / smoothing
    largest = float(absmax.max(initial=0.0))
    return SmoothQuantLinear.from_float(
        module, act_scale=largest / 127 if largest > 0 else 1.0, smoothing=smoothing
    )


def _why_not(name: str, module: torch.nn.Linear, parent: torch.nn.Module | None) -> str:
    if type(module) is not torch.nn.Linear:
        return f"its class {type(module).__name__} may compute something else"
    if isinstance(parent, torch.nn.MultiheadAttention):
        return "attention reads its weight directly"
    if not name:
        return "the model itself is a linear layer: make one with from_float"
    if not module.weight.is_floating_point():
        return f"its weights are {module.weight.dtype}"
    return ""


def _check_options(
    scheme: str, statistics: _core.Statistics | None, alpha: float | str | None
) -> None:
    if scheme not in ("dynamic", "static"):
        raise Error(
            ErrorCode.unsupported,
            f"scheme: expected 'dynamic' or 'static', got {scheme!r}",
            "scheme",
        )
    if scheme == "static" and statistics is None:
        raise Error(
            ErrorCode.invalid_problem,
            "statistics: expected those of calibrate for scheme 'static', got None",
            "statistics",
        )
    if scheme == "dynamic" and alpha is not None:
        raise Error(
            ErrorCode.invalid_problem,
            f"alpha: expected None for scheme 'dynamic', got {alpha!r}; smooth_ smooths for it",
            "alpha",
        )


def quantize_model_(
    model: torch.nn.Module,
    *,
    scheme: str = "dynamic",
    statistics: _core.Statistics | None = None,
    alpha: float | str | None = None,
    ignore: Iterable[str] = ("*lm_head",),
    mode: str = "symmetric",
) -> ModelReport:
    """Replaces the linear layers of a model by quantized ones, in place, and says what it did.

    scheme: "dynamic" (`QuantizedLinear`) or "static" (`SmoothQuantLinear`, which needs the
    statistics of `calibrate`). alpha, for "static": smooths each layer by itself, with 0 to 1 or
    "auto" as in `smooth_`; no norm has to be named, for the input is divided as it is quantized.
    ignore: names of layers that stay float, with * and ?, or `re:` and a regular expression; the
    default keeps the head of a language model.

    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> print(octavo.torch.quantize_model_(model, ignore=["2"]).quantized)
    ['0']
    """
    _check_options(scheme, statistics, alpha)
    patterns = Patterns(ignore)
    modules = dict(model.named_modules(remove_duplicate=False))
    first_names = {id(module): name for name, module in model.named_modules()}
    report = ModelReport()
    planned: list[tuple[str, torch.nn.Linear, dict[str, np.ndarray] | None]] = []
    for name, module in modules.items():
        if not isinstance(module, torch.nn.Linear):
            continue
        shape = (module.out_features, module.in_features)
        parent = modules.get(name.rpartition(".")[0]) if name else None
        reason = _why_not(name, module, parent)
        pattern = patterns.find(name)
        if pattern is not None:
            reason = f"ignored by '{pattern}'"
        seen = None
        if not reason and scheme == "static":
            seen = statistics.layer(first_names[id(module)])  # (a shared layer has one entry)
            if seen is None:
                reason = "no statistics of its input"
        report.layers.append(LayerReport(name, shape, not reason, reason))
        if not reason:
            planned.append((name, module, seen))
    if tuple(patterns.patterns) != ("*lm_head",):
        patterns.check_all_used()
    if not planned:
        raise Error(
            ErrorCode.invalid_problem,
            "model: expected linear layers to quantize, got none"
            + "".join(f"\n  {layer}" for layer in report.layers),
            "model",
        )
    # All are made before the first is replaced: a refusal leaves the model as it was.
    made: dict[int, torch.nn.Module] = {}
    for _, module, seen in planned:
        if id(module) not in made:
            made[id(module)] = (
                QuantizedLinear.from_float(module, mode=mode)
                if seen is None
                else _static(module, seen, alpha)
            ).train(module.training)
    for name, module, _ in planned:
        parent_name, _, last = name.rpartition(".")
        setattr(modules[parent_name], last, made[id(module)])
    return report
