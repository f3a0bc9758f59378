"""The walk that lays out a schedule, as coarse as the picture needs it.

It goes down the tree of spans and stops at spans that take less time than ``finest``: what happens
inside one is a blur of known extent, known peak and known change, and everything around it is
exact. Plans with many slots are nested deeply, each span with a little of its own around one long
span inside it; such spans are taken together until their own parts add up to about ``finest``. A picture
of fixed width therefore has about as many parts for a million steps as for a thousand. With
``finest = 0`` every action is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ..chain.actions import Record, Snapshot
from ..chain.schedule import Schedule
from ..chain.spans import Each, Item, Span, Sub
from ..chain.tally import Counter, Sum
from .clock import Clock, durations
from .trace import StateLine, Taped, Trace, Tracer

_FEW = 3
_TINY = 1e-9


class _Stretch(NamedTuple):
    """Some actions in a row: how long they take, how what is held changes, and the most held on the way."""

    time: float
    held: Sequence[float]
    highs: Sequence[float]


class _Nest(NamedTuple):
    """Nested spans: what they do before and after the innermost one, which begins ``offset`` steps after them."""

    offset: int
    inner: Span
    before: _Stretch
    after: _Stretch
    store: Snapshot | None
    records: bool


class _Rest(NamedTuple):
    """What is left of a nest once the innermost span is done."""

    nest: _Nest
    climbed: StateLine | None


_Part: TypeAlias = Item | _Rest


def trace(schedule: Schedule, clock: Clock, counter: Counter, finest: float = 0.0) -> Trace:
    """Lay out a schedule; ``counter`` says what spans hold."""
    return _Walk(schedule, clock, counter, finest).trace()


class _Walk:
    def __init__(self, schedule: Schedule, clock: Clock, counter: Counter, finest: float) -> None:
        self.schedule, self.clock, self.counter, self.finest = schedule, clock, counter, finest
        self.times = durations(schedule, clock)
        self.tracer = Tracer(counter.model, clock, singly=finest == 0)
        self.nests: dict[Span, _Nest | None] = {}
        self.stack: list[tuple[int, Iterator[_Part]]] = [(0, iter(schedule.expand(schedule.root)))]

    def trace(self) -> Trace:
        """Walk through all of it."""
        while self.stack:
            base, parts = self.stack[-1]
            part = next(parts, None)
            if part is None:
                self.stack.pop()
            elif isinstance(part, Sub):
                self._enter(base + part.offset, part.span)
            elif isinstance(part, _Rest):
                self._leave(base, part)
            else:
                self.tracer.do(part, base)
        return self.tracer.finish()

    def _enter(self, base: int, span: Span) -> None:
        """Go by a span, or into it, or through a nest of spans into the innermost."""
        if self.times[span] < self.finest:
            count = self.counter.count(span)
            self.tracer.pass_by(base, base + span[0], self.times[span], count.held, count.highs)
            return
        if span not in self.nests:
            self.nests[span] = self._nest(span) if self.finest else None
        nest = self.nests[span]
        if nest is None:
            self.stack.append((base, iter(self.schedule.expand(span))))
            return
        climbed, above = None, base + nest.offset + nest.inner[0]
        if above < base + span[0]:
            self.tracer.pass_by(above, base + span[0], *nest.before)
        else:
            climbed = self.tracer.climb(base, base + nest.offset, nest.before.time, nest.before.held, nest.store)
        self.stack.append((base, iter([_Rest(nest, climbed if nest.records else None)])))
        self.stack.append((base + nest.offset, iter(self.schedule.expand(nest.inner))))

    def _leave(self, base: int, rest: _Rest) -> None:
        """Go by what a nest does after its innermost span."""
        start, last = self.tracer.now, base + rest.nest.offset
        self.tracer.pass_by(base, last, *rest.nest.after)
        if rest.climbed is not None:
            self.tracer.result.tapes.append(Taped(rest.climbed, StateLine(start, last, self.tracer.now, base)))

    def _nest(self, span: Span) -> _Nest | None:
        """The nest that a span is the outermost of, if there are more than a few in it."""
        before: list[tuple[int, Item]] = []
        store: Snapshot | None = None
        after: list[list[tuple[int, Item]]] = []
        # at fixed heights, so that nests that join each other go on alike and are known
        least, offset = max(self.finest, self.finest * ((self.times[span] - _TINY) // self.finest)), 0
        items = self.schedule.expand(span)
        while (longest := self._longest(items)) is not None and self.times[longest.span] > least:
            base, cut = self.schedule.origin(span), items.index(longest)
            before += [(base, item) for item in items[:cut]]
            stores = [item for item in items[:cut] if isinstance(item, Snapshot)]
            if store is None and stores:
                store = stores[0]._replace(step=offset + stores[0].step)
            after.append([(base, item) for item in items[cut + 1 :]])
            offset, span = offset + longest.offset, longest.span
            items = self.schedule.expand(span)
        if len(after) <= _FEW:
            return None
        return _Nest(
            offset=offset,
            inner=span,
            before=self._add_up(before),
            after=self._add_up([part for parts in reversed(after) for part in parts]),
            store=store,
            records=any(isinstance(item, Each | Record) for _, item in before),
        )

    def _longest(self, items: Sequence[Item]) -> Sub | None:
        subs = [item for item in items if type(item) is Sub]
        return max(subs, key=lambda sub: self.times[sub.span]) if subs else None

    def _add_up(self, parts: Sequence[tuple[int, Item]]) -> _Stretch:
        time, count = 0.0, Sum(self.counter.model)
        for base, item in parts:
            if isinstance(item, Sub):
                time += self.times[item.span]
                count.join(self.counter.count(item.span))
            else:
                time += self.clock.takes(item, base)
                count.add(item, base)
        return _Stretch(time, count.held, count.highs)
