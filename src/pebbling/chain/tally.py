"""Counting a schedule without running through it: every distinct span is counted once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .actions import Action, Advance, Free, Record, Restore, Reverse, Store, Turn
from .cost import Model
from .spans import Each, Span, Spans, Sub, inner_first


class Tally(NamedTuple):
    """Counts over a stretch of actions."""

    length: int
    advances: int
    tapings: int
    stores: tuple[int, ...]
    restores: tuple[int, ...]
    held: tuple[float, ...]  # change of what each tier holds, kept tapes included
    highs: tuple[float, ...]  # the most that each tier holds on the way, above the start
    tapes: int
    most_tapes: int

    def then(self, other: Tally) -> Tally:
        """The counts of this stretch with another one after it."""
        return Tally(
            self.length + other.length,
            self.advances + other.advances,
            self.tapings + other.tapings,
            _add(self.stores, other.stores),
            _add(self.restores, other.restores),
            _add(self.held, other.held),
            tuple(map(max, self.highs, _add(self.held, other.highs))),
            self.tapes + other.tapes,
            max(self.most_tapes, self.tapes + other.most_tapes),
        )


class Counter:
    """Counts spans of one schedule; ``closed`` may know the count of a span without looking inside."""

    def __init__(self, spans: Spans, model: Model, closed: Callable[[Span], Tally | None]) -> None:
        self.spans, self.model = spans, model
        self._known: _Known = _Known(closed)

    def count(self, span: Span) -> Tally:
        """The counts of one span."""
        for inner in inner_first(self.spans, span, self._known):
            self._known[inner] = self.count_items(self.spans.expand(inner))
        return self._known[span]

    def count_items(self, items: Any) -> Tally:
        """The counts of a list of items whose spans are counted already."""
        total = nothing(len(self.model.rooms))
        for item in items:
            total = total.then(self._known[item.span] if isinstance(item, Sub) else count_one(item, self.model))
        return total


class _Known(dict[Span, Tally]):
    """Counts found so far, those in closed form included."""

    def __init__(self, closed: Callable[[Span], Tally | None]) -> None:
        super().__init__()
        self._closed = closed

    def __contains__(self, span: object) -> bool:
        if super().__contains__(span):
            return True
        count = self._closed(span)  # type: ignore[arg-type]
        if count is not None:
            self[span] = count  # type: ignore[index]
        return count is not None


def nothing(tiers: int) -> Tally:
    """The counts of no action at all."""
    zero = (0,) * tiers
    return Tally(0, 0, 0, zero, zero, zero, zero, 0, 0)


def count_one(item: Action | Each, model: Model) -> Tally:
    """The counts of one action or run."""
    none = nothing(len(model.rooms))
    one = none._replace(length=1)
    match item:
        case Each(kind, start, stop):
            number = stop - start
            size = sum(model.tape[start:stop]) if isinstance(model.tape, tuple) else model.tape * number
            if kind is Reverse:
                return none._replace(length=number, held=_at(none.held, 0, -size), tapes=-number)
            grown = _at(none.held, 0, size)
            return Tally(number, 0, number, none.stores, none.restores, grown, grown, number, number)
        case Advance(start, stop):
            return one._replace(advances=stop - start)
        case Store(step, _, tier):
            grown = _at(none.held, tier, size_of(model.state, step))
            return one._replace(stores=_at(none.stores, tier, 1), held=grown, highs=grown)
        case Restore(_, _, tier):
            return one._replace(restores=_at(none.restores, tier, 1))
        case Free(step, _, tier):
            return one._replace(held=_at(none.held, tier, -size_of(model.state, step)))
        case Record(step):
            grown = _at(none.held, 0, size_of(model.tape, step))
            return one._replace(tapings=1, held=grown, highs=grown, tapes=1, most_tapes=1)
        case Turn(_):
            return one._replace(tapings=1)
        case Reverse(step):
            return one._replace(held=_at(none.held, 0, -size_of(model.tape, step)), tapes=-1)
        case _:
            return one


def size_of(size: float | tuple[float, ...], step: int) -> float:
    """The size of one step's state or tape."""
    return size[step] if isinstance(size, tuple) else size


def _at(values: tuple[Any, ...], index: int, change: float) -> tuple[Any, ...]:
    return tuple(value + change if i == index else value for i, value in enumerate(values))


def _add(one: tuple[Any, ...], two: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(one, two, strict=True))
