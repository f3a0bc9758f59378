"""The signs of a pebble picture, one for each kind of action."""

from __future__ import annotations

from .svg import Page, number, segment

_TIERS = ("blue", "orange", "green", "sky")


def colour(tier: int) -> str:
    """The colour of a tier."""
    return _TIERS[tier % len(_TIERS)]


def advance(page: Page, x0: float, y0: float, x1: float, y1: float, tip: str = "") -> None:
    """Steps run without a tape."""
    page.path("s-slate advance", [segment(x0, y0, x1, y1)], tip)


def record(page: Page, x0: float, y0: float, x1: float, y1: float, tip: str = "") -> None:
    """A step runs and its tape is kept."""
    page.path("s-pink record", [segment(x0, y0, x1, y1)], tip)


def store(page: Page, x: float, y: float, tier: int, size: float = 3.0, tip: str = "") -> None:
    """A state is stored."""
    page.shape("rect", f"f-{colour(tier)} store", tip, x=x - size, y=y - size, width=2 * size, height=2 * size)


def restore(page: Page, x: float, y: float, tier: int, size: float = 3.4, tip: str = "") -> None:
    """A state is restored."""
    page.shape("circle", f"s-{colour(tier)} restore", tip, cx=x, cy=y, r=size)


def turn(page: Page, x0: float, y0: float, peak: float, y1: float, x1: float, tip: str = "") -> None:
    """A step runs with a tape, up to ``peak``, and is reversed at once."""
    corners = f"M{number(x0)} {number(y0)}L{number(peak)} {number(y1)}L{number(x1)} {number(y0)}Z"
    page.path("f-red turn", [corners], tip)


def reverse(page: Page, x: float, y: float, size: float = 3.0, tip: str = "") -> None:
    """A step is reversed from its tape."""
    corners = f"M{number(x - size)} {number(y - size)}H{number(x + size)}L{number(x)} {number(y + size)}Z"
    page.path("s-red reverse", [corners], tip)


def snapshot(page: Page, x0: float, x1: float, y: float, tier: int) -> None:
    """A state is held."""
    page.path(f"s-{colour(tier)} held", [segment(x0, y, x1, y)])


def tape(page: Page, x0: float, x1: float, y: float) -> None:
    """A tape is held."""
    page.path("s-pink tape", [segment(x0, y, x1, y)])
