"""``fit``: any function, with a gradient that stays within a budget of bytes.

When the function is differentiated, it is traced together with its gradient (``joint``), the operations of both
become a graph (``operations``), a plan is chosen that XLA was seen to keep within the budget (``choose``), and the
derivative follows that plan (``emit``, ``gates``). Where nothing is differentiated, the function runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import tree_flatten, tree_unflatten

from ...errors import CaptureError
from ...graph import GraphPlan
from ...units import parse_bytes
from .. import compat
from ..division import floating
from ..masks import drop, merge, pick
from ..surroundings import around
from .choose import Candidates
from .derivative import Derivative, Residuals, measured
from .joint import joint
from .operations import Grouping
from .plan import Deviation, FunctionPlan

_CHOICES: dict[Any, Candidates] = {}
"""What was planned and measured, for each graph."""


def fit(f: Callable[..., Any], memory: float | str | None = None, *, time_limit: float = 10.0) -> PlannedFunction:
    """The same function, whose compiled gradient takes at most ``memory`` besides its arguments.

    ``memory`` is in bytes, or text such as "8GB"; None sets no limit. What counts is XLA's own figure: temporary
    memory, and the results and gradients, which a step of an optimizer holds as temporaries. Wrap the loss, then
    differentiate it in whatever way: ``jax.jit(jax.value_and_grad(fit(loss, memory="8GB")))``. The plan is made when
    the gradient is traced, in at most six compilations; ``time_limit`` bounds each search, in seconds. Too
    small a budget is a ``BudgetError`` that names the smallest.

    If the first result is a scalar, it is what may be differentiated, and all others are auxiliary; else every
    result of floating point is. ``.plan`` is the last plan made, None before; ``.verify(*args)`` compares the gradient
    with the plain one.

    >>> import jax, jax.numpy as jnp
    >>> def loss(w, x):
    ...     for _ in range(8):
    ...         x = jnp.tanh(x @ w)
    ...     return jnp.sum(x)
    >>> fitted = fit(loss, memory="700kB")
    >>> w, x = jnp.eye(32), jnp.ones((1024, 32))
    >>> program = jax.jit(jax.grad(fitted)).lower(w, x).compile()
    >>> program.memory_analysis().temp_size_in_bytes <= 700_000 < fitted.plan.plain
    True
    """
    if not callable(f):
        raise TypeError(f"fit takes a function, not {type(f).__name__}")
    if isinstance(time_limit, bool) or not isinstance(time_limit, int | float) or not time_limit > 0:
        raise ValueError(f"time_limit={time_limit!r}: expected a number of seconds above 0")
    return PlannedFunction(f, memory, float(time_limit))


class PlannedFunction:
    """A function whose gradient follows a plan; made by ``fit``."""

    plan: FunctionPlan | None
    """The plan that was made last; None before the first."""

    def __init__(self, f: Callable[..., Any], memory: float | str | None, time_limit: float) -> None:
        update_wrapper(self, f, updated=())
        self._function, self._memory, self._time_limit = f, memory, time_limit
        self._limit = None if memory is None else parse_bytes(memory)
        self.plan = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if compat.without_jit():
            return self._function(*args, **kwargs)
        leaves, tree = tree_flatten((args, kwargs))
        dynamic = [isinstance(x, jax.Array | np.ndarray | np.generic | bool | int | float | complex) for x in leaves]
        values = [x if hasattr(x, "aval") else jnp.asarray(x) for x, d in zip(leaves, dynamic) if d]
        trees: list[Any] = []

        def flat(*moving: Any) -> list[Any]:
            given = merge(dynamic, drop(dynamic, leaves), moving)
            inner_args, inner_kwargs = tree_unflatten(tree, given)
            outs, out_tree = tree_flatten(self._function(*inner_args, **inner_kwargs))
            self._refuse_changes(given, tree_flatten((inner_args, inner_kwargs))[0])
            made = [hasattr(o, "aval") for o in outs]
            trees[:] = [(out_tree, made, drop(made, outs))]
            return pick(made, outs)

        jaxpr, consts = compat.explicit_consts(compat.trace(flat, [compat.aval_of(v) for v in values]), after=0)
        out_tree, made, fixed = trees[0]
        moved = self._derived(jaxpr)(*consts, *values)
        # What is no value of JAX comes out as it is.
        return tree_unflatten(out_tree, merge(made, fixed, moved))

    def verify(self, *args: Any, **kwargs: Any) -> Deviation:
        """How far the gradient by plan is from the plain one, both compiled and run here; the plain one must fit.

        The gradient is that of the first result by all arguments of floating point.
        """
        leaves, tree = tree_flatten((args, kwargs))
        moving = [hasattr(x, "dtype") and jnp.issubdtype(x.dtype, np.inexact) for x in leaves]

        def gradient(f: Callable[..., Any]) -> Any:
            def first(*moved: Any) -> Any:
                inner_args, inner_kwargs = tree_unflatten(tree, merge(moving, drop(moving, leaves), moved))
                return jax.tree_util.tree_leaves(f(*inner_args, **inner_kwargs))[0]

            return jax.jit(jax.grad(first, tuple(range(sum(moving)))))(*pick(moving, leaves))

        return Deviation.between(gradient(self), gradient(self._function))

    def _refuse_changes(self, given: Sequence[Any], left: Sequence[Any]) -> None:
        if len(given) != len(left) or any(a is not b for a, b in zip(given, left)):
            name = getattr(self._function, "__name__", "the function")
            raise CaptureError(
                f"{name} changes an argument of its own, which is lost when it is traced: return the new state as an "
                "auxiliary result; with flax.nnx, split the module and merge it inside"
            )

    def _derived(self, jaxpr: Any) -> Any:
        """The flat function, with a derivative that follows a plan."""
        call = compat.evaluate(jaxpr)
        smooth = floating(jaxpr.out_avals)
        if smooth and smooth[0] and jaxpr.out_avals[0].shape == ():
            smooth = [True] + [False] * (len(smooth) - 1)

        @jax.custom_vjp
        def run(*values: Any) -> list[Any]:
            return list(call(*values))

        def forward(*given: Any) -> Any:
            values = [each.value for each in given]
            can = floating([compat.aval_of(v) for v in values])
            moving = [each.perturbed and c for each, c in zip(given, can)]
            derivative = self._planned(jaxpr, moving, smooth, values)
            outs, kept = derivative.forward(values)
            return outs, Residuals(derivative, values, kept)

        def backward(kept: Residuals, cotangents: Any) -> Any:
            return kept.derivative.backward(kept.values, kept.kept, cotangents)

        run.defvjp(forward, backward, symbolic_zeros=True)
        return run

    def _planned(self, jaxpr: Any, moving: list[bool], smooth: list[bool], values: Sequence[Any]) -> Derivative:
        """The derivative by the best plan that fits, with the batches and derivatives around it."""
        _refuse_places(values)
        surroundings, platform = around(values), jax.default_backend()
        if any(layer.kind == "reverse" for layer in surroundings.layers) and self._limit is not None:
            raise ValueError(
                "fit inside two reverse derivatives: what lives between them can't be bounded; differentiate "
                "forward over reverse, as in jax.jvp(jax.grad(fit(f, memory=…)), …)"
            )
        grouping = Grouping(joint(jaxpr, moving, smooth), platform)
        if self._limit is None:
            return Derivative(grouping, None, moving, smooth, platform)
        assert self._memory is not None
        key = (grouping.graph, platform, surroundings.key)
        choice = _CHOICES.setdefault(key, Candidates(grouping.graph, self._time_limit))

        def measure(plan: GraphPlan | None) -> int:
            return measured(Derivative(grouping, plan, moving, smooth, platform), surroundings)

        self.plan = choice.plan(self._memory, self._limit, measure)
        return Derivative(grouping, self.plan.graph_plan, moving, smooth, platform)


def _refuse_places(values: Sequence[Any]) -> None:
    """Arrays whose types say where they are: a program of the same types can't be made elsewhere to measure it."""
    avals = [compat.aval_of(v) for v in values]
    if any(map(compat.varying, avals)):
        raise ValueError(
            "fit inside jax.shard_map takes no types that vary over devices: give shard_map check_vma=False"
        )
    if any(map(compat.is_placed, avals)):
        raise ValueError(
            "fit takes no arrays that are spread over a mesh with explicit axes: make the mesh with "
            "axis_types=(jax.sharding.AxisType.Auto, …)"
        )
