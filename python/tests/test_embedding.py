"""Rows of tables of every type, against NumPy to the bit; and what is refused."""

import numpy as np
import octavo
import oracles
import pytest
import torch
from arrays import DTYPES, LAYOUTS, ROWS, SEEDS, OnlyDLPack, lay_out, values
from hypothesis import given
from hypothesis import strategies as st
from oracles import FLOATS, RANGES, assert_bits

BYTES = {"s8": np.int8, "u8": np.uint8}
NARROW = ("f32", "f16", "bf16")
INDICES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ONE = octavo.Stream(threads=1)
OUTPUTS = st.sampled_from(NARROW)


def indices_of(rng, shape, n, dtype, layout):
    return lay_out(rng.integers(0, n, shape).astype(dtype), layout)


@given(ROWS, st.sampled_from([1, 5, 17]), st.sampled_from([0, 1, 7, 64]), st.sampled_from(NARROW),
       OUTPUTS, st.sampled_from(INDICES), LAYOUTS, SEEDS)  # fmt: skip
def test_tables_of_floats(shape, n, k, dtype, out_dtype, index, layout, seed):
    rng = np.random.default_rng(seed)
    table = values(rng, (n, k), dtype)
    rows = indices_of(rng, shape, n, index, layout)
    got = octavo.embedding(rows, lay_out(table, layout), out_dtype=out_dtype, stream=ONE)
    want = table[rows.astype(np.int64)]
    assert_bits(got, want if dtype == out_dtype else oracles.round_to(want, FLOATS[out_dtype]))


@given(ROWS, st.sampled_from([1, 2, 5, 17]), st.sampled_from([0, 1, 3, 8, 33, 64]),
       st.sampled_from(["s8", "u8", "s4", "u4"]), OUTPUTS, DTYPES,
       st.sampled_from(["number", "one", "rows", "column", "group"]),
       st.sampled_from(["none", "number", "array"]), st.sampled_from(INDICES), LAYOUTS,
       SEEDS)  # fmt: skip
