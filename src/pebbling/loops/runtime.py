"""Runs a program on flat leaves: what ``pb.loop`` calls, and every loop of a function that was transformed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ..budget import Budget
from .frameworks import framework_of, numpy_framework
from .node import CustomLoop, Outcome, straight
from .plan import Settle, check_length
from .program import Leaves, Program
from .slots import ArraySlots
from .undeclared import refuse_traced

Observer: TypeAlias = Callable[[int | None, int, int, int | None, int], None]
"""Takes steps, bytes of a state, slots, forwards (``None`` while the length is unknown) and bytes at the peak."""


@dataclass(frozen=True)
class Options(Budget):
    """How a loop is checkpointed: what the caller allows, what finds the schedule, and who is told of it."""

    @cached_property
    def settle(self) -> Settle:
        """What finds the schedule of a loop."""
        return Settle(self)

    @property
    def observer(self) -> Observer | None:
        """Whom a framework that runs the loop itself tells what it will take; ``None``: nobody asks."""
        return None


def execute(program: Program, state: Leaves, consts: Leaves, options: Options, written: Sequence[int] = ()) -> Outcome:
    """Run a program plainly, or as one node of the framework that follows its leaves."""
    framework = framework_of([*state, *consts])
    if framework is not None and framework.execute is not None:
        return framework.execute(program, state, consts, options, written)
    if framework is not None:
        state = [framework.enter(leaf, True) for leaf in state]
        consts = [framework.enter(leaf, False) for leaf in consts]
        return CustomLoop(framework, program, state, consts, options.settle, options.verify, written).call()
    if options.schedule is not None:
        check_length(options, program)
    if written:
        shelf = ArraySlots(numpy_framework(), written)
        shelf.put(0, state)
        state = shelf.get(0)
        shelf.clear()
    outcome = straight(program, state, consts)
    results = [*outcome.state, *outcome.outs]
    found = framework_of(results)
    if found is not None:
        names = program.names(len(outcome.state))
        names += [f"output {i}" for i in range(len(outcome.outs))]
        refuse_traced(found, program, results, names.__getitem__, 1)
    return outcome
