"""CUDA devices: what there is, arrays on them for those who have no framework, and waiting.

Functions of `octavo` take arrays of a device as they take others, and return the same kind:

    x = octavo.cuda.asarray(np.float32([[1, -2], [100, 50]]))
    q, scale, _ = octavo.quantize_dynamic(x)
    q.numpy()

A call returns when its work is queued. Values are checked on the device; a call with a wrong one,
such as a scale of 0, writes nothing, and its refusal is raised by what waits next:
`DeviceArray.numpy`, `Stream.synchronize` or `synchronize`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _core
from ._core import DeviceArray

__all__ = ["Device", "DeviceArray", "asarray", "devices", "is_available", "synchronize"]


class Device(NamedTuple):
    """A CUDA device, as the driver names it."""

    name: str
    capability: tuple[int, int]
    memory: int  # bytes


def devices() -> list[Device]:
    """All that the driver finds, of any age, in its order; none where there is no driver.

    >>> all(device.memory > 0 for device in octavo.cuda.devices())
    True
    """
    return [Device(name, (major, minor), size) for name, major, minor, size in _core.cuda_devices()]


def is_available() -> bool:
    """Whether there is a device that calls can run on: of compute capability 8.0 or later.

    >>> octavo.cuda.is_available() in (True, False)
    True
    """
    return any(device.capability >= (8, 0) for device in devices())


def asarray(array: Any, device: int = 0) -> DeviceArray:
    """A copy of an array of the host's on a device.

    >>> if octavo.cuda.is_available():
    ...     x = octavo.cuda.asarray(np.float32([0.1, -0.25, 99.0]))
    ...     assert octavo.quantize(x, 0.1).numpy().tolist() == [1, -2, 127]
    """
    return _core.cuda_asarray(array, device)


def synchronize(device: int | None = None) -> None:
    """Waits for all that was called on a device, or on all of them, whatever the stream. Raises the
    first refusal of values that only the device sees.

    >>> octavo.cuda.synchronize()
    """
    _core.cuda_synchronize(device)
