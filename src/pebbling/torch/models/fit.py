"""``fit`` and ``plan``: models in a budget of bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
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
from .release import Release
from .wishes import Wishes, wishes_of

F = TypeVar("F", bound=Callable[..., Any])
Backend = Literal["eager", "captured", "inductor"]
Verify = Literal["all"] | int | None
Breaks = Literal["refuse", "keep"]


@dataclass(frozen=True)
class FitOptions:
    """What ``fit`` was asked for."""

    memory: int | None
    backend: Backend
    breaks: Breaks
    plans: Path | None
    time_limit: float
    group: Any = None
    verify: Verify = None
    host: int | None = None
    keep: Wishes = ()
    never_replay: Wishes = ()
    release: Release | None = None

    def runner(self, function: Callable[..., Any]) -> Any:
        """What runs a model or function with these options."""
        if self.backend != "eager":
            return Runner(function, self)
        from .live import LiveRunner

        return LiveRunner(function, self)

    def planner(self, name: str) -> Planner:
        """A planner with these options."""
        return Planner(self.memory, self.time_limit, self.plans, self.group, name)

    def compiled(self, function: Callable[..., Any], planner: Planner) -> Callable[..., Any]:
        """The function, captured and planned at its first call."""
        return compiled(function, self._capture(planner, function), whole=self.breaks == "refuse")

    def _capture(self, planner: Planner, function: Callable[..., Any]) -> Any:
        if self.backend == "captured":
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
    verify: Verify = None,
    host: float | str | None = None,
    keep: Iterable[str] = (),
    never_replay: Iterable[str] = (),
    optimizer: torch.optim.Optimizer | None = None,
) -> F:
    """The same model or function, whose forward and backward pass take at most ``memory`` above what is there.

    ``memory`` is in bytes, or text such as "8GB"; None sets no limit. With ``backend="eager"`` the program itself
    runs every step, and every result and gradient is its own, bit for bit. The first step of a kind (shapes, train or
    eval) is recorded: what doesn't fit is moved away meanwhile. The next one plans (``time_limit`` bounds the
    search, in seconds), and what the plan drops is made again. A value is dropped only if its operation
    gave the same bits twice while it was recorded; ``verify="all"`` compares them in every step, ``verify=100`` in
    every hundredth, and a difference is a ``ReplayError``. With ``host``, in bytes or as text, values may go to that
    much memory of the host and come back, where that takes less time than making them again. ``keep`` names modules,
    by path or as patterns such as ``"*.attn"``, whose results stay until their last use, and ``never_replay`` those
    whose operations run once. With ``optimizer``, each gradient is applied and let go as it comes, so that they never
    all exist; the loop stays as it is, ``optimizer.step()`` included, and so do its bits. What the optimizer keeps
    from step to step is not part of the budget.

    With "captured" the model is traced into a graph whose operations are run by plan, which costs less time on the
    host; with "inductor" it is compiled as by torch.compile, with its gradients, and with a plan whose peak was
    measured to be within the budget: ``plan.measured`` says what it takes, ``plan.planned`` what had been expected.
    What can't be captured is a ``CaptureError``; ``breaks="keep"`` runs it as it is instead, and gives each part
    between such breaks the whole budget for itself. ``plans`` is a folder where captured plans are kept and
    found again. With ``group``, a process group, all its ranks use the plan that its first one made, and are refused
    one where their budgets, or what they ran, differ.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    >>> fitted = fit(model, memory="64KiB")
    >>> fitted(torch.ones(4, 8)).sum().backward()
    >>> fitted.plan.peak <= 64 * 1024
    True
    """
    options = _options(memory, backend, breaks, plans, time_limit, group, verify)
    options = replace(options, host=_host(host, options))
    function = original(function)
    if isinstance(function, nn.Module):
        _refuse_fitted(function, options)
    options = _wishes(options, function, keep, never_replay, optimizer)
    if isinstance(function, nn.Module):
        return fitted_module(function, options.runner(function), refit)  # type: ignore[return-value]
    if isinstance(function, type):
        raise TypeError(
            f"fit takes a module or a function, not a class: fit({function.__name__}(…)) fits a module of it"
        )
    if not callable(function):
        raise TypeError(f"fit takes a module or a function, not {type(function).__name__}")
    return FittedFunction(options.runner(function))  # type: ignore[return-value]


def _host(host: float | str | None, options: FitOptions) -> int | None:
    if host is None:
        return None
    if options.backend != "eager":
        raise ValueError(f"host={host!r} with backend={options.backend!r}: values go to the host with 'eager' only")
    if options.memory is None:
        raise ValueError(f"host={host!r} without memory=: where there is no limit, nothing has to go to the host")
    return parse_bytes(host)


def refit(model: nn.Module, options: FitOptions) -> nn.Module:
    """A fitted module with the options of the one that it is a copy of; the optimizer trains the other."""
    return fitted_module(model, replace(options, release=None).runner(model), refit)


def _refuse_fitted(model: nn.Module, options: FitOptions) -> None:
    """Refuse what hides a model, and what has fitted parts."""
    wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    if isinstance(model, wrappers) and options.backend != "eager":
        raise CaptureError(
            f"{type(model).__name__} hides the model that it wraps: fit first, then wrap, as in "
            f"{type(model).__name__}(fit(model, …))"
        )
    inside = next(
        (name for name, each in model.named_modules() if each is not model and original(each) is not each), None
    )
    if inside is not None:
        raise CaptureError(f"{inside!r} in {type(model).__name__} is fitted already: fit the whole, or only its parts")


def _wishes(options: FitOptions, function: Any, keep: Any, never_replay: Any, optimizer: Any) -> FitOptions:
    """The options with what the user wishes of every plan."""
    kept, once = wishes_of(function, keep, "keep"), wishes_of(function, never_replay, "never_replay")
    for name, given in (("keep", kept), ("never_replay", once), ("optimizer", optimizer)):
        if given and options.backend != "eager":
            raise ValueError(f"{name}= with backend={options.backend!r}: only the default, 'eager', can do that")
    if optimizer is None:
        return replace(options, keep=kept, never_replay=once)
    if isinstance(function, nn.Module):
        mine = {id(each) for each in function.parameters()}
        if not any(id(each) in mine for group in getattr(optimizer, "param_groups", ()) for each in group["params"]):
            raise ValueError(f"optimizer= trains no parameter of {type(function).__name__}: give the one that does")
    return replace(options, keep=kept, never_replay=once, release=Release(optimizer))


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
    options = _options(memory, "captured", "refuse", plans, time_limit, None, None)
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
    memory: float | str | None, backend: str, breaks: str, plans: Any, time_limit: float, group: Any, verify: Any
) -> FitOptions:
    if backend not in ("eager", "captured", "inductor"):
        raise ValueError(f"backend={backend!r}: expected 'eager', 'captured' or 'inductor'")
    if backend == "inductor" and group is not None:
        raise ValueError(
            "group= with backend='inductor': a plan is held to its budget by measuring it, which every rank does for "
            "itself; leave group out, or use backend='captured'"
        )
    if backend == "eager":
        _refuse_captures(breaks, plans)
    elif verify is not None:
        raise ValueError(f"verify={verify!r} with backend={backend!r}: values are proven again with 'eager' only")
    every = isinstance(verify, int) and not isinstance(verify, bool) and verify > 0
    if verify is not None and verify != "all" and not every:
        raise ValueError(f"verify={verify!r}: expected 'all', a number of steps above 0, or None")
    if breaks not in ("refuse", "keep"):
        raise ValueError(f"breaks={breaks!r}: expected 'refuse' or 'keep'")
    if not isinstance(time_limit, int | float) or not time_limit > 0:
        raise ValueError(f"time_limit={time_limit!r}: expected a number of seconds above 0")
    budget = None if memory is None else parse_bytes(memory)
    if group is not None:
        # Its own, so that agreeing on a plan never waits for what others send through the caller's.
        ranks = distributed.get_process_group_ranks(group)
        group = distributed.new_group(ranks, backend="gloo", use_local_synchronization=True)
    return FitOptions(budget, backend, breaks, None if plans is None else Path(plans), float(time_limit), group, verify)  # type: ignore[arg-type]


def _refuse_captures(breaks: str, plans: Any) -> None:
    """Arguments that say something of captured graphs alone."""
    if breaks == "keep":
        raise ValueError("breaks='keep' with backend='eager': nothing is captured, so nothing breaks; leave it out")
    if plans is not None:
        raise ValueError(
            f"plans={os.fspath(plans)!r} with backend='eager': what is planned is what the program did, which a file "
            "can't know; leave it out, or use backend='captured'"
        )
