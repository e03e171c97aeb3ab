"""Reads what `octavo_bench --json FILE` wrote."""

import json
from dataclasses import dataclass, field

PEERS = {"torch": "PyTorch", "dnnl": "oneDNN", "xnnpack": "XNNPACK"}
LAYOUTS = {
    "per_tensor": "tensor",
    "per_channel/first": "channel, first axis",
    "per_channel/last": "channel, last axis",
    "per_channel/last_of_64": "channel, last axis of 64",
    "per_token": "token",
    "per_group": "group of 128",
}


@dataclass
class Case:
    """One case; `counters` are as the benchmark names them."""

    family: str
    op: str
    types: tuple[str, ...]
    layout: str
    profile: str  # empty: the operation has none
    size: str
    threads: int
    microseconds: float
    counters: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple:
        """What remains the same over sizes and threads."""
        return (self.op, self.types, self.layout, self.profile)

    @property
    def what(self) -> str:
        return f"{self.op.replace('_', ' ')} {' → '.join(self.types)}"

    def get(self, counter: str) -> float | None:
        return self.counters.get(counter)

    def peer_limit(self, peer: str) -> float | None:
        """How near a peer comes to the limit."""
        ratio, limit = self.get(peer), self.get("limit")
        return limit / ratio if ratio and limit else None

    def peer_rate(self, peer: str) -> float | None:
        """A peer's G elements/s."""
        ratio, rate = self.get(peer), self.get("Gelem/s")
        return rate / ratio if ratio and rate else None


@dataclass
class Results:
    context: dict[str, str]
    cases: list[Case]  # elementwise
    dynamic: list[Case]  # dynamic ranges; their sizes are rows x columns
    observers: list[Case]

    @property
    def all_threads(self) -> int:
        return max((c.threads for c in self.everything), default=1)

    @property
    def everything(self) -> list[Case]:
        return self.cases + self.dynamic + self.observers

    def find(self, key: tuple, size: str, threads: int) -> Case | None:
        for case in self.everything:
            if (case.key, case.size, case.threads) == (key, size, threads):
                return case
        return None

    def facts(self) -> str:
        """The machine and the peers, in one line."""
        peers = [self.context[p] for p in PEERS if not self.context[p].startswith("absent")]
        return f"{self.context['cpu']}, {self.context['threads']} threads; " + "; ".join(peers)


def _case(record: dict) -> Case | None:
    parts = record["name"].split("/iterations:")[0].split("/")
    if record.get("error_occurred"):
        return None
    op, middle, size, threads = parts[1], parts[2:-2], parts[-2], parts[-1]
    at = next(i for i, part in enumerate(middle) if part.startswith("per_"))
    types, rest = middle[:at], middle[at:]
    profile = rest.pop() if rest[-1] in ("torch", "onnx") else ""
    counters = {k: v for k, v in record.items() if isinstance(v, float)}
    return Case(
        family=parts[0],
        op=op,
        types=tuple(types),
        layout="/".join(rest),
        profile=profile,
        size=size,
        threads=int(threads.removesuffix("t")),
        microseconds=record["real_time"],
        counters=counters,
    )


def load(path: str) -> Results:
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    cases = [case for record in data["benchmarks"] if (case := _case(record))]
    return Results(
        context=data["context"],
        cases=[c for c in cases if c.family == "elementwise"],
        dynamic=[c for c in cases if c.family == "dynamic_range"],
        observers=[c for c in cases if c.family == "observer"],
    )
