"""The trade-off between memory and recomputation as a chart: forwards a step against states of memory."""

from __future__ import annotations

import os
from functools import partial
from itertools import filterfalse

from .axis import Axis, Unit, draw_x, draw_y, name_x
from .compare import Comparison, Curve
from .frame import LEFT, RIGHT, WIDTH, Sign, draw_legend, draw_title
from .svg import Page, number, polyline, segment

_HEIGHT = 420.0
_SPACING = 24.0


def tradeoff(comparison: Comparison, path: str | os.PathLike[str] | None = None, *, budget: float | None = None) -> str:
    """A comparison as an SVG chart, written to ``path`` if there is one; ``budget``, in states, is marked.

    >>> from pebbling.show import compare
    >>> tradeoff(compare(100)).startswith("<svg")
    True
    """
    title = f"Memory against recomputation: {comparison.steps:,} steps"
    detail = "Each evaluation of a step counts, the first sweep included; 1 is the least, that of storing everything."
    page = Page(WIDTH, 0, f"{title}. {detail}")
    draw_title(page, title, detail)
    drawn = [curve for curve in comparison.curves if any(curve.schedules)]
    top = draw_legend(page, [Sign(curve.name, partial(_sign, curve=curve)) for curve in drawn]) + 4
    bottom = top + _HEIGHT
    points = {curve.name: _points(comparison, curve) for curve in drawn}
    highest = max(y for line in points.values() for _, y in line)
    memory = Axis(comparison.memory[0], comparison.memory[-1], LEFT, RIGHT, Unit("memory, in states"), log=True)
    forwards = Axis(1.0, highest, bottom, top, Unit("", whole=True), spacing=40.0)
    draw_x(page, memory, top, bottom)
    draw_y(page, forwards, LEFT, RIGHT, "forwards a step")
    if budget is not None and memory.low <= budget <= memory.high:
        page.path("s-soft limit", [f"M{number(memory(budget))} {number(top)}V{number(bottom)}"])
        page.text("f-soft", memory(budget) + 5, top + 12, f"budget: {budget:,.4g} states", font_size=11)
    for curve in [*filterfalse(_dotted, reversed(drawn)), *filter(_dotted, drawn)]:
        _draw(page, curve, [(memory(x), forwards(y)) for x, y in points[curve.name]])
    name_x(page, memory, bottom)
    page.height = bottom + 50
    return page.svg(path)


def _points(comparison: Comparison, curve: Curve) -> list[tuple[float, float]]:
    known = zip(comparison.memory, curve.forwards, strict=True)
    return [(memory, forwards / comparison.steps) for memory, forwards in known if forwards is not None]


def _draw(page: Page, curve: Curve, points: list[tuple[float, float]]) -> None:
    if _dotted(curve):
        last = -_SPACING
        for x, y in points:
            if x - last >= _SPACING:
                page.shape("circle", f"s-{curve.colour} dot", cx=x, cy=y, r=3.6)
                last = x
    else:
        page.path(_style(curve), [polyline(points)])


def _sign(page: Page, x: float, y: float, curve: Curve) -> None:
    if _dotted(curve):
        page.shape("circle", f"s-{curve.colour} dot", cx=x, cy=y, r=3.6)
    else:
        page.path(_style(curve), [segment(x - 8, y, x + 10, y)])


def _style(curve: Curve) -> str:
    return f"s-{curve.colour} line{' dashed' if curve.colour == 'sky' else ''}"


def _dotted(curve: Curve) -> bool:
    """Online lies on Revolve but for a fraction of a percent: rings leave the line below visible."""
    return curve.name == "Online"
