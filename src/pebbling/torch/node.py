"""A loop as one node of autograd's graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from ..loops.node import Outcome, straight
from ..loops.plan import check_length
from ..loops.program import Leaves, Program
from ..loops.runtime import Options
from ..store import Store
from . import functional
from .ambient import without_fast_paths
from .captured import capture
from .first import First
from .once import once
from .passage import Passage
from .settle import settle
from .sharded import Sharded
from .shelf import Shelf


def execute(
    program: Program,
    state: Leaves,
    consts: Leaves,
    options: Options,
    written: Sequence[int] = (),
    store: Store | None = None,
) -> Outcome:
    """Run a program plainly, or as one node where something is to be differentiated."""
    budget = options.settle.budget
    if store is None:
        check_length(budget, program)
    elif written:
        raise ValueError("a loop whose step writes into its state keeps its snapshots in memory: leave out store=")
    if functional.applies([*state, *consts]):
        return functional.execute(program, state, consts, options, written)
    if not torch.is_grad_enabled():
        return _plain(program, state, consts, written)
    captured = capture(program.functions(), [*state, *consts])
    sharded = Sharded([part for module in captured.modules.values() for part in module.modules()])
    with sharded.gathered():
        if sharded:
            captured = capture(program.functions(), [*state, *consts])
        first = First(program, captured, state, consts, frozenset(written))
        if not first.differentiated:
            return _plain(program, state, consts, written)
        course = settle(budget, first, store)
        passage = first.passage(course, options.verify, store, budget.memory is not None)
        passage.sweep()
        outcome = Outcome(
            passage.state, list(passage.outs), [list(part) for part in passage.emitted], passage.flag, passage.steps
        )
        passage.let_go()
        return Node(passage, first, sharded).call(outcome)


def _plain(program: Program, state: Leaves, consts: Leaves, written: Sequence[int]) -> Outcome:
    with without_fast_paths():
        return straight(program, Shelf(program.where(), written).private(state), consts)


class Inputs(Protocol):
    """The leaves of the initial state, and the tensors besides it that are differentiated."""

    state: Leaves
    constants: list[torch.Tensor]


class Node:
    """One loop that has been run, and the places of its inputs and outputs in the graph."""

    def __init__(self, passage: Passage, first: Inputs, sharded: Sharded) -> None:
        self.passage, self.first, self.sharded = passage, first, sharded
        self.inputs: list[torch.Tensor] = []
        self._place: dict[int, int] = {}
        for tensor in (*filter(_follows, first.state), *first.constants):
            if id(tensor) not in self._place:
                self._place[id(tensor)] = len(self.inputs)
                self.inputs.append(tensor)
        self.traced: list[int] = []

    def call(self, outcome: Outcome) -> Outcome:
        """Put the node into the graph; the outcome with outputs that lead to it."""
        width = self.passage.width
        flat = [*outcome.state, *outcome.outs, *[leaf for part in outcome.emitted for leaf in part]]
        live = self.passage.followed(flat[:width])
        self.traced = [
            place for place, leaf in enumerate(flat) if differentiable(leaf) and (place >= width or live[place])
        ]
        values = [flat[place] for place in self.traced]
        results = _Loop.apply(self, values, *self.inputs)  # type: ignore[no-untyped-call]
        values.clear()
        for place, result in zip(self.traced, results):
            flat[place] = result
        cut = width + len(outcome.outs)
        emitted, at = [], cut
        for part in outcome.emitted:
            emitted.append(flat[at : at + len(part)])
            at += len(part)
        return outcome._replace(state=flat[:width], outs=flat[width:cut], emitted=emitted)

    def back(self, cotangents: Sequence[torch.Tensor | None], needed: Sequence[bool]) -> list[torch.Tensor | None]:
        """One cotangent an input."""
        passage, first = self.passage, self.first
        seeds: list[torch.Tensor | None] = [None] * (passage.width + passage.counts[0] + sum(passage.counts[1]))
        for place, cotangent in zip(self.traced, cotangents):
            seeds[place] = cotangent
        wanted = [needed[self._place[id(tensor)]] for tensor in first.constants]
        with self.sharded.gathered():
            state, constants = passage.back(seeds, wanted)
        self.sharded.deliver()
        sums: list[torch.Tensor | None] = [None] * len(self.inputs)
        parts = [(leaf, part) for leaf, part in zip(first.state, state) if isinstance(leaf, torch.Tensor)]
        for tensor, part in (*zip(first.constants, constants), *parts):
            if part is None or id(tensor) not in self._place:
                continue
            place = self._place[id(tensor)]
            total = sums[place]
            sums[place] = part if total is None else total + part
        return sums


class _Loop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, node: Node, values: list[torch.Tensor], *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
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
        inputs = ctx.saved_tensors  # refuses a graph that was freed, and tensors that were written into
        with torch.no_grad():
            found = ctx.node.back(cotangents, ctx.needs_input_grad[2:])
        if torch.is_grad_enabled():
            found = once(found, [*inputs, *cotangents])
        return (None, None, *found)


def _follows(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def differentiable(leaf: Any) -> bool:
    """Whether a derivative could be taken through a leaf."""
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())
