"""Two levels: the states at the starts of segments leave the device, the rest is binomial on it.

The first sweep sends the state at the start of every segment away. On the way back each of them
comes in once, and its segment is reversed with ``slots`` snapshots on the device. A step runs once
on the first sweep and, of a segment of L steps, t(L, c) + 1 + L times on the way back.

To pinned host memory XLA moves the states itself (``jax.checkpoint`` with an offloading policy), in
forward, reverse and forward over reverse mode; JAX does not differentiate such a policy twice in
reverse. The transfers must sit in the outer loop, as XLA can't compile host buffers that are carried
through nested loops. To a store they go through callbacks, on the CPU; that is for reverse mode, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import isqrt
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import io_callback
from jax.tree_util import tree_map, tree_unflatten

from ..chain import binomial
from ..chain.validate import whole
from . import registry  # noqa: F401
from .body import Body, empty_tree, trace_body
from .compat import ShapeDtypeStruct, aval_of, evaluate, shape_of, trace
from .loops import fori_loop
from .primitives import LoopPlan, loop_p
from .simplify import index_type

_RUNS = itertools.count()
_name: Any = jax.ad_checkpoint.checkpoint_name


def offload_loop(
    lower: int,
    upper: int,
    body_fun: Callable[[Any, Any], Any],
    init_val: Any,
    *,
    to: Any = "pinned_host",
    segment: int | None = None,
    slots: int | None = None,
) -> Any:
    """``fori_loop`` that keeps ``slots`` states on the device and one state a segment elsewhere.

    ``to`` is ``"pinned_host"`` or a store of ``pebbling.store``; ``segment`` is the number of steps
    from one state sent away to the next, by default about the square root of all.

    >>> import jax, jax.numpy as jnp, pebbling.store
    >>> with pebbling.store.Memory() as store:
    ...     run = lambda x: offload_loop(0, 100, lambda i, y: jnp.sin(y), x, to=store, segment=25, slots=3)
    ...     bool(jax.grad(run)(1.0) > 0)
    True
    """
    steps = max(0, int(upper) - int(lower))
    length = max(1, isqrt(steps)) if segment is None else whole(segment, "segment", 1)
    inner = binomial.default_slots(length) if slots is None else whole(slots, "slots", 1)
    if isinstance(to, str):
        if to != "pinned_host":
            raise ValueError(f'to must be "pinned_host" or a store of pebbling.store, not {to!r}')
        return _to_host(int(lower), steps, length, body_fun, init_val, inner)
    return _to_store(int(lower), steps, length, body_fun, init_val, inner, to)


def _to_host(lower: int, steps: int, length: int, body_fun: Callable, state: Any, slots: int) -> Any:
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["segment"], offload_src="device",
        offload_dst="pinned_host",
    )  # fmt: skip

    def part(state: Any, k: Any) -> tuple[Any, None]:
        kept = tree_map(lambda x: _name(x, "segment") if jnp.issubdtype(x.dtype, np.inexact) else x, state)
        start = lower + k * length
        return fori_loop(0, length, lambda i, x: body_fun(start + i, x), kept, slots=slots), None

    state = tree_map(jnp.asarray, state)
    parts, rest = divmod(steps, length)
    if parts:
        state, _ = lax.scan(jax.checkpoint(part, policy=policy, prevent_cse=False), state, jnp.arange(parts))
    if rest:
        state = fori_loop(lower + parts * length, lower + steps, body_fun, state, slots=slots)
    return state


def _to_store(lower: int, steps: int, length: int, body_fun: Callable, state: Any, slots: int, store: Any) -> Any:
    body = trace_body(lambda i, x, _: (body_fun(lower + i, x), None), state, [], empty_tree(), "offload_loop")
    smooth = [jnp.issubdtype(aval_of(v).dtype, np.inexact) for v in (*body.consts, *body.carry)]
    if not all(smooth[len(body.consts) :]):
        raise TypeError("a state that goes to a store must be of floating-point arrays; take counters from the index")
    outs = _stored(body, steps, length, LoopPlan(slots), store)(tuple(body.consts), tuple(body.carry))
    return tree_unflatten(body.tree, outs)


def _stored(body: Body, steps: int, length: int, plan: LoopPlan, store: Any) -> Callable[..., Any]:
    """The loop over segments as a function of constants and state, with its reverse."""
    parts = -(-steps // length)
    sizes = (1 + len(body.consts), len(body.carry), 0)
    types = [shape_of(aval_of(x)) for x in body.carry]

    def shifted(i: Any, start: Any, *args: Any) -> Any:
        return evaluate(body.jaxpr)(start + i, *args)

    inner = trace(shifted, [index_type(), index_type(), *body.jaxpr.in_avals[1:]])

    def segment(k: Any, consts: tuple[Any, ...], x: tuple[Any, ...]) -> tuple[Any, ...]:
        start = (k * length).astype(jnp.int32)
        count = jnp.minimum(steps - start, length).astype(jnp.int32)
        return tuple(
            loop_p.bind(
                count, start, *consts, *x,
                body=inner, sizes=sizes, length=None, plan=plan, store=(), flip=False, hinted=None,
            )
        )  # fmt: skip

    def put(run: Any, k: Any, *leaves: Any) -> np.int32:
        store.put(f"jax-{int(run)}-{int(k)}", [np.asarray(leaf) for leaf in leaves])
        return np.int32(run)

    def get(run: Any, k: Any) -> Any:
        return tuple(np.asarray(leaf) for leaf in store.take(f"jax-{int(run)}-{int(k)}"))

    def number() -> np.int32:
        return np.int32(next(_RUNS))

    whole_number = ShapeDtypeStruct((), jnp.int32)

    @jax.custom_vjp
    def run(consts: tuple[Any, ...], x: tuple[Any, ...]) -> tuple[Any, ...]:
        return lax.fori_loop(0, parts, lambda k, y: segment(k, consts, y), x)

    def forward(consts: tuple[Any, ...], x: tuple[Any, ...]) -> Any:
        def one(k: Any, c: tuple[Any, Any]) -> tuple[Any, Any]:
            token, y = c
            return io_callback(put, whole_number, token, k, *y), segment(k, consts, y)

        token, y = lax.fori_loop(0, parts, one, (io_callback(number, whole_number), x))
        return y, (token, consts)

    def backward(kept: Any, ct: tuple[Any, ...]) -> Any:
        token, consts = kept
        moving = [jnp.issubdtype(c.dtype, np.inexact) for c in consts]
        zero = tuple(jnp.zeros_like(c) for c, m in zip(consts, moving) if m)

        def one(j: Any, c: tuple[Any, Any]) -> tuple[Any, Any]:
            k = parts - 1 - j
            y = io_callback(get, tuple(types), token, k)
            first = tuple(v for v, m in zip(consts, moving) if m)
            fixed = [v for v, m in zip(consts, moving) if not m]

            def again(moved: tuple[Any, ...], y: tuple[Any, ...]) -> tuple[Any, ...]:
                a, b = iter(moved), iter(fixed)
                return segment(k, tuple(next(a) if m else next(b) for m in moving), y)

            of_consts, of_y = jax.vjp(again, first, y)[1](c[0])
            return of_y, tuple(map(jnp.add, c[1], of_consts))

        ct, total = lax.fori_loop(0, parts, one, (ct, zero))
        found = iter(total)
        return tuple(next(found) if m else None for m in moving), ct

    run.defvjp(forward, backward)
    return run
