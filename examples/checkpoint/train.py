"""Makes the checkpoint in this folder anew: trains, stores in bf16, gathers statistics.

The README beside it says what it is, and how to run this. The same machine and PyTorch give the
same bytes again; another PyTorch or CPU gives a model as good, but other bytes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import Counter
from pathlib import Path

import octavo.torch
import torch
from llama import Llama, load, loss_of, windows
from octavo.torch._progress import progress
from safetensors.torch import save_file
from torch.nn import functional as F

HERE = Path(__file__).resolve().parent
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "bos_token_id": None,
    "eos_token_id": None,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 352,
    "max_position_embeddings": 128,
    "mlp_bias": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 256,
}
HELD_OUT = 16 * 1024
BATCH = 16
# Channels that every norm multiplies, and by what; see the README. Powers of two, so that dividing
# the weights by them is exact.
OUTLIERS = {17: 32.0, 58: 16.0, 101: 8.0}


def read_text(path: Path) -> tuple[bytes, bytes]:
    """The dictionary without the notes of its digital edition, and its end, to be held out."""
    text = gzip.decompress(path.read_bytes())
    begin = text.index(b"PREFACE")
    return text[begin:-HELD_OUT], text[-HELD_OUT:]


def unigram_loss(train: bytes, held_out: bytes) -> float:
    counts = Counter(train)
    total = len(train) + 256
    return -sum(math.log((counts[b] + 1) / total) for b in held_out) / len(held_out)


def learning_rate(step: int, steps: int) -> float:
    return 2e-3 * min((step + 1) / 50, 0.05 + 0.475 * (1 + math.cos(math.pi * step / steps)))


def train(model: Llama, text: bytes, steps: int) -> None:
    length = model.config.max_position_embeddings
    data = torch.tensor(list(text))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.95), weight_decay=0.1)
    model.train()
    for step in progress(range(steps), "training, steps", True):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        starts = torch.randint(len(data) - length, (BATCH, 1))
        batch = data[starts + torch.arange(length + 1)]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    model.eval()


@torch.no_grad()
def provoke_outliers(model: Llama) -> None:
    """Makes a few input channels of the layers large, as they are in large models, and the weights
    that read them small. What the model computes stays as it is, to the bit."""
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        for norm, readers in (
            (layer.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj)),
            (layer.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj)),
        ):
            for channel, factor in OUTLIERS.items():
                norm.weight[channel] *= factor
                for reader in readers:
                    reader.weight[:, channel] /= factor


def save(model: Llama, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.to(torch.bfloat16).contiguous() for name, t in model.state_dict().items()}
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})
    (directory / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")


def gather_statistics(model: Llama, text: bytes, path: Path) -> None:
    """Of what is stored: of bf16 weights, on text that it was trained on."""
    batches = windows(text[: 64 * 128 + 1], 128)[:, :-1].split(16)
    octavo.torch.calibrate(
        model, batches, path=path, sample_rows=32, histogram_bits=1, ignore=["lm_head"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--text", type=Path, default=Path("/usr/share/dictd/devil.dict.dz"))
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--steps", type=int, default=1200)
    options = parser.parse_args()
    torch.manual_seed(8)
    torch.set_num_threads(1)  # sums then do not depend on the number of cores
    torch.use_deterministic_algorithms(True)
    text, held_out = read_text(options.text)
    model = Llama(CONFIG, dropout=0.1)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            last = name.endswith(("o_proj.weight", "down_proj.weight"))
            torch.nn.init.normal_(parameter, std=0.02 / (8**0.5 if last else 1))
    train(model, text, options.steps)
    provoke_outliers(model)
    save(model, options.out / "model")
    (options.out / "held_out.txt").write_bytes(held_out)
    stored = load(options.out / "model")
    gather_statistics(stored, text, options.out / "stats.safetensors")
    print(f"held-out loss {loss_of(stored, held_out):.4f} nats a byte, ", end="")
    print(f"of single bytes {unigram_loss(text, held_out):.4f}")


if __name__ == "__main__":
    main()
