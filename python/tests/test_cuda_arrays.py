"""Arrays on a device: what others see of them, where calls run, how long memory lives."""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import types

import numpy as np
import octavo
import pytest
from devices import ByDLPack, ByInterface, ByOldDLPack, bits
from oracles import FLOATS
from standin import control

WITHOUT = """
import numpy as np, octavo
assert octavo.cuda.devices() == [] and not octavo.cuda.is_available()
assert octavo.info()["backends"] == ["cpu"]
octavo.cuda.synchronize()

class Elsewhere:
    def __dlpack_device__(self):
        return (2, 0)
    def __dlpack__(self, **_):
        raise AssertionError("asked")

class Interface:
    __cuda_array_interface__ = dict(shape=(4,), typestr="<f4", data=(1 << 40, False), version=3)

for argument, call in {
    "device": lambda: octavo.cuda.asarray(np.ones(4)),
    "x": lambda: octavo.quantize(Elsewhere(), 1.0),
    "scale": lambda: octavo.quantize(np.ones((4, 4)), Interface(), axis=0),
}.items():
    try:
        call()
    except octavo.Error as e:
        assert e.argument == argument, e
        print(e)
    else:
        raise AssertionError(argument)
try:
    octavo.Stream.cuda()
except octavo.Error as e:
    print(e)
packed = octavo.pack(np.ones((3, 8), np.int8))
try:
    packed.to("cuda")
except octavo.Error as e:
    print(e)
"""


def run(program, **environment):
    keep = {
        k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH" or "libraries" in environment
    }
    environment.pop("libraries", None)
    done = subprocess.run(
        [sys.executable, "-c", program], env={**keep, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_no_driver():
    lines = run(WITHOUT)
    if not lines[0].endswith("libcuda.so.1 is not installed"):
        pytest.skip("this machine has a driver")
    assert len(lines) == 5
    assert all("there is no CUDA device: the driver's library" in line for line in lines)
    assert lines[1].startswith(
        "x: expected an array on the CPU, got one on CUDA device 0; there is"
    )


if not octavo.cuda.is_available():
    pytest.skip("there is no CUDA device", allow_module_level=True)

on_device = octavo.cuda.asarray
STANDIN = control()
of_standin = pytest.mark.skipif(STANDIN is None, reason="the driver is a real one")


@of_standin
def test_no_device():
    lines = run(WITHOUT, OCTAVO_STANDIN_DEVICES="0", libraries="keep")
    assert len(lines) == 5 and all("there is no CUDA device" in line for line in lines)


@of_standin
def test_a_device_that_is_too_old():
    program = """
import numpy as np, octavo
assert not octavo.cuda.is_available() and octavo.cuda.devices()[0].capability == (7, 5)
try:
    octavo.cuda.asarray(np.ones(4))
except octavo.Error as e:
    print(e.code, e)
"""
    (line,) = run(program, OCTAVO_STANDIN_CAPABILITY="7.5", libraries="keep")
    assert line.startswith("unsupported device: expected compute capability 8.0 or later, got 7.5")


def test_devices():
    (first, *_) = octavo.cuda.devices()
    assert first.name and first.capability >= (8, 0) and first.memory > 0
    assert octavo.info()["backends"] == ["cpu", "cuda"]
    count = len(octavo.cuda.devices())
    for call in (lambda: on_device(np.ones(3), device=count), lambda: octavo.Stream.cuda(count)):
        with pytest.raises(octavo.Error, match="expected one of the devices 0 to") as e:
            call()
        assert e.value.argument == "device"


TWO = """
import numpy as np, octavo
x = np.linspace(-9, 9, 64, dtype=np.float32).reshape(4, 16)
w = np.arange(48, dtype=np.int8).reshape(3, 16)
s = np.float32([0.1, 0.2, 0.3, 0.4])
first, second = (octavo.cuda.asarray(x, device=d) for d in (0, 1))
for d in (first, second):
    there = octavo.cuda.asarray(s, device=d.device)
    q = octavo.quantize(d, there, axis=0)
    assert q.device == d.device and q.__dlpack_device__() == (2, d.device)
    assert (q.numpy() == octavo.quantize(x, s, axis=0)).all()
packed = octavo.pack(octavo.cuda.asarray(w, device=1))
assert packed.device == "cuda:1"
want = octavo.linear(x, w, 0.5)
assert (octavo.linear(second, packed, 0.5).numpy() == want).all()
assert (octavo.linear(first, packed.to("cuda:0"), 0.5).numpy() == want).all()
octavo.quantize(second, octavo.cuda.asarray(np.zeros(4, np.float32), device=1), axis=0)
octavo.cuda.synchronize(0)
for argument, call in {
    "scale": lambda: octavo.quantize(second, octavo.cuda.asarray(s), axis=0),
    "weight_q": lambda: octavo.linear(first, packed, 0.5),
    "x": lambda: octavo.quantize(first, 0.5, stream=octavo.Stream.cuda(device=1)),
    "none": octavo.cuda.synchronize,
}.items():
    try:
        call()
    except octavo.Error as e:
        assert argument in (e.argument, "none"), e
        print(e)
"""


@of_standin
def test_two_devices():
    lines = run(TWO, OCTAVO_STANDIN_DEVICES="2", libraries="keep")
    expected = "expected memory of CUDA device"
    assert lines[0].startswith(f"scale: {expected} 1, where x is, got memory of CUDA device 0")
    assert lines[1].startswith(f"weight_q: {expected} 0, where x is, got memory of CUDA device 1")
    assert lines[2].startswith(f"x: {expected} 1, where the stream computes, got memory of CUDA")
    assert "got 0 at index 0" in lines[3] and len(lines) == 4


# ---- DeviceArray --------------------------------------------------------------------------------

TYPES = [
    *FLOATS.values(),
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "?",
]


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)])
@pytest.mark.parametrize("dtype", TYPES)
def test_there_and_back(dtype, shape):
    a = np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape).astype(dtype)
    d = on_device(a)
    assert (d.shape, d.ndim, d.nbytes, d.device) == (a.shape, a.ndim, a.nbytes, 0)
    assert d.dtype == a.dtype
    assert bits(d) == bits(a)
    assert bits(on_device(a.T)) == bits(a.T.copy())
    assert repr(d) == f"DeviceArray(shape={a.shape}, dtype={a.dtype.name}, device=0)"


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    ]


