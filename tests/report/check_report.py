"""Opens pages of `octavo report` in Chromium and looks at what a reader would see.

`./dev report-check` runs it. Without Chromium it says so and ends with 77, which ctest shows as
skipped.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import subprocess
import sys
import time
from pathlib import Path

import browser
import checkpoints

HERE = Path(__file__).resolve().parent
WIDTHS = (360, 768, 1200)
A4_WIDTH = 688  # pixels of 1/96 inch between margins of 14 mm


class Failures(list):
    def check(self, page: str, ok: bool, message: str) -> None:
        if not ok:
            self.append(f"{page}: {message}")


def make_page(
    octavo: Path, float_model: Path, stats: Path | None, out: Path, *options: str
) -> Path:
    quantized, page = out / ("W8A8" if stats else "W4A16"), out / "report.html"
    measured = ["--stats", str(stats)] if stats else []
    shutil.rmtree(quantized, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    for accepted, command in (
        ((0, 3), ["quantize", str(float_model), str(quantized), *options]),  # 3: not good
        ((0,), ["report", str(float_model), str(quantized), *measured, "-o", str(page)]),
    ):
        done = subprocess.run([str(octavo), *command], stdout=subprocess.DEVNULL)
        if done.returncode not in accepted:
            sys.exit(f"octavo {' '.join(command)} ended with {done.returncode}")
    return page


def picture(b: browser.Browser, path: Path) -> None:
    shot = b.call("Page.captureScreenshot", format="png")
    path.write_bytes(base64.b64decode(shot["data"]))


def layouts(b: browser.Browser, page: Path, failures: Failures) -> None:
    """Every width, light and dark, and paper."""
    script = (HERE / "page.js").read_text()
    for width in WIDTHS:
        b.size(width)
        for scheme in ("light", "dark"):
            b.media("screen", scheme)
            name = f"{page.parent.name} at {width} px, {scheme}"
            for problem in b.evaluate(script):
                failures.append(f"{name}: {problem}")
            picture(b, page.parent / f"{width}-{scheme}.png")
    b.size(A4_WIDTH)
    b.media("print", "dark")  # paper is white whatever the screen is
    for problem in b.evaluate(script):
        failures.append(f"{page.parent.name} on paper: {problem}")
    b.media("", "light")
    paper = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True}
    pdf = base64.b64decode(b.call("Page.printToPDF", **paper)["data"])
    (page.parent / "report.pdf").write_bytes(pdf)
    failures.check(page.parent.name, pdf.startswith(b"%PDF") and len(pdf) > 5000, "no PDF came")


def open_page(b: browser.Browser, page: Path, failures: Failures) -> None:
    b.size(1200)
    b.media("screen", "light")
    start = time.monotonic()
    b.open(page)
    seconds = time.monotonic() - start
    name = page.parent.name
    elements = b.evaluate("document.querySelectorAll('*').length")
    print(
        f"{name}: {page.stat().st_size / 1e6:.2f} MB, {elements} elements, {seconds:.2f} s to load"
    )
    failures.check(name, not b.complaints, f"the console has {b.complaints}")
    failures.check(name, b.requests == [page.resolve().as_uri()], f"it asked for {b.requests[1:]}")
    failures.check(name, not b.dialogs, f"it opened dialogs: {b.dialogs}")
    failures.check(name, seconds < 30, f"{seconds:.1f} s to load")


def check_verdict(b: browser.Browser, name: str, failures: Failures) -> None:
    failed = b.evaluate("document.querySelector('.verdict')?.matches('.failed')")
    marks = b.evaluate("document.querySelectorAll('.plot .above').length")
    failures.check(name, failed == (name == "failing"), "the verdict is another one")
    failures.check(name, marks == (11 if failed else 0), f"{marks} layers are marked")


def check_hostile(b: browser.Browser, page: Path, failures: Failures) -> None:
    strange = "document.querySelectorAll('script, img, iframe, [onerror], [onload]').length"
    failures.check("hostile", b.evaluate(strange) == 0, "a name became an element")
    text = b.evaluate("document.body.textContent")
    for name in checkpoints.HOSTILE:
        failures.check("hostile", name in text, f"{name} is not shown as it is")


def check_large(b: browser.Browser, page: Path, failures: Failures) -> None:
    b.size(1200)
    height = b.evaluate("document.documentElement.scrollHeight")
    failures.check("large", height < 4000, f"{height} px high before anything is opened")
    b.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    failures.check(
        "large", b.evaluate("document.querySelectorAll('tbody tr').length") == 700, "rows"
    )
    layouts(b, page, failures)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--octavo", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    o = parser.parse_args()
    program = browser.find()
    if program is None:
        print("skipped: no chromium; ./dev report-check installs it")
        return 77
    model, stats = o.checkpoint / "model", o.checkpoint / "stats.safetensors"
    smooth = ("--smooth", str(stats), "--alpha", "auto")
    pages = {
        "demo": (model, stats, ("--scheme", "w8a8-static", *smooth)),
        "failing": (model, stats, ("--scheme", "w8a8-static", "--stats", str(stats))),
        "int4": (model, None, ("--scheme", "w4a16-group", "--group-size", "32")),
    }
    for name, make in (("hostile", checkpoints.hostile), ("large", checkpoints.large)):
        made, found = make(o.out / name)
        pages[name] = (made, found, ("--smooth", str(found)))
    failures = Failures()
    b = browser.Browser(program)
    try:
        for name, (float_model, found, options) in pages.items():
            page = make_page(o.octavo, float_model, found, o.out / name, *options)
            open_page(b, page, failures)
            layouts(b, page, failures)
            if name in ("demo", "failing", "int4"):
                check_verdict(b, name, failures)
            if name == "hostile":
                check_hostile(b, page, failures)
            if name == "large":
                check_large(b, page, failures)
    finally:
        b.close()
    for failure in failures:
        print(f"FAILED {failure}")
    print(f"{len(pages)} pages, {len(failures)} failures; pictures and PDFs are in {o.out}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
