"""Arrays for the tests: values that are hard to get right, in every layout and of every maker."""

import numpy as np
from hypothesis import strategies as st
from oracles import FLOATS

SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-40, 5e-324, 3e38, -3e38, 0.5, 1.5, -2.5]


def values(rng, shape, dtype):
    """Normal numbers, ties of scales that are powers of two, and one in four special."""
    t = FLOATS[dtype]
    x = rng.normal(0, 20, shape)
    x = np.where(rng.random(shape) < 0.3, np.round(x) / 2, x)
    special = np.asarray(SPECIAL)[rng.integers(0, len(SPECIAL), shape)]
    x = np.where(rng.random(shape) < 0.25, special, x)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(x).astype(t)


def plain(rng, shape, dtype):
    return np.asarray(rng.normal(0, 1, shape)).astype(FLOATS[dtype])


def lay_out(a, layout):
    """The same numbers, elsewhere in memory and with other strides."""
    a = np.asarray(a)
    if layout == "plain" or a.ndim == 0:
        return a.copy()
    if layout == "transposed":
        return np.ascontiguousarray(a.T).T
    if layout == "reversed":
        return np.flip(np.ascontiguousarray(np.flip(a)))
    # Every second element of a larger array whose others are a value that would be seen.
    big = np.full([2 * n + 1 for n in a.shape], 77).astype(a.dtype)
    view = big[tuple(slice(1, None, 2) for _ in a.shape)]
    view[...] = a
    return view


LAYOUTS = st.sampled_from(["plain", "transposed", "reversed", "strided"])
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 5, 8, 17]), max_size=4).map(tuple)
ROWS = st.lists(st.sampled_from([0, 1, 2, 3, 7]), max_size=3).map(tuple)
SEEDS = st.integers(0, 2**32 - 1)
PROFILES = st.sampled_from(["torch", "onnx"])
DTYPES = st.sampled_from(list(FLOATS))


@st.composite
def granularities(draw, shape):
    """(axis, group_size, shape of the scales) for a tensor of this shape."""
    kinds = ["tensor", "one"]
    if shape:
        kinds += ["channel", "token", "group"]
    kind = draw(st.sampled_from(kinds))
    if kind == "channel":
        axis = draw(st.integers(-len(shape), len(shape) - 1))
        return axis, None, (shape[axis],)
    if kind == "token":
        return "token", None, shape[:-1]
    if kind == "group":
        last = shape[-1]
        sizes = [g for g in range(1, last + 1) if last % g == 0] or [1, 4]
        g = draw(st.sampled_from(sizes))
        return None, g, (*shape[:-1], last // g)
    return None, None, (1,) if kind == "one" else ()


class OnlyDLPack:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self):
        return self._array.__dlpack__()

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()
