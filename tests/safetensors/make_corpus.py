"""Asks PyPI's safetensors which files it accepts, and what it reads from them.

Writes to --out: corpus.bin, many small files valid and damaged with the verdict of the reference;
written.safetensors, a file that the reference wrote. safetensors_corpus_test.cpp reads both.
"""

import argparse
import json
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8,
    "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16,
    "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64,
}  # fmt: skip
REJECTED, ACCEPTED, DUPLICATE = 0, 1, 2
MAX64 = 2**64 - 1


def has_duplicates(data: bytes) -> bool:
    """Whether a tensor or a key of the metadata is there twice: the reference takes the last."""
    (n,) = struct.unpack("<Q", data[:8])
    pairs = json.loads(data[8 : 8 + n].decode(), object_pairs_hook=list)
    names = [k for k, _ in pairs]
    metadata = [k for key, value in pairs if key == "__metadata__" and value for k, _ in value]
    return len(set(names)) < len(names) or len(set(metadata)) < len(metadata)


def verdict(data: bytes) -> tuple[int, str]:
    try:
        tensors = safetensors.deserialize(data)
    except safetensors.SafetensorError:
        return REJECTED, ""
    if has_duplicates(data):
        return DUPLICATE, ""
    lines = [
        f"{name.encode().hex()} {t['dtype']} {list(t['shape'])} {zlib.crc32(t['data'])}"
        for name, t in tensors
    ]
    return ACCEPTED, "\n".join(sorted(lines))


def entry(rng: random.Random, at: int) -> tuple[dict, int]:
    dtype = rng.choice(list(BITS))
    shape = [rng.choice([0, 1, 2, 3, 4, 8]) for _ in range(rng.randrange(4))]
    count = 1
    for size in shape:
        count *= size
    if count * BITS[dtype] % 8:
        shape.append(8)
        count *= 8
    size = count * BITS[dtype] // 8
    return {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}, at + size


def valid(rng: random.Random) -> tuple[dict, bytes]:
    names = ["a", "model.layers.0.weight", "", "\u00e9\u4e2d", "x\ny", "z" * 40, "__metadata", "\0"]
    rng.shuffle(names)
    header: dict = {}
    if rng.random() < 0.5:
        header["__metadata__"] = {"format": "pt", "k": "v\u00e9"}
    at = 0
    for name in names[: rng.randrange(6)]:
        header[name], at = entry(rng, at)
    items = list(header.items())
    rng.shuffle(items)
    return dict(items), rng.randbytes(at)


