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

    def run_row(row: Sequence[Any], carried: tuple[Arrays, Arrays, Arrays]) -> tuple[Arrays, Arrays, Arrays]:
        start, ahead, store, run = row
        x, ys, buffers = carried
        x, ys = loop(start, start + ahead, lambda i, c: step(i, *c), (x, ys))

        def one(i: Any, c: tuple[Arrays, Arrays, Arrays]) -> tuple[Arrays, Arrays, Arrays]:
            x, ys, buffers = c
            x, ys = step(i, x, ys)
            return x, ys, put(buffers, x, store + (i - start - ahead))

        return loop(start + ahead, start + ahead + run, one, (x, ys, buffers))

    carried = (state, outputs, room(state, slots))
    if len(table) == 1:
        carried = run_row([int(v) for v in table[0]], carried)
    elif len(table):
        rows = jnp.asarray(table)
        carried = loop(0, len(table), lambda q, c: run_row(list(rows[q]), c), carried)
    x, ys, buffers = carried
    done = int(sum(table[-1][[0, 1, 3]])) if len(table) else 0
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
    table = jnp.asarray(rows.backward)

    def run_row(q: Any, c: tuple[Arrays, Arrays, Arrays]) -> tuple[Arrays, Arrays, Arrays]:
        return _row(step, back, planner.Row(*table[q]), *c)

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

    middle = row.start + row.ahead
    x = loop(row.start, middle, step, take(buffers, place(row.load)))

    def one(i: Any, c: tuple[Arrays, Arrays]) -> tuple[Arrays, Arrays]:
        x = step(i, c[0])
        return x, put(c[1], x, place(row.store + (i - middle)))

    _, buffers = loop(middle, middle + row.run, one, (x, buffers))

    def reverse(j: Any, c: tuple[Arrays, Arrays]) -> tuple[Arrays, Arrays]:
        return back(row.last - j, take(buffers, place(row.top - j)), *c)

    carried, outputs = loop(0, row.back, reverse, (carried, outputs))
    return buffers, carried, outputs
