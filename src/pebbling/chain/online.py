"""Loops of unknown length: a rule for the way there, and the plan that a run turns out to follow.

What is kept on the way is decided in ``placement.py``, from the index of the step alone. Once the
loop has ended, the states that are held cut it into gaps, and ``gaps.py`` says how these are reversed.

``Online`` is a value that makes schedules and not a ``Schedule`` itself: without an end it has no
cost, no way back and no step to seek. A run that ends at step n has advanced over all n steps
before it can know so; it begins its way back from a snapshot, where a plan that knows n turns the
last step at once. The way back never gives up a held state to gain a slot for the gaps after it:
that would save 0.05 % on average with 3 slots, and less with more. Actions come one by one in memory that
does not grow with the loop; ``chunks()`` and ``seek(step)`` list the stores of the sweep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice, takewhile
from typing import NamedTuple, NoReturn

from ..errors import PebblingError
from .actions import Action, Advance, EndForward, Free, Restore, Snapshot
from .binomial import fewest_writes
from .cost import Model, Room
from .gaps import way_back
from .placement import Kept, placements
from .revolve import KEPT, halves, tally_of
from .schedule import Schedule
from .spans import Item, Span, Sub
from .tally import Sum, Tally
from .validate import whole


@dataclass(frozen=True)
class Online:
    """Keep ``slots`` snapshots of a loop whose length nobody knows, for a cheap way back wherever it ends.

    Iterating it gives what a run does for as long as its loop goes on, one step at a time and
    without end. ``ended(steps)`` is the whole plan of a run that ended after ``steps`` steps.

    >>> Online(3).ended(100).cost.forwards
    613
    """

    slots: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", whole(self.slots, "slots", 1))

    def placement(self) -> Iterator[Kept]:
        """The stores alone, in order: what a driver asks for the next one while it counts its steps.

        A state is stored once the loop is known to go on from it, so the last one never is.
        """
        return placements(self.slots)

    def ended(self, steps: int) -> Ended:
        """The plan that a run of ``steps`` steps turned out to follow."""
        return Ended(steps, self.slots)

    def __iter__(self) -> Iterator[Action]:
        placement = self.placement()
        kept = next(placement, None)
        for step in count():
            if kept is not None and kept.step == step:
                yield from _put(kept)
                kept = next(placement, None)
            yield Advance(step, step + 1)

    def __length_hint__(self) -> NoReturn:
        # list() and tuple() ask for this first, and would otherwise fill the memory
        raise PebblingError(f"{self} has no last action; for a list of actions, use {self}.ended(steps)")

    @property
    def cost(self) -> NoReturn:
        """Unknown until the loop has ended, as are ``model``, ``chunks()`` and ``seek(step)``."""
        self._refuse("its cost", "cost")

    @property
    def model(self) -> NoReturn:
        self._refuse("its model", "model")

    def chunks(self) -> NoReturn:
        self._refuse("its actions as arrays", "chunks()")

    def seek(self, step: int) -> NoReturn:
        self._refuse(f"where step {step} is reversed", f"seek({step})")

    def _refuse(self, what: str, instead: str) -> NoReturn:
        raise PebblingError(
            f"{self} does not know the length of its loop, so {what} can't be told; "
            f"once the length is known, use {self}.ended(steps).{instead}"
        )


class _Swept(NamedTuple):
    """How many actions a sweep has, how many of them are stores, and what it leaves."""

    actions: int
    stores: int
    held: list[tuple[int, int]]


@dataclass(frozen=True)
class Ended(Schedule):
    """The plan of a run with ``slots`` snapshots that did not know it would end after ``steps`` steps.

    >>> list(Ended(1, 3))[:3]
    [Snapshot(step=0, slot=0, tier=0), Advance(start=0, stop=1), EndForward()]
    """

    steps: int
    slots: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", whole(self.steps, "steps", 0))
        object.__setattr__(self, "slots", whole(self.slots, "slots", 1))

    @property
    def model(self) -> Model:
        return Model(self.steps, (Room(self.slots),))

    @property
    def root(self) -> Span:
        return (self.steps,)

    def __iter__(self) -> Iterator[Action]:
        yield from self._sweep()
        yield from self.way_back()

    def since(self, index: int) -> Iterator[Action]:
        """The actions from the ``index``-th on; those of the sweep are not gone through for one of the way back."""
        skip = whole(index, "index", 0) - self.end_forward
        return islice(self, index, None) if skip < 0 else islice(self.way_back(), skip, None)

    def way_back(self) -> Iterator[Action]:
        """What follows the sweep, its end included."""
        yield EndForward()
        yield from way_back(self.held, self.steps, self.slots)

    @property
    def end_forward(self) -> int:
        """The index of ``EndForward`` in the stream; ``since(end_forward)`` is the way back."""
        return self._swept.actions

    @property
    def held(self) -> list[tuple[int, int]]:
        """The states held at the end of the sweep, each with its slot, in the order of their steps."""
        return self._swept.held

    @cached_property
    def _swept(self) -> _Swept:
        """The sweep, gone through once."""
        actions = stores = at = 0
        slots: dict[int, int] = {}
        for kept in self._kept():
            stores += 1
            actions += (kept.step > at) + (2 if kept.slot in slots else 1)
            slots[kept.slot] = at = kept.step
        return _Swept(actions + (self.steps > at), stores, sorted((step, slot) for slot, step in slots.items()))

    def _kept(self) -> Iterator[Kept]:
        """The stores of the sweep."""
        return takewhile(lambda kept: kept.step < self.steps, placements(self.slots))

    def _sweep(self) -> Iterator[Action]:
        at = 0
        for kept in self._kept():
            if kept.step > at:
                yield Advance(at, kept.step)
            yield from _put(kept)
            at = kept.step
        if self.steps > at:
            yield Advance(at, self.steps)

    def expand(self, span: Span) -> Sequence[Item]:
        """The whole plan, or a gap or part of one as ``Revolve`` would split it."""
        if span == self.root:
            return [*self._sweep(), EndForward(), *self._gaps()]
        index = self.slots - span[1]
        return halves(span, self.held[index][1] if index < len(self.held) else index, fewest_writes)

    def _gaps(self) -> Iterator[Restore | Sub]:
        """The way back as spans, from which it is counted without going through it."""
        end = self.steps
        for index in reversed(range(len(self.held))):
            step, slot = self.held[index]
            yield Restore(step, slot, 0)
            yield Sub(step, (end - step, self.slots - index, KEPT))
            end = step

    def closed(self, span: Span) -> Tally | None:
        if span != self.root:
            return tally_of(span)
        total = Sum(self.model)
        total.length, total.advances = self.end_forward + 1, self.steps
        total.stores, total.held, total.highs = [self._swept.stores], [len(self.held)], [len(self.held)]
        for item in self._gaps():
            if isinstance(item, Sub):
                total.join(self.counter.count(item.span))
            else:
                total.add(item)
        return total.tally()


def _put(kept: Kept) -> list[Action]:
    step, slot, evicted = kept
    store = Snapshot(step, slot, 0)
    return [store] if evicted is None else [Free(evicted, slot, 0), store]
