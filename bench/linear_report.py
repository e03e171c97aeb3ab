"""The tables of linear layers, for report.py."""

from collections.abc import Callable, Iterable

from results import LINEAR_PEERS, Groups, Linear, Results

# A cell from the same case with one number of threads; none if it was not measured.
Column = tuple[str, Callable[[Linear | Groups], str]]


def _ratio(counter: str) -> Callable[[Linear | Groups], str]:
    return lambda c: _number(c.get(counter), "{:.2f}×")


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


# The weights decide with one row, arithmetic with more.
MEASURES: list[Column] = [
    ("us", lambda c: f"{c.microseconds:.4g}" if c.microseconds < 1e4 else f"{c.microseconds:.0f}"),
    ("TOPS", lambda c: _number(c.get("TOPS"), "{:.3f}")),
    ("peak", lambda c: "" if c.shape[0] == 1 else _number(c.get("peak"), "{:.2f}")),
    ("stream", lambda c: _number(c.get("stream"), "{:.2f}") if c.shape[0] == 1 else ""),
    *[(title, _ratio(peer)) for peer, title in LINEAR_PEERS.items()],
]
# Ours in other ways; where no case has one of them, it has no column.
WAYS: dict[str, str] = {"int8": "int8", "w4a8": "W4A8", "f32": "f32"}
RUN: Column = ("run", lambda c: _number(c.get("run_ns"), "{:.0f} ns"))
ONE_THREAD: Column = ("1 thread", _ratio("one_thread"))


def _shape(shape: tuple[int, int, int]) -> str:
    return " x ".join(str(size) for size in shape)


def _table(title: str, heads: list[str], rows: Iterable[list[str]], numbers: int) -> list[str]:
    return [
        f"### {title}",
        "",
        "| " + " | ".join(heads) + " |",
        "|" + "---|" * (len(heads) - numbers) + "---:|" * numbers,
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def _limits(results: Results, threads: list[int]) -> list[str]:
    rows = []
    for target in dict.fromkeys(t for t, _ in results.peaks):
        rows.append(
            [f"{target}, registers, TOPS"]
            + [_number(results.peaks.get((target, t)), "{:.3f}") for t in threads]
        )
    for shape, cold in dict.fromkeys((s, c) for s, c, _ in results.streams):
        n, k = shape.split("x")[1:]
        rows.append(
            [f"read of {n} x {k} weights, {'cold' if cold else 'warm'}, GB/s"]
            + [_number(results.streams.get((shape, cold, t)), "{:.1f}") for t in threads]
        )
    if results.float_peaks:
        rates = [_number(results.float_peaks.get(t), "{:.3f}") for t in threads]
        rows.append(["f32, registers, TFLOPS", *rates])
    heads = ["limit", *(f"{t}t" for t in threads)]
    return _table("Limits, measured in the same run", heads, rows, len(threads))


def _main(results: Results, title: str, op: str, threads: list[int]) -> list[str]:
    chosen = [
        c
        for c in results.linear
        if (c.op, c.weights, c.target, c.threads) == (op, "packed", "any", 1)
        and c.activation in ("f32", "s8")
    ]
    columns = [(t, *m) for t in threads for m in MEASURES]
    if len(threads) > 1:
        columns.append((threads[-1], *ONE_THREAD))
    rows = []
    for case in chosen:
        found = [results.find_linear(case.key, t) for t, _, _ in columns]
        cells = [cell(c) if c else "" for c, (_, _, cell) in zip(found, columns, strict=True)]
        rows.append([_shape(case.shape), "cold" if case.cold else "warm", *cells])
    heads = ["M x N x K", "weights", *(f"{name}, {t}t" for t, name, _ in columns)]
    return _table(title, heads, rows, len(columns))


def _capped(results: Results, threads: list[int]) -> list[str]:
    rows = []
    for case in results.linear:
        if case.target == "any" or case.threads != 1:
            continue
        cells = []
        for t in threads:
            found = results.find_linear(case.key, t)
            cells.append(_number(found.get("TOPS") if found else None, "{:.3f}"))
            cells.append(_number(found.get("peak") if found else None, "{:.2f}"))
        rows.append([_shape(case.shape), case.target, *cells])
    heads = ["M x N x K", "target"]
    heads += [f"{name}, {t}t" for t in threads for name in ("TOPS", "peak")]
    return _table("The matrix product alone, by target", heads, rows, 2 * len(threads))


def _others(results: Results, threads: list[int]) -> list[str]:
    """bf16 and f16 against f32, and rows against packed weights."""
    columns = [
        (t, activation, weights, counter)
        for t in threads
        for activation, weights, counter in (
            ("bf16", "packed", "f32"),
            ("f16", "packed", "f32"),
            ("f32", "rows", "packed"),
        )
    ]
    rows = []
    for case in results.linear:
        if (case.activation, case.weights, case.threads) != ("f32", "packed", 1) or case.cold:
            continue
        cells = []
        for t, activation, weights, counter in columns:
            key = (case.op, activation, weights, case.cold, case.target, case.shape)
            found = results.find_linear(key, t)
            value = found.get(counter) if found else None
            cells.append(_number(1 / value if value else None, "{:.2f}×"))
        rows.append([_shape(case.shape), *cells])
    heads = ["M x N x K"]
    for t, activation, weights, _ in columns:
        heads.append(f"{'rows' if weights == 'rows' else activation}, {t}t")
    title = "Time of bf16 and f16 over f32, and of unpacked rows over packed weights"
    return _table(title, heads, rows, len(columns))


def _groups(results: Results, title: str, chosen: list[Groups], threads: list[int]) -> list[str]:
    """Weights in groups, or of floats, each shape with all schemes."""
    firsts = [c for c in chosen if c.threads == min(threads)]
    if not firsts:
        return []
    measures = MEASURES + [(title, _ratio(counter)) for counter, title in WAYS.items()]
    columns = [(t, *m) for t in threads for m in [*measures, RUN]]
    if len(threads) > 1:
        columns.append((threads[-1], *ONE_THREAD))
    rows = []
    for case in sorted(firsts, key=lambda c: (c.shape[1:], c.shape[0], c.cold)):
        found = [results.find_groups(case.key, t) for t, _, _ in columns]
        cells = [cell(c) if c else "" for c, (_, _, cell) in zip(found, columns, strict=True)]
        scheme = f"{case.scheme} {case.group}".strip()
        rows.append([_shape(case.shape), scheme, "cold" if case.cold else "warm", *cells])
    kept = [i for i in range(len(rows[0])) if i < 3 or any(row[i] for row in rows)]
    heads = ["M x N x K", "layer", "weights", *(f"{name}, {t}t" for t, name, _ in columns)]
    return _table(
        title, [heads[i] for i in kept], [[row[i] for i in kept] for row in rows], len(kept) - 3
    )


def group_tables(results: Results) -> list[str]:
    threads = sorted({c.threads for c in results.groups})
    floats = [c for c in results.groups if not c.group]
    groups = [c for c in results.groups if c.group]
    return [
        *_groups(results, "Weights in groups, from f32 to f32", groups, threads),
        *_groups(results, "Weights of floats, from f32 to f32", floats, threads),
    ]


def linear_tables(results: Results) -> list[str]:
    threads = sorted({1, results.all_threads})
    return [
        *_limits(results, threads),
        *_main(results, "Whole layers, from f32 to f32", "quantized_linear", threads),
        *_main(results, "The matrix product alone, s8 x s8 to f32", "smoothquant_linear", threads),
        *_capped(results, threads),
        *_others(results, threads),
    ]
