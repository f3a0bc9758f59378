"""The words of a schedule: eight actions on a working state, numbered slots and kept tapes.

Actions are immutable and compare by kind and content. For speed they are tuples underneath, so
``match action: case Advance(start, stop)`` and ``start, stop = action`` both work. A stream of
many actions travels as a NumPy array of dtype ``ROW``, one row an action.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np


class _Kind:
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)  # type: ignore[operator]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self), *self))  # type: ignore[misc]


class Advance(_Kind, NamedTuple("Advance", [("start", int), ("stop", int)])):
    """Run steps ``start … stop-1`` without a tape; the working state becomes that of ``stop``."""

    __slots__ = ()


class Snapshot(_Kind, NamedTuple("Snapshot", [("step", int), ("slot", int), ("tier", int)])):
    """Copy the working state, which is that of ``step``, into an empty slot."""

    __slots__ = ()


class Restore(_Kind, NamedTuple("Restore", [("step", int), ("slot", int), ("tier", int)])):
    """Make the snapshot in a slot the working state; the slot keeps it."""

    __slots__ = ()


class Free(_Kind, NamedTuple("Free", [("step", int), ("slot", int), ("tier", int)])):
    """Empty a slot."""

    __slots__ = ()


class Record(_Kind, NamedTuple("Record", [("step", int)])):
    """Run one step with a tape and keep the tape; the working state becomes that of ``step + 1``."""

    __slots__ = ()


class Turn(_Kind, NamedTuple("Turn", [("step", int)])):
    """Run one step with a tape and reverse it at once."""

    __slots__ = ()


class Reverse(_Kind, NamedTuple("Reverse", [("step", int)])):
    """Reverse one step from its kept tape, and drop the tape."""

    __slots__ = ()


class EndForward(_Kind, NamedTuple("EndForward", [])):
    """The first sweep is over: what follows is the way back."""

    __slots__ = ()


Action: TypeAlias = Advance | Snapshot | Restore | Free | Record | Turn | Reverse | EndForward

KINDS: tuple[type[Any], ...] = (Advance, Snapshot, Restore, Free, Record, Turn, Reverse, EndForward)
ADVANCE, STORE, RESTORE, FREE, RECORD, TURN, REVERSE, END_FORWARD = range(8)
CODES = {kind: code for code, kind in enumerate(KINDS)}

ROW = np.dtype([("start", "i8"), ("stop", "i8"), ("slot", "i4"), ("tier", "i2"), ("kind", "i2")])
"""One action in an array: ``stop`` is ``start + 1`` but for an advance; ``kind`` indexes ``KINDS``."""


def encode(actions: Iterable[Action]) -> np.ndarray:
    """Actions as an array of dtype ``ROW``."""
    return np.array([to_row(action) for action in actions], dtype=ROW)


def decode(rows: np.ndarray) -> Iterator[Action]:
    """The actions of an array of dtype ``ROW``.

    >>> list(decode(encode([Snapshot(0, 0, 0), Advance(0, 3), Turn(3)])))
    [Snapshot(step=0, slot=0, tier=0), Advance(start=0, stop=3), Turn(step=3)]
    """
    for start, stop, slot, tier, kind in rows.tolist():
        if kind == ADVANCE:
            yield Advance(start, stop)
        elif kind <= FREE:
            yield KINDS[kind](start, slot, tier)
        elif kind <= REVERSE:
            yield KINDS[kind](start)
        else:
            yield EndForward()


def to_row(action: Action) -> tuple[int, int, int, int, int]:
    """One action as a tuple in the order of ``ROW``."""
    match action:
        case Advance(start, stop):
            return (start, stop, 0, 0, ADVANCE)
        case Snapshot(step, slot, tier) | Restore(step, slot, tier) | Free(step, slot, tier):
            return (step, step + 1, slot, tier, CODES[type(action)])
        case Record(step) | Turn(step) | Reverse(step):
            return (step, step + 1, 0, 0, CODES[type(action)])
        case _:
            return (0, 0, 0, 0, END_FORWARD)


def old_name(name: str, module: str) -> type[Snapshot]:
    """``Store``, as ``Snapshot`` was called until 0.1, for one more version; for the ``__getattr__`` of a module."""
    if name != "Store":
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warnings.warn(
        "the action pebbling.Store is now called pebbling.Snapshot, and the old name goes in 0.3 "
        "(pebbling.store.Store, where snapshots are kept, is another class and stays)",
        DeprecationWarning,
        stacklevel=3,
    )
    return Snapshot


def __getattr__(name: str) -> type[Snapshot]:
    return old_name(name, __name__)
