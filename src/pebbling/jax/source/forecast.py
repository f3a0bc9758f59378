"""What the loops of a function on JAX arrays will take: what ``pebbling.explain`` reports of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
from jax.tree_util import tree_flatten, tree_unflatten

from ...chain import Revolve
from ...errors import PebblingError
from .. import budget
from ..body import as_arrays, trace_body
from ..compat import aval_of, nbytes
from ..memory import gradient_bytes
from ..simplify import simplify

Traced: TypeAlias = tuple[Callable[[Any, Any, Any], tuple[Any, Any]], Any, list[Any], int | None]
"""The step (index, carry, row) of a loop, what it begins with, its rows, and its length if that is known."""


def forecast(traced: Traced, asked: dict[str, Any]) -> tuple[int | None, int, int, int | None, int]:
    """Steps, bytes of a state, slots, evaluations of the step, and the bytes that XLA says the gradient takes."""
    step, begin, arrays, steps = traced
    rows, tree = as_arrays(arrays)
    body = trace_body(step, begin, rows, tree, "the loop")
    plan = budget.plan(budget.Asked(**asked), body, steps, rows)
    state = sum(nbytes(aval_of(one)) for one in simplify(body.jaxpr, body.consts, body.carry, len(rows)).carry)
    peak = gradient_bytes(body, rows, steps, plan)
    if plan is None:
        assert steps is not None
        return steps, state, steps, steps, peak
    if plan.schedule is not None:
        cost = plan.schedule.cost
        return steps, state, int(cost.peak), None if cost.tapes else cost.forwards + 1, peak
    if steps is None:
        return None, state, plan.slots, None, peak
    slots = min(plan.slots, steps)
    return steps, state, slots, Revolve(steps, slots).cost.forwards + 1, peak  # the sweep goes to the end


def explore(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Trace a function, as a derivative with respect to the JAX arrays among its arguments would."""
    leaves, tree = tree_flatten((args, kwargs))
    chosen = [place for place, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]

    def of_chosen(*new: Any) -> None:
        given = list(leaves)
        for place, value in zip(chosen, new):
            given[place] = value
        inner_args, inner_kwargs = tree_unflatten(tree, given)
        function(*inner_args, **inner_kwargs)

    if not chosen:
        raise PebblingError("there is no JAX array among the arguments")
    jax.eval_shape(of_chosen, *[leaves[place] for place in chosen])
