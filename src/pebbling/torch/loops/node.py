"""A loop as one node of autograd's graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from ...budget import store_at
from ...errors import PebblingError, ReplayError
from ...loops.node import Outcome, same_values, straight
from ...loops.plan import check_length
from ...loops.program import Leaves, Program
from ...loops.runtime import Options
from ..tensors import requires_grad
from . import functional
from .ambient import without_fast_paths
from .checkpointed import CheckpointedLoop
from .choose import settle
from .closure import capture
from .forecast import forecast
from .no_second_backward import once
from .problem import LoopProblem
from .sharded import Sharded
from .snapshots import TensorSlots
from .tapes import Unknown


def execute(program: Program, state: Leaves, consts: Leaves, options: Options, written: Sequence[int] = ()) -> Outcome:
    """Run a program plainly, or as one node where something is to be differentiated."""
    store = store_at(options.store)
    budget = options.settle.whole
    if store is None:
        check_length(budget, program)
    elif written:
        raise ValueError("a loop whose step writes into its state keeps its snapshots in memory: leave out store=")
    if functional.applies([*state, *consts]):
        if program.varies:
            raise PebblingError(
                f"{program.where()}: a loop of a function that pb.checkpoint has transformed can't be taken through a "
                "transform of torch.func: use backward() or torch.autograd.grad, or write the loop with pb.loop"
            )
        return functional.execute(program, state, consts, options, written)
    if not torch.is_grad_enabled():
        return _plain(program, state, consts, written)
    captured = capture(program.functions(), [*state, *consts])
    sharded = Sharded([part for module in captured.modules.values() for part in module.modules()])
    with sharded.gathered():
        if sharded:
            captured = capture(program.functions(), [*state, *consts])
        try:
            problem = LoopProblem(program, captured, state, consts, frozenset(written))
            if not problem.differentiated:
                return _plain(program, state, consts, written)
            problem.is_outer = budget is not options.settle.budget
            course = settle(budget, problem, store)
        except Unknown as unknown:
            raise unknown.refuse() from None
        loop = problem.loop(course, options.verify, store, budget.memory is not None)
        if options.observer is not None:
            options.observer(*forecast(problem, course))
        loop.sweep()
        problem.taper.learn = None
        outcome = Outcome(loop.state, list(loop.outs), [list(part) for part in loop.emitted], loop.flag, loop.steps)
        loop.let_go()
        node = LoopNode(loop, problem, sharded)
        return node.call(outcome) if node.inputs else outcome


def _plain(program: Program, state: Leaves, consts: Leaves, written: Sequence[int]) -> Outcome:
    with without_fast_paths():
        return straight(program, TensorSlots(program.where(), written).private(state), consts)


class Inputs(Protocol):
    """The leaves of the initial state, and the tensors besides it that are differentiated."""

    state: Leaves
    constants: list[torch.Tensor]


class LoopNode:
    """One loop that has been run, and the places of its inputs and outputs in the graph."""

    def __init__(self, loop: CheckpointedLoop, given: Inputs, sharded: Sharded) -> None:
        self.loop, self.given, self.sharded = loop, given, sharded
        self.inputs: list[torch.Tensor] = []
        self._place: dict[int, int] = {}
        for tensor in (*filter(requires_grad, given.state), *given.constants):
            if id(tensor) not in self._place:
                self._place[id(tensor)] = len(self.inputs)
                self.inputs.append(tensor)
        self.traced: list[int] = []
        self.barred: list[tuple[torch.Tensor, int, str]] = []
        """Outputs that nobody may write into, how often that was done before, and why not."""

    def check_barred(self) -> None:
        """Refuse outputs that were written into although they share memory with others."""
        for tensor, count, reason in self.barred:
            if tensor._version != count:
                raise ReplayError(f"{self.loop.program.where()}: {reason}: make one of them a copy (.clone())")

    def call(self, outcome: Outcome) -> Outcome:
        """Put the node into the graph; the outcome with outputs that lead to it."""
        width = self.loop.width
        flat = outcome.flat()
        carrying = [place for place, one in enumerate(self.loop.carrying(flat[:width], flat[width:])) if one]
        same = same_values(flat, carrying, width + len(outcome.outs))
        self.traced = [place for place in carrying if place not in same]
        values = [flat[place] for place in self.traced]
        results = _LoopFunction.apply(self, values, *self.inputs)  # type: ignore[no-untyped-call]
        values.clear()
        for place, result in zip(self.traced, results):
            flat[place] = result
        for place, keeper in same.items():
            flat[place] = flat[keeper]
        return outcome.like(flat)

    def back(self, cotangents: Sequence[torch.Tensor | None], needed: Sequence[bool]) -> list[torch.Tensor | None]:
        """One cotangent an input."""
        loop, given = self.loop, self.given
        seeds: list[torch.Tensor | None] = [None] * (loop.width + loop.counts[0] + sum(loop.counts[1]))
        for place, cotangent in zip(self.traced, cotangents):
            seeds[place] = cotangent
        wanted = [needed[self._place[id(tensor)]] for tensor in given.constants]
        with self.sharded.gathered():
            state, constants = loop.back(seeds, wanted)
        self.sharded.deliver()
        sums: list[torch.Tensor | None] = [None] * len(self.inputs)
        parts = [(leaf, part) for leaf, part in zip(given.state, state) if isinstance(leaf, torch.Tensor)]
        for tensor, part in (*zip(given.constants, constants), *parts):
            if part is None or id(tensor) not in self._place:
                continue
            place = self._place[id(tensor)]
            total = sums[place]
            sums[place] = part if total is None else total + part
        return sums


class _LoopFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, node: LoopNode, values: list[torch.Tensor], *inputs: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.node = node
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        taken = {id(tensor) for tensor in inputs}
        results = []
        for value in values:
            results.append(value.detach() if id(value) in taken else value)
            taken.add(id(value))
        values.clear()
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
        try:
            inputs = ctx.saved_tensors  # refuses a graph that was freed, and tensors that were written into
        except RuntimeError as error:
            error.add_note(f"It is needed as it was by the loop over {ctx.node.loop.program.where()}")
            raise
        ctx.node.check_barred()
        with torch.no_grad():
            found = ctx.node.back(cotangents, ctx.needs_input_grad[2:])
        if torch.is_grad_enabled():
            found = once(found, [*inputs, *cotangents])
        return (None, None, *found)
