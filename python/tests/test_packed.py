"""Packed weights: what they hold and give back, and what is refused of them and with them."""

import copy
import mmap
import pickle

import numpy as np
import octavo
import oracles
import pytest
from arrays import plain
from oracles import FLOATS, assert_bits

RNG = np.random.default_rng(0)
X = plain(RNG, (3, 16), "f32")
LEVELS = RNG.integers(-8, 8, (5, 16))
S8 = RNG.integers(-128, 128, (5, 16)).astype(np.int8)
S4 = oracles.pack4(LEVELS)
CHANNELS = RNG.random(5).astype(np.float32)
GROUPS = RNG.random((5, 4)).astype(np.float16)
ZEROS = RNG.integers(-8, 8, (5, 4)).astype(np.int32)
FLOAT = plain(RNG, (5, 16), "f32")
INVALID, UNSUPPORTED = "invalid_problem", "unsupported"


def in_groups(**others):
    return octavo.pack(S4, **{"q_dtype": "s4", "scale": GROUPS, "group_size": 4, **others})


PACKS = {
    "plain": lambda: octavo.pack(S8),
    "channels": lambda: octavo.pack(S8, scale=CHANNELS),
    "columns": lambda: octavo.pack(S8, scale=CHANNELS[:, None], zero_point=ZEROS[:, :1]),
    "one": lambda: octavo.pack(S8, scale=0.5, zero_point=3),
    "zero": lambda: octavo.pack(S8, zero_point=ZEROS[:, 0]),
    "half": lambda: octavo.pack(S8, scale=CHANNELS.astype(np.float16)),
    "bf16": lambda: octavo.pack(S8, scale=CHANNELS.astype(FLOATS["bf16"])),
    "groups": in_groups,
    "zeros": lambda: in_groups(zero_point=ZEROS),
    "floats": lambda: octavo.pack(FLOAT),
}
# (dtype, group_size, scale_dtype, has_zero_point, scale, zero_point)
HELD = {
    "plain": ("s8", None, None, False, None, None),
    "channels": ("s8", None, "f32", False, CHANNELS, None),
    "columns": ("s8", None, "f32", True, CHANNELS, ZEROS[:, 0]),
    "one": ("s8", None, "f64", True, np.float64([0.5]), np.int32([3])),
    "zero": ("s8", None, None, True, None, ZEROS[:, 0]),
    "half": ("s8", None, "f16", False, CHANNELS.astype(np.float16), None),
    "bf16": ("s8", None, "bf16", False, CHANNELS.astype(FLOATS["bf16"]), None),
    "groups": ("s4", 4, "f16", False, GROUPS, None),
    "zeros": ("s4", 4, "f16", True, GROUPS, ZEROS),
    "floats": ("f32", None, None, False, None, None),
}


def run(packed, name):
    if name == "floats":
        return octavo.float_linear(X, packed)
    needs = {"weight_scale": 0.1} if HELD[name][2] is None else {}
    return octavo.linear(X, packed, **needs)


def same(got, want):
    assert (got is None) == (want is None)
    if want is not None:
        assert_bits(got, want)


@pytest.mark.parametrize("name", PACKS)
def test_what_they_hold(name):
    packed = PACKS[name]()
    dtype, group_size, scale_dtype, has_zero_point, scale, zero_point = HELD[name]
    assert packed.shape == (5, 16)
    assert packed.dtype == dtype
    assert packed.group_size == group_size
    assert packed.scale_dtype == scale_dtype
    assert packed.has_zero_point is has_zero_point
    weight = {"s8": S8, "s4": S4, "f32": FLOAT}[dtype]
    assert packed.nbytes >= weight.nbytes + (0 if scale is None else scale.nbytes)
    group = "" if group_size is None else f", group_size={group_size}"
    assert repr(packed) == f"PackedWeight(shape=(5, 16), dtype='{dtype}'{group})"
    for got, want in zip(packed.unpack(), (weight, scale, zero_point), strict=True):
        same(got, want)


