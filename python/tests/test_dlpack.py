"""DLPack from makers that do not keep to it: refused by argument, in words, and given back."""

import ctypes

import numpy as np
import octavo
import pytest

INVALID, UNSUPPORTED = "invalid_problem", "unsupported"


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


class Managed(ctypes.Structure):
    pass


DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(Managed))
Managed._fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Maker:
    """Hands over float32 [2, 4] of ones, but for what is changed in the tensor."""

    def __init__(self, name=b"dltensor", **changed):
        self.memory = np.ones(8, np.float32)
        self.deleted = 0
        self.name = name
        self.shape = (ctypes.c_int64 * 2)(2, 4)
        self.deleter = DELETER(self.delete)
        self.managed = Managed(
            DLTensor(self.memory.ctypes.data, 1, 0, 2, 2, 32, 1, self.shape, None, 0),
            None,
            self.deleter,
        )
        for field, value in changed.items():
            if field in ("shape", "strides") and value is not None:
                value = (ctypes.c_int64 * len(value))(*value)
            setattr(self.managed.tensor, field, value)

    def delete(self, _):
        self.deleted += 1

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self):
        return new_capsule(ctypes.addressof(self.managed), self.name, None)


# What is wrong: what is changed, the code, and what the refusal says.
WRONG = {
    "no dimensions": ({"ndim": -1}, INVALID, "expected 0 to 8 dimensions, got -1"),
    "the fewest": ({"ndim": -(2**31)}, INVALID, "got -2147483648"),
    "too many": ({"ndim": 9}, INVALID, "expected 0 to 8 dimensions, got 9"),
    "no shape": ({"shape": None}, INVALID, "sizes of 2 dimensions, got a null pointer"),
    "negative size": ({"shape": [2, -4]}, INVALID, r"got shape \(2, -4\)"),
    "huge": ({"shape": [2**40, 2**40]}, INVALID, "sizes of 0 or more that memory can hold"),
    "huge and empty": ({"shape": [0, 2**62], "strides": None}, INVALID, "memory can hold"),
    "far apart": ({"strides": [2**62, 1]}, INVALID, "expected strides that stay within memory"),
    "far together": ({"strides": [2**60, 2**59]}, INVALID, "strides that stay within memory"),
    "far below": ({"strides": [-(2**63), 1]}, INVALID, "expected strides that stay within memory"),
    "no memory": ({"data": None}, UNSUPPORTED, "got a null pointer"),
    "no memory, offset": ({"data": None, "byte_offset": 64}, UNSUPPORTED, "got a null pointer"),
    "offset": ({"byte_offset": 2**64 - 4}, INVALID, "expected an offset within"),
    "cuda": ({"device_type": 2}, UNSUPPORTED, "on the CPU, got .*Maker on DLPack's device 2"),
    "rocm": ({"device_type": 10}, UNSUPPORTED, "expected an array on the CPU"),
    "no device": ({"device_type": -7}, UNSUPPORTED, "expected an array on the CPU"),
    "lanes": ({"lanes": 4}, UNSUPPORTED, "type 2 of 32 bits and 4 lanes"),
    "no lanes": ({"lanes": 0}, UNSUPPORTED, "0 lanes"),
    "complex": ({"code": 5, "bits": 64}, UNSUPPORTED, "DLPack's type 5 of 64 bits"),
    "unknown": ({"code": 255, "bits": 255}, UNSUPPORTED, "DLPack's type 255 of 255 bits"),
    "float8": ({"bits": 8}, UNSUPPORTED, "DLPack's type 2 of 8 bits"),
}
TAKERS = {
    "x": lambda a: octavo.quantize(a, 1.0),
    "scale": lambda a: octavo.quantize(np.ones((2, 4), np.float32), a),
    "weight_q": lambda a: octavo.pack(a),
    "bias": lambda a: octavo.linear(np.ones((2, 4), np.float32), np.ones((3, 4), np.int8), 1, a),
    "rows": lambda a: octavo.Statistics().update("layer", a),
    "out": lambda a: octavo.fake_quantize(np.ones((2, 4), np.float32), 1, out=a),
}


