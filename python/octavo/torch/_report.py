"""What became of a model's weights: of its linear layers, and of what no linear layer holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch

from ._layers import is_linear


@dataclass
class LayerReport:
    """What became of a layer, or of a weight that no linear layer holds."""

    name: str
    shape: tuple[int, ...]
    quantized: bool
    reason: str = ""

    def __str__(self) -> str:
        what = "quantized" if self.quantized else f"kept: {self.reason}"
        *first, last = self.shape
        return f"{self.name:<50} {' x '.join(map(str, first)):>6} x {last:<6} {what}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.0005 else "<0.1 %"


@dataclass
class ModelReport:
    """What `quantize_model_` did, layer by layer; prints as a table.

    `float_shares`: which share of the model's weights (its float parameters of two and more
    dimensions) stays float, by reason, the largest first. `remedy`: which size of
    groups would fit layers that stay float because of it.
    """

    layers: list[LayerReport] = field(default_factory=list)
    float_shares: dict[str, float] = field(default_factory=dict)
    remedy: str = ""

    @property
    def quantized(self) -> list[str]:
        return [layer.name for layer in self.layers if layer.quantized]

    @property
    def kept(self) -> list[str]:
        return [layer.name for layer in self.layers if not layer.quantized]

    @property
    def float_share(self) -> float:
        """Which share of the model's weights stays float."""
        return sum(self.float_shares.values())

    def __str__(self) -> str:
        lines = [str(layer) for layer in self.layers]
        lines.append(f"{len(self.quantized)} layers quantized, {len(self.kept)} kept")
        if self.float_shares:
            reasons = "; ".join(f"{_percent(s)} {why}" for why, s in self.float_shares.items())
            if self.remedy:
                reasons += f"; {self.remedy}"
            lines.append(f"{_percent(self.float_share)} of the weights STAY FLOAT: {reasons}")
        return "\n".join(lines)


def _kind(module: torch.nn.Module, weight: torch.nn.Parameter) -> str:
    """What is left float by intent; empty for any other weight. Of more than two dimensions only
    convolutions have some that are no layers in one: names of classes are not believed there."""
    name = type(module).__name__
    if isinstance(module, torch.nn.modules.conv._ConvNd):
        return "in convolutions"
    if weight.ndim > 2:
        return ""
    if "embed" in name.lower():
        return "in embeddings"
    if name.startswith("Conv"):
        return "in convolutions"
    return "in norms" if "norm" in name.lower() else ""


def _weights(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    for name, parameter in module.named_parameters(recurse=False):
        if parameter.ndim >= 2 and parameter.is_floating_point():
            yield name, parameter


def loose_weights(
    modules: Mapping[str, torch.nn.Module], ignored: Callable[[str], str | None]
) -> list[LayerReport]:
    """The weights that no linear layer holds, such as the experts of a mixture in one parameter:
    nothing quantizes them. Embeddings, convolutions and norms are not meant to be."""
    found: dict[int, LayerReport] = {}
    for path, module in modules.items():
        if is_linear(module):
            continue
        for last, weight in _weights(module):
            if id(weight) not in found and not _kind(module, weight):
                name = f"{path}.{last}" if path else last
                pattern = ignored(name)
                reason = (
                    f"in {type(module).__name__}, which is no linear layer"
                    if pattern is None
                    else f"ignored by '{pattern}'"
                )
                found[id(weight)] = LayerReport(name, tuple(weight.shape), False, reason)
    return list(found.values())


def float_shares(
    modules: Mapping[str, torch.nn.Module], layers: list[LayerReport]
) -> dict[str, float]:
    """By reason, of all weights; one that modules share counts once, and as quantized if it is
    quantized in one of them."""
    reports = {layer.name: layer for layer in layers}
    sizes: dict[int, int] = {}
    reasons: dict[int, str] = {}
    quantized: set[int] = set()
    for path, module in modules.items():
        for last, weight in _weights(module):
            sizes[id(weight)] = weight.numel()
            report = reports.get(path if is_linear(module) else f"{path}.{last}".lstrip("."))
            if report is not None and report.quantized:
                quantized.add(id(weight))
            elif reason := _kind(module, weight) if report is None else report.reason:
                reasons.setdefault(id(weight), reason)
    total = sum(sizes.values())
    shares: dict[str, float] = {}
    for weight, reason in reasons.items():
        if weight not in quantized and sizes[weight]:
            shares[reason] = shares.get(reason, 0.0) + sizes[weight] / total
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