def assemble(text: bytes, data: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text + data


WEIRD = [
    0, 1, -1, 1.0, 1e3, -0.0, None, True, "", "F32", "f32", [], {}, [0], [0, 4], [4, 0], [0, 4, 8],
    2**31, 2**32, 2**63 - 1, 2**63, MAX64, 2**64, 2**70, [MAX64, MAX64], [MAX64, 0], [0, MAX64],
    {"F32": None}, {"F32": 1}, {"F32": None, "I8": None}, {"a": "b"}, {"a": 1},
    ["F32", [1], [0, 4]], ["F32", [1]], ["F32", [1], [0, 4], 1], "I4", "BF16", [[1]], [1, None],
]  # fmt: skip


def change_structure(rng: random.Random, header: dict) -> dict:
    """A header whose JSON is right and whose contents may be wrong."""
    header = json.loads(json.dumps(header))
    names = [k for k in header if k != "__metadata__"]
    kind = rng.randrange(9)
    if kind == 0 or not names:
        header[rng.choice(["__metadata__", "new", "a"])] = rng.choice(WEIRD)
        return header
    name = rng.choice(names)
    tensor = header[name]
    if kind == 1:
        header[name] = rng.choice(WEIRD)
    elif kind == 2:
        tensor[rng.choice(["dtype", "shape", "data_offsets"])] = rng.choice(WEIRD)
    elif kind == 3:
        del tensor[rng.choice(["dtype", "shape", "data_offsets"])]
    elif kind == 4:
        tensor[rng.choice(["extra", "Dtype", ""])] = rng.choice(WEIRD)
    elif kind == 5:
        tensor["data_offsets"][rng.randrange(2)] += rng.choice([-4, -1, 1, 4, 2**64 - 4, MAX64])
    elif kind == 6:
        tensor["shape"].insert(rng.randrange(len(tensor["shape"]) + 1), rng.choice(
            [0, 1, 2, 2**32, 2**61, 2**63, MAX64]))  # fmt: skip
    elif kind == 7:
        tensor["dtype"] = rng.choice(list(BITS))
    else:
        header[name] = [tensor["dtype"], tensor["shape"], tensor["data_offsets"]]
    return header


def change_bytes(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        if not out:
            break
        at = rng.randrange(min(len(out), 400))
        kind = rng.randrange(5)
        if kind == 0:
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at]
        elif kind == 2:
            out.insert(at, rng.choice(b'"{}[],: 0123456789\\\0\t\n\xff\x80eE+-.u'))
        elif kind == 3:
            del out[at:]
        else:
            start = rng.randrange(min(len(out), 400))
            out[at:at] = out[start : start + rng.randrange(1, 60)]
    return bytes(out)


def texts() -> list[tuple[bytes, bytes]]:
    """Headers written by hand, each with four bytes of data that one tensor may take."""
    one = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    many = [
        "{}", " {}", "\n{}", "{}  ", "{}\n\t\r", "{}\0", "\ufeff{}", "[]", "null", "1", '""', "",
        '{"a":%s}', '{"a":%s}  ', '\t{"a":%s}', '{"a":%s}\0', '{"a":%s}x', '{"a":%s,}', "{'a':%s}",
        '{"a":%s,"a":%s}', '{"__metadata__":{"a":"b","a":"c"},"a":%s}',
        '{"__metadata__":null,"a":%s}',
        '{"__metadata__":{},"__metadata__":{},"a":%s}', '{"__metadata__":{"a":null},"a":%s}',
        '{"__metadata__":[],"a":%s}', '{"__metadata__":"","a":%s}', '{"__metadata__":%s,"a":%s}',
        '{"a\\u0000":%s}', '{"a\\ud800":%s}', '{"\\ud83d\\ude00":%s}', '{"\\x":%s}', '{"a\tb":%s}',
        '{"\\u00e9":%s}', '{"a":%s}//', '{"a":%s /* */}', '{"a": %s, "b": NaN}', '{a:%s}',
        '{"a":["F32",[1],[0,4]]}', '{"a":["F32",[1],[0,4],{}]}', '{"a":[{"F32":null},[1],[0,4]]}',
        '{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}',
        '{"a":{"dtype":{"F32":{}},"shape":[1],"data_offsets":[0,4]}}',
        '{"a":{"dtype":{"F32":null,"F32":null},"shape":[1],"data_offsets":[0,4]}}',
        '{"a":{"dtype":{},"shape":[1],"data_offsets":[0,4]}}',
        '{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        '{"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}}',
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[-0,4]}}',
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0e0,4]}}',
        '{"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}}',
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":[1e400]}}',
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1e-400}}',
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":{"b":1,"b":[{}]}}}',
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":[true,false,null,"",-1]}}',
        '{"a":{"dtype":"F32","shape":[18446744073709551615,0],"data_offsets":[0,0]},"b":%s}',
        '{"a":{"dtype":"F32","shape":[0,18446744073709551615],"data_offsets":[0,0]},"b":%s}',
        '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}',
        '{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}',
    ]  # fmt: skip
    for depth in (120, 124, 125, 126, 127, 500):
        nested = "[" * depth + "]" * depth
        many.append('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":' + nested + "}}")
        nested = '{"x":' * depth + "1" + "}" * depth
        many.append('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":' + nested + "}}")
    out = []
    for text in many:
        encoded = text.replace("%s", one).encode()
        out += [(encoded, bytes(4)), (encoded, b"")]
    out += [(b'{"\xff":' + one.encode() + b"}", bytes(4)), (b"\xff\xfe{}", b"")]
    return out


def files(rng: random.Random, count: int) -> list[bytes]:
    out = [assemble(text, data) for text, data in texts()]
    out += [b"", b"1234567", bytes(8), assemble(b"{}", b"", 3), assemble(b"{}", b"", 1)]
    out += [assemble(b"{}", b"", n) for n in (100_000_000, 100_000_001, 2**63, MAX64, MAX64 - 7)]
    while len(out) < count:
        header, data = valid(rng)
        text = json.dumps(header, ensure_ascii=rng.random() < 0.5).encode()
        whole = assemble(text + b" " * rng.randrange(9), data)
        out.append(whole)
        out += [change_bytes(rng, whole) for _ in range(4)]
        for _ in range(4):
            changed = json.dumps(change_structure(rng, header)).encode()
            out.append(assemble(changed, data))
        # Bytes of the header changed, and its length corrected.
        out += [assemble(change_bytes(rng, text), data) for _ in range(4)]
        out.append(whole + rng.randbytes(rng.randrange(1, 5)))
    return out


def write_reference(path: Path) -> None:
    rng = np.random.default_rng(2)
    tensors = {
        "b.weight": rng.standard_normal((3, 5)).astype(np.float16),
        "a.weight": rng.standard_normal(2).astype(np.float16),
        "z": rng.integers(-128, 128, 7).astype(np.int8),
        "scale": rng.standard_normal((3, 1)).astype(np.float32),
        "count": np.array([3], np.int64),
        "none": np.zeros((0, 4), np.float32),
    }
    path.write_bytes(safetensors.numpy.save(tensors, {"format": "pt"}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--files", type=int, default=30000)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    counts = [0, 0, 0]
    with (args.out / "corpus.bin").open("wb") as out:
        for data in files(random.Random(1), args.files):
            kind, text = verdict(data)
            counts[kind] += 1
            out.write(struct.pack("<IQQ", kind, len(data), len(text.encode())))
            out.write(data + text.encode())
    write_reference(args.out / "written.safetensors")
    print(
        f"== safetensors {safetensors.__version__}: {counts[ACCEPTED]} files accepted, "
        f"{counts[REJECTED]} rejected, {counts[DUPLICATE]} with duplicate names"
    )


if __name__ == "__main__":
    main()
