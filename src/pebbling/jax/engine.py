"""Runs rows inside one XLA program: the first sweep that keeps snapshots, and the way back.

Snapshots live in one buffer per leaf of the state, updated in place; the rows are a constant table,
or come from ``planner`` while the program runs. There is no conditional in here: XLA would copy the
whole buffer through it. Each store comes right after the step that made the state, for a store
before a step makes XLA copy that state.

Where a step takes less than a microsecond, the kernels beside it count: on CPUs each costs about a
tenth of such a step, and a loop body of more than eight of them several times that (measured). Hence
a row is one vector, each number of which is read inside the kernel that needs it, and the evaluations
of a row are numbered through its loops.

A step that is advanced again must give the bits of the first time, and XLA rounds as it fuses. Hence all advances
are by ``advance_to``, alone in a loop of its own, and no number of a row is known when kernels are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

from . import planner
from .masks import pick
from .rows import PlanRows

Arrays: TypeAlias = list[Any]
Step: TypeAlias = Callable[[Any, Arrays], Arrays]
Emit: TypeAlias = Callable[..., tuple[Arrays, Arrays]]

NEVER = np.int32(2**31 - 1)
"""A number that no count comes to."""
_hidden: Any = lax.optimization_barrier
MOST_NUMBERED = 1 << 30
"""Evaluations are numbered through the rows of a way back, and anew from a row on that begins beyond this."""


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
    """``lax.fori_loop`` over int32."""
    return lax.fori_loop(jnp.int32(start), jnp.int32(stop), body, value)


def each_row(count: int, body: Callable[[Any, Any], Any], value: Any) -> Any:
    """Run ``body(row, value)`` for the rows of a table; a single one is not spelled out, see ``advance_to``."""
    return lax.fori_loop(hidden(0), jnp.int32(count), body, value) if count else value


def count_to(stop: Callable[[], Any], body: Callable[..., tuple[Any, ...]], number: Any, *value: Any) -> Any:
    """Run ``body(number, *value) -> value`` for the numbers after ``number`` up to ``stop()``; number and value after.

    The remainder changes no number: it makes XLA compute each of them once. A mere sum it would
    compute again inside every kernel that reads it, and copy the number before at each step for that.
    """

    def one(c: tuple[Any, ...]) -> tuple[Any, ...]:
        following = lax.rem(c[0] + 1, NEVER)
        return following, *body(following, *c[1:])

    return lax.while_loop(lambda c: c[0] < stop(), one, (number, *value))


def advance_to(stop: Any, step: Step, number: Any, x: Arrays) -> tuple[Any, Arrays]:
    """Run ``step(number, x)`` for the numbers after ``number`` up to ``stop``: the one form in which steps advance.

    Nothing but the step is in the body of this loop. XLA fuses no kernel across it, so that the step is compiled to
    the same kernels wherever it is advanced, and a state that is computed again has the bits of the first time.
    """
    return count_to(lambda: stop, lambda number, x: (step(number, x),), number, x)


def repeat_until(stop: Callable[[], Any], body: Callable[..., tuple[Any, ...]], number: Any, *value: Any) -> Any:
    """Run ``body(number, *value)``, which counts by itself, until the number is ``stop()``."""
    return lax.while_loop(lambda c: c[0] < stop(), lambda c: body(*c), (number, *value))


def constant_rows(rows: np.ndarray) -> Any:
    """A table of at least two rows: the numbers of a single one would be known to the kernels that read them."""
    return jnp.asarray(np.concatenate([rows, rows[:1]]) if len(rows) == 1 else rows)


def hidden(number: Any) -> Any:
    """A number that XLA must not see, lest it spell out a loop of one turn: the kernels then round otherwise."""
    return _hidden(jnp.int32(number))


class Outputs(NamedTuple):
    """How what a step hands out is put into the outputs."""

    apart: Callable[[Any, Arrays, Arrays, Arrays], Arrays]  # from the states before and after it
    together: Callable[[Any, Arrays, Arrays], tuple[Arrays, Arrays]] | None  # with the step; the state after it as well


def sweep(
    step: Step,
    emit: Outputs | None,
    state: Arrays,
    outputs: Arrays,
    table: np.ndarray,
    slots: int,
    steps: int,
    stored: Sequence[bool],
) -> tuple[Arrays, ...]:
    """All steps forward, with snapshots of the stored leaves where the rows say; final state, outputs, buffers.

    What a step hands out is made apart from it, so that it has the bits of a step that is replayed.
    """
    start, ahead, store, run = table.T
    middle = start + ahead
    rows = constant_rows(np.stack([middle, middle + run, store - middle - 1], 1))

    def at(number: Any, x: Arrays) -> Arrays:
        return step(number - 1, x)

    def ahead_of(number: Any, x: Arrays, ys: Arrays) -> tuple[Arrays, Arrays]:
        assert emit is not None
        if emit.together is not None:
            return emit.together(number - 1, x, ys)
        _, new = advance_to(number, at, number - 1, x)
        return new, emit.apart(number - 1, x, new, ys)

    def forward_to(stop: Any, number: Any, x: Arrays, ys: Arrays) -> Any:
        if emit is None:
            return (*advance_to(stop, at, number, x), ys)
        return count_to(lambda: stop, ahead_of, number, x, ys)

    def run_row(q: Any, carried: tuple[Any, Arrays, Arrays, Arrays]) -> tuple[Any, ...]:
        (row,) = take([rows], q)

        def keep(number: Any, x: Arrays, ys: Arrays, buffers: Arrays) -> tuple[Any, ...]:
            number, x, ys = forward_to(lax.max(number, row[0]) + 1, number, x, ys)
            return number, x, ys, put(buffers, pick(stored, x), row[2] + number)

        return repeat_until(lambda: row[1], keep, *carried)

    carried = (hidden(0), state, outputs, room(pick(stored, state), slots))
    number, x, ys, buffers = each_row(len(table), run_row, carried)
    _, x, ys = forward_to(jnp.int32(steps), number, x, ys)
    return x, ys, buffers


def sweep_counted(
    step: Step, state: Arrays, slots: int, count: Any, stored: Sequence[bool]
) -> tuple[Arrays, Any, Arrays]:
    """All steps forward, as many as a run-time count says; final state, ledger of the snapshots, buffers."""

    def at(number: Any, x: Arrays) -> Arrays:
        return step(number - 1, x)

    def run_row(carried: tuple[Any, ...]) -> tuple[Any, ...]:
        number, x, buffers, positions, row = carried

        def keep(number: Any, x: Arrays, buffers: Arrays) -> tuple[Any, ...]:
            number, x = advance_to(lax.max(number, row[0]) + 1, at, number, x)
            return number, x, put(buffers, pick(stored, x), row[2] + number)

        number, x, buffers = repeat_until(lambda: row[1], keep, number, x, buffers)
        positions = planner.first_place(positions, row)
        return number, x, buffers, positions, planner.first_row(slots, row[2] + number, number, count)

    nothing = jnp.zeros(3, jnp.int32)
    start = (hidden(0), state, room(pick(stored, state), slots + 1), planner.empty(slots), nothing)
    number, x, buffers, positions, _ = lax.while_loop(lambda c: c[0] < count - 1, run_row, start)
    _, x = advance_to(count, at, number, x)
    return x, planner.ledger(positions), buffers


def way_back(
    step: Step, back: Emit, buffers: Arrays, carried: Arrays, outputs: Arrays, rows: PlanRows
) -> tuple[Any, ...]:
    """Reverse all steps, the rows being known; what is carried back, and what each step gives."""
    row = planner.Row(*rows.backward.T.astype(np.int64))
    evaluations = row.ahead + row.run + row.back
    part, begun = np.divmod(np.cumsum(evaluations) - evaluations, MOST_NUMBERED)
    marks = np.stack(planner.marks(row, 0 * begun, begun), 1).astype(np.int32)

    def run_row(table: Any, q: Any, c: tuple[Any, ...]) -> tuple[Any, ...]:
        return _row(step, back, planner.Marks(take([table], q)[0]), None, *c)

    for k in np.unique(part):
        table = constant_rows(marks[part == k])
        first = jnp.int32(begun[part == k][0])
        done = each_row(int(np.sum(part == k)), partial(run_row, table), (hidden(first), buffers, carried, outputs))
        _, buffers, carried, outputs = done
    return carried, outputs


def way_back_counted(
    step: Step, back: Emit, buffers: Arrays, carried: Arrays, outputs: Arrays, slots: int, ledger: Any, count: Any
) -> tuple[Any, ...]:
    """Reverse all steps, planning each row when it comes; the ledger says where in the buffer each snapshot is."""
    positions, order = ledger
    top = jnp.sum(positions < planner.NOWHERE, dtype=jnp.int32) - 1
    enough = jnp.maximum(MOST_NUMBERED - count, 1)

    def run_row(c: tuple[Any, ...]) -> tuple[Any, ...]:
        number, top, held, *rest = c
        row = planner.Marks(planner.back_row(slots, held, top, number))
        held = planner.place(held, row)
        number, *rest = _row(step, back, row, order, number, *rest)
        return number, row.top - number - 1, held, *rest

    def left(c: tuple[Any, ...]) -> Any:
        return planner.end(c[2], c[1]) > 0

    def number_anew(c: tuple[Any, ...]) -> tuple[Any, ...]:
        return lax.while_loop(lambda c: left(c) & (c[0] < enough), run_row, (jnp.int32(0), *c[1:]))

    begin = (jnp.int32(0), top, planner.hold(positions, top, jnp.int32(count)))
    done = lax.while_loop(left, number_anew, (*begin, buffers, carried, outputs))
    return done[4], done[5]


def way_back_stateless(back: Emit, carried: Arrays, outputs: Arrays, count: Any) -> tuple[Any, ...]:
    """Reverse steps that need nothing of the states before them, as those of a loop that only writes do."""

    def reverse(number: Any, carried: Arrays, outs: Arrays) -> tuple[Arrays, Arrays]:
        return back(count - number, [], carried, outs)

    _, carried, outputs = count_to(lambda: jnp.asarray(count, jnp.int32), reverse, jnp.int32(0), carried, outputs)
    return carried, outputs


def _row(
    step: Step, back: Emit, row: planner.Marks, order: Any, number: Any, buffers: Arrays, carried: Arrays, outs: Arrays
) -> tuple[Any, Arrays, Arrays, Arrays]:
    """Run one row; the number of its last evaluation, the buffers, what is carried back, what each step gives."""

    def place(slot: Any) -> Any:
        return slot if order is None else order[slot]

    def at(number: Any, x: Arrays) -> Arrays:
        return step(row.index + number, x)

    def keep(number: Any, x: Arrays, buffers: Arrays) -> tuple[Any, ...]:
        number, x = advance_to(lax.max(number, row.middle) + 1, at, number, x)
        return number, x, put(buffers, x, place(row.store + number))

    def reverse(number: Any, carried: Arrays, outs: Arrays) -> tuple[Arrays, Arrays]:
        return back(row.last - number, take(buffers, place(row.top - number)), carried, outs)

    number, _, buffers = repeat_until(lambda: row.stop, keep, number, take(buffers, place(row.load)), buffers)
    number, carried, outs = count_to(lambda: row.until, reverse, number, carried, outs)
    return number, buffers, carried, outs
