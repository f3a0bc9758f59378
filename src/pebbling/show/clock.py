"""How long actions and spans take, so that they can be put on an axis of time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from ..chain.actions import Action, Advance, EndForward, Free, Record, Restore, Reverse, Snapshot, Turn
from ..chain.cost import Model
from ..chain.schedule import Schedule
from ..chain.spans import Each, Span, Sub, inner_first


class Clock:
    """The times of a schedule's actions: those of its model unless ``forward`` and ``turn`` say otherwise.

    A turn is a forward step and a reversal; a recorded step takes the one part and its reversal the
    other. Transfers keep their proportion to the forward step; with ``overlap`` they run beside the
    compute and take no time of their own.
    """

    def __init__(
        self, model: Model, forward: float | None = None, turn: float | None = None, overlap: bool = False
    ) -> None:
        forwards, turns = _alike(model.forward if forward is None else forward, model.turn if turn is None else turn)
        own = model.forward if isinstance(model.forward, int | float) and model.forward else None
        slowness = 1.0 if forward is None or own is None else forward / own
        advance, turned = _Sum(forwards), _Sum(turns)
        record = _Sum(tuple(map(min, forwards, turns)))
        write = [0.0 if overlap else slowness * room.write for room in model.rooms]
        read = [0.0 if overlap else slowness * room.read for room in model.rooms]

        def reverse(start: int, stop: int) -> float:
            return turned(start, stop) - record(start, stop)

        self._rules: dict[type, Callable[[Any, int], float]] = {
            Advance: lambda run, base: advance(base + run.start, base + run.stop),
            Turn: lambda turn, base: turned(base + turn.step, base + turn.step + 1),
            Record: lambda one, base: record(base + one.step, base + one.step + 1),
            Reverse: lambda one, base: reverse(base + one.step, base + one.step + 1),
            Each: lambda run, base: (record if run.kind is Record else reverse)(base + run.start, base + run.stop),
            Snapshot: lambda store, base: write[store.tier],
            Restore: lambda restore, base: read[restore.tier],
            Free: lambda free, base: 0.0,
            EndForward: lambda end, base: 0.0,
        }

    def takes(self, item: Action | Each, base: int) -> float:
        """The time of one action or run, whose steps are counted from ``base``."""
        return self._rules[type(item)](item, base)


def durations(schedule: Schedule, clock: Clock) -> dict[Span, float]:
    """The time of every span of a schedule, each found once however often it occurs."""
    known: dict[Span, float] = {}
    for span, items in inner_first(schedule, schedule.root, known):
        base = schedule.origin(span)
        known[span] = sum(known[item.span] if isinstance(item, Sub) else clock.takes(item, base) for item in items)
    return known


def first_sweep(schedule: Schedule, clock: Clock) -> float:
    """The time of the first sweep: nothing is reversed before its end, so it ends in the first span of every span."""
    time, base, items = 0.0, 0, iter(schedule.expand(schedule.root))
    while not isinstance(item := next(items), EndForward):
        if isinstance(item, Sub):
            base, items = base + item.offset, iter(schedule.expand(item.span))
        else:
            time += clock.takes(item, base)
    return time


class _Sum:
    """Sums over runs of steps, of one cost or of one cost a step."""

    def __init__(self, costs: tuple[float, ...]) -> None:
        self._one = costs[0] if len(costs) == 1 else None
        self._before = [0.0, *accumulate(costs)]

    def __call__(self, start: int, stop: int) -> float:
        return self._before[stop] - self._before[start] if self._one is None else self._one * (stop - start)


def _alike(one: float | tuple[float, ...], two: float | tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    """Both costs as tuples of the same length, which is 1 where no step differs from another."""
    length = max(len(cost) if isinstance(cost, tuple) else 1 for cost in (one, two))
    return tuple(cost if isinstance(cost, tuple) else (cost,) * length for cost in (one, two))
