"""Run by test_cuda_torch.py in a process of its own: PyTorch as if it had CUDA.

PyTorch here is built without CUDA. What the module asks of a tensor on a GPU, and of torch.cuda, is
answered by objects that look like them, with the memory of a DeviceArray. So this shows what the
module does with such answers; that PyTorch gives them is not shown.
"""

import gc
from types import SimpleNamespace

import numpy as np
import octavo
import octavo.torch
import pytest
import torch
from devices import bits

GPU = torch.device("cuda", 0)
CURRENT = octavo.Stream.cuda()  # PyTorch's current stream
MADE = []


class CudaTensor(torch.Tensor):
    """On the device in all that is asked of it; a tensor of no memory in truth."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, array, dtype=None):
        numpy = array.dtype.name
        meta = torch.empty(array.shape, dtype=dtype or getattr(torch, numpy), device="meta")
        made = torch.Tensor._make_subclass(cls, meta)
        made.array = array
        return made

    is_cpu = property(lambda self: False)
    is_cuda = property(lambda self: True)
    device = property(lambda self: GPU)

    def data_ptr(self):
        return self.array.__cuda_array_interface__["data"][0]

    def is_inference(self):
        return False

    def detach(self):
        return self

    def item(self):
        return self.array.numpy().item()

    def clamp(self, low, high):
        return on_gpu(np.clip(self.array.numpy(), low, high))

    def to(self, *args, **kwargs):
        if args and isinstance(args[0], torch.dtype):
            return on_gpu(self.array.numpy().astype(str(args[0]).split(".")[1]))
        return self

    def flatten(self):
        return on_gpu(self.array.numpy().reshape(-1))

    def contiguous(self):
        return self


def on_gpu(array):
    return CudaTensor(octavo.cuda.asarray(array))


_empty = torch.empty


def empty(*sizes, dtype=None, device=None, **named):
    if device is None or torch.device(device).type != "cuda":
        return _empty(*sizes, dtype=dtype, device=device, **named)
    shape = sizes[0] if isinstance(sizes[0], (tuple, torch.Size)) else sizes
    name = str(dtype or torch.float32).split(".")[1]
    if name == "bfloat16":
        from ml_dtypes import bfloat16 as name
    MADE.append(tuple(shape))
    return CudaTensor(octavo.cuda.asarray(np.zeros(shape, name)), dtype)


torch.empty = empty
torch.cuda.current_stream = lambda device=None: SimpleNamespace(cuda_stream=CURRENT.cuda_stream)


def same(got, want):
    assert isinstance(got, CudaTensor) and got.device == GPU
    CURRENT.synchronize()
    assert bits(got.array) == bits(want)


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_functions(rng):
    x = rng.normal(0, 20, (6, 32)).astype(np.float32)
    scale = rng.uniform(0.1, 1, 6).astype(np.float32)
    zero = rng.integers(-4, 5, 6)
    t = on_gpu(x)
    MADE.clear()
    same(octavo.quantize(t, 0.5), octavo.quantize(x, 0.5))
    assert MADE == [(6, 32)]  # by torch.empty on that device
    same(
        octavo.quantize(t, on_gpu(scale), on_gpu(zero.astype(np.int32)), axis=0),
        octavo.quantize(x, scale, zero, axis=0),
    )
    # PyTorch's integers of other types are converted by PyTorch.
    for kind in (np.int64, np.int8):
        same(
            octavo.quantize(t, on_gpu(scale), on_gpu(zero.astype(kind)), axis=0),
            octavo.quantize(x, scale, zero, axis=0),
        )
    same(octavo.quantize(t, on_gpu(np.float32(0.3))), octavo.quantize(x, np.float32(0.3)))
    same(octavo.quantize(t, torch.tensor(0.3)), octavo.quantize(x, np.float32(0.3)))
    for got, want in zip(octavo.quantize_dynamic(t), octavo.quantize_dynamic(x), strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            same(got, want)
    table = rng.normal(0, 1, (9, 16)).astype(np.float32)
    indices = rng.integers(0, 9, (2, 3))
    same(octavo.embedding(on_gpu(indices), on_gpu(table)), octavo.embedding(indices, table))


def test_the_stream_is_pytorchs_current_one(rng):
    x = rng.normal(0, 20, (6, 32)).astype(np.float32)
    bad = on_gpu(np.zeros(6, np.float32))
    octavo.quantize(on_gpu(x), bad, axis=0)
    with pytest.raises(octavo.Error, match="scale: .* got 0 at index 0"):
        CURRENT.synchronize()
    other = octavo.Stream.cuda()
    octavo.quantize(on_gpu(x), bad, axis=0, stream=other)
    CURRENT.synchronize()
    with pytest.raises(octavo.Error, match="scale: .* got 0 at index 0"):
        other.synchronize()


def test_arrays_of_both_are_refused(rng):
    x, s = np.ones((4, 8), np.float32), np.ones(4, np.float32)
    for argument, call in {
        "scale": lambda: octavo.quantize(on_gpu(x), torch.from_numpy(s), axis=0),
        "out": lambda: octavo.quantize(on_gpu(x), 1.0, out=torch.empty((4, 8), dtype=torch.int8)),
        "weight_q": lambda: octavo.linear(on_gpu(x), torch.ones((3, 8), dtype=torch.int8), 1.0),
    }.items():
        with pytest.raises(octavo.Error, match="expected memory of CUDA device 0, where x is") as e:
            call()
        assert e.value.argument == argument
    with pytest.raises(
        octavo.Error, match="^rows: expected a tensor on the CPU, got one on cuda:0"
    ):
        octavo.Statistics().update("layer", on_gpu(x))


def test_packed(rng):
    x = rng.normal(0, 1, (3, 48)).astype(np.float32)
    w = rng.integers(-128, 128, (20, 48)).astype(np.int8)
    s = rng.uniform(0.1, 1, 20).astype(np.float32)
    packed = octavo.pack(on_gpu(w), scale=on_gpu(s))
    assert packed.device == "cuda:0"
    same(octavo.linear(on_gpu(x), packed), octavo.linear(x, octavo.pack(w, scale=s)))
    back, scales, _ = packed.unpack()
    assert (type(back), type(scales)) == (torch.Tensor, torch.Tensor)
    assert (back.numpy() == w).all() and (scales.numpy() == s).all()
    assert packed.to(torch.device("cpu")).device == "cpu"
    assert packed.to("cpu").to(GPU).device == "cuda:0"


def moved(layer):
    """What layer.to("cuda") makes of a layer, which PyTorch here cannot."""
    for name, buffer in layer._buffers.items():
        if buffer is not None:
            layer._buffers[name] = on_gpu(buffer.numpy())
    return layer


@pytest.mark.parametrize("scheme", ["w8a8-dynamic", "w8a16", "w4a8-group", "w4a16-group"])
def test_layers(rng, scheme):
    torch.manual_seed(3)
    named = {"group_size": 16} if "group" in scheme else {}
    layer = octavo.torch.QuantizedLinear.from_float(torch.nn.Linear(64, 24), scheme=scheme, **named)
    x = torch.randn(3, 64)
    want = layer(x)
    weight = layer.weight
    layer = moved(layer)
    for _ in range(2):
        same(layer(on_gpu(x.numpy())), want.numpy())
        packed = layer._weight()
        assert packed.device == "cuda:0" and layer._weight() is packed
    same(layer.weight, weight.numpy())
    with pytest.raises(octavo.Error, match="^weight_q: expected memory of the CPU, where x is"):
        layer(x)


@pytest.mark.parametrize("smoothing", [None, np.linspace(0.5, 2, 64, dtype=np.float32)])
def test_static_layers(rng, smoothing):
    torch.manual_seed(3)
    layer = octavo.torch.SmoothQuantLinear.from_float(
        torch.nn.Linear(64, 24), 0.03, smoothing=smoothing
    )
    x = torch.randn(3, 64)
    want = layer(x)
    layer = moved(layer)
    asked = []
    scale = layer._buffers["act_scale"]
    scale.item = lambda: asked.append(1) or CudaTensor.item(scale)
    for _ in range(3):
        same(layer(on_gpu(x.numpy())), want.numpy())
    assert len(asked) == 1  # each question would wait for the device


def test_straight_through(rng):
    x = rng.normal(0, 5, (4, 8)).astype(np.float32)
    same(
        octavo.torch._autograd.functions.fake_quantize(on_gpu(x), 0.5), octavo.fake_quantize(x, 0.5)
    )


def test_tensors_that_go_while_work_is_queued(rng):
    x = rng.normal(0, 5, (16, 64)).astype(np.float32)
    for _ in range(10):
        y = octavo.fake_quantize(octavo.fake_quantize(on_gpu(x), 0.5), 0.25)
        gc.collect()
        same(y, octavo.fake_quantize(octavo.fake_quantize(x, 0.5), 0.25))