def structure(capsule, name, kind):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return kind.from_address(get(capsule, name))


@pytest.mark.parametrize(
    "dtype, code", [("bf16", 4), ("f16", 2), ("f64", 2), ("int8", 0), ("uint8", 1), ("?", 6)]
)
def test_what_dlpack_is_given(dtype, code):
    d = on_device(np.ones((2, 3), FLOATS.get(dtype, dtype)))
    assert d.__dlpack_device__() == (2, 0)
    address = None
    for named, name, kind in [
        ({}, b"dltensor", DLTensor),
        ({"max_version": (0, 8)}, b"dltensor", DLTensor),
        ({"max_version": (1, 0)}, b"dltensor_versioned", Versioned),
        ({"stream": 1, "max_version": (2, 1)}, b"dltensor_versioned", Versioned),
        ({"stream": -1, "dl_device": (2, 0), "copy": False}, b"dltensor", DLTensor),
        ({"stream": 2, "copy": True}, b"dltensor", DLTensor),
    ]:
        capsule = d.__dlpack__(**named)
        t = structure(capsule, name, kind)
        if kind is Versioned:
            assert (t.major, t.minor, t.flags) == (1, 0, 0)
            t = t.tensor
        assert (t.device_type, t.device_id, t.ndim, t.lanes, t.byte_offset) == (2, 0, 2, 1, 0)
        assert (t.code, t.bits) == (code, 8 * d.dtype.itemsize)
        assert t.shape[:2] == [2, 3] and t.strides[:2] == [3, 1]
        address = address or t.data
        assert (t.data == address) != named.get("copy", False)
    for stream in (0, -2, "1"):
        with pytest.raises(octavo.Error, match="^stream: expected"):
            d.__dlpack__(stream=stream)
    with pytest.raises(BufferError, match="expected dl_device"):
        d.__dlpack__(dl_device=(2, 5))
    if dtype in ("f64", "int8", "uint8"):
        assert "dltensor" in repr(d.__dlpack__(dl_device=(1, 0)))


def test_what_the_array_interface_says():
    d = on_device(np.ones((2, 3), np.float16))
    said = d.__cuda_array_interface__
    assert (said["shape"], said["typestr"], said["version"]) == ((2, 3), "<f2", 3)
    assert said["strides"] is None and said["data"][1] is False and said["stream"] > 0
    assert on_device(np.ones((0, 3))).__cuda_array_interface__["data"] == (0, False)
    assert not hasattr(on_device(np.ones(3, FLOATS["bf16"])), "__cuda_array_interface__")


# ---- what others hand over ----------------------------------------------------------------------


