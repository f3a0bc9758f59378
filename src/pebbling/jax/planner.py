"""The next row of a binomial schedule, computed while the program runs.

The same optimal split as ``Revolve(…, prefer="runs")``: Griewank and Walther's numbers, the largest
first part among the optimal ones. Used where the number of steps is known only at run time, and
after a loop of unknown length. Exact up to 2³¹ steps with five slots or more; with two up to 33 000
steps, with three up to 2.9 million, with four up to 180 million: beyond that the split is the
asymptotic one of two slots, which is not optimal.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

NOWHERE = np.int32(2**31 - 1)
"""The position of a slot that holds nothing."""

_MOST_REPEATS = 256


class Row(NamedTuple):
    """One row of the way back, as in ``rows``."""

    load: Any
    start: Any
    ahead: Any
    store: Any
    run: Any
    top: Any
    last: Any
    back: Any


class Marks:
    """A row as the loops that run it read it: its evaluations are numbered, from the number after ``begun`` on.

    Each number is taken from the vector where it is used: one taken beforehand is a kernel of its own.
    """

    NAMES = ("load", "index", "middle", "stop", "until", "store", "last", "top", "joined")

    load: Any  # the slot to begin with
    index: Any  # plus the number of an evaluation: the step it is of
    middle: Any  # the last evaluation that only advances
    stop: Any  # the last whose state is stored
    until: Any  # the last, which reverses
    store: Any  # plus the number: the slot that the new state goes into
    last: Any  # less the number: the step that is reversed
    top: Any  # less the number: the slot of its state
    joined: Any  # how many slots hold the steps right before the first that is stored

    def __init__(self, vector: Any) -> None:
        self._vector = vector

    def __getattr__(self, name: str) -> Any:
        return self._vector[self.NAMES.index(name)]


def marks(row: Row, joined: Any, begun: Any) -> list[Any]:
    """The numbers of ``Marks``, in order."""
    middle = begun + row.ahead
    stop = middle + row.run
    return [
        row.load, row.start - begun - 1, middle, stop, stop + row.back,
        row.store - middle - 1, row.last + stop + 1, row.top + stop + 1, joined,
    ]  # fmt: skip


@lru_cache(32)
def _reach(slots: int) -> tuple[np.ndarray, np.ndarray]:
    """For each top slot, what can be reached from it and with one slot less: beta(s, r) and beta(s - 1, r).

    As far as ``slots`` slots repeat a step within 2³¹ steps. One slot reaches as far as one likes here, so
    that it takes no case of its own to advance all steps but one.
    """
    repeats = next((r for r in range(8, _MOST_REPEATS) if comb(slots + r, slots) > int(NOWHERE)), _MOST_REPEATS) + 2
    rows = [[min(comb(s + r, s), int(NOWHERE)) for r in range(repeats)] for s in range(slots, -1, -1)]
    alone = [int(NOWHERE)] * repeats
    return np.array([*rows[:-2], alone], np.int32), np.array(rows[1:], np.int32)


def split(slots: int, length: Any, top: Any) -> Any:
    """The largest optimal first advance over ``length`` steps whose first state is in slot ``top``; 1 over one step."""
    reach, fewer = _reach(slots)
    r = _repeats(reach, length, top)
    same, less = (_at(jnp.asarray(table), top, r - 1) for table in (reach, fewer))
    best = jnp.minimum(same, length - less)
    if slots < 5:
        beyond = length - jnp.ceil(jnp.sqrt(2.0 * length)).astype(jnp.int32)
        best = jnp.where(r < reach.shape[1], best, beyond)
    return jnp.maximum(best, 1)


def _repeats(reach: np.ndarray, length: Any, top: Any) -> Any:
    """The first r with beta(s, r) >= length: a sum over two axes, for along one XLA adds no more than 32 at a time."""
    columns = reach.shape[1]
    padded = np.pad(reach, [(0, 0), (0, -columns % 32)], constant_values=NOWHERE).reshape(len(reach), -1, 32)
    (row,) = lax.dynamic_slice_in_dim(jnp.asarray(padded), top, 1, allow_negative_indices=False)
    return jnp.sum(row < length, dtype=jnp.int32)


def _at(table: Any, row: Any, column: Any) -> Any:
    """One number of a table; out of bounds, the nearest."""
    return lax.dynamic_slice(table, (jnp.int32(row), column), (1, 1), allow_negative_indices=False)[0, 0]


def empty(slots: int) -> Any:
    """The steps in the slots before the first step: the initial state in slot 0."""
    return jnp.where(jnp.arange(slots + 1, dtype=jnp.int32) == 0, 0, NOWHERE)


def ledger(positions: Any, order: Any = None) -> Any:
    """The steps of the snapshots in ascending order, and the slots that they are in."""
    return jnp.stack([positions, jnp.arange(positions.shape[0], dtype=jnp.int32) if order is None else order])


def first_row(slots: int, top: Any, at: Any, count: Any) -> Any:
    """The next snapshots of the first sweep, after that of step ``at`` in slot ``top``.

    Where advancing ends, where storing ends, and the slot of a step less that step.
    """
    left = count - at
    ahead = split(slots, left, top)
    run = jnp.where(left - ahead <= slots - top, left - ahead, 1)
    return jnp.stack([at + ahead - 1, at + ahead - 1 + run, top + 1 - at - ahead])


def first_place(positions: Any, row: Any) -> Any:
    """The positions after the snapshots of such a row are made."""
    step = jnp.arange(positions.shape[0], dtype=jnp.int32) - row[2]
    return jnp.where((step > row[0]) & (step <= row[1]), step, positions)


def hold(positions: Any, top: Any, count: Any) -> Any:
    """What the way back knows of the slots: the steps in them, and how many slots up to each hold consecutive steps.

    In the slot above the top one is the step that is reversed already, ``count`` before any is.
    """
    index = jnp.arange(positions.shape[0] + 2, dtype=jnp.int32)
    steps = jnp.where(index > top, count, jnp.pad(positions, (0, 2)))
    follows = jnp.concatenate([jnp.zeros(1, bool), steps[1:] == steps[:-1] + 1])
    return jnp.stack([steps, index + 1 - lax.cummax(jnp.where(follows, 0, index))])


def end(held: Any, top: Any) -> Any:
    """The step from which on all are reversed."""
    return _at(held, 0, top + 1)


def back_row(slots: int, held: Any, top: Any, begun: Any) -> Any:
    """The marks of the next row of the way back; as one sum, and a remainder that changes nothing, to be one kernel."""
    start, until, whole = _at(held, 0, top), end(held, top), _at(held, 1, top)
    left = until - start
    ahead = split(slots, left, top)
    rest = left - ahead
    fits = rest <= slots - top
    run = jnp.where(fits, rest, 1)
    joined = jnp.where(ahead == 1, whole, 0)
    back = jnp.where(fits, joined + run, 0)
    known = (top, start, until, ahead, run, back, joined, begun)
    constant, *factors = _FACTORS
    return lax.rem(sum((f * k for f, k in zip(factors, known)), jnp.asarray(constant)), NOWHERE)


def _factors() -> np.ndarray:
    """The marks of a row are linear in what the planner knows: what they are at zero, and by how much they grow."""

    def of(top: int, start: int, until: int, ahead: int, run: int, back: int, joined: int, begun: int) -> Any:
        return np.array(marks(Row(top, start, ahead - 1, top + 1, run, top + run, until - 1, back), joined, begun))

    zero = of(*[0] * 8)
    return np.array([zero, *(of(*unit) - zero for unit in np.eye(8, dtype=int).tolist())], np.int32)


_FACTORS = _factors()


def place(held: Any, row: Marks) -> Any:
    """What is known of the slots when a row is over: of the states that it stores only the first can still be there."""
    steps = jnp.stack([row.index + row.middle + 2, row.last - row.stop])
    block = jnp.stack([steps, jnp.stack([row.joined + 1, row.joined])])
    return lax.dynamic_update_slice(held, block, (jnp.int32(0), row.load + 1), allow_negative_indices=False)
