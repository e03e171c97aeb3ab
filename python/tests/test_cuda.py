"""Functions on a CUDA device give the bits of the host's; by the stand-in driver, or a real one."""

import itertools

import numpy as np
import octavo
import pytest
from arrays import plain, values
from devices import MAKERS, bits
from oracles import FLOATS

if not octavo.cuda.is_available():
    pytest.skip("there is no CUDA device", allow_module_level=True)

on_device = octavo.cuda.asarray
INVALID, UNSUPPORTED = "invalid_problem", "unsupported"


def is_array(a):
    return isinstance(a, np.ndarray) and a.ndim > 0


def moved(a, maker=on_device):
    return maker(a) if is_array(a) else a


def same(function, *args, maker=on_device, **named):
    """Calls with arrays of the host, and of a device; the results are the same bits."""
    want = function(*args, **named)
    got = function(
        *(moved(a, maker) for a in args), **{k: moved(a, maker) for k, a in named.items()}
    )
    octavo.cuda.synchronize()
    if not isinstance(want, tuple):
        want, got = (want,), (got,)
    for w, g in zip(want, got, strict=True):
        assert (w is None) == (g is None)
        assert w is None or isinstance(g, octavo.cuda.DeviceArray)
        assert bits(w) == bits(g)


@pytest.fixture
def rng():
    return np.random.default_rng(17)


SHAPES = [(), (1,), (7,), (0, 4), (3, 0), (5, 33), (2, 3, 64)]


# ---- elementwise --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_one_scale(rng, shape, dtype):
    x = values(rng, shape, dtype)
    if not shape:
        x = x.reshape(())
    d = on_device(x)
    for integer in ("s8", "u8", "s4", "u4", "s16"):
        want = octavo.quantize(x, 0.25, 3, dtype=integer)
        got = octavo.quantize(d, 0.25, 3, dtype=integer)
        assert bits(got) == bits(want)
        named = dict(dtype=dtype, q_dtype=integer, length=shape[-1] if shape else 1)
        assert bits(octavo.dequantize(got, 0.25, 3, **named)) == bits(
            octavo.dequantize(want, 0.25, 3, **named)
        )
    dy = values(rng, shape, dtype).reshape(shape)
    dd = on_device(dy)
    for f in (octavo.fake_quantize_backward, octavo.quantize_backward):
        assert bits(f(d, dd, 0.25, 1)) == bits(f(x, dy, 0.25, 1))
    assert bits(octavo.fake_quantize(d, 0.25, -1)) == bits(octavo.fake_quantize(x, 0.25, -1))
    assert bits(octavo.dequantize_backward(dd, 0.3)) == bits(octavo.dequantize_backward(dy, 0.3))


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("profile", ["torch", "onnx"])
def test_many_scales(rng, maker, profile):
    maker = MAKERS[maker]
    x = values(rng, (6, 4, 24), "f32")
    for axis, group, shape in [
        (0, None, (6,)),
        (-1, None, (24,)),
        ("token", None, (6, 4)),
        (None, 8, (6, 4, 3)),
    ]:
        scale = rng.uniform(0.1, 2, shape).astype(np.float32)
        zero = rng.integers(-5, 6, shape).astype(np.int32)
        named = dict(axis=axis, group_size=group, maker=maker)
        for zero_point in (None, 4, zero):
            same(octavo.quantize, x, scale, zero_point, profile=profile, **named)
            same(octavo.fake_quantize, x, scale, zero_point, profile=profile, **named)
        same(octavo.quantize, x, 0.5, zero, **named)
        same(octavo.quantize_backward, x, x, scale, zero, **named)
        same(octavo.fake_quantize_backward, x, x, scale, zero, **named)
        same(octavo.dequantize_backward, x, scale, **named)
        q = octavo.quantize(x, scale, zero, axis=axis, group_size=group)
        same(octavo.dequantize, q, scale, zero, **named)
        for wide in (np.float64, np.float16):
            same(octavo.quantize, x, scale.astype(wide), axis=axis, group_size=group, maker=maker)