def test_dlpack_is_told_the_stream():
    x = np.ones((2, 8), np.float32)
    for kind in (ByDLPack, ByOldDLPack):
        given = kind(x)
        octavo.quantize(given, 0.5)
        own = given.array.__cuda_array_interface__["stream"]
        assert given.calls[-1]["stream"] == own > 2
        stream = octavo.Stream.cuda()
        octavo.quantize(given, 0.5, stream=stream)
        assert given.calls[-1]["stream"] == stream.cuda_stream != own
        octavo.quantize(given, 0.5, stream=octavo.Stream.cuda(stream=0))
        assert given.calls[-1]["stream"] == 1  # the legacy default stream, which 0 is not


BAD = {
    "a dict": ({}, "expected floats or integers"),
    "bytes": (dict(typestr=">f4"), "got an array of '>f4'"),
    "complex": (dict(typestr="<c8"), "got an array of '<c8'"),
    "mask": (dict(mask=1), "without a mask"),
    "address": (dict(data=(16, False)), "memory that the driver does not know"),
    "no pair": (dict(data=16), "whether it is read-only"),
    "no number": (dict(data=("16", False)), "expected an address"),
    "shape": (dict(shape=(2, -8)), r"got shape \(2, -8\)"),
    "list": (dict(shape=[2, 8]), "expected a tuple of at most 8 integers"),
    "rank": (dict(shape=(1,) * 9), "expected a tuple of at most 8 integers"),
    "strides": (dict(strides=(32,)), "expected 2 strides"),
    "odd strides": (dict(strides=(33, 4)), "strides of whole elements, got 33 bytes"),
    "stream": (dict(stream=0), "a stream other than 0"),
}


@pytest.mark.parametrize("what", BAD)
def test_interfaces_that_are_wrong(what):
    changed, words = BAD[what]
    given = ByInterface(np.ones((2, 8), np.float32), **changed)
    if what == "a dict":
        given.interface = {}
    with pytest.raises(octavo.Error, match=words) as e:
        octavo.quantize(given, 0.5)
    assert e.value.argument == "x"


def test_outputs_that_are_read_only():
    out = on_device(np.zeros((2, 8), np.int8))
    data = (out.__cuda_array_interface__["data"][0], True)
    with pytest.raises(octavo.Error, match="got one that is read-only") as e:
        octavo.quantize(on_device(np.ones((2, 8))), 0.5, out=ByInterface(out, data=data))
    assert e.value.argument == "out"


def test_a_device_that_there_is_not():
    given = ByDLPack(np.ones((2, 8), np.float32))
    given.__class__ = type("Far", (ByDLPack,), {"__dlpack_device__": lambda _: (2, 77)})
    with pytest.raises(octavo.Error, match="got one on CUDA device 77; expected one of") as e:
        octavo.quantize(given, 0.5)
    assert e.value.argument == "x"


# ---- streams ------------------------------------------------------------------------------------


def test_streams():
    stream = octavo.Stream.cuda()
    assert stream.device == 0 and stream.cuda_stream > 2
    assert octavo.Stream().device is None and octavo.Stream().cuda_stream is None
    octavo.Stream().synchronize()
    for face in (stream.cuda_stream, types.SimpleNamespace(cuda_stream=stream.cuda_stream),
                 types.SimpleNamespace(ptr=stream.cuda_stream)):  # fmt: skip
        assert octavo.Stream.cuda(stream=face).cuda_stream == stream.cuda_stream
    assert octavo.Stream.cuda(stream=0).cuda_stream == 0
    assert repr(stream) == f"Stream.cuda(device=0, stream={stream.cuda_stream:#x})"
    for wrong in (-1, "7"):
        with pytest.raises(octavo.Error, match="^stream: expected"):
            octavo.Stream.cuda(stream=wrong)
    x = np.ones((2, 8), np.float32)
    with pytest.raises(
        octavo.Error, match="expected memory of CUDA device 0, where the stream"
    ) as e:
        octavo.quantize(x, 0.5, stream=stream)
    assert e.value.argument == "x"
    with pytest.raises(octavo.Error, match="expected memory of the CPU, where the stream") as e:
        octavo.quantize(on_device(x), 0.5, stream=octavo.Stream())
    assert e.value.argument == "x"


@pytest.mark.parametrize("seed", range(6))
def test_work_on_several_streams_keeps_its_order(seed):
    """Each result is made on a stream and read on another, and nobody waits in between."""
    if STANDIN:
        STANDIN.set_seed(seed)
    rng = np.random.default_rng(seed)
    streams = [octavo.Stream.cuda() for _ in range(3)] + [None, octavo.Stream.cuda(stream=0)]
    x = rng.normal(0, 5, (64, 96)).astype(np.float32)
    scale = rng.uniform(0.1, 1, 64).astype(np.float32)
    want, got = x, on_device(x)
    s = on_device(scale)
    try:
        for step in range(12):
            stream = streams[rng.integers(len(streams))]
            want = octavo.fake_quantize(want, scale, axis=0)
            got = octavo.fake_quantize(got, s, axis=0, stream=stream)
            if step % 3 == 0:  # over what is queued elsewhere
                named = dict(q_min=-9, q_max=9)
                want = octavo.fake_quantize(want, 0.75, **named)
                octavo.fake_quantize(got, 0.75, out=got, **named)
            gc.collect()
        assert bits(got) == bits(want)
    finally:
        if STANDIN:
            STANDIN.set_seed(0)