@pytest.mark.parametrize("argument", TAKERS)
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_tensor_in_memory_is_refused(wrong, argument):
    changed, code, words = WRONG[wrong]
    maker = Maker(**changed)
    with pytest.raises(octavo.Error, match=words) as e:
        TAKERS[argument](maker)
    assert e.value.argument == argument and str(e.value).startswith(f"{argument}: expected")
    assert e.value.code == code
    assert maker.deleted == 1
    assert (maker.memory == 1).all()


@pytest.mark.parametrize("name", [b"used_dltensor", b"used_dltensor_versioned", b"", None])
def test_capsules_of_another_kind(name):
    """The structure behind another name is another one: none of it may be read."""
    maker = Maker(name)
    with pytest.raises(octavo.Error, match="x: expected a DLPack capsule named dltensor, got") as e:
        octavo.quantize(maker, 1.0)
    assert e.value.code == UNSUPPORTED and maker.deleted == 0


@pytest.mark.parametrize("device", [(2, 0), (3, 0), ("cpu", 0), (), None, 1])
def test_devices_that_are_not_the_cpu(device):
    maker = Maker()
    maker.__class__ = type("Elsewhere", (Maker,), {"__dlpack_device__": lambda _: device})
    with pytest.raises(octavo.Error, match="^x: expected an array") as e:
        octavo.quantize(maker, 1.0)
    assert e.value.code == UNSUPPORTED and maker.deleted == 0


class Versioned(ctypes.Structure):
    pass


VERSIONED_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(Versioned))
Versioned._fields_ = [
    ("major", ctypes.c_uint32),
    ("minor", ctypes.c_uint32),
    ("context", ctypes.c_void_p),
    ("deleter", VERSIONED_DELETER),
    ("flags", ctypes.c_uint64),
    ("tensor", DLTensor),
]


class VersionedMaker(Maker):
    """The same, of DLPack's version 1."""

    def __init__(self, version=(1, 0), flags=0, **changed):
        super().__init__(b"dltensor_versioned", **changed)
        self.deleter = VERSIONED_DELETER(self.delete)
        self.managed = Versioned(*version, None, self.deleter, flags, self.managed.tensor)


def test_versions():
    for version in ((1, 0), (1, 7)):
        maker = VersionedMaker(version)
        assert (octavo.quantize(maker, 0.5) == 2).all()
        assert maker.deleted == 1
    for version in ((0, 8), (2, 0)):
        maker = VersionedMaker(version)
        with pytest.raises(octavo.Error, match="x: expected DLPack's version 1, got ") as e:
            octavo.quantize(maker, 0.5)
        assert e.value.code == UNSUPPORTED and maker.deleted == 0
    x = np.full((2, 4), 0.3, np.float32)
    read_only, out = VersionedMaker(flags=1), VersionedMaker()
    assert (octavo.quantize(read_only, 0.5) == 2).all()
    with pytest.raises(octavo.Error, match="out: .* got one that is read-only"):
        octavo.fake_quantize(x, 0.5, out=VersionedMaker(flags=1))
    octavo.fake_quantize(x, 0.5, out=out)
    assert (out.memory == 0.5).all()


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_tensor_in_memory_is_refused_of_any_version(wrong):
    changed, code, words = WRONG[wrong]
    maker = VersionedMaker(**changed)
    with pytest.raises(octavo.Error, match=words) as e:
        octavo.quantize(maker, 1.0)
    assert e.value.code == code and maker.deleted == 1


def test_what_is_allowed():
    memory = np.float32([9, 1, 2, 3, 4, 5, 6, 7, 8])
    want = octavo.quantize(memory[1:].reshape(2, 4), 1.0)
    given = {"data": memory.ctypes.data, "byte_offset": 4}
    for strides in (None, [4, 1]):  # null: row after row
        maker = Maker(**given, strides=strides)
        np.testing.assert_array_equal(octavo.quantize(maker, 1.0), want)
        assert maker.deleted == 1
    backwards = Maker(data=memory.ctypes.data + 20, strides=[-4, 1])
    np.testing.assert_array_equal(octavo.quantize(backwards, 1.0), want[::-1])
    empty = Maker(data=None, shape=[0, 4])  # no element, no memory
    assert octavo.quantize(empty, 1.0).shape == (0, 4)
    scalar = Maker(ndim=0, shape=None)
    assert octavo.quantize(scalar, 1.0) == 1
    endless = Maker()
    endless.managed.deleter = DELETER()  # null: there is nothing to give back
    assert octavo.quantize(endless, 1.0).shape == (2, 4)
