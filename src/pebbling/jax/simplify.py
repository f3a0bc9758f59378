"""What a loop need not carry: values that it never changes, and counters that grow by a constant.

Both are functions of the index, so they take no room in snapshots; ``fori_loop`` inside a traced
function, for one, carries its index and its upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from .body import Body
from .compat import Jaxpr, array_type, aval_of, evaluate, trace
from .masks import drop, parts, pick


@dataclass(frozen=True)
class Simplified:
    """A loop body without what it need not carry, and how to put back the final values."""

    body: Jaxpr
    consts: list[Any]
    carry: list[Any]
    fixed: list[bool]  # which of the carried values are gone
    steps_of: list[Any]  # by how much each of those grows a step (0: never changes)
    starts: list[Any]

    def bare(self) -> Body:
        """The step and what it starts from, without the structures of the user's values."""
        return Body(self.body, self.consts, self.carry, None, None)

    def final(self, carry: list[Any], count: Any) -> list[Any]:
        """All final values, those that were left out included."""
        rest, gone = iter(carry), iter(zip(self.starts, self.steps_of))
        return [_grown(*next(gone), count) if f else next(rest) for f in self.fixed]


def simplify(body: Jaxpr, consts: list[Any], carry: list[Any], scanned: int) -> Simplified:
    """Take invariants and counters out of the carry of (index, consts, carry, x) → (carry, y)."""
    growth = [growth_of(body, 1 + len(consts) + k, k) for k in range(len(carry))]
    fixed = [g is not None for g in growth]
    if carry and all(fixed):  # a loop that carries something carries it to its end
        fixed[-1] = False
    if not any(fixed):
        return Simplified(body, consts, carry, fixed, [], [])
    steps_of, starts = pick(fixed, growth), pick(fixed, carry)
    call = evaluate(body)

    def smaller(i: Any, *args: Any) -> list[Any]:
        kept, begun, moving, xs = parts(args, [len(consts), len(starts), len(carry) - len(starts)])
        gone, rest = iter([_grown(s, g, i) for s, g in zip(begun, steps_of)]), iter(moving)
        full = [next(gone) if f else next(rest) for f in fixed]
        new, ys = parts(call(i, *kept, *full, *xs), [len(carry)])
        return [*drop(fixed, new), *ys]

    index, *types = body.in_avals
    kept, states, xs = parts(types, [len(consts), len(carry)])
    made = trace(smaller, [index, *kept, *map(aval_of, starts), *drop(fixed, states), *xs])
    return Simplified(made, [*consts, *starts], drop(fixed, carry), fixed, steps_of, starts)


def without_loop(body: Jaxpr, consts: list[Any], carry: list[Any], count: Any) -> list[Any] | None:
    """The final values of a loop that carries only invariants and counters; ``None`` if it does anything else."""
    growth = [growth_of(body, 1 + len(consts) + k, k) for k in range(len(carry))]
    if not carry or len(body.out_avals) > len(carry) or body.effects or None in growth:
        return None
    return [_grown(start, by, count) for start, by in zip(carry, growth)]


def growth_of(body: Jaxpr, position: int, output: int) -> Any:
    """By how much a carried value grows in a step, if by a constant; 0 if it never changes; else ``None``."""
    inner = body.jaxpr
    before, after = inner.invars[position], inner.outvars[output]
    if after is before:
        return 0
    kind = before.aval
    if getattr(kind, "shape", None) != () or not jnp.issubdtype(kind.dtype, np.integer):
        return None
    for eqn in inner.eqns:
        if after in eqn.outvars and eqn.primitive.name == "add":
            literals = [v for v in eqn.invars if hasattr(v, "val")]
            if before in [v for v in eqn.invars if not hasattr(v, "val")] and len(literals) == 1:
                return int(literals[0].val)
    return None


def _grown(start: Any, growth: int, count: Any) -> Any:
    if not isinstance(growth, int) or growth == 0:
        return start
    kind = aval_of(start).dtype
    return start + lax.convert_element_type(count, kind) * np.array(growth, kind)


def index_type() -> Any:
    """The type of the index that bodies are given."""
    return array_type((), "int32")
