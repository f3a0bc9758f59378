"""The public loops: the signatures of ``jax.lax``, plus a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import tree_unflatten

from ..chain.schedule import Schedule
from . import budget, compat, registry  # noqa: F401
from .body import Body, as_arrays, empty_tree, trace_body
from .compat import is_concrete
from .leaves import in_leaves
from .masks import parts
from .primitives import LoopPlan, loop_p
from .simplify import Simplified, simplify, without_loop


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    *,
    slots: int | None = None,
    memory: float | str | None = None,
    schedule: Schedule | None = None,
    leaf: int | None = None,
    policy: Callable[..., Any] | None = None,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """``jax.lax.scan`` whose gradient keeps a few states instead of all.

    With ``leaf=K`` the plan is over leaves of K steps, whose residuals are kept while a leaf is
    reversed, those that ``policy`` allows (one of ``jax.checkpoint_policies``). ``unroll=K`` alone does the same with
    the steps of a leaf written out one after another.

    >>> import jax, jax.numpy as jnp
    >>> def last(x): return scan(lambda c, t: (jnp.sin(c) + t, c), x, jnp.arange(100.0), slots=5)[0]
    >>> bool(jnp.isfinite(jax.grad(last)(1.0)))
    True
    """
    asked = budget.Asked(slots, memory, schedule)
    together = _unrolled(unroll)
    if compat.without_jit():  # steps in Python, one after another, is what was asked for
        return lax.scan(f, init, xs, length, reverse=reverse)
    flat, tree = as_arrays(xs)
    steps = _length(flat, length)
    if together != 1 and leaf is None and steps:
        if not together or together >= steps:
            if asked.given:
                raise ValueError(
                    f"scan got unroll={unroll!r} and {asked.given}: with all {steps} steps in one there is no state "
                    "between them to keep; give a smaller unroll"
                )
            return lax.scan(f, init, xs, length, reverse=reverse, unroll=unroll)
        leaf = together
    if leaf is not None and steps:
        turned = partial(_scan, asked, together=True)
        return in_leaves(f, init, tree_unflatten(tree, flat), steps, reverse, leaf, policy, together, turned)
    if policy is not None:
        raise ValueError("policy says which residuals the steps of a leaf keep: give leaf=, a number of steps, as well")
    return _scan(asked, f, init, xs, length, reverse)


def _scan(
    asked: budget.Asked,
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None,
    reverse: bool,
    together: bool = False,
) -> tuple[Any, Any]:
    """The scan itself; ``together``, what steps hand out is made as they run, and not apart from them."""
    flat, tree = as_arrays(xs)
    steps = _length(flat, length)
    body = trace_body(lambda i, carry, x: _pair(f(carry, x)), init, flat, tree, "scan")
    small = simplify(body.jaxpr, body.consts, body.carry, len(flat))
    plan = budget.plan(asked, small.bare(), steps, flat) if steps else None
    if plan is None:
        return lax.scan(f, init, xs, length, reverse=reverse)
    return _run(body, small, [], flat, steps, replace(plan, together=together), reverse)


def fori_loop(
    lower: Any,
    upper: Any,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    slots: int | None = None,
    memory: float | str | None = None,
    schedule: Schedule | None = None,
    unroll: int | bool | None = None,
) -> Any:
    """``jax.lax.fori_loop`` that can be differentiated in reverse within a budget, whether or not its bounds are known.

    >>> import jax, jax.numpy as jnp
    >>> f = lambda x, n: fori_loop(0, n, lambda i, y: jnp.sin(y) + i, x, slots=4)
    >>> bool(jnp.isfinite(jax.jit(jax.grad(f))(1.0, 1000)))
    True
    """
    asked = budget.Asked(slots, memory, schedule)
    together = _unrolled(unroll)
    if compat.without_jit():
        return lax.fori_loop(lower, upper, body_fun, init_val)
    known = is_concrete(lower) and is_concrete(upper)
    dtype = _index_type(lower, upper, known)
    steps = max(0, int(upper) - int(lower)) if known else None
    first = int(lower) if is_concrete(lower) else lower
    if together != 1:
        if steps is None:
            raise ValueError(
                f"fori_loop got unroll={unroll!r} and bounds that are known at run time only: leave unroll out"
            )
        numbers = jnp.asarray(first, dtype) + jnp.arange(steps, dtype=dtype)
        turn = lambda carry, i: (body_fun(i, carry), None)  # noqa: E731
        return scan(turn, init_val, numbers, slots=slots, memory=memory, schedule=schedule, unroll=together)[0]

    def step(i: Any, carry: Any, _: Any) -> tuple[Any, None]:
        index = lax.convert_element_type(i, dtype) + jnp.asarray(first, dtype)
        return body_fun(compat.weakly_typed(index) if known else index, carry), None

    body = trace_body(step, init_val, [], empty_tree(), "fori_loop")
    if steps == 0:
        return tree_unflatten(body.tree, body.carry)
    count = [] if known else [jnp.maximum(jnp.asarray(upper, dtype) - jnp.asarray(lower, dtype), 0).astype(jnp.int32)]
    small = simplify(body.jaxpr, body.consts, body.carry, 0)
    plan = budget.plan(asked, small.bare(), steps, count=count)
    if plan is None:
        return lax.fori_loop(lower, upper, body_fun, init_val)
    return _run(body, small, count, [], steps, plan, False)[0]


def loop(
    body: Callable[..., Any],
    state: Any,
    steps: Any,
    *args: Any,
    slots: int | None = None,
    memory: float | str | None = None,
    schedule: Schedule | None = None,
) -> Any:
    """``body(i, state, *args) -> state`` run ``steps`` times, or as long as ``steps(state, i)`` holds.

    Differentiable with respect to ``state``, ``args`` and whatever ``body`` closes over.
    """
    if callable(steps):
        from .online import while_loop

        _, last = while_loop(
            lambda c: steps(c[1], c[0]),
            lambda c: (c[0] + 1, body(c[0], c[1], *args)),
            (jnp.int32(0), state),
            slots=slots, memory=memory, schedule=schedule,
        )  # fmt: skip
        return last
    return fori_loop(0, steps, lambda i, x: body(i, x, *args), state, slots=slots, memory=memory, schedule=schedule)


def _run(
    body: Body, small: Simplified, count: list[Any], xs: list[Any], steps: int | None, plan: LoopPlan, flip: bool
) -> tuple[Any, Any]:
    simple = without_loop(body.jaxpr, body.consts, body.carry, count[0] if count else steps)
    if simple is not None:
        return tree_unflatten(body.tree, simple), tree_unflatten(body.output_tree, [])
    outs = loop_p.bind(
        *count, *small.consts, *small.carry, *xs,
        body=small.body, sizes=(len(small.consts), len(small.carry), len(xs)), length=steps, plan=plan, store=(),
        flip=flip, hinted=None,
    )  # fmt: skip
    final, ys = parts(outs, [len(small.carry)])
    full = small.final(final, count[0] if count else steps)
    return tree_unflatten(body.tree, full), tree_unflatten(body.output_tree, ys)


def _pair(result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple | list) or len(result) != 2:
        got = f"{len(result)} of them" if isinstance(result, tuple | list) else f"a {type(result).__name__}"
        raise TypeError(f"the body of scan must give a pair of a carry and an output (or None), and it gives {got}")
    return result[0], result[1]


def _index_type(lower: Any, upper: Any, known: bool) -> Any:
    """The type of the index, as ``jax.lax`` has it: that of Python's numbers where the bounds are known."""
    types = [jnp.result_type(lower), jnp.result_type(upper)]
    for found in types:
        if not jnp.issubdtype(found, jnp.integer):
            raise TypeError(f"the bounds of fori_loop must be integers, not {found}")
    if types[0] != types[1]:
        weak = [bool(getattr(compat.aval_of(b), "weak_type", False)) for b in (lower, upper)]
        if weak[0] == weak[1]:
            raise TypeError(
                f"lower and upper arguments to fori_loop must have equal types, got {types[0]} and {types[1]}"
            )
        types = [types[weak.index(False)]]
    return jnp.result_type(int) if known else types[0]


def _unrolled(unroll: Any) -> int:
    """How many steps are written out one after another; 0 for all."""
    if unroll is True:
        return 0
    number = int(unroll or 1)
    if number < 0:
        raise ValueError(f"`unroll` must be a `bool` or a non-negative `int`, not {unroll!r}")
    return number


def _length(xs: Sequence[Any], length: int | None) -> int:
    found = {int(x.shape[0]) for x in xs if x.shape}
    if not all(x.shape for x in xs):
        raise ValueError("scan got value with no leading axis to scan over: each leaf of xs needs one")
    if length is not None:
        if not is_concrete(length):
            raise TypeError(
                "scan got a length that is traced, and needs a number: fori_loop takes bounds known at run time only, "
                "and while_loop none at all"
            )
        found.add(int(np.asarray(length)))
    if len(found) != 1:
        raise ValueError(
            "scan got neither xs nor length"
            if not found
            else f"scan got leading axes and length {sorted(found)}: they must agree"
        )
    return found.pop()
