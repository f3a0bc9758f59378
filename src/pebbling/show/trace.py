"""A schedule laid out in time: what a picture shows, and how actions become that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from ..chain.actions import Action, Advance, Free, Record, Restore, Reverse, Snapshot, Turn
from ..chain.cost import Model
from ..chain.spans import Each
from ..chain.tally import size_of
from .clock import Clock


class StateLine(NamedTuple):
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

    recorded: StateLine
    reversed: StateLine


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

    sweeps: list[list[StateLine]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    tapes: list[Taped] = field(default_factory=list)
    blurs: list[Blur] = field(default_factory=list)
    held: list[list[tuple[float, float]]] = field(default_factory=list)
    time: float = 0.0


class Tracer:
    """Follows a stream of actions and stretches of it; ``singly`` takes runs of tapes step by step."""

    def __init__(self, model: Model, clock: Clock, singly: bool) -> None:
        self.model, self.clock, self.singly = model, clock, singly
        self.result = Trace(held=[[(0.0, 0.0)] for _ in model.rooms])
        self.now = 0.0
        self._sweeping = False
        self._slots: dict[tuple[int, int], tuple[int, float]] = {}
        self._latest: list[tuple[int, tuple[int, int]]] = []  # a heap, the latest step first
        self._recorded: list[StateLine] = []

    def do(self, item: Action | Each, base: int) -> None:
        """Follow one action or run, whose steps are counted from ``base``."""
        if isinstance(item, Each) and self.singly:
            steps = range(item.start, item.stop)
            for step in steps if item.kind is Record else steps[::-1]:
                self.do(item.kind(step), base)
            return
        model, result = self.model, self.result
        start, stop = self.now, self.now + self.clock.takes(item, base)
        match item:
            case Advance(first, last):
                self._sweep(StateLine(start, base + first, stop, base + last))
            case Snapshot(step, slot, tier):
                result.marks.append(Mark(Snapshot(base + step, slot, tier), start, stop))
                self._keep(base + step, (tier, slot))
                self._change(tier, size_of(model.state, base + step))
            case Restore(step, slot, tier):
                result.marks.append(Mark(Restore(base + step, slot, tier), start, stop))
            case Free(step, slot, tier):
                self._change(tier, -size_of(model.state, base + step))
                if (tier, slot) in self._slots:
                    self._end((tier, slot))
            case Turn(step):
                result.marks.append(Mark(Turn(base + step), start, stop))
            case Record(step):
                result.marks.append(Mark(Record(base + step), start, stop))
                self._recorded.append(StateLine(start, base + step, stop, base + step + 1))
                self._change(0, size_of(model.tape, base + step))
            case Reverse(step):
                result.marks.append(Mark(Reverse(base + step), start, stop))
                result.tapes.append(Taped(self._recorded.pop(), StateLine(start, base + step + 1, stop, base + step)))
                self.now = stop
                self._change(0, -size_of(model.tape, base + step))
            case Each(kind, first, last) if kind is Record:
                self._recorded.append(StateLine(start, base + first, stop, base + last))
                self._change(0, self._tapes(base + first, base + last), stop - start)
            case Each(_, first, last):
                self._reverse_run(StateLine(start, base + last, stop, base + first))
                self._change(0, -self._tapes(base + first, base + last), stop - start)
        self.now = stop
        if not isinstance(item, Snapshot | Free):
            self._sweeping = isinstance(item, Advance)

    def pass_by(self, first: int, last: int, time: float, held: Sequence[float], highs: Sequence[float]) -> None:
        """Follow a stretch that reverses steps ``first … last-1`` without a look at how."""
        self._sweeping = False
        if last > first:
            self.result.blurs.append(Blur(self.now, self.now + time, first, last))
        for tier, high in enumerate(highs):
            self._change(tier, high)
        self.now += time
        for tier, high in enumerate(highs):
            self._change(tier, held[tier] - high)
        while self._latest and -self._latest[0][0] >= first:
            step, place = heappop(self._latest)
            if self._slots.get(place, (None, 0.0))[0] == -step:  # of no use to any step left: it was freed in there
                self._end(place)

    def climb(self, first: int, last: int, time: float, held: Sequence[float], store: Snapshot | None) -> StateLine:
        """Follow a stretch that goes from step ``first`` to ``last`` and keeps things on the way, ``store`` for one."""
        line = StateLine(self.now, first, self.now + time, last)
        self._sweep(line)
        self._sweeping = True
        if store is not None:
            self._keep(first + store.step, (store.tier, store.slot))
        for tier, amount in enumerate(held):
            self._change(tier, amount, time)
        self.now += time
        return line

    def finish(self) -> Trace:
        """All that was followed."""
        self.result.time = self.now
        for corners in self.result.held:
            corners.append((self.now, corners[-1][1]))
        return self.result

    def _sweep(self, line: StateLine) -> None:
        if not self._sweeping:
            self.result.sweeps.append([])
        self.result.sweeps[-1].append(line)

    def _keep(self, step: int, place: tuple[int, int]) -> None:
        self._slots[place] = step, self.now
        heappush(self._latest, (-step, place))

    def _tapes(self, first: int, last: int) -> float:
        tape = self.model.tape
        return sum(tape[first:last]) if isinstance(tape, tuple) else tape * (last - first)

    def _reverse_run(self, run: StateLine) -> None:
        """Match a run of reversals with the runs of recordings that it undoes, last first."""
        rate = (run.stop - run.start) / (run.first - run.last)
        while run.first > run.last:
            tape = self._recorded.pop()
            down = max(run.last, tape.first)
            if down > tape.first:
                tape, rest = _split(tape, down)
                self._recorded.append(rest)
            middle = run.start + rate * (run.first - down)
            self.result.tapes.append(Taped(tape, StateLine(run.start, run.first, middle, down)))
            run = StateLine(middle, down, run.stop, run.last)

    def _end(self, place: tuple[int, int]) -> None:
        step, start = self._slots.pop(place)
        self.result.bars.append(Bar(start, self.now, step, place[0]))

    def _change(self, tier: int, amount: float, over: float = 0.0) -> None:
        """A tier holds so much more, at once or evenly over a while."""
        if amount:
            corners = self.result.held[tier]
            before = corners[-1][1]
            corners += [(self.now, before), (self.now + over, before + amount)]


def _split(line: StateLine, step: int) -> tuple[StateLine, StateLine]:
    """The part of a line above ``step``, and the part below."""
    time = line.start + (line.stop - line.start) * (step - line.first) / (line.last - line.first)
    return StateLine(time, step, line.stop, line.last), StateLine(line.start, line.first, time, step)
