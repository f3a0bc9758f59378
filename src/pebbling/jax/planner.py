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

    @property
    def middle(self) -> Any:
        """Where storing begins."""
        return self.start + self.ahead

    @property
    def stop(self) -> Any:
        """Where it ends."""
        return self.middle + self.run

    @property
    def shift(self) -> Any:
        """From a step to the slot that its result goes into."""
        return self.store - self.middle

    @property
    def lift(self) -> Any:
        """From a step that is reversed to the slot of its state."""
        return self.top - self.last

    @property
    def until(self) -> Any:
        """The step before the last one that is reversed."""
        return self.last - self.back


@lru_cache(32)
def _reach(slots: int) -> np.ndarray:
    """beta(s, r) for every number of slots, as far as ``slots`` slots repeat a step within 2³¹ steps."""
    repeats = next((r for r in range(8, _MOST_REPEATS) if comb(slots + r, slots) > int(NOWHERE)), _MOST_REPEATS) + 2
    return np.array([[min(comb(s + r, s), int(NOWHERE)) for r in range(repeats)] for s in range(slots + 1)], np.int32)


def split(slots: int, length: Any, free: Any) -> Any:
    """The largest optimal first advance over ``length`` steps, with ``free`` slots besides that of the first state."""
    reach = jnp.asarray(_reach(slots))
    rows = lax.dynamic_slice_in_dim(reach, free, 2, allow_negative_indices=False)
    r = jnp.sum((rows[1] < length).astype(jnp.int32))
    fewer, same = lax.dynamic_slice_in_dim(rows, r - 1, 1, 1, allow_negative_indices=False)[:, 0]
    best = jnp.minimum(same, length - fewer)
    if slots < 5:
        beyond = length - jnp.ceil(jnp.sqrt(2.0 * length)).astype(jnp.int32)
        best = jnp.where(r < reach.shape[1], best, beyond)
    return jnp.where(free == 0, length - 1, jnp.maximum(best, 1))


def empty(slots: int) -> Any:
    """The positions in the slots before the first step: the initial state in slot 0."""
    return jnp.where(jnp.arange(slots + 1, dtype=jnp.int32) == 0, 0, NOWHERE)


def ledger(positions: Any, order: Any = None) -> Any:
    """The steps of the snapshots in ascending order, and the slots that they are in."""
    return jnp.stack([positions, jnp.arange(positions.shape[0], dtype=jnp.int32) if order is None else order])


def first_row(slots: int, positions: Any, top: Any, at: Any, count: Any) -> tuple[Row, Any]:
    """The next snapshots of the first sweep, after that of step ``at`` in slot ``top``."""
    left, free = count - at, slots - 1 - top
    ahead = split(slots, left, jnp.maximum(free, 0))
    run = jnp.where(left - ahead <= free + 1, left - ahead, 1)
    row = Row(top, at, ahead - 1, top + 1, run, 0, 0, 0)
    return row, _place(positions, row)


def back_row(slots: int, positions: Any, top: Any, end: Any) -> tuple[Row, Any]:
    """The next row of the way back, steps from ``end`` on being reversed."""
    start = positions[top]
    left, free = end - start, slots - 1 - top
    one = left == 1
    ahead = jnp.where(one, 0, split(slots, left, jnp.maximum(free, 0)))
    fits = left - ahead <= free + 1
    run = jnp.where(one, 0, jnp.where(fits, left - ahead, 1))
    row = Row(top, start, jnp.maximum(ahead - 1, 0), top + 1, run, top + run, end - 1, 0)
    positions = _place(positions, row)
    index = jnp.arange(slots + 1, dtype=jnp.int32)
    broken = (index <= row.top) & (positions + (row.top - index) != end - 1)
    back = row.top - jnp.max(jnp.where(broken, index, -1))
    return row._replace(back=back), positions


def _place(positions: Any, row: Row) -> Any:
    """The positions after the snapshots of a row are made."""
    index = jnp.arange(positions.shape[0], dtype=jnp.int32) - row.store
    return jnp.where((index >= 0) & (index < row.run), row.start + row.ahead + 1 + index, positions)
