"""``fit`` and ``plan``: models in a budget of bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import distributed, nn

from ...errors import CaptureError
from ...units import parse_bytes
from .capture import Eager, Stopped, compiled
from .model_plan import ModelPlan
from .module import FittedFunction, Runner, fitted_module, original
from .planner import Planner
from .refusals import derivatives, refusals

F = TypeVar("F", bound=Callable[..., Any])
Backend = Literal["eager", "inductor"]
Breaks = Literal["refuse", "keep"]


@dataclass(frozen=True)
class Options:
    """What ``fit`` was asked for."""

    memory: int | None
    backend: Backend
    breaks: Breaks
    plans: Path | None
    time_limit: float
    group: Any = None

    def planner(self, name: str) -> Planner:
        """A planner with these options."""
        return Planner(self.memory, self.time_limit, self.plans, self.group, name)

    def compiled(self, function: Callable[..., Any], planner: Planner) -> Callable[..., Any]:
        """The function, captured and planned at its first call."""
        return compiled(function, self._capture(planner, function), whole=self.breaks == "refuse")

    def _capture(self, planner: Planner, function: Callable[..., Any]) -> Any:
        if self.backend == "eager":
            return Eager(planner, function)
        from .search import Inductor

        return Inductor(planner)


def fit(
    function: F,
    memory: float | str | None = None,
    *,
    backend: Backend = "eager",
    breaks: Breaks = "refuse",
    plans: str | os.PathLike[str] | None = None,
    time_limit: float = 30.0,
    group: Any = None,
) -> F:
    """The same model or function, whose forward and backward pass take at most ``memory`` above what is there.

    ``memory`` is in bytes, or text such as "8GB"; None sets no limit. The first call with new shapes
    captures and plans (``time_limit`` bounds the search, in seconds), later ones run. With
    ``backend="eager"`` every result and gradient is that of the original, bit for bit. With "inductor" the
    model is compiled as by torch.compile, with its gradients, and with a plan whose peak was measured to be
    within the budget: ``plan.measured`` says what it takes, ``plan.planned`` what had been expected. What can't be
    captured is a ``CaptureError``; ``breaks="keep"`` runs it as it is instead, and gives each part
    between such breaks the whole budget for itself. ``plans`` is a folder where plans are kept and
    found again. With ``group``, a process group, all its ranks use the plan that its first one made.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    >>> fitted = fit(model, memory="64KiB")
    >>> fitted(torch.ones(4, 8)).sum().backward()
    >>> fitted.plan.peak <= 64 * 1024
    True
    """
    options = _options(memory, backend, breaks, plans, time_limit, group)
    function = original(function)
    if isinstance(function, nn.Module):
        return refit(function, options)  # type: ignore[return-value]
    if isinstance(function, type):
        raise TypeError(
            f"fit takes a module or a function, not a class: fit({function.__name__}(…)) fits a module of it"
        )
    if not callable(function):
        raise TypeError(f"fit takes a module or a function, not {type(function).__name__}")
    return FittedFunction(Runner(function, options))  # type: ignore[return-value]


def refit(model: nn.Module, options: Options) -> nn.Module:
    """A fitted module with given options, for ``fit`` and for copies of what it returned."""
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise CaptureError(
            f"{type(model).__name__} hides the model that it wraps: fit first, then wrap, as in "
            f"{type(model).__name__}(fit(model, …))"
        )
    inside = next(
        (name for name, each in model.named_modules() if each is not model and original(each) is not each), None
    )
    if inside is not None:
        raise CaptureError(f"{inside!r} in {type(model).__name__} is fitted already: fit the whole, or only its parts")
    return fitted_module(model, Runner(model, options), refit)


def plan(
    function: Callable[..., Any],
    *example: Any,
    memory: float | str | None = None,
    time_limit: float = 30.0,
    plans: str | os.PathLike[str] | None = None,
    **keywords: Any,
) -> ModelPlan:
    """The plan that ``fit`` would make for these arguments; nothing of the model is run.

    Parameters and arguments may be on the meta device: costs are then estimated and not measured, and kernels that
    torch chooses by the device, such as those of attention, may be others than there.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    >>> plan(model, torch.ones(4, 8), memory="64KiB").overhead
    0.0
    """
    options = _options(memory, "eager", "refuse", plans, time_limit, None)
    function = original(function)
    name = type(function).__name__ if isinstance(function, nn.Module) else getattr(function, "__qualname__", "function")
    planner = options.planner(name)
    capture = compiled(function, Eager(planner, function, stop=True), whole=True)
    try:
        with refusals(name, function), derivatives(), torch.random.fork_rng(devices=[]):
            capture(*example, **keywords)
    except Stopped:
        return planner.made[-1]
    raise CaptureError(f"{name} runs no tensor operation for these arguments: there is nothing to plan")


def _options(
    memory: float | str | None, backend: str, breaks: str, plans: Any, time_limit: float, group: Any
) -> Options:
    if backend not in ("eager", "inductor"):
        raise ValueError(f"backend={backend!r}: expected 'eager' or 'inductor'")
    if backend == "inductor" and group is not None:
        raise ValueError(
            "group= with backend='inductor': a plan is held to its budget by measuring it, which every rank does for "
            "itself; leave group out, or use backend='eager'"
        )
    if breaks not in ("refuse", "keep"):
        raise ValueError(f"breaks={breaks!r}: expected 'refuse' or 'keep'")
    if not isinstance(time_limit, int | float) or not time_limit > 0:
        raise ValueError(f"time_limit={time_limit!r}: expected a number of seconds above 0")
    budget = None if memory is None else parse_bytes(memory)
    if group is not None:
        # Its own, so that agreeing on a plan never waits for what others send through the caller's.
        ranks = distributed.get_process_group_ranks(group)
        group = distributed.new_group(ranks, backend="gloo", use_local_synchronization=True)
    return Options(budget, backend, breaks, None if plans is None else Path(plans), float(time_limit), group)  # type: ignore[arg-type]
