"""Binomial checkpointing: the fewest advances when only states are kept.

Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26 (2000). Optimal for steps of equal
cost and states of equal size in one tier; ``Mixed`` does better where tapes may be kept as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from . import binomial
from .actions import Action, Advance, EndForward, Free, Restore, Snapshot, Turn
from .cost import Cost, Model, Room
from .schedule import Schedule
from .spans import Item, Span, Sub
from .tally import Tally
from .validate import whole

FRESH, KEPT, FIRST = range(3)
"""How a span meets its first state: not stored, in its slot already, or not stored and on the first sweep."""

REMEMBERED = 1_000
"""Splits that the stream of actions remembers at the most."""
_SPLITS = {"writes": binomial.fewest_writes, "runs": binomial.longest_runs}


@dataclass(frozen=True)
class Revolve(Schedule):
    """Reverse ``steps`` steps with ``slots`` snapshots and the fewest advances.

    Many plans have the fewest advances. ``prefer="writes"`` is the one that writes the fewest
    snapshots; ``prefer="runs"`` writes up to a quarter more, and reverses long runs of neighbouring
    steps, which suits compiled loops.

    >>> Revolve(10, 3).cost.forwards
    25
    """

    steps: int
    slots: int
    prefer: str = "writes"

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole(self.steps, "steps", 0))
        object.__setattr__(self, "slots", whole(self.slots, "slots", 1))
        if self.prefer not in _SPLITS:
            raise ValueError(f"prefer must be 'writes' or 'runs', not {self.prefer!r}")

    @property
    def model(self) -> Model:
        return Model(self.steps, (Room(self.slots),))

    @property
    def root(self) -> Span:
        return (self.steps, self.slots, FIRST)

    def expand(self, span: Span) -> Sequence[Item]:
        return halves(span, self.slots - span[1], self._split)

    def __iter__(self) -> Iterator[Action]:
        """The actions straight from the splits: a few kilobytes, and the fastest way in Python."""
        new: Any = tuple.__new__
        split, slots, splits = self._split, self.slots, dict[tuple[int, int], int]()
        waiting: list[tuple[int, int, int]] = []
        start, steps, slot, kept = 0, self.steps, 0, False
        last = slots - 1
        forward = True
        while True:
            while steps > 1:
                # With one slot left there is no choice, and nothing to remember.
                part = splits.get((steps, slot)) if slot < last else steps - 1
                if part is None:
                    if len(splits) > REMEMBERED:
                        splits.clear()
                    part = splits[steps, slot] = split(steps, slots - slot)
                if not kept:
                    yield new(Snapshot, (start, slot, 0))
                middle = start + part
                yield new(Advance, (start, middle))
                waiting.append((start, part, slot))
                start, steps, slot, kept = middle, steps - part, slot + 1, False
            if forward:
                yield EndForward()
                forward = False
            if kept:
                yield new(Free, (start, slot, 0))
            if steps:
                yield new(Turn, (start,))
            if not waiting:
                return
            start, steps, slot = waiting.pop()
            kept = True
            yield new(Restore, (start, slot, 0))

    def closed(self, span: Span) -> Tally | None:
        return tally_of(span) if self.prefer == "writes" else None

    @property
    def cost(self) -> Cost:
        if self.prefer != "writes" or self.steps == 0:
            return super().cost
        advances, peak = binomial.advances(self.steps, self.slots), peak_of(self.steps, self.slots)
        return Cost(
            forwards=advances + self.steps,
            advances=advances,
            stores=binomial.stores(self.steps, self.slots),
            restores=self.steps - 1,
            peak=peak,
            time=self.model.time(advances, (0,), (0,)),
            peaks=(peak,),
        )

    @cached_property
    def _split(self) -> Callable[[int, int], int]:
        return _SPLITS[self.prefer]


def halves(span: Span, slot: int, split: Callable[[int, int], int], tier: int = 0) -> list[Item]:
    """What the span (steps, slots, how), whose first state belongs in ``slot``, consists of."""
    steps, slots, how = span
    if steps <= 1:
        return leaf(steps, slot, tier, how)
    first = split(steps, slots)
    return [
        *([Snapshot(0, slot, tier)] if how != KEPT else []),
        Advance(0, first),
        Sub(first, (steps - first, slots - 1, FIRST if how == FIRST else FRESH)),
        Restore(0, slot, tier),
        Sub(0, (first, slots, KEPT)),
    ]


def leaf(steps: int, slot: int, tier: int, how: int) -> list[Item]:
    """A span of one step, or of none."""
    return [
        *([EndForward()] if how == FIRST else []),
        *([Free(0, slot, tier)] if how == KEPT else []),
        *([Turn(0)] if steps else []),
    ]


def tally_of(span: Span) -> Tally | None:
    """The counts of a span that is split for the fewest writes; those of a leaf are quick to count."""
    steps, slots, how = span
    if steps <= 1:
        return None
    advances, written = binomial.advances(steps, slots), binomial.stores(steps, slots)
    kept, peak = how == KEPT, peak_of(steps, slots)
    length = 3 * steps - 2 + 2 * written - kept + (how == FIRST)
    return Tally(
        length, advances, steps, (written - kept,), (steps - 1,), (-kept,), (peak - kept,), tapes=0, most_tapes=0
    )


def peak_of(steps: int, slots: int) -> int:
    """The most snapshots held at once."""
    return min(slots, steps - 1)
