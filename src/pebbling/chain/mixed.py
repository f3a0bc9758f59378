"""States and tapes together in one memory: the fewest forwards for any ratio of their sizes.

Known as the mixed schedule where a tape is as large as a state (Maddison, J. Comput. Sci. 82,
2024), and as CAMS where it is several times larger (Zhang and Constantinescu, 2021). Optimal for
steps of equal cost. Beyond ``EXACT`` states of the exact programme the plan follows the convex
hull: still optimal in forwards where tape/state is a whole number; otherwise ``bound`` and ``gap``
say how far from optimal it can be. Only plans from the exact programme are write-minimal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import islice
from math import lcm

from ..errors import BudgetError
from .actions import Advance, Free, Record, Restore, Reverse, Snapshot
from .binomial import fewest_writes
from .cost import Model, Room
from .mixed_hull import hull
from .mixed_table import RECORD_FIRST, MixedLevel, amounts_left, levels
from .revolve import FIRST, FRESH, KEPT, leaf
from .schedule import Schedule
from .spans import Each, Item, Span, Sub
from .tally import Tally
from .validate import amount, whole

EXACT = 8_000
_TRIES = 64


@dataclass(frozen=True)
class Mixed(Schedule):
    """Reverse ``steps`` steps, keeping states and tapes in ``memory`` units of one state.

    ``tape`` is the size of one step's tape in the same units. One working state and one working
    tape are not counted.

    >>> Mixed(1000, 10).cost.forwards, Mixed(100, 10, tape=2).cost.forwards
    (3921, 270)
    """

    steps: int
    memory: float
    tape: float = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole(self.steps, "steps", 0))
        object.__setattr__(self, "memory", _plain(Fraction(amount(self.memory, "memory"))))
        object.__setattr__(self, "tape", _plain(Fraction(amount(self.tape, "tape", positive=True))))
        least = min(Fraction(1), Fraction(self.tape) * (self.steps - 1))
        if self.memory < least:
            raise BudgetError(
                f"{self.steps} steps can't be reversed with {self.memory} units of memory: {_plain(least)} are needed",
                minimum=_plain(least),
            )

    @property
    def model(self) -> Model:
        return Model(self.steps, (Room(self.memory),), tape=self.tape)

    @property
    def root(self) -> Span:
        return (self.steps, int(self.memory * self._unit), FIRST)

    def expand(self, span: Span) -> Sequence[Item]:
        steps, units, how = span
        state, tape = self._unit, self._tape
        slot = (self.root[1] - units) // state
        if steps <= 1:
            return leaf(steps, slot, 0, how)
        later = FIRST if how == FIRST else FRESH
        if (steps - 1) * tape <= units:
            taped, split = steps - 1, RECORD_FIRST
        else:
            taped, split = 1, self._choose(steps, units, how)
        if split == RECORD_FIRST:
            rest = (steps - taped, units - taped * tape, later)
            tapes = Each(Record, 0, taped), Each(Reverse, 0, taped)
            return [*([Free(0, slot, 0)] if how == KEPT else []), tapes[0], Sub(taped, rest), tapes[1]]
        return [
            *([Snapshot(0, slot, 0)] if how != KEPT else []),
            Advance(0, split),
            Sub(split, (steps - split, units - state, later)),
            Restore(0, slot, 0),
            Sub(0, (split, units, KEPT)),
        ]

    def closed(self, span: Span) -> Tally | None:
        """Where all tapes fit: every step but the last is taped, the last is turned, and all are reversed."""
        steps, units, how = span
        if steps < 2 or (steps - 1) * self._tape > units:
            return None
        kept, tapes = int(how == KEPT), (steps - 1) * self.tape
        length = 2 * steps - 1 + kept + (how == FIRST)
        return Tally(length, 0, steps, (0,), (0,), (-kept,), (max(0, tapes - kept),), tapes=0, most_tapes=steps - 1)

    @property
    def bound(self) -> int:
        """A lower bound on the forwards of any schedule for this model."""
        if self.steps <= 1 or self._levels is not None:
            return self.cost.forwards
        return hull(self.root[1], self._unit, self._tape).rounded(self.steps)

    @property
    def gap(self) -> float:
        """How much of the forwards may be more than needed; 0 where the plan is proven optimal."""
        return self.cost.forwards / self.bound - 1 if self.steps else 0.0

    @cached_property
    def _unit(self) -> int:
        """Units of memory in one state, such that states, tapes and the memory are whole numbers of them."""
        return lcm(Fraction(self.memory).denominator, Fraction(self.tape).denominator)

    @cached_property
    def _tape(self) -> int:
        return int(Fraction(self.tape) * self._unit)

    @cached_property
    def _levels(self) -> dict[Fraction, MixedLevel] | None:
        arguments = self.steps, Fraction(self.memory), Fraction(self.tape)
        few = self.steps * min(self.steps, int(self.memory) + 1) <= EXACT
        return levels(*arguments) if few and self.steps * len(amounts_left(*arguments)) <= EXACT else None

    def _choose(self, steps: int, units: int, how: int) -> int:
        """``RECORD_FIRST``, or where to split."""
        state, tape = self._unit, self._tape
        if units < tape:
            return fewest_writes(steps, units // state)
        if self._levels is not None:
            return int(self._levels[Fraction(units, state)].choice[int(how == KEPT), steps])
        return _by_hull(steps, units, state, tape)


@lru_cache(1 << 16)
def _by_hull(steps: int, units: int, state: int, tape: int) -> int:
    """The choice that the hull makes: one that meets its bound, or the nearest to it of the likely ones."""
    own, kept = hull(units, state, tape), hull(units - tape, state, tape)
    target, best = own.rounded(steps), 1 + kept.rounded(steps - 1)
    choice = RECORD_FIRST
    if best > target and units >= state:
        rest = hull(units - state, state, tape)
        low, high = own.splits(steps, rest)
        for split in islice(_outwards(low, max(low, high), steps), _TRIES if tape % state else None):
            forwards = split + own.rounded(split) + rest.rounded(steps - split)
            if forwards < best:
                best, choice = forwards, split
            if best == target:
                break
    return choice


def _outwards(low: int, high: int, steps: int) -> Iterator[int]:
    """The splits from ``low`` to ``high``, and then those beyond, nearest first."""
    yield from range(low, high + 1)
    for far in range(1, steps):
        if low - far > 0:
            yield low - far
        if high + far < steps:
            yield high + far


def _plain(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)