def test_arrays_of_other_streams_are_waited_for():
    """The array interface names a stream: work that is queued there comes before the call."""
    theirs = octavo.Stream.cuda()
    x = np.linspace(-9, 9, 4096, dtype=np.float32).reshape(64, 64)
    made = octavo.fake_quantize(on_device(x), 0.5, stream=theirs)
    face = ByInterface(made, stream=theirs.cuda_stream)
    q = octavo.quantize(face, 0.25)
    assert q.__cuda_array_interface__["stream"] == theirs.cuda_stream
    assert bits(q) == bits(octavo.quantize(octavo.fake_quantize(x, 0.5), 0.25))


def test_whoever_knows_no_stream_finds_the_work_done():
    """So a refusal comes at once."""
    bad = on_device(np.float32([1, 0]))
    for kind in (ByDLPack, lambda a: ByInterface(a, version=2, stream=None)):
        with pytest.raises(octavo.Error, match="scale: expected .* got 0 at index 1"):
            octavo.quantize(kind(np.ones((2, 8), np.float32)), bad, axis=0)
    octavo.cuda.synchronize()
    if STANDIN:
        given = ByDLPack(np.ones((2, 8), np.float32))
        STANDIN.reset_calls()
        octavo.quantize(given, 0.5)
        assert STANDIN.calls(b"cuStreamSynchronize") > 0
        STANDIN.reset_calls()
        octavo.quantize(given.array, 0.5)
        assert STANDIN.calls(b"cuStreamSynchronize") == 0


def test_refusals_of_each_stream():
    first, second = octavo.Stream.cuda(), octavo.Stream.cuda()
    x, bad = on_device(np.ones((2, 8), np.float32)), on_device(np.float32([1, 0]))
    octavo.quantize(x, bad, axis=0, stream=first)
    second.synchronize()
    with pytest.raises(octavo.Error, match="got 0 at index 1"):
        first.synchronize()
    octavo.cuda.synchronize()
    octavo.quantize(x, bad, axis=0, stream=second)
    with pytest.raises(octavo.Error, match="got 0 at index 1"):
        octavo.cuda.synchronize(0)
    octavo.cuda.synchronize(0)


# ---- life time ----------------------------------------------------------------------------------


def test_arrays_that_go_while_work_is_queued():
    rng = np.random.default_rng(1)
    x = rng.normal(0, 5, (32, 64)).astype(np.float32)
    w = rng.integers(-128, 128, (48, 64)).astype(np.int8)
    want = octavo.linear(octavo.fake_quantize(x, 0.5), w, 0.1)
    for stream in (None, octavo.Stream.cuda()):
        for _ in range(20):
            packed = octavo.pack(on_device(w), scale=on_device(np.full(48, 0.1, np.float64)))
            y = octavo.linear(
                octavo.fake_quantize(on_device(x), on_device(np.float32(0.5)), stream=stream),
                packed,
                stream=stream,
            )
            del packed
            octavo.fake_quantize(on_device(np.zeros((32, 64), np.float32)), 1.0)
            np.testing.assert_array_equal(y.numpy(), want.astype(y.dtype))


def test_a_capsule_keeps_the_memory():
    x = np.arange(64, dtype=np.float32)
    d = on_device(x)
    d.__dlpack__()  # (one that nobody takes)
    capsule = d.__dlpack__(stream=1)
    del d
    gc.collect()
    others = [on_device(np.zeros(64, np.float32)) for _ in range(8)]
    face = types.SimpleNamespace(__dlpack__=lambda **_: capsule, __dlpack_device__=lambda: (2, 0))
    assert bits(octavo.fake_quantize(face, 1.0)) == bits(octavo.fake_quantize(x, 1.0))
    del others


