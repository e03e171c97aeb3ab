"""Tiny models of every architecture through `octavo quantize`, loaded and run by transformers.

For each architecture and scheme, transformers with compressed-tensors loads the result: no tensor
is missing or left over, the weights that it runs with are, bit for bit, scale * q of the file, and
the logits are near those of the float model. Where it cannot load one, `octavo quantize` must
refuse; that transformers still cannot load what is then written for vLLM is checked as well, so
that those words stay true.

    OCTAVO_COMPRESSED_TENSORS=PATH:... models.py OCTAVO SCRATCH [VARIABLE]

The variable (another one, if it is named) says where transformers, compressed-tensors, safetensors
and PyTorch are: `./dev conformance` installs two pairs. Exits with 77, which ctest shows as
skipped, without them.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    variable = sys.argv[3] if len(sys.argv) > 3 else "OCTAVO_COMPRESSED_TENSORS"
    sys.path[:0] = os.environ[variable].split(":")
    import compressed_tensors
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except (KeyError, ImportError) as error:
    print(f"skipped: {error!r}")
    sys.exit(77)

GROUP = 32
# |logits - float logits| / |float logits|. To round to 8 bits costs weights and activations nearly
# 1 % of their size (max / 127 / sqrt(12), the largest of a row being three or four times the
# usual), to 4 bits 9 % (max / 7 / sqrt(12), the largest of 32 being twice the usual). The errors of
# the dozen layers in a row add as squares. Weights that are not loaded cost 100 %.
BOUNDS = {
    "w8a8-dynamic": 0.06,
    "w8a8-static": 0.08,
    "w8a16": 0.06,
    "w4a16-group": 0.5,
    "w4a8-group": 0.5,
}
# Of Llama alone: more of a form, and several in one checkpoint.
FORMS = [
    ("w4a16-group", "--asymmetric"),
    ("w4a16-group", "--layer", "*.down_proj=w8a8-dynamic", "lm_head=w8a16"),
    ("w8a16", "--layer", "lm_head=w8a16"),
]

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = SIZES | {"num_key_value_heads": 2}
MODELS = {
    "llama": GROUPED,
    "mistral": GROUPED,
    "mixtral": GROUPED | {"num_local_experts": 4},
    "qwen2": GROUPED,
    "qwen3": GROUPED | {"head_dim": 16},
    "phi3": GROUPED,
    "gemma": GROUPED | {"head_dim": 16},
    "opt": SIZES | {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "bloom": SIZES | {"n_layer": 2, "n_head": 4},
    "falcon": SIZES,
    "gpt_neox": SIZES,
    "gpt2": SIZES | {"n_inner": 96},
    "bert": SIZES,
    "roberta": SIZES,
    "distilbert": SIZES | {"dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 4},
}
MASKED = {"bert", "roberta", "distilbert"}
UNSMOOTHED = MASKED | {"gemma"}  # their norms feed more than layers

# What transformers does not load, and the words of the refusal: unless it is for vLLM, or ever.
FLOAT_EXPERTS = ["--ignore", "*.experts.*"]
INT4_EXPERTS = "transformers reads experts in int4 alone"
FOR_VLLM = {
    ("mixtral", "w8a8-dynamic"): INT4_EXPERTS,
    **{
        ("falcon", scheme): "FalconLinear of transformers insists"
        for scheme in ("w8a16", "w4a16-group", "w4a8-group")
    },
    ("mixtral", "w8a16"): INT4_EXPERTS,
    **{("mixtral", scheme, *FLOAT_EXPERTS): INT4_EXPERTS for scheme in BOUNDS},
    **{("gpt2", scheme): "the layers of GPT-2 are Conv1D" for scheme in BOUNDS},
}
ONLY_TRANSFORMERS = {"bloom"}
REFUSED = {
    ("mixtral", scheme): "scheme: expected w8a8-dynamic or w4a16-group for experts"
    for scheme in ("w8a8-static", "w4a8-group")
}


def logits_of(model):
    tokens = torch.randint(3, 96, (4, 24), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return model(input_ids=tokens).logits.double()


def distance(logits, expected):
    return ((logits - expected).norm() / expected.norm()).item()


class Model:
    """A float model on disk, with statistics of its layers."""

    def __init__(self, octavo, directory, architecture, dtype):
        self.octavo, self.directory, self.architecture = octavo, directory, architecture
        self.dtype = dtype
        auto = "AutoModelForMaskedLM" if architecture in MASKED else "AutoModelForCausalLM"
        self.auto = getattr(transformers, auto)
        torch.manual_seed(1)
        config = transformers.AutoConfig.for_model(architecture, **MODELS[architecture])
        model = self.auto.from_config(config, dtype=dtype).eval()
        with torch.no_grad():  # weights that matter; norms that are not 1, biases that are not 0
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, parameter.shape[-1] ** -0.5)
                else:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(directory / "float")
        self.write_statistics(model)
        self.logits = logits_of(model)

    def write_statistics(self, model):
        """The extremes of the inputs of every layer, by the names of the checkpoint."""
        tensors, hooks = {}, []

        def watch(name):
            def hook(_, inputs):
                x = inputs[0].float().flatten(0, -2)
                tensors[f"{name}.input_absmax"] = x.abs().amax(0)
                tensors[f"{name}.input_min"] = x.amin(0)
                tensors[f"{name}.input_max"] = x.amax(0)
                tensors[f"{name}.count"] = torch.tensor([len(x)])

            return hook

        for name, module in model.named_modules():
            weight = getattr(module, "weight", None)
            if weight is not None and weight.dim() == 2 and type(module) is not torch.nn.Embedding:
                stored = re.sub(r"\.mlp\.gate$", ".block_sparse_moe.gate", name)
                hooks.append(module.register_forward_pre_hook(watch(stored)))
        logits_of(model)
        for hook in hooks:
            hook.remove()
        save_file(tensors, self.directory / "statistics", {"octavo.stats": "1"})

    def quantize(self, scheme, *options):
        out = self.directory / "-".join([scheme, *(re.sub(r"\W", "", o) for o in options)])
        if scheme.endswith("-group"):
            options += ("--group-size", str(GROUP))
        if scheme == "w8a8-static":
            smooth = "--stats" if self.architecture in UNSMOOTHED else "--smooth"
            options += (smooth, self.directory / "statistics")
        command = [self.octavo, "quantize", self.directory / "float", out, "--scheme", scheme]
        return out, subprocess.run([*command, *options], capture_output=True, text=True)

    def load(self, path):
        model, info = self.auto.from_pretrained(path, output_loading_info=True, dtype=self.dtype)
        wrong = {kind: sorted(names)[:3] for kind, names in info.items() if names}
        assert not wrong, wrong
        return model.eval()

    def check(self, out, scheme):
        """The result at `out` as transformers loads and runs it; the distance of its logits."""
        model, exact = self.load(out), self.load(restored(out))
        logits = logits_of(model)
        # bf16 models keep scales in bf16, so weights are rounded once more.
        tolerance = 0 if self.dtype == torch.float32 else 2**-7
        for name, expected in exact.named_parameters():
            weight = model.get_parameter(name)
            assert weight.dtype == expected.dtype, (name, weight.dtype)
            assert torch.allclose(weight, expected, rtol=tolerance, atol=0), name
        for name, expected in tensors_of(out).items():
            if name.endswith(".input_scale"):
                loaded = model.get_submodule(name.removesuffix(".input_scale")).input_scale
                assert torch.allclose(loaded.float(), expected, rtol=tolerance, atol=0), name
        if float_activations(out) and tolerance == 0:
            assert distance(logits, logits_of(exact)) < 1e-5
        error = distance(logits, self.logits)
        assert error < BOUNDS[scheme], error
        return error


def float_activations(directory):
    config = json.loads((directory / "config.json").read_text())["quantization_config"]
    return all(g["input_activations"] is None for g in config["config_groups"].values())


def tensors_of(directory):
    return load_file(directory / "model.safetensors")


def unpacked(packed, bits, columns):
    values = (packed.unsqueeze(-1) >> torch.arange(0, 32, bits)) & ((1 << bits) - 1)
    return values.flatten(1)[:, :columns] - (1 << (bits - 1))


def restored(directory):
    """The checkpoint with float weights: scale * q, as the format defines them."""
    out = directory.with_name(directory.name + "-restored")
    out.mkdir()
    config = json.loads((directory / "config.json").read_text())
    del config["quantization_config"]
    (out / "config.json").write_text(json.dumps(config))
    tensors = tensors_of(directory)
    for layer in [name.removesuffix("_scale") for name in tensors if name.endswith("weight_scale")]:
        scale = tensors.pop(layer + "_scale").float()
        tensors.pop(layer.removesuffix("weight") + "input_scale", None)
        if layer in tensors:
            tensors[layer] = tensors[layer] * scale
        else:
            packed, (rows, columns) = tensors.pop(layer + "_packed"), tensors.pop(layer + "_shape")
            bits = 32 * packed.shape[1] // columns
            q = unpacked(packed, bits, columns)
            if layer + "_zero_point" in tensors:
                zero_point = unpacked(tensors.pop(layer + "_zero_point").T, bits, rows).T
                q = q - zero_point.repeat_interleave(columns // zero_point.shape[1], 1)
            tensors[layer] = q * scale.repeat_interleave(columns // scale.shape[1], 1)
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    return out


def check_case(model, scheme, *options):
    """What became of the model in a scheme, in a word or two."""
    # What vLLM alone does not load is transformers' own matter here.
    only = ("--loader", "transformers") if model.architecture in ONLY_TRANSFORMERS else ()
    out, ran = model.quantize(scheme, *options, *only)
    key = (model.architecture, scheme, *options)
    words = REFUSED.get(key) or FOR_VLLM.get(key)
    if words is None:
        assert ran.returncode == 0, ran
        return f"{model.check(out, scheme):.3f}"
    assert ran.returncode == 1 and words in ran.stderr, ran
    assert not out.exists()
    if key in REFUSED:
        return "refused"
    assert "--loader vllm" in ran.stderr, ran
    out, ran = model.quantize(scheme, *options, "--loader", "vllm")
    assert ran.returncode == 0, ran
    assert any(s.startswith("note: ") and words in s for s in ran.stdout.splitlines()), ran
    try:
        model.check(out, scheme)
    except Exception as error:  # of any kind: the loader's own, too
        return f"refused, and indeed not loaded ({type(error).__name__})"
    raise AssertionError("transformers loads it now: take back the refusal")


def main():
    octavo, scratch = sys.argv[1], Path(sys.argv[2])
    versions = f"{transformers.__version__}, compressed-tensors {compressed_tensors.__version__}"
    print(f"transformers {versions}, PyTorch {torch.__version__}")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    shutil.rmtree(scratch, ignore_errors=True)
    failures = 0
    for architecture, dtype in [
        *((name, torch.float32) for name in MODELS),
        ("llama", torch.bfloat16),
    ]:
        name = f"{architecture} {str(dtype).removeprefix('torch.')}"
        model = Model(octavo, scratch / name.replace(" ", "-"), architecture, dtype)
        cases = [(scheme,) for scheme in BOUNDS]
        if architecture == "llama":
            cases += FORMS
        if architecture == "mixtral":
            cases += [(scheme, *FLOAT_EXPERTS) for scheme in BOUNDS]
        for case in cases:
            try:
                result = check_case(model, *case)
            except Exception as error:
                failures += 1
                result = f"FAILED: {error!r}"
            print(f"{name}, {' '.join(case)}: {result}", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
