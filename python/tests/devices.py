"""Arrays of a CUDA device, of makers that are not there: each is a DeviceArray behind a face."""

import numpy as np
import octavo


def bits(array):
    """What is compared: type, shape and every bit, of the host's or a device's."""
    if array is None:
        return None
    a = array.numpy() if hasattr(array, "numpy") else np.asarray(array)
    a = a.numpy() if hasattr(a, "numpy") else np.asarray(a)
    return a.dtype, a.shape, a.tobytes()


def own(array):
    return octavo.cuda.asarray(array) if isinstance(array, np.ndarray) else array


class ByDLPack:
    """Speaks DLPack, and notes with what it was called."""

    def __init__(self, array, **changed):
        self.array = own(array)
        self.calls = []
        self.changed = changed

    def __dlpack_device__(self):
        return (2, self.array.device)

    def __dlpack__(self, **keywords):
        self.calls.append(keywords)
        return self.array.__dlpack__(**{**keywords, **self.changed})


class ByOldDLPack(ByDLPack):
    """Made before DLPack had versions."""

    def __dlpack__(self, stream=None):
        return super().__dlpack__(stream=stream)


class ByInterface:
    """Has the CUDA array interface and nothing else, as arrays of Numba."""

    def __init__(self, array, **changed):
        self.array = own(array)
        self.interface = {**self.array.__cuda_array_interface__, **changed}

    @property
    def __cuda_array_interface__(self):
        return {k: v for k, v in self.interface.items() if v != "left out"}


def second_version(array):
    return ByInterface(array, version=2, stream="left out")


MAKERS = {
    "own": own,
    "dlpack": ByDLPack,
    "old dlpack": ByOldDLPack,
    "interface": ByInterface,
    "interface 2": second_version,
}
