"""What ``fit`` returns: the same kind of callable, with a plan.

A fitted module shares everything with the module that it was made from (parameters, buffers,
submodules, attributes), so that state_dict, train, eval and ``.to`` on either show in both. Only forward
hooks and ``forward`` are its own: hooks of the original are part of what is captured, those that are registered on
the fitted module run around it, and so does a ``forward`` that is put in place of its own, as frameworks that wrap
modules need it. Backward hooks can't be captured: both share them, and they run around the fitted module.

Frameworks ask a model who it is: the class keeps its name, and ``forward`` its signature.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import nn

from ...errors import CaptureError
from .refusals import Raised, refusals
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
        self.name = name_of(original)
        self.planner = options.planner(self.name)
        self._compiled: dict[tuple[bool, ...], Callable[..., Any]] = {}

    @property
    def made(self) -> list[Any]:
        """Plans of all that was captured."""
        return list(self.planner.made)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run, planning first what has not been planned for these shapes."""
        if self.planner.outdated:
            self.planner.outdated = False
            self._compiled.clear()
        chosen = switches()
        if chosen not in self._compiled:
            self._compiled[chosen] = self.options.compiled(self.original, self.planner)
        try:
            with refusals(self.name, self.original), set_aside(self.original):
                return self._compiled[chosen](*args, **kwargs)
        except Raised as raised:
            refusal = raised.refusal
        # The program's own error, from the program itself and not from what traces it.
        self.original(*args, **kwargs)
        raise refusal


class Fitted:
    """What fitted modules and functions have beside what they are."""

    _runner: Any

    @property
    def plans(self) -> tuple[Any, ...]:
        """All plans, in the order in which they were made."""
        try:
            return tuple(self._runner.made)
        except AttributeError as error:
            # A module would take it for a missing attribute, and say that it has no plans.
            raise RuntimeError(f"the plan of {self._runner.name} could not be made: {error}") from error

    @property
    def plan(self) -> Any:
        """The latest plan that has a backward pass, or the latest at all; ``None`` before the first step."""
        made = self.plans
        return next((plan for plan in reversed(made) if plan.trains), made[-1] if made else None)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write the page of the plan."""
        if self.plan is None:
            raise CaptureError(
                f"{self._runner.name} has no plan yet: run a step of it, forward and backward, or use "
                "pebbling.torch.plan(model, *example)"
            )
        self.plan.report(path)


class FittedFunction(Fitted):
    """A function whose gradients are computed within a budget."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        functools.update_wrapper(self, runner.original)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        return _run(self._runner, *args, **kwargs)


def original(function: Any) -> Any:
    """What a fitted module or function was made from, and anything else itself."""
    return function._runner.original if isinstance(function, Fitted) else function


def fitted_module(model: nn.Module, runner: Any, again: Callable[..., nn.Module]) -> nn.Module:
    """A module that shares the state of ``model`` and runs through ``runner``; ``again`` makes another after a copy."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Of whom it is called with, which may be a copy: who wraps it keeps the function alone.
        return _run(self._runner, *args, **kwargs)

    def reduce(self: nn.Module, protocol: Any) -> Any:
        own = {name: getattr(self, name) for name in _HOOKS}
        if replaced.current is not None:
            own["forward"] = replaced.current
        # As the state, which is copied last: hooks may hold the module itself.
        return again, (model, runner.options), {name: each for name, each in own.items() if each}

    def restore(self: nn.Module, state: dict[str, Any]) -> None:
        for name, each in state.items():
            setattr(self, name, each)

    own: dict[str, Any] = {"_runner": runner, "__reduce_ex__": reduce, "__setstate__": restore}
    own["forward"] = replaced = _Forward(_as_declared(forward, model))
    kind_of_model = type(model)
    own.update({name: getattr(kind_of_model, name) for name in ("__doc__", "__module__", "__qualname__")})
    own.update((name, _own_hooks(name)) for name in _HOOKS)
    kind: Any = type(kind_of_model.__name__, (Fitted, kind_of_model), own)
    fitted = kind.__new__(kind)
    # One dictionary for both, so that neither can fall behind the other.
    object.__setattr__(fitted, "__dict__", model.__dict__)
    return fitted


def _run(runner: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a runner, into which a ``torch.compile`` around it doesn't look.

    The tracer takes two seconds to import, and who has not imported it is not traced.
    """
    global _unseen
    if _unseen is None:
        if "torch._dynamo" not in sys.modules:
            return runner(*args, **kwargs)
        _unseen = torch._dynamo.disable(_call)  # type: ignore[no-untyped-call]
    return _unseen(runner, *args, **kwargs)


def _call(runner: Any, *args: Any, **kwargs: Any) -> Any:
    return runner(*args, **kwargs)


_unseen: Callable[..., Any] | None = None


class _Forward:
    """The ``forward`` of one fitted module, which may be replaced without a word to the module that shares its state.

    In the shared dictionary another ``forward`` would replace the original's too, and a wrapper meet itself there.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.current: Any = None

    def __get__(self, module: Any, kind: Any = None) -> Any:
        if module is None:
            return self._function
        return MethodType(self._function, module) if self.current is None else self.current

    def __set__(self, module: Any, value: Any) -> None:
        self.current = value

    def __delete__(self, module: Any) -> None:
        if self.current is None:
            raise AttributeError("forward")
        self.current = None


def _as_declared(forward: Any, model: nn.Module) -> Callable[..., Any]:
    """The function under the name and with the signature of the forward pass that it stands for.

    Without ``__wrapped__``: who takes wrappers off again, as accelerate does, would take off this one as well.
    """
    theirs = model.forward
    functools.update_wrapper(forward, theirs)
    del forward.__wrapped__
    try:
        signature = inspect.signature(theirs)
    except (TypeError, ValueError):
        return forward
    module = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    forward.__signature__ = signature.replace(parameters=[module, *signature.parameters.values()])
    return forward


@contextmanager
def set_aside(model: Any) -> Iterator[None]:
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


def name_of(function: Any) -> str:
    """What a model or function is called in messages."""
    if isinstance(function, nn.Module):
        return type(function).__name__
    return getattr(function, "__qualname__", None) or type(function).__name__