def test_quantized_tables(shape, n, k, integer, out_dtype, scale_type, kind, zero, index, layout,
                          seed):  # fmt: skip
    rng = np.random.default_rng(seed)
    low, high = RANGES[integer]
    levels = rng.integers(low, high + 1, (n, k))
    group = {8: 4, 64: 16}.get(k) if kind == "group" else None
    size = {"number": (), "one": (1,), "column": (n, 1)}.get(kind, (n,))
    size = (n, k // group) if group else size
    scale = np.exp(rng.normal(-3, 1, size)).astype(FLOATS[scale_type])
    zeros = rng.integers(low, high + 1, size)
    zero_point = {"none": None, "number": high // 2, "array": zeros}[zero]

    def spread(a):
        a = np.asarray(a)
        if group:
            a = np.repeat(np.broadcast_to(a, size), group, axis=1)
        return np.broadcast_to(a if a.ndim != 1 else a[:, None], (n, k))

    packed = integer in oracles.PACKED
    table = oracles.pack4(levels) if packed else levels.astype(BYTES[integer])
    rows = indices_of(rng, shape, n, index, layout)
    got = octavo.embedding(
        rows, lay_out(table, layout), lay_out(scale, layout), zero_point=zero_point,
        group_size=group, q_dtype=integer if packed else None,
        length=k if packed and k % 2 else None, out_dtype=out_dtype, stream=ONE,
    )  # fmt: skip
    restored = oracles.dequantize(
        levels, spread(scale), spread(0 if zero_point is None else zero_point), out_dtype
    )
    assert_bits(got, restored[rows.astype(np.int64)])


TABLE = np.arange(24, dtype=np.int8).reshape(6, 4)
FLOAT = np.arange(24, dtype=np.float32).reshape(6, 4)


def test_indices_of_every_form():
    want = FLOAT[[3, 0]]
    for rows in ([3, 0], (3, 0), np.int32([3, 0]), torch.tensor([3, 0]), np.int64([3, 9, 0])[::2],
                 OnlyDLPack(np.int16([3, 0]))):  # fmt: skip
        assert_bits(octavo.embedding(rows, FLOAT), want)
    for row in (3, np.int64(3), np.array(3), torch.tensor(3)):
        got = octavo.embedding(row, FLOAT)
        assert got.shape == (4,)
        assert_bits(got, FLOAT[3])
    assert octavo.embedding(np.int32([3]), FLOAT).shape == (1, 4)
    assert octavo.embedding(np.int32([[3]]), FLOAT).shape == (1, 1, 4)
    assert octavo.embedding(np.zeros((2, 0), np.int64), FLOAT).shape == (2, 0, 4)


def test_the_result_is_of_the_tables_maker():
    table = torch.from_numpy(FLOAT).to(torch.bfloat16)
    got = octavo.embedding([[1], [5]], table, out_dtype="bf16")
    assert isinstance(got, torch.Tensor) and got.dtype == torch.bfloat16
    assert torch.equal(got, table[torch.tensor([[1], [5]])])
    assert isinstance(octavo.embedding(torch.tensor([1]), FLOAT), np.ndarray)


def test_out_is_written_where_it_is():
    memory = np.full((3, 9), 7, np.float32)
    out = memory[:, 2:6]
    assert octavo.embedding([5, 0, 1], TABLE, 0.5, out=out) is out
    assert_bits(out, FLOAT[[5, 0, 1]] * np.float32(0.5))
    assert (memory[:, [0, 1, 6, 7, 8]] == 7).all()
    out = np.zeros((2, 3, 4), np.float16)
    octavo.embedding(np.ones((2, 3), int), FLOAT, out_dtype="f16", out=out)
    assert (out == FLOAT[1]).all()


def test_rows_that_threads_share():
    rng = np.random.default_rng(1)
    table, rows = rng.integers(-128, 128, (40, 512)).astype(np.int8), rng.integers(0, 40, 2000)
    scale = rng.random(40).astype(np.float32)
    want = octavo.embedding(rows, table, scale, stream=ONE)
    for target in octavo.targets():
        stream = octavo.Stream(threads=5, target=target)
        assert_bits(octavo.embedding(rows, table, scale, stream=stream), want)


NIBBLES = np.zeros((6, 2), np.uint8)
INVALID, UNSUPPORTED = "invalid_problem", "unsupported"
WRONG = [
    ({"indices": None}, INVALID, "indices", "got None"),
    ({"indices": [0, 6]}, INVALID, "indices", "expected 0 to 5 (the table has 6 rows), got 6 at"),
    ({"indices": [0, -1]}, INVALID, "indices", "got -1"),
    ({"indices": [0, 2**31]}, INVALID, "indices", "got 2147483648 at index 1"),
    ({"indices": np.uint64([0, 2**64 - 1])}, INVALID, "indices", "32 bits"),
    ({"indices": 2**40}, INVALID, "indices", "32 bits"),
    ({"indices": [0.0, 1.0]}, UNSUPPORTED, "indices", "float64"),
    ({"indices": [True, False]}, UNSUPPORTED, "indices", "bool"),
    ({"indices": "01"}, UNSUPPORTED, "indices", "'01'"),
    ({"indices": np.zeros([1] * 8, int)}, INVALID, "indices", "at most 7 dimensions"),
    ({"table": TABLE[0]}, INVALID, "table", "(N, K), got (4,)"),
    ({"table": np.array(1.0)}, INVALID, "table", "scalar"),
    ({"table": TABLE.astype(np.int16)}, UNSUPPORTED, "table", "got s16"),
    ({"table": FLOAT.astype(np.float64), "scale": None}, UNSUPPORTED, "table", "got f64"),
    ({"table": FLOAT}, INVALID, "scale", "a table of f32 has none"),
    ({"table": FLOAT, "scale": None, "zero_point": 0}, INVALID, "zero_point", "f32 has none"),
    ({"table": FLOAT, "scale": None, "group_size": 4}, INVALID, "group_size", "f32 has none"),
    ({"table": FLOAT, "scale": None, "q_dtype": "s4"}, UNSUPPORTED, "table", "float32"),
    ({"scale": None}, INVALID, "scale", "got None"),
    ({"scale": np.ones(4)}, INVALID, "scale", "one per row (shape (6,)), got shape (4,)"),
    ({"scale": np.full(6, np.nan)}, INVALID, "scale", "finite"),
    ({"scale": 1e300}, INVALID, "scale", "finite"),
    ({"zero_point": np.ones(5, int)}, INVALID, "zero_point", "one per row"),
    ({"zero_point": 128}, INVALID, "zero_point", "-128 to 127"),
    ({"zero_point": 0.5}, UNSUPPORTED, "zero_point", "0.5"),
    ({"group_size": 3}, INVALID, "group_size", "got 3"),
    ({"group_size": 0}, INVALID, "group_size", "got 0"),
    ({"table": np.ones((6, 8), np.int8), "group_size": 4, "scale": np.ones(6)}, INVALID, "scale",
     "(6, 2)"),
    ({"q_dtype": "s4"}, UNSUPPORTED, "table", "uint8"),
    ({"q_dtype": "s5"}, UNSUPPORTED, "q_dtype", "'s5'"),
    ({"length": 5}, INVALID, "length", "got 5"),
    ({"table": NIBBLES, "q_dtype": "u4", "length": 2}, INVALID, "length", "got 2"),
    ({"out_dtype": "f64"}, UNSUPPORTED, "out_dtype", "got f64"),
    ({"out_dtype": "s8"}, UNSUPPORTED, "out_dtype", "got s8"),
    ({"out_dtype": "s4"}, UNSUPPORTED, "out_dtype", "got s4"),
    ({"out": np.full((2, 5), 7, np.float32)}, INVALID, "out", "expected shape (2, 4), got (2, 5)"),
    ({"out": np.full((2, 4), 7, np.float16)}, UNSUPPORTED, "out", "f16"),
    ({"out": np.full((2, 8), 7, np.float32)[:, ::2]}, INVALID, "out", "consecutive"),
    ({"stream": 1}, UNSUPPORTED, "stream", "octavo.Stream"),
]  # fmt: skip


@pytest.mark.parametrize("wrong,code,argument,words", WRONG)
def test_refusals(wrong, code, argument, words):
    call = {"indices": [0, 5], "table": TABLE, "scale": 0.5,
            "out": np.full((2, 4), 7, np.float32), **wrong}  # fmt: skip
    with pytest.raises(octavo.Error) as e:
        octavo.embedding(**call)
    assert (e.value.code, e.value.argument) == (code, argument), str(e.value)
    assert words in str(e.value)
    assert (call["out"] == 7).all()


def test_overlaps_are_refused():
    memory = np.zeros(64, np.float32)
    out, table = memory[:8].reshape(2, 4), memory[4:28].reshape(6, 4)
    apart = {"table": TABLE, "scale": np.ones(6, np.float32)}
    over = [
        ({"table": table}, "table"),
        ({"table": memory[: 6 * 8].reshape(6, 8)[:, ::2]}, "table"),  # (which is copied)
        ({**apart, "scale": memory[2:8]}, "scale"),
        ({**apart, "zero_point": memory.view(np.int32)[2:8]}, "zero_point"),
        ({**apart, "indices": memory.view(np.int32)[3:5]}, "indices"),
        ({**apart, "indices": memory.view(np.int64)[3:5]}, "indices"),  # (which is converted)
    ]
    for call, name in over:
        with pytest.raises(octavo.Error, match=f"out: expected memory apart from {name}"):
            octavo.embedding(**{"indices": [0, 5], **call}, out=out)
    assert not memory.any()
