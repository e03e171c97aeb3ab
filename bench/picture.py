"""An SVG, from top to bottom, and the colours that all of them share."""

from html import escape

WIDTH, MARGIN = 960, 24  # of the picture, and around it
INK, FAINT, GRID = "#1f2933", "#66727f", "#dde3e9"
OURS = ("#1d5fa8", "#8db8e3")  # one thread, all threads
COLOURS = {
    "torch": "#d9480f",
    "dnnl": "#2b8a3e",
    "xnnpack": "#7048a8",
    "onnxruntime": "#b08900",
}

HALO = {"stroke": "#fff", "stroke_width": "2", "paint_order": "stroke"}
FAMILY = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


class Picture:
    """Collects elements from top to bottom; `y` is where the next one goes."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.y = MARGIN

    def text(self, x: float, y: float, words: str, *, size: int = 12, fill: str = INK, **more: str):
        attributes = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in more.items())
        self.elements.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}"{attributes}>'
            f"{escape(words)}</text>"
        )

    def bar(self, x: float, y: float, width: float, height: float, fill: str):
        self.elements.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{height:.1f}" '
            f'rx="1.5" fill="{fill}"/>'
        )

    def line(self, x: float, top: float, bottom: float, colour: str, width: float = 1):
        self.elements.append(
            f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{colour}" stroke-width="{width}"/>'
        )

    def dot(self, x: float, y: float, fill: str, radius: float = 4):
        self.elements.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="#fff"/>'
        )

    def svg(self) -> str:
        height = self.y + MARGIN
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
                f'width="{WIDTH}" height="{height:.0f}" font-family="{FAMILY}">',
                f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>',
                *self.elements,
                "</svg>",
                "",
            ]
        )
