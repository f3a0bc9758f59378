"""Runs rows inside one XLA program: the first sweep that keeps snapshots, and the way back.

Snapshots live in one buffer per leaf of the state, updated in place; the rows are a constant table,
or come from ``planner`` while the program runs. There is no conditional in here: XLA would copy the
whole buffer through it. Each store comes right after the step that made the state, for a store
before a step makes XLA copy that state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

from . import planner
from .rows import Rows

Arrays: TypeAlias = list[Any]
Step: TypeAlias = Callable[[Any, Arrays], Arrays]
Emit: TypeAlias = Callable[..., tuple[Arrays, Arrays]]

_READ = ("load", "start", "middle", "stop", "shift", "lift", "last", "until")
"""What running a backward row reads of it."""


def take(buffers: Sequence[Any], slot: Any) -> Arrays:
    """What is in a slot."""
    return [lax.dynamic_index_in_dim(b, slot, 0, keepdims=False, allow_negative_indices=False) for b in buffers]


def put(buffers: Sequence[Any], values: Sequence[Any], slot: Any) -> Arrays:
    """The buffers with a slot filled."""
    return [
        lax.dynamic_update_index_in_dim(b, v, slot, 0, allow_negative_indices=False)
        for b, v in zip(buffers, values, strict=True)
    ]


def room(state: Sequence[Any], slots: int) -> Arrays:
    """Buffers for snapshots of a state; made from the state itself so that they have its sharding."""
    return [lax.broadcast(x, (slots,)) for x in state]


def loop(start: Any, stop: Any, body: Callable[[Any, Any], Any], value: Any) -> Any:
    """``lax.fori_loop`` over int32; a loop of no or one known step is spelled out."""
    if isinstance(start, int | np.integer) and isinstance(stop, int | np.integer):
        if stop <= start:
            return value
        if stop == start + 1:
            return body(jnp.int32(start), value)
    return lax.fori_loop(jnp.int32(start), jnp.int32(stop), body, value)


def sweep(step: Emit, state: Arrays, outputs: Arrays, table: np.ndarray, slots: int, steps: int) -> tuple[Arrays, ...]:
    """All steps forward, with snapshots where the rows say; final state, outputs, buffers."""

    def run_row(row: _Listed, carried: tuple[Any, Arrays, Arrays, Arrays]) -> tuple[Any, Arrays, Arrays, Arrays]:
        def one(c: tuple[Any, Arrays, Arrays, Arrays]) -> tuple[Any, Arrays, Arrays, Arrays]:
            i, x, ys, buffers = c
            x, ys = step(i, x, ys)
            return i + 1, x, ys, put(buffers, x, row.shift + i)

        i, x, ys, buffers = carried
        i, x, ys = lax.while_loop(lambda c: c[0] < row.middle, lambda c: (c[0] + 1, *step(*c)), (i, x, ys))
        return lax.while_loop(lambda c: c[0] < row.stop, one, (i, x, ys, buffers))

    start, ahead, store, run = table.T
    middle = start + ahead
    rows = _Listed.table(middle=middle, stop=middle + run, shift=store - middle)
    carried = (jnp.int32(0), state, outputs, room(state, slots))
    _, x, ys, buffers = loop(0, len(table), lambda q, c: run_row(rows(q), c), carried)
    done = int(middle[-1] + run[-1]) if len(table) else 0
    x, ys = loop(done, steps, lambda i, c: step(i, *c), (x, ys))
    return x, ys, buffers


def sweep_counted(step: Step, state: Arrays, slots: int, count: Any) -> tuple[Arrays, Any, Arrays]:
    """All steps forward, as many as a run-time count says; final state, ledger of the snapshots, buffers."""

    def more(carried: tuple[Any, ...]) -> Any:
        return carried[-1][1] < count - 1

    def run_row(carried: tuple[Any, ...]) -> tuple[Any, ...]:
        x, buffers, positions, (top, at) = carried
        row, positions = planner.first_row(slots, positions, top, at, count)
        middle = at + row.ahead
        x = loop(at, middle, step, x)

        def one(i: Any, c: tuple[Arrays, Arrays]) -> tuple[Arrays, Arrays]:
            x = step(i, c[0])
            return x, put(c[1], x, row.store + (i - middle))

        x, buffers = loop(middle, middle + row.run, one, (x, buffers))
        return x, buffers, positions, (row.store + row.run - 1, middle + row.run)

    start = (jnp.int32(0), jnp.int32(0))
    x, buffers, positions, (_, at) = lax.while_loop(
        more, run_row, (state, room(state, slots + 1), planner.empty(slots), start)
    )
    return loop(at, count, step, x), planner.ledger(positions), buffers


def way_back(step: Step, back: Emit, buffers: Arrays, carried: Arrays, outputs: Arrays, rows: Rows) -> tuple[Any, ...]:
    """Reverse all steps, the rows being known; what is carried back, and what each step gives."""
    row = planner.Row(*rows.backward.T)
    listed = _Listed.table(**{name: getattr(row, name) for name in _READ})

    def run_row(q: Any, c: tuple[Arrays, Arrays, Arrays]) -> tuple[Arrays, Arrays, Arrays]:
        return _row(step, back, listed(q), *c)

    _, carried, outputs = loop(0, len(rows.backward), run_row, (buffers, carried, outputs))
    return carried, outputs


def way_back_counted(
    step: Step, back: Emit, buffers: Arrays, carried: Arrays, outputs: Arrays, slots: int, ledger: Any, count: Any
) -> tuple[Any, ...]:
    """Reverse all steps, planning each row when it comes; the ledger says where in the buffer each snapshot is."""
    positions, order = ledger
    top = jnp.sum(positions < planner.NOWHERE).astype(jnp.int32) - 1

    def more(c: tuple[Any, ...]) -> Any:
        return c[-1][1] > 0

    def run_row(c: tuple[Any, ...]) -> tuple[Any, ...]:
        buffers, carried, outputs, positions, (top, end) = c
        row, positions = planner.back_row(slots, positions, top, end)
        buffers, carried, outputs = _row(step, back, row, buffers, carried, outputs, order)
        return buffers, carried, outputs, positions, (row.top - row.back, end - row.back)

    done = lax.while_loop(more, run_row, (buffers, carried, outputs, positions, (top, jnp.int32(count))))
    return done[1], done[2]


def _row(
    step: Step, back: Emit, row: Any, buffers: Arrays, carried: Arrays, outputs: Arrays, order: Any = None
) -> tuple[Arrays, Arrays, Arrays]:
    def place(slot: Any) -> Any:
        return slot if order is None else order[slot]

    def one(c: tuple[Any, Arrays, Arrays]) -> tuple[Any, Arrays, Arrays]:
        i, x, buffers = c
        x = step(i, x)
        return i + 1, x, put(buffers, x, place(row.shift + i))

    def reverse(c: tuple[Any, Arrays, Arrays]) -> tuple[Any, Arrays, Arrays]:
        i, carried, outputs = c
        return i - 1, *back(i, take(buffers, place(row.lift + i)), carried, outputs)

    i, x = lax.while_loop(
        lambda c: c[0] < row.middle,
        lambda c: (c[0] + 1, step(*c)),
        (row.start, take(buffers, place(row.load))),
    )
    _, _, buffers = lax.while_loop(lambda c: c[0] < row.stop, one, (i, x, buffers))
    _, carried, outputs = lax.while_loop(lambda c: c[0] > row.until, reverse, (row.last, carried, outputs))
    return buffers, carried, outputs


class _Listed:
    """A row of a table, each number of which is read where it is used: one read beforehand is a kernel of its own."""

    def __init__(self, names: tuple[str, ...], numbers: Any) -> None:
        self._names, self._numbers = names, numbers

    def __getattr__(self, name: str) -> Any:
        return self._numbers[self._names.index(name)]

    @classmethod
    def table(cls, **columns: np.ndarray) -> Callable[[Any], _Listed]:
        """What gives the row of a number."""
        names, rows = tuple(columns), jnp.asarray(np.stack([*columns.values()], 1))
        return lambda q: cls(names, take([rows], q)[0])
