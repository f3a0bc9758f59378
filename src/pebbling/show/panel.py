"""What one tier holds over time, as an area on the time axis of the pebbles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .axis import Axis, Unit, byte_unit, draw_x, draw_y
from .frame import LEFT, RIGHT
from .scale import Scale
from .svg import Page, number, polyline

Corner = tuple[float, float]


@dataclass(frozen=True)
class Panel:
    """The corners of one tier's curve, what it is called, and how much it may hold."""

    name: str
    colour: str
    corners: Sequence[Corner]
    capacity: float | None
    working: float = 0.0

    @property
    def peak(self) -> float:
        """The most that is held."""
        return max(amount for _, amount in self.corners)


def draw_panel(page: Page, panel: Panel, scale: Scale, time: Axis, top: float, bottom: float) -> None:
    """Draw the curve between two heights, its peak and, where it is near, its limit."""
    peak, capacity = panel.peak, panel.capacity
    near = capacity is not None and capacity <= 1.5 * peak
    highest = max(peak, capacity if near and capacity is not None else 0.0) or 1.0
    unit = Unit("states", whole=True) if scale.state is None else byte_unit(highest)
    amounts = Axis(0.0, highest * 1.12, bottom, top, unit, spacing=24.0)
    draw_x(page, time, top, bottom)
    draw_y(page, amounts, LEFT, RIGHT, f"{panel.name}, {unit.name}")
    points = [(time(moment), amounts(amount)) for moment, amount in thinned(panel.corners, time)]
    line = polyline(points)
    area = f"{line}V{number(bottom)}H{number(points[0][0])}Z" if line else ""
    page.path(f"f-{panel.colour} area", [area])
    page.path(f"s-{panel.colour} curve", [line])
    if near and capacity is not None and capacity > peak:
        page.path("s-soft limit", [f"M{number(LEFT)} {number(amounts(capacity))}H{number(RIGHT)}"])
        page.text("f-soft", LEFT + 6, amounts(capacity) - 4, f"limit {scale.say_amount(capacity)}", font_size=11)
    written = f"peak {scale.say_amount(peak)}"
    if panel.working:
        written += f", of it {scale.say_amount(panel.working)} working states and tape"
    page.text(f"f-{panel.colour}", RIGHT, top - 6, written, text_anchor="end", font_size=11, font_weight="600")


def thinned(corners: Sequence[Corner], time: Axis) -> list[Corner]:
    """The same curve with the highest amount of every pixel, where it has more corners than pixels."""
    width = int(abs(time.last - time.first))
    if len(corners) <= width or time.high <= time.low:
        return list(corners)
    step = (time.high - time.low) / width
    highest = [0.0] * (width + 1)
    before = 0.0, corners[0][1]
    for moment, amount in corners:
        first, last = int(before[0] / step), int(moment / step)
        for pixel in range(first, last + 1):
            highest[pixel] = max(highest[pixel], before[1], amount if pixel == last else 0.0)
        before = moment, amount
    result: list[Corner] = []
    for pixel, amount in enumerate(highest[:width]):
        result += [(pixel * step, amount), ((pixel + 1) * step, amount)]
    return result
