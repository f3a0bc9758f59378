"""The two drawings of the page of a plan, as SVG that takes its colours from the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ...units import format_bytes, format_seconds
from .facts import MemoryCurve, Point

_WIDTH, _HEIGHT = 960, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 940, 18, 276


def memory_over_time(before: MemoryCurve, after: MemoryCurve, memory: int | None) -> str:
    """Two areas on one axis of time, with the budget and the turns from forward to backward."""
    end = max(before.times[-1], after.times[-1]) or 1.0
    top = 1.08 * max(before.peak, after.peak, 1)
    parts = _grid(top, end, "time", format_seconds)
    for kind, each in (("before", before), ("after", after)):
        line = _steps(each, end, top)
        parts.append(f'<path class="area {kind}" d="{line}L{_x(each.times[-1], end)},{_BOTTOM}L{_LEFT},{_BOTTOM}Z"/>')
        parts.append(f'<path class="line {kind}" d="{line}"/>')
        x = _x(each.turn, end)
        parts.append(f'<line class="turn {kind}" x1="{x}" x2="{x}" y1="{_TOP}" y2="{_BOTTOM}"/>')
    if memory is not None and memory <= top:
        y = _y(memory, top)
        parts.append(f'<line class="budget" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="budget-name" x="{_RIGHT - 4}" y="{y - 6}" text-anchor="end">budget '
            f"{format_bytes(memory)}</text>"
        )
    return _svg("Memory over time, with and without the plan", parts)


def trade_off_curve(points: Sequence[Point], here: Point) -> str:
    """Overhead against budget, with the bound, and this plan as a dot.

    Between two budgets the plan of the smaller and the bound of the larger hold, hence the stairs.
    """
    most = max(point.memory for point in points) or 1
    top = 1.15 * max([point.overhead for point in points] + [here.overhead, 0.01])
    low = min(point.memory for point in points)
    start = max(0.0, low - 0.08 * (most - low)) if most > low else 0.0
    width = (most - start) or 1.0

    def place(memory: float, value: float) -> tuple[float, float]:
        return round(_LEFT + (memory - start) / width * (_RIGHT - _LEFT), 1), _y(value, top)

    parts = _grid(top, width, "budget", lambda value: format_bytes(start + value), _percent)
    for kind, values in (("bound", [p.bound for p in points]), ("found", [p.overhead for p in points])):
        spots = [place(point.memory, value) for point, value in zip(points, values)]
        path = f"M{spots[0][0]},{spots[0][1]}" + "".join(
            f"V{y}H{x}" if kind == "bound" else f"H{x}V{y}" for x, y in spots[1:]
        )
        if kind == "bound":
            parts.append(f'<path class="area bound" d="{path}L{spots[-1][0]},{_BOTTOM}L{spots[0][0]},{_BOTTOM}Z"/>')
        parts.append(f'<path class="line {kind}" d="{path}"/>')
    for point in points:
        x, y = place(point.memory, point.overhead)
        tip = f"{format_bytes(point.memory)}: {point.overhead:.2%} more time, at least {point.bound:.2%}"
        parts.append(f'<circle class="spot" cx="{x}" cy="{y}" r="4"><title>{tip}</title></circle>')
    x, y = place(here.memory, here.overhead)
    parts.append(f'<circle class="here" cx="{x}" cy="{y}" r="7"><title>this plan</title></circle>')
    after = x < (_LEFT + _RIGHT) / 2
    anchor, shift = ("start", 14) if after else ("end", -14)
    parts.append(f'<text class="here-name" x="{x + shift}" y="{y - 10}" text-anchor="{anchor}">this plan</text>')
    return _svg("Overhead against budget", parts)


def _steps(curve: MemoryCurve, end: float, top: float) -> str:
    """A staircase with one point for each pixel at most, the highest of its operations."""
    highest: dict[float, int] = {}
    for time, level in zip(curve.times, curve.bytes):
        x = 1.0 * math.floor(_x(time, end))
        highest[x] = max(highest.get(x, 0), level)
    highest[_x(curve.times[-1], end)] = curve.bytes[-1]
    spots = sorted(highest.items())
    pieces = [f"M{_LEFT},{_BOTTOM}"]
    last = 0
    for x, level in spots:
        pieces.append(f"L{x},{_y(last, top)}L{x},{_y(level, top)}")
        last = level
    return "".join(pieces)


def _grid(top: float, width: float, name: str, say_x: object, say_y: object = format_bytes) -> list[str]:
    assert callable(say_x)
    assert callable(say_y)
    parts = []
    for value in _ticks(top, binary=say_y is format_bytes):
        y = _y(value, top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(say_y(value))}</text>')
    for i in range(6):
        x = round(_LEFT + i / 5 * (_RIGHT - _LEFT), 1)
        anchor = "end" if i == 5 else "middle"
        parts.append(
            f'<text class="tick" x="{x}" y="{_BOTTOM + 20}" text-anchor="{anchor}">{say_x(width * i / 5)}</text>'
        )
    parts.append(f'<text class="tick" x="{_RIGHT}" y="{_BOTTOM + 40}" text-anchor="end">{name} →</text>')
    return parts


def _ticks(top: float, binary: bool) -> list[float]:
    """Four or so round values up to the top."""
    base = 1024 ** math.floor(math.log(top, 1024)) if binary and top >= 1 else 1.0
    rough = top / base / 4
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= rough) * base
    return [step * i for i in range(int(top / step) + 1)]


def _percent(value: float) -> str:
    return f"{100 * value:.3g} %"


def _x(time: float, end: float) -> float:
    return round(_LEFT + time / end * (_RIGHT - _LEFT), 1)


def _y(value: float, top: float) -> float:
    return round(_BOTTOM - value / top * (_BOTTOM - _TOP), 1)


def _svg(label: str, parts: list[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}">' + "".join(parts) + "</svg>"
