"""How a budget in bytes is divided among the loops of a function.

Loops side by side hold their snapshots at the same time, so they share what there is. A loop with loops
inside keeps half for its own snapshots and leaves the other half to those inside; it keeps no tapes,
since the tape of one of its steps holds the snapshots of inner loops, whose lengths may change.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..budget import Budget
from ..chain import Online, Revolve
from ..errors import BudgetError
from ..loops.plan import Settle, check_length, measure
from ..loops.runtime import Options
from ..units import format_bytes, parse_bytes
from .facts import Facts


def shares(options: Options, loops: list[Facts]) -> list[Options]:
    """The options of each loop: its part of a budget in bytes."""
    if options.memory is None:
        return [options] * len(loops)
    memory = parse_bytes(options.memory)
    parents = {loop.parent for loop in loops}
    found = []
    for loop in loops:
        part = _part(memory, loop, loops)
        kind = _Outer if loop.number in parents else Options
        found.append(kind(memory=int(part / 2 if loop.number in parents else part), verify=options.verify))
    return found


def _part(memory: float, loop: Facts, loops: list[Facts]) -> float:
    """What a loop and those inside it have."""
    if loop.parent is not None:
        memory = _part(memory, loops[loop.parent], loops) / 2
    return memory / loop.siblings


class _Outer(Options):
    """The options of a loop with loops inside."""

    @cached_property
    def settle(self) -> Settle:
        return _SettleOuter(Budget(memory=self.memory))


class _SettleOuter(Settle):
    """As many snapshots as fit, and no tapes."""

    @property
    def whole(self) -> Budget:
        """The part of this loop and of those inside, for a framework that measures a step with all that is in it."""
        assert self.budget.memory is not None
        return Budget(memory=2 * parse_bytes(self.budget.memory))

    def __call__(self, node: Any, state: list[Any], consts: list[Any], live: list[bool], wanted: list[bool]) -> Any:
        program, number = node.program, node.program.length
        check_length(self.budget, program)
        if number == 0 or (number is None and not program.goes_on(state, 0)):
            return Revolve(0, 1) if number == 0 else Online(1)
        assert self.budget.memory is not None
        limit = parse_bytes(self.budget.memory)
        measured = measure(node.framework, program, state, consts, [*live, *wanted], node.written, node.level)
        slots = (limit - measured.working) // max(measured.state, 1)
        if slots < 1:
            least = measured.working + measured.state
            raise BudgetError(
                f"{format_bytes(limit)}, the part of the budget for the loop over {program.where()} "
                "itself, are too few: its "
                f"states take {format_bytes(measured.state)}, a step {format_bytes(measured.working)}, "
                "and the smallest part "
                f"is {least} bytes ({format_bytes(least)})",
                minimum=least,
            )
        return Online(slots) if number is None else Revolve(number, min(slots, number))
