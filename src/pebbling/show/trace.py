"""A schedule laid out in time, as coarse as the picture needs it.

The walk goes down the tree of spans and stops at spans that take less time than ``finest``: what
happens inside one is a blur of known extent, known peak and known change, and everything around it
is exact. A picture of fixed width therefore takes about as long for a million steps as for a
thousand. With ``finest = 0`` every action is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from ..chain.actions import Action, Advance, Free, Record, Restore, Reverse, Store, Turn
from ..chain.schedule import Schedule
from ..chain.spans import Each, Item, Span, Sub
from ..chain.tally import Counter, size_of
from .clock import Clock, durations

_MOST = 100_000


class Line(NamedTuple):
    """The working state goes from the state of step ``first`` to that of ``last``, or, reversing, the end does."""

    start: float
    first: int
    stop: float
    last: int


class Mark(NamedTuple):
    """One action, from when to when."""

    action: Action
    start: float
    stop: float


class Bar(NamedTuple):
    """The state of ``step`` is held in ``tier``."""

    start: float
    stop: float
    step: int
    tier: int


class Taped(NamedTuple):
    """The tapes of steps ``first … last-1`` are held from their recording to their reversal."""

    recorded: Line
    reversed: Line


class Blur(NamedTuple):
    """Steps ``first … last-1`` are reversed in too little time to show how."""

    start: float
    stop: float
    first: int
    last: int


@dataclass
class Trace:
    """Everything that a picture shows, in the order of time.

    A sweep is a list of advances that continue one another, with nothing but stores between them;
    ``held`` has corners (time, amount) for each tier.
    """

    sweeps: list[list[Line]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    tapes: list[Taped] = field(default_factory=list)
    blurs: list[Blur] = field(default_factory=list)
    held: list[list[tuple[float, float]]] = field(default_factory=list)
    time: float = 0.0


def trace(schedule: Schedule, clock: Clock, counter: Counter, finest: float = 0.0) -> Trace:
    """Lay out a schedule; ``counter`` says what spans and actions hold.

    Plans with very many slots nest so deeply that even spans that take long are too many; ``finest``
    then grows until a picture's worth is left.
    """
    times = durations(schedule, clock)
    while True:
        walk = _Walk(schedule, clock, counter, finest)
        if walk.go(times, _MOST if finest else None):
            return walk.result
        finest *= 4


class _Walk:
    """One walk down the tree of spans, and what is held on the way."""

    def __init__(self, schedule: Schedule, clock: Clock, counter: Counter, finest: float) -> None:
        tiers = len(counter.model.rooms)
        self.schedule, self.clock, self.counter, self.finest = schedule, clock, counter, finest
        self.result = Trace(held=[[(0.0, 0.0)] for _ in range(tiers)])
        self.now = 0.0
        self.sweeping = False
        self.slots: dict[tuple[int, int], tuple[int, float]] = {}
        self.latest: list[tuple[int, tuple[int, int]]] = []  # a heap, the latest step first
        self.recorded: list[Line] = []

    def go(self, times: dict[Span, float], most: int | None) -> bool:
        """Walk through all; false if that takes more than ``most`` spans."""
        left = most or -1
        stack: list[tuple[int, Iterator[Item]]] = [(0, iter(self.schedule.expand(self.schedule.root)))]
        while stack:
            base, items = stack[-1]
            item = next(items, None)
            if item is None:
                stack.pop()
            elif not isinstance(item, Sub):
                self._do(item, base)
            elif times[item.span] < self.finest:
                self._pass(base + item.offset, item.span, times[item.span])
            elif not left:
                return False
            else:
                left -= 1
                stack.append((base + item.offset, iter(self.schedule.expand(item.span))))
        self.result.time = self.now
        for corners in self.result.held:
            corners.append((self.now, corners[-1][1]))
        return True

    def _pass(self, first: int, span: Span, time: float) -> None:
        """Go by a span that is too short to look into."""
        self.sweeping = False
        count = self.counter.count(span)
        self.result.blurs.append(Blur(self.now, self.now + time, first, first + span[0]))
        for tier, high in enumerate(count.highs):
            self._change(tier, high)
        self.now += time
        for tier, high in enumerate(count.highs):
            self._change(tier, count.held[tier] - high)
        while self.latest and -self.latest[0][0] >= first:
            step, place = heappop(self.latest)
            if self.slots.get(place, (None, 0.0))[0] == -step:  # of no use to any step left, so it was freed in there
                self._end(place)

    def _do(self, item: Action | Each, base: int) -> None:
        if isinstance(item, Each) and not self.finest:
            steps = range(item.start, item.stop)
            for step in steps if item.kind is Record else steps[::-1]:
                self._do(item.kind(step), base)
            return
        model, result = self.counter.model, self.result
        start, stop = self.now, self.now + self.clock.takes(item, base)
        match item:
            case Advance(first, last):
                if not self.sweeping:
                    result.sweeps.append([])
                result.sweeps[-1].append(Line(start, base + first, stop, base + last))
            case Store(step, slot, tier):
                result.marks.append(Mark(Store(base + step, slot, tier), start, stop))
                self.slots[tier, slot] = base + step, start
                heappush(self.latest, (-base - step, (tier, slot)))
                self._change(tier, size_of(model.state, base + step))
            case Restore(step, slot, tier):
                result.marks.append(Mark(Restore(base + step, slot, tier), start, stop))
            case Free(step, slot, tier):
                self._change(tier, -size_of(model.state, base + step))
                if (tier, slot) in self.slots:
                    self._end((tier, slot))
            case Turn(step):
                result.marks.append(Mark(Turn(base + step), start, stop))
            case Record(step):
                result.marks.append(Mark(Record(base + step), start, stop))
                self.recorded.append(Line(start, base + step, stop, base + step + 1))
                self._change(0, size_of(model.tape, base + step))
            case Reverse(step):
                result.marks.append(Mark(Reverse(base + step), start, stop))
                result.tapes.append(Taped(self.recorded.pop(), Line(start, base + step + 1, stop, base + step)))
                self.now = stop
                self._change(0, -size_of(model.tape, base + step))
            case Each(kind, first, last) if kind is Record:
                self.recorded.append(Line(start, base + first, stop, base + last))
                self._change(0, self._tapes(base + first, base + last), stop - start)
            case Each(_, first, last):
                self._reverse_run(Line(start, base + last, stop, base + first))
                self._change(0, -self._tapes(base + first, base + last), stop - start)
        self.now = stop
        if not isinstance(item, Store | Free):
            self.sweeping = isinstance(item, Advance)

    def _tapes(self, first: int, last: int) -> float:
        tape = self.counter.model.tape
        return sum(tape[first:last]) if isinstance(tape, tuple) else tape * (last - first)

    def _reverse_run(self, run: Line) -> None:
        """Match a run of reversals with the runs of recordings that it undoes, last first."""
        rate = (run.stop - run.start) / (run.first - run.last)
        while run.first > run.last:
            tape = self.recorded.pop()
            down = max(run.last, tape.first)
            if down > tape.first:
                tape, rest = _split(tape, down)
                self.recorded.append(rest)
            middle = run.start + rate * (run.first - down)
            self.result.tapes.append(Taped(tape, Line(run.start, run.first, middle, down)))
            run = Line(middle, down, run.stop, run.last)

    def _end(self, place: tuple[int, int]) -> None:
        step, start = self.slots.pop(place)
        self.result.bars.append(Bar(start, self.now, step, place[0]))

    def _change(self, tier: int, amount: float, over: float = 0.0) -> None:
        """A tier holds so much more, at once or evenly over a while."""
        if amount:
            corners = self.result.held[tier]
            before = corners[-1][1]
            corners += [(self.now, before), (self.now + over, before + amount)]


def _split(line: Line, step: int) -> tuple[Line, Line]:
    """The part of a line above ``step``, and the part below."""
    time = line.start + (line.stop - line.start) * (step - line.first) / (line.last - line.first)
    return Line(time, step, line.stop, line.last), Line(line.start, line.first, time, step)
