"""torchdiffeq within a budget: its own solvers, each run as one checkpointed loop.

    with checkpointed(slots=8):
        y = odeint(func, y0, t, method="dopri5")
    loss(y).backward()

Inside of the context, fixed-grid and adaptive Runge-Kutta solvers keep ``slots`` states in place of the graph of every
step, and take steps again in the backward pass. Unlike ``odeint_adjoint`` this is the gradient of the steps that were
taken. Values and gradients are those of ``odeint``, to the last bit.

What can't be taken again is refused: callbacks, ``step_t`` and ``jump_t`` (the solver counts them off as it goes).
The Adams methods, which remember earlier steps, run as they do without the context, with all steps kept, and a warning
says so. So does ``odeint_event``, without one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from ..budget import Budget
from ..chain import Online, Schedule
from ..store import Store
from ..torch import loop

try:
    from torchdiffeq._impl import fixed_adams, misc, rk_common, solvers
except ImportError as error:
    raise ImportError("pebbling.adapters.torchdiffeq needs the package: pip install torchdiffeq") from error

__all__ = ["checkpointed"]

_BUDGET: ContextVar[Budget | None] = ContextVar("budget of torchdiffeq", default=None)


@contextmanager
def checkpointed(
    *,
    slots: int | None = None,
    memory: float | str | None = None,
    schedule: Schedule | Online | None = None,
    store: Store | None = None,
) -> Iterator[None]:
    """Let solvers of torchdiffeq that are called inside keep states as the budget allows, which is that of one solve.

    >>> import torch
    >>> from torchdiffeq import odeint
    >>> y0 = torch.ones(3, requires_grad=True)
    >>> with checkpointed(slots=4):
    ...     y = odeint(lambda t, y: -y, y0, torch.linspace(0, 1, 5), method="rk4", options={"step_size": 0.01})
    >>> y[-1].sum().backward()
    >>> y0.grad.allclose(torch.full((3,), -1.0).exp())
    True
    """
    _install()
    token = _BUDGET.set(Budget(slots=slots, memory=memory, schedule=schedule, store=store))
    try:
        yield
    finally:
        _BUDGET.reset(token)


def _install() -> None:
    """Have the solvers look for a budget; once."""
    kinds: list[tuple[Any, Callable[[Any, Any], Any]]] = [
        (solvers.FixedGridODESolver, _fixed),
        (rk_common.RKAdaptiveStepsizeODESolver, _adaptive),
    ]
    for kind, run in kinds:
        plain = kind.integrate
        if getattr(plain, "by_pebbling", False):
            continue

        def integrate(self: Any, t: Any, plain: Any = plain, run: Any = run) -> Any:
            if _BUDGET.get() is None:
                return plain(self, t)
            if isinstance(self, fixed_adams.AdamsBashforthMoulton):
                _tell(self)
                return plain(self, t)
            return run(self, t)

        integrate.by_pebbling = True  # type: ignore[attr-defined]
        kind.integrate = integrate


def _tell(solver: Any) -> None:
    warnings.warn(
        f"torchdiffeq's {type(solver).__name__} keeps every step: only fixed-grid and adaptive Runge-Kutta solvers "
        "are checkpointed",
        stacklevel=4,
    )


def _fixed(solver: Any, t: torch.Tensor) -> torch.Tensor:
    """``FixedGridODESolver.integrate`` as one loop over the grid, which carries the outputs."""
    _refuse_callbacks(solver)
    func, interp = solver.func, solver.interp
    if interp not in ("linear", "cubic"):
        raise ValueError(f"Unknown interpolation method {interp}")
    grid = solver.grid_constructor(func, solver.y0, t)
    assert grid[0] == t[0]
    assert grid[-1] == t[-1]
    solution = torch.empty(len(t), *solver.y0.shape, dtype=solver.y0.dtype, device=solver.y0.device)
    solution[0] = solver.y0

    def step(i: int, state: Any, t: torch.Tensor, grid: torch.Tensor) -> Any:
        y0, solution, j = state
        t0, t1 = grid[i], grid[i + 1]
        dt = t1 - t0
        dy, f0 = solver._step_func(func, t0, dt, t1, y0)
        y1 = y0 + dy
        while j < len(t) and t1 >= t[j]:
            if interp == "linear":
                found = solver._linear_interp(t0, t1, y0, y1, t[j])
            else:
                found = solver._cubic_hermite_interp(t0, y0, f0, t1, y1, func(t1, y1), t[j])
            solution = _with(solution, j, found)
            j += 1
        return y1, solution, j

    return loop(step, (solver.y0, solution, 1), len(grid) - 1, t, grid, budget=_BUDGET.get())[1]


def _adaptive(solver: Any, t: torch.Tensor) -> torch.Tensor:
    """``AdaptiveStepsizeODESolver.integrate`` of a Runge-Kutta method as one loop of steps."""
    _refuse_callbacks(solver)
    for name in ("step_t", "jump_t"):
        if getattr(solver, name) is not None:
            raise ValueError(f"torchdiffeq's option {name!r} can't be checkpointed: the solver counts such times off")
    solution = torch.empty(len(t), *solver.y0.shape, dtype=solver.y0.dtype, device=solver.y0.device)
    solution[0] = solver.y0
    t = t.to(solver.dtype)
    solver._before_integrate(t)

    def step(i: int, state: Any, t: torch.Tensor) -> Any:
        found, solution, j, taken = state
        assert taken < solver.max_num_steps, f"max_num_steps exceeded ({taken}>={solver.max_num_steps})"
        found = solver._adaptive_step(found)
        taken += 1
        while j < len(t) and not t[j] > found.t1:
            value = rk_common._interp_evaluate(found.interp_coeff, found.t0, found.t1, t[j])
            solution, j, taken = _with(solution, j, value), j + 1, 0
        return found, solution, j, taken

    def more(state: Any, i: int) -> bool:
        return bool(state[2] < len(t))

    return loop(step, (solver.rk_state, solution, 1, 0), more, t, budget=_BUDGET.get())[1]


def _with(solution: torch.Tensor, place: int, value: torch.Tensor) -> torch.Tensor:
    """The outputs with one more in them, in a new tensor."""
    changed = solution.clone()
    changed[place] = value
    return changed


def _refuse_callbacks(solver: Any) -> None:
    for name in solver.valid_callbacks():
        if getattr(solver.func, name, misc._null_callback) is not misc._null_callback:
            raise ValueError(f"{name} can't be checkpointed: it would be called again for every step taken again")
