"""A function and its gradient by a plan, as JAX calls them, and what XLA takes for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import CaptureError
from ...graph import GraphPlan, solve
from .. import compat
from ..masks import pick
from ..surroundings import Surroundings
from . import gates
from .emit import Emitted
from .operations import Grouping

_LITTLE = 0.02
"""Replays of so small a share of the peak go together with those before them."""
_SINCE = "since the function"  # no storage is called so


class Derivative:
    """The way there and back; without steps, everything is kept."""

    def __init__(
        self, grouping: Grouping, plan: GraphPlan | None, moving: list[bool], smooth: list[bool], platform: str
    ) -> None:
        plan = solve(grouping.graph, None) if plan is None else plan
        self._emitted = Emitted(grouping, plan.steps, _LITTLE * plan.peak, platform)
        self.moving, self.smooth = moving, smooth

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The results, and what is kept."""
        outs, kept = self._emitted.forward(values)
        first = next((o for o, s in zip(outs, self.smooth) if s and gates.has_bits(compat.aval_of(o))), None)
        return outs, kept | {_SINCE: jnp.int32(0) if first is None else gates.bits(first)}

    def backward(self, values: Sequence[Any], kept: dict[str, Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients, ``None`` for what does not move."""
        seeds = []
        for smooth, cotangent in zip(self.smooth, cotangents, strict=True):
            zero = isinstance(cotangent, jax.custom_derivatives.SymbolicZero)
            if smooth:
                seeds.append(jnp.zeros(cotangent.shape, cotangent.dtype) if zero else cotangent)
            elif not zero and jnp.issubdtype(cotangent.dtype, np.inexact):
                raise CaptureError(
                    "a fitted function whose first result is a scalar is differentiated by that result alone; here "
                    "another of its results is differentiated: return the loss alone, or fit a function of the rest"
                )
        rest = {name: value for name, value in kept.items() if name != _SINCE}
        found = iter(self._emitted.backward(values, rest, seeds, kept[_SINCE]))
        return tuple(next(found) if moves else None for moves in self.moving)


@jax.tree_util.register_pytree_node_class
class Residuals:
    """What goes from the way there to the way back."""

    def __init__(self, derivative: Derivative, values: Any, kept: Any) -> None:
        self.derivative, self.values, self.kept = derivative, values, kept

    def tree_flatten(self) -> tuple[Any, Any]:
        """The arrays, and the derivative that they belong to."""
        return (self.values, self.kept), self.derivative

    @classmethod
    def tree_unflatten(cls, derivative: Any, values: Any) -> Residuals:
        """The inverse."""
        return cls(derivative, *values)


def measured(derivative: Derivative, surroundings: Surroundings) -> int:
    """What XLA takes for a gradient besides arguments: temporary memory, results and gradients."""

    def gradient(*values: Any) -> list[Any]:
        outs, kept = derivative.forward(values)
        seeds = [
            jnp.ones_like(o) if smooth else jax.custom_derivatives.SymbolicZero(compat.aval_of(o))
            for o, smooth in zip(outs, derivative.smooth)
        ]
        return [*outs, *pick(derivative.moving, derivative.backward(values, kept, seeds))]

    with compat.fresh_trace():
        traced = jax.jit(surroundings.program(gradient)).trace(*map(compat.shape_of, surroundings.avals))
    # What LLVM does to the code of a CPU has no influence on the buffers.
    options = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    found = traced.lower().compile(compiler_options=options).memory_analysis()
    taken = int(found.temp_size_in_bytes + found.output_size_in_bytes) if found is not None else 0
    # Buffers are packed a little otherwise in the program that the gradient becomes part of.
    return taken + taken // 256 + 512
