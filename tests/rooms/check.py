#!/usr/bin/env python3
"""Draws which room includes which, and fails on an include that goes upward.

The allowed order is order.txt beside this script. With --svg the picture is written there: an arrow
for each pair of rooms, downward, as thick as there are includes.
"""

import argparse
import collections
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SUFFIXES = {".hpp", ".cpp", ".h", ".c", ".cu"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def read_order():
    lines = (HERE / "order.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def room_of(path, rooms):
    """The innermost room that a file is in; None for one in none of them."""
    fits = [room for room in rooms if path.is_relative_to(room)]
    return max(fits, key=len) if fits else None


def is_test(path):
    name = path.name
    return (
        re.search(r"_test\.(c|cpp)$", name) is not None
        or name.startswith(("testing", "oracle"))
        or path.is_relative_to("src/testing")
        or path.parts[0] == "tests"
    )


def find(path, included):
    """The file that an include names, relative to the root; None for one of another project."""
    for base in (path.parent, pathlib.Path("include"), pathlib.Path("src"), pathlib.Path()):
        if (ROOT / base / included).is_file():
            return base / included
    return None


def draw(order, arrows):
    """The picture: a column of rooms, an arc for each pair."""
    step, left, width = 34, 210, 760
    height = step * len(order) + 20
    y = {room: height - 20 - step * i for i, room in enumerate(order)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        "<title>Which room includes which</title>",
        "<style>text{fill:#222}path{stroke:#3567a8}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}path{stroke:#8ab4f0}}</style>",
    ]
    for room in order:
        parts.append(f'<text x="{left - 12}" y="{y[room] + 4}" text-anchor="end">{room}</text>')
    for (above, below), count in sorted(arrows.items()):
        reach = left + 24 + 2 * abs(y[above] - y[below]) * 0.36
        thick = min(5.0, 0.8 + 0.25 * count)
        parts.append(
            f'<path d="M{left} {y[above]} C{reach:.0f} {y[above]} {reach:.0f} {y[below]} '
            f'{left} {y[below]}" fill="none" stroke-width="{thick:.2f}" opacity="0.55">'
            f"<title>{above} includes {below}: {count}</title></path>"
        )
    parts.append("</svg>\n")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=pathlib.Path, help="where the picture goes")
    arguments = parser.parse_args()

    order = read_order()
    wrong = [f"order.txt: no directory {room}" for room in order if not (ROOT / room).is_dir()]
    level = {room: i for i, room in enumerate(order)}
    arrows = collections.Counter()
    files = 0
    for top in sorted({pathlib.Path(room).parts[0] for room in order}):
        for full in sorted((ROOT / top).rglob("*")):
            path = full.relative_to(ROOT)
            if path.suffix not in SUFFIXES or is_test(path):
                continue
            room = room_of(path, order)
            if room is None:
                wrong.append(f"{path}: in no room of order.txt")
                continue
            files += 1
            for included in INCLUDE.findall(full.read_text()):
                target = find(path, included)
                if target is None:
                    continue
                if is_test(target):
                    wrong.append(f"{path} includes {target}, which is for tests")
                    continue
                below = room_of(target, order)
                if below is None:
                    wrong.append(f"{path} includes {target}, in no room of order.txt")
                elif level[below] > level[room]:
                    wrong.append(f"{path} includes {target}: {below} stands above {room}")
                elif below != room:
                    arrows[room, below] += 1
    if arguments.svg:
        arguments.svg.write_text(draw(order, arrows))
    for line in wrong:
        print(line)
    print(
        f"{files} files in {len(order)} rooms, {sum(arrows.values())} includes between rooms, ",
        end="",
    )
    print(f"{len(wrong)} wrong")
    return 1 if wrong or not arrows else 0


if __name__ == "__main__":
    sys.exit(main())
