"""The picture of the demo: the wave on its way, the gradient, and the memory that it took."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..show.axis import Axis, Unit, byte_unit, draw_x, draw_y, name_x
from ..show.frame import WIDTH
from ..show.svg import Page, number, polyline
from ..units import format_bytes
from .image import image
from .watch import Watched
from .wave import LENS, LENS_RADIUS, MICROPHONE, SHAPE, SPEAKER

_LEFT, _RIGHT, _GAP, _TOP = 28.0, 972.0, 20.0, 104.0
_ROOM = SHAPE[0] / SHAPE[1]


@dataclass(frozen=True)
class Shown:
    """What there is to draw."""

    fields: Sequence[tuple[int, np.ndarray]]
    gradient: np.ndarray
    everything: Watched
    budgeted: Watched
    budget: int


def draw(shown: Shown, path: str | os.PathLike[str]) -> None:
    """Write the picture as SVG."""
    much, little = shown.everything.peak, shown.budgeted.peak
    title = f"The gradient of a simulation in {100 * little / much:.2f} % of the memory"
    detail = f"Storing everything takes {format_bytes(much)}, this one {format_bytes(little)}: equal to the last bit."
    width = 0.49 * (_RIGHT - _LEFT)
    top = _TOP + _field_width(shown) * _ROOM + 44
    page = Page(WIDTH, top + width * _ROOM + 28, f"{title}. {detail}")
    page.text("f-ink", _LEFT, 36, title, font_size=20, font_weight="600")
    page.text("f-soft", _LEFT, 58, detail, font_size=13)
    _caption(page, _LEFT, _TOP, "Sound on its way", "pressure above rest in orange, below it in blue")
    _draw_fields(page, shown)
    _caption(page, _LEFT, top, "Its gradient", "faster air here makes it louder (orange) or softer (blue)")
    _draw_field(page, shown.gradient, float(np.quantile(np.abs(shown.gradient), 0.99)), _LEFT, top, width)
    _draw_memory(page, shown, _LEFT + width + 76, top, top + width * _ROOM)
    page.svg(path)


def _field_width(shown: Shown) -> float:
    return (_RIGHT - _LEFT - _GAP * (len(shown.fields) - 1)) / len(shown.fields)


def _draw_fields(page: Page, shown: Shown) -> None:
    """The pressure at some steps, side by side, and names where it is calm."""
    width = _field_width(shown)
    scale = width / SHAPE[1]
    for place, (step, field) in enumerate(shown.fields):
        x = _LEFT + place * (width + _GAP)
        _draw_field(page, field, float(np.quantile(np.abs(field), 0.997)), x, _TOP, width)
        page.text("f-ink", x + width - 8, _TOP + 17, f"step {step:,}", font_size=11, text_anchor="end")
    for place, (row, column), below, name in (
        (0, LENS, LENS_RADIUS * scale + 15, "slower air"),
        (0, MICROPHONE, 17.0, "microphone"),
        (len(shown.fields) - 1, SPEAKER, 17.0, "loudspeaker"),
    ):
        x, y = _LEFT + place * (width + _GAP) + column * scale, _TOP + row * scale + below
        page.text("f-ink", x, y, name, font_size=11, text_anchor="middle")


def _draw_field(page: Page, field: np.ndarray, largest: float, x: float, y: float, width: float) -> None:
    scale = width / SHAPE[1]
    height = width * _ROOM
    address = image(field, largest)
    page.shape("image", "field", x=x, y=y, width=width, height=height, href=address, preserveAspectRatio="none")
    page.shape("rect", "s-grid", x=x, y=y, width=width, height=height, rx=4)
    x_lens, y_lens = x + LENS[1] * scale, y + LENS[0] * scale
    page.shape("circle", "s-soft limit", cx=x_lens, cy=y_lens, r=LENS_RADIUS * scale)
    for row, column in (SPEAKER, MICROPHONE):
        page.shape("circle", "f-ink", cx=x + column * scale, cy=y + row * scale, r=3.2)


def _caption(page: Page, x: float, y: float, text: str, detail: str = "") -> None:
    page.text("f-ink", x, y - 10, text, font_size=14, font_weight="600")
    if detail:
        page.text("f-soft", x + 8.4 * len(text) + 10, y - 10, detail, font_size=12)


def _draw_memory(page: Page, shown: Shown, left: float, top: float, bottom: float) -> None:
    """Both runs on one scale, and below it the smaller one on its own."""
    everything, budgeted = shown.everything, shown.budgeted
    time = Axis(0.0, max(everything.seconds, budgeted.seconds), left, _RIGHT, Unit("seconds, with memory tracing"))
    middle, bottom = (top + bottom) / 2, bottom - 38
    _caption(page, left, top, "Memory over time")
    high = _draw_panel(page, time, top, middle - 32, [("red", everything), ("blue", budgeted)])
    x = time(float(everything.curve[np.argmax(everything.curve[:, 1]), 0]))
    page.text("f-red", x + 10, high(everything.peak) + 9, "storing everything", font_size=12)
    page.text("f-blue", _RIGHT, high(0) - 7, "within the budget", font_size=12, text_anchor="end")
    low = _draw_panel(page, time, middle + 8, bottom, [("blue", budgeted)], shown.budget)
    page.text("f-soft", left, middle - 2, "the same, enlarged", font_size=12)
    written = f"budget {format_bytes(shown.budget)}"
    page.text("f-soft", _RIGHT, low(shown.budget) - 5, written, font_size=11, text_anchor="end")
    name_x(page, time, bottom)


def _draw_panel(
    page: Page, time: Axis, top: float, bottom: float, curves: Sequence[tuple[str, Watched]], limit: int = 0
) -> Axis:
    """Areas under curves, on a scale that fits the highest of them."""
    highest = max(limit, *(run.peak for _, run in curves))
    unit = byte_unit(highest)
    amounts = Axis(0.0, highest * 1.05, bottom, top, unit, spacing=26.0)
    draw_x(page, time, top, bottom)
    draw_y(page, amounts, time.first, _RIGHT, unit.name)
    for colour, run in curves:
        line = polyline([(time(moment), amounts(amount)) for moment, amount in run.curve])
        page.path(f"f-{colour} area", [f"{line}V{number(bottom)}H{number(time.first)}Z"])
        page.path(f"s-{colour} curve", [line])
    if limit:
        page.path("s-soft limit", [f"M{number(time.first)} {number(amounts(limit))}H{number(_RIGHT)}"])
    return amounts
