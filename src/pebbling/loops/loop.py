"""A loop over a tree of arrays whose derivative fits a budget."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from os import PathLike
from typing import Any, TypeVar

from ..budget import Budget, store_at, told
from ..chain import Online, Schedule
from ..chain.validate import whole
from ..store import Store
from ..tree import flatten, unflatten
from .frameworks import compiler_of
from .program import Trees
from .runtime import Options, execute

State = TypeVar("State")


def loop(
    body: Callable[..., State],
    state: State,
    steps: int | range | Callable[[State, int], bool],
    *args: Any,
    slots: int | None = None,
    memory: float | str | None = None,
    schedule: Schedule | Online | None = None,
    store: Store | str | PathLike[str] | None = None,
    verify: str | bool = "last",
    budget: Budget | None = None,
) -> State:
    """The state after ``for i in range(steps): state = body(i, state, *args)``, differentiable within a budget.

    ``state`` and ``args`` are trees of arrays; the derivative is taken with respect to those that the
    framework in use follows. ``steps`` is a number, a ``range`` whose members are passed as ``i``, or a
    predicate ``more(state, i)`` for a loop of unknown length. At most one of ``slots`` (snapshots, that
    of the initial state included), ``memory`` (bytes above what was allocated before) and ``schedule``;
    with none, the fewest slots for which no step is advanced more than twice (32 where the length is
    unknown). ``verify`` compares states that are computed again with those of the first time: the last
    one, all of them ("all"), or none (False). ``budget`` is a ``pb.Budget`` in place of these four.

    On JAX arrays it is ``pebbling.jax.loop``: one compiled program, in which a replay is the same code on the
    same values, so that there is nothing to verify.

    ``body`` must return new arrays, give the same for the same arguments, and use no differentiated
    value that is not among them.

    >>> import numpy as np, pebbling as pb
    >>> def f(x, a):
    ...     return np.sum(pb.loop(lambda i, s, a: np.sin(a * s), x, 1000, a, slots=8))
    >>> pb.grad(f, argnums=1)(np.array([0.5, 1.0]), 1.1).round(6)
    np.float64(5.130852)
    """
    if budget is not None or store is not None:
        said = told(budget, "pb.loop", slots=slots, memory=memory, schedule=schedule, store=store, verify=verify)
        slots, memory, schedule, verify = said.slots, said.memory, said.schedule, said.verify
        store = store_at(said.store)
    if not callable(steps) and not isinstance(steps, range):
        steps = range(whole(steps, "steps", 0))
    leaves, structure = flatten(state)
    consts, arguments = flatten(args)
    compiler = compiler_of([*leaves, *consts])
    if compiler is not None:
        return compiler.loop(body, state, steps, args, Budget(slots, memory, schedule, store, verify))
    program = Trees(body, steps, structure, arguments)
    known = _options if store is None else Options
    options = known(slots, memory, schedule, store, verify)
    return unflatten(structure, execute(program, leaves, consts, options).state)


@lru_cache(64)
def _options(slots: Any, memory: Any, schedule: Any, store: Any, verify: Any) -> Options:
    return Options(slots, memory, schedule, store, verify)