@pytest.mark.parametrize("shape", [(1,), (5,), (3, 8), (2, 3, 4), (0, 3)])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_one_scale_that_only_the_device_has(rng, shape, dtype):
    """It is not read here: the result is that of the number all the same."""
    x = values(rng, shape, dtype)
    d = on_device(x)
    for scale in (np.float32(0.3), np.float32([0.3])):
        s = on_device(np.asarray(scale))
        z = on_device(np.int32(2))
        axis = -1
        assert bits(octavo.quantize(d, s)) == bits(octavo.quantize(x, scale))
        assert bits(octavo.quantize(d, s, 2)) == bits(octavo.quantize(x, scale, 2))
        assert bits(octavo.quantize(d, s, z, axis=axis)) == bits(octavo.quantize(x, scale, 2))
        assert bits(octavo.quantize(d, 0.3, z)) == bits(octavo.quantize(x, 0.3, 2))
        named = dict(dtype="u4")
        q, dq = octavo.quantize(x, scale, 2, **named), octavo.quantize(d, s, z, **named)
        assert bits(q) == bits(dq)
        named = dict(q_dtype="u4", length=shape[-1])
        assert bits(octavo.dequantize(dq, s, z, **named)) == bits(
            octavo.dequantize(q, scale, 2, **named)
        )
        assert bits(octavo.fake_quantize_backward(d, d, s)) == bits(
            octavo.fake_quantize_backward(x, x, scale)
        )
        assert bits(octavo.dequantize_backward(d, s)) == bits(octavo.dequantize_backward(x, scale))


def test_strides(rng):
    from devices import ByInterface

    x = values(rng, (6, 10), "f32")
    d = on_device(x)
    transposed = ByInterface(d, shape=(10, 6), strides=(4, 40))
    assert bits(octavo.quantize(transposed, 0.5)) == bits(octavo.quantize(x.T, 0.5))
    s = rng.uniform(0.1, 1, 10).astype(np.float32)
    assert bits(octavo.quantize(transposed, on_device(s), axis=0)) == bits(
        octavo.quantize(x.T, s, axis=0)
    )
    rows = ByInterface(d, shape=(3, 10), strides=(80, 4))
    assert bits(octavo.quantize(rows, 0.5)) == bits(octavo.quantize(x[::2], 0.5))
    out = on_device(np.zeros((3, 20), np.int8))
    part = ByInterface(out, shape=(3, 10), strides=(20, 1))
    assert octavo.quantize(rows, 0.5, out=part) is part
    assert (out.numpy()[:, :10] == octavo.quantize(x[::2], 0.5)).all()
    assert not out.numpy()[:, 10:].any()


@pytest.mark.parametrize("maker", MAKERS)
def test_outputs_that_are_given(rng, maker):
    x = values(rng, (4, 9), "f32")
    out = on_device(np.zeros((4, 9), np.int8))
    face = MAKERS[maker](out)
    assert octavo.quantize(MAKERS[maker](x), 0.5, out=face) is face
    assert bits(out) == bits(octavo.quantize(x, 0.5))
    d = on_device(x)
    assert octavo.fake_quantize(d, 0.5, out=d) is d
    assert bits(d) == bits(octavo.fake_quantize(x, 0.5))


# ---- ranges -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_dynamic(rng, dtype, mode):
    for shape in [(1, 1), (3, 0), (5, 33), (2, 3, 64), (2, 4096)]:
        x = values(rng, shape, dtype)
        same(octavo.quantize_dynamic, x, mode=mode)
        same(octavo.quantize_dynamic, x, scope="tensor", mode=mode)
        named = dict(dtype="u8") if mode == "asymmetric" else {}
        same(octavo.quantize_dynamic, x, scope="channel", axis=-1, mode=mode, **named)
    x = values(rng, (6, 48), dtype)
    same(octavo.quantize_dynamic, x, scope="group", group_size=16, mode=mode, dtype="s4")
    same(octavo.quantize_dynamic, x, dtype="s16")
    d = on_device(x)
    q, scale, zero_point = octavo.quantize_dynamic(d, mode=mode)
    assert bits(octavo.dequantize(q, scale, zero_point, axis="token")) == bits(
        octavo.dequantize(*octavo.quantize_dynamic(x, mode=mode), axis="token")
    )


# ---- linear layers ------------------------------------------------------------------------------


