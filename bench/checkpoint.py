"""How fast `octavo quantize` is, beside copying the same files: ./dev bench checkpoint.

A checkpoint of a Llama's shapes in bf16, in several files, is made where files are memory
(/dev/shm), so that everything comes from the page cache and nothing waits for a disk. Then, in
turns:

    cp            cp -r, one process: each byte is read once and written once
    cp, N cores   one cp per file, N at a time: what the system can do at most
    w8a8-dynamic, w4a16-group, w8a8-static smoothed
    llm-compressor's model_free_ptq, W8A8 of the same files, with --peer-python PYTHON

A rate is bytes of the input plus bytes of the output over the whole time of the process, the best
of all turns. (Smoothing reads most weights twice; they are counted once.)
"""

import argparse
import json
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

import numpy as np

HIDDEN, INNER, VOCABULARY = 4096, 11008, 8192


def tensors_of(layers):
    """Names and shapes, in the order of a model."""
    yield "model.embed_tokens.weight", (VOCABULARY, HIDDEN)
    for i in range(layers):
        block = f"model.layers.{i}."
        for part in "qkvo":
            yield f"{block}self_attn.{part}_proj.weight", (HIDDEN, HIDDEN)
        yield f"{block}mlp.gate_proj.weight", (INNER, HIDDEN)
        yield f"{block}mlp.up_proj.weight", (INNER, HIDDEN)
        yield f"{block}mlp.down_proj.weight", (HIDDEN, INNER)
        yield f"{block}input_layernorm.weight", (HIDDEN,)
        yield f"{block}post_attention_layernorm.weight", (HIDDEN,)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (VOCABULARY, HIDDEN)


def write_file(path, entries, metadata):
    """A safetensors file of (name, dtype, shape, arrays of its bytes)."""
    header, at = {"__metadata__": metadata}, 0
    for name, dtype, shape, blocks in entries:
        end = at + sum(block.nbytes for block in blocks)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, blocks in entries:
            for block in blocks:
                file.write(block.data)


def make_checkpoint(directory, layers, shards):
    """Random weights: blocks of one pool, each tensor from another place."""
    directory.mkdir(parents=True)
    rng = np.random.default_rng(1)
    values = rng.standard_normal(1 << 24, dtype=np.float32) * np.float32(0.02)
    pool = (values.view(np.uint32) >> 16).astype(np.uint16)
    ones = np.full(HIDDEN, 0x3F80, np.uint16)

    def blocks(shape):
        if len(shape) == 1:
            return [ones]
        left, start = shape[0] * shape[1], int(rng.integers(1 << 20))
        out = []
        while left:
            out.append(pool[start : start + left])
            left, start = left - out[-1].size, 0
        return out

    tensors = list(tensors_of(layers))
    total = sum(2 * int(np.prod(shape)) for _, shape in tensors)
    files, done = [[] for _ in range(shards)], 0
    for name, shape in tensors:
        files[min(shards - 1, done * shards // total)].append((name, "BF16", shape, blocks(shape)))
        done += 2 * int(np.prod(shape))
    weight_map = {}
    for i, entries in enumerate(files):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        write_file(directory / name, entries, {"format": "pt"})
        weight_map.update({entry[0]: name for entry in entries})
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    (directory / "config.json").write_text(json.dumps(config))


def make_statistics(path, layers):
    rng = np.random.default_rng(2)
    entries = []
    for name, shape in tensors_of(layers):
        if "_proj" not in name:
            continue
        module = name.removesuffix(".weight")
        high = np.abs(rng.standard_normal(shape[1], dtype=np.float32)) + np.float32(0.1)
        for suffix, values in (("absmax", high), ("min", -high), ("max", high)):
            entries.append((f"{module}.input_{suffix}", "F32", values.shape, [values]))
        entries.append((f"{module}.count", "I64", (1,), [np.array([1])]))
    write_file(path, entries, {"octavo.stats": "1"})


def bytes_of(directory):
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


PEER = """
import sys, time
from llmcompressor import model_free_ptq
start = time.perf_counter()
model_free_ptq(sys.argv[1], sys.argv[2], "W8A8", ignore=["re:.*lm_head", "re:.*embed_tokens"],
               max_workers=int(sys.argv[3]), device="cpu")
print(time.perf_counter() - start)
"""


def contestants(octavo, work, threads, peer_python):
    """Each makes work/out and returns its seconds."""
    source, out, stats = str(work / "in"), str(work / "out"), str(work / "stats")

    def timed(command, **options):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, text=True, **options)
        return time.perf_counter() - start

    def quantize(*options):
        command = [octavo, "--threads", str(threads), "quantize", source, out, *options]
        return lambda: timed(command)

    def copy_files():
        os.mkdir(out)
        files = "\n".join(str(file) for file in sorted(Path(source).iterdir()))
        return timed(["xargs", "-P", str(threads), "-I{}", "cp", "{}", out], input=files)

    def peer():
        ran = subprocess.run(
            [peer_python, "-c", PEER, source, out, str(threads)],
            check=True,
            capture_output=True,
            text=True,
        )
        return float(ran.stdout.split()[-1])

    yield "cp", lambda: timed(["cp", "-r", source, out])
    yield f"cp, {threads} cores", copy_files
    yield "w8a8-dynamic", quantize()
    yield "w4a16-group", quantize("--scheme", "w4a16-group")
    yield "w8a8-static smoothed", quantize("--scheme", "w8a8-static", "--smooth", stats)
    if peer_python:
        yield "llm-compressor w8a8", peer


def main():
    parser = argparse.ArgumentParser(description="octavo quantize against cp")
    parser.add_argument("octavo", help="the command")
    parser.add_argument("--layers", type=int, default=6, help="0.4 GB each (default 6)")
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--directory", default="/dev/shm", help="where; /dev/shm is memory")
    parser.add_argument("--peer-python", help="a Python that has llm-compressor")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    work = Path(arguments.directory) / f"octavo-bench-{os.getpid()}"
    figures = {}
    try:
        make_checkpoint(work / "in", arguments.layers, arguments.files)
        make_statistics(work / "stats", arguments.layers)
        size = bytes_of(work / "in")
        print(f"{size / 1e9:.2f} GB of bf16 in {arguments.files} files, {threads} cores, in {work}")
        for turn in range(arguments.turns):
            for name, run in contestants(arguments.octavo, work, threads, arguments.peer_python):
                if turn > 2 and "llm-compressor" in name:
                    continue  # it takes long
                shutil.rmtree(work / "out", ignore_errors=True)
                seconds = run()
                moved = size + bytes_of(work / "out")
                best = figures.setdefault(name, {"seconds": seconds, "bytes": moved})
                best["seconds"] = min(best["seconds"], seconds)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    names = list(figures)
    for figure in figures.values():
        figure["rate"] = figure["bytes"] / figure["seconds"]
    print(f"{'':22} {'seconds':>8} {'GB moved':>9} {'GB/s':>6} {'of cp':>6} {'of ' + names[1]:>14}")
    for name, figure in figures.items():
        print(
            f"{name:22} {figure['seconds']:8.3f} {figure['bytes'] / 1e9:9.2f}"
            f" {figure['rate'] / 1e9:6.2f} {figure['rate'] / figures['cp']['rate']:6.2f}"
            f" {figure['rate'] / figures[names[1]]['rate']:14.2f}"
        )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
