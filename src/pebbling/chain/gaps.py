"""The way back over a chain of which some states are held: gap by gap, from the last to the first.

The held states cut the chain into gaps. A gap is reversed by binomial checkpointing with the slots that hold
none of the states before it, its own first state included: optimal for a gap. It is what a run is left with
that did not know the length of its loop (``Online.ended``), or that gave up some of its snapshots on the way.
The actions come one by one, in a few kilobytes however long the chain is, because a budget in bytes holds for
them as well.

States 0 and 4 of a chain of 6 steps, in slots 0 and 1 of two: the gap of steps 4 and 5 has one slot, that of
steps 0 to 3 has both.

>>> for action in islice(way_back([(0, 0), (4, 1)], 6, 2), 7):
...     print(action)
Restore(step=4, slot=1, tier=0)
Advance(start=4, stop=5)
Turn(step=5)
Restore(step=4, slot=1, tier=0)
Free(step=4, slot=1, tier=0)
Turn(step=4)
Restore(step=0, slot=0, tier=0)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from .actions import Action, Advance, EndForward, Free, Restore, Turn
from .revolve import Revolve


def way_back(
    held: Sequence[tuple[int, Any]], steps: int, slots: int, spare: Sequence[Any] | None = None
) -> Iterator[Action]:
    """From the end of a chain of ``steps`` steps to its beginning, with ``slots`` slots.

    ``held`` are the steps whose states are held and their slots, in order, the first of them 0. ``spare`` are the
    names of the slots that are empty; without it slots are numbers, and the first ones are in use.
    """
    empty = range(len(held), slots) if spare is None else spare
    end = steps
    for index in reversed(range(len(held))):
        start, slot = held[index]
        if start < end:
            yield Restore(start, slot, 0)
        if end - start < 2:
            yield Free(start, slot, 0)
            if start < end:
                yield Turn(start)
        else:
            names = [slot, *[name for _, name in held[index + 1 :]], *empty]
            yield from _gap(start, end - start, slots - index, names)
        end = start


def _gap(start: int, steps: int, slots: int, names: Sequence[Any]) -> Iterator[Action]:
    """One gap, whose first state is in its slot already, and is the working state."""
    new: Any = tuple.__new__
    for action in islice(Revolve(steps, slots), 1, None):  # the first one stores the state that is there
        kind = type(action)
        if kind is Advance:
            yield new(Advance, (action[0] + start, action[1] + start))  # type: ignore[misc]
        elif kind is Turn:
            yield new(Turn, (action[0] + start,))  # type: ignore[misc]
        elif kind is not EndForward:
            yield new(kind, (action[0] + start, names[action[1]], 0))  # type: ignore[misc]
