"""Statistics of the inputs of a model's linear layers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from .. import _core
from ._layers import bypass_fast_paths, check_model, invalid, is_linear, unsupported
from ._names import Patterns
from ._progress import progress


def _call(model: torch.nn.Module, batch: Any) -> None:
    if isinstance(batch, Mapping):
        model(**batch)
    elif isinstance(batch, (tuple, list)):
        model(*batch)
    else:
        model(batch)


def _watch(module: torch.nn.Module, see: Callable[[Any], None]) -> Any:
    """Calls `see` with each input of a layer; returns the handle that ends it."""

    def hook(
        _: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any] | None = None
    ) -> None:
        for given in (*inputs, *(named or {}).values()):
            see(given)
            break  # a linear layer has one input

    try:
        return module.register_forward_pre_hook(hook, with_kwargs=True)
    except TypeError:  # before PyTorch 2.0, which shows no named inputs to hooks
        return module.register_forward_pre_hook(hook)


@contextmanager
def _watched(
    model: torch.nn.Module, layers: Mapping[str, torch.nn.Module], statistics: _core.Statistics
) -> Iterator[None]:
    """The model in eval mode with all layers watched; afterwards as it was, whatever happens."""

    def seer(name: str) -> Callable[[Any], None]:
        return lambda x: statistics.update(
            name, x.detach().cpu() if isinstance(x, torch.Tensor) else x
        )

    modes = [(module, module.training) for module in model.modules()]
    undo = bypass_fast_paths(model.modules())
    handles = [_watch(module, seer(name)) for name, module in layers.items()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for handle in handles:
            handle.remove()
        undo()
        for module, training in modes:
            module.training = training


def calibrate(
    model: torch.nn.Module,
    batches: Iterable[Any],
    path: str | os.PathLike[str] | None = None,
    *,
    sample_rows: int = 64,
    histogram: bool = True,
    histogram_bits: int = 7,
    ignore: Iterable[str] = (),
    forward: Callable[[torch.nn.Module, Any], Any] | None = None,
    show_progress: bool = True,
) -> _core.Statistics:
    """Runs batches through the model and gathers statistics of the inputs of its linear layers, in
    fixed memory; the same in any order of batches. `path`: the file for the offline command.

    A batch is what the model is called with: a tensor, a tuple of arguments or a mapping of named
    ones; or `forward(model, batch)` makes the call. The histogram of a layer has 2^(9 + bits) bins
    of 8 bytes, with 0 to 7 `histogram_bits`; `histogram=False` keeps none.

    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    >>> found = octavo.torch.calibrate(model, [torch.tensor([[1.0, -3.0]])], show_progress=False)
    >>> found.layer("0")["absmax"]
    array([1., 3.], dtype=float32)
    """
    check_model(model)
    if not isinstance(batches, Iterable):
        raise unsupported(
            "batches", f"expected something to iterate over, got {type(batches).__name__}"
        )
    statistics = _core.Statistics(
        sample_rows=sample_rows, histogram_bits=histogram_bits if histogram else None
    )
    patterns = Patterns(ignore)
    layers = {
        name: module
        for name, module in model.named_modules()
        if is_linear(module) and patterns.find(name) is None
    }
    patterns.check_all_used()
    if not layers:
        raise invalid("model", "expected linear layers, got none")
    count = 0
    with _watched(model, layers, statistics):
        for batch in progress(batches, "calibrating, batches", show_progress):
            (forward or _call)(model, batch)
            count += 1
    if count == 0:
        raise invalid("batches", "expected at least one, got none")
    if path is not None:
        statistics.write(path)
    return statistics