@pytest.mark.parametrize("name", PACKS)
def test_they_travel(name):
    packed = PACKS[name]()
    for other in (pickle.loads(pickle.dumps(packed)), copy.deepcopy(packed)):
        assert other.serialize() == packed.serialize()
        assert (other.scale_dtype, other.nbytes) == (packed.scale_dtype, packed.nbytes)
        for got, want in zip(other.unpack(), packed.unpack(), strict=True):
            same(got, want)
        assert_bits(run(other, name), run(packed, name))
    image = octavo.PackedWeight.deserialize(packed.serialize())
    assert image.serialize() == packed.serialize()
    assert image.group_size == packed.group_size
    if packed.group_size:
        assert_bits(run(image, name), run(packed, name))
    else:  # what belongs to output channels is kept beside the image
        assert (image.scale_dtype, image.has_zero_point) == (None, False)


def aligned(image, past=0):
    """The bytes of an image in memory aligned to 64 bytes, and `past` beyond."""
    memory = np.zeros(len(image) + 128, np.uint8)
    first = -memory.ctypes.data % 64 + past
    memory[first : first + len(image)] = np.frombuffer(image, np.uint8)
    return memory[first : first + len(image)]


@pytest.mark.parametrize("name", PACKS)
def test_images_are_read_from_any_memory(name):
    image = PACKS[name]().serialize()
    for memory in (bytearray(image), memoryview(image), aligned(image), aligned(image, past=3)):
        assert octavo.PackedWeight.deserialize(memory).serialize() == image


