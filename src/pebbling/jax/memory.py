"""``memory=``: the plan whose gradient XLA fits into so many bytes.

XLA is asked, not guessed: the gradient of the loop is compiled once with the fewest slots, and its
temporary memory, with one state for every further slot, is what any number of slots takes. Where
the gradient of plain ``scan`` fits, that is the plan. What is counted is XLA's temporary memory of
the loop's own gradient, the loop's result and its cotangent included; the shapes are those traced,
so that under ``jax.vmap`` the budget is for one member, and on sharded arrays for an unsharded one.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import BudgetError
from ..units import format_bytes, parse_bytes
from . import compat
from .body import Body
from .compat import ShapeDtypeStruct
from .masks import pick
from .needs import in_snapshots
from .primitives import Plan, loop_p, run_loop

_MOST_ONLINE = 512


def plan_memory(memory: float | str, body: Body, xs: list[Any], steps: int | None) -> Plan | None:
    """The plan with the most slots that stays within ``memory``, or ``None`` for plain ``scan``."""
    limit = parse_bytes(memory)
    if steps is not None and gradient_bytes(body, xs, steps, None) <= limit:
        return None
    kept = in_snapshots(body.jaxpr, (len(body.consts), len(body.carry)))
    state = sum(compat.nbytes(compat.aval_of(x)) for x in pick(kept, body.carry))
    least = gradient_bytes(body, xs, steps, Plan(1))
    if least > limit:
        raise BudgetError(
            f"memory={memory!r} is {format_bytes(limit)}, and the gradient of this loop takes at least "
            f"{format_bytes(least)} ({least} bytes), with one snapshot: a state is {format_bytes(state)}",
            minimum=least,
        )
    slots = 1 + (limit - least) // max(state, 1)
    if steps is not None:
        return Plan(min(slots, max(1, steps - 1)))
    slots = min(slots, _MOST_ONLINE)
    while slots > 1 and (over := gradient_bytes(body, xs, None, Plan(slots)) - limit) > 0:
        slots = max(1, slots - 1 - over // max(state, 1))  # the control of very many slots takes room as well
    return Plan(slots)


def gradient_bytes(body: Body, xs: list[Any], steps: int | None, plan: Plan | None) -> int:
    """XLA's temporary memory for the gradient of the loop; ``None`` stands for plain ``scan``."""
    values = [*body.consts, *body.carry, *xs]
    sizes = (len(body.consts), len(body.carry), len(xs))
    fixed: dict[str, Any] = {
        "body": body.jaxpr, "sizes": sizes, "length": steps, "plan": plan, "store": (), "flip": False, "hinted": None
    }  # fmt: skip
    smooth = [jnp.issubdtype(compat.aval_of(v).dtype, np.inexact) for v in values]

    def loss(moving: list[Any], still: list[Any], count: list[Any]) -> Any:
        first, second = iter(still), iter(moving)
        args = [*count, *(next(second) if s else next(first) for s in smooth)]
        outs = loop_p.bind(*args, **fixed) if plan else run_loop(*args, **fixed)
        return sum(jnp.sum(jnp.abs(o) ** 2) for o in outs if jnp.issubdtype(o.dtype, np.inexact))

    def types(wanted: bool) -> list[Any]:
        return [compat.shape_of(compat.aval_of(v)) for v, s in zip(values, smooth) if s is wanted]

    count = [ShapeDtypeStruct((), jnp.int32)] if steps is None else []
    if not any(smooth):
        return 0
    with compat.fresh_trace():
        made = jax.jit(jax.grad(loss)).lower(types(True), types(False), count).compile()
    found = made.memory_analysis()
    return int(found.temp_size_in_bytes) if found is not None else 0
