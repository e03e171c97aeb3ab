"""A Llama in plain PyTorch, with the names of Hugging Face; and how its checkpoints are read."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, halves of a head as pairs."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, c: SimpleNamespace) -> None:
        super().__init__()
        self.heads = c.num_attention_heads
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nn.Linear(c.hidden_size, c.hidden_size, bias=False))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        batch, length, size = x.shape

        def heads(y: Tensor) -> Tensor:
            return y.view(batch, length, self.heads, -1).transpose(1, 2)

        q = rotate(heads(self.q_proj(x)), cos, sin)
        k = rotate(heads(self.k_proj(x)), cos, sin)
        scores = q @ k.transpose(-1, -2) / (size // self.heads) ** 0.5
        y = (scores + mask).softmax(-1) @ heads(self.v_proj(x))
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, size))


class MLP(nn.Module):
    def __init__(self, c: SimpleNamespace) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, c: SimpleNamespace, dropout: float) -> None:
        super().__init__()
        self.self_attn = Attention(c)
        self.mlp = MLP(c)
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        x = x + self.dropout(self.self_attn(self.input_layernorm(x), cos, sin, mask))
        return x + self.dropout(self.mlp(self.post_attention_layernorm(x)))


class Llama(nn.Module):
    """Bytes in, logits of the next byte out. `config`: the fields of a config.json."""

    def __init__(self, config: dict, dropout: float = 0.0) -> None:
        super().__init__()
        c = self.config = SimpleNamespace(**config)
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.model.layers = nn.ModuleList([Block(c, dropout) for _ in range(c.num_hidden_layers)])
        self.model.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        self.dropout = nn.Dropout(dropout)
        half = torch.arange(0, c.hidden_size // c.num_attention_heads, 2).float()
        frequency = c.rope_theta ** (-half * c.num_attention_heads / c.hidden_size)
        angle = torch.arange(c.max_position_embeddings).float()[:, None] * frequency
        self.cos, self.sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        n = tokens.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        x = self.dropout(self.model.embed_tokens(tokens))
        for layer in self.model.layers:
            x = layer(x, self.cos[:n], self.sin[:n], mask)
        return self.lm_head(self.model.norm(x))


def read_config(directory: Path) -> dict:
    return json.loads((directory / "config.json").read_text())


def read_tensors(directory: Path) -> dict[str, Tensor]:
    with safe_open(directory / "model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def load(directory: Path) -> Llama:
    """The float model; it computes in f32, whatever its weights are stored as."""
    model = Llama(read_config(directory))
    model.load_state_dict({name: t.float() for name, t in read_tensors(directory).items()})
    return model.eval()


def windows(text: bytes, length: int) -> Tensor:
    """Pieces of length + 1 bytes, each beginning with the last byte of the one before."""
    count = (len(text) - 1) // length
    return torch.tensor([list(text[i * length : (i + 1) * length + 1]) for i in range(count)])


@torch.no_grad()
def loss_of(model: nn.Module, text: bytes) -> float:
    """Mean of -log p(next byte), in nats."""
    total, count = 0.0, 0
    for batch in windows(text, model.config.max_position_embeddings).split(32):
        logits = model(batch[:, :-1])
        total += F.cross_entropy(
            logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum"
        ).item()
        count += batch[:, 1:].numel()
    return total / count
