"""The roofline of linear layers, for plot.py."""

import math
from collections.abc import Iterable

from picture import COLOURS, FAINT, GRID, HALO, INK, MARGIN, OURS, WIDTH, Picture
from results import LINEAR_PEERS, Linear, Results

HEIGHT, LEFT, RIGHT = 400, 76, 150  # of a panel, and what is beside it
SHAPE_SIZE = 10


class Axes:
    """Operations per byte to the right, TOPS upwards, both logarithmic."""

    def __init__(self, top: float, xs: tuple[float, float], ys: tuple[float, float]) -> None:
        self.left, self.right = LEFT, WIDTH - RIGHT
        self.top, self.bottom = top, top + HEIGHT
        self.xs, self.ys = xs, ys

    def x(self, value: float) -> float:
        low, high = self.xs
        share = math.log(value / low) / math.log(high / low)
        return self.left + share * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.ys
        return self.bottom - math.log(value / low) / math.log(high / low) * HEIGHT


def _path(picture: Picture, points: Iterable[tuple[float, float]], colour: str, **more: str):
    attributes = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in more.items())
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    picture.elements.append(f'<path d="M{steps}" fill="none" stroke="{colour}"{attributes}/>')


def _grid(picture: Picture, axes: Axes):
    for power in range(12):
        if axes.xs[0] <= (value := 4.0**power) <= axes.xs[1]:
            x = axes.x(value)
            picture.line(x, axes.top, axes.bottom, GRID)
            picture.text(
                x, axes.bottom + 16, f"{value:g}", size=11, fill=FAINT, text_anchor="middle"
            )
    for power in range(-3, 3):
        for step in (1, 2, 5):
            if axes.ys[0] <= (value := step * 10.0**power) <= axes.ys[1]:
                y = axes.y(value)
                _path(picture, [(axes.left, y), (axes.right, y)], GRID)
                picture.text(
                    axes.left - 8, y + 4, f"{value:g}", size=11, fill=FAINT, text_anchor="end"
                )


def _roofs(picture: Picture, axes: Axes, results: Results, threads: int):
    """Each target's peak, and how fast weights of 4096 x 4096 can be read, warm and cold."""
    peaks = {t: v for (t, n), v in results.peaks.items() if n == threads}
    if not peaks:
        return
    label_y = 0.0
    for target, tops in sorted(peaks.items(), key=lambda item: -item[1]):
        y = axes.y(tops)
        strong = tops == max(peaks.values())
        _path(
            picture, [(axes.left, y), (axes.right, y)], INK if strong else FAINT, stroke_width="1.2"
        )
        label_y = max(y + 4, label_y + 12)
        picture.text(axes.right + 6, label_y, f"{target} {tops:.2f}", size=11)
    for (shape, cold, n), rate in results.streams.items():
        if n != threads or shape != "1x4096x4096":
            continue
        start = max(axes.xs[0], axes.ys[0] * 1e3 / rate)
        end = min(max(peaks.values()) * 1e3 / rate, axes.xs[1])
        _path(
            picture,
            [(axes.x(x), axes.y(rate * x * 1e-3)) for x in (start, end)],
            INK,
            stroke_width="1.2",
            stroke_dasharray="5 3" if cold else "none",
        )
        words = f"{'cold' if cold else 'warm'} {rate:.0f} GB/s"
        at = end * (0.25 if cold else 0.8)
        shift, anchor = (8, "start") if cold else (-8, "end")
        x, y = axes.x(at) + shift, axes.y(rate * at * 1e-3)
        picture.text(x, y, words, size=11, text_anchor=anchor, **HALO)


def _mark(picture: Picture, x: float, y: float, case: Linear, colour: str):
    filled = case.op == "quantized_linear"
    fill, stroke = (colour, "#fff") if filled else ("#fff", colour)
    shape = (
        f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9"'
        if case.cold
        else f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"'
    )
    picture.elements.append(f'{shape} fill="{fill}" stroke="{stroke}" stroke-width="1.5"/>')


def _points(picture: Picture, axes: Axes, cases: list[Linear], threads: int):
    for case in cases:
        for peer in LINEAR_PEERS:
            if (tops := case.peer_tops(peer)) and case.op == "quantized_linear":
                tops = max(tops, axes.ys[0])
                picture.dot(axes.x(case.intensity), axes.y(tops), COLOURS[peer], 3)
    for case in cases:
        colour = OURS[0] if threads == 1 else OURS[1]
        tops = max(case.get("TOPS") or 0, axes.ys[0])
        _mark(picture, axes.x(case.intensity), axes.y(tops), case, colour)
    # Names stand along the bottom, one above the other where they would overlap.
    taken: list[tuple[float, int]] = []
    named = {c.shape: c for c in cases if c.op == "quantized_linear"}
    for shape, case in sorted(named.items(), key=lambda item: item[1].intensity):
        x = axes.x(case.intensity)
        level = 0
        while any(at == level and x - right < 8 for right, at in taken):
            level += 1
        words = "x".join(str(size) for size in shape)
        picture.text(
            x - 4, axes.bottom - 8 - 13 * level, words, size=SHAPE_SIZE, fill=FAINT, **HALO
        )
        taken.append((x + 5.8 * len(words), level))


def _panel(picture: Picture, results: Results, threads: int, axes: Axes):
    _grid(picture, axes)
    _roofs(picture, axes, results, threads)
    cases = [
        c
        for c in results.linear
        if (c.threads, c.weights, c.target) == (threads, "packed", "any")
        and c.activation in ("f32", "s8")
    ]
    _points(picture, axes, cases, threads)


def _legend(picture: Picture):
    x, y = float(MARGIN), picture.y
    entries = [
        ("whole layer from f32", "quantized_linear", False),
        ("the matrix product alone", "smoothquant_linear", False),
        ("cold weights", "quantized_linear", True),
    ]
    for words, op, cold in entries:
        case = Linear(op, "f32", "packed", cold, "any", (1, 1, 1), 1, 0.0)
        _mark(picture, x + 6, y - 4, case, OURS[0])
        picture.text(x + 16, y, words)
        x += 32 + 6.3 * len(words)
    for peer, title in LINEAR_PEERS.items():
        picture.dot(x + 6, y - 4, COLOURS[peer], 3)
        picture.text(x + 14, y, title)
        x += 28 + 7 * len(title)


def draw_roofline(results: Results) -> str:
    picture = Picture()
    picture.y += 12
    picture.text(MARGIN, picture.y, "Linear layers against the limits of the machine", size=20)
    picture.y += 20
    picture.text(MARGIN, picture.y, results.facts(LINEAR_PEERS), size=11, fill=FAINT)
    picture.y += 26
    _legend(picture)
    tops = [c.get("TOPS") or 0 for c in results.linear] + list(results.peaks.values())
    ys = (0.01, 1.3 * max(tops))
    xs = (1.0, 2.2 * max(c.intensity for c in results.linear))
    for threads in sorted({1, results.all_threads}):
        picture.y += 30
        words = f"{threads} thread" + "s" * (threads > 1)
        picture.text(MARGIN, picture.y, words, size=16, font_weight="600")
        note = "TOPS against operations per byte of weights and activations; peers do whole layers"
        picture.text(MARGIN + 100, picture.y, note, fill=FAINT)
        picture.y += 16
        axes = Axes(picture.y, xs, ys)
        _panel(picture, results, threads, axes)
        picture.y = axes.bottom + 24
    return picture.svg()
