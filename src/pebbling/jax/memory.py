"""``memory=`` on a single loop: the plan whose gradient XLA fits into so many bytes.

What is counted is XLA's temporary memory of the loop with the derivatives and batches that are seen around it, its
result and the cotangent of that included. What the rest of the program takes is not: ``pebbling.jax.jit`` and
``checkpoint_loops`` take a budget for all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from . import compat
from .body import Body
from .primitives import LoopPlan, loop_p, run_loop
from .program import fit, temporary_bytes
from .sites import Site
from .surroundings import seen


def plan_memory(
    memory: float | str, body: Body, xs: Sequence[Any], steps: int | None, count: Sequence[Any], site: Site
) -> LoopPlan | None:
    """The plan with the most slots that stays within ``memory``, or ``None`` for plain ``scan``."""
    make = partial(_traced, body, xs, steps, count)
    return fit(
        lambda division: make(division.plan(site)), memory, f"the gradient of the loop at {site}", part=True
    ).plan(site)


def gradient_bytes(body: Body, xs: Sequence[Any], steps: int | None, plan: LoopPlan | None) -> int:
    """XLA's temporary memory for the gradient of the loop; ``None`` stands for plain ``scan``."""
    return temporary_bytes(_traced(body, xs, steps, [], plan))


def _traced(body: Body, xs: Sequence[Any], steps: int | None, count: Sequence[Any], plan: LoopPlan | None) -> Any:
    """The loop with the derivatives and batches around it."""
    count = count if steps is not None or count else [jnp.int32(0)]
    values = [*count, *body.consts, *body.carry, *xs]
    fixed: dict[str, Any] = {
        "body": body.jaxpr, "sizes": (len(body.consts), len(body.carry), len(xs)), "length": steps, "plan": plan,
        "store": (), "flip": False, "hinted": None,
    }  # fmt: skip
    around = seen(values)
    run = around.program(lambda *args: loop_p.bind(*args, **fixed) if plan else run_loop(*args, **fixed))
    with compat.fresh_trace():
        return jax.jit(run).trace(*map(compat.shape_of, around.avals))