def integers(rng, shape, low=-128, high=128, dtype=np.int8):
    return rng.integers(low, high, shape).astype(dtype)


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (3, 5, 7), (2, 40, 96), (17, 33, 130), (0, 4, 8)])
def test_linear(rng, m, n, k):
    x = plain(rng, (m, k), "f32")
    w = integers(rng, (n, k))
    scale = rng.uniform(0.01, 0.1, n).astype(np.float32)
    bias = plain(rng, (n,), "f32")
    residual = plain(rng, (m, n), "f32")
    same(octavo.linear, x, w, 0.1)
    same(octavo.linear, x, w, scale, bias, residual=residual, relu=True)
    same(octavo.linear, x, w, scale, bias, mode="asymmetric", out_dtype="f16")
    same(octavo.linear, plain(rng, (m, k), "bf16"), w, scale, bias)
    same(octavo.linear, x, w, scale, bias, quantized="s16")
    q = integers(rng, (m, k))
    rows = rng.uniform(0.01, 0.1, m).astype(np.float32)
    zeros = integers(rng, (m,), -3, 4, np.int32)
    same(octavo.smoothquant_linear, q, 0.5, w, scale, bias)
    same(octavo.smoothquant_linear, q, 0.5, w, 0.1, out_dtype="s8", out_scale=3.0)
    if m > 1:
        same(octavo.smoothquant_linear, q, rows, w, scale, act_zero_point=zeros)
        named = dict(act_scale=rows, act_zero_point=zeros, weight_scale=scale, weight_zero_point=3)
        same(octavo.quantized_matmul, q, w, bias=bias, **named)
        same(octavo.int_matmul, q, w, act_zero_point=zeros)
    same(octavo.int_matmul, q, w, act_zero_point=2, weight_zero_point=1)
    same(octavo.float_linear, x, plain(rng, (n, k), "f32"), bias)
    same(octavo.float_linear, x.astype(np.float16), plain(rng, (n, k), "f16"), out_dtype="f16")


def test_a_static_scale_that_only_the_device_has(rng):
    q, w = integers(rng, (3, 16)), integers(rng, (5, 16))
    scale = np.float32([0.25])
    want = octavo.smoothquant_linear(q, scale, w, 0.5)
    got = octavo.smoothquant_linear(on_device(q), on_device(scale), on_device(w), 0.5)
    assert bits(got) == bits(want)


