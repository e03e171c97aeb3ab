#!/usr/bin/env python3
"""Prints the results of `octavo_bench --json FILE` as Markdown tables.

usage: report.py FILE [--all]

Without --all: f32 with s8 in every layout, and the other types per tensor in profile torch.
Sections appear for what the file holds: `./dev bench linear --json FILE` gives linear layers alone.
"""

import sys
from collections.abc import Callable

from linear_report import group_tables, linear_tables
from results import LAYOUTS, LINEAR_PEERS, PEERS, Case, Results, load

TITLES = {
    "64M": "Out of cache: 64 M elements",
    "1M": "In the last-level cache: 1 M elements",
    "4K": "In the first-level cache: 4 K elements",
}
# Title, counter and format of each column, once for one thread and once for all.
MEASURES = [
    ("GB/s", "GB/s", "{:.1f}"),
    ("G/s", "Gelem/s", "{:.2f}"),
    ("limit", "limit", "{:.2f}"),
    *[(title, peer, "{:.1f}×") for peer, title in PEERS.items()],
]
# Of one thread only, and only where a case has them.
EXTRAS = [("onnx", "onnx_cost", "{:.2f}×"), ("run", "run_ns", "{:.0f} ns")]


def cell(case: Case | None, counter: str, form: str) -> str:
    value = case.get(counter) if case else None
    return "" if value is None else form.format(value)


def is_main(case: Case) -> bool:
    return set(case.types) <= {"f32", "s8"} or (
        case.profile != "onnx" and not set(case.types) & {"u8", "u4"}
    )


def table(results: Results, size: str, everything: bool) -> list[str]:
    threads = sorted({1, results.all_threads})
    chosen = [c for c in results.cases if c.size == size and c.threads == 1]
    chosen = [c for c in chosen if everything or is_main(c)]
    extras = [e for e in EXTRAS if any(c.get(e[1]) is not None for c in chosen)]
    columns = [(t, *m) for t in threads for m in MEASURES if any(c.get(m[1]) for c in chosen)]
    titles = [f"{title}, {t}t" for t, title, _, _ in columns] + [e[0] for e in extras]
    lines = [
        f"### {TITLES[size]}",
        "",
        "| operation | scale per | profile | " + " | ".join(titles) + " |",
        "|---|---|---|" + "---:|" * len(titles),
    ]
    for case in chosen:
        cells = [case.what, LAYOUTS[case.layout], case.profile]
        cells += [cell(results.find(case.key, size, t), c, f) for t, _, c, f in columns]
        cells += [cell(case, c, f) for _, c, f in extras]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def timed_table(
    results: Results, title: str, heads: list[str], cases: list[Case], first: Callable
) -> list[str]:
    """A table with a time in each row; `first(case)` fills the columns before it."""
    threads = sorted({1, results.all_threads})
    chosen = [c for c in cases if c.threads == 1]
    columns = [(t, *m) for t in threads for m in MEASURES if any(c.get(m[1]) for c in chosen)]
    titles = [*heads, "us, 1t", *(f"{title}, {t}t" for t, title, _, _ in columns)]
    lines = [
        f"### {title}",
        "",
        "| " + " | ".join(titles) + " |",
        "|" + "---|" * len(heads) + "---:|" * (1 + len(columns)),
    ]
    for case in chosen:
        cells = [*first(case), f"{case.microseconds:.2f}"]
        cells += [cell(results.find(case.key, case.size, t), c, f) for t, _, c, f in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def dynamic_table(results: Results) -> list[str]:
    def first(case: Case) -> list[str]:
        mode = "asymmetric" if case.op.endswith("asymmetric") else "symmetric"
        return [mode, " → ".join(case.types), case.profile, case.size.replace("x", " x ")]

    heads = ["mode", "types", "profile", "rows x columns"]
    return timed_table(results, "Dynamic range, per row", heads, results.dynamic, first)


def observer_table(results: Results) -> list[str]:
    def first(case: Case) -> list[str]:
        kind = case.op.removeprefix("observe_").replace("_", "-")
        return [kind, case.types[0], f"{case.size[:-1]} {case.size[-1]}"]

    heads = ["observer", "type", "elements"]
    return timed_table(results, "Observers, per tensor", heads, results.observers, first)


def main(arguments: list[str]) -> int:
    files = [a for a in arguments if not a.startswith("-")]
    if len(files) != 1 or set(arguments) - {*files, "--all"}:
        sys.stderr.write(__doc__)
        return 2
    results = load(files[0])
    if results.cases or results.dynamic:
        print(results.facts() + "\n")
    for size in TITLES:
        if any(c.size == size for c in results.cases):
            print("\n".join(table(results, size, "--all" in arguments)))
    if results.dynamic:
        print("\n".join(dynamic_table(results)))
    if results.observers:
        print("\n".join(observer_table(results)))
    if results.linear:
        print(results.facts(LINEAR_PEERS) + "\n")
        print("\n".join(linear_tables(results)))
    if results.groups:
        if not results.linear:
            print(results.facts(LINEAR_PEERS) + "\n")
        print("\n".join(group_tables(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
