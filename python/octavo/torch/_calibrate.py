"""Statistics of the inputs of a model's linear layers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from .. import _core
from .._error import Error, ErrorCode
from ._names import Patterns
from ._progress import progress


def _call(model: torch.nn.Module, batch: Any) -> None:
    if isinstance(batch, Mapping):
        model(**batch)
    elif isinstance(batch, (tuple, list)):
        model(*batch)
    else:
        model(batch)


def calibrate(
    model: torch.nn.Module,
    batches: Iterable[Any],
    *,
    path: str | os.PathLike[str] | None = None,
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
    statistics = _core.Statistics(
        sample_rows=sample_rows, histogram_bits=histogram_bits if histogram else None
    )
    patterns = Patterns(ignore)
    layers = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and patterns.find(name) is None
    ]
    patterns.check_all_used()
    if not layers:
        raise Error(ErrorCode.invalid_problem, "model: expected linear layers, got none", "model")

    def watch(name: str) -> Callable[..., None]:
        def hook(_: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
            if inputs:
                statistics.update(name, inputs[0].detach())

        return hook

    handles = [module.register_forward_pre_hook(watch(name)) for name, module in layers]
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for batch in progress(batches, "calibrating, batches", show_progress):
                (forward or _call)(model, batch)
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    if path is not None:
        statistics.write(path)
    return statistics
