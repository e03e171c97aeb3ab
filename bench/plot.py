#!/usr/bin/env python3
"""Draws the results of `octavo_bench --json FILE` as an SVG.

usage: plot.py FILE docs/performance.svg          elementwise operations, as bars
       plot.py --linear FILE docs/linear.svg      linear layers, as a roofline
"""

import sys
from collections.abc import Callable

from picture import COLOURS, FAINT, GRID, HALO, MARGIN, OURS, WIDTH, Picture
from results import LAYOUTS, PEERS, Case, Results, load
from roofline import draw_roofline

LABELS = 320  # left of the bars
ROW, BAR = 27, 10  # the height of a row, and of each of its two bars


def legend(picture: Picture, threads: list[int]):
    x, y = float(MARGIN), picture.y
    for colour, count in zip(OURS, threads, strict=False):
        picture.bar(x, y - 9, 16, BAR, colour)
        words = f"Octavo, {count} thread" + "s" * (count > 1)
        picture.text(x + 22, y, words)
        x += 140
    for peer, title in PEERS.items():
        picture.dot(x + 8, y - 4, COLOURS[peer])
        picture.text(x + 18, y, title)
        x += 90
    picture.y += 14


def panel(
    picture: Picture,
    title: str,
    note: str,
    rows: list[tuple[tuple[str, str], list[Case]]],
    value: Callable[[Case], float | None],
    peer_value: Callable[[Case, str], float | None],
    ticks: list[float],
    limit: float | None = None,
):
    """Rows of bars for ours and dots for the peers, each on the line of its threads.

    A row's name is (group, name); the group is written where it changes.
    """
    picture.y += 30
    picture.text(MARGIN, picture.y, title, size=16, font_weight="600")
    picture.text(MARGIN, picture.y + 19, note, fill=FAINT)
    picture.y += 40
    top, bottom = picture.y, picture.y + len(rows) * ROW
    scale = (WIDTH - MARGIN - LABELS - 40) / ticks[-1]
    for tick in ticks:
        x = LABELS + tick * scale
        strong = tick == limit
        picture.line(x, top - 4, bottom, FAINT if strong else GRID, 1.5 if strong else 1)
        picture.text(x, bottom + 16, f"{tick:g}", size=11, fill=FAINT, text_anchor="middle")
    previous = ""
    for index, ((group, label), cases) in enumerate(rows):
        y = top + index * ROW + (ROW - BAR * len(cases)) / 2
        if group != previous:
            picture.text(MARGIN, top + (index + 0.5) * ROW + 4, group, font_weight="600")
            previous = group
        picture.text(LABELS - 10, top + (index + 0.5) * ROW + 4, label, text_anchor="end")
        for colour, case in zip(OURS, cases, strict=False):
            width = min(value(case) or 0, 1.05 * ticks[-1]) * scale
            picture.bar(LABELS, y, width, BAR, colour)
            for peer in PEERS:
                if (other := peer_value(case, peer)) is not None:
                    picture.dot(LABELS + min(other, ticks[-1]) * scale, y + BAR / 2, COLOURS[peer])
            words = f"{value(case) or 0:.2f}" if ticks[-1] < 3 else f"{value(case) or 0:.1f}"
            picture.text(LABELS + width + 8, y + 8, words, size=10, fill=FAINT, **HALO)
            y += BAR
    picture.y = bottom + 20


def ticks_to(largest: float) -> list[float]:
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if largest / s <= 8)
    return [step * i for i in range(int(largest / step) + 2)]


def rows_at(results: Results, size: str, keep: Callable[[Case], bool], threads: list[int]):
    for case in results.cases:
        if case.size == size and case.threads == 1 and keep(case):
            found = [results.find(case.key, size, t) for t in threads]
            yield case, [c for c in found if c]


def draw(results: Results) -> str:
    picture = Picture()
    threads = sorted({1, results.all_threads})
    picture.y += 12
    picture.text(MARGIN, picture.y, "Octavo against the limit of the machine", size=20)
    picture.y += 20
    picture.text(MARGIN, picture.y, results.facts(), size=11, fill=FAINT)
    picture.y += 26
    legend(picture, threads)

    def outside(case: Case) -> bool:
        return case.profile != "onnx" and set(case.types) <= {"f32", "s8"}

    panel(
        picture,
        "Out of cache: 64 M elements, share of the limit",
        "1 is the time of the same loads and stores without arithmetic. f32, s8; a scale per ...",
        [
            ((c.op.replace("_", " "), LAYOUTS[c.layout]), cases)
            for c, cases in rows_at(results, "64M", outside, threads)
        ],
        lambda case: case.get("limit"),
        lambda case, peer: case.peer_limit(peer),
        [0, 0.2, 0.4, 0.6, 0.8, 1],
        limit=1,
    )

    def inside(case: Case) -> bool:
        return case.layout == "per_tensor" and not set(case.types) & {"u8", "u4"}

    rows = [
        ((case.op.replace("_", " "), f"{' → '.join(case.types)} {case.profile}"), cases)
        for case, cases in rows_at(results, "4K", inside, [1])
    ]
    panel(
        picture,
        "In cache: 4 K elements per tensor, G elements/s on one thread",
        "The whole call of a plan, its checks included. torch and onnx are the numerics profiles.",
        rows,
        lambda case: case.get("Gelem/s"),
        lambda case, peer: case.peer_rate(peer),
        ticks_to(
            max(
                (
                    max(c.get("Gelem/s") or 0, *(c.peer_rate(p) or 0 for p in PEERS))
                    for _, cases in rows
                    for c in cases
                ),
                default=1,
            )
        ),
    )
    return picture.svg()


def main(arguments: list[str]) -> int:
    linear = arguments[:1] == ["--linear"]
    files = arguments[linear:]
    if len(files) != 2 or files[0].startswith("-"):
        sys.stderr.write(__doc__)
        return 2
    results = load(files[0])
    svg = draw_roofline(results) if linear else draw(results)
    with open(files[1], "w", encoding="utf-8") as file:
        file.write(svg)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
