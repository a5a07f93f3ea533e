"""Hand-made SVG drawings: text, lines, boxes, paths, and the colours of a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

INK = "#17222e"
MUTED = "#66727f"
GRID = "#e7ebef"
BLUE = "#2867d8"
PALE_BLUE = "#dbe6fa"
ORANGE = "#e8792b"
RED = "#cf2e3e"
GREEN = "#1d8a5b"
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"

_HEAT = ("#f3f7fd", "#d3e2f8", "#a9c8f0", "#f6d9a8", "#f0a45d", "#de6434", "#a81f2d")


class Drawing:
    """Elements in an area of ``width`` × ``height`` units."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self._elements: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        color: str = INK,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        """A line of text whose baseline starts (or centres, or ends) at a point."""
        weight = ' font-weight="600"' if bold else ""
        self._elements.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" text-anchor="{anchor}"{weight}>'
            f"{escape(text)}</text>"
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, color: str = GRID, width: float = 1, dashes: str = ""
    ) -> None:
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        self._elements.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
            f'stroke-width="{width}"{dashed}/>'
        )

    def box(
        self, x: float, y: float, width: float, height: float, color: str, *, corner: float = 2, title: str = ""
    ) -> None:
        """A filled rectangle; ``title`` is its tooltip."""
        inside = f"<title>{escape(title)}</title>" if title else ""
        self._elements.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}" '
            f'rx="{corner}" fill="{color}">{inside}</rect>'
        )

    def path(self, points: Sequence[tuple[float, float]], *, color: str, width: float = 2, fill: str = "none") -> None:
        steps = " ".join(f"{'M' if index == 0 else 'L'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points))
        self._elements.append(
            f'<path d="{steps}" fill="{fill}" stroke="{color}" stroke-width="{width}" stroke-linejoin="round" '
            'stroke-linecap="round"/>'
        )

    def dot(self, x: float, y: float, radius: float, color: str, *, title: str = "") -> None:
        inside = f"<title>{escape(title)}</title>" if title else ""
        self._elements.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{color}">{inside}</circle>')

    def place(self, other: Drawing, x: float, y: float) -> None:
        inner = "".join(other._elements)
        self._elements.append(f'<g transform="translate({x:.1f} {y:.1f})">{inner}</g>')

    def render(self, label: str) -> str:
        """Returns the drawing as one SVG element."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'font-family="{escape(FONT)}" role="img" aria-label="{escape(label)}">{"".join(self._elements)}</svg>'
        )


def heat_color(value: float, lowest: float, highest: float) -> str:
    """A colour between pale blue and red."""
    share = (value - lowest) / (highest - lowest) if highest > lowest else 0.0
    return _HEAT[min(len(_HEAT) - 1, max(0, int(share * len(_HEAT))))]
