"""A page of SVG: shapes with classes, one style sheet for light and dark, no dependency.

Colours are those of Okabe and Ito, which stay apart for colour-blind readers. They are set by plain
class rules and not by variables, which only browsers understand.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

_LIGHT = {
    "page": "#ffffff", "ink": "#1b2330", "soft": "#5b6675", "grid": "#e4e8ee",
    "slate": "#48566a", "blue": "#0072b2", "orange": "#d98c00", "green": "#008a65",
    "red": "#d55e00", "pink": "#b9588f", "sky": "#3f9fd6",
}  # fmt: skip
_DARK = {
    "page": "#12171f", "ink": "#e8ecf2", "soft": "#98a4b3", "grid": "#28313d",
    "slate": "#a9b6c6", "blue": "#4ea6e0", "orange": "#f0ab33", "green": "#2fbf93",
    "red": "#f47d2c", "pink": "#dc86b6", "sky": "#86c9f2",
}  # fmt: skip
_SHAPES = (
    ".advance,.record{stroke-width:1.6;stroke-linecap:round}.held{stroke-width:2.4;opacity:.45}"
    ".tape{stroke-width:2;opacity:.35}.fine{stroke-width:.8}.tapes{opacity:.18}.turns{stroke-width:1}"
    ".restore{stroke-width:1.4}.reverse{stroke-width:1.2}.jump{stroke-dasharray:1.5 2.5;opacity:.8}"
    ".area{opacity:.16}.curve{stroke-width:1.4;stroke-linejoin:round}.limit{stroke-dasharray:4 3}"
    ".ring{stroke-width:3}.line{stroke-width:2;stroke-linejoin:round}"
    ".dashed{stroke-dasharray:7 3}.dot{stroke-width:1.3}"
)
_FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"


class Page:
    """An SVG document that grows by one shape at a time."""

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width, self.height, self.label = width, height, label
        self._parts: list[str] = []

    def shape(self, tag: str, kind: str, tip: str = "", *, inside: str = "", **attributes: float | str) -> None:
        """One element of class ``kind``; ``tip`` shows when the pointer rests on it, ``inside`` is what moves it."""
        written = "".join(f" {name.replace('_', '-')}={_quoted(value)}" for name, value in attributes.items())
        content = (f"<title>{escape(tip)}</title>" if tip else "") + inside
        self._parts.append(f"<{tag} class={quoteattr(kind)}{written}" + (f">{content}</{tag}>" if content else "/>"))

    def path(self, kind: str, lines: Iterable[str], tip: str = "") -> None:
        """One path from its pieces; nothing if there are none."""
        if drawn := "".join(lines):
            self.shape("path", kind, tip, d=drawn)

    def text(self, kind: str, x: float, y: float, content: str, **attributes: float | str) -> None:
        """A line of text."""
        written = "".join(f" {name.replace('_', '-')}={_quoted(value)}" for name, value in attributes.items())
        self._parts.append(f'<text class="{kind}" x="{number(x)}" y="{number(y)}"{written}>{escape(content)}</text>')

    def svg(self, path: str | os.PathLike[str] | None = None) -> str:
        """The document; also written to ``path`` if there is one."""
        size = f"{number(self.width)} {number(self.height)}"
        document = "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{number(self.width)}" '
                f'height="{number(self.height)}" role="img" aria-label={quoteattr(self.label)}>',
                f"<style>{_sheet(_LIGHT)}@media(prefers-color-scheme:dark){{{_sheet(_DARK)}}}"
                f"{_SHAPES}text{{font-family:{_FONT};font-variant-numeric:tabular-nums}}</style>",
                f'<rect class="f-page" width="{number(self.width)}" height="{number(self.height)}" rx="8"/>',
                *self._parts,
                "</svg>\n",
            ]
        )
        if path is not None:
            svg_path(path).write_text(document, encoding="utf-8")
        return document


def svg_path(path: str | os.PathLike[str]) -> Path:
    """``path``, if it names a file that an SVG can go to."""
    target = Path(path)
    if target.suffix.lower() != ".svg":
        raise ValueError(
            f"pictures are written as SVG: name the file {target.stem or 'picture'}.svg, not {target.name!r}"
        )
    if not target.parent.is_dir():
        raise ValueError(f"there is no directory {str(target.parent)!r} to write {target.name!r} to: make it first")
    return target


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel.

    >>> number(3.0), number(2.25), number(-0.01)
    ('3', '2.2', '0')
    """
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def segment(x0: float, y0: float, x1: float, y1: float) -> str:
    """A straight line as a piece of a path."""
    return f"M{number(x0)} {number(y0)}L{number(x1)} {number(y1)}"


def polyline(points: Iterable[tuple[float, float]]) -> str:
    """A line through points as a piece of a path; points that fall on the one before are left out."""
    written: list[str] = []
    for x, y in points:
        point = f"{number(x)} {number(y)}"
        if not written or written[-1] != point:
            written.append(point)
    return "M" + "L".join(written) if len(written) > 1 else ""


def _quoted(value: float | str) -> str:
    return quoteattr(value if isinstance(value, str) else number(value))


def _sheet(colours: dict[str, str]) -> str:
    """For each colour a class that fills and one that strokes."""
    return "".join(f".f-{name}{{fill:{code}}}.s-{name}{{fill:none;stroke:{code}}}" for name, code in colours.items())
