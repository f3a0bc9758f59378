"""The pebble picture: time to the right, steps upwards, what is held as bars, memory below."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from ..chain.actions import Restore, Turn
from ..chain.schedule import Schedule
from . import signs
from .axis import Axis, Unit, draw_x, draw_y, name_x, time_unit
from .clock import durations, first_sweep
from .coarse import draw_coarse
from .exact import draw_exact
from .frame import LEFT, RIGHT, WIDTH, Sign, draw_legend, draw_title
from .panel import Panel, draw_panel
from .scale import Scale, scale_of
from .svg import Page, number
from .trace import Trace
from .walk import trace
from .words import describe, tier_names, where

_HEIGHT, _PANEL, _GAP = 380.0, 92.0, 24.0
_MOST_SIGNS = 700
_LONGEST = 125  # letters in a line
_FINEST = 1.5  # pixels


def pebbles(
    schedule: Schedule,
    path: str | os.PathLike[str] | None = None,
    *,
    state: float | str | None = None,
    tape: float | str | None = None,
    forward: float | str | None = None,
    backward: float | str | None = None,
    overlap: bool = False,
) -> str:
    """A schedule as an SVG picture, written to ``path`` if there is one.

    Sizes and times are those of ``pebbling.plan`` and set the units of the picture: without
    ``state`` memory is counted in states, without ``forward`` time in forward steps. With
    ``state``, the working states and tape of a run count as memory. ``overlap`` lets transfers take
    no time of their own.

    >>> from pebbling import Revolve
    >>> pebbles(Revolve(20, 4)).count("turn step")
    20
    """
    scale = scale_of(schedule, state, tape, forward, backward, overlap)
    total = durations(schedule, scale.clock)[schedule.root]
    few = scale.counter.count(schedule.root).length <= _MOST_SIGNS
    traced = trace(schedule, scale.clock, scale.counter, 0.0 if few else total * _FINEST / (RIGHT - LEFT))
    below = panels(schedule, scale, traced)

    title, detail = describe(schedule), _detail(schedule, scale, traced, below)
    page = Page(WIDTH, 0, f"{title}. {detail}")
    draw_title(page, title, detail)
    top = draw_legend(page, _legend(schedule, traced, few))
    time = Axis(0.0, traced.time or 1.0, LEFT, RIGHT, time_unit(traced.time, scale.timed, overlap))
    step = Axis(0.0, max(schedule.steps, 1), top + _HEIGHT, top, Unit("step", whole=True))
    draw_x(page, time, top, top + _HEIGHT)
    draw_y(page, step, LEFT, RIGHT, "step")
    _draw_turning(page, time(first_sweep(schedule, scale.clock)), top, top + _HEIGHT)
    if few:
        draw_exact(page, traced, scale.clock, time, step)
    else:
        draw_coarse(page, traced, time, step)
    bottom = top + _HEIGHT
    for panel in below:
        top, bottom = bottom + _GAP, bottom + _GAP + _PANEL
        draw_panel(page, panel, scale, time, top, bottom)
    name_x(page, time, bottom)
    page.height = bottom + 50
    return page.svg(path)


def panels(schedule: Schedule, scale: Scale, traced: Trace) -> list[Panel]:
    """One panel for each tier that is ever used."""
    names, rooms = tier_names(len(traced.held)), schedule.model.rooms
    return [
        Panel(
            name=names[tier],
            colour=signs.colour(tier),
            corners=[(time, scale.amount(units, tier)) for time, units in corners],
            capacity=None if rooms[tier].capacity is None else scale.amount(rooms[tier].capacity or 0, tier),
            working=0.0 if tier else scale.working,
        )
        for tier, corners in enumerate(traced.held)
        if tier == 0 or len(corners) > 2
    ]


def _detail(schedule: Schedule, scale: Scale, traced: Trace, below: list[Panel]) -> str:
    cost = schedule.cost
    parts = [
        f"{cost.forwards:,} forwards, {cost.forwards / max(schedule.steps, 1):.2f} a step",
        *([scale.say_time(traced.time)] if scale.timed else []),
        *(f"peak {scale.say_amount(panel.peak)} {where(panel.name)}" for panel in below),
        *([f"at most {cost.tapes:,} tapes kept"] if cost.tapes else []),
        f"{cost.stores:,} stores, {cost.restores:,} restores",
    ]
    while len(parts) > 2 and len(" · ".join(parts)) > _LONGEST:
        parts.pop()
    return " · ".join(parts)


def _draw_turning(page: Page, x: float, top: float, bottom: float) -> None:
    page.path("s-soft limit", [f"M{number(x)} {number(top)}V{number(bottom)}"])
    side: dict[str, float | str] = {"text_anchor": "end"} if x > (LEFT + RIGHT) / 2 else {}
    page.text("f-soft", x - 5 if side else x + 5, bottom - 8, "first sweep ends", font_size=11, **side)


def _legend(schedule: Schedule, traced: Trace, few: bool) -> Iterator[Sign]:
    """The signs that this picture uses."""
    kinds = {type(mark.action) for mark in traced.marks}
    names = tier_names(len(traced.held))
    tiers = sorted({bar.tier for bar in traced.bars})
    if traced.sweeps:
        yield Sign("advance", lambda page, x, y: signs.advance(page, x - 7, y + 5, x + 7, y - 5))
    for tier in tiers:
        place = f" {where(names[tier])}" if len(names) > 1 else ""
        yield Sign(f"snapshot{place}", partial(_stored, tier=tier))
    if few and Restore in kinds:
        yield Sign("restore", lambda page, x, y: signs.restore(page, x, y, tiers[0]))
    if Turn in kinds or traced.blurs:
        yield Sign(
            "turn" if few else "steps reversed", lambda page, x, y: signs.turn(page, x - 6, y + 5, x + 6, y - 5, x + 6)
        )
    if traced.tapes:
        yield Sign("tape kept" if few else "tapes kept", _taped)
        if few:
            yield Sign("reversal from tape", lambda page, x, y: signs.reverse(page, x, y))


def _stored(page: Page, x: float, y: float, tier: int) -> None:
    signs.snapshot(page, x - 6, x + 10, y, tier)
    signs.store(page, x - 6, y, tier)


def _taped(page: Page, x: float, y: float) -> None:
    signs.tape(page, x - 4, x + 10, y)
    signs.record(page, x - 8, y + 4, x, y - 4)
