"""The pebble game as it is played: an animated board, as SVG that any browser plays.

The row of cells is the chain of steps, left to right. The ring is the working state: it runs to the right when steps
run forward. A disc is a snapshot, in the colour of its tier, that lies at the step whose state it is. A cell turns red
once its step is reversed. Below, what each tier holds, with a line that moves with the time of the board.

    board(Revolve(20, slots=4), "board.svg")

Where nothing moves (print, some viewers) the picture shows the moment at which the first sweep ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..chain.actions import Record, Restore, Reverse, Turn
from ..chain.schedule import Schedule
from . import signs
from .axis import Axis, Unit, name_x, time_unit
from .clock import durations, first_sweep
from .frame import LEFT, RIGHT, WIDTH, Sign, draw_legend, draw_title
from .panel import draw_panel
from .pebbles import panels
from .scale import scale_of
from .svg import Page, number, segment
from .trace import Trace
from .walk import trace
from .words import describe, tier_names, where

_MOST_ACTIONS = 1000
_CELL, _PANEL, _GAP = 34.0, 76.0, 26.0
_SECONDS = 0.14
_SHORTEST, _LONGEST = 6.0, 60.0

Point = tuple[float, float]


def board(schedule: Schedule, path: str | os.PathLike[str] | None = None, *, seconds: float | None = None) -> str:
    """A schedule being played, as an animated SVG picture, written to ``path`` if there is one.

    ``seconds`` is how long one round takes; by default it follows from the number of actions. Schedules of more than
    1000 actions are refused: ``pebbles`` draws those of any length.

    >>> from pebbling import Revolve
    >>> board(Revolve(20, 4)).count("<circle")
    13
    """
    scale = scale_of(schedule)
    actions = scale.counter.count(schedule.root).length
    if actions > _MOST_ACTIONS:
        raise ValueError(
            f"a board shows at most {_MOST_ACTIONS:,} actions, and {describe(schedule)} has {actions:,}: "
            "take fewer steps, or pebbling.show.pebbles"
        )
    if seconds is None:
        seconds = min(max(_SHORTEST, _SECONDS * actions), _LONGEST)
    if not seconds > 0:
        raise ValueError(f"seconds={seconds!r}: a round of the board takes more than 0")
    traced = trace(schedule, scale.clock, scale.counter, 0.0)
    still = first_sweep(schedule, scale.clock)
    total = durations(schedule, scale.clock)[schedule.root] or 1.0
    play = _Play(seconds, total, still)
    page = Page(WIDTH, 0, f"{describe(schedule)}, played step by step")
    draw_title(page, describe(schedule), f"{schedule.cost.forwards:,} forwards, {schedule.cost.stores:,} snapshots")
    names = tier_names(len(traced.held))
    used = sorted({bar.tier for bar in traced.bars})
    top = draw_legend(
        page,
        [
            Sign("working state", lambda page, x, y: page.shape("circle", "s-slate ring", cx=x, cy=y, r=5)),
            *(
                Sign(f"snapshot {where(names[tier])}", lambda page, x, y, tier=tier: _disc(page, x, y, tier))  # type: ignore[misc]
                for tier in used
            ),
            Sign("reversed", lambda page, x, y: page.shape("rect", "f-red", x=x - 6, y=y - 6, width=12, height=12)),
        ],
    )
    row = top + 40
    chain = Axis(0.0, max(schedule.steps, 1), LEFT, RIGHT, Unit("step", whole=True))
    _draw_cells(page, play, schedule.steps, traced, chain, row)
    for bar in traced.bars:
        shown = play.shown(bar.start, bar.stop)
        page.shape(
            "circle",
            f"f-{signs.colour(bar.tier)}",
            cx=chain(bar.step),
            cy=row - 10 - 12 * used.index(bar.tier),
            r=5,
            opacity=float(play.still_between(bar.start, bar.stop)),
            inside=shown,
        )
    path_of_working = _working(traced)
    page.shape(
        "circle",
        "s-slate ring",
        cx=chain(play.still_at(path_of_working)),
        cy=row + _CELL / 2,
        r=6,
        inside=play.moved("cx", [(time, chain(step)) for time, step in path_of_working]),
    )
    name_x(page, chain, row + _CELL)
    bottom = row + _CELL + 42
    time = Axis(0.0, total, LEFT, RIGHT, time_unit(total, False))
    for panel in panels(schedule, scale, traced):
        upper, bottom = bottom + _GAP, bottom + _GAP + _PANEL
        draw_panel(page, panel, scale, time, upper, bottom)
        for_line = play.moved("transform", [(0.0, 0.0), (total, RIGHT - LEFT)])
        page.shape("path", "s-red", d=segment(LEFT, upper, LEFT, bottom), inside=for_line)
    name_x(page, time, bottom)
    page.height = bottom + 50
    return page.svg(path)


class _Play:
    """Turns moments of a schedule into the animations of SVG; ``still`` is what is seen where nothing moves."""

    def __init__(self, seconds: float, total: float, still: float) -> None:
        self.seconds, self.total, self.still = seconds, total, still

    def still_between(self, start: float, stop: float) -> bool:
        return start <= self.still < stop

    def still_at(self, points: list[Point]) -> float:
        return next((value for time, value in reversed(points) if time <= self.still), points[0][1])

    def shown(self, start: float, stop: float) -> str:
        """Visible between two moments."""
        begin, end = self._share(start), self._share(stop)
        # The first key is at 0, and no key comes twice.
        keys = [(0.0, float(begin == 0.0)), *([(begin, 1.0)] if begin else []), (end, 0.0)]
        if end >= 1.0:
            keys[-1] = (1.0, 1.0)
        return self._animate("opacity", keys, "discrete")

    def moved(self, what: str, points: list[Point]) -> str:
        """Goes from point to point; ``transform`` moves to the right."""
        keys = [(self._share(time), value) for time, value in points]
        keys = [(0.0, keys[0][1]), *keys, (1.0, keys[-1][1])]
        if what == "transform":
            return self._written("animateTransform", 'attributeName="transform" type="translate"', keys, "linear")
        return self._animate(what, keys, "linear")

    def _share(self, time: float) -> float:
        return min(max(time / self.total, 0.0), 1.0)

    def _animate(self, attribute: str, keys: list[Point], mode: str) -> str:
        return self._written("animate", f'attributeName="{attribute}"', keys, mode)

    def _written(self, tag: str, what: str, keys: list[Point], mode: str) -> str:
        times = ";".join(f"{time:.5g}" for time, _ in keys)
        values = ";".join(number(value) for _, value in keys)
        return (
            f'<{tag} {what} dur="{self.seconds:.3g}s" repeatCount="indefinite" calcMode="{mode}" '
            f'keyTimes="{times}" values="{values}"/>'
        )


def _draw_cells(page: Page, play: _Play, steps: int, traced: Trace, chain: Axis, row: float) -> None:
    """The steps: a cell each, and over it the red that comes when it is reversed."""
    width = max(chain(1) - chain(0) - 1.5, 1.0)
    for step in range(steps):
        page.shape("rect", "f-grid", x=chain(step) + 0.75, y=row, width=width, height=_CELL, rx=2)
    for step, moment in _reversals(traced):
        page.shape(
            "rect",
            "f-red",
            f"step {step} is reversed",
            x=chain(step) + 0.75,
            y=row,
            width=width,
            height=_CELL,
            rx=2,
            opacity=float(play.still >= moment),
            inside=play.shown(moment, play.total),
        )


def _reversals(traced: Trace) -> Iterable[tuple[int, float]]:
    return ((mark.action.step, mark.stop) for mark in traced.marks if isinstance(mark.action, Turn | Reverse))


def _working(traced: Trace) -> list[Point]:
    """Where the working state is, over time."""
    found: list[Point] = [(0.0, 0.0)]
    for sweep in traced.sweeps:
        for line in sweep:
            found += [(line.start, line.first), (line.stop, line.last)]
    for mark in traced.marks:
        match mark.action:
            case Turn(step):
                found += [(mark.start, step), ((mark.start + mark.stop) / 2, step + 1), (mark.stop, step)]
            case Record(step):
                found += [(mark.start, step), (mark.stop, step + 1)]
            case Reverse(step):
                found += [(mark.start, step + 1), (mark.stop, step)]
            case Restore(step):
                found.append((mark.stop, step))
    # Marks of no length come in the order in which they were noted.
    return sorted(found, key=lambda point: point[0])


def _disc(page: Page, x: float, y: float, tier: int) -> None:
    page.shape("circle", f"f-{signs.colour(tier)}", cx=x, cy=y, r=5)
