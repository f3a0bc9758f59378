"""The primitives under ``checkify``: an error inside a step is an error of the whole.

``checkify`` gives every operation the errors so far and takes them back, with those that the operation
adds. A loop carries them: a few numbers that no derivative flows through, so they are in no snapshot.

On the way back, the replayed steps are checked where they are reversed, together with the derivative:
each of them is evaluated once more for that, under ``checkify`` only, and only if it can fail at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.tree_util import tree_flatten, tree_unflatten

from . import compat
from .compat import Enabled, Jaxpr, evaluate, trace
from .masks import parts
from .primitives import counted, loop_p, reverse_p


class Checked:
    """A jaxpr that takes the errors so far before its inputs, and gives them before its outputs."""

    def __init__(self, jaxpr: Jaxpr, enabled: Enabled, error: Any) -> None:
        self.jaxpr = jaxpr
        self.error = compat.with_room_for(error, self._made(error, enabled.aside())[2])
        values, _ = tree_flatten(self.error)
        self.values = [jnp.asarray(v) for v in values]
        self.number = len(values)
        self.made, self.tree, _ = self._made(self.error, enabled)

    def _made(self, error: Any, enabled: Enabled) -> Any:
        values, tree = tree_flatten(error)
        return compat.checked(self.jaxpr, enabled, tree, [compat.aval_of(v) for v in values])

    def body(self, before: int, outputs: int) -> Jaxpr:
        """With the errors as the inputs after the first ``before`` ones, and only so many of the outputs after them."""
        call, number = evaluate(self.made), self.number

        def moved(*args: Any) -> list[Any]:
            first, errors, rest = parts(args, [before, number])
            return call(*errors, *first, *rest)[: number + outputs]

        types = self.jaxpr.in_avals
        return trace(moved, [*types[:before], *map(compat.aval_of, self.values), *types[before:]])

    def result(self, outs: Sequence[Any]) -> Any:
        """The errors in what comes out."""
        rest = len(self.jaxpr.out_avals)
        return tree_unflatten(self.tree, [*outs[: self.number], *[None] * rest])[0]


def followed_by(first: Jaxpr, other: Callable[..., list[Any]]) -> Jaxpr:
    """The jaxpr, with what else is evaluated on its inputs as further outputs."""
    call = evaluate(first)
    return trace(lambda *args: [*call(*args), *other(args)], first.in_avals)


def unchecked(jaxpr: Jaxpr, enabled: Enabled, error: Any) -> Jaxpr:
    """The jaxpr without the checks in it, which are made elsewhere."""
    if not jaxpr.effects:
        return jaxpr
    return trace(lambda *args: compat.check(jaxpr, enabled.aside(), error, *args)[1], jaxpr.in_avals)


def check_loop(error: Any, enabled: Enabled, *args: Any, **params: Any) -> tuple[Any, list[Any]]:
    body, sizes = params["body"], params["sizes"]
    count, consts, carry, xs, _ = parts(args, [counted(params["length"]), *sizes])
    checked = Checked(body, enabled, error)
    number, store = checked.number, params["store"]
    made = {
        "body": checked.body(1 + sizes[0], len(body.out_avals)), "sizes": (sizes[0], number + sizes[1], sizes[2]),
        "store": (*[False] * number, *store) if store else (), "hinted": None,
    }  # fmt: skip
    outs = loop_p.bind(*count, *consts, *checked.values, *carry, *xs, **{**params, **made})
    return checked.result(outs), outs[number:]


def check_reverse(error: Any, enabled: Enabled, *args: Any, **params: Any) -> tuple[Any, list[Any]]:
    back, step, sizes = params["back"], params["step"], params["sizes"]
    first, given = counted(params["length"]), len(back.out_avals)
    before, (carried, us) = args[: first + sum(sizes[:4])], parts(args[first + sum(sizes[:4]) :], [sizes[4]])
    replay = evaluate(step)
    if compat.can_fail(step, enabled):
        back = followed_by(back, lambda inputs: replay(*inputs[: len(step.in_avals)]))
    checked = Checked(back, enabled, error)
    made = {
        "step": unchecked(step, enabled, error),
        "back": checked.body(1 + sum(sizes[:3]), given), "sizes": (*sizes[:4], checked.number + sizes[4], sizes[5]),
    }  # fmt: skip
    outs = reverse_p.bind(*before, *checked.values, *carried, *us, **{**params, **made})
    return checked.result(outs), outs[checked.number :]


def check_while(error: Any, enabled: Enabled, *args: Any, **params: Any) -> tuple[Any, list[Any]]:
    from .online import while_p

    cond, body, sizes, store = (params[name] for name in ("cond", "body", "sizes", "store"))
    cond_consts, consts, carry, _ = parts(args, sizes)
    error, _ = compat.check(cond, enabled, error, jnp.int32(0), *cond_consts, *carry)
    test = evaluate(cond)
    call = evaluate(body)

    def with_condition(i: Any, *values: Any) -> list[Any]:
        """The step, and the condition that comes after it."""
        k, c, x = parts(values, sizes[:2])
        new = call(i, *c, *x)
        return [*new, *test(i + 1, *k, *new)]

    index, *types = body.in_avals
    cond_types = cond.in_avals[1 : 1 + sizes[0]]
    both = trace(with_condition, [index, *cond_types, *types])
    checked = Checked(both, enabled, error)
    number = checked.number

    bare = evaluate(unchecked(cond, enabled, error))

    def again(i: Any, *values: Any) -> list[Any]:
        k, _, x = parts(values, [sizes[0], number])
        return bare(i, *k, *x)

    errors = [compat.aval_of(v) for v in checked.values]
    made = {
        "cond": trace(again, [index, *cond_types, *errors, *body.out_avals]),
        "body": checked.body(1 + sizes[0] + sizes[1], sizes[2]),
        "sizes": (sizes[0], sizes[0] + sizes[1], number + sizes[2]),
        "store": (*[False] * number, *store) if store else (),
    }
    outs = while_p.bind(*cond_consts, *cond_consts, *consts, *checked.values, *carry, **{**params, **made})
    return checked.result(outs), outs[number:]