def test_images_are_used_where_they_lie(tmp_path):
    image = PACKS["groups"]().serialize()
    want = run(octavo.PackedWeight.deserialize(image), "groups")
    memory = aligned(image)
    packed = octavo.PackedWeight.deserialize(memory, in_place=True)
    assert_bits(run(packed, "groups"), want)
    # It is that memory, not a copy of it (and nobody may do this but a test).
    memory[64:] = 0
    assert (packed.unpack()[0] == 0x88).all()  # all -8
    del memory  # (what is used is kept)
    assert packed.serialize()[64:] == bytes(len(image) - 64)

    (tmp_path / "image").write_bytes(image)
    with open(tmp_path / "image", "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    packed = octavo.PackedWeight.deserialize(mapped, in_place=True)
    assert_bits(run(packed, "groups"), want)
    with pytest.raises(BufferError):
        mapped.close()  # while it is used
    del packed
    mapped.close()


def test_nothing_is_written_over_an_image_in_place():
    memory = aligned(PACKS["groups"]().serialize())
    packed = octavo.PackedWeight.deserialize(memory, in_place=True)
    before = memory.copy()
    out = memory[64 : 64 + 3 * 5 * 4].view(np.float32).reshape(3, 5)
    with pytest.raises(octavo.Error) as e:
        octavo.linear(X, packed, out=out)
    assert e.value.argument == "out"
    assert_bits(memory, before)


def test_tensors_stay_tensors():
    torch = pytest.importorskip("torch")
    for weight in (torch.from_numpy(S8), torch.from_numpy(FLOAT).to(torch.bfloat16)):
        packed = octavo.pack(weight)
        for other in (packed, pickle.loads(pickle.dumps(packed)), copy.deepcopy(packed)):
            assert torch.equal(other.unpack()[0], weight)


def test_images_in_place_are_refused():
    image = PACKS["groups"]().serialize()

    def refused(memory, *words, **options):
        with pytest.raises(octavo.Error) as e:
            octavo.PackedWeight.deserialize(memory, **options)
        for word in words:
            assert word in str(e.value)
        return e.value.argument

    for past in (1, 8, 32):
        memory = aligned(image, past)
        assert refused(memory, "64", str(past), in_place=True) == "image"
    closed = mmap.mmap(-1, 4096)
    closed.close()
    assert refused(closed, "bytes", "closed") == "image"
    apart = np.zeros((len(image), 2), np.uint8)[:, 0]
    for memory in (apart, [1, 2], None, 5, "text"):
        for in_place in (False, True):
            kind = type(memory).__name__
            assert refused(memory, "bytes", kind, in_place=in_place) == "image"
    assert refused(image, "True or False", in_place=1) == "in_place"
    # What was refused is let go.
    memory = bytearray(image)
    memory[-1] ^= 1
    assert refused(memory, "damaged") == "image"
    memory.append(0)


def test_what_is_kept_is_what_a_call_would_be_given():
    zero = ZEROS[:, 0]
    want = octavo.linear(X, S8, CHANNELS, weight_zero_point=zero)
    packed = octavo.pack(S8, scale=CHANNELS, zero_point=zero)
    assert_bits(octavo.linear(X, packed), want)
    a = RNG.integers(-128, 128, (3, 16)).astype(np.int8)
    want = octavo.smoothquant_linear(a, 0.5, S8, CHANNELS, weight_zero_point=zero)
    assert_bits(octavo.smoothquant_linear(a, 0.5, packed), want)
    assert_bits(octavo.quantized_matmul(a, packed, act_scale=0.5), want)
    # The sums are of weights without their zero points; scales have no part in them.
    want = octavo.int_matmul(a, S8, weight_zero_point=zero)
    assert_bits(octavo.int_matmul(a, packed), want)
    # One that keeps scales only may be given zero points, and the other way round.
    want = octavo.linear(X, S8, CHANNELS, weight_zero_point=zero)
    assert_bits(octavo.linear(X, octavo.pack(S8, scale=CHANNELS), weight_zero_point=zero), want)
    assert_bits(octavo.linear(X, octavo.pack(S8, zero_point=zero), CHANNELS), want)


def test_they_keep_copies():
    scale = CHANNELS.copy()
    packed = octavo.pack(S8, scale=scale)
    want = octavo.linear(X, packed)
    scale[:] = 0
    assert_bits(octavo.linear(X, packed), want)
    packed.unpack()[1][:] = 0
    assert_bits(octavo.linear(X, packed), want)


@pytest.mark.parametrize("shape", [(0, 16), (5, 0), (0, 0)])
def test_empty_ones(shape):
    weight = np.zeros(shape, np.int8)
    packed = octavo.pack(weight, scale=np.ones(shape[0], np.float32))
    assert_bits(packed.unpack()[0], weight)
    assert octavo.linear(np.ones((2, shape[1]), np.float32), packed).shape == (2, shape[0])
    assert pickle.loads(pickle.dumps(packed)).shape == shape


PLAIN, KEPT, HOLDS, WITH_ZEROS = (PACKS[n]() for n in ("plain", "channels", "groups", "zeros"))
WITH_FLOATS = octavo.pack(FLOAT)
A = np.ones((3, 16), np.int8)


def pack(**k):
    return octavo.pack(**{"weight_q": S4, "q_dtype": "s4", **k})


def linear(**k):
    return octavo.linear(**{"x": X, **k})


def rows(**k):
    """Weights in groups that are not packed."""
    given = {"weight_q": S4, "q_dtype": "s4", "weight_scale": GROUPS, "group_size": 4}
    return octavo.linear(**{"x": X, **given, **k})


def smooth(**k):
    return octavo.smoothquant_linear(**{"x_q": A, "act_scale": 1, **k})


def matmul(**k):
    return octavo.quantized_matmul(**{"x_q": A, "act_scale": 1, **k})


def sums(**k):
    return octavo.int_matmul(**{"x_q": A, **k})


def floats(**k):
    return octavo.float_linear(**{"x": X, "weight": FLOAT, **k})


GROUPED = {"group_size": 4, "scale": GROUPS}
# (function, the argument that is wrong, its value, the code, others that are given)
CASES = [
    *[(pack, "group_size", bad, INVALID, {"scale": GROUPS}) for bad in [0, -4, 3, 6, 12, 1.5, "4"]],
    *[(pack, "scale", bad, INVALID, {"group_size": 4})
      for bad in [None, CHANNELS, GROUPS[:, :3], GROUPS.T, np.full((5, 4), np.nan)]],
    *[(pack, "scale", bad, INVALID, {})
      for bad in [GROUPS, CHANNELS[:3], np.nan, [1, 2, np.inf, 3, 4], True]],
    *[(pack, "scale", bad, UNSUPPORTED, {}) for bad in ["1", 1j]],
    (pack, "scale", None, INVALID, {"group_size": 16}),
    *[(pack, "zero_point", bad, INVALID, GROUPED)
      for bad in [ZEROS[:, 0], ZEROS + 100, 8, -9, 2**40]],
    *[(pack, "zero_point", bad, INVALID, {}) for bad in [ZEROS, 8, -9, [0, 0, 0, 0, 8], 2**40]],
    (pack, "zero_point", 1.5, UNSUPPORTED, {}),
    *[(pack, "q_dtype", bad, UNSUPPORTED, {}) for bad in ["s8", "s16", "f32", "nonsense", 4]],
    *[(pack, "length", bad, INVALID, {}) for bad in [14, 17, -1, 1.5, "16"]],
    (pack, "length", 15, INVALID, {"weight_q": S8, "q_dtype": None}),
    *[(pack, "weight_q", bad, UNSUPPORTED, {}) for bad in [S8, FLOAT]],
    *[(pack, "weight_q", bad, UNSUPPORTED, {"q_dtype": None})
      for bad in [FLOAT.astype(np.float64), S8.astype(np.int16), S8.astype(np.int32)]],
    *[(pack, argument, bad, INVALID, {"weight_q": FLOAT, "q_dtype": None})
      for argument, bad in [("scale", 1), ("zero_point", 0), ("group_size", 4)]],
    *[(rows, "group_size", bad, INVALID, {}) for bad in [0, -4, 3, 6, 12, 2**70]],
    *[(rows, "weight_scale", bad, INVALID, {})
      for bad in [None, CHANNELS, GROUPS[:4], GROUPS.ravel(), np.nan, np.full((5, 4), np.inf)]],
    (rows, "weight_scale", GROUPS, INVALID, {"group_size": None}),
    *[(rows, "weight_zero_point", bad, INVALID, {})
      for bad in [ZEROS[:, 0], ZEROS[:, :1], 8, -9, ZEROS + 100]],
    *[(rows, "quantized", bad, UNSUPPORTED, {}) for bad in ["u8", "s4", "f32", "nonsense", 8]],
    *[(rows, "quantized", bad, UNSUPPORTED, {"mode": "asymmetric"}) for bad in ["s16", "u4"]],
    (rows, "weight_q", S8, UNSUPPORTED, {}),
    (rows, "weight_q", S4[:, :7], INVALID, {}),
    *[(rows, "q_dtype", bad, UNSUPPORTED, {}) for bad in ["s16", "s8", "nonsense"]],
    (rows, "weight_q", S4, INVALID, {"q_dtype": None}),
    *[(rows, "length", bad, INVALID, {}) for bad in [8, 17]],
    (rows, "weight_q", S4, INVALID, {"length": 15}),
    *[(f, "weight_scale", 1, INVALID, {"weight_q": w})
      for f in (linear, smooth, matmul) for w in (KEPT, HOLDS)],
    *[(f, "weight_zero_point", bad, INVALID, {"weight_q": w})
      for f in (linear, smooth, matmul) for w in (HOLDS, WITH_ZEROS) for bad in (0, 3)],
    *[(f, argument, bad, INVALID, {"weight_q": w})
      for f in (linear, smooth, matmul) for w in (KEPT, HOLDS)
      for argument, bad in [("group_size", 4), ("q_dtype", "s4"), ("length", 16)]],
    (linear, "weight_scale", None, INVALID, {"weight_q": PLAIN}),
    (linear, "x", X[:, :8], INVALID, {"weight_q": HOLDS}),
    (linear, "weight_q", WITH_FLOATS, UNSUPPORTED, {}),
    (linear, "weight_q", FLOAT, UNSUPPORTED, {}),
    (sums, "weight_q", HOLDS, INVALID, {}),
    (sums, "weight_q", WITH_FLOATS, UNSUPPORTED, {}),
    (sums, "weight_zero_point", 0, INVALID, {"weight_q": PACKS["zero"]()}),
    *[(floats, "weight", bad, UNSUPPORTED, {})
      for bad in [PLAIN, HOLDS, S8, FLOAT.astype(np.float64), None]],
    *[(floats, "weight", bad, INVALID, {}) for bad in [FLOAT[0], FLOAT[:, :8]]],
    *[(floats, "x", bad, UNSUPPORTED, {}) for bad in [A, X.astype(np.float64), None]],
    (floats, "x", X[:, :8], INVALID, {"weight": WITH_FLOATS}),
    *[(floats, "out_dtype", bad, UNSUPPORTED, {}) for bad in ["f64", "s8", "s4", None, 4]],
    *[(floats, "bias", bad, INVALID, {}) for bad in [1.0, np.ones(2), np.ones((5, 1))]],
    (floats, "residual", X, INVALID, {}),
    (floats, "relu", None, INVALID, {}),
    (floats, "stream", 1, UNSUPPORTED, {}),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0].__name__}-{c[1]}")
