"""The decorator that makes every loop of a function a checkpointed one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, TypeVar, overload

from ..budget import Budget, told
from ..chain import Online, Schedule
from ..engine.numpy.blank import is_under
from ..loops.runtime import Options
from .callees import Callees, may_reach_loop, rewrite
from .facts import find_loops
from .parse import RUNTIME, bind, compiled, parse, plain_function, refuse
from .runtime import Runtime
from .shares import shares

F = TypeVar("F", bound=Callable[..., Any])


@overload
def checkpoint(f: F) -> F: ...
@overload
def checkpoint(
    *,
    slots: int | None = None,
    memory: float | str | None = None,
    schedule: Schedule | Online | None = None,
    verify: str | bool = "last",
    budget: Budget | None = None,
) -> Callable[[F], F]: ...
def checkpoint(
    f: Any = None,
    *,
    slots: int | None = None,
    memory: float | str | None = None,
    schedule: Schedule | Online | None = None,
    verify: str | bool = "last",
    budget: Budget | None = None,
) -> Any:
    """Make every ``for`` and ``while`` loop of a function a checkpointed one: a decorator, with or without options.

    So are the loops, of 16 steps or more, of your own functions that it calls, on NumPy arrays and without ``memory``.
    The function means the same as before, on plain arrays and under any derivative. A derivative
    through it replays each loop within the budget: at most one of ``slots`` (snapshots of each loop,
    that of its initial state included), ``memory`` (bytes; loops side by side share it, and those inside
    of a loop have half of its part) and ``schedule`` (for a function with one loop). With none, each
    loop has the fewest slots for which no step is advanced more than twice (32 where its length is
    unknown). ``verify`` compares states that are computed again with those of the first time: the
    last one, all of them ("all"), or none (False). ``budget`` is a ``pb.Budget`` in place of these four.

    On values that JAX traces, each loop is one of ``pebbling.jax``, compiled with the rest of the program.

    What can't be replayed exactly is refused with ``SourceError``, which names the line and the way out.

    >>> import numpy as np, pebbling as pb
    >>> from pebbling.source.demo import decay
    >>> pb.grad(checkpoint(slots=4)(decay))(np.array([0.5, 1.0])).round(6)
    array([0.366032, 0.366032])
    """
    said = told(budget, "pb.checkpoint", slots=slots, memory=memory, schedule=schedule, verify=verify)
    options = Options(said.slots, said.memory, said.schedule, verify=said.verify)
    if f is None:
        return lambda function: _transformed(function, options)
    return _transformed(f, options)


def _transformed(f: Any, options: Options) -> Any:
    if inspect.ismethod(f):
        return MethodType(_transformed(f.__func__, options), f.__self__)
    function = plain_function(f)
    tree = parse(function)
    loops = find_loops(function, tree)
    # A budget in bytes is divided among the loops of one function, and a schedule is for one loop.
    reaches = options.memory is None and options.schedule is None
    if not loops and not (reaches and may_reach_loop(function, tree)):
        refuse(
            function,
            tree.lineno,
            f"{function.__qualname__} has no for or while loop of its own to checkpoint"
            + (", and calls no function of yours that has one" if reaches else ""),
            "decorate the function that has it",
        )
    if options.schedule is not None and len(loops) > 1:
        raise ValueError(
            f"a schedule is for one loop, and {function.__qualname__} has {len(loops)}: give slots or memory"
        )
    facts = list(loops.values())
    runtime = Runtime(facts, shares(options, facts))
    if reaches:
        runtime.callees = Callees(options, lambda found, all: Runtime(found, [options] * len(found), all, False))
    rewrite(function, tree, loops, reaches)
    new = bind(function, compiled(function, tree), runtime)
    if not loops:
        new = _reaching(function, new, runtime.callees)
    setattr(new, RUNTIME, runtime)
    return new


def _reaching(function: FunctionType, new: FunctionType, callees: Any) -> Any:
    """A function without loops of its own, which is to meet some under a derivative."""

    @functools.wraps(new)
    def reaching(*args: Any, **kwargs: Any) -> Any:
        result = new(*args, **kwargs)
        if is_under() and not callees.reached:
            refuse(
                function,
                function.__code__.co_firstlineno,
                f"{function.__qualname__} has no for or while loop of its own to checkpoint, and has called no "
                "function of yours that has one",
                "leave checkpoint out, or decorate the function that has it",
            )
        return result

    return reaching
