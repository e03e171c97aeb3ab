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
INT4 = ["--scheme", "w4a16-group", "--group-size", "32"]
STATIC = ["--scheme", "w8a8-static"]
SCHEMES = {
    "w8a8-dynamic": [],
    "w8a8-dynamic, smoothed": SMOOTH,
    "w8a8-static": [*STATIC, "--stats", str(HERE / "stats.safetensors")],
    "w8a8-static, smoothed": [*STATIC, *SMOOTH],
    "w4a16-group, groups of 32": INT4,
    "w4a16-group, groups of 32, smoothed": [*INT4, *SMOOTH],
}


def int4_weight(tensors: dict[str, Tensor], name: str) -> Tensor:
    """Packed nibbles, the lower first, each 8 above its value; a scale for each group of a row."""
    packed = tensors[f"{name}.weight_packed"].contiguous().view(torch.uint8)
    scale = tensors[f"{name}.weight_scale"]
    rows, columns = tensors[f"{name}.weight_shape"].tolist()
    q = torch.stack((packed % 16, packed // 16), dim=-1).view(rows, -1)[:, :columns].float() - 8
    return (q.view(rows, scale.shape[1], -1) * scale[:, :, None]).view(rows, columns)


def load_quantized(directory: Path) -> Llama:
    """The model in `directory`; its linear layers are those of octavo.torch, or have float weights
    that come from int4."""
    model, tensors = Llama(read_config(directory)), read_tensors(directory)
    for name, module in list(model.named_modules()):
        made: torch.nn.Module | None = None
        if f"{name}.weight_packed" in tensors:
            module.weight.data = int4_weight(tensors, name)
        elif f"{name}.input_scale" in tensors:
            q, scale = tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"]
            act_scale = tensors[f"{name}.input_scale"].item()
            made = octavo.torch.SmoothQuantLinear(q, scale, act_scale=act_scale)
        elif f"{name}.weight_scale" in tensors:
            q, scale = tensors[f"{name}.weight"], tensors[f"{name}.weight_scale"]
            made = octavo.torch.QuantizedLinear(q, scale)
        elif f"{name}.weight" in tensors:
            module.weight.data = tensors[f"{name}.weight"].float()
        if made is not None:
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, made)
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
            arguments = [str(command), "quantize", str(original), str(out), *options]
            subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
            size = (out / "model.safetensors").stat().st_size
            found.append((name, size, loss_of(load_quantized(out), text)))
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