def nibbles(rng, n, k):
    return rng.integers(0, 256, (n, (k + 1) // 2)).astype(np.uint8)


@pytest.mark.parametrize("q_dtype, groups", itertools.product(["s4", "u4"], [None, 16]))
def test_four_bits(rng, q_dtype, groups):
    m, n, k = 3, 20, 64
    x, w = plain(rng, (m, k), "f32"), nibbles(rng, n, k)
    shape = (n,) if groups is None else (n, k // groups)
    scale = rng.uniform(0.01, 0.1, shape).astype(np.float16)
    zero = rng.integers(0, 8, shape).astype(np.int32)
    for quantized, zero_point in itertools.product([None, "s16"], [None, 3, zero]):
        same(octavo.linear, x, w, scale, group_size=groups, q_dtype=q_dtype, quantized=quantized,
             weight_zero_point=zero_point)  # fmt: skip


# ---- packed weights -----------------------------------------------------------------------------


def held(packed):
    return [bits(a) for a in packed.unpack()]


@pytest.mark.parametrize("maker", MAKERS)
def test_packed(rng, maker):
    maker = MAKERS[maker]
    x, w = plain(rng, (3, 48), "f32"), integers(rng, (20, 48))
    scale = rng.uniform(0.01, 0.1, 20).astype(np.float32)
    zero = rng.integers(0, 8, 20).astype(np.int32)
    for named in [{}, dict(scale=scale), dict(scale=scale, zero_point=zero), dict(scale=0.5)]:
        host = octavo.pack(w, **named)
        device = octavo.pack(maker(w), **{k: moved(a, maker) for k, a in named.items()})
        assert (device.device, host.device) == ("cuda:0", "cpu")
        assert device.shape == host.shape and device.has_zero_point == host.has_zero_point
        assert held(device) == held(host) == held(host.to("cuda")) == held(device.to("cpu"))
        given = () if "scale" in named else (0.25,)
        want = bits(octavo.linear(x, host, *given))
        for packed in (device, host.to("cuda:0"), device.to("cpu").to("cuda")):
            assert bits(octavo.linear(maker(x), packed, *given)) == want


def test_packed_groups_floats_and_words(rng):
    x, w = plain(rng, (3, 64), "f32"), nibbles(rng, 20, 64)
    scale = rng.uniform(0.01, 0.1, (20, 4)).astype(np.float16)
    named = dict(q_dtype="u4", group_size=16)
    host = octavo.pack(w, scale=scale, zero_point=8, **named)
    device = octavo.pack(on_device(w), scale=on_device(scale), zero_point=8, **named)
    assert held(device) == held(host)
    assert bits(octavo.linear(on_device(x), device, quantized="s16")) == bits(
        octavo.linear(x, host, quantized="s16")
    )
    floats = plain(rng, (7, 64), "bf16")
    assert bits(octavo.float_linear(on_device(x), octavo.pack(on_device(floats)))) == bits(
        octavo.float_linear(x, octavo.pack(floats))
    )
    words = rng.integers(-(2**31), 2**31, (20, 8)).astype(np.int32)
    named = dict(q_dtype="s4", scale=0.5)
    assert held(octavo.pack(on_device(words), **named)) == held(octavo.pack(words, **named))


def test_packed_weights_are_stored_as_the_hosts(rng):
    import pickle

    w = integers(rng, (20, 48))
    host = octavo.pack(w, scale=np.ones(20, np.float32), zero_point=2)
    device = host.to("cuda")
    assert device.serialize() == host.serialize()
    assert held(pickle.loads(pickle.dumps(device))) == held(host)
    assert "device='cuda:0'" in repr(device) and "device" not in repr(host)
    assert device.to("cuda:0").device == "cuda:0" and host.to("cpu").device == "cpu"


# ---- embeddings ---------------------------------------------------------------------------------


def test_embedding(rng):
    indices = rng.integers(0, 9, (2, 5)).astype(np.int32)
    table = integers(rng, (9, 33))
    scale = rng.uniform(0.01, 0.1, 9).astype(np.float32)
    same(octavo.embedding, indices, table, scale)
    same(octavo.embedding, indices, table, scale, zero_point=1, out_dtype="f16")
    same(octavo.embedding, indices, plain(rng, (9, 33), "f32"))
    same(octavo.embedding, 3, table, 0.5)
    same(octavo.embedding, indices, nibbles(rng, 9, 64), np.ones((9, 4), np.float32),
         q_dtype="s4", group_size=16)  # fmt: skip


# ---- refusals -----------------------------------------------------------------------------------

X = np.ones((4, 8), np.float32)
W = np.ones((3, 8), np.int8)
S = np.ones(4, np.float32)
MIXED = {
    "scale": lambda d: octavo.quantize(d(X), S, axis=0),
    "zero_point": lambda d: octavo.quantize(d(X), 1.0, np.zeros(4, np.int32), axis=0),
    "out": lambda d: octavo.quantize(d(X), 1.0, out=np.empty((4, 8), np.int8)),
    "dy": lambda d: octavo.fake_quantize_backward(d(X), X, 1.0),
    "weight_q": lambda d: octavo.linear(d(X), W, 1.0),
    "weight_scale": lambda d: octavo.linear(d(X), d(W), np.ones(3, np.float32)),
    "bias": lambda d: octavo.linear(d(X), d(W), 1.0, np.ones(3, np.float32)),
    "residual": lambda d: octavo.linear(d(X), d(W), 1.0, residual=np.ones((4, 3), np.float32)),
    "act_scale": lambda d: octavo.quantized_matmul(
        d(np.ones((4, 8), np.int8)), d(W), act_scale=S, weight_scale=1.0
    ),
    "table": lambda d: octavo.embedding(d(np.zeros(2, np.int32)), X),
}


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("argument", MIXED)
def test_arrays_of_host_and_device_are_refused(argument, maker):
    with pytest.raises(octavo.Error, match="expected memory of CUDA device 0, where ") as e:
        MIXED[argument](MAKERS[maker])
    assert e.value.argument == argument and e.value.code == INVALID
    octavo.cuda.synchronize()


def test_and_the_reverse():
    for argument, call in {
        "scale": lambda: octavo.quantize(X, on_device(S), axis=0),
        "weight_q": lambda: octavo.linear(X, octavo.pack(on_device(W)), 1.0),
        "out": lambda: octavo.quantize(X, 1.0, out=on_device(np.zeros((4, 8), np.int8))),
    }.items():
        with pytest.raises(octavo.Error, match="expected memory of the CPU, where x is") as e:
            call()
        assert e.value.argument == argument


def test_what_only_hosts_do():
    d = on_device(X)
    for argument, call in {
        "rows": lambda: octavo.Statistics().update("layer", d),
        "array": lambda: octavo.cuda.asarray(d),
    }.items():
        with pytest.raises(octavo.Error, match="expected an array on the CPU, got one on") as e:
            call()
        assert e.value.argument == argument and e.value.code == UNSUPPORTED


VALUES = {
    "scale": lambda bad: octavo.quantize(on_device(X), on_device(bad), axis=0),
    "weight_scale": lambda bad: octavo.linear(
        on_device(X), on_device(np.ones((4, 8), np.int8)), on_device(bad)
    ),
    "act_scale": lambda bad: octavo.quantized_matmul(
        on_device(np.ones((4, 8), np.int8)),
        on_device(W),
        act_scale=on_device(bad),
        weight_scale=1.0,
    ),
}


def host_refusal(argument, bad):
    host = {
        "scale": lambda: octavo.quantize(X, bad, axis=0),
        "weight_scale": lambda: octavo.linear(X, np.ones((4, 8), np.int8), bad),
        "act_scale": lambda: octavo.quantized_matmul(
            np.ones((4, 8), np.int8), W, act_scale=bad, weight_scale=1.0
        ),
    }
    with pytest.raises(octavo.Error) as e:
        host[argument]()
    return e.value


@pytest.mark.parametrize("argument", VALUES)
def test_values_come_out_where_somebody_waits(argument):
    """In the words of the host, once, and later calls go on."""
    bad = np.float32([1, np.inf, 1, np.nan])
    want = host_refusal(argument, bad)
    assert want.argument == argument
    for wait in (octavo.cuda.synchronize, None):
        result = VALUES[argument](bad)
        after = octavo.quantize(on_device(X), 0.5)
        with pytest.raises(octavo.Error) as e:
            (wait or result.numpy)()
        assert (e.value.code, e.value.argument) == (want.code, want.argument)
        assert str(e.value) == str(want)
        octavo.cuda.synchronize()
        assert (after.numpy() == 2).all()


def test_a_call_that_is_refused_writes_nothing():
    out = on_device(np.full((4, 8), 77, np.int8))
    octavo.quantize(on_device(X), on_device(np.float32([1, 1, 1, 0])), axis=0, out=out)
    with pytest.raises(octavo.Error, match=r"got 0 at index 3"):
        octavo.cuda.synchronize()
    assert (out.numpy() == 77).all()


def test_one_number_is_refused_likewise():
    result = octavo.quantize(on_device(X), 0.0)
    with pytest.raises(octavo.Error, match="scale: expected a finite number above 0") as e:
        result.numpy()
    assert e.value.argument == "scale"


def test_indices_are_checked():
    table = on_device(X)
    result = octavo.embedding(on_device(np.int32([0, 9])), table)
    with pytest.raises(octavo.Error) as e:
        result.numpy()
    with pytest.raises(octavo.Error) as want:
        octavo.embedding(np.int32([0, 9]), X)
    assert str(e.value) == str(want.value) and e.value.argument == "indices"


def test_groups_that_are_packed_are_checked_at_once():
    scale = np.ones((3, 2), np.float32)
    scale[1, 0] = np.nan
    with pytest.raises(octavo.Error) as want:
        octavo.pack(W, scale=scale, group_size=4)
    with pytest.raises(octavo.Error) as e:
        octavo.pack(on_device(W), scale=on_device(scale), group_size=4)
    assert str(e.value) == str(want.value) and e.value.argument == "scale"


def test_types_that_nobody_converts():
    d = on_device(X)
    for argument, call in {
        "scale": lambda: octavo.quantize(d, on_device(np.ones(4, np.int32)), axis=0),
        "zero_point": lambda: octavo.quantize(d, 1.0, on_device(np.ones(4, np.int64)), axis=0),
        "indices": lambda: octavo.embedding(on_device(np.zeros(2, np.int64)), d),
    }.items():
        with pytest.raises(octavo.Error, match="in memory of a device, got int.*convert") as e:
            call()
        assert e.value.argument == argument and e.value.code == UNSUPPORTED
