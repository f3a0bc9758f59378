"""Loops whose length is known only when they end: the primitive, and its rules.

``while``  x = body(i, consts, x) as long as cond(i, cond_consts, x); gives x and the number of steps.

Snapshots are placed by ``greedy`` on the way out. Once the loop has ended its length is a number,
so its derivatives are ordinary loops of a length known at run time (``primitives.loop_p``), and the
way back is binomial between the snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.tree_util import tree_unflatten

from ..chain.schedule import Schedule
from . import budget, compat, engine, greedy, planner, registry  # noqa: F401
from .batch import batch_dims, place_batch
from .body import as_arrays, empty_tree, trace_body
from .buffers import check_buffers
from .checks import check_while
from .compat import Jaxpr, array_type, aval_of, batched_jaxpr, dual, evaluate, known_part, trace
from .masks import drop, either, merge, parts, pick, settle, spread
from .needs import needed_inputs
from .primitives import LoopPlan, check_effects, check_size, hint_avals, loop_p
from .rules import (
    dual_body,
    has_tangent,
    linear_loop,
    snapshots_of,
    uninstantiated,
    with_tangents,
    zero_tangent,
)
from .simplify import Simplified, index_type, simplify
from .writes import held

while_p = compat.primitive("checkpointed_while")


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    slots: int | None = None,
    memory: float | str | None = None,
    schedule: Schedule | None = None,
    buffers: Callable[[Any], Any] | None = None,
) -> Any:
    """``jax.lax.while_loop`` that can be differentiated in reverse, within a budget, however long it runs.

    Arrays that steps only write to are in no snapshot; ``buffers=lambda carry: carry[2]`` makes sure of it for those
    that it picks.

    >>> import jax, jax.numpy as jnp
    >>> def halve(x): return while_loop(lambda y: y > 1e-3, lambda y: y * jnp.cos(y) / 2, x, slots=5)
    >>> bool(jax.grad(halve)(1.0) != 0)
    True
    """
    if schedule is not None:
        raise ValueError("a while_loop has no known number of steps, so no schedule fits it: give slots or memory")
    asked = budget.Asked(slots, memory)
    if compat.without_jit():
        return lax.while_loop(cond_fun, body_fun, init_val)
    body = trace_body(lambda i, carry, _: (body_fun(carry), None), init_val, [], empty_tree(), "while_loop")
    small = simplify(body.jaxpr, body.consts, body.carry, 0)
    if buffers is not None:
        check_buffers(buffers, init_val, small)
    plan = budget.plan(asked, small.bare(), None)
    assert plan is not None
    final = unbounded(lambda x: as_arrays(cond_fun(tree_unflatten(body.tree, x)))[0], small, plan)
    return tree_unflatten(body.tree, final)


def unbounded(condition: Callable[[list[Any]], list[Any]], small: Simplified, plan: LoopPlan) -> list[Any]:
    """What is carried, flat, at the end of a loop that runs as long as the condition on it holds."""
    cond, cond_consts = _trace_condition(condition, small)
    outs = while_p.bind(
        *cond_consts, *small.consts, *small.carry,
        cond=cond, body=small.body, sizes=(len(cond_consts), len(small.consts), len(small.carry)), plan=plan,
        store=(),
    )  # fmt: skip
    final, (count, *_) = parts(outs, [len(small.carry)])
    return small.final(final, count)


def _trace_condition(condition: Callable[[list[Any]], list[Any]], small: Simplified) -> tuple[Jaxpr, list[Any]]:
    def flat(i: Any, *args: Any) -> list[Any]:
        return condition(small.final(list(args), i))

    jaxpr = trace(flat, [index_type(), *(aval_of(x) for x in small.carry)])
    found = jaxpr.out_avals
    if len(found) != 1 or found[0].shape != () or found[0].dtype != jnp.bool_:
        raise TypeError(
            f"the condition of while_loop must give one boolean scalar, not {', '.join(a.str_short() for a in found)}"
        )
    check_effects(jaxpr.effects, "the condition of while_loop")
    return compat.explicit_consts(jaxpr, after=1)


def _abstract(
    *avals: Any, cond: Jaxpr, body: Jaxpr, sizes: tuple[int, int, int], plan: LoopPlan, store: tuple[bool, ...]
) -> tuple[list[Any], Any]:
    hints = hint_avals(pick(store, body.out_avals), plan, None) if store else []
    return [*body.out_avals, array_type((), "int32"), *hints], cond.effects | body.effects


def _run(
    *args: Any, cond: Jaxpr, body: Jaxpr, sizes: tuple[int, int, int], plan: LoopPlan, store: tuple[bool, ...]
) -> list[Any]:
    """The loop as XLA runs it."""
    cond_consts, consts, carry = parts(args, sizes)[:3]
    test, call = evaluate(cond), evaluate(body)

    def counted(i: Any, x: list[Any]) -> Any:
        """The number of steps done if there are more to do, else its complement, which is negative."""
        number = jnp.where(test(i, *cond_consts, *x)[0], i, -1 - i)
        # Computed once, as in ``engine.count_to``.
        return lax.rem(number, engine.NEVER)

    def ahead(c: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        i, x = c
        x = call(i, *consts, *x)
        return counted(i + 1, x), x

    begin = (counted(jnp.int32(0), carry), carry)
    if not store:
        # A condition that is computed from a number: XLA's command buffers on GPUs may read one that is merely
        # carried before it is written.
        i, x = lax.while_loop(lambda c: c[0] >= 0, ahead, begin)
        return [*x, -1 - i]

    check_size(pick(store, body.out_avals), plan)
    slots = plan.slots
    table = greedy.table(slots)
    listed = len(table) - 1
    rows = jnp.asarray(np.concatenate([table[:1], table]))  # the first is row 1
    turns = listed if listed == greedy.TABLE else len(table)

    def step(number: Any, x: list[Any]) -> list[Any]:
        return call(number - 1, *consts, *x)

    def ahead_alone(c: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        """The condition is apart from the step, which has to give the same bits when it is replayed."""
        i, x = c
        _, x = engine.advance_to(i + 1, step, i, x)
        return counted(i + 1, x), x

    def run_to(stop: Any, inner: tuple[Any, list[Any]]) -> tuple[Any, list[Any]]:
        return lax.while_loop(lambda c: (c[0] >= 0) & (c[0] < stop()), ahead_alone, inner)

    def keep(inner: tuple[Any, list[Any]], buffers: list[Any], positions: Any, slot: Any) -> tuple[Any, ...]:
        i, x = inner
        slot, step = jnp.where(i < 0, slots, slot), jnp.where(i < 0, planner.NOWHERE, i)
        positions = lax.dynamic_update_index_in_dim(positions, step, slot, 0, allow_negative_indices=False)
        return inner, engine.put(buffers, pick(store, x), slot), positions

    def listed_row(c: tuple[Any, ...]) -> tuple[Any, ...]:
        k, inner, buffers, positions = c
        k = lax.rem(k + 1, engine.NEVER)
        (row,) = engine.take([rows], k)
        return k, *keep(run_to(lambda: row[0], inner), buffers, positions, row[1])

    def planned_row(c: tuple[Any, ...]) -> tuple[Any, ...]:
        after, inner, buffers, positions = c
        inner = run_to(lambda: after.next, inner)
        after, slot = greedy.keep(slots, after, inner[0])
        return after, *keep(inner, buffers, positions, slot)

    start = (jnp.int32(0), begin, engine.room(pick(store, carry), slots + 1), planner.empty(slots))
    _, *kept = lax.while_loop(lambda c: (c[1][0] >= 0) & (c[0] < turns), listed_row, start)
    if listed == greedy.TABLE:
        after = greedy.Greedy(*map(jnp.asarray, greedy.after_table(slots)))
        _, *kept = lax.while_loop(lambda c: c[1][0] >= 0, planned_row, (after, *kept))
    (i, x), buffers, positions = kept
    return [*x, -1 - i, greedy.ledger(positions), *buffers]


def _widened(cond: Jaxpr, sizes: tuple[int, int, int], mask: Sequence[bool], types: Sequence[Any]) -> Jaxpr:
    """The condition for a carry with more values at its end, which it does not look at."""
    call = evaluate(cond)
    keep = len(cond.in_avals)
    return trace(lambda *args: call(*args[:keep]), [*cond.in_avals, *types])


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    cond, body, sizes, store = params["cond"], params["body"], params["sizes"], params["store"]
    cond_consts, consts, carry, _ = parts(primals, sizes)
    _, dc, dz, _ = parts(tangents, sizes)
    mc = has_tangent(dc)
    _, mz, _ = settle(has_tangent(dz), lambda mz: dual(body, [False, *mc, *mz], mz))
    made = dual_body(body, [mc, mz], [mz])
    moving = [a.to_tangent_aval() for a in pick(mz, body.out_avals)]
    outs = while_p.bind(
        *cond_consts, *with_tangents(consts, dc, mc), *with_tangents(carry, dz, mz),
        **{
            **params, "cond": _widened(cond, sizes, mz, moving), "body": made,
            "sizes": (sizes[0], sizes[1] + sum(mc), sizes[2] + sum(mz)),
            "store": (*store, *pick(mz, store)) if store else (),
        },
    )  # fmt: skip
    x, dx, count, hints = parts(outs, [sizes[2], sum(mz), 1])
    values, dots = [*x, *count], [*spread(mz, dx, lambda k: zero_tangent(x[k])), zero_tangent(count[0])]
    if store:
        ledger, kept, moved = parts(hints, [1, sum(store)])
        values += [*ledger, *kept]
        dots += [zero_tangent(ledger[0]), *spread(pick(store, mz), moved, lambda k: zero_tangent(kept[k]))]
    return values, dots


def _unknown(unknown: Sequence[bool], params: dict[str, Any]) -> tuple[Any, Any, list[bool], list[bool], bool]:
    """Known body and condition, masks of unknown consts and carry, and whether nothing can be known."""
    cond, body, sizes = params["cond"], params["body"], params["sizes"]
    uk, uc, uz, _ = parts(unknown, sizes)
    known, uz, _ = settle(uz, lambda uz: known_part(body, [False, *uc, *uz], uz))
    needed = compat.used_inputs(cond, [True])
    lost = any(n and u for n, u in zip(needed, [False, *uk, *uz]))
    if lost:
        return None, None, uc, uz, True
    call = evaluate(cond)
    fixed, states = parts(cond.in_avals, [1 + sizes[0]])

    def condition(*args: Any) -> list[Any]:
        k, z = parts(args, [len(fixed)])
        filled = merge(uz, z, [compat.zeros(a) for a in pick(uz, states)])
        return call(*k, *filled)

    return known, trace(condition, [*fixed, *drop(uz, states)]), uc, uz, False


def _split(trace_: Any, *tracers: Any, **params: Any) -> list[Any]:
    sizes = params["sizes"]
    unknown = [not compat.is_known(t) for t in tracers]
    if not any(unknown):
        return compat.stage_unknown(trace_, while_p, tracers, params)
    known, cond, uc, uz, lost = _unknown(unknown, params)
    if lost:
        return compat.stage_unknown(trace_, while_p, tracers, params)
    cond_consts, consts, carry, _ = parts(tracers, sizes)
    values = [compat.known_value(t) for t in [*cond_consts, *drop(uc, consts), *drop(uz, carry)]]
    asked = params["store"]
    same = {
        "body": params["body"], "sizes": (sizes[1], sizes[2], 0), "length": None, "plan": params["plan"],
        "store": asked, "flip": False,
    }  # fmt: skip
    linear, (nc, nz, _), hinted = linear_loop(same, uz, [])
    store = snapshots_of(uz, nz, asked)
    made = {
        **params, "cond": cond, "body": known, "store": store,
        "sizes": (sizes[0], len(uc) - sum(uc), len(uz) - sum(uz)),
    }  # fmt: skip
    outs = compat.bind_known(trace_, while_p, values, made)
    x, count, hints = parts(outs, [len(uz) - sum(uz), 1])
    held = dict(zip(pick(store, [k for k, u in enumerate(uz) if not u]), hints[1:])) if store else {}
    given = [hints[0], *(held[k] for k, n in enumerate(nz) if n and not uz[k])] if hinted else []
    staged = [*(compat.as_known(trace_, c) for c in count), *pick(nc, consts), *pick(nz, carry)]
    staged += [compat.as_known(trace_, h) for h in given]
    lx, lhints = parts(compat.stage_unknown(trace_, loop_p, staged, {**linear, "hinted": hinted}), [sum(nz)])
    result = [*merge(uz, x, pick(pick(nz, uz), lx)), *count]
    if asked:
        moved = dict(zip([k for k, s in enumerate(asked) if s and uz[k]], lhints[1:]))
        ledger = hints[:1] if store else lhints[:1]
        result += [*ledger, *(moved[k] if uz[k] else held[k] for k, s in enumerate(asked) if s)]
    return [compat.as_known(trace_, r) for r in result]


def _split_equation(saveable: Any, unknown: Sequence[bool], instantiated: Sequence[bool], eqn: Any) -> Any:
    params = eqn.params
    sizes = params["sizes"]
    known, cond, uc, uz, lost = _unknown(unknown, params)
    more = uninstantiated(eqn, instantiated)
    if lost:
        every = [True] * len(eqn.outvars)
        return None, eqn, every, every, more
    cond_consts, consts, carry, _ = parts(eqn.invars, sizes)
    asked = params["store"]
    store = snapshots_of(uz, [False] * len(uz), asked)
    unknown_out = [*uz, False] + ([not store, *pick(asked, uz)] if asked else [])
    made = {
        **params, "cond": cond, "body": known, "store": store,
        "sizes": (sizes[0], len(uc) - sum(uc), len(uz) - sum(uz)),
    }  # fmt: skip
    inputs = [*cond_consts, *drop(uc, consts), *drop(uz, carry)]
    known_eqn = compat.new_equation(eqn, inputs, drop(unknown_out, eqn.outvars), made)
    return known_eqn, eqn, unknown_out, [True] * len(eqn.outvars), more


def _transpose(*_: Any, **__: Any) -> Any:
    raise ValueError(
        "a while_loop whose condition depends on the value that is being transposed has no transpose: "
        "differentiate the function that holds the loop instead"
    )


def _batch(axis: Any, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[list[Any], list[Any]]:
    cond, body, sizes, store = params["cond"], params["body"], params["sizes"], params["store"]
    cond_consts, consts, carry, _ = parts(args, sizes)
    dk, dc, dz, _ = parts(dims, sizes)
    bk, bc, bz = ([d is not None for d in group] for group in (dk, dc, dz))
    made, bz, _ = settle(bz, lambda bz: batched_jaxpr(body, axis, [False, *bc, *bz], bz))
    tested, out = batched_jaxpr(cond, axis, [False, *bk, *bz], [False])
    k, c = place_batch(cond_consts, dk, bk, axis, 0), place_batch(consts, dc, bc, axis, 0)
    if not out[0]:
        outs = while_p.bind(*k, *c, *place_batch(carry, dz, bz, axis, 0), **{**params, "cond": tested, "body": made})
        return outs, batch_dims(bz, 0) + [None] + ([None, *batch_dims(pick(store, bz), 1)] if store else [])
    every = [True] * len(bz)
    kept = held(body, 1 + len(bc), len(bz))
    made, _ = batched_jaxpr(kept, axis, [True, False, *bc, *every], every)
    tested, _ = batched_jaxpr(cond, axis, [False, *bk, *every], [True])
    lanes = compat.stacked(array_type((), "int32"), axis.size)
    call, test = evaluate(made), evaluate(tested)

    def step(i: Any, *values: Any) -> list[Any]:
        k, c, done, x = parts(values, [len(k_types), len(bc), 1])
        alive = test(i, *k, *x)[0]
        return [done[0] + alive, *call(alive, i, *c, *x)]

    def condition(i: Any, *values: Any) -> list[Any]:
        k, _, x = parts(values, [len(k_types), 1])
        return [jnp.any(test(i, *k, *x)[0])]

    k_types, x_types = tested.in_avals[1 : 1 + len(bk)], made.out_avals
    c_types = made.in_avals[2 : 2 + len(bc)]
    index = made.in_avals[1]
    outs = while_p.bind(
        *k, *k, *c, jnp.zeros(axis.size, jnp.int32), *place_batch(carry, dz, every, axis, 0),
        cond=trace(condition, [index, *k_types, lanes, *x_types]),
        body=trace(step, [index, *k_types, *c_types, lanes, *x_types]),
        sizes=(len(bk), len(bk) + len(bc), 1 + len(bz)), plan=params["plan"],
        store=(False, *store) if store else (),
    )  # fmt: skip
    done, x, _, hints = parts(outs, [1, len(bz), 1])
    out_dims = batch_dims([True] * (len(bz) + 1), 0)
    result = [*x, done[0]]
    if store:
        ledger, kept = parts(hints, [1])
        result += [*ledger, *kept]
        out_dims = [*out_dims, None, *[1] * len(kept)]
    return result, out_dims


def _prune(used: Sequence[bool], eqn: Any) -> tuple[list[bool], Any]:
    """Drop carried values and snapshots that nothing depends on."""
    if not any(used) and not compat.has_effects(eqn):
        return [False] * len(eqn.invars), None
    cond, body, sizes, asked = (eqn.params[name] for name in ("cond", "body", "sizes", "store"))
    uz, _, _, uh = parts(used, [sizes[2], 1, 1 if asked else 0])
    store = tuple(spread(asked, uh, lambda k: False)) if any(uh) else ()
    tested = compat.used_inputs(cond, [True])
    _, uk, cz = parts(tested, [1, sizes[0]])
    uc, uz, _ = needed_inputs(body, sizes[1:], either(either(uz, cz), store or [False] * len(uz)), [])
    made = {
        **eqn.params, "cond": compat.prune(cond, [True], [True, *uk, *uz]),
        "body": compat.prune(body, uz, [True, *uc, *uz]), "sizes": (sum(uk), sum(uc), sum(uz)),
        "store": tuple(pick(uz, store)) if store else (),
    }  # fmt: skip
    kept = [*uz, True, *([True, *pick(asked, store)] if store else [])]
    kept += [False] * (len(eqn.outvars) - len(kept))
    used_in = [*uk, *uc, *uz]
    return used_in, compat.new_equation(eqn, pick(used_in, eqn.invars), pick(kept, eqn.outvars), made)


compat.register(
    while_p,
    run=_run,
    abstract=_abstract,
    jvp=_jvp,
    transpose=_transpose,
    split=_split,
    split_equation=_split_equation,
    batch=_batch,
    prune=_prune,
    check=check_while,
)
