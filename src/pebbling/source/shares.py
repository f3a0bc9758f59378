"""How a budget in bytes is divided among the loops of a function.

Loops side by side hold their snapshots at the same time, so they share what there is. A loop with loops
inside keeps half for its own snapshots and leaves the other half to those inside; it keeps no tapes,
since the tape of one of its steps holds the snapshots of inner loops, whose lengths may change.

A part that is too small does not stop the function at once: its loop goes on with one snapshot, so that the loops
after it are measured as well, and the derivative is refused before it begins. Then the smallest budget is known that
is enough for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Any

from ..budget import Budget
from ..chain import Online, Revolve
from ..errors import BudgetError
from ..loops.plan import Settle, check_length, measure
from ..loops.runtime import Options
from ..units import format_bytes, parse_budget
from .facts import Facts

OVERHEAD = 96 * 1024
"""What the transform itself takes: the new code, what is compared before and after a loop."""

_MARGIN, _JITTER = 1.01, 2048  # by how much two trials of the same step may differ


@dataclass
class Needs:
    """What the loops of one function turned out to need."""

    memory: int
    found: dict[int, tuple[int, str]] = field(default_factory=dict)
    """For each loop whose part is too small, the budget with which it is not, and what was said of it."""
    measuring: int = 0

    def check(self) -> None:
        """Refuse the budget if a part of it was too small."""
        if not self.found or self.measuring:
            return
        minimum, words = max(self.found.values())
        self.found.clear()
        raise BudgetError(
            f"{self.memory} bytes ({format_bytes(self.memory)}) are too few for the loops of this function together: "
            f"{words}. The smallest budget for all is {minimum} bytes ({format_bytes(minimum)})",
            minimum=minimum,
        )


def shares(options: Options, loops: list[Facts]) -> list[Options]:
    """The options of each loop: its part of a budget in bytes."""
    if options.memory is None:
        return [options] * len(loops)
    memory = parse_budget(options.memory)
    needs = Needs(memory)
    parents = {loop.parent for loop in loops}
    found: list[Options] = []
    for loop in loops:
        part = _part(1.0, loop, loops)
        kind = _Outer if loop.number in parents else _Part
        part = part / 2 if loop.number in parents else part
        found.append(kind(memory=int(memory * part), verify=options.verify, needs=needs, loop=loop.number, part=part))
    return found


def _part(memory: float, loop: Facts, loops: list[Facts]) -> float:
    """What a loop and those inside it have."""
    if loop.parent is not None:
        memory = _part(memory, loops[loop.parent], loops) / 2
    return memory / loop.siblings


@dataclass(frozen=True)
class _Part(Options):
    """The options of one loop of several, or of the only one."""

    needs: Needs = field(default_factory=lambda: Needs(0))
    loop: int = 0
    part: float = 1.0
    """Which part of the budget of the function it has."""

    @cached_property
    def settle(self) -> Settle:
        return _SettlePart(Budget(memory=self.memory), self.needs, self.loop, self.part)


class _Outer(_Part):
    """The options of a loop with loops inside."""

    @cached_property
    def settle(self) -> Settle:
        return _SettleOuter(Budget(memory=self.memory), self.needs, self.loop, self.part)


@dataclass(frozen=True)
class _SettlePart(Settle):
    """The schedule of a loop within its part."""

    needs: Needs
    loop: int
    part: float

    def __call__(self, node: Any, state: list[Any], consts: list[Any], live: list[bool], wanted: list[bool]) -> Any:
        self.needs.measuring += 1
        try:
            return self.fitting(node, state, consts, live, wanted)
        except BudgetError as error:
            if error.minimum is None:
                raise
            self.needs.found[self.loop] = ceil(_MARGIN * (error.minimum + _JITTER) / self.part) + OVERHEAD, str(error)
            number = node.program.length
            return Online(1) if number is None else Revolve(number, 1)
        finally:
            self.needs.measuring -= 1

    def fitting(self, node: Any, state: list[Any], consts: list[Any], live: list[bool], wanted: list[bool]) -> Any:
        """The schedule, or a ``BudgetError`` about this part."""
        return Settle(Budget(memory=self.limit))(node, state, consts, live, wanted)

    @property
    def limit(self) -> int:
        """The bytes of this part that are for the loop itself."""
        assert self.budget.memory is not None
        return max(0, int(parse_budget(self.budget.memory) - OVERHEAD * self.part))

    def check(self) -> None:
        """Called before a derivative is taken back through a loop."""
        self.needs.check()


class _SettleOuter(_SettlePart):
    """As many snapshots as fit, and no tapes."""

    @property
    def whole(self) -> Budget:
        """The part of this loop and of those inside, for a framework that measures a step with all that is in it."""
        assert self.budget.memory is not None
        return Budget(memory=2 * parse_budget(self.budget.memory))

    def fitting(self, node: Any, state: list[Any], consts: list[Any], live: list[bool], wanted: list[bool]) -> Any:
        program, number = node.program, node.program.length
        check_length(self.budget, program)
        if number == 0 or (number is None and not program.goes_on(state, 0)):
            return Revolve(0, 1) if number == 0 else Online(1)
        limit = self.limit
        measured = measure(node.framework, program, state, consts, [*live, *wanted], node.written, node.level)
        # The step was measured with the loops inside, which have the other half and may use all of it later.
        room = 2 * limit - max(measured.working, limit + 2 * measured.state + measured.forward)
        slots = room // max(measured.state, 1)
        if slots < 1:
            least = max(measured.working - limit, 2 * measured.state + measured.forward) + measured.state
            raise BudgetError(
                f"{format_bytes(limit)}, the part of the budget for the loop over {program.where()} itself, are too "
                f"few: its states take {format_bytes(measured.state)}, a step {format_bytes(measured.working)}, and "
                f"the smallest part is {least} bytes ({format_bytes(least)})",
                minimum=least,
            )
        return Online(slots) if number is None else Revolve(number, min(slots, number))
