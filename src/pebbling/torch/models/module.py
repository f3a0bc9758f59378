"""What ``fit`` returns: the same kind of callable, with a plan.

A fitted module shares everything with the module that it was made from (parameters, buffers,
submodules, attributes), so that state_dict, train, eval and ``.to`` on either show in both. Only forward
hooks are its own: those of the original are part of what is captured, those that are registered on the
fitted module run around it, as frameworks that wrap modules need it. Backward hooks can't be captured:
both share them, and they run around the fitted module.
"""

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from ...errors import CaptureError
from .refusals import refusals
from .tracing import switches

_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)
_BACKWARD_HOOKS = ("_backward_hooks", "_backward_pre_hooks")


class Runner:
    """A captured callable and its plans."""

    def __init__(self, original: Callable[..., Any], options: Any) -> None:
        self.original, self.options = original, options
        self.name = type(original).__name__ if isinstance(original, nn.Module) else _name(original)
        self.planner = options.planner(self.name)
        self._compiled: dict[tuple[bool, ...], Callable[..., Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run, planning first what has not been planned for these shapes."""
        if self.planner.outdated:
            self.planner.outdated = False
            self._compiled.clear()
        chosen = switches()
        if chosen not in self._compiled:
            self._compiled[chosen] = self.options.compiled(self.original, self.planner)
        with refusals(self.name, self.original), _set_aside(self.original):
            return self._compiled[chosen](*args, **kwargs)


class Fitted:
    """What fitted modules and functions have beside what they are."""

    _runner: Runner

    @property
    def plans(self) -> tuple[Any, ...]:
        """Plans of all that was captured, in the order of capture."""
        return tuple(self._runner.planner.made)

    @property
    def plan(self) -> Any:
        """The latest plan that has a backward pass, or the latest at all."""
        made = self.plans
        if not made:
            raise CaptureError(
                f"{self._runner.name} has no plan yet: call it once, or use pebbling.torch.plan(model, *example)"
            )
        return next((plan for plan in reversed(made) if plan.trains), made[-1])

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the page of the plan."""
        self.plan.report(path)


class FittedFunction(Fitted):
    """A function whose gradients are computed within a budget."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        functools.update_wrapper(self, runner.original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        return self._runner(*args, **kwargs)


def original(function: Any) -> Any:
    """What a fitted module or function was made from, and anything else itself."""
    return function._runner.original if isinstance(function, Fitted) else function


def fitted_module(model: nn.Module, runner: Runner, again: Callable[..., nn.Module]) -> nn.Module:
    """A module that shares the state of ``model`` and runs through ``runner``; ``again`` makes another after a copy."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return runner(*args, **kwargs)

    def reduce(self: nn.Module, protocol: Any) -> Any:
        hooks = {name: getattr(self, name) for name in _HOOKS}
        return again, (model, runner.options, {name: each for name, each in hooks.items() if each})

    own: dict[str, Any] = {"_runner": runner, "forward": forward, "__reduce_ex__": reduce, "__doc__": model.__doc__}
    own.update((name, _own_hooks(name)) for name in _HOOKS)
    kind: Any = type(f"Fitted{type(model).__name__}", (Fitted, type(model)), own)
    fitted = kind.__new__(kind)
    # One dictionary for both, so that neither can fall behind the other.
    object.__setattr__(fitted, "__dict__", model.__dict__)
    return fitted


@contextmanager
def _set_aside(model: Any) -> Iterator[None]:
    """Leave the backward hooks of a module to whoever calls the fitted one.

    Gradients of the arguments that forward hooks have replaced are seen inside only, where they can't be captured.
    """
    if not isinstance(model, nn.Module) or model.__dict__["_forward_pre_hooks"]:
        yield
        return
    hooks = {name: model.__dict__[name] for name in _BACKWARD_HOOKS}
    model.__dict__.update((name, OrderedDict()) for name, each in hooks.items() if each)
    try:
        yield
    finally:
        model.__dict__.update(hooks)


def _own_hooks(name: str) -> property:
    """A property in place of the entry of that name in the shared dictionary."""
    hooks: OrderedDict[int, Any] = OrderedDict()

    def get(self: nn.Module) -> OrderedDict[int, Any]:
        return hooks

    def put(self: nn.Module, value: OrderedDict[int, Any]) -> None:
        hooks.clear()
        hooks.update(value)

    return property(get, put)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
