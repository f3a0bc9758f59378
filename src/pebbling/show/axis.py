"""From values to pixels, with ticks that people can read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .svg import Page, number

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_BYTES = [(2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")]
_SECONDS = [(86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"), (1e-3, "ms"), (1e-6, "µs")]


@dataclass(frozen=True)
class Unit:
    """What the numbers on an axis count: ``size`` of the plain unit at a time."""

    name: str
    size: float = 1.0
    binary: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high`` on the pixels from ``first`` to ``last``."""

    low: float
    high: float
    first: float
    last: float
    unit: Unit = Unit("")
    log: bool = False
    spacing: float = 70.0
    """Pixels between two ticks, at least."""

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low) if high > low else 0.0
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[tuple[float, str]]:
        """Positions in pixels, each with what is written there."""
        values = _log_ticks(self.low, self.high) if self.log else self._linear_ticks()
        return [(self(value), label(value / self.unit.size)) for value in values]

    def _linear_ticks(self) -> list[float]:
        pixels = abs(self.last - self.first) or 1.0
        step = _nice((self.high - self.low) / self.unit.size * self.spacing / pixels, self.unit) * self.unit.size
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [tick * step for tick in range(first, last + 1)]


def time_unit(longest: float, timed: bool, overlap: bool = False) -> Unit:
    """The unit of time in which ``longest`` is a number that people can read."""
    what = "compute time, transfers beside it" if overlap else "time"
    if not timed:
        return Unit(f"{what}, in forward steps")
    size, name = next(((size, name) for size, name in _SECONDS if longest >= 2 * size), (1e-9, "ns"))
    return Unit(f"{what}, in {name}", size)


def byte_unit(largest: float) -> Unit:
    """The unit in which ``largest`` bytes are a number that people can read."""
    size, name = next(((size, name) for size, name in _BYTES if largest >= size), _BYTES[-1])
    return Unit(name, size, binary=True)


def label(value: float) -> str:
    """A number on an axis.

    >>> label(0), label(1500), label(2000000), label(0.25), label(4e11), label(1e12)
    ('0', '1500', '2M', '0.25', '4·10¹¹', '10¹²')
    """
    if abs(value) >= 1e9:
        mantissa, exponent = f"{value:e}".split("e")
        power = "10" + str(int(exponent)).translate(_RAISED)
        return power if float(mantissa) == 1 else f"{float(mantissa):.6g}·{power}"
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (abs(value) >= size and (value / size * 10).is_integer() and size > 1e3):
            return f"{value / size:.6g}{letter}"
    return f"{value:.6g}"


def draw_x(page: Page, axis: Axis, top: float, bottom: float) -> None:
    """Grid lines between ``top`` and ``bottom``."""
    page.path("s-grid", (f"M{number(x)} {number(top)}V{number(bottom)}" for x, _ in axis.ticks()))


def name_x(page: Page, axis: Axis, bottom: float) -> None:
    """Numbers and the unit below a plot that ends at ``bottom``."""
    for x, written in axis.ticks():
        page.text("f-soft", x, bottom + 17, written, text_anchor="middle", font_size=11)
    page.text("f-soft", (axis.first + axis.last) / 2, bottom + 37, axis.unit.name, text_anchor="middle", font_size=12)


def draw_y(page: Page, axis: Axis, left: float, right: float, name: str) -> None:
    """Grid lines between ``left`` and ``right``, numbers and a name on the left."""
    ticks = axis.ticks()
    page.path("s-grid", (f"M{number(left)} {number(y)}H{number(right)}" for y, _ in ticks))
    for y, written in ticks:
        page.text("f-soft", left - 8, y + 4, written, text_anchor="end", font_size=11)
    middle = (axis.first + axis.last) / 2
    turned = f"rotate(-90 {number(left - 50)} {number(middle)})"
    page.text("f-soft", left - 50, middle, name, text_anchor="middle", font_size=12, transform=turned)


def _nice(step: float, unit: Unit) -> float:
    """The smallest step of at least ``step`` that looks like one."""
    if unit.binary and step <= 512:
        return 2.0 ** math.ceil(math.log2(step) - 1e-9)
    if unit.whole and step <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step) + 1e-9)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low < 3000 else (1,)
    values = [factor * 10.0**power for power in powers for factor in factors]
    return [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
