"""What counts as a linear layer, where its weight is, and who reads it behind the layer's back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from .. import _core
from .._error import Error, ErrorCode


def invalid(argument: str, message: str) -> Error:
    return Error(ErrorCode.invalid_problem, f"{argument}: {message}", argument)


def unsupported(argument: str, message: str) -> Error:
    return Error(ErrorCode.unsupported, f"{argument}: {message}", argument)


def check_model(model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise unsupported("model", f"expected a torch.nn.Module, got {type(model).__name__}")


def statistics_of(given: Any) -> _core.Statistics:
    """Those that `calibrate` returned, or those of a file that it wrote."""
    if isinstance(given, _core.Statistics):
        return given
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        return _core.Statistics.read(given)
    raise unsupported(
        "statistics", f"expected those of calibrate or their file, got {type(given).__name__}"
    )


def _is_conv1d(module: torch.nn.Module) -> bool:
    """The linear layer of GPT-2 in transformers, which holds its weight as [in, out]."""
    weight = getattr(module, "weight", None)
    return (
        type(module).__name__ == "Conv1D"
        and hasattr(module, "nf")
        and isinstance(weight, torch.Tensor)
        and weight.ndim == 2
    )


def is_linear(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.Linear) or _is_conv1d(module)


def is_plain(module: torch.nn.Module) -> bool:
    """Whether it computes x @ weight.T + bias and nothing else, as far as its class says."""
    return type(module) is torch.nn.Linear or _is_conv1d(module)


def weight_of(module: torch.nn.Module) -> torch.Tensor:
    """[out, in], a view."""
    weight = module.weight.detach()
    return weight.t() if _is_conv1d(module) else weight


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor on a GPU; any other as it is."""
    return tensor.cpu() if tensor.is_cuda else tensor


def bypass_fast_paths(modules: Iterable[torch.nn.Module]) -> Callable[[], None]:
    """Lets PyTorch's own transformer layers call their linear layers. In eval mode they hand the
    weights to a fused kernel instead. Returns what undoes it."""
    before: list[tuple[torch.nn.Module, str, Any]] = []
    switches = {
        torch.nn.TransformerEncoderLayer: ("activation_relu_or_gelu",),
        torch.nn.TransformerEncoder: ("use_nested_tensor", "enable_nested_tensor"),
    }
    for module in modules:
        for cls, names in switches.items():
            if isinstance(module, cls):
                before += [(module, n, getattr(module, n)) for n in names if hasattr(module, n)]
    for module, name, value in before:
        setattr(module, name, type(value)(0))

    def undo() -> None:
        for module, name, value in before:
            setattr(module, name, value)

    return undo
