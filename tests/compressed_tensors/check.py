"""Reads checkpoints of `octavo quantize` with PyPI's compressed-tensors, which is what vLLM uses.

For every scheme, and for several in one checkpoint: config.json is parsed by its strict models,
every quantized layer is named by one group of settings and has the names, types and shapes that the
compressor of its format expects, and what that makes of them is, bit for bit, scale * (q - zero
point) of the file, as near to the float weights as the scheme allows.

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
GROUPS = ["--group-size", str(GROUP)]
# The options, the format, and how far weights may be from the float ones (none: they are smoothed).
SCHEMES = {
    "w8a8-dynamic": (["--scheme", "w8a8-dynamic"], "int-quantized", 0.02),
    "w8a8-static": (["--scheme", "w8a8-static", "--smooth", "STATISTICS"], "int-quantized", None),
    "w8a16": (["--scheme", "w8a16"], "pack-quantized", 0.02),
    "w4a16-group": (["--scheme", "w4a16-group", *GROUPS], "pack-quantized", 0.2),
    "w4a16-channel": (
        ["--scheme", "w4a16-group", "--group-size", "channel"],
        "pack-quantized",
        0.3,
    ),
    "w4a16-asymmetric": (
        ["--scheme", "w4a16-group", *GROUPS, "--asymmetric"],
        "pack-quantized",
        0.2,
    ),
    "w4a8-group": (["--scheme", "w4a8-group", *GROUPS], "pack-quantized", 0.2),
    "w4a8-asymmetric": (
        ["--scheme", "w4a8-group", "--group-size", "channel", "--asymmetric"],
        "pack-quantized",
        0.3,
    ),
    "mixed": (
        ["--scheme", "w4a16-group", *GROUPS, "--layer", "*.down_proj=w8a8-dynamic"]
        + ["--layer", "lm_head=w8a16", "--ignore", "*.o_proj"],
        "mixed-precision",
        0.2,
    ),
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


def unpacked(packed, bits, columns):
    """Integers of a row, the first in the lowest bits of a word, as formats say it."""
    shifts = torch.arange(0, 32, bits)
    values = (packed.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    return values.reshape(packed.shape[0], -1)[:, :columns] - (1 << (bits - 1))


def check_layer(scheme, parts):
    """The float weights, as compressed-tensors restores them and as the format defines them."""
    compressor = BaseCompressor.get_value_from_registry(scheme.format)
    scale = parts["weight_scale"].float()
    bits = scheme.weights.num_bits
    if scheme.format == "pack-quantized":
        assert parts["weight_scale"].dtype == torch.bfloat16
        rows, columns = parts["weight_shape"].tolist()
        q = unpacked(parts["weight_packed"], bits, columns).float()
        if not scheme.weights.symmetric:
            zero_point = unpacked(parts["weight_zero_point"].T, bits, rows).T.float()
            q -= zero_point.repeat_interleave(columns // zero_point.shape[1], 1)
        expected = q * scale.repeat_interleave(columns // scale.shape[1], 1)
    else:
        expected = parts["weight"].float() * scale
    asymmetric = not scheme.weights.symmetric
    assert ("weight_zero_point" in parts) == asymmetric, parts.keys()
    inputs = scheme.input_activations
    assert ("input_scale" in parts) == (inputs is not None and not inputs.dynamic), parts.keys()
    restored = compressor.decompress(dict(parts), scheme)["weight"]
    # (In 16 bits where scales are: the product is then rounded once.)
    assert torch.equal(restored, expected.to(restored.dtype)), parts.keys()
    return expected


def scheme_of(parsed, module):
    """The one group that names a module."""
    groups = parsed.config_groups.values()
    assert module not in parsed.ignore, module
    (scheme,) = [g for g in groups if module in g.targets or "Linear" in g.targets]
    return scheme


def check_scheme(octavo, source, statistics, out, name):
    options, layout, bound = SCHEMES[name]
    options = [statistics if o == "STATISTICS" else o for o in options]
    subprocess.run(
        [octavo, "quantize", source, str(out), *options],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    parsed = QuantizationConfig.model_validate(config)
    assert parsed.format == layout
    assert (len(parsed.config_groups) > 1) == (layout == "mixed-precision")
    original, stored = tensors_of(source), tensors_of(out)
    layers = [k.removesuffix(".weight_scale") for k in stored if k.endswith(".weight_scale")]
    assert layers
    for module in layers:
        parts = {k.rsplit(".", 1)[1]: v for k, v in stored.items() if k.rsplit(".", 1)[0] == module}
        weights = check_layer(scheme_of(parsed, module), parts)
        before = original[f"{module}.weight"].float()
        assert weights.shape == before.shape
        if bound is not None:
            error = ((weights - before).norm() / before.norm()).item()
            assert error < bound, (module, error)
    print(f"{name}: {len(layers)} layers")


def main():
    octavo, scratch = sys.argv[1], Path(sys.argv[2])
    shutil.rmtree(scratch, ignore_errors=True)
    make_float(scratch)
    for name in SCHEMES:
        check_scheme(octavo, str(scratch / "in"), str(scratch / "statistics"), scratch / name, name)


if __name__ == "__main__":
    main()
