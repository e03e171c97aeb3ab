"""What quantization costs this model: its perplexity on held-out text, for each scheme.

The command `octavo` quantizes; what it wrote is read back and run by `octavo.torch`. Prints the
table of the README beside this file, which says how to run it.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import tempfile
from pathlib import Path

import octavo
import octavo.torch
import torch
from llama import Llama, load, loss_of, read_config, read_tensors
from torch import Tensor

HERE = Path(__file__).resolve().parent
SMOOTH = ["--smooth", str(HERE / "stats.safetensors"), "--alpha", "auto"]
GROUPS = ["--group-size", "32"]
W4A8 = ["--scheme", "w4a8-group", *GROUPS]
W4A16 = ["--scheme", "w4a16-group", *GROUPS]
STATIC = ["--scheme", "w8a8-static"]
SCHEMES = {
    "w8a8-dynamic": [],
    "w8a8-dynamic, smoothed": SMOOTH,
    "w8a8-static": [*STATIC, "--stats", str(HERE / "stats.safetensors")],
    "w8a8-static, smoothed": [*STATIC, *SMOOTH],
    "w8a16": ["--scheme", "w8a16"],
    "w8a16, smoothed": ["--scheme", "w8a16", *SMOOTH],
    "w4a8-group, groups of 32": W4A8,
    "w4a8-group, groups of 32, smoothed": [*W4A8, *SMOOTH],
    "w4a16-group, groups of 32": W4A16,
    "w4a16-group, groups of 32, smoothed": [*W4A16, *SMOOTH],
}


def unpacked(tensors: dict[str, Tensor], name: str, int4: bool) -> Tensor:
    """The integers of a packed weight, as octavo.torch has them. Words of 32 bits hold the first in
    their lowest bits, each 8 above its value in 4 bits, 128 above it in 8."""
    rows, columns = tensors[f"{name}.weight_shape"].tolist()
    held = tensors[f"{name}.weight_packed"].contiguous().view(torch.uint8).view(rows, -1)
    if int4:
        return (held ^ 0x88)[:, : (columns + 1) // 2].contiguous()
    return (held ^ 0x80).view(torch.int8)[:, :columns].contiguous()


def quantized_layer(tensors: dict[str, Tensor], name: str, scheme: str) -> torch.nn.Module | None:
    """The layer of octavo.torch that has these tensors, if it is quantized."""
    if f"{name}.weight_scale" not in tensors:
        return None
    scale = tensors[f"{name}.weight_scale"]
    if scheme == "w8a8-static":
        act_scale = tensors[f"{name}.input_scale"].item()
        weight = tensors[f"{name}.weight"]
        return octavo.torch.SmoothQuantLinear(weight, scale, act_scale=act_scale)
    if scheme == "w8a8-dynamic":
        return octavo.torch.QuantizedLinear(tensors[f"{name}.weight"], scale)
    q = unpacked(tensors, name, scheme.startswith("w4"))
    return octavo.torch.QuantizedLinear(q, scale, scheme=scheme)


def load_quantized(directory: Path, scheme: str) -> Llama:
    """The model in `directory`, with layers of octavo.torch."""
    model, tensors = Llama(read_config(directory)), read_tensors(directory)
    for name, module in list(model.named_modules()):
        made = quantized_layer(tensors, name, scheme)
        if made is not None:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, made)
        elif f"{name}.weight" in tensors:
            module.weight.data = tensors[f"{name}.weight"].float()
    return model.eval()


def measure(command: Path, schemes: dict[str, list[str]]) -> list[tuple[str, int, float]]:
    """Name, bytes of weights, loss in nats a byte; the float model first."""
    text = (HERE / "held_out.txt").read_bytes()
    original = HERE / "model"
    size = (original / "model.safetensors").stat().st_size
    found = [("float (bf16 weights)", size, loss_of(load(original), text))]
    with tempfile.TemporaryDirectory() as temporary:
        for name, options in schemes.items():
            out = Path(temporary) / name
            # (Without a bound: a layer that is far off is no failure here.)
            arguments = ["quantize", str(original), str(out), "--max-error", "none", *options]
            subprocess.run([str(command), *arguments], check=True, stdout=subprocess.DEVNULL)
            size = (out / "model.safetensors").stat().st_size
            found.append((name, size, loss_of(load_quantized(out, name.split(",")[0]), text)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--octavo", type=Path, default=Path("build/release/bin/octavo"))
    torch.set_num_threads(1)
    found = measure(parser.parse_args().octavo, SCHEMES)
    least = found[0][2]
    print("| | bytes | perplexity | above float |\n|---|---|---|---|")
    for name, size, loss in found:
        more = f"{100 * (math.exp(loss - least) - 1):.2f} %" if loss != least else ""
        print(f"| {name} | {size:,} | {math.exp(loss):.4f} | {more} |")


if __name__ == "__main__":
    main()
