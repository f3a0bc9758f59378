"""A function and its gradient as one list of equations, in which each says whether it belongs to the way back.

Calls are inlined, as XLA does it, so that what is inside of them can be planned. Loops, branches and functions that
are placed on devices by name stay one equation each. What depends on a cotangent belongs to the way back; all else
can be made at any time, any number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from .. import compat
from ..masks import drop, merge, parts, pick

_INLINED = ("jit", "pjit", "closed_call", "core_call")


@dataclass(frozen=True)
class Joint:
    """Equations over ``invars``: first the arguments, then a cotangent for each differentiated result.

    ``results`` are those of the function, ``gradients`` those of its moving arguments.
    """

    equations: tuple[Any, ...]
    backward: tuple[bool, ...]
    arguments: tuple[Any, ...]
    cotangents: tuple[Any, ...]
    results: tuple[Any, ...]
    gradients: tuple[Any, ...]
    constants: tuple[tuple[Any, Any], ...]


def joint(jaxpr: Any, moving: Sequence[bool], smooth: Sequence[bool]) -> Joint:
    """The joint program of a closed jaxpr: which arguments move, and which results have a cotangent."""
    call = compat.evaluate(jaxpr)
    count = len(jaxpr.in_avals)

    def both(*given: Any) -> list[Any]:
        args, seeds = parts(given, [count])
        fixed = drop(moving, args)

        def apart(*moved: Any) -> tuple[list[Any], list[Any]]:
            outs = call(*merge(moving, fixed, moved))
            return pick(smooth, outs), drop(smooth, outs)

        first, pull, rest = jax.vjp(apart, *pick(moving, args), has_aux=True)
        return [*merge(smooth, rest, first), *pull(list(seeds))]

    types = [*jaxpr.in_avals, *pick(smooth, jaxpr.out_avals)]
    made = _inlined(compat.trace(both, types))
    inner = made.jaxpr
    arguments, cotangents = parts(inner.invars, [count])
    results, gradients = parts(inner.outvars, [len(jaxpr.out_avals)])
    late = set(cotangents)
    backward = []
    for eqn in inner.eqns:
        back = any(compat.is_variable(v) and v in late for v in eqn.invars)
        late |= set(eqn.outvars) if back else set()
        backward.append(back)
    return Joint(
        tuple(inner.eqns), tuple(backward), tuple(arguments), tuple(cotangents), tuple(results), tuple(gradients),
        tuple(zip(inner.constvars, made.consts)),
    )  # fmt: skip


def _inlined(jaxpr: Any) -> Any:
    """The jaxpr with the bodies of its calls in their place, and without what no result needs."""

    def run(inner: Any, args: Sequence[Any]) -> list[Any]:
        env = dict(zip(inner.jaxpr.constvars, inner.consts)) | dict(zip(inner.jaxpr.invars, args))

        def read(atom: Any) -> Any:
            return env[atom] if compat.is_variable(atom) else atom.val

        for eqn in inner.jaxpr.eqns:
            values = [read(v) for v in eqn.invars]
            body = _body(eqn)
            made = compat.bind_equation(eqn, values) if body is None else run(compat.close(body), values)
            env.update(zip(eqn.outvars, made))
        return [read(v) for v in inner.jaxpr.outvars]

    made = compat.trace(lambda *args: run(jaxpr, args), jaxpr.in_avals)
    return compat.prune_outputs(made, [True] * len(made.out_avals))


def _body(eqn: Any) -> Any:
    """What a call runs, unless it says where."""
    if eqn.primitive.name not in _INLINED:
        return None
    places = (*eqn.params.get("in_shardings", ()), *eqn.params.get("out_shardings", ()))
    if any(hasattr(place, "device_set") for place in places):
        return None
    return eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
