"""Two primitives that are closed under differentiation: a loop, and the way back through a loop.

``loop``     x[i+1], y[i] = body(i, consts, x[i], xs[i])            for i = 0 … n-1
``reverse``  z[i+1]       = step(i, consts, z[i], xs[i])            for i = 0 … n-1
             w[i], v[i]   = back(i, consts, z[i], xs[i], w[i+1], us[i])   for i = n-1 … 0

The tangent of a loop is the loop of the body and its tangent, and the transpose of a loop is a
``reverse``. The tangent of a ``reverse`` is a ``reverse``; its transpose is a loop over (z, ω),
where ω is dual to w and runs forward, followed by a ``reverse`` of that loop. So every order of
differentiation, in any mixture of modes, has the same two shapes, and keeps no more than the
snapshots of the slots that were asked for. ``back`` is linear in (w, us) by construction, which is
what the last rule rests on.

A loop may hand out its snapshots (``store``: of which carried values; empty for none), and a loop or
``reverse`` may be given those of an earlier run (``hint``), so that gradients need no sweep of their
own. Snapshots are a function of the other inputs: derivatives flow through those, never through a
hint. What the way back does not need is in no snapshot: see ``needs``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..chain.schedule import Schedule
from ..errors import BudgetError
from ..units import format_bytes
from . import engine, planner
from .compat import (
    Aval,
    Jaxpr,
    array_type,
    evaluate,
    forbidden_effects,
    nbytes,
    outputs_apart,
    primitive,
    stacked,
    zeros,
)
from .masks import parts, pick
from .rows import PlanRows, binomial_rows, schedule_rows

loop_p = primitive("checkpointed_loop")
reverse_p = primitive("checkpointed_reverse")

MOST_ROWS = 1 << 15
"""Longer tables are not written into the program: the rows are then computed while it runs."""


@dataclass(frozen=True)
class LoopPlan:
    """How snapshots are placed: binomially in ``slots`` slots, or as a schedule says."""

    slots: int
    schedule: Schedule | None = None
    site: Any = None  # the loop of a program with a budget as a whole that this is the plan of
    most: int | None = None  # the bytes of a snapshot for which it was made, if its budget is in bytes
    together: bool = False  # what steps hand out is made as they run: it takes most of the step to make it

    def rows(self, steps: int) -> PlanRows:
        """The rows for a known number of steps."""
        return (
            schedule_rows(self.schedule) if self.schedule else binomial_rows(steps, min(self.slots, max(steps - 1, 1)))
        )

    def room(self, steps: int | None) -> int:
        """The number of slots in the buffers."""
        return self.slots + 1 if steps is None else self.rows(steps).slots


def counted(length: int | None) -> int:
    """How many leading operands are a number of steps: one if it is known at run time only."""
    return 1 if length is None else 0


def hint_avals(states: Sequence[Aval], plan: LoopPlan, length: int | None) -> list[Aval]:
    """The types of the snapshots that a loop hands out."""
    size = plan.room(length)
    ledger = [] if length is not None else [array_type((2, size), "int32")]
    return ledger + [stacked(a, size) for a in states]


def check_size(states: Sequence[Aval], plan: LoopPlan) -> None:
    """Refuse snapshots that are larger than those that were counted on when a budget in bytes was divided."""
    size = sum(map(nbytes, states))
    if plan.most is not None and size > plan.most:
        raise BudgetError(
            f"the loop at {plan.site} was planned for snapshots of {format_bytes(plan.most)}, as far as derivatives "
            f"and batches around it could be seen, and the compiled program has snapshots of {format_bytes(size)}, so "
            "that its budget would not hold: give the budget to the whole program, pebbling.jax.jit(f, memory=…), or "
            "take away the jax.jit between the loop and the transformation"
        )


def check_effects(found: Any, what: str) -> None:
    """Refuse effects that would happen in another order or number than written."""
    names = forbidden_effects(found)
    if names:
        raise ValueError(
            f"{what} has the effects {', '.join(names)}: its steps run several times on the way back, so effects that "
            "must happen once and in order can't be inside; take them out of the body, or use jax.lax's loop; what "
            "a Ref holds can be carried as an array"
        )


def loop_abstract(
    *avals: Aval,
    body: Jaxpr,
    sizes: tuple[int, int, int],
    length: int | None,
    plan: LoopPlan,
    store: tuple[bool, ...],
    **_: Any,
) -> tuple[list[Aval], Any]:
    carry, ys = parts(body.out_avals, [sizes[1]])
    hints = hint_avals(pick(store, carry), plan, length) if store else []
    return carry + [stacked(y, length or 0) for y in ys] + hints, body.effects


def reverse_abstract(
    *avals: Aval, step: Jaxpr, back: Jaxpr, sizes: tuple[int, ...], length: int | None, **_: Any
) -> tuple[list[Aval], Any]:
    carried, outs = parts(back.out_avals, [sizes[4]])
    return carried + [stacked(v, length or 0) for v in outs], step.effects | back.effects


def run_loop(
    *args: Any,
    body: Jaxpr,
    sizes: tuple[int, int, int],
    length: int | None,
    plan: LoopPlan,
    store: tuple[bool, ...],
    flip: bool,
    hinted: tuple[bool, ...] | None,
) -> list[Any]:
    """The loop as XLA runs it."""
    count, consts, carry, xs, _ = parts(args, [counted(length), *sizes])
    call = evaluate(body)
    if length is None:
        if not store:
            return engine.loop(0, count[0], lambda i, x: call(i, *consts, *x), carry)

        def step(i: Any, x: list[Any]) -> list[Any]:
            return call(i, *consts, *x)

        check_size(pick(store, body.out_avals[: sizes[1]]), plan)
        x, ledger, buffers = engine.sweep_counted(step, carry, plan.slots, count[0], store)
        return [*x, ledger, *buffers]
    if not store:
        return _plain(call, consts, carry, xs, length, flip)

    step, outputs = map(evaluate, outputs_apart(body, sizes[1]))

    def at(i: Any) -> Any:
        return length - 1 - i if flip else i

    def advance(i: Any, x: list[Any]) -> list[Any]:
        return step(i, *consts, *x, *engine.take(xs, at(i)))

    def emit(i: Any, x: list[Any], new: list[Any], ys: list[Any]) -> list[Any]:
        return engine.put(ys, outputs(i, *consts, *x, *engine.take(xs, at(i)), *new), at(i))

    def both(i: Any, x: list[Any], ys: list[Any]) -> tuple[list[Any], list[Any]]:
        new, made = parts(call(i, *consts, *x, *engine.take(xs, at(i))), [len(x)])
        return new, engine.put(ys, made, at(i))

    check_size(pick(store, body.out_avals[: sizes[1]]), plan)
    rows = plan.rows(length)
    ys = [zeros(stacked(a, length)) for a in body.out_avals[sizes[1] :]]
    outputs_of = engine.Outputs(emit, both if plan.together else None) if ys else None
    x, ys, buffers = engine.sweep(advance, outputs_of, carry, ys, rows.forward, rows.slots, length, store)
    return [*x, *ys, *buffers]


def run_reverse(
    *args: Any, step: Jaxpr, back: Jaxpr, sizes: tuple[int, ...], length: int | None, plan: LoopPlan, flip: bool
) -> list[Any]:
    """The way back as XLA runs it."""
    count, consts, state, xs, hint, carried, us, _ = parts(args, [counted(length), *sizes])
    advance, pull = evaluate(step), evaluate(back)

    def at(i: Any) -> Any:
        return i if length is None or not flip else length - 1 - i

    def forward(i: Any, x: list[Any]) -> list[Any]:
        return advance(i, *consts, *x, *engine.take(xs, at(i)))

    def reverse(i: Any, z: list[Any], w: list[Any], outs: list[Any]) -> tuple[list[Any], list[Any]]:
        new, given = parts(pull(i, *consts, *z, *engine.take(xs, at(i)), *w, *engine.take(us, at(i))), [sizes[4]])
        return new, engine.put(outs, given, at(i))

    check_size([*step.out_avals, *back.out_avals[: sizes[4]]], plan)
    outs = [zeros(stacked(a, length or 0)) for a in back.out_avals[sizes[4] :]]
    every = [True] * len(state)
    if not state:
        done = engine.way_back_stateless(reverse, carried, outs, count[0] if length is None else length)
        return [*done[0], *done[1]]
    if length is None:
        if not hint:
            _, *hint = engine.sweep_counted(forward, state, plan.slots, count[0], every)
            hint = [hint[0], *hint[1]]
        ledger, *buffers = hint
        done = engine.way_back_counted(forward, reverse, buffers, carried, outs, plan.slots, ledger, count[0])
        return [*done[0], *done[1]]
    rows = plan.rows(length)
    if not hint:
        last = int(sum(rows.forward[-1][[0, 1, 3]])) if len(rows.forward) else 0
        _, _, hint = engine.sweep(forward, None, state, [], rows.forward, rows.slots, last, every)
    if len(rows.backward) > MOST_ROWS and plan.schedule is None:
        ledger = planner.ledger(jnp.asarray(_positions(rows)))
        done = engine.way_back_counted(forward, reverse, hint, carried, outs, rows.slots - 1, ledger, length)
    else:
        done = engine.way_back(forward, reverse, hint, carried, outs, rows)
    return [*done[0], *done[1]]


def _plain(call: Any, consts: list[Any], carry: list[Any], xs: list[Any], length: int, flip: bool) -> list[Any]:
    def body(c: tuple[Any, list[Any]], x: list[Any]) -> tuple[tuple[Any, list[Any]], list[Any]]:
        i, state = c
        new, ys = parts(call(i, *consts, *state, *x), [len(state)])
        return (i + 1, new), ys

    (_, carry), ys = lax.scan(body, (jnp.int32(0), carry), xs, length, reverse=flip)
    return [*carry, *ys]


def _positions(rows: PlanRows) -> np.ndarray:
    positions = np.full(rows.slots, planner.NOWHERE, np.int32)
    positions[0] = 0
    for start, ahead, store, run in rows.forward:
        positions[store : store + run] = start + ahead + 1 + np.arange(run)
    return positions
