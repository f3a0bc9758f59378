"""An adjoint for ``diffrax.diffeqsolve``: derivatives of the solver's own steps, in as many slots as one likes.

It stands in for ``diffrax.RecursiveCheckpointAdjoint``: any solver, adaptive steps, events, SDEs, ``SaveAt`` of every
kind. What is saved at given times or steps is in no snapshot. Other than there, ``max_steps=None`` needs no number of
slots. The stages of a Runge–Kutta step are a loop of diffrax's own, which can be differentiated in reverse once;
``any_order=True`` has them written such that every order and mode goes through, as ``diffrax.DirectAdjoint`` does.
"""

from __future__ import annotations

from typing import Any

from jax.tree_util import tree_leaves

from . import equinox as of_equinox

try:
    import diffrax
    import equinox as eqx
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "pebbling.jax.diffrax needs diffrax: pip install diffrax", name=error.name, path=error.path
    ) from error

__all__ = ["Adjoint"]


class Adjoint(diffrax.AbstractAdjoint):
    """``diffeqsolve(…, adjoint=Adjoint(slots=10))``: the gradient keeps 10 states of the solver.

    With ``memory=``, in bytes or as text, as many as fit; with neither, those that ``pebbling.jax.jit(…, memory=…)``
    around it finds, or 64.

    >>> import jax, jax.numpy as jnp
    >>> def last(y, adjoint):
    ...     term = diffrax.ODETerm(lambda t, y, args: -y)
    ...     return jnp.sum(diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.01, y, adjoint=adjoint).ys)
    >>> y = jnp.arange(3.0)
    >>> ours = jax.grad(last)(y, Adjoint(slots=5))
    >>> bool(jnp.allclose(ours, jax.grad(last)(y, diffrax.RecursiveCheckpointAdjoint())))
    True
    """

    slots: int | None = None
    memory: float | str | None = None
    any_order: bool = False

    def loop(self, **given: Any) -> Any:
        """Runs the solve, for diffrax."""
        for name in ("throw", "passed_solver_state", "passed_controller_state"):
            del given[name]
        if any(map(_forgets, tree_leaves(given["terms"], is_leaf=_forgets))):
            raise ValueError(
                "Adjoint replays steps, and UnsafeBrownianPath gives other numbers each time that it is asked: use "
                "VirtualBrownianTree"
            )
        solver = given["solver"]
        if self.any_order and hasattr(solver, "scan_kind") and solver.scan_kind is None:
            given["solver"] = eqx.tree_at(lambda s: s.scan_kind, solver, "bounded", is_leaf=lambda x: x is None)
        return self._loop(inner_while_loop=_inner, outer_while_loop=self._outer, **given)

    def _outer(self, cond_fun: Any, body_fun: Any, init_val: Any, *, max_steps: int | None, buffers: Any) -> Any:
        asked = {"slots": self.slots, "memory": self.memory}
        return of_equinox.checkpointed(cond_fun, body_fun, init_val, max_steps, buffers, **asked)


def _inner(cond_fun: Any, body_fun: Any, init_val: Any, *, max_steps: int, buffers: Any, checkpoints: int) -> Any:
    return of_equinox.checkpointed(cond_fun, body_fun, init_val, max_steps, buffers, slots=checkpoints)


def _forgets(value: Any) -> bool:
    return isinstance(value, diffrax.UnsafeBrownianPath)