def test_refusals(case):
    function, argument, value, code, others = case
    out = np.full((3, 5), 55, np.int32 if function is sums else np.float32)
    writes = {} if function is pack else {"out": out}
    with pytest.raises(octavo.Error) as e:
        function(**{**others, argument: value}, **writes)
    assert e.value.argument == argument, str(e.value)
    assert str(e.value).startswith(f"{argument}: expected"), str(e.value)
    assert e.value.code == code, str(e.value)
    assert (out == 55).all()


def test_what_a_refusal_says():
    for function, given, words in [
        (linear, {"weight_q": HOLDS, "weight_scale": 1}, "the packed weight holds its scales"),
        (linear, {"weight_q": HOLDS, "group_size": 4}, "a packed weight has its own"),
        (rows, {"group_size": 6}, "expected a multiple of 4 that divides K = 16, got 6"),
        (
            rows,
            {"weight_scale": CHANNELS},
            r"expected shape \(5, 4\) \(groups of 4\) or one number",
        ),
        (sums, {"weight_q": HOLDS}, "got groups of 4"),
        (linear, {"weight_q": WITH_FLOATS}, "float_linear takes floats"),
        (pack, {"scale": [1, 2, np.inf, 3, 4]}, "finite, got inf at index 2"),
        (pack, {"zero_point": 8}, "-8 to 7, the range of s4, got 8"),
    ]:
        with pytest.raises(octavo.Error, match=words):
            function(**given)