CALLS = {
    "asarray": lambda x, w, p: on_device(np.ones(1000)),
    "quantize": lambda x, w, p: octavo.quantize(x, 0.5),
    "scales": lambda x, w, p: octavo.quantize(x, on_device(np.ones(4, np.float16)), 2, axis=0),
    "dlpack": lambda x, w, p: octavo.quantize(ByDLPack(x), 0.5),
    "interface": lambda x, w, p: octavo.quantize(ByInterface(x), 0.5),
    "capsule": lambda x, w, p: octavo.quantize(x, 0.5).__dlpack__(max_version=(1, 0)),
    "linear": lambda x, w, p: octavo.linear(x, w, 0.5, on_device(np.ones(6, np.float32))),
    "pack": lambda x, w, p: octavo.pack(w, scale=0.5).to("cpu").to("cuda"),
    "packed": lambda x, w, p: octavo.linear(x, p),
    "stream": lambda x, w, p: octavo.quantize(x, 0.5, stream=octavo.Stream.cuda()),
    "refused": lambda x, w, p: pytest.raises(octavo.Error, octavo.quantize, x, np.ones(4), axis=0),
    "refused later": lambda x, w, p: pytest.raises(
        octavo.Error, octavo.quantize(x, on_device(np.zeros(4, np.float32)), axis=0).numpy
    ),
}


@of_standin
@pytest.mark.parametrize("name", CALLS)
def test_nothing_leaks(name):
    x = on_device(np.ones((4, 8), np.float32))
    w = on_device(np.ones((6, 8), np.int8))
    packed = octavo.pack(w, scale=on_device(np.ones(6, np.float32)))

    def live():
        gc.collect()
        octavo.cuda.synchronize()
        alive = STANDIN.live()
        return [getattr(alive, field) for field, _ in alive._fields_]

    for _ in range(5):
        CALLS[name](x, w, packed)
    before = live()
    for _ in range(40):
        CALLS[name](x, w, packed)
    # (One more or less may be kept for calls to come.)
    assert all(abs(now - then) <= 2 for now, then in zip(live(), before, strict=True))


@of_standin
def test_memory_that_was_given_back_is_not_hoarded():
    for size in range(1, 40):
        on_device(np.ones((size, 1 << 18), np.float64))
    gc.collect()
    before = STANDIN.live().allocations
    for size in range(40, 60):
        on_device(np.ones((size, 1 << 17), np.float64))
    assert STANDIN.live().allocations <= before + 3


@of_standin
@pytest.mark.parametrize(
    "function", ["cuLaunchKernel", "cuMemcpyHtoDAsync", "cuEventCreate", "cuEventRecord",
                 "cuStreamWaitEvent"]
)  # fmt: skip
def test_errors_of_the_driver(function):
    other = octavo.Stream.cuda()
    x = octavo.fake_quantize(on_device(np.ones((3, 7), np.float32)), 0.5, stream=other)
    octavo.quantize(x, 0.5)
    octavo.cuda.synchronize()
    STANDIN.inject(function.encode(), 1, 2)
    try:
        with pytest.raises(octavo.Error, match=f"{function} failed: CUDA_ERROR_OUT_OF_MEMORY") as e:
            octavo.quantize(x, on_device(np.ones(3, np.float64)), 1, axis=0).numpy()
        assert e.value.code == "backend"
    finally:
        STANDIN.clear_injections()
    assert bits(octavo.quantize(x, 0.5)) == bits(octavo.quantize(x.numpy(), 0.5))


@of_standin
def test_no_memory():
    x = on_device(np.ones((64, 64), np.float32))
    octavo.quantize(x, 0.5)
    STANDIN.inject(b"cuMemAlloc", 1, 2)  # what calls have left is given back, and it goes on
    y = octavo.quantize_dynamic(x, dtype="s16")[0]
    STANDIN.clear_injections()
    assert bits(y) == bits(octavo.quantize_dynamic(x.numpy(), dtype="s16")[0])
    STANDIN.set_memory(1 << 20)
    try:
        for call in (lambda: on_device(np.ones(1 << 20)), lambda: octavo.embedding(
                on_device(np.zeros(1 << 15, np.int32)), x)):  # fmt: skip
            with pytest.raises(octavo.Error, match="cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEM") as e:
                call()
            assert e.value.code == "backend"
    finally:
        STANDIN.set_memory(24 << 30)
    assert bits(octavo.quantize(x, 0.5)) == bits(octavo.quantize(x.numpy(), 0.5))


def test_many_threads():
    x = np.random.default_rng(3).normal(0, 5, (16, 64)).astype(np.float32)
    want = bits(octavo.quantize_dynamic(x)[0])
    d = on_device(x)
    found = []

    def work(stream):
        for _ in range(10):
            found.append(bits(octavo.quantize_dynamic(d, stream=stream)[0]))

    streams = [None, None, octavo.Stream.cuda(), octavo.Stream.cuda()]
    threads = [threading.Thread(target=work, args=(s,)) for s in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * 40
