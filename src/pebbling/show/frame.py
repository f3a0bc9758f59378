"""What every picture has: a title that says what was found, a line of detail, a legend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .svg import Page

WIDTH, LEFT, RIGHT = 1000.0, 78.0, 976.0
"""The page, and where plots begin and end on it."""

_LETTER = 6.5


@dataclass(frozen=True)
class Sign:
    """One entry of a legend: its text, and how to draw its sign around a point."""

    text: str
    draw: Callable[[Page, float, float], None]


def draw_title(page: Page, title: str, detail: str) -> None:
    """The first two lines of a page."""
    page.text("f-ink", LEFT, 32, title, font_size=18, font_weight="600")
    page.text("f-soft", LEFT, 53, detail, font_size=13)


def draw_legend(page: Page, signs: Iterable[Sign], y: float = 78) -> float:
    """Signs side by side, in as many rows as they need; where the next thing may begin."""
    x = LEFT
    for sign in signs:
        width = 24 + _LETTER * len(sign.text)
        if x > LEFT and x + width > RIGHT:
            x, y = LEFT, y + 20
        sign.draw(page, x + 8, y - 4)
        page.text("f-ink", x + 22, y, sign.text, font_size=12)
        x += width + 16
    return y + 14
