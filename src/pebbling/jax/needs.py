"""Which values carried by a loop its way back needs: those alone go into snapshots.

The way back reads the states of steps where the derivative of a step depends on them. An array that
steps only write to, as a list of results is filled, ``ys.at[i].set(y)``, is not among them, whatever
is written and wherever: its derivative is a write of tangents to the same places. So it takes no room
in snapshots, and no step of the way back sees it. A value that such a step reads of it, or an index
that it comes from, is found by the same rule: what the wanted outputs are made from, over one step
and then over as many as change the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from . import compat
from .compat import Jaxpr, dual
from .masks import parts, settle


def needed_inputs(
    body: Jaxpr, sizes: Sequence[int], carry: Sequence[bool], rest: Sequence[bool]
) -> tuple[list[bool], list[bool], list[bool]]:
    """What of (consts, carry, the inputs after them) a loop needs for some of its carried values and other outputs."""

    def grow(mask: list[bool]) -> tuple[list[bool], list[bool]]:
        needed = compat.used_inputs(body, [*mask, *rest])
        return needed, parts(needed, [1 + sizes[0], sizes[1]])[1]

    needed, mask, _ = settle(carry, grow)
    _, consts, _, xs = parts(needed, [1, *sizes[:2]])
    return consts, mask, xs


def in_snapshots(body: Jaxpr, sizes: Sequence[int]) -> list[bool]:
    """Which carried values a gradient with respect to all that is of floating point keeps in snapshots."""
    moving = [bool(jnp.issubdtype(a.dtype, np.inexact)) for a in body.in_avals]
    _, mc, mz, mx = parts(moving, [1, *sizes[:2]])
    rest = [False] * (len(body.out_avals) - sizes[1])
    made, mz, my = settle(mz, lambda mz: dual(body, [False, *mc, *mz, *mx], [*mz, *rest]))
    values = len(body.out_avals)
    needed = compat.used_inputs(made, [k >= values for k in range(values + sum(mz) + sum(my))])
    return needed_inputs(body, sizes, parts(needed, [1, *sizes[:2]])[2], rest)[1]
