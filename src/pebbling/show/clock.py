"""How long actions and spans take, so that they can be put on an axis of time."""

from __future__ import annotations

from itertools import accumulate

from ..chain.actions import Action, Advance, Record, Restore, Reverse, Store, Turn
from ..chain.cost import Model
from ..chain.schedule import Schedule
from ..chain.spans import Each, Span, Sub, inner_first


class Clock:
    """The times of a schedule's actions: those of its model unless ``forward`` and ``turn`` say otherwise.

    A turn is a forward step and a reversal; a recorded step takes the one part and its reversal the
    other. With ``overlap``, transfers run beside the compute and take no time of their own.
    """

    def __init__(
        self, model: Model, forward: float | None = None, turn: float | None = None, overlap: bool = False
    ) -> None:
        forwards, turns = _alike(model.forward if forward is None else forward, model.turn if turn is None else turn)
        self._advance = _Sum(forwards)
        self._record = _Sum(tuple(map(min, forwards, turns)))
        self._reverse = _Sum(tuple(max(turned - once, 0.0) for once, turned in zip(forwards, turns, strict=True)))
        self._write = [0.0 if overlap else room.write for room in model.rooms]
        self._read = [0.0 if overlap else room.read for room in model.rooms]

    def takes(self, item: Action | Each, base: int) -> float:
        """The time of one action or run, whose steps are counted from ``base``."""
        match item:
            case Advance(start, stop):
                return self._advance(base + start, base + stop)
            case Turn(step):
                return self._record(base + step, base + step + 1) + self._reverse(base + step, base + step + 1)
            case Record(step):
                return self._record(base + step, base + step + 1)
            case Reverse(step):
                return self._reverse(base + step, base + step + 1)
            case Each(kind, start, stop):
                total = self._record if kind is Record else self._reverse
                return total(base + start, base + stop)
            case Store(_, _, tier):
                return self._write[tier]
            case Restore(_, _, tier):
                return self._read[tier]
            case _:
                return 0.0


def durations(schedule: Schedule, clock: Clock) -> dict[Span, float]:
    """The time of every span of a schedule, each found once however often it occurs."""
    known: dict[Span, float] = {}
    for span, items in inner_first(schedule, schedule.root, known):
        base = schedule.origin(span)
        known[span] = sum(known[item.span] if isinstance(item, Sub) else clock.takes(item, base) for item in items)
    return known


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
