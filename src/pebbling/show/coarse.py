"""A pebble picture of a schedule with more actions than pixels: lines and envelopes instead of signs.

What overlaps within a pixel is drawn once, so that the size of the picture does not grow with the
schedule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from . import signs
from .axis import Axis
from .svg import Page, number, polyline, segment
from .trace import Bar, Blur, StateLine, Taped, Trace

_SPACING = 2.0
_MANY, _APART = 60, 4
"""Rows of bars above which they are drawn some pixels apart: closer, they would make one blot."""
_LONG = 12.0


def draw_coarse(page: Page, trace: Trace, time: Axis, step: Axis) -> None:
    """Draw what is held behind what is done."""
    page.path("f-pink tapes", _areas(trace.tapes, time, step))
    for tier in range(len(trace.held)):
        page.path(
            f"s-{signs.colour(tier)} held fine", _bars((bar for bar in trace.bars if bar.tier == tier), time, step)
        )
    page.path("s-slate advance fine", _sweeps(trace.sweeps, time, step))
    page.path("s-pink record fine", _lines((taped.recorded for taped in trace.tapes), time, step))
    page.path("s-red turns", _columns(trace.blurs, time, step))
    page.path("f-red turn", _large(trace.blurs, time, step))
    page.path("s-red reverse", _lines((taped.reversed for taped in trace.tapes), time, step))
    _draw_stores(page, trace, time, step)


def _sweeps(sweeps: Iterable[list[StateLine]], time: Axis, step: Axis) -> Iterator[str]:
    """Each sweep as one line with corners at least a pixel apart."""
    seen: set[tuple[int, ...]] = set()
    for sweep in sweeps:
        points = [(time(sweep[0].start), step(sweep[0].first))]
        for line in sweep:
            for x, y in ((time(line.start), step(line.first)), (time(line.stop), step(line.last))):
                if max(abs(x - points[-1][0]), abs(y - points[-1][1])) >= 1:
                    points.append((x, y))
        end = (time(sweep[-1].stop), step(sweep[-1].last))
        key = tuple(map(round, (*points[0], *end)))
        if key not in seen:
            seen.add(key)
            yield polyline([*points, end])


def _lines(lines: Iterable[StateLine], time: Axis, step: Axis) -> Iterator[str]:
    seen: set[tuple[int, ...]] = set()
    for line in lines:
        ends = time(line.start), step(line.first), time(line.stop), step(line.last)
        key = tuple(map(round, ends))
        if key not in seen:
            seen.add(key)
            yield segment(*ends)


def _areas(tapes: Iterable[Taped], time: Axis, step: Axis) -> Iterator[str]:
    """Where tapes are held: up along the recording, over, and down along the reversal."""
    seen: set[tuple[int, ...]] = set()
    for up, down in tapes:
        corners = [(time(line.start), step(line.first)) for line in (up, down)]
        ends = [(time(line.stop), step(line.last)) for line in (up, down)]
        key = tuple(round(value) for point in (*corners, *ends) for value in point)
        if key not in seen:
            seen.add(key)
            yield polyline([corners[0], ends[0], corners[1], ends[1]]) + "Z"


def _bars(bars: Iterable[Bar], time: Axis, step: Axis) -> Iterator[str]:
    """One row for each half pixel, or every few where there are many, with bars that touch joined."""
    rows: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for bar in bars:
        if time(bar.stop) - time(bar.start) >= 1:
            rows[round(2 * step(bar.step))].append((time(bar.start), time(bar.stop)))
    if len(rows) > _MANY:
        drawn: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for y, spans in rows.items():
            drawn[2 * _APART * round(y / (2 * _APART))] += spans
        rows = drawn
    for y, spans in sorted(rows.items()):
        spans.sort()
        left, right = spans[0]
        for start, stop in spans[1:]:
            if start > right + 1:
                yield f"M{number(left)} {y / 2:g}H{number(right)}"
                left, right = start, stop
            right = max(right, stop)
        yield f"M{number(left)} {y / 2:g}H{number(right)}"


def _columns(blurs: Iterable[Blur], time: Axis, step: Axis) -> Iterator[str]:
    """For each pixel of time, from the lowest to the highest step that is reversed then."""
    extent: dict[int, tuple[int, int]] = {}
    for blur in blurs:
        if not _is_large(blur, time):
            for column in range(int(time(blur.start)), int(time(blur.stop)) + 1):
                low, high = extent.get(column, (blur.first, blur.last))
                extent[column] = min(low, blur.first), max(high, blur.last)
    for column, (low, high) in sorted(extent.items()):
        middle, half = (step(low) + step(high)) / 2, max(1.0, abs(step(low) - step(high)) / 2)
        yield f"M{column}.5 {number(middle - half)}V{number(middle + half)}"


def _large(blurs: Iterable[Blur], time: Axis, step: Axis) -> Iterator[str]:
    """Blurs of several pixels: all that is known is that their steps are reversed from the last to the first."""
    for blur in blurs:
        if _is_large(blur, time):
            left, right = time(blur.start), time(blur.stop)
            yield polyline([(left, step(blur.first)), (left, step(blur.last)), (right, step(blur.first))]) + "Z"


def _is_large(blur: Blur, time: Axis) -> bool:
    return time(blur.stop) - time(blur.start) > 4


def _draw_stores(page: Page, trace: Trace, time: Axis, step: Axis) -> None:
    """A sign for stores whose snapshots are held for long, as far as there is room."""
    taken: set[tuple[int, int]] = set()
    for bar in sorted(trace.bars, key=lambda bar: bar.start - bar.stop):
        x, y = time(bar.start), step(bar.step)
        place = int(x / _SPACING), int(y / _SPACING)
        if time(bar.stop) - x >= _LONG and place not in taken:
            taken.add(place)
            signs.store(page, x, y, bar.tier, 1.5)