@pytest.mark.parametrize(
    "state", [(b"",), (b"", None, None), "state", (PLAIN.serialize(), 1, None),
              (PLAIN.serialize(), ("s8", b"12345"), None), (PLAIN.serialize(), ("f32", b"1"), None),
              (PLAIN.serialize(), ("f32", "1234"), None), (PLAIN.serialize(), None, b"123")],
)  # fmt: skip
def test_states_that_nobody_wrote(state):
    with pytest.raises(octavo.Error):
        octavo.PackedWeight.__new__(octavo.PackedWeight).__setstate__(state)


def test_no_stream_changes_a_bit():
    for target in octavo.targets():
        for threads in (1, 2):
            stream = octavo.Stream(threads, target)
            assert_bits(octavo.linear(X, HOLDS, stream=stream), octavo.linear(X, HOLDS))
            got = octavo.float_linear(X, FLOAT, stream=stream)
            assert_bits(got, octavo.float_linear(X, FLOAT))


@pytest.mark.parametrize("k", [0, 1, 4, 36, 37, 38, 39])
def test_words_of_bytes(k):
    levels = RNG.integers(-128, 128, (5, k))
    codes = np.full((5, -(-k // 4) * 4), 77, np.uint8)
    codes[:, :k] = levels + 128
    given = {"scale": RNG.random(5).astype(np.float16), "q_dtype": "s8", "length": k}
    words = octavo.pack(codes.view(np.int32), **given)
    dense = octavo.pack(levels.astype(np.int8), **given)
    assert words.serialize() == dense.serialize()
    assert words.scale_dtype == "f16"


@pytest.mark.parametrize(
    ("q_dtype", "length", "argument", "says"),
    [("s4", 8, "length", "expected 9 to 16 for rows of 2 words of 32 bits, got 8"),
     ("s4", 17, "length", "expected 9 to 16 for rows of 2 words of 32 bits, got 17"),
     ("s8", 4, "length", "expected 5 to 8 for rows of 2 words of 32 bits, got 4"),
     ("u4", None, "weight_q", "expected uint8"), (None, None, "weight", "s32")],
)  # fmt: skip
def test_words_that_are_none(q_dtype, length, argument, says):
    with pytest.raises(octavo.Error, match=says) as e:
        octavo.pack(np.zeros((3, 2), np.int32), q_dtype=q_dtype, length=length)
    assert argument in e.value.argument


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_one_scale_keeps_its_type(dtype):
    scale = np.array([0.3], dtype)
    one = octavo.pack(S8[:1], scale=scale)
    assert one.scale_dtype == octavo.pack(S8[:2], scale=scale.repeat(2)).scale_dtype
    assert_bits(one.unpack()[1], scale)
    groups = octavo.pack(S8, scale=scale[0], group_size=4)
    assert_bits(groups.unpack()[1], np.full((S8.shape[0], S8.shape[1] // 4), scale[0]))


@pytest.mark.parametrize(("k", "group_size"), [(64, 32), (40, 8), (36, 4), (37, None), (3, None)])
def test_what_compressed_tensors_stores(k, group_size):
    levels = RNG.integers(-8, 8, (5, k))
    codes = np.full((5, -(-k // 8) * 8), 15, np.uint32)  # what fills the last word is not read
    codes[:, :k] = levels + 8
    weight_packed = np.zeros((5, codes.shape[1] // 8), np.uint32)
    for i in range(8):
        weight_packed |= codes[:, i::8] << np.uint32(4 * i)
    scale = RNG.random((5, k // group_size) if group_size else 5).astype(np.float32)
    x = plain(RNG, (3, k), "f32")
    given = {"scale": scale, "group_size": group_size, "length": k}
    stored = octavo.pack(
        weight_packed.view(np.uint8)[:, : (k + 1) // 2], zero_point=8, q_dtype="u4", **given
    )
    dense = octavo.pack(oracles.pack4(levels), q_dtype="s4", **given)
    words = octavo.pack(weight_packed.view(np.int32), q_dtype="s4", **given)
    assert words.serialize() == dense.serialize()
    assert words.dtype == "s4" and not words.has_zero_point
    apart = np.zeros((5, weight_packed.shape[1] + 3), np.int32)[:, 1:-2]
    apart[...] = weight_packed.view(np.int32)
    assert octavo.pack(apart, q_dtype="s4", **given).serialize() == dense.serialize()
    for quantized in ("s8", "s16"):
        want = octavo.linear(x, dense, quantized=quantized)
        assert_bits(octavo.linear(x, stored, quantized=quantized), want)
