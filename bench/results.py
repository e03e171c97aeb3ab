"""Reads what `octavo_bench --json FILE` wrote."""

import json
from dataclasses import dataclass, field

PEERS = {"torch": "PyTorch", "dnnl": "oneDNN", "xnnpack": "XNNPACK"}
LINEAR_PEERS = {"torch": "PyTorch", "dnnl": "oneDNN", "onnxruntime": "ONNX Runtime"}
ELEMENT_BYTES = {"s8": 1, "f16": 2, "bf16": 2, "f32": 4}
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
class Linear:
    """A case of the linear layers."""

    op: str
    activation: str
    weights: str  # packed or rows
    cold: bool
    target: str  # "any": not capped
    shape: tuple[int, int, int]  # m, n, k
    threads: int
    microseconds: float
    counters: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple:
        """What remains the same over threads."""
        return (self.op, self.activation, self.weights, self.cold, self.target, self.shape)

    @property
    def intensity(self) -> float:
        """Operations for each byte of weights and activations."""
        m, n, k = self.shape
        return 2 * m * n * k / (n * k + m * k * ELEMENT_BYTES[self.activation])

    def get(self, counter: str) -> float | None:
        return self.counters.get(counter)

    def peer_tops(self, peer: str) -> float | None:
        ratio, tops = self.get(peer), self.get("TOPS")
        return tops / ratio if ratio and tops else None


@dataclass
class Groups:
    """A case of the linear layers with weights in groups, or of floats."""

    scheme: str  # "w4a8", or the type of weights that are floats
    group: str  # "g32", "channel"; empty: floats
    cold: bool
    shape: tuple[int, int, int]  # m, n, k
    threads: int
    microseconds: float
    counters: dict[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple:
        """What remains the same over threads."""
        return (self.scheme, self.group, self.cold, self.shape)

    def get(self, counter: str) -> float | None:
        return self.counters.get(counter)


@dataclass
class Results:
    context: dict[str, str]
    cases: list[Case]  # elementwise
    dynamic: list[Case]  # dynamic ranges; their sizes are rows x columns
    observers: list[Case]
    linear: list[Linear]
    peaks: dict[tuple[str, int], float]  # TOPS by target and threads
    streams: dict[tuple[str, bool, int], float]  # GB/s by shape, whether cold, and threads
    groups: list[Groups] = field(default_factory=list)
    float_peaks: dict[int, float] = field(default_factory=dict)  # TOPS by threads

    @property
    def all_threads(self) -> int:
        every: list[Case | Linear | Groups] = [*self.everything, *self.linear, *self.groups]
        return max((c.threads for c in every), default=1)

    @property
    def everything(self) -> list[Case]:
        return self.cases + self.dynamic + self.observers

    def find(self, key: tuple, size: str, threads: int) -> Case | None:
        for case in self.everything:
            if (case.key, case.size, case.threads) == (key, size, threads):
                return case
        return None

    def find_linear(self, key: tuple, threads: int) -> Linear | None:
        for case in self.linear:
            if (case.key, case.threads) == (key, threads):
                return case
        return None

    def find_groups(self, key: tuple, threads: int) -> Groups | None:
        for case in self.groups:
            if (case.key, case.threads) == (key, threads):
                return case
        return None

    def facts(self, names: dict[str, str] = PEERS) -> str:
        """The machine and the peers, in one line."""
        peers = [self.context.get(p, "absent") for p in names]
        peers = [p for p in peers if not p.startswith("absent")]
        return f"{self.context['cpu']}, {self.context['threads']} threads; " + "; ".join(peers)


def _parts(record: dict) -> list[str]:
    return record["name"].split("/iterations:")[0].split("/")


def _counters(record: dict) -> dict[str, float]:
    return {k: v for k, v in record.items() if isinstance(v, float)}


def _threads(part: str) -> int:
    return int(part.removesuffix("t"))


def _case(record: dict) -> Case:
    parts = _parts(record)
    op, middle, size, threads = parts[1], parts[2:-2], parts[-2], parts[-1]
    at = next(i for i, part in enumerate(middle) if part.startswith("per_"))
    types, rest = middle[:at], middle[at:]
    profile = rest.pop() if rest[-1] in ("torch", "onnx") else ""
    return Case(
        family=parts[0],
        op=op,
        types=tuple(types),
        layout="/".join(rest),
        profile=profile,
        size=size,
        threads=_threads(threads),
        microseconds=record["real_time"],
        counters=_counters(record),
    )


def _linear(record: dict) -> Linear:
    _, op, activation, weights, temperature, target, shape, threads = _parts(record)
    m, n, k = (int(size) for size in shape.split("x"))
    return Linear(
        op=op,
        activation=activation,
        weights=weights,
        cold=temperature == "cold",
        target=target,
        shape=(m, n, k),
        threads=_threads(threads),
        microseconds=record["real_time"],
        counters=_counters(record),
    )


def _groups(record: dict) -> Groups:
    parts = _parts(record)
    scheme, group = parts[2], "" if parts[1] == "floats" else parts[3]
    temperature, shape, threads = parts[-3:]
    m, n, k = (int(size) for size in shape.split("x"))
    return Groups(
        scheme=scheme,
        group=group,
        cold=temperature == "cold",
        shape=(m, n, k),
        threads=_threads(threads),
        microseconds=record["real_time"],
        counters=_counters(record),
    )


def load(path: str) -> Results:
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    results = Results(data["context"], [], [], [], [], {}, {})
    for record in data["benchmarks"]:
        parts = _parts(record)
        if record.get("error_occurred"):
            continue
        match parts[:2]:
            case ["linear", "peak"]:
                results.peaks[parts[2], _threads(parts[3])] = record["TOPS"]
            case ["linear", "stream"]:
                key = (parts[3], parts[2] == "cold", _threads(parts[4]))
                results.streams[key] = record["GB/s"]
            case ["linear", "float_peak"]:
                results.float_peaks[_threads(parts[2])] = record["TOPS"]
            case ["linear", "groups" | "floats"]:
                results.groups.append(_groups(record))
            case ["linear", _]:
                results.linear.append(_linear(record))
            case ["dynamic_range", _]:
                results.dynamic.append(_case(record))
            case ["observer", _]:
                results.observers.append(_case(record))
            case _:
                results.cases.append(_case(record))
    return results
