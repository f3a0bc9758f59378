"""A loop over a tree of tensors whose gradient fits a budget."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

from ...budget import Budget, store_at, told
from ...chain import Online, Schedule
from ...chain.validate import whole
from ...loops.program import Trees
from ...loops.runtime import Options
from ...store import Store
from ...tree import flatten, unflatten
from .node import execute

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

    The result is one node of autograd's graph: ``backward()``, ``torch.autograd.grad`` and hooks work as they do on
    a plain loop, and gradients are the same to the last bit. Gradients flow to the tensors in ``state`` and ``args``
    and to the parameters of modules that ``body`` calls, which need not be listed.

    ``steps`` is a number, a ``range``, or a predicate ``more(state, i)``. At most one of ``slots``, ``memory`` and
    ``schedule``; with none, the fewest slots for which no step is advanced more than twice (32 where the length is
    unknown). Small steps are taped several at a time, and slots that hold no state are used for tapes.

    ``store`` takes snapshots off the device: ``pebbling.store.Host()`` keeps them in pinned host memory, and other
    stores work too. With ``memory``, it is the slow tier beside the memory of the device: snapshots, or whole tapes
    where the link is fast enough for them, go there as the measured times suggest. Otherwise all slots are in it.

    ``body`` returns new tensors and writes into none that it is given. Random numbers of torch are drawn again as they
    were; buffers such as those of a batch normalisation are updated once.

    >>> import torch
    >>> x, a = torch.ones(3, requires_grad=True), torch.tensor(1.1, requires_grad=True)
    >>> loop(lambda i, s, a: torch.sin(a * s), x, 100, a, slots=4).sum().backward()
    >>> round(a.grad.item(), 3)
    7.696
    """
    said = told(
        budget, "pebbling.torch.loop", slots=slots, memory=memory, schedule=schedule, store=store, verify=verify
    )
    if not callable(steps) and not isinstance(steps, range):
        steps = range(whole(steps, "steps", 0))
    leaves, structure = flatten(state)
    consts, arguments = flatten(args)
    program = Trees(body, steps, structure, arguments)
    options = Options(said.slots, said.memory, said.schedule, store_at(said.store), said.verify)
    return unflatten(structure, execute(program, leaves, consts, options).state)
