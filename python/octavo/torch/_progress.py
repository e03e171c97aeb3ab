"""A bar with rate and remaining time on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any


def progress(items: Iterable[Any], what: str, show: bool) -> Iterator[Any]:
    """Passes the items through."""
    try:
        total = len(items)  # type: ignore[arg-type]
    except TypeError:
        total = None
    start = time.monotonic()
    shown = start
    terminal = sys.stderr.isatty()
    done = 0

    def line(now: float) -> str:
        rate = done / max(now - start, 1e-9)
        text = f"{what}: {done}" + (f" of {total}" if total else "") + f", {rate:.1f}/s"
        if total and done:
            text += f", {(total - done) / rate:.0f} s left"
            if terminal:
                width = 30
                full = width * done // total
                text = f"[{'#' * full}{'.' * (width - full)}] {text}"
        return text

    for item in items:
        yield item
        done += 1
        now = time.monotonic()
        if show and now - shown >= (0.1 if terminal else 10):
            shown = now
            print(line(now), file=sys.stderr, end="\r" if terminal else "\n", flush=True)
    if show:
        print(line(time.monotonic()) + (" " * 12 if terminal else ""), file=sys.stderr)
