"""Reads checkpoints of `octavo quantize` with PyPI's compressed-tensors, which is what vLLM uses.

For every scheme: config.json is parsed by its strict models, every quantized layer has the names,
types and shapes that its compressor expects, and what its compressor makes of them is, bit for bit,
scale * q of the file, as near to the float weights as the scheme allows.

    OCTAVO_COMPRESSED_TENSORS=PATH:... check.py OCTAVO SCRATCH

The variable says where the package, safetensors and PyTorch are: `./dev conformance` installs them.
Exits with 77, which ctest shows as skipped, without them.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

try:
    sys.path[:0] = os.environ["OCTAVO_COMPRESSED_TENSORS"].split(":")
    import torch
    from compressed_tensors.compressors.base import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from safetensors.torch import load_file, save_file
except (KeyError, ImportError) as error:
    print(f"skipped: {error!r}")
    sys.exit(77)

GROUP = 8
SCHEMES = {
    "w8a8-dynamic": ([], "int-quantized"),
    "w8a8-static": (["--smooth", "STATISTICS"], "int-quantized"),
    "w4a16-group": (["--group-size", str(GROUP)], "pack-quantized"),
}


def make_float(directory):
    """A small Llama in bf16, and statistics of its layers."""
    generator = torch.Generator().manual_seed(1)
    tensors, statistics = {}, {}

    def add(name, *shape):
        tensors[name] = (torch.randn(*shape, generator=generator) * 0.05).bfloat16()
        if "_proj" in name:
            module = name.removesuffix(".weight")
            high = torch.rand(shape[1], generator=generator) + 0.1
            statistics[f"{module}.input_absmax"] = high
            statistics[f"{module}.input_min"] = -high
            statistics[f"{module}.input_max"] = high.clone()
            statistics[f"{module}.count"] = torch.tensor([3])

    add("model.embed_tokens.weight", 32, 48)
    for i in range(2):
        block = f"model.layers.{i}."
        for part in "qkvo":
            add(f"{block}self_attn.{part}_proj.weight", 48, 48)
        add(f"{block}mlp.gate_proj.weight", 72, 48)
        add(f"{block}mlp.up_proj.weight", 72, 48)
        add(f"{block}mlp.down_proj.weight", 48, 72)
        add(f"{block}input_layernorm.weight", 48)
        add(f"{block}post_attention_layernorm.weight", 48)
    add("lm_head.weight", 32, 48)
    (directory / "in").mkdir(parents=True)
    save_file(tensors, directory / "in" / "model.safetensors", {"format": "pt"})
    (directory / "in" / "config.json").write_text('{"model_type": "llama"}')
    save_file(statistics, directory / "statistics", {"octavo.stats": "1"})


def tensors_of(directory):
    tensors = {}
    for file in sorted(Path(directory).glob("*.safetensors")):
        tensors.update(load_file(file))
    return tensors


def unpacked(packed, columns):
    """int4 values of a row, the first in the lowest nibble, as formats say it."""
    shifts = torch.arange(0, 32, 4)
    nibbles = (packed.unsqueeze(-1) >> shifts) & 15
    return nibbles.reshape(packed.shape[0], -1)[:, :columns] - 8


def check_layer(compressor, scheme, name, stored, module):
    """The float weights, as compressed-tensors restores them and as the format defines them."""
    scale = stored[f"{module}.weight_scale"].float()
    if name == "w4a16-group":
        shape = stored[f"{module}.weight_shape"].tolist()
        q = unpacked(stored[f"{module}.weight_packed"], shape[1]).float()
        expected = q * scale.repeat_interleave(GROUP, 1)
    else:
        assert f"{module}.weight_zero_point" not in stored
        expected = stored[f"{module}.weight"].float() * scale
    parts = {k.rsplit(".", 1)[1]: v for k, v in stored.items() if k.rsplit(".", 1)[0] == module}
    assert ("input_scale" in parts) == (name == "w8a8-static"), parts.keys()
    restored = compressor.decompress(dict(parts), scheme)["weight"].float()
    assert torch.equal(restored, expected), (name, module)
    return expected


def check_scheme(octavo, source, statistics, out, name):
    options, layout = SCHEMES[name]
    options = [statistics if o == "STATISTICS" else o for o in options]
    subprocess.run(
        [octavo, "quantize", source, str(out), "--scheme", name, *options],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    parsed = QuantizationConfig.model_validate(config)
    assert parsed.format == layout
    (scheme,) = parsed.config_groups.values()
    compressor = BaseCompressor.get_value_from_registry(layout)
    original, stored = tensors_of(source), tensors_of(out)
    layers = [k.removesuffix(".weight_scale") for k in stored if k.endswith(".weight_scale")]
    assert layers
    for module in layers:
        weights = check_layer(compressor, scheme, name, stored, module)
        before = original[f"{module}.weight"].float()
        assert weights.shape == before.shape
        if name != "w8a8-static":  # (smoothing changes the weights)
            error = ((weights - before).norm() / before.norm()).item()
            assert error < (0.02 if name == "w8a8-dynamic" else 0.2), (module, error)
    print(f"{name}: {len(layers)} layers")


def main():
    octavo, scratch = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(scratch, ignore_errors=True)
    make_float(scratch)
    for name in SCHEMES:
        check_scheme(octavo, str(scratch / "in"), str(scratch / "statistics"), scratch / name, name)


if __name__ == "__main__":
    main()
