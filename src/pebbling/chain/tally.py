"""Counting a schedule without running through it: every distinct span is counted once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from .actions import Action, Advance, Free, Record, Restore, Reverse, Snapshot, Turn
from .cost import Model
from .spans import Each, Item, Span, Spans, Sub, inner_first


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


def in_tier(count: Tally, tier: int, tiers: int) -> Tally:
    """The counts of a stretch that uses one tier, as one of several."""

    def placed(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(values[0] if i == tier else 0 for i in range(tiers))

    return count._replace(
        stores=placed(count.stores),
        restores=placed(count.restores),
        held=placed(count.held),
        highs=placed(count.highs),
    )


class Sum:
    """Counts that grow action by action, or by a whole stretch that was counted before."""

    def __init__(self, model: Model) -> None:
        tiers = len(model.rooms)
        self._state, self._tape = model.state, model.tape
        self.length = self.advances = self.tapings = self.tapes = self.most_tapes = 0
        self.stores, self.restores = [0] * tiers, [0] * tiers
        self.held: list[float] = [0] * tiers
        self.highs: list[float] = [0] * tiers

    def add(self, item: Action | Each, origin: int = 0) -> None:
        """Count one action or run, whose steps are counted from ``origin``."""
        kind = type(item)
        one: Any = item  # told apart by its exact type, for speed, which a checker does not follow
        self.length += 1
        if kind is Advance:
            self.advances += one.stop - one.start
        elif kind is Restore:
            self.restores[one.tier] += 1
        elif kind is Snapshot:
            self.stores[one.tier] += 1
            self._hold(one.tier, size_of(self._state, origin + one.step))
        elif kind is Free:
            self.held[one.tier] -= size_of(self._state, origin + one.step)
        elif kind is Turn:
            self.tapings += 1
        elif kind is Record or kind is Reverse:
            self._run(kind, origin + one.step, origin + one.step + 1)
        elif kind is Each:
            self.length += one.stop - one.start - 1
            self._run(one.kind, origin + one.start, origin + one.stop)

    def join(self, other: Tally) -> None:
        """Count a stretch that comes next."""
        self.length += other.length
        self.advances += other.advances
        self.tapings += other.tapings
        self.most_tapes = max(self.most_tapes, self.tapes + other.most_tapes)
        self.tapes += other.tapes
        for tier, high in enumerate(other.highs):
            self.stores[tier] += other.stores[tier]
            self.restores[tier] += other.restores[tier]
            self.highs[tier] = max(self.highs[tier], self.held[tier] + high)
            self.held[tier] += other.held[tier]

    def tally(self) -> Tally:
        """The counts as a value."""
        return Tally(
            self.length,
            self.advances,
            self.tapings,
            tuple(self.stores),
            tuple(self.restores),
            tuple(self.held),
            tuple(self.highs),
            self.tapes,
            self.most_tapes,
        )

    def _run(self, kind: type[Any], start: int, stop: int) -> None:
        number, tape = stop - start, self._tape
        size = sum(tape[start:stop]) if isinstance(tape, tuple) else tape * number
        if kind is Reverse:
            self.tapes -= number
            self.held[0] -= size
        else:
            self.tapings += number
            self.tapes += number
            self.most_tapes = max(self.most_tapes, self.tapes)
            self._hold(0, size)

    def _hold(self, tier: int, size: float) -> None:
        self.held[tier] += size
        self.highs[tier] = max(self.highs[tier], self.held[tier])


class Counter:
    """Counts spans of one schedule; ``closed`` may know the count of a span without looking inside."""

    def __init__(self, spans: Spans, model: Model, closed: Callable[[Span], Tally | None]) -> None:
        self.spans, self.model = spans, model
        self._known: _KnownCounts = _KnownCounts(closed)

    def count(self, span: Span) -> Tally:
        """The counts of one span."""
        for inner, items in inner_first(self.spans, span, self._known):
            self._known[inner] = self._count(items, self.spans.origin(inner))
        return self._known[span]

    def _count(self, items: Sequence[Item], origin: int) -> Tally:
        total, known = Sum(self.model), self._known
        for item in items:
            if isinstance(item, Sub):
                total.join(known[item.span])
            else:
                total.add(item, origin)
        return total.tally()


class _KnownCounts(dict[Span, Tally]):
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


def by_step(spans: Spans, steps: int) -> list[int]:
    """How often each step is advanced; walks all of the tree, so it is for trees whose spans don't repeat."""
    change = [0] * (steps + 1)
    stack = [(0, spans.root)]
    while stack:
        base, span = stack.pop()
        for item in spans.expand(span):
            if isinstance(item, Sub):
                stack.append((base + item.offset, item.span))
            elif isinstance(item, Advance):
                change[base + item.start] += 1
                change[base + item.stop] -= 1
    return list(accumulate(change[:-1]))


def size_of(size: float | tuple[float, ...], step: int) -> float:
    """The size of one step's state or tape."""
    return size[step] if isinstance(size, tuple) else size
