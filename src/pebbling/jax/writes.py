"""A step that only some members of a batch take: the others keep what they carry.

Where the loops of a batch end at different times, those that are done must not change. A selection between the new and
the old state copies all of it at each step, which for an array that the steps only write a row into is as if the whole
array were written. So the writes themselves are held back: the row is written that was there. Such an array is told by
how the step makes it: from what it carries, by writes alone, those of loops inside the step included.

    ys = ys.at[i].set(y)    becomes    ys = ys.at[i].set(where(alive, y, ys[i]))

What is made in any other way is selected as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from . import compat
from .compat import Jaxpr, aval_of, evaluate, trace

Values = list[Any]
Step = Callable[..., Values]


def held(jaxpr: Jaxpr, first: int, carried: int) -> Jaxpr:
    """The step with the flag of a member before its inputs; unset, the carried values, from input ``first``, stay.

    They are the first outputs; what the others are for such a member is left open.
    """
    writers = _writers(jaxpr.jaxpr, first, carried)
    kept = [_chain(jaxpr.jaxpr, writers, first, k) is not None for k in range(carried)]
    inner = jaxpr.jaxpr

    def body(alive: Any, *args: Any) -> Values:
        env: dict[Any, Any] = dict(zip(inner.constvars, jaxpr.consts)) | dict(zip(inner.invars, args))

        def read(atom: Any) -> Any:
            return env[atom] if compat.is_variable(atom) else atom.val

        for eqn in inner.eqns:
            values = [read(v) for v in eqn.invars]
            made = _held_back(eqn, alive, values) if id(eqn) in writers else compat.bind_equation(eqn, values)
            env.update(zip(eqn.outvars, made, strict=True))
        outs = [read(v) for v in inner.outvars]
        for k in range(carried):
            if not kept[k]:
                old = args[first + k]
                outs[k] = lax.select(jnp.broadcast_to(alive, old.shape), outs[k], old)
        return outs

    return trace(body, [aval_of(jnp.bool_(True)), *jaxpr.in_avals])


def _writers(inner: Any, first: int, carried: int) -> set[int]:
    """The equations that make carried arrays by writing into them."""
    chains = [_chain(inner, None, first, k) for k in range(carried)]
    return {id(eqn) for chain in chains if chain for eqn in chain}


def _chain(inner: Any, among: set[int] | None, first: int, position: int) -> list[Any] | None:
    """The writes that make a carried array from itself; ``None`` if it is made otherwise."""
    made_by = {v: eqn for eqn in inner.eqns for v in eqn.outvars}
    start, at, chain = inner.invars[first + position], inner.outvars[position], []
    if not start.aval.shape:
        return None
    while at is not start:
        eqn = made_by.get(at) if compat.is_variable(at) else None
        before = None if eqn is None else _written(eqn, eqn.outvars.index(at))
        if before is None or (among is not None and id(eqn) not in among):
            return None
        chain.append(eqn)
        at = before
    return chain


def _written(eqn: Any, output: int) -> Any:
    """The array that an equation writes into to make its output; ``None`` if it does not."""
    name = eqn.primitive.name
    if name in _MASKS:
        return eqn.invars[0]
    loop = _LOOPS.get(name)
    if loop is None:
        return None
    key, place = loop
    first, inputs, carried = place(eqn.params)
    if output >= carried or (key and _chain(eqn.params[key].jaxpr, None, inputs, output) is None):
        return None
    return eqn.invars[first + output]


def _held_back(eqn: Any, alive: Any, values: Values) -> Values:
    """Run an equation that writes such that nothing changes where the flag is unset."""
    name = eqn.primitive.name
    if name in _MASKS:
        return compat.bind_equation(eqn, _MASKS[name](eqn, alive, values))
    key, place = _LOOPS[name]
    params = eqn.params
    sizes = params["sizes"]
    if not key:
        return eqn.primitive.bind(alive, *values, **_condition_held(params))
    _, inputs, carried = place(params)
    made = _after_index(held(params[key], inputs, carried))
    counted = 1 if params["length"] is None else 0
    changed = {key: made, "sizes": (sizes[0] + 1, *sizes[1:])}
    if name == "checkpointed_reverse":
        changed["step"] = _ignoring(params["step"])
    return eqn.primitive.bind(*values[:counted], alive, *values[counted:], **{**params, **changed})


def _after_index(jaxpr: Jaxpr) -> Jaxpr:
    """The flag after the index of the step, as the first of the constants."""
    flag, index, *rest = jaxpr.in_avals
    call = evaluate(jaxpr)
    return trace(lambda i, alive, *args: call(alive, i, *args), [index, flag, *rest])


def _ignoring(jaxpr: Jaxpr) -> Jaxpr:
    """With a flag among the constants that plays no part."""
    index, *rest = jaxpr.in_avals
    call = evaluate(jaxpr)
    return trace(lambda i, alive, *args: call(i, *args), [index, aval_of(jnp.bool_(True)), *rest])


def _condition_held(params: dict[str, Any]) -> dict[str, Any]:
    """A loop that runs as long as a condition holds, and the flag, the first of its constants, is set."""
    cond, sizes = params["cond"], params["sizes"]
    index, *rest = cond.in_avals
    call = evaluate(cond)
    made = trace(lambda i, alive, *args: [alive & call(i, *args)[0]], [index, aval_of(jnp.bool_(True)), *rest])
    return {**params, "cond": made, "sizes": (sizes[0] + 1, *sizes[1:])}


def _slice_masked(eqn: Any, alive: Any, values: Values) -> Values:
    into, update, *at = values
    there = lax.dynamic_slice(into, at, update.shape)
    return [into, _pick(alive, update, there), *at]


def _scatter_masked(eqn: Any, alive: Any, values: Values) -> Values:
    into, at, update = values
    return [into, at, _pick(alive, update, _gathered(eqn.params, into, at, update))]


def _added_masked(eqn: Any, alive: Any, values: Values) -> Values:
    into, at, update = values
    return [into, at, _pick(alive, update, jnp.zeros_like(update))]


def _pick(alive: Any, new: Any, old: Any) -> Any:
    return lax.select(jnp.broadcast_to(alive, new.shape), new, old)


def _gathered(params: dict[str, Any], operand: Any, at: Any, update: Any) -> Any:
    """What is in the places that a scatter writes."""
    numbers = params["dimension_numbers"]
    alone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    sizes = iter(update.shape[d] for d in sorted(numbers.update_window_dims))
    return lax.gather(
        operand,
        at,
        lax.GatherDimensionNumbers(
            offset_dims=numbers.update_window_dims,
            collapsed_slice_dims=numbers.inserted_window_dims,
            start_index_map=numbers.scatter_dims_to_operand_dims,
            operand_batching_dims=numbers.operand_batching_dims,
            start_indices_batching_dims=numbers.scatter_indices_batching_dims,
        ),
        slice_sizes=tuple(1 if d in alone else next(sizes) for d in range(operand.ndim)),
        indices_are_sorted=params["indices_are_sorted"],
        unique_indices=params["unique_indices"],
        mode=params["mode"],
        fill_value=0,
    )


_MASKS: dict[str, Callable[[Any, Any, Values], Values]] = {
    "dynamic_update_slice": _slice_masked,
    "scatter": _scatter_masked,
    "scatter-add": _added_masked,
    "scatter_add": _added_masked,
}


def _of_loop(params: dict[str, Any]) -> tuple[int, int, int]:
    """For a loop: its first carried operand, the first carried input of its step, and how many there are."""
    sizes = params["sizes"]
    return (1 if params["length"] is None else 0) + sizes[0], 1 + sizes[0], sizes[1]


def _of_reverse(params: dict[str, Any]) -> tuple[int, int, int]:
    sizes = params["sizes"]
    return (1 if params["length"] is None else 0) + sum(sizes[:4]), 1 + sum(sizes[:3]), sizes[4]


def _of_while(params: dict[str, Any]) -> tuple[int, int, int]:
    sizes = params["sizes"]
    return sizes[0] + sizes[1], 1 + sizes[1], sizes[2]


# Which jaxpr of a loop writes, and where what it carries is; a loop with a condition is held back by that.
_LOOPS: dict[str, tuple[str, Callable[[dict[str, Any]], tuple[int, int, int]]]] = {
    "checkpointed_loop": ("body", _of_loop),
    "checkpointed_reverse": ("back", _of_reverse),
    "checkpointed_while": ("", _of_while),
}
